//! Bringing states back: reads that go on, and the tickets of those who wait for them.
//!
//! ```text
//! ticket ─► number of a record ─► load: reading ─► ready (an entry in memory, pinned)
//!           or of a question          asking  └──► failed
//! ```
use super::asking::Asking;
use super::lower::Lower;
use super::note::{Note, Sizes, sizes};
use super::place::{Mark, Place, key};
use super::table::Table;
use super::value::{Loaded, State, Value};
use super::{Fetch, FreedSnapshots, SnapshotCache, Taken, TieredSnapshots};
use crate::error::Error;
use crate::handles::{Handles, Numbers};
use crate::ids::{HANDLE_LIMIT, HandleId, PinId};
use crate::memory::{Arc, OutOfMemory, Slab, seed, try_box, try_to_vec};
use crate::snapshot::spot::Spot;
use crate::snapshot::{Freed, Hit, Namespace, count};
use crate::tier::{LoadError, Refused, Source};
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};

/// Shorter entries that are looked at while a longer one is being written.
const SHORTER: usize = 4;
/// Times that what was found may be gone before it is read.
const TRIES: usize = 4;

type Numbered<T> = HashMap<u64, T, FixedState>;

/// Reads that go on, or have ended and are waited for.
pub(super) struct Loads {
    /// By the number of the record.
    pub(super) loads: Numbered<Load>,
    /// Those that brought something which is no entry yet; there is room for all.
    came: VecDeque<u64>,
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
    /// The record, when it is one of the directory.
    pub(super) mark: Option<Arc<Mark>>,
    /// Tickets.
    pub(super) users: usize,
    pub(super) state: LoadState,
}

pub(super) enum LoadState {
    /// The store that caches share is asked, or read.
    Asking(Box<Asking>),
    /// The directory is read.
    Reading,
    /// It was, or the store that caches share was.
    Came(Came),
    Ready(PinId),
    Failed,
}

/// What a read brought, and with what was asked for it.
pub(super) struct Came {
    pub(super) loaded: Result<Box<Loaded>, LoadError>,
    pub(super) asking: Option<Box<Asking>>,
}

/// What goes with a ticket, to be dropped without the table.
pub(super) struct Ended {
    /// To be released.
    pin: Option<PinId>,
    _load: Option<Load>,
}

/// What is found below memory.
pub(super) struct Below {
    /// Tokens in common with what was asked for.
    pub(super) common: usize,
    /// Its own.
    tokens: Vec<u32>,
    pub(super) mark: Arc<Mark>,
    next_token: Option<u32>,
    is_trimmable: bool,
    parts: Sizes,
}

impl Loads {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            loads: HashMap::with_hasher(FixedState::with_seed(seed())),
            came: VecDeque::new(),
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
        self.loads.try_reserve(1).map_err(OutOfMemory::from)?;
        self.came.try_reserve(self.loads.len() + 1).map_err(OutOfMemory::from)?;
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

    /// Ends a ticket. With the last one of a load that has ended the load goes.
    fn end(&mut self, ticket: HandleId) -> Ended {
        let mut ended = Ended { pin: None, _load: None };
        let Some(slot) = self.tickets.release(ticket) else { return ended };
        let Waiting { number, .. } = self.waiting.remove(slot);
        let Some(load) = self.loads.get_mut(&number) else { return ended };
        load.users -= 1;
        let is_kept = match &load.state {
            LoadState::Asking(asking) => asking.is_reading(),
            LoadState::Reading | LoadState::Came(_) => true,
            LoadState::Ready(_) | LoadState::Failed => false,
        };
        if load.users == 0 && !is_kept {
            let load = self.loads.remove(&number);
            ended.pin = match load.as_ref().map(|load| &load.state) {
                Some(LoadState::Ready(pin)) => Some(*pin),
                _ => None,
            };
            ended._load = load;
        }
        ended
    }

