//! What the driver may do to us, and what it is asked.
use super::buffers::Buffers;
use super::device::EngineStream;
use super::emulator::{Driver, is_real};
use super::runner;
use super::world::{Setup, World};
use radixkv::attention::{Dtype, PageCopy};
use radixkv::error::Error;
use radixkv::gpu::{CudaBackend, CudaConfig, StepOfPlan, argument_sizes, kernel_table};
use radixkv::runner::RunnerConfig;

/// src/gpu knows the kernels' blocks and arguments as their source has them.
#[test]
fn the_host_and_the_kernels_agree() {
    if is_real() {
        return;
    }
    let world = World::new(Setup::new(64, 16), 1);
    let known = kernel_table();
    let mut there = world.driver.kernels();
    there.sort();
    assert_eq!(known, there);
    for (name, bytes) in argument_sizes() {
        assert_eq!(world.driver.size_of(name), Some(bytes), "{name}");
    }
}

/// Work is divided for as many blocks as the driver says that a multiprocessor holds; the emulated
/// device has six of those. What it says of more than one kernel is asked when a runner is made.
#[test]
fn the_driver_says_how_many_blocks_there_are() {
    if is_real() {
        return;
    }
    let pieces = |blocks| {
        let mut world = World::new(Setup { blocks, ..Setup::new(64, 16) }, 1);
        assert!(world.driver.calls("cuOccupancyMaxActiveBlocksPerMultiprocessor") > 0);
        world.fill(0, 1900);
        let name = "rkv_attend_bf16_16bit_64_rows16";
        let before = world.driver.launched(name);
        world.step(&[(0, 1)]);
        // A block for each of two KV heads.
        (world.driver.launched(name) - before) / 2
    };
    assert_eq!([1, 2, 4].map(pieces), [3, 6, 8]);
    let driver = Driver::get();
    driver.fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, 2);
    let (geometry, dtypes) = (Setup::new(64, 16).geometry, (Dtype::Bf16, Dtype::Bf16));
    let made = CudaBackend::new(&driver.config(), geometry, false, dtypes, false);
    let message = made.unwrap_err().to_string();
    assert!(message.contains("cuOccupancyMaxActiveBlocksPerMultiprocessor"), "{message}");
}

/// From compute capability 9 on a call's kernels begin before those before them have ended, but for
/// the first one; and each of them waits by itself.
#[test]
fn kernels_of_a_call_wait_for_each_other_by_themselves() {
    if is_real() {
        return;
    }
    for (capability, early) in [(8, 0), (9, 3), (10, 3)] {
        let mut world = World::new(Setup { capability, ..Setup::new(64, 16) }, 2);
        world.fill(0, 1100);
        world.fill(1, 45);
        let names = ["cuLaunchKernelEx", "cuLaunchKernel"];
        let before = names.map(|name| world.driver.calls(name));
        // Both shapes, and results that are merged.
        world.step(&[(0, 1), (1, 35)]);
        let [after, others] = names.map(|name| world.driver.calls(name));
        assert_eq!(after - before[0], early, "{capability}");
        assert!(others > before[1], "the first is launched as ever");
    }
}

/// A step waits for nothing and, once the plan has grown, allocates nothing.
#[test]
fn a_decode_step_asks_the_driver_for_little() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 2);
    world.fill(0, 100);
    for _ in 0..20 {
        world.step(&[(0, 1), (1, 1)]);
    }
    let names =
        ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2", "cuCtxSynchronize", "cuLaunchKernel"];
    let before = names.map(|name| world.driver.calls(name));
    let outcome = world.run(&[(0, 1), (1, 1)]).unwrap();
    assert_eq!(outcome.lse.len(), 2 * 4);
    let after = names.map(|name| world.driver.calls(name));
    let new: Vec<i32> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    // The test itself allocates and frees q, k, v, out and lse; K and V are written, rows of pages
    // brought up to date at most, attention launched.
    assert_eq!(new[0], 5, "cuMemAlloc");
    assert_eq!((new[1], new[3]), (0, 0), "pinned memory, synchronization");
    assert!(new[4] <= 3, "{} launches", new[4]);
}

/// A host that is many steps ahead of the device never overwrites what is on its way.
#[test]
fn staging_is_not_reused_too_early() {
    let mut world = World::new(Setup::new(64, 4), 2);
    world.fill(0, 30);
    world.fill(1, 3);
    for _ in 0..6 {
        world.step(&[(0, 3), (1, 1)]);
        world.step(&[(1, 2)]);
    }
}

