//! The nodes of a tree by number, in chunks that never move.
use super::node::{Held, NONE, State, TreeNode};
use crate::ids::GENERATION_LIMIT;

/// Node numbers are smaller than this.
const NODE_LIMIT: usize = u32::MAX as usize - 2;

/// Generations kept for a node's own renewals, of which there is at most one for each of its pages
/// that comes or goes.
const RENEWAL_LIMIT: u32 = 1 << 22;

/// Nodes of a chunk; a power of two, so that indexing one needs no check. Small, so that a small
/// index takes little and opening one is quick.
const CHUNK: usize = 64;

type Chunk<H> = Box<[TreeNode<H>; CHUNK]>;

/// Nodes by number. Grows chunk by chunk: no node ever moves.
#[derive(Debug)]
pub struct Arena<H> {
    chunks: Vec<Chunk<H>>,
    /// Places that were in use at some time.
    opened: usize,
    free: u32,
    len: usize,
}

impl<H: Held> Arena<H> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), opened: 0, free: NONE, len: 0 }
    }

    /// Nodes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<[TreeNode<H>; CHUNK]>()
    }

    /// Makes a node. Its generation is one that no id of the place had before.
    pub fn allocate(&mut self, state: State) -> u32 {
        debug_assert_ne!(state, State::Free);
        let at = if self.free != NONE {
            let at = self.free;
            self.free = self[at].parent;
            at
        } else {
            assert!(self.opened < NODE_LIMIT, "the index has 2^32 nodes");
            if self.opened == self.chunks.len() * CHUNK {
                let nodes: Vec<_> = (0..CHUNK).map(|_| TreeNode::new()).collect();
                let chunk = nodes.into_boxed_slice().try_into();
                self.chunks.push(chunk.expect("a chunk has CHUNK nodes"));
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
    pub fn release(&mut self, at: u32) {
        let free = self.free;
        let node = &mut self[at];
        let generation = node.generation + 1;
        *node = TreeNode { generation, parent: free, ..TreeNode::new() };
        self.len -= 1;
        // A place whose generations run out is never taken again: an id can't come back.
        if generation < GENERATION_LIMIT - RENEWAL_LIMIT {
            self.free = at;
        }
    }

    /// Makes ids of a node stale while the node stays.
    pub fn renew(&mut self, at: u32) {
        let node = &mut self[at];
        assert!(node.generation + 1 < GENERATION_LIMIT, "a node was renewed too often");
        node.generation += 1;
    }

    pub fn get(&self, at: u32) -> Option<&TreeNode<H>> {
        Some(&self.chunks.get(at as usize / CHUNK)?[at as usize % CHUNK])
    }

    /// The numbers of all nodes in use.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.opened as u32).filter(|&at| self[at].state != State::Free)
    }
}

impl<H> std::ops::Index<u32> for Arena<H> {
    type Output = TreeNode<H>;

    #[inline]
    fn index(&self, at: u32) -> &TreeNode<H> {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl<H> std::ops::IndexMut<u32> for Arena<H> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut TreeNode<H> {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}
