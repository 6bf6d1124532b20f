package radixkv

/*
#include "call.h"

static inline rkvgo_failure *rkvgo_runner_append_prefill(
	rkv_runner *runner, const rkv_plan *plan, rkv_runner_append_prefill_args args,
	const uint8_t *q, const uint8_t *k, const uint8_t *v, uint8_t *out, float *lse,
	const float *sinks, const float *k_scales, const float *v_scales, uintptr_t stream
) {
	// Apart from the struct: of a pointer in one cgo looks through all that lies around it in Go's
	// memory, and ends the program where that has pointers.
	args.q = q;
	args.k = k;
	args.v = v;
	args.out = out;
	args.lse = lse;
	args.sinks = sinks;
	args.k_scales = k_scales;
	args.v_scales = v_scales;
	args.stream = (void *)stream;
	args.struct_size = sizeof args;
	return rkvgo_end(rkv_runner_append_prefill(runner, plan, &args));
}

static inline rkvgo_failure *rkvgo_runner_reserve_plan(rkv_runner *runner, rkv_plan *plan) {
	return rkvgo_end(rkv_runner_reserve_plan(runner, plan));
}

static inline rkvgo_failure *rkvgo_runner_keep_branches(
	rkv_runner *runner, const rkv_plan *plan, const rkv_kept_branch *branches, size_t count,
	uintptr_t stream
) {
	return rkvgo_end(rkv_runner_keep_branches(
		runner, plan, branches, count, sizeof *branches, (void *)stream));
}

static inline rkvgo_failure *rkvgo_runner_prepare_plan(
	rkv_runner *runner, rkv_plan *plan, uint32_t flags, uintptr_t stream
) {
	return rkvgo_end(rkv_runner_prepare_plan(runner, plan, flags, (void *)stream));
}

static inline rkvgo_failure *rkvgo_runner_merge_states(
	rkv_runner *runner, rkv_runner_merge_states_args args, uint8_t *out, float *lse,
	uintptr_t stream
) {
	args.out = out;
	args.lse = lse;
	args.stream = (void *)stream;
	args.struct_size = sizeof args;
	return rkvgo_end(rkv_runner_merge_states(runner, &args));
}
*/
import "C"

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"unsafe"
)

// Tensor is [positions][heads][head_dim] elements of the runner's dtype, made by [F32] or [Half].
// The zero Tensor is none.
type Tensor struct {
	// PositionStride is in elements, from one position to the next. 0: dense.
	PositionStride int
	// HeadStride is in elements, from one head to the next. 0: dense.
	HeadStride int

	data         unsafe.Pointer
	count        int
	elementBytes int
}

// F32 is a dense tensor of 32-bit floats.
func F32(values []float32) Tensor {
	return Tensor{data: unsafe.Pointer(unsafe.SliceData(values)), count: len(values), elementBytes: 4}
}

// Half is a dense tensor of F16 or BF16, by their bits.
func Half(values []uint16) Tensor {
	return Tensor{data: unsafe.Pointer(unsafe.SliceData(values)), count: len(values), elementBytes: 2}
}

// bytes is where it lies, of a type about which cgo asks nothing: what lies around it may be
// anything.
func (t *Tensor) bytes() *C.uint8_t { return (*C.uint8_t)(t.data) }

// check refuses a tensor that is too short for what the library would read or write.
func (t *Tensor) check(name string, positions, heads, dim int, s *shape) error {
	if t.elementBytes != s.elementBytes {
		return invalid(name + " is missing, or not of the runner's dtype")
	}
	if t.PositionStride < 0 || t.HeadStride < 0 {
		return invalid(name + " has a negative stride")
	}
	if positions == 0 {
		return nil // the library says what is missing
	}
	headStride, positionStride := uint64(t.HeadStride), uint64(t.PositionStride)
	if headStride == 0 {
		headStride = uint64(dim)
	}
	if positionStride == 0 {
		positionStride = uint64(heads * dim)
	}
	over1, toPosition := bits.Mul64(positionStride, uint64(positions-1))
	over2, toHead := bits.Mul64(headStride, uint64(heads-1))
	last, over3 := bits.Add64(toPosition, toHead, 0)
	needed, over4 := bits.Add64(last, uint64(dim), 0)
	if over1 != 0 || over2 != 0 || over3 != 0 || over4 != 0 || needed > uint64(t.count) {
		return invalid(fmt.Sprintf("%s has %d elements, too few for %d positions of %d heads of %d",
			name, t.count, positions, heads, dim))
	}
	return nil
}

