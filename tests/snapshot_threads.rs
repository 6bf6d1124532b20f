//! Threads that share one snapshot cache through the ABI: they look up, hold pins, replace, remove
//! and clear, and destructors call back. Every snapshot is accounted for: destroyed exactly once,
//! and never while somebody reads it. ThreadSanitizer runs this file too.
use radixkv::capi::*;
use radixkv::snapshot::{
    Hit, Namespace, NewSnapshot, SnapshotBounds, SnapshotCache, SnapshotLimits,
};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;

const WORKERS: usize = 4;
/// Under Miri and the sanitizers everything takes long.
const ROUNDS: usize = if cfg!(miri) { 10 } else { 3000 };
const ENTRY_LIMIT: u64 = 12;

fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

fn list(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// One of a few families that share beginnings; its lists are prefixes of each other.
fn prompt(family: usize, count: usize) -> Vec<u32> {
    let mut ids: Vec<_> = (0..count as u32).map(|at| at % 50).collect();
    if let Some(id) = ids.get_mut(5 + family % 3 * 10) {
        *id = 100 + family as u32;
    }
    ids
}

struct Shared {
    cache: AtomicPtr<rkv_snapshot_cache>,
    made: AtomicUsize,
    destroyed: AtomicUsize,
    hits: AtomicUsize,
}

/// What a snapshot says of itself. Destroying it spoils the words that readers compare.
struct State {
    ids: Vec<u32>,
    readers: AtomicUsize,
}

unsafe extern "C-unwind" fn destroyed(data: *mut c_void, size_bytes: u64, user_data: *mut c_void) {
    // SAFETY: user_data outlives the cache, data is a box that was given away.
    let (shared, state) = unsafe { (&*user_data.cast::<Shared>(), Box::from_raw(data.cast())) };
    let mut state: Box<State> = state;
    assert_eq!(size_bytes as usize, state.ids.len());
    assert_eq!(*state.readers.get_mut(), 0, "a snapshot is destroyed while it is read");
    state.ids.fill(u32::MAX);
    let number = shared.destroyed.fetch_add(1, Ordering::Relaxed);
    let cache = shared.cache.load(Ordering::Relaxed);
    // Back into the library, from whichever call let the snapshot go.
    if number % 5 == 0 && !cache.is_null() {
        shared.read(cache, &prompt(number, 40));
    }
}

impl Shared {
    fn new() -> Self {
        let config =
            rkv_snapshot_cache_config { entry_limit: ENTRY_LIMIT, byte_limit: u64::MAX, ..sized() };
        let mut cache = ptr::null_mut();
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_snapshot_cache_create(&config, &mut cache) };
        assert_eq!(status, rkv_status::Ok);
        Self {
            cache: AtomicPtr::new(cache),
            made: AtomicUsize::new(0),
            destroyed: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
        }
    }

    fn store(&self, cache: *mut rkv_snapshot_cache, ids: &[u32]) {
        self.made.fetch_add(1, Ordering::Relaxed);
        let state = Box::new(State { ids: ids.to_vec(), readers: AtomicUsize::new(0) });
        let tokens = list(ids);
        let args = rkv_snapshot_cache_insert_args {
            tokens: &tokens,
            data: Box::into_raw(state).cast(),
            size_bytes: ids.len() as u64,
            destructor: Some(destroyed),
            user_data: ptr::from_ref(self).cast_mut().cast(),
            ..sized()
        };
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_snapshot_cache_insert(cache, &args, ptr::null_mut()) };
        assert_eq!(status, rkv_status::Ok);
    }

    /// A match, or nothing. Whoever gets one is counted as a reader until `release`.
    fn pin(
        &self,
        cache: *mut rkv_snapshot_cache,
        ids: &[u32],
    ) -> Option<rkv_snapshot_cache_match_result> {
        let (tokens, mut found) = (list(ids), sized::<rkv_snapshot_cache_match_result>());
        // SAFETY: all pointers lead to live values.
        let status =
            unsafe { rkv_snapshot_cache_match(cache, ptr::null(), &tokens, 0, &mut found) };
        assert_eq!(status, rkv_status::Ok);
        if found.pin == 0 {
            return None;
        }
        // SAFETY: pinned, so it is there.
        let state = unsafe { &*found.data.cast::<State>() };
        state.readers.fetch_add(1, Ordering::Relaxed);
        assert_eq!(state.ids, ids[..found.token_count as usize], "a prefix of what was asked for");
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    fn release(&self, cache: *mut rkv_snapshot_cache, found: &rkv_snapshot_cache_match_result) {
        // SAFETY: pinned until the release.
        let state = unsafe { &*found.data.cast::<State>() };
        assert_eq!(state.ids.len(), found.token_count as usize);
        state.readers.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the pin is out, so the cache is there.
        unsafe {
            assert_eq!(rkv_snapshot_cache_release(cache, found.pin), rkv_status::Ok);
        }
    }

    fn read(&self, cache: *mut rkv_snapshot_cache, ids: &[u32]) {
        if let Some(found) = self.pin(cache, ids) {
            self.release(cache, &found);
        }
    }

    fn work(&self, worker: usize) {
        let cache = self.cache.load(Ordering::Relaxed);
        let mut rng = fastrand::Rng::with_seed(worker as u64);
        let mut held = Vec::new();
        for round in 0..ROUNDS {
            let ids = prompt(rng.usize(0..9), rng.usize(1..60));
            let (tokens, mut count, mut removed) = (list(&ids), 0, false);
            match rng.u8(0..10) {
                0..3 => self.store(cache, &ids),
                // SAFETY: all pointers lead to live values.
                3 => unsafe {
                    let status =
                        rkv_snapshot_cache_remove(cache, ptr::null(), &tokens, &mut removed);
                    assert_eq!(status, rkv_status::Ok);
                },
                // SAFETY: all pointers lead to live values.
                4 => unsafe {
                    let status = rkv_snapshot_cache_probe(cache, ptr::null(), &tokens, &mut count);
                    assert_eq!(status, rkv_status::Ok);
                    assert!(count <= ids.len());
                },
                5 => held.extend(self.pin(cache, &ids)),
                6 if !held.is_empty() => {
                    let at = rng.usize(0..held.len());
                    self.release(cache, &held.swap_remove(at));
                }
                _ => self.read(cache, &ids),
            }
            if round % 500 == 499 {
                // SAFETY: the handle is alive.
                assert_eq!(unsafe { rkv_snapshot_cache_clear(cache) }, rkv_status::Ok);
            }
        }
        held.iter().for_each(|found| self.release(cache, found));
    }

    /// Looks while others work: what is seen belongs to one moment.
    fn look(&self) {
        let cache = self.cache.load(Ordering::Relaxed);
        for _ in 0..ROUNDS / 10 {
            let mut stats = sized::<rkv_snapshot_cache_stats>();
            // SAFETY: the handle is alive.
            unsafe {
                assert_eq!(rkv_snapshot_cache_read_stats(cache, &mut stats), rkv_status::Ok);
                assert_eq!(rkv_snapshot_cache_check(cache), rkv_status::Ok);
            }
            assert!(stats.pinned_entry_count <= stats.entry_count);
            assert!(stats.node_count < 2 * stats.entry_count.max(1));
            assert!(stats.hit_count <= stats.lookup_count);
            thread::yield_now();
        }
    }
}

