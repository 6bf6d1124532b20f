//! What can be seen of a tree from outside.
use crate::ids::NodeId;

/// A node, for as long as nothing changes the index, or for as long as it is locked: a split leaves
/// it with the deeper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub(crate) u32);

/// What can be seen of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeInfo {
    /// Locks on it, and its children that are locked.
    pub locks: u32,
    /// The node above.
    pub parent: Option<NodeId>,
    /// Positions of its own segment.
    pub positions: usize,
    /// Pages of its own segment.
    pub pages: usize,
    /// Positions from the beginning to its end.
    pub end_position: usize,
    /// Nodes right below.
    pub children: usize,
    /// Logical time of the last match.
    pub last_access: u64,
    /// Matches.
    pub hits: u64,
}

/// Totals of an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct IndexStats {
    /// Pages that it holds.
    pub cached_pages: usize,
    /// Pages of nodes that are not locked.
    pub reclaimable_pages: usize,
    /// Nodes, without roots.
    pub nodes: usize,
    /// Nodes with none below them: prefixes that no other one goes on.
    pub leaves: usize,
    /// Roots.
    pub namespaces: usize,
    /// Bytes of memory.
    pub bytes: usize,
}
