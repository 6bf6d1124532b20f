//! A plan: one step's rows as arrays, taken from the page table at one moment.
use super::Runner;
use super::backend::Backend;
use crate::attention::{Batch, Capacity, Region};
use crate::error::Error;
use crate::error::text;
use crate::gpu::{AppendPrefill, CudaBackend, PlanOnDevice, StepOfPlan, Stream};
use crate::ids::SequenceId;
use crate::memory::{Arc, OutOfMemory, TryGrow, try_filled};
use crate::sequence::{ComputedRow, PageCopy};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    // std's locks: parking_lot's take memory when a thread has to wait.
    steps: RwLock<Steps>,
    /// Its arrays on the GPU, once there was a call.
    device: Mutex<Option<PlanOnDevice>>,
}

/// The step that was set, and the one before, whose memory the next one takes.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) current: Step,
    spare: Step,
    /// By slot: the number of the `set` that saw it last.
    seen: Vec<u64>,
    number: u64,
    /// The largest step that may be set.
    pub(super) capacity: Option<Capacity>,
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
    number: u64,
    /// The rows' slots.
    slots: Vec<u32>,
    rows: Vec<Noted>,
    /// Whether sequences waited for copies when it was set.
    has_copies: bool,
}

/// Copies that the sequences of a step wait for, to be carried out before it.
#[derive(Debug, Default)]
struct OpenCopies {
    pages: Vec<PageCopy>,
    sequences: Vec<SequenceId>,
}

impl Plan {
    /// An empty plan.
    pub fn new(runner: Arc<Runner>) -> Result<Self, Error> {
        let page_size = runner.geometry.page_size;
        let steps = Steps {
            current: Step::new(page_size)?,
            spare: Step::new(page_size)?,
            seen: try_filled(0, runner.slots)?,
            number: 0,
            capacity: None,
        };
        Ok(Self { runner, steps: RwLock::new(steps), device: Mutex::new(None) })
    }

    fn read(&self) -> RwLockReadGuard<'_, Steps> {
        // A panic poisons the cache, and with it all that stands on it.
        self.steps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Steps> {
        self.steps.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> MutexGuard<'_, Option<PlanOnDevice>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut steps = self.write();
        steps.fill_spare(&self.runner, rows)?;
        let Steps { current, spare, .. } = &mut *steps;
        if spare.has_copies && matches!(self.runner.backend, Backend::Cpu(_)) {
            let copies = spare.open_copies(&self.runner)?;
            // SAFETY: a source is protected until its copy is confirmed, a target is the
            // sequence's own; the CPU has no streams.
            unsafe { self.runner.carry_out(&copies.pages, Stream::new(std::ptr::null_mut()))? };
            copies.confirm(&self.runner)?;
        }
        std::mem::swap(current, spare);
        Ok(())
    }

    /// Makes room for every step within a capacity; larger ones are refused from then on. When it
    /// fails the plan is as before.
    pub fn reserve(&self, capacity: &Capacity) -> Result<(), Error> {
        let mut steps = self.write();
        capacity.check()?;
        capacity.check_fits(&steps.current.batch).map_err(|error| error.within("plan"))?;
        match &self.runner.backend {
            Backend::Cpu(_) => {}
            Backend::Cuda(cuda) => {
                cuda.reserve(capacity, Self::on_device(&mut self.device(), cuda)?)?;
            }
        }
        steps.capacity = Some(*capacity);
        Ok(())
    }

    /// Sends what the first call of the step would send, and carries out the copies that its
    /// sequences wait for: then calls may go into a graph, or one be launched. The CPU has nothing
    /// to send.
    ///
    /// # Safety
    /// Nobody else computes the same rows meanwhile, or releases their sequences.
    pub unsafe fn upload(&self, stream: *mut c_void) -> Result<(), Error> {
        let stream = self.runner.stream(stream)?;
        let step = &self.steps()?.current;
        match &self.runner.backend {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => {
                let mut device = self.device();
                // SAFETY: the caller's contract.
                unsafe { self.send(cuda, step, Self::on_device(&mut device, cuda)?, stream) }
            }
        }
    }

    /// Puts a call on a stream, or into a graph; the first one of a step sends the step.
    ///
    /// # Safety
    /// That of [`CudaBackend::append_prefill`].
    pub(super) unsafe fn launch(
        &self,
        cuda: &CudaBackend,
        step: &Step,
        call: &AppendPrefill<'_>,
        stream: Stream,
    ) -> Result<(), Error> {
        let mut device = self.device();
        let device = Self::on_device(&mut device, cuda)?;
        if !call.is_captured && !device.has(step.number) {
            // SAFETY: the caller's contract.
            unsafe { self.send(cuda, step, device, stream)? };
        }
        // SAFETY: the caller's contract.
        unsafe { cuda.append_prefill(call, device, stream) }
    }

