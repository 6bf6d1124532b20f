//! Pages for a prompt that come in slices.
use crate::{NEXT, World, tokens};
use radixkv::error::Error;
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::Shared;
use radixkv::token::TokenList;
use std::cell::RefCell;

/// The slot of a prompt goes to another one while pages come for the first; that one keeps its own.
#[test]
fn j08_allocate_for_a_sequence_whose_slot_is_another_ones_now() {
    let world = World::new(IndexKind::Radix);
    let (shared, short) = (world.shared.clone(), world.short);
    NEXT.set(Some((
        3,
        Box::new(move |shared| {
            shared.write().release(short).unwrap();
            let ids = tokens(8, 2);
            let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
            assert_eq!(begun.slot, short.slot());
        }),
    )));
    let before = shared.read().page_table_stats().private;
    let refused = shared.allocate(short, 36).unwrap_err();
    assert_eq!(refused, Error::StaleSequence(short.0));
    assert_eq!(shared.read().row_from(short.slot(), 0).unwrap().len(), 1);
    // A page of the one went, one of the other came.
    assert_eq!(shared.read().page_table_stats().private, before);
    world.check("afterwards");
}

/// The pages that a prompt was admitted with go to somebody else while they come: it keeps what it
/// had, and nothing of what it had taken.
#[test]
fn j08_a_shortage_in_the_middle_of_an_allocation_changes_nothing() {
    let world = World::new(IndexKind::Radix);
    let taken = std::rc::Rc::new(RefCell::new(Vec::new()));
    let noted = taken.clone();
    NEXT.set(Some((
        4,
        Box::new(move |shared: &Shared| {
            let stats = shared.read().page_table_stats();
            let pages = shared.allocate_pages(stats.free + stats.reclaimable).unwrap();
            noted.borrow_mut().extend(pages);
        }),
    )));
    let before = world.shared.read().page_table_stats().private;
    let refused = world.shared.allocate(world.short, 36).unwrap_err();
    let Error::OutOfPages(shortage) = refused else { panic!("{refused}") };
    assert!(shortage.needed > shortage.free + shortage.reclaimable, "{shortage:?}");
    assert_eq!(world.shared.read().row_from(world.short.slot(), 0).unwrap().len(), 1);
    world.check("afterwards");
    world.shared.write().free_pages(&taken.borrow()).unwrap();
    assert_eq!(world.shared.read().page_table_stats().private, before);
    world.shared.allocate(world.short, 36).unwrap();
    assert_eq!(world.shared.read().row_from(world.short.slot(), 0).unwrap().len(), 18);
}
