//! Lookups: match and probe, and many of them at once.
use crate::capi::cache::matching::{Wanted, match_tokens, row_of};
use crate::capi::cache::{rkv_cache, rkv_lock_id, rkv_node_id};
use crate::capi::ffi::{
    AbiElement, AbiStruct, Many, WantedElements, check_fit, check_flags, check_zero, out, put,
    rkv_status, with,
};
use crate::capi::token::{lookup_ahead, namespace_at, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::Error;

/// Flag of rkv_cache_match(): lock the match in the same step. Undo with rkv_cache_unlock() of
/// rkv_cache_match_result.lock.
pub const RKV_MATCH_LOCK: u32 = 1;
/// The longest cached prefix of a token list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_match_result {
    /// sizeof(rkv_cache_match_result).
    pub struct_size: u32,
    /// Page that holds the positions after the last whole page, for partial_position_count > 0;
    /// copy them, never write to the page. Else 0.
    pub partial_page: u32,
    /// Node that ends where the whole pages end; 0 when no whole page matched.
    pub node: rkv_node_id,
    /// Node that owns partial_page; 0 when there is none.
    pub partial_node: rkv_node_id,
    /// With RKV_MATCH_LOCK: the lock, which protects all pages of the match, partial_page included;
    /// 0 when nothing matched.
    pub lock: rkv_lock_id,
    /// Tokens matched; the rest begins at this index. Never ends inside an image.
    pub token_count: u64,
    /// Positions of those tokens: page_count * page_size + partial_position_count.
    pub position_count: u64,
    /// Whole pages matched.
    pub page_count: u64,
    /// Positions at the start of partial_page that match as well; 0 with RKV_CACHE_WHOLE_PAGES, and
    /// with a STATE group.
    pub partial_position_count: u64,
    /// Positions that are known, of which groups beside the first can reuse only position_count:
    /// rkv_cache_probe_groups() says which costs how much. With one group the same number.
    pub known_position_count: u64,
    /// With a STATE group: where to end a chunk and save the states, so that the next request gets
    /// that far: at the end of what is known, and at the last page boundary that leaves a token of
    /// the prompt to compute. The smaller one first; 0 where there is none to be saved.
    pub checkpoint_at: [u64; 2],
    /// The group that cost the most of the known positions; 0 when none did.
    pub limiting_group: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_match_result {
    const NAME: &'static str = "out_match";
    const V1: usize = 64;
}

/// Whether the match is to be locked.
pub(crate) fn check_match_flags(flags: u32) -> Result<bool, Error> {
    check_flags(flags, RKV_MATCH_LOCK, "flags")?;
    Ok(flags & RKV_MATCH_LOCK != 0)
}

/// Finds the longest cached prefix, at token granularity, and refreshes the recency of its path;
/// that of partial_page too with RKV_MATCH_LOCK.
///
/// A match that ends inside a node splits the node at the page boundary there. It reports, and
/// never creates, namespaces and images. The pages stay good while the match is locked; without
/// RKV_MATCH_LOCK another thread may evict them at once.
///
/// The match may be the whole prompt, and then there are no logits to go on from: look for all
/// tokens but the last to have one left to compute.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for; ids of RKV_TEXT_ID_LIMIT and above match nothing
/// @param flags 0 or RKV_MATCH_LOCK
/// @param pages receives the whole pages in order; not reported when page_capacity is 0. Entries
/// after page_count, and all when the call fails, may be overwritten with undefined values
/// @param page_capacity room in pages; positions / page_size is always enough
/// @param out_match receives the match; set its struct_size first. On RKV_STATUS_BUFFER_TOO_SMALL
/// only its page_count is written, and the cache is unchanged
/// @return RKV_STATUS_OK, also when nothing matched; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_STATE when no more locks can be numbered;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + nodes on the path); lock, in slices where the path is long. With the block-hash index
/// others have the lock while a long prompt is hashed
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_match(
    cache: *mut rkv_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    flags: u32,
    pages: *mut u32,
    page_capacity: usize,
    out_match: *mut rkv_cache_match_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let lock = check_match_flags(flags)?;
            let into = WantedElements::one(out_match, check_fit(out_match)?);
            let wanted = Wanted { lock, row: row_of(pages, page_capacity)?, into, at: 0 };
            with_tokens(tokens, |tokens| {
                let mut named = None;
                let namespace = namespace_at(space, &mut named)?;
                match_tokens(&mut shared.turn(), namespace, tokens, wanted)
            })
        })
    }
}

