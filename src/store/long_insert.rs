//! Long inserts: in portions, as a sequence publishes, between which others get in.
use super::insert::Start;
use super::{Descent, Hold, InsertRequest, InsertResult, LongQuery, State, Turn};
use crate::error::Error;
use crate::index::Namespace;
use crate::token::{PageDigest, Query, position_count};

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
        if self.is_long(request.tokens) {
            return self.insert_long(&request, then);
        }
        let (cache, table) = self.parts()?;
        if let Some(from) = request.from {
            // Before an image is known.
            cache.index.resolve(from)?;
        }
        let done = cache.insert(table, &request)?;
        Ok((then(self.state(), done, 0), Vec::new()))
    }

    #[cold]
    fn insert_long<R>(
        &mut self,
        request: &InsertRequest<'_>,
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        let positions = position_count(request.tokens)?;
        self.cache()?.check_pages(request, positions)?;
        let (namespace, descends) = self.namespace_to_insert(request)?;
        let query = self.ask_long(&namespace, request.tokens, Hold::All)?;
        let done = self.insert_asked(request, &query, (descends, positions), then);
        self.end_long(query);
        done
    }

    fn insert_asked<R>(
        &mut self,
        request: &InsertRequest<'_>,
        query: &LongQuery<'_>,
        (descends, positions): (bool, usize),
        then: impl FnOnce(&mut State, InsertResult, usize) -> R,
    ) -> Result<(R, Vec<u32>), Error> {
        let whole = positions - positions % self.table.page_size();
        let is_slow = descends && self.is_slow(request.tokens) && whole > 0;
        let mut descent = match is_slow {
            true => self.descend(query, (whole, whole))?,
            false => Descent::after(self.caches_gone),
        };
        let done = self.insert_portions(request, query, &mut descent);
        let done = done.map(|done| {
            let known = descent.pages().len().min(done.pages);
            (then(self.state(), done, known), known)
        });
        let mut pages = descent.take_pages();
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
        request: &InsertRequest<'_>,
        query: &LongQuery<'_>,
        descent: &mut Descent,
    ) -> Result<InsertResult, Error> {
        let (portion, page_size) = (self.publish_portion()?, self.table.page_size());
        let asked = (query.keys(), query.digests());
        let pages = asked.0.keys.len() / page_size;
        let first = request.from_page.max(descent.pages().len()).saturating_add(portion);
        let has_groups = self.has_groups();
        let (cache, table) = self.parts()?;
        if has_groups || pages <= first {
            return cache.insert_held(table, request, asked, descent, Start::AsAsked);
        }
        self.check_portions(request, asked, descent)?;
        let part = |from_page: usize, end: usize| {
            let part = InsertRequest { pages: &request.pages[..end], from_page, ..*request };
            let (keys, digests) = query.first(end * page_size);
            (part, (Query { positions: end * page_size, ..keys }, digests))
        };
        let (cache, table) = self.parts()?;
        let (first, asked) = part(request.from_page, first);
        let mut done = cache.insert_held(table, &first, asked, descent, Start::AsAsked)?;
        while done.pages < pages {
            let node = done.node.expect("a portion has pages");
            if self.parts()?.0.hold_down(node, done.pages, descent).is_none() {
                break;
            }
            self.let_in()?;
            let (next, asked) = part(done.pages, pages.min(done.pages + portion));
            let next = InsertRequest { lock: false, ..next };
            let (cache, table) = self.parts()?;
            let more = cache.insert_held(table, &next, asked, descent, Start::Held);
            let Ok(more) = more else { break };
            done = done.and(more);
            if let (Some(lock), Some(node)) = (done.lock, done.node) {
                cache.move_lock_down(lock, node);
            }
        }
        Ok(done)
    }

    /// Refuses what the whole of a list would be refused for, before a part of it is published.
    fn check_portions(
        &mut self,
        request: &InsertRequest<'_>,
        asked: (Query<'_>, &[PageDigest]),
        descent: &Descent,
    ) -> Result<(), Error> {
        let (portion, page_size) = (self.shared.read_portion(), self.table.page_size());
        let (cache, table) = self.parts()?;
        let (existing, mut given) = cache.check_insert(table, request, asked, descent)?;
        let mut place = existing;
        for pages in request.pages[existing..asked.0.keys.len() / page_size].chunks(portion) {
            for &page in pages {
                if !self.table.pool.may_claim(page) || !given.set(page, true) {
                    return Err(self.table.pool.not_to_claim("args.pages", place, page));
                }
                place += 1;
            }
            self.let_in()?;
        }
        Ok(())
    }
}
