//! What the cache holds, as changes in order: a bounded ring of records, and beside it a mirror
//! that says of each page what it holds now.
//!
//! ```text
//!   a page enters ──► mirror[page] = what it holds ──► record "stored"  ──► ring ──► readers
//!   a page leaves ──► mirror[page] = nothing       ──► record "removed" ──► ring
//! ```
//!
//! A record is complete in itself: nodes and pages may be gone when somebody reads it. The mirror
//! makes two things possible: all that is held can be told page by page, in slices and without the
//! tree, and an eviction needs to name nothing but pages. It is the same for every kind of index,
//! and neither splits nor merges of nodes touch it.
//!
//! Writing a change down never fails: whatever may need memory is asked for by
//! [`Journal::try_reserve`], before the change.
#![forbid(unsafe_code)]

mod check;
mod mirror;
mod names;
mod record;
mod ring;

pub use record::{Parts, Reason, Record, What};
pub use ring::Ring;

use crate::error::{Error, text};
use crate::index::Namespace;
use crate::memory::OutOfMemory;
use crate::token::{Images, Keys};
use mirror::Mirror;
use record::{Draft, RECORD_PAGES, SCRATCH_WORDS};

/// Pages that came in, one after another in a prefix.
#[derive(Debug, Clone, Copy)]
pub struct Entered<'a> {
    /// The namespace, for pages at the beginning of a prefix: others have that of their parent.
    pub namespace: &'a Namespace,
    /// The page before them; 0 when they begin a prefix.
    pub parent: u32,
    /// The pages.
    pub pages: &'a [u32],
    /// The keys of all their positions.
    pub keys: Keys<'a>,
}

/// The ring and the mirror of one cache.
#[derive(Debug)]
pub struct Journal {
    ring: Ring,
    mirror: Mirror,
    /// Pages that left and are in no record yet; none between two calls.
    left: [u32; RECORD_PAGES],
    left_count: usize,
    /// Why those left.
    left_reason: Reason,
}

impl Journal {
    /// The journal of an empty cache: a ring of so many bytes, of which the first record gets the
    /// number `first`, and a mirror for pages below `page_count`.
    pub fn new(bytes: u64, page_size: usize, page_count: usize, first: u64) -> Result<Self, Error> {
        let least = 1024 + 256 * page_size as u64;
        if bytes < least {
            return Err(Error::argument(text!(
                "config.journal_bytes {bytes} is less than the {least} of the smallest ring for \
                 pages of {page_size} positions"
            )));
        }
        let no_room = |_| Error::memory("the journal: config.journal_bytes");
        Ok(Self {
            ring: Ring::new(bytes, page_size, first)?,
            mirror: Mirror::new(page_size, page_count).map_err(no_room)?,
            left: [0; RECORD_PAGES],
            left_count: 0,
            left_reason: Reason::Capacity,
        })
    }

    /// The records.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The records alone, when the cache is gone.
    pub fn into_ring(self) -> Ring {
        self.ring
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.ring.bytes() + self.mirror.bytes()
    }

    /// Makes room for what the next pages may bring with them: a namespace.
    pub fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        self.mirror.names.try_reserve()
    }

    /// Writes down pages that came in; room was made.
    pub fn store(&mut self, entered: Entered<'_>) {
        self.mirror.store(&entered);
        let page_size = self.mirror.page_size();
        let limit = self.ring.record_words();
        let (mut parent, mut pages) = (entered.parent, entered.pages);
        let mut keys = entered.keys.keys;
        while !pages.is_empty() {
            let images = entered.keys.images;
            let draft = |count: usize| Draft {
                stored: self.mirror.stored(parent, &pages[..count]),
                keys: Keys { keys: &keys[..count * page_size], images },
                open: self.mirror.open_before(pages[0]),
            };
            let (count, words) = fitting(pages.len().min(RECORD_PAGES), limit, draft);
            draft(count).write(self.ring.push(words));
            parent = pages[count - 1];
            (pages, keys) = (&pages[count..], &keys[count * page_size..]);
        }
    }

    /// Writes down pages that left, the last of them first. They come into records together, until
    /// `end_removal`. Those that were cleared before left for that reason.
    pub fn remove(&mut self, pages: &[u32], reason: Reason) {
        for &page in pages.iter().rev() {
            let reason = match self.mirror.remove(page) {
                Some(true) => reason,
                Some(false) => Reason::Invalidated,
                None => continue,
            };
            if reason != self.left_reason || self.left_count == RECORD_PAGES {
                self.end_removal();
            }
            self.left_reason = reason;
            self.left[self.left_count] = page;
            self.left_count += 1;
        }
    }

    /// Completes the record of the pages that left last.
    pub fn end_removal(&mut self) {
        let left = &self.left[..std::mem::take(&mut self.left_count)];
        if !left.is_empty() {
            let into = self.ring.push(record::removed_words(left.len()));
            record::write_removed(into, left, self.left_reason);
        }
    }

    /// Writes down that nothing of a namespace can be found any more. O(log(namespaces)).
    pub fn clear(&mut self, namespace: &Namespace) {
        if self.mirror.clear(namespace) {
            record::write_cleared(self.ring.push(record::CLEARED_WORDS), namespace);
        }
    }

    /// Pages that could be held, page 0 included.
    pub fn page_count(&self) -> usize {
        self.mirror.page_count()
    }

    /// Gives `take` what is held from a page number on, as records of `number` that were never in
    /// the ring, until it returns false or about so many words were looked at. Returns the first
    /// page that is still to be told.
    pub fn tell_contents(
        &self,
        images: &Images,
        (first, number): (usize, u64),
        words: usize,
        take: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> (usize, bool) {
        let page_size = self.mirror.page_size();
        let mut scratch = [0; SCRATCH_WORDS];
        let (mut at, mut seen) = (first, 0);
        while at < self.mirror.page_count() && seen < words {
            let Some(count) = self.mirror.run(at, SCRATCH_WORDS) else {
                at += 1;
                seen += 1;
                continue;
            };
            let mut pages = [0; RECORD_PAGES];
            (at as u32..).zip(&mut pages[..count]).for_each(|(page, place)| *place = page);
            let draft = |count: usize| Draft {
                stored: self.mirror.stored_now(&pages[..count]),
                keys: Keys { keys: self.mirror.keys_of(at, count), images },
                open: self.mirror.open_before(pages[0]),
            };
            let (count, words) = fitting(count, SCRATCH_WORDS, draft);
            draft(count).write(&mut scratch[..words]);
            if !take(&Record::read(number, page_size, &scratch[..words])) {
                return (at, false);
            }
            at += count;
            seen += words;
        }
        (at, true)
    }
}

/// As many pages, up to a count, as make a record within a limit, or one page; and the words of
/// that record.
fn fitting<'a>(most: usize, limit: usize, draft: impl Fn(usize) -> Draft<'a>) -> (usize, usize) {
    let mut count = most;
    loop {
        let words = draft(count).words();
        if count == 1 || words <= limit {
            return (count, words);
        }
        count /= 2;
    }
}
