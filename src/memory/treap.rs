//! Ordered trees through links that lie in the nodes themselves: putting a node in, or taking it
//! out, allocates nothing and so can't fail.
//!
//! A treap: ordered like a search tree, and by random ranks like a heap, so that its depth is that
//! of a random tree, O(log n) with a probability that only knowledge of the ranks could spoil.
//! Source: Seidel and Aragon, Randomized Search Trees, 1996.

/// No node.
pub const NONE: u32 = u32::MAX;

/// A side of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What comes before it.
    Before,
    /// What comes after it.
    After,
}

/// Where the links are, and what the order is. The root is kept by whoever calls.
pub trait Nodes {
    /// What hangs on a side of a node.
    fn link(&self, at: u32, side: Side) -> u32;

    /// Hangs another node there.
    fn set_link(&mut self, at: u32, side: Side, to: u32);

    /// Whether a node comes before another one. No two are at the same place.
    fn is_before(&self, left: u32, right: u32) -> bool;

    /// What no two of these functions may contradict each other in: a number of the node that
    /// nobody outside can guess.
    fn rank(&self, at: u32) -> u64;
}

/// A place that leads to a node: the root, or a side of another node.
type Link = Option<(u32, Side)>;

fn set<N: Nodes>(nodes: &mut N, root: &mut u32, link: Link, to: u32) {
    match link {
        None => *root = to,
        Some((at, side)) => nodes.set_link(at, side, to),
    }
}

/// Puts a node, whose links mean nothing yet, into a tree; returns the root.
pub fn insert<N: Nodes>(nodes: &mut N, mut root: u32, new: u32) -> u32 {
    let rank = nodes.rank(new);
    let (mut link, mut at) = (None, root);
    while at != NONE && nodes.rank(at) >= rank {
        let side = if nodes.is_before(at, new) { Side::After } else { Side::Before };
        (link, at) = (Some((at, side)), nodes.link(at, side));
    }
    set(nodes, &mut root, link, new);
    // What was here comes below it, before it or after it.
    let (mut before, mut after) = (Some((new, Side::Before)), Some((new, Side::After)));
    while at != NONE {
        if nodes.is_before(at, new) {
            set(nodes, &mut root, before, at);
            (before, at) = (Some((at, Side::After)), nodes.link(at, Side::After));
        } else {
            set(nodes, &mut root, after, at);
            (after, at) = (Some((at, Side::Before)), nodes.link(at, Side::Before));
        }
    }
    set(nodes, &mut root, before, NONE);
    set(nodes, &mut root, after, NONE);
    root
}

/// Takes a node out of a tree that has it; returns the root.
pub fn remove<N: Nodes>(nodes: &mut N, mut root: u32, old: u32) -> u32 {
    let (mut link, mut at) = (None, root);
    while at != old {
        assert!(at != NONE, "the node is in the tree");
        let side = if nodes.is_before(at, old) { Side::After } else { Side::Before };
        (link, at) = (Some((at, side)), nodes.link(at, side));
    }
    let (mut before, mut after) = (nodes.link(old, Side::Before), nodes.link(old, Side::After));
    while before != NONE && after != NONE {
        if nodes.rank(before) >= nodes.rank(after) {
            set(nodes, &mut root, link, before);
            (link, before) = (Some((before, Side::After)), nodes.link(before, Side::After));
        } else {
            set(nodes, &mut root, link, after);
            (link, after) = (Some((after, Side::Before)), nodes.link(after, Side::Before));
        }
    }
    set(nodes, &mut root, link, if before == NONE { after } else { before });
    root
}

/// The first node.
pub fn first<N: Nodes>(nodes: &N, root: u32) -> Option<u32> {
    next_where(nodes, root, |_| true)
}

/// The last node.
pub fn last<N: Nodes>(nodes: &N, root: u32) -> Option<u32> {
    last_where(nodes, root, |_| true)
}

/// The first node of which `wanted` is true, as it is of all that come after that one.
pub fn next_where<N: Nodes>(nodes: &N, root: u32, wanted: impl FnMut(u32) -> bool) -> Option<u32> {
    outermost(nodes, root, Side::Before, wanted)
}

/// The last node of which `wanted` is true, as it is of all that come before that one.
pub fn last_where<N: Nodes>(nodes: &N, root: u32, wanted: impl FnMut(u32) -> bool) -> Option<u32> {
    outermost(nodes, root, Side::After, wanted)
}

/// The node that is farthest on a side of those that are wanted, which all are on the other one.
#[inline(always)]
fn outermost<N: Nodes>(
    nodes: &N,
    root: u32,
    side: Side,
    mut wanted: impl FnMut(u32) -> bool,
) -> Option<u32> {
    let other = if side == Side::Before { Side::After } else { Side::Before };
    let (mut at, mut best) = (root, None);
    while at != NONE {
        let towards = if wanted(at) {
            best = Some(at);
            side
        } else {
            other
        };
        at = nodes.link(at, towards);
    }
    best
}

/// Makes numbers into ranks, with a seed that nobody knows.
#[derive(Debug, Clone, Copy)]
pub struct Ranks(u64);

impl Default for Ranks {
    fn default() -> Self {
        Self(super::seed())
    }
}

impl Ranks {
    /// The rank of a number: the finaliser of MurmurHash3, which is a bijection.
    pub fn of(self, at: u32) -> u64 {
        let mut bits = u64::from(at) ^ self.0;
        bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        bits ^ bits >> 33
    }
}
