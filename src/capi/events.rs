//! Events: what comes into a cache and leaves it, as bytes that routers read.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiStruct, Fail, Handle, Object, Opaque, check_fit, check_flags, check_out, destroy, out,
    out_slice, read_struct, rkv_status, with, write_struct,
};
use crate::capi::token::{read_namespace, rkv_namespace};
use crate::error::{Error, text};
use crate::events::{EventConfig, EventEncoder, NAME_LIMIT};
use crate::memory::{Arc, OutOfMemory};
use std::ffi::{CStr, c_char};

/// Turns what comes into a cache and leaves it into batches of KV events, as vLLM publishes them:
/// bytes for routers and mirrors. It reads the journal of the cache, on the thread that asks it to.
pub struct rkv_event_encoder {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Object for EventEncoder {
    fn is_poisoned(&self) -> bool {
        self.is_poisoned()
    }

    fn poison(&self) {
        self.poison();
    }
}

impl Opaque for rkv_event_encoder {
    type Object = EventEncoder;
    const NAME: &'static str = "encoder";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvevent");
}

/// Flag of rkv_event_encoder_config: block hashes are whole digests, 32 bytes. Without it each is
/// the number that the last 8 bytes of the digest are, the first of them the highest.
pub const RKV_EVENTS_WIDE_HASHES: u32 = 1;
/// Flag of rkv_event_encoder_config: data_parallel_rank is set.
pub const RKV_EVENTS_DATA_PARALLEL: u32 = 2;

/// Flag of rkv_event_batch: there is more to tell right now.
pub const RKV_EVENTS_MORE: u32 = 1;

/// Bytes of a name at most: of a LoRA adapter, a salt, a medium.
pub const RKV_EVENTS_NAME_LIMIT: u32 = 1024;
const _: () = assert!(RKV_EVENTS_NAME_LIMIT as usize == NAME_LIMIT);

/// How events are written. All zero but for struct_size is what most routers expect.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_event_encoder_config {
    /// sizeof(rkv_event_encoder_config).
    pub struct_size: u32,
    /// RKV_EVENTS_WIDE_HASHES, RKV_EVENTS_DATA_PARALLEL.
    pub flags: u32,
    /// Stands in each batch. Zero without RKV_EVENTS_DATA_PARALLEL: then there is none.
    pub data_parallel_rank: u32,
    /// The id that stands among the tokens for positions that are not text, below
    /// RKV_TEXT_ID_LIMIT; the placeholder that the model has for images.
    pub placeholder_token_id: u32,
    /// Where the pages are; NULL for "GPU". Routers know "CPU" and "STORAGE" too.
    pub medium: *const c_char,
}
// SAFETY: integers and a pointer, no padding.
unsafe impl AbiStruct for rkv_event_encoder_config {
    const NAME: &'static str = "config";
    const V1: usize = 24;
}

/// What a batch has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_event_batch {
    /// sizeof(rkv_event_batch).
    pub struct_size: u32,
    /// RKV_EVENTS_MORE.
    pub flags: u32,
    /// Bytes of the payload; 0 when there is nothing to tell yet. With RKV_STATUS_BUFFER_TOO_SMALL,
    /// those that one event needs.
    pub byte_count: u64,
    /// Events.
    pub event_count: u64,
    /// Blocks that came in.
    pub stored_block_count: u64,
    /// Blocks that left, those that an AllBlocksCleared ends included.
    pub removed_block_count: u64,
    /// The last record of the journal that was read.
    pub last_number: u64,
    /// Records of the journal that were overwritten before they were read, since the call before; a
    /// call that had no room takes none of them, and the next one says them again. More than 0: an
    /// AllBlocksCleared comes, or with a rank BlockRemoved of what was told, and then all that is
    /// held.
    pub lost_record_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_event_batch {
    const NAME: &'static str = "out_batch";
    const V1: usize = 56;
}

/// A text of the caller's; None for NULL.
///
/// # Safety
/// `pointer` is NULL, or leads to a NUL-terminated string that stays as it is during the call.
unsafe fn text_of<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    if bytes.len() > NAME_LIMIT {
        let count = bytes.len();
        return Err(Error::argument(text!("{name} has {count} bytes of at most {NAME_LIMIT}")));
    }
    let refused = |_| Error::argument(text!("{name} is no UTF-8"));
    std::str::from_utf8(bytes).map(Some).map_err(refused)
}

