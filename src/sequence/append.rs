//! Growing a sequence: pages for the next chunk of its prompt, decoded tokens, and taking draft
//! tokens back.
use super::COPY_IS_OPEN;
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::paging::RowOwner;
use crate::store::{Claim, HeldQuery, Hold, Longer, RowOf, Shared, State, TailOf, Turn};
use crate::token::{ImageSpan, Query, TokenList, position_count};

/// The pages that a row lacks for the first positions of its sequence.
struct Lengthen {
    id: SequenceId,
    positions: usize,
}

impl Claim<()> for Lengthen {
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);

    #[inline]
    fn row(&self, state: &State) -> Option<RowOf> {
        Some(RowOf(state.table.row_id(self.id.slot())))
    }

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let sequence = state.sequence(self.id)?;
        // Its rows are as long as the fetch makes them.
        sequence.check_groups_loaded()?;
        let known = sequence.positions;
        if self.positions > known {
            return Err(Error::argument(text!(
                "position_count {} is more than the sequence's {known} positions",
                self.positions
            )));
        }
        let pages = state.table.pages_for(self.positions, "position_count")?;
        let missing = pages.saturating_sub(state.table.row(self.id.slot())?.len());
        state.check_rows_room(self.id.slot(), pages, missing.saturating_sub(early))?;
        Ok(missing)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        let slot = self.id.slot();
        state.make_room_in_row(slot, missing)?;
        state.extend_row(slot, missing, early);
        Ok(())
    }
}

/// The pages that a sequence lacks for more tokens, and for those before that lack theirs.
struct Append<'a, 'q> {
    id: SequenceId,
    query: &'a mut HeldQuery<'q>,
    /// The tail with the keys behind it, where those are many.
    tail: &'a mut Option<Longer>,
}

impl Claim<()> for Append<'_, '_> {
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);

    #[inline]
    fn row(&self, state: &State) -> Option<RowOf> {
        Some(RowOf(state.table.row_id(self.id.slot())))
    }

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        state.missing_for_append(self.id, self.query.keys().positions, early)
    }

    fn make_room(&mut self, state: &mut State, _: usize) -> Result<(), Error> {
        let query = self.query.keys();
        let of = TailOf(self.id);
        if !self.tail.as_ref().is_some_and(|tail| tail.fits(of, state)) {
            let no_room = |_| Error::memory("the tokens of a sequence");
            state.reserve_tail(self.id.slot(), query.keys.len()).map_err(no_room)?;
        }
        if query.images.is_empty() { Ok(()) } else { state.reserve_images(self.id, query) }
    }

    #[inline]
    fn finish(
        mut self,
        state: &mut State,
        missing: usize,
        early: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let slot = self.id.slot();
        self.make_room(state, missing)?;
        state.make_room_in_row(slot, missing)?;

        // Nothing can fail from here on.
        let has_put = self.tail.as_mut().is_some_and(|tail| tail.put(TailOf(self.id), state));
        let images = state.take_images(self.query);
        let query = self.query.keys();
        let sequence = &mut state.sequences[slot as usize];
        if !has_put {
            sequence.tail.extend(query.keys);
        }
        let start = sequence.positions;
        let shift =
            |span: &ImageSpan| ImageSpan { start: start + span.start, end: start + span.end };
        sequence.image_spans.extend(query.images.iter().map(shift));
        sequence.images.extend_from_slice(&images);
        sequence.positions += query.positions;
        state.extend_row(slot, missing, early);
        Ok(())
    }
}

/// A claim for a row whose pages beside the spine were had before: in the step that carries it out
/// they must still reach as far.
struct InAllGroups<'a, C> {
    id: SequenceId,
    /// Taken when it is carried out.
    claim: &'a mut Option<C>,
    /// They did not: others who were let in made the row longer, or those of groups shorter.
    is_short: &'a mut bool,
}

impl<C: Claim<()>> InAllGroups<'_, C> {
    fn claim(&self) -> &C {
        self.claim.as_ref().expect("it was not carried out")
    }

    fn check_rows(&mut self, state: &State, missing: usize) -> Result<(), Error> {
        let slot = self.id.slot();
        let places = state.table.row(slot)?.len() + missing;
        *self.is_short = state.shortest_group_row(slot, places) < places;
        if *self.is_short { Err(Error::state("rows of groups are shorter")) } else { Ok(()) }
    }
}

impl<C: Claim<()>> Claim<()> for InAllGroups<'_, C> {
    const OWNER: Option<RowOwner> = C::OWNER;

    fn row(&self, state: &State) -> Option<RowOf> {
        self.claim().row(state)
    }

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        self.claim().missing(state, early)
    }

    fn make_room(&mut self, state: &mut State, missing: usize) -> Result<(), Error> {
        self.check_rows(state, missing)?;
        self.claim.as_mut().expect("it was not carried out").make_room(state, missing)
    }

    fn finish(
        mut self,
        state: &mut State,
        missing: usize,
        early: &mut Vec<u32>,
    ) -> Result<(), Error> {
        self.check_rows(state, missing)?;
        self.claim.take().expect("it was not carried out").finish(state, missing, early)
    }
}