    /// A read has brought something, or nothing. It waits to be made an entry of.
    pub(super) fn come(&mut self, number: u64, loaded: Result<Box<Loaded>, LoadError>) {
        let Some(load) = self.loads.get_mut(&number) else { return };
        let before = std::mem::replace(&mut load.state, LoadState::Failed);
        let asking = match before {
            LoadState::Asking(asking) => Some(asking),
            _ => None,
        };
        load.state = LoadState::Came(Came { loaded, asking });
        self.came.push_back(number);
    }

    /// The first that waits so.
    pub(super) fn first_came(&self) -> Option<u64> {
        self.came.front().copied()
    }

    /// What is to become an entry, and whether it can be one.
    pub(super) fn came(&self, number: u64) -> Option<(Arc<Note>, bool)> {
        let load = self.loads.get(&number)?;
        match &load.state {
            LoadState::Came(came) => {
                Some((load.note.clone(), came.loaded.is_ok() && load.users > 0))
            }
            _ => None,
        }
    }

    /// Takes what came, of which something becomes now.
    pub(super) fn take_came(&mut self, number: u64) -> Option<Came> {
        let load = self.loads.get_mut(&number)?;
        if !matches!(load.state, LoadState::Came(_)) {
            return None;
        }
        let state = std::mem::replace(&mut load.state, LoadState::Failed);
        self.came.retain(|other| *other != number);
        match state {
            LoadState::Came(came) => Some(came),
            _ => None,
        }
    }

