//! What is done for the allocator when nobody waits for the lock.
//!
//! Long lists that a call has done with go back to the system, which takes that as long as to give
//! them, some 60 us for 512 KiB. And after many pages were inserted, or sequences got new rows, the
//! allocator makes memory ready for the next ones: else the lock would be had while the system
//! gives it, page by page.
use crate::memory::{READY, grow_allocator, settle_allocator};
use crate::token::ImageSpan;

/// Lists that wait at most: those of one call. More go at once.
const LISTS: usize = 4;
/// Entries of a list that is long.
const LONG: usize = 8192;

/// What an insert uses beside the keys: a node or two, or that of a namespace.
const NODES: usize = 512;
/// Pages that were evicted, after which the allocator joins what that freed: a few microseconds.
const EVICTED: usize = 256;
/// A bit that no number of bytes has.
const SETTLE: usize = 1 << (usize::BITS - 1);

#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    lists: [Vec<u32>; LISTS],
    count: usize,
    /// Where images lie in a list of keys, which is one of those.
    images: Vec<ImageSpan>,
    /// Bytes that were used since memory was made ready, roughly; and `SETTLE`, when small blocks
    /// are to be joined.
    used: usize,
    /// Pages that were evicted since that was said.
    evicted: usize,
}

impl Housekeeping {
    /// Takes a list that is not needed any more.
    pub fn discard(&mut self, list: Vec<u32>) {
        if list.capacity() > LONG && self.count < LISTS {
            self.lists[self.count] = list;
            self.count += 1;
        }
    }

    /// The same of the images in a list of keys that was given before, and is no shorter.
    pub fn discard_images(&mut self, images: Vec<ImageSpan>) {
        if images.capacity() > LONG && self.images.capacity() == 0 {
            self.images = images;
        }
    }

    /// Pages of so many positions were inserted.
    #[inline]
    pub fn inserted(&mut self, positions: usize) {
        if positions > 0 {
            self.took(bytes(positions));
        }
    }

    /// So many bytes were asked for.
    #[inline]
    pub fn took(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes);
    }

    /// So many pages were evicted. Their blocks are small, and lie apart until they are joined: all
    /// at the next large request, which may come with the lock.
    #[inline]
    pub fn evicted(&mut self, pages: usize) {
        self.evicted += pages;
        if self.evicted >= EVICTED {
            self.evicted = 0;
            self.used |= SETTLE;
        }
    }

    /// Whether there is something to be done.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.count > 0 || self.used >= READY
    }

    /// What is to be done, without the lock.
    pub fn take(&mut self) -> Self {
        let used = self.used;
        // What is not much yet is counted on.
        self.used = if used & !SETTLE < READY { used & !SETTLE } else { 0 };
        let (lists, count) = (std::mem::take(&mut self.lists), std::mem::take(&mut self.count));
        Self { lists, count, images: std::mem::take(&mut self.images), used, evicted: 0 }
    }

    /// Does it.
    pub fn carry_out(self) {
        let used = self.used;
        drop(self);
        if used & !SETTLE >= READY {
            // A large request, too.
            grow_allocator();
        } else if used & SETTLE != 0 {
            settle_allocator();
        }
    }
}

/// Whether an insert of so many positions uses much of what was made ready at once.
#[inline]
pub(super) fn is_much(positions: usize) -> bool {
    bytes(positions) >= READY
}

fn bytes(positions: usize) -> usize {
    positions.saturating_mul(size_of::<u32>()).saturating_add(NODES)
}
