//! The radix tree: which token lists have an entry.
//!
//! ```text
//! root ── system prompt ─┬─ chat A ● ── turn 2 of A ●      ● an entry ends here
//!                        └─ chat B ●
//! ```
//!
//! A node without an entry has two children at least: what an entry alone used goes with it, and
//! what is left in one piece becomes one piece again. So there are fewer than two nodes for each
//! entry, besides the roots, and a walk takes time in proportion to the query, whatever is stored.
//! Joining two pieces may need memory. When there is none they stay two, and are joined later.
//!
//! A node has a limited number of tokens, so that no work on one takes long: a list that has more
//! of its own is several nodes in a row, and what would be longer than that is not joined. When a
//! long row goes, it does so in steps: what is left of it waits meanwhile, a leaf without an entry.
use super::buckets::Buckets;
use super::nodes::{Node, Nodes};
use super::recency::{Order, fetch_neighbours};
use super::rest::Rest;
use super::search::{NODE, Search};
use super::{Label, NONE, SPARSE};
use crate::error::Error;
use crate::memory::seed;
use crate::tree::{Namespace, Roots};
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering::Relaxed;

/// Children beyond which a node keeps its number: giving it another one changes every child.
const MANY: usize = 32;
/// Nodes and children of such that are moved or looked at before others are let in.
const MOVED: usize = 32;

/// The longest stored prefix of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Where it ends; there is its entry.
    pub(super) node: u32,
    /// Its length.
    pub(super) tokens: usize,
    /// Tokens of the query that it begins with: all of its own, unless it is to be trimmed.
    pub(super) common: usize,
}

/// All that new nodes need, made before anything changes.
#[derive(Debug)]
pub(super) struct Plan {
    end: Search,
    /// The shorter part of the node that ends in two.
    cut: Option<Label>,
    /// What no node has yet.
    rest: Rest,
}

#[derive(Debug)]
pub(super) struct Tree<V> {
    pub(super) nodes: Nodes<V>,
    /// Children by parent and first token.
    pub(super) buckets: Buckets,
    pub(super) roots: Roots,
    hasher: FixedState,
    /// Memory of all labels.
    pub(super) label_bytes: usize,
    /// Nodes without an entry that wait to be joined with their only child.
    pub(super) unjoined: Order,
    /// Leaves without an entry that wait to go.
    pub(super) dying: Order,
    /// Tokens of a node at most.
    segment: usize,
    /// The nodes to be moved next are those before this number.
    sweep: usize,
    /// Times that somebody took the lock to change something.
    pub(super) changes: u64,
}

impl<V> Tree<V> {
    pub(super) fn new(node_limit: u32, segment: usize) -> Self {
        Self {
            nodes: Nodes::new(node_limit),
            buckets: Buckets::new(),
            roots: Roots::new(),
            hasher: FixedState::with_seed(seed()),
            label_bytes: 0,
            unjoined: Order::new(),
            dying: Order::new(),
            segment,
            sweep: 0,
            changes: 0,
        }
    }

