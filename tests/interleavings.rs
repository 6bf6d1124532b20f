//! M06: a call that lets others in between its slices trusts nothing that it knew before.
//!
//! Slices are one page, and the test is the scheduler: at the n-th place where a long call lets
//! others in, for every n, it makes a second call of every kind on the same thread. Then each
//! sequence, row and page that the long call was not for must be as the second call left it, and
//! the books must balance.
mod interleavings {
    mod allocate;
    mod another_cache;
    mod append;
    mod batch;
    pub mod calls;
    pub mod clear;
    mod deep;
    pub mod destroy;
    mod digests;
    mod displaced;
    mod erased_row;
    pub mod follow;
    pub mod fork;
    mod grow;
    mod images;
    mod lookup;
    mod moved_lock;
    mod publish;
    mod read;
    mod rows;
    pub mod settings;
    mod table;
}

use interleavings::calls::{LONG, Long, SECOND, Second};
use interleavings::destroy::destroy_at;
use interleavings::settings::{SETTINGS, Setting};
use radixkv::error::Error;
use radixkv::ids::{LockId, SequenceId};
use radixkv::index::{IndexKind, Namespace};
use radixkv::sequence::Room;
use radixkv::store::{CacheConfig, Shared};
use radixkv::token::TokenList;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const PAGES: u32 = 64;
const SLOTS: u32 = 8;
const PAGE_SIZE: u32 = 2;

/// What is to be done at a yield.
type Step = Box<dyn FnMut(&Shared)>;

thread_local! {
    /// Yields until the step is taken, and the step.
    static NEXT: RefCell<Option<(usize, Step)>> = const { RefCell::new(None) };
    static YIELDS: Cell<usize> = const { Cell::new(0) };
    /// Something was cleared.
    static CLEARED: Cell<bool> = const { Cell::new(false) };
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

fn at_yield() {
    YIELDS.set(YIELDS.get() + 1);
    let shared = SHARED.with_borrow(Clone::clone).expect("a world is there");
    let due = NEXT.with_borrow_mut(|next| {
        let (left, _) = next.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        next.take()
    });
    if let Some((_, mut step)) = due {
        step(&shared);
        // The long call goes on with whatever the step left; a step may yield itself.
    }
}

/// A page table with something of every kind on it.
struct World {
    shared: Arc<Shared>,
    /// The sequence that long calls are about; it has published nothing.
    fresh: SequenceId,
    /// A prompt that has pages for its beginning alone.
    short: SequenceId,
    /// One that has published, and a child of it with an open copy.
    published: SequenceId,
    child: SequenceId,
    retained: SequenceId,
    /// Rows of the caller's.
    row: u32,
    loose: Vec<u32>,
    /// Pages for the row.
    to_map: Vec<u32>,
    locked: LockId,
}

fn tokens(family: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| family * 1000 + at).collect()
}

impl World {
    fn new(setting: impl Into<Setting>) -> Self {
        let setting: Setting = setting.into();
        SHARED.set(None);
        CLEARED.set(false);
        NEXT.set(None);
        let shared = Shared::with_slices(setting.config(), 1, Some(Box::new(at_yield)));
        let shared = Arc::new(shared.unwrap());
        let journal_bytes = 1 << 16;
        let config = CacheConfig {
            index: setting.index(),
            journal_bytes,
            retained_sequences: 2,
            ..CacheConfig::default()
        };
        shared.attach_cache(config).unwrap();
        SHARED.set(Some(shared.clone()));
        let begin = |family, count| {
            let ids = tokens(family, count);
            shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap().id
        };
        // Things that eviction can take.
        for family in 20..24 {
            let gone = begin(family, 8);
            shared.write().publish(gone, 8).unwrap();
            save(&shared, gone);
            shared.write().release(gone).unwrap();
        }
        let published = begin(2, 7);
        shared.write().publish(published, 6).unwrap();
        save(&shared, published);
        shared.write().publish(published, 7).unwrap();
        let child = shared.fork(published, 1, 0).unwrap()[0].id;
        let retained = begin(3, 9);
        shared.write().publish(retained, 9).unwrap();
        assert!(shared.turn().retain(retained).unwrap());
        let fresh = begin(1, 4);
        let ids = tokens(4, 36);
        let room = Room { reserve: 0, first: 2 };
        let short = shared.begin(&Namespace::default(), TokenList::text(&ids), room).unwrap().id;
        let row = shared.write().allocate_slot().unwrap();
        shared.reserve_row(row, 5).unwrap();
        let loose = shared.allocate_pages(3).unwrap();
        let to_map = shared.allocate_pages(3).unwrap();
        let found = {
            let state = shared.read();
            let ids = tokens(20, 8);
            state.find(&Namespace::default(), TokenList::text(&ids)).unwrap()
        };
        let locked = {
            let mut state = shared.write();
            state.take_match(found, true).unwrap().1.unwrap()
        };
        YIELDS.set(0);
        Self { shared, fresh, short, published, child, retained, row, loose, to_map, locked }
    }

