//! The functions of groups and pools. The worlds have one of each: here is who asks for others, and
//! what of the rest has a form for one group. The target `groups` has page tables with several.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

/// A group or a pool: most often the one that there is.
fn which(i: &mut Input<'_>) -> u32 {
    if i.rarely(6) { number(i) } else { 0 }
}

pub(super) fn allocate(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (mut count, table, pool) = (i.below(24), w.table(i), which(i));
    let mut pages = a.room_for::<u32>(i, count);
    if i.rarely(16) {
        (count, pages) = (size(i), ptr::null_mut());
    }
    let status = unsafe { rkv_page_table_allocate_pool_pages(table, pool, count, pages) };
    if status == rkv_status::Ok && count > 0 {
        w.note_pages(unsafe { std::slice::from_raw_parts(pages, count) });
    }
    status.into()
}

pub(super) fn free(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let list = w.pages(i);
    let (pages, count) = a.list(i, &list);
    unsafe { rkv_page_table_free_pool_pages(w.table(i), which(i), pages, count) }.into()
}

pub(super) fn stats(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_page_table_read_pool_stats(w.table(i), which(i), a.write(i)) }.into()
}

pub(super) fn evict(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, pool, count) = (w.cache(i), which(i), size(i));
    let (evicted, capacity) = a.room::<rkv_evicted_page>(i, 12);
    let element = element_size::<rkv_evicted_page>(i);
    let freed = if i.flag() { ptr::null_mut() } else { a.out(i) };
    unsafe { rkv_cache_evict_pool(cache, pool, count, evicted, element, capacity, a.out(i), freed) }
        .into()
}

pub(super) fn drop_retained(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, pool, count) = (w.cache(i), which(i), size(i));
    unsafe { rkv_cache_drop_retained_pool(cache, pool, count, a.out(i)) }.into()
}

pub(super) fn probe(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (namespace, list) = (namespace(i, a), tokens(i, a));
    let (costs, capacity) = a.room::<rkv_group_cost>(i, 3);
    let element = element_size::<rkv_group_cost>(i);
    let (cache, count, depths) = (w.cache(i), a.count(i), a.write_partly(i));
    unsafe {
        rkv_cache_probe_groups(cache, namespace, list, costs, element, capacity, count, depths)
    }
    .into()
}

pub(super) fn group_stats(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (groups, capacity) = a.room::<rkv_group_stats>(i, 3);
    let element = element_size::<rkv_group_stats>(i);
    unsafe { rkv_cache_read_group_stats(w.cache(i), groups, element, capacity, a.count(i)) }.into()
}

pub(super) fn locked_pages(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, lock, group) = (w.cache(i), w.lock(i), which(i));
    let (pages, capacity) = a.room::<rkv_locked_page>(i, 6);
    let (element, count) = (element_size::<rkv_locked_page>(i), a.count(i));
    unsafe { rkv_cache_read_locked_pages(cache, lock, group, pages, element, capacity, count) }
        .into()
}

pub(super) fn row(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (cache, sequence, group) = (w.cache(i), w.sequence(i), which(i));
    let ((pages, capacity), first) = (a.room(i, 12), size(i));
    let count = a.count(i);
    unsafe { rkv_sequence_read_group_row(cache, sequence, group, first, pages, capacity, count) }
        .into()
}

pub(super) fn published(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (groups, capacity) = a.room::<rkv_published_group>(i, 3);
    let (element, cache) = (element_size::<rkv_published_group>(i), w.cache(i));
    let (sequence, count) = (w.sequence(i), a.count(i));
    unsafe { rkv_sequence_read_published(cache, sequence, groups, element, capacity, count) }.into()
}

pub(super) fn slide(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_slide(w.cache(i), w.sequence(i), size(i) as u64) }.into()
}

pub(super) fn checkpoint(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_checkpoint(w.cache(i), w.sequence(i), a.out(i)) }.into()
}

pub(super) fn donate(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_donate(w.cache(i), w.sequence(i), a.out(i)) }.into()
}
