//! Locks: a count on every node of a path. So an unlocked node has only unlocked nodes below it,
//! and the pages of unlocked nodes are exactly those that eviction can free.
use super::super::Holder;
use super::RadixIndex;

impl RadixIndex {
    pub(super) fn lock_path(&mut self, node: u32, holder: Holder) {
        *self.nodes[node].locks_of(holder) += 1;
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
                self.reclaimable_pages -= node.label.len();
                self.retire(at);
            }
            next = Some(above).filter(|&above| above != super::NONE && until != Some(above));
        }
    }

    /// False when no such holder took a lock on this very node.
    pub(super) fn unlock_path(&mut self, node: u32, holder: Holder) -> bool {
        let locks = self.nodes[node].locks_of(holder);
        if *locks == 0 {
            return false;
        }
        *locks -= 1;
        let mut next = Some(node);
        while let Some(at) = next {
            let node = &mut self.nodes[at];
            next = Some(node.parent).filter(|&above| above != super::NONE);
            node.locks -= 1;
            if node.locks == 0 {
                self.unprotect(at);
            }
        }
        true
    }

    /// What becomes of a node when its last lock goes.
    fn unprotect(&mut self, at: u32) {
        let node = &mut self.nodes[at];
        self.reclaimable_pages += node.label.len();
        if node.is_evictable() {
            self.enlist(at);
        } else if std::mem::take(&mut node.merge_pending) {
            self.coalesce(at);
        } else if node.children.is_empty() {
            super::PrefixIndex::prune_root(self, super::Node(at));
        }
    }

    /// Moves a sequence's lock from a node to one below it. Nothing above the upper one changes.
    pub(super) fn move_lock_down(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.nodes[from].sequence_locks -= 1;
        self.nodes[to].sequence_locks += 1;
        self.add_locks(to, Some(from));
    }
}
