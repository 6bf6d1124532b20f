//! Bringing pages to host memory before anybody has begun with them.
//!
//! A prompt that waits for its turn, or a session that is expected: what the disk and the remote
//! store have of it is read meanwhile. Fetches come first: while one waits for pages, nothing more
//! is begun here. What was used since then does not leave host memory for it.
use super::fetch::Deadline;
use super::group_plan::GroupPlan;
use super::host::Need;
use super::known::{Beyond, Fetchable, Known};
use super::loads::{Load, LoadPage, Loads, Origin, Stage};
use super::table::Table;
use super::work::PageTiers;
use crate::error::{Error, text};
use crate::group::GROUP_LIMIT;
use crate::index::Namespace;
use crate::memory::OutOfMemory;
use crate::token::{ListDigests, PageDigest, TokenList, position_count};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A prefetch, and what there is of its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    /// What to cancel it by; 0 when there is nothing to bring.
    pub number: u64,
    /// Positions that the device has, of whole pages.
    pub cached_positions: usize,
    /// What the tiers have beyond.
    pub found: Fetchable,
}

/// Pages in each pool.
pub(super) type ByPool = [usize; GROUP_LIMIT];

/// What is to be brought.
pub(super) struct Brings {
    pub found: Fetchable,
    pub pages: VecDeque<LoadPage>,
    /// Of those the first are in host memory or on the disk.
    pub here: usize,
    /// With several groups, what the pages are for.
    pub plan: Option<Box<GroupPlan>>,
    /// The page before the first.
    pub before: Option<PageDigest>,
}

impl Brings {
    /// With one group of layers: pages that follow each other, from a place on.
    fn of_one(known: &Known, page_size: usize, first: usize) -> Result<Self, OutOfMemory> {
        let mut pages = VecDeque::new();
        pages.try_reserve_exact(known.names.len())?;
        for (&name, place) in known.names.iter().zip(first..) {
            let (stage, from) = (Stage::Waiting, Origin::Host);
            pages.push_back(LoadPage { name, page: 0, place, stage, from });
        }
        let found = known.fetchable(page_size);
        Ok(Self { found, pages, here: known.here, plan: None, before: known.before })
    }
}

impl Loads {
    /// The first load to host memory of a number or a higher one.
    fn prefetch_from(&self, number: u64) -> Option<u64> {
        let mut loads = self.open.from(&number);
        loads.find_map(|(&number, load)| load.sequence.is_none().then_some(number))
    }

    /// Pages that those bring; each one at least: which, the remote store may have to say.
    fn prefetched_pages(&self) -> ByPool {
        let mut sums = ByPool::default();
        for (_, load) in self.open.iter().filter(|(_, load)| load.sequence.is_none()) {
            sums.iter_mut().zip(load.by_pool).for_each(|(sum, count)| *sum += count);
            sums[0] += usize::from(load.pages.is_empty());
        }
        sums
    }

    /// Whether a fetch waits for pages that are still below host memory.
    fn are_waiting(&self) -> bool {
        self.open.iter().any(|(_, load)| {
            let is_below = |at: usize| {
                let stage = &load.pages[at].stage;
                matches!(stage, Stage::Waiting | Stage::Reading | Stage::Fetching)
            };
            let mut wanted = load.window().take_while(|&at| at < load.limit);
            load.sequence.is_some() && !load.is_ready && wanted.any(is_below)
        })
    }
}

