//! A runner on the device beside one on the processor: the same requests through prefix reuse, page
//! copies, chunks and decoding give the same results.
use super::device::{self, EngineStream, Graph, Memory};
use super::emulator::{Driver, is_real};
use super::numbers::{decode, encode, normal};
use fastrand::Rng;
use radixkv::attention::{Dtype, KvLayout, Params, RowMask};
use radixkv::cpu::Threads;
use radixkv::error::Error;
use radixkv::gpu::{CudaConfig, Images};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::plan::{Plan, PlanRow};
use radixkv::runner::{BackendConfig, LayerStep, Runner, RunnerConfig, States, Strides};
use radixkv::sequence::ComputedRow;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::ffi::c_void;
use std::ptr;

pub const LAYERS: usize = 2;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const DIM: usize = 64;

/// Of multi-head latent attention.
pub fn latent() -> RunnerConfig {
    RunnerConfig { kv_heads: 1, head_dim: 576, v_head_dim: 512, latent: true, ..config() }
}

/// The same with K and V made of what is latent.
pub fn unfolded() -> RunnerConfig {
    RunnerConfig { kv_heads: HEADS, head_dim: 192, v_head_dim: 128, ..config() }
}

pub fn config() -> RunnerConfig {
    RunnerConfig {
        group: 0,
        layers: LAYERS,
        query_heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: DIM,
        v_head_dim: DIM,
        dtype: Dtype::Bf16,
        kv_dtype: Dtype::Bf16,
        kv_layout: KvLayout::Nhd,
        batch_invariant: false,
        latent: false,
    }
}

pub fn table() -> Arc<Shared> {
    let config = PageTableConfig {
        page_size: 16,
        page_count: 64,
        slot_count: 8,
        row_page_limit: 0,
        ..PageTableConfig::default()
    };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    shared
}

/// Sequences, all of their tokens, and how many of those are computed already.
pub type Rows<'a> = &'a [(SequenceId, &'a [u32], usize)];

/// An engine: a page table, a runner over it, and how its tensors reach the runner.
pub struct Engine {
    pub shared: Arc<Shared>,
    pub runner: Arc<Runner>,
    pub plan: Plan,
    pub stream: Option<EngineStream>,
}

impl Engine {
    fn new(
        config: RunnerConfig,
        backend: impl Into<BackendConfig>,
        stream: Option<EngineStream>,
    ) -> Self {
        let shared = table();
        let runner = Runner::new(shared.clone(), config, backend).unwrap();
        let plan = Plan::new(shared.clone()).unwrap();
        Self { shared, runner, plan, stream }
    }

    pub fn begin(&self, ids: &[u32]) -> (SequenceId, usize) {
        let info = self.shared.begin(&Namespace::default(), TokenList::text(ids), 0).unwrap();
        (info.id, info.cached_positions)
    }

    /// Says what the next step computes.
    pub fn set(&self, rows: Rows<'_>) -> Result<(), Error> {
        let plan_rows: Vec<_> = rows
            .iter()
            .map(|(id, ids, start)| PlanRow {
                row: ComputedRow::Sequence(*id),
                start: *start,
                count: ids.len() - start,
                mask: RowMask::Causal,
                regions: &[],
                tree_masks: &[],
            })
            .collect();
        self.plan.set(&plan_rows)
    }

    /// Computes new positions of sequences in every layer.
    pub fn step(&self, rows: Rows<'_>) -> Vec<f32> {
        self.set(rows).unwrap();
        (0..LAYERS).flat_map(|layer| self.layer(layer, rows).unwrap()).collect()
    }

    pub fn layer(&self, layer: usize, rows: Rows<'_>) -> Result<Vec<f32>, Error> {
        let config = self.runner.config();
        let [q, k, v] = inputs_of(config, layer, rows);
        let mut out = vec![0xff; q.len() / config.head_dim * config.v_head_dim];
        let there = self.stream.as_ref().map(|_| [&q, &k, &v, &out].map(|bytes| Memory::of(bytes)));
        let [q, k, v, out_at] = match &there {
            Some(there) => [0, 1, 2, 3].map(|at| there[at].address()),
            None => {
                [q.as_ptr(), k.as_ptr(), v.as_ptr(), out.as_mut_ptr()].map(<*const u8>::cast_mut)
            }
        };
        // SAFETY: memory of the shapes that the plan says, on the runner's device.
        unsafe { self.append(layer, [q, k, v], out_at)? };
        if let (Some(there), Some(stream)) = (&there, &self.stream) {
            stream.synchronize();
            out = there[3].read();
        }
        Ok(numbers(&out))
    }

    /// One call.
    ///
    /// # Safety
    /// That of `Runner::append_prefill`.
    pub unsafe fn append(
        &self,
        layer: usize,
        [q, k, v]: [*mut u8; 3],
        out: *mut u8,
    ) -> Result<(), Error> {
        let dense = Strides::default();
        let RunnerConfig { head_dim, latent, .. } = *self.runner.config();
        let step = LayerStep {
            k_scales: std::ptr::null(),
            v_scales: std::ptr::null(),
            layer,
            q: (q, dense),
            k: Some((k, dense)),
            v: (!latent).then_some((v, dense)),
            out: (out, dense),
            lse: ptr::null_mut(),
            sinks: ptr::null(),
            params: Params::new(head_dim),
            stream: self.raw_stream(),
        };
        // SAFETY: the caller's contract.
        unsafe { self.runner.append_prefill(&self.plan, &step) }
    }

    pub fn raw_stream(&self) -> *mut c_void {
        self.stream.as_ref().map_or(ptr::null_mut(), |stream| stream.0.cast())
    }
}

pub fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|bytes| decode(bytes, Dtype::Bf16)).collect()
}

