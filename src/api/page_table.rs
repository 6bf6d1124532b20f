//! The page table of a Rust engine.
use super::cache::{Attached, Cache};
use super::call;
use crate::error::Error;
use crate::memory::{Arc, try_filled};
use crate::paging::{BatchArrays, BatchRow, PageTableConfig};
use crate::store::{CacheConfig, PageTableStats, Shared};
use std::cell::RefCell;

/// Physical pages, and the rows that map them. A clone is the same page table.
#[derive(Debug, Clone)]
pub struct PageTable {
    pub(super) shared: Arc<Shared>,
}

impl PageTable {
    /// An empty page table.
    pub fn new(config: PageTableConfig) -> Result<Self, Error> {
        Ok(Self { shared: Shared::new(config)? })
    }

    /// What a [`crate::runner::Runner`], a [`crate::plan::Plan`], tiers and events are made over,
    /// and what has the calls that are not here, by the ids of sequences, locks and nodes: inserts
    /// behind a node, rows of one's own, many at once, the journal. Who makes one of those on a
    /// page table after a panic asks [`Shared::check_whole`] before, and undoes himself what they
    /// begin. Those that a panic of another thread interrupts unwind, too.
    ///
    /// What [`Shared::turn`], [`Shared::read`] and [`Shared::write`] return is the lock of the page
    /// table: it is to be gone before the same thread makes a call of this module or drops a
    /// sequence, a lock or a match, which may wait for it forever. In the head of a `match` it
    /// lives until the last arm has ended.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Puts a cache on it, which has none: [`Error::Busy`].
    pub fn cache(&self, config: CacheConfig) -> Result<Cache, Error> {
        call(&self.shared, |shared| shared.attach_cache(config))?;
        Cache::of(Attached(self.shared.clone()))
    }

    /// Pages by state, and slots.
    pub fn stats(&self) -> Result<PageTableStats, Error> {
        call(&self.shared, |shared| Ok(shared.read().page_table_stats()))
    }

    /// The pages of a row.
    pub fn row(&self, slot: u32) -> Result<Vec<u32>, Error> {
        call(&self.shared, |shared| {
            let pages = RefCell::new(Vec::new());
            let begin = |count: usize| {
                *pages.borrow_mut() = try_filled(0, count)?;
                Ok::<_, Error>(true)
            };
            shared.row_from(slot, 0, begin, |at, some| {
                pages.borrow_mut()[at..at + some.len()].copy_from_slice(some);
            })?;
            Ok(pages.into_inner())
        })
    }

    /// The arrays that paged attention kernels take, for a batch of rows.
    pub fn batch(&self, rows: &[BatchRow]) -> Result<BatchArrays, Error> {
        call(&self.shared, |shared| shared.batch(rows))
    }

    /// Takes private pages, evicting when the pool is short. All or none.
    pub fn allocate_pages(&self, count: usize) -> Result<Vec<u32>, Error> {
        call(&self.shared, |shared| shared.allocate_pages(count))
    }

    /// Gives private pages back that are in no row. All or none.
    pub fn free_pages(&self, pages: &[u32]) -> Result<(), Error> {
        call(&self.shared, |shared| shared.turn().free_pages(0, pages))
    }

    /// Proves page by page that each is in exactly one state.
    pub fn check(&self) -> Result<(), Error> {
        call(&self.shared, |shared| shared.read().audit())
    }
}
