//! What is below memory: the store, and an index of what it has.
use super::SnapshotCache;
use super::TierPolicy;
use super::note::Note;
use super::nowhere::Nowhere;
use super::place::{Link, Place};
use super::remote::Lowest;
use super::table::Table;
use super::value::Storable;
use crate::error::Error;
use crate::lock::{RwLock, RwLockWriteGuard};
use crate::memory::{Arc, settle_allocator, try_box};
use crate::snapshot::cache::Ahead;
use crate::snapshot::freed::Snapshot;
use crate::snapshot::spot::{Exact, Spot};
use crate::snapshot::{ENTRY_LIMIT, Freed, SnapshotBounds, SnapshotLimits};
use crate::tier::{FoundRecords, LowerStore};
use std::ops::{Deref, DerefMut};

/// In how many nodes that have gone an index counts on from those before it: so a spot of another
/// one is of nodes that have gone.
const ATTACHMENT_BITS: u32 = 40;

/// All that is below memory. Entries of the index change under the table's lock alone.
pub(super) struct Lower {
    pub(super) link: Arc<Link>,
    pub(super) index: SnapshotCache<Place>,
    pub(super) policy: TierPolicy,
    /// Bytes that memory can hold: no larger state can be brought there.
    pub(super) memory_bytes: u64,
    /// Whether there is a directory.
    pub(super) has_disk: bool,
    /// What is below that.
    pub(super) lowest: Option<Lowest>,
    pub(super) table: RwLock<Table>,
}

/// The table, to be changed. What the store is asked for meanwhile begins when it is given back.
pub(super) struct Change<'a> {
    /// There until then.
    table: Option<RwLockWriteGuard<'a, Table>>,
    link: &'a Link,
}

impl<'a> Change<'a> {
    fn new(table: RwLockWriteGuard<'a, Table>, link: &'a Link) -> Self {
        link.store.defer();
        Self { table: Some(table), link }
    }
}

impl Deref for Change<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        self.table.as_ref().expect("it was not given back")
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        self.table.as_mut().expect("it was not given back")
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.table = None;
        self.link.store.resume();
    }
}

impl Lower {
    /// Finds again what a store has. `attachment` is the number of this index among those that the
    /// cache had; `memory_bytes` are what memory can hold.
    pub(super) fn new(
        store: Option<Box<dyn LowerStore>>,
        records: FoundRecords,
        policy: TierPolicy,
        lowest: Option<Lowest>,
        attachment: u32,
        memory_bytes: u64,
    ) -> Result<Self, Error> {
        let has_disk = store.is_some();
        let store = match store {
            Some(store) => store,
            None => try_box(Nowhere)?,
        };
        let limits = SnapshotLimits { entries: ENTRY_LIMIT, bytes: store.stats().capacity };
        let link = Arc::new(Link::new(store, attachment))?;
        // What is found there is looked at under the lock: nobody pins it.
        let bounds = SnapshotBounds { pins: 0, ..SnapshotBounds::default() };
        let mut index = SnapshotCache::with_bounds(limits, bounds)?;
        index.begin_at(u64::from(attachment) << ATTACHMENT_BITS);
        let table = RwLock::new(Table::new()?);
        let mut lower = Self { link, index, policy, memory_bytes, has_disk, lowest, table };
        let filled = lower.fill(records);
        lower.index.expect_no_more();
        filled.map(|()| lower)
    }

    /// The table, to change something.
    pub(super) fn change(&self) -> Change<'_> {
        // What was freed apart may be much, and would be joined with the table in hand.
        settle_allocator();
        Change::new(self.table.write(), &self.link)
    }

    /// The same; none when somebody else has it and is not to be waited for.
    pub(super) fn try_change(&self, waits: bool) -> Option<Change<'_>> {
        if waits {
            return Some(self.change());
        }
        self.table.try_write().map(|table| Change::new(table, &self.link))
    }

    /// Puts a record into the index that the store had, or will have, and says where, and whether
    /// in the place of another one. Others may have to go for it, and do so at once; nowhere when
    /// it is larger than all the room that there is.
    pub(super) fn add(
        &self,
        note: &Note,
        place: Box<Snapshot<Place>>,
        is_found: bool,
        ahead: Ahead,
    ) -> Result<Option<(Spot, bool)>, Error> {
        let (mut new, mut freed) = (note.entry(place.bytes), Freed::new());
        // What memory can't hold comes to nobody, so it leads nobody away from what can.
        new.is_trimmable &= note.bytes() <= self.memory_bytes;
        if !self.index.can_hold(&new) {
            self.index.refuse(place.value, &mut freed);
            return Ok(None);
        }
        let make = || {
            if is_found {
                // From here on the record goes with its place.
                place.value.mark.set_found();
                self.link.set_alone(&place.value.mark, true);
            }
            Ok(place)
        };
        let (inserted, spot) = self.index.insert_ahead(new, ahead, true, make, &mut freed)?;
        Ok(inserted.stored.then_some((spot, inserted.replaced)))
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
        table.removed += u64::from(had_some);
        self.link.clear(table.next);
        let mut freed = Freed::new();
        self.index.clear(&mut freed);
        (freed, had_some)
    }

    /// What was cleared is on its way out of the store.
    pub(super) fn cleared(&self, had_some: bool) {
        // Who flushed meanwhile may not have seen all of it.
        self.change().removed += u64::from(had_some);
        self.link.store.commit_removals();
    }

    /// Whether the record that a state was written to, or read from, is the one of its tokens.
    pub(super) fn has<P>(&self, state: &Storable<P>) -> bool {
        let Some(mark) = state.mark() else { return false };
        if mark.is_of(&self.link) {
            // What the store gave up is in the index until somebody comes to it.
            return mark.is_put() && !self.link.is_gone(&mark);
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
}

impl Drop for Lower {
    fn drop(&mut self) {
        if let Some(lowest) = &self.lowest {
            lowest.remote.close();
        }
        // What the store has stays there.
        self.link.close();
    }
}
