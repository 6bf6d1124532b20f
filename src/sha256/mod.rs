//! SHA-256 of pages of which each begins with the digest of the one before.
//!
//! A page's input is 16 bytes that are the same in all, the digest, and words. What a digest waits
//! for is the one before it, 64 rounds for each block; so it stays where the rounds left it, the
//! first four of a page, which nothing but the same bytes go into, are done once, and words and
//! padding come meanwhile. That needs instructions for SHA-256, so it is for processors that have
//! them.

#[cfg(target_arch = "x86_64")]
mod x86;

/// Bytes of a digest.
pub type Digest = [u8; 32];

/// What SHA-256 begins with.
pub(crate) const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Words of a block, and of a quarter of it, as which words are read.
const BLOCK: usize = 16;
const QUAD: usize = 4;
/// Words before a page's own.
const BEFORE: usize = 12;
/// Quarters with padding, at most.
const PADDED: usize = 5;

/// How the pages of one size are laid out, on a processor that has the instructions.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
pub struct Layout {
    /// What each begins with.
    head: [u32; QUAD],
    page_size: usize,
    block_count: usize,
    /// What follows the last whole quarter of its words, before the rest of them is put in.
    padding: [[u32; QUAD]; PADDED],
}

impl Layout {
    /// Of pages of so many words that begin with `head`; None where the processor can't.
    pub fn new(head: [u8; 16], page_size: usize) -> Option<Self> {
        if !has_instructions() {
            return None;
        }
        let words = BEFORE + page_size;
        let block_count = (words + 3).div_ceil(BLOCK);
        let mut padding = [[0; QUAD]; PADDED];
        let bits = words as u64 * u64::from(u32::BITS);
        let last = BLOCK * block_count / QUAD - 1 - (BEFORE + page_size) / QUAD;
        padding[0][page_size % QUAD] = 0x8000_0000;
        padding[last][2..].copy_from_slice(&[(bits >> 32) as u32, bits as u32]);
        let head = bytemuck::cast::<_, [u32; QUAD]>(head).map(u32::from_be);
        Some(Self { head, page_size, block_count, padding })
    }

    /// Gives `visit` the digests of the pages of `words`, one after another; `parent` is that of
    /// the page before. Words that fill no page are left out.
    #[inline]
    pub fn pages(&self, parent: &Digest, words: &[u32], visit: impl FnMut(Digest)) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a layout only where the processor was found to have the instructions.
        unsafe {
            x86::pages(self, parent, words, visit);
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            _ = (parent, words, visit);
            unreachable!("there is no layout for this processor");
        }
    }

    /// The quarter of a page's words that begins at one of them, as the rounds want it, where it is
    /// not all words.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    #[inline]
    fn padded(&self, words: &[u32], at: usize) -> [u32; QUAD] {
        let whole = words.len() / QUAD * QUAD;
        let mut quad = self.padding[(at - whole) / QUAD];
        for (into, word) in quad.iter_mut().zip(words.get(at..).unwrap_or_default()) {
            *into = word.swap_bytes();
        }
        quad
    }
}

#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("avx")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_instructions() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    const HEAD: [u8; 16] = *b"what is the same";

    fn words(count: usize, seed: u32) -> Vec<u32> {
        (0..count as u32).map(|at| (at ^ seed).wrapping_mul(2_654_435_761)).collect()
    }

    fn one(parent: &Digest, words: &[u32]) -> Digest {
        let mut hash = Sha256::new_with_prefix(HEAD);
        hash.update(parent);
        words.iter().for_each(|word| hash.update(word.to_le_bytes()));
        hash.finalize().into()
    }

    fn all(parent: Digest, words: &[u32], page_size: usize) -> Vec<Digest> {
        let made = words.chunks_exact(page_size).scan(parent, |parent, page| {
            *parent = one(parent, page);
            Some(*parent)
        });
        made.collect()
    }

    #[test]
    fn h01_pages_are_hashed_as_anybody_would() {
        for page_size in (1..=70).chain([127, 128, 129, 255, 256, 257, 1000, 65536]) {
            let Some(layout) = Layout::new(HEAD, page_size) else { return };
            let words = words(3 * page_size + page_size / 2, page_size as u32);
            let mut made = Vec::new();
            layout.pages(&[7; 32], &words, |digest| made.push(digest));
            assert_eq!(made, all([7; 32], &words, page_size), "pages of {page_size}");
        }
    }
}
