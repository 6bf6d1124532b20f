//! What was cleared, beside a store that caches share.
use super::remote_store::{MemoryRemote, Mood};
use super::remote_world::{World, prompt};
use radixkv::snapshot::tiered::FreedSnapshots;
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
