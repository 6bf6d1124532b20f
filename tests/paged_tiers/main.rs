//! Pages below the device: what is found where, and that it is what was computed.
mod agree_ended;
mod attach;
mod busy;
mod children;
mod deadline_zero_joins;
mod detach_last;
mod directories;
mod epochs;
#[path = "../failing/mod.rs"]
mod failing;
mod full_host;
mod group_grows;
mod group_landing;
mod group_prefetch;
mod group_random;
mod group_stands_still;
mod group_stores;
mod group_remote;
mod group_world;
mod group_yields;
mod groups;
mod images;
mod joined;
mod late_answers;
mod looks;
mod many_clears;
#[path = "../snapshot_tiers/memory_store.rs"]
mod memory_store;
#[path = "../tier/folder.rs"]
mod folder;
#[path = "../tier/jumps.rs"]
mod jumps;
mod moments;
mod namespaces;
mod over_disk;
mod prefetch;
mod random;
mod remote;
mod remote_store;
#[cfg(target_os = "linux")]
mod shrinking;
mod stands_still;
mod store_memory;
mod refusing;
mod removals;
mod resync_cycle;
#[path = "../tier/runs.rs"]
mod runs;
#[path = "../tier/sim/mod.rs"]
mod sim;
mod threads;
mod troubles;
mod unwritten;
mod wakes;
mod when_stored;
mod world;

use memory_store::MemoryStore;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::store::Scope;
use radixkv::tier::paged::Deadline;
use std::time::Duration;
use world::{PAGE_BYTES, Setup, World};

fn prompt(family: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| 1000 * family + at).collect()
}

const PLAIN: Namespace = Namespace { lora: None, epoch: 0, salt: [0; 32], image: None };

/// T02: pages that were evicted from the device are found in host memory.
#[test]
fn t02_what_was_evicted_is_found_in_host_memory() {
    let mut world = World::new(Setup::new(20, 64, None));
    let first = prompt(1, 41);
    assert_eq!(world.run(&PLAIN, &first), (0, 0));
    world.settle();
    assert_eq!(world.run(&PLAIN, &first), (40, 0), "the device has it");
    assert_eq!(world.shared.evict(100, |_, _| {}).unwrap(), 10);
    assert_eq!(world.run(&PLAIN, &first), (0, 40));
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.host.fetched, stats.counters.lost), (10, 10, 0));
    // The first half is still there.
    assert_eq!(world.shared.evict(5, |_, _| {}).unwrap(), 5);
    assert_eq!(world.run(&PLAIN, &first), (20, 20));
    world.end();
}

/// T02: then on the disk, after a restart too.
#[test]
fn t02_what_left_host_memory_is_found_on_disk_after_a_restart() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = World::new(Setup::new(20, 4, Some(store)));
    for family in 1..4 {
        assert_eq!(world.run(&PLAIN, &prompt(family, 33)), (0, 0));
        world.settle();
    }
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.disk.pages), (4, 24));
    world.shared.evict(100, |_, _| {}).unwrap();
    assert_eq!(world.run(&PLAIN, &prompt(2, 33)), (0, 32));
    let mut world = world.restarted();
    for family in 1..4 {
        let other = Namespace { epoch: 1, ..PLAIN };
        assert_eq!(world.run(&other, &prompt(family, 33)), (0, 0), "T07, T17: another namespace");
        world.shared.evict(100, |_, _| {}).unwrap();
        assert_eq!(world.run(&PLAIN, &prompt(family, 33)), (0, 32));
    }
    assert_eq!(world.tiers.stats().disk.fetched, 24);
    world.end();
}

