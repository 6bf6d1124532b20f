//! The nodes of a tree by number, in chunks that never move.
use super::NodeIds;
use super::child_table::NODE_LIMIT;
use super::node::{Held, NONE, State, TreeNode};
use crate::ids::GENERATION_LIMIT;
use crate::memory::treap::{self, Ranks, Side};
use crate::memory::{IndexBox, OutOfMemory, TryGrow};

/// Nodes of a chunk; a power of two, so that indexing one needs no check. Small, so that a small
/// index takes little and opening one is quick.
const CHUNK: usize = 64;

type Chunk<H> = IndexBox<[TreeNode<H>; CHUNK]>;

/// Nodes by number. Grows chunk by chunk: no node ever moves.
#[derive(Debug)]
pub struct Arena<H> {
    chunks: Vec<Chunk<H>>,
    /// Places that were in use at some time.
    opened: usize,
    /// Of those, the ones that can be used again: the first, and how many.
    free: u32,
    free_count: usize,
    len: usize,
    /// Of nodes that wait in a treap.
    ranks: Ranks,
    /// The generation of a new place, the highest one of all, and what all are below.
    first_generation: u32,
    last_generation: u32,
    generation_limit: u32,
    /// Pages of a node at most, and the generations that a place has left at least when a node
    /// takes it: one for each time that the node could be trimmed by a page. So a trim, which can't
    /// fail, always finds one.
    page_limit: u32,
}

impl<H: Held> Arena<H> {
    pub(super) fn new(page_size: usize, ids: NodeIds) -> Self {
        let NodeIds { first_generation, limits, .. } = ids;
        let generation_limit =
            first_generation.saturating_add(limits.generations).min(GENERATION_LIMIT);
        let left = generation_limit.saturating_sub(first_generation);
        Self {
            chunks: Vec::new(),
            opened: 0,
            free: NONE,
            free_count: 0,
            len: 0,
            ranks: Ranks::default(),
            first_generation,
            last_generation: first_generation,
            generation_limit,
            page_limit: limits.segment_pages(page_size).min(left / 2),
        }
    }

