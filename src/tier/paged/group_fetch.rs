//! Fetches with several groups of layers: only what the farthest end needs that all groups can go
//! on from, and all of it or none. When something can't be had after all, the next end before that
//! is tried, with what has come.
use super::fetch::Deadline;
use super::group_plan::{GroupPlan, GroupSet, Place, only};
use super::known::{Beyond, Fetchable, Known};
use super::loads::{Load, LoadPage, Origin, Stage};
use super::map::{Level, Name};
use super::poll::Fetched;
use super::table::Table;
use super::work::PageTiers;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::{OutOfMemory, TryGrow, try_box, try_collect};
use crate::sequence::{GroupLanding, Landed};
use crate::store::{State, Turn};
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::time::Duration;

/// Pages whose digests are made before others are let in.
const SLICE: usize = 64;
/// Times that a fetch looks anew for the same end, after the device lost some of it.
const SURPRISES: u32 = 4;

impl PageTiers {
    /// What the device has of a sequence beyond what it reuses, by place.
    fn device_sets(
        &self,
        state: &State,
        id: SequenceId,
        end: usize,
    ) -> Result<Vec<GroupSet>, Error> {
        let beyond = state.on_device_beyond(id, end)?;
        let set = |&spine: &u32| {
            let hung = self.groups.hung().filter(|(group, _)| state.hung_page(*group, spine) != 0);
            hung.fold(only(0), |set, (group, _)| set | only(group))
        };
        Ok(try_collect(beyond.spine.iter().map(set))?)
    }

