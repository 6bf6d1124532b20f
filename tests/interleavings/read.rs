//! Reads of rows that let changes in between their portions.
use crate::{NEXT, World, tokens};
use radixkv::attention::RowMask;
use radixkv::index::{IndexKind, Namespace};
use radixkv::memory;
use radixkv::paging::{BatchRow, PageTableConfig};
use radixkv::plan::{Plan, PlanRow};
use radixkv::sequence::ComputedRow;
use radixkv::store::Shared;
use radixkv::token::TokenList;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Another row takes the slot meanwhile, with a page less: the position that it lacks is named by
/// its place among all that were asked for.
#[test]
fn m06_a_position_that_goes_meanwhile_is_named_by_its_place() {
    let world = World::new(IndexKind::Radix);
    let (row, page) = (world.row, world.loose[0]);
    let mut positions = [0; 40];
    positions[37] = 3;
    NEXT.set(Some((
        1,
        Box::new(move |shared: &Shared| {
            shared.turn().erase(row).unwrap();
            assert_eq!(shared.write().allocate_slot().unwrap(), row);
            shared.turn().map(row, 0, &[page]).unwrap();
        }),
    )));
    let refused = world.shared.slot_mapping(row, &positions, |_, _| ()).unwrap_err();
    assert!(NEXT.take().is_none(), "others got in");
    assert!(format!("{refused}").starts_with("positions[37] 3 is beyond"), "{refused}");
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

/// A plan of rows of so many pages, all of whose positions are new: how often others get in while
/// it is set, and while it is looked at before it is computed.
fn let_in_by_a_plan(page_size: u32, pages: u32) -> [usize; 2] {
    const ROWS: u32 = 8;
    let config = PageTableConfig {
        page_size,
        page_count: ROWS * pages + 1,
        slot_count: ROWS,
        ..PageTableConfig::default()
    };
    let yields = Arc::new(AtomicUsize::new(0));
    let counted = yields.clone();
    let at_yield = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let shared = Shared::with_slices(config, 1, Some(Box::new(at_yield))).unwrap();
    let shared = memory::Arc::new(shared).unwrap();
    let count = (page_size * pages) as usize;
    let mut rows = Vec::new();
    for _ in 0..ROWS {
        let slot = shared.write().allocate_slot().unwrap();
        shared.reserve_row(slot, count).unwrap();
        rows.push(PlanRow {
            row: ComputedRow::Slot(slot),
            start: 0,
            count,
            mask: RowMask::Causal,
            regions: &[],
            tree_masks: &[],
        });
    }
    let plan = Plan::new(shared.clone()).unwrap();
    let meanwhile = |call: &dyn Fn()| {
        let before = yields.load(Ordering::Relaxed);
        call();
        yields.load(Ordering::Relaxed) - before
    };
    [
        meanwhile(&|| plan.set(&rows).unwrap()),
        meanwhile(&|| assert_eq!(plan.to_compute().unwrap().step().batch().rows().len(), 8)),
    ]
}

/// With few pages of many positions, whose places are found one by one.
#[test]
fn m06_a_plan_lets_others_in_by_its_new_positions() {
    assert!(let_in_by_a_plan(64, 1)[0] > 0);
}

/// And with many pages, each of which is looked at before it is written.
#[test]
fn m06_a_plan_is_looked_at_in_portions() {
    assert!(let_in_by_a_plan(1, 40)[1] > 0);
}
