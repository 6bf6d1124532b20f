//! Finds a child by the hash of what tells it from all others: one table for the whole tree.
//!
//! The table never stops to rehash. When it is full a larger one is opened, and each later change
//! moves a few slots of the old one; lookups ask both meanwhile. Tables are made of chunks, taken
//! when first written to and given back one by one, so that neither growing nor dropping an old
//! table is a long step either. Entries carry 32 bits of the hash; the caller compares the keys.

/// Slots of a chunk.
const CHUNK: usize = 512;
/// Slots of the old table that each change moves. More than 2 keeps the old one from outliving the
/// filling of the new one.
const STEP: usize = 8;
/// Slots of the smallest table.
const SMALLEST: usize = 64;

const EMPTY: u64 = 0;
/// A slot that had an entry; probing goes on behind it.
const GONE: u64 = 1;

fn entry(hash: u32, node: u32) -> u64 {
    // Node numbers stay below 2^32 - 2, see the arena, so that no entry is EMPTY or GONE.
    (hash as u64) << 32 | (node as u64 + 2)
}

fn entry_hash(entry: u64) -> u32 {
    (entry >> 32) as u32
}

fn entry_node(entry: u64) -> u32 {
    entry as u32 - 2
}

#[derive(Debug, Default)]
struct Slots {
    chunks: Vec<Option<Box<[u64]>>>,
    mask: usize,
    /// Slots that are not EMPTY.
    taken: usize,
}

impl Slots {
    fn new(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two());
        let chunks = (0..slots.div_ceil(CHUNK)).map(|_| None).collect();
        Self { chunks, mask: slots - 1, taken: 0 }
    }

    fn len(&self) -> usize {
        self.mask + 1
    }

    fn get(&self, at: usize) -> u64 {
        self.chunks[at / CHUNK].as_ref().map_or(EMPTY, |chunk| chunk[at % CHUNK])
    }

    fn slot(&mut self, at: usize) -> &mut u64 {
        let size = CHUNK.min(self.len());
        let chunk = &mut self.chunks[at / CHUNK];
        &mut chunk.get_or_insert_with(|| vec![EMPTY; size].into())[at % CHUNK]
    }

    /// The slot of the first entry that matches. Slots before `from` are known to be left.
    fn find(&self, hash: u32, from: usize, mut matches: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut at = (hash as usize & self.mask).max(from);
        loop {
            let found = self.get(at);
            if found == EMPTY {
                return None;
            }
            if found != GONE && entry_hash(found) == hash && matches(entry_node(found)) {
                return Some(at);
            }
            at = (at + 1) & self.mask;
        }
    }

    fn insert(&mut self, hash: u32, node: u32) {
        let mut at = hash as usize & self.mask;
        while self.get(at) > GONE {
            at = (at + 1) & self.mask;
        }
        let slot = self.slot(at);
        let was_empty = *slot == EMPTY;
        *slot = entry(hash, node);
        self.taken += was_empty as usize;
    }
}

#[derive(Debug)]
pub(crate) struct ChildTable {
    current: Slots,
    /// The table before, and the first of its slots that is not moved yet.
    old: Option<(Slots, usize)>,
    len: usize,
}

impl ChildTable {
    pub(crate) fn new() -> Self {
        Self { current: Slots::new(SMALLEST), old: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Approximate: every chunk of the current table counts, written or not.
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.current.len() + self.old.as_ref().map_or(0, |(old, at)| old.len() - at);
        slots * size_of::<u64>()
    }

    pub(crate) fn find(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some(at) = self.current.find(hash, 0, &mut matches) {
            return Some(entry_node(self.current.get(at)));
        }
        let (old, moved) = self.old.as_ref()?;
        old.find(hash, *moved, matches).map(|at| entry_node(old.get(at)))
    }

    pub(crate) fn insert(&mut self, hash: u32, node: u32) {
        self.step();
        if (self.current.taken + 1) * 4 > self.current.len() * 3 {
            self.reopen();
        }
        self.current.insert(hash, node);
        self.len += 1;
    }

    /// Makes the entry of `from` lead to `to`.
    pub(crate) fn replace(&mut self, hash: u32, from: u32, to: u32) {
        let found = if let Some(at) = self.current.find(hash, 0, |node| node == from) {
            Some((&mut self.current, at))
        } else {
            let old = self.old.as_mut();
            old.and_then(|(old, moved)| {
                old.find(hash, *moved, |node| node == from).map(|at| (old, at))
            })
        };
        let (table, at) = found.expect("the child is in the table");
        *table.slot(at) = entry(hash, to);
    }

    pub(crate) fn remove(&mut self, hash: u32, node: u32) {
        if let Some(at) = self.current.find(hash, 0, |found| found == node) {
            // The end of a probe chain can be EMPTY again, which keeps chains short under churn.
            let next = self.current.get((at + 1) & self.current.mask);
            *self.current.slot(at) = if next == EMPTY { EMPTY } else { GONE };
            self.current.taken -= (next == EMPTY) as usize;
        } else {
            let (old, moved) = self.old.as_mut().expect("the child is in one of the tables");
            let at = old.find(hash, *moved, |found| found == node);
            let at = at.expect("the child is in the table");
            *old.slot(at) = GONE;
        }
        self.len -= 1;
        self.step();
    }

    /// Opens a table that the entries fill to at most three eighths, and not so small that it could
    /// fill up before the old one is moved: it takes at least 3/16 of the old one's slots in
    /// inserts.
    fn reopen(&mut self) {
        debug_assert!(self.old.is_none(), "STEP is too small");
        let slots = ((self.len + 1) * 8 / 3).next_power_of_two();
        let slots = slots.max(self.current.len() / 2).max(SMALLEST);
        self.old = Some((std::mem::replace(&mut self.current, Slots::new(slots)), 0));
    }

    /// Moves a few entries of the old table.
    fn step(&mut self) {
        for _ in 0..STEP {
            let Some((old, moved)) = &mut self.old else {
                return;
            };
            let found = old.get(*moved);
            if found > GONE {
                self.current.insert(entry_hash(found), entry_node(found));
                *old.slot(*moved) = GONE;
            }
            *moved += 1;
            if *moved % CHUNK == 0 {
                old.chunks[*moved / CHUNK - 1] = None;
            }
            if *moved == old.len() {
                self.old = None;
            }
        }
    }
}
