//! Whole probes of a small tree that is being changed: what a probe returns was true at some moment
//! of the call.
use super::{Extent, model};
use crate::grace::Reader;
use crate::index::{Limits, Namespace, NodeIds, Portion, PrefixIndex, RadixIndex, Reach};
use crate::memory::Arc;
use crate::token::{Images, Keys};
use loom::thread;

struct Index {
    index: RadixIndex,
    images: Images,
    pages: u32,
}

impl Index {
    /// Nodes have so many pages at most.
    fn new(segment_pages: u32) -> Self {
        let limits = Limits { segment_words: 2 * segment_pages, ..Limits::default() };
        let index = RadixIndex::new(1, NodeIds { limits, ..NodeIds::from(1) }).unwrap();
        Self { index, images: Images::default(), pages: 0 }
    }

    fn insert(&mut self, keys: &[u32]) {
        let pages: Vec<u32> = (self.pages..).take(keys.len()).collect();
        self.pages += keys.len() as u32;
        let root = self.index.make_root(&Namespace::default()).unwrap();
        self.index.insert(root, Keys { keys, images: &self.images }, &pages).unwrap();
    }

    /// Makes a node longer by a page, as the sequence does that has its lock.
    fn extend(&mut self, keys: &[u32], more: u32) {
        let root = self.index.make_root(&Namespace::default()).unwrap();
        let node = self.index.walk(root, Keys { keys, images: &self.images }).node;
        self.index.lock(node);
        let (keys, images) = (&[more], &self.images);
        self.index.insert_moving_lock(node, Keys { keys, images }, &[self.pages]).unwrap();
    }

    fn evict(&mut self, count: usize) {
        assert_eq!(self.index.evict(Portion::of(count), &mut |_, _| {}), count);
    }
}

/// Probes while the index is changed. `lengths` are all that the probe may find.
fn probed(
    start: &'static [&'static [u32]],
    keys: &'static [u32],
    lengths: &'static [usize],
    change: fn(&mut Index),
) {
    probed_in(100, start, keys, lengths, change);
}

/// The same with nodes of so many pages at most.
fn probed_in(
    segment_pages: u32,
    start: &'static [&'static [u32]],
    keys: &'static [u32],
    lengths: &'static [usize],
    change: fn(&mut Index),
) {
    model(Extent::InOrder(2), move || {
        let mut index = Index::new(segment_pages);
        start.iter().for_each(|keys| index.insert(keys));
        let prober = Arc::new(index.index.prober().unwrap().unwrap()).unwrap();
        let probe = move || {
            let reader = Reader::enter().unwrap();
            let reach = prober.reach(&Namespace::default(), keys, false, &reader);
            let sound = |reach: Reach| lengths.contains(&reach.pages) && reach.partial == 0;
            assert!(reach.is_none_or(sound), "{reach:?}");
            reach.is_some()
        };
        // One that gives up takes the lock.
        let reader = thread::spawn(probe.clone());
        change(&mut index);
        reader.join().unwrap();
        assert!(probe(), "a probe alone finds out");
        index.index.check().unwrap();
    });
}

#[test]
fn b09_a_prefix_is_found_while_its_node_is_split() {
    probed(&[&[1, 2, 3]], &[1, 2, 3, 9], &[3], |index| index.insert(&[1, 2, 4]));
}

#[test]
fn b09_a_prefix_is_found_while_its_nodes_are_merged() {
    probed(&[&[1, 2, 4], &[1, 2, 3]], &[1, 2, 3, 9], &[3], |index| index.evict(1));
}

/// A second child, and a third with which their list and the table take another form.
#[test]
fn b09_a_child_is_found_while_it_gets_siblings() {
    probed(&[&[1], &[5]], &[5, 9], &[1], |index| {
        index.insert(&[3]);
        index.insert(&[4]);
    });
}

#[test]
fn b09_a_child_is_found_while_its_siblings_go() {
    probed(&[&[1], &[3], &[4], &[5]], &[5, 9], &[1], |index| index.evict(3));
}

/// The room of its last page is written again, unless a reader may look there.
#[test]
fn b09_a_prefix_is_found_while_it_grows_in_place() {
    const KEYS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    probed(&[KEYS], KEYS, &[15, 16], |index| {
        index.evict(1);
        index.extend(&KEYS[..15], 77);
    });
}

/// What goes and comes again with other pages, in a node that had another place.
#[test]
fn b09_a_node_that_is_used_again_is_not_taken_for_the_old_one() {
    probed(&[&[1], &[2, 7]], &[2, 7, 9], &[2, 0, 1], |index| {
        index.evict(3);
        index.insert(&[7, 2]);
        index.insert(&[2, 8]);
    });
}

/// Pages that are several nodes in a row come all at once, also below a node that is split for
/// them.
#[test]
fn b09_a_row_of_nodes_is_found_whole_or_not_at_all() {
    probed_in(1, &[&[1]], &[1, 2, 3, 9], &[1, 3], |index| index.insert(&[1, 2, 3]));
    probed_in(2, &[&[1, 5]], &[1, 2, 3, 4], &[1, 4], |index| index.insert(&[1, 2, 3, 4]));
}

#[test]
fn b09_a_row_of_nodes_goes_from_its_end() {
    probed_in(1, &[&[1, 2, 3]], &[1, 2, 3, 9], &[3, 2, 1], |index| index.evict(2));
}
