//! Rows: the pages of each slot, in order.
use super::config::PageTableConfig;
use super::pool::{PagePool, PageState, RowOwner, refused};
use crate::error::Error;
use crate::error::text;
use crate::group::Groups;
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) pages: Vec<u32>,
    pub(super) owner: Option<RowOwner>,
    /// Grows when a page of the row is replaced or goes away, not when pages are added: who noted
    /// pages earlier sees whether they are still the row's.
    pub(super) version: u64,
    /// How often the slot was taken: tells a row from the one that has the slot later.
    pub(super) uses: u64,
    /// Nothing is left that could tell another row in this slot from those before.
    pub(super) used_up: bool,
}

impl Row {
    pub(super) fn is_used_up(&self) -> bool {
        self.used_up && self.owner.is_none()
    }
}

/// The end of a list of pages, whose beginning is dealt with.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The list as far as it is looked at.
    pub list: &'a [u32],
    /// The place where the part begins.
    pub first: usize,
}

impl<'a> Part<'a> {
    /// Its pages.
    pub fn pages(&self) -> &'a [u32] {
        &self.list[self.first..]
    }
}

/// The pool and the rows.
#[derive(Debug)]
pub struct PageTable {
    page_size: usize,
    row_page_limit: usize,
    /// The pool that rows are made of: pool 0.
    pub pool: PagePool,
    /// The others.
    more_pools: Vec<PagePool>,
    groups: Groups,
    pub(super) rows: Vec<Row>,
    pub(super) free_slots: Vec<u32>,
    /// Heap memory of the rows.
    pub(super) row_bytes: usize,
}

impl PageTable {
    /// A page table with all pages free and all slots unused.
    pub fn new(config: PageTableConfig) -> Result<Self, Error> {
        config.check()?;
        let slot_count = if config.external_pool { 0 } else { config.slot_count };
        let slots = slot_count as usize;
        let (mut rows, mut free_slots) = (Vec::new(), Vec::new());
        let no_room = |_| Error::memory("the rows: config.slot_count");
        rows.try_reserve_exact(slots).map_err(no_room)?;
        free_slots.try_reserve_exact(slots).map_err(no_room)?;
        rows.resize_with(slots, Row::default);
        free_slots.extend((0..slot_count).rev());
        let row_page_limit = match config.row_page_limit {
            _ if config.external_pool => u32::MAX, // that there are no rows is said elsewhere
            0 => config.page_count - 1,
            limit => limit,
        };
        let mut more_pools = Vec::new();
        for &pages in config.more_pools.list() {
            more_pools.try_push(PagePool::new(pages, config.external_pool)?)?;
        }
        Ok(Self {
            page_size: config.page_size as usize,
            row_page_limit: row_page_limit as usize,
            pool: PagePool::new(config.page_count, config.external_pool)?,
            more_pools,
            groups: config.groups,
            rows,
            free_slots,
            row_bytes: 0,
        })
    }

    /// Positions of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Rows in all.
    pub fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Host memory.
    pub fn bytes(&self) -> usize {
        let slots = self.rows.capacity() * size_of::<Row>();
        let free_slots = self.free_slots.capacity() * size_of::<u32>();
        let more_pools: usize = self.more_pools.iter().map(PagePool::bytes).sum();
        slots + free_slots + self.row_bytes + self.pool.bytes() + more_pools
    }

    /// The groups that pages belong to.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Whether there are groups beside the first.
    #[inline]
    pub fn has_groups(&self) -> bool {
        self.groups.are_several()
    }

    /// Pools in all.
    pub fn pool_count(&self) -> usize {
        1 + self.more_pools.len()
    }

    /// A pool that there is.
    pub fn pool_at(&self, pool: usize) -> &PagePool {
        pool.checked_sub(1).map_or(&self.pool, |at| &self.more_pools[at])
    }

    /// The same, to change it.
    pub fn pool_at_mut(&mut self, pool: usize) -> &mut PagePool {
        match pool {
            0 => &mut self.pool,
            _ => &mut self.more_pools[pool - 1],
        }
    }

