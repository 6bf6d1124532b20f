//! What is below memory: the store, an index of what it has, and what is on its way there.
use super::fetch::Loads;
use super::note::{Note, Sizes, sizes};
use super::nowhere::Nowhere;
use super::remote::Lowest;
use super::value::{Storable, Value, Writing};
use super::{SnapshotCache, TierCounters, TierPolicy};
use crate::error::Error;
use crate::lock::RwLock;
use crate::memory::{Arc, OrderedMap, OutOfMemory, try_box};
use crate::snapshot::spot::Spot;
use crate::snapshot::{ENTRY_LIMIT, Freed, Namespace, NewSnapshot, SnapshotLimits, count};
use crate::tier::remote::RemoteEvent;
use crate::tier::{Event, Key, LowerStore, Record, Refused, Source};
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Snapshots without room that are tried again.
const RETRIES: usize = 256;
/// Records of which memory is fetched while those before them become entries.
const AHEAD: usize = 8;
/// In how many nodes that have gone an index counts on from those before it: so a spot of another
/// one is of nodes that have gone.
const ATTACHMENT_BITS: u32 = 40;
/// Writes that are looked at for each new one, whether what they write was removed meanwhile.
const SWEEP: usize = 2;

pub(super) type Numbered<T> = HashMap<u64, T, FixedState>;

/// The store, for all that is in it.
pub(super) struct Link {
    pub(super) store: Box<dyn LowerStore>,
    /// The index goes, and the records stay.
    closing: AtomicBool,
    /// Entries of the index that memory does not have: without one no lookup looks below.
    alone: AtomicUsize,
}

/// How far a record has come.
#[derive(Debug, Default)]
struct Mark {
    /// The store has it, or is about to.
    is_put: AtomicBool,
    /// It is found.
    is_committed: AtomicBool,
    /// The index has it no more.
    is_gone: AtomicBool,
}

/// An entry of the index: a record of the store. With its place the record goes.
pub(super) struct Place {
    link: Arc<Link>,
    mark: Arc<Mark>,
    pub(super) number: u64,
    pub(super) next_token: Option<u32>,
    pub(super) is_trimmable: bool,
    pub(super) parts: Sizes,
    /// Memory does not have it.
    is_alone: AtomicBool,
}

