//! How sequences begin, alone or from others, and get their pages.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

pub(super) fn begin(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let mut args = rkv_sequence_begin_args {
        flags: zero(i),
        space: namespace(i, a),
        tokens: tokens(i, a),
        reserve_position_count: size(i) as u64,
        ..Sized32::sized()
    };
    // Both from one number, so that saved inputs go on reading what they read.
    args.allocate_position_count = args.reserve_position_count / 3;
    let (args, state) = (a.read(i, &args), a.write::<rkv_sequence_info>(i));
    let status = unsafe { rkv_sequence_begin(w.cache(i), args, state) };
    if status == rkv_status::Ok && w.sequences.len() < 16 {
        w.sequences.push(unsafe { (*state).sequence });
    }
    status.into()
}

pub(super) fn allocate(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_allocate(w.cache(i), w.sequence(i), size(i) as u64) }.into()
}

pub(super) fn go_on(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let args = rkv_sequence_continue_args {
        flags: flags(i, RKV_CONTINUE_RUNNING),
        parent: w.sequence(i),
        space: namespace(i, a),
        tokens: if i.flag() { ptr::null() } else { tokens(i, a) },
        all_tokens: if i.flag() { ptr::null() } else { tokens(i, a) },
        reserve_position_count: size(i) as u64,
        ..Sized32::sized()
    };
    let (args, state) = (a.read(i, &args), a.write::<rkv_sequence_info>(i));
    let status = unsafe { rkv_sequence_continue(w.cache(i), args, state) };
    if status == rkv_status::Ok && w.sequences.len() < 16 {
        w.sequences.push(unsafe { (*state).sequence });
    }
    status.into()
}

pub(super) fn fork(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    // More children than there are slots, and absurdly many.
    let count = i.below(12);
    let args = rkv_sequence_fork_args {
        flags: zero(i),
        parent: w.sequence(i),
        child_count: if i.rarely(8) { usize::MAX - count } else { count },
        reserve_position_count: size(i) as u64,
        ..Sized32::sized()
    };
    let children = a.room_for::<rkv_sequence_fork_child>(i, count);
    let size = element_size::<rkv_sequence_fork_child>(i);
    unsafe { rkv_sequence_fork(w.cache(i), a.read(i, &args), children, size) }.into()
}

pub(super) fn retain(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_sequence_retain(w.cache(i), w.sequence(i), a.out(i)) }.into()
}
