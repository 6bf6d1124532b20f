//! Pages that go to host memory and come back: the same bytes as on the processor, whatever their
//! shape, in however many portions; after what was put on streams before; with a failing driver.
use super::device::{self, Memory, Pinned};
use super::emulator::{Driver, is_real};
use super::runner::{
    Engine, LAYERS, Pair, Rows, check_near, config, inputs, latent, numbers, table, unfolded,
};
use fastrand::Rng;
use radixkv::attention::{Dtype, KvLayout, KvStrides, PageCopy};
use radixkv::cpu::Threads;
use radixkv::error::Error;
use radixkv::gpu::CudaConfig;
use radixkv::ids::SequenceId;
use radixkv::memory::Arc;
use radixkv::runner::{KvPointers, Runner, RunnerConfig, TierCopy};
use radixkv::store::Shared;
use std::ptr;

const PAGE_SIZE: usize = 16;
/// With page 0.
const PAGES: usize = 64;

/// K of all pages of a layer, and V unless that is in K.
type Parts = Vec<(Vec<u8>, KvStrides)>;

/// A page table whose pages are all taken: no others are loaded.
fn taken() -> Arc<Shared> {
    let shared = table();
    shared.allocate_pages(PAGES - 1).unwrap();
    shared
}

/// A runner on the processor over memory of the engine's, and one on the device over the same bytes
/// there.
struct Both {
    host: Arc<Runner>,
    device: Arc<Runner>,
    on_host: Vec<Parts>,
    on_device: Vec<Vec<Memory>>,
    // After all that lives on the device, before another test has its turn.
    _entered: device::Entered,
    driver: Driver,
}

impl Both {
    /// `padding`: elements between heads. `staging`: pages for which there is room.
    fn new(config: RunnerConfig, padding: usize, staging: Option<usize>) -> Self {
        let driver = Driver::get();
        driver.pageable(true);
        let entered = device::enter();
        let geometry = config.geometry(PAGE_SIZE);
        let mut random = Rng::with_seed(3);
        let mut part = |head_dim: usize| {
            let mut strides =
                KvStrides::dense(config.kv_layout, &geometry, head_dim + padding).unwrap();
            strides.page += 3 * padding;
            let mut bytes = vec![0; PAGES * strides.page * config.kv_dtype.bytes()];
            random.fill(&mut bytes);
            (bytes, strides)
        };
        let mut layer = |_| -> Parts {
            let k = part(config.head_dim);
            let v = (!config.latent).then(|| part(config.v_head_dim));
            [k].into_iter().chain(v).collect()
        };
        let mut on_host: Vec<Parts> = (0..config.layers).map(&mut layer).collect();
        let copied = |parts: &Parts| parts.iter().map(|part| Memory::of(&part.0)).collect();
        let on_device: Vec<Vec<Memory>> = on_host.iter().map(copied).collect();
        let of_device = on_host.iter().zip(&on_device).map(|(parts, there)| {
            pointers(parts, &there.iter().map(Memory::address).collect::<Vec<_>>())
        });
        let of_device: Vec<_> = of_device.collect();
        let of_host = on_host.iter_mut().map(|parts| {
            let starts: Vec<_> = parts.iter_mut().map(|part| part.0.as_mut_ptr()).collect();
            pointers(parts, &starts)
        });
        let of_host: Vec<_> = of_host.collect();
        let bytes = config.page_bytes(PAGE_SIZE);
        // The room of a page may be more, for it suits every launch.
        let staging_bytes = staging.map(|pages| pages * bytes + bytes / 2);
        let backend = CudaConfig { staging_bytes, ..driver.config() };
        // SAFETY: memory of these strides for every page, which goes after the runners.
        let [host, device] = unsafe {
            let host = Runner::over(taken(), config, Threads::Own(1), &of_host);
            [host, Runner::over(taken(), config, backend, &of_device)].map(Result::unwrap)
        };
        Self { host, device, on_host, on_device, _entered: entered, driver }
    }

    /// So many pieces of host memory, of a page each.
    fn pieces(&self, count: usize) -> Vec<u8> {
        vec![0xee; count * self.host.page_bytes()]
    }

