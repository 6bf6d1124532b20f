//! The entries of a snapshot cache: insert, match, probe, release, remove.
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, GivenElements, check_fit, check_flags, count_of, out, put,
    read_struct, rkv_status, write_struct,
};
use crate::capi::snapshot::handle::{Needs, Payload, keep_for_pin, with, with_pin};
use crate::capi::snapshot::rkv_snapshot_cache;
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_text};
use crate::error::{Error, text};
use crate::ids::HandleId;
use crate::memory::{try_collect, try_to_vec};
use crate::snapshot::tiered::State;
use crate::snapshot::{Hit, NewSnapshot};
use std::ffi::c_void;
use std::ptr;

/// Names a pin on a snapshot of one cache. Zero names none.
///
/// An id is good until it is released, and never means another pin afterwards: a stale id gives
/// RKV_STATUS_STALE_PIN. No two caches of a process have an id in common, also not one after the
/// other. 2^24 pins can be out at once.
pub type rkv_pin_id = u64;

/// Destroys a snapshot. Called exactly once for each snapshot that a cache took over, with what
/// rkv_snapshot_cache_insert() was given, on the thread whose call let the snapshot go, after that
/// call did everything else and while no lock is held: it may call the library, this cache
/// included. One that may be written (RKV_SNAPSHOT_INSERT_STORABLE) may also be let go by a thread
/// of the library, which wrote it or was to, while no lock is held either: there the destructor
/// must not call this cache.
/// It must not throw, longjmp or end its thread: the process would end, see Callbacks at the top.
/// In a child process, after fork(), the parent's snapshots are not destroyed.
pub type rkv_snapshot_destructor =
    Option<unsafe extern "C-unwind" fn(data: *mut c_void, size_bytes: u64, user_data: *mut c_void)>;

/// In rkv_snapshot_cache_insert_args.flags: the snapshot may be written below memory, to what
/// rkv_snapshot_cache_attach() put there, and is found again after it had to leave, also by another
/// process later.
pub const RKV_SNAPSHOT_INSERT_STORABLE: u32 = 1;

/// In rkv_snapshot_cache_insert_args.flags: the engine can take the end of this state away, and
/// then has the state after fewer of its tokens. rkv_snapshot_cache_match() with
/// RKV_SNAPSHOT_MATCH_TRIMMABLE finds it for lists that have only its first tokens.
pub const RKV_SNAPSHOT_INSERT_TRIMMABLE: u32 = 2;

/// For rkv_snapshot_cache_match(): an entry that was inserted with RKV_SNAPSHOT_INSERT_TRIMMABLE
/// counts with the tokens that it has in common with the list, also when it goes on otherwise.
pub const RKV_SNAPSHOT_MATCH_TRIMMABLE: u32 = 1;

/// A piece of memory that a snapshot is made of. An array element: it may grow at its end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rkv_snapshot_part {
    /// Where it begins; NULL is allowed when it has no bytes.
    pub data: *const c_void,
    /// Its bytes.
    pub size_bytes: u64,
}
// SAFETY: an integer and a pointer, no padding.
unsafe impl AbiElement for rkv_snapshot_part {
    const V1: usize = 16;
}

/// What rkv_snapshot_cache_insert() puts where.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_insert_args {
    /// sizeof(rkv_snapshot_cache_insert_args).
    pub struct_size: u32,
    /// RKV_SNAPSHOT_INSERT_STORABLE, RKV_SNAPSHOT_INSERT_TRIMMABLE, both or 0.
    pub flags: u32,
    /// The namespace; NULL for the default one.
    pub space: *const rkv_namespace,
    /// The tokens that led to the state: text only. They are copied.
    pub tokens: *const rkv_tokens,
    /// The snapshot, any pointer, NULL included. It is passed on, and followed only with
    /// RKV_SNAPSHOT_INSERT_STORABLE and no parts.
    pub data: *mut c_void,
    /// What the snapshot takes, for the byte limit; 0 is allowed.
    pub size_bytes: u64,
    /// Destroys the snapshot; NULL when there is nothing to do.
    pub destructor: rkv_snapshot_destructor,
    /// Passed to the destructor.
    pub user_data: *mut c_void,
    /// 1 when next_token is set, else 0.
    pub has_next_token: u32,
    /// The token that the model predicts after these, any number. Zero without has_next_token.
    pub next_token: u32,
    /// With RKV_SNAPSHOT_INSERT_STORABLE: what the snapshot is made of; NULL and 0 for one part,
    /// size_bytes at data. Read until the destructor is called; the array itself is copied.
    pub parts: *const rkv_snapshot_part,
    /// How many parts there are, at most 65536.
    pub part_count: u64,
    /// sizeof(rkv_snapshot_part); 0 without parts.
    pub part_size: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_insert_args {
    const NAME: &'static str = "args";
    const V1: usize = 64;
}

