//! Prompts that are expected: what tiers have of them is in host memory when they begin, and nobody
//! who has begun waits for that.
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use super::world::{PAGE_BYTES, Setup, World};
use super::{PLAIN, prompt};
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::Scope;
use radixkv::tier::LoadError;
use radixkv::tier::paged::{Deadline, Prefetched};
use radixkv::token::{Item, TokenKind, TokenList};
use std::time::Duration;

fn prefetch(world: &World, tokens: &[u32], looks_only: bool) -> Prefetched {
    let list = TokenList::text(tokens);
    let begun = world.tiers.prefetch(&PLAIN, list, Deadline::Never, looks_only).unwrap();
    assert_eq!(begun.found.is_begun, begun.number != 0);
    begun
}

/// How many positions host memory has, the tiers have, and the remote store is asked for.
fn seen(begun: &Prefetched) -> (usize, usize, usize) {
    let found = begun.found;
    (found.host_positions, found.positions, found.asked_positions)
}

/// Prompts on the disk: host memory and the device have nothing.
fn on_disk(setup: Setup, families: std::ops::Range<u32>) -> World {
    let mut world = World::new(setup);
    for family in families {
        assert_eq!(world.run(&PLAIN, &prompt(family, 41)), (0, 0));
        world.settle();
        world.shared.evict(1000, |_, _| {}).unwrap();
    }
    world.work();
    world.tiers.shrink_to(0, u64::MAX);
    world
}

fn disk(host_pages: usize) -> Setup {
    Setup::new(30, host_pages, Some(MemoryStore::new(1 << 20, 1 << 10)))
}

/// T18: what the disk has comes to host memory, nothing of the device is touched, and who begins
/// then waits for no disk.
#[test]
fn t18_what_is_on_disk_comes_before_the_prompt_does() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let mut world = on_disk(Setup { index, ..disk(64) }, 1..2);
        let tokens = prompt(1, 41);
        assert_eq!(seen(&prefetch(&world, &tokens, true)), (0, 40, 0));
        world.work();
        assert_eq!(world.tiers.stats().open_prefetches, 0);
        let free = |world: &World| world.shared.read().page_table_stats().free;
        let before = free(&world);
        let begun = prefetch(&world, &tokens, false);
        assert_eq!((seen(&begun), begun.cached_positions), ((0, 40, 0), 0));
        assert_eq!(world.tiers.stats().open_prefetches, 1);
        assert_eq!(world.poll(64), 0, "the engine has nothing to do with it");
        world.settle();
        assert_eq!(free(&world), before);
        assert_eq!(seen(&prefetch(&world, &tokens, true)), (40, 40, 0));
        let info = world.begin(&PLAIN, &tokens).unwrap();
        let found = world.fetch(info.id, Deadline::After(Duration::ZERO));
        assert_eq!((found.positions, found.is_begun), (40, true));
        world.settle();
        assert_eq!(world.requests[&info.id].computed, 40);
        let stats = world.tiers.stats();
        assert_eq!((stats.counters.prefetches, stats.counters.prefetched), (1, [10, 0]));
        assert_eq!((stats.counters.fetched, stats.open_prefetches), ([10, 0, 0], 0));
        // The device has all now.
        let begun = prefetch(&world, &tokens, false);
        assert_eq!((begun.number, begun.cached_positions, seen(&begun)), (0, 40, (0, 0, 0)));
        // Of a longer prompt, what the device has is its beginning, here half of what the disk has.
        world.compute(info.id, 41);
        world.release(info.id);
        world.shared.evict(5, |_, _| {}).unwrap();
        world.work();
        world.tiers.shrink_to(0, u64::MAX);
        let longer: Vec<u32> = tokens.iter().copied().chain(prompt(9, 20)).collect();
        let begun = prefetch(&world, &longer, false);
        assert_eq!((begun.cached_positions, seen(&begun)), (20, (0, 20, 0)));
        world.settle();
        assert_eq!(world.tiers.stats().counters.prefetched, [15, 0]);
        assert_eq!(world.run(&PLAIN, &longer), (20, 20));
        world.end();
    }
}

