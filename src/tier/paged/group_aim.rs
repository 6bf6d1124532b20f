//! Where a fetch of several groups is to end, and what that takes: looked for again where something
//! could not be had, or the remote store has answered, and listed, a few places at a time.
//!
//! Meanwhile the load is being planned (`GroupPlan::is_planning`): nobody ends it, and what is
//! listed already may be on its way. Each step takes the locks anew, and looks whether the load
//! still is.
use super::group_fetch::DeviceSets;
use super::group_plan::{Cursor, GroupPlan, GroupSet, Place};
use super::loads::{Load, LoadPage};
use super::map::Level;
use super::prefetch::ByPool;
use super::table::Table;
use super::work::PageTiers;
use crate::ids::SequenceId;

/// Pages of a fetch that host memory is told of when it begins.
const TOUCHED: usize = 256;
/// Pages of the plan before that are dropped with one lock.
const DROPPED: usize = 64;

/// An end to bring pages for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    /// Whole pages.
    pub pages: usize,
    /// Nothing more was to be brought for it when it was found.
    pub is_expired: bool,
}

impl Load {
    /// What there must be of each page, so that it can go on behind those.
    fn rule(&self, plan: &GroupPlan) -> fn(&Place) -> GroupSet {
        match (plan.is_expired, self.host_only) {
            (true, _) => Place::is_there,
            (_, true) => Place::at_once,
            _ => Place::anywhere,
        }
    }

    /// Whether another end is to be looked for now.
    fn is_to_plan(&self) -> bool {
        let is_due = |plan: &GroupPlan| {
            !plan.is_planning && (plan.is_stale || plan.has_news && self.is_idle())
        };
        let plan = self.plan.as_deref();
        self.rest.is_none() && self.running == 0 && plan.is_some_and(is_due)
    }
}

impl PageTiers {
    /// Looks for ends anew where something could not be had, or the remote store has answered.
    /// Whether there was any.
    pub(super) fn plan_anew(&self) -> bool {
        let (mut any, mut after) = (false, 0);
        while let Some(number) = self.begin_planning(after) {
            (any, after) = (true, number + 1);
            self.plan_again(number);
        }
        any
    }

    /// Begins with the first load of a number or a higher one for which that is to be done.
    fn begin_planning(&self, from: u64) -> Option<u64> {
        let table = &mut *self.table();
        let number = {
            let mut loads = table.loads.open.from(&from);
            loads.find(|(_, load)| load.is_to_plan()).map(|(&number, _)| number)?
        };
        let load = table.loads.open.get_mut(&number).expect("it was seen");
        (load.limit, load.done, load.is_joined) = (0, 0, false);
        let plan = load.plan.as_mut().expect("it has one");
        (plan.is_stale, plan.has_news, plan.is_planning) = (false, false, true);
        Some(number)
    }

    /// Looks for the farthest end that can be had now, and lists what it takes.
    fn plan_again(&self, number: u64) {
        while self.drop_some(number) {}
        let Some((id, end)) = self.planned_end(number) else { return };
        // A sequence that ended is seen by the step after this one.
        let device = id.map(|id| self.device_sets(id, end).unwrap_or_default());
        if let Some(aim) = self.look_along(number, device.as_ref()) {
            self.bring(number, aim);
        }
    }

    /// Drops some pages of the plan before. Whether there are more.
    fn drop_some(&self, number: u64) -> bool {
        let table = &mut *self.table();
        let Some(load) = table.loads.open.get_mut(&number) else { return false };
        let count = load.pages.len().min(DROPPED);
        for _ in 0..count {
            let load = table.loads.open.get_mut(&number).expect("it is open");
            let page = load.pages.pop_front().expect("it was counted");
            if load.sequence.is_none() {
                load.by_pool[self.pool_of(page.name.group)] -= 1;
            }
            table.loads.release(page.name, number);
        }
        count == DROPPED
    }

    /// The sequence of a load, and the place behind the last one of its plan.
    fn planned_end(&self, number: u64) -> Option<(Option<SequenceId>, usize)> {
        let table = self.table();
        let load = table.loads.open.get(&number)?;
        let plan = load.plan.as_ref().expect("it has one");
        Some((load.sequence, plan.first + plan.places.len()))
    }

    /// Says of each place of a plan what there is now, and looks for the farthest end. None when
    /// the load has ended.
    fn look_along(&self, number: u64, device: Option<&DeviceSets>) -> Option<Aim> {
        let (mut at, mut reach, mut lacks, mut is_expired) = (0, None, false, false);
        loop {
            let table = &mut *self.table();
            let load = table.loads.open.get_mut(&number)?;
            let mut plan = load.plan.take().expect("it has one");
            let (id, has) = (load.sequence, load.rule(&plan));
            let may_ask = load.remote.has_answered();
            if at == 0 {
                plan.forget_leading();
                is_expired = plan.is_expired;
            }
            let end = plan.places.len().min(at + self.at_once());
            for at in at..end {
                let place = &mut plan.places[at];
                let before = place.host | place.disk;
                self.look_up(table, place);
                if may_ask {
                    // The store was not asked for what was here then, and may have it.
                    place.remote |= before & !(place.host | place.disk);
                }
                if let Some(device) = device {
                    place.device = device.of(at);
                }
                lacks |= plan.lacks(&plan.places[at]);
                plan.note_leading(at);
            }
            let state = self.shared.read();
            let is_there = id.is_none_or(|id| state.is_loading(id));
            let fits = |pages: usize| match id {
                Some(id) => state.can_end_at(id, pages).unwrap_or(false),
                None => true,
            };
            let reach = reach.get_or_insert_with(|| plan.begin_reach());
            plan.go_on(reach, end - at, has, fits);
            drop(state);
            let (is_all, pages) = (end == plan.places.len(), reach.pages);
            let load = table.loads.open.get_mut(&number).expect("it is open");
            load.plan = Some(plan);
            if !is_there {
                return None;
            }
            if is_all && !lacks {
                load.remote.ask_later();
            }
            if is_all {
                return Some(Aim { pages, is_expired });
            }
            at = end;
        }
    }

