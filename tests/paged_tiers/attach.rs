//! Tiers that come and go: without memory, and while other threads are in a call.
use super::failing::{Failure, failing};
use super::memory_store::MemoryStore;
use super::world::{PAGE_BYTES, Setup, World, shared};
use super::{PLAIN, prompt, stored};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Slots;
use radixkv::store::Scope;
use radixkv::tier::OpenError;
use radixkv::tier::paged::{Deadline, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Requests for memory while records are looked at, and before; std's `Arc`, which comes behind
/// them, can't be refused.
const REQUESTS: u64 = 22;

/// M05: each request for memory of an attachment fails in turn: the directory keeps all records.
#[test]
fn m05_an_attachment_without_memory_loses_no_page() {
    let store = MemoryStore::new(64 * PAGE_BYTES as u64, usize::MAX);
    let mut world = World::new(Setup::new(60, 64, Some(store)));
    for family in 1..5 {
        world.run(&PLAIN, &prompt(family, 41));
        world.settle();
    }
    let store = world.setup.store.clone().unwrap();
    let all = store.records().len();
    assert!(all >= 20, "{all}");
    world.shared.detach_lower();
    for request in 0..REQUESTS {
        for failure in [Failure::Once(request), Failure::From(request)] {
            world.setup.store = Some(store.restarted());
            let below = world.setup.store.clone().unwrap();
            let host = HostMemory::Own(64 * PAGE_BYTES as u64);
            let config = TierConfig {
                pools: vec![TierPool { page_bytes: PAGE_BYTES, host }],
                disk: Some((Box::new(below.clone()) as _, below.records())),
                remote: None,
                policy: PagePolicy::Through,
                agrees: false,
                wake: None,
            };
            let wake = PageTiers::disk_wake().0;
            let attach = || PageTiers::attach_without_thread(&world.shared, config, wake).is_ok();
            let (attached, _) = failing(failure, attach);
            world.shared.detach_lower();
            assert!(!attached, "{failure:?}");
            assert_eq!(below.records().len(), all, "{failure:?}");
        }
    }
}

/// M06: a call that is under way when the tiers are detached leaves no fetch open that nobody ends.
#[test]
fn m06_a_call_behind_a_detachment_begins_nothing() {
    let mut world = World::new(Setup::new(20, 64, None));
    let first = prompt(1, 41);
    world.run(&PLAIN, &first);
    world.settle();
    assert_eq!(world.shared.evict(100, |_, _| {}).unwrap(), 10);
    let id = world.begin(&PLAIN, &first).unwrap().id;
    // What the call has in its hands.
    let tiers = world.tiers.clone();
    world.shared.detach_lower();
    let found = tiers.fetch(id, Deadline::Never, false).unwrap();
    assert!(!found.is_begun);
    let polled = tiers.poll((64, 8), &mut |job| panic!("{job:?}"), &mut |_| {}).unwrap();
    assert_eq!((polled.jobs, world.shared.read().copied_pages()), (0, 0));
    world.shared.write().publish(id, 4).unwrap();
}

/// M06: from the moment on that tiers are being detached no copy is given out, no fetch begins, and
/// nobody else detaches them.
#[test]
fn m06_what_is_being_detached_gives_out_nothing() {
    let mut world = World::new(Setup::new(20, 64, None));
    let id = world.begin(&PLAIN, &prompt(1, 41)).unwrap().id;
    world.compute(id, 41);
    world.release(id);
    world.work();
    let tiers = world.tiers.clone();
    let mut given = Vec::new();
    tiers.poll((1, 8), &mut |job| given.push(job), &mut |_| {}).unwrap();
    let refused = tiers.begin_closing().unwrap_err().to_string();
    assert!(refused.contains("not complete: 1; open fetches: 0"), "{refused}");
    tiers.complete(&[given[0].id], true).unwrap();
    tiers.begin_closing().unwrap();
    let refused = tiers.begin_closing().unwrap_err().to_string();
    assert!(refused.contains("another thread detaches"), "{refused}");
    tiers.poll((64, 8), &mut |job| panic!("{job:?}"), &mut |_| {}).unwrap();
    world.shared.detach_lower();
}

/// T04: a copy of tiers that are gone is none of those that came later.
#[test]
fn t04_the_number_of_a_copy_is_never_anothers() {
    let mut world = World::new(Setup::new(30, 64, None));
    let given = |world: &mut World, family| {
        world.run(&PLAIN, &prompt(family, 41));
        world.work();
        assert!(world.poll(64) > 0);
        std::mem::take(&mut world.copies).into_iter().map(|copy| copy.job.id).collect::<Vec<_>>()
    };
    let old = given(&mut world, 1);
    world.attach_anew();
    let new = given(&mut world, 2);
    assert!(new.iter().all(|id| !old.contains(id)), "{old:?} {new:?}");
    assert!(world.tiers.complete(&old[..1], true).is_err(), "that one went with its tiers");
    world.tiers.complete(&new, true).unwrap();
    world.end();
}

/// T17: what was cleared while no tiers were there is not found when the same directory is attached
/// again, and goes.
#[test]
fn t17_what_was_cleared_between_two_attachments_is_gone() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = stored(Setup::new(30, 64, Some(store)), &tokens);
    let adapter = Namespace { lora: Some(4), ..PLAIN };
    world.run(&adapter, &tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.shared.detach_lower();
    world.shared.clear(Scope::exactly(adapter)).unwrap();
    world.tiers = world.try_attach().unwrap();
    world.work();
    let info = world.begin(&adapter, &tokens).unwrap();
    assert_eq!(world.fetch(info.id, Deadline::Never).positions, 0);
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.pages, stats.counters.cleared), (10, 10));
    world.release(info.id);
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40), "the other one is as it was");
    world.end();
}

