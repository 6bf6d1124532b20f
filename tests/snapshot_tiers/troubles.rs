//! An engine goes on over a disk that has each kind of bad luck: what it finds is right, no call
//! waits, the counters say what happened, and nothing is left.
use crate::folder::Folder;
use crate::jumps;
use crate::sim::{Fault, SimDisk, Stop, When};
use fastrand::Rng;
use radixkv::snapshot::tiered::{
    FreedSnapshots, State, Taken, TierPolicy, TierStats, TieredSnapshots,
};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::{DiskConfig, DiskStore, OpenError, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const BYTES: usize = 10_000;
const JUMPS: &str = "RKV_SNAPSHOT_JUMPS";
const LONG: Duration = Duration::from_secs(60);
/// What a call may take: the machine may be busy, and what waits for a slow disk takes a second.
const QUICK: Duration = Duration::from_millis(900);

/// The state after some tokens: they say its bytes.
struct Saved {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

fn bytes_of(tokens: &[u32]) -> Vec<u8> {
    let seed = tokens.iter().fold(7, |sum: u64, &token| sum * 31 + u64::from(token));
    let mut bytes = vec![0; BYTES];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

impl Source for Saved {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _index: usize) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

fn copy(state: State<'_, Saved>) -> Vec<u8> {
    match state {
        State::Given(saved) => saved.bytes.clone(),
        State::Loaded(copy) => copy.part(0).to_vec(),
    }
}

/// An engine with room for two states in memory, and a disk.
struct Engine {
    cache: TieredSnapshots<Saved>,
    disk: SimDisk,
    alive: Arc<AtomicUsize>,
    rng: Rng,
    /// Prompts that were answered from memory, from disk, and computed.
    answered: [u32; 3],
    /// Calls that took long.
    slow: std::cell::Cell<u32>,
}

impl Engine {
    fn new(disk: &SimDisk, seed: u64) -> Self {
        let limits = SnapshotLimits { entries: 2, bytes: u64::MAX };
        let cache = TieredSnapshots::new(limits).unwrap();
        let (alive, rng) = (Arc::default(), Rng::with_seed(seed));
        Self { cache, disk: disk.clone(), alive, rng, answered: [0; 3], slow: 0.into() }
    }

    fn attach(&self) -> Result<usize, OpenError> {
        let mut config = DiskConfig::new("", 4 << 20, [3; 32]);
        config.workers = 2;
        config.commit_interval = Duration::from_millis(1);
        config.waiting_bytes = 3 * BYTES as u64;
        let (store, records) = DiskStore::open_on(Box::new(self.disk.clone()), config)?;
        let count = records.len();
        self.cache.attach(Box::new(store), records, TierPolicy::Through).unwrap();
        Ok(count)
    }

    /// One of the calls of an engine's loop, which must not wait.
    fn timed<R>(&self, call: impl FnOnce(&TieredSnapshots<Saved>) -> R) -> R {
        let start = Instant::now();
        let result = call(&self.cache);
        let took = start.elapsed();
        self.slow.set(self.slow.get() + u32::from(took > QUICK));
        // The machine may stand still, but what waits for a slow disk does so again and again.
        assert!(self.slow.get() < 4, "calls take long, the last one {took:?}");
        result
    }

    /// What is fetched within a while, as long as it is there.
    fn fetched(&self, prompt: &[u32], patience: Duration) -> bool {
        let space = Namespace::default();
        let freed = &mut FreedSnapshots::new();
        let fetch = self.timed(|cache| cache.fetch(&space, prompt, false, freed)).unwrap();
        let Some(fetch) = fetch else { return false };
        let start = Instant::now();
        loop {
            match self.timed(|cache| cache.take(fetch.ticket, copy, freed)).unwrap() {
                Taken::Pending if start.elapsed() > patience => {
                    self.timed(|cache| cache.cancel(fetch.ticket, freed)).unwrap();
                    return false;
                }
                Taken::Pending => std::thread::sleep(Duration::from_micros(100)),
                Taken::Missed => return false,
                Taken::Hit(hit) => {
                    assert!(
                        hit.value == bytes_of(&prompt[..hit.tokens]),
                        "other bytes: {prompt:?}"
                    );
                    self.cache.release(hit.pin, freed).unwrap();
                    return hit.tokens == prompt.len();
                }
            }
        }
    }

    /// Answers prompts, some of which begin like others.
    fn serve(&mut self, count: usize, patience: Duration) {
        let space = Namespace::default();
        for _ in 0..count {
            let length = self.rng.usize(1..4);
            let prompt: Vec<u32> = (0..length).map(|_| self.rng.u32(0..3)).collect();
            let freed = &mut FreedSnapshots::new();
            let found = self.timed(|cache| cache.find(&space, &prompt, false, copy, freed));
            let found = found.unwrap();
            let mut known = 0;
            if let Some(hit) = found.hit {
                assert!(hit.value == bytes_of(&prompt[..hit.tokens]), "other bytes: {prompt:?}");
                known = hit.tokens;
                self.cache.release(hit.pin, freed).unwrap();
            }
            let from = if known == length {
                0
            } else if found.fetchable == length && self.fetched(&prompt, patience) {
                1
            } else {
                self.compute(&prompt, freed);
                2
            };
            self.answered[from] += 1;
        }
        self.cache.check().unwrap();
    }

    /// The same, at a pace at which a good disk keeps up.
    fn serve_at_ease(&mut self, count: usize) {
        for _ in 0..count / 2 {
            self.serve(2, LONG);
            self.settle();
        }
    }

    fn compute(&self, prompt: &[u32], freed: &mut FreedSnapshots<Saved>) {
        let make = || {
            self.alive.fetch_add(1, Relaxed);
            Saved { bytes: bytes_of(prompt), alive: self.alive.clone() }
        };
        let new = NewSnapshot {
            namespace: &Namespace::default(),
            tokens: prompt,
            bytes: BYTES as u64,
            next_token: None,
            is_trimmable: false,
        };
        let parts = [BYTES as u64];
        self.timed(|cache| cache.insert(new, Some(&parts), make, freed)).unwrap();
    }

    fn settle(&self) {
        self.cache.flush(LONG, &mut FreedSnapshots::new());
    }

    fn stats(&self) -> TierStats {
        self.cache.tier_stats(&mut FreedSnapshots::new()).unwrap()
    }

    /// Nothing leaks: pins, tickets, memory, states.
    fn end(self) {
        let freed = &mut FreedSnapshots::new();
        if self.cache.is_attached() {
            let stats = self.stats();
            assert_eq!(stats.tickets, 0);
        }
        self.cache.detach(Duration::ZERO, freed);
        assert_eq!(self.cache.stats().pins, 0);
        self.cache.clear(freed);
        drop(std::mem::take(freed));
        assert_eq!(self.alive.load(Relaxed), 0, "states that nobody dropped");
    }
}

/// An engine on a disk that was well until now, and has something.
fn well(seed: u64) -> (SimDisk, Engine) {
    let disk = SimDisk::new();
    let mut engine = Engine::new(&disk, seed);
    assert_eq!(engine.attach().unwrap(), 0);
    engine.serve_at_ease(150);
    let [memory, below, computed] = engine.answered;
    assert!(memory > 5 && below > 20 && computed > 20, "{:?}", engine.answered);
    (disk, engine)
}

/// And it is well again: another process finds what there is, and goes on.
fn recovers(disk: &SimDisk, engine: Engine, least: usize) {
    assert_eq!(damaged_afterwards(disk, engine, least), 0);
}

/// The same; how many of the snapshots that there are could not be read.
fn damaged_afterwards(disk: &SimDisk, engine: Engine, least: usize) -> u64 {
    engine.end();
    disk.fail(None);
    let mut next = Engine::new(disk, 99);
    let found = next.attach().unwrap();
    assert!(found >= least, "{found} records are left");
    next.serve_at_ease(100);
    assert!(next.answered[1] > 20, "{:?}", next.answered);
    let counters = next.stats().counters;
    assert_eq!((counters.failed_writes, counters.failed_loads - counters.damaged), (0, 0));
    next.end();
    counters.damaged
}

#[test]
fn t06_an_engine_over_a_full_disk() {
    let (disk, mut engine) = well(1);
    // Others are gone for good, and there is no room for more.
    engine.cache.clear(&mut FreedSnapshots::new());
    engine.settle();
    disk.fail(Some((When::From(0), Fault::NoSpace)));
    engine.serve_at_ease(100);
    let stats = engine.stats();
    assert!(stats.store.no_space > 0 && stats.counters.failed_writes > 0, "{stats:?}");
    assert!(engine.answered[2] > 50, "without a disk it computes");
    recovers(&disk, engine, 0);
}

#[test]
fn t06_an_engine_over_a_disk_that_becomes_read_only() {
    let (disk, mut engine) = well(2);
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    let before = engine.answered;
    engine.serve_at_ease(100);
    let stats = engine.stats();
    assert!(engine.answered[1] > before[1] + 20, "what is there is still read");
    assert_eq!(stats.counters.failed_loads, 0);
    recovers(&disk, engine, 5);
}

#[test]
fn t06_an_engine_over_a_directory_that_vanishes() {
    let (disk, mut engine) = well(3);
    disk.vanish();
    engine.cache.clear(&mut FreedSnapshots::new());
    engine.serve_at_ease(60);
    let stats = engine.stats();
    assert!(stats.store.is_read_only && stats.counters.failed_writes > 0, "{stats:?}");
    engine.serve(60, LONG);
    engine.end();
}

#[test]
fn t06_an_engine_over_a_disk_whose_bytes_changed() {
    let (disk, mut engine) = well(4);
    disk.scramble("data");
    engine.serve_at_ease(100);
    let stats = engine.stats();
    assert!(stats.counters.damaged > 3, "{stats:?}");
    assert_eq!(stats.counters.damaged, stats.counters.failed_loads);
    // What was found damaged was computed, and written again. Some may never have been asked for.
    let (found, made) = (stats.counters.damaged, 3 + 9 + 27);
    assert!(damaged_afterwards(&disk, engine, 5) <= made - found);
}

#[test]
fn t06_an_engine_over_a_disk_that_fails() {
    let (disk, mut engine) = well(5);
    disk.fail(Some((When::From(3), Fault::Io)));
    engine.serve_at_ease(100);
    let stats = engine.stats();
    assert!(stats.counters.failed_loads > 0 && stats.counters.damaged == 0, "{stats:?}");
    recovers(&disk, engine, 5);
}

/// T08: what waits for a disk that takes a second for each write gives way when it is too much.
#[test]
fn t06_an_engine_over_a_slow_disk() {
    let (disk, mut engine) = well(6);
    engine.cache.clear(&mut FreedSnapshots::new());
    engine.settle();
    disk.fail(Some((When::From(0), Fault::SlowWrites)));
    engine.serve(60, Duration::from_millis(5));
    let stats = engine.stats();
    assert!(stats.counters.busy > 0 && stats.store.waiting_bytes <= 3 * BYTES as u64, "{stats:?}");
    assert_eq!((stats.counters.failed_writes, stats.counters.failed_loads), (0, 0));
    disk.fail(None);
    engine.settle();
    recovers(&disk, engine, 1);
}

/// T11: and one that does not answer at all is not waited for.
#[test]
fn t06_an_engine_over_a_disk_that_stands_still() {
    let (disk, mut engine) = well(7);
    disk.stop(Stop::Everything);
    engine.serve(60, Duration::from_millis(2));
    let stats = engine.stats();
    assert!(stats.loading_bytes > 0 && stats.tickets == 0, "{stats:?}");
    disk.stop(Stop::Nothing);
    engine.settle();
    let start = Instant::now();
    while engine.stats().loading_bytes > 0 {
        assert!(start.elapsed() < LONG);
    }
    assert!(engine.stats().counters.late > 0);
    recovers(&disk, engine, 5);
}

/// T05, T07: when a flush after a clear, or after a removal, has returned, no crash brings back
/// what was cleared; and when the disk refuses that, the flush says so.
#[test]
fn t05_what_was_cleared_does_not_come_back_after_a_flush() {
    let (disk, engine) = well(9);
    let freed = &mut FreedSnapshots::new();
    let left = |seed| {
        let after = disk.after_crash(&mut Rng::with_seed(seed));
        Engine::new(&after, seed).attach().unwrap()
    };
    engine.compute(&[0], freed);
    assert!(engine.cache.flush(LONG, freed));
    let before = left(1);
    assert!(before > 5, "{before} records");
    engine.cache.remove(&Namespace::default(), &[0], freed);
    assert!(engine.cache.flush(LONG, freed));
    assert_eq!(left(2), before - 1);
    engine.cache.clear(freed);
    assert!(engine.cache.flush(LONG, freed));
    (0..20).for_each(|seed| assert_eq!(left(seed), 0));
    // What is being committed while it is cleared goes as well.
    for at in 0..20 {
        engine.compute(&[at, 1], freed);
        std::thread::sleep(Duration::from_micros(100 * u64::from(at)));
        engine.cache.clear(freed);
        assert!(engine.cache.flush(LONG, freed));
        assert_eq!(left(u64::from(at)), 0);
    }
    engine.compute(&[1], freed);
    assert!(engine.cache.flush(LONG, freed));
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    engine.cache.clear(freed);
    assert!(!engine.cache.flush(LONG, freed), "it is on the disk still");
    disk.fail(None);
    drop(std::mem::take(freed));
    engine.end();
}

/// T05: a flush does not say that what was replaced is gone while it is on the disk
/// still. Beside `t05_what_was_cleared_does_not_come_back_after_a_flush`, which has the same of a
/// clear.
#[test]
fn t05_what_was_replaced_is_not_said_to_be_gone_while_it_is_there() {
    let (disk, engine) = well(11);
    let freed = &mut FreedSnapshots::new();
    let tokens = [2, 2, 2, 2];
    engine.compute(&tokens, freed);
    assert!(engine.cache.flush(LONG, freed));
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    engine.compute(&tokens, freed);
    let is_said_to_be_gone = engine.cache.flush(LONG, freed);
    assert!(engine.stats().store.is_read_only);
    disk.fail(None);
    let next = Engine::new(&disk.after_crash(&mut Rng::with_seed(1)), 1);
    next.attach().unwrap();
    let found = next.cache.find(&Namespace::default(), &tokens, false, copy, freed).unwrap();
    let is_there = found.fetchable == tokens.len();
    assert!(!(is_said_to_be_gone && is_there), "the state of before came back after a flush");
    next.end();
    drop(std::mem::take(freed));
    engine.end();
}

/// T05: the same where what replaced it is too large for the directory.
#[test]
fn t05_what_a_large_one_replaced_is_not_said_to_be_gone_while_it_is_there() {
    let (disk, engine) = well(11);
    let freed = &mut FreedSnapshots::new();
    let tokens = [2, 2, 2, 2];
    engine.compute(&tokens, freed);
    assert!(engine.cache.flush(LONG, freed));
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    // The directory has 4 MiB.
    let large = 5_u64 << 20;
    let new = NewSnapshot {
        namespace: &Namespace::default(),
        tokens: &tokens,
        bytes: large,
        next_token: None,
        is_trimmable: false,
    };
    engine.alive.fetch_add(1, Relaxed);
    let state = || Saved { bytes: vec![1; large as usize], alive: engine.alive.clone() };
    engine.cache.insert(new, Some(&[large]), state, freed).unwrap();
    let is_said_to_be_gone = engine.cache.flush(LONG, freed);
    disk.fail(None);
    let next = Engine::new(&disk.after_crash(&mut Rng::with_seed(1)), 1);
    next.attach().unwrap();
    let found = next.cache.find(&Namespace::default(), &tokens, false, copy, freed).unwrap();
    let is_there = found.fetchable == tokens.len();
    assert!(!(is_said_to_be_gone && is_there), "the state of before came back after a flush");
    next.end();
    drop(std::mem::take(freed));
    engine.end();
}

/// T05: nor does a flush say that all is written when the disk refused something since the last.
#[test]
fn t05_a_flush_does_not_say_that_what_the_disk_refused_is_written() {
    let (disk, engine) = well(11);
    let freed = &mut FreedSnapshots::new();
    assert!(engine.cache.flush(LONG, freed));
    for (token, fault) in [(0, Fault::NoSpace), (1, Fault::ReadOnly), (2, Fault::ReadOnly)] {
        disk.fail(Some((When::From(0), fault)));
        engine.compute(&[2, 2, 2, token], freed);
        assert!(!engine.cache.flush(LONG, freed), "{fault:?}");
    }
    disk.fail(None);
    drop(std::mem::take(freed));
    engine.end();
}

/// T05: nor when another thread takes the disk away, and with it what is still to be written.
#[test]
fn t05_a_flush_does_not_say_that_what_was_taken_away_is_written() {
    let (disk, engine) = well(11);
    let cache = &engine.cache;
    assert!(cache.flush(LONG, &mut FreedSnapshots::new()));
    disk.stop(Stop::Writes);
    // A thread has each of two; the third one waits, and is given up.
    let lists = [[2, 2, 2, 0], [2, 2, 2, 1], [2, 2, 2, 2]];
    lists.iter().for_each(|tokens| engine.compute(tokens, &mut FreedSnapshots::new()));
    let is_said_to_be_written = std::thread::scope(|scope| {
        let flush = scope.spawn(|| cache.flush(LONG, &mut FreedSnapshots::new()));
        std::thread::sleep(Duration::from_millis(50));
        let detach = scope.spawn(|| cache.detach(Duration::ZERO, &mut FreedSnapshots::new()));
        while cache.is_attached() {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.stop(Stop::Nothing);
        assert!(!detach.join().unwrap());
        flush.join().unwrap()
    });
    let next = Engine::new(&disk.after_crash(&mut Rng::with_seed(1)), 1);
    next.attach().unwrap();
    let freed = &mut FreedSnapshots::new();
    let are_there = lists.iter().all(|tokens| {
        let found = next.cache.find(&Namespace::default(), tokens, false, copy, freed).unwrap();
        found.fetchable == tokens.len()
    });
    assert!(!is_said_to_be_written || are_there, "what was flushed is not there");
    next.end();
    engine.end();
}

/// The clock of the wall goes back and forth by years at each look: nothing here asks it.
#[test]
fn t06_an_engine_under_a_clock_that_jumps() {
    if std::env::var(JUMPS).is_ok() {
        jumps::check();
        let (disk, engine) = well(10);
        return recovers(&disk, engine, 10);
    }
    let folder = Folder::new();
    jumps::run(folder.path(), "troubles::t06_an_engine_under_a_clock_that_jumps", JUMPS, 0);
}

/// T14: a directory that another cache has.
#[test]
fn t06_an_engine_that_does_not_get_the_directory() {
    let (disk, engine) = well(8);
    let mut other = Engine::new(&disk, 9);
    assert!(matches!(other.attach(), Err(OpenError::InUse { .. })));
    other.serve(50, LONG);
    assert_eq!(other.answered[1], 0);
    other.end();
    recovers(&disk, engine, 5);
}
