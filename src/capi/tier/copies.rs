//! Copies between the device and host memory, which an engine carries out for the tiers.
use super::attach::tiers_of;
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, AbiStruct, WantedElements, check_fit, rkv_status, slice, with, write_struct,
};
use crate::capi::sequence::rkv_sequence_id;
use crate::tier::paged::{CopyJob, Direction, Fetched};
use std::ffi::c_void;

/// Flag of rkv_fetch_end: the deadline, or remote_timeout_ms, came before all that was wanted.
pub const RKV_FETCH_END_LATE: u32 = 1;
/// Direction of rkv_copy_job: from host memory to a page of the device.
pub const RKV_COPY_LOAD: u32 = 0;
/// Direction of rkv_copy_job: from a page of the device to host memory.
pub const RKV_COPY_STORE: u32 = 1;

/// A copy of one page that the engine carries out, in all layers of its group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_copy_job {
    /// Names the copy for rkv_cache_complete().
    pub job: u64,
    /// Its place in host memory.
    pub host: *mut c_void,
    /// Bytes of it: page_bytes of the config, or of the group's pool.
    pub byte_count: u64,
    /// Of a load, the sequence whose page it is; else 0.
    pub sequence: rkv_sequence_id,
    /// The page of the device, in the group's pool.
    pub page: u32,
    /// RKV_COPY_LOAD or RKV_COPY_STORE.
    pub direction: u32,
    /// The group of layers whose page it is; 0 with one group.
    pub group: u32,
    /// Zero.
    pub reserved: u32,
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
        group: job.group as u32,
        reserved: 0,
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
/// @param ends receives fetches that have ended, each once; may be NULL with capacity 0: then those
/// that are there wait, without making the eventfd readable again, until they are taken or their
/// sequences have ended. The sequence of one may have been released since
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
/// O(count^2 + open fetches * their pages), and what publishing costs for fetches that end: so a
/// few hundred jobs a call at most; lock for a moment; never waits for the disk
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
