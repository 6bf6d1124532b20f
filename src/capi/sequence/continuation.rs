//! Sequences that go on from another one: continue, fork, retain, and what is retained.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, WantedElements, at_most, check_fit, check_flags, count_of, fill,
    out, read_struct, rkv_status, with, write_struct,
};
use crate::capi::sequence::{copy_count, rkv_sequence_id, rkv_sequence_info, state_struct};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::try_collect;
use crate::sequence::{Continuation, Room};
use crate::token::TokenList;

/// Flag of rkv_sequence_continue_args: take over what a parent that is still running has computed
/// so far. Without it such a parent is RKV_STATUS_PENDING.
pub const RKV_CONTINUE_RUNNING: u32 = 1;

/// How to go on from another sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_continue_args {
    /// sizeof(rkv_sequence_continue_args).
    pub struct_size: u32,
    /// RKV_CONTINUE_ flags.
    pub flags: u32,
    /// The parent: a retained or a live sequence.
    pub parent: rkv_sequence_id,
    /// The namespace, which must be the parent's; NULL for the default one.
    pub space: *const rkv_namespace,
    /// What the child has after the tokens of its parent; NULL for nothing.
    pub tokens: *const rkv_tokens,
    /// All tokens of the child, to begin with by a lookup when the parent is neither live nor
    /// retained any more; NULL when that is to fail. Compared with nothing otherwise.
    pub all_tokens: *const rkv_tokens,
    /// Positions beyond the child's tokens to allocate pages for at once.
    pub reserve_position_count: u64,
    /// How many of the child's first positions get pages at once, as in rkv_sequence_begin_args; 0
    /// for all, and what is reserved.
    pub allocate_position_count: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_sequence_continue_args {
    const NAME: &'static str = "args";
    const V1: usize = 56;
}

/// How to fork a sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_fork_args {
    /// sizeof(rkv_sequence_fork_args).
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// The parent: a live or a retained sequence. It stays as it is.
    pub parent: rkv_sequence_id,
    /// Children, at least one.
    pub child_count: usize,
    /// Positions beyond the parent's tokens to allocate pages for at once, for each child.
    pub reserve_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_sequence_fork_args {
    const NAME: &'static str = "args";
    const V1: usize = 32;
}

/// A child of a fork.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_fork_child {
    /// The child; rkv_sequence_read_info() tells the rest.
    pub sequence: rkv_sequence_id,
    /// Its row in the page table.
    pub slot: u32,
    /// Page copies to carry out before the child computes: rkv_sequence_read_copies().
    pub copy_count: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_sequence_fork_child {
    const V1: usize = 16;
}

/// Begins a sequence that goes on from another one: its tokens are all that the parent has now, and
/// those that are given. What the parent has computed is taken over by reference: no lookup, no
/// comparison of its tokens, no copy of whole pages, and no eviction can come in between.
///
/// Computed is what rkv_sequence_publish() was told last, or what the parent began with. Where that
/// ends inside a page, the child is told to copy as at rkv_sequence_begin(); the page to copy from
/// stays protected also when the parent ends. At least one token is left to compute, and the cut is
/// never inside an image.
///
/// With several groups the child copies the states; until it has, a parent that runs must not
/// change them, and a plan with it is refused.
///
/// @param cache the cache
/// @param args parent and tokens
/// @param out_state receives the sequence; set its struct_size first. inherited_position_count is 0
/// when it began with all_tokens instead
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE when the parent is neither live nor retained
/// and all_tokens is NULL; RKV_STATUS_PENDING when it is live and RKV_CONTINUE_RUNNING is not set,
/// or with several groups while a fetch or rkv_sequence_agree() of it goes on;
/// RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), before anything was evicted;
/// RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_INVALID_STATE when the parent waits for copies of groups
/// itself, or has pages that a fetch brought and that were not published for want of memory:
/// rkv_sequence_publish() does that; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT, also for another namespace than the parent's, naming the field;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + pages of the row + nodes on the path + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_continue(
    cache: *mut rkv_cache,
    args: *const rkv_sequence_continue_args,
    out_state: *mut rkv_sequence_info,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            check_flags(args.flags, RKV_CONTINUE_RUNNING, "args.flags")?;
            check_fit(out_state)?;
            let namespace = read_namespace(args.space)?;
            with_tokens_if(args.tokens, "args.tokens", |suffix| {
                with_tokens_if(args.all_tokens, "args.all_tokens", |all| {
                    let info = shared.continue_from(&Continuation {
                        parent: SequenceId(args.parent),
                        namespace: &namespace,
                        suffix: suffix.unwrap_or(TokenList::text(&[])),
                        all,
                        room: Room {
                            reserve: count_of(
                                args.reserve_position_count,
                                "args.reserve_position_count",
                            )?,
                            first: at_most(args.allocate_position_count),
                        },
                        running: args.flags & RKV_CONTINUE_RUNNING != 0,
                    })?;
                    write_struct(out_state, &state_struct(&info))
                })
            })
        })
    }
}

