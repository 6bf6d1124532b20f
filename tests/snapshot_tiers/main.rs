//! The snapshot cache over a store: what is found where, and what is not.
mod attachments;
mod busy;
mod cleared;
mod destructors;
#[path = "../failing/mod.rs"]
mod failing;
#[path = "../tier/folder.rs"]
mod folder;
#[path = "../tier/jumps.rs"]
mod jumps;
mod full;
mod given_up;
mod long;
mod memory;
mod memory_store;
mod on_disk;
mod queued;
mod random;
mod remote;
#[path = "../paged_tiers/remote_store.rs"]
mod remote_store;
mod remote_world;
mod removed;
mod replaced;
#[path = "../tier/runs.rs"]
mod runs;
#[path = "../tier/sim/mod.rs"]
mod sim;
mod threads;
mod too_large;
mod trimmed;
mod troubles;
mod use_order;
mod wakes;
mod world;

use memory_store::MemoryStore;
use radixkv::memory::SharedBytes;
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use radixkv::snapshot::{Namespace, SnapshotLimits};
use radixkv::tier::{Dropped, LoadError};
use std::time::Duration;
use world::{BYTES, World};

const A: &[u32] = &[1, 2, 3];
const B: &[u32] = &[1, 2, 3, 4, 5];
const C: &[u32] = &[7];

fn few(entries: usize) -> SnapshotLimits {
    SnapshotLimits { entries, bytes: u64::MAX }
}

#[test]
fn t01_what_memory_had_to_let_go_is_fetched() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(C, 2);
    // Nothing is found before it is committed.
    assert_eq!(world.find(B), (None, 0));
    assert_eq!(world.fetch(B), None);
    world.settle();
    assert_eq!(world.find(B), (None, 3));
    let fetch = world.fetch(B).unwrap();
    assert_eq!(world.take(fetch.ticket), None);
    assert!(world.store.read(0, None, false));
    assert_eq!(world.take(fetch.ticket), Some(Some((3, 1))));
    assert_eq!(world.find(B), (Some((3, 1, true)), 0));
    // Memory has room for one: the other went, and is below.
    assert_eq!(world.find(C), (None, 1));
    assert_eq!(world.bring(C), Some((1, 2)));
}

