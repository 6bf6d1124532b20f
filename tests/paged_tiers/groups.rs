//! T16: several groups of layers in lower tiers, by one rule for how far a prompt can be reused.
use super::group_world::{GroupWorld, Setup};
use super::memory_store::MemoryStore;
use super::world::PAGE_SIZE;
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind};
use radixkv::index::Namespace;
use radixkv::store::PublishedGroups;
use radixkv::tier::paged::{Deadline, PagePolicy};
use radixkv::token::TokenList;

pub const FULL: GroupConfig = GroupConfig { kind: GroupKind::Full, pool: 0, draft_states: 0 };

pub fn window(window: u32, sinks: u32, pool: u32) -> GroupConfig {
    GroupKind::Window { window, sinks }.in_pool(pool)
}

pub fn hybrid(store: Option<MemoryStore>) -> Setup {
    Setup {
        groups: vec![FULL, window(9, 0, 1), GroupKind::State.in_pool(2)],
        pages: vec![40, 40, 8],
        host_pages: vec![100, 100, 20],
        store,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        first: 0,
        checkpoint_limit: 0,
        slices: None,
    }
}

pub fn prompt(family: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| 1000 * family + at).collect()
}

/// What a fetch brings is what the farthest end needs: all of group 0, the last window, one state.
#[test]
fn t16_a_fetch_brings_what_all_groups_need_and_no_more() {
    let mut world = GroupWorld::new(hybrid(None));
    let tokens = prompt(1, 41);
    assert_eq!(world.run(&tokens, &[4, 10]), (0, 0));
    assert_eq!(world.run(&tokens, &[]), (40, 40), "the device has it");
    // 10 pages of each, and 2 states.
    assert_eq!(world.tiers.stats().host.pages, 22);
    world.evict_all();
    assert_eq!(world.run(&tokens, &[]), (0, 40));
    let stats = world.tiers.stats();
    // A window of 9 at position 40 sees 8 positions before it: 2 pages.
    assert_eq!((stats.host.fetched, stats.counters.complete), (10 + 2 + 1, 1));
    assert_eq!(stats.counters.lost, 0);
    // The state that came is the cache's too: the next request has all of it.
    assert_eq!(world.run(&tokens, &[]), (40, 40));
    // Where the device has lost the state alone, it is all that is brought.
    world.evict(2, 100);
    assert_eq!(world.run(&tokens, &[]), (0, 40));
    assert_eq!(world.tiers.stats().host.fetched, 13 + 1);
    // Of a prompt that parts behind page 6 the state after page 4 is the last that can be used.
    let other: Vec<u32> = tokens[..26].iter().copied().chain(900..920).collect();
    world.evict_all();
    assert_eq!(world.run(&other, &[]), (0, 16));
    assert_eq!(world.tiers.stats().host.fetched, 14 + 4 + 2 + 1);
    world.end();
}

/// What it brings is no publishing: what that did is told apart.
#[test]
fn t16_a_fetch_is_no_publishing() {
    let mut world = GroupWorld::new(hybrid(None));
    let tokens = prompt(1, 41);
    world.run(&tokens, &[4, 10]);
    world.evict_all();
    let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
    assert!(world.fetch(id, Deadline::Never).is_begun);
    world.settle();
    assert_eq!(world.shared.read().sequence_info(id).unwrap().shared_pages, 10);
    assert_eq!(world.shared.read().published_groups(id).unwrap(), PublishedGroups::default());
    world.release(id);
    world.end();
}

/// And from a disk after a restart.
#[test]
fn t16_after_a_restart_all_groups_are_found_on_the_disk() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut setup = hybrid(Some(store));
    setup.host_pages = vec![16, 4, 2];
    let mut world = GroupWorld::new(setup);
    for family in 1..4 {
        assert_eq!(world.run(&prompt(family, 41), &[5, 10]), (0, 0));
    }
    assert_eq!(world.tiers.stats().disk.pages, 3 * 22);
    let mut world = world.restarted();
    for family in 1..4 {
        assert_eq!(world.run(&prompt(family, 41), &[]), (0, 40));
        assert_eq!(world.run(&prompt(family, 30), &[]), (0, 20));
        world.evict_all();
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.shortened, stats.disk.damaged, stats.disk.failed), (0, 0, 0));
    world.end();
}

/// Where the bytes of one group have changed, less is reused, and nothing wrong.
#[test]
fn t16_damage_of_one_group_lowers_the_depth_and_no_more() {
    for pool in 0..3 {
        let mut world = GroupWorld::new(hybrid(None));
        let tokens = prompt(1, 41);
        world.run(&tokens, &[3, 6, 10]);
        world.evict_all();
        // Where the last page of each pool lies: slots are taken in order.
        let (bytes, last) = (world.setup.page_bytes(pool), [9, 9, 2][pool]);
        world.host[pool][last * bytes + 5] ^= 4;
        assert_eq!(world.run(&tokens, &[]), (0, 24), "pool {pool}");
        let stats = world.tiers.stats();
        assert_eq!((stats.host.damaged, stats.counters.shortened), (1, 1));
        world.end();
    }
}