/// T18, T13: what only a store has that others filled comes too; a short prompt, another namespace,
/// and a list that is none bring nothing.
#[test]
fn t18_what_others_have_computed_comes_too() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote::new();
    let setup = Setup { remote: Some(remote.clone()), ..Setup::new(30, 64, None) };
    let mut one = World::new(setup.clone());
    one.run(&PLAIN, &tokens);
    one.settle();
    one.end();
    let mut world = World::new(setup);
    world.work();
    let begun = prefetch(&world, &tokens, false);
    assert_eq!(seen(&begun), (0, 0, 40));
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.prefetched, stats.host.pages), ([0, 10], 10));
    assert_eq!(stats.open_prefetches, 0);
    let other = Namespace { epoch: 5, ..PLAIN };
    let none = |space, tokens: &[u32], deadline| {
        world.tiers.prefetch(&space, TokenList::text(tokens), deadline, false).unwrap()
    };
    assert_eq!(none(PLAIN, &tokens[..4], Deadline::Never).number, 0, "its last token is computed");
    assert_eq!(none(PLAIN, &[], Deadline::Never).number, 0);
    assert_eq!(none(PLAIN, &tokens, Deadline::After(Duration::ZERO)).number, 0);
    let asked = none(other, &tokens, Deadline::Never);
    assert_eq!((seen(&asked), asked.number != 0), ((0, 0, 40), true));
    let bad = [1, 2, 3, 1 << 31, 5, 6];
    let refused = world.tiers.prefetch(&PLAIN, TokenList::text(&bad), Deadline::Never, false);
    assert!(refused.unwrap_err().to_string().contains("[3]"));
    world.settle();
    assert_eq!(world.tiers.stats().host.pages, 10);
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40));
    assert_eq!(world.tiers.stats().remote.read, 10, "once");
    world.end();
}

/// T18, T17: images are found by what they are, also by a cache that has never seen them.
#[test]
fn t18_prompts_with_images_are_known() {
    let ids: Vec<u32> = prompt(1, 20);
    let image = |digest| {
        [Item { token_index: 3, kind: TokenKind::Image { digest: [digest; 16], positions: 9 } }]
    };
    let (items, others) = (image(1), image(2));
    let list = TokenList { ids: &ids, items: &items };
    let mut world = World::new(disk(64));
    let info = world.shared.begin(&PLAIN, list, 0).unwrap();
    world.shared.write().publish(info.id, 28).unwrap();
    world.shared.turn().release(info.id).unwrap();
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    world.tiers.shrink_to(0, u64::MAX);
    let ask = |items, looks_only| {
        let list = TokenList { ids: &ids, items };
        world.tiers.prefetch(&PLAIN, list, Deadline::Never, looks_only).unwrap()
    };
    assert_eq!(seen(&ask(&others, true)), (0, 0, 0));
    assert_eq!(seen(&ask(&items, false)), (0, 24, 0));
    world.settle();
    assert_eq!(world.tiers.stats().counters.prefetched, [6, 0]);
    world.end();
}

/// T18, T12: who begins while a prefetch goes on waits for the same reads; who prefetches while
/// another one does brings nothing twice.
#[test]
fn t18_who_begins_meanwhile_waits_for_the_same_reads() {
    let mut world = on_disk(disk(64), 1..2);
    let store = world.setup.store.clone().unwrap();
    let tokens = prompt(1, 41);
    for _ in 0..2 {
        prefetch(&world, &tokens, false);
    }
    world.work();
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    world.work();
    assert_eq!(store.open().1, 10);
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 40);
    let stats = world.tiers.stats();
    assert_eq!(stats.counters.prefetched, [10, 0]);
    assert_eq!((stats.counters.joined, stats.counters.prefetches), (0, 2));
    world.end();
}

