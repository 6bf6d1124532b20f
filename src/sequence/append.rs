//! Growing a sequence by decoded tokens, and taking draft tokens back.
use super::State;
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::token::{ImageSpan, TokenList, position_count, with_query};

impl State {
    /// Pages that the row of a sequence needs for more tokens, after making sure that they can be
    /// had.
    pub(super) fn plan_append(
        &self,
        id: SequenceId,
        tokens: TokenList<'_>,
    ) -> Result<usize, Error> {
        let sequence = self.sequence(id)?;
        let positions = position_count(tokens)?.saturating_add(sequence.positions);
        let pages = self.table.pages_for(positions, "tokens")?;
        check_ids(tokens)?;
        let mapped = self.table.row(id.slot())?.len();
        self.check_room(pages.saturating_sub(mapped), 0)?;
        Ok(pages)
    }

    /// Adds tokens to a sequence whose row has the pages for them.
    pub(super) fn finish_append(
        &mut self,
        id: SequenceId,
        tokens: TokenList<'_>,
    ) -> Result<(), Error> {
        self.sequence(id)?;
        let cache = self.cache.as_mut().ok_or_else(super::state::no_cache)?;
        let images = cache.images.hold_all(tokens.items)?;
        let sequence = &mut self.sequences[id.slot() as usize];
        let added = with_query(tokens, &images, |query| {
            sequence
                .tail
                .try_reserve(query.keys.len())
                .map_err(|_| Error::memory("the tokens of a sequence"))?;
            sequence.tail.extend_from_slice(query.keys);
            let start = sequence.positions;
            sequence.image_spans.extend(
                query
                    .images
                    .iter()
                    .map(|image| ImageSpan { start: start + image.start, end: start + image.end }),
            );
            sequence.positions += query.positions;
            Ok(())
        });
        match added {
            Ok(()) => sequence.images.extend(images),
            Err(_) => cache.images.release(&images),
        }
        added
    }

    /// Gives back what a row got for an append that failed, but nothing that its tokens need.
    pub(super) fn give_back(&mut self, id: SequenceId, row_len: usize) {
        if let Ok(sequence) = self.sequence(id) {
            let needed = sequence.positions.div_ceil(self.table.page_size());
            self.table.shorten(id.slot(), row_len.max(needed));
        }
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

    /// Keeps the first positions of a sequence; the row keeps its pages.
    pub fn truncate(&mut self, id: SequenceId, keep: usize) -> Result<(), Error> {
        let sequence = self.sequence(id)?;
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
