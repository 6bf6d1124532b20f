//! Requests, and a memory that holds what an engine would have computed: the hash of all tokens up
//! to each position, or up to a state. So a page that holds anything else than what a row says is
//! seen, whoever mixed it up.
use super::chance::Chance;
use super::follower::Follower;
use super::foreign::Found;
use super::library::{Library, World};
use super::seen::Seen;
use super::slips::Slip;
use radixkv::capi::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// A request that runs.
pub(super) struct Running {
    pub(super) id: rkv_sequence_id,
    pub(super) tenant: u32,
    pub(super) ids: Vec<u32>,
    /// What it began with, none of which can be taken back.
    pub(super) prompt: usize,
    pub(super) computed: usize,
    /// Positions of a chunk, when pages come chunk by chunk.
    pub(super) chunk: usize,
    pub(super) waits: bool,
    pub(super) parent: rkv_sequence_id,
    /// Positions of which the library was told that they are computed.
    pub(super) told: usize,
    /// Positions that it kept when drafts were taken back, of which it knows the state.
    pub(super) accepted: usize,
    /// Times that all was cleared before it began. What it publishes after one more is found by
    /// nobody.
    pub(super) clears: u64,
    pub(super) publishes: bool,
}

pub struct Requests {
    pub(super) world: World,
    pub(super) library: Library,
    pub(super) rng: Chance,
    pub(super) running: Vec<Running>,
    pub(super) retained: Vec<Running>,
    /// Prompts that were asked before.
    pub(super) asked: Vec<Vec<u32>>,
    /// By pool and page: what it holds at each position; of a state, one number.
    pub(super) memory: BTreeMap<(usize, u32), Vec<u64>>,
    pub(super) hasher: RandomState,
    pub(super) follower: Follower,
    /// What another user of the cache keeps locked.
    pub(super) found: Vec<Found>,
    pub slip: Slip,
    pub seen: Seen,
}

impl Requests {
    pub fn new(world: &World, mut rng: Chance) -> Self {
        let library = Library::new(world);
        if library.may_be_visited() {
            library.let_others_act(rng.usize(..256));
        }
        Self {
            library,
            world: world.clone(),
            rng,
            running: Vec::new(),
            retained: Vec::new(),
            asked: Vec::new(),
            memory: BTreeMap::new(),
            hasher: RandomState::new(),
            follower: Follower::default(),
            found: Vec::new(),
            slip: Slip::None,
            seen: Seen::default(),
        }
    }

    pub(super) fn page_size(&self) -> usize {
        self.world.page_size as usize
    }

    /// Positions of so many pages, or of more where prompts are longer than usual.
    pub(super) fn pages_long(&self, pages: usize) -> usize {
        pages * self.world.reach * self.page_size()
    }

    /// What a group computes of a prefix.
    pub(super) fn hash(&self, group: usize, tenant: u32, ids: &[u32]) -> u64 {
        self.hasher.hash_one((group, tenant, ids))
    }

    /// Whether the planted slip happens here; it happens once.
    pub(super) fn slips(&mut self, slip: Slip) -> bool {
        let slips = self.slip == slip && self.seen.begun > 5;
        if slips {
            self.slip = Slip::None;
        }
        slips
    }

    /// Whether what decides its steps is used up.
    #[allow(dead_code)] // of the fuzz targets
    pub fn is_over(&self) -> bool {
        self.rng.is_over()
    }

    pub fn step(&mut self) {
        match self.rng.u32(..100) {
            0..22 => self.begin(),
            22..70 => self.compute(),
            70..77 => self.append(),
            77..79 => self.draft(),
            79..81 => self.take_back(),
            81..85 => self.release(),
            85..87 => self.retain(),
            87..89 => self.fork(),
            89..92 => self.go_on(),
            92 => self.clear(),
            93 => self.look_up(),
            94 => self.let_go(),
            95 => self.insert(),
            _ => {
                let pool = self.rng.usize(..self.world.pools.len());
                let count = self.rng.usize(..4);
                self.seen.evicted += self.library.evict(pool, count).0.len() as u64;
            }
        }
        self.library.check();
        (0..self.world.pools.len()).for_each(|pool| {
            self.library.counts(pool);
        });
        if self.world.journal_bytes > 0 {
            let (any, cleared) = (self.rng.usize(..40), self.library.clears() > 0);
            let Self { library, follower, .. } = self;
            library.alone(|| {
                follower.follow(library);
                follower.check(library, &self.world, any, cleared);
            });
        }
        self.seen.out_of_memory = self.library.out_of_memory.get();
        self.seen.dropped = self.library.stats().dropped_checkpoint_count;
    }

    pub(super) fn prompt(&mut self) -> Vec<u32> {
        // Short ones grow, and may lose all of that again.
        let is_short = self.rng.u32(..6) == 0;
        let most = if is_short { self.page_size() } else { self.pages_long(7) + 2 };
        let mut ids = Vec::new();
        if !self.asked.is_empty() {
            let before = &self.asked[self.rng.usize(..self.asked.len())];
            ids.extend_from_slice(&before[..self.rng.usize(..=before.len())]);
        }
        let more = self.rng.usize(..=most - ids.len().min(most));
        ids.extend((0..more).map(|_| self.rng.u32(..3)));
        ids.truncate(most);
        if ids.is_empty() {
            ids.push(1);
        }
        ids
    }

