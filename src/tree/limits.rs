//! The ids that a tree may give out, and where its counters end.
use crate::ids::{GENERATION_LIMIT, HANDLE_LIMIT};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where counters end: far from where use takes them, except in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Generations that the ids of an index may have.
    pub generations: u32,
    /// Locks of callers at one time.
    pub locks: u32,
    /// The least number of a slot's first sequence.
    pub first_sequence: u64,
    /// Keys and pages of one node together, if it has more than one page.
    pub segment_words: u32,
    /// Scopes of which the latest clear is remembered.
    pub clears: u32,
}

/// Scopes of clears: 100 KiB at most.
const CLEARS: u32 = 1024;

/// Pages of a segment, whatever its limit in words: twice as many as 64 KiB have.
pub(crate) const SEGMENT_PAGES: u32 = 1 << 14;

/// Not quite 32 KiB: to copy the segment of a node, or to touch its memory for the first time,
/// takes some microseconds then, whatever is cached, and a reserve has room for it.
const SEGMENT_WORDS: u32 = (1 << 13) - 64;

/// Generations in the limits that nobody chose.
static GENERATIONS: AtomicU32 = AtomicU32::new(GENERATION_LIMIT);
/// Words of a segment in them.
static WORDS: AtomicU32 = AtomicU32::new(SEGMENT_WORDS);
/// Clears that are remembered in them.
static REMEMBERED: AtomicU32 = AtomicU32::new(CLEARS);

impl Limits {
    /// Lets every cache that is made from now on have so few generations: for tests that make
    /// caches through the header.
    #[doc(hidden)]
    pub fn choose_generations(count: u32) {
        GENERATIONS.store(count, Ordering::Relaxed);
    }

    /// The same for so few words of a segment.
    #[doc(hidden)]
    pub fn choose_segment_words(count: u32) {
        WORDS.store(count, Ordering::Relaxed);
    }

    /// The same for so few clears.
    #[doc(hidden)]
    pub fn choose_clears(count: u32) {
        REMEMBERED.store(count, Ordering::Relaxed);
    }

    /// Pages of a segment at most.
    pub(super) fn segment_pages(&self, page_size: usize) -> u32 {
        let page_words = page_size.saturating_add(1).min(u32::MAX as usize) as u32;
        (self.segment_words / page_words).clamp(1, SEGMENT_PAGES)
    }
}

impl Default for Limits {
    fn default() -> Self {
        let generations = GENERATIONS.load(Ordering::Relaxed);
        let segment_words = WORDS.load(Ordering::Relaxed);
        let clears = REMEMBERED.load(Ordering::Relaxed);
        Self { generations, locks: HANDLE_LIMIT, first_sequence: 1, segment_words, clears }
    }
}

/// The ids that an index may give to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeIds {
    /// What all of them carry.
    pub tag: u8,
    /// Earlier indexes with this tag gave out lower ones.
    pub first_generation: u32,
    /// Where counters end.
    pub limits: Limits,
}

impl From<u8> for NodeIds {
    /// All those of a tag that was never used.
    fn from(tag: u8) -> Self {
        Self { tag, first_generation: 1, limits: Limits::default() }
    }
}
