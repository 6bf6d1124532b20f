//! Writing: records in the order in which they were put, pieces of one at once.
use super::Shared;
use super::data::Buffer;
use super::parts::Parts;
use crate::memory::Arc;
use crate::tier::disk::{is_no_space, write_exactly};
use crate::tier::records::{PIECE, Place, piece_sum};
use crate::tier::space::UNIT;
use crate::tier::{Dropped, Key, Source};
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
}

impl Shared {
    /// A thread that writes until the store is closed.
    pub(super) fn write_pieces(&self, mut buffer: Buffer) {
        let mut state = self.state.lock();
        loop {
            if state.is_closing {
                return;
            }
            let Some(queued) = state.writes.front_mut() else {
                self.has_writes.wait(&mut state);
                continue;
            };
            let (job, piece) = (queued.job.clone(), queued.next);
            queued.next += 1;
            if queued.next == job.place.pieces() {
                state.writes.pop_front();
            }
            drop(state);
            let start = Instant::now();
            let written = catch_unwind(AssertUnwindSafe(|| self.write(&job, piece, &mut buffer)));
            let written = written.unwrap_or(Err(Dropped::Io));
            state = self.state.lock();
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
            state = self.state.lock();
        }
    }

    fn write(&self, job: &WriteJob, piece: usize, buffer: &mut Buffer) -> Result<(), Dropped> {
        let why = |error| if is_no_space(&error) { Dropped::NoSpace } else { Dropped::Io };
        let bytes = job.place.piece_bytes(piece);
        let buffer = buffer.bytes(bytes.next_multiple_of(UNIT as usize));
        job.gather(piece, buffer).ok_or(Dropped::Io)?;
        job.place.set_sum(piece, piece_sum(&buffer[..bytes]));
        let mut done = 0;
        for (at, bytes) in job.place.stretches(piece) {
            self.data.grow(at + bytes as u64).map_err(why)?;
            write_exactly(&*self.data.file, &buffer[done..done + bytes], at).map_err(why)?;
            done += bytes;
        }
        Ok(())
    }
}
