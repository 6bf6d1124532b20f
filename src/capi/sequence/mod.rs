//! Sequences: begin, how one stands, the copies that it waits for.
mod steps;
mod many;
mod continuation;
mod groups;

pub use continuation::*;
pub use groups::*;
pub use many::*;
pub use steps::*;

use crate::capi::cache::{rkv_cache, rkv_node_id};
use crate::capi::ffi::{
    AbiStruct, Fail, WantedElements, at_most, check_fit, check_flags, count_of, read_struct,
    rkv_status, with, write_struct,
};
use crate::capi::runner::rkv_page_copy;
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::Namespace;
use crate::sequence::Room;
use crate::store::SequenceInfo;
use crate::token::TokenList;

/// Names a live sequence of one cache. Zero names none. An id is never used again for another one.
/// With an external pool there are no sequences, and calls that take an id return
/// RKV_STATUS_UNSUPPORTED.
pub type rkv_sequence_id = u64;

/// How to begin a sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_begin_args {
    /// sizeof(rkv_sequence_begin_args).
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// The namespace; NULL for the default one.
    pub space: *const rkv_namespace,
    /// The prompt, at least one token.
    pub tokens: *const rkv_tokens,
    /// Positions beyond the prompt to allocate pages for at once, e.g. for the tokens to come. 0
    /// is fine: rkv_sequence_append() allocates as it goes.
    pub reserve_position_count: u64,
    /// How many of the prompt's first positions get pages at once, e.g. the first chunk of the
    /// prefill; what is reused always has its pages. rkv_sequence_allocate() adds the others, chunk
    /// by chunk. 0, or the whole prompt or more: all of it, and what is reserved. Fewer: nothing is
    /// reserved yet. The prompt and the reserve must fit in any case; but of WINDOW and CHUNK
    /// groups, whose pages go back as chunks are computed, only what they attend to and one chunk:
    /// where their pools have no room for whole prompts, allocate chunk by chunk, or the call is
    /// RKV_STATUS_OUT_OF_PAGES however long you wait.
    pub allocate_position_count: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_sequence_begin_args {
    const NAME: &'static str = "args";
    const V1: usize = 40;
}

/// A sequence as it stands.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_info {
    /// sizeof(rkv_sequence_info).
    pub struct_size: u32,
    /// Its row in the page table: for rkv_page_table_read_row(), _slot_mapping() and _batch().
    pub slot: u32,
    /// The sequence.
    pub sequence: rkv_sequence_id,
    /// Positions of its tokens so far.
    pub position_count: u64,
    /// Positions whose KV was reused at begin; computing starts here. A token boundary, and less
    /// than the prompt; only for the children of rkv_sequence_fork() it may be all of it.
    pub cached_position_count: u64,
    /// Tokens that those positions hold; the first token to compute has this index.
    pub cached_token_count: u64,
    /// Pages of its row. Fewer than its positions need while rkv_sequence_allocate() has not added
    /// the others.
    pub page_count: u64,
    /// Leading pages of its row that the cache owns. The others are private. Never write to these.
    pub shared_page_count: u64,
    /// The node that the sequence keeps locked, 0 for none. rkv_sequence_publish() and
    /// rkv_sequence_confirm_copies() may change it, of a child also the publishing of its parent.
    pub node: rkv_node_id,
    /// Page copies to carry out before computing, see rkv_sequence_read_copies(); 0 when there are
    /// none, or none left.
    pub copy_count: u64,
    /// Of the reused positions, those inherited from a parent; 0 unless
    /// rkv_sequence_continue() or rkv_sequence_fork() made the sequence.
    pub inherited_position_count: u64,
    /// How far its tokens were known at begin, as rkv_cache_match_result.known_position_count. With
    /// one group of layers, and of a child, the same as cached_position_count.
    pub known_position_count: u64,
    /// With a STATE group, where to end a chunk, publish it and save the states by
    /// rkv_sequence_checkpoint(): as rkv_cache_match_result.checkpoint_at.
    pub checkpoint_at: [u64; 2],
    /// The group that cost the most of the known positions; 0 when none did.
    pub limiting_group: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_sequence_info {
    const NAME: &'static str = "out_state";
    const V1: usize = 80;
}

/// The copies that a sequence waits for, in all groups.
pub(crate) fn copy_count(info: &SequenceInfo) -> usize {
    info.copy.is_some() as usize + info.group_copies
}

pub(crate) fn state_struct(info: &SequenceInfo) -> rkv_sequence_info {
    rkv_sequence_info {
        struct_size: 0,
        slot: info.slot,
        sequence: info.id.0,
        position_count: info.positions as u64,
        cached_position_count: info.cached_positions as u64,
        cached_token_count: info.cached_tokens as u64,
        page_count: info.pages as u64,
        shared_page_count: info.shared_pages as u64,
        node: info.node.map_or(0, |node| node.0),
        copy_count: copy_count(info) as u64,
        inherited_position_count: info.inherited_positions as u64,
        known_position_count: u64::from(info.depths.known).max(info.cached_positions as u64),
        checkpoint_at: info.depths.checkpoint_at.map(u64::from),
        limiting_group: info.depths.costliest,
        reserved: 0,
    }
}

