//! Pages that a disk has no room for at the time: all of them are written later.
use crate::failing::{Failure, failing};
use crate::memory_store::MemoryStore;
use crate::over_disk::{LONG, copy_some};
use crate::world::{Setup, World};
use crate::{PLAIN, prompt};
use radixkv::tier::paged::Deadline;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// T05, T08: a page that goes for a fetch before the disk had room for it is lost: a flush does not
/// vouch for it.
#[test]
fn t05_a_flush_does_not_vouch_for_what_a_fetch_took_the_place_of() {
    // Four writes at a time, and room for eight pages in host memory.
    let store = MemoryStore::new(1 << 20, 4);
    let mut world = World::new(Setup::new(60, 8, Some(store)));
    world.run(&PLAIN, &prompt(1, 17));
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    // The second prompt's pages are being written, the third one's wait for that.
    for family in [2, 3] {
        world.run(&PLAIN, &prompt(family, 17));
        world.work();
        while copy_some(&mut world) > 0 {
            world.work();
        }
    }
    assert!(world.tiers.stats().counters.disk_busy > 0);
    // Only the third one's can go.
    let id = world.begin(&PLAIN, &prompt(1, 17)).unwrap().id;
    assert!(world.fetch(id, Deadline::Never).is_begun);
    for _ in 0..4 {
        world.settle();
    }
    let is_flushed = world.tiers.flush_all(LONG);
    let stats = world.tiers.stats();
    let (found, copied) = (stats.disk.pages, stats.counters.stored as usize);
    assert_eq!(copied, 12);
    assert!(!is_flushed || found == copied, "a flush vouches for {found} of {copied} pages");
    world.end();
}

/// T05, T10: the same of pages that host memory gives up because it shrinks.
#[test]
fn t05_a_flush_does_not_vouch_for_what_host_memory_gave_up() {
    // Four writes at a time.
    let store = MemoryStore::new(1 << 20, 4);
    let mut world = World::new(Setup::new(60, 8, Some(store)));
    // The first prompt's pages are being written, the second one's wait for that.
    for family in [1, 2] {
        world.run(&PLAIN, &prompt(family, 17));
        world.work();
        while copy_some(&mut world) > 0 {
            world.work();
        }
    }
    assert!(world.tiers.stats().counters.disk_busy > 0);
    world.tiers.shrink_to(0, u64::MAX);
    for _ in 0..4 {
        world.settle();
    }
    let is_flushed = world.tiers.flush_all(LONG);
    let stats = world.tiers.stats();
    let (found, copied) = (stats.disk.pages, stats.counters.stored as usize);
    assert_eq!(copied, 8);
    assert!(!is_flushed || found == copied, "a flush vouches for {found} of {copied} pages");
    assert!(world.tiers.flush_all(LONG), "it is told once");
    world.end();
}

/// T05: a page that was copied to host memory, and that there was no memory to find by, is on no
/// disk: a flush does not vouch for it.
#[test]
fn t05_a_flush_does_not_vouch_for_what_there_was_no_memory_for() {
    for is_complete in [false, true] {
        let store = MemoryStore::new(1 << 20, 8);
        let mut world = World::new(Setup::new(60, 8, Some(store)));
        world.run(&PLAIN, &prompt(1, 17));
        world.work();
        // Four copies, of which the first ends without memory to note it, or to make its record.
        assert_eq!(world.poll(64), 4);
        world.step_copy(0, true);
        let refused =
            if is_complete { failing(Failure::Once(0), || world.step_copy(0, true)).1 } else { 0 };
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
        let refused = match is_complete {
            true => refused,
            false => failing(Failure::Once(0), || world.tiers.work()).1,
        };
        assert_eq!(refused, 1);
        for _ in 0..4 {
            world.settle();
        }
        let is_flushed = world.tiers.flush_all(LONG);
        let found = world.tiers.stats().disk.pages;
        assert_eq!(found, 3, "one of four was refused");
        assert!(!is_flushed, "a flush vouches for {found} of 4 pages");
        assert!(world.tiers.flush_all(LONG), "it is told once");
        world.end();
    }
}

/// T11: an engine that panics over a copy loses no page: the tiers know of it.
#[test]
fn t11_a_panic_of_the_engine_leaves_no_page_lent() {
    let tokens = prompt(1, 41);
    let mut world = World::new(Setup::new(30, 64, None));
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.compute(id, tokens.len());
    world.work();
    let interrupted = catch_unwind(AssertUnwindSafe(|| {
        world.tiers.poll((1, 8), &mut |_| panic!("the engine's own fault"), &mut |_| {})
    }));
    assert!(interrupted.is_err());
    assert_eq!(world.tiers.stats().open_copies, 1);
    world.release(id);
    world.shared.detach_lower();
    assert_eq!(world.shared.read().copied_pages(), 0, "a page is lent for ever");
    world.shared.evict(100, |_, _| {}).unwrap();
    assert_eq!(world.shared.read().page_table_stats().free, 30);
}

/// T11: nor do the pages behind that one wait for ever: the next polls give them.
#[test]
fn t11_a_panic_of_the_engine_loses_no_page_behind_it() {
    let tokens = prompt(1, 13);
    let mut world = World::new(Setup::new(30, 64, None));
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.compute(id, tokens.len());
    world.work();
    let interrupted = catch_unwind(AssertUnwindSafe(|| {
        world.tiers.poll((3, 8), &mut |_| panic!("the engine's own fault"), &mut |_| {})
    }));
    assert!(interrupted.is_err());
    let stats = world.tiers.stats();
    assert_eq!((stats.open_copies, stats.waiting), (1, 2));
    assert_eq!(world.poll(3), 2);
    // Of the first one the engine does not know.
    world.release(id);
    world.shared.detach_lower();
}

/// T11, M02: what the library itself panics of in a poll is told before others get the lock, also
/// when the engine's function was called before.
#[test]
fn t11_a_panic_of_a_poll_of_its_own_poisons() {
    let panics = Arc::new(AtomicBool::new(false));
    let is_armed = panics.clone();
    let at_yield = move || {
        if is_armed.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new("a bug"));
        }
    };
    let mut world = World::yielding(Setup::new(60, 64, None), Box::new(at_yield));
    for family in [1, 2] {
        world.run(&PLAIN, &prompt(family, 17));
    }
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    for family in [1, 2] {
        let id = world.begin(&PLAIN, &prompt(family, 17)).unwrap().id;
        assert!(world.fetch(id, Deadline::After(Duration::from_millis(1))).is_begun);
    }
    // Both are over with the next poll, which lets others in between them.
    std::thread::sleep(Duration::from_millis(5));
    panics.store(true, Ordering::Relaxed);
    let bug = catch_unwind(AssertUnwindSafe(|| world.poll(1)));
    assert!(bug.is_err() && !panics.load(Ordering::Relaxed));
    assert!(world.shared.is_poisoned(), "who waits for the lock goes on");
}
