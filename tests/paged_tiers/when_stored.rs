//! When a page is copied: all that goes in an eviction, of all groups, and what was asked for.
use crate::group_world::{GroupWorld, Setup as GroupSetup};
use crate::groups::FULL;
use crate::memory_store::MemoryStore;
use crate::world::{PAGE_BYTES, Setup, World};
use crate::{PLAIN, prompt};
use radixkv::group::GroupKind;
use radixkv::index::IndexKind;
use radixkv::tier::paged::{Deadline, PagePolicy};

/// T08: pages are stored when they come, when they were asked for, or when they are about to go.
#[test]
fn t08_policies_say_when_a_page_is_stored() {
    let (tokens, other) = (prompt(1, 41), prompt(2, 41));
    let stored = |world: &World| world.tiers.stats().counters.stored;
    let mut uses = Setup::new(60, 64, None);
    uses.policy = PagePolicy::AfterUses(2);
    let mut world = World::new(uses);
    // What is all there is asked for too: another token would have been fetched.
    let longer: Vec<u32> = tokens.iter().copied().chain(prompt(5, 8)).collect();
    for (round, expected) in [0, 0, 10].into_iter().enumerate() {
        world.run(&PLAIN, if round == 0 { &tokens } else { &longer });
        world.run(&PLAIN, &other[..1 + round]);
        world.settle();
        assert!(stored(&world) >= expected, "{round}");
        assert!(round > 1 || stored(&world) == 0, "{round}");
    }
    world.end();
    let mut cold = Setup::new(60, 64, None);
    cold.policy = PagePolicy::OnEviction;
    let mut world = World::new(cold);
    world.run(&PLAIN, &tokens);
    world.settle();
    assert_eq!(stored(&world), 0, "there is room");
    world.run(&PLAIN, &other);
    world.run(&PLAIN, &prompt(3, 80));
    world.settle();
    assert!(stored(&world) >= 10, "{}", stored(&world));
    // Those that were used longest ago first: none is lost when they go.
    world.shared.evict(10, |_, _| {}).unwrap();
    world.work();
    assert_eq!(world.tiers.stats().counters.lost, 0);
    assert_eq!(world.run(&PLAIN, &tokens).1, 40);
    world.end();
}

/// T08: whole prompts are stored before they go, whatever index knows them: also one that has a
/// node for each page, of which the last alone is a leaf.
#[test]
fn t08_whole_prompts_are_stored_before_they_go() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let policy = PagePolicy::OnEviction;
        let mut world = World::new(Setup { policy, index, ..Setup::new(60, 64, None) });
        for (family, length) in [(1, 41), (2, 41), (3, 80)] {
            world.run(&PLAIN, &prompt(family, length));
            world.settle();
        }
        // The first prompt was used longest ago.
        assert_eq!(world.shared.evict(10, |_, _| {}).unwrap(), 10);
        world.work();
        assert_eq!(world.tiers.stats().counters.lost, 0, "{index:?}");
        assert_eq!(world.run(&PLAIN, &prompt(1, 41)), (0, 40), "{index:?}");
        world.end();
    }
}

