//! The driver's sequences, from begin to release.
use super::abi::Status;
use super::compare::{compare_sequence, equal, root_above};
use super::driver::{Driver, Refused, agree, pick};
use super::naive::{Wrong, require};
use super::ops::Pick;
use super::prompt::{Piece, Prompt, Tokens};
use super::tokens::TokenList;
use radixkv::capi::{rkv_sequence_info, rkv_sequence_publish_result};
use radixkv::sequence::Room;

impl Driver {
    pub fn live_sequence(&self, at: Pick) -> Option<usize> {
        let live: Vec<usize> = self.model.live_sequences().map(|(index, _)| index).collect();
        pick(&live, at)
    }

    pub fn begin(&mut self, ns: u8, prompt: &Prompt, room: Room) -> Result<(), Wrong> {
        let begun = self.library.begin(ns, &TokenList::of(prompt), room);
        self.begun("rkv_sequence_begin", begun, ns, prompt, room)
    }

    /// What a begin answered.
    pub fn begun(
        &mut self,
        what: &str,
        begun: Result<rkv_sequence_info, impl Into<Refused>>,
        ns: u8,
        prompt: &Prompt,
        room: Room,
    ) -> Result<(), Wrong> {
        let begun: Result<_, Refused> = begun.map_err(Into::into);
        let tokens = Tokens::of(prompt);
        if tokens.bad {
            // Which of two reasons is told is open.
            let reasons = [Status::InvalidArgument, Status::OutOfSlots];
            let refused = begun.is_err_and(|refused| reasons.contains(&refused.status));
            require!(refused, "{what} takes a text id that is none");
            return Ok(());
        }
        let source = match &begun {
            Ok(state) => self.copy_of(state.sequence)?.source_page,
            Err(_) => 0,
        };
        let plan = self.model.begin_plan(self.model.space(ns), &tokens, room, source);
        let Some((state, plan)) = agree(what, begun, plan)? else { return Ok(()) };
        require!(!self.sequences.contains(&state.sequence), "a sequence id is used again");
        let row = self.library.row(state.slot, 0).map_err(|status| format!("row: {status:?}"))?;
        let shared = plan.cut.whole_pages;
        require!(row.len() >= shared, "the row {row:?} is shorter than the {shared} shared pages");
        let ns = self.model.space(ns);
        self.model.begin(ns, tokens, &plan, state.slot, &row[shared..], source)?;
        self.sequences.push(state.sequence);
        let sequence = self.model.sequences.last().and_then(Option::as_ref);
        compare_sequence(
            &self.model,
            &self.library,
            &mut self.names,
            sequence.expect("just begun"),
            &state,
        )
    }

    pub fn confirm_copies(&mut self, at: Pick) -> Result<(), Wrong> {
        let Some(index) = self.live_sequence(at) else { return Ok(()) };
        let confirmed = self.library.confirm_copies(self.sequences[index]);
        agree("rkv_sequence_confirm_copies", confirmed, self.model.confirm_copies(index))?;
        Ok(())
    }

    pub fn append(&mut self, at: Pick, prompt: &Prompt) -> Result<(), Wrong> {
        let Some(index) = self.live_sequence(at) else { return Ok(()) };
        let appended = self.library.append(self.sequences[index], &TokenList::of(prompt));
        self.appended("rkv_sequence_append", appended, index, prompt)
    }

    /// What an append answered.
    pub fn appended(
        &mut self,
        what: &str,
        appended: Result<(), impl Into<Refused>>,
        index: usize,
        prompt: &Prompt,
    ) -> Result<(), Wrong> {
        let tokens = Tokens::of(prompt);
        let plan = self.model.append_plan(index, &tokens);
        let Some(((), lacking)) = agree(what, appended, plan)? else {
            return Ok(());
        };
        let slot = self.model.sequence(index).expect("it is live").slot;
        let chosen = self.new_pages(slot, lacking)?;
        self.model.append(index, &tokens, &chosen)
    }

    pub fn lengthen(&mut self, at: Pick, more: i64) -> Result<(), Wrong> {
        let Some((index, positions)) = self.relative(at, more) else { return Ok(()) };
        let allocated = self.library.allocate(self.sequences[index], positions);
        let plan = self.model.allocate_plan(index, positions);
        let Some(((), lacking)) = agree("rkv_sequence_allocate", allocated, plan)? else {
            return Ok(());
        };
        let slot = self.model.sequence(index).expect("it is live").slot;
        let chosen = self.new_pages(slot, lacking)?;
        self.model.grow(slot, &chosen)
    }

