//! A remote store that does not return from its calls, below several groups of layers.
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
    let end = Instant::now() + Duration::from_secs(5);
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
