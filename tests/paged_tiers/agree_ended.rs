//! T09: of a sequence that has ended nothing is agreed, and no end of its fetch is waited for; what
//! can't be agreed now can be later.
use crate::group_world::{GroupWorld, Setup as GroupSetup};
use crate::groups::hybrid;
use crate::world::{Setup, World};
use crate::{PLAIN, prompt, stored};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::tier::paged::Deadline;

/// T16: with several groups, after the end of its fetch was told.
#[test]
fn t16_t09_of_a_sequence_that_has_ended_nothing_is_agreed() {
    let tokens = prompt(1, 41);
    for positions in [0, 20, 40] {
        let mut world = GroupWorld::new(GroupSetup { agrees: true, ..hybrid(None) });
        world.run(&tokens, &[4, 10]);
        world.evict_all();
        let info = world.begin(&Namespace::default(), &tokens).unwrap();
        assert!(world.fetch(info.id, Deadline::Never).is_begun);
        world.settle();
        assert_eq!(world.fetched.last().map(|done| done.positions), Some(40));
        world.release(info.id);
        let agreed = world.tiers.agree(info.id, positions);
        assert!(matches!(agreed, Err(Error::StaleSequence(_))), "{positions}: {agreed:?}");
        world.end();
    }
}

/// The same while its fetch is open still.
#[test]
fn t09_of_a_sequence_that_has_ended_nothing_is_agreed() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let id = world.begin(&PLAIN, &tokens).unwrap().id;
    assert!(world.fetch(id, Deadline::Never).is_begun);
    world.release(id);
    let agreed = world.tiers.agree(id, 8);
    assert!(matches!(agreed, Err(Error::StaleSequence(_))), "{agreed:?}");
    world.end();
}

/// T09, M04: ranks agree on less than the device has, and there are no pages for what is to be
/// computed again: the fetch waits as before, until there are some.
#[test]
fn t09_m04_an_agreement_without_pages_leaves_the_fetch_open() {
    let tokens = prompt(1, 49);
    let mut world = World::new(Setup { agrees: true, ..Setup::new(20, 64, None) });
    world.run(&PLAIN, &tokens);
    world.settle();
    assert_eq!(world.shared.evict(2, |_, _| {}).unwrap(), 2);
    let info = world.begin(&PLAIN, &tokens).unwrap();
    assert_eq!(info.shared_pages, 10);
    world.work();
    assert!(world.fetch(info.id, Deadline::Never).is_begun);
    world.settle();
    assert_eq!(world.fetched.last().map(|done| done.positions), Some(48));
    // Seven pages are free: another one takes them.
    let other = world.begin(&PLAIN, &prompt(2, 28)).unwrap().id;
    assert_eq!(world.shared.read().page_table_stats().free, 0);
    for _ in 0..2 {
        let agreed = world.tiers.agree(info.id, 32);
        assert!(matches!(agreed, Err(Error::OutOfPages { .. })), "{agreed:?}");
        assert!(world.shared.read().is_loading(info.id), "it waits to be agreed on");
        assert_eq!(world.shared.read().sequence_info(info.id).unwrap().shared_pages, 10);
        world.check_all();
    }
    world.release(other);
    let done = world.tiers.agree(info.id, 32).unwrap();
    assert_eq!(done.positions, 32);
    assert!(!world.shared.read().is_loading(info.id));
    world.end_fetch(done);
    world.compute(info.id, tokens.len());
    world.end();
}
