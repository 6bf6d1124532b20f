//! One owner per directory, of one version and one model.
use crate::sim::SimDisk;
use crate::support::*;
use radixkv::tier::{Contents, DiskConfig, DiskStore, LowerStore, OpenError};
use std::process::Command;

fn refused(folder: &Folder) -> OpenError {
    match DiskStore::open(folder.config(MIB)) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(folder.path().to_str().unwrap()), "{text}");
            error
        }
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn t14_a_directory_has_one_owner() {
    let folder = Folder::new();
    let store = folder.open(MIB);
    assert!(matches!(refused(&folder), OpenError::InUse { .. }));
    keep(&store, 1, 100);
    drop(store);
    let store = folder.open(MIB);
    assert_eq!(load(&store, 1, 100), Ok(content(1, 100)));
}

/// T07, too: what was written for another model is not found.
#[test]
fn t14_another_model_is_refused_and_harms_nothing() {
    let folder = Folder::new();
    keep(&folder.open(MIB), 1, 100);
    let mut other = folder.config(MIB);
    other.fingerprint[31] ^= 1;
    let refused = DiskStore::open(other).map(|_| ());
    assert!(matches!(refused, Err(OpenError::Fingerprint { .. })));
    assert_eq!(load(&folder.open(MIB), 1, 100), Ok(content(1, 100)));
}

/// A directory of pages is not one of snapshots.
#[test]
fn t14_another_kind_of_cache_is_refused_and_harms_nothing() {
    let folder = Folder::new();
    keep(&folder.open(MIB), 1, 100);
    let mut other = folder.config(MIB);
    other.contents = Contents::Pages;
    let refused = DiskStore::open(other).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::Contents { found: "snapshots", .. }), "{refused}");
    assert_eq!(load(&folder.open(MIB), 1, 100), Ok(content(1, 100)));
}

#[test]
fn t14_another_version_is_refused_and_harms_nothing() {
    let folder = Folder::new();
    keep(&folder.open(MIB), 1, 100);
    let file = folder.path().join("format");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("version 3\n"));
    std::fs::write(&file, text.replace("version 3\n", "version 4\nwhatever that has")).unwrap();
    let error = refused(&folder);
    assert!(matches!(error, OpenError::Version { found: 4, .. }), "{error}");
    std::fs::write(&file, text).unwrap();
    assert_eq!(load(&folder.open(MIB), 1, 100), Ok(content(1, 100)));
}

/// A child that was forked and goes on has copies of all files. It is not the owner.
#[test]
fn t14_a_child_that_lives_on_does_not_keep_the_directory() {
    let folder = Folder::new();
    let store = folder.open(MIB);
    keep(&store, 1, 100);
    // SAFETY: the child calls nothing but what may be called there, and ends soon in any case.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            libc::pause();
            libc::_exit(0);
        }
    }
    drop(store);
    let again = DiskStore::open(folder.config(MIB)).map(|(store, _)| load(&store, 1, 100));
    // SAFETY: it is our child, and nobody else waits for it.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert_eq!(again.unwrap(), Ok(content(1, 100)));
}

/// T05: whoever has lost the lock writes nothing more to the file of records, not even when it
/// goes: the file is another one's by now.
#[test]
fn t14_who_has_lost_the_lock_leaves_the_records_to_the_next_owner() {
    let folder = Folder::new();
    let old = folder.open(MIB);
    keep(&old, 1, 5000);
    // As what clears up old files would.
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    let new = folder.open(MIB);
    (2..10).for_each(|number| keep(&new, number, 5000));
    let records = folder.path().join("records.redb");
    let before = std::fs::read(&records).unwrap();
    drop(old);
    assert!(std::fs::read(&records).unwrap() == before, "another owner's file was written to");
    drop(new);
    let store = folder.open(MIB);
    (1..10).for_each(|number| assert_eq!(load(&store, number, 5000), Ok(content(number, 5000))));
}

/// Whoever waits for the lock of a file that goes meanwhile has the next one's, or none.
#[test]
fn t14_the_lock_of_a_file_that_was_removed_is_none() {
    let folder = Folder::new();
    keep(&folder.open(MIB), 1, 100);
    let path = folder.path().join("lock");
    // On a busy machine it may have waited long enough before that. Not each time.
    for _ in 0..10 {
        let mut options = std::fs::File::options();
        let other =
            options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        other.lock().unwrap();
        let opened = std::thread::scope(|scope| {
            let open = scope.spawn(|| DiskStore::open(folder.config(MIB)));
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::fs::remove_file(&path).unwrap();
            other.unlock().unwrap();
            open.join().unwrap()
        });
        if let Ok((store, _)) = opened {
            assert!(matches!(refused(&folder), OpenError::InUse { .. }));
            drop(store);
            return;
        }
    }
    panic!("it was never opened");
}

const NO_THREADS: &str = "RKV_TIER_NO_THREADS";

/// T14: an opening that fails since there is no thread for it has let go of the file of records
/// when it lets go of the lock. In a process of its own, whose threads would have more memory than
/// there is.
#[test]
fn t14_an_opening_without_threads_writes_nothing_without_the_lock() {
    if std::env::var(NO_THREADS).is_ok() {
        let disk = SimDisk::new();
        let config = DiskConfig::new("", MIB, FINGERPRINT);
        let error = DiskStore::open_on(Box::new(disk.clone()), config).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::OutOfMemory { .. }), "{error}");
        assert_eq!(disk.writes_without_lock(), 0, "another one's file was written to");
        return;
    }
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner::t14_an_opening_without_threads_writes_nothing_without_the_lock"])
        .args(["--nocapture", "--test-threads=1"])
        .env(NO_THREADS, "1")
        .env("RUST_MIN_STACK", (1_u64 << 47).to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let is_done = done.status.success() && text.contains("1 passed");
    assert!(is_done, "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// T17: a directory is known again when it is opened again, and told from others: each has its own
/// clears to carry out.
#[test]
fn t17_a_directory_is_told_from_others() {
    let (one, other) = (Folder::new(), Folder::new());
    let identity = |folder: &Folder| folder.open(4 * MIB).identity();
    let known = identity(&one);
    assert!(known.is_some());
    assert_eq!(identity(&one), known);
    assert_ne!(identity(&other), known);
}
