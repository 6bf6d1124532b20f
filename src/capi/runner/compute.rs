//! What a runner does with a plan: room for its steps, what comes before a step, attention over
//! cached and new positions; and merging of results.
use crate::attention::{Params, View};
use crate::capi::ffi::{
    AbiStruct, Fail, borrow, check_flags, check_zero, count_of, read_struct, rkv_status, slice,
    with,
};
use crate::capi::plan::rkv_plan;
use crate::capi::runner::rkv_runner;
use crate::error::Error;
use crate::error::text;
use crate::runner::{LayerStep, States, Strides};
use std::ffi::c_void;

/// What one layer of a step reads and writes. Tensors are of the runner's dtype; strides are in
/// elements, and 0 means dense. On CUDA all pointers lead to memory of the device, and q, k, v and
/// out begin at multiples of 16 bytes, as does every head of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_runner_append_prefill_args {
    /// sizeof(rkv_runner_append_prefill_args).
    pub struct_size: u32,
    /// The layer, below layer_count.
    pub layer: u32,
    /// Queries: [new positions of all rows, in the plan's order][query_head_count][head_dim].
    pub q: *const c_void,
    /// Keys, rotated if the model does that: [new positions][kv_head_count][head_dim]. NULL
    /// together with v: K and V of the new positions are in the pages already.
    pub k: *const c_void,
    /// Values: [new positions][kv_head_count][v_head_dim]. NULL with RKV_RUNNER_LATENT.
    pub v: *const c_void,
    /// Receives the result: [new positions][query_head_count][v_head_dim]. Its memory, from the
    /// first element to the last, must not overlap that of q, k and v, also where no element of it
    /// is one of theirs.
    pub out: *mut c_void,
    /// Receives the natural logarithm of each softmax denominator, sink included:
    /// [new positions][query_head_count]. Must not overlap q, k, v and out, as these. NULL when not
    /// wanted.
    pub lse: *mut f32,
    /// Elements from one position of q to the next.
    pub q_position_stride: u64,
    /// Elements from one head of q to the next.
    pub q_head_stride: u64,
    /// The same of k.
    pub k_position_stride: u64,
    /// The same of k.
    pub k_head_stride: u64,
    /// The same of v.
    pub v_position_stride: u64,
    /// The same of v.
    pub v_head_stride: u64,
    /// The same of out.
    pub out_position_stride: u64,
    /// The same of out.
    pub out_head_stride: u64,
    /// A logit for each query head that takes part in the softmax's denominator only, an attention
    /// sink; not scaled. NULL for none.
    pub sinks: *const f32,
    /// Factor of q * k. 0: 1 / sqrt(head_dim). At most 2^119, alone, times k_scale, and that
    /// divided by soft_cap.
    pub scale: f32,
    /// A scaled logit x becomes soft_cap * tanh(x / soft_cap). 0: none.
    pub soft_cap: f32,
    /// Positions that a query sees, itself included; its own region and the sinks of a WINDOW
    /// group it sees whole. At most the group's own window or chunk. 0 means the group's own; in a
    /// FULL group, no limit. Must be 0 when a row is not causal, also of a step that a graph of
    /// this call serves.
    pub window: u32,
    /// FP8 only: K is what is stored times this, and so is V with RKV_RUNNER_LATENT: then it is at
    /// most 2^119. 0: 1. With other formats it changes nothing, though below 0 it is refused there
    /// too.
    pub k_scale: f32,
    /// FP8 only, as k_scale: V is what is stored times this, at most 2^119. 0: 1.
    pub v_scale: f32,
    /// Zero.
    pub reserved: u32,
    /// CUDA only: the CUstream to work on. NULL on the CPU.
    pub stream: *mut c_void,
    /// FP8 only: a scale for each KV head, in place of k_scale: [kv_head_count], on CUDA on the
    /// device, where they may change from one launch of a graph to the next, with all that was
    /// stored by them. NULL: k_scale for all. On CUDA nobody looks at how large they are. Not read
    /// with other formats.
    pub k_scales: *const f32,
    /// The same of V: NULL if k_scales is, and with RKV_RUNNER_LATENT.
    pub v_scales: *const f32,
}
// SAFETY: integers, floats and pointers, no padding.
unsafe impl AbiStruct for rkv_runner_append_prefill_args {
    const NAME: &'static str = "args";
    const V1: usize = 152;
}

/// Results of attention over disjoint sets of keys, to be merged.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_runner_merge_states_args {
    /// sizeof(rkv_runner_merge_states_args).
    pub struct_size: u32,
    /// How many, at least 1.
    pub state_count: u32,
    /// Positions of each.
    pub position_count: u64,
    /// state_count results: [position_count][query_head_count][v_head_dim] of the runner's dtype.
    /// On CUDA each begins at a multiple of 4 bytes.
    pub outs: *const *const c_void,
    /// state_count logarithms of denominators: [position_count][query_head_count]. Minus infinity:
    /// the set was empty, its result is not read.
    pub lses: *const *const f32,
    /// Receives the merged result; may be one of outs, and is aligned as they are.
    pub out: *mut c_void,
    /// Receives the merged logarithms; may be one of lses. NULL when not wanted.
    pub lse: *mut f32,
    /// CUDA only: the CUstream to work on. NULL on the CPU.
    pub stream: *mut c_void,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_runner_merge_states_args {
    const NAME: &'static str = "args";
    const V1: usize = 56;
}

