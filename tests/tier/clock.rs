//! Clocks that jump, and files that say they are of another century: nothing here asks them.
use crate::support::*;
use radixkv::tier::{DiskStore, LowerStore};
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, SystemTime};

const FOLDER: &str = "RKV_TIER_JUMPS";

/// In front of the C library: each look at the clock of the wall finds another year, and the other
/// clock has gone on by seconds, as after a suspended machine woke up.
const CLOCK: &str = r"
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static atomic_long looks;
    long done = syscall(SYS_clock_gettime, clock, now);
    long look = atomic_fetch_add(&looks, 1);
    if (clock == CLOCK_REALTIME) {
        now->tv_sec += (look % 3 - 1) * 1000000000L;
    } else {
        now->tv_sec += look * 3;
    }
    return (int)done;
}
";

/// What runs under that clock.
fn live(folder: &str) {
    let before = SystemTime::now();
    let years = (0..6).map(|_| SystemTime::now()).any(|now| {
        now.duration_since(before).unwrap_or_else(|early| early.duration()).as_secs() > 100_000_000
    });
    assert!(years, "the clock does not jump");
    let mut config = radixkv::tier::DiskConfig::new(folder, MIB, FINGERPRINT);
    config.workers = 2;
    let (store, found) = DiskStore::open(config).unwrap();
    assert!(found.len() <= 30);
    for number in 100..130 {
        put(&store, number, 5000).unwrap();
        while !store.flush(LONG) {} // a minute passes with a few looks at the clock
        assert_eq!(load_after(&store, number), Ok(content(number, 5000)));
    }
    (0..30).for_each(|number| store.touch(key(number)));
}

/// Reads a record, whatever other events come.
fn load_after(store: &DiskStore, number: u64) -> Result<Vec<u8>, radixkv::tier::LoadError> {
    let ticket = get(store, number, 5000).unwrap();
    loop {
        for seen in poll(store) {
            match seen {
                Seen::Loaded(of, _, result) if of == ticket => return result,
                Seen::Committed(_) => {}
                other => panic!("{other:?}"),
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn t06_clocks_that_jump() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return live(&folder);
    }
    let folder = Folder::new();
    let store = folder.open(MIB);
    (0..30).for_each(|number| put(&store, number, 5000).unwrap());
    assert!(store.flush(LONG));
    drop(store);
    // Files of the past and of the future.
    for (file, seconds) in [("data", 1), ("records.redb", 9_000_000_000), ("format", 0)] {
        let file = File::options().write(true).open(folder.path().join(file)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clock::t06_clocks_that_jump", "--nocapture"])
        .env(FOLDER, folder.path())
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}{text}", String::from_utf8_lossy(&done.stdout));
    // All is there, in the order of use.
    let (store, found) = DiskStore::open(folder.config(MIB)).unwrap();
    let order: Vec<u64> = found.iter().map(|record| crate::story::number_of(&record.key)).collect();
    assert_eq!(order, (100..130).chain(0..30).collect::<Vec<_>>());
    for number in order {
        assert_eq!(load(&store, number, 5000), Ok(content(number, 5000)));
    }
}
