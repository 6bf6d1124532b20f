//! Sequences whose KV grows step by step in poisoned pages, each step checked.
use super::compare::{Sizes, check_lse, check_out};
use super::memory::{Padded, poison};
use super::numbers::{decode, encode, normal, round};
use fastrand::Rng;
use radixkv::attention::reference::Problem;
use radixkv::attention::{Batch, Dtype, Geometry, KvLayer, KvLayout, KvStrides, Params, Region};
use radixkv::cpu::{AppendPrefill, CpuBackend, Threads};

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
    pub batch_invariant: bool,
    /// Size of queries: large ones make sharp distributions.
    pub q_size: f32,
}

impl Default for Setup {
    fn default() -> Self {
        let geometry = Geometry { query_heads: 4, kv_heads: 2, head_dim: 64, page_size: 16 };
        Self {
            geometry,
            dtype: Dtype::F32,
            kv_dtype: Dtype::F32,
            layout: KvLayout::Nhd,
            padding: 0,
            params: Params::new(geometry.head_dim),
            sinks: false,
            threads: 1,
            batch_invariant: false,
            q_size: 1.0,
        }
    }
}

/// New positions of a sequence.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub sequence: usize,
    pub count: usize,
}

impl Chunk {
    pub fn new(sequence: usize, count: usize) -> Self {
        Self { sequence, count }
    }
}

/// A sequence: its numbers come from its seed, so that those of a position are always the same.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    pub positions: usize,
    pub pages: Vec<u32>,
    pub regions: Vec<Region>,
}

/// The bits of what a step gave, [new position][query head].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    pub out: Vec<u32>,
    pub lse: Vec<u32>,
}

/// KV memory and the sequences in it.
pub struct World {
    pub setup: Setup,
    pub backend: CpuBackend,
    pub sequences: Vec<Sequence>,
    seed: u64,
    free: Vec<u32>,
    strides: KvStrides,
    k: Vec<u8>,
    v: Vec<u8>,
}

/// Positions that the world has room for.
const ROOM: usize = 4096;

#[derive(Clone, Copy)]
enum Kind {
    Q = 1,
    K,
    V,
}

impl World {
    /// `count` empty sequences.
    pub fn new(setup: Setup, count: usize) -> Self {
        Self::with_seed(setup, count, 7, ROOM)
    }

    pub fn with_seed(setup: Setup, count: usize, seed: u64, room: usize) -> Self {
        let geometry = setup.geometry;
        let page_count = room / geometry.page_size + count + 1;
        let mut free: Vec<u32> = (1..page_count as u32).collect();
        Rng::with_seed(seed ^ 0x5eed).shuffle(&mut free);
        let mut padded = geometry;
        padded.head_dim += setup.padding;
        let mut strides = KvStrides::dense(setup.layout, &padded).unwrap();
        strides.page += 5 * setup.padding;
        let bytes = page_count * strides.page * setup.kv_dtype.bytes();
        let backend = CpuBackend::new(Threads::Own(setup.threads)).unwrap();
        CpuBackend::supports(&geometry, setup.dtype, setup.kv_dtype).unwrap();
        let sequences = vec![Sequence::default(); count];
        let (k, v) = (poison(bytes), poison(bytes));
        Self { setup, backend, sequences, seed, free, strides, k, v }
    }