    /// Nodes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<[TreeNode<H>; CHUNK]>()
            + self.chunks.capacity() * size_of::<Chunk<H>>()
    }

    /// Places that were in use at some time: all numbers are below this.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Places that there is room for.
    pub fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Has room for the list of the chunks of so many nodes, so that it need not move while it
    /// grows: that takes the longer, the more there are.
    pub fn expect(&mut self, count: usize) -> Result<(), OutOfMemory> {
        let chunks = count.min(NODE_LIMIT as usize).div_ceil(CHUNK);
        Ok(self.chunks.try_reserve_exact(chunks.saturating_sub(self.chunks.len()))?)
    }

    /// Nodes that can be made.
    #[inline]
    fn room(&self) -> usize {
        self.free_count + self.capacity() - self.opened
    }

    /// Makes room for so many nodes more.
    #[inline]
    pub fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        if self.room() >= count { Ok(()) } else { self.grow(count) }
    }

    #[cold]
    fn grow(&mut self, count: usize) -> Result<(), OutOfMemory> {
        while self.room() < count {
            if self.capacity() + CHUNK > NODE_LIMIT as usize {
                return Err(OutOfMemory);
            }
            self.chunks.try_reserve(1)?;
            let generation = self.first_generation;
            let node = |_| TreeNode { generation, ..TreeNode::new() };
            let chunk = IndexBox::try_new(|| std::array::from_fn(node))?;
            self.chunks.try_push(chunk)?;
        }
        Ok(())
    }

    /// The place that the next node gets.
    pub fn next(&self) -> u32 {
        if self.free == NONE { self.opened as u32 } else { self.free }
    }

    /// The place that the node after that gets.
    pub fn next_but_one(&self) -> u32 {
        let opened = self.opened as u32;
        match self.free {
            NONE => opened + 1,
            free if self[free].parent == NONE => opened,
            free => self[free].parent,
        }
    }

    /// Makes a node, for which room was made. Its generation is one that no id of the place had
    /// before.
    pub fn allocate(&mut self, state: State) -> u32 {
        debug_assert_ne!(state, State::Free);
        let at = self.next();
        if self.free != NONE {
            self.free = self[at].parent;
            self.free_count -= 1;
        } else {
            self.opened += 1;
        }
        self.len += 1;
        let node = &mut self[at];
        node.state = state;
        node.parent = NONE;
        at
    }

    /// Frees a node. Ids of it are stale from now on.
    pub fn release(&mut self, at: u32) {
        let generation = self[at].generation + 1;
        self.last_generation = self.last_generation.max(generation);
        // A place whose generations run out is never taken again: an id can't come back.
        self.free(at, generation, self.is_enough(generation, self.page_limit as usize));
    }

    /// Frees a node whose id nobody was given, the last that was made of those that there are: as
    /// if it had never been made.
    pub fn take_back(&mut self, at: u32) {
        self.free(at, self[at].generation, true);
    }

    fn free(&mut self, at: u32, generation: u32, again: bool) {
        let parent = self.free;
        self[at] = TreeNode { generation, parent, ..TreeNode::new() };
        self.len -= 1;
        if again {
            self.free = at;
            self.free_count += 1;
        }
    }

    /// Pages that a node may have.
    pub fn page_limit(&self) -> usize {
        self.page_limit as usize
    }

    /// Whether a node of so many pages can be renewed for each of them that goes.
    fn is_enough(&self, generation: u32, pages: usize) -> bool {
        generation as usize + pages <= self.generation_limit as usize
    }

    /// Whether the generations of a node's place would do if it had so many pages.
    pub fn may_have(&self, at: u32, pages: usize) -> bool {
        pages <= self.page_limit() && self.is_enough(self[at].generation, pages)
    }

    /// The same after a renewal.
    pub fn may_renew(&self, at: u32, pages: usize) -> bool {
        self.is_enough(self[at].generation + 1, pages)
    }

    /// Makes ids of a node stale while the node stays. There are generations for that, since it has
    /// fewer pages afterwards, or `may_renew` said so.
    pub fn renew(&mut self, at: u32) {
        let generation = self[at].generation + 1;
        debug_assert!(generation < self.generation_limit);
        self.last_generation = self.last_generation.max(generation);
        self[at].generation = generation;
    }

    /// Moves a node to a place that was allocated for it. The old place has an empty node then,
    /// which is to be released.
    pub fn relocate(&mut self, from: u32, to: u32) {
        let (old, new) = (self[from].generation, self[to].generation);
        let (state, parent) = (self[from].state, self[from].parent);
        let empty = TreeNode { generation: old, state, parent, ..TreeNode::new() };
        let moved = std::mem::replace(&mut self[from], empty);
        self[to] = TreeNode { generation: new, ..moved };
    }

    /// No id that was given out has a higher generation.
    pub fn last_generation(&self) -> u32 {
        self.last_generation
    }

    pub fn get(&self, at: u32) -> Option<&TreeNode<H>> {
        Some(&self.chunks.get(at as usize / CHUNK)?[at as usize % CHUNK])
    }

    /// All of them, for who changes several: where the chunks are is looked up once.
    #[inline(always)]
    pub(super) fn all(&mut self) -> Places<'_, H> {
        Places(&mut self.chunks)
    }

    /// The numbers of all nodes in use.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.opened as u32).filter(|&at| self[at].state != State::Free)
    }
}

/// The nodes of an arena.
pub(super) struct Places<'a, H>(&'a mut [Chunk<H>]);

impl<H> Places<'_, H> {
    #[inline(always)]
    pub(super) fn at(&mut self, at: u32) -> &mut TreeNode<H> {
        &mut self.0[at as usize / CHUNK][at as usize % CHUNK]
    }
}

/// Nodes that wait in the order of their last use, through the links of the eviction order.
impl<H: Held> treap::Nodes for Arena<H> {
    fn link(&self, at: u32, side: Side) -> u32 {
        match side {
            Side::Before => self[at].older,
            Side::After => self[at].newer,
        }
    }

    fn set_link(&mut self, at: u32, side: Side, to: u32) {
        match side {
            Side::Before => self[at].older = to,
            Side::After => self[at].newer = to,
        }
    }

    fn is_before(&self, left: u32, right: u32) -> bool {
        self[left].last_access < self[right].last_access
    }

    fn rank(&self, at: u32) -> u64 {
        self.ranks.of(at)
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
