//! Records of the store, as entries of the index and as others know them.
use super::note::{Note, Sizes, sizes};
use crate::memory::{Arc, OutOfMemory};
use crate::snapshot::freed::Snapshot;
use crate::tier::{Key, LowerStore};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU64, AtomicUsize};

/// Of a mark: the store is about to have it.
const PENDING: u8 = 1;
/// The index has it no more.
const GONE: u8 = 2;

/// The key of a record.
pub(super) fn key(number: u64) -> Key {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number of a record.
pub(super) fn number(key: &Key) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("eight bytes"))
}

/// The store, for all that is in it.
pub(super) struct Link {
    pub(super) store: Box<dyn LowerStore>,
    /// The number of the index among those that the cache had.
    pub(super) attachment: u32,
    /// The index goes, and the records stay.
    closing: AtomicBool,
    /// Entries of the index that memory does not have: without one no lookup looks below.
    alone: AtomicUsize,
    /// Records with lower numbers were cleared, though their places may still be on their way out.
    cleared: AtomicU64,
    /// Writes that nobody wants any more, and of which no event comes. Below 0 at moments.
    abandoned: AtomicIsize,
}

impl Link {
    pub(super) fn new(store: Box<dyn LowerStore>, attachment: u32) -> Self {
        let (alone, cleared) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (closing, abandoned) = (AtomicBool::new(false), AtomicIsize::new(0));
        Self { store, attachment, closing, alone, cleared, abandoned }
    }

    /// From now on no record goes with its place.
    pub(super) fn close(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Whether there is anything that memory does not have.
    pub(super) fn has_more(&self) -> bool {
        self.alone.load(Relaxed) != 0
    }

    /// How many writes nobody wants any more.
    pub(super) fn abandoned(&self) -> usize {
        usize::try_from(self.abandoned.load(Relaxed)).unwrap_or(0)
    }

    /// All records are removed, of which the next number is known. To be called with the table.
    pub(super) fn clear(&self, next: u64) {
        self.cleared.store(next, Relaxed);
    }

    /// Whether the index has a record of its own no more.
    pub(super) fn is_gone(&self, mark: &Mark) -> bool {
        mark.state.load(Relaxed) & GONE != 0 || mark.number < self.cleared.load(Relaxed)
    }

    /// Memory has let a record go, or has it again. To be called with the table.
    pub(super) fn set_alone(&self, mark: &Mark, is_alone: bool) {
        match (mark.is_alone.swap(is_alone, Relaxed), is_alone) {
            (false, true) => self.alone.fetch_add(1, Relaxed),
            (true, false) => self.alone.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    /// A write has ended. To be called with the table.
    pub(super) fn end_write(&self, mark: &Mark) {
        if mark.state.fetch_and(!PENDING, Relaxed) == PENDING | GONE {
            self.abandoned.fetch_sub(1, Relaxed);
        }
    }
}

/// What becomes of a record, for all that know it: so nobody has to look for its place.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) number: u64,
    /// The number of the index that has it.
    attachment: u32,
    /// The store has it, or is about to.
    is_put: AtomicBool,
    /// Whether a write goes on, and whether the place is gone.
    state: AtomicU8,
    /// It is found.
    is_committed: AtomicBool,
    /// Memory does not have it.
    is_alone: AtomicBool,
}

impl Mark {
    /// Memory of one, and of how many own it.
    pub(super) const BYTES: usize = size_of::<usize>() + size_of::<Self>();

    /// Of a record that is to be written.
    pub(super) fn new(link: &Link, number: u64) -> Self {
        Self {
            number,
            attachment: link.attachment,
            is_put: AtomicBool::new(false),
            state: AtomicU8::new(0),
            is_committed: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
        }
    }

    /// Whether it is one of this index.
    pub(super) fn is_of(&self, link: &Link) -> bool {
        self.attachment == link.attachment
    }

    /// Whether the store has it, or is about to.
    pub(super) fn is_put(&self) -> bool {
        self.is_put.load(Relaxed)
    }

    /// Whether a write goes on that nobody wants any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.state.load(Relaxed) == PENDING | GONE
    }

    pub(super) fn is_committed(&self) -> bool {
        self.is_committed.load(Acquire)
    }

    /// The store has taken it to write it.
    pub(super) fn begin_write(&self) {
        self.is_put.store(true, Relaxed);
        self.state.fetch_or(PENDING, Relaxed);
    }

    /// The store had it when it was opened.
    pub(super) fn set_found(&self) {
        self.is_put.store(true, Relaxed);
        self.set_committed();
    }

    /// The store does not have it.
    pub(super) fn set_lost(&self) {
        self.is_put.store(false, Relaxed);
    }

    pub(super) fn set_committed(&self) {
        self.is_committed.store(true, Release);
    }
}

/// An entry of the index: a record of the store. With its place the record goes.
pub(super) struct Place {
    link: Arc<Link>,
    pub(super) mark: Arc<Mark>,
    pub(super) next_token: Option<u32>,
    pub(super) is_trimmable: bool,
    pub(super) parts: Sizes,
    /// What it counts.
    pub(super) cost: u64,
}

impl Place {
    /// Bytes of the state.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, &part| sum.saturating_add(part))
    }

    /// What becomes an entry of a record, of which the note takes so many bytes in the store.
    pub(super) fn of_record(
        link: &Arc<Link>,
        mark: &Arc<Mark>,
        note: &Note,
        encoded: usize,
    ) -> Result<Box<Snapshot<Self>>, OutOfMemory> {
        let cost = link.store.cost(note.bytes(), encoded);
        let (next_token, is_trimmable) = (note.next_token, note.is_trimmable);
        let parts = sizes(&note.parts)?;
        let (link, mark) = (link.clone(), mark.clone());
        let place = Self { link, mark, next_token, is_trimmable, parts, cost };
        Snapshot::boxed(&note.entry(cost), || place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { link, mark, .. } = self;
        link.set_alone(mark, false);
        if mark.state.fetch_or(GONE, Relaxed) & PENDING != 0 {
            link.abandoned.fetch_add(1, Relaxed);
        }
        if mark.is_put.load(Relaxed) && !link.closing.load(Relaxed) {
            link.store.remove(key(mark.number));
        }
    }
}
