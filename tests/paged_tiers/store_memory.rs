//! M05: the directory's store without memory.
use super::failing::{Failure, fail_from_now_on, failing};
use super::folder::Folder;
use super::over_disk::{LONG, attach_host, attach_simulated, go_on};
use super::sim::SimDisk;
use super::world::{PAGE_BYTES, Setup, World};
use super::{PLAIN, prompt};
use radixkv::ring::{Ring, Way};
use radixkv::tier::{
    DiskConfig, DiskStore, Dropped, Event, Key, LowerStore, Refused, Source, Wake,
};
use std::os::fd::AsFd;
use std::time::Duration;

const UNIT: usize = 4096;

struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _index: usize) -> &[u8] {
        &self.0
    }
}

fn key(number: u8) -> Key {
    [number; 32]
}

fn open(disk: &SimDisk, units: usize, wake: Option<Wake>) -> DiskStore {
    let mut config = DiskConfig::new("unused", (units * UNIT) as u64, [7; 32]);
    config.commit_interval = Duration::from_millis(1);
    (config.workers, config.wake) = (1, wake);
    DiskStore::open_on(Box::new(disk.clone()), config).unwrap().0
}

fn put(store: &DiskStore, number: u8, units: usize) {
    let source = Box::new(Bytes(vec![number; units * UNIT]));
    store.put(key(number), Box::default(), source).unwrap();
}

/// M05: a record that comes in pieces, while each request for memory fails in turn: it is refused,
/// and takes no space.
#[test]
fn m05_a_record_in_pieces_without_memory_is_refused() {
    let disk = SimDisk::new();
    let store = open(&disk, 64, None);
    (0..64).for_each(|number| put(&store, number, 1));
    assert!(store.flush(LONG));
    (0..64).step_by(2).for_each(|number| store.remove(key(number)));
    assert!(store.flush(LONG));
    let before = store.stats().bytes;
    let make = |failure| {
        let source = Box::new(Bytes(vec![9; 32 * UNIT]));
        failing(failure, || store.put(key(100), Box::default(), source))
    };
    let mut refused = 0;
    for request in 0.. {
        let (made, failed) = make(Failure::From(request));
        if failed == 0 {
            assert_eq!(made, Ok(()));
            break;
        }
        assert_eq!(made, Err(Refused::OutOfMemory), "request {request}");
        assert_eq!(store.stats().bytes, before, "request {request}");
        refused += 1;
    }
    assert!(refused >= 3, "{refused}");
    assert!(store.flush(LONG));
    assert_eq!((store.stats().records, store.stats().bytes), (33, 64 * UNIT as u64));
}

/// M05, T06: a sync of the data fails while there is no memory: what waited for it is dropped, and
/// its owner is told.
#[test]
fn m05_t06_a_sync_that_fails_without_memory_drops_what_waited() {
    let disk = SimDisk::new();
    // The first that is told is told by the thread that commits.
    let store = open(&disk, 64, Some(Box::new(|| fail_from_now_on(None))));
    disk.fail_data_sync(|| fail_from_now_on(Some(Failure::From(0))));
    put(&store, 1, 1);
    assert!(store.flush(LONG));
    let mut events = Vec::new();
    store.poll(&mut events);
    let [Event::Dropped { key: of, why }] = &events[..] else { panic!("{}", events.len()) };
    assert_eq!((*of, *why), (key(1), Dropped::Io));
    assert_eq!((store.stats().records, store.stats().bytes), (0, 0));
    put(&store, 2, 1);
    assert!(store.flush(LONG));
    assert_eq!(store.stats().records, 1);
}

/// M05, T17: removals that had no memory when they were asked for are tried again when there is
/// some, of records that were found and of new ones: a flush waits for that, and all space is back.
#[test]
fn m05_t17_removals_without_memory_are_carried_out_later() {
    let disk = SimDisk::new();
    let store = open(&disk, 200, None);
    (0..100).for_each(|number| put(&store, number, 1));
    assert!(store.flush(LONG));
    drop(store);
    let store = open(&disk, 200, None);
    (100..200).for_each(|number| put(&store, number, 1));
    assert!(store.flush(LONG));
    let remove = || (0..200).for_each(|number| store.remove(key(number)));
    let ((), failed) = failing(Failure::From(0), remove);
    assert!(failed > 1, "{failed}");
    assert!(store.flush(LONG));
    let stats = store.stats();
    assert_eq!((stats.records, stats.bytes, stats.has_unremoved), (0, 0, false));
    put(&store, 201, 200);
    assert!(store.flush(LONG));
    assert_eq!(store.stats().records, 1);
    drop(store);
    let config = DiskConfig::new("unused", 200 * UNIT as u64, [7; 32]);
    let (_store, found) = DiskStore::open_on(Box::new(disk), config).unwrap();
    assert!(found.iter().map(|record| record.key).eq([key(201)]));
}

/// M05: pages that left the directory in a moment without memory leave their room to others: what
/// comes later is stored and flushed.
#[test]
fn m05_a_directory_that_was_emptied_without_memory_is_filled_again() {
    const PAGES: usize = 60;
    let disk = SimDisk::new();
    let mut world = World::new(Setup::new(PAGES as u32 + 20, 8, None));
    let attach = |world: &mut World| {
        // Those before have the directory until they are gone.
        attach_host(world, PAGES);
        let config = DiskConfig::new("", (PAGES * (UNIT + 200)) as u64, [7; 32]);
        let config = DiskConfig { commit_interval: Duration::from_millis(1), ..config };
        attach_simulated(world, PAGES, &disk, config).unwrap();
    };
    let fill = |world: &mut World, first: u32| {
        for family in first..first + 5 {
            world.run(&PLAIN, &prompt(family, 41));
        }
        go_on(world, "all is stored", |world| {
            let stats = world.tiers.stats();
            stats.disk.pages == 50 && stats.store.waiting_bytes == 0
        });
        assert!(world.tiers.flush_all(LONG));
        world.shared.evict(1000, |_, _| {}).unwrap();
    };
    attach(&mut world);
    fill(&mut world, 1);
    // Of what is found when it is opened, the space that comes back has no room yet.
    attach(&mut world);
    assert_eq!(world.tiers.stats().disk.pages, 50);
    let ((), failed) = failing(Failure::From(0), || world.tiers.shrink_to(0, 0));
    assert!(failed > 0);
    assert_eq!(world.tiers.stats().disk.pages, 0);
    fill(&mut world, 11);
    assert_eq!(world.tiers.stats().host.limit, (PAGES * PAGE_BYTES) as u64);
    world.shared.detach_lower();
}

/// M05: a ring of which requests are under way ends without memory for what they did.
#[test]
fn m05_a_ring_ends_without_memory() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path()).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, [9; 4096]).unwrap();
    let file = std::fs::File::open(path).unwrap();
    // Not every system has them.
    let Ok(mut ring) = Ring::new(file.as_fd(), 4, 4096) else { return };
    for place in 0..4 {
        ring.start(place, Way::Read, 0..4096, 0);
    }
    ring.hand_over();
    let ((), refused) = failing(Failure::From(0), || drop(ring));
    assert_eq!(refused, 0, "it asked for memory");
}
