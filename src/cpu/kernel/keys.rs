//! Where the keys or values of a block lie.
use super::BLOCK;
use crate::cpu::element::{Element, F32};
use crate::cpu::simd::{Simd, Vectorized};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes that memory is read in.
const CACHE_LINE: usize = 64;

/// Rows of elements, one for each key of a block.
pub(in crate::cpu) trait KeyRows: Copy {
    /// Their format.
    type Element: Element;

    /// The row of a key, counted from the block's first.
    ///
    /// # Safety
    /// The block has such a row.
    unsafe fn row(self, key: usize) -> *const u8;
}

/// Rows in the pages themselves.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Listed<E> {
    base: *const u8,
    offsets: *const usize,
    element: PhantomData<E>,
}

impl<E> Listed<E> {
    /// Rows at these distances from `base`, in bytes.
    pub(in crate::cpu) fn new(base: *const u8, offsets: *const usize) -> Self {
        Self { base, offsets, element: PhantomData }
    }
}

impl<E: Element> KeyRows for Listed<E> {
    type Element = E;

    /// # Safety
    /// The block has such a row.
    #[inline(always)]
    unsafe fn row(self, key: usize) -> *const u8 {
        // SAFETY: the caller's contract.
        unsafe { self.base.add(*self.offsets.add(key)) }
    }
}

/// Rows that were converted into scratch memory.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Strided {
    base: *const f32,
    stride: usize,
}

impl Strided {
    /// Rows `stride` numbers apart.
    pub(in crate::cpu) fn new(base: *const f32, stride: usize) -> Self {
        Self { base, stride }
    }
}

impl KeyRows for Strided {
    type Element = F32;

    /// # Safety
    /// The block has such a row.
    #[inline(always)]
    unsafe fn row(self, key: usize) -> *const u8 {
        // SAFETY: the caller's contract.
        unsafe { self.base.add(key * self.stride).cast() }
    }
}

/// Keys or values of the next block, of all heads of a tile: asked for while the present block is
/// computed, a row for each row that is worked on.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Ahead<'a> {
    /// The first head of page 0.
    pub base: *const u8,
    /// Distances of its keys, in bytes.
    pub offsets: &'a [usize],
    pub heads: usize,
    /// From a head to the next, in bytes.
    pub head_stride: usize,
    pub row_bytes: usize,
    /// The head at work, counted from the tile's first.
    pub head: usize,
}

impl Ahead<'_> {
    /// Asks for the share of some keys of the head at work.
    pub(super) fn prefetch<S: Simd>(self, simd: S, keys: Range<usize>) {
        if !self.offsets.is_empty() {
            simd.run(Prefetch { ahead: self, keys });
        }
    }
}

struct Prefetch<'a> {
    ahead: Ahead<'a>,
    keys: Range<usize>,
}

impl Vectorized for Prefetch<'_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Ahead { base, offsets, heads, head_stride, row_bytes, head } = self.ahead;
        // In the order of memory: where a position's heads are neighbours, head after head.
        let neighbours = head_stride == row_bytes;
        let first = head * BLOCK + self.keys.start;
        let (mut key, mut head) =
            if neighbours { (first / heads, first % heads) } else { (self.keys.start, head) };
        for _ in self.keys {
            let Some(offset) = offsets.get(key) else { return };
            let row = base.wrapping_add(offset + head * head_stride);
            for at in (0..row_bytes).step_by(CACHE_LINE) {
                simd.prefetch(row.wrapping_add(at));
            }
            head += usize::from(neighbours);
            if !neighbours || head == heads {
                key += 1;
                head = if neighbours { 0 } else { head };
            }
        }
    }
}
