//! Reading: by threads of its own, so that it never waits for writing.
use super::Shared;
use super::data::Buffer;
use super::parts::Parts;
use super::rings::{Piece, Pieces};
use super::state::{Queued, State};
use crate::memory::Arc;
use crate::ring::Way;
use crate::tier::disk::read_exactly;
use crate::tier::records::{PIECE, Place, piece_sum};
use crate::tier::space::UNIT;
use crate::tier::{Dropped, Event, Key, LoadError, Target};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub(super) struct ReadJob {
    pub key: Key,
    pub ticket: u64,
    pub place: Arc<Place>,
    pub parts: Parts,
    /// Pieces that are not done. Changed under the lock of the state alone.
    pub left: AtomicUsize,
    pub landed: Mutex<Landed>,
}

/// Where it arrives.
#[derive(Default)]
pub(super) struct Landed {
    pub target: Option<Box<dyn Target>>,
    pub failed: Option<LoadError>,
}

impl ReadJob {
    /// Copies a piece to where it is wanted; `None` if the target changed its parts.
    fn scatter(&self, piece: usize, bytes: &[u8]) -> Option<()> {
        let mut landed = self.landed.lock();
        let target = landed.target.as_mut()?;
        for overlap in self.parts.overlaps(piece as u64 * PIECE, bytes.len()) {
            let part = target.part(overlap.part).get_mut(overlap.in_part)?;
            part.copy_from_slice(&bytes[overlap.in_piece]);
        }
        Some(())
    }

    /// Puts a piece that was read where it is wanted, if it is what was written.
    fn arrive(&self, piece: usize, bytes: &[u8]) -> Result<(), LoadError> {
        if piece_sum(bytes) != self.place.sum(piece) {
            return Err(LoadError::Damaged);
        }
        self.scatter(piece, bytes).ok_or(LoadError::Io)
    }
}

impl Shared {
    /// A thread that reads until the store is closed.
    pub(super) fn read_pieces(&self, mut buffer: Buffer) {
        let mut state = self.state.lock();
        loop {
            if state.is_closing {
                return;
            }
            let Some((job, piece)) = next_piece(&mut state) else {
                self.has_reads.wait(&mut state);
                continue;
            };
            drop(state);
            let start = Instant::now();
            let read = catch_unwind(AssertUnwindSafe(|| self.read(&job, piece, &mut buffer)));
            self.end_piece(job, read.unwrap_or(Err(LoadError::Io)), start);
            state = self.state.lock();
        }
    }

    /// A piece was read, or could not be.
    fn end_piece(&self, job: Arc<ReadJob>, read: Result<(), LoadError>, start: Instant) {
        if let Err(error) = read {
            job.landed.lock().failed.get_or_insert(error);
        }
        let mut state = self.state.lock();
        state.stats.read_nanoseconds += start.elapsed().as_nanos() as u64;
        let mut count = 1;
        if read.is_err() {
            // The rest of it is of no use.
            let same = |queued: &Queued<ReadJob>| queued.job.ticket == job.ticket;
            if let Some(at) = state.reads.iter().position(same)
                && let Some(queued) = state.reads.remove(at)
            {
                count += job.place.pieces() - queued.next;
            }
        }
        if job.left.fetch_sub(count, Ordering::Relaxed) == count {
            self.end_read(&mut state, &job);
        }
        self.unlock(state);
    }

    fn end_read(&self, state: &mut State, job: &ReadJob) {
        let (target, failed) = {
            let mut landed = job.landed.lock();
            (landed.target.take(), landed.failed)
        };
        let Some(target) = target else { return };
        let key = job.key;
        match failed {
            None => {
                state.stats.reads += 1;
                state.stats.read_bytes += job.place.bytes;
            }
            Some(LoadError::Io) => state.stats.failed_reads += 1,
            Some(_) => {}
        }
        let result = failed.map_or(Ok(()), Err);
        state.keep_promise(Some(Event::Loaded { ticket: job.ticket, key, target, result }));
        let is_committed = state.is_committed(&key);
        if failed == Some(LoadError::Damaged) && is_committed {
            state.remove_committed(&key);
            state.drop_promised(key, Some(Dropped::Damaged));
            self.wants_commit.notify_one();
        } else {
            state.keep_promise(None);
        }
        state.end_read(&key);
    }

    fn read(&self, job: &ReadJob, piece: usize, buffer: &mut Buffer) -> Result<(), LoadError> {
        let bytes = job.place.piece_bytes(piece);
        let buffer = buffer.bytes(bytes.next_multiple_of(UNIT as usize));
        let mut done = 0;
        for (at, bytes) in job.place.stretches(piece) {
            let into = &mut buffer[done..done + bytes];
            read_exactly(&*self.data.file, into, at).map_err(|error| why(&error))?;
            done += bytes;
        }
        job.arrive(piece, &buffer[..bytes])
    }
}

fn why(error: &io::Error) -> LoadError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => LoadError::Damaged,
        _ => LoadError::Io,
    }
}

/// A piece that nobody reads yet.
fn next_piece(state: &mut State) -> Option<(Arc<ReadJob>, usize)> {
    let queued = state.reads.front_mut()?;
    let (job, piece) = (queued.job.clone(), queued.next);
    queued.next += 1;
    if queued.next == job.place.pieces() {
        state.reads.pop_front();
    }
    Some((job, piece))
}

/// Pieces that a ring reads.
pub(super) struct Reading;

impl Pieces for Reading {
    type Job = ReadJob;
    const WAY: Way = Way::Read;

    fn listening(state: &mut State) -> &mut bool {
        &mut state.reads_listen
    }

    fn next(state: &mut State) -> Option<(Arc<ReadJob>, usize)> {
        next_piece(state)
    }

    fn place(job: &ReadJob) -> &Place {
        &job.place
    }

    fn end(shared: &Shared, piece: Piece<ReadJob>, result: io::Result<()>, memory: &mut [u8]) {
        let Piece { job, piece, start, .. } = piece;
        let bytes = job.place.piece_bytes(piece);
        let arrive = || job.arrive(piece, &memory[..bytes]);
        let read = match result {
            Ok(()) => catch_unwind(AssertUnwindSafe(arrive)).unwrap_or(Err(LoadError::Io)),
            Err(error) => Err(why(&error)),
        };
        shared.end_piece(job, read, start);
    }
}
