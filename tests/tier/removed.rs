//! What was removed before a flush is gone after it, whatever went wrong.
use crate::sim::{Fault, SimDisk, Stop, When};
use crate::story::BYTES;
use crate::support::*;
use radixkv::tier::{DiskConfig, DiskStore, LowerStore};
use std::time::Duration;

/// Calls of the disk, one of which fails in turn.
const CALLS: u64 = 25;
/// What a crash may leave.
const IMAGES: u64 = 40;

fn open(disk: SimDisk) -> (DiskStore, radixkv::tier::FoundRecords) {
    let mut config = DiskConfig::new("", BYTES, FINGERPRINT);
    (config.workers, config.commit_interval) = (2, Duration::from_secs(20));
    DiskStore::open_on(Box::new(disk), config).unwrap()
}

/// T06, T17: a record is removed while a commit has it, which fails.
#[test]
fn t17_what_was_removed_during_a_commit_that_fails_is_gone_after_a_flush() {
    let mut failed = 0;
    for call in 0..CALLS {
        let disk = SimDisk::new();
        let (store, _) = open(disk.clone());
        keep(&store, 1, 5000);
        put(&store, 2, 5000).unwrap();
        while store.stats().waiting_bytes > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.stop(Stop::Writes);
        let images = std::thread::scope(|scope| {
            let first = scope.spawn(|| store.flush(LONG));
            // The committer stands before its first write.
            std::thread::sleep(Duration::from_millis(30));
            store.remove(key(2));
            let second = scope.spawn(|| {
                assert!(store.flush(LONG));
                let crash = |seed| disk.after_crash(&mut fastrand::Rng::with_seed(seed));
                (0..IMAGES).map(crash).collect::<Vec<_>>()
            });
            std::thread::sleep(Duration::from_millis(10));
            disk.fail(Some((When::Once(call), Fault::Torn)));
            disk.stop(Stop::Nothing);
            assert!(first.join().unwrap());
            second.join().unwrap()
        });
        failed += store.stats().failed_commits;
        assert!(!store.stats().is_read_only);
        for image in images {
            let (_, found) = open(image);
            let is_back = found.iter().any(|record| record.key == key(2));
            assert!(!is_back, "call {call} failed");
        }
    }
    assert!(failed > 0, "no commit failed");
}

/// T17: a mark ends when what was removed before it is committed, whatever was put since.
#[test]
fn t17_a_mark_ends_with_what_was_removed_before_it() {
    let disk = SimDisk::new();
    let (store, _) = open(disk.clone());
    keep(&store, 1, 5000);
    assert_eq!(store.mark().unwrap(), None, "all is committed");
    disk.stop(Stop::Writes);
    store.remove(key(1));
    store.commit_removals();
    let mark = store.mark().unwrap().expect("the removal is not committed");
    put(&store, 2, 5000).unwrap();
    assert!(!store.has_ended(mark));
    disk.stop(Stop::Nothing);
    let start = std::time::Instant::now();
    // There is always something that is not committed.
    for number in 3.. {
        if store.has_ended(mark) {
            break;
        }
        assert!(start.elapsed() < LONG);
        put(&store, number, 5000).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(store);
    let (_, found) = open(disk.after_crash(&mut fastrand::Rng::with_seed(1)));
    assert!(!found.iter().any(|record| record.key == key(1)));
}
