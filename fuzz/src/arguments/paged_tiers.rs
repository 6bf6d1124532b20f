//! The functions for what is below the pages of a cache: host memory, whose copies the caller
//! carries out. Nothing goes on by itself, so a call that fails changes nothing here, too.
use super::Outcome;
use super::arena::Arena;
use super::compute::{HEAD_DIM, KV_HEADS, LAYERS};
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

/// Bytes of a page of the world's runner.
const PAGE_BYTES: usize = 2 * LAYERS * World::PAGE_SIZE as usize * KV_HEADS * HEAD_DIM * 4;

/// So many bytes that they are there, or more than any machine has.
fn bytes(i: &mut Input<'_>) -> u64 {
    if i.rarely(8) { u64::MAX - i.below(64) as u64 } else { (i.below(12) * PAGE_BYTES) as u64 }
}

pub(super) fn config_init(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (room, size) = init_room(i, size_of::<rkv_tier_config>());
    let config = a.room_for::<u64>(i, room).cast();
    unsafe { rkv_tier_config_init(config, size) }.into()
}

pub(super) fn attach(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let store = rkv_remote_store { reserved: zero(i), ..Sized32::sized() };
    // SAFETY: numbers and a pointer.
    let pool: rkv_tier_pool_config = unsafe { std::mem::zeroed() };
    let (pools, pool_count) = if i.rarely(24) { a.list(i, &[pool]) } else { (ptr::null(), 0) };
    let config = rkv_tier_config {
        flags: flags(i, RKV_TIERS_AGREE | RKV_TIERS_THREADS),
        page_bytes: if i.rarely(8) { size(i) as u64 } else { PAGE_BYTES as u64 },
        host_bytes: bytes(i),
        // None that can be a directory.
        directory: if i.rarely(8) { c"/dev/null/below".as_ptr() } else { ptr::null() },
        disk_bytes: if i.rarely(8) { size(i) as u64 } else { 0 },
        fingerprint: [i.byte() & 1; 32],
        store_after_uses: if i.rarely(8) { number(i) } else { i.below(3) as u32 },
        worker_count: if i.rarely(8) { number(i).min(65) } else { 1 },
        commit_interval_ms: if i.rarely(8) { number(i) } else { 1 },
        event_fd: if i.rarely(8) { number(i) as i32 | 1 << 30 } else { -1 },
        // One without functions.
        remote: if i.rarely(16) { a.read(i, &store) } else { ptr::null() },
        remote_timeout_ms: zero(i),
        reserved: zero(i),
        pools,
        pool_count,
        pool_size: if pool_count > 0 { element_size::<rkv_tier_pool_config>(i) } else { 0 },
        ..Sized32::sized()
    };
    unsafe { rkv_cache_attach_tiers(w.cache(i), a.read(i, &config)) }.into()
}

pub(super) fn detach(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    let status = unsafe { rkv_cache_detach_tiers(w.cache(i), timeout(i)) };
    if status == rkv_status::Ok {
        // The host memory that they name is gone.
        w.jobs.clear();
    }
    status.into()
}

pub(super) fn flush(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_cache_flush_tiers(w.cache(i), timeout(i)) }.into()
}

pub(super) fn shrink(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_cache_shrink_tiers(w.cache(i), bytes(i), bytes(i)) }.into()
}

pub(super) fn stats(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_cache_read_tier_stats(w.cache(i), a.write(i)) }.into()
}

pub(super) fn fetch(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, sequence, deadline) = (w.cache(i), w.sequence(i), size(i) as u64);
    let flags = flags(i, RKV_FETCH_LOOK_ONLY);
    unsafe { rkv_sequence_fetch(cache, sequence, deadline, flags, a.write(i)) }.into()
}

pub(super) fn agree(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_agree(w.cache(i), w.sequence(i), size(i) as u64, a.out(i)) }.into()
}

pub(super) fn poll(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (jobs, job_capacity) = a.room::<rkv_copy_job>(i, 6);
    let (ends, end_capacity) = a.room::<rkv_fetch_end>(i, 4);
    let sizes = [element_size::<rkv_copy_job>(i), element_size::<rkv_fetch_end>(i)];
    let result = a.write::<rkv_cache_poll_result>(i);
    let cache = w.cache(i);
    let status = unsafe {
        let (jobs, ends) = ((jobs, sizes[0], job_capacity), (ends, sizes[1], end_capacity));
        rkv_cache_poll(cache, jobs.0, jobs.1, jobs.2, ends.0, ends.1, ends.2, result)
    };
    // Whoever says another size may not know the fields.
    let whole = sizes[0] == size_of::<rkv_copy_job>();
    if status == rkv_status::Ok && whole && unsafe { (*result).struct_size } >= 24 {
        let count = unsafe { (*result).job_count } as usize;
        if count > 0 {
            w.jobs.extend_from_slice(unsafe { std::slice::from_raw_parts(jobs, count) });
        }
    }
    status.into()
}

pub(super) fn complete(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let known: Vec<_> = w.jobs.iter().map(|job| job.job).collect();
    let jobs: Vec<_> = (0..i.below(6)).map(|_| given_out(i, &known)).collect();
    let (numbers, count) = a.list(i, &jobs);
    let status = unsafe { rkv_cache_complete(w.cache(i), numbers, count, i.flag()) };
    if status == rkv_status::Ok {
        w.jobs.retain(|job| !jobs.contains(&job.job));
    }
    status.into()
}

pub(super) fn prefetch(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, space, list) = (w.cache(i), namespace(i, a), tokens(i, a));
    let (deadline, flags) = (size(i) as u64, flags(i, RKV_FETCH_LOOK_ONLY));
    let result = a.write::<rkv_cache_prefetch_result>(i);
    let status = unsafe { rkv_cache_prefetch(cache, space, list, deadline, flags, result) };
    if status == rkv_status::Ok && unsafe { (*result).struct_size } >= 16 {
        w.prefetches.push(unsafe { (*result).prefetch });
        w.prefetches.drain(..w.prefetches.len().saturating_sub(8));
    }
    status.into()
}

pub(super) fn cancel_prefetch(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_cache_cancel_prefetch(w.cache(i), given_out(i, &w.prefetches)) }.into()
}

/// Copies between the runner's memory and memory of a page, which a job may say wrongly.
pub(super) fn copy(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let jobs: Vec<_> = (0..i.below(4))
        .map(|_| {
            let host = a.room_bytes::<u8>(i, PAGE_BYTES).0.cast();
            let known = i.pick(&w.jobs).filter(|_| i.flag()).copied();
            known.unwrap_or(rkv_copy_job {
                job: size(i) as u64,
                host,
                byte_count: if i.rarely(8) { size(i) as u64 } else { PAGE_BYTES as u64 },
                sequence: w.sequence(i),
                page: w.page(i),
                direction: if i.rarely(8) { number(i) } else { i.below(3) as u32 },
                group: zero(i),
                reserved: zero(i),
            })
        })
        .collect();
    let (list, count) = a.list(i, &jobs);
    let (runner, size) = (w.runner(i), element_size::<rkv_copy_job>(i));
    let before = w.compute().held();
    let status = unsafe { rkv_runner_copy_tier_pages(runner, list, count, size) };
    assert!(status == rkv_status::Ok || before == w.compute().held(), "{status:?} copied");
    status.into()
}
