//! Telling everything once more, to subscribers who came late. Before that, what was told is taken
//! back: routers count how often a block was stored, and keep it until it went as often.
use super::blocks::Block;
use super::encoder::Progress;
use crate::error::Error;
use crate::journal::Reason;

/// How far what was told is taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is not to be.
    #[default]
    No,
    /// Not yet.
    Asked,
    /// What is left of it is on the path, to be named from the end on.
    Listed,
}

impl Progress {
    /// Everything is told once more, when what was told is taken back.
    pub fn repeat(&mut self) {
        // Where all is void it is taken back and told anyway. Who comes late has not heard yet that
        // nothing is held.
        if self.reader.is_void() {
            self.is_cleared = false;
        } else {
            self.repeat = Repeat::Asked;
        }
    }

    /// Takes a little back of what was told. No record is applied meanwhile: what one stores could
    /// not stand on blocks that are still to go.
    pub(super) fn take_back(&mut self) -> Result<(), Error> {
        match self.repeat {
            Repeat::Asked if self.wire.names_each() => {
                self.list_leaves_first(None)?;
                self.repeat = Repeat::Listed;
                return Ok(());
            }
            // Also when nothing was told: who comes late may know what is no longer right.
            Repeat::Asked => {
                self.wire.cleared(self.spaces.all_told(), &mut self.outbox)?;
                self.untell(|_| true);
            }
            Repeat::Listed => {
                if self.leave_listed(Reason::Invalidated, Self::untell_place)? {
                    return Ok(());
                }
            }
            Repeat::No => return Ok(()),
        }
        self.repeat = Repeat::No;
        if self.reader.is_exact() {
            self.tell_all();
        }
        Ok(())
    }

    /// What was told of a place counts no longer.
    pub(super) fn untell_place(&mut self, place: u32, block: Block) {
        if block.told {
            self.blocks.set(place, Block { told: false, ..block });
            self.spaces.take_told(block.space, 1);
        }
    }
}