/// q, k and v; the numbers of a position depend on its token, on where it is, and on the layer.
pub fn inputs(layer: usize, rows: Rows<'_>) -> [Vec<u8>; 3] {
    inputs_of(&config(), layer, rows)
}

fn inputs_of(config: &RunnerConfig, layer: usize, rows: Rows<'_>) -> [Vec<u8>; 3] {
    let RunnerConfig { query_heads, kv_heads, head_dim, v_head_dim, .. } = *config;
    let numbers = [query_heads * head_dim, kv_heads * head_dim, kv_heads * v_head_dim];
    [0, 1, 2].map(|which| {
        let kind = which as u64 + 1;
        let mut bytes = Vec::new();
        for (_, ids, start) in rows {
            for position in *start..ids.len() {
                let seed: [u64; 4] =
                    [kind, layer as u64, u64::from(ids[position]), position as u64];
                let seed = seed.iter().fold(7u64, |seed, part| seed.wrapping_mul(1_000_003) ^ part);
                let mut random = Rng::with_seed(seed);
                for _ in 0..numbers[which] {
                    encode(normal(&mut random), Dtype::Bf16, &mut bytes);
                }
            }
        }
        bytes
    })
}

fn cuda(driver: &Driver) -> CudaConfig {
    driver.config()
}

pub fn check_near(left: &[f32], right: &[f32]) {
    assert_eq!(left.len(), right.len());
    for (at, (left, right)) in left.iter().zip(right).enumerate() {
        assert!((left - right).abs() <= 0.02, "{at}: {left} and {right}");
    }
}

/// What both engines do, side by side.
pub struct Pair {
    pub engines: [Engine; 2],
    // After all that lives on the device, before another test has its turn.
    _entered: device::Entered,
    pub driver: Driver,
}

impl Pair {
    pub fn new() -> Self {
        Self::of(config())
    }

    fn of(config: RunnerConfig) -> Self {
        let driver = Driver::get();
        let on_device = Engine::new(config, cuda(&driver), None);
        let entered = device::enter();
        let on_device = Engine { stream: Some(EngineStream::new()), ..on_device };
        let engines = [Engine::new(config, Threads::Own(1), None), on_device];
        Self { engines, driver, _entered: entered }
    }

    /// A whole request: matched, computed in chunks, published.
    pub fn prefill(&self, ids: &[u32], chunk: usize) -> [(SequenceId, usize); 2] {
        let begun = [0, 1].map(|at| self.engines[at].begin(ids));
        assert_eq!(begun[0].1, begun[1].1);
        let mut start = begun[0].1;
        while start < ids.len() {
            let end = (start + chunk).min(ids.len());
            let results =
                [0, 1].map(|at| self.engines[at].step(&[(begun[at].0, &ids[..end], start)]));
            check_near(&results[0], &results[1]);
            start = end;
        }
        for (engine, (id, _)) in self.engines.iter().zip(begun) {
            engine.shared.write().publish(id, ids.len()).unwrap();
            engine.shared.read().audit().unwrap();
        }
        begun
    }
}

