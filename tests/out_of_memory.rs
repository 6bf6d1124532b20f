//! M05: every allocation of the core may fail. The random operations of the model test, each of
//! them tried again and again: with the first request for memory failing, then the second, and so
//! on, once alone and once with all that follow. A call that runs out of memory has changed
//! nothing: not the tree, not its ids and its order, no page, no count. A call that succeeds does
//! what the specification says, whatever failed before.
//!
//! `RKV_MODEL_STEPS` and `RKV_MODEL_SEED` make the runs longer and other ones.

mod failing;
#[path = "model/mod.rs"]
mod model;
#[path = "out_of_memory/long_inserts.rs"]
mod long_inserts;
#[path = "out_of_memory/long_ends.rs"]
mod long_ends;
#[path = "out_of_memory/batches.rs"]
mod batches;
#[path = "out_of_memory/children.rs"]
mod children;
#[path = "out_of_memory/publishing.rs"]
mod publishing;

use failing::{Failure, bytes_in_use, failing};
use model::abi::{Library, Status};
use model::generate::Theme;
use model::harness::{Kind, soak, soak_block_hash, soak_kind};
use model::ops::Config;
use model::prompt::{Piece, Prompt};
use model::tokens::TokenList;
use radixkv::capi::RKV_CLEAR_EVERYTHING;
use radixkv::error::Error;
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token as list;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

thread_local! {
    /// Set while a test looks at the library: those calls are none of the test's.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
    /// No call succeeded without some of the memory that it asked for.
    static COMPARABLE: Cell<bool> = const { Cell::new(true) };
}

/// Whether calls run out of memory.
const MEMORY_FAILS: bool = true;

/// Whether what follows can't be compared any more: a call did without memory that it asked for, so
/// nodes that it would have merged are still apart, which the specification knows nothing of.
fn ends_here() -> bool {
    !COMPARABLE.replace(true)
}

/// How many requests failed, by the call that made them.
static FAILED: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Everything that can be seen, but for how much room there is for more.
fn look(library: Option<&Library>) -> Option<String> {
    let library = library.filter(|library| library.is_whole())?;
    LOOKING.set(true);
    library.audit().unwrap();
    library.check().unwrap();
    let mut pages = library.table_stats().unwrap();
    pages.memory_bytes = 0;
    let mut cache = library.stats().unwrap();
    cache.index_bytes = 0;
    let seen = format!("{} {pages:?} {cache:?} {:?}", library.dump(), library.newest_record());
    LOOKING.set(false);
    Some(seen)
}

/// Makes a call with one more of its requests for memory failing each time, until it no longer runs
/// out of memory.
fn call(name: &'static str, library: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    if LOOKING.get() || BATCH_FAILURE.get().is_some() {
        return made();
    }
    let before = look(library);
    for request in 0.. {
        for failure in [Failure::From(request), Failure::Once(request)] {
            let (status, failed) = failing(failure, &mut *made);
            *FAILED
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .entry(name)
                .or_default() += failed;
            if status != Status::OutOfMemory {
                let exact = failed == 0 || status != Status::Ok || library.is_none();
                COMPARABLE.set(COMPARABLE.get() && exact);
                return status;
            }
            assert!(failed > 0, "{name} is out of memory, but there was some");
            assert_eq!(look(library), before, "{name} changed something before {failure:?}");
        }
    }
    unreachable!("a call ends")
}

/// Which request of a batch is to fail, and what came of it.
#[derive(Clone, Copy, Debug)]
struct BatchFailure {
    request: u64,
    failed: u64,
    /// The item that was out of memory.
    lacked: Option<usize>,
}

thread_local! {
    /// Set while batches alone run out of memory.
    static BATCH_FAILURE: Cell<Option<BatchFailure>> = const { Cell::new(None) };
}

