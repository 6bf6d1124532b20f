//! What the lock guards. Nothing here does more than a few steps, or waits.
use super::entries::{Entries, Entry, Phase};
use super::epochs::Epochs;
use super::read::ReadJob;
use super::write::WriteJob;
use crate::memory::{Arc, OutOfMemory};
use crate::tier::space::Space;
use crate::tier::{Dropped, Event, Key, StoreStats};
use std::collections::VecDeque;
use std::time::Instant;

/// A record of which pieces are handed out, in order.
pub(super) struct Queued<T> {
    pub job: Arc<T>,
    pub next: usize,
}

pub(super) struct State {
    pub entries: Entries,
    pub space: Space,
    /// Costs of all entries.
    pub cost: u64,
    pub reads: VecDeque<Queued<ReadJob>>,
    pub writes: VecDeque<Queued<WriteJob>>,
    /// A ring waits, and is to be woken when there is something to read, or to write.
    pub reads_listen: bool,
    pub writes_listen: bool,
    pub events: VecDeque<Event>,
    /// Events that may come: there is room for them.
    pub promised: usize,
    /// For the next commit; keys of which some may not be there any more.
    pub written: Vec<Key>,
    pub written_bytes: u64,
    /// Entries that are being written, or are in `written`: there is room for them there.
    pub uncommitted: usize,
    pub removals: Vec<Key>,
    pub touched: Vec<Key>,
    /// When the first change came that the next commit has.
    pub first_change: Option<Instant>,
    pub clock: u64,
    pub tickets: u64,
    pub epochs: Epochs,
    pub flushing: usize,
    /// Somebody waits for space that the next commit gives back, or what it removes must be gone.
    pub is_urgent: bool,
    /// A sync that fails says nothing of which writes it means: of all before it.
    pub failed_syncs: u64,
    /// Workers end.
    pub is_closing: bool,
    /// Writers have ended: one more commit.
    pub is_last: bool,
    pub stats: StoreStats,
}

impl State {
    /// Something for the next commit.
    pub fn changed(&mut self) {
        self.first_change.get_or_insert_with(Instant::now);
    }

    /// Room for what a new job may lead to.
    pub fn promise(&mut self, events: usize) -> Result<(), OutOfMemory> {
        Ok(self.events.try_reserve(self.promised + events)?)
    }

    /// A promised event, or none in its place.
    pub fn keep_promise(&mut self, event: Option<Event>) {
        self.promised -= 1;
        self.events.extend(event);
    }

    /// The entry and its space are gone.
    pub fn forget(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.space.give(&entry.place.extents);
        self.cost -= entry.cost;
        self.stats.released += 1;
        Some(entry)
    }

    /// A record that is not committed goes; `why` unless it was removed.
    pub fn drop_write(&mut self, key: &Key, why: Option<Dropped>) -> Option<Entry> {
        let entry = self.forget(key)?;
        self.uncommitted -= 1;
        self.epochs.end(entry.epoch);
        self.drop_promised(*key, why);
        Some(entry)
    }

    /// The event of a record that was not committed.
    pub fn drop_promised(&mut self, key: Key, why: Option<Dropped>) {
        match why {
            Some(Dropped::NoSpace) => self.stats.no_space += 1,
            Some(Dropped::Io) => self.stats.failed_writes += 1,
            Some(Dropped::Damaged) => self.stats.damaged += 1,
            None => {}
        }
        self.keep_promise(why.map(|why| Event::Dropped { key, why }));
    }

    /// The next commit removes a committed record. Without memory for that the record stays where
    /// it is until the store is opened again, and is not found until then.
    pub fn remove_committed(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.phase = Phase::Removing;
        self.stats.records -= 1;
        let epoch = self.epochs.begin();
        self.remove_later(key, epoch);
    }

    /// The same of an entry that is hidden already, for those who wait for an epoch.
    pub fn remove_later(&mut self, key: &Key, epoch: u64) {
        if self.removals.try_reserve(1).is_err() || self.stats.is_read_only {
            return self.epochs.end(epoch);
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.epoch = epoch;
            self.removals.push(*key);
        }
        self.changed();
    }

    /// Whether a record can be read.
    pub fn is_committed(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.phase == Phase::Committed)
    }

    /// A read has ended: what was removed meanwhile can go.
    pub fn end_read(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.readers -= 1;
        if entry.readers == 0 && entry.phase == Phase::Removed {
            self.forget(key);
        }
    }

    /// Takes a record that waits to be written out of the queue; returns how many of its pieces
    /// were there, and what keeps its source.
    pub fn unqueue(&mut self, key: &Key) -> Option<(usize, Arc<WriteJob>)> {
        let at = self.writes.iter().position(|queued| queued.job.key == *key)?;
        let queued = self.writes.remove(at)?;
        Some((queued.job.place.pieces() - queued.next, queued.job))
    }

    /// Pieces are done, or will never be. Whether that was the last one.
    pub fn end_pieces(&mut self, key: &Key, count: usize, why: Option<Dropped>) -> bool {
        let read_only = self.stats.is_read_only.then_some(Dropped::Io);
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let Phase::Writing { left, failed, is_removed } = &mut entry.phase else { return false };
        *left -= count;
        *failed = failed.or(why).or(read_only);
        if *left > 0 {
            return false;
        }
        let (failed, is_removed) = (*failed, *is_removed);
        let bytes = entry.place.bytes;
        self.stats.waiting_bytes -= bytes;
        if is_removed || failed.is_some() {
            self.drop_write(key, failed.filter(|_| !is_removed));
        } else {
            entry.phase = Phase::Written;
            self.written.push(*key);
            self.written_bytes += bytes;
            self.stats.written_bytes += bytes;
            self.changed();
        }
        true
    }

    /// Writing is over for good. What waits to be written is returned, to be dropped by whoever
    /// does not hold the lock.
    pub fn close(&mut self) -> VecDeque<Queued<WriteJob>> {
        self.stats.is_read_only = true;
        for key in std::mem::take(&mut self.written) {
            if self.entries.get(&key).is_some_and(|entry| entry.phase == Phase::Written) {
                self.drop_write(&key, Some(Dropped::Io));
            }
        }
        self.written_bytes = 0;
        let queued = std::mem::take(&mut self.writes);
        for queued in &queued {
            let left = queued.job.place.pieces() - queued.next;
            self.end_pieces(&queued.job.key, left, Some(Dropped::Io));
        }
        self.removals = Vec::new();
        self.first_change = None;
        self.epochs.end_all();
        queued
    }
}
