//! T13: caches share pages over real servers, which are killed, come back, stand still, and are
//! full of garbage. Each request checks every byte that it did not compute.
mod connections;
mod engine;
mod objects;
mod servers;
mod snapshots;
mod urls;

use engine::{Engine, PAGE_BYTES, Ran, Store, prompt};
use servers::{Server, answers, http, redis, redis_over_tls, s3};
use std::io::Write;
use std::time::Duration;

const BUCKET: &str = "pages";

/// What a test is for: a server, and how a store finds it.
struct Place {
    server: Server,
    url: String,
    endpoint: Option<String>,
    ca_file: Option<String>,
}

impl Place {
    fn redis() -> Option<Self> {
        let server = redis()?;
        let url = format!("redis://127.0.0.1:{}/1", server.port);
        Some(Self { server, url, endpoint: None, ca_file: None })
    }

    /// The same over TLS, by a certificate that nobody but the test's own authority knows.
    fn redis_over_tls() -> Option<Self> {
        let (server, ca_file) = redis_over_tls()?;
        let url = format!("rediss://127.0.0.1:{}/1", server.port);
        Some(Self { server, url, endpoint: None, ca_file: Some(ca_file) })
    }

    fn s3() -> Option<Self> {
        let server = s3(BUCKET)?;
        let endpoint = Some(format!("http://127.0.0.1:{}", server.port));
        let url = format!("s3://{BUCKET}/some/folder");
        Some(Self { server, url, endpoint, ca_file: None })
    }

    fn store(&self) -> Store {
        let ca_file = self.ca_file.as_deref();
        Store::new(&self.url, self.endpoint.as_deref(), "kv:", ca_file)
    }
}

/// Sends a command to Redis, and says what it answered.
fn command(server: &Server, words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    http(server.port, &format!("*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n{text}*1\r\n$4\r\nQUIT\r\n"))
}

/// One computes, others take it from the server, also one that begins with nothing after a
/// restart; a branch has what is in common.
fn is_shared(place: &Place) {
    let store = place.store();
    let tokens = prompt(1, 40);
    let mut first = Engine::new(&store, 10_000);
    let ran = first.run(&tokens);
    assert_eq!((ran.had, ran.fetched, ran.computed), (0, 0, 40));
    first.until("it is written", |stats| stats.remote.written_page_count == 40);
    drop(first);
    let mut second = Engine::new(&store, 10_000);
    let ran = second.run(&tokens);
    assert_eq!((ran.had, ran.fetched, ran.computed), (0, 40, 0), "{}", second.said());
    let stats = second.stats().remote;
    assert_eq!(stats.read_bytes, 40 * PAGE_BYTES as u64);
    assert_eq!((stats.found_page_count, stats.fetched_page_count), (40, 40));
    assert_eq!((stats.failed_page_count, stats.damaged_page_count), (0, 0));
    println!("{}: 40 pages of {PAGE_BYTES} bytes fetched in {:?}", place.url, ran.waited);
    // From its own memory now.
    second.evict();
    assert_eq!(second.run(&tokens).fetched, 40);
    assert_eq!(second.stats().remote.read_page_count, 40);
    let branch = [&tokens[..20 * 16 + 3], &prompt(2, 10)[..]].concat();
    let mut third = Engine::new(&store, 10_000);
    let ran = third.run(&branch);
    assert_eq!((ran.fetched, ran.computed), (20, 10));
    // Two that compute the same both find it there.
    let other = prompt(3, 10);
    let mut both = [second, third];
    both.iter_mut().for_each(|engine| engine.deadline_ms = 0);
    both.iter_mut().for_each(|engine| assert_eq!(engine.run(&other).computed, 10));
    // The other one may write what it computed of the branch besides.
    both[0].until("it is there", |stats| {
        stats.remote.written_page_count + stats.remote.known_page_count == 10
    });
    both[1].until("it is there", |stats| {
        stats.remote.written_page_count + stats.remote.known_page_count == 20
    });
}

#[test]
fn t13_redis_is_shared() {
    Place::redis().inspect(is_shared);
}

#[test]
fn t13_redis_over_tls_is_shared() {
    Place::redis_over_tls().inspect(is_shared);
}

