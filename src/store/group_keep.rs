//! Long rows of groups that retained sequences keep: counted, and counted no more, in portions.
//!
//! In a FULL group a retained sequence keeps all pages before one that it keeps
//! (`group/chain.rs`). Before the step that retains one, a call keeps more and more of what it
//! uses, and the pages of its windows, which are the sequence's then. The rows of a dropped one
//! leave, as those of one that is released do (`group_leave.rs`).
use super::group_ahead::GroupsAhead;
use super::group_cache::GroupCache;
use super::group_holds::{Hold, Use, full};
use super::group_rows::GroupRows;
use super::long_path::Foothold;
use super::{PrefixCache, State, Turn};
use crate::error::Error;
use crate::group::HungPage;
use crate::ids::SequenceId;
use crate::index::Node;
use crate::memory::OutOfMemory;
use crate::paging::PageTable;
use std::ops::Range;

/// Pages that are kept at once, for each page of a slice.
const PAGES: usize = 2;

/// What is left of a retained sequence that was dropped, still to be undone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropped {
    /// The node that it has locked, and the one that is counted as kept.
    pub(super) locked: Option<Node>,
    pub(super) kept: Option<Node>,
    /// What it keeps in long rows of groups.
    pub(super) rows: Option<u32>,
}

/// What a call keeps of the windows of a sequence that it is about to retain, and when: the row is
/// the same as long as this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptWindows {
    hold: u32,
    changes: u64,
    shared: usize,
    computed: usize,
}

/// Whether rows use so many pages that others should not wait for all.
pub(super) fn are_long(rows: &GroupRows, slice: usize) -> bool {
    rows.rows.iter().any(|row| row.len() > PAGES.saturating_mul(slice))
}

impl GroupCache {
    /// The pages that calls keep as retained sequences do. O(pages): for checks.
    pub(super) fn kept_by_calls<'a>(
        &'a self,
        table: &'a PageTable,
    ) -> impl Iterator<Item = HungPage> + 'a {
        let kept = self.holds.iter().filter(|hold| hold.keeps).flat_map(|hold| &hold.uses);
        let leaving = self.leaving.iter().filter(|rows| rows.kept);
        let kept =
            kept.map(|used| used.page).chain(leaving.flat_map(|rows| rows.uses(table, false)));
        kept.flat_map(|page| std::iter::successors(Some(page), |&page| self.hung.before(page)))
    }
}

impl PrefixCache {
    /// Makes room for so many pages that are kept.
    fn open_keeping(&mut self, pages: usize) -> Result<u32, OutOfMemory> {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let mut uses = Vec::new();
        uses.try_reserve_exact(pages)?;
        groups.holds.try_reserve(1)?;
        Ok(self.insert_hold(Hold { node: Node(0), uses, keeps: true }))
    }

    /// The same in FULL groups on the path to a node, which is held until that is ended.
    fn open_keeping_below(&mut self, node: Node) -> Option<GroupsAhead> {
        let groups = self.groups.as_deref().expect("there are several groups");
        let at = self.open_keeping(groups.full().count()).ok()?;
        let Some(foothold) = self.hold(node) else {
            self.take_hold(at);
            return None;
        };
        Some(GroupsAhead::new(foothold, at))
    }

