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
use super::NONE;
use super::label::Label;
use super::nodes::{Node, Nodes};
use super::recency::Links;
use crate::error::Error;
use crate::index::{ChildTable, Namespace};
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The longest stored prefix of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Where it ends; there is its entry.
    pub(super) node: u32,
    /// Its length.
    pub(super) tokens: usize,
}

/// Where a walk ends.
struct End {
    /// The deepest node whose segment was passed whole.
    node: u32,
    /// Tokens up to there.
    tokens: usize,
    /// The child that begins like the rest, and how many tokens they share: fewer than it has.
    inside: Option<(u32, usize)>,
}

#[derive(Debug)]
pub(super) struct Tree<V> {
    pub(super) nodes: Nodes<V>,
    /// Children by parent and first token. Grows without stopping.
    pub(super) table: ChildTable,
    /// An ordered map, since a hash map would stop to rehash.
    pub(super) roots: BTreeMap<Namespace, u32>,
    /// The root of the default namespace, which most engines use alone; NONE when it has none.
    pub(super) default_root: u32,
    hasher: FixedState,
    /// Memory of all labels.
    pub(super) label_bytes: usize,
}

impl<V> Tree<V> {
    pub(super) fn new() -> Self {
        Self {
            nodes: Nodes::new(),
            table: ChildTable::new().expect("there is memory"),
            roots: BTreeMap::new(),
            default_root: NONE,
            // Seeded, so that nobody can choose tokens that collide.
            hasher: FixedState::with_seed(RandomState::new().hash_one(0)),
            label_bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let per_root = size_of::<(Namespace, u32)>() + size_of::<Namespace>();
        self.nodes.bytes() + self.table.bytes() + self.label_bytes + self.roots.len() * per_root
    }

    pub(super) fn root(&self, namespace: &Namespace) -> Option<u32> {
        if *namespace == Namespace::default() {
            return (self.default_root != NONE).then_some(self.default_root);
        }
        self.roots.get(namespace).copied()
    }

    pub(super) fn child_hash(&self, parent: u32, first: u32) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64((parent as u64) << 32 | first as u64);
        (hasher.finish() >> 16) as u32
    }

    /// The child whose segment begins with a token. An only child is compared without hashing.
    #[inline]
    fn child(&self, parent: u32, first: u32, links: Option<&Links>) -> Option<u32> {
        let begins = |at: u32| {
            if let Some(links) = links {
                links.fetch(at);
            }
            let node = &self.nodes[at];
            node.parent == parent && node.label.first() == Some(first)
        };
        match self.nodes[parent].first_child {
            NONE => None,
            only if self.nodes[only].after == NONE => begins(only).then_some(only),
            _ => self.table.find(self.child_hash(parent, first), begins),
        }
    }

    /// The longest prefix of `tokens` that has an entry. With `links` those of what is found are
    /// fetched while tokens are compared: in a large cache the processor waits for memory most of
    /// the time, and better for several places at once.
    pub(super) fn find(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        links: Option<&Links>,
    ) -> Option<Found> {
        let mut node = self.root(namespace)?;
        let (mut at, mut found) = (0, None);
        while let Some(&first) = tokens.get(at) {
            let Some(child) = self.child(node, first, links) else { break };
            let Node { label, first_child, entry, .. } = &self.nodes[child];
            // A leaf is likely to be what is found.
            if let Some(links) = links.filter(|_| *first_child == NONE) {
                links.fetch_neighbours(child);
            }
            if !label.begins(&tokens[at..]) {
                break;
            }
            at += label.len();
            node = child;
            if entry.is_some() {
                found = Some(Found { node, tokens: at });
            }
        }
        found
    }

    /// The node with the entry of exactly these tokens, if there is one.
    pub(super) fn exact(&self, namespace: &Namespace, tokens: &[u32]) -> Option<u32> {
        let found = self.find(namespace, tokens, None)?;
        (found.tokens == tokens.len()).then_some(found.node)
    }

    fn walk(&self, root: u32, tokens: &[u32]) -> End {
        let mut end = End { node: root, tokens: 0, inside: None };
        while let Some(&first) = tokens.get(end.tokens) {
            let Some(child) = self.child(end.node, first, None) else { break };
            let label = &self.nodes[child].label;
            let common = label.common(&tokens[end.tokens..]);
            if common < label.len() {
                end.inside = Some((child, common));
                break;
            }
            end = End { node: child, tokens: end.tokens + common, inside: None };
        }
        end
    }

