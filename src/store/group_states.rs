//! The states of a sequence: where they are saved, which of them it goes on with, and what becomes
//! of them in the end.
use super::State;
use super::group_rows::{ByPool, GroupCopy, GroupRows};
use crate::group::{GROUP_LIMIT, GroupKind, Hung, HungPage};
use crate::paging::RowOwner;

impl State {
    /// Puts back the pages of states after draft tokens.
    pub(super) fn drop_draft_states(&mut self, slot: u32) {
        let groups = *self.table.groups();
        let rows = &mut self.sequences[slot as usize].groups.rows;
        for (group, config) in groups.hung().filter(|(_, group)| group.kind == GroupKind::State) {
            let own = rows[group].len().min(1);
            for page in rows[group].drain(own..).rev() {
                self.table.pool_at_mut(config.pool as usize).put_back(page);
            }
        }
    }

    /// Makes one of the states after draft tokens the state of a sequence, which is after so many
    /// positions.
    pub(crate) fn accept_state(&mut self, slot: u32, place: usize, positions: usize) {
        let groups = *self.table.groups();
        let GroupRows { rows, changes, accepted, .. } = &mut self.sequences[slot as usize].groups;
        *accepted = positions;
        for (group, _) in groups.hung().filter(|(_, group)| group.kind == GroupKind::State) {
            rows[group].swap(0, place);
            *changes += 1;
        }
    }

    fn own_hung(&self) -> &Hung {
        self.hung().expect("there are several groups")
    }

    /// The checkpoints after a place of a sequence, by STATE group with its pool; page 0 for one
    /// that is missing.
    fn checkpoints(&self, slot: u32, place: usize) -> impl Iterator<Item = (HungPage, usize)> + '_ {
        let (hung, row) = (self.own_hung(), self.table.row(slot).expect("the slot is in use"));
        let states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        states.map(move |(group, config)| {
            (HungPage { group, page: hung.page(group, row[place]) }, config.pool as usize)
        })
    }

    /// Checkpoints after a place of a sequence that are missing, by pool, and those that are there
    /// and used by nobody.
    pub(crate) fn missing_checkpoints(&self, slot: u32, place: usize) -> (ByPool, ByPool) {
        let (mut missing, mut idle) = (ByPool::default(), ByPool::default());
        for (saved, pool) in self.checkpoints(slot, place) {
            missing[pool] += usize::from(saved.page == 0);
            idle[pool] += usize::from(saved.page != 0 && !self.own_hung().is_used(saved));
        }
        (missing, idle)
    }

    /// Begins to use the checkpoints that are there after a place of a sequence, or ends it.
    pub(crate) fn use_checkpoints(&mut self, slot: u32, place: usize, begins: bool) {
        let mut there = [None; GROUP_LIMIT];
        for (at, (saved, _)) in there.iter_mut().zip(self.checkpoints(slot, place)) {
            *at = Some(saved).filter(|saved| saved.page != 0);
        }
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
        for saved in there.into_iter().flatten() {
            if begins { hung.begin_use(saved) } else { hung.end_use(saved, None, now) }
        }
    }

    /// Takes the pages of checkpoints, which are free, for copies for which room was made.
    pub(crate) fn begin_checkpoints(&mut self, slot: u32, place: usize) -> usize {
        let mut unsaved = [(0, 0); GROUP_LIMIT];
        let mut count = 0;
        let missing = self.checkpoints(slot, place).filter(|(saved, _)| saved.page == 0);
        for (at, (saved, pool)) in unsaved.iter_mut().zip(missing) {
            *at = (saved.group, pool);
            count += 1;
        }
        let rows = &mut self.sequences[slot as usize].groups;
        for &(group, pool) in &unsaved[..count] {
            let target = self.table.pool_at_mut(pool).take_one(RowOwner::Sequence);
            let (source, positions) = (rows.rows[group][0], self.table.page_size());
            let copy = GroupCopy { group, source, target, positions, saves: Some(place) };
            rows.copies.push(copy);
        }
        count
    }

    /// Leaves the states of a sequence that is about to end to the cache, where it lacks them: they
    /// are those after all that is published. Returns how many; none after positions that end
    /// inside a page, or while a copy is open.
    pub(crate) fn donate_states(&mut self, slot: u32) -> usize {
        let sequence = &self.sequences[slot as usize];
        let (computed, shared) = (sequence.computed, sequence.shared);
        let waits = sequence.copy.is_some() || !sequence.groups.copies().is_empty();
        let waits = waits || sequence.has_unpublished_state();
        // Who is still to copy it would use what hangs on a page that may go before.
        let waits = waits || self.lends_state_behind(slot, shared);
        let ends = computed > 0 && computed == shared * self.table.page_size();
        let Some(base) = sequence.base.filter(|_| ends && !waits) else { return 0 };
        let (groups, place) = (*self.table.groups(), shared - 1);
        let spine = self.table.row(slot).expect("the slot is in use")[place];
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let Some(mut hanging) = cache.begin_hanging() else { return 0 };
        let rows = &mut self.sequences[slot as usize].groups.rows;
        let mut came = [false; GROUP_LIMIT];
        for (group, config) in groups.hung().filter(|(_, group)| group.kind == GroupKind::State) {
            if rows[group].is_empty() || hanging.hung.page(group, spine) != 0 {
                continue;
            }
            let page = HungPage { group, page: rows[group].remove(0) };
            let pool = self.table.pool_at_mut(config.pool as usize);
            pool.claim(&[page.page]);
            hanging.hang(page, spine);
            // Children that are to copy it use it now, where they borrowed it.
            while let Some(child) = pool.first_borrower(page.page) {
                pool.end_loan(page.page, child);
                hanging.hung.begin_use(page);
            }
            came[group] = true;
        }
        drop(hanging);
        if came.contains(&true) {
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let node = cache.index.node_at_page(base, place);
            cache.classify(node, place, place + 1);
            self.note_saved(slot, place, came);
        }
        came.iter().filter(|came| **came).count()
    }
}
