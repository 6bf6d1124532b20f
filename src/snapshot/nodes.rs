//! The nodes of the tree: what lies in them, and how they hang together.
use super::discarded::Discarded;
use super::freed::Snapshot;
use super::recency::Link;
use super::{Label, NONE};
use crate::memory::{OutOfMemory, TryGrow, try_collect};
use std::sync::atomic::AtomicU32;

/// A segment of tokens, and perhaps an entry at its end. Nodes of one parent differ in their first
/// token. Whoever comes to a node of a large tree waits for memory, so it is one line of the
/// processor's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node<V> {
    /// The tokens between the parent's end and this node's; none at a root.
    pub(super) label: Label,
    /// NONE at a root.
    pub(super) parent: u32,
    pub(super) first_child: u32,
    /// Siblings: first those that lead to a trimmable entry, else in no order that matters. What
    /// comes before the first is the last.
    pub(super) before: u32,
    pub(super) after: u32,
    /// Another node in the same bucket.
    pub(super) next: u32,
    /// Where it is in the order of use, or in that of what is still to be joined.
    pub(super) link: Link,
    /// Of the ledger: who reads the entry's snapshot; NONE when nobody does.
    pub(super) reader: AtomicU32,
    /// The snapshot of the token list that ends here.
    pub(super) entry: Option<Box<Snapshot<V>>>,
}

/// Nodes of a chunk: as many as its word has bits.
const CHUNK: usize = u64::BITS as usize;
/// Numbers that there are: NONE and the one before it mean something else.
pub(super) const NODE_LIMIT: u32 = NONE - 1;

impl<V> Node<V> {
    /// A node that hangs nowhere.
    fn new(label: Label) -> Self {
        Self {
            label,
            parent: NONE,
            first_child: NONE,
            before: NONE,
            after: NONE,
            next: NONE,
            link: Link::default(),
            reader: AtomicU32::new(NONE),
            entry: None,
        }
    }
}

pub(super) type Places<V> = [Node<V>; CHUNK];

#[derive(Debug)]
struct Chunk<V> {
    /// None as long as no number of the chunk is in use.
    places: Option<Box<Places<V>>>,
    /// Which of them have a node; in the others there is one that hangs nowhere.
    taken: u64,
    /// Which of those have an entry that is trimmable.
    trimmable: u64,
    /// Which of those have one, or lie above one that has.
    leading: u64,
    /// Neighbours among the chunks that have room; among those without memory only `after`.
    before: u32,
    after: u32,
}

/// All nodes, by number. Chunks never move, and the memory of an empty one is given back.
#[derive(Debug)]
pub(super) struct Nodes<V> {
    chunks: Vec<Chunk<V>>,
    /// The first chunk with a free place.
    roomy: u32,
    /// The first chunk without memory.
    bare: u32,
    len: usize,
    /// Places that there is memory for.
    places: usize,
    /// Numbers that may be given out, all together.
    limit: u32,
    /// How many nodes have gone, or got another number.
    gone: u64,
    /// How many had when one of a chunk did last. Not in the chunk, which every step looks at.
    gone_by: Vec<u64>,
    /// What is to be given back without the lock.
    pub(super) discarded: Discarded<Box<Places<V>>>,
}

impl<V> Nodes<V> {
    pub(super) fn new(limit: u32) -> Self {
        let limit = limit.min(NODE_LIMIT);
        let (chunks, gone_by) = (Vec::new(), Vec::new());
        let (roomy, bare) = (NONE, NONE);
        let discarded = Discarded::new();
        Self { chunks, roomy, bare, len: 0, places: 0, limit, gone: 0, gone_by, discarded }
    }

    /// Others had the same numbers before.
    pub(super) fn begin_after(&mut self, others: &Self) {
        self.gone = others.gone + 1;
    }

    /// The same: so many went. To be called before there is a node.
    pub(super) fn begin_at(&mut self, gone: u64) {
        self.gone = gone;
    }

    /// How many nodes have gone, or got another number.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// Whether a node is the one that had its number when so many had gone. Of more than have, it
    /// was in another index: one may come later than another that has the higher number.
    #[inline]
    pub(super) fn is_still(&self, at: u32, gone: u64) -> bool {
        let last = self.gone_by.get(at as usize / CHUNK);
        last.is_some_and(|&last| last <= gone && gone <= self.gone)
    }

