//! A snapshot cache with something below memory: states that had to leave it are found again, also
//! after a restart.
//!
//! ```text
//!            memory: SnapshotCache<Value>                 a caller's states, and copies
//!     insert, find │        ▲ fetch, take
//!   write, rescue  ▼        │ land
//!            index: SnapshotCache<Place>                  what the store has, by tokens
//!                  │        ▲
//!            put   ▼        │ events
//!            LowerStore (src/tier)                        records by number
//!            Remote (src/tier)                            what other caches know, by digest
//! ```
//!
//! Two caches of one kind, one above the other. An entry of the lower one is a place, and with a
//! place its record goes: so replacing, removing, clearing and evicting in the lower tier are those
//! of any snapshot cache. A place is found when its record is committed.
//!
//! Nothing waits for the store, but for `attach`, `detach`, `flush` and the cache's drop. What the
//! store has done is taken in by the next call, whichever that is. Lookups change nothing below
//! memory and take only shared locks; whatever changes both tiers does so one call at a time, under
//! the lock of the table, so that what is replaced or removed in memory is so below, in the same
//! order. What takes long of that is made before, without the table, and is of no use where
//! somebody was quicker.
#![forbid(unsafe_code)]

mod asking;
mod events;
mod fetch;
mod fill;
mod flush;
mod loads;
mod head;
mod lower;
mod note;
mod nowhere;
mod place;
mod remote;
mod stats;
mod table;
mod value;
mod write;

pub use stats::{TierCounters, TierStats};
pub use value::{Loaded, State};

use super::freed::Snapshot;
use super::spot::{Exact, Spot};
use super::{
    Freed, Hit, Namespace, NewSnapshot, SnapshotCache, SnapshotInserted, SnapshotLimits,
    SnapshotStats,
};
use crate::error::Error;
use crate::ids::{HandleId, PinId};
use crate::lock::RwLock;
use crate::memory::{ReadyMemory, grow_allocator, map_code};
use crate::tier::remote::RemoteConfig;
use crate::tier::{FoundRecords, LowerStore, Source, Wake};
use fetch::{FreedStates, Memory};
use lower::Lower;
use note::Note;
use place::Mark;
use remote::Lowest;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use value::{Storable, Value};

/// What memory lets go, of one call.
pub struct FreedSnapshots<P>(FreedStates<P>);

impl<P> FreedSnapshots<P> {
    /// None yet.
    pub fn new() -> Self {
        Self(Freed::new())
    }
}

impl<P> Default for FreedSnapshots<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> std::fmt::Debug for FreedSnapshots<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// When a state is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierPolicy {
    /// As soon as it is inserted.
    Through,
    /// When so many lookups have found it.
    AfterUses(u32),
    /// When it leaves memory.
    OnEviction,
}

/// What a lookup found.
#[derive(Debug)]
pub struct Found<R> {
    /// The longest prefix in memory, pinned.
    pub hit: Option<Hit<R>>,
    /// Tokens in common with a longer one below memory; 0 when there is none.
    pub fetchable: usize,
}

/// A fetch that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// What to ask for it by.
    pub ticket: HandleId,
    /// Tokens of what it brings.
    pub tokens: usize,
    /// Of those, how many the query begins with.
    pub common: usize,
    /// What it brings takes.
    pub bytes: u64,
}

/// What became of a fetch.
#[derive(Debug)]
pub enum Taken<R> {
    /// It goes on.
    Pending,
    /// It is in memory, and pinned.
    Hit(Hit<R>),
    /// It could not be had.
    Missed,
}

/// The cache, for any number of threads.
pub struct TieredSnapshots<P> {
    memory: Memory<P>,
    lower: RwLock<Option<Lower>>,
    /// How often something was put below.
    attachments: AtomicU32,
    /// For what is done with the table.
    ready: ReadyMemory,
}

