//! Records in a directory. One thread commits, others write, others read; the calls only hand over.
//!
//! | file | |
//! |---|---|
//! | `lock` | locked by the owner |
//! | `format` | version, and whose records these are |
//! | `records.redb` | what is where, with what checksums, and when it was used |
//! | `data` | the bytes |
//!
//! A record's bytes are written and synced before the transaction that names them; its space is
//! given to another one after the transaction that no longer does. So after a crash the file of
//! records names nothing but whole records, whatever else was under way.
mod commit;
mod data;
mod entries;
mod epochs;
mod error;
mod format;
mod news;
mod notes;
mod open;
mod parts;
mod read;
mod relocate;
mod rings;
mod rows;
mod sorted;
mod state;
mod write;

pub use error::OpenError;

use super::disk::{Disk, Lock};
use super::paged::PageSizes;
use super::records::Place;
use super::space::{Extents, NoSpace, UNIT};
use super::{Event, Key, LowerStore, Refused, Source, StoreStats, Target, join};
use crate::memory::{Arc as TryArc, Carved, OutOfMemory};
use crate::ring::Waker;
use crate::store::Identity;
use data::Data;
use entries::{Entry, Phase};
use news::Telling;
use parking_lot::{Condvar, Mutex, MutexGuard};
use parts::Parts;
use read::carve;
use state::{Queued, State};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use write::WriteJob;

/// A longer note is refused.
const NOTE_MAX: usize = 64 << 20;

/// Events that one call takes at most: for each the lock is had for a search.
const EVENTS: usize = 16;

/// By what requests are carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Io {
    /// Writes by io_uring, or as with threads where the system has none or refuses it. Reads by
    /// threads: what is done with a piece that came, its checksum and a copy to memory that is
    /// touched for the first time, takes more than the request, and by several threads at once.
    #[default]
    Auto,
    /// Both by io_uring, if it is to be had: one thread for either.
    Ring,
    /// Threads that wait for the disk.
    Threads,
}

/// Called when events come after there were none, by any thread, without a lock held.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// What the records of a store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Of a snapshot cache.
    Snapshots,
    /// Of a prefix cache.
    Pages,
}

/// A store on disk.
pub struct DiskConfig {
    /// Made if it isn't there. One store has it at a time.
    pub directory: PathBuf,
    /// Of all records, in units of 4 KiB, and their notes, at most. The data file is never longer.
    pub bytes: u64,
    /// Of the model and the layout: a directory of another one is refused.
    pub fingerprint: [u8; 32],
    /// A directory of others is refused too.
    pub contents: Contents,
    /// Of pages: a directory that has others is refused too, before anything in it is changed. None
    /// when whoever opens it looks itself.
    pub page_sizes: Option<PageSizes>,
    /// Requests of up to 2 MiB that are read at once, and as many that are written; threads for
    /// them where the system has no io_uring.
    pub workers: usize,
    /// A record waits that long to be committed, at most, once it is written.
    pub commit_interval: Duration,
    /// When so many bytes wait to be committed, they are.
    pub commit_bytes: u64,
    /// Of records that are not written yet, at most; but one alone may be longer.
    pub waiting_bytes: u64,
    /// By what requests are carried out.
    pub io: Io,
    /// Called when events come after there were none.
    pub wake: Option<Wake>,
}

impl DiskConfig {
    /// The defaults.
    pub fn new(directory: impl Into<PathBuf>, bytes: u64, fingerprint: [u8; 32]) -> Self {
        Self {
            directory: directory.into(),
            bytes,
            fingerprint,
            contents: Contents::Snapshots,
            page_sizes: None,
            workers: 8,
            commit_interval: Duration::from_millis(250),
            commit_bytes: 64 << 20,
            waiting_bytes: 1 << 30,
            io: Io::Auto,
            wake: None,
        }
    }
}

/// What threads share.
struct Shared {
    /// Of the ring that reads and of the one that writes, where those do.
    wakers: [Option<Waker>; 2],
    state: Mutex<State>,
    has_reads: Condvar,
    has_writes: Condvar,
    wants_commit: Condvar,
    flushed: Condvar,
    has_events: AtomicBool,
    telling: Telling,
    data: Data,
    disk: Box<dyn Disk>,
    /// Dropped last: from then on the directory can be another's.
    lock: Box<dyn Lock>,
    capacity: u64,
    commit_interval: Duration,
    commit_bytes: u64,
    waiting_bytes: u64,
    wake: Option<Wake>,
}

