//! Random operations through the C ABI, against an executable specification.
//!
//! The specification (`model/naive.rs` and its neighbours) has no tree: a cache is a flat set of
//! pages keyed by everything that stands before them. After each operation every answer and every
//! count that can be seen are compared, and the library proves its own invariants.
//!
//! `RKV_MODEL_STEPS` and `RKV_MODEL_SEED` make the runs longer and other ones. A failure prints the
//! smallest list of operations that still fails, to be pasted below as a regression test.

#[path = "model/mod.rs"]
mod model;

use model::calls::{MEMORY_FAILS, call, call_many, call_sure, ends_here};
use model::generate::{Generator, Theme};
use model::harness::{run, smallest, soak, soak_block_hash};
use model::naive::Fault;
use model::ops::Op::*;
use model::ops::{Config, Op, Wrong};
use model::prompt::Piece::*;
use model::prompt::prompt;

// J03 J05 K05 K06 K07 K08 K09 K11 K13 K24 B01 B08
#[test]
fn k05_match_insert_lock_and_evict_do_what_the_specification_does() {
    soak(
        Theme::Cache,
        200_000,
        &[
            "a match splits a node",
            "an insert splits a node",
            "an insert finds a part there",
            "an eviction trims a node",
            "an eviction merges nodes",
            "an unlock merges nodes",
            "several pages to copy from",
            "a lock splits a node after the page to copy from",
            "a clear frees pages",
            "a clear leaves pages to who holds them",
            "cleared pages go when they are let go",
            "an insert after what was cleared",
            "an item goes on after one that is refused",
        ],
    );
}

// J03 J05 J08 K11 K14 K15 K16 K17 K18 K25 B02 B05 B07
#[test]
fn k14_sequences_do_what_the_specification_does() {
    soak(
        Theme::Sequences,
        200_000,
        &[
            "a begin copies",
            "a lock splits a node after the page to copy from",
            "a begin computes a cached page again",
            "a publish makes its node longer",
            "a publish remaps all",
            "a publish remaps and claims",
            "a publish locks what others published further on",
            "an allocation evicts",
            "a prompt gets pages for its beginning alone",
            "a prompt gets pages for a further part",
            "a publish of positions without pages",
            "a sequence of before a clear publishes",
            "a sequence is taken for one of before a clear",
            "a sequence is released twice at once",
            "an item goes on after one that is refused",
            "an item takes the last slot",
        ],
    );
}

// K14 M04 B06
#[test]
fn k14_sequences_in_a_small_pool_do_what_the_specification_does() {
    soak(
        Theme::Pressure,
        200_000,
        &["a begin gives reuse up", "refused for want of pages", "an allocation evicts"],
    );
}

// C01 C02 C03 C04 C05 C06 C07 C08 C09 K11 K16 K19
#[test]
fn c08_parents_and_children_do_what_the_specification_does() {
    soak(
        Theme::Children,
        200_000,
        &[
            "a child copies",
            "a child copies from the cache",
            "a child begins without its parent",
            "a child locks what its parent published meanwhile",
            "a fork into several",
            "a page outlives its owner for a copy",
            "a retained sequence gives way",
            "a sequence is too large to be retained",
            "a truncate would take what a child is to copy",
            "refused while pages are retained",
            "a retained sequence is cleared",
            "a sequence of before a clear is not retained",
        ],
    );
}

// K12 K19
#[test]
fn k12_the_page_table_does_what_the_specification_does() {
    soak(Theme::PageTable, 150_000, &["refused for want of pages", "an allocation evicts"]);
}

// K01 K04 K15 K21 B08
#[test]
fn k15_prompts_full_of_images_do_what_the_specification_does() {
    soak(
        Theme::Images,
        150_000,
        &["an image is cached in part", "a begin copies", "several pages to copy from"],
    );
}

// M01 K08 K18
#[test]
fn m01_refused_calls_change_nothing() {
    soak(Theme::Misuse, 150_000, &["a stale lock", "refused for want of pages"]);
}

