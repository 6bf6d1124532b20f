//! Which ids a cache may give out, so that no id of a cache that is gone ever names anything of
//! another one.
//!
//! An id has eight bits for a tag, which no two caches have at the same time, and a number that
//! tells it from others of the same tag: for a node the generation of its place, for a sequence
//! the number of its begin. A tag is given out again, with the numbers above all those that were
//! used. When too few are left, it is never given out again.
use super::{Limits, NodeIds};
use crate::error::Error;
use crate::ids::{GENERATION_LIMIT, SEQUENCE_LIMIT};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Tags, from 1 on: an id is never 0.
const TAGS: usize = 255;

/// Set in the word of a tag that a cache has. Below it stand the lowest generation and the lowest
/// number of a sequence that were never used, either of which may be one more than an id can carry.
const TAKEN: u64 = 1 << 63;
const SEQUENCE_BITS: u32 = SEQUENCE_LIMIT.ilog2() + 1;
const _: () = assert!(GENERATION_LIMIT.ilog2() + 1 + SEQUENCE_BITS < u64::BITS);

const fn word(first_generation: u32, first_sequence: u64) -> u64 {
    (first_generation as u64) << SEQUENCE_BITS | first_sequence
}

fn parts(word: u64) -> (u32, u64) {
    let word = word & !TAKEN;
    ((word >> SEQUENCE_BITS) as u32, word & ((1 << SEQUENCE_BITS) - 1))
}

/// The ids of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// What all of them carry.
    pub tag: u8,
    /// The lowest generation of a node.
    pub first_generation: u32,
    /// The lowest number of a sequence.
    pub first_sequence: u64,
}

impl From<IdRange> for NodeIds {
    fn from(range: IdRange) -> Self {
        let IdRange { tag, first_generation, .. } = range;
        Self { tag, first_generation, limits: Limits::default() }
    }
}

/// All tags. Without a lock: a child process could wait for one that nobody gives back.
#[derive(Debug)]
pub struct Tags {
    tags: [AtomicU64; TAGS],
    /// Where the next search begins: what was used last comes last.
    next: AtomicUsize,
    /// A tag is given out while its generations and sequences begin below these.
    generation_limit: u32,
    sequence_limit: u64,
}

impl Tags {
    /// Tags that nobody used, of which each can be given out while half of its numbers are left.
    pub const fn new() -> Self {
        Self::with_limits(GENERATION_LIMIT / 2, SEQUENCE_LIMIT / 2)
    }

    /// The same for other limits; for tests.
    #[doc(hidden)]
    pub const fn with_limits(generation_limit: u32, sequence_limit: u64) -> Self {
        let tags = [const { AtomicU64::new(word(1, 1)) }; TAGS];
        Self { tags, next: AtomicUsize::new(0), generation_limit, sequence_limit }
    }

    /// Those of this process.
    pub fn of_process() -> &'static Self {
        static ALL: Tags = Tags::new();
        &ALL
    }

    /// Ids for a new cache.
    pub fn take(&self) -> Result<IdRange, Error> {
        let next = self.next.load(Relaxed);
        for at in (next..TAGS).chain(0..next) {
            let seen = self.tags[at].load(Relaxed);
            let (first_generation, first_sequence) = parts(seen);
            let is_free = seen & TAKEN == 0
                && first_generation < self.generation_limit
                && first_sequence < self.sequence_limit;
            let take = || self.tags[at].compare_exchange(seen, seen | TAKEN, Relaxed, Relaxed);
            if is_free && take().is_ok() {
                self.next.store((at + 1) % TAGS, Relaxed);
                return Ok(IdRange { tag: at as u8 + 1, first_generation, first_sequence });
            }
        }
        Err(Error::state(
            "no ids are left for another cache: 255 exist, or those before have used them up",
        ))
    }

    /// Takes back the tag of a cache that is gone. No generation and no sequence of it had a higher
    /// number than these.
    pub fn put_back(&self, tag: u8, last_generation: u32, last_sequence: u64) {
        let tag = &self.tags[tag as usize - 1];
        // Nobody else changes the word of a tag that is taken.
        let (first_generation, first_sequence) = parts(tag.load(Relaxed));
        let generation = first_generation.max(last_generation.saturating_add(1));
        tag.store(word(generation, first_sequence.max(last_sequence.saturating_add(1))), Relaxed);
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{IdRange, Tags};
    use std::collections::BTreeSet;

    #[test]
    fn no_two_caches_have_the_same_ids() {
        let tags = Tags::with_limits(10, 1000);
        let mut seen = BTreeSet::new();
        let mut refused = 0;
        for round in 0..2000 {
            let Ok(IdRange { tag, first_generation, first_sequence }) = tags.take() else {
                refused += 1;
                continue;
            };
            let last = first_generation + round % 4;
            for generation in first_generation..=last {
                assert!(seen.insert((tag, generation)), "a node's id came back");
            }
            tags.put_back(tag, last, first_sequence);
        }
        assert!(refused > 0, "tags are used up at some time");
        assert!(tags.take().is_err());
    }

    #[test]
    fn there_are_255_at_a_time() {
        let tags = Tags::new();
        let all: Vec<_> = (0..255).map(|_| tags.take().unwrap().tag).collect();
        assert_eq!(all, (1..=255).collect::<Vec<u8>>());
        assert!(tags.take().is_err());
        tags.put_back(7, 41, 0);
        let again = IdRange { tag: 7, first_generation: 42, first_sequence: 1 };
        assert_eq!(tags.take().unwrap(), again);
    }
}
