//! A runner's steps as replays of one graph of all layers: prefix reuse, page copies, forks and
//! decoding, beside a runner on the processor.
use super::device::{
    EngineStream, Graph, Memory, begin_capture, end_invalid_capture, invalidate_captures,
};
use super::emulator::is_real;
use super::memory::poison;
use super::runner::{
    DIM, Engine, HEADS, KV_HEADS, LAYERS, Pair, Rows, check_near, inputs, numbers,
};
use radixkv::attention::{Capacity, Region, RowMask};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::plan::{Plan, PlanRow};
use radixkv::sequence::ComputedRow;
use radixkv::token::TokenList;

const MOST: Capacity = Capacity {
    rows: 3,
    positions: 40,
    row_positions: 40,
    pages: 30,
    regions: false,
    trees: false,
    cascade: true,
};

/// A graph of a step in every layer, and the tensors of each.
struct Captured {
    graph: Graph,
    layers: Vec<[Memory; 4]>,
}

fn stream(engine: &Engine) -> &EngineStream {
    engine.stream.as_ref().expect("it is on the device")
}

fn upload(engine: &Engine) -> Result<(), Error> {
    // SAFETY: nobody else computes the rows.
    unsafe { engine.runner.prepare_plan(&engine.plan, false, engine.raw_stream()) }
}

fn reserve(engine: &Engine, capacity: &Capacity) -> Result<(), Error> {
    engine.plan.reserve(capacity)?;
    engine.runner.reserve_plan(&engine.plan)
}

/// Captures the step that was sent.
fn try_capture(engine: &Engine) -> Result<Captured, Error> {
    let bytes = |heads: usize| poison(2 * MOST.positions * heads * DIM);
    let layers: Vec<_> = (0..LAYERS)
        .map(|_| [HEADS, KV_HEADS, KV_HEADS, HEADS].map(|heads| Memory::of(&bytes(heads))))
        .collect();
    let graph = Graph::capture(stream(engine), || {
        layers.iter().enumerate().try_for_each(|(layer, [q, k, v, out])| {
            let given = [q, k, v].map(Memory::address);
            // SAFETY: there is room for all that was reserved.
            unsafe { engine.append(layer, given, out.address()) }
        })
    })?;
    Ok(Captured { graph, layers })
}

impl Captured {
    fn load(&self, rows: Rows<'_>) {
        for (layer, tensors) in self.layers.iter().enumerate() {
            for (memory, bytes) in tensors.iter().zip(inputs(layer, rows)) {
                memory.write(0, &bytes);
            }
            tensors[3].write(0, &poison(2 * MOST.positions * HEADS * DIM));
        }
    }

    /// Launches it, and returns what came out in every layer.
    fn launch(&self, engine: &Engine, rows: Rows<'_>) -> Vec<f32> {
        self.graph.launch(stream(engine));
        stream(engine).synchronize();
        let positions: usize = rows.iter().map(|(_, ids, start)| ids.len() - start).sum();
        let whole = |tensors: &[Memory; 4]| {
            let mut out = numbers(&tensors[3].read());
            let rest = out.split_off(positions * HEADS * DIM);
            assert!(rest.iter().all(|number| number.is_nan()));
            out
        };
        self.layers.iter().flat_map(whole).collect()
    }
}

/// Both engines do the same, the one on the device by replaying.
struct Replaying {
    // Goes before the device does.
    captured: Option<Captured>,
    pair: Pair,
}

impl Replaying {
    fn new() -> Self {
        Self { captured: None, pair: Pair::new() }
    }

