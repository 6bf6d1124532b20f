//! Sequences whose KV grows step by step in poisoned pages on the device, each step checked against
//! attention in f64.
use super::buffers::Buffers;
use super::compare::check_step;
use super::device::{self, EngineStream, Memory};
use super::emulator::Driver;
use super::memory::{Padded, poison};
use super::numbers::{decode, encode, normal, round};
pub use super::setup::Setup;
use fastrand::Rng;
use radixkv::attention::reference::Problem;
use radixkv::attention::{
    Batch, Dtype, Geometry, KvLayer, KvStrides, PageCopy, PositionMove, Region,
};
use radixkv::error::Error;
use radixkv::gpu::{CudaBackend, CudaConfig, PlanOnDevice, StepOfPlan, Stream};
use std::cell::RefCell;
use std::collections::HashMap;

#[derive(Debug, Clone, Default)]
pub struct Sequence {
    pub positions: usize,
    pub pages: Vec<u32>,
    pub regions: Vec<Region>,
    /// Tree masks of its next new positions, if they have some.
    pub tree: Vec<u64>,
    /// Its next queries are no positions of it, and see all of it.
    pub is_context: bool,
    /// Whose numbers its first positions have, see `World::share`.
    numbers: usize,
    shared: usize,
}

/// What a step gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub out: Vec<f32>,
    pub lse: Vec<f32>,
}

pub struct World {
    pub setup: Setup,
    pub sequences: Vec<Sequence>,
    pub backend: CudaBackend,
    pub plan: PlanOnDevice,
    pub stream: EngineStream,
    k: Memory,
    /// None where values are in keys.
    v: Option<Memory>,
    strides: KvStrides,
    v_strides: KvStrides,
    free: Vec<u32>,
    number: u64,
    /// What was stored for positions, which each step asks for again.
    known: RefCell<HashMap<(usize, usize, Kind), Vec<f64>>>,
    /// How often a step is computed, as in so many layers: the last one's results are compared.
    pub layers: usize,
    /// A function of the driver of which calls fail during the next call: after so many that
    /// succeed so many, with this code.
    pub failing: Option<(&'static str, i32, i32, i32)>,
    // After all that lives on the device, before another test has its turn.
    _entered: device::Entered,
    pub driver: Driver,
}

/// Which numbers of a position.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Q = 1,
    K,
    V,
}

impl World {
    pub fn new(setup: Setup, count: usize) -> Self {
        let driver = Driver::get();
        driver.capability(if setup.sm90 { 9 } else { setup.capability });
        driver.shared_memory(setup.shared_bytes);
        driver.occupancy(setup.blocks);
        let config = CudaConfig { sm90: Some(setup.sm90), ..driver.config() };
        let (geometry, size) = (setup.geometry, setup.kv_dtype.bytes());
        let dtypes = (setup.dtype, setup.kv_dtype);
        let backend =
            CudaBackend::new(&config, geometry, setup.latent, dtypes, setup.batch_invariant)
                .unwrap();
        assert_eq!(backend.uses_sm90(), setup.sm90);
        let entered = device::enter();
        let mut free: Vec<u32> = (1..setup.pages as u32).collect();
        Rng::with_seed(5).shuffle(&mut free);
        let strides_of = |head_dim| {
            let mut strides =
                KvStrides::dense(setup.layout, &geometry, head_dim + setup.padding).unwrap();
            strides.page += 3 * setup.padding;
            strides
        };
        let strides = strides_of(geometry.head_dim);
        let v_strides = if setup.latent { strides } else { strides_of(geometry.v_head_dim) };
        let memory = |strides: &KvStrides| Memory::of(&poison(setup.pages * strides.page * size));
        let (k, v) = (memory(&strides), (!setup.latent).then(|| memory(&v_strides)));
        Self {
            plan: backend.new_plan().unwrap(),
            backend,
            sequences: (0..count).map(|numbers| Sequence { numbers, ..<_>::default() }).collect(),
            stream: EngineStream::new(),
            k,
            v,
            strides,
            v_strides,
            free,
            number: 0,
            known: RefCell::default(),
            layers: 1,
            failing: None,
            driver,
            setup,
            _entered: entered,
        }
    }

    pub fn layer(&self) -> KvLayer<*mut u8> {
        let (strides, v_strides) = (self.strides, self.v_strides);
        let (k, v) = (self.k.address(), self.memory(Kind::V).address());
        KvLayer { k, v, strides, v_strides, dtype: self.setup.kv_dtype }
    }

    /// Where keys or values lie.
    pub fn memory(&self, kind: Kind) -> &Memory {
        self.v.as_ref().filter(|_| kind == Kind::V).unwrap_or(&self.k)
    }

