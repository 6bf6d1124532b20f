//! Changing the tree: split, merge, insert, extend.
//!
//! What a change needs is made first, all of it; from then on nothing can fail. A merge, which
//! nobody asked for, is left for later when there is no memory for it.
use super::super::tree::{NONE, Place, State};
use super::super::{Inserted, Node};
use super::RadixIndex;
use super::ages::Ages;
use super::label::Label;
use super::node::first_access;
use super::siblings::{self, Room, Sibling, Siblings};
use crate::grace::Garbage;
use crate::memory::OutOfMemory;
use crate::token::all_text;

/// What a split needs.
struct Split {
    /// The node that is cut, and after how many of its pages.
    at: u32,
    count: usize,
    /// A copy of the smaller part.
    label: Label,
    ages: Ages,
    /// The hash under which the deep end is found.
    hash: u32,
}

/// What a leaf needs.
struct Leaf {
    label: Label,
    /// Where it stands among its siblings, and what they need for one more.
    place: siblings::Place,
    room: Room,
    hash: u32,
    media: bool,
}

/// Where an insert runs to.
struct End {
    node: u32,
    /// Pages from the beginning of the keys.
    found: usize,
    /// It ends inside a node, after so many pages of that.
    inside: Option<usize>,
}

impl RadixIndex {
    /// Makes a change to what a node holds and keeps account of its memory.
    pub(super) fn with_bytes<R>(&mut self, at: u32, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.tree.nodes[at].held.bytes();
        let done = change(self);
        self.segment_bytes = self.segment_bytes + self.tree.nodes[at].held.bytes() - before;
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

    /// Where a node with this first page stands, or is to stand, among the children of a node.
    fn place(&self, parent: u32, child: u32, page: &[u32]) -> siblings::Place {
        let before = |other| other != child && self.first_page(other) < page;
        self.tree.nodes[parent].children.place(page[0], before)
    }

    /// Hangs a node with its label under a parent, whose children are announced to change.
    fn attach(
        &mut self,
        parent: u32,
        child: u32,
        (place, room): (siblings::Place, Room),
        entry: Place,
    ) {
        self.tree.nodes[child].parent = parent;
        self.tree.nodes[parent].waiting = false;
        let new = Sibling { first_key: self.first_page(child)[0], node: child };
        self.edit_children(parent, |children, garbage| children.insert(place, new, room, garbage));
        self.table.put(entry, child);
    }

    /// Takes a node, still with its label, away from its parent.
    fn detach(&mut self, child: u32) {
        let parent = self.tree.nodes[child].parent;
        self.tree.nodes[parent].waiting = false;
        let hash = self.child_hash(parent, self.first_page(child));
        self.table.remove(hash, child);
        let place = self.place(parent, child, self.first_page(child));
        self.edit_children(parent, |children, garbage| children.remove(place, garbage));
    }

    /// Puts a node, which gets the same first page, in the place of another under its parent.
    fn substitute(&mut self, old: u32, new: u32, hash: u32, place: siblings::Place) {
        let parent = self.tree.nodes[old].parent;
        self.tree.nodes[new].parent = parent;
        self.table.replace(hash, old, new);
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

    fn prepare_split(&self, at: u32, count: usize) -> Result<Split, OutOfMemory> {
        let node = &self.tree.nodes[at];
        let label = node.label.copy_for_split(self.page_size, count)?;
        let ages = node.ages.front(count)?;
        let page = &node.label.keys(self.page_size)[count * self.page_size..][..self.page_size];
        let hash = self.child_hash(self.tree.nodes.next(), page);
        Ok(Split { at, count, label, ages, hash })
    }

    fn carry_out_split(&mut self, split: Split, entry: Place) -> u32 {
        let parent = self.tree.nodes[split.at].parent;
        self.changing_children(parent, |index| index.split_below(split, entry))
    }

    fn split_below(&mut self, split: Split, entry: Place) -> u32 {
        let (at, count, page_size) = (split.at, split.count, self.page_size);
        let front = self.tree.nodes.allocate(State::Node);
        let parent = self.tree.nodes[at].parent;
        let page = self.first_page(at);
        let (hash, place) = (self.child_hash(parent, page), self.place(parent, at, page));
        self.substitute(at, front, hash, place);
        let (label, earlier) = self.with_bytes(at, |index| {
            let held = &mut index.tree.nodes[at].held;
            let label = held.label.split_front(page_size, count, split.label);
            (label, held.ages.drop_front(count))
        });
        self.segment_bytes += label.bytes() + split.ages.bytes();
        let old = &mut self.tree.nodes[at];
        let last_access = earlier.unwrap_or(old.last_access);
        let (start, locks, hits, media) = (old.start, old.locks, old.hits, old.media);
        old.start += count as u32;
        let new = &mut self.tree.nodes[front];
        (new.start, new.locks, new.last_access, new.hits, new.media) =
            (start, locks, last_access, hits, media);
        (new.label, new.ages) = (label, split.ages);
        self.changing_children(front, |index| {
            index.attach(front, at, ((0, 0), Room::There), entry);
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
            let merged = self.changing_children(next, |index| {
                index.changing_children(parent, |index| index.merge(parent, child))
            });
            if merged.is_err() {
                // Two nodes do as well as one. The next one to unlock them tries again.
                self.tree.nodes[parent].waiting = true;
                return;
            }
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

    fn merge(&mut self, parent: u32, child: u32) -> Result<(), OutOfMemory> {
        let above = self.tree.nodes[parent].parent;
        let child_hash = self.child_hash(parent, self.first_page(child));
        let page = self.first_page(parent);
        let (hash, place) = (self.child_hash(above, page), self.place(above, parent, page));
        self.join(parent, child)?;
        self.table.remove(child_hash, child);
        self.edit_children(parent, |children, _| *children = Siblings::default());
        self.substitute(parent, child, hash, place);
        let old = &self.tree.nodes[parent];
        let (start, media) = (old.start, old.media);
        self.release(parent);
        let node = &mut self.tree.nodes[child];
        node.start = start;
        node.media |= media;
        self.publish(child);
        Ok(())
    }

    /// Moves what a node holds to the front of what its child holds.
    fn join(&mut self, parent: u32, child: u32) -> Result<(), OutOfMemory> {
        let (above, below) = (&self.tree.nodes[parent], &self.tree.nodes[child]);
        let bytes = above.held.bytes() + below.held.bytes();
        let end = (above.label.len(), above.last_access);
        let ages = Ages::joined(&above.ages, end, &below.ages, first_access(below))?;
        let mut front = std::mem::take(&mut self.tree.nodes[parent].label);
        let joined = self.tree.nodes[child].label.prepend(self.page_size, &mut front);
        if joined.is_err() {
            self.tree.nodes[parent].label = front;
            return joined;
        }
        self.tree.nodes[parent].ages = Ages::default();
        self.tree.nodes[child].ages = ages;
        let after = self.tree.nodes[parent].held.bytes() + self.tree.nodes[child].held.bytes();
        self.segment_bytes = self.segment_bytes + after - bytes;
        Ok(())
    }

    /// Follows whole pages of keys down from a node.
    fn follow(&self, from: u32, keys: &[u32]) -> End {
        let mut end = End { node: from, found: 0, inside: None };
        while let Some((child, common)) = self.child(end.node, &keys[end.found * self.page_size..])
        {
            let whole = common / self.page_size;
            (end.node, end.found) = (child, end.found + whole);
            if whole < self.tree.nodes[child].label.len() {
                end.inside = Some(whole);
                break;
            }
        }
        end
    }

    pub(super) fn insert_below(
        &mut self,
        from: u32,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<Inserted, OutOfMemory> {
        debug_assert!(keys.len() >= pages.len() * self.page_size);
        let End { mut node, found, inside } = self.follow(from, keys);
        if let Some(new) = pages.get(found..).filter(|new| !new.is_empty()) {
            let end = pages.len() * self.page_size;
            node = self.add_leaf(node, inside, &keys[found * self.page_size..end], new)?;
        } else if let Some(count) = inside {
            node = self.split(node, count)?;
        }
        Ok(Inserted { node: Node(node), existing: found.min(pages.len()) })
    }

    /// Adds a leaf below a node, or below the first pages of a node, which is split then.
    fn add_leaf(
        &mut self,
        at: u32,
        inside: Option<usize>,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<u32, OutOfMemory> {
        self.reserve_nodes(1 + inside.is_some() as usize)?;
        let mut leaf = self.prepare_leaf(at, inside.is_some(), keys, pages)?;
        let Some(count) = inside else {
            let [entry] = self.table.places([leaf.hash])?;
            return Ok(self.hang_leaf(at, leaf, entry));
        };
        let split = self.prepare_split(at, count)?;
        let [end, entry] = self.table.places([split.hash, leaf.hash])?;
        let front = self.carry_out_split(split, end);
        leaf.place = self.place(front, NONE, &keys[..self.page_size]);
        Ok(self.hang_leaf(front, leaf, entry))
    }

    /// `beside_one`: the parent is the next node that is made, and has one other child then; the
    /// place beside that is still to be found.
    fn prepare_leaf(
        &mut self,
        at: u32,
        beside_one: bool,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<Leaf, OutOfMemory> {
        let label = Label::new(self.page_size, keys, pages)?;
        let page = &keys[..self.page_size];
        let (parent, place, room) = if beside_one {
            (self.tree.nodes.next(), (0, 0), Room::for_second()?)
        } else {
            let place = self.place(at, NONE, page);
            (at, place, self.with_bytes(at, |index| index.tree.nodes[at].children.room(place))?)
        };
        let hash = self.child_hash(parent, page);
        Ok(Leaf { label, place, room, hash, media: !all_text(keys) })
    }

    fn hang_leaf(&mut self, parent: u32, new: Leaf, entry: Place) -> u32 {
        self.tree.expect_leaf(parent);
        let leaf = self.tree.nodes.allocate(State::Node);
        let pages = new.label.len();
        self.segment_bytes += new.label.bytes();
        let (start, last_access) = (self.tree.nodes[parent].end() as u32, self.tree.tick());
        let node = &mut self.tree.nodes[leaf];
        node.label = new.label;
        node.start = start;
        node.last_access = last_access;
        node.media = new.media;
        self.changing_children(parent, |index| {
            index.attach(parent, leaf, (new.place, new.room), entry);
            index.publish(leaf);
        });
        self.tree.cached_pages += pages;
        self.tree.reclaimable_pages += pages;
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
    pub(super) fn extend(
        &mut self,
        at: u32,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<(), OutOfMemory> {
        debug_assert!(self.can_extend(at));
        let (page_size, len) = (self.page_size, self.tree.nodes[at].label.len());
        self.with_bytes(at, |index| {
            let held = &mut index.tree.nodes[at].held;
            held.ages.try_reserve()?;
            held.label.append(page_size, keys, pages)
        })?;
        let now = self.tree.tick();
        self.tree.nodes.renew(at);
        let node = &mut self.tree.nodes[at];
        let before = std::mem::replace(&mut node.last_access, now);
        node.ages.push(len, before);
        node.media |= !all_text(keys);
        self.publish(at);
        self.tree.cached_pages += pages.len();
        Ok(())
    }

    /// Frees a leaf that is out of the tree's lists, and gives the parent its turn.
    pub(super) fn remove_leaf(&mut self, leaf: u32) {
        let parent = self.tree.nodes[leaf].parent;
        debug_assert_ne!(parent, NONE);
        self.changing_children(parent, |index| index.detach(leaf));
        self.segment_bytes -= self.tree.nodes[leaf].held.bytes();
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
