//! Calls that are captured into a graph once, and replayed for steps of any size that was reserved.
use super::buffers::Buffers;
use super::device::Graph;
use super::emulator::{Conduct, has_faults, is_real};
use super::faults::{FAULTS, OF_GRAPHS};
use super::hopper::has_hopper;
use super::world::{Outcome, Setup, World};
use radixkv::attention::{Capacity, Dtype, Region};
use radixkv::error::Error;
use radixkv::gpu::StepOfPlan;

type Chunks<'a> = &'a [(usize, usize)];

fn capacity(rows: usize, row_positions: usize, pages: usize) -> Capacity {
    let positions = rows * row_positions;
    Capacity { rows, positions, row_positions, pages, regions: false, trees: false, cascade: true }
}

/// A graph, and the tensors that it reads and writes.
struct Captured {
    graph: Graph,
    buffers: Buffers,
}

/// Sends the next step.
fn upload(world: &mut World, chunks: Chunks<'_>) -> Result<u64, Error> {
    let (batch, slots) = world.rows(chunks);
    let number = world.next_number();
    let step = StepOfPlan { number, batch: &batch, slots: &slots };
    let stream = world.stream();
    // SAFETY: nobody else uses the plan.
    unsafe { world.backend.upload(&step, &mut world.plan, stream) }.map(|()| number)
}

fn try_capture(
    world: &mut World,
    number: u64,
    chunks: Chunks<'_>,
    room: usize,
) -> Result<Captured, Error> {
    let (batch, slots) = world.rows(chunks);
    let buffers = Buffers::new(world, room);
    let mut call = buffers.call(world, StepOfPlan { number, batch: &batch, slots: &slots });
    call.is_captured = true;
    let stream = world.stream();
    let graph = Graph::capture(&world.stream, || {
        assert!(world.backend.is_captured(stream).unwrap());
        // SAFETY: the buffers have room for all that was reserved, and live as long as the graph.
        unsafe { world.backend.append_prefill(&call, &mut world.plan, stream) }
    })?;
    Ok(Captured { graph, buffers })
}

/// Reserves, sends a first step and captures it.
fn capture(world: &mut World, capacity: &Capacity, chunks: Chunks<'_>) -> Captured {
    world.backend.reserve(capacity, &mut world.plan).unwrap();
    let number = upload(world, chunks).unwrap();
    try_capture(world, number, chunks, capacity.positions).unwrap()
}

fn replay(world: &mut World, captured: &Captured, chunks: Chunks<'_>) -> Outcome {
    captured.buffers.load(world, chunks);
    upload(world, chunks).unwrap();
    captured.graph.launch(&world.stream);
    world.stream.synchronize();
    let positions = chunks.iter().map(|chunk| chunk.1).sum();
    captured.buffers.outcome(positions).unwrap_or_else(|| panic!("{}", world.driver.fault()))
}

