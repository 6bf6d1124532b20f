//! Rows of a sequence with several groups while a tier fills their pages: as long as the fetch
//! needs them; and states that came, which are the cache's then.
use super::State;
use super::group_rows::{ByPool, GroupCopy};
use crate::group::{GROUP_LIMIT, GroupKind, Hung, HungPage};
use crate::paging::RowOwner;
use std::ops::Range;

impl State {
    /// What hangs on the pages of group 0; none with one group.
    pub(crate) fn hung(&self) -> Option<&Hung> {
        Some(&self.cache.as_ref()?.groups.as_deref()?.hung)
    }

    /// Gives up a sequence's own pages at some places, in the groups with windows that an end
    /// behind so many pages does not need there.
    pub(crate) fn drop_passed_pages(&mut self, slot: u32, places: Range<usize>, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let rows = &mut self.sequences[slot as usize].groups;
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = config.kind.needs(pages * page_size, page_size);
            let needs = needs.expect("sliding groups end anywhere");
            let pool = self.table.pool_at_mut(config.pool as usize);
            let row = &mut rows.rows[group];
            let (start, end) = (places.start.min(row.len()), places.end.min(row.len()));
            for (page, place) in row[start..end.max(start)].iter_mut().zip(start..) {
                if *page != 0 && !needs.contain(place) {
                    pool.put_back(std::mem::take(page));
                    rows.changes += 1;
                }
            }
        }
    }

    /// Pages that a sequence lacks to go on from behind so many pages, by pool.
    pub(crate) fn missing_for_fetch(&self, slot: u32, pages: usize) -> ByPool {
        let (mut missing, page_size) = (ByPool::default(), self.table.page_size());
        let row = self.table.row(slot).map_or(0, <[u32]>::len);
        missing[0] = pages.saturating_sub(row);
        let sequence = &self.sequences[slot as usize];
        let groups = self.table.groups();
        for (group, config) in groups.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let needs = config.kind.needs(pages * page_size, page_size);
            let needs = needs.expect("every group but one of states can end anywhere");
            let row = sequence.groups.row(group);
            let is_missing = |place: &usize| row.get(*place).is_none_or(|&page| page == 0);
            let places = needs.places().filter(|&place| place >= sequence.shared);
            missing[config.pool as usize] += places.filter(is_missing).count();
        }
        missing
    }

    /// Gives a sequence those pages, which are free. Room was made.
    pub(crate) fn grow_group_rows(&mut self, slot: u32, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let more = pages.saturating_sub(self.table.row(slot).map_or(0, <[u32]>::len));
        self.table.extend_private(slot, more);
        let sequence = &mut self.sequences[slot as usize];
        for (group, config) in groups.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let needs = config.kind.needs(pages * page_size, page_size);
            let needs = needs.expect("every group but one of states can end anywhere");
            let pool = self.table.pool_at_mut(config.pool as usize);
            let row = &mut sequence.groups.rows[group];
            row.resize(row.len().max(pages), 0);
            for place in needs.places().filter(|&place| place >= sequence.shared) {
                if row[place] == 0 {
                    row[place] = pool.take_one(RowOwner::Sequence);
                }
            }
        }
    }

    /// States that came to a sequence, which are after so many pages of it, become the cache's,
    /// where it has none there; the sequence is to copy them then, as if they had been found.
    /// Where no page can be had for that it keeps its own.
    pub(crate) fn share_fetched_states(&mut self, slot: u32, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let Some(place) = pages.checked_sub(1) else { return };
        let sequence = &self.sequences[slot as usize];
        if sequence.shared < pages || self.is_cleared(sequence) {
            return;
        }
        let Some(base) = sequence.base else { return };
        let spine = self.table.row(slot).expect("the slot is in use")[place];
        let mut came = [false; GROUP_LIMIT];
        for (group, config) in groups.hung().filter(|(_, of)| of.kind == GroupKind::State) {
            let pool = config.pool as usize;
            let copies = self.sequences[slot as usize].groups.copies();
            let is_copied = copies.iter().any(|copy| copy.group == group);
            let is_there = self.hung_page(group, spine) != 0;
            if is_copied || is_there || self.check_pool_room(pool, 1, 0).is_err() {
                continue;
            }
            self.free_up_pool(pool, 1);
            let rows = &mut self.sequences[slot as usize].groups;
            let pool = self.table.pool_at_mut(pool);
            let target = pool.take_one(RowOwner::Sequence);
            let source = std::mem::replace(&mut rows.rows[group][0], target);
            rows.changes += 1;
            rows.copies.push(GroupCopy {
                group,
                source,
                target,
                positions: page_size,
                saves: None,
            });
            pool.claim(&[source]);
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let mut hanging = cache.begin_hanging().expect("there are several groups");
            let page = HungPage { group, page: source };
            hanging.hang(page, spine);
            hanging.hung.begin_use(page);
            came[group] = true;
        }
        if came.contains(&true) {
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let node = cache.index.node_at_page(base, place);
            cache.classify(node, place, pages);
            self.note_saved(slot, place, came);
        }
    }
}
