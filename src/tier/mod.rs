//! Where records lie that memory has no room for: found by key, written and read behind the
//! caller's back, there again after a restart.
//!
//! Whoever keeps a cache decides what goes there and what leaves, and in which order; a
//! [`LowerStore`] only carries it out. No call of it waits: what it did comes as an [`Event`].
//! [`DiskStore`] is the one in a directory.
#![forbid(unsafe_code)]

pub mod disk;
mod found;
pub mod paged;
pub(crate) mod processors;
mod records;
pub mod remote;
mod space;
mod store;

pub use found::{FoundRecords, Record};
pub use store::{Contents, DiskConfig, DiskStore, Io, OpenError, Wake};

use crate::memory::OutOfMemory;
use crate::store::Identity;
use std::any::Any;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a record is found by. The caller never gives the same key to two records.
pub type Key = [u8; 32];

/// What is written: some parts of bytes that do not change until it is dropped.
pub trait Source: Send + Sync {
    /// How many parts there are.
    fn parts(&self) -> usize;
    /// One of them.
    fn part(&self, index: usize) -> &[u8];
    /// Whether these bytes, which were copied from all parts, are what they once were, as far as
    /// somebody knows. Asked before they are given to others.
    fn are_intact(&self, _bytes: &[u8]) -> bool {
        true
    }

    /// Whether it is still to be given to others. Asked before it is.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// Where a record is read to. All parts together have the length of the record.
pub trait Target: Send + Sync {
    /// How many parts there are.
    fn parts(&self) -> usize;
    /// One of them.
    fn part(&mut self, index: usize) -> &mut [u8];
    /// All of them at once, in their order.
    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8]));
    /// Whether somebody may wait for it when the time of a call is over.
    fn may_be_waited_for(&self) -> bool {
        true
    }
    /// For the caller, who knows what it is.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// Why a call was refused. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it: not before something is removed, and that is committed.
    Full,
    /// There is room for it, but in too many pieces: not before more is removed.
    Fragmented,
    /// A record of no bytes, or of more than fits into the whole store, or with a longer note than
    /// can be kept; a target that is not as long as the record.
    Length,
    /// Too many bytes wait to be written.
    Busy,
    /// No committed record has this key.
    Missing,
    /// There is a record with this key.
    Known,
    /// The host has no memory for it.
    OutOfMemory,
    /// The store gave up on writing. What it has can still be read.
    Closed,
}

/// Why a record could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadError {
    /// It was removed meanwhile.
    Missing,
    /// Its bytes are not those that were written. It is not there any more.
    Damaged,
    /// The disk refused. It is still there.
    Io,
}

/// Why a record is not there, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The disk is full.
    NoSpace,
    /// The disk refused.
    Io,
    /// A read found other bytes than were written.
    Damaged,
}

/// What happened.
pub enum Event {
    /// From here on it is found after a crash.
    Committed {
        /// The record's.
        key: Key,
    },
    /// It was not written, or it was found damaged, and is not there.
    Dropped {
        /// The record's.
        key: Key,
        /// Why.
        why: Dropped,
    },
    /// A read has ended.
    Loaded {
        /// What [`LowerStore::get`] returned.
        ticket: u64,
        /// The record's.
        key: Key,
        /// The caller's, with the record in it if that was read; otherwise with anything.
        target: Box<dyn Target>,
        /// Whether it was read.
        result: Result<(), LoadError>,
    },
}

