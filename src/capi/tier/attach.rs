//! Putting tiers below the pages of a cache, and taking them away.
use super::remote::{Use, remote_of, rkv_remote_store};
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, GivenElements, check_flags, guard, init_struct, read_struct,
    rkv_status, wake_of, with,
};
use crate::error::{Error, text};
use crate::group::check_count;
use crate::memory::{Arc, Slots, TryGrow, try_box};
use crate::store::Shared;
use crate::tier::paged::{HostMemory, PagePolicy, PageSizes, PageTiers, TierConfig, TierPool};
use crate::tier::{Contents, DiskConfig, DiskStore, FoundRecords, Io, LowerStore, Wake};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;
use std::time::Duration;

/// Flag of rkv_tier_config: nothing that was fetched is used before rkv_sequence_agree(), for ranks
/// that compute one model together.
pub const RKV_TIERS_AGREE: u32 = 1;

/// Flag of rkv_tier_config and of rkv_snapshot_tier_config: the directory is written by threads
/// that wait for it, worker_count of them, also where the system has io_uring.
pub const RKV_TIERS_THREADS: u32 = 2;

/// What lies below the pages of a cache: host memory, a directory, and a remote store. Fill with
/// rkv_tier_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tier_config {
    /// sizeof(rkv_tier_config).
    pub struct_size: u32,
    /// RKV_TIERS_AGREE, RKV_TIERS_THREADS, both or 0. Default 0.
    pub flags: u32,
    /// Bytes of a page in all layers together, or with several groups in all layers of a group:
    /// what a copy moves. A directory whose pages have other ones is refused. No default.
    pub page_bytes: u64,
    /// Bytes of host memory, at most: as many slots of page_bytes as fit, 1 to 2^32 - 1 of them. (A
    /// slot here is a place for one page, and has nothing to do with those of the page table.) No
    /// default.
    pub host_bytes: u64,
    /// Where those are: NULL for memory that the library takes, or memory of the engine's (pinned,
    /// say), which stays as it is, and which nobody else touches, until the tiers are detached or
    /// the cache is destroyed. Default NULL.
    pub host_memory: *mut c_void,
    /// The directory below host memory, a path that ends with NUL; made if it isn't there, with its
    /// parents. It is this cache's alone. NULL for none. Default NULL.
    pub directory: *const c_char,
    /// Bytes of data in it, at most: a page takes whole blocks of 4096 bytes, and its note. Room
    /// for a page of each pool at least, and for fewer than 2^29 pages. 0 without a directory.
    pub disk_bytes: u64,
    /// What the pages are good for: a digest of model, quantisation, layout, rank, and whatever
    /// else changes what their bytes mean. A directory of another fingerprint is refused. Default
    /// all zero, which is a fingerprint like any other: models that leave it so and have pages of
    /// equal bytes find each other's, in a directory as in a remote store.
    pub fingerprint: [u8; 32],
    /// When a page is copied to host memory: 0 as soon as it is published, n when n fetches have
    /// asked for what follows it, 255 at most, UINT32_MAX when it is about to be evicted. Default
    /// 0.
    pub store_after_uses: u32,
    /// Requests that are under way to the disk at once, of 2 MiB, as many to read as to write,
    /// 1 to 64: by so many threads, but writes by one where there is io_uring. The same of calls
    /// to the remote store, by threads. Default 8.
    pub worker_count: u32,
    /// Milliseconds from a write to its commit, at most, while the disk keeps up. 1 to 60000.
    /// Default 250.
    pub commit_interval_ms: u32,
    /// An eventfd that becomes readable when there is something to poll for, or -1. The engine
    /// reads it before it calls rkv_cache_poll(), not after: what comes is announced once, and not
    /// again until the next poll. It is used until the tiers are detached, and never closed. On
    /// Linux files, pipes and sockets are refused. Default -1.
    pub event_fd: i32,
    /// A store below all that, shared with other processes; NULL for none. It is copied. Default
    /// NULL.
    pub remote: *const rkv_remote_store,
    /// Milliseconds that a call to it may take; a fetch that gets nothing from it for as long goes
    /// on without. 600000 at most; 0 for 2000. 0 without a store. Default 0.
    pub remote_timeout_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// Of a page table with several pools: the pages of each, in order. page_bytes, host_bytes and
    /// host_memory are 0 and NULL then. It is copied. Default NULL: one pool, of which those tell.
    pub pools: *const rkv_tier_pool_config,
    /// Number of pools. Default 0.
    pub pool_count: usize,
    /// sizeof(rkv_tier_pool_config); not read without pools. Set it with them: the default is that
    /// of the loaded library, which may be later and know a longer one.
    pub pool_size: usize,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_tier_config {
    const NAME: &'static str = "config";
    const V1: usize = 96;
}

