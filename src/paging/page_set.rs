//! A set of pages of a pool, a bit for each.
use crate::memory::{OutOfMemory, try_touched_zeros};

/// Some of the pages of a pool.
#[derive(Debug, Default)]
pub struct PageSet(Vec<u64>);

impl PageSet {
    /// None of the pages below a number.
    pub fn below(pages: usize) -> Result<Self, OutOfMemory> {
        try_touched_zeros(pages.div_ceil(64)).map(Self)
    }

    /// Whether there is room for no page.
    pub fn has_no_room(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a page is in the set, which has room for it.
    #[inline]
    pub fn has(&self, page: u32) -> bool {
        self.0[page as usize / 64] >> (page % 64) & 1 != 0
    }

    /// Puts a page in, or takes it out; whether it was otherwise.
    #[inline]
    pub fn set(&mut self, page: u32, is_in: bool) -> bool {
        let (word, bit) = (&mut self.0[page as usize / 64], 1 << (page % 64));
        let changes = (*word & bit != 0) != is_in;
        if changes {
            *word ^= bit;
        }
        changes
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}
