//! The digest of a page and of everything before it: SHA-256 over the digest of the page before
//! and the page's own tokens. `docs/block_hash.md` describes every bit of what is hashed.
//!
//! Pages of text are hashed in a row where the processor has instructions for that. Elsewhere a
//! page, unless it is large, is hashed in blocks that are laid out and padded once: per page, only
//! the digest before it and the ids are written, and the compression function runs over them. What
//! has images or bins is hashed piece by piece, without memory for a page of it.
use crate::sha256::{Chain, INITIAL, Layout};
use sha2::digest::generic_array::GenericArray;
use sha2::digest::typenum::U64;
use sha2::{Digest, Sha256, compress256};
use std::fmt;

/// Names a page's content together with all that stands before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageDigest(pub [u8; 32]);

impl fmt::Display for PageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Positions of the largest page.
pub(crate) const PAGE_SIZE_MAX: usize = 1 << 16;
/// Positions of the largest page whose blocks are laid out in advance. Larger ones are written out
/// piece by piece: beside their compression that costs nothing.
const LAID_OUT_MAX: usize = 256;

/// What a page's input begins with.
const MAGIC: [u8; 8] = *b"rkvpage1";
/// Where the digest of the page before stands, and where the ids do.
const PARENT: usize = 16;
const IDS: usize = PARENT + 32;

type Block = GenericArray<u8, U64>;
const BLOCK: usize = 64;
const ID: usize = size_of::<u32>();
/// Ids that share the first block with what stands before them.
const FIRST_IDS: usize = (BLOCK - IDS) / ID;
/// Their blocks, with the padding of SHA-256: a byte and the length.
const BLOCK_LIMIT: usize = (IDS + LAID_OUT_MAX * ID + 1 + 8).div_ceil(BLOCK);

/// A token of a page that is not text, or the part of an image that lies in the page.
#[derive(Debug, Clone, Copy)]
pub struct PageItem {
    /// First position, counted from the page's beginning.
    pub(super) position: u32,
    pub(super) kind: u32,
    /// Bin, width bin, or the position within the image.
    pub(super) first: u32,
    /// Height bin, or the positions of the whole image.
    pub(super) second: u32,
    pub(super) digest: [u8; 16],
}

impl PageItem {
    pub(super) fn coord(bin: u32) -> Self {
        Self { position: 0, kind: 1, first: bin, second: 0, digest: [0; 16] }
    }

    pub(super) fn size(width_bin: u32, height_bin: u32) -> Self {
        Self { position: 0, kind: 2, first: width_bin, second: height_bin, digest: [0; 16] }
    }

    pub(super) fn image(digest: [u8; 16], positions: u32, offset: u32) -> Self {
        Self { position: 0, kind: 3, first: offset, second: positions, digest }
    }

    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [self.position, self.kind, self.first, self.second];
        for (into, word) in bytes.chunks_exact_mut(4).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.digest);
        bytes
    }
}

/// Hashes pages of one size.
#[derive(Debug, Clone, Copy)]
pub struct PageHasher {
    page_size: usize,
    /// None without instructions for it.
    quick: Option<Layout>,
}

/// The blocks of pages that are not large.
struct Blocks {
    all: [Block; BLOCK_LIMIT],
    count: usize,
}

fn write_ids(into: &mut [u8], ids: &[u32]) {
    for (into, id) in into.chunks_exact_mut(ID).zip(ids) {
        into.copy_from_slice(&id.to_le_bytes());
    }
}

impl Blocks {
    /// Of pages of so many positions.
    fn new(page_size: usize) -> Self {
        let mut all = [Block::default(); BLOCK_LIMIT];
        let len = IDS + page_size * ID;
        let count = (len + 1 + 8).div_ceil(BLOCK);
        all[0][..IDS].copy_from_slice(&head(page_size, 0));
        all[len / BLOCK][len % BLOCK] = 0x80;
        let bits = (len as u64 * 8).to_be_bytes();
        all[count - 1][BLOCK - 8..].copy_from_slice(&bits);
        Self { all, count }
    }

    fn digest(&mut self, parent: &PageDigest, ids: &[u32]) -> PageDigest {
        let blocks = &mut self.all[..self.count];
        blocks[0][PARENT..IDS].copy_from_slice(&parent.0);
        let (first, rest) = ids.split_at(ids.len().min(FIRST_IDS));
        write_ids(&mut blocks[0][IDS..], first);
        for (block, ids) in blocks[1..].iter_mut().zip(rest.chunks(BLOCK / ID)) {
            write_ids(block, ids);
        }
        let mut state = INITIAL;
        compress256(&mut state, blocks);
        PageDigest(bytemuck::cast(state.map(u32::to_be)))
    }
}

impl PageHasher {
    /// For pages of so many positions.
    pub fn new(page_size: usize) -> Self {
        debug_assert!((1..=PAGE_SIZE_MAX).contains(&page_size));
        let head = head(page_size, 0);
        let first = *head.first_chunk().expect("it is longer");
        Self { page_size, quick: Layout::new(first, page_size) }
    }

