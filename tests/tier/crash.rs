//! The power goes, or the disk fails, at each single call.
use crate::runs::runs;
use crate::sim::{Fault, SimDisk, Stop, When};
use crate::story::{Fate, Story, dropped_by, open};
use crate::support::*;
use radixkv::tier::{DiskStore, LowerStore, OpenError};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `RKV_TIER_SEED`, or one of the clock; printed when the test fails.
fn first_seed() -> u64 {
    let given = std::env::var("RKV_TIER_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| fastrand::u64(..1 << 32))
}

fn with_seeds(count: u64, test: impl Fn(u64, &mut fastrand::Rng)) {
    let first = first_seed();
    for number in 0..count {
        let seed = first + number;
        let mut random = fastrand::Rng::with_seed(seed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(number, &mut random))) {
            println!("RKV_TIER_SEED={seed}, run {number}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn must_open(disk: &SimDisk) -> (DiskStore, radixkv::tier::FoundRecords) {
    open(disk).unwrap_or_else(|error| panic!("{error}"))
}

/// Four lives one after the other; each ends with the power going at some call, of which the first
/// ones open the store.
#[test]
fn t05_after_a_crash_at_any_call_all_that_was_committed_is_there() {
    let calls_max = 400;
    with_seeds(runs(150), |number, random| {
        let mut disk = SimDisk::new();
        let mut story = Story::default();
        for life in 0..4 {
            let at = if life == 0 { number * 3 % calls_max } else { random.u64(..calls_max) };
            disk.crash_at(at);
            if let Ok((store, _)) = open(&disk) {
                while !disk.has_crashed() {
                    story.go_on(&store, 5, random);
                }
            }
            disk = disk.after_crash(random);
            let (store, found) = must_open(&disk);
            story.check(&store, &found);
            // It is as good as any other.
            story.go_on(&store, 10, random);
            story.flush(&store);
            assert_eq!(story.fates.values().filter(|fate| **fate == Fate::Dropped).count(), 0);
            story.end(&store);
        }
    });
}

/// A process that makes a directory is killed at any call, the next one goes on with what is there
/// and commits, and then the power goes.
#[test]
fn t05_what_a_killed_process_began_to_make_is_there_after_a_crash() {
    for at in 0..400 {
        let disk = SimDisk::new();
        disk.fail(Some((When::From(at), Fault::Io)));
        drop(open(&disk));
        disk.fail(None);
        let (store, _) = must_open(&disk);
        keep(&store, 1, 5000);
        for seed in 0..4 {
            let after = disk.after_crash(&mut fastrand::Rng::with_seed(seed));
            let (store, found) = must_open(&after);
            assert_eq!(found.len(), 1, "killed at call {at}");
            assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
        }
    }
}

/// A life from begin to end. What is found is checked unless the disk may refuse to read it.
fn life(
    disk: &SimDisk,
    story: &mut Story,
    checks: bool,
    random: &mut fastrand::Rng,
) -> Result<(), OpenError> {
    let (store, found) = open(disk)?;
    if checks {
        story.check(&store, &found);
    }
    story.go_on(&store, 60, random);
    story.flush(&store);
    story.end(&store);
    let stats = store.stats();
    let counted = dropped_by(&store);
    assert!((story.dropped..=story.dropped + story.withdrawn).contains(&counted), "{counted}");
    assert!(stats.failed_reads <= story.unread);
    assert!(!stats.is_read_only || story.dropped + stats.failed_commits > 0);
    Ok(())
}

#[test]
fn t06_a_fault_at_any_call_harms_nobody() {
    let faults = [Fault::Io, Fault::NoSpace, Fault::Short, Fault::Torn, Fault::Slow];
    let (mut refused, mut dropped) = (0_u64, 0);
    let counts = std::cell::RefCell::new((&mut refused, &mut dropped));
    with_seeds(runs(250), |number, random| {
        let fault = faults[number as usize % faults.len()];
        // A tenth of the calls open the store.
        let at = random.u64(..if number % 4 == 0 { 30 } else { 300 });
        let when = if random.u32(..3) == 0 { When::From(at) } else { When::Once(at) };
        let disk = SimDisk::new();
        let mut story = Story::default();
        if random.bool() {
            // The fault then meets a store that has something.
            let (store, _) = must_open(&disk);
            story.go_on(&store, 20, random);
            story.flush(&store);
            story.end(&store);
        }
        disk.fail(Some((when, fault)));
        let is_opened = life(&disk, &mut story, false, random).is_ok();
        disk.fail(None);
        let mut counts = counts.borrow_mut();
        *counts.0 += u64::from(!is_opened);
        *counts.1 += story.dropped;
        if matches!(fault, Fault::Short | Fault::Slow) {
            assert!(is_opened, "{fault:?} is no failure");
            assert_eq!((story.dropped, story.unread), (0, 0), "{fault:?} is no failure");
        }
        for fate in story.fates.values_mut() {
            // What the caller was told is gone may come back, whole: its bytes are what they were.
            if *fate == Fate::Dropped {
                *fate = Fate::Removed { was_committed: false };
            }
        }
        story.dropped = 0;
        story.unread = 0;
        life(&disk, &mut story, true, random).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!((story.dropped, story.unread), (0, 0));
        // All space comes back.
        let (store, found) = must_open(&disk);
        story.check(&store, &found);
        found.iter().for_each(|record| store.remove(record.key));
        assert!(store.flush(LONG));
        assert_eq!((store.stats().bytes, store.stats().records), (0, 0));
    });
    assert!(
        refused > runs(5) && dropped > runs(20),
        "no fault had a consequence: {refused}, {dropped}"
    );
}

#[test]
fn t06_after_several_failed_commits_it_only_reads() {
    let disk = SimDisk::new();
    let (store, _) = must_open(&disk);
    keep(&store, 1, 5000);
    // Reads of the data go on: only what changes the disk fails.
    disk.fail(Some((When::From(0), Fault::NoSpace)));
    let mut number = 2;
    while !store.stats().is_read_only {
        if put(&store, number, 5000).is_ok() {
            assert!(store.flush(LONG));
        }
        number += 1;
        assert!(number < 1000, "it never gives up");
        // Without these, no record would come as far as a commit.
        if number == 4 {
            disk.fail(None);
            store.remove(key(1));
            disk.fail(Some((When::From(0), Fault::NoSpace)));
        }
        store.remove(key(number + 1));
    }
    assert_eq!(put(&store, 5000, 1), Err(radixkv::tier::Refused::Closed));
    assert!(store.flush(LONG));
    assert!(store.stats().no_space >= 2);
}

/// What the calls return while the disk stands still is not what the disk says, so they return.
#[test]
fn t03_nothing_waits_for_a_disk_that_stands_still() {
    let disk = SimDisk::new();
    let (store, _) = must_open(&disk);
    keep(&store, 1, 5000);
    keep(&store, 2, 5000);
    disk.stop(Stop::Everything);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 3..20 {
                put(&store, number, 5000).unwrap();
                get(&store, 1, 5000).unwrap();
                store.touch(key(1));
                // Time for the workers and the committer to run into the disk.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            store.remove(key(2));
            store.remove(key(5));
            store.remove(key(19));
            assert_eq!(poll(&store), []);
            assert!(!store.has_events());
            assert_eq!(store.stats().records, 1);
            assert!(!store.flush(std::time::Duration::from_millis(5)));
            done.send(()).unwrap();
        });
        let result = is_done.recv_timeout(LONG);
        disk.stop(Stop::Nothing); // or the scope would never end
        result.expect("a call waits for the disk");
    });
    assert!(store.flush(LONG));
    let seen = poll_until(&store, |seen| seen.len() == 15 + 17);
    let committed = seen.iter().filter(|seen| matches!(seen, Seen::Committed(_)));
    assert_eq!(committed.count(), 15);
    assert_eq!(store.stats().records, 16);
}

#[test]
fn t08_reads_do_not_wait_for_writes() {
    let disk = SimDisk::new();
    let (store, _) = must_open(&disk);
    keep(&store, 1, 5000);
    disk.stop(Stop::Writes);
    for number in 2..12 {
        put(&store, number, 10_000).unwrap();
    }
    assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
    assert_eq!(store.stats().records, 1);
    disk.stop(Stop::Nothing);
    assert!(store.flush(LONG));
    assert_eq!(store.stats().records, 11);
}

#[test]
fn t06_a_directory_that_vanishes_is_noticed() {
    let disk = SimDisk::new();
    let (store, _) = must_open(&disk);
    keep(&store, 1, 5000);
    disk.vanish();
    put(&store, 2, 5000).unwrap();
    assert!(store.flush(LONG));
    assert_eq!(poll(&store), [Seen::Dropped(key(2), radixkv::tier::Dropped::Io)]);
    assert!(store.stats().is_read_only);
    assert_eq!(put(&store, 3, 1), Err(radixkv::tier::Refused::Closed));
    assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
}
