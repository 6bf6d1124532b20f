//! Finds a child by its parent and first token: one hash table for the whole tree.
//!
//! Linear hashing: the table grows and shrinks by one bucket at a time, so no call ever stops to
//! rehash. What is in a bucket hangs together through the nodes, so putting a node in, or taking it
//! out, needs no memory; a table that cannot grow for want of it gets slower, and nothing else.
//! Source: Litwin, Linear Hashing, 1980.
use super::NONE;
use super::nodes::Nodes;
use crate::grace::prefetch;
use crate::memory::{OutOfMemory, TryGrow, try_filled};

/// Buckets of a chunk.
const CHUNK: usize = 256;
/// Buckets for each node, when there is memory: most have one node or none.
const SPREAD: usize = 2;

#[derive(Debug)]
pub(super) struct Buckets {
    /// The first node of each bucket.
    chunks: Vec<Box<[u32]>>,
    /// Buckets in use.
    open: usize,
    /// The smallest power of two that is no less, minus 1.
    mask: usize,
    len: usize,
    /// Fewer are not left open.
    least: usize,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), open: 1, mask: 0, len: 0, least: 0 }
    }

    /// Opens what so many nodes want, as long as there are none: later each costs a look at what
    /// lies in another one.
    pub(super) fn expect(&mut self, nodes: usize) -> Result<(), OutOfMemory> {
        let wanted = nodes.saturating_mul(SPREAD);
        if self.len > 0 || wanted <= self.open {
            return Ok(());
        }
        while self.chunks.len() * CHUNK < wanted {
            self.add_chunk()?;
        }
        (self.open, self.mask) = (wanted, wanted.next_power_of_two() - 1);
        self.least = wanted;
        Ok(())
    }

    /// From here on what was expected is not kept open for that.
    pub(super) fn expect_no_more(&mut self) {
        self.least = 0;
    }

    /// Nodes in the table.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<u32>()
            + self.chunks.capacity() * size_of::<Box<[u32]>>()
    }

    /// Makes room for any number of nodes.
    pub(super) fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        if self.chunks.is_empty() { self.add_chunk() } else { Ok(()) }
    }

    fn add_chunk(&mut self) -> Result<(), OutOfMemory> {
        self.chunks.try_reserve(1)?;
        self.chunks.try_push(try_filled(NONE, CHUNK)?.into_boxed_slice())
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        let at = hash as usize & self.mask;
        if at < self.open { at } else { at & self.mask >> 1 }
    }

    #[inline]
    fn first(&self, place: usize) -> u32 {
        self.chunks.get(place / CHUNK).map_or(NONE, |chunk| chunk[place % CHUNK])
    }

    /// Has a bucket fetched, which somebody will look for a node in.
    pub(super) fn fetch(&self, hash: u64) {
        let place = self.place(hash);
        if let Some(chunk) = self.chunks.get(place / CHUNK) {
            prefetch(&chunk[place % CHUNK]);
        }
    }

    /// The same of the first node of a bucket that was fetched.
    pub(super) fn fetch_first<V>(&self, nodes: &Nodes<V>, hash: u64) {
        let first = self.first(self.place(hash));
        if first != NONE {
            prefetch(&nodes[first]);
        }
    }

    fn first_mut(&mut self, place: usize) -> &mut u32 {
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// The first node of a bucket that matches.
    #[inline]
    pub(super) fn find<V>(
        &self,
        nodes: &Nodes<V>,
        hash: u64,
        matches: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.first(self.place(hash));
        while at != NONE && !matches(at) {
            at = nodes[at].next;
        }
        (at != NONE).then_some(at)
    }

    /// Puts a node in, for which room was made.
    pub(super) fn insert<V>(&mut self, nodes: &mut Nodes<V>, hash: u64, at: u32) {
        let place = self.place(hash);
        let first = std::mem::replace(self.first_mut(place), at);
        nodes[at].next = first;
        self.len += 1;
    }

    /// Takes a node out.
    pub(super) fn remove<V>(&mut self, nodes: &mut Nodes<V>, hash: u64, at: u32) {
        let next = nodes[at].next;
        self.lead(nodes, hash, at, next);
        self.len -= 1;
    }

    /// Puts a node in the place of another.
    pub(super) fn replace<V>(&mut self, nodes: &mut Nodes<V>, hash: u64, [old, new]: [u32; 2]) {
        nodes[new].next = nodes[old].next;
        self.lead(nodes, hash, old, new);
    }

    /// Mends the way to a node that got another number.
    pub(super) fn renumbered<V>(&mut self, nodes: &mut Nodes<V>, hash: u64, [old, new]: [u32; 2]) {
        self.lead(nodes, hash, old, new);
    }

    /// Has what leads to a node lead to another.
    fn lead<V>(&mut self, nodes: &mut Nodes<V>, hash: u64, at: u32, to: u32) {
        let place = self.place(hash);
        let mut before = self.first(place);
        if before == at {
            *self.first_mut(place) = to;
            return;
        }
        while nodes[before].next != at {
            before = nodes[before].next;
        }
        nodes[before].next = to;
    }

    /// Opens buckets, or closes some, so that there are as many as the nodes want: a few steps, and
    /// what one more or one less node makes necessary takes one or two.
    pub(super) fn adapt<V>(&mut self, nodes: &mut Nodes<V>, hash: impl Fn(&Nodes<V>, u32) -> u64) {
        for _ in 0..2 * SPREAD {
            if self.open < self.len * SPREAD {
                if !self.open_one(nodes, &hash) {
                    return;
                }
            } else if self.open > self.least.max(2 * self.len * SPREAD + CHUNK) {
                self.close_one(nodes);
            }
        }
    }

    fn open_one<V>(&mut self, nodes: &mut Nodes<V>, hash: &impl Fn(&Nodes<V>, u32) -> u64) -> bool {
        let new = self.open;
        if new == self.chunks.len() * CHUNK && self.add_chunk().is_err() {
            return false;
        }
        let mask = (new + 1).next_power_of_two() - 1;
        let old = new & mask >> 1;
        (self.open, self.mask) = (new + 1, mask);
        let mut at = std::mem::replace(self.first_mut(old), NONE);
        while at != NONE {
            let next = nodes[at].next;
            let place = self.place(hash(nodes, at));
            debug_assert!([old, new].contains(&place));
            nodes[at].next = std::mem::replace(self.first_mut(place), at);
            at = next;
        }
        true
    }

    fn close_one<V>(&mut self, nodes: &mut Nodes<V>) {
        let last = self.open - 1;
        let old = last & self.mask >> 1;
        let moved = std::mem::replace(self.first_mut(last), NONE);
        let mut end = self.first(old);
        if end == NONE {
            *self.first_mut(old) = moved;
        } else {
            while nodes[end].next != NONE {
                end = nodes[end].next;
            }
            nodes[end].next = moved;
        }
        (self.open, self.mask) = (last, last.next_power_of_two() - 1);
        if last.is_multiple_of(CHUNK) {
            self.chunks.pop();
        }
    }
}
