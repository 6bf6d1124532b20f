//! Memory for indexes that is got from the system beforehand.
use crate::capi::ffi::{AbiStruct, fork, guard, rkv_status, write_struct};
use crate::error::Error;
use crate::error::text;
use crate::memory::{Pages, Refused, reserve, reserve_stats};

/// For rkv_reserve_index_memory(): ordinary pages.
pub const RKV_HUGE_PAGES_OFF: u32 = 0;
/// For rkv_reserve_index_memory(): huge pages, as far as the system has any.
pub const RKV_HUGE_PAGES_TRY: u32 = 1;
/// For rkv_reserve_index_memory(): huge pages only.
pub const RKV_HUGE_PAGES_REQUIRE: u32 = 2;

/// The memory that rkv_reserve_index_memory() got.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_index_memory_stats {
    /// sizeof(rkv_index_memory_stats).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes that were reserved; 0 without a reserve.
    pub reserved_bytes: u64,
    /// Of those, the bytes that lay on huge pages when they were reserved.
    pub huge_page_bytes: u64,
    /// Bytes that indexes use of the reserve.
    pub used_bytes: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_index_memory_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 32;
}

/// Gets memory from the system, for the indexes of all caches of this process: once, when the
/// engine starts, before its caches are created. All of it is touched now and kept to the end of
/// the process, so that no later call waits for it. What finds no room in it comes from malloc(),
/// as all does without a reserve. A child process of fork() has none of it, and can't get any.
///
/// Lookups in large trees read memory here and there, so huge pages make them quicker. A node of
/// the radix tree takes some 200 bytes, and 4 for each token and page.
///
/// @param byte_count bytes, rounded up to 2 MiB
/// @param huge_pages RKV_HUGE_PAGES_OFF, RKV_HUGE_PAGES_TRY or RKV_HUGE_PAGES_REQUIRE. Pages that
/// an administrator has set aside are taken first, then transparent ones
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when there is a
/// reserve already; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_UNSUPPORTED when huge pages are required
/// and the system has not so many, or doesn't say so in /proc/self/smaps: then nothing is reserved
/// @par Cost
/// O(bytes), some 0.1 to 1 ms for a MiB; no lock of any cache
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn rkv_reserve_index_memory(byte_count: u64, huge_pages: u32) -> rkv_status {
    guard(|| {
        let pages = match huge_pages {
            RKV_HUGE_PAGES_OFF => Pages::Small,
            RKV_HUGE_PAGES_TRY => Pages::HugeIfAny,
            RKV_HUGE_PAGES_REQUIRE => Pages::Huge,
            other => {
                let wrong = text!("huge_pages: {other} is no RKV_HUGE_PAGES constant");
                return Err(Error::argument(wrong).into());
            }
        };
        if byte_count == 0 {
            return Err(Error::argument("byte_count is zero").into());
        }
        fork::watch()?;
        let bytes = usize::try_from(byte_count).unwrap_or(usize::MAX);
        reserve(bytes, pages).map_err(|refused| match refused {
            Refused::Twice => Error::state("index memory is reserved already").into(),
            Refused::OutOfMemory => Error::memory("the reserve: byte_count").into(),
            Refused::NoHugePages(huge) => {
                let what = text!("huge_pages: the system has {huge} bytes on huge pages only");
                Error::Unsupported(what).into()
            }
        })
    })
}

/// What is reserved for indexes, and how much of it they use.
///
/// @param out_stats receives it; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); a lock of its own, which indexes take to allocate
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_read_index_memory_stats(
    out_stats: *mut rkv_index_memory_stats,
) -> rkv_status {
    guard(|| {
        let stats = reserve_stats();
        let stats = rkv_index_memory_stats {
            struct_size: 0,
            reserved: 0,
            reserved_bytes: stats.reserved as u64,
            huge_page_bytes: stats.huge as u64,
            used_bytes: stats.used as u64,
        };
        // SAFETY: the caller's contract on out_stats.
        unsafe { write_struct(out_stats, &stats) }
    })
}
