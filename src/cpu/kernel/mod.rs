//! Attention of a tile of rows to a block of keys, in three steps: scores, weights, results.
//!
//! A row is one query head of one query; the query heads that share a KV head are rows of one
//! tile, next to each other. Along the rows of a tile the first and the last visible key never
//! decrease, so each block is visible to a run of rows.
//!
//! The order in which the numbers of a row are added up depends on the positions of its keys alone:
//! never on the other rows, nor on the shapes of register tiles. So a result has the same bits
//! whatever it is computed together with.

mod across;
mod keys;
mod results;
mod scores;
mod weights;

pub(super) use across::{Turn, scores_across};
pub(super) use keys::{Ahead, AheadRows, KeyRows, Listed, Strided};
pub(super) use results::{Sums, add_results};
pub(super) use scores::{Queries, scores};
pub(super) use weights::{Logit, SIDE_BY_SIDE, Weights};

/// Keys of a block; blocks begin at multiples of it. A multiple of all LANES and of 8.
pub(super) const BLOCK: usize = 64;

/// Elements that register tiles take at a time, at most.
const ELEMENTS: usize = 32;

/// Numbers of a head in scratch memory: those behind its elements are zeros.
pub(super) const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(ELEMENTS)
}

/// Keys of a block that a row sees, counted from the block's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// A bit for each key.
    pub(super) fn bits(&self) -> u64 {
        const { assert!(BLOCK == u64::BITS as usize) };
        u64::MAX >> (BLOCK - self.end) & u64::MAX << self.start
    }

    /// Those of its keys whose bits are set, as spans without gaps.
    pub(super) fn runs(&self, shown: u64) -> impl Iterator<Item = Self> {
        let mut left = self.bits() & shown;
        std::iter::from_fn(move || {
            let start = left.trailing_zeros() as usize;
            (start < BLOCK).then(|| {
                let end = start + (left >> start).trailing_ones() as usize;
                left &= !Self { start, end }.bits();
                Self { start, end }
            })
        })
    }
}