/// A world in which the tiers have a prompt, and the device has nothing.
fn stored(setup: Setup, tokens: &[u32]) -> World {
    let mut world = World::new(setup);
    world.run(&PLAIN, tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    world
}

/// T04: bytes of host memory that changed shorten the hit, and are not found again.
#[test]
fn t04_damaged_bytes_shorten_the_hit() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let changed = world.host.iter().position(|&byte| byte != 0).unwrap();
    world.host[changed] ^= 4;
    let (had, brought) = world.run(&PLAIN, &tokens);
    assert!(had == 0 && brought < 40 && brought % 4 == 0, "{had} {brought}");
    let stats = world.tiers.stats();
    assert_eq!((stats.host.damaged, stats.counters.shortened), (1, 1));
    world.end();
}

/// T04: a copy that fails shortens the hit before its page; what comes after it is not used.
#[test]
fn t04_a_copy_that_fails_shortens_the_hit() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    let found = world.fetch(info.id, Deadline::Never);
    assert_eq!((found.positions, found.host_positions, found.is_begun), (40, 40, true));
    world.work();
    assert_eq!(world.poll(64), 10);
    for at in (0..10).rev() {
        world.step_copy(at, true); // its first half
    }
    let failing = world.copies.iter().position(|copy| copy.job.page == row(&world, info.id)[3]);
    world.step_copy(failing.unwrap(), false);
    while !world.copies.is_empty() {
        world.step_copy(0, true);
    }
    world.poll(0);
    assert_eq!((world.fetched[0].positions, world.fetched[0].brought), (12, 3));
    assert_eq!(world.requests[&info.id].computed, 12);
    world.compute(info.id, tokens.len());
    world.end();
}

fn row(world: &World, id: SequenceId) -> Vec<u32> {
    world.shared.read().row_from(id.slot(), 0).unwrap().to_vec()
}

/// T11: no time at all is only what host memory has.
#[test]
fn t11_no_time_is_host_memory_alone() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, Some(store.clone())), &tokens);
    world.tiers.shrink_to(6 * PAGE_BYTES as u64, u64::MAX);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    let look = world.tiers.fetch(info.id, Deadline::Never, true).unwrap();
    assert_eq!((look.positions, look.host_positions, look.is_begun), (40, 24, false));
    let found = world.fetch(info.id, Deadline::After(Duration::ZERO));
    assert_eq!((found.positions, found.is_begun), (24, true));
    world.settle();
    assert_eq!(world.requests[&info.id].computed, 24);
    assert_eq!(store.open(), (0, 0), "the disk was not asked");
    world.end();
}

/// T11: when the deadline comes, what is there is used, and a copy that goes on is waited for: the
/// engine would compute into its page.
#[test]
fn t11_a_late_fetch_leaks_nothing() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, Some(store.clone())), &tokens);
    world.tiers.shrink_to(6 * PAGE_BYTES as u64, u64::MAX);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.fetch(info.id, Deadline::After(Duration::from_millis(300)));
    world.work();
    assert_eq!(world.poll(2), 2);
    std::thread::sleep(Duration::from_millis(310));
    assert_eq!(world.poll(64), 0, "the deadline is over");
    let refused = world.shared.write().publish(info.id, 4);
    assert!(matches!(refused, Err(radixkv::error::Error::Loading(_))), "{refused:?}");
    while !world.copies.is_empty() {
        world.step_copy(0, true);
    }
    world.poll(0);
    let done = world.fetched[0];
    assert_eq!((done.positions, done.brought, done.wanted, done.is_late), (8, 2, 10, true));
    world.compute(info.id, tokens.len());
    // What the disk still reads arrives in host memory.
    assert_eq!(store.open(), (0, 4));
    world.end();
}

