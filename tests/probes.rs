//! B09: probes take no lock. One thread changes a cache as fast as it can, others probe prompts of
//! which they know the answer, whatever happens to the rest. Miri and ThreadSanitizer run it too.
use radixkv::ids::LockId;
use radixkv::index::{Namespace, Portion};
use radixkv::journal::Reason;
use radixkv::memory::Arc;
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PAGE_SIZE: u32 = 4;
/// Enough that a root gets many children and the child table grows, too few for all of them.
const PAGES: u32 = if cfg!(miri) { 60 } else { 3000 };
const ROUNDS: usize = if cfg!(miri) { 20 } else { 30_000 };
const PROBERS: u64 = if cfg!(miri) { 1 } else { 3 };
/// No prompt that is ever cached has this token.
const NEVER: u32 = 999_999;
/// Positions of a prompt that stays locked.
const LOCKED: usize = 24;

fn namespace(number: u64) -> Namespace {
    Namespace { epoch: number, ..Namespace::default() }
}

fn new_cache(whole_pages: bool) -> Arc<Shared> {
    let config = PageTableConfig {
        page_size: PAGE_SIZE,
        page_count: PAGES,
        slot_count: 8,
        ..PageTableConfig::default()
    };
    let shared = Shared::new(config).unwrap();
    shared.attach_cache(CacheConfig { whole_pages, ..CacheConfig::default() }).unwrap();
    shared
}

/// Positions that a probe finds.
fn probe(shared: &Shared, space: u64, ids: &[u32]) -> usize {
    let (tokens, positions) = shared.probe(&namespace(space), TokenList::text(ids)).unwrap();
    assert_eq!(tokens, positions, "text tokens take one position each");
    positions
}

/// One of three prompts that stay. Their first tokens are those of many others.
fn kept(which: u32) -> Vec<u32> {
    let start = [which, 100 + which, 200 + which];
    start.into_iter().chain((3..LOCKED as u32).map(|at| 1000 * (1 + which) + at)).collect()
}

/// A prompt that comes and goes: of its own, or one that leaves a kept prompt somewhere.
fn passing(random: &mut fastrand::Rng) -> Vec<u32> {
    let number = random.u32(0..if cfg!(miri) { 30 } else { 700 });
    let mut ids = match number % 3 {
        0 => kept(number % 9 / 3)[..random.usize(0..LOCKED)].to_vec(),
        _ => vec![number % 7],
    };
    ids.extend((0..random.u32(1..24)).map(|at| 10_000 + number * 50 + at));
    ids
}

/// A request: computed and published in two parts, so that a node is made longer.
fn request(shared: &Shared, space: u64, ids: &[u32], random: &mut fastrand::Rng) {
    let info = shared.begin(&namespace(space), TokenList::text(ids), 0).unwrap();
    let mut state = shared.write();
    if info.copy.is_some() {
        state.confirm_copies(info.id).unwrap();
    }
    for positions in [random.usize(info.cached_positions..=ids.len()), ids.len()] {
        state.publish(info.id, positions).unwrap();
    }
    state.release(info.id).unwrap();
}

fn churn(shared: &Shared) {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..ROUNDS {
        let ids = passing(&mut random);
        // Other namespaces come and go; what is kept is never there.
        match random.u32(0..8) {
            0 => request(shared, 1 + round as u64 % 3, &[vec![7], ids].concat(), &mut random),
            _ => request(shared, 0, &ids, &mut random),
        }
        let count = match random.usize(0..200) {
            0 => PAGES as usize,
            few => few % 3,
        };
        shared.evict(count, |_, _| {}).unwrap();
        if round % (ROUNDS / 10) == 0 {
            let state = shared.write();
            state.check().unwrap();
            state.audit().unwrap();
        }
    }
}