/// Makes a call over many items, of which often one lacks memory: the others are carried out, and
/// the specification, which leaves that one out, knows of no trace of it. One item alone is tried
/// again and again, like a single call.
fn call_many(
    name: &'static str,
    library: &Library,
    statuses: &mut [Status],
    made: &mut dyn FnMut(&mut [Status]) -> Status,
) -> Status {
    if statuses.len() == 1 {
        let mut all = Status::Ok;
        call(name, Some(library), &mut || {
            all = made(statuses);
            if all == Status::Ok { statuses[0] } else { all }
        });
        return all;
    }
    // Any of the first few requests, by the number of the call, so that a run can be made again.
    let some = u64::from(library.batches().wrapping_mul(2_654_435_769) >> 28);
    let request = BATCH_FAILURE.get().map_or(some, |failure| failure.request);
    let (all, failed) = failing(Failure::Once(request), || made(statuses));
    let mut calls = FAILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *calls.entry(name).or_default() += failed;
    let is_lacking = |&at: &usize| statuses[at] == Status::OutOfMemory;
    let lacking: Vec<usize> = (0..statuses.len()).filter(is_lacking).collect();
    assert!(lacking.len() as u64 <= failed, "{name}: {failed} requests failed, {statuses:?}");
    COMPARABLE.set(COMPARABLE.get() && lacking.len() as u64 == failed);
    let lacked = lacking.first().copied();
    BATCH_FAILURE.set(BATCH_FAILURE.get().map(|_| BatchFailure { request, failed, lacked }));
    all
}

thread_local! {
    /// Whether calls that need no memory get none.
    static STARVED: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call that needs no memory: it succeeds, or is refused for another reason, also while
/// there is none. Nodes are merged later then, which the specification would see; so this is tested
/// apart.
fn call_sure(name: &'static str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    if !STARVED.get() {
        return made();
    }
    let (status, failed) = failing(Failure::From(0), &mut *made);
    *FAILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).entry(name).or_default() +=
        failed;
    assert_ne!(status, Status::OutOfMemory, "{name} needs memory");
    status
}

/// Operations of a theme: far fewer than without failures, since each is made many times.
const STEPS: u64 = 12_000;

// J03 J05
#[test]
fn m05_lookups_and_inserts() {
    let both = "a lock splits a node after the page to copy from";
    soak(Theme::Cache, 2 * STEPS, &["a match splits a node", "an insert splits a node", both]);
}

// J03 J05 J08
#[test]
fn m05_sequences() {
    let seen = [
        "a publish makes its node longer",
        "an allocation evicts",
        "a lock splits a node after the page to copy from",
        "a prompt gets pages for a further part",
        "an item goes on after one that lacks memory",
    ];
    // Evictions inside a call are rare here, and which requests fail depends on how many there are.
    soak(Theme::Sequences, 2 * STEPS, &seen);
}

#[test]
fn m05_sequences_in_a_small_pool() {
    soak(Theme::Pressure, STEPS, &["a begin gives reuse up", "refused for want of pages"]);
}

#[test]
fn m05_children() {
    soak(Theme::Children, STEPS, &["a child copies", "a fork into several"]);
}

#[test]
fn m05_the_page_table() {
    soak(Theme::PageTable, STEPS, &["an allocation evicts"]);
}

#[test]
fn m05_images() {
    soak(Theme::Images, 2 * STEPS, &["an image is cached in part", "a begin copies"]);
}

#[test]
fn m05_everything_at_once_with_block_hashes() {
    soak_block_hash(Theme::All, STEPS, &[]);
}

#[test]
fn m05_refused_calls() {
    soak(Theme::Misuse, STEPS, &["a stale lock"]);
}

/// With a journal, which needs memory for namespaces: a call that has none writes nothing down.
#[test]
fn j01_a_call_without_memory_writes_no_record() {
    for block_hash in [false, true] {
        let kind = Kind { block_hash, journal: true };
        soak_kind(kind, Theme::All, STEPS, &[]);
    }
}

