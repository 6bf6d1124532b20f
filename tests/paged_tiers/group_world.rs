//! The same engine in the small for models of several kinds of layers: its pages say what was
//! computed into them, also the states, and whoever computes looks whether all that it attends to
//! is there.
use super::memory_store::MemoryStore;
use super::remote_store::MemoryRemote;
use super::world::{PAGE_SIZE, value};
use radixkv::error::Error;
use radixkv::group::{GroupConfig, GroupKind, Groups};
use radixkv::ids::SequenceId;
use radixkv::index::Namespace;
use radixkv::memory::{Arc, Slots};
use radixkv::paging::{MorePools, PageTableConfig};
use radixkv::sequence::Room;
use radixkv::store::{CacheConfig, SequenceInfo, Shared};
use radixkv::tier::paged::{
    CopyJob, Deadline, Direction, Fetchable, Fetched, HostMemory, PagePolicy, PageTiers,
    TierConfig, TierPool,
};
use radixkv::tier::remote::RemoteConfig;
use radixkv::token::TokenList;
use std::collections::HashMap;
use std::ptr::NonNull;

/// How a world is made.
#[derive(Clone)]
pub struct Setup {
    pub groups: Vec<GroupConfig>,
    /// Of each pool: pages of the device, and of host memory.
    pub pages: Vec<u32>,
    pub host_pages: Vec<usize>,
    pub store: Option<MemoryStore>,
    pub remote: Option<MemoryRemote>,
    pub policy: PagePolicy,
    pub agrees: bool,
    /// Positions that get pages at once; 0 for all.
    pub first: usize,
    /// States that a path keeps; 0 for any number.
    pub checkpoint_limit: u32,
    /// Pages of a slice, and what others do behind each.
    pub slices: Option<(usize, fn())>,
}

impl Setup {
    pub fn kinds(&self) -> impl Iterator<Item = (usize, GroupKind)> + '_ {
        self.groups.iter().map(|group| group.kind).enumerate()
    }

    /// Words of a page of a pool: no two have the same.
    pub fn words(&self, pool: usize) -> usize {
        PAGE_SIZE + 2 * pool
    }

    pub fn page_bytes(&self, pool: usize) -> usize {
        4 * self.words(pool)
    }

    fn host(&self) -> Vec<Vec<u8>> {
        let pools = self.host_pages.iter().enumerate();
        pools.map(|(pool, pages)| vec![0; pages * self.page_bytes(pool)]).collect()
    }
}

/// A sequence, as its owner knows it.
pub struct Request {
    pub space: Namespace,
    pub tokens: Vec<u32>,
    pub computed: usize,
    pub is_open: bool,
}

pub struct GroupWorld {
    pub setup: Setup,
    pub shared: Arc<Shared>,
    pub tiers: std::sync::Arc<PageTiers>,
    /// The host's memory, by pool.
    pub host: Vec<Vec<u8>>,
    /// The device's, by pool and page.
    pub device: Vec<Vec<Vec<u32>>>,
    pub requests: HashMap<SequenceId, Request>,
    pub copies: Vec<CopyJob>,
    pub fetched: Vec<Fetched>,
}

fn shared(setup: &Setup) -> Arc<Shared> {
    let config = PageTableConfig {
        page_size: PAGE_SIZE as u32,
        page_count: setup.pages[0] + 1,
        slot_count: 8,
        groups: Groups::new(&setup.groups).unwrap(),
        more_pools: MorePools::new(
            &setup.pages[1..].iter().map(|pages| pages + 1).collect::<Vec<_>>(),
        )
        .unwrap(),
        ..PageTableConfig::default()
    };
    let shared = match setup.slices {
        None => Shared::new(config),
        Some((slice, at_yield)) => {
            let shared = Shared::with_slices(config, slice, Some(Box::new(at_yield)));
            shared.and_then(|shared| Ok(Arc::new(shared)?))
        }
    };
    let shared = shared.unwrap();
    let checkpoint_limit = setup.checkpoint_limit;
    let config = CacheConfig { journal_bytes: 1 << 16, checkpoint_limit, ..CacheConfig::default() };
    shared.attach_cache(config).unwrap();
    shared
}