impl State {
    /// Refuses pages that can't be had: so many of group 0, with those that the other rows of a
    /// sequence lack for so many places, so that a shortage says all that is needed.
    fn check_rows_room(&self, slot: u32, places: usize, spine: usize) -> Result<(), Error> {
        if !self.has_groups() {
            return self.check_room(spine, 0);
        }
        let mut missing = self.missing_in_groups(slot, places);
        missing[0] += spine;
        self.check_all_rooms(&missing)
    }

    fn missing_for_append(
        &self,
        id: SequenceId,
        positions: usize,
        early: usize,
    ) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        sequence.check_groups_loaded()?;
        let known = sequence.positions;
        let pages = self.table.pages_for(positions.saturating_add(known), "tokens")?;
        let missing = pages.saturating_sub(self.table.row(id.slot())?.len());
        self.check_rows_room(id.slot(), pages, missing.saturating_sub(early))?;
        Ok(missing)
    }

    /// Makes room for more images of a sequence.
    fn reserve_images(&mut self, id: SequenceId, query: Query<'_>) -> Result<(), Error> {
        let sequence = &mut self.sequences[id.slot() as usize];
        let (bytes, count) = (sequence.bytes(), query.images.len());
        let images = sequence.images.try_reserve(count);
        let done = images.and_then(|()| sequence.image_spans.try_reserve(count));
        // Room that was made stays, also when there was not enough of it.
        self.sequence_bytes += sequence.bytes() - bytes;
        done.map_err(|_| Error::memory("the images of a sequence"))
    }

    /// Refuses to give positions up that a child's copy is still to read.
    fn check_borrowers(&self, slot: u32, keep: usize) -> Result<(), Error> {
        let pool = &self.table.pool;
        if !pool.has_loans() {
            return Ok(());
        }
        let page_size = self.table.page_size();
        // No copy reads what is only reserved.
        let used = self.sequences[slot as usize].positions.div_ceil(page_size);
        let pages = self.table.row(slot)?.iter().take(used).enumerate();
        for (index, &page) in pages.skip(keep / page_size) {
            let copies = pool.borrowers(page).map(|child| self.sequences[child as usize].copy);
            let most = copies.flatten().map(|copy| index * page_size + copy.positions).max();
            if let Some(end) = most.filter(|&end| end > keep) {
                return Err(Error::state(text!(
                    "position_count {keep}: a child's copy of positions up to {end} is not \
                     confirmed yet"
                )));
            }
        }
        Ok(())
    }

    /// The place of the state after the first positions of a sequence, among those of the last
    /// step, which computed the tokens since publishing, or sliding, or since some were taken back.
    fn check_states(&self, id: SequenceId, keep: usize, drafts: usize) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        // What slid is computed as well as what is published.
        let said = sequence.groups.accepted.max(sequence.groups.slid);
        let first = sequence.computed.max(said) + 1;
        if keep < first || keep - first > drafts {
            return Err(Error::argument(text!(
                "position_count {keep}: there are states after {first} to {} positions",
                first + drafts
            )));
        }
        if keep > first && !sequence.groups.copies().is_empty() {
            return Err(Error::state(COPY_IS_OPEN));
        }
        Ok(keep - first)
    }

    /// Refuses to go back to where a window, or a chunk, has passed what the next position, or one
    /// behind it, attends to or is written to: publishing lets them slide to what is computed, also
    /// inside a page.
    fn check_windows(&self, id: SequenceId, keep: usize) -> Result<(), Error> {
        let (sequence, page_size) = (self.sequence(id)?, self.table.page_size());
        for (group, config) in self.table.groups().hung().filter(|(_, of)| of.kind.slides()) {
            let needs = config.kind.needs(keep, page_size).expect("sliding groups end anywhere");
            // What slid is a run of places that begins behind the sinks, so none is behind the
            // first one there that is needed when that one is there; also where less than the sinks
            // is kept.
            let first = needs.last.start.max(config.kind.sinks(page_size));
            if sequence.groups.row(group).get(first) == Some(&0) {
                return Err(Error::state(text!(
                    "position_count {keep}: group {group} has let go of what the next positions \
                     attend to"
                )));
            }
        }
        Ok(())
    }

    /// Keeps the first positions of a sequence; the row keeps its pages.
    pub fn truncate(&mut self, id: SequenceId, keep: usize) -> Result<(), Error> {
        let sequence = self.sequence(id)?;
        // A tier may be writing to a state that would be moved.
        sequence.check_groups_loaded()?;
        let drafts = self.table.groups().draft_states();
        if drafts == Some(0) {
            return Err(Error::unsupported(
                "a state can't be taken back to an earlier position without draft_state_count",
            ));
        }
        let published = sequence.shared * self.table.page_size();
        let least = sequence.prompt_positions.max(published);
        if keep < least || keep > sequence.positions {
            return Err(Error::argument(text!(
                "position_count {keep} is not between the {least} of the prompt and of what is \
                 published, and the sequence's {}",
                sequence.positions
            )));
        }
        let spans = &sequence.image_spans;
        let next = spans.partition_point(|image| image.end <= keep);
        if spans.get(next).is_some_and(|image| image.start < keep) {
            return Err(Error::argument(text!("position_count {keep} is inside an image")));
        }
        self.check_windows(id, keep)?;
        self.check_borrowers(id.slot(), keep)?;
        let accepted = match drafts {
            None => 0,
            Some(drafts) => self.check_states(id, keep, drafts)?,
        };
        if accepted > 0 {
            self.accept_state(id.slot(), accepted, keep);
        }
        let sequence = &mut self.sequences[id.slot() as usize];
        let dropped = sequence.positions - keep;
        if dropped > 0 {
            // What was planned with them is no good for the tokens that come in their place.
            self.table.renew(id.slot());
        }
        sequence.tail.drop_last(dropped);
        sequence.positions = keep;
        sequence.computed = sequence.computed.min(keep);
        sequence.groups.slid = sequence.groups.slid.min(keep);
        let kept = sequence.image_spans.partition_point(|image| image.start < keep);
        sequence.image_spans.truncate(kept);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.images.release(&sequence.images[kept..]);
        sequence.images.truncate(kept);
        Ok(())
    }
}

