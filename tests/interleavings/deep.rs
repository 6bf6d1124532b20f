//! Calls on paths of several nodes, which are passed one by one.
use super::calls::{Long, Second, begin};
use super::clear::clear;
use super::settings::{SETTINGS, Setting};
use crate::{NEXT, SHARED, World, destroy_at, interleave, tokens};
use radixkv::error::Error;
use radixkv::ids::{LockId, NodeId, SequenceId};
use radixkv::index::Namespace;
use radixkv::sequence::{Continuation, Room};
use radixkv::store::{CacheConfig, Found, InsertRequest, Matched, Shared, State};
use radixkv::token::{Item, TokenKind, TokenList};
use std::mem::MaybeUninit;

/// Prompts of which parts are those of others: one is retained, one locked, two are free.
const RETAINED: u32 = 3;
const LOCKED: u32 = 20;
pub(super) const FREE: u32 = 22;
const OTHER: u32 = 23;
/// Prompts that begin with an image, and what nobody has published yet.
pub(super) const IMAGES: u32 = 24;
const NEW: u32 = 25;
/// Pages of each.
pub(super) const PAGES: u32 = 4;

/// Tokens of a family, the first of which may be an image.
fn list(family: u32, ids: &[u32]) -> TokenList<'_> {
    const IMAGE: Item =
        Item { token_index: 0, kind: TokenKind::Image { digest: [7; 16], positions: 3 } };
    TokenList { ids, items: if family == IMAGES { &[IMAGE] } else { &[] } }
}

/// Publishes a prompt with a node for each page.
pub(super) fn publish_path(shared: &Shared, family: u32) {
    for page in 1..PAGES {
        let ids = [tokens(family, 2 * page), tokens(100 * family + page, 2)].concat();
        let made = shared.begin(&Namespace::default(), list(family, &ids), 0);
        let Ok(made) = made else { continue };
        drop(shared.write().confirm_copies(made.id));
        drop(shared.turn().publish(made.id, made.positions));
        drop(shared.turn().release(made.id));
    }
}

/// A world whose prompts have a node for each page.
pub(super) fn deep(setting: Setting) -> World {
    let world = World::new(setting);
    for family in [RETAINED, LOCKED, FREE, OTHER, IMAGES] {
        publish_path(&world.shared, family);
    }
    crate::YIELDS.set(0);
    world
}

/// What is found is what is cached when it is taken. With several groups it is what they could
/// reuse when that was looked for, and can still: others may have brought more since.
fn check_found(world: &World, found: Found, now: Found) {
    let (found, now) = (found.positions(), now.positions());
    let is_it = if world.shared.group_count() > 1 { found <= now } else { found == now };
    assert!(is_it, "{found} positions are found, and {now} are cached");
}

fn lookup(world: &World, family: u32, lock: bool) -> Result<(), Error> {
    let ids = tokens(family, 2 * PAGES + 1);
    let list = list(family, &ids);
    let take = |state: &mut State, found: Found, known: usize| {
        let now = state.find(&Namespace::default(), list)?;
        check_found(world, found, now);
        let (matched, lock) = state.take_match(found, lock)?;
        let (all, rest) = (pages(state, &matched, 0)?, pages(state, &matched, known)?);
        assert_eq!(all[known..], rest[known..]);
        Ok::<_, Error>((lock, all))
    };
    let ((lock, all), known) = world.shared.turn().lookup(&Namespace::default(), list, take)?;
    assert_eq!(known, all[..known.len()]);
    lock.map_or(Ok(()), |lock| unlock(world, lock))
}

/// The same of who has room for the pages, where they come on the way.
fn lookup_into(world: &World, family: u32) -> Result<(), Error> {
    let ids = tokens(family, 2 * PAGES + 1);
    let list = list(family, &ids);
    let mut row = vec![MaybeUninit::new(u32::MAX); PAGES as usize + 1];
    let take = |state: &mut State, (found, known): (Found, usize), row: &mut [MaybeUninit<u32>]| {
        let now = state.find(&Namespace::default(), list)?;
        check_found(world, found, now);
        let (matched, lock) = state.take_match(found, true)?;
        state.visit_path(matched.node, known, |start, part| {
            row[start..start + part.len()].write_copy_of_slice(part);
        })?;
        Ok::<_, Error>((lock, pages(state, &matched, 0)?))
    };
    let space = Namespace::default();
    let ((lock, all), known) = world.shared.turn().lookup_into(&space, list, &mut row, take)?;
    row[..known.len()].write_copy_of_slice(&known);
    // SAFETY: all of it was written above.
    let row: Vec<u32> = row.into_iter().map(|page| unsafe { page.assume_init() }).collect();
    assert_eq!(row[..all.len()], all);
    lock.map_or(Ok(()), |lock| unlock(world, lock))
}

