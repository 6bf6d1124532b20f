//! The namespaces, and the node where the lists of each begin. An ordered tree, since a hash map
//! would stop to rehash; a root knows its number here, so that letting it go searches nothing.
use super::NONE;
use crate::index::Namespace;
use crate::memory::treap::{self, Ranks, Side};
use crate::memory::{OutOfMemory, Slab};

#[derive(Debug)]
struct Root {
    namespace: Namespace,
    node: u32,
    before: u32,
    after: u32,
}

#[derive(Debug, Default)]
struct Places {
    slab: Slab<Root>,
    ranks: Ranks,
}

impl treap::Nodes for Places {
    fn link(&self, at: u32, side: Side) -> u32 {
        match side {
            Side::Before => self.slab[at].before,
            Side::After => self.slab[at].after,
        }
    }

    fn set_link(&mut self, at: u32, side: Side, to: u32) {
        match side {
            Side::Before => self.slab[at].before = to,
            Side::After => self.slab[at].after = to,
        }
    }

    fn is_before(&self, left: u32, right: u32) -> bool {
        self.slab[left].namespace < self.slab[right].namespace
    }

    fn rank(&self, at: u32) -> u64 {
        self.ranks.of(at)
    }
}

#[derive(Debug)]
pub(super) struct Roots {
    places: Places,
    top: u32,
    /// The root of the default namespace, which most engines use alone; NONE when it has none.
    default: u32,
}

impl Roots {
    pub(super) fn new() -> Self {
        Self { places: Places::default(), top: NONE, default: NONE }
    }

    /// Namespaces.
    pub(super) fn len(&self) -> usize {
        self.places.slab.len() + self.has_default() as usize
    }

    fn has_default(&self) -> bool {
        self.default != NONE
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.slab.bytes()
    }

    /// Makes room for one more.
    pub(super) fn try_reserve(&mut self, namespace: &Namespace) -> Result<(), OutOfMemory> {
        if *namespace == Namespace::default() { Ok(()) } else { self.places.slab.try_reserve(1) }
    }

    /// The node of a namespace.
    pub(super) fn get(&self, namespace: &Namespace) -> Option<u32> {
        if *namespace == Namespace::default() {
            return self.has_default().then_some(self.default);
        }
        let slab = &self.places.slab;
        let at = treap::next_where(&self.places, self.top, |at| slab[at].namespace >= *namespace)?;
        (slab[at].namespace == *namespace).then_some(slab[at].node)
    }

    /// Adds a namespace that is not there, and for which room was made; returns its number.
    pub(super) fn insert(&mut self, namespace: &Namespace, node: u32) -> u32 {
        if *namespace == Namespace::default() {
            self.default = node;
            return NONE;
        }
        let root = Root { namespace: *namespace, node, before: NONE, after: NONE };
        let number = self.places.slab.insert(root);
        self.top = treap::insert(&mut self.places, self.top, number);
        number
    }

    /// Takes a namespace out, by its number.
    pub(super) fn remove(&mut self, number: u32) {
        if number == NONE {
            self.default = NONE;
            return;
        }
        self.top = treap::remove(&mut self.places, self.top, number);
        self.places.slab.remove(number);
    }

    /// The node of a namespace, by the namespace's number.
    pub(super) fn node(&self, number: u32) -> u32 {
        if number == NONE { self.default } else { self.places.slab[number].node }
    }

    /// Tells of a root's new number as a node.
    pub(super) fn renumbered(&mut self, number: u32, node: u32) {
        if number == NONE {
            self.default = node;
        } else {
            self.places.slab[number].node = node;
        }
    }
}
