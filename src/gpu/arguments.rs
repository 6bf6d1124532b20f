//! What kernels are handed: the structs of `kernels/arguments.cuh`, word for word. A test compares
//! their sizes with what the other compiler makes of them.

/// A device address; 0 for none.
pub(super) type Address = u64;

/// A struct that is passed to a kernel, or lies in an array that is uploaded.
///
/// # Safety
/// `repr(C)`, integers and floats only, no padding: every byte is initialised.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for i32 {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}

/// Shapes that a device has kernels in, at most.
pub(super) const TILES_MAX: usize = 6;

macro_rules! plain {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct $name { $(pub $field: $type,)* }
        // SAFETY: repr(C), and the constant below sees to it that there is no padding.
        unsafe impl Plain for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);
    )*};
}

plain! {
    /// One new position of the batch.
    struct Query {
        position: i32,
        page_begin: i32,
        region_begin: i32,
        region_end: i32,
    }
    /// What a new position of a draft sees of its row's new ones.
    struct TreeMask {
        begin: i32,
        count: i32,
        seen: u64,
    }
    /// Work of a block.
    struct Item {
        order_begin: i32,
        row_begin: i32,
        row_count: i32,
        page_begin: i32,
        key_begin: i32,
        key_end: i32,
        partial_begin: i32,
        in_order: i32,
    }
    /// How much of a step there is, wherever its launches end; and counters of attn_sm90, which are
    /// zeros between launches.
    struct StepCounts {
        queries: i32,
        merged: i32,
        items: [i32; TILES_MAX],
        taken: u32,
        ended: u32,
    }
    /// A number below 2^31 divided by `value` is its high product with `magic`, shifted.
    struct Divisor {
        value: u32,
        magic: u32,
        shift: u32,
    }
    /// Distances in KV memory, in elements.
    struct KvPlace {
        page_stride: i64,
        position_stride: i64,
        head_stride: i64,
        page_size: Divisor,
        reserved: u32,
    }
    struct AttentionArguments {
        q: Address,
        out: Address,
        lse: Address,
        k: Address,
        v: Address,
        sinks: Address,
        k_scales: Address,
        v_scales: Address,
        items: Address,
        item_count: Address,
        queries: Address,
        order: Address,
        pages: Address,
        tree_masks: Address,
        partial_out: Address,
        partial_lse: Address,
        q_position_stride: i64,
        q_head_stride: i64,
        out_position_stride: i64,
        out_head_stride: i64,
        kv: KvPlace,
        v_kv: KvPlace,
        query_heads: i32,
        group: Divisor,
        scale_log2: f32,
        soft_cap_in: f32,
        soft_cap_out: f32,
        v_scale: f32,
        window: i32,
        close_heads: u32,
    }
    struct MergeArguments {
        out: Address,
        lse: Address,
        sinks: Address,
        partial_out: Address,
        partial_lse: Address,
        queries: Address,
        indptr: Address,
        partials: Address,
        entry_count: Address,
        out_position_stride: i64,
        out_head_stride: i64,
        entry_max: i32,
        blocks: i32,
        query_heads: i32,
        head_dim: i32,
        heads: Divisor,
        reserved: u32,
    }
    struct KvWriteArguments {
        k: Address,
        v: Address,
        k_pages: Address,
        v_pages: Address,
        queries: Address,
        query_count: Address,
        pages: Address,
        k_scales: Address,
        v_scales: Address,
        k_position_stride: i64,
        k_head_stride: i64,
        v_position_stride: i64,
        v_head_stride: i64,
        kv: KvPlace,
        v_kv: KvPlace,
        query_max: i32,
        head_dim: i32,
        v_head_dim: i32,
        k_scale: f32,
        v_scale: f32,
        query_pieces: Divisor,
        head_pieces: Divisor,
        reserved: u32,
    }
    struct PageCopy {
        source: u32,
        target: u32,
        positions: u32,
        reserved: u32,
    }
    struct Layer {
        k: Address,
        v: Address,
    }
    struct PageCopyArguments {
        layers: Address,
        copies: Address,
        dense: Address,
        page_stride: i64,
        position_stride: i64,
        head_stride: i64,
        kv_heads: i32,
        row_bytes: i32,
        page_size: i32,
        layer_count: i32,
    }
    struct PositionMove {
        source_page: u32,
        source_position: u32,
        target_page: u32,
        target_position: u32,
    }
    struct PositionMoveArguments {
        layers: Address,
        moves: Address,
        page_stride: i64,
        position_stride: i64,
        head_stride: i64,
        kv_heads: i32,
        row_bytes: i32,
        move_count: i32,
        reserved: i32,
    }
    struct MirrorRun {
        target: i32,
        source: i32,
        count: i32,
        reserved: i32,
    }
    struct MirrorArguments {
        rows: Address,
        runs: Address,
        values: Address,
        reserved: i64,
    }
}

