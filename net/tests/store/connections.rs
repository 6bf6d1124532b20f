//! Connections to Redis: which are kept, and which are not.
use super::Place;
use super::engine::Store;
use radixkv::capi::{RKV_REMOTE_DONE, RKV_REMOTE_MISSING, rkv_remote_item};
use std::io::{BufRead, BufReader, Write};
use std::thread;
use std::time::{Duration, Instant};

/// What a replica says to who writes.
const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

/// A Redis: of each connection, by its number, what is said to each command, by its name. Where it
/// is.
fn redis<A: FnMut(&str) -> &'static str + Send + 'static>(
    connection: impl Fn(usize) -> A + Send + 'static,
) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut answer = connection(number);
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(command) = command(&mut reader) {
                    if stream.write_all(answer(&command).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// The name of the next command, all words of which are read.
fn command(reader: &mut impl BufRead) -> Option<String> {
    let count_after = |reader: &mut dyn BufRead, mark: char| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim().strip_prefix(mark)?.parse().ok()
    };
    let mut words = Vec::new();
    for _ in 0..count_after(reader, '*')? {
        let mut word = vec![0; count_after(reader, '$')? + 2];
        reader.read_exact(&mut word).ok()?;
        words.push(word);
    }
    let name = words.first()?;
    Some(String::from_utf8_lossy(&name[..name.len() - 2]).into_owned())
}

/// T13: a server that became a replica is left: who is asked for anew may be the one that writes.
#[test]
fn t13_a_redis_that_became_a_replica_is_left() {
    // As many connections as a store has for writing find a replica, later ones do not.
    const REPLICAS: usize = 4;
    let url = redis(|number| {
        move |command: &str| match command == "SET" && number < REPLICAS {
            true => READONLY,
            false => "+OK\r\n",
        }
    });
    let store = Store::new(&url, None, "kv:", None);
    let (remote, mut bytes) = (store.remote(), [7u8; 100]);
    let start: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
    let size = size_of::<rkv_remote_item>();
    let mut answers = Vec::new();
    for _ in 0..2 * REPLICAS {
        let mut item =
            rkv_remote_item { key: [7; 32], bytes: start, byte_count: 100, answer: 0, reserved: 0 };
        // SAFETY: the item and its bytes are there during the call, and nobody else's.
        unsafe { (remote.put.unwrap())(remote.user_data, &mut item, size, 1, 5000) };
        answers.push(item.answer);
    }
    assert_eq!(answers.last(), Some(&RKV_REMOTE_DONE), "{answers:?}: {}", store.last_failure());
}

/// T13: whether a Redis that says nothing is still there is asked now and then: what lies between
/// would forget the connection, and a call would wait for it.
#[cfg(target_os = "linux")]
#[test]
fn t13_idle_connections_to_redis_are_kept() {
    let Some(place) = Place::redis() else { return };
    let (store, bytes) = (place.store(), std::ptr::null_mut());
    let mut item = rkv_remote_item { key: [7; 32], bytes, byte_count: 0, answer: 0, reserved: 0 };
    let (remote, size) = (store.remote(), size_of::<rkv_remote_item>());
    // SAFETY: the item is there during the call, and nobody else's.
    unsafe { (remote.has.unwrap())(remote.user_data, &mut item, size, 1, 5000) };
    assert_eq!(item.answer, RKV_REMOTE_MISSING, "{}", store.last_failure());
    let theirs = format!("0100007F:{:04X}", place.server.port);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        // Of connections to that port, the timer that runs: 02 is this one.
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let is_ours = |line: &Vec<&str>| line[2] == theirs && line[3] == "01";
        if lines.any(|line| is_ours(&line) && line[5].starts_with("02:")) {
            break;
        }
        assert!(Instant::now() < end, "nobody asks");
        thread::sleep(Duration::from_millis(10));
    }
}

/// T13: of some values of which a server takes the first and refuses another each has its answer.
#[test]
fn t13_what_a_redis_took_beside_what_it_refused_is_written() {
    use radixkv::capi::RKV_REMOTE_FAILED;
    let url = redis(|_| {
        let mut changes = 0;
        move |command: &str| {
            let is_change = ["SET", "DEL"].contains(&command);
            changes += usize::from(is_change);
            match is_change && changes == 2 {
                true => "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
                false => "+OK\r\n",
            }
        }
    });
    for is_removed in [false, true] {
        let store = Store::new(&url, None, "kv:", None);
        let (remote, mut bytes) = (store.remote(), [7u8; 100]);
        let start: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
        let mut items = [1, 2, 3].map(|key| rkv_remote_item {
            key: [key; 32],
            bytes: start,
            byte_count: 100,
            answer: 0,
            reserved: 0,
        });
        let call = if is_removed { remote.remove } else { remote.put };
        let size = size_of::<rkv_remote_item>();
        // SAFETY: the items and their bytes are there during the call, and nobody else's.
        unsafe { (call.unwrap())(remote.user_data, items.as_mut_ptr(), size, 3, 5000) };
        let answers = items.map(|item| item.answer);
        assert_eq!(answers, [RKV_REMOTE_DONE, RKV_REMOTE_FAILED, RKV_REMOTE_DONE]);
        assert!(store.last_failure().contains("OOM"), "{}", store.last_failure());
    }
}

