//! What is cached: prefixes of keys, page by page, and the order in which they go.
//!
//! An index knows keys and page numbers. It knows nothing of free pages, rows or sequences; it owns
//! no page, it says which page holds which keys.
#![forbid(unsafe_code)]

mod block_hash;
mod radix;
mod tags;
mod way;

pub(crate) use crate::tree::DEFAULT_NAMESPACE;
pub(crate) use crate::tree::NAMESPACE_WORDS;
pub use crate::tree::{IndexStats, Limits, Namespace, Node, NodeIds, NodeInfo, Swept};
pub use block_hash::BlockHashIndex;
pub use radix::RadixIndex;
pub use tags::{IdRange, Tags};
use way::First;
pub use way::{Ask, Path, Way, Ways};

use crate::error::Error;
use crate::grace::Reader;
use crate::ids::NodeId;
use crate::memory::{OutOfMemory, extend_from_end, try_box};
use crate::token::{Keys, PageDigest};
use crate::tree::{Hanging, SpareTable};
use std::ops::Range;

/// How far a query runs through the index. Reading it changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// The deepest node reached; the root when not even a page matched.
    pub node: Node,
    /// Pages from the beginning.
    pub pages: usize,
    /// The page after those, when some of its positions match too.
    pub partial: Option<Partial>,
    /// Some of the keys on the way may be other than text.
    pub media: bool,
}

/// A page whose first positions match.
#[derive(Debug, Clone, Copy)]
pub struct Partial {
    /// The node that has the page.
    pub node: Node,
    /// The page.
    pub page: u32,
    /// How many positions.
    pub positions: usize,
}

/// What an insert did.
#[derive(Debug, Clone, Copy)]
pub struct Inserted {
    /// The node that ends where the pages end; or further on, where the longest match of the keys
    /// ends.
    pub node: Node,
    /// Leading pages that were there already; the others are the index's now.
    pub existing: usize,
}

/// How much an eviction takes at most.
#[derive(Debug, Clone, Copy)]
pub struct Portion {
    /// Pages.
    pub pages: usize,
    /// Runs of pages, each of one node: a node that was not used for long is slow to get at.
    pub runs: usize,
}

impl Portion {
    /// So many pages, of any number of nodes.
    pub fn of(pages: usize) -> Self {
        Self { pages, runs: usize::MAX }
    }
}

/// How far a call goes down a path before it lets others in.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Nodes.
    pub nodes: usize,
    /// Keys, and what is left of the node in which those end.
    pub keys: usize,
}

impl Stretch {
    /// One of twice the length.
    pub fn twice(self) -> Self {
        Self { nodes: self.nodes.saturating_mul(2), keys: self.keys.saturating_mul(2) }
    }
}

/// A text form of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpFormat {
    /// One JSON object.
    Json,
    /// A Graphviz digraph.
    Dot,
}

/// Which index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// The radix tree, which compares tokens.
    #[default]
    Radix,
    /// Pages by the digests of all that they hold.
    BlockHash,
}

impl IndexKind {
    /// An empty index for pages of one size.
    pub fn open(
        self,
        page_size: usize,
        ids: impl Into<NodeIds>,
    ) -> Result<Box<dyn PrefixIndex>, Error> {
        Ok(match self {
            Self::Radix => try_box(RadixIndex::new(page_size, ids)?)?,
            Self::BlockHash => try_box(BlockHashIndex::new(page_size, ids)?)?,
        })
    }
}

/// How far a query runs through the index.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reach {
    /// Pages from the beginning.
    pub pages: usize,
    /// Positions of the page after those that match too.
    pub partial: usize,
    /// Some of the keys on the way may be other than text.
    pub media: bool,
}

impl Walk {
    /// One that ends with a node.
    pub fn to(node: Node, pages: usize) -> Self {
        Self { node, pages, partial: None, media: false }
    }

    /// How far it went.
    pub fn reach(&self) -> Reach {
        let partial = self.partial.map_or(0, |partial| partial.positions);
        Reach { pages: self.pages, partial, media: self.media }
    }
}

/// What an index lets threads ask that have no lock on it.
pub trait Probe: std::fmt::Debug + Send + Sync {
    /// Whether it is worth it that lookups of a batch go ahead.
    fn is_large(&self, reader: &Reader) -> bool;

    /// Where the keys of a namespace begin, as a hint.
    fn first_node(&self, namespace: &Namespace, reader: &Reader) -> Option<u32>;

