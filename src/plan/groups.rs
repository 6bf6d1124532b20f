//! The rows of a step in a group beside the spine, as arrays.
use crate::attention::{Batch, Capacity};
use crate::error::Error;
use crate::group::{GroupConfig, GroupKind};
use crate::memory::OutOfMemory;
use crate::paging::BatchArrays;

use super::PlanRow;
use super::step::push_row;

/// The rows of a step in one group.
#[derive(Debug)]
pub struct GroupStep {
    kind: GroupKind,
    /// Of a STATE group, pages of each row.
    states: usize,
    /// As group 0 has it, page 0 where there is none. A STATE group has no positions, so no rows.
    batch: Batch,
    /// Only pages that new positions attend to, or are in; of a STATE group each row's pages. Not
    /// made where that is all there is.
    compact: BatchArrays,
    first_positions: Vec<i64>,
    sink_pages: Vec<i32>,
}

/// The pages of rows without those that no new position attends to.
#[derive(Debug, Clone, Copy)]
pub struct Compact<'a> {
    /// The pages.
    pub pages: &'a BatchArrays,
    /// Where the first page of each row begins, behind those of sinks. None: all at 0.
    pub first_positions: Option<&'a [i64]>,
    /// Pages of sinks at the beginning of each row. None: none.
    pub sink_pages: Option<&'a [i32]>,
}

impl GroupStep {
    pub(super) fn new(config: GroupConfig, page_size: usize) -> Result<Self, OutOfMemory> {
        let kind = config.kind;
        let compact_size = if kind == GroupKind::State { 1 } else { page_size };
        Ok(Self {
            kind,
            states: config.row_pages(0),
            batch: Batch::new(page_size)?,
            compact: BatchArrays::new(compact_size)?,
            first_positions: Vec::new(),
            sink_pages: Vec::new(),
        })
    }

    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.compact.clear();
        self.first_positions.clear();
        self.sink_pages.clear();
    }

    pub(super) fn reserve(&mut self, capacity: &Capacity) -> Result<(), OutOfMemory> {
        let Capacity { rows, positions, pages, .. } = *capacity;
        let is_state = self.kind == GroupKind::State;
        let pages = if is_state { rows.saturating_mul(self.states) } else { pages };
        if !is_state {
            self.batch.reserve(rows, positions, pages)?;
        }
        if self.kind != GroupKind::Full {
            let more = rows.saturating_sub(self.compact.last_page_len().len());
            self.compact.reserve(more, pages.saturating_sub(self.compact.indices().len()))?;
        }
        if self.kind.slides() {
            self.first_positions
                .try_reserve_exact(rows.saturating_sub(self.first_positions.len()))?;
            self.sink_pages.try_reserve_exact(rows.saturating_sub(self.sink_pages.len()))?;
        }
        Ok(())
    }

    /// Adds a row whose pages were found good.
    pub(super) fn push(&mut self, row: &PlanRow<'_>, pages: &[u32]) -> Result<(), Error> {
        if self.kind == GroupKind::State {
            self.compact.reserve(1, pages.len())?;
            self.compact.push(pages.len(), pages);
            return Ok(());
        }
        push_row(&mut self.batch, row, pages)?;
        if self.kind.slides() {
            self.push_compact(row, pages)?;
        }
        Ok(())
    }

    fn push_compact(&mut self, row: &PlanRow<'_>, pages: &[u32]) -> Result<(), OutOfMemory> {
        let page_size = self.batch.page_size();
        let end = row.start + row.count;
        let needs = self.kind.needs(row.start, page_size).expect("sliding groups end anywhere");
        let (sinks, first) = (&pages[needs.sinks.clone()], needs.last.start);
        let last = &pages[first..end.div_ceil(page_size)];
        self.compact.reserve(1, sinks.len() + last.len())?;
        self.first_positions.try_reserve(1)?;
        self.sink_pages.try_reserve(1)?;
        self.compact.push_parts(end - first * page_size, sinks, last);
        self.first_positions.push((first * page_size) as i64);
        self.sink_pages.push(sinks.len() as i32);
        Ok(())
    }

    /// Which pages it needs.
    pub fn kind(&self) -> GroupKind {
        self.kind
    }

    /// Its rows, as arrays. Those of a STATE group are in [`GroupStep::compact`] alone.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The same without the pages that no new position attends to.
    pub fn compact(&self) -> Compact<'_> {
        let slides = self.kind.slides();
        Compact {
            pages: if self.kind == GroupKind::Full { self.batch.arrays() } else { &self.compact },
            first_positions: slides.then_some(&self.first_positions),
            sink_pages: slides.then_some(&self.sink_pages),
        }
    }
}