fn strides(position: u64, head: u64, tensor: &str) -> Result<Strides, Error> {
    let stride = |value: u64, kind: &str| {
        let refused = |_| text!("args.{tensor}_{kind}_stride {value} is out of range");
        usize::try_from(value).map_err(refused).map_err(Error::argument)
    };
    Ok(Strides { position: stride(position, "position")?, head: stride(head, "head")? })
}

fn or(value: f32, default: f32) -> f32 {
    if value == 0.0 { default } else { value }
}

fn step_of(args: &rkv_runner_append_prefill_args, head_dim: usize) -> Result<LayerStep, Fail> {
    check_zero(args.reserved, "args.reserved")?;
    let q = strides(args.q_position_stride, args.q_head_stride, "q")?;
    let k = strides(args.k_position_stride, args.k_head_stride, "k")?;
    let v = strides(args.v_position_stride, args.v_head_stride, "v")?;
    let out = strides(args.out_position_stride, args.out_head_stride, "out")?;
    Ok(LayerStep {
        layer: args.layer as usize,
        q: (args.q.cast(), q),
        k: (!args.k.is_null()).then_some((args.k.cast(), k)),
        v: (!args.v.is_null()).then_some((args.v.cast(), v)),
        out: (args.out.cast(), out),
        lse: args.lse,
        sinks: args.sinks,
        k_scales: args.k_scales,
        v_scales: args.v_scales,
        stream: args.stream,
        params: Params {
            soft_cap: (args.soft_cap != 0.0).then_some(args.soft_cap),
            view: View { window: (args.window != 0).then_some(args.window), ..View::default() },
            k_scale: or(args.k_scale, 1.0),
            v_scale: or(args.v_scale, 1.0),
            // Rounded once, as the Rust API has it.
            scale: or(args.scale, Params::new(head_dim).scale),
        },
    })
}

/// Flag of rkv_runner_prepare_plan(): the copies of the step are not confirmed, for others have
/// them to carry out, too.
pub const RKV_PREPARE_KEEP_COPIES_OPEN: u32 = 1;

/// Makes room on the device for every step that was given to rkv_plan_reserve(), so that calls may
/// be captured into a graph, which then serves every step of such a size; see
/// rkv_runner_prepare_plan(). The CPU needs none.
///
/// CUDA: all memory that the runner keeps with the plan is allocated here, and none of it moves
/// afterwards. What is reserved for the plan anew is to be reserved here anew.
///
/// @param runner the runner
/// @param plan a plan over the same page table, after rkv_plan_reserve()
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE without
/// rkv_plan_reserve(), or when a call was captured; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_UNSUPPORTED; RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure nothing was reserved.
/// @par Cost
/// O(capacity); no lock
/// @par Thread safety
/// any thread, while nobody computes the plan with this runner
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_reserve_plan(
    runner: *mut rkv_runner,
    plan: *mut rkv_plan,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and plan.
    unsafe { with(runner, |runner| Ok(runner.reserve_plan(borrow(plan)?)?)) }
}

/// Does now what the first rkv_runner_append_prefill() of a step does otherwise, once: carries out
/// the copies that its sequences wait for in the runner's group, in every layer of the runner, on
/// CUDA sends the step's arrays, and confirms the copies.
///
/// Where several runners compute one plan, for layers of different shapes or groups, each has
/// copies to carry out in its own, and they may be confirmed only after that. So all runners but
/// one are prepared with RKV_PREPARE_KEEP_COPIES_OPEN, and then that one, by this or by its first
/// call. With kernels of the engine's own beside a runner, that is prepared with the flag, too, and
/// the engine confirms by rkv_sequence_confirm_copies(): so with a STATE group, whose copies no
/// runner carries out. To confirm is refused while copies of some group are open that no runner
/// carried out; of two runners of one group the library cannot tell.
///
/// CUDA: a captured call sends nothing, so a step is prepared before its calls are captured, and
/// before a graph is launched that computes it: rkv_plan_set(), rkv_runner_prepare_plan(),
/// cuGraphLaunch(), on one stream.
///
/// @param runner the runner
/// @param plan a plan over the same page table that was set
/// @param flags RKV_PREPARE_ bits
/// @param stream CUDA: the CUstream to work on, which is not being captured. NULL on the CPU
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
/// no rows, they changed since, a row is a slot's and the runner's group not 0, another runner
/// confirmed the copies before this one carried them out, without the flag copies of another
/// group are open that no runner carried out, a captured call of the plan has a window and some
/// row is of RKV_MASK_CONTEXT, or CUDA lets nothing be put on the stream, e.g. on the default
/// stream while somebody captures a blocking one; RKV_STATUS_PENDING and
/// RKV_STATUS_STALE_SEQUENCE as rkv_plan_check(), and without a reservation RKV_STATUS_UNSUPPORTED
/// on CUDA for a row of 2^31 positions, as many heads of queries in a step, or rows that take more
/// entries for their pages, with a quarter of them to grow by; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure copies are open as before, and the step is to
/// be prepared again.
/// @par Cost
/// O(rows + pages of their new positions), shared lock, in portions of whole rows; on CUDA without
/// it O(pages of all rows), compared many at a time with those that the device has, and in a FULL
/// group, but for RKV_RUNNER_BATCH_INVARIANT and plans with RKV_PLAN_SEPARATE, about once with
/// those of other rows; copies O(bytes), without a lock; one to confirm them
/// @par Thread safety
/// any thread, as rkv_runner_append_prefill()
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_prepare_plan(
    runner: *mut rkv_runner,
    plan: *mut rkv_plan,
    flags: u32,
    stream: *mut c_void,
) -> rkv_status {
    // SAFETY: the caller's contract on runner, plan, its rows and the stream.
    unsafe {
        with(runner, |runner| {
            check_flags(flags, RKV_PREPARE_KEEP_COPIES_OPEN, "flags")?;
            let keeps_open = flags & RKV_PREPARE_KEEP_COPIES_OPEN != 0;
            Ok(runner.prepare_plan(borrow(plan)?, keeps_open, stream)?)
        })
    }
}