    /// The numbers of a position, [head][element], as the caller passes them.
    fn numbers(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f32> {
        let Geometry { query_heads, kv_heads, head_dim, .. } = self.setup.geometry;
        let mut random = Rng::with_seed(
            self.seed + (sequence as u64) * 0x1_0000_0001 + (position as u64) * 8 + kind as u64,
        );
        let (heads, size) = match kind {
            Kind::Q => (query_heads, self.setup.q_size),
            Kind::K | Kind::V => (kv_heads, 1.0),
        };
        let mut number = || round(normal(&mut random) * size, self.setup.dtype);
        (0..heads * head_dim).map(|_| number()).collect()
    }

    pub fn sinks(&self) -> Option<Vec<f32>> {
        let sink = |head| head as f32 * 0.75 - 1.0;
        self.setup.sinks.then(|| (0..self.setup.geometry.query_heads).map(sink).collect())
    }

    fn scale(&self, kind: Kind) -> f32 {
        match kind {
            _ if self.setup.kv_dtype != Dtype::Fp8E4m3 => 1.0,
            Kind::K => self.setup.params.k_scale,
            Kind::V => self.setup.params.v_scale,
            Kind::Q => 1.0,
        }
    }

    /// What is in the cache for a position, as numbers.
    fn stored(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f64> {
        let scale = self.scale(kind);
        let stored = |x: f32| f64::from(round(x / scale, self.setup.kv_dtype)) * f64::from(scale);
        self.numbers(sequence, position, kind).into_iter().map(stored).collect()
    }

    /// The bytes of a head in a page, in k or v.
    fn place(&self, page: u32, offset: usize, head: usize) -> std::ops::Range<usize> {
        let KvStrides { page: by_page, position, head: by_head } = self.strides;
        let size = self.setup.kv_dtype.bytes();
        let at = (page as usize * by_page + offset * position + head * by_head) * size;
        at..at + self.setup.geometry.head_dim * size
    }

    /// Writes the KV of a sequence's next positions without the backend's help.
    pub fn fill(&mut self, sequence: usize, count: usize) {
        self.grow(sequence, count);
        let size = self.setup.geometry.page_size;
        let end = self.sequences[sequence].positions + count;
        for position in self.sequences[sequence].positions..end {
            let page = self.sequences[sequence].pages[position / size];
            for (kind, head_dim) in
                [(Kind::K, self.setup.geometry.head_dim), (Kind::V, self.setup.geometry.head_dim)]
            {
                let scale = self.scale(kind);
                let numbers = self.numbers(sequence, position, kind);
                for (head, numbers) in numbers.chunks_exact(head_dim).enumerate() {
                    let mut bytes = Vec::new();
                    for number in numbers {
                        encode(number / scale, self.setup.kv_dtype, &mut bytes);
                    }
                    let place = self.place(page, position % size, head);
                    let memory = if matches!(kind, Kind::K) { &mut self.k } else { &mut self.v };
                    memory[place].copy_from_slice(&bytes);
                }
            }
        }
        self.sequences[sequence].positions = end;
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
        let Geometry { query_heads, kv_heads, head_dim, .. } = self.setup.geometry;
        let heads = if matches!(kind, Kind::Q) { query_heads } else { kv_heads };
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

    /// Computes a step and returns it unchecked.
    pub fn run(&mut self, chunks: &[Chunk]) -> (Padded, Vec<f32>) {
        let geometry = self.setup.geometry;
        let (q, k, v) = (
            self.gather(chunks, Kind::Q),
            self.gather(chunks, Kind::K),
            self.gather(chunks, Kind::V),
        );
        let mut batch = Batch::new(geometry.page_size);
        for chunk in chunks {
            self.grow(chunk.sequence, chunk.count);
            let Sequence { positions, pages, regions } = &self.sequences[chunk.sequence];
            batch.push_row(*positions, chunk.count, pages, regions).unwrap();
        }
        let shape = [batch.query_count(), geometry.query_heads, geometry.head_dim];
        let mut out = Padded::new(self.setup.dtype, shape, self.setup.padding);
        let mut lse = vec![f32::NAN; shape[0] * shape[1]];
        let sinks = self.sinks();
        let call = AppendPrefill {
            geometry,
            batch: &batch,
            params: self.setup.params,
            sinks: sinks.as_deref(),
            q: q.tensor(),
            k: Some(k.tensor()),
            v: Some(v.tensor()),
            out: out.tensor_mut(),
            lse: Some(lse.as_mut_ptr()),
            layer: KvLayer {
                k: self.k.as_mut_ptr(),
                v: self.v.as_mut_ptr(),
                strides: self.strides,
                dtype: self.setup.kv_dtype,
            },
            batch_invariant: self.setup.batch_invariant,
        };
        // SAFETY: everything is as large as the batch, the geometry and the strides say.
        unsafe { self.backend.append_prefill(&call) };
        for chunk in chunks {
            self.sequences[chunk.sequence].positions += chunk.count;
        }
        (out, lse)
    }

    /// Computes a step, compares it with the definition, and returns its bits.
    pub fn step(&mut self, chunks: &[Chunk]) -> Bits {
        let starts: Vec<usize> =
            chunks.iter().map(|chunk| self.sequences[chunk.sequence].positions).collect();
        let (out, lse) = self.run(chunks);
        let out = out.numbers();
        let mut first = 0;
        for (chunk, start) in chunks.iter().zip(starts) {
            self.check(chunk, start, &out, &lse, first);
            first += chunk.count;
        }
        Bits {
            out: out.iter().map(|number| number.to_bits()).collect(),
            lse: lse.iter().map(|number| number.to_bits()).collect(),
        }
    }

    fn check(&self, chunk: &Chunk, start: usize, out: &[f32], lse: &[f32], first: usize) {
        let Geometry { query_heads, kv_heads, head_dim, page_size } = self.setup.geometry;
        let sequence = &self.sequences[chunk.sequence];
        let end = start + chunk.count;
        let all = |from: usize, kind| -> Vec<f64> {
            (from..end).flat_map(|at| self.stored(chunk.sequence, at, kind)).collect()
        };
        let (k, v) = (all(0, Kind::K), all(0, Kind::V));
        let q: Vec<f64> = (start..end)
            .flat_map(|at| self.numbers(chunk.sequence, at, Kind::Q))
            .map(f64::from)
            .collect();
        self.check_memory(chunk.sequence, start..end);
        let sinks = self.sinks();
        let problem = Problem {
            geometry: self.setup.geometry,
            params: self.setup.params,
            sinks: sinks.as_deref(),
            start,
            q: &q,
            k: &k,
            v: &v,
            regions: &sequence.regions,
        };
        let exact = problem.attend();
        let value = v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        for (index, q) in q.chunks_exact(head_dim).enumerate() {
            let (position, head) = (start + index / query_heads, index % query_heads);
            let size = |k: &[f64]| q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum::<f64>();
            let of_head = k.chunks_exact(head_dim).skip(head / (query_heads / kv_heads));
            let logit = of_head.step_by(kv_heads).map(size).fold(0.0, f64::max)
                * f64::from(self.setup.params.scale);
            let sizes = Sizes { logit, value };
            let what = format!(
                "sequence {}, position {position}, head {head}, page size {page_size}, {:?}",
                chunk.sequence, self.setup
            );
            let at = first * query_heads + index;
            let found = &out[at * head_dim..][..head_dim];
            let expected = &exact.out[index * head_dim..][..head_dim];
            check_out(found, expected, sizes, self.setup.dtype, &what);
            check_lse(lse[at], exact.lse[index], sizes, &what);
        }
    }

    /// The pages hold what was passed, converted.
    fn check_memory(&self, sequence: usize, positions: std::ops::Range<usize>) {
        let Geometry { head_dim, page_size, .. } = self.setup.geometry;
        let size = self.setup.kv_dtype.bytes();
        for position in positions {
            let page = self.sequences[sequence].pages[position / page_size];
            for (kind, memory) in [(Kind::K, &self.k), (Kind::V, &self.v)] {
                let scale = f64::from(self.scale(kind));
                let expected = self.stored(sequence, position, kind);
                for (head, expected) in expected.chunks_exact(head_dim).enumerate() {
                    let bytes = &memory[self.place(page, position % page_size, head)];
                    for (bytes, expected) in bytes.chunks_exact(size).zip(expected) {
                        let found = f64::from(decode(bytes, self.setup.kv_dtype)) * scale;
                        assert_eq!(found, *expected, "position {position} as stored");
                    }
                }
            }
        }
    }
}
