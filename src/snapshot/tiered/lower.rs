//! What is below memory: the store, and an index of what it has.
use super::SnapshotCache;
use super::TierPolicy;
use super::note::{Note, sizes};
use super::nowhere::Nowhere;
use super::place::{Link, Mark, Place, key, number};
use super::remote::Lowest;
use super::table::Table;
use super::value::Storable;
use crate::error::Error;
use crate::lock::{RwLock, RwLockWriteGuard};
use crate::memory::{Arc, OutOfMemory, settle_allocator, try_box};
use crate::snapshot::cache::Ahead;
use crate::snapshot::spot::{Exact, Spot};
use crate::snapshot::{ENTRY_LIMIT, Freed, NewSnapshot, SnapshotLimits, count};
use crate::tier::{Key, LowerStore, Record};
use std::collections::VecDeque;

/// Records of which memory is fetched while those before them become entries: in two steps, of
/// which the second one looks at what the first one brought.
const AHEAD: usize = 16;
/// In how many nodes that have gone an index counts on from those before it: so a spot of another
/// one is of nodes that have gone.
const ATTACHMENT_BITS: u32 = 40;
/// A record that is about to become an entry.
struct Noted {
    key: Key,
    bytes: u64,
    /// Bytes of the note as it was written.
    encoded: usize,
    /// None when it makes no sense.
    note: Option<Note>,
}

/// All that is below memory. Entries of the index change under the table's lock alone.
pub(super) struct Lower {
    pub(super) link: Arc<Link>,
    pub(super) index: SnapshotCache<Place>,
    pub(super) policy: TierPolicy,
    /// Whether there is a directory.
    pub(super) has_disk: bool,
    /// What is below that.
    pub(super) lowest: Option<Lowest>,
    pub(super) table: RwLock<Table>,
}

impl Lower {
    /// Finds again what a store has. `attachment` is the number of this index among those that the
    /// cache had.
    pub(super) fn new(
        store: Option<Box<dyn LowerStore>>,
        records: Vec<Record>,
        policy: TierPolicy,
        lowest: Option<Lowest>,
        attachment: u32,
    ) -> Result<Self, Error> {
        let has_disk = store.is_some();
        let store = match store {
            Some(store) => store,
            None => try_box(Nowhere)?,
        };
        let limits = SnapshotLimits { entries: ENTRY_LIMIT, bytes: store.stats().capacity };
        let link = Arc::new(Link::new(store, attachment))?;
        let mut index = SnapshotCache::new(limits)?;
        index.begin_at(u64::from(attachment) << ATTACHMENT_BITS);
        let table = RwLock::new(Table::new()?);
        let mut lower = Self { link, index, policy, has_disk, lowest, table };
        let filled = lower.fill(records);
        lower.index.expect_no_more();
        if filled.is_err() {
            lower.close();
        }
        filled.map(|()| lower)
    }

    /// The table, to change something.
    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Table> {
        // What was freed apart may be much, and would be joined with the table in hand.
        settle_allocator();
        self.table.write()
    }

