//! The segment of a node: its keys and its pages, contiguous, in one allocation.
//!
//! Dropping pages at either end only moves an end: a split at the front of a long segment, or a
//! trim of its tail, copies nothing. What is dropped is freed when it exceeds an eighth of what is
//! left, so that each dropped page pays for a bounded amount of copying and memory follows the live
//! pages.

use super::row::Row;
use crate::grace::{Array, Garbage};
use crate::memory::OutOfMemory;
use crate::sync::Ordering::Relaxed;

/// Keys and pages of a segment. `words` holds room for the keys of `capacity` pages, then for the
/// pages. Readers see the keys. Those that they may have seen stay as they are: room is used again
/// only when nobody reads.
#[derive(Debug, Default)]
pub(super) struct Label {
    /// None: no pages.
    words: Option<Array<u32>>,
    start: u32,
    len: u32,
    capacity: u32,
}

/// Keys, and their pages.
type Parts<'a> = (&'a [u32], &'a [u32]);

impl Label {
    pub(super) fn new(page_size: usize, keys: &[u32], pages: &[u32]) -> Result<Self, OutOfMemory> {
        Self::concat(page_size, (keys, pages), (&[], &[]), 0)
    }

    /// Two segments in a row, with room for `spare` pages more.
    fn concat(
        page_size: usize,
        (keys, pages): Parts<'_>,
        (more_keys, more_pages): Parts<'_>,
        spare: usize,
    ) -> Result<Self, OutOfMemory> {
        debug_assert_eq!(keys.len(), pages.len() * page_size);
        debug_assert_eq!(more_keys.len(), more_pages.len() * page_size);
        let len = pages.len() + more_pages.len();
        let capacity = len + spare;
        let mut words = Array::with_capacity(capacity * (1 + page_size))?;
        words.extend_from_slice(keys);
        words.extend_from_slice(more_keys);
        words.show(len * page_size);
        words.extend_with(spare * page_size, 0);
        words.extend_from_slice(pages);
        words.extend_from_slice(more_pages);
        words.extend_with(spare, 0);
        Ok(Self { words: Some(words), start: 0, len: len as u32, capacity: capacity as u32 })
    }

    /// Pages in the segment.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    fn words(&self) -> &[u32] {
        self.words.as_deref().unwrap_or(&[])
    }

    pub(super) fn pages(&self) -> &[u32] {
        let words = self.words();
        let start = words.len() - (self.capacity - self.start) as usize;
        &words[start..start + self.len as usize]
    }

    #[inline]
    pub(super) fn keys(&self, page_size: usize) -> &[u32] {
        let start = self.start as usize * page_size;
        &self.words()[start..start + self.len as usize * page_size]
    }

    /// Shows the keys to readers, while the row says that it is changing.
    pub(super) fn publish(&mut self, page_size: usize, row: &Row, garbage: &mut Garbage) {
        row.first_key.store(self.start * page_size as u32, Relaxed);
        row.key_count.store(self.len * page_size as u32, Relaxed);
        row.words.set(self.words.as_mut(), garbage);
    }

    pub(super) fn first_page_keys(&self, page_size: usize) -> &[u32] {
        &self.keys(page_size)[..page_size]
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.as_ref().map_or(0, Array::bytes)
    }

    /// What `split_front` needs: a copy of the smaller part.
    pub(super) fn copy_for_split(
        &self,
        page_size: usize,
        count: usize,
    ) -> Result<Self, OutOfMemory> {
        let (keys, pages) = (self.keys(page_size), self.pages());
        if self.has_smaller_front(count) {
            Self::new(page_size, &keys[..count * page_size], &pages[..count])
        } else {
            Self::new(page_size, &keys[count * page_size..], &pages[count..])
        }
    }

    fn has_smaller_front(&self, count: usize) -> bool {
        count <= self.len() / 2
    }

    /// Takes the first `count` pages off.
    pub(super) fn split_front(&mut self, page_size: usize, count: usize, copy: Self) -> Self {
        debug_assert!(0 < count && count < self.len());
        if self.has_smaller_front(count) {
            self.start += count as u32;
            self.len -= count as u32;
            self.shrink(page_size);
            copy
        } else {
            let mut front = std::mem::replace(self, copy);
            front.truncate(page_size, count);
            front
        }
    }

    /// Keeps the first `count` pages.
    pub(super) fn truncate(&mut self, page_size: usize, count: usize) {
        debug_assert!(count <= self.len());
        self.len = count as u32;
        self.shrink(page_size);
    }

    /// Puts `front`, which is of no use afterwards, before this segment, in the room of either of
    /// them where there is enough.
    pub(super) fn prepend(
        &mut self,
        page_size: usize,
        front: &mut Self,
    ) -> Result<(), OutOfMemory> {
        let (keys, pages) = (self.keys(page_size), self.pages());
        if front.write_behind(page_size, (keys, pages)) {
            *self = std::mem::take(front);
            return Ok(());
        }
        let (keys, pages) = (front.keys(page_size), front.pages());
        if self.write_before(page_size, (keys, pages)) {
            return Ok(());
        }
        let own = (self.keys(page_size), self.pages());
        *self = Self::concat(page_size, (keys, pages), own, 0)?;
        Ok(())
    }

    /// Puts pages behind this segment. Room grows by an eighth, so that a segment which is extended
    /// page by page is copied a constant number of times.
    pub(super) fn append(
        &mut self,
        page_size: usize,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<(), OutOfMemory> {
        if !self.write_behind(page_size, (keys, pages)) {
            let own = (self.keys(page_size), self.pages());
            let spare = (self.len() + pages.len()) / 8;
            *self = Self::concat(page_size, own, (keys, pages), spare)?;
        }
        Ok(())
    }

    /// False when there is no room, or a reader may look at it.
    fn write_behind(&mut self, page_size: usize, more: Parts<'_>) -> bool {
        let end = (self.start + self.len) as usize;
        let fits = (self.capacity as usize) - end >= more.1.len();
        let written = fits && self.write(page_size, end, more);
        self.len += if written { more.1.len() as u32 } else { 0 };
        written
    }

    /// False when there is no room, or a reader may look at it.
    fn write_before(&mut self, page_size: usize, more: Parts<'_>) -> bool {
        let count = more.1.len() as u32;
        let fits = self.start >= count;
        let written = fits && self.write(page_size, (self.start - count) as usize, more);
        if written {
            self.start -= count;
            self.len += count;
        }
        written
    }

    /// Writes pages into the room, unless a reader may look there, and shows them.
    fn write(&mut self, page_size: usize, index: usize, (keys, pages): Parts<'_>) -> bool {
        let (key_at, page_at) = (index * page_size, self.capacity as usize * page_size + index);
        let shown = ((self.start + self.len) as usize * page_size).max(key_at + keys.len());
        let Some(array) = &mut self.words else {
            return false;
        };
        if !array.hide(key_at) {
            return false;
        }
        let (hidden, words) = array.hidden_mut();
        words[key_at - hidden..][..keys.len()].copy_from_slice(keys);
        words[page_at - hidden..][..pages.len()].copy_from_slice(pages);
        array.show(shown);
        true
    }

    /// Without memory for a smaller one the larger one stays.
    fn shrink(&mut self, page_size: usize) {
        if self.capacity > self.len + self.len / 8
            && let Ok(smaller) = Self::new(page_size, self.keys(page_size), self.pages())
        {
            *self = smaller;
        }
    }
}
