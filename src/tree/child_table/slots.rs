//! One table: slots with entries, in chunks, and where an entry comes in it.
use crate::grace::{Array, Garbage, Link, One};
use crate::memory::{OutOfMemory, try_collect};
use crate::sync::{
    AtomicU64,
    Ordering::{self, Relaxed, Release},
    limit,
};

/// Slots of a chunk.
pub(super) const CHUNK: usize = limit(512, 2);

pub(super) const EMPTY: u64 = 0;
/// A slot that had an entry; probing goes on behind it.
pub(super) const GONE: u64 = 1;

/// Bits of an entry that have the node, and the length of its segment. The hash has the others.
const NODE_BITS: u32 = 28;
const LENGTH_BITS: u32 = 8;
const HASH_AT: u32 = NODE_BITS + LENGTH_BITS;
/// Nodes have smaller numbers.
pub(in crate::tree) const NODE_LIMIT: u32 = (1 << NODE_BITS) - 2;

/// What a slot leads to. `length` tells how many pages its segment has, as a hint: whoever looks
/// ahead reads there what may come next, and nothing depends on it. 0: not known.
pub(super) fn entry(hash: u32, node: u32, length: usize) -> u64 {
    debug_assert!(node < NODE_LIMIT);
    let length = if length < 1 << LENGTH_BITS { length as u64 } else { 0 };
    (kept(hash) as u64) << HASH_AT | length << NODE_BITS | (node as u64 + 2)
}

/// As much of a hash as an entry has of it: never 0, which EMPTY and GONE have there.
pub(super) fn kept(hash: u32) -> u32 {
    (hash & (u32::MAX >> (HASH_AT - 32))).max(1)
}

pub(super) fn entry_hash(entry: u64) -> u32 {
    (entry >> HASH_AT) as u32
}

pub(super) fn entry_node(entry: u64) -> u32 {
    entry as u32 % (1 << NODE_BITS) - 2
}

pub(super) fn entry_length(entry: u64) -> usize {
    (entry >> NODE_BITS) as usize % (1 << LENGTH_BITS)
}

