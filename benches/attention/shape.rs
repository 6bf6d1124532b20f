//! A batch of equal rows over scrambled pages.
use radixkv::attention::{Batch, Dtype, Geometry, KvLayer, KvLayout, KvStrides, Params, Tensor};
use radixkv::cpu::{AppendPrefill, CpuBackend, HostMemory, Threads};

/// Positions of a page.
const PAGE_SIZE: usize = 16;

/// What is computed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    batch: usize,
    new: usize,
    keys: usize,
    geometry: Geometry,
    dtype: Dtype,
    kv_dtype: Dtype,
}

impl Shape {
    /// batch, new positions, keys, query heads, KV heads, head dimension, dtype, KV dtype
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<usize>().ok();
        let dtype = |at: usize| match *words.get(at)? {
            "f32" => Some(Dtype::F32),
            "f16" => Some(Dtype::F16),
            "bf16" => Some(Dtype::Bf16),
            "fp8" => Some(Dtype::Fp8E4m3),
            _ => None,
        };
        let geometry = Geometry {
            query_heads: number(3)?,
            kv_heads: number(4)?,
            head_dim: number(5)?,
            v_head_dim: number(5)?,
            page_size: PAGE_SIZE,
        };
        Some(Self {
            batch: number(0)?,
            new: number(1)?,
            keys: number(2)?,
            geometry,
            dtype: dtype(6)?,
            kv_dtype: dtype(7)?,
        })
    }

    /// Multiplications and additions, under the causal mask.
    pub fn flops(&self) -> f64 {
        let seen = self.new * (self.keys - self.new) + self.new * (self.new + 1) / 2;
        4.0 * (self.batch * seen * self.geometry.query_heads * self.geometry.head_dim) as f64
    }

    /// Bytes of K and V, each read once.
    pub fn bytes(&self) -> f64 {
        let Geometry { kv_heads, head_dim, .. } = self.geometry;
        2.0 * (self.batch * self.keys * kv_heads * head_dim * self.kv_dtype.bytes()) as f64
    }
}

/// Memory and a backend for a shape.
pub struct Bench {
    shape: Shape,
    backend: CpuBackend,
    batch: Batch,
    strides: KvStrides,
    k: HostMemory,
    v: HostMemory,
    q: Vec<u8>,
    new_k: Vec<u8>,
    out: Vec<u8>,
}

impl Bench {
    pub fn new(shape: Shape, threads: usize) -> Self {
        let geometry = shape.geometry;
        let strides =
            KvStrides::dense(KvLayout::Nhd, &geometry, geometry.head_dim).expect("it fits");
        let row_pages = shape.keys.div_ceil(PAGE_SIZE);
        let mut pages: Vec<u32> = (1..=(shape.batch * row_pages) as u32).collect();
        fastrand::seed(1);
        fastrand::shuffle(&mut pages);
        let mut batch = Batch::new(PAGE_SIZE).expect("memory");
        for row in pages.chunks_exact(row_pages) {
            batch.push_row(shape.keys - shape.new, shape.new, row, &[]).expect("a row");
        }
        let elements = strides.page * (pages.len() + 1);
        let queries = batch.query_count();
        let row = |heads: usize| queries * heads * geometry.head_dim;
        Self {
            backend: CpuBackend::new(Threads::Own(threads)).expect("threads"),
            k: memory(&random(elements, shape.kv_dtype)),
            v: memory(&random(elements, shape.kv_dtype)),
            q: random(row(geometry.query_heads), shape.dtype),
            new_k: random(row(geometry.kv_heads), shape.dtype),
            out: vec![0; row(geometry.query_heads) * shape.dtype.bytes()],
            shape,
            batch,
            strides,
        }
    }

    /// One layer's step.
    pub fn call(&mut self) {
        let Shape { geometry, dtype, kv_dtype, .. } = self.shape;
        let Geometry { query_heads, kv_heads, head_dim, .. } = geometry;
        let new_k = Tensor::dense(self.new_k.as_ptr(), dtype, kv_heads, head_dim);
        let call = AppendPrefill {
            head_scales: None,
            geometry,
            batch: &self.batch,
            params: Params::new(head_dim),
            sinks: None,
            q: Tensor::dense(self.q.as_ptr(), dtype, query_heads, head_dim),
            k: Some(new_k),
            v: Some(new_k),
            out: Tensor::dense(self.out.as_mut_ptr(), dtype, query_heads, head_dim),
            lse: None,
            layer: KvLayer {
                k: self.k.address(),
                v: self.v.address(),
                strides: self.strides,
                v_strides: self.strides,
                dtype: kv_dtype,
            },
            batch_invariant: false,
        };
        // SAFETY: everything was made for this shape.
        unsafe { self.backend.append_prefill(&call) }.expect("memory");
    }
}

/// The same bytes, in memory like a runner's own.
fn memory(bytes: &[u8]) -> HostMemory {
    let memory = HostMemory::new(bytes.len()).expect("memory");
    // SAFETY: both are as long, and the new one is nobody else's.
    unsafe { memory.address().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    memory
}

/// Numbers between -1 and 1, in their format.
fn random(count: usize, dtype: Dtype) -> Vec<u8> {
    let mut bytes = vec![0; count * dtype.bytes()];
    let mut random = fastrand::Rng::with_seed(2);
    for bytes in bytes.chunks_exact_mut(dtype.bytes()) {
        let number = random.f32() * 2.0 - 1.0;
        match dtype {
            Dtype::F32 => bytes.copy_from_slice(&number.to_ne_bytes()),
            Dtype::F16 => bytes.copy_from_slice(&half::f16::from_f32(number).to_ne_bytes()),
            Dtype::Bf16 => bytes.copy_from_slice(&half::bf16::from_f32(number).to_ne_bytes()),
            Dtype::Fp8E4m3 => bytes[0] = radixkv::attention::e4m3_from_f32(number),
        }
    }
    bytes
}
