//! Publishing what a sequence computed, so that others find it.
use super::COPY_IS_OPEN;
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::index::Node;
use crate::store::{PrefixCache, PublishedGroups, Sequence, State, TailDigests, Turn};
use crate::token::{Keys, PageDigest};
use std::ops::Range;

/// What publishing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Pages that went to the cache.
    pub claimed: usize,
    /// Pages whose place another one took.
    pub remapped: usize,
    /// Index in the row of the first of those; the row's length for none.
    pub first_remapped: usize,
    /// Leading pages of the row that the cache owns.
    pub shared_pages: usize,
}

impl Published {
    /// What was done, and then more.
    fn and(self, more: Self) -> Self {
        let first = if self.remapped > 0 { self.first_remapped } else { more.first_remapped };
        let (claimed, remapped) = (self.claimed + more.claimed, self.remapped + more.remapped);
        Self { claimed, remapped, first_remapped: first, ..more }
    }
}

impl State {
    /// Refuses to publish what isn't there, or while a copy is open.
    #[inline(always)]
    fn check_computed(&self, id: SequenceId, computed: usize) -> Result<(), Error> {
        self.check_in_row(id, computed, Sequence::check_loaded)
    }

    /// Refuses positions that a sequence hasn't or that have no pages, while a copy is open, or
    /// when it `waits`.
    #[inline(always)]
    pub(super) fn check_in_row(
        &self,
        id: SequenceId,
        computed: usize,
        waits: impl FnOnce(&Sequence) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sequence = self.sequence(id)?;
        if computed > sequence.positions {
            return Err(Error::argument(text!(
                "computed_position_count {computed} is more than the sequence's {} positions",
                sequence.positions
            )));
        }
        waits(sequence)?;
        if sequence.copy.is_some() || !sequence.groups.copies().is_empty() {
            return Err(Error::state(COPY_IS_OPEN));
        }
        let capacity = self.table.row(id.slot())?.len() * self.table.page_size();
        if computed > capacity {
            return Err(short_row(computed, capacity));
        }
        Ok(())
    }

    /// Publishes the whole pages among the first `computed` positions.
    ///
    /// Where somebody else published a page for the same tokens first, the row maps that one and
    /// ours is freed; so the pages of the cache are always the first of the row.
    pub fn publish(&mut self, id: SequenceId, computed: usize) -> Result<Published, Error> {
        self.publish_near(id, (computed, usize::MAX))
    }

    /// The same, looking no further than so many pages beyond those for what others published.
    pub(super) fn publish_near(
        &mut self,
        id: SequenceId,
        (computed, ahead): (usize, usize),
    ) -> Result<Published, Error> {
        self.check_computed(id, computed)?;
        let before = self.begin_publishing(id, computed);
        let published = self.publish_checked(id, (computed, ahead), &[]);
        if published.is_err() {
            self.take_back_publishing(id, before);
        }
        published
    }

    /// What was published before counts no more. The states are after all that is computed, also
    /// where only a part of it gets published, or nothing, or did when others are let in. What the
    /// one before did, with groups.
    fn begin_publishing(&mut self, id: SequenceId, computed: usize) -> Option<PublishedGroups> {
        if !self.has_groups() {
            return None;
        }
        let has_states = self.table.groups().draft_states().is_some();
        let rows = &mut self.sequences[id.slot() as usize].groups;
        let before = std::mem::take(&mut rows.published);
        if has_states {
            rows.accepted = rows.accepted.max(computed);
        }
        Some(before)
    }

    /// Nothing was published after all. What the states are after has changed all the same.
    #[cold]
    fn take_back_publishing(&mut self, id: SequenceId, before: Option<PublishedGroups>) {
        if let (Some(before), true) = (before, self.sequence(id).is_ok()) {
            self.sequences[id.slot() as usize].groups.published = before;
        }
    }