/// T11: a sequence that ends while its pages are being copied: nobody gets them before.
#[test]
fn t11_pages_of_an_ended_sequence_wait_for_their_copies() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(11, 64, None), &tokens);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.fetch(info.id, Deadline::Never);
    world.work();
    assert_eq!(world.poll(4), 4);
    let copied: Vec<u32> = world.copies.iter().map(|copy| copy.job.page).collect();
    world.release(info.id);
    let stats = world.shared.read().page_table_stats();
    assert_eq!((stats.free, stats.private, stats.cached), (7, 4, 0));
    assert!(world.begin(&PLAIN, &prompt(2, 32)).is_none(), "8 pages are not to be had");
    let other = world.begin(&PLAIN, &prompt(2, 28)).unwrap();
    assert!(row(&world, other.id).iter().all(|page| !copied.contains(page)));
    world.compute(other.id, 28);
    while !world.copies.is_empty() {
        world.step_copy(0, true);
        world.check_all();
    }
    assert_eq!(world.shared.read().page_table_stats().free, 4);
    assert_eq!(world.tiers.stats().counters.abandoned, 1);
    world.end();
}

/// T12: two requests for one prefix: it is fetched once, and both have it.
#[test]
fn t12_two_requests_share_a_fetch() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(30, 64, Some(store)), &tokens);
    world.tiers.shrink_to(0, u64::MAX);
    let longer: Vec<u32> = tokens[..30].iter().copied().chain(prompt(3, 10)).collect();
    let ids = [&tokens, &longer].map(|tokens| world.begin(&PLAIN, tokens).unwrap().id);
    assert_eq!(world.fetch(ids[0], Deadline::Never).positions, 40);
    assert_eq!(world.fetch(ids[1], Deadline::Never).positions, 28);
    world.settle();
    assert_eq!(ids.map(|id| world.requests[&id].computed), [40, 28]);
    assert_eq!(row(&world, ids[0])[..7], row(&world, ids[1])[..7]);
    let stats = world.tiers.stats();
    assert_eq!((stats.disk.fetched, stats.host.fetched, stats.counters.joined), (10, 0, 1));
    // And when the first one ends before it has it all, the other one goes on.
    world.end();
    world.shared.evict(1000, |_, _| {}).unwrap();
    let ids = [&tokens, &longer].map(|tokens| world.begin(&PLAIN, tokens).unwrap().id);
    for id in ids {
        world.fetch(id, Deadline::Never);
    }
    world.work();
    assert_eq!(world.poll(3), 3);
    world.release(ids[0]);
    world.settle();
    assert_eq!(world.requests[&ids[1]].computed, 28);
    world.end();
}

/// T17: what was cleared is not found in any tier, and goes.
#[test]
fn t17_cleared_namespaces_are_gone_below_too() {
    let tokens = prompt(1, 41);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = stored(Setup::new(30, 64, Some(store)), &tokens);
    let adapter = Namespace { lora: Some(4), ..PLAIN };
    world.run(&adapter, &tokens);
    world.settle();
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.shared.clear(Scope { lora: true, like: adapter, ..Scope::default() }).unwrap();
    let info = world.begin(&adapter, &tokens).unwrap();
    // At once: what is to go is not there, nor is what could be.
    assert_eq!(world.fetch(info.id, Deadline::Never).positions, 0);
    world.work();
    assert_eq!(world.fetch(info.id, Deadline::Never).positions, 0);
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.disk.pages, stats.counters.cleared), (10, 10, 10));
    world.release(info.id);
    assert_eq!(world.run(&PLAIN, &tokens), (0, 40), "the other one is as it was");
    assert_eq!(world.run(&adapter, &tokens), (0, 0));
    world.end();
}

/// T17: a clear between what a fetch finds and its beginning is no error of who fetches.
#[test]
fn t17_a_clear_while_a_fetch_begins_leaves_nothing_to_fetch() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert_eq!(world.shared.read().fetchable_pages(info.id, true).unwrap(), (0, 10));
    world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    assert_eq!(world.shared.write().open_fetch(info.id, 0, 10).unwrap(), [0_u32; 0]);
    assert!(!world.shared.read().is_loading(info.id));
    world.compute(info.id, tokens.len());
    world.release(info.id);
    world.end();
}

