//! Snapshots on their way: each in a box of its own, which is made when the snapshot comes and in
//! which it goes wherever it goes. So letting one go needs no memory.
use super::nodes::Nodes;
use std::fmt;

/// A snapshot. It never changes: another one for the same tokens is another entry.
#[derive(Debug)]
pub(super) struct Snapshot<V> {
    pub(super) value: V,
    pub(super) bytes: u64,
    pub(super) next_token: Option<u32>,
    /// Freed before this one.
    pub(super) before: Option<Box<Self>>,
}

/// Values that are no longer the cache's, of one call. Drop it when no lock is held.
pub struct Freed<V> {
    /// What an insert didn't store.
    refused: Option<V>,
    last: Option<Box<Snapshot<V>>>,
    /// What a cache held when it was cleared, as it lay there.
    all: Option<Nodes<V>>,
}

impl<V> Freed<V> {
    /// None yet.
    pub fn new() -> Self {
        Self { refused: None, last: None, all: None }
    }

    pub(super) fn push(&mut self, mut snapshot: Box<Snapshot<V>>) {
        snapshot.before = self.last.take();
        self.last = Some(snapshot);
    }

    pub(super) fn push_all(&mut self, nodes: Nodes<V>) {
        if let Some(mut before) = self.all.replace(nodes) {
            before.take_entries().for_each(|entry| self.push(entry));
        }
    }

    pub(super) fn refuse(&mut self, value: V) {
        self.refused = Some(value);
    }
}

impl<V> Drop for Freed<V> {
    /// Drops the values one by one, and those of one list in the order in which they were freed.
    fn drop(&mut self) {
        drop(self.all.take());
        drop(self.refused.take());
        let mut first = None;
        while let Some(mut snapshot) = self.last.take() {
            self.last = snapshot.before.take();
            snapshot.before = first;
            first = Some(snapshot);
        }
        while let Some(mut snapshot) = first {
            first = snapshot.before.take();
        }
    }
}

impl<V> Default for Freed<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> fmt::Debug for Freed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").finish_non_exhaustive()
    }
}