// Stream is a CUstream as a number: those that CUDA has of its own are no addresses, and Go ends a
// program that has one of them in a pointer. 0 on the CPU; on CUDA the legacy default stream.
type Stream uintptr

// AppendPrefillArgs is what one layer of a step reads and writes. Its tensors are checked against
// the step that is set. Of a call that is captured into a graph, Q, K, V, Out and LSE must have
// room for the PositionCount that was given to [Plan.Reserve]: larger steps use it later, and
// nothing checks it.
type AppendPrefillArgs struct {
	// Layer is below LayerCount.
	Layer uint32
	// Q are the queries: new positions of all rows, in the plan's order, of QueryHeadCount heads.
	Q Tensor
	// K are the keys, rotated if the model does that, of KVHeadCount heads. None together with V: K
	// and V of the new positions are in the pages already.
	K Tensor
	// V are the values, shaped like K but for heads of VHeadDim; none with RunnerLatent.
	V Tensor
	// Out receives the result, shaped like Q but for heads of VHeadDim; must not overlap Q, K and V.
	Out Tensor
	// LSE receives the natural logarithm of each softmax denominator, sink included:
	// [positions][QueryHeadCount]; must not overlap any of those. nil when not wanted.
	LSE []float32
	// Sinks are a logit for each query head that takes part in the softmax's denominator only; not
	// scaled. nil for none.
	Sinks []float32
	// Scale is the factor of q * k. 0: 1 / sqrt(HeadDim).
	Scale float32
	// SoftCap: a scaled logit x becomes SoftCap * tanh(x / SoftCap). 0: none.
	SoftCap float32
	// Window is how many positions a query sees, itself included; its own region and the sinks of a
	// window group it sees whole. At most the group's own window, or chunk. 0: that; all of a full
	// group.
	Window uint32
	// KScale is for FP8 only: K is what is stored times this. 0: 1.
	KScale float32
	// VScale is for FP8 only: V is what is stored times this. 0: 1.
	VScale float32
	// KScales are for FP8 only: a scale for each KV head, in place of KScale. nil: KScale for all.
	KScales []float32
	// VScales are the same of V: nil if KScales is, and with RunnerLatent.
	VScales []float32
	// Stream is for CUDA only: what to work on. 0 on the CPU.
	Stream Stream
}

// PrepareFlags say what PreparePlan leaves out.
type PrepareFlags uint32

// PrepareKeepCopiesOpen: the copies of the step are not confirmed, for others have them to carry
// out, too.
const PrepareKeepCopiesOpen PrepareFlags = C.RKV_PREPARE_KEEP_COPIES_OPEN

// enterBoth is for calls on a runner and a plan; leave ends it. The plan comes first, here and in
// ReservePlan and AppendPrefill: who looks at a plan has it already when they ask for a runner.
func (r *Runner) enterBoth(
	plan *Plan,
) (runner *C.rkv_runner, of *C.rkv_plan, leave func(), err error) {
	if of, err = plan.enter(); err != nil {
		return nil, nil, nil, err
	}
	if runner, err = r.enter(); err != nil {
		plan.mu.RUnlock()
		return nil, nil, nil, err
	}
	return runner, of, func() {
		r.mu.RUnlock()
		plan.mu.RUnlock()
	}, nil
}

// ReservePlan makes room on the device for every step that was given to [Plan.Reserve], so that
// calls may be captured into a graph, see [Runner.PreparePlan] and, of their tensors,
// [AppendPrefillArgs]. The CPU needs none.
func (r *Runner) ReservePlan(plan *Plan) error {
	rawPlan, err := plan.enterAlone()
	if err != nil {
		return err
	}
	defer plan.mu.Unlock()
	raw, err := r.enter()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	return asError(C.rkvgo_runner_reserve_plan(raw, rawPlan))
}

// PreparePlan does now what the first [Runner.AppendPrefill] of a step does otherwise: carries out
// the copies that its sequences wait for in the runner's group, in every layer of the runner, on
// CUDA sends the step's arrays, and confirms the copies. Where several runners compute one plan,
// all but one are prepared with PrepareKeepCopiesOpen, and then that one; where a state group has
// copies, all are, and the engine carries out those and confirms. On CUDA it comes before a step's
// calls are captured into a graph, and before a graph is launched that computes the step; stream is
// what to work on. On the CPU it is 0. A graph works on the tensors of the captured calls, whatever
// step is set: see [AppendPrefillArgs] for their room.
func (r *Runner) PreparePlan(plan *Plan, flags PrepareFlags, stream Stream) error {
	raw, rawPlan, leave, err := r.enterBoth(plan)
	if err != nil {
		return err
	}
	defer leave()
	return asError(C.rkvgo_runner_prepare_plan(raw, rawPlan, C.uint32_t(flags), C.uintptr_t(stream)))
}

