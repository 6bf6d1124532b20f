//! The kernels that exist: names, sizes of their blocks, and which one a call takes.
use crate::attention::{Dtype, Geometry, Tile};
use crate::error::Error;

/// An instantiation of attn_mma, see `kernels/attn_mma.cu` and `kernels/tile.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    head_dim: usize,
    rows: usize,
    row_warps: usize,
    key_warps: usize,
    keys: usize,
    blocks: usize,
}

const fn shape(
    head_dim: usize,
    rows: usize,
    key_warps: usize,
    keys: usize,
    blocks: usize,
) -> Shape {
    Shape { head_dim, rows, row_warps: rows / 16, key_warps, keys, blocks }
}

/// By head dim, then by rows.
const SHAPES_16BIT: [Shape; 11] = [
    shape(64, 16, 4, 64, 4),
    shape(64, 64, 1, 64, 3),
    shape(64, 128, 1, 64, 1),
    shape(96, 16, 4, 64, 3),
    shape(96, 64, 1, 64, 2),
    shape(96, 128, 1, 64, 1),
    shape(128, 16, 4, 64, 3),
    shape(128, 64, 1, 64, 2),
    shape(128, 128, 1, 64, 1),
    shape(256, 16, 2, 32, 3),
    shape(256, 64, 1, 32, 2),
];
const SHAPES_FP8: [Shape; 8] = [
    shape(64, 16, 4, 64, 4),
    shape(64, 128, 1, 64, 1),
    shape(96, 16, 4, 64, 3),
    shape(96, 128, 1, 64, 1),
    shape(128, 16, 4, 64, 3),
    shape(128, 128, 1, 64, 1),
    shape(256, 16, 2, 32, 3),
    shape(256, 64, 1, 32, 2),
];

impl Shape {
    pub(super) fn threads(&self) -> usize {
        32 * self.row_warps * self.key_warps
    }

    /// Bytes of shared memory, as `kernels/tile.cuh` lays it out.
    pub(super) fn shared_bytes(&self, kv_bytes: usize) -> usize {
        let stage = 2 * self.keys * (self.head_dim * kv_bytes + 16);
        let query = self.rows * (self.head_dim * 2 + 16);
        let query_at = if self.head_dim <= 128 { stage } else { 2 * stage };
        let combine = self.key_warps * self.rows * (8 + self.head_dim * 4 + 16);
        (query_at + query).max(2 * stage).max(if self.key_warps == 1 { 0 } else { combine })
    }

    /// The kernel for these formats.
    pub(super) fn name(&self, dtype: Dtype, kv_dtype: Dtype, plain: bool) -> String {
        let (q, kv) = (dtype_name(dtype), kv_name(kv_dtype));
        let plain = if plain && self.has_plain(kv_dtype) { "_plain" } else { "" };
        format!("rkv_attend_{q}_{kv}_{}_rows{}{plain}", self.head_dim, self.rows)
    }

    /// Whether there is one for causal masks and nothing else.
    pub(super) fn has_plain(&self, kv_dtype: Dtype) -> bool {
        let largest = if self.head_dim == 256 { 64 } else { 128 };
        self.rows == largest && kv_dtype != Dtype::Fp8E4m3
    }

    pub(super) fn tile(&self) -> Tile {
        let cost = match self.rows {
            16 => 1.0,
            64 => 1.6,
            _ => 2.5,
        };
        Tile { rows: self.rows, blocks: self.blocks, cost }
    }
}

pub(super) fn shapes(head_dim: usize, kv_dtype: Dtype) -> impl Iterator<Item = &'static Shape> {
    let all: &[Shape] = if kv_dtype == Dtype::Fp8E4m3 { &SHAPES_FP8 } else { &SHAPES_16BIT };
    all.iter().filter(move |shape| shape.head_dim == head_dim)
}

pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
    if dtype == Dtype::F16 { "f16" } else { "bf16" }
}

pub(super) fn kv_name(kv_dtype: Dtype) -> &'static str {
    if kv_dtype == Dtype::Fp8E4m3 { "e4m3" } else { "16bit" }
}

/// Whether the kernels can do it; the error names what they cannot.
pub(super) fn check(geometry: &Geometry, dtype: Dtype, kv_dtype: Dtype) -> Result<(), Error> {
    let fail = |text: String| Err(Error::unsupported(text));
    let Geometry { query_heads, kv_heads, head_dim, page_size } = *geometry;
    if shapes(head_dim, Dtype::Bf16).next().is_none() {
        return fail(format!("head_dim {head_dim} is not 64, 96, 128 or 256"));
    }
    if kv_heads == 0 || query_heads == 0 || query_heads % kv_heads != 0 {
        return fail(format!(
            "query_head_count {query_heads} is not a multiple of kv_head_count {kv_heads}"
        ));
    }
    if kv_heads >= 1 << 16 {
        return fail(format!("kv_head_count {kv_heads} is not below 65536 on CUDA"));
    }
    if page_size == 0 || page_size > 256 {
        return fail(format!("page_size {page_size} is not in 1..=256"));
    }
    if !matches!(dtype, Dtype::F16 | Dtype::Bf16) {
        return fail("dtype is neither F16 nor BF16, which CUDA kernels take".into());
    }
    if kv_dtype != dtype && kv_dtype != Dtype::Fp8E4m3 {
        return fail("kv_dtype is neither dtype nor FP8_E4M3".into());
    }
    Ok(())
}
