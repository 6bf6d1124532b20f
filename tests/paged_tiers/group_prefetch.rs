//! T18, T16: several groups of layers that come to host memory before their prompt does, from what
//! others have filled.
use super::group_remote::{filled, on};
use super::group_world::{GroupWorld, Setup};
use super::groups::{hybrid, prompt};
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use radixkv::index::Namespace;
use radixkv::tier::paged::Deadline;
use radixkv::token::TokenList;

/// What others have computed comes to host memory before the prompt does: what the farthest
/// end needs, beyond what the disk has, and no more. A store that is bad costs what it has.
#[test]
fn t16_t18_a_prefetch_asks_for_all_groups() {
    let tokens = prompt(1, 41);
    let prefetch = |world: &GroupWorld, tokens: &[u32]| {
        let list = TokenList::text(tokens);
        world.tiers.prefetch(&Namespace::default(), list, Deadline::Never, false).unwrap()
    };
    let remote = filled(&tokens, &[4, 10]);
    let mut world = on(&remote);
    while world.tiers.work() {}
    let begun = prefetch(&world, &tokens);
    assert_eq!((begun.found.positions, begun.found.asked_positions), (0, 40));
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.prefetched, stats.open_prefetches), ([0, 10 + 2 + 1], 0));
    assert_eq!((stats.remote.read, stats.host.pages), (13, 13));
    // All of it is here, so nobody is asked again, and a prompt that is new is asked for once.
    let asked = stats.remote.asked;
    assert_eq!(prefetch(&world, &tokens).found.host_positions, 40);
    world.settle();
    assert_eq!(world.tiers.stats().remote.asked, asked);
    assert_eq!(prefetch(&world, &prompt(2, 41)).found.asked_positions, 40);
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.remote.asked, stats.open_prefetches), (asked + 10, 0));
    remote.set(Mood::Dead);
    assert_eq!(world.run(&tokens, &[]), (0, 40));
    assert_eq!(world.tiers.stats().counters.fetched, [13, 0, 0]);
    world.end();
    // The disk has the beginning.
    remote.set(Mood::Good);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let alone = Setup { remote: None, ..hybrid(Some(store)) };
    let mut world = GroupWorld::new(alone);
    world.run(&tokens[..25], &[4]);
    world.settle();
    let mut world = world.restarted_on(Some(remote.clone()));
    while world.tiers.work() {}
    let begun = prefetch(&world, &tokens);
    assert_eq!((begun.found.positions, begun.found.asked_positions), (16, 24));
    // First what the disk has, then what the store has beyond.
    (0..2).for_each(|_| world.settle());
    let came = world.tiers.stats().counters.prefetched;
    assert_eq!(came, [4 + 2 + 1 + 2, 4 + 2 + 1]);
    assert_eq!(world.run(&tokens, &[]), (0, 40));
    world.end();
    for mood in [Mood::Dead, Mood::Panics, Mood::Lies, Mood::Cuts] {
        let mut world = on(&remote);
        while world.tiers.work() {}
        remote.set(mood);
        prefetch(&world, &tokens);
        world.settle();
        assert_eq!(world.tiers.stats().open_prefetches, 0, "{mood:?}");
        remote.set(Mood::Dead);
        assert_eq!(world.run(&tokens, &[]), (0, 0), "{mood:?}");
        world.end();
        remote.set(Mood::Good);
    }
}

/// T18, T10: prefetches that wait for the store's answer are bounded, as those that bring pages.
#[test]
fn t18_prefetches_that_ask_are_bounded() {
    let remote = MemoryRemote::new();
    let mut world = on(&remote);
    while world.tiers.work() {}
    let (mut begun, tokens) = (0, prompt(1, 41));
    for _ in 0..1000 {
        let list = TokenList::text(&tokens);
        let space = Namespace::default();
        let made = world.tiers.prefetch(&space, list, Deadline::Never, false).unwrap();
        begun += usize::from(made.number != 0);
    }
    let stats = world.tiers.stats();
    // A half of the slots that group 0 has.
    assert!(stats.open_prefetches <= 50, "{} are open", stats.open_prefetches);
    assert_eq!(stats.counters.refused_prefetches, 1000 - begun as u64);
    world.settle();
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    world.end();
}

/// T18, T10: a prefetch has a half of each pool's host memory at most, also where other pools have
/// as many slots.
#[test]
fn t18_a_prefetch_leaves_a_half_of_each_pool() {
    let store = MemoryStore::new(1 << 20, 1 << 12);
    let setup = hybrid(Some(store));
    let (pages, host_pages) = (vec![70, 70, 8], vec![64, 64, 20]);
    let mut world = GroupWorld::new(Setup { pages, host_pages, ..setup });
    let (expected, older) = (prompt(1, 4 * 64 + 1), prompt(2, 4 * 60 + 1));
    world.run(&expected, &[64]);
    world.settle();
    let mut world = world.restarted();
    world.run(&older, &[60]);
    world.settle();
    world.evict_all();
    let before = world.tiers.stats();
    assert!(before.host.pages >= 120, "{before:?}");
    let list = TokenList::text(&expected);
    let begun = world.tiers.prefetch(&Namespace::default(), list, Deadline::Never, false).unwrap();
    assert_eq!(begun.found.positions, 4 * 64);
    // Pages are read ahead so far at once, and no farther.
    (0..4).for_each(|_| world.settle());
    let stats = world.tiers.stats();
    // A half of the first pool, and all that the end needs of windows, 2, and states, 1.
    assert_eq!((stats.counters.prefetched[0], stats.open_prefetches), (32 + 2 + 1, 0));
    // There were 4 free slots.
    assert_eq!(stats.host.evicted - before.host.evicted, 32 - 4);
    world.end();
}
