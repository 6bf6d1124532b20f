//! Pages of a runner's KV memory that tiers copy.
use crate::capi::ffi::{GivenElements, rkv_status, with};
use crate::capi::runner::rkv_runner;
use crate::capi::tier::{RKV_COPY_LOAD, RKV_COPY_STORE, rkv_copy_job};
use crate::error::{Error, text};
use crate::runner::TierCopy;

/// Carries out copies that rkv_cache_poll() gave, between the runner's KV memory and host memory,
/// now: rkv_cache_complete() is for the caller to call. For runners on the processor; with a GPU
/// the engine copies on a stream of its own.
///
/// In host memory a page is K and V of each layer in turn, rkv_runner_stats.page_bytes in all.
/// Dense memory is copied as it lies, so the fingerprint of the tiers has to say the layout, and
/// the number formats.
///
/// @param runner the runner of all layers, or of those of a group
/// @param jobs copies of the cache over the runner's page table, of its group
/// @param count how many
/// @param element_size sizeof(rkv_copy_job)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the copy, and nothing was copied;
/// RKV_STATUS_UNSUPPORTED on a GPU; RKV_STATUS_POISONED
/// @par Cost
/// O(bytes); no lock
/// @par Thread safety
/// any thread, while no step writes the pages of stores
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
