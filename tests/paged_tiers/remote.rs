//! A store below all others that other processes share: what it has is found, and what it says is
//! not believed.
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use super::world::{PAGE_BYTES, Setup, World};
use super::{PLAIN, prompt};
use radixkv::index::Namespace;
use radixkv::store::Scope;
use radixkv::tier::paged::{Deadline, PagePolicy};
use std::time::{Duration, Instant};

/// Bytes of a page in the store.
const VALUE_BYTES: usize = PAGE_BYTES + 64;

pub fn world(remote: &MemoryRemote) -> World {
    World::new(Setup { remote: Some(remote.clone()), ..Setup::new(30, 32, None) })
}

/// A store that has 10 pages of a prompt, by a world that is gone.
pub fn filled(tokens: &[u32]) -> MemoryRemote {
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    assert_eq!(world.run(&PLAIN, tokens), (0, 0));
    world.settle();
    world.end();
    assert_eq!(remote.inside().values.len(), (tokens.len() - 1) / 4);
    remote
}

/// Until host memory has so many pages, of which the store was given none yet.
fn fill_host(world: &mut World, pages: usize) {
    while world.tiers.stats().host.pages < pages {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
    }
}

/// Until the store is asked again.
fn wait_for_pause(world: &World) {
    let end = Instant::now() + Duration::from_secs(60);
    while world.tiers.stats().remote.is_paused {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// T13: one computes, another one that begins with nothing takes it from there; what it took is in
/// its host memory then.
#[test]
fn t13_another_process_finds_what_one_has_computed() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let mut other = world(&remote);
    assert_eq!(other.run(&PLAIN, &tokens), (0, 40));
    let stats = other.tiers.stats();
    let (counters, store) = (stats.counters, stats.remote);
    assert_eq!((counters.fetched, stats.host.pages), ([0, 0, 10], 10));
    assert_eq!((store.asked, store.found, store.read), (10, 10, 10));
    assert_eq!(store.read_bytes, 10 * PAGE_BYTES as u64);
    assert_eq!((counters.complete, counters.shortened), (1, 0));
    other.shared.evict(100, |_, _| {}).unwrap();
    assert_eq!(other.run(&PLAIN, &tokens), (0, 40));
    assert_eq!(other.tiers.stats().counters.fetched, [10, 0, 10]);
    // A prompt that goes on otherwise has what both have in common; nobody has more of it.
    let branch: Vec<u32> = tokens[..22].iter().copied().chain(prompt(2, 30)).collect();
    other.shared.evict(100, |_, _| {}).unwrap();
    other.tiers.shrink_to(0, 0);
    assert_eq!(other.run(&PLAIN, &branch), (0, 20));
    other.settle();
    // What it wrote of the branch is all that the store didn't have.
    assert_eq!(other.tiers.stats().remote.written, 8);
    let values = remote.inside().values.values().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(values, [VALUE_BYTES; 18]);
    other.end();
}

/// T13: beginnings here and there are put together: device, host memory, disk, remote.
#[test]
fn t13_a_fetch_goes_on_where_the_disk_ends() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let setup = Setup::new(30, 32, Some(store.clone()));
    let mut other = World::new(Setup { remote: Some(remote.clone()), ..setup });
    remote.set(Mood::Dead);
    assert_eq!(other.run(&PLAIN, &tokens[..25]), (0, 0));
    other.settle();
    remote.set(Mood::Good);
    wait_for_pause(&other);
    other.shared.evict(3, |_, _| {}).unwrap();
    other.tiers.shrink_to(4 * PAGE_BYTES as u64, u64::MAX);
    let info = other.begin(&PLAIN, &tokens).unwrap();
    other.work();
    let found = other.fetch(info.id, Deadline::Never);
    assert_eq!(info.cached_positions, 12);
    assert_eq!((found.host_positions, found.positions, found.asked_positions), (4, 12, 16));
    other.settle();
    assert_eq!(other.requests[&info.id].computed, 40);
    assert_eq!(other.tiers.stats().counters.fetched, [1, 2, 4]);
    // What came is on the disk too, for a restart.
    assert_eq!(other.tiers.stats().disk.pages, 10);
    remote.set(Mood::Dead);
    let mut other = other.restarted();
    assert_eq!(other.run(&PLAIN, &tokens), (0, 40));
    other.end();
}