/// T08, T16: of a pool that groups share, pages of group 0 are stored before they go, too: they go
/// first where what hangs on them was let go of later.
#[test]
fn t08_group_0_is_stored_before_it_goes_from_a_pool_that_others_share() {
    let mut world = GroupWorld::new(GroupSetup {
        groups: vec![FULL, GroupKind::Full.in_pool(0)],
        pages: vec![240],
        host_pages: vec![400],
        store: None,
        remote: None,
        policy: PagePolicy::OnEviction,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    // 10 pages in each of both groups; of 240 pages 20 are free in the end, and 32 are looked at.
    for family in 1..12 {
        assert_eq!(world.run(&prompt(family, 41), &[]), (0, 0));
    }
    world.settle();
    assert!(world.evict(0, 20) >= 20);
    while world.tiers.work() {}
    assert_eq!(world.tiers.stats().counters.lost, 0);
    assert_eq!(world.run(&prompt(1, 41), &[]), (0, 40));
    world.end();
}

/// T08: who looks what there is has not asked for it.
#[test]
fn t08_a_look_is_no_use() {
    let tokens = prompt(1, 41);
    let policy = PagePolicy::AfterUses(2);
    let mut world = World::new(Setup { policy, ..Setup::new(60, 64, None) });
    world.run(&PLAIN, &tokens);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    for _ in 0..3 {
        world.tiers.fetch(id, Deadline::Never, true).unwrap();
    }
    world.fetch(id, Deadline::Never);
    world.settle();
    assert_eq!(world.tiers.stats().counters.stored, 0, "one fetch has asked");
    world.end();
}

/// T10: what the device has, and is asked for most, does not go from below first.
#[test]
fn t10_what_the_device_uses_most_does_not_go_from_below_first() {
    // The device has room for all; the directory, and host memory, for less than a half.
    let store = MemoryStore::new(20 * PAGE_BYTES as u64, 1 << 10);
    let mut world = World::new(Setup::new(100, 20, Some(store)));
    let often = prompt(1, 9);
    for family in 2..22 {
        world.run(&PLAIN, &often);
        world.settle();
        world.run(&PLAIN, &prompt(family, 9));
        world.settle();
    }
    let mut world = world.restarted();
    assert_eq!(world.run(&PLAIN, &often), (0, 8), "it was used last but one");
    world.end();
}

/// T10: what is stored does not take the place of what it goes on after.
#[test]
fn t10_what_goes_on_after_a_page_does_not_take_its_place() {
    // The directory has room for 19 pages: 9 of a prompt, then 10 of others.
    let store = MemoryStore::new(20 * PAGE_BYTES as u64, 1 << 10);
    let mut world = World::new(Setup::new(100, 100, Some(store)));
    let first = prompt(1, 37);
    world.run(&PLAIN, &first);
    world.settle();
    for family in 2..7 {
        world.run(&PLAIN, &prompt(family, 9));
        world.settle();
    }
    assert_eq!(world.tiers.stats().disk.pages, 19);
    // The device has all of the prompt. This is no fetch of which is said what it uses.
    let longer: Vec<u32> = first[..36].iter().copied().chain(prompt(7, 17)).collect();
    assert_eq!(world.run(&PLAIN, &longer), (36, 0));
    (0..8).for_each(|_| world.settle());
    assert_eq!(world.tiers.stats().disk.pages, 19);
    let mut world = world.restarted();
    assert_eq!(world.run(&PLAIN, &longer), (0, 52), "others were used longest ago");
    world.end();
}

/// T10, T16: the same of groups beside the first, whose pages go each by itself.
#[test]
fn t10_what_the_device_uses_most_does_not_go_from_below_first_in_any_group() {
    for kind in [GroupKind::Full, GroupKind::Window { window: 8, sinks: 0 }] {
        // The device has room for all; host memory for less than a half.
        let mut world = GroupWorld::new(GroupSetup {
            groups: vec![FULL, kind.in_pool(1)],
            pages: vec![100, 100],
            host_pages: vec![20, 20],
            store: None,
            remote: None,
            policy: PagePolicy::Through,
            agrees: false,
            checkpoint_limit: 0,
            first: 0,
            slices: None,
        });
        let often = prompt(1, 9);
        for family in 2..22 {
            world.run(&often, &[]);
            world.run(&prompt(family, 9), &[]);
        }
        world.evict_all();
        assert_eq!(world.run(&often, &[]), (0, 8), "{kind:?}: it was used last but one");
        world.end();
    }
}

/// T10, T16: nor after a restart: what many prompts begin with was written first, and is needed as
/// long as one of them.
#[test]
fn t10_what_prompts_begin_with_stays_after_a_restart_in_all_groups() {
    // Of 720 bytes 688 may be used: two pages of each group that all begin with, and two more of
    // each of six prompts, take 672. A page of the first group is 16 bytes there, another one 32.
    let mut world = GroupWorld::new(GroupSetup {
        groups: vec![FULL, GroupKind::Full.in_pool(1)],
        pages: vec![60, 60],
        host_pages: vec![100, 100],
        store: Some(MemoryStore::new(720, 1 << 10)),
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        checkpoint_limit: 0,
        first: 0,
        slices: None,
    });
    let text = |family| [prompt(1, 8), prompt(family, 9)].concat();
    for family in 2..8 {
        world.run(&text(family), &[]);
        world.settle();
    }
    assert_eq!(world.tiers.stats().disk.pages, 28);
    let mut world = world.restarted();
    // Another one, for which those go that were used longest ago.
    world.run(&prompt(50, 17), &[]);
    (0..8).for_each(|_| world.settle());
    world.evict_all();
    assert_eq!(world.run(&text(7), &[]), (0, 16), "it was used last");
    world.end();
}

/// T08: what was stored, and was given up by host memory since, is not counted as never stored.
#[test]
fn t08_what_host_memory_gave_up_was_not_lost() {
    let mut world = World::new(Setup::new(20, 4, None));
    world.run(&PLAIN, &prompt(1, 41));
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.stored, stats.host.evicted, stats.counters.lost), (10, 6, 0));
    // One that was not stored in time is lost.
    world.run(&PLAIN, &prompt(2, 5));
    world.work();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    assert_eq!(world.tiers.stats().counters.lost, 1);
    world.end();
}
