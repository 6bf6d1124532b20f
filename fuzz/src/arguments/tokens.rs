//! The functions of tokens, bins and digests.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

pub(super) fn coord_bin(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_coord_bin(float(i), a.out(i)) }.into()
}

pub(super) fn coord_value(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_coord_value(number(i), a.out(i)) }.into()
}

pub(super) fn size_bin(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_size_bin(float(i), a.out(i)) }.into()
}

pub(super) fn size_value(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_size_value(number(i), a.out(i)) }.into()
}

pub(super) fn image_digest(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let bytes: Vec<_> = (0..i.below(70)).map(|_| i.byte()).collect();
    let (bytes, count) = a.list(i, &bytes);
    unsafe { rkv_image_digest(bytes.cast(), count, a.room_for(i, 16)) }.into()
}

pub(super) fn build(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let prompt = tokens(i, a);
    let (ids, capacity) = a.room(i, 32);
    // As many as there can be.
    let items = a.room_for(i, 5);
    unsafe { rkv_tokens_build(prompt, ids, capacity, items, a.count(i)) }.into()
}

pub(super) fn regions(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let list = tokens(i, a);
    let (regions, capacity) = a.room(i, 4);
    unsafe { rkv_tokens_regions(list, regions, capacity, a.count(i)) }.into()
}

pub(super) fn position_count(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_tokens_position_count(tokens(i, a), a.out(i)) }.into()
}

pub(super) fn page_digests(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let parent = rkv_page_digest { bytes: [i.byte(); 32] };
    let args = rkv_tokens_page_digests_args {
        page_size: number(i).wrapping_add(1),
        space: namespace(i, a),
        tokens: tokens(i, a),
        parent: if i.flag() { a.list(i, &[parent]).0 } else { ptr::null() },
        first_page: if i.flag() { size(i) as u64 } else { 0 },
        ..Sized32::sized()
    };
    let args = a.read(i, &args);
    let (digests, capacity) = a.room(i, 8);
    unsafe { rkv_tokens_page_digests(args, digests, capacity, a.count(i)) }.into()
}
