//! Fetches with several groups of layers: only what the farthest end needs that all groups can go
//! on from, and all of it or none. When something can't be had after all, the next end before that
//! is tried, with what has come.
use super::fetch::Deadline;
use super::group_aim::Aim;
use super::group_plan::{GroupPlan, GroupSet, Place, only};
use super::known::{Beyond, Fetchable};
use super::loads::Load;
use super::map::{Level, Name};
use super::rest::{AT_ONCE, Rest, SLICE};
use super::table::Table;
use super::work::PageTiers;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, try_box};
use crate::store::HeldPath;
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::time::Duration;

/// Pages of a slice for each page that is looked at before others are let in, in all groups
/// together: 64 pages.
const LOOK: usize = 4;

/// What there is of a prompt.
pub(super) struct Planned {
    pub plan: GroupPlan,
    /// The digest before its first place, and of its last one when there are more behind that.
    pub before: Option<PageDigest>,
    pub last: Option<PageDigest>,
}

/// What the device has of some places, by place.
#[derive(Default)]
pub(super) struct DeviceSets(Vec<GroupSet>);

impl DeviceSets {
    /// Of the one that is so far behind the first.
    pub fn of(&self, at: usize) -> GroupSet {
        self.0.get(at).copied().unwrap_or(0)
    }
}

impl PageTiers {
    /// What the device has of a sequence's prompt beyond what it reuses, up to a place.
    pub(super) fn device_sets(&self, id: SequenceId, end: usize) -> Result<DeviceSets, Error> {
        if !self.groups.are_several() {
            return Ok(DeviceSets::default());
        }
        let path = self.shared.turn().hold_beyond(id, end)?;
        let sets = self.sets_along(&path);
        self.shared.turn().let_path_go(path);
        Ok(sets?)
    }

    fn sets_along(&self, path: &HeldPath) -> Result<DeviceSets, OutOfMemory> {
        let mut sets = Vec::new();
        sets.try_reserve_exact(path.pages().len())?;
        for pages in path.pages().chunks(self.at_once()) {
            let state = self.shared.read();
            sets.extend(pages.iter().map(|&spine| {
                let is_there = |&(group, _): &(usize, _)| state.hung_page(group, spine) != 0;
                let hung = self.groups.hung().filter(is_there);
                hung.fold(only(0), |set, (group, _)| set | only(group))
            }));
        }
        Ok(DeviceSets(sets))
    }

    /// Places of which all groups are looked at before others are let in.
    pub(super) fn at_once(&self) -> usize {
        self.shared.slice.div_ceil(LOOK * self.groups.list().len())
    }

    /// The farthest end of a plan that nobody else knows yet.
    fn reach(&self, id: SequenceId, plan: &GroupPlan, has: fn(&Place) -> GroupSet) -> usize {
        let mut reach = plan.begin_reach();
        loop {
            let state = self.shared.read();
            let fits = |pages: usize| state.can_end_at(id, pages).unwrap_or(false);
            if !plan.go_on(&mut reach, self.at_once(), has, fits) {
                return reach.pages;
            }
        }
    }

    /// Says of a place what the tiers have.
    pub(super) fn look_up(&self, table: &Table, place: &mut Place) {
        (place.host, place.disk) = (0, 0);
        for group in 0..self.groups.list().len() {
            match table.find(Name { digest: place.digest, group: group as u8 }) {
                Some((_, Level::Host)) => place.host |= only(group),
                Some((_, Level::Disk)) => place.disk |= only(group),
                None => {}
            }
        }
    }

    /// What there is of a prompt beyond what the device lets it reuse, up to the first page of
    /// group 0 that is nowhere; with `asks` of all that others may have. `device` has what the
    /// device has there. No more than `limit` digests are made.
    pub(super) fn group_plan(
        &self,
        beyond: &Beyond,
        device: &DeviceSets,
        (limit, asks): (usize, bool),
        mut digest: impl FnMut(usize, PageDigest, &mut [PageDigest]) -> Result<usize, Error>,
    ) -> Result<Planned, Error> {
        let &Beyond { first, most, clear, .. } = beyond;
        let plan = GroupPlan::new(self.groups, self.page_size, (first, first + most));
        let mut planned = Planned { plan, before: None, last: None };
        if most == 0 {
            return Ok(planned);
        }
        let table = self.table();
        let is_current = table.applied.is_some() && table.clear >= clear;
        let parent = self.parent(&table, beyond);
        drop(table);
        let Some(mut parent) = parent.filter(|_| is_current) else { return Ok(planned) };
        planned.before = (first > 0).then_some(parent);
        let (mut digests, mut room) = ([PageDigest::default(); SLICE], 1);
        while planned.plan.places.len() < most {
            let at = planned.plan.places.len();
            if at >= limit {
                planned.last = Some(parent);
                break;
            }
            let count = room.min(most.min(limit) - at).min(SLICE);
            let made = digest(first + at, parent, &mut digests[..count])?;
            let table = self.table();
            for &digest in &digests[..made] {
                let mut place = Place::new(digest, device.of(planned.plan.places.len()));
                self.look_up(&table, &mut place);
                if place.anywhere() & only(0) == 0 && !asks {
                    return Ok(planned);
                }
                planned.plan.push(place)?;
                parent = digest;
            }
            if made < count {
                break;
            }
            room = (2 * room).min(SLICE);
        }
        Ok(planned)
    }

