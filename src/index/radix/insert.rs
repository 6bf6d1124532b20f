//! Adding pages: below a node, or to a leaf that one sequence alone has.
//!
//! A segment has a limit, so that no work on one node takes long. More pages than that come as
//! several nodes in a row, all or none. They are made first, hanging together and nowhere else,
//! where no reader finds them; what is missing then is one place below the node above.
use super::super::{Inserted, Node, Walk};
use super::RadixIndex;
use super::fetch::is_large;
use super::run::{self, Sibling};
use super::siblings::Room;
use crate::memory::OutOfMemory;
use crate::token::all_text;
use crate::tree::{Held, Label, NONE, Place, State};

/// Where an insert leaves what is there.
pub(super) struct End {
    node: u32,
    /// Inside the node, after so many of its pages.
    inside: Option<usize>,
}

/// New nodes in a row, which hang nowhere yet.
#[derive(Clone, Copy)]
struct Chain {
    top: u32,
    end: u32,
    pages: usize,
}

impl RadixIndex {
    /// Where the whole pages of a walk end.
    pub(super) fn end_of_walk(&self, walk: &Walk) -> End {
        let node = &self.tree.nodes[walk.node.0];
        let inside = (walk.pages < node.end()).then(|| walk.pages - node.start as usize);
        End { node: walk.node.0, inside }
    }

    /// Follows whole pages of keys down from a node: how many there are.
    #[inline(always)]
    fn follow(&self, from: u32, keys: &[u32]) -> (End, usize) {
        let (mut end, mut found) = (End { node: from, inside: None }, 0);
        while end.inside.is_none()
            && let Some((child, common)) = self.child(end.node, &keys[found * self.page_size..])
        {
            let whole = common / self.page_size;
            (end.node, found) = (child, found + whole);
            end.inside = Some(whole).filter(|&whole| whole < self.tree.nodes[child].label.len());
        }
        (end, found)
    }

