//! E01 to E04: events as a subscriber reads them. MessagePack is decoded by another crate than the
//! one that wrote it, and digests are made by the way that callers have.
#[path = "../failing/mod.rs"]
mod failing;
mod going;
mod subscriber;
mod wire;
mod world;

use failing::{Failure, failing};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::index::IndexKind;
use radixkv::memory::Arc;
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::store::{CacheConfig, Scope, Shared};
use radixkv::token::TokenList;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use subscriber::Subscriber;
use world::{
    PAGE_SIZE, cache, change, compare, drain, encode, encoder, encoder_of_rank, namespace, pages,
    request,
};

const ROUNDS: usize = 3000;

/// What a subscriber knows from events alone is what the cache holds, after anything: each block
/// after its parent, none twice, none removed that was not told of.
fn follow(table: PageTableConfig, index: IndexKind, journal_bytes: u64, seed: u64) -> Subscriber {
    let mut random = fastrand::Rng::with_seed(seed);
    let shared = cache(index, table, journal_bytes);
    (0..10).for_each(|_| request(&shared, &mut random));
    let (encoder, mut to) = (encoder(&shared), Subscriber::default());
    let mut lost = 0;
    for round in 0..ROUNDS {
        change(&shared, &mut random);
        // In the middle of telling what was there before it came.
        if random.u8(..5) == 0 {
            let (batch, payload) = encode(&encoder, 600);
            lost += batch.lost_count;
            if batch.bytes > 0 {
                to.apply(&payload, PAGE_SIZE);
            }
        }
        if round % 23 == 0 {
            lost += drain(&encoder, &mut to, &mut random);
            compare(&to, &shared);
        }
    }
    *to.counts.entry("lost".to_owned()).or_default() += lost as usize;
    shared.detach_cache();
    drain(&encoder, &mut to, &mut random);
    assert!(to.held.is_empty(), "nothing is held by a cache that is gone");
    to
}

fn seen(to: &Subscriber, names: &[&str]) {
    for name in names {
        assert!(to.counts.contains_key(*name), "{name} never came: {:?}", to.counts);
    }
}

#[test]
fn e02_events_leave_what_the_cache_holds() {
    for (seed, index) in [(1, IndexKind::Radix), (2, IndexKind::BlockHash)] {
        let to = follow(pages(150), index, 1 << 20, seed);
        seen(&to, &["BlockStored", "capacity", "caller", "invalidated"]);
        assert!(to.counts["AllBlocksCleared"] >= 2, "in the beginning and in the end");
        assert_eq!(to.counts["lost"], 0);
    }
}

/// E03: who is too slow for the ring sees the gap, and is told everything anew.
#[test]
fn e03_what_was_lost_is_told_anew() {
    let to = follow(pages(150), IndexKind::Radix, 6000, 3);
    assert!(to.counts["AllBlocksCleared"] > 20, "{:?}", to.counts);
    assert!(to.counts["lost"] > 100, "{:?}", to.counts);
}

/// E04: pages of several groups, each event with the group's number and kind.
#[test]
fn e04_events_of_groups() {
    let windows = GroupKind::Window { window: 8, sinks: 0 };
    let groups =
        [GroupConfig::default(), windows.in_pool(0), GroupKind::Chunk { chunk: 12 }.in_pool(0)];
    let table = PageTableConfig { groups: Groups::new(&groups).unwrap(), ..pages(400) };
    let to = follow(table, IndexKind::Radix, 1 << 20, 4);
    seen(&to, &["BlockStored", "capacity", "invalidated"]);
    seen(&to, &["sliding_window", "chunked_local_attention"]);
    let to = follow(table, IndexKind::Radix, 12_000, 5);
    assert!(to.counts["AllBlocksCleared"] > 20, "{:?}", to.counts);
}

