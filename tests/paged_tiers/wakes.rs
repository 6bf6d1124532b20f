//! An engine that sleeps until it is woken.
use crate::memory_store::MemoryStore;
use crate::world::{Copy, PAGE_BYTES, Setup, World};
use crate::{PLAIN, prompt, stored};
use radixkv::api::{Cache, PageTable};
use radixkv::paging::PageTableConfig;
use radixkv::store::CacheConfig;
use radixkv::tier::paged::{Deadline, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool};
use radixkv::token::TokenList;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Puts tiers below a world's cache that count how often they wake its engine.
fn waking(world: &mut World, host_pages: usize, agrees: bool) -> std::sync::Arc<AtomicUsize> {
    world.shared.detach_lower();
    let wakes = std::sync::Arc::new(AtomicUsize::new(0));
    let count = wakes.clone();
    let config = TierConfig {
        pools: vec![TierPool {
            page_bytes: PAGE_BYTES,
            host: HostMemory::Own((host_pages * PAGE_BYTES) as u64),
        }],
        disk: world.setup.store.clone().map(|store| {
            let records = store.records();
            (Box::new(store) as _, records)
        }),
        remote: None,
        policy: PagePolicy::Through,
        agrees,
        wake: Some(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })),
    };
    let wake = PageTiers::disk_wake().0;
    world.tiers = PageTiers::attach_without_thread(&world.shared, config, wake).unwrap();
    world.setup.agrees = agrees;
    world.work();
    wakes
}

fn copy_all(world: &mut World) {
    world.poll(64);
    while !world.copies.is_empty() {
        world.step_copy(0, true);
    }
    world.work();
}

/// T11, T03: a deadline comes while the disk stands still: who sleeps is told.
#[test]
fn t11_a_deadline_wakes_who_sleeps() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, Some(store)), &tokens);
    let wakes = waking(&mut world, 64, false);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    assert!(world.fetch(id, Deadline::After(Duration::from_millis(300))).is_begun);
    world.work();
    assert_eq!(world.poll(64), 0, "the disk reads all of it");
    world.work();
    let before = wakes.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(320));
    world.work(); // as the thread does each 20 ms
    assert_eq!(wakes.load(Ordering::Relaxed), before + 1, "nobody says that its time is over");
    world.poll(64);
    assert!(world.fetched[0].is_late);
    world.compute(id, tokens.len());
    world.end();
}

/// T03: who waits for other ranks, and has nothing to poll for, is not woken again and again.
#[test]
fn t09_a_fetch_that_waits_for_ranks_wakes_nobody_again() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, Some(store.clone())), &tokens);
    let wakes = waking(&mut world, 64, true);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    assert!(world.fetch(id, Deadline::Never).is_begun);
    while world.fetched.is_empty() {
        world.work();
        while store.read(0, None, false) {}
        world.work();
        copy_all(&mut world);
    }
    world.work();
    let before = wakes.load(Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(world.poll(64), 0);
        world.work();
    }
    let more = wakes.load(Ordering::Relaxed) - before;
    assert!(more <= 1, "it was woken {more} times for nothing");
    let done = world.tiers.agree(id, 40).unwrap();
    world.end_fetch(done);
    world.compute(id, tokens.len());
    world.end();
}

/// T08, T03: the same while nothing can be stored, as the disk has all of host memory to write.
#[test]
fn t08_stores_that_wait_for_the_disk_wake_nobody_again() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = World::new(Setup::new(20, 4, Some(store)));
    let wakes = waking(&mut world, 4, false);
    let tokens = prompt(1, 41);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.compute(id, tokens.len());
    world.work();
    for _ in 0..10 {
        copy_all(&mut world);
    }
    assert_eq!((world.tiers.stats().free_slots, world.tiers.stats().open_copies), (0, 0));
    assert!(world.tiers.stats().waiting > 0);
    let before = wakes.load(Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(world.poll(64), 0);
        world.work();
    }
    let more = wakes.load(Ordering::Relaxed) - before;
    assert!(more <= 1, "it was woken {more} times for nothing");
    world.end();
}