    /// Nodes, roots included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Places that there is memory for.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// One more than the last number that a node may have now.
    pub(super) fn end(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    pub(super) fn bytes(&self) -> usize {
        self.places * size_of::<Node<V>>()
            + self.chunks.capacity() * size_of::<Chunk<V>>()
            + self.gone_by.capacity() * size_of::<u64>()
    }

    /// Makes room for so many nodes more.
    pub(super) fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        if self.len + count > self.limit as usize {
            return Err(OutOfMemory);
        }
        while self.places - self.len < count {
            let places =
                try_collect((0..CHUNK).map(|_| Node::new(Label::default())))?.into_boxed_slice();
            let places = Some(places.try_into().unwrap_or_else(|_| unreachable!("its size")));
            if self.bare == NONE {
                // Chunks are numbered, and places in them, by less than 32 bits.
                u32::try_from((self.chunks.len() + 1) * CHUNK).map_err(|_| OutOfMemory)?;
                self.gone_by.try_reserve(1)?;
                self.chunks.try_push(Chunk {
                    places: None,
                    taken: 0,
                    trimmable: 0,
                    leading: 0,
                    before: NONE,
                    after: NONE,
                })?;
                self.gone_by.push(self.gone);
                self.bare = self.chunks.len() as u32 - 1;
            }
            let at = self.bare;
            self.bare = self.chunks[at as usize].after;
            self.chunks[at as usize].places = places;
            self.places += CHUNK;
            self.link_roomy(at);
        }
        Ok(())
    }

    fn link_roomy(&mut self, at: u32) {
        let after = std::mem::replace(&mut self.roomy, at);
        let chunk = &mut self.chunks[at as usize];
        (chunk.before, chunk.after) = (NONE, after);
        if after != NONE {
            self.chunks[after as usize].before = at;
        }
    }

    fn unlink_roomy(&mut self, at: u32) {
        let Chunk { before, after, .. } = self.chunks[at as usize];
        match before {
            NONE => self.roomy = after,
            before => self.chunks[before as usize].after = after,
        }
        if after != NONE {
            self.chunks[after as usize].before = before;
        }
    }

    /// A node, for which room was made, that hangs nowhere yet.
    pub(super) fn add(&mut self, label: Label) -> u32 {
        self.put(Node::new(label))
    }

    fn put(&mut self, node: Node<V>) -> u32 {
        let at = self.roomy;
        assert!(at != NONE, "room was made for the node");
        let chunk = &mut self.chunks[at as usize];
        let place = (!chunk.taken).trailing_zeros();
        let places = chunk.places.as_mut().expect("a chunk with room has memory");
        places[place as usize] = node;
        chunk.taken |= 1 << place;
        if chunk.taken == u64::MAX {
            self.unlink_roomy(at);
        }
        self.len += 1;
        at * CHUNK as u32 + place
    }

    pub(super) fn remove(&mut self, at: u32) -> Node<V> {
        let (node, number) = (self.take(at), at / CHUNK as u32);
        if self.chunks[number as usize].taken.count_ones() as usize == CHUNK - 1 {
            self.link_roomy(number);
        }
        self.give_back(number);
        node
    }

    fn take(&mut self, at: u32) -> Node<V> {
        let (chunk, place) = (&mut self.chunks[at as usize / CHUNK], at as usize % CHUNK);
        assert!(chunk.taken & 1 << place != 0, "a node that is there");
        chunk.taken &= !(1 << place);
        chunk.trimmable &= !(1 << place);
        chunk.leading &= !(1 << place);
        self.gone += 1;
        self.gone_by[at as usize / CHUNK] = self.gone;
        self.len -= 1;
        let places = chunk.places.as_mut().expect("a chunk with a node has memory");
        std::mem::replace(&mut places[place], Node::new(Label::default()))
    }

    /// Gives the memory of a chunk that has room back, if it is empty and others have room too: a
    /// node that comes and goes should not cost a chunk each time.
    fn give_back(&mut self, at: u32) {
        if self.chunks[at as usize].taken == 0 && self.places - self.len > CHUNK {
            self.unlink_roomy(at);
            let chunk = &mut self.chunks[at as usize];
            let places = chunk.places.take().expect("an empty chunk that has room has memory");
            self.discarded.put_chunk(places);
            chunk.after = std::mem::replace(&mut self.bare, at);
            self.places -= CHUNK;
        }
    }