/// What rkv_snapshot_cache_insert() did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_insert_result {
    /// sizeof(rkv_snapshot_cache_insert_result).
    pub struct_size: u32,
    /// 1 when the snapshot is in the cache; 0 when it was destroyed at once.
    pub stored: u32,
    /// 1 when it took the place of another, else 0.
    pub replaced: u32,
    /// Zero.
    pub reserved: u32,
    /// Entries that went for the limits.
    pub evicted_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_insert_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 24;
}

/// The snapshot of the longest stored prefix of a token list; with RKV_SNAPSHOT_MATCH_TRIMMABLE
/// that with most tokens in common. All zero when there is none, but for what could be fetched.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_match_result {
    /// sizeof(rkv_snapshot_cache_match_result).
    pub struct_size: u32,
    /// 1 when the snapshot is that of all tokens: with next_token no forward pass is needed.
    pub full_hit: u32,
    /// Keeps the snapshot: rkv_snapshot_cache_release() when it is no longer read. 0 for a miss.
    pub pin: rkv_pin_id,
    /// The snapshot.
    pub data: *mut c_void,
    /// What it takes.
    pub size_bytes: u64,
    /// Tokens that it covers. Without RKV_SNAPSHOT_MATCH_TRIMMABLE the rest begins at this index.
    pub token_count: u64,
    /// 1 when next_token is set, else 0.
    pub has_next_token: u32,
    /// The token that the model predicts after the tokens that the snapshot covers.
    pub next_token: u32,
    /// Tokens of the snapshot that the list begins with; the rest begins at this index. When they
    /// are fewer than token_count, the engine takes the state's end away.
    pub common_token_count: u64,
    /// Tokens in common with what rkv_snapshot_cache_fetch() would bring from below memory, when
    /// they are more; else 0.
    pub fetchable_token_count: u64,
    /// 1 when data is a copy that the cache read from below memory and owns: then data leads to
    /// its first part, and rkv_snapshot_cache_read_parts() has them all. 0 when data is what an
    /// insert was given.
    pub is_copy: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: integers and a pointer, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_match_result {
    const NAME: &'static str = "out_match";
    const V1: usize = 48;
}

/// Stores a snapshot for a token list, in the place of an earlier one if there is one.
///
/// The cache takes the snapshot over and destroys it when it goes: for the limits, least recently
/// used first, when it is replaced or removed, with the cache. Who has it pinned keeps it until the
/// release. With a directory below memory the same holds there, and what has
/// RKV_SNAPSHOT_INSERT_STORABLE is written to it. A snapshot that is larger than the byte limit,
/// one for no tokens, and any in a disabled cache is not stored: it is destroyed before the call
/// returns, nothing else changes, and that is no error. The new entry itself never goes for the
/// limits in this call: when all others are pinned, the cache is over them until a release.
///
/// @param cache the cache
/// @param args what to insert
/// @param out_result receives what was done; set its struct_size first; may be NULL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for an id that is not below
/// RKV_TEXT_ID_LIMIT, or for items; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. With anything
/// but RKV_STATUS_OK the snapshot stays the caller's, its destructor is not called, and nothing
/// changed.
/// @par Cost
/// O(tokens), and for each snapshot that goes its destructor, without a lock; its own lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_insert(
    cache: *mut rkv_snapshot_cache,
    args: *const rkv_snapshot_cache_insert_args,
    out_result: *mut rkv_snapshot_cache_insert_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            let args = read_struct(args)?;
            let next_token = next_token(&args)?;
            let parts = read_parts_of(&args)?;
            if !out_result.is_null() {
                check_fit(out_result)?;
            }
            with_text(args.tokens, |tokens| {
                let namespace = read_namespace(args.space)?;
                let new = NewSnapshot {
                    namespace: &namespace,
                    tokens,
                    bytes: args.size_bytes,
                    next_token,
                    is_trimmable: args.flags & RKV_SNAPSHOT_INSERT_TRIMMABLE != 0,
                };
                let rkv_snapshot_cache_insert_args {
                    data, size_bytes, destructor, user_data, ..
                } = args;
                let sizes = try_collect(parts.iter().map(|part| part.size_bytes))?;
                let is_storable = args.flags & RKV_SNAPSHOT_INSERT_STORABLE != 0;
                let payload = || Payload { data, size_bytes, destructor, user_data, parts };
                let sizes = is_storable.then_some(&sizes[..]);
                let inserted = call.cache.insert(new, sizes, payload, call.freed)?;
                if out_result.is_null() {
                    return Ok(());
                }
                let made = rkv_snapshot_cache_insert_result {
                    struct_size: 0,
                    stored: inserted.stored as u32,
                    replaced: inserted.replaced as u32,
                    reserved: 0,
                    evicted_count: inserted.evicted as u64,
                };
                write_struct(out_result, &made)
            })
        })
    }
}

