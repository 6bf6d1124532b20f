//! The readers-writer lock around everything, and its stand-ins for tests and measurements.
//!
//! parking_lot's lock is made of atomics and futexes, which helgrind cannot see through: it would
//! call every access a race. With the feature `pthread-lock`, for tests only, the same guards stand
//! on a pthread_rwlock_t, which helgrind and Miri know. With the feature `timed-lock`, for
//! `scripts/bench.sh held`, they tell of each time that a thread had the lock for long.

mod poison;

pub use poison::{Guarded, Poison, Writing, or_leave, unless_left, was_left};

#[cfg(not(any(feature = "pthread-lock", feature = "timed-lock")))]
pub use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "pthread-lock")]
mod pthread;
#[cfg(feature = "pthread-lock")]
pub use pthread::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(feature = "timed-lock", not(feature = "pthread-lock")))]
mod timed;
#[cfg(all(feature = "timed-lock", not(feature = "pthread-lock")))]
pub use timed::{RwLock, RwLockReadGuard, RwLockWriteGuard};