/// Replays each step, compares it with attention in f64, and with a call that is not captured.
fn check_replays(world: &mut World, captured: &Captured, steps: &[Chunks<'_>]) {
    for chunks in steps {
        let outcome = replay(world, captured, chunks);
        assert_eq!(world.run(chunks).unwrap(), outcome, "the same bits: {chunks:?}");
        world.finish(chunks, &outcome).unwrap_or_else(|wrong| panic!("{wrong}\n{chunks:?}"));
    }
}

/// K21: a graph with a window serves no contexts, whose queries see all that there is.
#[test]
fn k21_a_graph_with_a_window_serves_no_contexts() {
    let mut setup = Setup::new(64, 16);
    setup.params.view.window = Some(8);
    let mut world = World::new(setup, 2);
    world.fill(0, 40);
    world.fill(1, 40);
    world.sequences[1].is_context = true;
    let captured = capture(&mut world, &capacity(2, 1, 40), &[(0, 1)]);
    let error = upload(&mut world, &[(0, 1), (1, 1)]).unwrap_err();
    assert!(matches!(error, Error::State(_)), "{error}");
    check_replays(&mut world, &captured, &[&[(0, 1)]]);
}

/// Rows that grow over pages and tiles, come and go, and are long enough to be split, or not.
fn decode_steps(world: &mut World) {
    for (sequence, count) in [(0, 62), (1, 130), (2, 15), (3, 700)] {
        world.fill(sequence, count);
    }
    let captured = capture(world, &capacity(4, 1, 80), &[(0, 1), (1, 1)]);
    let all: Chunks<'_> = &[(2, 1), (0, 1), (1, 1), (3, 1)];
    check_replays(
        world,
        &captured,
        &[&[(0, 1), (1, 1)], &[(0, 1)], all, &[(3, 1)], all, &[(1, 1), (2, 1), (0, 1)], all],
    );
}

#[test]
fn one_graph_serves_all_decode_steps_that_fit() {
    for late in [true, false] {
        for (head_dim, page_size) in [(64, 16), (128, 3)] {
            let mut setup = Setup::new(head_dim, page_size);
            setup.pages = 2048;
            setup.sinks = late;
            let mut world = World::new(setup, 4);
            world.driver.conduct(Conduct { late, ..Conduct::default() });
            if page_size == 16 {
                decode_steps(&mut world);
                continue;
            }
            world.fill(0, 500);
            let captured = capture(&mut world, &capacity(2, 1, 200), &[(0, 1)]);
            check_replays(&mut world, &captured, &[&[(1, 1), (0, 1)], &[(0, 1)], &[(1, 1)]]);
        }
    }
}

#[test]
fn every_kind_of_kernel_goes_into_a_graph() {
    let fp8 = Setup::new(64, 16).dtypes(Dtype::F16, Dtype::Fp8E4m3);
    let mut invariant = Setup::new(64, 16);
    invariant.batch_invariant = true;
    let mut masked = Setup::new(64, 16);
    (masked.params.view.window, masked.params.soft_cap) = (Some(50), Some(20.0));
    let wide = Setup::new(64, 16).heads(160, 1);
    for setup in [fp8, invariant, masked, wide, Setup::new(256, 16)] {
        let mut world = World::new(setup, 2);
        world.fill(0, 600);
        world.fill(1, 20);
        let captured = capture(&mut world, &capacity(2, 1, 60), &[(0, 1), (1, 1)]);
        check_replays(&mut world, &captured, &[&[(1, 1)], &[(1, 1), (0, 1)], &[(0, 1)]]);
    }
}

/// K20
#[test]
fn k20_chunks_of_prompts_go_into_a_graph() {
    for sm90 in [false, true] {
        if sm90 && !has_hopper() {
            continue;
        }
        let mut setup = Setup::new(64, 16).heads(8, 2);
        setup.sm90 = sm90;
        let mut world = World::new(setup, 3);
        world.fill(1, 400);
        let most = Capacity { positions: 90, ..capacity(3, 60, 60) };
        let captured = capture(&mut world, &most, &[(0, 33)]);
        check_replays(
            &mut world,
            &captured,
            &[
                &[(0, 33)],
                &[(1, 40), (0, 50)],
                &[(2, 1), (1, 1), (0, 1)],
                &[(2, 60), (1, 5)],
                &[(0, 5), (2, 30), (1, 1)],
            ],
        );
    }
}

/// K21
#[test]
fn k21_regions_that_were_reserved_may_come_and_go() {
    let mut world = World::new(Setup::new(64, 16), 2);
    world.sequences[0].regions = vec![Region { start: 3, end: 40 }, Region { start: 60, end: 97 }];
    let most = Capacity { regions: true, ..capacity(2, 70, 30) };
    let captured = capture(&mut world, &most, &[(1, 20)]);
    check_replays(
        &mut world,
        &captured,
        &[&[(1, 20)], &[(0, 59)], &[(0, 40), (1, 1)], &[(1, 64), (0, 1)]],
    );
}

/// Rows that begin with the same pages attend to them together in one step, and not in the next.
#[test]
fn shared_starts_appear_and_vanish() {
    for cascade in [true, false] {
        let mut setup = Setup::new(64, 16);
        setup.pages = 400;
        let mut world = World::new(setup, 6);
        world.fill(0, 640);
        for to in 1..5 {
            world.share(0, to, 32 + to);
            world.fill(to, 10 * to);
        }
        world.fill(5, 40);
        let most = Capacity { cascade, ..capacity(6, 1, 260) };
        let captured = capture(&mut world, &most, &[(5, 1)]);
        let all: Vec<_> = (0..6).map(|sequence| (sequence, 1)).collect();
        check_replays(&mut world, &captured, &[&[(5, 1)], &all, &[(1, 1), (5, 1)], &all]);
    }
}

/// A host that is steps ahead of the device: two graphs of one plan take turns, each with tensors
/// of its own, and nothing is waited for.
#[test]
fn a_host_that_runs_ahead_overwrites_nothing() {
    let mut world = World::new(Setup::new(64, 4), 2);
    world.fill(0, 300);
    world.fill(1, 3);
    let chunks: Chunks<'_> = &[(0, 1), (1, 1)];
    world.backend.reserve(&capacity(2, 1, 100), &mut world.plan).unwrap();
    let number = upload(&mut world, chunks).unwrap();
    let graphs: Vec<_> =
        (0..3).map(|_| try_capture(&mut world, number, chunks, 2).unwrap()).collect();
    let starts = [world.sequences[0].positions, world.sequences[1].positions];
    let at = |world: &mut World, step: usize| {
        (0..2).for_each(|sequence| world.sequences[sequence].positions = starts[sequence] + step);
    };
    for (step, captured) in graphs.iter().enumerate() {
        at(&mut world, step);
        captured.buffers.load(&world, chunks);
    }
    for (step, captured) in graphs.iter().enumerate() {
        at(&mut world, step);
        upload(&mut world, chunks).unwrap();
        captured.graph.launch(&world.stream);
    }
    world.stream.synchronize();
    for (step, captured) in graphs.iter().enumerate() {
        at(&mut world, step);
        let outcome = captured.buffers.outcome(2).unwrap();
        world.finish(chunks, &outcome).unwrap();
    }
}

#[test]
fn what_is_missing_before_a_capture_is_said() {
    let mut world = World::new(Setup::new(64, 16), 2);
    world.fill(0, 100);
    let refused = |made: Result<Captured, Error>, word: &str| {
        let error = made.err().expect("it is refused");
        assert!(matches!(error, Error::State(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    let chunks: Chunks<'_> = &[(0, 1)];
    let number = upload(&mut world, chunks).unwrap();
    refused(try_capture(&mut world, number, chunks, 1), "rkv_runner_reserve_plan()");
    world.backend.reserve(&capacity(1, 1, 20), &mut world.plan).unwrap();
    // What was reserved lies elsewhere than what was sent.
    refused(try_capture(&mut world, number, chunks, 1), "rkv_runner_prepare_plan()");
    let number = upload(&mut world, chunks).unwrap();
    refused(try_capture(&mut world, number + 1, chunks, 1), "rkv_runner_prepare_plan()");
    let stream = world.stream();
    let (batch, slots) = world.rows(chunks);
    let step = StepOfPlan { number: number + 7, batch: &batch, slots: &slots };
    let inside = Graph::capture(&world.stream, || {
        // SAFETY: nobody else uses the plan.
        unsafe { world.backend.upload(&step, &mut world.plan, stream) }
    });
    assert!(inside.err().expect("it is refused").to_string().contains("captured"));
    let captured = try_capture(&mut world, number, chunks, 1).unwrap();
    // From here on nothing may move.
    let larger = world.backend.reserve(&capacity(2, 1, 40), &mut world.plan).unwrap_err();
    assert!(larger.to_string().contains("captured graph"), "{larger}");
    check_replays(&mut world, &captured, &[chunks, chunks]);
}

/// A kernel that computes more than there is of a step is found.
#[test]
fn a_fault_that_only_graphs_show_is_found() {
    if !has_faults() {
        return;
    }
    assert_eq!(FAULTS[OF_GRAPHS - 1], "blocks behind the end of a step stay");
    let mut world = World::new(Setup::new(64, 16), 2);
    world.fill(0, 700);
    let captured = capture(&mut world, &capacity(2, 1, 60), &[(0, 1), (1, 1)]);
    check_replays(&mut world, &captured, &[&[(0, 1), (1, 1)], &[(0, 1)]]);
    world.driver.conduct(Conduct { fault: OF_GRAPHS as i32, ..Conduct::default() });
    let replayed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check_replays(&mut world, &captured, &[&[(1, 1)]]);
    }));
    assert!(replayed.is_err(), "{} was not found", FAULTS[OF_GRAPHS - 1]);
    world.driver.fault();
}

/// Reserving in vain, for want of memory, leaves a plan that works.
#[test]
fn m04_memory_that_cannot_be_reserved() {
    if is_real() {
        return;
    }
    for after in 0..4 {
        let mut world = World::new(Setup::new(64, 16), 2);
        world.step(&[(0, 5), (1, 30)]);
        world.driver.fail("cuMemAlloc_v2", after, 2);
        let failed = world.backend.reserve(&capacity(2, 40, 100), &mut world.plan).unwrap_err();
        assert!(matches!(failed, Error::DeviceMemory(_)), "{failed}");
        world.step(&[(0, 1), (1, 50)]);
        let captured = capture(&mut world, &capacity(2, 40, 100), &[(0, 1)]);
        check_replays(&mut world, &captured, &[&[(1, 40), (0, 1)], &[(1, 1)]]);
    }
}

/// What was reserved before is kept, and is less than what is reserved now, which may be twice what
/// was asked for; however often that grows.
#[test]
fn what_was_reserved_before_is_less_than_what_is_reserved_now() {
    let bytes_of = |most: std::ops::RangeInclusive<usize>| {
        let mut world = World::new(Setup::new(64, 16), 2);
        for rows in most {
            world.backend.reserve(&capacity(rows, rows, 20 * rows), &mut world.plan).unwrap();
        }
        world.step(&[(0, 5), (1, 30)]);
        world.plan.bytes()
    };
    let (grown, at_once) = (bytes_of(2..=50), bytes_of(50..=50));
    assert!(grown < 4 * at_once, "{grown} bytes, where {at_once} do");
}

/// Where there is no memory for twice what was reserved before, what is needed does.
#[test]
fn m04_what_is_reserved_anew_is_what_is_needed_when_memory_is_short() {
    if is_real() {
        return;
    }
    let mut sizes = Vec::new();
    // One of the four buffers has room as it is.
    for after in [0, 1, 2, i32::MAX] {
        let mut world = World::new(Setup::new(64, 16), 2);
        world.backend.reserve(&capacity(40, 40, 800), &mut world.plan).unwrap();
        let before = world.plan.bytes();
        world.driver.fail("cuMemAlloc_v2", after, 2);
        world.backend.reserve(&capacity(41, 41, 820), &mut world.plan).unwrap();
        world.driver.fail("", 0, 0);
        sizes.push(world.plan.bytes() - before);
        let captured = capture(&mut world, &capacity(41, 41, 820), &[(0, 1)]);
        check_replays(&mut world, &captured, &[&[(1, 40), (0, 1)], &[(1, 1)]]);
    }
    let doubled = sizes.pop().unwrap();
    assert!(sizes.iter().all(|&size| 3 * size < 2 * doubled), "{sizes:?} bytes, and {doubled}");
}

/// Every call of the driver that sending makes fails once; the next attempt is right.
#[test]
fn m04_a_step_that_cannot_be_sent_is_sent_again() {
    if is_real() {
        return;
    }
    let functions = [
        "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuEventCreate",
        "cuEventQuery",
        "cuStreamIsCapturing",
        "cuCtxPushCurrent_v2",
    ];
    for name in functions {
        // Each new position has a page of its own: there are rows to bring up to date.
        let mut world = World::new(Setup::new(64, 1), 2);
        world.fill(0, 700);
        world.fill(1, 15);
        let chunks: Chunks<'_> = &[(0, 1), (1, 1)];
        let captured = capture(&mut world, &capacity(2, 1, 800), chunks);
        let mut failures = 0;
        for step in 0..4 {
            captured.buffers.load(&world, chunks);
            // A device that is behind has pinned memory in use.
            if step % 2 == 1 {
                upload(&mut world, chunks).unwrap();
                upload(&mut world, chunks).unwrap();
            }
            world.driver.fail(name, 0, 2);
            let sent = upload(&mut world, chunks);
            world.driver.fail("", 0, 0);
            failures += usize::from(sent.is_err());
            check_replays(&mut world, &captured, &[chunks]);
        }
        assert!(failures > 0, "{name} was never called");
    }
}

/// A replayed step costs its arrays, its rows and the graph: nothing is allocated or waited for.
#[test]
fn a_replayed_step_asks_the_driver_for_little() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 2);
    world.fill(0, 700);
    let chunks: Chunks<'_> = &[(0, 1), (1, 1)];
    let captured = capture(&mut world, &capacity(2, 1, 60), chunks);
    check_replays(&mut world, &captured, &[chunks, chunks]);
    let names = [
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuCtxSynchronize",
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
    ];
    captured.buffers.load(&world, chunks);
    let before = names.map(|name| world.driver.calls(name));
    upload(&mut world, chunks).unwrap();
    captured.graph.launch(&world.stream);
    let after = names.map(|name| world.driver.calls(name));
    let new: Vec<i32> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert_eq!(new[..4], [0, 0, 0, 1]);
    assert!(new[4] <= 1, "{} launches besides the graph", new[4]);
}