/// A copy that an engine could not carry out: the same, and what is needed for the end before is
/// tried once more.
#[test]
fn t16_a_copy_that_fails_lowers_the_depth() {
    for failing in 0..13 {
        let mut world = GroupWorld::new(hybrid(None));
        let tokens = prompt(1, 41);
        world.run(&tokens, &[4, 10]);
        world.evict_all();
        let info = world.begin(&Default::default(), &tokens).unwrap();
        assert!(world.fetch(info.id, Deadline::Never).is_begun);
        for at in 0..13 {
            while world.copies.is_empty() {
                while world.tiers.work() {}
                world.poll(1);
            }
            world.end_copy(0, at != failing);
            if at == failing {
                break;
            }
        }
        world.settle();
        assert_eq!(world.requests[&info.id].computed, 16, "{failing}");
        world.compute(info.id, tokens.len());
        world.end();
    }
}

/// Two requests for one prefix: pages are shared, each has a state of its own, and it comes once.
#[test]
fn t16_two_requests_share_what_is_brought_but_the_state() {
    let mut world = GroupWorld::new(hybrid(None));
    let tokens = prompt(1, 41);
    world.run(&tokens, &[10]);
    world.evict_all();
    let ids = [0, 1].map(|_| {
        let info = world.begin(&Default::default(), &tokens).unwrap();
        assert!(world.fetch(info.id, Deadline::Never).is_begun);
        info.id
    });
    world.settle();
    for id in ids {
        assert_eq!(world.requests[&id].computed, 40);
        world.check(id);
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.host.fetched, stats.counters.joined), (12 + 1, 1));
    for id in ids {
        world.compute(id, tokens.len());
    }
    world.end();
}

/// T07: a directory with pages of another size, or of a group that isn't there, is refused, and
/// keeps all that it has.
#[test]
fn t16_another_layout_is_refused() {
    let mut world = GroupWorld::new(hybrid(Some(MemoryStore::new(1 << 20, 1 << 10))));
    world.run(&prompt(1, 41), &[10]);
    let state = GroupKind::State.in_pool(2);
    let other_pool = "pages of 24 bytes of group 1, whose page_bytes are 32 here";
    for (groups, why) in [
        (vec![FULL, window(9, 0, 2), state], other_pool),
        (vec![FULL, window(9, 0, 1)], "of group 2, which the page table does not have"),
        (vec![FULL], "which the page table does not have"),
    ] {
        let store = world.setup.store.as_ref().unwrap().restarted();
        let all = store.records().len();
        let setup = Setup { groups, store: Some(store.clone()), ..world.setup.clone() };
        let error = GroupWorld::refused(&setup);
        assert!(matches!(&error, Error::Storage(text) if text.contains(why)), "{error}");
        assert_eq!(store.records().len(), all);
    }
    let mut world = world.restarted();
    assert_eq!(world.run(&prompt(1, 41), &[]), (0, 40));
    assert_eq!(world.tiers.stats().counters.unusable, 0);
    assert_eq!(PAGE_SIZE, 4);
    world.end();
}

/// T18: what a prefetch brings to host memory is what a fetch needs.
#[test]
fn t16_t18_a_prefetch_brings_all_groups_to_host_memory() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = GroupWorld::new(hybrid(Some(store)));
    let tokens = prompt(1, 41);
    world.run(&tokens, &[10]);
    let mut world = world.restarted();
    while world.tiers.work() {}
    let list = TokenList::text(&tokens);
    let begun = world.tiers.prefetch(&Namespace::default(), list, Deadline::Never, false).unwrap();
    assert_eq!((begun.found.positions, begun.found.host_positions), (40, 0));
    world.settle();
    assert_eq!(world.tiers.stats().host.pages, 10 + 2 + 1);
    let info = world.begin(&Namespace::default(), &tokens).unwrap();
    let at_once = Deadline::After(std::time::Duration::ZERO);
    assert_eq!(world.fetch(info.id, at_once).host_positions, 40);
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 40);
    world.compute(info.id, tokens.len());
    world.end();
}

/// T11: what is not in host memory is not waited for; what came late is not used.
#[test]
fn t16_t11_no_time_is_host_memory_alone() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = GroupWorld::new(hybrid(Some(store)));
    let tokens = prompt(1, 41);
    world.run(&tokens, &[5, 10]);
    let mut world = world.restarted();
    while world.tiers.work() {}
    for deadline in [std::time::Duration::ZERO, std::time::Duration::from_nanos(1)] {
        let info = world.begin(&Namespace::default(), &tokens).unwrap();
        world.fetch(info.id, Deadline::After(deadline));
        world.settle();
        assert_eq!(world.requests[&info.id].computed, 0);
        world.release(info.id);
    }
    assert_eq!(world.tiers.stats().counters.late, 1);
    world.end();
}
