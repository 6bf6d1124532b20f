//! Buckets that don't keep what they say.
use super::*;

/// A server that says a length and sends more, without end: it is damaged as soon as there is no
/// room, and not read on.
#[test]
fn t13_what_is_longer_than_was_said_is_not_read() {
    use radixkv::capi::{RKV_REMOTE_DONE, rkv_remote_item};
    let endpoint = answers(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\netag: \"x\"\r\n")?;
        write!(stream, "last-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n")?;
        write!(stream, "transfer-encoding: chunked\r\nconnection: close\r\n\r\n")?;
        loop {
            std::thread::sleep(Duration::from_millis(5));
            write!(stream, "1000\r\n{}\r\n", "x".repeat(0x1000))?;
        }
    });
    let store = Store::new("s3://bucket", Some(&endpoint), "kv:", None);
    let (remote, mut bytes) = (store.remote(), [0u8; 164]);
    let (start, byte_count) = (bytes.as_mut_ptr().cast(), bytes.len() as u64);
    let mut item =
        rkv_remote_item { key: [7; 32], bytes: start, byte_count, answer: 0, reserved: 0 };
    // SAFETY: the item and its bytes are there during the call, and nobody else's.
    unsafe {
        (remote.get.unwrap())(remote.user_data, &mut item, size_of::<rkv_remote_item>(), 1, 5000)
    };
    assert_eq!(item.answer, RKV_REMOTE_DONE, "{}", store.last_failure());
    assert!(item.byte_count > byte_count && item.byte_count < 1 << 20, "{}", item.byte_count);
}

/// Of some values that a bucket refuses the store says why, also when it takes others.
#[test]
fn t13_some_that_a_bucket_refuses_are_told_of() {
    use radixkv::capi::{RKV_REMOTE_DONE, RKV_REMOTE_FAILED, rkv_remote_item};
    use std::sync::atomic::{AtomicUsize, Ordering};
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let endpoint = answers(|_, stream| {
        let is_refused = ASKED.fetch_add(1, Ordering::Relaxed) == 0;
        let status = if is_refused { "503 Slow Down" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\netag: \"x\"\r\n")?;
        write!(stream, "connection: close\r\n\r\n")
    });
    let store = Store::new("s3://bucket", Some(&endpoint), "kv:", None);
    let (remote, mut bytes) = (store.remote(), [7u8; 100]);
    let start: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
    let mut items = [1, 2].map(|key| rkv_remote_item {
        key: [key; 32],
        bytes: start,
        byte_count: 100,
        answer: 0,
        reserved: 0,
    });
    let size = size_of::<rkv_remote_item>();
    // SAFETY: the items and their bytes are there during the call, and nobody else's.
    unsafe { (remote.put.unwrap())(remote.user_data, items.as_mut_ptr(), size, 2, 10_000) };
    let mut done = items.map(|item| item.answer);
    done.sort_unstable();
    assert_eq!(done, [RKV_REMOTE_FAILED, RKV_REMOTE_DONE]);
    assert!(!store.last_failure().is_empty());
}