    /// Refuses the number of a pool that there is not.
    pub fn check_pool(&self, pool: u32) -> Result<usize, Error> {
        if (pool as usize) < self.pool_count() {
            return Ok(pool as usize);
        }
        Err(Error::argument(text!("pool {pool} is not one of the {} there are", self.pool_count())))
    }

    /// Pages for a number of positions, if a row may be that long.
    pub fn pages_for(&self, positions: usize, name: &str) -> Result<usize, Error> {
        let pages = positions.div_ceil(self.page_size);
        if pages > self.row_page_limit {
            return Err(Error::argument(text!(
                "{name}: {positions} positions take {pages} pages, a row holds at most {}",
                self.row_page_limit
            )));
        }
        Ok(pages)
    }

    /// Gives a slot back. Of its pages, those from `private_from` on that are private are put back.
    pub fn release_slot(&mut self, slot: u32, private_from: usize) {
        let row = &self.rows[slot as usize];
        // What it mapped unlocked may have been evicted, and be of another kind of owner now.
        let own = row.owner.map(RowOwner::pages);
        for &page in row.pages[private_from.min(row.pages.len())..].iter().rev() {
            if self.pool.state(page) == own {
                self.pool.put_back(page);
            }
        }
        self.give_slot_back(slot);
    }

    /// Takes the pages of a sequence's row from an index on, all private, out of it.
    pub fn take_private(&mut self, slot: u32, from: usize) -> Vec<u32> {
        let row = &mut self.rows[slot as usize];
        assert_eq!(row.owner, Some(RowOwner::Sequence));
        row.version += 1;
        let mut pages = std::mem::take(&mut row.pages);
        self.row_bytes -= pages.capacity() * size_of::<u32>();
        pages.drain(..from);
        pages
    }

    /// The same, to a list that has room for them; the row stays.
    pub fn take_end(&mut self, slot: u32, from: usize, into: &mut Vec<u32>) {
        let row = &mut self.rows[slot as usize];
        assert_eq!(row.owner, Some(RowOwner::Sequence));
        row.version += 1;
        into.extend(row.pages.drain(from..));
    }

    /// Gives the slot of a sequence back. One of its private pages may stay private, for when the
    /// sequence is retained.
    pub fn retire_row(&mut self, slot: u32, private_from: usize, kept: Option<u32>) {
        if let Some(page) = kept {
            self.pool.set_retained(page);
        }
        let row = &self.rows[slot as usize];
        assert_eq!(row.owner, Some(RowOwner::Sequence));
        for &page in row.pages[private_from..].iter().rev().filter(|&&page| Some(page) != kept) {
            self.pool.put_back(page);
        }
        self.give_slot_back(slot);
    }

    /// The pages of a slot in use.
    #[inline]
    pub fn row(&self, slot: u32) -> Result<&[u32], Error> {
        let row = self.rows.get(slot as usize).filter(|row| row.owner.is_some());
        row.map(|row| &*row.pages).ok_or_else(|| self.not_in_use(slot))
    }

    /// The pages of a slot in use, and their version: as long as it stays, so do they.
    pub fn row_version(&self, slot: u32) -> Result<(&[u32], u64), Error> {
        self.row(slot).map(|pages| (pages, self.rows[slot as usize].version))
    }

    /// Who has a slot.
    pub fn owner(&self, slot: u32) -> Option<RowOwner> {
        self.rows.get(slot as usize).and_then(|row| row.owner)
    }

    /// Gives a caller's slot back.
    pub fn erase(&mut self, slot: u32) -> Result<(), Error> {
        self.check_callers_row(slot)?;
        self.release_slot(slot, 0);
        Ok(())
    }

    /// Whether so many pages may be appended to a caller's row at a place.
    pub fn check_more_pages(
        &self,
        slot: u32,
        first_index: usize,
        count: usize,
    ) -> Result<(), Error> {
        self.check_callers_row(slot)?;
        let len = self.rows[slot as usize].pages.len();
        if first_index != len {
            return Err(Error::argument(text!(
                "first_index {first_index} is not the row's length {len}: rows are mapped in order"
            )));
        }
        if count > self.row_page_limit - len {
            return Err(Error::argument(text!(
                "page_count {count}: the row would be longer than {} pages",
                self.row_page_limit
            )));
        }
        Ok(())
    }

