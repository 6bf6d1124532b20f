//! Who takes only what host memory has.
use crate::memory_store::MemoryStore;
use crate::world::{PAGE_BYTES, Setup};
use crate::{PLAIN, prompt, stored};
use radixkv::tier::paged::Deadline;
use std::time::Duration;

/// T11, T12: who takes only what host memory has does not wait for another one's disk.
#[test]
fn t11_no_time_waits_for_no_other_fetch() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(30, 64, Some(store.clone())), &tokens);
    world.tiers.shrink_to(6 * PAGE_BYTES as u64, u64::MAX);
    let go_on = |world: &mut crate::world::World| {
        for _ in 0..20 {
            world.work();
            world.poll(64);
            while !world.copies.is_empty() {
                world.step_copy(0, true);
            }
        }
    };
    let waits = world.begin(&PLAIN, &tokens).unwrap().id;
    assert_eq!(world.fetch(waits, Deadline::Never).positions, 40);
    go_on(&mut world);
    assert_eq!(store.open(), (0, 4), "the disk reads the rest, and does not move");
    let hurries = world.begin(&PLAIN, &tokens).unwrap().id;
    let found = world.fetch(hurries, Deadline::After(Duration::ZERO));
    assert_eq!((found.positions, found.is_begun), (24, true));
    go_on(&mut world);
    let done = world.fetched.iter().find(|done| done.sequence == hurries);
    assert_eq!(done.map(|done| done.positions), Some(24), "it waits for the other one's disk");
    world.settle();
    assert_eq!(world.requests[&waits].computed, 40);
    [waits, hurries].iter().for_each(|&id| world.compute(id, tokens.len()));
    world.end();
}