    /// Keeps so many pages more of the row of a FULL group, of which nobody keeps those from a
    /// place on. Whether some are left.
    fn keep_some(&mut self, at: u32, (group, row): (usize, &[u32]), count: usize) -> bool {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let (hung, holds) = (&mut groups.hung, &mut groups.holds);
        let page = |place: usize| HungPage { group, page: row[place] };
        let mut last = holds[at].uses.iter().find(|used| used.page.group == group).copied();
        if last.is_some_and(|last| row.get(last.place) != Some(&last.page.page)) {
            // Its pages have changed meanwhile: the rest is counted in one step.
            return false;
        }
        let first = match last {
            Some(last) => last.place + 1,
            None => row.partition_point(|&page| hung.keepers(HungPage { group, page }) > 0),
        };
        if last.is_none() && first > 0 {
            // Somebody else keeps it, and may stop.
            hung.begin_use(page(first - 1));
            hung.retain(page(first - 1));
            last = Some(Use { page: page(first - 1), place: first - 1 });
        }
        let end = row.len().min(first.saturating_add(count));
        for place in first..end {
            hung.keep_next(page(place), last.map(|last| last.page));
            last = Some(Use { page: page(place), place });
        }
        if let Some(Use { page, place }) = last {
            holds[at].set_last(page, place);
        }
        end < row.len()
    }

    /// What long rows of a retained sequence keep, which shares so many pages, and was counted for
    /// it, leaves from now on; its own pages go back, and `private` gets them. Without memory for
    /// that nothing has changed.
    pub(super) fn set_kept_aside(
        &mut self,
        (rows, shared): (&mut GroupRows, usize),
        (table, slice): (&mut PageTable, usize),
        mut private: impl FnMut(usize),
    ) -> Option<u32> {
        let groups = self.groups.as_deref_mut()?;
        if !are_long(rows, slice) {
            return None;
        }
        self.footholds.try_reserve(1).ok()?;
        groups.leaving.try_reserve(1).ok()?;
        let mut leaving = std::mem::take(rows);
        let places = leaving.private_from(table, shared);
        for page in leaving.behind(places) {
            let pool = groups.hung.pool_of(page.group);
            table.pool_at_mut(pool).put_back(page.page);
            private(pool);
        }
        leaving.rows.iter_mut().zip(places).for_each(|(row, place)| row.truncate(place));
        leaving.kept = true;
        Some(groups.leaving.insert(leaving))
    }

    /// What a call has kept is a retained sequence's now: the call only uses it.
    pub(super) fn leave_kept(&mut self, kept: KeptWindows) {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.holds[kept.hold].keeps = false;
    }
}

impl State {
    /// The pages of a FULL group that a sequence uses.
    fn used_row(&self, id: SequenceId, group: usize) -> Result<&[u32], Error> {
        Ok(self.sequence(id)?.groups.cached(group, &self.table))
    }

    /// Whether what was kept is what the windows of a sequence have.
    pub(crate) fn are_kept(&self, slot: u32, kept: KeptWindows) -> bool {
        let sequence = &self.sequences[slot as usize];
        let KeptWindows { changes, shared, computed, .. } = kept;
        sequence.groups.changes() == changes
            && sequence.shared == shared
            && sequence.computed(self.table.page_size()) == computed
    }

    /// The places of a row that a sequence which is retained keeps of the cache: those at the end,
    /// and the first ones.
    fn kept_places(&self, slot: u32, group: usize) -> [Range<usize>; 2] {
        let (sequence, page_size) = (&self.sequences[slot as usize], self.table.page_size());
        let kind = self.table.groups().list()[group].kind;
        let needs = kind.needs(sequence.computed(page_size), page_size);
        let needs = needs.expect("sliding groups end anywhere");
        let end = sequence.shared.min(sequence.groups.rows[group].len());
        let sinks = kind.sinks(page_size).min(end);
        [0..sinks, needs.last.start.clamp(sinks, end)..end]
    }
}