/// The pages of a pool, and the host memory that they have.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tier_pool_config {
    /// Bytes of a page in all layers of a group together: what a copy moves.
    pub page_bytes: u64,
    /// Bytes of host memory, at most: as many slots of page_bytes as fit.
    pub host_bytes: u64,
    /// Where those are, as in rkv_tier_config; NULL for memory that the library takes.
    pub host_memory: *mut c_void,
}
// SAFETY: integers and a pointer, no padding.
unsafe impl AbiElement for rkv_tier_pool_config {
    const V1: usize = 24;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_tier_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_tier_config_init(
    config: *mut rkv_tier_config,
    struct_size: usize,
) -> rkv_status {
    let made = rkv_tier_config {
        struct_size: 0,
        flags: 0,
        page_bytes: 0,
        host_bytes: 0,
        host_memory: std::ptr::null_mut(),
        directory: std::ptr::null(),
        disk_bytes: 0,
        fingerprint: [0; 32],
        store_after_uses: 0,
        worker_count: 8,
        commit_interval_ms: 250,
        event_fd: -1,
        remote: std::ptr::null(),
        remote_timeout_ms: 0,
        reserved: 0,
        pools: std::ptr::null(),
        pool_count: 0,
        pool_size: size_of::<rkv_tier_pool_config>(),
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Puts host memory, and perhaps a directory and a remote store, below the pages of a cache. Pages
/// that are published are copied there, as store_after_uses says, and found again when they were
/// evicted; what the directory or the remote store has already is found at once. Nothing that
/// happens to any of them later fails a call: a page that can't be had is computed.
///
/// The engine carries the copies out: see rkv_cache_poll(). A thread of the library follows the
/// journal, checks bytes and talks with the disk; others call the remote store.
///
/// A directory with pages of another page_bytes, or of a group that the page table does not have,
/// is refused as one of another fingerprint is, and nothing in it changes.
///
/// To open the directory takes out of it what disk_bytes has no room for. That stays so when the
/// attachment is refused after it: without memory or threads, and where another thread has attached
/// tiers meanwhile.
///
/// @param cache a cache with a journal
/// @param config what to attach
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
/// when the cache has tiers, or no journal; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_STORAGE when the directory cannot be used: another process or cache has it, it was
/// made by another version, or for another fingerprint or other page_bytes, or the system refuses;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages in the directory + page_count); reads from the disk. Blocks; other calls go on meanwhile
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_attach_tiers(
    cache: *mut rkv_cache,
    config: *const rkv_tier_config,
) -> rkv_status {
    // SAFETY: the caller's contract on both pointers.
    unsafe {
        with(cache, |shared| {
            let raw = read_struct(config)?;
            if shared.lower::<PageTiers>().is_some() {
                return Err(Error::state("the cache has tiers: detach those first").into());
            }
            let (disk_wake, wake) = PageTiers::disk_wake();
            check_flags(raw.flags, RKV_TIERS_AGREE | RKV_TIERS_THREADS, "config.flags")?;
            let pools = pools_of(&raw)?;
            if raw.reserved != 0 {
                return Err(Error::argument("config.reserved is not zero").into());
            }
            let how = Use {
                fingerprint: raw.fingerprint,
                timeout_ms: raw.remote_timeout_ms,
                workers: raw.worker_count,
                // They lie in host memory, of which fetches need the most.
                waiting_bytes: (host_bytes(&pools) / 4).max(page_bytes(&pools)),
            };
            let (policy, engine) = (policy_of(&raw)?, wake_of(raw.event_fd)?);
            let remote = remote_of(raw.remote, &how)?;
            PageTiers::check_attachable(shared, pools.len())?;
            // To open a directory may trim it: after that memory and threads alone are refused, and
            // who was not the first of two.
            let sizes = PageTiers::page_sizes(shared, &pools);
            let disk = disk_of(&raw, (&pools, sizes), wake)?;
            let agrees = raw.flags & RKV_TIERS_AGREE != 0;
            let made = TierConfig { pools, policy, agrees, wake: engine, remote, disk };
            PageTiers::attach(shared, made, disk_wake)?;
            Ok(())
        })
    }
}

/// # Safety
/// The pools, and the memory that they name, can be used as the text of the config says.
unsafe fn pools_of(raw: &rkv_tier_config) -> Result<Vec<TierPool>, Fail> {
    let mut pools = Vec::new();
    if raw.pool_count == 0 {
        let &rkv_tier_config { page_bytes, host_bytes, host_memory, .. } = raw;
        let one = rkv_tier_pool_config { page_bytes, host_bytes, host_memory };
        // SAFETY: the caller's contract.
        pools.try_push(unsafe { pool_of(&one, "config")? })?;
        return Ok(pools);
    }
    check_count(raw.pool_count, "config.pool_count")?;
    if (raw.page_bytes, raw.host_bytes) != (0, 0) || !raw.host_memory.is_null() {
        let why = "config.pools: each says its page_bytes, host_bytes and host_memory, and config \
                   none of them";
        return Err(Error::argument(why).into());
    }
    let size = (raw.pool_size, "config.pool_size");
    // SAFETY: the caller's contract.
    let given = unsafe { GivenElements::new(raw.pools, raw.pool_count, size, "config.pools")? };
    for (at, pool) in given.iter().enumerate() {
        // SAFETY: the caller's contract.
        pools.try_push(unsafe { pool_of(&pool, &text!("config.pools[{at}]"))? })?;
    }
    Ok(pools)
}

/// # Safety
/// The memory that it names can be used as the text of the config says.
unsafe fn pool_of(raw: &rkv_tier_pool_config, name: &str) -> Result<TierPool, Fail> {
    let &rkv_tier_pool_config { page_bytes, host_bytes, host_memory } = raw;
    let refuse = |text| Err(Error::argument(text).into());
    let Some(bytes) = usize::try_from(page_bytes).ok().filter(|&bytes| bytes > 0) else {
        return refuse(text!("{name}.page_bytes is {page_bytes}"));
    };
    let count = host_bytes / page_bytes;
    let Some(count) = u32::try_from(count).ok().filter(|&count| count > 0) else {
        return refuse(text!(
            "{name}.host_bytes {host_bytes} is room for {count} pages of {page_bytes} bytes, not \
             for 1 to 2^32 - 1"
        ));
    };
    let host = match NonNull::new(host_memory.cast::<u8>()) {
        None => {
            let memory = || Error::memory(text!("host memory: {name}.host_bytes"));
            HostMemory::Given(Slots::new(count, bytes).map_err(|_| memory())?)
        }
        // SAFETY: the caller's contract.
        Some(base) => HostMemory::Given(unsafe { Slots::over(base, count, bytes) }?),
    };
    Ok(TierPool { page_bytes: bytes, host })
}

/// Bytes of host memory of all pools.
fn host_bytes(pools: &[TierPool]) -> u64 {
    let of = |pool: &TierPool| match &pool.host {
        HostMemory::Own(bytes) => *bytes,
        HostMemory::Given(slots) => slots.count() as u64 * pool.page_bytes as u64,
    };
    pools.iter().map(of).fold(0, u64::saturating_add)
}

/// Bytes of the largest page.
fn page_bytes(pools: &[TierPool]) -> u64 {
    pools.iter().map(|pool| pool.page_bytes as u64).max().unwrap_or(0)
}

fn policy_of(raw: &rkv_tier_config) -> Result<PagePolicy, Fail> {
    match (raw.store_after_uses, u8::try_from(raw.store_after_uses)) {
        (0, _) => Ok(PagePolicy::Through),
        (_, Ok(uses)) => Ok(PagePolicy::AfterUses(uses)),
        (u32::MAX, _) => Ok(PagePolicy::OnEviction),
        (uses, _) => Err(Error::argument(text!(
            "config.store_after_uses {uses} is neither 255 at most nor UINT32_MAX"
        ))
        .into()),
    }
}

type Disk = Option<(Box<dyn LowerStore>, FoundRecords)>;

/// # Safety
/// The directory is NULL or a string that ends with NUL.
unsafe fn disk_of(
    raw: &rkv_tier_config,
    (pools, sizes): (&[TierPool], PageSizes),
    wake: Wake,
) -> Result<Disk, Fail> {
    let refuse = |text| Err(Error::argument(text).into());
    if !(1..=64).contains(&raw.worker_count) {
        return refuse(text!("config.worker_count {} is not 1 to 64", raw.worker_count));
    }
    if !(1..=60_000).contains(&raw.commit_interval_ms) {
        let given = raw.commit_interval_ms;
        return refuse(text!("config.commit_interval_ms {given} is not 1 to 60000"));
    }
    if raw.directory.is_null() {
        if raw.disk_bytes != 0 {
            return refuse(text!("config.disk_bytes is set without config.directory"));
        }
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let directory = unsafe { CStr::from_ptr(raw.directory) };
    if directory.is_empty() {
        return refuse(text!("config.directory is empty"));
    }
    PageTiers::check_disk(pools, raw.disk_bytes)?;
    let directory = OsStr::from_bytes(directory.to_bytes());
    let config = DiskConfig {
        workers: raw.worker_count as usize,
        commit_interval: Duration::from_millis(raw.commit_interval_ms.into()),
        // What is written is in host memory, which is bounded.
        waiting_bytes: host_bytes(pools),
        io: io_of(raw.flags),
        wake: Some(wake),
        contents: Contents::Pages,
        page_sizes: Some(sizes),
        ..DiskConfig::new(directory, raw.disk_bytes, raw.fingerprint)
    };
    let opened = DiskStore::open(config);
    let (store, records) = opened.map_err(Error::from)?;
    Ok(Some((try_box(store)?, records)))
}

/// How requests go to the disk.
pub(in crate::capi) fn io_of(flags: u32) -> Io {
    if flags & RKV_TIERS_THREADS == 0 { Io::Auto } else { Io::Threads }
}

/// The tiers that a cache has.
pub(super) fn tiers_of(shared: &Arc<Shared>) -> Result<std::sync::Arc<PageTiers>, Fail> {
    Ok(shared.lower().ok_or_else(|| Error::state("the cache has no tiers"))?)
}

/// Why a call of a remote store's function is refused.
pub(in crate::capi) const OWN_THREAD: &str =
    "a function of the remote store can't detach or flush it: it would wait for itself";

/// Takes the tiers away from a cache, after waiting for what is being written. What was committed
/// is found when the directory is attached again, and nothing of what rkv_cache_clear() cleared,
/// whatever directories the cache had in between; host memory is given up.
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most for what is being written
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or the directory cannot
/// be written and has something that was cleared: the tiers are detached, and what was not
/// committed is lost; RKV_STATUS_INVALID_STATE when there are none, or copies or fetches go on, or
/// another thread detaches them, or in a function of the remote store; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED. Unless it is refused, no copy is given out and no fetch begins from the
/// start of the call on
/// @par Cost
/// blocks for the time given, for a second at most until what was cleared is removed from the
/// directory, until requests to the disk and calls to a remote store that go on have ended, and for
/// a last commit
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_detach_tiers(
    cache: *mut rkv_cache,
    timeout_ms: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            if tiers.is_own_thread() {
                return Err(Error::state(OWN_THREAD).into());
            }
            tiers.begin_closing()?;
            let is_written = tiers.flush(Duration::from_millis(timeout_ms));
            // Its memory may go when this returns.
            tiers.take_off();
            if is_written {
                return Ok(());
            }
            Err(Fail::pending("the time was over before everything was written"))
        })
    }
}

/// Waits until what was copied to host memory before the call is committed in the directory, and
/// with the remote store, and what was cleared before it is gone from the directory: a crash later
/// takes nothing of it, and brings nothing back. What comes meanwhile is not waited for. Nor are
/// pages that are still to be copied: that is the engine's part, rkv_cache_poll() and
/// rkv_cache_complete().
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first, or the directory has no
/// room for something, failed since the flush before, or cannot be written any more: the cache goes
/// on, and the statistics count what is not there; RKV_STATUS_INVALID_STATE when the cache has no
/// tiers, or in a function of the remote store; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1), and what the disk takes; blocks for the time given at most; other calls go on meanwhile.
/// A remote store that three calls in a row have failed to reach is not waited for; one whose first
/// calls go on is
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_flush_tiers(
    cache: *mut rkv_cache,
    timeout_ms: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            if tiers.is_own_thread() {
                return Err(Error::state(OWN_THREAD).into());
            }
            if tiers.flush_all(Duration::from_millis(timeout_ms)) {
                return Ok(());
            }
            Err(Fail::pending("something is not written yet"))
        })
    }
}

/// Gives up pages of host memory and of the directory until no more bytes than these are in use;
/// ends of prefixes go before beginnings, what was used longest ago first. They may grow again, up
/// to what the config said. Slots that copies, reads and writes have are given back when those have
/// ended. The host's memory for slots stays the cache's; the directory's data file becomes shorter
/// when the removals are committed and its end is free.
///
/// @param cache the cache
/// @param host_bytes of host memory, at most; UINT64_MAX leaves it as it is
/// @param disk_bytes of the directory, at most; UINT64_MAX leaves it as it is
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_STATE when the cache has no tiers;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages that go), others are let in after each; does without memory; never waits for the disk
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_shrink_tiers(
    cache: *mut rkv_cache,
    host_bytes: u64,
    disk_bytes: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| {
            tiers_of(shared)?.shrink_to(host_bytes, disk_bytes);
            Ok(())
        })
    }
}
