//! Locks: a count on every node of a path. So an unlocked node has only unlocked nodes below it,
//! and the pages of unlocked nodes are exactly those that eviction can free.
//!
//! Retained sequences are counted beside their locks, so that what they keep together is known
//! without a look at a page.
use super::node::Held;
use super::{NONE, Tree};

impl<H: Held> Tree<H> {
    pub fn lock_path(&mut self, node: u32) {
        self.add_locks(node, None);
    }

    /// Counts a lock on each node from one up to, but without, another.
    fn add_locks(&mut self, from: u32, until: Option<u32>) {
        let mut next = Some(from).filter(|_| until != Some(from));
        while let Some(at) = next {
            let node = &mut self.nodes[at];
            let (was_unlocked, above) = (node.locks == 0, node.parent);
            node.locks += 1;
            if was_unlocked {
                self.reclaimable_pages -= node.page_count();
                self.retire(at);
            }
            next = Some(above).filter(|&above| above != NONE && until != Some(above));
        }
    }

    /// Counts one lock less on a node of the path, up which the caller goes, and gives it its place
    /// in the eviction order. True when that was the last lock of a node which is no leaf: the
    /// index may have more to do.
    pub fn count_unlock(&mut self, at: u32) -> bool {
        let node = &mut self.nodes[at];
        node.locks = node.locks.checked_sub(1).expect("the node was locked");
        if node.locks > 0 {
            return false;
        }
        self.reclaimable_pages += node.page_count();
        if !node.is_evictable() {
            return true;
        }
        self.enlist(at);
        false
    }

    /// Moves a sequence's lock from a node to one below it. Nothing above the upper one changes.
    pub fn move_lock_down(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.add_locks(to, Some(from));
    }

    /// The parent of a node that is no root.
    pub fn above(&self, at: u32) -> Option<u32> {
        Some(self.nodes[at].parent).filter(|&parent| parent != NONE)
    }

    /// Locks that were taken on this very node, of which these are the children.
    pub fn own_locks(&self, node: u32, children: impl Iterator<Item = u32>) -> u32 {
        self.nodes[node].locks - children.map(|child| self.nodes[child].locks).sum::<u32>()
    }

    /// Counts a retained sequence on a locked node and all above it.
    pub fn keep_path(&mut self, node: u32) {
        let mut next = Some(node);
        while let Some(at) = next {
            let node = &mut self.nodes[at];
            node.keepers += 1;
            self.kept_pages += if node.keepers == 1 { node.page_count() } else { 0 };
            next = self.above(at);
        }
    }

    /// Takes that back.
    pub fn keep_path_no_more(&mut self, node: u32) {
        let mut next = Some(node);
        while let Some(at) = next {
            let node = &mut self.nodes[at];
            node.keepers = node.keepers.checked_sub(1).expect("the node was kept");
            self.kept_pages -= if node.keepers == 0 { node.page_count() } else { 0 };
            next = self.above(at);
        }
    }
}
