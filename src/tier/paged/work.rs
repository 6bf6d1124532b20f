//! The tiers of a cache, and the thread that does for them what takes time.
use super::super::remote::RemoteEvent;
use super::super::{Event, FoundRecords, LowerStore, StoreStats, Wake};
use super::config::{HostMemory, PagePolicy, TierConfig, TierPool};
use super::remote::Lowest;
use super::stats::{PageTierStats, TierTotals};
use super::table::{Job, Table};
use crate::error::{Error, text};
use crate::events::Reader;
use crate::group::{GROUP_LIMIT, Groups};
use crate::memory::{Arc, Slots, TryGrow, try_collect, try_std_arc};
use crate::store::{Identity, Shared};
use parking_lot::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, panicking};
use std::time::Duration;

/// Rounds of its work that are done before there is a thread, at most.
const FIRST_ROUNDS: usize = 1 << 14;
/// How long the thread sleeps at most.
const NAP: Duration = Duration::from_millis(20);

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// What wakes the thread.
#[derive(Default)]
pub(super) struct Signal {
    is_set: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    /// Wakes it, unless it was told already.
    pub fn notify(&self) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            // It is not between its look and its sleep then.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.condition.notify_one();
        }
    }

    fn wait(&self, time: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_set.swap(false, Ordering::AcqRel) {
            let _ = self.condition.wait_timeout(guard, time);
            self.is_set.store(false, Ordering::Release);
        }
    }
}

/// What the thread reads with.
struct Taking {
    reader: Reader,
    disk: Vec<Event>,
    remote: Vec<RemoteEvent>,
}

/// The pages of a pool.
pub(super) struct Pool {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Places of host memory.
    pub slots: Arc<Slots>,
}

impl Pool {
    fn new(pool: TierPool, at: usize) -> Result<Self, Error> {
        let TierPool { page_bytes, host } = pool;
        if page_bytes == 0 {
            return Err(Error::argument(text!("config: page_bytes of pool {at} is 0")));
        }
        let slots = match host {
            // The engine copies a page to where a slot begins.
            HostMemory::Given(slots) if slots.slot_bytes() != page_bytes => {
                let bytes = slots.slot_bytes();
                return Err(Error::argument(text!(
                    "config: the slots of pool {at} have {bytes} bytes, a page {page_bytes}"
                )));
            }
            HostMemory::Given(slots) => slots,
            HostMemory::Own(bytes) => {
                let count = bytes / page_bytes as u64;
                let count = u32::try_from(count).ok().filter(|&count| count > 0);
                let count = count.ok_or_else(|| {
                    Error::argument(text!(
                        "config: host_bytes {bytes} of pool {at} is room for no page of \
                         {page_bytes} bytes, or for 2^32"
                    ))
                })?;
                Slots::new(count, page_bytes).map_err(|_| Error::memory("host memory"))?
            }
        };
        Ok(Self { page_bytes, slots })
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> u64 {
        self.slots.count() as u64 * self.page_bytes as u64
    }

    /// Of those, the ones that nobody has.
    fn free_bytes(&self) -> u64 {
        self.slots.free() as u64 * self.page_bytes as u64
    }
}

/// What is known of the tiers. The thread that does much with it lets others in with `bump`: were
/// it let go of and taken again, who waits would not get it in between.
pub(super) type TableGuard<'a> = MutexGuard<'a, Table>;

/// The tiers of one cache.
pub struct PageTiers {
    pub(super) shared: Arc<Shared>,
    pub(super) groups: Groups,
    pub(super) pools: Vec<Pool>,
    pub(super) disk: Option<Box<dyn LowerStore>>,
    pub(super) remote: Option<Lowest>,
    pub(super) policy: PagePolicy,
    pub(super) agrees: bool,
    pub(super) page_size: usize,
    /// Pages of each pool.
    pub(super) device_pages: Vec<usize>,
    pub(super) wake: Option<Wake>,
    pub(super) signal: std::sync::Arc<Signal>,
    table: parking_lot::Mutex<Table>,
    /// What the thread reads with; a test's, where there is no thread.
    reader: Mutex<Taking>,
    pub(super) is_closed: AtomicBool,
    /// Fetches that were asked for: of some of them is said what they use.
    pub(super) asked: AtomicU32,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// The last to go.
    ended: Ended,
}

/// Says that tiers are gone: their memory, their threads and their files.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// An attachment that is not at its end. One that is refused, or left, leaves nothing below the
/// cache: the engine has its memory, its eventfd and its functions back.
struct Begun<'a> {
    shared: &'a Shared,
    /// Until it is at its end.
    tiers: Option<std::sync::Arc<PageTiers>>,
}

