//! The digest of a page and of everything before it: SHA-256 over the digest of the page before
//! and the page's own tokens. `docs/block_hash.md` describes every bit of what is hashed.
//!
//! A page of text, unless it is large, is hashed in blocks that are laid out and padded once: per
//! page, only the digest before it and the ids are written, and the compression function runs over
//! them. What has images or bins is hashed piece by piece, without memory for a page of it.
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

/// What SHA-256 begins with.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

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
#[derive(Debug, Clone)]
pub struct PageHasher {
    page_size: usize,
    blocks: [Block; BLOCK_LIMIT],
    /// 0 for pages that are too large.
    block_count: usize,
}

fn write_ids(into: &mut [u8], ids: &[u32]) {
    for (into, id) in into.chunks_exact_mut(ID).zip(ids) {
        into.copy_from_slice(&id.to_le_bytes());
    }
}

impl PageHasher {
    /// For pages of so many positions.
    pub fn new(page_size: usize) -> Self {
        debug_assert!((1..=PAGE_SIZE_MAX).contains(&page_size));
        let mut blocks = [Block::default(); BLOCK_LIMIT];
        if page_size > LAID_OUT_MAX {
            return Self { page_size, blocks, block_count: 0 };
        }
        let len = IDS + page_size * ID;
        let block_count = (len + 1 + 8).div_ceil(BLOCK);
        blocks[0][..IDS].copy_from_slice(&head(page_size, 0));
        blocks[len / BLOCK][len % BLOCK] = 0x80;
        let bits = (len as u64 * 8).to_be_bytes();
        blocks[block_count - 1][BLOCK - 8..].copy_from_slice(&bits);
        Self { page_size, blocks, block_count }
    }

    pub(super) fn page_size(&self) -> usize {
        self.page_size
    }

    /// The digest of a page of text.
    pub(super) fn text(&mut self, parent: &PageDigest, ids: &[u32]) -> PageDigest {
        debug_assert_eq!(ids.len(), self.page_size);
        if self.block_count == 0 {
            let mut page = self.page(parent, 0);
            page.ids(ids);
            return page.digest();
        }
        let blocks = &mut self.blocks[..self.block_count];
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
