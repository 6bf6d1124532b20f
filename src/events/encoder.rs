//! Where the encoder is: what it reads next, and what waits to be told.
use super::announce::RUN_BLOCKS;
use super::blocks::Blocks;
use super::outbox::Outbox;
use super::reader::{Read, Reader};
use super::repeat::Repeat;
use super::spaces::Spaces;
use super::wire::Wire;
use super::{Batch, EventConfig};
use crate::error::Error;
use crate::journal::Reason;
use crate::memory::OutOfMemory;
use crate::store::Shared;
use std::mem::MaybeUninit;

/// All that an encoder knows.
#[derive(Debug)]
pub(super) struct Progress {
    pub wire: Wire,
    pub blocks: Blocks,
    pub spaces: Spaces,
    pub outbox: Outbox,
    /// Room for all places: those of a prefix, or those that are to go.
    pub path: Vec<u32>,
    /// What is on the path is dropped, from the end on, for this reason.
    pub dropping: Option<Reason>,
    /// The first record that waits was applied, and not told yet.
    pub is_applied: bool,
    pub reader: Reader,
    pub repeat: Repeat,
    /// It was said in the beginning that nothing is held.
    has_begun: bool,
    /// Without a rank: that was said, and not all that is held was read since then, nor told of.
    pub is_cleared: bool,
    /// The place from which on blocks are to be told that were not told yet.
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
        let blocks = Blocks::new(page_size, &pages)?;
        let mut path = Vec::new();
        path.try_reserve_exact(blocks.end() as usize).map_err(OutOfMemory::from)?;
        Ok(Self {
            wire: Wire { config, page_size, groups },
            blocks,
            spaces: Spaces::default(),
            outbox: Outbox::default(),
            path,
            dropping: None,
            is_applied: false,
            reader: Reader::new(page_size)?,
            repeat: Repeat::No,
            tell_from: u32::MAX,
            has_begun: false,
            is_cleared: false,
        })
    }

    /// Fills a batch with what is to be told.
    pub fn fill(&mut self, shared: &Shared, room: &mut [MaybeUninit<u8>]) -> Result<Batch, Error> {
        let (mut batch, mut begun) = (Batch { has_more: true, ..Batch::default() }, false);
        while batch.has_more && self.empty_outbox(room, &mut batch) {
            // Records that are lost faster than the contents are read would keep the call for ever.
            if self.reader.is_void() && std::mem::replace(&mut begun, true) {
                break;
            }
            match self.advance(shared) {
                Ok(more) => batch.has_more = more,
                // What is in the batch is told; the next call fails again, or doesn't.
                Err(_) if batch.event_count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        (batch.last_number, batch.lost_count) = (self.reader.number(), self.reader.lost());
        Ok(batch)
    }

    /// The records that were lost stand in a batch.
    pub fn told_lost(&mut self) {
        self.reader.take_lost();
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
        if self.drop_some()? {
            return Ok(true);
        }
        if self.repeat != Repeat::No {
            self.take_back()?;
            return Ok(true);
        }
        if self.work_on_first()? {
            return Ok(true);
        }
        match self.reader.read(shared)? {
            Read::Void => {
                self.begin()?;
                self.reader.voided();
            }
            Read::More => {}
            Read::Exact => {
                self.is_cleared = false;
                self.tell_all();
            }
            Read::Nothing => return self.tell_next(),
            Read::NoCache => return Ok(false),
        }
        Ok(true)
    }

    /// Applies the record that waits longest. False when none does.
    fn work_on_first(&mut self) -> Result<bool, Error> {
        let is_told = self.reader.is_exact();
        let Some(waiting) = self.reader.take_waiting() else { return Ok(false) };
        let done = match waiting.first() {
            Some(record) => self.apply(&record, is_told),
            None => Ok(()),
        };
        self.reader.put_waiting(waiting);
        done?;
        self.reader.drop_first();
        self.is_applied = false;
        Ok(true)
    }

    /// Subscribers know nothing, or what is no longer right.
    fn begin(&mut self) -> Result<(), Error> {
        if self.has_begun && self.wire.names_each() {
            self.begin_to_drop_all(Reason::Invalidated)?;
        } else {
            if !self.is_cleared {
                // Once, however often records are lost before all that is held was read.
                self.wire.cleared(self.spaces.all_told(), &mut self.outbox)?;
                self.is_cleared = true;
            }
            for place in 0..self.blocks.end() {
                if let Some(block) = self.blocks.get(place) {
                    self.forget(place, block);
                }
            }
        }
        self.has_begun = true;
        self.is_applied = false;
        self.stop_telling();
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

    /// What was not told yet is told when no record waits.
    pub(super) fn tell_all(&mut self) {
        self.tell_from = 1;
    }

    /// What was not told yet is not told.
    pub(super) fn stop_telling(&mut self) {
        self.tell_from = u32::MAX;
    }
}