/// T13: a server whose certificate is of somebody else is not talked to, and the engine goes on.
#[test]
fn t13_a_certificate_of_somebody_else_is_refused() {
    let Some(mut place) = Place::redis_over_tls() else { return };
    let Some(other) = Place::redis_over_tls() else { return };
    place.ca_file = other.ca_file.clone();
    let store = place.store();
    let mut engine = Engine::new(&store, 1000);
    let ran = engine.run(&prompt(1, 20));
    assert_eq!((ran.fetched, ran.computed), (0, 20));
    engine.until("it failed", |stats| stats.remote.failed_page_count > 0);
    assert_eq!(engine.stats().remote.written_page_count, 0);
    let said = store.last_failure();
    assert!(said.to_lowercase().contains("certificate"), "{said}");
}

#[test]
fn t13_s3_is_shared() {
    Place::s3().inspect(is_shared);
}

/// A server that is killed mid-run, and comes back: the engine goes on, its answers are right, and
/// the statistics say what happened.
fn is_done_without(mut place: Place) {
    let store = place.store();
    let mut engine = Engine::new(&store, 1000);
    let tokens = prompt(1, 20);
    engine.run(&tokens);
    engine.until("it is written", |stats| stats.remote.written_page_count == 20);
    place.server.kill();
    // Another one, to which it is not known that the server is dead.
    let mut other = Engine::new(&store, 1000);
    let mut waits = Vec::new();
    for family in 1..30 {
        let ran = other.run(&prompt(family, 20));
        assert_eq!((ran.fetched, ran.computed), (0, 20));
        let stored = 20 * u64::from(family);
        other.until("it is stored", |stats| stats.host.stored_page_count == stored);
        other.evict();
        waits.push(ran.waited);
    }
    let stats = other.stats().remote;
    assert!(stats.failed_page_count > 0 && stats.pause_count > 0, "{}", other.said());
    assert_eq!((stats.read_page_count, stats.written_page_count), (0, 0));
    assert!(!store.last_failure().is_empty());
    waits.sort();
    println!("dead: waited {:?} at most, {:?} the median; {}", waits[28], waits[14], other.said());
    assert!(waits[14] < Duration::from_millis(500), "{waits:?}");
    place.server.start();
    // What it had was in its memory.
    if place.endpoint.is_some() {
        let made = format!("PUT /{BUCKET} HTTP/1.0\r\nHost: s3\r\n\r\n");
        assert!(http(place.server.port, &made).contains(" 200 "));
    }
    let mut again = Engine::new(&store, 1000);
    again.deadline_ms = 0;
    again.run(&tokens);
    again.until("it is written", |stats| stats.remote.written_page_count == 20);
    // The one that was there all the time finds it again by itself.
    other.until("the pause is over", |stats| stats.remote.is_paused == 0);
    for family in 100.. {
        other.run(&prompt(family, 2));
        if other.stats().remote.written_page_count > 0 {
            break;
        }
        assert!(family < 3000, "{} {}", other.said(), store.last_failure());
        other.until("a step", |_| true);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut third = Engine::new(&store, 10_000);
    assert_eq!(third.run(&tokens).fetched, 20, "{}", third.said());
}

#[test]
fn t13_redis_dies_and_comes_back() {
    if let Some(place) = Place::redis() {
        is_done_without(place);
    }
}

#[test]
fn t13_s3_dies_and_comes_back() {
    if let Some(place) = Place::s3() {
        is_done_without(place);
    }
}

/// A server that stands still: fetches end by their deadline, or by the store's time, and what
/// comes when it goes on harms nobody.
#[test]
fn t13_redis_that_stands_still_is_not_waited_for() {
    let Some(place) = Place::redis() else { return };
    let store = place.store();
    let mut engine = Engine::new(&store, 300);
    let tokens = prompt(1, 20);
    engine.run(&tokens);
    engine.until("it is written", |stats| stats.remote.written_page_count == 20);
    drop(engine);
    for deadline_ms in [u64::MAX, 100] {
        let mut engine = Engine::new(&store, 300);
        engine.deadline_ms = deadline_ms;
        place.server.stop(true);
        let Ran { fetched, computed, waited, .. } = engine.run(&tokens);
        assert_eq!((fetched, computed), (0, 20));
        let least = Duration::from_millis(deadline_ms.min(300));
        assert!(waited >= least && waited < least + Duration::from_secs(3), "{waited:?}");
        println!("stands still, deadline {deadline_ms}: {waited:?}, {}", engine.said());
        // Nothing is asked for after a few.
        for family in 2..8 {
            engine.run(&prompt(family, 4));
        }
        engine.until("a pause", |stats| stats.remote.pause_count > 0);
        assert_eq!(engine.run(&prompt(9, 4)).computed, 4);
        place.server.stop(false);
        engine.until("the pause is over", |stats| {
            stats.remote.is_paused == 0 && stats.remote.waiting_page_count == 0
        });
        engine.evict();
        let mut fresh = Engine::new(&store, 10_000);
        assert_eq!(fresh.run(&tokens).fetched, 20, "{}", fresh.said());
    }
}

/// The keys of the twenty pages of a prompt, which an engine has computed.
fn written_keys(place: &Place, store: &Store, tokens: &[u32]) -> Vec<String> {
    let mut engine = Engine::new(store, 10_000);
    engine.run(tokens);
    engine.until("it is written", |stats| stats.remote.written_page_count == 20);
    let answer = command(&place.server, &["KEYS", "*"]);
    let keys: Vec<_> =
        answer.lines().filter(|line| line.starts_with("kv:")).map(str::to_owned).collect();
    assert_eq!(keys.len(), 20, "{answer}");
    keys
}

/// Garbage in the server's values: no wrong byte, and what is computed mends it.
#[test]
fn t13_garbage_on_a_server_is_never_used() {
    let Some(place) = Place::redis() else { return };
    let store = place.store();
    let tokens = prompt(1, 20);
    let answer = written_keys(&place, &store, &tokens);
    let keys: Vec<&str> = answer.iter().map(String::as_str).collect();
    let spoils: [&dyn Fn(&str); 5] = [
        &|key| drop(command(&place.server, &["SET", key, "garbage"])),
        &|key| drop(command(&place.server, &["SETRANGE", key, "20000", "x!x"])),
        &|key| drop(command(&place.server, &["APPEND", key, "x"])),
        &|key| drop(command(&place.server, &["SET", key, ""])),
        &|key| {
            command(&place.server, &["DEL", key]);
            let other = keys.iter().find(|&&other| other != key).unwrap();
            command(&place.server, &["COPY", other, key]);
        },
    ];
    for (at, spoil) in spoils.iter().enumerate() {
        spoil(keys[at]);
        let mut engine = Engine::new(&store, 10_000);
        let ran = engine.run(&tokens);
        assert!(ran.fetched < 20 && ran.fetched + ran.computed == 20, "{at}: {ran:?}");
        // An empty one is as good as none.
        let damaged = u64::from(at != 3);
        assert_eq!(engine.stats().remote.damaged_page_count, damaged, "{at}: {}", engine.said());
        engine.until("it is mended", |stats| stats.remote.written_page_count == 1);
        let mut engine = Engine::new(&store, 10_000);
        assert_eq!(engine.run(&tokens).fetched, 20, "{at}");
    }
    // Of a type of its own: the server answers with an error.
    command(&place.server, &["DEL", keys[0]]);
    command(&place.server, &["LPUSH", keys[0], "x"]);
    let mut engine = Engine::new(&store, 10_000);
    let ran = engine.run(&tokens);
    assert!(ran.fetched < 20 && ran.fetched + ran.computed == 20, "{ran:?}");
    engine.until("it is mended", |stats| stats.remote.written_page_count == 1);
    assert_eq!(Engine::new(&store, 10_000).run(&tokens).fetched, 20);
}

/// A server that is full refuses: that is counted, and costs nothing else.
#[test]
fn t13_a_full_redis_refuses() {
    let Some(place) = Place::redis() else { return };
    let store = place.store();
    command(&place.server, &["CONFIG", "SET", "maxmemory", "2mb"]);
    let mut engine = Engine::new(&store, 10_000);
    for family in 0..10 {
        assert_eq!(engine.run(&prompt(family, 20)).computed, 20);
        let stored = 20 * (u64::from(family) + 1);
        engine.until("it is stored", |stats| stats.host.stored_page_count == stored);
        engine.evict();
    }
    engine.until("it was refused", |stats| stats.remote.failed_page_count > 0);
    assert!(store.last_failure().contains("OOM"), "{}", store.last_failure());
    let stats = engine.stats().remote;
    assert!(stats.written_page_count < 200 && stats.damaged_page_count == 0, "{}", engine.said());
}

/// A bucket that isn't there has no value, and takes none: that is a failure, and the store says
/// so.
#[test]
fn t13_a_bucket_that_is_not_there_is_a_failure() {
    let endpoint = answers(|_, stream| {
        let text = "<Error><Code>NoSuchBucket</Code></Error>";
        let length = text.len();
        write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: {length}\r\n")?;
        write!(stream, "connection: close\r\n\r\n{text}")
    });
    let store = Store::new("s3://nowhere", Some(&endpoint), "kv:", None);
    let mut engine = Engine::new(&store, 10_000);
    assert_eq!(engine.run(&prompt(1, 20)).computed, 20);
    engine.until("it failed", |stats| {
        let remote = &stats.remote;
        assert_eq!(remote.written_page_count, 0);
        remote.failed_page_count > 0 || remote.waiting_page_count == 0 && remote.call_count > 2
    });
    assert!(engine.stats().remote.failed_page_count > 0, "{}", engine.said());
    assert!(!store.last_failure().is_empty());
}

/// An object of many GiB under the key of a page: it is damaged, and not read.
#[test]
fn t13_what_is_much_too_long_is_not_read() {
    let endpoint = answers(|method, stream| {
        let length = if method == "GET" { 1_u64 << 40 } else { 0 };
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\netag: \"x\"\r\n")?;
        write!(stream, "last-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n")?;
        write!(stream, "connection: close\r\n\r\n")?;
        if method != "GET" {
            return Ok(());
        }
        let zeros = [0; 1 << 16];
        loop {
            std::thread::sleep(Duration::from_millis(5));
            stream.write_all(&zeros)?;
        }
    });
    let store = Store::new("s3://bucket", Some(&endpoint), "kv:", None);
    let mut engine = Engine::new(&store, 5_000);
    let ran = engine.run(&prompt(1, 20));
    assert_eq!((ran.fetched, ran.computed), (0, 20));
    let stats = engine.stats().remote;
    assert!(stats.damaged_page_count > 0, "{} {}", engine.said(), store.last_failure());
    assert!(ran.waited < Duration::from_secs(4), "{:?}", ran.waited);
}