#[test]
fn m04_a_failing_driver_is_an_error_and_the_next_step_is_right() {
    if is_real() {
        return;
    }
    let functions = [
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuEventQuery",
        "cuStreamIsCapturing",
        "cuStreamWaitEvent",
        "cuCtxPushCurrent_v2",
        "cuThreadExchangeStreamCaptureMode",
        "cuLaunchKernelEx",
    ];
    for name in functions {
        let mut failures = 0;
        for after in [0, 1, 3] {
            // Kernels are chained from 9 on.
            let capability = if name == "cuLaunchKernelEx" { 9 } else { 8 };
            let mut world = World::new(Setup { capability, ..Setup::new(64, 16) }, 2);
            world.step(&[(0, 5)]);
            world.fill(1, 1100);
            // Its memory is too small for this step, so that it must allocate.
            // ... except where what is asked is whether old memory is free again.
            let long = match name {
                "cuEventQuery" => vec![(0, 5)],
                _ => vec![(0, 60), (1, 1)],
            };
            let left = std::mem::replace(&mut world.stream, EngineStream::new());
            // Where there is none for what a step would like, less is asked for, and less again.
            let times = if name == "cuMemAlloc_v2" { 3 } else { 1 };
            world.failing = Some((name, after, times, 2));
            if let Err(message) = world.run(&long) {
                assert!(message.contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "{name}: {message}");
                failures += 1;
            }
            world.step(&long);
            drop(left);
        }
        assert!(failures > 0, "{name} was never called");
    }
}

/// Where there is no memory for as much as a step would like, what it needs does.
#[test]
fn m04_a_step_takes_what_it_needs_when_memory_is_short() {
    if is_real() {
        return;
    }
    let mut sizes = Vec::new();
    for times in [0, 1] {
        let mut grown = Vec::new();
        // Rows, arrays, and two kinds of partial results, each from nothing and from what is there.
        for (first, after) in
            [0, 5].into_iter().flat_map(|first| [0, 1, 2, 3].map(|at| (first, at)))
        {
            let mut world = World::new(Setup::new(64, 1), 1);
            if first > 0 {
                world.step(&[(0, first)]);
            }
            let chunks = [(0, 300)];
            let (batch, slots) = world.rows(&chunks);
            let buffers = Buffers::new(&world, batch.query_count());
            buffers.load(&world, &chunks);
            let number = world.next_number();
            let call = buffers.call(&world, StepOfPlan { number, batch: &batch, slots: &slots });
            let (before, stream) = (world.plan.bytes(), world.stream());
            if times > 0 {
                world.driver.fail_times("cuMemAlloc_v2", after, times, 2);
            }
            // SAFETY: device memory of these shapes, which lives until the end.
            let done = unsafe { world.backend.append_prefill(&call, &mut world.plan, stream) };
            world.driver.fail("", 0, 0);
            done.unwrap_or_else(|error| panic!("{first} {after}: {error}"));
            world.stream.synchronize();
            let outcome = buffers.outcome(batch.query_count()).unwrap();
            world.finish(&chunks, &outcome).unwrap();
            grown.push(world.plan.bytes() - before);
        }
        sizes.push(grown);
    }
    let [liked, needed] = [0, 1].map(|times| sizes[times].iter().sum::<usize>());
    assert!(needed < liked, "{sizes:?}");
}

/// What a call that failed had put on its stream comes before what the next one puts on another:
/// the engine uses k and v again by then.
#[test]
fn m04_the_next_call_waits_for_what_a_failed_one_began() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 1);
    let chunks = [(0, 5)];
    let (batch, slots) = world.rows(&chunks);
    let [old, new] = [0, 1].map(|_| Buffers::new(&world, batch.query_count()));
    [&old, &new].iter().for_each(|buffers| buffers.load(&world, &chunks));
    let bytes = 2 * 5 * 2 * 64;
    old.replace_kv(&vec![0; bytes]);
    let number = world.next_number();
    let step = StepOfPlan { number, batch: &batch, slots: &slots };
    // Rows of pages, K and V, and then no attention.
    world.driver.fail("cuLaunchKernel", 2, 2);
    let (failing, call) = (world.stream(), old.call(&world, step));
    // SAFETY: device memory of these shapes, which lives until the end.
    let failed = unsafe { world.backend.append_prefill(&call, &mut world.plan, failing) };
    assert!(failed.is_err());
    world.driver.fail("", 0, 0);
    let left = std::mem::replace(&mut world.stream, EngineStream::new());
    let (stream, call) = (world.stream(), new.call(&world, step));
    // SAFETY: as above.
    unsafe { world.backend.append_prefill(&call, &mut world.plan, stream) }.unwrap();
    world.stream.synchronize();
    let outcome = new.outcome(batch.query_count()).unwrap();
    left.synchronize();
    world.finish(&chunks, &outcome).unwrap();
}

