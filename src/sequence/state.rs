//! Pages, index and sequences, as one thread at a time sees them.
use super::Sequence;
use super::clear::{Clears, LET_GO};
use super::retained::Registry;
use crate::cache::{
    CacheConfig, Counters, Found, InsertRequest, InsertResult, Matched, Namespace, PrefixCache,
    Prober, WithPartial,
};
use crate::error::{Error, text};
use crate::grace::One;
use crate::ids::{LockId, NodeId};
use crate::index::{DumpFormat, IdRange, Node, NodeInfo, Tags};
use crate::journal::{Reason, Ring};
use crate::memory::{OutOfMemory, Slab, TryGrow, try_collect};
use crate::paging::{BatchArrays, BatchRow, PageTable, PageTableConfig, RowOwner};
use crate::token::TokenList;

/// Pages by state, and slots.
#[derive(Debug, Clone, Copy)]
pub struct PageTableStats {
    /// Positions of a page.
    pub page_size: usize,
    /// Pages that can be handed out.
    pub total: usize,
    /// Pages in the pool.
    pub free: usize,
    /// Pages of the cache.
    pub cached: usize,
    /// Pages of rows, retained sequences, open copies and callers.
    pub private: usize,
    /// Pages of an external pool that are not cached.
    pub outside: usize,
    /// Cached pages that eviction could free.
    pub reclaimable: usize,
    /// Rows.
    pub slots: usize,
    /// Rows not in use.
    pub free_slots: usize,
    /// Host memory.
    pub memory_bytes: usize,
}

/// Totals of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheStats {
    /// Pages of the cache.
    pub cached_pages: usize,
    /// Pages that eviction could free.
    pub reclaimable_pages: usize,
    /// Nodes.
    pub nodes: usize,
    /// Nodes without children.
    pub prefixes: usize,
    /// Namespaces.
    pub namespaces: usize,
    /// Sequences.
    pub sequences: usize,
    /// Retained sequences.
    pub retained_sequences: usize,
    /// Pages that those keep.
    pub retained_pages: usize,
    /// Images.
    pub images: usize,
    /// Host memory of the index.
    pub index_bytes: usize,
    /// Locks of callers.
    pub locks: usize,
    /// What was counted.
    pub counters: Counters,
}

/// The highest numbers in the ids of a cache that is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedIds {
    tag: u8,
    last_generation: u32,
    last_sequence: u64,
}

impl UsedIds {
    /// Another cache may have the tag now, with higher numbers.
    pub(super) fn give_back(self) {
        Tags::of_process().put_back(self.tag, self.last_generation, self.last_sequence);
    }
}

/// A page table, perhaps with a cache and its sequences.
#[derive(Debug)]
pub struct State {
    pub(super) table: PageTable,
    pub(super) cache: Option<PrefixCache>,
    /// By slot.
    pub(super) sequences: Vec<Sequence>,
    pub(super) retained: Registry,
    /// What was cleared lately.
    pub(super) clears: Clears,
    pub(super) live: usize,
    pub(super) tag: u8,
    /// Heap memory of the sequences.
    pub(super) sequence_bytes: usize,
    /// Pages of calls that let others in before they have all that they need.
    pub(super) early: Slab<Vec<u32>>,
    /// Heap memory of those lists.
    pub(super) early_bytes: usize,
    /// The records of the last cache, which is gone.
    pub(super) last_ring: Option<Ring>,
    /// No record of a cache that is gone had a higher number.
    pub(super) last_number: u64,
}

