//! The functions of the journal.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

/// The size of an element: right, or any other.
fn element(input: &mut Input<'_>, size: usize) -> usize {
    if input.rarely(16) { super::values::size(input) } else { size }
}

/// Room for elements of a size, if that is one.
fn elements<T>(i: &mut Input<'_>, a: &mut Arena, size: usize) -> (*mut T, usize) {
    let count = i.below(6);
    let fits = size.is_multiple_of(align_of::<T>()) && size <= 4096;
    let (room, _) = a.room_bytes::<T>(i, if fits { count * size } else { 0 });
    (room, if room.is_null() && i.flag() { 0 } else { count })
}

fn buffers(i: &mut Input<'_>, a: &mut Arena) -> *const rkv_journal_buffers {
    let record_size = element(i, size_of::<rkv_journal_record>());
    let item_size = element(i, size_of::<rkv_journal_item>());
    let (records, record_capacity) = elements(i, a, record_size);
    let (items, item_capacity) = elements(i, a, item_size);
    let (pages, page_capacity) = a.room(i, 40);
    let (tokens, token_capacity) = a.room(i, 160);
    let room = rkv_journal_buffers {
        flags: zero(i),
        records,
        record_size,
        record_capacity,
        pages,
        page_capacity,
        tokens,
        token_capacity,
        items,
        item_size,
        item_capacity,
        ..Sized32::sized()
    };
    a.read(i, &room)
}

fn after(i: &mut Input<'_>) -> u64 {
    if i.flag() { 0 } else { size(i) as u64 }
}

pub fn read_journal(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (after, room, result) = (after(i), buffers(i, a), a.write_partly(i));
    unsafe { rkv_cache_read_journal(w.cache(i), after, room, result) }.into()
}

pub fn read_journal_of_table(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (after, room, result) = (after(i), buffers(i, a), a.write_partly(i));
    unsafe { rkv_page_table_read_journal(w.table(i), after, room, result) }.into()
}

pub fn read_contents(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let first = if i.flag() { 0 } else { number(i) };
    let (room, result) = (buffers(i, a), a.write_partly(i));
    unsafe { rkv_cache_read_contents(w.cache(i), first, room, result) }.into()
}
