//! How a batch is divided into work for a GPU: every query meets every key that it sees exactly
//! once, whatever is cut, shared and merged.
mod batch_invariant;
mod shared_starts;

use fastrand::Rng;
use radixkv::attention::{Batch, Bounds, Capacity, Machine, Region, Tile, View, Work};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const fn tile(rows: usize, blocks: usize, cost: f64) -> Tile {
    Tile { rows, blocks, cost }
}
const TILES: [Tile; 3] = [tile(16, 3, 1.0), tile(64, 2, 1.6), tile(128, 1, 2.5)];

/// Two kernels have tiles of 64 rows: the later one is taken.
const TILES_OF_TWO: [Tile; 3] = [tile(16, 3, 1.0), tile(64, 1, 1.6), tile(64, 1, 1.0)];

fn tiles(random: &mut Rng) -> &'static [Tile] {
    if random.u32(..4) == 0 { &TILES_OF_TWO } else { &TILES }
}

fn machine(kv_heads: usize, group: usize) -> Machine<'static> {
    let (multiprocessors, batch_invariant, cascade) = (132, false, true);
    let (tiles, view) = (&TILES, View::default());
    Machine { tiles, multiprocessors, kv_heads, group, batch_invariant, cascade, view }
}

/// Rows (start, count, pages) at a page size.
fn batch(page_size: usize, rows: &[(usize, usize, Vec<u32>)]) -> Batch {
    let mut batch = Batch::new(page_size).unwrap();
    for (start, count, pages) in rows {
        batch.push_row(*start, *count, pages, &[]).unwrap();
    }
    batch
}

/// Pages of its own for a row.
fn own(row: usize, count: usize) -> Vec<u32> {
    (0..count).map(|page| (row * 100_000 + page + 1) as u32).collect()
}

fn divide(batch: &Batch, machine: &Machine<'_>) -> Work {
    let mut work = Work::default();
    work.divide(batch, machine).unwrap();
    check(batch, machine, &work);
    work
}

/// Everything that must hold.
fn check(batch: &Batch, machine: &Machine<'_>, work: &Work) {
    let row_of = |query: usize| {
        batch.rows().iter().rposition(|row| row.first_query <= query).expect("a row")
    };
    // [(query, head)]: ranges of keys and where the results go
    /// Start, end and partial of each range of keys.
    type Ranges = Vec<(usize, usize, Option<usize>)>;
    let mut seen: BTreeMap<(usize, usize), Ranges> = BTreeMap::new();
    for (tile, items) in machine.tiles.iter().zip(&work.of_tile) {
        for item in &work.items[items.clone()] {
            assert!((1..=tile.rows).contains(&item.row_count) && item.key_begin < item.key_end);
            // Nothing before what the first of its queries sees: there may be holes.
            let first = work.order[item.order_begin] as usize;
            let row = &batch.rows()[row_of(first)];
            let position = row.start + first - row.first_query;
            assert!(item.key_begin >= batch.mask_of(row, machine.view).keys(position).start);
            for row in item.row_begin..item.row_begin + item.row_count {
                let (local, head) = (row / machine.group, row % machine.group);
                let query = work.order[item.order_begin + local] as usize;
                // The pages hold this query's own keys.
                let (mine, theirs) = (row_of(query), item.pages_of);
                let pages = item.key_end.div_ceil(batch.page_size());
                let first = item.key_begin / batch.page_size();
                assert_eq!(
                    batch.pages_of(&batch.rows()[mine])[first..pages],
                    batch.pages_of(&batch.rows()[theirs])[first..pages]
                );
                let partial = item.partial_begin.map(|partial| partial + local);
                seen.entry((query, head)).or_default().push((
                    item.key_begin,
                    item.key_end,
                    partial,
                ));
            }
        }
    }
    assert_eq!(work.of_tile.last().map(|range| range.end), Some(work.items.len()));
    assert_eq!(work.merge_indptr.len(), work.merged.len() + 1);
    let partials_of = |query: usize| -> Option<BTreeSet<usize>> {
        let at = work.merged.iter().position(|&merged| merged as usize == query)?;
        let range = work.merge_indptr[at] as usize..work.merge_indptr[at + 1] as usize;
        Some(work.partials[range].iter().map(|&partial| partial as usize).collect())
    };
    let mut owners = BTreeMap::new();
    for query in 0..batch.query_count() {
        let row = &batch.rows()[row_of(query)];
        let position = row.start + query - row.first_query;
        let keys = batch.mask_of(row, machine.view).keys(position);
        for head in 0..machine.group {
            let mut ranges = seen.remove(&(query, head)).expect("every query has its keys");
            ranges.sort_unstable();
            assert!(ranges[0].0 <= keys.start);
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
            assert!(ranges.last().unwrap().1 >= keys.end);
            match partials_of(query) {
                None => assert!(ranges.len() == 1 && ranges[0].2.is_none()),
                Some(merged) => {
                    let written = ranges.iter().map(|range| range.2.expect("it is merged"));
                    let written: BTreeSet<usize> = written.collect();
                    assert_eq!(written.len(), ranges.len());
                    // Those that only queries before it see may be left out when asked for.
                    let least = if machine.batch_invariant { keys.start } else { 0 };
                    let met = ranges.iter().filter(|range| range.1 > least);
                    assert_eq!(met.filter_map(|range| range.2).collect::<BTreeSet<_>>(), merged);
                    assert!(written.iter().all(|&partial| partial < work.partial_count));
                    for partial in written {
                        assert_eq!(*owners.entry(partial).or_insert(query), query);
                    }
                }
            }
        }
    }
    assert!(seen.is_empty());
}

