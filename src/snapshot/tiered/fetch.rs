//! Bringing states back: reads that go on, and the tickets of those who wait for them.
//!
//! ```text
//! ticket ─► number of a record ─► load: reading ─► ready (an entry in memory, pinned)
//!           or of a question          asking  └──► failed
//! ```
use super::asking::Asking;
use super::lower::{Lower, Numbered, Place, Table, key};
use super::note::{Note, Sizes, sizes};
use super::value::{Loaded, State, Storable, Value};
use super::{Fetch, FreedSnapshots, SnapshotCache, Taken, TieredSnapshots};
use crate::error::Error;
use crate::handles::{Handles, Numbers};
use crate::ids::{HANDLE_LIMIT, HandleId, PinId};
use crate::memory::{Arc, Slab, seed, try_box};
use crate::snapshot::spot::Spot;
use crate::snapshot::{Freed, Hit, Namespace, count};
use crate::tier::{Event, LoadError, Refused, Source, Target};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// Shorter entries that are looked at while a longer one is being written.
const SHORTER: usize = 4;

/// Reads that go on, or have ended and are waited for.
pub(super) struct Loads {
    /// By the number of the record.
    pub(super) loads: Numbered<Load>,
    tickets: Handles,
    /// Those who have a ticket.
    waiting: Slab<Waiting>,
    /// Bytes that are being read.
    pub(super) bytes: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// Of the load.
    pub(super) number: u64,
    /// Tokens that it has in common with what was asked for.
    pub(super) common: usize,
}

pub(super) struct Load {
    /// What is read, when that is known.
    pub(super) note: Arc<Note>,
    /// Tickets.
    pub(super) users: usize,
    pub(super) state: LoadState,
}

pub(super) enum LoadState {
    /// The store that caches share is asked, or read.
    Asking(Box<Asking>),
    /// The directory is read.
    Reading,
    Ready(PinId),
    Failed,
}

/// What is found below memory.
pub(super) struct Below {
    /// Tokens in common with what was asked for.
    pub(super) common: usize,
    /// Its own.
    tokens: Vec<u32>,
    pub(super) number: u64,
    next_token: Option<u32>,
    is_trimmable: bool,
    parts: Sizes,
}

impl Loads {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            loads: HashMap::with_hasher(FixedState::with_seed(seed())),
            tickets: Handles::new("tickets", Numbers::shared(), HANDLE_LIMIT)?,
            waiting: Slab::default(),
            bytes: 0,
        })
    }

    /// Tickets that are out, and bytes that are being read.
    pub(super) fn open(&self) -> (usize, u64) {
        (self.tickets.out(), self.bytes)
    }

    pub(super) fn try_reserve(&mut self) -> Result<(), Error> {
        self.tickets.try_reserve()?;
        self.waiting.try_reserve(1)?;
        self.loads.try_reserve(1).map_err(crate::memory::OutOfMemory::from)?;
        Ok(())
    }

    /// A ticket for a load, for which room was made.
    fn ticket(&mut self, waiting: Waiting) -> HandleId {
        self.loads.get_mut(&waiting.number).expect("a load that is there").users += 1;
        let slot = self.waiting.insert(waiting);
        self.tickets.take(slot)
    }

    fn waiting(&self, ticket: HandleId) -> Result<Waiting, Error> {
        let slot = self.tickets.get(ticket).ok_or(Error::StaleTicket(ticket.0))?;
        Ok(self.waiting[slot])
    }

    /// Ends a ticket. With the last one of a load that has ended the load goes, and its pin is to
    /// be released.
    fn end(&mut self, ticket: HandleId) -> Option<PinId> {
        let slot = self.tickets.release(ticket)?;
        let Waiting { number, .. } = self.waiting.remove(slot);
        let load = self.loads.get_mut(&number)?;
        load.users -= 1;
        let is_kept = match &load.state {
            LoadState::Asking(asking) => asking.is_reading(),
            LoadState::Reading => true,
            LoadState::Ready(_) | LoadState::Failed => false,
        };
        if load.users > 0 || is_kept {
            return None;
        }
        match self.loads.remove(&number)?.state {
            LoadState::Ready(pin) => Some(pin),
            _ => None,
        }
    }

    /// A question that goes on.
    pub(super) fn asking(&mut self, number: u64) -> Option<&mut Asking> {
        match &mut self.loads.get_mut(&number)?.state {
            LoadState::Asking(asking) => Some(asking),
            _ => None,
        }
    }

    /// Those who wait for a load wait for another one, which is there.
    pub(super) fn redirect(&mut self, from: u64, to: Waiting) {
        let mut count = 0;
        for waiting in self.waiting.iter_mut().filter(|other| other.number == from) {
            *waiting = to;
            count += 1;
        }
        if let Some(load) = self.loads.get_mut(&from) {
            load.users -= count;
        }
        if let Some(load) = self.loads.get_mut(&to.number) {
            load.users += count;
        }
    }

    /// What became of a load whose tokens are known now.
    pub(super) fn set_ready(&mut self, number: u64, pin: PinId, common: usize) {
        self.redirect(number, Waiting { number, common });
        if let Some(load) = self.loads.get_mut(&number) {
            load.state = LoadState::Ready(pin);
        }
    }

    /// Nothing comes of a load.
    pub(super) fn fail(&mut self, number: u64) {
        if let Some(load) = self.loads.get_mut(&number) {
            load.state = LoadState::Failed;
        }
    }

    /// Forgets a load that nobody waits for.
    pub(super) fn forget_unused(&mut self, number: u64) {
        if self.loads.get(&number).is_some_and(|load| load.users == 0) {
            self.loads.remove(&number);
        }
    }

    /// The pins of all loads that are ready: they all end.
    pub(super) fn take_pins(&mut self) -> impl Iterator<Item = PinId> {
        self.loads.drain().filter_map(|(_, load)| match load.state {
            LoadState::Ready(pin) => Some(pin),
            _ => None,
        })
    }
}

