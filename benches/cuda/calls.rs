//! Calls of one shape, on inputs that are taken in turn, and what they take.
use crate::device::{self, Graph, Memory, Timer};
use crate::shapes::Shape;
use radixkv::attention::{
    Batch, Capacity, Dtype, Geometry, KvLayer, KvLayout, KvStrides, Params, Tensor,
};
use radixkv::gpu::{AppendPrefill, CudaBackend, Heads, NewKv, PlanOnDevice, StepOfPlan, Stream};
use std::time::Instant;

const RUNS: usize = 30;
/// Calls of a run, one after another: the device is to be busy while the host prepares the next.
const CALLS: usize = 8;
/// Copies of the inputs, so that the L2 cache holds none of them: more than 60 MB in all, as long
/// as memory allows.
const ROTATED_BYTES: usize = 256 << 20;
/// Rows that a graph is captured for.
const GRAPH_ROWS: usize = 256;

/// q, new K and V, pages of K and V, results.
pub struct Inputs {
    pub q: Memory,
    k: Memory,
    v: Memory,
    pub k_pages: Memory,
    pub v_pages: Memory,
    pub out: Memory,
}

/// In microseconds.
pub struct Time {
    /// Of a call, the median of the runs.
    pub device: f64,
    /// Between the quarters of the runs, relative to the median.
    pub spread: f64,
    /// That the host takes to put a call on the stream.
    pub host: f64,
}

pub struct Calls<'a> {
    backend: &'a CudaBackend,
    pub shape: &'a Shape,
    batch: Batch,
    slots: Vec<u32>,
    page_count: usize,
    pub strides: KvStrides,
    pub v_strides: KvStrides,
    pub kv_dtype: Dtype,
    pub inputs: Vec<Inputs>,
}