/// Reads what a sequence is to begin with, begins it, and has `tell` say how it stands: there,
/// where the large struct need not be handed on.
///
/// # Safety
/// What the arguments point to is readable, per the header.
pub(crate) unsafe fn begin_with<R>(
    args: &rkv_sequence_begin_args,
    begin: impl FnOnce(&Namespace, TokenList<'_>, Room) -> Result<SequenceInfo, Error>,
    tell: impl FnOnce(&rkv_sequence_info) -> Result<R, Fail>,
) -> Result<R, Fail> {
    check_flags(args.flags, 0, "args.flags")?;
    // SAFETY: the caller's contract.
    let namespace = unsafe { read_namespace(args.space)? };
    let body = |tokens: TokenList<'_>| {
        let reserve = count_of(args.reserve_position_count, "args.reserve_position_count")?;
        let first = at_most(args.allocate_position_count);
        tell(&state_struct(&begin(&namespace, tokens, Room { reserve, first })?))
    };
    // SAFETY: the caller's contract.
    unsafe { with_tokens(args.tokens, body) }
}

/// Begins a sequence: finds the longest cached prefix, locks it, takes a slot, maps the shared
/// pages and allocates the others, evicting when the pool is short. One transaction: it happens
/// whole or not at all.
///
/// At least one token is left to compute, and the cut is never inside an image. Where the prefix
/// ends inside a page, there is a copy to carry out: rkv_sequence_read_copies().
///
/// Whether it fits is checked for the whole prompt and the reserve. With allocate_position_count
/// only the first positions get their pages now: a long prompt that is computed in chunks does not
/// hold pages that it needs much later. Nothing keeps those free for it.
///
/// @param cache the cache
/// @param args the prompt and its namespace
/// @param out_state receives the sequence; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was
/// evicted; RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT, also for a prompt longer than a row may be;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + nodes on the path + pages of the row + evictions); lock, in slices. With the
/// block-hash index others have the lock while a long prompt is hashed
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_begin(
    cache: *mut rkv_cache,
    args: *const rkv_sequence_begin_args,
    out_state: *mut rkv_sequence_info,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            check_fit(out_state)?;
            let begin = |space: &_, tokens: TokenList<'_>, room| shared.begin(space, tokens, room);
            begin_with(&args, begin, |state| write_struct(out_state, state))
        })
    }
}

/// A sequence as it stands.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param out_state receives it; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_read_info(
    cache: *const rkv_cache,
    sequence: rkv_sequence_id,
    out_state: *mut rkv_sequence_info,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_state.
    unsafe {
        with(cache, |shared| {
            let info = shared.read().sequence_info(SequenceId(sequence))?;
            write_struct(out_state, &state_struct(&info))
        })
    }
}

/// The page copies that a sequence waits for: the first positions of pages of the cache or of a
/// parent, to private pages of the sequence. Carry them out in every layer before the sequence
/// computes, then call rkv_sequence_confirm_copies(); until then the sources stay protected.
///
/// Each names its group. Of a STATE group it is a whole page, whatever position_count says: from a
/// checkpoint or a parent's state to the sequence's own, or after rkv_sequence_checkpoint() from
/// that to a new checkpoint.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param copies receives them, as rkv_runner_copy_pages() takes them; (NULL, 0) asks for the count
/// @param element_size sizeof(rkv_page_copy); not read with capacity 0
/// @param capacity room in copies; one for each group is enough
/// @param out_count receives the number of copies, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK, also when there are none; RKV_STATUS_PENDING with several groups while a
/// fetch or rkv_sequence_agree() of the sequence goes on; RKV_STATUS_STALE_SEQUENCE;
/// RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_read_copies(
    cache: *const rkv_cache,
    sequence: rkv_sequence_id,
    copies: *mut rkv_page_copy,
    element_size: usize,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, copies and out_count.
    unsafe {
        with(cache, |shared| {
            let names = ["copies", "element_size"];
            let mut into = WantedElements::new(copies, element_size, capacity, names)?;
            let state = shared.read();
            let (copy, of_groups) = state.open_copies(SequenceId(sequence))?;
            let count = of_groups.len() + copy.is_some() as usize;
            let mut all =
                copy.iter().map(rkv_page_copy::from).chain(of_groups.iter().map(Into::into));
            let values = (0..count).map(|_| all.next().expect("there are so many"));
            into.fill(values, out_count, "copies")
        })
    }
}

/// Says that the copies that rkv_sequence_read_copies() names are done, all of them: they protect
/// their source pages no longer. (After a full hit the source still is, as part of the prefix that
/// the sequence keeps locked.) A copy to a checkpoint makes that one that can be found.
///
/// @param cache the cache
/// @param sequence the sequence
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when no copy is open; RKV_STATUS_PENDING with
/// several groups while a fetch or rkv_sequence_agree() of the sequence goes on;
/// RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes on the path); lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_confirm_copies(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| Ok(shared.ending(|state| state.confirm_copies(SequenceId(sequence)))?))
    }
}
