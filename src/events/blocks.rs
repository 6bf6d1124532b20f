//! What each page holds, as the records tell it, and what was told of it in events.
//!
//! Enough to tell all of it again at any time without a look at the cache: tokens, the page before,
//! the namespace. One place for each page of each pool; pages of groups beside the first have the
//! tokens of the page of group 0 that they hang on.
use crate::error::Error;
use crate::journal::{Record, What};
use crate::memory::{OrderedMap, OutOfMemory, TryGrow, try_collect, try_zeros};
use crate::token::{DigestChain, PageDigest, PageHasher, Part, PartPieces, parts_within};

/// What is known of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Of group 0, the page before it, 0 for none; of other groups, the page of group 0 that it
    /// hangs on.
    pub before: u32,
    /// Its namespace.
    pub space: u32,
    /// Its group.
    pub group: usize,
    /// An event said that it is held, and none that it is gone.
    pub told: bool,
    /// It is among places that are gone through.
    pub listed: bool,
}

/// A block as it is kept: before, namespace plus one, group and flags; all zero for none.
type Words = [u32; 3];

const TOLD: u32 = 1;
const LISTED: u32 = 2;
const GROUP_SHIFT: u32 = 8;

impl Block {
    fn words(self) -> Words {
        let flags = (self.told as u32 * TOLD) | (self.listed as u32 * LISTED);
        [self.before, self.space + 1, (self.group as u32) << GROUP_SHIFT | flags]
    }

    fn read([before, space, rest]: Words) -> Option<Self> {
        Some(Self {
            before,
            space: space.checked_sub(1)?,
            group: (rest >> GROUP_SHIFT) as usize,
            told: rest & TOLD != 0,
            listed: rest & LISTED != 0,
        })
    }
}

#[derive(Debug)]
pub(super) struct Blocks {
    page_size: usize,
    /// The place of page 0 of each pool, and where all end.
    pools: Vec<usize>,
    words: Vec<Words>,
    digests: Vec<[u8; 32]>,
    /// Of the pages of pool 0.
    tokens: Vec<u32>,
    /// What is not text, by place; positions count from the page's first.
    parts: OrderedMap<u32, Vec<Part>>,
    hasher: PageHasher,
}

impl Blocks {
    /// For pools of so many pages, page 0 included.
    pub fn new(page_size: usize, pool_pages: &[usize]) -> Result<Self, OutOfMemory> {
        let mut end = 0;
        let mut pools = try_collect(pool_pages.iter().map(|pages| {
            end += pages;
            end - pages
        }))?;
        pools.try_push(end)?;
        let positions = pool_pages[0].checked_mul(page_size).ok_or(OutOfMemory)?;
        Ok(Self {
            page_size,
            pools,
            words: try_zeros(end)?,
            digests: try_zeros(end)?,
            tokens: try_zeros(positions)?,
            parts: OrderedMap::default(),
            hasher: PageHasher::new(page_size),
        })
    }

    /// The number of places.
    pub fn end(&self) -> u32 {
        self.words.len() as u32
    }

    /// The place of a page of a pool.
    pub fn place(&self, pool: u32, page: u32) -> u32 {
        let [first, end] = [self.pools[pool as usize], self.pools[pool as usize + 1]];
        assert!((page as usize) < end - first, "the pool has the page");
        first as u32 + page
    }

    /// What is held at a place.
    pub fn get(&self, place: u32) -> Option<Block> {
        Block::read(self.words[place as usize])
    }

    /// The last of the pages of group 0 from a place on that follow each other in a prefix and by
    /// number, of so many at most.
    pub fn last_of_run(&self, first: u32, limit: u32) -> u32 {
        let follows = |place: &u32| {
            let block = self.get(*place).filter(|block| block.group == 0);
            block.is_some_and(|block| block.before == place - 1)
        };
        let end = self.end().min(first.saturating_add(limit));
        (first + 1..end).take_while(follows).last().unwrap_or(first)
    }

    /// Sets what is known of a place, but for its tokens.
    pub fn set(&mut self, place: u32, block: Block) {
        self.words[place as usize] = block.words();
    }

    /// Forgets a place.
    pub fn remove(&mut self, place: u32) {
        self.words[place as usize] = [0; 3];
        self.parts.remove(&place);
    }

    /// The name of what a place holds, which was told.
    pub fn digest(&self, place: u32) -> PageDigest {
        PageDigest(self.digests[place as usize])
    }

    pub fn set_digest(&mut self, place: u32, digest: PageDigest) {
        self.digests[place as usize] = digest.0;
    }

    /// The digest of a page of pool 0, after another one's.
    pub fn make_digest(&self, place: u32, parent: PageDigest) -> Result<PageDigest, Error> {
        let pieces = PartPieces::new(self.tokens(place), self.parts(place));
        let made = DigestChain::new(self.hasher, parent, pieces).next_page();
        made.ok_or_else(|| Error::Corrupt("a record of the journal has no whole page".into()))
    }

    /// An id for each position of a page of pool 0.
    pub fn tokens(&self, place: u32) -> &[u32] {
        &self.tokens[place as usize * self.page_size..][..self.page_size]
    }

    /// What is not text in a page of pool 0.
    pub fn parts(&self, place: u32) -> &[Part] {
        self.parts.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Keeps the tokens of a record's page of group 0. A page whose tokens are known is told anew.
    pub fn keep_tokens(
        &mut self,
        place: u32,
        record: &Record<'_>,
        index: usize,
    ) -> Result<(), OutOfMemory> {
        let What::Stored { tokens, parts, .. } = record.what else { return Ok(()) };
        let [from, end] = [index * self.page_size, (index + 1) * self.page_size];
        self.parts.remove(&place);
        if parts.count() > 0 {
            let inside = parts_within(parts.iter(), from, end)?;
            if !inside.is_empty() {
                self.parts.try_insert(place, inside)?;
            }
        }
        let at = place as usize * self.page_size;
        self.tokens[at..at + self.page_size].copy_from_slice(&tokens[from..end]);
        Ok(())
    }
}
