//! Memory for keys and values.
use crate::error::Error;
use crate::error::text;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// A cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Of x86-64, and of 64-bit Arm with small pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory, in huge pages where the system has them: attention reads a few hundred bytes of a
/// position and goes on to the next, and with small pages the processor looks up nearly every one
/// of them anew. All of it is there from the beginning, so that no step waits for a page to be
/// zeroed.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// What was allocated, `start` somewhere in it.
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation belongs to no thread.
unsafe impl Send for HostMemory {}
// SAFETY: shared, it tells an address and a size.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// So many bytes, at least one.
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let no_room = || Error::memory(text!("{bytes} bytes of KV"));
        // An allocator that is asked for more than its usual alignment zeroes memory by writing to
        // it, all of it, at once: so it is asked for some more bytes instead.
        let alignment = if bytes < HUGE_PAGE { ALIGNMENT } else { HUGE_PAGE };
        let with_slack = bytes.max(1).checked_add(alignment).ok_or_else(no_room)?;
        let layout = Layout::from_size_align(with_slack, 1).map_err(|_| no_room())?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_room)?;
        // SAFETY: less than the alignment, by which the block is larger than what is asked for.
        let start = unsafe { block.add(block.align_offset(alignment)) };
        populate(start, bytes);
        Ok(Self { start, bytes, block, layout })
    }

    /// Where it begins.
    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// Has the system provide whole huge pages, as many as fit; `start` is the beginning of one, if any
/// do. What a system refuses, because it has no huge pages or is too old to be asked, it provides
/// page by page when they are first written.
#[cfg(all(target_os = "linux", not(miri)))]
fn populate(start: NonNull<u8>, bytes: usize) {
    let whole = bytes / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE] {
            // SAFETY: the range lies in the allocation, and advice changes nothing that it holds.
            unsafe { libc::madvise(start.as_ptr().cast(), whole, advice) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn populate(_: NonNull<u8>, _: usize) {}
