//! Writing: records in the order in which they were put, pieces of one at once.
use super::Shared;
use super::data::Buffer;
use super::parts::Parts;
use super::rings::{Piece, Pieces};
use super::state::State;
use crate::memory::Arc;
use crate::ring::Way;
use crate::tier::disk::{is_no_space, write_exactly};
use crate::tier::records::{PIECE, Place, piece_sum};
use crate::tier::space::UNIT;
use crate::tier::{Dropped, Key, Source};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

pub(super) struct WriteJob {
    pub key: Key,
    pub place: Arc<Place>,
    pub parts: Parts,
    pub source: Box<dyn Source>,
}

impl WriteJob {
    /// A piece, and zeros to the end of its last unit; `None` if the source changed its parts.
    fn gather(&self, piece: usize, buffer: &mut [u8]) -> Option<()> {
        let bytes = self.place.piece_bytes(piece);
        buffer[bytes..].fill(0);
        for overlap in self.parts.overlaps(piece as u64 * PIECE, bytes) {
            let part = self.source.part(overlap.part).get(overlap.in_part)?;
            buffer[overlap.in_piece].copy_from_slice(part);
        }
        Some(())
    }

    /// The same, and its checksum goes to where the record's are.
    fn prepare(&self, piece: usize, buffer: &mut [u8]) -> Option<()> {
        self.gather(piece, buffer)?;
        self.place.set_sum(piece, piece_sum(&buffer[..self.place.piece_bytes(piece)]));
        Some(())
    }
}

impl Shared {
    /// A thread that writes until the store is closed.
    pub(super) fn write_pieces(&self, mut buffer: Buffer) {
        let mut state = self.state.lock();
        loop {
            if state.is_closing {
                return;
            }
            let Some((job, piece)) = next_piece(&mut state) else {
                self.has_writes.wait(&mut state);
                continue;
            };
            drop(state);
            let start = Instant::now();
            let written = catch_unwind(AssertUnwindSafe(|| self.write(&job, piece, &mut buffer)));
            self.end_written(job, written.unwrap_or(Err(Dropped::Io)), start);
            state = self.state.lock();
        }
    }

    /// A piece was written, or could not be.
    fn end_written(&self, job: Arc<WriteJob>, written: Result<(), Dropped>, start: Instant) {
        let mut state = self.state.lock();
        state.stats.write_nanoseconds += start.elapsed().as_nanos() as u64;
        let mut rest = None;
        let mut count = 1;
        if written.is_err() {
            // Of a record that is lost nothing more is written.
            rest = state.unqueue(&job.key);
            count += rest.as_ref().map_or(0, |(count, _)| *count);
        }
        if state.end_pieces(&job.key, count, written.err()) {
            self.wants_commit.notify_one();
            self.flushed.notify_all();
        }
        self.unlock(state);
        // The caller's code, and maybe much to free.
        drop((job, rest));
    }

    fn write(&self, job: &WriteJob, piece: usize, buffer: &mut Buffer) -> Result<(), Dropped> {
        let bytes = job.place.piece_bytes(piece);
        let buffer = buffer.bytes(bytes.next_multiple_of(UNIT as usize));
        job.prepare(piece, buffer).ok_or(Dropped::Io)?;
        let mut done = 0;
        for (at, bytes) in job.place.stretches(piece) {
            self.data.grow(at + bytes as u64).map_err(|error| why(&error))?;
            let from = &buffer[done..done + bytes];
            write_exactly(&*self.data.file, from, at).map_err(|error| why(&error))?;
            done += bytes;
        }
        Ok(())
    }
}

fn why(error: &io::Error) -> Dropped {
    if is_no_space(error) { Dropped::NoSpace } else { Dropped::Io }
}

/// A piece that nobody writes yet.
fn next_piece(state: &mut State) -> Option<(Arc<WriteJob>, usize)> {
    let number = *state.writes.first()?.0;
    let queued = state.writes.get_mut(&number)?;
    let (job, piece) = (queued.job.clone(), queued.next);
    queued.next += 1;
    if queued.next == job.place.pieces() {
        state.writes.remove(&number);
    }
    Some((job, piece))
}

/// Pieces that a ring writes.
pub(super) struct Writing;

impl Pieces for Writing {
    type Job = WriteJob;
    const WAY: Way = Way::Write;

    fn listening(state: &mut State) -> &mut bool {
        &mut state.writes_listen
    }

    fn next(state: &mut State) -> Option<(Arc<WriteJob>, usize)> {
        next_piece(state)
    }

    fn place(job: &WriteJob) -> &Place {
        &job.place
    }

    fn begin(shared: &Shared, piece: &Piece<WriteJob>, memory: &mut [u8]) -> io::Result<()> {
        let prepare = || piece.job.prepare(piece.piece, memory);
        let prepared = catch_unwind(AssertUnwindSafe(prepare)).ok().flatten();
        prepared.ok_or(io::ErrorKind::Other)?;
        let ends = piece.job.place.stretches(piece.piece).map(|(at, bytes)| at + bytes as u64);
        shared.data.grow(ends.max().unwrap_or(0))
    }

    fn end(shared: &Shared, piece: Piece<WriteJob>, result: io::Result<()>, _: &mut [u8]) {
        shared.end_written(piece.job, result.map_err(|error| why(&error)), piece.start);
    }
}
