//! E03: a cache goes while somebody reads it, or asks for all that it holds.
use super::subscriber::Subscriber;
use super::world::{self, compare, drain, encode, encoder, encoder_of_rank, pages, request};
use radixkv::events::EventEncoder;
use radixkv::memory::Arc;
use radixkv::store::{CacheConfig, Shared};
use std::cell::{Cell, RefCell};

thread_local! {
    /// The cache that goes where others are let in, after so many times.
    static GOES: RefCell<Option<(usize, Arc<Shared>)>> = const { RefCell::new(None) };
}

fn goes() {
    match GOES.take() {
        None => {}
        Some((0, shared)) => shared.detach_cache(),
        Some((left, shared)) => GOES.set(Some((left - 1, shared))),
    }
}

/// A cache goes while a new encoder reads what it holds. Of that nothing is told of the next one.
#[test]
fn e03_a_cache_that_goes_while_it_is_read_leaves_nothing() {
    let config = CacheConfig { journal_bytes: 1 << 20, ..CacheConfig::default() };
    for left in 0..8 {
        let mut random = fastrand::Rng::with_seed(9);
        let made = Shared::with_slices(pages(60), 1, Some(Box::new(goes))).unwrap();
        let shared = Arc::new(made).unwrap();
        shared.attach_cache(config).unwrap();
        (0..40).for_each(|_| request(&shared, &mut random));
        let (encoder, mut to) = (encoder(&shared), Subscriber::default());
        GOES.set(Some((left, shared.clone())));
        drain(&encoder, &mut to, &mut random);
        if GOES.take().is_some() {
            assert!(left > 2, "it was read in one go");
            break;
        }
        assert!(to.held.is_empty(), "nothing is held without a cache");
        shared.attach_cache(config).unwrap();
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
        request(&shared, &mut random);
        drain(&encoder, &mut to, &mut random);
        compare(&to, &shared);
    }
}

thread_local! {
    /// Who listens wherever others are let in.
    static LISTENS: RefCell<Option<(EventEncoder, Subscriber)>> = const { RefCell::new(None) };
}

/// Tells an event, if there is one. Returns how many blocks came.
fn one_event(encoder: &EventEncoder, to: &mut Subscriber) -> usize {
    let room = encode(encoder, 0).0.needed_bytes;
    let (batch, payload) = encode(encoder, room);
    if batch.bytes > 0 {
        to.apply(&payload, world::PAGE_SIZE);
    }
    batch.stored_count
}

fn listens() {
    let Some((encoder, mut to)) = LISTENS.take() else { return };
    one_event(&encoder, &mut to);
    LISTENS.set(Some((encoder, to)));
}

/// A cache goes bit by bit while an encoder still tells what it holds.
#[test]
fn e03_what_goes_is_not_told_any_more() {
    let mut random = fastrand::Rng::with_seed(10);
    let made = Shared::with_slices(pages(60), 1, Some(Box::new(listens))).unwrap();
    let shared = Arc::new(made).unwrap();
    let config = CacheConfig { journal_bytes: 1 << 20, ..CacheConfig::default() };
    shared.attach_cache(config).unwrap();
    (0..40).for_each(|_| request(&shared, &mut random));
    let (encoder, mut to) = (encoder(&shared), Subscriber::default());
    while one_event(&encoder, &mut to) == 0 {}
    LISTENS.set(Some((encoder, to)));
    shared.detach_cache();
    let (encoder, mut to) = LISTENS.take().unwrap();
    drain(&encoder, &mut to, &mut random);
    assert!(to.held.is_empty());
    assert_eq!(to.counts["AllBlocksCleared"], 2, "once in the beginning, once in the end");
}

thread_local! {
    /// After how many times that others are let in somebody asks for all.
    static ASKS: Cell<usize> = const { Cell::new(0) };
    /// What had been told when that was: how often that all went, and how often that something
    /// came.
    static ASKED: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// How often it was told that all went, and that something came.
fn told(to: &Subscriber) -> (usize, usize) {
    (to.counts["AllBlocksCleared"], to.counts["BlockStored"])
}

/// Whether the cache was told to go: by name, or all at once, which is also how somebody is
/// answered who asked before.
fn is_going(to: &Subscriber) -> bool {
    let is_asked_before = ASKED.get().is_some_and(|(cleared, _)| cleared == 1);
    let all_at_once = told(to).0 > 1 + usize::from(is_asked_before);
    to.counts.contains_key("destroyed") || all_at_once
}

fn repeats() {
    let Some((encoder, mut to)) = LISTENS.take() else { return };
    if ASKS.replace(ASKS.get().wrapping_sub(1)) == 0 {
        ASKED.set(Some(told(&to)));
        encoder.repeat();
    }
    for _ in 0..2 {
        let (is_going, (_, stored)) = (is_going(&to), told(&to));
        one_event(&encoder, &mut to);
        assert!(!is_going || told(&to).1 == stored, "what goes is told again");
    }
    LISTENS.set(Some((encoder, to)));
}

/// A cache goes bit by bit while somebody asks for all that it holds.
#[test]
fn e03_what_goes_is_not_repeated() {
    let (mut repeated, mut answered) = (0, [0; 3]);
    for (rank, after) in (0..24).map(|at| ((at % 2 == 1).then_some(1), at / 2)) {
        let mut random = fastrand::Rng::with_seed(12);
        let made = Shared::with_slices(pages(60), 1, Some(Box::new(repeats))).unwrap();
        let shared = Arc::new(made).unwrap();
        let config = CacheConfig { journal_bytes: 1 << 20, ..CacheConfig::default() };
        shared.attach_cache(config).unwrap();
        (0..40).for_each(|_| request(&shared, &mut random));
        let (encoder, mut to) = (encoder_of_rank(&shared, rank), Subscriber::default());
        drain(&encoder, &mut to, &mut random);
        ASKS.set(after);
        ASKED.set(None);
        LISTENS.set(Some((encoder, to)));
        shared.detach_cache();
        let (encoder, mut to) = LISTENS.take().unwrap();
        let (was_going, (_, stored)) = (is_going(&to), told(&to));
        drain(&encoder, &mut to, &mut random);
        assert!(to.held.is_empty());
        let (cleared, in_the_end) = told(&to);
        assert!(!was_going || in_the_end == stored, "what goes is told again");
        if rank.is_some() {
            repeated += usize::from(to.counts.contains_key("destroyed"));
            assert_eq!(cleared, 1, "of a rank each block goes by name");
            continue;
        }
        // Once in the beginning, once in the end, and once for who asked: the end says nothing if
        // nothing was told since then.
        let (way, expected) = match ASKED.get() {
            None => (0, 2),
            Some((1, before)) => (1, 2 + usize::from(in_the_end > before)),
            Some(_) => (2, 3),
        };
        answered[way] += 1;
        assert_eq!(cleared, expected, "asked after {after}: {:?}", to.counts);
        assert!(!to.counts.contains_key("destroyed"), "{:?}", to.counts);
    }
    assert!(repeated > 6, "it was asked too late {} times of 12", 12 - repeated);
    assert!(answered[1] > 0 && answered[2] > 0, "{answered:?}: it was never asked so");
}
