//! What is to be read and written, and what came of it.
use super::super::{Key, Source, Target};
use super::large::{LargeHead, LargePlan};
use super::pause::Pause;
use super::removals::{Refused, Removal};
use super::sealed::HEAD_BYTES;
use super::stats::RemoteStats;
use crate::memory::OutOfMemory;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes of the values of a call, unless one has more.
const BATCH_BYTES: usize = 2 << 20;
/// Values of a call.
pub(super) const BATCH: usize = 64;

/// What became of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// The value is in its target.
    Good,
    /// What came is not what was sealed.
    Damaged,
    /// It is not there.
    Gone,
    /// There was no answer, or none in time.
    Failed,
}

/// What is asked about some values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// How many of them are there: the first ones, up to one that is not, or about which there was
    /// no answer.
    Leading,
    /// Which is the first that is there; their number for none, or when there was no answer.
    First,
    /// Which of them are there.
    Each,
}

/// What happened.
pub enum RemoteEvent {
    /// A question was answered.
    Asked {
        /// The caller's.
        ticket: u64,
        /// What the question says.
        found: usize,
    },
    /// A question about each was answered.
    AskedEach {
        /// The caller's.
        ticket: u64,
        /// Whether those are there, in the order of the question. About what is beyond its end
        /// there was no answer.
        there: Vec<bool>,
    },
    /// A read has ended.
    Read {
        /// The caller's.
        target: Box<dyn Target>,
        /// How.
        end: ReadEnd,
    },
}

pub(super) struct Ask {
    pub question: Question,
    pub ticket: u64,
    pub keys: Vec<Key>,
    pub until: Instant,
}

pub(super) struct Get {
    pub key: Key,
    pub target: Box<dyn Target>,
    pub bytes: usize,
    pub until: Instant,
}

/// The pieces of a large value.
pub(super) struct GetPieces {
    pub head: LargeHead,
    pub target: Box<dyn Target>,
    pub until: Instant,
    /// Until then they are waited for: there are many calls to be made.
    pub last: Instant,
}

pub(super) enum Read {
    Ask(Ask),
    Get(Get),
    Pieces(GetPieces),
}

impl Read {
    /// When it is too late to begin.
    fn last(&self) -> Instant {
        match self {
            Self::Pieces(GetPieces { last, .. }) => *last,
            other => other.until(),
        }
    }

    /// Whether somebody may wait for it when its time is over. A fetch of pages waits anew with
    /// each that comes, also by another fetch, and asks long before it needs the answer. Who looks
    /// for a state, or reads a large one, has gone on without the store.
    fn may_be_waited_for(&self) -> bool {
        match self {
            Self::Get(Get { target, .. }) => target.may_be_waited_for(),
            Self::Ask(Ask { question, .. }) => *question != Question::First,
            Self::Pieces(_) => false,
        }
    }

    fn until(&self) -> Instant {
        match self {
            Self::Ask(Ask { until, .. })
            | Self::Get(Get { until, .. })
            | Self::Pieces(GetPieces { until, .. }) => *until,
        }
    }
}

pub(super) struct Put {
    /// How many were given before it.
    pub number: u64,
    pub key: Key,
    pub source: Box<dyn Source>,
    pub bytes: usize,
}

/// A large value, and what else is to be known of it, which takes a while to say.
pub(super) struct PutLarge {
    /// How many were given before it.
    pub number: u64,
    pub plan: Box<dyn FnOnce() -> Option<LargePlan> + Send>,
    pub source: Box<dyn Source>,
    pub bytes: usize,
}

pub(super) enum Write {
    Put(Put),
    Large(PutLarge),
    Remove(Removal),
}

impl Write {
    /// Bytes of the value whose source is held.
    fn bytes(&self) -> u64 {
        match self {
            Self::Put(Put { bytes, .. }) | Self::Large(PutLarge { bytes, .. }) => *bytes as u64,
            Self::Remove(_) => 0,
        }
    }

    fn number(&mut self) -> &mut u64 {
        match self {
            Self::Put(Put { number, .. })
            | Self::Large(PutLarge { number, .. })
            | Self::Remove(Removal { number, .. }) => number,
        }
    }
}

pub(super) enum Reads {
    None,
    /// What there was is answered without a call.
    Answered,
    Ask(Ask),
    Gets(Vec<Get>),
    Pieces(GetPieces),
}

pub(super) enum Writes {
    None,
    /// Nothing is done about these, which are dropped when the lock is not held: their sources are
    /// the caller's code.
    Dropped(Vec<Write>),
    /// The same of one, without memory for a list.
    Unfit(Write),
    Puts(Vec<Put>),
    Large(PutLarge),
    Removes(Vec<Removal>),
}

