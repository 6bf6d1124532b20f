//! A store that somebody else keeps: of a server, shared with other processes, possibly dead.
//!
//! Values that are too large for a call go in pieces, which a head of theirs names: it is written
//! when all of them are.
//!
//! It knows nothing of pages: values by key, and whether they are there. Nothing that comes from it
//! is believed. What is kept there is sealed: with its key, its length and a checksum, so that what
//! was damaged, cut off, or put under another key is seen to be so. A call that fails, panics or
//! takes too long costs a hit.
//!
//! Threads of the library make the calls: some for what is read, as many for what is written, so
//! that reads never wait behind writes. After some failures in a row nobody asks for a while: a
//! server that is dead costs its users one timeout each then, and those who come later nothing.
mod calls;
mod large;
mod pause;
mod queue;
mod removals;
mod sealed;
mod stats;
mod writes;

pub use calls::Remote;
pub use large::{LargeHead, LargePlan};
pub use queue::{Question, ReadEnd, RemoteEvent};
pub use sealed::KeySpace;
pub use stats::RemoteStats;

use super::Key;
use std::time::Duration;

/// How a store answered about one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answer {
    /// It could not be asked, or gave no answer.
    #[default]
    Failed,
    /// It has it; it was read, written or removed.
    Done,
    /// It does not have it.
    Missing,
}

/// One value of a call.
pub struct Item<'a> {
    /// What it is found by.
    pub key: Key,
    /// Of a put, the value. Of a get, where it goes. Otherwise nothing.
    pub bytes: &'a mut [u8],
    /// Of a get, how long the value is that was found; as much of it as fits was written.
    pub length: usize,
    /// The answer.
    pub answer: Answer,
}

impl<'a> Item<'a> {
    /// A value that was not answered about.
    pub fn new(key: Key, bytes: &'a mut [u8]) -> Self {
        Self { key, bytes, length: 0, answer: Answer::Failed }
    }
}

/// What keeps values by key. Calls may wait, but should return within the time that they are given,
/// and come from several threads at once. A value once put may be gone at any time.
pub trait RemoteStore: Send + Sync {
    /// Whether the values are there.
    fn has(&self, items: &mut [Item<'_>], time: Duration);
    /// Reads them.
    fn get(&self, items: &mut [Item<'_>], time: Duration);
    /// Writes them, in the place of what is there.
    fn put(&self, items: &mut [Item<'_>], time: Duration);
    /// Removes them.
    fn remove(&self, items: &mut [Item<'_>], time: Duration);
}

/// How a store is used.
pub struct RemoteConfig {
    /// The store.
    pub store: Box<dyn RemoteStore>,
    /// What values are good for: of another fingerprint nothing is found.
    pub fingerprint: [u8; 32],
    /// What a call may take.
    pub timeout: Duration,
    /// Threads that read, and as many that write. 0: none, for tests, which do what they would.
    pub workers: usize,
    /// Bytes that wait to be written, at most.
    pub waiting_bytes: u64,
}
