//! Private pages of a sequence with several groups that are filled from a tier, and how all groups
//! go on from a deeper end at once.
//!
//! Nothing that begin named is given up before that: should less come, the sequence goes on from
//! where it would without a fetch, with the copies that begin named.
use super::fetch::{Landed, query};
use crate::error::Error;
use crate::group::GroupKind;
use crate::ids::SequenceId;
use crate::store::{Landing, RowOf, Sequence, State, Turn};

/// How a fetch of several groups ended.
#[derive(Debug, Clone, Copy)]
pub struct GroupLanding {
    /// Whole pages that the sequence can reuse now.
    pub pages: usize,
    /// The first of them that is not the device's: from there on those of group 0 were brought.
    pub own_from: usize,
    /// Places of its rows when the fetch was begun: no more are left than those, and the pages.
    pub row: usize,
}

impl State {
    /// Whether the copies that begin named are as begin left them: all states, and no other.
    pub(super) fn has_all_group_copies(&self, sequence: &Sequence) -> bool {
        let copies = sequence.groups.copies();
        let states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        let mut states = states.map(|(group, _)| group);
        let is_first = sequence.shared == 0;
        sequence.inherited.is_none()
            && sequence.groups.saves().next().is_none()
            && (is_first || states.all(|group| copies.iter().any(|copy| copy.group == group)))
    }

    /// Whether a sequence can go on from behind so many whole pages.
    pub fn can_end_at(&self, id: SequenceId, pages: usize) -> Result<bool, Error> {
        let end = pages * self.table.page_size();
        Ok(query(self.sequence(id)?).boundary(end) == end)
    }

    /// Begins to fill pages of a sequence in all groups, whose first fetchable page was seen to be
    /// this one. False when its namespace was cleared meanwhile.
    pub fn open_group_fetch(&mut self, id: SequenceId, first: usize) -> Result<bool, Error> {
        let (at, most) = self.fetchable_pages(id, false)?;
        if self.is_cleared(self.sequence(id)?) {
            return Ok(false);
        }
        if at != first || most == 0 {
            return Err(Error::state("the sequence went on meanwhile"));
        }
        self.table.renew(id.slot());
        self.sequences[id.slot() as usize].is_loading = true;
        Ok(true)
    }

    /// The page of a sequence's own that a tier fills, at a place of a group: of a STATE group the
    /// one that the sequence goes on with. None when it is being copied already, or is not there.
    pub fn page_to_fill(&self, id: SequenceId, group: usize, place: usize) -> Option<u32> {
        let sequence = self.sequence(id).ok()?;
        let config = self.table.groups().list()[group];
        let page = match (group, config.kind) {
            (0, _) => *self.table.row(id.slot()).ok()?.get(place)?,
            (_, GroupKind::State) => *sequence.groups.row(group).first()?,
            _ => *sequence.groups.row(group).get(place)?,
        };
        let pool = self.table.pool_at(config.pool as usize);
        (page != 0 && !pool.is_cached(page) && !pool.is_copied(page)).then_some(page)
    }

    /// Ends a fetch that brought nothing. Returns the positions that need not be computed.
    pub fn end_group_fetch(&mut self, id: SequenceId) -> Result<Landed, Error> {
        self.sequence(id)?;
        let sequence = &mut self.sequences[id.slot() as usize];
        sequence.is_loading = false;
        Ok(Landed { pages: 0, positions: sequence.cached_positions })
    }
}

impl Turn<'_> {
    /// Makes the rows of a sequence that is loading long enough to go on from behind so many whole
    /// pages. It had `row` places when the fetch was begun; of what is behind those, groups get
    /// pages where they are needed then, and holes elsewhere. When it fails rows may be longer than
    /// they were.
    pub fn grow_for_fetch(
        &mut self,
        id: SequenceId,
        row: usize,
        pages: usize,
    ) -> Result<(), Error> {
        // A row that was made longer has no page that is not needed.
        let places = self.sequence(id).and_then(|_| self.table.row(id.slot()))?.len();
        self.drop_passed(id, row..places, pages)?;
        if pages <= row {
            return Ok(());
        }
        while self.make_room_in_group_rows(id, pages)? {
            self.sequence(id)?;
        }
        let of = RowOf(self.table.row_id(id.slot()));
        let more = pages.saturating_sub(self.table.row(id.slot())?.len());
        self.make_room_in_long(of, more)?;
        self.sequence(id)?;
        self.state().make_room_in_row(id.slot(), more)?;
        self.state().reserve_group_rows(id.slot(), pages)?;
        self.lengthen_for_fetch(id, row, pages)
    }

    /// Makes rows that were made longer so many places long again.
    pub fn end_growing(&mut self, id: SequenceId, places: usize) -> Result<(), Error> {
        let slot = id.slot();
        loop {
            self.sequence(id)?;
            let has = self.table.row(slot)?.len();
            let to = places.max(has.saturating_sub(self.shared.slice));
            self.state().shorten_group_rows(slot, to);
            self.state().table.shorten(slot, to);
            if to == places {
                return Ok(());
            }
            self.let_waiting_in();
        }
    }

    /// Makes a sequence go on from behind what came to its pages, in all groups. `brought` says of
    /// a group and a place whether the page came. None when something that the device had is not
    /// there any more; then nothing has changed.
    pub fn land_groups(
        &mut self,
        id: SequenceId,
        landing: GroupLanding,
        brought: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Landed>, Error> {
        // What came is no publishing of the caller's.
        let published = self.published_groups(id)?;
        let landed = self.land_and_publish(id, landing, brought);
        if self.sequence(id).is_ok() {
            self.state().sequences[id.slot() as usize].groups.published = published;
        }
        landed
    }

    fn land_and_publish(
        &mut self,
        id: SequenceId,
        landing: GroupLanding,
        brought: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Landed>, Error> {
        let (slot, page_size) = (id.slot(), self.table.page_size());
        let GroupLanding { pages, own_from, row } = landing;
        let sequence = self.sequence(id)?;
        assert!(sequence.is_loading, "a fetch is open");
        let (first, positions) = (sequence.shared, pages * page_size);
        let landing = Landing { pages, first, own_from, brought };
        let path = self.hold_beyond(id, own_from)?;
        let landed = self.land_path(id, &path, &landing);
        self.let_path_go(path);
        if !landed? {
            return Ok(None);
        }
        // Should there be no memory to publish the rest, then it is the sequence's alone.
        loop {
            let next = self.next_portion(id, positions)?;
            let shared = self.sequence(id)?.shared;
            // Nothing was brought to those: they are not to be published.
            self.drop_passed(id, shared..next.end.div_ceil(page_size), pages)?;
            let published = self.state().publish_checked(id, (next.end, next.ahead), &[]);
            if published.is_err() || next.end == positions {
                break;
            }
            self.let_waiting_in();
        }
        let shared = self.sequence(id)?.shared;
        self.drop_passed(id, shared..pages, pages)?;
        self.end_growing(id, row.max(pages))?;
        let state = self.state();
        state.share_fetched_states(slot, pages);
        state.sequences[slot as usize].is_loading = false;
        Ok(Some(Landed { pages: pages - first, positions }))
    }
}
