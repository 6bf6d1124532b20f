//! J03, M05: batches of which one item lacks memory. Each of their requests for memory fails once,
//! whichever item makes it. All else is as in the model test: the specification leaves that item
//! out.
use crate::model::harness::run;
use crate::model::naive::Fault;
use crate::model::ops::{Config, Items, Op, items};
use crate::model::prompt::{Piece, Prompt, prompt};
use crate::{BATCH_FAILURE, BatchFailure};
use std::collections::BTreeSet;

const ITEMS: u16 = 4;
/// Times that each request fails.
const ROUNDS: usize = 4;

const CONFIG: Config = Config {
    page_size: 4,
    page_count: 300,
    slot_count: 2 * ITEMS as usize,
    row_page_limit: 0,
    whole_pages: false,
    block_hash: false,
    retained_sequences: 0,
    retained_pages: 0,
    journal_bytes: 1 << 16,
};

/// All begin alike; then each goes on in its own way.
fn tokens(own: u16, length: u32) -> Prompt {
    let own = u32::from(own);
    prompt([Piece::Text(0, 8), Piece::Image(own as u8, 4), Piece::Text(1000 * own, length)])
}

fn begin(own: u16, length: u32) -> Op {
    Op::Begin { ns: 0, prompt: tokens(own, length), reserve: 9, first: 0 }
}

/// What is there before a batch: a long prompt of each kind, and sequences that published nothing.
fn before() -> Vec<Op> {
    let long = |own| Op::Insert { ns: 0, prompt: tokens(own, 60), keep: false };
    let apart =
        |own| Op::Begin { ns: own as u8 % 3 + 1, prompt: tokens(own, 30), reserve: 0, first: 0 };
    (0..ITEMS).map(long).chain((0..ITEMS).map(apart)).collect()
}

fn batch(item: impl Fn(u16) -> Op) -> Items {
    items([0, 1, 2, 3].map(|own| Some(item(own))))
}

// J03
#[test]
fn m05_an_item_without_memory_stops_no_other() {
    let append = |sequence: u16| Op::Append { sequence, prompt: tokens(sequence + 4, 90) };
    let lock =
        |own: u16| Op::Match { ns: 0, prompt: tokens(own, 20 + 8 * u32::from(own)), lock: true };
    let batches = [
        Op::BeginMany(batch(|own| begin(own, 21))),
        Op::AppendMany(batch(append)),
        Op::PublishMany(batch(|sequence| Op::Publish { sequence, back: 0 })),
        Op::MatchMany(batch(lock)),
    ];
    for (many, block_hash) in batches.iter().flat_map(|many| [(many, false), (many, true)]) {
        let ops: Vec<Op> = before().into_iter().chain([many.clone()]).collect();
        let mut lacked = BTreeSet::new();
        for request in 0.. {
            let mut failed = 0;
            // Where children are found is chance, and so is what their table needs memory for.
            for _ in 0..ROUNDS {
                BATCH_FAILURE.set(Some(BatchFailure { request, failed: 0, lacked: None }));
                let done = run(&Config { block_hash, ..CONFIG }, &ops, Fault::None);
                let failure = BATCH_FAILURE.take().expect("it was set");
                if let Err(differs) = done {
                    panic!("{many:?}, {block_hash}, {failure:?}: {}", differs.message);
                }
                failed += failure.failed;
                lacked.extend(failure.lacked);
            }
            if failed == 0 {
                break; // There were no more.
            }
        }
        // Matches in the block-hash index split nothing: the first makes room for locks.
        let few = block_hash && matches!(many, Op::MatchMany(_));
        let expected = if few { 1 } else { ITEMS as usize };
        assert_eq!(lacked.len(), expected, "{many:?}, {block_hash}: {lacked:?} lacked memory");
    }
}