/// Sometimes the window of a group, whose rows are not attended to together.
fn narrow(machine: &mut Machine<'_>, random: &mut Rng) {
    if random.u32(..3) == 0 {
        machine.view.window = Some([1, 20, 64, 500, 2000][random.usize(..5)]);
        machine.cascade = false;
    }
}

/// G14: at position 100,000 a window of 1024 is all that is read, cut for the whole machine.
#[test]
fn g14_only_the_window_is_divided() {
    let batch = batch(16, &[(100_000, 1, own(0, 6251)), (50, 1, own(1, 4))]);
    let mut machine = Machine { cascade: false, ..machine(8, 4) };
    machine.view.window = Some(1024);
    let work = divide(&batch, &machine);
    let keys = |work: &Work| -> Vec<(usize, usize)> {
        let mut keys: Vec<_> =
            work.items.iter().map(|item| (item.key_begin, item.key_end)).collect();
        keys.sort_unstable();
        keys
    };
    let divided = keys(&work);
    assert_eq!(divided[..2], [(0, 51), (98_977, 99_200)], "{divided:?}");
    assert_eq!(divided.last().unwrap().1, 100_001);
    let read: usize = divided[1..].iter().map(|(begin, end)| end - begin).sum();
    assert_eq!((read, divided.len()), (1024, 6));
    // A row that is no longer than its window; its keys begin where pieces do, which saves one.
    let short = divide(&self::batch(16, &[(1023, 1, own(0, 64)), (50, 1, own(1, 4))]), &machine);
    assert_eq!(short.items.len(), 5);
    machine.view.window = None;
    let whole: usize = divide(&batch, &machine).items.iter().map(|i| i.key_end - i.key_begin).sum();
    assert_eq!(whole, 100_001 + 51);
}

#[test]
fn any_batch_is_covered_exactly_once() {
    let mut random = Rng::with_seed(11);
    let mut work = Work::default();
    for round in 0..600 {
        let page_size = [1, 4, 16, 100][random.usize(..4)];
        let group = [1, 3, 4, 8, 40, 160][random.usize(..6)];
        let mut machine = machine([1, 2, 8][random.usize(..3)], group);
        machine.multiprocessors = [1, 8, 132][random.usize(..3)];
        machine.tiles = tiles(&mut random);
        machine.batch_invariant = random.u32(..4) == 0;
        let mut batch = Batch::new(page_size).unwrap();
        let stem: Vec<u32> = own(99, 3000);
        for row in 0..random.usize(1..10) {
            let (start, count) = (random.usize(..1200), [1, 1, 5, 300][random.usize(..4)]);
            let pages = (start + count).div_ceil(page_size);
            // Some rows begin like others, as far as these are cached.
            let shared = random.usize(..=start / page_size) * random.usize(..2);
            let mut ids = stem[..shared].to_vec();
            ids.extend(own(row, pages - shared));
            let begin = start + random.usize(..count);
            let region = Region { start: begin, end: begin + random.usize(1..50) };
            let regions = if random.bool() { &[region][..] } else { &[] };
            batch.push_row(start, count, &ids, regions).unwrap();
        }
        machine.cascade = random.u32(..8) > 0;
        narrow(&mut machine, &mut random);
        work.divide(&batch, &machine).unwrap();
        check(&batch, &machine, &work);
        check_bounds(&batch, &machine, &work);
        assert!(round > 0 || !work.items.is_empty());
        assert!(machine.tiles[2].rows > 64 || work.of_tile[1].is_empty());
    }
}