impl State {
    pub(super) fn new(config: PageTableConfig) -> Result<Self, Error> {
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
    pub(super) fn check_no_cache(&self) -> Result<(), Error> {
        if self.cache.is_some() { Err(Error::Busy) } else { Ok(()) }
    }

    /// Puts a cache on the page table, which has none; returns what probes it without a lock.
    pub(super) fn attach(
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
    pub(super) fn detach(&mut self) -> Option<UsedIds> {
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
    pub(super) fn used_ids(&self) -> Option<UsedIds> {
        self.cache.as_ref().map(|cache| UsedIds {
            tag: self.tag,
            last_generation: cache.index.last_generation(),
            last_sequence: self.sequences.iter().map(|place| place.number).max().unwrap_or(0),
        })
    }

    pub(super) fn cache(&self) -> Result<&PrefixCache, Error> {
        self.cache.as_ref().ok_or_else(no_cache)
    }

    fn parts(&mut self) -> Result<(&mut PrefixCache, &mut PageTable), Error> {
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        Ok((cache, &mut self.table))
    }

    pub(super) fn reclaimable(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.index.reclaimable_pages())
    }

    /// Refuses what cannot be had even by evicting everything but `protected` more pages.
    pub(super) fn check_room(&self, needed: usize, protected: usize) -> Result<(), Error> {
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

    /// Evicts up to `count` pages into the pool.
    pub fn evict(&mut self, count: usize, reason: Reason, report: &mut dyn FnMut(&[u32])) -> usize {
        match &mut self.cache {
            Some(cache) => cache.evict(&mut self.table, count, reason, report),
            None => 0,
        }
    }

    /// Heap memory beside the page table and the index.
    fn bytes(&self) -> usize {
        let places = self.sequences.capacity() * size_of::<Sequence>();
        let early = self.early.bytes() + self.early_bytes;
        let ring = self.last_ring.as_ref().map_or(0, Ring::bytes);
        places + self.sequence_bytes + self.retained.bytes() + early + ring
    }

    // The page table

    /// Pages by state, and slots.
    pub fn page_table_stats(&self) -> PageTableStats {
        let (table, pool) = (&self.table, &self.table.pool);
        PageTableStats {
            page_size: table.page_size(),
            total: pool.total(),
            free: pool.free(),
            cached: pool.cached(),
            private: pool.private(),
            outside: pool.outside(),
            reclaimable: self.reclaimable(),
            slots: table.slots(),
            free_slots: table.free_slots(),
            memory_bytes: table.bytes() + self.bytes(),
        }
    }

    /// Refuses what an external pool has no pages and no rows for.
    pub fn check_own_pool(&self) -> Result<(), Error> {
        self.table.pool.check_own()
    }

    /// Takes a slot for the caller.
    pub fn allocate_slot(&mut self) -> Result<u32, Error> {
        self.table.take_slot(RowOwner::Caller)
    }

    /// Empties a caller's row and gives the slot back.
    pub fn erase(&mut self, slot: u32) -> Result<(), Error> {
        self.table.erase(slot)
    }

    /// Puts loose pages back.
    pub fn free_pages(&mut self, pages: &[u32]) -> Result<(), Error> {
        self.table.pool.free_loose(pages)
    }

    /// Appends pages to a caller's row.
    pub fn map(&mut self, slot: u32, first_index: usize, pages: &[u32]) -> Result<(), Error> {
        self.table.map(slot, first_index, pages)
    }

    /// Whether a row, or a new one, could hold so many positions.
    pub fn can_reserve(&self, slot: Option<u32>, positions: usize) -> Result<bool, Error> {
        let mapped = match slot {
            Some(slot) => self.table.row(slot)?.len(),
            None => self.check_own_pool().map(|()| 0)?,
        };
        let Ok(pages) = self.table.pages_for(positions, "position_count") else {
            return Ok(false);
        };
        let has_slot = slot.is_some() || self.table.free_slots() > 0;
        Ok(has_slot && self.check_room(pages.saturating_sub(mapped), 0).is_ok())
    }

    /// Positions that a row has pages for.
    pub fn row_capacity(&self, slot: u32) -> Result<usize, Error> {
        Ok(self.table.row(slot)?.len() * self.table.page_size())
    }

    /// The pages of a row from an index on.
    pub fn row_from(&self, slot: u32, first_index: usize) -> Result<&[u32], Error> {
        let row = self.table.row(slot)?;
        row.get(first_index..).ok_or_else(|| {
            Error::argument(text!("first_index {first_index} is beyond the row's {}", row.len()))
        })
    }

    /// KV positions of row positions.
    pub fn slot_mapping(
        &self,
        slot: u32,
        positions: &[u64],
        write: impl FnMut(usize, i64),
    ) -> Result<(), Error> {
        self.table.slot_mapping(slot, positions, write)
    }

    /// The arrays for a batch.
    pub fn batch(&self, rows: &[BatchRow]) -> Result<BatchArrays, Error> {
        self.table.batch(rows)
    }

    /// Proves page by page that each is in exactly one state.
    pub fn audit(&self) -> Result<(), Error> {
        let mut cached = Vec::new();
        if let Some(cache) = &self.cache {
            cached.try_reserve_exact(self.table.pool.cached()).map_err(OutOfMemory::from)?;
            let mut listed = Ok(());
            cache.index.visit_all(&mut |pages, _| {
                listed = listed.and_then(|()| cached.try_extend_from_slice(pages));
            });
            listed?;
        }
        let early = self.early.iter().flatten().copied();
        self.table.audit(cached.into_iter(), self.retained.private_pages(), early)?;
        for sequence in self.sequences.iter().filter(|sequence| sequence.id.is_some()) {
            self.audit_live(sequence)?;
        }
        let bytes: usize = self.sequences.iter().map(Sequence::bytes).sum();
        if bytes != self.sequence_bytes {
            return Err(Error::Corrupt(text!("sequence_bytes: {bytes} counted")));
        }
        self.audit_retained()
    }

    // The cache

    /// How far a token list is cached.
    pub fn find(&self, namespace: &Namespace, tokens: TokenList<'_>) -> Result<Found, Error> {
        self.cache()?.find(namespace, tokens)
    }

    /// Takes a match, and perhaps locks it.
    #[inline]
    pub fn take_match(
        &mut self,
        found: Found,
        lock: bool,
    ) -> Result<(Matched, Option<LockId>), Error> {
        let (cache, _) = self.parts()?;
        if lock {
            cache.reserve_lock()?;
        }
        let with = if lock { WithPartial::Locked } else { WithPartial::Named };
        let matched = cache.take(&found, with)?;
        let partial = matched.partial.map_or(0, |partial| partial.positions);
        cache.count_lookup(&found, found.positions(), partial);
        let locked = matched.deepest().filter(|_| lock).map(|node| cache.lock_node(node));
        Ok((matched, locked))
    }

    /// Calls `segment` with the pages of each node of a prefix, and the place of the first of them
    /// in it.
    pub fn visit_path(
        &self,
        node: Option<Node>,
        mut segment: impl FnMut(usize, &[u32]),
    ) -> Result<(), Error> {
        if let Some(node) = node {
            self.cache()?.index.visit_path(node, &mut segment);
        }
        Ok(())
    }

    /// The id of a node; 0 for none.
    pub fn node_id(&self, node: Option<Node>) -> Result<u64, Error> {
        let cache = self.cache()?;
        Ok(node.map_or(0, |node| cache.index.id(node).0))
    }

    /// Publishes pages that a caller holds.
    pub fn insert(&mut self, request: InsertRequest<'_>) -> Result<InsertResult, Error> {
        let (cache, table) = self.parts()?;
        cache.insert(table, request)
    }

    /// Protects a node.
    pub fn lock(&mut self, node: NodeId) -> Result<LockId, Error> {
        self.parts()?.0.lock(node)
    }

    /// Undoes a lock.
    pub fn unlock(&mut self, lock: LockId) -> Result<(), Error> {
        self.parts()?.0.unlock(lock)?;
        self.drop_cleared(LET_GO);
        Ok(())
    }

    /// Whether the cache has a page.
    pub fn contains_page(&self, page: u32) -> bool {
        self.table.pool.is_cached(page)
    }

    /// What can be seen of a node.
    pub fn node_info(&self, id: NodeId) -> Result<NodeInfo, Error> {
        let index = &self.cache()?.index;
        Ok(index.info(index.resolve(id)?))
    }

    /// Pages of a node's own segment.
    pub fn node_pages(&self, id: NodeId) -> Result<&[u32], Error> {
        let index = &self.cache()?.index;
        Ok(index.pages(index.resolve(id)?))
    }

    /// Children of a node.
    pub fn node_children(&self, id: NodeId) -> Result<Vec<NodeId>, Error> {
        let index = &self.cache()?.index;
        let children = index.children(index.resolve(id)?)?;
        Ok(try_collect(children.into_iter().map(|node| index.id(node)))?)
    }

    /// Totals.
    pub fn cache_stats(&self) -> Result<CacheStats, Error> {
        let cache = self.cache()?;
        let stats = cache.index.stats();
        Ok(CacheStats {
            cached_pages: stats.cached_pages,
            reclaimable_pages: stats.reclaimable_pages,
            nodes: stats.nodes,
            prefixes: stats.leaves,
            namespaces: stats.namespaces,
            sequences: self.live,
            retained_sequences: self.retained.len(),
            retained_pages: self.retained.pages(),
            images: cache.images.len(),
            index_bytes: stats.bytes + cache.bytes(),
            locks: cache.lock_count(),
            counters: cache.counters,
        })
    }

    /// Checks every invariant of the index and of the images.
    pub fn check(&self) -> Result<(), Error> {
        let cache = self.cache()?;
        cache.index.check()?;
        let (mut keys, mut listed) = (Vec::new(), Ok(()));
        cache.index.visit_all(&mut |_, more| {
            for &key in more.iter().filter(|&&key| crate::token::image_number(key).is_some()) {
                listed = listed.and_then(|()| keys.try_push(key));
            }
        });
        listed?;
        if let Some(journal) = &cache.journal {
            let found = self.table.pool.cached() - cache.index.detached().pages;
            journal.check(cache.index.as_ref(), &cache.images, found)?;
        }
        let sequences = || self.sequences.iter().chain(self.retained.sequences());
        cache.check_locks(sequences().filter_map(|sequence| sequence.lock))?;
        for sequence in sequences() {
            keys.try_extend_from_slice(&sequence.images)?;
        }
        cache.images.check(keys.into_iter())
    }

    /// The tree as text.
    pub fn dump(&self, format: DumpFormat) -> Result<String, Error> {
        self.cache()?.index.dump(format)
    }
}

pub(super) fn no_cache() -> Error {
    Error::state("the page table has no cache")
}
