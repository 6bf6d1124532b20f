//! Status codes, the calling thread's last message, and the numbers behind a refused allocation.
use super::pointer::{AbiStruct, write_struct};
use crate::error::Shortage;
use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::fmt::{self, Write};

/// Result of every fallible function. The numbers are part of the ABI and are never reused:
/// 1-99 the caller's mistakes, 100-199 resources, 900 and above the library's own.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rkv_status {
    /// The call succeeded; every output was written.
    Ok = 0,
    /// An argument is NULL, out of range, inconsistent or unknown; the message names it.
    InvalidArgument = 1,
    /// The node id names no node of this cache: evicted, changed by a trim, foreign, or never
    /// issued.
    StaleNode = 2,
    /// The sequence id names no live sequence of this cache: ended, foreign, or never issued; nor,
    /// where that would do, a retained one.
    StaleSequence = 3,
    /// The lock id names no lock of this cache: undone, foreign, or never issued.
    StaleLock = 4,
    /// The buffer is too small; the needed count was written, and nothing else happened.
    BufferTooSmall = 5,
    /// The object is in a state that does not allow the call; the message says which.
    InvalidState = 6,
    /// This build, or an object of this kind, cannot do what was asked; the message says why.
    Unsupported = 7,
    /// The pin id names no pin of this cache: released, foreign, or never issued.
    StalePin = 8,
    /// Not enough pages, even if everything reclaimable were evicted. See rkv_last_shortage().
    OutOfPages = 100,
    /// Not enough slots of the page table are free.
    OutOfSlots = 101,
    /// The host is out of memory, or the GPU is; the message says which.
    OutOfMemory = 102,
    /// The page table already has a cache.
    Busy = 103,
    /// The sequence to go on from is still running; ask again when it is retained.
    Pending = 104,
    /// The GPU or its driver refused or failed; the message carries the driver's name and code of
    /// it. Nothing changed on the host. Errors of what was launched earlier show up here too.
    Device = 105,
    /// A bug in the library: a panic was caught. The handle is poisoned.
    Internal = 900,
    /// An earlier call on this handle ended with RKV_STATUS_INTERNAL; only destroying it is
    /// allowed.
    Poisoned = 901,
    /// A check of the invariants failed; the message names the one.
    Corrupt = 902,
}

/// Why an allocation was refused, in pages: free + reclaimable < needed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_shortage {
    /// sizeof(rkv_shortage).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages that the call needed beyond those it could share.
    pub needed_page_count: u64,
    /// Pages in the free pool.
    pub free_page_count: u64,
    /// Cached pages that eviction could free while the call uses its own.
    pub reclaimable_page_count: u64,
    /// Cached pages that locks protect, those that the call itself would lock included.
    pub locked_page_count: u64,
    /// Pages that belong to rows, to retained sequences or to the caller.
    pub private_page_count: u64,
    /// Of the locked and the private pages, those that retained sequences keep: what
    /// rkv_cache_drop_retained() can help with, unless they are still in use.
    pub retained_page_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_shortage {
    const NAME: &'static str = "out_shortage";
    const V1: usize = 56;
}

/// Bytes of a message that are kept. Few have more than a hundred.
const MESSAGE_BYTES: usize = 1024;

/// The calling thread's last message, in memory that is there from the beginning.
struct LastMessage {
    len: usize,
    bytes: [u8; MESSAGE_BYTES],
}

impl Write for LastMessage {
    /// Leaves out what doesn't fit.
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = part.floor_char_boundary(MESSAGE_BYTES - self.len);
        self.bytes[self.len..self.len + end].copy_from_slice(&part.as_bytes()[..end]);
        self.len += end;
        Ok(())
    }
}

thread_local! {
    // Nothing here is dropped: what is would have to be registered with the thread, which takes
    // memory.
    static MESSAGE: RefCell<LastMessage> =
        const { RefCell::new(LastMessage { len: 0, bytes: [0; MESSAGE_BYTES] }) };
    static SHORTAGE: Cell<Option<Shortage>> = const { Cell::new(None) };
}

pub(super) fn set_last_error(message: impl fmt::Display) {
    MESSAGE.with_borrow_mut(|last| {
        last.len = 0;
        // It never fails.
        let _ = write!(last, "{message}");
    });
}

pub(super) fn set_last_shortage(shortage: Shortage) {
    SHORTAGE.set(Some(shortage));
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
        100 => c"RKV_STATUS_OUT_OF_PAGES",
        101 => c"RKV_STATUS_OUT_OF_SLOTS",
        102 => c"RKV_STATUS_OUT_OF_MEMORY",
        103 => c"RKV_STATUS_BUSY",
        104 => c"RKV_STATUS_PENDING",
        105 => c"RKV_STATUS_DEVICE",
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
/// @return bytes that the whole message takes, the NUL included; 1 when there is none
/// @par Cost
/// O(bytes of the message); no lock
/// @par Thread safety
/// any thread; reads only the calling thread's message
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_last_error_message(buffer: *mut c_char, capacity: usize) -> usize {
    MESSAGE.with_borrow(|last| {
        let text = std::str::from_utf8(&last.bytes[..last.len]).unwrap_or_default();
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
    super::guard::guard(|| {
        let last = SHORTAGE.get();
        let Some(last) = last else {
            return Err(crate::error::Error::NoShortage.into());
        };
        let shortage = rkv_shortage {
            struct_size: 0,
            reserved: 0,
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
