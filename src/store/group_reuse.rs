//! How much of what was found a new sequence reuses, when it has pages in several pools to get, and
//! how its rows begin then.
use super::group_ahead::RowHolds;
use super::group_cache::{Depths, GroupCache, Path};
use super::group_rows::{ByPool, GroupCopy, GroupRows};
use super::group_windows::Known;
use super::lookup::{Found, Reuse};
use super::{Descent, PrefixCache, State};
use crate::error::Error;
use crate::group::{GROUP_LIMIT, GroupKind, HungPage, Reached, Seen, Spine};
use crate::index::{Node, Partial};
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
    /// Reclaimable pages that a sequence which reuses so many positions would protect, by pool; and
    /// those of them that its rows map, by group.
    fn protected_in_groups(
        &self,
        found: &Found,
        positions: usize,
    ) -> (ByPool, [usize; GROUP_LIMIT]) {
        let (mut protected, mut mapped) = (ByPool::default(), [0; GROUP_LIMIT]);
        let groups = self.groups.as_deref().expect("there are several groups");
        if let Some(walk) = found.walk.as_ref().filter(|_| positions > 0) {
            let path = || Path::of_walk(self.index.as_ref(), walk);
            let page_size = self.page_size();
            groups.needed((positions, page_size), found.ahead.used(), path, |used| {
                let is_free = groups.hung.users(used.page) == 0;
                protected[groups.hung.pool_of(used.page.group)] += usize::from(is_free);
                let is_mapped = used.place < positions / page_size;
                mapped[used.page.group] += usize::from(is_free && is_mapped);
            });
            for group in groups.full() {
                let pages = positions.div_ceil(page_size);
                let count = groups.hung.unused_in_chain(group, &mut path(), pages);
                protected[groups.hung.pool_of(group)] += count;
            }
        }
        (protected, mapped)
    }
}

