//! The hash under which a child is found.
//!
//! Words are folded in pairs by a multiplication of all their bits, on two ways that don't wait for
//! each other, as foldhash does it, but for words of 32 bits and with nothing to decide for a page
//! of usual size. What is multiplied depends on secrets, so that nobody can choose keys that
//! collide. Source: foldhash (Orson Peters), after wyhash.
use crate::memory::seed;

/// Words of a step.
const STEP: usize = 8;

/// What hashes children.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChildHash {
    secrets: [u64; 4],
}

/// All bits of a product of all bits.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl ChildHash {
    /// One with secrets of its own.
    pub(super) fn new() -> Self {
        // Steps and finish of SplitMix64.
        let mut state = seed();
        let secrets = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        });
        Self { secrets }
    }

    /// The hash of a child with this first page; for a root, which has no parent, its namespace is
    /// the page.
    #[inline(always)]
    pub(super) fn hash(&self, parent: u32, page: &[u32]) -> u32 {
        let [first, second, third, last] = self.secrets;
        let (mut left, mut right) = (first, second);
        let (steps, rest) = page.as_chunks::<STEP>();
        for &[a, b, c, d, e, f, g, h] in steps {
            left = fold(pair(a, b) ^ left, pair(c, d) ^ third);
            right = fold(pair(e, f) ^ right, pair(g, h) ^ third);
        }
        for &word in rest {
            left = fold(u64::from(word) ^ left, third);
        }
        // Not with the words, which it could make up for.
        (fold(left ^ right.rotate_left(32), last ^ u64::from(parent)) >> 16) as u32
    }
}
