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

/// What a query sees, as ranges that do not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Positions at the beginning of the row; empty where they go over into the others.
    pub sinks: Range<usize>,
    /// The others, with its own.
    pub keys: Range<usize>,
}

/// The mask of one row: (same region) OR (causal AND (in view OR a sink)).
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Keys that exist: a region may reach further.
    pub key_count: usize,
    /// How far back queries see.
    pub view: View,
    /// Ascending and disjoint.
    pub regions: &'a [Region],
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
            false => Seen { sinks: 0..0, keys: 0..keys.end },
        }
    }

    /// The same without sinks.
    pub fn keys(&self, position: usize) -> Range<usize> {
        debug_assert!(position < self.key_count);
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
}
