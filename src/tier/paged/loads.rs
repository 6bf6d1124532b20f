//! Fetches that are open: pages on their way to a sequence, or to host memory, each at a stage of
//! its own.
use super::group_plan::GroupPlan;
use super::host::Need;
use super::joined::Came;
use super::map::{Level, Name};
use super::prefetch::ByPool;
use super::remote::{Begun, Wanted};
use super::rest::Rest;
use super::table::Table;
use super::work::{PageTiers, checksum};
use crate::ids::SequenceId;
use crate::memory::{OrderedMap, Slot};
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// Pages of a fetch that are read or checked ahead.
const AHEAD: usize = 64;
/// Pages of one that has ended that are let go of at once.
const LET_GO: usize = 64;

/// How far a page has come.
#[derive(Debug)]
pub(super) enum Stage {
    Waiting,
    /// The disk reads it into host memory.
    Reading,
    /// The remote store brings it to host memory.
    Fetching,
    /// Its bytes are being checked.
    Checking,
    /// It can be copied.
    Ready(Slot),
    /// The engine copies it.
    Copying,
    /// It is in the sequence's page, or where it was to be.
    Done,
}

/// Where a page came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Host = 0,
    Disk = 1,
    Remote = 2,
}

#[derive(Debug)]
pub(super) struct LoadPage {
    pub name: Name,
    /// The sequence's; 0 for none.
    pub page: u32,
    /// Its place in the prefix.
    pub place: usize,
    pub stage: Stage,
    pub from: Origin,
}

impl LoadPage {
    /// One that is to be brought to a place, and a page of the sequence.
    pub fn new(group: usize, (place, page): (usize, u32), digest: PageDigest) -> Self {
        let name = Name { digest, group: group as u8 };
        Self { name, page, place, stage: Stage::Waiting, from: Origin::Host }
    }
}

#[derive(Debug)]
pub(super) struct Load {
    /// None brings its pages to host memory only.
    pub sequence: Option<SequenceId>,
    pub pages: VecDeque<LoadPage>,
    /// How many those are in each pool, when they are brought to host memory only.
    pub by_pool: ByPool,
    /// Pages that became the cache's already: the first that is left has this place.
    pub landed: usize,
    /// Of those that are left, the first that are there.
    pub done: usize,
    /// Of the pages that are left, those that it still waits for: the others can't be had.
    pub limit: usize,
    /// Pages that it was begun for.
    pub wanted: usize,
    pub deadline: Option<Instant>,
    pub is_expired: bool,
    pub begun: Instant,
    pub host_only: bool,
    /// Copies that the engine carries out.
    pub running: usize,
    /// Another fetch brings its next page.
    pub is_joined: bool,
    pub was_joined: bool,
    pub is_late: bool,
    /// All that could be had is there, and the ranks have to agree.
    pub is_ready: bool,
    /// They have.
    pub is_agreed: bool,
    /// What it needs slots of host memory for.
    pub need: Need,
    /// What goes on without this process.
    pub remote: Wanted,
    /// What is still to be hashed of the prompt.
    pub rest: Option<Rest>,
    /// With several groups, what the pages are for.
    pub plan: Option<Box<GroupPlan>>,
}

impl Load {
    /// Brings pages that may be had to a sequence, or to host memory.
    pub fn new(
        sequence: Option<SequenceId>,
        pages: VecDeque<LoadPage>,
        wanted: usize,
        remote: Wanted,
    ) -> Self {
        Self {
            need: Need::Fetch,
            sequence,
            by_pool: ByPool::default(),
            landed: 0,
            done: 0,
            limit: pages.len(),
            pages,
            wanted,
            deadline: None,
            is_expired: false,
            begun: Instant::now(),
            host_only: false,
            running: 0,
            is_joined: false,
            was_joined: false,
            is_late: false,
            is_ready: false,
            is_agreed: false,
            remote,
            rest: None,
            plan: None,
        }
    }

    /// The places of pages that may be under way: those before are there, those behind wait.
    pub fn window(&self) -> Range<usize> {
        self.done..self.pages.len().min(self.done + AHEAD)
    }

