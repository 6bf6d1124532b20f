//! Nodes, and the arena that they live in.
use super::super::Holder;
use super::ages::Ages;
use super::label::Label;
use super::row::{Row, Rows};
use super::siblings::Siblings;
use crate::ids::GENERATION_LIMIT;
use std::sync::Arc;

/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// Node numbers are smaller than this.
const NODE_LIMIT: usize = u32::MAX as usize - 2;

/// A node of the tree: a segment of keys and pages between its parent's end and its own.
#[derive(Debug)]
pub(super) struct RadixNode {
    pub(super) label: Label,
    pub(super) children: Siblings,
    /// Logical time of the last match, or of the insert: of the segment's end.
    pub(super) last_access: u64,
    /// Of the parts before the end, where they are older.
    pub(super) ages: Ages,
    pub(super) hits: u32,
    /// NONE for a root. The next free node in the free list.
    pub(super) parent: u32,
    pub(super) generation: u32,
    /// Pages of the prefix before this segment.
    pub(super) start: u32,
    /// Locks on this node and below it.
    pub(super) locks: u32,
    /// Of those, the ones on this very node, by who took them.
    pub(super) caller_locks: u32,
    pub(super) sequence_locks: u32,
    /// Neighbours in the eviction order.
    pub(super) older: u32,
    pub(super) newer: u32,
    pub(super) queue: Queue,
    pub(super) state: State,
    /// Some key may be other than text. Never wrong when false.
    pub(super) media: bool,
    /// The node should be coalesced with its only child as soon as locks allow.
    pub(super) merge_pending: bool,
}

// A bound of the design, with what is published of a node.
const _: () = assert!(size_of::<RadixNode>() + size_of::<Row>() <= 160);

/// Where a node stands in the eviction order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// Not evictable.
    Out,
    /// In the list.
    List,
    /// In the tree of those that became evictable late.
    Late,
}

/// What a slot of the arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Node,
    Root,
}

impl RadixNode {
    fn new() -> Self {
        Self {
            label: Label::default(),
            children: Siblings::default(),
            last_access: 0,
            ages: Ages::default(),
            hits: 0,
            parent: NONE,
            generation: 1,
            start: 0,
            locks: 0,
            caller_locks: 0,
            sequence_locks: 0,
            older: NONE,
            newer: NONE,
            queue: Queue::Out,
            state: State::Free,
            media: false,
            merge_pending: false,
        }
    }

    /// Locks of such a holder on this very node.
    pub(super) fn locks_of(&mut self, holder: Holder) -> &mut u32 {
        match holder {
            Holder::Caller => &mut self.caller_locks,
            Holder::Sequence => &mut self.sequence_locks,
        }
    }

    /// Locks on this very node.
    pub(super) fn own_locks(&self) -> u32 {
        self.caller_locks + self.sequence_locks
    }

    /// Pages of the prefix up to the end of this segment.
    pub(super) fn end(&self) -> usize {
        self.start as usize + self.label.len()
    }

    /// When the first page of the segment was used last.
    pub(super) fn first_access(&self) -> u64 {
        self.ages.parts().first().map_or(self.last_access, |part| part.time)
    }

    /// A leaf that nobody protects: what eviction takes.
    pub(super) fn is_evictable(&self) -> bool {
        self.state == State::Node && self.locks == 0 && self.children.is_empty()
    }
}

/// Generations kept for a node's own renewals, of which there is at most one for each of its pages
/// that comes or goes.
const RENEWAL_LIMIT: u32 = 1 << 22;

/// Nodes of a chunk; a power of two, so that indexing one needs no check. Small, so that a small
/// index takes little and opening one is quick.
const CHUNK: usize = super::row::CHUNK;

type Chunk = Box<[RadixNode; CHUNK]>;

/// Nodes by number. Grows chunk by chunk: no node ever moves.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// Slots that were in use at some time.
    opened: usize,
    free: u32,
    len: usize,
    /// What readers see of the nodes, chunk by chunk, and as they find it.
    rows: Vec<super::row::Chunk>,
    published: Arc<Rows>,
}

impl Arena {
    pub(super) fn new(published: Arc<Rows>) -> Self {
        let (chunks, rows) = (Vec::new(), Vec::new());
        Self { chunks, opened: 0, free: NONE, len: 0, rows, published }
    }

    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * (size_of::<RadixNode>() + size_of::<Row>())
    }

    /// Makes a node. Its generation is one that no id of the slot had before.
    pub(super) fn allocate(&mut self, state: State) -> u32 {
        debug_assert_ne!(state, State::Free);
        let at = if self.free != NONE {
            let at = self.free;
            self.free = self[at].parent;
            at
        } else {
            assert!(self.opened < NODE_LIMIT, "the index has 2^32 nodes");
            if self.opened == self.chunks.len() * CHUNK {
                let nodes: Vec<_> = (0..CHUNK).map(|_| RadixNode::new()).collect();
                let chunk = nodes.into_boxed_slice().try_into();
                self.chunks.push(chunk.expect("a chunk has CHUNK nodes"));
                self.rows.push(self.published.make(self.opened as u32));
            }
            self.opened += 1;
            (self.opened - 1) as u32
        };
        self.len += 1;
        let node = &mut self[at];
        node.state = state;
        node.parent = NONE;
        at
    }

    /// Frees a node. Ids of it are stale from now on.
    pub(super) fn release(&mut self, at: u32) {
        let free = self.free;
        let node = &mut self[at];
        let generation = node.generation + 1;
        *node = RadixNode { generation, parent: free, ..RadixNode::new() };
        self.len -= 1;
        // A slot whose generations run out is never taken again: an id can't come back.
        if generation < GENERATION_LIMIT - RENEWAL_LIMIT {
            self.free = at;
        }
    }

    /// Makes ids of a node stale while the node stays.
    pub(super) fn renew(&mut self, at: u32) {
        let node = &mut self[at];
        assert!(node.generation + 1 < GENERATION_LIMIT, "a node was renewed too often");
        node.generation += 1;
    }

    pub(super) fn get(&self, at: u32) -> Option<&RadixNode> {
        Some(&self.chunks.get(at as usize / CHUNK)?[at as usize % CHUNK])
    }

    /// What readers see of a node.
    #[inline]
    pub(super) fn row(&self, at: u32) -> &Row {
        &self.rows[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// The same, and the node.
    #[inline]
    pub(super) fn with_row(&mut self, at: u32) -> (&mut RadixNode, &Row) {
        let (chunk, at) = (at as usize / CHUNK, at as usize % CHUNK);
        (&mut self.chunks[chunk][at], &self.rows[chunk][at])
    }

    /// The numbers of all nodes in use.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.opened as u32).filter(|&at| self[at].state != State::Free)
    }
}

impl std::ops::Index<u32> for Arena {
    type Output = RadixNode;

    #[inline]
    fn index(&self, at: u32) -> &RadixNode {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl std::ops::IndexMut<u32> for Arena {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut RadixNode {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}
