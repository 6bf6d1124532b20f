//! Ranks that compute one model agree on a length: a sequence that has computed nothing reuses less
//! than it could.
use super::COPY_IS_OPEN;
use super::fetch::query;
use crate::error::Error;
use crate::group::{Reached, Seen, Spine, reach};
use crate::ids::SequenceId;
use crate::paging::RowOwner;
use crate::store::{ByPool, Claim, EarlyByPool, State, Turn, no_cache};

/// Pages for positions that a sequence shares and is to compute all the same.
struct ShareLess {
    id: SequenceId,
    positions: usize,
}

impl ShareLess {
    /// The page-wise end of what it keeps.
    fn keep(&self, state: &State) -> Result<usize, Error> {
        let (sequence, page_size) = (state.sequence(self.id)?, state.table.page_size());
        // What slid has computed, too: its windows have let go of what is to come.
        if sequence.computed > sequence.cached_positions || sequence.has_unpublished_state() {
            return Err(Error::state("the sequence has computed already"));
        }
        let end = query(sequence).boundary(self.positions.min(sequence.cached_positions));
        Ok(query(sequence).page_boundary(end, page_size) / page_size)
    }
}

struct RowSpine<'a>(&'a [u32]);

impl Spine for RowSpine<'_> {
    fn page(&mut self, place: usize) -> u32 {
        self.0[place]
    }
}

impl ShareLess {
    /// The same where all groups can go on from what the cache has.
    fn keep_in_groups(&self, state: &State) -> Result<usize, Error> {
        if state.sequence(self.id)?.groups.saves().next().is_some() {
            return Err(Error::state(COPY_IS_OPEN));
        }
        state.check_state_is_own(self.id.slot())?;
        let (page_size, row) = (state.table.page_size(), state.table.row(self.id.slot())?);
        let query = query(state.sequence(self.id)?);
        let fit = |positions| query.page_boundary(query.boundary(positions), page_size);
        let known = self.keep(state)? * page_size;
        let hung = state.hung().ok_or_else(no_cache)?;
        let groups = state.table.groups();
        let known = (Reached::all(known), page_size, Seen::default());
        let reached = reach(groups, hung, known, fit, || RowSpine(row));
        Ok(reached.positions / page_size)
    }
}

impl Claim<()> for ShareLess {
    /// Each takes the place of one that is shared.
    const OWNER: Option<RowOwner> = None;
    const PLACES: bool = true;

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let missing = state.sequence(self.id)?.shared.saturating_sub(self.keep(state)?);
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn place(&mut self, state: &mut State, pages: &[u32]) -> Result<(), Error> {
        let keep = state.sequence(self.id)?.shared - pages.len();
        state.share_first(self.id.slot(), keep, pages);
        Ok(())
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        let (keep, slot) = (self.keep(state)?, self.id.slot());
        let more = missing.saturating_sub(early.len());
        early.try_reserve(more).map_err(crate::memory::OutOfMemory::from)?;
        state.free_up(more);
        state.table.pool.take_early(more, early);
        let first = early.len() - missing;
        state.share_first(slot, keep, &early[first..]);
        early.truncate(first);
        Ok(())
    }
}

impl State {
    /// Puts pages of its own in the place of the last that a sequence shares, so that it shares
    /// the first ones alone.
    fn share_first(&mut self, slot: u32, keep: usize, own: &[u32]) {
        self.end_copy(slot);
        // What was planned with the copy is no good without it.
        self.table.renew(slot);
        for (at, &page) in own.iter().enumerate() {
            self.table.replace_shared(slot, keep + at, page);
        }
        self.sequences[slot as usize].shared = keep;
        self.set_cached(slot, keep * self.table.page_size());
    }
}

impl Turn<'_> {
    /// Makes a sequence that has computed nothing yet reuse no more than so many positions: whole
    /// pages, up to a token's end. Returns how many.
    pub fn share_less(&mut self, id: SequenceId, positions: usize) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        sequence.check_loaded()?;
        if positions < sequence.cached_positions {
            match self.has_groups() {
                false => self.carry_out(ShareLess { id, positions })?,
                true => self.share_less_in_groups(&ShareLess { id, positions })?,
            }
        }
        Ok(self.sequence(id)?.cached_positions)
    }

    /// The same, with one group of layers, while its fetch waits to be agreed on.
    pub fn share_less_in_fetch(&mut self, id: SequenceId, positions: usize) -> Result<(), Error> {
        self.carry_out(ShareLess { id, positions })
    }

    /// The same with several groups of layers: up to where all of them can go on from what the
    /// cache has now.
    fn share_less_in_groups(&mut self, less: &ShareLess) -> Result<(), Error> {
        let mut lists = EarlyByPool::default();
        let done = self.share_less_with(less, &mut lists);
        self.give_all_back(lists);
        self.drop_let_go();
        done
    }

    fn share_less_with(&mut self, less: &ShareLess, lists: &mut EarlyByPool) -> Result<(), Error> {
        let (id, slot) = (less.id, less.id.slot());
        let keep = loop {
            self.sequence(id)?.check_loaded()?;
            let keep = less.keep_in_groups(self)?;
            let lacks = lists.lacks(self, self.missing_for_less(slot, keep));
            self.check_all_rooms(&lacks)?;
            if lacks == ByPool::default() {
                break keep;
            }
            // What goes may be what the end needs: it is looked for again.
            self.take_some_early(lists, &lacks)?;
        };
        self.state().reserve_group_rows(slot, 0)?;
        let state = self.state();
        // In this order: what hangs on a page is let go of before the page, which may go at once.
        state.begin_sharing_less(slot, keep);
        state.end_copy(slot);
        // What was planned with copies is no good without them.
        state.table.renew(slot);
        self.unshare(id, keep, lists)?;
        let positions = keep * self.table.page_size();
        self.state().set_cached(slot, positions);
        Ok(())
    }
}
