//! Threads that share one cache through the ABI: each with sequences of its own, others that probe,
//! read the numbers and evict. Bounded in work, not in time; at the end everything is checked, and
//! nothing is left. ThreadSanitizer runs this file too.
use radixkv::capi::*;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const PAGE_SIZE: usize = 4;
const PAGES: u32 = 160;
const WORKERS: usize = 4;
/// Under Miri and the sanitizers everything takes long.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 400 };

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

fn namespace(number: usize) -> rkv_namespace {
    rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id: number as u64, ..sized() }
}

struct Shared {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    /// Workers that are not done.
    working: AtomicUsize,
    refused: AtomicUsize,
    /// Pages that were evicted while others were locked.
    guarded: AtomicUsize,
}
// SAFETY: every call may be made from any thread.
unsafe impl Sync for Shared {}

/// A prompt of a few that many threads share the beginning of.
fn prompt(worker: usize, round: usize) -> Vec<u32> {
    let mut ids: Vec<_> = (0..10).map(|at| at + (round % 3) as u32).collect();
    ids.extend((0..round % 23).map(|at| (at * (1 + round % 5)) as u32));
    ids.extend((0..worker as u32 % 2 * 6).map(|at| 100 + at));
    ids
}

/// Counts down however its thread ends: others wait for that.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn new() -> Self {
        let config = rkv_page_table_config {
            page_size: PAGE_SIZE as u32,
            page_count: PAGES,
            slot_count: 32,
            ..sized()
        };
        let (mut table, mut cache) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: all pointers lead to live values.
        unsafe {
            assert_eq!(rkv_page_table_create(&config, &mut table), rkv_status::Ok);
            assert_eq!(rkv_cache_create(table, ptr::null(), &mut cache), rkv_status::Ok);
        }
        let [working, refused, guarded] = [WORKERS, 0, 0].map(AtomicUsize::new);
        Self { table, cache, working, refused, guarded }
    }

    /// Begins, computes, publishes, decodes and releases sequences.
    fn work(&self, worker: usize) {
        let _working = Working(&self.working);
        // Whoever evicts may come late on a busy machine: others go on until it has seen something.
        let waits = || !cfg!(miri) && self.guarded.load(Ordering::Relaxed) == 0;
        for round in (0..1000 * ROUNDS).take_while(|&round| round < ROUNDS || waits()) {
            let (ids, namespace) = (prompt(worker, round), namespace(round % 2));
            let tokens = list(&ids);
            let args = rkv_sequence_begin_args { space: &namespace, tokens: &tokens, ..sized() };
            let mut state = sized::<rkv_sequence_info>();
            // SAFETY: all pointers lead to live values, the sequence is ours alone.
            unsafe {
                match rkv_sequence_begin(self.cache, &args, &mut state) {
                    rkv_status::Ok => {}
                    rkv_status::OutOfPages => {
                        self.refused.fetch_add(usize::from(round < ROUNDS), Ordering::Relaxed);
                        continue;
                    }
                    other => panic!("begin: {other:?}"),
                }
                assert!(state.cached_token_count < ids.len() as u64);
                self.decode(&state, ids.len() as u64, round % 9);
                let status = rkv_sequence_release(self.cache, state.sequence);
                assert_eq!(status, rkv_status::Ok);
            }
        }
    }

    /// # Safety
    /// The sequence is alive, and nobody else uses it.
    unsafe fn decode(&self, state: &rkv_sequence_info, prompt_count: u64, steps: usize) {
        let (id, mut positions) = (state.sequence, prompt_count);
        let mut result = sized::<rkv_sequence_publish_result>();
        let mut row = vec![0; PAGES as usize];
        let mut count = 0;
        // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
        unsafe {
            if state.copy_count > 0 {
                let mut contains = false;
                let mut copy =
                    rkv_page_copy { source_page: 0, target_page: 0, position_count: 0, group: 0 };
                let size = size_of::<rkv_page_copy>();
                let status =
                    rkv_sequence_read_copies(self.cache, id, &mut copy, size, 1, &mut count);
                assert_eq!((status, count), (rkv_status::Ok, 1));
                let source = copy.source_page;
                let status = rkv_cache_contains_page(self.cache, source, &mut contains);
                assert_eq!((status, contains), (rkv_status::Ok, true), "the source is protected");
                assert_eq!(rkv_sequence_confirm_copies(self.cache, id), rkv_status::Ok);
            }
            for step in 0..=steps {
                let status = rkv_sequence_publish(self.cache, id, positions, &mut result);
                assert_eq!(status, rkv_status::Ok);
                assert_eq!(result.shared_page_count, positions / PAGE_SIZE as u64);
                let (into, room) = (row.as_mut_ptr(), row.len());
                let status =
                    rkv_page_table_read_row(self.table, state.slot, 0, into, room, &mut count);
                assert_eq!(status, rkv_status::Ok);
                for &page in &row[..result.shared_page_count as usize] {
                    let mut contains = false;
                    let status = rkv_cache_contains_page(self.cache, page, &mut contains);
                    assert_eq!((status, contains), (rkv_status::Ok, true), "page {page} is ours");
                }
                match rkv_sequence_append(self.cache, id, &list(&[step as u32, 7])) {
                    rkv_status::Ok => positions += 2,
                    rkv_status::OutOfPages => break,
                    other => panic!("append: {other:?}"),
                }
            }
        }
    }

    /// Looks while others work. A probe finds whole tokens and no more than there are.
    fn look(&self) {
        let (mut round, mut stats) = (0, sized::<rkv_cache_stats>());
        let mut table_stats = sized::<rkv_page_table_stats>();
        while self.working.load(Ordering::Relaxed) > 0 {
            let (ids, namespace) = (prompt(round, round / 2), namespace(round % 2));
            let (mut token_count, mut position_count) = (0, 0);
            // SAFETY: all pointers lead to live values.
            unsafe {
                let status = rkv_cache_probe(
                    self.cache,
                    &namespace,
                    &list(&ids),
                    &mut token_count,
                    &mut position_count,
                );
                assert_eq!(status, rkv_status::Ok);
                assert!(token_count == position_count && token_count <= ids.len());
                assert_eq!(rkv_cache_read_stats(self.cache, &mut stats), rkv_status::Ok);
                let status = rkv_page_table_read_stats(self.table, &mut table_stats);
                assert_eq!(status, rkv_status::Ok);
            }
            let stats = &table_stats;
            let counted =
                stats.free_page_count + stats.cached_page_count + stats.private_page_count;
            assert_eq!(counted, stats.total_page_count, "K19: at every moment");
            assert!(stats.reclaimable_page_count <= stats.cached_page_count);
            round += 1;
            thread::yield_now();
        }
    }

    /// Evicts a little again and again, and matches with a lock in between.
    fn evict(&self) {
        let mut round = 0;
        while self.working.load(Ordering::Relaxed) > 0 {
            let (ids, namespace) = (prompt(1, round), namespace(0));
            let (mut found, mut count) = (sized::<rkv_cache_match_result>(), 0);
            let (mut pages, mut evicted) = ([0; 16], [0; 8]);
            // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
            unsafe {
                let status = rkv_cache_match(
                    self.cache,
                    &namespace,
                    &list(&ids),
                    RKV_MATCH_LOCK,
                    pages.as_mut_ptr(),
                    pages.len(),
                    &mut found,
                );
                assert_eq!(status, rkv_status::Ok);
                let status = rkv_cache_evict(self.cache, 8, evicted.as_mut_ptr(), 8, &mut count);
                assert_eq!(status, rkv_status::Ok);
                let locked = &pages[..found.page_count as usize];
                assert!(evicted[..count].iter().all(|page| !locked.contains(page)));
                if found.lock != 0 {
                    self.guarded.fetch_add(count, Ordering::Relaxed);
                    let status = rkv_cache_unlock(self.cache, found.lock);
                    assert_eq!(status, rkv_status::Ok);
                }
            }
            round += 1;
            thread::yield_now();
        }
    }

    fn check(&self) {
        // SAFETY: the handles are alive.
        unsafe {
            assert_eq!(rkv_cache_check(self.cache), rkv_status::Ok);
            assert_eq!(rkv_page_table_check(self.table), rkv_status::Ok);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_page_table_destroy(self.table);
            rkv_cache_destroy(self.cache);
        }
    }
}