    /// The place of a page that is at a stage.
    fn place(&self, name: Name, is_at: impl Fn(&Stage) -> bool) -> Option<usize> {
        self.window().find(|&at| self.pages[at].name == name && is_at(&self.pages[at].stage))
    }

    /// A copy of a page is done.
    pub fn set_done(&mut self, at: usize) {
        let LoadPage { stage, name, place, from, .. } = &mut self.pages[at];
        *stage = Stage::Done;
        if let Some(plan) = &mut self.plan {
            plan.note(usize::from(name.group), *place, *from);
        }
        let is_there = |page: &LoadPage| matches!(page.stage, Stage::Done);
        while self.pages.get(self.done).is_some_and(is_there) {
            self.done += 1;
        }
    }

    /// It waits for nothing from a place on.
    pub fn shorten(&mut self, limit: usize) {
        if limit < self.limit {
            (self.limit, self.rest) = (limit, None);
        }
        for at in self.window().start.max(self.limit)..self.window().end {
            // Not what the engine is copying: until that is done the page is not free.
            if !matches!(self.pages[at].stage, Stage::Copying | Stage::Done) {
                self.pages[at].stage = Stage::Waiting;
            }
        }
    }

    /// Nothing more is begun for it: the deadline is over.
    pub fn expire(&mut self) {
        self.is_expired = true;
        let under_way = |&at: &usize| matches!(self.pages[at].stage, Stage::Done | Stage::Copying);
        let limit = self.done + self.window().take_while(under_way).count();
        self.is_late |= limit < self.limit || self.is_unsettled();
        self.rest = None;
        self.shorten(limit);
        if let Some(plan) = &mut self.plan {
            plan.is_expired = true;
            self.remote.forget();
        }
    }

    /// Whether what it is to bring is not known yet: pages are hashed, the remote store is asked,
    /// or there is to be another plan.
    pub fn is_unsettled(&self) -> bool {
        let is_planned = |plan: &GroupPlan| {
            plan.is_planning || plan.is_stale || plan.has_news || self.remote.is_asking()
        };
        self.rest.is_some() || self.plan.as_deref().is_some_and(is_planned)
    }

    /// Whether all that it waits for is there.
    pub fn is_over(&self) -> bool {
        self.is_idle() && !self.is_unsettled()
    }

    /// Whether nothing of what it was to bring is under way.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.done >= self.limit
    }

    /// Some of its first pages became the cache's.
    pub fn drop_landed(&mut self, count: usize) -> impl Iterator<Item = LoadPage> {
        self.landed += count;
        // Of what it no longer waited for some has come all the same.
        self.limit -= count.min(self.limit);
        self.done -= count.min(self.done);
        if let Some(last) = count.checked_sub(1) {
            self.remote.before = Some(self.pages[last].name.digest);
        }
        self.pages.drain(..count)
    }
}

/// What became of a read.
pub(super) enum Landing {
    Here(Slot),
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Loads {
    pub open: OrderedMap<u64, Load>,
    /// By sequence: the number of its load.
    pub numbers: OrderedMap<u64, u64>,
    /// Pages, by name, and the load that brings each to the device.
    pub carried: OrderedMap<Name, u64>,
    /// Pages that the disk is reading, and the load that it was begun for.
    pub reading: OrderedMap<Name, u64>,
    /// Pages that the remote store is bringing, and the same.
    pub fetching: OrderedMap<Name, u64>,
    /// The pages of long loads that have ended, by their numbers: others do not bring those yet.
    leaving: Vec<(u64, VecDeque<LoadPage>)>,
}

impl Loads {
    /// A read has ended.
    pub fn land_read(&mut self, name: Name, from: Origin, landing: Landing) {
        let under_way = if from == Origin::Remote { &mut self.fetching } else { &mut self.reading };
        let Some(number) = under_way.remove(&name) else { return };
        let Some(load) = self.open.get_mut(&number) else { return };
        let is_read = |stage: &Stage| match from {
            Origin::Remote => matches!(stage, Stage::Fetching),
            _ => matches!(stage, Stage::Reading),
        };
        let Some(at) = load.place(name, is_read) else { return };
        match landing {
            Landing::Here(slot) => {
                load.pages[at].from = from;
                match load.sequence {
                    Some(_) => load.pages[at].stage = Stage::Ready(slot),
                    None => load.set_done(at),
                }
            }
            Landing::Gone => {
                let (group, place) = (usize::from(name.group), load.pages[at].place);
                if let Some(plan) = load.plan.as_mut().filter(|_| from == Origin::Remote) {
                    plan.refuse(group, place);
                }
                load.shorten(at);
            }
        }
    }

