//! Reading the tree: the longest match, and the child with the longest common start.
use super::super::{Node, Partial, Path, Stretch, Walk};
use super::RadixIndex;
use super::fetch::{Paths, fetch_way, is_large};
use super::node::Segment;
use super::siblings::Siblings;
use crate::grace::prefetch;
use crate::tree::{Hint, TreeNode, common_start};

/// Has a node fetched, which lies in two lines.
pub(super) fn prefetch_node(node: &TreeNode<Segment>) {
    prefetch(&node.label);
    prefetch(&node.last_access);
    prefetch(&node.older);
}

impl Paths for RadixIndex {
    fn slots(&self) -> usize {
        self.table.slots()
    }

    fn hash(&self, node: u32, first_page: &[u32]) -> u32 {
        self.child_hash(node, first_page)
    }

    fn fetch_slot(&self, hash: u32) {
        self.table.fetch(hash);
    }

    #[inline(always)]
    fn in_slot(&self, hash: u32) -> Option<Hint> {
        self.table.hint(hash)
    }

    fn fetch_node(&self, node: u32) {
        // Of a lookup that is on its way the tree may be another one by now.
        self.tree.nodes.get(node).into_iter().for_each(prefetch_node);
    }

    fn fetch_neighbours(&self, node: u32) {
        // A match moves it to the end of the list of leaves.
        let Some(node) = self.tree.nodes.get(node) else { return };
        for near in [node.older, node.newer] {
            if let Some(near) = self.tree.nodes.get(near) {
                prefetch(&near.older);
            }
        }
    }

    fn key_count(&self, node: u32) -> usize {
        self.tree.nodes.get(node).map_or(0, |node| node.label.len() * self.page_size)
    }

    #[inline(always)]
    fn fetch_keys(&self, node: u32) {
        self.tree.nodes.get(node).into_iter().for_each(|node| node.label.fetch(self.page_size));
    }
}

impl RadixIndex {
    /// The hash under which a child with this first page is found.
    #[inline]
    pub(super) fn child_hash(&self, parent: u32, first_page: &[u32]) -> u32 {
        self.hasher.hash(parent, first_page)
    }

    /// The child that begins with the first whole page of keys, and how many keys its segment
    /// shares with them.
    pub(super) fn child(&self, parent: u32, keys: &[u32]) -> Option<(u32, usize)> {
        let (child, _, common) = self.child_of(parent, &self.tree.nodes[parent], keys, None)?;
        Some((child, common))
    }