/// The least capacity that a batch fits in.
fn capacity_of(batch: &Batch, machine: &Machine<'_>) -> Capacity {
    Capacity {
        rows: batch.rows().len(),
        positions: batch.query_count(),
        row_positions: batch.rows().iter().map(|row| row.count).max().unwrap(),
        pages: batch.pages().len(),
        regions: !batch.regions().is_empty(),
        trees: false,
        cascade: machine.cascade,
    }
}

/// A division is within the bounds of the least capacity, so within those of every larger one.
fn check_bounds(batch: &Batch, machine: &Machine<'_>, work: &Work) {
    let capacity = capacity_of(batch, machine);
    capacity.check().unwrap();
    capacity.check_fits(batch).unwrap();
    let bounds = Bounds::of(&capacity, batch.page_size(), machine).unwrap();
    let items: Vec<usize> = work.of_tile.iter().map(|items| items.len()).collect();
    let within = items.iter().zip(&bounds.items).all(|(items, most)| items <= most)
        && work.order.len() <= bounds.order
        && work.merged.len() <= bounds.merged
        && work.partials.len() <= work.partial_count
        && work.partial_count <= bounds.partials;
    assert!(within, "{items:?}, {} partials: {bounds:?} {capacity:?}", work.partial_count);
}

/// Many short batches of few sizes, where bounds are nearly met.
#[test]
fn no_division_exceeds_the_bounds_of_its_capacity() {
    let mut random = Rng::with_seed(23);
    let mut work = Work::default();
    for _ in 0..6000 {
        let page_size = [1, 16, 48, 256][random.usize(..4)];
        let mut machine =
            machine([1, 2, 8][random.usize(..3)], [1, 4, 5, 20, 200][random.usize(..5)]);
        machine.multiprocessors = [1, 3, 20][random.usize(..3)];
        machine.batch_invariant = random.u32(..4) == 0;
        let count = random.usize(1..=3);
        machine.tiles = &tiles(&mut random)[..count];
        let mut batch = Batch::new(page_size).unwrap();
        let (longest, most) = ([40, 700, 9000][random.usize(..3)], [1, 4, 30][random.usize(..3)]);
        let stem = own(99, 9100);
        for row in 0..random.usize(1..12) {
            let (start, count) = (random.usize(..longest), random.usize(1..=most));
            let pages = (start + count).div_ceil(page_size);
            let shared = start / page_size * random.usize(..2);
            let mut ids = stem[..shared].to_vec();
            ids.extend(own(row, pages - shared));
            batch.push_row(start, count, &ids, &[]).unwrap();
        }
        narrow(&mut machine, &mut random);
        work.divide(&batch, &machine).unwrap();
        check_bounds(&batch, &machine, &work);
    }
}

/// What a larger capacity bounds is no less.
#[test]
fn bounds_grow_with_the_capacity() {
    let mut random = Rng::with_seed(29);
    for _ in 0..6000 {
        let mut machine = machine([1, 8][random.usize(..2)], [1, 4, 20, 200][random.usize(..4)]);
        machine.tiles = tiles(&mut random);
        machine.batch_invariant = random.u32(..4) == 0;
        let size = |random: &mut Rng| {
            let most = 1 << random.u32(1..12);
            random.usize(1..=most)
        };
        let positions = size(&mut random);
        let less = Capacity {
            rows: size(&mut random),
            positions,
            row_positions: 1 + random.usize(..positions),
            pages: size(&mut random),
            regions: false,
            trees: false,
            cascade: random.bool(),
        };
        let more = Capacity {
            rows: less.rows + random.usize(..9),
            positions: less.positions + random.usize(..9),
            row_positions: less.row_positions + random.usize(..2),
            pages: less.pages + random.usize(..9),
            cascade: less.cascade || random.bool(),
            ..less
        };
        let [small, large] =
            [less, more].map(|capacity| Bounds::of(&capacity, 16, &machine).unwrap());
        let grows = small.items.iter().zip(&large.items).all(|(small, large)| small <= large)
            && small.order <= large.order
            && small.merged <= large.merged
            && small.partials <= large.partials;
        assert!(grows, "{less:?} {small:?}, {more:?} {large:?}");
    }
}