    /// Says of a place what the tiers have.
    fn look_up(&self, table: &Table, place: &mut Place) {
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
    /// group 0 that is nowhere. `device` has what the device has there.
    pub(super) fn group_plan(
        &self,
        beyond: &Beyond,
        device: &[GroupSet],
        mut digest: impl FnMut(usize, PageDigest, &mut [PageDigest]) -> Result<usize, Error>,
    ) -> Result<GroupPlan, Error> {
        let &Beyond { first, most, clear, .. } = beyond;
        let mut plan = GroupPlan {
            groups: self.groups,
            page_size: self.page_size,
            first,
            places: Vec::new(),
            target: first,
            aim: first,
            most: first + most,
            surprises: 0,
            came: [0; 3],
        };
        if most == 0 {
            return Ok(plan);
        }
        let table = self.table();
        let is_current = table.applied.is_some() && table.clear >= clear;
        let parent = self.parent(&table, beyond);
        drop(table);
        let Some(mut parent) = parent.filter(|_| is_current) else { return Ok(plan) };
        let (mut digests, mut room) = ([PageDigest::default(); SLICE], 1);
        while plan.places.len() < most {
            let at = plan.places.len();
            let count = room.min(most - at).min(SLICE);
            let made = digest(first + at, parent, &mut digests[..count])?;
            let table = self.table();
            for &digest in &digests[..made] {
                let device = device.get(plan.places.len()).copied().unwrap_or(0);
                let mut place = Place { digest, device, host: 0, disk: 0, remote: 0, done: 0 };
                self.look_up(&table, &mut place);
                if place.anywhere() & only(0) == 0 {
                    return Ok(plan);
                }
                plan.places.try_push(place)?;
                parent = digest;
            }
            if made < count {
                break;
            }
            room *= 2;
        }
        Ok(plan)
    }

    /// The same as `fetch`.
    pub(super) fn fetch_groups(
        &self,
        id: SequenceId,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<Fetchable, Error> {
        let host_only = deadline == Deadline::After(Duration::ZERO);
        let Some((beyond, _)) = self.beyond(id, !looks_only)? else {
            return Ok(Fetchable::default());
        };
        if self.policy.counts_uses() {
            self.table().stores.note_use(beyond.last.map(|(page, _)| page));
        }
        let (device, reused) = {
            let state = self.shared.read();
            let device = self.device_sets(&state, id, beyond.first + beyond.most)?;
            (device, state.sequence_info(id)?.cached_positions)
        };
        let mut open = None;
        let mut plan = self.group_plan(&beyond, &device, |at, parent, into| {
            let made = self.shared.read().digest_pages(id, at, (parent, open), into)?;
            open = made.open;
            Ok(made.count)
        })?;
        let [all, at_once] = {
            let state = self.shared.read();
            let fits = |pages: usize| state.can_end_at(id, pages).unwrap_or(false);
            [plan.reach(Place::anywhere, fits), plan.reach(Place::at_once, fits)]
        };
        let target = if host_only { at_once } else { all };
        let positions = |pages: usize| (pages * self.page_size).saturating_sub(reused);
        let found = Fetchable {
            positions: positions(target),
            host_positions: positions(at_once),
            asked_positions: 0,
            is_begun: false,
        };
        if target == plan.first || looks_only {
            return Ok(found);
        }
        (plan.target, plan.aim, plan.most) = (target, target, target);
        let table = &mut *self.table();
        table.loads.open.try_reserve(1)?;
        table.loads.numbers.try_reserve(1)?;
        let mut state = self.shared.write();
        if !state.open_group_fetch(id, plan.first)? {
            return Ok(Fetchable::default());
        }
        let items = self.group_items(&state, id, &plan);
        let plan = try_box(plan);
        let (Ok(Some(pages)), Ok(plan)) = (items, plan) else {
            state.end_group_fetch(id)?;
            return Ok(Fetchable::default());
        };
        drop(state);
        table.loads.next += 1;
        let number = table.loads.next;
        table.loads.numbers.insert(id.0, number);
        let (wanted, remote) = (pages.len(), self.wanted((0, 0), &beyond, None));
        let mut load = Load::new(Some(id), pages, wanted, remote);
        (load.deadline, load.host_only) = (deadline.end(load.begun), host_only);
        load.plan = Some(plan);
        table.loads.open.insert(number, load);
        table.counters.fetches += 1;
        table.counters.wanted_pages += wanted as u64;
        table.map.tick();
        self.signal.notify();
        Ok(Fetchable { is_begun: true, ..found })
    }

    /// What the tiers have of a prompt that nobody has begun with: the pages that take a sequence
    /// farthest. What the device has beyond where it can be reused is not counted on.
    pub(super) fn known_of_groups(
        &self,
        beyond: &Beyond,
        digest: impl FnMut(usize, PageDigest, &mut [PageDigest]) -> Result<usize, Error>,
    ) -> Result<Known, Error> {
        let mut plan = self.group_plan(beyond, &[], digest)?;
        let anywhere = |_: usize| true;
        let at_once = plan.reach(Place::at_once, anywhere);
        plan.target = plan.reach(Place::anywhere, anywhere);
        let positions = |end: usize| (end - plan.first) * self.page_size;
        let found = Fetchable {
            positions: positions(plan.target),
            host_positions: positions(at_once),
            ..Fetchable::default()
        };
        let (mut names, mut is_good) = (Vec::new(), true);
        plan.visit_missing(|group, _, digest| {
            is_good &= names.try_push(Name { digest, group: group as u8 }).is_ok();
        });
        if !is_good {
            return Err(OutOfMemory.into());
        }
        let here = names.len();
        Ok(Known { names, in_host: 0, here, before: None, of_groups: Some(found) })
    }

    /// What is to be brought for a plan. None when a page of the sequence can't be filled.
    fn group_items(
        &self,
        state: &State,
        id: SequenceId,
        plan: &GroupPlan,
    ) -> Result<Option<VecDeque<LoadPage>>, OutOfMemory> {
        let mut count = 0;
        plan.visit_missing(|_, _, _| count += 1);
        let (mut pages, mut is_good) = (VecDeque::new(), true);
        pages.try_reserve_exact(count)?;
        plan.visit_missing(|group, place, digest| {
            let page = state.page_to_fill(id, group, place);
            is_good &= page.is_some();
            let name = Name { digest, group: group as u8 };
            let (stage, from) = (Stage::Waiting, Origin::Host);
            pages.push_back(LoadPage { name, page: page.unwrap_or(0), place, stage, from });
        });
        Ok(is_good.then_some(pages))
    }

    /// A fetch waits for nothing more: it goes on from the end that it was begun for, or looks for
    /// another one before that.
    pub(super) fn end_group_load(&self, table: &mut Table, turn: &mut Turn<'_>, number: u64) {
        loop {
            let load = table.loads.open.get_mut(&number).expect("it is open");
            let id = load.sequence.expect("it is one of a sequence");
            load.note_done();
            let is_complete = load.done == load.pages.len();
            let plan = load.plan.as_mut().expect("it has one");
            if plan.target == plan.first {
                return self.give_group_load_up(table, turn, number);
            }
            if !is_complete {
                plan.most = plan.target - 1;
            } else {
                let landing = GroupLanding { pages: plan.target, own_from: plan.own_from() };
                let brought = |group: usize, place: usize| plan.is_done(group, place);
                match turn.land_groups(id, landing, &brought) {
                    Ok(Some(landed)) => return self.finish_group_load(table, number, landed),
                    Ok(None) => {
                        plan.surprises += 1;
                        if plan.surprises > SURPRISES {
                            plan.most = plan.target - 1;
                        }
                    }
                    Err(_) => {
                        table.counters.no_memory += 1;
                        return self.give_group_load_up(table, turn, number);
                    }
                }
            }
            if !self.plan_again(table, turn.state(), number) {
                return self.give_group_load_up(table, turn, number);
            }
            let load = table.loads.open.get(&number).expect("it is open");
            if !load.is_over() {
                self.signal.notify();
                return;
            }
        }
    }

    /// Looks for the farthest end that can be had now. False when there is none.
    pub(super) fn plan_again(&self, table: &mut Table, state: &State, number: u64) -> bool {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let Some(id) = load.sequence else { return false };
        load.note_done();
        let mut plan = load.plan.take().expect("it has one");
        let (is_late, host_only) = (load.is_late, load.host_only);
        let old = std::mem::take(&mut load.pages);
        old.iter().for_each(|page| table.loads.release(page.name, number));
        drop(old);
        let device = self.device_sets(state, id, plan.first + plan.places.len());
        let device = device.unwrap_or_default();
        for (at, place) in plan.places.iter_mut().enumerate() {
            place.device = device.get(at).copied().unwrap_or(0);
            self.look_up(table, place);
        }
        let fits = |pages: usize| state.can_end_at(id, pages).unwrap_or(false);
        let target = match (is_late, host_only) {
            (true, _) => plan.reach(Place::is_there, fits),
            (_, true) => plan.reach(Place::at_once, fits),
            _ => plan.reach(Place::anywhere, fits),
        };
        plan.aim_at(target);
        let items = self.group_items(state, id, &plan);
        let load = table.loads.open.get_mut(&number).expect("it is open");
        if let Ok(Some(pages)) = items {
            load.pages = pages;
        } else {
            plan.aim_at(plan.first);
        }
        let is_good = plan.target > plan.first;
        load.plan = Some(plan);
        (load.limit, load.done, load.is_joined) = (load.pages.len(), 0, false);
        is_good
    }

    /// It goes on from where it would without a fetch.
    fn give_group_load_up(&self, table: &mut Table, turn: &mut Turn<'_>, number: u64) {
        let id = table.loads.open.get(&number).and_then(|load| load.sequence);
        let id = id.expect("it is one of a sequence");
        if let Ok(landed) = turn.state().end_group_fetch(id) {
            self.finish_group_load(table, number, landed);
        } else {
            self.abandon(table, number);
        }
    }

    fn finish_group_load(&self, table: &mut Table, number: u64, landed: Landed) {
        let load = table.loads.end(number).expect("it is open");
        let plan = load.plan.as_ref().expect("it has one");
        let counters = &mut table.counters;
        for (into, came) in counters.fetched.iter_mut().zip(plan.came) {
            *into += came;
        }
        counters.landed_pages += landed.pages as u64;
        let is_all = plan.first + landed.pages >= plan.aim;
        *if is_all { &mut counters.complete } else { &mut counters.shortened } += 1;
        self.count_end(table, &load);
        let brought = plan.came.iter().sum::<u64>() as usize;
        let (wanted, is_late) = (load.wanted, load.is_late);
        let sequence = load.sequence.expect("it is one of a sequence");
        let positions = landed.positions;
        let done = Fetched { sequence, positions, wanted, brought, is_late };
        self.announce_fetched(table, done);
    }
}

impl Load {
    /// Writes down in the plan what came.
    fn note_done(&mut self) {
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
