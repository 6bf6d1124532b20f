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
    world.shared.turn().free_pages(0, &taken.borrow()).unwrap();
    assert_eq!(world.shared.read().page_table_stats().private, before);
    world.shared.allocate(world.short, 36).unwrap();
    assert_eq!(world.shared.read().row_from(world.short.slot(), 0).unwrap().len(), 18);
}

/// The pages that a caller asks for go to somebody else while they come: nobody keeps those that
/// had come.
#[test]
fn m06_a_shortage_in_the_middle_of_an_allocation_of_pages_loses_none() {
    for at in 0.. {
        let world = World::new(IndexKind::Radix);
        let taken = std::rc::Rc::new(RefCell::new(Vec::new()));
        let noted = taken.clone();
        let step = move |shared: &Shared| {
            let stats = shared.read().page_table_stats();
            let pages = shared.allocate_pages(stats.free + stats.reclaimable);
            noted.borrow_mut().extend(pages.unwrap_or_default());
        };
        NEXT.set(Some((at, Box::new(step))));
        let before = world.shared.read().page_table_stats().private;
        let pages = world.shared.allocate_pages(20).unwrap_or_default();
        let came = NEXT.take().is_none();
        world.check("afterwards");
        let owned = before + pages.len() + taken.borrow().len();
        assert_eq!(world.shared.read().page_table_stats().private, owned, "yield {at}");
        if !came {
            assert!(at > 20, "others got in {at} times");
            break;
        }
    }
}

/// A list of pages that are to be freed, of which one is not the caller's, or given twice: none is
/// freed, and all are the caller's again. Meanwhile nobody else can do anything with them.
#[test]
fn m06_pages_that_are_freed_are_in_nobodys_hands() {
    let world = World::new(IndexKind::Radix);
    let pages = world.shared.allocate_pages(6).unwrap();
    let list = [&pages[..], &pages[2..3]].concat();
    for wrong in [false, true] {
        for at in 0.. {
            let (withdrawn, own) = (pages[..(at + 1).min(6)].to_vec(), list[..6].to_vec());
            NEXT.set(Some((
                at,
                Box::new(move |shared: &Shared| {
                    // The first ones are on their way; in the end some are free.
                    let free = shared.turn().free_pages(0, &withdrawn[..1]);
                    assert!(matches!(free, Err(Error::Argument(_))), "{free:?}");
                    let slot = shared.write().allocate_slot().unwrap();
                    let mapped = shared.turn().map(slot, 0, &own[..1]);
                    assert!(matches!(mapped, Err(Error::Argument(_))), "{mapped:?}");
                    shared.turn().erase(slot).unwrap();
                }),
            )));
            let before = world.shared.read().page_table_stats().private;
            let freed = world.shared.turn().free_pages(0, if wrong { &list } else { &pages });
            let came = NEXT.take().is_none();
            world.check("afterwards");
            let private = world.shared.read().page_table_stats().private;
            if wrong {
                let Err(Error::Argument(message)) = freed else { panic!("{freed:?}") };
                assert!(format!("{message:?}").contains("pages[6]"), "{message:?}");
                assert_eq!(private, before);
            } else {
                freed.unwrap();
                assert_eq!(private, before - 6);
                // The one put back last is taken first.
                assert_eq!(world.shared.allocate_pages(6).unwrap(), pages);
            }
            if !came {
                assert!(at > 6, "others got in {at} times");
                break;
            }
        }
    }
}

/// A list of pages for a row, of which the last is given twice: none is mapped, and all are the
/// caller's still, whoever gets in meanwhile.
#[test]
fn m06_a_list_that_is_mapped_in_slices_is_mapped_whole_or_not_at_all() {
    let world = World::new(IndexKind::Radix);
    let pages = world.shared.allocate_pages(5).unwrap();
    let list = [&pages[..], &pages[1..2]].concat();
    for at in 0.. {
        NEXT.set(Some((at, Box::new(|shared: &Shared| drop(shared.allocate_pages(1).unwrap())))));
        let before = world.shared.read().row_from(world.row, 0).unwrap().to_vec();
        let wrong = world.shared.turn().map(world.row, before.len(), &list).unwrap_err();
        let came = NEXT.take().is_none();
        assert!(format!("{wrong:?}").contains("pages[5]"), "{wrong:?}");
        assert_eq!(world.shared.read().row_from(world.row, 0).unwrap(), before);
        world.check("afterwards");
        if !came {
            assert!(at > 5, "others got in {at} times");
            break;
        }
    }
    // They are the caller's: they can be freed.
    world.shared.turn().free_pages(0, &pages).unwrap();
}

/// A row that is erased while pages are mapped into it takes them all along, as it would after.
#[test]
fn m06_a_row_erased_while_it_is_mapped_takes_all_pages_along() {
    for at in 0..3 {
        let world = World::new(IndexKind::Radix);
        let (row, free) = (world.row, world.shared.read().page_table_stats().free);
        let before = world.shared.read().row_from(row, 0).unwrap().len();
        let pages = world.shared.allocate_pages(4).unwrap();
        NEXT.set(Some((at, Box::new(move |shared: &Shared| shared.turn().erase(row).unwrap()))));
        world.shared.turn().map(row, before, &pages).unwrap();
        assert!(NEXT.take().is_none(), "others got in after page {at}");
        assert_eq!(world.shared.read().page_table_stats().free, free + before);
        assert!(matches!(world.shared.turn().erase(row), Err(Error::Argument(_))));
        world.check("afterwards");
    }
}