/// T09: ranks with different room, speeds and faults use the same length, always.
#[test]
fn t09_all_ranks_use_one_length() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut fetched, mut shorter) = (0, 0);
    for round in 0..12 {
        let mut ranks: Vec<World> = (0..3)
            .map(|rank| {
                let store = MemoryStore::new(400 + 300 * rank, 1 << 10);
                let mut setup = Setup::new(40 + 8 * rank as u32, 8 + rank as usize, Some(store));
                setup.agrees = true;
                World::new(setup)
            })
            .collect();
        for _ in 0..40 {
            let tokens = prompt(rng.u32(1..4), rng.u32(8..48));
            let mut ready = Vec::new();
            for world in &mut ranks {
                world.work();
                let info = world.begin(&PLAIN, &tokens).unwrap();
                let begun = world.fetch(info.id, Deadline::Never).is_begun;
                for _ in 0..rng.usize(0..200) {
                    world.tiers.work();
                    let store = world.setup.store.clone().unwrap();
                    let fails = rng.u8(0..30) == 0;
                    store.read(0, fails.then_some(radixkv::tier::LoadError::Io), false);
                    world.poll(2);
                    if !world.copies.is_empty() {
                        world.step_copy(0, rng.u8(0..40) > 0);
                    }
                }
                world.settle();
                let length = match world.fetched.pop().filter(|_| begun) {
                    Some(done) => done.positions,
                    None => info.cached_positions,
                };
                assert!(!begun || world.shared.read().is_loading(info.id));
                ready.push((info.id, length));
            }
            let agreed = ready.iter().map(|&(_, length)| length).min().unwrap();
            fetched += agreed;
            shorter += ready.iter().filter(|&&(_, length)| length > agreed).count();
            let mut used = Vec::new();
            for (world, &(id, _)) in ranks.iter_mut().zip(&ready) {
                let done = world.tiers.agree(id, agreed).unwrap();
                world.requests.get_mut(&id).unwrap().computed = 0;
                world.end_fetch(done);
                used.push(done.positions);
                assert!(done.positions <= agreed, "{done:?} of {agreed}");
            }
            // Whole pages of all.
            let least = *used.iter().min().unwrap();
            for (world, &(id, _)) in ranks.iter_mut().zip(&ready) {
                let done = world.tiers.agree(id, least).unwrap();
                assert_eq!(done.positions, least);
                world.requests.get_mut(&id).unwrap().computed = least;
                world.compute(id, tokens.len());
                world.release(id);
                world.check_all();
                if rng.bool() {
                    world.shared.evict(rng.usize(..30), |_, _| {}).unwrap();
                }
            }
        }
        ranks.iter_mut().for_each(World::end);
        assert!(round < 11 || (fetched > 500 && shorter > 50), "{fetched} {shorter}");
    }
}

/// T10: no tier ever has more than its bytes; it shrinks and grows.
#[test]
fn t10_tiers_keep_to_their_bytes() {
    let store = MemoryStore::new(20 * PAGE_BYTES as u64, 1 << 10);
    let mut world = World::new(Setup::new(30, 8, Some(store)));
    for family in 1..30 {
        world.run(&PLAIN, &prompt(family, 33));
        world.settle();
        let stats = world.tiers.stats();
        assert!(stats.host.bytes <= 8 * PAGE_BYTES as u64 && stats.host.limit == 128);
        assert!(stats.disk.bytes <= 20 * PAGE_BYTES as u64 && stats.disk.limit == 320);
        assert_eq!(stats.host.bytes, 16 * stats.host.pages as u64);
    }
    // Prefixes are whole: ends went before beginnings.
    world.shared.evict(1000, |_, _| {}).unwrap();
    assert_eq!(world.run(&PLAIN, &prompt(29, 33)), (0, 32));
    world.settle();
    world.tiers.shrink_to(2 * PAGE_BYTES as u64, 3 * PAGE_BYTES as u64);
    let stats = world.tiers.stats();
    assert_eq!((stats.host.pages, stats.disk.pages), (2, 3));
    world.run(&PLAIN, &prompt(40, 33));
    world.settle();
    assert!(world.tiers.stats().disk.pages > 3);
    world.end();
}