impl Begun<'_> {
    fn tiers(&self) -> &std::sync::Arc<PageTiers> {
        self.tiers.as_ref().expect("it is not at its end")
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(tiers) = self.tiers.take() else { return };
        if panicking() {
            // As where the thread does the same; what is half done is not touched then.
            self.shared.poison();
        }
        tiers.take_off();
    }
}

impl std::fmt::Debug for PageTiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageTiers").field("groups", &self.groups).finish_non_exhaustive()
    }
}

impl PageTiers {
    /// Wakes the thread of tiers that are still to be made: for the disk's events.
    pub fn disk_wake() -> (DiskWake, Wake) {
        let signal = std::sync::Arc::new(Signal::default());
        let other = signal.clone();
        (DiskWake(signal), Box::new(move || other.notify()))
    }

    /// Puts tiers below a cache, with a thread.
    pub fn attach(
        shared: &Arc<Shared>,
        config: TierConfig,
        wake: DiskWake,
    ) -> Result<std::sync::Arc<Self>, Error> {
        let tiers = Self::attach_without_thread(shared, config, wake)?;
        let mut begun = Begun { shared, tiers: Some(tiers) };
        // What the cache has is known from the beginning: the first fetch may come at once.
        let mut rounds = 0;
        while begun.tiers().table().applied.is_none() && rounds < FIRST_ROUNDS {
            rounds += 1;
            begun.tiers().work();
        }
        let own = begun.tiers().clone();
        let thread = std::thread::Builder::new().name("rkv-tiers".into()).spawn(move || own.run());
        match thread {
            Ok(thread) => {
                let tiers = begun.tiers.take().expect("it is not at its end");
                *tiers.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Ok(tiers)
            }
            Err(_) => Err(Error::memory("a thread")),
        }
    }

    /// Refuses a cache that can have no tiers, or has not so many pools.
    pub fn check_attachable(shared: &Shared, pools: usize) -> Result<(), Error> {
        let state = shared.read();
        state.check_own_pool()?;
        // Without a journal nobody knows what pages hold.
        state.journal_pages()?;
        let has = state.pool_pages()?.len();
        if pools == has {
            return Ok(());
        }
        Err(Error::argument(text!(
            "config.pool_count: the page table has {has} pools, the config tells of {pools}"
        )))
    }