    fn check_memory(&self) {
        for (layer, (parts, there)) in self.on_host.iter().zip(&self.on_device).enumerate() {
            for (which, ((bytes, _), there)) in parts.iter().zip(there).enumerate() {
                assert!(*bytes == there.read(), "layer {layer}, part {which}");
            }
        }
        assert_eq!(self.driver.fault(), "");
    }
}

fn pointers(parts: &Parts, starts: &[*mut u8]) -> KvPointers {
    KvPointers {
        k: starts[0],
        v: starts.get(1).copied().unwrap_or(ptr::null_mut()),
        strides: parts[0].1,
        v_strides: parts[parts.len() - 1].1,
    }
}

fn fp8() -> RunnerConfig {
    RunnerConfig { head_dim: 80, v_head_dim: 80, kv_dtype: Dtype::Fp8E4m3, ..config() }
}

/// A page, a piece of host memory, and whether that is loaded.
type Job = (u32, usize, bool);

fn copy(runner: &Runner, jobs: &[Job], pieces: &mut [u8]) -> Result<(), Error> {
    let bytes = runner.page_bytes();
    let pieces: Vec<_> = pieces.chunks_exact_mut(bytes).map(<[u8]>::as_mut_ptr).collect();
    let copies = jobs.iter().map(|&(page, piece, is_load)| TierCopy {
        group: 0,
        page,
        host: pieces[piece],
        bytes,
        is_load,
    });
    // SAFETY: pieces of a page each.
    unsafe { runner.copy_tier_pages(copies) }
}

fn stores(pages: &[u32]) -> Vec<Job> {
    pages.iter().enumerate().map(|(at, &page)| (page, at, false)).collect()
}

/// Stores, then loads and stores in one call.
fn there_and_back(both: &Both) {
    let stores = stores(&[3, 63, 1, 17, 18, 40, 2]);
    let (mut of_host, mut of_device) = (both.pieces(9), Pinned::of(&both.pieces(9)));
    copy(&both.host, &stores, &mut of_host).unwrap();
    copy(&both.device, &stores, &mut of_device).unwrap();
    assert!(of_host[..] == of_device[..], "stored");
    // What the one stored is what the other one loads.
    let mixed = [
        (5, 0, true),
        (63, 1, true),
        (6, 2, true),
        (5, 7, false),
        (30, 8, false),
        (7, 3, true),
        (8, 4, true),
        (9, 5, true),
        (10, 6, true),
        (11, 7, true),
    ];
    copy(&both.host, &mixed, &mut of_device).unwrap();
    copy(&both.device, &mixed, &mut of_host).unwrap();
    assert!(of_host[..] == of_device[..], "stored between loads");
    let bytes = both.host.page_bytes();
    assert!(of_host[..bytes] == of_host[7 * bytes..8 * bytes], "stored after it was loaded");
    both.check_memory();
}

#[test]
fn t02_pages_go_to_host_memory_and_back_as_on_the_processor() {
    let heads = |kv_heads, head_dim| RunnerConfig {
        kv_heads,
        head_dim,
        v_head_dim: head_dim,
        layers: 3,
        ..config()
    };
    let latents = [1, 2, 3].map(|layers| RunnerConfig { layers, ..latent() });
    let shapes = [heads(2, 64), heads(1, 128), unfolded(), fp8()];
    for shape in shapes.into_iter().chain(latents) {
        for kv_layout in [KvLayout::Nhd, KvLayout::Hnd] {
            for padding in [0, 16] {
                let config = RunnerConfig { kv_layout, ..shape };
                there_and_back(&Both::new(config, padding, Some(3)));
            }
        }
    }
}

#[test]
fn t02_portions_of_any_size_give_the_same() {
    for config in [config(), unfolded(), RunnerConfig { layers: 3, ..latent() }] {
        for staging in [None, Some(0), Some(1), Some(2), Some(7)] {
            there_and_back(&Both::new(config, 0, staging));
        }
    }
}

