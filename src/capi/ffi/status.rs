//! Status codes, the calling thread's last message, and the numbers behind a refused allocation.
use super::pointer::AbiStruct;
use crate::error::Shortage;
use std::cell::{Cell, RefCell};
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
    /// where that would do, a retained one. The message says so of one that is retained, or live
    /// where a retained one is wanted.
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
    /// The ticket id names no ticket of this cache: taken, cancelled, foreign, or never issued.
    StaleTicket = 9,
    /// Not enough pages, even if everything reclaimable were evicted. See rkv_last_shortage().
    OutOfPages = 100,
    /// Not enough slots of the page table are free.
    OutOfSlots = 101,
    /// The host is out of memory, or the GPU is; the message says which.
    OutOfMemory = 102,
    /// The page table already has a cache.
    Busy = 103,
    /// Something else has to end first: ask again. The sequence to go on from is still running, a
    /// fetch of the sequence is open, or what is waited for did not end in time.
    Pending = 104,
    /// The GPU or its driver refused or failed; the message carries the driver's name and code of
    /// it. Nothing changed on the host. Errors of what was launched earlier show up here too.
    Device = 105,
    /// The disk, or what is on it, does not allow the call; the message says what and where.
    Storage = 106,
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
    /// The pool that is short; 0 without a list of pools.
    pub pool: u32,
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
    /// rkv_cache_drop_retained_pool() can help with, unless they are still in use.
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

pub(crate) fn set_last_error(message: impl fmt::Display) {
    MESSAGE.with_borrow_mut(|last| {
        last.len = 0;
        // It never fails.
        let _ = write!(last, "{message}");
    });
}

pub(crate) fn set_last_shortage(shortage: Shortage) {
    SHORTAGE.set(Some(shortage));
}

/// Shows the thread's last message, "" before the first.
pub(crate) fn with_last_error<R>(body: impl FnOnce(&str) -> R) -> R {
    MESSAGE.with_borrow(|last| body(std::str::from_utf8(&last.bytes[..last.len]).unwrap_or("")))
}

/// The numbers behind the thread's last refusal for want of pages.
pub(crate) fn last_shortage() -> Option<Shortage> {
    SHORTAGE.get()
}
