//! Token lists that are longer than a node of the snapshot cache may be, and calls that let go of
//! many nodes or entries: they do so in steps, between which others come in.
#[allow(dead_code)]
mod failing;

use failing::{Failure, failing};
use fastrand::Rng;
use radixkv::error::Error;
use radixkv::ids::PinId;
use radixkv::snapshot::{
    Freed, Namespace, NewSnapshot, SnapshotBounds, SnapshotCache, SnapshotLimits,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

type Cache = SnapshotCache<u32>;

fn cache(segment: usize, entries: usize) -> Cache {
    let bounds = SnapshotBounds { segment, ..SnapshotBounds::default() };
    SnapshotCache::with_bounds(SnapshotLimits { entries, bytes: u64::MAX }, bounds).unwrap()
}

fn insert(cache: &Cache, tokens: &[u32], value: u32) -> Result<usize, Error> {
    let namespace = Namespace::default();
    let new = NewSnapshot {
        namespace: &namespace,
        tokens,
        bytes: 1,
        next_token: None,
        is_trimmable: false,
    };
    Ok(cache.insert(new, || value, &mut Freed::new())?.evicted)
}

fn remove(cache: &Cache, tokens: &[u32]) -> bool {
    cache.remove(&Namespace::default(), tokens, &mut Freed::new())
}

/// The value of the longest stored prefix, how long that is, and a pin on it.
fn find(cache: &Cache, tokens: &[u32]) -> Option<(u32, usize, PinId)> {
    let found = cache.find(&Namespace::default(), tokens, |value| *value).unwrap()?;
    Some((found.value, found.tokens, found.pin))
}

fn release(cache: &Cache, pin: PinId) {
    cache.release(pin, &mut Freed::new()).unwrap();
}

/// A list that leaves others anywhere, and may end where they do.
fn list(rng: &mut Rng, longest: usize) -> Vec<u32> {
    let parts = rng.u32(..8);
    (0..rng.usize(1..=longest) as u32).map(|at| at % 7 + ((at / 16) & parts) * 100).collect()
}

/// Nodes of any few tokens, so that every list is several; now and then without memory. What is
/// found is the same as in a map, and when all is gone nothing is left.
#[test]
fn s08_lists_longer_than_a_node_come_and_go() {
    let mut failed = 0;
    for segment in [1, 2, 3, 5, 16] {
        let mut rng = Rng::with_seed(segment as u64);
        let (cache, mut naive) = (cache(segment, usize::MAX), BTreeMap::new());
        let empty = cache.stats().nodes;
        for step in 0..4000 {
            let tokens = list(&mut rng, 120);
            match rng.u8(..8) {
                0..3 => {
                    insert(&cache, &tokens, step).unwrap();
                    naive.insert(tokens, step);
                }
                3..6 => {
                    let some = rng.usize(..naive.len().max(1));
                    let known = naive.keys().nth(some).cloned().unwrap_or(tokens);
                    // Two nodes that are not joined for want of memory are joined later.
                    let limit = rng.u64(..3);
                    let failure = if rng.bool() { limit } else { u64::MAX };
                    let (removed, refused) =
                        failing(Failure::From(failure), || remove(&cache, &known));
                    failed += refused;
                    assert_eq!(removed, naive.remove(&known).is_some());
                }
                _ => {
                    let best =
                        (1..=tokens.len()).rev().find(|&end| naive.contains_key(&tokens[..end]));
                    let found = find(&cache, &tokens);
                    assert_eq!(found.map(|found| found.1), best);
                    if let Some((value, end, pin)) = found {
                        assert_eq!(value, naive[&tokens[..end]]);
                        release(&cache, pin);
                    }
                }
            }
            if step % 8 == 0 {
                cache.check().unwrap();
            }
        }
        for known in naive.keys() {
            assert!(remove(&cache, known));
            cache.check().unwrap();
        }
        assert_eq!((cache.stats().nodes, cache.stats().namespaces), (empty, 0));
    }
    assert!(failed > 0, "no join was refused");
}

/// A list of many nodes, any of whose requests for memory fails: it is stored whole, or nothing
/// changed. (What only gives memory back may fail and does no harm.)
#[test]
fn m05_a_row_of_nodes_is_stored_or_it_is_not() {
    for segment in [1, 3, 8] {
        let mut refused = 0;
        let long: Vec<u32> = (0..60).collect();
        let mut other = long.clone();
        other[20..].iter_mut().for_each(|token| *token += 1000);
        for at in 0.. {
            let cache = cache(segment, usize::MAX);
            insert(&cache, &long, 1).unwrap();
            let before = cache.stats();
            let (stored, failed) = failing(Failure::Once(at), || insert(&cache, &other, 2));
            cache.check().unwrap();
            if stored.is_ok() {
                assert_eq!(find(&cache, &other).unwrap().1, 60);
                if failed == 0 {
                    break;
                }
                continue;
            }
            refused += 1;
            assert!(matches!(stored, Err(Error::OutOfMemory(_))), "{stored:?}");
            let after = cache.stats();
            assert_eq!((after.entries, after.nodes), (before.entries, before.nodes));
            assert_eq!(find(&cache, &other), None);
            insert(&cache, &other, 3).unwrap();
            assert_eq!(find(&cache, &other).unwrap().0, 3);
        }
        assert!(refused > 40 / segment, "{refused} were refused");
    }
}

/// Threads that store and remove long lists with common beginnings, each list by one thread alone,
/// while another checks every invariant: it sees what is left of a list between two steps.
#[test]
fn s09_others_come_in_while_long_lists_go() {
    let (cache, stop) = (cache(1, usize::MAX), AtomicBool::new(false));
    let (rows, checks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3_u32)
            .map(|worker| {
                let (cache, rows) = (&cache, &rows);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(worker.into());
                    for _ in 0..300 {
                        let mut tokens: Vec<u32> = (0..rng.u32(100..400)).collect();
                        let parts = rng.usize(1..tokens.len());
                        tokens[parts..].iter_mut().for_each(|token| *token += 1000 * (worker + 1));
                        tokens.push(10_000 + worker);
                        insert(cache, &tokens, worker).unwrap();
                        let found = find(cache, &tokens).unwrap();
                        assert_eq!((found.0, found.1), (worker, tokens.len()));
                        release(cache, found.2);
                        assert!(remove(cache, &tokens));
                        rows.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                cache.check().unwrap();
                checks.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert!(checks.into_inner() > 0 && rows.into_inner() == 900);
    cache.check().unwrap();
    assert_eq!((cache.stats().nodes, cache.stats().namespaces), (0, 0));
}

/// One insert for which ten thousand entries go: what is left is within the limits, and others
/// look up and check meanwhile.
#[test]
fn s03_others_come_in_while_many_entries_go() {
    const ENTRIES: u32 = 10_000;
    let limits = SnapshotLimits { entries: usize::MAX, bytes: u64::from(ENTRIES) };
    let cache = SnapshotCache::<u32>::new(limits).unwrap();
    for at in 0..ENTRIES {
        insert(&cache, &[at, 1, 2], at).unwrap();
    }
    let kept = find(&cache, &[7, 1, 2]).unwrap().2;
    let stop = AtomicBool::new(false);
    let evicted = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                cache.check().unwrap();
                let found = find(&cache, &[7, 1, 2, 3]).unwrap();
                assert_eq!((found.0, found.1), (7, 3), "what is pinned stays");
                release(&cache, found.2);
            }
        });
        let namespace = Namespace::default();
        let bytes = u64::from(ENTRIES);
        let new = NewSnapshot {
            namespace: &namespace,
            tokens: &[1 << 20],
            bytes,
            next_token: None,
            is_trimmable: false,
        };
        let inserted = cache.insert(new, || 5, &mut Freed::new()).unwrap();
        stop.store(true, Ordering::Relaxed);
        inserted.evicted
    });
    assert_eq!(evicted, ENTRIES as usize - 1, "all but the one that is pinned");
    assert_eq!(cache.stats().counters.evicted, u64::from(ENTRIES) - 1);
    assert_eq!(find(&cache, &[1 << 20]).map(|found| found.0), Some(5));
    cache.check().unwrap();
    release(&cache, kept);
    cache.check().unwrap();
}

