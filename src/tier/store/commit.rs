//! One thread makes what was written, and what was removed, last: a batch at a time.
use super::Shared;
use super::entries::Phase;
use super::state::{State, Stopped};
use crate::memory::OutOfMemory;
use crate::tier::disk::is_no_space;
use crate::tier::records::{Changes, Kept, Records, RecordsError};
use crate::tier::{Dropped, Event, Key};
use parking_lot::MutexGuard;
use std::time::{Duration, Instant};

/// After so many commits in a row that failed, the disk is given up.
const FAILURES_MAX: u32 = 3;
/// Records that are handled without letting go of the lock.
const STEP: usize = 16;
/// When there was no memory for a batch.
const PAUSE: Duration = Duration::from_millis(20);
/// From a commit that failed to the next one, whoever waits: a disk may be full for a moment.
const RETRY: Duration = Duration::from_millis(100);

pub(super) struct Committer {
    /// `None` after a failure.
    pub records: Option<Records>,
    pub failures: u32,
}

/// What a batch was made of.
#[derive(Default)]
struct Batch {
    changes: Changes,
    /// Written before a sync that failed.
    lost: Vec<Key>,
}

impl State {
    /// How long the next commit can wait; `None` when there is nothing to commit.
    fn commit_in(&self, interval: Duration, bytes: u64) -> Option<Duration> {
        let first = self.first_change?;
        let is_idle = self.writes.is_empty() && self.stats.waiting_bytes == 0;
        let at_once =
            self.written_bytes >= bytes || self.is_urgent || (self.flushing > 0 && is_idle);
        if at_once { Some(Duration::ZERO) } else { Some(interval.saturating_sub(first.elapsed())) }
    }
}

impl Shared {
    /// The thread that commits, until the store is closed.
    pub(super) fn commit_batches(&self, mut committer: Committer) {
        // No commit but the last one begins before.
        let mut not_before = Instant::now();
        loop {
            let mut state = self.state.lock();
            let is_last = loop {
                if let Some(Stopped { job, bytes }) = state.stopped.pop_front() {
                    MutexGuard::unlocked(&mut state, || drop(job));
                    state.stats.waiting_bytes -= bytes;
                    // What was refused while it waited may have room now.
                    state.stats.released += 1;
                    continue;
                }
                if state.is_last {
                    break true;
                }
                let pause = not_before.saturating_duration_since(Instant::now());
                match state.commit_in(self.commit_interval, self.commit_bytes) {
                    None => self.wants_commit.wait(&mut state),
                    Some(left) if left.max(pause).is_zero() => break false,
                    Some(left) => {
                        self.wants_commit.wait_for(&mut state, left.max(pause));
                    }
                }
            };
            drop(state);
            let listed = self.list_removals();
            match self.collect() {
                Ok(batch) => self.carry_out(&mut committer, batch),
                Err(OutOfMemory) if !is_last => std::thread::sleep(PAUSE),
                Err(OutOfMemory) => {}
            }
            if listed.is_err() {
                not_before = Instant::now() + PAUSE;
            }
            if committer.failures > 0 {
                not_before = Instant::now() + RETRY;
            }
            self.shrink();
            if is_last {
                // redb writes once more when it goes, and the file may be another one's by now.
                if !self.lock.is_there() {
                    committer.records.iter().for_each(Records::leave);
                }
                return;
            }
        }
    }

    /// Lists the removals that there was no memory for when they came.
    fn list_removals(&self) -> Result<(), OutOfMemory> {
        for part in 0.. {
            let mut state = self.state.lock();
            let is_over = state.unlisted == 0 || part == state.entries.parts();
            if is_over || state.stats.is_read_only {
                break;
            }
            state.list_part(part)?;
            MutexGuard::unlock_fair(state);
        }
        Ok(())
    }

