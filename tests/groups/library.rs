//! The library through its header, as an engine with several groups and books of its own uses it.
use super::failing::{Failure, failing};
use super::model::{Group, Kind};
use super::yields::Yields;
use radixkv::capi::*;
use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
use std::sync::Arc;

pub fn sized<T: Copy>() -> T {
    let mut made = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: called for structs of the header alone: repr(C), plain integers and pointers, for
    // which zero is a value, with struct_size: u32 first.
    unsafe {
        made.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        made.assume_init()
    }
}

#[track_caller]
pub fn must(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

/// How a page table is made.
#[derive(Debug, Clone)]
pub struct World {
    pub page_size: u32,
    pub groups: Vec<Group>,
    /// Pages of each pool that can be handed out.
    pub pools: Vec<u32>,
    pub external: bool,
    pub whole_pages: bool,
    /// The room of a journal; 0 for none.
    pub journal_bytes: u64,
    /// States of a path at most; 0 for any number.
    pub checkpoint_limit: u64,
    pub failures: bool,
    /// Pages after which a long call lets others in; 0 for as many as an engine has.
    pub slice: usize,
    /// How many times as long prompts are as usual.
    pub reach: usize,
}

#[derive(Debug)]
pub struct Match {
    pub pages: Vec<u32>,
    pub partial_page: u32,
    pub positions: usize,
    pub known: usize,
    pub checkpoint_at: [usize; 2],
    pub limiting_group: usize,
    pub node: rkv_node_id,
    pub lock: rkv_lock_id,
}

#[derive(Debug)]
pub struct Probe {
    pub positions: usize,
    pub known: usize,
    pub checkpoint_at: [usize; 2],
    pub lost: Vec<usize>,
}

/// Pages of a prefix, by group; 0 for a hole.
pub type Rows = Vec<Vec<u32>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub total: u64,
    pub free: u64,
    pub cached: u64,
    pub private: u64,
    pub outside: u64,
    pub reclaimable: u64,
    pub retained: u64,
}

pub struct Library {
    pub(super) world: World,
    pub(super) yields: Arc<Yields>,
    table: *mut rkv_page_table,
    pub cache: *mut rkv_cache,
    /// Calls that were refused for want of memory.
    pub out_of_memory: Cell<u64>,
    /// Lookups that each group limited, and the positions that they lost.
    costs: RefCell<Vec<(u64, u64)>>,
}

impl Drop for Library {
    fn drop(&mut self) {
        self.yields.set_cache(null_mut());
        // SAFETY: both were created by this object, which is their last user.
        unsafe {
            rkv_cache_destroy(self.cache);
            self.yields.set_table(null_mut());
            rkv_page_table_destroy(self.table);
        }
    }
}

pub fn group_config(group: &Group) -> rkv_group_config {
    // SAFETY: plain integers.
    let mut made: rkv_group_config = unsafe { std::mem::zeroed() };
    (made.pool, made.draft_state_count) = (group.pool as u32, group.drafts as u32);
    match group.kind {
        Kind::Full => made.kind = RKV_GROUP_FULL,
        Kind::Window(window, sinks) => {
            (made.kind, made.window, made.sinks) = (RKV_GROUP_WINDOW, window as u32, sinks as u32);
        }
        Kind::Chunk(chunk) => (made.kind, made.chunk) = (RKV_GROUP_CHUNK, chunk as u32),
        Kind::State => made.kind = RKV_GROUP_STATE,
    }
    made
}

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and the library keeps none of them.
impl Library {
    pub fn new(world: &World) -> Self {
        let groups: Vec<_> = world.groups.iter().map(group_config).collect();
        let pool = |&pages: &u32| rkv_pool_config { page_count: pages + 1, reserved: 0 };
        let pools: Vec<_> = world.pools.iter().map(pool).collect();
        let config = rkv_page_table_config {
            page_size: world.page_size,
            slot_count: 6,
            flags: if world.external { RKV_PAGE_TABLE_EXTERNAL_POOL } else { 0 },
            groups: groups.as_ptr(),
            group_count: groups.len(),
            group_size: size_of::<rkv_group_config>(),
            pools: pools.as_ptr(),
            pool_count: pools.len(),
            pool_size: size_of::<rkv_pool_config>(),
            ..sized()
        };
        let yields = Arc::new(Yields::of(world));
        let table = yields.create_table(&config, world);
        let mut made = Self {
            world: world.clone(),
            yields,
            table,
            cache: null_mut(),
            out_of_memory: Cell::new(0),
            costs: RefCell::default(),
        };
        made.start_cache();
        made
    }

