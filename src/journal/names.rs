//! The namespaces of the pages that are held, each with a number and a count of its pages.
use crate::index::Namespace;
use crate::memory::{OrderedMap, OutOfMemory, Slab};

#[derive(Debug)]
struct Entry {
    name: Namespace,
    pages: usize,
    /// It was cleared: the namespace has another number, or none.
    cleared: bool,
}

/// Namespaces by number and numbers by namespace.
#[derive(Debug, Default)]
pub(super) struct Names {
    entries: Slab<Entry>,
    numbers: OrderedMap<Namespace, u32>,
}

impl Names {
    /// Makes room for one more.
    pub fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        self.entries.try_reserve(1)?;
        self.numbers.try_reserve(1)
    }

    /// The number of a namespace, for which room was made.
    pub fn number(&mut self, name: &Namespace) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.entries.insert(Entry { name: *name, pages: 0, cleared: false });
        self.numbers.insert(*name, number);
        number
    }

    pub fn name(&self, number: u32) -> &Namespace {
        &self.entries[number].name
    }

    /// Counts pages that came.
    pub fn add(&mut self, number: u32, pages: usize) {
        self.entries[number].pages += pages;
    }

    /// Whether the namespace of a number was cleared.
    pub fn is_cleared(&self, number: u32) -> bool {
        self.entries[number].cleared
    }

    /// Parts a namespace from its number, which stays until its pages are gone; returns how many
    /// those are.
    pub fn clear(&mut self, name: &Namespace) -> usize {
        let Some(number) = self.numbers.remove(name) else {
            return 0;
        };
        let entry = &mut self.entries[number];
        entry.cleared = true;
        entry.pages
    }

    /// Counts a page that went. With the last one the namespace goes.
    pub fn take(&mut self, number: u32) {
        let entry = &mut self.entries[number];
        entry.pages -= 1;
        if entry.pages == 0 {
            let entry = self.entries.remove(number);
            if !entry.cleared {
                self.numbers.remove(&entry.name);
            }
        }
    }

    /// Pages of all namespaces that were not cleared; of all, none has none.
    pub fn count(&self) -> Option<usize> {
        let there = || self.numbers.iter().map(|(name, &number)| (name, &self.entries[number]));
        let is_right = |(name, entry): (&Namespace, &Entry)| {
            entry.name == *name && entry.pages > 0 && !entry.cleared
        };
        there().all(is_right).then(|| there().map(|(_, entry)| entry.pages).sum())
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.entries.bytes() + self.numbers.bytes()
    }
}
