//! What radixkv.h calls: its structs, as they are there, and the functions behind them.
#![allow(non_camel_case_types)]
use super::{Answer, Store};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const DONE: u32 = 1;
const MISSING: u32 = 2;

/// `rkv_remote_item`, as far as it is known here.
#[repr(C)]
pub struct rkv_remote_item {
    key: [u8; 32],
    bytes: *mut c_void,
    byte_count: u64,
    answer: u32,
    reserved: u32,
}

pub type Call = unsafe extern "C" fn(*mut c_void, *mut rkv_remote_item, usize, usize, u64);

/// `rkv_remote_store`, as far as it is known here.
#[repr(C)]
pub struct rkv_remote_store {
    pub struct_size: u32,
    pub reserved: u32,
    pub user_data: *mut c_void,
    pub has: Option<Call>,
    pub get: Option<Call>,
    pub put: Option<Call>,
    pub remove: Option<Call>,
}

/// The items of a call.
///
/// # Safety
/// So many lie there, so far apart, and nobody else uses them for as long as they are used.
unsafe fn items<'a>(
    first: *mut rkv_remote_item,
    size: usize,
    count: usize,
) -> impl Iterator<Item = &'a mut rkv_remote_item> {
    // SAFETY: the caller's contract; items may be larger than they are known here.
    (0..count).map(move |at| unsafe { &mut *first.byte_add(at * size) })
}

/// Makes a call, and writes its answers into its items.
///
/// # Safety
/// As rkv_remote_call of radixkv.h says; `data` is a store.
unsafe fn answer(
    data: *mut c_void,
    (first, size, count): (*mut rkv_remote_item, usize, usize),
    timeout_ms: u64,
    call: impl FnOnce(&Store, Duration) -> Vec<Answer>,
) {
    if data.is_null() || first.is_null() || size < size_of::<rkv_remote_item>() {
        return;
    }
    let run = || {
        // SAFETY: the caller's contract.
        let store = unsafe { &*data.cast::<Store>() };
        call(store, Duration::from_millis(timeout_ms))
    };
    // Without an answer an item stays as it was given: failed.
    let answers = catch_unwind(AssertUnwindSafe(run)).unwrap_or_default();
    // SAFETY: the caller's contract.
    for (item, answer) in unsafe { items(first, size, count) }.zip(answers) {
        item.answer = match answer {
            Answer::Done => DONE,
            Answer::Missing => MISSING,
            Answer::Failed => continue,
            Answer::Value(value) => {
                let fits = value.len().min(item.byte_count as usize);
                if fits > 0 {
                    // SAFETY: there is room for byte_count bytes.
                    unsafe { item.bytes.cast::<u8>().copy_from(value.as_ptr(), fits) };
                }
                item.byte_count = value.len() as u64;
                DONE
            }
            Answer::Long(length) => {
                item.byte_count = length;
                DONE
            }
        };
    }
}

/// # Safety
/// As for `items`.
unsafe fn keys(first: *mut rkv_remote_item, size: usize, count: usize) -> Vec<[u8; 32]> {
    if first.is_null() || size < size_of::<rkv_remote_item>() {
        return Vec::new();
    }
    // SAFETY: the caller's contract.
    unsafe { items(first, size, count) }.map(|item| item.key).collect()
}

/// # Safety
/// As for `items`.
unsafe fn rooms(first: *mut rkv_remote_item, size: usize, count: usize) -> Vec<u64> {
    if first.is_null() || size < size_of::<rkv_remote_item>() {
        return Vec::new();
    }
    // SAFETY: the caller's contract.
    unsafe { items(first, size, count) }.map(|item| item.byte_count).collect()
}

/// # Safety
/// As rkv_remote_call of radixkv.h says.
pub unsafe extern "C" fn has(
    data: *mut c_void,
    first: *mut rkv_remote_item,
    size: usize,
    count: usize,
    timeout_ms: u64,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let keys = keys(first, size, count);
        answer(data, (first, size, count), timeout_ms, |store, time| store.has(&keys, time));
    }
}

/// # Safety
/// As rkv_remote_call of radixkv.h says.
pub unsafe extern "C" fn get(
    data: *mut c_void,
    first: *mut rkv_remote_item,
    size: usize,
    count: usize,
    timeout_ms: u64,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let (keys, rooms) = (keys(first, size, count), rooms(first, size, count));
        let get = |store: &Store, time| store.get(&keys, &rooms, time);
        answer(data, (first, size, count), timeout_ms, get);
    }
}

/// # Safety
/// As rkv_remote_call of radixkv.h says.
pub unsafe extern "C" fn remove(
    data: *mut c_void,
    first: *mut rkv_remote_item,
    size: usize,
    count: usize,
    timeout_ms: u64,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let keys = keys(first, size, count);
        answer(data, (first, size, count), timeout_ms, |store, time| store.remove(&keys, time));
    }
}

/// # Safety
/// As rkv_remote_call of radixkv.h says.
pub unsafe extern "C" fn put(
    data: *mut c_void,
    first: *mut rkv_remote_item,
    size: usize,
    count: usize,
    timeout_ms: u64,
) {
    let mut values = Vec::new();
    if !first.is_null() && size >= size_of::<rkv_remote_item>() {
        // SAFETY: the caller's contract.
        for item in unsafe { items(first, size, count) } {
            let value = match item.byte_count {
                0 => &[],
                // SAFETY: as many bytes are there.
                length => unsafe {
                    std::slice::from_raw_parts(item.bytes.cast::<u8>(), length as usize)
                },
            };
            // A copy: what is sent may outlive a call whose time is over.
            values.push((item.key, bytes::Bytes::copy_from_slice(value)));
        }
    }
    // SAFETY: the caller's contract.
    unsafe {
        answer(data, (first, size, count), timeout_ms, |store, time| store.put(values, time))
    };
}
