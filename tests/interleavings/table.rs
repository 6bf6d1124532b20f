//! The larger table of an index, which is made while others have the lock.
use crate::{NEXT, SHARED, Step, at_yield};
use radixkv::error::Error;
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::TokenList;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Nodes, twice as many as the first table has room for.
const NODES: u32 = 1640;

fn config(index: IndexKind) -> CacheConfig {
    CacheConfig { index, ..CacheConfig::default() }
}

fn begin_and_publish(shared: &Shared, token: u32) -> Result<(), Error> {
    let begun = shared.begin(&Namespace::default(), TokenList::text(&[token, 7]), 0)?;
    let published = shared.turn().publish(begun.id, 1);
    // Without a cache the sequence is gone.
    drop(shared.turn().release(begun.id));
    published.map(drop)
}

fn cached(shared: &Shared, token: u32) -> bool {
    let state = shared.read();
    let found = state.find(&Namespace::default(), TokenList::text(&[token])).unwrap();
    found.positions() == 1
}

/// Publishes one node after another; others do something while the first larger table is made.
/// Returns which node that was, and what became of it.
fn grow(index: IndexKind, others: fn(&Shared, IndexKind)) -> (Arc<Shared>, u32, Result<(), Error>) {
    SHARED.set(None);
    NEXT.set(None);
    let pages = PageTableConfig {
        page_size: 1,
        page_count: 4 * NODES,
        slot_count: 2,
        ..PageTableConfig::default()
    };
    let shared = Arc::new(Shared::with_slices(pages, 64, Some(Box::new(at_yield))).unwrap());
    shared.attach_cache(config(index)).unwrap();
    SHARED.set(Some(shared.clone()));
    for token in 0..NODES {
        let was_made = Rc::new(Cell::new(false));
        let made = was_made.clone();
        let step: Step = Box::new(move |shared| {
            // When that is published the allocator may get its turn; a table comes before.
            if !cached(shared, token) {
                others(shared, index);
                made.set(true);
            }
        });
        NEXT.set(Some((0, step)));
        let done = begin_and_publish(&shared, token);
        NEXT.set(None);
        if was_made.get() {
            return (shared, token, done);
        }
        done.unwrap();
    }
    panic!("{index:?}: no larger table was made by itself");
}

/// What others do meanwhile is kept, whether the table is still wanted then or not.
#[test]
fn m06_others_change_all_while_a_table_is_made() {
    type Others = fn(&Shared, IndexKind);
    let nothing: Others = |_, _| {};
    // They need the larger table first.
    let publish: Others = |shared, _| {
        (10_000..10_000 + NODES).for_each(|token| begin_and_publish(shared, token).unwrap());
    };
    let evict: Others = |shared, _| {
        shared.evict(usize::MAX, |_, _| {}).unwrap();
    };
    let clear: Others = |shared, _| {
        shared.clear(Scope::default()).unwrap();
    };
    let detach: Others = |shared, _| shared.detach_cache();
    let renew: Others = |shared, index| {
        shared.detach_cache();
        shared.attach_cache(config(index)).unwrap();
    };
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for (name, others) in [
            ("nothing", nothing),
            ("publish", publish),
            ("evict", evict),
            ("clear", clear),
            ("detach", detach),
            ("renew", renew),
        ] {
            let what = format!("{index:?}, {name}");
            let (shared, at, done) = grow(index, others);
            assert!((700..819).contains(&at), "{what}: at {at}");
            if let "detach" | "renew" = name {
                assert!(matches!(done, Err(Error::State(_) | Error::StaleSequence(_))), "{what}");
            } else {
                done.unwrap();
                // What began before a clear is found by nobody.
                assert_eq!(cached(&shared, at), name != "clear", "{what}");
            }
            shared.read().audit().unwrap();
            if name == "detach" {
                shared.attach_cache(config(index)).unwrap();
            }
            // What was there is, or is not, and as much again finds its place.
            let stays = matches!(name, "nothing" | "publish");
            (0..at).for_each(|token| assert_eq!(cached(&shared, token), stays, "{what}"));
            for token in 20_000..20_000 + NODES {
                begin_and_publish(&shared, token).unwrap();
            }
            (20_000..20_000 + NODES).for_each(|token| assert!(cached(&shared, token), "{what}"));
            let state = shared.read();
            state.audit().unwrap();
            state.check().unwrap();
        }
    }
    SHARED.set(None);
}

/// Who evicts little by little leaves the allocator no more to join than who evicts much at once:
/// it gets its turn without the lock.
#[test]
fn b09_small_evictions_let_the_allocator_have_its_turn() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let at_yield = move || {
            counted.fetch_add(1, Relaxed);
        };
        let pages = PageTableConfig {
            page_size: 1,
            page_count: 4 * NODES,
            slot_count: 2,
            ..PageTableConfig::default()
        };
        let shared = Shared::with_slices(pages, 256, Some(Box::new(at_yield))).unwrap();
        shared.attach_cache(config(index)).unwrap();
        for token in 0..NODES {
            begin_and_publish(&shared, token).unwrap();
        }
        let before = turns.load(Relaxed);
        for _ in 0..NODES {
            assert_eq!(shared.evict(1, |_, _| {}), Ok(1));
        }
        assert!(turns.load(Relaxed) > before, "{index:?}");
    }
}