    fn start_cache(&mut self) {
        let flags = if self.world.whole_pages { RKV_CACHE_WHOLE_PAGES } else { 0 };
        let World { journal_bytes, checkpoint_limit, .. } = self.world;
        let config = rkv_cache_config { flags, journal_bytes, checkpoint_limit, ..sized() };
        // SAFETY: see above.
        must(unsafe { rkv_cache_create(self.table, &config, &mut self.cache) });
        self.yields.set_cache(self.cache);
        self.costs = RefCell::new(vec![(0, 0); self.world.groups.len()]);
    }

    /// Counts what a lookup lost, as the library does.
    pub fn note_cost(&self, group: u32, known: u64, used: u64) {
        if group > 0 {
            let (lookups, positions) = &mut self.costs.borrow_mut()[group as usize];
            (*lookups, *positions) = (*lookups + 1, *positions + known - used);
        }
    }

    /// Destroys the cache and makes another one; `between` is called when there is none.
    pub fn restart_cache(&mut self, between: &mut dyn FnMut(&Self)) {
        self.yields.set_cache(null_mut());
        // SAFETY: see above.
        unsafe { rkv_cache_destroy(self.cache) };
        self.cache = null_mut();
        between(self);
        // SAFETY: see above.
        must(unsafe { rkv_page_table_check(self.table) });
        self.start_cache();
    }

    /// Makes a call; with failures again and again, with one more of its requests for memory
    /// granted each time.
    pub fn call(&self, made: &mut dyn FnMut() -> rkv_status) -> rkv_status {
        if !self.world.failures {
            return made();
        }
        let before = self.look();
        for request in 0.. {
            for failure in [Failure::From(request), Failure::Once(request)] {
                let (status, failed) = failing(failure, &mut *made);
                if status != rkv_status::OutOfMemory {
                    return status;
                }
                assert!(failed > 0, "there was memory");
                let after = self.look();
                assert!(after == before, "without memory {before:?} became {after:?}");
                self.out_of_memory.set(self.out_of_memory.get() + 1);
            }
        }
        unreachable!("a call ends")
    }

    /// What becomes of a second cache.
    pub fn create_cache(&self, config: &rkv_cache_config) -> rkv_status {
        let mut cache = null_mut();
        // SAFETY: see above.
        unsafe { rkv_cache_create(self.table, config, &mut cache) }
    }

    pub fn cache(&self) -> *mut rkv_cache {
        self.cache
    }

    pub fn table(&self) -> *mut rkv_page_table {
        self.table
    }

    /// The number of the newest record of the journal; 0 without one.
    fn newest_record(&self) -> u64 {
        if self.world.journal_bytes == 0 {
            return 0;
        }
        let (buffers, mut read): (rkv_journal_buffers, rkv_cache_read_journal_result) =
            (sized(), sized());
        // SAFETY: see above.
        must(unsafe { rkv_cache_read_journal(self.cache, 0, &buffers, &mut read) });
        read.newest_number
    }

