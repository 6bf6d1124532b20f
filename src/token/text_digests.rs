//! Digests of the first pages of a list, made before a lookup needs them.
use super::keys::{self, all_text};
use super::page_digest::{PageDigest, PageHasher};
use super::scratch::Scratches;
use std::ops::Deref;

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
    left: &'a [u32],
    made: TextDigests,
}

impl<'a> TextDigester<'a> {
    /// Of the pages of `ids` up to the first with what is no text id; `parent` stands before them.
    pub fn new(page_size: usize, parent: PageDigest, ids: &'a [u32]) -> Self {
        let mut made = TextDigests(SCRATCHES.take());
        made.0.clear();
        Self { hasher: PageHasher::new(page_size), parent, left: ids, made }
    }

    /// Makes the next ones, so many at most. Whether there are more, and memory for them.
    pub fn make(&mut self, count: usize) -> bool {
        if self.made.0.try_reserve(count.min(self.left.len() / self.hasher.page_size())).is_err() {
            return false;
        }
        let page_size = self.hasher.page_size();
        let count = count.min(self.left.len() / page_size);
        let (ids, left) = self.left.split_at(count * page_size);
        let is_text = all_text(ids);
        let text = match is_text {
            true => ids.len(),
            false => ids.iter().take_while(|&&id| keys::is_text(id)).count(),
        };
        let Self { hasher, parent, made, .. } = self;
        *parent = hasher.texts(*parent, &ids[..text], |digest| made.0.push(digest));
        self.left = left;
        is_text && left.len() >= page_size
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
