//! M07, K07: the random operations of the model test, on caches that have generations for a few
//! changes of each node only. Nothing that can be seen may differ when a leaf whose ids run out
//! moves to another place, and a place is retired. And on caches whose nodes have a page or two:
//! nor may it when a prefix is several nodes in a row.

#[path = "model/mod.rs"]
mod model;

use model::calls::{MEMORY_FAILS, call, call_many, call_sure, ends_here};
use model::generate::Theme;
use model::harness::{soak, soak_block_hash};
use radixkv::index::Limits;
use std::sync::Mutex;

/// As many as the longest node of these pools has pages, and a few for its changes.
const GENERATIONS: u32 = 48;
const STEPS: u64 = 60_000;

/// The limits are those of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn all_themes(steps: u64) {
    soak(Theme::Cache, steps, &["an eviction trims a node"]);
    soak(Theme::Sequences, steps, &["a publish makes its node longer"]);
    soak(Theme::Pressure, steps, &["an allocation evicts"]);
    soak(Theme::Children, steps, &["a child copies"]);
    for theme in [Theme::Images, Theme::PageTable, Theme::Misuse, Theme::All] {
        soak(theme, steps / 4, &[]);
    }
}

#[test]
fn m07_few_generations_change_nothing_that_can_be_seen() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let usual = Limits::default().generations;
    Limits::choose_generations(GENERATIONS);
    all_themes(STEPS);
    soak_block_hash(Theme::All, STEPS, &[]);
    Limits::choose_generations(usual);
}

/// Nodes of one to three pages: nearly every prefix is a row of nodes.
#[test]
fn k07_short_segments_change_nothing_that_can_be_seen() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let usual = Limits::default().segment_words;
    for words in [1, 4, 6, 10, 15] {
        Limits::choose_segment_words(words);
        for theme in [Theme::Cache, Theme::Sequences, Theme::Pressure, Theme::Children] {
            soak(theme, STEPS / 4, &[]);
        }
        soak(Theme::All, STEPS / 4, &[]);
    }
    Limits::choose_segment_words(usual);
}
