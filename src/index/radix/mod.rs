//! The radix tree: segments of whole pages on the edges, one tree for each namespace.
//!
//! ```text
//! root ── system prompt ─┬─ question A ── answer A      a node owns the pages of its segment;
//!                        ├─ question B                  children differ within their first page
//!                        └─ image ── question C
//! ```
//!
//! The verbs are in files of their own: `walk` reads, `fetch` reads ahead for many, `edit` splits,
//! `insert` adds, `merge`, `lock` and `evict` keep what may go and in which order, `check` proves
//! the whole. `probe` reads without the lock what `publish` shows.

mod ages;
mod check;
mod dump;
mod edit;
mod evict;
mod fetch;
mod hash;
mod insert;
mod lock;
mod merge;
mod node;
mod probe;
mod publish;
mod row;
mod run;
mod siblings;
mod walk;

use super::{
    DumpFormat, IndexStats, Inserted, Namespace, Node, NodeIds, NodeInfo, Path, Portion,
    PrefixIndex, Probe, Stretch, Walk, Ways, add_pages_of,
};
use crate::error::Error;
use crate::grace::Garbage;
use crate::ids::NodeId;
use crate::memory::{Arc, OutOfMemory, try_box};
use crate::token::Keys;
use crate::tree::{ChildTable, Hanging, Held, SpareTable, Swept, Tree};
use hash::ChildHash;
use node::Segment;
use probe::View;
use row::OwnRows;
use std::ops::Range;

/// A prefix index that compares tokens exactly.
///
/// Sources: the tree of multi-token nodes is that of SGLang's RadixAttention (arXiv 2312.07104);
/// page alignment, trimming, exact reclaimable counts and re-merging are described in
/// `docs/index.md`.
#[derive(Debug)]
pub struct RadixIndex {
    page_size: usize,
    tree: Tree<Segment>,
    /// Nodes by their parent and their first page.
    table: ChildTable,
    hasher: ChildHash,
    /// Heap memory of labels and sibling lists.
    segment_bytes: usize,
    /// What readers without a lock see: of each node, and of the whole.
    rows: OwnRows,
    view: Arc<View>,
    /// What such readers may still look at.
    garbage: Garbage,
    /// Where the next walk is likely to come along.
    led: Path,
}

impl RadixIndex {
    /// An empty index whose nodes get these ids.
    pub fn new(page_size: usize, ids: impl Into<NodeIds>) -> Result<Self, Error> {
        let ids = ids.into();
        let table = ChildTable::new()?;
        let hasher = ChildHash::new();
        let view = View::new(page_size, hasher, Arc::clone(table.view()))?;
        let view = Arc::new(view)?;
        Ok(Self {
            page_size,
            tree: Tree::new(page_size, ids),
            table,
            hasher,
            segment_bytes: 0,
            rows: OwnRows::new(Arc::clone(&view.rows)),
            view,
            garbage: Garbage::default(),
            led: Path::default(),
        })
    }
}

impl PrefixIndex for RadixIndex {
    fn find_root(&self, namespace: &Namespace) -> Option<Node> {
        self.tree.find_root(namespace).map(Node)
    }

    fn make_root(&mut self, namespace: &Namespace) -> Result<Node, Error> {
        match self.find_root(namespace) {
            Some(root) => Ok(root),
            None => Ok(Node(self.add_root(namespace)?)),
        }
    }

    fn prune_root(&mut self, root: Node) {
        self.drop_empty_root(root.0);
    }

    fn walk(&self, from: Node, keys: Keys<'_>) -> Walk {
        self.walk_down(from.0, keys.keys)
    }

    fn walk_some(&self, from: Node, keys: Keys<'_>, most: Stretch) -> (Walk, bool) {
        let (walk, rest, passed) = self.pass_nodes(from.0, keys.keys, most);
        if passed {
            return (walk, !rest.is_empty());
        }
        let last = self.walk(walk.node, Keys { keys: rest, ..keys });
        (Walk { media: walk.media || last.media, ..last }, false)
    }

    fn is_large(&self) -> bool {
        fetch::is_large(self)
    }

    fn go_on(&self, ways: &mut Ways<'_>) {
        fetch::go_on(self, self.page_size, ways);
    }

    fn lead(&mut self, path: &Path) {
        self.led = *path;
    }

    fn visit_roots(
        &self,
        after: Option<&Namespace>,
        visit: &mut dyn FnMut(&Namespace, Node) -> bool,
    ) {
        self.tree.roots.after(after).all(|(name, root)| visit(name, Node(root)));
    }

    fn namespace(&self, node: Node) -> Namespace {
        self.tree.namespace(node.0)
    }

