//! The end of a sequence: it is released, or retained for others to go on from.
use super::COPY_IS_OPEN;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::store::{EarlyByPool, KeptWindows, Sequence, Shared, State, Turn};

impl State {
    /// Unlocks once, puts private pages back and gives the slot back.
    pub fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        self.sequence(id)?;
        self.end(id.slot());
        Ok(())
    }

    /// Whether a sequence computed a page in part that is kept with it when it is retained.
    fn has_partial(&self, sequence: &Sequence) -> Result<bool, Error> {
        let page_size = self.table.page_size();
        let has_more = sequence.computed(page_size) > sequence.shared * page_size;
        Ok(self.cache()?.inherits_parts() && has_more)
    }

    /// Whether a sequence is retained when it ends: others may go on from it, and it alone is not
    /// more than the limit allows. Refused for one that may not end yet.
    fn can_be_retained(&self, id: SequenceId) -> Result<bool, Error> {
        let sequence = self.sequence(id)?;
        sequence.check_loaded()?;
        if !sequence.groups.copies().is_empty() {
            return Err(Error::state(COPY_IS_OPEN));
        }
        let pages = sequence.base_pages + self.has_partial(sequence)? as usize;
        Ok(!self.is_cleared(sequence)
            && !sequence.has_unpublished_pages(self.table.page_size())
            && pages <= self.retained.page_limit)
    }

    /// Ends a sequence like `release`, but keeps what was published of it, its tokens, and the page
    /// that was computed in part. The first to finish are to give way to it. Returns what is still
    /// to be given back; None when it can't be retained: it was released then.
    fn retain(
        &mut self,
        id: SequenceId,
        kept: Option<KeptWindows>,
        slice: usize,
    ) -> Result<Option<EarlyByPool>, Error> {
        if !self.can_be_retained(id)? {
            // It was cleared while others were let in.
            self.release(id)?;
            return Ok(None);
        }
        let sequence = self.sequence(id)?;
        let page_size = self.table.page_size();
        let computed = sequence.computed(page_size);
        let shared = sequence.shared;
        debug_assert!((shared..=shared + 1).contains(&computed.div_ceil(page_size)));
        let has_partial = self.has_partial(sequence)?;
        let partial = has_partial.then(|| self.table.row(id.slot()).expect("it is live")[shared]);
        let no_room = |_| Error::memory("a retained sequence");
        // A long one goes along.
        let copy = || sequence.tail.try_clone().map_err(no_room);
        let tail = if sequence.tail.is_long() { None } else { Some(copy()?) };
        self.retained.try_reserve().map_err(no_room)?;

        let slot = id.slot();
        let kept = kept.filter(|&kept| self.are_kept(slot, kept));
        self.end_copy(slot);
        // Of a page in part no group keeps its own where group 0 does not.
        let places = shared + usize::from(has_partial);
        let reserved = self.set_reserved_aside(slot, places, slice);
        if self.has_groups() {
            self.keep_groups(slot, (computed, places));
        }
        self.table.retire_row(slot, shared, partial);
        let mut ended = self.vacate(slot);
        let tail = tail.unwrap_or_else(|| std::mem::take(&mut ended.tail));
        let sequence = Sequence { tail, computed, ..ended };
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        self.retained.add(sequence, (partial, kept), (cache, &self.table));
        Ok(Some(reserved))
    }
}

impl Turn<'_> {
    /// Ends a sequence, and keeps what others go on from. False when it was released instead.
    pub fn retain(&mut self, id: SequenceId) -> Result<bool, Error> {
        if !self.can_be_retained(id)? {
            // Nothing of it is counted meanwhile: others would give way.
            self.release(id)?;
            return Ok(false);
        }
        let held = match self.sequence(id)?.base {
            Some(node) => self.keep_ahead(node)?,
            None => None,
        };
        let (gone, mut chains) = (self.caches_gone, None);
        let kept = match self.has_groups() {
            true => {
                let kept = self.keep_chains_ahead(id, &mut chains);
                kept.and_then(|()| self.keep_windows_ahead(id, &mut chains))
            }
            false => Ok(None),
        };
        let slice = self.shared.slice;
        let retained = kept.and_then(|kept| self.state().retain(id, kept, slice));
        if matches!(retained, Ok(Some(_))) {
            // Before others are let in, who would find more than the limit.
            self.displace_surplus();
        }
        if let Some(held) = held.filter(|_| gone == self.caches_gone) {
            self.end_keeping(held);
        }
        if let Some(chains) = chains {
            self.end_groups_ahead(chains, gone);
        }
        let retained =
            retained.map(|kept| kept.map(|reserved| self.give_all_back(reserved)).is_some());
        self.drop_let_go();
        retained
    }

    /// Ends a sequence like `release`, and leaves its states to the cache: how many.
    pub fn donate(&mut self, id: SequenceId) -> Result<usize, Error> {
        self.sequence(id)?;
        if !self.table.groups().end_with_pages() {
            return Err(Error::unsupported("the page table has no STATE group"));
        }
        let count = self.donate_states(id.slot());
        Turn::release(self, id)?;
        Ok(count)
    }

    /// Ends a sequence, and drops what was cleared and nobody else holds; much of it in slices.
    pub fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        self.sequence(id)?;
        match self.sequences[id.slot() as usize].images.is_empty() {
            true => self.end_in_slices(id.slot()),
            false => self.end_with_images(id.slot()),
        }
        Ok(())
    }

    #[inline]
    fn end_in_slices(&mut self, slot: u32) {
        let has_groups = self.has_groups();
        let pages = self.set_aside(slot);
        if has_groups {
            self.end_with_groups(slot);
        } else if let Some(node) = self.end_locked(slot) {
            self.let_go(node);
        }
        if let Some(list) = pages {
            self.give_back(list);
        }
    }

    /// Ends the sequence of a slot with its images, which go in portions where they are many.
    #[inline(never)]
    fn end_with_images(&mut self, slot: u32) {
        let images = self.set_images_aside(slot);
        self.end_in_slices(slot);
        self.let_images_go(images);
    }

    /// Ends the sequence of a slot with its rows in several groups, which are given up in portions
    /// where they are long: what hangs on pages goes before those can.
    #[inline(never)]
    fn end_with_groups(&mut self, slot: u32) {
        let rows = self.set_rows_aside(slot);
        match (rows, self.end_locked(slot)) {
            (Some(rows), node) => self.end_rows_aside(rows, node),
            (None, Some(node)) => self.let_go(node),
            (None, None) => {}
        }
    }
}

impl Shared {
    /// Drops retained sequences, the first to finish first, until that many more pages of a pool
    /// are available or none is left. Returns how many more are available.
    pub fn drop_retained(&self, pool: u32, pages: usize) -> Result<usize, Error> {
        let mut turn = self.turn();
        let pool = turn.table.check_pool(pool)?;
        turn.cache()?;
        let mut gained = 0;
        while gained < pages {
            let before = turn.room_in(pool);
            if !turn.displace() {
                break;
            }
            // Who was let in meanwhile may have taken some.
            gained += turn.room_in(pool).saturating_sub(before);
            turn.let_others_in();
        }
        Ok(gained)
    }
}
