//! A sequence that its owner makes longer during a fetch of several groups.
use super::group_remote::filled;
use super::group_world::{GroupWorld, Setup};
use super::groups::{hybrid, prompt};
use super::remote_store::Mood;
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::sequence::ComputedRow;
use radixkv::tier::paged::Deadline;
use radixkv::token::TokenList;
use std::sync::atomic::{AtomicBool, Ordering};

/// T16: its rows are the fetch's meanwhile, which makes them as long as what comes: pages and
/// tokens that are added wait for its end, and are there then, whatever came.
#[test]
fn t16_rows_grow_before_a_fetch_of_groups_or_after_it() {
    let tokens = prompt(1, 41);
    for spoiled in [false, true] {
        let remote = filled(&tokens, &[4, 10]);
        if spoiled {
            remote.set(Mood::Lies);
        }
        let setup = Setup { first: 8, remote: Some(remote.clone()), ..hybrid(None) };
        let mut world = GroupWorld::new(setup);
        let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
        let rows = |world: &GroupWorld| {
            [0, 1].map(|group| world.shared.read().group_row(id, group, 0).unwrap().len())
        };
        assert_eq!(rows(&world), [2, 2]);
        while world.tiers.work() {}
        assert!(world.fetch(id, Deadline::Never).is_begun);
        let is_loading = |done| matches!(done, Err(Error::Loading(_)));
        assert!(is_loading(world.shared.allocate(id, tokens.len())));
        assert!(is_loading(world.shared.append(id, TokenList::text(&[7]))));
        world.settle();
        world.shared.allocate(id, tokens.len()).unwrap();
        assert_eq!(rows(&world), [11, 11]);
        world.compute(id, tokens.len());
        world.end();
    }
}

/// The same when that begins just then: to make it longer is refused, or what it got is there when
/// the fetch has ended.
#[test]
fn t16_rows_that_grow_while_a_fetch_of_groups_begins_keep_their_pages() {
    let setup = Setup {
        pages: vec![80, 80, 8],
        host_pages: vec![100, 100, 20],
        slices: Some((64, || {})),
        ..hybrid(None)
    };
    let tokens = prompt(1, 241);
    let mut world = GroupWorld::new(setup);
    world.run(&tokens, &[30]);
    world.setup.first = 8;
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..1000 {
        world.evict_all();
        let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
        let (shared, begins) = (world.shared.clone(), AtomicBool::new(false));
        let pauses = random.u32(..20_000);
        let grown = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !begins.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                (0..pauses).for_each(|_| std::hint::spin_loop());
                shared.allocate(id, 200)
            });
            begins.store(true, Ordering::Release);
            assert!(world.fetch(id, Deadline::Never).is_begun);
            other.join().unwrap()
        });
        assert!(matches!(grown, Ok(()) | Err(Error::Loading(_))), "{grown:?}");
        world.settle();
        if grown.is_ok() {
            let rows =
                [0, 1].map(|group| world.shared.read().group_row(id, group, 0).unwrap().len());
            assert!(rows.iter().all(|&pages| pages >= 50), "round {round}: {rows:?}");
        }
        world.release(id);
    }
    world.end();
}

/// T03, T16: what a sequence of several groups can't do while its fetch is open: its rows are the
/// fetch's, and so are the states that it is to copy.
#[test]
fn t16_calls_that_wait_for_a_fetch_of_groups() {
    let tokens = prompt(1, 41);
    let mut world = GroupWorld::new(hybrid(None));
    world.run(&tokens, &[4, 10]);
    world.settle();
    world.evict_all();
    let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
    while world.tiers.work() {}
    assert!(world.fetch(id, Deadline::Never).is_begun);
    let shared = world.shared.clone();
    let waits = |what: &str, done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::Loading(_))), "{what}: {done:?}");
    };
    waits("publish", shared.turn().publish(id, 4).map(drop));
    waits("slide", shared.turn().slide(id, 4));
    waits("retain", shared.turn().retain(id).map(drop));
    waits("checkpoint", shared.write().checkpoint(id).map(drop));
    waits("truncate", shared.write().truncate(id, 41));
    waits("confirm", shared.write().confirm_copies(id));
    waits("copies", shared.read().open_copies(id).map(drop));
    waits("fork", shared.fork(id, 1, 0).map(drop));
    let row = ComputedRow::Sequence(id);
    waits("plan", shared.read().row_to_compute(row, 0, 4).map(drop));
    world.check_all();
    drop(shared);
    world.settle();
    assert_eq!(world.requests[&id].computed, 40);
    world.compute(id, tokens.len());
    world.end();
}