/// Runs `body` on a token list that may be NULL, and has a name.
///
/// # Safety
/// `tokens` is NULL, or readable with what it points to, per the header.
unsafe fn with_tokens_if<R>(
    tokens: *const rkv_tokens,
    name: &str,
    body: impl FnOnce(Option<TokenList<'_>>) -> Result<R, Fail>,
) -> Result<R, Fail> {
    if tokens.is_null() {
        return body(None);
    }
    let mut is_read = false;
    // SAFETY: the caller's contract.
    let done = unsafe {
        with_tokens(tokens, |tokens| {
            is_read = true;
            body(Some(tokens))
        })
    };
    // What the body refuses has its name.
    if is_read { done } else { done.map_err(|fail| fail.within(name)) }
}

/// Forks a sequence: begins children with the same tokens, e.g. for beam search or for several
/// samples of one prompt. All of them or none.
///
/// Each child takes over what the parent has computed, as at rkv_sequence_continue(), and may have
/// nothing left to compute: append its first own token. Whole pages are shared once
/// rkv_sequence_publish() was told that they are computed, since what several rows map is the
/// cache's; so publish before a fork. The page that is computed in part stays the parent's, and
/// each child copies it. Releasing a child frees exactly its private pages.
///
/// With several groups a child has rows in all of them. It copies the states, which must be those
/// of the positions that rkv_sequence_publish() was told of last; until it has, the parent must not
/// change them, and a plan with the parent is refused.
///
/// @param cache the cache
/// @param args parent and number of children
/// @param out_children receives child_count children
/// @param element_size sizeof(rkv_sequence_fork_child)
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_PAGES, see
/// rkv_last_shortage(), before anything was evicted; RKV_STATUS_OUT_OF_SLOTS;
/// RKV_STATUS_INVALID_STATE when the parent waits for copies of groups itself, or has pages that a
/// fetch brought and that were not published for want of memory: rkv_sequence_publish() does that;
/// RKV_STATUS_PENDING with several groups while a fetch or rkv_sequence_agree() of it goes on;
/// RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(children * (pages of the row + nodes on the path) + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_fork(
    cache: *mut rkv_cache,
    args: *const rkv_sequence_fork_args,
    out_children: *mut rkv_sequence_fork_child,
    element_size: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            check_flags(args.flags, 0, "args.flags")?;
            let children = args.child_count;
            if children == 0 {
                return Err(Error::argument("args.child_count is zero").into());
            }
            let names = ["out_children", "element_size"];
            let mut into = WantedElements::new(out_children, element_size, children, names)?;
            let reserve = count_of(args.reserve_position_count, "args.reserve_position_count")?;
            let children = shared.fork(SequenceId(args.parent), children, reserve)?;
            for (at, child) in children.iter().enumerate() {
                let made = rkv_sequence_fork_child {
                    sequence: child.id.0,
                    slot: child.slot,
                    copy_count: copy_count(child) as u32,
                };
                into.put(at, &made);
            }
            Ok(())
        })
    }
}

