//! One step: its rows as they were when it was set, as arrays.
use super::PlanRow;
use super::groups::GroupStep;
use crate::attention::{Batch, Capacity, Region, RowMask};
use crate::error::Error;
use crate::error::text;
use crate::group::Groups;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::PageCopy;
use crate::sequence::{ComputedRow, RowPages};
use crate::store::{Shared, State};

/// A row as it was when the plan was set.
#[derive(Debug, Clone, Copy)]
struct Noted {
    row: ComputedRow,
    start: usize,
    count: usize,
    mask: RowMask,
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
    /// The groups beside the spine; none with one group.
    hung: Vec<GroupStep>,
    /// The first row that is no sequence's: those have pages of group 0 alone.
    first_slot: Option<usize>,
    /// All of its rows are.
    is_causal: bool,
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

    /// The group of each.
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

    fn push(&mut self, id: SequenceId, group: usize, copy: PageCopy) -> Result<(), OutOfMemory> {
        self.reserve(1)?;
        self.sequences.push(id);
        // Page numbers and page sizes are below 2^31.
        let values = [group as i32, copy.source as i32, copy.target as i32, copy.positions as i32];
        self.lists().into_iter().zip(values).for_each(|(list, value)| list.push(value));
        Ok(())
    }
}

impl Step {
    pub(super) fn new(page_size: usize, groups: &Groups) -> Result<Self, OutOfMemory> {
        let mut hung = Vec::new();
        for (_, group) in groups.hung() {
            hung.try_push(GroupStep::new(group, page_size)?)?;
        }
        Ok(Self {
            hung,
            first_slot: None,
            is_causal: true,
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
        self.hung.iter_mut().for_each(GroupStep::clear);
        self.first_slot = None;
        self.is_causal = true;
    }

    /// Makes room for every step within a capacity, but for the regions and tree masks of its rows.
    pub(super) fn reserve(&mut self, capacity: &Capacity) -> Result<(), OutOfMemory> {
        self.batch.reserve(capacity.rows, capacity.positions, capacity.pages)?;
        let more = capacity.rows.saturating_sub(self.rows.len());
        self.slots.try_reserve_exact(more)?;
        self.rows.try_reserve_exact(more)?;
        for group in &mut self.hung {
            group.reserve(capacity)?;
        }
        // In each group one from the cache, or a parent, and one to it.
        let copies = capacity.rows.saturating_mul(1 + 2 * self.hung.len());
        self.copies.reserve(copies.saturating_sub(self.copies.count()))
    }

    /// Adds a row that was found good.
    pub(super) fn push(&mut self, row: &PlanRow<'_>, pages: &RowPages<'_>) -> Result<(), Error> {
        push_row(&mut self.batch, row, pages.pages)?;
        let PlanRow { row, start, count, mask, .. } = *row;
        self.slots.try_push(pages.slot)?;
        self.rows.try_push(Noted { row, start, count, mask, version: pages.version })?;
        self.is_causal &= mask == RowMask::Causal;
        if let (Some(copy), ComputedRow::Sequence(id)) = (pages.copy, row) {
            self.copies.push(id, 0, copy)?;
        }
        Ok(())
    }

    /// Adds what the last row has in the groups beside the spine.
    pub(super) fn push_groups(&mut self, row: &PlanRow<'_>, state: &State) -> Result<(), Error> {
        let ComputedRow::Sequence(id) = row.row else {
            self.first_slot.get_or_insert(self.rows.len() - 1);
            return Ok(());
        };
        // Behind a slot's row no group but the first is computed; its copies are open all the same.
        let is_computed = self.first_slot.is_none();
        for (at, group) in self.hung.iter_mut().enumerate() {
            let pages = match row.mask {
                RowMask::Context => state.group_row_to_read(id, at + 1, row.start)?,
                _ => state.group_row_to_compute(id, at + 1, row.start, row.count)?,
            };
            if is_computed {
                group.push(row, pages)?;
            }
        }
        for copy in state.group_copies(id) {
            self.copies.push(id, copy.group, copy.into())?;
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

    /// Its rows in a group beside the spine.
    pub fn group(&self, group: usize) -> Result<&GroupStep, Error> {
        let count = 1 + self.hung.len();
        let Some(step) = group.checked_sub(1).and_then(|at| self.hung.get(at)) else {
            return Err(Error::argument(text!(
                "group {group} is not one of the {count} there are"
            )));
        };
        match self.first_slot {
            None => Ok(step),
            Some(at) => Err(Error::state(text!(
                "plan: rows[{at}] is a slot's and no sequence's: it has pages of group 0 alone"
            ))),
        }
    }

    /// Its rows in a group of which K and V are computed.
    pub fn batch_of(&self, group: usize) -> Result<&Batch, Error> {
        match group {
            0 => Ok(&self.batch),
            _ => self.group(group).map(GroupStep::batch),
        }
    }

    /// Whether every row is causal: others take no windows.
    pub fn is_causal(&self) -> bool {
        self.is_causal
    }

    /// The slots of its rows.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// What was to be copied before it when it was set.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The copies of a group that are still open: another step of the same sequence, an attempt
    /// that failed, or the engine itself, may have confirmed them since.
    pub(super) fn open_copies(
        &self,
        group: usize,
        state: &State,
    ) -> Result<Vec<PageCopy>, OutOfMemory> {
        let mut open = Vec::new();
        for id in self.sequences_that_wait() {
            for copy in state.copies_in(id, group) {
                open.try_push(copy)?;
            }
        }
        Ok(open)
    }

    /// A group for which `is_done` is false, of which copies are still open.
    pub(super) fn open_group(
        &self,
        state: &State,
        is_done: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let groups = 0..1 + self.hung.len();
        let mut left = groups.filter(|&group| !is_done(group));
        left.find(|&group| {
            self.sequences_that_wait().any(|id| state.copies_in(id, group).next().is_some())
        })
    }

    /// Those whose copies it has, each once.
    pub(super) fn sequences_that_wait(&self) -> impl Iterator<Item = SequenceId> {
        // The copies of a sequence are neighbours.
        let all = &self.copies.sequences;
        let is_new = move |at: &usize| *at == 0 || all[*at - 1] != all[*at];
        (0..all.len()).filter(is_new).map(move |at| all[at])
    }

    /// Refuses a step whose pages may be somebody else's by now. Others get in between its rows:
    /// that nobody gives up rows from here on is the caller's business in any case.
    pub(super) fn check(&self, shared: &Shared) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Err(Error::state("plan has no rows: it was never set, or with none"));
        }
        let (mut state, mut looked) = (shared.read(), 0);
        for (at, noted) in self.rows.iter().enumerate() {
            if looked > shared.read_portion() {
                (state, looked) = (shared.read_on(state), 0);
            }
            looked += 1 + noted.count.div_ceil(self.batch.page_size());
            match row_pages(&state, (noted.row, noted.mask), noted.start, noted.count) {
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

/// The pages of a row, which has what it is to compute.
fn row_pages(
    state: &State,
    (row, mask): (ComputedRow, RowMask),
    start: usize,
    count: usize,
) -> Result<RowPages<'_>, Error> {
    match mask {
        RowMask::Context => state.row_to_read(row, start),
        _ => state.row_to_compute(row, start, count),
    }
}

pub(super) fn pages_of<'a>(state: &'a State, row: &PlanRow<'_>) -> Result<RowPages<'a>, Error> {
    row_pages(state, (row.row, row.mask), row.start, row.count)
}

/// Adds a row to a batch, whose pages were found good.
pub(super) fn push_row(batch: &mut Batch, row: &PlanRow<'_>, pages: &[u32]) -> Result<(), Error> {
    let PlanRow { start, count, mask, regions, tree_masks, .. } = *row;
    match mask {
        RowMask::Causal => batch.push_masked_row(start, count, pages, (regions, tree_masks)),
        RowMask::Bidirectional => {
            // As one region, which is seen whole from everywhere in it.
            let all = Region { start: 0, end: start + count };
            batch.push_row(start, count, pages, &[all])
        }
        RowMask::Context => batch.push_context_row(start, count, pages),
    }
}

/// Refuses masks that don't go together, and what a group cannot show.
pub(super) fn check_masks(row: &PlanRow<'_>, state: &State) -> Result<(), Error> {
    if row.mask == RowMask::Causal {
        return check_regions(row);
    }
    if !row.regions.is_empty() || !row.tree_masks.is_empty() {
        return Err(Error::argument("mask: a row with regions or tree_masks is causal"));
    }
    let groups = state.groups();
    match groups.list().iter().position(|group| group.kind.slides()) {
        None => Ok(()),
        Some(at) => Err(Error::argument(text!(
            "mask: group {at} has a window or chunks, and rows of such a page table are causal"
        ))),
    }
}

/// A region is computed whole: positions that come before the rest of their image would attend to
/// less than they should.
fn check_regions(row: &PlanRow<'_>) -> Result<(), Error> {
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
