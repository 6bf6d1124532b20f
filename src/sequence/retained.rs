//! Finished sequences that others may go on from: a bounded registry, the first to finish goes
//! first.
//!
//! An entry is the sequence as it was, with its lock, the keys after its node and the page that it
//! computed in part; the slot is gone, and with it the row, of which the index knows the rest. So
//! its pages can't be evicted, and a child is made from it as from a live parent.
use super::{Sequence, State};
use crate::cache::{CacheConfig, PrefixCache};
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::memory::{OrderedMap, OutOfMemory, try_collect, try_to_vec, try_zeros};

/// Sequences that are retained at most, unless the configuration says otherwise.
const SEQUENCE_LIMIT: usize = 1024;

/// A retained sequence.
#[derive(Debug)]
pub(super) struct Retained {
    pub(super) sequence: Sequence,
    /// The page after the shared ones, if it was computed in part.
    pub(super) partial: Option<u32>,
    /// When it finished, among the retained.
    finished: u64,
}

impl Retained {
    /// Calls `visit` with the pages that it keeps: those that its lock protects and its own.
    fn visit_pages(&self, cache: &PrefixCache, visit: &mut dyn FnMut(&[u32])) {
        if let Some(base) = self.sequence.base {
            cache.index.visit_path(base, &mut |_, pages| visit(pages));
        }
        visit(self.partial.as_slice());
    }
}

/// The retained sequences of a cache.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: OrderedMap<SequenceId, Retained>,
    /// Ids in the order in which they finished.
    order: OrderedMap<u64, SequenceId>,
    finished: u64,
    /// For each page the retained sequences that keep it. Empty until there is one.
    keepers: Vec<u32>,
    /// Pages that somebody keeps.
    pages: usize,
    /// Heap memory of the sequences.
    sequence_bytes: usize,
    sequence_limit: usize,
    page_limit: usize,
}

impl Registry {
    pub(super) fn new(config: &CacheConfig, total_pages: usize) -> Self {
        let or = |given: u32, default: usize| if given == 0 { default } else { given as usize };
        Self {
            sequence_limit: or(config.retained_sequences, SEQUENCE_LIMIT),
            page_limit: or(config.retained_pages, total_pages / 2),
            ..Self::default()
        }
    }

    /// Retained sequences.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Pages that they keep, each counted once.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn get(&self, id: SequenceId) -> Option<&Retained> {
        self.entries.get(&id)
    }

    pub(super) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.entries.iter().map(|(_, entry)| &entry.sequence)
    }

    /// The private pages of all entries.
    pub(super) fn private_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().filter_map(|(_, entry)| entry.partial)
    }

    fn ids(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.order.iter().map(|(_, id)| *id)
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        let maps = self.entries.bytes() + self.order.bytes();
        maps + self.keepers.capacity() * size_of::<u32>() + self.sequence_bytes
    }

    /// Makes room for one more, in a table of so many pages.
    fn try_reserve(&mut self, total_pages: usize) -> Result<(), OutOfMemory> {
        self.entries.try_reserve(1)?;
        self.order.try_reserve(1)?;
        if self.keepers.is_empty() {
            self.keepers = try_zeros(total_pages + 1)?;
        }
        Ok(())
    }

    fn add(&mut self, entry: Retained, cache: &PrefixCache) {
        let (keepers, kept) = (&mut self.keepers, &mut self.pages);
        entry.visit_pages(cache, &mut |pages| {
            let mut first = 0;
            for &page in pages {
                let count = &mut keepers[page as usize];
                first += (*count == 0) as usize;
                *count += 1;
            }
            *kept += first;
        });
        let id = entry.sequence.id.expect("it was a sequence");
        self.sequence_bytes += entry.sequence.bytes();
        self.order.insert(entry.finished, id);
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: SequenceId, cache: &PrefixCache) -> Option<Retained> {
        let entry = self.entries.remove(&id)?;
        self.sequence_bytes -= entry.sequence.bytes();
        self.order.remove(&entry.finished);
        let (keepers, kept) = (&mut self.keepers, &mut self.pages);
        entry.visit_pages(cache, &mut |pages| {
            let mut last = 0;
            for &page in pages {
                let count = &mut keepers[page as usize];
                *count -= 1;
                last += (*count == 0) as usize;
            }
            *kept -= last;
        });
        Some(entry)
    }
}

impl State {
    /// Ends a sequence like `release`, but keeps what was published of it, its tokens, and the page
    /// that was computed in part. The first to finish give way to it. False when it alone is more
    /// than the limit allows: it was released then.
    pub fn retain(&mut self, id: SequenceId) -> Result<bool, Error> {
        let sequence = self.sequence(id)?;
        if self.is_cleared(sequence) {
            // Nobody may go on from it.
            self.release(id)?;
            return Ok(false);
        }
        let cache = self.cache()?;
        let page_size = self.table.page_size();
        let computed = sequence.computed(page_size);
        let shared = sequence.shared;
        debug_assert!((shared..=shared + 1).contains(&computed.div_ceil(page_size)));
        let has_partial = cache.shares_parts() && computed > shared * page_size;
        let partial = has_partial.then(|| self.table.row(id.slot()).expect("it is live")[shared]);
        if sequence.base_pages + has_partial as usize > self.retained.page_limit {
            self.release(id)?;
            return Ok(false);
        }
        let no_room = |_| Error::memory("a retained sequence");
        let tail = try_to_vec(sequence.tail()).map_err(no_room)?;
        self.retained.try_reserve(self.table.pool.total()).map_err(no_room)?;

        let slot = id.slot();
        self.end_copy(slot);
        self.table.retire_row(slot, shared, partial);
        let ended = self.vacate(slot);
        self.keep_tail(slot, ended.tail);
        self.retained.finished += 1;
        let finished = self.retained.finished;
        let sequence = Sequence { tail, tail_start: 0, computed, ..ended };
        let cache = self.cache.as_ref().expect("a sequence has a cache");
        self.retained.add(Retained { sequence, partial, finished }, cache);
        while self.retained.len() > self.retained.sequence_limit
            || self.retained.pages > self.retained.page_limit
        {
            self.displace();
        }
        Ok(true)
    }