/// S02, S05, S07, S09
#[test]
fn threads_share_a_snapshot_cache() {
    let shared = Shared::new();
    let cache = shared.cache.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let shared = &shared;
            scope.spawn(move || shared.work(worker));
        }
        scope.spawn(|| shared.look());
    });
    let mut stats = sized::<rkv_snapshot_cache_stats>();
    // SAFETY: the handle is alive, and nobody else uses it.
    unsafe {
        assert_eq!(rkv_snapshot_cache_check(cache), rkv_status::Ok);
        assert_eq!(rkv_snapshot_cache_read_stats(cache, &mut stats), rkv_status::Ok);
    }
    assert_eq!((stats.pin_count, stats.detached_count), (0, 0));
    assert!(stats.entry_count <= ENTRY_LIMIT);
    let (made, gone) = (&shared.made, &shared.destroyed);
    let left = made.load(Ordering::Relaxed) - gone.load(Ordering::Relaxed);
    assert_eq!(left as u64, stats.entry_count);
    assert!(cfg!(miri) || shared.hits.load(Ordering::Relaxed) > ROUNDS);
    shared.cache.store(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: nobody uses the handle any more.
    unsafe { rkv_snapshot_cache_destroy(cache) };
    assert_eq!(made.load(Ordering::Relaxed), gone.load(Ordering::Relaxed), "each exactly once");
}

