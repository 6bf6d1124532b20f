//! Weights: scores become powers of two, relative to about the largest logit that the row has
//! seen.
use super::{BLOCK, Span};
use crate::cpu::simd::{Simd, Vectorized, exp2, exp2_one, tanh};
use crate::cpu::state::State;
use std::ops::Range;

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

/// How much larger than what a row's logits are relative to a logit may be: weights come to 256 at
/// most, and what has been added up need not be scaled each time that one is a little larger.
const SLACK: f32 = 8.0;

/// Rows whose weights are computed side by side: what one of them waits for another one fills.
pub(in crate::cpu) const SIDE_BY_SIDE: usize = 4;

/// The scores of R rows, which become weights: 0 where a row sees nothing.
pub(in crate::cpu) struct Weights<'a, const R: usize> {
    logit: Logit,
    spans: &'a [Span; R],
    shown: [u64; R],
    scores: *mut f32,
    state: State,
    head_dim: usize,
}

impl<'a, const R: usize> Weights<'a, R> {
    /// `state` is what the rows have seen so far; it becomes relative to the new largest logits. Of
    /// its span a row sees the keys whose bits are in `shown`.
    ///
    /// # Safety
    /// `scores` is BLOCK numbers for each row; the memory of `state`, R rows, is writable.
    pub(in crate::cpu) unsafe fn new(
        logit: Logit,
        (spans, shown): (&'a [Span; R], [u64; R]),
        scores: *mut f32,
        state: State,
        head_dim: usize,
    ) -> Self {
        debug_assert!(spans.iter().all(|span| span.start < span.end && span.end <= BLOCK));
        debug_assert!(state.rows == R);
        Self { logit, spans, shown, scores, state, head_dim }
    }

    /// Overwrites what a row does not see: it may be NaN.
    ///
    /// # Safety
    /// As for [`Weights::new`]; the keys are some of the block.
    #[inline(always)]
    unsafe fn hide(&self, row: usize, keys: &Range<usize>) {
        let span = self.spans[row];
        // SAFETY: the caller's contract.
        let hide = |at| unsafe { *self.scores.add(row * BLOCK + at) = f32::NEG_INFINITY };
        (keys.start..span.start).chain(span.end..keys.end).for_each(hide);
        let mut hidden = !self.shown[row] & span.bits();
        while hidden != 0 {
            hide(hidden.trailing_zeros() as usize);
            hidden &= hidden - 1;
        }
    }

    /// Whether what logits are relative to may change for some row: mostly it stays as it is.
    ///
    /// # Safety
    /// As for [`Weights::new`].
    #[inline(always)]
    unsafe fn may_raise(&self, logits: &[f32; SIDE_BY_SIDE]) -> bool {
        let mut may_raise = false;
        for (row, &logit) in logits[..R].iter().enumerate() {
            // SAFETY: the caller's contract.
            let most = unsafe { *self.state.most.add(row) };
            may_raise |= most == f32::NEG_INFINITY || logit > most + SLACK;
        }
        may_raise
    }

    /// Notes the largest logit of a row, unless it is little larger than what its logits are
    /// relative to, and returns what they are.
    ///
    /// # Safety
    /// As for [`Weights::new`].
    #[inline(always)]
    unsafe fn raise<S: Simd>(&self, simd: S, row: usize, logit: f32) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let most = self.state.most.add(row);
            let before = *most;
            let mut largest = before;
            if logit > before + SLACK {
                largest = logit;
                *most = largest;
                if before != f32::NEG_INFINITY {
                    let less = exp2_one(simd, before - largest);
                    *self.state.sum.add(row) *= less;
                    let out = self.state.out.add(row * self.head_dim);
                    scale(simd, out, less, self.head_dim);
                }
            }
            // Where all logits are -inf, all weights are 0.
            if largest == f32::NEG_INFINITY { 0.0 } else { -largest }
        }
    }
}

impl<const R: usize> Vectorized for Weights<'_, R> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // Spans ascend. What is added to a row's sums where it sees nothing is 0.
        let first = self.spans[0].start & !(S::LANES - 1);
        let keys = first..self.spans[R - 1].end.next_multiple_of(S::LANES);
        // SAFETY: new()'s contract; the keys lie within BLOCK.
        unsafe {
            // A positive factor changes no order: it can wait for the exponent.
            let late = self.logit.cap.is_none() && self.logit.factor > 0.0;
            let factor = if late { self.logit.factor } else { 1.0 };
            let mut largest = [simd.splat(f32::NEG_INFINITY); SIDE_BY_SIDE];
            for (row, largest) in largest[..R].iter_mut().enumerate() {
                let scores = self.scores.add(row * BLOCK);
                if !late {
                    self.logit.apply(simd, scores.add(keys.start), keys.len());
                }
                self.hide(row, &keys);
                let mut at = keys.start;
                while at < keys.end {
                    *largest = simd.max(*largest, simd.load(scores.add(at)));
                    at += S::LANES;
                }
            }
            let logits = match R {
                1 => [simd.largest(largest[0]); SIDE_BY_SIDE],
                _ => simd.largest_of_4(largest),
            };
            let logits = logits.map(|logit| logit * factor);
            let mut bases = [simd.splat(0.0); R];
            let may_raise = self.may_raise(&logits);
            for (row, base) in bases.iter_mut().enumerate() {
                *base = simd.splat(match may_raise {
                    true => self.raise(simd, row, logits[row]),
                    false => -*self.state.most.add(row),
                });
            }
            let factor = simd.splat(factor);
            let mut sums = [simd.splat(0.0); SIDE_BY_SIDE];
            let mut at = keys.start;
            while at < keys.end {
                for row in 0..R {
                    let scores = self.scores.add(row * BLOCK + at);
                    let weight = exp2(simd, simd.fma(simd.load(scores), factor, bases[row]));
                    simd.store(scores, weight);
                    sums[row] = simd.add(sums[row], weight);
                }
                at += S::LANES;
            }
            for (row, sum) in simd.sums(sums)[..R].iter().enumerate() {
                *self.state.sum.add(row) += sum;
            }
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
