//! Streams that change from call to call of one plan: each call comes behind the last one, on the
//! device, with all that it does.
use super::device::{self, EngineStream, Graph, Memory};
use super::runner::{Engine, LAYERS, Pair, Rows, check_near, inputs, numbers, table};
use radixkv::error::Error;
use radixkv::gpu::CudaBackend;
use radixkv::paging::PageCopy;
use radixkv::runner::{Branch, Runner, States};
use radixkv::token::TokenList;
use std::ptr;

/// q, k, v and room for the results, of every layer. Made before anything is on a stream: to make
/// them waits for the emulated device.
fn tensors(rows: Rows<'_>) -> Vec<[Memory; 4]> {
    let of_layer = |layer| {
        let [q, k, v] = inputs(layer, rows);
        let out = vec![0xff; q.len()];
        [q, k, v, out].map(|bytes| Memory::of(&bytes))
    };
    (0..LAYERS).map(of_layer).collect()
}

/// Puts a step on the engine's stream, and does not wait for it.
fn put(engine: &Engine, rows: Rows<'_>, tensors: &[[Memory; 4]]) {
    engine.set(rows).unwrap();
    for (layer, [q, k, v, out]) in tensors.iter().enumerate() {
        let given = [q, k, v].map(Memory::address);
        // SAFETY: memory of these shapes, which lives until the device is done.
        unsafe { engine.append(layer, given, out.address()) }.unwrap();
    }
}

/// What came out, once the engine's stream is done.
fn results(engine: &Engine, tensors: &[[Memory; 4]]) -> Vec<f32> {
    engine.stream.as_ref().expect("it is on the device").synchronize();
    tensors.iter().flat_map(|[.., out]| numbers(&out.read())).collect()
}

#[test]
fn m04_copies_of_a_step_wait_for_what_the_last_call_writes() {
    let mut pair = Pair::new();
    let [host, device] = &mut pair.engines;
    let first: Vec<u32> = (0..40).collect();
    let second: Vec<u32> = first[..21].iter().copied().chain(700..710).collect();
    let begun = [&*host, &*device].map(|engine| engine.begin(&first).0);
    let there = [tensors(&[(begun[1], &first, 0)]), tensors(&[(begun[1], &second, 21)])];
    host.step(&[(begun[0], &first, 0)]);
    put(device, &[(begun[1], &first, 0)], &there[0]);
    for (engine, id) in [&*host, &*device].into_iter().zip(begun) {
        engine.shared.write().publish(id, 40).unwrap();
    }
    // The old stream goes when all is done.
    let left = device.stream.replace(EngineStream::new());
    let others = [&*host, &*device].map(|engine| engine.begin(&second));
    assert_eq!(others.map(|(_, cached)| cached), [21, 21]);
    let expected = host.step(&[(others[0].0, &second, 21)]);
    put(device, &[(others[1].0, &second, 21)], &there[1]);
    check_near(&expected, &results(device, &there[1]));
    drop(left);
}

#[test]
fn m04_a_branch_is_kept_behind_its_draft_and_before_the_next_step() {
    let pair = Pair::new();
    let prompt: Vec<u32> = (0..20).collect();
    let ids = pair.prefill(&prompt, 20).map(|(id, _)| id);
    let draft: Vec<u32> = prompt.iter().copied().chain([100, 101, 102]).collect();
    // The first and the third hold.
    let next: Vec<u32> = prompt.iter().copied().chain([100, 102, 103]).collect();
    let holds = [Branch { row: 0, positions: &[0, 2] }];
    let there = [tensors(&[(ids[1], &draft, 20)]), tensors(&[(ids[1], &next, 22)])];
    let [host, device] = &pair.engines;
    for (engine, id) in [host, device].into_iter().zip(ids) {
        engine.shared.append(id, TokenList::text(&draft[20..])).unwrap();
    }
    host.step(&[(ids[0], &draft, 20)]);
    put(device, &[(ids[1], &draft, 20)], &there[0]);
    let other = EngineStream::new();
    // SAFETY: computed in every layer; nobody else computes the rows.
    unsafe {
        host.runner.keep_branches(&host.plan, &holds, ptr::null_mut()).unwrap();
        device.runner.keep_branches(&device.plan, &holds, other.0.cast()).unwrap();
    }
    for (engine, id) in [host, device].into_iter().zip(ids) {
        engine.shared.write().truncate(id, 20).unwrap();
        engine.shared.append(id, TokenList::text(&next[20..])).unwrap();
    }
    let expected = host.step(&[(ids[0], &next, 22)]);
    put(device, &[(ids[1], &next, 22)], &there[1]);
    check_near(&expected, &results(device, &there[1]));
    drop(other);
}

/// M04: the legacy default stream cannot be used while a stream that waits for it is captured.
/// Calls on it say so, and the capture is none the worse for it.
#[test]
fn m04_the_default_stream_is_refused_while_a_blocking_stream_is_captured() {
    let mut pair = Pair::new();
    let device = &mut pair.engines[1];
    let tokens: Vec<u32> = (0..20).collect();
    let (id, _) = device.begin(&tokens);
    let there = tensors(&[(id, &tokens, 0)]);
    let own = device.stream.take();
    device.set(&[(id, &tokens, 0)]).unwrap();
    let pages = device.plan.current().step().batch_of(0).unwrap().pages().to_vec();
    let copies = [PageCopy { source: pages[0], target: pages[1], positions: 16 }];
    let blocking = EngineStream::blocking();
    let lses = Memory::of(&[0; 4 * 4 * 20]);
    let [q, k, v, out] = [0, 1, 2, 3].map(|at| there[0][at].address());
    let refused = |done: Result<(), Error>| {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::State(_)), "{error}");
        assert!(error.to_string().contains("default stream"), "{error}");
    };
    let on_default = |device: &super::runner::Engine| {
        let states = States {
            outs: &[q.cast_const()],
            lses: &[lses.address().cast_const().cast()],
            positions: 20,
            out,
            lse: ptr::null_mut(),
            stream: ptr::null_mut(),
        };
        // SAFETY: pages that nobody uses meanwhile; memory of these shapes.
        unsafe {
            [
                device.runner.copy_pages(&copies),
                device.runner.prepare_plan(&device.plan, false, ptr::null_mut()),
                device.append(0, [q, k, v], out),
                device.runner.merge_states(&states),
            ]
        }
    };
    let graph = Graph::capture(&blocking, || {
        on_default(device).into_iter().for_each(refused);
        Ok::<(), Error>(())
    });
    drop(graph);
    on_default(device).into_iter().for_each(Result::unwrap);
    device.stream = own;
    // SAFETY: memory of these shapes.
    unsafe { device.append(0, [q, k, v], out) }.unwrap();
}

/// M04: a runner with memory of its own is made while anybody captures, and the memory is clear.
#[test]
fn m04_memory_is_made_while_a_stream_is_captured() {
    let pair = Pair::new();
    for stream in [EngineStream::blocking(), EngineStream::new()] {
        let mut made = None;
        let graph = Graph::capture(&stream, || {
            let config = *pair.engines[1].runner.config();
            let runner = Runner::new(table(), config, pair.driver.config())?;
            let dtypes = (config.dtype, config.kv_dtype);
            let geometry = config.geometry(16);
            let backend = CudaBackend::new(&pair.driver.config(), geometry, false, dtypes, false)?;
            made = Some((runner, backend.allocate(1000)?));
            Ok::<(), Error>(())
        });
        graph.unwrap();
        let (_, memory) = made.expect("it was made");
        assert_eq!(device::read(memory.address(), memory.bytes()), Some(vec![0; 1000]));
    }
}
