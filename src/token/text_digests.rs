//! Digests of the first pages of a list, made before a lookup needs them.
use super::keys::all_text;
use super::page_digest::{PageDigest, PageHasher};
use super::scratch::Scratches;
use std::ops::Deref;
use std::slice::ChunksExact;

/// Digests in a scratch that is kept, at most: a mebibyte of them.
const DIGESTS_KEPT: usize = 1 << 15;

static SCRATCHES: Scratches<Vec<PageDigest>> = Scratches::new();

/// Digests of the first pages of a list, which are text. None of them is made twice.
#[derive(Debug, Default)]
pub struct TextDigests(Vec<PageDigest>);

impl Deref for TextDigests {
    type Target = [PageDigest];

    #[inline]
    fn deref(&self) -> &[PageDigest] {
        &self.0
    }
}

impl Drop for TextDigests {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            keep(std::mem::take(&mut self.0));
        }
    }
}

#[cold]
fn keep(digests: Vec<PageDigest>) {
    if digests.capacity() <= DIGESTS_KEPT {
        SCRATCHES.keep(digests);
    }
}

/// Makes them, some at a time.
pub struct TextDigester<'a> {
    hasher: PageHasher,
    parent: PageDigest,
    left: ChunksExact<'a, u32>,
    made: TextDigests,
}

impl<'a> TextDigester<'a> {
    /// Of the pages of `ids` up to the first with what is no text id; `parent` stands before them.
    pub fn new(page_size: usize, parent: PageDigest, ids: &'a [u32]) -> Self {
        let mut made = TextDigests(SCRATCHES.take());
        made.0.clear();
        let left = ids.chunks_exact(page_size);
        Self { hasher: PageHasher::new(page_size), parent, left, made }
    }

    /// Makes the next ones, so many at most. Whether there are more, and memory for them.
    pub fn make(&mut self, count: usize) -> bool {
        if self.made.0.try_reserve(count.min(self.left.len())).is_err() {
            return false;
        }
        for ids in self.left.by_ref().take(count) {
            if !all_text(ids) {
                return false;
            }
            self.parent = self.hasher.text(&self.parent, ids);
            self.made.0.push(self.parent);
        }
        self.left.len() > 0
    }

    /// Those that were made.
    pub fn made(self) -> TextDigests {
        self.made
    }

    /// The same so far.
    pub fn made_so_far(&self) -> &[PageDigest] {
        &self.made
    }
}