impl Turn<'_> {
    /// Keeps what a sequence uses of FULL groups, where that is long, until it is retained. What
    /// `ahead` has then is to be ended, whatever this returns.
    pub(crate) fn keep_chains_ahead(
        &mut self,
        id: SequenceId,
        ahead: &mut Option<GroupsAhead>,
    ) -> Result<(), Error> {
        let portion = PAGES.saturating_mul(self.shared.slice);
        for group in full(*self.table.groups()) {
            while self.used_row(id, group)?.len() > portion {
                let base = self.sequence(id)?.base;
                if let (None, Some(base)) = (&ahead, base) {
                    // Without memory it is all counted in one step.
                    *ahead = self.parts()?.0.open_keeping_below(base);
                }
                let Some(at) = ahead.and_then(|ahead| ahead.hold()) else { return Ok(()) };
                let State { cache, sequences, table, .. } = self.state();
                let cache = cache.as_mut().expect("a sequence has a cache");
                let row = sequences[id.slot() as usize].groups.cached(group, table);
                if !cache.keep_some(at, (group, row), portion) {
                    break;
                }
                self.let_in()?;
            }
        }
        Ok(())
    }

    /// Keeps what a sequence has of windows, where that is long, until it is retained. What `ahead`
    /// has then is to be ended, whatever this returns.
    pub(crate) fn keep_windows_ahead(
        &mut self,
        id: SequenceId,
        ahead: &mut Option<GroupsAhead>,
    ) -> Result<Option<KeptWindows>, Error> {
        let (slot, slice) = (id.slot(), self.shared.slice);
        let page_size = self.table.page_size();
        let sequence = self.sequence(id)?;
        let Some(base) = sequence.base else { return Ok(None) };
        let changes = sequence.groups.changes();
        let (shared, computed) = (sequence.shared, sequence.computed(page_size));
        let groups = *self.table.groups();
        let sliding = || groups.hung().filter(|(_, config)| config.kind.slides());
        let places = |state: &State, group| state.kept_places(slot, group);
        let count = |(group, _)| places(self, group).iter().map(Range::len).sum::<usize>();
        let count: usize = sliding().map(count).sum();
        if count <= PAGES.saturating_mul(slice) {
            return Ok(None);
        }
        // Without memory it is all counted in one step.
        let cache = self.parts()?.0;
        if ahead.is_none() {
            *ahead = cache.open_keeping_below(base);
        }
        let Some(ahead) = ahead else { return Ok(None) };
        let Ok(hold) = cache.open_keeping(count) else { return Ok(None) };
        ahead.add_windows(hold);
        let kept = KeptWindows { hold, changes, shared, computed };
        for (group, _) in sliding() {
            for part in places(self, group) {
                let mut end = part.end;
                while end > part.start {
                    let from = end.saturating_sub(slice).max(part.start);
                    let is_whole = self.state().use_row(id, (group, from..end), hold);
                    end = if is_whole { from } else { part.start };
                    self.let_in()?;
                    self.sequence(id)?;
                    if !self.are_kept(slot, kept) {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(kept))
    }

    /// Ends what a call holds in groups, in portions. Nothing of it is left when its cache goes:
    /// then more caches are gone than the `gone` that were before.
    pub(super) fn end_hold_in_portions(&mut self, at: u32, gone: u64) {
        let portion = PAGES.saturating_mul(self.shared.slice);
        while gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            if !cache.end_some_uses(at, portion) {
                let hold = cache.take_hold(at);
                return self.drop_hold(hold);
            }
            self.let_waiting_in();
        }
    }

    /// Gives the memory of an empty hold back; much of it takes the system longer than others
    /// should wait for.
    pub(super) fn drop_hold(&mut self, hold: Hold) {
        if hold.uses.capacity() > PAGES.saturating_mul(self.shared.slice) {
            self.unlocked(|| drop(hold));
        }
    }

    /// Undoes what a dropped sequence has left, in portions.
    pub(super) fn end_dropped(&mut self, dropped: Dropped) {
        let Dropped { locked, kept, rows } = dropped;
        let mut left = None;
        if let Some(at) = rows {
            left = self.end_cached_rows(at, locked.map(|node| Foothold { node, kept }));
            if left.is_none() {
                return;
            }
        }
        if let Some(node) = locked {
            self.let_kept_go(node, kept);
        }
        if left.is_some() {
            // To give memory back takes the system longer than others should wait for.
            self.unlocked(|| drop(left));
        }
    }
}
