//! Random operations through the C ABI, against an executable specification.
//!
//! The specification (`model/naive.rs` and its neighbours) has no tree: a cache is a flat set of
//! pages keyed by everything that stands before them. After each operation every answer and every
//! count that can be seen are compared, and the library proves its own invariants.
//!
//! `RKV_MODEL_STEPS` and `RKV_MODEL_SEED` make the runs longer and other ones. A failure prints the
//! smallest list of operations that still fails, to be pasted below as a regression test.

mod model {
    pub mod abi;
    pub mod caching;
    pub mod compare;
    pub mod driver;
    pub mod generate;
    pub mod harness;
    pub mod lookups;
    pub mod naive;
    pub mod ops;
    pub mod pages;
    pub mod prompt;
    pub mod published;
    pub mod rows;
    pub mod sequences;
    pub mod shrink;
    pub mod tokens;
}

use model::generate::{Generator, Theme};
use model::harness::{run, smallest, soak};
use model::naive::Fault;
use model::ops::{Config, Op};

// K05 K06 K07 K08 K09 K13 K24 B01 B08
#[test]
fn k05_match_insert_lock_and_evict_do_what_the_specification_does() {
    soak(Theme::Cache, 200_000);
}

// K14 K15 K16 K17 K18 K25 B02 B05 B07
#[test]
fn k14_sequences_do_what_the_specification_does() {
    soak(Theme::Sequences, 200_000);
}

// K14 M04 B06
#[test]
fn k14_sequences_in_a_small_pool_do_what_the_specification_does() {
    soak(Theme::Pressure, 200_000);
}

// K12 K19
#[test]
fn k12_the_page_table_does_what_the_specification_does() {
    soak(Theme::PageTable, 150_000);
}

// K01 K04 K15 K21 B08
#[test]
fn k15_prompts_full_of_images_do_what_the_specification_does() {
    soak(Theme::Images, 150_000);
}

// M01 K08 K18
#[test]
fn m01_refused_calls_change_nothing() {
    soak(Theme::Misuse, 150_000);
}

// K11 K19
#[test]
fn k19_everything_at_once_does_what_the_specification_does() {
    soak(Theme::All, 200_000);
}

/// Bugs are planted in the specification: each must be found, and shrunk to a few operations.
#[test]
fn the_harness_finds_planted_bugs_and_shrinks_them() {
    let planted = [
        (Fault::LongerMatch, Theme::Cache),
        (Fault::EvictsNewest, Theme::Cache),
        (Fault::ForgetsPath, Theme::Cache),
        (Fault::LeaksLock, Theme::Sequences),
        (Fault::ShortReserve, Theme::PageTable),
    ];
    let config = Config {
        page_size: 4,
        page_count: 24,
        slot_count: 4,
        row_page_limit: 0,
        whole_pages: false,
    };
    for (fault, theme) in planted {
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
        assert!(small.len() <= 4, "{fault:?} is shrunk no further than {small:?}");
    }
}

/// Carries out a printed list.
#[allow(dead_code)] // Used whenever there is a regression to keep.
fn replay(config: Config, ops: &[Op]) {
    if let Err(failure) = run(&config, ops, Fault::None) {
        panic!("operation {}: {}", failure.step, failure.message);
    }
}
