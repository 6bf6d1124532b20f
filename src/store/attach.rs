//! Putting a cache on a page table, and taking it off again.
//!
//! Both take long, and neither under the lock. What a new cache needs is made before. A cache that
//! goes is gone at one moment; then its rows and pages come back in slices, by their numbers, and
//! the rest is dropped by whoever took it off, when the lock is free.
use super::clear::Clears;
use super::group_rows::private_in_groups;
use super::retained::Registry;
use super::sequence::Sequence;
use super::{CacheConfig, PrefixCache, Prober, Shared, State, Turn};
use crate::error::Error;
use crate::grace::{Garbage, One};
use crate::group::Groups;
use crate::index::{IdRange, Tags};
use crate::journal::Reason;
use crate::memory::{grow_allocator, try_collect};
use crate::paging::{PageTable, RowOwner};

/// Another cache may have the tag from now on, with higher numbers than this one gave. O(slots).
fn give_ids_back(tag: u8, cache: &PrefixCache, sequences: &[Sequence]) {
    let last_sequence = sequences.iter().map(|place| place.number).max().unwrap_or(0);
    Tags::of_process().put_back(tag, cache.index.last_generation(), last_sequence);
}

/// Ids that no cache has yet: others may have them unless one gets them.
struct Taken(IdRange);

impl Drop for Taken {
    fn drop(&mut self) {
        Tags::of_process().put_back(self.0.tag, 0, 0);
    }
}

/// What a cache brings with it, made without the lock.
struct Coming {
    cache: PrefixCache,
    sequences: Vec<Sequence>,
    retained: Registry,
    prober: Option<One<Prober>>,
    tag: u8,
    clears: Clears,
}

/// What a cache must fit to.
struct Shape {
    slots: usize,
    page_size: usize,
    groups: Groups,
    /// Of each pool, page 0 included.
    pool_pages: Vec<usize>,
}

/// A cache that is being taken off, and how far that is.
#[derive(Debug)]
pub(super) struct Leaving {
    cache: PrefixCache,
    sequences: Vec<Sequence>,
    /// Heap memory of those.
    sequence_bytes: usize,
    retained: Registry,
    tag: u8,
    /// The next row to look at, from a place on, and then the next page of a pool.
    slot: u32,
    place: usize,
    pool: usize,
    page: u32,
}

impl Leaving {
    /// Heap memory beside the index.
    pub(super) fn bytes(&self) -> usize {
        let places = self.sequences.capacity() * size_of::<Sequence>();
        places + self.sequence_bytes + self.retained.bytes()
    }

    /// Its journal is still written to.
    pub(super) fn cache(&self) -> &PrefixCache {
        &self.cache
    }

    /// Private pages of groups that are still to come back to a pool, from rows.
    pub(super) fn private_in_groups<'a>(
        &'a self,
        table: &'a PageTable,
        pool: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let first = (self.slot as usize).min(self.sequences.len());
        let rows = self.sequences[first..].iter().map(|sequence| &sequence.groups);
        private_in_groups(rows, table, pool)
    }

    /// The same from retained sequences.
    pub(super) fn retained_in_groups<'a>(
        &'a self,
        table: &'a PageTable,
        pool: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let pages = private_in_groups(self.retained.rows(), table, pool);
        pages.filter(move |&page| table.pool_at(pool).is_retained(page))
    }

    /// Pages of retained sequences that are still to come back.
    pub(super) fn private_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.retained.private_pages().filter(|&page| self.pool == 0 && page >= self.page)
    }
}

impl Shared {
    /// Puts a cache on the page table.
    pub fn attach_cache(&self, config: CacheConfig) -> Result<(), Error> {
        let taken = Taken(Tags::of_process().take()?);
        self.attach_with(config, taken.0)?;
        std::mem::forget(taken);
        Ok(())
    }

