//! The root of each namespace, and roots that none leads to any more.
use super::Namespace;
use super::node::NONE;
use crate::error::Message;
use crate::memory::{OrderedMap, OutOfMemory};

/// Namespaces and their roots, both ways. Ordered maps, since a hash map would stop the scheduler
/// to rehash.
#[derive(Debug)]
pub struct Roots {
    by_name: OrderedMap<Namespace, u32>,
    names: OrderedMap<u32, Namespace>,
    /// The root of the default namespace, which most engines use alone; NONE when it has none.
    default: u32,
    /// Roots in `names` that are not in `by_name`.
    detached: usize,
}

impl Roots {
    /// None yet.
    pub fn new() -> Self {
        Self {
            by_name: OrderedMap::default(),
            names: OrderedMap::default(),
            default: NONE,
            detached: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Roots that no namespace leads to.
    #[inline]
    pub fn detached(&self) -> usize {
        self.detached
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.names.len()
    }

    pub fn bytes(&self) -> usize {
        self.by_name.bytes() + self.names.bytes()
    }

    /// Makes room for one root more.
    pub fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        self.by_name.try_reserve(1)?;
        self.names.try_reserve(1)
    }

    #[inline(always)] // of every lookup
    pub fn find(&self, name: &Namespace) -> Option<u32> {
        if name.is_known_default() { self.default() } else { self.find_any(name) }
    }

    #[inline(never)]
    fn find_any(&self, name: &Namespace) -> Option<u32> {
        if name.is_default() { self.default() } else { self.by_name.get(name).copied() }
    }

    #[inline(always)]
    fn default(&self) -> Option<u32> {
        Some(self.default).filter(|&root| root != NONE)
    }

    pub(super) fn name(&self, root: u32) -> Namespace {
        *self.names.get(&root).expect("a root has a name")
    }

    /// Adds a root, for which room was made.
    pub fn insert(&mut self, name: Namespace, root: u32) {
        if name.is_default() {
            self.default = root;
        }
        self.by_name.insert(name, root);
        self.names.insert(root, name);
    }

    /// Adds a root that no namespace leads to, for which room was made.
    pub(super) fn insert_detached(&mut self, name: Namespace, root: u32) {
        self.names.insert(root, name);
        self.detached += 1;
    }

    /// Lets the namespace of a root lead nowhere; returns it.
    pub(super) fn detach(&mut self, root: u32) -> Namespace {
        let name = self.name(root);
        let led_to = self.by_name.remove(&name);
        assert_eq!(led_to, Some(root), "a namespace leads to its root");
        if root == self.default {
            self.default = NONE;
        }
        self.detached += 1;
        name
    }

    /// Gives a root another number, which needs no memory.
    pub fn renumber(&mut self, from: u32, to: u32) {
        let name = self.names.remove(&from).expect("a root has a name");
        self.names.insert(to, name);
        self.by_name.insert(name, to);
        if self.default == from {
            self.default = to;
        }
    }

    pub fn remove(&mut self, root: u32) -> Namespace {
        if self.by_name.get(&self.name(root)) == Some(&root) {
            self.detach(root);
        }
        self.detached -= 1;
        self.names.remove(&root).expect("a root has a name")
    }

    /// Those whose names come after one, in the order of the names; all for None.
    pub fn after(&self, last: Option<&Namespace>) -> impl Iterator<Item = (&Namespace, u32)> {
        let from = last.copied().unwrap_or_default();
        let entries = self.by_name.from(&from).map(|(name, &root)| (name, root));
        // The default namespace is the first.
        entries.filter(move |(name, _)| last.is_none() || **name != from)
    }

    /// In the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&Namespace, u32)> {
        self.by_name.iter().map(|(name, &root)| (name, root))
    }

    /// What is wrong with the maps, when `count` nodes are roots and `is_root` tells which.
    pub(super) fn check(&self, count: usize, is_root: impl Fn(u32) -> bool) -> Result<(), Message> {
        for (name, root) in self.iter() {
            if !is_root(root) || self.names.get(&root) != Some(name) {
                return Err("namespace_root: a namespace leads to no root of its own".into());
            }
        }
        let default = self.by_name.get(&Namespace::default()).copied();
        if default.unwrap_or(NONE) != self.default {
            return Err("namespace_root: the default namespace is found elsewhere".into());
        }
        let (found, all) = (self.by_name.len(), self.names.len());
        if count != all || found + self.detached != all {
            return Err("namespace_root: a root has no namespace".into());
        }
        Ok(())
    }
}
