//! Merging of states.
use super::call::MergeStates;
use super::element::{load, store};

/// # Safety
/// That of [`super::CpuBackend::merge_states`].
pub(super) unsafe fn merge_states(call: &MergeStates<'_>) {
    for position in 0..call.positions {
        for head in 0..call.heads {
            // SAFETY: the caller's contract.
            unsafe { merge_head(call, position, head) };
        }
    }
}

/// # Safety
/// That of [`super::CpuBackend::merge_states`].
unsafe fn merge_head(call: &MergeStates<'_>, position: usize, head: usize) {
    let at = position * call.heads + head;
    // SAFETY: the caller's contract.
    let lse_of = |index: usize| unsafe { call.states[index].lse.add(at).read_unaligned() };
    let count = call.states.len();
    let most = (0..count)
        .map(lse_of)
        .fold(f32::NEG_INFINITY, |most, lse| if lse.is_nan() { lse } else { most.max(lse) });
    let seen = (0..count).filter(|&index| lse_of(index) != f32::NEG_INFINITY);
    let sum: f32 = seen.clone().map(|index| (lse_of(index) - most).exp()).sum();
    for element in 0..call.head_dim {
        let mut out = 0.0;
        for index in seen.clone() {
            let part = call.states[index].out;
            let from = position * part.position_stride + head * part.head_stride + element;
            // SAFETY: the caller's contract.
            let value = unsafe { load(part.address, part.dtype, from) };
            out += (lse_of(index) - most).exp() / sum * value;
        }
        let to = position * call.out.position_stride + head * call.out.head_stride + element;
        // SAFETY: the caller's contract.
        unsafe { store(call.out.address, call.out.dtype, to, out) };
    }
    if let Some(lse) = call.lse {
        let value = if most == f32::NEG_INFINITY { most } else { most + sum.ln() };
        // SAFETY: the caller's contract.
        unsafe { lse.add(at).write_unaligned(value) };
    }
}
