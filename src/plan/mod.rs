//! Plans: what a step computes, as arrays over the rows of a page table.
//!
//! ```text
//!   Plan ── Step      new positions of some rows, taken from the page table at one moment
//!     │       ├─ Batch, Copies      the arrays that kernels take
//!     │       └─ GroupStep          those of each group beside the spine
//!     └─ Ties         what each runner that computes it derives from a step, and keeps
//! ```
//!
//! No runner is needed: an engine with kernels of its own reads the arrays. A plan notes the
//! version of each row that it took pages from, so that a step on pages which meanwhile belong to
//! somebody else is refused instead of carried out.
//!
//! Sequences may wait for copies of pages. Each runner has them to carry out in layers of its own,
//! so it is not carrying them out that ends them, but confirming: what was confirmed before a
//! runner came to it, it is told, for the source may be gone.
#![forbid(unsafe_code)]

mod groups;
mod kept;
mod step;

pub use groups::{Compact, GroupStep};
pub use kept::Ties;
pub use step::{Copies, Step};

use crate::attention::{Capacity, Region, RowMask};
use crate::error::Error;
use crate::error::text;
use crate::lock::or_leave;
use crate::memory::{Arc, try_filled};
use crate::paging::PageCopy;
use crate::sequence::ComputedRow;
use crate::store::Shared;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Which keys they see. Of a context `start` is how many there are, and `count` are queries
    /// that are no positions of it.
    pub mask: RowMask,
    /// Positions of the row that attend to each other in both directions, ascending and disjoint.
    pub regions: &'a [Region],
    /// For each new position which of the row's new ones it sees, itself in any case: the lowest
    /// bit is the first one's. Empty: those before it.
    pub tree_masks: &'a [u64],
}

/// What a step computes. Made once, set anew for each step: its memory is reused.
#[derive(Debug)]
pub struct Plan {
    /// Cut before anything else goes.
    ties: Ties,
    shared: Arc<Shared>,
    // std's locks: parking_lot's take memory when a thread has to wait.
    steps: RwLock<Steps>,
    /// The last step of whose copies one was confirmed by way of this plan.
    confirmed: AtomicU64,
    /// The groups whose copies runners carried out, and of which step.
    carried: Mutex<Carried>,
    /// Captured graphs count on the capacity.
    is_captured: AtomicBool,
}

/// Groups of which copies of a step were carried out, a bit each.
#[derive(Debug, Default)]
struct Carried {
    step: u64,
    groups: u32,
}

/// The step that was set, and the one before, whose memory the next one takes.
#[derive(Debug)]
struct Steps {
    current: Step,
    spare: Step,
    /// By slot: the number of the `set` that saw it last.
    seen: Vec<u64>,
    number: u64,
    /// The largest step that may be set.
    capacity: Option<Capacity>,
}

/// The step of a plan. Nobody sets the plan as long as this is there. Whoever has it calls nothing
/// else that reads the plan, a runner's calls included: they would wait for a thread that waits to
/// set it, and that one for him.
#[derive(Debug)]
pub struct Current<'a>(RwLockReadGuard<'a, Steps>);

impl Current<'_> {
    /// The step.
    pub fn step(&self) -> &Step {
        &self.0.current
    }

    /// The largest step that the plan takes.
    pub fn capacity(&self) -> Option<&Capacity> {
        self.0.capacity.as_ref()
    }
}

impl Plan {
    /// An empty plan over the rows of a page table.
    pub fn new(shared: Arc<Shared>) -> Result<Self, Error> {
        shared.check_own_pool()?;
        let (table, groups) = {
            let state = shared.read();
            (state.page_table_stats(), state.groups())
        };
        let steps = Steps {
            current: Step::new(table.page_size, &groups)?,
            spare: Step::new(table.page_size, &groups)?,
            seen: try_filled(0, table.slots)?,
            number: 0,
            capacity: None,
        };
        Ok(Self {
            ties: Ties::default(),
            shared,
            steps: RwLock::new(steps),
            confirmed: AtomicU64::new(0),
            carried: Mutex::default(),
            is_captured: AtomicBool::new(false),
        })
    }

    /// What it stands on.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Where runners keep what they derive from its steps.
    pub fn ties(&self) -> &Ties {
        &self.ties
    }

