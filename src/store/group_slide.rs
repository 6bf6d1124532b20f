//! Windows that slide: what the next position does not need goes out of the rows of a sequence.
use super::State;
use super::group_rows::GroupRows;
use crate::group::{GroupConfig, HungPage};
use std::ops::Range;

impl State {
    /// Lets go of the pages that the next position after so many does not need: those of the cache
    /// are in use no more, the others go back to their pools.
    pub(crate) fn slide_groups(&mut self, slot: u32, computed: usize) {
        let groups = *self.table.groups();
        for (group, config) in groups.hung().filter(|(_, group)| group.kind.slides()) {
            let passed = self.passed_places(slot, (group, config), computed);
            self.slide_group(slot, group, passed);
        }
    }

    /// The places of a row that the next position after so many does not need.
    pub(crate) fn passed_places(
        &self,
        slot: u32,
        (group, config): (usize, GroupConfig),
        computed: usize,
    ) -> Range<usize> {
        let page_size = self.table.page_size();
        let needs = config.kind.needs(computed, page_size).expect("sliding groups end anywhere");
        // The page that is written next stays.
        let row = &self.sequences[slot as usize].groups.rows[group];
        let end = needs.last.start.min(computed / page_size).min(row.len());
        needs.sinks.end.min(end)..end
    }

    /// Lets go of the pages of a row in places behind which nothing is needed.
    pub(crate) fn slide_group(&mut self, slot: u32, group: usize, passed: Range<usize>) {
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
        let GroupRows { rows, changes, .. } = &mut self.sequences[slot as usize].groups;
        let pool = self.table.pool_at_mut(hung.pool_of(group));
        // What lies farther back has gone before, down to the first hole.
        for place in passed.rev() {
            let page = std::mem::take(&mut rows[group][place]);
            if page == 0 {
                break;
            }
            *changes += 1;
            match pool.is_cached(page) {
                true => hung.end_use(HungPage { group, page }, None, now),
                false => pool.put_back(page),
            }
        }
    }
}
