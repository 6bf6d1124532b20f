//! Sequences: a prompt on its way through begin, publish and release, with its row and its lock.
//!
//! Everything lives in one [`State`] behind one lock, in [`Shared`]. A sequence's row is always
//! `shared pages of the cache | private pages`, and may be too short for the sequence: pages for a
//! prompt can come chunk by chunk. Its keys beyond the node that it locks wait in its `tail` until
//! they are published.
//!
//! Besides a lookup, a sequence can come from another one: `fork` and `continue` lock the parent's
//! node, copy the shared part of its row and its tail, and are told to copy the page that it
//! computed in part. Only pages of the cache are ever in two rows, so a parent shares what it has
//! published. `retain` is a release that keeps lock, row and tail for such children.
#![forbid(unsafe_code)]

mod append;
mod begin;
mod callers;
mod clear;
mod compute;
mod inherit;
mod journal;
mod namespaces;
mod publish;
mod release;
mod retained;
mod early;
mod shared;
mod state;
mod turn;

pub use begin::Room;
pub use clear::{Cleared, Scope};
pub use compute::{ComputedRow, RowPages};
pub use inherit::Continuation;
pub use journal::{ContentsRead, JournalRead};
pub use publish::Published;
pub use shared::Shared;
pub use state::{CacheStats, PageTableStats, State};
pub use turn::Turn;

use crate::cache::Namespace;
use crate::error::Error;
use crate::ids::{NUMBER_LIMIT, NodeId, SequenceId};
use crate::index::Node;
use crate::memory::OutOfMemory;
use crate::paging::{PageTable, RowOwner};
use crate::token::ImageSpan;

/// Positions to copy from a page of the cache or of a parent to a private one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCopy {
    /// From.
    pub source: u32,
    /// To.
    pub target: u32,
    /// How many, from the page's beginning.
    pub positions: usize,
}

/// A sequence as its owner sees it.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInfo {
    /// The sequence.
    pub id: SequenceId,
    /// Its row.
    pub slot: u32,
    /// Positions of its tokens.
    pub positions: usize,
    /// Positions reused at begin.
    pub cached_positions: usize,
    /// Of those, the ones inherited from a parent.
    pub inherited_positions: usize,
    /// Tokens reused at begin.
    pub cached_tokens: usize,
    /// Pages of the row.
    pub pages: usize,
    /// Leading pages of the row that the cache owns.
    pub shared_pages: usize,
    /// The node that it locks.
    pub node: Option<NodeId>,
    /// The copy that is not confirmed yet.
    pub copy: Option<PageCopy>,
}

/// A sequence.
#[derive(Debug, Default)]
struct Sequence {
    /// None: the slot has no sequence.
    id: Option<SequenceId>,
    /// Of the slot's last sequence: no two of a slot have the same.
    number: u64,
    /// It lacks pages that the call which makes it still takes. Others may be let in meanwhile, and
    /// to them there is no such sequence.
    incomplete: bool,
    namespace: Namespace,
    /// The latest clear when it began, or its first ancestor did.
    began: u64,
    /// The node on which its one lock is.
    lock: Option<Node>,
    /// The node after whose end `tail` begins; None is the root. The same as `lock`, unless that
    /// is the owner of a page to copy from.
    base: Option<Node>,
    /// Pages up to there.
    base_pages: usize,
    /// Leading pages of the row that the cache owns.
    shared: usize,
    /// Keys from the end of `base` on, those before `tail_start` left out.
    tail: Vec<u32>,
    tail_start: usize,
    positions: usize,
    prompt_positions: usize,
    /// Positions whose KV is written, as far as it was said.
    computed: usize,
    cached_positions: usize,
    cached_tokens: usize,
    inherited: bool,
    copy: Option<PageCopy>,
    /// Keys of the images that it knows, in order.
    images: Vec<u32>,
    /// Where those are.
    image_spans: Vec<ImageSpan>,
}

impl Sequence {
    /// Positions that others may take over.
    fn computed(&self, page_size: usize) -> usize {
        // What is to be copied is not there yet.
        if self.copy.is_some() { self.shared * page_size } else { self.computed }
    }

    /// Heap memory.
    fn bytes(&self) -> usize {
        let keys = self.tail.capacity() + self.images.capacity();
        keys * size_of::<u32>() + self.image_spans.capacity() * size_of::<ImageSpan>()
    }

    fn tail(&self) -> &[u32] {
        &self.tail[self.tail_start..]
    }

    /// Forgets the first keys of the tail; moves the rest only when that halves the room.
    fn drop_tail(&mut self, count: usize) {
        self.tail_start += count;
        if self.tail_start * 2 >= self.tail.len() {
            self.tail.drain(..self.tail_start);
            self.tail_start = 0;
        }
    }
}

/// Room that a slot keeps for the tail of its next sequence.
const TAIL_KEPT: usize = 4096;

/// Why there is no such sequence.
#[cold]
fn no_sequence(table: &PageTable, id: SequenceId) -> Error {
    table.pool.check_own().err().unwrap_or(Error::StaleSequence(id.0))
}

impl State {
    fn sequence(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let sequence = self.sequences.get(id.slot() as usize);
        let found = sequence.filter(|sequence| sequence.id == Some(id) && !sequence.incomplete);
        found.ok_or_else(|| no_sequence(&self.table, id))
    }

    /// Makes room for the keys of a new sequence in a free slot, which keeps it if there will be
    /// none after all.
    fn reserve_tail(&mut self, slot: u32, keys: usize) -> Result<(), OutOfMemory> {
        let tail = &mut self.sequences[slot as usize].tail;
        let before = tail.capacity();
        tail.try_reserve(keys)?;
        self.sequence_bytes += (tail.capacity() - before) * size_of::<u32>();
        Ok(())
    }

    /// Takes the slot into which a new sequence was put, and names it.
    fn occupy(&mut self, slot: u32) -> SequenceId {
        let taken = self.table.take_slot(RowOwner::Sequence).expect("a slot is free");
        let place = &mut self.sequences[slot as usize];
        assert!(taken == slot && place.id.is_none(), "slot {slot} has no sequence");
        place.number += 1;
        if place.number == NUMBER_LIMIT {
            self.table.use_up(slot);
        }
        let id = SequenceId::new(self.tag, place.number, slot);
        (place.id, place.incomplete) = (Some(id), true);
        // The tail is counted already.
        self.sequence_bytes += place.bytes() - place.tail.capacity() * size_of::<u32>();
        self.live += 1;
        id
    }

    /// A sequence as it stands.
    pub fn sequence_info(&self, id: SequenceId) -> Result<SequenceInfo, Error> {
        let sequence = self.sequence(id)?;
        let cache = self.cache()?;
        Ok(SequenceInfo {
            id,
            slot: id.slot(),
            positions: sequence.positions,
            cached_positions: sequence.cached_positions,
            inherited_positions: if sequence.inherited { sequence.cached_positions } else { 0 },
            cached_tokens: sequence.cached_tokens,
            pages: self.table.row(id.slot())?.len(),
            shared_pages: sequence.shared,
            node: sequence.lock.map(|node| cache.index.id(node)),
            copy: sequence.copy,
        })
    }
}
