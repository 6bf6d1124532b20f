//! Finds a child by the hash of what tells it from all others: one table for the whole tree.
//!
//! The table never stops to rehash. When it is full a larger one is opened, and each later change
//! moves a few slots of the old one; lookups ask both meanwhile. Tables are made of chunks, taken
//! when first written to and given back one by one, so that neither growing nor dropping an old
//! table is a long step either. Entries carry 28 bits of the hash; the caller compares the keys.
//!
//! Readers without a lock search the same slots, through a [`TableView`]. A slot is one atomic, and
//! an entry stays in its slot until it is removed, or moved to a larger table: whoever searches
//! finds what is there all the time, unless entries were moved meanwhile, which a version tells.
//!
//! A larger table is wanted somewhat before it is needed, so that callers can make it, and touch
//! it, where nobody waits: a [`SpareTable`], of which each makes a part. What nobody makes is made
//! when it is needed, chunk by chunk.
//!
//! Whatever needs memory is in `places`, which finds the slots of entries that are about to come:
//! a larger table, chunks, and those moves without which a table could fill up before the one
//! before it is empty. To `put` entries there, to replace or to remove some needs none. What a
//! removal moves besides can be left for later.
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

use super::version::{Changed, Version};
use crate::grace::{Garbage, Link, Reader, prefetch};
use crate::memory::{Arc, OutOfMemory};
use crate::sync::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed},
    limit,
};
pub(super) use slots::NODE_LIMIT;
pub(crate) use slots::Place;
pub use slots::SpareTable;
use slots::{
    CHUNK, Chunk, EMPTY, GONE, Slots, entry, entry_hash, entry_length, entry_node, find, kept,
};
use std::num::NonZero;

/// Slots of the old table that each change moves. More than 2 keeps the old one from outliving the
/// filling of the new one.
const STEP: usize = limit(8, 3);
/// Slots of the smallest table.
const SMALLEST: usize = 2 * CHUNK;

/// Whether there is one.
#[derive(Debug, Default)]
enum Spare {
    #[default]
    Unasked,
    /// Somebody makes a part of it.
    Asked,
    There(SpareTable),
}

/// The first entry of a hash: a node, and the length of its segment if that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    pub(crate) node: u32,
    pub(crate) length: Option<NonZero<usize>>,
}

impl Hint {
    fn of(entry: u64) -> Self {
        Self { node: entry_node(entry), length: NonZero::new(entry_length(entry)) }
    }
}

/// The table for readers.
#[derive(Debug, Default)]
pub(crate) struct TableView {
    /// Changes when entries are moved.
    pub(crate) moves: Version,
    current: Link<Link<Chunk>>,
    old: Link<Link<Chunk>>,
    /// The first slot of the old table that is not moved yet.
    moved: AtomicUsize,
}

impl TableView {
    /// Slots of the table that entries are put into.
    pub(crate) fn slots(&self, reader: &Reader) -> usize {
        self.current.read(reader).len() * CHUNK
    }

    /// Has the first slot of a hash fetched.
    pub(crate) fn fetch(&self, hash: u32, reader: &Reader) {
        let chunks = self.current.read(reader);
        let at = kept(hash) as usize & (chunks.len() * CHUNK).wrapping_sub(1);
        let chunk = chunks.get(at / CHUNK).and_then(|link| link.read(reader).first());
        if let Some(chunk) = chunk {
            prefetch(&chunk[at % CHUNK]);
        }
    }

    /// The first entry of a hash, as far as it is to be had without much ado.
    pub(crate) fn hint(&self, hash: u32, reader: &Reader) -> Option<Hint> {
        self.find_entry(hash, reader, |_| Ok(true)).ok().flatten().map(Hint::of)
    }

    /// The first entry that matches. None means something only if no entries were moved meanwhile.
    pub(crate) fn find(
        &self,
        hash: u32,
        reader: &Reader,
        matches: impl FnMut(u32) -> Result<bool, Changed>,
    ) -> Result<Option<u32>, Changed> {
        Ok(self.find_entry(hash, reader, matches)?.map(entry_node))
    }

