//! Every function of the header with raw arguments: sizes, enum values, flags, ids and pointers
//! that no caller should pass, and some that it should.
//!
//! A pointer is NULL, misaligned, or leads to memory of exactly the stated size, so that
//! AddressSanitizer sees every byte too far; it is never dangling, which the contract forbids. A
//! call must not crash; one that fails must leave the state and its outputs as they were.
mod arena;
mod compute;
mod events;
mod functions;
mod journal;
mod many;
mod paged_tiers;
mod pools;
mod runner;
mod sequences;
mod shelf;
mod snapshot_tiers;
mod snapshots;
mod tokens;
mod values;
mod world;

pub use functions::FUNCTIONS;

use crate::abi::{index_for, last_message};
use crate::input::Input;
use crate::snapshot::Snapshot;
use arena::Arena;
use radixkv::capi::rkv_status;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use world::World;

/// Calls in one run.
const STEP_LIMIT: usize = 64;

/// What a call did.
pub enum Outcome {
    /// It returned a status.
    Status(rkv_status),
    /// The same, and the world must be built anew: a handle is gone, or the caller broke a promise.
    Last(rkv_status),
    /// It cannot fail.
    Done,
}

impl From<rkv_status> for Outcome {
    fn from(status: rkv_status) -> Self {
        Self::Status(status)
    }
}

/// For each function whether a call succeeded, in any run so far.
static SUCCEEDED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

fn note(name: &'static str, status: rkv_status) {
    if status == rkv_status::Ok {
        SUCCEEDED.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
}

/// The functions of which no call succeeded yet: what happens then nobody has tried.
pub fn never_succeeded() -> Vec<&'static str> {
    let succeeded = SUCCEEDED.lock().unwrap_or_else(PoisonError::into_inner);
    FUNCTIONS.iter().map(|(name, _)| *name).filter(|name| !succeeded.contains(name)).collect()
}

/// Makes arguments and calls one function.
pub type Call = fn(&mut World, &mut Input<'_>, &mut Arena) -> Outcome;

/// Runs the calls that `data` stands for.
pub fn arguments(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(index_for(data));
    for _ in 0..STEP_LIMIT {
        if input.is_empty() {
            break;
        }
        let (name, call) = FUNCTIONS[input.below(FUNCTIONS.len())];
        let before = world.snapshots();
        let shelf = world.shelf.view();
        let mut arena = Arena::default();
        let (status, is_last) = match call(&mut world, &mut input, &mut arena) {
            Outcome::Status(status) => (status, false),
            Outcome::Last(status) => (status, true),
            Outcome::Done => (rkv_status::Ok, false),
        };
        // Also of the last call of a world: there it is what an audit says.
        assert!(
            !matches!(status, rkv_status::Internal | rkv_status::Poisoned | rkv_status::Corrupt),
            "{name}: {status:?}: {}",
            last_message()
        );
        arena.check(status);
        note(name, status);
        if is_last {
            let second = Snapshot::of(&world.pairs[1]);
            assert_eq!(before[1], second, "{name} changed another page table");
            world = World::new(index_for(data));
            continue;
        }
        world.check();
        let after = world.snapshots();
        assert_eq!(before[1], after[1], "{name} changed another page table");
        if status != rkv_status::Ok {
            assert!(!last_message().is_empty(), "{name} says nothing about {status:?}");
            assert_eq!(before[0], after[0], "{name} failed and changed something");
            // Of a directory nothing was seen, and one that is slow is detached all the same.
            if shelf.is_some() {
                assert_eq!(shelf, world.shelf.view(), "{name} failed and changed something");
            }
        }
    }
}
