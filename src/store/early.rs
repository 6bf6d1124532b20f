//! Many pages for one call, or out of one row: they come and go in slices, between which others are
//! let in.
//!
//! What a call knew before it let others in may be wrong afterwards: a row may be longer, a
//! sequence may have ended, its slot may be another one's. So pages come into a list that nobody
//! else can reach, and go where they belong in the end, in one step, after everything was looked up
//! anew by what names it for ever: an id, or a row's own name.
use super::group_rows::ByPool;
use super::longer::{Longer, RowOf};
use super::{State, Turn};
use crate::error::Error;
use crate::group::GROUP_LIMIT;
use crate::index::Portion;
use crate::journal::Reason;
use crate::memory::Slab;
use crate::paging::RowOwner;

/// Pages on their way between a pool and whoever calls.
#[derive(Debug, Default)]
pub(crate) struct EarlyPages {
    pub(super) pool: usize,
    pub(super) pages: Vec<u32>,
    /// So many of the first are where they belong already.
    placed: usize,
}

impl EarlyPages {
    /// Pages that are to be given back, and holes among them.
    pub(super) fn all(pool: usize, pages: Vec<u32>) -> Self {
        Self { pool, pages, placed: 0 }
    }
}

/// Lists of such pages, one of each pool that has any.
#[derive(Debug, Default)]
pub(crate) struct EarlyByPool([Option<u32>; GROUP_LIMIT]);

impl EarlyByPool {
    /// The list of a pool for which room was made.
    pub(super) fn of<'a>(&self, early: &'a mut Slab<EarlyPages>, pool: usize) -> &'a mut Vec<u32> {
        let list = self.0[pool].expect("room was made for pages of the pool");
        &mut early[list].pages
    }

    /// Of what is missing, by pool, what does not lie here yet.
    pub(crate) fn lacks(&self, state: &State, mut missing: ByPool) -> ByPool {
        for (missing, list) in missing.iter_mut().zip(self.0) {
            let has = list.map_or(0, |list| state.early[list].pages.len());
            *missing = missing.saturating_sub(has);
        }
        missing
    }

    /// Takes one of a pool, of which one is here.
    pub(super) fn take(&self, early: &mut Slab<EarlyPages>, pool: usize) -> u32 {
        self.of(early, pool).pop().expect("it was seen that a page is there")
    }
}

/// What a call still needs, looked at again each time that others were let in.
pub(crate) trait Claim<T> {
    /// Whose rows the pages come into. Those of a sequence are marked as such at once: nobody else
    /// may do anything with them, and in the end they need only be copied.
    const OWNER: Option<RowOwner>;
    /// Whether pages go where they belong in slices, once all are there. Otherwise all go there in
    /// the end.
    const PLACES: bool = false;

    /// The row that gets longer.
    fn row(&self, _: &State) -> Option<RowOf> {
        None
    }

    /// Pages that are missing in all, after making sure that those can be had of which there are
    /// not as many as `early` yet.
    fn missing(&self, state: &State, early: usize) -> Result<usize, Error>;

    /// Makes the room that `finish` needs beside that in the row, so that it can't fail any more
    /// and pages may be evicted for it before.
    fn make_room(&mut self, _: &mut State, _missing: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Puts some pages where they belong.
    fn place(&mut self, _: &mut State, _pages: &[u32]) -> Result<(), Error> {
        unreachable!("they go there in the end")
    }

    /// Does what the pages are for. `early` has some of them, the others are free; what is left in
    /// it goes back to the pool. Changes nothing when it fails.
    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<T, Error>;
}

impl State {
    /// Makes room for so many pages more in a row.
    pub(crate) fn make_room_in_row(&mut self, slot: u32, more: usize) -> Result<(), Error> {
        let pages = self.table.row(slot)?.len() + more;
        self.table.reserve_row(slot, pages).map_err(|_| Error::memory("a row"))
    }

    /// Adds missing pages to a row that has room for them: those taken early, then free ones.
    #[inline(always)]
    pub(crate) fn extend_row(&mut self, slot: u32, missing: usize, early: &mut Vec<u32>) {
        let first = early.len().saturating_sub(missing);
        self.table.extend_taken(slot, &early[first..]);
        let more = missing - (early.len() - first);
        early.truncate(first);
        self.free_up(more);
        self.table.extend_private(slot, more);
    }

    /// Evicts until the pool has so many pages. It was seen that this can be done.
    pub(crate) fn free_up(&mut self, count: usize) {
        // More than once only if a tier is copying what goes.
        while let missing @ 1.. = count.saturating_sub(self.table.pool.free()) {
            let evicted = self.evict(Portion::of(missing), Reason::Capacity, &mut |_, _| {});
            assert!(evicted > 0, "what is reclaimable can be evicted");
        }
    }

