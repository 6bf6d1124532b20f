//! Plans that several runners compute, on the device beside the processor, and where what a runner
//! keeps with a plan ends.
use super::device::{self, EngineStream, Graph, Memory};
use super::emulator::{Driver, is_real};
use super::memory::poison;
use super::numbers::{encode, normal};
use super::runner::{check_near, numbers};
use fastrand::Rng;
use radixkv::attention::{Capacity, Dtype, KvLayout, Params, RowMask};
use radixkv::cpu::Threads;
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{BackendConfig, LayerStep, Runner, RunnerConfig, Strides};
use radixkv::sequence::ComputedRow;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::ptr;

const MOST: Capacity = Capacity {
    rows: 1,
    positions: 40,
    row_positions: 40,
    pages: 10,
    regions: false,
    trees: false,
    cascade: true,
};

/// Layers, query heads, KV heads, elements of a head.
type Shape = (usize, usize, usize, usize);
/// A model of two kinds of layers.
const SHAPES: [Shape; 2] = [(2, 4, 2, 64), (1, 6, 6, 128)];

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let (mut made, mut random) = (Vec::new(), Rng::with_seed(seed));
    (0..count).for_each(|_| encode(normal(&mut random), Dtype::Bf16, &mut made));
    made
}

/// q, k and v of one row's new positions; they depend on tokens, positions and the layer.
fn inputs(
    (_, heads, kv_heads, dim): Shape,
    layer: usize,
    ids: &[u32],
    start: usize,
) -> [Vec<u8>; 3] {
    [(1, heads), (2, kv_heads), (3, kv_heads)].map(|(kind, heads)| {
        let of = |at: usize| {
            let seed = [kind, layer as u64, dim as u64, u64::from(ids[at]), at as u64];
            let mix = |seed: u64, part: &u64| seed.wrapping_mul(1_000_003) ^ part;
            bytes(heads * dim, seed.iter().fold(7, mix))
        };
        (start..ids.len()).flat_map(of).collect()
    })
}

/// A graph of all layers of a runner, with the tensors of each.
struct Captured(Graph, Vec<[Memory; 4]>);

/// A page table, a plan over it, and a runner for each shape.
struct Model {
    shared: Arc<Shared>,
    plan: Plan,
    runners: Vec<Arc<Runner>>,
    stream: Option<EngineStream>,
    // The last to go.
    _entered: Option<device::Entered>,
}

impl Model {
    fn new(backend: impl Fn() -> BackendConfig) -> Self {
        let (page_size, page_count) = (16, 64);
        let config = PageTableConfig {
            page_size,
            page_count,
            slot_count: 8,
            row_page_limit: 0,
            ..PageTableConfig::default()
        };
        let shared = Shared::new(config).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let made = |&(layers, query_heads, kv_heads, head_dim): &Shape| {
            let (dtype, kv_dtype) = (Dtype::Bf16, Dtype::Bf16);
            let (kv_layout, batch_invariant) = (KvLayout::Nhd, false);
            let config = RunnerConfig {
                group: 0,
                layers,
                query_heads,
                kv_heads,
                head_dim,
                v_head_dim: head_dim,
                dtype,
                kv_dtype,
                kv_layout,
                batch_invariant,
                latent: false,
            };
            Runner::new(shared.clone(), config, backend()).unwrap()
        };
        let runners = SHAPES.iter().map(made).collect();
        let plan = Plan::new(shared.clone()).unwrap();
        Self { shared, plan, runners, stream: None, _entered: None }
    }

    fn raw_stream(&self) -> *mut std::ffi::c_void {
        self.stream.as_ref().map_or(ptr::null_mut(), |stream| stream.0.cast())
    }

    fn set(&self, id: SequenceId, ids: &[u32], start: usize) {
        let count = ids.len() - start;
        let row = PlanRow {
            row: ComputedRow::Sequence(id),
            start,
            count,
            mask: RowMask::Causal,
            regions: &[],
            tree_masks: &[],
        };
        self.plan.set(&[row]).unwrap();
    }

    /// The copies of a step are confirmed with the last runner.
    fn prepare(&self) -> Result<(), Error> {
        let last = self.runners.len() - 1;
        self.runners.iter().enumerate().try_for_each(|(at, runner)| {
            // SAFETY: nobody else computes the rows.
            unsafe { runner.prepare_plan(&self.plan, at < last, self.raw_stream()) }
        })
    }

