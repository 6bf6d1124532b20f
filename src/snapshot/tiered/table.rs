//! What one call at a time changes.
use super::TierCounters;
use super::loads::Loads;
use super::note::Note;
use super::place::{Link, Mark};
use crate::error::Error;
use crate::memory::{Arc, OrderedMap, OutOfMemory, Queue};
use crate::tier::Event;
use crate::tier::remote::RemoteEvent;
use std::collections::VecDeque;

/// Snapshots without room that are tried again.
const RETRIES: usize = 256;
/// Writes that are looked at for each new one, whether what they write was removed meanwhile.
const SWEEP: usize = 2;

/// A write that goes on.
pub(super) struct Pending {
    pub(super) note: Arc<Note>,
    pub(super) mark: Arc<Mark>,
}

pub(super) struct Table {
    /// The number of the next record.
    pub(super) next: u64,
    /// In a map that never stops to move all that it has.
    pending: OrderedMap<u64, Pending>,
    /// The first of them that is looked at next.
    sweep_from: u64,
    /// What the store gave up and the index still has: there is room for all that is pending.
    pub(super) lost: Queue<Pending>,
    /// What the store had no room for.
    retries: VecDeque<Arc<Note>>,
    /// Turns of the store when they were last tried.
    tried_at: u64,
    /// Of those, how many are still to be tried.
    to_try: usize,
    /// What calls have in hand, to try it again.
    trying: usize,
    pub(super) loads: Loads,
    pub(super) events: Vec<Event>,
    pub(super) answers: Vec<RemoteEvent>,
    /// How often everything was removed.
    pub(super) removals: u64,
    /// How often records were removed, replaced or cleared.
    pub(super) removed: u64,
    /// Of those, how many are gone from the store for sure.
    pub(super) gone: u64,
    /// Writes that failed, of which the last flush has told.
    pub(super) failures_told: u64,
    pub(super) counters: TierCounters,
}

impl Table {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            next: 1,
            pending: OrderedMap::default(),
            sweep_from: 0,
            lost: Queue::default(),
            retries: VecDeque::new(),
            tried_at: 0,
            to_try: 0,
            trying: 0,
            loads: Loads::new()?,
            events: Vec::new(),
            answers: Vec::new(),
            removals: 0,
            removed: 0,
            gone: 0,
            failures_told: 0,
            counters: TierCounters::default(),
        })
    }

    /// A number that no record and no load has.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Makes room for a write.
    pub(super) fn reserve_pending(&mut self, link: &Link) -> Result<(), OutOfMemory> {
        // No event comes for what was removed while it was written.
        for _ in 0..SWEEP {
            let next = self.pending.from(&self.sweep_from).next();
            let Some((&number, Pending { mark, .. })) = next else {
                self.sweep_from = 0;
                break;
            };
            self.sweep_from = number + 1;
            if mark.is_abandoned() {
                self.end_write(link, number);
            }
        }
        self.lost.try_reserve(self.pending.len() + 1)?;
        self.pending.try_reserve(1)
    }

    /// A write goes on, for which room was made.
    pub(super) fn begin_write(&mut self, note: &Arc<Note>, mark: &Arc<Mark>) {
        mark.begin_write();
        self.next += 1;
        self.pending.insert(mark.number, Pending { note: note.clone(), mark: mark.clone() });
    }

    /// Whether no write goes on whose number is before this one, but for those that nobody wants.
    pub(super) fn is_written(&self, end: u64) -> bool {
        let mut before = self.pending.iter().take_while(|(number, _)| **number < end);
        before.all(|(_, pending)| pending.mark.is_abandoned())
    }

    /// A write has ended, if it is known.
    pub(super) fn end_write(&mut self, link: &Link, number: u64) -> Option<Pending> {
        let ended = self.pending.remove(&number)?;
        link.end_write(&ended.mark);
        Some(ended)
    }

    /// Writes that go on.
    pub(super) fn writing(&self, link: &Link) -> usize {
        self.pending.len().saturating_sub(link.abandoned())
    }

    /// What the store had no room for is tried again. False when it can't be: it is given up.
    pub(super) fn try_later(&mut self, note: &Arc<Note>, turns: u64) -> bool {
        let has_room = self.retries.len() < RETRIES && self.retries.try_reserve(1).is_ok();
        if has_room {
            self.retries.push_back(note.clone());
            self.tried_at = turns;
        }
        has_room
    }

    /// What is to be tried again next: all that waits once for each time that there may be room.
    /// `end_retry` follows.
    pub(super) fn next_retry(&mut self, turns: impl FnOnce() -> u64) -> Option<Arc<Note>> {
        if self.to_try == 0 {
            if self.retries.is_empty() {
                return None;
            }
            let turns = turns();
            if self.tried_at == turns {
                return None;
            }
            (self.tried_at, self.to_try) = (turns, self.retries.len());
        }
        self.to_try -= 1;
        let next = self.retries.pop_front();
        self.trying += usize::from(next.is_some());
        next
    }

    /// What a call had in hand is tried again now, or not any more.
    pub(super) fn end_retry(&mut self) {
        self.trying -= 1;
    }

    /// Whether a call has something in hand that is to be tried again.
    pub(super) fn is_trying(&self) -> bool {
        self.trying > 0
    }

    /// Whether something waits for room.
    pub(super) fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }
}