// KeptBranch are the new positions of a row of a plan that hold.
type KeptBranch struct {
	// Row is the row's number in the plan.
	Row int
	// Positions says which of the row's new positions hold, the first one being 0: ascending.
	Positions []uint32
}

// KeepBranches moves K and V of those new positions that hold to the first new positions of their
// rows, in every layer of the runner: for drafts with tree masks, once it is known which branch
// holds. Then Sequence.Truncate to the last position before the branches, and Sequence.Append of
// the tokens of the branch, whose positions count as computed. Branches are in the order of the
// plan's rows, of a row at most one. With an error other than Device nothing was moved.
func (r *Runner) KeepBranches(plan *Plan, branches []KeptBranch, stream Stream) error {
	raw, rawPlan, leave, err := r.enterBoth(plan)
	if err != nil {
		return err
	}
	defer leave()
	// In one call, which looks at all before it moves any. Pinned as in MergeStates.
	var pins runtime.Pinner
	defer pins.Unpin()
	given := make([]C.rkv_kept_branch, len(branches))
	for i := range branches {
		branch := &branches[i]
		if branch.Row < 0 || branch.Row > math.MaxInt32 {
			return invalid(fmt.Sprintf("branches[%d].Row is not one of the plan's", i))
		}
		positions := u32Pointer(branch.Positions)
		pin(&pins, unsafe.Pointer(positions))
		given[i] = C.rkv_kept_branch{
			row:            C.uint32_t(branch.Row),
			position_count: C.uint32_t(len(branch.Positions)),
			positions:      positions,
		}
	}
	return asError(C.rkvgo_runner_keep_branches(
		raw, rawPlan, unsafe.SliceData(given), C.size_t(len(given)), C.uintptr_t(stream)))
}

// AppendPrefill writes K and V of a plan's new positions into their pages, and attends from each
// new position to the cached and the new ones, in one pass. Decoding is the same call with one new
// position a row. The first call of a step also does what [Runner.PreparePlan] does. Calls for
// different plans may run at once.
func (r *Runner) AppendPrefill(plan *Plan, args AppendPrefillArgs) error {
	rawPlan, err := plan.enter()
	if err != nil {
		return err
	}
	defer plan.mu.RUnlock()
	raw, err := r.enter()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	if err := args.check(plan.positions, &r.shape); err != nil {
		return err
	}
	return asError(C.rkvgo_runner_append_prefill(raw, rawPlan, C.rkv_runner_append_prefill_args{
		layer:               C.uint32_t(args.Layer),
		q_position_stride:   C.uint64_t(args.Q.PositionStride),
		q_head_stride:       C.uint64_t(args.Q.HeadStride),
		k_position_stride:   C.uint64_t(args.K.PositionStride),
		k_head_stride:       C.uint64_t(args.K.HeadStride),
		v_position_stride:   C.uint64_t(args.V.PositionStride),
		v_head_stride:       C.uint64_t(args.V.HeadStride),
		out_position_stride: C.uint64_t(args.Out.PositionStride),
		out_head_stride:     C.uint64_t(args.Out.HeadStride),
		scale:               C.float(args.Scale),
		soft_cap:            C.float(args.SoftCap),
		window:              C.uint32_t(args.Window),
		k_scale:             C.float(args.KScale),
		v_scale:             C.float(args.VScale),
	}, args.Q.bytes(), args.K.bytes(), args.V.bytes(), args.Out.bytes(), f32Pointer(args.LSE),
		f32Pointer(args.Sinks), f32Pointer(args.KScales), f32Pointer(args.VScales),
		C.uintptr_t(args.Stream)))
}

