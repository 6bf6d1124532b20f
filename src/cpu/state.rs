//! What rows have seen of some of their keys, and how states of neighbouring keys become one.
use super::scratch::Numbers;
use super::simd::{Simd, Vectorized, exp2_one};
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

/// For each row of a tile: a logit to base 2, little below the largest one or that; the sum of the
/// weights relative to it; the sum of weights times values. A row that has seen nothing has -inf, 0
/// and zeros.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub most: *mut f32,
    pub sum: *mut f32,
    pub out: *mut f32,
    pub rows: usize,
}

impl State {
    /// Numbers of memory that a state takes: a multiple of a cache line.
    pub(super) fn numbers(rows: usize, head_dim: usize) -> usize {
        2 * rows.next_multiple_of(16) + rows * head_dim
    }

    /// A state in memory of [`State::numbers`].
    pub(super) fn at(memory: *mut f32, rows: usize) -> Self {
        let padded = rows.next_multiple_of(16);
        let (sum, out) = (memory.wrapping_add(padded), memory.wrapping_add(2 * padded));
        Self { most: memory, sum, out, rows }
    }

    /// Some of its rows.
    pub(super) fn part(self, rows: Range<usize>, head_dim: usize) -> Self {
        Self {
            most: self.most.wrapping_add(rows.start),
            sum: self.sum.wrapping_add(rows.start),
            out: self.out.wrapping_add(rows.start * head_dim),
            rows: rows.len(),
        }
    }

    /// Nothing seen yet.
    ///
    /// # Safety
    /// Its memory is writable.
    pub(super) unsafe fn clear(self, head_dim: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            for row in 0..self.rows {
                *self.most.add(row) = f32::NEG_INFINITY;
            }
            self.sum.write_bytes(0, self.rows);
            self.out.write_bytes(0, self.rows * head_dim);
        }
    }
}

/// Takes what rows saw of later keys into what they saw of earlier ones.
struct Absorb {
    before: State,
    after: State,
    head_dim: usize,
}

impl Absorb {
    /// # Safety
    /// The memory of both is writable, and not the same; both have the same rows.
    unsafe fn new(before: State, after: State, head_dim: usize) -> Self {
        debug_assert_eq!(before.rows, after.rows);
        Self { before, after, head_dim }
    }
}

impl Vectorized for Absorb {
    type Result = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { before, after, head_dim } = self;
        for row in 0..before.rows {
            // SAFETY: new()'s contract.
            unsafe {
                let (most, sum) = (&mut *before.most.add(row), &mut *before.sum.add(row));
                let (most_after, sum_after) = (*after.most.add(row), *after.sum.add(row));
                let (out, from) = (before.out.add(row * head_dim), after.out.add(row * head_dim));
                // Whoever saw nothing but NaN has -inf, too, and a sum that is NaN.
                if most_after == f32::NEG_INFINITY && sum_after == 0.0 {
                    continue;
                }
                if *most == f32::NEG_INFINITY && *sum == 0.0 {
                    (*most, *sum) = (most_after, sum_after);
                    out.copy_from_nonoverlapping(from, head_dim);
                    continue;
                }
                let larger = if *most > most_after { *most } else { most_after };
                let a = exp2_one(simd, *most - larger);
                let b = exp2_one(simd, most_after - larger);
                (*most, *sum) = (larger, *sum * a + sum_after * b);
                let (a, b) = (simd.splat(a), simd.splat(b));
                for at in (0..head_dim).step_by(S::LANES) {
                    let scaled = simd.mul(simd.load(out.add(at)), a);
                    simd.store(out.add(at), simd.fma(simd.load(from.add(at)), b, scaled));
                }
            }
        }
    }
}

/// Levels of the largest tree: no two states that wait for a neighbour are of the same one.
pub(super) const LEVELS: usize = usize::BITS as usize + 1;

/// Merges states as a binary tree over numbered leaves says, whichever of them come: a row that saw
/// nothing of a leaf is left as it is there. So its result does not depend on what the other rows
/// of its tile see.
#[derive(Default)]
pub(super) struct Tree {
    /// Memory of the states, by their place on the stack.
    memory: Vec<Numbers>,
    /// States that wait for their neighbour, from left to right.
    stack: Vec<(Node, State)>,
}

/// A node: leaves `index << level` to `(index + 1) << level`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Node {
    level: u32,
    index: usize,
}

// SAFETY: the pointers of the stack are used only while the tree's owner works.
unsafe impl Send for Tree {}

impl Tree {
    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.stack.clear();
    }

    /// Makes room for states of so many rows, by how many wait for a neighbour already.
    pub(super) fn reserve(&mut self, rows: &[usize], head_dim: usize) -> Result<(), OutOfMemory> {
        self.stack.clear();
        self.stack.try_reserve(LEVELS)?;
        for (depth, &rows) in rows.iter().enumerate() {
            if depth == self.memory.len() {
                self.memory.try_push(Numbers::default())?;
            }
            self.memory[depth].reserve(State::numbers(rows, head_dim))?;
        }
        Ok(())
    }

    /// Memory for the state that is pushed next.
    pub(super) fn next(&mut self, rows: usize, head_dim: usize) -> State {
        // States in memory of somebody else's have a place, too.
        let memory = &mut self.memory[self.stack.len()];
        State::at(memory.start(State::numbers(rows, head_dim)), rows)
    }

    /// Says that no leaf comes any more before a node, which is the next: what waited for those is
    /// complete without. To be called before memory for its state is asked for.
    ///
    /// # Safety
    /// As for [`Tree::push`].
    pub(super) unsafe fn skip_to<S: Simd>(
        &mut self,
        simd: S,
        level: u32,
        index: usize,
        head_dim: usize,
    ) {
        let leaf = index << level;
        while let Some(&(node, state)) = self.stack.last()
            && leaf >> node.level > node.index + 1
        {
            self.stack.pop();
            // SAFETY: the caller's contract.
            unsafe { self.push(simd, node.level + 1, node.index / 2, state, head_dim) };
        }
    }

    /// Adds the state of a node to the right of all others, and merges those that are complete.
    ///
    /// # Safety
    /// The states' memory is writable until the tree is cleared; all have the same rows.
    pub(super) unsafe fn push<S: Simd>(
        &mut self,
        simd: S,
        level: u32,
        index: usize,
        state: State,
        head_dim: usize,
    ) {
        let mut node = Node { level, index };
        let mut state = state;
        while node.index % 2 == 1 {
            let left = Node { index: node.index - 1, ..node };
            if let Some(&(neighbour, before)) = self.stack.last()
                && neighbour == left
            {
                // SAFETY: the caller's contract.
                simd.run(unsafe { Absorb::new(before, state, head_dim) });
                state = before;
                self.stack.pop();
            }
            node = Node { level: node.level + 1, index: node.index / 2 };
        }
        self.stack.push((node, state));
    }

    /// Merges what is left, as if the leaves to the right were there and nobody saw them.
    ///
    /// # Safety
    /// As for [`Tree::push`], of which there was at least one.
    pub(super) unsafe fn finish<S: Simd>(&mut self, simd: S, head_dim: usize) -> State {
        let (_, mut state) = self.stack.pop().expect("a state was pushed");
        while let Some((_, before)) = self.stack.pop() {
            // SAFETY: the caller's contract.
            simd.run(unsafe { Absorb::new(before, state, head_dim) });
            state = before;
        }
        state
    }
}
