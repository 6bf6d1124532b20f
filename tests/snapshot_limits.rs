//! Counters and numbers of a snapshot cache near their ends, outputs that are no good, and what
//! statistics cost.
#[path = "tier/folder.rs"]
mod folder;
#[path = "snapshot_memory/world.rs"]
#[allow(dead_code)]
mod world;

use folder::Folder;
use radixkv::capi::*;
use radixkv::error::Error;
use radixkv::ids::PinId;
use radixkv::snapshot::{
    Counters, Freed, Namespace, NewSnapshot, Numbers, SnapshotBounds, SnapshotCache, SnapshotLimits,
};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use world::{Insert, World, list, message, ok, sized};

/// One test makes as many caches as there may be. The others use few, and not meanwhile.
static CACHES: RwLock<()> = RwLock::new(());

fn few_caches() -> RwLockReadGuard<'static, ()> {
    CACHES.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An entry whose size says which value it has.
fn insert(cache: &SnapshotCache<u32>, tokens: &[u32], value: u32) -> Result<(), Error> {
    let namespace = Namespace::default();
    let bytes = u64::from(value);
    let new =
        NewSnapshot { namespace: &namespace, tokens, bytes, next_token: None, is_trimmable: false };
    cache.insert(new, || value, &mut Freed::new()).map(drop)
}

fn pin(cache: &SnapshotCache<u32>, tokens: &[u32]) -> Result<PinId, Error> {
    let found = cache.find(&Namespace::default(), tokens, |value| *value)?;
    Ok(found.expect("it is stored").pin)
}

fn limits() -> SnapshotLimits {
    SnapshotLimits { entries: usize::MAX, bytes: u64::MAX }
}

/// Every number of nodes that there may be, from none to ten.
#[test]
fn m07_nodes_are_used_up() {
    let _few = few_caches();
    for nodes in 0..10 {
        let bounds = SnapshotBounds { nodes, ..SnapshotBounds::default() };
        let cache = SnapshotCache::with_bounds(limits(), bounds).unwrap();
        let lists: Vec<Vec<u32>> = (0..12).map(|at| vec![1, at, 2]).collect();
        let stored = lists.iter().take_while(|list| insert(&cache, list, 1).is_ok()).count();
        assert_eq!(stored, [0, 0, 1, 1, 2, 3, 4, 5, 6, 7][nodes as usize]);
        let before = cache.stats();
        assert_eq!(before.entries, stored);
        let refused = insert(&cache, &lists[stored], 1);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        assert_eq!((cache.stats().entries, cache.stats().nodes), (stored, before.nodes));
        cache.check().unwrap();
        // What goes makes room.
        if stored > 0 {
            assert!(cache.remove(&Namespace::default(), &lists[0], &mut Freed::new()));
            insert(&cache, &lists[stored], 1).unwrap();
        }
        cache.check().unwrap();
    }
}