    /// Pages of a pool that are on their way.
    pub(super) fn early_of(&self, pool: usize) -> impl Iterator<Item = u32> {
        let lists = self.early.iter().filter(move |list| list.pool == pool);
        let pages = lists.flat_map(|list| list.pages[list.placed..].iter().copied());
        pages.filter(|&page| page != 0)
    }

    fn open_list(&mut self, pool: usize, room: usize) -> Result<u32, Error> {
        let no_room = |_| Error::memory("a list of pages");
        let mut pages = Vec::new();
        pages.try_reserve_exact(room).map_err(|error| no_room(error.into()))?;
        self.early.try_reserve(1).map_err(no_room)?;
        self.early_bytes += pages.capacity() * size_of::<u32>();
        Ok(self.early.insert(EarlyPages::all(pool, pages)))
    }

    /// Opens lists with room for so many pages of each pool; none without memory for all.
    pub(super) fn open_lists(&mut self, counts: &ByPool) -> Option<EarlyByPool> {
        let mut rooms: [Vec<u32>; GROUP_LIMIT] = Default::default();
        let mut lacking = rooms.iter_mut().zip(counts);
        let has_room = lacking.all(|(room, &count)| room.try_reserve_exact(count).is_ok());
        if !has_room || self.early.try_reserve(GROUP_LIMIT).is_err() {
            return None;
        }
        let mut lists = EarlyByPool::default();
        for (pool, room) in rooms.into_iter().enumerate().filter(|&(pool, _)| counts[pool] > 0) {
            self.early_bytes += room.capacity() * size_of::<u32>();
            lists.0[pool] = Some(self.early.insert(EarlyPages::all(pool, room)));
        }
        Some(lists)
    }

    fn make_room_in_list(&mut self, list: u32, count: usize) -> Result<(), Error> {
        let Self { early, early_bytes, .. } = self;
        let pages = &mut early[list].pages;
        let before = pages.capacity();
        pages.try_reserve(count).map_err(|_| Error::memory("a list of pages"))?;
        *early_bytes += (pages.capacity() - before) * size_of::<u32>();
        Ok(())
    }

    fn close_list(&mut self, list: u32) {
        let EarlyPages { pages, .. } = self.early.remove(list);
        assert!(pages.is_empty(), "a call keeps no page");
        self.early_bytes -= pages.capacity() * size_of::<u32>();
        self.housekeeping.discard(pages);
    }
}

impl Turn<'_> {
    /// Carries out a claim.
    #[inline(always)]
    pub(crate) fn carry_out<T>(&mut self, claim: impl Claim<T>) -> Result<T, Error> {
        let missing = claim.missing(self, 0)?;
        let moves_long = |row| missing > 0 && self.moves_long(row, missing);
        if missing <= self.table.pool.free().min(self.shared.pool_slice)
            && !claim.row(self).is_some_and(moves_long)
        {
            return claim.finish(self, missing, &mut Vec::new());
        }
        self.carry_out_in_steps(claim, missing)
    }

    /// The same for many pages, or where some must be evicted first.
    #[inline(never)]
    fn carry_out_in_steps<T>(
        &mut self,
        mut claim: impl Claim<T>,
        mut missing: usize,
    ) -> Result<T, Error> {
        while missing <= self.shared.pool_slice {
            missing = self.make_room_for(&mut claim, missing)?;
            if !self.make_free(missing) {
                return claim.finish(self, missing, &mut Vec::new());
            }
            missing = claim.missing(self, 0)?;
        }
        let list = self.open_list(0, missing)?;
        let done = self.carry_out_early(claim, list);
        self.give_back(list);
        done
    }

    /// Makes the room that a claim needs, in its row too; returns how many pages are missing then.
    pub(crate) fn make_room_for<T>(
        &mut self,
        claim: &mut impl Claim<T>,
        mut missing: usize,
    ) -> Result<usize, Error> {
        if let Some(row) = claim.row(self) {
            self.make_room_in_long(row, missing)?;
            missing = claim.missing(self, 0)?;
            self.make_room_in_row(row.0.slot, missing)?;
        }
        claim.make_room(self, missing).map(|()| missing)
    }

    /// The same with pages that come to a list first.
    fn carry_out_early<T, C: Claim<T>>(&mut self, mut claim: C, list: u32) -> Result<T, Error> {
        let mut missing = self.take_early(&claim, list)?;
        let row = claim.row(self);
        if C::PLACES {
            if let Some(row) = row {
                self.make_room_in_long(row, missing)?;
            }
            missing = self.place_early(&mut claim, list)?;
        } else if let Some(row) = row {
            return self.carry_out_beside(claim, row, list);
        }
        self.with_early(list, |state, early| claim.finish(state, missing, early))
    }

