//! A simulation: an engine with all that happens to one, in one process, from one seed.
//!
//! Requests share prefixes, are computed in chunks, decoded with drafts, cancelled, preempted,
//! forked, retained and continued; a second user matches, locks, inserts and evicts on the same
//! page table; pages, slots and memory are short, copies are never made, the device fails. Beside
//! it stand books (`simulation/books.rs`) in which each page holds the ghost of what was computed
//! into it. They foresee every answer and who may be evicted; nodes and their ids are left to the
//! model tests.
//!
//! A run is named by its seed, and a failure prints it: `RKV_SIM_SEED` is the first seed,
//! `RKV_SIM_OPS` the operations in all, `RKV_SIM_THREADS` how many runs at once; `RKV_SIM_TELL=1`
//! prints each seed before its run.

mod failing;

// Rustc looks for these in tests/model and tests/snapshot, rustfmt in tests/simulation.

/// Of the model tests: the ABI with Rust's manners.
#[allow(dead_code, reason = "the model tests use the rest")]
mod model {
    #[path = "../model/abi/mod.rs"]
    pub mod abi;
    #[path = "../model/namespaces.rs"]
    pub mod namespaces;
    #[path = "../model/ops.rs"]
    pub mod ops;
    #[path = "../model/prompt.rs"]
    pub mod prompt;
    #[path = "../model/spaces.rs"]
    pub mod spaces;
    #[path = "../model/tokens.rs"]
    pub mod tokens;
}

/// Of the snapshot tests: the library and its specification.
#[allow(dead_code, reason = "the snapshot tests use the rest")]
mod snapshot {
    #[path = "../snapshot/naive.rs"]
    pub mod naive;
    #[path = "../snapshot/ops.rs"]
    pub mod ops;
    #[path = "../snapshot/real.rs"]
    pub mod real;
}

thread_local! {
    /// Requests for memory that the next call gets before one is refused; None: all.
    static FAIL_AFTER: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether other runs may go on beside this one. While any thread of the process probes, memory
/// that it might look at is not used again, so other requests for memory are made, and refused.
static OTHERS: RwLock<()> = RwLock::new(());

/// How calls are made here.
fn call(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    match FAIL_AFTER.take() {
        Some(requests) => failing(Failure::Once(requests), made).0,
        None => made(),
    }
}

/// Calls over many items.
fn call_many(
    _: &'static str,
    _: &Library,
    statuses: &mut [Status],
    made: &mut dyn FnMut(&mut [Status]) -> Status,
) -> Status {
    match FAIL_AFTER.take() {
        Some(requests) => failing(Failure::Once(requests), || made(statuses)).0,
        None => made(statuses),
    }
}

/// Calls that need no memory.
fn call_sure(name: &str, library: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    let status = call(name, library, made);
    assert_ne!(status, Status::OutOfMemory, "{name} needs memory");
    status
}

mod simulation {
    pub mod batch;
    pub mod books;
    pub mod caller;
    pub mod clearing;
    pub mod config;
    pub mod engine;
    pub mod family;
    pub mod foreign;
    pub mod harness;
    pub mod log;
    pub mod prompts;
    pub mod sequence;
    pub mod snapshots;
    pub mod steps;
    pub mod tokens;
    pub mod world;
}

use failing::{Failure, failing};
use model::abi::{Library, Status};
use simulation::harness::{run, simulate};
use simulation::world::Fault;
use std::cell::Cell;
use std::sync::RwLock;

/// Whatever an engine does, in whatever order: K11 K14 K16 K18 K19, B06 B07 B08, C01 C02 C03 C04
/// C06 C08, J05, J08, M04. In `make test` some runs, in `make test-long` 100 million operations.
#[test]
fn k19_an_engine_is_simulated() {
    let _beside_others = OTHERS.read();
    let marks = simulate(1, 10_000_000);
    let expected = [
        "a begin copies",
        "a begin gives reuse up",
        "a clear frees pages",
        "a clear leaves pages to who holds them",
        "a child begins without its parent",
        "a child copies from a private page",
        "a fork",
        "a node is gone",
        "a parent is waited for",
        "a parent runs on",
        "a page to copy from is published",
        "a prompt gets pages for a chunk",
        "a prompt lacks pages in its middle",
        "a publish remaps",
        "a request is cancelled",
        "a request is preempted",
        "a retained sequence gives way",
        "a sequence is too large to be retained",
        "a sequence of before a clear is not retained",
        "a sequence of before a clear publishes",
        "a truncate would take what a child is to copy",
        "an insert after what was cleared",
        "out of memory",
        "refused for want of pages",
        "refused for want of slots",
        "the cache is destroyed and created again",
        "the device fails",
    ];
    println!("{marks:#?}");
    for mark in expected {
        assert!(marks.contains_key(mark), "it never happened that {mark}");
    }
}

/// A seed makes the same run again.
#[test]
fn a_seed_names_a_run() {
    let _alone = OTHERS.write();
    for seed in 1000..1004 {
        let [one, other] = [(); 2].map(|()| run(seed, Fault::None));
        let (Ok(one), Ok(other)) = (one, other) else { panic!("seed {seed} fails") };
        assert_eq!((one.operations, one.digest), (other.operations, other.digest));
        assert_eq!(one.marks, other.marks);
    }
}

/// Slips are planted in the engine and in the books: each must be noticed wherever it happens.
#[test]
fn the_simulation_notices_planted_slips() {
    let _beside_others = OTHERS.read();
    let planted = [
        Fault::SpoiledPage,
        Fault::SkippedRelease,
        Fault::SkippedCopy,
        Fault::OtherRow,
        Fault::WritesShared,
        Fault::PublishesTooEarly,
        Fault::SkippedUnlock,
        Fault::LostEviction,
        Fault::LostDrop,
        Fault::SkippedClear,
    ];
    for fault in planted {
        let (mut noticed, mut seed) = (0, 2000);
        while noticed < 8 {
            match run(seed, fault) {
                Ok(summary) => assert!(!summary.slipped, "seed {seed}: {fault:?} passes"),
                Err(failure) => {
                    let message = failure.message;
                    assert!(failure.slipped, "seed {seed} fails by itself: {message}");
                    println!("{fault:?}: {message}");
                    noticed += 1;
                }
            }
            seed += 1;
            assert!(seed < 2100, "{fault:?} does not happen");
        }
    }
}