    /// The same as `fetch`.
    pub(super) fn fetch_groups(
        &self,
        id: SequenceId,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<Fetchable, Error> {
        let (found, short) = self.open_groups(id, deadline, looks_only)?;
        if let Some((number, target)) = short {
            self.bring(number, Aim { pages: target, is_expired: false });
        }
        if found.is_begun {
            self.signal.notify();
        }
        Ok(found)
    }

    /// Begins a fetch. Of one that is known as a whole, its number and where it is to end: it is
    /// not known yet what that takes.
    fn open_groups(
        &self,
        id: SequenceId,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<(Fetchable, Option<(u64, usize)>), Error> {
        let host_only = deadline == Deadline::After(Duration::ZERO);
        let Some((beyond, may_ask)) = self.beyond(id, false)? else {
            return Ok(Default::default());
        };
        let asks = may_ask && !host_only && !looks_only;
        if self.policy.counts_uses() && !looks_only {
            self.table().stores.note_use(beyond.last.map(|(page, _)| page));
        }
        let limit = if looks_only { usize::MAX } else { AT_ONCE.min(self.shared.slice) };
        let &Beyond { first, most, .. } = &beyond;
        let device = self.device_sets(id, first + most.min(limit))?;
        let reused = self.shared.read().sequence_info(id)?.cached_positions;
        let mut open = None;
        let planned = self.group_plan(&beyond, &device, (limit, asks), |at, parent, into| {
            let made = self.shared.read().digest_pages(id, at, (parent, open), into)?;
            open = made.open;
            Ok(made.count)
        })?;
        let Planned { mut plan, before, last } = planned;
        let rest = last.map(|parent| {
            let (next, end) = (first + plan.places.len(), first + most);
            Rest { next, end, parent, open, asks, known: None }
        });
        let all = self.reach(id, &plan, Place::anywhere);
        let at_once = self.reach(id, &plan, Place::at_once);
        let target = if host_only { at_once } else { all };
        let asks = asks && (rest.is_some() || plan.lacks_any());
        let positions = |pages: usize| (pages * self.page_size).saturating_sub(reused);
        let found = Fetchable {
            positions: positions(target),
            host_positions: positions(at_once),
            asked_positions: if asks { (first + most - target) * self.page_size } else { 0 },
            is_begun: false,
        };
        if looks_only || target == first && !asks && rest.is_none() {
            return Ok((found, None));
        }
        if rest.is_some() {
            // What its end needs is known when all of it is.
            plan.is_stale = true;
        } else {
            plan.is_planning = true;
            plan.most = if asks { plan.most } else { target };
        }
        let mut plan = try_box(plan)?;
        let table = &mut *self.table();
        if table.is_closing {
            return Ok(Default::default());
        }
        table.reserve_fetch()?;
        {
            let mut state = self.shared.turn();
            if !state.open_group_fetch(id, first)? {
                return Ok(Default::default());
            }
            // Until now its owner may have made it longer: from here on nobody does.
            plan.row = state.row_from(id.slot(), 0).map_or(first, <[u32]>::len);
        }
        let number = self.shared.number_load();
        table.loads.numbers.insert(id.0, number);
        let mut remote = self.wanted((0, usize::from(asks)), &beyond, before);
        let is_short = rest.is_none();
        if !is_short {
            remote.ask_later();
        }
        let mut load = Load::new(Some(id), VecDeque::new(), 0, remote);
        (load.deadline, load.host_only) = (deadline.end(load.begun), host_only);
        (load.plan, load.rest) = (Some(plan), rest);
        table.loads.open.insert(number, load);
        table.counters.fetches += 1;
        table.map.tick();
        Ok((Fetchable { is_begun: true, ..found }, is_short.then_some((number, target))))
    }
}
