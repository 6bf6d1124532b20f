//! One directory after another: what was noted of one means nothing in the next.
use crate::memory_store::MemoryStore;
use crate::world::{BYTES, World};
use crate::{A, C};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What was noted of one directory, of a state that stays in memory, means nothing in the next.
#[test]
fn t01_the_next_directory_is_searched_anew() {
    let tokens = &[1, 2, 3, 4, 5, 6, 7];
    let world = World::new(1, 64, TierPolicy::Through);
    world.insert(C, 2);
    world.settle();
    world.insert(A, 1);
    world.settle();
    (0..2).for_each(|_| assert_eq!(world.find(tokens), (Some((3, 1, false)), 0)));
    let next = World::new(1, 64, TierPolicy::Through);
    for (tokens, version) in [(&tokens[..6], 3), (&[8], 4), (&[9], 5)] {
        next.insert(tokens, version);
        next.settle();
    }
    let freed = &mut FreedSnapshots::new();
    assert!(world.cache.detach(Duration::from_secs(60), freed));
    let store = next.store.restarted();
    let records = store.records();
    world.cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
    (0..2).for_each(|_| assert_eq!(world.find(tokens), (Some((3, 1, false)), 6)));
}

/// Nor what was noted of one that came and went while the next was being opened: its number is the
/// later one.
#[test]
fn t01_a_directory_that_comes_late_is_searched_anew() {
    let of_late = World::new(4, 64, TierPolicy::Through);
    of_late.insert(C, 7);
    of_late.settle();
    let late = of_late.store.restarted();
    let world = World::new(1, 64, TierPolicy::OnEviction);
    let early = MemoryStore::new(64 * BYTES, usize::MAX);
    let freed = &mut FreedSnapshots::new();
    assert!(world.cache.detach(Duration::from_secs(60), freed));
    let (begins, begun) = mpsc::channel();
    let (lets_go_on, goes_on) = mpsc::channel::<()>();
    late.when_asked(move || {
        begins.send(()).unwrap();
        goes_on.recv().unwrap();
    });
    thread::scope(|scope| {
        let attaches = scope.spawn(|| {
            let records = late.records();
            world.cache.attach(Box::new(late.clone()), records, TierPolicy::OnEviction).unwrap();
        });
        begun.recv().unwrap();
        let records = early.records();
        world.cache.attach(Box::new(early.clone()), records, TierPolicy::Through).unwrap();
        world.insert(A, 1);
        // It need not have written anything.
        world.cache.detach(Duration::ZERO, freed);
        lets_go_on.send(()).unwrap();
        attaches.join().unwrap();
    });
    // What leaves memory is written, to where its own tokens lead.
    world.insert(&[9], 2);
    while late.write(0, None) || early.write(0, None) {}
    late.commit();
    let fetch = world.fetch(C).unwrap();
    while late.read(0, None, false) {}
    assert_eq!(world.take(fetch.ticket), Some(Some((1, 7))));
    let fetch = world.fetch(A).unwrap();
    while late.read(0, None, false) {}
    assert_eq!(world.take(fetch.ticket), Some(Some((3, 1))));
    while late.write(0, None) {}
}

/// T05: who waits for one directory leaves the next one alone, which another thread attached
/// meanwhile.
#[test]
fn t05_a_detach_leaves_what_was_attached_meanwhile() {
    // It comes to that when another thread is between the two.
    for round in 0..300 {
        let world = World::new(4, 64, TierPolicy::Through);
        let (tell, told) = mpsc::channel();
        world.store.stop_when_flushed(tell);
        world.insert(A, 1);
        let next = MemoryStore::new(64 * BYTES, usize::MAX);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let freed = &mut FreedSnapshots::new();
                world.cache.detach(Duration::from_secs(60), freed)
            });
            told.recv().unwrap();
            let freed = &mut FreedSnapshots::new();
            assert!(!world.cache.detach(Duration::ZERO, freed));
            let records = next.records();
            let attached = world.cache.attach(Box::new(next.clone()), records, TierPolicy::Through);
            attached.unwrap();
            assert!(!waits.join().unwrap(), "A was not written");
        });
        assert!(world.cache.is_attached(), "round {round}");
        world.insert(C, 2);
        assert_eq!(next.open(), (1, 0), "round {round}");
        while next.write(0, None) || world.store.write(0, None) {}
        next.commit();
    }
}
