//! Clocks that jump, and files that say they are of another century: nothing here asks them.
use crate::jumps;
use crate::support::*;
use radixkv::tier::{DiskStore, LowerStore};
use std::fs::File;
use std::time::{Duration, SystemTime};

const FOLDER: &str = "RKV_TIER_JUMPS";

/// What runs under that clock.
fn live(folder: &str) {
    jumps::check();
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
    jumps::run(folder.path(), "clock::t06_clocks_that_jump", FOLDER, 3);
    // All is there, in the order of use.
    let (store, found) = DiskStore::open(folder.config(MIB)).unwrap();
    let order: Vec<u64> = found.iter().map(|record| crate::story::number_of(&record.key)).collect();
    assert_eq!(order, (100..130).chain(0..30).collect::<Vec<_>>());
    for number in order {
        assert_eq!(load(&store, number, 5000), Ok(content(number, 5000)));
    }
}
