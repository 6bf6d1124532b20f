//! Below memory and the directory: a store that caches share, of which nobody knows what it has.
//!
//! A state is found there by the digest of its tokens, so a longest prefix has to be asked for:
//! each block of tokens that a state ends in has a mark under the digest of all before it, so first
//! it is asked which is the last block of a prompt with one, and then which of the lengths in that
//! block. Marks say nothing else, so whoever writes one never takes away another one's.
//!
//! ```text
//! fetch ─► asking: marks ─► lengths ─► head ─► pieces ─► an entry in memory, pinned
//!                └────────────┴─────────┴────────┴─► the directory, or nothing
//! ```
use super::TieredSnapshots;
use super::asking::{Asking, BLOCK, Step, block_digests, last_digest};
use super::fetch::FreedStates;
use super::head::{Body, Head, PARTS, decode, encode};
use super::loads::{Load, LoadState, Waiting};
use super::lower::Lower;
use super::note::{Note, Sizes};
use super::table::Table;
use super::value::{Loaded, Storable, Writing};
use crate::error::Error;
use crate::ids::PinId;
use crate::memory::{Arc, try_box, try_to_vec};
use crate::snapshot::spot::Exact;
use crate::snapshot::{Namespace, count};
use crate::tier::remote::{
    KeySpace, LargeHead, LargePlan, Question, ReadEnd, Remote, RemoteConfig, RemoteEvent,
};
use crate::tier::{Key, LoadError, Source, Wake};
use crate::token::{PageDigest, is_text};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Numbers of loads that are not those of a record have this bit.
pub(super) const NUMBERS: u64 = 1 << 63;

/// The store, and what it is asked with.
pub(super) struct Lowest {
    pub(super) remote: Remote,
    pub(super) keys: KeySpace,
    /// Everything was removed: what others keep can't be told from that. What waits to be written
    /// looks at it too.
    is_left: Arc<AtomicBool>,
}

/// A state that waits to be given to the store, or is, unless all is removed meanwhile.
struct Offered<P> {
    state: Writing<P>,
    is_left: Arc<AtomicBool>,
}

impl<P: Source> Source for Offered<P> {
    fn parts(&self) -> usize {
        self.state.parts()
    }

    fn part(&self, index: usize) -> &[u8] {
        self.state.part(index)
    }

    fn is_wanted(&self) -> bool {
        !self.is_left.load(Relaxed)
    }
}

impl Lowest {
    pub(super) fn new(config: RemoteConfig, wake: Wake) -> Result<Self, Error> {
        // No page has no bytes: these keys are none of a paged cache.
        let keys = KeySpace::new(&config.fingerprint, BLOCK, 0);
        let is_left = Arc::new(AtomicBool::new(false))?;
        let remote = Remote::start(config, wake)?;
        Ok(Self { remote, keys, is_left })
    }

    /// What was removed can't be taken out of a store that others fill.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Relaxed);
    }

    fn is_open(&self) -> bool {
        !self.is_left.load(Relaxed) && !self.remote.is_paused()
    }

    pub(super) fn mark(&self, digest: &PageDigest) -> Key {
        self.keys.key(0, digest)
    }

    /// The key of a state. Making it takes a while, and no memory; none for what is no text.
    fn key(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Key> {
        let digest = last_digest(namespace, tokens)?;
        let whole = tokens.len() / BLOCK * BLOCK;
        Some(self.keys.key_after(&digest, &tokens[whole..]))
    }
}

impl Lower {
    /// Whether a call has something to take in.
    pub(super) fn has_events(&self) -> bool {
        let answered = self.lowest.as_ref().is_some_and(|lowest| lowest.remote.has_events());
        answered || self.link.store.has_events()
    }

    /// How many states the store that caches share was ever given, or told to remove.
    pub(super) fn given(&self) -> u64 {
        self.lowest.as_ref().map_or(0, |lowest| lowest.remote.given())
    }

    /// Whether that has written the first so many of them, or takes nothing now; and has removed
    /// those that it was to remove, which wait for the end of a pause.
    pub(super) fn is_given(&self, count: u64) -> bool {
        let remote = self.lowest.as_ref().map(|lowest| &lowest.remote);
        remote.is_none_or(|remote| {
            (remote.is_paused() || remote.are_written(count)) && remote.are_removed(count)
        })
    }

    /// Whether that has something that was removed, and nobody asks it to any more.
    pub(super) fn has_unremoved(&self) -> bool {
        self.lowest.as_ref().is_some_and(|lowest| lowest.remote.has_unremoved())
    }

    /// The key of a state in the store that caches share, if there is one.
    pub(super) fn key(&self, namespace: &Namespace, tokens: &[u32]) -> Option<Key> {
        self.lowest.as_ref()?.key(namespace, tokens)
    }

