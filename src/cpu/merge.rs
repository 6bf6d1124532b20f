//! Merging of the states that callers have.
use super::HEAD_DIM_MOST;
use super::call::MergeStates;
use super::element::{Narrow, WidenAs};
use super::kernel::padded;
use super::simd::{Isa, Simd, Vectorized, dispatch};
use super::threads::Team;
use crate::attention::Tensor;

/// Positions whose heads are one task.
const TASK_POSITIONS: usize = 16;

/// Numbers of two heads, on a thread's stack.
#[repr(align(64))]
struct Room([f32; 2 * HEAD_DIM_MOST]);

/// # Safety
/// That of [`super::CpuBackend::merge_states`].
pub(super) unsafe fn merge_states(isa: Isa, team: &Team, call: &MergeStates) {
    let tasks = call.positions.div_ceil(TASK_POSITIONS);
    let positions = call.positions;
    assert!(call.head_dim <= HEAD_DIM_MOST, "a supported shape");
    let shared = Shared(call);
    team.share(tasks, &|_, take| {
        let mut room = Room([0.0; 2 * HEAD_DIM_MOST]);
        while let Some(task) = take() {
            let start = task * TASK_POSITIONS;
            let end = (start + TASK_POSITIONS).min(positions);
            let room = room.0.as_mut_ptr();
            dispatch(isa, Positions { shared: &shared, start, end, room });
        }
    });
}

/// A call in the hands of several threads.
struct Shared<'a>(&'a MergeStates<'a>);
// SAFETY: each thread reads and writes positions of its own.
unsafe impl Sync for Shared<'_> {}

struct Positions<'a> {
    shared: &'a Shared<'a>,
    start: usize,
    end: usize,
    room: *mut f32,
}

impl Vectorized for Positions<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for position in self.start..self.end {
            for head in 0..self.shared.0.heads {
                // SAFETY: the contract of merge_states(), which alone makes a Shared.
                unsafe { merge_head(simd, self.shared.0, position, head, self.room) };
            }
        }
    }
}

fn offset<A>(tensor: &Tensor<A>, position: usize, head: usize) -> usize {
    (position * tensor.position_stride + head * tensor.head_stride) * tensor.dtype.bytes()
}

/// # Safety
/// That of [`super::CpuBackend::merge_states`]; `room` is 2 * [`padded`] head_dim numbers.
#[inline(always)]
unsafe fn merge_head<S: Simd>(
    simd: S,
    call: &MergeStates<'_>,
    position: usize,
    head: usize,
    room: *mut f32,
) {
    let MergeStates { states, heads, head_dim, .. } = *call;
    let index = position * heads + head;
    // SAFETY: the caller's contract.
    let lse_of = |state: usize| unsafe { states[state].lse.add(index).read_unaligned() };
    let mut most = f32::NEG_INFINITY;
    for state in 0..states.len() {
        // NaN stays.
        let lse = lse_of(state);
        most = if most >= lse || most.is_nan() { most } else { lse };
    }
    let (out, part) = (room, room.wrapping_add(padded(head_dim)));
    let mut sum = 0.0;
    // SAFETY: the caller's contract.
    unsafe {
        out.write_bytes(0, head_dim);
        for (at, state) in states.iter().enumerate() {
            let lse = lse_of(at);
            // What saw no key has no say: its `out` may be anything.
            if lse == f32::NEG_INFINITY {
                continue;
            }
            let weight = (lse - most).exp();
            sum += weight;
            let weight = simd.splat(weight);
            let from = state.out.address.add(offset(&state.out, position, head));
            WidenAs::new(state.out.dtype, from, part, head_dim).run(simd);
            let mut at = 0;
            while at < head_dim {
                let so_far = simd.load(out.add(at));
                simd.store(out.add(at), simd.fma(simd.load(part.add(at)), weight, so_far));
                at += S::LANES;
            }
        }
        let seen = most != f32::NEG_INFINITY;
        let factor = if seen { 1.0 / sum } else { 0.0 };
        let to = call.out.address.add(offset(&call.out, position, head));
        Narrow::new(call.out.dtype, out, factor, to, head_dim).run(simd);
        if let Some(lse) = call.lse {
            let value = if seen { most + sum.ln() } else { most };
            lse.add(index).write_unaligned(value);
        }
    }
}
