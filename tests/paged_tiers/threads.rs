//! Engines' threads beside the tiers' own, and the disk's: each sequence is one thread's, copies
//! are carried out by whoever polls. ThreadSanitizer runs this too: the device's pages are plain
//! memory, so that a page which somebody gets too early is a race.
use crate::runs::runs;
use crate::world::{PAGE_BYTES, PAGE_SIZE, Setup, shared, value};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::store::{Scope, Shared};
use radixkv::tier::paged::{
    CopyJob, Deadline, Direction, Fetched, HostMemory, PagePolicy, PageTiers, TierConfig, TierPool,
};
use radixkv::tier::{DiskConfig, DiskStore};
use radixkv::token::TokenList;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const PAGES: u32 = 64;
const HOST_PAGES: usize = 80;
const DISK_BYTES: u64 = 200 << 12;
/// What nothing may take.
const LONG: Duration = Duration::from_secs(600);

/// A page of the device.
struct Page(UnsafeCell<[u32; PAGE_SIZE]>);
// SAFETY: who writes it is the only one to have it: that is what the test shows.
unsafe impl Sync for Page {}

struct Engine {
    shared: Arc<Shared>,
    tiers: std::sync::Arc<PageTiers>,
    device: Vec<Page>,
    /// Fetches that ended, whoever was told.
    fetched: Mutex<HashMap<SequenceId, Fetched>>,
    working: AtomicUsize,
    brought: AtomicUsize,
}

fn space(number: u32) -> Namespace {
    Namespace { lora: (number > 0).then_some(number.into()), ..Namespace::default() }
}

/// A few families, which part at any place.
fn prompt(rng: &mut fastrand::Rng) -> Vec<u32> {
    let (family, parts) = (rng.u32(..4), rng.u32(2..40));
    (0..rng.u32(2..48)).map(|at| 100 * family + at + 1000 * u32::from(at >= parts)).collect()
}

impl Engine {
    fn new(directory: &std::path::Path) -> Self {
        let setup = Setup::new(PAGES, 1, None);
        let shared = shared(&setup);
        let (disk_wake, wake) = PageTiers::disk_wake();
        let config = DiskConfig {
            wake: Some(wake),
            workers: 2,
            commit_interval: Duration::from_millis(2),
            ..DiskConfig::new(directory, DISK_BYTES, [7; 32])
        };
        let (disk, records) = DiskStore::open(config).unwrap();
        let config = TierConfig {
            remote: None,
            pools: vec![TierPool {
                page_bytes: PAGE_BYTES,
                host: HostMemory::Own((HOST_PAGES * PAGE_BYTES) as u64),
            }],
            disk: Some((Box::new(disk), records)),
            policy: PagePolicy::Through,
            agrees: false,
            wake: None,
        };
        let tiers = PageTiers::attach(&shared, config, disk_wake).unwrap();
        let device = (0..=PAGES).map(|_| Page(UnsafeCell::new([0; PAGE_SIZE]))).collect();
        let [working, brought] = [WORKERS, 0].map(AtomicUsize::new);
        Self { shared, tiers, device, fetched: Mutex::default(), working, brought }
    }

    fn page(&self, page: u32) -> *mut [u32; PAGE_SIZE] {
        self.device[page as usize].0.get()
    }

    fn copy(&self, job: CopyJob) {
        let (page, host) = (self.page(job.page).cast::<u8>(), job.host.as_ptr());
        // SAFETY: both are the copy's until it is complete; the slot's alignment may be anything.
        unsafe {
            match job.direction {
                Direction::Load => page.copy_from_nonoverlapping(host, PAGE_BYTES),
                Direction::Store => host.copy_from_nonoverlapping(page, PAGE_BYTES),
            }
        }
    }

    /// Carries out copies, some of them later than others; one in many fails.
    fn poll(&self, rng: &mut fastrand::Rng) {
        let (mut jobs, mut done) = (Vec::new(), Vec::new());
        let room = (rng.usize(..6), 8);
        self.tiers.poll(room, &mut |job| jobs.push(job), &mut |end| done.push(end)).unwrap();
        if !done.is_empty() {
            self.fetched.lock().unwrap().extend(done.into_iter().map(|end| (end.sequence, end)));
        }
        rng.shuffle(&mut jobs);
        for job in jobs {
            let is_good = rng.u32(..40) > 0;
            if is_good {
                self.copy(job);
            }
            self.tiers.complete(&[job.id], is_good).unwrap();
        }
    }

    /// Waits until a fetch has ended.
    fn wait(&self, id: SequenceId, rng: &mut fastrand::Rng) -> Fetched {
        let start = Instant::now();
        loop {
            if let Some(done) = self.fetched.lock().unwrap().remove(&id) {
                return done;
            }
            let stats = || self.tiers.stats();
            assert!(start.elapsed() < Duration::from_secs(60), "{id:?}: {:?}", stats());
            self.poll(rng);
            std::thread::yield_now();
        }
    }