// K11 K19
#[test]
fn k19_everything_at_once_does_what_the_specification_does() {
    soak(
        Theme::All,
        200_000,
        &["an allocation evicts", "an eviction merges nodes", "a begin gives reuse up"],
    );
}

// H02 H03 H04 H05 K11: match, insert, lock and evict with the block-hash index.
#[test]
fn h03_block_hash_lookups_do_what_the_specification_does() {
    soak_block_hash(
        Theme::Cache,
        200_000,
        &[
            "an insert finds a part there",
            "an image is cached in part",
            "a stale lock",
            "a clear frees pages",
            "cleared pages go when they are let go",
        ],
    );
}

// H02 H03 H04 J03 K11: sequences with the block-hash index.
#[test]
fn h04_block_hash_sequences_do_what_the_specification_does() {
    soak_block_hash(
        Theme::Sequences,
        200_000,
        &[
            "a begin copies",
            "a begin computes a cached page again",
            "a publish remaps all",
            "a publish remaps and claims",
            "a publish locks what others published further on",
            "an allocation evicts",
            "a sequence of before a clear publishes",
            "a sequence is released twice at once",
            "an item takes the last slot",
        ],
    );
}

// H02 H05 M04: the same in a small pool.
#[test]
fn h05_block_hash_in_a_small_pool_does_what_the_specification_does() {
    let marks = ["a begin gives reuse up", "refused for want of pages", "an allocation evicts"];
    soak_block_hash(Theme::Pressure, 200_000, &marks);
}

// H01 H02: prompts full of images with the block-hash index.
#[test]
fn h02_block_hash_of_images_does_what_the_specification_does() {
    soak_block_hash(Theme::Images, 150_000, &["an image is cached in part", "a begin copies"]);
}

// H02 C02 C04 C08: parents and children with the block-hash index.
#[test]
fn h02_block_hash_children_do_what_the_specification_does() {
    soak_block_hash(
        Theme::Children,
        150_000,
        &[
            "a child copies",
            "a child copies from the cache",
            "a child locks what its parent published meanwhile",
            "a page outlives its owner for a copy",
            "a retained sequence gives way",
        ],
    );
}

// H02 H07 M01: everything at once with the block-hash index.
#[test]
fn h07_block_hash_with_everything_at_once_does_what_the_specification_does() {
    soak_block_hash(Theme::All, 200_000, &["an allocation evicts", "a begin gives reuse up"]);
}

/// Bugs are planted in the specification: each must be found, and shrunk to a few operations.
#[test]
fn the_harness_finds_planted_bugs_and_shrinks_them() {
    let planted = [
        (Fault::LongerMatch, Theme::Cache, 4, false),
        (Fault::EvictsNewest, Theme::Cache, 4, false),
        (Fault::EvictsNewest, Theme::Cache, 4, true),
        (Fault::ForgetsPath, Theme::Cache, 4, false),
        (Fault::ForgetsPath, Theme::Cache, 4, true),
        (Fault::LeaksLock, Theme::Sequences, 4, false),
        (Fault::LeaksLock, Theme::Sequences, 4, true),
        (Fault::ShortReserve, Theme::PageTable, 4, false),
        (Fault::ForgetsLoan, Theme::Children, 6, false),
        (Fault::ForgetsLoan, Theme::Children, 6, true),
        (Fault::ForgetsClear, Theme::Sequences, 4, false),
        (Fault::ForgetsClear, Theme::Sequences, 4, true),
        (Fault::EvictsCleared, Theme::Cache, 3, false),
        (Fault::EvictsCleared, Theme::Cache, 3, true),
    ];
    for (fault, theme, most, block_hash) in planted {
        let config = Config {
            page_size: 4,
            page_count: 24,
            slot_count: 4,
            row_page_limit: 0,
            whole_pages: false,
            block_hash,
            retained_sequences: 0,
            retained_pages: 0,
            journal_bytes: 0,
        };
        let mut rng = fastrand::Rng::with_seed(7);
        let (ops, failure) = (0..20)
            .find_map(|_| {
                let ops = Generator::new(rng.fork(), theme, config).ops(300);
                let failure = run(&config, &ops, fault).err()?;
                Some((ops, failure))
            })
            .unwrap_or_else(|| panic!("{fault:?} is not found"));
        let small = smallest(&config, &ops, &failure, fault);
        assert!(run(&config, &small, fault).is_err(), "{fault:?}: the small case does not fail");
        assert!(run(&config, &small, Fault::None).is_ok(), "{fault:?} is not what was found");
        assert!(small.len() <= most, "{fault:?} is shrunk no further than {small:?}");
    }
}

