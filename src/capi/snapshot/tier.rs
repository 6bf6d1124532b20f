//! What is below the memory of a snapshot cache: a directory, a store that caches share, and what
//! comes back from them.
use crate::capi::ffi::{
    AbiStruct, Fail, WantedElements, check_fit, check_flags, guard, init_struct, out, read_struct,
    rkv_status, wake_of, write_struct,
};
use crate::capi::snapshot::entry::{match_result, shown, text_of};
use crate::capi::snapshot::handle::{Call, Needs, with};
use crate::capi::snapshot::{
    RKV_SNAPSHOT_MATCH_TRIMMABLE, rkv_pin_id, rkv_snapshot_cache, rkv_snapshot_cache_match_result,
    rkv_snapshot_part,
};
use crate::capi::tier::{OWN_THREAD, RKV_TIERS_THREADS, Use, io_of, remote_of, rkv_remote_store};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::{Error, text};
use crate::ids::HandleId;
use crate::memory::{try_box, try_collect};
use crate::snapshot::tiered::{State, Taken, TierPolicy};
use crate::tier::{DiskConfig, DiskStore, LowerStore, Source, Wake};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Names a fetch of one snapshot cache, from rkv_snapshot_cache_fetch() until it is taken or
/// cancelled. Zero names none. A stale id gives RKV_STATUS_STALE_TICKET, and never means another
/// fetch.
pub type rkv_ticket_id = u64;