    /// A step of rows that both engines have by these ids.
    fn step(&mut self, ids: &[[SequenceId; 2]], tokens: &[(&[u32], usize)]) {
        let rows = |at: usize| -> Vec<(SequenceId, &[u32], usize)> {
            let row = |(ids, (tokens, start)): (&[SequenceId; 2], &_)| (ids[at], *tokens, *start);
            ids.iter().zip(tokens).map(row).collect()
        };
        let [host, device] = &self.pair.engines;
        let expected = host.step(&rows(0));
        device.set(&rows(1)).unwrap();
        if self.captured.is_none() {
            reserve(device, &MOST).unwrap();
            upload(device).unwrap();
            self.captured = Some(try_capture(device).unwrap());
        }
        let captured = self.captured.as_ref().expect("it was captured");
        captured.load(&rows(1));
        upload(device).unwrap();
        let replayed = captured.launch(device, &rows(1));
        check_near(&expected, &replayed);
        // A call of its own for each layer gives the same bits.
        assert_eq!(device.step(&rows(1)), replayed);
        for engine in &self.pair.engines {
            engine.shared.read().audit().unwrap();
        }
    }

    fn begin(&self, tokens: &[u32]) -> [SequenceId; 2] {
        [0, 1].map(|at| self.pair.engines[at].begin(tokens).0)
    }

    fn each<R>(&self, ids: [SequenceId; 2], does: impl Fn(&Engine, SequenceId) -> R) -> [R; 2] {
        [0, 1].map(|at| does(&self.pair.engines[at], ids[at]))
    }

    fn append(&self, ids: [SequenceId; 2], token: u32) {
        self.each(ids, |engine, id| {
            engine.shared.append(id, TokenList::text(&[token])).unwrap();
        });
    }
}

// K20, B07, B08
#[test]
fn b08_one_graph_serves_prompts_copies_and_decoding() {
    let mut both = Replaying::new();
    let mut first: Vec<u32> = (0..70).collect();
    let a = both.begin(&first);
    both.step(&[a], &[(&first[..40], 0)]);
    both.step(&[a], &[(&first, 40)]);
    both.each(a, |engine, id| engine.shared.write().publish(id, 70).unwrap());
    // 37 positions in common: the third page is copied by the upload, and the copy confirmed.
    let mut second = first[..37].to_vec();
    second.extend(500..510);
    let b = both.begin(&second);
    let open = |both: &Replaying| {
        both.each(b, |engine, id| engine.shared.read().sequence_info(id).unwrap().copy.is_some())
    };
    assert_eq!(open(&both), [true, true]);
    first.push(900);
    both.append(a, 900);
    both.step(&[b, a], &[(&second, 37), (&first, 70)]);
    assert_eq!(open(&both), [false, false]);
    // Rows of pages that grow, and a row that ends.
    for token in 0..10 {
        first.push(901 + token);
        second.push(950 + token);
        both.append(a, 901 + token);
        both.append(b, 950 + token);
        both.step(&[a, b], &[(&first, first.len() - 1), (&second, second.len() - 1)]);
    }
    both.each(b, |engine, id| engine.shared.write().release(id).unwrap());
    first.push(77);
    both.append(a, 77);
    both.step(&[a], &[(&first, first.len() - 1)]);
}

#[test]
fn forks_share_a_page_until_the_graph_copies_it() {
    let mut both = Replaying::new();
    let prompt: Vec<u32> = (0..37).collect();
    let a = both.begin(&prompt);
    both.step(&[a], &[(&prompt, 0)]);
    both.each(a, |engine, id| engine.shared.turn().retain(id).unwrap());
    let children = both.each(a, |engine, id| {
        let made = engine.shared.fork(id, 2, 1).unwrap();
        [made[0].id, made[1].id]
    });
    let [b, c] = [0, 1].map(|child| [children[0][child], children[1][child]]);
    let (mut left, mut right) = (prompt.clone(), prompt);
    for token in 0..12 {
        left.push(100 + token);
        right.push(200 + token);
        both.append(b, 100 + token);
        both.append(c, 200 + token);
        both.step(&[b, c], &[(&left, left.len() - 1), (&right, right.len() - 1)]);
    }
}

