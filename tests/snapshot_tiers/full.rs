//! A directory that is full, where space comes back with a commit.
use super::folder::Folder;
use super::memory_store::MemoryStore;
use super::world::{BYTES, World};
use super::{few, world};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::{DiskConfig, DiskStore};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// T08: room comes while a write is being refused, and is not missed.
#[test]
fn t08_room_that_comes_at_once_is_not_missed() {
    let store = MemoryStore::new(2 * BYTES, usize::MAX);
    let world = World::with(few(8), store.clone(), TierPolicy::Through);
    world.insert(&[1], 1);
    world.insert(&[2], 2);
    world.settle();
    world.stats();
    // The oldest goes for it, but its room comes with a commit: right after the refusal.
    store.commit_when_full();
    world.insert(&[3], 3);
    for _ in 0..3 {
        world.stats();
    }
    assert_eq!(store.open().0, 1, "{:?}", world.stats().counters);
    world.settle();
    assert_eq!(store.records().len(), 2);
}

/// T08, T10: whatever the policy, what is written over a full directory takes the place of what was
/// used longest ago, and nothing in between is lost.
#[test]
fn t10_what_leaves_memory_over_a_full_directory_is_kept() {
    let parts = [4, world::TAIL as u64];
    for policy in [TierPolicy::OnEviction, TierPolicy::Through] {
        let folder = Folder::new();
        let limits = SnapshotLimits { entries: 1, bytes: u64::MAX };
        let cache = TieredSnapshots::<world::Part>::new(limits).unwrap();
        let mut config = DiskConfig::new(folder.path(), 10 * 4200, [0; 32]);
        config.commit_interval = Duration::from_millis(1);
        let (store, records) = DiskStore::open(config).unwrap();
        cache.attach(Box::new(store), records, policy).unwrap();
        let freed = &mut FreedSnapshots::new();
        for token in 1..=40 {
            let new = NewSnapshot {
                namespace: &Namespace::default(),
                tokens: &[token],
                bytes: BYTES,
                next_token: None,
                is_trimmable: false,
            };
            let state = || world::Part {
                parts: [vec![1; 4], vec![1; world::TAIL]],
                alive: Arc::new(AtomicUsize::new(1)),
            };
            cache.insert(new, Some(&parts), state, freed).unwrap();
            // All that goes on ends, and what waits is tried again.
            assert!(cache.flush(Duration::from_secs(60), freed));
        }
        let mut is_there = |token: &u32| {
            let found = cache.find(&Namespace::default(), &[*token], false, |_| (), freed).unwrap();
            found.fetchable > 0
        };
        let there: Vec<u32> = (1..40).filter(|token| is_there(token)).collect();
        let (first, last) = (there[0], *there.last().unwrap());
        assert!(there.len() >= 7 && last == 39, "{policy:?}: {there:?}");
        assert_eq!(there.len() as u32, last - first + 1, "{policy:?}: {there:?}");
    }
}

/// T05, T08: many more than can wait, and than wait to be tried again: a flush that says that all
/// are written is right.
#[test]
fn t08_what_has_no_place_among_those_that_wait_is_not_said_to_be_written() {
    const STATES: u32 = 400;
    // One write at a time.
    let store = MemoryStore::new(1000 * BYTES, 1);
    let world = World::with(few(STATES as usize), store.clone(), TierPolicy::Through);
    (0..STATES).for_each(|token| world.insert(&[token], token));
    assert_eq!(world.stats().counters.busy, u64::from(STATES) - 1);
    let freed = &mut FreedSnapshots::new();
    let is_flushed = world.cache.flush(Duration::from_secs(60), freed);
    let written = store.records().len();
    assert!(!is_flushed || written == STATES as usize, "{written} are written");
}