/// T18, T03: while a fetch waits for the disk, nothing is begun for a prefetch; afterwards it is.
#[test]
fn t18_fetches_go_first() {
    let mut world = on_disk(disk(64), 1..3);
    let store = world.setup.store.clone().unwrap();
    let info = world.begin(&PLAIN, &prompt(1, 41)).unwrap();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    prefetch(&world, &prompt(2, 41), false);
    world.work();
    assert_eq!(store.open().1, 10, "reads of the fetch alone");
    while store.open().1 > 0 {
        store.read(0, None, false);
    }
    world.work();
    assert_eq!(store.open().1, 10, "its pages have come, and wait for the engine");
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 40);
    assert_eq!(world.tiers.stats().counters.prefetched, [10, 0]);
    world.end();
}

/// T18, T10: prefetches take a half of host memory at most, and nothing that is being copied or
/// written gives way to them.
#[test]
fn t18_it_keeps_to_a_half_of_host_memory() {
    let mut world = on_disk(disk(16), 1..4);
    let store = world.setup.store.clone().unwrap();
    // A fetch whose copies the engine takes its time for: ten slots are in use.
    let info = world.begin(&PLAIN, &prompt(3, 41)).unwrap();
    world.fetch(info.id, Deadline::Never);
    world.work();
    while store.read(0, None, false) {}
    world.work();
    assert_eq!(world.poll(64), 10);
    let begun = prefetch(&world, &prompt(1, 41), false);
    assert!(begun.number != 0 && begun.found.positions == 40, "{begun:?}");
    let refused = prefetch(&world, &prompt(2, 41), false);
    assert_eq!((refused.number, refused.found.positions), (0, 40));
    for _ in 0..10 {
        world.work();
        while store.read(0, None, false) {}
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.counters.refused_prefetches), (16, 1));
    assert_eq!((stats.free_slots, stats.open_prefetches), (0, 1), "it waits for the last two");
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 40);
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.prefetched, stats.open_prefetches), ([8, 0], 0));
    // Eight pages are there, and the others of the prompt where they were.
    assert_eq!(seen(&prefetch(&world, &prompt(1, 41), true)), (32, 40, 0));
    // What came is what goes last: another prompt takes the place of the fetched one.
    prefetch(&world, &prompt(2, 41), false);
    world.settle();
    assert_eq!(seen(&prefetch(&world, &prompt(1, 41), true)), (32, 40, 0));
    assert_eq!(seen(&prefetch(&world, &prompt(2, 41), true)), (32, 40, 0));
    world.end();
}

/// T18, T11: one that is cancelled or late begins nothing more, what is on its way lands, and
/// nothing leaks; a cancel of one that has ended is none.
#[test]
fn t18_cancelled_and_late() {
    let mut world = on_disk(disk(64), 1..4);
    let store = world.setup.store.clone().unwrap();
    let begun = prefetch(&world, &prompt(1, 41), false);
    world.work();
    while store.open().1 > 4 {
        store.read(0, None, false);
    }
    world.work();
    world.tiers.cancel_prefetch(begun.number).unwrap();
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    world.settle();
    assert_eq!(world.tiers.stats().counters.prefetched, [6, 0]);
    assert_eq!(seen(&prefetch(&world, &prompt(1, 41), true)), (40, 40, 0));
    world.tiers.cancel_prefetch(begun.number).unwrap();
    for number in [0, begun.number + 1, u64::MAX] {
        let refused = world.tiers.cancel_prefetch(number).unwrap_err();
        assert!(refused.to_string().contains(&number.to_string()), "{refused}");
    }
    // A fetch is not one of them.
    let info = world.begin(&PLAIN, &prompt(1, 41)).unwrap();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    world.tiers.cancel_prefetch(begun.number + 1).unwrap();
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 40);
    let deadline = Deadline::After(Duration::from_millis(5));
    let second = prompt(2, 41);
    let begun = world.tiers.prefetch(&PLAIN, TokenList::text(&second), deadline, false).unwrap();
    assert!(begun.found.is_begun);
    world.work();
    std::thread::sleep(Duration::from_millis(6));
    world.work();
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    // The tiers go with one open.
    prefetch(&world, &prompt(3, 41), false);
    world.work();
    assert!(!world.tiers.is_busy() || world.tiers.stats().open_fetches > 0);
    world.settle();
    world.release(info.id);
    prefetch(&world, &second, false);
    world.shared.detach_lower();
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    world.attach_anew();
    world.end();
}

