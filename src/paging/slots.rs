//! The slots of rows: which are free, who takes one, and which nobody takes any more.
use super::pool::{RowOwner, refused};
use super::table::PageTable;
use crate::error::Error;

impl PageTable {
    /// Rows not in use.
    pub fn free_slots(&self) -> usize {
        self.free_slots.len()
    }

    /// Refuses more slots than are free.
    pub fn check_slots(&self, needed: usize) -> Result<(), Error> {
        let free = self.free_slots();
        if needed <= free { Ok(()) } else { Err(self.out_of_slots(needed)) }
    }

    #[cold]
    fn out_of_slots(&self, needed: usize) -> Error {
        if self.pool.is_external() {
            return refused();
        }
        Error::OutOfSlots(needed, self.free_slots(), self.slots())
    }

    /// The slot that is taken next.
    pub fn next_slot(&self) -> Result<u32, Error> {
        self.check_slots(1)?;
        Ok(*self.free_slots.last().expect("one is free"))
    }

    /// Takes a slot.
    pub fn take_slot(&mut self, owner: RowOwner) -> Result<u32, Error> {
        self.check_slots(1)?;
        let slot = self.free_slots.pop().expect("one is free");
        let row = &mut self.rows[slot as usize];
        row.owner = Some(owner);
        row.uses += 1;
        assert!(row.pages.is_empty(), "a free slot {slot} maps pages");
        Ok(slot)
    }

    /// Does not give this slot out again once it is given back, until its cache has gone.
    pub fn use_up(&mut self, slot: u32) {
        self.rows[slot as usize].used_up = true;
    }

    /// The cache that used a slot up has gone: the numbers of the next one are others.
    pub fn reopen(&mut self, slot: u32) {
        let row = &mut self.rows[slot as usize];
        if row.is_used_up() {
            row.used_up = false;
            self.free_slots.push(slot);
        }
    }

    pub(super) fn give_slot_back(&mut self, slot: u32) {
        let row = &mut self.rows[slot as usize];
        assert!(row.owner.take().is_some(), "slot {slot} is in use");
        row.pages.clear();
        row.version += 1;
        if !row.used_up {
            self.free_slots.push(slot);
        }
    }
}
