//! A ring of records: the newest takes the room of the oldest.
//!
//! A record lies in one piece, so that it is read where it is; where it doesn't fit before the end
//! of the memory, it begins at its start. Beside the memory lies the place of each record, by its
//! number, so that any that is there is found at once.
use super::record::{RECORD_WORDS, Record};
use crate::error::{Error, text};
use crate::memory::{OutOfMemory, try_touched_zeros};

/// Where a record begins, and how many words it has.
type Place = [u32; 2];

/// Bytes of a ring for one place: few records are shorter than that.
const BYTES_PER_PLACE: u64 = 64;

/// Records, each with a number one higher than that of the one before.
#[derive(Debug)]
pub struct Ring {
    page_size: usize,
    words: Vec<u32>,
    places: Vec<Place>,
    /// The record that has been there longest; one more than `newest` when there is none.
    oldest: u64,
    newest: u64,
    /// Where the newest record ends.
    end: usize,
}

impl Ring {
    pub(super) fn new(bytes: u64, page_size: usize, first: u64) -> Result<Self, Error> {
        let places = bytes / BYTES_PER_PLACE;
        let words = (bytes - places * size_of::<Place>() as u64) / 4;
        if words > u64::from(u32::MAX) {
            return Err(Error::argument(text!(
                "config.journal_bytes {bytes} is more than a ring may have, 2^34"
            )));
        }
        let no_room = |_: OutOfMemory| Error::memory("the journal: config.journal_bytes");
        Ok(Self {
            page_size,
            words: try_touched_zeros(words as usize).map_err(no_room)?,
            places: try_touched_zeros(places as usize).map_err(no_room)?,
            oldest: first,
            newest: first - 1,
            end: 0,
        })
    }

    /// All of it; there is no room here any more.
    pub(super) fn take(&mut self) -> Self {
        let Self { page_size, oldest, newest, .. } = *self;
        let empty = Self { page_size, words: vec![], places: vec![], oldest, newest, end: 0 };
        std::mem::replace(self, empty)
    }

    /// Words that a record should not exceed, so that several fit. One page always does.
    pub(super) fn record_words(&self) -> usize {
        RECORD_WORDS.min(self.words.len() / 4)
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * 4 + self.places.capacity() * size_of::<Place>()
    }

    /// The number of the record that was written last; records of one cache begin with 1.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The number of the first record that is still there; one more than `newest` for none.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    fn place(&self, number: u64) -> (usize, usize) {
        let [at, words] = self.places[(number % self.places.len() as u64) as usize];
        (at as usize, words as usize)
    }

    /// The place of a new record. Its number is taken before others are dropped for it.
    pub(super) fn push(&mut self, words: usize) -> &mut [u32] {
        assert!(words <= self.words.len(), "a record of {words} words fits into the ring");
        self.newest += 1;
        let held = |ring: &Self| ring.oldest < ring.newest;
        if self.newest - self.oldest == self.places.len() as u64 {
            self.oldest += 1;
        }
        if self.end + words > self.words.len() {
            // What lies behind the end is older than all at the start.
            while held(self) && self.place(self.oldest).0 >= self.end {
                self.oldest += 1;
            }
            self.end = 0;
        }
        let taken = self.end..self.end + words;
        while held(self) && taken.contains(&self.place(self.oldest).0) {
            self.oldest += 1;
        }
        let at = (self.newest % self.places.len() as u64) as usize;
        self.places[at] = [taken.start as u32, words as u32];
        self.end = taken.end;
        &mut self.words[taken]
    }

    /// A record, while it is there.
    pub fn record(&self, number: u64) -> Option<Record<'_>> {
        if !(self.oldest..=self.newest).contains(&number) {
            return None;
        }
        let (at, words) = self.place(number);
        let words = &self.words[at..at + words];
        Some(Record::read(number, self.page_size, words))
    }

    /// Words of a record that is there.
    pub fn words(&self, number: u64) -> usize {
        self.place(number).1
    }
}