/// E03: a subscriber who comes late learns all, while the cache goes on; to one who was there from
/// the beginning no block comes again that was not taken back.
#[test]
fn e03_a_late_subscriber_is_told_all() {
    for rank in [None, Some(1)] {
        let mut random = fastrand::Rng::with_seed(6);
        let shared = cache(IndexKind::Radix, pages(150), 1 << 20);
        let (encoder, mut early) = (encoder_of_rank(&shared, rank), Subscriber::default());
        for _ in 0..40 {
            (0..40).for_each(|_| change(&shared, &mut random));
            drain(&encoder, &mut early, &mut random);
            // Of a rank it may hear of what goes that was told before it came.
            let mut late = Subscriber { came_late: rank.is_some(), ..Subscriber::default() };
            encoder.repeat();
            loop {
                change(&shared, &mut random);
                let (batch, payload) = encode(&encoder, 1200);
                if batch.bytes > 0 {
                    early.apply(&payload, PAGE_SIZE);
                    late.apply(&payload, PAGE_SIZE);
                }
                assert!(batch.bytes > 0 || batch.needed_bytes == 0, "an event has room");
                if !batch.has_more {
                    break;
                }
                // Somebody else comes before all was told.
                if random.u8(..20) == 0 {
                    encoder.repeat();
                }
            }
            compare(&late, &shared);
            assert_eq!(late.held, early.held);
        }
        let cleared = early.counts["AllBlocksCleared"];
        assert_eq!(cleared > 40, rank.is_none(), "{cleared}: of a rank each block goes by name");
    }
}

/// M05: each request for memory fails in turn. Nothing is lost, and nothing is told twice.
#[test]
fn e03_without_memory_nothing_is_lost() {
    let mut random = fastrand::Rng::with_seed(7);
    let shared = cache(IndexKind::Radix, pages(60), 1 << 20);
    let make = |rank| world::encoder_of_rank(&shared, rank);
    let refused = Cell::new(0);
    let (mut encoder, mut to) = (make(None), Subscriber::default());
    let mut room = [MaybeUninit::new(0_u8); 2000];
    for round in 0..400 {
        if round % 100 == 0 {
            let rank = (round >= 200).then_some(1);
            (encoder, to) = (make(rank), Subscriber::default());
        }
        if random.u8(..10) == 0 {
            encoder.repeat();
        }
        (0..3).for_each(|_| change(&shared, &mut random));
        loop {
            let mut after = 0;
            let batch = loop {
                let failure = match random.bool() {
                    true => Failure::Once(after),
                    false => Failure::From(after),
                };
                match failing(failure, || encoder.encode(0.0, &mut room)).0 {
                    Ok(batch) => break batch,
                    Err(Error::OutOfMemory(_)) => refused.set(refused.get() + 1),
                    Err(other) => panic!("{other}"),
                }
                after += 1;
            };
            // SAFETY: all bytes were written in the beginning.
            let bytes = room[..batch.bytes].iter().map(|byte| unsafe { byte.assume_init() });
            let payload: Vec<u8> = bytes.collect();
            assert_eq!(batch.needed_bytes, 0, "any event has room");
            if batch.bytes > 0 {
                to.apply(&payload, PAGE_SIZE);
            }
            if !batch.has_more {
                break;
            }
        }
        compare(&to, &shared);
    }
    assert!(refused.get() > 200, "hardly a call was refused: {}", refused.get());
}

