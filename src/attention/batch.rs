//! A batch: for each row, its new positions, its pages and its regions, in arrays that are reused
//! from step to step.
use super::mask::{Mask, Region, View};
use crate::error::Error;
use crate::error::{Message, text};
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::BatchArrays;
use std::ops::Range;

/// A row of a batch: new positions behind what the KV cache holds already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The first new position.
    pub start: usize,
    /// New positions, at least one.
    pub count: usize,
    /// Index of its first new position among those of the batch.
    pub first_query: usize,
    /// Its pages in [`Batch::pages`].
    pub pages: Range<usize>,
    /// Its regions in [`Batch::regions`].
    pub regions: Range<usize>,
}

impl Row {
    /// Keys after the call: cached and new ones.
    pub fn key_count(&self) -> usize {
        self.start + self.count
    }
}

/// The rows of a step, and the arrays that kernels take.
#[derive(Debug, Clone)]
pub struct Batch {
    rows: Vec<Row>,
    pages: BatchArrays,
    regions: Vec<Region>,
    slot_mapping: Vec<i64>,
    query_indptr: Vec<i32>,
}

impl Batch {
    /// No rows yet.
    pub fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        let mut query_indptr = Vec::new();
        query_indptr.try_push(0)?;
        Ok(Self {
            rows: Vec::new(),
            pages: BatchArrays::new(page_size)?,
            regions: Vec::new(),
            slot_mapping: Vec::new(),
            query_indptr,
        })
    }

    /// Takes all rows away and keeps the room.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.pages.clear();
        self.regions.clear();
        self.slot_mapping.clear();
        self.query_indptr.truncate(1);
    }

    /// Makes room for so many rows, new positions and pages in all, but for no regions.
    pub fn reserve(
        &mut self,
        rows: usize,
        positions: usize,
        pages: usize,
    ) -> Result<(), OutOfMemory> {
        let more = rows.saturating_sub(self.rows.len());
        self.pages.reserve(more, pages.saturating_sub(self.pages().len()))?;
        self.rows.try_reserve_exact(more)?;
        self.slot_mapping.try_reserve_exact(positions.saturating_sub(self.slot_mapping.len()))?;
        self.query_indptr.try_reserve_exact(more)?;
        Ok(())
    }

    /// Adds a row: `count` new positions from `start` on, over the pages of positions from 0 on.
    /// Pages beyond the last position are left out. A refused row changes nothing.
    pub fn push_row(
        &mut self,
        start: usize,
        count: usize,
        pages: &[u32],
        regions: &[Region],
    ) -> Result<(), Error> {
        let at = self.rows.len();
        let fail = |text: Message| Err(Error::argument(text!("rows[{at}].{text}")));
        if count == 0 {
            return fail("count is zero".into());
        }
        let Some(key_count) = start.checked_add(count) else {
            return fail(text!("start {start} + count {count} is beyond 2^64"));
        };
        let page_size = self.page_size();
        let page_count = key_count.div_ceil(page_size);
        if page_count > pages.len() {
            return fail(text!(
                "start {start} + count {count} is beyond the row's {} positions",
                pages.len() * page_size
            ));
        }
        let mut before = 0;
        for (index, region) in regions.iter().enumerate() {
            if region.start < before || region.end <= region.start {
                return fail(text!("regions[{index}] is empty, or not after the one before it"));
            }
            before = region.end;
        }
        let first_query = self.slot_mapping.len();
        let query_end = i32::try_from(first_query + count).ok();
        let Some(query_end) = query_end.filter(|_| self.pages.may_have(page_count)) else {
            return fail("count: the batch has 2^31 pages or new positions".into());
        };
        self.reserve_row(count, page_count, regions.len())?;
        let page_start = self.pages().len();
        self.pages.push(key_count, pages);
        let region_start = self.regions.len();
        self.regions.extend_from_slice(regions);
        self.rows.push(Row {
            start,
            count,
            first_query,
            pages: page_start..self.pages().len(),
            regions: region_start..self.regions.len(),
        });
        self.slot_mapping.extend((start..key_count).map(|position| {
            let (page, offset) = (pages[position / page_size], position % page_size);
            i64::from(page) * page_size as i64 + offset as i64
        }));
        self.query_indptr.push(query_end);
        Ok(())
    }

    /// Makes room for a row.
    fn reserve_row(
        &mut self,
        count: usize,
        pages: usize,
        regions: usize,
    ) -> Result<(), OutOfMemory> {
        self.pages.reserve(1, pages)?;
        self.regions.try_reserve(regions)?;
        self.rows.try_reserve(1)?;
        self.slot_mapping.try_reserve(count)?;
        self.query_indptr.try_reserve(1)?;
        Ok(())
    }

    /// Positions of a page.
    pub fn page_size(&self) -> usize {
        self.pages.page_size()
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// New positions of all rows.
    pub fn query_count(&self) -> usize {
        self.slot_mapping.len()
    }

    /// The pages of all rows, as arrays.
    pub fn arrays(&self) -> &BatchArrays {
        &self.pages
    }

    /// Pages of all rows, one row after another.
    pub fn pages(&self) -> &[u32] {
        self.pages.indices()
    }

    /// Pages of a row, from position 0 on.
    pub fn pages_of(&self, row: &Row) -> &[u32] {
        &self.pages()[row.pages.clone()]
    }

    /// Regions of all rows, one row after another.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The mask of a row.
    pub fn mask_of(&self, row: &Row, view: View) -> Mask<'_> {
        let regions = &self.regions[row.regions.clone()];
        Mask { key_count: row.key_count(), view, regions }
    }

    /// For each new position its place in KV memory: page * page_size + offset in the page.
    pub fn slot_mapping(&self) -> &[i64] {
        &self.slot_mapping
    }

    /// Where each row begins in `pages`, and where the last one ends.
    pub fn page_indptr(&self) -> &[i32] {
        self.pages.indptr()
    }

    /// Where each row begins among the new positions, and where the last one ends.
    pub fn query_indptr(&self) -> &[i32] {
        &self.query_indptr
    }

    /// Positions in each row's last page.
    pub fn last_page_len(&self) -> &[i32] {
        self.pages.last_page_len()
    }
}
