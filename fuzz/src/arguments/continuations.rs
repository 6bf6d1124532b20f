//! The functions of parents and children, which `functions` lists.
use super::Call;
use super::values::*;
use crate::abi::Sized32;
use radixkv::capi::*;
use std::ptr;

// SAFETY, in all of them: each pointer is NULL, misaligned, or leads to what is stated.
pub const CONTINUE: Call = |w, i, a| {
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
};

pub const FORK: Call = |w, i, a| {
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
};

pub const RETAIN: Call =
    |w, i, a| unsafe { rkv_sequence_retain(w.cache(i), w.sequence(i), a.out(i)) }.into();
