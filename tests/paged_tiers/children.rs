//! Children of sequences, and what tiers have of their tokens.
use super::world::{Request, Setup};
use super::{PLAIN, prompt, stored};
use radixkv::sequence::{Continuation, Room};
use radixkv::tier::paged::Deadline;
use radixkv::token::TokenList;

/// T02: what a child fetches is not inherited.
#[test]
fn t02_what_a_child_fetches_is_not_inherited() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    assert_eq!(world.run(&PLAIN, &tokens[..21]), (0, 20), "the device has a half again");
    let parent = world.begin(&PLAIN, &tokens[..21]).unwrap();
    assert_eq!(parent.cached_positions, 20);
    let how = Continuation {
        parent: parent.id,
        namespace: &PLAIN,
        suffix: TokenList::text(&tokens[21..]),
        all: None,
        room: Room::default(),
        running: true,
    };
    let child = world.shared.continue_from(&how).unwrap();
    assert_eq!((child.cached_positions, child.inherited_positions), (20, 20));
    let (space, computed) = (PLAIN, child.cached_positions);
    world.requests.insert(child.id, Request { space, tokens, computed, is_open: false });
    world.work();
    let found = world.fetch(child.id, Deadline::Never);
    assert_eq!((found.positions, found.is_begun), (20, true));
    world.settle();
    let info = world.shared.read().sequence_info(child.id).unwrap();
    assert_eq!((info.cached_positions, info.inherited_positions), (40, 20));
    // Ranks that agree on less inherit less.
    assert_eq!(world.shared.turn().share_less(child.id, 12).unwrap(), 12);
    let info = world.shared.read().sequence_info(child.id).unwrap();
    assert_eq!((info.cached_positions, info.inherited_positions), (12, 12));
    world.requests.get_mut(&child.id).unwrap().computed = 12;
    world.end();
}