    /// The same where the parent is at hand, with the child, and perhaps which one that is.
    #[inline(always)]
    fn child_of<'a>(
        &'a self,
        number: u32,
        parent: &TreeNode<Segment>,
        keys: &[u32],
        hint: Option<u32>,
    ) -> Option<(u32, &'a TreeNode<Segment>, usize)> {
        let first_page = keys.get(..self.page_size)?;
        let nodes = &self.tree.nodes;
        let common = |node: &TreeNode<Segment>| common_start(node.label.keys(self.page_size), keys);
        if let Some(hint) = hint
            && let Some(child) = nodes.get(hint).filter(|node| node.parent == number)
        {
            // Of a place that is free there are no keys.
            let shared = common(child);
            if shared >= self.page_size {
                return Some((hint, child, shared));
            }
        }
        if let Some(only) = parent.children.only() {
            let child = &nodes[only];
            // A miss is most often one from the first key on.
            let begins = child.label.keys(self.page_size).first() == keys.first();
            let shared = if begins { common(child) } else { 0 };
            return (shared >= self.page_size).then_some((only, child, shared));
        }
        if parent.children.is_empty() {
            return None;
        }
        let hash = self.child_hash(number, first_page);
        let candidate = self.table.find(hash, |at| nodes[at].parent == number)?;
        let child = &nodes[candidate];
        let shared = common(child);
        if shared >= self.page_size {
            return Some((candidate, child, shared));
        }
        // Two children whose hashes are equal: compare their pages.
        let begins = |at: u32| {
            let node = &nodes[at];
            node.parent == number && node.label.first_page_keys(self.page_size) == first_page
        };
        let candidate = self.table.find(hash, begins)?;
        Some((candidate, &nodes[candidate], common(&nodes[candidate])))
    }

    /// Follows keys down from a node's end.
    #[inline(always)]
    pub(super) fn walk_down(&self, from: u32, keys: &[u32]) -> Walk {
        match is_large(self) {
            false => self.walk_alone(from, keys),
            true if self.led.len() == 0 => self.walk_ahead(from, keys),
            true => self.walk_led(from, keys, &self.led),
        }
    }

    /// The same without hints.
    #[inline(never)]
    fn walk_alone(&self, from: u32, keys: &[u32]) -> Walk {
        self.walk_along(from, keys, std::iter::empty())
    }

    /// The same after a look ahead of its own.
    #[inline(never)]
    fn walk_ahead(&self, from: u32, keys: &[u32]) -> Walk {
        let path = fetch_way(self, self.page_size, from, keys);
        self.walk_led(from, keys, &path)
    }

    /// The same after a look ahead that came to some nodes. One whose whole segment matches needs
    /// no search.
    #[inline(never)]
    fn walk_led(&self, from: u32, keys: &[u32], path: &Path) -> Walk {
        let (nodes, mut led) = (&self.tree.nodes, path.nodes());
        let (mut number, mut last, mut rest, mut media) = (from, None, keys, false);
        while let [next, behind @ ..] = led
            && let Some(node) = nodes.get(*next).filter(|node| node.parent == number)
            // Of a place that is free there are no keys.
            && !node.label.is_empty()
            && let Some(left) = rest.strip_prefix(node.label.keys(self.page_size))
        {
            (number, last, rest, led) = (*next, Some(node), left, behind);
            media |= node.media;
        }
        if let Some(last) = last
            && rest.is_empty()
        {
            return Walk { media, ..Walk::to(Node(number), last.end()) };
        }
        let walk = self.walk_hinted(number, rest, led);
        Walk { media: walk.media || media, ..walk }
    }

    /// The same along nodes that are perhaps on the way.
    #[inline(never)]
    fn walk_hinted(&self, from: u32, keys: &[u32], nodes: &[u32]) -> Walk {
        self.walk_along(from, keys, nodes.iter().copied())
    }

    /// The same, perhaps along some nodes.
    #[inline(always)]
    fn walk_along(&self, from: u32, keys: &[u32], mut path: impl Iterator<Item = u32>) -> Walk {
        let (mut number, mut node) = (from, &self.tree.nodes[from]);
        let mut rest = keys;
        let mut media = false;
        while let Some((child, at, common)) = self.child_of(number, node, rest, path.next()) {
            (number, node) = (child, at);
            media |= at.media;
            let whole = common / self.page_size;
            if whole < at.label.len() {
                let positions = common % self.page_size;
                let partial = (positions > 0).then(|| Partial {
                    node: Node(child),
                    page: at.label.pages()[whole],
                    positions,
                });
                let pages = at.start as usize + whole;
                return Walk { node: Node(child), pages, partial, media };
            }
            rest = &rest[common..];
        }
        let partial = self.longest_start(&node.children, rest);
        if let Some(partial) = &partial {
            media |= self.tree.nodes[partial.node.0].media;
        }
        Walk { node: Node(number), pages: node.end(), partial, media }
    }

    /// Follows keys down along a stretch of a path, as far as nodes match whole. Returns also the
    /// keys that are left, and whether it passed as much.
    pub(super) fn pass_nodes<'a>(
        &self,
        from: u32,
        keys: &'a [u32],
        most: Stretch,
    ) -> (Walk, &'a [u32], bool) {
        if is_large(self) {
            fetch_way(self, self.page_size, from, keys);
        }
        let (mut number, mut rest, mut media) = (from, keys, false);
        let mut left = most.nodes;
        let goes_on = |left: usize, rest: &[u32]| left > 0 && keys.len() - rest.len() < most.keys;
        while goes_on(left, rest)
            && let Some((child, common)) = self.child(number, rest)
            && common == self.tree.nodes[child].label.len() * self.page_size
        {
            (number, rest, left) = (child, &rest[common..], left - 1);
            media |= self.tree.nodes[child].media;
        }
        let walk = Walk { media, ..Walk::to(Node(number), self.tree.nodes[number].end()) };
        (walk, rest, !goes_on(left, rest))
    }

    /// The one of these children that shares the longest start with keys of which none has a whole
    /// page.
    fn longest_start(&self, siblings: &Siblings, keys: &[u32]) -> Option<Partial> {
        let first = *keys.first()?;
        let keys = &keys[..keys.len().min(self.page_size)];
        if siblings.is_empty() {
            return None;
        }
        let neighbours = siblings.neighbours(first, |at| {
            self.tree.nodes[at].label.first_page_keys(self.page_size) < keys
        });
        let candidates = neighbours.into_iter().flatten().filter(|near| near.first_key == first);
        let shared = candidates.map(|near| {
            let label = &self.tree.nodes[near.node].label;
            let positions = common_start(label.first_page_keys(self.page_size), keys);
            Partial { node: Node(near.node), page: label.pages()[0], positions }
        });
        shared.max_by_key(|partial| partial.positions)
    }
}
