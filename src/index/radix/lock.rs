//! Locks, and what waits for the last of them.
use super::RadixIndex;

impl RadixIndex {
    /// Undoes a lock that was taken on this very node, on so many nodes. Returns the one on which
    /// it is then.
    pub(super) fn unlock_path(&mut self, node: u32, nodes: usize) -> Option<u32> {
        let (mut at, mut left) = (node, nodes);
        while left > 0 {
            let unlocked = self.tree.count_unlock(at)?;
            if !unlocked.is_leaf {
                self.unprotect(at);
            }
            (at, left) = (unlocked.above?, left - 1);
        }
        // The child that it counted is locked no more.
        Some(at)
    }

    /// What becomes of a node above others, or of a root, when its last lock goes.
    fn unprotect(&mut self, at: u32) {
        if std::mem::take(&mut self.tree.nodes[at].waiting) {
            self.coalesce(at);
        } else if self.tree.nodes[at].children.is_empty() {
            self.drop_empty_root(at);
        }
    }
}
