//! The C ABI. The header is made of this file.
#![allow(non_camel_case_types)] // the names here are the C names
#![allow(clippy::missing_safety_doc)] // the header states each contract
use crate::failure::{Failure, guard, with_last};
use crate::handle::{self, Opaque, borrow};
use crate::publisher::{Config, Publisher};
use std::ffi::{CStr, c_char};

/// Version of the ABI that this header describes; grows by one with every addition.
pub const RKV_NET_ABI_VERSION: u32 = 2;

/// Flag of rkv_net_publisher_config: connect to the endpoint, where a subscriber is bound that
/// hears many publishers. Without it the publisher binds, and subscribers connect.
pub const RKV_NET_PUBLISHER_CONNECT: u32 = 1;

/// How a call ended. What rkv_status of radixkv.h has too has the same number. Expect others.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rkv_net_status {
    /// Done.
    Ok = 0,
    /// An argument is NULL, out of range or inconsistent; the message names it.
    InvalidArgument = 1,
    /// The handle is from before fork().
    InvalidState = 6,
    /// The system refused a socket or a thread: an address in use, no such host. The message says
    /// what it said.
    Network = 200,
    /// A bug of this library; please report it.
    Internal = 900,
}

/// Publishes batches of KV events over ZeroMQ, as vLLM does: a PUB socket, and a ROUTER socket at
/// which subscribers ask for batches that they missed. It has a thread of its own.
pub struct rkv_net_publisher {
    _private: (),
}

impl Opaque for rkv_net_publisher {
    type Object = Publisher;
    const NAME: &'static str = "publisher";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvnetpb");
}

/// What a publisher is made of. All zero but for struct_size and endpoint is what vLLM does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_net_publisher_config {
    /// sizeof(rkv_net_publisher_config).
    pub struct_size: u32,
    /// RKV_NET_PUBLISHER_CONNECT or 0.
    pub flags: u32,
    /// Where to publish: "tcp://HOST:PORT", with * as the host for every interface and port 0 for
    /// any that is free, or "ipc://PATH".
    pub endpoint: *const c_char,
    /// Where subscribers ask for batches again, likewise; NULL for nowhere. Always bound.
    pub replay_endpoint: *const c_char,
    /// The first frame of each message, by which subscribers choose; NULL for an empty one.
    pub topic: *const c_char,
    /// Added to both ports, unless they are 0; behind a path it is "_dp" and the rank.
    pub data_parallel_rank: u32,
    /// Batches that are kept in memory for replays; 0 for 10,000. Without replay_endpoint none are.
    pub replay_batch_limit: u32,
    /// Batches that wait for the thread at most; 0 for 100,000.
    pub queue_batch_limit: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a publisher counted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_net_publisher_stats {
    /// sizeof(rkv_net_publisher_stats).
    pub struct_size: u32,
    /// The port that is bound; 0 for none.
    pub port: u16,
    /// That of replays; 0 for none.
    pub replay_port: u16,
    /// Batches that were published: the number of the next one.
    pub published_batch_count: u64,
    /// Their bytes.
    pub published_byte_count: u64,
    /// Those of them that found the queue full. They are kept for replays like all others. What a
    /// subscriber has no room for, or what was on its way when it went, is not counted.
    pub dropped_batch_count: u64,
    /// Batches in the queue.
    pub queued_batch_count: u64,
    /// Batches that can be replayed.
    pub replay_batch_count: u64,
    /// Requests for a replay.
    pub replay_request_count: u64,
}

const CONFIG_V1: usize = size_of::<rkv_net_publisher_config>();
const STATS_V1: usize = size_of::<rkv_net_publisher_stats>();
/// Sizes of structs stay far below this.
const SIZE_LIMIT: usize = 4096;

/// The size that a struct says it has.
///
/// # Safety
/// `pointer` is NULL, or leads to a struct that begins with its size.
pub(crate) unsafe fn size_of_struct<T>(
    pointer: *const T,
    least: usize,
    name: &str,
) -> Result<usize, Failure> {
    check(pointer, name)?;
    // SAFETY: not NULL and aligned; the first field is the size.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    if !(least..=SIZE_LIMIT).contains(&size) {
        let known = size_of::<T>();
        let text = format!(
            "{name}: struct_size {size}: this struct has {known} bytes here, and at least {least} \
             in this series"
        );
        return Err(Failure::argument(text));
    }
    Ok(size)
}

