//! Fetches with several groups of layers: only what the farthest end needs that all groups can go
//! on from, and all of it or none. When something can't be had after all, the next end before that
//! is tried, with what has come.
use super::fetch::Deadline;
use super::group_plan::{GroupPlan, GroupSet, Place, only};
use super::known::{Beyond, Fetchable};
use super::loads::{Load, LoadPage, Origin, Stage};
use super::map::{Level, Name};
use super::rest::{AT_ONCE, Rest, SLICE};
use super::table::Table;
use super::work::PageTiers;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, TryGrow, try_box, try_collect};
use crate::store::{State, Turn};
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Pages of a fetch that host memory is told of when it begins.
const TOUCHED: usize = 256;

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
    /// What the device has of some places of a sequence beyond what it reuses.
    pub(super) fn device_sets(
        &self,
        state: &State,
        id: SequenceId,
        places: Range<usize>,
    ) -> Result<DeviceSets, Error> {
        if !self.groups.are_several() {
            return Ok(DeviceSets(Vec::new()));
        }
        let beyond = state.on_device_beyond(id, places)?;
        let set = |&spine: &u32| {
            let hung = self.groups.hung().filter(|(group, _)| state.hung_page(*group, spine) != 0);
            hung.fold(only(0), |set, (group, _)| set | only(group))
        };
        Ok(DeviceSets(try_collect(beyond.spine.iter().map(set))?))
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
        let places = &mut planned.plan.places;
        while places.len() < most {
            let at = places.len();
            if at >= limit {
                planned.last = Some(parent);
                break;
            }
            let count = room.min(most.min(limit) - at).min(SLICE);
            let made = digest(first + at, parent, &mut digests[..count])?;
            let table = self.table();
            for &digest in &digests[..made] {
                let mut place = Place::new(digest, device.of(places.len()));
                self.look_up(&table, &mut place);
                if place.anywhere() & only(0) == 0 && !asks {
                    return Ok(planned);
                }
                places.try_push(place)?;
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
        let host_only = deadline == Deadline::After(Duration::ZERO);
        let Some((beyond, may_ask)) = self.beyond(id, false)? else {
            return Ok(Fetchable::default());
        };
        let asks = may_ask && !host_only && !looks_only;
        if self.policy.counts_uses() {
            self.table().stores.note_use(beyond.last.map(|(page, _)| page));
        }
        let limit = if looks_only { usize::MAX } else { AT_ONCE };
        let &Beyond { first, most, .. } = &beyond;
        let (device, reused, row) = {
            let state = self.shared.read();
            let device = self.device_sets(&state, id, first..first + most.min(limit))?;
            let info = state.sequence_info(id)?;
            (device, info.cached_positions, state.row_from(id.slot(), 0)?.len())
        };
        let mut open = None;
        let planned = self.group_plan(&beyond, &device, (limit, asks), |at, parent, into| {
            let made = self.shared.read().digest_pages(id, at, (parent, open), into)?;
            open = made.open;
            Ok(made.count)
        })?;
        let Planned { mut plan, before, last } = planned;
        let rest = last.map(|parent| {
            let (next, end) = (first + plan.places.len(), first + most);
            Rest { next, end, parent, open, asks }
        });
        let [all, at_once] = {
            let state = self.shared.read();
            let fits = |pages: usize| state.can_end_at(id, pages).unwrap_or(false);
            [plan.reach(Place::anywhere, fits), plan.reach(Place::at_once, fits)]
        };
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
            return Ok(found);
        }
        plan.row = row;
        if rest.is_some() {
            // What its end needs is known when all of it is.
            plan.is_stale = true;
        } else {
            (plan.target, plan.aim) = (target, target);
            plan.most = if asks { plan.most } else { target };
        }
        let plan = try_box(plan)?;
        let table = &mut *self.table();
        table.loads.open.try_reserve(1)?;
        table.loads.numbers.try_reserve(1)?;
        let mut turn = self.shared.turn();
        if !turn.state().open_group_fetch(id, first)? {
            return Ok(Fetchable::default());
        }
        table.loads.next += 1;
        let number = table.loads.next;
        table.loads.numbers.insert(id.0, number);
        let mut remote = self.wanted((0, usize::from(asks)), &beyond, before);
        if rest.is_some() {
            remote.ask_later();
        }
        let mut load = Load::new(Some(id), VecDeque::new(), 0, remote);
        (load.deadline, load.host_only) = (deadline.end(load.begun), host_only);
        (load.plan, load.rest) = (Some(plan), rest);
        table.loads.open.insert(number, load);
        table.counters.fetches += 1;
        if rest.is_none() {
            self.bring_planned(table, &mut turn, number);
        }
        drop(turn);
        table.map.tick();
        self.signal.notify();
        Ok(Fetchable { is_begun: true, ..found })
    }

    /// What is to be brought for a plan. None when a page of the sequence can't be filled.
    fn group_items(
        &self,
        state: &State,
        id: SequenceId,
        plan: &GroupPlan,
    ) -> Result<Option<VecDeque<LoadPage>>, OutOfMemory> {
        let mut pages = plan.pages()?;
        let mut is_good = true;
        for LoadPage { name, page, place, .. } in &mut pages {
            let own = state.page_to_fill(id, usize::from(name.group), *place);
            is_good &= own.is_some();
            *page = own.unwrap_or(0);
        }
        Ok(is_good.then_some(pages))
    }

    /// Looks for ends anew where something could not be had, or the remote store has answered.
    /// Whether there was any.
    pub(super) fn plan_anew(&self) -> bool {
        let (mut any, mut after) = (false, 0);
        loop {
            let table = &mut *self.table();
            let is_due = |load: &Load| {
                let plan = load.plan.as_deref();
                plan.is_some_and(|plan| plan.is_stale || plan.has_news && load.is_idle())
            };
            let next = {
                let mut loads = table.loads.open.from(&after);
                let next = loads.find(|(_, load)| load.rest.is_none() && is_due(load));
                next.and_then(|(&number, load)| Some((number, load.sequence?, load.running == 0)))
            };
            let Some((number, id, is_still)) = next else { return any };
            after = number + 1;
            if is_still {
                self.look_up_anew(table, number);
            }
            let mut turn = self.shared.turn();
            // Who ends it first sees to it.
            if is_still && turn.is_loading(id) {
                any = true;
                self.plan_again(table, &mut turn, number);
            }
        }
    }

    /// Says of each place of a plan what the tiers have now. Nobody waits for the state meanwhile.
    fn look_up_anew(&self, table: &mut Table, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let mut plan = load.plan.take().expect("it has one");
        let may_ask = load.remote.has_answered();
        for place in &mut plan.places {
            let before = place.host | place.disk;
            self.look_up(table, place);
            if may_ask {
                // The store was not asked for what was here then, and may have it.
                place.remote |= before & !(place.host | place.disk);
            }
        }
        let load = table.loads.open.get_mut(&number).expect("it is open");
        load.plan = Some(plan);
    }

    /// Looks for the farthest end that can be had now, after a look at what the tiers have.
    fn plan_again(&self, table: &mut Table, turn: &mut Turn<'_>, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let id = load.sequence.expect("it is one of a sequence");
        load.note_done();
        let plan = load.plan.as_mut().expect("it has one");
        (plan.is_stale, plan.has_news) = (false, false);
        let places = plan.first..plan.first + plan.places.len();
        let device = self.device_sets(turn.state(), id, places);
        let device = device.unwrap_or(DeviceSets(Vec::new()));
        let mut plan = load.plan.take().expect("it has one");
        let places = plan.places.iter_mut().enumerate();
        places.for_each(|(at, place)| place.device = device.of(at));
        let state = turn.state();
        let fits = |pages: usize| state.can_end_at(id, pages).unwrap_or(false);
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let target = match (plan.is_expired, load.host_only) {
            (true, _) => plan.reach(Place::is_there, fits),
            (_, true) => plan.reach(Place::at_once, fits),
            _ => plan.reach(Place::anywhere, fits),
        };
        plan.aim_at(target);
        plan.aim = plan.aim.max(target);
        load.plan = Some(plan);
        self.bring_planned(table, turn, number);
    }

    /// Begins to bring what the end needs that a fetch is planned for: nothing when there is no
    /// page to fill.
    fn bring_planned(&self, table: &mut Table, turn: &mut Turn<'_>, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let id = load.sequence.expect("it is one of a sequence");
        let old = std::mem::take(&mut load.pages);
        (load.limit, load.done, load.is_joined) = (0, 0, false);
        old.iter().for_each(|page| table.loads.release(page.name, number));
        drop(old);
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let mut plan = load.plan.take().expect("it has one");
        let mut pages = Ok(None);
        if plan.target > plan.first {
            // Longer than it began: with pages for all that the end needs, and no others.
            let has_room = turn.grow_for_fetch(id, plan.row, plan.target).is_ok();
            if has_room {
                pages = self.group_items(turn.state(), id, &plan);
            } else if plan.target > plan.row && plan.row > plan.first {
                (plan.most, plan.is_stale) = (plan.most.min(plan.row), true);
                self.signal.notify();
            }
        }
        if let Ok(Some(pages)) = &pages {
            // What else comes to host memory does not go in their place.
            for page in pages.iter().take(TOUCHED) {
                if let Some((record, Level::Host)) = table.find(page.name) {
                    table.map.touch(record);
                }
            }
        }
        let load = table.loads.open.get_mut(&number).expect("it is open");
        if let Ok(Some(pages)) = pages {
            let wanted = plan.came.iter().sum::<u64>() as usize + pages.len();
            table.counters.wanted_pages += wanted.saturating_sub(load.wanted) as u64;
            load.wanted = load.wanted.max(wanted);
            (load.limit, load.pages) = (pages.len(), pages);
        } else {
            plan.aim_at(plan.first);
        }
        load.plan = Some(plan);
    }
}

impl GroupPlan {
    /// The pages that the target needs and that are not there.
    pub(super) fn pages(&self) -> Result<VecDeque<LoadPage>, OutOfMemory> {
        let (mut count, mut pages) = (0, VecDeque::new());
        self.visit_missing(|_, _, _| count += 1);
        pages.try_reserve_exact(count)?;
        self.visit_missing(|group, place, digest| {
            let name = Name { digest, group: group as u8 };
            let (stage, from) = (Stage::Waiting, Origin::Host);
            pages.push_back(LoadPage { name, page: 0, place, stage, from });
        });
        Ok(pages)
    }
}

impl Load {
    /// Writes down in the plan what came.
    pub(super) fn note_done(&mut self) {
        let Some(plan) = &mut self.plan else { return };
        for page in &self.pages {
            let group = usize::from(page.name.group);
            if matches!(page.stage, Stage::Done) && !plan.is_done(group, page.place) {
                plan.set_done(group, page.place);
                plan.came[page.from as usize] += 1;
            }
        }
    }
}
