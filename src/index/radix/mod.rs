//! The radix tree: segments of whole pages on the edges, one tree for each namespace.
//!
//! ```text
//! root ── system prompt ─┬─ question A ── answer A      a node owns the pages of its segment;
//!                        ├─ question B                  children differ within their first page
//!                        └─ image ── question C
//! ```
//!
//! The verbs are in files of their own: `walk` reads, `edit` splits, merges and inserts, `lock` and
//! `evict` keep what may go and in which order, `check` proves the whole. `probe` reads without the
//! lock what `publish` shows.

mod ages;
mod check;
mod child_table;
mod dump;
mod edit;
mod evict;
mod label;
mod lock;
mod node;
mod probe;
mod publish;
mod row;
mod siblings;
mod version;
mod walk;

use super::{
    DumpFormat, Holder, IndexStats, Inserted, Namespace, Node, NodeInfo, PrefixIndex, Probe, Walk,
};
use crate::error::Error;
use crate::grace::Garbage;
use crate::ids::NodeId;
use child_table::ChildTable;
use evict::EvictionOrder;
use foldhash::fast::FixedState;
use node::{Arena, NONE, State};
use probe::View;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A prefix index that compares tokens exactly.
///
/// Sources: the tree of multi-token nodes is that of SGLang's RadixAttention (arXiv 2312.07104);
/// page alignment, trimming, exact reclaimable counts and re-merging are described in
/// `docs/index.md`.
#[derive(Debug)]
pub struct RadixIndex {
    page_size: usize,
    tag: u8,
    nodes: Arena,
    table: ChildTable,
    order: EvictionOrder,
    /// Ordered maps, since a hash map would stop the scheduler to rehash.
    roots: BTreeMap<Namespace, u32>,
    names: BTreeMap<u32, Namespace>,
    /// The root of the default namespace, which most engines use alone; NONE when it has none.
    default_root: u32,
    hasher: FixedState,
    /// Logical time: one tick for each match and each insert.
    clock: u64,
    cached_pages: usize,
    reclaimable_pages: usize,
    /// Heap memory of labels and sibling lists.
    segment_bytes: usize,
    /// What readers without a lock see, and what they may still see of the past.
    view: Arc<View>,
    garbage: Garbage,
}

impl RadixIndex {
    /// An empty index whose node ids carry `tag`.
    pub fn new(page_size: usize, tag: u8) -> Self {
        let mut garbage = Garbage::default();
        let table = ChildTable::new(&mut garbage);
        // Seeded, so that nobody can choose tokens that collide.
        let hasher = FixedState::with_seed(RandomState::new().hash_one(tag));
        let view = Arc::new(View::new(page_size, hasher.clone(), Arc::clone(table.view())));
        Self {
            page_size,
            tag,
            nodes: Arena::new(Arc::clone(&view.rows)),
            view,
            table,
            order: EvictionOrder::new(),
            roots: BTreeMap::new(),
            names: BTreeMap::new(),
            default_root: NONE,
            hasher,
            clock: 0,
            cached_pages: 0,
            reclaimable_pages: 0,
            segment_bytes: 0,
            garbage,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The nodes from one up to its root.
    fn path(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(from), |&at| {
            let parent = self.nodes[at].parent;
            (parent != NONE).then_some(parent)
        })
    }
}

impl PrefixIndex for RadixIndex {
    fn find_root(&self, namespace: &Namespace) -> Option<Node> {
        if *namespace == Namespace::default() {
            return Some(Node(self.default_root)).filter(|root| root.0 != NONE);
        }
        self.roots.get(namespace).map(|&root| Node(root))
    }

    fn make_root(&mut self, namespace: &Namespace) -> Node {
        if let Some(root) = self.find_root(namespace) {
            return root;
        }
        let root = self.nodes.allocate(State::Root);
        if *namespace == Namespace::default() {
            self.default_root = root;
        }
        self.roots.insert(*namespace, root);
        self.names.insert(root, *namespace);
        self.publish_root(root, namespace);
        Node(root)
    }

    fn prune_root(&mut self, root: Node) {
        let node = &self.nodes[root.0];
        if node.state == State::Root && node.locks == 0 && node.children.is_empty() {
            let name = self.names.remove(&root.0).expect("a root has a name");
            self.roots.remove(&name);
            if root.0 == self.default_root {
                self.default_root = NONE;
            }
            self.withdraw_root(root.0, &name);
        }
    }

    fn walk(&self, from: Node, keys: &[u32]) -> Walk {
        self.walk_down(from.0, keys)
    }

    fn node_at_page(&self, node: Node, page: usize) -> Node {
        let found = self.path(node.0).find(|&at| self.nodes[at].start as usize <= page);
        Node(found.expect("a root starts at page 0"))
    }

    fn end_page(&self, node: Node) -> usize {
        self.nodes[node.0].end()
    }

