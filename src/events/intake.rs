//! Records, copied while the cache's lock is held, to be worked on when it is not.
use crate::journal::{Record, largest_record};
use crate::memory::{OutOfMemory, TryGrow};
use std::collections::VecDeque;

/// Records that wait, with room for any record.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    page_size: usize,
    words: Vec<u32>,
    /// The number of each, and where it ends.
    records: VecDeque<(u64, usize)>,
    /// Where the first begins.
    begin: usize,
}

/// Records that are copied at once, at most.
const RECORDS: usize = 256;

impl Intake {
    /// For records about pages of so many positions.
    pub fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        let mut words = Vec::new();
        words.try_reserve_exact(2 * largest_record(page_size))?;
        let mut records = VecDeque::new();
        records.try_reserve_exact(RECORDS)?;
        Ok(Self { page_size, words, records, begin: 0 })
    }

    /// Takes a record if there is room. Asks for no memory.
    pub fn take(&mut self, record: &Record<'_>) -> bool {
        let words = record.words();
        if self.records.len() == RECORDS || self.words.len() + words.len() > self.words.capacity() {
            return false;
        }
        let room = self.words.try_extend_from_slice(words);
        debug_assert!(room.is_ok(), "room was made");
        self.records.push_back((record.number, self.words.len()));
        true
    }

    /// The record that waits longest.
    pub fn first(&self) -> Option<Record<'_>> {
        let &(number, end) = self.records.front()?;
        Some(Record::read(number, self.page_size, &self.words[self.begin..end]))
    }

    /// Drops that one.
    pub fn drop_first(&mut self) {
        let Some((_, end)) = self.records.pop_front() else { return };
        self.begin = end;
        if self.records.is_empty() {
            self.clear();
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.words.clear();
        self.records.clear();
        self.begin = 0;
    }
}