/// Writes K and V of a plan's new positions into their pages, and attends from each new position to
/// the cached and the new ones, in one pass. Decoding is the same call with one new position a row.
///
/// The first call of a step also does what rkv_runner_prepare_plan() does, unless that was called:
/// it carries out the copies that the step's sequences wait for in its group, in every layer, and
/// confirms all, or is refused where others are open.
///
/// The query at position p of a row sees the positions 0 to p, or the last `window` of them, those
/// of the group's sinks, in a CHUNK group none before the chunk that p is in; and all of the region
/// that p is in; of the new positions of a row with tree masks those that its mask names. Rows that
/// are not causal see what their mask says, see rkv_plan_row; of one with RKV_MASK_CONTEXT nothing
/// is written, and its part of k and v is not read. What lies
/// in unused positions of a page, or where a row has no page, is never read into a result, NaN
/// included.
///
/// CUDA: on a stream that is being captured the call goes into a graph that serves every step that
/// was reserved. q, k, v, out and lse have room for the reserved position_count then; a step with
/// fewer new positions uses the first ones. The plan outlives the graph.
///
/// @param runner the runner
/// @param plan a plan over the same page table that was set; for a graph also reserved and
/// prepared, see rkv_runner_reserve_plan() and rkv_runner_prepare_plan()
/// @param args layer, tensors and parameters
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
/// no rows, they changed since, it is not ready for a graph, or as rkv_runner_prepare_plan()
/// without the flag; RKV_STATUS_PENDING and RKV_STATUS_STALE_SEQUENCE as rkv_plan_check();
/// RKV_STATUS_UNSUPPORTED on CUDA for a row of 2^31 positions, as many heads of queries in a step,
/// or pages as rkv_runner_prepare_plan(); RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE;
/// RKV_STATUS_POISONED. On failure, unless it is the device's, nothing was computed or written: no
/// result, no K and no V.
/// @par Cost
/// O(rows + pages of their new positions) for the checks, under the shared lock, in portions of
/// whole rows; the first call of a step also what rkv_runner_prepare_plan() takes; attention
/// without a lock, over the positions that queries see: of a WINDOW group its window, however long
/// the row is
/// @par Thread safety
/// any thread, several at once for different plans; nobody else computes the same rows in the same
/// layer, or releases them, meanwhile
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_append_prefill(
    runner: *mut rkv_runner,
    plan: *const rkv_plan,
    args: *const rkv_runner_append_prefill_args,
) -> rkv_status {
    // SAFETY: the caller's contract on runner, plan and args.
    unsafe {
        with(runner, |runner| {
            let step = step_of(&read_struct(args)?, runner.config().head_dim)?;
            Ok(runner.append_prefill(borrow(plan)?, &step)?)
        })
    }
}

/// Attention over the union of disjoint sets of keys, from the attention over each of them: the
/// weights are exp(lse), as in the cascade of FlashInfer and the split KV of FlashDecoding.
///
/// @param runner the runner, for its shapes, dtype and threads
/// @param args the states and where to write
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_UNSUPPORTED for more than 128
/// states on CUDA; RKV_STATUS_INVALID_STATE on a stream that CUDA lets nobody use while something
/// is captured; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
/// @par Cost
/// O(states * elements of one); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_merge_states(
    runner: *mut rkv_runner,
    args: *const rkv_runner_merge_states_args,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and args.
    unsafe {
        with(runner, |runner| {
            let args = read_struct(args)?;
            let count = args.state_count as usize;
            Ok(runner.merge_states(&States {
                outs: slice(args.outs.cast(), count, "args.outs")?,
                lses: slice(args.lses, count, "args.lses")?,
                positions: count_of(args.position_count, "args.position_count")?,
                out: args.out.cast(),
                lse: args.lse,
                stream: args.stream,
            })?)
        })
    }
}
