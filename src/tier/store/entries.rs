//! What is known of each record.
use super::sorted::Sorted;
use crate::memory::{Arc, OutOfMemory};
use crate::tier::records::Place;
use crate::tier::{Dropped, Key};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Pieces of it are being written, or wait for that.
    Writing {
        /// Pieces that are not done.
        left: usize,
        /// What went wrong with one of them.
        failed: Option<Dropped>,
        /// Nobody wants it any more.
        is_removed: bool,
    },
    /// The next commit has it.
    Written,
    /// The commit in progress has it.
    Committing {
        /// Nobody wants it any more.
        is_removed: bool,
    },
    /// It can be read.
    Committed,
    /// It is to be removed, and there was no memory yet to list it for a commit.
    Unlisted,
    /// The next commit removes it.
    Removing,
    /// The commit in progress removes it.
    RemovingNow,
    /// It is removed, but still being read.
    Removed,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub phase: Phase,
    pub place: Arc<Place>,
    /// Until it is committed; then the caller alone has it.
    pub note: Box<[u8]>,
    pub cost: u64,
    pub used: u64,
    /// The number of the write, while that waits.
    pub put: u64,
    pub readers: u32,
    /// The next commit writes when it was used.
    pub is_touched: bool,
    /// Its space may be given back: there is room for that.
    pub is_promised: bool,
    /// It was `Unlisted`, and the commit that removes it is still to come.
    pub is_late: bool,
    /// Who flushes waits for it.
    pub epoch: u64,
    /// How many syncs had failed when it came.
    pub failed_syncs: u64,
}

impl Entry {
    /// Of a record that was there when the store was opened.
    pub fn found(place: Arc<Place>, cost: u64, used: u64) -> Self {
        Self {
            phase: Phase::Committed,
            place,
            note: Box::default(),
            cost,
            used,
            put: 0,
            readers: 0,
            is_touched: false,
            is_promised: false,
            is_late: false,
            epoch: 0,
            failed_syncs: 0,
        }
    }
}

/// What was found, and a map that grows by little steps: the lock is held meanwhile, so no step may
/// take long.
pub(super) struct Entries {
    found: Sorted,
    /// Those that came later.
    shards: Box<[Shard]>,
    hasher: RandomState,
}

type Shard = HashMap<Key, Entry, RandomState>;

const SHARDS: usize = 1024;

impl Entries {
    /// Those that were found.
    pub fn new(found: Sorted) -> Result<Self, OutOfMemory> {
        let mut shards = Vec::new();
        shards.try_reserve_exact(SHARDS)?;
        shards.extend((0..SHARDS).map(|_| Shard::with_hasher(RandomState::default())));
        Ok(Self { found, shards: shards.into_boxed_slice(), hasher: RandomState::default() })
    }

    fn shard(&self, key: &Key) -> usize {
        // The other end of the hash than the one that the shards' own maps take first.
        (self.hasher.hash_one(key) >> 32) as usize % SHARDS
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.shards[self.shard(key)].get(key).or_else(|| self.found.get(key))
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let shard = self.shard(key);
        let entry = self.shards[shard].get_mut(key);
        entry.or_else(|| self.found.get_mut(key))
    }

    /// Parts that can be gone through one after the other; what there is stays in its own.
    pub fn parts(&self) -> usize {
        self.found.blocks() + self.shards.len()
    }

    /// The entries of a part.
    pub fn part_mut(&mut self, part: usize) -> impl Iterator<Item = (&Key, &mut Entry)> {
        let shard = part.checked_sub(self.found.blocks());
        let shard = shard.and_then(|at| self.shards.get_mut(at));
        self.found.block_mut(part).chain(shard.into_iter().flatten())
    }

    /// Room for an entry of this key.
    pub fn try_reserve(&mut self, key: &Key) -> Result<(), OutOfMemory> {
        let shard = self.shard(key);
        Ok(self.shards[shard].try_reserve(1)?)
    }

    /// For a new key, for which room was made.
    pub fn insert(&mut self, key: Key, entry: Entry) {
        let shard = self.shard(&key);
        self.shards[shard].insert(key, entry);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let shard = self.shard(key);
        self.shards[shard].remove(key).or_else(|| self.found.remove(key))
    }
}