/// M04: a plan that goes while a stream is captured gives back what it has, and the capture is none
/// the worse for it.
#[test]
fn m04_a_plan_may_go_while_a_stream_is_captured() {
    if is_real() {
        return;
    }
    let mut world = World::new(Setup::new(64, 16), 2);
    world.fill(0, 100);
    let chunks: Chunks<'_> = &[(0, 1)];
    world.backend.reserve(&capacity(1, 1, 20), &mut world.plan).unwrap();
    let number = upload(&mut world, chunks).unwrap();
    let (batch, slots) = world.rows(chunks);
    let buffers = Buffers::new(&world, 1);
    let before = world.driver.memory();
    let mut other = world.backend.new_plan().unwrap();
    world.backend.reserve(&capacity(2, 1, 40), &mut other).unwrap();
    assert!(world.driver.memory() > before);
    let mut call = buffers.call(&world, StepOfPlan { number, batch: &batch, slots: &slots });
    call.is_captured = true;
    let stream = world.stream();
    let graph = Graph::capture(&world.stream, || {
        drop(other);
        // SAFETY: the buffers have room for all that was reserved, and live as long as the graph.
        unsafe { world.backend.append_prefill(&call, &mut world.plan, stream) }
    })
    .unwrap();
    assert_eq!(world.driver.memory(), before);
    check_replays(&mut world, &Captured { graph, buffers }, &[chunks, chunks]);
}

