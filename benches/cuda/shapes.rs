//! The shapes that are measured, and what each must compute and move at least.
use radixkv::attention::{Batch, Geometry};
use radixkv::gpu::Heads;

#[derive(Debug)]
pub struct Shape {
    pub id: &'static str,
    pub rows: usize,
    /// New positions of a row.
    pub queries: usize,
    /// Positions of a row, the new ones included.
    pub keys: usize,
    /// Leading positions that all rows share.
    pub shared: usize,
    pub query_heads: usize,
    pub kv_heads: usize,
    pub heads: Heads,
    pub bound: &'static str,
    /// Time of writing K and V instead of attending.
    pub is_write: bool,
}

const fn shape(
    id: &'static str,
    rows: usize,
    [queries, keys, shared]: [usize; 3],
    [query_heads, kv_heads, head_dim]: [usize; 3],
    bound: &'static str,
) -> Shape {
    let (is_write, heads) = (false, Heads { head_dim, v_head_dim: head_dim, latent: false });
    Shape { id, rows, queries, keys, shared, query_heads, kv_heads, heads, bound, is_write }
}

/// Multi-head latent attention: decoding absorbed, and a prompt with K and V of all heads.
const LATENT: Heads = Heads { head_dim: 576, v_head_dim: 512, latent: true };
const UNFOLDED: Heads = Heads { head_dim: 192, v_head_dim: 128, latent: false };

pub const SHAPES: &[Shape] = &[
    shape("P1", 1, [8192, 8192, 0], [32, 8, 128], "compute"),
    shape("P3", 16, [2048, 2048, 0], [32, 8, 128], "compute"),
    shape("P5", 4, [4096, 4096, 0], [64, 8, 64], "compute"),
    shape("P6", 4, [4096, 4096, 0], [16, 8, 256], "compute"),
    shape("A1", 1, [512, 32768, 0], [32, 8, 128], "compute"),
    shape("A3", 1, [128, 32768, 0], [32, 8, 128], "compute"),
    shape("A5", 16, [64, 8192, 0], [32, 8, 128], "compute"),
    shape("A6", 64, [16, 4096, 0], [32, 8, 128], "memory"),
    shape("A8", 1, [128, 65536, 0], [32, 32, 128], "memory"),
    shape("D1", 1, [1, 32768, 0], [32, 8, 128], "memory"),
    shape("D2", 64, [1, 4096, 0], [32, 8, 128], "memory"),
    shape("D3", 64, [1, 8192, 0], [64, 8, 128], "memory"),
    shape("C1", 64, [1, 8192 + 256, 8192], [32, 8, 128], "memory"),
    // More than 4 GiB of keys, and of values.
    shape("L1", 64, [1, 36864, 0], [32, 8, 128], "memory"),
    shape("H1", 4, [2048, 2048, 0], [16, 4, 512], "compute"),
    Shape { heads: LATENT, ..shape("M1", 64, [1, 4096, 0], [128, 1, 576], "compute") },
    Shape { heads: LATENT, ..shape("M2", 64, [1, 4096, 0], [16, 1, 576], "memory") },
    // With heads over two GPUs, and over four.
    Shape { heads: LATENT, ..shape("M4", 64, [1, 4096, 0], [64, 1, 576], "memory") },
    Shape { heads: LATENT, ..shape("M5", 64, [1, 4096, 0], [32, 1, 576], "memory") },
    // One long row.
    Shape { heads: LATENT, ..shape("M6", 1, [1, 65536, 0], [128, 1, 576], "compute") },
    Shape { heads: UNFOLDED, ..shape("M3", 4, [4096, 4096, 0], [16, 16, 192], "compute") },
    Shape { is_write: true, ..shape("W1", 4, [2048, 2048, 0], [32, 8, 128], "memory") },
];

/// Small, to try this program out: `cargo bench --bench cuda -- T1`.
pub const TRIAL: Shape = shape("T1", 2, [3, 40, 0], [4, 2, 64], "memory");

impl Shape {
    pub fn geometry(&self, page_size: usize) -> Geometry {
        let Self { query_heads, kv_heads, heads, .. } = *self;
        let Heads { head_dim, v_head_dim, .. } = heads;
        Geometry { query_heads, kv_heads, head_dim, v_head_dim, page_size }
    }

    /// Elements of a KV head that lie in memory.
    fn stored(&self) -> usize {
        let Heads { head_dim, v_head_dim, latent } = self.heads;
        head_dim + if latent { 0 } else { v_head_dim }
    }

    /// The rows over pages in no order; and how many pages there are.
    pub fn batch(&self, page_size: usize) -> (Batch, usize) {
        let per_row = self.keys.div_ceil(page_size);
        let shared = self.shared / page_size;
        let total = shared + self.rows * (per_row - shared) + 1;
        let mut ids: Vec<u32> = (1..total as u32).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut ids);
        let (stem, mut own) = ids.split_at(shared);
        let mut batch = Batch::new(page_size).expect("memory");
        for _ in 0..self.rows {
            let (mine, rest) = own.split_at(per_row - shared);
            own = rest;
            let pages: Vec<u32> = stem.iter().chain(mine).copied().collect();
            batch.push_row(self.keys - self.queries, self.queries, &pages, &[]).unwrap();
        }
        (batch, total)
    }

    /// Multiplications and additions: 2 for each element of K and of V of each pair that the mask
    /// shows.
    pub fn flops(&self, batch: &Batch) -> f64 {
        if self.is_write {
            return 0.0;
        }
        let pairs: usize =
            batch.rows().iter().map(|row| (row.start + 1..=row.key_count()).sum::<usize>()).sum();
        let elements = self.heads.head_dim + self.heads.v_head_dim;
        2.0 * pairs as f64 * self.query_heads as f64 * elements as f64
    }

    /// Bytes: every page's K and V once, queries and results once; for writes, K and V read and
    /// written.
    pub fn bytes(&self, batch: &Batch, kv_bytes: usize) -> f64 {
        let kv_row = (self.kv_heads * self.stored()) as f64;
        let queries = batch.query_count() as f64;
        if self.is_write {
            return queries * kv_row * (2 + kv_bytes) as f64;
        }
        let own = self.rows * (self.keys - self.shared) + self.shared;
        let both = (self.query_heads * (self.heads.head_dim + self.heads.v_head_dim)) as f64;
        own as f64 * kv_row * kv_bytes as f64 + queries * both * 2.0
    }
}