    fn node_at_page(&self, node: Node, page: usize) -> Node {
        Node(self.tree.node_at_page(node.0, page))
    }

    fn end_page(&self, node: Node) -> usize {
        self.tree.nodes[node.0].end()
    }

    fn end_node_at(&mut self, node: Node, pages: usize) -> Result<Node, Error> {
        let at = self.tree.node_ending_at(node.0, pages);
        let found = &self.tree.nodes[at];
        if pages < found.end() {
            return Ok(Node(self.split(at, pages - found.start as usize)?));
        }
        Ok(Node(at))
    }

    fn isolate_page(&mut self, node: Node, page: usize) -> Result<Node, Error> {
        Ok(Node(self.isolate(self.tree.node_at_page(node.0, page), page)?))
    }

    fn publish_portion(&self, slice: usize) -> usize {
        // A node of 32 KiB as a rule; of shorter ones as many as are whole, so that no portion has
        // to lengthen what the one before began. What is published in one is of one age.
        let most = (32 * slice / self.page_size).clamp(1, 16 * slice);
        most - most % self.tree.nodes.page_limit().clamp(1, most)
    }

    fn expect(&mut self, nodes: usize) -> Result<(), OutOfMemory> {
        self.tree.nodes.expect(nodes)?;
        self.rows.expect(nodes)
    }

    fn wanted_table(&mut self) -> Option<SpareTable> {
        self.table.wanted_spare()
    }

    fn keep_table(&mut self, spare: SpareTable) -> Result<(), SpareTable> {
        self.table.keep_spare(spare)
    }

    fn touch(&mut self, node: Node, below: Option<Node>) {
        self.segment_bytes -= self.tree.touch_path(node.0, below.map(|node| node.0));
    }

    fn touch_end(&mut self, walk: &Walk) -> Option<NodeId> {
        if self.tree.nodes[walk.node.0].end() != walk.pages {
            return None;
        }
        let id = self.tree.id(walk.node.0);
        self.segment_bytes -= self.tree.touch_path(walk.node.0, None);
        Some(id)
    }

    fn touch_some(&mut self, node: Node, nodes: usize, time: u64) -> Option<Node> {
        let (rest, freed) = self.tree.touch_some(node.0, nodes, time);
        self.segment_bytes -= freed;
        rest.map(Node)
    }

    fn insert(&mut self, from: Node, keys: Keys<'_>, pages: &[u32]) -> Result<Inserted, Error> {
        Ok(self.insert_below(from.0, keys.keys, pages)?)
    }

    fn insert_behind(&mut self, walk: &Walk, keys: Keys<'_>, pages: &[u32]) -> Result<Node, Error> {
        Ok(Node(self.insert_at(self.end_of_walk(walk), keys.keys, pages)?))
    }

    #[inline(always)] // of every chunk and decoded page
    fn insert_moving_lock(
        &mut self,
        from: Node,
        keys: Keys<'_>,
        pages: &[u32],
    ) -> Result<Inserted, Error> {
        if self.can_extend(from.0, pages.len()) {
            let keys = &keys.keys[..pages.len() * self.page_size];
            let node = Node(self.extend(from.0, keys, pages)?);
            return Ok(Inserted { node, existing: 0 });
        }
        let inserted = self.insert_below(from.0, keys.keys, pages)?;
        self.tree.move_lock_down(from.0, inserted.node.0);
        Ok(inserted)
    }

    fn lock(&mut self, node: Node) {
        self.tree.lock_path(node.0);
    }

    fn lock_short(&mut self, node: Node, nodes: usize) -> bool {
        self.tree.lock_short_path(node.0, nodes)
    }

    fn unlock_some(&mut self, node: Node, nodes: usize) -> Option<Node> {
        self.unlock_path(node.0, nodes).map(Node)
    }

    fn has_cleared(&self) -> bool {
        self.tree.next_cleared().is_some()
    }

    fn own_locks(&self, node: Node) -> u32 {
        let children = self.tree.nodes[node.0].children.iter();
        self.tree.own_locks(node.0, children.map(|sibling| sibling.node))
    }

    fn lock_total(&self) -> usize {
        self.tree.lock_total()
    }

    fn retain(&mut self, node: Node) {
        self.tree.keep_path(node.0);
    }

    fn retain_no_more_some(&mut self, node: Node, nodes: usize) -> Option<Node> {
        self.tree.keep_path_no_more(node.0, nodes).map(Node)
    }

    fn ancestor(&self, node: Node, nodes: usize) -> Option<Node> {
        self.tree.path(node.0).nth(nodes).map(Node)
    }

    fn retained_pages(&self) -> usize {
        self.tree.kept_pages
    }

