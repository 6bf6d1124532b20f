//! What is below memory, in numbers.
use crate::tier::StoreStats;
use crate::tier::remote::RemoteStats;

/// What was counted since a store was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCounters {
    /// Writes that the store took.
    pub writes: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Writes for which the store had no room at the time.
    pub full: u64,
    /// Writes that gave way because too much was waiting.
    pub busy: u64,
    /// States that no store can have: larger than all of it, or without a byte.
    pub unfit: u64,
    /// Reads that the store took.
    pub loads: u64,
    /// Reads that brought a state into memory.
    pub loaded: u64,
    /// Fetches that waited for a read that went on already.
    pub joined: u64,
    /// Reads that failed.
    pub failed_loads: u64,
    /// Of those, reads that brought other bytes than were written.
    pub damaged: u64,
    /// Reads that ended when nobody waited any more.
    pub late: u64,
    /// Fetches for which memory's byte limit left no room.
    pub no_memory: u64,
    /// States that the store which caches share was not given: too much waited, or too many parts.
    pub not_offered: u64,
    /// Of the reads that brought a state, those from there.
    pub from_remote: u64,
    /// Fetches that went on without it because it was too slow.
    pub remote_late: u64,
    /// Records that were there when the store was attached and could not be used.
    pub unusable: u64,
}

/// What is below memory now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Records that are found or being written.
    pub entries: usize,
    /// Records being written.
    pub writing: usize,
    /// Tickets that are out.
    pub tickets: usize,
    /// Bytes that are being read.
    pub loading_bytes: u64,
    /// Memory of the index.
    pub index_bytes: usize,
    /// Counters.
    pub counters: TierCounters,
    /// The store's own.
    pub store: StoreStats,
    /// Those of the store that caches share.
    pub remote: RemoteStats,
}
