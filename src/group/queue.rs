//! The pages of a pool that nobody uses, in the order in which they go.
use super::hung::Entry;

/// No page: page 0 is reserved.
pub(super) const NONE: u32 = 0;

/// A list through the entries of a pool, from the page that was used longest ago to the latest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The page whose turn it is.
    pub(super) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|&page| page != NONE)
    }

    /// Puts a page at the end.
    pub(super) fn push(&mut self, entries: &mut [Entry], page: u32) {
        let before = std::mem::replace(&mut self.newest, page);
        let entry = &mut entries[page as usize];
        (entry.older, entry.newer, entry.is_queued) = (before, NONE, true);
        match before {
            NONE => self.oldest = page,
            _ => entries[before as usize].newer = page,
        }
        self.len += 1;
    }

    /// Takes a page out.
    pub(super) fn remove(&mut self, entries: &mut [Entry], page: u32) {
        let entry = &mut entries[page as usize];
        let (older, newer) = (entry.older, entry.newer);
        (entry.older, entry.newer, entry.is_queued) = (NONE, NONE, false);
        match older {
            NONE => self.oldest = newer,
            _ => entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => entries[newer as usize].older = older,
        }
        self.len -= 1;
    }

    /// Its pages, oldest first; one more than there are, should it be a ring.
    pub(super) fn iter<'a>(&self, entries: &'a [Entry]) -> impl Iterator<Item = u32> + use<'a> {
        let next = |page: &u32| Some(entries[*page as usize].newer).filter(|&page| page != NONE);
        std::iter::successors(self.oldest(), next).take(entries.len() + 1)
    }
}