    fn append(
        &self,
        (runner, layer): (usize, usize),
        [q, k, v]: [*mut u8; 3],
        out: *mut u8,
    ) -> Result<(), Error> {
        let dense = Strides::default();
        let step = LayerStep {
            k_scales: std::ptr::null(),
            v_scales: std::ptr::null(),
            layer,
            q: (q, dense),
            k: Some((k, dense)),
            v: Some((v, dense)),
            out: (out, dense),
            lse: ptr::null_mut(),
            sinks: ptr::null(),
            params: Params::new(SHAPES[runner].3),
            stream: self.raw_stream(),
        };
        // SAFETY: memory of the shapes that the plan says, on the runner's device.
        unsafe { self.runners[runner].append_prefill(&self.plan, &step) }
    }

    fn layer(&self, (runner, layer): (usize, usize), ids: &[u32], start: usize) -> Vec<f32> {
        let mut given = inputs(SHAPES[runner], layer, ids, start);
        let mut out = vec![0xff; given[0].len()];
        let Some(stream) = &self.stream else {
            let given = given.each_mut().map(|bytes| bytes.as_mut_ptr());
            self.append((runner, layer), given, out.as_mut_ptr()).unwrap();
            return numbers(&out);
        };
        let there = given.map(|bytes| Memory::of(&bytes));
        let out = Memory::of(&out);
        self.append((runner, layer), there.each_ref().map(Memory::address), out.address()).unwrap();
        stream.synchronize();
        numbers(&out.read())
    }

    /// Every layer of every runner, those of different runners in turn.
    fn step(&self, id: SequenceId, ids: &[u32], start: usize) -> Vec<f32> {
        self.set(id, ids, start);
        self.prepare().unwrap();
        [(0, 0), (1, 0), (0, 1)].iter().flat_map(|&at| self.layer(at, ids, start)).collect()
    }

    fn begin(&self, ids: &[u32]) -> (SequenceId, usize) {
        let begun = self.shared.begin(&Namespace::default(), TokenList::text(ids), 0).unwrap();
        (begun.id, begun.cached_positions)
    }

    fn is_waiting(&self, id: SequenceId) -> bool {
        self.shared.read().sequence_info(id).unwrap().copy.is_some()
    }

    fn capture(&self, runner: usize) -> Result<Captured, Error> {
        let (layers, heads, kv_heads, dim) = SHAPES[runner];
        let tensors = || {
            let of = |heads: usize| Memory::of(&poison(2 * MOST.positions * heads * dim));
            [heads, kv_heads, kv_heads, heads].map(of)
        };
        let tensors: Vec<_> = (0..layers).map(|_| tensors()).collect();
        let graph = Graph::capture(self.stream.as_ref().unwrap(), || {
            tensors.iter().enumerate().try_for_each(|(layer, [q, k, v, out])| {
                self.append((runner, layer), [q, k, v].map(Memory::address), out.address())
            })
        })?;
        Ok(Captured(graph, tensors))
    }
}

/// The model on the processor, and on the device.
fn both(driver: &Driver) -> [Model; 2] {
    let on_device = Model::new(|| driver.config().into());
    let _entered = Some(device::enter());
    let on_device = Model { stream: Some(EngineStream::new()), _entered, ..on_device };
    [Model::new(|| Threads::Own(1).into()), on_device]
}

/// Requests that share two pages and part of a third.
fn prompts() -> [Vec<u32>; 2] {
    let first: Vec<u32> = (0..38).collect();
    let second = first[..27].iter().copied().chain(500..510).collect();
    [first, second]
}

// J04, B08
#[test]
fn j04_two_runners_on_a_device_compute_one_plan() {
    let driver = Driver::get();
    let models = both(&driver);
    for ids in prompts() {
        let begun = models.each_ref().map(|model| model.begin(&ids));
        assert_eq!(begun[0].1, begun[1].1);
        let cut = begun[0].1 + 7;
        let chunks = [(begun[0].1, cut), (cut, ids.len())];
        for (start, end) in chunks {
            let results = [0, 1].map(|at| models[at].step(begun[at].0, &ids[..end], start));
            check_near(&results[0], &results[1]);
        }
        for (model, (id, _)) in models.iter().zip(begun) {
            assert!(!model.is_waiting(id));
            model.shared.write().publish(id, ids.len()).unwrap();
            model.shared.read().audit().unwrap();
        }
    }
}

