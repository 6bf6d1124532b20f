//! An engine in the small: memory of a device whose bytes say what was computed into them, prompts,
//! and copies that take their time.
use super::memory_store::MemoryStore;
use super::remote_store::MemoryRemote;
use radixkv::error::Error;
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::{Arc, Slots};
use radixkv::paging::PageTableConfig;
use radixkv::store::{CacheConfig, SequenceInfo, Shared};
use radixkv::tier::paged::{
    CopyJob, Deadline, Direction, Fetchable, Fetched, HostMemory, PagePolicy, PageTiers,
    TierConfig, TierPool,
};
use radixkv::tier::remote::RemoteConfig;
use radixkv::token::TokenList;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::NonNull;

pub const PAGE_SIZE: usize = 4;
pub const PAGE_BYTES: usize = 4 * PAGE_SIZE;

/// What is computed at a position: it depends on all tokens up to there.
pub fn value(space: &Namespace, tokens: &[u32]) -> u32 {
    let mut hasher = DefaultHasher::new();
    (space.lora, space.epoch, space.salt, space.image, tokens).hash(&mut hasher);
    hasher.finish() as u32 | 1
}

/// How a world is made.
#[derive(Clone)]
pub struct Setup {
    pub pages: u32,
    pub host_pages: usize,
    pub store: Option<MemoryStore>,
    pub remote: Option<MemoryRemote>,
    pub policy: PagePolicy,
    pub agrees: bool,
    pub index: radixkv::index::IndexKind,
}

impl Setup {
    pub fn new(pages: u32, host_pages: usize, store: Option<MemoryStore>) -> Self {
        let policy = PagePolicy::Through;
        let (remote, index) = (None, Default::default());
        Self { pages, host_pages, store, remote, policy, agrees: false, index }
    }
}

/// A sequence, as its owner knows it.
pub struct Request {
    pub space: Namespace,
    pub tokens: Vec<u32>,
    /// Positions whose KV is in its pages.
    pub computed: usize,
    /// It is being fetched.
    pub is_open: bool,
}

/// A copy that the engine carries out: half of it first.
pub struct Copy {
    pub job: CopyJob,
    pub half_done: bool,
}

pub struct World {
    pub setup: Setup,
    pub shared: Arc<Shared>,
    pub tiers: std::sync::Arc<PageTiers>,
    /// The host's memory, which a test can damage.
    pub host: Vec<u8>,
    /// The device's, by page.
    pub device: Vec<[u32; PAGE_SIZE]>,
    pub requests: HashMap<SequenceId, Request>,
    pub copies: Vec<Copy>,
    pub fetched: Vec<Fetched>,
}

fn page_table(setup: &Setup) -> PageTableConfig {
    PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: setup.pages + 1,
        slot_count: 16,
        ..PageTableConfig::default()
    }
}

fn with_cache(setup: &Setup, shared: Arc<Shared>) -> Arc<Shared> {
    let config =
        CacheConfig { journal_bytes: 1 << 16, index: setup.index, ..CacheConfig::default() };
    shared.attach_cache(config).unwrap();
    shared
}

pub fn shared(setup: &Setup) -> Arc<Shared> {
    with_cache(setup, Shared::new(page_table(setup)).unwrap())
}

