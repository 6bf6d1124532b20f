//! What was committed is there when the store is opened again.
use crate::sim::{Fault, SimDisk, When};
use crate::support::*;
use radixkv::tier::{DiskConfig, DiskStore, FoundRecords, LowerStore, Refused};

fn numbers(found: &FoundRecords) -> Vec<u64> {
    found
        .into_iter()
        .map(|record| u64::from_le_bytes(record.key[..8].try_into().unwrap()))
        .collect()
}

#[test]
fn t05_a_restart_finds_all_in_the_order_of_use() {
    let folder = Folder::new();
    let store = folder.open(16 * MIB);
    for number in 0..20 {
        put(&store, number, 1000 * number as usize + 1).unwrap();
    }
    assert!(store.flush(LONG));
    store.touch(key(3));
    store.touch(key(0));
    store.touch(key(99));
    store.remove(key(7));
    drop(store);
    let (store, found) = DiskStore::open(folder.config(16 * MIB)).unwrap();
    let mut expected: Vec<u64> = (0..20).filter(|n| ![0, 3, 7].contains(n)).collect();
    expected.extend([3, 0]);
    assert_eq!(numbers(&found), expected);
    let mut cost = 0;
    for record in &found {
        let number = u64::from_le_bytes(record.key[..8].try_into().unwrap());
        let bytes = 1000 * number as usize + 1;
        assert_eq!((record.bytes, &*record.note), (bytes as u64, &*note(number)));
        assert_eq!(load(&store, number, bytes), Ok(content(number, bytes)));
        cost += store.cost(record.bytes, record.note.len());
    }
    assert_eq!((store.stats().bytes, store.stats().records), (cost, 19));
    assert_eq!(get(&store, 7, 7001), Err(Refused::Missing));
    // New uses come after old ones.
    keep(&store, 100, 1);
    drop(store);
    let found = DiskStore::open(folder.config(16 * MIB)).unwrap().1;
    assert_eq!(numbers(&found).last(), Some(&100));
}

#[test]
fn t05_what_was_not_committed_does_not_come_back() {
    let folder = Folder::new();
    let mut config = folder.config(MIB);
    config.commit_interval = LONG;
    let store = DiskStore::open(config).unwrap().0;
    keep(&store, 1, 10);
    put(&store, 2, 10).unwrap();
    store.remove(key(2));
    assert!(store.flush(LONG));
    assert_eq!(poll(&store), []);
    store.remove(key(1));
    drop(store);
    assert!(DiskStore::open(folder.config(MIB)).unwrap().1.is_empty());
}

#[test]
fn t10_a_smaller_bound_drops_what_was_used_least() {
    let folder = Folder::new();
    let store = folder.open(17 * MIB);
    for number in 0..16 {
        put(&store, number, MIB as usize - 100).unwrap();
    }
    assert!(store.flush(LONG));
    (0..4).for_each(|number| store.touch(key(number)));
    drop(store);
    let (store, found) = DiskStore::open(folder.config(8 * MIB + 500)).unwrap();
    assert_eq!(numbers(&found), [12, 13, 14, 15, 0, 1, 2, 3]);
    let data = std::fs::metadata(folder.path().join("data")).unwrap().len();
    assert_eq!(data, 8 * MIB);
    for number in numbers(&found) {
        let bytes = MIB as usize - 100;
        assert!(load(&store, number, bytes) == Ok(content(number, bytes)), "{number}");
    }
    assert_eq!(put(&store, 20, 5000), Err(Refused::Full));
    drop(store);
    let (store, found) = DiskStore::open(folder.config(9 * MIB)).unwrap();
    assert_eq!(found.len(), 8);
    keep(&store, 20, 5000);
}

/// So many that several threads read them, in another order than they were used in.
#[test]
fn t05_a_restart_finds_many_records_in_the_order_of_use() {
    const COUNT: u64 = 34_000;
    let (folder, all) = (Folder::new(), 160 * MIB);
    let mut config = folder.config(all);
    config.commit_interval = LONG;
    let store = DiskStore::open(config).unwrap().0;
    for number in 0..COUNT {
        put(&store, number, 1 + number as usize % 3).unwrap();
    }
    assert!(store.flush(LONG));
    poll(&store);
    let used: Vec<u64> = (0..COUNT).step_by(997).collect();
    used.iter().for_each(|&number| store.touch(key(number)));
    let gone: Vec<u64> = (5..COUNT).step_by(1009).collect();
    gone.iter().for_each(|&number| store.remove(key(number)));
    drop(store);
    let mut expected: Vec<u64> = (0..COUNT).filter(|number| number % 997 > 0).collect();
    expected.extend(used);
    expected.retain(|number| !gone.contains(number));

    let (store, found) = DiskStore::open(folder.config(all)).unwrap();
    assert!(numbers(&found) == expected);
    for record in &found {
        let number = u64::from_le_bytes(record.key[..8].try_into().unwrap());
        assert_eq!((record.bytes, &*record.note), (1 + number % 3, &*note(number)));
    }
    for &number in expected.iter().step_by(500) {
        let bytes = 1 + number as usize % 3;
        assert_eq!(load(&store, number, bytes), Ok(content(number, bytes)));
    }
    // What was found gives its space back as any other does.
    let before = store.stats().bytes;
    expected[..100].iter().for_each(|&number| store.remove(key(number)));
    assert!(store.flush(LONG));
    (0..100).for_each(|number| keep(&store, COUNT + number, 1));
    let notes = |numbers: &[u64]| numbers.iter().map(|&n| note(n).len() as u64).sum::<u64>();
    let new: Vec<u64> = (COUNT..COUNT + 100).collect();
    assert_eq!(store.stats().bytes + notes(&expected[..100]), before + notes(&new));
    drop(store);
    expected.drain(..100);
    expected.extend(new);
    // A smaller bound has room for those that were used last.
    let found = DiskStore::open(folder.config(all / 2)).unwrap().1;
    let numbers = numbers(&found);
    assert!(numbers.len() > COUNT as usize / 2 && numbers.len() < expected.len());
    assert!(numbers == expected[expected.len() - numbers.len()..]);
}

/// T06, T10: a directory on a disk that is full is opened with a smaller bound, which is what makes
/// room: what can't be copied to the front of the file goes.
#[test]
fn t06_a_smaller_bound_is_kept_on_a_disk_that_is_full() {
    let disk = SimDisk::new();
    let config = |bytes| DiskConfig::new("", bytes, FINGERPRINT);
    let open = |bytes| DiskStore::open_on(Box::new(disk.clone()), config(bytes)).unwrap();
    let bytes = MIB as usize - 100;
    let store = open(17 * MIB).0;
    (0..16).for_each(|number| put(&store, number, bytes).unwrap());
    assert!(store.flush(LONG));
    (0..8).for_each(|number| store.remove(key(number)));
    assert!(store.flush(LONG));
    drop(store);
    // Room for all eight, of which one lies before the end.
    disk.fail(Some((When::From(0), Fault::DataFull)));
    let (store, found) = open(9 * MIB);
    assert_eq!(numbers(&found), [8]);
    assert_eq!(load(&store, 8, bytes), Ok(content(8, bytes)));
    drop(store);
    disk.fail(None);
    // Bytes of the others are not there any more.
    let (store, found) = open(9 * MIB);
    assert_eq!(numbers(&found), [8]);
    keep(&store, 50, bytes);
}