    #[inline(always)]
    fn find_entry(
        &self,
        hash: u32,
        reader: &Reader,
        mut matches: impl FnMut(u32) -> Result<bool, Changed>,
    ) -> Result<Option<u64>, Changed> {
        for (table, from) in [(&self.current, 0), (&self.old, self.moved.load(Relaxed))] {
            let chunks = table.read(reader);
            if chunks.is_empty() {
                continue;
            }
            let (slots, chunk) = (chunks.len() * CHUNK, |at: usize| {
                chunks.get(at).and_then(|link| link.read(reader).first())
            });
            if let Some((_, found)) = find(slots, (chunk, Acquire), hash, from, &mut matches)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

#[derive(Debug)]
pub(crate) struct ChildTable {
    current: Slots,
    /// The table before, and the first of its slots that is not moved yet.
    old: Option<(Slots, usize)>,
    /// The table after.
    spare: Spare,
    len: usize,
    view: Arc<TableView>,
    garbage: Garbage,
}

impl ChildTable {
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let (mut current, view) = (Slots::new(SMALLEST)?, Arc::new(TableView::default())?);
        let mut garbage = Garbage::default();
        view.current.set(Some(&mut current.links), &mut garbage);
        Ok(Self { current, old: None, spare: Spare::Unasked, len: 0, view, garbage })
    }

    /// The table for readers.
    pub(crate) fn view(&self) -> &Arc<TableView> {
        &self.view
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory: of chunks, those that were written to.
    pub(crate) fn bytes(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |(old, _)| old.bytes());
        let spare = if let Spare::There(spare) = &self.spare { spare.bytes() } else { 0 };
        self.current.bytes() + old + spare + size_of::<TableView>() + self.garbage.bytes()
    }

    pub(crate) fn find(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.current.find(hash, 0, &mut matches).or_else(|| {
            let (old, moved) = self.old.as_ref()?;
            old.find(hash, *moved, matches)
        });
        found.map(|(_, entry)| entry_node(entry))
    }

    /// Slots of the table that entries are put into.
    pub(crate) fn slots(&self) -> usize {
        self.current.len()
    }

    /// Has the first slot of a hash fetched.
    pub(crate) fn fetch(&self, hash: u32) {
        let at = kept(hash) as usize & self.current.mask;
        if let Some(chunk) = &self.current.chunks[at / CHUNK] {
            prefetch(&chunk[at % CHUNK]);
        }
    }

    /// The first entry of a hash.
    #[inline(always)]
    pub(crate) fn hint(&self, hash: u32) -> Option<Hint> {
        // Most often it is in the first slot, or soon behind it.
        let home = kept(hash) as usize & self.current.mask;
        if let Some(chunk) = &self.current.chunks[home / CHUNK] {
            for slot in &chunk[home % CHUNK..] {
                let found = slot.load(Relaxed);
                if entry_hash(found) == kept(hash) {
                    return Some(Hint::of(found));
                }
                if found == EMPTY {
                    break;
                }
            }
        }
        self.hint_elsewhere(hash)
    }

    /// The same where the rest of its first chunk has none.
    #[inline(never)]
    fn hint_elsewhere(&self, hash: u32) -> Option<Hint> {
        let found = self.current.find(hash, 0, |_| true).or_else(|| {
            let (old, moved) = self.old.as_ref()?;
            old.find(hash, *moved, |_| true)
        });
        found.map(|(_, entry)| Hint::of(entry))
    }

    /// Slots for entries of these hashes, which are about to be put there.
    #[inline(always)]
    pub(crate) fn places<const N: usize>(
        &mut self,
        hashes: [u32; N],
    ) -> Result<[Place; N], OutOfMemory> {
        for _ in 0..N {
            self.step()?;
        }
        if (self.current.taken + N) * 5 > self.current.len() * 4 {
            self.reopen()?;
        }
        let mut places = [Place::default(); N];
        for (count, hash) in hashes.into_iter().enumerate() {
            places[count] = self.current.place(hash, &places[..count], &mut self.garbage)?;
        }
        Ok(places)
    }

    /// Puts an entry in its place, for a node whose segment is so long.
    pub(crate) fn put(&mut self, place: Place, node: u32, length: usize) {
        self.current.put(place, node, length);
        self.len += 1;
    }

    /// Makes the entry of `from` lead to `to`, whose segment is so long.
    pub(crate) fn replace(&mut self, hash: u32, from: u32, to: u32, length: usize) {
        let found = if let Some((at, _)) = self.current.find(hash, 0, |node| node == from) {
            Some((&mut self.current, at))
        } else {
            let old = self.old.as_mut();
            old.and_then(|(old, moved)| {
                old.find(hash, *moved, |node| node == from).map(|(at, _)| (old, at))
            })
        };
        let (table, at) = found.expect("the child is in the table");
        table.set(at, entry(hash, to, length));
    }

    pub(crate) fn remove(&mut self, hash: u32, node: u32) {
        if let Some((at, _)) = self.current.find(hash, 0, |found| found == node) {
            self.current.remove(at);
        } else {
            let (old, moved) = self.old.as_mut().expect("the child is in one of the tables");
            let found = old.find(hash, *moved, |found| found == node);
            old.set(found.expect("the child is in the table").0, GONE);
        }
        self.len -= 1;
        // Without memory the next one moves more.
        let _ = self.step();
    }

    /// A larger table that is needed soon and is not all there: whoever takes it makes a part. It
    /// has a part for each 1024 slots of this one, and few callers put more than 16 entries.
    #[inline]
    pub(crate) fn wanted_spare(&mut self) -> Option<SpareTable> {
        let slots = self.current.len();
        let is_near = (self.current.taken + 32 + slots / 64) * 5 >= slots * 4;
        if is_near { self.take_spare() } else { None }
    }

    fn take_spare(&mut self) -> Option<SpareTable> {
        match std::mem::replace(&mut self.spare, Spare::Asked) {
            Spare::Unasked => Some(SpareTable::of(self.next_slots())),
            Spare::There(spare) if !spare.is_done() => Some(spare),
            other => {
                self.spare = other;
                None
            }
        }
    }

    /// Takes back a larger table that was wanted, unless it is not wanted any more.
    pub(crate) fn keep_spare(&mut self, spare: SpareTable) -> Result<(), SpareTable> {
        if !matches!(self.spare, Spare::Asked) {
            return Err(spare);
        }
        self.spare = Spare::There(spare);
        Ok(())
    }

    /// Slots of a table that the entries fill to at most two fifths, so twice as many as a full one
    /// has, and not so few that it could fill up before the old one is moved: it takes at least a
    /// fifth of the old one's slots in inserts.
    fn next_slots(&self) -> usize {
        let slots = (self.len * 5 / 2).next_power_of_two();
        slots.max(self.current.len() / 2).max(SMALLEST)
    }

    /// Opens the next table.
    fn reopen(&mut self) -> Result<(), OutOfMemory> {
        debug_assert!(self.old.is_none(), "STEP is too small");
        while self.old.is_some() {
            self.step()?;
        }
        let slots = self.next_slots();
        // Entries that came since may need more.
        let spare = match std::mem::take(&mut self.spare) {
            Spare::There(spare) => spare.with_slots(slots),
            Spare::Unasked | Spare::Asked => None,
        };
        let next = spare.map_or_else(|| Slots::new(slots), Ok)?;
        let mut old = std::mem::replace(&mut self.current, next);
        self.view.moves.begin();
        self.view.moved.store(0, Relaxed);
        self.view.old.set(Some(&mut old.links), &mut self.garbage);
        self.view.current.set(Some(&mut self.current.links), &mut self.garbage);
        self.view.moves.end();
        self.old = Some((old, 0));
        Ok(())
    }

    /// Moves a few entries of the old table.
    #[inline]
    fn step(&mut self) -> Result<(), OutOfMemory> {
        if self.old.is_none() {
            return Ok(());
        }
        self.view.moves.begin();
        let moved = self.move_some();
        self.view.moves.end();
        moved
    }

    fn move_some(&mut self) -> Result<(), OutOfMemory> {
        let mut left = STEP;
        while left > 0
            && let Some((old, moved)) = &mut self.old
        {
            let chunk = *moved / CHUNK;
            let end = (*moved + left).min((chunk + 1) * CHUNK);
            left -= end - *moved;
            let places = *moved % CHUNK..=(end - 1) % CHUNK;
            // What was never made has no entries.
            for slot in old.chunks[chunk].as_deref().map_or(&[][..], |slots| &slots[places]) {
                let found = slot.load(Relaxed);
                if found > GONE {
                    let place = self.current.place(entry_hash(found), &[], &mut self.garbage)?;
                    self.current.put_entry(place, found);
                    // Whoever misses it learns from the version that entries were moved.
                    slot.store(GONE, Relaxed);
                }
            }
            *moved = end;
            self.view.moved.store(end, Relaxed);
            if end.is_multiple_of(CHUNK) {
                old.drop_chunk(chunk, &mut self.garbage);
            }
            if end == old.len() {
                self.old = None;
                self.view.old.set(None, &mut self.garbage);
            }
        }
        Ok(())
    }
}
