package radixkv_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// M01, M03: every method of a closed, nil or zero handle gives ErrClosed.
func TestUseAfterClose(t *testing.T) {
	closedTable, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 9})
	must(t, err)
	closedCache, err := radixkv.NewCache(closedTable, radixkv.CacheConfig{})
	must(t, err)
	sequence, _, err := closedCache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 5))})
	must(t, err)
	closedRunner, err := radixkv.NewRunner(closedTable, smallRunner)
	must(t, err)
	closedPlan, err := radixkv.NewPlan(closedTable)
	must(t, err)
	for i := 0; i < 2; i++ { // closing twice is fine
		must(t, closedPlan.Close())
		must(t, closedRunner.Close())
		must(t, closedCache.Close())
		must(t, closedTable.Close())
	}
	var noTable *radixkv.PageTable
	var noCache *radixkv.Cache
	must(t, noTable.Close())
	must(t, noCache.Close())
	var noRunner *radixkv.Runner
	var noPlan *radixkv.Plan
	must(t, noRunner.Close())
	must(t, noPlan.Close())

	text := radixkv.Text(run(0, 4))
	one := make([]uint32, 1)
	for _, table := range []*radixkv.PageTable{closedTable, noTable, {}} {
		for name, call := range map[string]func() error{
			"NewCache": func() error {
				_, err := radixkv.NewCache(table, radixkv.CacheConfig{})
				return err
			},
			"NewRunner": func() error {
				_, err := radixkv.NewRunner(table, smallRunner)
				return err
			},
			"NewPlan":       func() error { _, err := radixkv.NewPlan(table); return err },
			"Stats":         func() error { _, err := table.Stats(); return err },
			"AllocateSlot":  func() error { _, err := table.AllocateSlot(); return err },
			"FreeSlot":      func() error { return table.FreeSlot(0) },
			"AllocatePages": func() error { return table.AllocatePages(one) },
			"FreePages":     func() error { return table.FreePages(one) },
			"Map":           func() error { return table.Map(0, 0, one) },
			"Reserve":       func() error { return table.Reserve(0, 4) },
			"CanReserve":    func() error { _, err := table.CanReserve(0, 4); return err },
			"Capacity":      func() error { _, err := table.Capacity(0); return err },
			"Row":           func() error { _, err := table.Row(0, 0, one); return err },
			"SlotMapping":   func() error { return table.SlotMapping(0, nil, nil) },
			"Batch": func() error {
				_, err := table.Batch(nil, radixkv.BatchArrays{})
				return err
			},
			"Check": func() error { return table.Check() },
		} {
			if err := call(); !errors.Is(err, radixkv.ErrClosed) {
				t.Errorf("PageTable.%s: %v", name, err)
			}
		}
	}
	for _, cache := range []*radixkv.Cache{closedCache, noCache, {}} {
		live := cache.Sequence(sequence.ID())
		for name, call := range map[string]func() error{
			"Match": func() error { _, err := cache.Match(base, text, 0, one); return err },
			"Probe": func() error { _, _, err := cache.Probe(base, text); return err },
			"Prefetch": func() error {
				_, err := cache.Prefetch(base, text, 0, 0)
				return err
			},
			"CancelPrefetch": func() error { return cache.CancelPrefetch(1) },
			"Insert": func() error {
				_, err := cache.Insert(radixkv.InsertArgs{}, nil)
				return err
			},
			"Lock":         func() error { _, err := cache.Lock(1); return err },
			"Unlock":       func() error { return cache.Unlock(1) },
			"Evict":        func() error { _, err := cache.Evict(1, one); return err },
			"ContainsPage": func() error { _, err := cache.ContainsPage(1); return err },
			"NodeInfo":     func() error { _, err := cache.NodeInfo(1); return err },
			"NodePages":    func() error { _, err := cache.NodePages(1, one); return err },
			"NodeChildren": func() error { _, err := cache.NodeChildren(1, nil); return err },
			"Stats":        func() error { _, err := cache.Stats(); return err },
			"Check":        func() error { return cache.Check() },
			"Dump":         func() error { _, err := cache.Dump(radixkv.DumpJSON); return err },
			"Begin": func() error {
				_, _, err := cache.Begin(radixkv.BeginArgs{Tokens: text})
				return err
			},
			"Sequence.State":         func() error { _, err := live.Info(); return err },
			"Sequence.ConfirmCopies": func() error { return live.ConfirmCopies() },
			"Sequence.Append":        func() error { return live.Append(text) },
			"Sequence.Truncate":      func() error { return live.Truncate(1) },
			"Sequence.Publish":       func() error { _, err := live.Publish(1); return err },
			"Sequence.Release":       func() error { return live.Release() },
		} {
			if err := call(); !errors.Is(err, radixkv.ErrClosed) {
				t.Errorf("Cache.%s: %v", name, err)
			}
		}
	}
	live := newRunnerBench(t, 4, 9)
	for _, runner := range []*radixkv.Runner{closedRunner, noRunner, {}} {
		for name, call := range map[string]func() error{
			"ReservePlan":  func() error { return runner.ReservePlan(live.plan) },
			"PreparePlan":  func() error { return runner.PreparePlan(live.plan, 0, 0) },
			"KeepBranches": func() error { return runner.KeepBranches(live.plan, nil, 0) },
			"Stats":        func() error { _, err := runner.Stats(); return err },
			"KVMemory":     func() error { _, err := runner.KVMemory(0); return err },
			"CopyPages":    func() error { return runner.CopyPages(nil) },
			"AppendPrefill": func() error {
				return runner.AppendPrefill(live.plan, radixkv.AppendPrefillArgs{})
			},
			"MergeStates": func() error { return runner.MergeStates(radixkv.MergeStatesArgs{}) },
		} {
			if err := call(); !errors.Is(err, radixkv.ErrClosed) {
				t.Errorf("Runner.%s: %v", name, err)
			}
		}
	}
	for _, plan := range []*radixkv.Plan{closedPlan, noPlan, {}} {
		for name, call := range map[string]func() error{
			"Set":          func() error { return plan.Set(nil) },
			"Check":        func() error { return plan.Check() },
			"ReservePlan":  func() error { return live.runner.ReservePlan(plan) },
			"PreparePlan":  func() error { return live.runner.PreparePlan(plan, 0, 0) },
			"KeepBranches": func() error { return live.runner.KeepBranches(plan, nil, 0) },
			"View":         func() error { return plan.View(func(radixkv.PlanArrays) {}) },
			"AppendPrefill": func() error {
				return live.runner.AppendPrefill(plan, radixkv.AppendPrefillArgs{})
			},
		} {
			if err := call(); !errors.Is(err, radixkv.ErrClosed) {
				t.Errorf("Plan.%s: %v", name, err)
			}
		}
	}
}

