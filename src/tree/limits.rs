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
}

/// Generations in the limits that nobody chose.
static GENERATIONS: AtomicU32 = AtomicU32::new(GENERATION_LIMIT);

impl Limits {
    /// Lets every cache that is made from now on have so few generations: for tests that make
    /// caches through the header.
    #[doc(hidden)]
    pub fn choose_generations(count: u32) {
        GENERATIONS.store(count, Ordering::Relaxed);
    }
}

impl Default for Limits {
    fn default() -> Self {
        let generations = GENERATIONS.load(Ordering::Relaxed);
        Self { generations, locks: HANDLE_LIMIT, first_sequence: 1 }
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
