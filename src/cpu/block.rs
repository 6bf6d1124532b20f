//! Attention of a tile's rows to a segment of the keys, block by block.
use super::element::{AsBf16, Bf16, Element, F32, Widen};
use super::kernel::{
    Ahead, AheadRows, BLOCK, KeyRows, Listed, Logit, Queries, SIDE_BY_SIDE, Span, Strided, Sums,
    Turn, Weights, add_results, padded, scores, scores_across,
};
use super::offsets::KeyLayout;
use super::schedule::SEGMENT;
use super::scratch::Scratch;
use super::simd::Simd;
use super::state::State;
use super::tile::Job;
use crate::attention::{Geometry, KvStrides};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// With this many rows of a head or fewer, keys and values are converted where they are used; with
/// more, or where zeros come behind them, once for all.
pub(super) const DIRECT_ROWS: usize = 8;

/// Numbers between the rows of converted keys, so that a column is not all in one part of the
/// processor's cache.
const PADDING: usize = 16;

/// Numbers from a row of converted keys to the next.
pub(super) fn converted_stride(head_dim: usize) -> usize {
    head_dim + PADDING
}

/// Whether keys or values are computed with zeros behind them, which are not in memory.
pub(super) fn is_padded(geometry: &Geometry) -> bool {
    [geometry.head_dim, geometry.v_head_dim].iter().any(|&dim| padded(dim) != dim)
}

