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
use super::fetch::{FreedStates, rescue};
use super::fetch::{Load, LoadState, Waiting};
use super::lower::{Lower, Table};
use super::note::Note;
use super::value::{Loaded, Storable, Writing};
use crate::error::Error;
use crate::memory::{Arc, OutOfMemory, TryGrow, try_box, try_to_vec, try_zeros};
use crate::snapshot::{Namespace, count};
use crate::tier::remote::{
    KeySpace, LargeHead, LargePlan, Question, ReadEnd, Remote, RemoteConfig, RemoteEvent,
};
use crate::tier::{Event, Key, LowerStore, Refused, Source, StoreStats, Target, Wake};
use crate::token::{PageDigest, TextDigester};
use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Tokens of a block.
const BLOCK: usize = 64;
/// Marks that lead to no state, after which nothing more is asked.
const ROUNDS: usize = 4;
/// Parts of a state that a head has room for.
const PARTS: usize = 124;
/// Bytes of a head: what identifies the bytes, and the note.
const HEAD: usize = 16 + NOTE;
const NOTE: usize = 16 + 8 * PARTS;
/// What a note begins with, and its version.
const MAGIC: u32 = u32::from_le_bytes(*b"rks1");
const HAS_NEXT: u32 = 1;
const TRIMMABLE: u32 = 2;
/// Numbers of loads that are not those of a record have this bit.
const NUMBERS: u64 = 1 << 63;

/// The store, and what it is asked with.
pub(super) struct Lowest {
    pub(super) remote: Remote,
    keys: KeySpace,
    /// Everything was removed: what others keep can't be told from that.
    is_left: AtomicBool,
}

/// How far a question has come.
pub(super) struct Asking {
    namespace: Namespace,
    /// What was asked for.
    tokens: Vec<u32>,
    /// What is after so many blocks.
    digests: Vec<PageDigest>,
    /// Only more tokens are of use.
    least: usize,
    trims: bool,
    step: Step,
    rounds: usize,
    /// When it goes on without the store.
    until: Instant,
    /// Removals by then.
    removals: u64,
}

#[derive(Clone, Copy)]
enum Step {
    /// Which is the last block with a mark, of those up to one.
    Marks { last: usize },
    /// Which is the longest state that ends in a block.
    Lengths { block: usize, longest: usize },
    /// What is there.
    Head { length: usize },
    /// The state.
    Body,
}

/// A head that is read.
struct Head {
    number: u64,
    key: Key,
    bytes: Box<[u8]>,
}

/// A state that is read.
struct Body {
    number: u64,
    state: Loaded,
}

impl Target for Head {
    fn parts(&self) -> usize {
        1
    }

