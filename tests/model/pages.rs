//! The executable specification of the page table: slots, rows and pages.
use super::naive::{Fault, Naive, Page, Refusal, Row, Wrong, require};
use radixkv::capi::rkv_status as Status;
use std::collections::BTreeSet;

impl Naive {
    pub fn can_allocate_slot(&self) -> Result<(), Refusal> {
        if self.rows.iter().all(Option::is_some) {
            return Err(Status::OutOfSlots.into());
        }
        Ok(())
    }

    pub fn allocate_slot(&mut self, chosen: u32, owned: bool) -> Result<(), Wrong> {
        let row = self.rows.get_mut(chosen as usize);
        require!(matches!(row, Some(None)), "slot {chosen} was handed out while in use");
        self.rows[chosen as usize] = Some(Row { pages: Vec::new(), owned });
        Ok(())
    }

    pub fn row(&self, slot: u32) -> Result<&Row, Status> {
        self.rows.get(slot as usize).and_then(Option::as_ref).ok_or(Status::InvalidArgument)
    }

    /// A row that the caller may change.
    pub fn own_row(&self, slot: u32) -> Result<&Row, Status> {
        match self.row(slot)? {
            row if row.owned => Err(Status::InvalidState),
            row => Ok(row),
        }
    }

    pub fn erase(&mut self, slot: u32) -> Result<(), Refusal> {
        self.own_row(slot)?;
        self.drop_row(slot);
        Ok(())
    }

    pub fn drop_row(&mut self, slot: u32) {
        for page in self.rows[slot as usize].take().expect("the slot is in use").pages {
            if self.pages[page as usize] == Page::InRow(slot) {
                self.give_up(page);
            }
        }
    }

    pub fn can_allocate(&self, count: usize) -> Result<(), Refusal> {
        self.check_room(count, 0)
    }

    pub fn allocate(&mut self, chosen: &[u32]) -> Result<(), Wrong> {
        self.take(chosen, Page::Loose)
    }

    pub fn free_pages(&mut self, pages: &[u32]) -> Result<(), Refusal> {
        let different = pages.iter().collect::<BTreeSet<_>>().len() == pages.len();
        let loose = |&page: &u32| self.pages.get(page as usize) == Some(&Page::Loose);
        if !different || !pages.iter().all(loose) {
            return Err(Status::InvalidArgument.into());
        }
        pages.iter().for_each(|&page| self.pages[page as usize] = Page::Free);
        Ok(())
    }

    pub fn map(&mut self, slot: u32, first: usize, pages: &[u32]) -> Result<(), Refusal> {
        let row = self.own_row(slot)?;
        let state = |&page: &u32| self.pages.get(page as usize).copied();
        let private = pages.iter().filter(|page| state(page) == Some(Page::Loose));
        let private: Vec<u32> = private.copied().collect();
        let different = private.iter().collect::<BTreeSet<_>>().len() == private.len();
        let may = |page| matches!(state(page), Some(Page::Loose | Page::Cached));
        let fits = row.pages.len() + pages.len() <= self.row_limit();
        if first != row.pages.len() || !fits || !different || !pages.iter().all(may) {
            return Err(Status::InvalidArgument.into());
        }
        private.iter().for_each(|&page| self.pages[page as usize] = Page::InRow(slot));
        self.rows[slot as usize].as_mut().expect("the slot is in use").pages.extend(pages);
        Ok(())
    }

    /// Pages that a row lacks for a number of positions.
    pub fn lacking(&self, length: usize, positions: usize) -> Result<usize, Refusal> {
        let wanted = self.pages_for(positions);
        if wanted > self.row_limit() {
            return Err(Status::InvalidArgument.into());
        }
        Ok(wanted.saturating_sub(length))
    }

    pub fn can_reserve(&self, slot: Option<u32>, positions: usize) -> Result<bool, Refusal> {
        let length = match slot {
            Some(slot) => self.row(slot)?.pages.len(),
            None if self.can_allocate_slot().is_err() => return Ok(false),
            None => 0,
        };
        let lacking = self.lacking(length, positions);
        Ok(lacking.is_ok_and(|lacking| self.check_room(lacking, 0).is_ok()))
    }

    pub fn reserve_plan(&self, slot: u32, positions: usize) -> Result<usize, Refusal> {
        let lacking = self.lacking(self.own_row(slot)?.pages.len(), positions)?;
        self.check_room(lacking, 0)?;
        if self.fault == Fault::ShortReserve {
            return Ok(lacking.saturating_sub(1));
        }
        Ok(lacking)
    }

    /// Adds new pages to a row.
    pub fn grow(&mut self, slot: u32, chosen: &[u32]) -> Result<(), Wrong> {
        self.take(chosen, Page::InRow(slot))?;
        self.rows[slot as usize].as_mut().expect("the slot is in use").pages.extend(chosen);
        Ok(())
    }
}