/// What lies below the memory of a snapshot cache. Fill with rkv_snapshot_tier_config_init(), then
/// change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_tier_config {
    /// sizeof(rkv_snapshot_tier_config).
    pub struct_size: u32,
    /// 0 or RKV_TIERS_THREADS.
    pub flags: u32,
    /// The directory, a path that ends with NUL; made if it isn't there, with its parents. It is
    /// this cache's alone until it is detached. NULL for none, with a remote store.
    pub directory: *const c_char,
    /// Bytes of data in it, at most; least recently used snapshots go. No default; 0 without a
    /// directory.
    pub byte_limit: u64,
    /// What the snapshots are good for: a digest of model, quantisation, layout, and whatever else
    /// changes what their bytes mean. A directory of another fingerprint is refused, in a remote
    /// store nothing of another one is found. Default all zero.
    pub fingerprint: [u8; 32],
    /// When a snapshot is written: 0 as soon as it is inserted, n when n matches have found it,
    /// UINT32_MAX when it leaves memory. Default 0.
    pub write_after_matches: u32,
    /// Requests that are under way to the disk at once, of 2 MiB, as many to read as to write,
    /// 1 to 64: by so many threads, but writes by one where there is io_uring. Default 8.
    pub worker_count: u32,
    /// Bytes of snapshots that wait to be written, at most; a snapshot that would exceed it is
    /// tried again later, if it is still in memory. Of those that wait for that 256 do; what is
    /// beyond is written when it leaves memory, and counts as failed until then. Default 4 GiB.
    pub waiting_byte_limit: u64,
    /// Milliseconds from a write to its commit, at most, while the disk keeps up: after a crash
    /// what was written earlier is there. 1 to 60000. Default 250.
    pub commit_interval_ms: u32,
    /// An eventfd that becomes readable when something was read or written, or -1. The engine reads
    /// it before it asks for its tickets, not after. The cache uses it until it is detached, and
    /// never closes it. Default -1.
    pub event_fd: i32,
    /// A store below the directory that other caches have too, or NULL. Read during the call;
    /// what it leads to stays until it is detached. Default NULL.
    pub remote: *const rkv_remote_store,
    /// Milliseconds that a call to it may take, 1 to 600000. 0 takes the default: 2000. 0 without a
    /// store.
    pub remote_timeout_ms: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_snapshot_tier_config {
    const NAME: &'static str = "config";
    const V1: usize = 80;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_snapshot_tier_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_tier_config_init(
    config: *mut rkv_snapshot_tier_config,
    struct_size: usize,
) -> rkv_status {
    let made = rkv_snapshot_tier_config {
        struct_size: 0,
        flags: 0,
        directory: std::ptr::null(),
        byte_limit: 0,
        fingerprint: [0; 32],
        write_after_matches: 0,
        worker_count: 8,
        waiting_byte_limit: 4 << 30,
        commit_interval_ms: 250,
        event_fd: -1,
        remote: std::ptr::null(),
        remote_timeout_ms: 0,
        reserved: 0,
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Puts a directory, a store that caches share, or both below the memory of a cache. Snapshots with
/// RKV_SNAPSHOT_INSERT_STORABLE are written to them from now on; those that are in the directory
/// already are found at once.
///
/// Of a remote store nobody knows what it has: rkv_snapshot_cache_match() says nothing of it, and
/// rkv_snapshot_cache_fetch() asks it for more tokens than memory and the directory have, so call
/// that wherever a match is less than the prompt. What it brings is in memory then, and in the
/// directory. Found are prefixes alone, also with RKV_SNAPSHOT_MATCH_TRIMMABLE. A server that is
/// slow or dead, or has other bytes than were written, costs a hit: rkv_remote_totals says what
/// happened. rkv_snapshot_cache_remove() takes a snapshot away there too, when a thread comes to
/// it; after rkv_snapshot_cache_clear() the store is left alone, since others fill it: attach anew,
/// with another fingerprint, or use another epoch.
///
/// Attach before the first insert: what memory has already is not compared with what the directory
/// has for the same tokens. Nothing that happens to the disk later fails a call on the cache: a
/// snapshot that cannot be written or read is not found, and counted.
///
/// @param cache the cache
/// @param config what to attach
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
/// when something is attached already; RKV_STATUS_STORAGE when the directory can't be used: another
/// process or cache has it, it was made by another version or for another fingerprint, or the
/// system refuses; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(snapshots in the directory); reads from the disk. Blocks; other calls go on meanwhile
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_attach(
    cache: *mut rkv_snapshot_cache,
    config: *const rkv_snapshot_tier_config,
) -> rkv_status {
    // SAFETY: the caller's contract on both pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            let raw = read_struct(config)?;
            let (config, policy) = read_config(&raw)?;
            let how = Use {
                fingerprint: raw.fingerprint,
                timeout_ms: raw.remote_timeout_ms,
                workers: raw.worker_count,
                waiting_bytes: raw.waiting_byte_limit,
            };
            let remote = remote_of(raw.remote, &how)?;
            if call.cache.is_attached() {
                return Err(Error::state("the cache has a directory: detach that first").into());
            }
            let disk = match config {
                None => None,
                Some(config) => {
                    let opened = DiskStore::open(config);
                    let (store, records) =
                        opened.map_err(|error| Error::Storage(text!("{error}")))?;
                    let store: Box<dyn LowerStore> = try_box(store)?;
                    Some((store, records))
                }
            };
            let remote = match remote {
                None => None,
                Some(remote) => {
                    let nothing: Wake = Box::new(|| {});
                    Some((remote, wake_of(raw.event_fd)?.unwrap_or(nothing)))
                }
            };
            Ok(call.cache.attach_both(disk, remote, policy)?)
        })
    }
}