fn tiers(
    setup: &Setup,
    shared: &Arc<Shared>,
    host: &mut [Vec<u8>],
) -> Result<std::sync::Arc<PageTiers>, Error> {
    let pools = host.iter_mut().enumerate().map(|(pool, host)| {
        let base = NonNull::new(host.as_mut_ptr()).unwrap();
        let (count, page_bytes) = (setup.host_pages[pool] as u32, setup.page_bytes(pool));
        // SAFETY: the world has both, and drops the tiers first.
        let slots = unsafe { Slots::over(base, count, page_bytes) }.unwrap();
        TierPool { page_bytes, host: HostMemory::Given(slots) }
    });
    let config = TierConfig {
        pools: pools.collect(),
        disk: setup.store.clone().map(|store| {
            let records = store.records();
            (Box::new(store) as _, records)
        }),
        remote: setup.remote.as_ref().map(|remote| RemoteConfig {
            store: Box::new(remote.clone()),
            fingerprint: remote.fingerprint,
            timeout: remote.timeout,
            workers: 0,
            waiting_bytes: 1 << 16,
        }),
        policy: setup.policy,
        agrees: setup.agrees,
        wake: None,
    };
    PageTiers::attach_without_thread(shared, config, PageTiers::disk_wake().0)
}

/// What a page of a group holds: of a state, after the positions up to its end.
fn word(group: usize, kind: GroupKind, space: &Namespace, tokens: &[u32], at: usize) -> u32 {
    match kind {
        GroupKind::State => value(space, tokens) ^ (100 * group + at) as u32,
        _ => value(space, &tokens[..=at]) ^ group as u32,
    }
}

impl GroupWorld {
    pub fn new(setup: Setup) -> Self {
        let shared = shared(&setup);
        let mut host = setup.host();
        let tiers = tiers(&setup, &shared, &mut host).unwrap();
        let pages =
            |(pool, &pages): (usize, &u32)| vec![vec![0; setup.words(pool)]; pages as usize + 1];
        let device = setup.pages.iter().enumerate().map(pages).collect();
        let (requests, copies, fetched) = (HashMap::new(), Vec::new(), Vec::new());
        Self { setup, shared, tiers, host, device, requests, copies, fetched }
    }

    /// Why there are no tiers.
    pub fn refused(setup: &Setup) -> Error {
        tiers(setup, &shared(setup), &mut setup.host()).unwrap_err()
    }

    /// Another process, after this one was killed: with what is committed.
    pub fn restarted(self) -> Self {
        let remote = self.setup.remote.clone();
        self.restarted_on(remote)
    }

    /// The same over another remote store.
    pub fn restarted_on(mut self, remote: Option<MemoryRemote>) -> Self {
        let store = self.setup.store.as_ref().map(MemoryStore::restarted);
        let setup = Setup { store, remote, ..self.setup.clone() };
        self.requests.clear();
        self.copies.clear();
        drop(self);
        Self::new(setup)
    }

    pub fn pool(&self, group: usize) -> usize {
        self.setup.groups[group].pool as usize
    }

    pub fn begin(&mut self, space: &Namespace, tokens: &[u32]) -> Option<SequenceInfo> {
        let room = Room { reserve: 0, first: self.setup.first };
        let info = self.shared.begin(space, TokenList::text(tokens), room).ok()?;
        let (space, tokens) = (*space, tokens.to_vec());
        let computed = info.cached_positions;
        self.requests.insert(info.id, Request { space, tokens, computed, is_open: false });
        Some(info)
    }

    pub fn fetch(&mut self, id: SequenceId, deadline: Deadline) -> Fetchable {
        let found = self.tiers.fetch(id, deadline, false).unwrap();
        self.requests.get_mut(&id).unwrap().is_open |= found.is_begun;
        found
    }

    /// Carries out the copies that a sequence waits for.
    pub fn carry_out(&mut self, id: SequenceId) {
        let (first, others) = {
            let state = self.shared.read();
            let (first, others) = state.open_copies(id).unwrap();
            (first, others.to_vec())
        };
        if first.is_none() && others.is_empty() {
            return;
        }
        let first = first.map(|copy| (0, copy.source, copy.target, copy.positions));
        let others = others.iter().map(|copy| {
            let positions = match self.setup.groups[copy.group].kind {
                GroupKind::State => self.setup.words(self.pool(copy.group)),
                _ => copy.positions,
            };
            (copy.group, copy.source, copy.target, positions)
        });
        for (group, source, target, words) in first.into_iter().chain(others).collect::<Vec<_>>() {
            let pool = self.pool(group);
            let from = self.device[pool][source as usize][..words].to_vec();
            self.device[pool][target as usize][..words].copy_from_slice(&from);
        }
        self.shared.ending(|state| state.confirm_copies(id)).unwrap();
    }

