//! A tile: rows of some heads, from their queries to their results.
use super::call::AppendPrefill;
use super::element::{AsBf16, Element, Narrow, WidenAs};
use super::kernel::{Span, padded};
use super::schedule::{SEGMENT, Tile};
use super::scratch::{Numbers, Scratch};
use super::simd::{Simd, exp2_one};
use super::state::State;
use crate::attention::{Dtype, Row};
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

/// A tile with all that is needed to compute it.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub call: &'a AppendPrefill<'a>,
    pub tile: &'a Tile,
}

impl<'a> Job<'a> {
    pub(super) fn row(&self) -> &'a Row {
        &self.call.batch.rows()[self.tile.row]
    }

    /// Numbers of a head of queries and keys, as they are computed.
    pub(super) fn head_dim(&self) -> usize {
        padded(self.call.geometry.head_dim)
    }

    /// The same of values and results.
    pub(super) fn v_head_dim(&self) -> usize {
        padded(self.call.geometry.v_head_dim)
    }

    /// Whether scores are computed as bf16: what is multiplied is exactly that then.
    pub(super) fn dots<S: Simd, E: Element>(&self) -> bool {
        let whole = self.call.geometry.head_dim.is_multiple_of(4 * S::LANES);
        S::DOTS && E::IS_BF16 && self.call.q.dtype == Dtype::Bf16 && whole
    }

    /// The query of one of a head's rows, among those of the batch's row.
    pub(super) fn query(&self, row: usize) -> usize {
        (self.tile.rows.start + row) / self.call.geometry.group()
    }

    /// Of one of the rows of all heads: its position among those of the batch, and its query head.
    fn position_and_head(&self, index: usize) -> (usize, usize) {
        let group = self.call.geometry.group();
        let (head, row) = (index / self.tile.rows.len(), index % self.tile.rows.len());
        let position = self.row().first_query + self.query(row);
        let inside = (self.tile.rows.start + row) % group;
        (position, (self.tile.heads.start + head) * group + inside)
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
        let (height, head_dim) = (self.tile.height(), self.v_head_dim());
        self.look(&mut scratch.seen, &mut scratch.sinks);
        // SAFETY: the caller's contract.
        unsafe {
            self.load_queries::<S, E>(simd, &mut scratch.q);
            scratch.tree.clear();
            scratch.forget_offsets();
            let mut given = memory;
            for segment in self.tile.segments_of(node) {
                scratch.tree.skip_to(simd, 0, segment, head_dim);
                let state = match given.take() {
                    Some(memory) => State::at(memory, height),
                    None => scratch.tree.next(height, head_dim),
                };
                state.clear(head_dim);
                self.attend_segment::<S, E>(simd, segment * SEGMENT, state, scratch);
                scratch.tree.push(simd, 0, segment, state, head_dim);
            }
            scratch.tree.finish(simd, head_dim)
        }
    }

    /// Finds out which keys each row of a head sees.
    fn look(&self, seen: &mut Vec<Span>, sinks: &mut Vec<Span>) {
        let view = self.call.params.view;
        let mask = self.call.batch.mask_of(self.row(), view);
        seen.clear();
        sinks.clear();
        for row in 0..self.tile.rows.len() {
            let query = self.query(row);
            let same = row > 0 && query == self.query(row - 1);
            let found = match (seen.last(), sinks.last()) {
                (Some(&keys), last) if same => (keys, last.copied()),
                _ => {
                    let found = mask.seen(self.row().position(query));
                    let span = |range: Range<usize>| Span { start: range.start, end: range.end };
                    (span(found.keys), (view.sinks > 0).then(|| span(found.sinks)))
                }
            };
            seen.push(found.0);
            sinks.extend(found.1);
        }
    }

    /// # Safety
    /// The call's queries are readable.
    unsafe fn load_queries<S: Simd, E: Element>(&self, simd: S, to: &mut Numbers) {
        let (q, head_dim, count) = (self.call.q, self.head_dim(), self.call.geometry.head_dim);
        let to = to.start(self.tile.height() * head_dim);
        for index in 0..self.tile.height() {
            let (position, head) = self.position_and_head(index);
            let at = position * q.position_stride + head * q.head_stride;
            // SAFETY: the caller's contract; room was made.
            unsafe {
                let from = q.address.add(at * q.dtype.bytes());
                let to = to.add(index * head_dim);
                match self.dots::<S, E>() {
                    true => simd.run(AsBf16::<E, true>::new(from, to, count)),
                    false => simd.run(WidenAs::new(q.dtype, from, to, count)),
                }
            }
        }
    }

    /// Writes the results of a state.
    ///
    /// # Safety
    /// The call's outputs are writable; the state is of the rows from `first` on.
    pub(super) unsafe fn write<S: Simd, E: Element>(&self, simd: S, first: usize, state: State) {
        let (call, head_dim) = (self.call, self.v_head_dim());
        let (out, group) = (call.out, call.geometry.group());
        let is_fp8 = E::BYTES == 1;
        for row in 0..state.rows {
            let (position, head) = self.position_and_head(first + row);
            // SAFETY: the caller's contract.
            unsafe {
                let (mut most, mut sum) = (*state.most.add(row), *state.sum.add(row));
                let of_head = if is_fp8 { call.v_scale(head / group) } else { 1.0 };
                let mut factor = E::FACTOR * of_head;
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
                let count = call.geometry.v_head_dim;
                simd.run(Narrow::new(out.dtype, from, factor, to, count));
                if let Some(lse) = call.lse {
                    let lse = lse.add(position * call.geometry.query_heads + head);
                    let value = if empty { f32::NEG_INFINITY } else { most * LN_2 + sum.ln() };
                    lse.write_unaligned(value);
                }
            }
        }
    }
}
