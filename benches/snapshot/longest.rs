//! The longest call of every verb of a snapshot cache among a hundred thousand snapshots, through
//! the C ABI: what an engine's loop may have to wait for.
//!
//! Everything is done several times in the same way. Of each call the shortest time counts, so that
//! what is left is the library's and not what else the machine did meanwhile.
//!
//!     cargo bench --bench snapshot_longest [-- ENTRIES]
use radixkv::capi::*;
use std::ptr;
use std::time::{Duration, Instant};

/// Tokens that all lists share, and those that each has of its own.
const SHARED: usize = 256;
const OWN: usize = 64;
/// Lists of one chat: each goes on where the one before it ends.
const TURNS: usize = 4;

/// A struct of the ABI that is zero but for its size.
fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

/// The tokens of an entry.
fn list(entry: usize) -> Vec<u32> {
    let (chat, turn) = (entry / TURNS, entry % TURNS);
    let mut rng = fastrand::Rng::with_seed(chat as u64);
    let shared = (0..SHARED as u32).map(|at| at % 1000);
    let mut own: Vec<u32> = (0..OWN * (turn + 1)).map(|_| rng.u32(0..50_000)).collect();
    own[0] = 50_000 + chat as u32;
    shared.chain(own).collect()
}

/// What this thread worked so far. Asking takes longer than a short call.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time leads to a live value.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs of the whole.
const RUNS: usize = 5;

/// The calls of a verb, in the order in which every run makes them.
struct Verb {
    name: &'static str,
    times: Vec<Duration>,
}

impl Verb {
    fn new(name: &'static str) -> Self {
        Self { name, times: Vec::new() }
    }

    fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let worked = processor_time();
        let start = Instant::now();
        let done = call();
        let passed = start.elapsed();
        // The system takes the processor away from what takes long.
        self.times.push(passed.min(processor_time() - worked));
        done
    }

    /// Takes the shorter time of each call.
    fn merge(&mut self, other: &Self) {
        assert_eq!(self.times.len(), other.times.len());
        let times = self.times.iter_mut().zip(&other.times);
        times.for_each(|(time, other)| *time = (*time).min(*other));
    }

    fn print(&mut self) {
        self.times.sort_unstable();
        let at = |part: f64| {
            let at = (self.times.len() - 1) as f64 * part;
            self.times[at as usize].as_secs_f64() * 1e6
        };
        let count = self.times.len();
        println!("| {} | {count} | {:.1} | {:.1} | {:.1} |", self.name, at(1.0), at(0.99), at(0.5));
    }
}

fn tokens(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

fn create(limit: u64) -> *mut rkv_snapshot_cache {
    let config = rkv_snapshot_cache_config { entry_limit: limit, byte_limit: u64::MAX, ..sized() };
    let mut cache = ptr::null_mut();
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_snapshot_cache_create(&config, &mut cache) });
    cache
}

fn insert(cache: *mut rkv_snapshot_cache, ids: &[u32]) -> rkv_status {
    let tokens = tokens(ids);
    let args = rkv_snapshot_cache_insert_args { tokens: &tokens, size_bytes: 1, ..sized() };
    // SAFETY: all pointers lead to live values.
    unsafe { rkv_snapshot_cache_insert(cache, &args, ptr::null_mut()) }
}

fn remove(cache: *mut rkv_snapshot_cache, ids: &[u32]) -> rkv_status {
    let tokens = tokens(ids);
    // SAFETY: all pointers lead to live values.
    unsafe { rkv_snapshot_cache_remove(cache, ptr::null(), &tokens, ptr::null_mut()) }
}

fn main() {
    let asked = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let entries: usize = asked.unwrap_or(100_000);
    let mut verbs = run(entries);
    for _ in 1..RUNS {
        verbs.iter_mut().zip(&run(entries)).for_each(|(verb, other)| verb.merge(other));
    }
    println!("| verb | calls | longest, us | p99 | p50 |\n|---|--:|--:|--:|--:|");
    verbs.iter_mut().for_each(Verb::print);
}

fn run(entries: usize) -> Vec<Verb> {
    let mut order: Vec<usize> = (0..entries).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    rng.shuffle(&mut order);

    let mut create_verb = Verb::new("create");
    let cache = create_verb.time(|| create(entries as u64));
    for _ in 0..1000 {
        let other = create_verb.time(|| create(1));
        // SAFETY: nobody uses it.
        unsafe { rkv_snapshot_cache_destroy(other) };
    }
    let mut growing = Verb::new("insert, growing");
    for &entry in &order {
        let ids = list(entry);
        ok(growing.time(|| insert(cache, &ids)));
    }
    let mut full = Verb::new("insert, one goes for the limit");
    for entry in entries..entries + entries / 4 {
        let ids = list(entry);
        ok(full.time(|| insert(cache, &ids)));
    }
    let (mut matches, mut pins) = (Verb::new("match and pin"), Vec::new());
    for entry in entries / 8..entries {
        let (ids, mut found) = (list(entry), sized::<rkv_snapshot_cache_match_result>());
        let tokens = tokens(&ids);
        // SAFETY: all pointers lead to live values.
        ok(matches.time(|| unsafe {
            rkv_snapshot_cache_match(cache, ptr::null(), &tokens, 0, &mut found)
        }));
        if found.pin != 0 {
            pins.push(found.pin);
        }
    }
    let mut stats_verb = Verb::new("statistics");
    let mut stats = sized::<rkv_snapshot_cache_stats>();
    for _ in 0..10_000 {
        // SAFETY: all pointers lead to live values.
        ok(stats_verb.time(|| unsafe { rkv_snapshot_cache_read_stats(cache, &mut stats) }));
    }
    let (pin_count, full_bytes) = (stats.pin_count, stats.index_bytes);
    let mut releases = Verb::new("release");
    rng.shuffle(&mut pins);
    for pin in pins {
        // SAFETY: the pin is out.
        ok(releases.time(|| unsafe { rkv_snapshot_cache_release(cache, pin) }));
    }
    let mut check = Verb::new("check");
    // SAFETY: the handle is alive.
    ok(check.time(|| unsafe { rkv_snapshot_cache_check(cache) }));
    let mut removes = Verb::new("remove");
    let mut all: Vec<usize> = (0..entries + entries / 4).collect();
    rng.shuffle(&mut all);
    for entry in all {
        let ids = list(entry);
        ok(removes.time(|| remove(cache, &ids)));
    }
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_snapshot_cache_read_stats(cache, &mut stats) });
    let empty_bytes = stats.index_bytes;

    order.iter().for_each(|&entry| ok(insert(cache, &list(entry))));
    let mut clear = Verb::new("clear");
    // SAFETY: the handle is alive.
    ok(clear.time(|| unsafe { rkv_snapshot_cache_clear(cache) }));
    order.iter().for_each(|&entry| ok(insert(cache, &list(entry))));
    let mut destroy = Verb::new("destroy");
    // SAFETY: nobody uses the handle any more.
    destroy.time(|| unsafe { rkv_snapshot_cache_destroy(cache) });

    eprintln!("{pin_count} pins; {full_bytes} bytes of index, {empty_bytes} when all are removed");
    let verbs = [create_verb, growing, full, matches, stats_verb, releases, check, removes];
    verbs.into_iter().chain([clear, destroy]).collect()
}
