//! The block-hash index: a node for each page, found by the digest of the page and of all before.
//!
//! ```text
//! root ─ page ─ page ─┬─ page ─ page      digest of a page = SHA-256(digest before, its tokens)
//!                     └─ page
//! ```
//!
//! No token is kept: two prefixes are the same when their digests are. So a page can be named
//! outside this process, by whoever can hash tokens. Parts of pages are not compared.

mod check;
mod edit;
mod entry;
mod walk;

use super::{
    DumpFormat, IndexStats, Inserted, Namespace, Node, NodeIds, NodeInfo, Portion, PrefixIndex,
    Stretch, Walk, add_pages_of,
};
use crate::error::Error;
use crate::ids::NodeId;
use crate::memory::{OutOfMemory, seed};
use crate::token::{DigestChain, KeyPieces, Keys, PageDigest, PageHasher};
use crate::tree::{ChildTable, Hanging, Held, SpareTable, Swept, Text, Tree};
use entry::Entry;
use foldhash::fast::FixedState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

/// Nodes that are passed in the time that it takes to hash a page.
const HASHED: usize = 8;

/// A prefix index that knows pages by their digests.
///
/// Sources: block tables keyed by chained hashes are how vLLM caches prefixes; that the chain is
/// cryptographic, what is hashed, leaf-first eviction and locks by path are described in
/// `docs/block_hash.md`.
#[derive(Debug)]
pub struct BlockHashIndex {
    page_size: usize,
    tree: Tree<Entry>,
    /// Nodes by their digest.
    table: ChildTable,
    table_hash: FixedState,
    hasher: PageHasher,
    /// Heap memory of what entries keep of pages with other than text.
    media_bytes: usize,
}

impl BlockHashIndex {
    /// An empty index whose nodes get these ids.
    pub fn new(page_size: usize, ids: impl Into<NodeIds>) -> Result<Self, Error> {
        let ids = ids.into();
        Ok(Self {
            page_size,
            tree: Tree::new(page_size, ids),
            table: ChildTable::new()?,
            table_hash: FixedState::with_seed(seed()),
            hasher: PageHasher::new(page_size),
            media_bytes: 0,
        })
    }

    /// Where a digest stands in the table. Eight of its bytes will do: they decide nothing. And the
    /// root: what was cleared has its digests still, once for each time that it was published.
    fn place(&self, root: u32, digest: &PageDigest) -> u32 {
        let mut hasher = self.table_hash.build_hasher();
        hasher.write_u64(u64::from_le_bytes(digest.0[..8].try_into().expect("eight bytes")));
        hasher.write_u32(root);
        (hasher.finish() >> 16) as u32
    }

    /// The node of a digest below a root.
    fn find(&self, root: u32, digest: &PageDigest) -> Option<u32> {
        self.find_at(root, digest, self.place(root, digest))
    }

    /// The same, where its place in the table is known. What was cleared has its digests still, and
    /// below another root.
    #[inline]
    fn find_at(&self, root: u32, digest: &PageDigest, place: u32) -> Option<u32> {
        let nodes = &self.tree.nodes;
        self.table.find(place, |at| nodes[at].digest == *digest && nodes[at].root == root)
    }

    /// The digests of the pages of keys that follow a node.
    fn chain<'a>(&self, from: u32, keys: Keys<'a>) -> DigestChain<KeyPieces<'a>> {
        let node = &self.tree.nodes[from];
        let pieces = KeyPieces::new(keys, node.open_image());
        DigestChain::new(self.hasher, node.digest, pieces)
    }

    /// The same behind the first pages, of text, whose digests are known.
    fn chain_behind<'a>(
        &self,
        from: u32,
        keys: Keys<'a>,
        digests: &[PageDigest],
    ) -> DigestChain<KeyPieces<'a>> {
        let Some(&last) = digests.last() else { return self.chain(from, keys) };
        let (first, rest) = keys.keys.split_at(digests.len() * self.page_size);
        debug_assert!(self.are_digests(from, Keys { keys: first, ..keys }, digests));
        DigestChain::new(self.hasher, last, KeyPieces::new(Keys { keys: rest, ..keys }, None))
    }

    /// Whether these are the digests of pages that follow a node: for checks.
    fn are_digests(&self, from: u32, keys: Keys<'_>, digests: &[PageDigest]) -> bool {
        let (mut left, mut same) = (digests.iter(), true);
        self.chain(from, keys).next_pages(digests.len(), |made| same &= left.next() == Some(&made));
        same && left.next().is_none()
    }
}

