//! Space: bounds, removal, and what is used again when.
use crate::support::*;
use radixkv::tier::{DiskStore, LowerStore, Refused};
use std::time::{Duration, Instant};

/// Puts when there is room.
fn put_when_free(store: &dyn LowerStore, number: u64, bytes: usize) {
    let start = Instant::now();
    while let Err(why) = put(store, number, bytes) {
        assert!(why == Refused::Full && start.elapsed() < LONG, "{why:?}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn t10_the_bound_is_exact() {
    let folder = Folder::new();
    let note_bytes: usize = (0..4).map(|number| note(number).len()).sum();
    let store = folder.open(4 * MIB + note_bytes as u64);
    assert_eq!(put(&store, 9, 5 << 20), Err(Refused::Length));
    assert_eq!(put(&store, 9, 0), Err(Refused::Length));
    for number in 0..4 {
        put(&store, number, 1 << 20).unwrap();
    }
    assert_eq!(put(&store, 10, 1), Err(Refused::Full));
    assert_eq!(store.stats().bytes, store.stats().capacity);
    assert!(store.flush(LONG));
    let data = std::fs::metadata(folder.path().join("data")).unwrap().len();
    assert_eq!(data, 4 * MIB);
    store.remove(key(2));
    put_when_free(&store, 50, 1 << 20);
    assert!(store.flush(LONG));
    assert_eq!(load(&store, 50, 1 << 20), Ok(content(50, 1 << 20)));
    assert_eq!(get(&store, 2, 1 << 20), Err(Refused::Missing));
}

#[test]
fn t10_space_in_pieces_is_used_and_comes_back() {
    let folder = Folder::new();
    let store = folder.open(4 * MIB);
    for number in 0..1000 {
        put(&store, number * 50, 4096).unwrap();
    }
    assert!(store.flush(LONG));
    poll(&store);
    (0..1000).filter(|number| number % 2 == 0).for_each(|number| store.remove(key(number * 50)));
    assert!(store.flush(LONG));
    // 24 units behind the others and 500 single ones: a record has up to 256 pieces.
    assert_eq!(put(&store, 1, 300 * 4096), Err(Refused::Fragmented));
    put(&store, 1, 200 * 4096).unwrap();
    assert!(store.flush(LONG));
    assert_eq!(load(&store, 1, 200 * 4096), Ok(content(1, 200 * 4096)));
    for number in (0..1000).filter(|number| number % 2 == 1) {
        assert_eq!(load(&store, number * 50, 4096), Ok(content(number * 50, 4096)));
        store.remove(key(number * 50));
    }
    store.remove(key(1));
    assert!(store.flush(LONG));
    assert_eq!((store.stats().bytes, store.stats().records), (0, 0));
    put(&store, 2, 4 << 20).unwrap_err(); // its note takes a little more
    keep(&store, 0, 4 << 20); // this one has none, and its key is free again
    assert_eq!(load(&store, 0, 4 << 20), Ok(content(0, 4 << 20)));
}

#[test]
fn t10_the_file_shrinks_when_its_end_is_free() {
    let folder = Folder::new();
    let store = folder.open(512 * MIB);
    let length = || std::fs::metadata(folder.path().join("data")).unwrap().len();
    for number in 0..4 {
        put(&store, number, 40 << 20).unwrap();
    }
    assert!(store.flush(LONG));
    assert_eq!(length(), 192 * MIB);
    (1..4).for_each(|number| store.remove(key(number)));
    assert!(store.flush(LONG));
    let start = Instant::now();
    while length() != 64 * MIB {
        assert!(start.elapsed() < LONG, "{}", length());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(load(&store, 0, 40 << 20) == Ok(content(0, 40 << 20)));
}

#[test]
fn t08_too_much_that_waits_is_refused() {
    let folder = Folder::new();
    let mut config = folder.config(512 * MIB);
    config.waiting_bytes = 10 * MIB;
    let store = DiskStore::open(config).unwrap().0;
    put(&store, 0, 32 << 20).unwrap(); // alone it may be longer
    let mut refused = 0;
    for number in 1..40 {
        loop {
            // Nobody else puts anything, so what waits gets less until the refusal.
            let waiting = store.stats().waiting_bytes;
            let Err(why) = put(&store, number, 1 << 20) else { break };
            assert_eq!(why, Refused::Busy);
            assert!(waiting > 9 * MIB);
            refused += 1;
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(store.stats().waiting_bytes <= 32 * MIB);
    }
    assert!(refused > 0);
    assert!(store.flush(LONG));
    assert_eq!(store.stats().records, 40);
}

/// A ring of records is put, read and removed; what is committed has its bytes, always.
#[test]
fn t10_churn_in_a_small_space() {
    let folder = Folder::new();
    let store = folder.open(3 * MIB);
    let mut random = fastrand::Rng::with_seed(11);
    let (mut live, mut loads) = (Vec::new(), 0);
    for number in 0..3000_u64 {
        let bytes = random.usize(1..200_000);
        while put(&store, number, bytes).is_err() {
            // Room comes back with a commit, and this loop must not empty the store before that.
            if live.len() > 5 {
                let (old, _) = live.swap_remove(random.usize(..live.len()));
                store.remove(key(old));
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        live.push((number, bytes));
        for _ in 0..4 {
            let (number, bytes) = live[random.usize(..live.len())];
            loads += u32::from(get(&store, number, bytes).is_ok());
        }
        if number % 500 == 0 {
            assert!(store.flush(LONG));
        }
        for seen in poll(&store) {
            match seen {
                Seen::Committed(_) => {}
                Seen::Loaded(_, of, result) => {
                    let number = u64::from_le_bytes(of[..8].try_into().unwrap());
                    let result = result.unwrap();
                    assert!(result == content(number, result.len()));
                }
                Seen::Dropped(..) => panic!("{seen:?}"),
            }
        }
    }
    assert!(loads > 30, "{loads}");
    assert!(store.flush(LONG));
    assert!(live.len() > 5);
    for (number, _) in &live {
        store.remove(key(*number));
    }
    assert_eq!(store.stats().records, 0);
    assert!(store.flush(LONG));
    while store.stats().bytes > 0 {
        std::thread::sleep(Duration::from_millis(1)); // the last reads
    }
}
