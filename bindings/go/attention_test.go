package radixkv_test

import (
	"math"
	"testing"
	"time"

	radixkv "github.com/radixkv/radixkv/bindings/go"
)

// K20, B07, B08: chunks, a second request over the first one's pages, decoding beside a prefill.
func TestAppendPrefill(t *testing.T) {
	b := newRunnerBench(t, 4, 33)
	prompt := run(1, 20)
	first, _ := b.begin(prompt)
	b.step(chunk{first, prompt, 0, 13})
	_, err := first.Publish(13)
	must(t, err)
	b.step(chunk{first, prompt, 13, 7})
	_, err = first.Publish(20)
	must(t, err)

	other := join(run(1, 14), run(500, 8))
	second, state := b.begin(other)
	equal(t, "reused", state.CachedPositionCount, 14)
	equal(t, "to copy", state.CopyCount, 1)
	must(t, first.Append(radixkv.Text([]uint32{77})))
	prompt = append(prompt, 77)
	b.step(chunk{second, other, 14, 8}, chunk{first, prompt, 20, 1})
	state, err = second.Info()
	must(t, err)
	equal(t, "still to copy", state.CopyCount, 0)
	_, err = second.Publish(22)
	must(t, err)
	must(t, second.Release())
	must(t, first.Release())
}

// A window and what lies before it, merged, are attention over everything.
func TestMergeStates(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	ids := run(1, 12)
	sequence, _ := b.begin(ids)
	b.step(chunk{sequence, ids, 0, 12})
	last := chunk{sequence, ids, 11, 1}
	must(t, b.plan.Set(planRows(last)))
	window := newTensors(1, last)
	args := window.args(1)
	args.Window, args.K, args.V = 5, radixkv.Tensor{}, radixkv.Tensor{} // in the pages already
	must(t, b.runner.AppendPrefill(b.plan, args))
	far := newTensors(1, last)
	none := newTensors(1, last)
	for head := 0; head < queryHeads; head++ {
		out, lse := naive(1, ids, 11, head, 0, 7)
		far.lse[head], none.lse[head] = float32(lse), float32(math.Inf(-1))
		for d, value := range out {
			far.out[head*headDim+d] = float32(value)
			none.out[head*headDim+d] = float32(math.NaN())
		}
	}
	merge := radixkv.MergeStatesArgs{
		PositionCount: 1,
		Outs: []radixkv.Tensor{
			radixkv.F32(none.out), radixkv.F32(window.out), radixkv.F32(far.out),
		},
		LSEs: [][]float32{none.lse, window.lse, far.lse},
		Out:  radixkv.F32(window.out),
		LSE:  window.lse,
	}
	must(t, b.runner.MergeStates(merge))
	window.sameAsNaive(t, 1, last)

	for name, change := range map[string]func(args *radixkv.MergeStatesArgs){
		"LSEs":          func(a *radixkv.MergeStatesArgs) { a.LSEs = a.LSEs[1:] },
		"LSEs[1]":       func(a *radixkv.MergeStatesArgs) { a.LSEs = [][]float32{far.lse, nil, nil} },
		"LSE":           func(a *radixkv.MergeStatesArgs) { a.LSE = far.lse[1:] },
		"PositionCount": func(a *radixkv.MergeStatesArgs) { a.PositionCount = -1 },
		"too few":       func(a *radixkv.MergeStatesArgs) { a.PositionCount = 2 },
		"dtype":         func(a *radixkv.MergeStatesArgs) { a.Out = radixkv.Half(nil) },
		"dense":         func(a *radixkv.MergeStatesArgs) { a.Out.HeadStride = headDim },
		"state_count":   func(a *radixkv.MergeStatesArgs) { a.Outs, a.LSEs = nil, nil },
	} {
		bad := merge
		change(&bad)
		names(t, b.runner.MergeStates(bad), radixkv.InvalidArgument, name)
	}
	must(t, sequence.Release())
}

