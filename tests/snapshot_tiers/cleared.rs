//! What was cleared, beside a store that caches share.
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use super::remote_world::{PLAIN, World, prompt};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use std::sync::mpsc::channel;
use std::time::Duration;

/// T17, T13: what waits to be written when all is cleared is not written any more.
#[test]
fn t17_what_waits_for_the_store_is_not_written_after_a_clear() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    world.insert(&prompt(1, 100), 1);
    assert!(world.stats().remote.waiting > 0);
    world.cache.clear(&mut FreedSnapshots::new());
    world.settle();
    assert_eq!(world.stats().remote.waiting, 0);
    assert_eq!(remote.inside().values.len(), 0);
}

/// T17, T13: nor is what is being written: nobody finds pieces without a head.
#[test]
fn t17_what_is_being_written_gets_no_head_after_a_clear() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    world.insert(&prompt(1, 100), 1);
    remote.set(Mood::Slow(Duration::from_millis(200)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| world.settle());
        // Its only piece is on its way.
        while remote.inside().counts[2] == 0 && !writer.is_finished() {
            std::thread::yield_now();
        }
        world.cache.clear(&mut FreedSnapshots::new());
    });
    remote.set(Mood::Good);
    assert_eq!(remote.inside().values.len(), 1, "its piece alone");
    assert_eq!(world.stats().remote.skipped, 1);
}

/// T17, T13: a fetch that has made its question, and not asked it yet, when all is cleared asks
/// nothing, and brings nothing of before the clear.
#[test]
fn t17_what_was_not_asked_before_a_clear_is_not_asked_after_it() {
    let (remote, tokens) = (MemoryRemote::new(), prompt(1, 100));
    let other = World::new(&remote);
    other.insert(&tokens, 1);
    other.settle();
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let world = World::with(&remote, Some(store.clone()), TierPolicy::Through);
    let ((asks, asked), (clears, cleared)) = (channel(), channel());
    store.when_looked_at(move || {
        asks.send(()).unwrap();
        cleared.recv().unwrap();
    });
    let freed = &mut FreedSnapshots::new();
    let fetch = std::thread::scope(|scope| {
        let cache = &world.cache;
        scope.spawn(move || {
            asked.recv_timeout(Duration::from_secs(60)).unwrap();
            cache.clear(&mut FreedSnapshots::new());
            clears.send(()).unwrap();
        });
        cache.fetch(&PLAIN, &tokens, false, freed).unwrap()
    });
    world.settle();
    assert_eq!(fetch, None);
    assert_eq!(world.bring(&tokens), None);
    world.settle();
    assert_eq!((store.records().len(), store.open()), (0, (0, 0)));
}