/// M03: threads release the pins of a cache that is being destroyed.
#[test]
fn pins_are_released_while_the_cache_goes() {
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let shared = Shared::new();
        let cache = shared.cache.swap(ptr::null_mut(), Ordering::Relaxed);
        let mut pins = Vec::new();
        for family in 0..9 {
            let ids = prompt(family, 40);
            shared.store(cache, &ids);
            pins.extend((0..2).filter_map(|_| shared.pin(cache, &ids)));
        }
        struct Pins(*mut rkv_snapshot_cache, Vec<rkv_snapshot_cache_match_result>);
        // SAFETY: every call may be made from any thread.
        unsafe impl Send for Pins {}
        let mut halves = [Pins(cache, pins.split_off(9)), Pins(cache, pins)];
        halves[1].1.reverse();
        thread::scope(|scope| {
            for half in halves {
                let shared = &shared;
                scope.spawn(move || {
                    let half = half;
                    half.1.iter().for_each(|found| shared.release(half.0, found));
                });
            }
            if round % 2 == 0 {
                thread::yield_now();
            }
            // SAFETY: but for pins nobody uses the handle.
            unsafe { rkv_snapshot_cache_destroy(cache) };
        });
        assert_eq!(shared.destroyed.load(Ordering::Relaxed), 9, "each exactly once");
    }
}

/// S05, S09 in Rust: pins release themselves.
#[test]
fn threads_share_a_snapshot_cache_of_rust() {
    struct Counted(usize, Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let cache = SnapshotCache::new(SnapshotLimits { entries: 3, bytes: u64::MAX }).unwrap();
    let gone = Arc::new(AtomicUsize::new(0));
    let namespace = Namespace::default();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cache, gone) = (&cache, &gone);
            scope.spawn(move || {
                for round in 0..ROUNDS / 10 {
                    let tokens = prompt(worker + round, 10 + round % 30);
                    let new = NewSnapshot {
                        namespace: &namespace,
                        tokens: &tokens,
                        bytes: 1,
                        next_token: Some(round as u32),
                        is_trimmable: round % 3 == 0,
                    };
                    let value = Arc::new(Counted(tokens.len(), gone.clone()));
                    assert!(cache.put(new, value).unwrap().stored);
                    if let Some(pinned) = cache.get(&namespace, &tokens).unwrap() {
                        assert_eq!(pinned.0, pinned.tokens());
                        assert!(pinned.next_token().is_some());
                    }
                    // What the others store goes on otherwise, or is this prompt's.
                    let half = &tokens[..tokens.len() / 2];
                    if let Some(pinned) = cache.get_trimmable(&namespace, half).unwrap() {
                        assert_eq!(pinned.0, pinned.tokens());
                        assert!((1..=half.len()).contains(&pinned.common()));
                    }
                }
            });
        }
    });
    cache.check().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.pins, stats.entries), (0, 3));
    drop(cache);
    assert_eq!(gone.load(Ordering::Relaxed), WORKERS * (ROUNDS / 10));
}

