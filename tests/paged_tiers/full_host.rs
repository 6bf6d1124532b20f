//! Host memory that is full, as it is most of the time.
use crate::memory_store::MemoryStore;
use crate::remote_store::MemoryRemote;
use crate::world::{PAGE_SIZE, Setup, World, value};
use crate::{PLAIN, prompt};
use radixkv::tier::paged::{Deadline, Direction};

/// T08: a fetch that waits for the disk keeps nobody from storing in the place of pages that the
/// disk has.
#[test]
fn t08_stores_go_on_while_a_fetch_waits() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = World::new(Setup::new(60, 16, Some(store)));
    for family in 1..4 {
        world.run(&PLAIN, &prompt(family, 41));
        world.settle();
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.work();
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.pages, stats.free_slots), (30, 0));
    // The disk does not answer.
    let waits = world.begin(&PLAIN, &prompt(1, 21)).unwrap().id;
    let found = world.fetch(waits, Deadline::Never);
    assert!(found.is_begun && found.host_positions < found.positions, "{found:?}");
    world.work();
    let info = world.begin(&PLAIN, &prompt(9, 21)).unwrap();
    world.compute(info.id, 21);
    world.release(info.id);
    for _ in 0..20 {
        world.work();
        world.poll(64);
    }
    let stored = world.copies.iter().any(|copy| copy.job.direction == Direction::Store);
    assert!(stored, "nothing is stored meanwhile");
    world.settle();
    world.end();
}

/// Pages of host memory where a remote store's threads hold the first quarter.
const HOST: usize = 2048;

/// One prompt of one page, without asking for more of it.
fn publish(world: &mut World, family: u32) {
    let id = world.begin(&PLAIN, &prompt(family, 5)).unwrap().id;
    world.compute(id, 5);
    world.release(id);
}

/// Does all that can be done without the remote store, which answers nothing.
fn go_on(world: &mut World) {
    for _ in 0..20 {
        world.work();
        if let Some(store) = world.setup.store.clone() {
            while store.write(0, None) || store.read(0, None, false) {}
            store.commit();
        }
        world.poll(64);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
        world.work();
    }
}

/// Host memory that is full, so many pages later; a remote store that answers nothing holds those
/// of them that were used longest ago.
fn held_by_a_store(mut world: World, pages: usize) -> World {
    for page in 0..pages as u32 {
        publish(&mut world, 10 + page);
        if page % 16 == 15 || page as usize == pages - 1 {
            go_on(&mut world);
        }
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.free_slots, stats.host.pages), (0, world.setup.host_pages));
    world
}

/// T08, T13: what a remote store holds, and does not write, keeps no other page from coming.
#[test]
fn t08_t13_stores_go_on_behind_what_a_remote_store_holds() {
    let remote = Some(MemoryRemote::new());
    let world = World::new(Setup { remote, ..Setup::new(64, HOST, None) });
    let mut world = held_by_a_store(world, HOST);
    publish(&mut world, 5);
    go_on(&mut world);
    let stats = world.tiers.stats();
    assert_eq!((stats.counters.stored, stats.waiting), (HOST as u64 + 1, 0));
    world.end();
}

/// T08, T13: nor from being read from the disk.
#[test]
fn t08_t13_fetches_go_on_behind_what_a_remote_store_holds() {
    let store = MemoryStore::new(1 << 20, 1 << 12);
    let remote = MemoryRemote::new();
    let mut world =
        World::new(Setup { remote: Some(remote.clone()), ..Setup::new(64, HOST, Some(store)) });
    // The disk alone has it in the end.
    publish(&mut world, 5);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.tiers.shrink_to(0, u64::MAX);
    remote.inside().values.clear();
    let mut world = held_by_a_store(world, HOST);
    let id = world.begin(&PLAIN, &prompt(5, 5)).unwrap().id;
    let found = world.fetch(id, Deadline::Never);
    assert_eq!((found.is_begun, found.positions, found.host_positions), (true, 4, 0));
    go_on(&mut world);
    assert_eq!(world.fetched.first().map(|done| done.positions), Some(4));
    world.end();
}

/// A page that the remote store has written and that the disk is busy for: only host memory has it,
/// and it may go before all others.
fn refused_by_the_disk(world: &mut World, store: &MemoryStore, family: u32) {
    let tokens = prompt(family, 5);
    let words = (1..=PAGE_SIZE).flat_map(|end| value(&PLAIN, &tokens[..end]).to_ne_bytes());
    store.be_busy_for(words.collect());
    publish(world, family);
    go_on(world);
    while world.tiers.work_remote() {
        world.work();
    }
    assert!(world.tiers.stats().counters.disk_busy > 0);
}

/// T08, T13: a page among those that the disk has not written changes nothing of that, and stays:
/// what is held, and that page, is all that is seen at once.
#[test]
fn t08_t13_a_page_that_is_not_written_does_not_stop_what_is_behind() {
    const HOST: usize = 1024;
    for fetches in [false, true] {
        let store = MemoryStore::new(1 << 20, 1 << 12);
        let remote = MemoryRemote::new();
        let setup = Setup::new(64, HOST, Some(store.clone()));
        let mut world = World::new(Setup { remote: Some(remote.clone()), ..setup });
        if fetches {
            // The disk alone has it in the end.
            publish(&mut world, 5);
            world.settle();
            world.shared.evict(1000, |_, _| {}).unwrap();
            world.tiers.shrink_to(0, u64::MAX);
            remote.inside().values.clear();
        }
        refused_by_the_disk(&mut world, &store, 6);
        let mut world = held_by_a_store(world, HOST - 1);
        let stored = world.tiers.stats().counters.stored;
        if fetches {
            let id = world.begin(&PLAIN, &prompt(5, 5)).unwrap().id;
            assert!(world.fetch(id, Deadline::Never).is_begun);
            go_on(&mut world);
            assert_eq!(world.fetched.first().map(|done| done.positions), Some(4));
        } else {
            publish(&mut world, 5);
            go_on(&mut world);
            let stats = world.tiers.stats();
            assert_eq!((stats.counters.stored, stats.waiting), (stored + 1, 0));
        }
        assert_eq!(world.tiers.stats().counters.disk_failed, 0, "a page is lost");
        world.shared.evict(1000, |_, _| {}).unwrap();
        world.work();
        let id = world.begin(&PLAIN, &prompt(6, 5)).unwrap().id;
        assert_eq!(world.fetch(id, Deadline::Never).host_positions, 4, "it is in host memory");
        world.end();
    }
}
