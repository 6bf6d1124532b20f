//! The books: who reads which snapshot, in which order entries go, and how much there is.
//!
//! A snapshot that loses its entry while somebody reads it is *detached*: it waits here, and the
//! last pin takes it along.
use super::nodes::Entry;
use super::pins::{Pinned, Pins};
use super::recency::{Links, Order};
use super::{Counters, Freed, SnapshotLimits};
use crate::error::Error;
use crate::ids::PinId;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Detached<V> {
    pub(super) value: V,
    pub(super) bytes: u64,
    /// Pins on it.
    pub(super) pins: u32,
}

#[derive(Debug)]
pub(super) struct Ledger<V> {
    /// By serial.
    pub(super) detached: BTreeMap<u64, Detached<V>>,
    /// The entries without a pin, by last use.
    pub(super) order: Order,
    pub(super) pins: Pins,
    pub(super) limits: SnapshotLimits,
    pub(super) counters: Counters,
    pub(super) entries: usize,
    /// Of those, how many are pinned.
    pub(super) pinned: usize,
    /// Bytes of all snapshots, detached ones too. The sizes are the caller's word, and a sum of a
    /// few of them may be absurd.
    pub(super) bytes: u128,
    /// Of those, bytes of detached snapshots.
    pub(super) detached_bytes: u128,
}

impl<V> Ledger<V> {
    pub(super) fn new(limits: SnapshotLimits, tag: u8) -> Self {
        Self {
            detached: BTreeMap::new(),
            order: Order::new(),
            pins: Pins::new(tag),
            limits,
            counters: Counters::default(),
            entries: 0,
            pinned: 0,
            bytes: 0,
            detached_bytes: 0,
        }
    }

    pub(super) fn index_bytes(&self) -> usize {
        self.detached.len() * size_of::<(u64, Detached<V>)>() + self.pins.bytes()
    }

    /// Whether more is held than the limits say.
    pub(super) fn is_over(&self) -> bool {
        self.entries > self.limits.entries || self.bytes > self.limits.bytes as u128
    }

    /// Counts the entry that a node has now, as the one used last.
    pub(super) fn add(&mut self, links: &Links, node: u32, bytes: u64) {
        self.bytes += bytes as u128;
        self.entries += 1;
        links.push(&mut self.order, node);
    }

    /// Counts the entry out that a node had. Its snapshot is freed, or waits for its readers.
    pub(super) fn remove(
        &mut self,
        links: &Links,
        node: u32,
        entry: Entry<V>,
        freed: &mut Freed<V>,
    ) {
        let Entry { value, bytes, serial, .. } = entry;
        self.entries -= 1;
        let pins = links.pins(node);
        if pins > 0 {
            self.pinned -= 1;
            self.detached_bytes += bytes as u128;
            links.set_pins(&mut self.order, node, 0);
            self.detached.insert(serial, Detached { value, bytes, pins });
        } else {
            links.remove(&mut self.order, node);
            self.bytes -= bytes as u128;
            freed.push(value);
        }
    }

    /// Pins an entry: nobody frees its snapshot meanwhile, and it is in use from now on.
    pub(super) fn pin(&mut self, links: &Links, node: u32, serial: u64) -> PinId {
        let pins = links.pins(node);
        links.set_pins(&mut self.order, node, pins + 1);
        if pins == 0 {
            self.pinned += 1;
            links.remove(&mut self.order, node);
        }
        self.pins.take(Pinned { node, serial })
    }

    /// Ends a pin on an entry or a detached snapshot; whether it was the last one there. Then an
    /// entry was used until now, and a detached snapshot goes.
    pub(super) fn unpin(
        &mut self,
        links: &Links,
        pin: PinId,
        freed: &mut Freed<V>,
    ) -> Result<bool, Error> {
        let Pinned { node, serial } = self.pins.release(pin)?;
        if let Some(waiting) = self.detached.get_mut(&serial) {
            waiting.pins -= 1;
            if waiting.pins > 0 {
                return Ok(false);
            }
            let Detached { value, bytes, .. } = self.detached.remove(&serial).expect("it is there");
            self.detached_bytes -= bytes as u128;
            self.bytes -= bytes as u128;
            freed.push(value);
            return Ok(true);
        }
        let pins = links.pins(node) - 1;
        links.set_pins(&mut self.order, node, pins);
        if pins == 0 {
            self.pinned -= 1;
            links.push(&mut self.order, node);
        }
        Ok(pins == 0)
    }

    /// Gives every node its new number; returns the links of the new ones.
    pub(super) fn renumber(&mut self, old: &Links, new: &[u32], nodes: usize) -> Links {
        let mut links = Links::default();
        links.grow(nodes);
        let order = std::mem::replace(&mut self.order, Order::new());
        for node in old.iter(&order) {
            links.push(&mut self.order, new[node as usize]);
        }
        for (&to, from) in new.iter().zip(0..).filter(|(to, _)| **to != super::NONE) {
            links.set_pins(&mut self.order, to, old.pins(from));
        }
        self.pins.renumber(new);
        links
    }
}
