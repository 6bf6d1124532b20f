//! Entries of what a store had when it was opened.
use super::lower::Lower;
use super::note::Note;
use super::place::{Link, Mark, Place, key, number};
use super::remote::NUMBERS;
use crate::error::Error;
use crate::grace::prefetch_all;
use crate::memory::{Arc, OutOfMemory};
use crate::snapshot::cache::Ahead;
use crate::snapshot::count;
use crate::snapshot::freed::Snapshot;
use crate::snapshot::spot::Spot;
use crate::tier::processors::{beside, processors};
use crate::tier::{FoundRecords, Key, Record};

/// Records that become entries while another thread reads what the next ones say.
const BATCH: usize = 1 << 13;
/// Records of which memory is fetched while those before them become entries: in steps, of which
/// each looks at what the one before it brought.
const AHEAD: [usize; 3] = [24, 16, 8];

/// A record that is about to become an entry.
struct Noted {
    key: Key,
    /// None when it makes no sense.
    found: Option<(Note, Box<Snapshot<Place>>)>,
    /// Of where it will be, when that is known.
    hash: Option<u64>,
}

impl Noted {
    /// What a record says. `spare` is memory for its tokens.
    fn read(link: &Arc<Link>, record: Record, spare: Vec<u32>) -> Result<Self, OutOfMemory> {
        let Record { key: key_of, bytes, note: encoded } = record;
        let number = number(&key_of);
        // What this cache has given: the numbers after it are needed.
        let is_ours = (1..NUMBERS / 2).contains(&number) && key_of == key(number);
        let is_right = |note: &Note| is_ours && note.bytes() == bytes;
        let mut found = None;
        if let Some(note) = Note::decode(&encoded, spare)?.filter(is_right) {
            let mark = Arc::new(Mark::new(link, number))?;
            let place = Place::of_record(link, &mark, &note, encoded.len())?;
            found = Some((note, place));
        }
        Ok(Self { key: key_of, found, hash: None })
    }

    /// The next ones, no more than `most`. `spare` is memory for tokens.
    fn read_next(
        link: &Arc<Link>,
        records: &mut impl Iterator<Item = Record>,
        most: usize,
        mut spare: Vec<Vec<u32>>,
    ) -> Result<Vec<Self>, OutOfMemory> {
        let mut batch = Vec::new();
        batch.try_reserve_exact(most)?;
        for record in records.take(most) {
            batch.push(Self::read(link, record, spare.pop().unwrap_or_default())?);
        }
        Ok(batch)
    }
}

impl Lower {
    /// Makes entries of records, least recently used first.
    pub(super) fn fill(&mut self, records: FoundRecords) -> Result<(), Error> {
        let count = records.len();
        self.index.expect(count)?;
        let (has_help, most) = (processors(count) > 1, BATCH.min(count));
        let (link, mut records) = (self.link.clone(), records.into_iter());
        let mut batch = Noted::read_next(&link, &mut records, most, Vec::new())?;
        let mut spare = Vec::new();
        while !batch.is_empty() {
            let read = || Noted::read_next(&link, &mut records, most, std::mem::take(&mut spare));
            let (next, tokens) = beside(has_help, read, || self.find_again(batch));
            (batch, spare) = (next?, tokens?);
        }
        Ok(())
    }

    /// Makes entries of some. Returns memory of tokens.
    fn find_again(&mut self, batch: Vec<Noted>) -> Result<Vec<Vec<u32>>, Error> {
        let mut tokens = Vec::new();
        tokens.try_reserve_exact(batch.len()).map_err(OutOfMemory::from)?;
        let mut batch = batch.into_iter();
        while let Some(Noted { key, found, .. }) = batch.next() {
            self.fetch_ahead(batch.as_mut_slice());
            let number = number(&key);
            let table = self.table.get_mut();
            if number < NUMBERS / 2 {
                table.next = table.next.max(number + 1);
            }
            let is_found = match found {
                None => false,
                Some((note, place)) => {
                    let is_found = self.find_one_again(number, &note, place)?;
                    tokens.push(note.tokens);
                    is_found
                }
            };
            if !is_found {
                self.link.store.remove(key);
                count(&mut self.table.get_mut().counters.unusable, 1);
            }
        }
        Ok(tokens)
    }

    /// Has memory fetched that the next ones wait for. Another thread wrote what they say.
    fn fetch_ahead(&self, next: &mut [Noted]) {
        let [first, second, third] = AHEAD;
        if let Some(Noted { found: Some((note, place)), .. }) = next.get(first) {
            prefetch_all(&note.tokens);
            prefetch_all(std::slice::from_ref(&**place));
        }
        if let Some(Noted { found: Some((note, _)), hash, .. }) = next.get_mut(second) {
            *hash = self.index.fetch_place(&note.namespace, &note.tokens);
        }
        if let Some(Noted { hash: Some(hash), .. }) = next.get(third) {
            self.index.fetch_node(*hash);
        }
    }

    /// Makes an entry of a record. False if none can be made, or there is a later one.
    fn find_one_again(
        &self,
        number: u64,
        note: &Note,
        place: Box<Snapshot<Place>>,
    ) -> Result<bool, Error> {
        let is_later = |place: &Place| place.mark.number > number;
        let (spot, there) = self.index.spot_of(note.list(Spot::NONE), is_later);
        if there == Some(true) {
            return Ok(false);
        }
        // Nobody waits meanwhile: what it leads to is made when it is put there.
        Ok(self.add(note, place, true, Ahead::at(spot))?.is_some())
    }
}