    pub fn namespace(tenant: u32) -> rkv_namespace {
        rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id: u64::from(tenant), ..sized() }
    }

    pub fn tokens(ids: &[u32]) -> rkv_tokens {
        rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
    }

    pub fn dump(&self, format: u32) -> String {
        let (mut bytes, mut text) = (0, Vec::new());
        // SAFETY: see above.
        unsafe {
            must(rkv_cache_dump(self.cache, format, null_mut(), 0, &mut bytes));
            text.resize(bytes, 0);
            must(rkv_cache_dump(self.cache, format, text.as_mut_ptr().cast(), bytes, &mut bytes));
        }
        assert_eq!(text.pop(), Some(0));
        String::from_utf8(text).unwrap()
    }

    /// Everything that a refused call could have changed.
    fn look(&self) -> (String, u64, Vec<Counts>) {
        self.check();
        let counts = (0..self.world.pools.len()).map(|pool| self.counts(pool));
        if self.world.slice == 0 {
            return (self.dump(RKV_DUMP_JSON), self.newest_record(), counts.collect());
        }
        // What a call holds while it lets others in is a node of its own, and counts as used; what
        // it evicted before memory ran out is free.
        let evicts = |Counts { free, cached, .. }: &Counts| free + cached;
        let counts = counts.map(|of| Counts { free: evicts(&of), cached: 0, reclaimable: 0, ..of });
        (String::new(), 0, counts.collect())
    }

    pub fn lookup(&self, tenant: u32, ids: &[u32], lock: bool) -> Match {
        let (space, list) = (Self::namespace(tenant), Self::tokens(ids));
        let mut pages = vec![0; ids.len() / self.world.page_size as usize + 1];
        let mut found: rkv_cache_match_result = sized();
        let flags = if lock { RKV_MATCH_LOCK } else { 0 };
        // SAFETY: see above.
        must(self.call(&mut || unsafe {
            let (into, room) = (pages.as_mut_ptr(), pages.len());
            rkv_cache_match(self.cache, &space, &list, flags, into, room, &mut found)
        }));
        pages.truncate(found.page_count as usize);
        self.note_cost(found.limiting_group, found.known_position_count, found.position_count);
        Match {
            pages,
            partial_page: found.partial_page,
            positions: found.position_count as usize,
            known: found.known_position_count as usize,
            checkpoint_at: found.checkpoint_at.map(|at| at as usize),
            limiting_group: found.limiting_group as usize,
            node: found.node,
            lock: found.lock,
        }
    }

    pub fn probe(&self, tenant: u32, ids: &[u32]) -> Probe {
        let (space, list, mut count) = (Self::namespace(tenant), Self::tokens(ids), 0);
        let mut depths: rkv_group_depths = sized();
        let none = rkv_group_cost { group: 0, reserved: 0, lost_position_count: 0 };
        let mut costs = [none; RKV_GROUP_LIMIT as usize];
        let (size, mut positions) = (size_of::<rkv_group_cost>(), 0);
        let (gone_before, clears) = (self.gone(), self.clears());
        // SAFETY: see above.
        unsafe {
            must(self.call(&mut || {
                let (into, room) = (costs.as_mut_ptr(), costs.len());
                let (cache, out) = (self.cache, &mut count);
                rkv_cache_probe_groups(cache, &space, &list, into, size, room, out, &mut depths)
            }));
            must(rkv_cache_probe(self.cache, &space, &list, null_mut(), &mut positions));
        }
        let is_visited = self.gone() != gone_before || self.clears() != clears;
        assert!(is_visited || positions as u64 == depths.position_count, "both probes agree");
        assert!(costs[..count].iter().enumerate().all(|(at, cost)| cost.group as usize == at));
        Probe {
            positions: depths.position_count as usize,
            known: depths.known_position_count as usize,
            checkpoint_at: depths.checkpoint_at.map(|at| at as usize),
            lost: costs[..count].iter().map(|cost| cost.lost_position_count as usize).collect(),
        }
    }

    pub fn lock(&self, node: rkv_node_id) -> rkv_lock_id {
        let mut lock = 0;
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_cache_lock(self.cache, node, &mut lock) }));
        lock
    }

    pub fn unlock(&self, lock: rkv_lock_id) {
        // SAFETY: see above.
        must(self.call(&mut || unsafe { rkv_cache_unlock(self.cache, lock) }));
    }

    /// Inserts, and locks if asked; what is published then, by group, the pages claimed and
    /// duplicate of group 0 and of the others, and the lock.
    pub fn insert(
        &self,
        tenant: u32,
        ids: &[u32],
        rows: &Rows,
        lock: bool,
    ) -> Result<(Rows, [usize; 4], rkv_lock_id), rkv_status> {
        let done = self.insert_after((tenant, ids), rows, (lock, 0), (0, 0));
        done.map(|(published, counts, lock, _)| (published, counts, lock))
    }

    /// The same from a node on, which so many pages lead to, moving a lock unless it is 0. Besides
    /// the node at the end.
    #[allow(clippy::type_complexity)]
    pub fn insert_after(
        &self,
        (tenant, ids): (u32, &[u32]),
        rows: &Rows,
        (lock, moved): (bool, rkv_lock_id),
        (node, pages): (rkv_node_id, usize),
    ) -> Result<(Rows, [usize; 4], rkv_lock_id, rkv_node_id), rkv_status> {
        let (space, list) = (Self::namespace(tenant), Self::tokens(ids));
        let mut published: Rows = rows.iter().map(|row| vec![u32::MAX; row.len()]).collect();
        let group_rows: Vec<_> = (1..rows.len())
            .map(|group| rkv_group_row {
                group: group as u32,
                reserved: 0,
                pages: rows[group].as_ptr(),
                page_count: rows[group].len(),
                published_pages: published[group].as_mut_ptr(),
            })
            .collect();
        let args = rkv_cache_insert_args {
            flags: if lock { RKV_INSERT_LOCK } else { 0 },
            space: &space,
            tokens: &list,
            pages: rows[0].as_ptr(),
            page_count: rows[0].len(),
            from_node: node,
            from_token_index: (pages * self.world.page_size as usize) as u64,
            from_page_index: pages as u64,
            lock: moved,
            groups: if group_rows.is_empty() { null() } else { group_rows.as_ptr() },
            group_count: group_rows.len(),
            group_size: size_of::<rkv_group_row>(),
            ..sized()
        };
        let mut result: rkv_cache_insert_result = sized();
        let spine = published[0].as_mut_ptr();
        // SAFETY: see above.
        let status =
            self.call(&mut || unsafe { rkv_cache_insert(self.cache, &args, spine, &mut result) });
        if status != rkv_status::Ok {
            assert!(published.iter().flatten().all(|&page| page == u32::MAX), "it was refused");
            return Err(status);
        }
        let counts = [
            result.claimed_page_count,
            result.duplicate_page_count,
            result.claimed_group_page_count,
            result.duplicate_group_page_count,
        ];
        Ok((published, counts.map(|count| count as usize), result.lock, result.node))
    }

    pub fn allocate(&self, pool: usize, count: usize) -> Result<Vec<u32>, rkv_status> {
        let mut pages = vec![0; count];
        // SAFETY: see above.
        let status = self.call(&mut || unsafe {
            let into = pages.as_mut_ptr();
            rkv_page_table_allocate_pool_pages(self.table, pool as u32, count, into)
        });
        if status == rkv_status::Ok { Ok(pages) } else { Err(status) }
    }

    pub fn free(&self, pool: usize, pages: &[u32]) {
        let (pages, count) = (pages.as_ptr(), pages.len());
        // SAFETY: see above.
        must(unsafe { rkv_page_table_free_pool_pages(self.table, pool as u32, pages, count) });
    }

    pub fn shortage(&self) -> rkv_shortage {
        let mut shortage = sized();
        // SAFETY: see above.
        must(unsafe { rkv_last_shortage(&mut shortage) });
        shortage
    }

    pub fn counts(&self, pool: usize) -> Counts {
        let mut stats: rkv_pool_stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_page_table_read_pool_stats(self.table, pool as u32, &mut stats) });
        let counts = Counts {
            total: stats.total_page_count,
            free: stats.free_page_count,
            cached: stats.cached_page_count,
            private: stats.private_page_count,
            outside: stats.outside_page_count,
            reclaimable: stats.reclaimable_page_count,
            retained: stats.retained_page_count,
        };
        let Counts { total, free, cached, private, outside, .. } = counts;
        assert_eq!(free + cached + private + outside, total, "each page is in one state");
        counts
    }

    #[allow(dead_code)] // of tests/groups_memory.rs
    pub fn counted_bytes(&self) -> usize {
        let (mut cache, mut table): (rkv_cache_stats, rkv_page_table_stats) = (sized(), sized());
        // SAFETY: see above.
        unsafe {
            must(rkv_cache_read_stats(self.cache, &mut cache));
            must(rkv_page_table_read_stats(self.table, &mut table));
        }
        (table.memory_bytes + cache.index_bytes) as usize
    }

    pub fn stats(&self) -> rkv_cache_stats {
        let mut stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_cache_read_stats(self.cache, &mut stats) });
        stats
    }

    pub fn group_stats(&self) -> Vec<rkv_group_stats> {
        let size = size_of::<rkv_group_stats>();
        // SAFETY: plain integers.
        let mut stats =
            vec![unsafe { std::mem::zeroed::<rkv_group_stats>() }; RKV_GROUP_LIMIT as usize];
        let mut count = 0;
        // SAFETY: see above.
        must(unsafe {
            let (into, room) = (stats.as_mut_ptr(), stats.len());
            rkv_cache_read_group_stats(self.cache, into, size, room, &mut count)
        });
        stats.truncate(count);
        stats
    }

    pub fn check(&self) {
        // SAFETY: see above.
        unsafe {
            must(rkv_page_table_check(self.table));
            must(rkv_cache_check(self.cache));
        }
        let stats = self.group_stats();
        let told =
            stats.iter().map(|stats| (stats.limited_lookup_count, stats.lost_position_count));
        let costs = self.costs.borrow().clone().into_iter().zip(self.costs_of_others());
        let costs = costs.map(|(own, others)| (own.0 + others.0, own.1 + others.1));
        assert_eq!(told.collect::<Vec<_>>(), costs.collect::<Vec<_>>());
        for pool in 0..self.world.pools.len() {
            let of_pool =
                stats.iter().zip(&self.world.groups).filter(|(_, group)| group.pool == pool);
            let cached: u64 = of_pool.map(|(stats, _)| stats.cached_page_count).sum();
            assert_eq!(cached, self.counts(pool).cached);
        }
    }
}
