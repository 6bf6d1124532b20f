//! How a GPU divides the attention of a batch: work items for blocks, and what is merged
//! afterwards.
//!
//! An item is a tile of packed query rows (a query and one of the heads that share a KV head)
//! against a range of keys; the kernel runs it for every KV head. Where there are too few tiles for
//! the machine, or some are much longer than others, ranges are cut and the results merged. Rows
//! that begin with the same pages attend to those together.
use super::batch::{Batch, Row};
use super::cascade::Groups;
use super::mask::View;
use super::pieces::{PIECE_FIXED, PIECE_UNIT, Slots, length_of, piece_of};
use crate::memory::{OutOfMemory, TryGrow};
use std::cmp::Reverse;
use std::ops::Range;

/// A shape in which the kernels exist.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tile {
    /// Packed query rows.
    pub rows: usize,
    /// Blocks that a multiprocessor holds at a time.
    pub blocks: usize,
    /// Time for 64 keys, relative to other shapes. An estimate, see `Shape::tile()` of the GPU.
    pub cost: f64,
}

impl Tile {
    /// Queries of a tile: whole ones, unless a single one has more heads than the tile has rows.
    pub(super) fn queries(&self, group: usize) -> usize {
        (self.rows / group).max(1)
    }
}

/// What the division depends on besides the batch.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Shapes by ascending rows, at least one.
    pub tiles: &'a [Tile],
    /// Multiprocessors of the device.
    pub multiprocessors: usize,
    /// KV heads: blocks of an item.
    pub kv_heads: usize,
    /// Query heads of a KV head.
    pub group: usize,
    /// Cut at fixed places and merge always, so that a row's result does not depend on the others.
    pub batch_invariant: bool,
    /// Rows that begin with the same pages may attend to those together; only where queries see
    /// back to the beginning.
    pub cascade: bool,
    /// No query sees farther back; it has no sinks.
    pub view: View,
}

/// What [`Machine`] says about time.
pub(super) struct Costs<'a> {
    pub tiles: &'a [Tile],
    pub group: usize,
    /// Less saved time is not worth a launch: one tile of keys for every block that the machine
    /// holds. An estimate.
    pub worthwhile: f64,
}

/// The smallest shape that takes all rows at once; the largest when none does. Of two as large the
/// later one: the one before it is for steps that the later cannot take.
pub(super) fn tile_for(tiles: &[Tile], rows: usize) -> usize {
    let last = tiles.len() - 1;
    let smallest = tiles.iter().position(|tile| rows <= tile.rows).unwrap_or(last);
    smallest + usize::from(smallest < last && tiles[smallest + 1].rows == tiles[smallest].rows)
}

/// Work of one block for each KV head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its first query, in [`Work::order`].
    pub order_begin: usize,
    /// Its first packed row, counted from the first row of that query.
    pub row_begin: usize,
    /// Packed rows.
    pub row_count: usize,
    /// The row of the batch whose pages hold the keys.
    pub pages_of: usize,
    /// First key.
    pub key_begin: usize,
    /// After the last key.
    pub key_end: usize,
    /// Where the first query's result goes among the partial ones; None: it is whole.
    pub partial_begin: Option<usize>,
}

impl Item {
    /// Its keys, from the multiple of the unit on at which pieces are cut.
    fn spanned(&self) -> usize {
        self.key_end - self.key_begin / PIECE_UNIT * PIECE_UNIT
    }
}

/// The division of a batch. Made once; its memory is reused. [`super::Bounds`] says what it can
/// come to.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// Queries as items name them.
    pub order: Vec<u32>,
    /// Items, shape after shape, the longest first.
    pub items: Vec<Item>,
    /// Items of each shape of [`Machine::tiles`].
    pub of_tile: Vec<Range<usize>>,
    /// Queries whose result is merged.
    pub merged: Vec<u32>,
    /// Where the partial results of each begin in `partials`, and where the last ones end.
    pub merge_indptr: Vec<u32>,
    /// Numbers of partial results.
    pub partials: Vec<u32>,
    /// Partial results of one query each.
    pub partial_count: usize,
    groups: Groups,
    /// Keys that each row attends to in a group.
    shared: Vec<usize>,
    segments: Vec<Segment>,
    drafts: Vec<Draft>,
    /// (query, partial)
    found: Vec<(u32, u32)>,
}

/// Queries against keys, before both are cut.
#[derive(Debug, Clone)]
struct Segment {
    order: Range<usize>,
    pages_of: usize,
    keys: Range<usize>,
    tile: usize,
    /// Others see further keys of the same queries.
    is_part: bool,
}

