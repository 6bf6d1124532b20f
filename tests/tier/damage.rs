//! Files that are not what was written, and directories that are none.
use crate::support::*;
use radixkv::tier::{DiskConfig, DiskStore, Dropped, LoadError, LowerStore, OpenError};
use std::fs;
use std::os::unix::fs::FileExt;

const COUNT: u64 = 30;

fn bytes_of(number: u64) -> usize {
    1 + number as usize * 997
}

/// A store with some records, closed.
fn made() -> Folder {
    let folder = Folder::new();
    let store = folder.open(4 * MIB);
    (0..COUNT).for_each(|number| put(&store, number, bytes_of(number)).unwrap());
    assert!(store.flush(LONG));
    folder
}

/// Opens it, if it lets itself be opened, and reads all: each record is there with its bytes, or
/// is said to be damaged. Returns how many are there, and why it was not opened.
fn read_all(folder: &Folder) -> Result<u64, OpenError> {
    let (store, found) = DiskStore::open(folder.config(4 * MIB))?;
    let mut good = 0;
    for record in &found {
        let number = u64::from_le_bytes(record.key[..8].try_into().unwrap());
        assert_eq!((record.bytes, &*record.note), (bytes_of(number) as u64, &*note(number)));
        match load(&store, number, bytes_of(number)) {
            Ok(bytes) => {
                assert!(bytes == content(number, bytes_of(number)));
                good += 1;
            }
            Err(why) => assert_eq!(why, LoadError::Damaged),
        }
    }
    assert_eq!(good + store.stats().damaged, COUNT);
    keep_if_there_is_room(&store);
    Ok(good)
}

fn keep_if_there_is_room(store: &DiskStore) {
    poll(store);
    keep(store, 1000, 5000);
    assert_eq!(load(store, 1000, 5000), Ok(content(1000, 5000)));
}

#[test]
fn t06_bytes_that_changed_are_told_and_dropped() {
    let folder = made();
    let data = fs::OpenOptions::new().write(true).open(folder.path().join("data")).unwrap();
    // The first record has the first unit, the second one the next.
    data.write_all_at(&[content(1, 1)[0] ^ 1], 4096).unwrap();
    let store = folder.open(4 * MIB);
    let before = store.stats();
    assert_eq!(load(&store, 0, 1), Ok(content(0, 1)));
    let ticket = get(&store, 1, bytes_of(1)).unwrap();
    let seen = poll_until(&store, |seen| seen.len() == 2);
    assert_eq!(
        seen,
        [
            Seen::Loaded(ticket, key(1), Err(LoadError::Damaged)),
            Seen::Dropped(key(1), Dropped::Damaged)
        ]
    );
    assert!(get(&store, 1, bytes_of(1)).is_err());
    assert!(store.flush(LONG));
    let after = store.stats();
    assert_eq!((after.damaged, after.records), (1, before.records - 1));
    assert!(after.bytes < before.bytes);
    drop(store);
    assert_eq!(DiskStore::open(folder.config(4 * MIB)).unwrap().1.len() as u64, COUNT - 1);
}

