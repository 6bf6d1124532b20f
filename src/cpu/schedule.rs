//! Which thread computes what: tiles of rows, and parts of a tile's keys where there are fewer
//! tiles than threads can share evenly.
//!
//! Keys are cut at multiples of [`SEGMENT`]. What a row sees of a segment is a state of its own;
//! states are merged as a binary tree over the segments says, whose leaves are numbered from
//! position 0 on. A part of a tile is a node of that tree, so it doesn't matter for a result how
//! keys were parted.
use super::call::AppendPrefill;
use super::kernel::BLOCK;
use super::state::LEVELS;
use crate::attention::{Geometry, Row, Seen};
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

/// Keys of a segment.
pub(super) const SEGMENT: usize = 8 * BLOCK;

/// Rows of a tile, at most: enough to make the conversion of keys and values cheap. A multiple of
/// the heights of all register tiles.
const TILE_ROWS: usize = 192;

/// Parts that a thread gets, on average, if the work can be parted that far.
const PARTS_PER_THREAD: usize = 4;

/// Bytes of a position's keys that are read together, at most: those of two blocks, and their
/// values, are to fit into a cache of half a MiB.
const NEAR_BYTES: usize = 2048;

/// Rows that cost as much as a single one does: less is bound by memory.
const CHEAP_ROWS: usize = 4;

/// Rows of some heads: a row is a query head of a query, and those that share a query are
/// neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tile {
    /// In the batch.
    pub row: usize,
    /// KV heads.
    pub heads: Range<usize>,
    /// Rows of each head, by their numbers: query * group + query head inside the group.
    pub rows: Range<usize>,
    /// Segments that any of them sees, sinks apart.
    pub segments: Range<usize>,
    /// Segments of sinks that are apart, from the first one on: all before the others.
    pub sinks: usize,
    /// Each part is a node of this level of the tree: 2^level segments.
    pub level: u32,
    /// The first of its parts, where it has several.
    pub first_part: Option<usize>,
    cost: usize,
}

impl Tile {
    /// Rows of all its heads.
    pub(super) fn height(&self) -> usize {
        self.heads.len() * self.rows.len()
    }

    /// The nodes that only sinks are in, and the others.
    fn node_ranges(&self) -> [Range<usize>; 2] {
        let Range { start, end } = self.segments;
        let others = start >> self.level..((end - 1) >> self.level) + 1;
        let sinks = 0..self.sinks.div_ceil(1 << self.level).min(others.start);
        [sinks, others]
    }

    /// The nodes that its parts are.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> + use<> {
        self.node_ranges().into_iter().flatten()
    }

    /// Where a node is among those.
    pub(super) fn place_of(&self, node: usize) -> usize {
        let [sinks, others] = self.node_ranges();
        if node < sinks.end { node } else { sinks.end + node - others.start }
    }

    /// The segments of a node.
    pub(super) fn segments_of(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let Range { start, end } = self.segments;
        let (first, after) = (node << self.level, (node + 1) << self.level);
        (first..after.min(self.sinks)).chain(first.max(start)..after.min(end))
    }

    /// All segments.
    fn segment_count(&self) -> usize {
        self.sinks + self.segments.len()
    }

    /// What the dearest node costs, about.
    fn dearest(&self) -> usize {
        let segments = self.segment_count();
        self.cost / segments * segments.min(1 << self.level)
    }

    /// What a node costs, about.
    fn node_cost(&self, node: usize) -> usize {
        self.cost / self.segment_count() * self.segments_of(node).count()
    }
}

/// A part of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Which tile.
    pub tile: usize,
    /// Node of the tree, on the tile's level.
    pub node: usize,
    cost: usize,
}

/// The work of a call.
#[derive(Debug)]
pub(super) struct Schedule {
    pub tiles: Vec<Tile>,
    /// Those that cost most first.
    pub parts: Vec<Part>,
    /// Tiles in several parts.
    pub parted: Vec<usize>,
    /// Parts of those.
    pub part_count: usize,
    /// Most rows of a tile, of all its heads.
    pub tile_height: usize,
    /// Most rows of one head of a tile.
    pub head_rows: usize,
    /// Most rows of the tiles whose parts are of this level or a higher one.
    level_rows: [usize; LEVELS],
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            tiles: Vec::new(),
            parts: Vec::new(),
            parted: Vec::new(),
            part_count: 0,
            tile_height: 0,
            head_rows: 0,
            level_rows: [0; LEVELS],
        }
    }
}

