//! Weights: scores become powers of two, relative to the largest logit that the row has seen.
use super::{BLOCK, Span};
use crate::cpu::simd::{Simd, Vectorized, exp2, exp2_one, tanh};
use crate::cpu::state::State;

/// How a score becomes a logit to base 2.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Logit {
    /// score -> logit, or score -> logit / cap.
    pub factor: f32,
    /// tanh of that -> logit.
    pub cap: Option<f32>,
}

impl Logit {
    /// Makes logits of scores.
    ///
    /// # Safety
    /// `scores` is writable for `count` numbers, a multiple of LANES.
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, simd: S, scores: *mut f32, count: usize) {
        let factor = simd.splat(self.factor);
        for at in (0..count).step_by(S::LANES) {
            // SAFETY: the caller's contract.
            unsafe {
                let mut x = simd.mul(simd.load(scores.add(at)), factor);
                if let Some(cap) = self.cap {
                    x = simd.mul(tanh(simd, x), simd.splat(cap));
                }
                simd.store(scores.add(at), x);
            }
        }
    }
}

/// The scores of a row, which become weights: 0 where it sees nothing.
pub(in crate::cpu) struct Weights {
    logit: Logit,
    span: Span,
    shown: u64,
    scores: *mut f32,
    state: State,
    head_dim: usize,
}

impl Weights {
    /// `state` is what the row has seen so far; it becomes relative to the new largest logit. Of
    /// the span it sees the keys whose bits are in `shown`.
    ///
    /// # Safety
    /// `scores` is BLOCK numbers; the memory of `state` is writable.
    pub(in crate::cpu) unsafe fn new(
        logit: Logit,
        (span, shown): (Span, u64),
        scores: *mut f32,
        state: State,
        head_dim: usize,
    ) -> Self {
        debug_assert!(span.start < span.end && span.end <= BLOCK && state.rows == 1);
        Self { logit, span, shown, scores, state, head_dim }
    }
}

impl Vectorized for Weights {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { logit, span, shown, scores, state, head_dim } = self;
        let (start, end) = (span.start & !(S::LANES - 1), span.end.next_multiple_of(S::LANES));
        // SAFETY: new()'s contract; start..end lies within BLOCK.
        unsafe {
            // A positive factor changes no order: it can wait for the exponent.
            let factor = match logit.cap {
                None if logit.factor > 0.0 => logit.factor,
                _ => {
                    logit.apply(simd, scores.add(start), end - start);
                    1.0
                }
            };
            // What is not seen is overwritten, not added to: it may be NaN.
            for at in (start..span.start).chain(span.end..end) {
                *scores.add(at) = f32::NEG_INFINITY;
            }
            let mut hidden = !shown & span.bits();
            while hidden != 0 {
                *scores.add(hidden.trailing_zeros() as usize) = f32::NEG_INFINITY;
                hidden &= hidden - 1;
            }
            let mut largest = simd.splat(f32::NEG_INFINITY);
            let mut at = start;
            while at < end {
                largest = simd.max(largest, simd.load(scores.add(at)));
                at += S::LANES;
            }
            let before = *state.most;
            let largest = before.max(simd.largest(largest) * factor);
            if largest != before {
                *state.most = largest;
                if before != f32::NEG_INFINITY {
                    let less = exp2_one(simd, before - largest);
                    *state.sum *= less;
                    scale(simd, state.out, less, head_dim);
                }
            }
            // Where all logits are -inf, all weights are 0.
            let base = simd.splat(if largest == f32::NEG_INFINITY { 0.0 } else { -largest });
            let factor = simd.splat(factor);
            let mut sums = simd.splat(0.0);
            at = start;
            while at < end {
                let weight = exp2(simd, simd.fma(simd.load(scores.add(at)), factor, base));
                simd.store(scores.add(at), weight);
                sums = simd.add(sums, weight);
                at += S::LANES;
            }
            *state.sum += simd.sum(sums);
        }
    }
}

/// # Safety
/// `numbers` is writable for `count` numbers, a multiple of LANES.
#[inline(always)]
unsafe fn scale<S: Simd>(simd: S, numbers: *mut f32, factor: f32, count: usize) {
    let factor = simd.splat(factor);
    let mut at = 0;
    while at < count {
        // SAFETY: the caller's contract.
        unsafe { simd.store(numbers.add(at), simd.mul(simd.load(numbers.add(at)), factor)) };
        at += S::LANES;
    }
}
