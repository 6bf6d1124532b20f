//! What the lock guards. Nothing here does more than a few steps, or waits.
use super::entries::{Entries, Entry, Phase};
use super::epochs::Epochs;
use super::news::News;
use super::read::ReadJob;
use super::write::WriteJob;
use crate::memory::{Arc, OrderedMap, OutOfMemory, Queue};
use crate::tier::space::Space;
use crate::tier::{Dropped, Event, Key, StoreStats};
use std::collections::VecDeque;
use std::time::Instant;

/// A record of which pieces are handed out, in order.
pub(super) struct Queued<T> {
    pub job: Arc<T>,
    pub next: usize,
}

/// A write that will not be.
pub(super) struct Stopped {
    pub job: Arc<WriteJob>,
    /// Bytes that wait on its account still.
    pub bytes: u64,
}

pub(super) struct State {
    pub entries: Entries,
    pub space: Space,
    /// Costs of all entries.
    pub cost: u64,
    pub reads: VecDeque<Queued<ReadJob>>,
    /// By number, in the order in which they were put.
    pub writes: OrderedMap<u64, Queued<WriteJob>>,
    /// Writes that were stopped. What they came from is the caller's code, which the committer
    /// drops: who stops a write may hold locks. For as many as wait there is room.
    pub stopped: Queue<Stopped>,
    /// A ring waits, and is to be woken when there is something to read, or to write.
    pub reads_listen: bool,
    pub writes_listen: bool,
    /// What threads were not told yet.
    pub news: News,
    /// None in the place of one that nobody is to hear of.
    pub events: Queue<Option<Event>>,
    /// Of those, how many say that a record is gone.
    pub dropped: usize,
    /// Events that may come: there is room for them.
    pub promised: usize,
    /// For the next commit; keys of which some may not be there any more.
    pub written: Queue<Key>,
    pub written_bytes: u64,
    /// Entries that are being written, or are in `written`: there is room for them there.
    pub uncommitted: usize,
    pub removals: Queue<Key>,
    /// Entries that are to be among those, when there is memory.
    pub unlisted: usize,
    /// Entries that were not among them at first, until the commit that removes them.
    pub late: usize,
    pub touched: Queue<Key>,
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
        self.events.try_reserve(self.promised + events)
    }

    /// A promised event, or none in its place.
    pub fn keep_promise(&mut self, event: Option<Event>) {
        self.promised -= 1;
        if let Some(event) = event {
            self.dropped += matches!(event, Event::Dropped { .. }) as usize;
            self.events.push_back(Some(event));
        }
    }

    /// The event that says that a record is gone, if there is one, is not to be heard of.
    pub fn forget_dropped(&mut self, key: &Key) {
        if self.dropped == 0 {
            return;
        }
        let says_so = |event: &Event| matches!(event, Event::Dropped { key: of, .. } if of == key);
        let mut events = self.events.iter_mut();
        if let Some(event) = events.find(|event| event.as_ref().is_some_and(says_so)) {
            *event = None;
            self.dropped -= 1;
        }
    }

    /// The next event.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()??;
        match &event {
            // What was removed meanwhile has not become anything to look for.
            Event::Committed { key } if !self.is_committed(key) => return None,
            Event::Dropped { .. } => self.dropped -= 1,
            _ => {}
        }
        Some(event)
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

    /// The next commit removes a committed record. Without memory for that, or for the space that
    /// it gives back, the committer tries again; the record is not found meanwhile.
    pub fn remove_committed(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.phase = Phase::Removing;
        self.stats.records -= 1;
        let epoch = self.epochs.begin();
        self.remove_later(key, epoch);
    }

    /// The same of an entry that is hidden already, for those who wait for an epoch.
    pub fn remove_later(&mut self, key: &Key, epoch: u64) {
        let is_read_only = self.stats.is_read_only;
        let Some(entry) = self.entries.get_mut(key).filter(|_| !is_read_only) else {
            return self.epochs.end(epoch);
        };
        entry.epoch = epoch;
        if list(key, entry, &mut self.removals, &mut self.space).is_err() {
            entry.phase = Phase::Unlisted;
            self.unlisted += 1;
            self.late += usize::from(!std::mem::replace(&mut entry.is_late, true));
        }
        self.changed();
    }

    /// Lists what there was no memory for before, in a part of the entries.
    pub fn list_part(&mut self, part: usize) -> Result<(), OutOfMemory> {
        for (key, entry) in self.entries.part_mut(part) {
            if entry.phase == Phase::Unlisted {
                list(key, entry, &mut self.removals, &mut self.space)?;
                entry.phase = Phase::Removing;
                self.unlisted -= 1;
            }
        }
        Ok(())
    }

    /// Whether something is to be removed by a commit that has not begun.
    pub fn has_removals(&self) -> bool {
        !self.removals.is_empty() || self.unlisted > 0
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
        let queued = self.writes.remove(&self.entries.get(key)?.put)?;
        Some((queued.job.place.pieces() - queued.next, queued.job))
    }

    /// Stops a write, if it has not begun with all pieces.
    pub fn stop(&mut self, key: &Key) {
        let Some((pieces, job)) = self.unqueue(key) else { return };
        let is_last = self.end_pieces(key, pieces, None);
        // Otherwise a thread has the rest of it.
        let bytes = if is_last { job.place.bytes } else { 0 };
        self.stats.waiting_bytes += bytes;
        self.stopped.push_back(Stopped { job, bytes });
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
            self.written.push_back(*key);
            self.written_bytes += bytes;
            self.stats.written_bytes += bytes;
            self.changed();
        }
        true
    }

    /// Writing is over for good. What waits to be written is returned, to be dropped by whoever
    /// does not hold the lock.
    pub fn close(&mut self) -> OrderedMap<u64, Queued<WriteJob>> {
        self.stats.is_read_only = true;
        while let Some(key) = self.written.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.phase == Phase::Written) {
                self.drop_write(&key, Some(Dropped::Io));
            }
        }
        self.written_bytes = 0;
        let queued = std::mem::take(&mut self.writes);
        for (_, queued) in queued.iter() {
            let left = queued.job.place.pieces() - queued.next;
            self.end_pieces(&queued.job.key, left, Some(Dropped::Io));
        }
        self.removals = Queue::default();
        self.first_change = None;
        self.epochs.end_all();
        queued
    }
}

/// Puts an entry among the removals, and makes room for the space that it gives back.
fn list(
    key: &Key,
    entry: &mut Entry,
    removals: &mut Queue<Key>,
    space: &mut Space,
) -> Result<(), OutOfMemory> {
    removals.try_reserve(1)?;
    if !entry.is_promised {
        space.promise(entry.place.extents.len())?;
        entry.is_promised = true;
    }
    removals.push_back(*key);
    Ok(())
}