impl Lower {
    /// The longest prefix whose record is found, or with `trims` what has most tokens in common, if
    /// those are more than `known`; how many that are. A lookup before may have left where the
    /// known ones lead to.
    fn below<R>(
        &self,
        namespace: &Namespace,
        (mut tokens, known): (&[u32], usize),
        trims: bool,
        spot: &mut Spot,
        view: impl Fn(&Place) -> R,
    ) -> Option<(usize, R)> {
        for _ in 0..SHORTER {
            let look = |place: &Place| place.is_committed().then(|| view(place));
            let (common, seen) =
                self.index.longest_beyond(namespace, (tokens, known), trims, spot, look)?;
            if let Some(seen) = seen {
                return Some((common, seen));
            }
            tokens = &tokens[..common - 1];
        }
        None
    }

    /// Tokens that what can be fetched has in common with these, if those are more than the known
    /// ones; else 0.
    pub(super) fn fetchable(
        &self,
        namespace: &Namespace,
        tokens: (&[u32], usize),
        trims: bool,
        spot: &mut Spot,
    ) -> usize {
        self.below(namespace, tokens, trims, spot, |_| ()).map_or(0, |(common, ())| common)
    }

    /// The same, with what a read needs. The table is locked, so that no entry comes or goes.
    pub(super) fn find_below(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
    ) -> Result<Option<Below>, Error> {
        let seen = self.below(namespace, (tokens, 0), trims, &mut { Spot::NONE }, |place| {
            let Place { number, next_token, is_trimmable, parts, .. } = place;
            sizes(parts).map(|parts| (*number, *next_token, *is_trimmable, parts))
        });
        let Some((common, seen)) = seen else { return Ok(None) };
        let (number, next_token, is_trimmable, parts) = seen?;
        let tokens = self.index.longest_tokens(namespace, &tokens[..common], trims)?;
        let tokens = tokens.expect("it was found");
        Ok(Some(Below { common, tokens, number, next_token, is_trimmable, parts }))
    }
}

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Starts to read the longest prefix below memory, if it is longer than what memory has; with
    /// `trims` what has most tokens in common, if they are more. Who asks for what is being read
    /// already waits for the same read.
    pub fn fetch(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
        freed: &mut FreedSnapshots<P>,
    ) -> Result<Option<Fetch>, Error> {
        let lower = self.lower.read();
        let Some(lower) = &*lower else { return Ok(None) };
        let question = lower.question(namespace, tokens, trims)?;
        let mut table = lower.table.write();
        self.take_events(lower, &mut table, &mut freed.0);
        let in_memory = self.memory.longest(namespace, tokens, trims, |_| ());
        let in_memory = in_memory.map_or(0, |(common, ())| common);
        let below = lower.find_below(namespace, tokens, trims)?;
        let below = below.filter(|below| below.common > in_memory);
        table.loads.try_reserve()?;
        let common = below.as_ref().map_or(in_memory, |below| below.common);
        if let Some(question) = question.filter(|_| common < tokens.len())
            && let Some(number) = self.ask(lower, &mut table, (question, common))?
        {
            let ticket = table.loads.ticket(Waiting { number, common });
            return Ok(Some(Fetch { ticket, tokens: 0, common: 0, bytes: 0 }));
        }
        let Some(below) = below else { return Ok(None) };
        let Below { common, number, .. } = below;
        let length = below.tokens.len();
        let is_joined = match table.loads.loads.get(&number) {
            Some(load) if matches!(load.state, LoadState::Failed) => return Ok(None),
            other => other.is_some(),
        };
        if is_joined {
            count(&mut table.counters.joined, 1);
        } else if !self.start(lower, &mut table, namespace, below)? {
            return Ok(None);
        }
        lower.link.store.touch(key(number));
        let bytes = table.loads.loads[&number].note.bytes();
        let ticket = table.loads.ticket(Waiting { number, common });
        Ok(Some(Fetch { ticket, tokens: length, common, bytes }))
    }

    /// Starts a read; false when it cannot be.
    pub(super) fn start(
        &self,
        lower: &Lower,
        table: &mut Table,
        namespace: &Namespace,
        below: Below,
    ) -> Result<bool, Error> {
        let Below { number, tokens, next_token, is_trimmable, parts, .. } = below;
        let namespace = *namespace;
        let note = Arc::new(Note { namespace, tokens, next_token, is_trimmable, parts })?;
        let bytes = note.bytes();
        // What is read is memory too, and has to fit in the end.
        if table.loads.bytes.saturating_add(bytes) > self.memory.limits.bytes {
            count(&mut table.counters.no_memory, 1);
            return Ok(false);
        }
        let target = try_box(Loaded::new(&note.parts)?)?;
        match lower.link.store.get(key(number), target) {
            Ok(_) => {}
            Err((refused, _)) => {
                if matches!(refused, Refused::Missing | Refused::Length) {
                    // The store lost it, and said so to nobody.
                    lower.remove_record(&note, number);
                }
                count(&mut table.counters.failed_loads, 1);
                return Ok(false);
            }
        }
        table.loads.bytes += bytes;
        table.loads.loads.insert(number, Load { note, users: 0, state: LoadState::Reading });
        count(&mut table.counters.loads, 1);
        Ok(true)
    }

    /// What became of a fetch. With anything but "not yet" and an error the ticket has ended.
    pub fn take<R>(
        &self,
        ticket: HandleId,
        view: impl FnOnce(State<'_, P>) -> R,
        freed: &mut FreedSnapshots<P>,
    ) -> Result<Taken<R>, Error> {
        let lower = self.lower.read();
        let lower = lower.as_ref().ok_or(Error::StaleTicket(ticket.0))?;
        let mut table = lower.table.write();
        self.take_events(lower, &mut table, &mut freed.0);
        let Waiting { number, .. } = table.loads.waiting(ticket)?;
        if self.is_late(&mut table, number) {
            count(&mut table.counters.remote_late, 1);
            self.go_without(lower, &mut table, number);
        }
        let Waiting { number, common } = table.loads.waiting(ticket)?;
        let load = &table.loads.loads[&number];
        if matches!(load.state, LoadState::Reading | LoadState::Asking(_)) {
            return Ok(Taken::Pending);
        }
        let note = load.note.clone();
        let Note { namespace, tokens, .. } = &*note;
        let hit = self.memory.pin(namespace, tokens, |value| view(value.state()))?;
        if hit.is_some() {
            lower.index.refresh(namespace, tokens);
        }
        self.end(lower, &mut table, ticket, &mut freed.0);
        Ok(hit.map_or(Taken::Missed, |hit| Taken::Hit(Hit { common, ..hit })))
    }

    /// Gives a fetch up. What is still read is thrown away when it arrives.
    pub fn cancel(&self, ticket: HandleId, freed: &mut FreedSnapshots<P>) -> Result<(), Error> {
        let lower = self.lower.read();
        let lower = lower.as_ref().ok_or(Error::StaleTicket(ticket.0))?;
        let mut table = lower.table.write();
        table.loads.waiting(ticket)?;
        self.end(lower, &mut table, ticket, &mut freed.0);
        Ok(())
    }

    fn end(&self, lower: &Lower, table: &mut Table, ticket: HandleId, freed: &mut FreedStates<P>) {
        if let Some(pin) = table.loads.end(ticket) {
            let over = self.memory.unpin(pin, freed);
            debug_assert!(over.is_ok(), "the pin is ours");
            if over == Ok(true) {
                self.memory.shrink(freed);
                rescue(lower, table, freed);
            }
        }
    }

    /// A read has ended.
    pub(super) fn land(
        &self,
        lower: &Lower,
        table: &mut Table,
        event: Event,
        freed: &mut FreedStates<P>,
    ) {
        let Event::Loaded { key, target, result, .. } = event else { return };
        let number = u64::from_be_bytes(key[..8].try_into().expect("eight bytes"));
        let Some(load) = table.loads.loads.get(&number) else { return };
        let (note, users) = (load.note.clone(), load.users);
        table.loads.bytes -= note.bytes();
        let state = match result {
            Err(why) => {
                // Nobody tries for ever.
                lower.remove_record(&note, number);
                let counters = &mut table.counters;
                count(&mut counters.failed_loads, 1);
                count(&mut counters.damaged, (why == LoadError::Damaged) as usize);
                LoadState::Failed
            }
            Ok(()) if users == 0 => {
                count(&mut table.counters.late, 1);
                LoadState::Failed
            }
            // It was replaced or removed meanwhile.
            Ok(()) if !lower.has(&note, number) => LoadState::Failed,
            Ok(()) => match self.arrive(&note, number, target, freed) {
                Ok(Some(pin)) => {
                    let Note { namespace, tokens, .. } = &*note;
                    lower.index.exactly(namespace, tokens, |place| place.set_alone(false));
                    count(&mut table.counters.loaded, 1);
                    LoadState::Ready(pin)
                }
                _ => LoadState::Failed,
            },
        };
        rescue(lower, table, freed);
        if users == 0 {
            table.loads.loads.remove(&number);
        } else if let Some(load) = table.loads.loads.get_mut(&number) {
            load.state = state;
        }
    }

    /// Makes an entry in memory of what was read, and pins it.
    fn arrive(
        &self,
        note: &Arc<Note>,
        number: u64,
        target: Box<dyn Target>,
        freed: &mut FreedStates<P>,
    ) -> Result<Option<PinId>, Error> {
        let Ok(loaded) = target.into_any().downcast::<Loaded>() else { return Ok(None) };
        self.arrive_loaded(note, number, *loaded, freed)
    }

    /// The same of what it was read into.
    pub(super) fn arrive_loaded(
        &self,
        note: &Arc<Note>,
        number: u64,
        loaded: Loaded,
        freed: &mut FreedStates<P>,
    ) -> Result<Option<PinId>, Error> {
        let Note { namespace, tokens, .. } = &**note;
        if self.memory.exactly(namespace, tokens, |_| ()).is_none() {
            let state = Storable::loaded(note, loaded, number)?;
            self.memory.insert(note.entry(note.bytes()), || Value::Storable(state), freed)?;
        }
        Ok(self.memory.pin(namespace, tokens, |_| ())?.map(|hit| hit.pin))
    }
}

/// What a call lets go.
pub(super) type FreedStates<P> = Freed<Value<P>>;

/// Has what went for memory's limits kept below, where it is worth that.
pub(super) fn rescue<P: Source + 'static>(
    lower: &Lower,
    table: &mut Table,
    freed: &mut FreedStates<P>,
) {
    for value in freed.evicted() {
        lower.rescue(table, value);
    }
    freed.settle();
}

/// Memory, as seen from below it.
pub(super) type Memory<P> = SnapshotCache<Value<P>>;
