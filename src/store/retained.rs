//! Finished sequences that others may go on from: a bounded registry, the first to finish goes
//! first.
//!
//! An entry is the sequence as it was, with its lock, the keys after its node and the page that it
//! computed in part; the slot is gone, and with it the row, of which the index knows the rest. So
//! its pages can't be evicted, and a child is made from it as from a live parent.
use super::group_keep::{Dropped, KeptWindows};
use super::group_rows::{ByPool, GroupRows};
use super::long_query::HeldImages;
use super::sequence::Sequence;
use super::{CacheConfig, PrefixCache, State, Turn};
use crate::error::Error;
use crate::group::HungPage;
use crate::ids::SequenceId;
use crate::memory::{OrderedMap, OutOfMemory, try_collect};
use crate::paging::PageTable;

/// Sequences that are retained at most, unless the configuration says otherwise.
const SEQUENCE_LIMIT: usize = 1024;

/// A retained sequence.
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) sequence: Sequence,
    /// The page after the shared ones, if it was computed in part.
    pub(crate) partial: Option<u32>,
    /// When it finished, among the retained.
    pub(crate) finished: u64,
}

/// The retained sequences of a cache.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) entries: OrderedMap<SequenceId, Retained>,
    /// Ids in the order in which they finished.
    pub(crate) order: OrderedMap<u64, SequenceId>,
    finished: u64,
    /// Pages of their own that they keep in group 0, and in the others by pool.
    private_count: usize,
    private_in_groups: ByPool,
    /// Heap memory of the sequences.
    pub(crate) sequence_bytes: usize,
    pub(crate) sequence_limit: usize,
    pub(crate) page_limit: usize,
    /// Calls that let go what is more than the limits, or look at them when they end.
    pub(super) calls_above: usize,
    /// Pages that those have still to let go of, at most: they look at the limits again then.
    leaving: usize,
}

impl Registry {
    pub(crate) fn new(config: &CacheConfig, total_pages: usize) -> Self {
        let or = |given: u32, default: usize| if given == 0 { default } else { given as usize };
        Self {
            sequence_limit: or(config.retained_sequences, SEQUENCE_LIMIT),
            page_limit: or(config.retained_pages, total_pages / 2),
            ..Self::default()
        }
    }

    /// Retained sequences.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Pages that they keep, each counted once.
    pub(crate) fn pages(&self, cache: Option<&PrefixCache>) -> usize {
        self.private_count + cache.map_or(0, |cache| cache.index.retained_pages())
    }

    /// Pages that they keep in the groups beside the first, in one pool, each counted once.
    pub(crate) fn pages_in_groups(&self, pool: usize, cache: &PrefixCache) -> usize {
        let hung = cache.groups.as_ref().map(|groups| &groups.hung);
        hung.map_or(0, |hung| hung.retained(pool) + self.private_in_groups[pool])
    }

    /// Counts what an entry keeps in the groups beside the first, or ends that; not what a call
    /// has kept of windows.
    fn count_in_groups(
        &mut self,
        sequence: &Sequence,
        (cache, table): (&mut PrefixCache, &PageTable),
        (begins, are_kept): (bool, bool),
    ) {
        let Some(groups) = cache.groups.as_deref_mut() else { return };
        let (hung, rows) = (&mut groups.hung, &sequence.groups);
        for page in rows.behind(rows.private_from(table, sequence.shared)) {
            let private = &mut self.private_in_groups[hung.pool_of(page.group)];
            if begins { *private += 1 } else { *private -= 1 }
        }
        let mut count = |page: HungPage| {
            if table.pool_at(hung.pool_of(page.group)).is_cached(page.page) {
                if begins { hung.retain(page) } else { hung.retain_no_more(page) }
            }
        };
        if !are_kept {
            rows.sparse(table, true).for_each(&mut count);
        }
        rows.ends(table).for_each(count);
    }

    /// The number of the one that finished last.
    pub(super) fn last_finished(&self) -> u64 {
        self.finished
    }

    pub(crate) fn get(&self, id: SequenceId) -> Option<&Retained> {
        self.entries.get(&id)
    }

