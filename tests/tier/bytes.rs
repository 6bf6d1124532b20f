//! What is read is what was written.
use crate::support::*;
use radixkv::tier::{LowerStore, Refused};

const PIECE: usize = 2 << 20;

#[test]
fn t05_every_length_is_read_as_it_was_written() {
    let folder = Folder::new();
    let lengths =
        [1, 2, 4095, 4096, 4097, 100_000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 9];
    let store = folder.open(64 * MIB);
    for (number, &bytes) in lengths.iter().enumerate() {
        put(&store, number as u64, bytes).unwrap();
    }
    assert!(store.flush(LONG));
    let committed = poll(&store);
    assert_eq!(committed.len(), lengths.len());
    for (number, &bytes) in lengths.iter().enumerate() {
        let number = number as u64;
        assert!(committed.contains(&Seen::Committed(key(number))));
        assert_eq!(load(&store, number, bytes), Ok(content(number, bytes)));
    }
    let stats = store.stats();
    let sum: usize = lengths.iter().sum();
    assert_eq!((stats.writes, stats.reads), (11, 11));
    assert_eq!((stats.written_bytes, stats.read_bytes), (sum as u64, sum as u64));
    assert_eq!((stats.records, stats.waiting_bytes, stats.damaged), (11, 0, 0));
    assert!(stats.commits > 0 && stats.write_nanoseconds > 0 && stats.read_nanoseconds > 0);
    let cost =
        |(number, &bytes): (usize, &usize)| store.cost(bytes as u64, note(number as u64).len());
    assert_eq!(stats.bytes, lengths.iter().enumerate().map(cost).sum::<u64>());
}

#[test]
fn t05_what_is_not_committed_is_not_read() {
    let folder = Folder::new();
    let mut config = folder.config(MIB);
    config.commit_interval = LONG;
    let store = radixkv::tier::DiskStore::open(config).unwrap().0;
    put(&store, 1, 5000).unwrap();
    assert_eq!(get(&store, 1, 5000), Err(Refused::Missing));
    assert_eq!(put(&store, 1, 5000), Err(Refused::Known));
    assert_eq!(get(&store, 2, 5000), Err(Refused::Missing));
    assert!(!store.has_events());
    assert!(store.flush(LONG));
    assert!(store.has_events());
    assert_eq!(poll(&store), [Seen::Committed(key(1))]);
    assert!(!store.has_events());
    for bytes in [0, 4999, 5001] {
        assert_eq!(get(&store, 1, bytes), Err(Refused::Length));
    }
    assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
    assert_eq!(put(&store, 1, 5000), Err(Refused::Known));
}

#[test]
fn t05_many_records_by_many_threads() {
    let folder = Folder::new();
    let store = folder.open(256 * MIB);
    let bytes = |number: u64| 1 + (number as usize * 7919) % 300_000;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in (0..400).filter(|number| number % 4 == thread) {
                    put(store, number, bytes(number)).unwrap();
                }
            });
        }
    });
    assert!(store.flush(LONG));
    assert_eq!(poll(&store).len(), 400);
    let mut tickets: Vec<u64> = (0..400).map(|n| get(&store, n, bytes(n)).unwrap()).collect();
    let seen = poll_until(&store, |seen| seen.len() == 400);
    for event in seen {
        let Seen::Loaded(ticket, of, result) = event else { panic!("{event:?}") };
        let number = u64::from_le_bytes(of[..8].try_into().unwrap());
        assert!(result == Ok(content(number, bytes(number))), "record {number}");
        tickets.retain(|other| *other != ticket);
    }
    assert!(tickets.is_empty());
}

#[test]
fn t03_the_caller_is_woken_when_there_was_nothing() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let folder = Folder::new();
    let mut config = folder.config(MIB);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    config.wake = Some(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let store = radixkv::tier::DiskStore::open(config).unwrap().0;
    for number in 0..3 {
        put(&store, number, 10).unwrap();
        assert!(store.flush(LONG));
    }
    let woken_at = |count| {
        let start = std::time::Instant::now();
        while woken.load(Ordering::SeqCst) < count && start.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(woken.load(Ordering::SeqCst), count);
    };
    woken_at(1);
    assert_eq!(poll(&store).len(), 3);
    put(&store, 3, 10).unwrap();
    assert!(store.flush(LONG));
    woken_at(2);
}