/// The cache goes while fetches are open and pages are copied: none is lost.
#[test]
fn t11_a_cache_goes_with_fetches_open() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(30, 64, None), &tokens);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.fetch(info.id, Deadline::Never);
    world.work();
    assert_eq!(world.poll(4), 4);
    drop(world); // it looks whether all pages are free
}

/// Tiers below a cache that has pages already, whatever their numbers: all of them are known.
#[test]
fn t02_a_cache_that_has_pages_already() {
    let mut world = World::new(Setup::new(40, 64, None));
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..60 {
        let length = rng.u32(8..60);
        world.run(&PLAIN, &prompt(rng.u32(1..4), length));
        world.shared.evict(rng.usize(..6), |_, _| {}).unwrap();
    }
    world.attach_anew();
    world.settle();
    let cached = world.shared.read().page_table_stats().cached;
    assert_eq!((world.tiers.stats().host.pages, cached > 10), (cached, true));
    world.shared.evict(1000, |_, _| {}).unwrap();
    let brought: usize = (1..4).map(|family| world.run(&PLAIN, &prompt(family, 60)).1).sum();
    assert!(brought > 40, "{brought}");
    world.end();
}

/// Without a journal there are no tiers.
#[test]
fn a_cache_without_a_journal_has_no_tiers() {
    use radixkv::error::Error;
    use radixkv::store::CacheConfig;
    let mut world = World::new(Setup::new(8, 4, None));
    world.shared.detach_cache();
    world.shared.attach_cache(CacheConfig::default()).unwrap();
    assert!(matches!(world.try_attach(), Err(Error::State(_))));
    let again = world.shared.lower::<radixkv::tier::paged::PageTiers>();
    assert!(again.is_none());
}

/// T02: a long prefix becomes the cache's in parts, while the rest is on its way.
#[test]
fn t02_a_long_prefix_lands_in_parts() {
    let tokens = prompt(1, 4 * 700 + 1);
    let mut world = stored(Setup::new(1500, 800, None), &tokens);
    assert_eq!(world.tiers.stats().host.pages, 700);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.fetch(info.id, Deadline::Never);
    let mut early = 0;
    while world.fetched.is_empty() {
        world.work();
        world.poll(64);
        while !world.copies.is_empty() {
            let at = world.copies.len() / 2;
            world.step_copy(at, true);
        }
        if world.shared.read().is_loading(info.id) {
            early = early.max(world.shared.read().page_table_stats().cached);
            world.shared.read().audit().unwrap();
        }
    }
    assert!((256..700).contains(&early), "{early} pages before it ended");
    assert_eq!(world.requests[&info.id].computed, 2800);
    world.compute(info.id, tokens.len());
    world.end();
}

/// T10: what was used last is what a directory gives up last, after a restart too.
#[test]
fn t10_what_was_used_last_stays_after_a_restart() {
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let mut world = World::new(Setup::new(30, 64, Some(store)));
    for family in [1, 2] {
        world.run(&PLAIN, &prompt(family, 41));
        world.settle();
    }
    world.shared.evict(1000, |_, _| {}).unwrap();
    world.work();
    // From host memory, not from the disk.
    assert_eq!(world.run(&PLAIN, &prompt(1, 41)), (0, 40));
    world.settle();
    let mut world = world.restarted();
    world.tiers.shrink_to(u64::MAX, 10 * PAGE_BYTES as u64);
    assert_eq!(world.tiers.stats().disk.pages, 10);
    assert_eq!(world.run(&PLAIN, &prompt(1, 41)), (0, 40), "it was used last");
    world.end();
}
