//! Counters of the indexes near their limits. M07
use radixkv::error::Error;
use radixkv::ids::NodeId;
use radixkv::index::{
    Holder, IndexKind, Limits, Namespace, Node, NodeIds, PrefixIndex, RadixIndex,
};
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
    index.lock(node, Holder::Sequence);
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
        index.unlock(node, Holder::Sequence);
        for gone in [page + 1, page] {
            let count = index.evict(1, &mut |pages, _| assert_eq!(pages, [gone]));
            assert_eq!(count, 1);
        }
        page += 2;
        let walk = index.walk(root, keys(&prompt, &images));
        assert_eq!(walk.pages, 10);
        node = walk.node;
        index.touch(node);
        index.lock(node, Holder::Sequence);
        if round % 64 == 0 {
            index.check().unwrap();
        }
    }
    assert!(index.last_generation() <= 1 + generations);
    index.unlock(node, Holder::Sequence);
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
    let images = Images::default();
    for kind in KINDS {
        let limits = Limits { caller_locks: 3, ..Limits::default() };
        let mut index = kind.open(1, NodeIds { limits, ..NodeIds::from(7) }).unwrap();
        let root = index.make_root(&Namespace::default()).unwrap();
        let node = index.insert(root, keys(&[1, 2], &images), &[1, 2]).unwrap().node;
        for _ in 0..3 {
            index.check_caller_locks().unwrap();
            index.lock(node, Holder::Caller);
        }
        assert!(matches!(index.check_caller_locks(), Err(Error::State(_))));
        // Those of sequences are not refused.
        index.lock(node, Holder::Sequence);
        assert!(index.unlock(node, Holder::Caller));
        index.check_caller_locks().unwrap();
        index.check().unwrap();
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
    index.lock(node, Holder::Sequence);
    let longer: Node = index.insert_moving_lock(node, keys(&[99], &images), &[99]).unwrap().node;
    assert_ne!(longer, node, "what is too long for one node is in two");
    index.unlock(longer, Holder::Sequence);
    index.check().unwrap();
    let mut evicted: Vec<u32> = Vec::new();
    while index.evict(1, &mut |pages, _| evicted.extend(pages)) > 0 {
        index.check().unwrap();
    }
    let expected: Vec<u32> = [99].into_iter().chain(pages[..10].iter().rev().copied()).collect();
    assert_eq!(evicted, expected);
}
