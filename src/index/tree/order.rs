//! Which leaf goes next: the one that was used longest ago.
//!
//! Evictable leaves wait in a list by time of last use. A leaf that becomes evictable is nearly
//! always the one that was used last, and goes to its end; one that was used earlier (it was locked
//! for long, or it was a parent until now) goes into an ordered map beside it. The next victim is
//! the older of the two fronts. So a touch, a lock and an eviction cost O(1) in the usual case,
//! O(log n) at worst.
//!
//! No two leaves have the same time: nodes that were used by one match lie on one path.
use super::Tree;
use super::node::{Held, NONE, Queue};
use crate::error::{Message, text};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct EvictionOrder {
    oldest: u32,
    newest: u32,
    late: BTreeMap<u64, u32>,
}

impl EvictionOrder {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE, late: BTreeMap::new() }
    }

    /// Approximate: what an ordered map of this size takes.
    pub(super) fn bytes(&self) -> usize {
        self.late.len() * 2 * size_of::<(u64, u32)>()
    }
}

impl<H: Held> Tree<H> {
    /// Marks a path as used now.
    pub fn touch_path(&mut self, from: u32) {
        let now = self.tick();
        // Only the lowest node can be a leaf.
        let queued = self.nodes[from].queue != Queue::Out;
        self.retire(from);
        let mut at = from;
        loop {
            let node = &mut self.nodes[at];
            node.last_access = now;
            node.held.touched();
            node.hits = node.hits.saturating_add(1);
            if node.parent == NONE {
                break;
            }
            at = node.parent;
        }
        if queued {
            self.enlist(from);
        }
    }

    /// Puts a leaf that became evictable in its place.
    pub fn enlist(&mut self, leaf: u32) {
        debug_assert!(self.nodes[leaf].is_evictable() && self.nodes[leaf].queue == Queue::Out);
        let time = self.nodes[leaf].last_access;
        let newest = self.order.newest;
        if newest != NONE && self.nodes[newest].last_access > time {
            self.nodes[leaf].queue = Queue::Late;
            let before = self.order.late.insert(time, leaf);
            debug_assert!(before.is_none());
            return;
        }
        let node = &mut self.nodes[leaf];
        (node.queue, node.older, node.newer) = (Queue::List, newest, NONE);
        match newest {
            NONE => self.order.oldest = leaf,
            _ => self.nodes[newest].newer = leaf,
        }
        self.order.newest = leaf;
    }

    /// Takes a node out of the order, if it is in it.
    pub fn retire(&mut self, at: u32) {
        let node = &mut self.nodes[at];
        let (older, newer) = (node.older, node.newer);
        match std::mem::replace(&mut node.queue, Queue::Out) {
            Queue::Out => {}
            Queue::Late => {
                let time = node.last_access;
                self.order.late.remove(&time);
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

    /// The leaf whose turn it is.
    pub fn next_victim(&self) -> Option<u32> {
        let listed = Some(self.order.oldest).filter(|&at| at != NONE);
        let late = self.order.late.first_key_value();
        match (listed, late) {
            (Some(at), Some((&time, &leaf))) => {
                Some(if time < self.nodes[at].last_access { leaf } else { at })
            }
            (listed, late) => listed.or(late.map(|(_, &leaf)| leaf)),
        }
    }

    /// The nodes of the list, oldest first, and those of the map.
    fn order_entries(&self) -> (Vec<u32>, Vec<u32>) {
        let next = |at: &u32| Some(self.nodes[*at].newer).filter(|&at| at != NONE);
        let first = Some(self.order.oldest).filter(|&at| at != NONE);
        let listed = std::iter::successors(first, next).take(self.nodes.len() + 1).collect();
        (listed, self.order.late.values().copied().collect())
    }

    /// What is wrong with the order.
    pub(super) fn check_order(&self) -> Result<(), Message> {
        let (listed, late) = self.order_entries();
        let times = listed.iter().map(|&at| self.nodes[at].last_access);
        if !times.is_sorted_by(|before, after| before < after) {
            return Err("eviction_order: the list is not in the order of last use".into());
        }
        if listed.last().copied().unwrap_or(NONE) != self.order.newest {
            return Err("eviction_order: the list does not end at its newest node".into());
        }
        for (time, &at) in &self.order.late {
            if self.nodes[at].last_access != *time {
                return Err(text!("eviction_order: node {at} waits under another time"));
            }
        }
        let stands = |queue, nodes: &[u32]| nodes.iter().all(|&at| self.nodes[at].queue == queue);
        if !stands(Queue::List, &listed) || !stands(Queue::Late, &late) {
            return Err("eviction_order: a node is queued otherwise than it says".into());
        }
        let evictable = self.nodes.numbers().filter(|&at| self.nodes[at].is_evictable()).count();
        let queued = self.nodes.numbers().filter(|&at| self.nodes[at].queue != Queue::Out).count();
        if evictable != queued || queued != listed.len() + late.len() {
            return Err(text!(
                "eviction_order: {evictable} leaves are evictable, {queued} are queued"
            ));
        }
        Ok(())
    }
}
