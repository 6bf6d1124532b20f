//! A map in the order of its keys. Room for an entry can be made beforehand; then an insert can't
//! fail. A change moves nothing but a few links: no call ever stops to rehash or to copy.
use super::treap::{self, NONE, Ranks, Side};
use super::{OutOfMemory, Slab};

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    before: u32,
    after: u32,
}

/// Values by key.
#[derive(Debug)]
pub struct OrderedMap<K, V> {
    entries: Entries<K, V>,
    root: u32,
}

#[derive(Debug)]
struct Entries<K, V> {
    slab: Slab<Entry<K, V>>,
    ranks: Ranks,
}

impl<K: Ord, V> treap::Nodes for Entries<K, V> {
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
        self.slab[left].key < self.slab[right].key
    }

    fn rank(&self, at: u32) -> u64 {
        self.ranks.of(at)
    }
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        let entries = Entries { slab: Slab::default(), ranks: Ranks::default() };
        Self { entries, root: NONE }
    }
}

impl<K: Ord, V> OrderedMap<K, V> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.slab.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.slab.is_empty()
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.entries.slab.bytes()
    }

    /// Makes room for so many entries more.
    pub fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.entries.slab.try_reserve(count)
    }

    fn entry(&self, at: u32) -> (&K, &V) {
        let entry = &self.entries.slab[at];
        (&entry.key, &entry.value)
    }

    fn find(&self, key: &K) -> Option<u32> {
        let slab = &self.entries.slab;
        let found = treap::next_where(&self.entries, self.root, |at| slab[at].key >= *key);
        found.filter(|&at| slab[at].key == *key)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|at| self.entry(at).1)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key)?;
        Some(&mut self.entries.slab[at].value)
    }

    /// Gives a key a value, for which room was made; returns the value that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(at) = self.find(&key) {
            return Some(std::mem::replace(&mut self.entries.slab[at].value, value));
        }
        let at = self.entries.slab.insert(Entry { key, value, before: NONE, after: NONE });
        self.root = treap::insert(&mut self.entries, self.root, at);
        None
    }

    /// `insert`, and room for it.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, OutOfMemory> {
        self.try_reserve(1)?;
        Ok(self.insert(key, value))
    }

    /// Takes a key's value out. The room stays.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key)?;
        self.root = treap::remove(&mut self.entries, self.root, at);
        Some(self.entries.slab.remove(at).value)
    }

    /// The first entry.
    pub fn first(&self) -> Option<(&K, &V)> {
        treap::first(&self.entries, self.root).map(|at| self.entry(at))
    }

    /// The last entry.
    pub fn last(&self) -> Option<(&K, &V)> {
        treap::last(&self.entries, self.root).map(|at| self.entry(at))
    }

    /// The last entry before a key.
    pub fn before(&self, key: &K) -> Option<(&K, &V)> {
        let slab = &self.entries.slab;
        let last = treap::last_where(&self.entries, self.root, |at| slab[at].key < *key);
        last.map(|at| self.entry(at))
    }

    /// The entries from a key on, in order. Each step takes O(log n).
    pub fn from<'a>(&'a self, key: &K) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let slab = &self.entries.slab;
        let first = treap::next_where(&self.entries, self.root, |at| slab[at].key >= *key);
        self.successors(first)
    }

    /// All entries, in order. Each step takes O(log n).
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.successors(treap::first(&self.entries, self.root))
    }

    fn successors(&self, first: Option<u32>) -> impl Iterator<Item = (&K, &V)> + use<'_, K, V> {
        let slab = &self.entries.slab;
        let next = move |&last: &u32| {
            treap::next_where(&self.entries, self.root, |at| slab[at].key > slab[last].key)
        };
        std::iter::successors(first, next).map(|at| self.entry(at))
    }
}

#[cfg(test)]
mod tests {
    use super::OrderedMap;
    use std::collections::BTreeMap;

    #[test]
    fn does_what_a_btree_does() {
        let mut rng = fastrand::Rng::with_seed(7);
        for keys in [8, 100, 3000] {
            let (mut map, mut model) = (OrderedMap::default(), BTreeMap::new());
            for round in 0..20_000 {
                let key = rng.u32(..keys);
                if rng.bool() {
                    assert_eq!(map.try_insert(key, round), Ok(model.insert(key, round)));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                assert_eq!(map.get(&key), model.get(&key));
                assert_eq!(map.len(), model.len());
                assert_eq!(map.first(), model.first_key_value());
                assert_eq!(map.last(), model.last_key_value());
                assert_eq!(map.before(&key), model.range(..key).next_back());
                if round % 1000 == 0 {
                    assert!(map.iter().eq(model.iter()));
                    assert!(map.from(&key).eq(model.range(key..)));
                }
            }
        }
    }

    #[test]
    fn ascending_keys_do_not_make_it_deep() {
        let mut map = OrderedMap::default();
        (0..1 << 16).for_each(|key| assert_eq!(map.try_insert(key, ()), Ok(None)));
        let mut steps = 0;
        super::treap::next_where(&map.entries, map.root, |_| {
            steps += 1;
            steps % 2 == 0
        });
        assert!(steps < 64, "{steps} steps in a tree of 2^16");
    }
}
