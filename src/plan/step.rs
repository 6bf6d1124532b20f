//! One step: its rows as they were when it was set, as arrays.
use super::PlanRow;
use crate::attention::{Batch, Capacity, Region};
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::PageCopy;
use crate::sequence::{ComputedRow, RowPages};
use crate::store::State;

/// A row as it was when the plan was set.
#[derive(Debug, Clone, Copy)]
struct Noted {
    row: ComputedRow,
    start: usize,
    count: usize,
    version: u64,
}

/// The copies that sequences of a step waited for when it was set, as arrays.
#[derive(Debug, Default)]
pub struct Copies {
    sequences: Vec<SequenceId>,
    groups: Vec<i32>,
    sources: Vec<i32>,
    targets: Vec<i32>,
    positions: Vec<i32>,
}

/// What a plan computes at a time.
#[derive(Debug)]
pub struct Step {
    batch: Batch,
    /// Which `set` made it; 0: none.
    pub(super) number: u64,
    /// The rows' slots.
    slots: Vec<u32>,
    rows: Vec<Noted>,
    copies: Copies,
}

impl Copies {
    /// How many.
    pub fn count(&self) -> usize {
        self.sequences.len()
    }

    /// Who waits for each.
    pub fn sequences(&self) -> &[SequenceId] {
        &self.sequences
    }

    /// The group of each: 0, for there is one.
    pub fn groups(&self) -> &[i32] {
        &self.groups
    }

    /// The page to copy from.
    pub fn sources(&self) -> &[i32] {
        &self.sources
    }

    /// The page to copy to.
    pub fn targets(&self) -> &[i32] {
        &self.targets
    }

    /// Positions from the beginning of the page.
    pub fn positions(&self) -> &[i32] {
        &self.positions
    }

    fn lists(&mut self) -> [&mut Vec<i32>; 4] {
        [&mut self.groups, &mut self.sources, &mut self.targets, &mut self.positions]
    }

    fn clear(&mut self) {
        self.sequences.clear();
        self.lists().into_iter().for_each(Vec::clear);
    }

    fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        self.sequences.try_reserve(more)?;
        self.lists().into_iter().try_for_each(|list| Ok(list.try_reserve(more)?))
    }

    fn push(&mut self, id: SequenceId, copy: PageCopy) -> Result<(), OutOfMemory> {
        self.reserve(1)?;
        self.sequences.push(id);
        // Page numbers and page sizes are below 2^31.
        let values = [0, copy.source as i32, copy.target as i32, copy.positions as i32];
        self.lists().into_iter().zip(values).for_each(|(list, value)| list.push(value));
        Ok(())
    }
}

impl Step {
    pub(super) fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            batch: Batch::new(page_size)?,
            number: 0,
            slots: Vec::new(),
            rows: Vec::new(),
            copies: Copies::default(),
        })
    }

    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.slots.clear();
        self.rows.clear();
        self.copies.clear();
    }

    /// Makes room for every step within a capacity, but for the regions of its rows.
    pub(super) fn reserve(&mut self, capacity: &Capacity) -> Result<(), OutOfMemory> {
        self.batch.reserve(capacity.rows, capacity.positions, capacity.pages)?;
        let more = capacity.rows.saturating_sub(self.rows.len());
        self.slots.try_reserve_exact(more)?;
        self.rows.try_reserve_exact(more)?;
        self.copies.reserve(capacity.rows.saturating_sub(self.copies.count()))
    }

    /// Adds a row that was found good.
    pub(super) fn push(&mut self, row: &PlanRow<'_>, pages: &RowPages<'_>) -> Result<(), Error> {
        let PlanRow { row, start, count, regions } = *row;
        self.batch.push_row(start, count, pages.pages, regions)?;
        self.slots.try_push(pages.slot)?;
        self.rows.try_push(Noted { row, start, count, version: pages.version })?;
        if let (Some(copy), ComputedRow::Sequence(id)) = (pages.copy, row) {
            self.copies.push(id, copy)?;
        }
        Ok(())
    }

    /// Tells this step from every other one of its plan; never 0 once the plan was set.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its rows, as arrays.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The slots of its rows.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// What was to be copied before it when it was set.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The copies that are still open: another step of the same sequence, an attempt that failed,
    /// or the engine itself, may have confirmed them since.
    pub(super) fn open_copies(&self, state: &State) -> Result<Vec<PageCopy>, OutOfMemory> {
        let mut open = Vec::new();
        for copy in self.sequences_that_wait().filter_map(|id| state.open_copy(id)) {
            open.try_push(copy)?;
        }
        Ok(open)
    }

    pub(super) fn sequences_that_wait(&self) -> impl Iterator<Item = SequenceId> {
        self.copies.sequences.iter().copied()
    }

    /// Refuses a step whose pages may be somebody else's by now.
    pub(super) fn check(&self, state: &State) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Err(Error::state("plan has no rows: it was never set"));
        }
        for (at, noted) in self.rows.iter().enumerate() {
            let now = state.row_to_compute(noted.row, noted.start, noted.count);
            match now {
                Ok(now) if now.version == noted.version => {}
                Ok(_) => {
                    return Err(Error::state(text!(
                        "plan: the pages of rows[{at}] changed since it was set"
                    )));
                }
                // It was good when it was set.
                Err(Error::Argument(message)) => {
                    return Err(Error::state(text!("plan: rows[{at}]: {message}")));
                }
                Err(error) => return Err(error.within(&text!("plan: rows[{at}]"))),
            }
        }
        Ok(())
    }
}

/// A region is computed whole: positions that come before the rest of their image would attend to
/// less than they should.
pub(super) fn check_regions(row: &PlanRow<'_>) -> Result<(), Error> {
    for cut in [row.start, row.start + row.count] {
        let is_cut = |region: &Region| region.start < cut && cut < region.end;
        if let Some(at) = row.regions.iter().position(is_cut) {
            let Region { start, end } = row.regions[at];
            return Err(Error::argument(text!(
                "regions[{at}] [{start}, {end}) is cut at {cut}, but computed whole or not at all"
            )));
        }
    }
    Ok(())
}
