//! Sequences whose KV grows step by step in poisoned pages.
use super::memory::{Padded, poison};
use super::numbers::{encode, normal, round};
use super::setup::Setup;
use fastrand::Rng;
use radixkv::attention::{Batch, Dtype, Geometry, KvLayer, KvStrides, Region};
use radixkv::cpu::{AppendPrefill, CpuBackend, Threads};
use std::ops::Range;

/// New positions of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    pub sequence: usize,
    pub count: usize,
    /// Its queries are no positions of the sequence, and see all of it.
    pub is_context: bool,
}

impl Chunk {
    pub fn new(sequence: usize, count: usize) -> Self {
        Self { sequence, count, is_context: false }
    }

    pub fn over_context(sequence: usize, count: usize) -> Self {
        Self { is_context: true, ..Self::new(sequence, count) }
    }
}

/// A sequence. Its numbers come from the seed, so that those of a position are always the same.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    pub positions: usize,
    pub pages: Vec<u32>,
    pub regions: Vec<Region>,
    /// Tree masks of its next new positions, if they have some.
    pub tree: Vec<u64>,
}

/// KV memory and the sequences in it.
pub struct World {
    pub setup: Setup,
    pub backend: CpuBackend,
    pub sequences: Vec<Sequence>,
    pub strides: KvStrides,
    pub v_strides: KvStrides,
    pub k: Vec<u8>,
    pub v: Vec<u8>,
    free: Vec<u32>,
}

/// What numbers are for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Q = 1,
    K,
    V,
}

impl World {
    /// `count` empty sequences on the library's own threads.
    pub fn new(setup: Setup, count: usize) -> Self {
        let threads = Threads::Own(setup.threads);
        Self::on(threads, setup, count)
    }

    pub fn on(threads: Threads, setup: Setup, count: usize) -> Self {
        let geometry = setup.geometry;
        CpuBackend::supports(&geometry, setup.dtype, setup.kv_dtype).unwrap();
        let backend = CpuBackend::with_isa(threads, setup.isa).unwrap();
        let page_count = setup.room / geometry.page_size + count + 1;
        let mut free: Vec<u32> = (1..page_count as u32).collect();
        Rng::with_seed(setup.seed ^ 0x5eed).shuffle(&mut free);
        let [strides, v_strides] = [geometry.head_dim, geometry.v_head_dim].map(|head_dim| {
            let head_dim = head_dim + setup.padding;
            let dense = KvStrides::dense(setup.layout, &geometry, head_dim).unwrap();
            KvStrides { page: dense.page + 5 * setup.padding, ..dense }
        });
        let memory = |of: &KvStrides| poison(page_count * of.page * setup.kv_dtype.bytes());
        let (k, v) = (memory(&strides), memory(&v_strides));
        let sequences = vec![Sequence::default(); count];
        Self { backend, sequences, strides, v_strides, k, v, free, setup }
    }

