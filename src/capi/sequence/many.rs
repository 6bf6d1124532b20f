//! Sequences, many at once: begin, append, publish, release.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{AbiElement, Fail, Many, WantedElements, at_most, rkv_status, slice, with};
use crate::capi::sequence::{
    begin_with, publish_with, rkv_sequence_begin_args, rkv_sequence_id, rkv_sequence_info,
    rkv_sequence_publish_result,
};
use crate::capi::token::{lookup_ahead, rkv_tokens, with_tokens};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::store::READY;
use crate::token::TokenList;

/// Tokens for one sequence of rkv_sequence_append_many().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_append_item {
    /// The sequence.
    pub sequence: rkv_sequence_id,
    /// `id_count` text ids below RKV_TEXT_ID_LIMIT, e.g. the one just decoded.
    pub ids: *const u32,
    /// How many.
    pub id_count: usize,
    /// Instead of ids, which are NULL then: tokens that are not text alone. Else NULL.
    pub tokens: *const rkv_tokens,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_sequence_append_item {
    const V1: usize = 32;
}

/// One sequence of rkv_sequence_publish_many().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_publish_item {
    /// The sequence.
    pub sequence: rkv_sequence_id,
    /// Positions whose KV is written, from the beginning.
    pub computed_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_sequence_publish_item {
    const V1: usize = 16;
}

// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_sequence_begin_args {
    const V1: usize = 40;
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_sequence_info {
    const V1: usize = 80;

    fn sized(self, struct_size: u32) -> Self {
        Self { struct_size, ..self }
    }
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_sequence_publish_result {
    const V1: usize = 40;

    fn sized(self, struct_size: u32) -> Self {
        Self { struct_size, ..self }
    }
}

/// Runs `body` on the tokens of an item.
///
/// # Safety
/// What the item points to is readable, per the header.
unsafe fn with_added(
    item: &rkv_sequence_append_item,
    body: impl FnOnce(TokenList<'_>) -> Result<(), Fail>,
) -> Result<(), Fail> {
    if item.tokens.is_null() {
        // SAFETY: the caller's contract.
        return body(TokenList::text(unsafe { slice(item.ids, item.id_count, "ids")? }));
    }
    if !item.ids.is_null() || item.id_count > 0 {
        return Err(Error::argument("ids and tokens are both set").into());
    }
    // SAFETY: the caller's contract.
    unsafe { with_tokens(item.tokens, body) }
}

/// Begins many sequences: as many calls of rkv_sequence_begin(), in order, so a later one finds
/// what an earlier one changed. One lock as long as nobody waits for it; who waits gets in between
/// two items, and where rkv_sequence_begin() lets others have the lock.
///
/// Each item has a status of its own, and one that fails does not keep the others from being
/// carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
/// `items[3]: ...`; rkv_last_shortage() about the last that lacked pages.
///
/// @param cache the cache
/// @param items the prompts; their struct_size is not read, item_size stands for it
/// @param count items, also in the arrays below; with 0 those may be NULL
/// @param item_size sizeof(rkv_sequence_begin_args)
/// @param states receives the sequences, struct_size included; that of an item that failed is left
/// as it is
/// @param state_size sizeof(rkv_sequence_info); not read with count 0
/// @param statuses receives what rkv_sequence_begin() would have returned for each item
/// @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
/// RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; lock, in slices, and between two items to who waits. In a large
/// tree less: the lookups of the next items go ahead and have fetched what they read. With the
/// block-hash index several prompts are hashed side by side, while others have the lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_begin_many(
    cache: *mut rkv_cache,
    items: *const rkv_sequence_begin_args,
    count: usize,
    item_size: usize,
    states: *mut rkv_sequence_info,
    state_size: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let many = Many::new((items, "items"), count, item_size, statuses)?;
            let names = ["states", "state_size"];
            let states = WantedElements::new(states, state_size, count, names)?;
            let many =
                many.with_lookups(|args, named| lookup_ahead(args.space, args.tokens, named));
            many.in_turn(shared, states, |turn, _, args| {
                let begin =
                    |space: &_, tokens: TokenList<'_>, room| turn.begin(space, tokens, room);
                begin_with(args, begin, |state| Ok(*state))
            })
        })
    }
}

