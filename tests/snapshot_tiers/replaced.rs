//! What took the place of something comes from a store that caches share, and what it took the
//! place of does not; nor does what can't be there.
use super::memory_store::MemoryStore;
use super::remote_store::MemoryRemote;
use super::remote_world::{PLAIN, World, filled, prompt};
use super::world::{BYTES, Cache, Part, TAIL, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy};
use radixkv::snapshot::{NewSnapshot, SnapshotLimits};
use radixkv::tier::remote::RemoteConfig;
use radixkv::tier::{LowerStore, Wake};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// T13: ids that are no text match nothing: what comes before them is found, and nothing else; to
/// remove such a list removes nothing.
#[test]
fn t13_ids_that_are_no_text_match_nothing() {
    let remote = filled(&[70]);
    for at in [10, 100, 199] {
        let world = World::new(&remote);
        let mut tokens = prompt(1, 200);
        tokens[at] = u32::MAX;
        let freed = &mut FreedSnapshots::new();
        assert!(!world.cache.remove(&PLAIN, &tokens, freed));
        let found = Some((70, 70)).filter(|_| at >= 70);
        assert_eq!(world.bring(&tokens), found, "{at}");
        assert_eq!(world.cache.probe(&PLAIN, &tokens), found.map_or(0, |(tokens, _)| tokens));
    }
}

/// T12, T13: what another state took the place of doesn't come back from the store, to nobody.
#[test]
fn t12_what_was_replaced_does_not_come_back_from_the_store() {
    let (remote, tokens) = (MemoryRemote::new(), prompt(1, 100));
    let world = World::new(&remote);
    for version in [1, 2] {
        world.insert(&tokens, version);
        world.settle();
    }
    // Memory has four entries.
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
        world.settle();
    }
    assert_eq!(world.cache.probe(&PLAIN, &tokens), 0);
    assert_eq!(world.bring(&tokens), Some((100, 2)));
    assert_eq!(World::new(&remote).bring(&tokens), Some((100, 2)));
}

/// T12, T13: nor does what was replaced in the directory, when memory had let it go.
#[test]
fn t12_what_was_replaced_in_the_directory_does_not_come_back_from_the_store() {
    let (remote, tokens) = (MemoryRemote::new(), prompt(1, 100));
    let store = MemoryStore::new(1 << 20, 64);
    let world = World::with(&remote, Some(store), TierPolicy::Through);
    world.insert(&tokens, 1);
    world.settle();
    // Memory has four entries.
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
        world.settle();
    }
    assert_eq!(world.cache.probe(&PLAIN, &tokens), 0);
    world.insert(&tokens, 2);
    world.settle();
    assert_eq!(World::new(&remote).bring(&tokens), Some((100, 2)));
}

/// T12, T13: what comes from the store does not take the place of what was computed meanwhile, when
/// memory has let that go.
#[test]
fn t12_what_comes_late_does_not_replace_what_the_directory_got_meanwhile() {
    let remote = filled(&[100]);
    let store = MemoryStore::new(1 << 20, 64);
    let world = World::with(&remote, Some(store), TierPolicy::Through);
    let freed = &mut FreedSnapshots::new();
    let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
    world.insert(&prompt(1, 100), 7);
    // Memory has four entries.
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
    }
    assert_eq!(world.cache.probe(&PLAIN, &prompt(1, 150)), 0);
    world.work();
    let hit = loop {
        match world.cache.take(fetch.ticket, seen, freed).unwrap() {
            Taken::Pending => world.work(),
            Taken::Missed => panic!("the directory has it"),
            Taken::Hit(hit) => break hit,
        }
    };
    assert_eq!((hit.tokens, hit.next_token, hit.value.0), (100, Some(7), 7));
    world.cache.release(hit.pin, freed).unwrap();
}

/// T10, T13: what the store had no room for is given to it when it leaves memory, also when the
/// directory has it.
#[test]
fn t10_what_the_store_had_no_room_for_is_given_to_it_later_with_a_directory_too() {
    for has_disk in [false, true] {
        let remote = MemoryRemote::new();
        let store = has_disk.then(|| MemoryStore::new(1 << 20, 64));
        let world = World::with(&remote, store, TierPolicy::Through);
        // As many as may wait.
        for family in 2..10 {
            world.insert(&prompt(family, 10), family);
        }
        world.insert(&prompt(1, 100), 1);
        assert_eq!(world.stats().counters.not_offered, 1);
        world.settle();
        // Memory has four entries.
        for family in 10..14 {
            world.insert(&prompt(family, 10), family);
            world.settle();
        }
        assert_eq!(World::new(&remote).bring(&prompt(1, 150)), Some((100, 1)), "{has_disk}");
    }
}

