//! Which leaf goes next: the one that was used longest ago.
//!
//! Evictable leaves wait in a list by time of last use. A leaf that becomes evictable is nearly
//! always the one that was used last, and goes to its end; one that was used earlier (it was locked
//! for long, or it was a parent until now) goes into an ordered tree beside it. The next victim is
//! the older of the two fronts. So a touch, a lock and an eviction cost O(1) in the usual case,
//! O(log n) at worst. The links of both lie in the nodes: nothing here needs memory.
//!
//! Leaves that nobody can find any more wait in a list of their own. They go before all others.
//!
//! No two leaves have the same time: nodes that were used by one match lie on one path.
use super::Tree;
use super::node::{Held, NONE, Queue};
use crate::error::{Message, text};
use crate::memory::treap;

#[derive(Debug)]
pub struct EvictionOrder {
    oldest: u32,
    newest: u32,
    /// The root of those that became evictable late.
    late: u32,
    /// The first of those that were cleared.
    cleared: u32,
}

impl EvictionOrder {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE, late: NONE, cleared: NONE }
    }
}

impl<H: Held> Tree<H> {
    /// Marks a path as used now, up to its root or below a node of it. Returns how much memory that
    /// freed.
    #[inline(always)]
    pub fn touch_path(&mut self, from: u32, below: Option<u32>) -> usize {
        // Only the lowest node can be a leaf.
        let queue = self.nodes[from].queue;
        if queue == Queue::List && self.roots.detached() == 0 {
            self.move_to_end(from);
            return self.mark_path(from, below);
        }
        self.retire(from);
        let freed = self.mark_path(from, below);
        if queue != Queue::Out {
            self.enlist(from);
        }
        freed
    }

    /// The same but for the order of leaves.
    #[inline(always)]
    fn mark_path(&mut self, from: u32, below: Option<u32>) -> usize {
        let (now, mut freed) = (self.tick(), 0);
        let (mut at, end) = (from, below.unwrap_or(NONE));
        let mut nodes = self.nodes.all();
        while at != end {
            let node = nodes.at(at);
            node.last_access = now;
            node.held.touched(&mut freed);
            node.hits = node.hits.saturating_add(1);
            at = node.parent;
        }
        freed
    }

    /// Marks some nodes of a path, from one up that is in no order, as used at a time; others may
    /// have been used later. Returns the next node, and how much memory that freed.
    pub fn touch_some(&mut self, from: u32, nodes: usize, time: u64) -> (Option<u32>, usize) {
        debug_assert!(self.nodes[from].queue == Queue::Out);
        let (mut at, mut freed) = (from, 0);
        for _ in 0..nodes {
            let node = &mut self.nodes[at];
            node.last_access = node.last_access.max(time);
            node.held.touched(&mut freed);
            node.hits = node.hits.saturating_add(1);
            at = node.parent;
            if at == NONE {
                return (None, freed);
            }
        }
        (Some(at), freed)
    }

    /// Puts a leaf that became evictable in its place.
    #[inline(always)]
    pub fn enlist(&mut self, leaf: u32) {
        debug_assert!(self.nodes[leaf].is_evictable() && self.nodes[leaf].queue == Queue::Out);
        if self.roots.detached() > 0 && self.is_detached(leaf) {
            return self.enlist_cleared(leaf);
        }
        let time = self.nodes[leaf].last_access;
        let newest = self.order.newest;
        if newest != NONE && self.nodes[newest].last_access > time {
            return self.enlist_late(leaf);
        }
        let node = &mut self.nodes[leaf];
        (node.queue, node.older, node.newer) = (Queue::List, newest, NONE);
        match newest {
            NONE => self.order.oldest = leaf,
            _ => self.nodes[newest].newer = leaf,
        }
        self.order.newest = leaf;
    }

    /// Moves a leaf of the list to its end: it was used just now.
    #[inline(always)]
    fn move_to_end(&mut self, leaf: u32) {
        let mut nodes = self.nodes.all();
        let node = nodes.at(leaf);
        let (older, newer) = (node.older, node.newer);
        if newer == NONE {
            return;
        }
        let last = std::mem::replace(&mut self.order.newest, leaf);
        (node.older, node.newer) = (last, NONE);
        match older {
            NONE => self.order.oldest = newer,
            _ => nodes.at(older).newer = newer,
        }
        nodes.at(newer).older = older;
        nodes.at(last).newer = leaf;
    }

    #[cold]
    fn enlist_cleared(&mut self, leaf: u32) {
        let first = std::mem::replace(&mut self.order.cleared, leaf);
        let node = &mut self.nodes[leaf];
        (node.queue, node.older, node.newer) = (Queue::Cleared, NONE, first);
        if first != NONE {
            self.nodes[first].older = leaf;
        }
    }

    #[cold]
    fn enlist_late(&mut self, leaf: u32) {
        self.nodes[leaf].queue = Queue::Late;
        self.order.late = treap::insert(&mut self.nodes, self.order.late, leaf);
    }

    #[cold]
    fn retire_late(&mut self, leaf: u32) {
        self.order.late = treap::remove(&mut self.nodes, self.order.late, leaf);
        let node = &mut self.nodes[leaf];
        (node.older, node.newer) = (NONE, NONE);
    }

