//! Long lists that grow: while others use a list, a copy with more room is made in portions, which
//! then takes its place in one step. To move a list of 131,072 numbers at once takes longer than
//! others should wait for.
use super::{State, Turn};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::paging::RowId;

/// Times that a copy begins anew because its list changed meanwhile; then the list grows at once.
const TRIES: usize = 4;

/// A list of the state that only grows at its end as long as its version stays.
pub(crate) trait Versioned: Copy {
    /// What it is called where there is no memory for a copy.
    const NAME: &'static str;

    /// The list and its version; refused when there is none any more.
    fn read(self, state: &State) -> Result<(&[u32], u64), Error>;
}

/// A list of which a longer copy may take the place.
pub(crate) trait Growing: Versioned {
    /// Whether there is room for more entries without moving those that are there.
    fn has_room(self, state: &State, count: usize) -> bool;

    /// Puts a list that begins with the same entries in its place; returns the one that was there.
    fn replace(self, state: &mut State, list: Vec<u32>) -> Vec<u32>;
}

/// The row of a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowOf(pub(crate) RowId);

impl Versioned for RowOf {
    const NAME: &'static str = "a row";

    fn read(self, state: &State) -> Result<(&[u32], u64), Error> {
        state.table.same_row(self.0)
    }
}

impl Growing for RowOf {
    fn has_room(self, state: &State, count: usize) -> bool {
        state.table.has_room_in_row(self.0.slot, count)
    }

    fn replace(self, state: &mut State, list: Vec<u32>) -> Vec<u32> {
        state.table.replace_row(self.0.slot, list)
    }
}

/// The tail of a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TailOf(pub(crate) SequenceId);

impl Versioned for TailOf {
    const NAME: &'static str = "the tokens of a sequence";

    fn read(self, state: &State) -> Result<(&[u32], u64), Error> {
        let tail = &state.sequence(self.0)?.tail;
        Ok((tail.keys(), tail.version()))
    }
}

impl Growing for TailOf {
    fn has_room(self, state: &State, count: usize) -> bool {
        // The cache may be gone, and all sequences with it: then `read` says so.
        let place = state.sequences.get(self.0.slot() as usize);
        place.is_some_and(|place| place.tail.has_room(count))
    }

    fn replace(self, state: &mut State, list: Vec<u32>) -> Vec<u32> {
        let tail = &mut state.sequences[self.0.slot() as usize].tail;
        state.sequence_bytes -= tail.bytes();
        let ended = tail.replace(list);
        state.sequence_bytes += tail.bytes();
        ended
    }
}

/// A row of a sequence in a group beside the spine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupRowOf(pub(crate) SequenceId, pub(crate) usize);

impl Versioned for GroupRowOf {
    const NAME: &'static str = "the rows of groups";

    fn read(self, state: &State) -> Result<(&[u32], u64), Error> {
        // One that is being made has rows too. Without a cache there are no places either.
        let place = state.sequences.get(self.0.slot() as usize);
        let groups = match place.filter(|place| place.id == Some(self.0)) {
            Some(place) => &place.groups,
            None => &state.sequence(self.0)?.groups,
        };
        Ok((groups.row(self.1), groups.version()))
    }
}

impl Growing for GroupRowOf {
    fn has_room(self, state: &State, count: usize) -> bool {
        let place = state.sequences.get(self.0.slot() as usize);
        let row = place.map(|place| place.groups.row(self.1));
        row.is_some_and(|row| row.capacity() - row.len() >= count)
    }

    fn replace(self, state: &mut State, list: Vec<u32>) -> Vec<u32> {
        let row = &mut state.sequences[self.0.slot() as usize].groups.rows[self.1];
        state.sequence_bytes -= row.capacity() * size_of::<u32>();
        state.sequence_bytes += list.capacity() * size_of::<u32>();
        std::mem::replace(row, list)
    }
}

/// A copy of a list with room for more. When it has taken the list's place it holds what was there.
#[derive(Debug, Default)]
pub(crate) struct Longer {
    list: Vec<u32>,
    /// So many entries were copied; the others are new.
    copied: usize,
    version: u64,
}

impl Longer {
    /// Adds entries behind the list's own, for which it was made long enough.
    pub(crate) fn extend(&mut self, entries: &[u32]) {
        debug_assert!(self.list.capacity() - self.list.len() >= entries.len(), "room was made");
        self.list.extend_from_slice(entries);
    }

    /// The list, for another place.
    pub(crate) fn into_list(self) -> Vec<u32> {
        self.list
    }

    /// How many entries it has that the list has not.
    pub(super) fn added(&self) -> usize {
        self.list.len() - self.copied
    }

    /// How many entries more than the list it has room for.
    pub(super) fn room(&self) -> usize {
        self.list.capacity() - self.copied
    }

    /// Whether the list is still what was copied.
    pub(crate) fn fits(&self, of: impl Versioned, state: &State) -> bool {
        let now = of.read(state).map(|(list, version)| (list.len(), version));
        now.is_ok_and(|now| now == (self.copied, self.version))
    }

    /// Takes the place of the list, if that is still what was copied.
    pub(crate) fn put(&mut self, of: impl Growing, state: &mut State) -> bool {
        let fits = self.fits(of, state);
        if fits {
            self.list = of.replace(state, std::mem::take(&mut self.list));
        }
        fits
    }
}

impl Turn<'_> {
    /// Whether more entries would move a list that is too long to be moved at once.
    #[inline]
    pub(crate) fn moves_long(&self, of: impl Growing, more: usize) -> bool {
        !of.has_room(self, more)
            && of.read(self).is_ok_and(|(list, _)| list.len() > self.shared.read_portion() / 2)
    }

    /// Makes room for more entries in a list, if it is a long one: who adds some makes room in a
    /// short one.
    pub(crate) fn make_room_in_long(&mut self, of: impl Growing, more: usize) -> Result<(), Error> {
        if more > 0 && self.moves_long(of, more) {
            let mut longer = self.longer(of, more)?;
            longer.put(of, self);
            self.unlocked(|| drop(longer));
        }
        Ok(())
    }

    /// Copies a list, in portions, with room for more entries.
    pub(crate) fn longer<V: Versioned>(&mut self, of: V, more: usize) -> Result<Longer, Error> {
        // As much as the list would make room for itself.
        let enough = |list: &[u32]| (list.len() + more).max(2 * list.len());
        let room = enough(of.read(self)?.0);
        let (mut longer, mut tries) = (Longer::default(), 0);
        longer.list = self.room_for_pages(room).map_err(|_| Error::memory(V::NAME))?;
        loop {
            let (list, version) = of.read(self)?;
            if tries == 0 || version != longer.version || list.len() < longer.copied {
                (longer.version, longer.copied, tries) = (version, 0, tries + 1);
                longer.list.clear();
            }
            let room = enough(list) - longer.copied;
            longer.list.try_reserve_exact(room).map_err(|_| Error::memory(V::NAME))?;
            let most = if tries > TRIES { usize::MAX } else { self.shared.read_portion() };
            let end = list.len().min(longer.copied.saturating_add(most));
            longer.list.extend_from_slice(&list[longer.copied..end]);
            longer.copied = end;
            if end == list.len() {
                return Ok(longer);
            }
            self.let_waiting_in();
        }
    }
}
