//! What is known of each record.
use crate::memory::{Arc, OutOfMemory, TryGrow, try_zeros};
use crate::tier::processors::{processors, side_by_side};
use crate::tier::records::{Kept, Place};
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
    pub readers: u32,
    /// The next commit writes when it was used.
    pub is_touched: bool,
    /// Who flushes waits for it.
    pub epoch: u64,
    /// How many syncs had failed when it came.
    pub failed_syncs: u64,
}

/// A map that grows by little steps: the lock is held meanwhile, so no step may take long.
pub(super) struct Entries {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

type Shard = HashMap<Key, Entry, RandomState>;

const SHARDS: usize = 1024;

impl Entries {
    /// The entries of so many keys. One shard is filled after the other: each fits the processor's
    /// cache, and several processors have some each.
    pub fn of(keys: &[Kept], entry: impl Fn(&Kept) -> Entry + Sync) -> Result<Self, OutOfMemory> {
        let mut shards = Vec::new();
        shards.try_reserve_exact(SHARDS)?;
        shards.extend((0..SHARDS).map(|_| Shard::with_hasher(RandomState::default())));
        let mut all = Self { shards: shards.into_boxed_slice(), hasher: RandomState::default() };
        // Where the numbers of the keys of each shard end.
        let mut ends = [0_u32; SHARDS];
        let mut owners: Vec<u16> = Vec::new();
        owners.try_extend(keys.iter().map(|kept| all.shard(&kept.key) as u16))?;
        owners.iter().for_each(|&shard| ends[shard as usize] += 1);
        let mut end = 0;
        for count in &mut ends {
            (end, *count) = (end + *count, end);
        }
        let mut numbers = try_zeros::<u32>(keys.len())?;
        for (number, &shard) in owners.iter().enumerate() {
            let at = &mut ends[shard as usize];
            numbers[*at as usize] = number as u32;
            *at += 1;
        }
        drop(owners);
        let part = SHARDS.div_ceil(processors(keys.len()));
        let parts = all.shards.chunks_mut(part).enumerate();
        let filled = side_by_side(parts, |(number, shards)| {
            for (at, shard) in shards.iter_mut().enumerate() {
                let at = number * part + at;
                let start = at.checked_sub(1).map_or(0, |before| ends[before]);
                let own = &numbers[start as usize..ends[at] as usize];
                shard.try_reserve(own.len())?;
                for &number in own {
                    let kept = &keys[number as usize];
                    shard.insert(kept.key, entry(kept));
                }
            }
            Ok(())
        })?;
        filled.into_iter().collect::<Result<(), OutOfMemory>>()?;
        Ok(all)
    }

    fn shard(&self, key: &Key) -> usize {
        // The other end of the hash than the one that the shards' own maps take first.
        (self.hasher.hash_one(key) >> 32) as usize % SHARDS
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.shards[self.shard(key)].contains_key(key)
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.shards[self.shard(key)].get(key)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let shard = self.shard(key);
        self.shards[shard].get_mut(key)
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
        self.shards[shard].remove(key)
    }
}
