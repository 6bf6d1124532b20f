//! The largest step that is to fit, and what its division can come to at most: what captured
//! graphs launch and where arrays lie depends on this alone, whatever steps follow.
use super::View;
use super::batch::Batch;
use super::cascade::SHARED_TILES_MOST;
use super::pieces::{PIECE_FIXED, PIECE_GOOD, PIECE_MIN, ROUNDS};
use super::work::{FEW_ROWS_MAX, Machine};
use crate::error::Error;
use crate::error::text;
use crate::memory::OutOfMemory;

/// The largest step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Rows.
    pub rows: usize,
    /// New positions of all rows.
    pub positions: usize,
    /// New positions of one row.
    pub row_positions: usize,
    /// Pages of all rows; one that two rows share counts twice.
    pub pages: usize,
    /// Whether rows may have regions.
    pub regions: bool,
    /// Whether rows may have tree masks.
    pub trees: bool,
    /// Whether rows that begin with the same pages may attend to those together.
    pub cascade: bool,
}

impl Capacity {
    /// Refuses what no step fits in.
    pub fn check(&self) -> Result<(), Error> {
        let named = [
            ("row_count", self.rows),
            ("position_count", self.positions),
            ("page_count", self.pages),
        ];
        for (name, value) in named {
            if !(1..=i32::MAX as usize).contains(&value) {
                return Err(Error::argument(text!("capacity.{name} {value} is not in 1..2^31")));
            }
        }
        if self.row_positions == 0 || self.row_positions > self.positions {
            return Err(Error::argument(text!(
                "capacity.row_position_count {} is above position_count {}",
                self.row_positions,
                self.positions
            )));
        }
        Ok(())
    }

    /// Refuses a step that is larger.
    pub fn check_fits(&self, batch: &Batch) -> Result<(), Error> {
        let longest = batch.rows().iter().map(|row| row.count).max().unwrap_or(0);
        let named = [
            ("row_count", batch.rows().len(), self.rows),
            ("position_count", batch.query_count(), self.positions),
            ("row_position_count", longest, self.row_positions),
            ("page_count", batch.pages().len(), self.pages),
        ];
        for (name, value, most) in named {
            if value > most {
                return Err(Error::argument(text!(
                    "rows: the step's {name} {value} is above the {most} that were reserved"
                )));
            }
        }
        if !self.regions && !batch.regions().is_empty() {
            return Err(Error::argument("rows: regions were not reserved"));
        }
        if !self.trees && !batch.trees().is_empty() {
            return Err(Error::argument("rows: tree_masks were not reserved"));
        }
        Ok(())
    }
}

/// No division of a step within a capacity has more than this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Entries of [`super::Work::order`].
    pub order: usize,
    /// Items of each shape.
    pub items: Vec<usize>,
    /// Queries whose results are merged.
    pub merged: usize,
    /// Partial results.
    pub partials: usize,
}

/// Segments (see `Work`) of a kind that take one shape.
#[derive(Debug, Clone, Copy, Default)]
struct Segments {
    /// Tiles that their queries are cut into.
    tiles: usize,
    queries: usize,
    /// Tiles of the one with the most queries.
    tiles_of_one: usize,
    /// Queries of a tile.
    queries_of_tile: usize,
}

impl Bounds {
    /// For every step within a capacity. The proof is beside the lines.
    pub fn of(
        capacity: &Capacity,
        page_size: usize,
        machine: &Machine<'_>,
    ) -> Result<Self, OutOfMemory> {
        let Capacity { rows, positions, row_positions, pages, .. } = *capacity;
        let cascade = capacity.cascade && machine.cascade && !machine.batch_invariant;
        let keys = pages.saturating_mul(page_size);
        let (mut items, mut own_queries, mut shared_queries, mut cut) = (Vec::new(), 0, 0, 0usize);
        items.try_reserve_exact(machine.tiles.len())?;
        for tile in 0..machine.tiles.len() {
            let own = Segments::of(machine, tile, 1, rows, positions, 1..=row_positions);
            // A group has two rows at least, and no row is in two groups.
            let shared = match cascade {
                true => {
                    let most = SHARED_TILES_MOST;
                    Segments::of(machine, tile, most, rows / 2, positions, 2..=positions)
                }
                false => Segments::default(),
            };
            let more = more_pieces(machine, tile, &own, &shared, keys);
            items.push((own.tiles + shared.tiles).saturating_add(more));
            own_queries += own.queries;
            shared_queries += shared.queries;
            // Each piece more has a partial result for each query of its tile.
            let most = own.queries_of_tile.max(shared.queries_of_tile);
            cut = cut.saturating_add(most.saturating_mul(more));
        }
        let is_cut = cut > 0 || shared_queries > 0 || machine.batch_invariant;
        // ... and the first pieces one for each query of a row, and of a group.
        let partials = own_queries.min(positions) + shared_queries.min(positions);
        Ok(Self {
            order: positions * (1 + usize::from(cascade)),
            items,
            merged: if is_cut { positions } else { 0 },
            partials: if is_cut { partials.saturating_add(cut) } else { 0 },
        })
    }
}

