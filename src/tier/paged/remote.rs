//! Between host memory and a remote store, which others share.
//!
//! What it has is not known here: a fetch asks for the pages of a prompt beyond those that are
//! known, all at once, and then brings those that are there. What comes is in host memory like what
//! the device stored, and is written to the disk too.
//!
//! Nobody can take a page out of a store that others fill. So a namespace that was cleared while
//! the tiers were there is neither asked for nor given from then on: others would find the pages of
//! before, and so would this cache.
use super::super::Wake;
use super::super::remote::{
    KeySpace, Question, ReadEnd, Remote, RemoteConfig, RemoteEvent, RemoteStats,
};
use super::super::{Key, Target};
use super::disk::Written;
use super::group_plan::GroupPlan;
use super::known::Beyond;
use super::loads::{Landing, Load, Origin, Stage};
use super::map::Name;
use super::offered::Offered;
use super::table::{Stored, Table};
use super::work::{PageTiers, checksum};
use crate::error::Error;
use crate::index::Namespace;
use crate::memory::{Slot, try_box, try_collect};
use crate::store::State;
use crate::token::PageDigest;
use std::any::Any;
use std::time::{Duration, Instant};

/// Pages that wait to be given to the store, at most.
const OFFERS: usize = 1 << 14;
/// Of those, the ones that are given before others are let in.
const GIVEN: usize = 32;

/// A remote store, and what it is asked with.
pub(super) struct Lowest {
    pub(super) remote: Remote,
    /// By pool: pages of another size have other keys.
    keys: Vec<KeySpace>,
    /// The latest clear when it was attached.
    since: u64,
}

/// What a fetch wants of it.
#[derive(Debug)]
pub(super) struct Wanted {
    state: Asking,
    /// The place, counted from the fetch's first page, from which on it was asked.
    pub from: usize,
    /// When it has kept the fetch waiting for too long.
    until: Option<Instant>,
    namespace: Namespace,
    /// The page before the first that is left.
    pub before: Option<PageDigest>,
    clear: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// It is not asked.
    Not,
    /// It is to be asked when it is known for what.
    Later,
    /// It is to be asked.
    Next,
    /// It was asked.
    Open,
    /// It has the pages up to a place.
    Has(usize),
}

/// Whether a page is being brought.
pub(super) enum Begun {
    Yes,
    No,
    /// It is not known yet, or there is no slot.
    Later,
}

/// A slot that is filled.
struct Fetching {
    slot: Slot,
    what: Stored,
}

impl Target for Fetching {
    fn parts(&self) -> usize {
        1
    }

    fn part(&mut self, _: usize) -> &mut [u8] {
        self.slot.get_mut().expect("nobody else has it")
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        to(self.part(0));
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Lowest {
    pub fn new(
        config: RemoteConfig,
        (page_size, page_bytes): (usize, &[usize]),
        since: u64,
        wake: Wake,
    ) -> Result<Self, Error> {
        let key = |&bytes: &usize| KeySpace::new(&config.fingerprint, page_size, bytes);
        let keys = try_collect(page_bytes.iter().map(key))?;
        Ok(Self { remote: Remote::start(config, wake)?, keys, since })
    }

    /// What a page of a pool is found by.
    fn key(&self, pool: usize, name: Name) -> Key {
        self.keys[pool].key(name.group, &name.digest)
    }

    pub fn stats(&self) -> RemoteStats {
        self.remote.stats()
    }

    pub fn close(&self) {
        self.remote.close();
    }

    fn is_open_to(&self, state: &State, namespace: &Namespace) -> bool {
        !state.cleared_since(self.since)(namespace)
    }
}

impl Wanted {
    /// It is not asked yet.
    pub fn ask_later(&mut self) {
        if self.state == Asking::Next {
            self.state = Asking::Later;
        }
    }

    /// It is asked now.
    pub fn ask_next(&mut self) {
        self.state = Asking::Next;
    }

    /// It is not asked any more, and what it has is of no use.
    pub fn forget(&mut self) {
        self.state = Asking::Not;
    }

    /// Whether a question is to be asked or open.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, Asking::Next | Asking::Open)
    }

    /// Whether it was asked and has answered.
    pub fn has_answered(&self) -> bool {
        matches!(self.state, Asking::Has(_))
    }

    /// Its time begins anew.
    pub fn wait(&mut self, time: Duration) {
        self.until = Instant::now().checked_add(time);
    }

    /// Whether its time is over.
    pub fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// It is waited for no longer, and has what lies before a place; none: nothing is asked of it.
    pub fn end_waiting(&mut self, end: Option<usize>) {
        self.until = None;
        self.state = end.map_or(Asking::Not, Asking::Has);
    }
}

impl Load {
    /// Whether something was asked for it that was not answered.
    pub(super) fn is_asking(&self) -> bool {
        let is_coming = |at: usize| matches!(self.pages[at].stage, Stage::Fetching);
        self.remote.state == Asking::Open || self.window().any(is_coming)
    }
}

impl PageTiers {
    /// What a thread of the remote store would do, for a test that has none.
    #[doc(hidden)]
    pub fn work_remote(&self) -> bool {
        self.remote.as_ref().is_some_and(|lowest| lowest.remote.work())
    }

