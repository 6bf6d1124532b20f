//! The functions for what is below the memory of a snapshot cache.
use super::Outcome;
use super::arena::Arena;
use super::shelf::Directory;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ffi::c_char;
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

impl World {
    /// A ticket: out, ended, or none.
    fn ticket(&self, input: &mut Input<'_>) -> rkv_ticket_id {
        given_out(input, &self.shelf.tickets)
    }
}

pub fn config_init(_: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (room, size) = init_room(i, size_of::<rkv_snapshot_tier_config>());
    let config = a.room_for::<u64>(i, room).cast();
    unsafe { rkv_snapshot_tier_config_init(config, size) }.into()
}

/// Most often something is wrong: a directory that is attached takes milliseconds.
pub fn attach(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let own = i.below(4) == 0;
    let made = (own && w.shelf.directory.is_none()).then(Directory::new);
    let directory = match (&made, i.below(8)) {
        (Some(directory), _) => directory.0.as_ptr(),
        (None, 0) => ptr::null::<c_char>(),
        (None, 1) => c"".as_ptr(),
        (None, 2) => c"/dev/null".as_ptr(),
        (None, _) => c"/dev/null/below".as_ptr(),
    };
    let config = rkv_snapshot_tier_config {
        flags: zero(i),
        directory,
        byte_limit: if own { 1 << 14 } else { size(i) as u64 },
        fingerprint: [i.byte() & 1; 32],
        write_after_matches: if i.flag() { 0 } else { number(i) },
        worker_count: if i.rarely(8) { number(i) } else { 1 },
        waiting_byte_limit: if i.rarely(8) { size(i) as u64 } else { 1 << 20 },
        commit_interval_ms: if i.rarely(8) { number(i) } else { 1 },
        event_fd: if i.rarely(8) { number(i) as i32 | 1 << 30 } else { -1 },
        ..Sized32::sized()
    };
    // With many threads a run would do nothing else.
    let config = rkv_snapshot_tier_config {
        worker_count: if config.worker_count < 65 { config.worker_count.min(2) } else { 65 },
        ..config
    };
    let config = if i.rarely(8) { ptr::null() } else { a.read(i, &config) };
    let status = unsafe { rkv_snapshot_cache_attach(w.snapshot_cache(i), config) };
    if status == rkv_status::Ok {
        w.shelf.directory = Some(made.expect("no other directory is one"));
    }
    status.into()
}

pub fn detach(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    let timeout = timeout(i);
    let status = unsafe { rkv_snapshot_cache_detach(w.snapshot_cache(i), timeout) };
    if matches!(status, rkv_status::Ok | rkv_status::Pending) {
        w.shelf.directory = None;
    }
    status.into()
}

pub fn flush(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    let timeout = timeout(i);
    unsafe { rkv_snapshot_cache_flush(w.snapshot_cache(i), timeout) }.into()
}

pub fn fetch(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (namespace, list, flags) =
        (namespace(i, a), tokens(i, a), flags(i, RKV_SNAPSHOT_MATCH_TRIMMABLE));
    let (cache, into) = (w.snapshot_cache(i), a.write::<rkv_snapshot_cache_fetch_result>(i));
    let status = unsafe { rkv_snapshot_cache_fetch(cache, namespace, list, flags, into) };
    if status == rkv_status::Ok {
        let ticket = unsafe { (*into).ticket };
        if ticket != 0 {
            assert!(!w.shelf.tickets.contains(&ticket), "a ticket means a second fetch");
            w.shelf.tickets.push(ticket);
        }
    }
    status.into()
}

pub fn take(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let ticket = w.ticket(i);
    let (cache, found) = (w.snapshot_cache(i), a.write::<rkv_snapshot_cache_match_result>(i));
    let status = unsafe { rkv_snapshot_cache_take(cache, ticket, found) };
    if status == rkv_status::Ok {
        let pin = unsafe { (*found).pin };
        if pin != 0 {
            w.shelf.pins.push(pin);
        }
    }
    status.into()
}

pub fn cancel(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    let ticket = w.ticket(i);
    unsafe { rkv_snapshot_cache_cancel(w.snapshot_cache(i), ticket) }.into()
}

pub fn read_parts(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let pin = w.pin(i);
    let (parts, capacity) = a.room::<rkv_snapshot_part>(i, 5);
    let size = element_size::<rkv_snapshot_part>(i);
    let (cache, count) = (w.snapshot_cache(i), a.count(i));
    unsafe { rkv_snapshot_cache_read_parts(cache, pin, parts, size, capacity, count) }.into()
}

pub fn stats(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    unsafe { rkv_snapshot_cache_read_tier_stats(w.snapshot_cache(i), a.write(i)) }.into()
}
