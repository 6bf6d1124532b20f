package radixkv_test

import (
	"math"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// B10
func TestPageTableConfig(t *testing.T) {
	for _, size := range []uint32{0, 1, 16, radixkv.PageSizeMax} {
		table, err := radixkv.NewPageTable(
			radixkv.PageTableConfig{PageSize: size, PageCount: 9})
		must(t, err)
		stats, err := table.Stats()
		must(t, err)
		want := size
		if size == 0 {
			want = 16 // the default
		}
		equal(t, "page size", stats.PageSize, want)
		equal(t, "pages without page 0", stats.TotalPageCount, 8)
		equal(t, "free pages", stats.FreePageCount, 8)
		equal(t, "slots", stats.FreeSlotCount, stats.SlotCount)
		must(t, table.Close())
	}
	for name, config := range map[string]radixkv.PageTableConfig{
		"no pages":            {PageSize: 16},
		"page 0 alone":        {PageSize: 16, PageCount: 1},
		"page size too large": {PageSize: radixkv.PageSizeMax + 1, PageCount: 9},
		"more than memory": {
			PageSize: 256, PageCount: math.MaxUint32, SlotCount: math.MaxUint32,
			RowPageLimit: math.MaxUint32,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if table, err := radixkv.NewPageTable(config); err == nil {
				table.Close()
				t.Fatal("was not refused")
			}
		})
	}
}

// K12, M04: all or nothing, and the error states the numbers.
func TestAllocatePages(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	node, _ := b.store(base, radixkv.Text(run(0, 8)))
	b.store(base, radixkv.Text(run(100, 4)))
	lock := b.lock(node)

	all := make([]uint32, 7)
	e := wants(t, b.table.AllocatePages(all), radixkv.OutOfPages)
	if e.Shortage == nil {
		t.Fatal("out of pages without the numbers")
	}
	equal(t, "shortage", *e.Shortage, radixkv.Shortage{
		NeededPageCount: 7, FreePageCount: 5, ReclaimablePageCount: 1, LockedPageCount: 2,
	})
	equalSlices(t, "nothing written", all, make([]uint32, 7))
	equal(t, "nothing evicted", b.sound().CachedPageCount, 3)

	must(t, b.table.AllocatePages(all[:6])) // evicts on demand
	equal(t, "what is locked stays", b.sound().CachedPageCount, 2)
	seen := map[uint32]bool{0: true}
	for _, page := range all[:6] {
		if seen[page] {
			t.Fatalf("page %d is reserved or was handed out twice", page)
		}
		seen[page] = true
	}

	for name, pages := range map[string][]uint32{
		"page 0": {0}, "out of range": {9}, "far out of range": {math.MaxUint32},
		"twice": {all[0], all[0]},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, b.table.FreePages(pages), radixkv.InvalidArgument)
			equal(t, "free pages", b.sound().FreePageCount, 0)
		})
	}
	must(t, b.table.FreePages(all[:6]))
	wants(t, b.table.FreePages(all[:1]), radixkv.InvalidArgument)
	must(t, b.table.FreePages(nil))
	must(t, b.cache.Unlock(lock))
}

// K12
func TestRows(t *testing.T) {
	b := newBench(t, 4, 17, 0)
	slot, err := b.table.AllocateSlot()
	must(t, err)
	pages := b.pages(3)

	wants(t, b.table.Map(slot, 1, pages), radixkv.InvalidArgument) // not at the row's length
	must(t, b.table.Map(slot, 0, pages[:2]))
	wants(t, b.table.Map(slot, 0, pages[2:]), radixkv.InvalidArgument)
	wants(t, b.table.Map(slot, 2, pages[:1]), radixkv.InvalidArgument) // in the row already
	must(t, b.table.Map(slot, 2, pages[2:]))
	equalSlices(t, "row", b.row(slot), pages)
	wants(t, b.table.FreePages(pages[:1]), radixkv.InvalidArgument)

	part := make([]uint32, 2)
	rest, err := b.table.Row(slot, 1, part)
	must(t, err)
	equal(t, "pages from index 1 on", rest, 2)
	equal(t, "the first of them", part[0], pages[1])
	rest, err = b.table.Row(slot, 0, part) // J06
	wants(t, err, radixkv.BufferTooSmall)
	equal(t, "pages in all", rest, 3)
	_, err = b.table.Row(slot, 4, nil)
	wants(t, err, radixkv.InvalidArgument)

	capacity, err := b.table.Capacity(slot)
	must(t, err)
	equal(t, "capacity", capacity, 12)
	mapping := make([]int64, 4)
	must(t, b.table.SlotMapping(slot, []uint64{11, 0, 5, 0}, mapping))
	at := func(index, offset int) int64 { return int64(pages[index])*4 + int64(offset) }
	equalSlices(t, "mapping", mapping, []int64{at(2, 3), at(0, 0), at(1, 1), at(0, 0)})
	wants(t, b.table.SlotMapping(slot, []uint64{12}, mapping[:1]), radixkv.InvalidArgument)
	wants(t, b.table.SlotMapping(slot, []uint64{1}, mapping), radixkv.InvalidArgument)
	must(t, b.table.SlotMapping(slot, nil, nil))

	must(t, b.table.Reserve(slot, 3)) // long enough already
	must(t, b.table.Reserve(slot, 13))
	equal(t, "pages after reserving", len(b.row(slot)), 4)
	for positions, want := range map[int]bool{0: true, 64: true, 65: false, math.MaxInt: false} {
		can, err := b.table.CanReserve(slot, positions)
		must(t, err)
		equal(t, "can reserve", can, want)
	}
	if err := b.table.Reserve(slot, 65); err == nil {
		t.Fatal("reserved more than there is")
	}
	equal(t, "pages after a refusal", len(b.row(slot)), 4)

	must(t, b.table.FreeSlot(slot))
	equal(t, "private pages", b.sound().PrivatePageCount, 0)
	wants(t, b.table.FreeSlot(slot), radixkv.InvalidArgument)
	_, err = b.table.Capacity(slot)
	wants(t, err, radixkv.InvalidArgument)
}