    /// Whether the remote store may have pages of a namespace, and can be asked.
    pub(super) fn may_ask(&self, state: &State, namespace: &Namespace) -> bool {
        self.remote
            .as_ref()
            .is_some_and(|lowest| lowest.is_open_to(state, namespace) && !lowest.remote.is_paused())
    }

    /// What a fetch wants of the remote store: the pages from one on.
    pub(super) fn wanted(
        &self,
        (from, count): (usize, usize),
        &Beyond { namespace, clear, .. }: &Beyond,
        before: Option<PageDigest>,
    ) -> Wanted {
        let state = if from < count { Asking::Next } else { Asking::Not };
        let mut wanted = Wanted { state, from, until: None, namespace, before, clear };
        if let Some(lowest) = self.remote.as_ref().filter(|_| from < count) {
            wanted.wait(lowest.remote.timeout());
        }
        wanted
    }

    /// The pages that a fetch is to ask for now.
    pub(super) fn question(&self, table: &mut Table, number: u64) -> Option<(Question, Vec<Name>)> {
        let load = table.loads.open.get_mut(&number)?;
        if load.remote.state != Asking::Next {
            return None;
        }
        load.remote.state = Asking::Open;
        if let Some(plan) = &mut load.plan {
            let question = plan.question();
            if question.is_err() {
                table.counters.no_memory += 1;
            }
            let question = question.ok().flatten();
            if question.is_none() {
                (load.remote.state, plan.has_news) = (Asking::Has(0), true);
            }
            return question;
        }
        // Others may have brought some of them meanwhile.
        load.remote.from = load.remote.from.max(load.landed);
        let first = load.remote.from - load.landed;
        let names = load.pages.range(first.min(load.pages.len())..).map(|page| page.name);
        match try_collect(names) {
            Ok(names) => Some((Question::Leading, names)),
            Err(_) => {
                table.counters.no_memory += 1;
                self.answered(table, number, 0);
                None
            }
        }
    }

    /// Asks for pages, without a lock: their keys are hashed here.
    pub(super) fn ask(&self, number: u64, (question, names): (Question, Vec<Name>)) {
        let Some(lowest) = &self.remote else { return };
        let keys =
            try_collect(names.iter().map(|&name| lowest.key(self.pool_of(name.group), name)));
        if !keys.is_ok_and(|keys| lowest.remote.ask(question, number, keys).is_ok()) {
            let table = &mut *self.table();
            table.counters.no_memory += 1;
            match question {
                // Answered like the other one it would be asked again, for as long as that lasts.
                Question::Each => self.answered_each(table, number, &[]),
                _ => self.answered(table, number, 0),
            }
        }
    }

