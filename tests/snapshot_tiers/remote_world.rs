//! A cache over a store that caches share, whose threads the test plays.
use super::memory_store::MemoryStore;
use super::remote_store::MemoryRemote;
use super::world::{BYTES, Cache, Part, TAIL, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy, TierStats, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::remote::RemoteConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub const PLAIN: Namespace = Namespace { lora: None, epoch: 0, salt: [0; 32], image: None };

pub fn prompt(family: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| 100_000 * family + at).collect()
}

pub struct World {
    pub cache: Cache,
    store: Option<MemoryStore>,
    alive: Arc<AtomicUsize>,
}

impl World {
    pub fn with(remote: &MemoryRemote, store: Option<MemoryStore>, policy: TierPolicy) -> Self {
        Self::limited(remote, store, policy, 16 * BYTES)
    }

    pub fn limited(
        remote: &MemoryRemote,
        store: Option<MemoryStore>,
        policy: TierPolicy,
        bytes: u64,
    ) -> Self {
        let limits = SnapshotLimits { entries: 4, bytes };
        let cache = TieredSnapshots::new(limits).unwrap();
        let config = RemoteConfig {
            store: Box::new(remote.clone()),
            fingerprint: remote.fingerprint,
            timeout: remote.timeout,
            workers: 0,
            waiting_bytes: 8 * BYTES,
        };
        let disk = store.clone().map(|store| {
            let records = store.records();
            (Box::new(store) as _, records)
        });
        cache.attach_both(disk, Some((config, Box::new(|| {}))), policy).unwrap();
        Self { cache, store, alive: Arc::default() }
    }

    pub fn new(remote: &MemoryRemote) -> Self {
        Self::with(remote, None, TierPolicy::Through)
    }

    pub fn insert_in(&self, space: &Namespace, tokens: &[u32], version: u32) {
        let new = NewSnapshot {
            namespace: space,
            tokens,
            bytes: BYTES,
            next_token: Some(version),
            is_trimmable: false,
        };
        self.alive.fetch_add(1, Relaxed);
        let parts = [version.to_le_bytes().to_vec(), vec![version as u8; TAIL]];
        let state = || Part { parts, alive: self.alive.clone() };
        let freed = &mut FreedSnapshots::new();
        self.cache.insert(new, Some(&[4, TAIL as u64]), state, freed).unwrap();
    }

    pub fn insert(&self, tokens: &[u32], version: u32) {
        self.insert_in(&PLAIN, tokens, version);
    }

    /// Length and version of what comes; none for nothing.
    pub fn bring_in(&self, space: &Namespace, tokens: &[u32]) -> Option<(usize, u32)> {
        let freed = &mut FreedSnapshots::new();
        let fetch = self.cache.fetch(space, tokens, false, freed).unwrap()?;
        for _ in 0..1000 {
            match self.cache.take(fetch.ticket, seen, freed).unwrap() {
                Taken::Pending => self.work(),
                Taken::Missed => return None,
                Taken::Hit(hit) => {
                    self.cache.release(hit.pin, freed).unwrap();
                    assert_eq!((hit.tokens, hit.next_token), (hit.common, Some(hit.value.0)));
                    assert_eq!(hit.bytes, BYTES);
                    return Some((hit.tokens, hit.value.0));
                }
            }
        }
        panic!("it does not end: {:?}", self.stats());
    }

    pub fn bring(&self, tokens: &[u32]) -> Option<(usize, u32)> {
        self.bring_in(&PLAIN, tokens)
    }

    pub fn work(&self) {
        self.cache.work_remote();
        if let Some(store) = &self.store {
            while store.write(0, None) || store.read(0, None, false) {}
            store.commit();
        }
    }

    pub fn settle(&self) {
        while self.cache.work_remote() {}
        self.work();
    }

    pub fn stats(&self) -> TierStats {
        self.cache.tier_stats(&mut FreedSnapshots::new()).unwrap()
    }

    pub fn wait_for_pause(&self) {
        for _ in 0..60_000 {
            if !self.stats().remote.is_paused {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it is left alone for ever");
    }
}

impl Drop for World {
    /// Neither tickets, pins, bytes nor states leak.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.settle();
        let stats = self.stats();
        assert_eq!((stats.tickets, stats.loading_bytes), (0, 0));
        assert_eq!(self.cache.stats().pins, 0);
        self.cache.check().unwrap();
        let freed = &mut FreedSnapshots::new();
        self.cache.detach(Duration::ZERO, freed);
        self.cache.clear(freed);
        drop(std::mem::take(freed));
        assert_eq!(self.alive.load(Relaxed), 0);
    }
}

/// A store in which a cache that is gone has left states of a prompt, by their lengths.
pub fn filled(lengths: &[u32]) -> MemoryRemote {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    for &length in lengths {
        world.insert(&prompt(1, length), length);
        world.settle();
    }
    remote
}