func (a *AppendPrefillArgs) check(positions int, s *shape) error {
	if err := a.Q.check("args.Q", positions, s.queryHeads, s.headDim, s); err != nil {
		return err
	}
	if err := a.Out.check("args.Out", positions, s.queryHeads, s.vHeadDim, s); err != nil {
		return err
	}
	if a.K.data != nil || a.V.data != nil {
		if err := a.K.check("args.K", positions, s.kvHeads, s.headDim, s); err != nil {
			return err
		}
	}
	if a.V.data != nil || a.K.data != nil && !s.latent {
		if err := a.V.check("args.V", positions, s.kvHeads, s.vHeadDim, s); err != nil {
			return err
		}
	}
	if a.LSE != nil && len(a.LSE) < positions*s.queryHeads {
		return invalid("args.LSE is shorter than [positions][QueryHeadCount]")
	}
	if a.Sinks != nil && len(a.Sinks) < s.queryHeads {
		return invalid("args.Sinks is shorter than QueryHeadCount")
	}
	if a.KScales != nil && len(a.KScales) < s.kvHeads {
		return invalid("args.KScales is shorter than KVHeadCount")
	}
	if a.VScales != nil && len(a.VScales) < s.kvHeads {
		return invalid("args.VScales is shorter than KVHeadCount")
	}
	return nil
}

// MergeStatesArgs are results of attention over disjoint sets of keys, to be merged.
type MergeStatesArgs struct {
	// PositionCount is how many positions each has.
	PositionCount int
	// Outs are the results: dense, of QueryHeadCount heads of VHeadDim. At least one.
	Outs []Tensor
	// LSEs are the logarithms of their denominators: [PositionCount][QueryHeadCount]. Minus
	// infinity: the set was empty, its result is not read.
	LSEs [][]float32
	// Out receives the merged result; may be one of Outs.
	Out Tensor
	// LSE receives the merged logarithms; may be one of LSEs. nil when not wanted.
	LSE []float32
	// Stream is for CUDA only: what to work on. 0 on the CPU.
	Stream Stream
}

// MergeStates is attention over the union of disjoint sets of keys, from the attention over each of
// them: the weights are exp(LSE).
func (r *Runner) MergeStates(args MergeStatesArgs) error {
	raw, err := r.enter()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	if err := args.check(&r.shape); err != nil {
		return err
	}
	// The library reads lists of pointers, and C may read Go memory that holds Go pointers only
	// where these are pinned.
	var pins runtime.Pinner
	defer pins.Unpin()
	outs := make([]unsafe.Pointer, len(args.Outs))
	lses := make([]*C.float, len(args.LSEs))
	for i := range args.Outs {
		outs[i], lses[i] = args.Outs[i].data, f32Pointer(args.LSEs[i])
		pin(&pins, outs[i])
		pin(&pins, unsafe.Pointer(lses[i]))
	}
	return asError(C.rkvgo_runner_merge_states(raw, C.rkv_runner_merge_states_args{
		state_count:    C.uint32_t(len(outs)),
		position_count: C.uint64_t(args.PositionCount),
		outs:           unsafe.SliceData(outs),
		lses:           unsafe.SliceData(lses),
	}, args.Out.bytes(), f32Pointer(args.LSE), C.uintptr_t(args.Stream)))
}

func (a *MergeStatesArgs) check(s *shape) error {
	if a.PositionCount < 0 || len(a.Outs) != len(a.LSEs) {
		return invalid("args: PositionCount is negative, or LSEs are not as many as Outs")
	}
	hi, logits := bits.Mul64(uint64(a.PositionCount), uint64(s.queryHeads))
	tooShort := func(lse []float32) bool { return hi != 0 || uint64(len(lse)) < logits }
	for i, out := range append(a.Outs[:len(a.Outs):len(a.Outs)], a.Out) {
		if out.PositionStride != 0 || out.HeadStride != 0 {
			return invalid("args.Outs and args.Out must be dense")
		}
		err := out.check("args.Outs or args.Out", a.PositionCount, s.queryHeads, s.vHeadDim, s)
		if err != nil {
			return err
		}
		if i < len(a.LSEs) && tooShort(a.LSEs[i]) {
			return invalid(fmt.Sprintf(
				"args.LSEs[%d] is shorter than [PositionCount][QueryHeadCount]", i))
		}
	}
	if a.LSE != nil && tooShort(a.LSE) {
		return invalid("args.LSE is shorter than [PositionCount][QueryHeadCount]")
	}
	return nil
}

// pin pins Go memory. Go 1.21 panics for memory that is not Go's, later versions let it pass.
func pin(pins *runtime.Pinner, pointer unsafe.Pointer) {
	if pointer != nil {
		defer func() { _ = recover() }()
		pins.Pin(pointer)
	}
}

func f32Pointer(values []float32) *C.float {
	return (*C.float)(unsafe.Pointer(unsafe.SliceData(values)))
}
