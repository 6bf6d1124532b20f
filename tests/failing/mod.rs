//! An allocator that fails when a test tells it to, and counts what is in use.
//!
//! A test binary that has this module takes it as its allocator. Each thread has a countdown of its
//! own, so tests run side by side.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Which requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // not every test that counts bytes fails allocations
pub enum Failure {
    /// The request after this many, and no other.
    Once(u64),
    /// That one and all that follow.
    From(u64),
    /// The requests after so many, and no others.
    Both(u64, u64),
}

/// A thread may free what another one allocated: its count begins high enough for that.
const BASE: isize = 1 << 40;

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

thread_local! {
    /// Bytes that this thread got, less those that it gave back.
    static IN_USE: Cell<isize> = const { Cell::new(BASE) };
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
    /// Requests since the failure was set, and how many of them failed.
    static COUNTS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// Bytes of the largest block that had to become larger.
    static LARGEST_GROWN: Cell<usize> = const { Cell::new(0) };
    /// Whether this is one of the library's threads; asked once.
    static IS_LIBRARYS: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Requests of the library's threads, all of which are refused.
static BY_LIBRARYS_THREADS: AtomicU64 = AtomicU64::new(0);

/// Whether the thread is one that computes for the library: those have names, and none is asked for
/// a failure of its own.
fn is_librarys() -> bool {
    IS_LIBRARYS.get().unwrap_or_else(|| {
        let mut name = [0u8; 16];
        // SAFETY: this thread's own handle, and as much room as is said.
        unsafe {
            libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len())
        };
        let is_librarys = name.starts_with(b"radixkv-");
        IS_LIBRARYS.set(Some(is_librarys));
        is_librarys
    })
}

fn refuses() -> bool {
    let Some(failure) = FAILURE.get() else {
        let refused = is_librarys();
        BY_LIBRARYS_THREADS.fetch_add(u64::from(refused), Relaxed);
        return refused;
    };
    let (asked, failed) = COUNTS.get();
    let refused = match failure {
        Failure::Once(after) => asked == after,
        Failure::From(after) => asked >= after,
        Failure::Both(one, other) => asked == one || asked == other,
    };
    COUNTS.set((asked + 1, failed + u64::from(refused)));
    refused
}

// SAFETY: everything is the system's, except that some requests get NULL, as any may.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        count(size as isize - layout.size() as isize);
        if size > layout.size() {
            LARGEST_GROWN.set(LARGEST_GROWN.get().max(layout.size()));
        }
        // SAFETY: the caller's contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `body` with some of this thread's requests failing; says how many did.
#[allow(dead_code)] // as above
pub fn failing<R>(failure: Failure, body: impl FnOnce() -> R) -> (R, u64) {
    COUNTS.set((0, 0));
    FAILURE.set(Some(failure));
    let done = body();
    FAILURE.set(None);
    (done, COUNTS.get().1)
}

/// The same from now on, in a thread that somebody else has made; none for no failure any more.
#[allow(dead_code)] // as above
pub fn fail_from_now_on(failure: Option<Failure>) {
    COUNTS.set((0, 0));
    FAILURE.set(failure);
}

fn count(bytes: isize) {
    IN_USE.set(IN_USE.get() + bytes);
}

/// Bytes that this thread has in use, if no other one frees what it allocates.
#[allow(dead_code)] // not every test that fails allocations counts bytes
pub fn bytes_in_use() -> usize {
    IN_USE.get() as usize
}

/// Bytes of the largest block that this thread had made larger while `body` ran.
#[allow(dead_code)] // as above
pub fn largest_grown(body: impl FnOnce()) -> usize {
    LARGEST_GROWN.set(0);
    body();
    LARGEST_GROWN.get()
}

/// Runs `body`, which is a callback of a call that fails, without failures.
#[allow(dead_code)] // as above
pub fn suspended<R>(body: impl FnOnce() -> R) -> R {
    let failure = FAILURE.take();
    let done = body();
    FAILURE.set(failure);
    done
}

/// Requests of the library's own threads so far; each of them was refused.
#[allow(dead_code)] // as above
pub fn asked_by_librarys_threads() -> u64 {
    BY_LIBRARYS_THREADS.load(Relaxed)
}