// M03: the order of closing is free.
func TestCloseInAnyOrder(t *testing.T) {
	config := radixkv.PageTableConfig{PageSize: 4, PageCount: 9}
	table, err := radixkv.NewPageTable(config)
	must(t, err)
	cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
	must(t, err)
	_, err = radixkv.NewCache(table, radixkv.CacheConfig{})
	wants(t, err, radixkv.Busy)

	// A cache that is closed takes its sequences along and gives all pages back.
	sequence, _, err := cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 9))})
	must(t, err)
	_, err = sequence.Publish(9)
	must(t, err)
	must(t, cache.Close())
	stats, err := table.Stats()
	must(t, err)
	equal(t, "free pages", stats.FreePageCount, stats.TotalPageCount)
	equal(t, "free slots", stats.FreeSlotCount, stats.SlotCount)
	must(t, table.Check())

	// A page table that is closed first stays alive for its cache.
	cache, err = radixkv.NewCache(table, radixkv.CacheConfig{})
	must(t, err)
	must(t, table.Close())
	sequence, _, err = cache.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 9))})
	must(t, err)
	_, err = sequence.Publish(9)
	must(t, err)
	must(t, sequence.Release())
	must(t, cache.Check())
	must(t, cache.Close())
}

// M03: what nobody closed is closed by the garbage collector, in whichever order. That the cache
// was is seen from the page table, which can take another one.
func TestFinalizers(t *testing.T) {
	table, err := radixkv.NewPageTable(radixkv.PageTableConfig{PageSize: 4, PageCount: 9})
	must(t, err)
	defer table.Close()
	func() {
		forgotten, err := radixkv.NewCache(table, radixkv.CacheConfig{})
		must(t, err)
		_, _, err = forgotten.Begin(radixkv.BeginArgs{Tokens: radixkv.Text(run(0, 9))})
		must(t, err)
	}()
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		runtime.GC()
		time.Sleep(wait)
		cache, err := radixkv.NewCache(table, radixkv.CacheConfig{})
		if err == nil {
			must(t, cache.Close())
			stats, err := table.Stats()
			must(t, err)
			equal(t, "free pages", stats.FreePageCount, stats.TotalPageCount)
			return
		}
		wants(t, err, radixkv.Busy)
	}
	t.Fatal("the finalizer of the cache did not run")
}

