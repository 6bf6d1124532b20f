package radixkv_test

import (
	"errors"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// K12: what an engine with kernels of its own reads.
func TestPlanArrays(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	look := func(expect func(arrays radixkv.PlanArrays)) {
		t.Helper()
		must(t, b.plan.View(expect))
	}
	empty := func(arrays radixkv.PlanArrays) {
		equal(t, "rows", arrays.RowCount, 0)
		equal(t, "positions", arrays.PositionCount, 0)
		equalSlices(t, "indptr", arrays.IndPtr, []int32{0})
		equal(t, "indices", len(arrays.Indices), 0)
	}
	look(empty)
	sequence, state := b.begin(run(1, 6))
	slot, err := b.table.AllocateSlot()
	must(t, err)
	must(t, b.table.Reserve(slot, 9))
	must(t, b.plan.Set([]radixkv.PlanRow{
		{Sequence: sequence.ID(), Count: 6}, {Slot: slot, Start: 7, Count: 2},
	}))
	first, second := b.row(state.Slot), b.row(slot)
	both := func(arrays radixkv.PlanArrays) {
		equal(t, "rows", arrays.RowCount, 2)
		equal(t, "positions", arrays.PositionCount, 8)
		equalSlices(t, "query indptr", arrays.QueryIndPtr, []int32{0, 6, 8})
		equalSlices(t, "indptr", arrays.IndPtr, []int32{0, 2, 5})
		equalSlices(t, "last page lengths", arrays.LastPageLen, []int32{2, 1})
		var pages []int32
		for _, page := range join(first, second) {
			pages = append(pages, int32(page))
		}
		equalSlices(t, "indices", arrays.Indices, pages)
		var mapping []int64
		for position := 0; position < 6; position++ {
			mapping = append(mapping, int64(first[position/4])*4+int64(position%4))
		}
		mapping = append(mapping, int64(second[1])*4+3, int64(second[2])*4)
		equalSlices(t, "slot mapping", arrays.SlotMapping, mapping)
	}
	look(both)
	// A plan that was refused is as before; one that is emptied has no rows.
	for name, row := range map[string]radixkv.PlanRow{
		"start":    {Sequence: sequence.ID(), Count: 9},
		"count":    {Sequence: sequence.ID()},
		"rows[0]":  {Sequence: sequence.ID(), Start: -1, Count: 2},
		"slot":     {Slot: 3, Count: 1},
		"has bit":  {Sequence: sequence.ID(), Count: 2, TreeMasks: []uint64{2, 0}},
		"for 2":    {Sequence: sequence.ID(), Count: 2, TreeMasks: []uint64{0}},
		"mask 7":   {Sequence: sequence.ID(), Count: 1, Mask: 7},
		"context":  {Sequence: sequence.ID(), Count: 1, Mask: radixkv.MaskContext},
		"sequence": {Slot: state.Slot, Count: 1},
	} {
		err := b.plan.Set([]radixkv.PlanRow{row})
		if name == "sequence" {
			names(t, err, radixkv.InvalidState, name)
		} else {
			names(t, err, radixkv.InvalidArgument, name)
		}
		look(both)
	}
	must(t, b.plan.Set([]radixkv.PlanRow{
		{Sequence: sequence.ID(), Count: 3, TreeMasks: []uint64{0, 1, 1}},
	}))
	must(t, b.plan.Set([]radixkv.PlanRow{
		{Sequence: sequence.ID(), Start: 3, Count: 7, Mask: radixkv.MaskContext},
	}))
	must(t, b.plan.Set(nil))
	look(empty)
	must(t, sequence.Release())
	must(t, b.table.FreeSlot(slot))
}

// What is being looked at does not move: who reserves waits until the look is over.
func TestPlanReserveWaitsForView(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	capacity := radixkv.PlanCapacity{RowCount: 1, PositionCount: 6, PageCount: 2}
	must(t, b.plan.Reserve(capacity))
	for name, reserve := range map[string]func() error{
		"Reserve":     func() error { return b.plan.Reserve(capacity) },
		"ReservePlan": func() error { return b.runner.ReservePlan(b.plan) },
	} {
		done := make(chan error)
		must(t, b.plan.View(func(radixkv.PlanArrays) {
			go func() { done <- reserve() }()
			select {
			case <-done:
				t.Errorf("%s did not wait", name)
			case <-time.After(50 * time.Millisecond):
			}
		}))
		if !t.Failed() {
			must(t, <-done)
		}
	}
	must(t, b.plan.Close())
}

// What is reserved is a limit from then on.
func TestPlanReserve(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	sequence, _ := b.begin(run(1, 6))
	row := radixkv.PlanRow{Sequence: sequence.ID(), Count: 6}
	names(t, b.plan.Check(), radixkv.InvalidState, "plan")
	names(t, b.runner.PreparePlan(b.plan, 0, 0), radixkv.InvalidState, "plan")
	must(t, b.plan.Set([]radixkv.PlanRow{row}))
	capacity := radixkv.PlanCapacity{
		Flags: radixkv.PlanSeparate, RowCount: 1, PositionCount: 5, PageCount: 2,
	}
	names(t, b.plan.Reserve(capacity), radixkv.InvalidArgument, "position_count")
	names(t, b.plan.Reserve(radixkv.PlanCapacity{}), radixkv.InvalidArgument, "row_count")
	capacity.PositionCount = 6
	names(t, b.runner.ReservePlan(b.plan), radixkv.InvalidState, "rkv_plan_reserve")
	must(t, b.plan.Reserve(capacity))
	must(t, b.runner.ReservePlan(b.plan))
	names(t, b.runner.PreparePlan(b.plan, 8, 0), radixkv.InvalidArgument, "flags")
	must(t, b.runner.PreparePlan(b.plan, 0, 0))
	must(t, b.plan.Check())
	row.Regions = []radixkv.Region{{Start: 1, End: 3}}
	names(t, b.plan.Set([]radixkv.PlanRow{row}), radixkv.InvalidArgument, "regions")
	must(t, sequence.Release())
	must(t, b.plan.Close())
	if b.plan.Reserve(capacity) == nil || b.plan.Check() == nil {
		t.Error("a closed plan was used")
	}
}

// J04: two runners of different shapes compute one plan; the copies of a step are among its arrays,
// and stay open until both have carried them out.
func TestPlanOfTwoRunners(t *testing.T) {
	b := newRunnerBench(t, 4, 33)
	config := smallRunner
	config.LayerCount, config.QueryHeadCount, config.KVHeadCount = 1, 1, 1
	other, err := radixkv.NewRunner(b.table, config)
	must(t, err)
	defer other.Close()
	compute := func(c chunk) {
		t.Helper()
		must(t, b.plan.Set(planRows(c)))
		must(t, b.runner.PreparePlan(b.plan, radixkv.PrepareKeepCopiesOpen, 0))
		for layer := 0; layer < layers; layer++ {
			must(t, b.runner.AppendPrefill(b.plan, newTensors(layer, c).args(layer)))
		}
	}
	alone := func(c chunk) {
		t.Helper()
		zeros := radixkv.F32(make([]float32, c.count*headDim))
		must(t, other.AppendPrefill(b.plan, radixkv.AppendPrefillArgs{
			Q: zeros, K: zeros, V: zeros, Out: radixkv.F32(make([]float32, c.count*headDim)),
		}))
	}
	first, _ := b.begin(run(1, 10))
	compute(chunk{first, run(1, 10), 0, 10})
	alone(chunk{first, run(1, 10), 0, 10})
	_, err = first.Publish(10)
	must(t, err)
	ids := join(run(1, 6), run(100, 2))
	second, waits := b.begin(ids)
	equal(t, "copies", waits.CopyCount, 1)
	waiting := b.copyOf(second)
	rest := chunk{second, ids, 6, 2}
	compute(rest)
	must(t, b.plan.View(func(arrays radixkv.PlanArrays) {
		equalSlices(t, "sequences", arrays.Copies.Sequence, []radixkv.SequenceID{second.ID()})
		equalSlices(t, "groups", arrays.Copies.Group, []int32{0})
		equalSlices(t, "sources", arrays.Copies.SourcePage, []int32{int32(waiting.SourcePage)})
		equalSlices(t, "targets", arrays.Copies.TargetPage, []int32{int32(waiting.TargetPage)})
		equalSlices(t, "positions", arrays.Copies.PositionCount, []int32{2})
	}))
	state, err := second.Info()
	must(t, err)
	equal(t, "open", state.CopyCount, 1)
	alone(rest)
	state, err = second.Info()
	must(t, err)
	equal(t, "open", state.CopyCount, 0)
	must(t, first.Release())
	must(t, second.Release())
}

// K21: images attend to themselves in both directions, in as many rows as there are.
func TestPlanRegions(t *testing.T) {
	b := newRunnerBench(t, 4, 33)
	regions := []radixkv.Region{{Start: 2, End: 5}, {Start: 6, End: 8}}
	var chunks []chunk
	var rows []radixkv.PlanRow
	for i := 0; i < 3; i++ {
		ids := run(100*i, 9)
		sequence, _ := b.begin(ids)
		chunks = append(chunks, chunk{sequence, ids, 0, 9})
		rows = append(rows, planRows(chunks[i])[0])
	}
	rows[0].Regions, rows[2].Regions = regions, regions[1:]
	must(t, b.plan.Set(rows))
	computed := newTensors(1, chunks...)
	must(t, b.runner.AppendPrefill(b.plan, computed.args(1)))
	for row, c := range chunks {
		for query := 0; query < 9; query++ {
			end := query + 1
			for _, region := range rows[row].Regions {
				if int(region.Start) <= query && query < int(region.End) {
					end = int(region.End)
				}
			}
			want, _ := naive(1, c.ids, query, 3, 0, end)
			at := ((row*9+query)*queryHeads + 3) * headDim
			if !near(computed.out[at+9], want[9], 2e-5) {
				t.Fatalf("row %d, query %d: %v, want %v", row, query, computed.out[at+9], want[9])
			}
		}
	}
	rows[1] = radixkv.PlanRow{
		Sequence: rows[1].Sequence, Start: 0, Count: 3, Regions: regions, // cut
	}
	names(t, b.plan.Set(rows), radixkv.InvalidArgument, "rows[1]")
	for _, c := range chunks {
		must(t, c.sequence.Release())
	}
}

// A plan is set many times, with rows and regions that come and go, without harm to its memory.
func TestPlanIsReused(t *testing.T) {
	b := newRunnerBench(t, 1, 600)
	var rows []radixkv.PlanRow
	var sequences []radixkv.Sequence
	for i := 0; i < 4; i++ {
		sequence, _ := b.begin(run(200*i, 128))
		sequences = append(sequences, sequence)
		rows = append(rows, radixkv.PlanRow{Sequence: sequence.ID(), Count: 128})
	}
	for round := 0; round < 200; round++ {
		for i := range rows {
			rows[i].Regions = nil
			for start := 0; start < (round*7+i*3)%60; start++ {
				rows[i].Regions = append(rows[i].Regions,
					radixkv.Region{Start: uint64(2 * start), End: uint64(2*start + 2)})
			}
		}
		count := 1 + round%4
		must(t, b.plan.Set(rows[:count]))
		must(t, b.plan.View(func(arrays radixkv.PlanArrays) {
			equal(t, "new positions", arrays.PositionCount, 128*count)
		}))
	}
	for _, sequence := range sequences {
		must(t, sequence.Release())
	}
}

// Who looks may look further while somebody waits to set the plan.
func TestPlanLooksWithinALook(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	sequence, _ := b.begin(run(1, 6))
	must(t, b.plan.Set([]radixkv.PlanRow{{Sequence: sequence.ID(), Count: 6}}))
	set, looked, rows := make(chan error, 1), make(chan error, 1), 0
	go func() {
		var inner error
		err := b.plan.View(func(radixkv.PlanArrays) {
			go func() { set <- b.plan.Set(nil) }()
			time.Sleep(50 * time.Millisecond) // by now it waits
			inner = b.plan.ViewGroup(0, 0, func(arrays radixkv.PlanGroupArrays) {
				rows = arrays.RowCount
			})
		})
		looked <- errors.Join(err, inner)
	}()
	select {
	case err := <-looked:
		must(t, err)
	case <-time.After(10 * time.Second):
		panic("a look waits for who waits for it") // Close() of the cleanup would, too
	}
	equal(t, "rows", rows, 1)
	must(t, <-set)
	must(t, sequence.Release())
}

// deep makes the stack of the goroutine grow, that is move.
//
//go:noinline
func deep(calls int) int {
	var room [1024]byte
	room[calls%len(room)] = byte(calls)
	if calls == 0 {
		return int(room[0])
	}
	return deep(calls-1) + int(room[calls%len(room)])
}

// What has nothing has no address: Go ends a program that keeps one of the first page in a variable
// while a stack moves. Each subtest has a goroutine, and so a small stack, of its own.
func TestPlanArraysOfNothing(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	sequence, _ := b.begin(run(1, 6))
	for name, rows := range map[string][]radixkv.PlanRow{
		"no rows": nil, "no copies": {{Sequence: sequence.ID(), Count: 6}},
	} {
		isNone := len(rows) == 0
		must(t, b.plan.Set(rows))
		t.Run(name, func(t *testing.T) {
			must(t, b.plan.View(func(arrays radixkv.PlanArrays) {
				// Variables: Go does not look at parameters.
				kept, copies := arrays, arrays.Copies
				deep(2000)
				equal(t, "copies", len(copies.Sequence)+len(copies.Group), 0)
				equal(t, "no sequences", copies.Sequence == nil, true)
				equal(t, "no target pages", copies.TargetPage == nil, true)
				equal(t, "no pages", kept.Indices == nil, isNone)
				equal(t, "no lengths", kept.LastPageLen == nil, isNone)
				equal(t, "no places", kept.SlotMapping == nil, isNone)
			}))
		})
		t.Run(name+" of a group", func(t *testing.T) {
			must(t, b.plan.ViewGroup(0, radixkv.PlanCompact, func(arrays radixkv.PlanGroupArrays) {
				kept := arrays
				deep(2000)
				equal(t, "no pages", kept.Indices == nil, isNone)
				equal(t, "no lengths", kept.LastPageLen == nil, isNone)
				equal(t, "no places", kept.SlotMapping == nil, isNone)
			}))
		})
	}
	must(t, sequence.Release())
}
