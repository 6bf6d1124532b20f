//! The books beside the library: whose each page is, what was computed into it, and who relies on
//! it. They know the cache page by page: a page leaves it only by an eviction that is reported, or
//! when it is handed out to somebody else, and both are seen here.
//!
//! What is computed is a ghost: the digest of everything up to the position. So a wrong hit, or a
//! page that was written while others read it, is seen by comparing numbers.
use super::tokens::{Digest, Tokens};
use crate::model::spaces::{Lives, Space};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type Wrong = String;

/// Fails with a message unless a condition holds.
macro_rules! require {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use require;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Reserved,
    Free,
    /// The foreign user's, in no row.
    Loose,
    /// Private to the row of a slot.
    Row(u32),
    /// Private to a retained sequence.
    Kept,
    /// Nobody's, and kept for the copies that read it.
    Lent,
    Cached,
}

/// Digests are spread already.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type ByDigest<T> = HashMap<Digest, T, BuildHasherDefault<AsItIs>>;

/// Pages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub free: usize,
    pub cached: usize,
    pub private: usize,
    /// Cached pages that somebody is known to protect.
    pub protected: usize,
    pub evicted: usize,
}

pub struct Books {
    page_size: usize,
    states: Vec<Page>,
    contents: Vec<Digest>,
    /// Copies that are still to be made of a private page.
    readers: Vec<u32>,
    /// Holders that rely on a cached page.
    protectors: Vec<u32>,
    /// Cached pages that follow a cached page.
    followers: Vec<u32>,
    /// What stands before a cached page, and what its first and its last position mean.
    before: Vec<Digest>,
    ends: Vec<(Digest, Digest)>,
    /// In which space a cached page is.
    spaces: Vec<Space>,
    pub lives: Lives,
    /// Cached pages that somebody let go, to be looked at.
    unprotected: Vec<u32>,
    /// When a cached page was used last.
    used: Vec<u64>,
    clock: u64,
    /// Cached pages by their last and by their first position.
    by_end: ByDigest<u32>,
    by_first: ByDigest<Vec<u32>>,
    pub counts: Counts,
    /// Locks that may protect more than is known here: on the whole node of a page that its owner
    /// published while it was still to be copied.
    pub wide_locks: usize,
}

impl Books {
    pub fn new(page_size: usize, page_count: usize) -> Self {
        let mut states = vec![Page::Free; page_count];
        states[0] = Page::Reserved;
        Books {
            page_size,
            states,
            contents: vec![0; page_count * page_size],
            readers: vec![0; page_count],
            protectors: vec![0; page_count],
            followers: vec![0; page_count],
            before: vec![0; page_count],
            ends: vec![(0, 0); page_count],
            spaces: vec![Space::default(); page_count],
            lives: Lives::default(),
            unprotected: Vec::new(),
            used: vec![0; page_count],
            clock: 0,
            by_end: ByDigest::default(),
            by_first: ByDigest::default(),
            counts: Counts { free: page_count - 1, ..Counts::default() },
            wide_locks: 0,
        }
    }

    pub fn state(&self, page: u32) -> Page {
        self.states[page as usize]
    }

    pub fn page_count(&self) -> u32 {
        self.states.len() as u32
    }

    pub fn space(&self, page: u32) -> Space {
        self.spaces[page as usize]
    }

    pub fn content(&self, page: u32) -> &[Digest] {
        &self.contents[page as usize * self.page_size..][..self.page_size]
    }

    pub fn content_mut(&mut self, page: u32) -> &mut [Digest] {
        &mut self.contents[page as usize * self.page_size..][..self.page_size]
    }

    fn count_of(&mut self, state: Page) -> &mut usize {
        match state {
            Page::Free => &mut self.counts.free,
            Page::Cached => &mut self.counts.cached,
            Page::Reserved => unreachable!("page 0 stays where it is"),
            _ => &mut self.counts.private,
        }
    }

    pub fn set(&mut self, page: u32, state: Page) {
        let before = std::mem::replace(&mut self.states[page as usize], state);
        *self.count_of(before) -= 1;
        *self.count_of(state) += 1;
    }

    // Pages come and go.

