//! What is below the memory of a snapshot cache, in numbers.
use crate::capi::ffi::{AbiStruct, check_fit, rkv_status, write_struct};
use crate::capi::snapshot::handle::{Needs, with};
use crate::capi::snapshot::rkv_snapshot_cache;
use crate::capi::tier::rkv_remote_totals;

/// Counters of what is below the memory of a snapshot cache, since it was attached unless they say
/// "now".
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_tier_stats {
    /// sizeof(rkv_snapshot_tier_stats).
    pub struct_size: u32,
    /// 1 when the disk refused so often that nothing is written any more; reads go on.
    pub is_read_only: u32,
    /// Snapshots now that can be fetched or are being written.
    pub entry_count: u64,
    /// Bytes of data now, of byte_limit.
    pub used_bytes: u64,
    /// The limit.
    pub byte_limit: u64,
    /// Snapshots now that are being written.
    pub writing_count: u64,
    /// Bytes now that wait to be written.
    pub waiting_bytes: u64,
    /// Bytes now that are being read.
    pub loading_bytes: u64,
    /// Tickets now.
    pub ticket_count: u64,
    /// Bytes of host memory that the index takes now.
    pub index_bytes: u64,
    /// Snapshots whose write was started.
    pub write_count: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that the disk refused.
    pub failed_write_count: u64,
    /// Of those, for want of room on the disk.
    pub no_space_count: u64,
    /// Writes that waited for room under byte_limit.
    pub full_count: u64,
    /// Writes that gave way because too much was waiting.
    pub throttled_count: u64,
    /// Snapshots that are larger than byte_limit, or without a byte.
    pub unfit_count: u64,
    /// Reads that were started.
    pub load_count: u64,
    /// Reads that brought a snapshot into memory.
    pub loaded_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Fetches that joined a read that went on already.
    pub joined_count: u64,
    /// Reads that failed.
    pub failed_load_count: u64,
    /// Of those, because of a wrong checksum.
    pub damaged_count: u64,
    /// Reads that ended when nobody waited any more.
    pub late_count: u64,
    /// Fetches that were not started because memory's byte limit left no room.
    pub no_memory_count: u64,
    /// Snapshots in the directory that could not be used when it was attached.
    pub unusable_count: u64,
    /// Commits.
    pub commit_count: u64,
    /// Nanoseconds of the longest commit.
    pub longest_commit_ns: u64,
    /// Nanoseconds of all writes together.
    pub write_ns: u64,
    /// Nanoseconds of all reads together.
    pub read_ns: u64,
    /// The remote store.
    pub remote: rkv_remote_totals,
    /// 1 when the directory is written by io_uring, 0 when threads wait for it.
    pub is_ring: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_snapshot_tier_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 232;
}

/// Counters of what is below memory. All zero when nothing is. Of the remote store,
/// fetched_page_count counts the snapshots that it brought, and dropped_page_count how often one
/// was not given to it because too much waited, or it has more than 124 parts.
///
/// @param cache the cache
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(writes that go on); its own lock; never waits for the disk
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_read_tier_stats(
    cache: *mut rkv_snapshot_cache,
    out_stats: *mut rkv_snapshot_tier_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_stats.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_fit(out_stats)?;
            let stats = call.cache.tier_stats(call.freed).unwrap_or_default();
            let (counters, store) = (stats.counters, stats.store);
            let made = rkv_snapshot_tier_stats {
                struct_size: 0,
                is_read_only: store.is_read_only as u32,
                entry_count: stats.entries as u64,
                used_bytes: store.bytes,
                byte_limit: store.capacity,
                writing_count: stats.writing as u64,
                waiting_bytes: store.waiting_bytes,
                loading_bytes: stats.loading_bytes,
                ticket_count: stats.tickets as u64,
                index_bytes: stats.index_bytes as u64,
                write_count: counters.writes,
                written_bytes: store.written_bytes,
                failed_write_count: counters.failed_writes,
                no_space_count: store.no_space,
                full_count: counters.full,
                throttled_count: counters.busy,
                unfit_count: counters.unfit,
                load_count: counters.loads,
                loaded_count: counters.loaded,
                read_bytes: store.read_bytes,
                joined_count: counters.joined,
                failed_load_count: counters.failed_loads,
                damaged_count: counters.damaged,
                late_count: counters.late,
                no_memory_count: counters.no_memory,
                unusable_count: counters.unusable,
                commit_count: store.commits,
                longest_commit_ns: store.commit_nanoseconds_max,
                write_ns: store.write_nanoseconds,
                read_ns: store.read_nanoseconds,
                is_ring: store.is_ring as u64,
                remote: rkv_remote_totals::of(
                    &stats.remote,
                    [counters.from_remote, counters.not_offered, 0, counters.remote_late],
                ),
            };
            write_struct(out_stats, &made)
        })
    }
}