impl Segments {
    /// At most `count` segments of `sizes` queries each, `positions` in all, as far as they take
    /// the shape `tile`: which they may where they are at most `tiles_most` tiles of it.
    fn of(
        machine: &Machine<'_>,
        tile: usize,
        tiles_most: usize,
        count: usize,
        positions: usize,
        sizes: std::ops::RangeInclusive<usize>,
    ) -> Self {
        let group = machine.group;
        let rows = machine.tiles[tile].rows;
        let smaller = machine.tiles[..tile].iter().rev().find(|smaller| smaller.rows < rows);
        let below = smaller.map_or(0, |smaller| smaller.rows);
        let is_last = tile + 1 == machine.tiles.len();
        // One of the same size comes before it.
        if !is_last && machine.tiles[tile + 1].rows == rows {
            return Self::default();
        }
        // A segment takes the first shape that has room for its packed rows, or one before it; or
        // the first with room for FEW_ROWS_MAX + 1 where kernels for few rows are not used.
        let least = if machine.batch_invariant { FEW_ROWS_MAX + 1 } else { 0 };
        if least > rows && !is_last {
            return Self::default();
        }
        let fewest = if least > below { 1 } else { below / group + 1 }.max(*sizes.start());
        let most =
            if is_last { *sizes.end() } else { (*sizes.end()).min(tiles_most * (rows / group)) };
        let count = count.min(positions / fewest);
        if fewest > most || count == 0 {
            return Self::default();
        }
        // n queries are cut into ceil(n / step) <= 1 + (n - 1) / step parts, each of as many tiles
        // as one query needs when it alone has more rows than a tile: summed over the segments.
        let step = machine.tiles[tile].queries(group);
        let tiles_of_part = if group <= rows { 1 } else { group.div_ceil(rows) };
        let queries = positions.min(count.saturating_mul(most));
        let parts_of_one = most.div_ceil(step);
        let parts = count.saturating_mul(parts_of_one).min(count + (queries - count) / step);
        Self {
            tiles: parts * tiles_of_part,
            queries,
            tiles_of_one: parts_of_one * tiles_of_part,
            queries_of_tile: step.min(most),
        }
    }
}

/// Pieces that keys are cut into, beyond one for each tile. A tile that spans e keys is cut into
/// ceil(e / piece) <= 1 + (e - 1) / piece: all of them have at most K / piece more, where K is the
/// sum of what they span.
fn more_pieces(
    machine: &Machine<'_>,
    tile: usize,
    own: &Segments,
    shared: &Segments,
    keys: usize,
) -> usize {
    // A tile spans at most its row's keys, and no row is in two segments of a kind.
    let spanned = keys.saturating_mul(own.tiles_of_one + shared.tiles_of_one);
    if machine.batch_invariant {
        // A tile whose keys begin elsewhere than a piece does may have one more.
        let begun = if machine.view == View::default() { 0 } else { own.tiles };
        return (spanned / PIECE_FIXED).saturating_add(begun);
    }
    // With i = K * kv_heads / blocks, K < (i + 1) * blocks / kv_heads. A piece is at least
    //   i / ROUNDS  from i = ROUNDS * PIECE_GOOD on: K / piece below ROUNDS * (1 + 1 / PIECE_GOOD),
    //   PIECE_GOOD  from i = PIECE_GOOD on: at most ROUNDS,
    //   i           from PIECE_MIN on: at most 1 + 1 / PIECE_MIN,
    //   PIECE_MIN   before: at most 1
    // times blocks / kv_heads.
    let blocks = machine.multiprocessors * machine.tiles[tile].blocks;
    let of_machine = ROUNDS * (PIECE_GOOD + 1) * blocks / (PIECE_GOOD * machine.kv_heads);
    of_machine.min(spanned / PIECE_MIN)
}
