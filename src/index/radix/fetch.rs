//! Fetching what lookups are about to read, for many of them side by side.
//!
//! In a large tree a lookup waits for memory most of the time, and each of its steps tells where
//! the next one reads. Steps of different lookups don't wait for each other: so first the slots of
//! all of them are fetched, then the nodes that these lead to, then their keys, and so on down. The
//! lookups themselves then find everything in the processor's cache.
//!
//! Nothing is decided here, so it takes a short way: a child is the first of its hash, and its
//! segment matches when its last key does. Source: Chen, Ailamaki, Gibbons and Mowry, Improving
//! Hash Join Performance through Prefetching, 2004 (group prefetching).
use super::super::{Ask, LOOKAHEAD, Namespace};
use smallvec::SmallVec;
use std::hint::black_box;

/// Slots of the table below which a tree is in the processor's cache anyway.
const LARGE: usize = 65536;

/// Keys in a line of the processor's cache, and the first lines of a segment that are fetched.
const LINE: usize = 16;
const LINES: usize = 8;

/// Where the next node of a way is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Next {
    /// Nowhere.
    None,
    /// It is the only child.
    Child(u32),
    /// The table has it, under this hash.
    Slot(u32),
}

/// The tree, as its owner sees it or as readers without the lock do.
pub(super) trait Paths {
    /// Slots of the table of children.
    fn slots(&self) -> usize;

    /// The root of a namespace.
    fn root(&self, namespace: &Namespace) -> Option<u32>;

    /// Where the child of a node is that begins with a page of keys.
    fn next(&self, node: u32, first_page: &[u32]) -> Next;

    /// Reads the slot of a hash.
    fn fetch_slot(&self, hash: u32);

    /// The first node under a hash.
    fn in_slot(&self, hash: u32) -> Option<u32>;

    /// Reads what leads to a node's keys.
    fn fetch_node(&self, node: u32);

    /// The keys of a node's segment; none of a root, and none when they are changing.
    fn keys(&self, node: u32) -> &[u32];
}

struct Way<'a> {
    node: u32,
    next: Next,
    rest: &'a [u32],
}

impl Way<'_> {
    /// The node that it came to.
    fn child(&self) -> Option<u32> {
        if let Next::Child(child) = self.next { Some(child) } else { None }
    }
}

/// Reads what the lookups go through, side by side.
pub(super) fn fetch<'a>(
    paths: &impl Paths,
    page_size: usize,
    asks: &mut dyn Iterator<Item = Ask<'a>>,
) {
    // Builds for tests fetch always.
    if paths.slots() < LARGE && !cfg!(debug_assertions) {
        return;
    }
    let mut ways = SmallVec::<[Way<'_>; LOOKAHEAD]>::new();
    for (namespace, rest) in asks.take(LOOKAHEAD) {
        let root = paths.root(&namespace);
        ways.extend(root.map(|node| Way { node, next: Next::None, rest }));
    }
    while !ways.is_empty() {
        for way in &mut ways {
            let first_page = way.rest.get(..page_size);
            way.next = first_page.map_or(Next::None, |page| paths.next(way.node, page));
            if let Next::Slot(hash) = way.next {
                paths.fetch_slot(hash);
            }
        }
        for way in &mut ways {
            if let Next::Slot(hash) = way.next {
                way.next = paths.in_slot(hash).map_or(Next::None, Next::Child);
            }
        }
        ways.iter().filter_map(Way::child).for_each(|child| paths.fetch_node(child));
        for child in ways.iter().filter_map(Way::child) {
            let keys = paths.keys(child);
            // The processor goes on by itself where more lines than these follow.
            keys.iter().step_by(LINE).take(LINES).for_each(|key| _ = black_box(*key));
            black_box(keys.last());
        }
        ways.retain(|way| {
            let Some(child) = way.child() else { return false };
            let keys = paths.keys(child);
            let goes_on = !keys.is_empty() && way.rest.get(keys.len() - 1) == keys.last();
            if goes_on {
                (way.node, way.rest) = (child, &way.rest[keys.len()..]);
            }
            goes_on
        });
    }
}
