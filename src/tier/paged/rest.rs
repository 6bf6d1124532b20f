//! What of a long prompt is hashed after `fetch` has returned: by the tiers' thread, a slice at a
//! time, while what was found of it comes already.
//!
//! Who calls `fetch` has other requests to serve. So it makes the digests of `AT_ONCE` pages, and
//! what is behind those is nobody's time but that of the thread.
use super::group_plan::Place;
use super::loads::{LoadPage, Origin, Stage};
use super::map::{Level, Name};
use super::table::Table;
use super::work::PageTiers;
use crate::ids::SequenceId;
use crate::memory::OutOfMemory;
use crate::token::{OpenImage, PageDigest};

/// Pages whose digests are made before others are let in.
pub(super) const SLICE: usize = 64;
/// Pages of a prompt that a call hashes itself.
pub(super) const AT_ONCE: usize = 64;

/// The pages of a prompt that were not looked for yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// The place of the first, and the one behind the last.
    pub next: usize,
    pub end: usize,
    /// The digest before it.
    pub parent: PageDigest,
    pub open: Option<OpenImage>,
    /// The remote store is asked for what isn't known here.
    pub asks: bool,
    /// With several groups, the place up to which the device had the pages of group 0; None before
    /// that was looked for.
    pub known: Option<usize>,
}

impl PageTiers {
    /// Goes on with the digests of all open fetches. Whether there were any.
    pub(super) fn hash_rests(&self) -> bool {
        let (mut any, mut after) = (false, 0);
        loop {
            let next = {
                let table = self.table();
                let mut loads = table.loads.open.from(&after);
                loads.find_map(|(&number, load)| Some((number, load.sequence?, load.rest?)))
            };
            let Some((number, id, rest)) = next else { return any };
            (any, after) = (true, number + 1);
            self.hash_some(number, id, rest);
        }
    }

    fn hash_some(&self, number: u64, id: SequenceId, rest: Rest) {
        let Rest { next, end, parent, open, .. } = rest;
        let known = rest.known.or_else(|| self.device_end(id, end));
        let mut digests = [PageDigest::default(); SLICE];
        let count = SLICE.min(end - next);
        let state = self.shared.read();
        let made = state.digest_pages(id, next, (parent, open), &mut digests[..count]);
        let pages = state.pages_to_fill(id, next..next + count);
        drop(state);
        let table = &mut *self.table();
        let Some(load) = table.loads.open.get_mut(&number).filter(|load| load.rest.is_some())
        else {
            return; // Its time was over.
        };
        let Ok(made) = made else {
            load.rest = None;
            return;
        };
        let digests = &digests[..made.count];
        let last = digests.last().copied().unwrap_or(parent);
        let next = next + made.count;
        load.rest = Some(Rest { next, parent: last, open: made.open, known, ..rest });
        let goes_on = match (&load.plan, pages) {
            (Some(_), _) => self.take_places(table, number, digests),
            (None, Ok(pages)) => self.take_pages(table, number, (digests, &pages)),
            (None, Err(_)) => Ok(false),
        };
        table.counters.no_memory += u64::from(goes_on.is_err());
        let is_over = made.count < count || next == end;
        if goes_on != Ok(true) || is_over {
            self.end_rest(table, number);
        }
    }

    /// Adds pages to a fetch of one group. False at the first that can't be had.
    fn take_pages(
        &self,
        table: &mut Table,
        number: u64,
        (digests, pages): (&[PageDigest], &[u32]),
    ) -> Result<bool, OutOfMemory> {
        let Table { map, loads, counters, .. } = table;
        let load = loads.open.get_mut(&number).expect("it is open");
        load.pages.try_reserve(digests.len())?;
        let (rest, host_only) = (load.rest.expect("it was seen"), load.host_only);
        let first = rest.next - digests.len();
        for ((&digest, &page), place) in digests.iter().zip(pages).zip(first..) {
            let name = Name { digest, group: 0 };
            let is_known = load.remote.from == load.landed + load.pages.len();
            let found = match map.find(name).and_then(|at| map.get(at)) {
                Some(record) if record.host().is_some() => Some(Level::Host),
                Some(record) => record.committed().map(|_| Level::Disk),
                None => None,
            };
            let is_here = found.is_some_and(|level| level == Level::Host || !host_only);
            if is_known && is_here {
                load.remote.from += 1;
                load.wanted += 1;
                counters.wanted_pages += 1;
            } else if !rest.asks {
                return Ok(false);
            }
            let (stage, from) = (Stage::Waiting, Origin::Host);
            load.pages.push_back(LoadPage { name, page, place, stage, from });
            load.limit += 1;
        }
        Ok(true)
    }

    /// The place up to which the device has the pages of group 0 of a sequence's prompt.
    fn device_end(&self, id: SequenceId, end: usize) -> Option<usize> {
        if !self.groups.are_several() {
            return None;
        }
        let path = self.shared.turn().hold_beyond(id, end).ok()?;
        let end = path.end();
        self.shared.turn().let_path_go(path);
        Some(end)
    }

    /// Adds places to the plan of a fetch of several groups. False behind the last that it can use.
    /// What the device has of each is seen when all are known.
    fn take_places(
        &self,
        table: &mut Table,
        number: u64,
        digests: &[PageDigest],
    ) -> Result<bool, OutOfMemory> {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let Rest { asks, known, .. } = load.rest.expect("it was seen");
        let mut plan = load.plan.take().expect("it has one");
        let mut goes_on = Ok(true);
        for &digest in digests {
            let mut place = Place::new(digest, 0);
            self.look_up(table, &mut place);
            let is_known = known.is_some_and(|end| plan.first + plan.places.len() < end);
            goes_on = match is_known || place.anywhere() & 1 != 0 || asks {
                true => plan.push(place).map(|()| true),
                false => Ok(false),
            };
            if goes_on != Ok(true) {
                break;
            }
        }
        let load = table.loads.open.get_mut(&number).expect("it is open");
        load.plan = Some(plan);
        goes_on
    }

    /// All that can be known without asking is known.
    fn end_rest(&self, table: &mut Table, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let Some(Rest { asks, .. }) = load.rest.take() else { return };
        match &mut load.plan {
            Some(plan) => plan.is_stale = true,
            None => load.remote.from = load.remote.from.min(load.landed + load.pages.len()),
        }
        // With several groups it is seen later whether there is anything to ask for.
        let lacks = load.remote.from < load.landed + load.pages.len();
        if asks && (lacks || load.plan.is_some()) {
            load.remote.ask_next();
            self.wait_longer(table, number);
        }
    }
}
