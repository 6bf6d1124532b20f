//! What a test computes with: shapes, formats, masks, threads.
use fastrand::Rng;
use radixkv::attention::{Dtype, Geometry, KvLayout, Params, Region};
use radixkv::cpu::Isa;

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
    pub threads: usize,
    pub isa: Isa,
    pub batch_invariant: bool,
    /// Each KV head has scales of its own, for fp8.
    pub head_scales: bool,
    /// Size of queries: large ones make sharp distributions.
    pub q_size: f32,
    pub seed: u64,
    /// Positions that there are pages for.
    pub room: usize,
}

impl Default for Setup {
    fn default() -> Self {
        let geometry =
            Geometry { query_heads: 4, kv_heads: 2, head_dim: 64, v_head_dim: 64, page_size: 16 };
        Self {
            geometry,
            dtype: Dtype::F32,
            kv_dtype: Dtype::F32,
            layout: KvLayout::Nhd,
            padding: 0,
            params: Params::new(geometry.head_dim),
            sinks: false,
            threads: 1,
            isa: best_isa(),
            batch_invariant: false,
            head_scales: false,
            q_size: 1.0,
            seed: 7,
            room: 512,
        }
    }
}

pub fn best_isa() -> Isa {
    Isa::available().last().expect("there is always one")
}

/// Formats of q and out, and of KV, that go together.
pub const DTYPES: [(Dtype, Dtype); 6] = [
    (Dtype::F32, Dtype::F32),
    (Dtype::F16, Dtype::F16),
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::F32, Dtype::Fp8E4m3),
    (Dtype::F16, Dtype::Fp8E4m3),
    (Dtype::Bf16, Dtype::Fp8E4m3),
];

/// Query heads and KV heads.
pub const HEADS: [(usize, usize); 6] = [(1, 1), (3, 3), (4, 2), (6, 1), (8, 1), (10, 2)];

pub const HEAD_DIMS: [usize; 9] = [64, 80, 96, 112, 128, 192, 256, 512, 576];
pub const PAGE_SIZES: [usize; 5] = [1, 3, 16, 64, 256];

/// What a mask can be made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Masking {
    Causal,
    Window,
    SoftCap,
    Sinks,
    Regions,
    Everything,
}

pub const MASKINGS: [Masking; 6] = [
    Masking::Causal,
    Masking::Window,
    Masking::SoftCap,
    Masking::Sinks,
    Masking::Regions,
    Masking::Everything,
];

impl Setup {
    pub fn with_head_dim(mut self, head_dim: usize) -> Self {
        (self.geometry.head_dim, self.geometry.v_head_dim) = (head_dim, head_dim);
        self.params = Params::new(head_dim);
        self
    }

    pub fn with_dtypes(mut self, (dtype, kv_dtype): (Dtype, Dtype)) -> Self {
        (self.dtype, self.kv_dtype) = (dtype, kv_dtype);
        // Scales that are no powers of two.
        (self.params.k_scale, self.params.v_scale) = (0.0131, 0.0077);
        self
    }

    pub fn with_heads(mut self, (query_heads, kv_heads): (usize, usize)) -> Self {
        (self.geometry.query_heads, self.geometry.kv_heads) = (query_heads, kv_heads);
        self
    }

    pub fn with_masking(mut self, masking: Masking) -> Self {
        use Masking::*;
        if matches!(masking, Window | Everything) {
            self.params.view.window = Some(19);
        }
        if matches!(masking, SoftCap | Everything) {
            self.params.soft_cap = Some(1.5);
        }
        self.sinks = matches!(masking, Sinks | Everything);
        self
    }
}

/// Regions below `end`: some apart, some adjacent.
pub fn random_regions(random: &mut Rng, end: usize) -> Vec<Region> {
    let mut regions = Vec::new();
    let mut at = random.usize(0..20);
    while at < end {
        let region = Region { start: at, end: at + random.usize(1..40) };
        regions.push(region);
        at = region.end + if random.bool() { 0 } else { random.usize(0..30) };
    }
    regions
}

/// Anything that is supported.
pub fn random_setup(random: &mut Rng) -> Setup {
    fn pick<T: Copy>(random: &mut Rng, from: &[T]) -> T {
        from[random.usize(0..from.len())]
    }
    let mut setup = Setup::default()
        .with_head_dim(pick(random, &HEAD_DIMS))
        .with_dtypes(pick(random, &DTYPES))
        .with_heads(pick(random, &HEADS));
    setup.geometry.page_size = random.usize(1..40);
    setup.layout = pick(random, &[KvLayout::Nhd, KvLayout::Hnd]);
    setup.padding = pick(random, &[0, 0, 1, 16]);
    setup.params.view.window = random.bool().then(|| random.u32(1..200));
    if random.u8(..4) == 0 {
        setup.params.view.chunk = Some(random.u32(1..200));
    }
    if random.u8(..4) == 0 {
        setup.params.view.sinks = random.u32(1..150);
    }
    if random.bool() {
        setup.geometry.v_head_dim = pick(random, &HEAD_DIMS);
    }
    setup.params.soft_cap = random.bool().then(|| random.f32() * 20.0 + 0.5);
    if random.bool() {
        setup.params.scale = random.f32() - 0.3;
    }
    setup.sinks = random.bool();
    setup.head_scales = random.bool();
    setup.threads = random.usize(1..4);
    setup.q_size = pick(random, &[0.1, 1.0, 8.0]);
    setup.seed = random.u64(0..1 << 40);
    setup.room = 1400;
    setup
}
