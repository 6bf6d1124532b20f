//! Memory of nodes that went. It is given back when nobody waits for the lock: the C library joins
//! a block with all that is free beside it, and may give that back to the system then, which takes
//! hundreds of microseconds.
use super::Label;
use smallvec::SmallVec;

/// Pieces of a kind that wait at most: those of a slice of a change. More go at once.
const PIECES: usize = 8;

#[derive(Debug)]
pub(super) struct Discarded<C> {
    labels: SmallVec<[Label; PIECES]>,
    chunks: SmallVec<[C; PIECES]>,
}

impl<C> Discarded<C> {
    pub(super) fn new() -> Self {
        Self { labels: SmallVec::new(), chunks: SmallVec::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.chunks.is_empty()
    }

    pub(super) fn put_label(&mut self, label: Label) {
        put(&mut self.labels, label);
    }

    pub(super) fn put_chunk(&mut self, chunk: C) {
        put(&mut self.chunks, chunk);
    }

    /// Those that wait, to be dropped.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }
}

fn put<T>(pieces: &mut SmallVec<[T; PIECES]>, piece: T) {
    if pieces.len() < PIECES {
        pieces.push(piece);
    }
}