/// Puts a step on the engine's stream in every layer, and waits for nothing; the last of what each
/// layer has is its result.
fn put_step(engine: &Engine, rows: Rows<'_>) -> Vec<[Memory; 4]> {
    engine.set(rows).unwrap();
    // Before the first call: to write there waits for the device.
    let tensors = |layer| {
        let [q, k, v] = inputs(layer, rows);
        [&q, &k, &v, &q].map(|bytes| Memory::of(bytes))
    };
    let layers: Vec<_> = (0..LAYERS).map(tensors).collect();
    for (layer, tensors) in layers.iter().enumerate() {
        let [q, k, v, out] = tensors.each_ref().map(Memory::address);
        // SAFETY: memory of the shapes that the plan says, on the runner's device.
        unsafe { engine.append(layer, [q, k, v], out).unwrap() };
    }
    layers
}

/// A sequence, and its first pages.
fn begin(engine: &Engine, tokens: &[u32]) -> (SequenceId, Vec<u32>) {
    let id = engine.begin(tokens).0;
    let state = engine.shared.read();
    let slot = state.sequence_info(id).unwrap().slot;
    (id, state.row_from(slot, 0).unwrap()[..4].to_vec())
}

/// A store has what calls wrote, and a load overwrites nothing that they read, though nobody waited
/// for the engine's stream.
#[test]
fn t02_copies_come_after_the_steps_before() {
    let pair = Pair::new();
    pair.driver.pageable(true);
    let [host, device] = &pair.engines;
    let tokens: Vec<u32> = (0..70).collect();
    let (begun, pages) = {
        let [host, device] = [host, device].map(|engine| begin(engine, &tokens));
        ([host.0, device.0], [host.1, device.1])
    };
    let bytes = host.runner.page_bytes();
    let expected = host.step(&[(begun[0], &tokens, 0)]);
    let mut of_host = vec![0xee; 4 * bytes];
    copy(&host.runner, &stores(&pages[0]), &mut of_host).unwrap();

    let rows = [(begun[1], tokens.as_slice(), 0)];
    let step = put_step(device, &rows);
    let mut of_device = vec![0xee; 4 * bytes];
    copy(&device.runner, &stores(&pages[1]), &mut of_device).unwrap();
    assert!(of_host == of_device, "a store came before the step");
    drop(step);

    let step = put_step(device, &rows);
    let loads: Vec<Job> = pages[1].iter().map(|&page| (page, 0, true)).collect();
    copy(&device.runner, &loads, &mut vec![0; bytes]).unwrap();
    device.stream.as_ref().unwrap().synchronize();
    let results: Vec<f32> = step.iter().flat_map(|layer| numbers(&layer[3].read())).collect();
    check_near(&results, &expected);
    assert_eq!(pair.driver.fault(), "");
}

/// The same for pages that were copied without a step.
#[test]
fn t02_copies_come_after_copies_of_pages() {
    let pair = Pair::new();
    pair.driver.pageable(true);
    let tokens: Vec<u32> = (0..70).collect();
    let stored = pair.engines.each_ref().map(|engine| {
        let (id, pages) = begin(engine, &tokens);
        engine.step(&[(id, &tokens, 0)]);
        let copied = PageCopy { source: pages[0], target: pages[1], positions: PAGE_SIZE };
        let mut piece = vec![0xee; engine.runner.page_bytes()];
        // SAFETY: nobody computes them meanwhile.
        unsafe { engine.runner.copy_pages(&[copied]).unwrap() };
        copy(&engine.runner, &[(pages[1], 0, false)], &mut piece).unwrap();
        piece
    });
    assert!(stored[0] == stored[1], "a store came before the copy");
}

/// What was made for the first copies is used for all.
#[test]
fn t02_copies_allocate_once() {
    if is_real() {
        return;
    }
    let both = Both::new(config(), 0, Some(2));
    let mut pieces = Pinned::of(&both.pieces(9));
    copy(&both.device, &stores(&[1, 2, 3, 4, 5]), &mut pieces).unwrap();
    let calls = || {
        ["cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate"]
            .map(|name| both.driver.calls(name))
    };
    let (before, synced) = (calls(), both.driver.calls("cuCtxSynchronize"));
    for _ in 0..3 {
        copy(&both.device, &stores(&[5, 6, 9, 7]), &mut pieces).unwrap();
        copy(&both.device, &[(8, 2, true)], &mut pieces).unwrap();
    }
    assert_eq!(calls(), before);
    assert_eq!(both.driver.calls("cuCtxSynchronize"), synced, "it waits for its own stream alone");
    let launched = both.driver.calls("cuLaunchKernel");
    copy(&both.device, &[], &mut pieces).unwrap();
    assert_eq!(both.driver.calls("cuLaunchKernel"), launched);
}

