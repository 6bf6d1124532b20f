//! Which keys a query sees.
use std::ops::Range;

/// Positions that see each other in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first position.
    pub start: usize,
    /// After the last one.
    pub end: usize,
}

/// New positions that a row with tree masks has at most: a bit for each.
pub const TREE_POSITIONS_MAX: usize = u64::BITS as usize;

/// Which keys the new positions of a row see, regions and trees aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowMask {
    /// Those before it and itself.
    #[default]
    Causal,
    /// All of its row, those behind it too.
    Bidirectional,
    /// All that the row has: its queries are no positions of it.
    Context,
}

/// How far back a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// Positions that it sees, itself included; it always sees itself. None: all.
    pub window: Option<u32>,
    /// It sees none before the beginning of its own chunk of so many positions. None: no chunks.
    pub chunk: Option<u32>,
    /// Positions at the beginning of a row that it sees whatever the window is.
    pub sinks: u32,
}

impl View {
    /// The first position that a query sees, sinks and regions aside.
    pub fn first(&self, position: usize) -> usize {
        let in_window =
            self.window.map_or(0, |window| (position + 1).saturating_sub(window.max(1) as usize));
        let in_chunk = self.chunk.map_or(0, |chunk| position - position % chunk.max(1) as usize);
        in_window.max(in_chunk)
    }
}

/// What a query sees, as ranges that do not touch; those of a tree may be the same, see
/// [`Mask::shown`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Positions at the beginning of the row; empty where they go over into the others.
    pub sinks: Range<usize>,
    /// The others, with its own.
    pub keys: Range<usize>,
}

/// The mask of one row: (same region) OR (causal AND (in view OR a sink)); of a draft's new
/// positions in place of the causal ones those that its tree masks show.
///
/// A position of such a draft sees a path: the context, and behind it those new positions that its
/// mask names, itself the last of them. Its view is that of the last position of a row which has
/// only these.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Keys that exist: a region may reach further.
    pub key_count: usize,
    /// How far back queries see.
    pub view: View,
    /// Ascending and disjoint.
    pub regions: &'a [Region],
    /// Of the last keys, each of which is a new position: which of them it sees, itself included;
    /// the lowest bit is the first one's. Empty: causal.
    pub tree: &'a [u64],
}

impl Mask<'_> {
    /// What the query at `position` sees: beside sinks one range, because its region contains it
    /// just as its window does.
    pub fn seen(&self, position: usize) -> Seen {
        let keys = self.keys(position);
        let sinks = self.view.sinks as usize;
        match sinks < keys.start {
            true => Seen { sinks: 0..sinks, keys },
            false if sinks == 0 => Seen { sinks: 0..0, keys },
            // Some position of the tree may have them apart, as it would without a tree.
            false if !self.tree.is_empty() && sinks < self.view.first(self.key_count - 1) => {
                Seen { sinks: 0..keys.end, keys: 0..keys.end }
            }
            false => Seen { sinks: 0..0, keys: 0..keys.end },
        }
    }

    /// The same without sinks.
    pub fn keys(&self, position: usize) -> Range<usize> {
        debug_assert!(position < self.key_count);
        if !self.tree.is_empty() {
            // The first new position sees farthest back, and those after it see nothing that it
            // does not, of the context; what they see less is in `shown`.
            return self.view.first(self.context())..position + 1;
        }
        let mut start = self.view.first(position);
        let mut end = position + 1;
        let after = self.regions.partition_point(|region| region.start <= position);
        if let Some(region) = after.checked_sub(1).map(|at| self.regions[at])
            && position < region.end
        {
            start = start.min(region.start);
            end = region.end.min(self.key_count);
        }
        start..end
    }

    /// Keys before the tree's positions.
    fn context(&self) -> usize {
        self.key_count - self.tree.len()
    }

    /// Which of the 64 keys from `first` on a position of the tree sees, the lowest bit for the
    /// first of them: `apart` its sinks, if it has those apart, otherwise all others. It has them
    /// apart where the last position of a row with only its path would.
    pub fn shown(&self, position: usize, first: usize, apart: bool) -> u64 {
        let context = self.context();
        let path = self.tree[position - context];
        let end = context + path.count_ones() as usize; // of its path, as if that were a row
        let begin = self.view.first(end - 1);
        let sinks = self.view.sinks as usize;
        let of_tree = |ones: u64| match first.checked_sub(context) {
            Some(after) => ones.checked_shr(after as u32).unwrap_or(0),
            None => ones.checked_shl((context - first).min(64) as u32).unwrap_or(0),
        };
        let in_view = bits(begin.min(context)..context, first)
            | of_tree(last_ones(path, end - begin.max(context)));
        let of_sinks = bits(0..sinks.min(context), first)
            | of_tree(path & !last_ones(path, end - sinks.clamp(context, end)));
        match (apart, sinks < begin) {
            (true, true) => of_sinks,
            (true, false) => 0,
            (false, true) => in_view,
            (false, false) => in_view | of_sinks,
        }
    }
}

/// The bits of positions, of the 64 from `first` on.
fn bits(positions: Range<usize>, first: usize) -> u64 {
    let below = |end: usize| match end.saturating_sub(first) {
        count @ ..64 => (1u64 << count) - 1,
        _ => u64::MAX,
    };
    below(positions.end) & !below(positions.start)
}

/// The highest `count` of the ones of a number.
fn last_ones(mut ones: u64, count: usize) -> u64 {
    while ones.count_ones() as usize > count {
        ones &= ones - 1;
    }
    ones
}
