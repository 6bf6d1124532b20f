//! J02: threads that follow the journal while the owner of the cache works. What was told of the
//! contents, and the records after it, are what the cache held at each record that they come to;
//! who is too slow for the ring sees the gap and starts again. ThreadSanitizer runs this file too.
use radixkv::index::{IndexKind, Namespace};
use radixkv::journal::{Record, What};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::{Item, Part, TokenKind, TokenList};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const PAGE_SIZE: usize = 4;
const PAGES: u32 = 400;
const ROUNDS: usize = if cfg!(miri) { 30 } else { 2000 };
const READERS: usize = 2;
/// Of rounds, how often the owner notes what is held.
const NOTED: usize = 7;

/// What is known of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    namespace: Namespace,
    parent: u32,
    first_position: u64,
    tokens: Vec<u32>,
    items: Vec<(Part, u64)>,
}

type Contents = BTreeMap<u32, Held>;

fn apply(held: &mut Contents, record: &Record<'_>) {
    match record.what {
        What::Stored { namespace, mut parent, mut first_position, tokens, parts, .. } => {
            for (at, (&page, tokens)) in
                record.pages.iter().zip(tokens.chunks_exact(PAGE_SIZE)).enumerate()
            {
                // Part by part and page by page, however the record was cut.
                let (start, end) = (at * PAGE_SIZE, (at + 1) * PAGE_SIZE);
                let inside = |part: &Part| part.start < end && part.start + part.positions > start;
                let items = parts.iter().filter(inside).map(|part| {
                    let first = part.start.max(start);
                    let offset = part.offset + (first - part.start) as u32;
                    let positions = end.min(part.start + part.positions) - first;
                    let place = first_position + (first - start) as u64;
                    (Part { start: 0, positions, offset, ..part }, place)
                });
                let (tokens, items) = (tokens.to_vec(), items.collect());
                held.insert(page, Held { namespace, parent, first_position, tokens, items });
                (parent, first_position) = (page, first_position + PAGE_SIZE as u64);
            }
        }
        What::Removed(_) => record.pages.iter().for_each(|page| drop(held.remove(page))),
        What::Cleared(name) => held.retain(|_, held| held.namespace != name),
    }
}

/// What is held now, while nothing changes.
fn contents(shared: &Shared) -> (u64, Contents) {
    let mut held = Contents::new();
    let told = shared.read_contents(0, &mut |record| {
        apply(&mut held, record);
        true
    });
    let told = told.unwrap();
    assert_eq!((told.number, told.next_page), (told.newest, 0), "nobody else changes the cache");
    (told.number, held)
}

/// What the owner noted, by the number of the newest record.
type Notes = Mutex<BTreeMap<u64, Contents>>;

struct World {
    shared: Shared,
    notes: Notes,
    working: AtomicBool,
    /// What readers met.
    compared: AtomicUsize,
    gaps: AtomicUsize,
}

/// A prompt that shares its beginning with others, now and then with an image.
fn request(shared: &Shared, random: &mut fastrand::Rng) {
    let namespace = Namespace { epoch: random.u64(..3), ..Namespace::default() };
    let family = random.u32(..5);
    let mut ids: Vec<u32> = (0..random.u32(1..30)).map(|at| family * 100 + at).collect();
    ids.extend((0..random.u32(..60)).map(|at| 1000 * random.u32(1..50) + at));
    let kind = TokenKind::Image { digest: [family as u8; 16], positions: 11 };
    let items = [Item { token_index: ids.len() / 2, kind }];
    let items = if random.u8(..3) == 0 { &items[..] } else { &[] };
    let begun = shared.begin(&namespace, TokenList { ids: &ids, items }, 0).unwrap();
    let mut state = shared.write();
    if begun.copy.is_some() {
        state.confirm_copies(begun.id).unwrap();
    }
    for positions in [random.usize(..=begun.positions), begun.positions] {
        state.publish(begun.id, positions).unwrap();
    }
    state.release(begun.id).unwrap();
}

