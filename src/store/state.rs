//! Pages, index and sequences, as one thread at a time sees them.
use super::clear::Clears;
use super::retained::Registry;
use super::sequence::Sequence;
use super::{CacheConfig, PrefixCache, Prober, Shared};
use crate::error::Error;
use crate::grace::{Garbage, One};
use crate::index::{IdRange, Tags};
use crate::journal::Ring;
use crate::memory::Slab;
use crate::paging::{PageTable, PageTableConfig};

/// The highest numbers in the ids of a cache that is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsedIds {
    tag: u8,
    last_generation: u32,
    last_sequence: u64,
}

impl UsedIds {
    /// Another cache may have the tag now, with higher numbers.
    pub(crate) fn give_back(self) {
        Tags::of_process().put_back(self.tag, self.last_generation, self.last_sequence);
    }
}

/// A page table, perhaps with a cache and its sequences.
#[derive(Debug)]
pub struct State {
    pub(crate) table: PageTable,
    pub(crate) cache: Option<PrefixCache>,
    /// By slot.
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) retained: Registry,
    /// What was cleared lately.
    pub(crate) clears: Clears,
    pub(crate) live: usize,
    pub(crate) tag: u8,
    /// Heap memory of the sequences.
    pub(crate) sequence_bytes: usize,
    /// Pages of calls that let others in before they have all that they need.
    pub(crate) early: Slab<Vec<u32>>,
    /// Heap memory of those lists.
    pub(crate) early_bytes: usize,
    /// The records of the last cache, which is gone.
    pub(crate) last_ring: Option<Ring>,
    /// No record of a cache that is gone had a higher number.
    pub(crate) last_number: u64,
}

impl State {
    pub(crate) fn new(config: PageTableConfig) -> Result<Self, Error> {
        Ok(Self {
            table: PageTable::new(config)?,
            cache: None,
            sequences: Vec::new(),
            retained: Registry::default(),
            clears: Clears::default(),
            live: 0,
            tag: 0,
            sequence_bytes: 0,
            early: Slab::default(),
            early_bytes: 0,
            last_ring: None,
            last_number: 0,
        })
    }

    /// Refuses a second cache.
    pub(crate) fn check_no_cache(&self) -> Result<(), Error> {
        if self.cache.is_some() { Err(Error::Busy) } else { Ok(()) }
    }

    /// Puts a cache on the page table, which has none; returns what probes it without a lock.
    pub(crate) fn attach(
        &mut self,
        config: CacheConfig,
        ids: IdRange,
    ) -> Result<Option<One<Prober>>, Error> {
        let slots = self.table.slots();
        let mut sequences = Vec::new();
        sequences.try_reserve_exact(slots).map_err(|_| Error::memory("the sequences"))?;
        let mut cache = PrefixCache::new(self.table.page_size(), ids, config)?;
        cache.journal = self.new_journal(config.journal_bytes)?;
        let prober = cache.prober()?.map(One::new).transpose()?;
        let number = ids.first_sequence.max(config.limits.first_sequence) - 1;
        sequences.resize_with(slots, || Sequence { number, ..Sequence::default() });
        self.sequences = sequences;
        self.retained = Registry::new(&config, self.table.pool.total());
        self.tag = ids.tag;
        self.cache = Some(cache);
        self.last_ring = None;
        Ok(prober)
    }

    /// Takes the cache off, if there is one; returns which ids it used.
    pub(crate) fn detach(&mut self) -> Option<UsedIds> {
        let used = self.used_ids();
        for slot in 0..self.sequences.len() {
            if self.sequences[slot].id.is_some() {
                self.end(slot as u32);
            }
        }
        while self.drop_oldest() {}
        self.table.drop_cached_from_rows();
        if let Some(mut cache) = self.cache.take() {
            self.end_journal(&mut cache);
            let pool = &mut self.table.pool;
            cache.index.visit_all(&mut |pages, _| pool.put_back_all(pages));
        }
        self.sequences = Vec::new();
        self.sequence_bytes = 0;
        self.retained = Registry::default();
        used
    }

    /// The ids that the cache has used, if there is one.
    pub(crate) fn used_ids(&self) -> Option<UsedIds> {
        self.cache.as_ref().map(|cache| UsedIds {
            tag: self.tag,
            last_generation: cache.index.last_generation(),
            last_sequence: self.sequences.iter().map(|place| place.number).max().unwrap_or(0),
        })
    }

    pub(crate) fn cache(&self) -> Result<&PrefixCache, Error> {
        self.cache.as_ref().ok_or_else(no_cache)
    }

    pub(crate) fn parts(&mut self) -> Result<(&mut PrefixCache, &mut PageTable), Error> {
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        Ok((cache, &mut self.table))
    }

    pub(crate) fn reclaimable(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.index.reclaimable_pages())
    }

    /// Pages that an allocation could have.
    pub(crate) fn room(&self) -> usize {
        self.table.pool.free() + self.reclaimable()
    }

    /// Refuses what cannot be had even by evicting everything but `protected` more pages.
    pub(crate) fn check_room(&self, needed: usize, protected: usize) -> Result<(), Error> {
        if needed <= self.table.pool.free() + self.reclaimable() - protected {
            return Ok(());
        }
        Err(Error::OutOfPages(match &self.cache {
            Some(cache) => cache.shortage(&self.table, needed, protected, self.retained.pages()),
            None => crate::error::Shortage {
                needed,
                free: self.table.pool.free(),
                reclaimable: 0,
                locked: 0,
                private: self.table.pool.private(),
                retained: 0,
            },
        }))
    }

    /// Heap memory beside the page table and the index.
    pub(crate) fn bytes(&self) -> usize {
        let places = self.sequences.capacity() * size_of::<Sequence>();
        let early = self.early.bytes() + self.early_bytes;
        let ring = self.last_ring.as_ref().map_or(0, Ring::bytes);
        places + self.sequence_bytes + self.retained.bytes() + early + ring
    }
}

pub(crate) fn no_cache() -> Error {
    Error::state("the page table has no cache")
}

impl Shared {
    /// Puts a cache on the page table.
    pub fn attach_cache(&self, config: CacheConfig) -> Result<(), Error> {
        let mut state = self.write();
        state.check_no_cache()?;
        let ids = Tags::of_process().take()?;
        let attached = state.attach(config, ids);
        if attached.is_err() {
            Tags::of_process().put_back(ids.tag, 0, 0);
        }
        let prober = attached?;
        self.prober.set(prober.map(One::into_array).as_mut(), &mut Garbage::default());
        Ok(())
    }

    /// Takes the cache off the page table: its sequences end, its pages are free.
    pub fn detach_cache(&self) {
        let mut state = self.write();
        self.prober.set(None, &mut Garbage::default());
        if let Some(used) = state.detach() {
            used.give_back();
        }
    }
}
