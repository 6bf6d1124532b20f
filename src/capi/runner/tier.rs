//! Pages of a runner's KV memory that tiers copy.
use crate::capi::ffi::{GivenElements, rkv_status, with};
use crate::capi::runner::rkv_runner;
use crate::capi::tier::{RKV_COPY_LOAD, RKV_COPY_STORE, rkv_copy_job};
use crate::error::{Error, text};
use crate::runner::TierCopy;

/// Carries out copies that rkv_cache_poll() gave, between the runner's KV memory and host memory,
/// now: it returns when they have arrived, and rkv_cache_complete() is for the caller to call.
///
/// In host memory a page is K and V of each layer in turn, rkv_runner_stats.page_bytes in all.
/// Dense memory is copied as it lies, so the fingerprint of the tiers has to say the layout, and
/// the number formats. On the processor and on a GPU the bytes are the same.
///
/// On a GPU they go on a stream of the runner's own, through 16 MiB of the device, or a page where
/// that is more, which the first copies take. They come after everything that calls of this runner
/// put on streams before, so a store has what the step before computed, and a load overwrites
/// nothing that a step reads. Graphs that were launched and kernels of the engine's the runner does
/// not see: where they use the pages, wait for them before the call. What is put on a stream after
/// it returned has the pages that were loaded. Pinned host memory (rkv_tier_config.host_memory) is
/// copied as fast as the bus goes, other memory by way of the driver's own, which is slower. Calls
/// of one runner take turns. Other streams may be captured meanwhile, by any thread.
///
/// A page that is loaded has to be private, or to have been when the copy was given out: what the
/// cache has is never written. That a copy goes on, and is this cache's, is not looked at.
///
/// @param runner the runner of all layers, or of those of a group
/// @param jobs copies of the cache over the runner's page table, of its group
/// @param count how many
/// @param element_size sizeof(rkv_copy_job)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the copy, and nothing was copied;
/// on a GPU RKV_STATUS_OUT_OF_MEMORY, RKV_STATUS_DEVICE: some were copied, and what the others
/// write to is undefined, so complete all as failed, but nothing uses host memory any more;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(bytes); shared lock while the copies are looked at, and on a GPU one of the runner's copies
/// @par Thread safety
/// any thread, while no step that begins meanwhile uses pages of loads or writes those of stores
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_copy_tier_pages(
    runner: *mut rkv_runner,
    jobs: *const rkv_copy_job,
    count: usize,
    element_size: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and jobs.
    unsafe {
        with(runner, |runner| {
            let size = (element_size, "element_size");
            let given = GivenElements::new(jobs, count, size, "jobs")?.iter();
            let is_known =
                |job: &rkv_copy_job| matches!(job.direction, RKV_COPY_LOAD | RKV_COPY_STORE);
            if let Some(at) = given.clone().position(|job| !is_known(&job)) {
                return Err(Error::argument(text!("jobs[{at}].direction is unknown")).into());
            }
            let copies = given.map(|job| TierCopy {
                group: job.group,
                page: job.page,
                host: job.host.cast(),
                bytes: usize::try_from(job.byte_count).unwrap_or(usize::MAX),
                is_load: job.direction == RKV_COPY_LOAD,
            });
            Ok(runner.copy_tier_pages(copies)?)
        })
    }
}
