//! What was counted, by tier.
use super::super::StoreStats;
use super::super::remote::RemoteStats;

/// Of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierTotals {
    /// Pages now.
    pub pages: usize,
    /// Bytes in use now, of `limit`.
    pub bytes: u64,
    /// Bytes at most.
    pub limit: u64,
    /// Pages that came into it from above, and not by fetches.
    pub stored: u64,
    /// Pages that were fetched from it.
    pub fetched: u64,
    /// Pages that left to make room.
    pub evicted: u64,
    /// Pages that were dropped because their bytes had changed.
    pub damaged: u64,
    /// Copies, writes or reads that failed.
    pub failed: u64,
}

/// What is below the device now, and what was counted since it was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageTierStats {
    /// Host memory.
    pub host: TierTotals,
    /// The disk.
    pub disk: TierTotals,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Slots that nobody has.
    pub free_slots: usize,
    /// Fetches that are open.
    pub open_fetches: usize,
    /// Prefetches that are open.
    pub open_prefetches: usize,
    /// Copies that the engine was given and has not completed.
    pub open_copies: usize,
    /// Pages of the device that wait to be stored.
    pub waiting: usize,
    /// Pages of the device that are kept for those copies.
    pub copied_pages: usize,
    /// Memory of the books.
    pub index_bytes: usize,
    /// Counters.
    pub counters: Counters,
    /// The disk's own.
    pub store: StoreStats,
    /// The remote store's.
    pub remote: RemoteStats,
    /// Pages now that wait to be given to it.
    pub offered: usize,
    /// The record of the journal up to which all is known.
    pub applied: u64,
}

/// What was counted since the tiers were attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Fetches that were begun.
    pub fetches: u64,
    /// Of those, the ones that waited for another fetch of the same pages.
    pub joined: u64,
    /// Fetches that ended with all that they were begun for.
    pub complete: u64,
    /// Fetches that ended with less.
    pub shortened: u64,
    /// Fetches whose deadline came first.
    pub late: u64,
    /// Fetches whose sequences ended first.
    pub abandoned: u64,
    /// Pages that fetches were begun for, and that they brought.
    pub wanted_pages: u64,
    /// Prefetches that were begun.
    pub prefetches: u64,
    /// Prefetches for which there was no room beside those that were open.
    pub refused_prefetches: u64,
    /// Pages that they brought to host memory from the disk, and from the remote store.
    pub prefetched: [u64; 2],
    /// Pages that became the cache's.
    pub landed_pages: u64,
    /// From the begin of a fetch to its end, of all together.
    pub fetch_nanoseconds: u64,
    /// The longest.
    pub fetch_nanoseconds_max: u64,
    /// Pages that were copied to host memory.
    pub stored: u64,
    /// Copies to host memory that failed.
    pub failed_stores: u64,
    /// Copies from host memory that failed.
    pub failed_loads: u64,
    /// Pages for which the queue of stores had no memory.
    pub throttled: u64,
    /// Pages that left the device before they were stored.
    pub lost: u64,
    /// Records of the journal that were overwritten before they were read.
    pub lost_records: u64,
    /// Pages evicted from host memory, and from the disk.
    pub evicted: [u64; 2],
    /// Pages fetched out of host memory, from the disk, and from the remote store.
    pub fetched: [u64; 3],
    /// Pages that the remote store was not given: too many waited, or they left host memory first.
    pub not_offered: u64,
    /// Fetches that the remote store kept waiting for too long.
    pub remote_late: u64,
    /// Pages dropped because their bytes had changed, which the disk's store did not see.
    pub damaged: [u64; 2],
    /// Pages dropped because they were cleared.
    pub cleared: u64,
    /// Pages that the disk had no room for at the time.
    pub disk_full: u64,
    /// Pages that the disk's queue had no room for at the time.
    pub disk_busy: u64,
    /// Writes and reads of the disk that failed; bytes that had changed are counted elsewhere.
    pub disk_failed: u64,
    /// Records on the disk that could not be used when it was attached.
    pub unusable: u64,
    /// Times that memory ran out.
    pub no_memory: u64,
}
