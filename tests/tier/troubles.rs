//! Disks that are full, cannot be written to, or take seconds.
use crate::sim::{Fault, SimDisk, When};
use crate::story::open;
use crate::support::*;
use radixkv::tier::{DiskStore, Dropped, LowerStore, OpenError, Refused};
use std::process::Command;
use std::time::{Duration, Instant};

const FOLDER: &str = "RKV_TIER_SMALL_DISK";

#[test]
fn t06_a_read_only_disk_is_refused_and_says_so() {
    let disk = SimDisk::new();
    keep(&open(&disk).unwrap().0, 1, 5000);
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    let error = open(&disk).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }));
    let text = error.to_string();
    assert!(text.contains("Read-only") && text.contains("can be written to"), "{text}");
    disk.fail(None);
    let (store, found) = open(&disk).unwrap();
    assert_eq!((found.len(), load(&store, 1, 5000)), (1, Ok(content(1, 5000))));
}

#[test]
fn t06_what_a_disk_has_is_read_when_it_cannot_be_written_any_more() {
    let disk = SimDisk::new();
    let (store, _) = open(&disk).unwrap();
    keep(&store, 1, 5000);
    keep(&store, 2, 5000);
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    for number in 3..6 {
        put(&store, number, 5000).unwrap();
        assert!(store.flush(LONG));
        assert_eq!(poll(&store), [Seen::Dropped(key(number), Dropped::Io)]);
    }
    // A removal that can't be committed holds only here, and only until a restart.
    store.remove(key(2));
    assert!(store.flush(LONG) || store.stats().is_read_only);
    assert_eq!(get(&store, 2, 5000), Err(Refused::Missing));
    assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
    let stats = store.stats();
    assert_eq!((stats.failed_writes, stats.no_space, stats.records), (3, 0, 1));
    drop(store);
    disk.fail(None);
    let (store, found) = open(&disk).unwrap();
    assert_eq!(found.len(), 2);
    keep(&store, 7, 5000);
}

/// Each write, growth and sync takes a second; nobody but the disk's own threads notices.
#[test]
fn t06_a_disk_that_takes_a_second_for_a_write() {
    let disk = SimDisk::new();
    let (store, _) = open(&disk).unwrap();
    keep(&store, 1, 5000);
    disk.fail(Some((When::From(0), Fault::SlowWrites)));
    let start = Instant::now();
    for number in 2..6 {
        put(&store, number, 5000).unwrap();
        assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
    }
    store.touch(key(1));
    assert!(!store.flush(Duration::ZERO));
    store.remove(key(3));
    assert_eq!(poll(&store), []);
    let stats = store.stats();
    // Four reads that waited for writes would have taken longer, on the busiest machine too.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!((stats.records, stats.writes), (1, 1));
    assert!(stats.waiting_bytes >= 5000 && stats.bytes > stats.waiting_bytes);
    assert!(store.flush(LONG));
    assert_eq!((poll(&store).len(), store.stats().records), (3, 4));
    assert!(store.stats().commit_nanoseconds_max > 1_000_000_000);
    disk.fail(None);
    for number in [2, 4, 5] {
        assert_eq!(load(&store, number, 5000), Ok(content(number, 5000)));
    }
}

fn allow_file_bytes(bytes: Option<u64>) {
    let limit = bytes.unwrap_or(libc::RLIM_INFINITY);
    // SAFETY: numbers, and a struct that is read and written as long as the calls run.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut now = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut now), 0);
        now.rlim_cur = limit;
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &now), 0);
    }
}

fn all_are_there(store: &DiskStore, numbers: &[u64]) {
    for &number in numbers {
        assert!(load(store, number, 1 << 20) == Ok(content(number, 1 << 20)), "{number}");
    }
}

