//! What a step of computation needs of a row: its pages, and which of them it may write.
use crate::error::Error;
use crate::error::text;
use crate::group::GroupKind;
use crate::ids::SequenceId;
use crate::paging::{PageCopy, RowOwner};
use crate::store::{GroupCopy, Sequence, State};

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
        let (found, positions) = self.whole_row(row)?;
        if let ComputedRow::Sequence(id) = row
            && self.has_groups()
        {
            self.check_state_is_own(id.slot())?;
        }
        let end = start.checked_add(count).filter(|&end| count > 0 && end <= positions);
        let end = end.ok_or_else(|| {
            Error::argument(text!(
                "start {start} and count {count}: the new positions must be at least one and end \
                 within the row's {positions}"
            ))
        })?;
        let needed = end.div_ceil(page_size);
        let Some(pages) = found.pages.get(..needed) else {
            return Err(Error::argument(text!(
                "start {start} and count {count} need {needed} pages, and the row has {}: allocate \
                 the others first",
                found.pages.len()
            )));
        };
        let written = &pages[start / page_size..];
        if let Some(at) = written.iter().position(|&page| self.table.pool.is_cached(page)) {
            return Err(Error::argument(text!(
                "start {start}: page {} of the row belongs to the cache and must not be written",
                start / page_size + at
            )));
        }
        Ok(RowPages { pages, ..found })
    }

    /// All pages of a row, and how many positions it has.
    fn whole_row(&self, row: ComputedRow) -> Result<(RowPages<'_>, usize), Error> {
        let mut changes = 0;
        let (slot, positions, copy) = match row {
            ComputedRow::Sequence(id) => {
                let sequence = self.sequence(id)?;
                sequence.check_loaded()?;
                if self.has_groups() {
                    changes = sequence.groups.changes();
                }
                (id.slot(), sequence.positions, sequence.copy)
            }
            ComputedRow::Slot(slot) => {
                let pages = self.table.row(slot)?;
                if self.table.owner(slot) == Some(RowOwner::Sequence) {
                    return Err(Error::state(text!("slot {slot} belongs to a sequence")));
                }
                (slot, pages.len() * self.table.page_size(), None)
            }
        };
        let (pages, version) = self.table.row_version(slot)?;
        // Neither ever falls, so that their sum stays when both do.
        let version = version.wrapping_add(changes);
        Ok((RowPages { slot, pages, version, copy }, positions))
    }

    /// The pages of a row of which the first `positions` are there and are only read: whoever owns
    /// them.
    pub fn row_to_read(&self, row: ComputedRow, positions: usize) -> Result<RowPages<'_>, Error> {
        let (found, most) = self.whole_row(row)?;
        let needed = positions.div_ceil(self.table.page_size());
        match found.pages.get(..needed).filter(|_| (1..=most).contains(&positions)) {
            Some(pages) => Ok(RowPages { pages, ..found }),
            None => Err(Error::argument(text!(
                "start {positions}: a context has at least one position, and the row {most} in {} \
                 pages",
                found.pages.len()
            ))),
        }
    }

    /// The pages of such a row, which is a sequence's, in a group beside the spine without a window
    /// or chunks. Of a STATE group all that there are.
    pub fn group_row_to_read(
        &self,
        id: SequenceId,
        group: usize,
        positions: usize,
    ) -> Result<&[u32], Error> {
        let config = self.table.groups().list()[group];
        let row = self.sequence(id)?.groups.row(group);
        let needed = match config.kind {
            GroupKind::State => config.row_pages(0),
            _ => positions.div_ceil(self.table.page_size()),
        };
        let pages = row.get(..needed).filter(|pages| !pages.contains(&0));
        pages.ok_or_else(|| {
            Error::argument(text!(
                "start {positions}: the row has no {needed} pages of group {group}"
            ))
        })
    }

    /// The pages of such a row, which is a sequence's and was found good, in a group beside the
    /// spine: no hole where new positions lie or what they attend to. Of a STATE group all that
    /// there are.
    pub fn group_row_to_compute(
        &self,
        id: SequenceId,
        group: usize,
        start: usize,
        count: usize,
    ) -> Result<&[u32], Error> {
        let (page_size, config) = (self.table.page_size(), self.table.groups().list()[group]);
        let row = self.sequence(id)?.groups.row(group);
        let needed = match config.kind {
            GroupKind::State => config.row_pages(0),
            _ => (start + count).div_ceil(page_size),
        };
        let Some(pages) = row.get(..needed) else {
            return Err(Error::argument(text!(
                "start {start} and count {count} need {needed} pages of group {group}, and the row \
                 has {}: allocate the others first",
                row.len()
            )));
        };
        let written = if config.kind == GroupKind::State { 0 } else { start / page_size };
        let read = config.kind.needs(start, page_size).filter(|_| config.kind != GroupKind::State);
        let read = read.into_iter().flat_map(|needs| needs.places());
        if let Some(place) = read.chain(written..needed).find(|&place| pages[place] == 0) {
            return Err(Error::argument(text!(
                "start {start}: the row has no page {place} of group {group} any more, to which \
                 its first new position attends"
            )));
        }
        let pool = self.table.pool_at(config.pool as usize);
        if let Some(at) = pages[written..].iter().position(|&page| pool.is_cached(page)) {
            return Err(Error::argument(text!(
                "start {start}: page {} of the row of group {group} belongs to the cache and must \
                 not be written",
                written + at
            )));
        }
        Ok(pages)
    }

    /// The copies that a sequence waits for in a group.
    pub fn copies_in(&self, id: SequenceId, group: usize) -> impl Iterator<Item = PageCopy> + '_ {
        let sequence = self.sequence(id).ok();
        let of_spine = sequence.and_then(|sequence| sequence.copy).filter(|_| group == 0);
        let others = self.group_copies(id).iter().filter(move |copy| copy.group == group);
        of_spine.into_iter().chain(others.map(PageCopy::from))
    }

    /// The copies that a sequence waits for in groups beside the spine.
    pub fn group_copies(&self, id: SequenceId) -> &[GroupCopy] {
        self.sequence(id).map_or(&[], |sequence| sequence.groups.copies())
    }

    /// Whether a sequence waits for copies.
    pub fn has_open_copies(&self, id: SequenceId) -> bool {
        let waits =
            |sequence: &Sequence| sequence.copy.is_some() || !sequence.groups.copies().is_empty();
        self.sequence(id).is_ok_and(waits)
    }

    /// Checks pages of a pool that are to be copied: from one that holds something to one that may
    /// be written.
    pub fn check_page_copy(&self, copy: &PageCopy, pool: u32) -> Result<(), Error> {
        let (pool, page_size) = (self.table.pool_at(pool as usize), self.table.page_size());
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

    /// Whether a copy between tiers may write to a page of a pool: a private one, or one that was
    /// when the copy was given out. In an external pool its owner knows which are whose.
    pub fn may_be_loaded(&self, page: u32, pool: u32) -> bool {
        let pool = self.table.pool_at(pool as usize);
        let is_some_ones = pool.is_private(page) || pool.is_copied(page) || pool.is_external();
        is_some_ones && !pool.is_cached(page)
    }
}
