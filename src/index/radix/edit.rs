//! Changing the tree: split, merge, insert, extend.
use super::super::tree::{NONE, State};
use super::super::{Inserted, Node};
use super::RadixIndex;
use super::label::Label;
use super::node::first_access;
use super::siblings::{Sibling, Siblings};
use crate::grace::Garbage;
use crate::token::all_text;

impl RadixIndex {
    /// Makes a change to a node's label or children and keeps account of their memory.
    pub(super) fn with_bytes<R>(&mut self, at: u32, change: impl FnOnce(&mut Self) -> R) -> R {
        let bytes = |index: &Self| {
            let node = &index.tree.nodes[at];
            node.label.bytes() + node.children.bytes()
        };
        let before = bytes(self);
        let done = change(self);
        self.segment_bytes = self.segment_bytes + bytes(self) - before;
        done
    }

    fn first_page(&self, at: u32) -> &[u32] {
        self.tree.nodes[at].label.first_page_keys(self.page_size)
    }

    /// Changes a node's children, for readers too.
    fn edit_children(&mut self, parent: u32, change: impl FnOnce(&mut Siblings, &mut Garbage)) {
        let children = &mut self.tree.nodes[parent].children;
        let before = children.bytes();
        change(children, &mut self.garbage);
        children.publish(&self.rows[parent], &mut self.garbage);
        self.segment_bytes = self.segment_bytes + children.bytes() - before;
    }

    /// Where a node stands, or is to stand, among the children of a node.
    fn place(&self, parent: u32, child: u32) -> (usize, usize) {
        let page = self.first_page(child);
        let before = |other| other != child && self.first_page(other) < page;
        self.tree.nodes[parent].children.place(page[0], before)
    }

    /// Hangs a node with its label under a parent, whose children are announced to change.
    fn attach(&mut self, parent: u32, child: u32) {
        self.tree.nodes[child].parent = parent;
        self.tree.nodes[parent].waiting = false;
        let place = self.place(parent, child);
        let new = Sibling { first_key: self.first_page(child)[0], node: child };
        self.edit_children(parent, |children, garbage| children.insert(place, new, garbage));
        let hash = self.child_hash(parent, self.first_page(child));
        self.table.insert(hash, child);
    }

    /// Takes a node, still with its label, away from its parent.
    pub(super) fn detach(&mut self, child: u32) {
        let parent = self.tree.nodes[child].parent;
        self.tree.nodes[parent].waiting = false;
        let hash = self.child_hash(parent, self.first_page(child));
        self.table.remove(hash, child);
        let place = self.place(parent, child);
        self.edit_children(parent, |children, garbage| children.remove(place, garbage));
    }

    /// Puts a node, which gets the same first page, in the place of another under its parent.
    fn substitute(&mut self, old: u32, new: u32) {
        let parent = self.tree.nodes[old].parent;
        self.tree.nodes[new].parent = parent;
        let hash = self.child_hash(parent, self.first_page(old));
        self.table.replace(hash, old, new);
        let place = self.place(parent, old);
        self.edit_children(parent, |children, _| children.replace(place, new));
    }

    /// Cuts a node after `count` of its pages. The new node is the front; the old one, with its id,
    /// keeps the deep end. Everything else goes to both.
    pub(super) fn split(&mut self, at: u32, count: usize) -> u32 {
        let parent = self.tree.nodes[at].parent;
        self.changing_children(parent, |index| index.split_below(at, count))
    }

    fn split_below(&mut self, at: u32, count: usize) -> u32 {
        let front = self.allocate(State::Node);
        self.substitute(at, front);
        let page_size = self.page_size;
        let label =
            self.with_bytes(at, |index| index.tree.nodes[at].label.split_front(page_size, count));
        self.segment_bytes += label.bytes();
        let old = &mut self.tree.nodes[at];
        let (ages, earlier) = old.ages.split_front(count);
        let last_access = earlier.unwrap_or(old.last_access);
        let (start, locks, hits, media) = (old.start, old.locks, old.hits, old.media);
        old.start += count as u32;
        let new = &mut self.tree.nodes[front];
        (new.start, new.locks, new.last_access, new.hits, new.media) =
            (start, locks, last_access, hits, media);
        (new.label, new.ages) = (label, ages);
        self.changing_children(front, |index| {
            index.attach(front, at);
            index.publish(at);
        });
        self.publish(front);
        front
    }

    /// Coalesces a node with its only child, and that with its own, as far as possible.
    ///
    /// Only when neither is locked and the parent was not used after the child: parts of a segment
    /// may be older than its end (`Ages`), but not younger. The child's id stays.
    pub(super) fn coalesce(&mut self, mut parent: u32) {
        while let Some(child) = self.mergeable_child(parent) {
            let next = self.tree.nodes[parent].parent;
            self.changing_children(next, |index| {
                index.changing_children(parent, |index| index.merge(parent, child));
            });
            parent = next;
        }
    }

