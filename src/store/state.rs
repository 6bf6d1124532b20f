//! Pages, index and sequences, as one thread at a time sees them.
use super::PrefixCache;
use super::attach::Leaving;
use super::clear::Clears;
use super::early::EarlyPages;
use super::housekeeping::Housekeeping;
use super::retained::Registry;
use super::sequence::Sequence;
use crate::error::Error;
use crate::journal::Ring;
use crate::memory::Slab;
use crate::paging::{PageTable, PageTableConfig};

/// A page table, perhaps with a cache and its sequences.
#[derive(Debug)]
pub struct State {
    pub(crate) table: PageTable,
    pub(crate) cache: Option<PrefixCache>,
    /// The cache that is being taken off.
    pub(super) leaving: Option<Leaving>,
    /// By slot.
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) retained: Registry,
    /// What was cleared lately.
    pub(crate) clears: Clears,
    /// Cleared pages may wait to be dropped that nobody holds any more.
    pub(super) has_let_go: bool,
    /// Caches that were taken off.
    pub(crate) caches_gone: u64,
    pub(crate) live: usize,
    pub(crate) tag: u8,
    /// Heap memory of the sequences.
    pub(crate) sequence_bytes: usize,
    /// Pages of calls that let others in before they have all that they need.
    pub(crate) early: Slab<EarlyPages>,
    /// Heap memory of those lists.
    pub(crate) early_bytes: usize,
    /// What is to be done without the lock.
    pub(crate) housekeeping: Housekeeping,
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
            leaving: None,
            sequences: Vec::new(),
            retained: Registry::default(),
            clears: Clears::default(),
            has_let_go: false,
            caches_gone: 0,
            live: 0,
            tag: 0,
            sequence_bytes: 0,
            early: Slab::default(),
            early_bytes: 0,
            housekeeping: Housekeeping::default(),
            last_ring: None,
            last_number: 0,
        })
    }

    pub(crate) fn cache(&self) -> Result<&PrefixCache, Error> {
        self.cache.as_ref().ok_or_else(no_cache)
    }

    pub(crate) fn parts(&mut self) -> Result<(&mut PrefixCache, &mut PageTable), Error> {
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        Ok((cache, &mut self.table))
    }

    /// Pages of pool 0 that evictions free at once.
    #[inline]
    pub(crate) fn reclaimable(&self) -> usize {
        self.reclaimable_in(0)
    }

    /// Refuses what cannot be had even by evicting everything but `protected` more pages.
    #[inline]
    pub(crate) fn check_room(&self, needed: usize, protected: usize) -> Result<(), Error> {
        // A tier may be copying what is protected: that is not taken from the free pages besides.
        let reclaimable = self.reclaimable().saturating_sub(protected);
        if needed <= self.table.pool.free() + reclaimable {
            return Ok(());
        }
        self.short_of_room(needed, protected)
    }

    #[cold]
    fn short_of_room(&self, needed: usize, protected: usize) -> Result<(), Error> {
        Err(Error::OutOfPages(match &self.cache {
            Some(cache) => {
                let retained = self.retained_in_pool(0);
                cache.shortage(&self.table, needed, protected, retained)
            }
            None => crate::error::Shortage {
                pool: 0,
                needed,
                free: self.table.pool.free(),
                reclaimable: 0,
                // Those of a cache that is being taken off.
                locked: self.table.pool.cached(),
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
        let leaving = self.leaving.as_ref().map_or(0, Leaving::bytes);
        let clears = self.clears.bytes();
        places + self.sequence_bytes + self.retained.bytes() + early + ring + leaving + clears
    }
}

pub(crate) fn no_cache() -> Error {
    Error::state("the page table has no cache")
}