/// What was confirmed too early is refused, on a device as on the processor.
// J04
#[test]
fn j04_a_runner_is_told_of_copies_that_it_missed() {
    let driver = Driver::get();
    let models = both(&driver);
    let [first, second] = prompts();
    for model in &models {
        let (id, _) = model.begin(&first);
        model.step(id, &first, 0);
        model.shared.write().publish(id, first.len()).unwrap();
        let (id, start) = model.begin(&second);
        model.set(id, &second, start);
        // SAFETY: nobody else computes the rows.
        let prepare = |runner: usize, keeps_open| unsafe {
            model.runners[runner].prepare_plan(&model.plan, keeps_open, model.raw_stream())
        };
        prepare(0, true).unwrap();
        assert!(model.is_waiting(id));
        prepare(0, false).unwrap();
        assert!(!model.is_waiting(id));
        let error = prepare(1, false).unwrap_err();
        assert!(matches!(error, Error::State(_)) && error.to_string().contains("KEEP_COPIES_OPEN"));
        model.layer((0, 0), &second, start);
    }
}

/// Memory of the device that nobody freed yet.
fn live(driver: &Driver) -> i32 {
    driver.calls("cuMemAlloc_v2") - driver.calls("cuMemFree_v2")
}

// J04
#[test]
fn j04_what_a_runner_keeps_goes_with_it_or_with_the_plan() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    let mut models = both(&driver);
    let [ids, _] = prompts();
    let model = &mut models[1];
    let (id, _) = model.begin(&ids);
    let before = live(&driver);
    model.step(id, &ids, 0);
    let kept = live(&driver) - before;
    assert!(kept > 0);
    // The plan goes first, with what both runners kept ...
    model.plan = Plan::new(model.shared.clone()).unwrap();
    assert_eq!(live(&driver), before);
    model.step(id, &ids, 0);
    assert_eq!(live(&driver), before + kept);
    // ... or a runner, whose KV memory is one more piece; the plan serves the other one.
    let gone = model.runners.pop().unwrap();
    drop(gone);
    assert!(live(&driver) < before + kept - 1);
    model.set(id, &ids, 0);
    model.layer((0, 0), &ids, 0);
    model.runners.clear();
    assert_eq!(live(&driver), before - 2);
    model.set(id, &ids, 0);
}

/// Each runner has a graph of its own; one step of the plan is sent to both.
// J04
#[test]
fn j04_graphs_of_two_runners() {
    let driver = Driver::get();
    let models = both(&driver);
    let [host, model] = &models;
    let stream = model.stream.as_ref().unwrap();
    let mut graphs = Vec::new();
    for ids in prompts() {
        let begun = [host, model].map(|model| model.begin(&ids));
        let expected = host.step(begun[0].0, &ids, begun[0].1);
        let (id, start) = begun[1];
        model.set(id, &ids, start);
        if graphs.is_empty() {
            model.plan.reserve(&Capacity { pages: 9, ..MOST }).unwrap();
            model.runners.iter().for_each(|runner| runner.reserve_plan(&model.plan).unwrap());
            // What was reserved for another size is none.
            model.plan.reserve(&MOST).unwrap();
            model.prepare().unwrap();
            let error = model.capture(0).err().unwrap().to_string();
            assert!(error.contains("rkv_runner_reserve_plan()"), "{error}");
            model.runners.iter().for_each(|runner| runner.reserve_plan(&model.plan).unwrap());
            model.prepare().unwrap();
            graphs = [0, 1].map(|runner| model.capture(runner).unwrap()).into();
            assert!(matches!(model.plan.reserve(&MOST), Err(Error::State(_))));
        }
        model.prepare().unwrap();
        assert!(!model.is_waiting(id));
        let mut results = [Vec::new(), Vec::new()];
        for (runner, Captured(graph, tensors)) in graphs.iter().enumerate() {
            for (layer, memory) in tensors.iter().enumerate() {
                let given = inputs(SHAPES[runner], layer, &ids, start);
                memory.iter().zip(given).for_each(|(memory, bytes)| memory.write(0, &bytes));
            }
            graph.launch(stream);
            stream.synchronize();
            let (_, heads, _, dim) = SHAPES[runner];
            results[runner] = tensors
                .iter()
                .map(|memory| {
                    numbers(&memory[3].read())[..(ids.len() - start) * heads * dim].to_vec()
                })
                .collect();
        }
        let [large, small] = results;
        check_near(&expected, &[&large[0][..], &small[0], &large[1]].concat());
        for (model, (id, _)) in [host, model].into_iter().zip(begun) {
            model.shared.write().publish(id, ids.len()).unwrap();
        }
    }
    drop(graphs);
}
