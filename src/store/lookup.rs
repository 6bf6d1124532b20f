//! Lookups: how far a prefix is cached, and where it may be cut.
use super::group_cache::Depths;
use super::group_windows::{Ahead, Known};
use super::{Descent, LongQuery, PrefixCache, State};
use crate::error::Error;
use crate::ids::LockId;
use crate::index::{Ask, Namespace, Node, Partial, Path, PrefixIndex, Reach, Walk, Ways};
use crate::token::{Keys, PageDigest, Query, TokenList, with_known_query};

/// How far a token list is cached. Finding it changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub(super) walk: Option<Walk>,
    tokens: usize,
    positions: usize,
    page_size: usize,
    asked_positions: usize,
    /// What more is known, with several groups.
    depths: Depths,
    /// A node on the way that is held: who does marks it as used, and those above.
    held: Option<Node>,
    /// What a call knows of groups, and uses.
    pub(super) ahead: Ahead,
}

/// A match that was taken: its nodes end where it ends.
#[derive(Debug, Clone, Copy)]
pub struct Matched {
    /// The node that ends where the whole pages end.
    pub node: Option<Node>,
    /// Whole pages.
    pub pages: usize,
    /// Tokens.
    pub tokens: usize,
    /// Positions of the tokens.
    pub positions: usize,
    /// The page after the whole ones.
    pub partial: Option<Partial>,
}

impl Matched {
    /// The node whose lock protects all pages of the match.
    pub fn deepest(&self) -> Option<Node> {
        self.partial.map(|partial| partial.node).or(self.node)
    }
}

impl Found {
    fn nothing(page_size: usize, asked_positions: usize) -> Self {
        let depths = Depths::default();
        let (walk, held, ahead) = (None, None, Ahead::default());
        Self { walk, tokens: 0, positions: 0, page_size, asked_positions, depths, held, ahead }
    }

    /// Whole pages.
    pub fn pages(&self) -> usize {
        self.positions / self.page_size
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Positions of the tokens.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// How far the tokens are known, whatever groups lack; without several groups, nothing.
    pub fn depths(&self) -> Depths {
        self.depths
    }

    /// The same, with what more is known.
    pub(super) fn at(self, depths: Depths) -> Self {
        Self { depths, ..self }
    }

    /// The same, ending at an earlier token boundary.
    pub fn cut(&self, positions: usize, query: Query<'_>) -> Self {
        debug_assert!(positions <= self.positions);
        let walk = self.walk.filter(|_| positions > 0);
        Self { walk, positions, tokens: query.tokens_before(positions), ..*self }
    }

    /// Reclaimable pages that a lock on the match would protect.
    pub fn unprotected_pages(&self, cache: &PrefixCache, with_partial: bool) -> usize {
        let Some(walk) = self.walk else {
            return 0;
        };
        let index = &cache.index;
        match self.partial_node(&walk, index.as_ref()).filter(|_| with_partial) {
            Some(node) => index.unprotected_pages(node, self.pages() + 1),
            None => index.unprotected_pages(walk.node, self.pages()),
        }
    }

    /// The node that has the page after the whole ones.
    fn partial_node(&self, walk: &Walk, index: &dyn PrefixIndex) -> Option<Node> {
        if self.positions.is_multiple_of(self.page_size) {
            return None;
        }
        // The cut may lie before the end of what matched: the page is then on the way there.
        Some(if self.pages() == walk.pages {
            walk.partial.expect("a cut inside a page needs its page").node
        } else {
            index.node_at_page(walk.node, self.pages())
        })
    }
}

/// What a new sequence takes over of what was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reuse {
    pub(crate) found: Found,
    /// Positions to reuse: a token boundary that leaves a token to compute.
    pub(crate) positions: usize,
    /// What is taken of the page after the whole ones: its lock, or nothing.
    pub(crate) with: WithPartial,
}

impl Reuse {
    /// Reclaimable pages that the lock will protect. A walk up the path.
    pub(super) fn protected(&self, cache: &PrefixCache) -> usize {
        self.found.unprotected_pages(cache, self.with == WithPartial::Locked)
    }
}

/// What is taken of a page of which only the first positions match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithPartial {
    /// Nothing.
    No,
    /// Its name.
    Named,
    /// The same, to lock it.
    Locked,
}

