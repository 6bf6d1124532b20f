//! All that is known of the tiers, behind one lock.
use super::contents::Unknown;
use super::host::Need;
use super::loads::Loads;
use super::map::{Level, Map, Name, NoRecord, Record};
use super::pages::{Page, Pages};
use super::stats::Counters;
use super::stores::Stores;
use crate::error::{Error, text};
use crate::group::GROUP_LIMIT;
use crate::ids::SequenceId;
use crate::index::Namespace;
use crate::memory::{OrderedMap, OutOfMemory, Slot, TryGrow, try_collect};
use crate::store::PoolPage;
use crate::token::PageDigest;
use std::collections::VecDeque;

/// A page in host memory.
#[derive(Debug)]
pub(super) struct HostPage {
    pub slot: Slot,
    pub checksum: u64,
    pub record: u32,
}

/// A copy that the engine carries out.
#[derive(Debug)]
pub(super) enum Job {
    /// From host memory to a page of a sequence, which is its load's page of a place.
    Load { sequence: SequenceId, place: usize, page: PoolPage, slot: Slot },
    /// From a page of the cache to host memory.
    Store { page: PoolPage, slot: Slot, what: Stored },
}

/// What a page holds that is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub name: Name,
    pub parent: Option<PageDigest>,
    pub namespace: Namespace,
    /// The latest clear when the page was seen to hold it.
    pub clear: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    /// They are being detached: no copy is given out any more, and no fetch begins.
    pub is_closing: bool,
    pub map: Map,
    /// By pool and slot.
    pub host: Vec<Vec<Option<HostPage>>>,
    pub pages: Pages,
    /// The record up to which the journal was followed; none when what is known is not exact.
    pub applied: Option<u64>,
    pub unknown: Unknown,
    /// What this and all clears before it concern is gone.
    pub clear: u64,
    /// Of what was cleared something was on the disk, and is not gone for sure.
    pub must_remove: bool,
    /// The clear up to which all is gone from the disk for sure.
    pub removed: Option<u64>,
    /// The disk's mark behind what the last clear removed.
    pub removals: Option<u64>,
    /// Failures of the disk that the last flush has told of.
    pub failures_told: u64,
    pub stores: Stores,
    pub loads: Loads,
    pub jobs: OrderedMap<u64, Job>,
    /// Pages that are being written, by the numbers of their records.
    pub writes: OrderedMap<u64, Name>,
    pub next_disk: u64,
    /// Pages that the disk had no room for, with their numbers, which go up.
    pub retries: VecDeque<(u64, Name)>,
    pub next_retry: u64,
    /// Commits of the disk when they were last tried.
    pub tried_at: u64,
    /// Pages that the remote store is to be given.
    pub offers: VecDeque<Name>,
    /// How many ever were.
    pub offered: u64,
    pub counters: Counters,
    /// The engine was told that there is something to poll for.
    pub is_announced: bool,
}

impl Table {
    /// Room for a fetch, and for what is told of all that are open: that it has come, and that it
    /// has ended.
    pub fn reserve_fetch(&mut self) -> Result<(), OutOfMemory> {
        self.loads.open.try_reserve(1)?;
        self.loads.numbers.try_reserve(1)?;
        let open = self.loads.numbers.len() + 1;
        Ok(self.stores.finished.try_reserve(2 * open)?)
    }

