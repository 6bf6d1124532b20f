//! What an engine does with a sequence: copy, compute, publish, append, truncate, release.
use super::books::{Page, Wrong, require};
use super::sequence::{Copy, Hold, Sequence};
use super::world::{Done, Fault, Refused, World};
use crate::model::abi::{Library, Status};
use crate::model::prompt::Piece;
use crate::model::tokens::TokenList;

/// What a device that failed leaves behind.
const GARBAGE: u64 = 0xbad0_bad0_bad0_bad0;

impl World {
    /// Carries out the copy that a begin named, and says so.
    pub fn copy(&mut self, slot: u32) -> Result<(), Wrong> {
        let sequence = self.sequence(slot);
        let Some(copy) = sequence.copy else { return Ok(()) };
        let (id, shared) = (sequence.id, sequence.shared);
        let (target, at) = (sequence.row[shared], shared * self.page_size());
        let ours = self.sequences[slot as usize].as_ref().expect("it was looked up");
        let wanted = &ours.tokens.digests()[at..at + copy.positions];
        require!(
            self.books.content(copy.source)[..copy.positions] == *wanted,
            "page {} is copied from, and holds something else by now",
            copy.source
        );
        if !self.slips(Fault::SkippedCopy) {
            let source = self.books.content(copy.source)[..copy.positions].to_vec();
            self.books.content_mut(target)[..copy.positions].copy_from_slice(&source);
        }
        self.log.say("confirm_copy", slot.into(), copy.positions as u64);
        let confirmed = self.call(|library| library.confirm_copies(id));
        confirmed.map_err(|status| format!("rkv_sequence_confirm_copies: {status:?}"))?;
        self.sequence(slot).copy = None;
        self.end_copy(copy);
        self.settle()
    }

    /// A copy is done, or will never be.
    pub fn end_copy(&mut self, copy: Copy) {
        match copy.hold {
            Hold::Path => {}
            Hold::Borrowed => self.books.end_borrowing(copy.source),
            Hold::Page => self.books.unprotect(&[copy.source]),
            Hold::Node => {
                self.books.unprotect(&[copy.source]);
                self.books.wide_locks -= 1;
            }
        }
    }

    /// Computes positions up to `end`: writes them, and reads all before them.
    pub fn compute(&mut self, slot: u32, end: usize) -> Result<(), Wrong> {
        let page_size = self.page_size();
        let slip = self.sequence(slot).shared > 0 && self.slips(Fault::WritesShared);
        let Self { sequences, books, rng, .. } = self;
        let sequence = sequences[slot as usize].as_mut().expect("a sequence lives there");
        require!(sequence.copy.is_none(), "the engine computes before it copied");
        let digests = sequence.tokens.digests();
        let new = digests.iter().enumerate().take(end).skip(sequence.written);
        for (position, &digest) in new {
            let page = sequence.row[position / page_size];
            let state = books.state(page);
            require!(
                state == Page::Row(slot),
                "slot {slot} writes position {position} into page {page}, which is {state:?}"
            );
            books.content_mut(page)[position % page_size] = digest;
        }
        if slip {
            books.content_mut(sequence.row[0])[page_size - 1] = GARBAGE;
        }
        sequence.written = sequence.written.max(end);
        // Attention reads everything, which takes long here; the nearest pages change most.
        let from = if rng.u8(0..4) > 0 { sequence.row.len().min(end / page_size) } else { 0 };
        let first = from.saturating_sub(2);
        for index in first..end.div_ceil(page_size) {
            let at = index * page_size;
            let wanted = &digests[at..end.min(at + page_size)];
            let page = sequence.row[index];
            require!(
                books.content(page)[..wanted.len()] == *wanted,
                "slot {slot} reads other KV than its own in page {page} at index {index}"
            );
        }
        Ok(())
    }

    /// The device failed: what was written since the last publishing is lost.
    pub fn lose(&mut self, slot: u32) {
        let page_size = self.page_size();
        let Self { sequences, books, .. } = self;
        let sequence = sequences[slot as usize].as_mut().expect("a sequence lives there");
        for position in sequence.computed..sequence.written {
            let page = sequence.row[position / page_size];
            if books.state(page) == Page::Row(slot) {
                books.content_mut(page)[position % page_size] = GARBAGE;
            }
        }
        sequence.written = sequence.computed;
    }

