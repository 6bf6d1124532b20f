//! Requests, and a memory that holds what an engine would have computed: the hash of all tokens up
//! to each position, or up to a state. So a page that holds anything else than what a row says is
//! seen, whoever mixed it up.
use super::follower::Follower;
use super::library::{Library, World};
use super::model::Kind;
use super::seen::Seen;
use fastrand::Rng;
use radixkv::capi::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// A request that runs.
struct Running {
    id: rkv_sequence_id,
    tenant: u32,
    ids: Vec<u32>,
    computed: usize,
    /// Positions of a chunk, when pages come chunk by chunk.
    chunk: usize,
    waits: bool,
    parent: rkv_sequence_id,
    /// Positions of which the library was told that they are computed.
    told: usize,
    /// What it publishes is found by nobody: its space was cleared since it began.
    is_cleared: bool,
}

pub struct Requests {
    world: World,
    library: Library,
    rng: Rng,
    running: Vec<Running>,
    retained: Vec<Running>,
    /// Prompts that were asked before.
    asked: Vec<Vec<u32>>,
    /// By pool and page: what it holds at each position; of a state, one number.
    memory: BTreeMap<(usize, u32), Vec<u64>>,
    hasher: RandomState,
    follower: Follower,
    pub seen: Seen,
}

impl Requests {
    pub fn new(world: &World, seed: u64) -> Self {
        Self {
            library: Library::new(world),
            world: world.clone(),
            rng: Rng::with_seed(seed),
            running: Vec::new(),
            retained: Vec::new(),
            asked: Vec::new(),
            memory: BTreeMap::new(),
            hasher: RandomState::new(),
            follower: Follower::default(),
            seen: Seen::default(),
        }
    }

    fn page_size(&self) -> usize {
        self.world.page_size as usize
    }

    /// What is computed of a prefix.
    fn hash(&self, tenant: u32, ids: &[u32]) -> u64 {
        self.hasher.hash_one((tenant, ids))
    }

    pub fn step(&mut self) {
        match self.rng.u32(..100) {
            0..25 => self.begin(),
            25..75 => self.compute(),
            75..83 => self.append(),
            83..88 => self.release(),
            88..90 => self.retain(),
            90..92 => self.fork(),
            92..95 => self.go_on(),
            95 => self.clear(),
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
            self.follower.follow(&self.library);
            let (any, cleared) = (self.rng.usize(..40), self.seen.cleared > 0);
            self.follower.check(&self.library, &self.world, any, cleared);
        }
        self.seen.out_of_memory = self.library.out_of_memory.get();
    }

    fn prompt(&mut self) -> Vec<u32> {
        let most = 7 * self.page_size() + 2;
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
        let chunk = if self.rng.bool() { 1 + self.rng.usize(..3 * self.page_size()) } else { 0 };
        let before: Vec<_> =
            (0..self.world.pools.len()).map(|pool| self.library.counts(pool)).collect();
        let found = self.library.probe(tenant, &ids);
        let info = match self.library.begin(tenant, &ids, chunk) {
            Ok(info) => info,
            Err(status) => {
                let short = [rkv_status::OutOfPages, rkv_status::OutOfSlots];
                let is_long = ids.len().div_ceil(self.page_size()) > self.world.pools[0] as usize;
                assert!(is_long || short.contains(&status), "{status:?}");
                let after = (0..self.world.pools.len()).map(|pool| self.library.counts(pool));
                assert!(after.eq(before), "a refused request evicts nothing");
                self.seen.refused += 1;
                return;
            }
        };
        let computed = info.cached_position_count as usize;
        assert!(computed < ids.len() && computed <= found.positions);
        assert_eq!(info.known_position_count as usize, found.known);
        assert_eq!(info.checkpoint_at.map(|at| at as usize), found.checkpoint_at);
        assert_eq!(info.limiting_group > 0, found.positions < found.known);
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
        self.running.push(Running {
            id,
            tenant,
            ids,
            computed,
            chunk,
            waits,
            parent: 0,
            told: computed,
            is_cleared: false,
        });
        let at = self.running.len() - 1;
        self.verify(at);
    }

    fn has_states(&self) -> bool {
        self.world.groups.iter().any(|of| of.kind == Kind::State)
    }

    /// A state is that of all that is computed, so the library must know how much that is.
    fn is_told(&self, at: usize) -> bool {
        !self.has_states() || self.running[at].told == self.running[at].computed
    }

    /// Children with the same tokens as a request that runs.
    fn fork(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits || !self.is_told(at) {
            return;
        }
        let count = self.rng.usize(1..3);
        let (parent, tenant) = (self.running[at].id, self.running[at].tenant);
        let (ids, computed) = (self.running[at].ids.clone(), self.running[at].computed);
        match self.library.fork(parent, count) {
            Ok(children) => {
                for child in children {
                    let info = self.library.info(child);
                    self.add_child(parent, tenant, ids.clone(), info, computed);
                }
                self.seen.forked += 1;
            }
            Err(status) => {
                assert!([rkv_status::OutOfPages, rkv_status::OutOfSlots].contains(&status));
            }
        }
    }

