//! Long inserts: in portions, as a sequence publishes, between which others get in.
use super::insert::Start;
use super::{Descent, InsertRequest, InsertResult, State, Turn};
use crate::error::Error;
use crate::token::TokenList;

impl Turn<'_> {
    /// Publishes pages that a caller holds. `then` gets what was done, and the pages of the path
    /// that are known, before others can change anything.
    ///
    /// Everything is checked before anything changes. What was published of a long list stays when
    /// memory runs out before its end: the result says how far it came.
    pub fn insert<R>(
        &mut self,
        request: InsertRequest<'_>,
        then: impl FnOnce(&mut State, InsertResult, &[u32]) -> R,
    ) -> Result<R, Error> {
        if self.is_long(request.tokens) {
            return self.insert_long(&request, then);
        }
        let (cache, table) = self.parts()?;
        let done = cache.insert(table, &request, &Descent::NONE, Start::AsAsked)?;
        Ok(then(self.state(), done, &[]))
    }

    #[cold]
    fn insert_long<R>(
        &mut self,
        request: &InsertRequest<'_>,
        then: impl FnOnce(&mut State, InsertResult, &[u32]) -> R,
    ) -> Result<R, Error> {
        let mut descent = self.descend_to_insert(request)?;
        let done = self.insert_portions(request, &mut descent);
        let done = done.map(|done| then(self.state(), done, descent.pages()));
        self.ascend(descent, false);
        done
    }

    /// Goes down what is known of the path of an insert, if it may be long.
    fn descend_to_insert(&mut self, request: &InsertRequest<'_>) -> Result<Descent, Error> {
        let (index, page_size) = (&self.cache()?.index, self.table.page_size());
        // Whoever goes on from a node names no other namespace. To compare what leads to one that
        // is not deep takes less than to walk there.
        let namespace = match request.from.map(|id| index.resolve(id)).transpose()? {
            Some(node) if index.is_detached(node) || !self.is_deep(node) => {
                return Ok(Descent::NONE);
            }
            Some(node) => index.namespace(node),
            None => *request.namespace,
        };
        let whole = request.tokens.ids.len() / page_size * page_size;
        let tokens = TokenList { ids: &request.tokens.ids[..whole], ..request.tokens };
        Ok(self.descend(&namespace, tokens)?.0)
    }

    fn insert_portions(
        &mut self,
        request: &InsertRequest<'_>,
        descent: &mut Descent,
    ) -> Result<InsertResult, Error> {
        let (portion, page_size) = (self.publish_portion()?, self.table.page_size());
        let pages = request.tokens.ids.len() / page_size;
        let first = request.from_page.max(descent.pages().len()).saturating_add(portion);
        let is_plain = request.tokens.items.is_empty() && !self.has_groups();
        let (cache, table) = self.parts()?;
        if !is_plain || pages <= first || pages > request.pages.len() {
            return cache.insert(table, request, descent, Start::AsAsked);
        }
        self.check_portions(request, descent)?;
        let part = |from_page: usize, end: usize| InsertRequest {
            tokens: TokenList::text(&request.tokens.ids[..end * page_size]),
            pages: &request.pages[..end],
            from_page,
            ..*request
        };
        let (cache, table) = self.parts()?;
        let first = part(request.from_page, first);
        let mut done = cache.insert(table, &first, descent, Start::AsAsked)?;
        while done.pages < pages {
            let node = done.node.expect("a portion has pages");
            if self.parts()?.0.hold_down(node, done.pages, descent).is_none() {
                break;
            }
            self.let_in()?;
            let next = part(done.pages, pages.min(done.pages + portion));
            let next = InsertRequest { lock: false, ..next };
            let (cache, table) = self.parts()?;
            let Ok(more) = cache.insert(table, &next, descent, Start::Held) else { break };
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
        descent: &Descent,
    ) -> Result<(), Error> {
        let (portion, page_size) = (self.shared.read_portion(), self.table.page_size());
        let (cache, table) = self.parts()?;
        let (existing, mut given) = cache.check_insert(table, request, descent)?;
        let mut place = existing;
        for pages in request.pages[existing..request.tokens.ids.len() / page_size].chunks(portion) {
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
