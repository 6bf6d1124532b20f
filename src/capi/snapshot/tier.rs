//! What is below the memory of a snapshot cache: a directory, and a store that caches share.
use crate::capi::ffi::{
    AbiStruct, Fail, check_flags, guard, init_struct, read_struct, rkv_status, wake_of,
};
use crate::capi::snapshot::handle::{Call, Needs, with};
use crate::capi::snapshot::rkv_snapshot_cache;
use crate::capi::tier::{OWN_THREAD, RKV_TIERS_THREADS, Use, io_of, remote_of, rkv_remote_store};
use crate::error::{Error, text};
use crate::memory::try_box;
use crate::snapshot::tiered::TierPolicy;
use crate::tier::{DiskConfig, DiskStore, LowerStore, Wake};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

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
    /// store nothing of another one is found. Default all zero, which is a fingerprint like any
    /// other: models that leave it so find each other's snapshots.
    pub fingerprint: [u8; 32],
    /// When a snapshot is written: 0 as soon as it is inserted, n when n matches have found it,
    /// UINT32_MAX when it leaves memory. Default 0.
    pub write_after_matches: u32,
    /// Requests that are under way to the disk at once, of 2 MiB, as many to read as to write,
    /// 1 to 64: by so many threads, but writes by one where there is io_uring. Default 8.
    pub worker_count: u32,
    /// Bytes of snapshots that wait to be written, at most, but one alone may be longer; for the
    /// directory and for the remote store each. A snapshot that would exceed it is tried again
    /// later, if it is still in memory. Of those that wait for that 256 do; what is beyond is
    /// written when it leaves memory, and counts as failed until then. Default 4 GiB.
    pub waiting_byte_limit: u64,
    /// Milliseconds from a write to its commit, at most, while the disk keeps up: after a crash
    /// what was written earlier is there. 1 to 60000. Default 250.
    pub commit_interval_ms: u32,
    /// An eventfd that becomes readable when something was read or written, or -1. The engine reads
    /// it before it asks for its tickets, not after. The cache uses it until it is detached, and
    /// never closes it. On Linux files, pipes and sockets are refused. Default -1.
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
/// directory when write_after_matches says so. Found are prefixes alone, also with
/// RKV_SNAPSHOT_MATCH_TRIMMABLE. A server that is slow or dead, or has other bytes than were
/// written, costs a hit: rkv_remote_totals says what happened. rkv_snapshot_cache_remove() takes a
/// snapshot away there too, when a thread comes to it; after rkv_snapshot_cache_clear() the store
/// is left alone, since others fill it: attach anew, with another fingerprint, or use another
/// epoch.
///
/// Attach before the first insert: what memory has already is not compared with what the directory
/// has for the same tokens. Nothing that happens to the disk later fails a call on the cache: a
/// snapshot that cannot be written or read is not found, and counted.
///
/// @param cache the cache
/// @param config what to attach
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
/// when something is attached already, or no ids are left for tickets, see
/// rkv_snapshot_cache_create(); RKV_STATUS_STORAGE when the directory can't be used: another
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
                    let (store, records) = opened.map_err(Error::from)?;
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

/// Takes directory and remote store away from a cache, after waiting for what is being written.
/// A last commit has what is written by then: that is found when they are attached again. Snapshots
/// in memory stay, copies too.
/// Tickets that are out are stale from now on. What another thread attaches meanwhile, after it
/// detached this, stays.
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most for what is being written
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or for one of the other
/// reasons of rkv_snapshot_cache_flush(): they are detached; what the last commit lacks is lost;
/// RKV_STATUS_INVALID_STATE when nothing is attached, or in a function of the remote store;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(snapshots in the directory); blocks for the time given, until requests to the disk and calls
/// to a remote store that go on have ended, and for a last commit
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
                Err(Fail::pending("not everything was written"))
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
/// RKV_STATUS_INVALID_STATE when nothing is attached, or in a function of the remote store;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
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
            if call.cache.is_own_thread() {
                return Err(Error::state(OWN_THREAD).into());
            }
            if call.cache.flush(time(timeout_ms), call.freed) {
                Ok(())
            } else {
                Err(Fail::pending("something is not written yet"))
            }
        })
    }
}
