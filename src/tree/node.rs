//! A node of a tree: where it stands, its locks and its recency. What it holds is the index's own.
use std::ops::{Deref, DerefMut};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// What the nodes of an index hold, and what the tree has to know of it.
pub trait Held: std::fmt::Debug + Default {
    /// Pages of the node's own segment; none for a root.
    fn pages(&self) -> &[u32];

    /// How many those are.
    fn page_count(&self) -> usize;

    /// Nodes right below.
    fn child_count(&self) -> usize;

    /// Whether there are none, which may be told without a look at how many there are.
    fn is_childless(&self) -> bool {
        self.child_count() == 0
    }

    /// The whole node was used by one match. Adds how much memory that freed.
    fn touched(&mut self, _freed: &mut usize) {}
}

/// A node. Reads as what it holds.
#[derive(Debug)]
pub struct TreeNode<H> {
    pub held: H,
    /// Logical time of the last match, or of the insert: of the segment's end.
    pub last_access: u64,
    pub hits: u32,
    /// NONE for a root. The next free node in the free list.
    pub parent: u32,
    pub generation: u32,
    /// The root above; of a root, itself.
    pub root: u32,
    /// Pages of the prefix before this segment.
    pub start: u32,
    /// Locks that were taken on this node, and its children that are locked.
    pub locks: u32,
    /// Retained sequences that keep this node, each by one of the locks.
    pub keepers: u32,
    /// Neighbours in the eviction order: in the list, or in the tree of those that came late.
    pub older: u32,
    pub newer: u32,
    pub queue: Queue,
    pub state: State,
    /// Some key may be other than text. Never wrong when false.
    pub media: bool,
    /// The index has something to do when the last lock goes.
    pub waiting: bool,
}

/// Where a node stands in the eviction order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Not evictable.
    Out,
    /// In the list.
    List,
    /// In the tree of those that became evictable late.
    Late,
    /// Among those that nobody finds, which go first.
    Cleared,
}

/// What a place of the arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Free,
    Node,
    Root,
    /// A root that no namespace leads to any more.
    Detached,
}

impl<H: Held> TreeNode<H> {
    pub(super) fn new() -> Self {
        Self {
            held: H::default(),
            last_access: 0,
            hits: 0,
            parent: NONE,
            generation: 1,
            root: NONE,
            start: 0,
            locks: 0,
            keepers: 0,
            older: NONE,
            newer: NONE,
            queue: Queue::Out,
            state: State::Free,
            media: false,
            waiting: false,
        }
    }

    /// Pages of the prefix up to the end of this segment.
    pub fn end(&self) -> usize {
        self.start as usize + self.page_count()
    }

    /// A root, whether it can be found or not.
    pub fn is_root(&self) -> bool {
        matches!(self.state, State::Root | State::Detached)
    }

    /// A node with none below it.
    pub fn is_leaf(&self) -> bool {
        self.state == State::Node && self.is_childless()
    }

    /// A leaf that nobody protects: what eviction takes.
    pub fn is_evictable(&self) -> bool {
        self.is_leaf() && self.locks == 0
    }
}

impl<H> Deref for TreeNode<H> {
    type Target = H;

    #[inline]
    fn deref(&self) -> &H {
        &self.held
    }
}

impl<H> DerefMut for TreeNode<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut H {
        &mut self.held
    }
}
