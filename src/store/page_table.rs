//! Pages and rows of callers that keep their own books.
use super::early::Claim;
use super::longer::RowOf;
use super::{Shared, State, Turn};
use crate::error::{Error, text};
use crate::paging::{Part, RowId, RowOwner};
use std::cmp::Ordering;
use std::ops::Range;

/// Pages for the caller.
struct Allocate {
    count: usize,
    pages: Vec<u32>,
}

impl Claim<Vec<u32>> for Allocate {
    const OWNER: Option<RowOwner> = None;
    const PLACES: bool = true;

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let missing = self.count - self.pages.len();
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn make_room(&mut self, _: &mut State, missing: usize) -> Result<(), Error> {
        self.pages.try_reserve_exact(missing).map_err(|_| Error::memory("a list of pages"))
    }

    fn place(&mut self, state: &mut State, pages: &[u32]) -> Result<(), Error> {
        self.make_room(state, self.count - self.pages.len())?;
        state.table.pool.hand_over(pages, None);
        self.pages.extend_from_slice(pages);
        Ok(())
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
        let more = self.count - pages.len();
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
    const PLACES: bool = true;

    fn row(&self, _: &State) -> Option<RowOf> {
        Some(RowOf(self.row))
    }

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let (row, _) = state.table.same_row(self.row)?;
        let missing = self.pages.saturating_sub(row.len());
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn place(&mut self, state: &mut State, pages: &[u32]) -> Result<(), Error> {
        let slot = self.row.slot;
        state.make_room_in_row(slot, self.pages - state.table.row(slot)?.len())?;
        state.table.extend_taken(slot, pages);
        Ok(())
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

    /// Whether a row is there still.
    fn is_row(&self, row: RowId) -> bool {
        self.table.same_row(row).is_ok()
    }

    /// Appends a part of a list of pages to a caller's row, the first of which it has at a place.
    fn map(&mut self, slot: u32, first_index: usize, pages: Part<'_>) -> Result<(), Error> {
        let leaves = |&page: &u32| self.leaving.is_some() && self.table.pool.is_cached(page);
        if let Some(at) = pages.pages().iter().position(leaves) {
            return Err(Error::argument(text!(
                "pages[{}] {} belongs to a cache that is being destroyed",
                pages.first + at,
                pages.pages()[at]
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
}

impl Turn<'_> {
    /// Empties a caller's row and gives the slot back; a long row is cut shorter before.
    pub fn erase(&mut self, slot: u32) -> Result<(), Error> {
        let (slice, row) = (self.shared.pool_slice, self.table.check_callers_row(slot)?);
        while let left @ 1.. = self.table.row(slot)?.len().saturating_sub(slice) {
            self.table.shorten(slot, left);
            self.let_waiting_in();
            self.table.same_row(row)?;
        }
        self.table.erase(slot)
    }

    /// Appends pages to a caller's row, all or none: many in slices.
    pub fn map(&mut self, slot: u32, first_index: usize, pages: &[u32]) -> Result<(), Error> {
        let row = self.table.check_callers_row(slot)?;
        if pages.len() > self.shared.pool_slice || self.moves_long(RowOf(row), pages.len()) {
            self.table.check_more_pages(slot, first_index, pages.len())?;
            self.make_room_in_long(RowOf(row), pages.len())?;
            self.table.same_row(row)?;
            self.table.check_more_pages(slot, first_index, pages.len())?;
            self.state().make_room_in_row(slot, pages.len())?;
        }
        let mut done = 0;
        loop {
            let len = pages.len().min(done + self.shared.pool_slice);
            let part = Part { list: &pages[..len], first: done };
            if let Err(error) = self.state().map(slot, first_index + done, part) {
                self.unmap(row, first_index..first_index + done);
                return Err(error);
            }
            if len == pages.len() {
                return Ok(());
            }
            done = len;
            self.let_waiting_in();
            let row_pages = self.table.row(slot).ok().filter(|_| self.is_row(row));
            match row_pages.map_or(0, <[u32]>::len).cmp(&(first_index + done)) {
                Ordering::Equal => {}
                // The row was erased, or its cache destroyed, as if after this call.
                Ordering::Less => {
                    self.free_rest(&pages[done..]);
                    return Ok(());
                }
                Ordering::Greater => {
                    return Err(Error::state(text!(
                        "another thread extended the row during the call: it has what comes before \
                         pages[{done}]"
                    )));
                }
            }
        }
    }

    /// Takes pages that a call mapped out of the row again.
    #[cold]
    fn unmap(&mut self, row: RowId, mapped: Range<usize>) {
        let mut end = mapped.end;
        while end > mapped.start
            && self.is_row(row)
            && self.table.row(row.slot).is_ok_and(|pages| pages.len() == end)
        {
            end = mapped.start.max(end.saturating_sub(self.shared.pool_slice));
            self.table.unmap(row.slot, end);
            self.let_waiting_in();
        }
    }

    /// Puts pages back to the pool that were to be mapped; those of the cache stay.
    #[cold]
    fn free_rest(&mut self, pages: &[u32]) {
        for some in pages.chunks(self.shared.pool_slice) {
            let pool = &mut self.table.pool;
            some.iter().for_each(|&page| {
                let _ = pool.free_loose(&[page]);
            });
            self.let_waiting_in();
        }
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
