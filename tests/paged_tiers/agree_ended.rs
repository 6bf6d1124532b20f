//! T09: of a sequence that has ended nothing is agreed, and no end of its fetch is waited for.
use crate::group_world::{GroupWorld, Setup as GroupSetup};
use crate::groups::hybrid;
use crate::world::Setup;
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
