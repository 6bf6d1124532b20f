//! What a runner computes: attention for a step, copies of pages, merged states.
use super::Runner;
use super::backend::Backend;
use super::prepare::on_device;
use crate::attention::{Dtype, Params, Tensor, View};
use crate::cpu::{AppendPrefill, MergeStates, PartialState};
use crate::error::Error;
use crate::error::text;
use crate::gpu::{self, NewKv, Stream};
use crate::memory::TryGrow;
use crate::paging::PageCopy;
use crate::plan::Plan;
use std::ffi::c_void;
use std::fmt::Display;
use std::ops::Range;

/// Distance of positions and of heads, in elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strides {
    /// From one position to the next; 0: dense.
    pub position: usize,
    /// From one head to the next; 0: dense.
    pub head: usize,
}

/// The new positions of a step in one layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerStep {
    /// The layer.
    pub layer: usize,
    /// Queries.
    pub q: (*const u8, Strides),
    /// Keys; None when keys and values are in the pages already.
    pub k: Option<(*const u8, Strides)>,
    /// Values; None with `k`, and where they are latent.
    pub v: Option<(*const u8, Strides)>,
    /// Receives the result, shaped like `q` but for heads of v_head_dim.
    pub out: (*mut u8, Strides),
    /// Receives the logarithm of each query's denominator; may be NULL.
    pub lse: *mut f32,
    /// A logit for each query head that takes part in the denominator only; may be NULL.
    pub sinks: *const f32,
    /// Of fp8 a scale for each KV head, of keys and of values; may be NULL.
    pub k_scales: *const f32,
    /// Both or neither, but where values are latent.
    pub v_scales: *const f32,
    /// Everything else. Of the view the window alone: chunks and sinks are the group's.
    pub params: Params,
    /// CUDA: the CUstream to work on.
    pub stream: *mut c_void,
}

/// Results of attention over disjoint sets of keys; all dense.
#[derive(Debug, Clone, Copy)]
pub struct States<'a> {
    /// `[positions][query_heads][head_dim]` for each.
    pub outs: &'a [*const u8],
    /// `[positions][query_heads]` for each.
    pub lses: &'a [*const f32],
    /// Positions of each.
    pub positions: usize,
    /// Receives the result.
    pub out: *mut u8,
    /// Receives its logarithms; may be NULL.
    pub lse: *mut f32,
    /// CUDA: the CUstream to work on.
    pub stream: *mut c_void,
}

