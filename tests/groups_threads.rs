//! G: threads that share a cache with several groups: each with sequences of its own, others that
//! look up, lock, evict in each pool and count. Bounded in work, not in time; at the end everything
//! is checked, and nothing is left. ThreadSanitizer and Miri run this file too.
use radixkv::capi::*;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const PAGE_SIZE: usize = 4;
/// Those of FULL, of WINDOW, and of STATE.
const POOLS: [u32; 3] = [140, 80, 24];
const WORKERS: usize = 3;
/// Under Miri and the sanitizers everything takes long.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };

fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

#[track_caller]
fn must(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

fn list(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// A prompt of a few that many threads share the beginning of.
fn prompt(worker: usize, round: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..9).map(|at| at + (round % 3) as u32).collect();
    ids.extend((0..round % 31).map(|at| (at * (1 + round % 4)) as u32));
    ids.extend((0..worker as u32 % 2 * 6).map(|at| 100 + at));
    ids
}

struct Shared {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    /// Workers that are not done.
    working: AtomicUsize,
    /// Somebody evicts beside the workers.
    looks_on: AtomicBool,
    /// A round of which a prompt was served last.
    served: AtomicUsize,
    saved: AtomicUsize,
    reused: AtomicUsize,
    /// Pages that were evicted while others were locked, and pages of states that were locked.
    evicted: AtomicUsize,
    locked: AtomicUsize,
}
// SAFETY: every call may be made from any thread.
unsafe impl Sync for Shared {}

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and a sequence is used by the thread that began
// it.
/// Counts down however its thread ends: others wait for that.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn new() -> Self {
        let group = |kind, pool, window, draft_state_count| rkv_group_config {
            kind,
            pool,
            window,
            sinks: 0,
            chunk: 0,
            draft_state_count,
        };
        let groups = [
            group(RKV_GROUP_FULL, 0, 0, 0),
            group(RKV_GROUP_WINDOW, 1, 9, 0),
            group(RKV_GROUP_STATE, 2, 0, 1),
        ];
        let pools = POOLS.map(|pages| rkv_pool_config { page_count: pages + 1, reserved: 0 });
        let config = rkv_page_table_config {
            page_size: PAGE_SIZE as u32,
            slot_count: 16,
            groups: groups.as_ptr(),
            group_count: groups.len(),
            group_size: size_of::<rkv_group_config>(),
            pools: pools.as_ptr(),
            pool_count: pools.len(),
            pool_size: size_of::<rkv_pool_config>(),
            ..sized()
        };
        let (mut table, mut cache) = (null_mut(), null_mut());
        let limited = rkv_cache_config { checkpoint_limit: 2, journal_bytes: 1 << 14, ..sized() };
        // SAFETY: see above.
        unsafe {
            must(rkv_page_table_create(&config, &mut table));
            must(rkv_cache_create(table, &limited, &mut cache));
        }
        let working = AtomicUsize::new(WORKERS);
        let [served, saved, reused, evicted, locked] = [0; 5].map(AtomicUsize::new);
        let looks_on = AtomicBool::new(false);
        Self { table, cache, working, looks_on, served, saved, reused, evicted, locked }
    }

    fn work(&self, worker: usize) {
        let _working = Working(&self.working);
        let seen = |of: &AtomicUsize| of.load(Ordering::Relaxed) > 0;
        // They go on until whoever evicts has seen something of each kind.
        let waits = || !(cfg!(miri) || seen(&self.evicted) && seen(&self.locked));
        for round in (0..1000 * ROUNDS).take_while(|&round| round < ROUNDS || waits()) {
            // Whoever looks on gets a turn.
            while !self.looks_on.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            thread::yield_now();
            let ids = prompt(worker, round);
            let tokens = list(&ids);
            let args = rkv_sequence_begin_args {
                tokens: &tokens,
                allocate_position_count: if round % 2 == 0 { 8 } else { 0 },
                ..sized()
            };
            let mut info = sized::<rkv_sequence_info>();
            // SAFETY: see above.
            match unsafe { rkv_sequence_begin(self.cache, &args, &mut info) } {
                rkv_status::Ok => {
                    let reused = info.cached_position_count as usize;
                    assert!(reused < ids.len());
                    self.reused.fetch_add(reused, Ordering::Relaxed);
                    self.serve(&info, ids.len() as u64, round);
                    if worker == 1 {
                        self.served.store(round, Ordering::Relaxed);
                    }
                }
                rkv_status::OutOfPages => self.make_room(),
                other => panic!("begin: {other:?}"),
            }
        }
    }

    /// Retained sequences keep windows and states, of which there are few.
    fn make_room(&self) {
        for (pool, pages) in (0..).zip(POOLS) {
            let mut dropped = 0;
            let few = pages as usize / 4;
            // SAFETY: see above.
            must(unsafe { rkv_cache_drop_retained_pool(self.cache, pool, few, &mut dropped) });
        }
    }

    /// Computes a prompt in chunks, saves its states at their ends, and ends it in one way or
    /// another.
    fn serve(&self, info: &rkv_sequence_info, prompt: u64, round: usize) {
        let (cache, id) = (self.cache, info.sequence);
        let (mut result, mut count) = (sized::<rkv_sequence_publish_result>(), 0);
        let mut group = rkv_published_group {
            group: 0,
            claimed_page_count: 0,
            remapped_page_count: 0,
            reserved: 0,
        };
        // SAFETY: see above.
        unsafe {
            if info.copy_count > 0 {
                must(rkv_sequence_confirm_copies(cache, id));
            }
            let mut computed = info.cached_position_count;
            while computed < prompt {
                let end = prompt.min((computed / 8 + 1) * 8);
                match rkv_sequence_allocate(cache, id, end) {
                    rkv_status::Ok => {}
                    rkv_status::OutOfPages => {
                        self.make_room();
                        break;
                    }
                    other => panic!("allocate: {other:?}"),
                }
                must(rkv_sequence_publish(cache, id, end, &mut result));
                let (into, size) = (&raw mut group, size_of::<rkv_published_group>());
                let status = rkv_sequence_read_published(cache, id, into, size, 1, &mut count);
                assert_eq!((status, count), (rkv_status::BufferTooSmall, 2));
                if end.is_multiple_of(PAGE_SIZE as u64) {
                    match rkv_sequence_checkpoint(cache, id, &mut count) {
                        rkv_status::Ok if count > 0 => {
                            must(rkv_sequence_confirm_copies(cache, id));
                            self.saved.fetch_add(1, Ordering::Relaxed);
                        }
                        rkv_status::Ok | rkv_status::OutOfPages => {}
                        other => panic!("checkpoint: {other:?}"),
                    }
                }
                computed = end;
            }
            match round % 4 {
                0 => must(rkv_sequence_donate(cache, id, &mut count)),
                1 => {
                    let mut retained = false;
                    must(rkv_sequence_retain(cache, id, &mut retained));
                }
                2 => self.fork(id),
                _ => must(rkv_sequence_release(cache, id)),
            }
        }
    }

    /// Two children, who copy what they are to copy; then all end.
    fn fork(&self, parent: rkv_sequence_id) {
        let args = rkv_sequence_fork_args { parent, child_count: 2, ..sized() };
        let nobody = rkv_sequence_fork_child { sequence: 0, slot: 0, copy_count: 0 };
        let (mut children, size) = ([nobody; 2], size_of::<rkv_sequence_fork_child>());
        // SAFETY: see above.
        unsafe {
            match rkv_sequence_fork(self.cache, &args, children.as_mut_ptr(), size) {
                rkv_status::Ok => {
                    for child in children {
                        if child.copy_count > 0 {
                            must(rkv_sequence_confirm_copies(self.cache, child.sequence));
                        }
                        must(rkv_sequence_release(self.cache, child.sequence));
                    }
                }
                rkv_status::OutOfPages | rkv_status::OutOfSlots => {}
                other => panic!("fork: {other:?}"),
            }
            must(rkv_sequence_release(self.cache, parent));
        }
    }

    fn counts(&self, pool: u32) -> rkv_pool_stats {
        let mut stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_page_table_read_pool_stats(self.table, pool, &mut stats) });
        stats
    }

    /// Looks while others work.
    fn look(&self) {
        let mut round = 0;
        while self.working.load(Ordering::Relaxed) > 0 {
            let ids = prompt(round, round / 2);
            let mut depths = sized::<rkv_group_depths>();
            let cost = rkv_group_cost { group: 0, reserved: 0, lost_position_count: 0 };
            let (mut costs, mut count) = ([cost; 3], 0);
            let size = size_of::<rkv_group_cost>();
            // SAFETY: see above.
            must(unsafe {
                let (tokens, into) = (list(&ids), costs.as_mut_ptr());
                rkv_cache_probe_groups(
                    self.cache,
                    null(),
                    &tokens,
                    into,
                    size,
                    3,
                    &mut count,
                    &mut depths,
                )
            });
            let lost: u64 = costs.iter().map(|cost| cost.lost_position_count).sum();
            assert_eq!(depths.known_position_count, depths.position_count + lost);
            for pool in 0..3 {
                let stats = self.counts(pool);
                let sum =
                    stats.free_page_count + stats.cached_page_count + stats.private_page_count;
                assert_eq!(sum, stats.total_page_count, "G09: at every moment");
                assert!(stats.reclaimable_page_count <= stats.cached_page_count);
            }
            round += 1;
            thread::yield_now();
        }
    }

    /// Matches with a lock, evicts a little in each pool, and finds what it locked still there.
    fn evict(&self) {
        let mut round = 0;
        self.looks_on.store(true, Ordering::Relaxed);
        while self.working.load(Ordering::Relaxed) > 0 {
            let ids = prompt(1, self.served.load(Ordering::Relaxed));
            let mut found = sized::<rkv_cache_match_result>();
            let (mut pages, mut count, mut freed) = ([0; 16], 0, 0);
            let none = rkv_locked_page { page_index: 0, page: 0 };
            let (mut held, mut counts) = ([[none; 8]; 2], [0; 2]);
            let mut evicted = [rkv_evicted_page { group: 0, page: 0 }; 12];
            // SAFETY: see above.
            unsafe {
                let (tokens, into) = (list(&ids), pages.as_mut_ptr());
                must(rkv_cache_match(
                    self.cache,
                    null(),
                    &tokens,
                    RKV_MATCH_LOCK,
                    into,
                    16,
                    &mut found,
                ));
                if found.lock != 0 {
                    for (group, (held, count)) in (1..).zip(held.iter_mut().zip(&mut counts)) {
                        let (into, size) = (held.as_mut_ptr(), size_of::<rkv_locked_page>());
                        must(rkv_cache_read_locked_pages(
                            self.cache, found.lock, group, into, size, 8, count,
                        ));
                    }
                }
                let (into, size) = (evicted.as_mut_ptr(), size_of::<rkv_evicted_page>());
                let pool = (round % 3) as u32;
                // Now and then it makes room also where nothing is found.
                let most = if found.lock != 0 { 2 } else { usize::from(round % 64 == 0) };
                must(rkv_cache_evict_pool(
                    self.cache, pool, most, into, size, 12, &mut count, &mut freed,
                ));
                for gone in &evicted[..count] {
                    let is_locked = match gone.group as usize {
                        0 => pages[..found.page_count as usize].contains(&gone.page),
                        group => {
                            let held = &held[group - 1][..counts[group - 1]];
                            held.iter().any(|page| page.page == gone.page)
                        }
                    };
                    assert!(!is_locked, "{gone:?} is locked", gone = (gone.group, gone.page));
                }
                if found.lock != 0 {
                    self.evicted.fetch_add(count, Ordering::Relaxed);
                    self.locked.fetch_add(counts[1], Ordering::Relaxed);
                    must(rkv_cache_unlock(self.cache, found.lock));
                }
            }
            round += 1;
            thread::yield_now();
        }
    }

    fn check(&self) {
        // SAFETY: see above.
        unsafe {
            must(rkv_cache_check(self.cache));
            must(rkv_page_table_check(self.table));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
    }
}