    fn end_node_at(&mut self, node: Node, pages: usize) -> Node {
        let at = self
            .path(node.0)
            .find(|&at| (self.nodes[at].start as usize) < pages || self.nodes[at].parent == NONE)
            .expect("a path ends at its root");
        if pages < self.nodes[at].end() {
            return Node(self.split(at, pages - self.nodes[at].start as usize));
        }
        Node(at)
    }

    fn touch(&mut self, node: Node) {
        self.touch_path(node.0);
    }

    fn insert(&mut self, from: Node, keys: &[u32], pages: &[u32]) -> Inserted {
        self.insert_below(from.0, keys, pages)
    }

    fn insert_moving_lock(&mut self, from: Node, keys: &[u32], pages: &[u32]) -> Inserted {
        if self.can_extend(from.0) {
            self.extend(from.0, &keys[..pages.len() * self.page_size], pages);
            return Inserted { node: from, existing: 0 };
        }
        let inserted = self.insert_below(from.0, keys, pages);
        self.move_lock_down(from.0, inserted.node.0);
        inserted
    }

    fn lock(&mut self, node: Node, holder: Holder) {
        self.lock_path(node.0, holder);
    }

    fn unlock(&mut self, node: Node, holder: Holder) -> bool {
        self.unlock_path(node.0, holder)
    }

    fn unprotected_pages(&self, node: Node, pages: usize) -> usize {
        let unlocked = self.path(node.0).take_while(|&at| self.nodes[at].locks == 0);
        let end = |at: u32| self.nodes[at].end().min(pages);
        unlocked.map(|at| end(at).saturating_sub(self.nodes[at].start as usize)).sum()
    }

    fn evict(&mut self, count: usize, report: &mut dyn FnMut(&[u32], &[u32])) -> usize {
        self.evict_pages(count, report)
    }

    fn has_keys(&self, node: Node, keys: &[u32]) -> bool {
        self.path(node.0).all(|at| {
            let (label, start) = (&self.nodes[at].label, self.nodes[at].start as usize);
            let range = start * self.page_size..(start + label.len()) * self.page_size;
            keys.get(range) == Some(label.keys(self.page_size))
        })
    }

    fn visit_path(&self, node: Node, segment: &mut dyn FnMut(usize, &[u32])) {
        for at in self.path(node.0) {
            let node = &self.nodes[at];
            segment(node.start as usize, node.label.pages(self.page_size));
        }
    }

    fn visit_all(&self, visit: &mut dyn FnMut(&[u32], &[u32])) {
        for at in self.nodes.numbers() {
            let label = &self.nodes[at].label;
            visit(label.pages(self.page_size), label.keys(self.page_size));
        }
    }

    fn id(&self, node: Node) -> NodeId {
        NodeId::new(self.tag, self.nodes[node.0].generation, node.0)
    }

    fn resolve(&self, id: NodeId) -> Result<Node, Error> {
        let node = self.nodes.get(id.slot()).filter(|node| {
            id.tag() == self.tag && node.generation == id.generation() && node.state != State::Free
        });
        node.map(|_| Node(id.slot())).ok_or(Error::StaleNode(id.0))
    }

    fn info(&self, node: Node) -> NodeInfo {
        let at = &self.nodes[node.0];
        NodeInfo {
            locks: at.locks,
            parent: (at.parent != NONE).then(|| self.id(Node(at.parent))),
            positions: at.label.len() * self.page_size,
            pages: at.label.len(),
            end_position: at.end() * self.page_size,
            children: at.children.len(),
            last_access: at.last_access,
            hits: at.hits as u64,
        }
    }

    fn pages(&self, node: Node) -> &[u32] {
        self.nodes[node.0].label.pages(self.page_size)
    }

    fn children(&self, node: Node) -> Vec<Node> {
        self.nodes[node.0].children.iter().map(|sibling| Node(sibling.node)).collect()
    }

    fn stats(&self) -> IndexStats {
        IndexStats {
            cached_pages: self.cached_pages,
            reclaimable_pages: self.reclaimable_pages,
            nodes: self.nodes.len() - self.roots.len(),
            namespaces: self.roots.len(),
            bytes: self.nodes.bytes()
                + self.table.bytes()
                + self.order.bytes()
                + self.segment_bytes
                + self.garbage.bytes()
                + self.roots.len() * 2 * size_of::<(Namespace, u32)>(),
        }
    }

    fn prober(&self) -> Option<Arc<dyn Probe>> {
        Some(Arc::clone(&self.view) as _)
    }

    fn check(&self) -> Result<(), Error> {
        self.check_tree().map_err(Error::Corrupt)
    }

    fn dump(&self, format: DumpFormat) -> String {
        match format {
            DumpFormat::Json => self.dump_json(),
            DumpFormat::Dot => self.dump_dot(),
        }
    }
}