/// What takes things away never needs memory: whatever else there is none for can be undone.
#[test]
fn m05_calls_that_take_away_need_no_memory() {
    STARVED.set(true);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let config = Config {
            page_size: [1, 2, 4, 16][random.usize(..4)],
            page_count: random.usize(20..200),
            slot_count: 8,
            row_page_limit: 0,
            whole_pages: random.bool(),
            block_hash: random.u8(..3) == 0,
            retained_sequences: 4,
            retained_pages: 0,
            journal_bytes: if random.bool() { 0 } else { 8192 },
        };
        let library = Library::new(&config).unwrap();
        let (mut live, mut locks) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            take_away(&library, &mut random, &mut live, &mut locks);
            LOOKING.set(true);
            library.audit().unwrap();
            library.check().unwrap();
            LOOKING.set(false);
        }
        live.drain(..).for_each(|sequence| library.release(sequence).unwrap());
        locks.drain(..).for_each(|node| library.unlock(node).unwrap());
        library.drop_retained(config.page_count).unwrap();
        library.evict(config.page_count, None).unwrap();
        LOOKING.set(true);
        assert_eq!(library.table_stats().unwrap().free_page_count, config.page_count as u64 - 1);
        LOOKING.set(false);
    }
    STARVED.set(false);
}

/// A random call, most of them such as end something.
fn take_away(
    library: &Library,
    random: &mut fastrand::Rng,
    live: &mut Vec<u64>,
    locks: &mut Vec<u64>,
) {
    let tokens = |random: &mut fastrand::Rng| {
        let (family, count) = (random.u32(..3), random.u32(1..40));
        TokenList::of(&Prompt(vec![
            Piece::Text(family * 7, random.u32(1..20)),
            Piece::Text(5, count),
        ]))
    };
    let pick = |random: &mut fastrand::Rng, live: &[u64]| live[random.usize(..live.len())];
    let some = !live.is_empty();
    match random.u8(..10) {
        0..3 => {
            if let Ok(begun) = library.begin(0, &tokens(random), 0.into()) {
                if begun.copy_count > 0 && random.bool() {
                    library.confirm_copies(begun.sequence).unwrap();
                }
                live.push(begun.sequence);
            }
        }
        3 | 4 if some => {
            let sequence = pick(random, live);
            let positions = library.query(sequence).unwrap().position_count;
            let _ = library.publish(sequence, positions as usize);
        }
        5 if some => drop(library.fork(pick(random, live), 2, 0).map(|made| {
            live.extend(made.iter().map(|child| child.sequence));
        })),
        6 if some => {
            let sequence = live.swap_remove(random.usize(..live.len()));
            library.release(sequence).unwrap();
        }
        7 if some => {
            let sequence = live.swap_remove(random.usize(..live.len()));
            library.retain(sequence).unwrap();
        }
        8 => {
            let (status, found, _) = library.lookup(0, &tokens(random), true, 0);
            if status == Status::Ok && found.lock != 0 {
                locks.push(found.lock);
            } else if let Some(lock) = locks.pop() {
                library.unlock(lock).unwrap();
            }
        }
        9 if random.u8(..4) == 0 => {
            library.clear(0, RKV_CLEAR_EVERYTHING).unwrap();
        }
        _ => drop(library.evict(random.usize(1..8), None).unwrap()),
    }
}

/// Nothing is left of what could not be made.
#[test]
fn m05_creating() {
    let create = |status: &dyn Fn() -> Status| {
        for request in 0.. {
            // Buffers for messages that an earlier failure took are made again.
            assert_eq!(status(), Status::Ok);
            let before = bytes_in_use();
            let (made, failed) = failing(Failure::From(request), status);
            if made == Status::Ok {
                return request;
            }
            assert_eq!((made, failed > 0), (Status::OutOfMemory, true));
            assert!(
                bytes_in_use() <= before,
                "request {request}: {before} before, {} now",
                bytes_in_use()
            );
        }
        unreachable!("there is memory in the end")
    };
    for (block_hash, journal) in [(false, false), (true, false), (false, true), (true, true)] {
        let requests = create(&|| Library::create_and_destroy(block_hash, journal));
        assert!(requests > if journal { 9 } else { 5 }, "{requests} requests only");
    }
}

