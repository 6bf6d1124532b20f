//! What a call is given.
use crate::attention::{Batch, Geometry, KvLayer, Params, Tensor};

/// Arguments of [`super::CpuBackend::append_prefill`].
#[derive(Clone, Copy)]
pub struct AppendPrefill<'a> {
    /// Heads and pages.
    pub geometry: Geometry,
    /// Rows.
    pub batch: &'a Batch,
    /// Scale, window and so on.
    pub params: Params,
    /// A logit for each query head that takes part in the denominator only.
    pub sinks: Option<&'a [f32]>,
    /// Of fp8 a scale for each KV head, in place of those in `params`: of keys and of values.
    pub head_scales: Option<[&'a [f32]; 2]>,
    /// `[new positions of all rows][query head][element]`
    pub q: Tensor<*const u8>,
    /// `[new positions][KV head][element]`; none: they are written already.
    pub k: Option<Tensor<*const u8>>,
    /// Like `k`, with v_head_dim elements; none also where they are the beginnings of keys.
    pub v: Option<Tensor<*const u8>>,
    /// Like `q`, with v_head_dim elements.
    pub out: Tensor<*mut u8>,
    /// `[new positions][query head]`: natural logarithm of the denominator. None: not wanted.
    pub lse: Option<*mut f32>,
    /// KV memory.
    pub layer: KvLayer<*mut u8>,
    /// A row's result has the same bits whatever the batch, the threads and the chunks are.
    pub batch_invariant: bool,
}

impl AppendPrefill<'_> {
    /// What the stored keys of a KV head are to be multiplied with.
    pub(super) fn k_scale(&self, head: usize) -> f32 {
        self.head_scales.map_or(self.params.k_scale, |[of_k, _]| of_k[head])
    }

    /// The same of values.
    pub(super) fn v_scale(&self, head: usize) -> f32 {
        self.head_scales.map_or(self.params.v_scale, |[_, of_v]| of_v[head])
    }
}

/// A result of attention to some of the keys.
#[derive(Debug, Clone, Copy)]
pub struct PartialState {
    /// `[position][head][element]`
    pub out: Tensor<*const u8>,
    /// `[position][head]`: natural logarithm; -inf: it saw no key, and `out` is not read.
    pub lse: *const f32,
}

/// Arguments of [`super::CpuBackend::merge_states`].
#[derive(Clone, Copy)]
pub struct MergeStates<'a> {
    /// At least one.
    pub states: &'a [PartialState],
    /// `[position][head][element]`
    pub out: Tensor<*mut u8>,
    /// `[position][head]`. None: not wanted.
    pub lse: Option<*mut f32>,
    /// Positions.
    pub positions: usize,
    /// Query heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}
