//! Counters of the indexes near their limits. M07
use radixkv::error::Error;
use radixkv::ids::{LockId, NodeId};
use radixkv::index::{
    IndexKind, Limits, Namespace, Node, NodeIds, Portion, PrefixIndex, RadixIndex,
};
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
            let count = index.evict(Portion::of(1), &mut |pages, _| assert_eq!(pages, [gone]));
            assert_eq!(count, 1);
        }
        page += 2;
        let walk = index.walk(root, keys(&prompt, &images));
        assert_eq!(walk.pages, 10);
        node = walk.node;
        index.touch(node, None);
        index.lock(node);
        if round % 64 == 0 {
            index.check().unwrap();
        }
    }
    assert!(index.last_generation() <= 1 + generations);
    index.unlock(node);
    let mut order: Vec<u32> = Vec::new();
    index.evict(Portion::of(100), &mut |pages, _| order.extend(pages.iter().rev()));
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
        let locks: Vec<LockId> = (0..3).map(|_| cache.lock(node).unwrap()).collect();
        assert!(matches!(cache.lock(node), Err(Error::State(_))));
        assert_eq!((cache.lock_count(), cache.index.own_locks(node)), (3, 3));
        // Those of sequences are not refused.
        cache.index.lock(node);
        cache.check_locks([node].into_iter()).unwrap();
        assert!(cache.check_locks([].into_iter()).is_err(), "a lock that nobody has is seen");
        cache.index.unlock(node);
        let unlock =
            |cache: &mut PrefixCache, lock| cache.take_lock(lock).map(|_| cache.index.unlock(node));
        unlock(cache, locks[1]).unwrap();
        assert_eq!(unlock(cache, locks[1]), Err(Error::StaleLock(locks[1].0)));
        let again = cache.lock(node).unwrap();
        assert!(!locks.contains(&again), "no id comes twice");
        for lock in [locks[0], locks[2], again] {
            unlock(cache, lock).unwrap();
        }
        cache.check_locks([].into_iter()).unwrap();
        cache.index.check().unwrap();
    }
}

/// Pages that would need more generations than a node has are in several nodes.
#[test]
fn m07_a_node_has_no_more_pages_than_it_could_lose() {
    let images = Images::default();
    let mut index = RadixIndex::new(1, ids(20)).unwrap();
    let root = index.make_root(&Namespace::default()).unwrap();
    let pages: Vec<u32> = (1..=11).collect();
    let node = index.insert(root, keys(&pages, &images), &pages).unwrap().node;
    assert_eq!((index.pages(node), index.stats().nodes), (&pages[10..], 2));
    index.lock(node);
    let longer: Node = index.insert_moving_lock(node, keys(&[99], &images), &[99]).unwrap().node;
    assert_eq!(index.pages(longer), [11, 99]);
    index.unlock(longer);
    index.check().unwrap();
    let mut evicted: Vec<u32> = Vec::new();
    while index.evict(Portion::of(1), &mut |pages, _| evicted.extend(pages)) > 0 {
        index.check().unwrap();
    }
    let expected: Vec<u32> = [99].into_iter().chain(pages.iter().rev().copied()).collect();
    assert_eq!(evicted, expected);
    let mut none = RadixIndex::new(1, ids(1)).unwrap();
    let root = none.make_root(&Namespace::default()).unwrap();
    let refused = none.insert(root, keys(&[1], &images), &[1]);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "an id could not be renewed");
}

fn segments(page_size: usize, segment_pages: u32) -> RadixIndex {
    let segment_words = segment_pages * (page_size as u32 + 1);
    let limits = Limits { segment_words, ..Limits::default() };
    RadixIndex::new(page_size, NodeIds { limits, ..NodeIds::from(7) }).unwrap()
}

/// The pages of the nodes from the root to one.
fn path_pages(index: &RadixIndex, node: Node) -> Vec<usize> {
    let mut counts = Vec::new();
    index.visit_path(node, &mut |_, pages| counts.push(pages.len()));
    counts.into_iter().rev().skip(1).collect()
}

