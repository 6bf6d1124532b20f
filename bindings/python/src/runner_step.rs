//! What a runner does in a step.
use std::ptr::{null, null_mut};
use std::sync::PoisonError;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;
use crate::handle::{Raw, long};
use crate::plan::Plan;
use crate::plan_arrays::positions;
use crate::runner::{Runner, stream_of};
use crate::status::check;

/// A float32 for each query head of each position, on the runner's device: two-dimensional, or flat
/// in the same order. Not with heads first, as other libraries have them: it would be written in
/// the wrong places.
fn logs(runner: &Runner, object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Array> {
    let (array, heads) = (Array::floats(object, name, writable)?, runner.shape.query_heads);
    runner.shape.same_device(&array, name)?;
    match array.shape()[..] {
        [_] => Ok(array),
        [_, last] if last == i64::from(heads) => Ok(array),
        ref shape => {
            let message =
                format!("{name}: a shape of (positions, {heads}) is needed, not {shape:?}");
            Err(PyValueError::new_err(message))
        }
    }
}

/// A float32 for each head, on the runner's device: those of one layer, not of all of them.
fn of_heads(runner: &Runner, object: &Bound<'_, PyAny>, name: &str, heads: u32) -> PyResult<Array> {
    let array = Array::floats(object, name, false)?;
    runner.shape.same_device(&array, name)?;
    let shape = array.shape();
    if shape != [i64::from(heads)] {
        let message = format!("{name}: a shape of ({heads},) is needed, not {shape:?}");
        return Err(PyValueError::new_err(message));
    }
    Ok(array)
}

#[pymethods]
impl Runner {
    /// Writes K and V of a plan's new positions into their pages, and attends from each of them to
    /// the cached and the new ones. Decoding is the same call with one new position a row. The
    /// first call of a step carries out the copies that its sequences wait for, see
    /// `prepare_plan()`.
    ///
    /// q: (positions, query_heads, head_dim), in the plan's order.
    /// k, v: (positions, kv_heads, head_dim), of v v_head_dim; None together: they are in the pages
    ///     already.
    /// out: (positions, query_heads, v_head_dim); must not overlap with the others.
    /// lse: (positions, query_heads) float32, or flat in this order; receives the logarithms of the
    ///     softmax denominators; must not overlap with those either.
    /// sinks: (query_heads,) float32, a logit of each head for the denominator only.
    /// scale: factor of q * k; 0: 1 / sqrt(head_dim).
    /// soft_cap: a scaled logit x becomes soft_cap * tanh(x / soft_cap); 0: none.
    /// window: positions that a query sees, itself included, at most as many as in the group; 0: as
    ///     in the group, all of full attention.
    /// k_scale, v_scale: FP8 only: K is what is stored times this; 0: 1.
    /// k_scales, v_scales: FP8 only: (kv_heads,) float32, a scale for each KV head in their place.
    /// stream: CUDA only: the number of the stream; None: torch's current one.
    ///
    /// Lets other Python threads run. Raises InvalidState when the plan has no rows or they changed
    /// since, ValueError and TypeError naming the tensor.
    #[pyo3(signature = (plan, layer, q, k, v, out, lse=None, *, sinks=None, scale=0.0,
                        soft_cap=0.0, window=0, k_scale=0.0, v_scale=0.0, k_scales=None,
                        v_scales=None, stream=None))]
    #[allow(clippy::too_many_arguments)]
    fn append_prefill(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        layer: u32,
        q: &Bound<'_, PyAny>,
        k: Option<&Bound<'_, PyAny>>,
        v: Option<&Bound<'_, PyAny>>,
        out: &Bound<'_, PyAny>,
        lse: Option<&Bound<'_, PyAny>>,
        sinks: Option<&Bound<'_, PyAny>>,
        scale: f32,
        soft_cap: f32,
        window: u32,
        k_scale: f32,
        v_scale: f32,
        k_scales: Option<&Bound<'_, PyAny>>,
        v_scales: Option<&Bound<'_, PyAny>>,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let (runner, shape) = (self.handle.get(py)?, &self.shape);
        let (turn, plan) = (&plan.get().turn, plan.get().handle.get(py)?);
        let (q, q_position_stride, q_head_stride) = shape.tensor(q, "q", shape.q(), false)?;
        let (out, out_position_stride, out_head_stride) =
            shape.tensor(out, "out", shape.out(), true)?;
        let k = k.map(|it| shape.tensor(it, "k", shape.k(), false)).transpose()?;
        let v = v.map(|it| shape.tensor(it, "v", shape.v(), false)).transpose()?;
        let heads = shape.query_heads as usize;
        let lse = lse.map(|it| logs(self, it, "lse", true)).transpose()?;
        let sinks = sinks.map(|it| of_heads(self, it, "sinks", shape.query_heads)).transpose()?;
        let scales = |it: Option<&Bound<'_, PyAny>>, name: &str| {
            it.map(|it| of_heads(self, it, name, shape.kv_heads)).transpose()
        };
        let (k_scales, v_scales) = (scales(k_scales, "k_scales")?, scales(v_scales, "v_scales")?);
        let tensor = |it: &Option<(Array, u64, u64)>| match it {
            Some((array, position, head)) => (array.data(), *position, *head),
            None => (null_mut(), 0, 0),
        };
        let (k_data, k_position_stride, k_head_stride) = tensor(&k);
        let (v_data, v_position_stride, v_head_stride) = tensor(&v);
        let args = rkv_runner_append_prefill_args {
            layer,
            q: q.data(),
            k: k_data,
            v: v_data,
            out: out.data(),
            lse: lse.as_ref().map_or(null_mut(), Array::data),
            q_position_stride,
            q_head_stride,
            k_position_stride,
            k_head_stride,
            v_position_stride,
            v_head_stride,
            out_position_stride,
            out_head_stride,
            sinks: sinks.as_ref().map_or(null(), |it| it.data()),
            scale,
            soft_cap,
            window,
            k_scale,
            v_scale,
            stream: stream_of(py, shape, stream)?,
            k_scales: k_scales.as_ref().map_or(null(), |it| it.data()),
            v_scales: v_scales.as_ref().map_or(null(), |it| it.data()),
            ..rkv_runner_append_prefill_args::sized()
        };
        // Rows of each tensor, to be compared with the step's when nobody can change that.
        let rows = |array: &Array| array.shape()[0] as usize;
        let room = [
            ("q", rows(&q)),
            ("out", rows(&out)),
            ("k", k.as_ref().map_or(usize::MAX, |it| rows(&it.0))),
            ("v", v.as_ref().map_or(usize::MAX, |it| rows(&it.0))),
            ("lse", lse.as_ref().map_or(usize::MAX, |it| it.count / heads.max(1))),
        ];
        let call = Raw(&args);
        let done = long(py, true, || {
            let _turn = turn.read().unwrap_or_else(PoisonError::into_inner);
            let needed = positions(&plan);
            if let Some((name, there)) = room.iter().find(|entry| entry.1 < needed) {
                return Err((*name, needed, *there));
            }
            // SAFETY: live handles; the tensors are kept, and have the rows of this step.
            Ok(unsafe { rkv_runner_append_prefill(runner.raw(), plan.raw(), call.get()) })
        });
        match done {
            Ok(status) => check(py, status),
            Err((name, needed, there)) => {
                let message = format!("{name}: the plan has {needed} positions, {there} are there");
                Err(PyValueError::new_err(message))
            }
        }
    }

    /// Does now what the first `append_prefill()` of a step does otherwise: carries out the copies
    /// that its sequences wait for in the runner's group, and confirms those of all groups, unless
    /// they are to be kept open: so for all runners of a plan but the last one, and with states,
    /// whose copies the engine carries out and then confirms. Raises InvalidState where it would
    /// confirm copies of another group that no runner carried out.
    #[pyo3(signature = (plan, *, keep_copies_open=false, stream=None))]
    fn prepare_plan(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        keep_copies_open: bool,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let runner = self.handle.get(py)?;
        let (turn, plan) = (&plan.get().turn, plan.get().handle.get(py)?);
        let flags = if keep_copies_open { RKV_PREPARE_KEEP_COPIES_OPEN } else { 0 };
        let on = Raw(stream_of(py, &self.shape, stream)?);
        let status = long(py, true, || {
            let _turn = turn.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: live handles.
            unsafe { rkv_runner_prepare_plan(runner.raw(), plan.raw(), flags, on.get()) }
        });
        check(py, status)
    }

    /// Moves K and V of those new positions that hold to the first new positions of their rows, in
    /// every layer of the runner: for drafts with tree masks, once it is known which branch holds.
    /// Then `Sequence.truncate()` to the last position before the branches, and `append()` of the
    /// tokens of the branch.
    ///
    /// branches: a list of (row, positions): the row's number in the plan, in its order, and an
    ///     array of 32-bit integers, ascending, which of its new positions hold, the first being 0.
    #[pyo3(signature = (plan, branches, *, stream=None))]
    fn keep_branches(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        branches: Vec<(u32, Bound<'_, PyAny>)>,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let runner = self.handle.get(py)?;
        let (turn, plan) = (&plan.get().turn, plan.get().handle.get(py)?);
        let mut kept = Vec::new();
        for (at, (_, positions)) in branches.iter().enumerate() {
            kept.push(Array::integers(positions, &format!("branches[{at}]"), 4, false)?);
        }
        let list: Vec<_> = branches
            .iter()
            .zip(&kept)
            .map(|((row, _), positions)| rkv_kept_branch {
                row: *row,
                position_count: positions.count as u32,
                positions: positions.data(),
            })
            .collect();
        let (on, from) = (Raw(stream_of(py, &self.shape, stream)?), Raw(list.as_ptr()));
        let (count, size) = (list.len(), size_of::<rkv_kept_branch>());
        let status = long(py, true, || {
            let _turn = turn.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: live handles, `count` branches whose arrays are kept.
            unsafe {
                let (runner, plan) = (runner.raw(), plan.raw());
                rkv_runner_keep_branches(runner, plan, from.get(), count, size, on.get())
            }
        });
        check(py, status)
    }

    /// Makes room on the device for every step that was given to `Plan.reserve()`, so that calls
    /// may be captured into a graph. Raises InvalidState without `Plan.reserve()`.
    fn reserve_plan(&self, py: Python<'_>, plan: &Bound<'_, Plan>) -> PyResult<()> {
        let runner = self.handle.get(py)?;
        let (turn, plan) = (&plan.get().turn, plan.get().handle.get(py)?);
        let status = long(py, true, || {
            let _turn = turn.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: live handles.
            unsafe { rkv_runner_reserve_plan(runner.raw(), plan.raw()) }
        });
        check(py, status)
    }

    /// Attention over the union of disjoint sets of keys, from the attention over each of them.
    ///
    /// outs: a list of results, (positions, query_heads, v_head_dim) each, dense.
    /// lses: a list of as many (positions, query_heads) float32, or flat in this order.
    /// out, lse: receive the merged ones; may be among the others.
    #[pyo3(signature = (outs, lses, out, lse=None, *, stream=None))]
    fn merge_states(
        &self,
        py: Python<'_>,
        outs: Vec<Bound<'_, PyAny>>,
        lses: Vec<Bound<'_, PyAny>>,
        out: &Bound<'_, PyAny>,
        lse: Option<&Bound<'_, PyAny>>,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let (runner, shape) = (self.handle.get(py)?, &self.shape);
        if outs.len() != lses.len() {
            return Err(PyValueError::new_err("lses: one for each of outs is needed"));
        }
        let heads = shape.query_heads as usize;
        let dense = |object: &Bound<'_, PyAny>, name: &str, writable| {
            let (array, ..) = shape.tensor(object, name, shape.out(), writable)?;
            if array.is_dense {
                Ok(array)
            } else {
                Err(PyValueError::new_err(format!("{name}: must be C-contiguous")))
            }
        };
        let out = dense(out, "out", true)?;
        let count = out.shape()[0] as usize;
        let entries = count * heads;
        let lse =
            lse.map(|it| logs(self, it, "lse", true)?.at_least("lse", entries)).transpose()?;
        let (mut states, mut entries_of) = (Vec::new(), Vec::new());
        for (at, (state, lse)) in outs.iter().zip(&lses).enumerate() {
            let name = format!("outs[{at}]");
            let array = dense(state, &name, false)?;
            states.push(array.exactly(&name, out.count)?);
            let name = format!("lses[{at}]");
            entries_of.push(logs(self, lse, &name, false)?.at_least(&name, entries)?);
        }
        let state_data: Vec<_> =
            states.iter().map(|it| it.data::<std::ffi::c_void>() as *const _).collect();
        let log_data: Vec<_> = entries_of.iter().map(|it| it.data::<f32>() as *const _).collect();
        let args = rkv_runner_merge_states_args {
            state_count: states.len() as u32,
            position_count: count as u64,
            outs: state_data.as_ptr(),
            lses: log_data.as_ptr(),
            out: out.data(),
            lse: lse.as_ref().map_or(null_mut(), Array::data),
            stream: stream_of(py, shape, stream)?,
            ..rkv_runner_merge_states_args::sized()
        };
        let call = Raw(&args);
        let status = long(py, true, || {
            // SAFETY: a live handle; the tensors are kept and have these sizes.
            unsafe { rkv_runner_merge_states(runner.raw(), call.get()) }
        });
        check(py, status)
    }
}
