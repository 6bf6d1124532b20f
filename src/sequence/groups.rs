//! Sequences with several groups: pages of all pools for their rows, states that are saved, windows
//! that slide.
use super::COPY_IS_OPEN;
use crate::error::{Error, text};
use crate::ids::SequenceId;
use crate::paging::PageCopy;
use crate::store::{ByPool, GroupCopy, GroupRowOf, Sequence, State, Turn};

impl State {
    /// The row of a sequence in a group, from an index on.
    pub fn group_row(
        &self,
        id: SequenceId,
        group: usize,
        first_index: usize,
    ) -> Result<&[u32], Error> {
        let sequence = self.sequence(id)?;
        if group >= self.group_count() {
            let count = self.group_count();
            return Err(Error::argument(text!(
                "group {group} is not one of the {count} there are"
            )));
        }
        let row = match group {
            0 => self.table.row(id.slot())?,
            _ => sequence.groups.row(group),
        };
        row.get(first_index..).ok_or_else(|| {
            Error::argument(text!("first_index {first_index} is beyond the row's {}", row.len()))
        })
    }

    /// The copies that a sequence waits for: of the spine, and of the other groups.
    pub fn open_copies(&self, id: SequenceId) -> Result<(Option<PageCopy>, &[GroupCopy]), Error> {
        let sequence = self.sequence(id)?;
        sequence.check_groups_loaded()?;
        Ok((sequence.copy, sequence.groups.copies()))
    }

    /// Refuses pages that can't be had, of any pool.
    pub(crate) fn check_all_rooms(&self, missing: &ByPool) -> Result<(), Error> {
        let pools = 0..self.table.pool_count();
        pools.into_iter().try_for_each(|pool| self.check_pool_room(pool, missing[pool], 0))
    }

    /// The place of a sequence's end, as far as it is computed and the cache has it: where a state
    /// can be saved.
    fn place_to_save(&self, id: SequenceId) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        if !self.table.groups().end_with_pages() {
            return Err(Error::unsupported("the page table has no STATE group"));
        }
        sequence.check_loaded()?;
        if sequence.copy.is_some() || !sequence.groups.copies().is_empty() {
            return Err(Error::state(COPY_IS_OPEN));
        }
        if sequence.has_unpublished_state() {
            return Err(Error::state("the state is after tokens that are not published yet"));
        }
        let page_size = self.table.page_size();
        let (computed, shared) = (sequence.computed, sequence.shared);
        if computed == 0 || computed != shared * page_size {
            return Err(Error::state(text!(
                "a state can be saved where a published page ends: {computed} positions are \
                 computed, {} published",
                shared * page_size
            )));
        }
        Ok(shared - 1)
    }

    fn check_slide(&self, id: SequenceId, computed: usize) -> Result<(), Error> {
        // What has no pages was not computed: pages that it still needs would go.
        self.check_in_row(id, computed, Sequence::check_groups_loaded)
    }

    /// Begins to save the states of a sequence: pages for the checkpoints, and the copies that fill
    /// them. Returns how many there are to carry out; none when all are saved already.
    pub fn checkpoint(&mut self, id: SequenceId) -> Result<usize, Error> {
        let (slot, place) = (id.slot(), self.place_to_save(id)?);
        self.reserve_group_rows(slot, 0)?;
        // Some may be saved already: room for the others is not made of those.
        let (missing, idle) = self.missing_checkpoints(slot, place);
        for pool in 0..self.table.pool_count() {
            self.check_pool_room(pool, missing[pool], idle[pool])?;
        }
        self.use_checkpoints(slot, place, true);
        let pools = 0..self.table.pool_count();
        pools.into_iter().for_each(|pool| self.free_up_pool(pool, missing[pool]));
        self.use_checkpoints(slot, place, false);
        let count = self.begin_checkpoints(slot, place);
        if count == 0 {
            self.note_saved(slot, place, Default::default());
        }
        Ok(count)
    }
}

