//! Changing the tree: who hangs where, splits, and leaves that go.
//!
//! What a change needs is made first, all of it; from then on nothing can fail.
use super::RadixIndex;
use super::ages::Ages;
use super::node::end_of;
use super::run::{self, Sibling};
use super::siblings::{Room, Siblings};
use crate::grace::Garbage;
use crate::memory::OutOfMemory;
use crate::tree::{Label, NONE, Place, State};

/// What a split needs.
pub(super) struct Split {
    /// The node that is cut, and after how many of its pages.
    at: u32,
    count: usize,
    /// A copy of the smaller part.
    label: Label,
    ages: Ages,
    /// When the last page of the front was used last.
    time: u64,
    /// The hash under which the deep end is found.
    pub(super) hash: u32,
}

impl RadixIndex {
    /// Makes a change to what a node holds and keeps account of its memory.
    pub(super) fn with_bytes<R>(&mut self, at: u32, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.tree.nodes[at].held.bytes();
        let done = change(self);
        self.segment_bytes = self.segment_bytes + self.tree.nodes[at].held.bytes() - before;
        done
    }

    pub(super) fn first_page(&self, at: u32) -> &[u32] {
        self.tree.nodes[at].label.first_page_keys(self.page_size)
    }

    /// Changes a node's children, for readers too.
    pub(super) fn edit_children(
        &mut self,
        parent: u32,
        change: impl FnOnce(&mut Siblings, &mut Garbage),
    ) {
        let children = &mut self.tree.nodes[parent].children;
        let before = children.bytes();
        change(children, &mut self.garbage);
        children.publish(&self.rows[parent], &mut self.garbage);
        self.segment_bytes = self.segment_bytes + children.bytes() - before;
    }

    /// Where a node with this first page stands, or is to stand, among the children of a node.
    pub(super) fn place(&self, parent: u32, child: u32, page: &[u32]) -> run::Place {
        let before = |other| other != child && self.first_page(other) < page;
        self.tree.nodes[parent].children.place(page[0], before)
    }

    /// Hangs a node with its label under a parent, whose children are announced to change.
    pub(super) fn attach(
        &mut self,
        parent: u32,
        child: u32,
        (place, room): (run::Place, Room),
        entry: Place,
    ) {
        self.tree.nodes[child].parent = parent;
        self.tree.nodes[parent].waiting = false;
        let new = Sibling { first_key: self.first_page(child)[0], node: child };
        self.edit_children(parent, |children, garbage| children.insert(place, new, room, garbage));
        self.table.put(entry, child, self.tree.nodes[child].label.len());
    }

    /// Takes a node, still with its label, away from its parent.
    fn detach(&mut self, child: u32) {
        let parent = self.tree.nodes[child].parent;
        self.tree.nodes[parent].waiting = false;
        let page = self.first_page(child);
        let (hash, place) = (self.child_hash(parent, page), self.place(parent, child, page));
        self.table.remove(hash, child);
        self.edit_children(parent, |children, garbage| children.remove(place, garbage));
    }

    /// Puts a node, which gets the same first page and so many in all, in the place of another
    /// under its parent.
    pub(super) fn substitute(
        &mut self,
        [old, new]: [u32; 2],
        pages: usize,
        hash: u32,
        place: run::Place,
    ) {
        let parent = self.tree.nodes[old].parent;
        self.tree.nodes[new].parent = parent;
        self.table.replace(hash, old, new, pages);
        self.edit_children(parent, |children, _| children.replace(place, new));
    }

    /// Cuts a node after `count` of its pages. The new node is the front; the old one, with its id,
    /// keeps the deep end. Everything else goes to both.
    pub(super) fn split(&mut self, at: u32, count: usize) -> Result<u32, OutOfMemory> {
        self.reserve_nodes(1)?;
        let split = self.prepare_split(at, count)?;
        let [entry] = self.table.places([split.hash])?;
        Ok(self.carry_out_split(split, entry))
    }

    /// Cuts a node before and after one of its pages, given by its place in the prefix, where it
    /// goes on there. Returns the node of that page.
    pub(super) fn isolate(&mut self, at: u32, page: usize) -> Result<u32, OutOfMemory> {
        let node = &self.tree.nodes[at];
        let before = page - node.start as usize;
        match (before > 0, page + 1 < node.end()) {
            (false, false) => Ok(at),
            (false, true) => self.split(at, 1),
            (true, false) => self.split(at, before).map(|_| at),
            (true, true) => self.split_twice(at, before),
        }
    }

