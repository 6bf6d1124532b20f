//! Tiers: what lies below the pages of a cache, and how an engine carries copies out for it.
mod remote;
mod stats;

pub use remote::*;
pub use stats::*;

use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, WantedElements, check_fit, check_flags, guard, init_struct, out,
    read_struct, rkv_status, slice, wake_of, with, write_struct,
};
use crate::capi::sequence::rkv_sequence_id;
use crate::error::{Error, text};
use crate::ids::SequenceId;
use crate::memory::{Arc, Slots, try_box};
use crate::store::Shared;
use crate::tier::paged::{
    CopyJob, Deadline, Direction, Fetched, HostMemory, PagePolicy, PageTiers, TierConfig,
};
use crate::tier::{DiskConfig, DiskStore, LowerStore, Record, Wake};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;
use std::time::Duration;

/// Flag of rkv_tier_config: nothing that was fetched is used before rkv_sequence_agree(), for ranks
/// that compute one model together.
pub const RKV_TIERS_AGREE: u32 = 1;
/// Flag of rkv_sequence_fetch(): say what could be fetched, and fetch nothing. The remote store is
/// not asked.
pub const RKV_FETCH_LOOK_ONLY: u32 = 1;
/// Flag of rkv_fetch_end: the deadline, or remote_timeout_ms, came before everything had.
pub const RKV_FETCH_END_LATE: u32 = 1;
/// Direction of rkv_copy_job: from host memory to a page of the device.
pub const RKV_COPY_LOAD: u32 = 0;
/// Direction of rkv_copy_job: from a page of the device to host memory.
pub const RKV_COPY_STORE: u32 = 1;

/// What lies below the pages of a cache: host memory, a directory, and a remote store. Fill with
/// rkv_tier_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_tier_config {
    /// sizeof(rkv_tier_config).
    pub struct_size: u32,
    /// 0 or RKV_TIERS_AGREE.
    pub flags: u32,
    /// Bytes of a page in all layers together: what a copy moves. No default.
    pub page_bytes: u64,
    /// Bytes of host memory, at most: as many slots of page_bytes as fit. No default.
    pub host_bytes: u64,
    /// Where those are: NULL for memory that the library takes, or memory of the engine's (pinned,
    /// say), which stays as it is, and which nobody else touches, until the tiers are detached or
    /// the cache is destroyed. Default NULL.
    pub host_memory: *mut c_void,
    /// The directory below host memory, a path that ends with NUL; made if its parent is there. It
    /// is this cache's alone. NULL for none. Default NULL.
    pub directory: *const c_char,
    /// Bytes of data in it, at most. 0 without a directory.
    pub disk_bytes: u64,
    /// What the pages are good for: a digest of model, quantisation, layout, rank, and whatever
    /// else changes what their bytes mean. A directory of another fingerprint is refused. Default
    /// all zero.
    pub fingerprint: [u8; 32],
    /// When a page is copied to host memory: 0 as soon as it is published, n when n fetches have
    /// asked for what follows it, 255 at most, UINT32_MAX when it is about to be evicted. Default
    /// 0.
    pub store_after_uses: u32,
    /// Threads that read the disk, and as many that write, 1 to 64; the same for the remote store.
    /// Default 8.
    pub worker_count: u32,
    /// Milliseconds from a write to its commit, at most, while the disk keeps up. 1 to 60000.
    /// Default 250.
    pub commit_interval_ms: u32,
    /// An eventfd that becomes readable when there is something to poll for, or -1. It is used
    /// until the tiers are detached, and never closed. Default -1.
    pub event_fd: i32,
    /// A store below all that, shared with other processes; NULL for none. It is copied. Default
    /// NULL.
    pub remote: *const rkv_remote_store,
    /// Milliseconds that a call to it may take; a fetch that gets nothing from it for as long goes
    /// on without. 600000 at most; 0 for 2000. Default 0.
    pub remote_timeout_ms: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_tier_config {
    const NAME: &'static str = "config";
    const V1: usize = 96;
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
/// @param cache a cache with a journal
/// @param config what to attach
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_INVALID_STATE
/// when the cache has tiers, or no journal; RKV_STATUS_UNSUPPORTED with several groups of layers or
/// an external pool; RKV_STATUS_STORAGE when the directory cannot be used: another process or cache
/// has it, it was made by another version or for another fingerprint, or the system refuses;
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
            let host = host_of(&raw)?;
            if raw.reserved != 0 {
                return Err(Error::argument("config.reserved is not zero").into());
            }
            let how = Use {
                fingerprint: raw.fingerprint,
                timeout_ms: raw.remote_timeout_ms,
                workers: raw.worker_count,
                page_bytes: raw.page_bytes,
                host_bytes: raw.host_bytes,
            };
            let made = TierConfig {
                page_bytes: raw.page_bytes as usize,
                host,
                policy: policy_of(&raw)?,
                agrees: raw.flags & RKV_TIERS_AGREE != 0,
                wake: wake_of(raw.event_fd)?,
                remote: remote_of(raw.remote, &how)?,
                disk: disk_of(&raw, wake)?,
            };
            PageTiers::attach(shared, made, disk_wake)?;
            Ok(())
        })
    }
}

