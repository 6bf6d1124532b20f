//! What the pages of the device hold, as far as the journal was followed.
//!
//! Pages of all pools have numbers: those of pool 0 their own, those of the others the ones behind.
use super::map::Name;
use crate::group::GROUP_LIMIT;
use crate::memory::{OutOfMemory, try_zeros};
use crate::token::PageDigest;

/// A page of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub digest: PageDigest,
    pub group: u8,
    /// The page before it; 0 for none. Of a group beside the first, the page of group 0 that it
    /// hangs on.
    pub before: u32,
    pub space: u32,
    /// Fetches that went on from it or from what follows it.
    pub uses: u8,
    /// It waits to be stored, or is on its way.
    pub is_queued: bool,
    /// It was stored since it came: not again, whatever becomes of that.
    pub was_stored: bool,
}

impl Page {
    /// A page of a group, with the digest of its positions.
    pub fn new((digest, group): (PageDigest, u8), before: u32, space: u32) -> Self {
        Self { digest, group, before, space, uses: 0, is_queued: false, was_stored: false }
    }

    /// What the page is found by below the device.
    pub fn name(&self) -> Name {
        Name { digest: self.digest, group: self.group }
    }
}

const QUEUED: u32 = 1;
const STORED: u32 = 2;
/// Its number is in the queue of stores, whatever it holds by now.
const LISTED: u32 = 1 << 10;

#[derive(Debug)]
pub(super) struct Pages {
    digests: Vec<[u8; 32]>,
    /// Before, the number of the namespace plus one, group, uses and flags.
    words: Vec<[u32; 3]>,
    /// The number before the first page of each pool.
    firsts: [u32; GROUP_LIMIT],
    pools: usize,
}

impl Pages {
    /// For so many pages of each pool, page 0 included.
    pub fn new(pool_pages: &[usize]) -> Result<Self, OutOfMemory> {
        let pages = pool_pages.iter().sum();
        // A journal names no more pages than have numbers.
        let (mut firsts, mut first) = ([0; GROUP_LIMIT], 0);
        for (into, &pages) in firsts.iter_mut().zip(pool_pages) {
            *into = first;
            first += pages as u32;
        }
        let pools = pool_pages.len();
        Ok(Self { digests: try_zeros(pages)?, words: try_zeros(pages)?, firsts, pools })
    }

    /// The number of a page of a pool.
    pub fn number(&self, pool: usize, page: u32) -> u32 {
        self.firsts[pool] + page
    }

    /// The pool of a page, and its number there.
    pub fn place(&self, number: u32) -> (usize, u32) {
        let pool = self.firsts[..self.pools].iter().rposition(|&first| first <= number);
        let pool = pool.unwrap_or(0);
        (pool, number - self.firsts[pool])
    }

    /// All pages are below this.
    pub fn end(&self) -> u32 {
        self.words.len() as u32
    }

    pub fn get(&self, page: u32) -> Option<Page> {
        let [before, space, rest] = self.words[page as usize];
        Some(Page {
            digest: PageDigest(self.digests[page as usize]),
            before,
            space: space.checked_sub(1)?,
            group: (rest >> 16) as u8,
            uses: (rest >> 2) as u8,
            is_queued: rest & QUEUED != 0,
            was_stored: rest & STORED != 0,
        })
    }

    pub fn set(&mut self, page: u32, what: Page) {
        let flags = what.is_queued as u32 * QUEUED + what.was_stored as u32 * STORED;
        let listed = self.words[page as usize][2] & LISTED;
        let rest = u32::from(what.group) << 16 | u32::from(what.uses) << 2 | flags | listed;
        self.words[page as usize] = [what.before, what.space + 1, rest];
        self.digests[page as usize] = what.digest.0;
    }

    pub fn set_queued(&mut self, page: u32, is_queued: bool) {
        let rest = &mut self.words[page as usize][2];
        *rest = (*rest & !QUEUED) | (is_queued as u32 * QUEUED);
    }

    pub fn set_stored(&mut self, page: u32) {
        self.words[page as usize][2] |= STORED;
    }

    /// Says whether its number is in the queue of stores. Returns whether it was.
    pub fn set_listed(&mut self, page: u32, is_listed: bool) -> bool {
        let rest = &mut self.words[page as usize][2];
        let was = *rest & LISTED != 0;
        *rest = (*rest & !LISTED) | (is_listed as u32 * LISTED);
        was
    }

    pub fn forget(&mut self, page: u32) {
        let listed = self.words[page as usize][2] & LISTED;
        self.words[page as usize] = [0, 0, listed];
    }

    /// The digest of the page before one; none at the beginning of a prefix, and in a group beside
    /// the first. Outer none: nobody knows.
    pub fn parent_digest(&self, page: &Page) -> Option<Option<PageDigest>> {
        match page.before {
            _ if page.group > 0 => Some(None),
            0 => Some(None),
            before => self.get(before).map(|before| Some(before.digest)),
        }
    }

    pub fn bytes(&self) -> usize {
        self.digests.capacity() * 32 + self.words.capacity() * 12
    }
}