impl Shared {
    /// Lets go of the lock, and wakes the caller if there are events now and were none.
    fn unlock(&self, state: MutexGuard<'_, State>) {
        let is_first = !state.events.is_empty() && !self.has_events.swap(true, Ordering::Release);
        // Who waits gets it, and not the next step of who had it.
        MutexGuard::unlock_fair(state);
        if is_first && let Some(wake) = &self.wake {
            wake();
        }
    }
}

/// A store in a directory.
///
/// Dropping it waits for the requests that the disk has, commits what is written, and gives up
/// what is not; what shall not be lost is flushed before.
pub struct DiskStore {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    committer: Option<JoinHandle<()>>,
}

impl DiskStore {
    pub(crate) fn cost_of(bytes: u64, note: usize) -> u64 {
        bytes.div_ceil(UNIT).saturating_mul(UNIT).saturating_add(note as u64)
    }
}

impl LowerStore for DiskStore {
    fn put(&self, key: Key, note: Box<[u8]>, source: Box<dyn Source>) -> Result<(), Refused> {
        let shared = &*self.shared;
        let lengths = (0..source.parts()).map(|index| source.part(index).len());
        let parts = Parts::new(lengths).map_err(|_| Refused::OutOfMemory)?;
        let bytes = parts.bytes();
        let cost = Self::cost_of(bytes, note.len());
        if bytes == 0 || cost > shared.capacity || note.len() > NOTE_MAX {
            return Err(Refused::Length);
        }
        let mut guard = shared.state.lock();
        let state = &mut *guard;
        if state.stats.is_read_only {
            return Err(Refused::Closed);
        }
        if state.entries.contains(&key) {
            return Err(Refused::Known);
        }
        let waiting = state.stats.waiting_bytes;
        if waiting > 0 && waiting + bytes > shared.waiting_bytes {
            return Err(Refused::Busy);
        }
        let extents = match state.cost + cost > shared.capacity {
            true => Err(NoSpace::Full),
            false => state.space.take(bytes.div_ceil(UNIT)),
        };
        let extents = match extents {
            Ok(extents) => extents,
            Err(NoSpace::OutOfMemory) => return Err(Refused::OutOfMemory),
            Err(reason) => {
                state.is_urgent |= state.has_removals();
                shared.tell(guard, |news| news.commit = true);
                return Err(match reason {
                    NoSpace::Fragmented => Refused::Fragmented,
                    _ => Refused::Full,
                });
            }
        };
        let mut taken = Extents::new();
        if taken.try_reserve(extents.len()).is_err() {
            state.space.give(&extents);
            return Err(Refused::OutOfMemory);
        }
        taken.extend_from_slice(&extents);
        let made = Place::new(bytes, extents).and_then(TryArc::new).and_then(|place| {
            state.entries.try_reserve(&key)?;
            state.writes.try_reserve(1)?;
            state.stopped.try_reserve(state.writes.len() + 1)?;
            state.promise(1)?;
            state.written.try_reserve(state.uncommitted + 1)?;
            TryArc::new(WriteJob { key, place, parts, source })
        });
        let Ok(job) = made else {
            state.space.give(&taken);
            return Err(Refused::OutOfMemory);
        };
        let (place, left) = (job.place.clone(), job.place.pieces());
        state.clock += 1;
        let entry = Entry {
            phase: Phase::Writing { left, failed: None, is_removed: false },
            place,
            note,
            cost,
            used: state.clock,
            put: state.clock,
            readers: 0,
            is_touched: false,
            is_promised: true,
            is_late: false,
            epoch: state.epochs.begin(),
            failed_syncs: state.failed_syncs,
        };
        state.entries.insert(key, entry);
        state.cost += cost;
        state.promised += 1;
        state.uncommitted += 1;
        state.stats.waiting_bytes += bytes;
        state.writes.insert(state.clock, Queued { job, next: 0 });
        shared.tell(guard, |news| news.writes = true);
        Ok(())
    }

    fn get(
        &self,
        key: Key,
        mut target: Box<dyn Target>,
    ) -> Result<u64, (Refused, Box<dyn Target>)> {
        let mut bytes = 0;
        target.lend(&mut |part| bytes += part.len() as u64);
        let carved = match Carved::new(target, carve) {
            Ok(carved) => carved,
            Err(target) => return Err((Refused::OutOfMemory, target)),
        };
        let mut carved = Some(carved);
        self.shared.begin_read(key, bytes, &mut carved).map_err(|why| {
            let target = carved.as_ref().and_then(Carved::give_back);
            (why, target.expect("nobody has a piece of it"))
        })
    }

