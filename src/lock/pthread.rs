//! The lock of POSIX, which race detectors know.
use parking_lot::lock_api::{self, GuardNoSend, RawRwLock, RawRwLockFair};
use std::cell::UnsafeCell;

/// A lock that POSIX made.
#[derive(Debug)]
pub struct Raw(UnsafeCell<libc::pthread_rwlock_t>);
// SAFETY: the functions below are made for use from many threads.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

pub type RwLock<T> = lock_api::RwLock<Raw, T>;
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, Raw, T>;
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, Raw, T>;

fn must(result: i32) {
    assert_eq!(result, 0, "a pthread_rwlock call failed");
}

// SAFETY: a pthread_rwlock_t excludes writers from readers and from each other. It is moved
// only before its first use, when it is nothing but its initialiser.
unsafe impl RawRwLock for Raw {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        // SAFETY: the lock is initialised and alive.
        must(unsafe { libc::pthread_rwlock_rdlock(self.0.get()) });
    }

    fn try_lock_shared(&self) -> bool {
        // SAFETY: the lock is initialised and alive.
        unsafe { libc::pthread_rwlock_tryrdlock(self.0.get()) == 0 }
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_shared(&self) {
        // SAFETY: this thread holds the lock, says the caller.
        must(unsafe { libc::pthread_rwlock_unlock(self.0.get()) });
    }

    fn lock_exclusive(&self) {
        // SAFETY: the lock is initialised and alive.
        must(unsafe { libc::pthread_rwlock_wrlock(self.0.get()) });
    }

    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: the lock is initialised and alive.
        unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) == 0 }
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: this thread holds the lock, says the caller.
        must(unsafe { libc::pthread_rwlock_unlock(self.0.get()) });
    }
}

// SAFETY: as above. POSIX leaves open who is next, so this is as fair as the system is.
unsafe impl RawRwLockFair for Raw {
    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.unlock_shared() }
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.unlock_exclusive() }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: nobody holds or waits for a lock that is dropped.
        unsafe { libc::pthread_rwlock_destroy(self.0.get()) };
    }
}
