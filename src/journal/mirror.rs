//! What each page holds now: its keys, and its place in the prefix that it belongs to.
//!
//! One entry and `page_size` keys for each page of the table, allocated once. Images are known by
//! their keys: as long as the page is held, its keys hold them.
use super::Entered;
use super::names::Names;
use super::record::Stored;
use crate::index::Namespace;
use crate::memory::{OutOfMemory, try_touched_zeros};
use crate::token::{Images, Keys, all_text, visit_parts};

/// A page's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The page before it; 0 for none.
    parent: u32,
    /// Pages before it in the prefix.
    index: u32,
    /// The number of the namespace, plus one; 0 while the page is not held. A page whose namespace
    /// was cleared is not held either.
    name: u32,
    /// Positions of an image that begins before the page and goes on in it.
    open: u32,
}

impl Entry {
    /// As it is kept: all zero while nothing is known of the page.
    fn words(self) -> [u32; 4] {
        [self.parent, self.index, self.name, self.open]
    }
}

#[derive(Debug)]
pub(super) struct Mirror {
    page_size: usize,
    entries: Vec<[u32; 4]>,
    /// Of a page that is held, the record that says so, or one of the next: the last 32 bits of its
    /// number.
    numbers: Vec<u32>,
    keys: Vec<u32>,
    held: usize,
    pub names: Names,
}

impl Mirror {
    pub fn new(page_size: usize, page_count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            page_size,
            entries: try_touched_zeros(page_count)?,
            numbers: try_touched_zeros(page_count)?,
            keys: try_touched_zeros(page_count.checked_mul(page_size).ok_or(OutOfMemory)?)?,
            held: 0,
            names: Names::default(),
        })
    }

    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Pages that could be held, page 0 included.
    pub fn page_count(&self) -> usize {
        self.entries.len()
    }

    /// Pages that are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<[u32; 4]>();
        let numbers = self.numbers.capacity() * size_of::<u32>();
        entries + numbers + self.keys.capacity() * size_of::<u32>() + self.names.bytes()
    }

    fn entry(&self, page: usize) -> Entry {
        let [parent, index, name, open] = self.entries[page];
        Entry { parent, index, name, open }
    }

    pub fn has(&self, page: u32) -> bool {
        self.is_held(self.entry(page as usize))
    }

    fn is_held(&self, entry: Entry) -> bool {
        entry.name != 0 && !self.names.is_cleared(entry.name - 1)
    }

    /// Nothing of a namespace is held any more. Its pages are known until each is removed. False
    /// when there were none.
    pub fn clear(&mut self, name: &Namespace) -> bool {
        let pages = self.names.clear(name);
        self.held -= pages;
        pages > 0
    }

    /// The page before a page that is held; 0 for none.
    pub fn parent(&self, page: u32) -> u32 {
        self.entry(page as usize).parent
    }

    /// Pages before a page that is held.
    pub fn index(&self, page: u32) -> usize {
        self.entry(page as usize).index as usize
    }

    /// Whether a page is held, and stands right behind another one.
    pub fn follows(&self, page: u32, before: u32) -> bool {
        let entry = self.entry(page as usize);
        self.is_held(entry) && entry.parent == before
    }

    /// The keys of pages whose numbers follow each other.
    pub fn keys_of(&self, first: usize, count: usize) -> &[u32] {
        &self.keys[first * self.page_size..(first + count) * self.page_size]
    }

    /// Positions of an image that begins before a page that is held and goes on in it.
    pub fn open_before(&self, page: u32) -> u32 {
        self.entry(page as usize).open
    }

    /// How many positions of an image are read that goes on after a page.
    pub fn open_after(&self, page: u32, images: &Images) -> u32 {
        let keys = Keys { keys: self.keys_of(page as usize, 1), images };
        visit_parts(keys, self.open_before(page), &mut |_| {})
    }

    /// The namespace of a page that is held.
    pub fn name(&self, page: u32) -> &Namespace {
        self.names.name(self.entry(page as usize).name - 1)
    }

    /// Pages that came in; room was made for their namespace.
    pub fn store(&mut self, entered: &Entered<'_>) {
        let Keys { keys, images } = entered.keys;
        assert_eq!(keys.len(), entered.pages.len() * self.page_size, "the keys are the pages'");
        let (mut parent, name) = (entered.parent, self.name_after(entered));
        let (mut index, mut open) = match parent {
            0 => (0, 0),
            parent => (self.index(parent) + 1, self.open_after(parent, images)),
        };
        let text = all_text(keys);
        for (&page, keys) in entered.pages.iter().zip(keys.chunks_exact(self.page_size)) {
            let at = page as usize;
            assert!(self.entry(at).name == 0, "page {page} is held already");
            self.entries[at] = Entry { parent, index: index as u32, name, open }.words();
            self.keys[at * self.page_size..][..self.page_size].copy_from_slice(keys);
            if !text {
                open = visit_parts(Keys { keys, images }, open, &mut |_| {});
            }
            (parent, index) = (page, index + 1);
        }
        self.names.add(name - 1, entered.pages.len());
        self.held += entered.pages.len();
    }

    /// Of pages that came in all is written down with a record of this number.
    pub fn set_number(&mut self, pages: &[u32], number: u64) {
        pages.iter().for_each(|&page| self.numbers[page as usize] = number as u32);
    }

    /// Of a page that is held, the record that says so, or a later one; none is later than
    /// `newest`.
    pub fn number(&self, page: u32, newest: u64) -> Option<u64> {
        let age = (newest as u32).wrapping_sub(self.numbers[page as usize]);
        self.has(page).then(|| newest - u64::from(age))
    }

    fn name_after(&mut self, entered: &Entered<'_>) -> u32 {
        match entered.parent {
            0 => self.names.number(entered.namespace) + 1,
            parent => {
                let name = self.entry(parent as usize).name;
                assert!(name != 0, "page {parent} is held: others go on from it");
                name
            }
        }
    }

    /// A page that left. Returns whether it was held, or cleared before; None when nobody was told
    /// that it came.
    pub fn remove(&mut self, page: u32) -> Option<bool> {
        let entry = self.entry(page as usize);
        self.entries[page as usize] = [0; 4];
        let name = entry.name.checked_sub(1)?;
        let was_held = !self.names.is_cleared(name);
        self.names.take(name);
        self.held -= was_held as usize;
        Some(was_held)
    }

    /// What a record says of pages of a group, where those of group 0 with the same positions are
    /// held, and the page before is known.
    pub fn stored<'a>(
        &'a self,
        parent: u32,
        (group, pages, spine): (usize, &'a [u32], &'a [u32]),
    ) -> Stored<'a> {
        Stored {
            namespace: self.name(spine[0]),
            parent,
            first_position: self.index(spine[0]) as u64 * self.page_size as u64,
            group,
            pages,
            spine,
        }
    }
}
