//! T13, T12: answers of a remote store that come after others have brought what was asked for.
use super::group_remote::{filled, on};
use super::group_world::GroupWorld;
use super::groups::prompt;
use super::remote_store::{MemoryRemote, Mood};
use super::world::{Copy, PAGE_SIZE, Setup, World};
use radixkv::index::Namespace;
use radixkv::tier::paged::{Deadline, Direction};

const PLAIN: Namespace = Namespace { lora: None, epoch: 0, salt: [0; 32], image: None };

/// Copies that the engine was given and has not carried out.
fn loads(world: &World) -> usize {
    let is_load = |copy: &&Copy| copy.job.direction == Direction::Load;
    world.copies.iter().filter(is_load).count()
}

/// Carries out the first copy of a direction, if there is one.
fn copy(world: &mut World, direction: Direction) {
    let copies = world.copies.iter().enumerate();
    let those = copies.filter(|(_, copy)| copy.job.direction == direction);
    let Some(at) = those.min_by_key(|(_, copy)| copy.job.id).map(|(at, _)| at) else { return };
    world.step_copy(at, true);
    world.step_copy(at, true);
    world.work();
}

/// A fetch waits for a slow store, and finds in host memory meanwhile what another request has
/// computed. Then the store says that it has none of it.
#[test]
fn t13_a_store_that_says_no_to_what_has_come_ends_a_fetch() {
    const PAGES: usize = 100;
    let tokens = prompt(1, (PAGES * PAGE_SIZE) as u32 + 1);
    for (agrees, loads_before) in [(false, 0), (false, 10), (true, 20), (true, PAGES)] {
        let remote = Some(MemoryRemote::new());
        let pages = 3 * PAGES as u32;
        let mut world = World::new(Setup { remote, agrees, ..Setup::new(pages, 2 * PAGES, None) });
        world.work();
        let waits = world.begin(&PLAIN, &tokens).unwrap().id;
        let found = world.fetch(waits, Deadline::Never);
        assert_eq!((found.positions, found.is_begun), (0, true));
        world.work();
        let other = world.begin(&PLAIN, &tokens).unwrap().id;
        world.compute(other, tokens.len());
        world.work();
        while world.tiers.stats().counters.stored < PAGES as u64 {
            world.poll(64);
            copy(&mut world, Direction::Store);
        }
        for _ in 0..loads_before {
            world.poll(64);
            copy(&mut world, Direction::Load);
        }
        world.poll(64);
        assert!(world.requests[&waits].is_open && (loads(&world) > 17 || loads_before == PAGES));
        while world.tiers.work_remote() {}
        let has_come = |world: &World| world.fetched.iter().any(|done| done.sequence == waits);
        for _ in 0..10 * PAGES {
            world.work();
            world.poll(64);
            if has_come(&world) {
                break;
            }
            copy(&mut world, Direction::Load);
        }
        assert!(has_come(&world), "{agrees} {:?}", world.tiers.stats());
        if agrees {
            let done = world.tiers.agree(waits, PAGES * PAGE_SIZE).unwrap();
            world.end_fetch(done);
        }
        let computed = world.requests[&waits].computed;
        assert!(computed >= loads_before * PAGE_SIZE, "{computed}");
        world.compute(waits, tokens.len());
        world.end();
    }
}

/// What the tiers' thread and the engine do while the store answers nothing.
fn go_on(world: &mut GroupWorld) {
    for _ in 0..4 {
        while world.tiers.work() {}
        world.poll(64);
        while !world.copies.is_empty() {
            world.end_copy(0, true);
        }
    }
}

/// Two requests for one prompt, of which the second waits for pages that the first brings from the
/// store, and has asked for the rest itself. That is on the device when the first has ended; only
/// then the store says that it has it no more, or is dead.
#[test]
fn t16_t13_a_store_that_says_no_to_what_another_fetch_has_brought() {
    let (plain, tokens) = (Namespace::default(), prompt(1, 41));
    for is_dead in [false, true] {
        let remote = filled(&tokens, &[4, 10]);
        let mut world = on(&remote);
        assert_eq!(world.run(&tokens[..17], &[]), (0, 16));
        world.evict_all();
        let first = world.begin(&plain, &tokens).unwrap().id;
        assert!(world.fetch(first, Deadline::Never).is_begun);
        // It has been told of all pages that it lacks, and they are to be read.
        for _ in 0..2 {
            while world.tiers.work() {}
            assert!(world.tiers.work_remote());
        }
        go_on(&mut world);
        assert!(world.requests[&first].is_open);
        // Somebody computes some of it, so that host memory has an end there.
        let short = world.begin(&plain, &tokens[..25]).unwrap().id;
        world.compute(short, 24);
        assert!(world.save(short));
        go_on(&mut world);
        world.compute(short, 25);
        world.release(short);
        go_on(&mut world);
        world.evict_all();
        let second = world.begin(&plain, &tokens).unwrap();
        assert_eq!(second.cached_positions, 0);
        let second = second.id;
        assert_eq!(world.fetch(second, Deadline::Never).positions, 24);
        go_on(&mut world);
        assert_eq!(world.tiers.stats().counters.joined, 1);
        // One call of the store, which reads.
        assert!(world.tiers.work_remote());
        go_on(&mut world);
        assert!(!world.requests[&first].is_open && world.requests[&second].is_open);
        match is_dead {
            true => remote.set(Mood::Dead),
            false => remote.inside().values.clear(),
        }
        world.settle();
        assert_eq!(world.requests[&first].computed, 40);
        assert!([24, 40].contains(&world.requests[&second].computed));
        [first, second].iter().for_each(|&id| world.compute(id, 41));
        world.end();
    }
}