impl<'a> Calls<'a> {
    pub fn new(
        backend: &'a CudaBackend,
        shape: &'a Shape,
        geometry: &Geometry,
        kv_dtype: Dtype,
        in_graph: bool,
    ) -> Self {
        let (batch, page_count) = shape.batch(geometry.page_size);
        let dense = |dim| KvStrides::dense(KvLayout::Nhd, geometry, dim).unwrap();
        let (strides, latent) = (dense(geometry.head_dim), shape.heads.latent);
        let v_strides = if latent { strides } else { dense(geometry.v_head_dim) };
        // A graph has room for more rows.
        let graph_rows = if in_graph { GRAPH_ROWS } else { 0 };
        let room = batch.query_count().max(graph_rows * shape.queries);
        let q = room * shape.query_heads * geometry.head_dim;
        let out = room * shape.query_heads * geometry.v_head_dim;
        let new = batch.query_count() * shape.kv_heads;
        let pages = page_count * strides.page;
        let v_pages = if latent { 1 } else { page_count * v_strides.page };
        let bytes = (pages + v_pages) * kv_dtype.bytes() + 2 * (q + out);
        let sets = (ROTATED_BYTES / bytes).clamp(1, CALLS);
        let dtype = Dtype::Bf16;
        let inputs = (0..sets)
            .map(|_| Inputs {
                q: Memory::random(q, dtype),
                k: Memory::random(new * geometry.head_dim, dtype),
                v: Memory::random(new * geometry.v_head_dim, dtype),
                k_pages: Memory::random(pages, kv_dtype),
                v_pages: Memory::random(v_pages, kv_dtype),
                out: Memory::random(out, dtype),
            })
            .collect();
        let slots = (0..batch.rows().len() as u32).collect();
        Self { backend, shape, batch, slots, page_count, strides, v_strides, kv_dtype, inputs }
    }

    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    fn step(&self) -> StepOfPlan<'_> {
        StepOfPlan { number: 1, batch: &self.batch, slots: &self.slots }
    }

    fn call(&self, inputs: &Inputs, writes: bool) -> AppendPrefill<'_> {
        let Shape { query_heads, kv_heads, heads, .. } = *self.shape;
        let Heads { head_dim, v_head_dim, latent } = heads;
        let dtype = Dtype::Bf16;
        let new = |memory: &Memory, dim| Tensor::dense(memory.read(), dtype, kv_heads, dim);
        let new_kv = || NewKv {
            k: new(&inputs.k, head_dim),
            v: (!latent).then(|| new(&inputs.v, v_head_dim)),
        };
        let (k, v) = (inputs.k_pages.address(), inputs.v_pages.address());
        AppendPrefill {
            head_scales: [std::ptr::null(); 2],
            step: self.step(),
            params: Params::new(head_dim),
            sinks: std::ptr::null(),
            q: Tensor::dense(inputs.q.read(), dtype, query_heads, head_dim),
            kv: writes.then(new_kv),
            out: Tensor::dense(inputs.out.address(), dtype, query_heads, v_head_dim),
            lse: std::ptr::null_mut(),
            layer: KvLayer {
                k,
                v: if latent { k } else { v },
                strides: self.strides,
                v_strides: self.v_strides,
                dtype: self.kv_dtype,
            },
            page_count: self.page_count,
            is_captured: false,
        }
    }

    /// Attends once, from the first inputs.
    pub fn attend(&self) {
        let mut plan = self.backend.new_plan().unwrap();
        // SAFETY: memory of these shapes; the default stream.
        unsafe {
            let stream = Stream::new(std::ptr::null_mut());
            self.backend.append_prefill(&self.call(&self.inputs[0], false), &mut plan, stream)
        }
        .unwrap();
    }

    /// Of attention; with `writes` of writing K and V, too.
    pub fn time(&mut self, writes: bool) -> Time {
        let mut plan = self.backend.new_plan().unwrap();
        // SAFETY: memory of these shapes; the default stream.
        self.time_each(|inputs| unsafe {
            let call = self.call(inputs, writes);
            let stream = Stream::new(std::ptr::null_mut());
            self.backend.append_prefill(&call, &mut plan, stream).unwrap();
        })
    }

    /// Of launches of a graph that was captured for [`GRAPH_ROWS`] rows of this kind, which may
    /// attend to what they share together, or not.
    pub fn time_graphs(&mut self, cascade: bool) -> Time {
        let mut plan = self.backend.new_plan().unwrap();
        let per_row = self.shape.keys.div_ceil(self.batch.page_size());
        let capacity = Capacity {
            rows: GRAPH_ROWS,
            positions: GRAPH_ROWS * self.shape.queries,
            row_positions: self.shape.queries,
            pages: GRAPH_ROWS * per_row,
            regions: false,
            trees: false,
            cascade: cascade && self.shape.shared > 0,
        };
        self.backend.reserve(&capacity, &mut plan).unwrap();
        let capturing = device::capturing_stream();
        // SAFETY: nobody else uses the plan; the stream lives as long as the program.
        unsafe {
            let stream = Stream::new(capturing.cast());
            self.backend.upload(&self.step(), &mut plan, stream).unwrap();
        }
        let graphs: Vec<Graph> =
            self.inputs.iter().map(|inputs| self.capture(inputs, &mut plan, capturing)).collect();
        let mut next = (0..graphs.len()).cycle();
        self.time_each(|_| graphs[next.next().expect("a circle")].launch())
    }

    fn capture(
        &self,
        inputs: &Inputs,
        plan: &mut PlanOnDevice,
        stream: cudarc::driver::sys::CUstream,
    ) -> Graph {
        let call = AppendPrefill { is_captured: true, ..self.call(inputs, false) };
        Graph::capture(stream, || {
            // SAFETY: memory of these shapes, with room for all rows that were reserved.
            unsafe { self.backend.append_prefill(&call, plan, Stream::new(stream.cast())) }
                .unwrap();
        })
    }

    fn time_each(&self, mut launch: impl FnMut(&Inputs)) -> Time {
        let timer = Timer::new();
        let mut inputs = self.inputs.iter().cycle();
        let (mut devices, mut hosts) = (Vec::new(), Vec::new());
        // The first ones send the plan and warm the device up.
        for run in 0..RUNS + 3 {
            let mut host = 0.0;
            let elapsed = timer.time(|| {
                let begin = Instant::now();
                for _ in 0..CALLS {
                    launch(inputs.next().expect("a circle"));
                }
                host = begin.elapsed().as_secs_f64() * 1e6;
            });
            if run >= 3 {
                devices.push(elapsed / CALLS as f64);
                hosts.push(host / CALLS as f64);
            }
        }
        devices.sort_by(f64::total_cmp);
        hosts.sort_by(f64::total_cmp);
        let (middle, quarter) = (devices.len() / 2, devices.len() / 4);
        let between = devices[devices.len() - 1 - quarter] - devices[quarter];
        let device = devices[middle];
        Time { device, spread: between / device, host: hosts[middle] }
    }
}
