//! Scores: q · k of each row and key.
use super::keys::KeyRows;
use super::{BLOCK, Span};
use crate::cpu::element::Element;
use crate::cpu::simd::{Simd, Vectorized};
use std::ops::Range;

/// Keys that are multiplied with all rows before the next ones: few enough to stay close.
const NEAR_KEYS: usize = 16;

/// Rows of queries and where their scores go.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Queries {
    pub head_dim: usize,
    /// `head_dim` numbers for each row.
    pub q: *const f32,
    /// BLOCK numbers for each row.
    pub scores: *mut f32,
}

impl Queries {
    /// The rows from one on.
    fn from(self, row: usize) -> Self {
        Self {
            q: self.q.wrapping_add(row * self.head_dim),
            scores: self.scores.wrapping_add(row * BLOCK),
            ..self
        }
    }
}

/// Computes the scores of each row and the keys that it sees, and of some around them.
///
/// # Safety
/// `queries` has a row for each span. `keys` is readable for every key of the spans, and from there
/// to multiples of 8 in both directions.
pub(in crate::cpu) unsafe fn scores<S: Simd, K: KeyRows>(
    simd: S,
    queries: Queries,
    spans: &[Span],
    keys: K,
) {
    let (first, last) = (spans[0].start, spans[spans.len() - 1].end);
    let mut near = first & !7;
    while near < last {
        let near_end = (near + NEAR_KEYS).min(last);
        let mut row = 0;
        while row < spans.len() {
            let count = height(spans.len() - row, S::SCORE_ROWS);
            let start = spans[row].start.max(near);
            let end = spans[row + count - 1].end.min(near_end);
            let queries = queries.from(row);
            if start < end {
                let range = start..end;
                // SAFETY: the caller's contract.
                unsafe {
                    match count {
                        1 => simd.run(Rows::<K, 1, 8>::new(queries, keys, range)),
                        2 => simd.run(Rows::<K, 2, 4>::new(queries, keys, range)),
                        3 => simd.run(Rows::<K, 3, 4>::new(queries, keys, range)),
                        _ => simd.run(Rows::<K, 6, 4>::new(queries, keys, range)),
                    }
                }
            }
            row += count;
        }
        near = near_end;
    }
}

/// Rows of the next register tile, one of those that there are.
fn height(rows: usize, most: usize) -> usize {
    match rows.min(most) {
        4 | 5 => 3,
        rows => rows,
    }
}

/// The scores of R rows, C keys at a time.
struct Rows<K, const R: usize, const C: usize> {
    queries: Queries,
    keys: K,
    range: Range<usize>,
}

impl<K: KeyRows, const R: usize, const C: usize> Rows<K, R, C> {
    /// # Safety
    /// As for [`scores`].
    unsafe fn new(queries: Queries, keys: K, range: Range<usize>) -> Self {
        Self { queries, keys, range }
    }

    /// A tile of R x C scores in registers. Lane i adds up the products of elements i, i + LANES and
    /// so on; then the lanes are added: the same for every R and C.
    ///
    /// # Safety
    /// As for [`scores`], for C keys from `key` on.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, simd: S, key: usize) {
        let Queries { head_dim, q, scores } = self.queries;
        // SAFETY: the caller's contract.
        unsafe {
            let mut rows = [std::ptr::null(); C];
            for (column, row) in rows.iter_mut().enumerate() {
                *row = self.keys.row(key + column);
            }
            let mut sums = [[simd.splat(0.0); C]; R];
            let mut at = 0;
            while at < head_dim {
                let mut part = [simd.splat(0.0); R];
                for (row, part) in part.iter_mut().enumerate() {
                    *part = simd.load(q.add(row * head_dim + at));
                }
                for column in 0..C {
                    let k = K::Element::load(simd, rows[column].add(at * K::Element::BYTES));
                    for row in 0..R {
                        sums[row][column] = simd.fma(part[row], k, sums[row][column]);
                    }
                }
                at += S::LANES;
            }
            for (row, sums) in sums.iter().enumerate() {
                for (at, four) in sums.chunks_exact(4).enumerate() {
                    let four = simd.sums([four[0], four[1], four[2], four[3]]);
                    let to = scores.add(row * BLOCK + key + at * 4);
                    to.cast::<[f32; 4]>().write_unaligned(four);
                }
            }
        }
    }
}

impl<K: KeyRows, const R: usize, const C: usize> Vectorized for Rows<K, R, C> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut key = self.range.start & !(C - 1);
        while key < self.range.end {
            // SAFETY: new()'s contract.
            unsafe { self.tile(simd, key) };
            key += C;
        }
    }
}