    /// Sends the arrays of a step, with the copies before it; nothing when that was done.
    ///
    /// # Safety
    /// As for `upload`.
    unsafe fn send(
        &self,
        cuda: &CudaBackend,
        step: &Step,
        device: &mut PlanOnDevice,
        stream: Stream,
    ) -> Result<(), Error> {
        let mut copies = OpenCopies::default();
        if step.has_copies && !device.has(step.number) {
            copies = step.open_copies(&self.runner)?;
            // SAFETY: a source is protected until its copy is confirmed, a target is the sequence's
            // own.
            unsafe { self.runner.carry_out(&copies.pages, stream)? };
        }
        // SAFETY: the caller's contract.
        unsafe { cuda.upload(&step.on_device(), device, stream)? };
        copies.confirm(&self.runner)
    }

    fn on_device<'a>(
        device: &'a mut Option<PlanOnDevice>,
        cuda: &CudaBackend,
    ) -> Result<&'a mut PlanOnDevice, Error> {
        Ok(match device {
            Some(device) => device,
            none => none.insert(cuda.new_plan()?),
        })
    }

    /// The step, provided that its pages are still those of its rows.
    pub(super) fn steps(&self) -> Result<RwLockReadGuard<'_, Steps>, Error> {
        let steps = self.read();
        if steps.current.rows.is_empty() {
            return Err(Error::state("plan has no rows: it was never set"));
        }
        steps.current.check(&self.runner)?;
        Ok(steps)
    }

    /// Calls `read` with the arrays of the step that was set.
    pub fn with_batch<R>(&self, read: impl FnOnce(&Batch) -> R) -> R {
        read(&self.read().current.batch)
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
            let wrong = |error: Error| error.within(&text!("rows[{at}]"));
            let pages = state.row_to_compute(row.row, row.start, row.count).map_err(wrong)?;
            check_regions(row).map_err(wrong)?;
            let seen = &mut self.seen[pages.slot as usize];
            if std::mem::replace(seen, self.number) == self.number {
                return Err(Error::argument(text!("rows[{at}] is in the batch already")));
            }
            step.batch.push_row(row.start, row.count, pages.pages, row.regions)?;
            let PlanRow { row, start, count, .. } = *row;
            step.slots.try_push(pages.slot)?;
            step.rows.try_push(Noted { row, start, count, version: pages.version })?;
            step.has_copies |= pages.copy.is_some();
        }
        match &self.capacity {
            Some(capacity) => capacity.check_fits(&step.batch),
            None => Ok(()),
        }
    }
}

impl Step {
    fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            batch: Batch::new(page_size)?,
            number: 0,
            slots: Vec::new(),
            rows: Vec::new(),
            has_copies: false,
        })
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.slots.clear();
        self.rows.clear();
        self.has_copies = false;
    }

    /// What a GPU is told of it.
    pub(super) fn on_device(&self) -> StepOfPlan<'_> {
        StepOfPlan { number: self.number, batch: &self.batch, slots: &self.slots }
    }

    /// The copies that are not confirmed yet: another step of the same sequence, or an attempt that
    /// failed, may have carried them out since it was set.
    fn open_copies(&self, runner: &Runner) -> Result<OpenCopies, OutOfMemory> {
        let mut copies = OpenCopies::default();
        let state = runner.shared.read();
        for noted in &self.rows {
            let pages = state.row_to_compute(noted.row, noted.start, noted.count);
            let copy = pages.ok().and_then(|pages| pages.copy);
            if let (Some(copy), ComputedRow::Sequence(id)) = (copy, noted.row) {
                copies.pages.try_push(copy)?;
                copies.sequences.try_push(id)?;
            }
        }
        Ok(copies)
    }

    /// Refuses a step whose pages may be somebody else's by now.
    fn check(&self, runner: &Runner) -> Result<(), Error> {
        let state = runner.shared.read();
        for (at, noted) in self.rows.iter().enumerate() {
            let now = state.row_to_compute(noted.row, noted.start, noted.count);
            match now {
                Ok(now) if now.version == noted.version => {}
                Ok(_) => {
                    return Err(Error::state(text!(
                        "plan: the pages of rows[{at}] changed since it was set"
                    )));
                }
                Err(error) => return Err(error.within(&text!("plan: rows[{at}]"))),
            }
        }
        Ok(())
    }
}

impl OpenCopies {
    /// Tells the sequences that they were carried out.
    fn confirm(&self, runner: &Runner) -> Result<(), Error> {
        let mut state = runner.shared.write();
        self.sequences.iter().try_for_each(|&sequence| state.confirm_copy(sequence))
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
