//! Fetching what lookups are about to read.
//!
//! In a large tree a lookup waits for memory most of the time: for a slot of the table, the node
//! that it leads to, and the node's keys. A slot tells how long the node's segment is, so where the
//! next slot is follows from it and the lookup's own keys: the way down needs slots alone, and
//! nodes and keys come meanwhile, all at once. Lookups of a batch go down side by side (`Ways`).
//! The lookups themselves then find everything in the processor's cache, and which nodes to look
//! at.
//!
//! Nothing is decided here, so it takes a short way: a child is the first of its hash, and all of
//! its segment matches.
use super::super::{First, Path, Way, Ways};
use crate::tree::Hint;

/// Slots of the table below which a tree is in the processor's cache anyway.
const LARGE: usize = 65536;

/// The tree, as its owner sees it or as readers without the lock do.
pub(super) trait Paths {
    /// Slots of the table of children.
    fn slots(&self) -> usize;

    /// The hash under which the child of a node is found that begins with a page of keys.
    fn hash(&self, node: u32, first_page: &[u32]) -> u32;

    /// Has the slot of a hash fetched.
    fn fetch_slot(&self, hash: u32);

    /// The first node under a hash.
    fn in_slot(&self, hash: u32) -> Option<Hint>;

    /// Has a node fetched.
    fn fetch_node(&self, node: u32);

    /// Has fetched what else a lookup that ends at a node touches.
    fn fetch_neighbours(&self, _node: u32) {}

    /// Keys of a node's segment; none of a root.
    fn key_count(&self, node: u32) -> usize;

    /// Has the keys of a node's segment fetched, and the pages if the lookup reads them, without a
    /// look at where they are.
    fn fetch_keys(&self, node: u32);
}

impl Way<'_> {
    /// Tells where the slot of the next node is; false at the end of the way.
    #[inline(always)]
    fn look(&mut self, paths: &impl Paths, page_size: usize) -> bool {
        let Some(first_page) = self.next_page(page_size) else { return false };
        self.hash = paths.hash(self.node, first_page);
        true
    }

    /// Goes to the next node, whose slot has come, and has it fetched; false at the end of the way.
    #[inline(always)]
    fn go(&mut self, paths: &impl Paths, page_size: usize) -> bool {
        let Some(Hint { node, length }) = paths.in_slot(self.hash) else { return false };
        paths.fetch_node(node);
        let keys = length.map_or_else(|| paths.key_count(node), |pages| pages.get() * page_size);
        self.go_to(node, keys);
        true
    }
}

/// Whether the tree leaves the processor's cache.
pub(super) fn is_large(paths: &impl Paths) -> bool {
    // Builds for tests fetch always, models never: they have enough to go through.
    !cfg!(loom) && (paths.slots() >= LARGE || cfg!(debug_assertions))
}

/// Lets lookups go on: each to the next node, while the keys of the one before it come.
pub(super) fn go_on(paths: &impl Paths, page_size: usize, ways: &mut Ways<'_>) {
    let Ways { ring, starting, looking, coming, first, .. } = ways;
    for number in coming.each() {
        let node = ring[number].node;
        paths.fetch_keys(node);
        if !looking.has(number) {
            paths.fetch_neighbours(node);
        }
    }
    *coming = *looking;
    for number in looking.each() {
        let way = &mut ring[number];
        let (root, keys) = (way.node, way.rest);
        if !way.go(paths, page_size) {
            paths.fetch_neighbours(way.node);
            looking.remove(number);
            coming.remove(number);
        } else if way.path.len() == 1 {
            let (page, count) = (&keys[..page_size], keys.len() - way.rest.len());
            *first = First { root, page, node: way.node, keys: count };
        }
    }
    looking.take(starting);
    for number in looking.each() {
        if !ring[number].look(paths, page_size) {
            looking.remove(number);
        }
    }
    looking.each().for_each(|number| paths.fetch_slot(ring[number].hash));
}

/// Has all fetched that a single lookup goes through, from a node down. Returns the way.
#[inline(never)]
pub(super) fn fetch_way(paths: &impl Paths, page_size: usize, from: u32, keys: &[u32]) -> Path {
    let mut way = Way::new(from, keys);
    while way.look(paths, page_size) {
        paths.fetch_slot(way.hash);
        if !way.go(paths, page_size) {
            break;
        }
    }
    let nodes = way.path.nodes();
    nodes.last().into_iter().for_each(|&node| paths.fetch_neighbours(node));
    nodes.iter().for_each(|&node| paths.fetch_keys(node));
    way.path
}
