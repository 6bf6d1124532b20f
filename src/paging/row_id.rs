//! What names a row beyond its slot: who let others in sees whether it is still the same row.
use super::pool::RowOwner;
use super::table::PageTable;
use crate::error::{Error, text};

/// A row for as long as it has its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowId {
    /// Its slot.
    pub slot: u32,
    uses: u64,
}

impl PageTable {
    /// Names the row of a slot.
    #[inline]
    pub fn row_id(&self, slot: u32) -> RowId {
        RowId { slot, uses: self.rows[slot as usize].uses }
    }

    /// The pages of a row and their version, if it still has its slot.
    pub fn same_row(&self, id: RowId) -> Result<(&[u32], u64), Error> {
        let row = &self.rows[id.slot as usize];
        let is_same = row.owner.is_some() && row.uses == id.uses;
        let gone = || Error::state("the row was erased during the call");
        if is_same { Ok((&row.pages, row.version)) } else { Err(gone()) }
    }

    /// Checks that the caller may change a row, and names it.
    pub fn check_callers_row(&self, slot: u32) -> Result<RowId, Error> {
        match self.owner(slot) {
            Some(RowOwner::Caller) => Ok(self.row_id(slot)),
            Some(RowOwner::Sequence) => {
                Err(Error::state(text!("slot {slot} belongs to a sequence")))
            }
            None => Err(self.not_in_use(slot)),
        }
    }
}