    /// Drops a retained sequence.
    pub fn drop_retained(&mut self, id: SequenceId) -> Result<(), Error> {
        let Self { retained, cache, table, .. } = self;
        let cache = cache.as_mut().ok_or_else(super::state::no_cache)?;
        let entry = retained.remove(id, cache).ok_or_else(|| super::no_sequence(table, id))?;
        cache.images.release(&entry.sequence.images);
        if let Some(page) = entry.partial {
            table.pool.put_back(page);
        }
        if let Some(node) = entry.sequence.lock {
            self.let_go(node);
        }
        Ok(())
    }

    /// Of the next few sequences in the order in which they finished, after one, finds the first
    /// that was cleared, and drops it. Returns whether there was one, and the number to go on with;
    /// None for that at the end.
    pub(super) fn drop_next_cleared(&mut self, after: u64, few: usize) -> (bool, Option<u64>) {
        let registry = &self.retained;
        let (mut last, mut seen, mut found) = (after, 0, None);
        for (&finished, &id) in registry.order.from(&(after + 1)).take(few) {
            (last, seen) = (finished, seen + 1);
            let entry = registry.get(id).expect("it is retained");
            if self.is_cleared(&entry.sequence) {
                found = Some(id);
                break;
            }
        }
        if let Some(id) = found {
            self.drop_retained(id).expect("it is retained");
        }
        (found.is_some(), (found.is_some() || seen == few).then_some(last))
    }

    /// Drops the one that finished first, if there is one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let oldest = self.retained.ids().next();
        oldest.map(|id| self.drop_retained(id).expect("it is retained")).is_some()
    }

    /// The same, because something else needs the room.
    pub(super) fn displace(&mut self) -> bool {
        let displaced = self.drop_oldest();
        if let Some(cache) = self.cache.as_mut() {
            cache.counters.displaced += displaced as u64;
        }
        displaced
    }

    /// Pages that an allocation could have.
    pub(super) fn room(&self) -> usize {
        self.table.pool.free() + self.reclaimable()
    }

    /// The retained sequences, those that finished first at the front.
    pub fn retained_ids(&self) -> Result<Vec<SequenceId>, Error> {
        let mut ids = self.retained.ids();
        let listed = (0..self.retained.len()).map(|_| ids.next().expect("there are so many"));
        try_collect(listed).map_err(|_| Error::memory("the list of retained sequences"))
    }

    /// The row that an entry stands for.
    fn row_of(&self, entry: &Retained) -> Result<Vec<u32>, Error> {
        let mut row = Vec::new();
        row.try_reserve_exact(entry.sequence.shared + 1).map_err(OutOfMemory::from)?;
        row.resize(entry.sequence.shared, 0);
        if let Some(base) = entry.sequence.base {
            self.cache()?.index.visit_path(base, &mut |start, pages| {
                let places = row.iter_mut().skip(start);
                places.zip(pages).for_each(|(place, &page)| *place = page);
            });
        }
        row.extend(entry.partial);
        Ok(row)
    }

    pub(super) fn audit_retained(&self) -> Result<(), Error> {
        let registry = &self.retained;
        let wrong = |what: &str| Err(Error::Corrupt(text!("retained: {what}")));
        let (mut keepers, mut bytes) = (try_zeros::<u32>(registry.keepers.len())?, 0);
        for (id, entry) in registry.entries.iter() {
            bytes += entry.sequence.bytes();
            if registry.order.get(&entry.finished) != Some(id) {
                return wrong("a sequence has no place in the order");
            }
            self.audit_sequence(&entry.sequence, &self.row_of(entry)?)?;
            if entry.sequence.copy.is_some() || entry.sequence.lock != entry.sequence.base {
                return wrong("a sequence still has a copy to make");
            }
            entry.visit_pages(self.cache()?, &mut |pages| {
                pages.iter().for_each(|&page| keepers[page as usize] += 1);
            });
        }
        let kept = keepers.iter().filter(|&&count| count > 0).count();
        if bytes != registry.sequence_bytes {
            return wrong("the memory of the sequences is not what is counted");
        }
        if registry.order.len() != registry.len() || keepers != registry.keepers {
            return wrong("the counts of the pages are not those of the sequences");
        }
        let too_many = registry.len() > registry.sequence_limit || kept > registry.page_limit;
        if kept != registry.pages || too_many {
            return wrong("there is more than the limit, or more than is counted");
        }
        Ok(())
    }
}