impl Runner {
    /// Writes K and V of a step's new positions into their pages, and attends to everything before
    /// them and to them. On the CPU a call that fails has written nothing. The first call of a step
    /// also does what [`Runner::prepare_plan`] does, which confirms the copies.
    ///
    /// # Safety
    /// The pointers lead to memory of the shapes that the plan says, which nobody writes meanwhile;
    /// nobody computes the plan's rows in this layer at the same time, or releases their sequences.
    pub unsafe fn append_prefill(&self, plan: &Plan, step: &LayerStep) -> Result<(), Error> {
        self.check_plan(plan)?;
        self.check_layer(step.layer)?;
        let stream = self.stream(step.stream)?;
        let current = plan.to_compute()?;
        let step_of_plan = current.step();
        let batch = step_of_plan.batch_of(self.config.group)?;
        let is_captured = self.backend.is_captured(stream)?;
        // A graph is for all steps that fit.
        let largest = current.capacity().filter(|_| is_captured);
        let positions = largest.map_or(batch.query_count(), |largest| largest.positions);
        let (query_heads, kv_heads) = (self.config.query_heads, self.config.kv_heads);
        let (k_dim, v_dim) = (self.config.head_dim, self.config.v_head_dim);
        let tensor = |given: (*const u8, Strides), shape, name: &str| {
            self.tensor((given.0.cast_mut(), given.1), positions, shape, &name)
        };
        let shapes = [(query_heads, k_dim), (kv_heads, k_dim), (kv_heads, v_dim)];
        let q = tensor(step.q, shapes[0], "q")?;
        self.check_new(step)?;
        let k = step.k.map(|k| tensor(k, shapes[1], "k")).transpose()?;
        let v = step.v.map(|v| tensor(v, shapes[2], "v")).transpose()?;
        let out_shape = (query_heads, v_dim);
        let out = self.tensor(step.out, positions, out_shape, &"out")?;
        let inputs = [Some(q), k, v].into_iter().zip(shapes);
        let inputs =
            inputs.filter_map(|(input, shape)| Some(self.range(&input?, shape, positions)));
        let lse = if step.lse.is_null() { 0 } else { positions * query_heads };
        let lse = range(step.lse.addr(), lse * size_of::<f32>());
        let out_range = self.range(&out, out_shape, positions);
        if let Some(what) = overlap(inputs, [out_range, lse]) {
            let reserved = largest.map_or("".into(), |_| {
                text!(": a captured call reads and writes all {positions} reserved positions")
            });
            return Err(Error::argument(text!("{what}{reserved}")));
        }
        check_f32(step.lse, &"lse")?;
        check_f32(step.sinks, &"sinks")?;
        let head_scales = self.head_scales(step)?;
        check_params(&step.params)?;
        if step.params.view.window.is_some() && !step_of_plan.is_causal() {
            return Err(Error::argument("args.window: some row of the plan is not causal"));
        }
        let mut params = Params { view: self.view(step.params.view)?, ..step.params };
        params.soft_cap = params.soft_cap.filter(|&cap| cap < CAP_LIMIT);
        if self.config.latent {
            params.v_scale = params.k_scale; // V is stored as K is
        }
        let [k_scale, v_scale] = match self.config.kv_dtype {
            Dtype::Fp8E4m3 if head_scales[0].is_null() => [params.k_scale, params.v_scale],
            _ => [1.0; 2],
        };
        let of_v = if self.config.latent { "k_scale" } else { "v_scale" };
        check_factors(&params, (k_scale, &"k_scale"), (v_scale, &of_v))?;
        let layer = *self.memory.layer(step.layer);
        match &self.backend {
            Backend::Cpu(cpu) => {
                let call = AppendPrefill {
                    geometry: self.geometry,
                    batch,
                    params,
                    // SAFETY: aligned, and the caller promises a logit for each query head.
                    sinks: (!step.sinks.is_null())
                        .then(|| unsafe { std::slice::from_raw_parts(step.sinks, query_heads) }),
                    // SAFETY: the caller promises a scale for each KV head.
                    head_scales: unsafe { self.read_scales(&params, head_scales)? },
                    q: read_only(q),
                    k: k.map(read_only),
                    v: v.map(read_only),
                    out,
                    lse: (!step.lse.is_null()).then_some(step.lse),
                    layer,
                    batch_invariant: self.config.batch_invariant,
                };
                // SAFETY: the caller's contract, and the checks above; the pages are the rows'.
                unsafe { self.compute_on_cpu(cpu, (plan, step_of_plan), &call, stream) }
            }
            Backend::Cuda(cuda) => {
                let given = [(Some(q), "q"), (k, "k"), (v, "v"), (Some(out), "out")];
                for (tensor, name) in given {
                    tensor.map_or(Ok(()), |tensor| cuda.check_tensor(&tensor, name))?;
                }
                let new = |k| NewKv { k: read_only(k), v: v.map(read_only) };
                let call = gpu::AppendPrefill {
                    step: on_device(step_of_plan, batch),
                    params,
                    sinks: step.sinks,
                    head_scales,
                    q: read_only(q),
                    kv: k.map(new),
                    out,
                    lse: step.lse,
                    layer,
                    page_count: self.memory.page_count(),
                    is_captured,
                };
                // SAFETY: as above, on the device and in the order of the stream.
                unsafe { self.launch(cuda, (plan, &current), &call, stream) }
            }
        }
    }

    /// Whether a step has both K and V, where they are two, or neither.
    fn check_new(&self, step: &LayerStep) -> Result<(), Error> {
        match (step.k.is_some(), step.v.is_some()) {
            (_, true) if self.config.latent => {
                Err(Error::argument("args.v is not NULL, with V in K"))
            }
            (k, v) if k != v && !self.config.latent => {
                Err(Error::argument("args.k and args.v are either both NULL or neither"))
            }
            _ => Ok(()),
        }
    }