/// Carries out a printed list.
fn replay(config: Config, ops: &[Op]) {
    if let Err(failure) = run(&config, ops, Fault::None) {
        panic!("operation {}: {}", failure.step, failure.message);
    }
}

// What the random runs found once.

const SMALL: Config = Config {
    page_size: 2,
    page_count: 16,
    slot_count: 4,
    row_page_limit: 0,
    whole_pages: false,
    block_hash: false,
    retained_sequences: 0,
    retained_pages: 0,
    journal_bytes: 0,
};

#[test]
fn k16_an_insert_cannot_claim_a_page_of_a_sequence() {
    replay(
        SMALL,
        &[
            Begin { ns: 0, prompt: prompt([Text(0, 1)]), reserve: 0, first: 0 },
            InsertWrong {
                wrong: Wrong::PageOfSequence,
                earlier: 0,
                ns: 0,
                prompt: prompt([Text(2000, 2)]),
            },
        ],
    );
}

#[test]
fn k08_a_caller_cannot_undo_the_lock_of_a_sequence() {
    replay(
        SMALL,
        &[
            Begin { ns: 0, prompt: prompt([Text(0, 2)]), reserve: 0, first: 0 },
            Publish { sequence: 0, back: 0 },
            Lock { node: 1 },
            Unlock { lock: 0 },
            UnlockStale { lock: 3 },
            Evict { count: 1, reported: true },
        ],
    );
}

#[test]
fn k07_an_insert_resumes_from_a_root_and_inside_an_image() {
    replay(
        SMALL,
        &[
            Insert { ns: 0, prompt: prompt([Image(1, 3)]), keep: false },
            InsertResumed { earlier: 0, more: prompt([]), keep: false },
            InsertResumed { earlier: 1, more: prompt([Text(0, 3)]), keep: false },
        ],
    );
}

#[test]
fn k04_a_truncated_sequence_forgets_the_images_it_lost() {
    replay(
        SMALL,
        &[
            Begin { ns: 0, prompt: prompt([Text(0, 1)]), reserve: 0, first: 0 },
            Append { sequence: 0, prompt: prompt([Image(0, 2)]) },
            Truncate { sequence: 0, back: 2 },
        ],
    );
}

#[test]
fn k24_a_merge_does_not_wait_for_a_child_that_went() {
    replay(
        Config { page_size: 1, page_count: 21, whole_pages: true, ..SMALL },
        &[
            Begin { ns: 0, prompt: prompt([Image(1, 1)]), reserve: 0, first: 0 },
            Begin { ns: 0, prompt: prompt([Text(1000, 2)]), reserve: 0, first: 0 },
            Release { sequence: 0 },
            Publish { sequence: 0, back: 0 },
            Begin { ns: 0, prompt: prompt([Text(1000, 1)]), reserve: 0, first: 0 },
            Insert { ns: 0, prompt: prompt([Text(1000, 1), Coord(1)]), keep: false },
            Release { sequence: 0 },
            Append { sequence: 0, prompt: prompt([Text(0, 1)]) },
            Evict { count: 2, reported: true },
            Publish { sequence: 0, back: 0 },
            Lock { node: 13749 },
            Append { sequence: 0, prompt: prompt([Size(1, 0)]) },
            Publish { sequence: 0, back: 0 },
            Release { sequence: 0 },
            Unlock { lock: 0 },
        ],
    );
}
