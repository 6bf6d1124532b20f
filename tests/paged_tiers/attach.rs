//! Tiers that come and go: without memory, and while other threads are in a call.
use super::failing::{Failure, failing};
use super::memory_store::MemoryStore;
use super::world::{PAGE_BYTES, Setup, World};
use super::{PLAIN, prompt};
use radixkv::tier::paged::{Deadline, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};

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
    assert!(!tiers.begin_closing(), "a copy goes on");
    tiers.complete(&[given[0].id], true).unwrap();
    assert!(tiers.begin_closing());
    assert!(!tiers.begin_closing(), "somebody else does already");
    tiers.poll((64, 8), &mut |job| panic!("{job:?}"), &mut |_| {}).unwrap();
    world.shared.detach_lower();
}
