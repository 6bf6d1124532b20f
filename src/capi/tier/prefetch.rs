//! Prompts that are expected: what tiers have of them comes to host memory.
use super::attach::tiers_of;
use super::fetch::{RKV_FETCH_LOOK_ONLY, deadline_of};
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{AbiStruct, check_fit, check_flags, rkv_status, with, write_struct};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};

/// Names a prefetch of one cache, from rkv_cache_prefetch() until it has ended or is cancelled, and
/// never means another one. Zero names none.
pub type rkv_prefetch_id = u64;

/// A prefetch, and what there is of its prompt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_prefetch_result {
    /// sizeof(rkv_cache_prefetch_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// For rkv_cache_cancel_prefetch(); 0 when nothing is brought.
    pub prefetch: rkv_prefetch_id,
    /// Positions that the device has, of whole pages.
    pub cached_position_count: u64,
    /// Positions beyond those that the tiers have.
    pub position_count: u64,
    /// Of those, from the first one on, how many are in host memory already.
    pub host_position_count: u64,
    /// Positions beyond position_count for which the remote store is asked.
    pub asked_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_prefetch_result {
    const NAME: &'static str = "out_prefetch";
    const V1: usize = 48;
}

/// Starts to bring what the tiers have of a prompt to host memory, before a sequence begins with
/// it: of a request that waits for its turn, or of a session that is expected. Whoever begins with
/// the prompt later fetches it from there, with deadline 0 if it likes; one that begins earlier
/// waits for the same reads.
///
/// It is a hint. It takes no page of the device, evicts nothing there, and does nothing for what
/// the device has. Fetches go first: while one waits for the disk or the remote store, nothing is
/// begun for a prefetch. Prefetches that are open have a half of the slots of each pool at most;
/// for them go pages that stores would take the place of too, never one that is being copied, read
/// or written. What came stays there as what was used last, and nobody has to give it back. No
/// event says that it has ended; asking again with RKV_FETCH_LOOK_ONLY says what is there.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens the prompt, or as much of it as is known. Not used after the call
/// @param deadline_ms milliseconds after which no more is brought; UINT64_MAX is no deadline but
/// remote_timeout_ms, 0 brings nothing
/// @param flags 0, or RKV_FETCH_LOOK_ONLY to say what there is and bring nothing
/// @param out_prefetch receives what there is; set its struct_size first
/// @return RKV_STATUS_OK, also when there is nothing, or no room beside other prefetches:
/// refused_prefetch_count of rkv_tier_stats; RKV_STATUS_INVALID_STATE when the cache has no tiers;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// what rkv_cache_match() costs, with the shared lock, and O(pages that the tiers have + 1), a
/// SHA-256 of each, without it; with a remote store O(pages that the device doesn't have). Never
/// waits for the disk or the store
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_prefetch(
    cache: *mut rkv_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    deadline_ms: u64,
    flags: u32,
    out_prefetch: *mut rkv_cache_prefetch_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            check_flags(flags, RKV_FETCH_LOOK_ONLY, "flags")?;
            check_fit(out_prefetch)?;
            let looks_only = flags & RKV_FETCH_LOOK_ONLY != 0;
            let tiers = tiers_of(shared)?;
            with_tokens(tokens, |tokens| {
                let (space, deadline) = (read_namespace(space)?, deadline_of(deadline_ms));
                let begun = tiers.prefetch(&space, tokens, deadline, looks_only)?;
                let found = begun.found;
                let made = rkv_cache_prefetch_result {
                    struct_size: 0,
                    reserved: 0,
                    prefetch: begun.number,
                    cached_position_count: begun.cached_positions as u64,
                    position_count: found.positions as u64,
                    host_position_count: found.host_positions as u64,
                    asked_position_count: found.asked_positions as u64,
                };
                write_struct(out_prefetch, &made)
            })
        })
    }
}

/// Gives a prefetch up. What it brought stays in host memory until that needs the room, and what
/// the disk or the remote store is reading still comes.
///
/// @param cache the cache
/// @param prefetch from rkv_cache_prefetch(); one that has ended is not missed
/// @return RKV_STATUS_OK, also for the number of a fetch, which goes on;
/// RKV_STATUS_INVALID_ARGUMENT, also for a number that was never given to either;
/// RKV_STATUS_INVALID_STATE when the cache has no tiers; RKV_STATUS_POISONED
/// @par Cost
/// O(its pages); no lock of the cache; never waits for the disk or the store
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_cancel_prefetch(
    cache: *mut rkv_cache,
    prefetch: rkv_prefetch_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(tiers_of(shared)?.cancel_prefetch(prefetch)?)) }
}