// M01: unknown options are refused by name, and an error reads as one.
func TestUnknownOptions(t *testing.T) {
	b := newBench(t, 4, 9, 0)
	_, err := b.cache.Match(base, radixkv.Text(run(0, 4)), 1<<9, nil)
	e := wants(t, err, radixkv.InvalidArgument)
	equal(t, "text", err.Error(), "radixkv: RKV_STATUS_INVALID_ARGUMENT: "+e.Message)
	if !strings.Contains(e.Message, "flags") {
		t.Errorf("%q does not name the argument", e.Message)
	}
	must(t, b.cache.Close())
	for name, config := range map[string]radixkv.CacheConfig{
		"flags": {Flags: 1 << 9}, "index": {Index: 9},
	} {
		_, err := radixkv.NewCache(b.table, config)
		e := wants(t, err, radixkv.InvalidArgument)
		if !strings.Contains(e.Message, name) {
			t.Errorf("%q does not name %s", e.Message, name)
		}
	}
	b.cache, err = radixkv.NewCache(b.table, radixkv.CacheConfig{Index: radixkv.IndexRadix})
	must(t, err)
}

// M01: what Insert refuses changes nothing.
func TestBadInserts(t *testing.T) {
	b := newBench(t, 4, 17, 0)
	node, stored := b.store(base, radixkv.Text(run(0, 8)))
	gone, _ := b.store(base, radixkv.Text(run(900, 4)))
	b.match(run(0, 8))
	_, err := b.cache.Evict(1, nil)
	must(t, err)
	private := b.pages(3)
	cases := map[string]struct {
		args radixkv.InsertArgs
		want radixkv.Status
	}{
		"too few pages": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 12)), Pages: private[:2]}, radixkv.InvalidArgument},
		"page twice": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 8)),
			Pages:  []uint32{private[0], private[0]}}, radixkv.InvalidArgument},
		"page that is free": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 4)), Pages: freePage(b)}, radixkv.InvalidArgument},
		"page that is cached": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 4)), Pages: stored}, radixkv.InvalidArgument},
		"page 0": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 4)), Pages: []uint32{0}}, radixkv.InvalidArgument},
		"page out of range": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 4)), Pages: []uint32{4000}}, radixkv.InvalidArgument},
		"text id too large": {radixkv.InsertArgs{
			Tokens: radixkv.Text([]uint32{1, 2, 3, radixkv.TextIDLimit}),
			Pages:  private}, radixkv.InvalidArgument},
		"token index without a node": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(50, 4)), Pages: private,
			FromTokenIndex: 1}, radixkv.InvalidArgument},
		"negative page index": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(0, 12)), Pages: join(stored, private),
			FromNode: node, FromTokenIndex: 8, FromPageIndex: -1}, radixkv.InvalidArgument},
		"stale node": {radixkv.InsertArgs{
			Tokens: radixkv.Text(run(900, 8)), Pages: private,
			FromNode: gone, FromTokenIndex: 4, FromPageIndex: 1}, radixkv.StaleNode},
	}
	for name, c := range cases {
		before, err := b.cache.Dump(radixkv.DumpJSON)
		must(t, err)
		_, err = b.cache.Insert(c.args, nil)
		wants(t, err, c.want)
		after, err := b.cache.Dump(radixkv.DumpJSON)
		must(t, err)
		equal(t, name, after, before)
		b.sound()
	}
	_, err = b.cache.Insert(radixkv.InsertArgs{
		Tokens: radixkv.Text(run(50, 4)), Pages: private}, make([]uint32, 2))
	wants(t, err, radixkv.InvalidArgument) // published is shorter than the pages
	must(t, b.table.FreePages(private))
}

func freePage(b *bench) []uint32 {
	pages := b.pages(1)
	must(b, b.table.FreePages(pages))
	return pages
}
