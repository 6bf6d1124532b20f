//! What lies below the pages of a cache, in numbers.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{AbiStruct, check_fit, rkv_status, with, write_struct};
use crate::tier::paged::{PageTierStats, PageTiers, TierTotals};
use crate::tier::remote::RemoteStats;

/// One tier, now and since it was attached.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tier_totals {
    /// Pages now.
    pub page_count: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Bytes at most.
    pub byte_limit: u64,
    /// Pages that came into it from above: host memory from the device, the directory from host
    /// memory. What fetches and prefetches bring up to host memory is not among them.
    pub stored_page_count: u64,
    /// Pages that were fetched from it.
    pub fetched_page_count: u64,
    /// Pages that went to make room; of the directory also those that disk_bytes had no room for
    /// when it was attached.
    pub evicted_page_count: u64,
    /// Pages that were dropped because their bytes had changed.
    pub damaged_page_count: u64,
    /// Copies, reads and writes that failed.
    pub failed_count: u64,
}

impl rkv_tier_totals {
    fn of(totals: &TierTotals) -> Self {
        Self {
            page_count: totals.pages as u64,
            used_bytes: totals.bytes,
            byte_limit: totals.limit,
            stored_page_count: totals.stored,
            fetched_page_count: totals.fetched,
            evicted_page_count: totals.evicted,
            damaged_page_count: totals.damaged,
            failed_count: totals.failed,
        }
    }
}

/// The remote store, now and since it was attached. Below a snapshot cache what stands here as a
/// page is a value of it: a mark, a head or a piece of a snapshot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_remote_totals {
    /// Pages that it was asked for.
    pub asked_page_count: u64,
    /// Of those, the ones that it had; with one group of layers, up to the first that it didn't
    /// have.
    pub found_page_count: u64,
    /// Pages that it brought to host memory.
    pub read_page_count: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Pages of those that fetches took.
    pub fetched_page_count: u64,
    /// Pages that were written to it.
    pub written_page_count: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Pages that were to be written, and were there.
    pub known_page_count: u64,
    /// Pages that came and were not what was written: of another length, damaged, of another key.
    /// They were removed.
    pub damaged_page_count: u64,
    /// Pages that were gone when they were to be read.
    pub gone_page_count: u64,
    /// Pages about which a call gave no answer.
    pub failed_page_count: u64,
    /// Questions and pages whose time was over before a thread came to them.
    pub late_page_count: u64,
    /// Questions and pages that were given up because nothing was asked at the time, or because
    /// their namespace was cleared.
    pub skipped_page_count: u64,
    /// Pages that were not written because too many waited, or because they left host memory first.
    pub dropped_page_count: u64,
    /// Pages now that wait to be written.
    pub waiting_page_count: u64,
    /// Fetches that went on without it because it was too slow.
    pub late_fetch_count: u64,
    /// Calls.
    pub call_count: u64,
    /// Calls that took longer than remote_timeout_ms.
    pub slow_call_count: u64,
    /// Nanoseconds of all calls together.
    pub call_ns: u64,
    /// Nanoseconds of the longest.
    pub longest_call_ns: u64,
    /// How often it failed so often in a row that nothing was asked for a while.
    pub pause_count: u64,
    /// 1 when nothing is asked now.
    pub is_paused: u64,
}

impl rkv_remote_totals {
    /// What is not the store's own comes beside: pages that fetches took, that were dropped, that
    /// wait to be given to it, and fetches that went on without it.
    pub(in crate::capi) fn of(
        remote: &RemoteStats,
        [fetched, dropped, offered, late]: [u64; 4],
    ) -> Self {
        Self {
            asked_page_count: remote.asked,
            found_page_count: remote.found,
            read_page_count: remote.read,
            read_bytes: remote.read_bytes,
            fetched_page_count: fetched,
            written_page_count: remote.written,
            written_bytes: remote.written_bytes,
            known_page_count: remote.known,
            damaged_page_count: remote.damaged,
            gone_page_count: remote.gone,
            failed_page_count: remote.failed,
            late_page_count: remote.late,
            skipped_page_count: remote.skipped,
            dropped_page_count: dropped,
            waiting_page_count: remote.waiting + offered,
            late_fetch_count: late,
            call_count: remote.calls,
            slow_call_count: remote.slow_calls,
            call_ns: remote.call_nanoseconds,
            longest_call_ns: remote.call_nanoseconds_max,
            pause_count: remote.pauses,
            is_paused: u64::from(remote.is_paused),
        }
    }
}

fn remote_of(stats: &PageTierStats) -> rkv_remote_totals {
    let counters = stats.counters;
    let beside =
        [counters.fetched[2], counters.not_offered, stats.offered as u64, counters.remote_late];
    rkv_remote_totals::of(&stats.remote, beside)
}