/// # Safety
/// The directory is NULL or a string that ends with NUL.
unsafe fn read_config(
    raw: &rkv_snapshot_tier_config,
) -> Result<(Option<DiskConfig>, TierPolicy), Fail> {
    let refuse = |text| Err(Error::argument(text).into());
    check_flags(raw.flags, RKV_TIERS_THREADS, "config.flags")?;
    let directory = match raw.directory.is_null() {
        true if raw.remote.is_null() => return refuse(text!("config.directory is NULL")),
        true => None,
        // SAFETY: the caller's contract.
        false => Some(unsafe { CStr::from_ptr(raw.directory) }),
    };
    if directory.is_some_and(CStr::is_empty) {
        return refuse(text!("config.directory is empty"));
    }
    // The least that one takes: a block, and a note.
    if directory.is_some() && raw.byte_limit < DiskStore::cost_of(1, 1) {
        return refuse(text!("config.byte_limit {} is room for no snapshot", raw.byte_limit));
    }
    if directory.is_none() && raw.byte_limit != 0 {
        return refuse(text!("config.byte_limit is set without config.directory"));
    }
    if raw.reserved != 0 {
        return refuse(text!("config.reserved is not zero"));
    }
    if !(1..=64).contains(&raw.worker_count) {
        return refuse(text!("config.worker_count {} is not 1 to 64", raw.worker_count));
    }
    if !(1..=60_000).contains(&raw.commit_interval_ms) {
        let given = raw.commit_interval_ms;
        return refuse(text!("config.commit_interval_ms {given} is not 1 to 60000"));
    }
    if raw.waiting_byte_limit == 0 {
        return refuse(text!("config.waiting_byte_limit is 0"));
    }
    let wake = wake_of(raw.event_fd)?;
    let policy = match raw.write_after_matches {
        0 => TierPolicy::Through,
        u32::MAX => TierPolicy::OnEviction,
        uses => TierPolicy::AfterUses(uses),
    };
    let Some(directory) = directory else { return Ok((None, policy)) };
    let directory = OsStr::from_bytes(directory.to_bytes());
    let config = DiskConfig {
        workers: raw.worker_count as usize,
        commit_interval: Duration::from_millis(raw.commit_interval_ms.into()),
        waiting_bytes: raw.waiting_byte_limit,
        io: io_of(raw.flags),
        wake,
        ..DiskConfig::new(directory, raw.byte_limit, raw.fingerprint)
    };
    Ok((Some(config), policy))
}

fn time(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// RKV_STATUS_PENDING, and what goes on.
fn pending(what: &'static str) -> Result<(), Fail> {
    Err(Fail::pending(what))
}

/// Takes directory and remote store away from a cache, after waiting for what is being written.
/// What was committed is found when they are attached again; snapshots in memory stay, copies too.
/// Tickets that are out are stale from now on.
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most for what is being written
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or for one of the other
/// reasons of rkv_snapshot_cache_flush(): they are detached, and what was not committed is lost;
/// RKV_STATUS_INVALID_STATE when nothing is attached, or in a function of the remote store;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(snapshots in the directory); blocks for the time given, and until a write that goes on has
/// ended
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_detach(
    cache: *mut rkv_snapshot_cache,
    timeout_ms: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_attached(&call)?;
            if call.cache.is_own_thread() {
                return Err(Error::state(OWN_THREAD).into());
            }
            if call.cache.detach(time(timeout_ms), call.freed) {
                Ok(())
            } else {
                pending("not everything was written")
            }
        })
    }
}

fn check_attached(call: &Call<'_>) -> Result<(), Fail> {
    if call.cache.is_attached() {
        return Ok(());
    }
    Err(Error::state("nothing is attached to the cache").into())
}

/// Waits until everything that is being written is committed: after a crash it is there. And until
/// what was removed, replaced or cleared is gone: after a crash it is not there.
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, the directory has no
/// room for something that is still in memory, a write failed since the flush before, the directory
/// cannot be written and has something that was removed or cleared, the remote store does not
/// answer, or refuses, and has something that was removed, or another thread detached it meanwhile;
/// RKV_STATUS_INVALID_STATE when nothing is attached; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// blocks for the time given at most; other calls go on meanwhile
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_flush(
    cache: *mut rkv_snapshot_cache,
    timeout_ms: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_attached(&call)?;
            if call.cache.flush(time(timeout_ms), call.freed) {
                Ok(())
            } else {
                pending("something is not written yet")
            }
        })
    }
}

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
/// or to ask the remote store whether it has one;
/// with RKV_SNAPSHOT_MATCH_TRIMMABLE what has most tokens in common, if they are more. Who asks for
/// what is on its way already joins that fetch, with a ticket of its own.
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
            with_tokens(tokens, |tokens| {
                let (namespace, tokens) = (read_namespace(space)?, text_of(tokens)?);
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
                Taken::Pending => return pending("the snapshot is still being read"),
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
/// @param parts receives the parts; NULL to ask for their number
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
