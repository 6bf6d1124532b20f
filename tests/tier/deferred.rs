//! Work that is asked for with a lock in hand begins when that is let go of.
use crate::support::*;
use radixkv::tier::{DiskStore, Io, LowerStore, Source};
use std::sync::{Barrier, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

const ROUNDS: u64 = 200;
const THREADS: u64 = 3;

fn open(folder: &Folder, io: Io) -> DiskStore {
    let mut config = folder.config(64 * MIB);
    (config.io, config.commit_interval) = (io, Duration::from_millis(1));
    DiskStore::open(config).unwrap().0
}

/// Several threads put off what they ask for, overlapping as they like, and nobody asks for
/// anything after them: all of it is done.
#[test]
fn t03_what_was_put_off_is_done_whoever_else_puts_off() {
    for io in [Io::Ring, Io::Threads] {
        let folder = Folder::new();
        let store = open(&folder, io);
        let start = Barrier::new(THREADS as usize);
        for round in 0..ROUNDS {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (store, start) = (&store, &start);
                    scope.spawn(move || {
                        start.wait();
                        store.defer();
                        put(store, round * THREADS + thread, 100).unwrap();
                        store.resume();
                    });
                }
            });
            // To poll wakes nobody.
            poll_until(&store, |seen| seen.len() as u64 == THREADS);
        }
        assert_eq!(store.stats().records, ROUNDS * THREADS);
    }
}

/// Nothing is written, read or removed while all of it is put off, by threads that wait.
#[test]
fn t03_nobody_is_woken_meanwhile() {
    let folder = Folder::new();
    let store = open(&folder, Io::Threads);
    put(&store, 1, 5000).unwrap();
    assert!(store.flush(LONG));
    poll(&store);
    // They wait.
    std::thread::sleep(Duration::from_millis(100));
    store.defer();
    store.defer();
    put(&store, 2, 5000).unwrap();
    get(&store, 1, 5000).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(poll(&store).is_empty());
    assert_eq!((store.stats().writes, store.stats().reads), (1, 0));
    // One of two who put it off is enough: they may take turns for ever.
    store.resume();
    poll_until(&store, |seen| seen.len() == 2);
    store.resume();
    assert_eq!((store.stats().writes, store.stats().reads), (2, 1));
}

/// A source that says which thread dropped it.
struct Told(Vec<u8>, mpsc::Sender<ThreadId>);

impl Source for Told {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.send(std::thread::current().id()).unwrap();
    }
}

/// What a write that is stopped was to come from is the caller's code, and who stops it may hold a
/// lock: another thread drops it. Until then it counts as waiting.
#[test]
fn t03_another_thread_drops_what_a_stopped_write_came_from() {
    for io in [Io::Ring, Io::Threads] {
        let folder = Folder::new();
        let store = open(&folder, io);
        let (dropped, drops) = mpsc::channel();
        let me = std::thread::current().id();
        for round in 0..ROUNDS {
            // Some are stopped before they have begun, and some when they are done.
            let is_late = round % 2 == 1;
            if !is_late {
                store.defer();
            }
            let source = Told(vec![1; 5000], dropped.clone());
            store.put(key(round), Box::default(), Box::new(source)).unwrap();
            store.remove(key(round));
            if !is_late {
                store.resume();
            }
            assert_ne!(drops.recv_timeout(LONG).unwrap(), me);
        }
        while store.stats().waiting_bytes > 0 {
            std::thread::yield_now();
        }
        assert!(store.flush(LONG));
        assert_eq!((store.stats().records, store.stats().bytes), (0, 0));
    }
}
