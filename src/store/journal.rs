//! Reading the journal beside calls that change the cache: in slices of a few microseconds, between
//! which whoever waits gets in.
use super::attach::Leaving;
use super::{PrefixCache, Shared, State};
use crate::error::{Error, text};
use crate::journal::{Journal, Record, Ring, Scratch};

/// Words that a reader looks at before it lets others in, for each page of a slice of other calls:
/// 2048 in all.
const WORDS_PER_PAGE: usize = 4;

/// How far records were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRead {
    /// The number up to which everything was read, or is lost.
    pub last: u64,
    /// The newest record that there is.
    pub newest: u64,
    /// The first one that is still there; one more than the newest for none.
    pub oldest: u64,
    /// Records after the one that was asked for that are gone: none of them was read.
    pub lost: u64,
}

/// How far the contents were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentsRead {
    /// The first page that is still to be told; 0 for none.
    pub next_page: u32,
    /// The newest record when the call began: records after it are to be applied to what was told.
    pub number: u64,
    /// The newest record when the call ended: when all up to it are applied, what was told is
    /// right.
    pub newest: u64,
}

impl State {
    /// Whether the page table has a cache right now.
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Pages of each pool of a cache with a journal, page 0 included.
    pub fn journal_pages(&self) -> Result<&[usize], Error> {
        Ok(journal_of(self.cache()?)?.pool_pages())
    }

    /// Keeps the records of a cache that is gone.
    pub(super) fn keep_records(&mut self, ring: Ring) {
        self.last_number = ring.newest();
        self.last_ring = Some(ring);
    }

    /// The records of the cache, or of the last one.
    fn ring(&self) -> Result<&Ring, Error> {
        match self.cache.as_ref().or(self.leaving.as_ref().map(Leaving::cache)) {
            Some(cache) => Ok(journal_of(cache)?.ring()),
            None => self.last_ring.as_ref().ok_or_else(|| {
                Error::state("the page table has no cache, and its last one had no journal")
            }),
        }
    }
}

fn journal_of(cache: &PrefixCache) -> Result<&Journal, Error> {
    let journal = cache.journal.as_deref();
    journal.ok_or_else(|| Error::state("the cache has no journal: config.journal_bytes was 0"))
}

impl Shared {
    fn words(&self) -> usize {
        self.slice * WORDS_PER_PAGE
    }

    /// Gives `take` the records after a number, in order, until it returns false or all are read
    /// that were there when the call began.
    pub fn read_journal(
        &self,
        after: u64,
        take: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> Result<JournalRead, Error> {
        let mut begun: Option<JournalRead> = None;
        loop {
            let state = self.read();
            let ring = match (state.ring(), begun) {
                // The cache went in between, and another one without a journal came.
                (Err(_), Some(read)) => return Ok(read),
                (ring, _) => ring?,
            };
            let (newest, oldest) = (ring.newest(), ring.oldest());
            if after > newest {
                return Err(Error::argument(text!(
                    "after_number {after} is beyond the newest record, {newest}"
                )));
            }
            let read = *begun.get_or_insert_with(|| {
                let first = oldest.max(after + 1);
                JournalRead { last: first - 1, newest, oldest, lost: first - 1 - after }
            });
            let (mut last, end) = (read.last, read.newest);
            let (mut left, mut more) = (self.words(), true);
            while more && last < end && left > 0 {
                // What others have overwritten meanwhile is seen as lost by the next call.
                let Some(record) = ring.record(last + 1) else {
                    more = false;
                    break;
                };
                left = left.saturating_sub(ring.words(last + 1));
                more = take(&record);
                last += more as u64;
            }
            if !more || last == end {
                return Ok(JournalRead { last, newest, oldest, ..read });
            }
            begun = Some(JournalRead { last, ..read });
            drop(state);
            self.without_lock();
        }
    }

    /// Gives `take` all pages that are held, by their places from one on, as records that were
    /// stored, until it returns false. Pages that change meanwhile may be told or not: the records
    /// say what became of them.
    pub fn read_contents(
        &self,
        first_page: u32,
        take: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> Result<ContentsRead, Error> {
        let mut begun: Option<(u64, usize)> = None;
        let page_size = self.read().table.page_size();
        let mut scratch = Scratch::new(page_size)?;
        loop {
            let state = self.read();
            let cache = state.cache()?;
            let journal = journal_of(cache)?;
            let (count, newest) = (journal.place_count(), journal.ring().newest());
            let (number, at) = *begun.get_or_insert((newest, first_page as usize));
            if at >= count {
                return Err(Error::argument(text!(
                    "first_page {first_page} is not below the page table's {count} pages"
                )));
            }
            let from = (at.max(1), number);
            let what = (&cache.images, cache.groups.as_ref().map(|groups| &groups.hung));
            let (next, more) = journal.tell_contents(what, from, self.words(), &mut scratch, take);
            if !more || next == count {
                let next_page = if next == count { 0 } else { next as u32 };
                return Ok(ContentsRead { next_page, number, newest });
            }
            begun = Some((number, next));
            drop(state);
            self.without_lock();
        }
    }

    /// Gives `take` the page of a place, and those behind it that a record tells with it, if it is
    /// held. Returns the newest record: when all up to it are applied, what was told is right.
    pub fn read_page(
        &self,
        page: u32,
        take: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> Result<u64, Error> {
        let state = self.read();
        let cache = state.cache()?;
        let journal = journal_of(cache)?;
        let newest = journal.ring().newest();
        let mut scratch = Scratch::new(state.table.page_size())?;
        let what = (&cache.images, cache.groups.as_ref().map(|groups| &groups.hung));
        // A word is less than any record, and than the next place.
        journal.tell_contents(what, (page as usize, newest), 1, &mut scratch, take);
        Ok(newest)
    }
}
