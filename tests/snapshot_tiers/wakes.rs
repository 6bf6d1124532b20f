//! Whoever sleeps until a store says something is woken for the end of his fetch.
use super::failing::{Failure, failing};
use super::folder::Folder;
use super::remote_store::MemoryRemote;
use super::remote_world::{PLAIN, filled, prompt};
use super::world::{BYTES, Part, TAIL, seen};
use radixkv::ids::HandleId;
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{NewSnapshot, SnapshotLimits};
use radixkv::tier::remote::{Answer, Item, RemoteConfig, RemoteStore};
use radixkv::tier::{DiskConfig, DiskStore, Wake};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// What an engine sleeps on: as an eventfd, it is reset by who was woken.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn wake(self: &Arc<Self>) -> Wake {
        let bell = self.clone();
        Box::new(move || {
            *bell.0.lock().unwrap() = true;
            bell.1.notify_all();
        })
    }

    /// False when it did not ring in time.
    fn sleep(&self, most: Duration) -> bool {
        let rung = self.0.lock().unwrap();
        let (mut rung, _) = self.1.wait_timeout_while(rung, most, |rung| !*rung).unwrap();
        std::mem::take(&mut *rung)
    }
}

type Cache = TieredSnapshots<Part>;

/// Takes as an engine does that has nothing else to do.
fn take(cache: &Cache, ticket: HandleId, bell: &Bell) -> Option<u32> {
    let freed = &mut FreedSnapshots::new();
    loop {
        match cache.take(ticket, seen, freed).unwrap() {
            Taken::Pending => assert!(bell.sleep(Duration::from_secs(10)), "nobody woke it"),
            Taken::Missed => return None,
            Taken::Hit(hit) => {
                cache.release(hit.pin, freed).unwrap();
                return Some(hit.value.0);
            }
        }
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

/// T03: 96 commits that nobody has asked for, of records that were removed: a call takes in 16
/// of them, of which nothing is left, and believes that there is nothing more.
#[test]
fn t03_who_sleeps_is_woken_behind_what_the_store_said_of_removed_records() {
    const OTHERS: u32 = 96;
    let (folder, bell) = (Folder::new(), Arc::new(Bell::default()));
    let mut config = DiskConfig::new(folder.path(), 64 << 20, [0; 32]);
    // All others are put before the first of them is committed.
    config.commit_interval = Duration::from_secs(3);
    config.wake = Some(bell.wake());
    let (store, records) = DiskStore::open(config).unwrap();
    let limits = SnapshotLimits { entries: 1, bytes: u64::MAX };
    let cache = Cache::new(limits).unwrap();
    cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
    let freed = &mut FreedSnapshots::new();
    insert(&cache, &[1, 2, 3], 7);
    assert!(cache.flush(LONG, freed));
    cache.tier_stats(freed);
    bell.sleep(Duration::from_millis(100));
    for number in 0..OTHERS {
        insert(&cache, &[100 + number], number);
    }
    assert!(bell.sleep(LONG), "the others are committed");
    // All of them, and no call asks meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    for number in 0..OTHERS {
        assert!(cache.remove(&PLAIN, &[100 + number], freed));
    }
    let fetch = cache.fetch(&PLAIN, &[1, 2, 3], false, freed).unwrap().unwrap();
    // Meanwhile it is read.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(take(&cache, fetch.ticket, &bell), Some(7));
}

/// A store that has heads, and none of the pieces that they name.
struct Hollow(MemoryRemote, Arc<AtomicUsize>);

/// Bytes of a head that is sealed.
const HEAD: usize = 64 + 16 + 16 + 8 * 124;

impl RemoteStore for Hollow {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.0.has(items, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.0.get(items, time);
        for item in items.iter_mut() {
            if item.bytes.len() != HEAD {
                item.answer = Answer::Missing;
            } else if matches!(item.answer, Answer::Done) {
                self.1.fetch_add(1, Relaxed);
            }
        }
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.0.put(items, time);
    }

    fn remove(&self, items: &mut [Item<'_>], _: Duration) {
        // So that the next one finds the head, too.
        items.iter_mut().for_each(|item| item.answer = Answer::Done);
    }
}

/// T03, T11: a thread takes in that a state could not be read, and has told nobody when the fetch
/// ends for that; the one that waits for it looked in between.
#[test]
fn t03_who_sleeps_is_woken_when_another_thread_sees_a_remote_read_fail() {
    let (remote, bell) = (filled(&[100]), Arc::new(Bell::default()));
    let cache = Cache::new(SnapshotLimits { entries: 4, bytes: u64::MAX }).unwrap();
    let heads = Arc::new(AtomicUsize::new(0));
    let config = RemoteConfig {
        store: Box::new(Hollow(remote.clone(), heads.clone())),
        fingerprint: remote.fingerprint,
        timeout: LONG,
        workers: 2,
        waiting_bytes: 1 << 20,
    };
    cache.attach_both(None, Some((config, bell.wake())), TierPolicy::Through).unwrap();
    // Long, so that it takes a while to look what the directory has in its place.
    let asked = prompt(1, 150);
    let (start, end) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !end.load(Relaxed) {
                    cache.tier_stats(&mut FreedSnapshots::new());
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while start.elapsed() < Duration::from_secs(3) {
                let freed = &mut FreedSnapshots::new();
                let fetch = cache.fetch(&PLAIN, &asked, false, freed).unwrap().unwrap();
                assert_eq!(take(&cache, fetch.ticket, &bell), None);
            }
        }));
        end.store(true, Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(heads.load(Relaxed) > 0, "no head was found: HEAD is not its length any more");
}

/// A store that stands still until told, from the first question on or from the first piece.
struct Still(Arc<AtomicBool>, Option<MemoryRemote>);

impl Still {
    fn wait(&self) {
        while !self.0.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl RemoteStore for Still {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        match &self.1 {
            Some(store) => store.has(items, time),
            None => self.wait(),
        }
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        match &self.1 {
            Some(store) if items.iter().all(|item| item.bytes.len() == HEAD) => {
                store.get(items, time);
            }
            _ => self.wait(),
        }
    }

    fn put(&self, _: &mut [Item<'_>], _: Duration) {}

    fn remove(&self, _: &mut [Item<'_>], _: Duration) {}
}

/// T03, T11: a store that does not return keeps a fetch waiting for the time of a call, also when
/// who waits for it sleeps.
#[test]
fn t11_who_sleeps_is_woken_when_the_time_of_a_store_is_over() {
    let remote = filled(&[100]);
    waits_for_a_store_that_stands_still(None, remote.fingerprint);
    let before = remote.inside().counts[1];
    waits_for_a_store_that_stands_still(Some(remote.clone()), remote.fingerprint);
    let heads = remote.inside().counts[1] - before;
    assert!(heads > 0, "no head was read: HEAD is not its length any more");
}

fn waits_for_a_store_that_stands_still(heads: Option<MemoryRemote>, fingerprint: [u8; 32]) {
    let (bell, goes_on) = (Arc::new(Bell::default()), Arc::new(AtomicBool::new(false)));
    let cache = Cache::new(SnapshotLimits { entries: 4, bytes: u64::MAX }).unwrap();
    let config = RemoteConfig {
        store: Box::new(Still(goes_on.clone(), heads)),
        fingerprint,
        timeout: Duration::from_millis(200),
        workers: 2,
        waiting_bytes: 1 << 20,
    };
    cache.attach_both(None, Some((config, bell.wake())), TierPolicy::Through).unwrap();
    let freed = &mut FreedSnapshots::new();
    let fetch = cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
    let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        take(&cache, fetch.ticket, &bell)
    }));
    // The threads are waited for when the cache goes.
    goes_on.store(true, Relaxed);
    assert_eq!(taken.expect("it sleeps for ever"), None);
}

/// Asks for a ticket once, in a moment without memory: nothing comes of it, and who asked goes to
/// sleep. He is woken again, or he would sleep for ever.
fn take_without_memory(cache: &Cache, ticket: HandleId, bell: &Bell) {
    assert!(bell.sleep(LONG), "there is something to be taken");
    let ask = || cache.take(ticket, seen, &mut FreedSnapshots::new());
    let (taken, failed) = failing(Failure::From(0), ask);
    assert!(failed > 0 && matches!(taken, Ok(Taken::Pending)), "{failed} requests failed");
    assert!(bell.sleep(Duration::from_secs(10)), "nobody woke it again");
}

/// M05, T03: the directory says nothing to who sleeps as long as there is something that he was
/// told of: also when he had no memory to take it in.
#[test]
fn m05_who_had_no_memory_for_what_the_disk_said_is_woken_again() {
    let (folder, bell) = (Folder::new(), Arc::new(Bell::default()));
    let open = |wake: Option<Wake>| {
        let mut config = DiskConfig::new(folder.path(), 64 << 20, [0; 32]);
        config.wake = wake;
        let (store, records) = DiskStore::open(config).unwrap();
        let cache = Cache::new(SnapshotLimits { entries: 1, bytes: u64::MAX }).unwrap();
        cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        cache
    };
    let freed = &mut FreedSnapshots::new();
    let before = open(None);
    insert(&before, &[1, 2, 3], 7);
    assert!(before.flush(LONG, freed) && before.detach(LONG, freed));
    drop(before);
    // Nothing was taken in yet, so there is no memory for that either.
    let cache = open(Some(bell.wake()));
    let fetch = cache.fetch(&PLAIN, &[1, 2, 3], false, freed).unwrap().unwrap();
    take_without_memory(&cache, fetch.ticket, &bell);
    assert_eq!(take(&cache, fetch.ticket, &bell), Some(7));
}

/// M05, T11: the same of a store that caches share, which answers once.
#[test]
fn m05_who_had_no_memory_for_an_answer_is_woken_again() {
    let (remote, bell) = (filled(&[100]), Arc::new(Bell::default()));
    let cache = Cache::new(SnapshotLimits { entries: 4, bytes: u64::MAX }).unwrap();
    let config = RemoteConfig {
        store: Box::new(remote.clone()),
        fingerprint: remote.fingerprint,
        timeout: LONG,
        workers: 2,
        waiting_bytes: 1 << 20,
    };
    cache.attach_both(None, Some((config, bell.wake())), TierPolicy::Through).unwrap();
    let freed = &mut FreedSnapshots::new();
    let fetch = cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
    take_without_memory(&cache, fetch.ticket, &bell);
    assert_eq!(take(&cache, fetch.ticket, &bell), Some(100));
}
