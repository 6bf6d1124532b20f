//! Threads that share a cache over a store on disk, which comes and goes. What is found is what was
//! inserted for its tokens, each ticket ends, and nothing is left. ThreadSanitizer runs this too.
use crate::runs::runs;
use crate::world::Part;
use radixkv::error::Error;
use radixkv::snapshot::tiered::{FreedSnapshots, State, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::{DiskConfig, DiskStore};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORKERS: u64 = 3;
/// Bytes of the parts of each state.
const PARTS: [u64; 2] = [8, 5000];
const BYTES: u64 = PARTS[0] + PARTS[1];
/// Fetches that bring something, at least.
const FETCHED: usize = 50;
/// What nothing may take.
const LONG: Duration = Duration::from_secs(600);

/// Names a list of up to four tokens, each 0 or 1.
fn name(tokens: &[u32]) -> u64 {
    tokens.iter().fold(1, |name, &token| 2 * name + u64::from(token))
}

fn list(rng: &mut fastrand::Rng) -> Vec<u32> {
    (0..rng.usize(1..=4)).map(|_| rng.u32(0..2)).collect()
}

/// The name of the tokens of a state.
fn seen(state: State<'_, Part>) -> u64 {
    let parts = match state {
        State::Given(part) => [&part.parts[0][..], &part.parts[1]],
        State::Loaded(copy) => [copy.part(0), copy.part(1)],
    };
    let name = u64::from_le_bytes(parts[0].try_into().unwrap());
    assert!(parts[1].iter().all(|&byte| byte == name as u8));
    name
}

struct Engine {
    cache: TieredSnapshots<Part>,
    alive: Arc<AtomicUsize>,
    working: AtomicUsize,
    /// Calls of the workers.
    calls: AtomicUsize,
    fetched: AtomicUsize,
}

impl Engine {
    fn insert(&self, tokens: &[u32], is_storable: bool) {
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens,
            bytes: BYTES,
            next_token: None,
            is_trimmable: false,
        };
        let state = || {
            self.alive.fetch_add(1, Relaxed);
            let name = name(tokens);
            let tail = vec![name as u8; PARTS[1] as usize];
            Part { parts: [name.to_le_bytes().to_vec(), tail], alive: self.alive.clone() }
        };
        let parts = is_storable.then_some(&PARTS[..]);
        self.cache.insert(new, parts, state, &mut FreedSnapshots::new()).unwrap();
    }

    fn find(&self, tokens: &[u32], rng: &mut fastrand::Rng) {
        let freed = &mut FreedSnapshots::new();
        let found = self.cache.find(&Namespace::default(), tokens, false, seen, freed).unwrap();
        let Some(hit) = found.hit else { return };
        assert_eq!(hit.value, name(&tokens[..hit.tokens]));
        if rng.bool() {
            std::thread::yield_now();
            assert_eq!(self.cache.pinned(hit.pin, seen), Ok(hit.value));
        }
        self.cache.release(hit.pin, freed).unwrap();
    }

    fn fetch(&self, tokens: &[u32], rng: &mut fastrand::Rng) -> Result<(), Error> {
        let freed = &mut FreedSnapshots::new();
        let fetch = self.cache.fetch(&Namespace::default(), tokens, false, freed)?;
        let Some(fetch) = fetch else { return Ok(()) };
        if rng.u32(..6) == 0 {
            return self.cache.cancel(fetch.ticket, freed);
        }
        let start = Instant::now();
        loop {
            match self.cache.take(fetch.ticket, seen, freed)? {
                Taken::Pending => assert!(start.elapsed() < LONG, "a read that never ends"),
                Taken::Missed => return Ok(()),
                Taken::Hit(hit) => {
                    assert_eq!(
                        (hit.tokens, hit.value),
                        (fetch.tokens, name(&tokens[..hit.tokens]))
                    );
                    self.fetched.fetch_add(1, Relaxed);
                    return self.cache.release(hit.pin, freed);
                }
            }
            std::thread::yield_now();
        }
    }

    fn work(&self, rng: &mut fastrand::Rng) {
        let (start, mut calls) = (Instant::now(), 0);
        // On a slow disk little can be fetched at first.
        while calls < runs(4000) || self.fetched.load(Relaxed) < FETCHED {
            calls += 1;
            assert!(start.elapsed() < LONG, "hardly anything was fetched in {calls} calls");
            let tokens = list(rng);
            self.calls.fetch_add(1, Relaxed);
            match rng.u32(..16) {
                0..3 => self.insert(&tokens, rng.u32(..8) > 0),
                3..7 => self.find(&tokens, rng),
                7..14 => match self.fetch(&tokens, rng) {
                    // The store was taken away meanwhile.
                    Ok(()) | Err(Error::StaleTicket(_)) => {}
                    Err(error) => panic!("{error:?}"),
                },
                14 => {
                    let freed = &mut FreedSnapshots::new();
                    self.cache.remove(&Namespace::default(), &tokens, freed);
                }
                _ => std::thread::sleep(Duration::from_micros(rng.u64(..200))),
            }
        }
    }

    fn attach(&self, directory: &Path, policy: TierPolicy) {
        let config = DiskConfig {
            workers: 2,
            commit_interval: Duration::from_micros(500),
            ..DiskConfig::new(directory, 24 * (BYTES + 4096), [3; 32])
        };
        // Nobody has the one before any more.
        let (store, records) = DiskStore::open(config).unwrap();
        self.cache.attach(Box::new(store), records, policy).unwrap();
    }

    /// What else happens: at times the store goes, and comes again.
    fn disturb(&self, directory: &Path, policy: TierPolicy, rng: &mut fastrand::Rng) {
        while self.working.load(Relaxed) > 0 {
            let next = self.calls.load(Relaxed) + rng.usize(..16);
            while self.calls.load(Relaxed) < next && self.working.load(Relaxed) > 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            let freed = &mut FreedSnapshots::new();
            match rng.u32(..64) {
                0 => self.cache.clear(freed),
                1 => {
                    self.cache.detach(Duration::from_micros(rng.u64(..3000)), freed);
                    self.attach(directory, policy);
                }
                2..8 => drop(self.cache.flush(Duration::from_micros(rng.u64(..500)), freed)),
                _ => drop(self.cache.tier_stats(freed)),
            }
        }
    }
}