/// K11: what a sequence publishes that began before a clear goes into a tree without a name. When
/// there is no memory for that, nothing has changed, and it can be tried again.
#[test]
fn m05_publishing_into_what_was_cleared() {
    let (ids, space) = ((0..12).collect::<Vec<u32>>(), Namespace::default());
    let prompt = || list::TokenList::text(&ids);
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let config = PageTableConfig {
            page_size: 4,
            page_count: 9,
            slot_count: 2,
            ..PageTableConfig::default()
        };
        let shared = Shared::new(config).unwrap();
        shared.attach_cache(CacheConfig { index, ..CacheConfig::default() }).unwrap();
        let before = shared.begin(&space, prompt(), 0).unwrap().id;
        // Needs no memory.
        let (cleared, _) = failing(Failure::From(0), || shared.clear(Scope::default()));
        cleared.unwrap();
        let mut refused = 0;
        for request in 0.. {
            let seen = format!("{:?}", shared.read().sequence_info(before).unwrap());
            let publish = || shared.write().publish(before, 12);
            let (done, failed) = failing(Failure::From(request), publish);
            shared.read().check().unwrap();
            shared.read().audit().unwrap();
            match done {
                Ok(published) => {
                    assert_eq!((published.claimed, published.shared_pages), (3, 3));
                    break;
                }
                Err(error) => assert!(matches!(error, Error::OutOfMemory(_)), "{error}"),
            }
            assert!(failed > 0, "{index:?}: there was memory");
            let now = format!("{:?}", shared.read().sequence_info(before).unwrap());
            assert_eq!(now, seen, "{index:?}, request {request}");
            refused += 1;
        }
        assert!(refused >= 2, "{index:?}: {refused} requests for memory only");
        assert_eq!(shared.probe(&space, prompt()).unwrap(), (0, 0));
        // Nobody else has it: it goes with the sequence, for which there need be no memory.
        let (released, _) = failing(Failure::From(0), || shared.turn().release(before));
        released.unwrap();
        let stats = shared.read().page_table_stats();
        assert_eq!((stats.free, stats.cached), (stats.total, 0), "{index:?}");
    }
}

/// K11: a clear needs no memory to remember what it is of: what another namespace's sequence
/// publishes, which began before and has no node yet, is found.
#[test]
fn m05_a_clear_without_memory_concerns_nobody_else() {
    let ids: Vec<u32> = (0..12).collect();
    let config =
        PageTableConfig { page_size: 4, page_count: 9, slot_count: 2, ..Default::default() };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig::default()).unwrap();
    let (space, other) =
        (Namespace::default(), Namespace { lora: Some(1), ..Namespace::default() });
    let before = shared.begin(&space, list::TokenList::text(&ids), 0).unwrap().id;
    let scope = Scope { like: other, lora: true, ..Scope::default() };
    let (cleared, _) = failing(Failure::From(0), || shared.clear(scope));
    cleared.unwrap();
    shared.write().publish(before, 12).unwrap();
    shared.turn().release(before).unwrap();
    assert_eq!(shared.probe(&space, list::TokenList::text(&ids)).unwrap(), (12, 12));
}

/// To be read by a person: which calls asked for memory at all.
#[test]
fn m05_what_failed() {
    soak(Theme::All, STEPS, &[]);
    let failed = FAILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    println!("requests that failed: {failed:#?}");
    for name in ["rkv_sequence_begin", "rkv_sequence_append", "rkv_cache_insert", "rkv_cache_match"]
    {
        assert!(failed[name] > 0, "{name} never ran out of memory");
    }
}
