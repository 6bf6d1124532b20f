//! Reading: by threads of its own, so that it never waits for writing.
use super::Shared;
use super::data::Buffer;
use super::entries::Phase;
use super::rings::{Piece, Pieces};
use super::state::{Queued, State};
use crate::memory::{Arc, Carved, OutOfMemory, Piece as Slices, TryGrow};
use crate::ring::Way;
use crate::tier::disk::{ALIGNMENT, read_exactly};
use crate::tier::records::{PIECE, Place, piece_sum};
use crate::tier::space::UNIT;
use crate::tier::{Dropped, Event, Key, LoadError, Refused, Target};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Beside so many bytes a request for a few more is little.
const LARGE: usize = 512 << 10;

pub(super) struct ReadJob {
    pub key: Key,
    pub ticket: u64,
    pub place: Arc<Place>,
    /// Where it arrives.
    pub target: Carved<dyn Target>,
    pub failed: Mutex<Option<LoadError>>,
    /// Pieces that are not done. Changed under the lock of the state alone.
    pub left: AtomicUsize,
}

type Lent<'a> = crate::memory::Lent<'a, dyn Target>;

/// Pieces of a target.
pub(super) fn carve<'a>(
    target: &'a mut (dyn Target + 'static),
) -> Result<Vec<Slices<'a>>, OutOfMemory> {
    let mut pieces = Vec::new();
    let (mut room, mut carved) = (0, Ok(()));
    target.lend(&mut |part| {
        if carved.is_ok() {
            carved = carve_part(&mut pieces, &mut room, part);
        }
    });
    carved.map(|()| pieces)
}

/// Adds a part to pieces of which the last one lacks so many bytes.
fn carve_part<'a>(
    pieces: &mut Vec<Slices<'a>>,
    room: &mut usize,
    mut part: &'a mut [u8],
) -> Result<(), OutOfMemory> {
    while !part.is_empty() {
        if *room == 0 {
            pieces.try_push(Slices::new())?;
            *room = PIECE as usize;
        }
        let (slice, rest) = part.split_at_mut(part.len().min(*room));
        if let Some(piece) = pieces.last_mut() {
            piece.try_reserve(1).map_err(|_| OutOfMemory)?;
            *room -= slice.len();
            piece.push(slice);
        }
        part = rest;
    }
    Ok(())
}

/// Puts a piece that was read where it is wanted, if it is what was written.
fn arrive(into: &mut Lent<'_>, mut bytes: &[u8], sum: u64) -> Result<(), LoadError> {
    if piece_sum(bytes) != sum {
        return Err(LoadError::Damaged);
    }
    for slice in into.slices() {
        let (now, rest) = bytes.split_at(slice.len());
        slice.copy_from_slice(now);
        bytes = rest;
    }
    Ok(())
}

impl Shared {
    /// Has a record of so many bytes read to a target, which is taken then.
    pub(super) fn begin_read(
        &self,
        key: Key,
        bytes: u64,
        target: &mut Option<Carved<dyn Target>>,
    ) -> Result<u64, Refused> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let place = match state.entries.get(&key) {
            Some(entry) if entry.phase == Phase::Committed => entry.place.clone(),
            _ => return Err(Refused::Missing),
        };
        if bytes != place.bytes {
            return Err(Refused::Length);
        }
        // The second event is of a record that turns out to be damaged.
        let room = state.promise(2).and_then(|()| Ok(state.reads.try_reserve(1)?));
        let ticket = state.tickets + 1;
        let job = room.and_then(|()| {
            Arc::new_with(|| {
                let (left, failed) = (AtomicUsize::new(place.pieces()), Mutex::new(None));
                let target = target.take().expect("a job has a target");
                ReadJob { key, ticket, place, target, failed, left }
            })
        });
        let job = job.map_err(|_| Refused::OutOfMemory)?;
        state.tickets = ticket;
        state.promised += 2;
        if let Some(entry) = state.entries.get_mut(&key) {
            entry.readers += 1;
        }
        state.reads.push_back(Queued { job, next: 0 });
        self.tell(guard, |news| news.reads = true);
        Ok(ticket)
    }

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
            job.failed.lock().get_or_insert(error);
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
        let (key, failed) = (job.key, *job.failed.lock());
        let Some(target) = job.target.give_back() else { return };
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
        let mut into = job.target.lend(piece);
        if let Some(read) = self.read_there(job, piece, &mut into, buffer) {
            return read;
        }
        let bytes = job.place.piece_bytes(piece);
        let buffer = buffer.bytes(bytes.next_multiple_of(UNIT as usize));
        let mut done = 0;
        for (at, bytes) in job.place.stretches(piece) {
            let into = &mut buffer[done..done + bytes];
            read_exactly(&*self.data.file, into, at).map_err(|error| why(&error))?;
            done += bytes;
        }
        arrive(&mut into, &buffer[..bytes], job.place.sum(piece))
    }

    /// Reads a piece to where it is wanted, without a copy, if the disk can write there by itself;
    /// nothing otherwise.
    fn read_there(
        &self,
        job: &ReadJob,
        piece: usize,
        into: &mut Lent<'_>,
        buffer: &mut Buffer,
    ) -> Option<Result<(), LoadError>> {
        let mut slices = into.slices();
        let into = slices.next().filter(|_| slices.len() == 0)?;
        let whole = into.len() / UNIT as usize * UNIT as usize;
        let is_worth_it = whole == into.len() || whole >= LARGE;
        if !is_worth_it || !into.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return None;
        }
        let (body, tail) = into.split_at_mut(whole);
        let mut done = 0;
        for (at, bytes) in job.place.stretches(piece) {
            let now = bytes.min(whole - done);
            match read_exactly(&*self.data.file, &mut body[done..done + now], at) {
                Err(error) if is_no_place(&error) => return None,
                Err(error) => return Some(Err(why(&error))),
                Ok(()) => done += now,
            }
            if now < bytes {
                // The unit that it ends in has more than the record.
                let unit = buffer.bytes(UNIT as usize);
                match read_exactly(&*self.data.file, unit, at + now as u64) {
                    Err(error) => return Some(Err(why(&error))),
                    Ok(()) => tail.copy_from_slice(&unit[..tail.len()]),
                }
            }
        }
        let is_same = piece_sum(into) == job.place.sum(piece);
        Some(is_same.then_some(()).ok_or(LoadError::Damaged))
    }
}

/// The disk does not write to such memory by itself.
fn is_no_place(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput || error.raw_os_error() == Some(libc::EFAULT)
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
        let read = match result {
            Ok(()) => {
                let mut into = job.target.lend(piece);
                arrive(&mut into, &memory[..bytes], job.place.sum(piece))
            }
            Err(error) => Err(why(&error)),
        };
        shared.end_piece(job, read, start);
    }
}