    fn check(&self, what: &str) {
        let state = self.shared.read();
        state.audit().unwrap_or_else(|error| panic!("{what}: {error}"));
        state.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!self.shared.is_poisoned(), "{what}");
    }
}

/// Saves the states of a sequence, where there are any.
fn save(shared: &Shared, id: SequenceId) {
    if shared.turn().checkpoint(id).is_ok() {
        shared.write().confirm_copies(id).unwrap();
    }
}

/// Everything that has a name: what each sequence and each row is.
fn belongings(shared: &Shared, except: Option<u32>) -> Vec<String> {
    let state = shared.read();
    let slots = (0..SLOTS).filter(|&slot| Some(slot) != except);
    slots
        .filter_map(|slot| state.row_from(slot, 0).ok().map(|row| format!("{slot}: {row:?}")))
        .collect()
}

/// The sequences of the world, as far as they are there.
fn sequences(world: &World, except: Option<u32>) -> Vec<String> {
    let state = world.shared.read();
    let known = [world.fresh, world.short, world.published, world.child];
    let others = known.into_iter().filter(|id| Some(id.slot()) != except);
    others.filter_map(|id| state.sequence_info(id).ok().map(|info| format!("{info:?}"))).collect()
}

/// Makes a long call with a second one at a yield; says whether the yield came.
fn interleave(
    world: fn(Setting) -> World,
    setting: Setting,
    long: &Long,
    second: Second,
    at: usize,
) -> bool {
    let what = format!("{setting:?}, {}, at yield {at} {}", long.name, second.0);
    let world = std::rc::Rc::new(world(setting));
    let seen = std::rc::Rc::new(RefCell::new(None));
    let (own, noted) = (world.clone(), seen.clone());
    let slot = (long.slot)(&world);
    let step: Step = Box::new(move |_| {
        (second.1)(&own);
        own.check("between");
        *noted.borrow_mut() = Some((belongings(&own.shared, slot), sequences(&own, slot)));
    });
    NEXT.set(Some((at, step)));
    let rows_of_others = |world: &World, before: &[String]| {
        let now = belongings(&world.shared, slot);
        before.iter().filter(|row| !now.contains(row)).cloned().collect::<Vec<_>>()
    };
    let done = (long.call)(&world);
    let came = NEXT.take().is_none();
    world.check(&what);
    if let Err(error) = &done {
        let expected = matches!(
            error,
            Error::OutOfPages(_)
                | Error::StaleSequence(_)
                | Error::RetainedSequence(_)
                | Error::LiveSequence(_)
                | Error::State(_)
                | Error::Argument(_)
                | Error::OutOfSlots(..)
        );
        assert!(expected, "{what}: {error}");
    }
    if let Some((rows, infos)) = seen.borrow_mut().take() {
        // A half-made sequence has a row too, which grows or goes; nobody else's does.
        let changed = rows_of_others(&world, &rows);
        assert!(changed.len() <= made_by(long), "{what}: {changed:?}");
        let now = sequences(&world, slot);
        let lost: Vec<_> = infos.iter().filter(|info| !now.contains(info)).collect();
        assert!(lost.is_empty(), "{what}: {lost:?}");
    }
    came
}

