//! Pages and rows of callers that keep their own books.
use super::early::Claim;
use super::{Shared, State};
use crate::error::Error;
use crate::memory::OutOfMemory;
use crate::paging::RowId;

/// Pages for the caller.
struct Allocate {
    count: usize,
}

impl Claim<Vec<u32>> for Allocate {
    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        state.check_room(self.count.saturating_sub(early), 0)?;
        Ok(self.count)
    }

    fn finish(
        self,
        state: &mut State,
        missing: usize,
        early: &mut Vec<u32>,
    ) -> Result<Vec<u32>, Error> {
        let mut pages = Vec::new();
        pages.try_reserve_exact(missing).map_err(|_| Error::memory("a list of pages"))?;
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
    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let slot = self.row.slot;
        if state.table.check_callers_row(slot)? != self.row {
            return Err(Error::state("the row was erased during the call"));
        }
        let missing = self.pages.saturating_sub(state.table.row(slot)?.len());
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        let slot = self.row.slot;
        let pages = state.table.row(slot)?.len() + missing;
        state.table.reserve_row(slot, pages).map_err(|OutOfMemory| Error::memory("a row"))?;
        state.extend_row(slot, missing, early);
        Ok(())
    }
}

impl Shared {
    /// Allocates pages for the caller.
    pub fn allocate_pages(&self, count: usize) -> Result<Vec<u32>, Error> {
        let mut state = self.write();
        state.check_own_pool()?;
        self.carry_out(&mut state, Allocate { count })
    }

    /// Makes a caller's row long enough.
    pub fn reserve_row(&self, slot: u32, positions: usize) -> Result<(), Error> {
        let mut state = self.write();
        let row = state.table.check_callers_row(slot)?;
        let pages = state.table.pages_for(positions, "position_count")?;
        self.carry_out(&mut state, Reserve { row, pages })
    }
}
