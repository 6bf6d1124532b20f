//! Clearing, interleaved with everything else.
use crate::{CLEARED, World, tokens};
use radixkv::error::Error;
use radixkv::index::Namespace;
use radixkv::store::Scope;
use radixkv::token::TokenList;

/// K11: of all that was published before, or by whom that began before, nothing is found.
pub fn clear(world: &World) -> Result<(), Error> {
    CLEARED.set(true);
    world.shared.clear(Scope::default())?;
    for family in [1, 2, 3, 20, 21, 22, 23] {
        let ids = tokens(family, 8);
        let found = world.shared.probe(&Namespace::default(), TokenList::text(&ids))?;
        assert_eq!(found, (0, 0), "family {family}");
        let state = world.shared.read();
        let found = state.find(&Namespace::default(), TokenList::text(&ids))?;
        assert_eq!(found.positions(), 0, "family {family}");
    }
    Ok(())
}
