//! Asking for lines of memory before they are read.

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;
/// The first lines of a range that are asked for: where more follow, the processor goes on by
/// itself.
const LINES: usize = 8;

/// Has the processor fetch where a value begins. Nothing waits for it.
#[inline(always)]
pub fn prefetch<T>(at: &T) {
    prefetch_line(std::ptr::from_ref(at).cast());
}

/// The same of some values, but for the middle of many.
#[inline(always)]
pub fn prefetch_all<T>(values: &[T]) {
    prefetch_range(values.as_ptr().cast(), size_of_val(values));
}

/// The same of a range of bytes, but for the middle of a long one. It need not exist.
#[inline(always)]
pub(super) fn prefetch_range(first: *const u8, count: usize) {
    let mut at = 0;
    while at < count.min(LINES * LINE) {
        prefetch_line(first.wrapping_add(at));
        at += LINE;
    }
    if count > 0 {
        prefetch_line(first.wrapping_add(count - 1));
    }
}

#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has it, and it reads nothing that anybody could see, nor does
    // it fail for an address at which there is nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}