/// Ends the others however its thread ends.
struct Working<'a>(&'a AtomicBool);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn own(world: &World, seed: u64) {
    let _working = Working(&world.working);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..ROUNDS {
        match random.u8(..12) {
            0 => drop(world.shared.evict(random.usize(1..60), |_, _| {}).unwrap()),
            1 => {
                let pages = world.shared.allocate_pages(random.usize(1..80)).unwrap();
                world.shared.turn().free_pages(0, &pages).unwrap();
            }
            _ => request(&world.shared, &mut random),
        }
        if round % NOTED == 0 {
            let (number, held) = contents(&world.shared);
            world.notes.lock().unwrap().insert(number, held);
            // Now and then readers may catch up.
            if random.u8(..4) == 0 {
                thread::yield_now();
            }
        }
    }
    let (number, held) = contents(&world.shared);
    world.notes.lock().unwrap().insert(number, held);
}

/// Follows until the owner is done and all is read. Takes a few records at a time.
fn follow(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    'again: loop {
        // All that is held, a few records a call; the owner goes on meanwhile.
        let (mut held, mut start, mut next) = (Contents::new(), None, 0);
        let whole_from = loop {
            let mut left = random.usize(1..20);
            let told = world.shared.read_contents(next, &mut |record| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                apply(&mut held, record);
                true
            });
            let told = told.unwrap();
            start.get_or_insert(told.number);
            next = told.next_page;
            if next == 0 {
                break told.newest;
            }
        };
        let mut number = start.expect("a call was made");
        loop {
            let ending = !world.working.load(Ordering::Acquire);
            let (mut left, before) = (random.usize(1..20), number);
            let read = world.shared.read_journal(number, &mut |record| {
                let lost = record.number != number + 1;
                if left == 0 || lost {
                    return false;
                }
                left -= 1;
                number = record.number;
                apply(&mut held, record);
                if number >= whole_from
                    && let Some(noted) = world.notes.lock().unwrap().get(&number)
                {
                    assert_eq!(held, *noted, "at record {number}, from {before}");
                    world.compared.fetch_add(1, Ordering::Relaxed);
                }
                true
            });
            let read = read.unwrap();
            if read.lost > 0 {
                assert_eq!(read.oldest.max(before + 1 + read.lost), read.oldest, "{read:?}");
                world.gaps.fetch_add(1, Ordering::Relaxed);
                continue 'again;
            }
            assert_eq!(read.last, number);
            if ending && number == read.newest {
                assert_eq!(held, contents(&world.shared).1, "in the end");
                return;
            }
        }
    }
}

fn run(index: IndexKind, journal_bytes: u64, seed: u64) -> (usize, usize) {
    let config = PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: PAGES,
        slot_count: 8,
        ..PageTableConfig::default()
    };
    // Slices of a record, so that changes come in between all the time.
    let shared = Shared::with_slices(config, 1, None).unwrap();
    shared.attach_cache(CacheConfig { index, journal_bytes, ..CacheConfig::default() }).unwrap();
    let world = Arc::new(World {
        shared,
        notes: Notes::default(),
        working: AtomicBool::new(true),
        compared: AtomicUsize::new(0),
        gaps: AtomicUsize::new(0),
    });
    thread::scope(|scope| {
        for reader in 0..READERS as u64 {
            let world = &world;
            scope.spawn(move || follow(world, seed * 10 + reader));
        }
        own(&world, seed);
    });
    world.shared.read().check().unwrap();
    world.shared.read().audit().unwrap();
    (world.compared.load(Ordering::Relaxed), world.gaps.load(Ordering::Relaxed))
}

#[test]
fn j02_followers_of_a_large_ring_know_what_is_held_at_each_record() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let (compared, gaps) = run(index, 16 << 20, 1);
        println!("{index:?}: {compared} times compared, {gaps} gaps");
        assert_eq!(gaps, 0, "nothing is lost in a ring for everything");
        assert!(cfg!(miri) || compared > 10, "{compared} times compared");
    }
}

#[test]
fn j02_followers_of_a_small_ring_see_gaps_and_start_again() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for (seed, journal_bytes) in [(2, 2048), (3, 16 << 10), (4, 64 << 10)] {
            let (compared, gaps) = run(index, journal_bytes, seed);
            println!("{index:?}, {journal_bytes} bytes: {compared} times compared, {gaps} gaps");
            assert!(cfg!(miri) || journal_bytes > 2048 || gaps > 10, "{gaps} gaps only");
        }
    }
}