    /// Cuts a node after `count` of its pages and again after the page that follows, both or
    /// neither; returns the node of that page.
    fn split_twice(&mut self, at: u32, count: usize) -> Result<u32, OutOfMemory> {
        self.reserve_nodes(2)?;
        let first = self.prepare_split(at, count)?;
        let (node, label) = (&self.tree.nodes[at], &self.tree.nodes[at].label);
        let (keys, pages) = (label.keys(self.page_size), label.pages());
        let keys = keys[count * self.page_size..].split_at(self.page_size);
        let after = &keys.1[..self.page_size];
        let second = Split {
            at,
            count: 1,
            label: Label::new(self.page_size, keys.0, &pages[count..=count])?,
            // A page has one part.
            ages: Ages::default(),
            time: node.ages.time_of(count, end_of(node)),
            hash: self.child_hash(self.tree.nodes.next_but_one(), after),
        };
        let [place, another] = self.table.places([first.hash, second.hash])?;
        self.carry_out_split(first, place);
        Ok(self.carry_out_split(second, another))
    }

    pub(super) fn prepare_split(&self, at: u32, count: usize) -> Result<Split, OutOfMemory> {
        let node = &self.tree.nodes[at];
        let label = node.label.copy_for_split(self.page_size, count)?;
        let (end, ages) = (end_of(node), node.ages.front(count, end_of(node))?);
        let page = &node.label.keys(self.page_size)[count * self.page_size..][..self.page_size];
        let hash = self.child_hash(self.tree.nodes.next(), page);
        Ok(Split { at, count, label, ages, time: node.ages.time_of(count - 1, end), hash })
    }

    pub(super) fn carry_out_split(&mut self, split: Split, entry: Place) -> u32 {
        let parent = self.tree.nodes[split.at].parent;
        self.changing_children(parent, |index| index.split_below(split, entry))
    }

    fn split_below(&mut self, split: Split, entry: Place) -> u32 {
        let (at, count, page_size) = (split.at, split.count, self.page_size);
        let front = self.tree.nodes.allocate(State::Node);
        let parent = self.tree.nodes[at].parent;
        let page = self.first_page(at);
        let (hash, place) = (self.child_hash(parent, page), self.place(parent, at, page));
        self.substitute([at, front], count, hash, place);
        let end = end_of(&self.tree.nodes[at]);
        let label = self.with_bytes(at, |index| {
            let held = &mut index.tree.nodes[at].held;
            held.ages.drop_front(count, end);
            held.label.split_front(page_size, count, split.label)
        });
        self.segment_bytes += label.bytes() + split.ages.bytes();
        let old = &mut self.tree.nodes[at];
        let (start, locks, hits, media) = (old.start, old.locks, old.hits, old.media);
        // Each counts as the one child of the front.
        let (locks, keepers) = (locks.min(1), old.keepers.min(1));
        let root = old.root;
        old.start += count as u32;
        let new = &mut self.tree.nodes[front];
        (new.root, new.keepers) = (root, keepers);
        (new.start, new.locks, new.last_access, new.hits, new.media) =
            (start, locks, split.time, hits, media);
        (new.label, new.ages) = (label, split.ages);
        self.changing_children(front, |index| {
            index.attach(front, at, ((0, 0), Room::There), entry);
            index.publish(at);
        });
        self.publish(front);
        front
    }

    /// Frees a leaf that is out of the tree's lists, and gives the parent its turn.
    pub(super) fn remove_leaf(&mut self, leaf: u32) {
        let node = &self.tree.nodes[leaf];
        let parent = node.parent;
        debug_assert_ne!(parent, NONE);
        self.segment_bytes -= node.held.bytes();
        self.changing_children(parent, |index| index.detach(leaf));
        self.release(leaf);
        self.tree.miss_leaf(parent);
        let above = &self.tree.nodes[parent];
        if above.is_root() {
            self.drop_empty_root(parent);
        } else if above.is_evictable() {
            self.tree.enlist(parent);
        } else {
            self.coalesce(parent);
        }
    }
}