#[test]
fn t02_wrong_copies_are_named_and_nothing_is_copied() {
    let both = Both::new(config(), 0, None);
    let bytes = both.device.page_bytes();
    let mut pieces = both.pieces(2);
    let host = pieces.as_mut_ptr();
    let good = TierCopy { group: 0, page: 3, host, bytes, is_load: false };
    let wrong = [
        (TierCopy { group: 1, ..good }, "jobs[1].group 1"),
        (TierCopy { page: 0, ..good }, "jobs[1].page 0"),
        (TierCopy { page: PAGES as u32, ..good }, "jobs[1].page 64"),
        (TierCopy { host: ptr::null_mut(), ..good }, "jobs[1].host"),
        (TierCopy { bytes: bytes - 1, ..good }, "jobs[1].byte_count"),
    ];
    for (wrong, words) in wrong {
        // SAFETY: it is refused.
        let refused = unsafe { both.device.copy_tier_pages([good, wrong].into_iter()) };
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    assert!(pieces == both.pieces(2));
}

/// Whichever call of the driver fails: the error says so, host memory is nobody's any more when
/// that is returned, and the same copies are right afterwards.
#[test]
fn m04_a_failing_driver_leaves_other_pages_and_host_memory() {
    if is_real() {
        return;
    }
    let functions = [
        "cuCtxPushCurrent_v2",
        "cuStreamCreate",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuEventCreate",
        "cuEventQuery",
        "cuEventRecord",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuLaunchKernel",
        "cuStreamSynchronize",
    ];
    let jobs = [(3, 0, false), (4, 1, false), (5, 2, false), (6, 3, true), (7, 4, true)];
    for name in functions {
        let mut failures = 0;
        for after in 0..40 {
            let both = Both::new(RunnerConfig { layers: 1, ..config() }, 0, Some(2));
            let mut pieces = Pinned::of(&both.pieces(5));
            // Something is there before, where the question is what later calls do.
            if name == "cuEventQuery" {
                copy(&both.device, &jobs[..1], &mut pieces).unwrap();
            }
            pieces.fill(0xcc);
            both.driver.fail(name, after, 2);
            let failed = copy(&both.device, &jobs, &mut pieces);
            both.driver.fail("none", 0, 0);
            if let Err(error) = &failed {
                failures += 1;
                let message = error.to_string();
                assert!(message.contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "{name}: {message}");
                pieces.fill(0xaa);
                // Waits for every stream.
                let _ = both.on_device[0][0].read();
                assert!(pieces.iter().all(|&byte| byte == 0xaa), "{name}, {after}: still in use");
            }
            let mut of_host = pieces.to_vec();
            copy(&both.host, &jobs, &mut of_host).unwrap();
            copy(&both.device, &jobs, &mut pieces).unwrap();
            assert!(of_host[..] == pieces[..], "{name}, {after}");
            both.check_memory();
            if failed.is_ok() {
                break;
            }
        }
        assert!(failures > 0, "{name} was never called");
    }
}

/// What a stream cannot be made to wait for is not overtaken.
#[test]
fn m04_copies_that_cannot_wait_for_steps_are_refused() {
    if is_real() {
        return;
    }
    let pair = Pair::new();
    pair.driver.pageable(true);
    let engine = &pair.engines[1];
    let tokens: Vec<u32> = (0..20).collect();
    let id = engine.begin(&tokens).0;
    engine.step(&[(id, &tokens, 0)]);
    let mut pieces = vec![0xee; engine.runner.page_bytes()];
    pair.driver.fail("cuStreamWaitEvent", 0, 719);
    let failed = copy(&engine.runner, &[(1, 0, false)], &mut pieces).unwrap_err();
    assert!(matches!(failed, Error::Device { code: 719, .. }), "{failed}");
    assert!(pieces.iter().all(|&byte| byte == 0xee));
    copy(&engine.runner, &[(1, 0, false)], &mut pieces).unwrap();
}