/// What a cache shares, by pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    pub(crate) page_size: usize,
    pub(crate) whole_pages: bool,
    /// Lookups make the digests of pages.
    pub(crate) digests_pages: bool,
}

impl Sharing {
    /// How many positions of a query may be reused, by an index that `reach` walks through. No text
    /// id that the query doesn't have is ever taken for a match.
    pub(super) fn positions(
        self,
        query: Query<'_>,
        mut reach: impl FnMut(&[u32]) -> Option<Reach>,
    ) -> Option<usize> {
        let mut reached = reach(query.keys)?;
        if query.unchecked > 0 && reached.media {
            // An id of the caller could look like the key of an image.
            let text = query.text_prefix(self.matched(&reached));
            if text.keys.len() < query.keys.len() {
                reached = reach(text.keys)?;
            }
        }
        Some(self.reusable(query.boundary(self.matched(&reached)), query))
    }

    fn matched(self, reach: &Reach) -> usize {
        reach.pages * self.page_size + if self.whole_pages { 0 } else { reach.partial }
    }

    /// As many of the positions that were found as may be reused: whole pages, unless parts are
    /// shared too.
    fn reusable(self, positions: usize, query: Query<'_>) -> usize {
        if self.whole_pages { query.page_boundary(positions, self.page_size) } else { positions }
    }
}

impl PrefixCache {
    /// How far a token list is cached, the walk of which may be known.
    #[inline(always)]
    pub fn find(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        known: Option<Walk>,
    ) -> Result<Found, Error> {
        with_known_query(tokens, &self.images, |query| {
            let asked = (query, Known::default());
            Ok(self.find_by(namespace, asked, |index, root, keys| {
                let known = known.filter(|_| keys.keys.len() == query.keys.len());
                known.unwrap_or_else(|| index.walk(root, keys))
            }))
        })
    }

    /// Where a text leads.
    #[inline(always)]
    pub(crate) fn walk_text(&self, root: Node, ids: &[u32]) -> Walk {
        self.index.walk(root, self.keys(ids))
    }

    /// How far a query is cached.
    pub fn find_query(&self, namespace: &Namespace, query: Query<'_>) -> Found {
        let asked = (query, Known::default());
        self.find_by(namespace, asked, |index, root, keys| index.walk(root, keys))
    }

    /// The same where a descent came before.
    pub(crate) fn find_behind(&self, query: &LongQuery<'_>, descent: &Descent) -> Found {
        self.find_below(query.namespace(), (query.keys(), query.digests()), descent)
    }

