//! parking_lot's lock with a clock in it: each hold for writing that took longer than
//! `RADIXKV_LONG_HOLD_US` (50) is told on stderr, with where the lock was given up.
//!
//! How long a reader waits is what matters, but on a machine that others use it also tells how
//! long the system had the thread wait. This is the time that the thread itself worked, with the
//! page faults among it: memory that is touched for the first time costs what the system takes.
//! A virtual machine's host takes time that counts as the thread's: holds have numbers, so that
//! several runs that do the same can be compared, and what is long in one of them only left out.
use parking_lot::lock_api::{self, RawRwLock, RawRwLockFair};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::OnceLock;

/// Lines of this library that a hold is told with, from where the lock was given up outwards.
const FRAMES: usize = 8;

/// parking_lot's, timed.
pub struct Raw(parking_lot::RawRwLock);

pub type RwLock<T> = lock_api::RwLock<Raw, T>;
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, Raw, T>;
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, Raw, T>;

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a timed lock")
    }
}

/// What a thread has used so far.
#[derive(Clone, Copy, Default)]
struct Used {
    nanoseconds: u64,
    faults: u64,
    /// Times that it gave up the processor, to wait.
    waits: u64,
}

impl Used {
    fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: plain data, all of whose bits may be zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both write to what is this function's own.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        }
        Self {
            nanoseconds: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            faults: usage.ru_minflt as u64,
            waits: usage.ru_nvcsw as u64,
        }
    }
}

thread_local! {
    /// Holds of this thread, the innermost last: a thread may have locks of several objects.
    static SINCE: Cell<([Used; 8], usize)> = const {
        Cell::new(([Used { nanoseconds: 0, faults: 0, waits: 0 }; 8], 0))
    };
    /// Holds of this thread so far.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn long_hold() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::env::var("RADIXKV_LONG_HOLD_US").ok();
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(50) * 1000
    })
}

fn begin() {
    let (mut holds, depth) = SINCE.get();
    holds[depth] = Used::now();
    SINCE.set((holds, depth + 1));
}

/// Ends the innermost hold, with what tells of it once the lock is free.
fn end() -> impl FnOnce() {
    let now = Used::now();
    let (holds, depth) = SINCE.get();
    SINCE.set((holds, depth - 1));
    COUNT.set(COUNT.get() + 1);
    let since = holds[depth - 1];
    let nanoseconds = now.nanoseconds - since.nanoseconds;
    move || {
        if nanoseconds > long_hold() {
            let before = Used::now();
            tell(nanoseconds, now.faults - since.faults, now.waits - since.waits);
            leave_out(before);
        }
    }
}

/// What the thread did since then is not part of the holds that go on.
fn leave_out(since: Used) {
    let (now, (mut holds, depth)) = (Used::now(), SINCE.get());
    for hold in &mut holds[..depth] {
        hold.nanoseconds += now.nanoseconds - since.nanoseconds;
        hold.faults += now.faults - since.faults;
        hold.waits += now.waits - since.waits;
    }
    SINCE.set((holds, depth));
}

#[cold]
fn tell(nanoseconds: u64, faults: u64, waits: u64) {
    let trace = Backtrace::force_capture().to_string();
    // Names are those of what was inlined; the lines of this library say more.
    let lines = trace.lines().filter_map(|line| line.trim().strip_prefix("at "));
    let lines = lines.map(|line| line.strip_prefix("./").unwrap_or(line));
    let ours = lines.filter_map(|line| line.strip_prefix("src/"));
    let callers = ours.filter(|line| !line.starts_with("lock/") && !line.starts_with("capi/ffi"));
    let place = callers.take(FRAMES).collect::<Vec<_>>().join(" < ");
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("main");
    let (count, us) = (COUNT.get(), nanoseconds as f64 / 1000.0);
    eprintln!("held|{thread}|{count}|{us:.1}|{faults}|{waits}|{place}");
}

// SAFETY: parking_lot's lock does what is asked of it.
unsafe impl RawRwLock for Raw {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(parking_lot::RawRwLock::INIT);
    type GuardMarker = <parking_lot::RawRwLock as RawRwLock>::GuardMarker;

    fn lock_shared(&self) {
        self.0.lock_shared();
    }

    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_shared() }
    }

    fn lock_exclusive(&self) {
        self.0.lock_exclusive();
        begin();
    }

    fn try_lock_exclusive(&self) -> bool {
        let has_it = self.0.try_lock_exclusive();
        if has_it {
            begin();
        }
        has_it
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_exclusive(&self) {
        let then = end();
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_exclusive() };
        then();
    }
}

// SAFETY: as above.
unsafe impl RawRwLockFair for Raw {
    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_shared_fair() }
    }

    /// # Safety
    /// This thread holds the lock.
    unsafe fn unlock_exclusive_fair(&self) {
        let then = end();
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock_exclusive_fair() };
        then();
    }
}