impl Place {
    /// Memory has let it go, or has it again. To be called with the table.
    pub(super) fn set_alone(&self, is_alone: bool) {
        match (self.is_alone.swap(is_alone, Relaxed), is_alone) {
            (false, true) => self.link.alone.fetch_add(1, Relaxed),
            (true, false) => self.link.alone.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    pub(super) fn is_committed(&self) -> bool {
        self.mark.is_committed.load(Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set_alone(false);
        self.mark.is_gone.store(true, Relaxed);
        if self.mark.is_put.load(Relaxed) && !self.link.closing.load(Relaxed) {
            self.link.store.remove(key(self.number));
        }
    }
}

/// A record that is about to become an entry.
struct Noted {
    key: Key,
    bytes: u64,
    /// Bytes of the note as it was written.
    encoded: usize,
    /// None when it makes no sense.
    note: Option<Note>,
}

/// A write that goes on.
struct Pending {
    note: Arc<Note>,
    mark: Arc<Mark>,
}

/// What one call at a time changes.
pub(super) struct Table {
    /// The number of the next record.
    next: u64,
    /// In a map that never stops to move all that it has.
    pending: OrderedMap<u64, Pending>,
    /// The first of them that is looked at next.
    sweep_from: u64,
    /// What the store had no room for.
    retries: VecDeque<Arc<Note>>,
    /// Turns of the store when they were last tried.
    tried_at: u64,
    pub(super) loads: Loads,
    events: Vec<Event>,
    pub(super) answers: Vec<RemoteEvent>,
    /// How often something was removed, or put in another one's place.
    pub(super) removals: u64,
    /// Something was removed or cleared, and is not gone from the store for sure.
    pub(super) must_remove: bool,
    pub(super) counters: TierCounters,
}

/// The key of a record.
pub(super) fn key(number: u64) -> Key {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn number(key: &Key) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("eight bytes"))
}

/// All that is below memory. Entries of the index change under the table's lock alone.
pub(super) struct Lower {
    pub(super) link: Arc<Link>,
    pub(super) index: SnapshotCache<Place>,
    pub(super) policy: TierPolicy,
    /// Whether there is a directory.
    has_disk: bool,
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
        let (closing, alone) = (AtomicBool::new(false), AtomicUsize::new(0));
        let link = Arc::new(Link { store, closing, alone })?;
        let table = Table {
            next: 1,
            pending: OrderedMap::default(),
            sweep_from: 0,
            retries: VecDeque::new(),
            tried_at: 0,
            loads: Loads::new()?,
            events: Vec::new(),
            answers: Vec::new(),
            removals: 0,
            must_remove: false,
            counters: TierCounters::default(),
        };
        let mut index = SnapshotCache::new(limits)?;
        index.begin_at(u64::from(attachment) << ATTACHMENT_BITS);
        let table = RwLock::new(table);
        let mut lower = Self { link, index, policy, has_disk, lowest, table };
        let filled = lower.fill(records);
        lower.index.expect_no_more();
        if filled.is_err() {
            lower.close();
        }
        filled.map(|()| lower)
    }

    fn fill(&mut self, records: Vec<Record>) -> Result<(), Error> {
        self.index.expect(records.len())?;
        // One for all of them: nobody waits for what was committed before.
        let mark = Mark::default();
        mark.is_put.store(true, Relaxed);
        mark.is_committed.store(true, Relaxed);
        let mark = Arc::new(mark)?;
        let (mut ahead, mut spare) = (VecDeque::new(), Vec::new());
        ahead.try_reserve_exact(AHEAD).map_err(OutOfMemory::from)?;
        spare.try_reserve_exact(AHEAD).map_err(OutOfMemory::from)?;
        for record in records {
            ahead.push_back(self.read(record, spare.pop().unwrap_or_default())?);
            if ahead.len() == AHEAD
                && let Some(next) = ahead.pop_front()
            {
                spare.extend(self.find_again(next, &mark)?);
            }
        }
        for last in ahead {
            self.find_again(last, &mark)?;
        }
        Ok(())
    }

    /// What a record says; memory is fetched that it will be found in. `spare` is memory for its
    /// tokens.
    fn read(&mut self, record: Record, spare: Vec<u32>) -> Result<Noted, Error> {
        let Record { key, bytes, note } = record;
        let (number, encoded) = (number(&key), note.len());
        let table = self.table.get_mut();
        table.next = number.saturating_add(1).max(table.next);
        let note = Note::decode(&note, spare)?;
        if let Some(Note { namespace, tokens, .. }) = &note {
            self.index.fetch_ahead(namespace, tokens);
        }
        Ok(Noted { key, bytes, encoded, note })
    }

    /// Makes an entry of a record again. If none can be made, or there is a later one, it goes.
    /// Returns the memory of its tokens.
    fn find_again(&mut self, found: Noted, mark: &Arc<Mark>) -> Result<Option<Vec<u32>>, Error> {
        let Noted { key: key_of, bytes, encoded, note } = found;
        let number = number(&key_of);
        let is_right = |note: &&Note| key_of == key(number) && number != 0 && note.bytes() == bytes;
        let mut is_found = false;
        if let Some(note) = note.as_ref().filter(is_right) {
            let Note { namespace, tokens, .. } = note;
            let is_later = |place: &Place| place.number > number;
            let (spot, is_entry) = self.index.spot_of(namespace, tokens);
            if !is_entry || self.index.exactly(namespace, tokens, is_later) != Some(true) {
                let added = self.add(note, number, mark.clone(), encoded, true, spot)?;
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
    fn add(
        &self,
        note: &Note,
        number: u64,
        mark: Arc<Mark>,
        encoded: usize,
        is_alone: bool,
        spot: Spot,
    ) -> Result<Option<Spot>, Error> {
        let new = note.entry(self.link.store.cost(note.bytes(), encoded));
        let NewSnapshot { next_token, is_trimmable, .. } = new;
        let (link, parts) = (self.link.clone(), sizes(&note.parts)?);
        let alone = AtomicBool::new(false);
        let place = Place { link, mark, number, next_token, is_trimmable, parts, is_alone: alone };
        place.set_alone(is_alone);
        let mut freed = Freed::new();
        let (inserted, spot) = self.index.insert_noting(new, spot, || place, &mut freed)?;
        Ok(inserted.stored.then_some(spot))
    }

    /// Removes the record of exactly these tokens; whether there was one.
    pub(super) fn remove(&self, namespace: &Namespace, tokens: &[u32]) -> bool {
        self.index.remove(namespace, tokens, &mut Freed::new())
    }

    /// The same, and where the tokens lead to.
    pub(super) fn remove_noting(&self, namespace: &Namespace, tokens: &[u32]) -> Spot {
        let (spot, is_entry) = self.index.spot_of(namespace, tokens);
        if is_entry {
            self.remove(namespace, tokens);
        }
        spot
    }

    /// Removes all records; a crash from now on brings few of them back.
    pub(super) fn clear(&self, table: &mut Table) {
        self.leave(table);
        table.must_remove |= self.index.stats().entries > 0;
        self.index.clear(&mut Freed::new());
        self.link.store.commit_removals();
    }

    /// Removes a record, if it is still the one of its tokens.
    pub(super) fn remove_record(&self, note: &Note, number: u64) {
        let is_meant = |place: &Place| place.number == number;
        self.index.remove_if(&note.namespace, &note.tokens, &mut Freed::new(), is_meant);
    }

    /// Whether a record is the one of its tokens.
    pub(super) fn has(&self, note: &Note, number: u64) -> bool {
        let is_meant = |place: &Place| place.number == number;
        self.index.exactly(&note.namespace, &note.tokens, is_meant) == Some(true)
    }

    /// Starts to write a state, in the place of what the store has for its tokens. When that cannot
    /// be, the store has nothing for them: the state in memory goes on without.
    pub(super) fn write<P: Source + 'static>(&self, table: &mut Table, state: &Arc<Storable<P>>) {
        self.offer(table, state);
        if !self.has_disk {
            return;
        }
        let note = &state.note;
        let refused = match self.try_write(table, state) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        self.remove(&note.namespace, &note.tokens);
        let counters = &mut table.counters;
        let counter = match refused {
            Refused::Full => &mut counters.full,
            Refused::Busy => &mut counters.busy,
            Refused::Length => &mut counters.unfit,
            _ => &mut counters.failed_writes,
        };
        count(counter, 1);
        if matches!(refused, Refused::Full | Refused::Busy)
            && table.retries.len() < RETRIES
            && table.retries.try_reserve(1).is_ok()
        {
            table.retries.push_back(note.clone());
            table.tried_at = self.link.store.stats().turns();
        }
    }

    fn try_write<P: Source + 'static>(
        &self,
        table: &mut Table,
        state: &Arc<Storable<P>>,
    ) -> Result<(), Refused> {
        let no_memory = |_: OutOfMemory| Refused::OutOfMemory;
        let (note, number) = (&state.note, table.next);
        if note.bytes() == 0 {
            return Err(Refused::Length);
        }
        table.reserve_pending().map_err(no_memory)?;
        let encoded = note.encode().map_err(no_memory)?;
        let source = try_box(Writing(state.clone())).map_err(no_memory)?;
        let mark = Arc::new(Mark::default()).map_err(no_memory)?;
        // What goes for it makes room before the store is asked.
        let spot = state.spot();
        let spot = self.add(note, number, mark.clone(), encoded.len(), false, spot);
        let spot = spot.map_err(|_| Refused::OutOfMemory)?.ok_or(Refused::Length)?;
        state.set_spot(spot);
        self.link.store.put(key(number), encoded, source)?;
        mark.is_put.store(true, Relaxed);
        state.record.store(number, Relaxed);
        table.next += 1;
        table.pending.insert(number, Pending { note: note.clone(), mark });
        count(&mut table.counters.writes, 1);
        Ok(())
    }

    /// A state leaves memory: the store keeps it, if it is worth that.
    pub(super) fn rescue<P: Source + 'static>(&self, table: &mut Table, value: &Value<P>) {
        let Some(state) = value.storable() else { return };
        let Note { namespace, tokens, .. } = &*state.note;
        let record = state.record.load(Relaxed);
        if self.has(&state.note, record) {
            self.index.refresh(namespace, tokens);
            self.link.store.touch(key(record));
        } else if self.policy.wants(state.uses.load(Relaxed), true) {
            self.write(table, state);
        }
        self.index.exactly(namespace, tokens, |place| place.set_alone(true));
    }

    /// Whether there is anything that memory does not have.
    pub(super) fn has_more(&self) -> bool {
        self.link.alone.load(Relaxed) != 0
    }

    /// Takes in what the store has done. What is read is left for the caller.
    pub(super) fn take_events(&self, table: &mut Table, mut landed: impl FnMut(&mut Table, Event)) {
        if !self.link.store.has_events() {
            return;
        }
        let mut events = std::mem::take(&mut table.events);
        self.link.store.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Committed { key } => {
                    if let Some(Pending { mark, .. }) = table.pending.remove(&number(&key)) {
                        mark.is_committed.store(true, Release);
                    }
                }
                Event::Dropped { key, .. } => {
                    let number = number(&key);
                    if let Some(Pending { note, .. }) = table.pending.remove(&number) {
                        self.remove_record(&note, number);
                        count(&mut table.counters.failed_writes, 1);
                    }
                }
                event @ Event::Loaded { .. } => landed(table, event),
            }
        }
        table.events = events;
    }

    /// Tries again to write what there was no room for, if there may be some now, and it is still
    /// in memory.
    pub(super) fn retry<P: Source + 'static>(
        &self,
        table: &mut Table,
        memory: &SnapshotCache<Value<P>>,
    ) {
        if table.retries.is_empty() {
            return;
        }
        let turns = self.link.store.stats().turns();
        if table.tried_at == turns {
            return;
        }
        table.tried_at = turns;
        for _ in 0..table.retries.len() {
            let Some(note) = table.retries.pop_front() else { return };
            let state = |value: &Value<P>| value.storable().cloned();
            let state = memory.exactly(&note.namespace, &note.tokens, state).flatten();
            let Some(state) = state else { continue };
            if !self.has(&state.note, state.record.load(Relaxed)) {
                self.write(table, &state);
            }
        }
    }

    /// Ends it; what the store has stays there.
    pub(super) fn close(&self) {
        if let Some(lowest) = &self.lowest {
            lowest.remote.close();
        }
        self.link.closing.store(true, Relaxed);
    }
}

impl Table {
    /// A number that no record and no load has.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn reserve_pending(&mut self) -> Result<(), OutOfMemory> {
        // No event comes for what was removed while it was written.
        for _ in 0..SWEEP {
            let next = self.pending.from(&self.sweep_from).next();
            let Some((&number, Pending { mark, .. })) = next else {
                self.sweep_from = 0;
                break;
            };
            self.sweep_from = number + 1;
            if mark.is_gone.load(Relaxed) {
                self.pending.remove(&number);
            }
        }
        self.pending.try_reserve(1)
    }

    /// Writes that go on.
    pub(super) fn writing(&self) -> usize {
        self.pending.iter().filter(|(_, pending)| !pending.mark.is_gone.load(Relaxed)).count()
    }

    /// Whether something waits for room.
    pub(super) fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }
}
