//! A store that the engine brings, or libradixkv_net.so: the lowest tier, shared with others.
use crate::capi::ffi::{AbiStruct, Fail, call_back, read_struct};
use crate::error::Error;
use crate::memory::{try_box, try_collect};
use crate::tier::remote::{Answer, Item, RemoteConfig, RemoteStore};
use std::ffi::c_void;
use std::time::Duration;

/// Answer of rkv_remote_item: nothing is known about the value; what items are given as.
pub const RKV_REMOTE_FAILED: u32 = 0;
/// Answer of rkv_remote_item: the store has the value; it was read, written or removed.
pub const RKV_REMOTE_DONE: u32 = 1;
/// Answer of rkv_remote_item: the store does not have the value.
pub const RKV_REMOTE_MISSING: u32 = 2;

/// Milliseconds of a call without rkv_tier_config.remote_timeout_ms.
const TIMEOUT_MS: u32 = 2000;

/// One value of a call to a remote store. An array element: it may grow at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_remote_item {
    /// What the value is found by: a SHA-256 of the model's fingerprint, page size, bytes of a page
    /// and all that identifies the page; below a snapshot cache, of all that leads to a snapshot.
    pub key: [u8; 32],
    /// The value to be written; to be read, where it goes. Otherwise NULL. Good during the call.
    pub bytes: *mut c_void,
    /// Bytes there. When a value is read, set this to how long it is, and write no more of it than
    /// there is room for.
    pub byte_count: u64,
    /// Set this: an RKV_REMOTE_ answer. Anything else counts as RKV_REMOTE_FAILED.
    pub answer: u32,
    /// Zero.
    pub reserved: u32,
}

/// A call to a remote store, about item_count values, item_size bytes apart. It may wait, but
/// should return within timeout_ms: what comes later is not waited for, and its thread does nothing
/// else meanwhile. It can't detach or flush what it belongs to, and must not destroy that cache,
/// since all of them wait for it. It must not throw, longjmp or end its thread: the process would
/// end, see Callbacks at the top.
pub type rkv_remote_call = Option<
    unsafe extern "C-unwind" fn(
        user_data: *mut c_void,
        items: *mut rkv_remote_item,
        item_size: usize,
        item_count: usize,
        timeout_ms: u64,
    ),
>;

/// What keeps values by key for many processes: a server, with the calls that reach it. They come
/// from threads of the library, worker_count that read and as many that write, several at once,
/// never from a thread that calls the cache, and while no lock is held. Nothing they return is
/// believed: a value has its key, its length and a checksum within. After three calls in a row that
/// failed nothing is asked for a while, 100 ms at first and 10 s at most.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_remote_store {
    /// sizeof(rkv_remote_store).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Passed to each call. What it leads to stays until the tiers are detached or the cache is
    /// destroyed.
    pub user_data: *mut c_void,
    /// Which values are there: RKV_REMOTE_DONE or RKV_REMOTE_MISSING.
    pub has: rkv_remote_call,
    /// Reads values.
    pub get: rkv_remote_call,
    /// Writes values, in the place of what is there. The store may drop a value at any time.
    pub put: rkv_remote_call,
    /// Removes values: damaged ones, and snapshots that rkv_snapshot_cache_remove() took away. NULL
    /// if that can't be done: then both stay in the store.
    pub remove: rkv_remote_call,
}
// SAFETY: integers, pointers and functions that may be NULL, no padding.
unsafe impl AbiStruct for rkv_remote_store {
    const NAME: &'static str = "config.remote";
    const V1: usize = 48;
}

/// A store behind C functions.
struct Callbacks(rkv_remote_store);

// SAFETY: whoever attaches it promises that its functions may be called by any thread.
unsafe impl Send for Callbacks {}
// SAFETY: as above, several at once.
unsafe impl Sync for Callbacks {}

impl Callbacks {
    fn call(&self, call: rkv_remote_call, items: &mut [Item<'_>], has_bytes: bool, time: Duration) {
        let Some(call) = call else { return };
        let made = try_collect(items.iter_mut().map(|item| rkv_remote_item {
            key: item.key,
            bytes: match has_bytes {
                true => item.bytes.as_mut_ptr().cast(),
                false => std::ptr::null_mut(),
            },
            byte_count: if has_bytes { item.bytes.len() as u64 } else { 0 },
            answer: RKV_REMOTE_FAILED,
            reserved: 0,
        }));
        // Without memory there is no answer.
        let Ok(mut raw) = made else { return };
        let (size, count) = (size_of::<rkv_remote_item>(), raw.len());
        let timeout = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let (data, first) = (self.0.user_data, raw.as_mut_ptr());
        call_back("a callback of rkv_remote_store", || {
            // SAFETY: whoever attached the store promises what its text says; the items and their
            // bytes are there during the call, and nobody else uses them.
            unsafe { call(data, first, size, count, timeout) }
        });
        for (item, raw) in items.iter_mut().zip(&raw) {
            item.length = usize::try_from(raw.byte_count).unwrap_or(usize::MAX);
            item.answer = match raw.answer {
                RKV_REMOTE_DONE => Answer::Done,
                RKV_REMOTE_MISSING => Answer::Missing,
                _ => Answer::Failed,
            };
        }
    }
}

impl RemoteStore for Callbacks {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.call(self.0.has, items, false, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.call(self.0.get, items, true, time);
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.call(self.0.put, items, true, time);
    }

    fn remove(&self, items: &mut [Item<'_>], time: Duration) {
        if self.0.remove.is_none() {
            items.iter_mut().for_each(|item| item.answer = Answer::Done);
        }
        self.call(self.0.remove, items, false, time);
    }
}

/// How a store is used beside what its config says.
pub(in crate::capi) struct Use {
    pub fingerprint: [u8; 32],
    pub timeout_ms: u32,
    pub workers: u32,
    /// Bytes that wait to be written, at most.
    pub waiting_bytes: u64,
}

/// # Safety
/// The store is NULL or readable, and its functions keep to their text.
pub(in crate::capi) unsafe fn remote_of(
    store: *const rkv_remote_store,
    how: &Use,
) -> Result<Option<RemoteConfig>, Fail> {
    let refuse = |text| Err(Error::argument(text).into());
    if how.timeout_ms > 600_000 {
        return refuse("config.remote_timeout_ms is more than 600000".into());
    }
    if store.is_null() {
        if how.timeout_ms != 0 {
            return refuse("config.remote_timeout_ms is set without config.remote".into());
        }
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let raw = unsafe { read_struct(store)? };
    if raw.reserved != 0 {
        return refuse("config.remote.reserved is not zero".into());
    }
    for (call, name) in [(raw.has, "has"), (raw.get, "get"), (raw.put, "put")] {
        if call.is_none() {
            return refuse(crate::error::text!("config.remote.{name} is NULL"));
        }
    }
    let timeout_ms = if how.timeout_ms == 0 { TIMEOUT_MS } else { how.timeout_ms };
    Ok(Some(RemoteConfig {
        store: try_box(Callbacks(raw))?,
        fingerprint: how.fingerprint,
        timeout: Duration::from_millis(timeout_ms.into()),
        workers: how.workers as usize,
        waiting_bytes: how.waiting_bytes,
    }))
}
