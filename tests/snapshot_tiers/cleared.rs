//! What was cleared: beside a store that caches share, and between two attachments.
use super::remote_store::MemoryRemote;
use super::remote_world;
use super::world::World;
use super::{A, B, few};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use std::time::Duration;

/// T17, T13: what waits to be written when all is cleared is not written any more.
#[test]
fn t17_what_waits_for_the_store_is_not_written_after_a_clear() {
    let remote = MemoryRemote::new();
    let world = remote_world::World::new(&remote);
    world.insert(&remote_world::prompt(1, 100), 1);
    assert!(world.stats().remote.waiting > 0);
    world.cache.clear(&mut FreedSnapshots::new());
    world.settle();
    assert_eq!(world.stats().remote.waiting, 0);
    assert_eq!(remote.inside().values.len(), 0);
}

/// T17: what was cleared while no directory was there is not found when it is attached again, and
/// goes. Before the first one a clear says nothing of what another process has left there.
#[test]
fn t17_what_was_cleared_between_two_attachments_is_gone() {
    let world = World::new(8, 8, TierPolicy::Through);
    world.insert(A, 1);
    world.settle();
    let freed = &mut FreedSnapshots::new();
    assert!(world.cache.detach(Duration::from_secs(60), freed));
    world.cache.clear(freed);
    let store = world.store.restarted();
    let records = store.records();
    assert_eq!(records.len(), 1);
    world.cache.attach(Box::new(store.clone()), records, TierPolicy::Through).unwrap();
    assert_eq!(world.find(A), (None, 0)); // today (None, 3)
    assert_eq!(world.fetch(B), None);
    // What comes now is kept as ever, and alone.
    world.insert(A, 2);
    while store.write(0, None) {}
    store.commit();
    assert_eq!(store.records().len(), 1);
    let again = World::with(few(8), store.restarted(), TierPolicy::Through);
    assert_eq!(again.bring(B), Some((3, 2)));
    // Without a clear all stays.
    assert!(again.cache.detach(Duration::from_secs(60), freed));
    let same = again.store.restarted();
    let records = same.records();
    again.cache.attach(Box::new(same), records, TierPolicy::Through).unwrap();
    assert_eq!(again.find(B).0, Some((3, 2, true)));
    again.cache.clear(freed);
}