    /// The same for a test, which does with `work` what the thread would.
    #[doc(hidden)]
    pub fn attach_without_thread(
        shared: &Arc<Shared>,
        config: TierConfig,
        wake: DiskWake,
    ) -> Result<std::sync::Arc<Self>, Error> {
        Self::check_attachable(shared, config.pools.len())?;
        let (groups, page_size, device_pages, clear) = {
            let state = shared.read();
            let page_size = state.page_table_stats().page_size;
            (state.groups(), page_size, state.pool_pages()?, state.latest_clear())
        };
        shared.turn().reserve_copied()?;
        let mut pools = Vec::new();
        for (at, pool) in config.pools.into_iter().enumerate() {
            pools.try_push(Pool::new(pool, at)?)?;
        }
        let (disk, records) = match config.disk {
            Some((disk, records)) => (Some(disk), records),
            None => (None, FoundRecords::default()),
        };
        let remote = match config.remote {
            Some(remote) => {
                let signal = wake.0.clone();
                let bytes = pools.iter().map(|pool| pool.page_bytes);
                let page = (page_size, &try_collect(bytes)?[..]);
                Some(Lowest::new(remote, page, clear, Box::new(move || signal.notify()))?)
            }
            None => None,
        };
        let mut tiers = Self {
            shared: shared.clone(),
            groups,
            pools,
            disk,
            remote,
            policy: config.policy,
            agrees: config.agrees,
            page_size,
            device_pages,
            wake: config.wake,
            signal: wake.0,
            table: parking_lot::Mutex::new(Table::new(&[], 0, (&[], [0; GROUP_LIMIT]))?),
            reader: Mutex::new(Taking {
                reader: Reader::new(page_size)?,
                disk: Vec::new(),
                remote: Vec::new(),
            }),
            is_closed: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            thread: Mutex::new(None),
            ended: Ended(Arc::new(AtomicBool::new(false))?),
        };
        let capacity = tiers.disk.as_ref().map_or(0, |disk| disk.stats().capacity);
        let disk_pages = capacity / tiers.least_disk_cost();
        let disk_pages = usize::try_from(disk_pages).unwrap_or(usize::MAX);
        let slots = try_collect(tiers.pools.iter().map(|pool| pool.slots.count()))?;
        let mut pool_of = [0; GROUP_LIMIT];
        for (into, group) in pool_of.iter_mut().zip(groups.list()) {
            *into = group.pool as u8;
        }
        let device = (&tiers.device_pages[..], pool_of);
        let mut table = Table::new(&slots, disk_pages, device)?;
        // What was cleared while the directory was not here is in it still: it is not found before
        // the first round has dropped it.
        let directory = tiers.directory();
        table.clear = shared.lower_ended_at(directory);
        let begun_at = table.clear;
        tiers.find_again(&mut table, &records)?;
        tiers.table = parking_lot::Mutex::new(table);
        let tiers = try_std_arc(tiers)?;
        shared.attach_lower(tiers.clone())?;
        if tiers.disk.is_some() {
            // A directory that carries out none of those that come now begins there again.
            shared.end_lower_at(directory, begun_at);
        }
        Ok(tiers)
    }

    /// What the directory is told from others by.
    pub(super) fn directory(&self) -> Option<Identity> {
        self.disk.as_ref().and_then(|disk| disk.identity())
    }