/// A clear beside thousands of pins: readers keep what they have, and nothing else is left.
#[test]
fn s02_readers_of_many_entries_keep_them_through_a_clear() {
    let cache = cache(4, usize::MAX);
    let mut pins = Vec::new();
    for at in 0..5000_u32 {
        let tokens = [at / 100, at, 1, 2, 3, 4, 5, 6];
        insert(&cache, &tokens, at).unwrap();
        if at % 3 > 0 {
            let pin = find(&cache, &tokens).unwrap().2;
            pins.push(pin);
        }
    }
    // Places of pins that are gone lie between those of others.
    for pin in pins.split_off(2000) {
        release(&cache, pin);
    }
    cache.clear(&mut Freed::new());
    cache.check().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.detached, stats.nodes), (0, 2000, 0));
    assert_eq!(stats.counters.removed, 5000);
    pins.into_iter().for_each(|pin| release(&cache, pin));
    assert_eq!(cache.stats().detached, 0);
    cache.check().unwrap();
}

/// S08: a long list is few nodes, if more than one.
#[test]
fn s08_a_long_list_is_a_node_for_each_8192_tokens_at_most() {
    let cache = SnapshotCache::<()>::new(SnapshotLimits::default()).unwrap();
    let (namespace, tokens) = (Namespace::default(), (0..100_000).collect::<Vec<u32>>());
    let (mut freed, mut entries) = (Freed::new(), 0);
    for length in [100_000, 16_384, 16_385, 50_000, 99_999] {
        let (namespace, tokens) = (&namespace, &tokens[..length]);
        let new =
            NewSnapshot { namespace, tokens, bytes: 1, next_token: None, is_trimmable: false };
        assert!(cache.insert(new, || (), &mut freed).unwrap().stored);
        entries += 1;
        assert!(cache.stats().nodes < 2 * entries + 100_000 / 8192);
    }
    assert!(cache.stats().nodes >= 7);
}
