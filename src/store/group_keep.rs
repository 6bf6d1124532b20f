//! Long chains of FULL groups that retained sequences keep: counted, and counted no more, in
//! portions.
//!
//! A retained sequence keeps all pages before one that it keeps (`group/chain.rs`). Before the step
//! that retains one, a call keeps more and more of what it uses; what a dropped one kept is the
//! call's until all is counted no more.
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

/// Pages that are kept at once, for each page of a slice.
const PAGES: usize = 2;

/// What is left of a retained sequence that was dropped, still to be undone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropped {
    /// The node that it has locked, and the one that is counted as kept.
    pub(super) locked: Option<Node>,
    pub(super) kept: Option<Node>,
    /// What it keeps in FULL groups.
    pub(super) chains: Option<u32>,
}

/// Whether rows use so many pages of FULL groups that others should not wait for all.
pub(super) fn are_long_chains(rows: &GroupRows, table: &PageTable, slice: usize) -> bool {
    let mut full = rows.full_groups(table);
    full.any(|group| rows.cached(group, table).len() > PAGES.saturating_mul(slice))
}

impl GroupCache {
    /// The pages that calls keep as retained sequences do. O(pages): for checks.
    pub(super) fn kept_by_calls(&self) -> impl Iterator<Item = HungPage> + '_ {
        let kept = self.holds.iter().filter(|hold| hold.keeps).flat_map(|hold| &hold.uses);
        kept.flat_map(|used| std::iter::successors(Some(used.page), |&page| self.hung.before(page)))
    }
}

impl PrefixCache {
    /// Makes room for what is kept in FULL groups.
    fn open_keeping(&mut self) -> Result<u32, OutOfMemory> {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let mut uses = Vec::new();
        uses.try_reserve_exact(groups.full().count())?;
        groups.holds.try_reserve(1)?;
        Ok(self.insert_hold(Hold { node: Node(0), uses, keeps: true }))
    }

    /// The same on the path to a node, which is held until that is ended.
    fn open_keeping_below(&mut self, node: Node) -> Option<GroupsAhead> {
        let at = self.open_keeping().ok()?;
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

    /// What the rows of a retained sequence keep in FULL groups, and was counted for it, is a
    /// call's from now on, and no more in the rows. Without memory for that nothing has changed.
    pub(super) fn take_kept(&mut self, rows: &mut GroupRows, table: &PageTable) -> Option<u32> {
        self.footholds.try_reserve(1).ok()?;
        let at = self.open_keeping().ok()?;
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        for group in groups.full() {
            let cached = rows.cached(group, table);
            if let Some(&page) = cached.last() {
                let count = cached.len();
                groups.holds[at].set_last(HungPage { group, page }, count - 1);
                rows.rows[group].drain(..count);
            }
        }
        Some(at)
    }
}

impl State {
    /// The pages of a FULL group that a sequence uses.
    fn used_row(&self, id: SequenceId, group: usize) -> Result<&[u32], Error> {
        Ok(self.sequence(id)?.groups.cached(group, &self.table))
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

    /// Ends what a call holds in groups, in portions. Nothing of it is left when its cache goes:
    /// then more caches are gone than the `gone` that were before.
    pub(super) fn end_hold_in_portions(&mut self, at: u32, gone: u64) {
        let portion = PAGES.saturating_mul(self.shared.slice);
        while gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            if !cache.end_some_uses(at, portion) {
                cache.take_hold(at);
                return;
            }
            self.let_waiting_in();
        }
    }

    /// Undoes what a dropped sequence has left, in portions.
    pub(super) fn end_dropped(&mut self, dropped: Dropped) {
        let Dropped { locked, kept, chains } = dropped;
        if let Some((at, node)) = chains.zip(locked) {
            // What hangs on pages goes before those can. There is room.
            let gone = self.caches_gone;
            let cache = self.state.cache.as_mut().expect("it was retained there");
            let held = cache.footholds.insert(Foothold { node, kept });
            self.end_hold_in_portions(at, gone);
            if gone != self.caches_gone {
                return;
            }
            self.state.cache.as_mut().expect("it is the same").footholds.remove(held);
        }
        if let Some(node) = locked {
            self.let_kept_go(node, kept);
        }
    }
}
