//! J01, J02: the journal. A consumer that knows records alone knows what the cache holds, after
//! every operation of the random runs, whichever call caused a change.

#[path = "model/mod.rs"]
mod model;

use model::calls::{MEMORY_FAILS, call, call_many, call_sure, ends_here};
use model::generate::Theme;
use model::harness::{Kind, soak_kind};

fn soak(block_hash: bool, theme: Theme, marks: &[&str]) {
    soak_kind(Kind { block_hash, journal: true }, theme, 100_000, marks);
}

#[test]
fn j01_records_of_lookups_and_inserts_say_what_is_held() {
    soak(false, Theme::Cache, &["records are lost", "a match splits a node"]);
}

#[test]
fn j01_records_of_sequences_say_what_is_held() {
    let marks = ["records are lost", "a publish makes its node longer", "an allocation evicts"];
    soak(false, Theme::Sequences, &marks);
}

#[test]
fn j01_records_of_a_small_pool_say_what_is_held() {
    soak(false, Theme::Pressure, &["records are lost", "an allocation evicts"]);
}

#[test]
fn j01_records_of_children_say_what_is_held() {
    soak(false, Theme::Children, &["records are lost", "a fork into several"]);
}

#[test]
fn j01_records_of_images_say_what_is_held() {
    for block_hash in [false, true] {
        soak(block_hash, Theme::Images, &["records are lost", "a part of an image is stored"]);
    }
}

/// Rows of a caller, and calls that are refused, which write nothing.
#[test]
fn j01_records_of_rows_and_of_refused_calls_say_what_is_held() {
    soak(false, Theme::PageTable, &["an allocation evicts"]);
    soak(false, Theme::Misuse, &["a stale lock"]);
}

#[test]
fn j01_records_of_everything_at_once_say_what_is_held() {
    soak(false, Theme::All, &["records are lost", "an allocation evicts"]);
}

#[test]
fn j01_records_of_the_block_hash_index_say_what_is_held() {
    soak(true, Theme::All, &["records are lost", "an allocation evicts"]);
}
