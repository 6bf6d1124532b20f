//! What a world of sequences is made of: shapes, formats, masks, and the device.
use radixkv::attention::{Dtype, Geometry, KvLayout, Params};
use radixkv::gpu::Heads;

/// What stays the same from step to step.
#[derive(Debug, Clone)]
pub struct Setup {
    pub geometry: Geometry,
    pub dtype: Dtype,
    pub kv_dtype: Dtype,
    pub layout: KvLayout,
    /// Elements between heads, and more between positions and pages.
    pub padding: usize,
    pub params: Params,
    pub sinks: bool,
    pub batch_invariant: bool,
    /// V of a position is the beginning of its K, and there is no memory for it.
    pub latent: bool,
    /// Each KV head has scales of its own, for fp8.
    pub head_scales: bool,
    /// Of those the one of the first head's keys is 0.
    pub zero_scale: bool,
    /// Size of queries: large ones make sharp distributions.
    pub q_size: f32,
    pub pages: usize,
    /// On Hopper, with attn_sm90.
    pub sm90: bool,
    /// Of a block at most; 0: what the device has.
    pub shared_bytes: i32,
    /// First number of the compute capability, where that is not Hopper's for `sm90`.
    pub capability: i32,
    /// Blocks of a multiprocessor; 0: as many as the device holds.
    pub blocks: i32,
}

impl Setup {
    pub fn new(head_dim: usize, page_size: usize) -> Self {
        let geometry =
            Geometry { query_heads: 4, kv_heads: 2, head_dim, v_head_dim: head_dim, page_size };
        Self {
            geometry,
            dtype: Dtype::Bf16,
            kv_dtype: Dtype::Bf16,
            layout: KvLayout::Nhd,
            padding: 0,
            params: Params::new(head_dim),
            sinks: false,
            batch_invariant: false,
            latent: false,
            head_scales: false,
            zero_scale: false,
            q_size: 1.0,
            pages: 2048 / page_size + 8,
            sm90: false,
            // For all shapes of the longest heads a large device.
            shared_bytes: if head_dim == 512 { 227 << 10 } else { 0 },
            capability: 8,
            blocks: 0,
        }
    }

    /// For heads of which there are kernels.
    pub fn of(heads: Heads, page_size: usize) -> Self {
        let Heads { head_dim, v_head_dim, latent } = heads;
        let mut setup = Self { latent, ..Self::new(head_dim, page_size) };
        setup.geometry.v_head_dim = v_head_dim;
        setup
    }

    /// With tiles of attn_sm90 for more than 64 packed rows, or 16 of latent values.
    pub fn sm90(mut self) -> Self {
        self.sm90 = true;
        self
    }

    pub fn heads(mut self, query_heads: usize, kv_heads: usize) -> Self {
        (self.geometry.query_heads, self.geometry.kv_heads) = (query_heads, kv_heads);
        self
    }

    pub fn dtypes(mut self, dtype: Dtype, kv_dtype: Dtype) -> Self {
        (self.dtype, self.kv_dtype) = (dtype, kv_dtype);
        if kv_dtype == Dtype::Fp8E4m3 {
            (self.params.k_scale, self.params.v_scale) =
                if self.latent { (0.03, 0.03) } else { (0.03, 0.5) };
        }
        self
    }
}