    /// Pages were handed out: they were free, or evicted for it.
    pub fn hand_out(&mut self, pages: &[u32], to: Page) -> Result<(), Wrong> {
        let mut evicts = false;
        for &page in pages {
            let state = self.states.get(page as usize).copied();
            require!(
                matches!(state, Some(Page::Free | Page::Cached)),
                "page {page} is handed out to {to:?} while it is {state:?}"
            );
            evicts |= state == Some(Page::Cached);
        }
        if evicts {
            let cached = pages.iter().copied().filter(|&page| self.state(page) == Page::Cached);
            self.evicted(&cached.collect::<Vec<_>>())?;
        }
        for &page in pages {
            require!(self.state(page) == Page::Free, "page {page} is handed out twice at once");
            self.set(page, to);
        }
        Ok(())
    }

    /// Pages were evicted: nobody relied on them, and nothing that stays follows them.
    pub fn evicted(&mut self, pages: &[u32]) -> Result<(), Wrong> {
        for &page in pages {
            let state = self.states.get(page as usize).copied();
            require!(state == Some(Page::Cached), "page {page} is evicted while it is {state:?}");
            let holders = self.protectors[page as usize];
            require!(holders == 0, "page {page} is evicted while {holders} rely on it");
            self.follow_no_more(page);
        }
        // While every lock is known, so is who is next.
        if self.wide_locks == 0 {
            self.check_order(pages)?;
        }
        for &page in pages {
            let followers = self.followers[page as usize];
            require!(followers == 0, "page {page} is evicted before {followers} that follow it");
            require!(self.state(page) == Page::Cached, "page {page} is evicted twice at once");
            self.forget(page);
            self.set(page, Page::Free);
        }
        self.counts.evicted += pages.len();
        Ok(())
    }

    /// A page that nobody finds goes.
    pub fn drop_cleared(&mut self, page: u32) {
        self.follow_no_more(page);
        self.forget(page);
        self.set(page, Page::Free);
    }

    fn follow_no_more(&mut self, page: u32) {
        if let Some(&parent) = self.by_end.get(&self.before[page as usize]) {
            self.followers[parent as usize] -= 1;
        }
    }

    /// Nothing that could have gone before these pages was used longer ago.
    fn check_order(&self, evicted: &[u32]) -> Result<(), Wrong> {
        let used = |page: u32| self.used[page as usize];
        let Some(newest) = evicted.iter().map(|&page| used(page)).max() else { return Ok(()) };
        // Those that had to wait for an evicted page.
        let before = |&page: &u32| self.cached(self.before[page as usize]);
        let waited: Vec<u32> = evicted.iter().filter_map(before).collect();
        for page in 1..self.states.len() as u32 {
            let could_go = self.state(page) == Page::Cached
                && used(page) <= newest
                && self.followers[page as usize] == 0
                && !self.is_protected(page);
            require!(
                !could_go || evicted.contains(&page) || waited.contains(&page),
                "pages {evicted:?} are evicted, and {page} was used longer ago"
            );
        }
        Ok(())
    }

    /// A lookup, or a child of a parent, used these pages.
    pub fn touch(&mut self, pages: &[u32]) {
        self.clock += 1;
        pages.iter().for_each(|&page| self.used[page as usize] = self.clock);
    }

    fn forget(&mut self, page: u32) {
        let (first, end) = self.ends[page as usize];
        self.by_end.remove(&end);
        let same = self.by_first.get_mut(&first).expect("it was published");
        same.retain(|&other| other != page);
        if same.is_empty() {
            self.by_first.remove(&first);
        }
    }

    /// A private page becomes the cache's.
    pub fn publish(&mut self, page: u32, tokens: &Tokens, index: usize) -> Result<(), Wrong> {
        let at = index * self.page_size;
        let wanted = &tokens.digests()[at..at + self.page_size];
        require!(self.content(page) == wanted, "page {page} is published with other content");
        let (first, end) = (tokens.key(at), tokens.key(at + self.page_size - 1));
        let before = tokens.key_before(at);
        self.spaces[page as usize] = tokens.space;
        self.before[page as usize] = before;
        self.ends[page as usize] = (first, end);
        self.followers[page as usize] = 0;
        self.used[page as usize] = self.clock;
        if let Some(&parent) = self.by_end.get(&before) {
            self.followers[parent as usize] += 1;
        }
        let there = self.by_end.insert(end, page);
        require!(there.is_none(), "page {page} is claimed although {there:?} is cached");
        self.by_first.entry(first).or_default().push(page);
        self.set(page, Page::Cached);
        Ok(())
    }