/// T17: tiers without a directory carry out no clear in one: what was cleared before they came is
/// not found when the directory is attached again.
#[test]
fn t17_tiers_without_a_directory_end_no_clear() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = stored(Setup::new(30, 64, Some(store)), &tokens);
    let adapter = Namespace { lora: Some(4), ..PLAIN };
    world.run(&adapter, &tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.shared.detach_lower();
    world.shared.clear(Scope::exactly(adapter)).unwrap();
    // Host memory alone, for a while.
    let store = world.setup.store.take();
    world.tiers = world.try_attach().unwrap();
    world.work();
    world.shared.detach_lower();
    world.setup.store = store;
    world.tiers = world.try_attach().unwrap();
    world.work();
    let info = world.begin(&adapter, &tokens).unwrap();
    assert_eq!(world.fetch(info.id, Deadline::Never).positions, 0);
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.pages, stats.counters.cleared), (10, 10));
    world.release(info.id);
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40), "the other one is as it was");
    world.end();
}

/// M04: a directory for whose store there is no memory is not to blame for that.
#[test]
fn m04_a_store_without_memory_says_so() {
    let directory = || "here".to_owned();
    let refused = Error::from(OpenError::OutOfMemory { directory: directory() });
    assert!(matches!(&refused, Error::OutOfMemory(what) if what.to_string().contains("here")));
    let refused = Error::from(OpenError::InUse { directory: directory() });
    assert!(matches!(&refused, Error::Storage(what) if what.to_string().contains("here")));
}

/// Slots that have not the bytes of a page are refused: copies would go beyond them.
#[test]
fn slots_of_other_bytes_than_a_page_are_refused() {
    let shared = shared(&Setup::new(20, 4, None));
    for (bytes, is_good) in [(PAGE_BYTES / 2, false), (2 * PAGE_BYTES, false), (PAGE_BYTES, true)] {
        let host = HostMemory::Given(Slots::new(4, bytes).unwrap());
        let config = TierConfig {
            pools: vec![TierPool { page_bytes: PAGE_BYTES, host }],
            disk: None,
            remote: None,
            policy: PagePolicy::Through,
            agrees: false,
            wake: None,
        };
        let wake = PageTiers::disk_wake().0;
        let attached = PageTiers::attach_without_thread(&shared, config, wake);
        match is_good {
            true => assert!(attached.is_ok()),
            false => assert!(matches!(attached, Err(Error::Argument(_))), "{bytes} bytes"),
        }
        shared.detach_lower();
    }
}

/// A sequence that fetches its ten pages from host memory.
fn fetching() -> (World, SequenceId) {
    let mut world = World::new(Setup::new(20, 64, None));
    let first = prompt(1, 41);
    world.run(&PLAIN, &first);
    world.settle();
    assert_eq!(world.shared.evict(100, |_, _| {}).unwrap(), 10);
    let id = world.begin(&PLAIN, &first).unwrap().id;
    world.work();
    assert!(world.fetch(id, Deadline::Never).is_begun);
    (world, id)
}

/// M06: a fetch ends with its sequence: it keeps nobody from detaching the tiers.
#[test]
fn m06_a_fetch_whose_sequence_has_ended_does_not_go_on() {
    let (mut world, id) = fetching();
    let refused = world.tiers.begin_closing().unwrap_err().to_string();
    assert!(refused.contains("not complete: 0; open fetches: 1"), "{refused}");
    world.release(id);
    world.tiers.begin_closing().unwrap(); // its sequence has ended
    assert_eq!(world.tiers.stats().counters.abandoned, 1);
    world.shared.detach_lower();
}

/// T02: what was given out for a sequence that has ended may still be loaded, until it is complete.
#[test]
fn t02_a_load_outlives_its_sequence() {
    let (mut world, id) = fetching();
    world.work();
    let mut given = Vec::new();
    world.tiers.poll((64, 8), &mut |job| given.push(job), &mut |_| {}).unwrap();
    assert_eq!(given.len(), 10);
    world.release(id);
    for job in given {
        assert!(world.shared.read().may_be_loaded(job.page, 0), "{job:?}");
        world.tiers.complete(&[job.id], true).unwrap();
        assert!(!world.shared.read().may_be_loaded(job.page, 0), "{job:?}");
    }
    world.end();
}

/// M02, T10: an attachment that is refused for what another call panicked of leaves nothing below
/// the cache: the engine has its memory back, also where another call has the tiers for a moment.
#[test]
fn m02_an_attachment_that_a_panic_comes_in_between_leaves_nothing() {
    let mut world = World::new(Setup::new(20, 64, None));
    world.run(&PLAIN, &prompt(1, 41));
    world.shared.detach_lower();
    let other = world.shared.clone();
    let host = HostMemory::Own(64 * PAGE_BYTES as u64);
    let (finds, found) = channel();
    let config = TierConfig {
        pools: vec![TierPool { page_bytes: PAGE_BYTES, host }],
        disk: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        // The first thing that the engine hears of them: then another thread panics.
        wake: Some(Box::new(move || {
            let tiers = other.lower::<PageTiers>().expect("they are attached");
            finds.send(tiers.ended()).expect("the test hears of it");
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(tiers);
            });
            other.poison();
            drop(other.read());
        })),
    };
    let attach = || PageTiers::attach(&world.shared, config, PageTiers::disk_wake().0);
    let attached = catch_unwind(AssertUnwindSafe(attach));
    assert!(attached.is_err(), "it was refused");
    assert!(world.shared.lower::<PageTiers>().is_none());
    assert!(found.recv().expect("they were attached").load(Ordering::Acquire), "all is gone");
}