    pub(crate) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.entries.iter().map(|(_, entry)| &entry.sequence)
    }

    /// Their rows in the groups beside the first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &GroupRows> {
        self.sequences().map(|sequence| &sequence.groups)
    }

    /// The private pages of all entries.
    pub(crate) fn private_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().filter_map(|(_, entry)| entry.partial)
    }

    fn ids(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.order.iter().map(|(_, id)| *id)
    }

    /// Heap memory.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.bytes() + self.order.bytes() + self.sequence_bytes
    }

    /// Makes room for one more.
    pub(crate) fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        self.entries.try_reserve(1)?;
        self.order.try_reserve(1)
    }

    /// Adds a sequence, for which room was made, with the page that it computed in part. A call may
    /// have kept its windows.
    pub(crate) fn add(
        &mut self,
        sequence: Sequence,
        (partial, kept): (Option<u32>, Option<KeptWindows>),
        (cache, table): (&mut PrefixCache, &PageTable),
    ) {
        if let Some(base) = sequence.base {
            cache.index.retain(base);
        }
        self.private_count += partial.is_some() as usize;
        self.count_in_groups(&sequence, (cache, table), (true, kept.is_some()));
        if let Some(kept) = kept {
            cache.leave_kept(kept);
        }
        let id = sequence.id.expect("it was a sequence");
        self.sequence_bytes += sequence.bytes();
        self.finished += 1;
        self.order.insert(self.finished, id);
        self.entries.insert(id, Retained { sequence, partial, finished: self.finished });
    }

    /// Whether there is more than the limits allow, without what others let go of already.
    fn is_above_limits(&self, cache: Option<&PrefixCache>) -> bool {
        let pages = self.pages(cache).saturating_sub(self.leaving);
        self.len() > self.sequence_limit || pages > self.page_limit
    }

    /// Pages of group 0 that one shares: no more go with it in portions.
    fn shared_by(&self, id: SequenceId, cache: Option<&PrefixCache>) -> usize {
        let base = self.get(id).and_then(|entry| entry.sequence.base);
        base.zip(cache).map_or(0, |(base, cache)| cache.index.end_page(base))
    }

    /// Takes an entry out. Its base is kept still, and so is what it keeps of groups where that is
    /// longer than others should wait for: rows that leave, returned beside it.
    fn remove(
        &mut self,
        id: SequenceId,
        (cache, table): (&mut PrefixCache, &mut PageTable),
        slice: usize,
    ) -> Option<(Retained, Option<u32>)> {
        let mut entry = self.entries.remove(&id)?;
        self.sequence_bytes -= entry.sequence.bytes();
        self.order.remove(&entry.finished);
        self.private_count -= entry.partial.is_some() as usize;
        let Sequence { groups: rows, shared, .. } = &mut entry.sequence;
        let private = |pool: usize| self.private_in_groups[pool] -= 1;
        let rows = cache.set_kept_aside((rows, *shared), (table, slice), private);
        self.count_in_groups(&entry.sequence, (cache, table), (false, false));
        Some((entry, rows))
    }
}

impl State {
    /// Drops a retained sequence, but for what is to be undone on nodes and on long chains.
    fn end_retained(
        &mut self,
        id: SequenceId,
        slice: usize,
    ) -> Result<(Sequence, HeldImages, Dropped), Error> {
        let gone = self.caches_gone;
        let Self { retained, cache, table, .. } = self;
        let cache = cache.as_mut().ok_or_else(super::no_cache)?;
        let Some((entry, rows)) = retained.remove(id, (cache, table), slice) else {
            return Err(match self.live_sequence(id) {
                Some(_) => Error::LiveSequence(id.0),
                None => self.no_sequence(id),
            });
        };
        let Retained { mut sequence, partial, .. } = entry;
        let at = cache.leave_images(std::mem::take(&mut sequence.images), slice);
        if let Some(page) = partial {
            table.pool.put_back(page);
        }
        // Nothing of it is to be copied any more: no slot has a part in it.
        self.end_groups(&sequence.groups, u32::MAX, true);
        let (locked, kept) = (sequence.lock, sequence.base);
        Ok((sequence, HeldImages { at, gone }, Dropped { locked, kept, rows }))
    }