/// Ends the others however its thread ends.
struct Working<'a>(&'a AtomicBool);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn ask(shared: &Shared, seed: u64, churning: &AtomicBool) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut asked = 0;
    while churning.load(Ordering::Relaxed) {
        asked += 1;
        let (which, cut) = (random.u32(0..3), random.usize(1..=LOCKED));
        let whole = kept(which);
        // What is locked is found to its end, and what was never cached isn't.
        assert_eq!(probe(shared, 0, &[&whole[..], &[NEVER; 9]].concat()), LOCKED);
        // Others share its first token at most, if they don't come from it.
        assert_eq!(probe(shared, 0, &[&whole[..cut], &[NEVER]].concat()), cut);
        let found = probe(shared, 0, &passing(&mut random));
        assert!(found <= LOCKED + 24);
        let below = passing(&mut random);
        let found = probe(shared, 0, &[&whole[..], &below[1..]].concat());
        assert!((LOCKED..LOCKED + below.len()).contains(&found));
        // Another namespace has none of it.
        assert_eq!(probe(shared, 1 + which as u64, &whole), 0);
        assert_eq!(probe(shared, 9, &whole), 0);
        assert_eq!(probe(shared, 0, &[NEVER, 1, 2, 3, 4]), 0);
        if cfg!(miri) {
            thread::yield_now();
        }
    }
    asked
}

/// What is locked is found at every moment, and what was never cached at none.
#[test]
fn b09_probes_are_right_while_the_cache_changes() {
    let shared = new_cache(false);
    let mut random = fastrand::Rng::with_seed(0);
    let locked: Vec<LockId> = (0..3)
        .map(|which| {
            let ids = kept(which);
            request(&shared, 0, &ids, &mut random);
            let mut state = shared.write();
            let found = state.find(&namespace(0), TokenList::text(&ids)).unwrap();
            let (taken, lock) = state.take_match(found, true).unwrap();
            assert_eq!(taken.positions, LOCKED);
            lock.unwrap()
        })
        .collect();
    let churning = AtomicBool::new(true);
    thread::scope(|scope| {
        let probers = (0..PROBERS).map(|seed| {
            let (shared, churning) = (&shared, &churning);
            scope.spawn(move || ask(shared, 100 + seed, churning))
        });
        let probers: Vec<_> = probers.collect();
        let working = Working(&churning);
        churn(&shared);
        drop(working);
        for prober in probers {
            assert!(prober.join().unwrap() > 0, "a thread that probes gets somewhere");
        }
    });
    for lock in locked {
        shared.turn().unlock(lock).unwrap();
    }
    let mut state = shared.write();
    state.evict(Portion::of(usize::MAX), Reason::Caller, &mut |_, _| {});
    assert_eq!(state.cache_stats().unwrap().nodes, 0);
    state.check().unwrap();
    state.audit().unwrap();
}

/// With the lock held for good, a probe still returns; so do many at once.
#[test]
#[cfg(any(miri, not(feature = "pthread-lock")))]
fn b09_a_probe_takes_no_lock() {
    use std::sync::mpsc;
    use std::time::Duration;
    for whole_pages in [false, true] {
        let shared = new_cache(whole_pages);
        let ids = kept(0);
        request(&shared, 0, &ids, &mut fastrand::Rng::with_seed(0));
        let held = shared.write();
        let (send, receive) = mpsc::channel();
        let probers: Vec<_> = (0..3)
            .map(|_| {
                let (shared, send) = (Arc::clone(&shared), send.clone());
                thread::spawn(move || {
                    let cut = probe(&shared, 0, &kept(0)[..18]);
                    let (other, nothing) = (probe(&shared, 5, &kept(0)), probe(&shared, 0, &[7]));
                    send.send((cut, other, nothing)).unwrap();
                })
            })
            .collect();
        let expected = (if whole_pages { 16 } else { 18 }, 0, 0);
        for _ in &probers {
            assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(expected));
        }
        drop(held);
        probers.into_iter().for_each(|prober| prober.join().unwrap());
    }
}

/// So does one for an id that no text has: where readers look for it there are places without a
/// child, which look like it.
#[test]
#[cfg(any(miri, not(feature = "pthread-lock")))]
fn b09_a_probe_for_no_text_id_takes_no_lock() {
    use std::sync::mpsc;
    use std::time::Duration;
    let shared = new_cache(false);
    let mut random = fastrand::Rng::with_seed(0);
    // Two children, and room for a third.
    (0..2).for_each(|which| request(&shared, 0, &kept(which), &mut random));
    let held = shared.write();
    let (send, receive) = mpsc::channel();
    let prober = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let found = [&[u32::MAX][..], &[u32::MAX; 9]].map(|ids| probe(&shared, 0, ids));
            send.send(found).unwrap();
        })
    };
    assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok([0, 0]));
    drop(held);
    prober.join().unwrap();
}