    /// Moves nodes of a chunk into other chunks: those before number `end` that may be moved, from
    /// there down, in as many steps as `work` says. `look` says whether a node may, and how many
    /// steps that takes. What hangs on a node's number is for `moved` to mend, which gets the old
    /// number and the new one. Returns the number to go on before.
    pub(super) fn evacuate(
        &mut self,
        mut end: usize,
        mut work: usize,
        look: impl Fn(&Self, u32) -> (bool, usize),
        mut moved: impl FnMut(&mut Self, u32, u32),
    ) -> usize {
        let chunk = (end - 1) / CHUNK;
        let (at, begin) = (chunk as u32, chunk * CHUNK);
        // A full one has nothing to give; one without memory, or empty, has given what it has.
        if [0, u64::MAX].contains(&self.chunks[chunk].taken) {
            return begin;
        }
        self.unlink_roomy(at);
        while end > begin && work > 0 {
            if self.roomy == NONE {
                end = begin;
                break;
            }
            end -= 1;
            if self.chunks[chunk].taken & 1 << (end - begin) == 0 {
                continue;
            }
            let from = end as u32;
            let (may_move, steps) = look(self, from);
            work = work.saturating_sub(steps);
            if may_move {
                let (is_trimmable, leads) = (self.is_trimmable(from), self.leads(from));
                let node = self.take(from);
                let to = self.put(node);
                self.set_trimmable(to, is_trimmable);
                self.set_leads(to, leads);
                moved(self, from, to);
            }
        }
        self.link_roomy(at);
        self.give_back(at);
        end
    }

    pub(super) fn get(&self, at: u32) -> Option<&Node<V>> {
        let (chunk, place) = (self.chunks.get(at as usize / CHUNK)?, at as usize % CHUNK);
        if chunk.taken & 1 << place == 0 { None } else { Some(&chunk.places.as_ref()?[place]) }
    }

    /// Every node that has an entry, with its number.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, &Snapshot<V>)> {
        self.iter().filter_map(|(at, node)| Some((at, node.entry.as_deref()?)))
    }

    /// Takes every entry out.
    pub(super) fn take_entries(&mut self) -> impl Iterator<Item = Box<Snapshot<V>>> {
        let places = self.chunks.iter_mut().filter_map(|chunk| chunk.places.as_mut());
        places.flat_map(|places| places.iter_mut()).filter_map(|node| node.entry.take())
    }

    /// Every node with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Node<V>)> {
        let numbers = 0..self.end() as u32;
        numbers.filter_map(|at| Some((at, self.get(at)?)))
    }

    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self[parent].first_child).filter(|&first| first != NONE);
        std::iter::successors(first, |&at| Some(self[at].after).filter(|&after| after != NONE))
    }

    /// The child of a node that has exactly one.
    pub(super) fn only_child(&self, parent: u32) -> Option<u32> {
        let first = self[parent].first_child;
        (first != NONE && self[first].after == NONE).then_some(first)
    }

    /// Whether a node has an entry that is trimmable.
    pub(super) fn is_trimmable(&self, at: u32) -> bool {
        self.chunks[at as usize / CHUNK].trimmable >> (at as usize % CHUNK) & 1 != 0
    }

    pub(super) fn set_trimmable(&mut self, at: u32, is_trimmable: bool) {
        set_bit(&mut self.chunks[at as usize / CHUNK].trimmable, at, is_trimmable);
    }

    /// Whether a trimmable entry is at a node or below it.
    pub(super) fn leads(&self, at: u32) -> bool {
        self.chunks[at as usize / CHUNK].leading >> (at as usize % CHUNK) & 1 != 0
    }

    pub(super) fn set_leads(&mut self, at: u32, leads: bool) {
        set_bit(&mut self.chunks[at as usize / CHUNK].leading, at, leads);
    }

    /// Makes a node the first child of another, or the last one where it leads to nothing
    /// trimmable and others do.
    pub(super) fn hang(&mut self, parent: u32, child: u32) {
        let first = self[parent].first_child;
        let (last, is_first) = match first {
            NONE => (child, true),
            _ => (self[first].before, self.leads(child) || !self.leads(first)),
        };
        let node = &mut self[child];
        (node.parent, node.before) = (parent, last);
        node.after = if is_first { first } else { NONE };
        if first != NONE {
            self[first].before = child;
        }
        if is_first {
            self[parent].first_child = child;
        } else {
            self[last].after = child;
        }
    }

    /// Takes a node away from its parent.
    pub(super) fn unhang(&mut self, child: u32) {
        let Node { parent, before, after, .. } = self[child];
        self.lead(parent, [child, before], after);
        let answer = self.answer(parent, after);
        if answer != NONE {
            self[answer].before = before;
        }
        self[child].parent = NONE;
    }

    /// Puts a node that hangs nowhere in the place of another, which then hangs nowhere.
    pub(super) fn replace(&mut self, old: u32, new: u32) {
        let leads = self.leads(old);
        self.set_leads(new, leads);
        let Node { parent, before, after, .. } = self[old];
        let node = &mut self[new];
        (node.parent, node.before, node.after) = (parent, before, after);
        self.renumbered([old, new]);
        self[old].parent = NONE;
    }

    /// Has what leads to a child, which is the first or has one before it, lead to another one.
    fn lead(&mut self, parent: u32, [child, before]: [u32; 2], to: u32) {
        if self[parent].first_child == child {
            self[parent].first_child = to;
        } else {
            self[before].after = to;
        }
    }

    /// The child that says which one comes before `after`, or before the end.
    fn answer(&self, parent: u32, after: u32) -> u32 {
        if after == NONE { self[parent].first_child } else { after }
    }

    /// Mends the links of its family after a node, no root, got another number.
    pub(super) fn renumbered(&mut self, [old, new]: [u32; 2]) {
        let Node { parent, before, after, .. } = self[new];
        self.lead(parent, [old, before], new);
        let answer = self.answer(parent, after);
        self[answer].before = new;
    }
}