    /// Takes a node out of the order, if it is in it.
    #[inline(always)]
    pub fn retire(&mut self, at: u32) {
        let node = &mut self.nodes[at];
        let (older, newer) = (node.older, node.newer);
        match std::mem::replace(&mut node.queue, Queue::Out) {
            Queue::Out => {}
            Queue::Late => {
                self.retire_late(at);
            }
            Queue::Cleared => {
                (node.older, node.newer) = (NONE, NONE);
                match older {
                    NONE => self.order.cleared = newer,
                    _ => self.nodes[older].newer = newer,
                }
                if newer != NONE {
                    self.nodes[newer].older = older;
                }
            }
            Queue::List => {
                (node.older, node.newer) = (NONE, NONE);
                match older {
                    NONE => self.order.oldest = newer,
                    _ => self.nodes[older].newer = newer,
                }
                match newer {
                    NONE => self.order.newest = older,
                    _ => self.nodes[newer].older = older,
                }
            }
        }
    }

    /// A leaf that nobody can find any more.
    pub fn next_cleared(&self) -> Option<u32> {
        Some(self.order.cleared).filter(|&at| at != NONE)
    }

    /// The leaf whose turn it is.
    #[inline]
    pub fn next_victim(&self) -> Option<u32> {
        if self.order.cleared != NONE {
            return self.next_cleared();
        }
        let listed = Some(self.order.oldest).filter(|&at| at != NONE);
        let late = treap::first(&self.nodes, self.order.late);
        match (listed, late) {
            (Some(at), Some(leaf)) => {
                let is_older = self.nodes[leaf].last_access < self.nodes[at].last_access;
                Some(if is_older { leaf } else { at })
            }
            (listed, late) => listed.or(late),
        }
    }

    /// When the leaf whose turn it is was used; what was cleared goes before all others.
    pub fn victim_time(&self) -> Option<u64> {
        let is_cleared = self.order.cleared != NONE;
        self.next_victim().map(|at| if is_cleared { 0 } else { self.nodes[at].last_access })
    }

    /// The nodes of a list from its first; one more than there are, should it be a ring.
    fn linked(&self, first: u32) -> impl Iterator<Item = u32> {
        let next = |at: &u32| Some(self.nodes[*at].newer).filter(|&at| at != NONE);
        let first = Some(first).filter(|&at| at != NONE);
        std::iter::successors(first, next).take(self.nodes.len() + 1)
    }

    /// The nodes of the list, oldest first.
    fn listed(&self) -> impl Iterator<Item = u32> {
        self.linked(self.order.oldest)
    }

    /// Those that were cleared.
    fn cleared(&self) -> impl Iterator<Item = u32> {
        self.linked(self.order.cleared)
    }

    /// The nodes of the tree, oldest first.
    fn late(&self) -> impl Iterator<Item = u32> {
        let time = |at: u32| self.nodes[at].last_access;
        let next = move |&last: &u32| {
            treap::next_where(&self.nodes, self.order.late, |at| time(at) > time(last))
        };
        std::iter::successors(treap::first(&self.nodes, self.order.late), next)
    }

    /// The nodes in the order of their turns, or nearly, but for those that nobody can find: each
    /// leaf, and then what is above it and goes with it.
    pub fn cold(&self) -> impl Iterator<Item = u32> {
        let time = |at: &u32| self.nodes[*at].last_access;
        let (mut listed, mut late) = (self.listed().peekable(), self.late().peekable());
        let leaves = std::iter::from_fn(move || match (listed.peek(), late.peek()) {
            (Some(at), Some(leaf)) if time(leaf) < time(at) => late.next(),
            (None, _) => late.next(),
            _ => listed.next(),
        });
        leaves.flat_map(move |leaf| self.going_with(leaf))
    }

    /// A leaf, and the nodes above it whose turn is next once it has gone: nothing else is below
    /// them, nobody holds them, and they were not used later.
    fn going_with(&self, leaf: u32) -> impl Iterator<Item = u32> {
        let time = self.nodes[leaf].last_access;
        std::iter::successors(Some(leaf), move |&at: &u32| {
            let above = Some(self.nodes[at].parent).filter(|&above| above != NONE)?;
            let node = &self.nodes[above];
            let is_next = !node.is_root() && node.locks == 0 && node.child_count() == 1;
            (is_next && node.last_access <= time).then_some(above)
        })
    }

    /// What is wrong with the order.
    pub(super) fn check_order(&self) -> Result<(), Message> {
        let times = self.listed().map(|at| self.nodes[at].last_access);
        if !times.is_sorted_by(|before, after| before < after) {
            return Err("eviction_order: the list is not in the order of last use".into());
        }
        if self.listed().last().unwrap_or(NONE) != self.order.newest {
            return Err("eviction_order: the list does not end at its newest node".into());
        }
        let stands = |queue, at| self.nodes[at].queue == queue;
        let all_stand = self.listed().all(|at| stands(Queue::List, at))
            && self.late().all(|at| stands(Queue::Late, at))
            && self.cleared().all(|at| stands(Queue::Cleared, at) && self.is_detached(at));
        if !all_stand {
            return Err("eviction_order: a node is queued otherwise than it says".into());
        }
        let evictable = self.nodes.numbers().filter(|&at| self.nodes[at].is_evictable()).count();
        let queued = self.nodes.numbers().filter(|&at| self.nodes[at].queue != Queue::Out).count();
        let in_order = self.listed().count() + self.late().count() + self.cleared().count();
        if evictable != queued || queued != in_order {
            return Err(text!(
                "eviction_order: {evictable} leaves are evictable, {queued} are queued"
            ));
        }
        Ok(())
    }
}