/// Length of the longest cached prefix. Changes nothing: no split, no recency, no lock, no count.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for
/// @param out_token_count receives the tokens that rkv_cache_match() would find; may be NULL
/// @param out_position_count receives their positions, which may be those of the whole prompt.
/// Whoever admits a sequence asks for all tokens but the last, as rkv_sequence_begin() does, which
/// leaves one to compute, and charges the pages of the prompt less the whole ones of these
/// positions: what is reused of one more is a copy, in a page of the sequence's own
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + nodes on the path); no lock, with the exceptions below; none while a long prompt is
/// hashed
/// @par Thread safety
/// any thread, any number at once. Takes no lock: it neither waits for a thread that changes the
/// cache nor holds one up. While another thread changes it, the answer is that of some moment
/// during the call. It falls back on the lock, shared with other readers, for tokens with an image,
/// with several groups, with the block-hash index, and when the prompt's own nodes change again and
/// again while it looks. Of a long prompt with an image (or, with the block-hash index, of one that
/// others publish more of at the time) it takes the lock for itself, in slices, and what it has
/// passed is protected from eviction until it returns
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_probe(
    cache: *const rkv_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    out_token_count: *mut usize,
    out_position_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let into = out(out_position_count, "out_position_count")?;
            with_tokens(tokens, |tokens| {
                let mut named = None;
                let namespace = namespace_at(space, &mut named)?;
                let (token_count, position_count) = shared.probe(namespace, tokens)?;
                if !out_token_count.is_null() {
                    put(token_count, out_token_count, "out_token_count")?;
                }
                into.write(position_count);
                Ok(())
            })
        })
    }
}

/// One lookup of rkv_cache_match_many().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_match_item {
    /// The namespace; NULL for the default one.
    pub space: *const rkv_namespace,
    /// What to look for.
    pub tokens: *const rkv_tokens,
    /// Receives the whole pages in order, as of rkv_cache_match(); not reported when page_capacity
    /// is 0.
    pub pages: *mut u32,
    /// Room in pages.
    pub page_capacity: usize,
    /// 0 or RKV_MATCH_LOCK.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_cache_match_item {
    const V1: usize = 40;
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_cache_match_result {
    const V1: usize = 64;

    fn sized(self, struct_size: u32) -> Self {
        Self { struct_size, ..self }
    }
}

/// One lookup of rkv_cache_probe_many().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_probe_item {
    /// The namespace; NULL for the default one.
    pub space: *const rkv_namespace,
    /// What to look for.
    pub tokens: *const rkv_tokens,
}
// SAFETY: pointers, no padding.
unsafe impl AbiElement for rkv_cache_probe_item {
    const V1: usize = 16;
}

/// What one lookup of rkv_cache_probe_many() found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_probe_result {
    /// Tokens that rkv_cache_match() would find.
    pub token_count: u64,
    /// Their positions, as of rkv_cache_probe().
    pub position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_cache_probe_result {
    const V1: usize = 16;
}