    /// The numbers of a position, [head][element], as the caller passes them.
    pub fn numbers(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f32> {
        let Geometry { query_heads, kv_heads, .. } = self.setup.geometry;
        let mut random = Rng::with_seed(
            self.setup.seed + ((sequence as u64) << 32) + position as u64 * 8 + kind as u64,
        );
        let (heads, size) = match kind {
            Kind::Q => (query_heads, self.setup.q_size),
            Kind::K | Kind::V => (kv_heads, 1.0),
        };
        let mut number = || round(normal(&mut random) * size, self.setup.dtype);
        (0..heads * self.head_dim(kind)).map(|_| number()).collect()
    }

    /// Elements of a head.
    pub fn head_dim(&self, kind: Kind) -> usize {
        let Geometry { head_dim, v_head_dim, .. } = self.setup.geometry;
        if kind == Kind::V { v_head_dim } else { head_dim }
    }

    pub fn sinks(&self) -> Option<Vec<f32>> {
        let sink = |head| head as f32 * 0.75 - 1.0;
        self.setup.sinks.then(|| (0..self.setup.geometry.query_heads).map(sink).collect())
    }

    /// Of a KV head.
    pub fn scale(&self, kind: Kind, head: usize) -> f32 {
        let by_head = if self.setup.head_scales { 1.0 + 0.3 * head as f32 } else { 1.0 };
        match kind {
            _ if self.setup.kv_dtype != Dtype::Fp8E4m3 => 1.0,
            Kind::K => self.setup.params.k_scale * by_head,
            Kind::V => self.setup.params.v_scale / by_head,
            Kind::Q => 1.0,
        }
    }

    /// The bytes of a head at a position of a sequence, in k or v.
    pub fn place(&self, kind: Kind, sequence: usize, position: usize, head: usize) -> Range<usize> {
        let strides = if kind == Kind::V { self.v_strides } else { self.strides };
        let KvStrides { page: by_page, position: by_position, head: by_head } = strides;
        let size = self.setup.geometry.page_size;
        let page = self.sequences[sequence].pages[position / size] as usize;
        let at = page * by_page + position % size * by_position + head * by_head;
        let bytes = self.setup.kv_dtype.bytes();
        at * bytes..(at + self.head_dim(kind)) * bytes
    }

    /// Writes the KV of a sequence's next positions without the backend's help.
    pub fn fill(&mut self, sequence: usize, count: usize) {
        self.grow(sequence, count);
        let (start, dtype) = (self.sequences[sequence].positions, self.setup.kv_dtype);
        for position in start..start + count {
            for kind in [Kind::K, Kind::V] {
                let numbers = self.numbers(sequence, position, kind);
                let heads = numbers.chunks_exact(self.head_dim(kind));
                for (head, numbers) in heads.enumerate() {
                    let scale = self.scale(kind, head);
                    let mut bytes = Vec::new();
                    numbers.iter().for_each(|number| encode(number / scale, dtype, &mut bytes));
                    let place = self.place(kind, sequence, position, head);
                    let memory = if kind == Kind::K { &mut self.k } else { &mut self.v };
                    memory[place].copy_from_slice(&bytes);
                }
            }
        }
        self.sequences[sequence].positions += count;
    }

    /// Makes a page free, and poison.
    pub fn give_back(&mut self, page: u32) {
        let bytes = self.setup.kv_dtype.bytes();
        for (memory, strides) in [(&mut self.k, self.strides), (&mut self.v, self.v_strides)] {
            memory[page as usize * strides.page * bytes..][..strides.page * bytes].fill(0xff);
        }
        self.free.insert(0, page);
    }

    fn grow(&mut self, sequence: usize, count: usize) {
        let needed = self.sequences[sequence].positions + count;
        while self.sequences[sequence].pages.len() * self.setup.geometry.page_size < needed {
            let page = self.free.pop().expect("the world is full");
            self.sequences[sequence].pages.push(page);
        }
    }

    /// The numbers of new positions of all chunks.
    fn gather(&self, chunks: &[Chunk], kind: Kind) -> Padded {
        let Geometry { query_heads, kv_heads, .. } = self.setup.geometry;
        let head_dim = self.head_dim(kind);
        let heads = if kind == Kind::Q { query_heads } else { kv_heads };
        let mut numbers = Vec::new();
        for chunk in chunks {
            let start = self.sequences[chunk.sequence].positions;
            for position in start..start + chunk.count {
                numbers.extend(self.numbers(chunk.sequence, position, kind));
            }
        }
        let shape = [numbers.len() / heads / head_dim, heads, head_dim];
        Padded::of(self.setup.dtype, shape, self.setup.padding, &numbers)
    }

    /// Computes a step, unchecked: results [new position][query head][element], and their lse.
    pub fn run(&mut self, chunks: &[Chunk]) -> (Vec<f32>, Vec<f32>) {
        let kv = [Kind::K, Kind::V].map(|kind| self.gather(chunks, kind));
        for chunk in chunks.iter().filter(|chunk| !chunk.is_context) {
            self.grow(chunk.sequence, chunk.count);
        }
        self.attend(None, chunks, Some(&kv))
    }

    /// Attends again to positions whose KV is there already: the last ones of each chunk's
    /// sequence.
    pub fn run_written(&mut self, chunks: &[Chunk]) -> (Vec<f32>, Vec<f32>) {
        self.run_written_on(None, chunks)
    }

    /// The same with another backend.
    pub fn run_written_on(
        &mut self,
        backend: Option<&CpuBackend>,
        chunks: &[Chunk],
    ) -> (Vec<f32>, Vec<f32>) {
        for chunk in chunks {
            self.sequences[chunk.sequence].positions -= chunk.count;
        }
        self.attend(backend, chunks, None)
    }

    fn attend(
        &mut self,
        backend: Option<&CpuBackend>,
        chunks: &[Chunk],
        kv: Option<&[Padded; 2]>,
    ) -> (Vec<f32>, Vec<f32>) {
        let geometry = self.setup.geometry;
        let q = self.gather(chunks, Kind::Q);
        let mut batch = Batch::new(geometry.page_size).unwrap();
        for chunk in chunks {
            let Sequence { positions, pages, regions, tree } = &self.sequences[chunk.sequence];
            match chunk.is_context {
                true => batch.push_context_row(*positions, chunk.count, pages),
                false => batch.push_masked_row(*positions, chunk.count, pages, (regions, tree)),
            }
            .unwrap();
        }
        let shape = [batch.query_count(), geometry.query_heads, geometry.v_head_dim];
        let mut out = Padded::new(self.setup.dtype, shape, self.setup.padding);
        let mut lse = vec![f32::NAN; shape[0] * shape[1]];
        let sinks = self.sinks();
        let head_scales = [Kind::K, Kind::V].map(|kind| {
            (0..geometry.kv_heads).map(|head| self.scale(kind, head)).collect::<Vec<_>>()
        });
        let [k_scales, v_scales] = &head_scales;
        let mut params = self.setup.params;
        if self.setup.head_scales {
            (params.k_scale, params.v_scale) = (f32::NAN, f32::NAN);
        }
        let call = AppendPrefill {
            geometry,
            batch: &batch,
            params,
            head_scales: self.setup.head_scales.then_some([k_scales, v_scales]),
            sinks: sinks.as_deref(),
            q: q.tensor(),
            k: kv.map(|[k, _]| k.tensor()),
            v: kv.map(|[_, v]| v.tensor()),
            out: out.tensor_mut(),
            lse: Some(lse.as_mut_ptr()),
            layer: KvLayer {
                k: self.k.as_mut_ptr(),
                v: self.v.as_mut_ptr(),
                strides: self.strides,
                v_strides: self.v_strides,
                dtype: self.setup.kv_dtype,
            },
            batch_invariant: self.setup.batch_invariant,
        };
        // SAFETY: everything is as large as the batch, the geometry and the strides say.
        unsafe { backend.unwrap_or(&self.backend).append_prefill(&call) }.unwrap();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_context) {
            self.sequences[chunk.sequence].positions += chunk.count;
        }
        (out.numbers(), lse)
    }
}
