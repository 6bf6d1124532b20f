//! What comes back from below the memory of a snapshot cache: fetches, and the parts of a copy.
use crate::capi::ffi::{
    AbiStruct, Fail, WantedElements, check_fit, check_flags, out, rkv_status, write_struct,
};
use crate::capi::snapshot::entry::{match_result, shown};
use crate::capi::snapshot::handle::{Needs, with};
use crate::capi::snapshot::{
    RKV_SNAPSHOT_MATCH_TRIMMABLE, rkv_pin_id, rkv_snapshot_cache, rkv_snapshot_cache_match_result,
    rkv_snapshot_part,
};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_text};
use crate::ids::HandleId;
use crate::memory::try_collect;
use crate::snapshot::tiered::{State, Taken};
use crate::tier::Source;

/// Names a fetch of one snapshot cache, from rkv_snapshot_cache_fetch() until it is taken or
/// cancelled. Zero names none. A stale id gives RKV_STATUS_STALE_TICKET, and never means another
/// fetch.
pub type rkv_ticket_id = u64;

/// A fetch that was started. All zero when nothing below memory is longer than what memory has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_fetch_result {
    /// sizeof(rkv_snapshot_cache_fetch_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Names the fetch: rkv_snapshot_cache_take() or rkv_snapshot_cache_cancel() ends it. 0 when
    /// none was started.
    pub ticket: rkv_ticket_id,
    /// Tokens of the snapshot that it brings; this and the next two are 0 when the remote store is
    /// asked: rkv_snapshot_cache_take() says then what came, if anything did.
    pub token_count: u64,
    /// Of those, how many the list begins with: all, but with RKV_SNAPSHOT_MATCH_TRIMMABLE.
    pub common_token_count: u64,
    /// What the snapshot takes.
    pub size_bytes: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_fetch_result {
    const NAME: &'static str = "out_fetch";
    const V1: usize = 40;
}

/// Starts to bring the longest prefix below memory into it, if it is longer than what memory has,
/// or to ask the remote store whether it has one; with RKV_SNAPSHOT_MATCH_TRIMMABLE what has most
/// tokens in common, if they are more. Who asks for what is on its way already joins that fetch,
/// with a ticket of its own.
///
/// What was read becomes an entry of the cache when every byte has arrived and its checksum holds,
/// and counts in the byte limit from then on; before, fetches together take no more than the byte
/// limit. Nothing is fetched twice that failed.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for: text only
/// @param flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE, as for rkv_snapshot_cache_match()
/// @param out_fetch receives the fetch; set its struct_size first
/// @return RKV_STATUS_OK, also when there is nothing to fetch; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_STATE when 2^24 tickets are out;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(tokens), and memory for the snapshot; with a remote store a SHA-256 of each 64 tokens. Its own
/// lock; never waits for the disk or the store
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_fetch(
    cache: *mut rkv_snapshot_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    flags: u32,
    out_fetch: *mut rkv_snapshot_cache_fetch_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_flags(flags, RKV_SNAPSHOT_MATCH_TRIMMABLE, "flags")?;
            check_fit(out_fetch)?;
            let trims = flags & RKV_SNAPSHOT_MATCH_TRIMMABLE != 0;
            with_text(tokens, |tokens| {
                let namespace = read_namespace(space)?;
                let fetch = call.cache.fetch(&namespace, tokens, trims, call.freed)?;
                let made = rkv_snapshot_cache_fetch_result {
                    struct_size: 0,
                    reserved: 0,
                    ticket: fetch.map_or(0, |fetch| fetch.ticket.0),
                    token_count: fetch.map_or(0, |fetch| fetch.tokens as u64),
                    common_token_count: fetch.map_or(0, |fetch| fetch.common as u64),
                    size_bytes: fetch.map_or(0, |fetch| fetch.bytes),
                };
                write_struct(out_fetch, &made)
            })
        })
    }
}

/// Takes what a fetch has brought: the snapshot is pinned, as rkv_snapshot_cache_match() would. It
/// never waits; ask again, or sleep on the eventfd of the config.
///
/// @param cache the cache
/// @param ticket from rkv_snapshot_cache_fetch()
/// @param out_match receives the match, whose full_hit says nothing and is 0; all zero when the
/// fetch failed, or the entry was removed meanwhile. Set its struct_size first
/// @return RKV_STATUS_OK, and the ticket has ended; RKV_STATUS_PENDING when it goes on;
/// RKV_STATUS_STALE_TICKET; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY and
/// RKV_STATUS_INVALID_STATE (2^24 pins are out): the ticket is still good; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens); its own lock; never waits for the disk or the store
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_take(
    cache: *mut rkv_snapshot_cache,
    ticket: rkv_ticket_id,
    out_match: *mut rkv_snapshot_cache_match_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers; the handle is the owner's.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_fit(out_match)?;
            let hit = match call.cache.take(HandleId(ticket), shown, call.freed)? {
                Taken::Pending => return Err(Fail::pending("the snapshot is still being read")),
                Taken::Missed => None,
                Taken::Hit(hit) => Some(hit),
            };
            write_struct(out_match, &match_result(cache, hit, false, 0))
        })
    }
}

/// Gives a fetch up. What is still read is thrown away when it arrives, unless others wait for it.
///
/// @param cache the cache
/// @param ticket from rkv_snapshot_cache_fetch()
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_TICKET; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(1); its own lock; never waits for the disk or the store
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_cancel(
    cache: *mut rkv_snapshot_cache,
    ticket: rkv_ticket_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, Needs::Owner, |call| Ok(call.cache.cancel(HandleId(ticket), call.freed)?))
    }
}

/// Lists the parts of a pinned snapshot, as its insert was given them: those of a copy lie in
/// memory of the cache, each at a multiple of 16, and are good until the pin is released.
///
/// @param cache the cache
/// @param pin a pin of this cache
/// @param parts receives the parts; (NULL, 0) asks for their number
/// @param part_size sizeof(rkv_snapshot_part)
/// @param capacity room in parts
/// @param out_count receives the number of parts; 0 for a snapshot that may not be written
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_STALE_PIN;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(parts); its own shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_read_parts(
    cache: *const rkv_snapshot_cache,
    pin: rkv_pin_id,
    parts: *mut rkv_snapshot_part,
    part_size: usize,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            out(out_count, "out_count")?;
            let room = if parts.is_null() { 0 } else { capacity };
            let mut wanted = WantedElements::new(parts, part_size, room, ["parts", "part_size"])?;
            let found = call.cache.pinned(HandleId(pin), |state| {
                let count = match state {
                    State::Given(payload) => payload.parts(),
                    State::Loaded(copy) => copy.parts(),
                };
                try_collect((0..count).map(|at| match state {
                    State::Given(payload) => payload.parts[at],
                    State::Loaded(copy) => {
                        let part = copy.part(at);
                        let (data, size_bytes) = (part.as_ptr().cast(), part.len() as u64);
                        rkv_snapshot_part { data, size_bytes }
                    }
                }))
            })??;
            wanted.fill(found.into_iter(), out_count, "parts")
        })
    }
}
