//! A cache over a store that the test plays, and states that count themselves.
use crate::memory_store::MemoryStore;
use radixkv::ids::HandleId;
use radixkv::snapshot::tiered::{Fetch, FreedSnapshots, State, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::Source;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A state of two parts, whose bytes say which it is.
pub struct Part {
    pub parts: [Vec<u8>; 2],
    pub alive: Arc<AtomicUsize>,
}

impl Source for Part {
    fn parts(&self) -> usize {
        2
    }

    fn part(&self, index: usize) -> &[u8] {
        &self.parts[index]
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// The version that a state's bytes say, the same in each part.
fn version(parts: [&[u8]; 2]) -> u32 {
    let version = u32::from_le_bytes(parts[0].try_into().unwrap());
    assert!(parts[1].iter().all(|&byte| byte == version as u8), "all bytes of version {version}");
    version
}

pub fn seen(state: State<'_, Part>) -> (u32, bool) {
    match state {
        State::Given(part) => (version([&part.parts[0], &part.parts[1]]), false),
        State::Loaded(copy) => (version([copy.part(0), copy.part(1)]), true),
    }
}

pub type Cache = TieredSnapshots<Part>;

pub struct World {
    pub cache: Cache,
    pub store: MemoryStore,
    pub policy: TierPolicy,
    /// All states can be trimmed, and lookups make use of it.
    pub trims: bool,
    /// States of callers that were not dropped.
    pub alive: Arc<AtomicUsize>,
}

/// Bytes of the second part of every state.
pub const TAIL: usize = 28;
/// Bytes of every state.
pub const BYTES: u64 = 32;

impl World {
    /// A cache with room for some states in memory and some below.
    pub fn new(in_memory: usize, below: u64, policy: TierPolicy) -> Self {
        let limits = SnapshotLimits { entries: in_memory, bytes: u64::MAX };
        Self::with(limits, MemoryStore::new(below * BYTES, usize::MAX), policy)
    }

    pub fn with(limits: SnapshotLimits, store: MemoryStore, policy: TierPolicy) -> Self {
        let cache = TieredSnapshots::new(limits).unwrap();
        let records = store.records();
        cache.attach(Box::new(store.clone()), records, policy).unwrap();
        Self { cache, store, policy, trims: false, alive: Arc::default() }
    }

    /// The same directory in another process.
    pub fn restarted(&self, limits: SnapshotLimits) -> Self {
        let mut again = Self::with(limits, self.store.restarted(), self.policy);
        again.trims = self.trims;
        again
    }

    pub fn state(&self, version: u32) -> Part {
        self.alive.fetch_add(1, Relaxed);
        let parts = [version.to_le_bytes().to_vec(), vec![version as u8; TAIL]];
        Part { parts, alive: self.alive.clone() }
    }

    pub fn insert_in(&self, space: &Namespace, tokens: &[u32], version: u32, storable: bool) {
        let new = NewSnapshot {
            namespace: space,
            tokens,
            bytes: BYTES,
            next_token: Some(version),
            is_trimmable: self.trims,
        };
        let parts = [4, TAIL as u64];
        let state = || self.state(version);
        let parts = storable.then_some(&parts[..]);
        let inserted = self.cache.insert(new, parts, state, &mut FreedSnapshots::new());
        inserted.unwrap();
    }

    pub fn insert(&self, tokens: &[u32], version: u32) {
        self.insert_in(&Namespace::default(), tokens, version, true);
    }

    /// Length, version and whether it is a copy of what memory has; and what is fetchable.
    pub fn find_in(
        &self,
        space: &Namespace,
        tokens: &[u32],
    ) -> (Option<(usize, u32, bool)>, usize) {
        let freed = &mut FreedSnapshots::new();
        let found = self.cache.find(space, tokens, self.trims, seen, freed).unwrap();
        let hit = found.hit.map(|hit| {
            assert_eq!(self.cache.pinned(hit.pin, seen), Ok(hit.value));
            self.cache.release(hit.pin, freed).unwrap();
            assert_eq!((hit.next_token, hit.bytes), (Some(hit.value.0), BYTES));
            (hit.tokens, hit.value.0, hit.value.1)
        });
        (hit, found.fetchable)
    }

    pub fn find(&self, tokens: &[u32]) -> (Option<(usize, u32, bool)>, usize) {
        self.find_in(&Namespace::default(), tokens)
    }

    pub fn fetch(&self, tokens: &[u32]) -> Option<Fetch> {
        let freed = &mut FreedSnapshots::new();
        self.cache.fetch(&Namespace::default(), tokens, self.trims, freed).unwrap()
    }

    /// What became of a fetch: `None` while it goes on, else length and version, if it came.
    pub fn take(&self, ticket: HandleId) -> Option<Option<(usize, u32)>> {
        let freed = &mut FreedSnapshots::new();
        match self.cache.take(ticket, seen, freed).unwrap() {
            Taken::Pending => None,
            Taken::Missed => Some(None),
            Taken::Hit(hit) => {
                self.cache.release(hit.pin, freed).unwrap();
                assert_eq!((hit.next_token, hit.bytes), (Some(hit.value.0), BYTES));
                Some(Some((hit.tokens, hit.value.0)))
            }
        }
    }

    /// Fetches, and plays the disk until it is there.
    pub fn bring(&self, tokens: &[u32]) -> Option<(usize, u32)> {
        let fetch = self.fetch(tokens)?;
        assert!(fetch.tokens <= tokens.len() && fetch.bytes == BYTES);
        while self.store.read(0, None, false) {}
        self.take(fetch.ticket).expect("all reads have ended")
    }

    pub fn remove(&self, tokens: &[u32]) -> bool {
        self.cache.remove(&Namespace::default(), tokens, &mut FreedSnapshots::new())
    }

    /// Writes and commits all that is on its way.
    pub fn settle(&self) {
        while self.store.write(0, None) {}
        self.store.commit();
    }

    pub fn stats(&self) -> radixkv::snapshot::tiered::TierStats {
        self.cache.tier_stats(&mut FreedSnapshots::new()).unwrap()
    }
}

impl Drop for World {
    /// Nothing leaks: neither pins nor tickets nor states.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.cache.check().unwrap();
        let freed = &mut FreedSnapshots::new();
        while self.store.read(0, None, false) {}
        let stats = self.stats();
        assert_eq!((stats.tickets, stats.loading_bytes), (0, 0));
        assert_eq!(self.cache.stats().pins, 0, "pins");
        self.cache.detach(std::time::Duration::ZERO, freed);
        self.cache.clear(freed);
        while self.store.write(0, None) {}
        drop(std::mem::take(freed));
        assert_eq!(self.alive.load(Relaxed), 0, "states that nobody dropped");
    }
}