// K22: 16-bit tensors by their bits, and FP8 memory with its scales.
func TestHalfTensors(t *testing.T) {
	const half, one = 0x3F00, 0x3F80 // in BF16
	config := smallRunner
	config.DType, config.KVDType = radixkv.DTypeBF16, radixkv.DTypeFP8E4M3
	b := newRunnerBenchWith(t, 4, 9, config)
	sequence, _ := b.begin(run(1, 5))
	must(t, b.plan.Set([]radixkv.PlanRow{{Sequence: sequence.ID(), Count: 5}}))
	fill := func(count int, value uint16) []uint16 {
		values := make([]uint16, count)
		for i := range values {
			values[i] = value
		}
		return values
	}
	out := make([]uint16, 5*queryWidth)
	args := radixkv.AppendPrefillArgs{
		Q: radixkv.Half(fill(5*queryWidth, half)), K: radixkv.Half(fill(5*kvWidth, half)),
		V: radixkv.Half(fill(5*kvWidth, half)), Out: radixkv.Half(out), KScale: 0.5, VScale: 0.25,
	}
	must(t, b.runner.AppendPrefill(b.plan, args))
	equalSlices(t, "results", out, fill(5*queryWidth, half))
	args.KScale, args.VScale = 9, 9 // not read
	args.KScales, args.VScales = []float32{0.5, 0.5}, []float32{0.25, 0.25}
	must(t, b.runner.AppendPrefill(b.plan, args))
	equalSlices(t, "results", out, fill(5*queryWidth, half))
	keep := []radixkv.KeptBranch{{Positions: []uint32{0, 2, 4}}}
	must(t, b.runner.KeepBranches(b.plan, keep, 0))
	keep[0].Positions[2] = 5
	names(t, b.runner.KeepBranches(b.plan, keep, 0), radixkv.InvalidArgument, "positions")
	keep[0].Row = -1
	names(t, b.runner.KeepBranches(b.plan, keep, 0), radixkv.InvalidArgument, "Row")
	args.VScales = nil
	names(t, b.runner.AppendPrefill(b.plan, args), radixkv.InvalidArgument, "args.v_scales")
	args.VScales = []float32{1}
	names(t, b.runner.AppendPrefill(b.plan, args), radixkv.InvalidArgument, "args.VScales")
	args.VScales = []float32{0.25, 0.25}
	// A sink with as much weight as the only key takes half of the result.
	args.V = radixkv.Half(fill(5*kvWidth, one))
	args.Sinks = []float32{2, 2, 2, 2} // 64 * 0.5 * 0.5 / sqrt(64)
	must(t, b.runner.AppendPrefill(b.plan, args))
	equal(t, "first result", out[0], half)
	args.Q = radixkv.F32(make([]float32, 5*queryWidth))
	names(t, b.runner.AppendPrefill(b.plan, args), radixkv.InvalidArgument, "args.Q")
	must(t, sequence.Release())
}

// Strided tensors: q, k and v side by side in one slice, as a fused projection gives them.
func TestStrides(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	ids := run(1, 7)
	sequence, _ := b.begin(ids)
	c := chunk{sequence, ids, 0, 7}
	must(t, b.plan.Set(planRows(c)))
	const width = queryWidth + 2*kvWidth
	apart := newTensors(0, c)
	fused := make([]float32, 7*width)
	for i := 0; i < 7; i++ {
		row := fused[i*width:]
		copy(row, apart.q[i*queryWidth:(i+1)*queryWidth])
		copy(row[queryWidth:], apart.k[i*kvWidth:(i+1)*kvWidth])
		copy(row[queryWidth+kvWidth:], apart.v[i*kvWidth:(i+1)*kvWidth])
	}
	strided := func(values []float32) radixkv.Tensor {
		tensor := radixkv.F32(values)
		tensor.PositionStride = width
		return tensor
	}
	args := apart.args(0)
	args.Q, args.K = strided(fused), strided(fused[queryWidth:])
	args.V = strided(fused[queryWidth+kvWidth:])
	must(t, b.runner.AppendPrefill(b.plan, args))
	apart.sameAsNaive(t, 0, c)

	// M01: nothing is read or written beyond a slice.
	good := args
	for name, change := range map[string]func(args *radixkv.AppendPrefillArgs){
		"args.Q":   func(a *radixkv.AppendPrefillArgs) { a.Q = strided(fused[len(fused)-6*width:]) },
		"args.K":   func(a *radixkv.AppendPrefillArgs) { a.K = radixkv.F32(apart.k[1:]) },
		"args.V":   func(a *radixkv.AppendPrefillArgs) { a.V = radixkv.Tensor{} },
		"args.Out": func(a *radixkv.AppendPrefillArgs) { a.Out.PositionStride = width },
		"few":      func(a *radixkv.AppendPrefillArgs) { a.Q.PositionStride = math.MaxInt },
		"too few":  func(a *radixkv.AppendPrefillArgs) { a.K.HeadStride = math.MaxInt },
		"stride":   func(a *radixkv.AppendPrefillArgs) { a.Q.PositionStride = headDim },
		"negative": func(a *radixkv.AppendPrefillArgs) { a.V.HeadStride = -1 },
		"LSE":      func(a *radixkv.AppendPrefillArgs) { a.LSE = a.LSE[1:] },
		"Sinks":    func(a *radixkv.AppendPrefillArgs) { a.Sinks = make([]float32, 1) },
		"layer":    func(a *radixkv.AppendPrefillArgs) { a.Layer = layers },
		"overlaps": func(a *radixkv.AppendPrefillArgs) { a.Out = a.Q },
		"soft_cap": func(a *radixkv.AppendPrefillArgs) { a.SoftCap = -1 },
	} {
		args := good
		change(&args)
		names(t, b.runner.AppendPrefill(b.plan, args), radixkv.InvalidArgument, name)
	}
	unset, err := radixkv.NewPlan(b.table)
	must(t, err)
	defer unset.Close()
	names(t, b.runner.AppendPrefill(unset, good), radixkv.InvalidState, "plan")
	stranger := newRunnerBench(t, 4, 9)
	names(t, stranger.runner.AppendPrefill(b.plan, good), radixkv.InvalidArgument, "page table")
	must(t, sequence.Release())
	wants(t, b.runner.AppendPrefill(b.plan, good), radixkv.StaleSequence)
}