    fn add_child(
        &mut self,
        parent: rkv_sequence_id,
        tenant: u32,
        ids: Vec<u32>,
        info: rkv_sequence_info,
        most: usize,
    ) {
        let (id, computed) = (info.sequence, info.cached_position_count as usize);
        let is_cleared =
            self.running.iter().any(|request| request.id == parent && request.is_cleared);
        assert!(computed <= most, "no more than was computed");
        self.seen.inherited += u64::from(computed > 0);
        let waits = info.copy_count > 0;
        self.running.push(Running {
            id,
            tenant,
            ids,
            computed,
            chunk: 0,
            waits,
            parent,
            told: computed,
            is_cleared,
        });
        self.verify(self.running.len() - 1);
    }

    fn clear(&mut self) {
        self.library.clear();
        self.running.iter_mut().for_each(|request| request.is_cleared = true);
        self.seen.cleared += 1;
    }

    fn retain(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits || !self.is_told(at) {
            return;
        }
        self.library.retain(self.running[at].id);
        self.seen.retained += 1;
        let request = self.running.swap_remove(at);
        self.retained.push(request);
        if self.retained.len() > 4 {
            let gone = self.retained.remove(0);
            self.library.drop_sequence(gone.id);
        }
    }

    /// A request that goes on from one that was retained.
    fn go_on(&mut self) {
        if self.retained.is_empty() {
            return;
        }
        let parent = &self.retained[self.rng.usize(..self.retained.len())];
        let (id, tenant, computed) = (parent.id, parent.tenant, parent.computed);
        let mut ids = parent.ids.clone();
        if ids.len() > 9 * self.page_size() {
            return;
        }
        let more: Vec<u32> = (0..self.rng.usize(..4)).map(|_| self.rng.u32(..3)).collect();
        match self.library.go_on(id, tenant, &more) {
            Ok(info) => {
                ids.extend(more);
                self.add_child(0, tenant, ids, info, computed);
            }
            Err(status) => {
                // It may have been displaced.
                use rkv_status::{InvalidArgument, OutOfPages, OutOfSlots, StaleSequence};
                let refused = [OutOfPages, OutOfSlots, InvalidArgument, StaleSequence];
                assert!(refused.contains(&status), "{status:?}");
            }
        }
    }

    fn pool_of(&self, group: usize) -> usize {
        self.world.groups[group].pool
    }

    fn is_state(&self, group: usize) -> bool {
        self.world.groups[group].kind == Kind::State
    }

    /// What the next position attends to must be there: mapped or to be copied, and right.
    fn verify(&mut self, at: usize) {
        let request = &self.running[at];
        let copies = self.library.copies(request.id);
        let page_size = self.page_size();
        for (group, of) in self.world.groups.iter().enumerate() {
            let row = self.library.group_row(request.id, group);
            let needs = of.kind.needs(request.computed, page_size).unwrap_or_default();
            if self.is_state(group) {
                if request.computed == 0 {
                    continue;
                }
                let reading = copies.iter().find(|copy| copy.group as usize == group);
                let page = reading.map_or(row[0], |copy| copy.source_page);
                let holds = self.memory.get(&(of.pool, page)).expect("the state was computed");
                let wanted = self.hash(request.tenant, &request.ids[..request.computed]);
                assert_eq!(holds[0], wanted, "the state of group {group}");
                continue;
            }
            for place in needs {
                assert!(row[place] != 0, "group {group} has a hole at {place}");
                let end = request.computed.min((place + 1) * page_size);
                let reading = |copy: &&rkv_page_copy| {
                    copy.group as usize == group && copy.target_page == row[place]
                };
                let page = copies.iter().find(reading).map_or(row[place], |copy| copy.source_page);
                let holds = self.memory.get(&(of.pool, page)).expect("it was computed");
                for position in place * page_size..end {
                    let attended = of.kind.needs(request.computed, 1).unwrap();
                    if attended.contains(&position) {
                        let wanted = self.hash(request.tenant, &request.ids[..=position]);
                        assert_eq!(holds[position % page_size], wanted, "{group} at {position}");
                    }
                }
            }
        }
    }