/// Every number of pins that may be out, and of numbers for them.
#[test]
fn m07_pins_are_used_up() {
    let _few = few_caches();
    for (pins, numbers) in [(0, 5), (1, 1), (1, 3), (2, 2), (3, 7)] {
        let blocks = Box::leak(Box::new([const { AtomicU32::new(0) }; 2]));
        let numbers: &'static Numbers = Box::leak(Box::new(Numbers::new(blocks, numbers)));
        let bounds = SnapshotBounds { pins, numbers, ..SnapshotBounds::default() };
        let cache = SnapshotCache::with_bounds(limits(), bounds).unwrap();
        let other = SnapshotCache::<u32>::with_bounds(limits(), bounds);
        // Without pins none is taken.
        assert_eq!(matches!(other, Err(Error::State(_))), pins > 0, "the only block is in use");
        insert(&cache, &[1, 2], 7).unwrap();
        let mut seen: Vec<PinId> = Vec::new();
        loop {
            let out: Vec<PinId> = (0..pins).map_while(|_| pin(&cache, &[1, 2]).ok()).collect();
            let before = cache.stats();
            let refused = cache.find(&Namespace::default(), &[1, 2], |value| *value);
            assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
            assert_eq!(cache.stats().counters, before.counters, "a refused match counts nothing");
            assert_eq!(cache.stats().pins, out.len());
            cache.check().unwrap();
            if out.is_empty() {
                break;
            }
            for pin in out {
                assert!(!seen.contains(&pin), "a pin's id comes twice");
                cache.release(pin, &mut Freed::new()).unwrap();
                let again = cache.release(pin, &mut Freed::new());
                assert_eq!(again, Err(Error::StalePin(pin.0)));
                seen.push(pin);
            }
        }
        cache.check().unwrap();
        // The cache works on without pins.
        insert(&cache, &[1, 3], 8).unwrap();
        assert_eq!(cache.probe(&Namespace::default(), &[1, 3, 4]), 2);
        drop(cache);
        let next = SnapshotCache::<u32>::with_bounds(limits(), bounds);
        assert_eq!(next.is_err(), !seen.is_empty(), "a block that is used up is retired");
    }
}

#[test]
fn m07_counters_end_where_they_end() {
    let _few = few_caches();
    for before_end in 0..4 {
        let last = u64::MAX - before_end;
        let counters = Counters {
            lookups: last,
            hits: last,
            full_hits: last,
            lookup_tokens: last,
            hit_tokens: last,
            stored: last,
            replaced: last,
            rejected: last,
            evicted: last,
            removed: last,
        };
        let bounds = SnapshotBounds { counters, ..SnapshotBounds::default() };
        let limits = SnapshotLimits { entries: 2, bytes: u64::MAX - 1 };
        let cache = SnapshotCache::with_bounds(limits, bounds).unwrap();
        let namespace = Namespace::default();
        let insert = |tokens: &[u32], bytes: u64| {
            let new = NewSnapshot {
                namespace: &namespace,
                tokens,
                bytes,
                next_token: None,
                is_trimmable: false,
            };
            cache.insert(new, || 1, &mut Freed::new()).unwrap()
        };
        for round in 0..3 {
            for at in 0..4 {
                assert!(insert(&[1, 2, 3, at], 1).stored && insert(&[1, 2, 3, at], 1).replaced);
            }
            assert!(!insert(&[1], u64::MAX).stored);
            let found = cache.find(&namespace, &[1, 2, 3, 3], |_| ()).unwrap().unwrap();
            cache.release(found.pin, &mut Freed::new()).unwrap();
            let removed = cache.remove(&namespace, &[1, 2, 3, 3], &mut Freed::new());
            assert!(removed && insert(&[1, 2, 3, 3], u64::MAX - 1).stored);
            if round == 1 {
                cache.clear(&mut Freed::new());
            }
        }
        let end = u64::MAX;
        let expected = Counters {
            lookups: end,
            hits: end,
            full_hits: end,
            lookup_tokens: end,
            hit_tokens: end,
            stored: end,
            replaced: end,
            rejected: end,
            evicted: end,
            removed: end,
        };
        let (seen, rounds) = (cache.stats().counters, last.saturating_add(3));
        assert_eq!(
            seen,
            Counters {
                lookups: rounds,
                hits: rounds,
                full_hits: rounds,
                rejected: rounds,
                ..expected
            }
        );
        cache.check().unwrap();
    }
}

/// Sums of sizes that no machine has.
#[test]
fn m07_bytes_do_not_overflow() {
    let _few = few_caches();
    let cache = SnapshotCache::new(limits()).unwrap();
    let namespace = Namespace::default();
    let huge = NewSnapshot {
        namespace: &namespace,
        tokens: &[1],
        bytes: u64::MAX,
        next_token: None,
        is_trimmable: false,
    };
    let pins: Vec<PinId> = (0..3)
        .map(|at| {
            assert!(cache.insert(huge, || at, &mut Freed::new()).unwrap().stored);
            pin(&cache, &[1]).unwrap()
        })
        .collect();
    let stats = cache.stats();
    assert_eq!((stats.entry_bytes, stats.detached_bytes), (u64::MAX, u64::MAX));
    pins.iter().for_each(|pin| cache.release(*pin, &mut Freed::new()).unwrap());
    assert_eq!((cache.stats().entry_bytes, cache.stats().detached), (u64::MAX, 0));
    cache.check().unwrap();
}

