//! Where a lookup goes on that has to look in two trees: from the node that it came to last time.
//!
//! What a node stands for never changes: it may be cut, or joined with the one above it, and still
//! ends after the same tokens. So who knows that some tokens lead to a node needs to compare them
//! no more, as long as the node is there; and it is if nothing of its chunk went since.
use super::cache::SnapshotCache;
use super::nodes::Nodes;
use super::search::Search;
use super::tree::{Found, Tree};
use super::{NONE, Namespace, NewSnapshot};
use crate::lock::RwLockReadGuard;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A list of tokens, and where it leads to or did, or nowhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) tokens: &'a [u32],
    pub(super) spot: Spot,
}

/// A node that tokens lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    node: u32,
    /// Tokens up to there.
    tokens: u32,
    /// How many nodes had gone by then.
    gone: u64,
}

impl Spot {
    /// Nowhere.
    pub(super) const NONE: Self = Self { node: NONE, tokens: 0, gone: 0 };

    /// A node that ends after so many tokens.
    pub(super) fn new<V>(nodes: &Nodes<V>, node: u32, tokens: usize) -> Self {
        match u32::try_from(tokens) {
            Ok(tokens) => Self { node, tokens, gone: nodes.gone() },
            Err(_) => Self::NONE,
        }
    }

    /// The node, and the tokens up to there.
    pub(super) fn place(self) -> Option<(u32, usize)> {
        (self.node != NONE).then_some((self.node, self.tokens as usize))
    }

    /// How many nodes had gone by then.
    pub(super) fn gone(self) -> u64 {
        self.gone
    }

    /// Two numbers for one that is not nowhere, of which the second counts what had gone by then.
    fn numbers(self) -> (u64, u64) {
        ((self.node as u64) << 32 | self.tokens as u64, self.gone)
    }

    /// A search that begins there, or above where that is beyond so many tokens.
    fn search<V>(self, nodes: &Nodes<V>, most: usize) -> Option<Search> {
        if self.node == NONE || !nodes.is_still(self.node, self.gone) {
            return None;
        }
        let mut search = Search { tokens: self.tokens as usize, ..Search::at(self.node) };
        while search.tokens > most {
            let node = &nodes[search.node];
            search.tokens -= node.label.len();
            search.node = node.parent;
        }
        Some(search)
    }
}

/// A spot that any thread may note, and read without waiting.
#[derive(Debug)]
pub(super) struct NotedSpot {
    place: AtomicU64,
    /// Never less than that of the place: what has not gone since is there.
    gone: AtomicU64,
    is_busy: AtomicBool,
}

impl Default for NotedSpot {
    fn default() -> Self {
        let (place, gone) = Spot::NONE.numbers();
        let (place, gone) = (AtomicU64::new(place), AtomicU64::new(gone));
        Self { place, gone, is_busy: AtomicBool::new(false) }
    }
}

impl NotedSpot {
    #[inline]
    pub(super) fn get(&self) -> Spot {
        // A place that is noted meanwhile was there later than this.
        let gone = self.gone.load(Acquire);
        let place = self.place.load(Relaxed);
        Spot { node: (place >> 32) as u32, tokens: place as u32, gone }
    }

    /// Unless somebody else is at it, or what is known is newer.
    pub(super) fn set(&self, spot: Spot) {
        if self.is_busy.swap(true, Acquire) {
            return;
        }
        let (place, gone) = spot.numbers();
        if gone >= self.gone.load(Relaxed) {
            self.place.store(place, Release);
            self.gone.store(gone, Release);
        }
        self.is_busy.store(false, Release);
    }
}

impl NewSnapshot<'_> {
    /// Its list, of which nobody knows where it leads to.
    pub(super) fn list(&self) -> Exact<'_> {
        let Self { namespace, tokens, .. } = *self;
        Exact { namespace, tokens, spot: Spot::NONE }
    }
}

