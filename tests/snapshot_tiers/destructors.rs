//! A state is the caller's, and so is what runs when it goes: that happens while the library holds
//! no lock, whoever lets go of it last.
use crate::failing::{Failure, failing, suspended};
use crate::memory_store::MemoryStore;
use crate::remote_store::{MemoryRemote, Mood};
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::Source;
use radixkv::tier::remote::{Question, Remote, RemoteConfig};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

const A: &[u32] = &[1, 2, 3];
const C: &[u32] = &[7];
const BYTES: u64 = 32;
/// What a call of another thread takes that waits for a lock.
const LONG: Duration = Duration::from_secs(10);

/// What one takes that does not.
const SHORT: Duration = Duration::from_millis(200);

/// What is called by another thread when a state goes.
type Use = Box<dyn Fn() + Send + Sync>;

/// States that went, and those of them during whose end another thread had to wait.
#[derive(Default)]
struct Watch {
    uses: OnceLock<Use>,
    went: AtomicUsize,
    stuck: AtomicUsize,
}

impl Watch {
    fn seen(&self) -> (usize, usize) {
        (self.went.load(Relaxed), self.stuck.load(Relaxed))
    }
}

/// A state that looks, when it goes, whether other threads can use what it was given to.
struct Watched {
    bytes: Vec<u8>,
    watch: Arc<Watch>,
}

impl Watched {
    fn new(watch: &Arc<Watch>) -> Self {
        Self { bytes: vec![1; BYTES as usize], watch: watch.clone() }
    }
}

impl Source for Watched {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let watch = self.watch.clone();
        let is_stuck = suspended(|| {
            let (done, is_done) = mpsc::channel();
            std::thread::spawn(move || {
                if let Some(uses) = watch.uses.get() {
                    uses();
                }
                // Whoever waited may have given up.
                let _ = done.send(());
            });
            is_done.recv_timeout(LONG).is_err()
        });
        self.watch.stuck.fetch_add(is_stuck as usize, Relaxed);
        self.watch.went.fetch_add(1, Relaxed);
    }
}

type Cache = TieredSnapshots<Watched>;

/// A cache over a store, and its states' watch: they try all that takes a lock of the cache.
fn world(entries: usize, store: &MemoryStore, policy: TierPolicy) -> (Arc<Cache>, Arc<Watch>) {
    let cache = TieredSnapshots::new(SnapshotLimits { entries, bytes: u64::MAX }).unwrap();
    cache.attach(Box::new(store.clone()), store.records(), policy).unwrap();
    let (cache, watch) = (Arc::new(cache), Arc::new(Watch::default()));
    let weak: Weak<Cache> = Arc::downgrade(&cache);
    let uses = move || {
        let Some(cache) = weak.upgrade() else { return };
        // Nobody may be in a call for this one, which is refused.
        assert!(cache.attach_both(None, None, policy).is_err());
        remove(&cache, &[1000]);
    };
    watch.uses.set(Box::new(uses)).ok().expect("it was not set");
    (cache, watch)
}

fn insert(cache: &Cache, watch: &Arc<Watch>, tokens: &[u32]) {
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens,
        bytes: BYTES,
        next_token: None,
        is_trimmable: false,
    };
    let freed = &mut FreedSnapshots::new();
    cache.insert(new, Some(&[BYTES]), || Watched::new(watch), freed).unwrap();
}

fn remove(cache: &Cache, tokens: &[u32]) -> bool {
    cache.remove(&Namespace::default(), tokens, &mut FreedSnapshots::new())
}

/// Another thread removes a state while the next write is being thought of.
fn remove_meanwhile(cache: &Arc<Cache>, store: &MemoryStore, tokens: &'static [u32]) {
    let cache = cache.clone();
    store.when_asked(move || {
        let other = std::thread::spawn(move || assert!(remove(&cache, tokens)));
        other.join().unwrap();
    });
}

/// The same of several, the last one first, one for each write that is thought of.
fn remove_each(cache: &Arc<Cache>, store: &MemoryStore, mut lists: Vec<&'static [u32]>) {
    let Some(tokens) = lists.pop() else { return };
    let (cache, again) = (cache.clone(), store.clone());
    let (done, is_done) = mpsc::channel();
    let go = move || {
        remove(&cache, tokens);
        remove_each(&cache, &again, lists);
        // Whoever waited may have given up.
        let _ = done.send(());
    };
    store.when_asked(move || {
        suspended(|| {
            std::thread::spawn(go);
            // A call that has no memory to think of one write asks in the middle of the next.
            let _ = is_done.recv_timeout(SHORT);
        });
    });
}

/// S07: another thread removes the state that is about to leave memory.
#[test]
fn s07_a_state_that_another_thread_let_go_of_during_an_eviction() {
    let store = MemoryStore::new(8 * BYTES, usize::MAX);
    let (cache, watch) = world(1, &store, TierPolicy::OnEviction);
    insert(&cache, &watch, A);
    remove_meanwhile(&cache, &store, A);
    insert(&cache, &watch, C);
    assert_eq!(watch.seen(), (1, 0));
    assert_eq!(cache.stats().entries, 1);
}