/// Counts down however its thread ends.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn t01_t04_threads_share_a_cache_and_its_store() {
    let name = format!("snapshot-tiers-{}", std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}"); // says what was done, not in which order
    for policy in [TierPolicy::Through, TierPolicy::OnEviction] {
        let limits = SnapshotLimits { entries: 3, bytes: u64::MAX };
        let engine = Engine {
            cache: TieredSnapshots::new(limits).unwrap(),
            alive: Arc::default(),
            working: AtomicUsize::new(WORKERS as usize),
            calls: AtomicUsize::new(0),
            fetched: AtomicUsize::new(0),
        };
        engine.attach(&directory, policy);
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let engine = &engine;
                scope.spawn(move || {
                    let _working = Working(&engine.working);
                    engine.work(&mut fastrand::Rng::with_seed(seed + worker));
                });
            }
            engine.disturb(&directory, policy, &mut fastrand::Rng::with_seed(seed + 99));
        });
        let freed = &mut FreedSnapshots::new();
        assert!(engine.cache.flush(LONG, freed));
        let start = Instant::now();
        while engine.cache.tier_stats(freed).unwrap().loading_bytes > 0 {
            assert!(start.elapsed() < LONG, "reads that never end");
            std::thread::yield_now();
        }
        let stats = engine.cache.tier_stats(freed).unwrap();
        assert_eq!((stats.tickets, stats.store.damaged), (0, 0), "{stats:?}");
        assert_eq!(engine.cache.stats().pins, 0);
        engine.cache.check().unwrap();
        engine.cache.detach(LONG, freed);
        engine.cache.clear(freed);
        drop(std::mem::take(freed));
        assert_eq!(engine.alive.load(Relaxed), 0, "states that nobody dropped");
    }
    std::fs::remove_dir_all(directory).unwrap();
}