impl Turn<'_> {
    /// Makes the row of a sequence long enough for its first positions.
    pub fn allocate(&mut self, id: SequenceId, positions: usize) -> Result<(), Error> {
        self.carry_out_in_all_groups(id, Lengthen { id, positions })
    }

    /// Carries out a claim of more pages for a sequence: with several groups, for all its rows.
    fn carry_out_in_all_groups(
        &mut self,
        id: SequenceId,
        claim: impl Claim<()>,
    ) -> Result<(), Error> {
        if !self.has_groups() {
            return self.carry_out(claim);
        }
        let mut claim = Some(claim);
        loop {
            let mut is_short = false;
            let done = self.try_in_all_groups(id, &mut claim, &mut is_short);
            // Another thread that grows the same sequence comes in between: once more.
            if !is_short {
                return done.inspect_err(|_| self.shorten_groups(id));
            }
        }
    }

    fn try_in_all_groups<C: Claim<()>>(
        &mut self,
        id: SequenceId,
        claim: &mut Option<C>,
        is_short: &mut bool,
    ) -> Result<(), Error> {
        let open = claim.as_mut().expect("it was not carried out");
        let spine = open.missing(self, 0)?;
        let spine = self.make_room_for(open, spine)?;
        let places = self.table.row(id.slot())?.len() + spine;
        self.extend_groups(id, places, spine)?;
        self.carry_out(InAllGroups { id, claim, is_short })
    }

    /// Adds tokens to a sequence.
    pub fn append(&mut self, id: SequenceId, tokens: TokenList<'_>) -> Result<(), Error> {
        self.sequence(id)?;
        let positions = position_count(tokens)?;
        if !tokens.items.is_empty() {
            // What can't be had is said before its keys are made.
            self.missing_for_append(id, positions, 0)?;
        }
        let mut query = self.hold_query(tokens, Hold::All)?;
        let ahead = self.check_text_ahead(&mut query, 0);
        let is_text = ahead.and_then(|_| query.keys().check_text(0));
        let done = is_text.and_then(|()| self.append_query(id, &mut query));
        self.end_query(query);
        done
    }

    fn append_query(&mut self, id: SequenceId, query: &mut HeldQuery<'_>) -> Result<(), Error> {
        let Query { keys, positions, .. } = query.keys();
        let portion = self.shared.read_portion();
        let is_long = keys.len() > portion || self.moves_long(TailOf(id), keys.len());
        if !is_long {
            return self.carry_out_in_all_groups(id, Append { id, query, tail: &mut None });
        }
        // What can't be had is said before anything is copied.
        self.missing_for_append(id, positions, 0)?;
        let mut longer = self.longer(TailOf(id), keys.len())?;
        self.unlocked(|| longer.extend(keys));
        let mut tail = Some(longer);
        let done = self.carry_out_in_all_groups(id, Append { id, query, tail: &mut tail });
        // What was there before is given back to the system.
        self.unlocked(|| drop(tail));
        done
    }
}

impl Shared {
    /// Makes the row of a sequence long enough for its first positions.
    pub fn allocate(&self, id: SequenceId, positions: usize) -> Result<(), Error> {
        self.turn().allocate(id, positions)
    }

    /// Adds tokens to a sequence.
    pub fn append(&self, id: SequenceId, tokens: TokenList<'_>) -> Result<(), Error> {
        self.turn().append(id, tokens)
    }
}
