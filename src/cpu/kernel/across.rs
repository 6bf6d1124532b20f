//! Scores of many rows: the keys lie side by side in vectors, so that no lanes are to be added up,
//! which takes as long as the products where heads are small. It pays to turn keys for it where
//! rows are many.
use super::keys::{Ahead, KeyRows};
use super::scores::Queries;
use super::{BLOCK, Span};
use crate::cpu::simd::{Simd, Vectorized};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Lanes of the vectors that it is for: [`Simd::ACROSS`].
const LANES: usize = 16;

/// Rows of a register tile, and vectors of keys.
const ROWS: usize = 4;
const VECTORS: usize = 2;

/// Turns a block's keys: rows of `count` numbers, or of as many pairs of bf16, become columns, of
/// which those that a lane adds up lie one behind the other.
pub(in crate::cpu) struct Turn<K> {
    from: K,
    keys: Range<usize>,
    count: usize,
    to: *mut f32,
}

impl<K: KeyRows> Turn<K> {
    /// Those of the block's that there are; where others would be nobody looks.
    ///
    /// # Safety
    /// The rows of `keys` are readable for `count` numbers, a multiple of LANES, and `to` is
    /// writable for BLOCK rows of as many.
    pub(in crate::cpu) unsafe fn new(
        from: K,
        keys: Range<usize>,
        count: usize,
        to: *mut f32,
    ) -> Self {
        Self { from, keys, count, to }
    }
}

impl<K: KeyRows> Vectorized for Turn<K> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, keys, count, to } = self;
        let steps = count / LANES;
        for first in (keys.start & !(LANES - 1)..keys.end).step_by(LANES) {
            // SAFETY: new()'s contract.
            unsafe {
                let mut rows = [std::ptr::null::<f32>(); LANES];
                for (key, row) in (first..).zip(&mut rows) {
                    *row = from.row(key.clamp(keys.start, keys.end - 1)).cast();
                }
                for step in 0..steps {
                    let rows = rows.map(|row| row.add(step * LANES));
                    simd.turn(rows, to.add(step * BLOCK + first), steps * BLOCK);
                }
            }
        }
    }
}

/// Computes the scores of each row and the keys that it sees, and of some around them: the same
/// bits as [`super::scores`] does. Meanwhile it asks for what is `ahead`, by and by.
///
/// # Safety
/// S computes so. `queries` has a row for each span, with DOTS as bf16, which S multiplies then;
/// `keys` are what [`Turn`] made of the block's, in the order of the queries.
pub(in crate::cpu) unsafe fn scores_across<S: Simd, const DOTS: bool>(
    simd: S,
    queries: Queries,
    spans: &[Span],
    keys: *const f32,
    mut ahead: Ahead<'_>,
) {
    let (first, last) = (spans[0].start, spans[spans.len() - 1].end);
    let mut near = first - first % (VECTORS * LANES);
    while near < last {
        let near_end = (near + VECTORS * LANES).min(last);
        for (tile, spans) in spans.chunks(ROWS).enumerate() {
            let start = spans[0].start.max(near) & !(LANES - 1);
            let end = spans[spans.len() - 1].end.min(near_end);
            if start < end {
                let tile = Tile { queries: queries.from(tile * ROWS), keys, first: start };
                // SAFETY: the caller's contract.
                unsafe { tile.of_rows::<S, DOTS>(simd, spans.len(), end - start > LANES) };
            }
        }
        ahead.catch_up(simd, last - near_end, last - first);
        near = near_end;
    }
}

/// Rows and keys.
struct Tile {
    queries: Queries,
    keys: *const f32,
    /// Of the keys, those that come are neighbours.
    first: usize,
}

impl Tile {
    /// # Safety
    /// As for [`scores_across`], for so many rows and one or two vectors of keys.
    unsafe fn of_rows<S: Simd, const DOTS: bool>(self, simd: S, rows: usize, two: bool) {
        match (rows, two) {
            (4, true) => simd.run(Scores::<DOTS, 4, 2>(self)),
            (3, true) => simd.run(Scores::<DOTS, 3, 2>(self)),
            (2, true) => simd.run(Scores::<DOTS, 2, 2>(self)),
            (_, true) => simd.run(Scores::<DOTS, 1, 2>(self)),
            (4, false) => simd.run(Scores::<DOTS, 4, 1>(self)),
            (3, false) => simd.run(Scores::<DOTS, 3, 1>(self)),
            (2, false) => simd.run(Scores::<DOTS, 2, 1>(self)),
            (_, false) => simd.run(Scores::<DOTS, 1, 1>(self)),
        }
    }
}

