//! What was cleared, beside a store that caches share.
use super::remote_store::MemoryRemote;
use super::remote_world::{World, prompt};
use radixkv::snapshot::tiered::FreedSnapshots;

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
