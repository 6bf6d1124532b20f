//! The ends of the rows of a sequence that nobody needs any more: taken out, and given back in
//! portions.
use super::early::EarlyPages;
use super::group_rows::GroupRows;
use super::{State, Turn};
use crate::group::{GROUP_LIMIT, GroupKind};

/// Lists of pages that are to be given back, by group.
#[derive(Debug, Default)]
pub(crate) struct EndsAside([Option<u32>; GROUP_LIMIT]);

/// Room for so many pages of each group; none without memory for all.
fn lists_for(counts: [usize; GROUP_LIMIT]) -> Option<[Vec<u32>; GROUP_LIMIT]> {
    let mut lists: [Vec<u32>; GROUP_LIMIT] = Default::default();
    let mut lacking = lists.iter_mut().zip(counts);
    lacking.all(|(list, count)| list.try_reserve_exact(count).is_ok()).then_some(lists)
}

impl State {
    /// Keeps lists of pages, for which room was made, until they are given back.
    fn keep_aside(&mut self, lists: [Vec<u32>; GROUP_LIMIT]) -> EndsAside {
        let mut aside = EndsAside::default();
        for (group, list) in lists.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            let pool = self.table.groups().list()[group].pool as usize;
            self.early_bytes += list.capacity() * size_of::<u32>();
            aside.0[group] = Some(self.early.insert(EarlyPages::all(pool, list)));
        }
        aside
    }

    /// Takes what a sequence has behind so many places, all its own, out of its rows, when others
    /// should not wait until all of it is given back. Without memory for that it stays.
    pub(crate) fn set_reserved_aside(
        &mut self,
        slot: u32,
        places: usize,
        slice: usize,
    ) -> EndsAside {
        let mut counts = [0; GROUP_LIMIT];
        let row = self.table.row(slot).expect("the slot is in use");
        counts[0] = row.len().saturating_sub(places);
        let rows = &self.sequences[slot as usize].groups.rows;
        for (group, config) in self.table.groups().hung().filter(|_| !rows.is_empty()) {
            let is_state = config.kind == GroupKind::State;
            counts[group] = if is_state { 0 } else { rows[group].len().saturating_sub(places) };
        }
        if counts.iter().sum::<usize>() <= slice || self.early.try_reserve(GROUP_LIMIT).is_err() {
            return EndsAside::default();
        }
        let Some(mut lists) = lists_for(counts) else { return EndsAside::default() };
        if counts[0] > 0 {
            self.table.take_end(slot, places, &mut lists[0]);
        }
        let GroupRows { rows, changes, .. } = &mut self.sequences[slot as usize].groups;
        for group in (1..GROUP_LIMIT).filter(|&group| counts[group] > 0) {
            lists[group].extend(rows[group].drain(places..));
            *changes += 1;
        }
        self.keep_aside(lists)
    }

    /// The same of rows that are not a sequence's any more, behind those of their places that the
    /// cache has. None without memory for that: then they are as they were.
    pub(super) fn set_own_aside(
        &mut self,
        rows: &mut GroupRows,
        shared: usize,
    ) -> Option<EndsAside> {
        let mut counts = [0; GROUP_LIMIT];
        for (group, row) in rows.rows.iter().enumerate().skip(1) {
            let is_state = self.table.groups().list()[group].kind == GroupKind::State;
            counts[group] = row.len() - if is_state { 0 } else { row.len().min(shared) };
        }
        self.early.try_reserve(GROUP_LIMIT).ok()?;
        let mut lists = lists_for(counts)?;
        for (row, (list, count)) in rows.rows.iter_mut().zip(lists.iter_mut().zip(counts)) {
            list.extend(row.drain(row.len() - count..));
        }
        Some(self.keep_aside(lists))
    }
}

impl Turn<'_> {
    /// Gives those pages back.
    pub(crate) fn end_aside(&mut self, aside: EndsAside) {
        aside.0.into_iter().flatten().for_each(|list| self.give_back(list));
    }
}
