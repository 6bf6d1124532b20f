//! The books: who reads which snapshot, in which order entries go, and how much there is.
//!
//! A snapshot that loses its entry while somebody reads it is *detached*: it waits with its
//! readers, and the last pin takes it along. Those have a place from the first pin on, so that
//! whatever takes an entry away needs no memory.
use super::freed::{Snapshot, Stack};
use super::nodes::Nodes;
use super::recency::Order;
use super::{Counters, NONE, SnapshotLimits};
use crate::error::Error;
use crate::handles::Handles;
use crate::ids::PinId;
use crate::memory::Slab;
use std::sync::atomic::Ordering::Relaxed;

/// Those who read a snapshot.
#[derive(Debug)]
pub(super) struct Reader<V> {
    pub(super) pins: u32,
    /// Where the entry ends, as long as it is one.
    pub(super) node: u32,
    /// The snapshot, when it has no entry any more.
    pub(super) kept: Option<Box<Snapshot<V>>>,
}

#[derive(Debug)]
pub(super) struct Ledger<V> {
    /// One for each snapshot that is pinned.
    pub(super) readers: Slab<Reader<V>>,
    /// The entries without a pin, by last use.
    pub(super) order: Order,
    pub(super) pins: Handles,
    pub(super) limits: SnapshotLimits,
    pub(super) counters: Counters,
    /// Calls that are letting entries go, and let others in meanwhile.
    pub(super) evicting: usize,
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
    pub(super) fn new(limits: SnapshotLimits, pins: Handles, counters: Counters) -> Self {
        Self {
            readers: Slab::default(),
            order: Order::new(),
            pins,
            limits,
            counters,
            evicting: 0,
            entries: 0,
            pinned: 0,
            bytes: 0,
            detached_bytes: 0,
        }
    }

    /// Snapshots without an entry.
    pub(super) fn detached(&self) -> usize {
        self.readers.len() - self.pinned
    }

    pub(super) fn index_bytes(&self) -> usize {
        let snapshots = self.entries + self.detached();
        snapshots * size_of::<Snapshot<V>>() + self.readers.bytes() + self.pins.bytes()
    }

    /// Whether more is held than the limits say.
    pub(super) fn is_over(&self) -> bool {
        self.entries > self.limits.entries || self.bytes > self.limits.bytes as u128
    }

    /// The entry that goes next, where one has to. The newest stays if that is wanted: what was
    /// just inserted, or an insert beside pinned entries would be in vain.
    pub(super) fn next_to_go(&self, keep_newest: bool) -> Option<u32> {
        let keep = self.order.newest().filter(|_| keep_newest);
        let oldest = self.order.oldest().filter(|&oldest| Some(oldest) != keep);
        oldest.filter(|_| self.is_over())
    }

    /// Whether one more entry of so many bytes would be more than the limits say; or one that takes
    /// the place of another of so many.
    pub(super) fn has_no_room(&self, bytes: u64, replaced: Option<u64>) -> bool {
        let entries = self.entries + replaced.is_none() as usize;
        let before = self.bytes.saturating_sub(replaced.unwrap_or(0) as u128);
        entries > self.limits.entries || before + bytes as u128 > self.limits.bytes as u128
    }

    /// Counts the entry that a node has now, as the one used last.
    pub(super) fn add(&mut self, nodes: &Nodes<V>, node: u32, bytes: u64) {
        self.bytes += bytes as u128;
        self.entries += 1;
        self.order.push(nodes, node);
    }

    /// Counts the entry out that a node had. Its snapshot is freed, or waits for its readers.
    pub(super) fn remove(
        &mut self,
        nodes: &Nodes<V>,
        node: u32,
        entry: Box<Snapshot<V>>,
        freed: &mut Stack<V>,
    ) {
        self.entries -= 1;
        let reader = nodes[node].reader.swap(NONE, Relaxed);
        if reader == NONE {
            self.order.remove(nodes, node);
            self.bytes -= entry.bytes as u128;
            freed.push(entry);
        } else {
            self.pinned -= 1;
            self.detached_bytes += entry.bytes as u128;
            let reader = &mut self.readers[reader];
            (reader.node, reader.kept) = (NONE, Some(entry));
        }
    }

    /// Counts all entries out. Those that somebody reads are taken from their nodes; the others
    /// stay there, for whoever has the nodes from now on.
    pub(super) fn remove_all(&mut self, nodes: &mut Nodes<V>) {
        // Most often none is pinned: the caller has taken those already, a few at a time.
        for reader in self.pins.iter() {
            if self.pinned == 0 {
                break;
            }
            let reader = &mut self.readers[reader];
            if reader.node != NONE {
                self.pinned -= 1;
                reader.kept = nodes[reader.node].entry.take();
                self.detached_bytes += reader.kept.as_ref().map_or(0, |kept| kept.bytes as u128);
                reader.node = NONE;
            }
        }
        (self.entries, self.bytes) = (0, self.detached_bytes);
        self.order = Order::new();
    }

    /// Makes room for a pin.
    pub(super) fn try_reserve(&mut self) -> Result<(), Error> {
        self.pins.try_reserve()?;
        Ok(self.readers.try_reserve(1)?)
    }

    /// Pins an entry, for which room was made: nobody frees its snapshot meanwhile, and it is in
    /// use from now on.
    pub(super) fn pin(&mut self, nodes: &Nodes<V>, node: u32) -> PinId {
        let mut reader = nodes[node].reader.load(Relaxed);
        if reader == NONE {
            reader = self.readers.insert(Reader { pins: 0, node, kept: None });
            nodes[node].reader.store(reader, Relaxed);
            self.pinned += 1;
            self.order.remove(nodes, node);
        }
        self.readers[reader].pins += 1;
        self.pins.take(reader)
    }

    /// Ends a pin on an entry or a detached snapshot; whether it was the last one there. Then an
    /// entry was used until now, and a detached snapshot goes.
    pub(super) fn unpin(
        &mut self,
        nodes: &Nodes<V>,
        pin: PinId,
        freed: &mut Stack<V>,
    ) -> Result<bool, Error> {
        let number = self.pins.release(pin).ok_or_else(|| Error::StalePin(pin.0))?;
        let reader = &mut self.readers[number];
        reader.pins -= 1;
        if reader.pins > 0 {
            return Ok(false);
        }
        let Reader { node, kept, .. } = self.readers.remove(number);
        if let Some(kept) = kept {
            self.detached_bytes -= kept.bytes as u128;
            self.bytes -= kept.bytes as u128;
            freed.push(kept);
        } else {
            nodes[node].reader.store(NONE, Relaxed);
            self.pinned -= 1;
            self.order.push(nodes, node);
        }
        Ok(true)
    }
}