impl PrefixIndex for BlockHashIndex {
    fn find_root(&self, namespace: &Namespace) -> Option<Node> {
        self.tree.find_root(namespace).map(Node)
    }

    fn make_root(&mut self, namespace: &Namespace) -> Result<Node, Error> {
        if let Some(root) = self.find_root(namespace) {
            return Ok(root);
        }
        self.tree.try_reserve_root()?;
        let root = self.tree.add_root(namespace);
        self.tree.nodes[root].digest = namespace.digest();
        Ok(Node(root))
    }

    fn prune_root(&mut self, root: Node) {
        self.tree.prune_root(root.0);
    }

    fn walk(&self, from: Node, keys: Keys<'_>) -> Walk {
        self.walk_down(from.0, keys)
    }

    fn walk_some(&self, from: Node, keys: Keys<'_>, most: Stretch) -> (Walk, bool) {
        // A node has one page, and that is hashed: it takes some times what it takes to pass one.
        let pages = most.nodes.div_ceil(HASHED);
        let some = keys.keys.len().min(pages.saturating_mul(self.page_size));
        let walk = self.walk_down(from.0, Keys { keys: &keys.keys[..some], ..keys });
        let found = (walk.pages - self.end_page(from)) * self.page_size;
        (walk, found == some && some < keys.keys.len())
    }

    fn digests_pages(&self) -> bool {
        true
    }

    fn walk_digested(&self, from: Node, keys: Keys<'_>, digests: &[PageDigest]) -> Walk {
        self.walk_known(from.0, keys, digests)
    }

    fn digest(&self, node: Node) -> Option<PageDigest> {
        let node = &self.tree.nodes[node.0];
        node.open_image().is_none().then_some(node.digest)
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
        // A node ends after every page: nothing is ever split.
        Ok(Node(self.tree.node_ending_at(node.0, pages)))
    }

    fn isolate_page(&mut self, node: Node, page: usize) -> Result<Node, Error> {
        Ok(self.node_at_page(node, page))
    }

    fn publish_portion(&self, slice: usize) -> usize {
        // Each is hashed, and gets a node: a quarter of a microsecond.
        slice.div_ceil(4)
    }

    fn expect(&mut self, nodes: usize) -> Result<(), OutOfMemory> {
        self.tree.nodes.expect(nodes)
    }

    fn wanted_table(&mut self) -> Option<SpareTable> {
        self.table.wanted_spare()
    }

    fn keep_table(&mut self, spare: SpareTable) -> Result<(), SpareTable> {
        self.table.keep_spare(spare)
    }

    fn touch(&mut self, node: Node, below: Option<Node>) {
        self.tree.touch_path(node.0, below.map(|node| node.0));
    }

    fn touch_some(&mut self, node: Node, nodes: usize, time: u64) -> Option<Node> {
        self.tree.touch_some(node.0, nodes, time).0.map(Node)
    }

    fn insert(&mut self, from: Node, keys: Keys<'_>, pages: &[u32]) -> Result<Inserted, Error> {
        Ok(self.insert_below(from.0, keys, pages, &[])?)
    }

    fn insert_behind(&mut self, walk: &Walk, keys: Keys<'_>, pages: &[u32]) -> Result<Node, Error> {
        Ok(self.insert_below(walk.node.0, keys, pages, &[])?.node)
    }

    fn insert_moving_lock(
        &mut self,
        from: Node,
        keys: Keys<'_>,
        pages: &[u32],
    ) -> Result<Inserted, Error> {
        self.insert_digested((from, true), keys, pages, &[])
    }