impl State {
    /// Pages that the rows of a new sequence need beside what it reuses, by pool. A window that
    /// slides with each chunk needs no more than it and the chunk cover, with what it reuses that
    /// is nobody else's: that can be had again when the window has passed it.
    pub(super) fn needed_in_groups(
        &self,
        room: GroupRoom,
        positions: usize,
        mapped: &[usize; GROUP_LIMIT],
    ) -> ByPool {
        let (mut needed, page_size) = (ByPool::default(), self.table.page_size());
        let all = room.places - positions / page_size;
        for (group, config) in self.table.groups().hung() {
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
            let own = window.min(mapped[group] + all).saturating_sub(mapped[group]);
            needed[config.pool as usize] += if state { window } else { own };
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
        (query, descent): (Query<'_>, Option<&Descent>),
        room: GroupRoom,
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<Reuse, Error> {
        let cache = self.cache()?;
        let groups = cache.groups.as_deref().expect("there are several groups");
        let page_size = cache.page_size();
        let known = descent.map_or_else(Known::default, |descent| descent.known(cache));
        let begin = known.searched.and_then(|searched| searched.begin);
        let found = find(cache, query);
        query.check_text(found.pages() * page_size)?;
        let fit = |positions| cache.reusable(query.boundary(positions), query);
        let (mut limit, mut refused) = (found.positions().min(query.positions - 1), None);
        let mut own = 0;
        for attempt in 0..=ATTEMPTS {
            let positions = if attempt == ATTEMPTS { 0 } else { fit(limit) };
            // Up to there it was searched.
            let positions = begin.filter(|&begin| begin < positions).unwrap_or(positions);
            let found = found.cut(positions, query);
            let asked = (Reached::all(positions), query);
            let reached = cache.reach_of_groups(groups, (&found, known.pages), asked);
            let positions = reached.positions;
            // What groups have behind that is computed again, and its states are of no use to the
            // same prompt, or may be what goes for the pages of this one: they are to be saved.
            let depths = found.depths();
            let saved = cache.depths(groups, (depths.known as usize, positions), query);
            // All of it could be reused, but not so that a token is left to compute.
            if attempt == 0 {
                own = reached.costliest() as u32;
            }
            let costliest = if depths.costliest == 0 { own } else { depths.costliest };
            let depths = Depths { checkpoint_at: saved.checkpoint_at, costliest, ..depths };
            let found = found.cut(positions, query).at(depths);
            let reuse = cache.reuse(found, positions, query);
            let (mut protected, mapped) = cache.protected_in_groups(&found, positions);
            protected[0] += reuse.protected(cache);
            let needed = self.needed_in_groups(room, positions, &mapped);
            let fits = (0..self.table.pool_count())
                .try_for_each(|pool| self.check_pool_room(pool, needed[pool], protected[pool]));
            match fits {
                Ok(()) => return Ok(reuse),
                Err(error) if positions == 0 => return Err(refused.unwrap_or(error)),
                Err(error) => {
                    refused.get_or_insert(error);
                    // A shorter part of the same page takes as many, and one of the page before it
                    // more than none of that.
                    limit = (positions - 1) / page_size * page_size;
                }
            }
        }
        unreachable!("the last attempt reuses nothing")
    }

    /// Maps what a new sequence reuses, for which room was made: pages of the cache, in use from
    /// now on. What it has to copy is in use too. Where a call has holds, rows stay empty: it uses
    /// their pages until `fill` writes them.
    pub(crate) fn map_groups(
        &mut self,
        slot: u32,
        (node, partial): (Option<Node>, Option<Partial>),
        (positions, &Found { ahead, .. }): (usize, &Found),
        row_holds: Option<RowHolds>,
    ) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let GroupCache { hung, holds, .. } = cache.groups.as_deref_mut().expect("as above");
        let seen = if ahead.is_for(positions) { ahead.seen } else { Seen::default() };
        if let Some(RowHolds { windows, .. }) = row_holds.filter(|_| !ahead.is_for(positions)) {
            // They are those of another end.
            holds[windows].uses.drain(..).for_each(|used| hung.end_use(used.page, None, now));
        }
        let GroupRows { rows, copies, saved, ended, .. } =
            &mut self.sequences[slot as usize].groups;
        let whole = positions / page_size;
        *ended = whole as u32;
        *saved = if groups.end_with_pages() { whole as u32 } else { 0 };
        for (group, config) in groups.hung() {
            let needs = config.kind.needs(positions, page_size);
            let needs = needs.expect("what is reused ends where every group can");
            let is_state = config.kind == GroupKind::State;
            let row = &mut rows[group];
            assert!(row.is_empty(), "a free slot has no rows");
            let mut row_places = if is_state { 0 } else { whole };
            let path = || {
                let after = partial.map(|partial| (whole, partial.page));
                Path::new(cache.index.as_ref(), node, after)
            };
            let is_full = config.kind == GroupKind::Full;
            let last = whole.checked_sub(1).filter(|_| is_full);
            let used = last.map(|last| (hung.begin_chain(group, &mut path(), last), last));
            let mut needs = needs;
            let held = row_holds.filter(|_| !is_state);
            if held.is_some() {
                row_places = 0;
            }
            if let Some((RowHolds { chains, .. }, (page, place))) = held.zip(used) {
                holds[chains].add(page, place);
                needs.last.start = whole;
            }
            row.resize(row_places, 0);
            let unseen = needs.without(&seen.of(config.kind, page_size));
            for places in unseen.into_iter().rev().filter(|places| !places.is_empty()) {
                let mut path = path();
                for place in places.rev() {
                    let page = hung.page(group, path.page(place));
                    if !is_full || place == whole {
                        hung.begin_use(HungPage { group, page });
                    }
                    if is_state || place == whole {
                        let positions = if is_state { page_size } else { positions % page_size };
                        let copy =
                            GroupCopy { group, source: page, target: 0, positions, saves: None };
                        copies.push(copy);
                    } else if let Some(RowHolds { windows, .. }) = held {
                        holds[windows].add(HungPage { group, page }, place);
                    } else {
                        row[place] = page;
                    }
                }
            }
        }
    }

    /// Says where copies go, now that the rows have their pages.
    pub(crate) fn aim_group_copies(&mut self, slot: u32) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let sequence = &mut self.sequences[slot as usize];
        let whole = sequence.computed / page_size;
        let GroupRows { rows, copies, .. } = &mut sequence.groups;
        for copy in copies.iter_mut() {
            let is_state = groups.list()[copy.group].kind == GroupKind::State;
            copy.target = rows[copy.group][if is_state { 0 } else { whole }];
        }
    }
}
