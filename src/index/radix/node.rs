//! What a node of the radix tree holds: a segment of keys and pages between its parent's end and
//! its own.
use super::ages::{Ages, End};
use super::row::Row;
use super::siblings::Siblings;
use crate::tree::{Held, Label, TreeNode};

/// A segment, and what hangs below it.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) label: Label,
    pub(super) children: Siblings,
    /// Times of last use of the parts before the end, where they are older than the node's.
    pub(super) ages: Ages,
}

// A bound of the design, with what is published of a node.
const _: () = assert!(cfg!(loom) || size_of::<TreeNode<Segment>>() + size_of::<Row>() <= 128);

impl Held for Segment {
    fn pages(&self) -> &[u32] {
        self.label.pages()
    }

    #[inline]
    fn page_count(&self) -> usize {
        self.label.len()
    }

    #[inline]
    fn child_count(&self) -> usize {
        self.children.len()
    }

    #[inline]
    fn is_childless(&self) -> bool {
        self.children.is_empty()
    }

    #[inline]
    fn touched(&mut self, freed: &mut usize) {
        if !self.ages.is_empty() {
            *freed += self.ages.clear();
        }
    }
}

impl Segment {
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.label.bytes() + self.children.bytes() + self.ages.bytes()
    }
}

/// Where a node's segment ends, and when that end was used last.
pub(super) fn end_of(node: &TreeNode<Segment>) -> End {
    (node.label.len(), node.last_access)
}

/// When the first page of a node's segment was used last.
pub(super) fn first_access(node: &TreeNode<Segment>) -> u64 {
    node.ages.time_of(0, end_of(node))
}