#[derive(Default)]
pub(super) struct Queue {
    pub reads: VecDeque<Read>,
    pub writes: VecDeque<Write>,
    /// Bytes of values whose sources are held.
    pub waiting_bytes: u64,
    /// Values that wait to be removed.
    pub(super) removals: usize,
    /// Those that the store did not remove, though it answered.
    pub(super) refused: Refused,
    /// A removal that was promised was given up.
    pub has_unremoved: bool,
    /// Values that were ever given to be written, or to be removed.
    pub given: u64,
    /// Values that are being written or removed.
    pub writing: usize,
    /// Of the calls that write some, the first numbers; there is room for each thread's.
    pub in_hand: Vec<u64>,
    /// Of those, the ones that are being removed.
    pub(super) removing: Vec<Removal>,
    /// Reads without an event.
    open: usize,
    /// When whoever sleeps until a read ends is to look, as long as there are any.
    look_at: Option<Instant>,
    pub events: Vec<RemoteEvent>,
    pub pause: Pause,
    /// When a call ended last that the store answered in time.
    pub answered: Option<Instant>,
    pub stats: RemoteStats,
    pub is_closed: bool,
}

impl Queue {
    /// Queues a read, with room for what comes of it.
    pub fn add_read(&mut self, read: Read) -> Result<(), (OutOfMemory, Read)> {
        let room = self.reads.try_reserve(1).and_then(|()| self.events.try_reserve(self.open + 1));
        if let Err(error) = room {
            return Err((error.into(), read));
        }
        self.look_at.get_or_insert(read.until());
        self.reads.push_back(read);
        self.open += 1;
        Ok(())
    }

    /// Whether there are reads without an event.
    pub fn is_reading(&self) -> bool {
        self.open > 0
    }

    /// Whether the time of a read may be over now that the store has not answered; otherwise when
    /// to look. While there are reads it is looked again after a while: what needs several may have
    /// more time.
    pub fn pass_time(&mut self, now: Instant, again: Duration) -> Result<(), Option<Instant>> {
        if self.look_at.is_none_or(|at| at > now) {
            return Err(self.look_at);
        }
        self.look_at = now.checked_add(again);
        Ok(())
    }

    /// A read has ended.
    pub fn end_read(&mut self, event: RemoteEvent) {
        self.open -= 1;
        if self.open == 0 {
            self.look_at = None;
        }
        self.events.push(event);
    }

    fn answer(&mut self, read: Read) {
        self.end_read(match read {
            Read::Ask(Ask { ticket, question: Question::Each, .. }) => {
                RemoteEvent::AskedEach { ticket, there: Vec::new() }
            }
            Read::Ask(Ask { ticket, question, keys, .. }) => {
                let none = if question == Question::First { keys.len() } else { 0 };
                RemoteEvent::Asked { ticket, found: none }
            }
            Read::Get(Get { target, .. }) | Read::Pieces(GetPieces { target, .. }) => {
                RemoteEvent::Read { target, end: ReadEnd::Failed }
            }
        });
    }

    /// What a thread, one of so many, reads next; calls may take so long.
    pub fn take_reads(&mut self, now: Instant, threads: usize, timeout: Duration) -> Reads {
        if self.reads.is_empty() {
            return Reads::None;
        }
        let before = self.reads.len();
        // What waits behind others that the store answers is not kept waiting by that.
        let answers = self.answered.is_some_and(|at| now.saturating_duration_since(at) < timeout);
        let is_late = |read: &Read| read.last() <= now && !(answers && read.may_be_waited_for());
        while self.reads.front().is_some_and(is_late) {
            let read = self.reads.pop_front().expect("it was seen");
            self.stats.late += 1;
            self.answer(read);
        }
        if self.reads.len() < before {
            return Reads::Answered;
        }
        if !self.pause.lets_through(now) {
            while let Some(read) = self.reads.pop_front() {
                self.stats.skipped += 1;
                self.answer(read);
            }
            return Reads::Answered;
        }
        let is_get = |read: &&Read| matches!(read, Read::Get(_));
        let gets = self.reads.iter().take_while(is_get).count();
        let most = gets.div_ceil(threads.max(1)).clamp(1, BATCH);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(read) = self.reads.pop_front() {
            match read {
                Read::Ask(ask) if batch.is_empty() => return Reads::Ask(ask),
                Read::Pieces(pieces) if batch.is_empty() => return Reads::Pieces(pieces),
                Read::Get(get)
                    if batch.is_empty()
                        || batch.len() < most && bytes + get.bytes <= BATCH_BYTES =>
                {
                    bytes += get.bytes + HEAD_BYTES;
                    if batch.try_reserve(1).is_err() {
                        self.stats.failed += 1;
                        self.answer(Read::Get(get));
                        break;
                    }
                    batch.push(get);
                }
                other => {
                    self.reads.push_front(other);
                    break;
                }
            }
        }
        if batch.is_empty() { Reads::Answered } else { Reads::Gets(batch) }
    }

