//! Many calls in a row under one lock, which goes to others between two of them when they wait.
//!
//! A turn is what a single call is too: it takes the lock and works on the state. So the items of a
//! batch are the single calls, in order. What a turn knew before it let others in is nothing that
//! it uses afterwards: each item begins with an id, and looks everything up anew.
use super::append::{Append, Lengthen};
use super::{Room, SequenceInfo, Shared, State};
use crate::cache::Namespace;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::lock::RwLockWriteGuard;
use crate::token::TokenList;

/// The right to change a page table and its cache.
pub struct Turn<'a> {
    shared: &'a Shared,
    state: RwLockWriteGuard<'a, State>,
}

impl Shared {
    /// Takes the lock for a call, or for several.
    pub fn turn(&self) -> Turn<'_> {
        Turn { shared: self, state: self.write() }
    }

    /// Does something for each of so many items, in order: as many calls, with one lock as long as
    /// nobody waits for it.
    pub fn each(&self, count: usize, mut item: impl FnMut(&mut Turn<'_>, usize)) {
        if count == 0 {
            return;
        }
        let mut turn = self.turn();
        for at in 0..count {
            if at > 0 {
                self.let_waiting_in(&mut turn.state);
            }
            item(&mut turn, at);
        }
    }
}

impl Turn<'_> {
    /// The state as it is now.
    #[inline]
    pub fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Whether a call panicked, perhaps while this turn had let it in.
    pub fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Begins a sequence.
    pub fn begin(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<SequenceInfo, Error> {
        let (shared, state) = (self.shared, &mut self.state);
        let begun = state.start(namespace, tokens, room.into())?;
        if let Err(error) = shared.carry_out(state, begun.row()) {
            state.end(begun.id.slot());
            return Err(error);
        }
        state.finish(&begun);
        state.sequence_info(begun.id)
    }

    /// Makes the row of a sequence long enough for its first positions.
    pub fn allocate(&mut self, id: SequenceId, positions: usize) -> Result<(), Error> {
        self.shared.carry_out(&mut self.state, Lengthen { id, positions })
    }

    /// Ends a sequence, and drops what was cleared and nobody else holds.
    pub fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        let done = self.state.release(id);
        self.shared.after(&mut self.state);
        done
    }

    /// Adds tokens to a sequence.
    pub fn append(&mut self, id: SequenceId, tokens: TokenList<'_>) -> Result<(), Error> {
        self.shared.carry_out(&mut self.state, Append { id, tokens })
    }
}
