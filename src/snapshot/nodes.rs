//! The nodes of the tree: what lies in them, and how they hang together.
use super::NONE;
use super::label::Label;
use crate::index::Namespace;

/// The snapshot of the token list that ends at a node. It never changes: another one for the same
/// tokens is another entry.
#[derive(Debug)]
pub(super) struct Entry<V> {
    pub(super) value: V,
    pub(super) bytes: u64,
    pub(super) next_token: Option<u32>,
    /// Tells it from all entries before and after it.
    pub(super) serial: u64,
}

/// A segment of tokens, and perhaps an entry at its end. Nodes of one parent differ in their first
/// token. Whoever comes to a node of a large tree waits for memory once: what a lookup reads of it
/// lies side by side.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node<V> {
    /// The tokens between the parent's end and this node's; none at a root.
    pub(super) label: Label,
    /// NONE at a root.
    pub(super) parent: u32,
    pub(super) first_child: u32,
    /// Siblings, in no order that matters.
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) entry: Option<Entry<V>>,
    /// Of a root: what it is the root of.
    pub(super) namespace: Option<Box<Namespace>>,
}

/// All nodes, by number.
#[derive(Debug)]
pub(super) struct Nodes<V> {
    slots: Vec<Option<Node<V>>>,
    free: Vec<u32>,
}

impl<V> Nodes<V> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Nodes, roots included.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Numbers that were given out at the same time.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Node<V>>>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// A node that hangs nowhere yet.
    pub(super) fn add(&mut self, label: Label, namespace: Option<Box<Namespace>>) -> u32 {
        let node = Node {
            label,
            parent: NONE,
            first_child: NONE,
            before: NONE,
            after: NONE,
            entry: None,
            namespace,
        };
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(node);
            return at;
        }
        self.slots.push(Some(node));
        self.slots.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, at: u32) -> Node<V> {
        self.free.push(at);
        self.slots[at as usize].take().expect("a node that is there")
    }

    pub(super) fn get(&self, at: u32) -> Option<&Node<V>> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Node<V>> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Every node that has an entry, with its number.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, &Entry<V>)> {
        self.iter().filter_map(|(at, node)| Some((at, node.entry.as_ref()?)))
    }

    /// Every node with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Node<V>)> {
        self.slots.iter().enumerate().filter_map(|(at, node)| Some((at as u32, node.as_ref()?)))
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

    /// Makes a node the first child of another.
    pub(super) fn hang(&mut self, parent: u32, child: u32) {
        let second = std::mem::replace(&mut self[parent].first_child, child);
        let node = &mut self[child];
        (node.parent, node.before, node.after) = (parent, NONE, second);
        if second != NONE {
            self[second].before = child;
        }
    }

    /// Takes a node away from its parent.
    pub(super) fn unhang(&mut self, child: u32) {
        let Node { parent, before, after, .. } = self[child];
        match before {
            NONE => self[parent].first_child = after,
            before => self[before].after = after,
        }
        if after != NONE {
            self[after].before = before;
        }
        self[child].parent = NONE;
    }

    /// Puts a node that hangs nowhere in the place of another, which then hangs nowhere.
    pub(super) fn replace(&mut self, old: u32, new: u32) {
        let Node { parent, before, after, .. } = self[old];
        let node = &mut self[new];
        (node.parent, node.before, node.after) = (parent, before, after);
        match before {
            NONE => self[parent].first_child = new,
            before => self[before].after = new,
        }
        if after != NONE {
            self[after].before = new;
        }
        self[old].parent = NONE;
    }

    /// Moves the nodes together, for when most numbers are unused. Returns the new number of each.
    pub(super) fn renumber(&mut self) -> Vec<u32> {
        let mut new = vec![NONE; self.slots.len()];
        let mut kept = Vec::with_capacity(self.len());
        for (at, node) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            if node.is_some() {
                new[at] = kept.len() as u32;
                kept.push(node);
            }
        }
        for node in kept.iter_mut().flatten() {
            let links =
                [&mut node.parent, &mut node.first_child, &mut node.before, &mut node.after];
            for link in links.into_iter().filter(|link| **link != NONE) {
                *link = new[*link as usize];
            }
        }
        *self = Self { slots: kept, free: Vec::new() };
        new
    }
}

impl<V> std::ops::Index<u32> for Nodes<V> {
    type Output = Node<V>;

    fn index(&self, at: u32) -> &Node<V> {
        self.slots[at as usize].as_ref().expect("a node that is there")
    }
}

impl<V> std::ops::IndexMut<u32> for Nodes<V> {
    fn index_mut(&mut self, at: u32) -> &mut Node<V> {
        self.slots[at as usize].as_mut().expect("a node that is there")
    }
}
