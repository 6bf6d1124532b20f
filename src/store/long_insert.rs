//! Long inserts: in portions, as a sequence publishes, between which others get in. Rows of other
//! groups come when all of group 0 is there (`long_rows.rs`).
use super::insert::Start;
use super::long_rows::{HeldRows, TellRow};
use super::stretch::short_stretch;
use super::{Descent, Hold, InsertRequest, InsertResult, LongQuery, State, Turn};
use crate::error::Error;
use crate::index::Namespace;
use crate::memory::grow_allocator;
use crate::paging::PageSet;
use crate::token::{PageDigest, Query, TokenList, position_count};

impl Turn<'_> {
    /// Publishes pages that a caller holds. `then` gets what was done, and how many pages of the
    /// path are known, before others can change anything; it returns those pages.
    ///
    /// Everything is checked before anything changes. What was published of a long list stays when
    /// memory runs out before its end: the result says how far it came.
    pub fn insert<R>(
        &mut self,
        request: InsertRequest<'_>,
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        self.insert_telling(request, None, then)
    }

    /// The same, telling what becomes of the pages of rows: then if they are few, and else as it
    /// goes on, as the result says. Pages of the cache that were told stay there until `then` ends.
    pub fn insert_telling<R>(
        &mut self,
        request: InsertRequest<'_>,
        tell: TellRow<'_>,
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        self.make_wanted_table();
        if self.is_long(request.tokens) && !self.goes_on_shortly(&request) {
            return self.insert_long(&request, tell, then);
        }
        let (cache, table) = self.parts()?;
        if let Some(from) = request.from {
            // Before an image is known.
            cache.index.resolve(from)?;
        }
        let done = cache.insert(table, &request)?;
        self.count_inserted(done.claimed);
        Ok((then(self.state(), done, 0), Vec::new()))
    }

    /// Whether little is to be inserted of a long text, behind a node that is not deep: to compare
    /// what leads to it, and to protect all of it, is quick.
    fn goes_on_shortly(&self, request: &InsertRequest<'_>) -> bool {
        let (TokenList { ids, items, .. }, slice) = (request.tokens, self.shared.slice);
        let Some(cache) = &self.state.cache else { return false };
        let from = request.from.and_then(|id| cache.index.resolve(id).ok());
        items.is_empty()
            && ids.len().saturating_sub(request.from_token) <= self.short_path()
            && ids.len() <= short_stretch(slice).keys
            && !cache.sharing.digests_pages
            && !cache.has_long_needs(ids.len(), slice)
            && !self.are_long_rows(request, ids.len() / cache.page_size())
            && from.is_some_and(|node| !self.is_deep(node))
    }

    #[cold]
    fn insert_long<R>(
        &mut self,
        request: &InsertRequest<'_>,
        tell: TellRow<'_>,
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        let positions = position_count(request.tokens)?;
        self.cache()?.check_pages(request, positions)?;
        // What is kept of the pages that are given is a large request; many small ones follow.
        self.unlocked(grow_allocator);
        let (namespace, descends) = self.namespace_to_insert(request)?;
        let mut query = self.ask_long(&namespace, request.tokens, Hold::All)?;
        let checked = self.check_text_ahead(query.held(), 0);
        let done = checked
            .and_then(|_| self.insert_asked((request, tell), &query, (descends, positions), then));
        self.end_long(query);
        done
    }

    fn insert_asked<R>(
        &mut self,
        (request, tell): (&InsertRequest<'_>, TellRow<'_>),
        query: &LongQuery<'_>,
        (descends, positions): (bool, usize),
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        let whole = positions - positions % self.table.page_size();
        let is_slow = descends && self.is_slow(request.tokens) && whole > 0;
        let mut descent = match is_slow {
            true => self.descend(query, (whole, whole), None)?,
            false => Descent::after(self.caches_gone),
        };
        let mut rows = HeldRows::default();
        let done = self.insert_portions((request, tell), query, &mut descent, &mut rows);
        let done = done.map(|done| {
            let known = descent.end().min(done.pages);
            (then(self.state(), done, known), known)
        });
        let mut pages = descent.take_pages();
        // In this order: what hangs on a page is let go of before the page, which may go at once.
        let has_rows = rows.is_some();
        self.end_rows(rows);
        if has_rows {
            self.renew_rows(request, &pages);
        }
        self.ascend(descent, None);
        done.map(|(done, known)| {
            pages.truncate(known);
            (done, pages)
        })
    }

    /// The namespace of an insert, and whether it goes down its path: not where it goes on from a
    /// node that is not deep, since to compare what leads to one takes less than to walk there.
    fn namespace_to_insert(&self, request: &InsertRequest<'_>) -> Result<(Namespace, bool), Error> {
        let index = &self.cache()?.index;
        // Whoever goes on from a node names no other namespace.
        Ok(match request.from.map(|id| index.resolve(id)).transpose()? {
            Some(node) => (index.namespace(node), !index.is_detached(node) && self.is_deep(node)),
            None => (*request.namespace, true),
        })
    }

    fn insert_portions(
        &mut self,
        (request, tell): (&InsertRequest<'_>, TellRow<'_>),
        query: &LongQuery<'_>,
        descent: &mut Descent,
        rows: &mut HeldRows,
    ) -> Result<InsertResult, Error> {
        self.compare_known(request, descent)?;
        let page_size = self.table.page_size();
        // Of what class pages of each group are is said again where the end of the prefix moves.
        let portion = self.cache()?.index.publish_portion(self.shared.slice);
        let portion = portion.div_ceil(self.table.groups().list().len());
        let asked = (query.keys(), query.digests());
        let pages = asked.0.keys.len() / page_size;
        let first = request.from_page.max(descent.end()).saturating_add(portion);
        let has_groups = self.has_groups();
        if pages <= first && !self.are_long_rows(request, pages) {
            let (cache, table) = self.parts()?;
            let done = cache.insert_held(table, request, asked, descent, Start::AsAsked)?;
            self.count_inserted(done.claimed);
            return Ok(done);
        }
        let given = self.set_of_pool(0)?;
        descent.forget_walk();
        self.leave_cleared(descent)?;
        let given = self.check_portions(request, asked, descent, given)?;
        // As large as the pools.
        self.unlocked_in_cache(|| drop(given))?;
        *rows = self.open_rows(request, pages)?;
        descent.forget_walk();
        self.leave_cleared(descent)?;
        // It may begin farther up by now.
        let first = request.from_page.max(descent.end()).saturating_add(portion);
        let part = |from_page: usize, end: usize| {
            let part = InsertRequest {
                pages: &request.pages[..end],
                from_page,
                groups: &[],
                // With several groups there is nothing yet that it could protect.
                lock: request.lock && !has_groups,
                ..*request
            };
            let (keys, digests) = query.first(end * page_size);
            (part, (Query { positions: end * page_size, ..keys }, digests))
        };
        let (cache, table) = self.parts()?;
        let late = match (has_groups && request.lock, request.moved) {
            (true, None) => Some(cache.reserve_late_hold(pages)?),
            (true, Some(lock)) => {
                cache.reserve_moved(lock, pages - request.from_page)?;
                None
            }
            _ => None,
        };
        let (first, asked) = part(request.from_page, first.min(pages));
        let mut done = cache.insert_held(table, &first, asked, descent, Start::AsAsked)?;
        descent.duplicates = None;
        if let Some(node) = done.node.filter(|_| late.is_some()) {
            done.lock = Some(cache.lock_late(node));
        }
        if let Some((lock, node)) = request.moved.zip(done.node).filter(|_| has_groups) {
            let left = cache.locked_node(lock).expect("it was seen to be on the node before");
            cache.follow_lock(lock, (left, node), false);
            done.lock = Some(lock);
        }
        self.count_inserted(done.claimed);
        // The lock, as long as it is where this call left it.
        let mut along = done.lock;
        while done.pages < pages {
            let node = done.node.expect("a portion has pages");
            if self.parts()?.0.hold_down(node, done.pages, descent).is_none() {
                break;
            }
            self.let_in()?;
            let (next, asked) = part(done.pages, pages.min(done.pages + portion));
            let next = InsertRequest { lock: false, moved: None, ..next };
            let (cache, table) = self.parts()?;
            let more = cache.insert_held(table, &next, asked, descent, Start::Held);
            let Ok(more) = more else { break };
            let claimed = more.claimed;
            done = done.and(more);
            let end = done.node.expect("a portion has pages");
            along = along.filter(|&lock| cache.move_lock_down(lock, (node, end)));
            self.count_inserted(claimed);
        }
        let Some(node) = done.node.filter(|_| has_groups) else { return Ok(done) };
        let cache = self.parts()?.0;
        let held =
            done.pages == descent.end() || cache.hold_down(node, done.pages, descent).is_some();
        if held {
            self.let_in()?;
            done.hung = self.hang_long(request, (descent, rows), tell)?;
        }
        let Some(lock) = along else { return Ok(done) };
        let Some(room) = late else {
            self.hold_moved((lock, node), request.from_page..done.pages, descent)?;
            return Ok(done);
        };
        if held {
            self.groups_of(descent)?;
        }
        let cache = self.parts()?.0;
        let ahead = descent.ahead(cache);
        cache.fill_hold((lock, node), room, ahead);
        Ok(done)
    }

    /// Counts what pages took of the memory that was made ready.
    fn count_inserted(&mut self, pages: usize) {
        let positions = pages * self.table.page_size();
        self.housekeeping.inserted(positions);
    }

    /// Counts the duplicates of what a descent has, where that is much, while others have the lock.
    fn compare_known(
        &mut self,
        request: &InsertRequest<'_>,
        descent: &mut Descent,
    ) -> Result<(), Error> {
        let known = descent.pages();
        let from = request.from_page.min(known.len());
        if known.len() - from <= self.shared.read_portion() {
            return Ok(());
        }
        let pairs = known[from..].iter().zip(&request.pages[from..]);
        let others = || pairs.filter(|(known, given)| known != given).count();
        let count = self.unlocked_in_cache(others)?;
        descent.duplicates = Some(count);
        descent.forget_walk();
        self.leave_cleared(descent)
    }

    /// Refuses what the whole of a list would be refused for, before a part of it is published.
    /// `given` gets the pages of pool 0; returns that with the same of the other pools.
    fn check_portions(
        &mut self,
        request: &InsertRequest<'_>,
        asked: (Query<'_>, &[PageDigest]),
        descent: &Descent,
        mut given: PageSet,
    ) -> Result<Vec<PageSet>, Error> {
        let (portion, page_size) = (self.shared.locked_portion(), self.table.page_size());
        let (cache, table) = self.parts()?;
        let spine = InsertRequest { groups: &[], ..*request };
        let walk = cache.check_insert(table, &spine, asked, (descent, &mut given))?;
        let existing = walk.map_or(0, |walk| walk.pages).max(request.from_page);
        let beyond = match request.groups.is_empty() {
            true => Vec::new(),
            false => self.known_beyond(descent, walk)?,
        };
        let (mut place, pages) = (existing, asked.0.keys.len() / page_size);
        for pages in request.pages[existing..pages].chunks(portion) {
            for &page in pages {
                if !self.table.pool.may_claim(page) || !given.set(page, true) {
                    return Err(self.table.pool.not_to_claim("args.pages", place, page));
                }
                place += 1;
            }
            self.let_in()?;
        }
        self.check_rows((request, pages), (descent.pages(), &beyond), given)
    }
}