// K14, B07, B08
#[test]
fn b08_requests_that_share_a_prefix_and_part_of_a_page() {
    [config(), latent(), unfolded()].into_iter().for_each(share_a_prefix);
}

fn share_a_prefix(config: RunnerConfig) {
    let pair = Pair::of(config);
    let first: Vec<u32> = (0..70).collect();
    let ids = pair.prefill(&first, 30);
    // 37 positions in common: two pages shared, five positions of the third copied.
    let mut second = first[..37].to_vec();
    second.extend(500..530);
    let begun = pair.engines[1].begin(&second);
    assert_eq!(begun.1, 37);
    pair.engines[1].shared.write().release(begun.0).unwrap();
    let others = pair.prefill(&second, 100);
    // both decode
    let (mut first, mut second) = (first, second);
    for token in 0..4 {
        first.push(900 + token);
        second.push(950 + token);
        let results = [0, 1].map(|at| {
            let engine = &pair.engines[at];
            let last = |ids: &Vec<u32>| vec![ids[ids.len() - 1]];
            engine.shared.append(ids[at].0, TokenList::text(&last(&first))).unwrap();
            engine.shared.append(others[at].0, TokenList::text(&last(&second))).unwrap();
            engine.step(&[
                (others[at].0, &second, second.len() - 1),
                (ids[at].0, &first, first.len() - 1),
            ])
        });
        check_near(&results[0], &results[1]);
    }
    // A full hit computes its last position in a copied page.
    pair.prefill(&second[..64], 64);
}

/// The copy belongs to the first call of a step, and is confirmed only when it was put on a stream.
#[test]
fn a_copy_that_fails_stays_open() {
    if is_real() {
        return;
    }
    let pair = Pair::new();
    let ids: Vec<u32> = (0..40).collect();
    pair.prefill(&ids, 40);
    let mut other = ids[..21].to_vec();
    other.push(77);
    let engine = &pair.engines[1];
    let (id, cached) = engine.begin(&other);
    assert_eq!(cached, 21);
    let row = PlanRow {
        row: ComputedRow::Sequence(id),
        start: 21,
        count: 1,
        mask: RowMask::Causal,
        regions: &[],
        tree_masks: &[],
    };
    engine.plan.set(&[row]).unwrap();
    let copy = || engine.shared.read().sequence_info(id).unwrap().copy;
    assert!(copy().is_some());
    pair.driver.fail("cuLaunchKernel", 0, 719);
    let failed = engine.layer(0, &[(id, &other, 21)]).unwrap_err();
    assert!(matches!(failed, Error::Device { code: 719, .. }), "{failed}");
    assert!(copy().is_some());
    engine.shared.read().audit().unwrap();
    engine.layer(0, &[(id, &other, 21)]).unwrap();
    assert!(copy().is_none());
}

#[test]
fn states_are_merged() {
    merge_states(false, 5, 3);
    merge_states(true, 5, 3);
    // More than a warp has lanes, and more results than blocks.
    merge_states(false, 40, 70);
}

