//! Trees that nobody can find any more: a root without a namespace, and all below it.
//!
//! Who holds something in such a tree keeps it, and may add to it. What nobody holds waits in a
//! list of its own to be dropped, and goes before everything else.
use super::node::{Held, Queue, State};
use super::{Namespace, Tree};

/// What a look at some nodes found of trees that nobody can find.
#[derive(Debug, Clone, Copy)]
pub struct Swept {
    /// The node to go on with; None at the end.
    pub next: Option<u32>,
    /// Pages that locks protect.
    pub held: usize,
    /// Pages that none protects.
    pub unlocked: usize,
}

impl<H: Held> Tree<H> {
    /// A root that no namespace leads to; room was made for it.
    pub fn add_detached_root(&mut self, namespace: &Namespace) -> u32 {
        let root = self.nodes.allocate(State::Detached);
        self.nodes[root].root = root;
        self.roots.insert_detached(*namespace, root);
        root
    }

    /// Lets the namespace of a root lead nowhere; returns it.
    pub fn detach_root(&mut self, root: u32) -> Namespace {
        self.nodes[root].state = State::Detached;
        self.roots.detach(root)
    }

    /// Whether a node is in a tree that nobody can find.
    pub fn is_detached(&self, node: u32) -> bool {
        self.nodes[self.nodes[node].root].state == State::Detached
    }

    /// Looks at so many nodes from one on, and lets those leaves wait to be dropped that nobody can
    /// find or holds. Leaves that come later do so by themselves.
    pub fn sweep(&mut self, from: u32, count: usize) -> Swept {
        let all = self.nodes.opened();
        let end = (from as usize).saturating_add(count).min(all);
        let (mut held, mut unlocked) = (0, 0);
        for at in from..end as u32 {
            let node = &self.nodes[at];
            if node.state != State::Node || !self.is_detached(at) {
                continue;
            }
            *(if node.locks > 0 { &mut held } else { &mut unlocked }) += node.page_count();
            if node.is_evictable() && node.queue != Queue::Cleared {
                self.retire(at);
                self.enlist(at);
            }
        }
        Swept { next: (end < all).then_some(end as u32), held, unlocked }
    }

    /// Pages that nobody can find. O(nodes): for checks.
    pub fn detached_pages(&self) -> usize {
        let detached = self.nodes.numbers().filter(|&at| self.is_detached(at));
        detached.map(|at| self.nodes[at].page_count()).sum()
    }
}
