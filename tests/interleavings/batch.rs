//! What comes between two items of a call over many.
use crate::{NEXT, World, YIELDS, tokens};
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::Shared;
use radixkv::token::TokenList;

fn append_to(shared: &Shared, ids: &[SequenceId]) -> Vec<Result<(), Error>> {
    let mut done = Vec::new();
    shared.each(ids.len(), |turn, at| done.push(turn.append(ids[at], TokenList::text(&[7]))));
    done
}

/// The sequence of a later item ends, and its slot is another one's: that item alone is refused.
#[test]
fn j03_the_slot_of_a_later_item_is_another_ones_now() {
    for index in [IndexKind::Radix, IndexKind::BlockHash] {
        for at in 0..4 {
            let world = World::new(index);
            let (fresh, published) = (world.fresh, world.published);
            NEXT.set(Some((
                at,
                Box::new(move |shared| {
                    shared.write().release(fresh).unwrap();
                    let ids = tokens(8, 2);
                    let space = Namespace::default();
                    let begun = shared.begin(&space, TokenList::text(&ids), 0).unwrap();
                    assert_eq!(begun.slot, fresh.slot());
                }),
            )));
            let items = [published, fresh, published, published, fresh, published];
            let before = world.shared.read().sequence_info(published).unwrap().positions;
            let done = append_to(&world.shared, &items);
            let ended = done.iter().filter(|done| **done == Err(Error::StaleSequence(fresh.0)));
            // Between the first two items both of `fresh` are refused, after the second only one.
            let refused = ended.count();
            assert_eq!(refused, if at == 0 { 2 } else { 1 }, "at {at}: {done:?}");
            assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 6 - refused);
            let info = world.shared.read().sequence_info(published).unwrap();
            assert_eq!(info.positions, before + 4);
            world.check("afterwards");
        }
    }
}

/// Others are let in between two items, never before the first or after the last.
#[test]
fn j03_others_are_let_in_between_items() {
    let world = World::new(IndexKind::Radix);
    YIELDS.set(0);
    world.shared.each(5, |turn, at| {
        assert_eq!(YIELDS.get(), at);
        assert!(!turn.is_poisoned());
    });
    assert_eq!(YIELDS.get(), 4);
    world.shared.each(0, |_, _| panic!("there is no item"));
}
