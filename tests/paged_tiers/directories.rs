//! Several directories below one cache, one after the other.
use super::memory_store::MemoryStore;
use super::refusing::{attach_refusing, refusing};
use super::world::{Setup, World};
use super::{PLAIN, prompt, stored};
use radixkv::index::Namespace;
use radixkv::store::Scope;
use radixkv::tier::paged::Deadline;
use std::sync::atomic::Ordering::Relaxed;

const ADAPTER: Namespace = Namespace { lora: Some(4), ..PLAIN };

fn store() -> MemoryStore {
    MemoryStore::new(1 << 20, 1 << 10)
}

/// Has another directory below the cache.
fn attach(world: &mut World, store: &MemoryStore) {
    world.setup.store = Some(store.clone());
    world.tiers = world.try_attach().unwrap();
    world.work();
}

/// A world in which a directory has two namespaces, and which is detached from it.
fn two_namespaces(first: &MemoryStore) -> World {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(30, 64, Some(first.clone())), &tokens);
    world.run(&ADAPTER, &tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.shared.detach_lower();
    world
}

/// Nothing is found of the namespace that was cleared, and all of the other one.
fn is_cleared(world: &mut World) {
    let tokens = prompt(1, 41);
    let info = world.begin(&ADAPTER, &tokens).unwrap();
    assert_eq!(world.fetch(info.id, Deadline::Never).positions, 0);
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.pages, stats.counters.cleared), (10, 10));
    world.release(info.id);
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40), "the other one is as it was");
}

/// T17: what was cleared while another directory was below the cache, which has carried that out,
/// is not found when the first one is attached again.
#[test]
fn t17_what_another_directory_has_cleared_is_gone_from_each() {
    let (first, second) = (store(), store());
    let mut world = two_namespaces(&first);
    attach(&mut world, &second);
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    world.work();
    world.shared.detach_lower();
    attach(&mut world, &first);
    is_cleared(&mut world);
    world.end();
}

/// T17: the same of what was cleared before the other one came.
#[test]
fn t17_what_was_cleared_before_another_directory_came_is_gone_from_each() {
    let (first, second) = (store(), store());
    let mut world = two_namespaces(&first);
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    attach(&mut world, &second);
    world.shared.detach_lower();
    attach(&mut world, &first);
    is_cleared(&mut world);
    world.end();
}

/// T17: the same of the first one, which another process has filled before.
#[test]
fn t17_what_was_cleared_before_the_first_directory_came_is_gone_from_it() {
    let first = store();
    drop(two_namespaces(&first));
    let mut world = World::new(Setup::new(30, 64, None));
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    world.work();
    world.shared.detach_lower();
    attach(&mut world, &first.restarted());
    is_cleared(&mut world);
    world.end();
}

/// T17: a directory that has carried out all clears keeps what came later, also where it could not
/// end what it had to do when it was detached.
#[test]
fn t17_what_came_after_a_clear_stays_when_a_directory_is_detached_while_it_is_busy() {
    let (tokens, store, refuses) = (prompt(1, 41), store(), refusing());
    let mut world = World::new(Setup::new(30, 64, None));
    world.shared.detach_lower();
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    attach_refusing(&mut world, &store, &refuses);
    world.run(&ADAPTER, &tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    refuses.store(true, Relaxed);
    world.shared.detach_lower();
    attach(&mut world, &store);
    assert_eq!(world.run(&ADAPTER, &tokens), (0, 40));
    assert_eq!(world.tiers.stats().counters.cleared, 0);
    world.end();
}

/// T17: what a directory refused to remove is not found in it, though another one has carried the
/// clear out meanwhile.
#[test]
fn t17_another_directory_carries_out_no_clear_that_one_refused() {
    let (tokens, store, refuses) = (prompt(1, 41), store(), refusing());
    let mut world = World::new(Setup::new(30, 64, None));
    world.shared.detach_lower();
    attach_refusing(&mut world, &store, &refuses);
    for space in [PLAIN, ADAPTER] {
        world.run(&space, &tokens);
        world.settle();
    }
    world.shared.evict(1000, |_, _| {}).unwrap();
    refuses.store(true, Relaxed);
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    world.work();
    world.shared.detach_lower();
    assert_eq!(store.records().len(), 20, "the disk refuses");
    attach(&mut world, &MemoryStore::new(1 << 20, 1 << 10));
    world.shared.detach_lower();
    attach(&mut world, &store);
    is_cleared(&mut world);
    world.end();
}

/// T17: a clear that a directory has carried out takes nothing that came later there, whatever
/// other ones were below the cache meanwhile.
#[test]
fn t17_a_clear_takes_nothing_that_came_later_in_one_of_several_directories() {
    let (tokens, stores) = (prompt(1, 41), [store(), store(), store()]);
    let mut world = two_namespaces(&stores[0]);
    world.shared.clear(Scope::exactly(ADAPTER)).unwrap();
    for store in &stores {
        attach(&mut world, store);
        assert_eq!(world.run(&ADAPTER, &tokens), (0, 0));
        world.settle();
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.shared.detach_lower();
    }
    for store in &stores {
        attach(&mut world, store);
        assert_eq!(world.run(&ADAPTER, &tokens), (0, 40));
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.shared.detach_lower();
    }
    attach(&mut world, &stores[0]);
    world.end();
}