/// T13: what is here of a long prompt may be copied before the rest is hashed: the store is asked
/// for that all the same.
#[test]
fn t13_a_long_prompt_that_begins_here_goes_on_in_the_store() {
    let tokens = prompt(1, 1601);
    let remote = MemoryRemote::new();
    let setup = Setup { remote: Some(remote.clone()), ..Setup::new(410, 410, None) };
    let mut first = World::new(setup.clone());
    first.run(&PLAIN, &tokens);
    first.settle();
    first.end();
    assert_eq!(remote.inside().values.len(), 400);
    let mut world = World::new(setup);
    // As many pages as a call looks for itself.
    assert_eq!(world.run(&PLAIN, &tokens[..257]), (0, 256));
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.work();
    assert_eq!(world.fetch(id, Deadline::Never).host_positions, 256);
    // One round: a slice is hashed, and what is here is checked.
    world.tiers.work();
    assert_eq!(world.poll(64), 64);
    while !world.copies.is_empty() {
        world.step_copy(0, true);
    }
    world.settle();
    assert_eq!(world.requests[&id].computed, 1600);
    world.compute(id, tokens.len());
    world.end();
}

/// T13, T07: another fingerprint, namespace or epoch finds nothing.
#[test]
fn t13_another_model_or_namespace_finds_nothing() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let spaces = [
        Namespace { epoch: 1, ..PLAIN },
        Namespace { lora: Some(0), ..PLAIN },
        Namespace { salt: [1; 32], ..PLAIN },
    ];
    for space in spaces {
        let mut other = world(&remote);
        assert_eq!(other.run(&space, &tokens), (0, 0));
        other.end();
    }
    let another_model = MemoryRemote { fingerprint: [2; 32], ..remote.clone() };
    let mut other = world(&another_model);
    assert_eq!(other.run(&PLAIN, &tokens), (0, 0));
    assert!(other.tiers.stats().remote.asked > 0);
    other.end();
}

/// T13, T04: bytes that changed, values of other pages, lies about lengths: the hit gets shorter,
/// the value is removed, and written again by who computes it.
#[test]
fn t13_garbage_in_the_store_is_never_used() {
    let tokens = prompt(1, 41);
    let keys = |remote: &MemoryRemote| {
        let mut keys: Vec<[u8; 32]> = remote.inside().values.keys().copied().collect();
        keys.sort();
        keys
    };
    type Spoil = fn(&mut Vec<u8>, &[u8]);
    let spoils: [Spoil; 5] = [
        |value, _| value[70] ^= 1,
        |value, _| value.clear(),
        |value, _| value.truncate(VALUE_BYTES - 1),
        |value, _| value.push(0),
        |value, other| value.copy_from_slice(other),
    ];
    for spoil in spoils {
        let remote = filled(&tokens);
        let keys = keys(&remote);
        let other = remote.inside().values[&keys[8]].clone();
        spoil(remote.inside().values.get_mut(&keys[3]).unwrap(), &other);
        let mut world = world(&remote);
        let (had, brought) = world.run(&PLAIN, &tokens);
        assert!(had == 0 && brought < 40, "{brought}");
        world.settle();
        let stats = world.tiers.stats().remote;
        assert_eq!((stats.damaged, stats.read), (1, 9));
        assert!(stats.written == 1 && remote.inside().counts[3] == 1, "{stats:?}");
        world.shared.evict(100, |_, _| {}).unwrap();
        world.tiers.shrink_to(0, 0);
        assert_eq!(world.run(&PLAIN, &tokens), (0, 40), "it was mended");
        world.end();
    }
    for mood in [Mood::Lies, Mood::Cuts] {
        let remote = MemoryRemote::new();
        remote.set(mood);
        let mut world = world(&remote);
        assert_eq!(world.run(&PLAIN, &tokens), (0, 0));
        assert_eq!(world.tiers.stats().remote.damaged, 10);
        world.end();
    }
}

