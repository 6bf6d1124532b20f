//! A remote store that answers late, or does not return from its calls.
use super::remote::{filled, world as on};
use super::remote_store::{MemoryRemote, Mood};
use super::world::{Setup, World};
use super::{PLAIN, prompt};
use radixkv::tier::paged::Deadline;
use std::time::Duration;

/// T13, T11: the store keeps a fetch waiting for no longer than its time, and nothing at all when
/// the deadline is none; what comes late harms nobody.
#[test]
fn t13_a_store_that_stands_still_is_not_waited_for() {
    let tokens = prompt(1, 41);
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..filled(&tokens) };
    let mut world = on(&remote);
    // Its threads have not come to the question.
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.work();
    let none = world.tiers.fetch(info.id, Deadline::After(Duration::ZERO), false).unwrap();
    assert!(!none.is_begun && none.asked_positions == 0);
    let look = world.tiers.fetch(info.id, Deadline::Never, true).unwrap();
    assert!(!look.is_begun && look.asked_positions == 0);
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    let ended = |world: &mut World| {
        world.work();
        world.poll(64);
        world.fetched.pop()
    };
    assert!(ended(&mut world).is_none());
    std::thread::sleep(Duration::from_millis(310));
    let done = ended(&mut world).unwrap();
    assert_eq!((done.positions, done.is_late), (0, true));
    world.compute(info.id, 41);
    world.release(info.id);
    // Nor to the pages.
    world.shared.evict(100, |_, _| {}).unwrap();
    while world.tiers.work_remote() {}
    let info = world.begin(&PLAIN, &tokens).unwrap();
    world.work();
    world.fetch(info.id, Deadline::Never);
    world.work();
    assert!(world.tiers.work_remote(), "the question");
    world.work();
    std::thread::sleep(Duration::from_millis(310));
    let done = ended(&mut world).unwrap();
    assert_eq!((done.positions, done.is_late), (0, true));
    assert_eq!(world.tiers.stats().counters.remote_late, 2);
    world.compute(info.id, 41);
    while world.tiers.work_remote() {}
    world.work();
    assert!(world.tiers.stats().remote.late > 0);
    world.end();
    // A call that takes too long is one that failed, for those who ask next.
    let remote = MemoryRemote { timeout: Duration::from_millis(20), ..remote };
    remote.set(Mood::Slow(Duration::from_millis(40)));
    let mut world = on(&remote);
    world.run(&PLAIN, &tokens);
    let stats = world.tiers.stats();
    assert!(stats.remote.slow_calls > 0, "{stats:?}");
    world.end();
}

/// T13, T11: the time of a page begins when the store is asked for it, however long the engine
/// copies what came before.
#[test]
fn t13_a_page_that_was_not_asked_for_is_not_late() {
    let (tokens, timeout) = (prompt(1, 401), Duration::from_millis(300));
    let remote = MemoryRemote::new();
    let setup = Setup { remote: Some(remote.clone()), ..Setup::new(110, 110, None) };
    let mut world = World::new(setup.clone());
    world.run(&PLAIN, &tokens);
    world.settle();
    world.end();
    assert_eq!(remote.inside().values.len(), 100);
    let remote = Some(MemoryRemote { timeout, ..remote });
    let mut world = World::new(Setup { remote, ..setup });
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    world.work();
    assert!(world.fetch(id, Deadline::Never).is_begun);
    world.work();
    // It answers at once: as many pages as are read ahead.
    while world.tiers.work_remote() {
        world.work();
    }
    assert_eq!(world.poll(64), 64);
    // A long step of the engine.
    std::thread::sleep(timeout + Duration::from_millis(10));
    world.settle();
    assert_eq!(world.requests[&id].computed, 400);
    assert_eq!(world.tiers.stats().counters.remote_late, 0);
    world.compute(id, tokens.len());
    world.end();
}
