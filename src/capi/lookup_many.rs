//! Lookups, many at once: match and probe.
use super::cache::rkv_cache;
use super::elements::{AbiElement, GivenElements, WantedElements};
use super::handle::with;
use super::lookup::{Wanted, check_match_flags, match_tokens, rkv_cache_match_result};
use super::many::Statuses;
use super::namespace::{read_namespace, rkv_namespace};
use super::pointer::check_out;
use super::status::rkv_status;
use super::token::{rkv_tokens, with_tokens};

/// One lookup of rkv_cache_match_many().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_match_item {
    /// The namespace; NULL for the default one.
    pub space: *const rkv_namespace,
    /// What to look for.
    pub tokens: *const rkv_tokens,
    /// Receives the whole pages in order; not reported when page_capacity is 0.
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
    /// Their positions.
    pub position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_cache_probe_result {
    const V1: usize = 16;
}

/// Finds many prefixes: as many calls of rkv_cache_match(), in order. One lock as long as nobody
/// waits for it; who waits gets in between two items. So without RKV_MATCH_LOCK the pages of one
/// item may be evicted before the call returns.
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
/// the sum of the single calls; lock, between two items to who waits
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
            let items = GivenElements::new(items, count, (item_size, "item_size"), "items")?;
            let mut matches =
                WantedElements::new(matches, match_size, count, ["matches", "match_size"])?;
            let statuses = Statuses::new(statuses, count)?;
            statuses.for_each(shared, "items", items.iter(), |turn, at, item| {
                let lock = check_match_flags(item.flags)?;
                if item.reserved != 0 {
                    return Err(crate::error::Error::argument("reserved is not zero").into());
                }
                check_out(item.pages, item.page_capacity, "pages")?;
                let page_count = &raw mut (*matches.place(at)).page_count;
                let wanted = Wanted {
                    lock,
                    pages: item.pages,
                    page_capacity: item.page_capacity,
                    page_count,
                };
                let made = with_tokens(item.tokens, |tokens| {
                    let namespace = read_namespace(item.space)?;
                    match_tokens(turn.state(), &namespace, tokens, wanted)
                })?;
                let struct_size = matches.size() as u32;
                matches.put(at, &rkv_cache_match_result { struct_size, ..made });
                Ok(())
            });
            Ok(())
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
/// the sum of the single calls; no lock, with the exceptions of rkv_cache_probe()
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
            let items = GivenElements::new(items, count, (item_size, "item_size"), "items")?;
            let mut results =
                WantedElements::new(results, result_size, count, ["results", "result_size"])?;
            let mut statuses = Statuses::new(statuses, count)?;
            for (at, item) in items.iter().enumerate() {
                let done = with_tokens(item.tokens, |tokens| {
                    let namespace = read_namespace(item.space)?;
                    let (tokens, positions) = shared.probe(&namespace, tokens)?;
                    results.put(
                        at,
                        &rkv_cache_probe_result {
                            token_count: tokens as u64,
                            position_count: positions as u64,
                        },
                    );
                    Ok(())
                });
                statuses.put(at, done, "items");
            }
            Ok(())
        })
    }
}
