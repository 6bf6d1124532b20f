//! In which order entries go: a list that is threaded through the nodes, every step O(1).
//!
//! The links lie in the nodes, the list's ends with whoever has the list, and having those means
//! having the right to change it. So whoever walks the tree can have the neighbours of what it
//! meets fetched meanwhile; what it sees of them decides nothing.
use super::NONE;
use super::nodes::Nodes;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A node's neighbours in a list.
#[derive(Debug)]
pub(super) struct Link {
    before: AtomicU32,
    after: AtomicU32,
}

/// Neighbour of a node that is in no list.
const OUT: u32 = NONE - 1;

impl Default for Link {
    fn default() -> Self {
        Self { before: OUT.into(), after: OUT.into() }
    }
}

impl Link {
    /// Whether the node is in a list.
    pub(super) fn is_in(&self) -> bool {
        self.before.load(Relaxed) != OUT
    }
}

/// A list of nodes, from the oldest to the newest.
#[derive(Debug)]
pub(super) struct Order {
    oldest: u32,
    newest: u32,
}

impl Order {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE }
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn newest(&self) -> Option<u32> {
        (self.newest != NONE).then_some(self.newest)
    }

    /// Puts a node that is in no list at the newest end.
    pub(super) fn push<V>(&mut self, nodes: &Nodes<V>, at: u32) {
        let link = &nodes[at].link;
        debug_assert!(!link.is_in());
        link.before.store(self.newest, Relaxed);
        link.after.store(NONE, Relaxed);
        match self.newest {
            NONE => self.oldest = at,
            newest => nodes[newest].link.after.store(at, Relaxed),
        }
        self.newest = at;
    }

    /// Takes a node out.
    pub(super) fn remove<V>(&mut self, nodes: &Nodes<V>, at: u32) {
        let link = &nodes[at].link;
        debug_assert!(link.is_in());
        let (before, after) = (link.before.swap(OUT, Relaxed), link.after.swap(OUT, Relaxed));
        self.join(nodes, before, after);
    }

    fn join<V>(&mut self, nodes: &Nodes<V>, before: u32, after: u32) {
        match before {
            NONE => self.oldest = after,
            before => nodes[before].link.after.store(after, Relaxed),
        }
        match after {
            NONE => self.newest = before,
            after => nodes[after].link.before.store(before, Relaxed),
        }
    }

    /// Mends the list after one of its nodes got another number.
    pub(super) fn renumbered<V>(&mut self, nodes: &Nodes<V>, to: u32) {
        let link = &nodes[to].link;
        let (before, after) = (link.before.load(Relaxed), link.after.load(Relaxed));
        self.join(nodes, before, to);
        self.join(nodes, to, after);
    }

    /// From the oldest to the newest. Ends where the list contradicts itself.
    pub(super) fn iter<'a, V>(&self, nodes: &'a Nodes<V>) -> impl Iterator<Item = u32> + 'a {
        let next = |at: &u32| {
            let after = nodes[*at].link.after.load(Relaxed);
            (after != NONE).then_some(after)
        };
        std::iter::successors(self.oldest(), next).take(nodes.len())
    }

    /// Whether every link is answered by its neighbour.
    pub(super) fn is_sound<V>(&self, nodes: &Nodes<V>) -> bool {
        let mut before = NONE;
        for at in self.iter(nodes) {
            if nodes[at].link.before.load(Relaxed) != before {
                return false;
            }
            before = at;
        }
        self.newest == before
    }
}

/// Has what pinning or releasing an entry changes fetched into the processor's cache. Changes
/// nothing.
#[inline]
pub(super) fn fetch_neighbours<V>(nodes: &Nodes<V>, at: u32) {
    // A race detector that knows locks alone would call these reads a race.
    if cfg!(not(feature = "pthread-lock")) {
        let node = &nodes[at];
        for near in [&node.link.before, &node.link.after] {
            let near = nodes.get(near.load(Relaxed));
            std::hint::black_box(near.map_or(0, |near| near.link.before.load(Relaxed)));
        }
        std::hint::black_box(node.entry.as_ref().map_or(0, |entry| entry.bytes));
    }
}
