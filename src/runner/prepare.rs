//! What a runner does with a plan before it computes a step of it, once: the copies that the
//! step's sequences wait for, in its own layers, and on a GPU the step's arrays.
use super::Runner;
use super::backend::Backend;
use crate::attention::Batch;
use crate::cpu::{AppendPrefill, CpuBackend, Divisions};
use crate::error::Error;
use crate::gpu::{self, CudaBackend, PlanOnDevice, StepOfPlan, Stream};
use crate::plan::{Current, Plan, Step, Ties};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a runner keeps with a plan. It goes with whichever of the two goes first.
#[derive(Debug, Default)]
pub(super) struct OfPlan {
    /// The step whose copies this runner carried out; 0: none.
    copied: Mutex<u64>,
    /// How the step is divided among threads.
    divisions: Divisions,
    /// Its arrays on the GPU, once there was a call.
    device: Mutex<Option<PlanOnDevice>>,
}

impl OfPlan {
    fn copied(&self) -> MutexGuard<'_, u64> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with what the plan has on the device.
    pub(super) fn on_device<R>(
        &self,
        cuda: &CudaBackend,
        current: &Current<'_>,
        work: impl FnOnce(&mut PlanOnDevice) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let device = match &mut *device {
            Some(device) => device,
            none => none.insert(cuda.new_plan()?),
        };
        device.reserved_for(current.capacity());
        work(device)
    }
}

/// What a GPU is told of a step.
pub(super) fn on_device<'a>(step: &'a Step, batch: &'a Batch) -> StepOfPlan<'a> {
    StepOfPlan { number: step.number(), batch, slots: step.slots() }
}

impl Runner {
    /// Refuses a plan over the rows of another page table.
    pub(super) fn check_plan(&self, plan: &Plan) -> Result<(), Error> {
        if !std::ptr::eq(plan.shared(), self.shared()) {
            return Err(Error::argument("plan is over another page table than the runner"));
        }
        Ok(())
    }

    /// Works with what this runner keeps with a plan.
    pub(super) fn with_kept<R>(
        &self,
        plan: &Plan,
        work: impl FnOnce(&OfPlan) -> Result<R, Error>,
    ) -> Result<R, Error> {
        Ties::with(plan.ties(), &self.ties, work)
    }

    /// Makes room on the device for every step within the plan's capacity, so that calls can go
    /// into graphs. The CPU needs none.
    pub fn reserve_plan(&self, plan: &Plan) -> Result<(), Error> {
        self.check_plan(plan)?;
        let current = plan.current();
        let Some(capacity) = current.capacity() else {
            return Err(Error::state("plan: rkv_plan_reserve() was not called"));
        };
        match &self.backend {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => self.with_kept(plan, |kept| {
                kept.on_device(cuda, &current, |device| cuda.reserve(capacity, device))
            }),
        }
    }

    /// Does what the first call of a step does otherwise: carries out the copies that its sequences
    /// wait for, and on a GPU sends its arrays. With `keeps_open` the copies are not confirmed, for
    /// others have them to carry out too.
    ///
    /// # Safety
    /// Nobody else computes the same rows meanwhile, or releases their sequences.
    pub unsafe fn prepare_plan(
        &self,
        plan: &Plan,
        keeps_open: bool,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        self.check_plan(plan)?;
        let stream = self.stream(stream)?;
        let current = plan.to_compute()?;
        let step = current.step();
        let batch = step.batch_of(self.config.group)?;
        if !keeps_open {
            plan.check_confirmable(step, self.config.group)?;
        }
        self.with_kept(plan, |kept| {
            match &self.backend {
                // SAFETY: the caller's contract.
                Backend::Cpu(_) => unsafe { self.copy_once(plan, step, kept, stream) },
                Backend::Cuda(cuda) => kept.on_device(cuda, &current, |device| {
                    // SAFETY: the caller's contract.
                    unsafe { self.send(plan, (step, batch, kept), (cuda, device), stream) }
                }),
            }?;
            match keeps_open {
                true => Ok(()),
                false => plan.confirm_copies(step),
            }
        })
    }

