//! Each verb, with each request for memory failing in turn: it is refused and nothing changed, or
//! it did what it does otherwise.
use super::failing::{Failure, failing};
use super::world::{Insert, World, list, message, ok, sized};
use radixkv::capi::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsRawFd;
use std::ptr;

/// One call on a world, and what it said.
type Verb = fn(&mut World) -> rkv_status;

/// Tokens that need no memory: they are made while requests fail.
struct Prompt([u32; 64], usize);

impl std::ops::Deref for Prompt {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0[..self.1]
    }
}

/// `count` tokens that follow each other, then some others.
fn two(from: u32, count: usize, then: u32, more: usize) -> Prompt {
    let mut ids = [0; 64];
    ids.iter_mut().zip(from..).take(count).for_each(|(id, token)| *id = token);
    ids[count..].iter_mut().zip(then..).take(more).for_each(|(id, token)| *id = token);
    Prompt(ids, count + more)
}

fn prompt(from: u32, count: usize) -> Prompt {
    two(from, count, 0, 0)
}

/// Prompts that share beginnings, in two namespaces; some are pinned, and one is only read.
fn world() -> World {
    let mut world = World::new(100, 100_000);
    let mut data = 0;
    let mut put = |world: &World, ns, ids: &[u32]| {
        data += 1;
        ok(world.insert(Insert { ns, ids, data, bytes: 10 }));
    };
    for end in [10, 20, 40] {
        put(&world, 0, &prompt(0, end));
    }
    for branch in 0..8 {
        put(&world, 0, &two(0, 30, 100 * (branch + 1), 20));
    }
    put(&world, 1, &prompt(0, 25));
    for end in [40, 20, 20] {
        ok(world.pin(0, &prompt(0, end)).0);
    }
    ok(world.pin(1, &prompt(0, 25)).0);
    ok(world.remove(1, &prompt(0, 25)).0);
    world
}

fn insert(world: &World, ns: u64, ids: &[u32], bytes: u64) -> rkv_status {
    world.insert(Insert { ns, ids, data: 1000, bytes })
}

const VERBS: &[(&str, Verb)] = &[
    ("insert, a leaf", |world| insert(world, 0, &prompt(0, 45), 10)),
    ("insert, a branch", |world| insert(world, 0, &two(0, 5, 7000, 40), 10)),
    ("insert, inside a segment", |world| insert(world, 0, &prompt(0, 37), 10)),
    ("insert, at a node", |world| insert(world, 0, &prompt(0, 30), 10)),
    ("insert, a namespace", |world| insert(world, 9, &prompt(0, 30), 10)),
    ("insert, the default one", |world| {
        // SAFETY: the handle is alive.
        ok(unsafe { rkv_snapshot_cache_clear(world.cache) });
        insert(world, 0, &prompt(0, 30), 10)
    }),
    ("insert, replacing", |world| insert(world, 0, &prompt(0, 10), 10)),
    ("insert, replacing what is read", |world| insert(world, 0, &prompt(0, 20), 10)),
    ("insert, all others go", |world| insert(world, 0, &prompt(0, 15), 99_960)),
    ("insert, too large", |world| insert(world, 0, &prompt(0, 15), 100_001)),
    ("match, for the first time", |world| world.pin(0, &prompt(0, 12)).0),
    ("match, what is read", |world| world.pin(0, &prompt(0, 21)).0),
    ("match, nothing", |world| world.pin(3, &prompt(0, 21)).0),
    ("match, many", |world| {
        let mut each = (0..300).map(|_| world.pin(0, &prompt(0, 10)).0);
        let status = each.find(|status| *status != rkv_status::Ok);
        // Those before the refused one are given back.
        while status.is_some() && world.pins.len() > 4 {
            ok(world.release(4));
        }
        status.unwrap_or(rkv_status::Ok)
    }),
    ("check", |world| {
        // SAFETY: the handle is alive.
        unsafe { rkv_snapshot_cache_check(world.cache) }
    }),
];

/// On a cache that nobody read from yet.
const FIRST: &[(&str, Verb)] = &[
    ("match, the first of a cache", |world| world.pin(0, &prompt(0, 12)).0),
    ("insert, the second", |world| insert(world, 0, &prompt(0, 15), 10)),
];

