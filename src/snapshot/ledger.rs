//! The books: which snapshots there are, who reads them, and in which order entries go.
//!
//! A record is *stored* while an entry of the tree leads to it, and *detached* when its entry was
//! replaced or removed while somebody read it: then the last pin takes it along.
use super::NONE;
use super::pins::Pins;
use super::recency::Recency;
use super::{Counters, Freed, SPARSE, SnapshotLimits};
use crate::error::Error;
use crate::ids::PinId;

#[derive(Debug)]
pub(super) struct Record<V> {
    pub(super) value: V,
    pub(super) bytes: u64,
    pub(super) next_token: Option<u32>,
    /// Pins on it.
    pub(super) pins: u32,
    /// The node where the entry ends; NONE when it is detached.
    pub(super) node: u32,
}

#[derive(Debug)]
pub(super) struct Ledger<V> {
    records: Vec<Option<Record<V>>>,
    free: Vec<u32>,
    /// The stored records without a pin, by last use.
    pub(super) recency: Recency,
    pub(super) pins: Pins,
    pub(super) limits: SnapshotLimits,
    pub(super) counters: Counters,
    /// Records in the tree.
    pub(super) stored: usize,
    /// Of those, how many are pinned.
    pub(super) pinned: usize,
    /// Bytes of all records, stored or detached. The sizes are the caller's word, and a sum of a
    /// few of them may be absurd.
    pub(super) bytes: u128,
    /// Of those, bytes of detached records.
    pub(super) detached_bytes: u128,
}

impl<V> Ledger<V> {
    pub(super) fn new(limits: SnapshotLimits, tag: u8) -> Self {
        Self {
            records: Vec::new(),
            free: Vec::new(),
            recency: Recency::new(),
            pins: Pins::new(tag),
            limits,
            counters: Counters::default(),
            stored: 0,
            pinned: 0,
            bytes: 0,
            detached_bytes: 0,
        }
    }

    /// Records, stored or detached.
    pub(super) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    pub(super) fn index_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Option<Record<V>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.recency.bytes()
            + self.pins.bytes()
    }

    pub(super) fn get(&self, at: u32) -> Option<&Record<V>> {
        self.records.get(at as usize)?.as_ref()
    }

    fn at(&mut self, at: u32) -> &mut Record<V> {
        self.records[at as usize].as_mut().expect("a record that is there")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record<V>)> {
        self.records.iter().enumerate().filter_map(|(at, slot)| Some((at as u32, slot.as_ref()?)))
    }

    /// Whether more is held than the limits say.
    pub(super) fn is_over(&self) -> bool {
        self.stored > self.limits.entries || self.bytes > self.limits.bytes as u128
    }

    /// Adds the record of an entry, as the one used last.
    pub(super) fn store(&mut self, record: Record<V>) -> u32 {
        debug_assert!(record.pins == 0 && record.node != NONE);
        self.bytes += record.bytes as u128;
        self.stored += 1;
        let at = if let Some(at) = self.free.pop() {
            self.records[at as usize] = Some(record);
            at
        } else {
            self.records.push(Some(record));
            self.records.len() as u32 - 1
        };
        self.recency.push(at);
        at
    }

    /// Takes a record out of the tree's hands: it is freed, or waits for its readers. Returns the
    /// node where the entry ended.
    pub(super) fn detach(&mut self, at: u32, freed: &mut Freed<V>) -> u32 {
        self.stored -= 1;
        let record = self.at(at);
        let node = std::mem::replace(&mut record.node, NONE);
        if record.pins > 0 {
            let bytes = record.bytes as u128;
            self.pinned -= 1;
            self.detached_bytes += bytes;
        } else {
            self.recency.remove(at);
            self.free(at, freed);
        }
        node
    }

    fn free(&mut self, at: u32, freed: &mut Freed<V>) {
        let record = self.records[at as usize].take().expect("a record that is there");
        self.free.push(at);
        self.bytes -= record.bytes as u128;
        freed.push(record.value);
    }

    /// Pins a stored record: nobody frees it meanwhile, and it is in use now.
    pub(super) fn pin(&mut self, at: u32) -> (PinId, &Record<V>) {
        let record = self.records[at as usize].as_mut().expect("a record that is there");
        record.pins += 1;
        if record.pins == 1 {
            self.pinned += 1;
            self.recency.remove(at);
        }
        (self.pins.take(at), record)
    }

    /// Ends a pin; whether it was the last one. Then a stored record was used until now, and a
    /// detached one goes.
    pub(super) fn unpin(&mut self, pin: PinId, freed: &mut Freed<V>) -> Result<bool, Error> {
        let at = self.pins.release(pin)?;
        let record = self.at(at);
        record.pins -= 1;
        if record.pins > 0 {
            return Ok(false);
        }
        if record.node != NONE {
            self.pinned -= 1;
            self.recency.push(at);
        } else {
            let bytes = record.bytes as u128;
            self.detached_bytes -= bytes;
            self.free(at, freed);
        }
        Ok(true)
    }

    /// The entry at a node has another number.
    pub(super) fn move_to(&mut self, at: u32, node: u32) {
        self.at(at).node = node;
    }

    /// Moves the records together when three of four numbers are unused. Returns the new numbers.
    pub(super) fn tighten(&mut self) -> Option<Vec<u32>> {
        if self.records.len() < SPARSE || self.len() * 4 > self.records.len() {
            return None;
        }
        let mut new = vec![NONE; self.records.len()];
        let mut kept = Vec::with_capacity(self.len());
        for (at, record) in std::mem::take(&mut self.records).into_iter().enumerate() {
            if record.is_some() {
                new[at] = kept.len() as u32;
                kept.push(record);
            }
        }
        let order: Vec<_> = self.recency.iter().map(|at| new[at as usize]).collect();
        self.recency = Recency::new();
        order.into_iter().for_each(|at| self.recency.push(at));
        self.pins.renumber(&new);
        (self.records, self.free) = (kept, Vec::new());
        Some(new)
    }
}