impl PageTiers {
    /// Starts to bring to host memory what the tiers have of a prompt beyond what the device has,
    /// unless `looks_only` or there is nothing. Who begins with it finds what has come.
    pub fn prefetch(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<Prefetched, Error> {
        self.shared.check_whole()?;
        // Some token is always computed.
        let pages = position_count(tokens)?.saturating_sub(1) / self.page_size;
        let device = self.shared.on_device(namespace, tokens)?;
        let beyond = Beyond {
            first: device.pages,
            last: device.last,
            most: pages.saturating_sub(device.pages),
            namespace: *namespace,
            clear: device.clear,
        };
        let mut list = ListDigests::new(tokens, self.page_size, device.pages, None)?;
        let mut digest = |_: usize, parent: PageDigest, into: &mut [PageDigest]| {
            let mut last = parent;
            for (count, place) in into.iter_mut().enumerate() {
                match list.next_after(last) {
                    Some(digest) => (*place, last) = (digest, digest),
                    None => return Ok(count),
                }
            }
            Ok(into.len())
        };
        let is_late = deadline == Deadline::After(Duration::ZERO);
        let may_ask = || self.may_ask(&self.shared.read(), namespace);
        let asks = !looks_only && !is_late && may_ask();
        let brings = match self.groups.are_several() {
            false => {
                let known = self.known(&beyond, usize::MAX, (false, asks), &mut digest)?;
                Brings::of_one(&known, self.page_size, device.pages)?
            }
            true => self.brings_of_groups(&beyond, asks, &mut digest)?,
        };
        let Brings { found, mut pages, here, plan, before } = brings;
        let cached_positions = device.pages * self.page_size;
        let nothing = Prefetched { number: 0, cached_positions, found };
        let asks = found.asked_positions > 0;
        if pages.is_empty() && !asks || looks_only || is_late {
            return Ok(nothing);
        }
        let table = &mut *self.table();
        let (room, only_asks) = (self.room_for_prefetch(table), pages.is_empty());
        let by_pool = self.keep_what_fits(&mut pages, 0, room);
        let has_room = if only_asks { room[0] > 0 } else { !pages.is_empty() };
        if table.is_closing || !has_room {
            table.counters.refused_prefetches += 1;
            return Ok(nothing);
        }
        let loads = &mut table.loads;
        loads.open.try_reserve(1)?;
        let here = here.min(pages.len());
        let asked = if plan.is_some() { (0, usize::from(asks)) } else { (here, pages.len()) };
        let remote = self.wanted(asked, &beyond, before);
        let mut load = Load::new(None, pages, here, remote);
        load.deadline = deadline.end(load.begun);
        load.need = Need::Prefetch { since: table.map.tick() };
        (load.plan, load.by_pool) = (plan, by_pool);
        let number = self.shared.number_load();
        loads.open.insert(number, load);
        table.counters.prefetches += 1;
        self.signal.notify();
        let found = Fetchable { is_begun: true, ..found };
        Ok(Prefetched { number, cached_positions, found })
    }

    /// Pages that another prefetch may bring: of each pool's host memory all together have about a
    /// half at most, for the rest is for who has begun.
    pub(super) fn room_for_prefetch(&self, table: &Table) -> ByPool {
        let mut room = table.loads.prefetched_pages();
        for (room, pool) in room.iter_mut().zip(&self.pools) {
            *room = pool.slots.count().div_ceil(2).saturating_sub(*room);
        }
        room
    }

    /// Drops pages from a place on that find no room in their pools. Those that stay, in order.
    pub(super) fn keep_what_fits(
        &self,
        pages: &mut VecDeque<LoadPage>,
        from: usize,
        room: ByPool,
    ) -> ByPool {
        let (mut kept, mut end) = (ByPool::default(), from);
        for at in from..pages.len() {
            let pool = self.pool_of(pages[at].name.group);
            if kept[pool] < room[pool] {
                kept[pool] += 1;
                pages.swap(end, at);
                end += 1;
            }
        }
        pages.truncate(end);
        kept
    }

    /// Gives a prefetch up, unless it has ended. What it brought stays, and so does what is on its
    /// way.
    pub fn cancel_prefetch(&self, number: u64) -> Result<(), Error> {
        let table = &mut *self.table();
        if number == 0 || number > self.shared.last_load() {
            return Err(Error::argument(text!("prefetch {number} was never begun")));
        }
        if table.loads.prefetch_from(number) == Some(number) {
            self.end_prefetch(table, number);
        }
        Ok(())
    }

    fn end_prefetch(&self, table: &mut Table, number: u64) {
        let Some(load) = table.loads.open.get(&number) else { return };
        let mut came = [0; 3];
        match &load.plan {
            Some(plan) => came = plan.came,
            None => {
                let is_there = |page: &&LoadPage| matches!(page.stage, Stage::Done);
                load.pages.iter().filter(is_there).for_each(|page| came[page.from as usize] += 1);
            }
        }
        table.loads.end(number);
        table.counters.prefetched[0] += came[Origin::Disk as usize];
        table.counters.prefetched[1] += came[Origin::Remote as usize];
    }

    /// Goes on with all of them. Whether anything came of it.
    pub(super) fn advance_prefetches(&self) -> bool {
        let (mut any, mut after) = (false, 0);
        loop {
            let gives_way = {
                let table = &mut *self.table();
                let Some(number) = table.loads.prefetch_from(after) else { return any };
                after = number;
                self.give_way(table, number)
            };
            if !gives_way {
                any |= self.advance_load(after);
            }
            let table = &mut *self.table();
            if table.loads.open.get(&after).is_some_and(Load::is_over) {
                self.end_prefetch(table, after);
            }
            after += 1;
        }
    }

    /// Whether nothing more is begun for a prefetch now.
    fn give_way(&self, table: &mut Table, number: u64) -> bool {
        let gives_way = table.loads.are_waiting();
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let is_late = load.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late {
            load.expire();
        } else if gives_way && load.is_asking() {
            // Who waits may wait for the same.
            self.end_waiting(table, number);
        } else if gives_way {
            self.wait_longer(table, number);
        }
        gives_way || is_late
    }
}
