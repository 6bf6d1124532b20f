//! The library as a whole: which release this is, what it was built with, what went wrong last in a
//! thread, where it logs to, and what memory it has for indexes.
use crate::capi::ffi::{
    guard, last_shortage, rkv_shortage, rkv_status, with_last_error, write_struct,
};
use crate::error::Error;
use std::ffi::c_char;

mod index_memory;
mod log;

pub use index_memory::*;
pub use log::*;

/// Major version of the release that this header came with.
pub const RKV_VERSION_MAJOR: u32 = 0;
/// Minor version of the release that this header came with.
pub const RKV_VERSION_MINOR: u32 = 2;
/// Patch version of the release that this header came with.
pub const RKV_VERSION_PATCH: u32 = 0;
/// Version of the ABI that this header describes; grows by one with every addition.
pub const RKV_ABI_VERSION: u32 = 12;

/// Bit of rkv_features(): the radix tree index.
pub const RKV_FEATURE_RADIX_INDEX: u64 = 1;
/// Bit of rkv_features(): the block-hash index.
pub const RKV_FEATURE_BLOCK_HASH_INDEX: u64 = 2;
/// Bit of rkv_features(): CUDA kernels, the library's own or those of the folder that the
/// environment variable RADIXKV_KERNELS named at the first call. Whether this machine can run them
/// is another question, see rkv_runner_supports().
pub const RKV_FEATURE_CUDA: u64 = 4;

// cbindgen needs literals above; a release that forgets to move them does not compile.
const fn parse(text: &str) -> u32 {
    let (bytes, mut at, mut number) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}
const _: () = assert!(RKV_VERSION_MAJOR == parse(env!("CARGO_PKG_VERSION_MAJOR")));
const _: () = assert!(RKV_VERSION_MINOR == parse(env!("CARGO_PKG_VERSION_MINOR")));
const _: () = assert!(RKV_VERSION_PATCH == parse(env!("CARGO_PKG_VERSION_PATCH")));

/// ABI version of the loaded library. Compare it with RKV_ABI_VERSION at start: a library with a
/// smaller number lacks functions that this header declares.
///
/// @return the loaded library's RKV_ABI_VERSION
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_abi_version() -> u32 {
    RKV_ABI_VERSION
}

/// Release of the loaded library, e.g. "0.2.0".
///
/// @return a static NUL-terminated string, never NULL
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What the loaded library has.
///
/// @return a set of RKV_FEATURE_ bits
/// @par Cost
/// O(1), but the first call may look for a folder of kernels; no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_features() -> u64 {
    let has_kernels = crate::gpu::Images::available().is_ok_and(|images| !images.is_empty());
    let cuda = if has_kernels { RKV_FEATURE_CUDA } else { 0 };
    RKV_FEATURE_RADIX_INDEX | RKV_FEATURE_BLOCK_HASH_INDEX | cuda
}

/// Name of a status, e.g. "RKV_STATUS_OK".
///
/// @param status any value, also one that this library does not know
/// @return a static NUL-terminated string, never NULL; "RKV_STATUS_UNKNOWN" for the unknown
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_status_name(status: i32) -> *const c_char {
    let name = match status {
        0 => c"RKV_STATUS_OK",
        1 => c"RKV_STATUS_INVALID_ARGUMENT",
        2 => c"RKV_STATUS_STALE_NODE",
        3 => c"RKV_STATUS_STALE_SEQUENCE",
        4 => c"RKV_STATUS_STALE_LOCK",
        5 => c"RKV_STATUS_BUFFER_TOO_SMALL",
        6 => c"RKV_STATUS_INVALID_STATE",
        7 => c"RKV_STATUS_UNSUPPORTED",
        8 => c"RKV_STATUS_STALE_PIN",
        9 => c"RKV_STATUS_STALE_TICKET",
        100 => c"RKV_STATUS_OUT_OF_PAGES",
        101 => c"RKV_STATUS_OUT_OF_SLOTS",
        102 => c"RKV_STATUS_OUT_OF_MEMORY",
        103 => c"RKV_STATUS_BUSY",
        104 => c"RKV_STATUS_PENDING",
        105 => c"RKV_STATUS_DEVICE",
        106 => c"RKV_STATUS_STORAGE",
        900 => c"RKV_STATUS_INTERNAL",
        901 => c"RKV_STATUS_POISONED",
        902 => c"RKV_STATUS_CORRUPT",
        _ => c"RKV_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

/// Copies the calling thread's last error message, NUL-terminated and cut to fit.
///
/// Valid after a failing call until the next failing call of the same thread.
///
/// @param buffer receives the text; may be NULL when capacity is 0
/// @param capacity size of buffer in bytes
/// @return bytes that the whole message takes, the NUL included; 1 when there is none. No message
/// has more than 1025: a longer one is cut off there
/// @par Cost
/// O(bytes of the message); no lock
/// @par Thread safety
/// any thread; reads only the calling thread's message
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_last_error_message(buffer: *mut c_char, capacity: usize) -> usize {
    with_last_error(|text| {
        if !buffer.is_null() && capacity > 0 {
            let end = text.floor_char_boundary(capacity - 1);
            // SAFETY: the caller promises `capacity` writable bytes, and end < capacity.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), end);
                buffer.add(end).write(0);
            }
        }
        text.len() + 1
    })
}

/// The numbers behind the calling thread's last RKV_STATUS_OUT_OF_PAGES.
///
/// A call for more pages than there can be is refused before it has evicted anything. One that
/// lets waiting threads in may lose to them what it counted on: it gives back what it has then, and
/// what it evicted for that is free.
///
/// @param out_shortage receives them; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when no call of
/// this thread was refused for pages yet
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread; reads only the calling thread's numbers
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_last_shortage(out_shortage: *mut rkv_shortage) -> rkv_status {
    guard(|| {
        let last = last_shortage().ok_or(Error::NoShortage)?;
        let shortage = rkv_shortage {
            struct_size: 0,
            pool: last.pool as u32,
            needed_page_count: last.needed as u64,
            free_page_count: last.free as u64,
            reclaimable_page_count: last.reclaimable as u64,
            locked_page_count: last.locked as u64,
            private_page_count: last.private as u64,
            retained_page_count: last.retained as u64,
        };
        // SAFETY: the caller's contract on out_shortage.
        unsafe { write_struct(out_shortage, &shortage) }
    })
}