    /// Tells the library what is computed.
    pub fn publish(&mut self, slot: u32) -> Done<()> {
        let page_size = self.page_size();
        let Sequence { id, written, shared, prompt_positions, .. } = *self.sequence(slot);
        let pages_to_come = self.sequence(slot).tokens.positions() / page_size;
        let early = pages_to_come > written / page_size && self.slips(Fault::PublishesTooEarly);
        let computed = if early { self.sequence(slot).tokens.positions() } else { written };
        self.log.say("publish", slot.into(), computed as u64);
        let done = match self.call(|library| library.publish(id, computed)) {
            Ok(done) => done,
            Err(status) => return self.unforeseen("rkv_sequence_publish", status),
        };
        let mut sequence = self.sequences[slot as usize].take().expect("it was looked up");
        sequence.computed = sequence.computed.max(computed);
        let whole = (computed / page_size).max(shared);
        self.books.touch(&[]);
        if whole > shared && sequence.path.is_empty() && self.books.is_cleared(&sequence.tokens) {
            self.mark("a sequence of before a clear publishes");
            sequence.tokens.space = self.books.lives.hidden(sequence.tokens.space.name);
        }
        let (mut claimed, mut first_remapped) = (Vec::new(), sequence.row.len());
        for index in shared..whole {
            let own = sequence.row[index];
            match self.books.cached(sequence.tokens.key((index + 1) * page_size - 1)) {
                None => {
                    self.books.publish(own, &sequence.tokens, index)?;
                    claimed.push(own);
                }
                Some(there) => {
                    self.books.give_up(own);
                    sequence.row[index] = there;
                    first_remapped = first_remapped.min(index);
                }
            }
        }
        let remapped = whole - shared - claimed.len();
        let expected = [claimed.len(), remapped, first_remapped, whole].map(|count| count as u64);
        let seen = [
            done.claimed_page_count,
            done.remapped_page_count,
            done.first_remapped_index,
            done.shared_page_count,
        ];
        require!(seen == expected, "publish of slot {slot}: {seen:?}, in the books {expected:?}");
        self.counters.inserted += claimed.len();
        self.counters.duplicates += remapped;
        sequence.shared = whole;
        let base = sequence.path.len();
        if whole > base {
            let mut path = sequence.row[base..whole].to_vec();
            if claimed.is_empty() {
                // Others published more of the prompt; the lock goes to the end of that.
                path.extend(self.books.path_from(&sequence.tokens, whole, prompt_positions));
            }
            self.books.protect(&path);
            sequence.path.extend(path);
        }
        if remapped > 0 {
            self.mark("a publish remaps");
            self.books.holds(&sequence.row, &sequence.tokens, whole * page_size)?;
        }
        self.sequences[slot as usize] = Some(sequence);
        self.protect_sources(&claimed);
        self.settle()?;
        Ok(Ok(()))
    }

    /// Pages became the cache's: who copies from one locks its node.
    fn protect_sources(&mut self, claimed: &[u32]) {
        for &page in claimed {
            if !self.books.is_borrowed(page) {
                continue;
            }
            for sequence in self.sequences.iter_mut().flatten() {
                let Some(copy) = sequence.copy.as_mut().filter(|copy| copy.source == page) else {
                    continue;
                };
                copy.hold = Hold::Node;
                self.books.end_borrowing(page);
                self.books.protect(&[page]);
                self.books.wide_locks += 1;
            }
            self.mark("a page to copy from is published");
        }
    }

    /// Asks for the pages that a prompt lacks for its first positions.
    pub fn allocate_for(&mut self, slot: u32, positions: usize) -> Done<()> {
        let (page_size, room) = (self.page_size(), self.room());
        let sequence = self.sequence(slot);
        let (id, before) = (sequence.id, sequence.row.len());
        let lacking = positions.div_ceil(page_size).saturating_sub(before);
        self.log.say("allocate", slot.into(), positions as u64);
        match self.call(|library| library.allocate(id, positions)) {
            Ok(()) => {}
            Err(Status::OutOfPages) => {
                self.mark("a prompt lacks pages in its middle");
                self.check_shortage(lacking, &[])?;
                self.settle()?;
                return Ok(Err(Refused::Pages));
            }
            Err(status) => return self.unforeseen("rkv_sequence_allocate", status),
        }
        require!(lacking <= room, "{lacking} pages were found, and there were {room}");
        if lacking > 0 {
            self.mark("a prompt gets pages for a chunk");
        }
        self.add_pages(slot, lacking)?;
        self.settle()?;
        Ok(Ok(()))
    }

    /// A row has so many pages more.
    fn add_pages(&mut self, slot: u32, count: usize) -> Result<(), Wrong> {
        if count == 0 {
            return Ok(());
        }
        let before = self.sequence(slot).row.len();
        let new = self.library.row(slot, before);
        let new = new.map_err(|status| format!("rkv_page_table_read_row: {status:?}"))?;
        require!(new.len() == count, "{} pages were added, not {count}", new.len());
        self.books.hand_out(&new, Page::Row(slot))?;
        self.sequence(slot).row.extend(new);
        Ok(())
    }

