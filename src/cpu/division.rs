//! How a plan's steps are divided among the threads of a backend. It stays with the plan: all
//! layers of a step whose queries see as many keys share one division, and its memory serves the
//! next step.
use super::call::AppendPrefill;
use super::schedule::Schedule;
use crate::attention::View;
use crate::memory::{OutOfMemory, TryGrow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Windows of a model's layers for which divisions are kept. With more of them each layer divides
/// anew.
const WINDOWS: usize = 8;

/// The divisions of a plan's step, one for each window that layers have.
#[derive(Debug, Default)]
pub struct Divisions(RwLock<Vec<Division>>);

#[derive(Debug, Default)]
struct Division {
    /// Of which step; 0: of none.
    step: u64,
    view: View,
    schedule: Schedule,
}

impl Divisions {
    /// Works with the division of a call of a step. All calls of a step have the same batch.
    pub(super) fn with<E: From<OutOfMemory>>(
        &self,
        step: u64,
        call: &AppendPrefill<'_>,
        threads: usize,
        work: impl FnOnce(&Schedule) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let kept = self.read();
            if let Some(at) = find(&kept, step, call.params.view) {
                return work(&kept[at].schedule);
            }
            drop(kept);
            self.divide(step, call, threads)?;
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Division>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn divide(
        &self,
        step: u64,
        call: &AppendPrefill<'_>,
        threads: usize,
    ) -> Result<(), OutOfMemory> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let view = call.params.view;
        if find(&kept, step, view).is_some() {
            return Ok(());
        }
        let at = match kept.iter().position(|division| division.step != step) {
            Some(of_another_step) => of_another_step,
            None if kept.len() < WINDOWS => {
                kept.try_push(Division::default())?;
                kept.len() - 1
            }
            None => 0,
        };
        let division = &mut kept[at];
        division.step = 0;
        division.schedule.plan(call, threads)?;
        (division.step, division.view) = (step, view);
        Ok(())
    }
}

fn find(kept: &[Division], step: u64, view: View) -> Option<usize> {
    kept.iter().position(|division| division.step == step && division.view == view)
}
