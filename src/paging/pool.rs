//! The pool of physical pages, and the state of each.
//!
//! ```text
//!            take               map                 claim                evict
//!   free ──────────► private ────────► private ─────────────► cached ───────────► free
//!                    (loose)           (in a row)   or from loose
//!                       └── put back ──────┴── row erased ─────────────────────► free
//! ```
//!
//! Two more private states are in no row: *retained*, of a finished sequence that others may go on
//! from, and *lent*, which its owner gave up while copies out of it were not done yet.
use crate::error::Error;
use crate::error::text;
use std::collections::BTreeSet;

/// Who may change a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOwner {
    /// Whoever allocated the slot.
    Caller,
    /// A sequence.
    Sequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    Free,
    /// Private and in no row.
    Loose,
    /// Private and in exactly one row, of a caller.
    Mapped,
    /// Private and in exactly one row, of a sequence: nobody else may publish or free it.
    Sequence,
    /// Private, in no row, of a retained sequence.
    Retained,
    /// Private, in no row, nobody's: kept for the copies that read it.
    Lent,
    Cached,
}

/// Pages 1 and up. Page 0 is reserved: it is never handed out.
#[derive(Debug)]
pub struct PagePool {
    states: Vec<PageState>,
    /// Free pages; the one put back last is taken first, while it is still warm.
    free: Vec<u32>,
    cached: usize,
    /// Copies that are not done: the private page that each reads, and the slot that it is for.
    loans: BTreeSet<(u32, u32)>,
}

impl PagePool {
    pub(super) fn new(page_count: u32) -> Result<Self, Error> {
        let count = page_count as usize;
        let no_room = |_| Error::memory("the page pool: config.page_count");
        let (mut states, mut free) = (Vec::new(), Vec::new());
        states.try_reserve_exact(count).map_err(no_room)?;
        free.try_reserve_exact(count).map_err(no_room)?;
        states.resize(count, PageState::Free);
        // Page 0 is never free, and never anything else that somebody could own.
        states[0] = PageState::Cached;
        free.extend((1..page_count).rev());
        Ok(Self { states, free, cached: 0, loans: BTreeSet::new() })
    }

    /// Pages that can be handed out.
    pub fn total(&self) -> usize {
        self.states.len() - 1
    }

    /// Pages in the pool.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages of the index.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Pages of rows, retained sequences, open copies and callers.
    pub fn private(&self) -> usize {
        self.total() - self.free() - self.cached
    }

    pub(super) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<PageState>() + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn state(&self, page: u32) -> Option<PageState> {
        self.states.get(page as usize).copied().filter(|_| page != 0)
    }

    pub(super) fn free_list(&self) -> &[u32] {
        &self.free
    }

    pub(super) fn set_mapped(&mut self, page: u32) {
        debug_assert_eq!(self.state(page), Some(PageState::Loose));
        self.states[page as usize] = PageState::Mapped;
    }

    /// Undoes `set_mapped`; cached pages stay as they are.
    pub(super) fn set_loose(&mut self, page: u32) {
        let state = &mut self.states[page as usize];
        if *state == PageState::Mapped {
            *state = PageState::Loose;
        }
    }

    /// Takes pages that become a row's; the pool has that many.
    pub(super) fn take_for_row(&mut self, owner: RowOwner, count: usize, row: &mut Vec<u32>) {
        let state = match owner {
            RowOwner::Caller => PageState::Mapped,
            RowOwner::Sequence => PageState::Sequence,
        };
        let first = row.len();
        row.extend(self.free.drain(self.free.len() - count..).rev());
        row[first..].iter().for_each(|&page| self.states[page as usize] = state);
    }