/// T13: what is read is not thrown away for a shorter one that is removed meanwhile.
#[test]
fn t13_what_is_read_comes_while_a_shorter_one_is_removed() {
    for steps in 2..4 {
        let remote = filled(&[100]);
        let world = World::new(&remote);
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
        // Marks, lengths: it is known which one comes. The head: it is read next.
        for _ in 0..steps {
            assert!(world.cache.work_remote());
            world.stats();
        }
        assert!(!world.cache.remove(&PLAIN, &prompt(1, 50), freed), "it is not there");
        let hit = loop {
            match world.cache.take(fetch.ticket, seen, freed).unwrap() {
                Taken::Pending => world.settle(),
                Taken::Missed => panic!("another one was removed, after {steps} steps"),
                Taken::Hit(hit) => break hit,
            }
        };
        assert_eq!((hit.tokens, hit.value.0), (100, 100));
        world.cache.release(hit.pin, freed).unwrap();
    }
}

fn insert(cache: &Cache, tokens: &[u32], version: u32) {
    let new = NewSnapshot {
        namespace: &PLAIN,
        tokens,
        bytes: BYTES,
        next_token: Some(version),
        is_trimmable: false,
    };
    let parts = [version.to_le_bytes().to_vec(), vec![version as u8; TAIL]];
    let state = || Part { parts, alive: Arc::new(AtomicUsize::new(1)) };
    let freed = &mut FreedSnapshots::new();
    cache.insert(new, Some(&[4, TAIL as u64]), state, freed).unwrap();
}

/// T12, T13: of two inserts at once the store has the one that came last, as memory has.
#[test]
fn t12_an_insert_replaces_what_came_after_it_had_looked() {
    let (remote, store) = (MemoryRemote::new(), MemoryStore::new(1 << 20, 64));
    let limits = SnapshotLimits { entries: 4, bytes: u64::MAX };
    let cache = Arc::new(Cache::new(limits).unwrap());
    let config = RemoteConfig {
        store: Box::new(remote.clone()),
        fingerprint: remote.fingerprint,
        timeout: remote.timeout,
        workers: 0,
        waiting_bytes: 8 * BYTES,
    };
    let nothing: Wake = Box::new(|| {});
    let disk: (Box<dyn LowerStore>, _) = (Box::new(store.clone()), store.records());
    cache.attach_both(Some(disk), Some((config, nothing)), TierPolicy::Through).unwrap();
    let known = Arc::downgrade(&cache);
    // The other one comes when this one has looked, and has locked nothing.
    store.when_asked(move || insert(&known.upgrade().unwrap(), &prompt(1, 100), 1));
    insert(&cache, &prompt(1, 100), 2);
    while cache.work_remote() {}
    let freed = &mut FreedSnapshots::new();
    let found = cache.find(&PLAIN, &prompt(1, 100), false, seen, freed).unwrap().hit.unwrap();
    assert_eq!(found.value, (2, false), "memory has the later one");
    cache.release(found.pin, freed).unwrap();
    assert_eq!(World::new(&remote).bring(&prompt(1, 150)), Some((100, 2)));
    cache.detach(Duration::ZERO, freed);
}

/// T12, T13: also when that has left memory again by then.
#[test]
fn t12_an_insert_replaces_below_what_came_and_went_after_it_had_looked() {
    let (remote, store) = (MemoryRemote::new(), MemoryStore::new(1 << 20, 64));
    let limits = SnapshotLimits { entries: 1, bytes: u64::MAX };
    let cache = Arc::new(Cache::new(limits).unwrap());
    let config = RemoteConfig {
        store: Box::new(remote.clone()),
        fingerprint: remote.fingerprint,
        timeout: remote.timeout,
        workers: 0,
        waiting_bytes: 1 << 20,
    };
    let nothing: Wake = Box::new(|| {});
    let disk: (Box<dyn LowerStore>, _) = (Box::new(store.clone()), store.records());
    cache.attach_both(Some(disk), Some((config, nothing)), TierPolicy::Through).unwrap();
    let known = Arc::downgrade(&cache);
    store.when_asked(move || {
        let cache = known.upgrade().unwrap();
        insert(&cache, &prompt(1, 100), 1);
        // Memory has room for one.
        insert(&cache, &prompt(2, 100), 3);
    });
    insert(&cache, &prompt(1, 100), 2);
    while cache.work_remote() {}
    assert_eq!(World::new(&remote).bring(&prompt(1, 150)), Some((100, 2)));
    cache.detach(Duration::ZERO, &mut FreedSnapshots::new());
}

/// T13: nor for one that was here, of which more was asked for.
#[test]
fn t13_a_question_goes_on_while_what_was_known_is_removed() {
    for steps in 0..4 {
        let remote = filled(&[100]);
        let world = World::new(&remote);
        world.insert(&prompt(1, 50), 50);
        world.settle();
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
        for _ in 0..steps {
            assert!(world.cache.work_remote());
            world.stats();
        }
        assert!(world.cache.remove(&PLAIN, &prompt(1, 50), freed));
        let hit = loop {
            match world.cache.take(fetch.ticket, seen, freed).unwrap() {
                Taken::Pending => world.settle(),
                Taken::Missed => panic!("another one was removed, after {steps} steps"),
                Taken::Hit(hit) => break hit,
            }
        };
        assert_eq!((hit.tokens, hit.value.0), (100, 100));
        world.cache.release(hit.pin, freed).unwrap();
    }
}
