//! Counters of the indexes near their limits. M07
use radixkv::error::Error;
use radixkv::ids::{LockId, NodeId};
use radixkv::index::{IndexKind, Limits, Namespace, Node, NodeIds, PrefixIndex, RadixIndex};
use radixkv::store::{CacheConfig, PrefixCache};
use radixkv::token::{Images, Keys};
use std::collections::BTreeSet;

const KINDS: [IndexKind; 2] = [IndexKind::Radix, IndexKind::BlockHash];

fn ids(generations: u32) -> NodeIds {
    NodeIds { limits: Limits { generations, ..Limits::default() }, ..NodeIds::from(7) }
}

fn keys<'a>(keys: &'a [u32], images: &'a Images) -> Keys<'a> {
    Keys { keys, images }
}

/// A conversation of which the last answer is dropped and made again, which gives its leaf two new
/// ids each time.
fn hot_leaf(kind: IndexKind, generations: u32, rounds: u32) {
    let images = Images::default();
    let mut index = kind.open(1, ids(generations)).unwrap();
    let root = index.make_root(&Namespace::default()).unwrap();
    let prompt: Vec<u32> = (1..=10).collect();
    let mut node = index.insert(root, keys(&prompt, &images), &prompt).unwrap().node;
    index.lock(node);
    let (mut seen, mut page) = (BTreeSet::new(), 11);
    let mut last: Option<NodeId> = None;
    for round in 0..rounds {
        let more = [round % 3, round % 5];
        node =
            index.insert_moving_lock(node, keys(&more, &images), &[page, page + 1]).unwrap().node;
        let id = index.id(node);
        assert!(seen.insert(id), "round {round}: an id came back");
        assert_eq!(index.resolve(id), Ok(node));
        if let Some(last) = last {
            assert_eq!(index.resolve(last), Err(Error::StaleNode(last.0)));
        }
        last = Some(id);
        index.unlock(node);
        for gone in [page + 1, page] {
            let count = index.evict(1, &mut |pages, _| assert_eq!(pages, [gone]));
            assert_eq!(count, 1);
        }
        page += 2;
        let walk = index.walk(root, keys(&prompt, &images));
        assert_eq!(walk.pages, 10);
        node = walk.node;
        index.touch(node);
        index.lock(node);
        if round % 64 == 0 {
            index.check().unwrap();
        }
    }
    assert!(index.last_generation() <= 1 + generations);
    index.unlock(node);
    let mut order: Vec<u32> = Vec::new();
    index.evict(100, &mut |pages, _| order.extend(pages.iter().rev()));
    assert_eq!(order, prompt.iter().rev().copied().collect::<Vec<_>>());
}

#[test]
fn m07_a_leaf_outlives_its_generations() {
    for kind in KINDS {
        for generations in [24, 25, 40, 100] {
            hot_leaf(kind, generations, 3000);
        }
    }
}

#[test]
fn m07_ids_begin_after_those_of_an_index_that_is_gone() {
    let images = Images::default();
    for kind in KINDS {
        let open = |first_generation| {
            let ids = NodeIds { first_generation, ..NodeIds::from(7) };
            let mut index = kind.open(1, ids).unwrap();
            let root = index.make_root(&Namespace::default()).unwrap();
            let node = index.insert(root, keys(&[1, 2], &images), &[1, 2]).unwrap().node;
            (index, node)
        };
        let (first, node) = open(1);
        let old = first.id(node);
        let (second, node) = open(first.last_generation() + 1);
        assert_eq!(second.resolve(old), Err(Error::StaleNode(old.0)));
        assert!(second.id(node) > old && second.resolve(second.id(node)).is_ok());
    }
}

#[test]
fn m07_locks_of_callers_are_counted_up_to_a_limit() {
    for index in KINDS {
        let limits = Limits { locks: 3, ..Limits::default() };
        let mut cache =
            PrefixCache::new(1, 7, CacheConfig { index, limits, ..CacheConfig::default() });
        let cache = cache.as_mut().unwrap();
        let root = cache.index.make_root(&Namespace::default()).unwrap();
        let images = Images::default();
        let node = cache.index.insert(root, keys(&[1, 2], &images), &[1, 2]).unwrap().node;
        let id = cache.index.id(node);
        let locks: Vec<LockId> = (0..3).map(|_| cache.lock(id).unwrap()).collect();
        assert!(matches!(cache.lock(id), Err(Error::State(_))));
        assert_eq!((cache.lock_count(), cache.index.own_locks(node)), (3, 3));
        // Those of sequences are not refused.
        cache.index.lock(node);
        cache.check_locks([node].into_iter()).unwrap();
        assert!(cache.check_locks([].into_iter()).is_err(), "a lock that nobody has is seen");
        cache.index.unlock(node);
        cache.unlock(locks[1]).unwrap();
        assert_eq!(cache.unlock(locks[1]), Err(Error::StaleLock(locks[1].0)));
        let again = cache.lock(id).unwrap();
        assert!(!locks.contains(&again), "no id comes twice");
        for lock in [locks[0], locks[2], again] {
            cache.unlock(lock).unwrap();
        }
        cache.check_locks([].into_iter()).unwrap();
        cache.index.check().unwrap();
    }
}

/// A node that would need more generations than there are is refused, and so is a longer one.
#[test]
fn m07_a_node_has_no_more_pages_than_it_could_lose() {
    let images = Images::default();
    let mut index = RadixIndex::new(1, ids(20)).unwrap();
    let root = index.make_root(&Namespace::default()).unwrap();
    let pages: Vec<u32> = (1..=11).collect();
    let refused = index.insert(root, keys(&pages, &images), &pages);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))));
    let node = index.insert(root, keys(&pages[..10], &images), &pages[..10]).unwrap().node;
    index.lock(node);
    let longer: Node = index.insert_moving_lock(node, keys(&[99], &images), &[99]).unwrap().node;
    assert_ne!(longer, node, "what is too long for one node is in two");
    index.unlock(longer);
    index.check().unwrap();
    let mut evicted: Vec<u32> = Vec::new();
    while index.evict(1, &mut |pages, _| evicted.extend(pages)) > 0 {
        index.check().unwrap();
    }
    let expected: Vec<u32> = [99].into_iter().chain(pages[..10].iter().rev().copied()).collect();
    assert_eq!(evicted, expected);
}