    /// The same where the first pages of a query have these digests.
    pub(crate) fn find_below(
        &self,
        namespace: &Namespace,
        (query, digests): (Query<'_>, &[PageDigest]),
        descent: &Descent,
    ) -> Found {
        let asked = (query, descent.known(self));
        let found = self.find_by(namespace, asked, |_, root, keys| {
            descent.walk(self, (root, keys.keys), digests)
        });
        let near = descent.near().filter(|&near| self.index.end_page(near) > found.pages());
        let walk = match near {
            // Few nodes lie between it and the end.
            Some(near) => found.walk.map(|_| Walk::to(near, self.index.end_page(near))),
            None => found.walk,
        };
        Found { held: descent.held(), walk, ..found }
    }

    #[inline(always)]
    fn find_by(
        &self,
        namespace: &Namespace,
        (query, known): (Query<'_>, Known<'_>),
        walk_keys: impl Fn(&dyn PrefixIndex, Node, Keys<'_>) -> Walk,
    ) -> Found {
        match self.groups {
            None => self.find_spine(namespace, query, walk_keys),
            Some(_) => self.find_for_groups(namespace, (query, known), walk_keys),
        }
    }

    /// How far a query is cached in group 0.
    #[inline(always)]
    pub(super) fn find_spine(
        &self,
        namespace: &Namespace,
        query: Query<'_>,
        walk_keys: impl Fn(&dyn PrefixIndex, Node, Keys<'_>) -> Walk,
    ) -> Found {
        let page_size = self.sharing.page_size;
        let nothing = Found::nothing(page_size, query.positions);
        let Some(root) = self.index.find_root(namespace) else {
            return nothing;
        };
        let mut walk = None;
        let positions = self.sharing.positions(query, |keys| {
            walk = Some(walk_keys(self.index.as_ref(), root, self.keys(keys)));
            walk.as_ref().map(Walk::reach)
        });
        let positions = positions.unwrap_or(0);
        Found {
            walk: walk.filter(|_| positions > 0),
            tokens: query.tokens_before(positions),
            positions,
            ..nothing
        }
    }

    /// As many of the positions that were found as may be reused: whole pages, unless parts are
    /// shared too.
    pub fn reusable(&self, positions: usize, query: Query<'_>) -> usize {
        self.sharing.reusable(positions, query)
    }

    #[inline(always)]
    pub(super) fn reuse(&self, found: Found, positions: usize, query: Query<'_>) -> Reuse {
        let (page_size, positions) = (self.sharing.page_size, self.reusable(positions, query));
        let is_part =
            !positions.is_multiple_of(page_size) && positions / page_size == found.pages();
        let with = if is_part { WithPartial::Locked } else { WithPartial::No };
        Reuse { found, positions, with }
    }

    /// Makes a node end where the match ends, and marks the path as used now. When that is to be
    /// locked with the page after the whole ones, that page is a node of its own.
    #[inline(always)]
    pub fn take(&mut self, found: &Found, with: WithPartial) -> Result<Matched, Error> {
        let (pages, index) = (found.pages(), self.index.as_mut());
        // What is held may lie behind what groups can reuse. It is known, and marked with the rest.
        let known = found.held.filter(|&held| index.end_page(held) > pages);
        if let Some(held) = known {
            index.touch(held, known);
        }
        let Some(walk) = found.walk else {
            return Ok(Matched { node: None, pages, tokens: 0, positions: 0, partial: None });
        };
        let mut partial = match with {
            WithPartial::No => None,
            _ => found.partial_node(&walk, index),
        };
        if with == WithPartial::Locked
            && let Some(node) = &mut partial
        {
            // Before the other split, which then there is nothing left to do for: both or neither.
            *node = index.isolate_page(*node, pages)?;
        }
        let node = match (pages, partial) {
            (0, _) => None,
            (_, Some(partial)) if with == WithPartial::Locked => {
                Some(index.node_at_page(partial, pages - 1))
            }
            _ => Some(index.end_node_at(walk.node, pages)?),
        };
        // A page that is locked to be copied from is a node of its own, and used with those before
        // it. Of one that is only named, what lies behind it is not.
        let used = partial.filter(|_| with == WithPartial::Locked).or(node);
        if let Some(used) = used.filter(|_| known.is_none()) {
            index.touch(used, found.held);
        }
        let partial = partial.map(|node| Partial {
            node,
            // Its first, now that a node ends before it.
            page: index.pages(node)[0],
            positions: found.positions % self.sharing.page_size,
        });
        if self.groups.is_some() {
            self.touch_groups(node, partial, (found.positions, found.ahead.used()));
        }
        Ok(Matched { node, pages, tokens: found.tokens, positions: found.positions, partial })
    }

    /// Counts a lookup of so many positions, `used` of them, and `partial` of those by copy.
    pub fn count_lookup(&mut self, asked: usize, used: usize, partial: usize) {
        self.counters.lookups += 1;
        self.counters.lookup_positions += asked as u64;
        self.counters.hit_positions += used as u64;
        self.counters.partial_hit_positions += partial as u64;
    }

    /// Counts a sequence that went on from another one, and the positions that it inherited.
    pub fn count_inherit(&mut self, positions: usize) {
        self.counters.inherits += 1;
        self.counters.inherited_positions += positions as u64;
    }
}

impl State {
    /// As much of a prompt as `find` finds and can be reused while a row so long can still be had.
    #[inline(always)]
    pub(crate) fn find_reuse(
        &self,
        query: Query<'_>,
        row_pages: usize,
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<Reuse, Error> {
        let cache = self.cache()?;
        let page_size = cache.sharing.page_size;
        let found = find(cache, query);
        query.check_text(found.pages() * page_size)?;
        let fits = |reuse: &Reuse| {
            let needed = row_pages - reuse.positions / page_size;
            // With enough free pages it doesn't matter what is protected.
            let is_free = needed <= self.table.pool.free();
            if is_free { Ok(()) } else { self.check_room(needed, reuse.protected(cache)) }
        };
        let last_token = query.boundary(query.positions - 1);
        let reuse = cache.reuse(found, found.positions().min(last_token), query);
        if fits(&reuse).is_ok() {
            return Ok(reuse);
        }
        // Protecting the page to copy from, or what was found beyond the cut, may be too much.
        let cut = query.page_boundary(reuse.positions, page_size);
        let reuse = cache.reuse(found.cut(cut, query), cut, query);
        fits(&reuse).map(|()| reuse)
    }

    /// Lets lookups of a batch go ahead of item `at`, which is made now.
    pub(crate) fn go_ahead<'a>(
        &mut self,
        ways: &mut Ways<'a>,
        at: usize,
        ask: impl for<'n> FnMut(&'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>>,
    ) {
        let Some(cache) = &mut self.cache else { return };
        let index = &cache.index;
        if !ways.go(at, || index.is_large()) {
            return;
        }
        let root = |namespace: &_| index.find_root(namespace).map(|root| root.0);
        let path = ways.advance(at, ask, root, |ways| index.go_on(ways));
        cache.index.lead(path);
    }

    /// After the last one.
    pub(crate) fn end_ahead(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.index.lead(&Path::default());
        }
    }

    /// How far a token list is cached.
    #[inline(always)]
    pub fn find(&self, namespace: &Namespace, tokens: TokenList<'_>) -> Result<Found, Error> {
        self.cache()?.find(namespace, tokens, None)
    }

    /// The same where a walk came before.
    #[inline(never)] // most often `take_walk` has taken it
    pub(crate) fn find_along(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        walk: Option<Walk>,
    ) -> Result<Found, Error> {
        self.cache()?.find(namespace, tokens, walk)
    }

    /// Where the walk of a text begins, if no groups limit where it leads.
    #[inline(always)]
    pub(crate) fn text_root(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<Option<(&PrefixCache, Node)>, Error> {
        let cache = self.cache()?;
        if !tokens.items.is_empty() || cache.groups.is_some() {
            return Ok(None);
        }
        Ok(cache.index.find_root(namespace).map(|root| (cache, root)))
    }

    /// Takes the match of a text of so many keys that ends where its walk did and a node does, as
    /// most do, or before the first page, and perhaps locks it. Returns the node's id, if it has
    /// one. None: it is another match.
    #[inline(always)]
    pub(crate) fn take_walk(
        &mut self,
        walk: &Walk,
        keys: usize,
        lock: bool,
    ) -> Result<Option<(u64, Option<LockId>)>, Error> {
        let (cache, _) = self.parts()?;
        if walk.media || walk.partial.is_some() {
            return Ok(None);
        }
        let positions = walk.pages * cache.page_size();
        if lock {
            cache.reserve_lock(positions, Ahead::default())?;
        }
        if walk.pages == 0 {
            cache.count_lookup(keys, 0, 0);
            return Ok(Some((0, None)));
        }
        let Some(id) = cache.index.touch_end(walk) else { return Ok(None) };
        cache.count_lookup(keys, positions, 0);
        Ok(Some((id.0, lock.then(|| cache.lock_node(walk.node, Ahead::default())))))
    }

    /// Takes a match, and perhaps locks it.
    #[inline(always)]
    pub fn take_match(
        &mut self,
        found: Found,
        lock: bool,
    ) -> Result<(Matched, Option<LockId>), Error> {
        let (cache, _) = self.parts()?;
        if lock {
            cache.reserve_lock(found.positions, found.ahead)?;
        }
        let with = if lock { WithPartial::Locked } else { WithPartial::Named };
        let matched = cache.take(&found, with)?;
        let partial = matched.partial.map_or(0, |partial| partial.positions);
        cache.count_lookup(found.asked_positions, found.positions, partial);
        cache.count_limit(found.depths(), found.positions);
        let locked = matched.deepest().filter(|_| lock);
        let at = (found.positions, found.ahead);
        let locked = locked.map(|node| cache.lock_match(node, &matched, at));
        Ok((matched, locked))
    }

    /// Calls `segment` with the pages of each node of a prefix from the one on that has the page
    /// `first`, and the place of the first of them in it.
    pub fn visit_path(
        &self,
        node: Option<Node>,
        first: usize,
        mut segment: impl FnMut(usize, &[u32]),
    ) -> Result<(), Error> {
        if let Some(node) = node {
            self.cache()?.index.visit_path_from(node, first, &mut segment);
        }
        Ok(())
    }
}