/// Adds tokens to many sequences, e.g. to each the token just decoded: as many calls of
/// rkv_sequence_append(), in order. A step of decoding is this one call;
/// rkv_sequence_publish_many() is for those sequences of which a page became full. One lock as long
/// as nobody waits for it; who waits gets in between two items.
///
/// Each item has a status of its own, and one that fails does not keep the others from being
/// carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
/// `items[3]: ...`; rkv_last_shortage() about the last that lacked pages. One sequence may be in
/// several items.
///
/// @param cache the cache
/// @param items sequences and what to add to them
/// @param count items, also in the array below; with 0 both may be NULL
/// @param item_size sizeof(rkv_sequence_append_item)
/// @param statuses receives what rkv_sequence_append() would have returned for each item
/// @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
/// RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; lock, in slices, and between two items to who waits
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_append_many(
    cache: *mut rkv_cache,
    items: *const rkv_sequence_append_item,
    count: usize,
    item_size: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let many = Many::new((items, "items"), count, item_size, statuses)?;
            many.in_turn(shared, WantedElements::none(), |turn, _, item| {
                let id = SequenceId(item.sequence);
                with_added(item, |tokens| Ok(turn.append(id, tokens)?))
            })
        })
    }
}

/// Publishes what many sequences have computed: as many calls of rkv_sequence_publish(), in order.
/// One lock as long as nobody waits for it; who waits gets in between two items, and where
/// rkv_sequence_publish() lets others in.
///
/// Each item has a status of its own, and one that fails does not keep the others from being
/// carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
/// `items[3]: ...`.
///
/// @param cache the cache
/// @param items sequences and their computed positions
/// @param count items, also in the arrays below; with 0 those may be NULL
/// @param item_size sizeof(rkv_sequence_publish_item)
/// @param results receives what was done, struct_size included; that of an item that failed is left
/// as it is. NULL when it is not wanted
/// @param result_size sizeof(rkv_sequence_publish_result); not read without results
/// @param statuses receives what rkv_sequence_publish() would have returned for each item
/// @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
/// RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; lock, in portions, and between two items to who waits. With the
/// block-hash index pages of several sequences are hashed side by side, while others have the lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_publish_many(
    cache: *mut rkv_cache,
    items: *const rkv_sequence_publish_item,
    count: usize,
    item_size: usize,
    results: *mut rkv_sequence_publish_result,
    result_size: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let many = Many::new((items, "items"), count, item_size, statuses)?;
            let wanted = if results.is_null() { 0 } else { count };
            let names = ["results", "result_size"];
            let results = WantedElements::new(results, result_size, wanted, names)?;
            let mut ahead = many
                .items()
                .map(|item| (SequenceId(item.sequence), at_most(item.computed_position_count)));
            many.in_turn(shared, results, |turn, at, item| {
                if at.is_multiple_of(READY) {
                    turn.make_tails_ready(ahead.by_ref().take(READY));
                    // That lets others in, of whom one may have panicked.
                    if turn.is_poisoned() {
                        return Err(Fail::poisoned());
                    }
                }
                let (id, computed) = (item.sequence, item.computed_position_count);
                publish_with(turn, id, computed, |made| Ok(*made))
            })
        })
    }
}

/// Ends many sequences: as many calls of rkv_sequence_release(), in order. One lock as long as
/// nobody waits for it; who waits gets in between two items.
///
/// Each has a status of its own, and one that fails does not keep the others from being ended.
/// rkv_last_error_message() is about the last that failed and names it, e.g. `sequences[3]: ...`.
///
/// @param cache the cache
/// @param sequences the sequences
/// @param count how many, also in the array below; with 0 both may be NULL
/// @param statuses receives what rkv_sequence_release() would have returned for each; of a sequence
/// that is there twice, RKV_STATUS_STALE_SEQUENCE the second time
/// @return RKV_STATUS_OK when all were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
/// RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; lock, between two items to who waits
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_release_many(
    cache: *mut rkv_cache,
    sequences: *const rkv_sequence_id,
    count: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let size = size_of::<rkv_sequence_id>();
            let many = Many::new((sequences, "sequences"), count, size, statuses)?;
            many.in_turn(shared, WantedElements::none(), |turn, _, id| {
                Ok(turn.release(SequenceId(*id))?)
            })
        })
    }
}