/// T13, T06: a store that is dead, or panics, is asked a few times and then left alone for a while;
/// when it is back, it is used.
#[test]
fn t13_a_dead_store_costs_a_hit_and_no_more() {
    let tokens = prompt(1, 41);
    for mood in [Mood::Dead, Mood::Panics] {
        let remote = filled(&tokens);
        remote.set(mood);
        let mut world = world(&remote);
        for family in 1..20 {
            assert_eq!(world.run(&PLAIN, &prompt(family, 21)), (0, 0));
            world.settle();
            world.shared.evict(100, |_, _| {}).unwrap();
        }
        let stats = world.tiers.stats().remote;
        assert!(stats.pauses >= 1 && stats.failed > 0 && stats.is_paused, "{stats:?}");
        assert!(stats.calls < 20, "{stats:?}");
        // What host memory has is found all the same.
        assert_eq!(world.run(&PLAIN, &prompt(19, 21)), (0, 20));
        remote.set(Mood::Good);
        wait_for_pause(&world);
        world.shared.evict(100, |_, _| {}).unwrap();
        world.tiers.shrink_to(0, 0);
        assert_eq!(world.run(&PLAIN, &tokens), (0, 40));
        world.end();
    }
}

/// T13, T10: what waits for the store holds no more than a quarter of host memory; the rest waits
/// as names.
#[test]
fn t13_writes_wait_within_bounds() {
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    let info = world.begin(&PLAIN, &prompt(1, 81)).unwrap();
    world.compute(info.id, 81);
    for _ in 0..5 {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
    }
    world.work();
    let stats = world.tiers.stats();
    assert_eq!((stats.remote.waiting, stats.offered, stats.host.pages), (8, 12, 20));
    // The others can go. They are lost to the store then, and counted.
    world.tiers.shrink_to(10 * PAGE_BYTES as u64, 0);
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.remote.waiting, stats.offered), (0, 0));
    assert_eq!(stats.remote.written + stats.counters.not_offered, 20);
    assert!(stats.counters.not_offered > 0);
    world.end();
}

/// T13, T17: what was cleared is not found in the store, although nobody can take it away there.
#[test]
fn t13_a_cleared_namespace_is_left_alone() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let mut world = world(&remote);
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    assert_eq!(world.run(&PLAIN, &tokens), (0, 0));
    world.settle();
    let stats = world.tiers.stats();
    assert_eq!((stats.remote.asked, stats.remote.written, stats.offered), (0, 0, 0));
    // What was under way while it is cleared doesn't come.
    let space = Namespace { epoch: 7, ..PLAIN };
    let mut world = self::world(&remote);
    world.run(&space, &tokens);
    world.settle();
    let mut world = self::world(&remote);
    let info = world.begin(&space, &tokens).unwrap();
    world.work();
    world.fetch(info.id, Deadline::Never);
    world.work();
    assert!(world.tiers.work_remote(), "the question");
    world.work();
    world.shared.clear(Scope::exactly(space)).unwrap();
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 0);
    world.end();
}

/// T12, T13: two requests for a prefix that the store has: it is brought once.
#[test]
fn t12_two_requests_share_what_the_store_brings() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let mut world = world(&remote);
    let ids = [0, 1].map(|_| world.begin(&PLAIN, &tokens).unwrap().id);
    world.work();
    ids.iter().for_each(|&id| assert!(world.fetch(id, Deadline::Never).is_begun));
    world.settle();
    for id in ids {
        assert_eq!(world.requests[&id].computed, 40);
    }
    assert_eq!(world.tiers.stats().remote.read, 10);
    world.end();
}

/// T13: with little host memory a long prompt comes through it bit by bit.
#[test]
fn t13_a_long_prompt_comes_through_little_host_memory() {
    let tokens = prompt(1, 401);
    let remote = MemoryRemote::new();
    let setup = Setup { remote: Some(remote.clone()), ..Setup::new(110, 4, None) };
    let mut world = World::new(setup.clone());
    world.run(&PLAIN, &tokens);
    for _ in 0..100 {
        world.settle();
    }
    world.end();
    let has = remote.inside().values.len();
    assert_eq!(has, 100);
    let mut world = World::new(Setup { policy: PagePolicy::OnEviction, ..setup });
    assert_eq!(world.run(&PLAIN, &tokens), (0, 400));
    world.end();
}