    /// Lists what an end takes, for which the rows of the sequence get longer if need be. Where the
    /// deadline was over meanwhile, another end is to be looked for.
    pub(super) fn bring(&self, number: u64, aim: Aim) {
        let (id, row, first) = {
            let table = &mut *self.table();
            let Some(load) = table.loads.open.get_mut(&number) else { return };
            let plan = load.plan.as_mut().expect("it has one");
            if plan.is_expired != aim.is_expired {
                (plan.is_planning, plan.is_stale) = (false, true);
                return;
            }
            plan.aim_at(aim.pages);
            plan.aim = plan.aim.max(aim.pages);
            (load.sequence, plan.row, plan.first)
        };
        // Longer than it began: with pages for all that the end needs, and no others.
        let grows = id.filter(|_| aim.pages > first);
        let has_room =
            grows.is_none_or(|id| self.shared.turn().grow_for_fetch(id, row, aim.pages).is_ok());
        if has_room {
            let mut cursor = Cursor::default();
            while self.list_some(number, aim, &mut cursor) {}
        }
        let table = &mut *self.table();
        let Some(load) = table.loads.open.get_mut(&number) else { return };
        let plan = load.plan.as_mut().expect("it has one");
        plan.is_planning = false;
        if has_room {
            let wanted = plan.came.iter().sum::<u64>() as usize + load.pages.len();
            let more = wanted.saturating_sub(load.wanted);
            load.wanted = load.wanted.max(wanted);
            table.counters.wanted_pages += if id.is_some() { more as u64 } else { 0 };
            return;
        }
        if plan.target > plan.row && plan.row > plan.first {
            (plan.most, plan.is_stale) = (plan.most.min(plan.row), true);
        }
        plan.aim_at(plan.first);
    }

    /// Lists some more pages that the target needs and that are not there. Whether there may be
    /// more: not where the target is no longer the one to bring pages for.
    fn list_some(&self, number: u64, aim: Aim, cursor: &mut Cursor) -> bool {
        let table = &mut *self.table();
        let mut room = self.room_for_prefetch(table);
        let Some(load) = table.loads.open.get_mut(&number) else { return false };
        let (id, mut pages) = (load.sequence, std::mem::take(&mut load.pages));
        let mut plan = load.plan.take().expect("it has one");
        let (first, is_due) = (pages.len(), plan.is_expired == aim.is_expired);
        let most = if first == 0 { plan.needed_count() } else { 0 };
        let has_room = pages.try_reserve_exact(most).is_ok();
        let state = self.shared.read();
        let (mut is_good, mut goes_on) = (true, is_due && has_room);
        if goes_on {
            goes_on = plan.visit_missing(cursor, self.at_once(), |group, place, digest| {
                let page = match id {
                    Some(id) => state.page_to_fill(id, group, place),
                    None => Some(0),
                };
                is_good &= page.is_some();
                pages.push_back(LoadPage::new(group, (place, page.unwrap_or(0)), digest));
            });
        }
        drop(state);
        // A prefetch gets no more than there is room for. Without pages it was counted as one.
        room[0] += usize::from(first == 0);
        let mut kept = ByPool::default();
        if id.is_none() {
            kept = self.keep_what_fits(&mut pages, first, room);
            goes_on &= kept.iter().zip(&room).any(|(kept, room)| kept < room);
        }
        self.touch_listed(table, pages.range(first.min(pages.len())..), first);
        if !has_room || !is_good {
            pages.truncate(first);
            plan.most = plan.first;
        }
        plan.is_stale |= !is_due || !has_room || !is_good;
        table.counters.no_memory += u64::from(!has_room);
        let load = table.loads.open.get_mut(&number).expect("it is open");
        if is_due && is_good {
            load.limit = pages.len();
        }
        if has_room && is_good {
            load.by_pool.iter_mut().zip(kept).for_each(|(count, kept)| *count += kept);
        }
        (load.pages, load.plan) = (pages, Some(plan));
        goes_on && is_good
    }

    /// What else comes to host memory does not go in the place of the first pages of a fetch.
    fn touch_listed<'a>(
        &self,
        table: &mut Table,
        pages: impl Iterator<Item = &'a LoadPage>,
        first: usize,
    ) {
        for page in pages.take(TOUCHED.saturating_sub(first)) {
            if let Some((record, Level::Host)) = table.find(page.name) {
                table.map.touch(record);
            }
        }
    }
}