    fn mergeable_child(&mut self, parent: u32) -> Option<u32> {
        let above = &self.tree.nodes[parent];
        let child = above.children.only().filter(|_| above.state == State::Node)?;
        let below = &self.tree.nodes[child];
        if above.last_access > first_access(below) {
            return None;
        }
        if above.locks > 0 {
            // Whoever takes the last lock away tries again.
            self.tree.nodes[parent].waiting = true;
            return None;
        }
        Some(child)
    }

    fn merge(&mut self, parent: u32, child: u32) {
        let hash = self.child_hash(parent, self.first_page(child));
        self.table.remove(hash, child);
        self.edit_children(parent, |children, _| *children = Siblings::default());
        self.substitute(parent, child);
        let label = std::mem::take(&mut self.tree.nodes[parent].label);
        self.segment_bytes -= label.bytes();
        let ages = std::mem::take(&mut self.tree.nodes[parent].ages);
        let above = &self.tree.nodes[parent];
        let (start, media, last_access) = (above.start, above.media, above.last_access);
        self.release(parent);
        let (len, own) = (label.len(), first_access(&self.tree.nodes[child]));
        self.tree.nodes[child].ages.prepend(ages, len, last_access, own);
        let page_size = self.page_size;
        self.with_bytes(child, |index| index.tree.nodes[child].label.prepend(page_size, label));
        let node = &mut self.tree.nodes[child];
        node.start = start;
        node.media |= media;
        self.publish(child);
    }

    pub(super) fn insert_below(&mut self, from: u32, keys: &[u32], pages: &[u32]) -> Inserted {
        debug_assert!(keys.len() >= pages.len() * self.page_size);
        let (mut node, mut found) = (from, 0);
        while let Some((child, common)) = self.child(node, &keys[found * self.page_size..]) {
            let whole = common / self.page_size;
            let ends_inside = whole < self.tree.nodes[child].label.len();
            node = if ends_inside { self.split(child, whole) } else { child };
            found += whole;
        }
        if let Some(new) = pages.get(found..).filter(|new| !new.is_empty()) {
            let end = pages.len() * self.page_size;
            node = self.add_leaf(node, &keys[found * self.page_size..end], new);
        }
        Inserted { node: Node(node), existing: found.min(pages.len()) }
    }

    fn add_leaf(&mut self, parent: u32, keys: &[u32], pages: &[u32]) -> u32 {
        self.tree.expect_leaf(parent);
        let leaf = self.allocate(State::Node);
        let label = Label::new(self.page_size, keys, pages);
        self.segment_bytes += label.bytes();
        let (start, last_access) = (self.tree.nodes[parent].end() as u32, self.tree.tick());
        let node = &mut self.tree.nodes[leaf];
        node.label = label;
        node.start = start;
        node.last_access = last_access;
        node.media = !all_text(keys);
        self.changing_children(parent, |index| {
            index.attach(parent, leaf);
            index.publish(leaf);
        });
        self.tree.cached_pages += pages.len();
        self.tree.reclaimable_pages += pages.len();
        self.tree.enlist(leaf);
        leaf
    }

    /// Whether a node is a leaf on which a sequence took its only lock.
    pub(super) fn can_extend(&self, at: u32) -> bool {
        let node = &self.tree.nodes[at];
        node.state == State::Node
            && node.children.is_empty()
            && node.locks == 1
            && node.sequence_locks == 1
    }

    /// Makes a locked leaf longer. Its id meant the shorter prefix and becomes stale.
    pub(super) fn extend(&mut self, at: u32, keys: &[u32], pages: &[u32]) {
        debug_assert!(self.can_extend(at));
        let (now, page_size, len) =
            (self.tree.tick(), self.page_size, self.tree.nodes[at].label.len());
        self.tree.nodes.renew(at);
        self.with_bytes(at, |index| index.tree.nodes[at].label.append(page_size, keys, pages));
        let node = &mut self.tree.nodes[at];
        let before = std::mem::replace(&mut node.last_access, now);
        node.ages.push(len, before);
        node.media |= !all_text(keys);
        self.publish(at);
        self.tree.cached_pages += pages.len();
    }

    /// Frees a leaf that is out of the tree's lists, and gives the parent its turn.
    pub(super) fn remove_leaf(&mut self, leaf: u32) {
        let parent = self.tree.nodes[leaf].parent;
        debug_assert_ne!(parent, NONE);
        self.changing_children(parent, |index| index.detach(leaf));
        self.segment_bytes -= self.tree.nodes[leaf].label.bytes();
        self.release(leaf);
        self.tree.miss_leaf(parent);
        if self.tree.nodes[parent].state == State::Root {
            self.drop_empty_root(parent);
        } else if self.tree.nodes[parent].is_evictable() {
            self.tree.enlist(parent);
        } else {
            self.coalesce(parent);
        }
    }
}