// K23
func TestSpatialDecode(t *testing.T) {
	logits := make([]float32, radixkv.BinCount)
	logits[512] = 2
	bin, value, err := radixkv.SpatialDecode(radixkv.TokenCoord, logits)
	must(t, err)
	want, err := radixkv.CoordValue(512)
	must(t, err)
	equal(t, "bin", bin, 512)
	equal(t, "value", value, want)
	_, value, err = radixkv.SpatialDecode(radixkv.TokenSize, logits)
	must(t, err)
	want, err = radixkv.SizeValue(512)
	must(t, err)
	equal(t, "value", value, want)
	_, _, err = radixkv.SpatialDecode(radixkv.TokenImage, logits)
	names(t, err, radixkv.InvalidArgument, "kind")
	_, _, err = radixkv.SpatialDecode(radixkv.TokenCoord, logits[1:])
	names(t, err, radixkv.InvalidArgument, "logit_count")
	logits[9] = float32(math.NaN())
	_, _, err = radixkv.SpatialDecode(radixkv.TokenCoord, logits)
	names(t, err, radixkv.InvalidArgument, "logits[9]")
}

// Tensors may lie beside pointers, in a struct of the engine's.
func TestTensorsBesidePointers(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	ids := run(1, 5)
	sequence, _ := b.begin(ids)
	c := chunk{sequence, ids, 0, 5}
	must(t, b.plan.Set(planRows(c)))
	type buffers struct {
		name *string
		out  [5 * queryWidth]float32
		lse  [5 * queryHeads]float32
	}
	mine := &buffers{name: new(string)}
	apart := newTensors(0, c)
	args := apart.args(0)
	args.Out, args.LSE = radixkv.F32(mine.out[:]), mine.lse[:]
	must(t, b.runner.AppendPrefill(b.plan, args))
	copy(apart.out, mine.out[:])
	copy(apart.lse, mine.lse[:])
	apart.sameAsNaive(t, 0, c)

	mine.out, mine.lse = [5 * queryWidth]float32{}, [5 * queryHeads]float32{}
	must(t, b.runner.MergeStates(radixkv.MergeStatesArgs{
		PositionCount: 5, Outs: []radixkv.Tensor{radixkv.F32(apart.out)}, LSEs: [][]float32{apart.lse},
		Out: radixkv.F32(mine.out[:]), LSE: mine.lse[:],
	}))
	equalSlices(t, "of one state", mine.out[:], apart.out)
	must(t, sequence.Release())
}