    /// The scales of heads, of keys and of values; both NULL where there are none, or no fp8.
    fn head_scales(&self, step: &LayerStep) -> Result<[*const f32; 2], Error> {
        let LayerStep { k_scales, v_scales, .. } = *step;
        check_f32(k_scales, &"k_scales")?;
        check_f32(v_scales, &"v_scales")?;
        match (k_scales.is_null(), v_scales.is_null()) {
            (_, false) if self.config.latent => {
                return Err(Error::argument("args.v_scales is not NULL, with V in K"));
            }
            (false, true) if !self.config.latent => {
                return Err(Error::argument("args.v_scales is NULL, and args.k_scales is not"));
            }
            (true, false) => {
                return Err(Error::argument("args.k_scales is NULL, and args.v_scales is not"));
            }
            _ if self.config.kv_dtype != Dtype::Fp8E4m3 => return Ok([std::ptr::null(); 2]),
            _ => {}
        }
        Ok([k_scales, if self.config.latent { k_scales } else { v_scales }])
    }

    /// The same in memory of the host.
    ///
    /// # Safety
    /// A scale for each KV head is readable, where they are not NULL.
    unsafe fn read_scales<'a>(
        &self,
        params: &Params,
        scales: [*const f32; 2],
    ) -> Result<Option<[&'a [f32]; 2]>, Error> {
        if scales[0].is_null() {
            return Ok(None);
        }
        let heads = self.config.kv_heads;
        // SAFETY: aligned, and the caller's contract.
        let read = scales.map(|scales| unsafe { std::slice::from_raw_parts(scales, heads) });
        for (name, scales) in ["k_scales", "v_scales"].into_iter().zip(read) {
            let wrong = |scale: &f32| !scale.is_finite() || *scale <= 0.0;
            if let Some(at) = scales.iter().position(wrong) {
                let value = scales[at];
                return Err(Error::argument(text!("args.{name}[{at}] {value} is not positive")));
            }
        }
        let of_v = if self.config.latent { "k_scales" } else { "v_scales" };
        for (at, (&k_scale, &v_scale)) in read[0].iter().zip(read[1]).enumerate() {
            check_factors(
                params,
                (k_scale, &format_args!("args.k_scales[{at}]")),
                (v_scale, &format_args!("args.{of_v}[{at}]")),
            )?;
        }
        Ok(Some(read))
    }

    /// How far back queries see, with a window of a call's own: at most as far as the group's
    /// pages reach.
    fn view(&self, asked: View) -> Result<View, Error> {
        let of_group = super::view_of(self.group.kind);
        let View { window, chunk, sinks } = of_group;
        // Not left out: the call would see other keys than it says.
        let is_of_group = (asked.chunk.is_none() || asked.chunk == chunk)
            && (asked.sinks == 0 || asked.sinks == sinks);
        if !is_of_group {
            return Err(Error::argument("args: chunks and sinks of a view are the group's own"));
        }
        if let (Some(asked), Some(most)) = (asked.window, window.or(chunk))
            && asked > most
        {
            let group = self.config.group;
            return Err(Error::argument(text!(
                "window {asked} is more than the {most} positions of group {group}"
            )));
        }
        Ok(View { window: asked.window.or(window), chunk, sinks })
    }

    /// The stream of a call, which only a GPU has.
    pub(super) fn stream(&self, stream: *mut c_void) -> Result<Stream, Error> {
        if matches!(self.backend, Backend::Cpu(_)) && !stream.is_null() {
            return Err(Error::argument("stream is for CUDA only"));
        }
        // SAFETY: the engine's stream, as it promised.
        Ok(unsafe { Stream::new(stream) })
    }

    /// Copies the first positions of pages to other pages, in every layer.
    ///
    /// # Safety
    /// Nobody writes the sources, or uses the targets, meanwhile.
    pub unsafe fn copy_pages(&self, copies: &[PageCopy]) -> Result<(), Error> {
        self.shared.check_whole()?;
        let state = self.shared.read();
        for (at, copy) in copies.iter().enumerate() {
            let check = state.check_page_copy(copy, self.group.pool);
            check.map_err(|error| error.within(&text!("copies[{at}]")))?;
        }
        drop(state);
        // On a GPU the legacy default stream: it waits for the engine's blocking streams, and they
        // for it.
        let stream = self.stream(std::ptr::null_mut())?;
        // SAFETY: the pages are in range; the rest is the caller's contract.
        unsafe { self.carry_out(copies, stream) }
    }

    /// # Safety
    /// As for `copy_pages`, and the pages are in range.
    pub(super) unsafe fn carry_out(
        &self,
        copies: &[PageCopy],
        stream: Stream,
    ) -> Result<(), Error> {
        let layers = self.memory.layers();
        match &self.backend {
            Backend::Cpu(cpu) => {
                // SAFETY: the caller's contract.
                unsafe { cpu.copy_pages(layers, &self.geometry, copies) };
                Ok(())
            }
            // SAFETY: the caller's contract.
            Backend::Cuda(cuda) => unsafe { cuda.copy_pages(layers, copies, stream) },
        }
    }

    /// Attention over the union of disjoint sets of keys, from the attention over each.
    ///
    /// # Safety
    /// The pointers lead to dense memory of the shapes that [`States`] says.
    pub unsafe fn merge_states(&self, states: &States<'_>) -> Result<(), Error> {
        let States { outs, lses, positions, out, lse, stream } = *states;
        let stream = self.stream(stream)?;
        let heads = self.config.query_heads;
        if outs.is_empty() || outs.len() != lses.len() {
            return Err(Error::argument("args.state_count: there is no state to merge"));
        }
        if positions == 0 {
            return Ok(());
        }
        let dense = |address, name: &dyn Display| {
            let shape = (heads, self.config.v_head_dim);
            self.tensor((address, Strides::default()), positions, shape, name)
        };
        let out = dense(out, &"args.out")?;
        check_f32(lse, &"args.lse")?;
        let mut checked = Vec::new();
        for (at, (&from, &weights)) in outs.iter().zip(lses).enumerate() {
            let from = dense(from.cast_mut(), &format_args!("args.outs[{at}]"))?;
            check_f32(weights, &format_args!("args.lses[{at}]"))?;
            if weights.is_null() {
                return Err(Error::argument(text!("args.lses[{at}] is NULL")));
            }
            checked.try_push(PartialState { out: read_only(from), lse: weights })?;
        }
        let cpu = match &self.backend {
            Backend::Cpu(cpu) => cpu,
            Backend::Cuda(cuda) => {
                let call = gpu::MergeStates { outs, lses, positions, out: out.address, lse };
                // SAFETY: the caller's contract, and the checks above.
                return unsafe { cuda.merge_states(&call, stream) };
            }
        };
        let call = MergeStates {
            states: &checked,
            out,
            lse: (!lse.is_null()).then_some(lse),
            positions,
            heads,
            head_dim: self.config.v_head_dim,
        };
        // SAFETY: the caller's contract, and the checks above.
        unsafe { cpu.merge_states(&call) };
        Ok(())
    }

    /// Checks a tensor of `[positions][heads][dim]` that the engine gave.
    fn tensor(
        &self,
        (address, strides): (*mut u8, Strides),
        positions: usize,
        (heads, dim): (usize, usize),
        name: &dyn Display,
    ) -> Result<Tensor<*mut u8>, Error> {
        let wrong = |what: &str| Err(Error::argument(text!("{name}{what}")));
        if address.is_null() {
            return wrong(" is NULL");
        }
        if !address.addr().is_multiple_of(self.config.dtype.bytes()) {
            return wrong(" is not aligned for its dtype");
        }
        let or = |stride: usize, dense: usize| if stride == 0 { dense } else { stride };
        let head_stride = or(strides.head, dim);
        let position_stride = or(strides.position, dim * heads);
        let dims = [(position_stride, positions), (head_stride, heads), (0, 1)];
        if span(dim, dims).is_none() {
            return wrong(": with these strides two elements share a place, or lie too far apart");
        }
        Ok(Tensor { address, dtype: self.config.dtype, position_stride, head_stride })
    }

    /// The bytes from the first element to the last of a tensor of checked strides.
    fn range(
        &self,
        tensor: &Tensor<*mut u8>,
        (heads, dim): (usize, usize),
        positions: usize,
    ) -> Range<usize> {
        let last = (positions - 1) * tensor.position_stride + (heads - 1) * tensor.head_stride;
        range(tensor.address.addr(), (last + dim) * self.config.dtype.bytes())
    }
}

