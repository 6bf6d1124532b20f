//! An engine goes on over a disk that has each kind of bad luck: what it need not compute is what
//! it would have computed, no call waits, the counters say what happened, and nothing is left.
use crate::folder::Folder;
use crate::over_disk::{LONG, attach, attach_host, attach_simulated, copy_some};
use crate::sim::{Fault, SimDisk, Stop, When};
use crate::world::{PAGE_BYTES, PAGE_SIZE, Setup, World};
use crate::{PLAIN, jumps, prompt};
use fastrand::Rng;
use radixkv::ids::SequenceId;
use radixkv::store::Scope;
use radixkv::tier::paged::{Deadline, PageTierStats};
use radixkv::tier::{DiskConfig, DiskStore, OpenError};
use std::fs;
use std::time::{Duration, Instant};

/// Pages of the device: two prompts, and a few.
const DEVICE_PAGES: u32 = 20;
/// Pages of a prompt, but for its last token.
const PAGES: usize = 8;
const HOST_PAGES: usize = 2 * PAGES;
/// Prompts that have nothing in common.
const FAMILIES: u32 = 12;
/// What waits for the disk, in pages.
const WAITING: u64 = 6;
/// What a call may take: the machine may be busy, and what waits for a slow disk takes a second.
const QUICK: Duration = Duration::from_millis(900);
const JUMPS: &str = "RKV_PAGED_JUMPS";

fn config(directory: &str) -> DiskConfig {
    DiskConfig {
        workers: 2,
        commit_interval: Duration::from_millis(1),
        waiting_bytes: WAITING * PAGE_BYTES as u64,
        ..DiskConfig::new(directory, 2 << 20, [7; 32])
    }
}

/// An engine with little memory.
struct Engine {
    world: World,
    rng: Rng,
    /// Prompts that the device had, that came from below, and that were computed.
    answered: [u32; 3],
    /// Calls that took long.
    slow: u32,
}

impl Engine {
    /// One that has host memory, and nothing below.
    fn new(seed: u64) -> Self {
        let mut world = World::new(Setup::new(DEVICE_PAGES, HOST_PAGES, None));
        attach_host(&mut world, HOST_PAGES);
        Self { world, rng: Rng::with_seed(seed), answered: [0; 3], slow: 0 }
    }

    /// One over a disk, and how many pages that has.
    fn over(disk: &SimDisk, seed: u64) -> (Self, usize) {
        let mut engine = Self::new(seed);
        attach_simulated(&mut engine.world, HOST_PAGES, disk, config("")).unwrap();
        let pages = engine.stats().disk.pages;
        (engine, pages)
    }

    fn stats(&self) -> PageTierStats {
        self.world.tiers.stats()
    }

    /// One of the calls of an engine's loop, which must not wait.
    fn timed<R>(&mut self, call: impl FnOnce(&mut World) -> R) -> R {
        let start = Instant::now();
        let result = call(&mut self.world);
        let took = start.elapsed();
        self.slow += u32::from(took > QUICK);
        // The machine may stand still, but what waits for a slow disk does so again and again.
        assert!(self.slow < 4, "calls take long, the last one {took:?}");
        result
    }

    /// Begins a prompt; while its pages can't be had, others are copied and go.
    fn begin(&mut self, tokens: &[u32]) -> (SequenceId, usize) {
        for _ in 0..100_000 {
            if let Some(info) = self.timed(|world| world.begin(&PLAIN, tokens)) {
                return (info.id, info.cached_positions);
            }
            self.timed(copy_some);
            std::thread::sleep(Duration::from_micros(100));
        }
        panic!("pages do not come back: {:?}", self.stats());
    }

    /// Answers prompts, some of which begin like others.
    fn serve(&mut self, count: usize, deadline: Deadline) {
        for _ in 0..count {
            let mut tokens = prompt(self.rng.u32(1..=FAMILIES), (PAGES * PAGE_SIZE) as u32 + 1);
            if self.rng.u8(0..4) == 0 {
                tokens.truncate(18);
                tokens.extend(prompt(100 + self.rng.u32(0..2), 15));
            }
            let (id, had) = self.begin(&tokens);
            let found = self.timed(|world| world.fetch(id, deadline));
            if found.is_begun {
                self.wait_for(id);
            }
            let known = self.world.requests[&id].computed;
            let from = match PAGES * PAGE_SIZE {
                whole if had >= whole => 0,
                whole if known >= whole => 1,
                _ => 2,
            };
            self.answered[from] += 1;
            self.timed(|world| world.compute(id, tokens.len()));
            self.timed(|world| world.release(id));
            self.timed(copy_some);
            // The tiers' thread would sleep for longer than all prompts take.
            self.world.work();
        }
        self.world.check_all();
    }

