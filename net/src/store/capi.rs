//! The C ABI of stores. The header is made of this file too.
#![allow(non_camel_case_types)] // the names here are the C names
#![allow(clippy::missing_safety_doc)] // the header states each contract
use super::remote::{self, rkv_remote_store};
use super::{Config, Store};
use crate::capi::{check, copy_text, read_config, rkv_net_status, size_of_struct, text_of};
use crate::failure::{Failure, guard};
use crate::handle::{self, Opaque, borrow};
use std::ffi::c_char;

/// A store that caches share: pages by key, on a server of Redis or Valkey, or in a bucket of S3.
pub struct rkv_net_store {
    _private: (),
}

impl Opaque for rkv_net_store {
    type Object = Store;
    const NAME: &'static str = "store";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvnetst");
}

/// Where a store is. All zero but for struct_size and url is a good beginning.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_net_store_config {
    /// sizeof(rkv_net_store_config).
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// "redis://HOST:PORT", with USER:PASSWORD@ and /DATABASE as they are needed, the same with
    /// valkey://, "rediss://" or "valkeys://" over TLS, or "unix://PATH" for its socket;
    /// "s3://BUCKET" or "s3://BUCKET/FOLDER".
    pub url: *const c_char,
    /// What each key begins with; NULL for "radixkv/".
    pub prefix: *const c_char,
    /// For S3: where it is, if not at Amazon, as "http://HOST:PORT"; NULL for what the environment
    /// says. From there come region, credentials and all else: AWS_REGION, AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT and so on. They have to permit s3:GetObject,
    /// s3:PutObject, s3:DeleteObject and, on the bucket, s3:ListBucket: without that S3 forbids to
    /// ask for what isn't there.
    pub endpoint: *const c_char,
    /// For Redis: seconds after which a page goes that was written, 2^40 at most; 0 for never.
    pub ttl_s: u64,
    /// For Redis: connections that read, and as many that write, 1 to 256; 0 for 4.
    pub connection_count: u32,
    /// Zero.
    pub reserved: u32,
    /// For Redis over TLS: a file of certificates, in PEM, of whom the server's may be; read during
    /// the call. NULL for those of the system.
    pub ca_file: *const c_char,
}

const CONFIG_V1: usize = std::mem::offset_of!(rkv_net_store_config, ca_file);
const REMOTE_V1: usize = size_of::<rkv_remote_store>();
/// Of more seconds the server would refuse every write.
const TTL_LIMIT: u64 = 1 << 40;

/// # Safety
/// `given` is NULL or readable, and so are its texts, per the header.
unsafe fn config_of(given: *const rkv_net_store_config) -> Result<Config, Failure> {
    // SAFETY: the caller's contract.
    let config = unsafe { read_config(given, CONFIG_V1)? };
    if config.flags != 0 {
        return Err(Failure::argument("config.flags has an unknown bit"));
    }
    if config.reserved != 0 {
        return Err(Failure::argument("config.reserved is not zero"));
    }
    if config.connection_count > 256 {
        let text = format!("config.connection_count {} is not 0 to 256", config.connection_count);
        return Err(Failure::argument(text));
    }
    if config.ttl_s > TTL_LIMIT {
        let text = format!("config.ttl_s {} is more than 2^40; 0 is never", config.ttl_s);
        return Err(Failure::argument(text));
    }
    // SAFETY: the caller's contract on the texts.
    let (url, prefix, endpoint, ca_file) = unsafe {
        (
            text_of(config.url, "config.url")?,
            text_of(config.prefix, "config.prefix")?,
            text_of(config.endpoint, "config.endpoint")?,
            text_of(config.ca_file, "config.ca_file")?,
        )
    };
    Ok(Config {
        url: url.ok_or_else(|| Failure::argument("config.url is NULL"))?,
        prefix: prefix.unwrap_or_else(|| "radixkv/".to_owned()),
        endpoint,
        ca_file,
        ttl: config.ttl_s,
        connections: if config.connection_count == 0 {
            4
        } else {
            config.connection_count as usize
        },
    })
}

/// Creates a store. It is not tried whether there is a server: one that comes later is found.
///
/// @param config where it is
/// @param out_store receives the store, owned by the caller
/// @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT, e.g. for a URL that is none;
/// RKV_NET_STATUS_NETWORK when the system refuses a thread
/// @par Cost
/// starts two threads
/// @par Thread safety
/// any thread
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_store_create(
    config: *const rkv_net_store_config,
    out_store: *mut *mut rkv_net_store,
) -> rkv_net_status {
    guard(|| {
        check(out_store, "out_store")?;
        // SAFETY: the caller's contract.
        let store = Store::new(unsafe { config_of(config)? })?;
        // SAFETY: not NULL, aligned, and the caller promises that it is writable.
        unsafe { out_store.write(handle::new(store)) };
        Ok(())
    })
}

/// Destroys a store. Caches that have it below them must have been destroyed, or their tiers
/// detached. NULL is allowed and does nothing. In a child process nothing happens.
///
/// @param store the store
/// @par Cost
/// waits for its threads, a tenth of a second at most
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_store_destroy(store: *mut rkv_net_store) {
    guard(|| {
        // SAFETY: the caller's contract.
        unsafe { handle::destroy(store) };
        Ok(())
    });
}

/// Writes what a cache calls: for rkv_tier_config.remote of radixkv.h. The store stays the
/// caller's, and stays until the tiers are detached. Several caches may have it.
///
/// @param store the store
/// @param out_remote receives the functions; set its struct_size first
/// @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any number at once
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_store_describe(
    store: *const rkv_net_store,
    out_remote: *mut rkv_remote_store,
) -> rkv_net_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (store, size) =
            unsafe { (borrow(store)?, size_of_struct(out_remote, REMOTE_V1, "out_remote")?) };
        let made = rkv_remote_store {
            struct_size: size as u32,
            reserved: 0,
            user_data: std::ptr::from_ref(store).cast_mut().cast(),
            has: Some(remote::has),
            get: Some(remote::get),
            put: Some(remote::put),
            remove: Some(remote::remove),
        };
        // SAFETY: as many bytes as the struct says are writable; what we don't know is zero.
        unsafe {
            out_remote.write(made);
            out_remote.cast::<u8>().add(REMOTE_V1).write_bytes(0, size - REMOTE_V1);
        }
        Ok(())
    })
}

/// Why a call to the server failed last, on whichever thread, cut to fit; empty when none has. The
/// cache counts failures, and goes on without it: this is for a log.
///
/// @param store the store
/// @param buffer receives the text and a NUL; may be NULL when capacity is 0
/// @param capacity room in bytes
/// @return bytes that the whole text needs, with its NUL; 0 when store is no store
/// @par Cost
/// O(length); a lock for a moment
/// @par Thread safety
/// any thread, any number at once
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_net_store_last_failure(
    store: *const rkv_net_store,
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    let mut needed = 0;
    guard(|| {
        // SAFETY: the caller's contract.
        let text = unsafe { borrow(store)? }.last_failure();
        // SAFETY: the caller promises `capacity` bytes.
        needed = unsafe { copy_text(&text, buffer, capacity) };
        Ok(())
    });
    needed
}
