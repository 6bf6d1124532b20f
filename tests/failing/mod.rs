//! An allocator that fails when a test tells it to, and counts what is in use.
//!
//! A test binary that has this module takes it as its allocator. Each thread has a countdown of its
//! own, so tests run side by side.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Which requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // not every test that counts bytes fails allocations
pub enum Failure {
    /// The request after this many, and no other.
    Once(u64),
    /// That one and all that follow.
    From(u64),
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Bytes that all threads together have from the allocator.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
    /// Requests since the failure was set, and how many of them failed.
    static COUNTS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

fn refuses() -> bool {
    let Some(failure) = FAILURE.get() else { return false };
    let (asked, failed) = COUNTS.get();
    let refused = match failure {
        Failure::Once(after) => asked == after,
        Failure::From(after) => asked >= after,
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
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        IN_USE.fetch_add(size, Relaxed);
        IN_USE.fetch_sub(layout.size(), Relaxed);
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

/// Bytes in use, of all threads.
#[allow(dead_code)] // not every test that fails allocations counts bytes
pub fn bytes_in_use() -> usize {
    IN_USE.load(Relaxed)
}
