//! M06: a fetch of several groups that ends while others get in, at each place where they do: with
//! slices of one page, and every other call in turn. What was fetched is there all the same, or the
//! sequence goes on from where it would without it, and no count is wrong.
use super::group_world::{GroupWorld, Setup};
use super::groups::{FULL, prompt, window};
use super::world::PAGE_SIZE;
use radixkv::group::{GroupConfig, GroupKind};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::Arc;
use radixkv::sequence::Room;
use radixkv::store::{Scope, SequenceInfo, Shared};
use radixkv::tier::paged::{Deadline, PagePolicy};
use radixkv::token::TokenList;
use std::cell::{Cell, RefCell};

type Step = Box<dyn FnOnce(&Shared)>;

thread_local! {
    static SHARED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// Yields until the step is taken, and the step.
    static NEXT: RefCell<Option<(usize, Step)>> = const { RefCell::new(None) };
    static YIELDS: Cell<usize> = const { Cell::new(0) };
}

fn at_yield() {
    let Some(shared) = SHARED.with_borrow(Clone::clone) else { return };
    YIELDS.set(YIELDS.get() + 1);
    let due = NEXT.with_borrow_mut(|next| match next {
        Some((left, _)) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => next.take(),
    });
    if let Some((_, step)) = due {
        step(&shared);
    }
}

/// What others do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    Nothing,
    Evict,
    Clear,
    /// The sequence ends.
    Release,
    /// Somebody publishes the same, and somebody else a part of it.
    Publish,
    /// Somebody locks what there is of it, and lets it go later.
    Begin,
}

const OTHERS: [Other; 6] =
    [Other::Nothing, Other::Evict, Other::Clear, Other::Release, Other::Publish, Other::Begin];

fn models() -> Vec<Vec<GroupConfig>> {
    let full = GroupKind::Full.in_pool(1);
    let state = |pool| GroupKind::State.in_pool(pool);
    vec![
        vec![FULL, full, window(12, 0, 0), state(2)],
        vec![FULL, window(9, 3, 1), full],
        vec![FULL, window(9, 0, 1), state(2)],
    ]
}

fn setup(groups: Vec<GroupConfig>, first: usize, agrees: bool) -> Setup {
    Setup {
        groups,
        pages: vec![80, 80, 12],
        host_pages: vec![100, 100, 20],
        store: None,
        remote: None,
        policy: PagePolicy::Through,
        agrees,
        first,
        checkpoint_limit: 0,
        slices: Some((1, at_yield)),
    }
}

/// A world whose tiers have all of a prompt, and its device a part: without these many of the last
/// pages of group 0, and of the other groups.
fn world_with(setup: Setup, tokens: &[u32], gone: [usize; 3]) -> GroupWorld {
    let first = setup.first;
    let mut world = GroupWorld::new(Setup { first: 0, ..setup });
    world.run(tokens, &[4, 10]);
    // The state after 4 pages goes after the one after 10.
    world.run(&tokens[..18], &[]);
    world.setup.first = first;
    for pool in [1, 2, 0] {
        if gone[pool] > 0 && pool < world.setup.pages.len() {
            world.evict(pool, gone[pool]);
        }
    }
    while world.tiers.work() {}
    world
}

fn step(other: Other, id: SequenceId, tokens: &[u32]) -> Step {
    let tokens = tokens.to_vec();
    Box::new(move |shared| match other {
        Other::Nothing => {}
        Other::Evict => {
            for pool in 0..3 {
                let _ = shared.evict_from_pool(pool, 1000, 10_000, |_| {});
            }
        }
        Other::Clear => {
            shared.clear(Scope::exactly(Namespace::default())).unwrap();
        }
        Other::Release => shared.turn().release(id).unwrap(),
        Other::Publish | Other::Begin => {
            let list = TokenList::text(&tokens);
            let begun = shared.begin(&Namespace::default(), list, Room::default());
            let Ok(info) = begun else { return };
            if other == Other::Publish {
                let confirmed = shared.ending(|state| state.confirm_copies(info.id));
                let _ = confirmed.is_ok();
                let _ = shared.turn().publish(info.id, 28);
            }
            shared.turn().release(info.id).unwrap();
        }
    })
}