    /// Carries out what copies of a step are open, unless that was done.
    ///
    /// # Safety
    /// That of `prepare_plan`.
    unsafe fn copy_once(
        &self,
        plan: &Plan,
        step: &Step,
        kept: &OfPlan,
        stream: Stream,
    ) -> Result<(), Error> {
        let mut copied = kept.copied();
        if *copied != step.number() {
            let copies = plan.open_copies(step, self.config.group)?;
            // SAFETY: a source is protected until its copy is confirmed, a target is the
            // sequence's own.
            unsafe { self.carry_out(&copies, stream)? };
            plan.note_carried(step, self.config.group);
            *copied = step.number();
        }
        Ok(())
    }

    /// Sends a step, with the copies before it; nothing when that was done.
    ///
    /// # Safety
    /// That of `prepare_plan`.
    unsafe fn send(
        &self,
        plan: &Plan,
        (step, batch, kept): (&Step, &Batch, &OfPlan),
        (cuda, device): (&CudaBackend, &mut PlanOnDevice),
        stream: Stream,
    ) -> Result<(), Error> {
        let mut copied = kept.copied();
        let is_copied = *copied == step.number();
        let copies = match is_copied {
            true => Vec::new(),
            false => plan.open_copies(step, self.config.group)?,
        };
        if !copies.is_empty() {
            // What they read may be on its way on the stream of the plan's last call.
            cuda.follow(device, stream)?;
        }
        // SAFETY: as for `copy_once`; the caller's contract.
        unsafe {
            self.carry_out(&copies, stream)?;
            cuda.upload(&on_device(step, batch), device, stream)?;
        }
        plan.note_carried(step, self.config.group);
        *copied = step.number();
        Ok(())
    }

    /// A call on the CPU; the first one of a step carries out its copies and confirms them.
    ///
    /// # Safety
    /// That of `append_prefill`, and the call is of the plan's step.
    pub(super) unsafe fn compute_on_cpu(
        &self,
        cpu: &CpuBackend,
        (plan, step): (&Plan, &Step),
        call: &AppendPrefill<'_>,
        stream: Stream,
    ) -> Result<(), Error> {
        self.with_kept(plan, |kept| {
            let begin = || -> Result<(), Error> {
                let is_first = *kept.copied() != step.number();
                if !is_first {
                    return Ok(());
                }
                plan.check_confirmable(step, self.config.group)?;
                // SAFETY: the caller's contract.
                unsafe { self.copy_once(plan, step, kept, stream)? };
                plan.confirm_copies(step)
            };
            let divided = (step.number(), &kept.divisions);
            // SAFETY: the caller's contract; what is kept with a plan is this runner's.
            unsafe { cpu.append_prefill_of_step(call, divided, begin) }
        })
    }

    /// A call on a GPU, or into a graph; the first one of a step sends the step and confirms its
    /// copies.
    ///
    /// # Safety
    /// That of [`CudaBackend::append_prefill`], and `prepare_plan`.
    pub(super) unsafe fn launch(
        &self,
        cuda: &CudaBackend,
        (plan, current): (&Plan, &Current<'_>),
        call: &gpu::AppendPrefill<'_>,
        stream: Stream,
    ) -> Result<(), Error> {
        let step = current.step();
        self.with_kept(plan, |kept| {
            kept.on_device(cuda, current, |device| {
                let is_first = *kept.copied() != step.number();
                if !call.is_captured && (is_first || !device.has(step.number())) {
                    if is_first {
                        plan.check_confirmable(step, self.config.group)?;
                    }
                    let sent = (step, call.step.batch, kept);
                    // SAFETY: the caller's contract.
                    unsafe { self.send(plan, sent, (cuda, device), stream)? };
                    if is_first {
                        plan.confirm_copies(step)?;
                    }
                }
                // SAFETY: the caller's contract.
                let launched = unsafe { cuda.append_prefill(call, device, stream) };
                if device.is_captured() {
                    plan.fix_capacity();
                }
                launched
            })
        })
    }
}