    /// Lets calls of `reach` go on, which go ahead.
    fn go_on(&self, ways: &mut Ways<'_>, reader: &Reader);

    /// How far keys without images run through a namespace, at some moment during the call; with
    /// whether that went ahead. None when the index changes too fast to tell: whoever asks should
    /// take the lock.
    fn reach(
        &self,
        namespace: &Namespace,
        keys: &[u32],
        is_ahead: bool,
        reader: &Reader,
    ) -> Option<Reach>;
}

/// A prefix index. Keys and pages always come in whole pages unless said otherwise; `Node`s passed
/// in must be current.
///
/// What can fail runs out of memory, and has changed nothing then. The rest never needs memory that
/// there may not be: whoever undoes something can rely on it.
pub trait PrefixIndex: std::fmt::Debug + Send + Sync {
    /// The root of a namespace that has one.
    fn find_root(&self, namespace: &Namespace) -> Option<Node>;

    /// The root of a namespace, made if need be. A root that stays empty must be given to
    /// `prune_root`.
    fn make_root(&mut self, namespace: &Namespace) -> Result<Node, Error>;

    /// Drops a root that has neither nodes nor locks.
    fn prune_root(&mut self, root: Node);

    /// Follows any number of keys down from a node's end. Keys may be other than of tokens: nothing
    /// is found for those.
    fn walk(&self, from: Node, keys: Keys<'_>) -> Walk;

    /// The same for a stretch of the path. Returns also whether it may go on.
    fn walk_some(&self, from: Node, keys: Keys<'_>, most: Stretch) -> (Walk, bool);

    /// Whether a walk makes the digest of each page, which whoever asks may do before.
    fn digests_pages(&self) -> bool {
        false
    }

    /// The same walk down from a node that ends outside images, for keys whose first pages, of
    /// text, have these digests.
    fn walk_digested(&self, from: Node, keys: Keys<'_>, _digests: &[PageDigest]) -> Walk {
        self.walk(from, keys)
    }

    /// What the digest of the next page after a node's end is made from, where that page may be
    /// text.
    fn digest(&self, _node: Node) -> Option<PageDigest> {
        None
    }

    /// Gives `visit` the namespaces after one, in an order of their own, with their roots, until it
    /// returns false. None begins with the first.
    fn visit_roots(
        &self,
        after: Option<&Namespace>,
        visit: &mut dyn FnMut(&Namespace, Node) -> bool,
    );

    /// The namespace that a node is in.
    fn namespace(&self, node: Node) -> Namespace;

    /// The ancestor of a node, or the node itself, that has the given page of the prefix.
    fn node_at_page(&self, node: Node, page: usize) -> Node;

    /// The pages from the beginning to a node's end.
    fn end_page(&self, node: Node) -> usize;

    /// Makes a node end after `pages` pages of the prefix on which `node` lies, by a split if need
    /// be.
    fn end_node_at(&mut self, node: Node, pages: usize) -> Result<Node, Error>;

    /// Makes a node of one page of the prefix on which `node` lies, by splits before it and after
    /// it if need be: a lock on it protects no page behind it.
    fn isolate_page(&mut self, node: Node, page: usize) -> Result<Node, Error>;

    /// Pages to insert before others are let in, who wait for no more than about `slice` evictions.
    fn publish_portion(&self, slice: usize) -> usize;

    /// Makes room for what must not move while it grows, before there are so many nodes at most.
    fn expect(&mut self, nodes: usize) -> Result<(), OutOfMemory>;

    /// A larger table of its nodes that is needed soon, and is not all there: what is made by then
    /// keeps nobody waiting.
    fn wanted_table(&mut self) -> Option<SpareTable>;

    /// Takes such a table back, unless it is not wanted any more.
    fn keep_table(&mut self, spare: SpareTable) -> Result<(), SpareTable>;

    /// Marks a node and all above it as used now; of those one that is given, and those above it,
    /// are left out.
    fn touch(&mut self, node: Node, below: Option<Node>);

    /// Marks the path of a walk as used now that ends where a node does, and returns the node's id.
    /// Nothing where a match is to be taken step by step.
    fn touch_end(&mut self, _walk: &Walk) -> Option<NodeId> {
        None
    }

    /// Marks so many nodes of a path as used at a time, from a node up that is not evictable.
    /// Returns the next one.
    fn touch_some(&mut self, node: Node, nodes: usize, time: u64) -> Option<Node>;

    /// Puts pages with their keys after a node's end. Where the keys are known already, the pages
    /// there stay, and those given are not used. There may be more keys than pages: as far as the
    /// index has these too, the node of the result goes on.
    fn insert(&mut self, from: Node, keys: Keys<'_>, pages: &[u32]) -> Result<Inserted, Error>;

    /// The same for whoever has just walked to where the keys are new, whole pages of them: nothing
    /// is looked up again. Returns the node that ends where the pages end.
    fn insert_behind(&mut self, walk: &Walk, keys: Keys<'_>, pages: &[u32]) -> Result<Node, Error>;

    /// Like `insert`, for a sequence that holds a lock on `from` and moves it to the result. May
    /// make the node itself longer, under a new id, when nobody else can have a part in it.
    fn insert_moving_lock(
        &mut self,
        from: Node,
        keys: Keys<'_>,
        pages: &[u32],
    ) -> Result<Inserted, Error>;

    /// `insert`, or `insert_moving_lock` where the sequence holds one on `from`, for keys whose
    /// first pages, of text, have these digests.
    fn insert_digested(
        &mut self,
        (from, is_locked): (Node, bool),
        keys: Keys<'_>,
        pages: &[u32],
        _digests: &[PageDigest],
    ) -> Result<Inserted, Error> {
        match is_locked {
            true => self.insert_moving_lock(from, keys, pages),
            false => self.insert(from, keys, pages),
        }
    }

    /// Protects a node and all above it.
    fn lock(&mut self, node: Node);

    /// The same, unless more nodes than so many are to be passed. Whether it was done.
    fn lock_short(&mut self, node: Node, nodes: usize) -> bool;

    /// Undoes one lock that was taken on exactly this node.
    fn unlock(&mut self, node: Node) {
        self.unlock_some(node, usize::MAX);
    }

    /// The same on so many nodes of the path. Returns the node on which the lock is then, unless
    /// that was all.
    fn unlock_some(&mut self, node: Node, nodes: usize) -> Option<Node>;

    /// Whether leaves that nobody can find or holds wait to be dropped.
    fn has_cleared(&self) -> bool;

    /// Locks that were taken on exactly this node. O(children): for checks.
    fn own_locks(&self, node: Node) -> u32;

    /// Locks that were taken on any node. O(nodes): for checks.
    fn lock_total(&self) -> usize;

    /// Counts a retained sequence, whose lock is on this node, on it and all above it.
    fn retain(&mut self, node: Node);

    /// Takes that back.
    fn retain_no_more(&mut self, node: Node) {
        self.retain_no_more_some(node, usize::MAX);
    }

    /// The same on so many nodes of the path. Returns the node that is then kept, unless that was
    /// all.
    fn retain_no_more_some(&mut self, node: Node, nodes: usize) -> Option<Node>;

    /// The ancestor so many nodes above one, if there is one.
    fn ancestor(&self, node: Node, nodes: usize) -> Option<Node>;

    /// Whether more nodes than so many are above one.
    fn is_deep(&self, node: Node, nodes: usize) -> bool {
        // Every node has a page.
        self.end_page(node) > nodes && self.ancestor(node, nodes).is_some()
    }

    /// Pages that retained sequences keep, each counted once. O(1).
    fn retained_pages(&self) -> usize;

    /// Pages of unlocked nodes that a lock of this node would protect, if the node ended after
    /// `pages` pages of the prefix.
    fn unprotected_pages(&self, node: Node, pages: usize) -> usize;

    /// Drops pages, least recently used first. Reports them by runs of one node, with
    /// their keys, of which the keys of text may be left out: of a run the last page goes first.
    fn evict(&mut self, most: Portion, report: &mut dyn FnMut(&[u32], &[u32])) -> usize;

    /// Lets a namespace lead to its root no more: nothing below it can be found from now on. Who
    /// holds nodes there keeps them. O(log(namespaces)).
    fn detach_root(&mut self, root: Node);

    /// A root that no namespace leads to. If it stays empty it must be given to `prune_root`.
    fn make_detached_root(&mut self, namespace: &Namespace) -> Result<Node, Error>;

    /// Whether nothing can find a node.
    fn is_detached(&self, node: Node) -> bool;

    /// Looks at so many nodes from a number on, for what nobody can find or holds. O(nodes), and
    /// the cost of an eviction's turn for each leaf that is found.
    fn sweep(&mut self, from: u32, count: usize) -> Swept;

    /// `evict` for leaves that nobody can find or holds.
    fn evict_cleared(&mut self, most: Portion, report: &mut dyn FnMut(&[u32], &[u32])) -> usize;

    /// Pages that nobody can find. O(nodes): for checks.
    fn detached_pages(&self) -> usize;

    /// Whether the prefix that ends at a node has exactly these keys, of which the first are those
    /// that lead to the node above which they are known.
    fn has_keys(&self, node: Node, keys: Keys<'_>, above: Option<Node>) -> bool;

    /// Calls `segment` with the pages of each node from the given one up to the one that has the
    /// page `first` of the prefix, and the place of the first of them in it.
    fn visit_path_from(&self, node: Node, first: usize, segment: &mut dyn FnMut(usize, &[u32]));

    /// The same up to the root.
    fn visit_path(&self, node: Node, segment: &mut dyn FnMut(usize, &[u32])) {
        self.visit_path_from(node, 0, segment);
    }

    /// Adds the pages at some places of the prefix that ends at a node to a list, which has room.
    fn add_pages(&self, node: Node, places: Range<usize>, list: &mut Vec<u32>);

    /// Whether it is worth it that lookups of a batch go ahead.
    fn is_large(&self) -> bool {
        false
    }

    /// Lets walks go on, which go ahead.
    fn go_on(&self, _ways: &mut Ways<'_>) {}

    /// Says where walks are likely to come along from now on: they look there first.
    fn lead(&mut self, _path: &Path) {}

    /// Calls `visit` with the pages and keys of every node; keys of text may be left out.
    fn visit_all(&self, visit: &mut dyn FnMut(&[u32], &[u32]));

    /// The id of a node.
    fn id(&self, node: Node) -> NodeId;

    /// No id of a node had a higher generation.
    fn last_generation(&self) -> u32;

    /// The node of an id that is not stale.
    fn resolve(&self, id: NodeId) -> Result<Node, Error>;

    /// Whether pages of several groups can hang on those of its nodes.
    fn can_have_groups(&self) -> bool {
        false
    }

    /// When the last node was used, in the index's own time.
    fn now(&self) -> u64;

    /// When the pages were used that an eviction would take next.
    fn victim_time(&self) -> Option<u64>;

    /// Gives `visit` the pages of leaves, and of what is above those and goes with them, in the
    /// order in which they would go, until it returns false: of each the last page first.
    fn visit_cold(&self, visit: &mut dyn FnMut(&[u32]) -> bool);

    /// Nodes right below a node.
    fn child_count(&self, node: Node) -> usize;

    /// What can be seen of a node.
    fn info(&self, node: Node) -> NodeInfo;

    /// The pages of a node's own segment.
    fn pages(&self, node: Node) -> &[u32];

    /// The nodes right below, in an order that their content decides.
    fn children(&self, node: Node) -> Result<Vec<Node>, Error>;

    /// Totals. O(1).
    fn stats(&self) -> IndexStats;

    /// Of those, the nodes.
    fn node_count(&self) -> usize;

    /// Of those, the pages of nodes that are not locked: what calls ask for all the time.
    fn reclaimable_pages(&self) -> usize;

    /// What threads may ask that have no lock, if this index offers that. It stays good, and
    /// current, whatever happens to the index.
    fn prober(&self) -> Result<Option<Box<dyn Probe>>, Error> {
        Ok(None)
    }

    /// Checks every invariant; names the first that is broken.
    fn check(&self) -> Result<(), Error>;

    /// The whole tree as text; `hanging` writes what hangs on the pages of a node.
    fn dump(&self, format: DumpFormat, hanging: &Hanging<'_>) -> Result<String, Error>;
}

/// Adds the pages at some places of a path to a list, which has room. Nodes come from the end of
/// the path on, each as its pages and the place of the first.
#[inline(always)]
fn add_pages_of<'a>(
    nodes: impl Iterator<Item = (u32, &'a [u32])>,
    places: Range<usize>,
    list: &mut Vec<u32>,
) {
    extend_from_end(list, places.len(), |room| {
        for (start, pages) in nodes {
            let start = start as usize;
            let end = pages.len().min(places.end.saturating_sub(start));
            room.put(&pages[places.start.saturating_sub(start).min(end)..end]);
        }
    });
}
