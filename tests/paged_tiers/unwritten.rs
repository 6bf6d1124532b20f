//! Pages that a disk has no room for at the time: all of them are written later.
use crate::memory_store::MemoryStore;
use crate::over_disk::LONG;
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};

/// T05, T08: more pages than ever found the disk's queue full: a flush that says so has them all.
#[test]
fn t05_a_flush_vouches_for_nothing_that_was_not_written() {
    const PAGES: usize = 400;
    let store = MemoryStore::new(1 << 20, 8);
    let mut world = World::new(Setup::new(PAGES as u32 + 10, PAGES + 100, Some(store)));
    let tokens = prompt(1, 4 * PAGES as u32 + 1);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.compute(info.id, tokens.len());
    world.release(info.id);
    // All of it is in host memory before the disk has written anything.
    while world.tiers.stats().host.pages < PAGES {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
    }
    // The disk writes all that it is given, as often as that takes.
    for _ in 0..PAGES {
        world.settle();
    }
    let is_flushed = world.tiers.flush_all(LONG);
    let found = world.tiers.stats().disk.pages;
    assert!(!is_flushed || found == PAGES, "a flush vouches for {found} of {PAGES} pages");
    assert!(is_flushed, "the disk has room for all of them");
    world.end();
}

/// T08: more pages come before the engine asks for copies than it will ever be given at once: all
/// of them are stored.
#[test]
fn t08_all_that_waits_to_be_stored_is_stored() {
    const PROMPTS: u32 = 170;
    const LENGTH: u32 = 401;
    let pages = (PROMPTS * (LENGTH / 4)) as usize;
    let mut world = World::new(Setup::new(pages as u32 + 200, pages + 100, None));
    for family in 1..=PROMPTS {
        let tokens = prompt(family, LENGTH);
        let info = world.begin(&PLAIN, &tokens).unwrap();
        world.compute(info.id, tokens.len());
        world.release(info.id);
    }
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.counters.throttled), (pages, 0));
    world.end();
}
