//! What the engine is asked to copy, what it has copied, and which fetches have ended.
use super::loads::{Load, Loads, Stage};
use super::map::Level;
use super::table::{Job, Table};
use super::work::PageTiers;
use crate::error::{Error, text};
use crate::ids::SequenceId;
use crate::store::{PoolPage, State, Turn};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Pages that become the cache's with one lock.
const LANDED: usize = 16;
/// Copies of which the state hears that they are done before others get in.
const COMPLETED: usize = 64;
/// How soon the engine is asked again to copy what host memory had no slot for.
const STUCK: Duration = Duration::from_millis(20);
/// Copies that are begun with one lock.
pub(super) const JOBS: usize = 64;

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From host memory to a page of the device.
    Load,
    /// From a page of the device to host memory.
    Store,
}

/// A copy of one page for the engine to carry out.
#[derive(Debug, Clone, Copy)]
pub struct CopyJob {
    /// To say that it is done.
    pub id: u64,
    /// Where it goes.
    pub direction: Direction,
    /// The group of layers.
    pub group: usize,
    /// The page of the device, in the group's pool.
    pub page: u32,
    /// The slot of host memory.
    pub host: NonNull<u8>,
    /// Bytes.
    pub bytes: usize,
    /// Of a load, whose page it is.
    pub sequence: Option<SequenceId>,
}

/// A fetch that has ended, or that waits for the ranks to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// The sequence.
    pub sequence: SequenceId,
    /// Positions that it need not compute, or needs not if all ranks have as many.
    pub positions: usize,
    /// Pages that were wanted.
    pub wanted: usize,
    /// Pages that came.
    pub brought: usize,
    /// The deadline came first.
    pub is_late: bool,
}

/// What a poll gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Polled {
    /// Copies.
    pub jobs: usize,
    /// Fetches that have ended.
    pub fetched: usize,
}

impl PageTiers {
    /// Gives copies to carry out, loads first, and the fetches that have ended, as many as there is
    /// room for. Both closures are called under locks: they must not call the library. A copy is
    /// carried out, and completed, when this has returned.
    pub fn poll(
        &self,
        (job_room, fetched_room): (usize, usize),
        job: &mut dyn FnMut(CopyJob),
        fetched: &mut dyn FnMut(Fetched),
    ) -> Result<Polled, Error> {
        self.shared.check_whole()?;
        let mut polled = Polled::default();
        let table = &mut *self.table();
        table.is_announced = false;
        self.signal.notify();
        let room = if table.is_closing { 0 } else { job_room.min(JOBS) };
        if !table.loads.numbers.is_empty() {
            let mut turn = self.shared.turn();
            polled.jobs = self.issue_loads(table, &mut turn, room, job)?;
            self.end_loads(table, &mut turn);
        }
        let limit = self.store_limit(table);
        let open = table.stores.open;
        let left = room - polled.jobs;
        let room = left.min(limit.saturating_sub(open));
        if room > 0 && !table.stores.queue.is_empty() {
            polled.jobs += self.issue_stores(table, room, job)?;
        }
        let stores = &mut table.stores;
        let is_stuck = left > 0 && stores.open == 0 && !stores.queue.is_empty();
        stores.stuck = is_stuck.then(Instant::now);
        while polled.fetched < fetched_room
            && let Some(done) = table.stores.finished.pop_front()
        {
            fetched(done);
            polled.fetched += 1;
        }
        table.stores.unwanted = 0;
        if fetched_room == 0 && !table.stores.finished.is_empty() {
            // Who never takes any asks the sequences: the ends go with them.
            let state = self.shared.read();
            table.stores.finished.retain(|done| state.sequence_info(done.sequence).is_ok());
            table.stores.unwanted = table.stores.finished.len();
        }
        Ok(polled)
    }