    fn remove(&self, key: Key) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        match state.entries.get_mut(&key).map(|entry| &mut entry.phase) {
            Some(Phase::Writing { is_removed, .. }) => {
                *is_removed = true;
                state.stop(&key);
            }
            Some(Phase::Written) => {
                state.drop_write(&key, None);
            }
            Some(Phase::Committing { is_removed }) => *is_removed = true,
            Some(Phase::Committed) => state.remove_committed(&key),
            // An event may still say that it is gone: nobody is to hear of it.
            _ => state.forget_dropped(&key),
        }
        self.shared.tell(guard, |news| (news.commit, news.flushed) = (true, true));
    }

    fn commit_removals(&self) {
        let mut state = self.shared.state.lock();
        // What a commit that goes on has written is to be removed with the next one.
        state.is_urgent |= state.has_removals() || state.uncommitted > 0;
        self.shared.tell(state, |news| news.commit = true);
    }

    fn defer(&self) {
        self.shared.defer();
    }

    fn resume(&self) {
        self.shared.resume();
    }

    fn touch(&self, key: Key) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let Some(entry) = state.entries.get_mut(&key) else { return };
        state.clock += 1;
        entry.used = state.clock;
        let is_new = entry.phase == Phase::Committed && !entry.is_touched;
        if is_new && state.touched.try_reserve(1).is_ok() {
            entry.is_touched = true;
            state.touched.push_back(key);
        }
    }

    fn cost(&self, bytes: u64, note: usize) -> u64 {
        Self::cost_of(bytes, note)
    }

    fn has_events(&self) -> bool {
        self.shared.has_events.load(Ordering::Acquire)
    }

    fn poll(&self, events: &mut Vec<Event>) {
        let mut state = self.shared.state.lock();
        let before = events.len();
        while !state.events.is_empty() {
            let count = state.events.len().min(EVENTS);
            if events.try_reserve(count).is_err() {
                // They wait for the next call. What comes while they are there wakes nobody, so
                // whoever was told of them is told again.
                drop(state);
                return self.shared.wake.iter().for_each(|wake| wake());
            }
            events.extend((0..count).filter_map(|_| state.take_event()));
            if events.len() > before {
                break;
            }
            // Of records that went meanwhile nothing is said. Whoever is told that there is nothing
            // may sleep, and only what comes when there is nothing wakes him.
            MutexGuard::bump(&mut state);
        }
        self.shared.has_events.store(!state.events.is_empty(), Ordering::Release);
    }

    fn flush(&self, timeout: Duration) -> bool {
        let end = Instant::now().checked_add(timeout);
        let mut state = self.shared.state.lock();
        let epoch = match state.epochs.next() {
            Ok(None) => return true,
            Ok(Some(epoch)) => epoch,
            Err(_) => return false,
        };
        state.flushing += 1;
        self.shared.wants_commit.notify_one();
        while !state.epochs.is_done(epoch) {
            let is_late = match end {
                None => {
                    self.shared.flushed.wait(&mut state);
                    false
                }
                Some(end) => self.shared.flushed.wait_until(&mut state, end).timed_out(),
            };
            if is_late {
                break;
            }
        }
        state.flushing -= 1;
        state.epochs.is_done(epoch)
    }

    fn mark(&self) -> Result<Option<u64>, OutOfMemory> {
        self.shared.state.lock().epochs.next()
    }

    fn has_ended(&self, mark: u64) -> bool {
        self.shared.state.lock().epochs.is_done(mark)
    }

    fn stats(&self) -> StoreStats {
        let state = self.shared.state.lock();
        let (bytes, capacity) = (state.cost, self.shared.capacity);
        StoreStats { bytes, capacity, has_unremoved: state.late > 0, ..state.stats }
    }

    fn identity(&self) -> Option<Identity> {
        self.shared.lock.identity()
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        state.is_closing = true;
        let queued = (std::mem::take(&mut state.writes), std::mem::take(&mut state.reads));
        drop(state);
        drop(queued);
        shared.has_reads.notify_all();
        shared.has_writes.notify_all();
        shared.wakers.iter().flatten().for_each(Waker::wake);
        for worker in self.workers.drain(..) {
            join(worker);
        }
        shared.state.lock().is_last = true;
        shared.wants_commit.notify_all();
        if let Some(committer) = self.committer.take() {
            join(committer);
        }
    }
}
