//! Rows that begin alike, whose keys are read once for all of them.
use super::*;

/// Decodes at a position, whose rows begin with the same pages of 16 and have others of their own.
fn sharing(rows: usize, stem: usize, more: usize, start: usize) -> Vec<(usize, usize, Vec<u32>)> {
    let row = |row| (start, 1, [own(99, stem), own(row, more)].concat());
    (0..rows).map(row).collect()
}

/// C1: 64 decodes behind 8192 shared keys.
#[test]
fn a_long_shared_start_is_attended_to_once() {
    let rows = sharing(64, 512, 17, 8192 + 256);
    let work = divide(&batch(16, &rows), &machine(8, 4));
    let keys = |item: &radixkv::attention::Item| item.key_end - item.key_begin;
    let read: usize = work.items.iter().map(keys).sum();
    // 256 packed rows are two tiles: the shared keys are read twice instead of 64 times.
    assert!(read <= 2 * 8192 + 64 * 257, "{read} keys");
}

/// Eight decodes behind 2048 shared keys: these are read twice, for another shape is another
/// launch. Beside an append that takes that shape anyway they are read once.
#[test]
fn a_few_rows_that_share_take_one_launch() {
    let mut rows = sharing(8, 128, 3, 2048 + 32);
    let machine = machine(8, 4);
    let shared = |work: &Work| {
        let is_shared = |index: &usize| work.items[*index].order_begin >= queries_of(work);
        let tiles = work.of_tile.iter().map(|tile| tile.clone().filter(is_shared).count() > 0);
        tiles.collect::<Vec<_>>()
    };
    assert_eq!(shared(&divide(&batch(16, &rows), &machine)), [true, false, false]);
    rows.push((100, 12, own(8, 7)));
    assert_eq!(shared(&divide(&batch(16, &rows), &machine)), [false, true, false]);
}

/// Queries of a batch: groups name theirs after these.
fn queries_of(work: &Work) -> usize {
    work.order.iter().max().map_or(0, |&last| last as usize + 1)
}

#[test]
fn a_short_shared_start_is_not_worth_it() {
    let work = divide(&batch(16, &sharing(2, 2, 8, 150)), &machine(8, 4));
    assert_eq!((work.items.len(), work.partial_count), (2, 0));
}

/// What the largest shape costs says from where on sharing pays, and which shape shared keys take.
/// The shapes whose times are known are divided alike whatever it is: between what was measured of
/// attn_sm90 on an H100, 0.6, and what attn_mma is estimated at.
#[test]
fn what_the_largest_shape_costs_matters_to_no_shape_that_was_measured() {
    let decodes = |rows: usize, keys: usize| sharing(rows, 0, keys.div_ceil(16), keys - 1);
    let shapes = [
        ("C1", 4, sharing(64, 512, 17, 8192 + 255)),
        ("D1", 4, decodes(1, 32768)),
        ("D2", 4, decodes(64, 4096)),
        ("D3", 8, decodes(64, 8192)),
    ];
    for (name, group, rows) in &shapes {
        let divided = |cost: f64| {
            let mut tiles = TILES;
            tiles[2].cost = cost;
            divide(&batch(16, rows), &Machine { tiles: &tiles, ..machine(8, *group) }).items
        };
        let of_attn_sm90 = divided(1.4);
        for cost in [0.6, 1.0, 2.5] {
            assert_eq!(divided(cost), of_attn_sm90, "{name} at {cost}");
        }
        assert_ne!(*name == "C1", divided(1000.0) == of_attn_sm90, "{name}");
    }
}

/// Two families under one system prompt: each shares more than all do.
#[test]
fn the_groups_that_save_most_are_chosen() {
    let family = |number: usize| {
        let mut pages = own(99, 4);
        pages.extend(own(50 + number, 400));
        pages
    };
    let rows: Vec<_> = (0..16)
        .map(|row| {
            let mut pages = family(row % 2);
            pages.extend(own(row, 2));
            (404 * 16 + 5, 1, pages)
        })
        .collect();
    let work = divide(&batch(16, &rows), &machine(8, 4));
    let shared = work.items.iter().filter(|item| item.order_begin >= queries_of(&work));
    let ends: BTreeSet<usize> = shared.map(|item| item.key_end).collect();
    assert_eq!(ends.last(), Some(&(404 * 16)));
}

/// Rows of which each begins with the whole of the one before it: as many groups within groups as
/// rows, on a thread with little stack.
#[test]
fn beginnings_of_beginnings_take_no_stack() {
    const ROWS: usize = 4000;
    let stem = own(99, ROWS);
    let mut batch = Batch::new(16).unwrap();
    for row in 1..=ROWS {
        let pages = [&stem[..row], &own(row, 1)].concat();
        batch.push_row(row * 16, 1, &pages, &[]).unwrap();
    }
    let divide = move || {
        let mut work = Work::default();
        work.divide(&batch, &machine(8, 4)).unwrap();
        work.order.len()
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(divide).unwrap();
    // Some are in a group.
    assert!(thread.join().unwrap() > ROWS);
}
