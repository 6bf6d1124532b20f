//! Locks: each node counts those that were taken on it, and its children that are locked. So an
//! unlocked node has only unlocked nodes below it, and the pages of unlocked nodes are exactly
//! those that eviction can free. A lock below a node that is locked costs only the way to it.
//!
//! Retained sequences are counted beside their locks, in the same way, so that what they keep
//! together is known without a look at a page.
use super::node::Held;
use super::{NONE, Tree};

impl<H: Held> Tree<H> {
    /// Takes a lock on a node.
    pub fn lock_path(&mut self, node: u32) {
        let rest = self.lock_some(node, usize::MAX);
        debug_assert!(rest == NONE);
    }

    /// The same, unless so many nodes from this one up are not locked yet, and there are more.
    /// Whether it was taken.
    pub fn lock_short_path(&mut self, node: u32, nodes: usize) -> bool {
        let rest = self.lock_some(node, nodes);
        if rest != NONE {
            self.lock_no_more(node, rest);
        }
        rest == NONE
    }

    /// Counts a lock on so many nodes. Returns the next one, unless that was all.
    #[inline(always)]
    fn lock_some(&mut self, node: u32, nodes: usize) -> u32 {
        let (mut at, mut left, mut pages) = (node, nodes, 0);
        let mut places = self.nodes.all();
        while at != NONE && left > 0 {
            let passed = places.at(at);
            passed.locks += 1;
            if passed.locks > 1 {
                at = NONE;
                break;
            }
            pages += passed.page_count();
            (at, left) = (passed.parent, left - 1);
        }
        self.reclaimable_pages -= pages;
        // No other one can be a leaf, and so in the order.
        if self.nodes[node].locks == 1 {
            self.retire(node);
        }
        at
    }

    /// Takes that back, where no node of those was locked before.
    #[cold]
    fn lock_no_more(&mut self, node: u32, end: u32) {
        let mut at = node;
        while at != end {
            let unlocked = self.count_unlock(at).expect("nobody else has locked it");
            at = unlocked.above.expect("there are nodes above");
        }
    }

    /// Counts one lock less on a node, and gives it its place in the eviction order if that was the
    /// last; then the caller goes on with its parent. Nothing, when it is still locked.
    #[inline(always)]
    pub fn count_unlock(&mut self, at: u32) -> Option<Unlocked> {
        let node = &mut self.nodes[at];
        node.locks = node.locks.checked_sub(1).expect("the node was locked");
        if node.locks > 0 {
            return None;
        }
        let above = Some(node.parent).filter(|&above| above != NONE);
        let (is_leaf, is_waiting) = (node.is_evictable(), node.waiting);
        self.reclaimable_pages += node.page_count();
        if is_leaf {
            self.enlist(at);
        }
        Some(Unlocked { above, is_leaf, is_waiting })
    }

    /// Moves a lock from a node to one below it. Nothing above the upper one changes.
    #[inline(always)]
    pub fn move_lock_down(&mut self, from: u32, to: u32) {
        let mut at = to;
        // The last step down makes a locked child of what was the node's own lock.
        while at != from {
            let node = &mut self.nodes[at];
            let above = node.parent;
            node.locks += 1;
            if node.locks > 1 {
                self.nodes[from].locks -= 1;
                return;
            }
            self.reclaimable_pages -= node.page_count();
            if at == to {
                self.retire(at);
            }
            at = above;
        }
    }

    /// The parent of a node that is no root.
    pub fn above(&self, at: u32) -> Option<u32> {
        Some(self.nodes[at].parent).filter(|&parent| parent != NONE)
    }

    /// Locks that were taken on this very node, of which these are the children.
    pub fn own_locks(&self, node: u32, children: impl Iterator<Item = u32>) -> u32 {
        let locked = children.filter(|&child| self.nodes[child].locks > 0).count();
        self.nodes[node].locks - locked as u32
    }

    /// Locks that were taken on any node. O(nodes): for checks.
    pub fn lock_total(&self) -> usize {
        let (mut counted, mut by_parents) = (0, 0);
        for at in self.nodes.numbers() {
            let node = &self.nodes[at];
            counted += node.locks as usize;
            by_parents += (node.locks > 0 && !node.is_root()) as usize;
        }
        counted - by_parents
    }

    /// Counts a retained sequence on a locked node.
    pub fn keep_path(&mut self, node: u32) {
        let mut next = Some(node);
        while let Some(at) = next {
            let node = &mut self.nodes[at];
            node.keepers += 1;
            if node.keepers > 1 {
                return;
            }
            self.kept_pages += node.page_count();
            next = self.above(at);
        }
    }

    /// Takes that back, on so many nodes. Returns the one that it is on then.
    pub fn keep_path_no_more(&mut self, node: u32, nodes: usize) -> Option<u32> {
        let mut next = Some(node);
        for _ in 0..nodes {
            let at = next?;
            let node = &mut self.nodes[at];
            node.keepers = node.keepers.checked_sub(1).expect("the node was kept");
            if node.keepers > 0 {
                return None;
            }
            self.kept_pages -= node.page_count();
            next = self.above(at);
        }
        next
    }
}

/// A node that lost its last lock.
pub struct Unlocked {
    /// Its parent, which counted it as a locked child.
    pub above: Option<u32>,
    /// It can be evicted. Otherwise the index may have more to do with it.
    pub is_leaf: bool,
    /// The index has.
    pub is_waiting: bool,
}