// K12, M04
func TestSlots(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	for i := 0; i < 4; i++ {
		can, err := b.table.CanReserve(radixkv.NoSlot, 4)
		must(t, err)
		equal(t, "a slot is free", can, true)
		_, err = b.table.AllocateSlot()
		must(t, err)
	}
	_, err := b.table.AllocateSlot()
	wants(t, err, radixkv.OutOfSlots)
	can, err := b.table.CanReserve(radixkv.NoSlot, 4)
	must(t, err)
	equal(t, "a slot is free", can, false)
	for slot := uint32(0); slot < 4; slot++ {
		must(t, b.table.FreeSlot(slot))
	}
	equal(t, "free slots", b.sound().FreeSlotCount, 4)
}

// K12: the arrays for a batch of rows, one of them empty.
func TestBatch(t *testing.T) {
	b := newBench(t, 4, 17, 0)
	slots := make([]uint32, 3)
	for i, positions := range []int{9, 0, 8} {
		slot, err := b.table.AllocateSlot()
		must(t, err)
		must(t, b.table.Reserve(slot, positions))
		slots[i] = slot
	}
	rows := []radixkv.BatchRow{{slots[0], 9}, {slots[1], 0}, {slots[2], 5}}
	count, err := b.table.Batch(rows, radixkv.BatchArrays{})
	must(t, err)
	equal(t, "indices", count, 5)

	arrays := radixkv.BatchArrays{
		IndPtr: make([]int32, 4), Indices: make([]int32, 5), LastPageLen: make([]int32, 3),
	}
	count, err = b.table.Batch(rows, arrays)
	must(t, err)
	equal(t, "indices", count, 5)
	equalSlices(t, "indptr", arrays.IndPtr, []int32{0, 3, 3, 5})
	equalSlices(t, "last_page_len", arrays.LastPageLen, []int32{1, 0, 1})
	for i, page := range join(b.row(slots[0]), b.row(slots[2])) {
		equal(t, "index", arrays.Indices[i], int32(page))
	}

	short := arrays
	short.Indices = arrays.Indices[:4]
	count, err = b.table.Batch(rows, short)
	wants(t, err, radixkv.BufferTooSmall)
	equal(t, "needed", count, 5)
	for _, bad := range []radixkv.BatchArrays{
		{IndPtr: arrays.IndPtr[:3], Indices: arrays.Indices, LastPageLen: arrays.LastPageLen},
		{IndPtr: arrays.IndPtr, Indices: arrays.Indices, LastPageLen: arrays.LastPageLen[:2]},
	} {
		_, err = b.table.Batch(rows, bad)
		wants(t, err, radixkv.InvalidArgument)
	}
	_, err = b.table.Batch([]radixkv.BatchRow{{slots[0], 13}}, arrays)
	wants(t, err, radixkv.InvalidArgument)
	_, err = b.table.Batch([]radixkv.BatchRow{{99, 0}}, arrays)
	wants(t, err, radixkv.InvalidArgument)
	for _, slot := range slots {
		must(t, b.table.FreeSlot(slot))
	}
}

// K12: to ask for the count writes nothing, also where there is nothing to count.
func TestBatchCountsEmptyRows(t *testing.T) {
	b := newBench(t, 4, 17, 0)
	var rows []radixkv.BatchRow
	for i := 0; i < 3; i++ {
		slot, err := b.table.AllocateSlot()
		must(t, err)
		rows = append(rows, radixkv.BatchRow{Slot: slot})
	}
	room := []int32{7, 7, 7, 7, 7, 7, 7, 7}
	for _, arrays := range []radixkv.BatchArrays{
		{}, {IndPtr: room[:1]}, {IndPtr: room[:1:1], LastPageLen: room[4:5:5]},
	} {
		count, err := b.table.Batch(rows, arrays)
		must(t, err)
		equal(t, "indices", count, 0)
		equalSlices(t, "behind the slices", room, []int32{7, 7, 7, 7, 7, 7, 7, 7})
	}
	count, err := b.table.Batch(nil, radixkv.BatchArrays{})
	must(t, err)
	equal(t, "indices of no rows", count, 0)
	for _, row := range rows {
		must(t, b.table.FreeSlot(row.Slot))
	}
}