/// What lies below the pages of a cache: counters since it was attached unless they say "now".
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tier_stats {
    /// sizeof(rkv_tier_stats).
    pub struct_size: u32,
    /// 1 when the disk refused so often that nothing is written any more; reads go on.
    pub is_read_only: u32,
    /// Host memory.
    pub host: rkv_tier_totals,
    /// The disk; all zero without a directory.
    pub disk: rkv_tier_totals,
    /// Fetches that are open now.
    pub open_fetch_count: u64,
    /// Copies now that the engine has not completed.
    pub open_job_count: u64,
    /// Pages of the device now that those copies keep from being used again: they are cached or
    /// private still, or neither and counted as private.
    pub copied_page_count: u64,
    /// Bytes of host memory that the books take now, beside the slots.
    pub index_bytes: u64,
    /// The record of the journal up to which pages are known, now.
    pub followed_number: u64,
    /// Fetches that were begun.
    pub fetch_count: u64,
    /// Of those, the ones that waited for another fetch of the same pages.
    pub joined_count: u64,
    /// Fetches that brought all.
    pub complete_count: u64,
    /// Fetches that brought less.
    pub shortened_count: u64,
    /// Fetches whose deadline, or remote_timeout_ms, came first: none of them brought all.
    pub late_count: u64,
    /// Fetches whose sequences ended first.
    pub abandoned_count: u64,
    /// Nanoseconds of all fetches together, from their begin to their end.
    pub fetch_ns: u64,
    /// Nanoseconds of the longest.
    pub longest_fetch_ns: u64,
    /// Pages that were evicted from the device before they were stored. What was copied from
    /// there, and was given up by host memory since, is in host.evicted_page_count alone; what a
    /// fetch brought, and host memory gave up since, is in both.
    pub lost_page_count: u64,
    /// Pages that were not stored because there was no memory for the queue of stores.
    pub throttled_page_count: u64,
    /// Records of the journal that were overwritten before they were followed.
    pub lost_record_count: u64,
    /// Pages that went because their namespace was cleared.
    pub cleared_page_count: u64,
    /// Writes that waited for room under disk_bytes, or in the disk's queue.
    pub waiting_write_count: u64,
    /// Pages in the directory that could not be used when it was attached.
    pub unusable_page_count: u64,
    /// Nanoseconds of the longest commit of the disk.
    pub longest_commit_ns: u64,
    /// The remote store.
    pub remote: rkv_remote_totals,
    /// Prefetches that are open now.
    pub open_prefetch_count: u64,
    /// Prefetches that were begun.
    pub prefetch_count: u64,
    /// Prefetches that were not begun because those that were open had all the room, or the tiers
    /// were being detached.
    pub refused_prefetch_count: u64,
    /// Pages that prefetches brought to host memory from the disk. Fetches find them there, and
    /// count them there.
    pub prefetched_disk_page_count: u64,
    /// Pages that prefetches brought to host memory from the remote store.
    pub prefetched_remote_page_count: u64,
    /// 1 when the directory is written by io_uring, 0 when threads wait for it.
    pub is_ring: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_tier_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 296;
}

/// Counters of what lies below the pages of a cache. All zero when nothing does.
///
/// @param cache the cache
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock for a moment; never waits for the disk
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_tier_stats(
    cache: *const rkv_cache,
    out_stats: *mut rkv_tier_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_stats.
    unsafe {
        with(cache, |shared| {
            check_fit(out_stats)?;
            let stats = shared.lower::<PageTiers>().map(|tiers| tiers.stats());
            let stats = stats.unwrap_or_default();
            let counters = stats.counters;
            let made = rkv_tier_stats {
                struct_size: 0,
                is_read_only: stats.store.is_read_only as u32,
                host: rkv_tier_totals::of(&stats.host),
                disk: rkv_tier_totals::of(&stats.disk),
                open_fetch_count: stats.open_fetches as u64,
                open_job_count: stats.open_copies as u64,
                copied_page_count: stats.copied_pages as u64,
                index_bytes: stats.index_bytes as u64,
                followed_number: stats.applied,
                fetch_count: counters.fetches,
                joined_count: counters.joined,
                complete_count: counters.complete,
                shortened_count: counters.shortened,
                late_count: counters.late,
                abandoned_count: counters.abandoned,
                fetch_ns: counters.fetch_nanoseconds,
                longest_fetch_ns: counters.fetch_nanoseconds_max,
                lost_page_count: counters.lost,
                throttled_page_count: counters.throttled,
                lost_record_count: counters.lost_records,
                cleared_page_count: counters.cleared,
                waiting_write_count: counters.disk_full + counters.disk_busy,
                unusable_page_count: counters.unusable,
                longest_commit_ns: stats.store.commit_nanoseconds_max,
                remote: remote_of(&stats),
                open_prefetch_count: stats.open_prefetches as u64,
                prefetch_count: counters.prefetches,
                refused_prefetch_count: counters.refused_prefetches,
                prefetched_disk_page_count: counters.prefetched[0],
                prefetched_remote_page_count: counters.prefetched[1],
                is_ring: stats.store.is_ring as u64,
            };
            write_struct(out_stats, &made)
        })
    }
}
