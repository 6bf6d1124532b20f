//! Publishing pages that a caller holds.
use super::group_insert::{ComingPages, GroupRow, HangResult};
use super::group_windows::Ahead;
use super::{Descent, PrefixCache};
use crate::error::Error;
use crate::error::text;
use crate::ids::{LockId, NodeId};
use crate::index::{Namespace, Node, Walk};
use crate::paging::{PageSet, PageTable};
use crate::token::{Keys, PageDigest, Query, TokenList, position_count, with_query};

/// What to insert.
#[derive(Debug, Clone, Copy)]
pub struct InsertRequest<'a> {
    /// The namespace, when it begins at the root.
    pub namespace: &'a Namespace,
    /// All tokens of the prefix.
    pub tokens: TokenList<'a>,
    /// The pages of the prefix.
    pub pages: &'a [u32],
    /// The node to go on from.
    pub from: Option<NodeId>,
    /// Tokens up to there.
    pub from_token: usize,
    /// Pages up to there.
    pub from_page: usize,
    /// Lock what was inserted in the same step.
    pub lock: bool,
    /// The lock that moves there instead of a new one: it is on the node to go on from.
    pub moved: Option<LockId>,
    /// The pages of groups beside the spine.
    pub groups: &'a [GroupRow<'a>],
}

impl InsertResult {
    /// What was done, and then more, behind it.
    pub(super) fn and(self, more: Self) -> Self {
        let (claimed, duplicates) =
            (self.claimed + more.claimed, self.duplicates + more.duplicates);
        Self { node: more.node, pages: more.pages, claimed, duplicates, ..self }
    }
}

/// Where an insert begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// At the root, or at the node that the request names.
    AsAsked,
    /// At what its descent holds, where the part before it ended.
    Held,
}

/// What an insert did.
#[derive(Debug, Clone, Copy)]
pub struct InsertResult {
    /// The node that ends where the whole pages end.
    pub node: Option<Node>,
    /// Whole pages of the tokens.
    pub pages: usize,
    /// Pages claimed.
    pub claimed: usize,
    /// Pages for which another one is published.
    pub duplicates: usize,
    /// The lock on the node, if it was asked for.
    pub lock: Option<LockId>,
    /// What became of the pages of groups.
    pub hung: HangResult,
}

impl PrefixCache {
    /// Publishes the whole pages of a prefix. Checks everything before it changes anything.
    pub(super) fn insert(
        &mut self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
    ) -> Result<InsertResult, Error> {
        // Before images become as many keys as they have positions.
        self.check_pages(request, position_count(request.tokens)?)?;
        let held = self.images.hold_all(request.tokens.items)?;
        let done = with_query(request.tokens, &held, |query| {
            self.insert_held(table, request, (query, &[]), &Descent::NONE, Start::AsAsked)
        });
        self.images.release(&held);
        done
    }

    /// Refuses too few pages for the whole ones of so many positions.
    pub(super) fn check_pages(
        &self,
        request: &InsertRequest<'_>,
        positions: usize,
    ) -> Result<(), Error> {
        let pages = positions / self.sharing.page_size;
        if request.pages.len() >= pages {
            return Ok(());
        }
        Err(Error::argument(text!(
            "args.page_count {} is less than the {pages} whole pages of the tokens",
            request.pages.len()
        )))
    }

