//! One lock around pages, index and sequences, and where waiting threads are let in.
//!
//! Why one: a page table and its cache change together in nearly every call, and the order of two
//! locks would be a bug in waiting. It is a readers-writer lock, so that readers run side by side;
//! probes, which engines make all the time, do without it. A call that evicts many pages does it in
//! slices; between two slices the state is whole, and whoever waits gets in.
use super::ahead::short_lists;
use super::{Prober, State};
use crate::error::Error;
use crate::grace::Link;
use crate::index::Portion;
use crate::lock::{Poison, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::memory::{Arc, map_code};
use crate::paging::PageTableConfig;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pages evicted or published before a waiting thread gets in.
const SLICE: usize = 256;

/// Pages that go to the pool, or come from it: that is quicker.
const POOL_SLICE: usize = 512;

/// Pages for each node that such a slice evicts from at most.
const PAGES_PER_RUN: usize = 32;

/// Pauses on a busy lock, about 100 microseconds, before a thread gives up its processor, and how
/// often it does that before it sleeps. A critical section is about a microsecond, waking a thread
/// takes fifty: with sleepers behind it, each unlock of the owner would be a system call.
const PAUSES: u32 = 4000;
const YIELDS: u32 = 1000;
/// Pauses between two looks at a busy lock. Readers look seldom: each look takes the lock's cache
/// line away from the thread that works under it.
pub(super) const READER_PAUSES: u32 = 100;
pub(super) const WRITER_PAUSES: u32 = 1;

/// A page table, perhaps with a cache, for any number of threads.
#[derive(Debug)]
pub struct Shared {
    state: RwLock<State>,
    /// Threads that wait to change something: readers let them go first.
    pub(super) waiting_writers: AtomicU32,
    /// Threads that wait to read: long changes let them in.
    pub(super) waiting_readers: AtomicU32,
    pub(super) poison: Poison,
    /// The pool is external: what the cache takes and gives up is reported, or lost.
    external_pool: bool,
    /// Groups of layers.
    group_count: usize,
    /// For probes, which take no lock. Empty without a cache.
    pub(crate) prober: Link<Prober>,
    /// Pages that a call evicts before it lets others in, of which other portions are parts or
    /// multiples, and those that it takes from the pool or gives back.
    pub(crate) slice: usize,
    pub(crate) pool_slice: usize,
    /// See `short_lists`.
    pub(super) short_lists: [usize; 2],
    /// What is below the device.
    pub(super) lower: super::lower::Attached,
    /// Called where others are let in.
    pub(super) at_yield: AtYield,
}

/// What tests do where others are let in.
pub type Yield = dyn Fn() + Send + Sync;

pub(super) struct AtYield(pub(super) Option<Box<Yield>>);

impl std::fmt::Debug for AtYield {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "a test's" } else { "nothing" })
    }
}

/// Tries until it succeeds; counts itself as waiting meanwhile, and sleeps in the end.
#[cold]
fn wait<G>(
    waiting: &AtomicU32,
    pause: u32,
    attempt: impl Fn() -> Option<G>,
    sleep: impl FnOnce() -> G,
) -> G {
    waiting.fetch_add(1, Ordering::Relaxed);
    let polls = PAUSES / pause;
    let polled = (0..polls + YIELDS).find_map(|round| {
        if round < polls {
            (0..pause).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::yield_now();
        }
        attempt()
    });
    let guard = polled.unwrap_or_else(sleep);
    waiting.fetch_sub(1, Ordering::Relaxed);
    guard
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.state.get_mut().give_ids_back();
    }
}

impl Shared {
    /// A page table without a cache.
    pub fn new(config: PageTableConfig) -> Result<Arc<Self>, Error> {
        map_code();
        Ok(Arc::new(Self::make(config, (SLICE, POOL_SLICE), None)?)?)
    }

    /// The same with slices of another size, and with something to do after each: for tests, which
    /// so reach with a few pages what takes thousands, and let in whom they like.
    #[doc(hidden)]
    pub fn with_slices(
        config: PageTableConfig,
        slice: usize,
        at_yield: Option<Box<Yield>>,
    ) -> Result<Self, Error> {
        assert!(slice > 0, "a slice has a page at least");
        Self::make(config, (slice, slice), at_yield)
    }