impl<P> TieredSnapshots<P> {
    /// An empty cache with nothing below it.
    pub fn new(limits: SnapshotLimits) -> Result<Self, Error> {
        map_code();
        let (memory, lower) = (SnapshotCache::new(limits)?, RwLock::new(None));
        // For the first inserts.
        grow_allocator();
        let (attachments, ready) = (AtomicU32::new(0), ReadyMemory::default());
        Ok(Self { memory, lower, attachments, ready })
    }

    /// The length of the longest prefix in memory. Changes nothing.
    pub fn probe(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.memory.probe(namespace, tokens)
    }

    /// What memory holds and counted.
    pub fn stats(&self) -> SnapshotStats {
        let stats = self.memory.stats();
        SnapshotStats {
            index_bytes: stats.index_bytes + size_of::<RwLock<Option<Lower>>>(),
            ..stats
        }
    }

    /// Checks every invariant; names the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        self.memory.check()?;
        self.lower.read().as_ref().map_or(Ok(()), |lower| lower.index.check())
    }

    /// Looks at the state that a pin keeps, under a lock: `view` must not call the cache.
    pub fn pinned<R>(&self, pin: PinId, view: impl FnOnce(State<'_, P>) -> R) -> Result<R, Error> {
        self.memory.pinned(pin, |value| view(value.state()))
    }
}

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Stores a state, in the place of the one for the same tokens if there is one, in memory and
    /// below. With `parts`, the bytes of each of its parts, it may be written. `make` gives it,
    /// when nothing can fail any more. It is called under a lock: it must not call the cache.
    pub fn insert(
        &self,
        new: NewSnapshot<'_>,
        parts: Option<&[u64]>,
        make: impl FnOnce() -> P,
        freed: &mut FreedSnapshots<P>,
    ) -> Result<SnapshotInserted, Error> {
        let freed = &mut freed.0;
        let state = parts.map(|parts| Storable::new(Note::new(&new, parts)?));
        let state = state.transpose()?;
        // What there is no memory for goes with this, when no lock is held any more.
        let mut given = Some(make);
        let mut make = || {
            let make = given.take().expect("a state is made once");
            match &state {
                None => Value::Plain(make()),
                Some(state) => {
                    state.give(make());
                    Value::Storable(state.clone())
                }
            }
        };
        let lower = self.lower.read();
        let Some(lower) = &*lower else {
            let inserted = self.memory.insert(new, make, freed);
            freed.settle();
            // Others may have let it go meanwhile.
            state.into_iter().for_each(|state| freed.leave(state));
            return inserted;
        };
        self.take_events(lower, true, freed);
        if !self.memory.takes(&new)? {
            return Ok(self.memory.refuse(make(), freed));
        }
        // What takes long, before others have to wait for it.
        let ahead = self.memory.ahead(new.list())?;
        let (below, there) = lower.index.spot_of(new.list(), |_| ());
        let is_below = there.is_some();
        let replaces = lower.lowest.is_some()
            && (is_below || self.memory.exactly(new.list(), |_| ()).is_some());
        let key = if replaces { lower.key(new.namespace, new.tokens) } else { None };
        let mut draft = None;
        if let Some(state) = &state {
            state.set_spot(below);
            if lower.policy.wants(0, false) {
                draft = lower.draft(state);
            }
        }
        self.ready.want(write::memory_for(new.tokens));
        let over = self.memory.evicting();
        let mut table = lower.change();
        let make = || Snapshot::boxed(&new, make);
        let (inserted, _) = self.memory.insert_ahead(new, ahead, false, make, freed)?;
        // What it takes the place of may have come since it looked, and have left memory again.
        let list = Exact { spot: below, ..new.list() };
        let is_below =
            is_below || lower.lowest.is_some() && lower.index.exactly(list, |_| ()).is_some();
        if inserted.replaced || is_below {
            lower.replaced(key.or_else(|| lower.key(new.namespace, new.tokens)));
        }
        match &state {
            Some(state) if lower.policy.wants(0, false) => lower.write(&mut table, state, draft),
            _ => {
                let is_replaced = lower.remove(Exact { spot: below, ..new.list() });
                table.removed += u64::from(is_replaced);
            }
        }
        drop(table);
        let evicted = self.let_go(lower, true, freed);
        drop(over);
        freed.settle();
        // Others may have let it go meanwhile.
        state.into_iter().for_each(|state| freed.leave(state));
        Ok(SnapshotInserted { evicted, ..inserted })
    }

    /// Finds the longest prefix in memory and pins it, and says whether there is a longer one
    /// below. With `trims`, what can be trimmed counts with the tokens in common. `view` looks at
    /// the state under a lock: it must not call the cache.
    pub fn find<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
        view: impl FnOnce(State<'_, P>) -> R,
        freed: &mut FreedSnapshots<P>,
    ) -> Result<Found<R>, Error> {
        let lower = self.lower.read();
        let Some(lower) = &*lower else {
            let hit = self.in_memory(namespace, tokens, trims, |value| view(value.state()))?;
            return Ok(Found { hit, fetchable: 0 });
        };
        if lower.has_events() {
            self.take_events(lower, false, &mut freed.0);
        }
        let has_more = lower.link.has_more();
        let (mut is_due, mut was) = (false, Spot::NONE);
        // May have a record; and its list, of which a caller that trims may have a part alone.
        let (mut is_storable, mut note) = (false, None);
        let hit = self.in_memory(namespace, tokens, trims, |value| {
            if let Some(state) = value.storable() {
                let uses = state.uses.load(Relaxed).saturating_add(1);
                state.uses.store(uses, Relaxed);
                is_due = lower.policy == TierPolicy::AfterUses(uses);
                if lower.has_disk {
                    (is_storable, was) = (true, state.spot());
                    note = trims.then(|| state.note.clone());
                }
            }
            view(value.state())
        })?;
        if is_due && let Some(Hit { pin, .. }) = hit {
            self.write_pinned(lower, pin, &mut freed.0)?;
        }
        let known = hit.as_ref().map_or(0, |hit| hit.common);
        let has_more = has_more && known < tokens.len();
        let is_trimmed = hit.as_ref().is_some_and(|hit| hit.tokens > known);
        let mut spot = was;
        if is_storable && (!has_more || is_trimmed) {
            // What memory uses is used below. Otherwise the look for more says so.
            let list = Exact { namespace, tokens: &tokens[..known], spot };
            spot = lower.index.refresh(note.as_ref().map_or(list, |note| note.list(spot)));
        }
        let fetchable = if has_more && !lower.index.ends_at(spot, tokens, known) {
            lower.fetchable(namespace, (tokens, known), trims, &mut spot)
        } else {
            0
        };
        if spot != was
            && let Some(Hit { pin, .. }) = hit
        {
            self.memory.pinned(pin, |value| {
                if let Some(state) = value.storable() {
                    state.set_spot(spot);
                }
            })?;
        }
        Ok(Found { hit, fetchable })
    }

    fn in_memory<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
        view: impl FnOnce(&Value<P>) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        match trims {
            true => self.memory.find_trimmable(namespace, tokens, view),
            false => self.memory.find(namespace, tokens, view),
        }
    }

    /// Ends a pin.
    pub fn release(&self, pin: PinId, freed: &mut FreedSnapshots<P>) -> Result<(), Error> {
        let freed = &mut freed.0;
        let lower = self.lower.read();
        let Some(lower) = &*lower else {
            let released = self.memory.release(pin, freed);
            freed.settle();
            return released;
        };
        self.unpin(lower, pin, freed)
    }

    /// Removes the entry of exactly these tokens, in memory and below; false when there is none.
    pub fn remove(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        freed: &mut FreedSnapshots<P>,
    ) -> bool {
        let freed = &mut freed.0;
        let lower = self.lower.read();
        let Some(lower) = &*lower else { return self.memory.remove(namespace, tokens, freed) };
        let key = lower.key(namespace, tokens);
        let list = Exact { namespace, tokens, spot: Spot::NONE };
        let above = Exact { spot: self.memory.spot_of(list, |_| ()).0, ..list };
        let below = Exact { spot: lower.index.spot_of(list, |_| ()).0, ..list };
        let mut table = lower.change();
        lower.forget(&mut table, key, list);
        let in_memory = self.memory.remove_exact(above, freed);
        let is_below = lower.remove(below);
        table.removed += u64::from(is_below);
        is_below || in_memory
    }

    /// Removes every entry, in memory and below. Readers keep what they have.
    pub fn clear(&self, freed: &mut FreedSnapshots<P>) {
        let lower = self.lower.read();
        let Some(lower) = &*lower else { return self.memory.clear(&mut freed.0) };
        let mut table = lower.change();
        self.memory.clear(&mut freed.0);
        let (places, had_some) = lower.clear(&mut table);
        drop(table);
        drop(places);
        lower.cleared(had_some);
    }

    /// Puts a store below memory, with the records that it has. Refused when there is one.
    pub fn attach(
        &self,
        store: Box<dyn LowerStore>,
        records: FoundRecords,
        policy: TierPolicy,
    ) -> Result<(), Error> {
        self.attach_both(Some((store, records)), None, policy)
    }

    /// Puts a store below memory, and one that caches share below that, with what it calls when
    /// there is an answer; or one of them.
    pub fn attach_both(
        &self,
        store: Option<(Box<dyn LowerStore>, FoundRecords)>,
        remote: Option<(RemoteConfig, Wake)>,
        policy: TierPolicy,
    ) -> Result<(), Error> {
        let lowest = remote.map(|(config, wake)| Lowest::new(config, wake)).transpose()?;
        let (store, records) = match store {
            Some((store, records)) => (Some(store), records),
            None => (None, FoundRecords::default()),
        };
        let attachment = self.attachments.fetch_add(1, Relaxed).wrapping_add(1);
        // Memory that is disabled holds nothing, whichever limit says so.
        let SnapshotLimits { entries, bytes } = self.memory.limits;
        let memory_bytes = if entries > 0 { bytes } else { 0 };
        let made = Lower::new(store, records, policy, lowest, attachment, memory_bytes)?;
        // For the first inserts.
        grow_allocator();
        let mut lower = self.lower.write();
        if lower.is_some() {
            drop(lower);
            return Err(Error::state("the cache has a directory: detach that first"));
        }
        *lower = Some(made);
        Ok(())
    }

    /// What a thread of the store that caches share would do, for a test that has none.
    #[doc(hidden)]
    pub fn work_remote(&self) -> bool {
        let lower = self.lower.read();
        let lowest = lower.as_ref().and_then(|lower| lower.lowest.as_ref());
        lowest.is_some_and(|lowest| lowest.remote.work())
    }

    /// Whether the calling thread is one of the store's that caches share.
    pub fn is_own_thread(&self) -> bool {
        let lower = self.lower.read();
        let lowest = lower.as_ref().and_then(|lower| lower.lowest.as_ref());
        lowest.is_some_and(|lowest| lowest.remote.is_own_thread())
    }

    /// Whether a store is below memory.
    pub fn is_attached(&self) -> bool {
        self.lower.read().is_some()
    }

    /// What is below memory; `None` when nothing is.
    pub fn tier_stats(&self, freed: &mut FreedSnapshots<P>) -> Option<TierStats> {
        let lower = self.lower.read();
        let lower = lower.as_ref()?;
        self.take_events(lower, true, &mut freed.0);
        let table = lower.table.read();
        let (tickets, loading_bytes) = table.loads.open();
        let index = lower.index.stats();
        Some(TierStats {
            entries: index.entries,
            writing: table.writing(&lower.link),
            tickets,
            loading_bytes,
            index_bytes: index.index_bytes + index.entries * Mark::BYTES,
            counters: table.counters,
            store: lower.link.store.stats(),
            remote: lower.lowest.as_ref().map(|lowest| lowest.remote.stats()).unwrap_or_default(),
        })
    }
}