#[test]
fn t06_garbage_in_any_file_is_found() {
    for name in ["format", "records.redb", "data", "lock"] {
        for length in [0, 1, 100, 4096, 3 << 20] {
            let folder = made();
            fs::write(folder.path().join(name), content(99, length)).unwrap();
            match read_all(&folder) {
                // Of that one nothing but its being locked is of interest.
                Ok(good) if name == "lock" => assert_eq!(good, COUNT),
                Ok(good) => assert!(name == "data" && good == 0, "{name}: {good} of {length}"),
                Err(OpenError::Damaged { what, .. }) => assert!(name != "data", "{what}"),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

#[test]
fn t06_any_page_of_the_records_may_be_garbage() {
    let folder = made();
    let file = folder.path().join("records.redb");
    let whole = fs::read(&file).unwrap();
    let (mut refused, mut lost) = (0, 0);
    let mut random = fastrand::Rng::with_seed(5);
    for page in 0..whole.len().div_ceil(4096).min(64) {
        let mut bytes = whole.clone();
        let end = bytes.len().min((page + 1) * 4096);
        if random.bool() {
            random.fill(&mut bytes[page * 4096..end]);
        } else {
            bytes[page * 4096..end].fill(0);
        }
        fs::write(&file, bytes).unwrap();
        match read_all(&folder) {
            Ok(good) => lost += u64::from(good < COUNT),
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("page {page}: {error}"),
        }
        fs::remove_dir_all(folder.path()).unwrap();
        let store = folder.open(4 * MIB);
        (0..COUNT).for_each(|number| put(&store, number, bytes_of(number)).unwrap());
        assert!(store.flush(LONG));
    }
    assert!(refused > 0, "{refused}, {lost}");
}

#[test]
fn t06_files_that_are_missing() {
    let gone = |name: &str| {
        let folder = made();
        fs::remove_file(folder.path().join(name)).unwrap();
        folder
    };
    assert_eq!(DiskStore::open(gone("lock").config(4 * MIB)).unwrap().1.len() as u64, COUNT);
    let error = DiskStore::open(gone("format").config(4 * MIB)).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let (store, found) = DiskStore::open(gone("data").config(4 * MIB)).unwrap();
    assert_eq!((found.len(), store.stats().damaged), (0, COUNT));
    let folder = gone("records.redb");
    let (store, found) = DiskStore::open(folder.config(4 * MIB)).unwrap();
    assert!(found.is_empty());
    keep_if_there_is_room(&store);
}

#[test]
fn t06_a_directory_that_cannot_be_made_is_named() {
    let folder = made();
    let below = folder.path().join("format").join("store");
    let error = DiskStore::open(DiskConfig::new(&below, MIB, FINGERPRINT)).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }));
    assert!(error.to_string().contains(below.to_str().unwrap()), "{error}");
    for file in [folder.path().join("data"), below] {
        let error = DiskStore::open(DiskConfig::new(&file, MIB, FINGERPRINT)).map(|_| ());
        let text = error.unwrap_err().to_string().to_lowercase();
        assert!(text.contains("not a directory"), "{text}");
    }
}

/// Somebody else's folder is not called a damaged store, to be emptied, and nothing is put into it.
#[test]
fn t06_a_folder_of_somebody_else_stays_as_it_is() {
    for name in ["data", "records.redb", "format"] {
        for bytes in ["x", "notes that are longer than any title"] {
            let folder = Folder::new();
            fs::create_dir(folder.path()).unwrap();
            let file = folder.path().join(name);
            fs::write(&file, bytes).unwrap();
            let error = DiskStore::open(folder.config(4 * MIB)).map(|_| ()).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, OpenError::Foreign { file, .. } if file == name), "{text}");
            assert!(!text.contains("empty") && text.contains(name), "{text}");
            assert_eq!(fs::read(&file).unwrap(), bytes.as_bytes());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}

#[test]
fn t06_a_directory_removed_below_a_store() {
    let folder = made();
    let store = folder.open(4 * MIB);
    fs::remove_dir_all(folder.path()).unwrap();
    put(&store, 500, 100).unwrap();
    assert!(store.flush(LONG));
    assert_eq!(poll(&store), [Seen::Dropped(key(500), Dropped::Io)]);
    assert!(store.stats().is_read_only);
    assert_eq!(load(&store, 3, bytes_of(3)), Ok(content(3, bytes_of(3))));
    drop(store);
    assert!(DiskStore::open(folder.config(4 * MIB)).unwrap().1.is_empty());
}

/// T06: several pages of the records are garbage at once, and the bound may be smaller, so that
/// opening changes the file: it says what is wrong, and nothing panics.
#[test]
fn t06_opening_a_directory_with_several_pages_of_garbage_never_panics() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let folder = made();
    let names = ["format", "records.redb", "data", "lock"];
    let files = names.map(|name| fs::read(folder.path().join(name)).unwrap());
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..200 {
        for (name, bytes) in names.iter().zip(&files) {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let mut bytes = files[1].clone();
        let pages = bytes.len() / 4096;
        // The first one is the header, without which nothing is looked at.
        for _ in 0..random.usize(1..6) {
            let page = random.usize(1..pages);
            let page = &mut bytes[page * 4096..(page + 1) * 4096];
            if random.bool() { random.fill(page) } else { page.fill(0) }
        }
        fs::write(folder.path().join("records.redb"), bytes).unwrap();
        let bound = if random.bool() { 4 * MIB } else { 64 << 10 };
        let open = || DiskStore::open(folder.config(bound)).map(|_| ());
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(()) | Err(OpenError::Damaged { .. })) => {}
            Ok(Err(error)) => panic!("round {round}: {error}"),
            Err(_) => panic!("round {round}: opening it panicked"),
        }
    }
}