// Branches are looked at together: what is refused has moved nothing, and is named.
func TestKeepBranchesTogether(t *testing.T) {
	b := newRunnerBench(t, 4, 17)
	ids, others := run(1, 5), run(100, 5)
	first, state := b.begin(ids)
	second, _ := b.begin(others)
	b.step(chunk{first, ids, 0, 5}, chunk{second, others, 0, 5})
	memory, err := b.runner.KVMemory(0)
	must(t, err)
	stride, page := int(memory.PageStride), int(b.row(state.Slot)[0])
	keys := floats(memory.K, memory, 17)[page*stride:][:stride]
	before := append([]float32(nil), keys...)
	good := radixkv.KeptBranch{Positions: []uint32{0, 2}}
	for _, c := range []struct {
		second radixkv.KeptBranch
		word   string
	}{
		{radixkv.KeptBranch{Row: 0, Positions: []uint32{0, 1}}, "branches[1].row"},
		{radixkv.KeptBranch{Row: 2, Positions: []uint32{0, 1}}, "branches[1].row"},
		{radixkv.KeptBranch{Row: 1, Positions: []uint32{0, 5}}, "branches[1].positions"},
		{radixkv.KeptBranch{Row: -1}, "branches[1].Row"},
	} {
		err := b.runner.KeepBranches(b.plan, []radixkv.KeptBranch{good, c.second}, 0)
		names(t, err, radixkv.InvalidArgument, c.word)
		equalSlices(t, "keys", keys, before)
	}
	must(t, b.runner.KeepBranches(b.plan, []radixkv.KeptBranch{good, {Row: 1}}, 0))
	equalSlices(t, "moved", keys[kvWidth:][:kvWidth], before[2*kvWidth:][:kvWidth])
	must(t, b.runner.KeepBranches(b.plan, nil, 0))
	must(t, first.Release())
	must(t, second.Release())
}

// Who looks at a plan may compute it, whoever reserves for it and closes the runner meanwhile.
func TestReserveBesideViewAndClose(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	// Of its own: what hangs is not closed.
	runner, err := radixkv.NewRunner(b.table, smallRunner)
	must(t, err)
	plan, err := radixkv.NewPlan(b.table)
	must(t, err)
	ids := run(1, 5)
	sequence, _ := b.begin(ids)
	whole := chunk{sequence, ids, 0, 5}
	must(t, plan.Set(planRows(whole)))
	tensors, ended := newTensors(0, whole), make(chan error, 3)
	go func() {
		ended <- plan.View(func(radixkv.PlanArrays) {
			go func() {
				_ = runner.ReservePlan(plan) // nothing is reserved, or the runner is closed
				ended <- nil
			}()
			time.Sleep(50 * time.Millisecond) // by now it waits
			go func() { ended <- runner.Close() }()
			time.Sleep(50 * time.Millisecond)
			_ = runner.AppendPrefill(plan, tensors.args(0)) // the runner is closed, most likely
		})
	}()
	for i := 0; i < 3; i++ {
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("they wait for each other")
		}
	}
	must(t, plan.Close())
	must(t, sequence.Release())
}

// A stream may be one that CUDA has of its own, whose handle is no address: 1 is CU_STREAM_LEGACY,
// 2 is CU_STREAM_PER_THREAD. What lies in a pointer would end the program, see deep.
func TestStreamsThatAreNoAddresses(t *testing.T) {
	b := newRunnerBench(t, 4, 9)
	ids := run(1, 5)
	sequence, _ := b.begin(ids)
	whole := chunk{sequence, ids, 0, 5}
	must(t, b.plan.Set(planRows(whole)))
	tensors, refused := newTensors(0, whole), make(chan error)
	go func() { // a goroutine's stack is small at first
		args := tensors.args(0)
		args.Stream = 2
		deep(2000)
		refused <- b.runner.AppendPrefill(b.plan, args)
	}()
	names(t, <-refused, radixkv.InvalidArgument, "stream") // the CPU has none
	names(t, b.runner.PreparePlan(b.plan, 0, 1), radixkv.InvalidArgument, "stream")
	names(t, b.runner.KeepBranches(b.plan, nil, 2), radixkv.InvalidArgument, "stream")
	names(t, b.runner.MergeStates(radixkv.MergeStatesArgs{
		PositionCount: 5, Outs: []radixkv.Tensor{radixkv.F32(tensors.out)},
		LSEs: [][]float32{tensors.lse}, Out: radixkv.F32(tensors.out), Stream: 2,
	}), radixkv.InvalidArgument, "stream")
	must(t, sequence.Release())
}
