//! Writes K and V of new positions into their pages.
use super::call::AppendPrefill;
use super::element::WidenAs;
use super::kernel::padded;
use super::simd::{Isa, Simd, Vectorized, dispatch};
use super::threads::Team;
use crate::attention::{Dtype, Geometry, KvStrides, Tensor, e4m3_from_f32};
use std::ops::Range;

/// Numbers that are written by one task: less is not worth waking a thread.
const TASK_NUMBERS: usize = 1 << 15;

/// Numbers that are converted at a time: all that are written for fewer.
const CHUNK: usize = padded(1);

/// # Safety
/// That of [`super::CpuBackend::append_prefill`].
pub(super) unsafe fn write(isa: Isa, team: &Team, call: &AppendPrefill<'_>) {
    let Some(k) = call.k else { return };
    let Geometry { kv_heads, head_dim, v_head_dim, .. } = call.geometry;
    let count = call.batch.query_count();
    let positions = (TASK_NUMBERS / (kv_heads * head_dim.max(v_head_dim))).max(1);
    let work = Work { call, k, v: call.v };
    team.share(count.div_ceil(positions), &|_, take| {
        while let Some(task) = take() {
            let positions = task * positions..((task + 1) * positions).min(count);
            dispatch(isa, Positions { work: &work, positions });
        }
    });
}

struct Work<'a> {
    call: &'a AppendPrefill<'a>,
    k: Tensor<*const u8>,
    /// None where values are the beginnings of keys.
    v: Option<Tensor<*const u8>>,
}

// SAFETY: each position has its own place in the pages.
unsafe impl Sync for Work<'_> {}

struct Positions<'a> {
    work: &'a Work<'a>,
    positions: Range<usize>,
}

impl Vectorized for Positions<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Work { call, k, v } = *self.work;
        let (layer, geometry) = (&call.layer, &call.geometry);
        let to_k = Target {
            memory: layer.k,
            strides: layer.strides,
            head_dim: geometry.head_dim,
            scales: &|head| call.k_scale(head),
        };
        let to_v = Target {
            memory: layer.v,
            strides: layer.v_strides,
            head_dim: geometry.v_head_dim,
            scales: &|head| call.v_scale(head),
        };
        // SAFETY: the contract of write(), which alone makes a Work.
        unsafe {
            write_positions(simd, call, k, to_k, self.positions.clone());
            if let Some(v) = v {
                write_positions(simd, call, v, to_v, self.positions);
            }
        }
    }
}

/// Where keys go, or values.
struct Target<'a> {
    memory: *mut u8,
    strides: KvStrides,
    head_dim: usize,
    /// Of fp8, by head.
    scales: &'a dyn Fn(usize) -> f32,
}

/// # Safety
/// That of [`write`].
#[inline(always)]
unsafe fn write_positions<S: Simd>(
    simd: S,
    call: &AppendPrefill<'_>,
    from: Tensor<*const u8>,
    to: Target<'_>,
    positions: Range<usize>,
) {
    let Geometry { kv_heads, page_size, .. } = call.geometry;
    let Target { memory, strides, head_dim, scales } = to;
    let dtype = call.layer.dtype;
    for position in positions {
        // A query that is no position of its row has none.
        let Ok(place) = usize::try_from(call.batch.slot_mapping()[position]) else { continue };
        let (page, offset) = (place / page_size, place % page_size);
        for head in 0..kv_heads {
            let source = position * from.position_stride + head * from.head_stride;
            let target = page * strides.page + offset * strides.position + head * strides.head;
            // SAFETY: the caller's contract.
            unsafe {
                let source = from.address.add(source * from.dtype.bytes());
                let target = memory.add(target * dtype.bytes());
                if dtype == from.dtype {
                    target.copy_from_nonoverlapping(source, head_dim * dtype.bytes());
                } else {
                    debug_assert_eq!(dtype, Dtype::Fp8E4m3);
                    write_fp8(simd, from.dtype, source, target, scales(head), head_dim);
                }
            }
        }
    }
}

/// # Safety
/// `from` is readable and `to` writable for `count` elements.
#[inline(always)]
unsafe fn write_fp8<S: Simd>(
    simd: S,
    dtype: Dtype,
    from: *const u8,
    to: *mut u8,
    scale: f32,
    count: usize,
) {
    for at in (0..count).step_by(CHUNK) {
        let (mut numbers, mut bytes) = ([0f32; CHUNK], [0u8; CHUNK]);
        // SAFETY: the caller's contract.
        unsafe {
            let from = from.add(at * dtype.bytes());
            let count = CHUNK.min(count - at);
            WidenAs::new(dtype, from, numbers.as_mut_ptr(), count).run(simd);
            for (byte, number) in bytes.iter_mut().zip(numbers) {
                *byte = e4m3_from_f32(number / scale);
            }
            to.add(at).copy_from_nonoverlapping(bytes.as_ptr(), count);
        }
    }
}