#[test]
fn t01_all_is_there_after_a_restart() {
    let tenant = Namespace { salt: [9; 32], lora: Some(3), ..Namespace::default() };
    let world = World::new(8, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(B, 2);
    world.insert_in(&tenant, A, 3, true);
    world.insert_in(&Namespace::default(), C, 4, false);
    assert!(world.cache.flush(Duration::from_secs(60), &mut FreedSnapshots::new()));
    let again = world.restarted(few(8));
    assert_eq!(again.stats().entries, 3);
    assert_eq!(again.find(B), (None, 5));
    assert_eq!(again.bring(&[1, 2, 3, 4]), Some((3, 1)));
    assert_eq!(again.find(B), (Some((3, 1, true)), 5));
    assert_eq!(again.bring(B), Some((5, 2)));
    assert_eq!(again.find_in(&tenant, B), (None, 3));
    // What may not be written was not.
    assert_eq!(again.find(C), (None, 0));
    // A number that was used is not used again: what comes now doesn't replace what was there.
    again.insert(C, 5);
    again.settle();
    assert_eq!(again.restarted(few(8)).stats().entries, 4);
}

/// A lookup remembers how far its tokens lead below, and the tree below changes meanwhile: it is
/// cut above and beneath that place, joined again, emptied, and another one takes its place.
#[test]
fn t01_what_comes_below_a_hit_is_found() {
    let world = World::new(1, 64, TierPolicy::Through);
    let found =
        |below| assert_eq!(world.find(&[1, 2, 3, 4, 5, 6, 7]), (Some((3, 1, false)), below));
    let only_below = |tokens: &[u32], version| {
        world.insert(tokens, version);
        world.settle();
        world.remove(A);
        world.insert(A, 1);
        world.settle();
    };
    world.insert(A, 1);
    world.settle();
    only_below(C, 2);
    (0..2).for_each(|_| found(0));
    only_below(&[1, 2, 3, 4, 5, 6], 3);
    (0..2).for_each(|_| found(6));
    only_below(&[1, 2], 4);
    only_below(&[1, 9], 5);
    only_below(&[1, 2, 3, 4, 5], 6);
    (0..2).for_each(|_| found(6));
    world.remove(&[1, 2, 3, 4, 5, 6]);
    (0..2).for_each(|_| found(5));
    // While it is being written it is not found; a shorter one is.
    world.insert(&[1, 2, 3, 4, 5, 6, 7], 7);
    world.remove(A);
    world.insert(A, 1);
    found(5);
    world.settle();
    found(7);
    for tokens in [&[1, 2, 3, 4, 5, 6, 7][..], &[1, 2, 3, 4, 5], &[1, 2], &[1, 9], C] {
        world.remove(tokens);
    }
    only_below(&[1, 2, 3, 4], 8);
    (0..2).for_each(|_| found(4));
    world.cache.clear(&mut FreedSnapshots::new());
    world.insert(A, 1);
    world.settle();
    only_below(&[1, 2, 3, 4, 5, 6], 9);
    (0..2).for_each(|_| found(6));
    let freed = &mut FreedSnapshots::new();
    assert!(world.cache.detach(Duration::from_secs(60), freed));
    let other = MemoryStore::new(64 * BYTES, usize::MAX);
    let records = other.records();
    world.cache.attach(Box::new(other.clone()), records, TierPolicy::Through).unwrap();
    world.insert(&[1, 2, 3, 4], 10);
    while other.write(0, None) {}
    other.commit();
    world.insert(A, 1);
    (0..2).for_each(|_| found(4));
}

#[test]
fn t01_what_can_be_trimmed_is_fetched_for_other_branches() {
    let mut world = World::new(1, 8, TierPolicy::Through);
    world.trims = true;
    world.insert(B, 1);
    world.insert(C, 2);
    world.settle();
    let world = world.restarted(few(1));
    let branch = &[1, 2, 3, 9, 9];
    assert_eq!(world.find(branch), (None, 3));
    let fetch = world.fetch(branch).unwrap();
    assert_eq!((fetch.tokens, fetch.common), (5, 3));
    world.store.read(0, None, false);
    assert_eq!(world.take(fetch.ticket), Some(Some((5, 1))));
    assert_eq!(world.find(branch), (Some((5, 1, true)), 0));
    assert_eq!(world.fetch(branch), None, "memory has as much of it");
    assert_eq!(world.find(B), (Some((5, 1, true)), 0));
}

#[test]
fn t07_another_namespace_or_epoch_finds_nothing() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(C, 2);
    world.settle();
    let spaces = [
        Namespace { salt: [1; 32], ..Namespace::default() },
        Namespace { lora: Some(0), ..Namespace::default() },
        Namespace { image: Some([0; 16]), ..Namespace::default() },
        Namespace { epoch: 1, ..Namespace::default() },
    ];
    for space in &spaces {
        assert_eq!(world.find_in(space, A), (None, 0));
        let fetch = world.cache.fetch(space, A, false, &mut FreedSnapshots::new()).unwrap();
        assert_eq!(fetch, None);
    }
    assert_eq!(world.find(A), (None, 3));
}

#[test]
fn t17_after_a_new_epoch_the_old_is_not_found_and_goes_first() {
    let world = World::new(1, 4, TierPolicy::Through);
    let next = Namespace { epoch: 1, lora: Some(3), ..Namespace::default() };
    let old = Namespace { lora: Some(3), ..Namespace::default() };
    for (tokens, version) in [(A, 1), (B, 2)] {
        world.insert_in(&old, tokens, version, true);
        world.settle();
    }
    world.insert_in(&next, C, 3, true);
    world.settle();
    assert_eq!((world.find_in(&next, B), world.find_in(&old, B)), ((None, 0), (None, 5)));
    for (tokens, version) in [(A, 4), (B, 5), (&[9, 9], 6)] {
        world.insert_in(&next, tokens, version, true);
        world.settle();
    }
    // Below is room for four, and the two of the old epoch were used before all others.
    assert_eq!(world.find_in(&old, B), (None, 0));
    assert_eq!((world.find_in(&next, C), world.find_in(&next, B)), ((None, 1), (None, 5)));
}

#[test]
fn t04_a_read_that_fails_is_a_miss_and_is_not_tried_again() {
    for failure in [LoadError::Damaged, LoadError::Io, LoadError::Missing] {
        let world = World::new(1, 8, TierPolicy::Through);
        world.insert(A, 1);
        world.insert(B, 2);
        world.insert(C, 3);
        world.settle();
        let fetch = world.fetch(B).unwrap();
        assert_eq!(fetch.tokens, 5);
        world.store.read(0, Some(failure), true);
        assert_eq!(world.take(fetch.ticket), Some(None));
        assert_eq!(world.find(B), (None, 3));
        assert_eq!(world.bring(B), Some((3, 1)), "the shorter one");
        let counters = world.stats().counters;
        assert_eq!((counters.failed_loads, counters.loaded), (1, 1));
        assert_eq!(counters.damaged, (failure == LoadError::Damaged) as u64);
        // The record is gone for good.
        world.store.commit();
        assert_eq!(world.restarted(few(4)).find(B), (None, 3));
    }
}

