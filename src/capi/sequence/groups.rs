//! Sequences with several groups: their rows, states that are saved, windows that slide.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, WantedElements, at_most, check_out, fill, put, rkv_status, with,
};
use crate::capi::sequence::rkv_sequence_id;
use crate::ids::SequenceId;

const NAME: &str = "out_checkpoint_count";

/// The row of a sequence in one group, from an index on: a page for each page_size positions, 0
/// where the window has passed. Of a STATE group: the page of the state that the next step changes,
/// whatever the position, and then its draft_state_count pages for states after draft tokens, see
/// rkv_sequence_truncate().
///
/// Leading pages of the row may be the cache's, as far as rkv_sequence_info.shared_page_count says:
/// never write to these. The pages from there on, and the page of a STATE group, are private.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param group the group; the row of group 0 is that of rkv_page_table_read_row() too
/// @param first_index the first index to report
/// @param pages receives the pages; (NULL, 0) asks for the count
/// @param capacity room in pages
/// @param out_count receives the number of pages from first_index on, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages copied); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_read_group_row(
    cache: *const rkv_cache,
    sequence: rkv_sequence_id,
    group: u32,
    first_index: usize,
    pages: *mut u32,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, pages and out_count.
    unsafe {
        with(cache, |shared| {
            let state = shared.read();
            let rest = state.group_row(SequenceId(sequence), group as usize, first_index)?;
            fill(rest, pages, capacity, out_count, ["pages", "out_count"])
        })
    }
}

/// What publishing did in a group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_published_group {
    /// The group.
    pub group: u32,
    /// Pages that went from the sequence to the cache.
    pub claimed_page_count: u32,
    /// Pages that somebody else had published first: the row maps those now.
    pub remapped_page_count: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_published_group {
    const V1: usize = 16;
}

/// What the last rkv_sequence_publish() of a sequence that succeeded did in the groups beside the
/// first, whose pages rkv_sequence_publish_result counts. Of a STATE group nothing is published.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param groups receives the groups in their order, 1 and up; (NULL, 0) asks for the count
/// @param element_size sizeof(rkv_published_group); not read with capacity 0
/// @param capacity room in groups
/// @param out_count receives the number of groups beside the first, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(groups); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_read_published(
    cache: *const rkv_cache,
    sequence: rkv_sequence_id,
    groups: *mut rkv_published_group,
    element_size: usize,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let names = ["groups", "element_size"];
            let mut into = WantedElements::new(groups, element_size, capacity, names)?;
            let state = shared.read();
            let done = state.published_groups(SequenceId(sequence))?;
            let of = |group: usize| rkv_published_group {
                group: group as u32,
                claimed_page_count: done.claimed[group],
                remapped_page_count: done.remapped[group],
                reserved: 0,
            };
            into.fill((1..state.group_count()).map(of), out_count, "groups")
        })
    }
}

/// Begins to save the states of a sequence where it is: a page for each STATE group that has no
/// checkpoint there, and the copies that fill it, from the sequence's own state. Carry them out, as
/// rkv_sequence_read_copies() names them, before the next step changes the states; then call
/// rkv_sequence_confirm_copies(), and the checkpoints can be found. Where to save:
/// rkv_sequence_info.checkpoint_at.
///
/// All that is computed must be published, and end with a page.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param out_copy_count receives the number of copies to carry out; 0 when the cache has all the
/// checkpoints already, and nothing is to be confirmed then
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(): nothing has changed;
/// RKV_STATUS_INVALID_STATE when a copy is open, or for positions that are not published or end
/// inside a page; RKV_STATUS_PENDING while a fetch or rkv_sequence_agree() of the sequence goes on;
/// RKV_STATUS_UNSUPPORTED without a STATE group; RKV_STATUS_STALE_SEQUENCE;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(groups + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_checkpoint(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    out_copy_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_copy_count.
    unsafe {
        with(cache, |shared| {
            check_out(out_copy_count, 1, "out_copy_count")?;
            let count = shared.turn().checkpoint(SequenceId(sequence))?;
            put(count, out_copy_count, "out_copy_count")
        })
    }
}

/// Ends a sequence like rkv_sequence_release(), and leaves its states to the cache as checkpoints,
/// without a copy: where all that was computed is published, ends with a page, and is what the
/// states are after. A checkpoint that is there already stays, and so nothing is left then.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param out_checkpoint_count receives the number of states that it left: 0 when a copy is open,
/// of the sequence or of its state by a child that began before what is computed now, or when what
/// was published last ends inside a page; may be NULL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_UNSUPPORTED without a STATE group:
/// it is not ended then; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages of the row + nodes on the path); lock, in slices; needs no memory
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_donate(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    out_checkpoint_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_checkpoint_count.
    unsafe {
        with(cache, |shared| {
            check_out(out_checkpoint_count, usize::from(!out_checkpoint_count.is_null()), NAME)?;
            let count = shared.turn().donate(SequenceId(sequence))?;
            if out_checkpoint_count.is_null() {
                return Ok(());
            }
            put(count, out_checkpoint_count, NAME)
        })
    }
}

/// Lets the windows of a sequence slide without publishing, for tokens that nobody wants to keep:
/// pages that the next position does not need go back to their pools, those of the cache become
/// reclaimable. rkv_sequence_publish() does it by itself.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param computed_position_count positions whose KV is enqueued, at most as many as the row has
/// pages for: who gets a page that leaves must come behind that on the same stream. Draft tokens
/// that may be taken back don't count
/// @return RKV_STATUS_OK, also with one group; RKV_STATUS_INVALID_STATE when a copy is open;
/// RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of the sequence
/// goes on; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages that leave); lock; allocates nothing
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_slide(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    computed_position_count: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            Ok(shared.turn().slide(SequenceId(sequence), at_most(computed_position_count))?)
        })
    }
}
