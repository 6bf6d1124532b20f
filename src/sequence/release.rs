//! The end of a sequence, and the proof that it holds what it says.
use super::{Sequence, State, TAIL_KEPT};
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;

impl State {
    /// Unlocks once, puts private pages back and gives the slot back.
    pub fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        self.sequence(id)?;
        self.end(id.slot());
        Ok(())
    }

    /// The same for a sequence that need not be complete.
    pub(super) fn end(&mut self, slot: u32) {
        let ended = self.vacate(slot);
        if let Some(copy) = ended.copy {
            self.table.pool.end_loan(copy.source, slot);
        }
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.images.release(&ended.images);
        self.table.release_slot(slot, ended.shared);
        if let Some(node) = ended.lock {
            self.let_go(node);
        }
        self.keep_tail(slot, ended.tail);
    }

    /// Takes the sequence of a slot out of it.
    pub(super) fn vacate(&mut self, slot: u32) -> Sequence {
        let place = &mut self.sequences[slot as usize];
        let empty = Sequence { number: place.number, ..Sequence::default() };
        let ended = std::mem::replace(place, empty);
        self.sequence_bytes -= ended.bytes();
        self.live -= 1;
        ended
    }

    /// Keeps the room of a tail for the next sequence of its slot, unless it is much.
    pub(super) fn keep_tail(&mut self, slot: u32, mut tail: Vec<u32>) {
        if tail.capacity() <= TAIL_KEPT {
            tail.clear();
            let place = &mut self.sequences[slot as usize];
            place.tail = tail;
            self.sequence_bytes += place.bytes();
        }
    }

    pub(super) fn audit_live(&self, sequence: &Sequence) -> Result<(), Error> {
        let slot = sequence.id.expect("the sequence is alive").slot();
        let pool = &self.table.pool;
        let source = sequence.copy.map(|copy| copy.source);
        let borrows = |page| pool.borrowers(page).any(|borrower| borrower == slot);
        if source.is_some_and(|page| pool.is_cached(page) == borrows(page)) {
            return Err(Error::Corrupt(text!(
                "sequence_copy: slot {slot} copies from a page that neither a lock nor a loan keeps"
            )));
        }
        let row = self.table.row(slot)?;
        // What it copies into may still be missing while it is made.
        let held = row.len() * self.table.page_size();
        if sequence.computed > held && !sequence.incomplete {
            return Err(Error::Corrupt(text!(
                "sequence_row: slot {slot} has computed more than its row holds"
            )));
        }
        self.audit_sequence(sequence, row)
    }

    pub(super) fn audit_sequence(&self, sequence: &Sequence, row: &[u32]) -> Result<(), Error> {
        let id = sequence.id.expect("there is a sequence").0;
        let wrong = |what: &str| Err(Error::Corrupt(text!("sequence_row: {id:#x} {what}")));
        let pool = &self.table.pool;
        if !row[..sequence.shared].iter().all(|&page| pool.is_cached(page)) {
            return wrong("counts a page as shared that is not the cache's");
        }
        let own = |page| pool.is_in_use(page) && !pool.is_cached(page);
        if !row[sequence.shared..].iter().all(|&page| own(page)) {
            return wrong("counts a page as private that is not its own");
        }
        let keys = sequence.base_pages * self.table.page_size() + sequence.tail().len();
        if keys != sequence.positions {
            return wrong("has other tokens than positions");
        }
        let shared = sequence.shared * self.table.page_size();
        if sequence.computed < shared || sequence.computed > sequence.positions {
            return wrong("has computed less than it shares, or more than it has");
        }
        let Some(base) = sequence.base else {
            return if sequence.shared > 0 { wrong("shares pages without a node") } else { Ok(()) };
        };
        let index = &self.cache()?.index;
        if index.end_page(base) != sequence.base_pages {
            return wrong("says that its node ends elsewhere");
        }
        let mut agree = true;
        index.visit_path(base, &mut |start, pages| {
            let end = (start + pages.len()).min(sequence.shared);
            agree &= start >= end || row[start..end] == pages[..end - start];
        });
        if agree { Ok(()) } else { wrong("maps another page than the cache has there") }
    }
}
