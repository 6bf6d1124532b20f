//! T11: who looks what there is, and brings it later.
use crate::world::Setup;
use crate::{PLAIN, prompt, stored};
use radixkv::sequence::Room;
use radixkv::tier::paged::Deadline;
use radixkv::token::TokenList;

/// T11: a look counts all that is known, also beyond the pages that a row has so far; a fetch no
/// more than goes into those.
#[test]
fn t11_a_look_counts_what_a_row_has_no_pages_for_yet() {
    let tokens = prompt(1, 41);
    let mut world = stored(Setup::new(20, 64, None), &tokens);
    let room = Room { reserve: 0, first: 12 };
    let id = world.shared.begin(&PLAIN, TokenList::text(&tokens), room).unwrap().id;
    let look = world.tiers.fetch(id, Deadline::Never, true).unwrap();
    assert_eq!((look.positions, look.is_begun), (40, false));
    let found = world.tiers.fetch(id, Deadline::Never, false).unwrap();
    assert_eq!((found.positions, found.is_begun), (12, true));
    world.shared.turn().release(id).unwrap();
    world.end();
}