    fn issue_loads(
        &self,
        table: &mut Table,
        turn: &mut Turn<'_>,
        room: usize,
        give: &mut dyn FnMut(CopyJob),
    ) -> Result<usize, Error> {
        table.jobs.try_reserve(room)?;
        let now = Instant::now();
        let (mut given, mut after) = (0, 0);
        while let Some((number, sequence)) = table.loads.from(after) {
            after = number + 1;
            if !turn.is_loading(sequence) {
                self.abandon(table, number);
                continue;
            }
            let Table { loads, jobs, .. } = table;
            let load = loads.open.get_mut(&number).expect("it is open");
            if load.deadline.is_some_and(|deadline| deadline <= now) {
                load.expire();
            }
            for at in load.window() {
                if given == room || at >= load.limit {
                    break;
                }
                let page = &mut load.pages[at];
                let to = PoolPage { pool: self.pool_of(page.name.group), page: page.page };
                if !matches!(page.stage, Stage::Ready(_)) || !turn.begin_load(sequence, to) {
                    continue;
                }
                let stage = std::mem::replace(&mut page.stage, Stage::Copying);
                let Stage::Ready(slot) = stage else { unreachable!("it was ready") };
                let id = self.shared.number_copy();
                let job = CopyJob {
                    id,
                    direction: Direction::Load,
                    group: usize::from(page.name.group),
                    page: page.page,
                    host: slot.address(),
                    bytes: self.pools[to.pool].page_bytes,
                    sequence: Some(sequence),
                };
                let place = load.landed + at;
                jobs.insert(id, Job::Load { sequence, place, page: to, slot });
                load.running += 1;
                given += 1;
                // Last: should the engine panic, it is known what was lent.
                turn.call_out(|| give(job));
            }
        }
        Ok(given)
    }

    /// Says that copies are done, or failed: then nobody finds what was stored, and what was to be
    /// loaded is computed.
    pub fn complete(&self, ids: &[u64], is_good: bool) -> Result<(), Error> {
        self.shared.check_whole()?;
        let table = &mut *self.table();
        for (at, id) in ids.iter().enumerate() {
            if table.jobs.get(id).is_none() || ids[..at].contains(id) {
                return Err(Error::argument(text!("jobs[{at}] {id} is no copy that goes on")));
            }
        }
        for some in ids.chunks(COMPLETED) {
            let mut turn = self.shared.turn();
            for id in some {
                let job = table.jobs.get(id).expect("it was seen");
                let (Job::Load { page, .. } | Job::Store { page, .. }) = job;
                turn.state().end_copied(*page);
            }
            // What follows needs nothing of the state, and takes longer.
            drop(turn);
            for id in some {
                match table.jobs.remove(id).expect("it was seen") {
                    Job::Load { sequence, place, slot, .. } => {
                        drop(slot);
                        self.end_copy(table, (sequence, place), is_good);
                    }
                    Job::Store { page, slot, what } => {
                        self.end_store(table, page, (slot, what), is_good);
                    }
                }
            }
        }
        self.end_loads(table, &mut self.shared.turn());
        self.signal.notify();
        Ok(())
    }

    fn end_copy(&self, table: &mut Table, (id, place): (SequenceId, usize), is_good: bool) {
        let Table { loads, counters, .. } = table;
        counters.failed_loads += u64::from(!is_good);
        let number = loads.numbers.get(&id.0).copied();
        let Some(load) = number.and_then(|number| loads.open.get_mut(&number)) else { return };
        load.running -= 1;
        let at = place - load.landed;
        if is_good {
            load.set_done(at);
        } else {
            load.pages[at].stage = Stage::Waiting;
            load.shorten(at);
        }
    }

    /// Ends what is over.
    pub(super) fn end_loads(&self, table: &mut Table, turn: &mut Turn<'_>) {
        let mut after = 0;
        while let Some((number, id)) = table.loads.from(after) {
            if after > 0 {
                // Each takes a while.
                turn.let_waiting_in();
            }
            after = number + 1;
            let load = table.loads.open.get(&number).expect("it is open");
            let (is_over, done, has_groups) = (load.is_over(), load.done, load.plan.is_some());
            let state = turn.state();
            if !state.is_loading(id) {
                self.abandon(table, number);
            } else if has_groups {
                let is_ready = table.loads.open.get(&number).is_some_and(|load| load.is_ready);
                if is_over
                    && !is_ready
                    && let Some(done) = self.end_group_load(table, turn, number)
                {
                    self.announce_fetched(table, done);
                    self.absorb(table, turn.state());
                }
            } else if is_over && self.agrees {
                self.make_ready(table, state, number);
            } else if is_over || done > LANDED && !self.agrees {
                // Not all at once: others wait for the lock.
                let left = self.land_all_but_some(table, turn, (number, id), usize::MAX);
                // If its sequence is still there.
                if let Some(most) = left.ok().filter(|_| is_over) {
                    let done = self.end_load(table, turn.state(), number, most);
                    self.announce_fetched(table, done);
                    self.absorb(table, turn.state());
                }
            }
        }
    }