/// # Safety
/// The memory that the config names can be used as its text says.
unsafe fn host_of(raw: &rkv_tier_config) -> Result<HostMemory, Fail> {
    let refuse = |text| Err(Error::argument(text).into());
    check_flags(raw.flags, RKV_TIERS_AGREE, "config.flags")?;
    if raw.page_bytes == 0 || usize::try_from(raw.page_bytes).is_err() {
        return refuse(text!("config.page_bytes is {}", raw.page_bytes));
    }
    let count = raw.host_bytes / raw.page_bytes;
    let Some(count) = u32::try_from(count).ok().filter(|&count| count > 0) else {
        return refuse(text!(
            "config.host_bytes {} is room for {count} pages of {} bytes, not for 1 to 2^32 - 1",
            raw.host_bytes,
            raw.page_bytes
        ));
    };
    let Some(base) = NonNull::new(raw.host_memory.cast::<u8>()) else {
        return Ok(HostMemory::Own(raw.host_bytes));
    };
    // SAFETY: the caller's contract.
    let slots = unsafe { Slots::over(base, count, raw.page_bytes as usize) };
    Ok(HostMemory::Given(slots?))
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

type Disk = Option<(Box<dyn LowerStore>, Vec<Record>)>;

/// # Safety
/// The directory is NULL or a string that ends with NUL.
unsafe fn disk_of(raw: &rkv_tier_config, wake: Wake) -> Result<Disk, Fail> {
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
    if raw.disk_bytes < raw.page_bytes {
        return refuse(text!("config.disk_bytes {} is room for no page", raw.disk_bytes));
    }
    let directory = OsStr::from_bytes(directory.to_bytes());
    let config = DiskConfig {
        workers: raw.worker_count as usize,
        commit_interval: Duration::from_millis(raw.commit_interval_ms.into()),
        // What is written is in host memory, which is bounded.
        waiting_bytes: raw.host_bytes,
        wake: Some(wake),
        ..DiskConfig::new(directory, raw.disk_bytes, raw.fingerprint)
    };
    let opened = DiskStore::open(config);
    let (store, records) = opened.map_err(|error| Error::Storage(text!("{error}")))?;
    Ok(Some((try_box(store)?, records)))
}

fn tiers_of(shared: &Arc<Shared>) -> Result<std::sync::Arc<PageTiers>, Fail> {
    Ok(shared.lower().ok_or_else(|| Error::state("the cache has no tiers"))?)
}

/// Takes the tiers away from a cache, after waiting for what is being written. What was committed
/// is found when the directory is attached again; host memory is given up.
///
/// @param cache the cache
/// @param timeout_ms milliseconds to wait at most for what is being written
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING when the time was over first: the tiers are detached,
/// and what was not committed is lost; RKV_STATUS_INVALID_STATE when there are none, or copies or
/// fetches go on; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// blocks for the time given, and until a write and calls to a remote store that go on have ended
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
            if tiers.is_busy() {
                let why = "copies that were given out are not complete, or a fetch is open";
                return Err(Error::state(why).into());
            }
            let is_written = tiers.flush(Duration::from_millis(timeout_ms));
            let weak = std::sync::Arc::downgrade(&tiers);
            drop(tiers);
            shared.detach_lower();
            // Other calls have it for moments. Its memory may go when this returns.
            while weak.strong_count() > 0 {
                std::thread::yield_now();
            }
            if is_written {
                return Ok(());
            }
            Err(Fail::pending("the time was over before everything was written"))
        })
    }
}

/// What the tiers have of a sequence.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_sequence_fetch_result {
    /// sizeof(rkv_sequence_fetch_result).
    pub struct_size: u32,
    /// 1 when a fetch is open now: rkv_cache_poll() says when it has ended. Until then
    /// rkv_plan_set(), rkv_sequence_publish() and rkv_sequence_retain() return RKV_STATUS_PENDING
    /// for the sequence.
    pub is_open: u32,
    /// Positions that can be fetched beyond those that the sequence reuses. Of a fetch, no more
    /// than the sequence's row has pages for: rkv_sequence_allocate() adds those of a prompt that
    /// began with allocate_position_count.
    pub position_count: u64,
    /// Of those, from the first one on, how many are in host memory.
    pub host_position_count: u64,
    /// Positions beyond position_count for which the fetch asks the remote store; how many it
    /// brings is in the rkv_fetch_end.
    pub asked_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_sequence_fetch_result {
    const NAME: &'static str = "out_fetch";
    const V1: usize = 24;
}

