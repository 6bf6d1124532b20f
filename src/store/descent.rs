//! Going down a path that may be long: portion by portion, to where what is left is short.
//!
//! The descent holds the node where the last portion ended (`long_path.rs`) and notes the pages on
//! the way; so what is left for the end, which is one step, is short. The ascent marks the nodes
//! above as used.
use super::group_ahead::{Chains, GroupsAhead, RowHolds};
use super::group_windows::Ahead;
use super::stretch::short_stretch;
use super::{LongQuery, PrefixCache, Turn};
use crate::error::Error;
use crate::index::{Namespace, Node, Stretch, Walk};
use crate::token::{PageDigest, Query, TokenList};
use std::mem::MaybeUninit;

/// Times that a descent begins anew, after what it held was cleared.
const TRIES: usize = 4;

/// What is known of the path of a prompt, and the foothold on it.
#[derive(Debug, Default)]
pub struct Descent {
    /// The foothold, by its number, and its node.
    held: Option<(u32, Node)>,
    /// The pages from the beginning to its end, unless they were written elsewhere.
    pages: Vec<u32>,
    /// How many those are.
    end: usize,
    /// Where so many keys lead, while nobody else was let in.
    walk: Option<(Walk, usize)>,
    /// Caches that were gone before the one in which a foothold is.
    gone: u64,
    /// A node above the one that is held, not many above where a lookup is to end.
    near: Option<Node>,
    /// How many of the pages are others than those of an insert, once they were compared.
    pub(super) duplicates: Option<usize>,
    /// What it has of groups.
    pub(super) groups: Option<GroupsAhead>,
}

impl Descent {
    /// None was needed.
    pub(super) const NONE: Self = Self {
        held: None,
        pages: Vec::new(),
        end: 0,
        walk: None,
        gone: 0,
        near: None,
        duplicates: None,
        groups: None,
    };

    /// The same where one may come, in a cache before which so many others are gone.
    pub(super) fn after(gone: u64) -> Self {
        Self { gone, ..Self::NONE }
    }

    /// Caches that were gone before the one that it is in.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// The node that is held: those above are marked as used by the ascent.
    pub(crate) fn held(&self) -> Option<Node> {
        self.held.map(|(_, node)| node)
    }

    /// A node on the path that is not far below where a lookup is to end, if that is far above what
    /// is held.
    pub(super) fn near(&self) -> Option<Node> {
        self.near
    }

    /// Says that others were let in: where keys lead is to be seen anew.
    pub(super) fn forget_walk(&mut self) {
        self.walk = None;
    }

    /// What it knows of groups, and uses.
    pub(super) fn ahead(&self, cache: &PrefixCache) -> Ahead {
        self.groups.map_or_else(Ahead::default, |groups| groups.ahead(cache))
    }

    /// The same pages, for who needs them when all is done.
    pub(crate) fn take_pages(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pages)
    }

    /// The windows that it uses, of which it knows nothing any more.
    pub(super) fn forget_windows(&mut self) -> Option<u32> {
        self.groups.as_mut().and_then(GroupsAhead::forget_windows)
    }

    /// The holds by which it uses groups, for rows.
    pub(crate) fn row_holds(&self) -> Option<RowHolds> {
        self.groups.as_ref().and_then(GroupsAhead::row_holds)
    }

    /// The pages from the beginning to the end of the node that is held, unless they were written
    /// elsewhere.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// How many those are.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// How many pages are cached, as far as that is known.
    pub(crate) fn known_end(&self) -> usize {
        self.walk.map_or(self.end, |(walk, _)| walk.pages.max(self.end))
    }

    /// Where keys lead that begin like those of the descent, and whose first pages have these
    /// digests.
    #[inline(always)]
    pub(super) fn walk(
        &self,
        cache: &PrefixCache,
        (root, keys): (Node, &[u32]),
        digests: &[PageDigest],
    ) -> Walk {
        let (pages, page_size) = (self.end, cache.page_size());
        let ahead = self.groups.as_ref().and_then(|groups| groups.text_end(cache));
        match (self.walk, self.held()) {
            (Some((walk, count)), _) if count == keys.len() => walk,
            _ if let Some((node, pages)) = ahead
                && pages * page_size <= keys.len() =>
            {
                cache.index.walk(node, cache.keys(&keys[pages * page_size..]))
            }
            (_, Some(held)) if digests.len() <= pages && pages * page_size <= keys.len() => {
                cache.index.walk(held, cache.keys(&keys[pages * page_size..]))
            }
            _ if !digests.is_empty() => cache.index.walk_digested(root, cache.keys(keys), digests),
            _ => cache.index.walk(root, cache.keys(keys)),
        }
    }
}