#[test]
fn t04_a_write_that_fails_leaves_the_state_in_memory() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(A, 1);
    assert!(world.store.write(0, Some(Dropped::NoSpace)));
    world.store.commit();
    assert_eq!(world.find(A), (Some((3, 1, false)), 0));
    // It has another chance when it leaves memory.
    world.insert(C, 2);
    world.settle();
    assert_eq!(world.find(A), (None, 3));
    let stats = world.stats();
    assert_eq!((stats.counters.failed_writes, stats.counters.writes), (1, 3));
}

#[test]
fn t08_policies() {
    let world = World::new(2, 8, TierPolicy::OnEviction);
    world.insert(A, 1);
    world.insert(B, 2);
    assert_eq!(world.store.open().0, 0);
    world.insert(C, 3);
    assert_eq!(world.store.open().0, 1, "what leaves memory is written");
    world.settle();
    assert_eq!(world.bring(A), Some((3, 1)));
    assert_eq!(world.store.open().0, 1, "the other one left for it");
    world.settle();
    // What came from below is below, and is not written again.
    world.insert(&[9], 4);
    world.insert(&[8], 5);
    assert_eq!(world.stats().writing, 1, "the third one alone");

    let world = World::new(1, 8, TierPolicy::AfterUses(2));
    world.insert(A, 1);
    world.find(B);
    assert_eq!(world.store.open().0, 0);
    world.find(B);
    assert_eq!(world.store.open().0, 1);
    world.insert(C, 2);
    world.insert(&[9], 3);
    assert_eq!(world.store.open().0, 1, "what nobody used twice is not worth it");
}

#[test]
fn t08_a_write_gives_way_and_is_tried_again() {
    // No room for a second write at once.
    let store = MemoryStore::new(8 * BYTES, 1);
    let world = World::with(few(4), store, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(C, 2);
    assert_eq!(world.stats().counters.busy, 1);
    world.settle();
    assert_eq!(world.stats().writing, 1, "tried again after the commit");
    world.settle();
    assert_eq!(world.restarted(few(4)).stats().entries, 2);
}

#[test]
fn t11_what_nobody_waits_for_is_thrown_away() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(C, 2);
    world.settle();
    let freed = &mut FreedSnapshots::new();
    let fetch = world.fetch(A).unwrap();
    world.cache.cancel(fetch.ticket, freed).unwrap();
    assert!(world.cache.cancel(fetch.ticket, freed).is_err());
    assert_eq!(world.stats().loading_bytes, BYTES);
    world.store.read(0, None, false);
    assert_eq!(world.stats().loading_bytes, 0);
    assert_eq!(world.find(A), (None, 3));
    assert_eq!(world.stats().counters.late, 1);
    // Who comes while it is still read gets it all the same.
    let first = world.fetch(A).unwrap();
    world.cache.cancel(first.ticket, freed).unwrap();
    let second = world.fetch(A).unwrap();
    world.store.read(0, None, false);
    assert_eq!(world.take(second.ticket), Some(Some((3, 1))));
    assert_eq!(world.stats().counters.loads, 2);
}

#[test]
fn t12_two_fetches_of_one_snapshot_read_it_once() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.insert(C, 2);
    world.settle();
    let tickets = [world.fetch(A), world.fetch(B), world.fetch(A)].map(|one| one.unwrap().ticket);
    assert_eq!(world.store.open().1, 1);
    world.store.read(0, None, false);
    for ticket in tickets {
        // It stays until the last one has it, whatever else comes.
        world.insert(C, 2);
        assert_eq!(world.take(ticket), Some(Some((3, 1))));
    }
    let counters = world.stats().counters;
    assert_eq!((counters.loads, counters.joined, counters.loaded), (1, 2, 1));
}