/// The scores of R rows and C vectors of keys, in registers. Made by [`Tile::of_rows`], whose
/// contract it has.
struct Scores<const DOTS: bool, const R: usize, const C: usize>(Tile);

impl<const DOTS: bool, const R: usize, const C: usize> Scores<DOTS, R, C> {
    /// The sums of what lane `lane` of a vector of elements adds up.
    ///
    /// # Safety
    /// As for [`scores_across`].
    #[inline(always)]
    unsafe fn lane<S: Simd>(&self, simd: S, lane: usize) -> [[S::Vector; C]; R] {
        let Tile { queries, keys, first } = self.0;
        let mut sums = [[simd.splat(0.0); C]; R];
        let count = if DOTS { queries.head_dim / 2 } else { queries.head_dim };
        let steps = count / LANES;
        let keys = keys.wrapping_add(lane * steps * BLOCK + first);
        for step in 0..steps {
            let at = step * LANES + lane;
            // SAFETY: the caller's contract.
            unsafe {
                let mut k = [simd.splat(0.0); C];
                for (column, k) in k.iter_mut().enumerate() {
                    *k = simd.load(keys.add(step * BLOCK + column * LANES));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let q = simd.splat(*queries.q.add(row * queries.head_dim + at));
                    for (sum, k) in sums.iter_mut().zip(k) {
                        *sum = match DOTS {
                            true => simd.dot_bf16(k, q, *sum),
                            false => simd.fma(q, k, *sum),
                        };
                    }
                }
            }
        }
        sums
    }

    /// Of four lanes: the first and the third, the second and the fourth, then both.
    ///
    /// # Safety
    /// As for [`scores_across`].
    #[inline(always)]
    unsafe fn quarter<S: Simd>(&self, simd: S, quarter: usize) -> [[S::Vector; C]; R] {
        let lane = 4 * quarter;
        // SAFETY: the caller's contract.
        unsafe {
            let mut even = self.lane(simd, lane);
            add(simd, &mut even, &self.lane(simd, lane + 2));
            let mut odd = self.lane(simd, lane + 1);
            add(simd, &mut odd, &self.lane(simd, lane + 3));
            add(simd, &mut even, &odd);
            even
        }
    }
}

impl<const DOTS: bool, const R: usize, const C: usize> Vectorized for Scores<DOTS, R, C> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // A quarter is as much as registers hold; not zeros first, which would take a while.
        let mut quarters = [MaybeUninit::<[[S::Vector; C]; R]>::uninit(); 4];
        for (quarter, sums) in quarters.iter_mut().enumerate() {
            // SAFETY: made by Tile::of_rows.
            sums.write(unsafe { self.quarter(simd, quarter) });
        }
        // In memory, or all of them would be computed at once.
        let quarters = std::hint::black_box(quarters.as_ptr().cast::<[[S::Vector; C]; R]>());
        for row in 0..R {
            for column in 0..C {
                // SAFETY: made by Tile::of_rows; all four were written.
                unsafe {
                    let quarter = |at: usize| &raw const (*quarters.add(at))[row][column];
                    let even = simd.add(*quarter(0), *quarter(2));
                    let odd = simd.add(*quarter(1), *quarter(3));
                    let at = row * BLOCK + self.0.first + column * LANES;
                    simd.store(self.0.queries.scores.add(at), simd.add(even, odd));
                }
            }
        }
    }
}

/// Adds each to each.
#[inline(always)]
fn add<S: Simd, const R: usize, const C: usize>(
    simd: S,
    a: &mut [[S::Vector; C]; R],
    b: &[[S::Vector; C]; R],
) {
    for (a, b) in a.iter_mut().zip(b) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = simd.add(*a, *b);
        }
    }
}
