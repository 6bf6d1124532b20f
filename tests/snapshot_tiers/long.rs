//! Lists that are several nodes long: what takes long of a call is made before the table is locked,
//! and must be right when somebody else was there first.
use crate::memory_store::MemoryStore;
use crate::world::{BYTES, World};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Longer than two nodes, and than what is compared before others are let in.
const LENGTH: u32 = 40_000;

/// A list that shares its first half with all others.
fn list(number: u32) -> Vec<u32> {
    let own = (LENGTH / 2..LENGTH).map(|at| at + LENGTH * number);
    (0..LENGTH / 2).chain(own).collect()
}

/// With each policy: long states leave memory, come back, are replaced, removed and cleared.
#[test]
fn t08_long_lists_go_below_and_come_back() {
    let length = LENGTH as usize;
    for policy in [TierPolicy::Through, TierPolicy::OnEviction, TierPolicy::AfterUses(1)] {
        let mut world = World::new(2, 64, policy);
        for number in 1..=5 {
            world.insert(&list(number), number);
            assert_eq!(world.find(&list(number)), (Some((length, number, false)), 0));
            // A prefix of the shared half is an entry of its own, in the middle of a node.
            world.insert(&list(number)[..1000 * number as usize], number);
            world.settle();
        }
        world.cache.check().unwrap();
        for number in 1..=4 {
            let (hit, fetchable) = world.find(&list(number));
            assert!(hit.is_none_or(|hit| hit.0 < length), "memory has room for two");
            assert_eq!(fetchable, length, "{policy:?}, {number}");
            assert_eq!(world.bring(&list(number)), Some((length, number)));
            assert_eq!(world.find(&list(number)), (Some((length, number, true)), 0));
        }
        // In the place of the one below, which must not come back.
        world.insert(&list(1), 11);
        world.find(&list(1));
        world.settle();
        world.insert(&[1], 1);
        world.insert(&[2], 2);
        world.settle();
        assert_eq!(world.bring(&list(1)), Some((length, 11)));
        // What a list has in common with a longer one.
        world.trims = true;
        world.insert(&list(7), 7);
        world.find(&list(7));
        world.insert(&[3], 3);
        world.insert(&[4], 4);
        world.settle();
        let asked = &list(7)[..length - 5];
        assert_eq!(world.find(asked).1, length - 5);
        let fetch = world.fetch(asked).unwrap();
        assert_eq!((fetch.tokens, fetch.common), (length, length - 5));
        while world.store.read(0, None, false) {}
        assert_eq!(world.take(fetch.ticket), Some(Some((length, 7))));
        world.trims = false;
        assert!(world.remove(&list(1)) && !world.remove(&list(1)));
        assert_ne!(world.find(&list(1)).1, length);
        // A read that goes on brings nothing when all is cleared meanwhile.
        world.insert(&[5], 5);
        world.insert(&[6], 6);
        let fetch = world.fetch(&list(2)).unwrap();
        world.cache.clear(&mut FreedSnapshots::new());
        while world.store.read(0, None, false) {}
        assert_eq!(world.take(fetch.ticket), Some(None), "{policy:?}");
        assert_eq!(world.find(&list(2)), (None, 0));
        assert_eq!((world.stats().entries, world.stats().writing), (0, 0));
    }
}

/// An insert for which many have to go, and a record for which many have to: one at a time, and
/// each is where it belongs.
#[test]
fn t10_one_large_state_takes_the_place_of_many() {
    let limits = SnapshotLimits { entries: 1000, bytes: 100 * BYTES };
    let store = MemoryStore::new(200 * BYTES, usize::MAX);
    let world = World::with(limits, store, TierPolicy::OnEviction);
    for number in 0..100 {
        world.insert(&[number, 1], number);
    }
    assert_eq!((world.cache.stats().entries, world.stats().entries), (100, 0));
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens: &[1000],
        bytes: 90 * BYTES,
        next_token: None,
        is_trimmable: false,
    };
    let freed = &mut FreedSnapshots::new();
    let inserted = world.cache.insert(new, None, || world.state(0), freed);
    assert_eq!(inserted.unwrap().evicted, 90);
    world.settle();
    assert_eq!((world.cache.stats().entries, world.stats().entries), (11, 90));
    for number in 0..90 {
        assert_eq!(world.find(&[number, 1]).1, 2, "{number} is below");
    }
    // Below there is room for 110 more.
    for number in 100..400 {
        world.insert(&[number, 1], number);
        world.settle();
        assert!(world.stats().store.bytes <= 200 * BYTES);
    }
    // A sixteenth stays free, for what leaves memory next.
    let entries = world.stats().entries;
    assert!((187..=188).contains(&entries), "{entries}");
    world.cache.check().unwrap();
}

/// Threads that insert, fetch, remove and clear the same long lists: nobody gets another one's
/// state, and nothing leaks.
#[test]
fn m06_threads_with_the_same_long_lists() {
    let world = World::new(3, 8, TierPolicy::OnEviction);
    let end = AtomicBool::new(false);
    let is_right = |found: Option<(usize, u32)>, number: u32| {
        if let Some((length, version)) = found.filter(|found| found.0 > LENGTH as usize / 2) {
            assert_eq!((length, version % 10), (LENGTH as usize, number));
        }
    };
    std::thread::scope(|scope| {
        let disk = scope.spawn(|| {
            while !end.load(Relaxed) {
                world.settle();
                world.store.read(0, None, false);
                std::thread::yield_now();
            }
        });
        let workers = [0_u32, 1, 2].map(|worker| {
            let world = &world;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(worker as u64);
                for round in 0..60 {
                    let number = random.u32(1..6);
                    let tokens = list(number);
                    match random.u8(0..12) {
                        0..4 => world.insert(&tokens, 10 * round + number),
                        4 => _ = world.remove(&tokens),
                        5 if round % 4 == 0 => world.cache.clear(&mut FreedSnapshots::new()),
                        6 | 7 => is_right(world.find(&tokens).0.map(|hit| (hit.0, hit.1)), number),
                        _ => {
                            let Some(fetch) = world.fetch(&tokens) else { continue };
                            loop {
                                if let Some(came) = world.take(fetch.ticket) {
                                    break is_right(came, number);
                                }
                                std::thread::yield_now();
                            }
                        }
                    }
                }
            })
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        end.store(true, Relaxed);
        disk.join().unwrap();
    });
    world.cache.check().unwrap();
}