    /// Until a fetch has ended.
    fn wait_for(&mut self, id: SequenceId) {
        let start = Instant::now();
        while self.world.requests[&id].is_open {
            assert!(start.elapsed() < LONG, "{:?}", self.stats());
            self.timed(copy_some);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The same, at a pace at which a good disk keeps up.
    fn serve_at_ease(&mut self, count: usize) {
        for _ in 0..count / 2 {
            self.serve(2, Deadline::Never);
            self.settle();
        }
    }

    /// Until all is stored, and the disk has what it will have: that is what the tiers say it has.
    fn settle(&mut self) {
        let start = Instant::now();
        loop {
            // What the journal says, as the tiers' thread does; then what the disk is given. Of one
            // that refuses, the flush says so.
            self.world.work();
            self.world.tiers.flush(LONG);
            let given = copy_some(&mut self.world);
            let stats = self.stats();
            let is_idle = stats.waiting == 0 && stats.open_copies == 0;
            if given == 0 && is_idle && stats.disk.pages as u64 == stats.store.records {
                return;
            }
            assert!(start.elapsed() < LONG, "it does not come to an end: {stats:?}");
        }
    }

    /// Nothing leaks: sequences, pages, copies, host memory.
    fn end(mut self) {
        self.world.end();
        let stats = self.stats();
        assert_eq!((stats.open_fetches, stats.open_copies, stats.copied_pages), (0, 0, 0));
        // Of a page that a write still has, the slot comes back when the write has ended.
        let start = Instant::now();
        loop {
            let stats = self.stats();
            if stats.free_slots + stats.host.pages == HOST_PAGES {
                return;
            }
            assert!(start.elapsed() < LONG, "{stats:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// An engine on a disk that was well until now, and has something.
fn well(seed: u64) -> (SimDisk, Engine) {
    let disk = SimDisk::new();
    let (mut engine, found) = Engine::over(&disk, seed);
    assert_eq!(found, 0);
    engine.serve_at_ease(100);
    let [device, below, computed] = engine.answered;
    assert!(device > 3 && below > 20 && computed > 10, "{:?}", engine.answered);
    // Of what came last host memory has what the device has, so that it is rarely asked.
    let is_asked = |engine: &Engine| engine.stats().host.fetched > 0;
    for _ in 0..100 {
        if is_asked(&engine) {
            break;
        }
        engine.serve_at_ease(10);
    }
    let stats = engine.stats();
    assert!(stats.disk.fetched > 100 && stats.host.fetched > 0, "{stats:?}");
    assert_eq!((stats.host.failed, stats.disk.failed, stats.counters.lost), (0, 0, 0));
    (disk, engine)
}

/// And it is well again: another process finds what there is, and goes on. How many pages are
/// damaged of those that there are.
fn recovers(disk: &SimDisk, engine: Engine, least: usize) -> u64 {
    engine.end();
    disk.fail(None);
    let (mut next, found) = Engine::over(disk, 99);
    assert!(found >= least, "{found} pages are left");
    next.serve_at_ease(60);
    assert!(next.answered[1] > 10, "{:?}", next.answered);
    let stats = next.stats();
    assert_eq!(stats.disk.failed, 0, "{stats:?}");
    next.end();
    stats.disk.damaged
}

/// Everything that host memory and the disk have goes.
fn clear(engine: &mut Engine) {
    engine.world.shared.clear(Scope::exactly(PLAIN)).unwrap();
    engine.settle();
}

#[test]
fn t06_an_engine_over_a_full_disk() {
    let (disk, mut engine) = well(1);
    // Others are gone for good, and there is no room for more.
    clear(&mut engine);
    let computed = engine.answered[2];
    disk.fail(Some((When::From(0), Fault::NoSpace)));
    engine.serve_at_ease(60);
    let stats = engine.stats();
    assert!(stats.store.no_space > 0 && stats.disk.failed > 0, "{stats:?}");
    assert!(engine.answered[2] > computed + 20, "without a disk it computes");
    assert_eq!(recovers(&disk, engine, 0), 0);
}

#[test]
fn t06_an_engine_over_a_disk_that_becomes_read_only() {
    let (disk, mut engine) = well(2);
    disk.fail(Some((When::From(0), Fault::ReadOnly)));
    let (before, fetched) = (engine.answered, engine.stats().disk.fetched);
    engine.serve_at_ease(60);
    let stats = engine.stats();
    assert!(engine.answered[1] > before[1] + 20, "what is there is still read");
    assert!(stats.disk.fetched > fetched + 100, "{stats:?}");
    assert_eq!((stats.store.failed_reads, stats.counters.shortened), (0, 0));
    // What is new is not written.
    clear(&mut engine);
    engine.serve_at_ease(30);
    let stats = engine.stats();
    assert!(stats.disk.failed > 0 && stats.store.is_read_only, "{stats:?}");
    assert_eq!(recovers(&disk, engine, 5), 0);
}

#[test]
fn t06_an_engine_over_a_directory_that_vanishes() {
    let (disk, mut engine) = well(3);
    disk.vanish();
    clear(&mut engine);
    engine.serve_at_ease(40);
    let stats = engine.stats();
    assert!(stats.store.is_read_only && stats.disk.failed > 0, "{stats:?}");
    assert_eq!(stats.disk.pages, 0, "{stats:?}");
    engine.serve(40, Deadline::Never);
    engine.end();
}

#[test]
fn t06_an_engine_over_a_disk_whose_bytes_changed() {
    let (disk, mut engine) = well(4);
    let pages = engine.stats().disk.pages as u64;
    disk.scramble("data");
    engine.serve_at_ease(60);
    let stats = engine.stats();
    assert!(stats.disk.damaged > 10 && stats.counters.shortened > 3, "{stats:?}");
    assert_eq!((stats.host.damaged, stats.host.failed, stats.disk.failed), (0, 0, 0));
    assert_eq!(stats.disk.damaged, stats.store.damaged, "each is counted once");
    // What was found damaged was computed, and written again. Some was never asked for.
    assert!(recovers(&disk, engine, 5) <= pages - stats.disk.damaged);
}

#[test]
fn t06_an_engine_over_a_disk_that_fails() {
    let (disk, mut engine) = well(5);
    disk.fail(Some((When::From(3), Fault::Io)));
    engine.serve_at_ease(60);
    let stats = engine.stats();
    assert!(stats.disk.failed > 0 && stats.store.failed_reads > 0, "{stats:?}");
    assert!(stats.counters.shortened > 0 && stats.disk.damaged == 0, "{stats:?}");
    assert_eq!(recovers(&disk, engine, 5), 0);
}

/// T08: what waits for a disk that takes a second for each write is bounded, and the engine is not
/// kept waiting.
#[test]
fn t06_an_engine_over_a_slow_disk() {
    let (disk, mut engine) = well(6);
    clear(&mut engine);
    disk.fail(Some((When::From(0), Fault::SlowWrites)));
    engine.serve(60, Deadline::After(Duration::from_millis(5)));
    let stats = engine.stats();
    assert!(stats.counters.disk_busy > 0, "{stats:?}");
    assert!(stats.store.waiting_bytes <= WAITING * PAGE_BYTES as u64, "{stats:?}");
    assert_eq!((stats.disk.failed, stats.store.failed_writes), (0, 0));
    disk.fail(None);
    engine.settle();
    assert!(engine.stats().store.write_nanoseconds > 1_000_000_000);
    assert_eq!(recovers(&disk, engine, 1), 0);
}

/// T11: and one that does not answer at all is waited for until the deadline, and no longer.
#[test]
fn t06_an_engine_over_a_disk_that_stands_still() {
    let (disk, mut engine) = well(7);
    disk.stop(Stop::Everything);
    engine.serve(60, Deadline::After(Duration::from_millis(2)));
    let stats = engine.stats();
    assert!(stats.counters.late > 5 && stats.open_fetches == 0, "{stats:?}");
    disk.stop(Stop::Nothing);
    engine.settle();
    assert_eq!(engine.stats().disk.failed, 0);
    assert_eq!(recovers(&disk, engine, 5), 0);
}

/// A folder with what an engine has computed, and what it says when it is opened again.
fn filled() -> Folder {
    let folder = Folder::new();
    let mut engine = Engine::new(11);
    attach_folder(&mut engine, &folder, [7; 32]).unwrap();
    engine.serve_at_ease(60);
    assert!(engine.stats().disk.pages > 60);
    engine.end();
    folder
}

fn attach_folder(
    engine: &mut Engine,
    folder: &Folder,
    fingerprint: [u8; 32],
) -> Result<(), OpenError> {
    let config = config(folder.path().to_str().unwrap());
    attach(&mut engine.world, HOST_PAGES, |wake| {
        DiskStore::open(DiskConfig { wake: Some(wake), fingerprint, ..config })
    })
}

/// T14: a directory that another process has, of another version, of another model: it is told,
/// and the engine goes on with host memory alone.
#[test]
fn t06_an_engine_that_does_not_get_the_directory() {
    let folder = filled();
    let refused = |fingerprint| {
        let mut other = Engine::new(12);
        let error = attach_folder(&mut other, &folder, fingerprint).unwrap_err();
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        other.serve_at_ease(40);
        other.end();
        error
    };
    let mut owner = Engine::new(13);
    attach_folder(&mut owner, &folder, [7; 32]).unwrap();
    assert!(matches!(refused([7; 32]), OpenError::InUse { .. }));
    owner.serve_at_ease(40);
    assert!(owner.stats().disk.fetched > 0);
    owner.end();
    assert!(matches!(refused([8; 32]), OpenError::Fingerprint { .. }));
    let file = folder.path().join("format");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("version 3\n", "version 7\n")).unwrap();
    assert!(matches!(refused([7; 32]), OpenError::Version { found: 7, .. }));
    fs::write(&file, text).unwrap();
    let mut again = Engine::new(14);
    attach_folder(&mut again, &folder, [7; 32]).unwrap();
    again.serve_at_ease(40);
    assert!(again.stats().disk.fetched > 0);
    again.end();
}

/// Garbage in each of the files, of each length: the directory is refused, or what it has is found
/// damaged page by page; what is computed is right, and can be kept.
#[test]
fn t06_an_engine_over_garbage_in_each_file() {
    for name in ["format", "records.redb", "data", "lock"] {
        for length in [0, 1, 100, 4096, 3 << 20] {
            let folder = filled();
            let mut garbage = vec![0; length];
            Rng::with_seed(length as u64).fill(&mut garbage);
            fs::write(folder.path().join(name), garbage).unwrap();
            let mut engine = Engine::new(15);
            match attach_folder(&mut engine, &folder, [7; 32]) {
                Ok(()) => {
                    let found = engine.stats();
                    engine.serve_at_ease(40);
                    let stats = engine.stats();
                    assert_eq!(
                        stats.disk.damaged > 0,
                        name == "data",
                        "{name}, {length}: {stats:?}"
                    );
                    assert!(name != "lock" || found.disk.pages > 60, "{name}, {length}");
                    assert!(stats.disk.stored > 0 && stats.disk.failed == 0, "{stats:?}");
                }
                Err(OpenError::Damaged { .. }) => {
                    assert!(["format", "records.redb"].contains(&name), "{name}, {length}");
                    engine.serve_at_ease(40);
                }
                Err(error) => panic!("{name}, {length}: {error}"),
            }
            engine.end();
        }
    }
}

/// The clock of the wall goes back and forth by years at each look: nothing here asks it.
#[test]
fn t06_an_engine_under_a_clock_that_jumps() {
    if std::env::var(JUMPS).is_ok() {
        jumps::check();
        let (disk, engine) = well(8);
        assert_eq!(recovers(&disk, engine, 60), 0);
        return;
    }
    let folder = Folder::new();
    jumps::run(folder.path(), "troubles::t06_an_engine_under_a_clock_that_jumps", JUMPS, 0);
}