    /// The sequence ended first: what goes on is waited for, and nothing becomes of it.
    pub(super) fn abandon(&self, table: &mut Table, number: u64) {
        if table.loads.end(number).is_some() {
            table.counters.abandoned += 1;
        }
    }

    /// All that could be had is there, and nobody sees it yet.
    fn make_ready(&self, table: &mut Table, state: &State, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        if std::mem::replace(&mut load.is_ready, true) {
            return;
        }
        let (Some(sequence), brought) = (load.sequence, load.done) else { return };
        let shared = state.sequence_info(sequence).map_or(0, |info| info.shared_pages);
        let positions = (shared + brought) * self.page_size;
        let (wanted, is_late) = (load.wanted, load.is_late);
        let done = Fetched { sequence, positions, wanted, brought, is_late };
        self.announce_fetched(table, done);
    }

    /// Ends a fetch: what came becomes the cache's, and so many pages of it at most.
    pub(super) fn end_load(
        &self,
        table: &mut Table,
        state: &mut State,
        number: u64,
        most: usize,
    ) -> Fetched {
        let Table { loads, counters, .. } = table;
        let load = loads.open.get(&number).expect("it is open");
        let (came, id) = (load.done, load.sequence.expect("it is one of a sequence"));
        let most = most.min(load.pages.len());
        let landed = state.land(id, (came, most), None).expect("the sequence was seen");
        for page in load.pages.iter().take(came.min(landed.pages)) {
            counters.fetched[page.from as usize] += 1;
        }
        let load = loads.end(number).expect("it is open");
        counters.landed_pages += landed.pages as u64;
        let brought = load.landed + landed.pages;
        // Of one that is late nobody knows what all would have been.
        let is_all = brought >= load.wanted && !load.is_late;
        *if is_all { &mut counters.complete } else { &mut counters.shortened } += 1;
        self.count_end(table, &load);
        let (wanted, is_late) = (load.wanted, load.is_late);
        Fetched { sequence: id, positions: landed.positions, wanted, brought, is_late }
    }

