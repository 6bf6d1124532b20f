//! Private pages of a sequence with several groups that are filled from a tier: what the device has
//! of its prompt beyond what it reuses, and how all groups go on from a deeper end at once.
//!
//! Nothing that begin named is given up before that: should less come, the sequence goes on from
//! where it would without a fetch, with the copies that begin named.
use super::fetch::{Landed, query};
use crate::error::Error;
use crate::group::GroupKind;
use crate::ids::SequenceId;
use crate::memory::{TryGrow, try_zeros};
use crate::store::{LandedGroups, Sequence, State, Turn};
use std::ops::Range;

/// What the device has of a prompt beyond what its sequence reuses.
#[derive(Debug, Default)]
pub struct OnDeviceBeyond {
    /// Pages of group 0, from the first of the places that were asked for on.
    pub spine: Vec<u32>,
}

/// How a fetch of several groups ended.
#[derive(Debug, Clone, Copy)]
pub struct GroupLanding {
    /// Whole pages that the sequence can reuse now.
    pub pages: usize,
    /// The first of them that is not the device's: from there on those of group 0 were brought.
    pub own_from: usize,
}

impl State {
    /// Whether the copies that begin named are as begin left them: all states, and no other.
    pub(super) fn has_all_group_copies(&self, sequence: &Sequence) -> bool {
        let copies = sequence.groups.copies();
        let states = self.table.groups().hung().filter(|(_, of)| of.kind == GroupKind::State);
        let mut states = states.map(|(group, _)| group);
        let is_first = sequence.shared == 0;
        !sequence.inherited
            && sequence.groups.saves().next().is_none()
            && (is_first || states.all(|group| copies.iter().any(|copy| copy.group == group)))
    }

