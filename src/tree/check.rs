//! The invariants that every tree has, each with a name.
use super::Tree;
use super::node::{Held, NONE, Queue, State, TreeNode};
use crate::error::{Message, text};
use crate::memory::{OutOfMemory, TryGrow};

/// What a walk over all nodes adds up.
#[derive(Default)]
pub struct Totals {
    pub nodes: usize,
    children: usize,
    leaves: usize,
    pages: usize,
    reclaimable: usize,
    kept: usize,
    all_pages: Vec<u32>,
}

impl Totals {
    pub fn add<H: Held>(&mut self, node: &TreeNode<H>) -> Result<(), OutOfMemory> {
        let pages = node.pages();
        self.nodes += (node.state == State::Node) as usize;
        self.children += node.child_count();
        self.leaves += node.is_leaf() as usize;
        self.pages += pages.len();
        self.reclaimable += if node.locks == 0 { pages.len() } else { 0 };
        self.kept += if node.keepers > 0 { pages.len() } else { 0 };
        self.all_pages.try_extend_from_slice(pages)
    }
}

impl<H: Held> Tree<H> {
    /// A node's place: under a live parent, whose end its segment starts at, and no more locked.
    pub fn check_place(&self, node: &TreeNode<H>) -> Result<(), Message> {
        if node.is_root() {
            return if node.parent != NONE || node.page_count() > 0 || node.queue != Queue::Out {
                Err("root_shape: a root has a parent, a segment or a place in the order".into())
            } else {
                Ok(())
            };
        }
        let parent = self.nodes.get(node.parent).filter(|parent| parent.state != State::Free);
        let Some(parent) = parent else {
            return Err("parent_alive: the parent is no node".into());
        };
        if node.root != parent.root {
            return Err("node_root: a node names another root than its parent".into());
        }
        if node.page_count() == 0 {
            return Err("segment_not_empty: a node has no pages".into());
        }
        if node.start as usize != parent.end() {
            return Err("segment_place: a segment doesn't start where the parent's ends".into());
        }
        if node.keepers > node.locks || (node.keepers > 0 && parent.keepers == 0) {
            return Err("keepers: a node is kept without a lock, or its parent isn't".into());
        }
        if node.locks > 0 && parent.locks == 0 {
            return Err("lock_reaches_root: a node is locked and its parent isn't".into());
        }
        Ok(())
    }

    /// A node's children say that they are its children, and its locks count those that are locked.
    pub fn check_children(
        &self,
        at: u32,
        children: impl Iterator<Item = u32>,
    ) -> Result<(), Message> {
        let mut below = 0;
        for child in children {
            let child = &self.nodes[child];
            if child.state != State::Node || child.parent != at {
                return Err("child_link: a child has another parent".into());
            }
            below += (child.locks > 0) as u32;
        }
        let node = &self.nodes[at];
        if node.locks < below {
            return Err("lock_sum: a node has fewer locks than locked children".into());
        }
        Ok(())
    }

    /// Roots, the eviction order, and the totals of all nodes.
    pub fn check_whole(&self, mut totals: Totals) -> Result<(), Message> {
        if totals.children != totals.nodes {
            return Err("child_link: a node is nobody's child, or several's".into());
        }
        if totals.leaves != self.leaves {
            return Err(text!("leaves: {} counted", totals.leaves));
        }
        if totals.pages != self.cached_pages {
            return Err(text!("cached_pages: {} counted", totals.pages));
        }
        if totals.kept != self.kept_pages {
            return Err(text!("kept_pages: {} counted", totals.kept));
        }
        if totals.reclaimable != self.reclaimable_pages {
            return Err(text!("reclaimable_pages: {} counted", totals.reclaimable));
        }
        totals.all_pages.sort_unstable();
        if totals.all_pages.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("page_unique: a page has two places in the index".into());
        }
        let found = |at| self.nodes.get(at).is_some_and(|node| node.state == State::Root);
        let roots = || self.nodes.numbers().filter(|&at| self.nodes[at].is_root());
        self.roots.check(roots().count(), found)?;
        for at in roots() {
            if self.nodes[at].root != at {
                return Err("node_root: a root names another root".into());
            }
            if self.nodes[at].child_count() == 0 && self.nodes[at].locks == 0 {
                return Err("namespace_empty: an empty namespace stayed".into());
            }
        }
        self.check_order()
    }
}
