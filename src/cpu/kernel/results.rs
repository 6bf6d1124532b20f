//! Results: the values of the keys, each times its weight, are added to what the rows have.
use super::keys::{Ahead, CACHE_LINE, KeyRows};
use super::{BLOCK, Span};
use crate::cpu::element::Element;
use crate::cpu::simd::{Simd, Vectorized};
use std::ops::Range;

/// Rows of weights and the results that they add to.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Sums {
    pub head_dim: usize,
    /// BLOCK numbers for each row.
    pub weights: *const f32,
    /// `head_dim` numbers for each row.
    pub out: *mut f32,
}

/// Adds weight * value of each key that a row sees, key after key, and touches no other value: what
/// is not seen may be NaN. Meanwhile it asks for what is `ahead`, by and by.
///
/// # Safety
/// `sums` has a row for each span; `values` is readable for the keys of the spans.
pub(in crate::cpu) unsafe fn add_results<S: Simd, K: KeyRows>(
    simd: S,
    sums: Sums,
    spans: &[Span],
    values: K,
    mut ahead: Ahead<'_>,
) {
    let (first, last) = (spans[0].start, spans[spans.len() - 1].end);
    let head_dim = sums.head_dim;
    let single = spans.len() == 1;
    let mut column = 0;
    while column < head_dim {
        let pairs = pairs::<S, K::Element>(spans.len(), head_dim - column);
        let mut row = 0;
        while row < spans.len() {
            let count = height(spans.len() - row, S::RESULT_ROWS);
            let place = Place {
                head_dim,
                column,
                weights: sums.weights.wrapping_add(row * BLOCK),
                out: sums.out.wrapping_add(row * head_dim + column),
            };
            let spans = &spans[row..row + count];
            // SAFETY: the caller's contract.
            unsafe {
                match (single && S::LANES == 8, pairs) {
                    (true, _) => {
                        simd.run(Tile::<K, 1, 2>::new(place, values, first..last, &mut ahead));
                    }
                    (false, 1) => rows::<S, K, 1>(simd, place, spans, values, &mut ahead),
                    (false, _) => rows::<S, K, 2>(simd, place, spans, values, &mut ahead),
                }
            }
            row += count;
        }
        column += pairs * 2 * S::LANES;
        ahead.catch_up(simd, head_dim - column, head_dim);
    }
}

/// Pairs of vectors side by side: where rows are few one pair leaves most of thirty-two registers
/// empty, and is not even a line of what is smallest. One row alone needs more of sixteen, too, to
/// keep the processor busy: two pairs of eight numbers divide every head dimension.
fn pairs<S: Simd, E: Element>(rows: usize, columns: usize) -> usize {
    match (S::LANES, rows) {
        (8, 1) => 2,
        (16, 1) if E::CONVERTS && columns >= 4 * S::LANES => 2,
        (16, 2..=6) if E::CONVERTS && columns >= 4 * S::LANES => 2,
        _ => 1,
    }
}

/// Rows of the next register tile, one of those that there are.
fn height(rows: usize, most: usize) -> usize {
    // Two tiles of about the same height rather than a full one and the little that is left.
    let even = if rows < 2 * most { rows.div_ceil(2) } else { most };
    match if rows > most { even } else { rows } {
        7 => 6,
        9..12 => 8,
        rows => rows,
    }
}

/// Where a register tile reads and writes.
#[derive(Clone, Copy)]
struct Place {
    head_dim: usize,
    column: usize,
    weights: *const f32,
    out: *mut f32,
}

/// A few rows, P pairs of vectors wide: the keys before those that all of them see row by row, all
/// others together.
///
/// # Safety
/// As for [`add_results`].
unsafe fn rows<S: Simd, K: KeyRows, const P: usize>(
    simd: S,
    place: Place,
    spans: &[Span],
    values: K,
    ahead: &mut Ahead<'_>,
) {
    let (first, last) = (spans[0], spans[spans.len() - 1]);
    let start = last.start;
    let end = first.end.max(start);
    // SAFETY: the caller's contract.
    unsafe {
        if first.start < start {
            let keys = |span: &Span| span.start..span.end.min(start);
            each_row::<S, K, P>(simd, place, spans, values, ahead, keys);
        }
        let keys = start..end;
        match spans.len() {
            1 => simd.run(Tile::<K, 1, P>::new(place, values, keys, ahead).to(spans)),
            2 => simd.run(Tile::<K, 2, P>::new(place, values, keys, ahead).to(spans)),
            3 => simd.run(Tile::<K, 3, P>::new(place, values, keys, ahead).to(spans)),
            4 => simd.run(Tile::<K, 4, P>::new(place, values, keys, ahead).to(spans)),
            5 => simd.run(Tile::<K, 5, P>::new(place, values, keys, ahead).to(spans)),
            6 => simd.run(Tile::<K, 6, P>::new(place, values, keys, ahead).to(spans)),
            8 => simd.run(Tile::<K, 8, 1>::new(place, values, keys, ahead).to(spans)),
            _ => simd.run(Tile::<K, 12, 1>::new(place, values, keys, ahead).to(spans)),
        }
    }
}

