//! What the pages of the device hold, as far as the journal was followed.
use crate::memory::{OutOfMemory, try_zeros};
use crate::token::PageDigest;

/// A page of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub digest: PageDigest,
    /// The page before it; 0 for none.
    pub before: u32,
    pub space: u32,
    /// Fetches that went on from it or from what follows it.
    pub uses: u8,
    /// It waits to be stored, or is on its way.
    pub is_queued: bool,
    /// It was stored since it came: not again, whatever becomes of that.
    pub was_stored: bool,
}

const QUEUED: u32 = 1;
const STORED: u32 = 2;

#[derive(Debug)]
pub(super) struct Pages {
    digests: Vec<[u8; 32]>,
    /// Before, the number of the namespace plus one, uses and flags.
    words: Vec<[u32; 3]>,
}

impl Pages {
    /// For so many pages, page 0 included.
    pub fn new(pages: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { digests: try_zeros(pages)?, words: try_zeros(pages)? })
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
            uses: (rest >> 2) as u8,
            is_queued: rest & QUEUED != 0,
            was_stored: rest & STORED != 0,
        })
    }

    pub fn set(&mut self, page: u32, what: Page) {
        let flags = what.is_queued as u32 * QUEUED + what.was_stored as u32 * STORED;
        let rest = u32::from(what.uses) << 2 | flags;
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

    pub fn forget(&mut self, page: u32) {
        self.words[page as usize] = [0; 3];
    }

    /// The digest of the page before one; none at the beginning of a prefix. Outer none: nobody
    /// knows.
    pub fn parent_digest(&self, page: &Page) -> Option<Option<PageDigest>> {
        match page.before {
            0 => Some(None),
            before => self.get(before).map(|before| Some(before.digest)),
        }
    }

    pub fn bytes(&self) -> usize {
        self.digests.capacity() * 32 + self.words.capacity() * 12
    }
}