    /// What the next position of a sequence attends to is what was computed.
    pub fn check(&self, id: SequenceId) {
        let request = &self.requests[&id];
        if request.is_open {
            return;
        }
        let state = self.shared.read();
        let (first, others) = state.open_copies(id).unwrap();
        let has_copies = first.is_some() || !others.is_empty();
        let end = request.computed;
        for (group, kind) in self.setup.kinds() {
            let row = state.group_row(id, group, 0).unwrap();
            let device = &self.device[self.pool(group)];
            let expected = |tokens: &[u32], at| word(group, kind, &request.space, tokens, at);
            if kind == GroupKind::State {
                if end > 0 && !has_copies {
                    for (at, &found) in device[row[0] as usize].iter().enumerate() {
                        assert_eq!(found, expected(&request.tokens[..end], at), "state at {end}");
                    }
                }
                continue;
            }
            // A page inside which it ends may be still to copy.
            let whole = if has_copies { end - end % PAGE_SIZE } else { end };
            let needs = kind.needs(end, PAGE_SIZE).unwrap();
            for place in needs.places() {
                for at in place * PAGE_SIZE..whole.min((place + 1) * PAGE_SIZE) {
                    let page = row[place];
                    assert_ne!(page, 0, "group {group} has no page at {place} of {end}");
                    let found = device[page as usize][at % PAGE_SIZE];
                    let expected = expected(&request.tokens, at);
                    assert_eq!(found, expected, "group {group}, position {at} of {end}");
                }
            }
        }
    }

    /// Computes the next positions of a sequence, and publishes them.
    pub fn compute(&mut self, id: SequenceId, end: usize) {
        self.carry_out(id);
        self.check(id);
        let request = self.requests.get_mut(&id).unwrap();
        let from = request.computed;
        request.computed = request.computed.max(end);
        let (space, tokens) = (request.space, request.tokens.clone());
        let groups: Vec<_> = self.setup.kinds().collect();
        for (group, kind) in groups {
            let pool = self.pool(group);
            let row = self.shared.read().group_row(id, group, 0).unwrap().to_vec();
            if kind == GroupKind::State {
                let page = &mut self.device[pool][row[0] as usize];
                for (at, into) in page.iter_mut().enumerate() {
                    *into = word(group, kind, &space, &tokens[..end.max(from)], at);
                }
                continue;
            }
            for at in from..end {
                let page = row[at / PAGE_SIZE];
                assert_ne!(page, 0);
                self.device[pool][page as usize][at % PAGE_SIZE] =
                    word(group, kind, &space, &tokens, at);
            }
        }
        self.shared.turn().publish(id, end.max(from)).unwrap();
        self.check(id);
    }

    /// Saves the states of a sequence, where pages can be had.
    pub fn save(&mut self, id: SequenceId) -> bool {
        if self.shared.write().checkpoint(id).is_err() {
            return false;
        }
        self.carry_out(id);
        true
    }

    pub fn has_states(&self) -> bool {
        self.setup.kinds().any(|(_, kind)| kind == GroupKind::State)
    }

    /// Takes copies, and fetches that have ended.
    pub fn poll(&mut self, room: usize) -> usize {
        let (mut given, mut ended) = (Vec::new(), Vec::new());
        let polled =
            self.tiers.poll((room, 8), &mut |job| given.push(job), &mut |done| ended.push(done));
        self.copies.extend(given);
        for done in ended {
            self.fetched.push(done);
            if self.setup.agrees {
                continue;
            }
            if let Some(request) = self.requests.get_mut(&done.sequence) {
                request.is_open = false;
                request.computed = done.positions;
                self.check(done.sequence);
            }
        }
        polled.unwrap().jobs
    }

