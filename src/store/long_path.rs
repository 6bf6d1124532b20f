//! Long paths: what is done for each node of one goes in portions, between which others get in.
//!
//! Meanwhile a lock is on the node where the last portion ended, a *foothold*: as if somebody had
//! looked up so much, and locked it. A descent takes footholds deeper and deeper down, and notes
//! the pages on the way; so what is left for the end, which is one step, is short. An ascent marks
//! the nodes above as used, and a lock that ends goes up portion by portion.
use super::locks::LET_GO;
use super::long_query::is_long_to_read;
use super::{LongQuery, PrefixCache, Turn};
use crate::error::Error;
use crate::ids::{LockId, NodeId};
use crate::index::{Namespace, Node, Portion, Stretch, Walk};
use crate::memory::TryGrow;
use crate::token::{PageDigest, Query, TokenList, positions_at_most};

/// Nodes of a portion, as a part of the pages of a slice: 256 of them take 20 microseconds when
/// none is in a cache of the processor.
const NODES: usize = 2;
/// Keys of a portion for each page of a slice: 32,768 in all, which take 6 microseconds to compare,
/// and 12 when they are in no cache either.
const KEYS: usize = 64;
/// Times that a descent begins anew, after what it held was cleared.
const TRIES: usize = 4;

/// Nodes of a path that are passed before others are let in.
fn path_portion(slice: usize) -> usize {
    slice.div_ceil(NODES)
}

/// What is looked up of a path before others are let in.
pub(super) fn stretch(slice: usize) -> Stretch {
    Stretch { nodes: path_portion(slice), keys: KEYS.saturating_mul(slice) }
}

/// What a call holds that lets others in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foothold {
    /// A node, by a lock.
    pub(super) node: Node,
    /// This one or one above it is counted as kept by a retained sequence.
    pub(super) kept: Option<Node>,
}

impl From<Node> for Foothold {
    fn from(node: Node) -> Self {
        Self { node, kept: None }
    }
}

/// What is known of the path of a prompt, and the foothold on it.
#[derive(Debug, Default)]
pub struct Descent {
    /// The foothold, by its number, and its node.
    held: Option<(u32, Node)>,
    /// The pages from the beginning to its end.
    pages: Vec<u32>,
    /// Where so many keys lead, while nobody else was let in.
    walk: Option<(Walk, usize)>,
    /// Caches that were gone before the one in which a foothold is.
    gone: u64,
}

impl Descent {
    /// None was needed.
    pub(super) const NONE: Self = Self { held: None, pages: Vec::new(), walk: None, gone: 0 };

    /// The same where one may come, in a cache before which so many others are gone.
    pub(super) fn after(gone: u64) -> Self {
        Self { gone, ..Self::NONE }
    }

    /// The node that is held: those above are marked as used by the ascent.
    pub(crate) fn held(&self) -> Option<Node> {
        self.held.map(|(_, node)| node)
    }

    /// The same pages, for who needs them when all is done.
    pub(super) fn take_pages(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pages)
    }

    /// The pages from the beginning to the end of the node that is held.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Where keys lead that begin like those of the descent, and whose first pages have these
    /// digests.
    pub(super) fn walk(
        &self,
        cache: &PrefixCache,
        (root, keys): (Node, &[u32]),
        digests: &[PageDigest],
    ) -> Walk {
        let (pages, page_size) = (self.pages.len(), cache.page_size());
        match (self.walk, self.held()) {
            (Some((walk, count)), _) if count == keys.len() => walk,
            (_, Some(held)) if digests.len() <= pages && pages * page_size <= keys.len() => {
                cache.index.walk(held, cache.keys(&keys[pages * page_size..]))
            }
            _ if !digests.is_empty() => cache.index.walk_digested(root, cache.keys(keys), digests),
            _ => cache.index.walk(root, cache.keys(keys)),
        }
    }
}

