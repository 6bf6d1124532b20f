//! Other weights, another epoch: what was there before is of no use, and goes.
use crate::memory_store::MemoryStore;
use crate::world::{PAGE_BYTES, Setup, World};
use crate::{PLAIN, prompt};
use radixkv::index::Namespace;

/// T17: pages of the old epoch are not found in the new one, and go before all that it has.
#[test]
fn t17_pages_of_an_old_epoch_are_not_found_and_go_first() {
    let store = MemoryStore::new(17 * PAGE_BYTES as u64, 1 << 10);
    let mut world = World::new(Setup::new(30, 4, Some(store)));
    let next = Namespace { epoch: 1, ..PLAIN };
    let mut run = |space: &Namespace, family| {
        let found = world.run(space, &prompt(family, 33));
        world.settle();
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.work();
        found
    };
    // Eight pages each; the disk has room for seventeen.
    assert_eq!(run(&PLAIN, 1), (0, 0));
    assert_eq!(run(&PLAIN, 1), (0, 32));
    assert_eq!(run(&next, 2), (0, 0));
    assert_eq!(run(&next, 1), (0, 0), "the old epoch has it");
    // A page may have found no room, while what went was not committed yet.
    for family in [2, 1] {
        let (had, found) = run(&next, family);
        assert!(had == 0 && found >= 28, "{found} positions of {family} in the new epoch");
    }
    let (had, left) = run(&PLAIN, 1);
    assert!(had == 0 && left <= 4, "{left} positions of the old epoch are left");
    world.end();
}