impl Job<'_> {
    /// Attends to the keys from `start` on, as far as the segment goes: to sinks that are apart,
    /// then to the others.
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
        if scratch.sinks.last().is_some_and(|last| last.end > start) {
            // SAFETY: the caller's contract; what is swapped is of the same rows.
            unsafe {
                std::mem::swap(&mut scratch.seen, &mut scratch.sinks);
                self.attend_spans::<S, E>(simd, (start, true), state, scratch);
                std::mem::swap(&mut scratch.seen, &mut scratch.sinks);
                scratch.forget_offsets();
            }
        }
        // SAFETY: the caller's contract.
        unsafe { self.attend_spans::<S, E>(simd, (start, false), state, scratch) };
    }

    /// Attends to the keys of a segment that are in `scratch.seen`: `apart` to sinks.
    ///
    /// # Safety
    /// As for [`Job::attend`].
    unsafe fn attend_spans<S: Simd, E: Element>(
        &self,
        simd: S,
        (start, apart): (usize, bool),
        state: State,
        scratch: &mut Scratch,
    ) {
        let seen = &scratch.seen;
        let first = seen[0].start.max(start);
        let last = seen[seen.len() - 1].end.min(start + SEGMENT);
        let mut block = first - first % BLOCK;
        while block < last {
            // SAFETY: the caller's contract.
            unsafe { self.attend_block::<S, E>(simd, (block, apart), state, scratch) };
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
        (block, apart): (usize, bool),
        state: State,
        scratch: &mut Scratch,
    ) {
        let Scratch { q, kv, scores, seen, spans, shown, k_offsets, v_offsets, .. } = scratch;
        let (head_dim, v_head_dim) = (self.head_dim(), self.v_head_dim());
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
        self.find_shown((block, apart), rows.start, spans, shown);
        let keys = spans[0].start..spans[spans.len() - 1].end;
        let after = seen[seen.len() - 1].end.saturating_sub(block + BLOCK).min(BLOCK);
        let (call, all) = (self.call, self.tile.rows.len());
        let layout = |strides| KeyLayout {
            strides,
            bytes: E::BYTES,
            page_size: call.geometry.page_size,
            pages: call.batch.pages_of(self.row()),
        };
        let (strides, v_strides) = (call.layer.strides, call.layer.v_strides);
        let unasked = k_offsets.comes_unasked(block);
        let (offsets, next_offsets) = k_offsets.find(layout(strides), block, keys.clone(), after);
        let (v_offsets, v_next_offsets) = match v_strides == strides {
            true => (offsets, next_offsets),
            false => v_offsets.find(layout(v_strides), block, keys.clone(), after),
        };
        let q = q.start(self.tile.height() * head_dim);
        let scores = scores.start(all * BLOCK);
        let at = |base: *mut u8, head: usize, strides: KvStrides| {
            base.cast_const().wrapping_add(head * strides.head * E::BYTES)
        };
        let ahead = |base, strides, offsets, dim| AheadRows {
            base: at(base, self.tile.heads.start, strides),
            offsets,
            heads: self.tile.heads.len(),
            head_stride: strides.head * E::BYTES,
            row_bytes: dim * E::BYTES,
        };
        let (geometry, dots) = (&call.geometry, self.dots::<S, E>());
        let ahead_k = ahead(call.layer.k, strides, next_offsets, geometry.head_dim);
        let ahead_v = ahead(call.layer.v, v_strides, v_next_offsets, geometry.v_head_dim);
        if unasked && spans.len() <= DIRECT_ROWS {
            let k = AheadRows { offsets: &offsets[keys.clone()], ..ahead_k };
            let v = AheadRows { offsets: &v_offsets[keys.clone()], ..ahead_v };
            // SAFETY: the caller's contract: somebody sees each of these keys.
            unsafe { [k, v].iter().for_each(|rows| rows.touch()) };
        }
        for (index, head) in self.tile.heads.clone().enumerate() {
            let state = state.part(index * all + rows.start..index * all + rows.end, v_head_dim);
            let step = Step {
                v_head_dim,
                logit: self.logit::<E>(head),
                spans,
                shown,
                queries: Queries {
                    head_dim,
                    q: q.wrapping_add((index * all + rows.start) * head_dim),
                    scores,
                },
                state,
            };
            let (ahead_k, ahead_v) = (Ahead::new(ahead_k, index), Ahead::new(ahead_v, index));
            let k = Listed::<E>::new(at(call.layer.k, head, strides), offsets.as_ptr());
            let v = Listed::<E>::new(at(call.layer.v, head, v_strides), v_offsets.as_ptr());
            // SAFETY: the caller's contract; the offsets are those of the block's keys.
            unsafe {
                if spans.len() <= DIRECT_ROWS && !is_padded(geometry) {
                    match dots {
                        true => step.weigh::<S, _, true>(simd, k, ahead_k),
                        false => step.weigh::<S, _, false>(simd, k, ahead_k),
                    }
                    step.add(simd, v, ahead_v);
                    continue;
                }
                let [stride, v_stride] = [head_dim, v_head_dim].map(converted_stride);
                let converted = BLOCK * stride.max(v_stride);
                let kv = kv.start(converted + BLOCK * head_dim);
                let many = S::ACROSS && spans.len() > DIRECT_ROWS;
                if many && !dots && !E::CONVERTS && !is_padded(geometry) {
                    let turned = kv.add(converted);
                    simd.run(Turn::new(k, keys.clone(), head_dim, turned));
                    step.weigh_turned::<S, false>(simd, turned, ahead_k);
                } else if dots {
                    for key in keys.clone() {
                        let to = kv.add(key * stride);
                        simd.run(AsBf16::<E, false>::new(k.row(key), to, head_dim));
                    }
                    let k = Strided::<Bf16>::new(kv, stride);
                    if many {
                        let turned = kv.add(converted);
                        simd.run(Turn::new(k, keys.clone(), head_dim / 2, turned));
                        step.weigh_turned::<S, true>(simd, turned, ahead_k);
                    } else {
                        step.weigh::<S, _, true>(simd, k, ahead_k);
                    }
                } else {
                    gather(simd, k, keys.clone(), kv, geometry.head_dim, stride);
                    let k = Strided::<F32>::new(kv, stride);
                    if many {
                        let turned = kv.add(converted);
                        simd.run(Turn::new(k, keys.clone(), head_dim, turned));
                        step.weigh_turned::<S, false>(simd, turned, ahead_k);
                    } else {
                        step.weigh::<S, _, false>(simd, k, ahead_k);
                    }
                }
                gather(simd, v, keys.clone(), kv, geometry.v_head_dim, v_stride);
                step.add(simd, Strided::<F32>::new(kv, v_stride), ahead_v);
            }
        }
    }

    /// Finds out what of their spans the rows from `first` on see, where tree masks hide something.
    fn find_shown(
        &self,
        (block, apart): (usize, bool),
        first: usize,
        spans: &[Span],
        shown: &mut Vec<u64>,
    ) {
        shown.clear();
        let mask = self.call.batch.mask_of(self.row(), self.call.params.view);
        if mask.tree.is_empty() {
            return;
        }
        let position = |at: usize| self.row().position(self.query(first + at));
        shown.extend((0..spans.len()).map(|at| mask.shown(position(at), block, apart)));
        let sees_all = |(span, shown): (&Span, &u64)| span.bits() & !shown == 0;
        if spans.iter().zip(&*shown).all(sees_all) {
            shown.clear();
        }
    }

    /// How scores of a KV head become logits.
    fn logit<E: Element>(&self, head: usize) -> Logit {
        let params = &self.call.params;
        let is_fp8 = E::BYTES == 1;
        let factor = params.scale * E::FACTOR * if is_fp8 { self.call.k_scale(head) } else { 1.0 };
        match params.soft_cap {
            Some(cap) => Logit { factor: factor / cap, cap: Some(cap * LOG2_E) },
            None => Logit { factor: factor * LOG2_E, cap: None },
        }
    }
}