    fn begin(&mut self) {
        let (tenant, ids) = (self.rng.u32(..2), self.prompt());
        self.library.tell_others(tenant, &ids);
        let chunk = if self.rng.bool() { 1 + self.rng.usize(..3 * self.page_size()) } else { 0 };
        let (before, gone_before) = (self.all_counts(), self.library.gone());
        let clears = self.library.clears();
        let found = self.library.probe(tenant, &ids);
        let info = match self.library.begin(tenant, &ids, chunk) {
            Ok(info) => info,
            Err(status) => {
                let short = [rkv_status::OutOfPages, rkv_status::OutOfSlots];
                let is_long = ids.len().div_ceil(self.page_size()) > self.world.pools[0] as usize;
                assert!(is_long || short.contains(&status), "{status:?}");
                let before = self.without_gone(before, &gone_before);
                let is_same = self.library.clears() != clears || self.all_counts() == before;
                assert!(is_same, "a refused request evicts nothing");
                self.seen.refused += 1;
                return;
            }
        };
        let computed = info.cached_position_count as usize;
        let is_visited = self.library.gone() != gone_before || self.library.clears() != clears;
        // Where a page went, another one that begins alike may have what groups need.
        let most = if is_visited { found.known } else { found.positions };
        assert!(computed < ids.len() && computed <= most);
        let has_one = self.world.groups.len() == 1;
        let known = info.known_position_count as usize;
        assert!(!has_one || known == computed);
        assert!(has_one || known == found.known || (is_visited && known < found.known));
        // Also what groups have and it does not reuse.
        let boundary = |at: usize| at - at % self.page_size();
        let mut saved = vec![boundary(known), boundary(ids.len() - 1)];
        saved.retain(|&at| self.has_states() && at > computed);
        saved.sort_unstable();
        saved.dedup();
        saved.resize(2, 0);
        assert_eq!(info.checkpoint_at.map(|at| at as usize).to_vec(), saved);
        let is_whole = found.positions == found.known || is_visited;
        assert!(info.limiting_group > 0 || has_one || is_whole);
        assert!(info.limiting_group == 0 || (!has_one && computed < known));
        self.seen.begun += 1;
        self.seen.hits += u64::from(computed > 0);
        if self.asked.len() < 40 {
            self.asked.push(ids.clone());
        } else {
            let at = self.rng.usize(..self.asked.len());
            self.asked[at] = ids.clone();
        }
        let waits = info.copy_count > 0;
        let id = info.sequence;
        let publishes = self.rng.u32(..4) > 0;
        self.running.push(Running {
            id,
            tenant,
            prompt: ids.len(),
            ids,
            computed,
            chunk,
            waits,
            parent: 0,
            told: computed,
            accepted: 0,
            clears,
            publishes,
        });
        let at = self.running.len() - 1;
        self.verify(at);
    }

    pub(super) fn is_cleared(&self, request: &Running) -> bool {
        request.clears != self.library.clears()
    }

    fn clear(&mut self) {
        self.library.clear();
        self.seen.cleared += 1;
    }

    pub(super) fn release(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if !self.running[at].waits {
            self.verify(at);
        }
        let may_donate = self.has_states() && !self.running[at].waits && self.is_told(at);
        let request = self.running.swap_remove(at);
        if may_donate && self.rng.bool() {
            return self.donate(&request);
        }
        if !self.slips(Slip::SkippedRelease) {
            self.library.release(request.id);
        }
    }

    /// Ends a request and leaves its states, which are found then.
    fn donate(&mut self, request: &Running) {
        let (id, computed) = (request.id, request.computed);
        let published = self.library.info(id).shared_page_count as usize * self.page_size();
        let gone_before = self.library.gone();
        let count = self.library.donate(id);
        self.seen.donated += count as u64;
        if computed == 0 || computed != published {
            return assert_eq!(count, 0, "they are after {computed} positions");
        }
        if !self.is_cleared(request) {
            self.assert_found(request, &gone_before);
        }
    }

    /// Ends all requests: everything can be evicted then, and each page is free.
    pub fn end(&mut self) {
        while !self.running.is_empty() {
            self.release();
        }
        while !self.found.is_empty() {
            self.let_go();
        }
        while !self.retained.is_empty() {
            self.drop_oldest();
        }
        for pool in 0..self.world.pools.len() {
            let counts = self.library.counts(pool);
            assert_eq!((counts.private, counts.cached), (0, counts.reclaimable), "pool {pool}");
        }
        (0..self.world.pools.len()).rev().for_each(|pool| {
            self.library.evict(pool, 10_000);
        });
        for pool in 0..self.world.pools.len() {
            let counts = self.library.counts(pool);
            assert_eq!(counts.free, counts.total, "pool {pool}");
        }
        assert_eq!(self.library.sequence_counts(), (0, 0), "running and retained");
        self.library.check();
    }
}
