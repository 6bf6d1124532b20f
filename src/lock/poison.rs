//! Keeps calls from what a panic left half done.
//!
//! A panic gives the locks back while it unwinds, and parking_lot's know nothing of it: who waited
//! for one would go on in the middle of a change. So who changes something says that he panics
//! before he gives the lock back, and who gets it looks. He is in the middle of a call then,
//! perhaps deep in it, for he may have let others in: he leaves it as users of a poisoned lock of
//! std's do, by unwinding, but without a message. Where the call began it is refused.
use super::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::error::Error;
use std::any::Any;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LockResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::panicking;

/// Whether a panic left something half done. Relaxed: the lock around that orders it.
#[derive(Debug, Default)]
pub struct Poison(AtomicBool);

impl Poison {
    /// Whether one did.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// One did.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// For who has just got the lock: leaves the call when one did.
    #[inline]
    pub fn check(&self) {
        if self.is_set() {
            leave();
        }
    }
}

/// What a call is left with.
struct HalfDone;

thread_local! {
    /// The thread unwinds, and something that it drops makes a call, which ends what is left.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

#[cold]
fn leave() {
    // What is dropped while a thread unwinds must not unwind again, but within a call of its own.
    if !panicking() || IS_CAUGHT.take() {
        resume_unwind(Box::new(HalfDone));
    }
}

/// Whether a call was left for what another one's panic left half done: it has none of its own.
pub fn was_left(payload: &(dyn Any + Send)) -> bool {
    payload.is::<HalfDone>()
}

/// Makes a call, and refuses it if it is left. Panics go on.
pub fn unless_left<R>(call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    let was_caught = IS_CAUGHT.replace(panicking());
    let done = catch_unwind(AssertUnwindSafe(call));
    IS_CAUGHT.set(was_caught);
    match done {
        Ok(made) => made,
        Err(payload) if was_left(&*payload) => Err(Error::Poisoned),
        Err(payload) => resume_unwind(payload),
    }
}

/// The guard of a lock of std's, which does the rest by itself.
pub fn or_leave<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(|poisoned| {
        leave();
        poisoned.into_inner()
    })
}

/// A lock that does all that by itself.
#[derive(Debug)]
pub struct Guarded<T> {
    lock: RwLock<T>,
    poison: Poison,
}

impl<T> Guarded<T> {
    /// A lock around something.
    pub fn new(value: T) -> Self {
        Self { lock: RwLock::new(value), poison: Poison::default() }
    }

    /// What nobody else has.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// For who looks.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let guard = self.lock.read();
        self.poison.check();
        guard
    }

    /// For who changes it.
    #[inline]
    pub fn write(&self) -> Writing<'_, T> {
        Writing::new(self.lock.write(), &self.poison)
    }

    /// For who let others in while he looked.
    #[inline]
    pub fn check(&self) {
        self.poison.check();
    }
}

/// The right to change what is in such a lock.
#[derive(Debug)]
pub struct Writing<'a, T> {
    guard: RwLockWriteGuard<'a, T>,
    poison: &'a Poison,
    /// A panic is not of what is done here: one that was there before, and drops what changes
    /// something, or that comes from a function of the engine's.
    is_no_cause: bool,
}

impl<'a, T> Writing<'a, T> {
    /// For who has just got the lock.
    #[inline]
    fn new(guard: RwLockWriteGuard<'a, T>, poison: &'a Poison) -> Self {
        poison.check();
        Self { guard, poison, is_no_cause: panicking() }
    }

    /// Calls a function of the engine's, which finds everything whole and leaves it so when it
    /// panics.
    pub fn call_out<R>(&mut self, function: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.is_no_cause, true);
        let done = function();
        self.is_no_cause = before;
        done
    }

    /// Does something while others have the lock, who are handed it if they sleep.
    pub fn unlocked_fair<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let done = RwLockWriteGuard::unlocked_fair(&mut self.guard, work);
        self.poison.check();
        done
    }
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Writing<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Writing<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if panicking() && !self.is_no_cause {
            self.poison.set();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn is_left(call: impl FnOnce()) -> bool {
        let done = unless_left(|| {
            call();
            Ok(())
        });
        done == Err(Error::Poisoned)
    }

    /// Has what `make` gives while it panics.
    fn panic_with<G>(make: impl FnOnce() -> G) {
        let bug = catch_unwind(AssertUnwindSafe(|| {
            let _has = make();
            resume_unwind(Box::new("as the test wants it"));
        }));
        assert!(bug.is_err());
    }

    #[test]
    fn who_gets_what_a_panic_gave_back_leaves() {
        let (lock, of_std) = (Guarded::new(1), Mutex::new(1));
        // Who only looks leaves nothing half done, nor does what is not the library's.
        panic_with(|| lock.read());
        panic_with(|| lock.write().call_out(|| resume_unwind(Box::new("the engine's own fault"))));
        assert!(!is_left(|| drop(lock.write())));
        panic_with(|| (lock.write(), of_std.lock()));
        assert!(is_left(|| drop(lock.read())));
        assert!(is_left(|| drop(lock.write())));
        assert!(is_left(|| drop(or_leave(of_std.lock()))));
    }

    /// Also when the call is a destructor's, of a thread that unwinds for another reason.
    #[test]
    fn what_is_dropped_by_a_panic_leaves_too() {
        struct Ends<'a>(&'a Guarded<u32>, &'a Cell<bool>);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.1.set(is_left(|| {
                    drop((self.0.write(), self.0.write()));
                    unreachable!("it is left");
                }));
            }
        }
        let (lock, left) = (Guarded::new(1), Cell::new(false));
        panic_with(|| lock.write());
        panic_with(|| Ends(&lock, &left));
        assert!(left.get());
        assert!(!IS_CAUGHT.get());
    }

    #[test]
    fn what_a_panic_drops_is_no_cause_of_it() {
        struct Ends<'a>(&'a Guarded<u32>);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                *self.0.write() += 1;
            }
        }
        let lock = Guarded::new(1);
        panic_with(|| Ends(&lock));
        assert!(!is_left(|| assert_eq!(*lock.read(), 2)));
    }
}
