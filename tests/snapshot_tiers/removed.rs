//! What was removed does not come back: from the store that caches share neither, whatever that is
//! just doing.
use super::failing::{Failure, failing};
use super::folder::Folder;
use super::remote_store::{MemoryRemote, Mood};
use super::remote_world::{PLAIN, World, prompt};
use super::world::{BYTES, Part, TAIL, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{NewSnapshot, SnapshotLimits};
use radixkv::tier::remote::{Item, RemoteConfig, RemoteStore};
use radixkv::tier::{DiskConfig, DiskStore, FoundRecords};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn new_cache() -> TieredSnapshots<Part> {
    TieredSnapshots::new(SnapshotLimits { entries: 4, bytes: u64::MAX }).unwrap()
}

fn insert(cache: &TieredSnapshots<Part>, tokens: &[u32], version: u32) {
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

fn wait(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The version of what a fetch brings.
fn bring(cache: &TieredSnapshots<Part>, tokens: &[u32]) -> Option<u32> {
    let freed = &mut FreedSnapshots::new();
    let fetch = cache.fetch(&PLAIN, tokens, false, freed).unwrap()?;
    loop {
        match cache.take(fetch.ticket, seen, freed).unwrap() {
            Taken::Pending => std::thread::sleep(Duration::from_millis(1)),
            Taken::Missed => return None,
            Taken::Hit(hit) => {
                cache.release(hit.pin, freed).unwrap();
                return Some(hit.value.0);
            }
        }
    }
}

/// A store whose writes and removals stand still until told.
#[derive(Clone)]
struct Gated {
    inner: MemoryRemote,
    is_open: Arc<AtomicBool>,
    /// How many have begun.
    writes: Arc<AtomicUsize>,
}

impl Gated {
    fn new(is_open: bool) -> Self {
        let is_open = Arc::new(AtomicBool::new(is_open));
        Self { inner: MemoryRemote::new(), is_open, writes: Arc::default() }
    }

    fn stand_still(&self) {
        self.writes.fetch_add(1, SeqCst);
        wait("the gate", || self.is_open.load(SeqCst));
    }
}

impl RemoteStore for Gated {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.inner.has(items, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.inner.get(items, time);
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.stand_still();
        self.inner.put(items, time);
    }

    fn remove(&self, items: &mut [Item<'_>], time: Duration) {
        self.stand_still();
        self.inner.remove(items, time);
    }
}

/// T17: a state is removed while one of several threads writes it.
#[test]
fn t17_what_was_removed_on_its_way_to_a_store_does_not_come_back() {
    let remote = Gated::new(false);
    let cache = new_cache();
    let config = RemoteConfig {
        store: Box::new(remote.clone()),
        fingerprint: [1; 32],
        timeout: LONG,
        workers: 2,
        waiting_bytes: 1 << 20,
    };
    let freed = &mut FreedSnapshots::new();
    cache.attach_both(None, Some((config, Box::new(|| {}))), TierPolicy::Through).unwrap();
    let tokens = prompt(1, 100);
    insert(&cache, &tokens, 7);
    wait("a write", || remote.writes.load(SeqCst) > 0);
    assert!(cache.remove(&PLAIN, &tokens, freed));
    // The other thread could remove it now, before it is there.
    std::thread::sleep(Duration::from_millis(50));
    remote.is_open.store(true, SeqCst);
    assert!(cache.flush(LONG, freed));
    assert_eq!(bring(&cache, &prompt(1, 150)), None);
}

/// T17, T12: nor while the store still has it, since what came before is being written, or since a
/// removal takes a while; what another one took the place of neither.
#[test]
fn t17_what_waits_to_be_removed_from_a_store_does_not_come_back() {
    for (is_replaced, is_behind) in [(false, true), (false, false), (true, true), (true, false)] {
        let (remote, cache) = (Gated::new(true), new_cache());
        let config = RemoteConfig {
            store: Box::new(remote.clone()),
            fingerprint: [1; 32],
            timeout: LONG,
            workers: 1,
            waiting_bytes: 1 << 20,
        };
        let freed = &mut FreedSnapshots::new();
        cache.attach_both(None, Some((config, Box::new(|| {}))), TierPolicy::Through).unwrap();
        let (tokens, shorter) = (prompt(1, 100), prompt(1, 90));
        insert(&cache, &shorter, 6);
        insert(&cache, &tokens, 7);
        assert!(cache.flush(LONG, freed));
        remote.is_open.store(false, SeqCst);
        let before = remote.writes.load(SeqCst);
        let wait_for_thread = || wait("a write", || remote.writes.load(SeqCst) > before);
        if is_behind {
            insert(&cache, &prompt(2, 100), 8);
            wait_for_thread();
        }
        match is_replaced {
            true => insert(&cache, &tokens, 9),
            false => assert!(cache.remove(&PLAIN, &tokens, freed)),
        }
        wait_for_thread();
        // Memory has four entries.
        (3..7).for_each(|family| insert(&cache, &prompt(family, 10), family));
        assert_eq!(cache.probe(&PLAIN, &tokens), 0);
        let came = bring(&cache, &prompt(1, 150));
        remote.is_open.store(true, SeqCst);
        // What is shorter was not removed.
        assert_eq!(came, Some(6), "replaced: {is_replaced}, behind: {is_behind}");
        assert!(cache.flush(LONG, freed));
        assert_eq!(cache.probe(&PLAIN, &prompt(1, 150)), 90, "{is_replaced}, {is_behind}");
        assert_eq!(bring(&cache, &prompt(1, 150)), is_replaced.then_some(9), "{is_behind}");
    }
}

/// A store during each removal of which another state is removed.
struct Renewing {
    inner: MemoryRemote,
    cache: Weak<TieredSnapshots<Part>>,
    is_on: Arc<AtomicBool>,
}

impl RemoteStore for Renewing {
    fn has(&self, items: &mut [Item<'_>], time: Duration) {
        self.inner.has(items, time);
    }

    fn get(&self, items: &mut [Item<'_>], time: Duration) {
        self.inner.get(items, time);
    }

    fn put(&self, items: &mut [Item<'_>], time: Duration) {
        self.inner.put(items, time);
    }

    fn remove(&self, items: &mut [Item<'_>], time: Duration) {
        if self.is_on.load(SeqCst)
            && let Some(cache) = self.cache.upgrade()
        {
            cache.remove(&PLAIN, &prompt(9, 10), &mut FreedSnapshots::new());
        }
        std::thread::sleep(Duration::from_millis(1));
        self.inner.remove(items, time);
    }
}

/// T17: who flushes does not wait for what is removed meanwhile.
#[test]
fn t17_a_flush_does_not_wait_for_what_a_store_is_asked_to_remove_meanwhile() {
    let (cache, is_on) = (Arc::new(new_cache()), Arc::new(AtomicBool::new(true)));
    let (known, flag) = (Arc::downgrade(&cache), is_on.clone());
    let config = RemoteConfig {
        store: Box::new(Renewing { inner: MemoryRemote::new(), cache: known, is_on: flag }),
        fingerprint: [1; 32],
        timeout: LONG,
        workers: 1,
        waiting_bytes: 1 << 20,
    };
    let freed = &mut FreedSnapshots::new();
    cache.attach_both(None, Some((config, Box::new(|| {}))), TierPolicy::Through).unwrap();
    let tokens = prompt(1, 100);
    insert(&cache, &tokens, 7);
    assert!(cache.flush(LONG, freed));
    assert!(cache.remove(&PLAIN, &tokens, freed));
    let is_gone = cache.flush(Duration::from_secs(5), freed);
    is_on.store(false, SeqCst);
    assert!(is_gone, "it was removed long ago");
    assert!(cache.detach(LONG, freed));
}

/// T17: a state is removed while the store doesn't answer, and is left alone.
#[test]
fn t17_what_was_removed_from_a_dead_store_does_not_come_back() {
    for early in [false, true] {
        let remote = MemoryRemote::new();
        let world = World::new(&remote);
        let tokens = prompt(1, 100);
        world.insert(&tokens, 7);
        world.settle();
        remote.set(Mood::Dead);
        let remove = || {
            assert!(world.cache.remove(&PLAIN, &tokens, &mut FreedSnapshots::new()));
            // One call at most, so that it may be the one that fails first.
            world.cache.work_remote();
        };
        if early {
            remove();
        }
        for family in 2..6 {
            world.insert(&prompt(family, 10), family);
            world.settle();
        }
        assert!(world.stats().remote.is_paused);
        if !early {
            // Four others took its place in memory: there is nothing to be seen of it here.
            world.cache.remove(&PLAIN, &tokens, &mut FreedSnapshots::new());
        }
        world.settle();
        remote.set(Mood::Good);
        world.wait_for_pause();
        world.settle();
        assert_eq!(world.bring(&prompt(1, 150)), None, "it was removed, early: {early}");
    }
}

fn open(folder: &Folder) -> (DiskStore, FoundRecords) {
    DiskStore::open(DiskConfig::new(folder.path(), 64 << 20, [0; 32])).unwrap()
}

/// T17, M05: without memory for a removal nobody is told that it is done.
#[test]
fn t17_a_removal_without_memory_is_not_said_to_be_done() {
    // The last one is never reached.
    for failure in [Failure::Once(0), Failure::Once(1), Failure::From(0), Failure::Once(1 << 20)] {
        let folder = Folder::new();
        let cache = new_cache();
        let (store, records) = open(&folder);
        cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        let freed = &mut FreedSnapshots::new();
        insert(&cache, &[1, 2, 3], 7);
        assert!(cache.flush(LONG, freed));
        cache.tier_stats(freed);
        let (removed, failed) = failing(failure, || cache.remove(&PLAIN, &[1, 2, 3], freed));
        assert!(removed);
        let time = if failed > 0 { Duration::from_secs(2) } else { LONG };
        let is_gone = cache.detach(time, freed);
        assert!(is_gone || failed > 0, "{failure:?}: nothing failed, and it is not done");
        drop(cache);
        assert!(!is_gone || open(&folder).1.is_empty(), "{failure:?}: it came back");
    }
}

/// T17, M05: it is tried again when there is memory, and a flush waits for that.
#[test]
fn t17_a_flush_waits_for_a_removal_that_had_no_memory() {
    let folder = Folder::new();
    let cache = new_cache();
    let (store, records) = open(&folder);
    cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
    let freed = &mut FreedSnapshots::new();
    insert(&cache, &[1, 2, 3], 7);
    assert!(cache.flush(LONG, freed));
    cache.tier_stats(freed);
    let (removed, failed) = failing(Failure::From(0), || cache.remove(&PLAIN, &[1, 2, 3], freed));
    assert!(removed && failed > 0);
    assert!(cache.flush(LONG, freed));
    drop(cache);
    assert!(open(&folder).1.is_empty(), "it came back");
}

/// M05: a call that has no memory for what the store says returns all the same.
#[test]
fn m05_calls_return_without_memory_for_events() {
    let folder = Folder::new();
    let (store, records) = open(&folder);
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let cache = new_cache();
        cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        let freed = &mut FreedSnapshots::new();
        insert(&cache, &[1, 2, 3], 7);
        // Until the store has something to say; no call has asked it.
        std::thread::sleep(Duration::from_millis(1000));
        let find = || cache.find(&PLAIN, &[9], false, |_| (), &mut FreedSnapshots::new()).is_ok();
        let (found, failed) = failing(Failure::From(0), find);
        assert!(found || failed > 0);
        assert!(cache.flush(LONG, freed));
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).expect("the call returns");
}

/// T17, M05: a removal from the store that caches share needs no memory.
#[test]
fn t17_what_was_removed_without_memory_does_not_come_back_from_the_store() {
    for failure in [Failure::Once(0), Failure::Once(1), Failure::From(0)] {
        let remote = MemoryRemote::new();
        let world = World::new(&remote);
        let tokens = prompt(1, 100);
        world.insert(&tokens, 7);
        world.settle();
        let freed = &mut FreedSnapshots::new();
        let (removed, _) = failing(failure, || world.cache.remove(&PLAIN, &tokens, freed));
        assert!(removed);
        world.settle();
        assert_eq!(World::new(&remote).bring(&prompt(1, 150)), None, "{failure:?}");
    }
}

/// T17: while a store is left alone that has what was removed, a flush does not say it is gone.
#[test]
fn t17_a_flush_does_not_say_that_a_dead_store_has_removed_something() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    let tokens = prompt(1, 100);
    world.insert(&tokens, 7);
    world.settle();
    remote.set(Mood::Dead);
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
        world.settle();
    }
    assert!(world.stats().remote.is_paused);
    let freed = &mut FreedSnapshots::new();
    world.cache.remove(&PLAIN, &tokens, freed);
    assert!(!world.cache.flush(Duration::ZERO, freed), "the store has it");
    remote.set(Mood::Good);
    world.wait_for_pause();
    world.settle();
    assert!(world.cache.flush(Duration::ZERO, freed));
    assert_eq!(world.bring(&prompt(1, 150)), None);
}

/// T17: what a store refuses to remove is not asked for any more in the end; a flush does not say
/// that it is gone.
#[test]
fn t17_a_flush_does_not_say_that_what_a_store_refuses_to_remove_is_gone() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    let tokens = prompt(1, 100);
    world.insert(&tokens, 7);
    world.settle();
    remote.set(Mood::Keeps);
    let freed = &mut FreedSnapshots::new();
    world.cache.remove(&PLAIN, &tokens, freed);
    world.settle();
    assert_eq!(world.bring(&prompt(1, 150)), None, "it is asked for again");
    let start = Instant::now();
    while world.stats().remote.waiting > 0 {
        assert!(start.elapsed() < LONG, "it is asked for ever");
        world.settle();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!world.cache.flush(Duration::ZERO, freed), "the store has it");
    assert_eq!(World::new(&remote).bring(&prompt(1, 150)), Some((100, 7)));
}

/// T17: what is removed when a detach has flushed already is not said to be gone.
#[test]
fn t17_a_detach_does_not_forget_what_is_removed_meanwhile_and_say_it_is_gone() {
    let (remote, cache) = (MemoryRemote::new(), Arc::new(new_cache()));
    let (tokens, meddles) = (prompt(1, 100), Arc::new(AtomicBool::new(false)));
    let (other, is_on, gone) = (Arc::downgrade(&cache), meddles.clone(), tokens.clone());
    // Called by the detach, when it has seen that nothing waits to be written or removed.
    let wake = move || {
        if is_on.swap(false, SeqCst)
            && let Some(cache) = other.upgrade()
        {
            let gone = gone.clone();
            let remove = move || cache.remove(&PLAIN, &gone, &mut FreedSnapshots::new());
            assert!(std::thread::spawn(remove).join().unwrap());
        }
    };
    let config = RemoteConfig {
        store: Box::new(remote.clone()),
        fingerprint: [1; 32],
        timeout: LONG,
        workers: 0,
        waiting_bytes: 1 << 20,
    };
    let freed = &mut FreedSnapshots::new();
    cache.attach_both(None, Some((config, Box::new(wake))), TierPolicy::Through).unwrap();
    insert(&cache, &tokens, 7);
    while cache.work_remote() {}
    // The answer that nothing is there waits for a call, which then wakes whoever asked.
    assert!(cache.fetch(&PLAIN, &prompt(2, 150), false, freed).unwrap().is_some());
    assert!(cache.work_remote());
    meddles.store(true, SeqCst);
    assert!(!cache.detach(Duration::ZERO, freed), "the store has it");
    assert!(!meddles.load(SeqCst) && !remote.inside().values.is_empty());
}
