//! Looking a long prompt up: others have the lock while its digests are made.
use crate::{NEXT, PAGES, World, YIELDS, tokens};
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::{Scope, Shared, State};
use radixkv::token::TokenList;

/// The prompt, and how much of it is cached at first.
const PROMPT: u32 = 12;
const LEN: u32 = 30;
const CACHED: u32 = 20;

/// A lookup; gives the positions that it found.
type Lookup = (&'static str, fn(&Shared, TokenList<'_>) -> usize);

const LOOKUPS: [Lookup; 3] = [
    ("probe", |shared, list| shared.probe(&Namespace::default(), list).unwrap().1),
    ("match", |shared, list| {
        let mut turn = shared.turn();
        let take = |state: &mut State, found, _: usize| state.take_match(found, true);
        let ((matched, lock), _) = turn.lookup(&Namespace::default(), list, take).unwrap();
        assert_eq!(lock.is_some(), matched.positions > 0);
        if let Some(lock) = lock {
            turn.unlock(lock).unwrap();
        }
        matched.positions
    }),
    ("begin", |shared, list| {
        let info = shared.begin(&Namespace::default(), list, 0).unwrap();
        shared.turn().release(info.id).unwrap();
        info.cached_positions
    }),
];

fn publish(shared: &Shared, len: u32) {
    let ids = tokens(PROMPT, len);
    let made = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap().id;
    shared.write().publish(made, len as usize).unwrap();
    shared.turn().release(made).unwrap();
}

/// What somebody else does meanwhile, and how much of the prompt is cached then.
type Second = (&'static str, fn(&Shared), u32);

const SECOND: [Second; 6] = [
    ("nothing", |_| {}, CACHED),
    ("evict the end", |shared| drop(shared.evict(12 + 3, |_, _| {})), CACHED - 6),
    ("evict all", |shared| drop(shared.evict(PAGES as usize, |_, _| {})), 0),
    ("publish more", |shared| publish(shared, LEN - 2), LEN - 2),
    ("clear", |shared| drop(shared.clear(Scope::default())), 0),
    (
        "clear, and publish again",
        |shared| {
            shared.clear(Scope::default()).unwrap();
            publish(shared, 8);
        },
        8,
    ),
];

/// A world with the prompt, before which 12 pages would be evicted.
fn world() -> World {
    let world = World::new(IndexKind::BlockHash);
    publish(&world.shared, CACHED);
    YIELDS.set(0);
    world
}

/// H03: what is found is what is cached in the end, whatever changed while digests were made.
#[test]
fn h03_a_long_lookup_finds_what_is_cached_when_it_ends() {
    let ids = tokens(PROMPT, LEN);
    let list = TokenList::text(&ids);
    for (lookup, look_up) in LOOKUPS {
        for (second, act, cached) in SECOND {
            // After each page that is cached, and the one after those.
            for at in 0..=CACHED as usize / 2 {
                let world = world();
                NEXT.set(Some((at, Box::new(act))));
                let found = look_up(&world.shared, list);
                let what = format!("{lookup}, at yield {at} {second}");
                let now = world.shared.read().find(&Namespace::default(), list).unwrap();
                assert_eq!(found, now.positions(), "{what}");
                assert_eq!(found, cached as usize, "{what}");
                assert!(NEXT.take().is_none(), "{what}: nobody was let in");
                world.check(&what);
            }
        }
    }
}

/// A lookup lets others in once for each page that is cached, and once more.
#[test]
fn h03_others_get_in_while_digests_are_made() {
    for (lookup, look_up) in LOOKUPS {
        for (len, same) in [(LEN, LEN), (LEN, 0), (LEN, 5), (8, 8)] {
            let world = world();
            let mut ids = tokens(PROMPT, len);
            ids[same as usize..].iter_mut().for_each(|id| *id += 500);
            YIELDS.set(0);
            look_up(&world.shared, TokenList::text(&ids));
            // After the last page there is nothing to be hashed that others could wait for.
            let yields = (same.min(CACHED) / 2 + 1).min(len / 2 - 1);
            assert!(YIELDS.get() >= yields as usize, "{lookup} of {len}, {same} of them cached");
        }
    }
}