/// # Safety
/// The parts are readable, as many as there are.
unsafe fn read_parts_of(
    args: &rkv_snapshot_cache_insert_args,
) -> Result<Box<[rkv_snapshot_part]>, Fail> {
    let rkv_snapshot_cache_insert_args { flags, parts, part_count, part_size, .. } = *args;
    let known = RKV_SNAPSHOT_INSERT_STORABLE | RKV_SNAPSHOT_INSERT_TRIMMABLE;
    check_flags(flags, known, "args.flags")?;
    if flags & RKV_SNAPSHOT_INSERT_STORABLE == 0 {
        if part_count != 0 || part_size != 0 || !parts.is_null() {
            let why = "args.parts is set without RKV_SNAPSHOT_INSERT_STORABLE";
            return Err(Error::argument(why).into());
        }
        return Ok(Box::default());
    }
    let given = if part_count == 0 {
        let is_none = part_size == 0 && parts.is_null();
        if !is_none {
            let why = "args.parts or args.part_size is set without args.part_count";
            return Err(Error::argument(why).into());
        }
        let part = rkv_snapshot_part { data: args.data, size_bytes: args.size_bytes };
        try_to_vec(&[part])?
    } else {
        let count = count_of(part_count, "args.part_count")?;
        let size = (count_of(part_size, "args.part_size")?, "args.part_size");
        // SAFETY: the caller's contract.
        let parts = unsafe { GivenElements::new(parts, count, size, "args.parts")? };
        if count > PART_LIMIT {
            let why = text!("args.part_count {count} is above {PART_LIMIT}");
            return Err(Error::argument(why).into());
        }
        try_collect(parts.iter())?
    };
    let mut sum = 0_u64;
    for (at, part) in given.iter().enumerate() {
        let name = |what: &str| match part_count {
            0 => text!("args.{what}"),
            _ => text!("args.parts[{at}].{what}"),
        };
        if part.data.is_null() && part.size_bytes != 0 {
            return Err(Error::argument(text!("{} is NULL", name("data"))).into());
        }
        sum = sum.saturating_add(part.size_bytes);
        if sum > isize::MAX as u64 {
            return Err(Error::argument(text!("{} is out of range", name("size_bytes"))).into());
        }
    }
    Ok(given.into_boxed_slice())
}

/// Parts of one snapshot.
const PART_LIMIT: usize = 1 << 16;

fn next_token(args: &rkv_snapshot_cache_insert_args) -> Result<Option<u32>, Error> {
    match (args.has_next_token, args.next_token) {
        (0, 0) => Ok(None),
        (1, token) => Ok(Some(token)),
        (0, _) => Err(Error::argument("args.next_token is set without args.has_next_token")),
        _ => Err(Error::argument("args.has_next_token is neither 0 nor 1")),
    }
}

/// Finds the snapshot of the longest stored prefix and pins it: it stays as it is, and is not
/// destroyed, until the pin is released. The entry is in use from now until then.
///
/// With RKV_SNAPSHOT_MATCH_TRIMMABLE it finds the snapshot with most tokens in common, in which
/// trimmable entries count with any number of their first tokens, and others only as a whole. Of
/// several it is one that ends with these tokens, if there is one, else one of which no other is a
/// prefix.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for: text only; ids of RKV_TEXT_ID_LIMIT and above match nothing
/// @param flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE
/// @param out_match receives the match; set its struct_size first
/// @return RKV_STATUS_OK, also when nothing matched; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_STATE when 2^24 pins are out; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens); its own shared lock, to pin a few steps under its own lock. Trimmable: and one step
/// for each node from where the tokens part to the entry
/// @par Thread safety
/// any thread; any number compare tokens at once
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_match(
    cache: *mut rkv_snapshot_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    flags: u32,
    out_match: *mut rkv_snapshot_cache_match_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers; the handle is the owner's.
    unsafe {
        with(cache, Needs::Owner, |call| {
            check_flags(flags, RKV_SNAPSHOT_MATCH_TRIMMABLE, "flags")?;
            check_fit(out_match)?;
            with_text(tokens, |tokens| {
                let namespace = read_namespace(space)?;
                let trims = flags & RKV_SNAPSHOT_MATCH_TRIMMABLE != 0;
                let found = call.cache.find(&namespace, tokens, trims, shown, call.freed)?;
                let (hit, count) = (found.hit, tokens.len());
                let is_full = hit.as_ref().is_some_and(|hit| hit.is_of(count));
                let made = match_result(cache, hit, is_full, found.fetchable);
                write_struct(out_match, &made)
            })
        })
    }
}