/// Caches until one is refused.
fn all_caches() -> Vec<*mut rkv_snapshot_cache> {
    let config = rkv_snapshot_cache_config { entry_limit: 4, byte_limit: u64::MAX, ..sized() };
    let mut caches = Vec::new();
    let status = loop {
        let mut cache = ptr::null_mut();
        // SAFETY: all pointers lead to live values.
        match unsafe { rkv_snapshot_cache_create(&config, &mut cache) } {
            rkv_status::Ok => caches.push(cache),
            refused => break refused,
        }
    };
    assert_eq!(status, rkv_status::InvalidState);
    assert!(message().contains("65535"), "{}", message());
    caches
}

/// As many caches as the process may have; then as many again, where no id of an old one is good.
#[test]
fn m07_caches_are_used_up() {
    let _all = CACHES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut stale = Vec::new();
    for round in 0..2 {
        let caches = all_caches();
        assert_eq!(caches.len(), 65535);
        for &cache in caches.iter().step_by(100) {
            let mut world = World { cache, log: Box::default(), pins: Vec::new() };
            let (tokens, mut found) = (list(&[1, 2]), sized::<rkv_snapshot_cache_match_result>());
            let args = rkv_snapshot_cache_insert_args { tokens: &tokens, size_bytes: 1, ..sized() };
            // SAFETY: all pointers lead to live values.
            unsafe {
                ok(rkv_snapshot_cache_insert(cache, &args, ptr::null_mut()));
                for _ in 0..3 {
                    ok(rkv_snapshot_cache_match(cache, ptr::null(), &tokens, 0, &mut found));
                    for &old in stale.iter().step_by(if round == 0 { 1000 } else { 7 }) {
                        let status = rkv_snapshot_cache_release(cache, old);
                        assert_eq!(status, rkv_status::StalePin);
                    }
                    ok(rkv_snapshot_cache_release(cache, found.pin));
                    stale.push(found.pin);
                }
            }
            world.cache = ptr::null_mut();
        }
        // SAFETY: nobody uses them any more.
        caches.into_iter().for_each(|cache| unsafe { rkv_snapshot_cache_destroy(cache) });
    }
    let all = stale.len();
    stale.sort_unstable();
    stale.dedup();
    assert_eq!(stale.len(), all, "no id comes twice");
}

/// A cache with something attached counts twice, and where that would be one too many nothing is
/// attached.
#[test]
fn m07_what_is_attached_counts_as_another_cache() {
    let _all = CACHES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = Folder::new();
    let directory = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
    let mut config = sized::<rkv_snapshot_tier_config>();
    let mut caches = all_caches();
    let cache = caches.pop().unwrap();
    // SAFETY: all pointers lead to live values, and nobody uses a cache that is destroyed.
    unsafe {
        ok(rkv_snapshot_tier_config_init(&mut config, size_of_val(&config)));
        (config.directory, config.byte_limit) = (directory.as_ptr(), 1 << 20);
        assert_eq!(rkv_snapshot_cache_attach(cache, &config), rkv_status::InvalidState);
        assert!(message().contains("tickets"), "{}", message());
        assert_eq!(rkv_snapshot_cache_detach(cache, 0), rkv_status::InvalidState);
        for _ in 0..2 {
            rkv_snapshot_cache_destroy(caches.pop().unwrap());
        }
        ok(rkv_snapshot_cache_attach(cache, &config));
        let more = all_caches();
        assert_eq!(more.len(), 1);
        ok(rkv_snapshot_cache_detach(cache, 60_000));
        let last = all_caches();
        assert_eq!(last.len(), 1);
        let all = caches.into_iter().chain(more).chain(last).chain([cache]);
        all.for_each(|cache| rkv_snapshot_cache_destroy(cache));
    }
}

