//! Reading the index: the leading run of known pages.
use super::super::{Node, Walk};
use super::BlockHashIndex;
use crate::token::{Keys, PageDigest};
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
            let mut digests = SmallVec::<[_; BATCH]>::new();
            chain.next_pages(size, |digest| digests.push(digest));
            let places: SmallVec<[_; BATCH]> =
                digests.iter().map(|digest| self.place(root, digest)).collect();
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
        Walk { media, ..self.walk_to(at) }
    }

    /// Looks up pages of text whose digests are known, and then the rest. A digest stands for all
    /// pages before it, which are all there when that one is: a few look-ups find the last.
    pub(super) fn walk_known(&self, from: u32, keys: Keys<'_>, digests: &[PageDigest]) -> Walk {
        let root = self.tree.nodes[from].root;
        let find = |digest: &PageDigest| self.find(root, digest);
        let all = digests.last().and_then(find);
        let last = all.or_else(|| {
            let known = digests.partition_point(|digest| find(digest).is_some());
            digests[..known].last().and_then(find)
        });
        let at = last.unwrap_or(from);
        let known = self.tree.nodes[at].end() - self.tree.nodes[from].end();
        debug_assert!(last.is_none_or(|at| self.tree.nodes[at].digest == digests[known - 1]));
        if known < digests.len() {
            return self.walk_to(at);
        }
        self.walk_down(at, Keys { keys: &keys.keys[known * self.page_size..], ..keys })
    }

    /// Pages of text from a root to a node.
    fn walk_to(&self, at: u32) -> Walk {
        Walk::to(Node(at), self.tree.nodes[at].end())
    }
}