/// The encoder of a cache that is gone waits for the next one, on the same page table.
#[test]
fn e03_the_next_cache_is_followed() {
    let mut random = fastrand::Rng::with_seed(8);
    let shared = cache(IndexKind::Radix, pages(60), 6000);
    let (encoder, mut to) = (encoder(&shared), Subscriber::default());
    for _ in 0..20 {
        (0..random.u8(..40)).for_each(|_| change(&shared, &mut random));
        if random.bool() {
            drain(&encoder, &mut to, &mut random);
        }
        shared.detach_cache();
        if random.bool() {
            drain(&encoder, &mut to, &mut random);
            assert!(to.held.is_empty());
        }
        let config = CacheConfig { journal_bytes: 6000, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        (0..5).for_each(|_| request(&shared, &mut random));
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
    }
}

/// A cache goes, and one without a journal comes before anybody looks: what was told is held no
/// more, and there is nothing else to tell before there is a journal again.
#[test]
fn e03_the_next_cache_has_no_journal() {
    let mut random = fastrand::Rng::with_seed(13);
    for rank in [None, Some(1)] {
        let shared = cache(IndexKind::Radix, pages(60), 1 << 20);
        let (encoder, mut to) = (encoder_of_rank(&shared, rank), Subscriber::default());
        (0..10).for_each(|_| request(&shared, &mut random));
        drain(&encoder, &mut to, &mut random);
        assert!(!to.held.is_empty());
        shared.detach_cache();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let mut room = vec![MaybeUninit::new(0_u8); 1 << 16];
        let batch = encoder.encode(0.0, &mut room).unwrap();
        // SAFETY: all were written in the beginning.
        let payload = room[..batch.bytes].iter().map(|byte| unsafe { byte.assume_init() });
        to.apply(&payload.collect::<Vec<u8>>(), PAGE_SIZE);
        assert!(to.held.is_empty(), "they went with their cache");
        assert!(matches!(encoder.encode(0.0, &mut room), Err(Error::State(_))));
        shared.detach_cache();
        drain(&encoder, &mut to, &mut random);
        let config = CacheConfig { journal_bytes: 1 << 20, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        (0..5).for_each(|_| request(&shared, &mut random));
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
    }
}

thread_local! {
    /// The cache that changes wherever others are let in, so many times.
    static CHANGES: RefCell<Option<(usize, Arc<Shared>)>> = const { RefCell::new(None) };
}

fn changes() {
    let Some((left @ 1.., shared)) = CHANGES.take() else { return };
    let mut random = fastrand::Rng::with_seed(left as u64);
    (0..40).for_each(|_| request(&shared, &mut random));
    CHANGES.set(Some((left - 1, shared)));
}

/// While records are lost faster than the contents are read, a call ends and says so.
#[test]
fn e03_a_call_ends_while_records_are_lost() {
    for rank in [None, Some(1)] {
        let mut random = fastrand::Rng::with_seed(14);
        let made = Shared::with_slices(pages(60), 1, Some(Box::new(changes))).unwrap();
        let shared = Arc::new(made).unwrap();
        let config = CacheConfig { journal_bytes: 6000, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        let (encoder, mut to) = (encoder_of_rank(&shared, rank), Subscriber::default());
        (0..40).for_each(|_| request(&shared, &mut random));
        drain(&encoder, &mut to, &mut random);
        for _ in 0..4 {
            CHANGES.set(Some((3000, shared.clone())));
            changes();
            // A question takes nothing, whatever there is to tell.
            let asked = encode(&encoder, 0).0;
            let (batch, payload) = encode(&encoder, 1 << 16);
            assert!(CHANGES.take().is_some_and(|(left, _)| left > 0), "it does not end");
            assert!(batch.has_more && batch.lost_count > 0, "{batch:?}");
            assert!(batch.lost_count >= asked.lost_count, "{batch:?} after {asked:?}");
            if batch.bytes > 0 {
                to.apply(&payload, PAGE_SIZE);
            }
            // Until all was read again nothing more is said, unless somebody came late, who is to
            // hear that nothing is held.
            for is_late in [false, false, true] {
                let cleared = to.counts["AllBlocksCleared"];
                CHANGES.set(Some((3000, shared.clone())));
                if is_late {
                    encoder.repeat();
                }
                let (batch, payload) = encode(&encoder, 1 << 16);
                CHANGES.take();
                assert!(batch.has_more && batch.lost_count > 0, "{batch:?}");
                if batch.bytes > 0 {
                    to.apply(&payload, PAGE_SIZE);
                }
                let told = to.counts["AllBlocksCleared"] - cleared;
                assert_eq!(told, usize::from(is_late && rank.is_none()), "{batch:?}");
                assert_eq!(batch.event_count, told, "{batch:?}");
            }
        }
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
    }
}

/// Routers take an AllBlocksCleared for all ranks of a worker: a rank that lost records, is
/// cleared, or goes, names its own blocks.
#[test]
fn e03_a_rank_leaves_the_others_alone() {
    let mut random = fastrand::Rng::with_seed(11);
    let shared = cache(IndexKind::Radix, pages(60), 6000);
    let encoder = encoder_of_rank(&shared, Some(1));
    let (mut to, mut lost) = (Subscriber::default(), 0);
    for _ in 0..60 {
        (0..25).for_each(|_| change(&shared, &mut random));
        lost += drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
    }
    shared.clear(Scope::default()).unwrap();
    drain(&encoder, &mut to, &mut random);
    compare(&to, &shared);
    (0..5).for_each(|_| request(&shared, &mut random));
    drain(&encoder, &mut to, &mut random);
    compare(&to, &shared);
    shared.detach_cache();
    drain(&encoder, &mut to, &mut random);
    assert!(lost > 0 && to.held.is_empty(), "{lost} lost");
    assert_eq!(to.counts["AllBlocksCleared"], 1, "in the beginning");
}

/// By which rank it is told, the bytes of the journal, and how everything leaves.
type Leave<'a> = (Option<u32>, u64, &'a dyn Fn(&Shared));

/// M05: what leaves is told bit by bit, so that an encoder has no more memory than it was created
/// with, however much leaves at once: with records that were lost, a clear, or the cache.
#[test]
fn e03_what_leaves_at_once_takes_no_memory() {
    let clear = |shared: &Shared| {
        shared.clear(Scope::exactly(namespace(0))).unwrap();
    };
    let lose = |shared: &Shared| {
        let mut random = fastrand::Rng::with_seed(16);
        (0..400).for_each(|_| request(shared, &mut random));
    };
    let leaves: [Leave<'_>; 4] = [
        (Some(1), 6000, &lose),
        (Some(1), 1 << 20, &clear),
        (Some(1), 1 << 20, &|shared| shared.detach_cache()),
        // Something else is told of: those of the namespace go by name.
        (None, 1 << 20, &clear),
    ];
    for (way, (rank, journal_bytes, leave)) in leaves.into_iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(15);
        let shared = cache(IndexKind::Radix, pages(20_000), journal_bytes);
        let (encoder, mut to) = (encoder_of_rank(&shared, rank), Subscriber::default());
        drain(&encoder, &mut to, &mut random);
        for first in 0..200 {
            let ids: Vec<u32> = (first * 1000..).take(50 * PAGE_SIZE).collect();
            let id = shared.begin(&namespace(0), TokenList::text(&ids), 0).unwrap().id;
            shared.turn().publish(id, ids.len()).unwrap();
            shared.turn().release(id).unwrap();
            request(&shared, &mut random);
            drain(&encoder, &mut to, &mut random);
        }
        leave(&shared);
        let mut room = [MaybeUninit::new(0_u8); 2000];
        let before = failing::bytes_in_use();
        let batch = encoder.encode(0.0, &mut room).unwrap();
        let more = failing::bytes_in_use().saturating_sub(before);
        assert!(batch.removed_count > 0 && batch.has_more, "way {way}: {batch:?}");
        assert!(more < 8000, "way {way}: {more} bytes for {} pages", to.held.len());
        // SAFETY: all were written in the beginning.
        let payload = room[..batch.bytes].iter().map(|byte| unsafe { byte.assume_init() });
        to.apply(&payload.collect::<Vec<u8>>(), PAGE_SIZE);
        // Who comes late meanwhile changes nothing for the others.
        if way % 2 == 0 {
            encoder.repeat();
        }
        drain(&encoder, &mut to, &mut random);
        match shared.read().has_cache() {
            true => compare(&to, &shared),
            false => assert!(to.held.is_empty()),
        }
    }
}

/// E04, J01: states are blocks of their own group, and those of which a path has too many go for a
/// reason of their own.
#[test]
fn e04_states_come_and_say_that_they_were_too_many() {
    let groups = [GroupConfig::default(), GroupKind::State.in_pool(1)];
    let table = PageTableConfig {
        groups: Groups::new(&groups).unwrap(),
        more_pools: MorePools::new(&[9]).unwrap(),
        ..pages(60)
    };
    let shared = Shared::new(table).unwrap();
    let config = CacheConfig { journal_bytes: 1 << 20, checkpoint_limit: 2, ..Default::default() };
    shared.attach_cache(config).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let (encoder, mut to) = (encoder(&shared), Subscriber::default());
    let ids: Vec<u32> = (0..25).collect();
    let id = shared.begin(&namespace(0), TokenList::text(&ids), 0).unwrap().id;
    for (saved, end) in [8, 16, 24].into_iter().enumerate() {
        shared.turn().publish(id, end).unwrap();
        assert_eq!(shared.write().checkpoint(id).unwrap(), 1);
        drain(&encoder, &mut to, &mut random);
        let states = |to: &Subscriber| to.held.keys().filter(|(group, _)| *group == 1).count();
        assert_eq!(states(&to), saved.min(2), "it is not there before it is confirmed");
        shared.ending(|state| state.confirm_copies(id)).unwrap();
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
        assert_eq!(states(&to), (saved + 1).min(2));
    }
    assert_eq!(to.counts.get("limit"), Some(&1), "{:?}", to.counts);
    assert_eq!(to.counts.get("mamba"), Some(&3), "{:?}", to.counts);
    shared.turn().release(id).unwrap();
    shared.detach_cache();
    drain(&encoder, &mut to, &mut random);
    assert!(to.held.is_empty());
}