/// Starts to bring what the tiers have of a sequence beyond what it reuses, into its own pages. It
/// is for a sequence that has computed nothing beyond what it has published, and that has carried
/// out no copy that begin named: that copy is given up, its page is fetched whole.
///
/// What came is published when every byte has arrived and its checksum holds: the sequence's
/// cached_position_count grows, and others find it. Where somebody published the same meanwhile,
/// the row maps that. A second sequence with the same prefix waits for the first one's copies
/// instead of having its own. What can't be had, or doesn't come in time, is left to compute.
///
/// @param cache the cache
/// @param sequence the sequence
/// @param deadline_ms milliseconds after which no more is brought; 0 takes only what host memory
/// has, UINT64_MAX is no deadline but remote_timeout_ms. Copies that the engine was given are still
/// waited for
/// @param flags 0 or RKV_FETCH_LOOK_ONLY
/// @param out_fetch receives what there is; set its struct_size first
/// @return RKV_STATUS_OK, also when there is nothing; RKV_STATUS_PENDING when a fetch of the
/// sequence is open; RKV_STATUS_INVALID_STATE when the cache has no tiers;
/// RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages that the tiers have + 1), a SHA-256 of each, 64 at a time with the shared lock; with a
/// remote store O(pages that the device doesn't have). Lock for a moment; never waits for the disk
/// or the store. Nothing when the device has the whole pages of the prompt
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_fetch(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    deadline_ms: u64,
    flags: u32,
    out_fetch: *mut rkv_sequence_fetch_result,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_fetch.
    unsafe {
        with(cache, |shared| {
            check_flags(flags, RKV_FETCH_LOOK_ONLY, "flags")?;
            check_fit(out_fetch)?;
            let deadline = match deadline_ms {
                u64::MAX => Deadline::Never,
                time => Deadline::After(Duration::from_millis(time)),
            };
            let looks_only = flags & RKV_FETCH_LOOK_ONLY != 0;
            let found = tiers_of(shared)?.fetch(SequenceId(sequence), deadline, looks_only)?;
            let made = rkv_sequence_fetch_result {
                struct_size: 0,
                is_open: found.is_begun as u32,
                position_count: found.positions as u64,
                host_position_count: found.host_positions as u64,
                asked_position_count: found.asked_positions as u64,
            };
            write_struct(out_fetch, &made)
        })
    }
}

/// A copy of one page that the engine carries out, in all layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_copy_job {
    /// Names the copy for rkv_cache_complete().
    pub job: u64,
    /// Its place in host memory.
    pub host: *mut c_void,
    /// Bytes of it: page_bytes of the config.
    pub byte_count: u64,
    /// Of a load, the sequence whose page it is; else 0.
    pub sequence: rkv_sequence_id,
    /// The page of the device.
    pub page: u32,
    /// RKV_COPY_LOAD or RKV_COPY_STORE.
    pub direction: u32,
}
// SAFETY: integers and a pointer, no padding.
unsafe impl AbiElement for rkv_copy_job {
    const V1: usize = 40;
}

/// A fetch that has ended. With RKV_TIERS_AGREE, one that waits for rkv_sequence_agree().
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_fetch_end {
    /// The sequence.
    pub sequence: rkv_sequence_id,
    /// Its cached_position_count now; with RKV_TIERS_AGREE, what that can be at most.
    pub position_count: u64,
    /// Pages that were to be fetched.
    pub wanted_page_count: u64,
    /// Pages that came.
    pub brought_page_count: u64,
    /// 0 or RKV_FETCH_END_LATE.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_fetch_end {
    const V1: usize = 40;
}

/// What a poll gave.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_poll_result {
    /// sizeof(rkv_cache_poll_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Copies.
    pub job_count: u64,
    /// Fetches that have ended.
    pub end_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_poll_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 24;
}

fn job_of(job: &CopyJob) -> rkv_copy_job {
    rkv_copy_job {
        job: job.id,
        host: job.host.as_ptr().cast(),
        byte_count: job.bytes as u64,
        sequence: job.sequence.map_or(0, |id| id.0),
        page: job.page,
        direction: match job.direction {
            Direction::Load => RKV_COPY_LOAD,
            Direction::Store => RKV_COPY_STORE,
        },
    }
}

fn end_of(done: &Fetched) -> rkv_fetch_end {
    rkv_fetch_end {
        sequence: done.sequence.0,
        position_count: done.positions as u64,
        wanted_page_count: done.wanted as u64,
        brought_page_count: done.brought as u64,
        flags: if done.is_late { RKV_FETCH_END_LATE } else { 0 },
        reserved: 0,
    }
}

