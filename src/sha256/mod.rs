//! SHA-256 of pages of which each begins with the digest of the one before.
//!
//! A page's input is 16 bytes that are the same in all, the digest, and words. What a digest waits
//! for is the one before it, 64 rounds for each block; so it stays where the rounds left it, the
//! first four of a page, which nothing but the same bytes go into, are done once, and words and
//! padding come meanwhile. Pages of other chains wait for nothing in this one, so those of several
//! chains are hashed side by side. That needs instructions for SHA-256, so it is for processors
//! that have them.

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

/// Chains whose pages are hashed side by side. Two rounds of one wait four cycles for each other,
/// and every second cycle two can begin; what words and sums take besides fills the rest.
const LANES: usize = 4;

/// Pages that follow each other, of which those that are not hashed yet are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<'a> {
    /// The digest of the page before.
    pub last: Digest,
    /// The words of the pages. What fills no page stays.
    pub words: &'a [u32],
}

impl<'a> Chain<'a> {
    fn take(&mut self, count: usize) -> &'a [u32] {
        let (taken, left) = self.words.split_at(count);
        self.words = left;
        taken
    }
}

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
    pub fn pages(&self, parent: &Digest, words: &[u32], mut visit: impl FnMut(Digest)) {
        self.side_by_side([parent], [words], |_, digest| visit(digest));
    }

    /// Gives `visit` the digests of the pages of chains, and which of them each is of: those of a
    /// chain one after another, and `LANES` chains side by side while there are as many.
    pub fn chains(&self, chains: &mut [Chain<'_>], mut visit: impl FnMut(usize, Digest)) {
        let (mut lanes, mut used, mut next) = ([0; LANES], 0, 0);
        loop {
            while used < LANES && next < chains.len() {
                lanes[used] = next;
                used += usize::from(chains[next].words.len() >= self.page_size);
                next += 1;
            }
            match used {
                0 => return,
                1 => self.lanes::<1>(chains, &lanes, &mut visit),
                2 => self.lanes::<2>(chains, &lanes, &mut visit),
                3 => self.lanes::<3>(chains, &lanes, &mut visit),
                _ => self.lanes::<LANES>(chains, &lanes, &mut visit),
            }
            let all = lanes;
            let left = all[..used].iter().filter(|&&at| chains[at].words.len() >= self.page_size);
            used = left.zip(&mut lanes).map(|(&at, lane)| *lane = at).count();
        }
    }

    /// As many pages of each of some chains as all of them have.
    fn lanes<const N: usize>(
        &self,
        chains: &mut [Chain<'_>],
        lanes: &[usize; LANES],
        visit: &mut impl FnMut(usize, Digest),
    ) {
        let lanes: &[usize; N] = lanes.first_chunk().expect("there are no more lanes");
        let least = lanes.iter().map(|&at| chains[at].words.len() / self.page_size).min();
        let (count, mut lasts) = (least.unwrap_or(0), lanes.map(|at| chains[at].last));
        let parents = lanes.map(|at| chains[at].last);
        let words = lanes.map(|at| chains[at].take(count * self.page_size));
        self.side_by_side(parents.each_ref(), words, |lane, digest| {
            lasts[lane] = digest;
            visit(lanes[lane], digest);
        });
        for (&at, last) in lanes.iter().zip(lasts) {
            chains[at].last = last;
        }
    }

    #[inline]
    fn side_by_side<const N: usize>(
        &self,
        parents: [&Digest; N],
        words: [&[u32]; N],
        visit: impl FnMut(usize, Digest),
    ) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a layout only where the processor was found to have the instructions.
        unsafe {
            x86::pages(self, parents, words, visit);
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            _ = (parents, words, visit);
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

    /// Chains of all lengths, any number of them: the same digests as of each alone.
    #[test]
    fn h01_chains_side_by_side_are_hashed_as_each_alone() {
        for page_size in [1, 2, 3, 4, 5, 13, 16, 20, 64, 255] {
            let Some(layout) = Layout::new(HEAD, page_size) else { return };
            for count in 0..=3 * LANES {
                let lists: Vec<_> = (0..count)
                    .map(|at| words((at * 7 % 5) * page_size + at % page_size, at as u32))
                    .collect();
                let parent = |at: usize| [at as u8; 32];
                let mut chains: Vec<_> = lists
                    .iter()
                    .enumerate()
                    .map(|(at, words)| Chain { last: parent(at), words })
                    .collect();
                let mut made = vec![Vec::new(); count];
                layout.chains(&mut chains, |at, digest| made[at].push(digest));
                for (at, (chain, list)) in chains.iter().zip(&lists).enumerate() {
                    let alone = all(parent(at), list, page_size);
                    assert_eq!(made[at], alone, "chain {at} of {count}, pages of {page_size}");
                    assert_eq!(chain.last, alone.last().copied().unwrap_or(parent(at)));
                    assert_eq!(chain.words, &list[alone.len() * page_size..]);
                }
            }
        }
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
