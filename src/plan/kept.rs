//! What a runner keeps with a plan: made from the plan's steps, of use to that runner alone, gone
//! as soon as either of the two is.
//!
//! Neither owns the other, for each may go first. So what is kept hangs on a tie that both hold,
//! and whoever goes cuts it. What it is only the runner knows.
use crate::error::Error;
use crate::memory::{Arc, TryGrow, try_box};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Something that is kept; None once the tie is cut.
type Value = Option<Box<dyn Any + Send + Sync>>;

/// Between one plan and one runner.
struct Tie {
    /// The number of the runner's end.
    runner: u64,
    value: RwLock<Value>,
}

impl Tie {
    fn value(&self) -> RwLockWriteGuard<'_, Value> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        // One that is busy is not.
        self.value.try_read().is_ok_and(|value| value.is_none())
    }
}

/// The ties of a plan, or of a runner.
pub struct Ties {
    /// No two in a process have the same: an address could come back.
    number: u64,
    all: RwLock<Vec<Arc<Tie>>>,
}

impl fmt::Debug for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ties").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Default for Ties {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self { number: NUMBERS.fetch_add(1, Ordering::Relaxed), all: RwLock::default() }
    }
}

impl Drop for Ties {
    fn drop(&mut self) {
        for tie in self.all.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // What ends here may wait for a device, and who ends the other one meanwhile waits with
            // it: that may be the last who keeps memory or kernels which the device works with.
            let mut value = tie.value();
            drop(value.take());
        }
    }
}

impl Ties {
    fn all(&self) -> RwLockWriteGuard<'_, Vec<Arc<Tie>>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with what a runner keeps with a plan, which is made the first time.
    pub fn with<T: Default + Any + Send + Sync, R>(
        plan: &Self,
        runner: &Self,
        work: impl FnOnce(&T) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let tie = match plan.find(runner) {
            Some(tie) => tie,
            None => Self::tie::<T>(plan, runner)?,
        };
        let value = tie.value.read().unwrap_or_else(PoisonError::into_inner);
        let kept = value.as_ref().and_then(|kept| kept.downcast_ref());
        work(kept.expect("both ends are alive, and a runner keeps one kind of thing"))
    }

    fn find(&self, runner: &Self) -> Option<Arc<Tie>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|tie| tie.runner == runner.number).cloned()
    }

    #[cold]
    fn tie<T: Default + Any + Send + Sync>(plan: &Self, runner: &Self) -> Result<Arc<Tie>, Error> {
        // Always in this order; otherwise only one list is locked at a time.
        let (mut of_plan, mut of_runner) = (plan.all(), runner.all());
        if let Some(tie) = of_plan.iter().find(|tie| tie.runner == runner.number) {
            // Another thread was faster.
            return Ok(tie.clone());
        }
        for ties in [&mut of_plan, &mut of_runner] {
            ties.retain(|tie| !tie.is_cut());
            ties.try_reserve(1).map_err(crate::memory::OutOfMemory::from)?;
        }
        let kept: Box<dyn Any + Send + Sync> = try_box(T::default())?;
        let tie = Arc::new(Tie { runner: runner.number, value: RwLock::new(Some(kept)) })?;
        of_plan.try_push(tie.clone())?;
        of_runner.try_push(tie.clone())?;
        Ok(tie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc as StdArc;
    use std::sync::Mutex;

    /// Counts itself.
    #[derive(Default)]
    struct Thing(Mutex<Option<StdArc<()>>>);

    fn keep(plan: &Ties, runner: &Ties, thing: &StdArc<()>) -> bool {
        let kept = |kept: &Thing| {
            let was_there = kept.0.lock().unwrap().replace(thing.clone()).is_some();
            Ok(was_there)
        };
        Ties::with(plan, runner, kept).unwrap()
    }

    #[test]
    fn j04_what_is_kept_goes_with_whichever_end_goes_first() {
        let thing = StdArc::new(());
        let count = || StdArc::strong_count(&thing) - 1;
        let (plans, runners) = ([0; 3].map(|_| Ties::default()), [0; 3].map(|_| Ties::default()));
        for is_there in [false, true] {
            for (plan, runner) in plans.iter().flat_map(|p| runners.iter().map(move |r| (p, r))) {
                assert_eq!(keep(plan, runner, &thing), is_there);
            }
        }
        assert_eq!(count(), 9);
        let [a, b, c] = plans;
        let [x, y, z] = runners;
        drop(a);
        assert_eq!(count(), 6);
        drop(x);
        assert_eq!(count(), 4);
        drop((b, y));
        assert_eq!(count(), 1);
        assert!(keep(&c, &z, &thing));
        drop((z, c));
        assert_eq!(count(), 0);
    }

    /// A runner that sees plans come and go does not collect what they leave.
    #[test]
    fn j04_ties_that_were_cut_are_forgotten() {
        let (runner, thing) = (Ties::default(), StdArc::new(()));
        for _ in 0..100 {
            assert!(!keep(&Ties::default(), &runner, &thing));
            assert!(runner.all().len() <= 2);
        }
    }

    /// Takes a while to go, as what waits for a device does.
    #[derive(Default)]
    struct Slow(Mutex<Option<[StdArc<std::sync::atomic::AtomicBool>; 2]>>);

    impl Drop for Slow {
        fn drop(&mut self) {
            if let Some([is_going, is_gone]) = self.0.get_mut().unwrap().take() {
                is_going.store(true, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(200));
                is_gone.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Who goes second, meanwhile, goes when what was kept has: a device may be at work for both.
    #[test]
    fn j04_who_goes_second_waits_for_what_the_first_lets_go() {
        for plan_is_first in [true, false] {
            let (plan, runner) = (Ties::default(), Ties::default());
            let flags = [(); 2].map(|()| StdArc::new(std::sync::atomic::AtomicBool::new(false)));
            let [is_going, is_gone] = flags.clone();
            let keep = |kept: &Slow| {
                kept.0.lock().unwrap().replace(flags.clone());
                Ok(())
            };
            Ties::with(&plan, &runner, keep).unwrap();
            let (first, second) = if plan_is_first { (plan, runner) } else { (runner, plan) };
            let goes = std::thread::spawn(move || drop(first));
            while !is_going.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(second);
            assert!(is_gone.load(Ordering::SeqCst), "it did not wait");
            goes.join().unwrap();
        }
    }
}