/// A decode graph of 256 rows launches little more than the rows need.
#[test]
fn bounds_of_decoding_are_not_absurd() {
    let decode = Capacity {
        rows: 256,
        positions: 256,
        row_positions: 1,
        pages: 256 * 2048,
        regions: false,
        trees: false,
        cascade: false,
    };
    let bounds = Bounds::of(&decode, 16, &machine(8, 4)).unwrap();
    // One item a row, and four rounds of blocks of the machine.
    assert_eq!(bounds.items, [256 + 198, 0, 0]);
    assert_eq!((bounds.order, bounds.merged, bounds.partials), (256, 256, 256 + 198));
    // docs/cuda.md: 7 MB and 91 MB of partial results.
    let bytes = |bounds: &Bounds| bounds.partials * 32 * 128 * size_of::<f32>();
    assert_eq!(bytes(&bounds) / 1_000_000, 7);
    let shared = Capacity { cascade: true, ..decode };
    let bounds = Bounds::of(&shared, 16, &machine(8, 4)).unwrap();
    assert_eq!(bytes(&bounds).div_ceil(1_000_000), 91);
}

#[test]
fn a_step_that_does_not_fit_names_what_is_too_large() {
    let fits = batch(16, &[(40, 2, own(0, 3)), (0, 1, own(1, 1))]);
    let capacity = capacity_of(&fits, &machine(2, 2));
    capacity.check_fits(&fits).unwrap();
    let refused = |change: &dyn Fn(&mut Capacity), word: &str| {
        let mut less = capacity;
        change(&mut less);
        let error = less.check_fits(&fits).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(&|less| less.rows -= 1, "row_count 2 is above the 1");
    refused(&|less| less.positions -= 1, "position_count 3 is above the 2");
    refused(&|less| less.row_positions -= 1, "row_position_count 2 is above the 1");
    refused(&|less| less.pages -= 1, "page_count 4 is above the 3");
    let mut regions = Batch::new(16).unwrap();
    regions.push_row(0, 2, &own(0, 1), &[Region { start: 0, end: 2 }]).unwrap();
    let error = capacity_of(&fits, &machine(2, 2)).check_fits(&regions).unwrap_err();
    assert!(error.to_string().contains("regions"), "{error}");
}

#[test]
fn a_single_long_row_is_cut_for_the_whole_machine() {
    // D1: one decode over 32768 keys, 8 KV heads
    let pages = own(0, 2049);
    let work = divide(&batch(16, &[(32767, 1, pages)]), &machine(8, 4));
    let blocks = work.items.len() * 8;
    assert!((132 * 2..=132 * 4).contains(&blocks), "{blocks} blocks");
}

/// Keys that the machine takes, one after another: each block goes where one ended first, in the
/// order of the grid; relative to work that is divided evenly.
fn makespan(work: &Work, machine: &Machine<'_>) -> f64 {
    let mut time = 0;
    let mut even = 0.0;
    for (tile, items) in machine.tiles.iter().zip(&work.of_tile) {
        let slots = machine.multiprocessors * tile.blocks;
        let mut free = BinaryHeap::from(vec![Reverse(0); slots]);
        let (mut end, mut sum) = (0, 0);
        for _ in 0..machine.kv_heads {
            for item in &work.items[items.clone()] {
                let keys = item.key_end - item.key_begin;
                let Reverse(from) = free.pop().unwrap();
                free.push(Reverse(from + keys));
                (end, sum) = (end.max(from + keys), sum + keys);
            }
        }
        time += end;
        even += sum as f64 / slots as f64;
    }
    time as f64 / even
}

/// Decoding and appends of the target shapes, where there are too few rows for the machine, or few
/// more than it holds: the last round of blocks is nearly full.
#[test]
fn rounds_of_blocks_are_full() {
    let shapes = [
        ("A1", 1, 512, 32768_usize, 4),
        ("A3", 1, 128, 32768, 4),
        ("A5", 16, 64, 8192, 4),
        ("A6", 64, 16, 4096, 4),
        ("D1", 1, 1, 32768, 4),
        ("D2", 64, 1, 4096, 4),
        ("D3", 64, 1, 8192, 8),
        ("some rows", 37, 1, 20000, 4),
    ];
    for (name, rows, queries, keys, group) in shapes {
        let rows: Vec<_> =
            (0..rows).map(|row| (keys - queries, queries, own(row, keys.div_ceil(16)))).collect();
        let machine = machine(8, group);
        let work = divide(&batch(16, &rows), &machine);
        let longer = makespan(&work, &machine);
        println!("{name}: {} items, {longer:.2}", work.items.len());
        assert!(longer < 1.1, "{name}: {longer:.2} of the time of an even division");
    }
}

#[test]
fn a_full_machine_is_left_alone() {
    // P1: prefill of 8192
    let work = divide(&batch(16, &[(0, 8192, own(0, 512))]), &machine(8, 4));
    assert_eq!((work.items.len(), work.partial_count), (8192 * 4 / 128, 0));
    // The longest come first.
    assert!(work.items.windows(2).all(|pair| pair[0].key_end >= pair[1].key_end));
}