impl<V> SnapshotCache<V> {
    /// Whether `spot`, where the `known` ones of some tokens lead to, still is the end of what
    /// there is of them, so that there is nothing longer. It may be that, and the answer no.
    #[inline]
    pub(super) fn ends_at(&self, spot: Spot, tokens: &[u32], known: usize) -> bool {
        let tree = self.store.read();
        let length = spot.tokens as usize;
        if spot.node == NONE || length > known || !tree.nodes.is_still(spot.node, spot.gone) {
            return false;
        }
        debug_assert!(tree.leads_to(spot.node, &tokens[..length]));
        let node = &tree.nodes[spot.node];
        // An entry of the known ones is used now.
        (length < known || node.entry.is_none())
            && tokens
                .get(length)
                .is_some_and(|&next| node.first_child == NONE || !tree.has_child(spot.node, next))
    }

    /// The longest stored prefix, or with `trims` what has most tokens in common, if those are more
    /// than `known`: how many that are, where it ends, and what is asked of its value. That was
    /// used now if it is meant; so was the entry of exactly those that are known, if there is one.
    /// Others are passed over. `spot` is where the known tokens lead
    /// to, or did, or none; it is put right. Both closures look at a value under a lock: they must
    /// not call the cache.
    pub(super) fn longest_beyond<R>(
        &self,
        namespace: &Namespace,
        (tokens, known): (&[u32], usize),
        trims: bool,
        spot: &mut Spot,
        is_meant: impl Fn(&V) -> bool,
        view: impl FnOnce(&V) -> R,
    ) -> Option<(usize, Spot, R)> {
        let (begin, noted) = (*spot, Cell::new(Spot::NONE));
        let step = |tree: &Tree<V>, search: &mut Search, most: usize| {
            let before = &tokens[..known];
            tree.begin(search, begin, before);
            if search.tokens < known && !tree.walk_on(search, before, most, |_, _, _| {}) {
                return false;
            }
            let Search { node, tokens: length, .. } = *search;
            if length <= known {
                noted.set(Spot::new(&tree.nodes, node, length));
            }
            if search.known() < known {
                return true;
            }
            if length == known && tree.nodes[node].entry.is_some() {
                self.use_now(tree, node);
            }
            search.inside = None;
            match trims {
                true => tree.find_trimmable_on(search, tokens, most, &is_meant),
                false => tree.walk_on(search, tokens, most, |search, child, common| {
                    let at = &tree.nodes[child];
                    let is_whole = common == at.label.len();
                    if is_whole && at.entry.as_ref().is_some_and(|entry| is_meant(&entry.value)) {
                        let tokens = search.tokens + common;
                        search.found = Some(Found { node: child, tokens, common: tokens });
                    }
                }),
            }
        };
        let (tree, search) = self.search(namespace, &step);
        let noted = noted.get();
        let is_still = begin.node != NONE && tree.nodes.is_still(begin.node, begin.gone);
        if !is_still || noted.tokens > begin.tokens {
            *spot = noted;
        }
        let found = search?.found.filter(|found| found.common > known)?;
        let Found { node, tokens, common } = found;
        let entry = tree.nodes[node].entry.as_ref()?;
        if is_meant(&entry.value) {
            self.use_now(&tree, node);
        }
        Some((common, Spot::new(&tree.nodes, node, tokens), view(&entry.value)))
    }
}

impl<V> SnapshotCache<V> {
    /// Spots of other caches, where so many nodes had gone at most, lead nowhere in this one, which
    /// has no node yet.
    pub(super) fn begin_at(&mut self, gone: u64) {
        self.store.get_mut().nodes.begin_at(gone);
    }

    /// How far a list can be followed, a stretch at a time.
    pub(super) fn follow(&self, list: Exact<'_>) -> (RwLockReadGuard<'_, Tree<V>>, Option<Search>) {
        let Exact { namespace, tokens, spot } = list;
        let walk = |tree: &Tree<V>, search: &mut Search, most| {
            tree.begin(search, spot, tokens);
            tree.walk_on(search, tokens, most, |_, _, _| {})
        };
        self.search(namespace, &walk)
    }

    /// Where a list leads to, and what is asked of its entry if there is one.
    pub(super) fn spot_of<R>(
        &self,
        list: Exact<'_>,
        view: impl FnOnce(&V) -> R,
    ) -> (Spot, Option<R>) {
        let (tree, Some(end)) = self.follow(list) else { return (Spot::NONE, None) };
        let node = tree.entry_at(&end, list.tokens.len());
        let entry = node.and_then(|node| tree.nodes[node].entry.as_ref());
        let seen = entry.map(|entry| view(&entry.value));
        (Spot::new(&tree.nodes, end.node, end.tokens), seen)
    }