/// Every function with outputs that are NULL, misaligned or too small: nothing changed.
#[test]
fn m09_bad_outputs_change_nothing() {
    let _few = few_caches();
    let mut world = World::new(2, 100);
    for at in 1..3 {
        ok(world.insert(Insert { ns: 0, ids: &[1, 2, at], data: at as usize, bytes: 1 }));
    }
    ok(world.pin(0, &[1, 2, 2]).0);
    let before = world.seen();
    let (cache, tokens) = (world.cache, list(&[1, 2, 1]));
    let args = rkv_snapshot_cache_insert_args { tokens: &tokens, size_bytes: 1, ..sized() };
    let mut memory = [0u64; 64];
    let odd = memory.as_mut_ptr().cast::<u8>().wrapping_add(1);
    let mut small = sized::<rkv_snapshot_cache_match_result>();
    small.struct_size = 8;
    let mut small_result = sized::<rkv_snapshot_cache_insert_result>();
    small_result.struct_size = 8;
    let refused = |status: rkv_status| assert_eq!(status, rkv_status::InvalidArgument);
    // SAFETY: pointers are NULL, misaligned, or lead to live values of the stated size.
    unsafe {
        for bad in [ptr::null_mut(), odd] {
            refused(rkv_snapshot_cache_create(ptr::null(), bad.cast()));
            refused(rkv_snapshot_cache_config_init(bad.cast(), 24));
            refused(rkv_snapshot_cache_match(cache, ptr::null(), &tokens, 0, bad.cast()));
            refused(rkv_snapshot_cache_probe(cache, ptr::null(), &tokens, bad.cast()));
            refused(rkv_snapshot_cache_read_stats(cache, bad.cast()));
        }
        refused(rkv_snapshot_cache_insert(cache, &args, odd.cast()));
        refused(rkv_snapshot_cache_insert(cache, &args, &mut small_result));
        refused(rkv_snapshot_cache_match(cache, ptr::null(), &tokens, 0, &mut small));
        // Inputs that are no good come before anything, too.
        let bad_tokens = ptr::null();
        let (mut removed, mut count) = (true, 77);
        refused(rkv_snapshot_cache_remove(cache, ptr::null(), bad_tokens, &mut removed));
        refused(rkv_snapshot_cache_probe(cache, ptr::null(), bad_tokens, &mut count));
        assert_eq!((removed, count), (true, 77), "outputs are as they were");
    }
    assert_eq!(memory, [0; 64]);
    assert_eq!(world.seen(), before);
    world.check();
}

/// Statistics take no longer among many snapshots than among few.
#[test]
fn m10_statistics_cost_the_same_at_any_size() {
    let _few = few_caches();
    let filled = |count: u32| {
        let world = World::new(1 << 20, u64::MAX);
        for at in 0..count {
            let tokens = list(&[1, at, 3]);
            let args = rkv_snapshot_cache_insert_args { tokens: &tokens, size_bytes: 1, ..sized() };
            // SAFETY: all pointers lead to live values.
            ok(unsafe { rkv_snapshot_cache_insert(world.cache, &args, ptr::null_mut()) });
        }
        world
    };
    let time = |world: &World| {
        let mut best = Duration::MAX;
        for _ in 0..50 {
            let start = Instant::now();
            (0..100).for_each(|_| assert_eq!(world.stats().struct_size, 160));
            best = best.min(start.elapsed());
        }
        best
    };
    let (small, large) = (time(&filled(10)), time(&filled(20_000)));
    assert!(large < small * 5, "{small:?} with 10 entries, {large:?} with 20,000");
}