impl PrefixCache {
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
        let (walk, goes_on) =
            self.index.walk_some(from, self.keys(&keys[known..]), short_stretch(slice));
        if goes_on { None } else { all(walk) }
    }

    /// Goes so much further down, to a node that ends with the first `last` pages at most. Returns
    /// it, unless the rest of the path is short.
    fn step_down(
        &mut self,
        (namespace, query, digests): (&Namespace, Query<'_>, &[PageDigest]),
        (stretch, last): (Stretch, usize),
        descent: &mut Descent,
        row: Option<&mut [MaybeUninit<u32>]>,
    ) -> Option<Node> {
        let root = self.index.find_root(namespace)?;
        let (page_size, done, keys) = (self.page_size(), descent.end, query.keys);
        // Another cache may have come since they were made.
        let has_digests = self.sharing.digests_pages && digests.len() > done;
        let mut most = stretch;
        let (mut above, mut passed, mut media) = (descent.held().unwrap_or(root), done, false);
        let (node, pages) = loop {
            let (walk, goes_on) = if has_digests {
                // With digests a node has one page.
                let some = digests.len().min(done + most.nodes);
                let (known, keys) = (&digests[..some], self.keys(&keys[..some * page_size]));
                let walk = self.index.walk_digested(root, keys, known);
                (walk, walk.pages == some && some < query.keys.len() / page_size)
            } else {
                let keys = self.keys(&keys[passed * page_size..]);
                let (walk, goes_on) = self.index.walk_some(above, keys, most);
                (Walk { media: walk.media || media, ..walk }, goes_on)
            };
            // An id of the caller could look like the key of an image.
            let is_unclear = walk.media && query.unchecked > 0;
            if !goes_on || is_unclear || walk.pages > last {
                let is_all = !goes_on && !has_digests;
                descent.walk = is_all.then_some((walk, keys.len()));
                return None;
            }
            match self.token_end(&walk, query) {
                Some((node, pages)) if pages > done => break (node, pages),
                // An image that begins here is longer. What was passed of it isn't hashed again.
                _ => {
                    most = most.twice();
                    (above, passed, media) = (walk.node, walk.pages, walk.media);
                }
            }
        };
        let Some(row) = row else {
            self.hold_down(node, pages, descent)?;
            return descent.held();
        };
        self.move_foothold(node, descent)?;
        self.index.visit_path_from(node, done, &mut |start, some| {
            let from = done.max(start);
            row[from..start + some.len()].write_copy_of_slice(&some[from - start..]);
        });
        descent.end = pages;
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
        descent.pages.try_reserve(pages - descent.end).ok()?;
        // Before the pages are: they end where what is held does.
        self.move_foothold(node, descent)?;
        let known = descent.pages.len();
        self.index.add_pages(node, known..pages, &mut descent.pages);
        descent.end = pages;
        Some(())
    }

    /// The same but for the pages.
    fn move_foothold(&mut self, node: Node, descent: &mut Descent) -> Option<()> {
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
        Some(())
    }
}

