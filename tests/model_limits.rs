//! M07: the random operations of the model test, on caches that have generations for a few changes
//! of each node only. Nothing that can be seen may differ when a leaf whose ids run out moves to
//! another place, and a place is retired.

mod model {
    pub mod abi;
    pub mod caching;
    pub mod children;
    pub mod compare;
    pub mod driver;
    pub mod generate;
    pub mod harness;
    pub mod inherit;
    pub mod journal;
    pub mod lookups;
    pub mod naive;
    pub mod namespaces;
    pub mod ops;
    pub mod pages;
    pub mod prompt;
    pub mod published;
    pub mod rows;
    pub mod sequences;
    pub mod shrink;
    pub mod tokens;
}

use model::abi::{Library, Status};
use model::generate::Theme;
use model::harness::{soak, soak_block_hash};

/// As many as the longest node of these pools has pages, and a few for its changes.
const GENERATIONS: u32 = 48;
const STEPS: u64 = 60_000;

/// How calls are made here: just so. `tests/out_of_memory.rs` makes the same ones otherwise.
fn call(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// Calls that need no memory.
fn call_sure(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// Whether what follows can't be compared any more.
fn ends_here() -> bool {
    false
}

#[test]
fn m07_few_generations_change_nothing_that_can_be_seen() {
    radixkv::index::Limits::choose_generations(GENERATIONS);
    soak(Theme::Cache, STEPS, &["an eviction trims a node"]);
    soak(Theme::Sequences, STEPS, &["a publish makes its node longer"]);
    soak(Theme::Pressure, STEPS, &["an allocation evicts"]);
    soak(Theme::Children, STEPS, &["a child copies"]);
    for theme in [Theme::Images, Theme::PageTable, Theme::Misuse, Theme::All] {
        soak(theme, STEPS / 4, &[]);
    }
    soak_block_hash(Theme::All, STEPS, &[]);
}
