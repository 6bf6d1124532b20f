//! A snapshot cache through the C ABI, and all that can be seen of it.
use radixkv::capi::*;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::ptr;

/// A struct of the ABI that is zero but for its size.
pub fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

pub fn list(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

pub fn namespace(ns: u64) -> rkv_namespace {
    rkv_namespace { epoch: ns, ..sized() }
}

pub fn message() -> String {
    let mut text = [0u8; 300];
    // SAFETY: the buffer has the room that is stated.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast(), text.len()) };
    CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy().into_owned()
}

#[track_caller]
pub fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok, "{}", message());
}

/// What happened to snapshots. The room is made beforehand: destructors run while requests fail.
#[derive(Default)]
pub struct Log {
    pub destroyed: RefCell<Vec<usize>>,
}

unsafe extern "C-unwind" fn destroyed(data: *mut c_void, _: u64, user_data: *mut c_void) {
    // SAFETY: user_data is the log, which outlives the cache.
    let log = unsafe { &*user_data.cast::<Log>() };
    let mut destroyed = log.destroyed.borrow_mut();
    assert!(destroyed.len() < destroyed.capacity());
    assert!(!destroyed.contains(&data.addr()), "a snapshot is destroyed once");
    destroyed.push(data.addr());
}

pub struct World {
    pub cache: *mut rkv_snapshot_cache,
    pub log: Box<Log>,
    /// Pins that are out, in the order in which they were taken.
    pub pins: Vec<rkv_pin_id>,
}

/// What an insert is given.
#[derive(Clone, Copy)]
pub struct Insert<'a> {
    pub ns: u64,
    pub ids: &'a [u32],
    pub data: usize,
    pub bytes: u64,
}

impl World {
    pub fn new(entry_limit: u64, byte_limit: u64) -> Self {
        let log = Box::new(Log { destroyed: RefCell::new(Vec::with_capacity(5000)) });
        let config = rkv_snapshot_cache_config { entry_limit, byte_limit, ..sized() };
        let mut cache = ptr::null_mut();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_create(&config, &mut cache) });
        Self { cache, log, pins: Vec::with_capacity(1000) }
    }

    pub fn insert(&self, Insert { ns, ids, data, bytes }: Insert<'_>) -> rkv_status {
        let (tokens, namespace) = (list(ids), namespace(ns));
        let args = rkv_snapshot_cache_insert_args {
            space: &namespace,
            tokens: &tokens,
            data: ptr::without_provenance_mut(data),
            size_bytes: bytes,
            destructor: Some(destroyed),
            user_data: ptr::from_ref(&*self.log).cast_mut().cast(),
            ..sized()
        };
        let mut result = sized::<rkv_snapshot_cache_insert_result>();
        // SAFETY: all pointers lead to live values.
        unsafe { rkv_snapshot_cache_insert(self.cache, &args, &mut result) }
    }

    /// Finds and pins; the snapshot's number.
    pub fn pin(&mut self, ns: u64, ids: &[u32]) -> (rkv_status, usize) {
        let (tokens, namespace) = (list(ids), namespace(ns));
        let mut found = sized::<rkv_snapshot_cache_match_result>();
        // SAFETY: all pointers lead to live values.
        let status =
            unsafe { rkv_snapshot_cache_match(self.cache, &namespace, &tokens, 0, &mut found) };
        if status != rkv_status::Ok {
            assert_eq!((found.pin, found.data.addr()), (0, 0), "outputs are as they were");
        } else if found.pin != 0 {
            self.pins.push(found.pin);
        }
        (status, found.data.addr())
    }

    pub fn release(&mut self, at: usize) -> rkv_status {
        let pin = self.pins.remove(at);
        // SAFETY: the handle is alive as long as a pin is out.
        unsafe { rkv_snapshot_cache_release(self.cache, pin) }
    }

    pub fn remove(&self, ns: u64, ids: &[u32]) -> (rkv_status, bool) {
        let (tokens, namespace, mut removed) = (list(ids), namespace(ns), false);
        // SAFETY: all pointers lead to live values.
        let status =
            unsafe { rkv_snapshot_cache_remove(self.cache, &namespace, &tokens, &mut removed) };
        (status, removed)
    }

    pub fn probe(&self, ns: u64, ids: &[u32]) -> usize {
        let (tokens, namespace, mut count) = (list(ids), namespace(ns), 0);
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_probe(self.cache, &namespace, &tokens, &mut count) });
        count
    }

    pub fn stats(&self) -> rkv_snapshot_cache_stats {
        let mut stats = sized::<rkv_snapshot_cache_stats>();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_read_stats(self.cache, &mut stats) });
        stats
    }

    pub fn check(&self) {
        // SAFETY: the handle is alive.
        ok(unsafe { rkv_snapshot_cache_check(self.cache) });
    }

    /// Everything that can be counted, but for memory and nodes, and what was destroyed, in order.
    pub fn seen(&self) -> (Vec<u64>, Vec<usize>) {
        let stats = self.stats();
        let counts = vec![
            stats.entry_count,
            stats.entry_bytes,
            stats.pinned_entry_count,
            stats.pin_count,
            stats.detached_count,
            stats.detached_bytes,
            stats.namespace_count,
            stats.lookup_count,
            stats.hit_count,
            stats.full_hit_count,
            stats.lookup_token_count,
            stats.hit_token_count,
            stats.stored_count,
            stats.replaced_count,
            stats.rejected_count,
            stats.evicted_count,
            stats.removed_count,
        ];
        let mut destroyed = self.log.destroyed.borrow().clone();
        destroyed.sort_unstable();
        (counts, destroyed)
    }

    /// Destroys the cache and releases what is pinned; nothing may fail.
    pub fn end(&mut self) {
        if !self.cache.is_null() {
            // SAFETY: only pins use the handle from here on.
            unsafe { rkv_snapshot_cache_destroy(self.cache) };
            while !self.pins.is_empty() {
                assert_eq!(self.release(0), rkv_status::Ok);
            }
            self.cache = ptr::null_mut();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}
