//! The end of a sequence, and the proof that it holds what it says.
use super::{Sequence, State, TAIL_KEPT};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::Holder;

impl State {
    /// Unlocks once, puts private pages back and gives the slot back.
    pub fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        self.sequence(id)?;
        let slot = id.slot();
        let mut ended = std::mem::take(&mut self.sequences[slot as usize]);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        if let Some(node) = ended.lock {
            let unlocked = cache.index.unlock(node, Holder::Sequence);
            debug_assert!(unlocked);
        }
        cache.images.release(&ended.images);
        self.table.release_slot(slot, ended.shared);
        self.live -= 1;
        if ended.tail.capacity() <= TAIL_KEPT {
            ended.tail.clear();
            self.sequences[slot as usize].tail = ended.tail;
        }
        Ok(())
    }

    pub(super) fn audit_sequence(&self, sequence: &Sequence) -> Result<(), Error> {
        let slot = sequence.id.expect("the sequence is alive").slot();
        let wrong = |what: &str| Err(Error::Corrupt(format!("sequence_row: slot {slot} {what}")));
        let row = self.table.row(slot)?;
        let pool = &self.table.pool;
        if !row[..sequence.shared].iter().all(|&page| pool.is_cached(page)) {
            return wrong("counts a page as shared that is not the cache's");
        }
        if !row[sequence.shared..].iter().all(|&page| pool.is_private(page)) {
            return wrong("counts a page as private that is not its own");
        }
        let keys = sequence.base_pages * self.table.page_size() + sequence.tail().len();
        if keys != sequence.positions {
            return wrong("has other tokens than positions");
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