/// T06: where others may write, a link is not followed: what it leads to stays as it is.
#[test]
fn t06_a_link_in_the_place_of_a_file_is_not_followed() {
    for name in ["format.new", "data", "records.redb", "lock"] {
        let folder = if name == "format.new" { Folder::new() } else { made() };
        let (path, other) = (folder.path().join(name), Folder::new());
        fs::create_dir_all(folder.path()).unwrap();
        fs::create_dir_all(other.path()).unwrap();
        let file = other.path().join("other");
        fs::write(&file, content(99, 10_000)).unwrap();
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(&file, &path).unwrap();
        let opened = DiskStore::open(folder.config(4 * MIB)).map(|_| ());
        assert!(fs::read(&file).unwrap() == content(99, 10_000), "{name} was followed");
        assert!(matches!(opened, Err(OpenError::Io { .. })), "{name}: {opened:?}");
    }
}

/// T06: prompts can be read from what is there, so it is its owner's alone.
#[test]
fn t06_nobody_else_reads_what_is_there() {
    use std::os::unix::fs::PermissionsExt;
    let folder = made();
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain([folder.path().to_owned()]) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}

/// T06, T17: where a damaged file does not lead from a key to its row any more, removing it does
/// nothing: nobody is told that it is gone.
#[test]
fn t06_what_a_damaged_file_does_not_remove_is_not_said_to_be_gone() {
    let folder = Folder::new();
    let store = folder.open(4 * MIB);
    (0..200).for_each(|number| put(&store, number, 100).unwrap());
    assert!(store.flush(LONG));
    drop(store);
    let path = folder.path().join("records.redb");
    let mut bytes = fs::read(&path).unwrap();
    // Pages that lead to others begin with 2. Each key in them is the last one of the page before
    // it: with the number before that it leads elsewhere.
    let mut lost = Vec::new();
    for page in bytes.chunks_mut(4096).filter(|page| page[0] == 2) {
        for at in 0..page.len().saturating_sub(31) {
            let number = u64::from(page[at]);
            if number > 0 && page[at..at + 32] == key(number) {
                page[at] -= 1;
                lost.push(number);
            }
        }
    }
    assert!(!lost.is_empty(), "all rows lie in one page");
    fs::write(&path, bytes).unwrap();
    let store = match DiskStore::open(folder.config(4 * MIB)) {
        Ok((store, _)) => store,
        Err(OpenError::Damaged { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    lost.iter().for_each(|&number| store.remove(key(number)));
    let is_gone = store.flush(LONG) && !store.stats().is_read_only;
    drop(store);
    if !is_gone {
        return;
    }
    let found = DiskStore::open(folder.config(4 * MIB)).unwrap().1;
    for record in &found {
        let is_back = lost.iter().any(|&number| record.key == key(number));
        assert!(!is_back, "{:?} was said to be gone", &record.key[..8]);
    }
}
