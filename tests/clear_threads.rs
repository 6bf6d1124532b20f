//! K11: namespaces are cleared while threads begin, publish, fork, retain and release in them. What
//! began before a clear is found by nobody after it, whoever publishes it when; and in the end no
//! page is missing. ThreadSanitizer runs this file too.
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::TokenList;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const PAGES: u32 = 500;
const ROUNDS: usize = if cfg!(miri) { 20 } else { 1500 };
/// So many times that at most.
const MOST: usize = if cfg!(miri) { 1 } else { 50 };
/// Prompts that are to be found, and that are not to be after a clear.
const ENOUGH: usize = 1000;
const WORKERS: usize = 2;
const EPOCHS: u64 = 3;
/// Sequences of a worker that go a step at once.
const BATCH: usize = 3;
/// Of what began, the newest so many are looked for after a clear.
const RECENT: usize = 200;

/// Ends the others however its thread ends.
struct Working<'a>(&'a AtomicBool);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

struct World {
    shared: Shared,
    /// The namespace and the only first token of each prompt whose begin is over.
    begun: Mutex<Vec<(Namespace, u32)>>,
    next: AtomicUsize,
    working: AtomicBool,
    /// Prompts that were found after they were published, and that were looked for after a clear.
    found: AtomicUsize,
    cleared: AtomicUsize,
}

fn space(epoch: u64) -> Namespace {
    Namespace { epoch, ..Namespace::default() }
}

/// A prompt that no other one shares a token with at its beginning.
fn prompt(first: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| if at == 0 { 1_000_000 + first } else { at }).collect()
}

/// What may be refused when pages run out, or when what it goes on from was cleared.
fn expected<T>(done: Result<T, Error>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(Error::OutOfPages(_) | Error::OutOfSlots(..) | Error::StaleSequence(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A decode step of several sequences as one call: a token each, and all of it published.
fn step(shared: &Shared, sequences: &[SequenceId]) {
    shared.each(sequences.len(), |turn, at| {
        if expected(turn.append(sequences[at], TokenList::text(&[7]))).is_some() {
            let positions = turn.sequence_info(sequences[at]).unwrap().positions;
            turn.state().publish(sequences[at], positions).unwrap();
        }
    });
}

fn work(world: &World, seed: u64) {
    let (shared, mut random) = (&world.shared, fastrand::Rng::with_seed(seed));
    // On a busy machine until enough was cleared.
    let is_enough = || world.cleared.load(Ordering::Relaxed) > ENOUGH;
    for round in 0..MOST * ROUNDS {
        if round >= ROUNDS && is_enough() {
            break;
        }
        let name = space(random.u64(..EPOCHS));
        let mut live = Vec::new();
        for _ in 0..BATCH {
            let first = world.next.fetch_add(1, Ordering::Relaxed) as u32;
            let ids = prompt(first, random.u32(1..40));
            let Some(begun) = expected(shared.begin(&name, TokenList::text(&ids), 0)) else {
                continue;
            };
            assert_eq!(begun.cached_positions, 0, "nobody else has this prompt");
            world.begun.lock().unwrap().push((name, first));
            shared.write().publish(begun.id, random.usize(..=ids.len())).unwrap();
            live.push(begun.id);
            let found = shared.probe(&name, TokenList::text(&ids)).unwrap();
            world.found.fetch_add((found.1 > 0) as usize, Ordering::Relaxed);
        }
        step(shared, &live);
        if let Some(&parent) = live.first()
            && let Some(children) = expected(shared.fork(parent, 1, 4))
        {
            if children[0].copy.is_some() {
                shared.write().confirm_copies(children[0].id).unwrap();
            }
            live.push(children[0].id);
        }
        step(shared, &live);
        for id in live {
            match random.u8(..4) {
                0 => {
                    let retained = shared.turn().retain(id).unwrap();
                    if retained && random.bool() {
                        // Unless a clear dropped it.
                        expected(shared.turn().drop_retained(id));
                    }
                }
                _ => shared.turn().release(id).unwrap(),
            }
        }
    }
}

/// Clears again and again; what had begun before is not found after it.
fn clear(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while world.working.load(Ordering::Acquire) {
        let before = world.begun.lock().unwrap().clone();
        let epoch = random.u64(..=EPOCHS);
        let scope = if epoch == EPOCHS { Scope::default() } else { Scope::exactly(space(epoch)) };
        world.shared.clear(scope).unwrap();
        let covered = |name: &Namespace| epoch == EPOCHS || name.epoch == epoch;
        for &(name, first) in before.iter().rev().take(RECENT).filter(|(name, _)| covered(name)) {
            let ids = prompt(first, 40);
            let found = world.shared.probe(&name, TokenList::text(&ids)).unwrap();
            assert_eq!(found, (0, 0), "prompt {first} began before a clear");
            world.cleared.fetch_add(1, Ordering::Relaxed);
        }
        world.shared.read().audit().unwrap();
    }
}

#[test]
fn k11_nothing_of_before_a_clear_is_found_while_threads_work() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let config = PageTableConfig {
            page_size: 4,
            page_count: PAGES,
            slot_count: 16,
            ..PageTableConfig::default()
        };
        // Slices of two pages, so that others come in between all the time.
        let shared = Shared::with_slices(config, 2, None).unwrap();
        let journal_bytes = 1 << 16;
        let config = CacheConfig { index, journal_bytes, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        let world = World {
            shared,
            begun: Mutex::default(),
            next: AtomicUsize::new(0),
            working: AtomicBool::new(true),
            found: AtomicUsize::new(0),
            cleared: AtomicUsize::new(0),
        };
        thread::scope(|scope| {
            let world = &world;
            let workers: Vec<_> = (0..WORKERS as u64)
                .map(|worker| scope.spawn(move || work(world, worker)))
                .collect();
            scope.spawn(move || clear(world, 9));
            let _working = Working(&world.working);
            for worker in workers {
                worker.join().unwrap();
            }
        });
        let shared = &world.shared;
        shared.read().check().unwrap();
        shared.clear(Scope::default()).unwrap();
        shared.read().check().unwrap();
        shared.read().audit().unwrap();
        let stats = shared.read().page_table_stats();
        assert_eq!((stats.free, stats.cached, stats.private), (stats.total, 0, 0), "{index:?}");
        let [found, cleared] = [&world.found, &world.cleared].map(|n| n.load(Ordering::Relaxed));
        println!("{index:?}: {found} prompts were found, {cleared} not after a clear");
        assert!(cfg!(miri) || (found > ENOUGH && cleared > ENOUGH), "{found} and {cleared}");
    }
}
