//! Pages and rows of callers that keep their own books.
use super::early::Claim;
use super::{Shared, State};
use crate::error::{Error, text};
use crate::paging::{BatchArrays, BatchRow, RowId, RowOwner};

/// Pages for the caller.
struct Allocate {
    count: usize,
    pages: Vec<u32>,
}

impl Claim<Vec<u32>> for Allocate {
    const OWNER: Option<RowOwner> = None;

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        state.check_room(self.count.saturating_sub(early), 0)?;
        Ok(self.count)
    }

    fn make_room(&mut self, _: &mut State, missing: usize) -> Result<bool, Error> {
        self.pages.try_reserve_exact(missing).map_err(|_| Error::memory("a list of pages"))?;
        Ok(true)
    }

    fn finish(
        mut self,
        state: &mut State,
        missing: usize,
        early: &mut Vec<u32>,
    ) -> Result<Vec<u32>, Error> {
        self.make_room(state, missing)?;
        let mut pages = self.pages;
        state.table.pool.hand_over(early, None);
        pages.append(early);
        let more = missing - pages.len();
        state.free_up(more);
        state.table.pool.take_loose(more, &mut pages);
        Ok(pages)
    }
}

/// Pages for a caller's row, until it is long enough.
struct Reserve {
    row: RowId,
    pages: usize,
}

impl Claim<()> for Reserve {
    const OWNER: Option<RowOwner> = Some(RowOwner::Caller);

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let slot = self.row.slot;
        if state.table.check_callers_row(slot)? != self.row {
            return Err(Error::state("the row was erased during the call"));
        }
        let missing = self.pages.saturating_sub(state.table.row(slot)?.len());
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn make_room(&mut self, state: &mut State, missing: usize) -> Result<bool, Error> {
        state.make_room_in_row(self.row.slot, missing).map(|()| true)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        let slot = self.row.slot;
        state.make_room_in_row(slot, missing)?;
        state.extend_row(slot, missing, early);
        Ok(())
    }
}

impl State {
    /// Refuses what an external pool has no pages and no rows for.
    pub fn check_own_pool(&self) -> Result<(), Error> {
        self.table.pool.check_own()
    }

    /// Takes a slot for the caller.
    pub fn allocate_slot(&mut self) -> Result<u32, Error> {
        self.table.take_slot(RowOwner::Caller)
    }

    /// Empties a caller's row and gives the slot back.
    pub fn erase(&mut self, slot: u32) -> Result<(), Error> {
        self.table.erase(slot)
    }

    /// Appends pages to a caller's row.
    pub fn map(&mut self, slot: u32, first_index: usize, pages: &[u32]) -> Result<(), Error> {
        let leaves = |&page: &u32| self.leaving.is_some() && self.table.pool.is_cached(page);
        if let Some(at) = pages.iter().position(leaves) {
            return Err(Error::argument(text!(
                "pages[{at}] {} belongs to a cache that is being destroyed",
                pages[at]
            )));
        }
        self.table.map(slot, first_index, pages)
    }

    /// Whether a row, or a new one, could hold so many positions.
    pub fn can_reserve(&self, slot: Option<u32>, positions: usize) -> Result<bool, Error> {
        let mapped = match slot {
            Some(slot) => self.table.row(slot)?.len(),
            None => self.check_own_pool().map(|()| 0)?,
        };
        let Ok(pages) = self.table.pages_for(positions, "position_count") else {
            return Ok(false);
        };
        let has_slot = slot.is_some() || self.table.free_slots() > 0;
        Ok(has_slot && self.check_room(pages.saturating_sub(mapped), 0).is_ok())
    }

    /// Positions that a row has pages for.
    pub fn row_capacity(&self, slot: u32) -> Result<usize, Error> {
        Ok(self.table.row(slot)?.len() * self.table.page_size())
    }

    /// The pages of a row from an index on.
    pub fn row_from(&self, slot: u32, first_index: usize) -> Result<&[u32], Error> {
        let row = self.table.row(slot)?;
        row.get(first_index..).ok_or_else(|| {
            Error::argument(text!("first_index {first_index} is beyond the row's {}", row.len()))
        })
    }

    /// KV positions of row positions.
    pub fn slot_mapping(
        &self,
        slot: u32,
        positions: &[u64],
        write: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        self.table.slot_mapping(slot, positions, write)
    }

    /// The arrays for a batch.
    pub fn batch(&self, rows: &[BatchRow]) -> Result<BatchArrays, Error> {
        self.table.batch(rows)
    }
}

impl Shared {
    /// Allocates pages for the caller.
    pub fn allocate_pages(&self, count: usize) -> Result<Vec<u32>, Error> {
        let mut turn = self.turn();
        turn.check_own_pool()?;
        turn.carry_out(Allocate { count, pages: Vec::new() })
    }

    /// Makes a caller's row long enough.
    pub fn reserve_row(&self, slot: u32, positions: usize) -> Result<(), Error> {
        let mut turn = self.turn();
        let row = turn.table.check_callers_row(slot)?;
        let pages = turn.table.pages_for(positions, "position_count")?;
        turn.carry_out(Reserve { row, pages })
    }
}