    /// Queues a write.
    pub fn add_write(&mut self, mut write: Write) -> Result<(), OutOfMemory> {
        self.writes.try_reserve(1)?;
        *write.number() = self.given;
        self.given += 1;
        self.waiting_bytes += write.bytes();
        self.removals += matches!(write, Write::Remove(_)) as usize;
        self.writes.push_back(write);
        Ok(())
    }

    /// Whether none of the first so many values waits to be written, or is.
    pub fn are_written(&mut self, count: u64) -> bool {
        // They wait in the order of their numbers.
        let mut writes = self.writes.iter_mut();
        let first = writes.find(|write| !matches!(write, Write::Remove(_)));
        let first = first.map(|write| *write.number());
        first.is_none_or(|number| number >= count) && self.in_hand.iter().all(|&at| at >= count)
    }

    /// What waits to be written or removed, or is.
    pub fn waiting(&self) -> usize {
        self.writes.len() + self.refused.len() + self.writing
    }

    /// Whether there is something to do now about what waits. No removal overtakes a write, nor the
    /// other way round: they may be of the same value.
    pub fn can_write(&mut self, now: Instant) -> bool {
        self.remove_refused(now);
        if self.pause.is_on(now) {
            return self.writes.len() > self.removals;
        }
        match self.writes.front() {
            None => false,
            Some(Write::Remove(_)) => self.writing == self.removing.len(),
            Some(_) => self.removing.is_empty(),
        }
    }

    fn pop_write(&mut self, at: usize) -> Option<Write> {
        let write = self.writes.remove(at)?;
        self.waiting_bytes -= write.bytes();
        self.removals -= matches!(write, Write::Remove(_)) as usize;
        Some(write)
    }

    /// All but removals, some at a time.
    fn skip_writes(&mut self) -> Writes {
        let mut skipped = Vec::new();
        let has_room = skipped.try_reserve(BATCH).is_ok();
        let mut at = 0;
        while at < self.writes.len() && skipped.len() < BATCH {
            if matches!(self.writes[at], Write::Remove(_)) {
                at += 1;
                continue;
            }
            let Some(write) = self.pop_write(at) else { break };
            self.stats.skipped += 1;
            if !has_room {
                return Writes::Unfit(write);
            }
            skipped.push(write);
        }
        if skipped.is_empty() { Writes::None } else { Writes::Dropped(skipped) }
    }

    /// What a thread, one of so many, writes next.
    pub fn take_writes(&mut self, now: Instant, threads: usize) -> Writes {
        if !self.can_write(now) {
            return Writes::None;
        }
        if !self.pause.lets_through(now) {
            return self.skip_writes();
        }
        let most = self.writes.len().div_ceil(threads.max(1)).clamp(1, BATCH);
        let (mut puts, mut removes) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while puts.len() + removes.len() < most {
            let Some(write) = self.writes.front() else { break };
            let fits = match write {
                Write::Put(put) => {
                    removes.is_empty() && (puts.is_empty() || bytes + put.bytes <= BATCH_BYTES)
                }
                Write::Large(_) => puts.is_empty() && removes.is_empty(),
                Write::Remove(_) => puts.is_empty(),
            };
            if !fits {
                break;
            }
            let has_room = puts.try_reserve(1).is_ok()
                && removes.try_reserve(1).is_ok()
                && self.removing.try_reserve(removes.len() + 1).is_ok();
            let is_none = puts.is_empty() && removes.is_empty();
            if !has_room && !is_none {
                break;
            }
            // Its bytes wait until it is written.
            let Some(write) = self.writes.pop_front() else { break };
            match write {
                Write::Large(large) => {
                    self.writing += 1;
                    self.in_hand.push(large.number);
                    return Writes::Large(large);
                }
                Write::Put(put) if has_room => {
                    bytes += put.bytes + HEAD_BYTES;
                    puts.push(put);
                }
                Write::Remove(removal) if has_room => {
                    self.removals -= 1;
                    removes.push(removal);
                }
                Write::Put(Put { bytes, .. }) => {
                    self.waiting_bytes -= bytes as u64;
                    self.stats.failed += 1;
                    return Writes::Unfit(write);
                }
                Write::Remove(removal) => {
                    self.removals -= 1;
                    self.give_up(removal);
                    return Writes::Unfit(write);
                }
            }
        }
        self.writing += puts.len() + removes.len();
        self.removing.extend(&removes);
        self.in_hand.extend(puts.first().map(|put| put.number));
        match (puts.is_empty(), removes.is_empty()) {
            (false, _) => Writes::Puts(puts),
            (true, false) => Writes::Removes(removes),
            (true, true) => Writes::None,
        }
    }

    /// Nothing more is begun. What waited is returned, to be dropped without the lock.
    pub fn close(&mut self) -> (VecDeque<Read>, VecDeque<Write>) {
        self.is_closed = true;
        self.waiting_bytes -= self.writes.iter().map(Write::bytes).sum::<u64>();
        (self.removals, self.refused) = (0, Refused::default());
        (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes))
    }
}