    fn attach_with(&self, config: CacheConfig, ids: IdRange) -> Result<(), Error> {
        loop {
            let state = self.read();
            state.check_no_cache()?;
            let (last_number, shape) = (state.last_number, state.shape()?);
            drop(state);
            let coming = Coming::new(config, ids, shape, last_number)?;
            // For the first inserts.
            grow_allocator();
            let mut turn = self.turn();
            turn.check_no_cache()?;
            // Unless another one with a journal came and went meanwhile.
            if turn.last_number == last_number {
                let left = turn.attach(coming);
                drop(turn);
                drop(left);
                return Ok(());
            }
        }
    }

    /// Takes the cache off the page table: its sequences end, its pages are free. What a panic left
    /// half done is better leaked than touched, but what is below goes in any case: it has threads,
    /// files, and memory of the engine's.
    pub fn detach_cache(&self) {
        self.detach_lower();
        if self.is_poisoned() {
            return;
        }
        let mut turn = self.turn();
        if !turn.detach() {
            return;
        }
        self.prober.set(None, &mut Garbage::default());
        while turn.put_some_back(self.slice) {
            turn.let_others_in();
        }
        let gone = turn.end_leaving();
        drop(turn);
        give_ids_back(gone.tag, &gone.cache, &gone.sequences);
        drop(gone);
    }
}

impl Coming {
    fn new(
        config: CacheConfig,
        ids: IdRange,
        shape: Shape,
        last_number: u64,
    ) -> Result<Self, Error> {
        let Shape { slots, page_size, groups, pool_pages } = shape;
        let pages = pool_pages[0] - 1;
        let mut sequences = Vec::new();
        sequences.try_reserve_exact(slots).map_err(|_| Error::memory("the sequences"))?;
        let limits = config.limits;
        let mut cache = PrefixCache::new(page_size, ids, config)?;
        // Each node has a page of the pool, but for roots.
        cache.index.expect(pages)?;
        cache.open_groups(&groups, &pool_pages, config.checkpoint_limit)?;
        cache.open_journal(config.journal_bytes, &pool_pages, last_number + 1)?;
        let prober = cache.prober()?.map(One::new).transpose()?;
        let number = ids.first_sequence.max(config.limits.first_sequence) - 1;
        sequences.resize_with(slots, || Sequence { number, ..Sequence::default() });
        let retained = Registry::new(&config, pages);
        let clears = Clears::of(limits.clears).map_err(|_| Error::memory("the clears"))?;
        Ok(Self { cache, sequences, retained, prober, tag: ids.tag, clears })
    }
}

impl State {
    /// Refuses a second cache.
    fn check_no_cache(&self) -> Result<(), Error> {
        if self.cache.is_some() || self.leaving.is_some() { Err(Error::Busy) } else { Ok(()) }
    }

    /// What never changes of a page table.
    fn shape(&self) -> Result<Shape, Error> {
        let table = &self.table;
        let pages = (0..table.pool_count()).map(|pool| table.pool_at(pool).total() + 1);
        Ok(Shape {
            slots: table.slots(),
            page_size: table.page_size(),
            groups: *table.groups(),
            pool_pages: try_collect(pages)?,
        })
    }

    /// The ids of a cache that goes with its page table may not come back either.
    pub(super) fn give_ids_back(&self) {
        if let Some(cache) = &self.cache {
            give_ids_back(self.tag, cache, &self.sequences);
        }
    }

    /// Takes the cache off, if there is one. Its rows and pages are still to be put back.
    fn detach(&mut self) -> bool {
        let Some(cache) = self.cache.take() else { return false };
        (self.live, self.has_let_go) = (0, false);
        self.caches_gone += 1;
        self.leaving = Some(Leaving {
            cache,
            sequences: std::mem::take(&mut self.sequences),
            sequence_bytes: std::mem::take(&mut self.sequence_bytes),
            retained: std::mem::take(&mut self.retained),
            tag: self.tag,
            slot: 0,
            place: 0,
            pool: 0,
            page: 1,
        });
        true
    }

