//! Digests of pages that sequences publish, made while others have the lock.
//!
//! What they are made of may change meanwhile: so the keys are copied, and the version of the list
//! that they come from tells whether they are still its first ones. Those of several sequences of a
//! call are made side by side.
use super::ahead::SHORTS;
use super::ready_digests::{ReadyDigests, is_worth_it};
use super::{Sequence, State, Turn};
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::try_to_vec;
use crate::token::{PageDigest, TOGETHER, TextDigester, TextDigests};
use smallvec::SmallVec;

/// Keys that are copied at once, or a page of them: in 4 us.
const COPIED: usize = 1 << 14;

/// Digests of the next pages of a sequence.
#[derive(Debug, Default)]
pub(crate) struct TailDigests {
    of: Option<Tail>,
    digests: TextDigests,
}

/// The keys of a sequence behind a page, as they were at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail {
    id: SequenceId,
    version: u64,
    /// The page with which they begin, and the digest of the one before.
    first_page: usize,
    parent: PageDigest,
}

impl TailDigests {
    /// Those of the pages with which the tail of a sequence begins.
    pub(crate) fn first(&self, sequence: &Sequence) -> &[PageDigest] {
        let known = self.of.filter(|of| of.version == sequence.tail.version());
        let passed = known.and_then(|of| sequence.base_pages.checked_sub(of.first_page));
        passed.and_then(|passed| self.digests.get(passed..)).unwrap_or_default()
    }

    /// Some of the pages were published, of a tail that had this version: nobody else has changed
    /// it since. Digests of another version stay what they are, of no use.
    pub(crate) fn published(&mut self, before: u64, sequence: &Sequence) {
        if let Some(of) = self.of.as_mut().filter(|of| of.version == before) {
            of.version = sequence.tail.version();
        }
    }

    fn is_of(&self, id: SequenceId) -> bool {
        self.of.is_some_and(|of| of.id == id)
    }
}

impl ReadyDigests {
    /// Those that were made for a sequence.
    fn take_tail(&self, id: SequenceId) -> Option<TailDigests> {
        let mut tails = self.tails.borrow_mut();
        tails.iter_mut().find(|tail| tail.is_of(id)).map(std::mem::take)
    }
}

impl State {
    /// What the tail of a sequence is, where its pages have digests and the first may be text.
    fn digested_tail(&self, sequence: &Sequence) -> Option<Tail> {
        let first = || Some(sequence.namespace.digest());
        let index = &self.cache.as_ref()?.index;
        Some(Tail {
            id: sequence.id?,
            version: sequence.tail.version(),
            first_page: sequence.base_pages,
            parent: sequence.base.map_or_else(first, |base| index.digest(base))?,
        })
    }

    /// A copy of the keys of so many pages of a sequence, or of as many as are copied at once.
    fn copy_tail(&self, sequence: &Sequence, pages: usize) -> Option<(Tail, Vec<u32>)> {
        let (page_size, keys) = (self.table.page_size(), sequence.tail());
        let pages = pages.min((COPIED / page_size).max(1)).min(keys.len() / page_size);
        let keys = try_to_vec(&keys[..pages * page_size]).ok()?;
        Some((self.digested_tail(sequence)?, keys))
    }

    /// Whether all pages with these digests, the first ones of its tail, are cached where a
    /// sequence is.
    fn has_first(&self, sequence: &Sequence, digests: &[PageDigest]) -> bool {
        let Some(cache) = &self.cache else { return false };
        let root = || cache.index.find_root(&sequence.namespace);
        let Some(from) = sequence.base.or_else(root) else { return false };
        let keys = cache.keys(&sequence.tail()[..digests.len() * self.table.page_size()]);
        let walk = cache.index.walk_digested(from, keys, digests);
        walk.pages == sequence.base_pages + digests.len()
    }
}

impl Turn<'_> {
    /// Makes digests for the next ones of a call over many, who publish so many positions.
    pub fn make_tails_ready(&mut self, next: impl Iterator<Item = (SequenceId, usize)>) {
        let Some(ready) = self.ready.filter(|_| self.digests_pages()) else { return };
        ready.tails.borrow_mut().clear();
        let page_size = self.table.page_size();
        let mut copies = SmallVec::<[(Tail, Vec<u32>); TOGETHER]>::new();
        for (id, computed) in next.take(TOGETHER) {
            let Ok(sequence) = self.sequence(id) else { continue };
            let pages = (computed / page_size).saturating_sub(sequence.base_pages);
            if is_worth_it(pages, page_size) {
                copies.extend(self.copy_tail(sequence, pages));
                self.let_waiting_in();
            }
        }
        if copies.len() > 1 {
            let made = self.unlocked(|| {
                let mut digesters: SmallVec<[_; TOGETHER]> = copies
                    .iter()
                    .map(|(tail, keys)| TextDigester::new(page_size, tail.parent, keys))
                    .collect();
                TextDigester::make_together(&mut digesters, COPIED);
                let made = copies.iter().zip(digesters).map(|(&(of, _), digester)| TailDigests {
                    of: Some(of),
                    digests: digester.made(),
                });
                made.collect()
            });
            *ready.tails.borrow_mut() = made;
        }
    }

    /// Makes the digests of the pages that a sequence publishes next, so many at most, and of those
    /// behind them where others have published all of it; unless they are few, or there already.
    pub(crate) fn digest_next(
        &mut self,
        id: SequenceId,
        (pages, ahead): (usize, usize),
        made: &mut TailDigests,
    ) -> Result<(), Error> {
        if let Some(ready) = self.ready.and_then(|ready| ready.take_tail(id)) {
            *made = ready;
        }
        let (page_size, few) = (self.table.page_size(), self.shared.slice / SHORTS);
        if pages <= few || !made.first(self.sequence(id)?).is_empty() {
            return Ok(());
        }
        let mut count = pages;
        loop {
            let sequence = self.sequence(id)?;
            let Some((of, keys)) = self.copy_tail(sequence, count) else { return Ok(()) };
            // Some of them are made already, if the keys are what they were.
            let known = std::mem::take(&mut made.digests);
            let known = if made.of == Some(of) { known } else { TextDigests::default() };
            let digests = self.unlocked(|| {
                let mut digester = match known.is_empty() {
                    true => TextDigester::new(page_size, of.parent, &keys),
                    false => TextDigester::after(page_size, known, &keys),
                };
                digester.make(count);
                digester.made()
            });
            *made = TailDigests { of: Some(of), digests };
            let sequence = self.sequence(id)?;
            let (first, prompt) = (made.first(sequence), sequence.prompt_positions / page_size);
            let more = (pages + ahead).min(prompt.saturating_sub(sequence.base_pages));
            let is_all = first.len() == count && self.has_first(sequence, first);
            if !is_all || more <= count {
                return Ok(());
            }
            count = more;
        }
    }

    /// Whether what is published gets digests.
    #[inline]
    pub(crate) fn digests_pages(&self) -> bool {
        self.state.cache.as_ref().is_some_and(|cache| cache.sharing.digests_pages)
    }
}