    fn part(&mut self, _: usize) -> &mut [u8] {
        &mut self.bytes
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Target for Body {
    fn parts(&self) -> usize {
        self.state.parts()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        Target::part(&mut self.state, index)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// Digests after each number of whole blocks, none included.
fn block_digests(namespace: &Namespace, tokens: &[u32]) -> Result<Vec<PageDigest>, OutOfMemory> {
    let mut digester = TextDigester::new(BLOCK, namespace.digest(), tokens);
    digester.make(usize::MAX);
    let made = digester.made();
    let mut all = Vec::new();
    all.try_reserve_exact(1 + made.len())?;
    all.try_push(namespace.digest())?;
    made.iter().for_each(|&digest| all.push(digest));
    Ok(all)
}

/// The part of a head that is the cache's; none for a state of too many parts.
fn encode(note: &Note) -> Option<Box<[u8]>> {
    if note.parts.len() > PARTS {
        return None;
    }
    let mut bytes = try_zeros::<u8>(NOTE).ok()?;
    let flags = note.next_token.is_some() as u32 * HAS_NEXT + note.is_trimmable as u32 * TRIMMABLE;
    let words = [MAGIC, flags, note.next_token.unwrap_or(0), note.parts.len() as u32];
    for (into, word) in bytes.chunks_exact_mut(4).zip(words) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    for (into, part) in bytes[16..].chunks_exact_mut(8).zip(&note.parts) {
        into.copy_from_slice(&part.to_le_bytes());
    }
    Some(bytes.into_boxed_slice())
}

/// The note of a state of these tokens; none for bytes of another version.
fn decode(bytes: &[u8], namespace: &Namespace, tokens: &[u32]) -> Option<Note> {
    let word = |at: usize| u32::from_le_bytes(bytes[4 * at..][..4].try_into().expect("four"));
    let [magic, flags, next, parts] = std::array::from_fn(word);
    let is_ours = magic == MAGIC && flags <= HAS_NEXT + TRIMMABLE && parts as usize <= PARTS;
    if !is_ours {
        return None;
    }
    let mut sizes = Vec::new();
    for part in bytes[16..].chunks_exact(8).take(parts as usize) {
        sizes.try_push(u64::from_le_bytes(part.try_into().expect("eight"))).ok()?;
    }
    Some(Note {
        namespace: *namespace,
        tokens: try_to_vec(tokens).ok()?,
        next_token: (flags & HAS_NEXT != 0).then_some(next),
        is_trimmable: flags & TRIMMABLE != 0,
        parts: sizes,
    })
}

impl Lowest {
    pub(super) fn new(config: RemoteConfig, wake: Wake) -> Result<Self, Error> {
        // No page has no bytes: these keys are none of a paged cache.
        let keys = KeySpace::new(&config.fingerprint, BLOCK, 0);
        let remote = Remote::start(config, wake)?;
        Ok(Self { remote, keys, is_left: AtomicBool::new(false) })
    }

    /// What was removed can't be taken out of a store that others fill.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Relaxed);
    }

    fn is_open(&self) -> bool {
        !self.is_left.load(Relaxed) && !self.remote.is_paused()
    }

    fn mark(&self, digest: &PageDigest) -> Key {
        self.keys.key(0, digest)
    }

    /// Takes a state away there, when a thread comes to it.
    pub(super) fn remove(&self, namespace: &Namespace, tokens: &[u32]) {
        if let Ok(digests) = block_digests(namespace, tokens) {
            let last = tokens.len() / BLOCK;
            self.remote.remove(self.keys.key_after(&digests[last], &tokens[last * BLOCK..]));
        }
    }
}

impl Asking {
    /// Whether a state is read: what that takes is counted until it has ended.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.step, Step::Body)
    }

    fn key(&self, lowest: &Lowest, length: usize) -> Key {
        let block = length / BLOCK;
        lowest.keys.key_after(&self.digests[block], &self.tokens[block * BLOCK..length])
    }

    /// The first block that is of use.
    fn first_block(&self) -> usize {
        (self.least + 1) / BLOCK
    }

    /// The shortest length in a block that is of use.
    fn shortest(&self, block: usize) -> usize {
        (block * BLOCK).max(self.least + 1)
    }

    /// Asks what its step says. False when there is nothing to ask.
    fn ask(&self, lowest: &Lowest, number: u64) -> Result<bool, Error> {
        let mut keys = Vec::new();
        match self.step {
            Step::Marks { last } => {
                for block in (self.first_block()..=last).rev() {
                    keys.try_push(lowest.mark(&self.digests[block]))?;
                }
            }
            Step::Lengths { block, longest } => {
                for length in (self.shortest(block)..=longest).rev() {
                    keys.try_push(self.key(lowest, length))?;
                }
            }
            Step::Head { length } => {
                let (key, bytes) = (self.key(lowest, length), try_zeros(HEAD)?.into_boxed_slice());
                lowest.remote.get(key, try_box(Head { number, key, bytes })?)?;
                return Ok(true);
            }
            Step::Body => {}
        }
        if keys.is_empty() {
            return Ok(false);
        }
        lowest.remote.ask(Question::First, number, keys)?;
        Ok(true)
    }

    /// The step after an answer; none when there is no more to ask.
    fn answered(&mut self, found: usize) -> Option<Step> {
        match self.step {
            Step::Marks { last } => {
                let block = last.checked_sub(found).filter(|&at| at >= self.first_block())?;
                let longest = self.tokens.len().min((block + 1) * BLOCK - 1);
                Some(Step::Lengths { block, longest })
            }
            Step::Lengths { block, longest } => {
                let length = longest.checked_sub(found);
                if let Some(length) = length.filter(|&at| at >= self.shortest(block)) {
                    return Some(Step::Head { length });
                }
                // States that others have, of other tokens.
                self.rounds += 1;
                let last = block.checked_sub(1).filter(|_| self.rounds < ROUNDS)?;
                (last >= self.first_block()).then_some(Step::Marks { last })
            }
            Step::Head { .. } | Step::Body => None,
        }
    }
}

/// No directory.
pub(super) struct Nowhere;

impl LowerStore for Nowhere {
    fn put(&self, _: Key, _: Box<[u8]>, _: Box<dyn Source>) -> Result<(), Refused> {
        Err(Refused::Length)
    }

    fn get(&self, _: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)> {
        Err((Refused::Missing, target))
    }

    fn remove(&self, _: Key) {}

    fn touch(&self, _: Key) {}

    fn cost(&self, bytes: u64, _: usize) -> u64 {
        bytes
    }

    fn has_events(&self) -> bool {
        false
    }

    fn poll(&self, _: &mut Vec<Event>) {}

    fn flush(&self, _: Duration) -> bool {
        true
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}

impl Lower {
    /// Whether a call has something to take in.
    pub(super) fn has_events(&self) -> bool {
        let answered = self.lowest.as_ref().is_some_and(|lowest| lowest.remote.has_events());
        answered || self.link.store.has_events()
    }

    /// Whether nothing waits for the store that caches share, which it would take now.
    pub(super) fn is_given(&self) -> bool {
        let remote = self.lowest.as_ref().map(|lowest| &lowest.remote);
        remote.is_none_or(|remote| remote.is_written() || remote.is_paused())
    }

    /// A state is removed: what is on its way doesn't come.
    pub(super) fn forget(&self, table: &mut Table, namespace: &Namespace, tokens: &[u32]) {
        table.removals += 1;
        if let Some(lowest) = &self.lowest {
            lowest.remove(namespace, tokens);
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
        if state.is_offered.load(Relaxed) || bytes == 0 {
            return;
        }
        if !lowest.remote.has_room(bytes) || note.parts.len() > PARTS {
            count(&mut table.counters.not_offered, 1);
            return;
        }
        let (keys, about) = (lowest.keys.clone(), note.clone());
        let plan = move || {
            let Note { namespace, tokens, .. } = &*about;
            let digests = block_digests(namespace, tokens).ok()?;
            let last = tokens.len() / BLOCK;
            let key = keys.key_after(&digests[last], &tokens[last * BLOCK..]);
            Some(LargePlan { key, note: encode(&about)?, mark: keys.key(0, &digests[last]) })
        };
        let given = try_box(plan)
            .and_then(|plan| lowest.remote.put_large(plan, try_box(Writing(state.clone()))?));
        match given {
            Ok(()) => state.is_offered.store(true, Relaxed),
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
        if !self.lowest.as_ref().is_some_and(Lowest::is_open) || tokens.is_empty() {
            return Ok(None);
        }
        Ok(Some(Asking {
            namespace: *namespace,
            tokens: try_to_vec(tokens)?,
            digests: block_digests(namespace, tokens)?,
            least: 0,
            trims,
            step: Step::Marks { last: tokens.len() / BLOCK },
            rounds: 0,
            until: Instant::now(),
            removals: 0,
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
        (mut asking, least): (Asking, usize),
    ) -> Result<Option<u64>, Error> {
        let Some(lowest) = &lower.lowest else { return Ok(None) };
        let is_same = |load: &Load| match &load.state {
            LoadState::Asking(other) => {
                other.least == least
                    && other.trims == asking.trims
                    && other.namespace == asking.namespace
                    && other.tokens == asking.tokens
                    && load.users > 0
            }
            _ => false,
        };
        let mut loads = table.loads.loads.iter();
        if let Some((&number, _)) = loads.find(|(_, load)| is_same(load)) {
            count(&mut table.counters.joined, 1);
            return Ok(Some(number));
        }
        (asking.least, asking.removals) = (least, table.removals);
        asking.until = lower.end_of_step(1);
        let note = Note {
            namespace: asking.namespace,
            tokens: Vec::new(),
            next_token: None,
            is_trimmable: false,
            parts: Vec::new(),
        };
        let note = Arc::new(note)?;
        let number = table.next_number() | NUMBERS;
        if !asking.ask(lowest, number)? {
            return Ok(None);
        }
        let state = LoadState::Asking(try_box(asking)?);
        table.loads.loads.insert(number, Load { note, users: 0, state });
        Ok(Some(number))
    }

    /// Takes in what the store has answered.
    pub(super) fn take_answers(
        &self,
        lower: &Lower,
        table: &mut Table,
        freed: &mut FreedStates<P>,
    ) {
        let Some(lowest) = lower.lowest.as_ref().filter(|lowest| lowest.remote.has_events()) else {
            return;
        };
        let mut events = std::mem::take(&mut table.answers);
        lowest.remote.poll(&mut events);
        for event in events.drain(..) {
            match event {
                RemoteEvent::Asked { ticket, found } => {
                    self.take_answer(lower, table, (ticket, found));
                }
                RemoteEvent::Read { target, end } => match target.into_any().downcast::<Head>() {
                    Ok(head) => self.take_head(lower, table, (*head, end)),
                    Err(other) => {
                        if let Ok(body) = other.downcast::<Body>() {
                            self.take_body(lower, table, (*body, end), freed);
                        }
                    }
                },
            }
        }
        table.answers = events;
    }

    fn take_answer(&self, lower: &Lower, table: &mut Table, (number, found): (u64, usize)) {
        let (Some(lowest), Some(asking)) = (&lower.lowest, table.loads.asking(number)) else {
            return;
        };
        let next = asking.answered(found);
        let is_asked = next.is_some_and(|next| {
            (asking.step, asking.until) = (next, lower.end_of_step(1));
            asking.ask(lowest, number) == Ok(true)
        });
        if !is_asked {
            self.go_without(lower, table, number);
        }
    }

    fn take_head(&self, lower: &Lower, table: &mut Table, (head, end): (Head, ReadEnd)) {
        let Head { number, key, bytes } = head;
        if self.begin_body(lower, table, (number, key, &bytes), end) != Ok(true) {
            self.go_without(lower, table, number);
        }
    }

    /// Starts to read what a head names. False when that can't be had.
    fn begin_body(
        &self,
        lower: &Lower,
        table: &mut Table,
        (number, key, bytes): (u64, Key, &[u8]),
        end: ReadEnd,
    ) -> Result<bool, Error> {
        let (Some(lowest), Some(asking)) = (&lower.lowest, table.loads.asking(number)) else {
            return Ok(false);
        };
        let Step::Head { length } = asking.step else { return Ok(false) };
        if end != ReadEnd::Good {
            return Ok(false);
        }
        let (id, about) = bytes.split_at(16);
        let note = decode(about, &asking.namespace, &asking.tokens[..length]);
        let note = note.map(Arc::new).transpose()?;
        let Some(note) = note.filter(|note| note.bytes() > 0) else { return Ok(false) };
        let bytes = note.bytes();
        if table.loads.bytes.saturating_add(bytes) > self.memory.limits.bytes {
            count(&mut table.counters.no_memory, 1);
            return Ok(false);
        }
        let target = try_box(Body { number, state: Loaded::new(&note.parts)? })?;
        let head = LargeHead { key, id: id.try_into().expect("so many bytes") };
        lowest.remote.get_pieces(head, target)?;
        let until = lower.end_of_step(1 + Remote::pieces(bytes));
        let asking = table.loads.asking(number).expect("it was there");
        (asking.step, asking.until) = (Step::Body, until);
        table.loads.bytes += bytes;
        table.loads.loads.get_mut(&number).expect("it was there").note = note;
        count(&mut table.counters.loads, 1);
        Ok(true)
    }

    fn take_body(
        &self,
        lower: &Lower,
        table: &mut Table,
        (body, end): (Body, ReadEnd),
        freed: &mut FreedStates<P>,
    ) {
        let Body { number, state } = body;
        let Some(load) = table.loads.loads.get(&number) else { return };
        let (note, users) = (load.note.clone(), load.users);
        table.loads.bytes -= note.bytes();
        if users == 0 {
            count(&mut table.counters.late, 1);
            table.loads.loads.remove(&number);
            return;
        }
        let removals = table.loads.asking(number).map(|asking| asking.removals);
        let is_good = end == ReadEnd::Good && removals == Some(table.removals);
        let pin = match is_good {
            true => self.arrive_loaded(&note, 0, state, freed).ok().flatten(),
            false => None,
        };
        let Some(pin) = pin else {
            count(&mut table.counters.failed_loads, 1);
            count(&mut table.counters.damaged, (end == ReadEnd::Damaged) as usize);
            if let Some(asking) = table.loads.asking(number) {
                asking.step = Step::Marks { last: 0 };
            }
            return self.go_without(lower, table, number);
        };
        count(&mut table.counters.loaded, 1);
        count(&mut table.counters.from_remote, 1);
        let Note { namespace, tokens, .. } = &*note;
        table.loads.set_ready(number, pin, tokens.len());
        let state = |value: &super::value::Value<P>| value.storable().cloned();
        if let Some(state) = self.memory.exactly(namespace, tokens, state).flatten() {
            state.is_offered.store(true, Relaxed);
            // A restart finds it then.
            if lower.policy.wants(0, false) && !lower.has(&state.note, state.record.load(Relaxed)) {
                lower.write(table, &state);
            }
        }
        rescue(lower, table, freed);
    }

    /// The store has nothing of use, or doesn't say: those who wait have what the directory has.
    pub(super) fn go_without(&self, lower: &Lower, table: &mut Table, number: u64) {
        let Some(asking) = table.loads.asking(number) else { return };
        let is_reading = matches!(asking.step, Step::Body) && !asking.tokens.is_empty();
        let tokens = std::mem::take(&mut asking.tokens);
        let (namespace, trims) = (asking.namespace, asking.trims);
        let in_memory = self.memory.longest(&namespace, &tokens, trims, |_| ());
        let in_memory = in_memory.map_or(0, |(common, ())| common);
        let below = lower.find_below(&namespace, &tokens, trims).ok().flatten();
        let below = below.filter(|below| below.common > in_memory);
        let started = below.and_then(|below| {
            let (other, common) = (below.number, below.common);
            let is_there = match table.loads.loads.get(&other) {
                Some(load) => !matches!(load.state, LoadState::Failed),
                None => {
                    table.loads.try_reserve().is_ok()
                        && self.start(lower, table, &namespace, below) == Ok(true)
                }
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
                if let Some(note) = note.filter(|_| table.loads.try_reserve().is_ok()) {
                    let failed = Load { note, users: 0, state: LoadState::Failed };
                    table.loads.loads.insert(other, failed);
                    table.loads.redirect(number, Waiting { number: other, common: 0 });
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