/// Windows have the pages that the next position needs, and no others.
fn holds_what_is_needed(world: &GroupWorld, info: &SequenceInfo) {
    for (group, kind) in world.setup.kinds().filter(|(_, kind)| kind.slides()) {
        let needs = kind.needs(info.cached_positions, PAGE_SIZE).unwrap();
        let state = world.shared.read();
        let row = state.group_row(info.id, group, 0).unwrap();
        let places = 0..info.cached_positions / PAGE_SIZE;
        let there: Vec<_> = places.filter(|&place| row[place] != 0).collect();
        assert_eq!(there, needs.places().collect::<Vec<_>>(), "group {group} of {info:?}");
    }
}

/// One fetch, with one step at the n-th yield. How many there were.
fn fetch_with(mut world: GroupWorld, tokens: &[u32], other: Other, at: usize) -> usize {
    let info = world.begin(&Namespace::default(), tokens).unwrap();
    let begun = info;
    SHARED.set(Some(world.shared.clone()));
    YIELDS.set(0);
    NEXT.set(Some((at, step(other, info.id, tokens))));
    let fetched = world.tiers.fetch(info.id, Deadline::Never, false);
    assert!(fetched.is_ok() || other == Other::Release, "{other:?} at {at}: {fetched:?}");
    let is_open = fetched.is_ok_and(|found| found.is_begun);
    world.requests.get_mut(&info.id).unwrap().is_open = is_open;
    // Whose sequence has ended nobody asks what came of it; nor what pages hold that were published
    // and not computed.
    let is_checked = !matches!(other, Other::Release | Other::Publish);
    if !is_checked {
        world.requests.remove(&info.id);
    }
    let mut is_done = !is_open;
    for _ in 0..200 {
        while world.tiers.work() {}
        world.poll(64);
        while !world.copies.is_empty() {
            world.end_copy(0, true);
        }
        let is_gone = world.shared.read().sequence_info(info.id).is_err();
        let ended = world.fetched.iter().any(|done| done.sequence == info.id);
        if ended && !is_done && world.setup.agrees {
            // One page less than all had.
            let agreed = world.tiers.agree(info.id, 36);
            is_done = agreed.is_ok();
            if let (Ok(done), Some(request)) = (agreed, world.requests.get_mut(&info.id)) {
                (request.is_open, request.computed) = (false, done.positions);
            }
        }
        is_done |= is_gone || ended && !world.setup.agrees;
        if is_done {
            break;
        }
    }
    let yields = YIELDS.get();
    NEXT.set(None);
    SHARED.set(None);
    let left = world.shared.read().sequence_info(info.id);
    if let Ok(info) = left {
        assert!(!world.shared.read().is_loading(info.id), "{other:?} at {at}: it does not end");
        if is_open && matches!(other, Other::Nothing | Other::Begin | Other::Release) {
            let all = if world.setup.agrees { 16 } else { 40 };
            assert!(info.cached_positions >= all, "{other:?} at {at}: {info:?}");
        }
        if is_checked && info.cached_positions > begun.cached_positions {
            holds_what_is_needed(&world, &info);
        }
        world.check_all();
        if is_checked {
            world.shared.turn().allocate(info.id, tokens.len()).unwrap();
            world.compute(info.id, tokens.len());
        } else {
            world.shared.turn().release(info.id).unwrap();
        }
    }
    world.check_all();
    world.end();
    yields
}

#[test]
fn m06_t16_others_get_in_while_a_fetch_of_several_groups_ends() {
    let tokens = prompt(1, 41);
    let mut most = 0;
    for (model, groups) in models().into_iter().enumerate() {
        for (gone, first, agrees) in [
            ([100, 100, 100], 0, false),
            ([0, 100, 100], 0, false),
            ([0, 0, 1], 0, false),
            ([4, 100, 100], 8, false),
            ([0, 3, 3], 0, false),
            ([7, 2, 2], 12, false),
            ([4, 100, 100], 0, true),
        ] {
            for other in OTHERS {
                let mut at = 0;
                loop {
                    let setup = setup(groups.clone(), first, agrees);
                    let world = world_with(setup, &tokens, gone);
                    let yields = fetch_with(world, &tokens, other, at);
                    most = most.max(yields);
                    at += 1;
                    if at >= yields || other == Other::Nothing {
                        break;
                    }
                }
                assert!(at > 0, "model {model}");
            }
        }
    }
    assert!(most > 40, "others got in {most} times");
}
