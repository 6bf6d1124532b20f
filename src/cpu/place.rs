//! A place where a call waits for helpers. No lock, unless the caller has to sleep: with many
//! threads each would wait for it.
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// What every thread does that helps; it gets the thread's number.
pub(super) type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// How often a caller looks whether its helpers are done before it sleeps.
const LOOKS: usize = 64;

/// Of [`Place::state`]: the helpers, the number of those that are still wanted, and whether the
/// caller sleeps until the last one is done.
const HELPER: u64 = 1;
const WANTED: u64 = 1 << 32;
const SLEEPS: u64 = 1 << 63;
const HELPERS: u64 = WANTED - 1;

/// A place for one call at a time.
#[derive(Default)]
#[repr(align(128))] // two cache lines, which processors fetch together
pub(super) struct Place {
    is_taken: AtomicBool,
    state: AtomicU64,
    /// Written by the caller before it wants somebody, read by helpers.
    work: Cell<Option<&'static Work<'static>>>,
    /// Of a helper.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleeper: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `work` is written only while nobody helps or is wanted, and what it leads to is Sync.
unsafe impl Sync for Place {}

impl Place {
    /// Asks for helpers; None when the place is taken.
    pub(super) fn open<'a>(&'a self, wanted: usize, work: &'a Work<'a>) -> Option<Open<'a>> {
        let taken =
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.ok()?;
        // SAFETY: only the lifetime changes. The reference is used by helpers, for whom `Open`
        // waits when it is closed or dropped, and everything it borrows from outlives `Open`:
        // `Open` is not leaked, for it stays in the hands of `OwnThreads::everywhere`.
        let work = unsafe { std::mem::transmute::<&'a Work<'a>, &'static Work<'static>>(work) };
        self.work.set(Some(work));
        self.state.store(wanted as u64 * WANTED, Ordering::SeqCst);
        Some(Open(self))
    }

    /// Whether somebody waits here for one more.
    pub(super) fn wants_help(&self) -> bool {
        self.state.load(Ordering::SeqCst) & !SLEEPS >= WANTED
    }

    /// Helps, if one more is wanted.
    pub(super) fn help(&self, number: usize) -> bool {
        let join = |state: u64| {
            let is_wanted = state & !SLEEPS >= WANTED;
            is_wanted.then(|| state - WANTED + HELPER)
        };
        if self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, join).is_err() {
            return false;
        }
        let work = self.work.get().expect("it is set before somebody is wanted");
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(number))) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
        // From here on the caller may return, but for the one that it waits for.
        if self.state.fetch_sub(HELPER, Ordering::Release) == SLEEPS | HELPER {
            drop(self.sleeper.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_one();
        }
        true
    }

    /// Waits until nobody helps any more.
    fn wait(&self) {
        self.state.fetch_and(HELPERS, Ordering::Relaxed);
        let is_done = || self.state.load(Ordering::Acquire) & HELPERS == 0;
        for _ in 0..LOOKS {
            if is_done() {
                return;
            }
            std::thread::yield_now();
        }
        let mut sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.fetch_or(SLEEPS, Ordering::Relaxed);
        while !is_done() {
            sleeper = self.wake.wait(sleeper).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A place that is taken by a call, until this is dropped.
pub(super) struct Open<'a>(&'a Place);

impl Open<'_> {
    /// Waits for the helpers. A panic of one becomes the caller's.
    pub(super) fn close(self) {
        self.0.wait();
        let panic = self.0.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(self);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let Self(place) = self;
        place.wait();
        place.state.store(0, Ordering::Relaxed);
        place.work.set(None);
        *place.panic.lock().unwrap_or_else(PoisonError::into_inner) = None;
        place.is_taken.store(false, Ordering::Release);
    }
}
