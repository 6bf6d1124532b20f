//! Rows of a batch that begin with the same pages, and whether it pays to attend to those once.
//!
//! Rows are put in the order of their pages; then rows with a common start are neighbours, and the
//! common starts of neighbours form a tree. Each node of it is either one group, or left to the
//! groups below it, whichever saves more.
use super::batch::Batch;
use super::work::{Costs, Tile, tile_for};
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

/// Tiles that a group may be cut into where a larger shape would take it at once.
pub(super) const SHARED_TILES_MOST: usize = 4;

/// Rows that share pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Rows, in [`Groups::order`].
    pub rows: Range<usize>,
    /// Keys of the shared pages.
    pub keys: usize,
}

/// The groups of a batch. Made once; its memory is reused.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    /// Rows, those of a group side by side.
    pub order: Vec<usize>,
    pub chosen: Vec<Group>,
    /// Pages that a row of `order` shares with the one before it.
    common: Vec<usize>,
    /// Those that have begun and not ended yet, each within the one before it.
    open: Vec<Open>,
}

/// Neighbouring rows with a common start, as far as they were looked at.
#[derive(Debug, Clone)]
struct Open {
    /// The first one, in [`Groups::order`].
    start: usize,
    /// Pages that all of them share.
    pages: usize,
    queries: usize,
    /// What they cost for 64 keys, each by itself.
    flat: f64,
    /// What the groups within it save, and where these begin in [`Groups::chosen`].
    below: f64,
    first: usize,
}

/// Pages of a row that this call does not write, so that all of its queries see them.
fn settled(batch: &Batch, row: usize) -> &[u32] {
    let row = &batch.rows()[row];
    // At least one key is left to the row itself, also of a context that is settled as a whole.
    let settled = row.start.min(row.key_count() - 1);
    &batch.pages_of(row)[..settled / batch.page_size()]
}

impl Groups {
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.chosen.clear();
        self.open.clear();
    }

    /// Finds the groups for which `costs` says that they pay.
    pub(super) fn find(&mut self, batch: &Batch, costs: &Costs<'_>) -> Result<(), OutOfMemory> {
        self.clear();
        let rows = batch.rows().len();
        self.order.try_reserve(rows)?;
        self.order.extend((0..rows).filter(|&row| !settled(batch, row).is_empty()));
        self.order.sort_unstable_by(|&left, &right| {
            settled(batch, left).cmp(settled(batch, right)).then(left.cmp(&right))
        });
        self.common.clear();
        self.common.try_push(0)?;
        self.common.try_extend(self.order.windows(2).map(|pair| {
            let (left, right) = (settled(batch, pair[0]), settled(batch, pair[1]));
            left.iter().zip(right).take_while(|(left, right)| left == right).count()
        }))?;
        let mut saved = 0.0;
        for at in 0..self.order.len() {
            saved += self.add(batch, costs, at)?;
        }
        if saved < costs.worthwhile {
            self.chosen.clear();
        }
        Ok(())
    }

    /// Adds the next row, and chooses among the groups that end with it. Returns what is saved
    /// where the row behind it does not even share the first page. No call for each group: there
    /// may be as many, one within another, as rows.
    fn add(&mut self, batch: &Batch, costs: &Costs<'_>, at: usize) -> Result<f64, OutOfMemory> {
        let pages = self.common.get(at + 1).copied().unwrap_or(0);
        let queries = batch.rows()[self.order[at]].count;
        let (flat, first) = (costs.of(queries, 64), self.chosen.len());
        let mut last = Open { start: at, pages, queries, flat, below: 0.0, first };
        while self.open.last().is_some_and(|open| open.pages >= pages)
            && let Some(mut open) = self.open.pop()
        {
            open.queries += last.queries;
            open.flat += last.flat;
            open.below += last.below;
            last = open;
            if last.pages == pages {
                break; // the row behind it is in this one too
            }
            let keys = last.pages * batch.page_size();
            let saved = costs.saved_by_sharing(last.flat, last.queries, keys);
            if saved > last.below {
                self.chosen.truncate(last.first);
                self.chosen.try_push(Group { rows: last.start..at + 1, keys })?;
                last.below = saved;
            }
        }
        if pages == 0 {
            return Ok(last.below);
        }
        last.pages = pages;
        self.open.try_push(last)?;
        Ok(0.0)
    }
}

impl Costs<'_> {
    /// What it saves when rows that cost `flat` for 64 keys, each by itself, attend to `keys` keys
    /// together; negative when it costs.
    fn saved_by_sharing(&self, flat: f64, queries: usize, keys: usize) -> f64 {
        // An item of its own takes as long to begin and to end as two tiles of keys.
        let together = self.of(queries, keys + 128) + self.of_merging(2 * queries);
        flat * (keys as f64 / 64.0) - together
    }

    /// The shape for a group of so many queries. Each shape is a launch, so where rows of the batch
    /// `take` a smaller one anyway it may cost less that some blocks read the same keys.
    pub(super) fn shape_of_group(
        &self,
        queries: usize,
        keys: usize,
        take: impl Fn(usize) -> bool,
    ) -> usize {
        let best = tile_for(self.tiles, queries * self.group);
        if take(best) {
            return best;
        }
        let most = self.in_shape(&self.tiles[best], queries, keys) + self.worthwhile;
        let serves = |&shape: &usize| {
            let tile = &self.tiles[shape];
            take(shape)
                && queries <= SHARED_TILES_MOST * (tile.rows / self.group)
                && self.in_shape(tile, queries, keys) <= most
        };
        (0..best).rev().find(serves).unwrap_or(best)
    }

    /// Of `queries` queries that attend to `keys` keys.
    fn of(&self, queries: usize, keys: usize) -> f64 {
        let tile = &self.tiles[tile_for(self.tiles, queries * self.group)];
        self.in_shape(tile, queries, keys)
    }

    fn in_shape(&self, tile: &Tile, queries: usize, keys: usize) -> f64 {
        let tiles = queries.div_ceil(tile.queries(self.group)) as f64;
        tiles * (keys as f64 / 64.0) * tile.cost
    }

    /// Of writing and reading this many partial results.
    fn of_merging(&self, partials: usize) -> f64 {
        // A partial is 8 * head_dim bytes for each query head, 64 keys 256 * head_dim for each KV
        // head.
        partials as f64 * self.group as f64 / 32.0
    }
}