#[test]
fn t12_what_is_replaced_or_removed_does_not_come_back() {
    let world = World::new(1, 8, TierPolicy::Through);
    let freed = &mut FreedSnapshots::new();
    for step in 0..3 {
        world.insert(A, 1);
        world.insert(C, 2);
        world.settle();
        let fetch = world.fetch(A).unwrap();
        let want = match step {
            0 => {
                world.insert(A, 5);
                Some((3, 5))
            }
            1 => {
                assert!(world.remove(A));
                None
            }
            _ => {
                world.cache.clear(freed);
                None
            }
        };
        world.store.read(0, None, false);
        assert_eq!(world.take(fetch.ticket), Some(want), "step {step}");
        let there = world.find(A).0.map(|(tokens, version, _)| (tokens, version));
        assert_eq!(there, want, "step {step}");
        world.settle();
        assert_eq!(world.restarted(few(1)).bring(A), want, "step {step}");
    }
}

#[test]
fn t04_records_that_are_no_snapshots_are_removed() {
    let world = World::new(4, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.settle();
    let good = world.store.records().into_iter().next().unwrap();
    let mut bad = Vec::new();
    let mut number = 100_u64;
    let mut spoil = |change: &dyn Fn(&mut radixkv::tier::Record)| {
        let mut record = good.clone();
        record.key[..8].copy_from_slice(&number.to_be_bytes());
        number += 1;
        change(&mut record);
        bad.push(record);
    };
    spoil(&|record| record.bytes += 1);
    spoil(&|record| record.note = SharedBytes::default());
    spoil(&|record| record.note = SharedBytes::new(vec![0xff; 400]).unwrap());
    spoil(&|record| record.key[31] = 1);
    spoil(&|record| record.key = [0; 32]);
    // An older record of the same tokens, and a newer one: the newer one stays.
    spoil(&|record| record.key[..8].copy_from_slice(&0_u64.to_be_bytes()));
    bad.push(good.clone());
    let store = MemoryStore::new(8 * BYTES, 9);
    let other = radixkv::snapshot::tiered::TieredSnapshots::<world::Part>::new(few(4)).unwrap();
    let count = bad.len();
    other.attach(Box::new(store), bad.into(), TierPolicy::Through).unwrap();
    let stats = other.tier_stats(&mut FreedSnapshots::new()).unwrap();
    assert_eq!((stats.entries, stats.counters.unusable), (1, count as u64 - 1));
    other.check().unwrap();
}

#[test]
fn t10_what_is_read_is_bounded_by_memory() {
    let limits = SnapshotLimits { entries: 8, bytes: BYTES };
    let world = World::with(limits, MemoryStore::new(8 * BYTES, 9), TierPolicy::Through);
    world.insert(A, 1);
    world.insert(B, 2);
    world.insert(C, 3);
    world.settle();
    let first = world.fetch(A).unwrap();
    assert_eq!(world.fetch(B), None);
    assert_eq!(world.stats().counters.no_memory, 1);
    world.store.read(0, None, false);
    assert_eq!(world.take(first.ticket), Some(Some((3, 1))));
    assert_eq!(world.bring(B), Some((5, 2)));
}

#[test]
fn t14_a_cache_has_one_store() {
    let world = World::new(1, 8, TierPolicy::Through);
    let second = MemoryStore::new(8 * BYTES, 9);
    let refused = world.cache.attach(Box::new(second), Vec::new().into(), TierPolicy::Through);
    assert!(refused.unwrap_err().to_string().contains("directory"));
    world.insert(A, 1);
    let freed = &mut FreedSnapshots::new();
    world.settle();
    assert!(world.cache.detach(Duration::ZERO, freed));
    assert!(!world.cache.detach(Duration::ZERO, freed));
    let again = MemoryStore::clone(&world.store);
    let records = again.records();
    world.cache.attach(Box::new(again), records, TierPolicy::Through).unwrap();
    assert_eq!(world.stats().entries, 1);
}

/// So many that a thread reads what the next ones say while those before become entries.
#[test]
fn t01_many_records_are_found_again() {
    const COUNT: u32 = 34_000;
    let list = |number: u32| vec![number % 100, 1, number % 1000, number, 2];
    let world = World::new(8, u64::from(COUNT), TierPolicy::Through);
    for number in 0..COUNT {
        world.insert(&list(number), number);
        if number % 64 == 0 {
            world.settle();
        }
    }
    world.settle();
    let again = world.restarted(few(8));
    let stats = again.stats();
    assert_eq!((stats.entries, stats.counters.unusable), (COUNT as usize, 0));
    for number in (0..COUNT).step_by(331) {
        assert_eq!(again.find(&list(number)), (None, 5));
        assert_eq!(again.bring(&list(number)), Some((5, number)));
    }
}
