//! Where the keys or values of a block lie.
use super::BLOCK;
use crate::cpu::element::Element;
use crate::cpu::simd::{Simd, Vectorized};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes that memory is read in.
pub(super) const CACHE_LINE: usize = 64;

/// Rows of elements, one for each key of a block.
pub(in crate::cpu) trait KeyRows: Copy {
    /// Their format.
    type Element: Element;
    /// Whether they come from memory, while more is asked for.
    const FROM_MEMORY: bool;

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
    const FROM_MEMORY: bool = true;

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
pub(in crate::cpu) struct Strided<E> {
    base: *const f32,
    stride: usize,
    element: PhantomData<E>,
}

impl<E> Strided<E> {
    /// Rows `stride` numbers apart.
    pub(in crate::cpu) fn new(base: *const f32, stride: usize) -> Self {
        Self { base, stride, element: PhantomData }
    }
}

impl<E: Element> KeyRows for Strided<E> {
    type Element = E;
    const FROM_MEMORY: bool = false;

    /// # Safety
    /// The block has such a row.
    #[inline(always)]
    unsafe fn row(self, key: usize) -> *const u8 {
        // SAFETY: the caller's contract.
        unsafe { self.base.add(key * self.stride).cast() }
    }
}

/// Keys or values of the next block, of all heads of a tile: while the present block is computed,
/// each head asks for its share of them, in the order of memory, as evenly as can be.
pub(in crate::cpu) struct Ahead<'a> {
    rows: AheadRows<'a>,
    /// The first row that was not begun yet.
    key: usize,
    head: usize,
    /// Rows that were not.
    left: usize,
    /// Of the rows that were begun. A kernel works on a copy, and puts back what it left.
    pub(super) lines: Lines,
}

/// What is ahead. A row is a key of a head.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct AheadRows<'a> {
    /// The first head of page 0.
    pub base: *const u8,
    /// Distances of its keys, in bytes.
    pub offsets: &'a [usize],
    pub heads: usize,
    /// From a head to the next, in bytes.
    pub head_stride: usize,
    pub row_bytes: usize,
}

impl AheadRows<'_> {
    /// Whether a position's heads are neighbours in memory.
    fn has_neighbours(&self) -> bool {
        self.head_stride == self.row_bytes
    }

    /// The rows that a head asks for, in the order of memory.
    fn share(&self, head: usize) -> Range<usize> {
        match self.has_neighbours() {
            true => {
                let all = self.offsets.len() * self.heads;
                (head * BLOCK).min(all)..((head + 1) * BLOCK).min(all)
            }
            false => head * BLOCK..head * BLOCK + self.offsets.len(),
        }
    }

    /// The key and the head of a row.
    fn key_and_head(&self, row: usize) -> (usize, usize) {
        match self.has_neighbours() {
            true => (row / self.heads, row % self.heads),
            false => (row % BLOCK, row / BLOCK),
        }
    }

    /// Reads a byte of every line, in the order of memory, which the processor recognises: rather
    /// than to wait for each line where it is used.
    ///
    /// # Safety
    /// The rows are readable.
    pub(in crate::cpu) unsafe fn touch(&self) {
        let mut row = 0;
        for head in 0..self.heads {
            let share = self.share(head);
            row = row.max(share.start);
            while row < share.end {
                let (key, head) = self.key_and_head(row);
                let (start, run) = self.run(key, head);
                for line in (0..run * self.row_bytes).step_by(CACHE_LINE) {
                    // SAFETY: the caller's contract; volatile, for nobody wants the byte.
                    unsafe { start.wrapping_add(line).read_volatile() };
                }
                row += run;
            }
        }
    }

    /// Where a row begins, and how many rows from there on are neighbours.
    #[inline(always)]
    fn run(&self, key: usize, head: usize) -> (*const u8, usize) {
        let run = if self.has_neighbours() { self.heads - head } else { 1 };
        (self.base.wrapping_add(self.offsets[key] + head * self.head_stride), run)
    }
}

/// Lines that are neighbours in memory and not asked for yet. A copy of them stays in registers.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    next: *const u8,
    end: *const u8,
}

impl Lines {
    /// Asks for so many, if there are so many. Where it calls nothing, vectors stay in registers.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, simd: S, ahead: &mut Ahead<'_>, count: usize) {
        self.ask::<S, true>(simd, ahead, count);
    }

    /// NEAR: before long it is used, so it goes to the nearest cache.
    #[inline(always)]
    fn ask<S: Simd, const NEAR: bool>(&mut self, simd: S, ahead: &mut Ahead<'_>, count: usize) {
        for _ in 0..count {
            if self.next >= self.end {
                if ahead.left == 0 {
                    return;
                }
                *self = ahead.next_run();
            }
            match NEAR {
                true => simd.prefetch_near(self.next),
                false => simd.prefetch(self.next),
            }
            self.next = self.next.wrapping_add(CACHE_LINE);
        }
    }
}

impl<'a> Ahead<'a> {
    /// The share of a head, counted from the tile's first.
    pub(in crate::cpu) fn new(rows: AheadRows<'a>, head: usize) -> Self {
        let lines = Lines { next: std::ptr::null(), end: std::ptr::null() };
        let share = rows.share(head);
        let (key, head) = rows.key_and_head(share.start);
        Self { rows, key, head, left: share.len(), lines }
    }

    /// Where nothing is asked for.
    pub(in crate::cpu) fn nothing(&self) -> Self {
        Self { left: 0, ..Self::new(self.rows, 0) }
    }

    /// Not a function of its own: all that kernels keep in registers would be saved for it.
    #[inline(always)]
    fn next_run(&mut self) -> Lines {
        let (next, run) = self.rows.run(self.key, self.head);
        let run = run.min(self.left);
        self.left -= run;
        self.key += 1;
        if self.rows.has_neighbours() {
            self.head = 0;
        }
        Lines { next, end: next.wrapping_add(run * self.rows.row_bytes) }
    }

    /// Asks for what is missing when so much of the head's work is left.
    pub(super) fn catch_up<S: Simd>(&mut self, simd: S, work_left: usize, of: usize) {
        let left = BLOCK * work_left / of;
        if self.left > left {
            simd.run(CatchUp { ahead: self, left });
        }
    }
}

struct CatchUp<'a, 'b> {
    ahead: &'a mut Ahead<'b>,
    left: usize,
}

impl Vectorized for CatchUp<'_, '_> {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut lines = self.ahead.lines;
        while self.ahead.left > self.left || lines.next < lines.end {
            lines.ask::<S, false>(simd, self.ahead, 1);
        }
        self.ahead.lines = lines;
    }
}
