//! The segment of a node: its keys and its pages, contiguous, in one allocation.
//!
//! Dropping pages at either end only moves an end: a split at the front of a long segment, or a
//! trim of its tail, copies nothing. What is dropped is freed when it exceeds an eighth of what is
//! left, so that each dropped page pays for a bounded amount of copying and memory follows the live
//! pages.

/// Keys and pages of a segment. `words` holds room for `capacity` pages, then for their keys.
#[derive(Debug, Default)]
pub(super) struct Label {
    words: Box<[u32]>,
    start: u32,
    len: u32,
    capacity: u32,
}

impl Label {
    pub(super) fn new(page_size: usize, keys: &[u32], pages: &[u32]) -> Self {
        Self::concat(page_size, (keys, pages), (&[], &[]), 0)
    }

    /// Two segments in a row, with room for `spare` pages more.
    fn concat(
        page_size: usize,
        (keys, pages): (&[u32], &[u32]),
        (more_keys, more_pages): (&[u32], &[u32]),
        spare: usize,
    ) -> Self {
        debug_assert_eq!(keys.len(), pages.len() * page_size);
        debug_assert_eq!(more_keys.len(), more_pages.len() * page_size);
        let len = pages.len() + more_pages.len();
        let capacity = len + spare;
        let mut words = Vec::with_capacity(capacity * (1 + page_size));
        words.extend_from_slice(pages);
        words.extend_from_slice(more_pages);
        words.resize(capacity, 0);
        words.extend_from_slice(keys);
        words.extend_from_slice(more_keys);
        words.resize(capacity * (1 + page_size), 0);
        Self { words: words.into(), start: 0, len: len as u32, capacity: capacity as u32 }
    }

    /// Pages in the segment.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn pages(&self) -> &[u32] {
        let start = self.start as usize;
        &self.words[start..start + self.len as usize]
    }

    pub(super) fn keys(&self, page_size: usize) -> &[u32] {
        let start = self.capacity as usize + self.start as usize * page_size;
        &self.words[start..start + self.len as usize * page_size]
    }

    pub(super) fn first_page_keys(&self, page_size: usize) -> &[u32] {
        &self.keys(page_size)[..page_size]
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Takes the first `count` pages off; copies the smaller part.
    pub(super) fn split_front(&mut self, page_size: usize, count: usize) -> Self {
        debug_assert!(0 < count && count < self.len());
        let (keys, pages) = (self.keys(page_size), self.pages());
        if count <= self.len() / 2 {
            let front = Self::new(page_size, &keys[..count * page_size], &pages[..count]);
            self.start += count as u32;
            self.len -= count as u32;
            self.shrink(page_size);
            front
        } else {
            let rest = Self::new(page_size, &keys[count * page_size..], &pages[count..]);
            let mut front = std::mem::replace(self, rest);
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

    /// Puts `front` before this segment, in the room of either of them where there is enough.
    pub(super) fn prepend(&mut self, page_size: usize, mut front: Self) {
        if front.room_behind() >= self.len() {
            front.write_behind(page_size, self);
            *self = front;
        } else if self.start >= front.len {
            let (start, count) = (self.start as usize - front.len(), front.len());
            let keys_at = self.capacity as usize + start * page_size;
            self.words[start..start + count].copy_from_slice(front.pages());
            self.words[keys_at..keys_at + count * page_size].copy_from_slice(front.keys(page_size));
            self.start = start as u32;
            self.len += front.len;
        } else {
            let (first, second) =
                ((front.keys(page_size), front.pages()), (self.keys(page_size), self.pages()));
            *self = Self::concat(page_size, first, second, 0);
        }
    }

    /// Puts pages behind this segment. Room grows by an eighth, so that a segment which is extended
    /// page by page is copied a constant number of times.
    pub(super) fn append(&mut self, page_size: usize, keys: &[u32], pages: &[u32]) {
        let more = Self::new(page_size, keys, pages);
        if self.room_behind() >= more.len() {
            self.write_behind(page_size, &more);
        } else {
            let (first, second) = ((self.keys(page_size), self.pages()), (keys, pages));
            let spare = (self.len() + pages.len()) / 8;
            *self = Self::concat(page_size, first, second, spare);
        }
    }

    fn room_behind(&self) -> usize {
        (self.capacity - self.start - self.len) as usize
    }

    fn write_behind(&mut self, page_size: usize, more: &Self) {
        let (end, count) = ((self.start + self.len) as usize, more.len());
        let keys_at = self.capacity as usize + end * page_size;
        self.words[end..end + count].copy_from_slice(more.pages());
        self.words[keys_at..keys_at + count * page_size].copy_from_slice(more.keys(page_size));
        self.len += more.len;
    }

    fn shrink(&mut self, page_size: usize) {
        if self.capacity > self.len + self.len / 8 {
            *self = Self::new(page_size, self.keys(page_size), self.pages());
        }
    }
}