    /// A sequence from its beginning to its end.
    fn serve(&self, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (space, tokens) = (space(rng.u32(..2)), prompt(rng));
        let info = self.shared.begin(&space, TokenList::text(&tokens), 0)?;
        let id = info.id;
        let mut known = info.cached_positions;
        let deadline = match rng.u32(..6) {
            0 => Deadline::After(Duration::ZERO),
            1 => Deadline::After(Duration::from_micros(rng.u64(1..300))),
            _ => Deadline::Never,
        };
        if rng.u32(..8) > 0 && self.tiers.fetch(id, deadline, false)?.is_begun {
            if rng.u32(..10) == 0 {
                self.poll(rng);
                return self.shared.turn().release(id).map(drop);
            }
            let done = self.wait(id, rng);
            self.brought.fetch_add(done.brought, Ordering::Relaxed);
            known = done.positions;
        } else if let Some(copy) = info.copy {
            // SAFETY: the cache keeps the source, and nobody else has the target.
            unsafe {
                let (source, target) = (*self.page(copy.source), &mut *self.page(copy.target));
                target[..copy.positions].copy_from_slice(&source[..copy.positions]);
            }
            self.shared.ending(|state| state.confirm_copies(id))?;
        }
        let row = self.shared.read().row_from(id.slot(), 0)?.to_vec();
        for at in 0..tokens.len() {
            let expected = value(&space, &tokens[..=at]);
            // SAFETY: what is not known is in pages that nobody else has.
            let place = unsafe { &raw mut (*self.page(row[at / PAGE_SIZE]))[at % PAGE_SIZE] };
            if at < known {
                // SAFETY: of these nothing changes while the sequence has them.
                assert_eq!(unsafe { place.read() }, expected, "position {at} of {tokens:?}");
            } else {
                // SAFETY: as above.
                unsafe { place.write(expected) };
            }
        }
        self.shared.write().publish(id, tokens.len())?;
        self.shared.turn().release(id).map(drop)
    }

    /// Pages that came from host memory, from the disk, and to sequences.
    fn came(&self) -> [u64; 3] {
        let stats = self.tiers.stats();
        let brought = self.brought.load(Ordering::Relaxed) as u64;
        [stats.host.fetched, stats.disk.fetched, brought]
    }

    fn work(&self, rng: &mut fastrand::Rng) {
        let (start, mut served) = (Instant::now(), 0);
        // On a slow disk little can be fetched at first.
        while served < runs(600) || self.came().iter().any(|&pages| pages <= runs(20)) {
            served += 1;
            assert!(start.elapsed() < LONG, "little was fetched: {:?}", self.tiers.stats());
            match self.serve(rng) {
                Ok(()) | Err(Error::OutOfPages(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
            // As long as a small model computes: pages are stored before they are evicted.
            for _ in 0..rng.usize(2..12) {
                self.poll(rng);
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// What else happens to a cache and its tiers.
    fn disturb(&self, rng: &mut fastrand::Rng) {
        while self.working.load(Ordering::Relaxed) > 0 {
            match rng.u32(..240) {
                0 => drop(self.shared.clear(Scope::exactly(space(rng.u32(..2)))).unwrap()),
                1 => self
                    .tiers
                    .shrink_to(rng.u64(..(HOST_PAGES * PAGE_BYTES) as u64), rng.u64(..DISK_BYTES)),
                2..6 => drop(self.tiers.flush(Duration::from_micros(rng.u64(..500)))),
                6..40 => drop(self.tiers.stats()),
                40..80 => drop(self.tiers.is_busy()),
                80..120 => drop(self.shared.evict(rng.usize(..12), |_, _| {}).unwrap()),
                _ => std::thread::sleep(Duration::from_micros(rng.u64(..400))),
            }
        }
    }
}

/// Counts down however its thread ends.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// T02, T04, T11, T12: no row maps what was not computed, whatever threads do beside each other.
#[test]
fn t04_threads_share_tiers() {
    let name = format!("paged-tiers-{}", std::process::id());
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}"); // says what was done, not in which order
    let engine = Engine::new(&directory);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS as u64 {
            let engine = &engine;
            scope.spawn(move || {
                let _working = Working(&engine.working);
                engine.work(&mut fastrand::Rng::with_seed(seed + worker));
            });
        }
        engine.disturb(&mut fastrand::Rng::with_seed(seed + 99));
    });
    let rng = &mut fastrand::Rng::new();
    let start = Instant::now();
    while engine.tiers.is_busy() || engine.tiers.stats().waiting > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", engine.tiers.stats());
        engine.poll(rng);
    }
    assert!(engine.tiers.flush(Duration::from_secs(60)));
    let stats = engine.tiers.stats();
    let pages = engine.came();
    assert!(pages.iter().all(|&pages| pages > runs(20)), "{pages:?} {stats:?}");
    assert_eq!((stats.counters.damaged, stats.store.damaged), ([0, 0], 0));
    let state = engine.shared.read();
    state.audit().unwrap();
    state.check().unwrap();
    assert_eq!((state.page_table_stats().private, state.copied_pages()), (0, 0));
    drop(state);
    engine.shared.detach_cache();
    let stats = engine.shared.read().page_table_stats();
    assert_eq!(stats.free, stats.total);
    drop(engine);
    std::fs::remove_dir_all(directory).unwrap();
}
