//! The tiers of a cache, and the thread that does for them what takes time.
use super::super::remote::RemoteEvent;
use super::super::{Event, LowerStore, StoreStats, Wake};
use super::config::{HostMemory, PagePolicy, TierConfig};
use super::remote::Lowest;
use super::stats::{PageTierStats, TierTotals};
use super::stores::Stores;
use super::table::{Job, Table};
use crate::error::{Error, text};
use crate::events::Reader;
use crate::memory::{Arc, Slots};
use crate::store::{Lower, Shared};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// The tiers of one cache.
pub struct PageTiers {
    pub(super) shared: Arc<Shared>,
    pub(super) slots: Arc<Slots>,
    pub(super) disk: Option<Box<dyn LowerStore>>,
    pub(super) remote: Option<Lowest>,
    pub(super) policy: PagePolicy,
    pub(super) agrees: bool,
    pub(super) page_bytes: usize,
    pub(super) page_size: usize,
    pub(super) device_pages: usize,
    pub(super) wake: Option<Wake>,
    pub(super) signal: std::sync::Arc<Signal>,
    table: Mutex<Table>,
    /// What the thread reads with; a test's, where there is no thread.
    reader: Mutex<Taking>,
    is_closed: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for PageTiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageTiers").field("page_bytes", &self.page_bytes).finish_non_exhaustive()
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
        // What the cache has is known from the beginning: the first fetch may come at once.
        let mut rounds = 0;
        while tiers.table().applied.is_none() && rounds < FIRST_ROUNDS {
            rounds += 1;
            tiers.work();
        }
        let own = tiers.clone();
        let thread = std::thread::Builder::new().name("rkv-tiers".into()).spawn(move || own.run());
        match thread {
            Ok(thread) => {
                *tiers.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Ok(tiers)
            }
            Err(_) => {
                shared.detach_lower();
                Err(Error::memory("a thread"))
            }
        }
    }

    /// The same for a test, which does with `work` what the thread would.
    #[doc(hidden)]
    pub fn attach_without_thread(
        shared: &Arc<Shared>,
        config: TierConfig,
        wake: DiskWake,
    ) -> Result<std::sync::Arc<Self>, Error> {
        let (page_size, device_pages, clear) = {
            let mut state = shared.write();
            if state.has_groups() {
                return Err(Error::unsupported(
                    "tiers below a page table with several groups of layers",
                ));
            }
            // Without a journal nobody knows what pages hold.
            state.journal_pages()?;
            state.reserve_copied()?;
            let stats = state.page_table_stats();
            (stats.page_size, stats.total + 1, state.latest_clear())
        };
        if config.page_bytes == 0 {
            return Err(Error::argument("config.page_bytes is 0"));
        }
        let slots = match config.host {
            HostMemory::Given(slots) => slots,
            HostMemory::Own(bytes) => {
                let count = bytes / config.page_bytes as u64;
                let count = u32::try_from(count).ok().filter(|&count| count > 0);
                let count = count.ok_or_else(|| {
                    Error::argument(text!(
                        "config.host_bytes {bytes} is room for no page of {} bytes, or for 2^32",
                        config.page_bytes
                    ))
                })?;
                Slots::new(count, config.page_bytes).map_err(|_| Error::memory("host memory"))?
            }
        };
        let (disk, records) = match config.disk {
            Some((disk, records)) => (Some(disk), records),
            None => (None, Vec::new()),
        };
        let remote = match config.remote {
            Some(remote) => {
                let signal = wake.0.clone();
                let page = (page_size, config.page_bytes);
                Some(Lowest::new(remote, page, clear, Box::new(move || signal.notify()))?)
            }
            None => None,
        };
        let mut tiers = Self {
            shared: shared.clone(),
            slots,
            disk,
            remote,
            policy: config.policy,
            agrees: config.agrees,
            page_bytes: config.page_bytes,
            page_size,
            device_pages,
            wake: config.wake,
            signal: wake.0,
            table: Mutex::new(Table::new(0, 0, device_pages)?),
            reader: Mutex::new(Taking {
                reader: Reader::new(page_size)?,
                disk: Vec::new(),
                remote: Vec::new(),
            }),
            is_closed: AtomicBool::new(false),
            thread: Mutex::new(None),
        };
        let capacity = tiers.disk.as_ref().map_or(0, |disk| disk.stats().capacity);
        let disk_pages = usize::try_from(capacity / tiers.disk_cost()).unwrap_or(usize::MAX);
        let mut table = Table::new(tiers.slots.count(), disk_pages, device_pages)?;
        table.clear = shared.read().latest_clear();
        tiers.find_again(&mut table, &records)?;
        tiers.table = Mutex::new(table);
        let tiers = std::sync::Arc::new(tiers);
        shared.attach_lower(tiers.clone())?;
        Ok(tiers)
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            let work = || self.work();
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(true) => {}
                Ok(false) => self.signal.wait(NAP),
                Err(_) => {
                    self.shared.poison();
                    return;
                }
            }
        }
    }

    /// Does a part of what is to be done. Whether there is more right now.
    pub fn work(&self) -> bool {
        let taking = &mut *self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let Taking { reader, disk, remote } = taking;
        let mut more = self.take_disk_events(disk);
        more |= self.take_remote_events(remote);
        more |= self.advance_loads();
        more |= self.take_arrivals();
        // Without memory it is tried again, after a while.
        let followed = self.follow(reader);
        more |= followed == Ok(true);
        let cleared = self.take_clears();
        more |= cleared == Ok(true);
        self.count_uses();
        let queued = self.queue_cold();
        let failed = [followed.is_err(), cleared.is_err(), queued.is_err()];
        {
            let table = &mut *self.table();
            self.retry_writes(table);
            self.put_offered(table);
            table.counters.no_memory += failed.iter().filter(|&&failed| failed).count() as u64;
            let _ = table.sweep_spaces();
        }
        self.announce();
        more
    }

    /// Waits until what was stored is committed to the disk, or the time is over.
    pub fn flush(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout.min(Duration::from_secs(1 << 20));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_done = {
                let table = self.table();
                let waits = table.stores.arrived.len() + table.retries.len();
                waits == 0 && table.writes.is_empty() && self.is_offered(&table)
            };
            if is_done {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.signal.notify();
            if let Some(disk) = &self.disk {
                disk.flush(left.min(Duration::from_millis(10)));
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Whether the engine has copies that go on, or fetches are open.
    pub fn is_busy(&self) -> bool {
        let table = self.table();
        !table.jobs.is_empty() || !table.loads.numbers.is_empty()
    }

    /// Gives up pages until no more bytes than these are in use; they may grow again.
    pub fn shrink_to(&self, host_bytes: u64, disk_bytes: u64) {
        use super::map::Level;
        let pages = |bytes: u64, cost: u64| usize::try_from(bytes / cost).unwrap_or(usize::MAX);
        self.shrink(Level::Host, pages(host_bytes, self.page_bytes as u64));
        self.shrink(Level::Disk, pages(disk_bytes, self.disk_cost()));
    }

    /// What is below the device.
    pub fn stats(&self) -> PageTierStats {
        let store = self.disk.as_ref().map_or(StoreStats::default(), |disk| disk.stats());
        let copied_pages = self.shared.read().copied_pages();
        let table = self.table();
        let counters = table.counters;
        let [host_pages, disk_pages] = Self::counts(&table);
        let (used, all) = (self.slots.count() - self.slots.free(), self.slots.count());
        let bytes = self.page_bytes as u64;
        PageTierStats {
            host: TierTotals {
                pages: host_pages,
                bytes: used as u64 * bytes,
                limit: all as u64 * bytes,
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
                evicted: counters.evicted[1],
                damaged: counters.damaged[1] + store.damaged,
                failed: counters.disk_failed,
            },
            page_bytes: self.page_bytes,
            free_slots: self.slots.free(),
            open_fetches: table.loads.numbers.len(),
            open_prefetches: table.loads.open.len() - table.loads.numbers.len(),
            open_copies: table.jobs.len(),
            waiting: table.stores.queue.len(),
            copied_pages,
            index_bytes: table.bytes() + self.slots.bytes(),
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
        let held = table.host.iter().flatten().count();
        assert_eq!(held, table.map.count(super::map::Level::Host));
        for (slot, page) in table.host.iter().enumerate() {
            if let Some(page) = page {
                assert_eq!(page.slot.index() as usize, slot);
                let record = table.map.get(page.record).expect("it has a record");
                assert_eq!(record.host(), Some(slot as u32));
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

impl Lower for PageTiers {
    fn cleared(&self) {
        self.signal.notify();
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.signal.notify();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        if let Some(remote) = &self.remote {
            remote.close();
        }
        let table = &mut *self.table();
        let mut state = self.shared.write();
        while let Some((&id, _)) = table.jobs.first() {
            match table.jobs.remove(&id) {
                Some(Job::Load { page, .. } | Job::Store { page, .. }) => state.end_copied(page),
                None => {}
            }
        }
        while let Some((&number, load)) = table.loads.open.first() {
            let id = load.sequence;
            table.loads.end(number);
            if let Some(id) = id.filter(|&id| state.is_loading(id)) {
                let _ = state.land(id, (0, 0), false);
            }
        }
        table.stores = Stores::default();
    }
}