    /// A tree without nodes, to take the place of this one.
    pub(super) fn emptied(&self) -> Self {
        let mut empty = Self::new(self.nodes.limit(), self.segment);
        empty.nodes.begin_after(&self.nodes);
        empty.changes = self.changes;
        empty
    }

    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes() + self.buckets.bytes() + self.roots.bytes() + self.label_bytes
    }

    pub(super) fn child_hash(&self, parent: u32, first: u32) -> u64 {
        hash_child(&self.hasher, parent, first)
    }

    fn own_hash(&self, node: u32) -> u64 {
        let at = &self.nodes[node];
        self.child_hash(at.parent, at.label.first().expect("only a root has no tokens"))
    }

    /// The child whose segment begins with a token. An only child is compared without hashing.
    #[inline]
    pub(super) fn child(&self, parent: u32, first: u32) -> Option<u32> {
        let begins = |at: u32| {
            let node = &self.nodes[at];
            node.parent == parent && node.label.first() == Some(first)
        };
        match self.nodes[parent].first_child {
            NONE => None,
            only if self.nodes[only].after == NONE => begins(only).then_some(only),
            _ => self.buckets.find(&self.nodes, self.child_hash(parent, first), begins),
        }
    }

    /// Whether there is one; in the fewest steps for a node with many children that has none.
    #[inline]
    pub(super) fn has_child(&self, parent: u32, first: u32) -> bool {
        let begins = |at: u32| {
            let node = &self.nodes[at];
            node.parent == parent && node.label.first() == Some(first)
        };
        self.buckets.find(&self.nodes, self.child_hash(parent, first), begins).is_some()
    }

    /// Looks for the longest prefix of `tokens` that has an entry, for so many of them; whether
    /// that was all. With `fetch` what pinning it changes is fetched while tokens are compared: in
    /// a large cache the processor waits for memory most of the time, and better for several places
    /// at once.
    #[inline]
    pub(super) fn find_on(
        &self,
        search: &mut Search,
        tokens: &[u32],
        (fetch, most): (bool, usize),
    ) -> bool {
        let mut left = most;
        while let Some(&first) = tokens.get(search.tokens) {
            let Some(child) = self.child(search.node, first) else { break };
            let Node { label, first_child, entry, .. } = &self.nodes[child];
            // A leaf is likely to be what is found.
            if fetch && *first_child == NONE {
                fetch_neighbours(&self.nodes, child);
            }
            if !tokens[search.tokens..].starts_with(label.tokens()) {
                break;
            }
            (search.node, search.tokens) = (child, search.tokens + label.len());
            if entry.is_some() {
                let (node, tokens) = (search.node, search.tokens);
                search.found = Some(Found { node, tokens, common: tokens });
            }
            left = left.saturating_sub(label.len() + NODE);
            if left == 0 {
                return false;
            }
        }
        true
    }

    /// Makes room for a node that ends exactly where `tokens`, which are some, end; this is how far
    /// they can be followed. `copy` is the rest of them, if the tree has all that come before.
    pub(super) fn plan(
        &mut self,
        end: Search,
        tokens: &[u32],
        copy: Option<Rest>,
    ) -> Result<Plan, Error> {
        let rest = match copy.filter(|copy| copy.from == end.known()) {
            Some(copy) => copy,
            None => Rest::try_new(tokens, end.known(), self.segment)?,
        };
        let cut =
            end.inside.map(|(child, common)| self.nodes[child].label.copy_for_split(1, common));
        let cut = cut.transpose()?;
        if end.node == NONE {
            self.roots.try_reserve()?;
        }
        self.buckets.try_reserve()?;
        self.nodes
            .try_reserve((end.node == NONE) as usize + cut.is_some() as usize + rest.len())?;
        Ok(Plan { end, cut, rest })
    }

    /// Makes what was planned, if anything is missing. The node that is returned must be given an
    /// entry.
    pub(super) fn carry_out(&mut self, namespace: &Namespace, plan: Plan) -> u32 {
        let Plan { end, cut, rest } = plan;
        let mut node = end.node;
        if node == NONE {
            node = self.nodes.add(Label::default());
            self.roots.insert(*namespace, node);
        }
        if let Some((child, count)) = end.inside {
            let parent = end.node;
            node = self.cut(child, count, cut.expect("a cut was prepared"));
            // Each part is shorter, and may have room now where the whole had none.
            self.wait_to_join(parent);
            self.wait_to_join(child);
        }
        // It gets an entry or another child.
        let waited = self.nodes[node].entry.is_none() && self.nodes[node].link.is_in();
        if waited {
            let is_leaf = self.nodes[node].first_child == NONE;
            let list = if is_leaf { &mut self.dying } else { &mut self.unjoined };
            list.remove(&self.nodes, node);
        }
        let above = node;
        let Rest { first, more, .. } = rest;
        if first.is_empty() {
            return node;
        }
        node = self.add_leaf(node, first);
        for label in more {
            node = self.add_leaf(node, label);
        }
        if waited {
            self.wait_to_join(above);
        }
        node
    }

    /// The child that a node which has no entry is to be joined with, if the two are not too long.
    fn child_to_join(&self, node: u32) -> Option<u32> {
        let Node { label, entry, .. } = &self.nodes[node];
        let child = self.nodes.only_child(node)?;
        let is_short = label.len() + self.nodes[child].label.len() <= self.segment;
        (entry.is_none() && !label.is_empty() && is_short).then_some(child)
    }

    /// Whether a node without an entry has its only child for the sake of its length.
    pub(super) fn is_in_a_row(&self, node: u32) -> bool {
        let is_inner = self.nodes.only_child(node).is_some() && !self.nodes[node].label.is_empty();
        is_inner && self.child_to_join(node).is_none()
    }

    fn wait_to_join(&mut self, node: u32) {
        if self.child_to_join(node).is_some() && !self.nodes[node].link.is_in() {
            self.unjoined.push(&self.nodes, node);
        }
    }

    #[inline]
    fn add_leaf(&mut self, parent: u32, label: Label) -> u32 {
        self.label_bytes += label.bytes();
        let leaf = self.nodes.add(label);
        self.attach(parent, leaf);
        leaf
    }

    fn attach(&mut self, parent: u32, child: u32) {
        self.nodes.hang(parent, child);
        let hash = self.own_hash(child);
        self.buckets.insert(&mut self.nodes, hash, child);
        self.adapt();
    }

    fn detach(&mut self, child: u32) {
        let hash = self.own_hash(child);
        self.buckets.remove(&mut self.nodes, hash, child);
        self.nodes.unhang(child);
    }

    fn adapt(&mut self) {
        let Self { nodes, buckets, hasher, .. } = self;
        buckets.adapt(nodes, |nodes, at| {
            let node = &nodes[at];
            hash_child(hasher, node.parent, node.label.first().unwrap_or(0))
        });
    }

    /// Makes a node end after the first `count` tokens of another's segment. The deep end keeps its
    /// number, so whatever ends there goes on doing so.
    fn cut(&mut self, node: u32, count: usize, copy: Label) -> u32 {
        let hash = self.own_hash(node);
        let label = &mut self.nodes[node].label;
        let before = label.bytes();
        let front = label.split_front(1, count, copy);
        self.label_bytes = self.label_bytes - before + label.bytes() + front.bytes();
        let upper = self.nodes.add(front);
        self.nodes.replace(node, upper);
        self.buckets.replace(&mut self.nodes, hash, [node, upper]);
        self.attach(upper, node);
        upper
    }

    /// Joins a node, which has no entry, with its only child, which keeps its number; false when
    /// there is no memory for it.
    fn join(&mut self, node: u32, child: u32) -> bool {
        let mut front = std::mem::take(&mut self.nodes[node].label);
        let (first, own) = (front.first(), self.own_hash(child));
        let label = &mut self.nodes[child].label;
        let before = front.bytes() + label.bytes();
        if label.prepend(1, &mut front).is_err() {
            self.nodes[node].label = front;
            return false;
        }
        self.label_bytes = self.label_bytes - before + label.bytes();
        self.buckets.remove(&mut self.nodes, own, child);
        self.nodes.unhang(child);
        let first = first.expect("only a root has no tokens");
        let hash = self.child_hash(self.nodes[node].parent, first);
        self.nodes.replace(node, child);
        self.buckets.replace(&mut self.nodes, hash, [node, child]);
        self.nodes.remove(node);
        true
    }

    /// Joins what could not be joined before, a piece for each call.
    pub(super) fn join_again(&mut self) {
        let Some(node) = self.unjoined.oldest() else { return };
        self.unjoined.remove(&self.nodes, node);
        // The child may have become longer meanwhile.
        if let Some(child) = self.child_to_join(node)
            && !self.join(node, child)
        {
            self.unjoined.push(&self.nodes, node);
        }
    }

    /// Goes on to remove rows of which a part is left; whether there are any still.
    pub(super) fn prune_again(&mut self, work: &mut usize) -> bool {
        while let Some(leaf) = self.dying.oldest() {
            if *work == 0 {
                return true;
            }
            self.prune(leaf, work);
        }
        false
    }

    /// Leaves for later what is to be done with a node that has no entry any more.
    pub(super) fn prune_later(&mut self, node: u32) {
        if self.nodes[node].first_child == NONE {
            self.dying.push(&self.nodes, node);
        } else {
            self.wait_to_join(node);
        }
    }

    /// Removes what only an entry at this node needed, now that it has none: as many nodes as
    /// `work` says, from which they are taken off. The others wait.
    pub(super) fn prune(&mut self, mut node: u32, work: &mut usize) {
        loop {
            let Node { label, parent, first_child, entry, link, .. } = &self.nodes[node];
            let (parent, is_root) = (*parent, label.is_empty());
            let is_in = link.is_in();
            if entry.is_some() {
                break;
            }
            if *first_child != NONE {
                if let Some(child) = self.child_to_join(node)
                    && !is_in
                    && !self.join(node, child)
                {
                    self.unjoined.push(&self.nodes, node);
                }
                break;
            }
            if is_root {
                self.roots.remove(node);
            } else {
                if *work == 0 {
                    if !is_in {
                        self.dying.push(&self.nodes, node);
                    }
                    break;
                }
                *work -= 1;
                if is_in {
                    self.dying.remove(&self.nodes, node);
                }
                if self.nodes[parent].entry.is_none() && self.nodes[parent].link.is_in() {
                    // It waits to be joined with this one, its only child.
                    self.unjoined.remove(&self.nodes, parent);
                }
                self.detach(node);
            }
            let label = self.nodes.remove(node).label;
            self.label_bytes -= label.bytes();
            self.nodes.discarded.put_label(label);
            if is_root {
                break;
            }
            node = parent;
        }
        self.adapt();
    }

    /// Moves a few nodes together when three of four places are unused, so that memory follows what
    /// is stored. `order` is that of the entries.
    pub(super) fn tighten(&mut self, order: &mut Order) {
        if self.nodes.places() <= self.nodes.len() * 4 + SPARSE {
            return;
        }
        let end = if self.sweep > 0 { self.sweep } else { self.nodes.end() };
        let Self { nodes, buckets, roots, unjoined, dying, hasher, .. } = self;
        let look = |nodes: &Nodes<V>, at: u32| {
            let children = nodes.children(at).take(MANY + 1).count();
            (nodes[at].reader.load(Relaxed) == NONE && children <= MANY, 1 + children)
        };
        self.sweep = nodes.evacuate(end, MOVED, look, |nodes, from, to| {
            let hash = |parent, first: Option<u32>| hash_child(hasher, parent, first.unwrap_or(0));
            let Node { label, parent, first_child, entry, link, .. } = &nodes[to];
            let (parent, first) = (*parent, label.first());
            let (is_entry, is_in, mut child) = (entry.is_some(), link.is_in(), *first_child);
            if first.is_none() {
                roots.renumber(from, to);
            } else {
                nodes.renumbered([from, to]);
                buckets.renumbered(nodes, hash(parent, first), [from, to]);
            }
            if is_in {
                let list = match (is_entry, child) {
                    (true, _) => &mut *order,
                    (false, NONE) => &mut *dying,
                    (false, _) => &mut *unjoined,
                };
                list.renumbered(nodes, to);
            }
            while child != NONE {
                let first = nodes[child].label.first();
                buckets.remove(nodes, hash(from, first), child);
                nodes[child].parent = to;
                buckets.insert(nodes, hash(to, first), child);
                child = nodes[child].after;
            }
        });
    }
}

fn hash_child(hasher: &FixedState, parent: u32, first: u32) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64((parent as u64) << 32 | first as u64);
    hasher.finish() >> 16
}