fn range(start: usize, bytes: usize) -> Range<usize> {
    start..start.saturating_add(bytes)
}

/// Which of the outputs, the result and its logarithms, shares memory with another tensor, as far
/// as their ends tell.
fn overlap(
    mut inputs: impl Iterator<Item = Range<usize>>,
    [out, lse]: [Range<usize>; 2],
) -> Option<&'static str> {
    let meet = |left: &Range<usize>, right: &Range<usize>| {
        left.start < right.end && right.start < left.end
    };
    if meet(&lse, &out) {
        return Some("lse overlaps out");
    }
    inputs.find_map(|input| match meet(&out, &input) {
        true => Some("out overlaps an input"),
        false => meet(&lse, &input).then_some("lse overlaps an input"),
    })
}

fn read_only(tensor: Tensor<*mut u8>) -> Tensor<*const u8> {
    let Tensor { address, dtype, position_stride, head_stride } = tensor;
    Tensor { address: address.cast_const(), dtype, position_stride, head_stride }
}

/// Largest tensor in bytes that an address can span, for the widest element.
const ELEMENT_LIMIT: usize = isize::MAX as usize / size_of::<f32>();

/// Elements from the first to the last of a tensor whose innermost `dim` elements lie densely and
/// whose other dimensions are (stride, extent); None when two elements would share a place.
pub(super) fn span(dim: usize, mut dims: [(usize, usize); 3]) -> Option<usize> {
    dims.sort_unstable();
    let mut span = dim;
    for (stride, extent) in dims {
        if extent > 1 {
            if stride < span {
                return None;
            }
            span = stride.checked_mul(extent - 1)?.checked_add(span)?;
        }
    }
    (span <= ELEMENT_LIMIT).then_some(span)
}