impl Turn<'_> {
    /// Where a text leads that is looked up in one go. None when others should not wait for that.
    pub(crate) fn descend_text(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Option<Descent> {
        let walk = self.walk_shortly(namespace, tokens)?;
        Some(Descent { walk: walk.map(|walk| (walk, tokens.ids.len())), ..Descent::NONE })
    }

    /// Goes down the path of the first keys of a query, to less than the end of `positions`. What
    /// that holds `ascend` lets go of. With a `row`, which has room for all pages of the query, the
    /// pages on the way are written there.
    pub(crate) fn descend(
        &mut self,
        query: &LongQuery<'_>,
        (keys, positions): (usize, usize),
        row: Option<&mut [MaybeUninit<u32>]>,
    ) -> Result<Descent, Error> {
        let last = self.last_reusable(query, positions);
        let is_known = self.cache()?.index.find_root(query.namespace()).is_some();
        let room = match row {
            None if is_known => self.room_for_pages(positions / self.table.page_size()),
            _ => Ok(Vec::new()),
        };
        // Others were let in, here or before, and the cache may be another one.
        query.check_there(self)?;
        let mut descent = Descent::after(self.caches_gone);
        // Without memory for all that may come it grows, and is copied.
        descent.pages = room.unwrap_or_default();
        self.go_down(query, (keys, last), row, &mut descent)?;
        Ok(descent)
    }

    /// Goes on from where a descent is, to a page that is the last one to be found.
    fn go_down(
        &mut self,
        query: &LongQuery<'_>,
        (keys, last): (usize, usize),
        mut row: Option<&mut [MaybeUninit<u32>]>,
        descent: &mut Descent,
    ) -> Result<(), Error> {
        let (stretch, mut tries) = (self.stretch(), 1);
        loop {
            let cache = self.state.cache.as_mut().ok_or_else(super::no_cache)?;
            let (asked, digests) = query.first(keys);
            let asked = (query.namespace(), asked, digests);
            let step = (stretch, last);
            let row = row.as_deref_mut();
            let Some(held) = cache.step_down(asked, step, descent, row) else { return Ok(()) };
            self.let_in()?;
            if self.cache()?.index.is_detached(held) {
                self.begin_anew(descent)?;
                tries += 1;
                if tries > TRIES {
                    return Ok(());
                }
            }
        }
    }

    /// The page at whose end a prompt of so many positions is reused at most: a token of it is not.
    fn last_reusable(&self, query: &LongQuery<'_>, positions: usize) -> usize {
        query.keys().boundary(positions - 1) / self.table.page_size()
    }

    /// Goes down the path of a query of so many positions, to look it up then.
    pub(crate) fn descend_to_find(
        &mut self,
        query: &LongQuery<'_>,
        positions: usize,
        chains: Chains,
    ) -> Result<Descent, Error> {
        let mut descent = self.descend(query, (usize::MAX, positions), None)?;
        for _ in 0..TRIES {
            if !self.has_groups() {
                return Ok(descent);
            }
            if let Err(error) = self.look_at_groups(query, &mut descent, chains) {
                self.ascend(descent, None);
                return Err(error);
            }
            let index = &self.cache()?.index;
            if !descent.held().is_some_and(|held| index.is_detached(held)) {
                return Ok(descent);
            }
            self.begin_anew(&mut descent)?;
            descent = self.descend(query, (usize::MAX, positions), None)?;
        }
        Ok(descent)
    }

    /// Goes on with a descent after others were let in, who may have published any length of what
    /// was not known.
    pub(crate) fn descend_further(
        &mut self,
        query: &LongQuery<'_>,
        positions: usize,
        chains: Chains,
        mut descent: Descent,
    ) -> Result<Descent, Error> {
        if descent.gone != self.caches_gone {
            return Err(super::no_cache());
        }
        if self.has_groups() {
            let pages = descent.take_pages();
            let begun = self.begin_anew(&mut descent);
            self.housekeeping.discard(pages);
            begun?;
            return self.descend_to_find(query, positions, chains);
        }
        descent.forget_walk();
        self.leave_cleared(&mut descent)?;
        let last = self.last_reusable(query, positions);
        self.go_down(query, (usize::MAX, last), None, &mut descent)?;
        Ok(descent)
    }

    /// Looks at what groups have of a path, in portions.
    fn look_at_groups(
        &mut self,
        query: &LongQuery<'_>,
        descent: &mut Descent,
        chains: Chains,
    ) -> Result<(), Error> {
        self.go_ahead_in_groups(query, descent, chains)?;
        if descent.held().is_none() {
            return Ok(());
        }
        self.come_near(query, descent)?;
        // The step walks to its end anew, which is work enough for one hold of the lock.
        descent.forget_walk();
        self.let_in()
    }

    /// Goes up again, in portions, to where groups end that can reuse far less than is known.
    fn come_near(&mut self, query: &LongQuery<'_>, descent: &mut Descent) -> Result<(), Error> {
        let (nodes, Some(held)) = (self.path_portion(), descent.held()) else { return Ok(()) };
        for _ in 0..TRIES {
            let cache = self.cache()?;
            let (mut near, mut goes_on) = (held, false);
            let pages = match descent.known(cache).searched {
                Some(searched) => searched.reached.positions / cache.page_size(),
                None => cache.find_behind(query, descent).pages(),
            };
            // From where it was before, unless that is above the end now.
            if let Some(before) = descent.near.filter(|&it| cache.index.end_page(it) > pages) {
                near = before;
            }
            // What is held keeps all that is above it where it is.
            while let Some(above) = self.cache()?.index.ancestor(near, nodes)
                && self.cache()?.index.end_page(above) > pages
            {
                (near, goes_on) = (above, true);
                descent.forget_walk();
                self.let_in()?;
            }
            descent.near = Some(near).filter(|&near| near != held);
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Begins a descent anew whose path was cleared while others were let in.
    pub(super) fn leave_cleared(&mut self, descent: &mut Descent) -> Result<(), Error> {
        let index = &self.cache()?.index;
        if descent.held().is_some_and(|held| index.is_detached(held)) {
            self.begin_anew(descent)?;
        }
        Ok(())
    }

    /// Lets go of all that a descent has, to begin anew; refused when the cache went meanwhile, and
    /// with it what the images of the query are.
    pub(crate) fn begin_anew(&mut self, descent: &mut Descent) -> Result<(), Error> {
        let gone = self.caches_gone;
        self.ascend(std::mem::replace(descent, Descent::after(gone)), None);
        if self.caches_gone == gone { Ok(()) } else { Err(super::no_cache()) }
    }

    /// When what is below was used that was just taken, for `ascend`.
    pub(crate) fn now(&self) -> Option<u64> {
        self.state.cache.as_ref().map(|cache| cache.index.now())
    }

    /// Lets go of what a descent held. If the path was used, the nodes above are marked, from the
    /// one that is held on, as used when those below were.
    #[inline]
    pub(crate) fn ascend(&mut self, descent: Descent, used_at: Option<u64>) {
        if let Some(ahead) = descent.groups {
            self.end_groups_ahead(ahead, descent.gone);
        }
        if let Some(held) = descent.held.filter(|_| descent.gone == self.caches_gone) {
            // Without a cache nothing is held.
            let _ = self.ascend_from(held, used_at);
        }
    }

    #[cold]
    pub(super) fn ascend_from(
        &mut self,
        (at, held): (u32, Node),
        used_at: Option<u64>,
    ) -> Result<(), Error> {
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
}
