//! What sequences take over from each other in the groups beside the spine: children of a fork,
//! those that go on from another, and what is kept of one that is retained.
use super::State;
use super::group_rows::{ByPool, GroupCopy, GroupRows};
use crate::error::Error;
use crate::group::{GroupKind, HungPage};
use crate::ids::SequenceId;

impl State {
    fn rows_of(&self, id: SequenceId) -> Option<&GroupRows> {
        let place = &self.sequences[id.slot() as usize];
        match place.id == Some(id) {
            true => Some(&place.groups),
            false => self.retained.get(id).map(|entry| &entry.sequence.groups),
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
                needs.places().all(|place| row.get(place).is_some_and(|&page| page != 0))
            }),
        })
    }

    /// Pages that the rows of so many children need, by pool.
    pub(crate) fn needed_by_children(
        &self,
        places: usize,
        positions: usize,
        count: usize,
    ) -> ByPool {
        let (mut needed, own) = (ByPool::default(), places - positions / self.table.page_size());
        for (_, config) in self.table.groups().hung() {
            let each = config.row_pages(own);
            let needed = &mut needed[config.pool as usize];
            *needed = needed.saturating_add(each.saturating_mul(count));
        }
        needed
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
    /// parent has, in use from now on. What the parent alone has is borrowed, to be copied.
    pub(crate) fn inherit_groups(&mut self, parent: SequenceId, slot: u32, positions: usize) {
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
            if !is_state {
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
            let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
            let row = child.rows[group].iter();
            // Of a FULL group the last one: the parent uses those before it in a chain.
            let least = if config.kind == GroupKind::Full { whole.saturating_sub(1) } else { 0 };
            for &page in row.skip(least).filter(|&&page| page != 0) {
                hung.begin_use(HungPage { group, page });
            }
            if let Some(source) = source.filter(|_| positions > 0) {
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

    /// Whether children are still to copy the state that a sequence is about to change.
    pub(crate) fn lends_state(&self, slot: u32) -> bool {
        let rows = &self.sequences[slot as usize].groups;
        let mut states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        states.any(|(group, config)| {
            let pool = self.table.pool_at(config.pool as usize);
            let lends = |&page: &u32| pool.first_borrower(page).is_some();
            pool.has_loans() && rows.rows.get(group).is_some_and(|row| row.iter().any(lends))
        })
    }

    /// Leaves of the rows of a sequence that is retained what others need who go on from it.
    pub(crate) fn keep_groups(&mut self, slot: u32, computed: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        self.slide_groups(slot, computed);
        self.shorten_group_rows(slot, computed.div_ceil(page_size));
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
