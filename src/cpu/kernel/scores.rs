//! Scores: q · k of each row and key.
use super::keys::{Ahead, CACHE_LINE, KeyRows, Lines};
use super::{BLOCK, Span};
use crate::cpu::element::Element;
use crate::cpu::simd::{Simd, Vectorized};
use std::ops::Range;

/// Keys that are multiplied with all rows before the next ones: few enough to stay close.
const NEAR_KEYS: usize = 8;

/// Rows of queries and where their scores go.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Queries {
    pub head_dim: usize,
    /// `head_dim` numbers for each row, or as many of bf16 in the first half of their room.
    pub q: *const f32,
    /// BLOCK numbers for each row.
    pub scores: *mut f32,
}

impl Queries {
    /// The rows from one on.
    pub(super) fn from(self, row: usize) -> Self {
        Self {
            q: self.q.wrapping_add(row * self.head_dim),
            scores: self.scores.wrapping_add(row * BLOCK),
            ..self
        }
    }
}

/// Computes the scores of each row and the keys that it sees, and of some around them. Meanwhile it
/// asks for what is `ahead`, by and by. With DOTS queries and keys are multiplied as bf16.
///
/// # Safety
/// With DOTS `queries` are bf16 in the order of K's elements, S multiplies those, and heads are
/// multiples of 4 * LANES. `queries` has a row for each span. `keys` is readable for every key of
/// the spans, and from there to multiples of 8 in both directions.
pub(in crate::cpu) unsafe fn scores<S: Simd, K: KeyRows, const DOTS: bool>(
    simd: S,
    queries: Queries,
    spans: &[Span],
    keys: K,
    mut ahead: Ahead<'_>,
) {
    let (first, last) = (spans[0].start, spans[spans.len() - 1].end);
    let mut near = first & !7;
    // Few rows fit into registers together: they see all keys at once.
    let near_keys = if height::<S, K>(spans.len()) == spans.len() { BLOCK } else { NEAR_KEYS };
    while near < last {
        let near_end = (near + near_keys).min(last);
        let mut row = 0;
        while row < spans.len() {
            let count = height::<S, K>(spans.len() - row);
            let start = spans[row].start.max(near);
            let end = spans[row + count - 1].end.min(near_end);
            let queries = queries.from(row);
            if start < end {
                let range = start..end;
                let ahead = &mut ahead;
                // SAFETY: the caller's contract.
                unsafe {
                    match count {
                        1 if DOTS => {
                            simd.run(Rows::<K, DOTS, 1, 4>::new(queries, keys, range, ahead));
                        }
                        1 => simd.run(Rows::<K, DOTS, 1, 8>::new(queries, keys, range, ahead)),
                        2 => simd.run(Rows::<K, DOTS, 2, 4>::new(queries, keys, range, ahead)),
                        3 => simd.run(Rows::<K, DOTS, 3, 4>::new(queries, keys, range, ahead)),
                        4 => simd.run(Rows::<K, DOTS, 4, 2>::new(queries, keys, range, ahead)),
                        8 => simd.run(Rows::<K, DOTS, 8, 2>::new(queries, keys, range, ahead)),
                        _ => simd.run(Rows::<K, DOTS, 6, 4>::new(queries, keys, range, ahead)),
                    }
                }
            }
            row += count;
        }
        ahead.catch_up(simd, last - near_end, last - first);
        near = near_end;
    }
}

/// Rows of the next register tile, one of those that there are. Four rows are many where keys are
/// converted on the way to them, and otherwise too many for sixteen registers; with thirty-two
/// registers eight rows get by with one conversion.
fn height<S: Simd, K: KeyRows>(rows: usize) -> usize {
    match rows {
        1..4 => rows,
        4 => 4,
        8 if K::FROM_MEMORY && S::LANES == 16 => 8,
        7.. if K::Element::CONVERTS && K::FROM_MEMORY => 4,
        6.. => S::SCORE_ROWS,
        _ => 3,
    }
}

/// The scores of R rows, C keys at a time.
struct Rows<'a, 'b, K, const DOTS: bool, const R: usize, const C: usize> {
    queries: Queries,
    keys: K,
    range: Range<usize>,
    ahead: &'a mut Ahead<'b>,
}

