//! Host memory that is full, as it is most of the time.
use crate::memory_store::MemoryStore;
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};
use radixkv::tier::paged::{Deadline, Direction};

/// T08: a fetch that waits for the disk keeps nobody from storing in the place of pages that the
/// disk has.
#[test]
fn t08_stores_go_on_while_a_fetch_waits() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = World::new(Setup::new(60, 16, Some(store)));
    for family in 1..4 {
        world.run(&PLAIN, &prompt(family, 41));
        world.settle();
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.work();
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.pages, stats.free_slots), (30, 0));
    // The disk does not answer.
    let waits = world.begin(&PLAIN, &prompt(1, 21)).unwrap().id;
    let found = world.fetch(waits, Deadline::Never);
    assert!(found.is_begun && found.host_positions < found.positions, "{found:?}");
    world.work();
    let info = world.begin(&PLAIN, &prompt(9, 21)).unwrap();
    world.compute(info.id, 21);
    world.release(info.id);
    for _ in 0..20 {
        world.work();
        world.poll(64);
    }
    let stored = world.copies.iter().any(|copy| copy.job.direction == Direction::Store);
    assert!(stored, "nothing is stored meanwhile");
    world.settle();
    world.end();
}
