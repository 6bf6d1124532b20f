//! Clearing while requests run. What was cached nobody finds; who holds some of it keeps it, and it
//! is free when the last of them lets go.
use super::books::{Books, Page, Wrong, require};
use super::tokens::Tokens;
use super::world::{Fault, World};
use crate::model::namespaces::covers;

impl Books {
    /// Whether nobody finds what is published for these tokens.
    pub fn is_cleared(&self, tokens: &Tokens) -> bool {
        !self.lives.is_found(tokens.space)
    }

    fn is_hidden(&self, page: u32) -> bool {
        self.state(page) == Page::Cached && !self.lives.is_found(self.space(page))
    }

    /// Cached pages that nobody finds.
    fn hidden_pages(&self) -> Vec<u32> {
        (1..self.page_count()).filter(|&page| self.is_hidden(page)).collect()
    }

    /// Whether a clear has anything to free.
    fn would_free(&self, ns: u8, flags: u32) -> bool {
        (1..self.page_count()).any(|page| {
            let unused = self.state(page) == Page::Cached && !self.is_protected(page);
            unused && covers(flags, ns, self.space(page).name)
        })
    }

    /// Of pages that somebody let go, those that nobody finds or is known to hold any more.
    pub fn take_let_go(&mut self) -> Vec<u32> {
        let mut pages = self.take_unprotected();
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| self.is_hidden(page) && !self.is_protected(page));
        pages
    }
}

impl World {
    /// Clears the namespaces that are like one in what the RKV_CLEAR_ flags say.
    pub fn clear(&mut self, ns: u8, flags: u32) -> Result<(), Wrong> {
        self.log.say("clear", ns.into(), flags.into());
        let matters = self.books.wide_locks == 0 && self.books.would_free(ns, flags);
        let slips = matters && self.slips(Fault::SkippedClear);
        let done = (!slips).then(|| self.call(|library| library.clear(ns, flags)));
        let cached = self.books.counts.cached;
        self.books.lives.clear(|name| covers(flags, ns, name));
        let hidden = self.books.hidden_pages();
        self.books.look_at(&hidden);
        let mut dropped = 0;
        for at in (0..self.kept.len()).rev() {
            if self.books.is_cleared(&self.kept[at].sequence.tokens) {
                self.forget_kept(at);
                dropped += 1;
            }
        }
        self.settle()?;
        let (freed, held) = (cached - self.books.counts.cached, self.books.hidden_pages().len());
        if freed > 0 {
            self.mark("a clear frees pages");
        }
        if held > 0 {
            self.mark("a clear leaves pages to who holds them");
        }
        let Some(done) = done else { return Ok(()) };
        let done = done.map_err(|status| format!("rkv_cache_clear: {status:?}"))?;
        let seen = [done.freed_page_count, done.held_page_count, done.dropped_sequence_count];
        let ours = [freed, held, dropped].map(|count| count as u64);
        require!(seen == ours, "freed, held, dropped by a clear: {seen:?}, in the books {ours:?}");
        Ok(())
    }

    /// Pages that nobody finds or holds any more are free. Where a lock may protect more than is
    /// known, the library knows whether they are still held.
    pub fn drop_cleared(&mut self) -> Result<(), Wrong> {
        for page in self.books.take_let_go() {
            let held = self.library.contains_page(page);
            match held.map_err(|status| format!("rkv_cache_contains_page: {status:?}"))? {
                false => self.books.drop_cleared(page),
                true => {
                    let wide = self.books.wide_locks;
                    require!(wide > 0, "page {page} was cleared, nobody holds it, and it stays");
                    self.books.look_at(&[page]);
                }
            }
        }
        Ok(())
    }
}
