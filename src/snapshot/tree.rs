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
use super::nodes::Nodes;
use crate::error::Error;
use crate::index::{ChildTable, Namespace};
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The longest stored prefix of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The record of its entry.
    pub(super) entry: u32,
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
pub(super) struct Tree {
    pub(super) nodes: Nodes,
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

impl Tree {
    pub(super) fn new() -> Self {
        Self {
            nodes: Nodes::new(),
            table: ChildTable::new(),
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
    fn child(&self, parent: u32, first: u32) -> Option<u32> {
        let begins = |at: u32| {
            let node = &self.nodes[at];
            node.parent == parent && node.label.first() == Some(first)
        };
        match self.nodes[parent].first_child {
            NONE => None,
            only if self.nodes[only].after == NONE => begins(only).then_some(only),
            _ => self.table.find(self.child_hash(parent, first), begins),
        }
    }

    /// The longest prefix of `tokens` that has an entry.
    pub(super) fn find(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Found> {
        let mut node = self.root(namespace)?;
        let (mut at, mut found) = (0, None);
        while let Some(&first) = tokens.get(at) {
            let Some(child) = self.child(node, first) else { break };
            let label = &self.nodes[child].label;
            if !label.begins(&tokens[at..]) {
                break;
            }
            at += label.len();
            node = child;
            let entry = self.nodes[node].entry;
            if entry != NONE {
                found = Some(Found { entry, tokens: at });
            }
        }
        found
    }

    /// The record of the entry of exactly these tokens, if there is one.
    pub(super) fn exact(&self, namespace: &Namespace, tokens: &[u32]) -> Option<u32> {
        let found = self.find(namespace, tokens)?;
        (found.tokens == tokens.len()).then_some(found.entry)
    }

    fn walk(&self, root: u32, tokens: &[u32]) -> End {
        let mut end = End { node: root, tokens: 0, inside: None };
        while let Some(&first) = tokens.get(end.tokens) {
            let Some(child) = self.child(end.node, first) else { break };
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
        self.table.insert(hash, child);
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
        debug_assert_eq!(self.nodes[node].entry, NONE);
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
        } else if self.nodes[parent].entry == NONE {
            self.prune(parent);
        }
    }

    /// Gives every entry its new number.
    pub(super) fn renumber_entries(&mut self, new: &[u32]) {
        self.nodes.renumber_entries(new);
    }

    /// Moves the nodes together when three of four numbers are unused. Returns whether it did: all
    /// numbers are new then, and entries must be told.
    pub(super) fn tighten(&mut self) -> bool {
        if self.nodes.capacity() < super::SPARSE || self.nodes.len() * 4 > self.nodes.capacity() {
            return false;
        }
        let new = self.nodes.renumber();
        let roots = self.roots.values_mut().chain([&mut self.default_root]);
        for root in roots.filter(|root| **root != NONE) {
            *root = new[*root as usize];
        }
        self.table = ChildTable::new();
        for (at, node) in self.nodes.iter() {
            if let Some(first) = node.label.first() {
                self.table.insert(self.child_hash(node.parent, first), at);
            }
        }
        true
    }
}