    /// The same; none when somebody else has it and is not to be waited for.
    pub(super) fn try_change(&self, waits: bool) -> Option<RwLockWriteGuard<'_, Table>> {
        if waits { Some(self.change()) } else { self.table.try_write() }
    }

    fn fill(&mut self, records: Vec<Record>) -> Result<(), Error> {
        self.index.expect(records.len())?;
        let (mut ahead, mut spare) = (VecDeque::new(), Vec::new());
        ahead.try_reserve_exact(AHEAD).map_err(OutOfMemory::from)?;
        spare.try_reserve_exact(AHEAD).map_err(OutOfMemory::from)?;
        for record in records {
            ahead.push_back(self.read(record, spare.pop().unwrap_or_default())?);
            self.fetch_ahead(ahead.back(), false);
            self.fetch_ahead(ahead.len().checked_sub(AHEAD / 2).and_then(|at| ahead.get(at)), true);
            if ahead.len() == AHEAD
                && let Some(next) = ahead.pop_front()
            {
                spare.extend(self.find_again(next)?);
            }
        }
        for last in ahead {
            self.find_again(last)?;
        }
        Ok(())
    }

    /// What a record says. `spare` is memory for its tokens.
    fn read(&mut self, record: Record, spare: Vec<u32>) -> Result<Noted, Error> {
        let Record { key, bytes, note } = record;
        let (number, encoded) = (number(&key), note.len());
        let table = self.table.get_mut();
        table.next = number.saturating_add(1).max(table.next);
        let note = Note::decode(&note, spare)?;
        Ok(Noted { key, bytes, encoded, note })
    }

    fn fetch_ahead(&self, next: Option<&Noted>, is_there: bool) {
        if let Some(Note { namespace, tokens, .. }) = next.and_then(|next| next.note.as_ref()) {
            self.index.fetch_ahead(namespace, tokens, is_there);
        }
    }

    /// Makes an entry of a record again. If none can be made, or there is a later one, it goes.
    /// Returns the memory of its tokens.
    fn find_again(&mut self, found: Noted) -> Result<Option<Vec<u32>>, Error> {
        let Noted { key: key_of, bytes, encoded, note } = found;
        let number = number(&key_of);
        let is_right = |note: &&Note| key_of == key(number) && number != 0 && note.bytes() == bytes;
        let mut is_found = false;
        if let Some(note) = note.as_ref().filter(is_right) {
            let is_later = |place: &Place| place.mark.number > number;
            let (spot, there) = self.index.spot_of(note.list(Spot::NONE), is_later);
            if there != Some(true) {
                let mark = Arc::new(Mark::of_found(&self.link, number))?;
                // Nobody waits meanwhile: what it leads to is made when it is put there.
                let ahead = Ahead::at(spot);
                let added = self.add(note, &mark, encoded, true, ahead)?;
                is_found = added.is_some();
            }
        }
        if !is_found {
            self.link.store.remove(key_of);
            count(&mut self.table.get_mut().counters.unusable, 1);
        }
        Ok(note.map(|note| note.tokens))
    }

    /// Puts a record into the index, and says where. Others may have to go for it, and do so at
    /// once; nowhere when it is larger than all the room that there is.
    pub(super) fn add(
        &self,
        note: &Note,
        mark: &Arc<Mark>,
        encoded: usize,
        is_alone: bool,
        ahead: Ahead,
    ) -> Result<Option<Spot>, Error> {
        let cost = self.link.store.cost(note.bytes(), encoded);
        let new = note.entry(cost);
        let NewSnapshot { next_token, is_trimmable, .. } = new;
        let place =
            Place::new(&self.link, mark, (next_token, is_trimmable), sizes(&note.parts)?, cost);
        self.link.set_alone(mark, is_alone);
        let mut freed = Freed::new();
        if !self.index.can_hold(&new) {
            self.index.refuse(place, &mut freed);
            return Ok(None);
        }
        let (inserted, spot) = self.index.insert_ahead(new, ahead, true, || place, &mut freed)?;
        Ok(inserted.stored.then_some(spot))
    }

    /// Removes the record of exactly these tokens; whether there was one.
    pub(super) fn remove(&self, list: Exact<'_>) -> bool {
        self.index.remove_exact(list, &mut Freed::new())
    }

    /// Removes all records; a crash from now on brings few of them back once what is returned was
    /// dropped, for which the table is not needed.
    pub(super) fn clear(&self, table: &mut Table) -> (Freed<Place>, bool) {
        self.leave(table);
        let had_some = self.index.stats().entries > 0;
        table.must_remove |= had_some;
        self.link.clear(table.next);
        let mut freed = Freed::new();
        self.index.clear(&mut freed);
        (freed, had_some)
    }

    /// What was cleared is on its way out of the store.
    pub(super) fn cleared(&self, had_some: bool) {
        let mut table = self.change();
        // Who flushed meanwhile may not have seen all of it.
        table.removals += 1;
        table.must_remove |= had_some;
        self.link.store.commit_removals();
    }

    /// Whether the record that a state was written to, or read from, is the one of its tokens.
    pub(super) fn has<P>(&self, state: &Storable<P>) -> bool {
        let Some(mark) = state.mark() else { return false };
        if mark.is_of(&self.link) {
            return !self.link.is_gone(&mark);
        }
        // The same store may have been there before.
        let same = |place: &Place| (place.mark.number == mark.number).then(|| place.mark.clone());
        let (spot, found) = self.index.spot_of(state.note.list(Spot::NONE), same);
        state.set_spot(spot);
        let found = found.flatten();
        let is_there = found.is_some();
        if is_there {
            state.set_mark(found);
        }
        is_there
    }

    /// Ends it; what the store has stays there.
    pub(super) fn close(&self) {
        if let Some(lowest) = &self.lowest {
            lowest.remote.close();
        }
        self.link.close();
    }
}