pub(crate) fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::argument(format!("{name} is not aligned")));
    }
    Ok(())
}

/// A text of the caller's; None for NULL.
///
/// # Safety
/// `pointer` is NULL, or leads to a NUL-terminated string that stays as it is during the call.
pub(crate) unsafe fn text_of(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<String>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    let refused = |_| Failure::argument(format!("{name} is no UTF-8"));
    text.map(|text| Some(text.to_owned())).map_err(refused)
}

/// A config, of so many bytes at least.
///
/// # Safety
/// `given` is NULL or readable, as many bytes as it says; it has integers and pointers alone.
pub(crate) unsafe fn read_config<T: Copy>(given: *const T, least: usize) -> Result<T, Failure> {
    // SAFETY: the caller's contract; as many bytes as the struct says are readable.
    unsafe {
        let size = size_of_struct(given, least, "config")?;
        let bytes = std::slice::from_raw_parts(given.cast::<u8>(), size);
        let known = size.min(size_of::<T>());
        if bytes[known..].iter().any(|&byte| byte != 0) {
            let text = "config sets a field that this library doesn't know";
            return Err(Failure::argument(text));
        }
        // What an older caller doesn't know is zero.
        let mut config = std::mem::MaybeUninit::<T>::zeroed();
        config.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), known);
        Ok(config.assume_init())
    }
}

/// Copies a text out, cut to fit, with a NUL. Returns what all of it needs.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut c_char, capacity: usize) -> usize {
    if !buffer.is_null() && capacity > 0 {
        let length = text.floor_char_boundary(text.len().min(capacity - 1));
        // SAFETY: the caller promises `capacity` bytes; the text and its NUL fit.
        unsafe {
            buffer.copy_from_nonoverlapping(text.as_ptr().cast(), length);
            buffer.add(length).write(0);
        }
    }
    text.len() + 1
}

/// # Safety
/// `given` is NULL or readable, and so are its texts, per the header.
unsafe fn config_of(given: *const rkv_net_publisher_config) -> Result<Config, Failure> {
    // SAFETY: the caller's contract.
    let config = unsafe { read_config(given, CONFIG_V1)? };
    if config.flags & !RKV_NET_PUBLISHER_CONNECT != 0 {
        return Err(Failure::argument("config.flags has an unknown bit"));
    }
    if config.reserved != 0 {
        return Err(Failure::argument("config.reserved is not zero"));
    }
    let or = |given: u32, default: usize| if given == 0 { default } else { given as usize };
    // SAFETY: the caller's contract on the texts.
    let (endpoint, replay_endpoint, topic) = unsafe {
        (
            text_of(config.endpoint, "config.endpoint")?,
            text_of(config.replay_endpoint, "config.replay_endpoint")?,
            text_of(config.topic, "config.topic")?,
        )
    };
    Ok(Config {
        endpoint: endpoint.ok_or_else(|| Failure::argument("config.endpoint is NULL"))?,
        replay_endpoint,
        topic: topic.unwrap_or_default(),
        rank: config.data_parallel_rank,
        connects: config.flags & RKV_NET_PUBLISHER_CONNECT != 0,
        replay_batches: or(config.replay_batch_limit, 10_000),
        queue_batches: or(config.queue_batch_limit, 100_000),
    })
}

/// ABI version of the loaded library.
///
/// @return the loaded library's RKV_NET_ABI_VERSION
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub extern "C" fn rkv_net_abi_version() -> u32 {
    RKV_NET_ABI_VERSION
}

/// The message of the last failure of the calling thread, cut to fit; empty when there was none.
///
/// @param buffer receives the text and a NUL; may be NULL when capacity is 0
/// @param capacity room in bytes
/// @return bytes that the whole message needs, with its NUL
/// @par Thread safety
/// any thread, any time
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_last_error_message(buffer: *mut c_char, capacity: usize) -> usize {
    // SAFETY: the caller promises `capacity` bytes.
    with_last(|message| unsafe { copy_text(message, buffer, capacity) })
}