    /// The remote store has so many of the pages that a fetch asked for.
    fn answered(&self, table: &mut Table, number: u64, found: usize) {
        let Some(load) = table.loads.open.get_mut(&number) else { return };
        if load.remote.state != Asking::Open || load.is_ready {
            return;
        }
        if let Some(plan) = &mut load.plan {
            plan.found_leading(found);
            // It may have pages of the other groups up to there.
            load.remote.state = Asking::Next;
            return self.wait_longer(table, number);
        }
        let end = load.remote.from + found;
        load.remote.state = Asking::Has(end);
        load.wanted = load.wanted.max(end);
        load.shorten(end.saturating_sub(load.landed));
        if load.sequence.is_some() {
            table.counters.wanted_pages += found as u64;
        }
        self.wait_longer(table, number);
    }

    /// The remote store has some of the pages of groups that a fetch asked for.
    fn answered_each(&self, table: &mut Table, number: u64, there: &[bool]) {
        let Some(load) = table.loads.open.get_mut(&number) else { return };
        let is_open = load.remote.state == Asking::Open && !load.is_ready;
        if let Some(plan) = load.plan.as_mut().filter(|_| is_open) {
            plan.found_each(there);
            load.remote.state = Asking::Has(0);
            self.wait_longer(table, number);
        }
    }

    /// Starts to bring a page that only the remote store can have.
    pub(super) fn begin_fetching(&self, table: &mut Table, number: u64, at: usize) -> Begun {
        let begun = self.try_fetching(table, number, at);
        // Nobody waits for memory: the hit is shorter.
        begun.unwrap_or(Begun::No)
    }

    fn try_fetching(&self, table: &mut Table, number: u64, at: usize) -> Option<Begun> {
        let (Some(lowest), Some(load)) = (&self.remote, table.loads.open.get(&number)) else {
            return Some(Begun::No);
        };
        let (name, wanted) = (load.pages[at].name, &load.remote);
        let page = &load.pages[at];
        let in_plan = |plan: &GroupPlan| plan.has_remote(usize::from(name.group), page.place);
        match wanted.state {
            Asking::Has(_) if load.plan.as_deref().is_some_and(in_plan) => {}
            _ if load.plan.is_some() => return Some(Begun::No),
            Asking::Not => return Some(Begun::No),
            Asking::Has(end) if load.landed + at >= end => return Some(Begun::No),
            // Known pages that are gone are not asked for.
            _ if load.landed + at < wanted.from => return Some(Begun::No),
            // It was cut short while it was hashed: nobody asks any more.
            Asking::Later if load.rest.is_none() => return Some(Begun::No),
            Asking::Later | Asking::Next | Asking::Open => return Some(Begun::Later),
            Asking::Has(_) => {}
        }
        if table.loads.fetching.get(&name).is_some() {
            return Some(Begun::Later);
        }
        let parent = match (&load.plan, at.checked_sub(1)) {
            (Some(_), _) if name.group > 0 => None,
            (Some(plan), _) => plan.digest_before(page.place).or(wanted.before),
            (None, Some(before)) => Some(load.pages[before].name.digest),
            (None, None) => wanted.before,
        };
        let what = Stored { name, parent, namespace: wanted.namespace, clear: wanted.clear };
        table.loads.fetching.try_reserve(1).ok()?;
        table.loads.carried.try_reserve(1).ok()?;
        let need = load.need;
        let pool = self.pool_of(name.group);
        let Some(slot) = self.take_slot(table, pool, need) else {
            if !table.may_get_slot(pool, need) {
                return Some(Begun::No);
            }
            // That is not the store's fault.
            self.wait_longer(table, number);
            return Some(Begun::Later);
        };
        let target = try_box(Fetching { slot, what }).ok()?;
        lowest.remote.get(lowest.key(pool, name), target).ok()?;
        table.loads.fetching.insert(name, number);
        // What came before may have taken any time.
        self.wait_longer(table, number);
        self.carry(table, number, name)?;
        Some(Begun::Yes)
    }