    /// What has memory of its own.
    pub fn kinds(&self) -> &'static [Kind] {
        if self.setup.latent { &[Kind::K] } else { &[Kind::K, Kind::V] }
    }

    fn dim(&self, kind: Kind) -> usize {
        let Geometry { head_dim, v_head_dim, .. } = self.setup.geometry;
        if kind == Kind::V { v_head_dim } else { head_dim }
    }

    /// The sequence whose numbers a position of another has.
    fn whose(&self, sequence: usize, position: usize) -> usize {
        let Sequence { numbers, shared, .. } = self.sequences[sequence];
        if position < shared { numbers } else { sequence }
    }

    /// The numbers of a position, [head][element], as the caller passes them.
    fn numbers(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f32> {
        let whose = self.whose(sequence, position);
        let Geometry { query_heads, kv_heads, .. } = self.setup.geometry;
        if kind == Kind::V && self.setup.latent {
            let (keys, dim) = (self.numbers(sequence, position, Kind::K), self.dim(Kind::V));
            let beginning = |key: &[f32]| key[..dim].to_vec();
            return keys.chunks_exact(self.dim(Kind::K)).flat_map(beginning).collect();
        }
        let seed = (whose as u64) << 32 | (position as u64) << 2 | kind as u64;
        let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (heads, size) =
            if kind == Kind::Q { (query_heads, self.setup.q_size) } else { (kv_heads, 1.0) };
        let mut number = || round(normal(&mut random) * size, self.setup.dtype);
        (0..heads * self.dim(kind)).map(|_| number()).collect()
    }

    /// Of a KV head.
    fn scale(&self, kind: Kind, head: usize) -> f32 {
        let by_head = if self.setup.head_scales { 1.0 + 0.3 * head as f32 } else { 1.0 };
        match kind {
            _ if self.setup.kv_dtype != Dtype::Fp8E4m3 => 1.0,
            Kind::V if self.setup.latent => self.scale(Kind::K, head),
            Kind::K if self.setup.zero_scale && head == 0 => 0.0,
            Kind::K => self.setup.params.k_scale * by_head,
            Kind::V => self.setup.params.v_scale / by_head,
            Kind::Q => 1.0,
        }
    }

    /// Of all heads, of keys and of values, if each has its own.
    pub fn head_scales(&self) -> Option<[Vec<f32>; 2]> {
        let scales =
            |kind| (0..self.setup.geometry.kv_heads).map(|head| self.scale(kind, head)).collect();
        self.setup.head_scales.then(|| [Kind::K, Kind::V].map(scales))
    }

    /// What is in the cache for a position.
    fn stored(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f64> {
        let compute = || self.round_as_stored(sequence, position, kind);
        let key = (self.whose(sequence, position), position, kind);
        self.known.borrow_mut().entry(key).or_insert_with(compute).clone()
    }

    fn round_as_stored(&self, sequence: usize, position: usize, kind: Kind) -> Vec<f64> {
        let head_dim = self.dim(kind);
        let stored = |(at, x): (usize, f32)| {
            let scale = self.scale(kind, at / head_dim);
            f64::from(round(x / scale, self.setup.kv_dtype)) * f64::from(scale)
        };
        self.numbers(sequence, position, kind).into_iter().enumerate().map(stored).collect()
    }

    fn place(&self, kind: Kind, page: u32, offset: usize, head: usize) -> usize {
        let strides = if kind == Kind::V { self.v_strides } else { self.strides };
        let KvStrides { page: by_page, position, head: by_head } = strides;
        (page as usize * by_page + offset * position + head * by_head) * self.setup.kv_dtype.bytes()
    }

    fn grow(&mut self, sequence: usize, count: usize) {
        let needed = self.sequences[sequence].positions + count;
        while self.sequences[sequence].pages.len() * self.setup.geometry.page_size < needed {
            let page = self.free.pop().expect("the world is full");
            self.sequences[sequence].pages.push(page);
        }
    }

    /// Writes the KV of a sequence's next positions without the backend's help.
    pub fn fill(&mut self, sequence: usize, count: usize) {
        self.grow(sequence, count);
        let page_size = self.setup.geometry.page_size;
        let start = self.sequences[sequence].positions;
        self.stream.synchronize();
        for &kind in self.kinds() {
            let mut memory = self.memory(kind).read();
            for position in start..start + count {
                let page = self.sequences[sequence].pages[position / page_size];
                let numbers = self.numbers(sequence, position, kind);
                for (head, numbers) in numbers.chunks_exact(self.dim(kind)).enumerate() {
                    let mut bytes = Vec::new();
                    for number in numbers {
                        encode(number / self.scale(kind, head), self.setup.kv_dtype, &mut bytes);
                    }
                    let at = self.place(kind, page, position % page_size, head);
                    memory[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            self.memory(kind).write(0, &memory);
        }
        self.sequences[sequence].positions = start + count;
    }

    /// Lets an empty sequence begin with the first pages of another one.
    pub fn share(&mut self, from: usize, to: usize, pages: usize) {
        let positions = pages * self.setup.geometry.page_size;
        assert!(self.sequences[to].positions == 0 && positions <= self.sequences[from].positions);
        let shared = self.sequences[from].pages[..pages].to_vec();
        let numbers = self.sequences[from].numbers;
        self.sequences[to] = Sequence {
            positions,
            pages: shared,
            numbers,
            shared: positions,
            ..Sequence::default()
        };
    }

    fn gather(&self, chunks: &[(usize, usize)], kind: Kind) -> Padded {
        let Geometry { query_heads, kv_heads, .. } = self.setup.geometry;
        let heads = if kind == Kind::Q { query_heads } else { kv_heads };
        let mut numbers = Vec::new();
        for &(sequence, count) in chunks {
            let start = self.sequences[sequence].positions;
            for position in start..start + count {
                numbers.extend(self.numbers(sequence, position, kind));
            }
        }
        let shape = [numbers.len() / heads / self.dim(kind), heads, self.dim(kind)];
        Padded::of(self.setup.dtype, shape, self.setup.padding, &numbers)
    }

    pub fn sinks(&self) -> Option<Vec<f32>> {
        let sink = |head| head as f32 * 0.75 - 1.0;
        self.setup.sinks.then(|| (0..self.setup.geometry.query_heads).map(sink).collect())
    }

    /// A batch of new positions, and the rows' slots; the rows have pages for them.
    pub fn rows(&mut self, chunks: &[(usize, usize)]) -> (Batch, Vec<u32>) {
        let mut batch = Batch::new(self.setup.geometry.page_size).unwrap();
        let mut slots = Vec::new();
        for &(sequence, count) in chunks {
            if !self.sequences[sequence].is_context {
                self.grow(sequence, count);
            }
            let Sequence { positions, pages, regions, tree, .. } = &self.sequences[sequence];
            match self.sequences[sequence].is_context {
                true => batch.push_context_row(*positions, count, pages),
                false => batch.push_masked_row(*positions, count, pages, (regions, tree)),
            }
            .unwrap();
            slots.push(sequence as u32);
        }
        (batch, slots)
    }

    /// q, k and v of new positions.
    pub fn inputs(&self, chunks: &[(usize, usize)]) -> [Padded; 3] {
        [Kind::Q, Kind::K, Kind::V].map(|kind| self.gather(chunks, kind))
    }

    pub fn stream(&self) -> Stream {
        // SAFETY: the world's stream lives while it does.
        unsafe { Stream::new(self.stream.0.cast()) }
    }

    /// The number of a step that was not there before.
    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Makes the driver fail as is wished for the next call.
    pub fn begin_failing(&mut self) {
        if let Some((name, after, times, code)) = self.failing.take() {
            self.driver.fail_times(name, after, times, code);
        }
    }

    /// Computes new positions of sequences and returns what came out; Err with what the driver or
    /// the device says.
    pub fn run(&mut self, chunks: &[(usize, usize)]) -> Result<Outcome, String> {
        let (batch, slots) = self.rows(chunks);
        let number = self.next_number();
        let mut last = None;
        for _ in 0..self.layers {
            let buffers = Buffers::new(self, batch.query_count());
            buffers.load(self, chunks);
            let step = StepOfPlan { number, batch: &batch, slots: &slots };
            let mut call = buffers.call(self, step);
            self.begin_failing();
            let stream = self.stream();
            let done = self.backend.is_captured(stream).and_then(|is_captured| {
                call.is_captured = is_captured;
                // SAFETY: device memory of these shapes, which lives until it is read.
                unsafe { self.backend.append_prefill(&call, &mut self.plan, stream) }
            });
            self.driver.fail("", 0, 0);
            done.map_err(|error: Error| error.to_string())?;
            self.stream.synchronize();
            let outcome = buffers.outcome(batch.query_count());
            last = Some(outcome.ok_or_else(|| self.driver.fault())?);
        }
        Ok(last.expect("there is a layer"))
    }

    /// Computes a step and compares everything; Err says what differs.
    pub fn try_step(&mut self, chunks: &[(usize, usize)]) -> Result<Outcome, String> {
        let outcome = self.run(chunks)?;
        self.finish(chunks, &outcome)?;
        Ok(outcome)
    }

    /// Compares what came out of a step, and goes on behind it.
    pub fn finish(&mut self, chunks: &[(usize, usize)], outcome: &Outcome) -> Result<(), String> {
        let mut first = 0;
        for &(sequence, count) in chunks {
            self.check(sequence, count, first, outcome)?;
            first += count;
        }
        for &(sequence, count) in chunks {
            let start = self.sequences[sequence].positions;
            if self.sequences[sequence].is_context {
                continue;
            }
            self.sequences[sequence].positions += count;
            self.check_memory(sequence, start..start + count)?;
        }
        Ok(())
    }

    pub fn step(&mut self, chunks: &[(usize, usize)]) -> Outcome {
        let setup = self.setup.clone();
        self.try_step(chunks).unwrap_or_else(|wrong| panic!("{wrong}\n{chunks:?} {setup:?}"))
    }

    fn check(
        &self,
        sequence: usize,
        count: usize,
        first: usize,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let start = self.sequences[sequence].positions;
        let all = |kind, range: std::ops::Range<usize>| -> Vec<f64> {
            range.flat_map(|position| self.stored(sequence, position, kind)).collect()
        };
        let q: Vec<f64> = (start..start + count)
            .flat_map(|position| self.numbers(sequence, position, Kind::Q))
            .map(f64::from)
            .collect();
        let keys = start + if self.sequences[sequence].is_context { 0 } else { count };
        let (k, v) = (all(Kind::K, 0..keys), all(Kind::V, 0..keys));
        let sinks = self.sinks();
        let problem = Problem {
            geometry: self.setup.geometry,
            params: self.setup.params,
            sinks: sinks.as_deref(),
            start,
            q: &q,
            k: &k,
            v: &v,
            regions: &self.sequences[sequence].regions,
            tree: &self.sequences[sequence].tree,
        };
        let Geometry { query_heads, v_head_dim, .. } = self.setup.geometry;
        let of_query = query_heads * v_head_dim;
        let out = &outcome.out[first * of_query..][..count * of_query];
        let lse = &outcome.lse[first * query_heads..][..count * query_heads];
        check_step(&problem, out, lse, self.setup.dtype)
            .map_err(|wrong| format!("sequence {sequence}: {wrong}"))
    }

    /// The pages hold what was passed, converted.
    fn check_memory(
        &self,
        sequence: usize,
        positions: std::ops::Range<usize>,
    ) -> Result<(), String> {
        let page_size = self.setup.geometry.page_size;
        let size = self.setup.kv_dtype.bytes();
        for &kind in self.kinds() {
            let (memory, head_dim) = (self.memory(kind).read(), self.dim(kind));
            for position in positions.clone() {
                let page = self.sequences[sequence].pages[position / page_size];
                let expected = self.stored(sequence, position, kind);
                for (head, expected) in expected.chunks_exact(head_dim).enumerate() {
                    let scale = f64::from(self.scale(kind, head));
                    let at = self.place(kind, page, position % page_size, head);
                    let bytes = memory[at..at + head_dim * size].chunks_exact(size);
                    let found =
                        bytes.map(|bytes| f64::from(decode(bytes, self.setup.kv_dtype)) * scale);
                    if !found.eq(expected.iter().copied()) {
                        return Err(format!("position {position} of {sequence} as stored"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies pages on the device.
    pub fn copy_pages(&mut self, copies: &[PageCopy]) {
        // SAFETY: pages of this world.
        unsafe {
            let stream = Stream::new(self.stream.0.cast());
            self.backend.copy_pages(&[self.layer()], copies, stream).unwrap();
        }
        self.stream.synchronize();
    }

    /// The bytes of a head at a place (page, offset).
    pub fn place_of_head(
        &self,
        kind: Kind,
        (page, offset): (u32, u32),
        head: usize,
    ) -> std::ops::Range<usize> {
        let at = self.place(kind, page, offset as usize, head);
        at..at + self.dim(kind) * self.setup.kv_dtype.bytes()
    }

    /// Moves positions on the device.
    pub fn move_positions(&mut self, moves: &[PositionMove]) {
        // SAFETY: places of this world.
        unsafe {
            let stream = Stream::new(self.stream.0.cast());
            self.backend.move_positions(&[self.layer()], moves, stream).unwrap();
        }
        self.stream.synchronize();
    }

    /// A page that nobody has.
    pub fn take_page(&mut self) -> u32 {
        self.free.pop().expect("the world is full")
    }
}
