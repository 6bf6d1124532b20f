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
        // Rows that don't even share their first page part the batch.
        let (mut start, mut saved) = (0, 0.0);
        for end in 1..=self.order.len() {
            if self.common.get(end).is_none_or(|&common| common == 0) {
                saved += self.choose(batch, costs, start..end)?;
                start = end;
            }
        }
        if saved < costs.worthwhile {
            self.chosen.clear();
        }
        Ok(())
    }

    /// Chooses among the groups of neighbouring rows; returns what that saves.
    fn choose(
        &mut self,
        batch: &Batch,
        costs: &Costs<'_>,
        rows: Range<usize>,
    ) -> Result<f64, OutOfMemory> {
        if rows.len() < 2 {
            return Ok(0.0);
        }
        let inside = rows.start + 1..rows.end;
        let pages = inside.clone().map(|at| self.common[at]).min().unwrap_or(0);
        let keys = pages * batch.page_size();
        let counts = self.order[rows.clone()].iter().map(|&row| batch.rows()[row].count);
        let saved = costs.saved_by_sharing(counts, keys);
        let before = self.chosen.len();
        let mut below = 0.0;
        let mut start = rows.start;
        for end in inside.chain([rows.end]) {
            if end == rows.end || self.common[end] == pages {
                below += self.choose(batch, costs, start..end)?;
                start = end;
            }
        }
        if saved <= below {
            return Ok(below);
        }
        self.chosen.truncate(before);
        self.chosen.try_push(Group { rows, keys })?;
        Ok(saved)
    }
}

impl Costs<'_> {
    /// What it saves when rows with these numbers of queries attend to `keys` keys together instead
    /// of each by itself; negative when it costs.
    fn saved_by_sharing(&self, counts: impl Iterator<Item = usize>, keys: usize) -> f64 {
        let (mut flat, mut queries) = (0.0, 0);
        for count in counts {
            flat += self.of(count, keys);
            queries += count;
        }
        // An item of its own takes as long to begin and to end as two tiles of keys.
        flat - self.of(queries, keys + 128) - self.of_merging(2 * queries)
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