    pub(super) fn table(&self) -> TableGuard<'_> {
        self.table.lock()
    }

    /// The same, unless somebody has it.
    pub(super) fn try_table(&self) -> Option<TableGuard<'_>> {
        self.table.try_lock()
    }

    /// The pool of a group.
    pub(super) fn pool_of(&self, group: u8) -> usize {
        self.groups.list()[usize::from(group)].pool as usize
    }

    fn run(&self) {
        while !self.is_closed() && !self.shared.is_poisoned() {
            let work = || self.work();
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(true) => {}
                Ok(false) => self.signal.wait(NAP),
                Err(_) => self.shared.poison(),
            }
        }
        // Who sleeps until there is something to poll for would sleep for ever: the poll says why.
        if let Some(wake) = self.wake.as_ref().filter(|_| self.shared.is_poisoned()) {
            wake();
        }
    }

    /// Does a part of what is to be done. Whether there is more right now.
    pub fn work(&self) -> bool {
        let taking = &mut *self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let Taking { reader, disk, remote } = taking;
        let mut more = self.take_disk_events(disk);
        more |= self.take_remote_events(remote);
        more |= self.table().loads.let_some_go();
        more |= self.hash_rests();
        more |= self.plan_anew();
        more |= self.advance_loads();
        more |= self.take_arrivals();
        // Without memory it is tried again, after a while.
        let followed = self.follow(reader);
        more |= followed == Ok(true);
        let cleared = self.take_clears();
        more |= cleared == Ok(true);
        self.note_cleared();
        self.count_uses();
        let queued = self.queue_cold();
        let failed = [followed.is_err(), cleared.is_err(), queued.is_err()];
        {
            let mut table = self.table();
            self.retry_writes(&mut table);
            more |= self.put_offered(&mut table);
            table.counters.no_memory += failed.iter().filter(|&&failed| failed).count() as u64;
        }
        self.announce();
        more
    }

    /// Whether they are detached: nobody works for them any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Becomes true when whoever had the tiers last has let go of them, and all of them is gone.
    pub fn ended(&self) -> Arc<AtomicBool> {
        self.ended.0.clone()
    }

    /// Takes them off their cache, and returns when all of them is gone: other calls have them for
    /// moments, and the last one ends them.
    pub fn take_off(self: std::sync::Arc<Self>) {
        let (shared, ended) = (self.shared.clone(), self.ended());
        drop(self);
        shared.detach_lower();
        while !ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Whether the calling thread is one of the remote store's: a call of the store's that goes on.
    pub fn is_own_thread(&self) -> bool {
        self.remote.as_ref().is_some_and(|lowest| lowest.remote.is_own_thread())
    }

    /// Whether the engine has copies that go on, or fetches are open.
    pub fn is_busy(&self) -> bool {
        self.table().is_busy()
    }

    /// Gives up pages until no more bytes than these are in use; they may grow again.
    pub fn shrink_to(&self, host_bytes: u64, disk_bytes: u64) {
        self.shrink_host(host_bytes);
        self.shrink_disk(disk_bytes);
    }

    /// What is below the device.
    pub fn stats(&self) -> PageTierStats {
        let store = self.disk.as_ref().map_or(StoreStats::default(), |disk| disk.stats());
        let copied_pages = self.shared.read().copied_pages();
        let table = self.table();
        let counters = table.counters;
        let [host_pages, disk_pages] = Self::counts(&table);
        let all: u64 = self.pools.iter().map(Pool::host_bytes).sum();
        let free: u64 = self.pools.iter().map(Pool::free_bytes).sum();
        PageTierStats {
            host: TierTotals {
                pages: host_pages,
                bytes: all - free,
                limit: all,
                stored: counters.stored,
                fetched: counters.fetched[0],
                evicted: counters.evicted[0],
                damaged: counters.damaged[0],
                failed: counters.failed_stores + counters.failed_loads,
            },
            disk: TierTotals {
                pages: disk_pages,
                bytes: store.bytes,
                limit: store.capacity,
                stored: store.writes,
                fetched: counters.fetched[1],
                evicted: counters.evicted[1] + store.trimmed,
                damaged: counters.damaged[1] + store.damaged,
                failed: counters.disk_failed,
            },
            page_bytes: self.pools[0].page_bytes,
            free_slots: self.pools.iter().map(|pool| pool.slots.free()).sum(),
            open_fetches: table.loads.numbers.len(),
            open_prefetches: table.loads.open.len() - table.loads.numbers.len(),
            open_copies: table.jobs.len(),
            waiting: table.stores.queue.len(),
            copied_pages,
            index_bytes: table.bytes()
                + self.pools.iter().map(|pool| pool.slots.bytes()).sum::<usize>(),
            counters,
            store,
            remote: self.remote.as_ref().map(Lowest::stats).unwrap_or_default(),
            offered: table.offers.len(),
            applied: table.applied.unwrap_or(0),
        }
    }

    /// Checks every count, and that each slot has the owners that are known. For tests; nothing is
    /// being written.
    #[doc(hidden)]
    pub fn check(&self) {
        let table = self.table();
        table.map.check();
        table.check_spaces();
        for (pool, host) in table.host.iter().enumerate() {
            let held = host.iter().flatten().count();
            assert_eq!(held, table.map.count_of(super::map::Level::Host, pool));
            for (slot, page) in host.iter().enumerate() {
                if let Some(page) = page {
                    assert_eq!(page.slot.index() as usize, slot);
                    let record = table.map.get(page.record).expect("it has a record");
                    assert_eq!(record.host(), Some(slot as u32));
                    assert_eq!(table.map.pool_of(record.name().group), pool);
                }
            }
        }
        let stores = table.jobs.iter().filter(|(_, job)| matches!(job, Job::Store { .. })).count();
        assert_eq!(stores, table.stores.open);
        assert_eq!(table.jobs.len(), self.shared.read().copied_pages());
        let fetches = table.loads.open.iter().filter(|(_, load)| load.sequence.is_some()).count();
        assert_eq!(fetches, table.loads.numbers.len());
    }
}

/// What wakes the thread of tiers that are still to be made.
pub struct DiskWake(std::sync::Arc<Signal>);
