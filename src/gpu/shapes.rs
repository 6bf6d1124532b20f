//! The kernels that exist: names, sizes of their blocks, and which one a call takes.
use crate::attention::{Dtype, Geometry, Tile};
use crate::error::Error;

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// attn_mma, on every GPU.
    Mma,
    /// attn_sm90, on Hopper.
    Hopper,
}

/// How long heads are, and where values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Elements of a head of q and k.
    pub head_dim: usize,
    /// Of v and of the result.
    pub v_head_dim: usize,
    /// Values are the beginnings of keys.
    pub latent: bool,
}

impl Heads {
    const fn alike(head_dim: usize) -> Self {
        Self { head_dim, v_head_dim: head_dim, latent: false }
    }

    /// Whether values lie as keys do, in memory of their own.
    pub fn are_alike(&self) -> bool {
        !self.latent && self.head_dim == self.v_head_dim
    }

    /// As names of kernels have it.
    fn name(&self) -> String {
        let Self { head_dim, v_head_dim, .. } = self;
        match head_dim == v_head_dim {
            true => head_dim.to_string(),
            false => format!("{head_dim}_{v_head_dim}"),
        }
    }
}

/// Multi-head latent attention, absorbed.
const LATENT: Heads = Heads { head_dim: 576, v_head_dim: 512, latent: true };
/// The same with keys and values made of the latent ones, as prompts are computed.
const UNFOLDED: Heads = Heads { head_dim: 192, v_head_dim: 128, latent: false };

/// An instantiation of attn_mma, see `kernels/attn_mma.cu` and `kernels/tile.cuh`, or of attn_sm90,
/// see `kernels/attn_sm90.cu` and `kernels/tile_sm90.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    family: Family,
    heads: Heads,
    rows: usize,
    row_warps: usize,
    key_warps: usize,
    value_warps: usize,
    keys: usize,
}

const fn shape(head_dim: usize, rows: usize, key_warps: usize, keys: usize) -> Shape {
    Shape {
        family: Family::Mma,
        heads: Heads::alike(head_dim),
        rows,
        row_warps: rows / 16,
        key_warps,
        value_warps: 1,
        keys,
    }
}

/// The same for other heads than such of one length.
const fn of(heads: Heads, shape: Shape) -> Shape {
    Shape { heads, ..shape }
}

/// Two warps share the values of heads that are too long for one.
const fn divided(heads: Heads, rows: usize, keys: usize) -> Shape {
    Shape { value_warps: 2, ..of(heads, shape(heads.head_dim, rows, 1, keys)) }
}

const fn hopper(shape: Shape) -> Shape {
    Shape { family: Family::Hopper, ..shape }
}

/// Rows of the tiles for decoding.
const FEW_ROWS: usize = 16;

/// Tiles of so many rows and fewer attn_mma has also where there is attn_sm90, for steps with tree
/// masks if for no others.
pub(super) const ROWS_BESIDE_HOPPER: usize = 64;

/// Heads for which there are kernels.
pub fn heads() -> [Heads; 10] {
    [
        Heads::alike(64),
        Heads::alike(80),
        Heads::alike(96),
        Heads::alike(112),
        Heads::alike(128),
        Heads::alike(192),
        UNFOLDED,
        Heads::alike(256),
        Heads::alike(512),
        LATENT,
    ]
}

const HEAD_DIM_NAMES: &str = "64, 80, 96, 112, 128, 192, 256 or 512, or 192 with v_head_dim 128, \
                              or 576 with V of 512 in K";

/// For 16-bit KV and for fp8, by heads, then by rows.
const SHAPES: [Shape; 25] = [
    shape(64, 16, 4, 64),
    shape(64, 64, 1, 64),
    shape(64, 128, 1, 64),
    shape(80, 16, 4, 64),
    shape(80, 64, 1, 64),
    shape(80, 128, 1, 64),
    shape(96, 16, 4, 64),
    shape(96, 64, 1, 64),
    shape(96, 128, 1, 64),
    shape(112, 16, 4, 64),
    shape(112, 64, 1, 64),
    shape(112, 128, 1, 64),
    shape(128, 16, 4, 64),
    shape(128, 64, 1, 64),
    shape(128, 128, 1, 64),
    shape(192, 16, 2, 32),
    shape(192, 64, 1, 32),
    shape(256, 16, 2, 32),
    shape(256, 64, 1, 32),
    of(UNFOLDED, shape(192, 16, 2, 32)),
    of(UNFOLDED, shape(192, 64, 1, 32)),
    divided(Heads::alike(512), 16, 16),
    // Where a block has 208 KB.
    divided(Heads::alike(512), 64, 32),
    divided(LATENT, 16, 32),
    divided(LATENT, 64, 32),
];