    /// Carries a copy out.
    pub fn end_copy(&mut self, at: usize, is_good: bool) {
        let CopyJob { id, direction, group, page, host, bytes, .. } = self.copies.swap_remove(at);
        let pool = self.pool(group);
        assert_eq!(bytes, self.setup.page_bytes(pool));
        for (at, word) in self.device[pool][page as usize].iter_mut().enumerate() {
            // SAFETY: the slot is the copy's until it is complete.
            let place = unsafe { host.cast::<u32>().add(at) };
            match direction {
                // SAFETY: as above.
                Direction::Load => *word = unsafe { place.read_unaligned() },
                // SAFETY: as above.
                Direction::Store => unsafe { place.write_unaligned(*word) },
            }
        }
        self.tiers.complete(&[id], is_good).unwrap();
    }

    /// All copies, and what follows from them, to the end.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            while self.tiers.work() {}
            while self.tiers.work_remote() {
                while self.tiers.work() {}
            }
            if let Some(store) = self.setup.store.clone() {
                while store.write(0, None) || store.read(0, None, false) {}
                store.commit();
                while self.tiers.work() {}
            }
            let given = self.poll(64);
            while !self.copies.is_empty() {
                self.end_copy(0, true);
            }
            let is_ready = |id: &SequenceId| self.fetched.iter().any(|done| done.sequence == *id);
            let mut open = self.requests.iter().filter(|(_, request)| request.is_open);
            let is_done = open.all(|(id, _)| self.setup.agrees && is_ready(id));
            if given == 0 && is_done && self.tiers.stats().waiting == 0 {
                while self.tiers.work() {}
                return;
            }
        }
        panic!("it does not come to an end: {:?}", self.tiers.stats());
    }

    /// A prompt from its beginning to its end, with states saved after some pages; what the device
    /// had of it, and what it did not compute in the end.
    pub fn run(&mut self, tokens: &[u32], saves: &[usize]) -> (usize, usize) {
        let space = Namespace::default();
        let info = self.begin(&space, tokens).unwrap();
        while self.tiers.work() {}
        if self.fetch(info.id, Deadline::Never).is_begun {
            self.settle();
        }
        let reused = self.requests[&info.id].computed;
        for &pages in saves.iter().filter(|&&pages| pages * PAGE_SIZE > reused) {
            self.compute(info.id, pages * PAGE_SIZE);
            self.settle();
            if self.has_states() {
                assert!(self.save(info.id));
                self.settle();
            }
        }
        self.compute(info.id, tokens.len());
        self.settle();
        self.release(info.id);
        (info.cached_positions, reused)
    }

    pub fn release(&mut self, id: SequenceId) {
        self.requests.remove(&id).unwrap();
        self.shared.turn().release(id).unwrap();
    }

    /// Has the device give all up that nobody uses.
    pub fn evict_all(&mut self) {
        for pool in 0..self.setup.pages.len() {
            self.evict(pool, 1000);
        }
        while self.tiers.work() {}
    }

    pub fn evict(&mut self, pool: usize, count: usize) -> usize {
        self.shared.evict_from_pool(pool as u32, count, 10_000, |_| {}).unwrap()
    }

    pub fn check_all(&self) {
        self.requests.keys().for_each(|&id| self.check(id));
        self.tiers.check();
        let state = self.shared.read();
        state.audit().unwrap();
        state.check().unwrap();
        for pool in 0..self.setup.pages.len() {
            let stats = state.pool_stats(pool as u32).unwrap();
            assert_eq!(stats.free + stats.cached + stats.private, stats.total);
        }
        assert_eq!(state.copied_pages(), self.copies.len());
    }

    /// Nothing goes on any more, and every page is free or the cache's.
    pub fn end(&mut self) {
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            self.release(id);
        }
        self.settle();
        self.check_all();
        for pool in 0..self.setup.pages.len() {
            let stats = self.shared.read().pool_stats(pool as u32).unwrap();
            assert_eq!(stats.private, 0);
        }
        assert_eq!(self.tiers.stats().open_fetches, 0);
    }
}

impl Drop for GroupWorld {
    fn drop(&mut self) {
        self.shared.detach_cache();
        if !std::thread::panicking() {
            let state = self.shared.read();
            state.audit().unwrap();
            for pool in 0..self.setup.pages.len() {
                let stats = state.pool_stats(pool as u32).unwrap();
                assert_eq!(stats.free, stats.total, "all pages are free when the cache is gone");
            }
        }
    }
}
