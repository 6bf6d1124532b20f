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
/// of them anew. From a huge page on all of it is there from the beginning, so that no step waits
/// for a page to be zeroed, or finds that the system has none.
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
        let made = Self { start, bytes, block, layout };
        match populate(start, bytes) {
            true => Ok(made),
            false => Err(no_room()),
        }
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

/// Has the system provide whole huge pages, as many as fit, and small ones for the rest; `start` is
/// the beginning of one, if any do. Whether it has memory for them. What a system refuses for
/// another reason, because it has no huge pages or is too old to be asked, it provides page by page
/// when they are first written.
#[cfg(all(target_os = "linux", not(miri)))]
fn populate(start: NonNull<u8>, bytes: usize) -> bool {
    let whole = bytes / HUGE_PAGE * HUGE_PAGE;
    if whole == 0 {
        return true;
    }
    // SAFETY: the range lies in the allocation, up to the end of its last page, and advice changes
    // nothing that it holds.
    let populated = unsafe {
        libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE);
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE)
    };
    populated == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn populate(_: NonNull<u8>, _: usize) -> bool {
    true
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Which pages of a range the system has provided.
    fn resident(start: *mut u8, bytes: usize) -> Vec<bool> {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut there = vec![0u8; bytes.div_ceil(page)];
        // SAFETY: the range begins with a page; a byte for each.
        let asked = unsafe { libc::mincore(start.cast(), bytes, there.as_mut_ptr().cast()) };
        assert_eq!(asked, 0);
        there.iter().map(|there| there & 1 != 0).collect()
    }

    /// Linux can be asked from 5.14 on.
    fn can_be_asked(made: &HostMemory) -> bool {
        // SAFETY: the memory's own first page.
        unsafe { libc::madvise(made.address().cast(), 1, libc::MADV_POPULATE_WRITE) == 0 }
    }

    #[test]
    fn all_of_it_is_there_up_to_its_end() {
        let bytes = 3 * HUGE_PAGE + HUGE_PAGE / 2 + 5;
        let made = HostMemory::new(bytes).unwrap();
        if can_be_asked(&made) {
            let there = resident(made.address(), bytes);
            assert!(there.iter().all(|&there| there), "{there:?}");
        }
    }

    #[test]
    fn what_the_system_has_no_memory_for_is_refused() {
        let made = HostMemory::new(HUGE_PAGE).unwrap();
        if !can_be_asked(&made) {
            return;
        }
        // Where nothing is mapped the system says what it says when it has no memory.
        let nowhere = NonNull::new(std::ptr::without_provenance_mut::<u8>(1 << 16)).unwrap();
        assert!(!populate(nowhere, HUGE_PAGE));
    }
}