    /// Takes in what the remote store has answered. Whether it had.
    pub(super) fn take_remote_events(&self, events: &mut Vec<RemoteEvent>) -> bool {
        let Some(lowest) = self.remote.as_ref().filter(|lowest| lowest.remote.has_events()) else {
            return false;
        };
        lowest.remote.poll(events);
        for event in events.drain(..) {
            match event {
                RemoteEvent::Asked { ticket, found } => {
                    self.answered(&mut self.table(), ticket, found);
                }
                RemoteEvent::AskedEach { ticket, there } => {
                    self.answered_each(&mut self.table(), ticket, &there);
                }
                RemoteEvent::Read { target, end } => {
                    if let Ok(read) = target.into_any().downcast::<Fetching>() {
                        self.take_fetched(*read, end);
                    }
                }
            }
        }
        true
    }

    /// A page came, and is in host memory now; or it didn't.
    fn take_fetched(&self, read: Fetching, end: ReadEnd) {
        let Fetching { slot, what } = read;
        let is_here =
            end == ReadEnd::Good && !self.shared.read().cleared_since(what.clear)(&what.namespace);
        // Outside the lock: it takes a while.
        let sum = is_here.then(|| checksum(slot.get()));
        let table = &mut *self.table();
        if let Some(&number) = table.loads.fetching.get(&what.name) {
            self.wait_longer(table, number);
        }
        let landing = match sum {
            None => Landing::Gone,
            Some(sum) => {
                let kept = slot.clone();
                if table.add_host(&what, slot, sum) {
                    self.write(table, what.name);
                }
                Landing::Here(kept)
            }
        };
        table.loads.land_read(what.name, Origin::Remote, landing);
    }

    /// Has the remote store given a page that came to host memory.
    pub(super) fn offer(&self, table: &mut Table, what: &Stored) {
        let Some(lowest) = &self.remote else { return };
        if !lowest.is_open_to(&self.shared.read(), &what.namespace) {
            return;
        }
        if table.offers.len() < OFFERS && table.offers.try_reserve(1).is_ok() {
            table.offers.push_back(what.name);
            table.offered += 1;
            self.put_offered(table);
        } else {
            table.counters.not_offered += 1;
        }
    }

    /// Gives the remote store some of what waits for that, as much as it has room for. Whether
    /// there may be room for more.
    pub(super) fn put_offered(&self, table: &mut Table) -> bool {
        let Some(lowest) = &self.remote else { return false };
        if table.offers.is_empty() || lowest.remote.is_paused() {
            return false;
        }
        for _ in 0..GIVEN {
            let Some(&name) = table.offers.front() else { return false };
            if !lowest.remote.has_room(self.pools[self.pool_of(name.group)].page_bytes) {
                return false;
            }
            table.offers.pop_front();
            if !self.put(lowest, table, name) {
                table.counters.not_offered += 1;
            }
        }
        true
    }

    /// False when the page has left host memory, or was cleared.
    fn put(&self, lowest: &Lowest, table: &Table, name: Name) -> bool {
        let Some(record) = table.map.find(name).and_then(|at| table.map.get(at)) else {
            return false;
        };
        let Some(page) = table.host_page(record) else { return false };
        let namespace = table.map.spaces.name(record.space());
        if !lowest.is_open_to(&self.shared.read(), namespace) {
            return false;
        }
        let page = Written { slot: page.slot.clone(), checksum: page.checksum };
        let (shared, namespace) = (self.shared.clone(), *namespace);
        let source = try_box(Offered { page, shared, namespace, since: lowest.since });
        source.is_ok_and(|source| {
            lowest.remote.put(lowest.key(self.pool_of(name.group), name), source).unwrap_or(false)
        })
    }
}