fn fresh() -> World {
    let world = World::new(10, 100);
    ok(world.insert(Insert { ns: 0, ids: &prompt(0, 10), data: 1, bytes: 10 }));
    world
}

/// What lets something go never needs memory.
const LETTING_GO: &[(&str, Verb)] = &[
    ("probe", |world| {
        world.probe(0, &prompt(0, 33));
        rkv_status::Ok
    }),
    ("release", |world| world.release(0)),
    ("release, not the last", |world| world.release(1)),
    ("release, the last of what is only read", |world| world.release(3)),
    ("remove, a leaf", |world| world.remove(0, &prompt(0, 40)).0),
    ("remove, a piece to join", |world| world.remove(0, &prompt(0, 10)).0),
    ("remove, what is read", |world| world.remove(0, &prompt(0, 20)).0),
    ("remove, nothing", |world| world.remove(0, &prompt(0, 11)).0),
    ("clear", |world| {
        // SAFETY: the handle is alive.
        unsafe { rkv_snapshot_cache_clear(world.cache) }
    }),
    ("statistics", |world| {
        world.stats();
        rkv_status::Ok
    }),
];

/// Requests that may fail, all of them or one.
fn failures() -> impl Iterator<Item = (u64, [Failure; 2])> {
    (0..).map(|after| (after, [Failure::Once(after), Failure::From(after)]))
}

#[test]
fn m05_refused_or_done() {
    let usual = VERBS.iter().map(|verb| (verb, world as fn() -> World));
    let first = FIRST.iter().map(|verb| (verb, fresh as fn() -> World));
    for ((name, verb), world) in usual.chain(first) {
        let mut usual = world();
        ok(verb(&mut usual));
        let done = usual.seen();
        let mut refusals = 0;
        for (after, kinds) in failures() {
            let mut most = 0;
            for failure in kinds {
                let mut world = world();
                let (before, nodes) = (world.seen(), world.stats().node_count);
                let (status, failed) = failing(failure, || verb(&mut world));
                most = most.max(failed);
                world.check();
                if status == rkv_status::Ok {
                    assert_eq!(world.seen(), done, "{name}, {failure:?}");
                    continue;
                }
                refusals += 1;
                assert_eq!(status, rkv_status::OutOfMemory, "{name}, {failure:?}");
                assert!(message().contains("memory"), "{}", message());
                let is_same = world.seen() == before && world.stats().node_count == nodes;
                // Two of the verbs are more than one call.
                let is_one = !name.contains("default") && !name.contains("many");
                assert!(is_same || !is_one, "{name}, {failure:?}: something changed");
                assert!(!world.seen().1.contains(&1000), "{name}: the caller's was destroyed");
                if is_one {
                    ok(verb(&mut world));
                    assert_eq!(world.seen(), done, "{name}, again after {failure:?}");
                    world.check();
                }
            }
            if most == 0 {
                assert!(after < 40, "{name}: {after} requests");
                break;
            }
        }
        // There is room for a few readers more than there are.
        let without = ["insert, too large", "match, for the first time", "match, nothing"];
        let needs_none = without.contains(name) || *name == "match, what is read";
        assert_eq!(refusals == 0, needs_none, "{name}: {refusals} refusals");
    }
}

#[test]
fn m05_letting_go_needs_no_memory() {
    for (name, verb) in LETTING_GO {
        let mut usual = world();
        ok(verb(&mut usual));
        for (_, kinds) in failures().take(4) {
            for failure in kinds {
                let mut world = world();
                let (status, _) = failing(failure, || verb(&mut world));
                assert_eq!(status, rkv_status::Ok, "{name}, {failure:?}: {}", message());
                world.check();
                assert_eq!(world.seen(), usual.seen(), "{name}, {failure:?}");
                // What could not be joined is, later.
                ok(insert(&world, 0, &prompt(9000, 1), 1));
                ok(insert(&usual, 0, &prompt(9000, 1), 1));
                assert_eq!(world.stats().node_count, usual.stats().node_count, "{name}");
                ok(world.remove(0, &prompt(9000, 1)).0);
                ok(usual.remove(0, &prompt(9000, 1)).0);
                world.check();
                usual = self::world();
                ok(verb(&mut usual));
            }
        }
    }
    // Ends everything, with pins out.
    let mut world = world();
    let ((), failed) = failing(Failure::From(0), || world.end());
    assert_eq!(failed, 0, "destroying asked for memory");
    assert_eq!(world.log.destroyed.borrow().len(), 12, "each exactly once");
}