/// By a call, or by a graph.
fn merge_states(is_captured: bool, positions: usize, count: usize) {
    let pair = Pair::new();
    let mut random = Rng::with_seed(3);
    let mut outs: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let mut bytes = Vec::new();
            for _ in 0..positions * HEADS * DIM {
                encode(normal(&mut random), Dtype::Bf16, &mut bytes);
            }
            bytes
        })
        .collect();
    let mut lses: Vec<Vec<f32>> = (0..count)
        .map(|_| (0..positions * HEADS).map(|_| normal(&mut random) * 3.0).collect())
        .collect();
    // A state that saw nothing may hold anything.
    lses[1][2] = f32::NEG_INFINITY;
    outs[1][2 * DIM * 2..][..DIM * 2].fill(0xff);
    let merge =
        |runner: &Runner, outs: &[*const u8], lses: &[*const f32], lse: *mut f32, stream| {
            let out = outs[0].cast_mut();
            // SAFETY: dense memory of these shapes, on the runner's device.
            unsafe { runner.merge_states(&States { outs, lses, positions, out, lse, stream }) }
                .unwrap();
        };
    // The result goes where the first state and the second one's logarithms were.
    let [host, device] = &pair.engines;
    let there: Vec<_> = outs.iter().map(|out| Memory::of(out)).collect();
    let lses_there: Vec<_> = lses.iter().map(|lse| Memory::of_floats(lse)).collect();
    let mut host_outs = outs.clone();
    let mut host_lses = lses.clone();
    let pointers: Vec<*const u8> =
        host_outs.iter_mut().map(|out| out.as_mut_ptr().cast_const()).collect();
    let lse_pointers: Vec<*const f32> =
        host_lses.iter_mut().map(|lse| lse.as_mut_ptr().cast_const()).collect();
    let none = ptr::null_mut();
    merge(&host.runner, &pointers, &lse_pointers, lse_pointers[1].cast_mut(), none);
    let pointers: Vec<*const u8> = there.iter().map(|out| out.address().cast_const()).collect();
    let lse_pointers: Vec<*const f32> =
        lses_there.iter().map(|lse| lse.address().cast_const().cast()).collect();
    let stream = device.stream.as_ref().unwrap();
    let into = lse_pointers[1].cast_mut();
    let on_device = || merge(&device.runner, &pointers, &lse_pointers, into, stream.0.cast());
    if is_captured {
        let put = || -> Result<(), Error> {
            on_device();
            Ok(())
        };
        Graph::capture(stream, put).unwrap().launch(stream);
    } else {
        on_device();
    }
    stream.synchronize();
    let numbers = |bytes: &[u8], dtype: Dtype| -> Vec<f32> {
        bytes.chunks_exact(dtype.bytes()).map(|bytes| decode(bytes, dtype)).collect()
    };
    check_near(&numbers(&there[0].read(), Dtype::Bf16), &numbers(&host_outs[0], Dtype::Bf16));
    check_near(&numbers(&lses_there[1].read(), Dtype::F32), &host_lses[1]);
}

/// Kernels take two elements of a state at a time: what lies between two such places would be a
/// fault of the device, after which it is of no more use.
#[test]
fn states_that_begin_at_odd_elements_are_refused() {
    let pair = Pair::new();
    let device = &pair.engines[1];
    let there = [0, 1, 2].map(|_| Memory::of(&vec![0; 2 * HEADS * DIM * 2]));
    let lse = Memory::of_floats(&[0.0; 2 * HEADS]);
    let lses = [lse.address().cast_const().cast(); 2];
    for odd in 0..3 {
        let at = |which: usize| there[which].address().wrapping_add(2 * usize::from(which == odd));
        let outs = [at(0).cast_const(), at(1).cast_const()];
        let (lse, stream) = (ptr::null_mut(), device.raw_stream());
        let states = States { outs: &outs, lses: &lses, positions: 1, out: at(2), lse, stream };
        // SAFETY: dense memory of more than these shapes.
        let merged = unsafe { device.runner.merge_states(&states) };
        let message = merged.unwrap_err().to_string();
        let name = ["args.outs[0]", "args.outs[1]", "args.out"][odd];
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
    }
}

#[test]
fn what_cuda_cannot_do_is_said_before() {
    let driver = Driver::get();
    let supports = |change: &dyn Fn(&mut RunnerConfig, &mut CudaConfig)| {
        let (mut config, mut cuda) = (config(), driver.config());
        change(&mut config, &mut cuda);
        config.check(16, &cuda.into()).map_err(|error| error.to_string())
    };
    assert_eq!(supports(&|_, _| ()), Ok(()));
    let refused = |change: &dyn Fn(&mut RunnerConfig, &mut CudaConfig), word: &str| {
        let message = supports(change).unwrap_err();
        assert!(message.contains(word), "{message}");
    };
    refused(&|config, _| (config.dtype, config.kv_dtype) = (Dtype::F32, Dtype::F32), "dtype");
    refused(&|config, _| config.kv_dtype = Dtype::F16, "kv_dtype");
    refused(&|config, _| config.head_dim = 80, "head_dim 80 with v_head_dim 64");
    refused(&|config, _| config.latent = true, "head_dim 64 with V of 64 in K");
    refused(&|_, cuda| cuda.device = 99, "config.device 99");
    refused(
        &|_, cuda| {
            // SAFETY: there is none.
            cuda.images = unsafe { Images::of(&[]) };
        },
        "no CUDA kernels",
    );
}
