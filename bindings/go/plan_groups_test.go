package radixkv_test

import (
	"math"
	"testing"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

const valueDim = 96

func groupRunner(group uint32) radixkv.RunnerConfig {
	return radixkv.RunnerConfig{
		LayerCount: 1, QueryHeadCount: 1, KVHeadCount: 1, HeadDim: headDim, VHeadDim: valueDim,
		Group: group, ThreadCount: 1,
	}
}

// groupNumbers are those of some positions, a head of width elements each.
func groupNumbers(kind int, ids []uint32, start, count, width int) []float32 {
	var made []float32
	for position := start; position < start+count; position++ {
		for at := 0; at < width; at++ {
			made = append(made, element(kind, 0, ids[position], position, at))
		}
	}
	return made
}

// attendGroup computes a row's new positions, of which each sees the last sees positions.
func attendGroup(
	t *testing.T, runner *radixkv.Runner, plan *radixkv.Plan, ids []uint32, start, count, sees int,
) {
	t.Helper()
	q := groupNumbers(kindQ, ids, start, count, headDim)
	k := groupNumbers(kindK, ids, start, count, headDim)
	v := groupNumbers(kindV, ids, start, count, valueDim)
	out := make([]float32, count*valueDim)
	args := radixkv.AppendPrefillArgs{
		Q: radixkv.F32(q), K: radixkv.F32(k), V: radixkv.F32(v), Out: radixkv.F32(out),
	}
	must(t, runner.AppendPrefill(plan, args))
	for i := 0; i < count; i++ {
		query, d := start+i, i%valueDim
		total, sum := 0.0, 0.0
		for key := max(0, query+1-sees); key <= query; key++ {
			dot := 0.0
			for at := 0; at < headDim; at++ {
				dot += float64(element(kindQ, 0, ids[query], query, at)) *
					float64(element(kindK, 0, ids[key], key, at))
			}
			weight := math.Exp(dot / math.Sqrt(headDim))
			total += weight
			sum += weight * float64(element(kindV, 0, ids[key], key, d))
		}
		if found := float64(out[i*valueDim+d]); math.Abs(found-sum/total) > 1e-5 {
			t.Fatalf("position %d: %g, not %g", query, found, sum/total)
		}
	}
	// V and Out have sizes of their own.
	args.V = args.K
	names(t, runner.AppendPrefill(plan, args), radixkv.InvalidArgument, "args.V")
	args.V, args.Out = radixkv.F32(v), radixkv.F32(out[:count*headDim])
	names(t, runner.AppendPrefill(plan, args), radixkv.InvalidArgument, "args.Out")
}

// G14: one plan for the runners of two groups, and the copy of a state that the engine carries out.
func TestRunnersOfGroups(t *testing.T) {
	b := newHybrid(t)
	full, err := radixkv.NewRunner(b.table, groupRunner(0))
	must(t, err)
	defer full.Close()
	sliding, err := radixkv.NewRunner(b.table, groupRunner(windowGroup))
	must(t, err)
	defer sliding.Close()
	_, err = radixkv.NewRunner(b.table, groupRunner(stateGroup))
	names(t, err, radixkv.InvalidArgument, "config.group")
	memory, err := sliding.KVMemory(0)
	must(t, err)
	equal(t, "V's stride", memory.VHeadStride, valueDim)
	plan, err := radixkv.NewPlan(b.table)
	must(t, err)
	defer plan.Close()
	compute := func(ids []uint32, start, count int) {
		attendGroup(t, full, plan, ids, start, count, 100)
		attendGroup(t, sliding, plan, ids, start, count, 9)
	}
	set := func(sequence radixkv.Sequence, start, count int) {
		must(t, plan.Set([]radixkv.PlanRow{{Sequence: sequence.ID(), Start: start, Count: count}}))
	}

	ids := run(1, 24)
	args := radixkv.BeginArgs{Tokens: radixkv.Text(ids)}
	first, _, err := b.cache.Begin(args)
	must(t, err)
	set(first, 0, 20)
	compute(ids, 0, 20)
	_, err = first.Publish(20)
	must(t, err)
	_, err = first.Checkpoint()
	must(t, err)
	must(t, first.ConfirmCopies())
	must(t, first.Release())

	second, _, err := b.cache.Begin(args)
	must(t, err)
	set(second, 20, 4)
	must(t, plan.View(func(arrays radixkv.PlanArrays) {
		equalSlices(t, "groups of copies", arrays.Copies.Group, []int32{stateGroup})
	}))
	names(t, full.PreparePlan(plan, 0, 0), radixkv.InvalidState, "group 2")
	must(t, full.PreparePlan(plan, radixkv.PrepareKeepCopiesOpen, 0))
	must(t, sliding.PreparePlan(plan, radixkv.PrepareKeepCopiesOpen, 0))
	must(t, second.ConfirmCopies())
	compute(ids, 20, 4)

	row, err := second.GroupRow(windowGroup)
	must(t, err)
	must(t, plan.ViewGroup(windowGroup, 0, func(arrays radixkv.PlanGroupArrays) {
		equal(t, "rows", arrays.RowCount, 1)
		equal(t, "pages", len(arrays.Indices), 6)
		equal(t, "a hole", arrays.Indices[2], 0)
		equal(t, "place", arrays.SlotMapping[3], int64(row[5])*4+3)
		equal(t, "no first positions", arrays.FirstPosition == nil, true)
	}))
	must(t, plan.ViewGroup(windowGroup, radixkv.PlanCompact, func(arrays radixkv.PlanGroupArrays) {
		equalSlices(t, "first position", arrays.FirstPosition, []int64{12})
		equalSlices(t, "pages of sinks", arrays.SinkPageCount, []int32{0})
		equal(t, "pages", len(arrays.Indices), 3)
		equal(t, "first page", arrays.Indices[0], int32(row[3]))
		equalSlices(t, "last page", arrays.LastPageLen, []int32{4})
	}))
	must(t, plan.ViewGroup(stateGroup, 0, func(arrays radixkv.PlanGroupArrays) {
		equal(t, "states", len(arrays.Indices), 1)
		equal(t, "no places", arrays.SlotMapping == nil, true)
	}))
	none := func(radixkv.PlanGroupArrays) { t.Error("shown") }
	names(t, plan.ViewGroup(3, 0, none), radixkv.InvalidArgument, "group 3")
	names(t, plan.ViewGroup(0, 2, none), radixkv.InvalidArgument, "flags")
	must(t, second.Release())
}