/// Sequences that a call makes: their rows change while it goes on.
fn made_by(long: &Long) -> usize {
    match long.name {
        name if name.starts_with("fork") => 2,
        "continue from one that runs" | "retain, and another gives way" => 2,
        name if name.starts_with("begin") => 1,
        "continue" | "continue with all tokens" | "release" | "publish what others have" => 1,
        name if name.starts_with("retain") => 1,
        _ => 0,
    }
}

#[test]
fn m06_any_call_at_any_yield_of_a_long_one() {
    let mut runs = 0;
    for setting in SETTINGS {
        for long in &LONG {
            for second in SECOND {
                let mut at = 0;
                while interleave(World::new, setting, long, second, at) {
                    at += 1;
                }
                runs += at;
            }
        }
    }
    assert!(runs > 2000, "{runs} interleavings only");
}

/// The slot of a sequence goes to another one while the first grows.
#[test]
fn m06_append_to_a_sequence_whose_slot_is_another_ones_now() {
    let world = World::new(IndexKind::Radix);
    let (shared, fresh) = (world.shared.clone(), world.fresh);
    let other = Arc::new(std::sync::Mutex::new(None));
    let noted = other.clone();
    NEXT.set(Some((
        2,
        Box::new(move |shared| {
            shared.write().release(fresh).unwrap();
            let ids = tokens(8, 4);
            let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
            assert_eq!(begun.slot, fresh.slot());
            *noted.lock().unwrap() = Some(begun);
        }),
    )));
    let before = shared.read().page_table_stats().private;
    let refused = shared.append(fresh, TokenList::text(&tokens(5, 30))).unwrap_err();
    assert_eq!(refused, Error::StaleSequence(fresh.0));
    let begun = other.lock().unwrap().unwrap();
    let now = shared.read().sequence_info(begun.id).unwrap();
    assert_eq!((now.positions, now.pages), (4, 2));
    // The two private pages of the one went, the two of the other came.
    assert_eq!(shared.read().page_table_stats().private, before);
    world.check("afterwards");
}

/// A row is erased while it grows, and its slot is a sequence's then.
#[test]
fn m06_reserve_of_a_row_whose_slot_is_a_sequences_now() {
    let world = World::new(IndexKind::Radix);
    let row = world.row;
    NEXT.set(Some((
        3,
        Box::new(move |shared| {
            shared.turn().erase(row).unwrap();
            let ids = tokens(8, 8);
            let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
            assert_eq!(begun.slot, row);
        }),
    )));
    let refused = world.shared.reserve_row(row, 30).unwrap_err();
    assert!(matches!(refused, Error::State(_)), "{refused}");
    assert_eq!(world.shared.read().row_from(row, 0).unwrap().len(), 4);
    world.check("afterwards");
}

/// Random calls at every yield, which yield themselves.
#[test]
fn m06_random_calls_at_every_yield() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::new(SETTINGS[seed as usize % SETTINGS.len()]);
        let world = std::rc::Rc::new(world);
        for _ in 0..6 {
            arm(&world, random.fork(), 3);
            let long = &LONG[random.usize(..LONG.len())];
            drop((long.call)(&world));
            NEXT.set(None);
            world.check(&format!("seed {seed}, {}", long.name));
        }
    }
}

/// Lets a random call come at one of the next yields, and others while that goes on.
fn arm(world: &std::rc::Rc<World>, mut random: fastrand::Rng, depth: usize) {
    let world = world.clone();
    let at = random.usize(..6);
    let step: Step = Box::new(move |_| {
        if depth > 0 {
            arm(&world, random.fork(), depth - 1);
        }
        match random.usize(..SECOND.len() + LONG.len()) {
            second if second < SECOND.len() => (SECOND[second].1)(&world),
            long => drop((LONG[long - SECOND.len()].call)(&world)),
        }
        world.check("between");
    });
    NEXT.set(Some((at, step)));
}
