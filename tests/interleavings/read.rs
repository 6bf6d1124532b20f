//! Reads of rows that let changes in between their portions.
use crate::{NEXT, World, tokens};
use radixkv::index::{IndexKind, Namespace};
use radixkv::paging::BatchRow;
use radixkv::store::Shared;
use radixkv::token::TokenList;
use std::cell::Cell;
use std::rc::Rc;

const POSITIONS: u32 = 20;

/// The places of all positions, each asked for many times.
fn mapping(shared: &Shared, slot: u32) -> Vec<i64> {
    let positions: Vec<u64> = (0..3).flat_map(|_| 0..u64::from(POSITIONS)).collect();
    let mut mapping = vec![0; positions.len()];
    shared.slot_mapping(slot, &positions, |at, value| mapping[at] = value).unwrap();
    mapping
}

/// Others publish the same pages meanwhile, so that the row maps those: the answer is that of
/// before or of after, never of both.
#[test]
fn m06_a_slot_mapping_is_of_one_moment() {
    for at in 0.. {
        let world = World::new(IndexKind::Radix);
        let begin = || {
            let ids = tokens(6, POSITIONS);
            world.shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap()
        };
        let (own, other) = (begin(), begin());
        let before = mapping(&world.shared, own.slot);
        let changed = Rc::new(Cell::new(false));
        let noted = changed.clone();
        NEXT.set(Some((
            at,
            Box::new(move |shared: &Shared| {
                for id in [other.id, own.id] {
                    shared.write().publish(id, POSITIONS as usize).unwrap();
                }
                noted.set(true);
            }),
        )));
        let read = mapping(&world.shared, own.slot);
        let came = NEXT.take().is_none();
        let after = mapping(&world.shared, own.slot);
        assert_eq!(before != after, changed.get(), "the row was remapped");
        assert!(read == before || read == after, "at {at}: {read:?}");
        if !came {
            assert!(at > 2, "others got in {at} times");
            break;
        }
    }
}

/// A row of a batch ends while the rows before it are read: the call says so.
#[test]
fn m06_a_batch_whose_row_ends_meanwhile_is_refused() {
    let world = World::new(IndexKind::Radix);
    let ids = tokens(6, 36);
    let long = world.shared.begin(&Namespace::default(), TokenList::text(&ids), 0).unwrap();
    let row = world.row;
    let last = BatchRow { slot: row, positions: 4 };
    let rows = [BatchRow { slot: long.slot, positions: 36 }, last];
    let whole = world.shared.batch(&rows).unwrap();
    let state = world.shared.read();
    let pages = [state.row_from(long.slot, 0).unwrap(), &state.row_from(row, 0).unwrap()[..2]];
    assert_eq!(whole.indices(), pages.concat());
    drop(state);
    NEXT.set(Some((0, Box::new(move |shared: &Shared| shared.turn().erase(row).unwrap()))));
    let refused = world.shared.batch(&rows).unwrap_err();
    assert!(NEXT.take().is_none(), "others got in");
    assert!(format!("{refused}").contains(&format!("slot {row} is not in use")), "{refused}");
}