/// The index of the first entry that matches, among `len` slots, of which `chunk` gives a chunk:
/// without one, all of its slots are EMPTY. Slots before `from` are known to be left.
#[inline]
pub(super) fn find<'a, E>(
    len: usize,
    (chunk, order): (impl Fn(usize) -> Option<&'a Chunk>, Ordering),
    hash: u32,
    from: usize,
    mut matches: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<(usize, u64)>, E> {
    let (mask, hash) = (len - 1, kept(hash));
    let home = hash as usize & mask;
    let mut at = home.max(from);
    // There is always an EMPTY slot, but a reader may be overtaken by changes again and again.
    for _ in 0..len / CHUNK + 1 {
        let Some(slots) = chunk(at / CHUNK) else { break };
        for slot in &slots[at % CHUNK..] {
            let found = slot.load(order);
            if entry_hash(found) == hash {
                if matches(entry_node(found))? {
                    return Ok(Some((at, found)));
                }
            } else if found == EMPTY {
                return Ok(None);
            }
            at += 1;
        }
        at &= mask;
        if at == 0 {
            // Around the end: slots before `from` are left, also those whose chunk is gone.
            if home <= from {
                break;
            }
            at = from;
        }
    }
    Ok(None)
}

pub(super) type Chunk = [AtomicU64; CHUNK];

#[derive(Debug)]
pub(super) struct Slots {
    pub(super) chunks: Vec<Option<One<Chunk>>>,
    /// The way to them for readers.
    pub(super) links: Array<Link<Chunk>>,
    pub(super) mask: usize,
    /// Slots that are not EMPTY.
    pub(super) taken: usize,
    /// Chunks that there are.
    made: usize,
}

/// The way to the chunks of so many slots, of which there are none yet.
fn links(slots: usize) -> Result<Array<Link<Chunk>>, OutOfMemory> {
    Array::shown((0..slots / CHUNK).map(|_| Link::default()))
}

impl Slots {
    pub(super) fn new(slots: usize) -> Result<Self, OutOfMemory> {
        Self::with_links(slots, links(slots)?)
    }

    fn with_links(slots: usize, links: Array<Link<Chunk>>) -> Result<Self, OutOfMemory> {
        debug_assert!(slots.is_power_of_two() && slots >= CHUNK);
        let chunks = try_collect((0..slots / CHUNK).map(|_| None))?;
        Ok(Self { chunks, links, mask: slots - 1, taken: 0, made: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.mask + 1
    }

    pub(super) fn bytes(&self) -> usize {
        self.made * One::<Chunk>::BYTES
            + self.chunks.capacity() * size_of::<Option<One<Chunk>>>()
            + self.links.bytes()
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        self.chunks[at / CHUNK].as_ref().map_or(EMPTY, |chunk| chunk[at % CHUNK].load(Relaxed))
    }

    /// Makes the chunk of a slot, if need be.
    #[inline]
    pub(super) fn make(&mut self, at: usize, garbage: &mut Garbage) -> Result<(), OutOfMemory> {
        if self.chunks[at / CHUNK].is_none() {
            let mut chunk = One::new(std::array::from_fn(|_| AtomicU64::new(EMPTY)))?;
            self.links[at / CHUNK].set(Some(chunk.array()), garbage);
            self.chunks[at / CHUNK] = Some(chunk);
            self.made += 1;
        }
        Ok(())
    }

    /// Shows an entry and what it leads to, or takes one away, in a slot whose chunk was made.
    pub(super) fn set(&mut self, at: usize, entry: u64) {
        let chunk = self.chunks[at / CHUNK].as_ref().expect("the chunk of the slot was made");
        chunk[at % CHUNK].store(entry, Release);
    }

    /// The first entry that matches, and its slot. Slots before `from` are known to be left.
    pub(super) fn find(
        &self,
        hash: u32,
        from: usize,
        mut matches: impl FnMut(u32) -> bool,
    ) -> Option<(usize, u64)> {
        let matches = |node| Ok::<_, ()>(matches(node));
        let chunk = |at: usize| self.chunks[at].as_deref();
        let found = find(self.len(), (chunk, Relaxed), hash, from, matches);
        found.ok().flatten()
    }

    /// A slot for an entry, other than those of `others`.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        hash: u32,
        others: &[Place],
        garbage: &mut Garbage,
    ) -> Result<Place, OutOfMemory> {
        let mut at = self.first_free(kept(hash) as usize & self.mask);
        while others.iter().any(|other| other.at == at) {
            at = self.first_free((at + 1) & self.mask);
        }
        self.make(at, garbage)?;
        Ok(Place { at, hash })
    }

    /// The first slot from one on that has no entry.
    #[inline]
    fn first_free(&self, mut at: usize) -> usize {
        while let Some(slots) = &self.chunks[at / CHUNK] {
            let is_free = |slot: &AtomicU64| slot.load(Relaxed) <= GONE;
            if let Some(count) = slots[at % CHUNK..].iter().position(is_free) {
                return at + count;
            }
            at = ((at / CHUNK + 1) * CHUNK) & self.mask;
        }
        at
    }

    pub(super) fn put(&mut self, place: Place, node: u32, length: usize) {
        self.put_entry(place, entry(place.hash, node, length));
    }

    /// The same with an entry as it is.
    pub(super) fn put_entry(&mut self, Place { at, .. }: Place, entry: u64) {
        self.taken += (self.get(at) == EMPTY) as usize;
        self.set(at, entry);
    }

    /// Takes an entry away. What ends a probe chain is EMPTY again, which keeps chains short under
    /// churn.
    pub(super) fn remove(&mut self, at: usize) {
        if self.get((at + 1) & self.mask) != EMPTY {
            return self.set(at, GONE);
        }
        let mut last = at;
        loop {
            self.set(last, EMPTY);
            self.taken -= 1;
            last = last.wrapping_sub(1) & self.mask;
            if self.get(last) != GONE {
                break;
            }
        }
    }

    pub(super) fn drop_chunk(&mut self, chunk: usize, garbage: &mut Garbage) {
        self.made -= self.chunks[chunk].take().is_some() as usize;
        self.links[chunk].set(None, garbage);
    }
}

/// Where an entry is about to come. Good until the table changes otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    at: usize,
    hash: u32,
}

/// Chunks of a spare table that are made at once: 16 KiB, in a few microseconds.
const PART: usize = limit(4, 1);

/// A larger table, which is made part by part before it is needed.
#[derive(Debug)]
pub struct SpareTable {
    /// Slots that it is to have.
    slots: usize,
    /// The first part.
    links: Option<Array<Link<Chunk>>>,
    /// With the second one, and the chunks that were made.
    table: Option<Slots>,
    /// All of it is there, or there was no memory for more.
    is_done: bool,
}

impl SpareTable {
    /// One that is to have so many slots.
    pub(super) fn of(slots: usize) -> Self {
        Self { slots, links: None, table: None, is_done: false }
    }

    /// Makes a part of it.
    pub(crate) fn make_some(&mut self) {
        self.is_done = self.make_part().unwrap_or(true);
    }

    /// Whether that was the last one.
    fn make_part(&mut self) -> Result<bool, OutOfMemory> {
        // A list of many chunks is as long as a few of them.
        let Some(table) = &mut self.table else {
            match self.links.take() {
                None => self.links = Some(links(self.slots)?),
                Some(links) => self.table = Some(Slots::with_links(self.slots, links)?),
            }
            return Ok(false);
        };
        let (count, mut garbage) = (table.chunks.len(), Garbage::default());
        for chunk in table.made..count.min(table.made + PART) {
            table.make(chunk * CHUNK, &mut garbage)?;
        }
        Ok(table.made == count)
    }

    /// Whether there is nothing more to be made.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn bytes(&self) -> usize {
        let links = self.links.as_ref().map_or(0, Array::bytes);
        links + self.table.as_ref().map_or(0, Slots::bytes)
    }

    /// What there is of it, if it is to have so many slots or more. What is missing is made when it
    /// is written to, as in any table.
    pub(super) fn with_slots(self, slots: usize) -> Option<Slots> {
        self.table.filter(|_| self.slots >= slots)
    }
}