/// A CUtensorMap.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TensorMap {
    pub opaque: [u64; 16],
}

/// For attn_sm90.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HopperArguments {
    pub k: TensorMap,
    pub v: TensorMap,
    pub attention: AttentionArguments,
    /// In [`StepCounts`].
    pub taken: Address,
    pub box_positions: i32,
    pub position_first: u32,
    pub blocks: u32,
    pub reserved: [u32; 5],
}
// SAFETY: repr(C), and the constant below sees to it that there is no padding.
unsafe impl Plain for HopperArguments {}
const _: () = assert!(
    size_of::<HopperArguments>()
        == 2 * size_of::<TensorMap>() + size_of::<AttentionArguments>() + 10 * size_of::<u32>()
);

/// States that one launch merges.
pub(super) const MERGE_STATES_MAX: usize = 128;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct MergeStatesArguments {
    pub out: Address,
    pub lse: Address,
    pub position_count: i64,
    pub query_heads: i32,
    pub head_dim: i32,
    pub state_count: i32,
    pub blocks: i32,
    pub outs: [Address; MERGE_STATES_MAX],
    pub lses: [Address; MERGE_STATES_MAX],
}
// SAFETY: repr(C); 40 bytes and then two arrays of 8-byte numbers: no padding.
unsafe impl Plain for MergeStatesArguments {}

impl Divisor {
    /// For 1 ..= 2^31.
    pub(super) fn new(value: u32) -> Self {
        debug_assert!((1..=1 << 31).contains(&value), "2^(31 + shift) has 63 bits");
        let shift = value.next_power_of_two().trailing_zeros();
        let magic = (1u64 << (31 + shift)).div_ceil(u64::from(value)) as u32;
        Self { value, magic, shift }
    }
}

/// Sizes of the structs, by the names that the kernels give them.
pub(super) fn sizes() -> Vec<(&'static str, usize)> {
    vec![
        ("Query", size_of::<Query>()),
        ("TreeMask", size_of::<TreeMask>()),
        ("Item", size_of::<Item>()),
        ("StepCounts", size_of::<StepCounts>()),
        ("AttentionArguments", size_of::<AttentionArguments>()),
        ("MergeArguments", size_of::<MergeArguments>()),
        ("MergeStatesArguments", size_of::<MergeStatesArguments>()),
        ("KvWriteArguments", size_of::<KvWriteArguments>()),
        ("PageCopy", size_of::<PageCopy>()),
        ("Layer", size_of::<Layer>()),
        ("PageCopyArguments", size_of::<PageCopyArguments>()),
        ("PositionMove", size_of::<PositionMove>()),
        ("PositionMoveArguments", size_of::<PositionMoveArguments>()),
        ("MirrorRun", size_of::<MirrorRun>()),
        ("MirrorArguments", size_of::<MirrorArguments>()),
        ("HopperArguments", size_of::<HopperArguments>()),
    ]
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn division_by_multiplication_is_exact() {
        let divide = |n: u32, d: &Divisor| {
            ((u64::from(n << 1) * u64::from(d.magic)) >> 32) as u32 >> d.shift
        };
        let large = [(1 << 16) - 1, 1 << 16, 1_000_003, i32::MAX as u32 - 1, 1 << 30, 1 << 31];
        for value in (1..=256).chain(large) {
            let divisor = Divisor::new(value);
            let near = |n: u32| [n.saturating_sub(1), n, n + 1];
            let multiples = (0..31).map(|bit| (1u32 << bit) / value * value);
            let most = (i32::MAX as u32 - 1) / value * value;
            for n in multiples.chain([0, most, i32::MAX as u32 - 1]).flat_map(near) {
                assert_eq!(divide(n, &divisor), n / value, "{n} / {value}");
            }
        }
    }
}