    fn write(&self) -> RwLockWriteGuard<'_, Steps> {
        // A panic poisons the cache, and with it all that stands on it.
        or_leave(self.steps.write())
    }

    /// The step as it was set, good or not, and the capacity.
    pub fn current(&self) -> Current<'_> {
        Current(or_leave(self.steps.read()))
    }

    /// The same, provided that there is a step and its pages are still those of its rows.
    pub fn to_compute(&self) -> Result<Current<'_>, Error> {
        self.shared.check_whole()?;
        let current = self.current();
        current.step().check(&self.shared)?;
        Ok(current)
    }

    /// Sets the rows of the next step. When it fails the plan is as before.
    pub fn set(&self, rows: &[PlanRow<'_>]) -> Result<(), Error> {
        self.set_from(rows.iter().copied().map(Ok))
    }

    /// The same of rows that are read one after another, under the locks: what reads them calls
    /// nothing of the plan's or of the page table's.
    pub(crate) fn set_from<'a>(
        &self,
        rows: impl Iterator<Item = Result<PlanRow<'a>, Error>>,
    ) -> Result<(), Error> {
        self.shared.check_whole()?;
        let mut steps = self.write();
        steps.fill_spare(&self.shared, rows)?;
        let Steps { current, spare, .. } = &mut *steps;
        std::mem::swap(current, spare);
        Ok(())
    }

    /// Makes room for every step within a capacity; larger ones are refused from then on. When it
    /// fails the plan is as before.
    pub fn reserve(&self, capacity: &Capacity) -> Result<(), Error> {
        let mut steps = self.write();
        capacity.check()?;
        capacity.check_fits(steps.current.batch()).map_err(|error| error.within("plan"))?;
        if self.is_captured.load(Ordering::Relaxed) {
            return Err(Error::state("plan: a captured graph counts on its capacity"));
        }
        let Steps { current, spare, .. } = &mut *steps;
        current.reserve(capacity)?;
        spare.reserve(capacity)?;
        steps.capacity = Some(*capacity);
        Ok(())
    }

    /// Says that a graph was captured that counts on the capacity.
    pub fn fix_capacity(&self) {
        self.is_captured.store(true, Ordering::Relaxed);
    }

    /// The copies of its step in a group that are open, for a runner that has carried none of them
    /// out yet.
    pub fn open_copies(&self, step: &Step, group: usize) -> Result<Vec<PageCopy>, Error> {
        if !step.copies().groups().contains(&(group as i32)) {
            return Ok(Vec::new());
        }
        let state = self.shared.read();
        if self.confirmed.load(Ordering::Relaxed) == step.number {
            return Err(Error::state(
                "plan: another runner confirmed the copies of this step, which this one has not \
                 carried out: all but the last are to be prepared with \
                 RKV_PREPARE_KEEP_COPIES_OPEN",
            ));
        }
        Ok(step.open_copies(group, &state)?)
    }

    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a runner carried out the copies of a group.
    pub fn note_carried(&self, step: &Step, group: usize) {
        if step.copies().count() == 0 {
            return;
        }
        let mut carried = self.carried();
        if carried.step != step.number {
            *carried = Carried { step: step.number, groups: 0 };
        }
        carried.groups |= 1 << group;
    }

    /// Refuses to confirm all copies of a step together with those of a group, when others are open
    /// that no runner carried out.
    pub fn check_confirmable(&self, step: &Step, group: usize) -> Result<(), Error> {
        if step.copies().count() == 0 {
            return Ok(());
        }
        let done = {
            let carried = self.carried();
            let of_step = if carried.step == step.number { carried.groups } else { 0 };
            of_step | 1 << group
        };
        match step.open_group(&self.shared.read(), |group| done >> group & 1 != 0) {
            None => Ok(()),
            Some(other) => Err(Error::state(text!(
                "plan: copies of group {other} are open, which a runner of group {group} does not \
                 carry out: prepare each runner with RKV_PREPARE_KEEP_COPIES_OPEN, carry out what \
                 no runner does, and confirm by rkv_sequence_confirm_copies()"
            ))),
        }
    }

    /// Says that every copy of its step was carried out, wherever it had to be.
    pub fn confirm_copies(&self, step: &Step) -> Result<(), Error> {
        if step.copies().count() == 0 || self.confirmed.load(Ordering::Relaxed) == step.number {
            return Ok(());
        }
        self.shared.ending(|state| {
            for id in step.sequences_that_wait() {
                if state.has_open_copies(id) {
                    state.confirm_copies(id)?;
                    self.confirmed.store(step.number, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    }
}

impl Steps {
    fn fill_spare<'a>(
        &mut self,
        shared: &Shared,
        rows: impl Iterator<Item = Result<PlanRow<'a>, Error>>,
    ) -> Result<(), Error> {
        self.number += 1;
        let step = &mut self.spare;
        step.clear();
        step.number = self.number;
        let (mut state, mut copied) = (shared.read(), 0);
        let has_groups = state.has_groups();
        let group_count = state.groups().list().len();
        for (at, row) in rows.enumerate() {
            if copied > shared.read_portion() {
                (state, copied) = (shared.read_on(state), 0);
            }
            let wrong = |error: Error| error.within(&text!("rows[{at}]"));
            let row: PlanRow<'_> = row.map_err(wrong)?;
            let pages = step::pages_of(&state, &row).map_err(wrong)?;
            step::check_masks(&row, &state).map_err(wrong)?;
            let seen = &mut self.seen[pages.slot as usize];
            if std::mem::replace(seen, self.number) == self.number {
                return Err(Error::argument(text!("rows[{at}] is in the batch already")));
            }
            step.push(&row, &pages)?;
            // Each group has them, and a place for each new position.
            copied += group_count * (pages.pages.len() + row.count);
            if has_groups {
                step.push_groups(&row, &state).map_err(wrong)?;
            }
        }
        match &self.capacity {
            Some(capacity) => capacity.check_fits(step.batch()),
            None => Ok(()),
        }
    }
}