/// Sets the bit of a node in a word of its chunk.
fn set_bit(word: &mut u64, at: u32, is_set: bool) {
    let bit = at as usize % CHUNK;
    *word = *word & !(1 << bit) | u64::from(is_set) << bit;
}

impl<V> std::ops::Index<u32> for Nodes<V> {
    type Output = Node<V>;

    #[inline]
    fn index(&self, at: u32) -> &Node<V> {
        self.get(at).expect("a node that is there")
    }
}

impl<V> std::ops::IndexMut<u32> for Nodes<V> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut Node<V> {
        let (chunk, place) = (&mut self.chunks[at as usize / CHUNK], at as usize % CHUNK);
        assert!(chunk.taken & 1 << place != 0, "a node that is there");
        &mut chunk.places.as_mut().expect("a chunk with a node has memory")[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_line_of_the_cache() {
        assert_eq!(size_of::<Node<[usize; 4]>>(), 64);
    }

    /// Numbers go round, memory comes and goes, and a moved node is what it was.
    #[test]
    fn memory_follows_the_nodes() {
        let mut nodes = Nodes::<()>::new(NODE_LIMIT);
        let mut there: Vec<u32> = (0..1000)
            .map(|_| {
                nodes.try_reserve(1).unwrap();
                nodes.add(Label::default())
            })
            .collect();
        let full = nodes.bytes();
        // One of each chunk stays.
        there.retain(|at| at % CHUNK as u32 == 5 || nodes.remove(*at).parent != NONE);
        assert_eq!((nodes.len(), nodes.places()), (16, 1024));
        let mut end = nodes.end();
        while end > CHUNK {
            let look = |_: &Nodes<()>, at| (at != 69, 1);
            end = nodes.evacuate(end, 1, look, |_, from, to| {
                *there.iter_mut().find(|at| **at == from).unwrap() = to;
            });
        }
        assert!(there.iter().all(|at| nodes.get(*at).is_some()) && there.contains(&69));
        assert!(nodes.places() <= 3 * CHUNK && nodes.bytes() < full / 4);
        there.drain(..).for_each(|at| drop(nodes.remove(at)));
        assert_eq!((nodes.len(), nodes.places()), (0, CHUNK));
    }
}
