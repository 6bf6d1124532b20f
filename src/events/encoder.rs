//! Where the encoder is: what it reads next, and what waits to be told.
use super::announce::RUN_BLOCKS;
use super::blocks::{Block, Blocks};
use super::intake::Intake;
use super::outbox::Outbox;
use super::spaces::Spaces;
use super::wire::Wire;
use super::{Batch, EventConfig};
use crate::error::Error;
use crate::memory::OutOfMemory;
use crate::store::Shared;
use std::mem::MaybeUninit;

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Subscribers are told first that nothing is held.
    Begin,
    /// All that the cache holds, from a page on. None of it is told before it is exact.
    Contents { next_page: u32 },
    /// Records up to a number, with which the contents are exact.
    CatchUp { until: u64 },
    /// Records, which are told as they come.
    Follow,
}

/// All that an encoder knows.
#[derive(Debug)]
pub(super) struct Progress {
    pub wire: Wire,
    pub blocks: Blocks,
    pub spaces: Spaces,
    pub outbox: Outbox,
    /// Room for the places of a prefix.
    pub path: Vec<u32>,
    /// The first record that waits was applied, and not told yet.
    pub is_applied: bool,
    intake: Intake,
    phase: Phase,
    /// The last record that was read.
    number: u64,
    /// Records that were lost.
    lost: u64,
    /// The place from which on blocks are to be told that were not told yet, or are due again.
    tell_from: u32,
}

impl Progress {
    /// For a cache that has a journal.
    pub fn new(shared: &Shared, config: EventConfig) -> Result<Self, Error> {
        let state = shared.read();
        let (page_size, groups) = (state.page_table_stats().page_size, state.groups());
        let pool_pages = state.journal_pages()?.len();
        let mut pages = Vec::new();
        pages.try_reserve_exact(pool_pages).map_err(OutOfMemory::from)?;
        pages.extend_from_slice(state.journal_pages()?);
        drop(state);
        Ok(Self {
            wire: Wire { config, page_size, groups },
            blocks: Blocks::new(page_size, &pages)?,
            spaces: Spaces::default(),
            outbox: Outbox::default(),
            path: Vec::new(),
            is_applied: false,
            intake: Intake::new(page_size)?,
            phase: Phase::Begin,
            number: 0,
            lost: 0,
            tell_from: u32::MAX,
        })
    }

    /// Fills a batch with what is to be told.
    pub fn fill(&mut self, shared: &Shared, room: &mut [MaybeUninit<u8>]) -> Result<Batch, Error> {
        let mut batch = Batch { has_more: true, ..Batch::default() };
        while batch.has_more && self.empty_outbox(room, &mut batch) {
            match self.advance(shared) {
                Ok(more) => batch.has_more = more,
                // What is in the batch is told; the next call fails again, or doesn't.
                Err(_) if batch.event_count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        (batch.last_number, batch.lost_count) = (self.number, std::mem::take(&mut self.lost));
        Ok(batch)
    }

    /// Moves events to the batch. False when one has no room.
    fn empty_outbox(&mut self, room: &mut [MaybeUninit<u8>], batch: &mut Batch) -> bool {
        while let Some((event, effect)) = self.outbox.first() {
            let end = batch.event_bytes + event.len();
            let Some(place) = room.get_mut(batch.event_bytes..end) else {
                if batch.event_count == 0 {
                    batch.needed_bytes = end;
                }
                return false;
            };
            place.write_copy_of_slice(event);
            batch.event_bytes = end;
            batch.event_count += 1;
            batch.stored_count += effect.stored;
            batch.removed_count += effect.removed;
            self.outbox.drop_first();
        }
        true
    }

    /// Reads or tells a little more. False when there is nothing more.
    fn advance(&mut self, shared: &Shared) -> Result<bool, Error> {
        if self.work_on_first()? {
            return Ok(true);
        }
        match self.phase {
            Phase::Begin => self.begin()?,
            // What it held is not known, and another one may come.
            Phase::Contents { next_page } if !shared.read().has_cache() => {
                self.phase = if next_page == 0 { self.phase } else { Phase::Begin };
                return Ok(next_page > 0);
            }
            Phase::Contents { next_page } => self.read_contents(shared, next_page)?,
            Phase::CatchUp { until } if self.number >= until => {
                self.phase = Phase::Follow;
                self.tell_from = 1;
            }
            Phase::CatchUp { .. } | Phase::Follow => {
                let before = self.number;
                self.read_journal(shared)?;
                if self.number == before && self.phase == Phase::Follow {
                    return self.tell_next();
                }
            }
        }
        Ok(true)
    }

    /// Applies the record that waits longest. False when none does.
    fn work_on_first(&mut self) -> Result<bool, Error> {
        let intake = std::mem::take(&mut self.intake);
        let done = match intake.first() {
            Some(record) => self.apply(&record, self.phase == Phase::Follow).map(|()| true),
            None => Ok(false),
        };
        self.intake = intake;
        if let Ok(true) = done {
            self.intake.drop_first();
            self.is_applied = false;
        }
        done
    }

    /// Subscribers know nothing, or what is no longer right.
    fn begin(&mut self) -> Result<(), Error> {
        self.wire.cleared(self.spaces.all_told(), &mut self.outbox)?;
        self.intake.clear();
        self.is_applied = false;
        self.tell_from = u32::MAX;
        for place in 0..self.blocks.end() {
            if let Some(block) = self.blocks.get(place) {
                self.forget(place, block);
            }
        }
        self.phase = Phase::Contents { next_page: 0 };
        Ok(())
    }

    fn read_contents(&mut self, shared: &Shared, page: u32) -> Result<(), Error> {
        let intake = &mut self.intake;
        let told = shared.read_contents(page, &mut |record| intake.take(record))?;
        if page == 0 {
            self.number = told.number;
        }
        self.phase = match told.next_page {
            0 => Phase::CatchUp { until: told.newest },
            next_page => Phase::Contents { next_page },
        };
        Ok(())
    }

    fn read_journal(&mut self, shared: &Shared) -> Result<(), Error> {
        let intake = &mut self.intake;
        let read = shared.read_journal(self.number, &mut |record| intake.take(record))?;
        self.number = read.last;
        if read.lost > 0 {
            self.lost += read.lost;
            self.phase = Phase::Begin;
            self.intake.clear();
        }
        Ok(())
    }

    /// Tells of the next block that was not told yet. False when there is none.
    fn tell_next(&mut self) -> Result<bool, Error> {
        while self.tell_from < self.blocks.end() {
            let last = self.blocks.last_of_run(self.tell_from, RUN_BLOCKS as u32);
            self.announcer().announce(last)?;
            self.tell_from = last + 1;
            if !self.outbox.is_empty() {
                return Ok(true);
            }
        }
        self.tell_from = u32::MAX;
        Ok(false)
    }

    /// Everything is told once more, without saying before that nothing is held.
    pub fn repeat(&mut self) {
        if self.phase != Phase::Follow {
            return; // it is about to be told
        }
        for place in 0..self.blocks.end() {
            if let Some(block) = self.blocks.get(place) {
                self.blocks.set(place, Block { due: true, ..block });
            }
        }
        self.tell_from = 1;
    }
}