/// Row by row, each with its own keys.
///
/// # Safety
/// As for [`add_results`].
unsafe fn each_row<S: Simd, K: KeyRows, const P: usize>(
    simd: S,
    place: Place,
    spans: &[Span],
    values: K,
    ahead: &mut Ahead<'_>,
    keys: impl Fn(&Span) -> Range<usize>,
) {
    for (row, span) in spans.iter().enumerate() {
        let keys = keys(span);
        if !keys.is_empty() {
            let weights = place.weights.wrapping_add(row * BLOCK);
            let out = place.out.wrapping_add(row * place.head_dim);
            let place = Place { weights, out, ..place };
            // SAFETY: the caller's contract.
            simd.run(unsafe { Tile::<K, 1, P>::new(place, values, keys, ahead) });
        }
    }
}

/// R rows, P pairs of vectors wide, in registers.
struct Tile<'a, 'b, K, const R: usize, const P: usize> {
    place: Place,
    values: K,
    keys: Range<usize>,
    /// R of them, whose ends ascend, or none: all rows see `keys` alone.
    spans: &'a [Span],
    ahead: &'a mut Ahead<'b>,
}

impl<'a, 'b, K, const R: usize, const P: usize> Tile<'a, 'b, K, R, P> {
    /// # Safety
    /// As for [`add_results`]; every row sees the keys.
    unsafe fn new(place: Place, values: K, keys: Range<usize>, ahead: &'a mut Ahead<'b>) -> Self {
        Self { place, values, keys, spans: &[], ahead }
    }

    /// Each row sees the keys after those, too, to the end of its span.
    ///
    /// # Safety
    /// As for [`add_results`]; there are R spans.
    unsafe fn to(self, spans: &'a [Span]) -> Self {
        debug_assert_eq!(spans.len(), R);
        Self { spans, ..self }
    }
}

impl<K: KeyRows, const R: usize, const P: usize> Vectorized for Tile<'_, '_, K, R, P> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Place { head_dim, column, weights, out } = self.place;
        let bytes = P * 2 * S::LANES * K::Element::BYTES;
        let spans = self.spans.first_chunk::<R>();
        let after = self.keys.end..spans.map_or(0, |spans| spans[R - 1].end);
        // SAFETY: new()'s contract.
        unsafe {
            let mut sums = [[[simd.splat(0.0); 2]; P]; R];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (at, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
                    *sum = simd.load(out.add(row * head_dim + at * S::LANES));
                }
            }
            let mut lines = self.ahead.lines;
            for key in self.keys.clone() {
                // As many lines as are read; of one that half a tile reads, every other time.
                if K::FROM_MEMORY && (key % 2 == 0 || bytes >= CACHE_LINE) {
                    lines.step(simd, self.ahead, bytes.div_ceil(CACHE_LINE));
                }
                let v = load_values::<S, K, P>(simd, self.values, key, column);
                for (row, sums) in sums.iter_mut().enumerate() {
                    let weight = simd.splat(*weights.add(row * BLOCK + key));
                    for (sum, v) in sums.as_flattened_mut().iter_mut().zip(v.as_flattened()) {
                        *sum = simd.fma(weight, *v, *sum);
                    }
                }
            }
            self.ahead.lines = lines;
            // Fewer and fewer rows see them, as where a prompt is computed.
            for key in after {
                let Some(spans) = spans else { break };
                let v = load_values::<S, K, P>(simd, self.values, key, column);
                for (row, sums) in sums.iter_mut().enumerate().rev() {
                    if spans[row].end <= key {
                        break;
                    }
                    let weight = simd.splat(*weights.add(row * BLOCK + key));
                    for (sum, v) in sums.as_flattened_mut().iter_mut().zip(v.as_flattened()) {
                        *sum = simd.fma(weight, *v, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (at, &sum) in sums.as_flattened().iter().enumerate() {
                    simd.store(out.add(row * head_dim + at * S::LANES), sum);
                }
            }
        }
    }
}

/// P pairs of vectors of a key's values.
///
/// # Safety
/// As for [`add_results`].
#[inline(always)]
unsafe fn load_values<S: Simd, K: KeyRows, const P: usize>(
    simd: S,
    values: K,
    key: usize,
    column: usize,
) -> [[S::Vector; 2]; P] {
    let mut v = [[simd.splat(0.0); 2]; P];
    // SAFETY: the caller's contract.
    unsafe {
        let from = values.row(key).add(column * K::Element::BYTES);
        match P {
            2 => v.copy_from_slice(&K::Element::load_pairs(simd, from)),
            _ => v[0] = K::Element::load(simd, from),
        }
    }
    v
}
