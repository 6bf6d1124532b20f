//! Entries of what was there when the store was opened, in the order of their keys, which is the
//! one that they are read in: so making them is to write them down, where a map looks for a place
//! in memory for each.
use super::entries::Entry;
use crate::memory::{OutOfMemory, TryGrow};
use crate::tier::Key;

/// Entries of a block: its memory goes when they have.
const BLOCK: usize = 1024;
/// A block of which no more than one in so many is there gets smaller.
const SPARSE: usize = 4;

type Row = (Key, Option<Entry>);

struct Block {
    /// No key of it comes before this one.
    first: Key,
    rows: Vec<Row>,
    /// Rows that have their entry.
    live: usize,
}

/// None is added later.
#[derive(Default)]
pub(super) struct Sorted(Vec<Block>);

impl Sorted {
    /// Adds an entry at the end. Keys must be in order before one is looked for.
    pub fn push(&mut self, key: Key, entry: Entry) -> Result<(), OutOfMemory> {
        if self.0.last().is_none_or(|block| block.rows.len() >= BLOCK) {
            let mut rows = Vec::new();
            // A store that has few entries has no memory for more.
            rows.try_reserve_exact(if self.0.is_empty() { 0 } else { BLOCK })?;
            self.0.try_push(Block { first: key, rows, live: 0 })?;
        }
        let block = self.0.last_mut().expect("there is one");
        block.rows.try_push((key, Some(entry)))?;
        block.live += 1;
        Ok(())
    }

    pub fn last_key(&self) -> Option<&Key> {
        self.0.last()?.rows.last().map(|row| &row.0)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|block| block.live).sum()
    }

    pub fn blocks(&self) -> usize {
        self.0.len()
    }

    /// The entries of a block; none of one that isn't there.
    pub fn block_mut(&mut self, block: usize) -> impl Iterator<Item = (&Key, &mut Entry)> {
        let rows = self.0.get_mut(block).into_iter().flat_map(|block| &mut block.rows);
        rows.filter_map(|(key, entry)| Some((&*key, entry.as_mut()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        let rows = self.0.iter().flat_map(|block| &block.rows);
        rows.filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (Key, Entry)> {
        let rows = self.0.into_iter().flat_map(|block| block.rows);
        rows.filter_map(|(key, entry)| Some((key, entry?)))
    }

    /// Adds others, of which all keys come after these.
    pub fn append(&mut self, mut others: Self) -> Result<(), OutOfMemory> {
        self.0.try_reserve(others.0.len())?;
        self.0.append(&mut others.0);
        Ok(())
    }

    /// Block and row of a key.
    fn find(&self, key: &Key) -> Option<(usize, usize)> {
        let block = self.0.partition_point(|block| block.first <= *key).checked_sub(1)?;
        let row = self.0[block].rows.binary_search_by(|row| row.0.cmp(key)).ok()?;
        Some((block, row))
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        let (block, row) = self.find(key)?;
        self.0[block].rows[row].1.as_ref()
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let (block, row) = self.find(key)?;
        self.0[block].rows[row].1.as_mut()
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let (block, row) = self.find(key)?;
        let block = &mut self.0[block];
        let entry = block.rows[row].1.take()?;
        block.live -= 1;
        if block.live * SPARSE <= block.rows.len() {
            block.shrink();
        }
        Some(entry)
    }
}

impl Block {
    /// Only what is there stays; without memory for that all rows do.
    fn shrink(&mut self) {
        let mut rows = Vec::new();
        if rows.try_reserve_exact(self.live).is_ok() {
            rows.extend(self.rows.drain(..).filter(|row| row.1.is_some()));
            self.rows = rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arc;
    use crate::tier::records::Place;
    use crate::tier::space::Extents;
    use std::collections::BTreeMap;

    fn key(number: u64) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// Beside a map: what is looked for is there until it was removed, and memory goes with it.
    #[test]
    fn what_was_found_is_there_until_it_is_removed() {
        let mut random = fastrand::Rng::with_seed(3);
        let all = 3 * BLOCK as u64 + 7;
        // Every second number is one of theirs.
        let entry = |number: u64| {
            let place = Arc::new(Place::new(1, Extents::new()).unwrap()).unwrap();
            (key(2 * number + 1), Entry::found(place, 1, number))
        };
        let [mut sorted, mut rest] = [Sorted::default(), Sorted::default()];
        for (key, entry) in (0..all).map(entry) {
            let part = if entry.used < BLOCK as u64 + 5 { &mut sorted } else { &mut rest };
            part.push(key, entry).unwrap();
        }
        sorted.append(rest).unwrap();
        let mut map: BTreeMap<u64, u64> = (0..all).map(|number| (2 * number + 1, number)).collect();
        while !map.is_empty() {
            for _ in 0..8 {
                let number = random.u64(0..2 * all + 2);
                let used = map.get(&number).copied();
                assert_eq!(sorted.get(&key(number)).map(|entry| entry.used), used);
                assert_eq!(sorted.get_mut(&key(number)).map(|entry| entry.used), used);
            }
            let at = random.u64(0..2 * all);
            let next = map.range(at..).next().or_else(|| map.iter().next());
            let number = *next.expect("there is one").0;
            let removed = sorted.remove(&key(number)).map(|entry| entry.used);
            assert_eq!(removed, map.remove(&number));
            assert!(sorted.remove(&key(number)).is_none());
            assert_eq!(sorted.len(), map.len());
            if map.len().is_multiple_of(512) {
                let there = sorted.iter().map(|(_, entry)| entry.used);
                assert!(there.eq(map.values().copied()));
            }
            let rows: usize = sorted.0.iter().map(|block| block.rows.len()).sum();
            assert!(rows <= SPARSE * map.len() + BLOCK * SPARSE / 2, "{rows} for {}", map.len());
        }
        assert!(sorted.0.iter().all(|block| block.rows.capacity() == 0));
    }
}