/// For 16-bit KV.
const SHAPES_HOPPER: [Shape; 5] = [
    hopper(shape(64, 192, 1, 112)),
    hopper(shape(128, 128, 1, 128)),
    hopper(of(UNFOLDED, shape(192, 128, 1, 128))),
    hopper(shape(256, 128, 1, 80)),
    hopper(divided(LATENT, 64, 64)),
];

/// For fp8, where heads of K and V are alike.
const SHAPES_HOPPER_FP8: [Shape; 3] = [
    hopper(shape(64, 192, 1, 112)),
    hopper(shape(128, 128, 1, 128)),
    hopper(shape(256, 128, 1, 64)),
];

impl Shape {
    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn heads(&self) -> Heads {
        self.heads
    }

    pub(super) fn threads(&self) -> usize {
        // Hopper's has four warps more, which load.
        let loading = if self.family == Family::Hopper { 128 } else { 0 };
        32 * self.row_warps * self.key_warps * self.value_warps + loading
    }

    /// Bytes of shared memory, as `kernels/tile.cuh` and `kernels/tile_sm90.cuh` lay it out.
    pub(super) fn shared_bytes(&self, kv_bytes: usize) -> usize {
        let Heads { head_dim, v_head_dim, latent } = self.heads;
        if self.family == Family::Hopper {
            let values = if latent { 0 } else { v_head_dim };
            let tiles = self.rows * head_dim + 2 * self.keys * (head_dim + values);
            // What a group hands over to the other: weights, and factors of rows.
            let handed = if latent { self.rows * (self.keys * 2 + 4) } else { 0 };
            // Barriers, items and what rows see of them, room to begin at a multiple of 1024.
            let (barriers, items) = (8 * 8 + 32, 4 * 8 + 2 * 48);
            let seen = (self.row_warps + self.rows) * 8;
            return tiles * 2 + handed + barriers + items + seen + 1024;
        }
        let in_registers = head_dim <= 128;
        // An odd number of pieces of 16 bytes.
        let row = |dim: usize, bytes: usize| 16 * ((dim * bytes / 16) | 1);
        let values = |bytes: usize| if latent { 0 } else { bytes };
        let rows = |bytes| row(head_dim, bytes) + values(row(v_head_dim, bytes));
        let query = self.rows * row(head_dim, 2);
        // fp8 that row warps share is widened into a tile of its own.
        let (stage, wide) = match (kv_bytes, self.key_warps) {
            (1, 1) => (self.keys * (head_dim + values(v_head_dim)), self.keys * rows(2)),
            _ => (self.keys * rows(kv_bytes), 0),
        };
        let query_at = if in_registers { stage } else { 2 * stage };
        let wide_at = if in_registers { 2 * stage } else { query_at + query };
        let tiles_end = if wide > 0 { wide_at + wide } else { 2 * stage };
        let logits = if self.value_warps == 1 { 0 } else { self.rows * self.keys * 4 };
        let pipeline = (query_at + query).max(tiles_end) + logits;
        let combine = self.key_warps * self.rows * (8 + v_head_dim * 4 + 16);
        pipeline.max(if self.key_warps == 1 { 0 } else { combine })
    }

    /// The kernel for these formats.
    pub(super) fn name(&self, dtype: Dtype, kv_dtype: Dtype, plain: bool) -> String {
        let (q, kv, heads) = (dtype_name(dtype), kv_name(kv_dtype), self.heads.name());
        if self.family == Family::Hopper {
            let widened = if kv_dtype == Dtype::Fp8E4m3 { "e4m3_" } else { "" };
            return format!("rkv_attend_sm90_{q}_{widened}{heads}");
        }
        let plain = if plain && self.has_plain(kv_dtype) { "_plain" } else { "" };
        format!("rkv_attend_{q}_{kv}_{heads}_rows{}{plain}", self.rows)
    }