/// A real file system that has no more room: what a file may be is limited for a process of its
/// own, in which this runs.
fn fill_a_disk(folder: &str) {
    let config = || {
        let mut config = radixkv::tier::DiskConfig::new(folder, 64 * MIB, FINGERPRINT);
        config.commit_interval = Duration::from_millis(5);
        config.workers = 2;
        config
    };
    allow_file_bytes(Some(8 * MIB));
    let (store, _) = DiskStore::open(config()).unwrap();
    let (mut kept, mut lost) = (Vec::new(), 0);
    for number in 0..20 {
        put(&store, number, 1 << 20).unwrap();
        assert!(store.flush(LONG));
        match &poll(&store)[..] {
            [Seen::Committed(_)] => kept.push(number),
            [Seen::Dropped(_, Dropped::NoSpace)] => lost += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(kept.len() >= 4 && lost > 4, "{kept:?}");
    let stats = store.stats();
    assert_eq!((stats.no_space, stats.records), (lost, kept.len() as u64));
    all_are_there(&store, &kept);
    // What goes makes room.
    store.remove(key(kept[0]));
    assert!(store.flush(LONG));
    put(&store, 50, 1 << 20).unwrap();
    assert!(store.flush(LONG));
    assert_eq!(poll(&store), [Seen::Committed(key(50))]);
    drop(store);
    kept.remove(0);
    let (store, found) = DiskStore::open(config()).unwrap();
    assert_eq!(found.len(), kept.len() + 1);
    // And so does whoever tidies up.
    allow_file_bytes(None);
    (60..70).for_each(|number| put(&store, number, 1 << 20).unwrap());
    assert!(store.flush(LONG));
    assert_eq!(store.stats().records, kept.len() as u64 + 11);
    poll(&store);
    all_are_there(&store, &kept);
}

#[test]
fn t06_a_full_disk() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return fill_a_disk(&folder);
    }
    let folder = Folder::new();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "troubles::t06_a_full_disk", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}{text}", String::from_utf8_lossy(&done.stdout));
}

const ELSEWHERE: &str = "RKV_TIER_ELSEWHERE";

/// A path means what it meant at first, wherever the process goes.
#[test]
fn t06_a_process_that_goes_elsewhere_keeps_its_directory() {
    if let Ok(folder) = std::env::var(ELSEWHERE) {
        std::fs::create_dir_all(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        let mut config = radixkv::tier::DiskConfig::new("store", MIB, FINGERPRINT);
        config.commit_interval = Duration::from_millis(5);
        let (store, _) = DiskStore::open(config).unwrap();
        keep(&store, 1, 5000);
        std::env::set_current_dir("/").unwrap();
        keep(&store, 2, 5000);
        assert!(!store.stats().is_read_only);
        return;
    }
    let folder = Folder::new();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "troubles::t06_a_process_that_goes_elsewhere_keeps_its_directory"])
        .env(ELSEWHERE, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// T06: a disk that is full for a moment is not given up, though somebody waits for a commit.
#[test]
fn t06_a_disk_that_is_full_for_a_moment_is_not_given_up() {
    // On a busy machine all tries may be over before there is room. Not each time.
    assert!((0..10).any(|_| outlasts_a_full_moment()), "it is given up");
}

/// Whether a store is still written to.
fn outlasts_a_full_moment() -> bool {
    let disk = SimDisk::new();
    let (store, _) = open(&disk).unwrap();
    keep(&store, 1, 5000);
    disk.fail(Some((When::From(0), Fault::NoSpace)));
    store.remove(key(1));
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| store.flush(LONG));
        let start = Instant::now();
        while store.stats().failed_commits == 0 && start.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Whoever tries without a pause has given up by then.
        std::thread::sleep(Duration::from_millis(30));
        disk.fail(None);
        let is_flushed = flushed.join().unwrap();
        let stats = store.stats();
        assert!(stats.failed_commits > 0, "{stats:?}");
        assert!(is_flushed || stats.is_read_only, "{stats:?}");
    });
    if store.stats().is_read_only {
        return false;
    }
    keep(&store, 2, 5000);
    true
}