    /// The same for a query whose first pages may have these digests, and down whose path a descent
    /// may have come.
    pub(super) fn insert_held(
        &mut self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        (query, digests): (Query<'_>, &[PageDigest]),
        descent: &Descent,
        start: Start,
    ) -> Result<InsertResult, Error> {
        let pages = query.keys.len() / self.page_size();
        match request.moved.filter(|_| request.lock) {
            Some(lock) => self.reserve_moved(lock, pages.saturating_sub(request.from_page))?,
            None if request.lock => {
                self.reserve_lock(pages * self.page_size(), Ahead::default())?
            }
            None => {}
        }
        let from = match start {
            Start::AsAsked => {
                query.check_text(0)?;
                self.insert_start(request, (query, digests), descent)?
            }
            Start::Held => {
                query.check_text(request.from_page * self.page_size())?;
                descent.held()
            }
        };
        let known = (from, descent, digests);
        let mut done = self.insert_query(table, request, query, known)?;
        let locked = done.node.filter(|_| request.lock);
        done.lock = match request.moved {
            None => locked.map(|node| self.lock_node(node, Ahead::default())),
            Some(lock) => locked.map(|_| {
                self.hold_places(lock, request.from_page..done.pages, &[]);
                self.hold_chains(lock);
                lock
            }),
        };
        Ok(done)
    }

    fn insert_query(
        &mut self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        query: Query<'_>,
        (from, descent, digests): (Option<Node>, &Descent, &[PageDigest]),
    ) -> Result<InsertResult, Error> {
        let pages = query.keys.len() / self.sharing.page_size;
        if pages <= request.from_page {
            // None of their pages is claimed, but what the cache has is told in them.
            self.check_each_row(request, pages)?;
            let node = from.filter(|_| pages > 0);
            let hung = HangResult::default();
            return Ok(InsertResult { node, pages, claimed: 0, duplicates: 0, lock: None, hung });
        }
        let start = request.from_page * self.sharing.page_size;
        let keys = &query.keys[start..pages * self.sharing.page_size];
        let walk = self.walk_to_insert(request, query, (from, descent, digests));
        let existing = walk.map_or(0, |walk| walk.pages).max(request.from_page);
        let new = &request.pages[existing..pages];
        self.reserve_journal()?;
        let claimed = table.pool.claim_all(new, "args.pages", existing)?;

        let mut coming = None;
        let rows = match request.groups.is_empty() {
            true => Ok(()),
            false => {
                let known = walk.map(|walk| walk.node).filter(|_| existing > 0);
                let claimed = self.claim_rows(table, request, (known, existing, pages));
                claimed.map(|claimed| coming = Some(claimed))
            }
        };
        // After the rows: a duplicate that they claim does not stay outside.
        let checked = rows.and_then(|()| match walk {
            Some(walk) => {
                self.check_duplicates(table, request, (walk.node, existing), descent.pages())
            }
            None => Ok(()),
        });
        let behind = &keys[(existing - request.from_page) * self.sharing.page_size..];
        let moved = request.moved.filter(|_| request.lock).zip(from);
        let end = checked.and_then(|()| match (moved, walk) {
            (Some(moved), Some(walk)) => self.insert_moving(walk, moved, behind, new),
            _ => self.insert_behind(walk, request.namespace, behind, new),
        });
        let end = match end {
            Ok(end) => end,
            Err(error) => {
                if let Some(coming) = coming {
                    coming.take_back(table, self.groups.as_deref());
                }
                table.pool.take_back(new, claimed);
                return Err(error);
            }
        };
        let claimed_keys =
            &query.keys[existing * self.sharing.page_size..pages * self.sharing.page_size];
        if !self.images.is_empty() {
            self.images.add_uses(claimed_keys);
        }
        self.note_stored(end, existing, new, claimed_keys);
        let hung = match &mut coming {
            Some(coming) => self.hang_all(table, coming, end, (request, existing, pages)),
            // Of sliding groups that have no page here either.
            None if self.groups.is_some() => {
                self.hang_rows(&mut ComingPages::default(), end, existing)
            }
            None => HangResult::default(),
        };
        let (mut duplicates, compared) =
            descent.duplicates.map_or((0, 0), |count| (count, descent.pages().len()));
        let places = (compared.max(request.from_page), end, existing);
        self.visit_duplicates(request, places, descent.pages(), |_| duplicates += 1);
        let claimed = pages - existing;
        self.counters.inserted_pages += claimed as u64;
        self.counters.duplicate_pages += duplicates as u64;
        Ok(InsertResult { node: Some(end), pages, claimed, duplicates, lock: None, hung })
    }

    /// How far the whole pages of a request are there. None: there is not even a root.
    fn walk_to_insert(
        &self,
        request: &InsertRequest<'_>,
        query: Query<'_>,
        (from, descent, digests): (Option<Node>, &Descent, &[PageDigest]),
    ) -> Option<Walk> {
        let whole = query.keys.len() / self.page_size() * self.page_size();
        let known = from.or_else(|| self.index.find_root(request.namespace));
        known.map(|node| {
            if descent.end() >= request.from_page {
                // What is held lies behind the node to go on from, if there is one. Digests lead
                // from a root only.
                let digests = if from.is_none() { digests } else { &[] };
                return descent.walk(self, (node, &query.keys[..whole]), digests);
            }
            if digests.len() > request.from_page
                && let Some(root) = self.index.find_root(&self.index.namespace(node))
            {
                let keys = self.keys(&query.keys[..whole]);
                return self.index.walk_digested(root, keys, digests);
            }
            let start = request.from_page * self.page_size();
            self.index.walk(node, self.keys(&query.keys[start..whole]))
        })
    }

    /// Refuses a query of which an insert would be refused whatever the pages are. Returns how far
    /// it is there; `given` gets, of an external pool, the pages that are given for what is.
    pub(super) fn check_insert(
        &mut self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        (query, digests): (Query<'_>, &[PageDigest]),
        (descent, given): (&Descent, &mut PageSet),
    ) -> Result<Option<Walk>, Error> {
        if request.lock && request.moved.is_none() {
            self.reserve_lock(0, Ahead::default())?;
        }
        query.check_text(0)?;
        let from = self.insert_start(request, (query, digests), descent)?;
        let walk = self.walk_to_insert(request, query, (from, descent, digests));
        let existing = walk.map_or(0, |walk| walk.pages).max(request.from_page);
        if let Some(walk) = walk.filter(|_| table.pool.is_external()) {
            self.check_duplicates(table, request, (walk.node, existing), descent.pages())?;
            let places = (request.from_page, walk.node, existing);
            self.visit_duplicates(request, places, descent.pages(), |at| {
                given.set(request.pages[at], true);
            });
        }
        Ok(walk)
    }

    /// Hangs the pages of groups, and drops the states of the path of which there are too many now.
    #[inline(never)]
    fn hang_all(
        &mut self,
        table: &mut PageTable,
        coming: &mut ComingPages,
        end: Node,
        (request, existing, pages): (&InsertRequest<'_>, usize, usize),
    ) -> HangResult {
        let hung = self.hang_rows(coming, end, existing);
        if hung.claimed > 0 {
            let saved_at = self.link_inserted(coming, end, (request.from_page, pages));
            self.drop_surplus(table, end, (saved_at, coming));
        }
        hung
    }

    /// Gives `visit` the places of the pages from one on and before `existing` for which another
    /// one is published; of those some are known.
    fn visit_duplicates(
        &self,
        request: &InsertRequest<'_>,
        (from, end, existing): (usize, Node, usize),
        known: &[u32],
        mut visit: impl FnMut(usize),
    ) {
        if existing <= from {
            return;
        }
        let mut compare = |first: usize, start: usize, published: &[u32]| {
            let places = start.max(first)..(start + published.len()).min(existing);
            places.filter(|&at| published[at - start] != request.pages[at]).for_each(&mut visit);
        };
        compare(from, 0, known);
        let from = from.max(known.len());
        if from < existing {
            self.index.visit_path_from(end, from, &mut |start, pages| compare(from, start, pages));
        }
    }

    /// The duplicates of an external pool stay outside, and are told to. So each must be outside,
    /// and given once, in whatever row: who frees them would else free a page of the cache, or one
    /// twice. The first `existing` of the pages lie on the way to a node.
    fn check_duplicates(
        &self,
        table: &mut PageTable,
        request: &InsertRequest<'_>,
        (end, existing): (Node, usize),
        known_pages: &[u32],
    ) -> Result<(), Error> {
        if !table.pool.is_external() {
            return Ok(());
        }
        let known = (Some(end).filter(|_| existing > 0), existing);
        let pool_of = |row: usize| {
            let groups = self.groups.as_ref().expect("rows were found good");
            groups.hung.pool_of(request.groups[row].group)
        };
        let mut wrong = None;
        let places = (request.from_page, end, existing);
        self.visit_duplicates(request, places, known_pages, |at| {
            if !table.pool.mark_outside(request.pages[at]) {
                wrong = Some(table.pool.not_to_claim("args.pages", at, request.pages[at]));
            }
        });
        self.visit_duplicate_rows(request, known, |row, at, page| {
            let pool = table.pool_at_mut(pool_of(row));
            if !pool.mark_outside(page) {
                let error = pool.not_to_claim("pages", at, page);
                wrong = Some(error.within(&text!("args.groups[{row}]")));
            }
        });
        self.visit_duplicates(request, places, known_pages, |at| {
            table.pool.unmark(request.pages[at]);
        });
        self.visit_duplicate_rows(request, known, |row, _, page| {
            table.pool_at_mut(pool_of(row)).unmark(page);
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Inserts behind what was found; with nothing found, below a new root.
    fn insert_behind(
        &mut self,
        walk: Option<Walk>,
        namespace: &Namespace,
        keys: &[u32],
        pages: &[u32],
    ) -> Result<Node, Error> {
        let known = Keys { keys, images: &self.images };
        if let Some(walk) = walk {
            return self.index.insert_behind(&walk, known, pages);
        }
        let root = self.index.make_root(namespace)?;
        let inserted = self.index.insert_behind(&Walk::to(root, 0), known, pages);
        if inserted.is_err() {
            self.index.prune_root(root);
        }
        inserted
    }

    /// Inserts behind what was found, and moves a lock there from the node that the insert goes on
    /// from.
    fn insert_moving(
        &mut self,
        walk: Walk,
        (lock, from): (LockId, Node),
        keys: &[u32],
        pages: &[u32],
    ) -> Result<Node, Error> {
        let known = Keys { keys, images: &self.images };
        // What nobody else goes on from becomes longer, and the lock stays where it is.
        let is_next = walk.node == from;
        let end = match is_next {
            true => self.index.insert_moving_lock(from, known, pages)?.node,
            false => self.index.insert_behind(&walk, known, pages)?,
        };
        self.follow_lock(lock, (from, end), is_next);
        Ok(end)
    }

    /// The node to go on from, if its prefix is that of the tokens.
    fn insert_start(
        &self,
        request: &InsertRequest<'_>,
        (query, digests): (Query<'_>, &[PageDigest]),
        descent: &Descent,
    ) -> Result<Option<Node>, Error> {
        let Some(id) = request.from else {
            if request.from_token != 0 || request.from_page != 0 {
                return Err(Error::argument(
                    "args.from_token_index and args.from_page_index need args.from_node",
                ));
            }
            if request.moved.is_some() {
                return Err(Error::argument("args.lock needs args.from_node"));
            }
            return Ok(None);
        };
        let node = self.index.resolve(id)?;
        if let Some(lock) = request.moved {
            self.check_moved(lock, node)?;
        }
        if self.index.is_detached(node) {
            return Err(Error::state(
                "args.from_node was cleared: nobody would find what follows it",
            ));
        }
        let end = self.index.end_page(node);
        if request.from_page != end {
            return Err(Error::argument(text!(
                "args.from_page_index {} is not the {end} pages up to args.from_node's end",
                request.from_page
            )));
        }
        let position = query.position_of(request.from_token).filter(|&position| {
            position / self.sharing.page_size == end && position <= query.keys.len()
        });
        if position.is_none() {
            return Err(Error::argument(text!(
                "args.from_token_index {} does not end at args.from_node's end",
                request.from_token
            )));
        }
        // A descent that went on past the node holds nothing above it. Digests tell at once.
        let digest = end.checked_sub(1).and_then(|last| digests.get(last));
        if digest.is_some() && digest == self.index.digest(node).as_ref() {
            return Ok(Some(node));
        }
        // What is held has the first of the keys.
        let above = descent.held().filter(|_| descent.end() <= end);
        let keys = self.keys(&query.keys[..end * self.sharing.page_size]);
        if !self.index.has_keys(node, keys, above) {
            return Err(Error::argument("args.tokens does not begin with args.from_node's prefix"));
        }
        Ok(Some(node))
    }
}
