//! Requests by io_uring, and by threads where it is not to be had: the same store.
use crate::sim::SimDisk;
use crate::support::*;
use radixkv::tier::{DiskConfig, DiskStore, Dropped, Io, LowerStore};
use std::fs::File;
use std::io::Write;
use std::process::Command;

const FOLDER: &str = "RKV_TIER_RING";
/// Of one piece, of several, of one and a bit.
const SIZES: [usize; 5] = [1, 4096, 5000, 2 << 20, (5 << 20) + 7];

fn open(folder: &Folder, io: Io) -> DiskStore {
    let mut config = folder.config(64 * MIB);
    config.io = io;
    DiskStore::open(config).unwrap().0
}

/// Whether this system has it at all; says so past the harness if not.
fn has_ring() -> bool {
    let has = open(&Folder::new(), Io::Auto).stats().is_ring;
    if !has {
        let reason = b"SKIP requests by io_uring: this system refuses rings\n";
        std::io::stderr().write_all(reason).unwrap();
    }
    has
}

/// T02: what one way has written the other one reads.
#[test]
fn t02_rings_and_threads_read_each_other() {
    has_ring(); // or it is said that threads do it
    let folder = Folder::new();
    let ways = [(Io::Ring, Io::Threads), (Io::Threads, Io::Ring), (Io::Auto, Io::Auto)];
    for (writing, reading) in ways {
        let store = open(&folder, writing);
        assert!(!store.stats().is_ring || writing != Io::Threads);
        for (number, &bytes) in SIZES.iter().enumerate() {
            put(&store, number as u64, bytes).unwrap();
        }
        assert!(store.flush(LONG));
        assert_eq!(poll(&store).len(), SIZES.len());
        drop(store);
        let store = open(&folder, reading);
        for (number, &bytes) in SIZES.iter().enumerate() {
            let number = number as u64;
            assert_eq!(load(&store, number, bytes), Ok(content(number, bytes)));
            store.remove(key(number));
        }
        assert!(store.flush(LONG));
    }
}

/// T06: with more reads than a ring has places, all come back; a damaged one alone fails.
#[test]
fn t06_a_ring_has_many_reads_and_one_is_damaged() {
    has_ring(); // or it is said that threads do it
    let folder = Folder::new();
    let store = open(&folder, Io::Ring);
    for number in 0..40 {
        put(&store, number, 300_000).unwrap();
    }
    assert!(store.flush(LONG));
    poll(&store);
    drop(store);
    let path = folder.path().join("data");
    let mut bytes = std::fs::read(&path).unwrap();
    let wanted = content(17, 300_000);
    let place = bytes.windows(64).position(|at| at == &wanted[..64]).unwrap();
    bytes[place + 1000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = open(&folder, Io::Ring);
    for number in 0..40 {
        get(&store, number, 300_000).unwrap();
    }
    let mut loaded = 0;
    while loaded < 40 {
        for seen in poll(&store) {
            if let Seen::Loaded(_, key_of, result) = seen {
                let number = (0..40).find(|&number| key(number) == key_of).unwrap();
                assert_eq!(result.is_ok(), number != 17, "{number}");
                assert!(result.is_err() || result == Ok(content(number, 300_000)));
                loaded += 1;
            }
        }
        std::thread::yield_now();
    }
    assert_eq!((store.stats().damaged, store.stats().reads), (1, 39));
}

/// T06: what a ring cannot write is lost as what a thread can't, and each piece of it is counted
/// once: there is no room, or the system refuses the request.
#[test]
fn t06_a_ring_whose_writes_fail() {
    if !has_ring() {
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let refusing = File::open("/dev/null").unwrap(); // for reading
    for (file, why) in [(full, Dropped::NoSpace), (refusing, Dropped::Io)] {
        let disk = SimDisk::new();
        keep(&crate::story::open(&disk).unwrap().0, 1, 5000);
        disk.write_to(file);
        let config = DiskConfig::new("", 64 * MIB, FINGERPRINT);
        let store = DiskStore::open_on(Box::new(disk.clone()), config).unwrap().0;
        assert!(store.stats().is_ring);
        for (number, bytes) in [(2, 5000), (3, 40 << 20), (4, 1)] {
            put(&store, number, bytes).unwrap();
        }
        assert!(store.flush(LONG));
        let seen = poll(&store);
        let lost = |number| Seen::Dropped(key(number), why);
        assert!(seen.len() == 3 && (2..5).all(|number| seen.contains(&lost(number))), "{seen:?}");
        let stats = store.stats();
        let lost = if why == Dropped::Io { stats.failed_writes } else { stats.no_space };
        assert_eq!((lost, stats.records, stats.waiting_bytes), (3, 1, 0));
        assert_eq!(load(&store, 1, 5000), Ok(content(1, 5000)));
        store.remove(key(1));
        assert!(store.flush(LONG));
        assert_eq!(store.stats().bytes, 0, "all space comes back");
    }
}

/// Has the system refuse a call to all threads of this process from now on, as a container's filter
/// does.
fn refuse(call: libc::c_long) {
    let filter =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut program = [
        // The number of the call is the first word of what the filter sees.
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        filter(libc::BPF_RET | libc::BPF_K, refused, 0, 0),
        filter(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program is there during the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, all, &program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// T06: where the system refuses rings, threads do it, and the statistics say so.
#[test]
fn t06_a_filter_that_refuses_rings() {
    if std::env::var(FOLDER).is_ok() {
        refuse(libc::SYS_io_uring_setup);
        let folder = Folder::new();
        let store = open(&folder, Io::Ring);
        assert!(!store.stats().is_ring);
        keep(&store, 1, 5_000_000);
        assert_eq!(load(&store, 1, 5_000_000), Ok(content(1, 5_000_000)));
        return;
    }
    if !has_ring() {
        return;
    }
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["t06_a_filter_that_refuses_rings", "--nocapture"])
        .env(FOLDER, "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// T06: where the system refuses a ring that it gave, a thread goes on, and the statistics say so.
#[test]
fn t06_a_ring_that_is_refused_later() {
    if std::env::var(FOLDER).is_ok() {
        let folder = Folder::new();
        let store = open(&folder, Io::Auto);
        assert!(store.stats().is_ring);
        refuse(libc::SYS_io_uring_enter);
        // What the ring has in hand is lost, at most.
        put(&store, 1, 5000).unwrap();
        assert!(store.flush(LONG));
        poll(&store);
        keep(&store, 2, 5_000_000);
        assert_eq!(load(&store, 2, 5_000_000), Ok(content(2, 5_000_000)));
        assert!(!store.stats().is_ring);
        return;
    }
    if !has_ring() {
        return;
    }
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["t06_a_ring_that_is_refused_later", "--nocapture"])
        .env(FOLDER, "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
