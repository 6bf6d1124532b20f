//! Long rows and long prompts: written in portions to a sequence that nobody knows yet.
use super::begin::Begun;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::store::{RowHolds, Turn, no_cache};

impl Turn<'_> {
    /// Writes the pages that a new sequence shares to its row, of which the first are known, and
    /// its tail. There is room for both. What groups have of it is in use by holds.
    pub(super) fn fill(
        &mut self,
        begun: &Begun,
        (known, holds): (&[u32], Option<RowHolds>),
        tail: &[u32],
    ) -> Result<(), Error> {
        let Begun { id, shared, .. } = *begun;
        let (slot, portion) = (id.slot(), self.shared.read_portion());
        // To begin it was work, too.
        self.let_in_while_made(id)?;
        let known = &known[..known.len().min(shared)];
        for pages in known.chunks(portion) {
            self.table.row_to_extend(slot, pages.len()).extend_from_slice(pages);
            self.sequences[slot as usize].shared += pages.len();
            self.let_in_while_made(id)?;
        }
        // All of them, where a step has mapped them.
        let mut mapped = self.table.row(slot)?.len();
        while mapped < shared {
            let end = shared.min(mapped + portion);
            let base = self.sequences[slot as usize].base;
            self.map_path(slot, base, mapped..end);
            self.sequences[slot as usize].shared = end;
            mapped = end;
            if mapped < shared {
                self.let_in_while_made(id)?;
            }
        }
        self.sequences[slot as usize].shared = shared;
        let rows = (shared, holds);
        while self.has_groups() && self.state().fill_group_rows(slot, rows, portion) {
            self.let_in_while_made(id)?;
        }
        // The memory of a tail is new, that of a row is not.
        for keys in tail.chunks(portion.div_ceil(2)) {
            self.sequences[slot as usize].tail.extend(keys);
            self.let_in_while_made(id)?;
        }
        Ok(())
    }

    /// Lets waiting threads in; refused when one took away the cache, and the sequence with it.
    fn let_in_while_made(&mut self, id: SequenceId) -> Result<(), Error> {
        self.let_waiting_in();
        self.check_being_made(id)
    }

    fn check_being_made(&self, id: SequenceId) -> Result<(), Error> {
        if self.is_being_made(id) { Ok(()) } else { Err(no_cache()) }
    }
}
