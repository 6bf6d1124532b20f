//! Events: what comes into a cache and leaves it, as routers read it on the wire. Bytes and a
//! number out; whoever has a socket sends them.
//!
//! ```text
//!   journal ─► reader ─► follow ─► blocks     what each page holds, and what was told of it
//!   (records)             │   ┌─────┘
//!                         ▼   ▼
//!                       announce ─► wire ─► outbox ─► batch     a payload of bounded size
//!                       (after the blocks before them)
//! ```
//!
//! Records are copied under the shared lock, like every reader of the journal does, and worked on
//! outside of it: digests, order and bytes cost the thread that asks for them, and nobody else.
//!
//! An encoder keeps what it was told. So it can say of a page that left which block that was, and
//! take back what it told and tell it anew to a subscriber who comes late, each block after the one
//! before it, while the cache goes on. When records were lost it begins again: nothing is held,
//! then the contents.
//!
//! A call that fails for want of memory has lost nothing: a record is dropped when all of it was
//! told, or is listed to be, and applying it twice does nothing.
#![forbid(unsafe_code)]

mod announce;
mod blocks;
mod encoder;
mod follow;
mod intake;
mod outbox;
mod pack;
mod reader;
mod repeat;
mod spaces;
mod wire;

pub(crate) use reader::{Read, Reader};
pub(crate) use spaces::NAME_LIMIT;

use crate::error::{Error, text};
use crate::index::Namespace;
use crate::lock::or_leave;
use crate::memory::Arc;
use crate::store::Shared;
use encoder::Progress;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// How events are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventConfig {
    /// Digests are written whole, and not as the number that their last 64 bits are.
    pub wide_hashes: bool,
    /// Stands in each batch.
    pub data_parallel_rank: Option<u32>,
    /// The id that stands for positions that are not text.
    pub placeholder_token_id: u32,
    /// Where the blocks are.
    pub medium: String,
}

impl Default for EventConfig {
    fn default() -> Self {
        Self {
            wide_hashes: false,
            data_parallel_rank: None,
            placeholder_token_id: 0,
            medium: "GPU".to_owned(),
        }
    }
}

/// What a batch has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// Bytes of the payload; 0 when there is nothing to tell.
    pub bytes: usize,
    /// Bytes that it needs at least, when there was not room for one event; else 0.
    pub needed_bytes: usize,
    /// Events.
    pub event_count: usize,
    /// Blocks that came in.
    pub stored_count: usize,
    /// Blocks that left, those of events that say that all did included.
    pub removed_count: usize,
    /// The last record of the journal that was read.
    pub last_number: u64,
    /// Records that were overwritten before they were read, since the batch before that had room.
    pub lost_count: u64,
    /// There is more to tell right now.
    pub has_more: bool,
    /// Bytes of the events alone.
    event_bytes: usize,
}

/// Turns the journal of a page table's caches into batches of events.
#[derive(Debug)]
pub struct EventEncoder {
    shared: Arc<Shared>,
    // std's lock: parking_lot's takes memory when a thread has to wait.
    progress: Mutex<Progress>,
    poisoned: AtomicBool,
}

impl EventEncoder {
    /// For the cache that a page table has, which must have a journal.
    pub fn new(shared: Arc<Shared>, config: EventConfig) -> Result<Self, Error> {
        let progress = Mutex::new(Progress::new(&shared, config)?);
        Ok(Self { shared, progress, poisoned: AtomicBool::new(false) })
    }

    /// Whether a call on it, or on what it stands on, panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) || self.shared.is_poisoned()
    }

    /// A call on it panicked. What it stands on was only read, and goes on.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        or_leave(self.progress.lock())
    }

    /// What a namespace is called in events from now on: the name of its adapter, and what keeps it
    /// apart from others of that adapter. None: its number, and its digest; an empty salt: none.
    pub fn name_namespace(
        &self,
        name: &Namespace,
        lora_name: Option<&str>,
        cache_salt: Option<&str>,
    ) -> Result<(), Error> {
        self.progress().spaces.register(name, lora_name, cache_salt)
    }

    /// Writes one batch: as many events as there are and as fit, or none. `timestamp` is in
    /// seconds.
    pub fn encode(&self, timestamp: f64, room: &mut [MaybeUninit<u8>]) -> Result<Batch, Error> {
        if !timestamp.is_finite() {
            return Err(Error::argument(text!("timestamp {timestamp} is no point in time")));
        }
        let mut progress = self.progress();
        let (tail, tail_bytes) = wire::batch_tail(progress.wire.config.data_parallel_rank);
        let frame = wire::HEAD_BYTES + tail_bytes;
        let inside = wire::HEAD_BYTES..room.len().saturating_sub(tail_bytes);
        let mut batch = progress.fill(&self.shared, room.get_mut(inside).unwrap_or_default())?;
        if batch.needed_bytes > 0 {
            batch.needed_bytes += frame;
        } else if !room.is_empty() {
            // Else the batch that tells anew what was lost would say that nothing was.
            progress.told_lost();
        }
        if batch.event_count > 0 {
            batch.bytes = frame + batch.event_bytes;
            let (head, rest) = room.split_at_mut(wire::HEAD_BYTES);
            head.write_copy_of_slice(&wire::batch_head(timestamp, batch.event_count));
            rest[batch.event_bytes..][..tail_bytes].write_copy_of_slice(&tail[..tail_bytes]);
        }
        Ok(batch)
    }

    /// Has everything that was told taken back, and all that is held told once more, for
    /// subscribers who came late.
    pub fn repeat(&self) {
        self.progress().repeat();
    }
}
