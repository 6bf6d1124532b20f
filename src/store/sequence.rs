//! What is kept of a sequence, how it comes into a slot, and how it leaves it again.
use super::Depths;
use super::State;
use super::group_rows::GroupRows;
use super::tail::Tail;
use crate::error::Error;
use crate::ids::{NUMBER_LIMIT, NodeId, SequenceId};
use crate::index::{Namespace, Node};
use crate::memory::OutOfMemory;
use crate::paging::{PageCopy, RowOwner};
use crate::token::ImageSpan;

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
    /// Those of groups beside the spine.
    pub group_copies: usize,
    /// With several groups, what the lookup at begin said.
    pub depths: Depths,
}

/// A sequence.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// None: the slot has no sequence.
    pub(crate) id: Option<SequenceId>,
    /// Of the slot's last sequence: no two of a slot have the same.
    pub(crate) number: u64,
    /// It lacks pages that the call which makes it still takes. Others may be let in meanwhile, and
    /// to them there is no such sequence.
    pub(crate) incomplete: bool,
    pub(crate) namespace: Namespace,
    /// The latest clear when it began, or its first ancestor did.
    pub(crate) began: u64,
    /// The node on which its one lock is.
    pub(crate) lock: Option<Node>,
    /// The node after whose end `tail` begins; None is the root. The same as `lock`, unless that
    /// is the owner of a page to copy from.
    pub(crate) base: Option<Node>,
    /// Pages up to there.
    pub(crate) base_pages: usize,
    /// Leading pages of the row that the cache owns.
    pub(crate) shared: usize,
    /// Keys from the end of `base` on.
    pub(crate) tail: Tail,
    pub(crate) positions: usize,
    pub(crate) prompt_positions: usize,
    /// Positions whose KV is written, as far as it was said.
    pub(crate) computed: usize,
    pub(crate) cached_positions: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) inherited: Option<usize>,
    /// Private pages of its row are being filled with what a tier has: nobody computes into them.
    pub(crate) is_loading: bool,
    pub(crate) copy: Option<PageCopy>,
    /// Keys of the images that it knows, in order.
    pub(crate) images: Vec<u32>,
    /// Where those are.
    pub(crate) image_spans: Vec<ImageSpan>,
    /// Its rows in the groups beside the spine.
    pub(crate) groups: GroupRows,
}

impl Sequence {
    /// Positions that others may take over.
    pub(crate) fn computed(&self, page_size: usize) -> usize {
        // What is to be copied is not there yet.
        if self.copy.is_some() { self.shared * page_size } else { self.computed }
    }

    /// Whether it has whole pages that a fetch brought, and that could not be published for want of
    /// memory: nobody can go on from those.
    pub(crate) fn has_unpublished_pages(&self, page_size: usize) -> bool {
        self.computed / page_size > self.shared
    }

    /// Whether its state is after more than was published: tokens behind that were taken back, or
    /// nobody wants to keep them, or there was no memory to publish the rest.
    pub(crate) fn has_unpublished_state(&self) -> bool {
        self.groups.accepted.max(self.groups.slid) > self.computed
    }

    /// Leaves a slot without a sequence, with its number and the room of the tail, unless that is
    /// much: it is returned. What each sequence sets anew stays.
    fn empty(&mut self) -> Vec<u32> {
        let room = self.tail.clear();
        (self.id, self.incomplete, self.inherited) = (None, false, None);
        self.is_loading = false;
        (self.lock, self.base, self.copy) = (None, None, None);
        (self.images, self.image_spans) = (Vec::new(), Vec::new());
        room
    }

    /// Heap memory.
    pub(crate) fn bytes(&self) -> usize {
        self.tail.bytes() + self.image_bytes() + self.groups.bytes()
    }

    fn image_bytes(&self) -> usize {
        let spans = self.image_spans.capacity() * size_of::<ImageSpan>();
        self.images.capacity() * size_of::<u32>() + spans
    }

    /// Refuses what has to wait for a fetch.
    #[inline]
    pub(crate) fn check_loaded(&self) -> Result<(), Error> {
        match self.id {
            Some(id) if self.is_loading => Err(Error::Loading(id.0)),
            _ => Ok(()),
        }
    }

    /// The same where a fetch leaves things as they are until it has ended: with several groups.
    pub(crate) fn check_groups_loaded(&self) -> Result<(), Error> {
        if self.groups.is_empty() { Ok(()) } else { self.check_loaded() }
    }

    #[inline]
    pub(crate) fn tail(&self) -> &[u32] {
        self.tail.keys()
    }
}

impl State {
    pub(crate) fn sequence(&self, id: SequenceId) -> Result<&Sequence, Error> {
        self.live_sequence(id).ok_or_else(|| self.no_sequence(id))
    }

    /// The same for who has something else to do when there is none.
    #[inline]
    pub(crate) fn live_sequence(&self, id: SequenceId) -> Option<&Sequence> {
        let sequence = self.sequences.get(id.slot() as usize);
        sequence.filter(|sequence| sequence.id == Some(id) && !sequence.incomplete)
    }

    /// Why there is no such live sequence. Who ends all ids that it has must hear of those that
    /// still keep pages.
    #[cold]
    pub(crate) fn no_sequence(&self, id: SequenceId) -> Error {
        match self.table.pool.check_own() {
            Err(refused) => refused,
            Ok(()) if self.retained.get(id).is_some() => Error::RetainedSequence(id.0),
            Ok(()) => Error::StaleSequence(id.0),
        }
    }

