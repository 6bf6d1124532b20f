//! Forks of a parent with draft tokens, which somebody may exchange between two children.
use crate::{World, tokens};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::store::SequenceInfo;
use radixkv::token::TokenList;

/// Whose tokens the parent has beyond its prompt.
const DRAFTS: [u32; 2] = [50, 51];

/// Forks two children. They are alike, whatever others do meanwhile.
pub fn fork(world: &World) -> Result<(), Error> {
    world.shared.append(world.published, TokenList::text(&tokens(DRAFTS[0], 2)))?;
    let children = world.shared.fork(world.published, 2, 12)?;
    let alike = |child: &SequenceInfo| (child.positions, child.inherited_positions);
    assert_eq!(alike(&children[0]), alike(&children[1]));
    check_one_draft(world, children.iter().map(|child| child.id));
    Ok(())
}

/// Takes the parent's draft tokens back, and adds as many others.
pub fn other_drafts(world: &World) {
    drop(world.shared.write().truncate(world.published, 7));
    drop(world.shared.append(world.published, TokenList::text(&tokens(DRAFTS[1], 2))));
}

/// When all children have published their tokens, of the drafts that their parent had at some time
/// only one is found.
fn check_one_draft(world: &World, children: impl Iterator<Item = SequenceId>) {
    let mut state = world.shared.write();
    for child in children {
        let positions = state.sequence_info(child).unwrap().positions;
        drop(state.confirm_copies(child));
        state.publish(child, positions).unwrap();
    }
    let is_found = |family: &&u32| {
        let ids = [tokens(2, 7), tokens(**family, 2)].concat();
        let found = state.find(&Namespace::default(), TokenList::text(&ids)).unwrap();
        found.positions() > 7
    };
    assert!(DRAFTS.iter().filter(is_found).count() <= 1);
}