    /// The first pages by which a row of the library is longer than the model's.
    pub fn new_pages(&self, slot: u32, count: usize) -> Result<Vec<u32>, Wrong> {
        let before = self.model.row(slot).map_or(0, |row| row.pages.len());
        let row = self.library.row(slot, 0).map_err(|status| format!("row: {status:?}"))?;
        require!(
            row.len() >= before + count,
            "row {slot} grew from {before} to {} pages, in the model to {}",
            row.len(),
            before + count
        );
        // What comes after them a later item of a batch appended; rows are compared in the end.
        Ok(row[before..before + count].to_vec())
    }

    /// The sequence and a number of positions relative to what it has.
    pub fn relative(&self, at: Pick, more: i64) -> Option<(usize, usize)> {
        let index = self.live_sequence(at)?;
        let positions = self.model.sequence(index).expect("it is live").tokens.positions();
        Some((index, (positions as i64 + more).max(0) as usize))
    }

    pub fn truncate(&mut self, at: Pick, more: i64) -> Result<(), Wrong> {
        let Some((index, keep)) = self.relative(at, more) else { return Ok(()) };
        let truncated = self.library.truncate(self.sequences[index], keep);
        agree("rkv_sequence_truncate", truncated, self.model.truncate(index, keep))?;
        Ok(())
    }

    pub fn publish(&mut self, at: Pick, more: i64) -> Result<(), Wrong> {
        let Some((index, computed)) = self.relative(at, more) else { return Ok(()) };
        let published = self.library.publish(self.sequences[index], computed);
        self.published("rkv_sequence_publish", published, index, computed)
    }

    /// What a publish answered.
    pub fn published(
        &mut self,
        what: &str,
        published: Result<rkv_sequence_publish_result, impl Into<Refused>>,
        index: usize,
        computed: usize,
    ) -> Result<(), Wrong> {
        let hidden = published.is_ok() && self.is_hidden(index)?;
        let done = self.model.publish(index, computed, hidden);
        if let Some((seen, done)) = agree(what, published, done)? {
            equal!(what,
                claimed: done.claimed, seen.claimed_page_count;
                remapped: done.remapped, seen.remapped_page_count;
                first_remapped: done.first_remapped, seen.first_remapped_index;
                shared: done.shared, seen.shared_page_count;
            );
        }
        Ok(())
    }

    /// Whether nobody finds the first that a sequence has just published: no namespace leads to the
    /// root above it.
    fn is_hidden(&self, index: usize) -> Result<bool, Wrong> {
        let failed = |status| format!("the node of a publish: {status:?}");
        let node = self.library.query(self.sequences[index]).map_err(failed)?.node;
        let sequence = self.model.sequence(index).expect("it is live");
        if sequence.base > 0 || node == 0 {
            return Ok(false);
        }
        let root = root_above(&self.library, node)?;
        let listed = self.library.namespaces().map_err(failed)?;
        let hidden = listed.iter().all(|&(_, found)| found != root);
        self.model.check_fate(sequence, hidden)?;
        Ok(hidden)
    }

    pub fn release(&mut self, at: Pick) -> Result<(), Wrong> {
        let Some(index) = self.live_sequence(at) else { return Ok(()) };
        let released = self.library.release(self.sequences[index]);
        self.released("rkv_sequence_release", released, index)
    }

    /// What a release answered.
    pub fn released(
        &mut self,
        what: &str,
        released: Result<(), impl Into<Refused>>,
        index: usize,
    ) -> Result<(), Wrong> {
        agree(what, released, self.model.release(index))?;
        Ok(())
    }

    /// An id that is no live sequence's, or of another cache.
    pub fn dead_id(&self, at: Pick) -> u64 {
        // Retained ones among them: for these verbs they are gone.
        let dead = (0..self.sequences.len()).filter(|&index| self.model.sequence(index).is_err());
        let mut dead: Vec<u64> = dead.map(|index| self.sequences[index]).collect();
        dead.extend([self.foreign.sequence, 0, u64::MAX]);
        pick(&dead, at).expect("there are three at least")
    }

    pub fn dead_sequence(&mut self, at: Pick) -> Result<(), Wrong> {
        let id = self.dead_id(at);
        let tokens = TokenList::of(&Prompt(vec![Piece::Text(1, 1)]));
        let library = &self.library;
        let answers = [
            library.query(id).map(|_| ()),
            library.confirm_copies(id),
            library.allocate(id, 1),
            library.append(id, &tokens),
            library.truncate(id, 1),
            library.publish(id, 1).map(|_| ()),
            library.release(id),
            library.retain(id).map(|_| ()),
        ];
        let stale = answers.iter().all(|answer| *answer == Err(Status::StaleSequence));
        require!(stale, "the dead sequence {id:#x} gets {answers:?}");
        Ok(())
    }
}