    /// Counts how a fetch ended.
    pub(super) fn count_end(&self, table: &mut Table, load: &Load) {
        let counters = &mut table.counters;
        counters.late += u64::from(load.is_late);
        let took = u64::try_from(load.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counters.fetch_nanoseconds = counters.fetch_nanoseconds.saturating_add(took);
        counters.fetch_nanoseconds_max = counters.fetch_nanoseconds_max.max(took);
    }

    /// Fetches that waited for another one take what that has made the cache's.
    fn absorb(&self, table: &mut Table, state: &mut State) {
        let mut after = 0;
        while let Some((number, id)) = table.loads.from(after) {
            after = number + 1;
            let load = table.loads.open.get_mut(&number).expect("it is open");
            if !load.is_joined || load.running > 0 || !state.is_loading(id) {
                continue;
            }
            if let Some(plan) = &mut load.plan {
                // Some of it is on the device now.
                plan.is_stale = true;
                self.signal.notify();
                continue;
            }
            let (came, most) = (load.done, load.limit);
            self.land_some(table, state, (number, id), (came, most));
        }
    }

    /// The first pages of a fetch become the cache's while it goes on.
    pub(super) fn land_some(
        &self,
        table: &mut Table,
        state: &mut State,
        (number, id): (u64, SequenceId),
        (came, most): (usize, usize),
    ) {
        let rest = table.loads.open.get(&number).and_then(|load| load.rest);
        let hashed = rest.map_or(usize::MAX, |rest| rest.next);
        let landed = state.land(id, (came, most), Some(hashed)).expect("the sequence was seen");
        table.counters.landed_pages += landed.pages as u64;
        let Table { loads, counters, .. } = table;
        let Loads { open, carried, .. } = loads;
        let load = open.get_mut(&number).expect("it is open");
        load.is_joined = false;
        for (at, page) in load.drop_landed(landed.pages).enumerate() {
            if carried.get(&page.name) == Some(&number) {
                carried.remove(&page.name);
            }
            counters.fetched[page.from as usize] += u64::from(at < came);
        }
    }

    /// So many pages of a fetch become the cache's at most, all but as many as others wait for; who
    /// waits gets in meanwhile. Returns how many are left.
    pub(super) fn land_all_but_some(
        &self,
        table: &mut Table,
        turn: &mut Turn<'_>,
        (number, id): (u64, SequenceId),
        most: usize,
    ) -> Result<usize, Error> {
        let (mut left, mut some) = (most, LANDED);
        loop {
            let load = table.loads.open.get(&number).expect("it is open");
            let (came, before) = (load.done, load.landed);
            if came.min(left) <= some {
                return Ok(left);
            }
            self.land_some(table, turn.state(), (number, id), (some, some));
            let load = table.loads.open.get(&number).expect("it is open");
            match load.landed - before {
                // They end inside an image, or there is no memory to publish them.
                0 => some *= 2,
                landed => (left, some) = (left.saturating_sub(landed), LANDED),
            }
            turn.let_waiting_in();
            if !turn.state().is_loading(id) {
                self.abandon(table, number);
                return Err(Error::StaleSequence(id.0));
            }
        }
    }

    pub(super) fn announce_fetched(&self, table: &mut Table, done: Fetched) {
        // There is: it was made when the fetch began.
        if table.stores.finished.try_reserve(1).is_ok() {
            // What others brought or computed meanwhile came too.
            let wanted = done.wanted.max(done.brought);
            table.stores.finished.push_back(Fetched { wanted, ..done });
        }
    }

    /// Tells the engine that there is something to poll for, unless it was told.
    pub(super) fn announce(&self) {
        let Some(wake) = &self.wake else { return };
        let mut table = self.table();
        let now = Instant::now();
        let is_ready = |load: &Load| {
            let mut under_way = load.window().take_while(|&at| at < load.limit);
            let is_there = under_way.any(|at| matches!(load.pages[at].stage, Stage::Ready(_)));
            let deadline = load.deadline.filter(|_| !load.is_expired);
            let is_late = deadline.is_some_and(|deadline| deadline <= now);
            // One that waits for other ranks has said so.
            load.sequence.is_some() && (is_there || is_late || load.is_over() && !load.is_ready)
        };
        let has_loads = table.loads.open.iter().any(|(_, load)| is_ready(load));
        let stores = &table.stores;
        let is_stuck = stores.stuck.is_some_and(|since| now.duration_since(since) < STUCK);
        // While they are detached none is given out.
        let gives = !table.is_closing && !is_stuck;
        let has_stores = !stores.queue.is_empty() && stores.open == 0 && gives;
        let has_ends = stores.finished.len() > stores.unwanted;
        let has_any = has_loads || has_stores || has_ends;
        let is_news = has_any && !std::mem::replace(&mut table.is_announced, has_any);
        drop(table);
        if is_news {
            wake();
        }
    }

    /// Copies to host memory that may go on at once: fewer as its slots get scarce, and while pages
    /// are fetched; and of each pool's pages no more than an eighth.
    fn store_limit(&self, table: &Table) -> usize {
        let limit_of = |at: usize| {
            let slots = &self.pools[at].slots;
            let free = slots.free() + table.map.count_of(Level::Host, at).div_ceil(2);
            (JOBS * free.min(slots.count())).div_ceil(slots.count().max(1))
        };
        let limit = (0..self.pools.len()).map(limit_of).max().unwrap_or(0);
        // What is copied is not reclaimable meanwhile.
        let most = (0..self.pools.len()).map(|pool| self.most_stores(pool)).sum();
        let limit = limit.min(most);
        if table.loads.are_active() { limit.div_ceil(4) } else { limit }
    }

    /// Pages of a pool that are copied to host memory at once, at most.
    pub(super) fn most_stores(&self, pool: usize) -> usize {
        self.device_pages[pool].div_ceil(8)
    }
}