/// A store below memory.
pub trait LowerStore: Send + Sync {
    /// Starts to write. Nothing blocks on the disk in any of these calls.
    fn put(&self, key: Key, note: Box<[u8]>, source: Box<dyn Source>) -> Result<(), Refused>;
    /// Starts to read; the target comes back with the event. Only committed records are read.
    fn get(&self, key: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)>;
    /// Its space is used again once the removal is committed and nobody reads it. Stops a write
    /// that has not been committed; no event comes for it. Its source is dropped by a thread of the
    /// store: the caller may hold locks.
    fn remove(&self, key: Key);
    /// What was removed is committed as soon as can be: it must not come back after a crash.
    fn commit_removals(&self) {}
    /// The caller holds a lock of its own: what is asked for may wait until [`Self::resume`], so
    /// that no thread is woken meanwhile.
    fn defer(&self) {}
    /// The caller has let go of it. To be called as often as [`Self::defer`].
    fn resume(&self) {}
    /// It was used now. Kept approximately (with the next commit).
    fn touch(&self, key: Key);
    /// Bytes of space that a record takes.
    fn cost(&self, bytes: u64, note: usize) -> u64;
    /// One atomic load.
    fn has_events(&self) -> bool;
    /// Appends the events since the last call, or the first of them: there are more while
    /// [`Self::has_events`] says so.
    fn poll(&self, events: &mut Vec<Event>);
    /// Waits until all that was put or removed before is committed or dropped; false when the time
    /// is over, or a removal will never be committed, as there was no memory for it.
    fn flush(&self, timeout: Duration) -> bool;
    /// What ends when all that was put or removed before is committed or dropped; `None` when that
    /// is so. Nothing is done sooner for it.
    fn mark(&self) -> Result<Option<u64>, OutOfMemory> {
        Ok(None)
    }
    /// Whether such a mark has ended.
    fn has_ended(&self, mark: u64) -> bool {
        let _ = mark;
        true
    }
    /// Counts since the store was opened.
    fn stats(&self) -> StoreStats;
    /// What its place is told from others by, also when it is opened again; `None` when nobody
    /// knows.
    fn identity(&self) -> Option<Identity> {
        None
    }
}

/// Counts of a store, since it was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StoreStats {
    /// Records that can be read.
    pub records: u64,
    /// Space in use: of records, of those being written, and of removed ones whose removal is not
    /// committed or that are still being read.
    pub bytes: u64,
    /// Of [`Self::bytes`], the most.
    pub capacity: u64,
    /// Bytes of records whose sources are still held.
    pub waiting_bytes: u64,
    /// Bytes of records that were written.
    pub written_bytes: u64,
    /// Bytes of records that were read.
    pub read_bytes: u64,
    /// Records that were committed.
    pub writes: u64,
    /// Records that were read.
    pub reads: u64,
    /// Records that were dropped because the disk refused.
    pub failed_writes: u64,
    /// Reads that failed because the disk refused.
    pub failed_reads: u64,
    /// Records that were dropped because their bytes, or what was kept of them, had changed.
    pub damaged: u64,
    /// Records that the bound had no room for when the store was opened.
    pub trimmed: u64,
    /// Records that were dropped because the disk was full.
    pub no_space: u64,
    /// Commits.
    pub commits: u64,
    /// Commits that failed.
    pub failed_commits: u64,
    /// Records whose space was given back, and writes that were stopped, when they wait no more.
    pub released: u64,
    /// The longest commit.
    pub commit_nanoseconds_max: u64,
    /// The sum of what requests to write took.
    pub write_nanoseconds: u64,
    /// The sum of what requests to read took.
    pub read_nanoseconds: u64,
    /// The store gave up on writing.
    pub is_read_only: bool,
    /// There was no memory for a removal when it came, and it is not committed yet.
    pub has_unremoved: bool,
    /// Requests go through io_uring.
    pub is_ring: bool,
}

impl StoreStats {
    /// Goes up whenever there may be room for what was refused. A commit ends what waited for it; a
    /// record that was removed before its commit gives its space back without one.
    pub fn turns(&self) -> u64 {
        self.commits + self.released
    }

    /// A commit was carried out, which took so long.
    fn count_commit(&mut self, nanoseconds: u64) {
        self.commits += 1;
        self.commit_nanoseconds_max = self.commit_nanoseconds_max.max(nanoseconds);
    }
}

/// Waits for a thread to end, unless it is the calling one: whoever it woke, or asked, lets go of
/// what it works for. That one ends by itself when it comes back.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        // What it panicked of was told by it.
        let _ = thread.join();
    }
}
