//! Reading the index: the leading run of known pages.
use super::super::{Node, Walk};
use super::BlockHashIndex;
use crate::token::Keys;
use smallvec::SmallVec;

/// Pages that are looked up together, at most.
const BATCH: usize = 16;

impl BlockHashIndex {
    /// Looks up pages in batches: their digests need each other, but where they lie in the table
    /// and in the arena does not, so the processor fetches all of it at once. A batch is twice the
    /// one before: at most as many pages are hashed in vain as were found.
    pub(super) fn walk_down(&self, from: u32, keys: Keys<'_>) -> Walk {
        let (mut at, mut media, mut size) = (from, false, 1);
        let root = self.tree.nodes[from].root;
        let mut chain = self.chain(from, keys);
        // Nothing below a leaf can be known: that page needs no digest.
        while self.tree.nodes[at].has_children() {
            let digests = std::iter::from_fn(|| chain.next_page()).take(size);
            let digests: SmallVec<[_; BATCH]> = digests.collect();
            let places: SmallVec<[_; BATCH]> =
                digests.iter().map(|digest| self.place(digest)).collect();
            let found = digests.iter().zip(&places);
            let found = found.map(|(digest, &place)| self.find_at(root, digest, place));
            let found: SmallVec<[_; BATCH]> = found.collect();
            let known = found.iter().take_while(|found| found.is_some()).count();
            for &node in found.iter().flatten().take(known) {
                debug_assert_eq!(self.tree.nodes[node].parent, at);
                at = node;
                media |= self.tree.nodes[at].media;
            }
            if known < size {
                break;
            }
            size = (size * 2).min(BATCH);
        }
        Walk { node: Node(at), pages: self.tree.nodes[at].end(), partial: None, media }
    }
}