/// T04, T13: bytes of host memory that changed before a store was given them are not given: sealed
/// by this process they would be good for all others.
#[test]
fn t13_bytes_that_changed_in_host_memory_are_not_given_to_others() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    world.run(&PLAIN, &tokens);
    fill_host(&mut world, 10);
    let changed = world.host.iter().position(|&byte| byte != 0).unwrap();
    world.host[changed] ^= 4;
    world.settle();
    let store = world.tiers.stats().remote;
    assert_eq!((store.written, store.failed, store.pauses), (9, 1, 0));
    assert_eq!(remote.inside().values.len(), 9);
    world.end();
    let mut other = self::world(&remote);
    let (_, brought) = other.run(&PLAIN, &tokens);
    assert!(brought < 40 && brought % 4 == 0, "{brought}");
    other.end();
    // One alone: the store is not called for nothing.
    let remote = MemoryRemote::new();
    let mut world = self::world(&remote);
    world.run(&PLAIN, &tokens[..5]);
    fill_host(&mut world, 1);
    world.host.iter_mut().for_each(|byte| *byte ^= 4);
    world.settle();
    let store = world.tiers.stats().remote;
    assert_eq!((store.written, store.failed, store.pauses), (0, 1, 0));
    world.end();
}

/// T05, T13: a flush waits until the store has what came before it, and for nothing later.
#[test]
fn t05_a_flush_waits_for_no_value_that_came_later() {
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    let keep = |world: &mut World, family, pages| {
        let info = world.begin(&PLAIN, &prompt(family, 41)).unwrap();
        world.compute(info.id, 41);
        world.release(info.id);
        fill_host(world, pages);
    };
    keep(&mut world, 1, 10);
    let tiers = world.tiers.clone();
    let (begins, begun) = std::sync::mpsc::channel();
    let flush = std::thread::spawn(move || {
        begins.send(()).unwrap();
        tiers.flush(Duration::from_secs(60))
    });
    // It has begun, a moment later.
    begun.recv().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    keep(&mut world, 2, 20);
    while world.tiers.stats().remote.written < 10 {
        assert!(world.tiers.work_remote());
        world.work();
        // The flush looks once a millisecond.
        std::thread::sleep(Duration::from_millis(50));
    }
    let stats = world.tiers.stats();
    assert!(stats.remote.waiting > 0, "all that came later is written too: {stats:?}");
    assert!(flush.join().unwrap(), "it waits for what came later");
    world.end();
}

/// T13, T11: a fetch that the store kept waiting for too long has not brought all.
#[test]
fn t13_what_was_given_up_is_not_complete() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote { timeout: Duration::from_millis(30), ..filled(&tokens) };
    let mut world = world(&remote);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.work();
    // Its threads do not come to the question.
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    std::thread::sleep(Duration::from_millis(35));
    world.work();
    world.poll(64);
    let done = world.fetched.pop().unwrap();
    assert_eq!((done.positions, done.brought, done.is_late), (0, 0, true));
    let counters = world.tiers.stats().counters;
    assert_eq!((counters.complete, counters.shortened), (0, 1), "{counters:?}");
    assert_eq!((counters.late, counters.remote_late), (1, 1));
    while world.tiers.work_remote() {}
    world.end();
}

/// T17: what waits to be written when its namespace is cleared is not written any more.
#[test]
fn t17_what_waits_for_the_store_is_not_written_after_a_clear() {
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    let info = world.begin(&PLAIN, &prompt(1, 81)).unwrap();
    world.compute(info.id, 81);
    for _ in 0..5 {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
    }
    world.work();
    assert!(world.tiers.stats().remote.waiting > 0);
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    world.work();
    while world.tiers.work_remote() {}
    assert_eq!(remote.inside().values.len(), 0);
    let stats = world.tiers.stats().remote;
    assert_eq!((stats.failed, stats.skipped > 0), (0, true), "{stats:?}");
    world.end();
}

/// T13: until the tiers are attached again: then it takes another epoch or fingerprint.
#[test]
fn t13_a_cleared_namespace_is_asked_for_by_the_next_tiers() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens);
    let mut world = world(&remote);
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    world.shared.detach_lower();
    world.tiers = world.try_attach().unwrap();
    world.work();
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40));
    world.end();
}

/// T13, M02: a thread of the store's that comes to a page after a panic goes on, and gives it to
/// nobody.
#[test]
fn t13_what_waits_for_the_store_is_not_given_to_it_after_a_panic() {
    let remote = MemoryRemote::new();
    let mut world = world(&remote);
    world.run(&PLAIN, &prompt(1, 41));
    fill_host(&mut world, 10);
    world.work();
    assert!(world.tiers.stats().remote.waiting > 0);
    world.shared.poison();
    while world.tiers.work_remote() {}
    assert_eq!(remote.inside().values.len(), 0);
}
