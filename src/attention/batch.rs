//! A batch: for each row, its new positions, its pages and what they see, in arrays that are reused
//! from step to step.
use super::mask::{Mask, Region, TREE_POSITIONS_MAX, View};
use crate::error::Error;
use crate::error::{Message, text};
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::BatchArrays;
use std::ops::Range;

/// In [`Batch::slot_mapping`]: of a query that is no position, so that nothing is written for it.
const NOWHERE: i64 = -1;

const TOO_MANY: &str = "count: the batch has 2^31 pages or new positions";

/// A row of a batch: new positions behind what the KV cache holds already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The first new position; of a context all that there are.
    pub start: usize,
    /// New positions, at least one; of a context the queries that attend to it.
    pub count: usize,
    /// Its queries are no positions of it: nothing is written for them, and they see all of it.
    pub is_context: bool,
    /// Index of its first new position among those of the batch.
    pub first_query: usize,
    /// Its pages in [`Batch::pages`].
    pub pages: Range<usize>,
    /// Its regions in [`Batch::regions`].
    pub regions: Range<usize>,
    /// The tree masks of its new positions in [`Batch::trees`]; empty: they have none.
    pub tree: Range<usize>,
}

impl Row {
    /// Keys after the call: cached and new ones.
    pub fn key_count(&self) -> usize {
        self.position(self.count - 1) + 1
    }

    /// Up to which position a query sees, by its number among those of the row: its own, or the
    /// context's last.
    pub fn position(&self, query: usize) -> usize {
        if self.is_context { self.start - 1 } else { self.start + query }
    }
}

/// The rows of a step, and the arrays that kernels take.
#[derive(Debug, Clone)]
pub struct Batch {
    rows: Vec<Row>,
    pages: BatchArrays,
    regions: Vec<Region>,
    trees: Vec<u64>,
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
            trees: Vec::new(),
            slot_mapping: Vec::new(),
            query_indptr,
        })
    }

    /// Takes all rows away and keeps the room.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.pages.clear();
        self.regions.clear();
        self.trees.clear();
        self.slot_mapping.clear();
        self.query_indptr.truncate(1);
    }

    /// Makes room for so many rows, new positions and pages in all, but for no regions
    /// and trees.
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
        self.push_masked_row(start, count, pages, (regions, &[]))
    }

    /// The same with tree masks: for each new position, which of the row's new ones it sees, the
    /// lowest bit for the first. None: all before it.
    pub fn push_masked_row(
        &mut self,
        start: usize,
        count: usize,
        pages: &[u32],
        (regions, tree): (&[Region], &[u64]),
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
        let Some(query_end) = self.query_end(count, page_count) else {
            return fail(TOO_MANY.into());
        };
        let mut before = 0;
        for (index, region) in regions.iter().enumerate() {
            if region.start < before || region.end <= region.start {
                return fail(text!("regions[{index}] is empty, or not after the one before it"));
            }
            before = region.end;
        }
        if let Err(wrong) = check_tree(count, regions, tree) {
            return fail(wrong);
        }
        let first_query = self.slot_mapping.len();
        self.reserve_row(count, page_count, regions.len(), tree.len())?;
        let page_start = self.pages().len();
        self.pages.push(key_count, pages);
        let region_start = self.regions.len();
        self.regions.extend_from_slice(regions);
        let tree_start = self.trees.len();
        self.trees.extend(tree.iter().enumerate().map(|(at, seen)| seen | 1 << at));
        self.rows.push(Row {
            start,
            count,
            is_context: false,
            first_query,
            pages: page_start..self.pages().len(),
            regions: region_start..self.regions.len(),
            tree: tree_start..self.trees.len(),
        });
        let (mut page, mut offset, mut left) = (start / page_size, start % page_size, count);
        while left > 0 {
            let some = left.min(page_size - offset);
            let first = i64::from(pages[page]) * page_size as i64 + offset as i64;
            self.slot_mapping.extend(first..first + some as i64);
            (page, offset, left) = (page + 1, 0, left - some);
        }
        self.query_indptr.push(query_end);
        Ok(())
    }

    /// Adds a row of which `context` positions are there, and `count` queries that are none of them
    /// attend to all. A refused row changes nothing.
    pub fn push_context_row(
        &mut self,
        context: usize,
        count: usize,
        pages: &[u32],
    ) -> Result<(), Error> {
        let at = self.rows.len();
        let fail = |text: Message| Err(Error::argument(text!("rows[{at}].{text}")));
        let page_count = context.div_ceil(self.page_size());
        if count == 0 || context == 0 {
            return fail("count, and the start of a context, are at least one".into());
        }
        if page_count > pages.len() {
            let most = pages.len() * self.page_size();
            return fail(text!("start {context} is beyond the row's {most} positions"));
        }
        let Some(query_end) = self.query_end(count, page_count) else {
            return fail(TOO_MANY.into());
        };
        self.reserve_row(count, page_count, 0, 0)?;
        let first_query = self.slot_mapping.len();
        let page_start = self.pages().len();
        self.pages.push(context, pages);
        self.rows.push(Row {
            start: context,
            count,
            is_context: true,
            first_query,
            pages: page_start..self.pages().len(),
            regions: self.regions.len()..self.regions.len(),
            tree: self.trees.len()..self.trees.len(),
        });
        self.slot_mapping.extend((0..count).map(|_| NOWHERE));
        self.query_indptr.push(query_end);
        Ok(())
    }

    /// Where so many queries of a row end; None where there would be too many, or too many pages.
    fn query_end(&self, count: usize, pages: usize) -> Option<i32> {
        let end = self.slot_mapping.len().checked_add(count)?;
        i32::try_from(end).ok().filter(|_| self.pages.may_have(pages))
    }

    /// Makes room for a row.
    fn reserve_row(
        &mut self,
        count: usize,
        pages: usize,
        regions: usize,
        tree: usize,
    ) -> Result<(), OutOfMemory> {
        self.pages.reserve(1, pages)?;
        self.regions.try_reserve(regions)?;
        self.trees.try_reserve(tree)?;
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

    /// Tree masks of all rows that have some, one row after another.
    pub fn trees(&self) -> &[u64] {
        &self.trees
    }

    /// The mask of a row.
    pub fn mask_of(&self, row: &Row, view: View) -> Mask<'_> {
        Mask {
            key_count: row.key_count(),
            view,
            regions: &self.regions[row.regions.clone()],
            tree: &self.trees[row.tree.clone()],
        }
    }

    /// For each new position its place in KV memory: page * page_size + offset in the page; -1 for
    /// a query that is no position of its row.
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

/// Refuses tree masks that are none.
fn check_tree(count: usize, regions: &[Region], tree: &[u64]) -> Result<(), Message> {
    if tree.is_empty() {
        return Ok(());
    }
    if !regions.is_empty() {
        return Err("tree_masks: a row with them has no regions".into());
    }
    if tree.len() != count || count > TREE_POSITIONS_MAX {
        return Err(text!(
            "tree_masks: a row with them has at most {TREE_POSITIONS_MAX} new positions, and one \
             for each of its {count}"
        ));
    }
    for (at, &seen) in tree.iter().enumerate() {
        let after = seen.checked_shr(at as u32 + 1).unwrap_or(0);
        if after != 0 {
            let bit = at as u32 + 1 + after.trailing_zeros();
            return Err(text!("tree_masks[{at}] has bit {bit}, of a position behind its own"));
        }
    }
    Ok(())
}
