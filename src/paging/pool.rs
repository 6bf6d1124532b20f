//! The pool of physical pages, and the state of each.
//!
//! ```text
//!            take               map                 claim                evict
//!   free ──────────► private ────────► private ─────────────► cached ───────────► free
//!                    (loose)           (in a row)   or from loose
//!                       └── put back ──────┴── row erased ─────────────────────► free
//! ```
//!
//! The pool may be *external*: somebody else has an allocator for its pages. Then nothing is free
//! and nothing private: a page is outside until the index claims it, and again when the index drops
//! it.
//!
//! Copies between tiers read pages of the index and write to private ones (`copied`). Who gives
//! such a page up gives it up at once, and nobody gets it before its copy is done: it is *lent*.
//!
//! Three more private states are in no row: *retained*, of a finished sequence that others may go
//! on from, *lent*, which its owner gave up while copies out of it were not done yet, and *taken*,
//! of a call that lets others in before it has all the pages that it needs.
use super::copied::Copied;
use crate::error::Error;
use crate::error::text;
use crate::memory::{OrderedMap, OutOfMemory};
use smallvec::SmallVec;

/// Who may change a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOwner {
    /// Whoever allocated the slot.
    Caller,
    /// A sequence.
    Sequence,
}

impl RowOwner {
    /// What the private pages of such a row are.
    pub(super) fn pages(self) -> PageState {
        match self {
            Self::Caller => PageState::Mapped,
            Self::Sequence => PageState::Sequence,
        }
    }
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
    /// Private, in no row, of a call that is still taking pages: nobody knows it yet.
    Taken,
    Cached,
    /// Of an external pool, and not cached.
    Outside,
}

/// What pages were before the index got them.
#[derive(Debug)]
pub struct Claimed(SmallVec<[PageState; 64]>);

/// Pages 1 and up. Page 0 is reserved: it is never handed out.
#[derive(Debug)]
pub struct PagePool {
    states: Vec<PageState>,
    /// What a page is that nobody has: free, or outside.
    unused: PageState,
    /// Free pages; the one put back last is taken first, while it is still warm. There is no room
    /// for any when the pool is external.
    free: Vec<u32>,
    cached: usize,
    /// Copies that are not done: the private page that each reads, and the slot that it is for.
    loans: OrderedMap<(u32, u32), ()>,
    copied: Copied,
}

impl PagePool {
    pub(super) fn new(page_count: u32, external: bool) -> Result<Self, Error> {
        let count = page_count as usize;
        let no_room = |_| Error::memory("the page pool: config.page_count");
        let (mut states, mut free) = (Vec::new(), Vec::new());
        let unused = if external { PageState::Outside } else { PageState::Free };
        states.try_reserve_exact(count).map_err(no_room)?;
        states.resize(count, unused);
        // Page 0 is never free, and never anything else that somebody could own.
        states[0] = PageState::Cached;
        if !external {
            free.try_reserve_exact(count).map_err(no_room)?;
            free.extend((1..page_count).rev());
        }
        Ok(Self {
            states,
            unused,
            free,
            cached: 0,
            loans: OrderedMap::default(),
            copied: Copied::default(),
        })
    }

    /// Whether somebody else hands the pages out.
    pub fn is_external(&self) -> bool {
        self.unused == PageState::Outside
    }

    /// Refuses what an external pool has no pages for.
    pub fn check_own(&self) -> Result<(), Error> {
        if self.is_external() { Err(refused()) } else { Ok(()) }
    }

