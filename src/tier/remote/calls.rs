//! The threads that call a store, and what they are given to do.
use super::super::{Key, Source, Target, Wake, join};
use super::queue::{Ask, Get, Put, Question, Queue, Read, ReadEnd, Reads, RemoteEvent, Write};
use super::sealed::{HEAD_BYTES, open};
use super::stats::RemoteStats;
use super::{Answer, Item, RemoteConfig, RemoteStore};
use crate::error::Error;
use crate::memory::{OutOfMemory, TryGrow, try_collect, try_std_arc};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Values of a question.
const QUESTION: usize = 1024;

thread_local! {
    /// Where that lies of which the calling thread is one.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// A store and its threads.
pub struct Remote {
    pub(super) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct Inner {
    store: Box<dyn RemoteStore>,
    pub(super) timeout: Duration,
    pub(super) workers: usize,
    waiting_limit: u64,
    queue: Mutex<Queue>,
    to_read: Condvar,
    pub(super) to_write: Condvar,
    to_time: Condvar,
    has_events: AtomicBool,
    pub(super) wake: Wake,
}

/// Part of a call's time after which whoever waits for a store that stands still looks again.
const AGAIN: u32 = 4;
/// The most that a call may take, twelve days: moments so far, and some calls further, can be said.
const LONGEST_CALL: Duration = Duration::from_secs(1 << 20);

/// What a thread does, by its name.
type Work = (&'static str, fn(&Inner));

/// A store's operation on some values.
pub(super) type Call = fn(&dyn RemoteStore, &mut [Item<'_>], Duration);

pub(super) fn bytes_of_source(source: &dyn Source) -> usize {
    (0..source.parts()).map(|at| source.part(at).len()).sum()
}

impl Remote {
    /// Starts the threads; without workers there are none, and a test does their work.
    pub fn start(config: RemoteConfig, wake: Wake) -> Result<Self, Error> {
        let RemoteConfig { store, timeout, workers, waiting_bytes, .. } = config;
        let inner = try_std_arc(Inner {
            store,
            timeout: timeout.min(LONGEST_CALL),
            workers,
            waiting_limit: waiting_bytes,
            queue: Mutex::default(),
            to_read: Condvar::new(),
            to_write: Condvar::new(),
            to_time: Condvar::new(),
            has_events: AtomicBool::new(false),
            wake,
        })?;
        inner.queue().in_hand.try_reserve(workers.max(1)).map_err(OutOfMemory::from)?;
        let remote = Self { inner, threads: Mutex::default() };
        let works: [Work; 3] = [
            ("rkv-remote-get", Inner::keep_reading),
            ("rkv-remote-put", Inner::keep_writing),
            ("rkv-remote-time", Inner::keep_time),
        ];
        let clock = works[2..].iter().take(workers);
        for &(name, work) in works[..2].iter().cycle().take(2 * workers).chain(clock) {
            let inner = remote.inner.clone();
            let builder = std::thread::Builder::new().name(name.into());
            let started = builder.spawn(move || {
                OWN.set(Arc::as_ptr(&inner).addr());
                work(&inner);
            });
            // Those that run end when the remote is dropped.
            let thread = started.map_err(|_| Error::memory("a thread"))?;
            remote.threads.lock().unwrap_or_else(PoisonError::into_inner).try_push(thread)?;
        }
        Ok(remote)
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Whether it would not be asked now.
    pub fn is_paused(&self) -> bool {
        self.inner.queue().pause.is_on(Instant::now())
    }

    /// Asks which of some values are there.
    pub fn ask(&self, question: Question, ticket: u64, keys: Vec<Key>) -> Result<(), OutOfMemory> {
        self.read(Read::Ask(Ask { question, ticket, keys, until: self.inner.end() }))
    }

    pub(super) fn read(&self, read: Read) -> Result<(), OutOfMemory> {
        let mut queue = self.inner.queue();
        let was_reading = queue.is_reading();
        queue.add_read(read).map_err(|(error, _)| error)?;
        drop(queue);
        self.inner.to_read.notify_one();
        if !was_reading {
            self.inner.to_time.notify_one();
        }
        Ok(())
    }

    /// Starts to read a value of a target's length; the target comes back with the event.
    pub fn get(&self, key: Key, mut target: Box<dyn Target>) -> Result<(), OutOfMemory> {
        let bytes = (0..target.parts()).map(|at| target.part(at).len()).sum();
        self.read(Read::Get(Get { key, target, bytes, until: self.inner.end() }))
    }

    /// Whether so many bytes more may wait to be written.
    pub fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.inner.queue().waiting_bytes;
        waiting == 0 || waiting + bytes as u64 <= self.inner.waiting_limit
    }

    /// Starts to write a value, unless it is there. False while the store is left alone.
    pub fn put(&self, key: Key, source: Box<dyn Source>) -> Result<bool, OutOfMemory> {
        let bytes = bytes_of_source(&*source);
        self.write(Write::Put(Put { number: 0, key, source, bytes }))
    }

    pub(super) fn write(&self, write: Write) -> Result<bool, OutOfMemory> {
        let mut queue = self.inner.queue();
        if queue.pause.is_on(Instant::now()) {
            queue.stats.skipped += 1;
            return Ok(false);
        }
        queue.add_write(write)?;
        self.inner.to_write.notify_one();
        Ok(true)
    }

    /// Removes a value, when a thread comes to it and the store answers.
    pub fn remove(&self, key: Key) {
        self.inner.queue().add_removal(key, true);
        self.inner.to_write.notify_one();
    }

    /// A removal was given up: there was no room for it, or the store refused it.
    pub fn has_unremoved(&self) -> bool {
        self.inner.queue().has_unremoved
    }

    /// One atomic load.
    pub fn has_events(&self) -> bool {
        self.inner.has_events.load(Ordering::Acquire)
    }

    /// Tells the engine once more that there is something to ask for.
    pub fn wake(&self) {
        (self.inner.wake)();
    }

    /// Appends the events since the last call.
    pub fn poll(&self, events: &mut Vec<RemoteEvent>) {
        let mut queue = self.inner.queue();
        if events.try_reserve(queue.events.len()).is_err() {
            // They wait, and whoever was told of them is told again: nothing else may come.
            drop(queue);
            return self.wake();
        }
        events.append(&mut queue.events);
        self.inner.has_events.store(false, Ordering::Release);
    }

    /// How many values were ever given to be written, or to be removed.
    pub fn given(&self) -> u64 {
        self.inner.queue().given
    }

    /// Whether none of the first so many of them waits to be written, or is.
    pub fn are_written(&self, count: u64) -> bool {
        self.inner.queue().are_written(count)
    }

    /// Whether none of the first so many of them waits to be removed, or is.
    pub fn are_removed(&self, count: u64) -> bool {
        self.inner.queue().are_removed(count)
    }

    /// Whether nothing waits, or goes on.
    pub fn is_done(&self) -> bool {
        self.inner.queue().waiting() == 0
    }

    /// Whether a value waits to be removed, or is: the store may still say that it has it.
    pub fn is_to_go(&self, key: &Key) -> bool {
        self.inner.queue().is_to_go(key)
    }

    /// What was counted.
    pub fn stats(&self) -> RemoteStats {
        let queue = self.inner.queue();
        let waiting = queue.waiting() as u64;
        let is_paused = queue.pause.is_on(Instant::now());
        RemoteStats { waiting, is_paused, ..queue.stats }
    }

    /// Does what a thread would, for a test that has none. Whether there was anything.
    #[doc(hidden)]
    pub fn work(&self) -> bool {
        let mut scratch = Vec::new();
        self.inner.read_some(&mut scratch) | self.inner.write_some(&mut scratch)
    }

    /// Whether the calling thread is one of its own: it can't wait for itself to end.
    pub fn is_own_thread(&self) -> bool {
        // The thread has a share of it: nothing else lies there.
        OWN.get() == Arc::as_ptr(&self.inner).addr()
    }

    /// Begins nothing more, and waits for the calls that go on.
    pub fn close(&self) {
        let waited = self.inner.queue().close();
        drop(waited);
        self.inner.to_read.notify_all();
        self.inner.to_write.notify_all();
        self.inner.to_time.notify_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.drain(..).for_each(join);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.timeout).unwrap_or(now)
    }

    fn keep_reading(&self) {
        let mut scratch = Vec::new();
        loop {
            while self.read_some(&mut scratch) {}
            let queue = self.queue();
            let waits = |queue: &mut Queue| queue.reads.is_empty() && !queue.is_closed;
            let queue = self.to_read.wait_while(queue, waits);
            if queue.unwrap_or_else(PoisonError::into_inner).is_closed {
                return;
            }
        }
    }

    /// Wakes whoever sleeps until a read ends when its time is over: a store that stands still
    /// keeps all other threads.
    fn keep_time(&self) {
        let mut queue = self.queue();
        while !queue.is_closed {
            let now = Instant::now();
            queue = match queue.pass_time(now, self.timeout / AGAIN) {
                Ok(()) => {
                    drop(queue);
                    (self.wake)();
                    self.queue()
                }
                Err(Some(end)) => {
                    let waited = self.to_time.wait_timeout(queue, end - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Err(None) => self.to_time.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Calls the store, and takes note of how that went. Whether it answered about any value.
    pub(super) fn call(&self, call: Call, items: &mut [Item<'_>], time: Duration) -> bool {
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| call(&*self.store, items, time)));
        if let Err(payload) = done {
            // What it carries may panic too, when it is dropped.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            items.iter_mut().for_each(|item| item.answer = Answer::Failed);
        }
        let took = begun.elapsed();
        let is_failed = |item: &&Item<'_>| item.answer == Answer::Failed;
        let failed = items.iter().filter(is_failed).count();
        let is_slow = took > self.timeout;
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mut queue = self.queue();
        let (is_good, now) = (failed < items.len() && !is_slow, Instant::now());
        queue.answered = if is_good { Some(now) } else { queue.answered };
        let began = queue.pause.note(is_good, now);
        let stats = &mut queue.stats;
        stats.calls += 1;
        stats.failed += failed as u64;
        stats.slow_calls += u64::from(is_slow);
        stats.pauses += u64::from(began);
        stats.call_nanoseconds = stats.call_nanoseconds.saturating_add(nanoseconds);
        stats.call_nanoseconds_max = stats.call_nanoseconds_max.max(nanoseconds);
        failed < items.len()
    }

    /// Time for a call that has to end at a moment.
    fn time(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        left.min(self.timeout).max(Duration::from_millis(1))
    }

    fn announce(&self) {
        self.has_events.store(true, Ordering::Release);
        (self.wake)();
    }

    fn read_some(&self, scratch: &mut Vec<u8>) -> bool {
        let taken = self.queue().take_reads(Instant::now(), self.workers, self.timeout);
        match taken {
            Reads::None => return false,
            Reads::Answered => {}
            // How long it waited for a thread is not the store's fault.
            Reads::Ask(ask) => self.ask(Ask { until: self.end(), ..ask }),
            Reads::Gets(gets) => self.get(gets, scratch),
            Reads::Pieces(pieces) => self.get_pieces(pieces, scratch),
        }
        self.announce();
        true
    }

    /// Asks about some values; none when there is no memory for it.
    fn ask_about<'a>(&self, keys: &[Key], until: Instant) -> Option<Vec<Item<'a>>> {
        let items = try_collect(keys.iter().map(|&key| Item::new(key, &mut [])));
        let mut items = items.ok()?;
        self.call(|store, items, time| store.has(items, time), &mut items, self.time(until));
        Some(items)
    }

    fn ask_each(&self, ask: Ask) {
        let mut there = Vec::new();
        if there.try_reserve_exact(ask.keys.len()).is_ok() {
            for keys in ask.keys.chunks(QUESTION) {
                let Some(items) = self.ask_about(keys, ask.until) else { break };
                there.extend(items.iter().map(|item| item.answer == Answer::Done));
                if items.iter().all(|item| item.answer == Answer::Failed) {
                    break;
                }
            }
        }
        let mut queue = self.queue();
        queue.stats.asked += there.len() as u64;
        queue.stats.found += there.iter().filter(|&&is_there| is_there).count() as u64;
        queue.end_read(RemoteEvent::AskedEach { ticket: ask.ticket, there });
    }

    fn ask(&self, ask: Ask) {
        if ask.question == Question::Each {
            return self.ask_each(ask);
        }
        let mut found = 0;
        for keys in ask.keys.chunks(QUESTION) {
            let Some(items) = self.ask_about(keys, ask.until) else { break };
            let is_passed = |item: &&Item<'_>| match ask.question {
                Question::Leading => item.answer == Answer::Done,
                _ => item.answer == Answer::Missing,
            };
            let passed = items.iter().take_while(is_passed).count();
            found += passed;
            let stop = items.get(passed).map(|item| item.answer);
            let here = match ask.question {
                Question::Leading => passed,
                _ => (stop == Some(Answer::Done)) as usize,
            };
            let stats = &mut self.queue().stats;
            stats.asked += keys.len() as u64;
            stats.found += here as u64;
            if ask.question == Question::First && stop == Some(Answer::Failed) {
                found = ask.keys.len();
            }
            if stop.is_some() {
                break;
            }
        }
        self.queue().end_read(RemoteEvent::Asked { ticket: ask.ticket, found });
    }

    fn get(&self, mut gets: Vec<Get>, scratch: &mut Vec<u8>) {
        let lengths = gets.iter().map(|get| get.bytes + HEAD_BYTES);
        let items = room(scratch, lengths).and_then(|places| {
            try_collect(gets.iter().zip(places).map(|(get, place)| Item::new(get.key, place)))
        });
        let mut ends = Vec::new();
        let has_room = ends.try_reserve_exact(gets.len()).is_ok();
        let Some(mut items) = items.ok().filter(|_| has_room) else {
            let mut queue = self.queue();
            queue.stats.failed += gets.len() as u64;
            for Get { target, .. } in gets {
                queue.end_read(RemoteEvent::Read { target, end: ReadEnd::Failed });
            }
            return;
        };
        self.call(|store, items, time| store.get(items, time), &mut items, self.timeout);
        let mut counted = RemoteStats::default();
        ends.extend(items.iter().zip(&mut gets).map(|(item, get)| match item.answer {
            Answer::Failed => ReadEnd::Failed,
            Answer::Missing => {
                counted.gone += 1;
                ReadEnd::Gone
            }
            Answer::Done => {
                let is_whole = item.length == item.bytes.len();
                let body = open(&get.key, item.bytes, get.bytes).filter(|_| is_whole);
                let Some(mut body) = body else {
                    counted.damaged += 1;
                    return ReadEnd::Damaged;
                };
                counted.read += 1;
                counted.read_bytes += body.len() as u64;
                for at in 0..get.target.parts() {
                    let into = get.target.part(at);
                    let (part, rest) = body.split_at(into.len());
                    into.copy_from_slice(part);
                    body = rest;
                }
                ReadEnd::Good
            }
        }));
        let mut queue = self.queue();
        let stats = &mut queue.stats;
        stats.read += counted.read;
        stats.read_bytes += counted.read_bytes;
        stats.gone += counted.gone;
        stats.damaged += counted.damaged;
        for (Get { key, target, .. }, end) in gets.into_iter().zip(ends) {
            if end == ReadEnd::Damaged {
                // Whoever computes it writes it anew.
                queue.add_removal(key, false);
                self.to_write.notify_one();
            }
            queue.end_read(RemoteEvent::Read { target, end });
        }
    }
}

/// Places of some lengths one behind the other.
pub(super) fn room(
    scratch: &mut Vec<u8>,
    lengths: impl ExactSizeIterator<Item = usize> + Clone,
) -> Result<impl ExactSizeIterator<Item = &mut [u8]>, OutOfMemory> {
    let all = lengths.clone().sum::<usize>();
    let more = all.saturating_sub(scratch.len());
    scratch.try_reserve(more)?;
    scratch.resize(scratch.len() + more, 0);
    let mut rest = &mut scratch[..];
    Ok(lengths.map(move |length| {
        let (place, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        place
    }))
}
