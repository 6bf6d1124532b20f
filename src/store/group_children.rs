//! What sequences take over from each other in the groups beside the spine: children of a fork,
//! those that go on from another, and what is kept of one that is retained.
use super::group_ahead::{GroupsAhead, RowHolds};
use super::group_cache::GroupCache;
use super::group_keep::are_long;
use super::group_reuse::GroupRoom;
use super::group_rows::{ByPool, GroupCopy, GroupRows};
use super::{State, Turn};
use crate::error::Error;
use crate::group::{GROUP_LIMIT, GroupKind, HungPage};
use crate::ids::SequenceId;
use crate::index::Node;
use std::ops::Range;

/// What a call uses of the rows of a parent, ahead of the step that makes a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentRows {
    ahead: GroupsAhead,
    /// Caches that were gone before the parent's.
    gone: u64,
    /// The rows are the same as long as this is, and what is used is for this end.
    changes: u64,
    positions: usize,
}

impl ParentRows {
    /// The holds that have it.
    pub(crate) fn holds(&self) -> Option<RowHolds> {
        self.ahead.row_holds()
    }
}

impl State {
    /// Whether that is what a child goes on from after so many positions.
    pub(crate) fn fit_parent(
        &self,
        parent: SequenceId,
        (rows, positions): (&ParentRows, usize),
    ) -> bool {
        let changes = self.rows_of(parent).map(GroupRows::changes);
        changes == Some(rows.changes) && positions == rows.positions
    }

    fn rows_of(&self, id: SequenceId) -> Option<&GroupRows> {
        let live = self.sequences.get(id.slot() as usize).filter(|place| place.id == Some(id));
        match live {
            Some(place) => Some(&place.groups),
            None => self.retained.get(id).map(|entry| &entry.sequence.groups),
        }
    }

    /// Whether a parent still has what a child needs that goes on after so many positions.
    pub(crate) fn can_inherit_groups(&self, parent: SequenceId, positions: usize) -> bool {
        let (groups, page_size) = (self.table.groups(), self.table.page_size());
        let Some(rows) = self.rows_of(parent) else { return false };
        let place = &self.sequences[parent.slot() as usize];
        let sequence = match place.id == Some(parent) {
            true => Some(place),
            false => self.retained.get(parent).map(|entry| &entry.sequence),
        };
        let state_at = sequence.filter(|of| !of.has_unpublished_state()).map(|of| of.computed);
        groups.hung().all(|(group, config)| match config.kind {
            _ if positions == 0 => true,
            GroupKind::State => state_at == Some(positions),
            kind => kind.needs(positions, page_size).is_some_and(|needs| {
                let row = rows.row(group);
                // What lies between the first one and the end is there with those.
                let behind = kind.behind_sinks(&needs, page_size);
                let places = [needs.sinks, needs.last, behind];
                let places = places.into_iter().filter(|it| !it.is_empty());
                let mut ends = places.flat_map(|places| [places.start, places.end - 1]);
                ends.all(|place| row.get(place).is_some_and(|&page| page != 0))
            }),
        })
    }

    /// Pages that so many children need beside what they take over, by pool, those of group 0 too.
    pub(crate) fn needed_by_children(
        &self,
        room: GroupRoom,
        positions: usize,
        count: usize,
    ) -> ByPool {
        let none = [0; GROUP_LIMIT];
        self.needed_in_groups(room, positions, &none).map(|each| each.saturating_mul(count))
    }

    /// Makes room for what a child borrows.
    pub(crate) fn reserve_group_loans(&mut self) -> Result<(), Error> {
        let groups = *self.table.groups();
        for (_, config) in groups.hung() {
            // Two groups of a pool may borrow a page each.
            let pool = self.table.pool_at_mut(config.pool as usize);
            pool.reserve_loans(groups.list().len()).map_err(|_| Error::memory("a child"))?;
        }
        Ok(())
    }