/// T13: who hears that a server became a replica when it writes reads from it no longer.
#[test]
fn t13_a_redis_that_became_a_replica_is_not_read_from() {
    // All connections that read, and the first that writes, find the replica.
    const REPLICAS: usize = 5;
    let url = redis(|number| {
        move |command: &str| match (command, number < REPLICAS) {
            ("STRLEN", true) => ":0\r\n",
            ("STRLEN", false) => ":5\r\n",
            ("SET", true) => READONLY,
            _ => "+OK\r\n",
        }
    });
    let store = Store::new(&url, None, "kv:", None);
    let (remote, mut bytes) = (store.remote(), [7u8; 100]);
    let start: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
    let size = size_of::<rkv_remote_item>();
    let item =
        || rkv_remote_item { key: [7; 32], bytes: start, byte_count: 100, answer: 0, reserved: 0 };
    let has = || {
        let mut item = item();
        // SAFETY: the item is there during the call, and nobody else's.
        unsafe { (remote.has.unwrap())(remote.user_data, &mut item, size, 1, 5000) };
        item.answer
    };
    for _ in 0..4 {
        assert_eq!(has(), RKV_REMOTE_MISSING, "{}", store.last_failure());
    }
    let mut written = item();
    // SAFETY: the item and its bytes are there during the call, and nobody else's.
    unsafe { (remote.put.unwrap())(remote.user_data, &mut written, size, 1, 5000) };
    assert!(store.last_failure().contains("ReadOnly"), "{}", store.last_failure());
    for _ in 0..4 {
        assert_eq!(has(), RKV_REMOTE_DONE, "{}", store.last_failure());
    }
}

/// T13: the same of values that are asked for, and read.
#[test]
fn t13_what_a_redis_has_beside_what_it_refuses_is_read() {
    use radixkv::capi::RKV_REMOTE_FAILED;
    let url = redis(|_| {
        let mut reads = 0;
        move |command: &str| {
            let is_read = ["STRLEN", "GETRANGE"].contains(&command);
            reads += usize::from(is_read);
            match command {
                _ if is_read && reads == 2 => "-CLUSTERDOWN Hash slot not served\r\n",
                "STRLEN" => ":5\r\n",
                "GETRANGE" => "$5\r\nvalue\r\n",
                _ => "+OK\r\n",
            }
        }
    });
    for is_got in [false, true] {
        let store = Store::new(&url, None, "kv:", None);
        let (remote, mut bytes) = (store.remote(), [[0u8; 5]; 3]);
        let size = size_of::<rkv_remote_item>();
        let mut key = 0;
        let mut items = bytes.each_mut().map(|bytes| {
            key += 1;
            let bytes: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
            rkv_remote_item { key: [key; 32], bytes, byte_count: 5, answer: 0, reserved: 0 }
        });
        let call = if is_got { remote.get } else { remote.has };
        // SAFETY: the items and their bytes are there during the call, and nobody else's.
        unsafe { (call.unwrap())(remote.user_data, items.as_mut_ptr(), size, 3, 5000) };
        let answers = items.map(|item| item.answer);
        assert_eq!(answers, [RKV_REMOTE_DONE, RKV_REMOTE_FAILED, RKV_REMOTE_DONE]);
        assert!(!is_got || (&bytes[0], &bytes[2]) == (b"value", b"value"));
        assert!(!store.last_failure().is_empty());
    }
}

/// T13: one that stays a replica is read from over the same connections.
#[test]
fn t13_a_redis_that_stays_a_replica_is_not_asked_over_ever_new_connections() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let readers = Arc::new(AtomicUsize::new(0));
    let counted = readers.clone();
    let url = redis(move |_| {
        let (counted, mut is_first) = (counted.clone(), true);
        move |command: &str| match command {
            "STRLEN" => {
                counted.fetch_add(usize::from(std::mem::take(&mut is_first)), Ordering::Relaxed);
                ":5\r\n"
            }
            "SET" => READONLY,
            _ => "+OK\r\n",
        }
    });
    let store = Store::new(&url, None, "kv:", None);
    let (remote, mut bytes) = (store.remote(), [7u8; 100]);
    let start: *mut std::ffi::c_void = bytes.as_mut_ptr().cast();
    let size = size_of::<rkv_remote_item>();
    for _ in 0..20 {
        for call in [remote.put, remote.has] {
            let mut item = rkv_remote_item {
                key: [7; 32],
                bytes: start,
                byte_count: 100,
                answer: 0,
                reserved: 0,
            };
            // SAFETY: the item and its bytes are there during the call, and nobody else's.
            unsafe { (call.unwrap())(remote.user_data, &mut item, size, 1, 5000) };
        }
    }
    let readers = readers.load(Ordering::Relaxed);
    assert!(readers <= 8, "{readers} connections read");
}