    /// Of the next few sequences in the order in which they finished, after one and up to another,
    /// finds the first that was cleared. Returns it, and the number to go on with; None for that at
    /// the end.
    fn next_cleared(
        &self,
        (after, last): (u64, u64),
        few: usize,
    ) -> (Option<SequenceId>, Option<u64>) {
        let (registry, end) = (&self.retained, last);
        let (mut last, mut seen) = (after, 0);
        let next = registry.order.from(&(after + 1)).take_while(|&(&finished, _)| finished <= end);
        for (&finished, &id) in next.take(few) {
            (last, seen) = (finished, seen + 1);
            let entry = registry.get(id).expect("it is retained");
            if self.is_cleared(&entry.sequence) {
                return (Some(id), Some(last));
            }
        }
        (None, (seen == few).then_some(last))
    }

    /// The one that finished first, which gives way because something else needs the room.
    fn next_displaced(&mut self) -> Option<SequenceId> {
        let oldest = self.retained.ids().next()?;
        if let Some(cache) = self.cache.as_mut() {
            cache.counters.displaced += 1;
        }
        Some(oldest)
    }

    /// The retained sequences, those that finished first at the front.
    pub fn retained_ids(&self) -> Result<Vec<SequenceId>, Error> {
        let mut ids = self.retained.ids();
        let listed = (0..self.retained.len()).map(|_| ids.next().expect("there are so many"));
        try_collect(listed).map_err(|_| Error::memory("the list of retained sequences"))
    }
}

impl Turn<'_> {
    /// Drops a retained sequence.
    pub fn drop_retained(&mut self, id: SequenceId) -> Result<(), Error> {
        let gone = self.caches_gone;
        self.state().retained.calls_above += 1;
        let dropped = self.drop_one(id);
        if gone == self.caches_gone {
            self.state().retained.calls_above -= 1;
            // It may share with who was retained meanwhile what was taken for leaving.
            self.displace_surplus();
        }
        dropped
    }

    /// Who retains meanwhile need not make room for what leaves.
    fn drop_one(&mut self, id: SequenceId) -> Result<(), Error> {
        let (gone, leaving) = (self.caches_gone, self.retained.shared_by(id, self.cache.as_ref()));
        self.state().retained.leaving += leaving;
        let dropped = self.let_retained_go(id);
        if gone == self.caches_gone {
            self.state().retained.leaving -= leaving;
        }
        dropped
    }

    fn let_retained_go(&mut self, id: SequenceId) -> Result<(), Error> {
        let slice = self.shared.slice;
        let (sequence, images, dropped) = self.end_retained(id, slice)?;
        if dropped.rows.is_some() {
            // To give memory back takes the system longer than others should wait for.
            let gone = self.caches_gone;
            self.end_dropped(dropped);
            self.unlocked(|| drop(sequence));
            if gone != self.caches_gone {
                return Ok(());
            }
        } else {
            self.end_dropped(dropped);
        }
        self.let_images_go(images);
        self.drop_let_go();
        Ok(())
    }

    /// The same of the next cleared one, if it is among a few after one and up to another. Returns
    /// whether there was one, and the number to go on with; None for that at the end.
    pub(super) fn drop_next_cleared(
        &mut self,
        numbers: (u64, u64),
        few: usize,
    ) -> (bool, Option<u64>) {
        let (found, next) = self.next_cleared(numbers, few);
        (found.is_some_and(|id| self.drop_retained(id).is_ok()), next)
    }

    /// Drops those that finished first until there is no more than the limits allow.
    pub(crate) fn displace_surplus(&mut self) {
        let gone = self.caches_gone;
        self.state().retained.calls_above += 1;
        while self.retained.is_above_limits(self.cache.as_ref()) {
            let oldest = self.state().next_displaced();
            let Some(oldest) = oldest else { break };
            self.drop_one(oldest).expect("it is retained");
            if gone != self.caches_gone {
                return;
            }
        }
        self.state().retained.calls_above -= 1;
    }

    /// The same of the one that finished first, because something else needs the room. False when
    /// there is none.
    pub(crate) fn displace(&mut self) -> bool {
        let oldest = self.state().next_displaced();
        oldest.map(|id| self.drop_retained(id).expect("it is retained")).is_some()
    }
}
