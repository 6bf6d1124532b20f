//! The allocator of this test: it can be told, for one thread, to fail.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

thread_local! {
    /// Allocations of this thread that succeed before one fails; u64::MAX for all.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

pub struct Failing;

/// Lets `count` allocations of this thread succeed, and then one fail.
pub fn fail_after(count: u64) {
    LEFT.set(count);
}

/// From now on all succeed.
pub fn relax() {
    LEFT.set(u64::MAX);
}

/// Whether this one fails.
fn fails() -> bool {
    // A thread that is going away has no more variables, and no failures.
    let left = LEFT.try_with(|left| {
        let now = left.get();
        if now != u64::MAX {
            left.set(now.wrapping_sub(1)); // Below zero is u64::MAX: it fails once.
        }
        now
    });
    left == Ok(0)
}

// SAFETY: everything is the system's allocator's, or is refused with NULL, as is allowed.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails() {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}