/// B09, K16, K19: whatever the threads do, nothing is lost, and what is published stays protected.
#[test]
fn threads_share_a_cache() {
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
    assert!(shared.refused.load(Ordering::Relaxed) < WORKERS * ROUNDS, "somebody got through");
    let guarded = shared.guarded.load(Ordering::Relaxed);
    assert!(cfg!(miri) || guarded > 0, "nothing was evicted beside what is locked");

    let (mut count, mut stats) = (0, sized::<rkv_page_table_stats>());
    // SAFETY: all pointers lead to live values.
    unsafe {
        let status = rkv_cache_evict(shared.cache, usize::MAX, ptr::null_mut(), 0, &mut count);
        assert_eq!(status, rkv_status::Ok);
        assert_eq!(rkv_page_table_read_stats(shared.table, &mut stats), rkv_status::Ok);
    }
    assert_eq!(stats.free_page_count, stats.total_page_count);
    assert_eq!(stats.free_slot_count, stats.slot_count);
    shared.check();
}

/// A parent that threads retain, and what its family needs to know.
struct Family {
    shared: Shared,
    /// Ids that somebody retained. Any of them may be gone.
    parents: Mutex<Vec<rkv_sequence_id>>,
    inherited: AtomicUsize,
    stale: AtomicUsize,
}

