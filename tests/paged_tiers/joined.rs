//! Requests for one prefix, of which the second waits for what the first one brings.
use crate::world::{Copy, Setup};
use crate::{PLAIN, prompt, row, stored};
use radixkv::index::IndexKind;
use radixkv::tier::paged::{Deadline, Direction};

/// T12: also a long one, which lands in parts while the rest is on its way.
#[test]
fn t12_two_requests_share_a_fetch_that_lands_in_parts() {
    let tokens = prompt(1, 4 * 200 + 1);
    let mut world = stored(Setup::new(700, 300, None), &tokens);
    assert_eq!(world.tiers.stats().host.pages, 200);
    let ids = [(); 2].map(|()| world.begin(&PLAIN, &tokens).unwrap().id);
    for id in ids {
        assert!(world.fetch(id, Deadline::Never).is_begun);
    }
    let (mut loads, mut rounds) = (0, 0);
    while world.fetched.len() < 2 {
        world.work();
        world.poll(64);
        let is_load = |copy: &&Copy| copy.job.direction == Direction::Load;
        loads += world.copies.iter().filter(is_load).count();
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
        rounds += 1;
        assert!(rounds < 1000, "{:?}", world.tiers.stats());
    }
    assert_eq!(loads, 200, "each page is copied once");
    assert_eq!(ids.map(|id| world.requests[&id].computed), [800; 2]);
    assert_eq!(row(&world, ids[0])[..200], row(&world, ids[1])[..200]);
    assert_eq!(world.tiers.stats().host.fetched, 200);
    world.end();
}

/// T12, T02: somebody publishes more of a prompt while a fetch lands in parts, and the rest is
/// still to be hashed: it comes all the same.
#[test]
fn t12_what_others_publish_does_not_end_a_fetch() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        let tokens = prompt(1, 4 * 400 + 1);
        let mut world = stored(Setup { index, ..Setup::new(900, 500, None) }, &tokens);
        assert_eq!(world.tiers.stats().host.pages, 400);
        let id = world.begin(&PLAIN, &tokens).unwrap().id;
        assert!(world.fetch(id, Deadline::Never).is_begun);
        // One round: a slice is hashed, and the first pages are checked.
        world.tiers.work();
        assert_eq!(world.poll(64), 64);
        let other = world.begin(&PLAIN, &tokens).unwrap().id;
        world.compute(other, 1200);
        while !world.copies.is_empty() {
            world.step_copy(0, true);
        }
        world.settle();
        assert_eq!(world.requests[&id].computed, 1600, "{index:?}");
        assert_eq!(row(&world, id)[..300], row(&world, other)[..300], "{index:?}");
        world.compute(id, tokens.len());
        world.end();
    }
}