    /// The same of what was checked. The first pages behind the base, of text, may have these
    /// digests.
    #[inline]
    pub(super) fn publish_checked(
        &mut self,
        id: SequenceId,
        (computed, ahead): (usize, usize),
        digests: &[PageDigest],
    ) -> Result<Published, Error> {
        let slot = id.slot();
        let (row_len, page_size) = (self.table.row(slot)?.len(), self.table.page_size());
        let sequence = &self.sequences[slot as usize];
        let (before, base_pages) = (sequence.shared, sequence.base_pages);
        let pages = computed / page_size;
        let mut done =
            Published { claimed: 0, remapped: 0, first_remapped: row_len, shared_pages: before };
        if pages > base_pages {
            done.claimed = self.publish_tail(slot, (pages, ahead), digests)?;
        }
        // Nothing can fail from here on.
        let has_groups = self.has_groups();
        let sequence = &mut self.sequences[slot as usize];
        sequence.computed = sequence.computed.max(computed);
        if pages <= before {
            if has_groups {
                self.slide_groups(slot, computed);
            }
            return Ok(done);
        }
        // Pages that were computed again although the cache has them: a full hit, or a cut before
        // an image of which only a part was cached.
        self.remap_shared(slot, before, pages.min(base_pages));
        done.shared_pages = pages;
        done.remapped = pages - before - done.claimed;
        if done.remapped > 0 {
            // What is claimed lies behind what was there.
            done.first_remapped = before;
        }
        self.sequences[slot as usize].shared = pages;
        if has_groups {
            self.publish_groups(slot, before, pages);
            self.slide_groups(slot, computed);
        }
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.counters.inserted_pages += done.claimed as u64;
        cache.counters.duplicate_pages += done.remapped as u64;
        self.housekeeping.inserted(done.claimed * page_size);
        Ok(done)
    }

    /// What the last publishing of a sequence did in the groups beside the first.
    pub fn published_groups(&self, id: SequenceId) -> Result<PublishedGroups, Error> {
        Ok(self.sequence(id)?.groups.published)
    }

    /// Publishes from the end of the base on; the base and the lock move there. Returns how many
    /// pages were claimed.
    #[inline(always)] // of every chunk and decoded page
    fn publish_tail(
        &mut self,
        slot: u32,
        (pages, ahead): (usize, usize),
        digests: &[PageDigest],
    ) -> Result<usize, Error> {
        let page_size = self.table.page_size();
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        cache.reserve_journal()?;
        let sequence = &mut self.sequences[slot as usize];
        assert_eq!(sequence.lock, sequence.base, "no copy is open");
        let base_pages = sequence.base_pages;
        let row = &self.table.row(slot).expect("the slot is in use")[base_pages..pages];
        // The rest of the prompt is known too. Where somebody computed the same one already, the
        // lock goes to the end of that, instead of cutting his node at the end of each of our
        // chunks. Draft tokens may still be taken back, so they don't count.
        let last =
            pages.max((sequence.prompt_positions / page_size).min(pages.saturating_add(ahead)));
        let keys = &sequence.tail()[..(last - base_pages) * page_size];
        let known = Keys { keys, images: &cache.images };
        let digests = &digests[..digests.len().min(last - base_pages)];
        let inserted = match sequence.lock {
            Some(node) => cache.index.insert_digested((node, true), known, row, digests)?,
            None => {
                let root = match self.clears.concern(&sequence.namespace, sequence.began) {
                    false => cache.index.make_root(&sequence.namespace)?,
                    true => cache.index.make_detached_root(&sequence.namespace)?,
                };
                let inserted = cache.index.insert_digested((root, false), known, row, digests);
                if inserted.is_err() {
                    cache.index.prune_root(root);
                }
                let inserted = inserted?;
                cache.index.lock(inserted.node);
                inserted
            }
        };
        let claimed_keys = &keys[inserted.existing * page_size..row.len() * page_size];
        if !cache.images.is_empty() {
            cache.images.add_uses(claimed_keys);
        }
        let claimed = &row[inserted.existing..];
        cache.note_stored(inserted.node, base_pages + inserted.existing, claimed, claimed_keys);
        let end = cache.index.end_page(inserted.node);
        sequence.tail.drop_first((end - base_pages) * page_size);
        (sequence.lock, sequence.base) = (Some(inserted.node), Some(inserted.node));
        sequence.base_pages = end;
        let existing = base_pages + inserted.existing;
        self.table.claim_range(slot, existing..pages);
        if self.table.pool.has_loans() {
            self.protect_sources(inserted.node, slot, existing..pages);
        }
        self.remap_shared(slot, base_pages, existing);
        Ok(pages - existing)
    }

