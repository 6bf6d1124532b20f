//! The numbers in the ids of handles, of all caches of a process: none is ever handed out twice.
//!
//! Every cache has a block of them for itself, and gives the part that it didn't use back when it
//! goes. Without a lock and without memory, since a cache must be able to go at any time.
use crate::error::{Error, text};
use crate::ids::HANDLE_NUMBER_LIMIT;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Set in a block that a cache has.
const TAKEN: u32 = 1 << 31;

/// Blocks of numbers.
#[derive(Debug)]
pub struct Numbers {
    /// The first number of each block that was not handed out yet. Block 0 is never used, so that
    /// no id is 0.
    blocks: &'static [AtomicU32],
    /// Where to look next.
    next: AtomicUsize,
    /// Numbers of a block.
    limit: u32,
}

/// A block that is in use.
#[derive(Debug)]
pub(super) struct Block {
    all: &'static Numbers,
    pub(super) block: u16,
    /// The first number.
    pub(super) first: u32,
}

impl Numbers {
    /// Numbers of a few blocks.
    pub const fn new(blocks: &'static [AtomicU32], limit: u32) -> Self {
        assert!(blocks.len() <= 1 << 16 && limit <= HANDLE_NUMBER_LIMIT);
        Self { blocks, next: AtomicUsize::new(0), limit }
    }

    /// Those that all caches share.
    pub fn shared() -> &'static Self {
        static BLOCKS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
        static SHARED: Numbers = Numbers::new(&BLOCKS, HANDLE_NUMBER_LIMIT);
        &SHARED
    }

    /// Numbers of a block.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// In the place of a block, for who never gives a handle: it has no numbers.
    pub(super) fn no_block() -> Block {
        static UNUSED: [AtomicU32; 1] = [const { AtomicU32::new(0) }];
        static NONE: Numbers = Numbers::new(&UNUSED, 0);
        Block { all: &NONE, block: 0, first: 0 }
    }

    /// A block that nobody has and of which numbers are left.
    pub(super) fn take(&'static self, kind: &str) -> Result<Block, Error> {
        let usable = self.blocks.len().saturating_sub(1);
        for _ in 0..usable {
            let at = 1 + self.next.fetch_add(1, Relaxed) % usable;
            let first = self.blocks[at].load(Relaxed);
            let free = first & TAKEN == 0 && first < self.limit;
            if free && self.blocks[at].compare_exchange(first, TAKEN, Relaxed, Relaxed).is_ok() {
                return Ok(Block { all: self, block: at as u16, first });
            }
        }
        Err(Error::state(text!(
            "no numbers are left for the {kind} of another cache: {usable} blocks are in use, or \
             used up"
        )))
    }
}

impl Block {
    pub(super) fn limit(&self) -> u32 {
        self.all.limit()
    }

    /// Gives the block back, all numbers before `next` having been used.
    pub(super) fn give_back(&mut self, next: u32) {
        self.all.blocks[self.block as usize].store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_up() {
        static BLOCKS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
        static NUMBERS: Numbers = Numbers::new(&BLOCKS, 5);
        let (mut first, mut second) =
            (NUMBERS.take("pins").unwrap(), NUMBERS.take("pins").unwrap());
        assert_ne!(first.block, second.block);
        assert!(matches!(NUMBERS.take("pins"), Err(Error::State(_))));
        first.give_back(3);
        second.give_back(5);
        let again = NUMBERS.take("pins").unwrap();
        assert_eq!((again.block, again.first), (first.block, 3));
        assert!(matches!(NUMBERS.take("pins"), Err(Error::State(_))));
    }
}