impl Family {
    fn note(&self, status: rkv_status) -> bool {
        match status {
            rkv_status::Ok => return true,
            rkv_status::StaleSequence => self.stale.fetch_add(1, Ordering::Relaxed),
            rkv_status::OutOfPages | rkv_status::OutOfSlots => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed)
            }
            other => panic!("a child: {other:?}"),
        };
        false
    }

    /// Copies, publishes, and retains or releases.
    fn finish(&self, id: rkv_sequence_id, keep: bool) {
        let (cache, mut retained) = (self.shared.cache, false);
        let (mut state, mut result) = (sized(), sized());
        // SAFETY: all pointers lead to live values, the sequence is ours alone.
        unsafe {
            assert_eq!(rkv_sequence_read_info(cache, id, &mut state), rkv_status::Ok);
            if state.copy_count > 0 {
                assert_eq!(rkv_sequence_confirm_copies(cache, id), rkv_status::Ok);
            }
            let count = state.position_count;
            let status = rkv_sequence_publish(cache, id, count, &mut result);
            assert_eq!((status, result.shared_page_count), (rkv_status::Ok, count / 4));
            if keep {
                let status = rkv_sequence_retain(cache, id, &mut retained);
                assert_eq!(status, rkv_status::Ok);
                let mut parents = self.parents.lock().unwrap();
                parents.push(id);
                if parents.len() > 8 {
                    parents.remove(0);
                }
            } else {
                assert_eq!(rkv_sequence_release(cache, id), rkv_status::Ok);
            }
        }
    }

    fn parent(&self, round: usize) -> rkv_sequence_id {
        let parents = self.parents.lock().unwrap();
        parents.get(round % parents.len().max(1)).copied().unwrap_or(0)
    }

    /// Begins, continues, forks and drops sequences, those of other threads too.
    fn work(&self, worker: usize) {
        let _working = Working(&self.shared.working);
        for round in 0..ROUNDS {
            let (cache, mut state) = (self.shared.cache, sized::<rkv_sequence_info>());
            let (ids, parent) = (prompt(worker, round), self.parent(worker + round));
            let (all, suffix) = (list(&ids), list(&ids[..round % 4]));
            let begin = rkv_sequence_begin_args { tokens: &all, ..sized() };
            let go_on = rkv_sequence_continue_args { parent, tokens: &suffix, ..sized() };
            let mut children = [NOBODY; 3];
            let fork = rkv_sequence_fork_args { parent, child_count: 3, ..sized() };
            // SAFETY: all pointers lead to live values, there is room for all children.
            unsafe {
                match (worker + round) % 6 {
                    0 | 1 => {
                        if self.note(rkv_sequence_begin(cache, &begin, &mut state)) {
                            self.finish(state.sequence, round % 3 > 0);
                        }
                    }
                    2 | 3 => {
                        if self.note(rkv_sequence_continue(cache, &go_on, &mut state)) {
                            assert!(state.cached_position_count < state.position_count);
                            let count = state.inherited_position_count as usize;
                            self.inherited.fetch_add(count, Ordering::Relaxed);
                            self.finish(state.sequence, round % 3 == 0);
                        }
                    }
                    4 => {
                        if self.note(rkv_sequence_fork(
                            cache,
                            &fork,
                            children.as_mut_ptr(),
                            size_of::<rkv_sequence_fork_child>(),
                        )) {
                            for (at, child) in children.iter().enumerate() {
                                self.finish(child.sequence, at == 0);
                            }
                        }
                    }
                    _ => {
                        self.note(rkv_sequence_drop(cache, parent));
                    }
                }
            }
        }
    }
}