    /// What became of it. Returns it if nobody waits for it.
    pub(super) fn end_came(
        &mut self,
        number: u64,
        pin: Option<PinId>,
        asking: Option<Box<Asking>>,
    ) -> Option<Load> {
        let load = self.loads.get_mut(&number)?;
        if load.users == 0 {
            return self.loads.remove(&number);
        }
        match (pin, asking) {
            (Some(pin), Some(_)) => {
                let common = load.note.tokens.len();
                self.set_ready(number, pin, common);
            }
            (Some(pin), None) => load.state = LoadState::Ready(pin),
            (None, Some(mut asking)) => {
                asking.has_failed();
                load.state = LoadState::Asking(asking);
            }
            (None, None) => load.state = LoadState::Failed,
        }
        None
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
    ) -> Option<(usize, Spot, R)> {
        for _ in 0..SHORTER {
            let look = |place: &Place| place.mark.is_committed().then(|| view(place));
            let (common, end, seen) =
                self.index.longest_beyond(namespace, (tokens, known), trims, spot, look)?;
            if let Some(seen) = seen {
                return Some((common, end, seen));
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
        self.below(namespace, tokens, trims, spot, |_| ()).map_or(0, |(common, ..)| common)
    }

    /// The same, with what a read needs. Who reads looks whether it is still there.
    pub(super) fn find_below(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
    ) -> Result<Option<Below>, Error> {
        for _ in 0..TRIES {
            let seen = self.below(namespace, (tokens, 0), trims, &mut { Spot::NONE }, |place| {
                let Place { mark, next_token, is_trimmable, parts, .. } = place;
                sizes(parts).map(|parts| (mark.clone(), *next_token, *is_trimmable, parts))
            });
            let Some((common, end, seen)) = seen else { return Ok(None) };
            let (mark, next_token, is_trimmable, parts) = seen?;
            let tokens = match trims {
                true => self.index.tokens_at(end, &tokens[..common])?,
                false => Some(try_to_vec(&tokens[..common])?),
            };
            if let Some(tokens) = tokens {
                return Ok(Some(Below { common, tokens, mark, next_token, is_trimmable, parts }));
            }
        }
        Ok(None)
    }
}

/// A read that is about to begin.
pub(super) struct Start {
    note: Arc<Note>,
    mark: Arc<Mark>,
    target: Box<Loaded>,
}

impl Start {
    /// Of the record that is read.
    pub(super) fn mark(&self) -> &Mark {
        &self.mark
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
        let mut question = lower.question(namespace, tokens, trims)?;
        self.take_events(lower, true, &mut freed.0);
        for _ in 0..TRIES {
            let (in_memory, below) = self.look(lower, (namespace, tokens), trims)?;
            let known = below.as_ref().map_or(in_memory, |below| below.common);
            let keys = match question.as_mut().filter(|_| known < tokens.len()) {
                Some(asking) => asking.begin(lower, known)?,
                None => None,
            };
            let below = below.map(|below| {
                let (number, common, length) =
                    (below.mark.number, below.common, below.tokens.len());
                self.prepare(lower, namespace, below).map(|start| (start, number, common, length))
            });
            let below = below.transpose()?;
            let mut table = lower.change();
            table.loads.try_reserve()?;
            if let Some(keys) = keys
                && let Some(asking) = question.take()
                && let Some(number) = self.ask(lower, &mut table, asking, keys)?
            {
                let ticket = table.loads.ticket(Waiting { number, common: known });
                return Ok(Some(Fetch { ticket, tokens: 0, common: 0, bytes: 0 }));
            }
            let Some((start, number, common, length)) = below else { return Ok(None) };
            if lower.link.is_gone(&start.mark) {
                continue;
            }
            let has_failed = |load: &Load| matches!(load.state, LoadState::Failed);
            match table.loads.loads.get(&number).map(has_failed) {
                Some(true) => return Ok(None),
                Some(false) => count(&mut table.counters.joined, 1),
                None if !self.start(lower, &mut table, start) => return Ok(None),
                None => {}
            }
            lower.link.store.touch(key(number));
            let bytes = table.loads.loads[&number].note.bytes();
            let ticket = table.loads.ticket(Waiting { number, common });
            return Ok(Some(Fetch { ticket, tokens: length, common, bytes }));
        }
        Ok(None)
    }

    /// Tokens in common with what memory has, and what is below memory that has more.
    pub(super) fn look(
        &self,
        lower: &Lower,
        (namespace, tokens): (&Namespace, &[u32]),
        trims: bool,
    ) -> Result<(usize, Option<Below>), Error> {
        let mut nowhere = Spot::NONE;
        let longest =
            self.memory.longest_beyond(namespace, (tokens, 0), trims, &mut nowhere, |_| ());
        let in_memory = longest.map_or(0, |(common, ..)| common);
        let below = lower.find_below(namespace, tokens, trims)?;
        Ok((in_memory, below.filter(|below| below.common > in_memory)))
    }

    /// What takes long of a read, beforehand.
    pub(super) fn prepare(
        &self,
        lower: &Lower,
        namespace: &Namespace,
        below: Below,
    ) -> Result<Start, Error> {
        let Below { mark, tokens, next_token, is_trimmable, parts, .. } = below;
        let namespace = *namespace;
        let note = Arc::new(Note { namespace, tokens, next_token, is_trimmable, parts })?;
        let table = lower.table.read();
        let is_open = table.loads.loads.contains_key(&mark.number);
        let is_in_vain = is_open || !self.has_room_to_load(&table, note.bytes());
        drop(table);
        // Nobody needs it then, unless that changes before the table is locked again.
        let sizes: &[u64] = if is_in_vain { &[] } else { &note.parts };
        let target = try_box(Loaded::new(sizes)?)?;
        Ok(Start { note, mark, target })
    }

    /// Whether so much may be read now: it is memory too, and has to fit in the end.
    pub(super) fn has_room_to_load(&self, table: &Table, bytes: u64) -> bool {
        table.loads.bytes.saturating_add(bytes) <= self.memory.limits.bytes
    }

    /// Starts a read; false when it cannot be.
    pub(super) fn start(&self, lower: &Lower, table: &mut Table, start: Start) -> bool {
        let Start { note, mark, mut target } = start;
        let bytes = note.bytes();
        if !self.has_room_to_load(table, bytes) {
            count(&mut table.counters.no_memory, 1);
            return false;
        }
        if target.parts() != note.parts.len() {
            match Loaded::new(&note.parts) {
                Ok(made) => *target = made,
                Err(_) => return false,
            }
        }
        match lower.link.store.get(key(mark.number), target) {
            Ok(_) => {}
            Err((refused, _)) => {
                if matches!(refused, Refused::Missing | Refused::Length) {
                    // The store lost it, and said so to nobody.
                    let is_meant = |place: &Place| place.mark.number == mark.number;
                    let list = note.list(Spot::NONE);
                    lower.index.remove_if(list, &mut Freed::new(), is_meant);
                }
                count(&mut table.counters.failed_loads, 1);
                return false;
            }
        }
        table.loads.bytes += bytes;
        let (number, state) = (mark.number, LoadState::Reading);
        table.loads.loads.insert(number, Load { note, mark: Some(mark), users: 0, state });
        count(&mut table.counters.loads, 1);
        true
    }

    /// What became of a fetch. With anything but "not yet" and an error the ticket has ended.
    pub fn take<R>(
        &self,
        ticket: HandleId,
        view: impl FnOnce(State<'_, P>) -> R,
        freed: &mut FreedSnapshots<P>,
    ) -> Result<Taken<R>, Error> {
        let freed = &mut freed.0;
        let lower = self.lower.read();
        let lower = lower.as_ref().ok_or(Error::StaleTicket(ticket.0))?;
        self.take_events(lower, true, freed);
        let mut spot = None;
        let (mut table, note, common, pin) = loop {
            let mut table = lower.change();
            let Waiting { number, common } = table.loads.waiting(ticket)?;
            if self.is_late(&mut table, number) {
                count(&mut table.counters.remote_late, 1);
                drop(table);
                self.go_without(lower, number);
                continue;
            }
            let load = &table.loads.loads[&number];
            let pin = match &load.state {
                LoadState::Reading | LoadState::Asking(_) => return Ok(Taken::Pending),
                LoadState::Came(_) => {
                    drop(table);
                    self.land(lower, number, freed);
                    continue;
                }
                LoadState::Ready(pin) => Some(*pin).filter(|&pin| self.memory.is_entry(pin)),
                LoadState::Failed => None,
            };
            let note = load.note.clone();
            if pin.is_some() || spot.is_some() {
                break (table, note, common, pin);
            }
            // Memory may have another one for its tokens.
            drop(table);
            spot = Some(self.memory.spot_of(note.list(Spot::NONE), |_| ()).0);
        };
        let view = |value: &Value<P>| view(value.state());
        let hit = match pin {
            Some(pin) => self.memory.pin_again(pin, note.tokens.len(), view)?,
            None => self.memory.pin(note.list(spot.unwrap_or(Spot::NONE)), view)?,
        };
        let ended = table.loads.end(ticket);
        drop(table);
        self.end(lower, ended, freed);
        if hit.is_some() {
            lower.index.refresh(note.list(Spot::NONE));
        }
        Ok(hit.map_or(Taken::Missed, |hit| Taken::Hit(Hit { common, ..hit })))
    }

    /// Gives a fetch up. What is still read is thrown away when it arrives.
    pub fn cancel(&self, ticket: HandleId, freed: &mut FreedSnapshots<P>) -> Result<(), Error> {
        let lower = self.lower.read();
        let lower = lower.as_ref().ok_or(Error::StaleTicket(ticket.0))?;
        let mut table = lower.change();
        table.loads.waiting(ticket)?;
        let ended = table.loads.end(ticket);
        drop(table);
        self.end(lower, ended, &mut freed.0);
        Ok(())
    }

    fn end(&self, lower: &Lower, ended: Ended, freed: &mut FreedStates<P>) {
        if let Some(pin) = ended.pin {
            let released = self.unpin(lower, pin, freed);
            debug_assert!(released.is_ok(), "the pin is ours");
        }
    }

    /// Ends a pin, and lets go what is too much for memory then.
    pub(super) fn unpin(
        &self,
        lower: &Lower,
        pin: PinId,
        freed: &mut FreedStates<P>,
    ) -> Result<(), Error> {
        let _over = self.memory.evicting();
        if self.memory.unpin(pin, freed)? {
            self.let_go(lower, false, freed);
        }
        Ok(())
    }
}

/// What a call lets go.
pub(super) type FreedStates<P> = Freed<Value<P>>;

/// Memory, as seen from below it.
pub(super) type Memory<P> = SnapshotCache<Value<P>>;
