//! Locks: a count on every node of a path. So an unlocked node has only unlocked nodes below it,
//! and the pages of unlocked nodes are exactly those that eviction can free.
use super::node::Held;
use super::{NONE, Tree};

impl<H: Held> Tree<H> {
    pub fn lock_path(&mut self, node: u32) {
        self.nodes[node].own_locks += 1;
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

    /// Takes back a lock that was taken on this very node. The caller goes up the path with
    /// `count_unlock`.
    pub fn take_lock_back(&mut self, node: u32) {
        let locks = &mut self.nodes[node].own_locks;
        *locks = locks.checked_sub(1).expect("the node was locked");
    }

    /// Counts one lock less on a node of the path, and gives it its place in the eviction order.
    /// True when that was the last lock of a node which is no leaf: the index may have more to do.
    pub fn count_unlock(&mut self, at: u32) -> bool {
        let node = &mut self.nodes[at];
        node.locks -= 1;
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
        self.nodes[from].own_locks -= 1;
        self.nodes[to].own_locks += 1;
        self.add_locks(to, Some(from));
    }

    /// The parent of a node that is no root.
    pub fn above(&self, at: u32) -> Option<u32> {
        Some(self.nodes[at].parent).filter(|&parent| parent != NONE)
    }
}