    /// Pages that children were to copy from became the cache's: the children lock them there, as
    /// they would after a lookup.
    fn protect_sources(&mut self, end: Node, slot: u32, claimed: Range<usize>) {
        for index in claimed {
            let page = self.table.row(slot).expect("the slot is in use")[index];
            while let Some(child) = self.table.pool.first_borrower(page) {
                self.table.pool.end_loan(page, child);
                let cache = self.cache.as_mut().expect("a sequence has a cache");
                let owner = cache.index.node_at_page(end, index);
                cache.index.lock(owner);
                if let Some(base) = self.sequences[child as usize].lock.replace(owner) {
                    cache.index.unlock(base);
                }
            }
        }
    }

    /// Maps the cache's pages at a range of the row; the private ones there go back to the pool.
    #[inline(always)]
    fn remap_shared(&mut self, slot: u32, from: usize, to: usize) {
        let sequence = &self.sequences[slot as usize];
        let (Some(base), true) = (sequence.base, from < to) else {
            return;
        };
        let (cache, table) =
            (self.cache.as_ref().expect("a sequence has a cache"), &mut self.table);
        cache.index.visit_path_from(base, from, &mut |start, pages| {
            for index in from.max(start)..to.min(start + pages.len()) {
                table.remap(slot, index, pages[index - start]);
            }
        });
    }

    /// Says that the copy is done.
    pub fn confirm_copies(&mut self, id: SequenceId) -> Result<(), Error> {
        let sequence = self.sequence(id)?;
        sequence.check_groups_loaded()?;
        if sequence.copy.is_none() && sequence.groups.copies().is_empty() {
            return Err(Error::state("no copy is open"));
        }
        // In this order: what hangs on a page is let go of before the page, which may go at once.
        self.end_group_copies(id.slot());
        self.end_copy(id.slot());
        Ok(())
    }

    /// Lets go of the page to copy from: of a page of the parent, or of the lock on its owner in
    /// the cache, which moves to the base.
    pub(crate) fn end_copy(&mut self, slot: u32) {
        let sequence = &mut self.sequences[slot as usize];
        let Some(copy) = sequence.copy.take() else {
            return;
        };
        self.table.pool.end_loan(copy.source, slot);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        if sequence.lock != sequence.base {
            if let Some(base) = sequence.base {
                cache.index.lock(base);
            }
            let source = std::mem::replace(&mut sequence.lock, sequence.base);
            self.let_go(source.expect("the source was locked"));
        }
    }
}