/// G05, G06, G07, G09: whatever the threads do, nothing is lost, and what is locked stays.
#[test]
fn g06_g09_threads_share_groups() {
    let shared = Shared::new();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let shared = &shared;
            scope.spawn(move || shared.work(worker));
        }
        scope.spawn(|| shared.look());
        scope.spawn(|| shared.evict());
    });
    shared.check();
    let [saved, reused] = [&shared.saved, &shared.reused].map(|of| of.load(Ordering::Relaxed));
    assert!(cfg!(miri) || (saved > 0 && reused > 0), "{saved} states, {reused} positions");
    let [evicted, locked] = [&shared.evicted, &shared.locked].map(|of| of.load(Ordering::Relaxed));
    assert!(cfg!(miri) || (evicted > 0 && locked > 0), "{evicted} evicted, {locked} states locked");
    let (mut count, mut freed) = (0, 0);
    // SAFETY: all pointers lead to live values.
    unsafe {
        must(rkv_cache_drop_retained(shared.cache, usize::MAX, &mut count));
        for pool in [2, 1, 0] {
            let none = null_mut();
            must(rkv_cache_evict_pool(
                shared.cache,
                pool,
                usize::MAX,
                none,
                0,
                0,
                &mut count,
                &mut freed,
            ));
        }
    }
    for pool in 0..3 {
        let counts = shared.counts(pool);
        assert_eq!(counts.free_page_count, counts.total_page_count, "pool {pool}");
    }
    shared.check();
}