/// The same of copies of pages.
#[test]
fn m04_copies_wait_for_those_that_a_failed_call_began() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 1);
    world.fill(0, 48);
    let (pages, target) = (world.sequences[0].pages.clone(), world.take_page());
    let copy = |from: usize| [PageCopy { source: pages[from], target, positions: 16 }];
    // A layer of other strides is a launch of its own, which fails.
    let (layer, mut other) = (world.layer(), world.layer());
    other.strides.page *= 2;
    world.driver.fail("cuLaunchKernel", 1, 2);
    // SAFETY: pages of this world, and the second layer is not reached.
    let failed = unsafe { world.backend.copy_pages(&[layer, other], &copy(0), world.stream()) };
    assert!(failed.is_err());
    world.driver.fail("", 0, 0);
    let left = std::mem::replace(&mut world.stream, EngineStream::new());
    world.copy_pages(&copy(1));
    left.synchronize();
    world.sequences[0].pages[1] = target;
    world.step(&[(0, 1)]);
}

/// After a fault of the device every call says so.
#[test]
fn m04_a_lost_device_is_reported() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 1);
    world.step(&[(0, 20)]);
    world.failing = Some(("cuLaunchKernel", 0, 1, 719));
    let message = world.run(&[(0, 1)]).unwrap_err();
    assert!(message.contains("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719)"), "{message}");
    let code = 719;
    let error = Error::Device { code, text: "cuLaunchKernel: ...".into() };
    assert_eq!(error.to_string(), "cuLaunchKernel: ...");
    world.step(&[(0, 1)]);
}

/// No memory for the kernels is not the same as kernels for another device.
#[test]
fn m04_no_memory_for_the_kernels_is_said_as_such() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    let (geometry, dtypes) = (Setup::new(64, 16).geometry, (Dtype::Bf16, Dtype::Bf16));
    let make = || CudaBackend::new(&driver.config(), geometry, false, dtypes, false).unwrap_err();
    driver.fail("cuLibraryLoadData", 0, 2);
    let error = make();
    driver.fail("cuLibraryLoadData", 0, 719);
    let lost = make();
    driver.fail("cuLibraryLoadData", 0, 209);
    let foreign = make();
    // Where images are loaded lazily it is found out later.
    driver.fail("cuKernelGetFunction", 3, 222);
    let lazily = make();
    driver.fail("", 0, 0);
    assert!(matches!(error, Error::DeviceMemory(_)), "{error}");
    assert!(matches!(lost, Error::Device { code: 719, .. }), "{lost}");
    assert!(matches!(foreign, Error::Unsupported(_)), "{foreign}");
    assert!(matches!(lazily, Error::Unsupported(_)), "{lazily}");
}

/// What can be computed is asked before anything is made: kernels that this device or this driver
/// does not take, or that are not there, are found out by then.
#[test]
fn m04_kernels_that_do_not_run_are_not_supported() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    let geometry = Setup::new(64, 16).geometry;
    let dtypes = (Dtype::Bf16, Dtype::Bf16);
    let ask = || CudaBackend::supports(&driver.config(), &geometry, false, dtypes, false);
    ask().unwrap();
    let wrong =
        [("cuLibraryLoadData", 209), ("cuKernelGetFunction", 222), ("cuLibraryGetKernel", 500)];
    for (name, code) in wrong {
        driver.fail(name, 0, code);
        let refused = ask();
        driver.fail("", 0, 0);
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{name}: {refused:?}");
    }
    driver.fail("cuLibraryLoadData", 0, 2);
    let refused = ask();
    driver.fail("", 0, 0);
    assert!(matches!(refused, Err(Error::DeviceMemory(_))), "{refused:?}");
}

/// What is asked is what is made: where results must not depend on the batch, kernels for Hopper's
/// own instructions are not loaded, so they may be missing.
#[test]
fn m04_kernels_that_are_not_loaded_are_not_asked_for() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    driver.capability(9);
    let with_sm90 = CudaConfig { sm90: Some(true), ..driver.config() };
    let ask = |batch_invariant| {
        // The common image is the first one.
        driver.fail("cuLibraryLoadData", 1, 209);
        let config = RunnerConfig { batch_invariant, ..runner::config() };
        let asked = config.supports(16, &with_sm90.into());
        driver.fail("", 0, 0);
        asked
    };
    let refused = ask(false);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    ask(true).unwrap();
}
