//! Making one node of a node and its only child.
//!
//! Nobody asks for a merge: it is left for later when there is no memory for it.
use super::RadixIndex;
use super::ages::Ages;
use super::node::{end_of, first_access};
use super::siblings::Siblings;
use crate::memory::OutOfMemory;
use crate::tree::State;

impl RadixIndex {
    /// Coalesces a node with its only child, and that with its own, as far as possible.
    ///
    /// Only when neither is locked and the parent was not used after the child: parts of a segment
    /// may be older than its end (`Ages`), but not younger. And no segment exceeds the limit. The
    /// child's id stays.
    pub(super) fn coalesce(&mut self, mut parent: u32) {
        while let Some(child) = self.mergeable_child(parent) {
            let next = self.tree.nodes[parent].parent;
            let merged = self.changing_children(next, |index| {
                index.changing_children(parent, |index| index.merge(parent, child))
            });
            if merged.is_err() {
                // Two nodes do as well as one. The next one to unlock them tries again.
                self.tree.nodes[parent].waiting = true;
                return;
            }
            parent = next;
        }
    }

    fn mergeable_child(&mut self, parent: u32) -> Option<u32> {
        let above = &self.tree.nodes[parent];
        let child = above.children.only().filter(|_| above.state == State::Node)?;
        let below = &self.tree.nodes[child];
        let pages = above.label.len() + below.label.len();
        if pages > self.tree.nodes.page_limit() || above.last_access > first_access(below) {
            return None;
        }
        if above.locks > 0 {
            // Whoever takes the last lock away tries again.
            self.tree.nodes[parent].waiting = true;
            return None;
        }
        Some(child)
    }

    /// Refused without memory, or without generations for what would be a long node.
    fn merge(&mut self, parent: u32, child: u32) -> Result<(), OutOfMemory> {
        let nodes = &self.tree.nodes;
        if !nodes.may_have(child, nodes[parent].label.len() + nodes[child].label.len()) {
            return Err(OutOfMemory);
        }
        let above = self.tree.nodes[parent].parent;
        let child_hash = self.child_hash(parent, self.first_page(child));
        let page = self.first_page(parent);
        let (hash, place) = (self.child_hash(above, page), self.place(above, parent, page));
        self.join(parent, child)?;
        self.table.remove(child_hash, child);
        self.edit_children(parent, |children, _| *children = Siblings::default());
        let pages = self.tree.nodes[child].label.len();
        self.substitute([parent, child], pages, hash, place);
        let old = &self.tree.nodes[parent];
        let (start, media) = (old.start, old.media);
        self.release(parent);
        let node = &mut self.tree.nodes[child];
        node.start = start;
        node.media |= media;
        self.publish(child);
        Ok(())
    }

    /// Moves what a node holds to the front of what its child holds.
    fn join(&mut self, parent: u32, child: u32) -> Result<(), OutOfMemory> {
        let (above, below) = (&self.tree.nodes[parent], &self.tree.nodes[child]);
        let bytes = above.held.bytes() + below.held.bytes();
        let ages = Ages::joined(&above.ages, end_of(above), &below.ages, end_of(below))?;
        let mut front = std::mem::take(&mut self.tree.nodes[parent].label);
        let joined = self.tree.nodes[child].label.prepend(self.page_size, &mut front);
        if joined.is_err() {
            self.tree.nodes[parent].label = front;
            return joined;
        }
        self.tree.nodes[parent].ages = Ages::default();
        self.tree.nodes[child].ages = ages;
        let after = self.tree.nodes[parent].held.bytes() + self.tree.nodes[child].held.bytes();
        self.segment_bytes = self.segment_bytes + after - bytes;
        Ok(())
    }
}