impl Turn<'_> {
    /// Lets the windows of a sequence slide without publishing, a slice of pages at a time from the
    /// first on: pages that nobody published go back to their pools.
    pub fn slide(&mut self, id: SequenceId, computed: usize) -> Result<(), Error> {
        self.check_slide(id, computed)?;
        if !self.has_groups() {
            return Ok(());
        }
        // The states are after those, too.
        let rows = &mut self.state().sequences[id.slot() as usize].groups;
        rows.slid = rows.slid.max(computed);
        let groups = *self.table.groups();
        for (group, config) in groups.hung().filter(|(_, group)| group.kind.slides()) {
            loop {
                let passed = self.passed_places(id.slot(), (group, config), computed);
                let row = &self.sequences[id.slot() as usize].groups.row(group)[passed.clone()];
                let first = passed.start + row.partition_point(|&page| page == 0);
                let end = passed.end.min(first + self.shared.slice);
                self.state().slide_group(id.slot(), group, first..end);
                if end == passed.end {
                    break;
                }
                self.let_waiting_in();
                self.check_slide(id, computed)?;
            }
        }
        Ok(())
    }

    /// Makes the rows of a sequence in all groups beside the spine so many places long, a slice at
    /// a time, after making sure that `spine` more pages of pool 0 can be had. Where that fails
    /// they may be longer than they were.
    pub(super) fn extend_groups(
        &mut self,
        id: SequenceId,
        places: usize,
        spine: usize,
    ) -> Result<(), Error> {
        let slot = id.slot();
        loop {
            if self.sequences.get(slot as usize).is_none_or(|place| place.id != Some(id)) {
                return Err(Error::StaleSequence(id.0));
            }
            if self.make_room_in_group_rows(id, places)? {
                continue;
            }
            self.reserve_group_rows(slot, places)?;
            let mut missing = self.missing_in_groups(slot, places);
            missing[0] += spine;
            self.check_all_rooms(&missing)?;
            let end = places.min(self.shortest_group_row(slot, places) + self.shared.slice);
            let missing = self.missing_in_groups(slot, end);
            if self.make_pools_free(&missing)? {
                continue;
            }
            self.extend_group_rows(slot, end);
            if end == places {
                return Ok(());
            }
            self.let_waiting_in();
        }
    }

    /// Makes room for so many places in the rows of groups that are long. Whether others were let
    /// in.
    pub(super) fn make_room_in_group_rows(
        &mut self,
        id: SequenceId,
        places: usize,
    ) -> Result<bool, Error> {
        let groups = *self.table.groups();
        for (group, config) in groups.hung() {
            let rows = &self.sequences[id.slot() as usize].groups;
            let has = if rows.is_empty() { 0 } else { rows.row(group).len() };
            let (of, more) = (GroupRowOf(id, group), config.row_pages(places).saturating_sub(has));
            if has > 0 && more > 0 && self.moves_long(of, more) {
                self.make_room_in_long(of, more)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Undoes `extend_groups` when the row of the spine doesn't get its pages.
    pub(super) fn shorten_groups(&mut self, id: SequenceId) {
        let slot = id.slot();
        let place = self.sequences.get(slot as usize).filter(|place| place.id == Some(id));
        // While it is loading its rows are the fetch's.
        if place.is_some_and(|place| !place.is_loading) {
            let places = self.table.row(slot).map_or(0, <[u32]>::len);
            // A plan names no more places than the spine has.
            self.cut_group_rows(slot, places);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::group::{GroupConfig, GroupKind, Groups};
    use crate::index::Namespace;
    use crate::paging::{MorePools, PageTableConfig};
    use crate::sequence::Room;
    use crate::store::{CacheConfig, GroupRowOf, Shared};
    use crate::token::TokenList;

    /// Another thread finds too few pages for all rows, gives back those of one, and comes again:
    /// they are other ones then, which a copy that was made before must not hide.
    #[test]
    fn a_row_that_was_cut_and_grew_again_is_another_one() {
        let window = GroupKind::Window { window: 64, sinks: 0 }.in_pool(1);
        let config = PageTableConfig {
            page_size: 1,
            page_count: 100,
            slot_count: 1,
            groups: Groups::new(&[GroupConfig::default(), window]).unwrap(),
            more_pools: MorePools::new(&[100]).unwrap(),
            ..PageTableConfig::default()
        };
        let shared = Shared::new(config).unwrap();
        shared.attach_cache(CacheConfig::default()).unwrap();
        let ids: Vec<u32> = (0..40).collect();
        let room = Room { reserve: 0, first: 4 };
        let begun = shared.begin(&Namespace::default(), TokenList::text(&ids), room).unwrap();
        let (row, mut turn) = (GroupRowOf(begun.id, 1), shared.turn());
        turn.state().reserve_group_rows(begun.slot, 40).unwrap();
        turn.state().extend_group_rows(begun.slot, 40);
        let copy = turn.longer(row, 8).unwrap();
        assert!(copy.fits(row, &turn));
        turn.state().cut_group_rows(begun.slot, 4);
        turn.state().extend_group_rows(begun.slot, 40);
        assert!(!copy.fits(row, &turn));
        turn.state().cut_group_rows(begun.slot, 4);
    }
}