/// Rows of a head and a block of keys that they see.
struct Step<'a> {
    v_head_dim: usize,
    logit: Logit,
    spans: &'a [Span],
    /// Empty: each row sees all of its span.
    shown: &'a [u64],
    queries: Queries,
    state: State,
}

impl Step<'_> {
    /// Computes the weights.
    ///
    /// # Safety
    /// As for [`Job::attend`]; the keys are those of the spans and of what is around them.
    unsafe fn weigh<S: Simd, K: KeyRows, const DOTS: bool>(
        &self,
        simd: S,
        keys: K,
        ahead: Ahead<'_>,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            scores::<S, K, DOTS>(simd, self.queries, self.spans, keys, ahead);
            self.weigh_scores(simd);
        }
    }

    /// The same with keys side by side.
    ///
    /// # Safety
    /// As for [`Step::weigh`] and [`scores_across`].
    unsafe fn weigh_turned<S: Simd, const DOTS: bool>(
        &self,
        simd: S,
        keys: *const f32,
        ahead: Ahead<'_>,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            scores_across::<S, DOTS>(simd, self.queries, self.spans, keys, ahead);
            self.weigh_scores(simd);
        }
    }

    /// Makes weights of the scores.
    ///
    /// # Safety
    /// As for [`Step::weigh`].
    unsafe fn weigh_scores<S: Simd>(&self, simd: S) {
        let mut row = 0;
        while row < self.spans.len() {
            // SAFETY: the caller's contract.
            unsafe {
                match self.spans[row..].first_chunk::<SIDE_BY_SIDE>() {
                    Some(spans) => self.weigh_rows(simd, row, spans),
                    None => self.weigh_rows(simd, row, &[self.spans[row]]),
                }
            }
            row += if self.spans.len() - row < SIDE_BY_SIDE { 1 } else { SIDE_BY_SIDE };
        }
    }

    /// Makes weights of the scores of R rows.
    ///
    /// # Safety
    /// As for [`Step::weigh`]; the spans are those of the rows from `row` on.
    unsafe fn weigh_rows<S: Simd, const R: usize>(&self, simd: S, row: usize, spans: &[Span; R]) {
        let state = self.state.part(row..row + R, self.v_head_dim);
        let scores = self.queries.scores.wrapping_add(row * BLOCK);
        let shown = std::array::from_fn(|at| self.shown.get(row + at).copied().unwrap_or(u64::MAX));
        // SAFETY: the caller's contract.
        unsafe {
            simd.run(Weights::new(self.logit, (spans, shown), scores, state, self.v_head_dim));
        }
    }

    /// Adds the values.
    ///
    /// # Safety
    /// As for [`Step::weigh`], which came before.
    unsafe fn add<S: Simd, K: KeyRows>(&self, simd: S, values: K, ahead: Ahead<'_>) {
        let sums =
            Sums { head_dim: self.v_head_dim, weights: self.queries.scores, out: self.state.out };
        if self.shown.is_empty() {
            // SAFETY: the caller's contract.
            return unsafe { add_results(simd, sums, self.spans, values, ahead) };
        }
        // Row by row, so that what one does not see may be NaN.
        for (row, (span, &shown)) in self.spans.iter().zip(self.shown).enumerate() {
            let sums = Sums {
                weights: sums.weights.wrapping_add(row * BLOCK),
                out: sums.out.wrapping_add(row * self.v_head_dim),
                ..sums
            };
            for run in span.runs(shown) {
                // SAFETY: the caller's contract.
                unsafe { add_results(simd, sums, &[run], values, ahead.nothing()) };
            }
        }
    }
}

/// Converts rows of keys or values.
///
/// # Safety
/// The rows are readable, and `to` is writable, `stride` apart, for [`padded`] numbers.
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
