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

/// The mask of one row: (same region) OR (causal AND inside the window).
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Keys that exist: a region may reach further.
    pub key_count: usize,
    /// Positions that a query sees, itself included; it always sees itself.
    pub window: Option<u32>,
    /// Ascending and disjoint.
    pub regions: &'a [Region],
}

impl Mask<'_> {
    /// The keys that the query at `position` sees: one range, because its region contains it just
    /// as its window does.
    pub fn keys(&self, position: usize) -> Range<usize> {
        debug_assert!(position < self.key_count);
        let mut start = match self.window {
            Some(window) => (position + 1).saturating_sub(window.max(1) as usize),
            None => 0,
        };
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
