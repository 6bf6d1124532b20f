//! The keys of a sequence that its base does not have: those behind what is published.
use crate::memory::{OutOfMemory, try_to_vec};

/// Room that a slot keeps for the tail of its next sequence.
const KEPT: usize = 4096;
/// Keys that move at most when the first ones go: in about a microsecond.
const MOVED: usize = 8192;

/// Keys, of which the first go as they are published.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    list: Vec<u32>,
    /// So many of the first are gone.
    start: usize,
    /// Grows when keys go, not when keys are added: who copied some sees whether they are still
    /// the first.
    version: u64,
}

impl Tail {
    /// The keys.
    #[inline]
    pub(crate) fn keys(&self) -> &[u32] {
        &self.list[self.start..]
    }

    /// Makes room for more keys.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        if self.has_room(count) {
            return Ok(());
        }
        self.close_gap();
        self.list.try_reserve(count).map_err(OutOfMemory::from)
    }

    /// Whether there is room for more keys already.
    #[inline]
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.list.capacity() - self.list.len() >= count
    }

    /// Adds keys, for which room was made.
    pub(crate) fn extend(&mut self, keys: &[u32]) {
        debug_assert!(self.list.capacity() - self.list.len() >= keys.len(), "room was made");
        self.list.extend_from_slice(keys);
    }

    /// Forgets the last keys.
    pub(crate) fn drop_last(&mut self, count: usize) {
        self.list.truncate(self.list.len() - count);
        self.version += 1;
    }

    /// Forgets the first keys. The others move only when they are few, and no more than are gone.
    #[inline]
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.start += count;
        self.version += 1;
        if self.keys().len() <= self.start.min(MOVED) {
            self.close_gap();
        }
    }

    fn close_gap(&mut self) {
        if self.start > 0 {
            self.list.drain(..self.start);
            self.start = 0;
        }
    }

    /// Whether its keys are more than move quickly.
    pub(crate) fn is_long(&self) -> bool {
        self.keys().len() > MOVED
    }

    /// Forgets all keys. Returns much room, and keeps other.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        let is_much = self.list.capacity() > KEPT;
        let room = if is_much { std::mem::take(&mut self.list) } else { Vec::new() };
        self.list.clear();
        self.start = 0;
        self.version += 1;
        room
    }

    /// The same keys, in a list that is no longer than they are.
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { list: try_to_vec(self.keys())?, start: 0, version: self.version })
    }

    /// Heap memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<u32>()
    }

    /// Grows when keys go.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Puts a list that begins with the same keys in the place of this one, which it gives back.
    pub(super) fn replace(&mut self, list: Vec<u32>) -> Vec<u32> {
        self.start = 0;
        std::mem::replace(&mut self.list, list)
    }
}

impl From<Vec<u32>> for Tail {
    fn from(list: Vec<u32>) -> Self {
        Self { list, ..Self::default() }
    }
}