impl Segment {
    /// Cuts the queries into tiles; a tile ends with the last key that one of its queries sees.
    fn cut(
        &self,
        batch: &Batch,
        machine: &Machine<'_>,
        drafts: &mut Vec<Draft>,
    ) -> Result<(), OutOfMemory> {
        let (group, tile) = (machine.group, &machine.tiles[self.tile]);
        let step = tile.queries(group);
        let row = &batch.rows()[self.pages_of];
        let mut from = self.order.start;
        while from < self.order.end {
            let queries = step.min(self.order.end - from);
            let (mut key_begin, mut key_end) = (self.keys.start, self.keys.end);
            if key_end == row.key_count() {
                let mask = batch.mask_of(row, machine.view);
                let place = |at: usize| row.position(at - row.first_query);
                // The first query of a tile is the one that sees farthest back.
                key_begin = key_begin.max(mask.keys(place(from)).start);
                key_end =
                    (from..from + queries).map(|at| mask.keys(place(at)).end).max().unwrap_or(0);
            }
            for row_begin in (0..queries * group).step_by(tile.rows) {
                let item = Item {
                    order_begin: from,
                    row_begin,
                    row_count: tile.rows.min(queries * group - row_begin),
                    pages_of: self.pages_of,
                    key_begin,
                    key_end,
                    partial_begin: None,
                };
                let Self { tile, is_part, .. } = *self;
                drafts.try_push(Draft { tile, item, queries, is_part })?;
            }
            from += queries;
        }
        Ok(())
    }
}

/// A tile of rows, before its keys are cut.
#[derive(Debug, Clone)]
struct Draft {
    tile: usize,
    item: Item,
    queries: usize,
    is_part: bool,
}

/// Kernels for this many packed rows sum in another order than those for more.
pub(super) const FEW_ROWS_MAX: usize = 16;

impl Work {
    /// Divides the attention of a batch. When that fails there is no division.
    pub fn divide(&mut self, batch: &Batch, machine: &Machine<'_>) -> Result<(), OutOfMemory> {
        self.clear();
        let divided = self.try_divide(batch, machine);
        if divided.is_err() {
            self.clear();
        }
        divided
    }

    fn try_divide(&mut self, batch: &Batch, machine: &Machine<'_>) -> Result<(), OutOfMemory> {
        self.order.try_reserve(batch.query_count())?;
        self.order.extend(0..batch.query_count() as u32);
        let blocks = machine.multiprocessors * machine.tiles[0].blocks;
        let worthwhile = blocks as f64 / machine.kv_heads as f64;
        let costs = Costs { tiles: machine.tiles, group: machine.group, worthwhile };
        if machine.cascade && !machine.batch_invariant {
            self.groups.find(batch, &costs)?;
        }
        self.make_segments(batch, machine, &costs)?;
        self.make_drafts(batch, machine)?;
        self.cut(batch, machine)?;
        self.list_merges()
    }

    fn clear(&mut self) {
        self.order.clear();
        self.items.clear();
        self.of_tile.clear();
        self.merged.clear();
        self.merge_indptr.clear();
        self.partials.clear();
        self.partial_count = 0;
        self.groups.clear();
        self.shared.clear();
        self.segments.clear();
        self.drafts.clear();
        self.found.clear();
    }

    fn make_segments(
        &mut self,
        batch: &Batch,
        machine: &Machine<'_>,
        costs: &Costs<'_>,
    ) -> Result<(), OutOfMemory> {
        let count = batch.rows().len();
        self.shared.try_reserve(count)?;
        self.shared.resize(count, 0);
        self.segments.try_reserve(self.groups.chosen.len() + count)?;
        let least = if machine.batch_invariant { FEW_ROWS_MAX + 1 } else { 0 };
        let shape_of = |row: &Row| tile_for(machine.tiles, (row.count * machine.group).max(least));
        let taken = batch.rows().iter().fold(0u32, |taken, row| taken | 1 << shape_of(row));
        for group in &self.groups.chosen {
            let rows = &self.groups.order[group.rows.clone()];
            let begin = self.order.len();
            for &row in rows {
                self.shared[row] = group.keys;
                let row = &batch.rows()[row];
                let queries = row.first_query..row.first_query + row.count;
                self.order.try_extend(queries.map(|query| query as u32))?;
            }
            let order = begin..self.order.len();
            let tile = costs.shape_of_group(order.len(), group.keys, |tile| taken >> tile & 1 != 0);
            let (pages_of, keys) = (rows[0], 0..group.keys);
            self.segments.push(Segment { order, pages_of, keys, tile, is_part: true });
        }
        for (at, row) in batch.rows().iter().enumerate() {
            self.segments.push(Segment {
                order: row.first_query..row.first_query + row.count,
                pages_of: at,
                keys: self.shared[at]..row.key_count(),
                tile: shape_of(row),
                is_part: self.shared[at] > 0 || machine.batch_invariant,
            });
        }
        Ok(())
    }