    /// A state is removed: what is on its way doesn't come, and what is there goes.
    pub(super) fn forget(&self, table: &mut Table, key: Option<Key>, list: Exact<'_>) {
        table.loads.remove(list);
        if let (Some(lowest), Some(key)) = (&self.lowest, key) {
            lowest.remote.remove(key);
        }
    }

    /// Another state took the place of one: that one doesn't come back, unless the store is left to
    /// others.
    pub(super) fn replaced(&self, key: Option<Key>) {
        if let (Some(lowest), Some(key)) = (&self.lowest, key)
            && !lowest.is_left.load(Relaxed)
        {
            lowest.remote.remove(key);
        }
    }

    /// All states are removed.
    pub(super) fn leave(&self, table: &mut Table) {
        table.removals += 1;
        if let Some(lowest) = &self.lowest {
            lowest.leave();
        }
    }

    /// Gives a state to the store, if it wasn't given yet.
    pub(super) fn offer<P: Source + 'static>(&self, table: &mut Table, state: &Arc<Storable<P>>) {
        let Some(lowest) = self.lowest.as_ref().filter(|lowest| lowest.is_open()) else { return };
        let note = &state.note;
        let bytes = usize::try_from(note.bytes()).unwrap_or(usize::MAX);
        let attachment = self.link.attachment;
        if state.offered_to.load(Relaxed) == attachment || bytes == 0 {
            return;
        }
        if !lowest.remote.has_room(bytes) || note.parts.len() > PARTS {
            count(&mut table.counters.not_offered, 1);
            return;
        }
        let (keys, about) = (lowest.keys.clone(), note.clone());
        let source = Offered { state: Writing(state.clone()), is_left: lowest.is_left.clone() };
        let plan = move || {
            let Note { namespace, tokens, .. } = &*about;
            let digest = last_digest(namespace, tokens)?;
            let whole = tokens.len() / BLOCK * BLOCK;
            let key = keys.key_after(&digest, &tokens[whole..]);
            Some(LargePlan { key, note: encode(&about)?, mark: keys.key(0, &digest) })
        };
        let given = try_box(plan).and_then(|plan| lowest.remote.put_large(plan, try_box(source)?));
        match given {
            Ok(true) => state.offered_to.store(attachment, Relaxed),
            Ok(false) => {}
            Err(_) => count(&mut table.counters.not_offered, 1),
        }
    }

    /// A question about tokens, for when the lock is held: making it takes a while.
    pub(super) fn question(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
    ) -> Result<Option<Asking>, Error> {
        let is_open = self.lowest.as_ref().is_some_and(Lowest::is_open);
        if !is_open || self.memory_bytes == 0 {
            return Ok(None);
        }
        // Ids that are no text match nothing, nor does what comes behind them.
        let text = tokens.iter().position(|&id| !is_text(id)).unwrap_or(tokens.len());
        let tokens = &tokens[..text];
        if tokens.is_empty() {
            return Ok(None);
        }
        Ok(Some(Asking {
            namespace: *namespace,
            tokens: Arc::new(try_to_vec(tokens)?)?,
            digests: block_digests(namespace, tokens)?,
            least: 0,
            trims,
            step: Step::Marks { last: tokens.len() / BLOCK },
            rounds: 0,
            until: Instant::now(),
            removals: 0,
            is_removed: false,
            is_shorter_removed: false,
            is_given_up: false,
        }))
    }

    /// When a step of so many calls has taken too long.
    fn end_of_step(&self, calls: u64) -> Instant {
        let now = Instant::now();
        let time = self.lowest.as_ref().map(|lowest| lowest.remote.timeout()).unwrap_or_default();
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        time.checked_mul(calls).and_then(|time| now.checked_add(time)).unwrap_or(now)
    }
}

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Asks the store for more tokens than there are here. The number of the load; who asks for the
    /// same waits for the same answer. None when there is nothing to ask.
    pub(super) fn ask(
        &self,
        lower: &Lower,
        table: &mut Table,
        mut asking: Asking,
        keys: Vec<Key>,
    ) -> Result<Option<u64>, Error> {
        // It was left after the question was made: that looked without the table, under which this
        // is said, and what was cleared since would come back.
        let lowest = lower.lowest.as_ref().filter(|lowest| !lowest.is_left.load(Relaxed));
        let Some(lowest) = lowest else { return Ok(None) };
        let is_same = |load: &Load| match &load.state {
            LoadState::Asking(other) => {
                load.users > 0 && !other.is_removed && other.is_same(&asking)
            }
            _ => false,
        };
        let mut loads = table.loads.loads.iter();
        if let Some((&number, _)) = loads.find(|(_, load)| is_same(load)) {
            count(&mut table.counters.joined, 1);
            return Ok(Some(number));
        }
        asking.removals = table.removals;
        asking.until = lower.end_of_step(1);
        let note = Note {
            namespace: asking.namespace,
            tokens: Vec::new(),
            next_token: None,
            is_trimmable: false,
            parts: Sizes::new(),
        };
        let note = Arc::new(note)?;
        let number = table.next_number() | NUMBERS;
        let state = LoadState::Asking(try_box(asking)?);
        lowest.remote.ask(Question::First, number, keys)?;
        table.loads.loads.insert(number, Load { note, mark: None, users: 0, state });
        Ok(Some(number))
    }

    /// Takes in what the store has answered. What that takes long for is done without the table, so
    /// who was woken by an answer may find nothing yet: he is woken again.
    pub(super) fn take_answers(&self, lower: &Lower, waits: bool) {
        let Some(lowest) = &lower.lowest else { return };
        while lowest.remote.has_events() {
            let Some(mut table) = lower.try_change(waits) else { return };
            let mut events = std::mem::take(&mut table.answers);
            drop(table);
            lowest.remote.poll(&mut events);
            // Without memory they wait for another call.
            let is_empty = events.is_empty();
            let mut is_news = false;
            for event in events.drain(..) {
                let number = match event {
                    // Nothing of the kind is asked for states.
                    RemoteEvent::AskedEach { .. } => continue,
                    RemoteEvent::Asked { ticket, found } => {
                        (!self.take_answer(lower, (ticket, found))).then_some(ticket)
                    }
                    RemoteEvent::Read { target, end } => {
                        match target.into_any().downcast::<Head>() {
                            Ok(head) => {
                                let is_begun = self.begin_body(lower, &head, end) == Ok(true);
                                (!is_begun).then_some(head.number)
                            }
                            Err(other) => {
                                if let Ok(body) = other.downcast::<Body>() {
                                    take_body(lower, *body, end);
                                    is_news = true;
                                }
                                None
                            }
                        }
                    }
                };
                if let Some(number) = number {
                    self.go_without(lower, number);
                    is_news = true;
                }
            }
            lower.change().answers = events;
            if is_news {
                lowest.remote.wake();
            }
            if is_empty {
                return;
            }
        }
    }

    /// Goes on with an answer. False when it leads to nothing.
    fn take_answer(&self, lower: &Lower, (number, found): (u64, usize)) -> bool {
        let mut table = lower.change();
        let (Some(lowest), Some(asking)) = (&lower.lowest, table.loads.asking(number)) else {
            return true;
        };
        let next = match asking.answered(found) {
            // What was removed or replaced is gone, though no thread has come to it yet. Where one
            // was quicker the head is missing; a removal after this look finds the question.
            Some(Step::Head { length }) if asking.is_to_go(lowest, length) => {
                asking.shorter(length)
            }
            next => next,
        };
        next.is_some_and(|next| {
            (asking.step, asking.until) = (next, lower.end_of_step(1));
            asking.ask(lowest, number) == Ok(true)
        })
    }

    /// Starts to read what a head names, or asks for a shorter state. False when neither leads to
    /// anything.
    fn begin_body(&self, lower: &Lower, head: &Head, end: ReadEnd) -> Result<bool, Error> {
        let Head { number, key, bytes } = head;
        let mut table = lower.change();
        let (Some(lowest), Some(asking)) = (&lower.lowest, table.loads.asking(*number)) else {
            return Ok(true);
        };
        let Step::Head { length } = asking.step else { return Ok(true) };
        if end != ReadEnd::Good {
            return Ok(false);
        }
        let (namespace, tokens) = (asking.namespace, asking.tokens.clone());
        drop(table);
        let (id, about) = bytes.split_at(16);
        let note = decode(about, &namespace, &tokens[..length]);
        let note = note.map(Arc::new).transpose()?;
        let Some(note) = note.filter(|note| note.bytes() > 0) else { return Ok(false) };
        let bytes = note.bytes();
        if !self.has_room_to_load(&lower.table.read(), bytes) {
            return ask_shorter(lower, *number, length);
        }
        let target = try_box(Body { number: *number, state: Loaded::new(&note.parts)? })?;
        let until = lower.end_of_step(1 + Remote::pieces(bytes));
        let mut table = lower.change();
        // It may be over meanwhile.
        let Some(asking) = table.loads.asking(*number) else { return Ok(true) };
        if !matches!(asking.step, Step::Head { .. }) {
            return Ok(true);
        }
        // Others may have taken the room meanwhile.
        if !self.has_room_to_load(&table, bytes) {
            drop(table);
            return ask_shorter(lower, *number, length);
        }
        let Some(asking) = table.loads.asking(*number) else { return Ok(true) };
        let head = LargeHead { key: *key, id: id.try_into().expect("so many bytes") };
        lowest.remote.get_pieces(head, target, until)?;
        (asking.step, asking.until) = (Step::Body, until);
        table.loads.bytes += bytes;
        table.loads.loads.get_mut(number).expect("it was there").note = note;
        count(&mut table.counters.loads, 1);
        Ok(true)
    }

    /// A state came from the store: it is not to be given back, and a restart finds it.
    pub(super) fn arrived_from_afar(&self, lower: &Lower, pin: PinId, freed: &mut FreedStates<P>) {
        let offered = self.memory.pinned(pin, |value| {
            if let Some(state) = value.storable() {
                state.offered_to.store(lower.link.attachment, Relaxed);
            }
        });
        if offered.is_ok() && lower.policy.wants(0, false) {
            // Without that memory has it all the same.
            let _ = self.write_pinned(lower, pin, freed);
        }
    }

    /// The store has nothing of use, or doesn't say: those who wait have what the directory has.
    pub(super) fn go_without(&self, lower: &Lower, number: u64) {
        let mut table = lower.change();
        let Some(asking) = table.loads.asking(number) else { return };
        let (namespace, trims) = (asking.namespace, asking.trims);
        let tokens = (!asking.is_given_up).then(|| asking.tokens.clone());
        drop(table);
        let start = tokens.and_then(|tokens| {
            let (_, below) = self.look(lower, (&namespace, &tokens), trims).ok()?;
            let below = below?;
            let common = below.common;
            Some((self.prepare(lower, &namespace, below).ok()?, common))
        });
        let mut table = lower.change();
        let table = &mut *table;
        let has_room = table.loads.try_reserve().is_ok();
        let Some(asking) = table.loads.asking(number) else { return };
        if asking.is_given_up {
            // Another thread was quicker. What is read is there until that has ended.
            return;
        }
        if matches!(asking.step, Step::Body) && !has_room {
            // What it reads into is there until the read has ended, and those who wait for it have
            // no other place: a little later.
            asking.until = lower.end_of_step(1);
            return;
        }
        asking.is_given_up = true;
        let is_reading = matches!(asking.step, Step::Body);
        let start = start.filter(|(start, _)| !lower.link.is_gone(start.mark()));
        let started = start.and_then(|(start, common)| {
            let other = start.mark().number;
            let is_there = match table.loads.loads.get(&other) {
                Some(load) => !matches!(load.state, LoadState::Failed),
                None => has_room && self.start(lower, table, start),
            };
            is_there.then_some((other, common))
        });
        match started {
            Some((other, common)) => {
                table.loads.redirect(number, Waiting { number: other, common });
            }
            None if is_reading => {
                // What it reads into is there until the read has ended.
                let other = table.next_number() | NUMBERS;
                let note = table.loads.loads.get(&number).map(|load| load.note.clone());
                if let Some(note) = note {
                    let failed = Load { note, mark: None, users: 0, state: LoadState::Failed };
                    table.loads.loads.insert(other, failed);
                    table.loads.redirect(number, Waiting { number: other, common: 0 });
                    // Everybody may have cancelled meanwhile.
                    table.loads.forget_unused(other);
                }
            }
            None => table.loads.fail(number),
        }
        if !is_reading {
            table.loads.forget_unused(number);
        }
    }

    /// Whether a load has waited for the store for too long.
    pub(super) fn is_late(&self, table: &mut Table, number: u64) -> bool {
        let asking = table.loads.asking(number);
        asking.is_some_and(|asking| asking.until <= Instant::now())
    }
}

/// Memory has no room for the state of a head: a shorter one may have some. False when there is
/// none to ask for.
fn ask_shorter(lower: &Lower, number: u64, length: usize) -> Result<bool, Error> {
    let mut table = lower.change();
    count(&mut table.counters.no_memory, 1);
    let (Some(lowest), Some(asking)) = (&lower.lowest, table.loads.asking(number)) else {
        return Ok(true);
    };
    if !matches!(asking.step, Step::Head { .. }) {
        return Ok(true);
    }
    let Some(next) = asking.shorter(length) else { return Ok(false) };
    (asking.step, asking.until) = (next, lower.end_of_step(1));
    asking.ask(lowest, number)
}

/// A state was read, or could not be.
fn take_body(lower: &Lower, body: Body, end: ReadEnd) {
    let Body { number, state } = body;
    let (result, loaded) = match (end, try_box(state)) {
        (ReadEnd::Good, Ok(state)) => (Ok(()), Some(state)),
        (ReadEnd::Damaged, state) => (Err(LoadError::Damaged), state.ok()),
        (_, state) => (Err(LoadError::Io), state.ok()),
    };
    lower.change().loads.come(number, result, loaded);
}
