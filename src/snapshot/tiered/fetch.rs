//! Bringing states back: what is found below memory, and how it is asked for.
use super::loads::{Ended, Load, LoadState, Waiting};
use super::lower::Lower;
use super::note::{Note, Sizes, sizes};
use super::place::{Mark, Place, key};
use super::table::Table;
use super::value::{Loaded, State, Value};
use super::{Fetch, FreedSnapshots, SnapshotCache, Taken, TieredSnapshots};
use crate::error::Error;
use crate::ids::{HandleId, PinId};
use crate::memory::{Arc, try_box, try_to_vec};
use crate::snapshot::spot::Spot;
use crate::snapshot::{Freed, Namespace, count};
use crate::tier::{Refused, Source};

/// Looks for something shorter while a longer one is being written, or is too large.
const SHORTER: usize = 16;
/// Times that what was found may be gone before it is read.
const TRIES: usize = 4;

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

impl Lower {
    /// The longest prefix whose record is found, or with `trims` what has most tokens in common, if
    /// those are more than `known`; how many that are. A lookup before may have left where the
    /// known ones lead to.
    fn below<R>(
        &self,
        namespace: &Namespace,
        (mut tokens, known): (&[u32], usize),
        mut trims: bool,
        spot: &mut Spot,
        view: impl Fn(&Place) -> R,
    ) -> Option<(usize, Spot, R)> {
        // What memory can't hold is not brought: a shorter one may be.
        let can_come =
            |place: &Place| place.mark.is_committed() && place.bytes() <= self.memory_bytes;
        for left in (0..SHORTER).rev() {
            let look = |place: &Place| match can_come(place) {
                true => Ok(view(place)),
                false => Err(place.is_trimmable && place.bytes() <= self.memory_bytes),
            };
            let longest =
                self.index.longest_beyond(namespace, (tokens, known), trims, spot, can_come, look);
            let (common, end, seen) = longest?;
            let is_found_again = match seen {
                Ok(seen) => return Some((common, end, seen)),
                Err(is_found_again) => is_found_again,
            };
            // With its end taken away it would be found again: from here on whole ones count, and
            // of those the first that can come.
            (tokens, trims) = (&tokens[..common - 1], trims && !is_found_again && left > 1);
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
            let keys = match question.as_mut().filter(|asking| known < asking.tokens.len()) {
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
        let longest = self.memory.longest_beyond(
            namespace,
            (tokens, 0),
            trims,
            &mut nowhere,
            |_| true,
            |_| (),
        );
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
            let Waiting { number, mut common } = table.loads.waiting(ticket)?;
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
            if load.mark.is_none() {
                // What the store was asked for begins with all of what it named, whatever was known
                // before.
                common = note.tokens.len();
            }
            if pin.is_some() || spot.is_some() {
                break (table, note, common, pin);
            }
            // Memory may have another one for its tokens.
            drop(table);
            spot = Some(self.memory.spot_of(note.list(Spot::NONE), |_| ()).0);
        };
        let view = |value: &Value<P>| view(value.state());
        let hit = match pin {
            Some(pin) => self.memory.pin_again(pin, (note.tokens.len(), common), view)?,
            None => self.memory.pin(note.list(spot.unwrap_or(Spot::NONE)), common, view)?,
        };
        let ended = table.loads.end(ticket);
        drop(table);
        self.end(lower, ended, freed);
        if hit.is_some() {
            lower.index.refresh(note.list(Spot::NONE));
        }
        Ok(hit.map_or(Taken::Missed, Taken::Hit))
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
        if let Some(_over) = self.memory.unpin(pin, freed)? {
            self.let_go(lower, false, freed);
        }
        Ok(())
    }
}

/// What a call lets go.
pub(super) type FreedStates<P> = Freed<Value<P>>;

/// Memory, as seen from below it.
pub(super) type Memory<P> = SnapshotCache<Value<P>>;