/// # Safety
/// `given` is NULL or readable, and so is its text, per the header.
unsafe fn config_of(given: *const rkv_event_encoder_config) -> Result<EventConfig, Fail> {
    let mut medium = "GPU";
    let (mut flags, mut rank, mut placeholder_token_id) = (0, 0, 0);
    if !given.is_null() {
        // SAFETY: the caller's contract.
        let given = unsafe { read_struct(given)? };
        (flags, rank) = (given.flags, given.data_parallel_rank);
        placeholder_token_id = given.placeholder_token_id;
        // SAFETY: the caller's contract.
        medium = unsafe { text_of(given.medium, "config.medium")? }.unwrap_or(medium);
    }
    check_flags(flags, RKV_EVENTS_WIDE_HASHES | RKV_EVENTS_DATA_PARALLEL, "config.flags")?;
    let data_parallel_rank = (flags & RKV_EVENTS_DATA_PARALLEL != 0).then_some(rank);
    if rank != 0 && data_parallel_rank.is_none() {
        return Err(Error::argument("config.data_parallel_rank is set without its flag").into());
    }
    if placeholder_token_id >= crate::token::TEXT_ID_LIMIT {
        let message = text!("config.placeholder_token_id {placeholder_token_id} is no text id");
        return Err(Error::argument(message).into());
    }
    if medium.is_empty() {
        return Err(Error::argument("config.medium is empty").into());
    }
    let mut owned = String::new();
    owned.try_reserve_exact(medium.len()).map_err(OutOfMemory::from)?;
    owned.push_str(medium);
    Ok(EventConfig {
        wide_hashes: flags & RKV_EVENTS_WIDE_HASHES != 0,
        data_parallel_rank,
        placeholder_token_id,
        medium: owned,
    })
}

/// Creates an encoder. Its first batches say that nothing is held, and then all that the cache
/// holds, each page after the one before it: a router that listens from the beginning is exact.
///
/// It has a copy of what the cache says of each page: 48 + 4 * page_size bytes for each page of
/// pool 0, 48 for each page of other pools. A cache may have several encoders.
///
/// @param cache the cache, with a journal: rkv_cache_config.journal_bytes. The encoder goes on with
/// the page table's next cache when this one is destroyed
/// @param config how events are written; NULL for what most routers expect
/// @param out_encoder receives the encoder, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when the cache has no journal;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages); shared lock, for a moment
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_event_encoder_create(
    cache: *const rkv_cache,
    config: *const rkv_event_encoder_config,
    out_encoder: *mut *mut rkv_event_encoder,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let into = out(out_encoder, "out_encoder")?;
            let encoder = EventEncoder::new(shared.clone(), config_of(config)?)?;
            into.write(Handle::new(Arc::new(encoder)?)?.into_raw());
            Ok(())
        })
    }
}

/// Destroys an encoder. NULL is allowed and does nothing. Encoder, cache and page table can be
/// destroyed in any order.
///
/// @param encoder the encoder
/// @par Cost
/// O(namespaces + pages that are not all text); no lock
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_event_encoder_destroy(encoder: *mut rkv_event_encoder) {
    // SAFETY: the caller's contract: from rkv_event_encoder_create(), not destroyed yet.
    unsafe { destroy(encoder, |_| {}) }
}

