//! What becomes of a draft that branched.
use crate::capi::ffi::{AbiElement, GivenElements, borrow, rkv_status, slice, with};
use crate::capi::plan::rkv_plan;
use crate::capi::runner::rkv_runner;
use crate::error::text;
use crate::memory::TryGrow;
use crate::runner::Branch;
use std::ffi::c_void;

/// The new positions of a row of a plan that hold. An array element.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_kept_branch {
    /// The row's number in the plan, from 0 on.
    pub row: u32,
    /// Number of positions.
    pub position_count: u32,
    /// Which of the row's new positions hold, the first one being 0: ascending.
    pub positions: *const u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_kept_branch {
    const V1: usize = 16;
}

/// Moves K and V of those new positions that hold to the first new positions of their rows, in
/// every layer of the runner: positions[i] to `start + i`. For drafts with tree masks, once it is
/// known which branch holds: what it computed is where a row without branches would have it, and
/// need not be computed again. Each runner that computed the plan does it for its own layers.
///
/// Nobody looks whether the positions are one branch from its beginning on, each of which sees
/// those before it: whatever is named is moved, and what others hold is not what their tokens come
/// to. Nor whether the plan's branches were kept before: a second call moves what the first left.
///
/// Then the sequence forgets the draft and goes on with what holds: rkv_sequence_truncate() to the
/// last position before its branches, and rkv_sequence_append() of the tokens of the branch. Their
/// pages stay the row's, and all of them count as computed.
///
/// @param runner the runner
/// @param plan the plan, computed in every layer, and its rows as they were then
/// @param branches branch_count branches, in the order of the plan's rows, of a row at most one
/// @param branch_count how many
/// @param element_size sizeof(rkv_kept_branch)
/// @param stream CUDA: the CUstream to work on, which is not being captured. NULL on the CPU
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the branch; RKV_STATUS_INVALID_STATE
/// when the rows changed since the plan was set, or CUDA lets nothing be put on the stream;
/// RKV_STATUS_PENDING and RKV_STATUS_STALE_SEQUENCE as rkv_plan_check(); RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure, unless it is the device's, nothing was
/// moved.
/// @par Cost
/// O(rows + pages of their new positions), shared lock, in portions of whole rows; O(bytes moved),
/// without
/// @par Thread safety
/// any thread; nobody computes the same rows, or releases them, meanwhile
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_keep_branches(
    runner: *mut rkv_runner,
    plan: *const rkv_plan,
    branches: *const rkv_kept_branch,
    branch_count: usize,
    element_size: usize,
    stream: *mut c_void,
) -> rkv_status {
    // SAFETY: the caller's contract on runner, plan, branches and the stream.
    unsafe {
        with(runner, |runner| {
            let size = (element_size, "element_size");
            let given = GivenElements::new(branches, branch_count, size, "branches")?;
            let mut branches = Vec::new();
            for (at, raw) in given.iter().enumerate() {
                let count = raw.position_count as usize;
                let named = || text!("branches[{at}].positions");
                let positions = slice(raw.positions, count, "")
                    .or_else(|_| slice(raw.positions, count, &named()))?;
                branches.try_push(Branch { row: raw.row as usize, positions })?;
            }
            Ok(runner.keep_branches(borrow(plan)?, &branches, stream)?)
        })
    }
}