    fn make(
        config: PageTableConfig,
        (slice, pool_slice): (usize, usize),
        at_yield: Option<Box<Yield>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            state: RwLock::new(State::new(config)?),
            waiting_writers: AtomicU32::new(0),
            waiting_readers: AtomicU32::new(0),
            poison: Poison::default(),
            external_pool: config.external_pool,
            group_count: config.groups.list().len(),
            prober: Link::default(),
            slice,
            pool_slice,
            short_lists: short_lists(slice, config.page_size as usize),
            lower: Default::default(),
            at_yield: AtYield(at_yield),
        })
    }

    /// For calls that change nothing; any number at once. Gives way to calls that change something.
    /// Unwinds when one of those panicked, as the users of a poisoned lock of std's do.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        let state = self.lock_to_read();
        self.poison.check();
        state
    }

    /// The same for who is in no call that could be refused: nothing after a panic.
    pub(crate) fn read_if_whole(&self) -> Option<RwLockReadGuard<'_, State>> {
        let state = self.lock_to_read();
        (!self.is_poisoned()).then_some(state)
    }

    fn lock_to_read(&self) -> RwLockReadGuard<'_, State> {
        self.try_read().unwrap_or_else(|| {
            wait(&self.waiting_readers, READER_PAUSES, || self.try_read(), || self.state.read())
        })
    }

    fn try_read(&self) -> Option<RwLockReadGuard<'_, State>> {
        let nobody_waits = self.waiting_writers.load(Ordering::Relaxed) == 0;
        nobody_waits.then(|| self.state.try_read()).flatten()
    }

    /// The lock of a turn, or of a test, which says nothing of its own panics. Unwinds as `read`
    /// does.
    #[doc(hidden)]
    #[inline(always)]
    pub fn write(&self) -> RwLockWriteGuard<'_, State> {
        let attempt = || self.state.try_write();
        let state = attempt().unwrap_or_else(|| {
            wait(&self.waiting_writers, WRITER_PAUSES, attempt, || self.state.write())
        });
        self.poison.check();
        state
    }

    /// Whether somebody waits for the lock, for a test that has it.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        [&self.waiting_readers, &self.waiting_writers]
            .iter()
            .any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Counts a call among those that wait that gave the lock up and comes back for it: others let
    /// in only whom they know of. Waits as long as who begins does before it sleeps.
    pub(super) fn come_back(&self) {
        self.waiting_writers.fetch_add(1, Ordering::Relaxed);
        if self.state.is_locked() {
            let is_free = || (!self.state.is_locked()).then_some(());
            wait(&self.waiting_writers, WRITER_PAUSES, is_free, || ());
        }
    }

    /// It has the lock again.
    pub(super) fn is_back(&self) {
        self.waiting_writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// What others do while nobody has the lock.
    pub(super) fn without_lock(&self) {
        if let Some(at_yield) = &self.at_yield.0 {
            at_yield();
        }
    }

    /// What is evicted, of so many pages, before others are let in.
    pub(super) fn portion(&self, pages: usize) -> Portion {
        Portion { pages: pages.min(self.slice), runs: self.slice.div_ceil(PAGES_PER_RUN) }
    }

    /// Whether somebody else hands the pages out, who must be told which the cache has.
    pub fn has_external_pool(&self) -> bool {
        self.external_pool
    }

    /// How many groups of layers there are.
    pub fn group_count(&self) -> usize {
        self.group_count
    }

    /// Refuses what needs rows when there are none.
    pub fn check_own_pool(&self) -> Result<(), Error> {
        if self.external_pool { self.read().check_own_pool() } else { Ok(()) }
    }

    /// Whether a call panicked and may have left things half done.
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_set()
    }

    /// Refuses to go on with what a panic may have left half done.
    pub fn check_whole(&self) -> Result<(), Error> {
        if self.is_poisoned() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Refuses further calls.
    pub fn poison(&self) {
        self.poison.set();
    }
}