    fn unprotected_pages(&self, node: Node, pages: usize) -> usize {
        self.tree.unprotected_pages(node.0, pages)
    }

    fn evict(&mut self, most: Portion, report: &mut dyn FnMut(&[u32], &[u32])) -> usize {
        self.evict_pages(most, Tree::next_victim, report)
    }

    fn make_detached_root(&mut self, namespace: &Namespace) -> Result<Node, Error> {
        Ok(Node(self.add_detached_root(namespace)?))
    }

    fn detach_root(&mut self, root: Node) {
        self.forget_root(root.0);
    }

    fn is_detached(&self, node: Node) -> bool {
        self.tree.is_detached(node.0)
    }

    fn sweep(&mut self, from: u32, count: usize) -> Swept {
        self.tree.sweep(from, count)
    }

    fn evict_cleared(&mut self, most: Portion, report: &mut dyn FnMut(&[u32], &[u32])) -> usize {
        self.evict_pages(most, Tree::next_cleared, report)
    }

    fn detached_pages(&self) -> usize {
        self.tree.detached_pages()
    }

    fn has_keys(&self, node: Node, keys: Keys<'_>, above: Option<Node>) -> bool {
        self.tree.path(node.0).take_while(|&at| Some(Node(at)) != above).all(|at| {
            let (label, start) = (&self.tree.nodes[at].label, self.tree.nodes[at].start as usize);
            let range = start * self.page_size..(start + label.len()) * self.page_size;
            keys.keys.get(range) == Some(label.keys(self.page_size))
        })
    }

    fn visit_path_from(&self, node: Node, first: usize, segment: &mut dyn FnMut(usize, &[u32])) {
        for at in self.tree.path_from(node.0, first) {
            let node = &self.tree.nodes[at];
            segment(node.start as usize, node.label.pages());
        }
    }

    fn add_pages(&self, node: Node, places: Range<usize>, list: &mut Vec<u32>) {
        let nodes = self.tree.path_from(node.0, places.start).map(|at| &self.tree.nodes[at]);
        add_pages_of(nodes.map(|node| (node.start, node.label.pages())), places, list);
    }

    fn visit_all(&self, visit: &mut dyn FnMut(&[u32], &[u32])) {
        for at in self.tree.nodes.numbers() {
            let label = &self.tree.nodes[at].label;
            visit(label.pages(), label.keys(self.page_size));
        }
    }

    fn id(&self, node: Node) -> NodeId {
        self.tree.id(node.0)
    }

    fn last_generation(&self) -> u32 {
        self.tree.nodes.last_generation()
    }

    fn resolve(&self, id: NodeId) -> Result<Node, Error> {
        self.tree.resolve(id)
    }

    fn can_have_groups(&self) -> bool {
        true
    }

    fn now(&self) -> u64 {
        self.tree.clock
    }

    fn victim_time(&self) -> Option<u64> {
        self.tree.victim_time()
    }

    fn visit_cold(&self, visit: &mut dyn FnMut(&[u32]) -> bool) {
        let _ = self.tree.cold().all(|at| visit(self.pages(Node(at))));
    }

    fn child_count(&self, node: Node) -> usize {
        self.tree.nodes[node.0].child_count()
    }

    fn info(&self, node: Node) -> NodeInfo {
        self.tree.info(node.0)
    }

    fn pages(&self, node: Node) -> &[u32] {
        self.tree.nodes[node.0].label.pages()
    }

    fn children(&self, node: Node) -> Result<Vec<Node>, Error> {
        let children = &self.tree.nodes[node.0].children;
        let mut found = Vec::new();
        found.try_reserve_exact(children.len()).map_err(OutOfMemory::from)?;
        found.extend(children.iter().map(|sibling| Node(sibling.node)));
        Ok(found)
    }

    fn node_count(&self) -> usize {
        self.tree.nodes.len()
    }

    fn reclaimable_pages(&self) -> usize {
        self.tree.reclaimable_pages
    }

    fn stats(&self) -> IndexStats {
        let seen = self.rows.bytes() + self.root_bytes() + self.garbage.bytes();
        let published = seen + size_of::<Self>() + size_of::<View>();
        self.tree.stats(self.table.bytes() + self.segment_bytes + published)
    }

    fn prober(&self) -> Result<Option<Box<dyn Probe>>, Error> {
        Ok(Some(try_box(Arc::clone(&self.view))?))
    }

    fn check(&self) -> Result<(), Error> {
        self.check_tree()
    }

    fn dump(&self, format: DumpFormat, hanging: &Hanging<'_>) -> Result<String, Error> {
        Ok(match format {
            DumpFormat::Json => self.dump_json(hanging)?,
            DumpFormat::Dot => self.dump_dot(hanging)?,
        })
    }
}
