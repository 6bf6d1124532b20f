//! What can go wrong, in words that name the argument.
mod message;

pub(crate) use message::text;
pub(crate) use message::write as write_message;
pub use message::{Message, prepare};

use crate::memory::OutOfMemory;

/// Why a call was refused. Nothing changed when one is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// There will be more reasons.
#[non_exhaustive]
pub enum Error {
    /// An argument is out of range, inconsistent or unknown.
    #[error("{0}")]
    Argument(Message),
    /// The id names no node of this cache.
    #[error("node {0:#x} is stale: evicted, trimmed, merged, of another cache, or never issued")]
    StaleNode(u64),
    /// The id names no live sequence of this cache.
    #[error("sequence {0:#x} is stale: ended, displaced, of another cache, or never issued")]
    StaleSequence(u64),
    /// The sequence is retained, and what was asked for needs a live one.
    #[error("sequence {0:#x} is retained: rkv_sequence_drop() ends it")]
    RetainedSequence(u64),
    /// The sequence is live, and what was asked for needs a retained one.
    #[error("sequence {0:#x} is live: rkv_sequence_release() ends it")]
    LiveSequence(u64),
    /// The id names no pin of this cache.
    #[error("pin {0:#x} is stale: released, of another cache, or never issued")]
    StalePin(u64),
    /// The id names no lock of this cache.
    #[error("lock {0:#x} is stale: undone, of another cache, or never issued")]
    StaleLock(u64),
    /// The id names no ticket of this cache.
    #[error("ticket {0:#x} is stale: taken, cancelled, of another cache, or never issued")]
    StaleTicket(u64),
    /// The object is in a state that does not allow the call.
    #[error("{0}")]
    State(Message),
    /// This build, or this machine, cannot do it.
    #[error("{0}")]
    Unsupported(Message),
    /// Pages are short even if everything reclaimable were evicted.
    #[error("{0}")]
    OutOfPages(Shortage),
    /// Fewer slots are free than are needed: needed, free, all.
    #[error("slots needed: {0}, free: {1} of {2}")]
    OutOfSlots(usize, usize, usize),
    /// The parent of a continuation is not finished yet.
    #[error("args.parent {0:#x} is still running, and RKV_CONTINUE_RUNNING is not set")]
    Pending(u64),
    /// What a sequence waits for goes on.
    #[error("sequence {0:#x} waits for what it fetches")]
    Loading(u64),
    /// The host has no memory for it.
    #[error("out of host memory for {0}")]
    OutOfMemory(Message),
    /// The device has no memory for it; what the driver says.
    #[error("out of device memory: {0}")]
    DeviceMemory(Message),
    /// The driver refused or failed.
    #[error("{text}")]
    Device {
        /// The driver's code, a CUresult.
        code: u32,
        /// The function, the code's name, the code.
        text: Message,
    },
    /// The disk, or what is on it, does not allow the call.
    #[error("{0}")]
    Storage(Message),
    /// The page table already has a cache.
    #[error("the page table already has a cache")]
    Busy,
    /// An invariant does not hold.
    #[error("{0}")]
    Corrupt(Message),
    /// An earlier call panicked and may have left things half done.
    #[error("an earlier call on this handle ended with an internal error")]
    Poisoned,
    /// Nothing was refused for pages yet.
    #[error("no call of this thread was refused for pages yet")]
    NoShortage,
}

impl Error {
    pub(crate) fn argument(message: impl Into<Message>) -> Self {
        Self::Argument(message.into())
    }

    pub(crate) fn state(message: impl Into<Message>) -> Self {
        Self::State(message.into())
    }

    /// The same, saying in which part of an argument.
    pub(crate) fn within(self, place: &str) -> Self {
        match self {
            Self::Argument(message) => Self::argument(text!("{place}: {message}")),
            Self::State(message) => Self::state(text!("{place}: {message}")),
            other => other,
        }
    }

    pub(crate) fn unsupported(message: impl Into<Message>) -> Self {
        Self::Unsupported(message.into())
    }

    pub(crate) fn memory(what: impl Into<Message>) -> Self {
        Self::OutOfMemory(what.into())
    }
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::memory("what the call needs")
    }
}

/// Which pool, for messages; the first is the only one that most have.
struct OfPool(usize);

impl std::fmt::Display for OfPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " of pool {}", self.0) }
    }
}

/// The numbers behind a refused allocation, in pages: free + reclaimable < needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} pages{} needed, but only {free} are free and {reclaimable} reclaimable \
     ({locked} cached ones are locked, {private} are private; retained sequences keep {retained})",
    OfPool(*pool)
)]
pub struct Shortage {
    /// The pool that is short.
    pub pool: usize,
    /// Pages that were needed beyond the shared ones.
    pub needed: usize,
    /// Pages in the pool.
    pub free: usize,
    /// Cached pages that eviction could free.
    pub reclaimable: usize,
    /// Cached pages that locks protect, those that the call itself would lock included.
    pub locked: usize,
    /// Pages of rows and callers.
    pub private: usize,
    /// Of the locked and private ones, those that retained sequences keep.
    pub retained: usize,
}
