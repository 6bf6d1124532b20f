//! Attention of a tile's rows to a segment of the keys, block by block.
use super::element::{Element, Widen};
use super::kernel::{
    Ahead, AheadRows, BLOCK, KeyRows, Listed, Logit, Queries, Span, Strided, Sums, Weights,
    add_results, scores,
};
use super::places::Place;
use super::schedule::SEGMENT;
use super::scratch::Scratch;
use super::simd::Simd;
use super::state::State;
use super::tile::Job;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// With this many rows of a head or fewer, keys and values are converted where they are used; with
/// more, once for all.
pub(super) const DIRECT_ROWS: usize = 8;

/// Numbers between the rows of converted keys, so that a column is not all in one part of the
/// processor's cache.
const PADDING: usize = 16;

/// Numbers from a row of converted keys to the next.
pub(super) fn converted_stride(head_dim: usize) -> usize {
    head_dim + PADDING
}

impl Job<'_> {
    /// Attends to the keys from `start` on, as far as the segment goes.
    ///
    /// # Safety
    /// As for [`Job::attend`], of which this is the heart.
    pub(super) unsafe fn attend_segment<S: Simd, E: Element>(
        &self,
        simd: S,
        start: usize,
        state: State,
        scratch: &mut Scratch,
    ) {
        let seen = &scratch.seen;
        let first = seen[0].start.max(start);
        let last = seen[seen.len() - 1].end.min(start + SEGMENT);
        let mut block = first - first % BLOCK;
        while block < last {
            // SAFETY: the caller's contract.
            unsafe { self.attend_block::<S, E>(simd, block, state, scratch) };
            block += BLOCK;
        }
    }

    /// Attends to the keys of a block.
    ///
    /// # Safety
    /// As for [`Job::attend`].
    unsafe fn attend_block<S: Simd, E: Element>(
        &self,
        simd: S,
        block: usize,
        state: State,
        scratch: &mut Scratch,
    ) {
        let Scratch { q, kv, scores, seen, spans, places, .. } = scratch;
        let head_dim = self.head_dim();
        // The rows that see some of it are neighbours, for their first and last keys ascend.
        let rows = seen.partition_point(|seen| seen.end <= block)
            ..seen.partition_point(|seen| seen.start < block + BLOCK);
        if rows.is_empty() {
            return;
        }
        spans.clear();
        spans.extend(seen[rows.clone()].iter().map(|seen| Span {
            start: seen.start.saturating_sub(block),
            end: (seen.end - block).min(BLOCK),
        }));
        let keys = spans[0].start..spans[spans.len() - 1].end;
        let after = seen[seen.len() - 1].end.saturating_sub(block + BLOCK).min(BLOCK);
        let (call, all) = (self.call, self.tile.rows.len());
        let place = Place {
            strides: call.layer.strides,
            bytes: E::BYTES,
            page_size: call.geometry.page_size,
            pages: call.batch.pages_of(self.row()),
        };
        let (offsets, next_offsets) = places.find(place, block, keys.clone(), after);
        let q = q.start(self.tile.height() * head_dim);
        let scores = scores.start(all * BLOCK);
        let head_stride = call.layer.strides.head * E::BYTES;
        let at = |base: *mut u8, head: usize| base.cast_const().wrapping_add(head * head_stride);
        let ahead = |base: *mut u8| AheadRows {
            base: at(base, self.tile.heads.start),
            offsets: next_offsets,
            heads: self.tile.heads.len(),
            head_stride,
            row_bytes: head_dim * E::BYTES,
        };
        let (ahead_k, ahead_v) = (ahead(call.layer.k), ahead(call.layer.v));
        for (index, head) in self.tile.heads.clone().enumerate() {
            let state = state.part(index * all + rows.start..index * all + rows.end, head_dim);
            let step = Step {
                head_dim,
                logit: self.logit::<E>(),
                spans,
                queries: Queries {
                    head_dim,
                    q: q.wrapping_add((index * all + rows.start) * head_dim),
                    scores,
                },
                state,
            };
            let (ahead_k, ahead_v) = (Ahead::new(ahead_k, index), Ahead::new(ahead_v, index));
            let k = Listed::<E>::new(at(call.layer.k, head), offsets.as_ptr());
            let v = Listed::<E>::new(at(call.layer.v, head), offsets.as_ptr());
            // SAFETY: the caller's contract; the offsets are those of the block's keys.
            unsafe {
                if spans.len() <= DIRECT_ROWS {
                    step.weigh(simd, k, ahead_k);
                    step.add(simd, v, ahead_v);
                } else {
                    let stride = converted_stride(head_dim);
                    let kv = kv.start(BLOCK * stride);
                    let converted = Strided::new(kv, stride);
                    gather(simd, k, keys.clone(), kv, head_dim, stride);
                    step.weigh(simd, converted, ahead_k);
                    gather(simd, v, keys.clone(), kv, head_dim, stride);
                    step.add(simd, converted, ahead_v);
                }
            }
        }
    }

    /// How scores become logits.
    fn logit<E: Element>(&self) -> Logit {
        let params = &self.call.params;
        let is_fp8 = E::BYTES == 1;
        let factor = params.scale * E::FACTOR * if is_fp8 { params.k_scale } else { 1.0 };
        match params.soft_cap {
            Some(cap) => Logit { factor: factor / cap, cap: Some(cap * LOG2_E) },
            None => Logit { factor: factor * LOG2_E, cap: None },
        }
    }
}

/// Rows of a head and a block of keys that they see.
struct Step<'a> {
    head_dim: usize,
    logit: Logit,
    spans: &'a [Span],
    queries: Queries,
    state: State,
}

impl Step<'_> {
    /// Computes the weights.
    ///
    /// # Safety
    /// As for [`Job::attend`]; the keys are those of the spans and of what is around them.
    unsafe fn weigh<S: Simd, K: KeyRows>(&self, simd: S, keys: K, ahead: Ahead<'_>) {
        // SAFETY: the caller's contract.
        unsafe {
            scores(simd, self.queries, self.spans, keys, ahead);
            for (row, &span) in self.spans.iter().enumerate() {
                let state = self.state.part(row..row + 1, self.head_dim);
                let scores = self.queries.scores.add(row * BLOCK);
                simd.run(Weights::new(self.logit, span, scores, state, self.head_dim));
            }
        }
    }

    /// Adds the values.
    ///
    /// # Safety
    /// As for [`Step::weigh`], which came before.
    unsafe fn add<S: Simd, K: KeyRows>(&self, simd: S, values: K, ahead: Ahead<'_>) {
        let sums =
            Sums { head_dim: self.head_dim, weights: self.queries.scores, out: self.state.out };
        // SAFETY: the caller's contract.
        unsafe { add_results(simd, sums, self.spans, values, ahead) };
    }
}

/// Converts rows of keys or values.
///
/// # Safety
/// The rows are readable, and `to` is writable, `stride` apart.
unsafe fn gather<S: Simd, K: KeyRows>(
    simd: S,
    from: K,
    keys: Range<usize>,
    to: *mut f32,
    head_dim: usize,
    stride: usize,
) {
    for key in keys {
        // SAFETY: the caller's contract.
        unsafe {
            let to = to.add(key * stride);
            simd.run(Widen::<K::Element>::new(from.row(key), to, head_dim));
        }
    }
}