/// Ends a sequence like rkv_sequence_release(), but keeps it for rkv_sequence_continue() and
/// rkv_sequence_fork() under its id: its tokens, the pages that it published, and the page that it
/// computed in part. The slot is free, the other private pages are, too. A copy that is not
/// confirmed is given up; one of a group beside the first has to be confirmed before.
///
/// While a sequence is retained its pages are not evicted, whatever else is short. It stays until
/// rkv_sequence_drop(), rkv_cache_drop_retained(), an rkv_cache_clear() of its namespace, or until
/// the bounds of the cache's configuration are exceeded: then those that finished first give way,
/// whether or not somebody went on from them since. To publish what was computed last, call
/// rkv_sequence_publish() before.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param out_retained receives false when the sequence alone has more pages than all retained ones
/// may have, began before its namespace was cleared, or has pages that a fetch brought and that
/// were not published for want of memory; it was released then
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING while a fetch of the sequence is open, and with
/// several groups while rkv_sequence_agree() goes on; RKV_STATUS_INVALID_STATE while a copy of a
/// group beside the first is open; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(private pages of the row + nodes on the path), for those that give way too, and the pages that
/// other FULL groups keep; lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_retain(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    out_retained: *mut bool,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_retained.
    unsafe {
        with(cache, |shared| {
            let into = out(out_retained, "out_retained")?;
            into.write(shared.turn().retain(SequenceId(sequence))?);
            Ok(())
        })
    }
}

/// Drops a retained sequence. What it published stays in the cache and may be evicted, its
/// private page returns to the pool once no copy reads it.
///
/// @param cache the cache
/// @param sequence a retained sequence
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_SEQUENCE, also for a live one, which
/// rkv_sequence_release() ends; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes on the path), and the pages that other FULL groups kept; lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_drop(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.turn().drop_retained(SequenceId(sequence))?)) }
}

/// Drops retained sequences, the first to finish first, until page_count more pages of pool 0 are
/// available: free ones, or ones that eviction could free. No allocation does this by itself, since
/// a retained sequence is a promise; so call it with what rkv_last_shortage() says is lacking. With
/// several pools it names the one that is short: rkv_cache_drop_retained_pool().
///
/// @param cache the cache
/// @param page_count pages wanted; SIZE_MAX drops all
/// @param out_page_count receives how many more are available: fewer when none is retained any
/// more
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// that of rkv_sequence_drop() for each; lock, given up between sequences
/// @par Thread safety
/// any thread; lets waiting threads in between sequences
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_drop_retained(
    cache: *mut rkv_cache,
    page_count: usize,
    out_page_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_page_count.
    unsafe { rkv_cache_drop_retained_pool(cache, 0, page_count, out_page_count) }
}

/// rkv_cache_drop_retained() for any pool: rkv_shortage says which one is short. Sequences that
/// keep nothing in that pool go too when they finished first.
///
/// @param cache the cache
/// @param pool the pool's number; 0 without a list of pools
/// @param page_count pages wanted; SIZE_MAX drops all
/// @param out_page_count receives how many more of the pool are available: fewer when none is
/// retained any more
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// that of rkv_sequence_drop() for each; lock, given up between sequences
/// @par Thread safety
/// any thread; lets waiting threads in between sequences
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_drop_retained_pool(
    cache: *mut rkv_cache,
    pool: u32,
    page_count: usize,
    out_page_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_page_count.
    unsafe {
        with(cache, |shared| {
            let into = out(out_page_count, "out_page_count")?;
            into.write(shared.drop_retained(pool, page_count)?);
            Ok(())
        })
    }
}

/// The retained sequences, those that finished first at the front.
///
/// @param cache the cache
/// @param sequences receives their ids; (NULL, 0) asks for the count
/// @param capacity room in ids
/// @param out_count receives how many there are, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(retained sequences); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_retained(
    cache: *const rkv_cache,
    sequences: *mut rkv_sequence_id,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, sequences and out_count.
    unsafe {
        with(cache, |shared| {
            let retained = shared.read().retained_ids();
            let ids = try_collect(retained?.into_iter().map(|id| id.0))?;
            fill(&ids, sequences, capacity, out_count, ["sequences", "out_count"])
        })
    }
}