/// The most memory that this process ever had, in KiB.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The same in Redis, which sends it at once.
#[test]
fn t13_what_is_much_too_long_is_not_read_from_redis() {
    let Some(place) = Place::redis() else { return };
    let store = place.store();
    let tokens = prompt(1, 20);
    let answer = written_keys(&place, &store, &tokens);
    let keys: Vec<&str> = answer.iter().map(String::as_str).collect();
    command(&place.server, &["SETRANGE", keys[0], "400000000", "x"]);
    let before = most_memory();
    let mut engine = Engine::new(&store, 10_000);
    let ran = engine.run(&tokens);
    assert!(ran.fetched < 20 && ran.fetched + ran.computed == 20, "{ran:?}");
    assert_eq!(engine.stats().remote.damaged_page_count, 1, "{}", engine.said());
    let more = most_memory() - before;
    assert!(more < 200 << 10, "{more} KiB for a value of another length");
}

/// T13, T08: values that are written to a slow bucket keep nobody waiting who reads.
#[test]
fn t08_reads_from_a_bucket_do_not_queue_behind_writes() {
    use radixkv::capi::{RKV_REMOTE_MISSING, rkv_remote_item};
    use std::sync::atomic::{AtomicBool, Ordering};
    const WRITERS: usize = 8;
    const VALUES: usize = 64;
    static IS_READ: AtomicBool = AtomicBool::new(false);
    let endpoint = answers(|method, stream| {
        if method == "PUT" {
            // No write ends before the read, but for one that waits far too long.
            for _ in 0..1000 {
                if IS_READ.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\netag: \"x\"\r\n")?;
        } else {
            IS_READ.store(true, Ordering::Relaxed);
            write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n")?;
        }
        write!(stream, "connection: close\r\n\r\n")
    });
    let store = Store::new("s3://bucket", Some(&endpoint), "kv:", None);
    let remote = store.remote();
    let (data, has, put) = (remote.user_data as usize, remote.has.unwrap(), remote.put.unwrap());
    let item = |number: usize, bytes: &mut [u8]| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let (start, byte_count) = (bytes.as_mut_ptr().cast(), bytes.len() as u64);
        rkv_remote_item { key, bytes: start, byte_count, answer: 0, reserved: 0 }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut bytes = [7; 100];
                let mut items: Vec<rkv_remote_item> =
                    (0..VALUES).map(|at| item(writer * VALUES + at, &mut bytes)).collect();
                let (first, size) = (items.as_mut_ptr(), size_of::<rkv_remote_item>());
                // SAFETY: items and bytes are there during the call, and nobody else's.
                unsafe { put(data as *mut _, first, size, VALUES, 60_000) };
            });
        }
        // All of them wait for their turn now.
        std::thread::sleep(Duration::from_millis(100));
        let mut asked = item(1_000_000, &mut []);
        asked.bytes = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { has(data as *mut _, &mut asked, size_of::<rkv_remote_item>(), 1, 10_000) };
        assert_eq!(asked.answer, RKV_REMOTE_MISSING, "it waited for writes");
    });
}