/// Gives copies to carry out, loads first, and the fetches that have ended: for once in each step
/// of an engine, or when its eventfd is readable. It never waits, and may be called when there is
/// nothing to do.
///
/// The page of a copy stays what it is until rkv_cache_complete(): an eviction or a release may
/// give it up meanwhile, but nobody gets it before. Loads write to pages that only their sequence
/// has. Stores read pages that are published: begin one after what computes its page.
///
/// @param cache the cache
/// @param jobs receives copies, and the engine has to complete each of them; may be NULL with
/// capacity 0
/// @param job_size sizeof(rkv_copy_job); not read with capacity 0
/// @param job_capacity room in copies; no more than 64 are given at once
/// @param ends receives fetches that have ended, each once; may be NULL with capacity 0
/// @param end_size sizeof(rkv_fetch_end); not read with capacity 0
/// @param end_capacity room in fetches
/// @param out_result receives how many of both; set its struct_size first
/// @return RKV_STATUS_OK, also when there is nothing; RKV_STATUS_INVALID_STATE when the cache has
/// no tiers; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(copies + open fetches * their pages), and what publishing costs for fetches that end; lock for
/// moments; never waits for the disk
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_poll(
    cache: *mut rkv_cache,
    jobs: *mut rkv_copy_job,
    job_size: usize,
    job_capacity: usize,
    ends: *mut rkv_fetch_end,
    end_size: usize,
    end_capacity: usize,
    out_result: *mut rkv_cache_poll_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            check_fit(out_result)?;
            let mut jobs = WantedElements::new(jobs, job_size, job_capacity, ["jobs", "job_size"])?;
            let mut ends = WantedElements::new(ends, end_size, end_capacity, ["ends", "end_size"])?;
            let (mut job_count, mut end_count) = (0, 0);
            let room = (jobs.capacity(), ends.capacity());
            tiers.poll(
                room,
                &mut |job| {
                    jobs.put(job_count, &job_of(&job));
                    job_count += 1;
                },
                &mut |done| {
                    ends.put(end_count, &end_of(&done));
                    end_count += 1;
                },
            )?;
            let (job_count, end_count) = (job_count as u64, end_count as u64);
            let made = rkv_cache_poll_result { struct_size: 0, reserved: 0, job_count, end_count };
            write_struct(out_result, &made)
        })
    }
}

/// Says that copies are done, all bytes of them, or that they failed: what a store would have kept
/// is not found then, and what a load would have brought is computed. All or none are taken.
///
/// @param cache the cache
/// @param jobs what rkv_copy_job names; each once
/// @param count how many
/// @param is_good false when they failed
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, also for what is no copy that goes on;
/// RKV_STATUS_INVALID_STATE when the cache has no tiers; RKV_STATUS_POISONED
/// @par Cost
/// O(count + open fetches * their pages), and what publishing costs for fetches that end; lock for
/// a moment; never waits for the disk
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_complete(
    cache: *mut rkv_cache,
    jobs: *const u64,
    count: usize,
    is_good: bool,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and jobs.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            Ok(tiers.complete(slice(jobs, count, "jobs")?, is_good)?)
        })
    }
}

/// Makes a sequence reuse no more than all ranks can: the least of what rkv_fetch_end or, where
/// nothing was fetched, rkv_sequence_info says on each. With RKV_TIERS_AGREE a fetch ends by this,
/// and nothing of it is used or found before. What the device has beyond is computed again.
///
/// A rank may end up with less, where its pages or an image don't end there: then all ranks agree
/// once more, on the least of what came out.
///
/// @param cache the cache
/// @param sequence a sequence that has computed nothing
/// @param position_count positions that it may reuse at most
/// @param out_position_count receives those that it reuses now
/// @return RKV_STATUS_OK; RKV_STATUS_PENDING while its fetch goes on; RKV_STATUS_OUT_OF_PAGES when
/// there are none for what is to be computed again, and nothing changed;
/// RKV_STATUS_INVALID_STATE when the cache has no tiers, or the sequence has computed;
/// RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// what publishing costs, and O(pages to be computed again + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_sequence_agree(
    cache: *mut rkv_cache,
    sequence: rkv_sequence_id,
    position_count: u64,
    out_position_count: *mut u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_position_count.
    unsafe {
        with(cache, |shared| {
            let tiers = tiers_of(shared)?;
            let into = out(out_position_count, "out_position_count")?;
            let positions = usize::try_from(position_count).unwrap_or(usize::MAX);
            into.write(tiers.agree(SequenceId(sequence), positions)?.positions as u64);
            Ok(())
        })
    }
}