impl PrefixCache {
    /// Whether the path of a list may be longer than others should wait for.
    #[inline]
    pub(super) fn may_be_long(&self, tokens: TokenList<'_>, slice: usize) -> bool {
        let (Stretch { nodes, keys }, positions) = (stretch(slice), positions_at_most(tokens));
        // Every node has a page.
        let many = positions / self.page_size() > nodes && self.index.node_count() > nodes;
        many || positions > keys || is_long_to_read(tokens, keys, slice)
    }

    /// The whole way down a query's path. None when others should not wait for that.
    pub(super) fn descend_shortly(
        &self,
        namespace: &Namespace,
        (query, digests): (Query<'_>, &[PageDigest]),
        slice: usize,
    ) -> Option<Descent> {
        let (keys, all) = (query.keys, |walk| {
            Some(Descent { walk: Some((walk, query.keys.len())), ..Descent::NONE })
        });
        let Some(root) = self.index.find_root(namespace) else { return Some(Descent::NONE) };
        let (mut from, mut known) = (root, 0);
        if self.sharing.digests_pages && !digests.is_empty() {
            known = digests.len() * self.page_size();
            let walk = self.index.walk_digested(root, self.keys(&keys[..known]), digests);
            if walk.pages < digests.len() {
                return all(walk);
            }
            from = walk.node;
        }
        let (walk, goes_on) = self.index.walk_some(from, self.keys(&keys[known..]), stretch(slice));
        if goes_on { None } else { all(walk) }
    }

    /// Goes so much further down, to a node that ends with the first `last` pages at most. Returns
    /// it, unless the rest of the path is short.
    fn step_down(
        &mut self,
        (namespace, query, digests): (&Namespace, Query<'_>, &[PageDigest]),
        (stretch, last): (Stretch, usize),
        descent: &mut Descent,
    ) -> Option<Node> {
        let root = self.index.find_root(namespace)?;
        let (page_size, done, keys) = (self.page_size(), descent.pages.len(), query.keys);
        // Another cache may have come since they were made.
        let has_digests = self.sharing.digests_pages && digests.len() > done;
        let mut most = stretch;
        let (node, pages) = loop {
            let (walk, goes_on) = if has_digests {
                // With digests a node has one page.
                let some = digests.len().min(done + most.nodes);
                let (known, keys) = (&digests[..some], self.keys(&keys[..some * page_size]));
                let walk = self.index.walk_digested(root, keys, known);
                (walk, walk.pages == some && some < query.keys.len() / page_size)
            } else {
                let keys = self.keys(&keys[done * page_size..]);
                self.index.walk_some(descent.held().unwrap_or(root), keys, most)
            };
            // An id of the caller could look like the key of an image.
            let is_unclear = walk.media && query.unchecked;
            if !goes_on || is_unclear || walk.pages > last {
                let is_all = !goes_on && !has_digests;
                descent.walk = is_all.then_some((walk, keys.len()));
                return None;
            }
            match self.token_end(&walk, query) {
                Some((node, pages)) if pages > done => break (node, pages),
                // An image that begins here is longer.
                _ => most = most.twice(),
            }
        };
        self.hold_down(node, pages, descent)?;
        descent.held()
    }

    /// The last node on the way of a walk that does not end inside an image, where a lookup could
    /// not end either.
    fn token_end(&self, walk: &Walk, query: Query<'_>) -> Option<(Node, usize)> {
        let (mut node, mut pages) = (walk.node, walk.pages);
        while pages > 0 {
            let end = query.boundary(pages * self.page_size());
            if end == pages * self.page_size() {
                return Some((node, pages));
            }
            node = self.index.ancestor(self.index.node_at_page(node, end / self.page_size()), 1)?;
            pages = self.index.end_page(node);
        }
        None
    }

    /// Moves the foothold of a descent down to a node that ends with so many pages. Nothing,
    /// without memory.
    pub(super) fn hold_down(
        &mut self,
        node: Node,
        pages: usize,
        descent: &mut Descent,
    ) -> Option<()> {
        let done = descent.pages.len();
        descent.pages.try_reserve(pages - done).ok()?;
        // Before the pages are: they end where what is held does.
        match descent.held {
            None => descent.held = Some((self.hold(node)?, node)),
            Some((at, above)) => {
                self.index.lock(node);
                self.index.unlock(above);
                self.footholds[at] = node.into();
                descent.held = Some((at, node));
            }
        }
        descent.walk = None;
        descent.pages.resize(pages, 0);
        self.index.visit_path_from(node, done, &mut |start, some| {
            let from = done.max(start);
            descent.pages[from..start + some.len()].copy_from_slice(&some[from - start..]);
        });
        Some(())
    }

    /// Locks a node while others are let in. Nothing, without memory.
    fn hold(&mut self, node: Node) -> Option<u32> {
        self.footholds.try_reserve(1).ok()?;
        self.index.lock(node);
        Some(self.footholds.insert(node.into()))
    }

    /// Keeps and locks a node, and no more the one above it that a foothold is on.
    fn keep_down(&mut self, at: Option<u32>, node: Node) -> Option<u32> {
        self.footholds.try_reserve(1).ok()?;
        self.index.lock(node);
        self.index.retain(node);
        if let Some(at) = at {
            let above = self.footholds.remove(at).node;
            self.index.retain_no_more(above);
            self.index.unlock(above);
        }
        Some(self.footholds.insert(Foothold { node, kept: Some(node) }))
    }
}

impl Turn<'_> {
    #[inline]
    fn path_portion(&self) -> usize {
        path_portion(self.shared.slice)
    }

    /// Whether looking up a list may take longer than others should wait for.
    #[inline]
    pub(crate) fn is_slow(&self, tokens: TokenList<'_>) -> bool {
        let Some(cache) = &self.state.cache else { return false };
        cache.may_be_long(tokens, self.shared.slice) || self.digests_many(tokens)
    }

    /// Goes down the path of the first keys of a query, to less than the end of `positions`. What
    /// that holds `ascend` lets go of.
    pub(crate) fn descend(
        &mut self,
        query: &LongQuery<'_>,
        (keys, positions): (usize, usize),
    ) -> Result<Descent, Error> {
        let stretch = stretch(self.shared.slice);
        // Of a prompt a token at least is not reused.
        let last = query.keys().boundary(positions - 1) / self.table.page_size();
        let (mut descent, mut tries) = (Descent::after(self.caches_gone), 1);
        loop {
            let cache = self.state.cache.as_mut().ok_or_else(super::no_cache)?;
            let (asked, digests) = query.first(keys);
            let asked = (query.namespace(), asked, digests);
            let Some(held) = cache.step_down(asked, (stretch, last), &mut descent) else {
                return Ok(descent);
            };
            self.let_in()?;
            if self.cache()?.index.is_detached(held) {
                let fresh = Descent::after(self.caches_gone);
                self.ascend(std::mem::replace(&mut descent, fresh), None);
                tries += 1;
                if tries > TRIES {
                    return Ok(descent);
                }
            }
        }
    }

    /// When what is below was used that was just taken, for `ascend`.
    pub(crate) fn now(&self) -> Option<u64> {
        self.state.cache.as_ref().map(|cache| cache.index.now())
    }

    /// Lets go of what a descent held. If the path was used, the nodes above are marked, from the
    /// one that is held on, as used when those below were.
    #[inline]
    pub(crate) fn ascend(&mut self, descent: Descent, used_at: Option<u64>) {
        if let Some(held) = descent.held.filter(|_| descent.gone == self.caches_gone) {
            // Without a cache nothing is held.
            let _ = self.ascend_from(held, used_at);
        }
    }

    #[cold]
    fn ascend_from(&mut self, (at, held): (u32, Node), used_at: Option<u64>) -> Result<(), Error> {
        let nodes = self.path_portion();
        let mut next = used_at.map(|time| (held, time));
        while let Some((node, time)) = next {
            let above = self.parts()?.0.index.touch_some(node, nodes, time);
            next = above.map(|node| (node, time));
            if next.is_some() {
                self.let_in()?;
            }
        }
        self.parts()?.0.footholds.remove(at);
        self.let_go(held);
        Ok(())
    }

    /// Lets waiting threads in; refused when the cache went meanwhile, and all that was held in it.
    pub(super) fn let_in(&mut self) -> Result<(), Error> {
        let gone = self.caches_gone;
        self.let_waiting_in();
        if self.caches_gone == gone { Ok(()) } else { Err(super::no_cache()) }
    }

    /// The same while a call holds this.
    fn let_in_holding(&mut self, foothold: Foothold) -> Result<(), Error> {
        let footholds = &mut self.parts()?.0.footholds;
        // Without memory they wait.
        if footholds.try_reserve(1).is_err() {
            return Ok(());
        }
        let at = footholds.insert(foothold);
        self.let_in()?;
        self.parts()?.0.footholds.remove(at);
        Ok(())
    }

    /// Undoes a lock, and drops what was cleared and nobody else holds; much of both in portions.
    pub(crate) fn let_go(&mut self, node: Node) {
        let nodes = self.path_portion();
        let mut next = Some(node);
        while let Some(at) = next {
            let cache = self.state.cache.as_mut().expect("a node is locked");
            next = cache.index.unlock_some(at, nodes);
            if cache.index.has_cleared() {
                self.drop_cleared(Portion::of(LET_GO));
            }
            if let Some(rest) = next
                && self.let_in_holding(rest.into()).is_err()
            {
                return;
            }
        }
        self.drop_let_go();
    }

    /// Undoes a lock of a caller.
    pub fn unlock(&mut self, lock: LockId) -> Result<(), Error> {
        let node = self.parts()?.0.end_lock(lock)?;
        self.let_go(node);
        Ok(())
    }

    /// Protects a node.
    pub fn lock(&mut self, id: NodeId) -> Result<LockId, Error> {
        let nodes = self.path_portion();
        let cache = self.parts()?.0;
        let node = cache.index.resolve(id)?;
        // Every node has a page.
        if cache.index.end_page(node) <= nodes {
            return cache.lock(node);
        }
        self.lock_deep(id, node)
    }

    #[cold]
    fn lock_deep(&mut self, id: NodeId, node: Node) -> Result<LockId, Error> {
        let held = self.hold_ahead(node)?;
        let cache = self.parts()?.0;
        let locked = cache.index.resolve(id).and_then(|node| cache.lock(node));
        if let Some(at) = held {
            let node = self.parts()?.0.footholds.remove(at).node;
            self.let_go(node);
        }
        locked
    }

    /// Whether more nodes than a portion has are above one.
    #[inline]
    pub(super) fn is_deep(&self, node: Node) -> bool {
        let (nodes, cache) = (self.path_portion(), self.state.cache.as_ref());
        let index = &cache.expect("it has the node").index;
        // Every node has a page.
        index.end_page(node) > nodes && index.ancestor(node, nodes).is_some()
    }

    /// Holds the path to a node that nobody else may have locked, all but the last portion.
    fn hold_ahead(&mut self, node: Node) -> Result<Option<u32>, Error> {
        let (nodes, mut portions, mut next) = (self.path_portion(), Vec::new(), Ok(node));
        // Up to the root, unless others take the path away.
        while let Ok(last) = next
            && let Some(above) = self.cache()?.index.ancestor(last, nodes)
            && portions.try_push(self.cache()?.index.id(above)).is_ok()
        {
            self.let_in()?;
            next = self.cache()?.index.resolve(portions[portions.len() - 1]);
        }
        let mut held = None;
        while let Some(id) = portions.pop() {
            let cache = self.parts()?.0;
            // What was merged with the node below has no id any more.
            let Ok(node) = cache.index.resolve(id) else { continue };
            let Some(at) = cache.hold(node) else { break };
            if let Some(above) = held.replace(at) {
                let above = cache.footholds.remove(above).node;
                cache.index.unlock(above);
            }
            self.let_in()?;
        }
        Ok(held)
    }

    /// Marks the path to a locked node as used.
    pub(crate) fn touch(&mut self, node: Node) -> Result<(), Error> {
        let is_deep = self.is_deep(node);
        let cache = self.parts()?.0;
        let Some(at) = is_deep.then(|| cache.hold(node)).flatten() else {
            cache.index.touch(node, None);
            return Ok(());
        };
        cache.index.touch(node, Some(node));
        let now = self.now();
        self.ascend_from((at, node), now)
    }

    /// The pages on the path to a locked node, if that is long.
    pub(crate) fn read_ahead(&mut self, node: Node) -> Result<Vec<u32>, Error> {
        let (is_deep, nodes) = (self.is_deep(node), self.path_portion());
        let cache = self.parts()?.0;
        let mut pages = Vec::new();
        let room = pages.try_reserve_exact(cache.index.end_page(node));
        let Some(at) = (is_deep && room.is_ok()).then(|| cache.hold(node)).flatten() else {
            return Ok(Vec::new());
        };
        pages.resize(cache.index.end_page(node), 0);
        let mut next = Some(node);
        while let Some(last) = next {
            let index = &self.cache()?.index;
            next = index.ancestor(last, nodes);
            let first = next.map_or(0, |above| index.end_page(above));
            index.visit_path_from(last, first, &mut |start, part| {
                let from = first.max(start);
                pages[from..start + part.len()].copy_from_slice(&part[from - start..]);
            });
            self.let_in()?;
        }
        self.parts()?.0.footholds.remove(at);
        self.let_go(node);
        self.cache()?;
        Ok(pages)
    }

    /// Counts a retained sequence on the path to a node that it has locked, all but the last
    /// portion. `end_keeping` ends the foothold that keeps it, before others are let in.
    pub(crate) fn keep_ahead(&mut self, node: Node) -> Result<Option<u32>, Error> {
        if !self.is_deep(node) {
            return Ok(None);
        }
        let nodes = self.path_portion();
        let Some(base) = self.parts()?.0.hold(node) else { return Ok(None) };
        let (mut portions, mut kept) = (Vec::new(), None);
        let mut last = node;
        while let Some(above) = self.cache()?.index.ancestor(last, nodes) {
            if portions.try_push(above).is_err() {
                portions.clear();
                break;
            }
            last = above;
            self.let_in()?;
        }
        while let Some(next) = portions.pop() {
            let Some(at) = self.parts()?.0.keep_down(kept, next) else { break };
            kept = Some(at);
            self.let_in()?;
        }
        self.parts()?.0.footholds.remove(base);
        // At once, so that what is kept is this cache's still.
        self.state.let_go(node);
        Ok(kept)
    }

    /// Ends what `keep_ahead` holds.
    pub(crate) fn end_keeping(&mut self, at: u32) {
        let Some(cache) = &mut self.state.cache else { return };
        let Foothold { node, kept } = cache.footholds.remove(at);
        self.let_kept_go(node, kept);
    }

    /// Counts a retained sequence no more, and undoes the lock that it had; both in portions.
    pub(crate) fn let_kept_go(&mut self, node: Node, kept: Option<Node>) {
        let nodes = self.path_portion();
        let mut next = kept;
        while let Some(at) = next {
            let cache = self.state.cache.as_mut().expect("a node is kept");
            next = cache.index.retain_no_more_some(at, nodes);
            if next.is_some() && self.let_in_holding(Foothold { node, kept: next }).is_err() {
                return;
            }
        }
        self.let_go(node);
    }
}
