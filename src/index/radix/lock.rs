//! Locks, and what waits for the last of them.
use super::RadixIndex;

impl RadixIndex {
    /// Undoes a lock that was taken on this very node, on so many nodes. Returns the one on which
    /// it is then.
    pub(super) fn unlock_path(&mut self, node: u32, nodes: usize) -> Option<u32> {
        let (mut at, mut left) = (node, nodes);
        while left > 0 {
            let unlocked = self.tree.count_unlock(at)?;
            if unlocked.is_waiting && !unlocked.is_leaf {
                self.tree.nodes[at].waiting = false;
                self.coalesce(at);
            } else if unlocked.above.is_none() && self.tree.nodes[at].children.is_empty() {
                self.drop_empty_root(at);
            }
            (at, left) = (unlocked.above?, left - 1);
        }
        // The child that it counted is locked no more.
        Some(at)
    }
}