    /// Takes what waits for a commit.
    fn collect(&self) -> Result<Batch, OutOfMemory> {
        let mut batch = Batch::default();
        let (written, removed, touched) = {
            let mut state = self.state.lock();
            if state.stats.is_read_only {
                state.first_change = None;
                return Ok(batch);
            }
            (state.written.len(), state.removals.len(), state.touched.len())
        };
        batch.changes.put.try_reserve(written)?;
        batch.lost.try_reserve(written)?;
        batch.changes.removed.try_reserve(removed)?;
        batch.changes.used.try_reserve(touched)?;
        {
            let mut state = self.state.lock();
            state.written_bytes = 0;
            state.first_change = None;
            // What came meanwhile is for the next one.
            let has_come = state.written.len() > written || state.removals.len() > removed;
            state.is_urgent &= has_come || state.unlisted > 0;
        }
        self.in_steps(written, |state| {
            let Some(key) = state.written.pop_front() else { return };
            let failed_syncs = state.failed_syncs;
            let Some(entry) = state.entries.get_mut(&key) else { return };
            if entry.phase != Phase::Written {
                return;
            }
            entry.phase = Phase::Committing { is_removed: false };
            if entry.failed_syncs != failed_syncs {
                batch.lost.push(key);
                return;
            }
            let (place, note) = (entry.place.clone(), std::mem::take(&mut entry.note));
            batch.changes.put.push(Kept { key, place, note, used: entry.used });
        });
        self.in_steps(removed, |state| {
            let Some(key) = state.removals.pop_front() else { return };
            batch.changes.removed.push(key);
            if let Some(entry) = state.entries.get_mut(&key) {
                entry.phase = Phase::RemovingNow;
            }
        });
        self.in_steps(touched, |state| {
            let Some(key) = state.touched.pop_front() else { return };
            let Some(entry) = state.entries.get_mut(&key) else { return };
            entry.is_touched = false;
            if entry.phase == Phase::Committed {
                batch.changes.used.push((key, entry.used));
            }
        });
        let mut state = self.state.lock();
        if !state.written.is_empty() || state.has_removals() {
            // They came meanwhile, or had no memory.
            state.changed();
        }
        drop(state);
        Ok(batch)
    }

    /// Does something so many times, and lets go of the lock now and then.
    fn in_steps(&self, mut count: usize, mut step: impl FnMut(&mut State)) {
        while count > 0 {
            let mut state = self.state.lock();
            let now = count.min(STEP);
            (0..now).for_each(|_| step(&mut state));
            count -= now;
            MutexGuard::unlock_fair(state);
        }
    }

    fn carry_out(&self, committer: &mut Committer, mut batch: Batch) {
        let Batch { changes, lost } = &mut batch;
        if changes.put.is_empty()
            && changes.removed.is_empty()
            && changes.used.is_empty()
            && lost.is_empty()
        {
            return;
        }
        self.drop_all(lost.iter(), Dropped::Io);
        if !self.lock.is_there() {
            // What is written now could not be found again.
            return self.give_up(changes, Dropped::Io);
        }
        let start = Instant::now();
        let mut is_good = true;
        if !changes.put.is_empty()
            && let Err(error) = self.data.file.sync()
        {
            is_good = false;
            self.state.lock().failed_syncs += 1;
            let put = std::mem::take(&mut changes.put);
            self.drop_all(put.iter().map(|kept| &kept.key), why(&error));
        }
        // After a failure nobody knows which of them are in the file; all those are removed with
        // the next commit.
        changes.are_there = committer.failures == 0 && is_good;
        let committed = self.commit(committer, changes);
        let nanoseconds = start.elapsed().as_nanos() as u64;
        if is_good && committed.is_ok() {
            committer.failures = 0;
        } else {
            committer.failures += 1;
            self.state.lock().stats.failed_commits += 1;
        }
        // What is not found can't be removed by another try either.
        let is_misplaced = matches!(committed, Err(RecordsError::Misplaced));
        let is_over = committer.failures >= FAILURES_MAX || is_misplaced;
        match &committed {
            Ok(()) => self.succeed(changes, nanoseconds),
            Err(error) => {
                let why = match error {
                    RecordsError::Io(error) => why(error),
                    _ => Dropped::Io,
                };
                if is_over { self.give_up(changes, why) } else { self.fail(changes, why) }
            }
        }
        if is_over && committed.is_ok() {
            self.give_up(&Changes::default(), Dropped::Io);
        }
    }

    fn commit(&self, committer: &mut Committer, changes: &Changes) -> Result<(), RecordsError> {
        let records = match &mut committer.records {
            Some(records) => records,
            none => none.insert(Records::open(&*self.disk)?),
        };
        let result = records.commit(changes);
        if result.is_err() {
            // What the file says is known only when it is read again.
            committer.records = None;
        }
        result
    }