fn tiers(
    setup: &Setup,
    shared: &Arc<Shared>,
    host: &mut [u8],
) -> Result<std::sync::Arc<PageTiers>, Error> {
    let base = NonNull::new(host.as_mut_ptr()).unwrap();
    // SAFETY: the world has both, and drops the tiers first.
    let slots = unsafe { Slots::over(base, setup.host_pages as u32, PAGE_BYTES) }.unwrap();
    let config = TierConfig {
        pools: vec![TierPool { page_bytes: PAGE_BYTES, host: HostMemory::Given(slots) }],
        disk: setup.store.clone().map(|store| {
            let records = store.records();
            (Box::new(store) as _, records)
        }),
        remote: setup.remote.as_ref().map(|remote| RemoteConfig {
            store: Box::new(remote.clone()),
            fingerprint: remote.fingerprint,
            timeout: remote.timeout,
            workers: 0,
            waiting_bytes: (setup.host_pages * PAGE_BYTES / 4).max(PAGE_BYTES) as u64,
        }),
        policy: setup.policy,
        agrees: setup.agrees,
        wake: None,
    };
    PageTiers::attach_without_thread(shared, config, PageTiers::disk_wake().0)
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let shared = shared(&setup);
        Self::over(setup, shared)
    }

    /// One with something to do where others are let in.
    pub fn yielding(setup: Setup, at_yield: Box<dyn Fn() + Send + Sync>) -> Self {
        let shared = Shared::with_slices(page_table(&setup), 256, Some(at_yield)).unwrap();
        let shared = with_cache(&setup, Arc::new(shared).unwrap());
        Self::over(setup, shared)
    }

    fn over(setup: Setup, shared: Arc<Shared>) -> Self {
        let mut host = vec![0; setup.host_pages * PAGE_BYTES];
        let tiers = tiers(&setup, &shared, &mut host).unwrap();
        let device = vec![[0; PAGE_SIZE]; setup.pages as usize + 1];
        let (requests, copies, fetched) = (HashMap::new(), Vec::new(), Vec::new());
        Self { setup, shared, tiers, host, device, requests, copies, fetched }
    }

    /// Puts other tiers below the cache.
    pub fn attach_anew(&mut self) {
        self.shared.detach_lower();
        self.tiers = self.try_attach().unwrap();
    }

    pub fn try_attach(&mut self) -> Result<std::sync::Arc<PageTiers>, Error> {
        tiers(&self.setup, &self.shared, &mut self.host)
    }

    /// Another process, after this one was killed: with what is committed.
    pub fn restarted(self) -> Self {
        let store = self.setup.store.as_ref().map(MemoryStore::restarted);
        let setup = Setup { store, ..self.setup.clone() };
        drop(self);
        Self::new(setup)
    }

    /// The thread's work, until there is none.
    pub fn work(&self) {
        while self.tiers.work() {}
    }

    pub fn begin(&mut self, space: &Namespace, tokens: &[u32]) -> Option<SequenceInfo> {
        let info = self.shared.begin(space, TokenList::text(tokens), 0).ok()?;
        if let Some(copy) = info.copy {
            let source = self.device[copy.source as usize];
            self.device[copy.target as usize][..copy.positions]
                .copy_from_slice(&source[..copy.positions]);
        }
        let computed = info.cached_positions;
        let (space, tokens) = (*space, tokens.to_vec());
        self.requests.insert(info.id, Request { space, tokens, computed, is_open: false });
        self.check(info.id);
        Some(info)
    }

    pub fn fetch(&mut self, id: SequenceId, deadline: Deadline) -> Fetchable {
        let found = self.tiers.fetch(id, deadline, false).unwrap();
        self.requests.get_mut(&id).unwrap().is_open |= found.is_begun;
        found
    }

    /// Takes copies, and fetches that have ended.
    pub fn poll(&mut self, room: usize) -> usize {
        let Self { copies, .. } = self;
        let mut ended = Vec::new();
        let polled = self.tiers.poll(
            (room, 8),
            &mut |job| copies.push(Copy { job, half_done: false }),
            &mut |done| ended.push(done),
        );
        for done in ended {
            self.fetched.push(done);
            if self.setup.agrees {
                continue;
            }
            self.end_fetch(done);
        }
        polled.unwrap().jobs
    }

    /// A fetch has ended, and the sequence may go on.
    pub fn end_fetch(&mut self, done: Fetched) {
        let Some(request) = self.requests.get_mut(&done.sequence) else { return };
        request.is_open = false;
        request.computed = done.positions;
        self.check(done.sequence);
    }

    /// Copies a half of a page.
    fn copy_half(&mut self, at: usize, half: usize) {
        let CopyJob { direction, page, host, bytes, .. } = self.copies[at].job;
        assert_eq!(bytes, PAGE_BYTES);
        let page = &mut self.device[page as usize];
        let words = half * PAGE_SIZE / 2..(half + 1) * PAGE_SIZE / 2;
        for (at, word) in page.iter_mut().enumerate().take(words.end).skip(words.start) {
            // SAFETY: the slot is the copy's until it is complete.
            let place = unsafe { host.cast::<u32>().add(at) };
            match direction {
                // SAFETY: as above.
                Direction::Load => *word = unsafe { place.read_unaligned() },
                // SAFETY: as above.
                Direction::Store => unsafe { place.write_unaligned(*word) },
            }
        }
        self.copies[at].half_done = true;
    }

    /// Goes on with a copy; after its second half it is complete.
    pub fn step_copy(&mut self, at: usize, is_good: bool) {
        if !self.copies[at].half_done {
            return self.copy_half(at, 0);
        }
        if is_good {
            self.copy_half(at, 1);
        }
        let copy = self.copies.swap_remove(at);
        self.tiers.complete(&[copy.job.id], is_good).unwrap();
    }

    /// All copies, and what follows from them, to the end.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            self.work();
            while self.tiers.work_remote() {
                self.work();
            }
            if let Some(store) = self.setup.store.clone() {
                while store.write(0, None) || store.read(0, None, false) {}
                store.commit();
                self.work();
            }
            let given = self.poll(64);
            while !self.copies.is_empty() {
                self.step_copy(0, true);
            }
            let is_open = |request: &Request| request.is_open;
            let mut open = self.requests.iter().filter(|(_, request)| is_open(request));
            let is_ready = |id: &SequenceId| self.fetched.iter().any(|done| done.sequence == *id);
            let is_done = match self.setup.agrees {
                false => open.next().is_none(),
                true => open.all(|(id, _)| is_ready(id)),
            };
            if given == 0 && is_done && self.tiers.stats().waiting == 0 {
                self.work();
                return;
            }
        }
        panic!("it does not come to an end: {:?}", self.tiers.stats());
    }

    /// Computes the first positions of a sequence, and publishes them.
    pub fn compute(&mut self, id: SequenceId, positions: usize) {
        let request = self.requests.get_mut(&id).unwrap();
        let state = self.shared.read();
        if state.sequence_info(id).unwrap().copy.is_some() {
            drop(state);
            self.shared.ending(|state| state.confirm_copies(id)).unwrap();
        } else {
            drop(state);
        }
        let state = self.shared.read();
        let row = state.row_from(id.slot(), 0).unwrap().to_vec();
        drop(state);
        for at in request.computed..positions.max(request.computed) {
            let page = row[at / PAGE_SIZE] as usize;
            self.device[page][at % PAGE_SIZE] = value(&request.space, &request.tokens[..=at]);
        }
        request.computed = request.computed.max(positions);
        self.shared.write().publish(id, request.computed).unwrap();
        self.check(id);
    }

    /// A prompt from its beginning to its end; what the device had of it, and what tiers brought.
    pub fn run(&mut self, space: &Namespace, tokens: &[u32]) -> (usize, usize) {
        let info = self.begin(space, tokens).unwrap();
        let had = info.cached_positions;
        self.work();
        if self.fetch(info.id, Deadline::Never).is_begun {
            self.settle();
        }
        let brought = self.requests[&info.id].computed - had.min(self.requests[&info.id].computed);
        self.compute(info.id, tokens.len());
        self.release(info.id);
        (had, brought)
    }

    pub fn release(&mut self, id: SequenceId) {
        self.requests.remove(&id).unwrap();
        self.shared.turn().release(id).unwrap();
    }

    /// What a sequence need not compute is what computing would have given.
    pub fn check(&self, id: SequenceId) {
        let request = &self.requests[&id];
        let state = self.shared.read();
        let info = state.sequence_info(id).unwrap();
        let shared = info.shared_pages * PAGE_SIZE;
        let end = if request.is_open { shared } else { request.computed.max(shared) };
        let row = state.row_from(id.slot(), 0).unwrap();
        for at in 0..end.min(request.tokens.len()) {
            let found = self.device[row[at / PAGE_SIZE] as usize][at % PAGE_SIZE];
            let expected = value(&request.space, &request.tokens[..=at]);
            assert_eq!(found, expected, "position {at} of {:?} {info:?}", request.tokens);
        }
        assert!(request.is_open || request.computed >= info.cached_positions);
    }

    pub fn check_all(&self) {
        self.requests.keys().for_each(|&id| self.check(id));
        self.tiers.check();
        let state = self.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
        let stats = state.page_table_stats();
        assert_eq!(stats.free + stats.cached + stats.private, stats.total);
        assert_eq!(state.copied_pages(), self.copies.len());
        assert!(stats.free + stats.reclaimable <= stats.total);
    }

    /// Nothing goes on any more, and every page is free or the cache's.
    pub fn end(&mut self) {
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            self.release(id);
        }
        while !self.copies.is_empty() {
            self.step_copy(0, true);
        }
        self.settle();
        self.check_all();
        let stats = self.shared.read().page_table_stats();
        assert_eq!((stats.private, self.tiers.stats().open_fetches), (0, 0));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.detach_cache();
        if !std::thread::panicking() && !self.shared.is_poisoned() {
            let state = self.shared.read();
            state.audit().unwrap();
            let stats = state.page_table_stats();
            assert_eq!(stats.free, stats.total, "all pages are free when the cache is gone");
        }
    }
}
