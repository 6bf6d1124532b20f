//! Reads that go on, and the tickets of those who wait for them.
//!
//! ```text
//! ticket ─► number of a record ─► load: reading ─► came ─► ready (an entry in memory, pinned)
//!           or of a question          asking             └──► failed
//! ```
use super::asking::Asking;
use super::note::Note;
use super::place::Mark;
use super::value::Loaded;
use crate::error::Error;
use crate::handles::{Handles, Numbers};
use crate::ids::{HANDLE_LIMIT, HandleId, PinId};
use crate::memory::{Arc, OutOfMemory, Slab, seed};
use crate::snapshot::spot::Exact;
use crate::tier::LoadError;
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};

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
    pub(super) result: Result<(), LoadError>,
    /// Much to free, so not with the table.
    pub(super) loaded: Option<Box<Loaded>>,
    pub(super) asking: Option<Box<Asking>>,
}

/// What goes with a ticket, to be dropped without the table.
pub(super) struct Ended {
    /// To be released.
    pub(super) pin: Option<PinId>,
    _load: Option<Load>,
}

impl Loads {
    /// A list was removed: what is asked for a text that begins with it may be that.
    pub(super) fn remove(&mut self, list: Exact<'_>) {
        for load in self.loads.values_mut() {
            let read = load.note.tokens.len();
            let asking = match &mut load.state {
                LoadState::Asking(asking) => Some(asking),
                LoadState::Came(came) => came.asking.as_mut(),
                _ => None,
            };
            if let Some(asking) = asking
                // Only more than what was known is asked for.
                && list.tokens.len() > asking.least
                && asking.namespace == *list.namespace
                && asking.tokens.starts_with(list.tokens)
            {
                match asking.may_bring(list.tokens.len(), read) {
                    true => asking.is_removed = true,
                    // Of a longer one it may turn out that there is no room for it.
                    false => asking.is_shorter_removed = true,
                }
            }
        }
    }

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
    pub(super) fn ticket(&mut self, waiting: Waiting) -> HandleId {
        self.loads.get_mut(&waiting.number).expect("a load that is there").users += 1;
        let slot = self.waiting.insert(waiting);
        self.tickets.take(slot)
    }

    pub(super) fn waiting(&self, ticket: HandleId) -> Result<Waiting, Error> {
        let slot = self.tickets.get(ticket).ok_or(Error::StaleTicket(ticket.0))?;
        Ok(self.waiting[slot])
    }

    /// Ends a ticket. With the last one of a load that has ended the load goes.
    pub(super) fn end(&mut self, ticket: HandleId) -> Ended {
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
    pub(super) fn come(
        &mut self,
        number: u64,
        result: Result<(), LoadError>,
        loaded: Option<Box<Loaded>>,
    ) {
        let Some(load) = self.loads.get_mut(&number) else { return };
        let before = std::mem::replace(&mut load.state, LoadState::Failed);
        let asking = match before {
            LoadState::Asking(asking) => Some(asking),
            _ => None,
        };
        load.state = LoadState::Came(Came { result, loaded, asking });
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
                Some((load.note.clone(), came.result.is_ok() && load.users > 0))
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