    /// Whether the engine has copies that go on, or fetches are open.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty() || !self.loads.numbers.is_empty()
    }

    /// For so many slots and pages of the device of each pool.
    pub fn new(
        slots: &[usize],
        disk_pages: usize,
        (device_pages, pools): (&[usize], [u8; GROUP_LIMIT]),
    ) -> Result<Self, Error> {
        let pages = slots.iter().sum::<usize>().saturating_add(disk_pages);
        let map = Map::new(pages, pools).map_err(|why| match why {
            NoRecord::Full => Error::argument(text!(
                "config.host_bytes and config.disk_bytes are room for {pages} pages"
            )),
            NoRecord::OutOfMemory => Error::memory("what is known of pages below the device"),
        })?;
        let mut host = Vec::new();
        for &slots in slots {
            host.try_push(try_collect((0..slots).map(|_| None))?)?;
        }
        Ok(Self {
            map,
            host,
            pages: Pages::new(device_pages)?,
            applied: None,
            unknown: Unknown::default(),
            clear: 0,
            must_remove: false,
            removed: None,
            removals: None,
            failures_told: 0,
            stores: Stores::default(),
            loads: Loads::default(),
            jobs: OrderedMap::default(),
            writes: OrderedMap::default(),
            next_disk: 1,
            is_closing: false,
            retries: VecDeque::new(),
            next_retry: 0,
            tried_at: 0,
            offers: VecDeque::new(),
            offered: 0,
            counters: Counters::default(),
            is_announced: false,
        })
    }

    /// Whether what is known of a page is what it has held since a record.
    pub fn knows(&self, since: u64) -> bool {
        self.applied.is_some_and(|applied| since <= applied)
    }

    /// Heap memory beside the slots.
    pub fn bytes(&self) -> usize {
        let host: usize = self.host.iter().map(Vec::capacity).sum();
        let host = host * size_of::<Option<HostPage>>();
        let queue = self.stores.queue.capacity() * size_of::<u32>();
        let jobs = self.jobs.bytes() + self.writes.bytes() + queue;
        self.map.bytes() + host + self.pages.bytes() + self.unknown.bytes() + jobs
    }

    /// Where a page is: its slot of host memory, or else what the disk has of it.
    pub fn find(&self, name: Name) -> Option<(u32, Level)> {
        let at = self.map.find(name)?;
        let record = self.map.get(at)?;
        if record.host().is_some() {
            return Some((at, Level::Host));
        }
        record.committed().map(|_| (at, Level::Disk))
    }

    /// Puts a page into host memory. False when it is there already, or can't be.
    pub fn add_host(&mut self, what: &Stored, slot: Slot, checksum: u64) -> bool {
        let added = self.try_add_host(what, slot, checksum);
        if added == Err(OutOfMemory) {
            self.counters.no_memory += 1;
        }
        added == Ok(true)
    }

    fn try_add_host(
        &mut self,
        what: &Stored,
        slot: Slot,
        checksum: u64,
    ) -> Result<bool, OutOfMemory> {
        let made = self.map.make(what.name, what.parent, &what.namespace);
        let record = made.map_err(|_| OutOfMemory)?;
        if self.map.get(record).is_some_and(|record| record.host().is_some()) {
            return Ok(false);
        }
        let (index, pool) = (slot.index(), self.map.pool_of(what.name.group));
        if let Err(error) = self.map.set_host(record, index) {
            self.map.prune(record);
            return Err(error);
        }
        self.map.touch(record);
        self.host[pool][index as usize] = Some(HostPage { slot, checksum, record });
        Ok(true)
    }

    /// Puts a page of the disk into host memory too, if it isn't there.
    pub fn put_host(&mut self, record: u32, slot: Slot, checksum: u64) {
        let is_missing = |found: &&Record| found.host().is_none();
        let Some(name) = self.map.get(record).filter(is_missing).map(Record::name) else { return };
        let (index, pool) = (slot.index(), self.map.pool_of(name.group));
        if self.map.set_host(record, index).is_ok() {
            self.host[pool][index as usize] = Some(HostPage { slot, checksum, record });
        }
    }

    /// Takes a page out of host memory.
    pub fn drop_host(&mut self, record: u32) {
        let Some(found) = self.map.get(record) else { return };
        if let Some(slot) = found.host() {
            self.host[self.map.pool_of(found.name().group)][slot as usize] = None;
            self.map.leave_host(record);
        }
    }

    /// The same of one that may wait to be written: that is not tried again then, and whoever
    /// flushes is told.
    pub fn lose_host(&mut self, record: u32) {
        let is_unwritten = self.map.get(record).is_some_and(|record| record.disk().is_none());
        self.counters.disk_failed += u64::from(is_unwritten && !self.retries.is_empty());
        self.drop_host(record);
    }

    /// What host memory has of a record.
    pub fn host_page(&self, record: &Record) -> Option<&HostPage> {
        let pool = self.map.pool_of(record.name().group);
        self.host[pool][record.host()? as usize].as_ref()
    }

    /// Whether there will be a slot for a page, once what is in use now no longer is.
    pub fn may_get_slot(&self, pool: usize, need: Need) -> bool {
        let Need::Prefetch { since } = need else { return true };
        let oldest = self.map.next_in_host(pool).next();
        oldest.is_none_or(|at| self.map.get(at).is_none_or(|record| record.used() < since))
    }

    /// What a page of the device holds now.
    pub fn set_page(&mut self, page: u32, what: Page) {
        self.map.spaces.hold(what.space);
        self.forget_page(page);
        self.pages.set(page, what);
        self.unknown.came(page);
    }

    /// Nothing is known of a page of the device.
    pub fn forget_page(&mut self, page: u32) {
        if let Some(what) = self.pages.get(page) {
            self.pages.forget(page);
            self.map.spaces.leave(what.space);
        }
    }

    /// Checks that each namespace is held by the records and pages that there are.
    pub fn check_spaces(&self) {
        let mut held = vec![0; self.map.spaces.end() as usize];
        let records = (0..self.map.end()).filter_map(|at| self.map.get(at));
        let pages = (0..self.pages.end()).filter_map(|page| self.pages.get(page));
        let spaces = records.map(Record::space).chain(pages.map(|page| page.space));
        spaces.for_each(|space| held[space as usize] += 1);
        self.map.spaces.check(&held);
    }
}