/// What a namespace is called in events, from the next one on that is made. Name a namespace before
/// the first request in it: what was told is not told again.
///
/// @param encoder the encoder
/// @param space the namespace; NULL for the default one
/// @param lora_name name of its LoRA adapter, UTF-8; NULL for the adapter's id in decimal
/// @param cache_salt what keeps it apart from other namespaces of that adapter, among the keys of
/// the first block of a prefix, UTF-8; "" for nothing; NULL for nothing where the namespace has
/// neither image, salt nor epoch, else for its digest in hexadecimal. Dynamo looks for salts that
/// begin with "dynamo-cache-salt:"
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for a lora_name without an adapter, or
/// a text that has more than RKV_EVENTS_NAME_LIMIT bytes; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(log(namespaces)); no lock
/// @par Thread safety
/// any thread; waits for other calls on this encoder
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_event_encoder_name_namespace(
    encoder: *mut rkv_event_encoder,
    space: *const rkv_namespace,
    lora_name: *const c_char,
    cache_salt: *const c_char,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(encoder, |encoder| {
            let namespace = read_namespace(space)?;
            let lora_name = text_of(lora_name, "lora_name")?;
            let cache_salt = text_of(cache_salt, "cache_salt")?;
            Ok(encoder.name_namespace(&namespace, lora_name, cache_salt)?)
        })
    }
}

/// Writes one batch: as many events as there are and as fit. Nothing is written, and byte_count is
/// 0, when there is nothing to tell. What does not fit comes with the next call.
///
/// When records of the journal were lost, an AllBlocksCleared comes, or with a rank BlockRemoved of
/// what was told, and then all that is held: the ring is too small for how seldom this is called.
/// Calls go on until RKV_EVENTS_MORE is not set, and begin again when something may have changed.
/// A call ends when records were lost again before all that is held was read: then byte_count may
/// be 0 with RKV_EVENTS_MORE, and the next call begins once more.
///
/// An event has at most 64 blocks, and 2048 tokens unless one block has more: 64 KiB are enough for
/// pages of up to 4096 positions of text.
///
/// @param encoder the encoder
/// @param timestamp seconds, of any clock that the subscribers have; finite
/// @param buffer receives the payload: MessagePack, docs/events.md says what of. (NULL, 0) asks how
/// much the next event needs, and takes nothing
/// @param capacity room in bytes
/// @param out_batch receives what the batch has; set its struct_size first. Also with
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL when there is no room for one event: nothing
/// is lost; RKV_STATUS_INVALID_STATE when the cache of the page table has no journal, behind an
/// event that what was told is gone; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY: nothing
/// is lost; RKV_STATUS_POISONED
/// @par Cost
/// O(bytes written), a SHA-256 of each page that is told; in the beginning and after a loss
/// O(pages held), for each namespace that was cleared O(pages of the page table); shared lock, in
/// slices, for what is copied of the journal
/// @par Thread safety
/// any thread, beside calls that change the cache; waits for other calls on this encoder
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_event_encoder_encode(
    encoder: *mut rkv_event_encoder,
    timestamp: f64,
    buffer: *mut u8,
    capacity: usize,
    out_batch: *mut rkv_event_batch,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(encoder, |encoder| {
            check_fit(out_batch)?;
            check_out(buffer, capacity, "buffer")?;
            let room = out_slice(buffer, capacity, capacity, "buffer")?;
            let batch = encoder.encode(timestamp, room)?;
            let made = rkv_event_batch {
                struct_size: 0,
                flags: if batch.has_more { RKV_EVENTS_MORE } else { 0 },
                byte_count: batch.bytes.max(batch.needed_bytes) as u64,
                event_count: batch.event_count as u64,
                stored_block_count: batch.stored_count as u64,
                removed_block_count: batch.removed_count as u64,
                last_number: batch.last_number,
                lost_record_count: batch.lost_count,
            };
            write_struct(out_batch, &made)?;
            if batch.needed_bytes > 0 && !buffer.is_null() {
                return Err(Fail::too_small(batch.needed_bytes, capacity, "buffer"));
            }
            Ok(())
        })
    }
}

/// Has all that is held told once more, in the batches that follow: for a subscriber who comes
/// late. Before that an AllBlocksCleared comes, or with a rank BlockRemoved of what was told, for
/// routers count how often a block was stored: the others know less until it is told again.
///
/// @param encoder the encoder
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1), and a batch that follows O(pages); no lock
/// @par Thread safety
/// any thread; waits for other calls on this encoder
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_event_encoder_repeat(encoder: *mut rkv_event_encoder) -> rkv_status {
    // SAFETY: the caller's contract on encoder.
    unsafe {
        with(encoder, |encoder| {
            encoder.repeat();
            Ok(())
        })
    }
}