/// Creates a publisher: binds its sockets and starts its thread.
///
/// @param config what it is made of
/// @param out_publisher receives the publisher, owned by the caller
/// @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT, e.g. for an endpoint that is none;
/// RKV_NET_STATUS_NETWORK when the system refuses it
/// @par Cost
/// waits until the sockets are bound; with RKV_NET_PUBLISHER_CONNECT its thread goes on to look for
/// the subscriber, which may come later, and go and come back
/// @par Thread safety
/// any thread
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_publisher_create(
    config: *const rkv_net_publisher_config,
    out_publisher: *mut *mut rkv_net_publisher,
) -> rkv_net_status {
    guard(|| {
        check(out_publisher, "out_publisher")?;
        // SAFETY: the caller's contract.
        let publisher = Publisher::new(unsafe { config_of(config)? })?;
        // SAFETY: not NULL, aligned, and the caller promises that it is writable.
        unsafe { out_publisher.write(handle::new(publisher)) };
        Ok(())
    })
}

/// Destroys a publisher, when what waits in its queue was given to the sockets: a subscriber that
/// reads gets it within 100 milliseconds, or not. NULL is allowed and does nothing. In a child
/// process nothing happens.
///
/// @param publisher the publisher
/// @par Cost
/// waits for its thread, a tenth of a second or two
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_publisher_destroy(publisher: *mut rkv_net_publisher) {
    guard(|| {
        // SAFETY: the caller's contract.
        unsafe { handle::destroy(publisher) };
        Ok(())
    });
}

/// Publishes a batch: three frames, the topic, the number with 8 bytes, the highest first, and the
/// payload. Numbers begin with 0, and each is one more than the one before.
///
/// Never waits for a subscriber. When the queue is full the batch has its number and can be
/// replayed, but is not sent: dropped_batch_count counts it, and subscribers see the gap. A
/// subscriber that is slow, or dead and not found out yet, has room for 100,000 batches; what comes
/// then is not sent to it, and it sees that as a gap too. On Linux one that takes nothing over TCP
/// for three minutes of what is on its way to it is sent away, and what waited for it is not sent.
///
/// @param publisher the publisher
/// @param payload the bytes, which are copied
/// @param byte_count how many
/// @param out_sequence receives the number; may be NULL
/// @return RKV_NET_STATUS_OK, also when nobody listens; RKV_NET_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(byte_count), a copy; a lock for less than a microsecond, and no system call but to wake the
/// thread
/// @par Thread safety
/// any thread, any number at once
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_publisher_publish(
    publisher: *mut rkv_net_publisher,
    payload: *const u8,
    byte_count: usize,
    out_sequence: *mut u64,
) -> rkv_net_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let publisher = unsafe { borrow(publisher)? };
        if !out_sequence.is_null() {
            check(out_sequence, "out_sequence")?;
        }
        let payload = if byte_count == 0 {
            &[]
        } else {
            check(payload, "payload")?;
            if byte_count > isize::MAX as usize {
                return Err(Failure::argument(format!("byte_count {byte_count} is out of range")));
            }
            // SAFETY: not NULL, and the caller promises `byte_count` bytes.
            unsafe { std::slice::from_raw_parts(payload, byte_count) }
        };
        let sequence = publisher.publish(payload);
        if !out_sequence.is_null() {
            // SAFETY: aligned, and the caller promises that it is writable.
            unsafe { out_sequence.write(sequence) };
        }
        Ok(())
    })
}

/// What a publisher counted.
///
/// @param publisher the publisher
/// @param out_stats receives it; set its struct_size first
/// @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); a lock for less than a microsecond
/// @par Thread safety
/// any thread, any number at once
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_publisher_read_stats(
    publisher: *const rkv_net_publisher,
    out_stats: *mut rkv_net_publisher_stats,
) -> rkv_net_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (publisher, size) =
            unsafe { (borrow(publisher)?, size_of_struct(out_stats, STATS_V1, "out_stats")?) };
        let (counts, queued, replayable) = publisher.counts();
        let [port, replay_port] = publisher.ports();
        let made = rkv_net_publisher_stats {
            struct_size: size as u32,
            port,
            replay_port,
            published_batch_count: counts.published,
            published_byte_count: counts.published_bytes,
            dropped_batch_count: counts.dropped,
            queued_batch_count: queued as u64,
            replay_batch_count: replayable as u64,
            replay_request_count: counts.replays,
        };
        // SAFETY: as many bytes as the struct says are writable; what we don't know is zero.
        unsafe {
            out_stats.write(made);
            out_stats.cast::<u8>().add(STATS_V1).write_bytes(0, size - STATS_V1);
        }
        Ok(())
    })
}
