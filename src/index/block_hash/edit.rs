//! Adding and dropping pages, and locks.
use super::super::{Inserted, Node, Portion};
use super::BlockHashIndex;
use super::entry::{Entry, Kept};
use crate::memory::{OutOfMemory, try_box, try_to_vec};
use crate::token::{Keys, OpenImage, PageDigest};
use crate::tree::{Held, NONE, State, Tree};

/// A page that comes into the index.
struct NewPage {
    digest: PageDigest,
    page: u32,
    kept: Option<Box<Kept>>,
}

impl BlockHashIndex {
    /// Puts pages below a node whose first ones, of text, may have these digests.
    pub(super) fn insert_below(
        &mut self,
        from: u32,
        keys: Keys<'_>,
        pages: &[u32],
        digests: &[PageDigest],
    ) -> Result<Inserted, OutOfMemory> {
        debug_assert!(keys.keys.len() >= pages.len() * self.page_size);
        let mut chain = self.chain_behind(from, keys, digests);
        let root = self.tree.nodes[from].root;
        // Below `first` everything is new.
        let (mut at, mut found, mut first, now) = (from, 0, None, self.tree.clock + 1);
        for (count, page_keys) in keys.keys.chunks_exact(self.page_size).enumerate() {
            let may_be_known = self.tree.nodes[at].has_children();
            if count >= pages.len() && (first.is_some() || !may_be_known) {
                break;
            }
            let made = digests.get(count).copied().or_else(|| chain.next_page());
            let digest = made.expect("what is inserted is checked");
            let known =
                if may_be_known && first.is_none() { self.find(root, &digest) } else { None };
            at = match (known, pages.get(count)) {
                (Some(known), _) => {
                    found += 1;
                    known
                }
                (None, Some(&page)) => {
                    if first.is_none() {
                        self.tree.expect_leaf(at);
                        first = Some(at);
                    }
                    let kept = chain.has_media().then(|| kept(page_keys, chain.pieces.open()));
                    let added = kept
                        .transpose()
                        .and_then(|kept| self.add(at, NewPage { digest, page, kept }, now));
                    let Ok(added) = added else {
                        self.take_back(at, first.unwrap_or(at));
                        return Err(OutOfMemory);
                    };
                    added
                }
                (None, None) => break,
            };
        }
        if first.is_some() {
            self.tree.tick();
            self.tree.enlist(at);
        }
        Ok(Inserted { node: Node(at), existing: found.min(pages.len()) })
    }

    /// Puts a page below a node; the last of those that are added together has to be enlisted.
    fn add(&mut self, parent: u32, new: NewPage, now: u64) -> Result<u32, OutOfMemory> {
        self.tree.nodes.try_reserve(1)?;
        let root = self.tree.nodes[parent].root;
        let [place] = self.table.places([self.place(root, &new.digest)])?;
        let at = self.tree.nodes.allocate(State::Node);
        let start = self.tree.nodes[parent].end() as u32;
        let above = &mut self.tree.nodes[parent];
        above.child_count += 1;
        let next = std::mem::replace(&mut above.first_child, at);
        if next != NONE {
            self.tree.nodes[next].previous = at;
        }
        let node = &mut self.tree.nodes[at];
        (node.parent, node.root, node.start, node.last_access) = (parent, root, start, now);
        (node.page, node.digest, node.next) = (new.page, new.digest, next);
        node.media = new.kept.is_some();
        node.kept = new.kept;
        self.media_bytes += node.media_bytes();
        self.table.put(place, at, 0);
        self.tree.cached_pages += 1;
        self.tree.reclaimable_pages += 1;
        Ok(at)
    }

    /// Undoes what `add` did, from the last page up to the one below which all are new, and that a
    /// leaf was expected there.
    fn take_back(&mut self, mut last: u32, first: u32) {
        while last != first {
            let parent = self.tree.nodes[last].parent;
            self.unlink(last);
            self.tree.nodes.take_back(last);
            last = parent;
        }
        self.tree.miss_leaf(first);
        if self.tree.nodes[first].is_evictable() {
            self.tree.enlist(first);
        }
    }

    /// Drops pages, one leaf after another, of those that `next` names.
    pub(super) fn evict_pages(
        &mut self,
        most: Portion,
        next: impl Fn(&Tree<Entry>) -> Option<u32>,
        report: &mut dyn FnMut(&[u32], &[u32]),
    ) -> usize {
        // A node has one page.
        let (count, mut done) = (most.pages.min(most.runs), 0);
        while let Some(victim) = next(&self.tree).filter(|_| done < count) {
            let node = &self.tree.nodes[victim];
            report(node.pages(), node.media_keys());
            self.tree.retire(victim);
            self.remove(victim);
            done += 1;
        }
        done
    }

    /// Takes a node with none below it away from its parent, and out of the totals.
    fn unlink(&mut self, leaf: u32) {
        let node = &self.tree.nodes[leaf];
        let (parent, next, previous) = (node.parent, node.next, node.previous);
        let place = self.place(node.root, &node.digest);
        self.media_bytes -= node.media_bytes();
        self.table.remove(place, leaf);
        self.tree.nodes[parent].child_count -= 1;
        match previous {
            NONE => self.tree.nodes[parent].first_child = next,
            _ => self.tree.nodes[previous].next = next,
        }
        if next != NONE {
            self.tree.nodes[next].previous = previous;
        }
        self.tree.cached_pages -= 1;
        self.tree.reclaimable_pages -= 1;
    }

    /// Frees a leaf that is out of the eviction order, and gives its parent its turn.
    fn remove(&mut self, leaf: u32) {
        let parent = self.tree.nodes[leaf].parent;
        self.unlink(leaf);
        self.tree.nodes.release(leaf);
        self.tree.miss_leaf(parent);
        if self.tree.nodes[parent].is_evictable() {
            self.tree.enlist(parent);
        } else {
            self.tree.prune_root(parent);
        }
    }

    /// Undoes a lock that was taken on this very node, on so many nodes. Returns the one on which
    /// it is then.
    pub(super) fn unlock_path(&mut self, node: u32, nodes: usize) -> Option<u32> {
        let (mut at, mut left) = (node, nodes);
        while left > 0 {
            let unlocked = self.tree.count_unlock(at)?;
            if unlocked.above.is_none() {
                self.tree.prune_root(at);
            }
            (at, left) = (unlocked.above?, left - 1);
        }
        // The child that it counted is locked no more.
        Some(at)
    }

    /// The nodes right below one, the one that came last first.
    pub(super) fn children_of(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |at: u32| Some(at).filter(|&at| at != NONE);
        let next = move |&at: &u32| some(self.tree.nodes[at].next);
        std::iter::successors(some(self.tree.nodes[at].first_child), next)
    }
}

fn kept(keys: &[u32], open: Option<OpenImage>) -> Result<Box<Kept>, OutOfMemory> {
    try_box(Kept { keys: try_to_vec(keys)?.into_boxed_slice(), open })
}