/// M04: what was allocated for a reservation that failed is given back.
#[test]
fn m04_a_reservation_that_fails_leaves_no_memory() {
    if is_real() {
        return;
    }
    for after in 0..4 {
        let mut world = World::new(Setup::new(64, 16), 2);
        world.step(&[(0, 5), (1, 30)]);
        let before = world.driver.memory();
        world.driver.fail("cuMemAlloc_v2", after, 2);
        world.backend.reserve(&capacity(2, 40, 100), &mut world.plan).unwrap_err();
        assert_eq!(world.driver.memory(), before, "{after}");
    }
}

/// M04: a call into a graph that put nothing there leaves the plan as it was; one that put
/// something there before it failed does not.
#[test]
fn m04_a_captured_call_that_puts_nothing_into_the_graph_fixes_nothing() {
    if is_real() {
        return;
    }
    for (after, is_fixed) in [(0, false), (1, true)] {
        let mut setup = Setup::new(64, 16);
        setup.params.view.window = Some(8);
        let mut world = World::new(setup, 2);
        world.fill(0, 40);
        world.fill(1, 40);
        let chunks: Chunks<'_> = &[(0, 1)];
        world.backend.reserve(&capacity(2, 1, 40), &mut world.plan).unwrap();
        let number = upload(&mut world, chunks).unwrap();
        world.driver.fail("cuLaunchKernel", after, 901);
        let failed = try_capture(&mut world, number, chunks, 2).err().unwrap();
        assert!(matches!(failed, Error::Device { code: 901, .. }), "{failed}");
        assert_eq!(world.plan.is_captured(), is_fixed);
        // Contexts take no window, and none was captured.
        world.sequences[1].is_context = true;
        assert_eq!(upload(&mut world, &[(0, 1), (1, 1)]).is_err(), is_fixed);
        world.sequences[1].is_context = false;
        let more = capacity(2, 2, 60);
        assert_eq!(world.backend.reserve(&more, &mut world.plan).is_err(), is_fixed);
        if !is_fixed {
            let captured = capture(&mut world, &more, chunks);
            check_replays(&mut world, &captured, &[&[(1, 2), (0, 1)], chunks]);
        }
    }
}