    /// Pages that can be handed out, or that can be outside.
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
        self.total() - self.free() - self.cached - self.outside()
    }

    /// Pages of an external pool that are not the index's.
    pub fn outside(&self) -> usize {
        if self.is_external() { self.total() - self.cached } else { 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        let states = self.states.capacity() * size_of::<PageState>();
        let lists = self.free.capacity() * size_of::<u32>() + self.copied.bytes();
        states + lists + self.loans.bytes()
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

    /// Takes pages, of which the pool has that many, to the end of a list that has room for them.
    #[inline(always)]
    fn take(&mut self, state: PageState, count: usize, into: &mut Vec<u32>) {
        assert!(into.capacity() - into.len() >= count, "room was made for the pages");
        let (first, left) = (into.len(), self.free.len() - count);
        into.extend(self.free[left..].iter().rev());
        self.free.truncate(left);
        let states = &mut self.states[..];
        into[first..].iter().for_each(|&page| states[page as usize] = state);
    }

    /// Takes pages that become a row's.
    #[inline(always)]
    pub fn take_for_row(&mut self, owner: RowOwner, count: usize, row: &mut Vec<u32>) {
        self.take(owner.pages(), count, row);
    }

    /// Takes one that becomes a row's, of which the pool has some.
    pub fn take_one(&mut self, owner: RowOwner) -> u32 {
        let page = self.free.pop().expect("it was seen that a page is free");
        self.states[page as usize] = owner.pages();
        page
    }

    /// Takes pages that belong to the caller.
    pub fn take_loose(&mut self, count: usize, into: &mut Vec<u32>) {
        self.take(PageState::Loose, count, into);
    }

    /// Takes pages for a call that needs more before it has enough.
    pub fn take_early(&mut self, count: usize, into: &mut Vec<u32>) {
        self.take(PageState::Taken, count, into);
    }

    /// Says whose pages are that were taken early: a row's, or the caller's own.
    pub fn hand_over(&mut self, pages: &[u32], row: Option<RowOwner>) {
        let state = row.map_or(PageState::Loose, RowOwner::pages);
        for &page in pages {
            assert_eq!(self.state(page), Some(PageState::Taken), "page {page} was taken early");
            self.states[page as usize] = state;
        }
    }

    /// Puts a page back that was private. One that copies still read follows when the last of them
    /// is done.
    #[inline(always)]
    pub fn put_back(&mut self, page: u32) {
        let lent = self.is_lent(page) || self.copied.has(page);
        let state = &mut self.states[page as usize];
        assert!(page != 0 && *state != PageState::Free, "page {page} is in use");
        debug_assert!(!matches!(state, PageState::Cached | PageState::Outside));
        if lent {
            *state = PageState::Lent;
            return;
        }
        *state = PageState::Free;
        self.free.push(page);
    }

    /// Puts pages back that the index dropped, the last one first; those of an external pool are
    /// outside.
    pub fn put_back_all(&mut self, pages: &[u32]) {
        for &page in pages {
            debug_assert_eq!(self.state(page), Some(PageState::Cached));
            self.states[page as usize] = self.unused;
        }
        self.cached -= pages.len();
        if !self.copied.is_empty() {
            return self.put_back_copied(pages);
        }
        if !self.is_external() {
            self.free.extend(pages.iter().rev());
        }
    }

    /// The same while pages are copied between tiers: those stay until their copies are done.
    #[cold]
    fn put_back_copied(&mut self, pages: &[u32]) {
        for &page in pages.iter().rev() {
            if self.copied.has(page) {
                self.states[page as usize] = PageState::Lent;
                self.copied.cached -= 1;
            } else {
                self.free.push(page);
            }
        }
    }

    /// Makes room for copies between tiers, of any page.
    pub fn reserve_copied(&mut self) -> Result<(), OutOfMemory> {
        debug_assert!(!self.is_external(), "who has the pages would use them again at once");
        self.copied.try_reserve(self.states.len())
    }

    /// A copy between tiers reads a page of the index, or writes to one of a sequence, until
    /// `end_copied`. Room was made. False when another one does already.
    pub fn begin_copied(&mut self, page: u32) -> bool {
        let state = self.states[page as usize];
        debug_assert!(matches!(state, PageState::Cached | PageState::Sequence));
        let is_first = self.copied.set(page, true);
        self.copied.cached += (is_first && state == PageState::Cached) as usize;
        is_first
    }

    /// Such a copy is done, or will never be.
    pub fn end_copied(&mut self, page: u32) {
        let was_copied = self.copied.set(page, false);
        assert!(was_copied, "page {page} is being copied");
        match self.states[page as usize] {
            PageState::Cached => self.copied.cached -= 1,
            PageState::Lent if !self.is_lent(page) => self.put_back(page),
            _ => {}
        }
    }

    /// Whether a copy between tiers reads a page or writes to it.
    pub fn is_copied(&self, page: u32) -> bool {
        self.copied.has(page)
    }

    /// Pages that are being copied between tiers; of those, how many the index has, which come free
    /// a while after it has dropped them.
    pub fn copied(&self) -> (usize, usize) {
        (self.copied.count, self.copied.cached)
    }

    /// Gives pages of a sequence to the index.
    pub fn claim(&mut self, pages: &[u32]) {
        let states = &mut self.states[..];
        for &page in pages {
            let state = &mut states[page as usize];
            assert!(*state == PageState::Sequence, "page {page} is a sequence's");
            *state = PageState::Cached;
        }
        self.cached += pages.len();
    }

    /// Gives pages that must be private, and no sequence's, or outside, to the index, all or none;
    /// returns what `take_back` undoes it with. `first` is the place of the first in the caller's
    /// list, for the message.
    pub fn claim_all(&mut self, pages: &[u32], name: &str, first: usize) -> Result<Claimed, Error> {
        let mut before = Claimed(SmallVec::new());
        before.0.try_reserve_exact(pages.len()).map_err(|_| OutOfMemory)?;
        for (at, &page) in pages.iter().enumerate() {
            use PageState::{Cached, Loose, Mapped, Outside};
            match self.states.get_mut(page as usize) {
                // Not page 0, which is never any of these.
                Some(state @ (Loose | Mapped | Outside)) => {
                    before.0.push(std::mem::replace(state, Cached));
                }
                _ => {
                    self.cached += at;
                    self.take_back(&pages[..at], before);
                    return Err(self.not_to_claim(name, first + at, page));
                }
            }
        }
        self.cached += pages.len();
        Ok(before)
    }

    /// Whether the index may get a page from a caller.
    pub fn may_claim(&self, page: u32) -> bool {
        use PageState::{Loose, Mapped, Outside};
        matches!(self.state(page), Some(Loose | Mapped | Outside))
    }

    /// Why a page of the caller's list can't be claimed.
    #[cold]
    pub fn not_to_claim(&self, name: &str, at: usize, page: u32) -> Error {
        let what = match (self.state(page), self.is_external()) {
            (None, _) => "no page of this table",
            (_, true) => "the cache's at another place, or given twice",
            (_, false) => "not private to the caller, or given twice",
        };
        Error::argument(text!("{name}[{at}] {page} is {what}"))
    }

    /// Marks a page that stays outside, until `unmark`: false when it is not outside, or marked.
    pub fn mark_outside(&mut self, page: u32) -> bool {
        let is_outside = self.state(page) == Some(PageState::Outside);
        if is_outside {
            self.states[page as usize] = PageState::Taken;
        }
        is_outside
    }

    /// Undoes `mark_outside`. Of an external pool no other page looks marked.
    pub fn unmark(&mut self, page: u32) {
        if self.state(page) == Some(PageState::Taken) {
            self.states[page as usize] = PageState::Outside;
        }
    }

    /// Undoes `claim_all` of these pages.
    pub fn take_back(&mut self, pages: &[u32], claimed: Claimed) {
        assert_eq!(pages.len(), claimed.0.len(), "the pages are those that were claimed");
        for (&page, state) in pages.iter().zip(claimed.0) {
            self.states[page as usize] = state;
        }
        self.cached -= pages.len();
    }

    /// Makes room for loans.
    pub fn reserve_loans(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.loans.try_reserve(count)
    }

    /// Lets a copy for a slot read a private page until `end_loan`.
    pub fn lend(&mut self, page: u32, slot: u32) {
        debug_assert!(matches!(
            self.state(page),
            Some(PageState::Sequence | PageState::Retained | PageState::Lent)
        ));
        let before = self.loans.insert((page, slot), ());
        debug_assert!(before.is_none());
    }

    /// The copy for a slot is done, or will never be. False when none reads such a private page.
    pub fn end_loan(&mut self, page: u32, slot: u32) -> bool {
        let was_lent = self.loans.remove(&(page, slot)).is_some();
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
    pub fn borrowers(&self, page: u32) -> impl Iterator<Item = u32> {
        let loans = self.loans.from(&(page, 0)).map(|(loan, ())| *loan);
        loans.take_while(move |&(lent, _)| lent == page).map(|(_, slot)| slot)
    }

    /// One of them.
    pub fn first_borrower(&self, page: u32) -> Option<u32> {
        self.borrowers(page).next()
    }

    fn is_lent(&self, page: u32) -> bool {
        self.has_loans() && self.first_borrower(page).is_some()
    }

    pub(super) fn loans(&self) -> impl Iterator<Item = (u32, u32)> {
        self.loans.iter().map(|(loan, ())| *loan)
    }

    /// Keeps a page of a sequence's row for the sequence when it is retained.
    pub fn set_retained(&mut self, page: u32) {
        debug_assert_eq!(self.state(page), Some(PageState::Sequence));
        self.states[page as usize] = PageState::Retained;
    }

    /// Whether the index has a page.
    pub fn is_cached(&self, page: u32) -> bool {
        self.state(page) == Some(PageState::Cached)
    }

    /// Whether a page is a retained sequence's.
    pub fn is_retained(&self, page: u32) -> bool {
        self.state(page) == Some(PageState::Retained)
    }

    /// Whether a page holds something, whoever has it.
    pub fn is_in_use(&self, page: u32) -> bool {
        self.state(page).is_some_and(|state| state != self.unused)
    }

    /// Whether a page belongs to a row or a caller, who may write to it.
    pub fn is_private(&self, page: u32) -> bool {
        use PageState::{Loose, Mapped, Sequence};
        matches!(self.state(page), Some(Loose | Mapped | Sequence))
    }

    /// Takes loose pages out of the caller's hands, on their way back to the pool. Stops at the
    /// first that is none: its place.
    pub fn withdraw(&mut self, pages: &[u32]) -> Result<(), usize> {
        for (at, &page) in pages.iter().enumerate() {
            match self.states.get_mut(page as usize) {
                Some(state @ PageState::Loose) => *state = PageState::Taken,
                _ => return Err(at),
            }
        }
        Ok(())
    }

    /// Why a page of the caller's list, of which those before it were withdrawn, is not loose.
    #[cold]
    pub fn not_loose(&self, pages: &[u32], at: usize) -> Error {
        let page = pages[at];
        let what = match self.state(page) {
            None => "no page of this table",
            Some(PageState::Free) => "free already",
            Some(PageState::Cached) => "owned by the cache",
            Some(PageState::Mapped | PageState::Sequence) => "mapped in a row",
            Some(PageState::Retained) => "kept for a retained sequence",
            Some(PageState::Lent) => "kept for a copy that is not confirmed",
            Some(PageState::Taken) if pages[..at].contains(&page) => "given twice",
            Some(PageState::Taken | PageState::Loose) => "not the caller's now",
            Some(PageState::Outside) => "outside",
        };
        Error::argument(text!("pages[{at}] {page} is {what}"))
    }

    /// Puts back pages that must be private and in no row, all or none.
    pub fn free_loose(&mut self, pages: &[u32]) -> Result<(), Error> {
        if let Err(at) = self.withdraw(pages) {
            let error = self.not_loose(pages, at);
            self.hand_over(&pages[..at], None);
            return Err(error);
        }
        pages.iter().rev().for_each(|&page| self.put_back(page));
        Ok(())
    }
}

/// Why an external pool has no slots, rows, sequences and pages to allocate.
#[cold]
pub(super) fn refused() -> Error {
    Error::unsupported(
        "the page table's pool is external: whoever has its pages hands them out and keeps the \
         rows; there are no slots and no sequences",
    )
}
