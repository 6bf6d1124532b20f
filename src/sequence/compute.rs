//! What a step of computation needs of a row: its pages, and which of them it may write.
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::paging::{PageCopy, RowOwner};
use crate::store::State;

/// A row that a step computes positions of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputedRow {
    /// A sequence's.
    Sequence(SequenceId),
    /// A caller's, by its slot.
    Slot(u32),
}

/// The pages of such a row.
#[derive(Debug, Clone, Copy)]
pub struct RowPages<'a> {
    /// The row's slot.
    pub slot: u32,
    /// The pages up to the last new position.
    pub pages: &'a [u32],
    /// Unchanged for as long as these are the row's pages.
    pub version: u64,
    /// To be carried out before.
    pub copy: Option<PageCopy>,
}

impl State {
    /// The pages of a row of which positions `start` to `start + count` are to be computed. Those
    /// positions lie in private pages: what the cache owns is never written.
    pub fn row_to_compute(
        &self,
        row: ComputedRow,
        start: usize,
        count: usize,
    ) -> Result<RowPages<'_>, Error> {
        let page_size = self.table.page_size();
        let (slot, positions, copy) = match row {
            ComputedRow::Sequence(id) => {
                let sequence = self.sequence(id)?;
                if !sequence.groups.copies().is_empty() {
                    return Err(Error::state("copies of groups are not confirmed yet"));
                }
                if self.has_groups() && self.lends_state(id.slot()) {
                    return Err(Error::state(
                        "children are still to copy the state that the step would change",
                    ));
                }
                (id.slot(), sequence.positions, sequence.copy)
            }
            ComputedRow::Slot(slot) => {
                let pages = self.table.row(slot)?;
                if self.table.owner(slot) == Some(RowOwner::Sequence) {
                    return Err(Error::state(text!("slot {slot} belongs to a sequence")));
                }
                (slot, pages.len() * page_size, None)
            }
        };
        let end = start.checked_add(count).filter(|&end| count > 0 && end <= positions);
        let end = end.ok_or_else(|| {
            Error::argument(text!(
                "start {start} and count {count}: the new positions must be at least one and end \
                 within the row's {positions}"
            ))
        })?;
        let (pages, version) = self.table.row_version(slot)?;
        let needed = end.div_ceil(page_size);
        let Some(pages) = pages.get(..needed) else {
            return Err(Error::argument(text!(
                "start {start} and count {count} need {needed} pages, and the row has {}: allocate \
                 the others first",
                pages.len()
            )));
        };
        let written = &pages[start / page_size..];
        if let Some(at) = written.iter().position(|&page| self.table.pool.is_cached(page)) {
            return Err(Error::argument(text!(
                "start {start}: page {} of the row belongs to the cache and must not be written",
                start / page_size + at
            )));
        }
        Ok(RowPages { slot, pages, version, copy })
    }

    /// The copy that a sequence waits for.
    pub fn open_copy(&self, id: SequenceId) -> Option<PageCopy> {
        self.sequence(id).ok()?.copy
    }

    /// Checks pages that are to be copied: from one that holds something to one that may be
    /// written.
    pub fn check_page_copy(&self, copy: &PageCopy) -> Result<(), Error> {
        let (pool, page_size) = (&self.table.pool, self.table.page_size());
        if copy.positions > page_size {
            return Err(Error::argument(text!(
                "position_count {} is more than a page's {page_size}",
                copy.positions
            )));
        }
        if !pool.is_in_use(copy.source) {
            return Err(Error::argument(text!("source_page {} is not in use", copy.source)));
        }
        if !pool.is_private(copy.target) {
            return Err(Error::argument(text!("target_page {} is not private", copy.target)));
        }
        if copy.source == copy.target {
            return Err(Error::argument(text!("page {} is copied to itself", copy.source)));
        }
        Ok(())
    }
}