/// What is larger than was reserved is refused, and the plan is as it was.
#[test]
fn a_step_beyond_the_capacity_is_refused() {
    let mut both = Replaying::new();
    let tokens: Vec<u32> = (0..60).collect();
    let a = both.begin(&tokens);
    both.step(&[a], &[(&tokens[..20], 0)]);
    let engine = &both.pair.engines[1];
    let refused = |rows: Rows<'_>, word: &str| {
        let error = engine.set(rows).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    };
    refused(&[(a[1], &tokens[..], 0)], "position_count 60 is above the 40");
    let image = [Region { start: 20, end: 25 }];
    let row = PlanRow {
        row: ComputedRow::Sequence(a[1]),
        start: 20,
        count: 5,
        mask: RowMask::Causal,
        regions: &image,
        tree_masks: &[],
    };
    let error = engine.plan.set(&[row]).unwrap_err();
    assert!(error.to_string().contains("regions"), "{error}");
    let more = Capacity { rows: 4, ..MOST };
    let error = reserve(engine, &more).unwrap_err();
    assert!(matches!(error, Error::State(_)), "{error}");
    both.step(&[a], &[(&tokens[..60], 20)]);
}

#[test]
fn what_is_missing_before_a_capture_is_said() {
    let both = Replaying::new();
    let tokens: Vec<u32> = (0..20).collect();
    let a = both.begin(&tokens);
    let engine = &both.pair.engines[1];
    let refused = |done: Result<(), Error>, word: &str| {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::State(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    let capture = || try_capture(engine).map(|_| ());
    refused(upload(engine), "never set");
    engine.set(&[(a[1], &tokens, 0)]).unwrap();
    refused(capture(), "rkv_runner_reserve_plan()");
    refused(engine.runner.reserve_plan(&engine.plan), "rkv_plan_reserve()");
    reserve(engine, &MOST).unwrap();
    refused(capture(), "rkv_runner_prepare_plan()");
    upload(engine).unwrap();
    refused(Graph::capture(stream(engine), || upload(engine)).map(|_| ()), "captured");
    capture().unwrap();
    // The pages of a row that ended may be anybody's.
    engine.set(&[(a[1], &tokens, 0)]).unwrap();
    engine.shared.write().release(a[1]).unwrap();
    assert!(matches!(upload(engine).unwrap_err(), Error::StaleSequence(_)));
    assert!(matches!(capture().unwrap_err(), Error::StaleSequence(_)));
}

/// Tensors of a captured call have room for every step that fits, not for the one that was sent.
#[test]
fn tensors_too_small_for_the_capacity_are_refused() {
    let both = Replaying::new();
    let tokens: Vec<u32> = (0..20).collect();
    let a = both.begin(&tokens);
    let engine = &both.pair.engines[1];
    engine.set(&[(a[1], &tokens, 0)]).unwrap();
    reserve(engine, &MOST).unwrap();
    upload(engine).unwrap();
    // q of 20 positions, and the results right behind them.
    let of_step = 2 * tokens.len() * HEADS * DIM;
    let memory = Memory::of(&poison(2 * of_step + 4 * MOST.positions * KV_HEADS * DIM * 2));
    let at = |offset: usize| memory.address().wrapping_add(offset);
    let kv = [2 * of_step, 2 * of_step + 2 * MOST.positions * KV_HEADS * DIM];
    // SAFETY: refused before anything is launched, or there is room.
    let append = || unsafe { engine.append(0, [at(0), at(kv[0]), at(kv[1])], at(of_step)) };
    let error = Graph::capture(stream(engine), append).err().unwrap().to_string();
    assert!(error.contains("out overlaps") && error.contains("40 reserved"), "{error}");
    append().unwrap();
    stream(engine).synchronize();
}

/// Each call of the driver that an upload makes fails once: copies stay open, nothing is lost, and
/// the next attempt is right.
#[test]
fn m04_an_upload_that_fails_leaves_copies_open() {
    if is_real() {
        return;
    }
    let functions = [
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamIsCapturing",
        "cuCtxPushCurrent_v2",
        "cuEventQuery",
        "cuMemHostAlloc",
    ];
    for name in functions {
        let mut both = Replaying::new();
        let first: Vec<u32> = (0..39).collect();
        let a = both.begin(&first);
        both.step(&[a], &[(&first, 0)]);
        both.each(a, |engine, id| engine.shared.write().publish(id, 39).unwrap());
        let mut failures = 0;
        for after in 0..3 {
            let mut tokens = first[..21].to_vec();
            tokens.extend(500 + 10 * after..503 + 10 * after);
            let b = both.begin(&tokens);
            let engine = &both.pair.engines[1];
            engine.set(&[(b[1], &tokens, 21)]).unwrap();
            both.pair.driver.fail(name, after as i32, 2);
            let failed = upload(engine).is_err();
            both.pair.driver.fail("", 0, 0);
            failures += usize::from(failed);
            let copy = engine.shared.read().sequence_info(b[1]).unwrap().copy;
            assert_eq!(copy.is_some(), failed, "{name}");
            engine.shared.read().audit().unwrap();
            // The same step once more, then as both do it.
            upload(engine).unwrap();
            assert!(engine.shared.read().sequence_info(b[1]).unwrap().copy.is_none(), "{name}");
            both.step(&[b], &[(&tokens, 21)]);
            both.each(b, |engine, id| engine.shared.write().release(id).unwrap());
        }
        assert!(failures > 0, "{name} was never called");
    }
}

/// Two plans may be set with chunks of one sequence before the first is computed: its copy is
/// carried out once.
#[test]
fn b08_a_copy_belongs_to_whichever_step_is_sent_first() {
    let pair = Pair::new();
    let first: Vec<u32> = (0..40).collect();
    pair.prefill(&first, 40);
    let mut tokens = first[..21].to_vec();
    tokens.extend(700..710);
    let engine = &pair.engines[1];
    let (id, start) = engine.begin(&tokens);
    assert_eq!(start, 21);
    let later = Plan::new(engine.shared.clone()).unwrap();
    let row = PlanRow {
        row: ComputedRow::Sequence(id),
        start: 25,
        count: 6,
        mask: RowMask::Causal,
        regions: &[],
        tree_masks: &[],
    };
    later.set(&[row]).unwrap();
    engine.step(&[(id, &tokens[..25], 21)]);
    assert!(engine.shared.read().sequence_info(id).unwrap().copy.is_none());
    // SAFETY: nobody else computes the rows.
    unsafe { engine.runner.prepare_plan(&later, false, engine.raw_stream()).unwrap() };
}

/// M04: a capture that became invalid takes no calls, and the plan is none the worse for it.
#[test]
fn m04_an_invalid_capture_takes_no_calls() {
    let both = Replaying::new();
    let tokens: Vec<u32> = (0..20).collect();
    let a = both.begin(&tokens);
    let engine = &both.pair.engines[1];
    engine.set(&[(a[1], &tokens, 0)]).unwrap();
    reserve(engine, &MOST).unwrap();
    upload(engine).unwrap();
    let room = Memory::of(&poison(8 * MOST.positions * HEADS * DIM));
    let at = |which: usize| room.address().wrapping_add(which * 2 * MOST.positions * HEADS * DIM);
    begin_capture(stream(engine));
    invalidate_captures();
    // SAFETY: there is room for all that was reserved.
    let refused = unsafe { engine.append(0, [at(0), at(1), at(2)], at(3)) };
    end_invalid_capture(stream(engine));
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::State(_)), "{error}");
    assert!(error.to_string().contains("invalid"), "{error}");
    reserve(engine, &Capacity { rows: 4, ..MOST }).unwrap();
    upload(engine).unwrap();
}
