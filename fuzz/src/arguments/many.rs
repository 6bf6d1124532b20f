//! Calls over many items.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated. An array of results
// has as many elements as that of the items, unless the count is absurd, which is refused.

pub(super) fn begin(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let args: Vec<_> = (0..i.below(4))
        .map(|_| rkv_sequence_begin_args {
            flags: zero(i),
            space: namespace(i, a),
            tokens: tokens(i, a),
            reserve_position_count: size(i) as u64,
            allocate_position_count: number(i) as u64,
            ..Sized32::sized()
        })
        .collect();
    let states = a.room_for::<rkv_sequence_info>(i, args.len());
    let statuses = a.room_for::<rkv_status>(i, args.len());
    let sizes = [element_size::<rkv_sequence_begin_args>(i), element_size::<rkv_sequence_info>(i)];
    let (items, count) = a.list(i, &args);
    let cache = w.cache(i);
    let done = unsafe {
        rkv_sequence_begin_many(cache, items, count, sizes[0], states, sizes[1], statuses)
    };
    if done == rkv_status::Ok {
        for at in 0..count {
            let (state, status) = unsafe { (*states.add(at), *statuses.add(at)) };
            if status == rkv_status::Ok && w.sequences.len() < 16 {
                w.sequences.push(state.sequence);
            }
        }
    }
    done.into()
}

pub(super) fn append(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let given: Vec<_> = (0..i.below(6))
        .map(|_| {
            let ids = vec![number(i); i.below(4)];
            let (ids, id_count) = if i.flag() { a.list(i, &ids) } else { (ptr::null(), 0) };
            let tokens = if i.flag() { ptr::null() } else { tokens(i, a) };
            rkv_sequence_append_item { sequence: w.sequence(i), ids, id_count, tokens }
        })
        .collect();
    let statuses = a.room_for::<rkv_status>(i, given.len());
    let size = element_size::<rkv_sequence_append_item>(i);
    let (items, count) = a.list(i, &given);
    unsafe { rkv_sequence_append_many(w.cache(i), items, count, size, statuses) }.into()
}

pub(super) fn publish(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let given: Vec<_> = (0..i.below(6))
        .map(|_| rkv_sequence_publish_item {
            sequence: w.sequence(i),
            computed_position_count: size(i) as u64,
        })
        .collect();
    let results = if i.flag() { ptr::null_mut() } else { a.room_for(i, given.len()) };
    let statuses = a.room_for::<rkv_status>(i, given.len());
    let sizes = [
        element_size::<rkv_sequence_publish_item>(i),
        element_size::<rkv_sequence_publish_result>(i),
    ];
    let (items, count) = a.list(i, &given);
    let cache = w.cache(i);
    unsafe { rkv_sequence_publish_many(cache, items, count, sizes[0], results, sizes[1], statuses) }
        .into()
}

pub(super) fn release(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let given: Vec<_> = (0..i.below(4)).map(|_| w.sequence(i)).collect();
    let statuses = a.room_for::<rkv_status>(i, given.len());
    let (sequences, count) = a.list(i, &given);
    unsafe { rkv_sequence_release_many(w.cache(i), sequences, count, statuses) }.into()
}

pub(super) fn find(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let given: Vec<_> = (0..i.below(5))
        .map(|_| {
            let (pages, page_capacity) = a.room(i, 8);
            rkv_cache_match_item {
                space: namespace(i, a),
                tokens: tokens(i, a),
                pages,
                page_capacity,
                flags: flags(i, RKV_MATCH_LOCK),
                reserved: zero(i),
            }
        })
        .collect();
    let matches = a.room_for::<rkv_cache_match_result>(i, given.len());
    let statuses = a.room_for::<rkv_status>(i, given.len());
    let sizes =
        [element_size::<rkv_cache_match_item>(i), element_size::<rkv_cache_match_result>(i)];
    let (items, count) = a.list(i, &given);
    let cache = w.cache(i);
    let done =
        unsafe { rkv_cache_match_many(cache, items, count, sizes[0], matches, sizes[1], statuses) };
    if done == rkv_status::Ok {
        for at in 0..count {
            let (found, status) = unsafe { (*matches.add(at), *statuses.add(at)) };
            if status == rkv_status::Ok {
                w.note_node(found.node);
                if found.lock != 0 {
                    w.locks.push(found.lock);
                }
            }
        }
    }
    done.into()
}

pub(super) fn probe(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let given: Vec<_> = (0..i.below(5))
        .map(|_| rkv_cache_probe_item { space: namespace(i, a), tokens: tokens(i, a) })
        .collect();
    let results = a.room_for::<rkv_cache_probe_result>(i, given.len());
    let statuses = a.room_for::<rkv_status>(i, given.len());
    let sizes =
        [element_size::<rkv_cache_probe_item>(i), element_size::<rkv_cache_probe_result>(i)];
    let (items, count) = a.list(i, &given);
    let cache = w.cache(i);
    unsafe { rkv_cache_probe_many(cache, items, count, sizes[0], results, sizes[1], statuses) }
        .into()
}