    fn insert_digested(
        &mut self,
        (from, is_locked): (Node, bool),
        keys: Keys<'_>,
        pages: &[u32],
        digests: &[PageDigest],
    ) -> Result<Inserted, Error> {
        let inserted = self.insert_below(from.0, keys, pages, digests)?;
        if is_locked {
            self.tree.move_lock_down(from.0, inserted.node.0);
        }
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
        self.tree.own_locks(node.0, self.children_of(node.0))
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
        self.tree.try_reserve_root()?;
        let root = self.tree.add_detached_root(namespace);
        self.tree.nodes[root].digest = namespace.digest();
        Ok(Node(root))
    }

    fn detach_root(&mut self, root: Node) {
        self.tree.detach_root(root.0);
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
        let from = above.map_or(self.tree.nodes[node.0].root, |above| above.0);
        let (known, pages) = (self.tree.nodes[from].end(), self.tree.nodes[node.0].end());
        if keys.keys.len() != pages * self.page_size || known > pages {
            return false;
        }
        let rest = Keys { keys: &keys.keys[known * self.page_size..], ..keys };
        let mut chain = self.chain(from, rest);
        let mut last = self.tree.nodes[from].digest;
        let made = chain.next_pages(pages - known, |digest| last = digest);
        made == pages - known && last == self.tree.nodes[node.0].digest
    }

    fn visit_path_from(&self, node: Node, first: usize, segment: &mut dyn FnMut(usize, &[u32])) {
        for at in self.tree.path_from(node.0, first) {
            let node = &self.tree.nodes[at];
            segment(node.start as usize, node.pages());
        }
    }

    fn add_pages(&self, node: Node, places: Range<usize>, list: &mut Vec<u32>) {
        let nodes = self.tree.path_from(node.0, places.start).map(|at| &self.tree.nodes[at]);
        add_pages_of(nodes.map(|node| (node.start, node.pages())), places, list);
    }

    fn visit_all(&self, visit: &mut dyn FnMut(&[u32], &[u32])) {
        for at in self.tree.nodes.numbers() {
            let node = &self.tree.nodes[at];
            visit(node.pages(), node.media_keys());
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
        self.tree.nodes[node.0].pages()
    }

    fn children(&self, node: Node) -> Result<Vec<Node>, Error> {
        let mut found = Vec::new();
        let count = self.tree.nodes[node.0].child_count();
        found.try_reserve_exact(count).map_err(OutOfMemory::from)?;
        found.extend(self.children_of(node.0).map(Node));
        found.sort_unstable_by_key(|at| self.tree.nodes[at.0].digest);
        Ok(found)
    }

    fn node_count(&self) -> usize {
        self.tree.nodes.len()
    }

    fn reclaimable_pages(&self) -> usize {
        self.tree.reclaimable_pages
    }

    fn stats(&self) -> IndexStats {
        self.tree.stats(self.table.bytes() + self.media_bytes + size_of::<Self>())
    }

    fn check(&self) -> Result<(), Error> {
        self.check_entries()
    }

    fn dump(&self, format: DumpFormat, hanging: &Hanging<'_>) -> Result<String, Error> {
        Ok(match format {
            DumpFormat::Json => {
                let content = |text: &mut Text, entry: &Entry| {
                    write!(text, "\"digest\": \"{}\"", entry.digest)
                };
                self.tree.dump_json(content, hanging)?
            }
            DumpFormat::Dot => {
                let content = |text: &mut Text, entry: &Entry| {
                    entry.digest.0[..4].iter().try_for_each(|byte| write!(text, "{byte:02x}"))
                };
                self.tree.dump_dot(content, hanging)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What was cleared keeps its digests, as often as it was published: each stands elsewhere.
    #[test]
    fn one_digest_below_many_roots_has_many_places() {
        let index = BlockHashIndex::new(1, 7_u8).unwrap();
        let digest = PageDigest([5; 32]);
        let places: BTreeSet<u32> = (0..1000).map(|root| index.place(root, &digest)).collect();
        assert!(places.len() > 990, "{} places", places.len());
    }
}