    /// Maps what a child takes over, for which room was made: the pages of the cache that its
    /// parent has, in use from now on. What the parent alone has is borrowed, to be copied. Where a
    /// call has holds, rows stay empty until `fill` writes them.
    pub(crate) fn inherit_groups(
        &mut self,
        parent: SequenceId,
        (slot, positions): (u32, usize),
        holds: Option<RowHolds>,
    ) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let mut child = std::mem::take(&mut self.sequences[slot as usize].groups);
        let whole = positions / page_size;
        let GroupRows { saved: parents_saved, ended, .. } =
            *self.rows_of(parent).expect("it was looked up");
        child.ended = ended;
        child.saved = if positions > 0 { parents_saved } else { 0 };
        for (group, config) in groups.hung() {
            let parents = self.rows_of(parent).expect("it was looked up").row(group);
            let row = &mut child.rows[group];
            assert!(row.is_empty(), "a free slot has no rows");
            let is_state = config.kind == GroupKind::State;
            let mut source = is_state.then(|| parents.first().copied()).flatten();
            let mut used = None;
            if !is_state && holds.is_some() {
                source = parents.get(whole).copied();
                let last = whole.checked_sub(1).filter(|_| config.kind == GroupKind::Full);
                used = last.map(|last| (HungPage { group, page: parents[last] }, last));
            } else if !is_state {
                row.resize(whole, 0);
                let needs = config.kind.needs(positions, page_size);
                for place in needs.expect("it was seen that all is there").places() {
                    match place == whole {
                        true => source = Some(parents[place]),
                        false => row[place] = parents[place],
                    }
                }
            }
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let GroupCache { hung, holds: of_calls, .. } =
                cache.groups.as_deref_mut().expect("there are several groups");
            if let Some((RowHolds { chains, .. }, (page, place))) = holds.zip(used) {
                hung.begin_use(page);
                of_calls[chains].add(page, place);
            }
            let row = child.rows[group].iter();
            // Of a FULL group the last one: the parent uses those before it in a chain.
            let least = if config.kind == GroupKind::Full { whole.saturating_sub(1) } else { 0 };
            for &page in row.skip(least).filter(|&&page| page != 0) {
                hung.begin_use(HungPage { group, page });
            }
            let is_copied = is_state || !positions.is_multiple_of(page_size);
            if let Some(source) = source.filter(|_| positions > 0 && is_copied) {
                let pool = self.table.pool_at_mut(config.pool as usize);
                match pool.is_cached(source) {
                    true => hung.begin_use(HungPage { group, page: source }),
                    false => pool.lend(source, slot),
                }
                let positions = if is_state { page_size } else { positions % page_size };
                child.copies.push(GroupCopy { group, source, target: 0, positions, saves: None });
            }
        }
        self.sequences[slot as usize].groups = child;
    }

    /// Children that are to copy pages of a sequence's own, which are about to hang on those of
    /// the spine, keep the latter: they may be somebody else's, that nobody else locks.
    pub(super) fn lock_for_borrowers(&mut self, slot: u32, places: Range<usize>) {
        let Self { table, sequences, cache, .. } = self;
        let Some(base) = sequences[slot as usize].base else { return };
        let index = &mut cache.as_mut().expect("a sequence has a cache").index;
        for (group, config) in table.groups().hung() {
            let pool = table.pool_at(config.pool as usize);
            if config.kind == GroupKind::State || !pool.has_loans() {
                continue;
            }
            for place in places.clone() {
                let row = &sequences[slot as usize].groups.rows[group];
                let Some(&page) = row.get(place).filter(|&&page| page != 0) else { continue };
                for child in pool.borrowers(page) {
                    let lock = &mut sequences[child as usize].lock;
                    if lock.is_some_and(|node| index.end_page(node) > place) {
                        continue;
                    }
                    let owner = index.node_at_page(base, place);
                    index.lock(owner);
                    if let Some(before) = lock.replace(owner) {
                        index.unlock(before);
                    }
                }
            }
        }
    }

    /// Whether children that are still to copy the state of a sequence hold less of its path than
    /// so many pages: it went on before they were done.
    pub(super) fn lends_state_behind(&self, slot: u32, pages: usize) -> bool {
        let index = &self.cache.as_ref().expect("a sequence has a cache").index;
        let holds_less = |child: u32| {
            let lock = self.sequences[child as usize].lock;
            lock.is_none_or(|node| index.end_page(node) < pages)
        };
        let rows = &self.sequences[slot as usize].groups.rows;
        let mut states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        states.any(|(group, config)| {
            let pool = self.table.pool_at(config.pool as usize);
            let own = rows.get(group).and_then(|row| row.first());
            pool.has_loans() && own.is_some_and(|&page| pool.borrowers(page).any(holds_less))
        })
    }

    /// Refuses to change a state of a sequence that children are still to copy.
    pub(crate) fn check_state_is_own(&self, slot: u32) -> Result<(), Error> {
        let rows = &self.sequences[slot as usize].groups;
        let mut states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        let is_lent = states.any(|(group, config)| {
            let pool = self.table.pool_at(config.pool as usize);
            let lends = |&page: &u32| pool.first_borrower(page).is_some();
            pool.has_loans() && rows.rows.get(group).is_some_and(|row| row.iter().any(lends))
        });
        match is_lent {
            true => Err(Error::state("children are still to copy the state that would change")),
            false => Ok(()),
        }
    }

    /// The node at the end of what a parent shares.
    fn base_of(&self, parent: SequenceId) -> Option<Node> {
        match self.live_sequence(parent) {
            Some(sequence) => sequence.base,
            None => self.retained.get(parent)?.sequence.base,
        }
    }

    /// Lets a hold use, and keep if that is what it does, what a sequence has of the cache at some
    /// places of a row, from the end up to the first that lacks a page. Whether none does.
    pub(super) fn use_row(
        &mut self,
        id: SequenceId,
        (group, places): (usize, Range<usize>),
        hold: u32,
    ) -> bool {
        for place in places.rev() {
            let Some(&page) = self.rows_of(id).and_then(|rows| rows.row(group).get(place)) else {
                return false;
            };
            let Self { cache, table, .. } = self;
            let cache = cache.as_mut().expect("a sequence has a cache");
            let groups = cache.groups.as_deref_mut().expect("there are several groups");
            if !table.pool_at(groups.hung.pool_of(group)).is_cached(page) {
                return false;
            }
            let page = HungPage { group, page };
            groups.hung.begin_use(page);
            if groups.holds[hold].keeps {
                groups.hung.retain(page);
            }
            groups.holds[hold].add(page, place);
        }
        true
    }

    /// Leaves of the rows of a sequence that is retained what others need who go on from it, of so
    /// many places at most.
    pub(crate) fn keep_groups(&mut self, slot: u32, (computed, places): (usize, usize)) {
        let groups = *self.table.groups();
        self.slide_groups(slot, computed);
        self.shorten_group_rows(slot, places);
        self.drop_draft_states(slot);
        let Self { sequences, table, .. } = self;
        let rows = &sequences[slot as usize].groups;
        let private = rows.private_from(table, sequences[slot as usize].shared);
        for page in rows.behind(private) {
            let pool = table.pool_at_mut(groups.list()[page.group].pool as usize);
            pool.set_retained(page.page);
        }
    }
}

