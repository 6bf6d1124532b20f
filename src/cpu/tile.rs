//! Attention of a tile of rows to the keys of a node of the tree of segments.
use super::call::AppendPrefill;
use super::element::{Element, Narrow, Widen, WidenAs};
use super::kernel::{
    BLOCK, KeyRows, Listed, Logit, Queries, Span, Strided, Sums, Weights, add_results, scores,
};
use super::schedule::{SEGMENT, Tile};
use super::scratch::{Numbers, Scratch};
use super::simd::{Simd, exp2_one};
use super::state::State;
use crate::attention::{Geometry, Row};
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

/// With this many rows or fewer, keys and values are converted where they are used; with more,
/// once for all.
const DIRECT_ROWS: usize = 8;

/// Values that are added to all columns before the next ones, where they are not converted.
const DIRECT_NEAR_KEYS: usize = 16;

/// Numbers between the rows of converted keys, so that a column is not all in one part of the
/// processor's cache.
const PADDING: usize = 16;

/// A tile with all that is needed to compute it.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub call: &'a AppendPrefill<'a>,
    pub tile: &'a Tile,
}

impl<'a> Job<'a> {
    fn row(&self) -> &'a Row {
        &self.call.batch.rows()[self.tile.row]
    }

    fn head_dim(&self) -> usize {
        self.call.geometry.head_dim
    }

    /// Of a row of the tile: its query among those of the row, and its query head.
    fn query_and_head(&self, row: usize) -> (usize, usize) {
        let group = self.call.geometry.group();
        let row = self.tile.rows.start + row;
        (row / group, self.tile.kv_head * group + row % group)
    }

    /// Computes what the rows see of a node's keys. The state is in `memory`, where that is given.
    ///
    /// # Safety
    /// The contract of [`super::CpuBackend::append_prefill`]; what is attended to is written.
    pub(super) unsafe fn attend<S: Simd, E: Element>(
        &self,
        simd: S,
        node: usize,
        memory: Option<*mut f32>,
        scratch: &mut Scratch,
    ) -> State {
        let (rows, head_dim) = (self.tile.rows.len(), self.head_dim());
        self.look(&mut scratch.seen);
        // SAFETY: the caller's contract.
        unsafe {
            self.load_queries(simd, &mut scratch.q);
            scratch.tree.clear();
            let mut given = memory;
            for segment in self.tile.segments_of(node) {
                let state = match given.take() {
                    Some(memory) => State::at(memory, rows),
                    None => scratch.tree.next(rows, head_dim),
                };
                state.clear(head_dim);
                self.attend_segment::<S, E>(simd, segment * SEGMENT, state, scratch);
                scratch.tree.push(simd, 0, segment, state, head_dim);
            }
            scratch.tree.finish(simd, head_dim)
        }
    }

    /// Finds out which keys each row sees.
    fn look(&self, seen: &mut Vec<Span>) {
        let mask = self.call.batch.mask_of(self.row(), self.call.params.window);
        let mut last = None;
        seen.clear();
        seen.extend((0..self.tile.rows.len()).map(|row| {
            let (query, _) = self.query_and_head(row);
            match last {
                Some((of, span)) if of == query => span,
                _ => {
                    let keys = mask.keys(self.row().start + query);
                    let span = Span { start: keys.start, end: keys.end };
                    last = Some((query, span));
                    span
                }
            }
        }));
    }

    /// # Safety
    /// The call's queries are readable.
    unsafe fn load_queries<S: Simd>(&self, simd: S, to: &mut Numbers) {
        let (q, head_dim) = (self.call.q, self.head_dim());
        let to = to.reserve(self.tile.rows.len() * head_dim);
        for row in 0..self.tile.rows.len() {
            let (query, head) = self.query_and_head(row);
            let position = self.row().first_query + query;
            let at = position * q.position_stride + head * q.head_stride;
            // SAFETY: the caller's contract; room was made.
            unsafe {
                let from = q.address.add(at * q.dtype.bytes());
                simd.run(WidenAs::new(q.dtype, from, to.add(row * head_dim), head_dim));
            }
        }
    }

    /// Attends to the keys from `start` on, as far as the segment goes.
    ///
    /// # Safety
    /// As for [`Job::attend`], of which this is the heart.
    unsafe fn attend_segment<S: Simd, E: Element>(
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
        let Scratch { q, kv, scores, seen, spans, offsets, .. } = scratch;
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
        self.locate(block, keys.clone(), E::BYTES, offsets);
        let layer = &self.call.layer;
        let (k, v) = (layer.k.cast_const(), layer.v.cast_const());
        let (k, v) = (Listed::<E>::new(k, offsets.as_ptr()), Listed::<E>::new(v, offsets.as_ptr()));
        let q = q.reserve(self.tile.rows.len() * head_dim).wrapping_add(rows.start * head_dim);
        let room = scores.reserve(self.tile.rows.len() * BLOCK);
        let step = Step { head_dim, logit: self.logit::<E>(), spans, q, room };
        let state = state.part(rows, head_dim);
        // SAFETY: the caller's contract; the offsets are those of the block's keys.
        unsafe {
            if spans.len() <= DIRECT_ROWS {
                step.weigh(simd, k, state);
                step.add(simd, v, state, DIRECT_NEAR_KEYS);
            } else {
                let stride = head_dim + PADDING;
                let kv = kv.reserve(BLOCK * stride);
                gather(simd, k, keys.clone(), kv, head_dim, stride);
                step.weigh(simd, Strided::new(kv, stride), state);
                gather(simd, v, keys, kv, head_dim, stride);
                step.add(simd, Strided::new(kv, stride), state, BLOCK);
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

    /// Finds the keys of a block in memory. Around them, up to multiples of 8, it names the nearest
    /// one again, so that register tiles have something to read.
    fn locate(&self, block: usize, keys: Range<usize>, bytes: usize, to: &mut [usize; BLOCK]) {
        let Geometry { page_size, .. } = self.call.geometry;
        let strides = self.call.layer.strides;
        let pages = self.call.batch.pages_of(self.row());
        let head = self.tile.kv_head * strides.head;
        let mut key = keys.start;
        while key < keys.end {
            let (page, first) = ((block + key) / page_size, (block + key) % page_size);
            let end = (key + page_size - first).min(keys.end);
            let start = pages[page] as usize * strides.page + head;
            for (offset, to) in to[key..end].iter_mut().enumerate() {
                *to = (start + (first + offset) * strides.position) * bytes;
            }
            key = end;
        }
        let (first, last) = (to[keys.start], to[keys.end - 1]);
        to[keys.start & !7..keys.start].fill(first);
        to[keys.end..keys.end.next_multiple_of(8)].fill(last);
    }

    /// Writes the results of a state.
    ///
    /// # Safety
    /// The call's outputs are writable; the state is of the tile's rows from `first` on.
    pub(super) unsafe fn write<S: Simd, E: Element>(&self, simd: S, first: usize, state: State) {
        let (call, head_dim) = (self.call, self.head_dim());
        let out = call.out;
        let is_fp8 = E::BYTES == 1;
        let scale = E::FACTOR * if is_fp8 { call.params.v_scale } else { 1.0 };
        for row in 0..state.rows {
            let (query, head) = self.query_and_head(first + row);
            let position = self.row().first_query + query;
            // SAFETY: the caller's contract.
            unsafe {
                let (mut most, mut sum) = (*state.most.add(row), *state.sum.add(row));
                let mut factor = scale;
                if let Some(sinks) = call.sinks {
                    let sink = sinks[head] * LOG2_E;
                    if sink > most {
                        let less = exp2_one(simd, most - sink);
                        (factor, sum, most) = (factor * less, sum * less + 1.0, sink);
                    } else if sink != f32::NEG_INFINITY {
                        sum += exp2_one(simd, sink - most);
                    }
                }
                // All logits -inf: nothing has a weight.
                let empty = sum == 0.0;
                factor = if empty { 0.0 } else { factor / sum };
                let at = position * out.position_stride + head * out.head_stride;
                let to = out.address.add(at * out.dtype.bytes());
                let from = state.out.add(row * head_dim);
                simd.run(Narrow::new(out.dtype, from, factor, to, head_dim));
                if let Some(lse) = call.lse {
                    let lse = lse.add(position * call.geometry.query_heads + head);
                    let value = if empty { f32::NEG_INFINITY } else { most * LN_2 + sum.ln() };
                    lse.write_unaligned(value);
                }
            }
        }
    }
}

/// Rows and a block of keys that they see.
struct Step<'a> {
    head_dim: usize,
    logit: Logit,
    spans: &'a [Span],
    q: *const f32,
    room: *mut f32,
}

impl Step<'_> {
    /// Computes the weights.
    ///
    /// # Safety
    /// As for [`Job::attend`]; the keys are those of the spans and of what is around them.
    unsafe fn weigh<S: Simd, K: KeyRows>(&self, simd: S, keys: K, state: State) {
        let Self { head_dim, logit, spans, q, room } = *self;
        // SAFETY: the caller's contract.
        unsafe {
            scores(simd, Queries { head_dim, q, scores: room }, spans, keys);
            for (row, &span) in spans.iter().enumerate() {
                let state = state.part(row..row + 1, head_dim);
                simd.run(Weights::new(logit, span, room.add(row * BLOCK), state, head_dim));
            }
        }
    }

    /// Adds the values.
    ///
    /// # Safety
    /// As for [`Step::weigh`], which came before.
    unsafe fn add<S: Simd, K: KeyRows>(&self, simd: S, values: K, state: State, near: usize) {
        let Self { head_dim, spans, room, .. } = *self;
        let sums = Sums { head_dim, weights: room, out: state.out };
        // SAFETY: the caller's contract.
        unsafe { add_results(simd, sums, spans, values, near) };
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