    /// Takes a page that belongs to the caller.
    pub fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.states[page as usize] = PageState::Loose;
        Some(page)
    }

    /// Puts a page back that was private, or that the index dropped. One that copies still read
    /// follows when the last of them is done.
    pub fn put_back(&mut self, page: u32) {
        let lent = self.is_lent(page);
        let state = &mut self.states[page as usize];
        debug_assert!(page != 0 && *state != PageState::Free);
        if lent {
            debug_assert_ne!(*state, PageState::Cached);
            *state = PageState::Lent;
            return;
        }
        self.cached -= (*state == PageState::Cached) as usize;
        *state = PageState::Free;
        self.free.push(page);
    }

    /// Puts pages back that the index dropped, the last one first.
    pub fn put_back_all(&mut self, pages: &[u32]) {
        for &page in pages {
            debug_assert_eq!(self.state(page), Some(PageState::Cached));
            self.states[page as usize] = PageState::Free;
        }
        self.cached -= pages.len();
        self.free.extend(pages.iter().rev());
    }

    /// Gives pages of a sequence to the index.
    pub fn claim(&mut self, pages: &[u32]) {
        for &page in pages {
            debug_assert_eq!(self.state(page), Some(PageState::Sequence));
            self.states[page as usize] = PageState::Cached;
        }
        self.cached += pages.len();
    }

    /// Gives pages that must be private, and no sequence's, to the index, all or none. `first` is
    /// the place of the first in the caller's list, for the message.
    pub fn claim_all(&mut self, pages: &[u32], first: usize) -> Result<(), Error> {
        let before: Vec<_> = pages.iter().map(|&page| self.state(page)).collect();
        for (at, &page) in pages.iter().enumerate() {
            if matches!(self.state(page), Some(PageState::Loose | PageState::Mapped)) {
                self.states[page as usize] = PageState::Cached;
                self.cached += 1;
                continue;
            }
            for (&page, state) in pages[..at].iter().zip(before).rev() {
                self.states[page as usize] = state.expect("it was private");
                self.cached -= 1;
            }
            return Err(Error::argument(text!(
                "args.pages[{}] {page} is not private to the caller, or given twice",
                first + at
            )));
        }
        Ok(())
    }

    /// Lets a copy for a slot read a private page until `end_loan`.
    pub fn lend(&mut self, page: u32, slot: u32) {
        debug_assert!(matches!(
            self.state(page),
            Some(PageState::Sequence | PageState::Retained | PageState::Lent)
        ));
        let new = self.loans.insert((page, slot));
        debug_assert!(new);
    }

    /// The copy for a slot is done, or will never be. False when none reads such a private page.
    pub fn end_loan(&mut self, page: u32, slot: u32) -> bool {
        let was_lent = self.loans.remove(&(page, slot));
        if was_lent && !self.is_lent(page) && self.state(page) == Some(PageState::Lent) {
            self.put_back(page);
        }
        was_lent
    }

    /// Whether copies read any private page.
    pub fn has_loans(&self) -> bool {
        !self.loans.is_empty()
    }

    /// The slots whose copies read a private page.
    pub fn borrowers(&self, page: u32) -> impl Iterator<Item = u32> + '_ {
        self.loans.range((page, 0)..=(page, u32::MAX)).map(|&(_, slot)| slot)
    }

    fn is_lent(&self, page: u32) -> bool {
        self.has_loans() && self.borrowers(page).next().is_some()
    }

    pub(super) fn loans(&self) -> &BTreeSet<(u32, u32)> {
        &self.loans
    }

    /// Keeps a page of a sequence's row for the sequence when it is retained.
    pub(super) fn set_retained(&mut self, page: u32) {
        debug_assert_eq!(self.state(page), Some(PageState::Sequence));
        self.states[page as usize] = PageState::Retained;
    }

    /// Whether the index has a page.
    pub fn is_cached(&self, page: u32) -> bool {
        self.state(page) == Some(PageState::Cached)
    }

    /// Whether a page holds something, whoever has it.
    pub fn is_in_use(&self, page: u32) -> bool {
        self.state(page).is_some_and(|state| state != PageState::Free)
    }

    /// Whether a page belongs to a row or a caller, who may write to it.
    pub fn is_private(&self, page: u32) -> bool {
        use PageState::{Loose, Mapped, Sequence};
        matches!(self.state(page), Some(Loose | Mapped | Sequence))
    }

    /// Puts back pages that must be private and in no row, all or none.
    pub fn free_loose(&mut self, pages: &[u32]) -> Result<(), Error> {
        for (at, &page) in pages.iter().enumerate() {
            let what = match self.state(page) {
                // Marked at once, so that a page given twice is seen.
                Some(PageState::Loose) => {
                    self.states[page as usize] = PageState::Mapped;
                    continue;
                }
                None => "no page of this table",
                Some(PageState::Free) => "free already",
                Some(PageState::Cached) => "owned by the cache",
                Some(PageState::Mapped) if pages[..at].contains(&page) => "given twice",
                Some(PageState::Mapped | PageState::Sequence) => "mapped in a row",
                Some(PageState::Retained) => "kept for a retained sequence",
                Some(PageState::Lent) => "kept for a copy that is not confirmed",
            };
            for &page in &pages[..at] {
                self.states[page as usize] = PageState::Loose;
            }
            return Err(Error::argument(text!("pages[{at}] {page} is {what}")));
        }
        for &page in pages.iter().rev() {
            self.put_back(page);
        }
        Ok(())
    }
}