    /// Records whose bytes are not there for sure, and of which the file of records says nothing.
    fn drop_all<'a>(&self, keys: impl Iterator<Item = &'a Key>, why: Dropped) {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut state = self.state.lock();
            for key in keys.by_ref().take(STEP) {
                let Some(entry) = state.entries.get(key) else { continue };
                let is_removed = entry.phase == Phase::Committing { is_removed: true };
                state.drop_write(key, Some(why).filter(|_| !is_removed));
            }
            self.unlock(state);
        }
        self.flushed.notify_all();
    }

    fn succeed(&self, changes: &Changes, nanoseconds: u64) {
        let (puts, removals) = (changes.put.chunks(STEP), changes.removed.chunks(STEP));
        // With the last step, which may end somebody's wait: he sees this commit among the others.
        let mut left = puts.len() + removals.len();
        let mut count_at_last = |state: &mut State| {
            left -= 1;
            if left == 0 {
                state.stats.count_commit(nanoseconds);
            }
        };
        if changes.put.is_empty() && changes.removed.is_empty() {
            self.state.lock().stats.count_commit(nanoseconds);
        }
        for puts in puts {
            let mut state = self.state.lock();
            for Kept { key, .. } in puts {
                let Some(entry) = state.entries.get_mut(key) else { continue };
                let is_removed = entry.phase == Phase::Committing { is_removed: true };
                entry.phase = if is_removed { Phase::Removing } else { Phase::Committed };
                let epoch = entry.epoch;
                state.uncommitted -= 1;
                state.stats.writes += 1;
                if is_removed {
                    state.remove_later(key, epoch);
                } else {
                    state.stats.records += 1;
                    state.epochs.end(epoch);
                }
                let event = Event::Committed { key: *key };
                state.keep_promise(Some(event).filter(|_| !is_removed));
            }
            count_at_last(&mut state);
            self.unlock(state);
        }
        for keys in removals {
            let mut state = self.state.lock();
            for key in keys {
                let Some(entry) = state.entries.get_mut(key) else { continue };
                entry.phase = Phase::Removed;
                let (epoch, readers) = (entry.epoch, entry.readers);
                state.late -= usize::from(std::mem::take(&mut entry.is_late));
                state.epochs.end(epoch);
                if readers == 0 {
                    state.forget(key);
                }
            }
            count_at_last(&mut state);
            self.unlock(state);
        }
        self.flushed.notify_all();
    }

    /// Nobody knows what of it is in the file: all of it is removed with the next commit, and its
    /// space is not used before.
    fn fail(&self, changes: &Changes, why: Dropped) {
        for puts in changes.put.chunks(STEP) {
            let mut state = self.state.lock();
            for Kept { key, .. } in puts {
                let Some(entry) = state.entries.get_mut(key) else { continue };
                let is_removed = entry.phase == Phase::Committing { is_removed: true };
                entry.phase = Phase::Removing;
                let epoch = entry.epoch;
                state.uncommitted -= 1;
                state.drop_promised(*key, Some(why).filter(|_| !is_removed));
                // Who flushes waits for what was removed before, and not for what was given up.
                let later = match is_removed {
                    true => epoch,
                    false => {
                        state.epochs.end(epoch);
                        state.epochs.begin()
                    }
                };
                state.remove_later(key, later);
            }
            self.unlock(state);
        }
        for keys in changes.removed.chunks(STEP) {
            let mut state = self.state.lock();
            for key in keys {
                let Some(entry) = state.entries.get_mut(key) else { continue };
                entry.phase = Phase::Removing;
                let epoch = entry.epoch;
                state.remove_later(key, epoch);
            }
            self.unlock(state);
        }
        self.flushed.notify_all();
    }

    /// Writing is over for good; whoever learns that something was dropped can see it.
    fn give_up(&self, changes: &Changes, why: Dropped) {
        self.state.lock().stats.is_read_only = true;
        self.fail(changes, why);
        let mut state = self.state.lock();
        let queued = state.close();
        self.unlock(state);
        drop(queued);
        self.flushed.notify_all();
    }

    fn shrink(&self) {
        // Of a store that has given up the file may be another one's by now.
        if self.state.lock().stats.is_read_only {
            return;
        }
        // If that fails the file stays as long as it is: nothing is lost.
        let _ = self.data.shrink(|| self.state.lock().space.used_end());
    }
}

fn why(error: &std::io::Error) -> Dropped {
    if is_no_space(error) { Dropped::NoSpace } else { Dropped::Io }
}