/// What C sees of a state: where it is, and whether that is a copy.
pub(crate) fn shown(state: State<'_, Payload>) -> (*mut c_void, bool) {
    match state {
        State::Given(payload) => (payload.data, false),
        State::Loaded(copy) if copy.parts() == 0 => (ptr::null_mut(), true),
        State::Loaded(copy) => (copy.part(0).as_ptr().cast_mut().cast(), true),
    }
}

/// The match for a hit, whose pin gets its share in the handle.
///
/// # Safety
/// `cache` leads to a handle that its owner keeps.
pub(crate) unsafe fn match_result(
    cache: *const rkv_snapshot_cache,
    hit: Option<Hit<(*mut c_void, bool)>>,
    is_full: bool,
    fetchable: usize,
) -> rkv_snapshot_cache_match_result {
    let mut made = rkv_snapshot_cache_match_result {
        struct_size: 0,
        full_hit: 0,
        pin: 0,
        data: ptr::null_mut(),
        size_bytes: 0,
        token_count: 0,
        has_next_token: 0,
        next_token: 0,
        common_token_count: 0,
        fetchable_token_count: fetchable as u64,
        is_copy: 0,
        reserved: 0,
    };
    let Some(hit) = hit else { return made };
    // SAFETY: the caller's contract.
    unsafe { keep_for_pin(cache) };
    made.full_hit = is_full as u32;
    made.pin = hit.pin.0;
    (made.data, made.is_copy) = (hit.value.0, hit.value.1 as u32);
    made.size_bytes = hit.bytes;
    (made.token_count, made.common_token_count) = (hit.tokens as u64, hit.common as u64);
    made.has_next_token = hit.next_token.is_some() as u32;
    made.next_token = hit.next_token.unwrap_or(0);
    made
}

/// Length of the longest stored prefix, as rkv_snapshot_cache_match() without flags finds it.
/// Changes nothing: no pin, no recency, no count.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for: text only
/// @param out_token_count receives the number of its tokens
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens); its own shared lock
/// @par Thread safety
/// any thread, any number at once
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_probe(
    cache: *const rkv_snapshot_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    out_token_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            let into = out(out_token_count, "out_token_count")?;
            with_text(tokens, |tokens| {
                let namespace = read_namespace(space)?;
                into.write(call.cache.probe(&namespace, tokens));
                Ok(())
            })
        })
    }
}

/// Ends a pin. With the last pin on a snapshot the entry was used until now; a snapshot that has
/// no entry any more is destroyed before the call returns, and so are entries that must go for the
/// limits.
///
/// @param cache the cache, which may be destroyed already
/// @param pin a pin from rkv_snapshot_cache_match()
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_PIN when it was released already, or is of another
/// cache; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1), and for each snapshot that goes its destructor, without a lock; its own lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_release(
    cache: *mut rkv_snapshot_cache,
    pin: rkv_pin_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with_pin(cache, |call| Ok(call.cache.release(HandleId(pin), call.freed)?)) }
}

/// Removes the entry of exactly these tokens, in memory and below. Its snapshot is destroyed before
/// the call returns, or with its last pin.
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens the tokens of the entry: text only
/// @param out_removed receives whether there was one; may be NULL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens); its own lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_remove(
    cache: *mut rkv_snapshot_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    out_removed: *mut bool,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, Needs::Owner, |call| {
            if !out_removed.is_null() {
                out(out_removed, "out_removed")?;
            }
            with_text(tokens, |tokens| {
                let namespace = read_namespace(space)?;
                let removed = call.cache.remove(&namespace, tokens, call.freed);
                if out_removed.is_null() {
                    Ok(())
                } else {
                    put(removed, out_removed, "out_removed")
                }
            })
        })
    }
}
