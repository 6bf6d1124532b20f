//! Growing a sequence: pages for the next chunk of its prompt, decoded tokens, and taking draft
//! tokens back.
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::memory::TryGrow;
use crate::paging::RowOwner;
use crate::store::{Claim, Shared, State, Turn};
use crate::token::{ImageSpan, TokenList, position_count, with_query};

/// The pages that a row lacks for the first positions of its sequence.
struct Lengthen {
    id: SequenceId,
    positions: usize,
}

impl Claim<()> for Lengthen {
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let known = state.sequence(self.id)?.positions;
        if self.positions > known {
            return Err(Error::argument(text!(
                "position_count {} is more than the sequence's {known} positions",
                self.positions
            )));
        }
        let pages = state.table.pages_for(self.positions, "position_count")?;
        let missing = pages.saturating_sub(state.table.row(self.id.slot())?.len());
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn make_room(&mut self, state: &mut State, missing: usize) -> Result<bool, Error> {
        state.make_room_in_row(self.id.slot(), missing).map(|()| true)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        let slot = self.id.slot();
        state.make_room_in_row(slot, missing)?;
        state.extend_row(slot, missing, early);
        Ok(())
    }
}

/// The pages that a sequence lacks for more tokens, and for those before that lack theirs.
struct Append<'a> {
    id: SequenceId,
    tokens: TokenList<'a>,
    /// Those of the tokens, which are good.
    positions: usize,
}

impl Claim<()> for Append<'_> {
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let known = state.sequence(self.id)?.positions;
        let pages = state.table.pages_for(self.positions.saturating_add(known), "tokens")?;
        let missing = pages.saturating_sub(state.table.row(self.id.slot())?.len());
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn make_room(&mut self, state: &mut State, missing: usize) -> Result<bool, Error> {
        // Images may turn out to be too many.
        let is_text = self.tokens.items.is_empty();
        if is_text {
            state.make_room_in_row(self.id.slot(), missing)?;
            let no_room = |_| Error::memory("the tokens of a sequence");
            state.reserve_tail(self.id.slot(), self.positions).map_err(no_room)?;
        }
        Ok(is_text)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        state.finish_append(self.id, self.tokens, missing, early)
    }
}

impl State {
    /// Adds tokens to a sequence, and the pages that it lacks for them: those that were taken
    /// early, and free ones.
    fn finish_append(
        &mut self,
        id: SequenceId,
        tokens: TokenList<'_>,
        missing: usize,
        early: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let slot = id.slot();
        self.make_room_in_row(slot, missing)?;
        let cache = self.cache.as_mut().ok_or_else(crate::store::no_cache)?;
        let images = cache.images.hold_all(tokens.items)?;
        let sequence = &mut self.sequences[slot as usize];
        let bytes = sequence.bytes();
        let added = with_query(tokens, &images, |query| {
            let no_room = |_| Error::memory("the tokens of a sequence");
            sequence.tail.try_reserve(query.keys.len()).map_err(no_room)?;
            sequence.images.try_reserve(images.len()).map_err(no_room)?;
            let start = sequence.positions;
            let shift =
                |span: &ImageSpan| ImageSpan { start: start + span.start, end: start + span.end };
            sequence.image_spans.try_extend(query.images.iter().map(shift))?;
            sequence.tail.extend_from_slice(query.keys);
            sequence.positions += query.positions;
            Ok(())
        });
        // Room that was made stays, also when there was not enough of it.
        self.sequence_bytes += sequence.bytes() - bytes;
        match added {
            Ok(()) => {
                sequence.images.extend_from_slice(&images);
                self.extend_row(slot, missing, early);
            }
            Err(_) => cache.images.release(&images),
        }
        added
    }

    /// Refuses to give positions up that a child's copy is still to read.
    fn check_borrowers(&self, slot: u32, keep: usize) -> Result<(), Error> {
        let pool = &self.table.pool;
        if !pool.has_loans() {
            return Ok(());
        }
        let page_size = self.table.page_size();
        for (index, &page) in self.table.row(slot)?.iter().enumerate().skip(keep / page_size) {
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
    /// step, which computed the tokens since publishing, or since some were taken back.
    fn check_states(&self, id: SequenceId, keep: usize, drafts: usize) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        let first = sequence.computed.max(sequence.groups.accepted) + 1;
        if keep < first || keep - first > drafts {
            return Err(Error::argument(text!(
                "position_count {keep}: there are states after {first} to {} positions",
                first + drafts
            )));
        }
        if keep > first && !sequence.groups.copies().is_empty() {
            return Err(Error::state("a copy is not confirmed yet"));
        }
        Ok(keep - first)
    }

    /// Keeps the first positions of a sequence; the row keeps its pages.
    pub fn truncate(&mut self, id: SequenceId, keep: usize) -> Result<(), Error> {
        let sequence = self.sequence(id)?;
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
        if sequence.image_spans.iter().any(|image| image.start < keep && keep < image.end) {
            return Err(Error::argument(text!("position_count {keep} is inside an image")));
        }
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
        sequence.tail.truncate(sequence.tail.len() - dropped);
        sequence.positions = keep;
        sequence.computed = sequence.computed.min(keep);
        let kept = sequence.image_spans.partition_point(|image| image.start < keep);
        sequence.image_spans.truncate(kept);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.images.release(&sequence.images[kept..]);
        sequence.images.truncate(kept);
        Ok(())
    }
}

/// Refuses ids that are no text ids.
pub(super) fn check_ids(tokens: TokenList<'_>) -> Result<(), Error> {
    let mut items = tokens.items.iter().map(|item| item.token_index).peekable();
    for (at, &id) in tokens.ids.iter().enumerate() {
        if items.next_if_eq(&at).is_none() && !crate::token::is_text(id) {
            return Err(crate::token::bad_id(at, id));
        }
    }
    Ok(())
}

impl Turn<'_> {
    /// Makes the row of a sequence long enough for its first positions.
    pub fn allocate(&mut self, id: SequenceId, positions: usize) -> Result<(), Error> {
        let mut claim = Lengthen { id, positions };
        if !self.has_groups() {
            return self.carry_out(claim);
        }
        let spine = claim.missing(self, 0)?;
        claim.make_room(self, spine)?;
        self.in_all_groups(id, spine, |turn| turn.carry_out(claim))
    }

    /// Makes the rows of all groups longer, and then that of the spine, by so many pages; all or
    /// none.
    fn in_all_groups(
        &mut self,
        id: SequenceId,
        spine: usize,
        lengthen: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let places = self.table.row(id.slot())?.len() + spine;
        self.extend_groups(id, places, spine)?;
        let done = lengthen(self);
        if done.is_err() {
            self.shorten_groups(id);
        }
        done
    }

    /// Adds tokens to a sequence.
    pub fn append(&mut self, id: SequenceId, tokens: TokenList<'_>) -> Result<(), Error> {
        self.sequence(id)?;
        let positions = position_count(tokens)?;
        check_ids(tokens)?;
        let mut claim = Append { id, tokens, positions };
        if !self.has_groups() {
            return self.carry_out(claim);
        }
        let spine = claim.missing(self, 0)?;
        claim.make_room(self, spine)?;
        self.in_all_groups(id, spine, |turn| turn.carry_out(claim))
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