    /// Appends pages to a caller's row, all or none.
    pub fn map(&mut self, slot: u32, first_index: usize, part: Part<'_>) -> Result<(), Error> {
        let pages = part.pages();
        self.check_more_pages(slot, first_index, pages.len())?;
        for (at, &page) in pages.iter().enumerate() {
            let what = match self.pool.state(page) {
                Some(PageState::Cached) => continue,
                // Marked at once, so that a page given twice is seen.
                Some(PageState::Loose) => {
                    self.pool.set_mapped(page);
                    continue;
                }
                None => "no page of this table",
                Some(PageState::Free) => "free",
                Some(PageState::Mapped | PageState::Sequence) => "private and mapped already",
                Some(
                    PageState::Retained | PageState::Lent | PageState::Taken | PageState::Outside,
                ) => "private, but not the caller's",
            };
            pages[..at].iter().for_each(|&page| self.pool.set_loose(page));
            let at = part.first + at;
            return Err(Error::argument(text!("pages[{at}] {page} is {what}")));
        }
        if let Err(refused) = self.reserve_row(slot, first_index + pages.len()) {
            pages.iter().for_each(|&page| self.pool.set_loose(page));
            return Err(refused.into());
        }
        self.rows[slot as usize].pages.extend_from_slice(pages);
        Ok(())
    }

    /// Takes the pages of a caller's row from an index on out of it; they are the caller's again.
    pub fn unmap(&mut self, slot: u32, len: usize) {
        let row = &mut self.rows[slot as usize];
        row.version += 1;
        row.pages.drain(len..).for_each(|page| self.pool.set_loose(page));
    }

    /// Makes room for so many pages in a row, without which none is added.
    pub fn reserve_row(&mut self, slot: u32, pages: usize) -> Result<(), OutOfMemory> {
        let row = &mut self.rows[slot as usize].pages;
        let before = row.capacity();
        row.try_reserve(pages.saturating_sub(row.len()))?;
        self.row_bytes += (row.capacity() - before) * size_of::<u32>();
        Ok(())
    }

    /// Heap memory of all rows.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Whether a row has room for more pages where it lies.
    #[inline]
    pub fn has_room_in_row(&self, slot: u32, more: usize) -> bool {
        let row = &self.rows[slot as usize].pages;
        row.capacity() - row.len() >= more
    }

    /// Puts a list that begins with the same pages in the place of a row's, which it gives back.
    /// What it has beyond those was taken for a sequence.
    pub fn replace_row(&mut self, slot: u32, pages: Vec<u32>) -> Vec<u32> {
        let row = &mut self.rows[slot as usize];
        self.row_bytes -= row.pages.capacity() * size_of::<u32>();
        self.row_bytes += pages.capacity() * size_of::<u32>();
        std::mem::replace(&mut row.pages, pages)
    }

    /// A row that so many pages of the index are to be added to, which the caller does.
    pub fn row_to_extend(&mut self, slot: u32, count: usize) -> &mut Vec<u32> {
        let pages = &mut self.rows[slot as usize].pages;
        assert!(pages.capacity() - pages.len() >= count, "room was made for the pages");
        pages
    }

    /// Gives an empty row the first entries of another one.
    pub fn share_row(&mut self, slot: u32, from: u32, count: usize) {
        let mut pages = std::mem::take(&mut self.rows[slot as usize].pages);
        assert!(pages.is_empty() && pages.capacity() >= count, "room was made for the pages");
        pages.extend_from_slice(&self.rows[from as usize].pages[..count]);
        self.rows[slot as usize].pages = pages;
    }

    /// Takes pages that the pool has to the end of a row.
    #[inline(always)]
    pub fn extend_private(&mut self, slot: u32, count: usize) {
        let row = &mut self.rows[slot as usize];
        self.pool.take_for_row(row.owner.expect("the slot is in use"), count, &mut row.pages);
    }

