//! The functions of the event encoder.
use super::Outcome;
use super::arena::Arena;
use super::values::*;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ffi::{CStr, c_char};
use std::ptr;

// SAFETY, below: each pointer is NULL, misaligned, or leads to what is stated.

/// An encoder that ends with its world.
pub struct Encoder(pub *mut rkv_event_encoder);

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handle; NULL is allowed.
        unsafe { rkv_event_encoder_destroy(self.0) };
    }
}

impl World {
    /// An encoder: ours if there is one, none, or a handle of the wrong kind.
    fn encoder(&self, input: &mut Input<'_>) -> *mut rkv_event_encoder {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.pairs[0].cache.cast(),
            _ => self.encoder.0,
        }
    }
}

/// A name: none, none to be seen, or one that is no UTF-8.
fn name(i: &mut Input<'_>) -> *const c_char {
    const NAMES: [&CStr; 4] = [c"", c"a", c"an adapter's name", c"\xff\xfe"];
    if i.flag() { ptr::null() } else { NAMES[i.below(NAMES.len())].as_ptr() }
}

pub(super) fn create(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let config = rkv_event_encoder_config {
        flags: flags(i, RKV_EVENTS_WIDE_HASHES | RKV_EVENTS_DATA_PARALLEL),
        data_parallel_rank: if i.flag() { 0 } else { number(i) },
        placeholder_token_id: number(i),
        medium: name(i),
        ..Sized32::sized()
    };
    let config = if i.flag() { ptr::null() } else { a.read(i, &config) };
    let into = a.out::<*mut rkv_event_encoder>(i);
    let status = unsafe { rkv_event_encoder_create(w.cache(i), config, into) };
    if status == rkv_status::Ok {
        w.encoder = Encoder(unsafe { into.read() });
    }
    status.into()
}

pub(super) fn destroy(w: &mut World, _: &mut Input<'_>, _: &mut Arena) -> Outcome {
    w.encoder = Encoder(ptr::null_mut());
    Outcome::Done
}

pub(super) fn encode(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let encoder = w.encoder(i);
    let capacity = if i.flag() { 4096 } else { i.below(256) };
    let (buffer, capacity) = a.room_bytes::<u8>(i, capacity);
    unsafe { rkv_event_encoder_encode(encoder, float(i), buffer, capacity, a.write_partly(i)) }
        .into()
}

pub(super) fn name_namespace(w: &mut World, i: &mut Input<'_>, a: &mut Arena) -> Outcome {
    let (encoder, space) = (w.encoder(i), namespace(i, a));
    unsafe { rkv_event_encoder_name_namespace(encoder, space, name(i), name(i)) }.into()
}

pub(super) fn repeat(w: &mut World, i: &mut Input<'_>, _: &mut Arena) -> Outcome {
    unsafe { rkv_event_encoder_repeat(w.encoder(i)) }.into()
}