impl Schedule {
    /// Plans a call.
    pub(super) fn plan(
        &mut self,
        call: &AppendPrefill<'_>,
        threads: usize,
    ) -> Result<(), OutOfMemory> {
        self.tiles.clear();
        self.parts.clear();
        self.parted.clear();
        self.part_count = 0;
        self.level_rows = [0; LEVELS];
        self.cut_rows(call, threads)?;
        let total: usize = self.tiles.iter().map(|tile| tile.cost).sum();
        let share = if threads == 1 { total } else { total / (threads * PARTS_PER_THREAD) };
        for (index, tile) in self.tiles.iter_mut().enumerate() {
            while tile.level > 0 && tile.dearest() > share {
                tile.level -= 1;
            }
            let node_count = tile.node_ranges().iter().map(Range::len).sum::<usize>();
            if node_count > 1 {
                tile.first_part = Some(self.part_count);
                self.part_count += node_count;
                self.parted.try_push(index)?;
            }
            let part = |node| Part { tile: index, node, cost: tile.node_cost(node) };
            self.parts.try_reserve(node_count)?;
            self.parts.extend(tile.nodes().map(part));
            let rows = &mut self.level_rows[tile.level as usize];
            *rows = tile.height().max(*rows);
        }
        for level in (1..LEVELS).rev() {
            self.level_rows[level - 1] = self.level_rows[level - 1].max(self.level_rows[level]);
        }
        self.parts
            .sort_unstable_by_key(|part| (std::cmp::Reverse(part.cost), part.tile, part.node));
        Ok(())
    }

    /// Rows that states may have, by how many others wait for a neighbour: of the segments of a
    /// node at most as many as it has levels below.
    pub(super) fn state_rows(&self) -> &[usize] {
        let levels = self.level_rows.iter().take_while(|&&rows| rows > 0).count();
        &self.level_rows[..levels]
    }

    /// Cuts the rows of the batch into tiles.
    fn cut_rows(&mut self, call: &AppendPrefill<'_>, threads: usize) -> Result<(), OutOfMemory> {
        let Geometry { kv_heads, head_dim, v_head_dim, .. } = call.geometry;
        let group = call.geometry.group();
        let rows = call.batch.rows();
        // Heads are read together, for they may share pages of the system's memory; if there are
        // fewer segments than that leaves parts for the threads, they are not.
        let seen = |row: &Row, query| call.batch.mask_of(row, call.params.view).seen(query);
        let segments_of = |row| {
            let Seen { sinks, keys } = seen(row, row.position(0));
            sinks.len().div_ceil(SEGMENT) + (row.key_count() - keys.start).div_ceil(SEGMENT)
        };
        let segments: usize = rows.iter().map(segments_of).sum();
        let head_tiles = match threads {
            1 => 1,
            _ => (threads * PARTS_PER_THREAD).div_ceil(segments.max(1)),
        };
        let row_bytes = head_dim.max(v_head_dim) * call.layer.dtype.bytes();
        let near_heads = kv_heads.div_ceil(head_tiles).min(NEAR_BYTES / row_bytes);
        for (index, row) in rows.iter().enumerate() {
            let row_count = row.count * group;
            for start in (0..row_count).step_by(TILE_ROWS) {
                let rows = start..(start + TILE_ROWS).min(row_count);
                let first = seen(row, row.position(rows.start / group)).keys.start;
                let Seen { sinks, keys } = seen(row, row.position((rows.end - 1) / group));
                let (sinks, end) = (sinks.end, keys.end);
                let segments = first / SEGMENT..(end - 1) / SEGMENT + 1;
                let together = (TILE_ROWS / rows.len()).min(near_heads);
                for head in (0..kv_heads).step_by(together.max(1)) {
                    let heads = head..(head + together.max(1)).min(kv_heads);
                    let cost = rows.len().max(CHEAP_ROWS) * heads.len();
                    self.tiles.try_push(Tile {
                        row: index,
                        heads,
                        rows: rows.clone(),
                        segments: segments.clone(),
                        sinks: sinks.div_ceil(SEGMENT).min(segments.start),
                        level: usize::BITS - (segments.end - 1).leading_zeros(),
                        first_part: None,
                        cost: (end - first + sinks).saturating_mul(cost),
                    })?;
                }
            }
        }
        let heights = self.tiles.iter().map(Tile::height);
        self.tile_height = heights.max().unwrap_or(0);
        self.head_rows = self.tiles.iter().map(|tile| tile.rows.len()).max().unwrap_or(0);
        Ok(())
    }
}