/// A prefix that is longer than a segment may be: who inserts, matches, locks and evicts sees no
/// difference, and no node is ever longer.
#[test]
fn k07_pages_beyond_a_segment_are_nodes_in_a_row() {
    let images = Images::default();
    for (page_size, limit) in [(1, 1), (1, 3), (2, 2), (16, 4)] {
        let mut index = segments(page_size, limit);
        let limit = limit as usize;
        let root = index.make_root(&Namespace::default()).unwrap();
        let tokens: Vec<u32> = (0..20 * page_size as u32).map(|at| at / 3).collect();
        let pages: Vec<u32> = (1..=20).collect();
        let long = index.insert(root, keys(&tokens, &images), &pages).unwrap();
        index.check().unwrap();
        assert_eq!(index.end_page(long.node), 20);
        assert!(path_pages(&index, long.node).iter().all(|&count| count <= limit));
        assert_eq!(index.stats().nodes, 20_usize.div_ceil(limit));
        assert_eq!((index.stats().leaves, index.reclaimable_pages()), (1, 20));
        let again = index.insert(root, keys(&tokens, &images), &pages).unwrap();
        assert_eq!((again.node, again.existing), (long.node, 20));

        // A conversation that leaves it in the middle of a node, and is as long.
        let half = 10 * page_size;
        let mut other = tokens[..half].to_vec();
        other.extend((0..half as u32).map(|at| 1000 + at));
        let new: Vec<u32> = (1..=10).chain(101..=110).collect();
        let branch = index.insert(root, keys(&other, &images), &new).unwrap();
        index.check().unwrap();
        assert_eq!((branch.existing, index.end_page(branch.node)), (10, 20));
        index.lock(branch.node);
        assert_eq!(index.reclaimable_pages(), 10);

        // It goes first in the order of pages, and what is joined again is no longer than before.
        let mut evicted: Vec<u32> = Vec::new();
        assert_eq!(
            index.evict(Portion::of(30), &mut |run, _| evicted.extend(run.iter().rev())),
            10
        );
        assert_eq!(evicted, (11..=20).rev().collect::<Vec<u32>>());
        index.unlock(branch.node);
        index.check().unwrap();
        let walk = index.walk(root, keys(&other, &images));
        assert_eq!((walk.node, walk.pages), (branch.node, 20));
        let counts = path_pages(&index, walk.node);
        assert!(counts.iter().all(|&count| count <= limit), "{counts:?}");
        let joined = counts.windows(2).all(|pair| pair[0] + pair[1] > limit);
        assert!(joined || limit == 1, "two nodes would fit in one: {counts:?}");
        evicted.clear();
        index.evict(Portion::of(30), &mut |run, _| evicted.extend(run.iter().rev()));
        assert_eq!(evicted, new.iter().rev().copied().collect::<Vec<u32>>());
        index.check().unwrap();
        assert_eq!((index.stats().nodes, index.find_root(&Namespace::default())), (0, None));
    }
}

/// A sequence that publishes token by token makes its node longer up to the limit, and then begins
/// another one: its lock covers all of them.
#[test]
fn k07_a_node_is_made_longer_up_to_the_limit() {
    let images = Images::default();
    for limit in [1, 2, 3] {
        let mut index = segments(1, limit);
        let root = index.make_root(&Namespace::default()).unwrap();
        index.lock(root);
        let mut node = root;
        for page in 1..=20 {
            node = index.insert_moving_lock(node, keys(&[page], &images), &[page]).unwrap().node;
            index.check().unwrap();
            assert_eq!(index.end_page(node), page as usize);
            assert_eq!(index.stats().nodes, (page as usize).div_ceil(limit as usize));
        }
        assert_eq!((index.own_locks(node), index.reclaimable_pages()), (1, 0));
        index.unlock(node);
        assert_eq!(index.reclaimable_pages(), 20);
        let mut evicted: Vec<u32> = Vec::new();
        while index.evict(Portion::of(1), &mut |run, _| evicted.extend(run)) > 0 {
            index.check().unwrap();
        }
        assert_eq!(evicted, (1..=20).rev().collect::<Vec<u32>>());
    }
}

/// Pages that were cleared keep their digests: the same one may be there a thousand times.
#[test]
fn h05_one_digest_below_many_cleared_roots_is_found_each_time() {
    let images = Images::default();
    for _ in 0..16 {
        let mut index = IndexKind::BlockHash.open(1, NodeIds::from(7)).unwrap();
        for page in 1..=1000 {
            let root = index.make_detached_root(&Namespace::default()).unwrap();
            let node = index.insert(root, keys(&[5], &images), &[page]).unwrap().node;
            index.lock(node);
            // The 820th opens a larger table, of which 65 changes later half is moved.
            if page == 885 || page == 1000 {
                index.check().unwrap();
            }
        }
    }
}
