//! Rows of a sequence with several groups that is to reuse less: pages of its own take the places
//! of those that it shared, from the end up, a portion at a time.
//!
//! All pages come first, so that nothing can fail once the first has taken its place. Meanwhile the
//! sequence waits for its pages, as during a fetch: others may make it longer or end it, no more.
use super::early::EarlyByPool;
use super::group_rows::{ByPool, GroupCopy, end_source};
use super::{State, Turn};
use crate::error::Error;
use crate::group::{GroupKind, HungPage};
use crate::ids::SequenceId;
use crate::paging::RowOwner;
use std::ops::Range;

impl State {
    /// The end of the pages that a sequence need not compute.
    fn reused_pages(&self, slot: u32) -> usize {
        let sequence = &self.sequences[slot as usize];
        // Without memory to publish what a fetch brought, that is more than it shares.
        sequence.shared.max(sequence.cached_positions / self.table.page_size())
    }

    /// Pages that a sequence lacks to compute what is behind so many pages, by pool.
    pub(crate) fn missing_for_less(&self, slot: u32, keep: usize) -> ByPool {
        let (mut missing, end) = (ByPool::default(), self.reused_pages(slot));
        let sequence = &self.sequences[slot as usize];
        missing[0] = sequence.shared.saturating_sub(keep);
        let groups = self.table.groups();
        for (group, config) in groups.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let row = sequence.groups.row(group);
            missing[config.pool as usize] += row.len().min(end).saturating_sub(keep);
        }
        missing
    }

    /// Begins to let a sequence, which has computed nothing, go on from behind fewer pages, where
    /// all groups can: what they need there is in use from now on. Room was made.
    pub(crate) fn begin_sharing_less(&mut self, slot: u32, keep: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
        let sequence = &mut self.sequences[slot as usize];
        sequence.is_loading = true;
        let rows = &mut sequence.groups;
        let old_copies = rows.copies.len();
        let spine = self.table.row(slot).expect("the slot is in use");
        for (group, config) in groups.hung() {
            let needs = config.kind.needs(keep * page_size, page_size);
            let needs = needs.expect("every group can go on from there");
            if config.kind == GroupKind::State {
                let source = keep.checked_sub(1).map(|last| hung.page(group, spine[last]));
                if let Some(source) = source {
                    hung.begin_use(HungPage { group, page: source });
                    let target = rows.rows[group][0];
                    let positions = page_size;
                    rows.copies.push(GroupCopy { group, source, target, positions, saves: None });
                }
            } else if config.kind.slides() {
                for place in needs.places() {
                    let ours = &mut rows.rows[group][place];
                    let theirs = hung.page(group, spine[place]);
                    if *ours != theirs {
                        debug_assert_eq!(*ours, 0, "what it reuses is the cache's");
                        hung.begin_use(HungPage { group, page: theirs });
                        *ours = theirs;
                        rows.changes += 1;
                    }
                }
            }
        }
        for copy in rows.copies.drain(..old_copies) {
            let source = HungPage { group: copy.group, page: copy.source };
            end_source(&mut self.table, hung, (source, slot), now);
        }
    }

    /// Puts pages of lists in the places of the last ones that a sequence reuses.
    fn unshare_places(&mut self, slot: u32, places: Range<usize>, lists: &EarlyByPool) {
        let groups = *self.table.groups();
        let Self { cache, sequences, table, early, .. } = self;
        let cache = cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
        let sequence = &mut sequences[slot as usize];
        for (group, config) in groups.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let (pool, rows) = (config.pool as usize, &mut sequence.groups);
            let is_full = config.kind == GroupKind::Full;
            let cached = rows.cached(group, table);
            // Of a FULL group the last page of the cache's stands for all before it.
            let used = cached.last().copied().filter(|_| is_full && cached.len() > places.start);
            if let (Some(_), Some(last)) = (used, places.start.checked_sub(1)) {
                hung.begin_use(HungPage { group, page: cached[last] });
            }
            let row = &mut rows.rows[group];
            let (from, end) = (places.start.min(row.len()), places.end.min(row.len()));
            for ours in &mut row[from..end] {
                let old = *ours;
                let is_cached = old != 0 && table.pool_at(pool).is_cached(old);
                if old != 0 && !is_cached {
                    continue;
                }
                *ours = lists.take(early, pool);
                table.pool_at_mut(pool).hand_over(&[*ours], Some(RowOwner::Sequence));
                rows.changes += 1;
                if is_cached && !is_full {
                    hung.end_use(HungPage { group, page: old }, None, now);
                }
            }
            if let Some(page) = used {
                hung.end_use(HungPage { group, page }, None, now);
            }
        }
        // What hangs on pages was let go before those.
        for place in places.start..places.end.min(sequence.shared) {
            table.replace_shared(slot, place, lists.take(early, 0));
        }
        sequence.shared = sequence.shared.min(places.start);
    }
}

impl Turn<'_> {
    /// Puts pages of lists in all places of a sequence that it reuses behind so many pages, a
    /// portion at a time.
    pub(crate) fn unshare(
        &mut self,
        id: SequenceId,
        keep: usize,
        lists: &EarlyByPool,
    ) -> Result<(), Error> {
        let (slot, groups) = (id.slot(), self.table.groups().list().len());
        let portion = self.shared.slice.div_ceil(groups);
        let mut end = self.reused_pages(slot);
        while end > keep {
            let from = keep.max(end.saturating_sub(portion));
            self.state().unshare_places(slot, from..end, lists);
            end = from;
            if end > keep {
                self.let_waiting_in();
                self.sequence(id)?;
            }
        }
        let ends_with_pages = self.table.groups().end_with_pages();
        let sequence = &mut self.state().sequences[slot as usize];
        sequence.groups.saved = if ends_with_pages { keep as u32 } else { 0 };
        sequence.is_loading = false;
        Ok(())
    }
}
