//! A snapshot cache in which something goes on, and an account of its snapshots.
use crate::abi::{Sized32, ok};
use radixkv::capi::*;
use std::ffi::{CString, OsStr, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Everything that can be counted.
#[derive(Debug, PartialEq, Eq)]
pub struct View([u64; 18], usize);

/// Worlds with a directory, each with one of its own.
static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

/// A cache whose destructors count.
pub struct Shelf {
    pub cache: *mut rkv_snapshot_cache,
    /// Pins that are out.
    pub pins: Vec<rkv_pin_id>,
    /// Pins that were released, and a pin of another cache.
    pub stale: Vec<rkv_pin_id>,
    /// Fetches that were started, ended ones too.
    pub tickets: Vec<rkv_ticket_id>,
    /// Below the cache.
    pub directory: Option<Directory>,
    /// Snapshots with a destructor that the cache took over.
    pub taken: usize,
    /// In a box, since destructors get its address.
    destroyed: Box<AtomicUsize>,
}

/// Counts. The data is any pointer, and is not followed.
pub unsafe extern "C-unwind" fn count_destroyed(_: *mut c_void, _: u64, user_data: *mut c_void) {
    // SAFETY: the shelf's counter outlives its cache.
    unsafe { &*user_data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

impl Shelf {
    pub fn new() -> Self {
        let config =
            rkv_snapshot_cache_config { entry_limit: 5, byte_limit: 200, ..Sized32::sized() };
        let mut shelf = Self {
            cache: ptr::null_mut(),
            pins: Vec::new(),
            stale: Vec::new(),
            tickets: Vec::new(),
            directory: None,
            taken: 0,
            destroyed: Box::default(),
        };
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_create(&config, &mut shelf.cache) });
        for (ids, bytes) in [(&[0, 1][..], 10), (&[0, 1, 1, 0], 20), (&[0, 0], 30), (&[1], 40)] {
            shelf.store(ids, bytes);
        }
        let released = shelf.find(&[0, 1, 1]);
        let kept = shelf.find(&[0, 1, 1, 0, 1]);
        // SAFETY: the pin is out.
        ok(unsafe { rkv_snapshot_cache_release(shelf.cache, released) });
        shelf.pins.push(kept);
        shelf.stale.push(released);
        shelf
    }

    pub fn user_data(&self) -> *mut c_void {
        ptr::from_ref(&*self.destroyed).cast_mut().cast()
    }

    fn store(&mut self, ids: &[u32], size_bytes: u64) {
        let tokens = rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..Sized32::sized() };
        let args = rkv_snapshot_cache_insert_args {
            tokens: &tokens,
            size_bytes,
            destructor: Some(count_destroyed),
            user_data: self.user_data(),
            ..Sized32::sized()
        };
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_insert(self.cache, &args, ptr::null_mut()) });
        self.taken += 1;
    }

    fn find(&self, ids: &[u32]) -> rkv_pin_id {
        let tokens = rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..Sized32::sized() };
        let mut found = rkv_snapshot_cache_match_result::sized();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_snapshot_cache_match(self.cache, ptr::null(), &tokens, 0, &mut found) });
        assert_ne!(found.pin, 0);
        found.pin
    }

    fn stats(&self) -> rkv_snapshot_cache_stats {
        let mut stats = rkv_snapshot_cache_stats::sized();
        // SAFETY: the handle is alive, the struct has its size.
        ok(unsafe { rkv_snapshot_cache_read_stats(self.cache, &mut stats) });
        stats
    }

    /// `None` with a directory: what was read becomes an entry, and what was written goes, whatever
    /// the call is.
    pub fn view(&self) -> Option<View> {
        if self.directory.is_some() {
            return None;
        }
        let stats = self.stats();
        let counts = [
            stats.entry_count,
            stats.entry_bytes,
            stats.pinned_entry_count,
            stats.pin_count,
            stats.detached_count,
            stats.detached_bytes,
            stats.node_count,
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
        Some(View(counts, self.destroyed.load(Ordering::Relaxed)))
    }

    /// Every invariant that the library can check itself.
    #[track_caller]
    pub fn check(&self) {
        // SAFETY: the handle is alive.
        ok(unsafe { rkv_snapshot_cache_check(self.cache) });
        let (counted, out) = (self.stats().pin_count, self.pins.len() as u64);
        // Those of fetches that were not taken yet are counted, too.
        assert!(counted == out || self.directory.is_some() && counted > out);
    }

    /// Destroys the cache first, and then releases what is pinned: each snapshot goes once.
    pub fn end(&mut self) {
        let cache = std::mem::replace(&mut self.cache, ptr::null_mut());
        if cache.is_null() {
            return;
        }
        // SAFETY: nobody uses the handle but for pins; the last of them ends it.
        unsafe {
            rkv_snapshot_cache_destroy(cache);
            for pin in self.pins.drain(..) {
                ok(rkv_snapshot_cache_release(cache, pin));
            }
        }
        self.directory = None;
        assert_eq!(self.taken, self.destroyed.load(Ordering::Relaxed), "each exactly once");
    }
}

/// A directory in memory, if the system has one.
pub struct Directory(pub CString);

impl Directory {
    pub fn new() -> Self {
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("radixkv-fuzz-{}-{number}", std::process::id()));
        Self(CString::new(path.into_os_string().into_vec()).unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let path = OsStr::from_bytes(self.0.as_bytes());
        // It isn't there if it was never attached.
        let _ = std::fs::remove_dir_all(path);
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.end();
    }
}