/// Finds many prefixes: as many calls of rkv_cache_match(), in order. One lock as long as nobody
/// waits for it; who waits gets in between two items, and where rkv_cache_match() lets others have
/// the lock. So without RKV_MATCH_LOCK the pages of one item may be evicted before the call
/// returns.
///
/// Each item has a status of its own, and one that fails does not keep the others from being
/// carried out. rkv_last_error_message() is about the last that failed and names it, e.g.
/// `items[3]: ...`.
///
/// @param cache the cache
/// @param items what to look for, and where the pages go
/// @param count items, also in the arrays below; with 0 those may be NULL
/// @param item_size sizeof(rkv_cache_match_item)
/// @param matches receives the matches, struct_size included. That of an item that failed is left
/// as it is, but for page_count with RKV_STATUS_BUFFER_TOO_SMALL
/// @param match_size sizeof(rkv_cache_match_result); not read with count 0
/// @param statuses receives what rkv_cache_match() would have returned for each item
/// @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves, nothing is done then;
/// RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; lock, between two items to who waits. In a large tree less: the
/// lookups of the next items go ahead and have fetched what they read. With the block-hash
/// index several prompts are hashed side by side, while others have the lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_match_many(
    cache: *mut rkv_cache,
    items: *const rkv_cache_match_item,
    count: usize,
    item_size: usize,
    matches: *mut rkv_cache_match_result,
    match_size: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let many = Many::new((items, "items"), count, item_size, statuses)?;
            let names = ["matches", "match_size"];
            let matches = WantedElements::new(matches, match_size, count, names)?;
            let many =
                many.with_lookups(|item, named| lookup_ahead(item.space, item.tokens, named));
            many.in_turn(shared, WantedElements::none(), |turn, at, item| {
                let lock = check_match_flags(item.flags)?;
                check_zero(item.reserved, "reserved")?;
                let row = row_of(item.pages, item.page_capacity)?;
                let wanted = Wanted { lock, row, into: matches, at };
                with_tokens(item.tokens, |tokens| {
                    let mut named = None;
                    let namespace = namespace_at(item.space, &mut named)?;
                    match_tokens(turn, namespace, tokens, wanted)
                })
            })
        })
    }
}

/// Lengths of many cached prefixes: as many calls of rkv_cache_probe(). Changes nothing.
///
/// Each item has a status of its own. rkv_last_error_message() is about the last that failed and
/// names it, e.g. `items[3]: ...`.
///
/// @param cache the cache
/// @param items what to look for
/// @param count items, also in the arrays below; with 0 those may be NULL
/// @param item_size sizeof(rkv_cache_probe_item)
/// @param results receives what was found; that of an item that failed is left as it is
/// @param result_size sizeof(rkv_cache_probe_result); not read with count 0
/// @param statuses receives what rkv_cache_probe() would have returned for each item
/// @return RKV_STATUS_OK when all items were gone through, whatever their statuses;
/// RKV_STATUS_INVALID_ARGUMENT for the arrays themselves; RKV_STATUS_POISONED
/// @par Cost
/// the sum of the single calls; no lock, with the exceptions of rkv_cache_probe(). In a large tree
/// less: the lookups of the next items go ahead and have fetched what they read. With the
/// block-hash index several prompts are hashed side by side
/// @par Thread safety
/// any thread, any number at once, as rkv_cache_probe(). Each answer is that of a moment of its own
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_probe_many(
    cache: *const rkv_cache,
    items: *const rkv_cache_probe_item,
    count: usize,
    item_size: usize,
    results: *mut rkv_cache_probe_result,
    result_size: usize,
    statuses: *mut rkv_status,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let many = Many::new((items, "items"), count, item_size, statuses)?;
            let names = ["results", "result_size"];
            let results = WantedElements::new(results, result_size, count, names)?;
            let many =
                many.with_lookups(|item, named| lookup_ahead(item.space, item.tokens, named));
            many.one_by_one(shared, results, |item, ahead| {
                with_tokens(item.tokens, |tokens| {
                    let mut named = None;
                    let namespace = namespace_at(item.space, &mut named)?;
                    let (tokens, positions) = shared.probe_ahead(namespace, tokens, ahead)?;
                    Ok(rkv_cache_probe_result {
                        token_count: tokens as u64,
                        position_count: positions as u64,
                    })
                })
            })
        })
    }
}
