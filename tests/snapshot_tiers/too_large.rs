//! States that memory is too small for by now.
use super::world::{Part, World};
use radixkv::snapshot::tiered::FreedSnapshots;
use radixkv::snapshot::tiered::TierPolicy;
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use std::sync::atomic::Ordering::Relaxed;

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