    /// The first load to a sequence of a number or a higher one, and its sequence.
    pub fn from(&self, number: u64) -> Option<(u64, SequenceId)> {
        let mut loads = self.open.from(&number);
        loads.find_map(|(&number, load)| Some((number, load.sequence?)))
    }

    /// Whether any load still brings pages to a sequence.
    pub fn are_active(&self) -> bool {
        self.open.iter().any(|(_, load)| load.sequence.is_some() && !load.is_ready)
    }

    /// Ends a load. What it brought to host memory stays there. Of a long one the pages are let go
    /// of later, by `let_some_go`.
    pub fn end(&mut self, number: u64) -> Option<Load> {
        let mut load = self.open.remove(&number)?;
        if let Some(id) = load.sequence {
            self.numbers.remove(&id.0);
        }
        let is_long = load.pages.len() > LET_GO;
        if is_long && self.leaving.try_reserve(1).is_ok() {
            self.leaving.push((number, std::mem::take(&mut load.pages)));
        } else {
            load.pages.iter().for_each(|page| self.release(page.name, number));
        }
        Some(load)
    }

    /// Lets go of some pages of loads that have ended. Whether there are more.
    pub fn let_some_go(&mut self) -> bool {
        let Some((number, pages)) = self.leaving.last_mut() else { return false };
        let number = *number;
        let mut some = pages.split_off(pages.len().saturating_sub(LET_GO));
        if pages.is_empty() {
            self.leaving.pop();
        }
        some.drain(..).for_each(|page| self.release(page.name, number));
        !self.leaving.is_empty()
    }

    /// Others may bring a page that a load has brought.
    pub fn release(&mut self, name: Name, number: u64) {
        if self.carried.get(&name) == Some(&number) {
            self.carried.remove(&name);
        }
    }
}

/// Bytes to be checked.
struct Check {
    load: u64,
    name: Name,
    slot: Slot,
    checksum: u64,
}

impl PageTiers {
    /// Reads and checks ahead for all open fetches. Whether anything came of it.
    pub(super) fn advance_loads(&self) -> bool {
        let (mut any, mut after) = (false, 0);
        loop {
            let next = self.table().loads.from(after);
            let Some((number, _)) = next else { return any | self.advance_prefetches() };
            any |= self.advance_load(number);
            after = number + 1;
        }
    }

    /// The same for one. Whether anything came of it.
    pub(super) fn advance_load(&self, number: u64) -> bool {
        let mut checks = Vec::new();
        let mut table = self.table();
        let mut any = self.advance(&mut table, number, &mut checks);
        let question = self.question(&mut table, number);
        drop(table);
        any |= question.is_some();
        if let Some(question) = question {
            self.ask(number, question);
        }
        for check in checks {
            let is_good = checksum(check.slot.get()) == check.checksum;
            self.take_check(check, is_good);
            any = true;
        }
        any
    }

