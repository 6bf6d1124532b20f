//! Reading and writing by a ring each: one thread has as many pieces under way as there are places.
//!
//! What a thread that waits for the disk does in one go is done here in two: a piece begins, and
//! ends when the ring says so. Both end in the same way.
use super::Shared;
use super::state::State;
use crate::memory::Arc;
use crate::ring::{Done, Ring, Way};
use crate::tier::records::Place;
use crate::tier::space::UNIT;
use std::io;
use std::time::Instant;

/// Which pieces a ring carries.
pub(super) trait Pieces {
    /// A record that is read, or written.
    type Job;
    const WAY: Way;

    /// Whether who adds one has to wake the ring.
    fn listening(state: &mut State) -> &mut bool;
    /// Takes one that nobody carries yet.
    fn next(state: &mut State) -> Option<(Arc<Self::Job>, usize)>;
    /// Where its record lies.
    fn place(job: &Self::Job) -> &Place;
    /// Fills the memory of what is written.
    fn begin(_: &Shared, _: &Piece<Self::Job>, _: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
    /// All of it is done, or it failed.
    fn end(shared: &Shared, piece: Piece<Self::Job>, result: io::Result<()>, memory: &mut [u8]);
}

/// A piece that is under way.
pub(super) struct Piece<J> {
    pub job: Arc<J>,
    pub piece: usize,
    pub start: Instant,
    /// Bytes that are done.
    done: usize,
}

impl<J> Piece<J> {
    /// The next request: where in the file, and how many bytes.
    fn rest(&self, place: &Place) -> Option<(u64, usize)> {
        let mut before = 0;
        for (at, bytes) in place.stretches(self.piece) {
            if self.done < before + bytes {
                let skip = self.done - before;
                return Some((at + skip as u64, bytes - skip));
            }
            before += bytes;
        }
        None
    }
}

impl Shared {
    /// A thread that carries pieces until the store is closed. False when the system refused: what
    /// was under way has failed, and others may go on without a ring.
    pub(super) fn carry<P: Pieces>(&self, mut ring: Ring, places: usize) -> bool {
        let mut under_way: Vec<Option<Piece<P::Job>>> = Vec::new();
        let mut done: Vec<Done> = Vec::new();
        if under_way.try_reserve_exact(places).is_err() {
            return false;
        }
        under_way.resize_with(places, || None);
        loop {
            while let Some(free) = under_way.iter().position(Option::is_none) {
                let mut state = self.state.lock();
                let next = if state.is_closing { None } else { P::next(&mut state) };
                let Some((job, piece)) = next else {
                    *P::listening(&mut state) = true;
                    break;
                };
                drop(state);
                let piece = Piece { job, piece, start: Instant::now(), done: 0 };
                self.begin::<P>(&mut ring, &mut under_way, free, piece);
                // The disk has it while the next one is prepared.
                ring.hand_over();
            }
            if self.state.lock().is_closing && under_way.iter().all(Option::is_none) {
                return true;
            }
            let waited = ring.wait(&mut done);
            for Done { place, result } in done.drain(..) {
                let Some(mut piece) = under_way[place].take() else { continue };
                let error = match result {
                    Ok(0) if P::WAY == Way::Read => io::ErrorKind::UnexpectedEof.into(),
                    Ok(0) => io::ErrorKind::WriteZero.into(),
                    Ok(bytes) => {
                        piece.done += bytes;
                        self.go_on::<P>(&mut ring, &mut under_way, place, piece);
                        continue;
                    }
                    Err(error) if is_passing(&error) => {
                        self.go_on::<P>(&mut ring, &mut under_way, place, piece);
                        continue;
                    }
                    Err(error) => error,
                };
                P::end(self, piece, Err(error), &mut []);
            }
            if waited.is_err() {
                // Its memory is kept until the system has let go of it.
                drop(ring);
                *P::listening(&mut self.state.lock()) = false;
                for piece in under_way.into_iter().flatten() {
                    P::end(self, piece, Err(io::ErrorKind::Other.into()), &mut []);
                }
                return false;
            }
        }
    }

    fn begin<P: Pieces>(
        &self,
        ring: &mut Ring,
        under_way: &mut [Option<Piece<P::Job>>],
        place: usize,
        piece: Piece<P::Job>,
    ) {
        let bytes = P::place(&piece.job).piece_bytes(piece.piece);
        let memory = ring.memory(place, bytes.next_multiple_of(UNIT as usize));
        match P::begin(self, &piece, memory) {
            Ok(()) => self.go_on::<P>(ring, under_way, place, piece),
            Err(error) => P::end(self, piece, Err(error), memory),
        }
    }

    /// Starts the next request of a piece, or ends it.
    fn go_on<P: Pieces>(
        &self,
        ring: &mut Ring,
        under_way: &mut [Option<Piece<P::Job>>],
        place: usize,
        piece: Piece<P::Job>,
    ) {
        if let Some((at, bytes)) = piece.rest(P::place(&piece.job)) {
            ring.start(place, P::WAY, piece.done..piece.done + bytes, at);
            under_way[place] = Some(piece);
        } else {
            let bytes = P::place(&piece.job).piece_bytes(piece.piece);
            P::end(self, piece, Ok(()), ring.memory(place, bytes));
        }
    }
}

/// It is worth another try.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
