//! Changing the tree: split, insert, extend.
//!
//! What a change needs is made first, all of it; from then on nothing can fail.
use super::super::{Inserted, Node};
use super::RadixIndex;
use super::ages::Ages;
use super::label::Label;
use super::node::end_of;
use super::run::{self, Sibling};
use super::siblings::{Room, Siblings};
use crate::grace::Garbage;
use crate::memory::OutOfMemory;
use crate::token::all_text;
use crate::tree::{NONE, Place, State};

/// What a split needs.
struct Split {
    /// The node that is cut, and after how many of its pages.
    at: u32,
    count: usize,
    /// A copy of the smaller part.
    label: Label,
    ages: Ages,
    /// When the last page of the front was used last.
    time: u64,
    /// The hash under which the deep end is found.
    hash: u32,
}

/// What a leaf needs.
struct Leaf {
    label: Label,
    /// Where it stands among its siblings, and what they need for one more.
    place: run::Place,
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
    fn attach(&mut self, parent: u32, child: u32, (place, room): (run::Place, Room), entry: Place) {
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
    pub(super) fn substitute(&mut self, old: u32, new: u32, hash: u32, place: run::Place) {
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

    fn prepare_split(&self, at: u32, count: usize) -> Result<Split, OutOfMemory> {
        let node = &self.tree.nodes[at];
        let label = node.label.copy_for_split(self.page_size, count)?;
        let (end, ages) = (end_of(node), node.ages.front(count, end_of(node))?);
        let page = &node.label.keys(self.page_size)[count * self.page_size..][..self.page_size];
        let hash = self.child_hash(self.tree.nodes.next(), page);
        Ok(Split { at, count, label, ages, time: node.ages.time_of(count - 1, end), hash })
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
        let end = end_of(&self.tree.nodes[at]);
        let label = self.with_bytes(at, |index| {
            let held = &mut index.tree.nodes[at].held;
            held.ages.drop_front(count, end);
            held.label.split_front(page_size, count, split.label)
        });
        self.segment_bytes += label.bytes() + split.ages.bytes();
        let old = &mut self.tree.nodes[at];
        let (start, locks, hits, media) = (old.start, old.locks, old.hits, old.media);
        let root = old.root;
        old.start += count as u32;
        let new = &mut self.tree.nodes[front];
        new.root = root;
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
        if pages.len() > self.tree.nodes.page_limit() {
            return Err(OutOfMemory);
        }
        let label = Label::new(self.page_size, keys, pages)?;
        let page = &keys[..self.page_size];
        let (parent, place, room) = if beside_one {
            (self.tree.nodes.next(), (0, 0), Room::for_second()?)
        } else {
            let place = self.place(at, NONE, page);
            let children = &mut self.tree.nodes[at].children;
            let before = children.bytes();
            let room = children.room(place)?;
            self.segment_bytes = self.segment_bytes + children.bytes() - before;
            (at, place, room)
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
        let root = self.tree.nodes[parent].root;
        let node = &mut self.tree.nodes[leaf];
        node.root = root;
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

    /// Whether a node is a leaf on which its only lock was taken, and may have more pages.
    pub(super) fn can_extend(&self, at: u32, more: usize) -> bool {
        let node = &self.tree.nodes[at];
        node.state == State::Node
            && node.children.is_empty()
            && node.locks == 1
            && node.own_locks == 1
            && node.label.len() + more <= self.tree.nodes.page_limit()
    }

    /// Makes a locked leaf longer; returns its number. Its id meant the shorter prefix and becomes
    /// stale.
    pub(super) fn extend(
        &mut self,
        at: u32,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<u32, OutOfMemory> {
        debug_assert!(self.can_extend(at, pages.len()));
        let (page_size, len) = (self.page_size, self.tree.nodes[at].label.len());
        let stays = self.tree.nodes.may_renew(at, len + pages.len());
        if !stays {
            self.reserve_nodes(1)?;
        }
        self.with_bytes(at, |index| {
            let held = &mut index.tree.nodes[at].held;
            held.ages.try_reserve()?;
            held.label.append(page_size, keys, pages)
        })?;
        let now = self.tree.tick();
        let node = &mut self.tree.nodes[at];
        let before = std::mem::replace(&mut node.last_access, now);
        node.ages.push((len, before), (len + pages.len(), now));
        node.media |= !all_text(keys);
        self.tree.cached_pages += pages.len();
        if !stays {
            return Ok(self.relocate(at));
        }
        self.tree.nodes.renew(at);
        self.publish(at);
        Ok(at)
    }

    /// Moves a leaf, to whose number nobody holds on, to another place, for which room was made:
    /// the generations of this one are used up.
    fn relocate(&mut self, from: u32) -> u32 {
        let parent = self.tree.nodes[from].parent;
        let page = self.first_page(from);
        let (hash, place) = (self.child_hash(parent, page), self.place(parent, from, page));
        let to = self.tree.nodes.allocate(State::Node);
        self.changing_children(parent, |index| {
            index.substitute(from, to, hash, place);
            index.tree.nodes.relocate(from, to);
            index.publish(to);
            index.release(from);
        });
        to
    }

    /// Frees a leaf that is out of the tree's lists, and gives the parent its turn.
    pub(super) fn remove_leaf(&mut self, leaf: u32) {
        let parent = self.tree.nodes[leaf].parent;
        debug_assert_ne!(parent, NONE);
        self.changing_children(parent, |index| index.detach(leaf));
        self.segment_bytes -= self.tree.nodes[leaf].held.bytes();
        self.release(leaf);
        self.tree.miss_leaf(parent);
        if self.tree.nodes[parent].is_root() {
            self.drop_empty_root(parent);
        } else if self.tree.nodes[parent].is_evictable() {
            self.tree.enlist(parent);
        } else {
            self.coalesce(parent);
        }
    }
}
