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
use std::sync::{Mutex, MutexGuard};

/// Tags, from 1 on: an id is never 0.
const TAGS: usize = 255;

/// What of a tag is left.
#[derive(Debug, Clone, Copy)]
struct Tag {
    taken: bool,
    first_generation: u32,
    first_sequence: u64,
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

/// All tags.
#[derive(Debug)]
pub struct Tags {
    tags: [Tag; TAGS],
    /// Where the next search begins: what was used last comes last.
    next: usize,
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
        let tag = Tag { taken: false, first_generation: 1, first_sequence: 1 };
        Self { tags: [tag; TAGS], next: 0, generation_limit, sequence_limit }
    }

    /// Those of this process.
    pub fn of_process() -> MutexGuard<'static, Self> {
        static ALL: Mutex<Tags> = Mutex::new(Tags::new());
        // Nothing that is done with them can panic halfway.
        ALL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ids for a new cache.
    pub fn take(&mut self) -> Result<IdRange, Error> {
        let free = |tag: &Tag| {
            !tag.taken
                && tag.first_generation < self.generation_limit
                && tag.first_sequence < self.sequence_limit
        };
        let mut turns = (self.next..TAGS).chain(0..self.next);
        let Some(at) = turns.find(|&at| free(&self.tags[at])) else {
            return Err(Error::state(
                "no ids are left for another cache: 255 exist, or those before have used them up",
            ));
        };
        self.next = (at + 1) % TAGS;
        let tag = &mut self.tags[at];
        tag.taken = true;
        let Tag { first_generation, first_sequence, .. } = *tag;
        Ok(IdRange { tag: at as u8 + 1, first_generation, first_sequence })
    }

    /// Takes back the tag of a cache that is gone. No generation and no sequence of it had a higher
    /// number than these.
    pub fn put_back(&mut self, tag: u8, last_generation: u32, last_sequence: u64) {
        let tag = &mut self.tags[tag as usize - 1];
        tag.taken = false;
        tag.first_generation = tag.first_generation.max(last_generation.saturating_add(1));
        tag.first_sequence = tag.first_sequence.max(last_sequence.saturating_add(1));
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
        let mut tags = Tags::with_limits(10, 1000);
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
        let mut tags = Tags::new();
        let all: Vec<_> = (0..255).map(|_| tags.take().unwrap().tag).collect();
        assert_eq!(all, (1..=255).collect::<Vec<u8>>());
        assert!(tags.take().is_err());
        tags.put_back(7, 41, 0);
        let again = IdRange { tag: 7, first_generation: 42, first_sequence: 1 };
        assert_eq!(tags.take().unwrap(), again);
    }
}
