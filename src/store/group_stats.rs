//! What there is of each group, and what was counted of it.
use super::group_cache::Depths;
use super::{PrefixCache, State};
use crate::error::Error;

/// What a cache with several groups counted of one since it was made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupCounters {
    pub(super) evicted: u64,
    limited: u64,
    lost: u64,
}

/// A group of a cache in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Pages of the cache.
    pub cached: usize,
    /// Pages evicted.
    pub evicted: u64,
    /// Lookups of which it cost the most.
    pub limited: u64,
    /// Positions that were known and could not be reused, of those lookups.
    pub lost: u64,
}

impl PrefixCache {
    /// Counts what groups cost a lookup that goes on from so many positions.
    #[inline]
    pub(crate) fn count_limit(&mut self, depths: Depths, used: usize) {
        if depths.costliest > 0 {
            self.count_limited(depths, used);
        }
    }

    #[cold]
    fn count_limited(&mut self, depths: Depths, used: usize) {
        let groups = self.groups.as_mut().expect("only one of several groups costs any");
        let counters = &mut groups.counters[depths.costliest as usize];
        counters.limited += 1;
        counters.lost += (depths.known as usize).saturating_sub(used) as u64;
    }
}

impl State {
    /// A group in numbers.
    pub fn group_stats(&self, group: usize) -> Result<GroupStats, Error> {
        let cache = self.cache()?;
        let spine = cache.index.stats().cached_pages;
        let Some(groups) = &cache.groups else {
            let evicted = cache.counters.evicted_pages;
            return Ok(GroupStats { cached: spine, evicted, ..GroupStats::default() });
        };
        let counters = groups.counters[group];
        Ok(GroupStats {
            cached: if group == 0 { spine } else { groups.hung.count_of_group(group) },
            evicted: counters.evicted,
            limited: counters.limited,
            lost: counters.lost,
        })
    }
}