/// T18, T04, T06: reads that fail, bytes that changed, and a namespace that is cleared meanwhile
/// leave less in host memory; the answer is that of computing.
#[test]
fn t18_what_fails_is_not_there() {
    for failure in [None, Some(LoadError::Io)] {
        let mut world = on_disk(disk(64), 1..2);
        let store = world.setup.store.clone().unwrap();
        let tokens = prompt(1, 41);
        prefetch(&world, &tokens, false);
        world.work();
        // The fourth page, which is asked for in order.
        store.read(3, failure, failure.is_none());
        world.settle();
        let stats = world.tiers.stats();
        assert_eq!(stats.open_prefetches, 0);
        assert_eq!(stats.counters.damaged[1], u64::from(failure.is_none()));
        let (had, brought) = world.run(&PLAIN, &tokens);
        assert_eq!((had, brought), (0, 12));
        world.end();
    }
    let mut world = on_disk(disk(64), 1..2);
    prefetch(&world, &prompt(1, 41), false);
    world.work();
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.open_prefetches), (0, 0));
    assert_eq!(world.run(&PLAIN, &prompt(1, 41)), (0, 0));
    world.end();
}

/// T18, T13: a store that stands still keeps neither a prefetch nor the fetch that waits for the
/// same pages for longer than its time.
#[test]
fn t18_a_store_that_stands_still_is_not_waited_for() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..MemoryRemote::new() };
    let setup = Setup { remote: Some(remote.clone()), ..Setup::new(30, 64, None) };
    let mut world = World::new(setup.clone());
    world.run(&PLAIN, &tokens);
    world.settle();
    world.end();
    let mut world = World::new(setup);
    world.work();
    // Its threads bring the answer, and then no page.
    prefetch(&world, &tokens, false);
    world.work();
    assert!(world.tiers.work_remote());
    world.work();
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(310));
        world.work();
    }
    world.poll(64);
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    let done = world.fetched.pop().unwrap();
    assert_eq!((done.positions, done.is_late), (0, true));
    world.compute(info.id, 41);
    while world.tiers.work_remote() {}
    remote.set(Mood::Good);
    world.end();
    let stats = world.tiers.stats();
    assert_eq!((stats.free_slots + stats.host.pages, stats.open_fetches), (64, 0));
}

/// T18, T09: ranks agree on what they fetch; what was prefetched is only nearer.
#[test]
fn t18_ranks_agree_as_before() {
    let mut world = on_disk(Setup { agrees: true, ..disk(64) }, 1..2);
    let tokens = prompt(1, 41);
    prefetch(&world, &tokens, false);
    world.work();
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    world.settle();
    assert_eq!(world.fetched[0].positions, 40);
    // Bytes that leave host memory while that is open are read once more for a second rank.
    world.tiers.shrink_to(3 * PAGE_BYTES as u64, u64::MAX);
    let second = world.begin(&PLAIN, &tokens).unwrap();
    assert!(world.fetch(second.id, Deadline::Never).is_begun);
    world.settle();
    for id in [info.id, second.id] {
        let agreed = world.tiers.agree(id, 32).unwrap();
        assert_eq!(agreed.positions, 32);
        world.end_fetch(agreed);
        world.compute(id, 41);
    }
    world.end();
}

/// T18: a number of tiers that are gone names no prefetch of those that came later.
#[test]
fn t18_the_number_of_a_prefetch_is_never_anothers() {
    let mut world = on_disk(disk(64), 1..3);
    let old = prefetch(&world, &prompt(1, 41), false).number;
    world.settle();
    world.attach_anew();
    world.settle();
    world.tiers.cancel_prefetch(old).unwrap();
    let new = prefetch(&world, &prompt(2, 41), false).number;
    assert!(new != 0 && new != old, "{old} {new}");
    world.tiers.cancel_prefetch(old).unwrap();
    assert_eq!(world.tiers.stats().open_prefetches, 1, "that one has ended, this one goes on");
    world.tiers.cancel_prefetch(new).unwrap();
    assert_eq!(world.tiers.stats().open_prefetches, 0);
    world.end();
}
