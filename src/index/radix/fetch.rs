//! Fetching what lookups are about to read, level by level and side by side.
//!
//! In a large tree a lookup waits for memory most of the time: for a slot of the table, the node
//! that it leads to, and the node's keys. A slot tells how long the node's segment is, so where the
//! next slot is follows from it and the lookup's own keys: the way down needs slots alone, and
//! nodes and keys come meanwhile, all at once. Ways of different lookups don't wait for each other
//! either. The lookups themselves then find everything in the processor's cache.
//!
//! Nothing is decided here, so it takes a short way: a child is the first of its hash, and all of
//! its segment matches. Source: Chen, Ailamaki, Gibbons and Mowry, Improving Hash Join Performance
//! through Prefetching, 2004 (group prefetching).
use super::super::{Ask, LOOKAHEAD, Namespace};
use crate::grace::prefetch;
use crate::tree::Hint;
use smallvec::SmallVec;

/// Slots of the table below which a tree is in the processor's cache anyway.
const LARGE: usize = 65536;

/// Keys in a line of the processor's cache, and the first lines of a segment that are fetched.
const LINE: usize = 16;
const LINES: usize = 8;

/// Nodes on one way that are fetched.
const DEPTH: usize = 16;

/// The tree, as its owner sees it or as readers without the lock do.
pub(super) trait Paths {
    /// Slots of the table of children.
    fn slots(&self) -> usize;

    /// The root of a namespace.
    fn root(&self, namespace: &Namespace) -> Option<u32>;

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

    /// The keys of a node's segment; none of a root, and none when they are changing.
    fn keys(&self, node: u32) -> &[u32];

    /// The last page of a segment, if the lookup reads it.
    fn last_page(&self, _node: u32) -> Option<&u32> {
        None
    }
}

/// A lookup on its way down.
struct Way<'a> {
    node: u32,
    rest: &'a [u32],
    hash: u32,
    came_to: SmallVec<[u32; DEPTH]>,
}

impl<'a> Way<'a> {
    fn new(node: u32, rest: &'a [u32]) -> Self {
        Self { node, rest, hash: 0, came_to: SmallVec::new() }
    }

    /// Looks where the next node is; false at the end of the way.
    fn look(&mut self, paths: &impl Paths, page_size: usize) -> bool {
        let Some(first_page) = self.rest.get(..page_size).filter(|_| self.came_to.len() < DEPTH)
        else {
            return false;
        };
        self.hash = paths.hash(self.node, first_page);
        paths.fetch_slot(self.hash);
        true
    }

    /// Goes there; false when there is nothing.
    fn go(&mut self, paths: &impl Paths, page_size: usize) -> bool {
        let Some(Hint { node, length }) = paths.in_slot(self.hash) else {
            return false;
        };
        paths.fetch_node(node);
        self.came_to.push(node);
        let keys = length.map_or_else(|| paths.keys(node).len(), |pages| pages.get() * page_size);
        (self.node, self.rest) = (node, self.rest.get(keys..).unwrap_or(&[]));
        keys > 0
    }

    /// Has the keys fetched of all nodes that it came to.
    fn fetch_keys(&self, paths: &impl Paths) {
        self.came_to.last().into_iter().for_each(|&node| paths.fetch_neighbours(node));
        for &node in &self.came_to {
            let keys = paths.keys(node);
            // The processor goes on by itself where more lines than these follow.
            keys.iter().step_by(LINE).take(LINES).for_each(prefetch);
            keys.last().into_iter().chain(paths.last_page(node)).for_each(prefetch);
        }
    }
}

/// Whether the tree leaves the processor's cache.
pub(super) fn is_large(paths: &impl Paths) -> bool {
    // Builds for tests fetch always, models never: they have enough to go through.
    !cfg!(loom) && (paths.slots() >= LARGE || cfg!(debug_assertions))
}

/// Has all fetched that the lookups go through, side by side.
pub(super) fn fetch<'a>(
    paths: &impl Paths,
    page_size: usize,
    asks: &mut dyn Iterator<Item = Ask<'a>>,
) {
    if !is_large(paths) {
        return;
    }
    let mut ways = SmallVec::<[Way<'_>; LOOKAHEAD]>::new();
    for (namespace, rest) in asks.take(LOOKAHEAD) {
        ways.extend(paths.root(&namespace).map(|root| Way::new(root, rest)));
    }
    let mut on_the_way = ways.len();
    while on_the_way > 0 {
        // Those that go on stand in front.
        on_the_way = front(&mut ways[..on_the_way], |way| way.look(paths, page_size));
        on_the_way = front(&mut ways[..on_the_way], |way| way.go(paths, page_size));
    }
    ways.iter().for_each(|way| way.fetch_keys(paths));
}

/// Puts those in front of which `stays` is true; how many they are.
fn front<T>(ways: &mut [T], mut stays: impl FnMut(&mut T) -> bool) -> usize {
    let mut count = 0;
    for at in 0..ways.len() {
        if stays(&mut ways[at]) {
            ways.swap(at, count);
            count += 1;
        }
    }
    count
}

/// The same for one lookup, from a node down.
#[inline]
pub(super) fn fetch_one(paths: &impl Paths, page_size: usize, from: u32, keys: &[u32]) {
    if is_large(paths) {
        fetch_way(paths, page_size, Way::new(from, keys));
    }
}

#[inline(never)]
fn fetch_way(paths: &impl Paths, page_size: usize, mut way: Way<'_>) {
    while way.look(paths, page_size) && way.go(paths, page_size) {}
    way.fetch_keys(paths);
}
