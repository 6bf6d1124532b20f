//! A plan: one step's rows as arrays, taken from the page table at one moment.
use super::Runner;
use super::backend::Backend;
use crate::attention::{Batch, Region};
use crate::error::Error;
use crate::gpu::{PlanOnDevice, Stream};
use crate::ids::SequenceId;
use crate::sequence::{ComputedRow, PageCopy};
use parking_lot::{MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::sync::Arc;

/// New positions of one row.
#[derive(Debug, Clone, Copy)]
pub struct PlanRow<'a> {
    /// The row.
    pub row: ComputedRow,
    /// The first new position.
    pub start: usize,
    /// How many.
    pub count: usize,
    /// Positions of the row that attend to each other in both directions, ascending and disjoint.
    pub regions: &'a [Region],
}

/// What a step computes. Made once, set anew for each step: its memory is reused.
#[derive(Debug)]
pub struct Plan {
    runner: Arc<Runner>,
    steps: RwLock<Steps>,
    /// Its arrays on the GPU, once there was a call.
    device: Mutex<Option<PlanOnDevice>>,
}

/// The step that was set, and the one before, whose memory the next one takes.
#[derive(Debug)]
struct Steps {
    current: Step,
    spare: Step,
    /// By slot: the number of the `set` that saw it last.
    seen: Vec<u64>,
    number: u64,
}

/// A row as it was when the plan was set.
#[derive(Debug, Clone, Copy)]
struct Noted {
    row: ComputedRow,
    start: usize,
    count: usize,
    version: u64,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) batch: Batch,
    /// Which `set` made it.
    pub(super) number: u64,
    /// The rows' slots.
    pub(super) slots: Vec<u32>,
    rows: Vec<Noted>,
    /// Copies to carry out before it, and whose they are.
    pub(super) copies: Vec<PageCopy>,
    copying: Vec<SequenceId>,
}

impl Plan {
    /// An empty plan.
    pub fn new(runner: Arc<Runner>) -> Self {
        let step = || Step {
            batch: Batch::new(runner.geometry.page_size),
            number: 0,
            slots: Vec::new(),
            rows: Vec::new(),
            copies: Vec::new(),
            copying: Vec::new(),
        };
        let seen = vec![0; runner.slots];
        let steps = Steps { current: step(), spare: step(), seen, number: 0 };
        Self { runner, steps: RwLock::new(steps), device: Mutex::new(None) }
    }

    /// The runner that it is for.
    pub fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    /// Sets the rows of the next step, carries out the copies that their sequences wait for and
    /// confirms them; on a GPU the first call of the step does that, for it knows the stream. When
    /// it fails the plan is as before.
    ///
    /// # Safety
    /// Nobody else computes the same rows meanwhile, or releases their sequences.
    pub unsafe fn set(&self, rows: &[PlanRow<'_>]) -> Result<(), Error> {
        let mut steps = self.steps.write();
        steps.fill_spare(&self.runner, rows)?;
        let Steps { current, spare, .. } = &mut *steps;
        if !spare.copies.is_empty() && matches!(self.runner.backend, Backend::Cpu(_)) {
            // SAFETY: a source is protected until its copy is confirmed, a target is the
            // sequence's own; the CPU has no streams.
            unsafe { self.runner.carry_out(&spare.copies, Stream::new(std::ptr::null_mut()))? };
            spare.confirm_copies(&self.runner)?;
        }
        std::mem::swap(current, spare);
        Ok(())
    }

    /// The step, provided that its pages are still those of its rows.
    pub(super) fn step(&self) -> Result<MappedRwLockReadGuard<'_, Step>, Error> {
        let steps = self.steps.read();
        if steps.current.rows.is_empty() {
            return Err(Error::state("plan has no rows: it was never set"));
        }
        steps.current.check(&self.runner)?;
        Ok(RwLockReadGuard::map(steps, |steps| &steps.current))
    }

    /// What it has on the GPU.
    pub(super) fn device(&self) -> MutexGuard<'_, Option<PlanOnDevice>> {
        self.device.lock()
    }

    /// Calls `read` with the arrays of the step that was set.
    pub fn with_batch<R>(&self, read: impl FnOnce(&Batch) -> R) -> R {
        read(&self.steps.read().current.batch)
    }
}

impl Steps {
    fn fill_spare(&mut self, runner: &Runner, rows: &[PlanRow<'_>]) -> Result<(), Error> {
        self.number += 1;
        let step = &mut self.spare;
        step.clear();
        step.number = self.number;
        let state = runner.shared.read();
        for (at, row) in rows.iter().enumerate() {
            let wrong = |error: Error| error.within(&format!("rows[{at}]"));
            let pages = state.row_to_compute(row.row, row.start, row.count).map_err(wrong)?;
            check_regions(row).map_err(wrong)?;
            let seen = &mut self.seen[pages.slot as usize];
            if std::mem::replace(seen, self.number) == self.number {
                return Err(Error::argument(format!("rows[{at}] is in the batch already")));
            }
            step.batch.push_row(row.start, row.count, pages.pages, row.regions)?;
            let PlanRow { row, start, count, .. } = *row;
            step.slots.push(pages.slot);
            step.rows.push(Noted { row, start, count, version: pages.version });
            if let (Some(copy), ComputedRow::Sequence(id)) = (pages.copy, row) {
                step.copies.push(copy);
                step.copying.push(id);
            }
        }
        Ok(())
    }
}

impl Step {
    fn clear(&mut self) {
        self.batch.clear();
        self.slots.clear();
        self.rows.clear();
        self.copies.clear();
        self.copying.clear();
    }

    /// Tells the sequences that their copies were carried out.
    pub(super) fn confirm_copies(&self, runner: &Runner) -> Result<(), Error> {
        let mut state = runner.shared.write();
        self.copying.iter().try_for_each(|&sequence| state.confirm_copy(sequence))
    }

    /// Refuses a step whose pages may be somebody else's by now.
    fn check(&self, runner: &Runner) -> Result<(), Error> {
        let state = runner.shared.read();
        for (at, noted) in self.rows.iter().enumerate() {
            let now = state.row_to_compute(noted.row, noted.start, noted.count);
            match now {
                Ok(now) if now.version == noted.version => {}
                Ok(_) => {
                    return Err(Error::state(format!(
                        "plan: the pages of rows[{at}] changed since it was set"
                    )));
                }
                Err(error) => return Err(error.within(&format!("plan: rows[{at}]"))),
            }
        }
        Ok(())
    }
}

/// A region is computed whole: positions that come before the rest of their image would attend to
/// less than they should.
fn check_regions(row: &PlanRow<'_>) -> Result<(), Error> {
    for cut in [row.start, row.start + row.count] {
        let is_cut = |region: &Region| region.start < cut && cut < region.end;
        if let Some(at) = row.regions.iter().position(is_cut) {
            let Region { start, end } = row.regions[at];
            return Err(Error::argument(format!(
                "regions[{at}] [{start}, {end}) is cut at {cut}, but computed whole or not at all"
            )));
        }
    }
    Ok(())
}