/// M06, T03: what waits to be stored when tiers are detached wakes nobody: none of it is given out.
#[test]
fn m06_stores_that_are_not_given_out_any_more_wake_nobody() {
    let mut world = World::new(Setup::new(20, 64, None));
    let wakes = waking(&mut world, 64, false);
    let tokens = prompt(1, 41);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.compute(id, tokens.len());
    world.release(id);
    world.work();
    assert!(world.tiers.stats().waiting > 0);
    world.tiers.begin_closing().unwrap();
    let before = wakes.load(Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(world.poll(64), 0);
        world.work();
    }
    let more = wakes.load(Ordering::Relaxed) - before;
    assert!(more <= 1, "it was woken {more} times for nothing");
    world.shared.detach_lower();
}

/// M03: who is woken may let go of the cache: the thread that called him ends by itself.
#[test]
fn m03_who_is_woken_may_drop_the_cache() {
    let config = PageTableConfig { page_size: 4, page_count: 21, ..PageTableConfig::default() };
    let table = PageTable::new(config).unwrap();
    let config = CacheConfig { journal_bytes: 1 << 16, ..CacheConfig::default() };
    let cache = table.cache(config).unwrap();
    let (give, given) = mpsc::channel::<Cache>();
    let given = Mutex::new(given);
    let below = TierConfig {
        pools: vec![TierPool {
            page_bytes: PAGE_BYTES,
            host: HostMemory::Own(8 * PAGE_BYTES as u64),
        }],
        disk: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees: false,
        wake: Some(Box::new(move || {
            let last = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
            drop(last);
        })),
    };
    let tiers = PageTiers::attach(&table.shared(), below, PageTiers::disk_wake().0).unwrap();
    let ended = tiers.ended();
    drop(tiers);
    let mut sequence = cache.begin(&PLAIN, TokenList::text(&prompt(1, 9)), 0).unwrap();
    sequence.publish(9).unwrap();
    drop(sequence);
    // Its pages are to be stored: the tiers' thread wakes, and gets the last share of the cache.
    give.send(cache).unwrap();
    drop(give);
    let begun = Instant::now();
    while !ended.load(Ordering::Acquire) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the tiers are there still");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(table.stats().unwrap().free, 20);
    table.cache(config).unwrap();
}

/// T10, T03: ends of fetches that nobody takes go with their sequences, and wake nobody again.
#[test]
fn t10_ends_that_nobody_takes_go_with_their_sequences() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let wakes = waking(&mut world, 64, false);
    world.run(&PLAIN, &tokens);
    world.settle();
    world.fetched.clear();
    for round in 0..200 {
        world.shared.evict(1000, |_, _| {}).unwrap();
        let id = world.begin(&PLAIN, &tokens).unwrap().id;
        world.work();
        assert!(world.tiers.fetch(id, Deadline::Never, false).unwrap().is_begun);
        while world.shared.read().is_loading(id) {
            world.work();
            let World { tiers, copies, .. } = &mut world;
            let mut take = |job| copies.push(Copy { job, half_done: false });
            tiers.poll((64, 0), &mut take, &mut |done| panic!("{done:?}")).unwrap();
            while !world.copies.is_empty() {
                world.step_copy(0, true);
            }
        }
        world.work();
        let before = wakes.load(Ordering::Relaxed);
        for _ in 0..10 {
            world.tiers.poll((64, 0), &mut |_| {}, &mut |_| {}).unwrap();
            world.work();
        }
        let more = wakes.load(Ordering::Relaxed) - before;
        assert!(more <= 1, "{round}: it was woken {more} times for nothing");
        world.requests.get_mut(&id).unwrap().computed = 40;
        if round < 199 {
            world.release(id);
        }
    }
    // That of the one that lives is still to be had.
    let mut ends = 0;
    world.tiers.poll((0, 1000), &mut |_| {}, &mut |_| ends += 1).unwrap();
    assert_eq!(ends, 1);
    world.end();
}