#[test]
fn m05_create() {
    drop(world()); // what is made once for a process
    let mut refusals = 0;
    for (_, kinds) in failures() {
        let mut most = 0;
        for failure in kinds {
            let mut cache = ptr::null_mut();
            // SAFETY: out_cache leads to a pointer.
            let create = || unsafe { rkv_snapshot_cache_create(ptr::null(), &mut cache) };
            let (status, failed) = failing(failure, create);
            most = most.max(failed);
            if status == rkv_status::Ok {
                // SAFETY: nobody uses it.
                unsafe { rkv_snapshot_cache_destroy(cache) };
                continue;
            }
            refusals += 1;
            assert_eq!((status, cache), (rkv_status::OutOfMemory, ptr::null_mut()));
        }
        if most == 0 {
            break;
        }
    }
    assert!(refusals > 0);
}

/// Mistakes are named as ever when there is no memory to name them in.
#[test]
fn m05_messages_need_no_memory() {
    let world = world();
    let tokens = list(&[u32::MAX]);
    let args = rkv_snapshot_cache_insert_args { tokens: &tokens, ..sized() };
    // SAFETY: all pointers lead to live values.
    let call = || unsafe { rkv_snapshot_cache_insert(world.cache, &args, ptr::null_mut()) };
    // More often than there are buffers: each is used again.
    for _ in 0..6 {
        let (status, failed) = failing(Failure::From(0), call);
        assert_eq!(status, rkv_status::InvalidArgument);
        assert!(message().contains("tokens.ids[0]"), "{} ({failed} requests failed)", message());
    }
}

/// M05: what a list has that no snapshot can is seen before anything is made of it.
#[test]
fn m05_items_are_refused_without_memory() {
    let world = world();
    let image = rkv_token_item {
        token_index: 0,
        kind: RKV_TOKEN_IMAGE,
        position_count: 1,
        bin: 0,
        height_bin: 0,
        digest: [1; 16],
    };
    let items: Vec<_> = (0..5).map(|at| rkv_token_item { token_index: at, ..image }).collect();
    let ids = [0; 5];
    let tokens = rkv_tokens {
        item_size: size_of::<rkv_token_item>() as u32,
        items: items.as_ptr(),
        item_count: items.len(),
        ..list(&ids)
    };
    let mut count = 0;
    // SAFETY: all pointers lead to live values, or are NULL where they may be.
    let probe =
        || unsafe { rkv_snapshot_cache_probe(world.cache, ptr::null(), &tokens, &mut count) };
    let (status, failed) = failing(Failure::From(0), probe);
    assert_eq!((status, failed), (rkv_status::InvalidArgument, 0));
    assert!(message().contains("tokens.item_count"), "{}", message());
    // SAFETY: as above.
    let remove =
        || unsafe { rkv_snapshot_cache_remove(world.cache, ptr::null(), &tokens, ptr::null_mut()) };
    let (status, failed) = failing(Failure::From(0), remove);
    assert_eq!((status, failed), (rkv_status::InvalidArgument, 0));
    assert!(message().contains("tokens.item_count"), "{}", message());
}

/// M05: an attachment with an eventfd is refused, too, whichever request for memory fails.
#[test]
fn m05_an_eventfd_needs_memory() {
    let world = world();
    let directory = c"/proc/no/such/place";
    let mut config = sized::<rkv_snapshot_tier_config>();
    // SAFETY: a struct of that size, and nothing but a number for the eventfd.
    unsafe { ok(rkv_snapshot_tier_config_init(&mut config, size_of_val(&config))) };
    (config.directory, config.byte_limit) = (directory.as_ptr(), 1 << 20);
    let wake = eventfd(0, EventfdFlags::empty()).unwrap();
    config.event_fd = wake.as_raw_fd();
    // SAFETY: the config and what it names are alive.
    let attach = || unsafe { rkv_snapshot_cache_attach(world.cache, &config) };
    let (status, failed) = failing(Failure::Once(0), attach);
    assert_eq!((status, failed), (rkv_status::OutOfMemory, 1), "{}", message());
    assert_eq!(attach(), rkv_status::Storage);
}