    fn advance(&self, table: &mut Table, number: u64, checks: &mut Vec<Check>) -> bool {
        let Some(mut at) = table.loads.open.get(&number).map(|load| load.done) else {
            return false;
        };
        let (mut any, mut passed) = (self.end_waiting(table, number), 0);
        loop {
            let Some(load) = table.loads.open.get(&number) else { return any };
            if at >= load.limit.min(load.window().end) || load.is_ready || passed == AHEAD {
                return any;
            }
            let (name, host_only) = (load.pages[at].name, load.host_only);
            let is_prefetch = load.sequence.is_none();
            if !matches!(load.pages[at].stage, Stage::Waiting) {
                at += 1;
                continue;
            }
            let carrier = table.loads.carried.get(&name).copied().filter(|_| self.is_shared(name));
            // Who takes only what host memory has waits for nobody's disk.
            let waits = !self.agrees && !host_only;
            if carrier.is_some_and(|other| other != number) && waits {
                if !is_prefetch {
                    self.join(table, number);
                }
                return any;
            }
            match self.take_what_came(table, number) {
                Came::Nothing => {}
                Came::Ended => return any,
                Came::Some => {
                    (any, at) = (true, table.loads.open.get(&number).map_or(0, |load| load.done));
                    continue;
                }
            }
            let is_read = table.loads.reading.get(&name).is_some();
            if is_read && !host_only {
                return any;
            }
            let next = match table.find(name) {
                _ if is_read => None,
                None => match self.begin_fetching(table, number, at) {
                    Begun::Yes => Some(Stage::Fetching),
                    Begun::No => None,
                    Begun::Later => return any,
                },
                Some((record, Level::Host)) if is_prefetch => {
                    // It is the last to go. Its bytes are checked when they are fetched.
                    table.map.touch(record);
                    table.loads.open.get_mut(&number).expect("it is open").set_done(at);
                    (any, at, passed) = (true, at + 1, passed + 1);
                    continue;
                }
                Some((record, Level::Host)) => self.begin_check(table, number, record, checks),
                Some((_, Level::Disk)) if host_only => None,
                Some((record, Level::Disk)) => match self.begin_read(table, number, record, name) {
                    Some(true) => Some(Stage::Reading),
                    Some(false) => None,
                    // There is no slot now.
                    None => return any,
                },
            };
            any = true;
            let load = table.loads.open.get_mut(&number).expect("it is open");
            match next {
                Some(stage) => {
                    load.pages[at].stage = stage;
                    load.is_joined = false;
                }
                None => load.shorten(at),
            }
            at += 1;
        }
    }

    fn begin_check(
        &self,
        table: &mut Table,
        number: u64,
        record: u32,
        checks: &mut Vec<Check>,
    ) -> Option<Stage> {
        let found = table.map.get(record)?;
        let page = table.host_page(found)?;
        let (name, slot, checksum) = (found.name(), page.slot.clone(), page.checksum);
        checks.try_reserve(1).ok()?;
        self.carry(table, number, name)?;
        self.touch(table, record);
        checks.push(Check { load: number, name, slot, checksum });
        Some(Stage::Checking)
    }

    pub(super) fn carry(&self, table: &mut Table, number: u64, name: Name) -> Option<()> {
        if table.loads.open.get(&number)?.sequence.is_none() || !self.is_shared(name) {
            return Some(());
        }
        if table.loads.carried.get(&name).is_none() {
            table.loads.carried.try_insert(name, number).ok()?;
        }
        Some(())
    }

    fn begin_read(&self, table: &mut Table, number: u64, record: u32, name: Name) -> Option<bool> {
        table.loads.reading.try_reserve(1).ok()?;
        table.loads.carried.try_reserve(1).ok()?;
        table.map.touch(record);
        let need = table.loads.open.get(&number)?.need;
        let begun = match self.read(table, record, name, need) {
            None if !table.may_get_slot(self.pool_of(name.group), need) => false,
            begun => begun?,
        };
        if begun {
            table.loads.reading.insert(name, number);
            self.carry(table, number, name)?;
        }
        Some(begun)
    }

    /// Bytes were compared with their checksum.
    fn take_check(&self, check: Check, is_good: bool) {
        let table = &mut *self.table();
        let Check { load: number, name, slot, .. } = check;
        if !is_good {
            table.counters.damaged[Level::Host as usize] += 1;
            let record = table.map.find(name).filter(|&at| {
                table.map.get(at).and_then(|record| record.host()) == Some(slot.index())
            });
            if let Some(record) = record {
                table.lose_host(record);
            }
        }
        let Some(load) = table.loads.open.get_mut(&number) else { return };
        if let Some(at) = load.place(name, |stage| matches!(stage, Stage::Checking)) {
            load.pages[at].from = Origin::Host;
            // The disk may still have it.
            load.pages[at].stage = if is_good { Stage::Ready(slot) } else { Stage::Waiting };
        }
    }
}