    /// Cuts the queries of the segments into tiles, shape after shape.
    fn make_drafts(&mut self, batch: &Batch, machine: &Machine<'_>) -> Result<(), OutOfMemory> {
        for number in 0..machine.tiles.len() {
            for segment in self.segments.iter().filter(|segment| segment.tile == number) {
                segment.cut(batch, machine, &mut self.drafts)?;
            }
        }
        Ok(())
    }

    /// Cuts the keys of tiles, so that the machine is busy and blocks take about the same time.
    fn cut(&mut self, batch: &Batch, machine: &Machine<'_>) -> Result<(), OutOfMemory> {
        self.of_tile.try_reserve(machine.tiles.len())?;
        let mut at = 0;
        for (number, tile) in machine.tiles.iter().enumerate() {
            let end = at + self.drafts[at..].iter().take_while(|d| d.tile == number).count();
            let piece = if machine.batch_invariant {
                PIECE_FIXED
            } else {
                let blocks = machine.multiprocessors * tile.blocks;
                let slots = Slots { blocks, kv_heads: machine.kv_heads };
                piece_of(self.drafts[at..end].iter().map(|draft| draft.item.spanned()), slots)
            };
            let first = self.items.len();
            let mut last_partial = 0;
            for index in at..end {
                let draft = self.drafts[index].clone();
                // The tiles of one query's heads write to the same partial results.
                let again = draft.item.row_begin > 0;
                let again = again.then_some(last_partial);
                last_partial = self.cut_tile(&draft, piece, (batch, machine), again)?;
            }
            self.items[first..].sort_unstable_by_key(|item| {
                let Item { order_begin, row_begin, key_begin, key_end, .. } = *item;
                (Reverse(key_end - key_begin), order_begin, key_begin, row_begin)
            });
            self.of_tile.push(first..self.items.len());
            at = end;
        }
        Ok(())
    }

    /// Cuts the keys of one tile; returns its first partial result.
    fn cut_tile(
        &mut self,
        draft: &Draft,
        piece: usize,
        (batch, machine): (&Batch, &Machine<'_>),
        again: Option<usize>,
    ) -> Result<usize, OutOfMemory> {
        let Item { key_begin, key_end, order_begin, pages_of, .. } = draft.item;
        // Where a row's result must not depend on how it is cut, its queries' pieces begin with
        // those that they see themselves: results are summed in the order of their places.
        let row = &batch.rows()[pages_of];
        let mask = batch.mask_of(row, machine.view);
        let passed = |query: u32, piece_end: usize| {
            machine.batch_invariant
                && piece_end <= mask.keys(row.position(query as usize - row.first_query)).start
        };
        let piece = match machine.batch_invariant {
            true => piece.next_multiple_of(PIECE_UNIT),
            false => length_of(draft.item.spanned(), piece),
        };
        // Pieces end at multiples of the unit, so that no tile of keys is computed twice; and
        // where a row's result must not depend on others, at places that depend on nothing.
        let unit = if machine.batch_invariant { piece } else { PIECE_UNIT };
        let mut next = (key_begin / unit * unit + piece).min(key_end);
        if next == key_end && !draft.is_part {
            self.items.try_push(draft.item)?;
            return Ok(0);
        }
        let base = again.unwrap_or(self.partial_count);
        let (mut from, mut partial) = (key_begin, base);
        loop {
            let item =
                Item { key_begin: from, key_end: next, partial_begin: Some(partial), ..draft.item };
            self.items.try_push(item)?;
            if again.is_none() {
                for query in 0..draft.queries {
                    let number = self.order[order_begin + query];
                    if !passed(number, next) {
                        self.found.try_push((number, (partial + query) as u32))?;
                    }
                }
            }
            partial += draft.queries;
            if next == key_end {
                break;
            }
            from = next;
            next = (next + piece).min(key_end);
        }
        self.partial_count = self.partial_count.max(partial);
        Ok(base)
    }

    fn list_merges(&mut self) -> Result<(), OutOfMemory> {
        self.found.sort_unstable();
        self.merged.try_reserve(self.found.len())?;
        self.merge_indptr.try_reserve(self.found.len() + 1)?;
        self.partials.try_reserve(self.found.len())?;
        self.merge_indptr.push(0);
        for &(query, partial) in &self.found {
            if self.merged.last() != Some(&query) {
                self.merged.push(query);
                self.merge_indptr.push(self.partials.len() as u32);
            }
            self.partials.push(partial);
            *self.merge_indptr.last_mut().expect("it begins with 0") = self.partials.len() as u32;
        }
        Ok(())
    }
}
