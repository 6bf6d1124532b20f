//! Memory for keys and values.
use crate::error::Error;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// A cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Zeroed memory. The system hands it out when it is first written, in huge pages where it has
/// them: attention reads a few hundred bytes of a position and goes on to the next, and with small
/// pages the processor looks up nearly every one of them anew.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation belongs to no thread.
unsafe impl Send for HostMemory {}
// SAFETY: shared, it tells an address and a size.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// So many bytes, at least one.
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let no_room = || Error::memory(format!("{bytes} bytes of KV"));
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| no_room())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_room)?;
        advise_huge_pages(start, layout.size());
        Ok(Self { start, layout })
    }

    /// Where it begins.
    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Asks for huge pages for the part that consists of whole ones.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(start: NonNull<u8>, bytes: usize) {
    const HUGE_PAGE: usize = 2 << 20;
    let before = start.as_ptr().align_offset(HUGE_PAGE);
    let whole = bytes.saturating_sub(before) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        // SAFETY: the range lies in the allocation, and advice changes nothing that it holds. A
        // system that has no huge pages refuses, which is as good.
        unsafe { libc::madvise(start.as_ptr().add(before).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}
