//! The ends of the rows of a sequence that nobody needs any more: taken out into lists, to be given
//! back in portions.
use super::State;
use super::early::EarlyByPool;
use super::group_rows::{ByPool, GroupRows};
use crate::group::GroupKind;

impl State {
    /// Takes what a sequence has behind so many places, all its own, out of its rows, when others
    /// should not wait until all of it is given back. Without memory for that it stays.
    pub(crate) fn set_reserved_aside(
        &mut self,
        slot: u32,
        places: usize,
        slice: usize,
    ) -> EarlyByPool {
        let row = self.table.row(slot).expect("the slot is in use");
        let (in_spine, groups) = (row.len().saturating_sub(places), *self.table.groups());
        let rows = &self.sequences[slot as usize].groups;
        // What is behind them in a row, of those that have a place for each page.
        let behind = |rows: &GroupRows, group| rows.row(group).len().saturating_sub(places);
        let of_pages = || groups.hung().filter(|(_, of)| of.kind != GroupKind::State);
        let mut counts = ByPool::default();
        counts[0] = in_spine;
        for (group, config) in of_pages() {
            counts[config.pool as usize] += behind(rows, group);
        }
        if counts.iter().sum::<usize>() <= slice {
            return EarlyByPool::default();
        }
        let Some(lists) = self.open_lists(&counts) else { return EarlyByPool::default() };
        let Self { table, sequences, early, .. } = self;
        if in_spine > 0 {
            table.take_end(slot, places, lists.of(early, 0));
        }
        let rows = &mut sequences[slot as usize].groups;
        for (group, config) in of_pages() {
            if behind(rows, group) > 0 {
                let list = lists.of(early, config.pool as usize);
                list.extend(rows.rows[group].drain(places..));
                rows.changes += 1;
            }
        }
        lists
    }

    /// The same of rows that are not a sequence's any more, behind those of their places that the
    /// cache has. None without memory for that: then they are as they were.
    pub(super) fn set_own_aside(
        &mut self,
        rows: &mut GroupRows,
        shared: usize,
    ) -> Option<EarlyByPool> {
        let groups = *self.table.groups();
        let cached =
            |kind, places: usize| if kind == GroupKind::State { 0 } else { places.min(shared) };
        let mut counts = ByPool::default();
        for (group, config) in groups.hung() {
            let places = rows.row(group).len();
            counts[config.pool as usize] += places - cached(config.kind, places);
        }
        let lists = self.open_lists(&counts)?;
        for (group, config) in groups.hung() {
            let places = rows.row(group).len();
            let own = cached(config.kind, places)..;
            if own.start < places {
                let list = lists.of(&mut self.early, config.pool as usize);
                let row = &mut rows.rows[group];
                if list.is_empty() && own.start == 0 && row.capacity() >= list.capacity() {
                    // All of a row is no copy.
                    self.early_bytes += (row.capacity() - list.capacity()) * size_of::<u32>();
                    std::mem::swap(list, row);
                } else {
                    list.extend(row.drain(own));
                }
            }
        }
        Some(lists)
    }
}