    /// What the device has of some places of a sequence behind those that it reuses. Of a sequence
    /// that is to copy a part of a page nothing: that page is fetched whole.
    pub fn on_device_beyond(
        &self,
        id: SequenceId,
        places: Range<usize>,
    ) -> Result<OnDeviceBeyond, Error> {
        let (sequence, page_size, cache) =
            (self.sequence(id)?, self.table.page_size(), self.cache()?);
        let (Range { start: first, end }, tail) = (places, sequence.tail());
        if sequence.copy.is_some() || self.is_cleared(sequence) || end <= sequence.shared {
            return Ok(OnDeviceBeyond::default());
        }
        let most = (end - sequence.shared) * page_size;
        let keys = cache.keys(&tail[..most.min(tail.len())]);
        let root = || cache.index.find_root(&sequence.namespace);
        let Some(from) = sequence.base.or_else(root) else { return Ok(OnDeviceBeyond::default()) };
        let walk = cache.index.walk(from, keys);
        let count = walk.pages.saturating_sub(first);
        let mut spine = try_zeros::<u32>(count)?;
        if count > 0 {
            cache.index.visit_path_from(walk.node, first, &mut |start, pages| {
                let (from, end) = (start.max(first), (start + pages.len()).min(first + count));
                if from < end {
                    let pages = &pages[from - start..end - start];
                    spine[from - first..end - first].copy_from_slice(pages);
                }
            });
        }
        Ok(OnDeviceBeyond { spine })
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

    /// Makes rows that were made longer so many places long again.
    pub fn end_growing(&mut self, id: SequenceId, places: usize) -> Result<(), Error> {
        self.sequence(id)?;
        self.shorten_group_rows(id.slot(), places);
        self.table.shorten(id.slot(), places);
        Ok(())
    }

    /// Ends a fetch that brought nothing. Returns the positions that need not be computed.
    pub fn end_group_fetch(&mut self, id: SequenceId) -> Result<Landed, Error> {
        self.sequence(id)?;
        let sequence = &mut self.sequences[id.slot() as usize];
        sequence.is_loading = false;
        Ok(Landed { pages: 0, positions: sequence.cached_positions })
    }

    /// Publishes the pages of group 0 that the device had, up to one: then nothing that happens to
    /// those can take them from the sequence. Changes nothing when it fails.
    fn take_spine(&mut self, id: SequenceId, end: usize) -> Result<(), Error> {
        let (slot, page_size) = (id.slot(), self.table.page_size());
        // What hangs there is not the sequence's yet.
        let sequence = &mut self.sequences[slot as usize];
        let rows = sequence.groups.take_rows()?;
        let done = self.publish_checked(id, end * page_size, 0);
        self.sequences[slot as usize].groups.put_rows(rows);
        done.map(|_| ())
    }
}

impl Turn<'_> {
    /// Makes the rows of a sequence that is loading long enough to go on from behind so many whole
    /// pages. It had `row` places when the fetch was begun; of what is behind those, groups get
    /// pages where they are needed then, and holes elsewhere.
    pub fn grow_for_fetch(
        &mut self,
        id: SequenceId,
        row: usize,
        pages: usize,
    ) -> Result<(), Error> {
        let slot = id.slot();
        loop {
            if !self.sequence(id)?.is_loading {
                return Err(Error::state("the sequence's fetch has ended"));
            }
            let state = self.state();
            // A row that was made longer has no page that is not needed.
            state.drop_passed_pages(slot, row..usize::MAX, pages);
            let places = state.table.row(slot)?.len().max(pages);
            state.make_room_in_row(slot, places - state.table.row(slot)?.len())?;
            state.reserve_group_rows(slot, places)?;
            let missing = state.missing_for_fetch(slot, pages);
            self.check_all_rooms(&missing)?;
            if !self.make_pools_free(&missing)? {
                self.state().grow_group_rows(slot, pages);
                return Ok(());
            }
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
        let (slot, page_size) = (id.slot(), self.table.page_size());
        let GroupLanding { pages, own_from } = landing;
        let sequence = self.sequence(id)?;
        assert!(sequence.is_loading, "a fetch is open");
        let before = sequence.shared;
        let beyond = self.on_device_beyond(id, before..pages)?;
        let positions = pages * page_size;
        let mut theirs = Vec::new();
        for (group, config) in self.table.groups().hung() {
            let needs = config.kind.needs(positions, page_size);
            let needs = needs.expect("it was seen that every group can go on from there");
            for place in needs.places().filter(|&place| place >= before && !brought(group, place)) {
                // Of a FULL group what lies between pages of the cache's is to be published.
                let is_behind = config.kind == GroupKind::Full && place >= own_from;
                let spine = beyond.spine.get(place - before).filter(|_| !is_behind);
                match spine.map_or(0, |&spine| self.hung_page(group, spine)) {
                    0 => return Ok(None),
                    page => theirs.try_push((group, place, page))?,
                }
            }
        }
        if before + beyond.spine.len() < own_from {
            return Ok(None);
        }
        self.state().reserve_group_rows(slot, 0)?;
        if own_from > before {
            self.state().take_spine(id, own_from)?;
        }
        // Nothing can fail from here on: should there be no memory to publish the rest, then it is
        // the sequence's alone.
        let state = self.state();
        state.land_group_rows(
            slot,
            LandedGroups { positions, from: before, to: own_from, theirs: &theirs },
        );
        state.end_copy(slot);
        if own_from > before {
            state.publish_groups(slot, before, own_from);
        }
        state.set_cached(slot, positions);
        loop {
            let next = self.next_portion(id, positions)?;
            let shared = self.sequence(id)?.shared;
            // Nothing was brought to those: they are not to be published.
            self.state().drop_passed_pages(slot, shared..next.end.div_ceil(page_size), pages);
            let published = self.state().publish_checked(id, next.end, next.ahead);
            if published.is_err() || next.end == positions {
                break;
            }
            self.let_waiting_in();
        }
        let shared = self.sequence(id)?.shared;
        let state = self.state();
        state.drop_passed_pages(slot, shared..pages, pages);
        state.share_fetched_states(slot, pages);
        state.sequences[slot as usize].is_loading = false;
        Ok(Some(Landed { pages: pages - before, positions }))
    }
}
