//! A remote store that does not return from its calls, below several groups of layers.
use super::group_remote::{filled, on};
use super::group_world::{GroupWorld, Setup};
use super::groups::{FULL, prompt, window};
use super::remote_store::MemoryRemote;
use radixkv::index::Namespace;
use radixkv::tier::paged::{Deadline, PagePolicy};
use std::time::{Duration, Instant};

fn work(world: &GroupWorld) {
    while world.tiers.work() {}
}

/// T13, T11: a store that was given up is asked for nothing more by the same fetch, also when that
/// has to try another end and host memory has less by then.
#[test]
fn t13_a_store_that_was_given_up_keeps_no_fetch_of_groups() {
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..MemoryRemote::new() };
    let mut world = GroupWorld::new(Setup {
        groups: vec![FULL, window(9, 0, 1)],
        pages: vec![40, 40],
        host_pages: vec![100, 100],
        store: None,
        remote: Some(remote),
        policy: PagePolicy::Through,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    let tokens = prompt(1, 41);
    world.run(&tokens[..25], &[]);
    world.settle();
    assert_eq!(world.tiers.stats().host.pages, 12);
    world.evict_all();
    world.fetched.clear();
    // Its threads do nothing from here on.
    let info = world.begin(&Namespace::default(), &tokens).unwrap();
    work(&world);
    let found = world.fetch(info.id, Deadline::Never);
    assert_eq!((found.positions, found.asked_positions, found.is_begun), (24, 16, true));
    work(&world);
    std::thread::sleep(Duration::from_millis(320));
    work(&world);
    assert_eq!(world.tiers.stats().counters.remote_late, 1, "the question is given up");
    // Six pages of group 0 and two of the window, of which the last is not copied.
    assert_eq!(world.poll(64), 8);
    world.end_copy(7, false);
    while !world.copies.is_empty() {
        world.end_copy(0, true);
    }
    // What the end before that needs of the window leaves host memory.
    world.tiers.shrink_to(0, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while world.fetched.is_empty() {
        assert!(Instant::now() < end, "it waits for ever: {:?}", world.tiers.stats());
        work(&world);
        world.poll(64);
        while !world.copies.is_empty() {
            world.end_copy(0, true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(world.fetched[0].is_late && world.fetched[0].positions < 24);
    world.compute(info.id, tokens.len());
    world.end();
}

/// T11: a store that stands still keeps a fetch waiting for no longer than its time.
#[test]
fn t16_t13_a_store_that_stands_still_is_not_waited_for() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens, &[4, 10]);
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..remote };
    // Its threads come to no question, to the first, to both, and to no page.
    for answered in 0..3 {
        let mut world = on(&remote);
        world.run(&tokens[..25], &[4]);
        world.evict_all();
        world.fetched.clear();
        let info = world.begin(&Namespace::default(), &tokens).unwrap();
        assert!(world.fetch(info.id, Deadline::Never).is_begun);
        let step = |world: &mut GroupWorld| {
            while world.tiers.work() {}
            world.poll(64);
            while !world.copies.is_empty() {
                world.end_copy(0, true);
            }
            world.fetched.pop()
        };
        for _ in 0..answered {
            assert!(step(&mut world).is_none());
            assert!(world.tiers.work_remote());
        }
        assert!(step(&mut world).is_none(), "{answered}");
        std::thread::sleep(Duration::from_millis(310));
        let done = (0..4).find_map(|_| step(&mut world)).unwrap();
        assert_eq!((done.positions, done.is_late), (16, true), "{answered}");
        world.compute(info.id, 41);
        while world.tiers.work_remote() {}
        world.end();
    }
}

/// T11, T12: neither does it keep another fetch, which waits for the same pages.
#[test]
fn t16_t12_a_store_that_stands_still_keeps_no_second_fetch() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens, &[4, 10]);
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..remote };
    let mut world = on(&remote);
    let ids = [0, 1].map(|_| world.begin(&Namespace::default(), &tokens).unwrap().id);
    while world.tiers.work() {}
    ids.iter().for_each(|&id| assert!(world.fetch(id, Deadline::Never).is_begun));
    // Two questions each, and no page.
    for _ in 0..4 {
        while world.tiers.work() {}
        assert!(world.tiers.work_remote());
    }
    let begun = Instant::now();
    while ids.iter().any(|id| world.requests[id].is_open) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it waits: {:?}", world.tiers.stats());
        while world.tiers.work() {}
        world.poll(64);
        std::thread::sleep(Duration::from_millis(5));
    }
    ids.iter().for_each(|&id| world.compute(id, 41));
    while world.tiers.work_remote() {}
    world.end();
}