    /// Whether there is one for causal masks and nothing else.
    pub(super) fn has_plain(&self, kv_dtype: Dtype) -> bool {
        let largest = if self.heads.head_dim > 128 { 64 } else { 128 };
        self.rows == largest && kv_dtype != Dtype::Fp8E4m3 && self.family == Family::Mma
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// For how many KV heads the blocks of an item come one after another, in powers of two: for
    /// all where rows are few (`kCloseHeads` in `kernels/tile.cuh`). Where many rows read the same
    /// keys, those of one head are to stay in the second cache: an H100 takes 1.4 times as long
    /// for P3 otherwise.
    pub(super) fn close_heads(&self, kv_heads: usize) -> u32 {
        if self.rows == FEW_ROWS && !self.heads.latent { kv_heads.trailing_zeros() } else { 0 }
    }

    /// Positions of a box of attn_sm90 at most: a tile of keys is whole ones.
    pub(super) fn box_most(&self) -> usize {
        if self.keys.is_multiple_of(64) { 64 } else { 16 }
    }

    /// Where a multiprocessor holds so many blocks at a time.
    pub(super) fn tile(&self, blocks: usize) -> Tile {
        // Estimates. An H100 takes for 64 keys in bf16 at head dim 128, a multiprocessor: attn_mma
        // with 16 rows 1.6 us (D2) and with 64 as much (A6), both as memory gives them; with 128
        // rows 2.3 us, attn_sm90 1.0 us (P1). What is shared comes from the second cache, of which
        // nothing was measured by itself. Of latent vectors attn_mma with 16 rows and attn_sm90
        // with 64 take the same (M2, M5).
        let cost = match (self.family, self.rows) {
            (Family::Hopper, 64) => 1.0,
            (Family::Hopper, 128) => 1.4,
            (Family::Hopper, _) => 1.9,
            (Family::Mma, FEW_ROWS) => 1.0,
            (Family::Mma, 64) => 1.6,
            (Family::Mma, _) => 2.5,
        };
        Tile { rows: self.rows, blocks, cost }
    }
}

pub(super) fn shapes(heads: Heads) -> impl Iterator<Item = &'static Shape> {
    SHAPES.iter().filter(move |shape| shape.heads == heads)
}

/// Heads for which there is attn_sm90: for tests, which build it for them.
pub fn heads_of_sm90() -> impl Iterator<Item = Heads> {
    SHAPES_HOPPER.iter().map(|shape| shape.heads)
}

/// The shape of attn_sm90, if it exists.
pub(super) fn hopper_shape(heads: Heads, kv_dtype: Dtype) -> Option<&'static Shape> {
    let shapes = match kv_dtype {
        Dtype::Fp8E4m3 => &SHAPES_HOPPER_FP8[..],
        _ => &SHAPES_HOPPER,
    };
    shapes.iter().find(|shape| shape.heads == heads)
}

pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
    if dtype == Dtype::F16 { "f16" } else { "bf16" }
}

pub(super) fn kv_name(kv_dtype: Dtype) -> &'static str {
    if kv_dtype == Dtype::Fp8E4m3 { "e4m3" } else { "16bit" }
}

/// Whether the kernels can do it; the error names what they cannot.
pub(super) fn check(
    geometry: &Geometry,
    latent: bool,
    dtype: Dtype,
    kv_dtype: Dtype,
) -> Result<(), Error> {
    let fail = |text: String| Err(Error::unsupported(text));
    let Geometry { query_heads, kv_heads, head_dim, v_head_dim, page_size } = *geometry;
    if shapes(Heads { head_dim, v_head_dim, latent }).next().is_none() {
        let values = match (latent, v_head_dim == head_dim) {
            (true, _) => format!(" with V of {v_head_dim} in K"),
            (false, true) => String::new(),
            (false, false) => format!(" with v_head_dim {v_head_dim}"),
        };
        return fail(format!(
            "head_dim {head_dim}{values} is none of what CUDA kernels take: {HEAD_DIM_NAMES}"
        ));
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