impl<'a, 'b, K: KeyRows, const DOTS: bool, const R: usize, const C: usize>
    Rows<'a, 'b, K, DOTS, R, C>
{
    /// # Safety
    /// As for [`scores`].
    unsafe fn new(
        queries: Queries,
        keys: K,
        range: Range<usize>,
        ahead: &'a mut Ahead<'b>,
    ) -> Self {
        Self { queries, keys, range, ahead }
    }

    /// A tile of R x C scores in registers. Lane i adds up the products of elements i, i + LANES
    /// and so on; then the lanes are added: the same for every R and C.
    ///
    /// # Safety
    /// As for [`scores`], for C keys from `key` on.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&mut self, simd: S, key: usize, lines: &mut Lines) {
        let Queries { head_dim, q, scores } = self.queries;
        // SAFETY: the caller's contract.
        unsafe {
            let mut rows = [std::ptr::null(); C];
            for (column, row) in rows.iter_mut().enumerate() {
                *row = self.keys.row(key + column);
            }
            let mut sums = [[simd.splat(0.0); C]; R];
            let step = if DOTS { 4 } else { 2 } * S::LANES;
            for at in (0..head_dim).step_by(step) {
                if K::FROM_MEMORY {
                    // As many lines as are read.
                    let count = (C * step * K::Element::BYTES).div_ceil(CACHE_LINE);
                    lines.step(simd, self.ahead, count);
                }
                let k = rows.map(|row| row.wrapping_add(at * K::Element::BYTES));
                // Two numbers of bf16 lie where one of f32 would.
                let q = q.add(if DOTS { at / 2 } else { at });
                if DOTS || K::Element::CONVERTS && C == 2 {
                    multiply_pairs::<S, K::Element, DOTS, R, C>(simd, q, head_dim, k, &mut sums);
                } else {
                    for half in 0..2 {
                        multiply::<S, K::Element, R, C>(simd, q, head_dim, k, half, &mut sums);
                    }
                }
            }
            let sums = sums.as_flattened();
            let to = |at: usize| scores.add(at / C * BLOCK + key + at % C);
            if let (Some(all), 2) = (sums.first_chunk::<16>(), C) {
                for (at, pair) in simd.sums_of_16(all).as_chunks::<2>().0.iter().enumerate() {
                    to(2 * at).cast::<[f32; 2]>().write_unaligned(*pair);
                }
                return;
            }
            for at in (0..R * C).step_by(4) {
                let four = simd.sums([sums[at], sums[at + 1], sums[at + 2], sums[at + 3]]);
                match C {
                    2 => {
                        to(at).cast::<[f32; 2]>().write_unaligned([four[0], four[1]]);
                        to(at + 2).cast::<[f32; 2]>().write_unaligned([four[2], four[3]]);
                    }
                    _ => to(at).cast::<[f32; 4]>().write_unaligned(four),
                }
            }
        }
    }
}

impl<K: KeyRows, const DOTS: bool, const R: usize, const C: usize> Vectorized
    for Rows<'_, '_, K, DOTS, R, C>
{
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mut lines = self.ahead.lines;
        let mut key = self.range.start & !(C - 1);
        while key < self.range.end {
            // SAFETY: new()'s contract.
            unsafe { self.tile(simd, key, &mut lines) };
            key += C;
        }
        self.ahead.lines = lines;
    }
}

/// Adds LANES products to each sum: of the first or the second half of twice as many elements. Each
/// key is loaded when it is its turn.
///
/// # Safety
/// 2 * LANES elements are readable from each k on, and numbers from q on in each row.
#[inline(always)]
unsafe fn multiply<S: Simd, E: Element, const R: usize, const C: usize>(
    simd: S,
    q: *const f32,
    head_dim: usize,
    k: [*const u8; C],
    half: usize,
    sums: &mut [[S::Vector; C]; R],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut parts = [simd.splat(0.0); R];
        for (row, part) in parts.iter_mut().enumerate() {
            *part = simd.load(q.add(row * head_dim + half * S::LANES));
        }
        for (column, k) in k.iter().enumerate() {
            let k = E::load(simd, *k)[half];
            for (sums, q) in sums.iter_mut().zip(parts) {
                sums[column] = simd.fma(q, k, sums[column]);
            }
        }
    }
}

/// Adds the products of two vectors of elements to each sum: of numbers, or with DOTS of pairs of
/// them as bf16. Keys are converted, which is cheaper in pairs, as long as there are registers for
/// them.
///
/// # Safety
/// 2 * LANES elements are readable from each k on, and from q on in each row; with DOTS twice as
/// many, and the instructions multiply them.
#[inline(always)]
unsafe fn multiply_pairs<S: Simd, E: Element, const DOTS: bool, const R: usize, const C: usize>(
    simd: S,
    q: *const f32,
    head_dim: usize,
    k: [*const u8; C],
    sums: &mut [[S::Vector; C]; R],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut pairs = [[simd.splat(0.0); 2]; C];
        // No closure: it would be a function where it is large.
        for (pair, k) in pairs.iter_mut().zip(k) {
            *pair = if DOTS { E::load_bf16(simd, k) } else { E::load(simd, k) };
        }
        for half in 0..2 {
            for (row, sums) in sums.iter_mut().enumerate() {
                let q = simd.load(q.add(row * head_dim + half * S::LANES));
                for (sum, pair) in sums.iter_mut().zip(pairs) {
                    *sum = match DOTS {
                        true => simd.dot_bf16(pair[half], q, *sum),
                        false => simd.fma(q, pair[half], *sum),
                    };
                }
            }
        }
    }
}
