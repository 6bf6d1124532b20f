//! What a step does with a sequence: it gets pages and tokens, and publishes what was computed; and
//! its end.
use crate::capi::cache::{rkv_cache, rkv_node_id};
use crate::capi::ffi::{AbiStruct, Fail, at_most, check_fit, rkv_status, with, write_struct};
use crate::capi::sequence::rkv_sequence_id;
use crate::capi::token::{rkv_tokens, with_tokens};
use crate::ids::SequenceId;
use crate::store::Turn;

/// What rkv_sequence_publish() did in group 0; rkv_sequence_read_published() has the others.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_publish_result {
    /// sizeof(rkv_sequence_publish_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages that went from the sequence to the cache.
    pub claimed_page_count: u64,
    /// Pages that somebody else had published first: the row maps those now. The sequence's own are
    /// free again; one from which a child is still to copy is free when the child has done so.
    pub remapped_page_count: u64,
    /// Index in the row of the first remapped page; the row's length when none was. Mirrors of the
    /// row need an update from here to shared_page_count.
    pub first_remapped_index: u64,
    /// Leading pages of the row that the cache owns now.
    pub shared_page_count: u64,
    /// The node that the sequence keeps locked now, 0 for none. It takes the place of the one that
    /// rkv_sequence_info or an earlier publishing named, whose id may be stale.
    pub node: rkv_node_id,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_sequence_publish_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 40;
}

/// Publishes, and has `tell` say what was done: there, as for `begin_with`.
#[inline]
pub(crate) fn publish_with<R>(
    turn: &mut Turn<'_>,
    sequence: rkv_sequence_id,
    computed_position_count: u64,
    tell: impl FnOnce(&rkv_sequence_publish_result) -> Result<R, Fail>,
) -> Result<R, Fail> {
    let (id, computed) = (SequenceId(sequence), at_most(computed_position_count));
    let done = turn.publish(id, computed)?;
    let node = turn.sequence_node(id)?;
    tell(&rkv_sequence_publish_result {
        struct_size: 0,
        reserved: 0,
        claimed_page_count: done.claimed as u64,
        remapped_page_count: done.remapped as u64,
        first_remapped_index: done.first_remapped as u64,
        shared_page_count: done.shared_pages as u64,
        node: node.map_or(0, |node| node.0),
    })
}

/// Allocates the pages that a sequence lacks for its first positions, evicting when the pool is
/// short: for the next chunk of a prompt that began with allocate_position_count. All or nothing,
/// so it can be tried again when pages came free. Where the row is as long already, nothing is
/// done.
///
/// Until then nobody can compute or publish those positions: rkv_plan_set() and
/// rkv_sequence_publish() refuse them.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param position_count positions from the beginning that are to have pages, those that have some
/// included; no more than the sequence has
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was
/// evicted; RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of the
/// sequence goes on; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(new pages + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_allocate(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    position_count: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            let positions = at_most(position_count);
            Ok(shared.allocate(SequenceId(sequence), positions)?)
        })
    }
}

/// Adds tokens to a sequence, e.g. the one just decoded, and the pages they need, evicting when the
/// pool is short. Positions before them that have no pages yet get theirs too. All or nothing.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param tokens what to add
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_PENDING as
/// rkv_sequence_allocate(); RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_UNSUPPORTED with an external
/// pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_append(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    tokens: *const rkv_tokens,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and tokens.
    unsafe {
        with(cache, |shared| {
            with_tokens(tokens, |tokens| Ok(shared.append(SequenceId(sequence), tokens)?))
        })
    }
}

/// Takes the last positions off a sequence, e.g. draft tokens that were refused. Pages stay with
/// the row for what comes next.
///
/// A state can't be taken back: with STATE groups the step that computes draft tokens leaves one
/// behind each. Of the tokens since the last publishing, the last rkv_sequence_slide(), or the last
/// truncation, it writes the state after the first into the first page of the sequence's row in the
/// group, in its place, and the one after each next token into the next page. Truncation then makes
/// the state after position_count the first page of the row, also when every token is kept.
/// position_count is between one and 1 + draft_state_count more than before. What is kept is to be
/// published before the state is saved, or handed on to children. Of tokens that are not computed
/// yet keep the first alone: no state is moved for that, and it is no truncation that states are
/// counted from. When that token was computed, publish it, or let the windows slide, before the
/// next drafts.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param position_count positions to keep: no fewer than the prompt's, no fewer than are
/// published, and not inside an image. The prompt of a child is all that it began with
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a child has
/// yet to copy positions that would go, with states while a copy is open, or where a window has
/// passed what the next positions would attend to or be written to, as rkv_sequence_publish() and
/// rkv_sequence_slide() let it; RKV_STATUS_PENDING with several groups while a fetch or
/// rkv_sequence_agree() of the sequence goes on; RKV_STATUS_UNSUPPORTED with a STATE group without
/// draft states; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_POISONED
/// @par Cost
/// O(dropped pages); lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_truncate(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    position_count: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            let keep = at_most(position_count);
            Ok(shared.turn().truncate(SequenceId(sequence), keep)?)
        })
    }
}

/// Publishes the whole pages among the first positions of a sequence, so that others find them. May
/// be called after every chunk of a prefill and during decode. The sequence keeps exactly one lock,
/// on what it published last; where others have published more of the same prompt, on the end of
/// that. That node may be a longer one in the place of the sequence's earlier node, whose id is
/// stale then: rkv_sequence_publish_result.node is the one to use from now on.
///
/// More than 32 new pages, or 4000 new positions, may be published in portions, between which
/// waiting threads get in. When memory runs out after the first, or another thread truncates the
/// sequence meanwhile, what was published stays: the call succeeds, and shared_page_count says how
/// far it came. Whatever gets published, also where there is no memory for any of it, the states of
/// STATE groups are those after computed_position_count from now on.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param computed_position_count positions whose KV is written, from the beginning; leave out
/// draft tokens. Fewer than before does nothing.
/// @param out_result receives what was done; set its struct_size first; may be NULL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when a copy is not confirmed yet;
/// RKV_STATUS_PENDING while a fetch of the sequence is open, and with several groups while
/// rkv_sequence_agree() goes on; RKV_STATUS_INVALID_ARGUMENT for more positions than the sequence
/// has, or than its row has pages for; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(new whole pages * page_size + nodes on the path); lock, in portions
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_publish(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    computed_position_count: u64,
    out_result: *mut rkv_sequence_publish_result,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_result.
    unsafe {
        with(cache, |shared| {
            if !out_result.is_null() {
                check_fit(out_result)?;
            }
            publish_with(&mut shared.turn(), sequence, computed_position_count, |made| {
                if out_result.is_null() { Ok(()) } else { write_struct(out_result, made) }
            })
        })
    }
}

/// Ends a sequence: unlocks once, returns its private pages to the pool, gives the slot back. What
/// it published stays in the cache. A fetch of it ends too; a page that is being copied comes back
/// when rkv_cache_complete() says that the copy is done.
///
/// @param cache the cache
/// @param sequence the sequence
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE, also when released twice, and for a retained
/// one, which rkv_sequence_drop() ends; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages of the row + nodes on the path); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_release(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.turn().release(SequenceId(sequence))?)) }
}
