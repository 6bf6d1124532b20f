//! What a sequence gets from the tiers of its cache.
use super::attach::tiers_of;
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{AbiStruct, check_fit, check_flags, out, rkv_status, with, write_struct};
use crate::capi::sequence::rkv_sequence_id;
use crate::ids::SequenceId;
use crate::tier::paged::Deadline;
use std::time::Duration;

/// Flag of rkv_sequence_fetch() and rkv_cache_prefetch(): say what could be fetched, and fetch
/// nothing. The remote store is not asked.
pub const RKV_FETCH_LOOK_ONLY: u32 = 1;

/// A deadline in milliseconds.
pub(super) fn deadline_of(milliseconds: u64) -> Deadline {
    match milliseconds {
        u64::MAX => Deadline::Never,
        time => Deadline::After(Duration::from_millis(time)),
    }
}

/// What the tiers have of a sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_fetch_result {
    /// sizeof(rkv_sequence_fetch_result).
    pub struct_size: u32,
    /// 1 when a fetch is open now: rkv_cache_poll() says when it has ended. Until then these return
    /// RKV_STATUS_PENDING for the sequence: what sets or computes a plan, publish, retain,
    /// checkpoint, fetch and rkv_sequence_agree(), and with several groups of layers read_copies,
    /// confirm_copies, allocate, append, truncate, slide, continue and fork. Others work: it can be
    /// released, and with one group grow.
    pub is_open: u32,
    /// Positions that can be fetched beyond those that the sequence reuses. A fetch that is begun
    /// counts 64 pages at most, and may bring more. With one group of layers it brings no more than
    /// the sequence's row has pages for: rkv_sequence_allocate() adds those of a prompt that began
    /// with allocate_position_count. With several groups the fetch makes the rows longer itself. A
    /// look counts all that is known, whatever the row has pages for.
    pub position_count: u64,
    /// Of those, from the first one on, how many are in host memory.
    pub host_position_count: u64,
    /// Positions beyond position_count for which the fetch asks the remote store; how many it
    /// brings is in the rkv_fetch_end.
    pub asked_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_sequence_fetch_result {
    const NAME: &'static str = "out_fetch";
    const V1: usize = 24;
}

/// Starts to bring what the tiers have of a sequence beyond what it reuses, into its own pages. It
/// is for a sequence that has computed nothing beyond what it has published, and that has carried
/// out no copy that begin named: that copy is given up, its page is fetched whole.
///
/// With several groups of layers it brings what the farthest end needs that every group can go on
/// from: of a window its last pages, of states one. All of that or, when something can't be had,
/// what the next end before needs. Copies that begin named stay as they are until it has come, and
/// can neither be read nor confirmed meanwhile; if none comes, they are to be carried out. A state
/// that came is a checkpoint of the cache then, which the sequence is to copy:
/// rkv_sequence_read_copies(). Where its pool has no page for that, the sequence has it alone. Rows
/// that are too short get pages for what is needed, and holes where a window has passed.
///
/// What came is published when every byte has arrived and its checksum holds: the sequence's
/// cached_position_count grows, and others find it. Where somebody published the same meanwhile,
/// the row maps that. A second sequence with the same prefix waits for the first one's copies
/// instead of having its own. What can't be had, or doesn't come in time, is left to compute.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param deadline_ms milliseconds after which no more is brought; 0 takes only what host memory
/// has, UINT64_MAX is no deadline but remote_timeout_ms. Copies that the engine was given are still
/// waited for
/// @param flags 0 or RKV_FETCH_LOOK_ONLY
/// @param out_fetch receives what there is; set its struct_size first
/// @return RKV_STATUS_OK, also when there is nothing; RKV_STATUS_PENDING when a fetch of the
/// sequence is open; RKV_STATUS_INVALID_STATE when the cache has no tiers, or another thread
/// changed the sequence during the call; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages that the tiers have + 1), of a fetch 64 at most: a SHA-256 of each, 64 at a time with
/// the shared lock; what is behind those the tiers' thread looks for. With several groups
/// O(pages that the device or the tiers have + 1) * groups, with the same bound; with a remote
/// store O(pages that the device doesn't have). Lock for a moment; never waits for the disk or
/// the store. Nothing when the device has the whole pages of the prompt
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_fetch(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    deadline_ms: u64,
    flags: u32,
    out_fetch: *mut rkv_sequence_fetch_result,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_fetch.
    unsafe {
        with(cache, |shared| {
            check_flags(flags, RKV_FETCH_LOOK_ONLY, "flags")?;
            check_fit(out_fetch)?;
            let deadline = deadline_of(deadline_ms);
            let looks_only = flags & RKV_FETCH_LOOK_ONLY != 0;
            let found = tiers_of(shared)?.fetch(SequenceId(sequence), deadline, looks_only)?;
            let made = rkv_sequence_fetch_result {
                struct_size: 0,
                is_open: found.is_begun as u32,
                position_count: found.positions as u64,
                host_position_count: found.host_positions as u64,
                asked_position_count: found.asked_positions as u64,
            };
            write_struct(out_fetch, &made)
        })
    }
}

/// Makes a sequence reuse no more than all ranks can: the least of what rkv_fetch_end or, where
/// nothing was fetched, rkv_sequence_info says on each. With RKV_TIERS_AGREE a fetch ends by this,
/// and nothing of it is used or found before. What the device has beyond is computed again.
///
/// A rank may end up with less, where its pages or an image don't end there: then all ranks agree
/// once more, on the least of what came out. With several groups of layers a rank that fetched more
/// has to bring what that end needs first: RKV_STATUS_PENDING, and another rkv_fetch_end says how
/// far it got. What the device has of a window or of states may end before, too.
///
/// With several groups it lets waiting threads in while pages take each other's places. To them the
/// sequence is as while a fetch of it is open: calls return RKV_STATUS_PENDING, see
/// rkv_sequence_fetch_result.is_open, or end it, and then this returns RKV_STATUS_STALE_SEQUENCE.
///
/// @param cache the cache
/// @param sequence a sequence that has computed nothing
/// @param position_count positions that it may reuse at most
/// @param out_position_count receives those that it reuses now
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING while its fetch goes on, or goes on again: agree when
/// that has ended; RKV_STATUS_OUT_OF_PAGES when there are none for what is to be computed again,
/// and nothing changed, but that with several groups of layers a fetch that waited for this has
/// ended: agree again when there are some; RKV_STATUS_INVALID_STATE when the cache has no tiers,
/// the sequence has computed, or copies are not confirmed: a checkpoint of it, or of its state to a
/// child; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// what publishing costs, and O(pages to be computed again + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_agree(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    position_count: u64,
    out_position_count: *mut u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_position_count.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            let into = out(out_position_count, "out_position_count")?;
            let positions = usize::try_from(position_count).unwrap_or(usize::MAX);
            into.write(tiers.agree(SequenceId(sequence), positions)?.positions as u64);
            Ok(())
        })
    }
}