/// M06: lists of which each node is a stretch, so that others get in between any two, and put
/// another tree in the place of what was passed. What is found is what is stored at the end.
#[test]
fn m06_a_long_lookup_begins_anew_where_the_tree_changed() {
    let bounds = SnapshotBounds { segment: 2, ..SnapshotBounds::default() };
    let limits = SnapshotLimits { entries: 40, bytes: u64::MAX };
    let cache = SnapshotCache::<Arc<Vec<u32>>>::with_bounds(limits, bounds).unwrap();
    let namespace = Namespace::default();
    fn new<'a>(namespace: &'a Namespace, tokens: &'a [u32]) -> NewSnapshot<'a> {
        let is_trimmable = tokens.len().is_multiple_of(2);
        NewSnapshot { namespace, tokens, bytes: 1, next_token: None, is_trimmable }
    }
    // Long enough for a writer to go to sleep while it is looked up: only then does it get in. In
    // both trees the same tokens lead to the same places.
    let list: Vec<u32> = (0..if cfg!(miri) { 60 } else { 4000 }).map(|at| at % 7).collect();
    let (hits, writers) = (AtomicUsize::new(0), AtomicUsize::new(WORKERS / 2));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cache, list, hits, writers) = (&cache, &list, &hits, &writers);
            scope.spawn(move || {
                let mut freed = radixkv::snapshot::Freed::default();
                let mut random = fastrand::Rng::with_seed(worker as u64);
                let mut is_last = false;
                for round in 0.. {
                    if worker % 2 == 0 {
                        // At last what the writers leave is there for sure.
                        if is_last {
                            break;
                        }
                        is_last = writers.load(Ordering::Acquire) == 0;
                        let look = |value: &Arc<Vec<u32>>| value.clone();
                        if let Some(hit) = cache.find(&namespace, list, look).unwrap() {
                            assert_eq!(hit.value[..], list[..hit.tokens]);
                            hits.fetch_add(1, Ordering::Relaxed);
                            cache.release(hit.pin, &mut freed).unwrap();
                        }
                        // Entries that are trimmed lie as deep below a short list.
                        let short = &list[..random.usize(1..7)];
                        if let Some(hit) = cache.find_trimmable(&namespace, short, look).unwrap() {
                            let Hit { value, tokens, common, pin, .. } = hit;
                            assert_eq!((value.len(), &value[..common]), (tokens, &short[..common]));
                            assert!(common == tokens || tokens.is_multiple_of(2));
                            cache.release(pin, &mut freed).unwrap();
                        }
                        assert!(cache.probe(&namespace, list) <= list.len());
                        continue;
                    }
                    let mut ids = list[..random.usize(1..=list.len())].to_vec();
                    is_last = round == ROUNDS / 5;
                    match random.usize(..4) {
                        _ if is_last => {
                            let value = Arc::new(ids.clone());
                            cache.insert(new(&namespace, &ids), || value, &mut freed).unwrap();
                            writers.fetch_sub(1, Ordering::Release);
                            break;
                        }
                        0 => cache.clear(&mut freed),
                        1 => drop(cache.remove(&namespace, &ids, &mut freed)),
                        what => {
                            // A branch, or the beginning; and others lie behind it.
                            *ids.last_mut().unwrap() += if what == 2 { 1000 } else { 0 };
                            let value = Arc::new(ids.clone());
                            cache.insert(new(&namespace, &ids), || value, &mut freed).unwrap();
                        }
                    }
                }
            });
        }
    });
    cache.check().unwrap();
    assert!(hits.load(Ordering::Relaxed) > 0);
}

/// S09: who checks the cache while the pin ends that keeps it over its limits finds it whole.
#[test]
fn s09_a_check_beside_a_release_that_lets_entries_go() {
    let limits = SnapshotLimits { entries: 1, bytes: u64::MAX };
    let cache = SnapshotCache::<Arc<u32>>::new(limits).unwrap();
    let namespace = Namespace::default();
    let put = |tokens: &[u32]| {
        let (namespace, is_trimmable) = (&namespace, false);
        let new = NewSnapshot { namespace, tokens, bytes: 1, next_token: None, is_trimmable };
        assert!(cache.put(new, Arc::new(tokens[0])).unwrap().stored);
    };
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let checks = scope.spawn(|| {
            while !has_ended.load(Ordering::Acquire) {
                cache.check()?;
            }
            cache.check()
        });
        for _ in 0..ROUNDS * 4 {
            put(&[1]);
            let pin = cache.get(&namespace, &[1]).unwrap().expect("it is the only one");
            // It stays beside the first one, which is read.
            put(&[2]);
            drop(pin);
        }
        has_ended.store(true, Ordering::Release);
        assert_eq!(checks.join().unwrap(), Ok(()));
    });
    assert_eq!(cache.stats().entries, 1);
}