    /// A private page goes; it stays for copies that are still to be made.
    pub fn give_up(&mut self, page: u32) {
        let lent = self.readers[page as usize] > 0;
        self.set(page, if lent { Page::Lent } else { Page::Free });
    }

    pub fn borrow(&mut self, page: u32) {
        self.readers[page as usize] += 1;
    }

    pub fn is_borrowed(&self, page: u32) -> bool {
        self.readers[page as usize] > 0
    }

    pub fn end_borrowing(&mut self, page: u32) {
        self.readers[page as usize] -= 1;
        if self.readers[page as usize] == 0 && self.state(page) == Page::Lent {
            self.set(page, Page::Free);
        }
    }

    /// The cache is destroyed.
    pub fn drop_cache(&mut self) {
        for page in 1..self.states.len() as u32 {
            if matches!(self.state(page), Page::Cached | Page::Kept | Page::Lent) {
                self.set(page, Page::Free);
            }
        }
        self.readers.fill(0);
        self.protectors.fill(0);
        self.followers.fill(0);
        self.by_end.clear();
        self.by_first.clear();
        self.unprotected.clear();
        (self.counts.protected, self.counts.evicted, self.wide_locks) = (0, 0, 0);
    }

    // What is cached.

    pub fn cached(&self, end: Digest) -> Option<u32> {
        self.by_end.get(&end).copied()
    }

    /// The cached whole pages of a prompt.
    pub fn path(&self, tokens: &Tokens) -> Vec<u32> {
        self.path_from(tokens, 0, tokens.positions()).collect()
    }

    /// The cached pages of some of its positions, from an index on.
    pub fn path_from<'a>(
        &'a self,
        tokens: &'a Tokens,
        first: usize,
        positions: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let pages = first..positions / self.page_size;
        pages.map_while(|index| self.cached(tokens.key((index + 1) * self.page_size - 1)))
    }

    /// Positions after the whole pages that some cached page begins with.
    pub fn partial(&self, tokens: &Tokens, whole: usize) -> usize {
        let at = whole * self.page_size;
        let rest = &tokens.digests()[at..];
        let first = (!rest.is_empty()).then(|| tokens.key(at));
        let Some(candidates) = first.and_then(|first| self.by_first.get(&first)) else {
            return 0;
        };
        let common = |&page: &u32| {
            self.content(page).iter().zip(rest).take_while(|(ours, asked)| ours == asked).count()
        };
        candidates.iter().map(common).max().unwrap_or(0)
    }

    /// Whether pages hold the KV of the first positions of a prompt.
    pub fn holds(&self, pages: &[u32], tokens: &Tokens, positions: usize) -> Result<(), Wrong> {
        let wanted = &tokens.digests()[..positions];
        for (index, wanted) in wanted.chunks(self.page_size).enumerate() {
            let page = pages[index];
            require!(
                self.content(page)[..wanted.len()] == *wanted,
                "page {page} at index {index} holds other KV than the prompt's: {:?}",
                self.state(page)
            );
        }
        Ok(())
    }

    // Who relies on what.

    pub fn protect(&mut self, pages: &[u32]) {
        for &page in pages {
            self.protectors[page as usize] += 1;
            self.counts.protected += usize::from(self.protectors[page as usize] == 1);
        }
    }

    pub fn unprotect(&mut self, pages: &[u32]) {
        for &page in pages {
            self.protectors[page as usize] -= 1;
            self.counts.protected -= usize::from(self.protectors[page as usize] == 0);
        }
        self.look_at(pages);
    }

    /// These may be free by now, if they were cleared.
    pub fn look_at(&mut self, pages: &[u32]) {
        if self.lives.clears() > 0 {
            self.unprotected.extend(pages);
        }
    }

    pub fn take_unprotected(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unprotected)
    }

    pub fn is_protected(&self, page: u32) -> bool {
        self.protectors[page as usize] > 0
    }

    /// Cached pages of these that nobody is known to protect.
    pub fn unprotected(&self, pages: &[u32]) -> usize {
        pages.iter().filter(|&&page| !self.is_protected(page)).count()
    }
}
