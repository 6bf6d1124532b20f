//! Append prefill: write, then attend.
use super::call::AppendPrefill;
use super::element::{load, store};
use crate::attention::{Geometry, Row, Tensor};

/// # Safety
/// That of [`super::CpuBackend::append_prefill`].
pub(super) unsafe fn append_prefill(call: &AppendPrefill<'_>) {
    // SAFETY: the caller's contract; the new positions are written before they are read.
    unsafe {
        if let (Some(k), Some(v)) = (call.k, call.v) {
            write(call, k, call.layer.k, call.params.k_scale);
            write(call, v, call.layer.v, call.params.v_scale);
        }
        for row in call.batch.rows() {
            for query in 0..row.count {
                for head in 0..call.geometry.query_heads {
                    attend(call, row, query, head);
                }
            }
        }
    }
}

/// Writes the new positions of all rows into their pages.
///
/// # Safety
/// That of [`super::CpuBackend::append_prefill`].
unsafe fn write(call: &AppendPrefill<'_>, from: Tensor<*const u8>, to: *mut u8, scale: f32) {
    let Geometry { kv_heads, head_dim, page_size, .. } = call.geometry;
    let (strides, dtype) = (call.layer.strides, call.layer.dtype);
    let scale = if dtype == from.dtype { 1.0 } else { scale };
    for (position, &slot) in call.batch.slot_mapping().iter().enumerate() {
        let (page, offset) = (slot as usize / page_size, slot as usize % page_size);
        for head in 0..kv_heads {
            let source = position * from.position_stride + head * from.head_stride;
            let target = page * strides.page + offset * strides.position + head * strides.head;
            for at in 0..head_dim {
                // SAFETY: the caller's contract.
                unsafe {
                    let value = load(from.address, from.dtype, source + at);
                    store(to, dtype, target + at, value / scale);
                }
            }
        }
    }
}

/// The result of one query head of one query.
///
/// # Safety
/// That of [`super::CpuBackend::append_prefill`].
unsafe fn attend(call: &AppendPrefill<'_>, row: &Row, query: usize, head: usize) {
    let Geometry { query_heads, head_dim, page_size, .. } = call.geometry;
    let (strides, dtype, params) = (call.layer.strides, call.layer.dtype, call.params);
    let (k_scale, v_scale) =
        if dtype == call.q.dtype { (1.0, 1.0) } else { (params.k_scale, params.v_scale) };
    let kv_head = head / call.geometry.group();
    let pages = call.batch.pages_of(row);
    let element = |key: usize| {
        let page = pages[key / page_size] as usize;
        page * strides.page + key % page_size * strides.position + kv_head * strides.head
    };
    let keys = call.batch.mask_of(row, params.window).keys(row.start + query);
    let position = row.first_query + query;
    let q_start = position * call.q.position_stride + head * call.q.head_stride;
    let q: Vec<f32> = (0..head_dim)
        // SAFETY: the caller's contract.
        .map(|at| unsafe { load(call.q.address, call.q.dtype, q_start + at) })
        .collect();
    let mut logits: Vec<f32> = keys
        .clone()
        .map(|key| {
            let start = element(key);
            let mut dot = 0.0;
            for (at, q) in q.iter().enumerate() {
                // SAFETY: the key is one of the row's, so its page is in the layer's memory.
                dot += q * unsafe { load(call.layer.k, dtype, start + at) };
            }
            let logit = dot * params.scale * k_scale;
            params.soft_cap.map_or(logit, |cap| cap * (logit / cap).tanh())
        })
        .collect();
    let sink = call.sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[head]);
    let most = logits.iter().fold(sink, |most, &logit| most.max(logit));
    let mut sum = (sink - most).exp();
    let mut out = vec![0f32; head_dim];
    for (key, logit) in keys.zip(&mut logits) {
        let weight = (*logit - most).exp();
        sum += weight;
        let start = element(key);
        for (at, out) in out.iter_mut().enumerate() {
            // SAFETY: as above.
            *out += weight * unsafe { load(call.layer.v, dtype, start + at) };
        }
    }
    let out_start = position * call.out.position_stride + head * call.out.head_stride;
    for (at, out) in out.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { store(call.out.address, call.out.dtype, out_start + at, out / sum * v_scale) };
    }
    if let Some(lse) = call.lse {
        // SAFETY: the caller's contract.
        unsafe { lse.add(position * query_heads + head).write_unaligned(most + sum.ln()) };
    }
}