    /// The node that ends exactly where `tokens`, which are some, end; made if need be. It must be
    /// given an entry, or be pruned.
    pub(super) fn make(&mut self, namespace: &Namespace, tokens: &[u32]) -> Result<u32, Error> {
        let root = self.root(namespace);
        let end = root.map(|root| self.walk(root, tokens));
        let shared = end.as_ref().map_or(0, |end| end.tokens);
        let inside = end.as_ref().and_then(|end| end.inside);
        let rest = &tokens[shared + inside.map_or(0, |(_, common)| common)..];
        // The one allocation that a caller can make absurd, before anything changes.
        let label = Label::try_new(rest)?;

        let mut node = match end {
            Some(end) => end.node,
            None => self.add_root(namespace),
        };
        if let Some((child, common)) = inside {
            node = self.split(child, common);
        }
        if rest.is_empty() {
            return Ok(node);
        }
        self.label_bytes += label.bytes();
        let leaf = self.nodes.add(label, None);
        self.attach(node, leaf);
        Ok(leaf)
    }

    fn add_root(&mut self, namespace: &Namespace) -> u32 {
        let root = self.nodes.add(Label::default(), Some(Box::new(*namespace)));
        self.roots.insert(*namespace, root);
        if *namespace == Namespace::default() {
            self.default_root = root;
        }
        root
    }

    fn attach(&mut self, parent: u32, child: u32) {
        self.nodes.hang(parent, child);
        let hash = self.child_hash(parent, self.first(child));
        self.table.insert(hash, child).expect("there is memory");
    }

    fn detach(&mut self, child: u32) {
        let hash = self.child_hash(self.nodes[child].parent, self.first(child));
        self.table.remove(hash, child);
        self.nodes.unhang(child);
    }

    fn first(&self, node: u32) -> u32 {
        self.nodes[node].label.first().expect("only a root has no tokens")
    }

    /// Makes a node end after the first `count` tokens of another's segment. The deep end keeps its
    /// number, so whatever ends there goes on doing so.
    fn split(&mut self, node: u32, count: usize) -> u32 {
        let hash = self.child_hash(self.nodes[node].parent, self.first(node));
        let label = &mut self.nodes[node].label;
        let before = label.bytes();
        let front = label.split_front(count);
        self.label_bytes = self.label_bytes - before + label.bytes() + front.bytes();
        let upper = self.nodes.add(front, None);
        self.nodes.replace(node, upper);
        self.table.replace(hash, node, upper);
        self.attach(upper, node);
        upper
    }

    /// Joins a node with its only child, which keeps its number.
    fn merge(&mut self, node: u32, child: u32) {
        let hash = self.child_hash(self.nodes[node].parent, self.first(node));
        self.detach(child);
        self.nodes.replace(node, child);
        self.table.replace(hash, node, child);
        let front = self.nodes.remove(node).label;
        let label = &mut self.nodes[child].label;
        let before = front.bytes() + label.bytes();
        label.prepend(front);
        self.label_bytes = self.label_bytes - before + label.bytes();
    }

    /// Removes what only an entry at this node needed, now that it has none.
    pub(super) fn prune(&mut self, node: u32) {
        debug_assert!(self.nodes[node].entry.is_none());
        let at = &self.nodes[node];
        let (parent, is_root) = (at.parent, at.namespace.is_some());
        if let Some(child) = self.nodes.only_child(node).filter(|_| !is_root) {
            return self.merge(node, child);
        }
        if self.nodes[node].first_child != NONE {
            return;
        }
        if !is_root {
            self.detach(node);
        }
        let removed = self.nodes.remove(node);
        self.label_bytes -= removed.label.bytes();
        if let Some(namespace) = removed.namespace {
            self.roots.remove(&namespace);
            if node == self.default_root {
                self.default_root = NONE;
            }
        } else if self.nodes[parent].entry.is_none() {
            self.prune(parent);
        }
    }

    /// Moves the nodes together when three of four numbers are unused. Returns the new number of
    /// each.
    pub(super) fn tighten(&mut self) -> Option<Vec<u32>> {
        if self.nodes.capacity() < super::SPARSE || self.nodes.len() * 4 > self.nodes.capacity() {
            return None;
        }
        let new = self.nodes.renumber();
        let roots = self.roots.values_mut().chain([&mut self.default_root]);
        for root in roots.filter(|root| **root != NONE) {
            *root = new[*root as usize];
        }
        self.table = ChildTable::new().expect("there is memory");
        for (at, node) in self.nodes.iter() {
            if let Some(first) = node.label.first() {
                let hash = self.child_hash(node.parent, first);
                self.table.insert(hash, at).expect("there is memory");
            }
        }
        Some(new)
    }
}