/// S07: another thread removes the state of which a write is tried again.
#[test]
fn s07_a_state_that_another_thread_let_go_of_during_a_write() {
    // No room for a second write at once.
    let store = MemoryStore::new(8 * BYTES, 1);
    let (cache, watch) = world(4, &store, TierPolicy::Through);
    insert(&cache, &watch, A);
    insert(&cache, &watch, C);
    while store.write(0, None) {}
    store.commit();
    remove_meanwhile(&cache, &store, C);
    let stats = cache.tier_stats(&mut FreedSnapshots::new()).unwrap();
    assert_eq!((watch.seen(), stats.entries), ((1, 0), 1));
}

/// S07, T13: writes are given up because the store doesn't answer, or because it is closed.
#[test]
fn s07_states_that_wait_for_a_dead_store() {
    let store = MemoryRemote::new();
    store.set(Mood::Dead);
    let config = RemoteConfig {
        store: Box::new(store.clone()),
        fingerprint: [1; 32],
        timeout: Duration::from_secs(60),
        workers: 0,
        waiting_bytes: 8 * BYTES,
    };
    let remote = Arc::new(Remote::start(config, Box::new(|| {})).unwrap());
    let watch = Arc::new(Watch::default());
    let weak = Arc::downgrade(&remote);
    let uses = move || assert!(weak.upgrade().is_none_or(|remote| remote.stats().failed > 0));
    watch.uses.set(Box::new(uses)).ok().expect("it was not set");
    let put = |number| remote.put([number; 32], Box::new(Watched::new(&watch))).unwrap();
    let fail = || {
        remote.ask(Question::Each, 1, vec![[9; 32]]).unwrap();
        remote.work();
    };
    fail();
    fail();
    put(1);
    put(2);
    // The third question in a row that fails comes before the writes.
    fail();
    assert!(remote.is_paused());
    assert_eq!((watch.seen(), remote.stats().skipped), ((2, 0), 2));
    // After the pause.
    while remote.is_paused() {
        std::thread::sleep(Duration::from_millis(5));
    }
    put(3);
    remote.close();
    assert_eq!(watch.seen(), (3, 0));
}

/// S07: another thread removes a state whose insert goes on: it ends with all that the call let go.
#[test]
fn s07_a_state_that_another_thread_let_go_of_during_its_insert() {
    let store = MemoryStore::new(8 * BYTES, usize::MAX);
    let (cache, watch) = world(1, &store, TierPolicy::OnEviction);
    insert(&cache, &watch, A);
    // When A is about to leave memory for it.
    remove_meanwhile(&cache, &store, C);
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens: C,
        bytes: BYTES,
        next_token: None,
        is_trimmable: false,
    };
    let mut freed = FreedSnapshots::new();
    cache.insert(new, Some(&[BYTES]), || Watched::new(&watch), &mut freed).unwrap();
    assert_eq!(watch.seen(), (0, 0), "the call has not ended");
    drop(freed);
    assert_eq!(watch.seen(), (1, 0));
}

/// S07, M05: a state whose insert finds no memory goes when the call has let go of its locks.
#[test]
fn s07_a_state_that_there_is_no_memory_for() {
    let mut refused = 0;
    for request in 0.. {
        let store = MemoryStore::new(8 * BYTES, usize::MAX);
        let (cache, watch) = world(4, &store, TierPolicy::OnEviction);
        let (state, freed) = (Watched::new(&watch), &mut FreedSnapshots::new());
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens: A,
            bytes: BYTES,
            next_token: None,
            is_trimmable: false,
        };
        let insert = || cache.insert(new, Some(&[BYTES]), move || state, freed);
        let (inserted, failed) = failing(Failure::Once(request), insert);
        match inserted {
            Err(_) => {
                assert_eq!(watch.seen(), (1, 0), "request {request}");
                refused += 1;
            }
            Ok(_) if failed == 0 => {
                assert!(refused > 2, "{refused}");
                return;
            }
            Ok(_) => {}
        }
    }
}

/// S07, M05: two of which writes are tried again, by a call that has no memory to keep either: they
/// go when it has let go of its locks.
#[test]
fn s07_states_that_another_thread_let_go_of_and_there_is_no_memory_for() {
    for one in 0.. {
        for other in one + 1.. {
            let failed = write_again_without(Failure::Both(one, other));
            if failed == 0 {
                return;
            }
            if failed == 1 {
                break;
            }
        }
    }
}

/// How many requests for memory failed.
fn write_again_without(failure: Failure) -> u64 {
    const LATER: [&[u32]; 2] = [&[7], &[8]];
    // No room for a second write at once.
    let store = MemoryStore::new(8 * BYTES, 1);
    let (cache, watch) = world(8, &store, TierPolicy::Through);
    insert(&cache, &watch, A);
    LATER.iter().for_each(|tokens| insert(&cache, &watch, tokens));
    while store.write(0, None) {}
    // So that the call has no event to take in, for which the store would need memory.
    assert!(remove(&cache, A));
    store.commit();
    remove_each(&cache, &store, LATER.iter().rev().copied().collect());
    let freed = &mut FreedSnapshots::new();
    let (_, failed) = failing(failure, || cache.tier_stats(freed));
    assert_eq!(watch.seen().1, 0, "{failure:?}");
    drop(std::mem::take(freed));
    if failed == 0 {
        assert_eq!(watch.seen(), (1 + LATER.len(), 0));
    }
    // What waits to be written has the cache, which has the store.
    while store.write(0, None) {}
    failed
}