impl Turn<'_> {
    /// Publishes the whole pages among the first `computed` positions; many in portions, between
    /// which waiting threads get in.
    ///
    /// What is published stays: when a later portion lacks memory, or the sequence was cut short
    /// meanwhile, the result says how far it came.
    pub fn publish(&mut self, id: SequenceId, computed: usize) -> Result<Published, Error> {
        let page_size = self.table.page_size();
        if computed < (self.sequence(id)?.shared + 1) * page_size {
            // No page became whole, as in most steps of a decode.
            return self.state().publish(id, computed);
        }
        self.make_wanted_table();
        // Others may have been let in.
        let known = self.sequence(id)?.shared * page_size;
        self.ready_heap(computed.saturating_sub(known));
        self.check_computed(id, computed)?;
        let before = self.state().begin_publishing(id, computed);
        let published = match self.digests_pages() {
            true => self.publish_digested(id, computed),
            false => self.publish_portions(id, computed),
        };
        if published.is_err() {
            self.state().take_back_publishing(id, before);
        }
        published
    }

    /// The same of what was checked.
    #[inline]
    fn publish_portions(&mut self, id: SequenceId, computed: usize) -> Result<Published, Error> {
        let mut next = self.next_portion(id, computed)?;
        let mut done = self.publish_checked(id, (next.end, next.ahead), &[])?;
        while next.end < computed {
            self.make_wanted_table();
            self.let_waiting_in();
            next = self.next_portion(id, computed)?;
            let more = self.check_computed(id, computed);
            let more = more.and_then(|()| self.publish_checked(id, (next.end, next.ahead), &[]));
            let Ok(more) = more else { break };
            done = done.and(more);
        }
        Ok(done)
    }

    /// The same where pages have digests, which are made before, while others have the lock.
    fn publish_digested(&mut self, id: SequenceId, computed: usize) -> Result<Published, Error> {
        let (page_size, portion) = (self.table.page_size(), self.publish_portion()?);
        let (mut digests, mut done) = (TailDigests::default(), None::<Published>);
        loop {
            let left = (computed / page_size).saturating_sub(self.sequence(id)?.base_pages);
            self.digest_next(id, (left.min(portion), portion), &mut digests)?;
            // Others may have been let in.
            let next = self.next_portion(id, computed)?;
            let sequence = self.sequence(id)?;
            let (known, version) = (digests.first(sequence), sequence.tail.version());
            let more = self.check_computed(id, computed);
            let more = more.and_then(|()| self.publish_checked(id, (next.end, next.ahead), known));
            done = Some(match (more, done) {
                (Ok(more), before) => before.map_or(more, |before| before.and(more)),
                (Err(_), Some(done)) => return Ok(done),
                (Err(error), None) => return Err(error),
            });
            if let (Some(done), true) = (done, next.end == computed) {
                return Ok(done);
            }
            digests.published(version, self.sequence(id)?);
            self.make_wanted_table();
            self.let_waiting_in();
        }
    }

    /// What is published of a sequence before others are let in, of its first positions.
    #[inline(always)] // of every chunk and decoded page
    pub(super) fn next_portion(
        &self,
        id: SequenceId,
        computed: usize,
    ) -> Result<PublishPortion, Error> {
        let (page_size, cache, sequence) =
            (self.table.page_size(), self.cache()?, self.sequence(id)?);
        let portion = self.publish_portion()?;
        let end = computed.min((sequence.shared + portion) * page_size);
        if self.digests_pages() {
            // To look further means to hash what is there.
            return Ok(PublishPortion { end, ahead: portion });
        }
        // It may have been cut short meanwhile.
        let last = end.max(sequence.prompt_positions).min(sequence.positions);
        let known = sequence.base_pages * page_size;
        if last <= known + self.short_path() {
            return Ok(PublishPortion { end, ahead: usize::MAX });
        }
        Ok(self.next_stretch(cache, sequence, (end, last / page_size)))
    }

    /// The same where somebody else may have published more of it than a stretch, and no more than
    /// that is passed: to where pages of the prompt end.
    #[cold]
    fn next_stretch(
        &self,
        cache: &PrefixCache,
        sequence: &Sequence,
        (end, last): (usize, usize),
    ) -> PublishPortion {
        let whole = PublishPortion { end, ahead: usize::MAX };
        let root = || cache.index.find_root(&sequence.namespace);
        let Some(from) = sequence.base.or_else(root) else { return whole };
        let page_size = self.table.page_size();
        let keys = &sequence.tail()[..(last - sequence.base_pages) * page_size];
        let (walk, goes_on) = cache.index.walk_some(from, cache.keys(keys), self.stretch());
        if !goes_on {
            return whole;
        }
        let end = end.min(walk.pages * page_size);
        PublishPortion { end, ahead: walk.pages - end / page_size }
    }
}

/// What is published before others are let in.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublishPortion {
    /// Positions from the beginning.
    pub(super) end: usize,
    /// Pages behind those among which is looked for what others published.
    pub(super) ahead: usize,
}

#[cold]
fn short_row(computed: usize, allocated: usize) -> Error {
    Error::argument(text!(
        "computed_position_count {computed} is more than the {allocated} positions that the row \
         has pages for"
    ))
}