const NOBODY: rkv_sequence_fork_child =
    rkv_sequence_fork_child { sequence: 0, slot: 0, copy_count: 0 };

/// C01, C02, C04, C08, K19: parents are retained, dropped and displaced while children of them are
/// made in other threads.
#[test]
fn threads_share_parents() {
    let family = Family {
        shared: Shared::new(),
        parents: Mutex::default(),
        inherited: AtomicUsize::new(0),
        stale: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let family = &family;
            scope.spawn(move || family.work(worker));
        }
        scope.spawn(|| family.shared.look());
        scope.spawn(|| family.shared.evict());
    });
    let (shared, mut count) = (&family.shared, 0);
    shared.check();
    assert!(family.inherited.load(Ordering::Relaxed) > 0 || cfg!(miri), "nobody had a parent");
    let mut stats = sized::<rkv_page_table_stats>();
    // SAFETY: all pointers lead to live values.
    unsafe {
        let status = rkv_cache_drop_retained(shared.cache, usize::MAX, &mut count);
        assert_eq!(status, rkv_status::Ok);
        let status = rkv_cache_evict(shared.cache, usize::MAX, ptr::null_mut(), 0, &mut count);
        assert_eq!(status, rkv_status::Ok);
        assert_eq!(rkv_page_table_read_stats(shared.table, &mut stats), rkv_status::Ok);
    }
    assert_eq!(stats.free_page_count, stats.total_page_count);
    assert_eq!(stats.free_slot_count, stats.slot_count);
    shared.check();
}

/// Threads that append to one sequence each get room for what they add, whoever waits for whom.
#[test]
fn threads_append_to_one_sequence() {
    // Each call lets others in now and then; they meet in most rounds.
    for _ in 0..if cfg!(miri) { 1 } else { 8 } {
        append_to_one_sequence();
    }
}

fn append_to_one_sequence() {
    const MANY: usize = if cfg!(miri) { 70 } else { 20_000 };
    let config =
        rkv_page_table_config { page_size: 1, page_count: 1 << 18, slot_count: 1, ..sized() };
    let (mut table, mut cache) = (ptr::null_mut(), ptr::null_mut());
    let mut state = sized::<rkv_sequence_info>();
    // SAFETY: all pointers lead to live values.
    unsafe {
        assert_eq!(rkv_page_table_create(&config, &mut table), rkv_status::Ok);
        assert_eq!(rkv_cache_create(table, ptr::null(), &mut cache), rkv_status::Ok);
        let args = rkv_sequence_begin_args { tokens: &list(&[1]), ..sized() };
        assert_eq!(rkv_sequence_begin(cache, &args, &mut state), rkv_status::Ok);
    }
    let [working, refused, guarded] = [0; 3].map(AtomicUsize::new);
    let shared = Shared { table, cache, working, refused, guarded };
    let start = std::sync::Barrier::new(4);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (shared, start) = (&shared, &start);
            let id = state.sequence;
            scope.spawn(move || {
                let ids = vec![worker; MANY];
                start.wait();
                // SAFETY: all pointers lead to live values.
                let status = unsafe { rkv_sequence_append(shared.cache, id, &list(&ids)) };
                assert_eq!(status, rkv_status::Ok);
            });
        }
    });
    // SAFETY: all pointers lead to live values.
    let status = unsafe { rkv_sequence_read_info(cache, state.sequence, &mut state) };
    assert_eq!(status, rkv_status::Ok);
    assert_eq!(state.position_count as usize, 1 + 4 * MANY);
    assert!(state.page_count >= state.position_count, "there is a page for each position");
    shared.check();
}