    /// The same for a sequence's row: it is copied, and the pages are added to the copy.
    fn carry_out_beside<T>(
        &mut self,
        mut claim: impl Claim<T>,
        row: RowOf,
        list: u32,
    ) -> Result<T, Error> {
        let taken = self.early[list].pages.len();
        // Somebody else may have made the row longer.
        let more = claim.missing(self, taken)?.max(taken);
        let copied = self.longer(row, more).map(|longer| self.add_early(longer, list));
        // What else is wrong is said first.
        let mut missing = claim.missing(self, taken)?;
        let mut longer = copied?;
        claim.make_room(self, missing)?;
        let added = longer.added();
        let done = self.with_early(list, |state, early| {
            if (added..=longer.room()).contains(&missing) && longer.put(row, state) {
                missing -= added;
                early.clear();
            }
            claim.finish(state, missing, early)
        });
        self.unlocked(|| drop(longer));
        done
    }

    /// Adds the pages of a list to the copy of a row.
    fn add_early(&mut self, mut longer: Longer, list: u32) -> Longer {
        let (portion, count) = (self.shared.read_portion(), self.early[list].pages.len());
        for at in (0..count).step_by(portion) {
            self.let_waiting_in();
            longer.extend(&self.early[list].pages[at..count.min(at + portion)]);
        }
        longer
    }

    /// Lends the pages of a list to a step that changes the state too.
    fn with_early<R>(&mut self, list: u32, step: impl FnOnce(&mut State, &mut Vec<u32>) -> R) -> R {
        let mut early = std::mem::take(&mut self.early[list].pages);
        let done = step(self, &mut early);
        self.early[list].pages = early;
        done
    }

    /// Puts early pages where they belong until a slice is left; returns how many are missing.
    fn place_early<T, C: Claim<T>>(&mut self, claim: &mut C, list: u32) -> Result<usize, Error> {
        let left = self.place_slices(claim, list);
        let EarlyPages { pages, placed, .. } = &mut self.early[list];
        pages.drain(..std::mem::take(placed));
        left
    }

    fn place_slices<T, C: Claim<T>>(&mut self, claim: &mut C, list: u32) -> Result<usize, Error> {
        let slice = self.shared.pool_slice;
        loop {
            let EarlyPages { pages, placed, .. } = &self.early[list];
            let some = *placed..*placed + slice;
            let missing = claim.missing(self, pages.len() - some.start)?;
            if some.end >= pages.len() || missing <= slice {
                return Ok(missing);
            }
            self.with_early(list, |state, early| claim.place(state, &early[some.clone()]))?;
            self.early[list].placed = some.end;
            self.let_others_in();
        }
    }

    /// Takes pages until at most a slice is missing, or none where they are placed in slices: what
    /// is placed can't be given back. Returns how many are missing in all.
    fn take_early<T, C: Claim<T>>(&mut self, claim: &C, list: u32) -> Result<usize, Error> {
        let most_missing = if C::PLACES { 0 } else { self.shared.pool_slice };
        loop {
            let taken = self.early[list].pages.len();
            let missing = claim.missing(self, taken)?;
            let left = missing.saturating_sub(taken);
            if left <= most_missing {
                return Ok(missing);
            }
            let slice = left.min(self.shared.pool_slice);
            self.make_room_in_list(list, slice)?;
            self.make_free(slice);
            let State { early, table, .. } = self.state();
            let count = slice.min(table.pool.free());
            match C::OWNER {
                Some(owner @ RowOwner::Sequence) => {
                    table.pool.take_for_row(owner, count, &mut early[list].pages);
                }
                _ => table.pool.take_early(count, &mut early[list].pages),
            }
            self.let_others_in();
        }
    }

    /// Evicts until the pool has so many pages, or nothing is left to evict. Between two portions
    /// who waits gets in: true if anybody did, who may have taken what there was.
    fn make_free(&mut self, count: usize) -> bool {
        let mut let_in = false;
        loop {
            let missing = count.saturating_sub(self.table.pool.free());
            if missing == 0 {
                return let_in;
            }
            let most = self.shared.portion(missing);
            let evicted = self.evict(most, Reason::Capacity, &mut |_, _| {});
            if evicted == 0 {
                return let_in;
            }
            let_in |= evicted < missing && self.let_waiting_in();
        }
    }

    /// Adds a slice of what is missing, by pool, to lists. It was seen that it can be had.
    pub(crate) fn take_some_early(
        &mut self,
        lists: &mut EarlyByPool,
        missing: &ByPool,
    ) -> Result<(), Error> {
        let slice = missing.map(|count| count.min(self.shared.pool_slice));
        for pool in 0..self.table.pool_count() {
            match lists.0[pool] {
                None if missing[pool] > 0 => {
                    lists.0[pool] = Some(self.open_list(pool, missing[pool])?);
                }
                Some(list) => self.make_room_in_list(list, slice[pool])?,
                None => {}
            }
        }
        self.make_pools_free(&slice)?;
        for (pool, &count) in slice.iter().enumerate() {
            let State { early, table, .. } = self.state();
            if let Some(list) = lists.0[pool] {
                let pool = table.pool_at_mut(pool);
                pool.take_early(count.min(pool.free()), &mut early[list].pages);
            }
        }
        self.let_waiting_in();
        Ok(())
    }