    pub(super) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Gives `visit` the digests of pages of text, one after another; `parent` is that of the page
    /// before. Returns the last one.
    #[inline]
    pub(crate) fn texts(
        &self,
        parent: PageDigest,
        ids: &[u32],
        mut visit: impl FnMut(PageDigest),
    ) -> PageDigest {
        let mut last = parent;
        match &self.quick {
            Some(quick) => quick.pages(&parent.0, ids, |digest| {
                last = PageDigest(digest);
                visit(last);
            }),
            None => self.texts_anywhere(&mut last, ids, &mut visit),
        }
        last
    }

    /// Gives `visit` the digests of pages of text of several chains, and which of them each is of:
    /// those of a chain one after another. What is left of each has no whole page.
    pub(super) fn texts_together(
        &self,
        chains: &mut [Chain<'_>],
        mut visit: impl FnMut(usize, PageDigest),
    ) {
        if let Some(quick) = &self.quick {
            return quick.chains(chains, |at, digest| visit(at, PageDigest(digest)));
        }
        for (at, chain) in chains.iter_mut().enumerate() {
            let (mut last, ids) = (PageDigest(chain.last), chain.words);
            self.texts_anywhere(&mut last, ids, &mut |digest| visit(at, digest));
            let whole = ids.len() / self.page_size * self.page_size;
            *chain = Chain { last: last.0, words: &ids[whole..] };
        }
    }

    /// The same of one without those instructions.
    fn texts_anywhere(
        &self,
        last: &mut PageDigest,
        ids: &[u32],
        visit: &mut dyn FnMut(PageDigest),
    ) {
        let mut blocks = (self.page_size <= LAID_OUT_MAX).then(|| Blocks::new(self.page_size));
        for ids in ids.chunks_exact(self.page_size) {
            *last = match &mut blocks {
                Some(blocks) => blocks.digest(last, ids),
                None => {
                    let mut page = self.page(last, 0);
                    page.ids(ids);
                    page.digest()
                }
            };
            visit(*last);
        }
    }

    /// Begins the digest of any page: then come its ids, and then its items.
    pub(super) fn page(&self, parent: &PageDigest, item_count: usize) -> PageInput {
        let mut head = head(self.page_size, item_count);
        head[PARENT..].copy_from_slice(&parent.0);
        PageInput(Sha256::new_with_prefix(head))
    }
}

/// What is hashed of a page, piece by piece.
pub(super) struct PageInput(Sha256);

impl PageInput {
    /// The next ids.
    pub fn ids(&mut self, ids: &[u32]) {
        let mut bytes = [0; LAID_OUT_MAX * ID];
        for ids in ids.chunks(LAID_OUT_MAX) {
            write_ids(&mut bytes, ids);
            self.0.update(&bytes[..ids.len() * ID]);
        }
    }

    /// So many positions without an id: there is an item.
    pub fn no_ids(&mut self, mut positions: usize) {
        while positions > 0 {
            let count = positions.min(LAID_OUT_MAX);
            self.0.update(&[0; LAID_OUT_MAX * ID][..count * ID]);
            positions -= count;
        }
    }

    /// The next item.
    pub fn item(&mut self, item: &PageItem) {
        self.0.update(item.bytes());
    }

    pub fn digest(self) -> PageDigest {
        PageDigest(self.0.finalize().into())
    }
}

/// What stands before the ids, with a parent of zeros.
fn head(page_size: usize, item_count: usize) -> [u8; IDS] {
    let mut head = [0; IDS];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&(page_size as u32).to_le_bytes());
    head[12..PARENT].copy_from_slice(&(item_count as u32).to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor without the instructions makes the same digests as one with them.
    #[test]
    fn h01_digests_do_not_depend_on_the_processor() {
        for page_size in [1, 2, 3, 4, 5, 16, 17, 63, 64, 255, 256, 257, 1024] {
            let hasher = PageHasher::new(page_size);
            let ids: Vec<u32> = (0..4 * page_size as u32).map(|at| at * 7919).collect();
            let [mut quick, mut anywhere] = [Vec::new(), Vec::new()];
            let parent = PageDigest([5; 32]);
            let last = hasher.texts(parent, &ids, |digest| quick.push(digest));
            let mut at_last = parent;
            hasher.texts_anywhere(&mut at_last, &ids, &mut |digest| anywhere.push(digest));
            assert_eq!((&quick, last), (&anywhere, at_last), "pages of {page_size}");
            assert_eq!((quick.len(), quick.last()), (4, Some(&last)));
            for hasher in [hasher, PageHasher { quick: None, ..hasher }] {
                let mut made = [Vec::new(), Vec::new()];
                let chain = Chain { last: parent.0, words: &ids };
                let mut chains = [chain, Chain { words: &ids[..page_size], ..chain }];
                hasher.texts_together(&mut chains, |at, digest| made[at].push(digest));
                assert_eq!(made, [&anywhere[..], &anywhere[..1]], "pages of {page_size}");
                assert_eq!(chains.map(|chain| chain.last), [anywhere[3].0, anywhere[0].0]);
                assert!(chains.iter().all(|chain| chain.words.is_empty()));
            }
        }
    }
}