    /// Puts about so many rows and pages of the leaving cache back; false at the end.
    fn put_some_back(&mut self, count: usize) -> bool {
        let (table, leaving) = (&mut self.table, self.leaving.as_mut().expect("a cache leaves"));
        let mut left = count;
        while left > 0 && (leaving.slot as usize) < table.slots() {
            let slot = leaving.slot;
            match table.owner(slot) {
                Some(RowOwner::Sequence) => {
                    let sequence = &mut leaving.sequences[slot as usize];
                    if let Some(copy) = sequence.copy.take() {
                        table.pool.end_loan(copy.source, slot);
                    }
                    sequence.groups.put_some_back(table, slot, &mut left);
                    let len = table.row(slot).map_or(0, <[u32]>::len);
                    let to = len.saturating_sub(left).max(sequence.shared.min(len));
                    left = left.saturating_sub(1 + len - to);
                    table.shorten(slot, to);
                    if to > sequence.shared || !sequence.groups.is_put_back() {
                        return true;
                    }
                    table.release_slot(slot, sequence.shared);
                }
                // What it has of the cache goes.
                Some(RowOwner::Caller) => {
                    let len = table.row(slot).map_or(0, <[u32]>::len);
                    let next = table.cut_some_cached(slot, leaving.place, left);
                    leaving.place = next.unwrap_or(0);
                    if next.is_some() {
                        return true;
                    }
                    left = left.saturating_sub(1 + len);
                }
                None => left -= 1,
            }
            table.reopen(slot);
            // Others may have freed the slot in the middle of its row: the next begins anew.
            (leaving.slot, leaving.place) = (leaving.slot + 1, 0);
        }
        let PrefixCache { journal, groups, .. } = &mut leaving.cache;
        while left > 0 && leaving.pool < table.pool_count() {
            let (at, page, pool) = (leaving.pool, leaving.page, table.pool_at_mut(leaving.pool));
            left -= 1;
            if pool.is_cached(page) {
                pool.put_back_all(&[page]);
                if let Some(journal) = journal.as_mut().filter(|_| at == 0) {
                    if let Some(groups) = groups {
                        groups.tell_destroyed(journal, page);
                    }
                    journal.remove(&[page], Reason::Destroyed);
                }
            } else if pool.is_retained(page) {
                pool.put_back(page);
            }
            let is_last = page as usize == pool.total();
            (leaving.pool, leaving.page) = if is_last { (at + 1, 1) } else { (at, page + 1) };
        }
        if let Some(journal) = journal {
            journal.end_removal();
        }
        leaving.pool < table.pool_count()
    }

    /// Ends it, and keeps the records of its journal; the rest is to be dropped without the lock.
    fn end_leaving(&mut self) -> Leaving {
        let mut gone = self.leaving.take().expect("a cache leaves");
        if let Some(journal) = &mut gone.cache.journal {
            self.keep_records(journal.take_ring());
        }
        gone
    }
}

impl Turn<'_> {
    /// Puts a cache on the page table, which has none. What it takes the place of is to be dropped
    /// without the lock.
    fn attach(&mut self, mut coming: Coming) -> impl Sized + use<> {
        let mut prober = coming.prober.map(One::into_array);
        self.shared.prober.set(prober.as_mut(), &mut Garbage::default());
        let state = self.state();
        std::mem::swap(&mut state.sequences, &mut coming.sequences);
        std::mem::swap(&mut state.retained, &mut coming.retained);
        (state.cache, state.tag) = (Some(coming.cache), coming.tag);
        coming.clears.follow(&state.clears);
        std::mem::swap(&mut state.clears, &mut coming.clears);
        (coming.sequences, coming.retained, coming.clears, state.last_ring.take())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lock::unless_left;
    use crate::paging::PageTableConfig;

    /// M02: a cache that is refused for what another call panicked of has no ids: there are some
    /// for 255 in a process.
    #[test]
    fn m02_a_cache_that_is_refused_after_a_panic_gives_its_ids_back() {
        let page_table = || {
            let config = PageTableConfig { page_count: 9, ..PageTableConfig::default() };
            Shared::new(config).expect("a page table")
        };
        for _ in 0..300 {
            let shared = page_table();
            shared.poison();
            let refused = unless_left(|| shared.attach_cache(CacheConfig::default()));
            assert_eq!(refused, Err(Error::Poisoned));
        }
        page_table().attach_cache(CacheConfig::default()).expect("there are ids");
    }
}