    /// Carries out what a request waits for.
    fn copy(&mut self, at: usize) {
        let id = self.running[at].id;
        for copy in self.library.copies(id) {
            let (group, count) = (copy.group as usize, copy.position_count as usize);
            let pool = self.pool_of(group);
            let source = self.memory.get(&(pool, copy.source_page)).expect("it holds something");
            let source = source.clone();
            let size = self.page_size();
            let target = self.memory.entry((pool, copy.target_page)).or_default();
            target.clear();
            target.resize(size, 0);
            let count = if self.world.groups[group].kind == Kind::State { 1 } else { count };
            target[..count].copy_from_slice(&source[..count]);
            self.seen.states += u64::from(self.world.groups[group].kind == Kind::State);
            self.seen.partial += u64::from(group == 0);
        }
        self.library.confirm(id);
        self.running[at].waits = false;
    }

    /// Computes the next chunk of a request, and publishes it, or not.
    fn compute(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits {
            self.verify(at);
            return self.copy(at);
        }
        // A step changes the state, which children are still to copy. What they are to copy of a
        // page stays as it is.
        let id = self.running[at].id;
        while self.has_states()
            && let Some(child) =
                self.running.iter().position(|child| child.parent == id && child.waits)
        {
            self.copy(child);
        }
        let request = &self.running[at];
        let (id, left) = (request.id, request.ids.len() - request.computed);
        if left == 0 {
            return;
        }
        let most = if request.chunk > 0 { request.chunk.min(left) } else { left };
        let mut count = self.rng.usize(1..=most);
        if self.rng.bool() {
            // Where a state may be saved.
            let end = (request.computed + count) / self.page_size() * self.page_size();
            count = if end > request.computed { end - request.computed } else { count };
        }
        let end = request.computed + count;
        if let Err(status) = self.library.allocate_positions(id, end) {
            assert_eq!(status, rkv_status::OutOfPages);
            self.seen.refused += 1;
            return;
        }
        self.verify(at);
        self.write(at, end);
        self.running[at].computed = end;
        match self.rng.u32(..10) {
            0..8 => self.publish(at),
            8 => {
                self.library.slide(id, end);
                self.seen.slid += 1;
            }
            _ => {}
        }
        self.verify(at);
    }

    /// Writes what a chunk computes: into pages of the request alone.
    fn write(&mut self, at: usize, end: usize) {
        let page_size = self.page_size();
        let request = &self.running[at];
        let (id, tenant, ids, computed) =
            (request.id, request.tenant, request.ids.clone(), request.computed);
        for group in 0..self.world.groups.len() {
            let (row, pool) = (self.library.group_row(id, group), self.pool_of(group));
            if self.is_state(group) {
                let hash = self.hash(tenant, &ids[..end]);
                self.memory.insert((pool, row[0]), vec![hash; page_size]);
                continue;
            }
            for position in computed..end {
                let page = row[position / page_size];
                assert!(page != 0, "group {group} has no page for position {position}");
                let hash = self.hash(tenant, &ids[..=position]);
                let holds = self.memory.entry((pool, page)).or_default();
                holds.resize(page_size, 0);
                holds[position % page_size] = hash;
            }
        }
    }

    fn publish(&mut self, at: usize) {
        let request = &self.running[at];
        let (id, computed) = (request.id, request.computed);
        let result = self.library.publish(id, computed);
        self.running[at].told = computed;
        self.seen.remapped += result.remapped_page_count;
        let whole = computed.is_multiple_of(self.page_size());
        if !whole || !self.has_states() {
            return;
        }
        match self.library.checkpoint(id) {
            Ok(0) => {}
            // Another one may save the same before this is confirmed.
            Ok(_) if self.rng.bool() => self.running[at].waits = true,
            Ok(_) => {
                self.copy(at);
                self.seen.saved += 1;
                let request = &self.running[at];
                if request.is_cleared {
                    return;
                }
                // Now it is found.
                let mut longer = request.ids[..computed].to_vec();
                longer.push(9);
                let found = self.library.probe(request.tenant, &longer);
                assert_eq!(found.positions, computed, "{found:?}");
            }
            Err(status) => assert_eq!(status, rkv_status::OutOfPages),
        }
    }

    fn append(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        let most = 9 * self.page_size();
        if self.running[at].waits || self.running[at].ids.len() > most {
            return;
        }
        let ids: Vec<u32> = (0..self.rng.usize(1..4)).map(|_| self.rng.u32(..3)).collect();
        match self.library.append(self.running[at].id, &ids) {
            Ok(()) => {
                self.running[at].ids.extend(ids);
                self.seen.appended += 1;
            }
            Err(status) => {
                let refused = [rkv_status::OutOfPages, rkv_status::InvalidArgument];
                assert!(refused.contains(&status), "{status:?}");
            }
        }
    }

    fn release(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        let request = self.running.swap_remove(at);
        self.library.release(request.id);
    }

    /// Ends all requests: everything can be evicted then, and each page is free.
    pub fn end(&mut self) {
        while !self.running.is_empty() {
            self.release();
        }
        for request in std::mem::take(&mut self.retained) {
            self.library.drop_sequence(request.id);
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
        self.library.check();
    }
}
