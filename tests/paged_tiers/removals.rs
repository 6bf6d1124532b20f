//! T13: removals that a remote store does not answer, though it answers other calls.
use super::remote_store::MemoryRemote;
use radixkv::tier::remote::{Answer, Item, Remote, RemoteConfig, RemoteStore};
use radixkv::tier::{Key, Source};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        &self.0
    }
}

/// A store that does not answer about the removal of some values, so many times.
#[derive(Clone)]
struct Stubborn {
    inner: MemoryRemote,
    refuses: Arc<Mutex<HashMap<Key, usize>>>,
}

impl Stubborn {
    fn new(refuses: &[(Key, usize)]) -> Self {
        let refuses = Arc::new(Mutex::new(refuses.iter().copied().collect()));
        Self { inner: MemoryRemote::new(), refuses }
    }

    fn remote(&self) -> Remote {
        let config = RemoteConfig {
            store: Box::new(self.clone()),
            fingerprint: [1; 32],
            timeout: LONG,
            workers: 0,
            waiting_bytes: 1 << 20,
        };
        Remote::start(config, Box::new(|| {})).unwrap()
    }

    fn has(&self, key: u8) -> bool {
        self.inner.inside().values.contains_key(&[key; 32])
    }

    fn removals(&self) -> usize {
        self.inner.inside().counts[3]
    }
}

impl RemoteStore for Stubborn {
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
        let mut refuses = self.refuses.lock().unwrap();
        for item in items {
            match refuses.get_mut(&item.key).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    self.inner.inside().counts[3] += 1;
                    item.answer = Answer::Failed;
                }
                None => self.inner.remove(std::slice::from_mut(item), time),
            }
        }
    }
}

fn put(remote: &Remote, key: u8) {
    remote.put([key; 32], Box::new(Bytes(vec![key; 10]))).unwrap();
}

/// Works until nothing waits.
fn settle(remote: &Remote) {
    let start = Instant::now();
    while !remote.is_done() {
        if !remote.work() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < LONG, "it does not come to an end: {:?}", remote.stats());
    }
}

/// T17: one call is about some removals, and the store does some of them: the others are asked for
/// again. What was removed must not be found.
#[test]
fn t17_removals_that_a_store_did_not_do_are_asked_for_again() {
    let store = Stubborn::new(&[([2; 32], 1), ([3; 32], 3)]);
    let remote = store.remote();
    (1..=4).for_each(|key| put(&remote, key));
    settle(&remote);
    assert!((1..=4).all(|key| store.has(key)));
    (1..=4).for_each(|key| remote.remove([key; 32]));
    settle(&remote);
    let left: Vec<u8> = (1..=4).filter(|&key| store.has(key)).collect();
    assert!(left.is_empty(), "it still has {left:?}");
    assert_eq!(store.removals(), 4 + 1 + 3);
}

/// A store that never removes something, as nobody may there: what waits behind that is written,
/// and the store is not left alone for it. (It is given up in the end, see `Refused`.)
#[test]
fn t13_a_removal_that_a_store_refuses_keeps_nothing_waiting() {
    for keys in [1..2, 1..40] {
        let refuses: Vec<_> = keys.clone().map(|key| ([key; 32], usize::MAX)).collect();
        let store = Stubborn::new(&refuses);
        let remote = store.remote();
        keys.clone().for_each(|key| put(&remote, key));
        settle(&remote);
        keys.clone().for_each(|key| remote.remove([key; 32]));
        for key in 100..200 {
            put(&remote, key);
            for _ in 0..3 {
                remote.work();
            }
            assert!(store.has(key) && !remote.is_paused(), "{key}: {:?}", remote.stats());
        }
        assert!(!remote.is_done(), "it waits to be asked for again");
        let asked = store.removals();
        assert!(asked <= 8 * keys.len(), "{asked} for {} values", keys.len());
    }
}

/// A store that asks in its calls whether the thread is one of the library's.
#[derive(Clone, Default)]
struct Asking {
    remote: Arc<OnceLock<Weak<Remote>>>,
    asked: Arc<AtomicUsize>,
    known: Arc<AtomicUsize>,
}

impl RemoteStore for Asking {
    fn has(&self, items: &mut [Item<'_>], _: Duration) {
        let remote = self.remote.get().and_then(Weak::upgrade).expect("it is there");
        for _ in 0..100_000 {
            self.asked.fetch_add(1, Relaxed);
            self.known.fetch_add(usize::from(remote.is_own_thread()), Relaxed);
        }
        items.iter_mut().for_each(|item| item.answer = Answer::Done);
    }

    fn get(&self, _: &mut [Item<'_>], _: Duration) {}

    fn put(&self, _: &mut [Item<'_>], _: Duration) {}

    fn remove(&self, _: &mut [Item<'_>], _: Duration) {}
}

/// T13: a thread of a store is known as such, also while others ask whether they are some.
#[test]
fn t13_a_thread_of_a_store_is_known_while_others_ask() {
    let store = Asking::default();
    let config = RemoteConfig {
        store: Box::new(store.clone()),
        fingerprint: [1; 32],
        timeout: LONG,
        workers: 1,
        waiting_bytes: 1 << 20,
    };
    let remote = Arc::new(Remote::start(config, Box::new(|| {})).unwrap());
    store.remote.set(Arc::downgrade(&remote)).unwrap();
    put(&remote, 1);
    while !remote.is_done() {
        assert!(!remote.is_own_thread());
    }
    remote.close();
    let asked = store.asked.load(Relaxed);
    assert!(asked > 0);
    assert_eq!(store.known.load(Relaxed), asked);
}