/// A soft cap from here on, 2^64, changes no logit below 2^52 in f32: it is none, for the factors
/// that it takes may be no numbers.
const CAP_LIMIT: f32 = 18_446_744_073_709_551_616.0;

fn check_f32(pointer: *const f32, name: &dyn Display) -> Result<(), Error> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(Error::argument(text!("{name} is not aligned")))
}

fn check_params(params: &Params) -> Result<(), Error> {
    let positive = [
        (params.scale, "scale"),
        (params.k_scale, "k_scale"),
        (params.v_scale, "v_scale"),
        (params.soft_cap.unwrap_or(1.0), "soft_cap"),
    ];
    match positive.into_iter().find(|(value, _)| !value.is_finite() || *value <= 0.0) {
        None => Ok(()),
        Some((value, name)) => Err(Error::argument(text!("{name} {value} is not positive"))),
    }
}

/// The largest factor of logits or values, 2^119: what is computed multiplies it by up to 2^8, of
/// fp8, and by log2(e), which must be a number, for a score may be zero.
const FACTOR_LIMIT: f32 = f32::from_bits((127 + 119) << 23);

/// Refuses scales that are numbers while what is computed with them is none.
fn check_factors(
    params: &Params,
    (k_scale, k_name): (f32, &dyn Display),
    (v_scale, v_name): (f32, &dyn Display),
) -> Result<(), Error> {
    let (scale, whole) = (params.scale, params.scale * k_scale);
    let cap = params.soft_cap.unwrap_or(f32::INFINITY);
    let factors: [(f32, f32, &dyn Display); 4] = [
        (scale, scale, &"scale"),
        (whole, k_scale, k_name),
        (whole / cap, cap, &"soft_cap"),
        (v_scale, v_scale, v_name),
    ];
    match factors.into_iter().find(|(factor, ..)| *factor > FACTOR_LIMIT) {
        None => Ok(()),
        Some((_, value, name)) => {
            Err(Error::argument(text!("{name} {value:e}: a factor comes to more than 2^119")))
        }
    }
}
