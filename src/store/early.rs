//! Many pages for one call, or out of one row: they come and go in slices, between which others are
//! let in.
//!
//! What a call knew before it let others in may be wrong afterwards: a row may be longer, a
//! sequence may have ended, its slot may be another one's. So pages come into a list that nobody
//! else can reach, and go where they belong in the end, in one step, after everything was looked up
//! anew by what names it for ever: an id, or a row's own name.
use super::{State, Turn};
use crate::error::Error;
use crate::journal::Reason;

/// What a call still needs, looked at again each time that others were let in.
pub(crate) trait Claim<T> {
    /// Pages that are missing in all, after making sure that those can be had of which there are
    /// not as many as `early` yet.
    fn missing(&self, state: &State, early: usize) -> Result<usize, Error>;

    /// Does what the pages are for. `early` has some of them, the others are free; what is left in
    /// it goes back to the pool. Changes nothing when it fails.
    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<T, Error>;
}

impl State {
    /// Adds missing pages to a row that has room for them: those taken early, then free ones.
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
        let missing = count.saturating_sub(self.table.pool.free());
        if missing > 0 {
            let evicted = self.evict(missing, Reason::Capacity, &mut |_| {});
            assert_eq!(evicted, missing, "what is reclaimable can be evicted");
        }
    }

    fn open_list(&mut self, room: usize) -> Result<u32, Error> {
        let no_room = |_| Error::memory("a list of pages");
        let mut list = Vec::new();
        list.try_reserve_exact(room).map_err(|error| no_room(error.into()))?;
        self.early.try_reserve(1).map_err(no_room)?;
        self.early_bytes += list.capacity() * size_of::<u32>();
        Ok(self.early.insert(list))
    }

    fn close_list(&mut self, list: u32) {
        let pages = self.early.remove(list);
        assert!(pages.is_empty(), "a call keeps no page");
        self.early_bytes -= pages.capacity() * size_of::<u32>();
    }
}

impl Turn<'_> {
    /// Carries out a claim.
    pub(crate) fn carry_out<T>(&mut self, claim: impl Claim<T>) -> Result<T, Error> {
        let missing = claim.missing(self, 0)?;
        if missing <= self.shared.slice {
            return claim.finish(self, missing, &mut Vec::new());
        }
        let list = self.open_list(missing)?;
        let done = match self.take_early(&claim, list) {
            Ok(missing) => {
                let mut early = std::mem::take(&mut self.early[list]);
                let done = claim.finish(self, missing, &mut early);
                self.early[list] = early;
                done
            }
            Err(error) => Err(error),
        };
        self.give_back(list);
        done
    }

    /// Takes pages until at most a slice is missing; returns how many are missing in all.
    fn take_early<T>(&mut self, claim: &impl Claim<T>, list: u32) -> Result<usize, Error> {
        let slice = self.shared.slice;
        loop {
            let taken = self.early[list].len();
            let missing = claim.missing(self, taken)?;
            if missing.saturating_sub(taken) <= slice {
                return Ok(missing);
            }
            let State { early, early_bytes, .. } = self.state();
            let before = early[list].capacity();
            early[list].try_reserve(slice).map_err(|_| Error::memory("a list of pages"))?;
            *early_bytes += (early[list].capacity() - before) * size_of::<u32>();
            self.free_up(slice);
            let State { early, table, .. } = self.state();
            table.pool.take_early(slice, &mut early[list]);
            self.let_others_in();
        }
    }

    /// Takes the private pages of a sequence that ends out of its row, when they are many, to be
    /// given back in slices. Without memory for that they stay.
    pub(crate) fn set_aside(&mut self, slot: u32) -> Option<u32> {
        let shared = self.sequences[slot as usize].shared;
        let private = self.table.row(slot).map_or(0, <[u32]>::len) - shared;
        if private <= self.shared.slice || self.early.try_reserve(1).is_err() {
            return None;
        }
        let pages = self.table.take_private(slot, shared);
        self.early_bytes += pages.capacity() * size_of::<u32>();
        Some(self.early.insert(pages))
    }

    /// Puts back what is left of a list, and ends it.
    pub(crate) fn give_back(&mut self, list: u32) {
        loop {
            for _ in 0..self.shared.slice {
                let Some(page) = self.early[list].pop() else {
                    return self.close_list(list);
                };
                self.table.pool.put_back(page);
            }
            self.let_others_in();
        }
    }
}