    #[inline(always)]
    pub(super) fn insert_below(
        &mut self,
        from: u32,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<Inserted, OutOfMemory> {
        debug_assert!(keys.len() >= pages.len() * self.page_size);
        let (end, found) = self.follow(from, keys);
        let existing = found.min(pages.len());
        let keys = &keys[existing * self.page_size..pages.len() * self.page_size];
        let node = self.insert_at(end, keys, &pages[existing..])?;
        Ok(Inserted { node: Node(node), existing })
    }

    /// Adds pages, none of which is there, where one may be missing; without any, only ends a node
    /// there.
    pub(super) fn insert_at(
        &mut self,
        End { node, inside }: End,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<u32, OutOfMemory> {
        match inside {
            _ if !pages.is_empty() => self.add_pages(node, inside, keys, pages),
            Some(count) => self.split(node, count),
            None => Ok(node),
        }
    }

    /// Adds pages below a node, or below the first pages of a node, which is split then. Returns
    /// the node that ends with them.
    fn add_pages(
        &mut self,
        at: u32,
        inside: Option<usize>,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<u32, OutOfMemory> {
        let count = pages.len().min(self.tree.nodes.page_limit());
        let more = &pages[count..];
        if count == 0 {
            return Err(OutOfMemory);
        }
        let nodes = if more.is_empty() { 1 } else { pages.len().div_ceil(count) };
        self.reserve_nodes(nodes + inside.is_some() as usize)?;
        let above = &self.tree.nodes[at];
        let (root, start) = (above.root, above.start as usize);
        let start = start + inside.unwrap_or(above.page_count());
        let (first, rest) = keys.split_at(count * self.page_size);
        let top = self.make_node([NONE, root], start, first, &pages[..count])?;
        let end = if more.is_empty() { top } else { self.make_rest(top, rest, more)? };
        let chain = Chain { top, end, pages: pages.len() };
        let hung = self.hang(at, inside, chain, &first[..self.page_size]);
        if hung.is_err() {
            self.take_back(end);
        }
        hung
    }

    /// Makes the nodes that follow a new one, all or none: without memory, that one goes too.
    #[cold]
    fn make_rest(&mut self, top: u32, keys: &[u32], pages: &[u32]) -> Result<u32, OutOfMemory> {
        let (mut last, root) = (top, self.tree.nodes[top].root);
        let limit = self.tree.nodes.page_limit();
        for (keys, pages) in keys.chunks(limit * self.page_size).zip(pages.chunks(limit)) {
            let start = self.tree.nodes[last].end();
            let Ok(node) = self.make_node([last, root], start, keys, pages) else {
                self.take_back(last);
                return Err(OutOfMemory);
            };
            last = node;
        }
        Ok(last)
    }

    /// Makes a node, for which the arena has room, and hangs it below another new one if there is
    /// one.
    #[inline]
    fn make_node(
        &mut self,
        [parent, root]: [u32; 2],
        start: usize,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<u32, OutOfMemory> {
        let label = Label::new(self.page_size, keys, pages)?;
        if parent != NONE {
            self.announce(parent, keys)?;
        }
        self.segment_bytes += label.bytes();
        let (at, now) = (self.tree.nodes.allocate(State::Node), self.tree.clock + 1);
        let node = &mut self.tree.nodes[at];
        (node.parent, node.root, node.start) = (parent, root, start as u32);
        (node.last_access, node.media) = (now, !all_text(keys));
        node.label = label;
        Ok(at)
    }

    /// Makes the next node that is made the child of a new one.
    fn announce(&mut self, parent: u32, keys: &[u32]) -> Result<(), OutOfMemory> {
        let child = Sibling { first_key: keys[0], node: self.tree.nodes.next() };
        let hash = self.child_hash(parent, &keys[..self.page_size]);
        let [entry] = self.table.places([hash])?;
        self.table.put(entry, child.node, keys.len() / self.page_size);
        let children = &mut self.tree.nodes[parent].children;
        children.insert((0, 0), child, Room::There, &mut self.garbage);
        Ok(())
    }

    /// Undoes what was made of a chain, from its last node up. No reader saw any of it.
    #[cold]
    fn take_back(&mut self, mut last: u32) {
        while last != NONE {
            let parent = self.tree.nodes[last].parent;
            if parent != NONE {
                let hash = self.child_hash(parent, self.first_page(last));
                self.table.remove(hash, last);
            }
            self.segment_bytes -= self.tree.nodes[last].held.bytes();
            self.tree.nodes.take_back(last);
            last = parent;
        }
    }

    /// Hangs new nodes below a node, or below the first pages of a node, which is split then.
    #[inline]
    fn hang(
        &mut self,
        at: u32,
        inside: Option<usize>,
        chain: Chain,
        page: &[u32],
    ) -> Result<u32, OutOfMemory> {
        let Some(count) = inside else {
            if self.tree.nodes[at].is_leaf() && is_large(self) {
                self.tell_length(at);
            }
            let (hash, place) = (self.child_hash(at, page), self.place(at, NONE, page));
            let children = &mut self.tree.nodes[at].children;
            let before = children.bytes();
            let room = children.room(place)?;
            self.segment_bytes = self.segment_bytes + children.bytes() - before;
            let [entry] = self.table.places([hash])?;
            return Ok(self.hang_below(at, chain, (place, room), entry));
        };
        // The front is the next node that is made.
        let hash = self.child_hash(self.tree.nodes.next(), page);
        let (split, room) = (self.prepare_split(at, count)?, Room::for_second()?);
        let [end, entry] = self.table.places([split.hash, hash])?;
        let front = self.carry_out_split(split, end);
        let place = self.place(front, NONE, page);
        Ok(self.hang_below(front, chain, (place, room), entry))
    }

    /// Corrects what is told of a node's length: a leaf may have become longer, and now there is
    /// something behind it.
    #[cold]
    fn tell_length(&mut self, at: u32) {
        let (node, page) = (&self.tree.nodes[at], self.first_page(at));
        let (hash, pages) = (self.child_hash(node.parent, page), node.label.len());
        self.table.replace(hash, at, at, pages);
    }

    fn hang_below(
        &mut self,
        parent: u32,
        chain: Chain,
        room: (run::Place, Room),
        entry: Place,
    ) -> u32 {
        self.tree.expect_leaf(parent);
        self.tree.tick();
        // From the end up: who finds a node finds all below it.
        let mut at = chain.end;
        while at != chain.top {
            let above = self.tree.nodes[at].parent;
            self.changing_children(above, |index| {
                index.edit_children(above, |_, _| ());
                index.publish(at);
            });
            at = above;
        }
        self.changing_children(parent, |index| {
            index.attach(parent, chain.top, room, entry);
            index.publish(chain.top);
        });
        self.tree.cached_pages += chain.pages;
        self.tree.reclaimable_pages += chain.pages;
        self.tree.enlist(chain.end);
        chain.end
    }

    /// Whether a node is a leaf on which its only lock was taken, and may have more pages.
    pub(super) fn can_extend(&self, at: u32, more: usize) -> bool {
        let node = &self.tree.nodes[at];
        node.state == State::Node
            && node.children.is_empty()
            && node.locks == 1
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
            let pages = index.tree.nodes[from].label.len();
            index.substitute([from, to], pages, hash, place);
            index.tree.nodes.relocate(from, to);
            index.publish(to);
            index.release(from);
        });
        to
    }
}
