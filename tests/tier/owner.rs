//! One owner per directory, of one version and one model.
use crate::support::*;
use radixkv::tier::{Contents, DiskStore, OpenError};

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
