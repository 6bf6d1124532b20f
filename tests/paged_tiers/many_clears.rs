//! More clears than a list of some dozen would remember.
use crate::failing::{Failure, failing};
use crate::memory_store::MemoryStore;
use crate::remote_store::MemoryRemote;
use crate::world::{PAGE_BYTES, Setup, World};
use crate::{PLAIN, prompt, stored};
use radixkv::index::Namespace;
use radixkv::store::Scope;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn clear_tenants(world: &World, each: impl Fn(&World)) {
    for tenant in 0..40 {
        let tenant = Namespace { lora: Some(100 + tenant), ..PLAIN };
        world.shared.clear(Scope::exactly(tenant)).unwrap();
        each(world);
    }
}

/// T17: many tenants are cleared at once: what others have in the tiers stays.
#[test]
fn t17_many_clears_at_once_leave_other_namespaces() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    clear_tenants(&world, |_| {});
    world.work();
    assert_eq!(world.tiers.stats().counters.cleared, 0, "pages of a namespace nobody cleared");
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40));
    world.end();
}

/// T13, T17: however many namespaces were cleared since the tiers were attached, the remote store
/// is asked for the others, and given those.
#[test]
fn t13_many_clears_leave_the_remote_store_to_others() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote::new();
    let setup = || Setup { remote: Some(remote.clone()), ..Setup::new(30, 32, None) };
    let mut first = World::new(setup());
    first.run(&PLAIN, &tokens);
    first.settle();
    first.end();
    drop(first);
    let mut other = World::new(setup());
    clear_tenants(&other, World::work);
    assert_eq!(other.run(&PLAIN, &tokens), (0, 40));
    other.end();
}

/// M05, T17: what was cleared right before the tiers are closed leaves the disk, also when there is
/// no memory then: nobody comes to it later, and a restart would find it.
#[test]
fn m05_t17_tiers_that_are_closed_without_memory_leave_nothing_that_was_cleared() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(64 * PAGE_BYTES as u64, usize::MAX);
    let world = stored(Setup::new(20, 64, Some(store.clone())), &tokens);
    assert_eq!(store.records().len(), 10);
    // The thread does not come to it.
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    let ((), failed) = failing(Failure::Once(0), || world.shared.detach_lower());
    store.commit();
    assert_eq!((store.records().len(), failed), (0, 1), "a restart finds what was cleared");
}

/// M05, M06: tiers that are closed without memory, beside threads that complete copies: nobody
/// waits for ever.
#[test]
fn m05_m06_tiers_that_are_closed_without_memory_hold_nobody_up() {
    let tokens = prompt(1, 41);
    for round in 0..30 {
        let store = MemoryStore::new(64 * PAGE_BYTES as u64, usize::MAX);
        let world = stored(Setup::new(20, 64, Some(store)), &tokens);
        // The thread does not come to it.
        world.shared.clear(Scope::exactly(PLAIN)).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..3)
            .map(|_| {
                let (tiers, is_over) = (world.tiers.clone(), is_over.clone());
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        tiers.complete(&[], true).unwrap();
                    }
                })
            })
            .collect();
        let (shared, (done, closed)) = (world.shared.clone(), mpsc::channel());
        std::thread::spawn(move || {
            // What a thread needs to sleep, it has from here on.
            let lock = parking_lot::Mutex::new(());
            parking_lot::Condvar::new().wait_for(&mut lock.lock(), Duration::from_millis(1));
            failing(Failure::Once(0), || shared.detach_lower());
            let _ = done.send(());
        });
        let is_closed = closed.recv_timeout(Duration::from_secs(30)).is_ok();
        is_over.store(true, Ordering::Relaxed);
        if !is_closed {
            // To drop it would wait as well.
            std::mem::forget(world);
            panic!("round {round}: closing waits for ever");
        }
        others.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