    /// Adds tokens.
    pub fn append(&mut self, slot: u32, pieces: &[Piece]) -> Done<()> {
        let mut more = TokenList::default();
        pieces.iter().for_each(|&piece| more.push(piece));
        let positions = pieces.iter().map(|piece| piece.positions()).sum::<usize>();
        let sequence = self.sequence(slot);
        let (id, before) = (sequence.id, sequence.row.len());
        let wanted = (sequence.tokens.positions() + positions).div_ceil(self.page_size());
        let lacking = wanted.saturating_sub(before);
        let room = self.room();
        self.log.say("append", slot.into(), positions as u64);
        match self.call(|library| library.append(id, &more)) {
            Ok(()) => {}
            Err(Status::OutOfPages) => {
                self.check_shortage(lacking, &[])?;
                self.settle()?;
                return Ok(Err(Refused::Pages));
            }
            Err(status) => return self.unforeseen("rkv_sequence_append", status),
        }
        require!(lacking <= room, "{lacking} pages were found, and there were {room}");
        self.sequence(slot).tokens.extend(pieces);
        self.add_pages(slot, lacking)?;
        self.settle()?;
        Ok(Ok(()))
    }

    /// Takes the last positions back. False when a child is still to copy them.
    pub fn truncate(&mut self, slot: u32, keep: usize) -> Result<bool, Wrong> {
        let page_size = self.page_size();
        self.log.say("truncate", slot.into(), keep as u64);
        let sequence = self.sequences[slot as usize].as_ref().expect("a sequence lives there");
        let own = sequence.row.iter().enumerate().skip(sequence.shared);
        let copies = self.sequences.iter().flatten().filter_map(|reader| reader.copy);
        let mut is_lent = false;
        for (index, &page) in own.filter(|&(_, &page)| self.books.is_borrowed(page)) {
            let mut ends = copies.clone().filter(|copy| copy.source == page);
            is_lent |= ends.any(|copy| index * page_size + copy.positions > keep);
        }
        let least = sequence.prompt_positions.max(sequence.shared * page_size);
        let may = keep >= least && sequence.tokens.is_boundary(keep);
        let expected = match (may, is_lent) {
            (false, _) => Err(Status::InvalidArgument),
            (true, true) => Err(Status::InvalidState),
            (true, false) => Ok(()),
        };
        let id = sequence.id;
        let answer = self.call(|library| library.truncate(id, keep));
        require!(answer == expected, "truncate of {slot} to {keep}: {answer:?}, not {expected:?}");
        if answer.is_ok() {
            let sequence = self.sequence(slot);
            sequence.tokens.truncate(keep);
            sequence.computed = sequence.computed.min(keep);
            sequence.written = sequence.written.min(keep);
        } else if is_lent {
            self.mark("a truncate would take what a child is to copy");
        }
        self.settle()?;
        Ok(answer.is_ok())
    }

    /// Ends a sequence.
    pub fn release(&mut self, slot: u32) -> Result<Sequence, Wrong> {
        let id = self.sequence(slot).id;
        self.log.say("release", slot.into(), 0);
        if !self.slips(Fault::SkippedRelease) {
            let released = self.call(|library| library.release(id));
            released.map_err(|_| format!("release: {}", Library::last_message()))?;
        }
        let sequence = self.end(slot, None)?;
        self.gone(&sequence);
        self.settle()?;
        Ok(sequence)
    }

    /// Takes a sequence out of its slot. Of its private pages `kept` stays its own; its path stays
    /// protected.
    pub fn end(&mut self, slot: u32, kept: Option<u32>) -> Result<Sequence, Wrong> {
        let sequence = self.sequences[slot as usize].take().expect("a sequence lives there");
        self.keeps_its_kv(&sequence)?;
        if let Some(copy) = sequence.copy {
            self.end_copy(copy);
        }
        for &page in &sequence.row[sequence.shared..] {
            match kept == Some(page) {
                true => self.books.set(page, Page::Kept),
                false => self.books.give_up(page),
            }
        }
        Ok(sequence)
    }

    /// To its end a sequence finds in its row what it computed or reused.
    pub fn keeps_its_kv(&self, sequence: &Sequence) -> Result<(), Wrong> {
        let whole = sequence.shared * self.page_size();
        let positions = if sequence.copy.is_some() { whole } else { sequence.written };
        self.books.holds(&sequence.row, &sequence.tokens, positions)
    }

    /// Nothing is kept of a sequence any more.
    pub fn gone(&mut self, sequence: &Sequence) {
        self.books.unprotect(&sequence.path);
        self.remember_ended(sequence.id);
    }
}