/// What each group costs is what is known and cannot be reused.
fn probe_groups(world: &World) -> Result<(), Error> {
    let ids = tokens(FREE, 2 * PAGES + 1);
    let list = TokenList::text(&ids);
    let (found, reached) = world.shared.costs(&Namespace::default(), list)?;
    let lost: usize = reached.lost.iter().sum();
    let known = found.positions().max(found.depths().known as usize);
    assert_eq!((known - lost, reached.positions), (found.positions(), found.positions()));
    Ok(())
}

/// Evicts pages of other groups until less of a prompt can be reused than is known.
fn lose_windows(world: &World) {
    let held = NEXT.take();
    let (ids, shared) = (tokens(FREE, 2 * PAGES + 1), &world.shared);
    let reused = || {
        let found = shared.read().find(&Namespace::default(), TokenList::text(&ids));
        found.unwrap().positions()
    };
    for _ in 0..50 {
        if shared.group_count() == 1 || reused() < 2 * PAGES as usize - 2 {
            break;
        }
        shared.evict_from_pool(1, 1, 100, |_| {}).unwrap();
    }
    NEXT.set(held);
}

/// Undoes a lock, unless its cache has gone.
fn unlock(world: &World, lock: LockId) -> Result<(), Error> {
    match world.shared.turn().unlock(lock) {
        Err(Error::StaleLock(_)) => Ok(()),
        done => done,
    }
}

/// The pages of a match from one on.
fn pages(state: &State, matched: &Matched, first: usize) -> Result<Vec<u32>, Error> {
    let mut pages = vec![0; matched.pages];
    let into = |start: usize, part: &[u32]| {
        pages[start..start + part.len()].copy_from_slice(part);
    };
    state.visit_path(matched.node, first, into)?;
    Ok(pages)
}

/// The deepest node of a prompt, if it is there.
fn node(shared: &Shared, family: u32) -> Result<Option<NodeId>, Error> {
    let ids = tokens(family, 2 * PAGES);
    let mut state = shared.write();
    let found = state.find(&Namespace::default(), TokenList::text(&ids))?;
    let (matched, _) = state.take_match(found, false)?;
    let id = state.node_id(matched.node)?;
    Ok((id != 0).then_some(NodeId(id)))
}