    /// Adds pages that were taken early to the end of a row.
    #[inline(always)]
    pub fn extend_taken(&mut self, slot: u32, pages: &[u32]) {
        let row = &mut self.rows[slot as usize];
        assert!(row.pages.capacity() - row.pages.len() >= pages.len(), "room was made for them");
        // A sequence's are marked as such when they are taken.
        if row.owner.expect("the slot is in use") == RowOwner::Caller {
            self.pool.hand_over(pages, Some(RowOwner::Caller));
        }
        row.pages.extend_from_slice(pages);
    }

    /// Gives a range of a sequence's private pages to the index.
    #[inline(always)]
    pub fn claim_range(&mut self, slot: u32, range: Range<usize>) {
        self.pool.claim(&self.rows[slot as usize].pages[range]);
    }

    /// Puts the private pages at the end of a row back, down to `len` pages.
    pub fn shorten(&mut self, slot: u32, len: usize) {
        let row = &mut self.rows[slot as usize];
        let own = row.owner.map(RowOwner::pages);
        row.version += (row.pages.len() > len) as u64;
        while row.pages.len() > len {
            let page = row.pages.pop().expect("the row is longer");
            if self.pool.state(page) == own {
                self.pool.put_back(page);
            }
        }
    }

    /// Puts a page of the index in the place of a private one, which goes back to the pool.
    #[inline(always)]
    pub fn remap(&mut self, slot: u32, index: usize, page: u32) {
        assert!(self.pool.is_cached(page), "page {page} is the cache's");
        let row = &mut self.rows[slot as usize];
        row.version += 1;
        let own = std::mem::replace(&mut row.pages[index], page);
        debug_assert_ne!(own, page);
        self.pool.put_back(own);
    }

    /// Says that pages of a row are about to be written: who noted them earlier looks anew.
    pub fn renew(&mut self, slot: u32) {
        self.rows[slot as usize].version += 1;
    }

    /// Puts a page that was taken early in the place of the index's in a sequence's row.
    pub fn replace_shared(&mut self, slot: u32, index: usize, page: u32) {
        let row = &mut self.rows[slot as usize];
        assert!(self.pool.is_cached(row.pages[index]), "the page is the index's");
        self.pool.hand_over(&[page], Some(row.owner.expect("the slot is in use")));
        row.pages[index] = page;
        row.version += 1;
    }

    /// Cuts a row before the first page of the index, which is going away: looks at so many pages
    /// from a place on, before which there is none, and takes as many off the end. Returns the
    /// place to go on from; None when it is done.
    pub fn cut_some_cached(&mut self, slot: u32, place: usize, count: usize) -> Option<usize> {
        let pages = &self.rows[slot as usize].pages;
        let (len, start) = (pages.len(), place.min(pages.len()));
        let end = len.min(start.saturating_add(count));
        let cached = pages[start..end].iter().position(|&page| self.pool.is_cached(page));
        let Some(at) = cached.map(|at| start + at) else {
            return (end < len).then_some(end);
        };
        let to = len.saturating_sub(count).max(at);
        self.shorten(slot, to);
        (to > at).then_some(at)
    }

    /// KV positions of row positions: of some of those in a list.
    pub fn slot_mapping(
        &self,
        slot: u32,
        (positions, some): (&[u64], Range<usize>),
        mut write: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        let row = self.row(slot)?;
        check_positions(positions, some.clone(), row.len() * self.page_size)?;
        for at in some {
            let position = positions[at] as usize;
            let page = row[position / self.page_size] as i64;
            write(at, page * self.page_size as i64 + (position % self.page_size) as i64);
        }
        Ok(())
    }

    #[cold]
    pub(super) fn not_in_use(&self, slot: u32) -> Error {
        if self.pool.is_external() {
            return refused();
        }
        Error::argument(text!("slot {slot} is not in use"))
    }
}

/// Refuses positions that a row of so many has not, among some of a list.
pub fn check_positions(
    positions: &[u64],
    mut some: Range<usize>,
    capacity: usize,
) -> Result<(), Error> {
    match some.find(|&at| positions[at] >= capacity as u64) {
        None => Ok(()),
        Some(at) => Err(Error::argument(text!(
            "positions[{at}] {} is beyond the row's {capacity} positions",
            positions[at]
        ))),
    }
}