    /// Takes many pages of a pool for the caller, who has room for them, all or none.
    pub(super) fn take_loose_in_slices(
        &mut self,
        pool: usize,
        count: usize,
        pages: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let (mut lists, mut missing) = (EarlyByPool::default(), ByPool::default());
        missing[pool] = count;
        let taken = loop {
            let lacks = lists.lacks(self, missing);
            if lacks[pool] == 0 {
                break Ok(());
            }
            let some = self.check_pool_room(pool, lacks[pool], 0);
            if let Err(error) = some.and_then(|()| self.take_some_early(&mut lists, &lacks)) {
                break Err(error);
            }
        };
        if taken.is_ok() {
            let (list, slice) =
                (lists.0[pool].expect("all of them are there"), self.shared.pool_slice);
            for done in (0..count).step_by(slice) {
                let State { early, table, .. } = self.state();
                let EarlyPages { pages: taken, placed, .. } = &mut early[list];
                *placed = count.min(done + slice);
                table.pool_at_mut(pool).hand_over(&taken[done..*placed], None);
                pages.extend_from_slice(&taken[done..*placed]);
                self.let_waiting_in();
            }
            let EarlyPages { pages, placed, .. } = &mut self.state().early[list];
            (*placed, _) = (0, pages.clear());
        }
        self.give_all_back(lists);
        taken
    }

    /// Puts back what is left of lists, and ends them.
    pub(crate) fn give_all_back(&mut self, lists: EarlyByPool) {
        lists.0.into_iter().flatten().for_each(|list| self.give_back(list));
    }

    /// Takes the private pages of a sequence that ends out of its row, when they are many, to be
    /// given back in slices. Without memory for that they stay.
    pub(crate) fn set_aside(&mut self, slot: u32) -> Option<u32> {
        let shared = self.sequences[slot as usize].shared;
        let private = self.table.row(slot).map_or(0, <[u32]>::len) - shared;
        if private <= self.shared.pool_slice || self.early.try_reserve(1).is_err() {
            return None;
        }
        let pages = self.table.take_private(slot, shared);
        self.early_bytes += pages.capacity() * size_of::<u32>();
        Some(self.early.insert(EarlyPages::all(0, pages)))
    }

    /// Puts loose pages of a pool back, all or none; many in slices. First all of them are taken
    /// out of the caller's hands, or it turns out that one is not in them.
    pub fn free_pages(&mut self, pool: u32, pages: &[u32]) -> Result<(), Error> {
        let (slice, at) = (self.shared.pool_slice, self.table.check_pool(pool)?);
        self.table.pool_at(at).check_own()?;
        // Without memory for a list they go at once.
        let list = if pages.len() > slice { self.open_list(at, pages.len()).ok() } else { None };
        let Some(list) = list else {
            return self.table.pool_at_mut(at).free_loose(pages);
        };
        for (done, some) in pages.chunks(slice).enumerate() {
            let State { early, table, .. } = self.state();
            let (pool, list_pages) = (table.pool_at_mut(at), &mut early[list].pages);
            let withdrawn = pool.withdraw(some);
            list_pages.extend_from_slice(&some[..withdrawn.err().unwrap_or(some.len())]);
            if let Err(wrong) = withdrawn {
                let error = pool.not_loose(pages, done * slice + wrong);
                self.hand_back(list);
                return Err(error);
            }
            self.let_others_in();
        }
        self.give_back(list);
        Ok(())
    }

    /// Makes the pages of a list loose again, and ends it.
    #[cold]
    fn hand_back(&mut self, list: u32) {
        loop {
            let slice = self.shared.pool_slice;
            let State { early, table, .. } = self.state();
            let EarlyPages { pool, pages, .. } = &mut early[list];
            let left = pages.len().saturating_sub(slice);
            table.pool_at_mut(*pool).hand_over(&pages[left..], None);
            pages.truncate(left);
            if left == 0 {
                return self.close_list(list);
            }
            self.let_others_in();
        }
    }

    /// Puts back what is left of a list, and ends it.
    pub(crate) fn give_back(&mut self, list: u32) {
        loop {
            for _ in 0..self.shared.pool_slice {
                let EarlyPages { pool, pages, .. } = &mut self.early[list];
                let (pool, Some(page)) = (*pool, pages.pop()) else {
                    return self.close_list(list);
                };
                if page != 0 {
                    self.table.pool_at_mut(pool).put_back(page);
                }
            }
            self.let_others_in();
        }
    }
}
