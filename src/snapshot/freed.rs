//! Snapshots on their way: each in a box of its own, which is made when the snapshot comes and in
//! which it goes wherever it goes. So letting one go needs no memory.
use super::NewSnapshot;
use super::tree::Tree;
use crate::memory::{OutOfMemory, try_box_with};
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

impl<V> Snapshot<V> {
    /// In its box, of a value that is made when there is memory for it.
    pub(super) fn boxed(
        new: &NewSnapshot<'_>,
        make: impl FnOnce() -> V,
    ) -> Result<Box<Self>, OutOfMemory> {
        let NewSnapshot { bytes, next_token, .. } = *new;
        try_box_with(|| Self { value: make(), bytes, next_token, before: None })
    }
}

/// Snapshots in the order in which they were freed.
pub(super) struct Stack<V> {
    last: Option<Box<Snapshot<V>>>,
}

impl<V> Stack<V> {
    pub(super) fn push(&mut self, mut snapshot: Box<Snapshot<V>>) {
        snapshot.before = self.last.take();
        self.last = Some(snapshot);
    }

    fn iter(&self) -> impl Iterator<Item = &V> {
        let all =
            std::iter::successors(self.last.as_deref(), |snapshot| snapshot.before.as_deref());
        all.map(|snapshot| &snapshot.value)
    }
}

impl<V> Stack<V> {
    /// Takes them one by one, in their order.
    fn drain(&mut self, mut take: impl FnMut(Box<Snapshot<V>>)) {
        let mut first = None;
        while let Some(mut snapshot) = self.last.take() {
            self.last = snapshot.before.take();
            snapshot.before = first;
            first = Some(snapshot);
        }
        while let Some(mut snapshot) = first {
            first = snapshot.before.take();
            take(snapshot);
        }
    }
}

impl<V> Drop for Stack<V> {
    fn drop(&mut self) {
        self.drain(drop);
    }
}

/// Values that are no longer the cache's, of one call. Drop it when no lock is held.
pub struct Freed<V> {
    // Dropped in this order.
    /// What a cache held when it was cleared, as it lay there.
    all: Option<Tree<V>>,
    /// What an insert didn't store.
    refused: Option<V>,
    /// What calls looked at and others let go meanwhile: the last one, which has the one before.
    left: Option<V>,
    /// What was replaced, removed or given back by its last reader.
    pub(super) ended: Stack<V>,
    /// What went for the limits.
    pub(super) evicted: Stack<V>,
}

impl<V> Freed<V> {
    /// None yet.
    pub fn new() -> Self {
        let (ended, evicted) = (Stack { last: None }, Stack { last: None });
        Self { all: None, refused: None, left: None, ended, evicted }
    }

    /// What went for the limits, and might be worth keeping elsewhere: the last one first.
    pub(super) fn evicted(&self) -> impl Iterator<Item = &V> {
        self.evicted.iter()
    }

    /// Forgets that what went for the limits did: it was looked at.
    pub(super) fn settle(&mut self) {
        self.evicted.drain(|snapshot| self.ended.push(snapshot));
    }

    pub(super) fn push_all(&mut self, tree: Tree<V>) {
        if let Some(mut before) = self.all.replace(tree) {
            before.nodes.take_entries().for_each(|entry| self.ended.push(entry));
        }
    }

    pub(super) fn refuse(&mut self, value: V) {
        self.refused = Some(value);
    }

    /// A value that a call looked at, and that others let go meanwhile. It has no box, and there
    /// may be no memory for one: `link` puts the one before into it.
    pub(super) fn keep(&mut self, value: V, link: impl FnOnce(&V, V)) {
        if let Some(before) = self.left.take() {
            link(&value, before);
        }
        self.left = Some(value);
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
