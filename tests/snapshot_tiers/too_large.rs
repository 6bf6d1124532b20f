//! States that memory is too small for.
use super::remote_world::{self, PLAIN, filled, prompt};
use super::world::{Part, World, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A state of 200 bytes.
fn insert_large(world: &remote_world::World, length: u32) {
    let new = NewSnapshot {
        namespace: &PLAIN,
        tokens: &prompt(1, length),
        bytes: 200,
        next_token: Some(8),
        is_trimmable: false,
    };
    let state =
        || Part { parts: [vec![8, 0, 0, 0], vec![8; 196]], alive: Arc::new(AtomicUsize::new(1)) };
    world.cache.insert(new, Some(&[4, 196]), state, &mut FreedSnapshots::new()).unwrap();
    world.settle();
}

/// T01, T12: a state of the directory that memory is too small for by now hides no shorter one.
#[test]
fn t01_what_memory_cannot_hold_hides_nothing() {
    let world = World::new(8, 1000, TierPolicy::Through);
    world.insert(&[1, 2], 7);
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens: &[1, 2, 3, 4],
        bytes: 1000,
        next_token: Some(8),
        is_trimmable: false,
    };
    let state = || {
        world.alive.fetch_add(1, Relaxed);
        Part { parts: [vec![8, 0, 0, 0], vec![8; 996]], alive: world.alive.clone() }
    };
    world.cache.insert(new, Some(&[4, 996]), state, &mut FreedSnapshots::new()).unwrap();
    world.settle();
    let again = world.restarted(SnapshotLimits { entries: 8, bytes: 100 });
    assert_eq!(again.find(&[1, 2, 3, 4, 5]), (None, 2));
    assert_eq!(again.bring(&[1, 2, 3, 4, 5]), Some((2, 7)));
}

/// T01: a cache that is disabled reads nothing.
#[test]
fn t01_a_disabled_cache_reads_nothing() {
    let world = World::new(8, 1000, TierPolicy::Through);
    world.insert(&[1, 2], 7);
    world.settle();
    let again = world.restarted(SnapshotLimits { entries: 0, bytes: u64::MAX });
    assert_eq!(again.find(&[1, 2, 3]), (None, 0));
    assert_eq!(again.fetch(&[1, 2, 3]), None);
    assert_eq!(again.stats().counters.loads, 0);
}

/// T13, T12: a state of the store that memory is too small for hides no shorter one, in its block
/// or before that.
#[test]
fn t13_what_memory_cannot_hold_hides_nothing() {
    let remote = filled(&[70]);
    for length in [100, 300] {
        insert_large(&remote_world::World::new(&remote), length);
    }
    let small = remote_world::World::limited(&remote, None, TierPolicy::Through, 100);
    assert_eq!(small.bring(&prompt(1, 400)), Some((70, 70)));
    assert_eq!(small.stats().counters.no_memory, 2);
}

/// T17, T13: what is removed while the head of a longer one is read is not asked for instead.
#[test]
fn t17_what_was_removed_does_not_come_for_one_that_is_too_large() {
    let remote = filled(&[70]);
    insert_large(&remote_world::World::new(&remote), 100);
    let small = remote_world::World::limited(&remote, None, TierPolicy::Through, 100);
    let freed = &mut FreedSnapshots::new();
    let fetch = small.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
    // Marks and lengths: the head is read next.
    for _ in 0..2 {
        assert!(small.cache.work_remote());
        let taken = small.cache.take(fetch.ticket, seen, freed).unwrap();
        assert!(matches!(taken, Taken::Pending), "{taken:?}");
    }
    assert!(!small.cache.remove(&PLAIN, &prompt(1, 70), freed), "it was not here");
    let taken = loop {
        match small.cache.take(fetch.ticket, seen, freed).unwrap() {
            Taken::Pending => small.work(),
            taken => break taken,
        }
    };
    assert!(matches!(taken, Taken::Missed), "{taken:?}");
}

/// T01: nor one that can be trimmed: it has as much in common, or more, whole or not.
#[test]
fn t01_what_memory_cannot_hold_hides_nothing_that_can_be_trimmed() {
    for large in [&[1, 2, 4][..], &[1, 2, 3, 4], &[1, 2, 3]] {
        let mut world = World::new(8, 1000, TierPolicy::Through);
        world.trims = true;
        world.insert(&[1, 2, 5], 7);
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens: large,
            bytes: 1000,
            next_token: Some(8),
            is_trimmable: true,
        };
        let state = || {
            world.alive.fetch_add(1, Relaxed);
            Part { parts: [vec![8, 0, 0, 0], vec![8; 996]], alive: world.alive.clone() }
        };
        world.cache.insert(new, Some(&[4, 996]), state, &mut FreedSnapshots::new()).unwrap();
        world.settle();
        let again = world.restarted(SnapshotLimits { entries: 8, bytes: 100 });
        assert_eq!(again.find(&[1, 2, 3, 9]), (None, 2), "{large:?}");
        assert_eq!(again.bring(&[1, 2, 3, 9]), Some((3, 7)), "{large:?}");
    }
}

/// T01, T10: however many there are. What can't be brought is not used.
#[test]
fn t01_many_states_that_memory_cannot_hold_hide_nothing() {
    let tokens: Vec<u32> = (1..40).collect();
    for trims in [false, true] {
        let mut world = World::new(32, 1000, TierPolicy::Through);
        world.trims = trims;
        world.insert(&tokens[..2], 7);
        for length in 3..30 {
            let new = NewSnapshot {
                namespace: &Namespace::default(),
                tokens: &tokens[..length],
                bytes: 1000,
                next_token: Some(8),
                is_trimmable: trims,
            };
            let state = || {
                world.alive.fetch_add(1, Relaxed);
                Part { parts: [vec![8, 0, 0, 0], vec![8; 996]], alive: world.alive.clone() }
            };
            world.cache.insert(new, Some(&[4, 996]), state, &mut FreedSnapshots::new()).unwrap();
        }
        world.settle();
        let again = world.restarted(SnapshotLimits { entries: 8, bytes: 100 });
        assert_eq!(again.find(&tokens), (None, 2), "{trims}");
        assert_eq!(again.bring(&tokens), Some((2, 7)), "{trims}");
    }
}

/// T01: nor one of which a part is of use; and all of that part is.
#[test]
fn t01_many_states_that_memory_cannot_hold_hide_none_that_can_be_trimmed() {
    let tokens: Vec<u32> = (1..40).collect();
    let cases: [(usize, &[u32], &[u32], usize); 2] =
        [(29, &[1, 2, 99], &tokens, 2), (3, &[1, 2, 3, 5], &[1, 2, 3, 9], 3)];
    for (longest, small, asked, common) in cases {
        let mut world = World::new(32, 1000, TierPolicy::Through);
        world.trims = true;
        world.insert(small, 7);
        for length in 3..=longest {
            let new = NewSnapshot {
                namespace: &Namespace::default(),
                tokens: &tokens[..length],
                bytes: 1000,
                next_token: Some(8),
                is_trimmable: true,
            };
            let state = || {
                world.alive.fetch_add(1, Relaxed);
                Part { parts: [vec![8, 0, 0, 0], vec![8; 996]], alive: world.alive.clone() }
            };
            world.cache.insert(new, Some(&[4, 996]), state, &mut FreedSnapshots::new()).unwrap();
        }
        world.settle();
        let again = world.restarted(SnapshotLimits { entries: 8, bytes: 100 });
        assert_eq!(again.find(asked), (None, common), "{small:?}");
        assert_eq!(again.bring(asked), Some((small.len(), 7)), "{small:?}");
    }
}