/// T05, T08, T10: where what is free lies in many pieces, others go until a large state has room.
#[test]
fn t10_a_large_state_has_room_among_small_ones() {
    const SMALL: u32 = 2000;
    const LARGE: usize = 900 * 4096;
    let folder = Folder::new();
    let limits = SnapshotLimits { entries: 2 * SMALL as usize, bytes: u64::MAX };
    let cache = TieredSnapshots::<world::Part>::new(limits).unwrap();
    let mut config = DiskConfig::new(folder.path(), u64::from(SMALL) * 4200, [0; 32]);
    config.commit_interval = Duration::from_millis(1);
    let (store, records) = DiskStore::open(config).unwrap();
    cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
    let freed = &mut FreedSnapshots::new();
    let insert = |token: u32, bytes: usize, freed: &mut FreedSnapshots<world::Part>| {
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens: &[token],
            bytes: bytes as u64,
            next_token: None,
            is_trimmable: false,
        };
        let state = || world::Part {
            parts: [vec![1; 4], vec![1; bytes - 4]],
            alive: Arc::new(AtomicUsize::new(1)),
        };
        cache.insert(new, Some(&[4, bytes as u64 - 4]), state, freed).unwrap();
    };
    (1..=SMALL).for_each(|token| insert(token, BYTES as usize, freed));
    assert!(cache.flush(Duration::from_secs(60), freed));
    // A hole of one block beside each that stays: by bytes there is room.
    for token in (2..=SMALL).step_by(2) {
        assert!(cache.remove(&Namespace::default(), &[token], freed));
    }
    assert!(cache.flush(Duration::from_secs(60), freed));
    insert(SMALL + 1, LARGE, freed);
    let is_written = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        cache.flush(Duration::from_secs(1), freed)
    });
    assert!(is_written, "{:?}", cache.tier_stats(freed).unwrap().counters);
    let entries = cache.tier_stats(freed).unwrap().entries;
    assert!(entries > SMALL as usize / 4, "no more went than had to: {entries} are left");
}

/// T05: a flush waits for what is written. What no directory has room for is not, nor what the
/// policy does not write yet; the first is counted.
#[test]
fn t05_a_flush_does_not_vouch_for_what_is_not_written() {
    for (below, policy, unfit) in
        [(BYTES / 2, TierPolicy::Through, 1), (8 * BYTES, TierPolicy::AfterUses(2), 0)]
    {
        let world = World::with(few(8), MemoryStore::new(below, usize::MAX), policy);
        world.insert(&[1], 1);
        assert!(world.cache.flush(Duration::from_secs(60), &mut FreedSnapshots::new()));
        let counters = world.stats().counters;
        assert_eq!((counters.unfit, counters.busy, counters.failed_writes), (unfit, 0, 0));
        assert_eq!(world.find(&[1]), (Some((1, 1, false)), 0), "memory has it");
        assert_eq!(world.restarted(few(8)).find(&[1]), (None, 0));
    }
}

/// T05: what a directory never has room for is one state, however often it is to be written. The
/// next directory may have some.
#[test]
fn t05_what_no_directory_has_room_for_is_counted_once() {
    for (policy, unfit) in
        [(TierPolicy::Through, 3), (TierPolicy::AfterUses(1), 3), (TierPolicy::OnEviction, 2)]
    {
        let world = World::with(few(1), MemoryStore::new(BYTES / 2, usize::MAX), policy);
        for token in 1..=3 {
            world.insert(&[token], token);
            assert_eq!(world.find(&[token]), (Some((1, token, false)), 0));
        }
        assert_eq!(world.stats().counters.unfit, unfit, "{policy:?}");
        let next = MemoryStore::new(8 * BYTES, usize::MAX);
        world.cache.detach(Duration::ZERO, &mut FreedSnapshots::new());
        world.cache.attach(Box::new(next.clone()), next.records(), policy).unwrap();
        world.insert(&[4], 4);
        while next.write(0, None) {}
        next.commit();
        assert_eq!(world.find(&[3]), (None, 1), "{policy:?}: the last one left memory since");
        assert_eq!(world.stats().counters.unfit, 0);
    }
}
