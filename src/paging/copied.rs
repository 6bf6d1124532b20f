//! Which pages are being copied between tiers: they are not used again before that is done.
use crate::memory::{OutOfMemory, try_zeros};

/// Pages that are being copied between tiers.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// A bit for each page; nothing without tiers.
    bits: Vec<u64>,
    pub count: usize,
    /// Of those, pages of the index.
    pub cached: usize,
}

impl Copied {
    /// Makes room for copies of so many pages.
    pub fn try_reserve(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        if self.bits.is_empty() {
            self.bits = try_zeros(pages.div_ceil(64))?;
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn has(&self, page: u32) -> bool {
        self.count > 0 && self.bits[page as usize / 64] >> (page % 64) & 1 != 0
    }

    /// Sets a bit; whether it was otherwise.
    pub fn set(&mut self, page: u32, is_copied: bool) -> bool {
        let (word, bit) = (&mut self.bits[page as usize / 64], 1 << (page % 64));
        if (*word & bit != 0) == is_copied {
            return false;
        }
        *word ^= bit;
        self.count = if is_copied { self.count + 1 } else { self.count - 1 };
        true
    }

    pub fn bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }
}
