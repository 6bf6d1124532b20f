//! How much of what was found a new sequence reuses, when it has pages in several pools to get.
use super::group_cache::Path;
use super::group_rows::ByPool;
use super::lookup::{Found, Reuse};
use super::{PrefixCache, State};
use crate::error::Error;
use crate::group::GroupKind;
use crate::token::Query;

/// Depths that a new sequence tries to reuse before it reuses nothing.
const ATTEMPTS: usize = 8;

/// What a new sequence is to get pages for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupRoom {
    /// Places of its rows, when it has all its positions.
    pub(crate) places: usize,
    /// Positions of a chunk, when pages come chunk by chunk; 0 when all come at once.
    pub(crate) chunk: usize,
}

impl PrefixCache {
    /// Reclaimable pages that a sequence which reuses so many positions would protect, by pool.
    fn protected_in_groups(&self, found: &Found, positions: usize) -> ByPool {
        let mut protected = ByPool::default();
        let groups = self.groups.as_deref().expect("there are several groups");
        if let Some(walk) = found.walk.as_ref().filter(|_| positions > 0) {
            let path = || Path::of_walk(self.index.as_ref(), walk);
            groups.needed((positions, self.page_size()), path, |used| {
                let is_free = groups.hung.users(used.page) == 0;
                protected[groups.hung.pool_of(used.page.group)] += usize::from(is_free);
            });
        }
        protected
    }
}

impl State {
    /// Pages that the rows of a new sequence need beside what it reuses, by pool. A window that
    /// slides with each chunk needs no more than it and the chunk cover.
    fn needed_in_groups(&self, room: GroupRoom, positions: usize) -> ByPool {
        let (mut needed, page_size) = (ByPool::default(), self.table.page_size());
        let all = room.places - positions / page_size;
        for (_, config) in self.table.groups().hung() {
            let window = match config.kind {
                GroupKind::State => config.row_pages(0),
                GroupKind::Window { window, sinks } if room.chunk > 0 => {
                    let positions = window as usize - 1 + room.chunk;
                    positions.div_ceil(page_size) + 1 + (sinks as usize).div_ceil(page_size)
                }
                GroupKind::Chunk { chunk } if room.chunk > 0 => {
                    (chunk as usize + room.chunk).div_ceil(page_size) + 1
                }
                _ => usize::MAX,
            };
            let state = config.kind == GroupKind::State;
            needed[config.pool as usize] += if state { window } else { window.min(all) };
        }
        needed[0] += all;
        needed
    }

    /// As much of a prompt as `find` finds, every group can reuse, and all pools have the pages
    /// for: the next shallower depth where what is found would take the pages that are needed. The
    /// first pages may be known.
    #[inline(never)]
    pub(crate) fn find_group_reuse(
        &self,
        (query, known): (Query<'_>, &[u32]),
        room: GroupRoom,
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<Reuse, Error> {
        let cache = self.cache()?;
        let groups = cache.groups.as_deref().expect("there are several groups");
        let page_size = cache.page_size();
        let found = find(cache, query);
        query.check_text(found.pages() * page_size)?;
        let fit = |positions| cache.reusable(query.boundary(positions), query);
        let (mut limit, mut refused) = (found.positions().min(query.positions - 1), None);
        for attempt in 0..=ATTEMPTS {
            let positions = if attempt == ATTEMPTS { 0 } else { fit(limit) };
            let found = found.cut(positions, query);
            let positions = cache.reach_of_groups(groups, (&found, known), query).positions;
            let found = found.cut(positions, query);
            let reuse = cache.reuse(found, positions, query);
            let mut protected = cache.protected_in_groups(&found, positions);
            protected[0] += reuse.protected(cache);
            let needed = self.needed_in_groups(room, positions);
            let fits = (0..self.table.pool_count())
                .try_for_each(|pool| self.check_pool_room(pool, needed[pool], protected[pool]));
            match fits {
                Ok(()) => return Ok(reuse),
                Err(error) if positions == 0 => return Err(refused.unwrap_or(error)),
                Err(error) => limit = (positions - 1, refused.get_or_insert(error)).0,
            }
        }
        unreachable!("the last attempt reuses nothing")
    }
}