    /// Whether a spot still is one.
    pub(super) fn is_there(&self, spot: Spot) -> bool {
        spot.node != NONE && self.store.read().nodes.is_still(spot.node, spot.gone)
    }
}

impl<V> SnapshotCache<V> {
    /// Has memory fetched that [`Self::spot_of`] waits for, if it is asked soon: the place of what
    /// comes after the first node. Returns the hash of that. Longer ways are what many have in
    /// common.
    pub(super) fn fetch_place(&self, namespace: &Namespace, tokens: &[u32]) -> Option<u64> {
        let tree = self.store.read();
        let root = tree.roots.find(namespace)?;
        let child = tree.child(root, *tokens.first()?)?;
        let next = tokens.get(tree.nodes[child].label.len())?;
        let hash = tree.child_hash(child, *next);
        tree.buckets.fetch(hash);
        Some(hash)
    }

    /// The same of the node that is there, when the place was fetched.
    pub(super) fn fetch_node(&self, hash: u64) {
        let tree = self.store.read();
        tree.buckets.fetch_first(&tree.nodes, hash);
    }
}

impl<V> Tree<V> {
    /// Has a search that is yet to begin do so at a spot.
    #[inline]
    pub(super) fn begin(&self, search: &mut Search, spot: Spot, tokens: &[u32]) {
        // One that has left the tree before the first node's end has begun, too.
        if search.tokens == 0
            && !search.has_left
            && let Some(begun) = self.search_from(spot, tokens)
        {
            *search = begun;
        }
    }

    /// The node with the entry of a list of so many tokens, which was followed to its end.
    #[inline]
    pub(super) fn entry_at(&self, end: &Search, tokens: usize) -> Option<u32> {
        let is_whole = end.node != NONE && end.tokens == tokens;
        (is_whole && self.nodes[end.node].entry.is_some()).then_some(end.node)
    }

    /// A search for tokens that lead to a spot, or lead there up to where they end.
    #[inline]
    pub(super) fn search_from(&self, spot: Spot, tokens: &[u32]) -> Option<Search> {
        let search = spot.search(&self.nodes, tokens.len())?;
        debug_assert!(self.leads_to(search.node, &tokens[..search.tokens]));
        Some(search)
    }

    /// Whether these tokens lead to a node.
    fn leads_to(&self, mut node: u32, mut tokens: &[u32]) -> bool {
        while !self.nodes[node].label.is_empty() {
            let Some(before) = tokens.strip_suffix(self.nodes[node].label.tokens()) else {
                return false;
            };
            (node, tokens) = (self.nodes[node].parent, before);
        }
        tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn spot(node: u32, gone: u64) -> Spot {
        Spot { node, tokens: node, gone }
    }

    #[test]
    fn what_is_newer_stays() {
        let noted = NotedSpot::default();
        assert_eq!(noted.get(), Spot::NONE);
        noted.set(spot(7, 5));
        noted.set(spot(3, 4));
        assert_eq!(noted.get(), spot(7, 5));
        noted.set(spot(8, 5));
        assert_eq!(noted.get(), spot(8, 5));
    }

    /// A reader never has a place with a number of a later one: what went in between would be
    /// taken to be there.
    #[test]
    fn a_place_is_never_older_than_its_number() {
        let (noted, last) = (NotedSpot::default(), if cfg!(miri) { 100 } else { 300_000 });
        let (numbers, end) = (AtomicU64::new(1), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers = [(); 2].map(|()| {
                scope.spawn(|| {
                    while numbers.load(Relaxed) < last {
                        let gone = numbers.fetch_add(1, Relaxed);
                        noted.set(spot(gone as u32, gone));
                    }
                })
            });
            scope.spawn(|| {
                while !end.load(Relaxed) {
                    let Spot { node, tokens, gone } = noted.get();
                    assert!(node >= gone as u32 && (node == tokens || gone == 0), "{node} {gone}");
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            end.store(true, Relaxed);
        });
        assert!(noted.get().gone > 0);
    }
}
