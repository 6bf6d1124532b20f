//! The functions of the snapshot cache.
use super::Outcome;
use super::arena::Arena;
use super::shelf::count_destroyed;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

impl World {
    /// The snapshot cache: ours, none, or a handle of the wrong kind.
    pub fn snapshot_cache(&self, input: &mut Input<'_>) -> *mut rkv_snapshot_cache {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.pairs[0].cache.cast(),
            _ => self.shelf.cache,
        }
    }

    /// A pin: out, released, or none.
    pub fn pin(&self, input: &mut Input<'_>) -> rkv_pin_id {
        let list = if input.flag() { &self.shelf.pins } else { &self.shelf.stale };
        given_out(input, list)
    }
}

pub fn config_init(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (room, size) = init_room(i, size_of::<rkv_snapshot_cache_config>());
    let config = a.room_for::<u64>(i, room).cast();
    unsafe { rkv_snapshot_cache_config_init(config, size) }.into()
}

pub fn create(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let config = rkv_snapshot_cache_config {
        flags: zero(i),
        entry_limit: size(i) as u64,
        byte_limit: size(i) as u64,
        ..Sized32::sized()
    };
    let config = if i.rarely(8) { ptr::null() } else { a.read(i, &config) };
    let into = a.out::<*mut rkv_snapshot_cache>(i);
    unsafe {
        let status = rkv_snapshot_cache_create(config, into);
        if status == rkv_status::Ok {
            rkv_snapshot_cache_destroy(into.read());
        }
        status.into()
    }
}

pub fn destroy(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    if i.rarely(4) {
        unsafe { rkv_snapshot_cache_destroy(ptr::null_mut()) };
        return Outcome::Done;
    }
    w.shelf.end();
    Outcome::Last(rkv_status::Ok)
}

pub fn clear(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_snapshot_cache_clear(w.snapshot_cache(i)) }.into()
}

pub fn stats(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_snapshot_cache_read_stats(w.snapshot_cache(i), a.write(i)) }.into()
}

pub fn check(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_snapshot_cache_check(w.snapshot_cache(i)) }.into()
}

/// What snapshots that may be written are made of: it stays as it is.
static BYTES: [u8; 64] = [0x5A; 64];

/// A piece of it; now and then none, of any size.
fn part(i: &mut Input<'_>) -> rkv_snapshot_part {
    if i.rarely(16) {
        return rkv_snapshot_part { data: ptr::null(), size_bytes: size(i) as u64 };
    }
    let from = i.below(BYTES.len());
    let size_bytes = i.below(BYTES.len() - from + 1) as u64;
    rkv_snapshot_part { data: BYTES[from..].as_ptr().cast(), size_bytes }
}

/// The snapshot: any pointer if nobody follows it, else bytes, or parts.
fn given(i: &mut Input<'_>, a: &mut Arena, storable: bool) -> rkv_snapshot_cache_insert_args {
    let mut args = rkv_snapshot_cache_insert_args::sized();
    let has_parts = if storable { i.flag() } else { i.rarely(24) };
    if has_parts {
        let parts: Vec<_> = (0..i.below(4)).map(|_| part(i)).collect();
        let (parts, count) = a.list(i, &parts);
        (args.parts, args.part_count) = (parts, count as u64);
        args.part_size = element_size::<rkv_snapshot_part>(i) as u64;
    }
    if storable && (args.part_count == 0 || i.flag()) {
        let part = part(i);
        (args.data, args.size_bytes) = (part.data.cast_mut(), part.size_bytes);
    } else {
        args.data = ptr::without_provenance_mut(size(i));
        args.size_bytes = size(i) as u64;
    }
    args
}

pub fn insert(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let counted = !i.rarely(8);
    let flags = flags(i, RKV_SNAPSHOT_INSERT_STORABLE | RKV_SNAPSHOT_INSERT_TRIMMABLE);
    let given = given(i, a, flags & RKV_SNAPSHOT_INSERT_STORABLE != 0);
    let has_next_token = if i.rarely(16) { number(i) } else { i.byte() as u32 & 1 };
    let args = rkv_snapshot_cache_insert_args {
        flags,
        space: namespace(i, a),
        tokens: tokens(i, a),
        destructor: counted.then_some(count_destroyed),
        user_data: w.shelf.user_data(),
        has_next_token,
        next_token: if has_next_token == 1 { number(i) } else { zero(i) },
        ..given
    };
    let args = a.read(i, &args);
    let result = if i.flag() { ptr::null_mut() } else { a.write(i) };
    let status = unsafe { rkv_snapshot_cache_insert(w.snapshot_cache(i), args, result) };
    if status == rkv_status::Ok && counted {
        w.shelf.taken += 1;
    }
    status.into()
}

pub fn find(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (namespace, list, flags) =
        (namespace(i, a), tokens(i, a), flags(i, RKV_SNAPSHOT_MATCH_TRIMMABLE));
    let (cache, found) = (w.snapshot_cache(i), a.write::<rkv_snapshot_cache_match_result>(i));
    let status = unsafe { rkv_snapshot_cache_match(cache, namespace, list, flags, found) };
    if status == rkv_status::Ok {
        let pin = unsafe { (*found).pin };
        if pin != 0 {
            w.shelf.pins.push(pin);
        }
    }
    status.into()
}

pub fn probe(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (namespace, list) = (namespace(i, a), tokens(i, a));
    unsafe { rkv_snapshot_cache_probe(w.snapshot_cache(i), namespace, list, a.out(i)) }.into()
}

pub fn release(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    let pin = w.pin(i);
    let status = unsafe { rkv_snapshot_cache_release(w.snapshot_cache(i), pin) };
    if status == rkv_status::Ok {
        let out = w.shelf.pins.iter().position(|&out| out == pin);
        w.shelf.pins.swap_remove(out.expect("a pin that is not out was released"));
        w.shelf.stale.push(pin);
    }
    status.into()
}

pub fn remove(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (namespace, list) = (namespace(i, a), tokens(i, a));
    let removed = if i.flag() { ptr::null_mut() } else { a.out(i) };
    unsafe { rkv_snapshot_cache_remove(w.snapshot_cache(i), namespace, list, removed) }.into()
}
