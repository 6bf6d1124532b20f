//! Pages that left: those of one call come into as few records as possible.
use super::record::{self, RECORD_PAGES};
use super::{Journal, Reason};
use crate::group::{GROUP_LIMIT, HungPage};

/// Pages that left last and are in no record yet, by group; none between two calls.
#[derive(Debug)]
pub(super) struct Left {
    pages: [[u32; RECORD_PAGES]; GROUP_LIMIT],
    counts: [usize; GROUP_LIMIT],
    /// Why.
    reason: Reason,
}

impl Left {
    pub fn new() -> Self {
        Self {
            pages: [[0; RECORD_PAGES]; GROUP_LIMIT],
            counts: [0; GROUP_LIMIT],
            reason: Reason::Capacity,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.counts == [0; GROUP_LIMIT]
    }
}

impl Journal {
    /// Writes down pages of group 0 that left, the last of them first. They come into records
    /// together, until `end_removal`. Those that were cleared before left for that reason.
    pub fn remove(&mut self, pages: &[u32], reason: Reason) {
        for &page in pages.iter().rev() {
            let reason = match self.mirror.remove(page) {
                Some(true) => reason,
                Some(false) => Reason::Invalidated,
                None => continue,
            };
            self.leave(0, page, reason);
        }
    }

    /// Writes down that a page of a pool left, which hung on one of group 0 that has not left yet.
    pub fn take_down(&mut self, hung: HungPage, pool: usize, spine: u32, reason: Reason) {
        if self.hung.forget(pool, hung.page) {
            let is_held = self.mirror.has(spine);
            let reason = if is_held { reason } else { Reason::Invalidated };
            self.leave(hung.group, hung.page, reason);
        }
    }

    fn leave(&mut self, group: usize, page: u32, reason: Reason) {
        if reason != self.left.reason || self.left.counts[group] == RECORD_PAGES {
            self.end_removal();
        }
        self.left.reason = reason;
        self.left.pages[group][self.left.counts[group]] = page;
        self.left.counts[group] += 1;
    }

    /// Completes the records of the pages that left last: what hung on pages of group 0, and then
    /// those.
    pub fn end_removal(&mut self) {
        for group in (0..GROUP_LIMIT).rev() {
            let left = &self.left.pages[group][..std::mem::take(&mut self.left.counts[group])];
            if !left.is_empty() {
                let into = self.ring.push(record::removed_words(left.len()));
                record::write_removed(into, group, left, self.left.reason);
            }
        }
    }
}
