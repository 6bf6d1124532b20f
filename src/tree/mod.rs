//! What every index keeps that is a tree of nodes, whatever a node holds: ids, roots, locks, and
//! the order in which leaves go.
#![forbid(unsafe_code)]

mod arena;
mod check;
mod clear;
mod child_table;
mod dump;
mod info;
mod label;
mod limits;
mod lock;
mod namespace;
mod node;
mod order;
mod roots;
mod version;

pub use check::Totals;
pub use child_table::SpareTable;
pub(crate) use child_table::{ChildTable, Hint, Place, TableView};
pub use clear::Swept;
pub use dump::{Hanging, Text};
pub use info::{IndexStats, Node, NodeInfo};
pub(crate) use label::{Label, common_start};
pub(crate) use limits::SEGMENT_PAGES;
pub use limits::{Limits, NodeIds};
pub use namespace::Namespace;
pub(crate) use namespace::{DEFAULT as DEFAULT_NAMESPACE, WORDS as NAMESPACE_WORDS};
pub(crate) use node::NONE;
pub use node::{Held, State, TreeNode};
pub use roots::Roots;
pub(crate) use version::{Changed, Version};

use crate::error::Error;
use crate::ids::NodeId;
use crate::memory::OutOfMemory;
use arena::Arena;
use order::EvictionOrder;

/// Nodes from roots down, one root for each namespace.
#[derive(Debug)]
pub struct Tree<H> {
    page_size: usize,
    tag: u8,
    pub nodes: Arena<H>,
    order: EvictionOrder,
    pub roots: Roots,
    /// Logical time: one tick for each match and each insert. At a thousand million a second it
    /// would take five hundred years to run out.
    pub clock: u64,
    pub cached_pages: usize,
    pub reclaimable_pages: usize,
    /// Pages of nodes that retained sequences keep.
    pub kept_pages: usize,
    leaves: usize,
}

impl<H: Held> Tree<H> {
    /// An empty tree whose nodes get these ids.
    pub fn new(page_size: usize, ids: NodeIds) -> Self {
        Self {
            page_size,
            tag: ids.tag,
            nodes: Arena::new(page_size, ids),
            order: EvictionOrder::new(),
            roots: Roots::new(),
            clock: 0,
            cached_pages: 0,
            reclaimable_pages: 0,
            kept_pages: 0,
            leaves: 0,
        }
    }

    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The nodes from one up to its root.
    pub fn path(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(from), |&at| self.above(at))
    }

    /// Those of them that have a page of the prefix, or follow the one that has it.
    pub fn path_from(&self, from: u32, first: usize) -> impl Iterator<Item = u32> + '_ {
        self.path(from).take_while(move |&at| first == 0 || self.nodes[at].end() > first)
    }

    pub fn find_root(&self, namespace: &Namespace) -> Option<u32> {
        self.roots.find(namespace)
    }

    /// The namespace that a node is in.
    pub fn namespace(&self, node: u32) -> Namespace {
        self.roots.name(self.nodes[node].root)
    }

    /// Makes room for a root more.
    pub fn try_reserve_root(&mut self) -> Result<(), OutOfMemory> {
        self.nodes.try_reserve(1)?;
        self.roots.try_reserve()
    }

    /// A root for a namespace that has none; room was made for it.
    pub fn add_root(&mut self, namespace: &Namespace) -> u32 {
        let root = self.nodes.allocate(State::Root);
        self.nodes[root].root = root;
        self.roots.insert(*namespace, root);
        root
    }

    /// Drops a root that has neither nodes nor locks; its namespace, if that was so.
    pub fn prune_root(&mut self, root: u32) -> Option<Namespace> {
        let node = &self.nodes[root];
        let drop = node.is_root() && node.locks == 0 && node.is_childless();
        drop.then(|| {
            self.nodes.release(root);
            self.roots.remove(root)
        })
    }

    /// Says, before it happens, that a leaf comes below a node.
    pub fn expect_leaf(&mut self, parent: u32) {
        self.retire(parent);
        self.leaves += !self.nodes[parent].is_leaf() as usize;
    }

    /// Says, after it happened, that a leaf is gone from below a node.
    pub fn miss_leaf(&mut self, parent: u32) {
        self.leaves -= !self.nodes[parent].is_leaf() as usize;
    }

    /// The ancestor of a node, or the node itself, that has the given page of the prefix.
    pub fn node_at_page(&self, node: u32, page: usize) -> u32 {
        let found = self.path(node).find(|&at| self.nodes[at].start as usize <= page);
        found.expect("a root starts at page 0")
    }

    /// The node on the path that ends after `pages` pages of the prefix, or beyond.
    pub fn node_ending_at(&self, node: u32, pages: usize) -> u32 {
        let found =
            self.path(node).find(|&at| (self.nodes[at].start as usize) < pages || self.is_top(at));
        found.expect("a path ends at its root")
    }

    fn is_top(&self, at: u32) -> bool {
        self.nodes[at].parent == NONE
    }

    /// Pages of unlocked nodes on the path, as far as they belong to its first `pages` pages.
    pub fn unprotected_pages(&self, node: u32, pages: usize) -> usize {
        let unlocked = self.path(node).take_while(|&at| self.nodes[at].locks == 0);
        let end = |at: u32| self.nodes[at].end().min(pages);
        unlocked.map(|at| end(at).saturating_sub(self.nodes[at].start as usize)).sum()
    }

    pub fn id(&self, node: u32) -> NodeId {
        NodeId::new(self.tag, self.nodes[node].generation, node)
    }

    pub fn resolve(&self, id: NodeId) -> Result<Node, Error> {
        let node = self.nodes.get(id.slot()).filter(|node| {
            id.tag() == self.tag && node.generation == id.generation() && node.state != State::Free
        });
        node.map(|_| Node(id.slot())).ok_or_else(|| Error::StaleNode(id.0))
    }

    pub fn info(&self, node: u32) -> NodeInfo {
        let at = &self.nodes[node];
        NodeInfo {
            locks: at.locks,
            parent: self.above(node).map(|parent| self.id(parent)),
            positions: at.page_count() * self.page_size,
            pages: at.page_count(),
            end_position: at.end() * self.page_size,
            children: at.child_count(),
            last_access: at.last_access,
            hits: at.hits as u64,
        }
    }

    /// Totals, with the memory that the index takes beside the tree.
    pub fn stats(&self, other_bytes: usize) -> IndexStats {
        IndexStats {
            cached_pages: self.cached_pages,
            reclaimable_pages: self.reclaimable_pages,
            nodes: self.nodes.len() - self.roots.total(),
            leaves: self.leaves,
            namespaces: self.roots.len(),
            bytes: self.nodes.bytes() + self.roots.bytes() + other_bytes,
        }
    }
}