fn lock_node(world: &World) -> Result<(), Error> {
    let Some(node) = node(&world.shared, FREE)? else { return Ok(()) };
    let lock = match world.shared.turn().lock(node) {
        Ok(lock) => lock,
        Err(Error::StaleNode(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    unlock(world, lock)
}

fn begun(world: &World, family: u32) -> Result<SequenceId, Error> {
    let ids = tokens(family, 2 * PAGES + 1);
    Ok(world.shared.begin(&Namespace::default(), list(family, &ids), 0)?.id)
}

fn retain(world: &World, family: u32, count: u32) -> Result<(), Error> {
    let ids = tokens(family, count);
    let id = world.shared.begin(&Namespace::default(), list(family, &ids), 0)?.id;
    drop(world.shared.write().confirm_copies(id));
    world.shared.turn().publish(id, count as usize)?;
    world.shared.turn().retain(id).map(drop)
}

fn go_on(world: &World, parent: SequenceId) -> Result<(), Error> {
    let suffix = tokens(7, 3);
    let how = Continuation {
        parent,
        namespace: &Namespace::default(),
        suffix: TokenList::text(&suffix),
        all: None,
        room: Room::default(),
        running: true,
    };
    world.shared.continue_from(&how).map(drop)
}

/// Inserts a page more, from the beginning or from a node; a place where the pages are others.
fn insert(world: &World, from: Option<NodeId>, lock: bool) -> Result<(), Error> {
    let ids = tokens(OTHER, 2 * (PAGES + 1));
    let (loose, mut pages) = (world.shared.allocate_pages(1)?, vec![0; PAGES as usize + 1]);
    pages[PAGES as usize] = loose[0];
    {
        let mut state = world.shared.write();
        let found = state.find(&Namespace::default(), TokenList::text(&ids))?;
        if found.pages() != PAGES as usize {
            drop(state);
            return world.shared.turn().free_pages(0, &loose);
        }
        let (matched, _) = state.take_match(found, false)?;
        state.visit_path(matched.node, 0, |start, part| {
            pages[start..start + part.len()].copy_from_slice(part);
        })?;
    }
    let from_page = if from.is_some() { PAGES as usize - 1 } else { 0 };
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: TokenList::text(&ids),
        pages: &pages,
        from,
        from_token: 2 * from_page,
        from_page,
        lock,
        moved: None,
    };
    let done = world.shared.turn().insert(request, |state, done, _| {
        let found = state.find(&Namespace::default(), TokenList::text(&ids))?;
        let is_whole = world.shared.group_count() > 1 || found.pages() == done.pages;
        assert!(is_whole, "what was published is found");
        let mut published = vec![0; pages.len()];
        let into = |start: usize, part: &[u32]| {
            published[start..start + part.len()].copy_from_slice(part);
        };
        state.visit_path(done.node, 0, into)?;
        Ok::<_, Error>((done, published))
    });
    let (done, others) = match done {
        Ok((done, known)) => {
            let (done, published) = done?;
            assert_eq!(known, published[..known.len()]);
            (done, published.iter().zip(&pages).filter(|(ours, sent)| ours != sent).count())
        }
        // What was evicted meanwhile is no page to publish; and the node went with it.
        Err(error @ (Error::Argument(_) | Error::StaleNode(_) | Error::State(_))) => {
            world.shared.turn().free_pages(0, &loose)?;
            return if matches!(error, Error::State(_)) { Err(error) } else { Ok(()) };
        }
        Err(error) => return Err(error),
    };
    assert_eq!(done.pages, PAGES as usize + 1);
    assert!(from.is_some() || done.duplicates == others, "{} of {others}", done.duplicates);
    done.lock.map_or(Ok(()), |lock| unlock(world, lock))
}

/// Brings a part of the prompts back, as others' pages.
fn publish_again(world: &World) {
    for family in [RETAINED, FREE, OTHER] {
        let ids = tokens(family, 2 * PAGES - 2);
        let made = world.shared.begin(&Namespace::default(), TokenList::text(&ids), 0);
        let Ok(made) = made else { continue };
        drop(world.shared.write().confirm_copies(made.id));
        drop(world.shared.turn().publish(made.id, ids.len()));
        drop(world.shared.turn().release(made.id));
    }
}

/// What somebody else does who takes the path away, and brings a like one; or keeps it.
const OTHERS: [Second; 3] = [
    ("retain the same", |world| drop(retain(world, FREE, 9))),
    ("clear, and publish again", |world| {
        drop(clear(world));
        publish_again(world);
    }),
    ("another cache comes", |world| {
        world.shared.detach_cache();
        world.shared.attach_cache(CacheConfig::default()).unwrap();
        publish_again(world);
    }),
];

/// Publishes what others published in the meantime, whose pages it then has.
fn publish_theirs(world: &World) -> Result<(), Error> {
    let id = begun(world, NEW)?;
    let held = NEXT.take();
    publish_path(&world.shared, NEW);
    NEXT.set(held);
    drop(world.shared.write().confirm_copies(id));
    let positions = world.shared.read().sequence_info(id)?.positions;
    let published = world.shared.turn().publish(id, positions);
    let whole = 2 * PAGES as usize;
    if let Ok(done) = &published
        && world.shared.read().sequence_info(id).is_ok_and(|info| info.positions == positions)
    {
        assert_eq!(done.shared_pages * 2, whole, "{done:?}");
    }
    world.shared.turn().release(id)
}

/// Inserts pages behind an image.
fn insert_behind_image(world: &World) -> Result<(), Error> {
    let ids = tokens(IMAGES, 2 * PAGES);
    let pages = world.shared.allocate_pages(PAGES as usize + 1)?;
    let request = InsertRequest {
        groups: &[],
        namespace: &Namespace::default(),
        tokens: list(IMAGES, &ids),
        pages: &pages,
        from: None,
        from_token: 0,
        from_page: 0,
        lock: true,
        moved: None,
    };
    let done = world.shared.turn().insert(request, |state, done, _| {
        let mut published = vec![0; pages.len()];
        let into = |start: usize, part: &[u32]| {
            published[start..start + part.len()].copy_from_slice(part);
        };
        state.visit_path(done.node, 0, into)?;
        Ok::<_, Error>((done, published))
    });
    // What the cache has at another place stays the caller's, or went with the cache.
    let mut ours = pages.clone();
    let ended = done.and_then(|(done, known)| {
        let (done, published) = done?;
        assert_eq!(known, published[..known.len()]);
        ours.retain(|page| !published.contains(page));
        assert_eq!(done.claimed + ours.len(), pages.len());
        done.lock.map_or(Ok(()), |lock| unlock(world, lock))
    });
    for page in ours {
        drop(world.shared.turn().free_pages(0, &[page]));
    }
    ended
}

pub(super) const DEEP: [Long; 28] = [
    Long {
        name: "probe",
        call: |world| {
            let ids = tokens(FREE, 2 * PAGES + 1);
            world.shared.probe(&Namespace::default(), TokenList::text(&ids)).map(drop)
        },
        slot: |_| None,
    },
    Long { name: "probe groups", call: probe_groups, slot: |_| None },
    Long { name: "match", call: |world| lookup(world, FREE, false), slot: |_| None },
    Long { name: "match and lock", call: |world| lookup(world, FREE, true), slot: |_| None },
    Long { name: "match into a row", call: |world| lookup_into(world, FREE), slot: |_| None },
    Long {
        name: "match what is kept",
        call: |world| lookup(world, RETAINED, true),
        slot: |_| None,
    },
    Long {
        name: "match where windows went",
        call: |world| {
            lose_windows(world);
            lookup(world, FREE, true)
        },
        slot: |_| None,
    },
    Long {
        name: "begin where windows went",
        call: |world| {
            lose_windows(world);
            begin(&world.shared, FREE, 9)
        },
        slot: |_| None,
    },
    Long { name: "lock a node", call: lock_node, slot: |_| None },
    Long { name: "unlock", call: |world| unlock(world, world.locked), slot: |_| None },
    Long { name: "begin", call: |world| begin(&world.shared, FREE, 9), slot: |_| None },
    Long { name: "begin with a part", call: |world| begin(&world.shared, FREE, 8), slot: |_| None },
    Long {
        name: "begin on what is kept",
        call: |world| begin(&world.shared, RETAINED, 20),
        slot: |_| None,
    },
    Long {
        name: "release",
        call: |world| {
            let id = begun(world, FREE)?;
            world.shared.turn().release(id)
        },
        slot: |_| None,
    },
    Long { name: "retain", call: |world| retain(world, FREE, 9), slot: |_| None },
    Long {
        name: "retain more than is kept",
        call: |world| retain(world, RETAINED, 20),
        slot: |_| None,
    },
    Long {
        name: "retain, and another gives way",
        call: |world| {
            retain(world, OTHER, 9)?;
            retain(world, FREE, 9)
        },
        slot: |_| None,
    },
    Long {
        name: "drop",
        call: |world| world.shared.turn().drop_retained(world.retained),
        slot: |_| None,
    },
    Long { name: "continue", call: |world| go_on(world, world.retained), slot: |_| None },
    Long {
        name: "continue from one that runs",
        call: |world| {
            let id = begun(world, FREE)?;
            drop(world.shared.write().confirm_copies(id));
            go_on(world, id)
        },
        slot: |_| None,
    },
    Long {
        name: "fork",
        call: |world| world.shared.fork(world.retained, 2, 0).map(drop),
        slot: |_| None,
    },
    Long { name: "insert", call: |world| insert(world, None, true), slot: |_| None },
    Long { name: "publish what others have", call: publish_theirs, slot: |_| None },
    Long {
        name: "probe behind an image",
        call: |world| {
            let ids = tokens(IMAGES, 2 * PAGES + 1);
            world.shared.probe(&Namespace::default(), list(IMAGES, &ids)).map(drop)
        },
        slot: |_| None,
    },
    Long {
        name: "match behind an image",
        call: |world| lookup(world, IMAGES, true),
        slot: |_| None,
    },
    Long {
        name: "begin behind an image",
        call: |world| {
            let id = begun(world, IMAGES)?;
            world.shared.turn().release(id)
        },
        slot: |_| None,
    },
    Long { name: "insert behind an image", call: insert_behind_image, slot: |_| None },
    Long {
        name: "insert from a node",
        call: |world| {
            let node = node(&world.shared, OTHER)?;
            let above = node.map(|node| world.shared.read().node_info(node)).transpose();
            match above {
                Ok(above) => insert(world, above.and_then(|info| info.parent), false),
                Err(Error::StaleNode(_)) => Ok(()),
                Err(error) => Err(error),
            }
        },
        slot: |_| None,
    },
];

/// M06: what is done for each node of a path lets others in after each.
#[test]
fn m06_any_call_at_any_yield_of_one_on_a_long_path() {
    let mut runs = 0;
    for setting in SETTINGS {
        for long in &DEEP {
            let mut most = 0;
            for second in crate::SECOND.into_iter().chain(OTHERS) {
                let mut at = 0;
                while interleave(deep, setting, long, second, at) {
                    at += 1;
                }
                (runs, most) = (runs + at, most.max(at));
            }
            // With one group a probe takes no lock.
            let is_locked = long.name != "probe" || !matches!(setting, Setting::One(_));
            assert!(most > 0 || !is_locked, "{setting:?}, {}: it lets nobody in", long.name);
        }
    }
    assert!(runs > 5000, "{runs} interleavings only");
}

/// M06: and the cache may go at any of them.
#[test]
fn m06_a_destroy_at_any_yield_of_a_call_on_a_long_path() {
    let mut runs = 0;
    for setting in SETTINGS {
        for long in &DEEP {
            let mut at = 0;
            while destroy_at(deep, setting, long, at) {
                at += 1;
            }
            runs += at;
        }
    }
    assert!(runs > 100, "{runs} interleavings only");
    NEXT.set(None);
    SHARED.set(None);
}
