//! The library's own code in memory before it is first executed.
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of code to each side that are mapped at most: where the library is linked into a program,
/// its code is a part of all of that one's.
const REACH: usize = 8 << 20;
/// An ordinary page, or less.
const PAGE: usize = 1 << 12;

/// Has the system map the library's code, once. It maps a piece when that is first executed, which
/// takes it as long as a short call, and a first call, with a lock in its hands, executes many.
pub fn map_code() {
    // No Once: a child process could wait for a thread that is not there.
    static MAPPED: AtomicBool = AtomicBool::new(false);
    // Miri executes no machine code.
    if cfg!(miri) || MAPPED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the callback does as its contract says, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(map_own), std::ptr::null_mut()) };
}

/// Maps the code of an object of the process if it is this library's; says whether it was.
///
/// # Safety
/// As dl_iterate_phdr calls it: `info` describes an object that is loaded.
unsafe extern "C" fn map_own(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    let (base, first, count) =
        unsafe { ((*info).dlpi_addr as usize, (*info).dlpi_phdr, usize::from((*info).dlpi_phnum)) };
    if first.is_null() {
        return 0;
    }
    // SAFETY: there are so many headers.
    let headers = unsafe { std::slice::from_raw_parts(first, count) };
    let here = map_code as fn() as *const () as usize;
    let codes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
        .map(|header| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        });
    for code in codes {
        if code.contains(&here) {
            let start = code.start.max(here.saturating_sub(REACH)) & !(PAGE - 1);
            let end = code.end.min(here.saturating_add(REACH));
            let start = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: pages of a mapping that is only read by this. Linux before 5.14 doesn't know
            // how; then code is mapped as it is executed.
            unsafe { libc::madvise(start, end - start.addr(), libc::MADV_POPULATE_READ) };
            return 1;
        }
    }
    0
}