impl Turn<'_> {
    /// Uses what a child needs of the rows of its parent, which goes on after so many positions, in
    /// portions, if they are long; `end_parent_rows` ends that. True when others were let in.
    pub(crate) fn use_parent_rows(
        &mut self,
        parent: SequenceId,
        positions: usize,
    ) -> Result<(bool, Option<ParentRows>), Error> {
        let slice = self.shared.slice;
        let rows = self.rows_of(parent).filter(|rows| are_long(rows, slice));
        let (Some(rows), Some(base)) = (rows, self.base_of(parent)) else {
            return Ok((false, None));
        };
        let (changes, gone) = (rows.changes(), self.caches_gone);
        // Without memory it all happens in the step.
        let Some(ahead) = self.parts()?.0.hold_for_rows(base) else { return Ok((false, None)) };
        let mut rows = ParentRows { ahead, gone, changes, positions };
        match self.use_rows(parent, &mut rows) {
            Ok(true) => Ok((true, Some(rows))),
            other => {
                self.end_parent_rows(rows);
                other.map(|_| (true, None))
            }
        }
    }

    fn use_rows(&mut self, parent: SequenceId, rows: &mut ParentRows) -> Result<bool, Error> {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let whole = rows.positions / page_size;
        self.open_holds(&mut rows.ahead, whole, true)?;
        let Some(RowHolds { windows, .. }) = rows.ahead.row_holds() else { return Ok(false) };
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = config.kind.needs(rows.positions, page_size);
            let needs = needs.expect("sliding groups end anywhere");
            for places in [needs.sinks, needs.last] {
                let mut start = places.start;
                while start < places.end.min(whole) {
                    let to = places.end.min(whole).min(start + self.shared.slice);
                    let is_same = |parents: &GroupRows| parents.changes() == rows.changes;
                    if !self.rows_of(parent).is_some_and(is_same)
                        || !self.state().use_row(parent, (group, start..to), windows)
                    {
                        return Ok(false);
                    }
                    start = to;
                    self.let_in()?;
                }
            }
        }
        Ok(true)
    }

    /// Ends what was used of the rows of a parent.
    pub(crate) fn end_parent_rows(&mut self, rows: ParentRows) {
        self.end_groups_ahead(rows.ahead, rows.gone);
    }
}
