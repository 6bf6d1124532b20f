//! Token lists that know what each of their positions means: a digest of the namespace and of all
//! that stands up to there. Two positions with one digest hold the same KV.
use crate::model::namespaces::namespace_of;
use crate::model::prompt::Piece;
use crate::model::spaces::Space;
use crate::model::tokens::TokenList;

pub type Digest = u64;

/// Spreads a key over a digest. One to one in `before`, so lists that differ once differ from then
/// on as long as the same follows; everything else is left to 64 bits of chance.
fn after(before: Digest, key: u64) -> Digest {
    let mut mixed = before ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f] {
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 29)
}

/// What comes before the first position of a namespace.
pub fn beginning(ns: u8) -> Digest {
    after(0x5eed, u64::from(namespace_of(ns)) + 1)
}

#[derive(Clone)]
pub struct Tokens {
    pub ns: u8,
    /// Where it is looked for, or published: what the namespace led to when it was asked for.
    pub space: Space,
    /// For the library.
    pub list: TokenList,
    /// By position.
    digests: Vec<Digest>,
    /// For each token the position after its last.
    ends: Vec<u32>,
}

impl Tokens {
    pub fn new(ns: u8) -> Self {
        let space = Space { name: namespace_of(ns), life: 0 };
        Tokens { ns, space, list: TokenList::default(), digests: Vec::new(), ends: Vec::new() }
    }

    pub fn positions(&self) -> usize {
        self.digests.len()
    }

    /// What each position means.
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// What stands before a position.
    pub fn before(&self, position: usize) -> Digest {
        position.checked_sub(1).map_or(beginning(self.ns), |last| self.digests[last])
    }

    /// Under what a position is found: what it means, and in which space.
    pub fn key(&self, position: usize) -> Digest {
        self.in_space(self.digests[position])
    }

    /// The same of what stands before a position.
    pub fn key_before(&self, position: usize) -> Digest {
        self.in_space(self.before(position))
    }

    fn in_space(&self, digest: Digest) -> Digest {
        digest ^ self.space.life.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub fn push(&mut self, piece: Piece) {
        self.list.push(piece);
        match piece {
            Piece::Text(id, count) => (id..id + count).for_each(|id| self.token([u64::from(id)])),
            Piece::Coord(bin) => self.token([1 << 32 | u64::from(bin)]),
            Piece::Size(width, height) => {
                self.token([2 << 32 | u64::from(width) << 12 | u64::from(height)]);
            }
            Piece::Image(content, length) => {
                let image = (3 << 56) | u64::from(content) << 48 | u64::from(length) << 24;
                self.token((0..u64::from(length)).map(|offset| image | offset));
            }
        }
    }

    fn token(&mut self, keys: impl IntoIterator<Item = u64>) {
        let mut last = self.before(self.positions());
        for key in keys {
            last = after(last, key);
            self.digests.push(last);
        }
        self.ends.push(self.digests.len() as u32);
    }

    pub fn extend(&mut self, pieces: &[Piece]) {
        pieces.iter().for_each(|&piece| self.push(piece));
    }

    /// Keeps the tokens up to a position.
    pub fn truncate(&mut self, position: usize) {
        let count = self.count_within(position);
        self.list.ids.truncate(count);
        self.list.items.retain(|item| item.token_index < count as u64);
        self.ends.truncate(count);
        self.digests.truncate(self.position_of(count));
    }

    fn position_of(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }

    /// Tokens that end at or before a position.
    pub fn count_within(&self, position: usize) -> usize {
        // Mostly text, where positions are tokens: begin near the answer.
        if self.ends.get(position.wrapping_sub(1)).is_some_and(|&end| end as usize == position) {
            return position;
        }
        self.ends.partition_point(|&end| end as usize <= position)
    }

    /// The last token boundary at or before a position.
    pub fn boundary_within(&self, position: usize) -> usize {
        self.position_of(self.count_within(position))
    }

    pub fn is_boundary(&self, position: usize) -> bool {
        self.boundary_within(position) == position
    }

    /// What of the first `raw` positions may be reused, when `limit` at most may: whole tokens, and
    /// with `whole_pages` whole pages.
    pub fn cut(&self, raw: usize, limit: usize, page_size: usize, whole_pages: bool) -> usize {
        let limit = raw.min(limit);
        if !whole_pages {
            return self.boundary_within(limit);
        }
        let mut at = limit / page_size * page_size;
        while !self.is_boundary(at) {
            at -= page_size;
        }
        at
    }
}