    /// Heap memory of all rows, in all groups, and of the other lists of sequences.
    #[inline]
    pub(crate) fn row_bytes(&self) -> usize {
        self.table.row_bytes() + self.sequence_bytes
    }

    /// Makes room for more keys of the sequence in a slot, or of a new one, which the slot keeps if
    /// there will be none after all.
    #[inline(always)]
    pub(crate) fn reserve_tail(&mut self, slot: u32, keys: usize) -> Result<(), OutOfMemory> {
        let tail = &mut self.sequences[slot as usize].tail;
        let before = tail.bytes();
        let done = tail.reserve(keys);
        self.sequence_bytes += tail.bytes() - before;
        done
    }

    /// Gives a list to the row of the next sequence, if there is a slot for one and its own is
    /// shorter; returns the one that is left.
    pub(crate) fn give_row_room(&mut self, list: Vec<u32>) -> Vec<u32> {
        match self.table.next_slot() {
            Ok(slot) if !self.table.has_room_in_row(slot, list.capacity()) => {
                self.table.replace_row(slot, list)
            }
            _ => list,
        }
    }

    /// The same for its tail, if there still is a cache.
    pub(crate) fn give_tail_room(&mut self, list: Vec<u32>) -> Vec<u32> {
        let slot = self.table.next_slot().ok();
        let place = slot.and_then(|slot| self.sequences.get_mut(slot as usize));
        let Some(Sequence { tail, .. }) = place else { return list };
        if tail.has_room(list.capacity()) {
            return list;
        }
        self.sequence_bytes += list.capacity() * size_of::<u32>();
        self.sequence_bytes -= tail.bytes();
        tail.replace(list)
    }

    /// Takes the slot into which a new sequence was put, and names it.
    #[inline(always)]
    pub(crate) fn occupy(&mut self, slot: u32) -> SequenceId {
        let taken = self.table.take_slot(RowOwner::Sequence).expect("a slot is free");
        let place = &mut self.sequences[slot as usize];
        assert!(taken == slot && place.id.is_none(), "slot {slot} has no sequence");
        place.number += 1;
        if place.number == NUMBER_LIMIT {
            self.table.use_up(slot);
        }
        let id = SequenceId::new(self.tag, place.number, slot);
        (place.id, place.incomplete) = (Some(id), true);
        // The tail and the rows are counted already.
        self.sequence_bytes += place.image_bytes();
        self.live += 1;
        id
    }

    /// The node that a sequence keeps locked.
    pub fn sequence_node(&self, id: SequenceId) -> Result<Option<NodeId>, Error> {
        let (sequence, cache) = (self.sequence(id)?, self.cache()?);
        Ok(sequence.lock.map(|node| cache.index.id(node)))
    }

    /// A sequence as it stands.
    #[inline(always)]
    pub fn sequence_info(&self, id: SequenceId) -> Result<SequenceInfo, Error> {
        let sequence = self.sequence(id)?;
        let cache = self.cache()?;
        Ok(SequenceInfo {
            id,
            slot: id.slot(),
            positions: sequence.positions,
            cached_positions: sequence.cached_positions,
            inherited_positions: sequence.inherited.unwrap_or(0),
            cached_tokens: sequence.cached_tokens,
            pages: self.table.row(id.slot())?.len(),
            shared_pages: sequence.shared,
            node: sequence.lock.map(|node| cache.index.id(node)),
            copy: sequence.copy,
            group_copies: sequence.groups.copies().len(),
            depths: sequence.groups.depths,
        })
    }

    /// Lets go of all that the sequence of a slot has, and of the slot.
    pub(crate) fn end(&mut self, slot: u32) {
        if let Some(node) = self.end_locked(slot) {
            self.let_go(node);
        }
    }

    /// The same but for the lock on a node, which is for the caller to undo.
    pub(crate) fn end_locked(&mut self, slot: u32) -> Option<Node> {
        let place = &mut self.sequences[slot as usize];
        self.sequence_bytes -= place.bytes();
        if let Some(copy) = place.copy {
            self.table.pool.end_loan(copy.source, slot);
        }
        if !place.groups.is_empty() {
            let rows = std::mem::take(&mut place.groups);
            self.end_groups(&rows, slot, false);
        }
        let place = &mut self.sequences[slot as usize];
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.images.release(&place.images);
        self.table.release_slot(slot, place.shared);
        let lock = place.lock;
        let room = place.empty();
        self.sequence_bytes += place.tail.bytes(); // of all else nothing is left
        self.housekeeping.discard(room);
        self.live -= 1;
        lock
    }

    /// Takes the sequence of a slot out of it, but for a short tail, whose room the slot keeps.
    pub(crate) fn vacate(&mut self, slot: u32) -> Sequence {
        let place = &mut self.sequences[slot as usize];
        self.sequence_bytes -= place.bytes();
        let empty = Sequence { number: place.number, ..Sequence::default() };
        let mut ended = std::mem::replace(place, empty);
        if !ended.tail.is_long() {
            place.tail = std::mem::take(&mut ended.tail);
        }
        let room = place.empty();
        self.sequence_bytes += place.bytes();
        self.housekeeping.discard(room);
        self.live -= 1;
        ended
    }
}
