//! Where long calls let others in: after a few pages already, in some worlds. The state must be
//! whole then; somebody may evict or clear what the call has not got yet, or cut the path that it
//! is on.
use super::library::{Library, World, must, sized};
use fastrand::Rng;
use radixkv::capi::*;
use radixkv::memory::Arc;
use radixkv::store::Shared;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who comes in.
pub struct Yields(Mutex<Visitor>);

struct Visitor {
    table: AtomicPtr<rkv_page_table>,
    cache: AtomicPtr<rkv_cache>,
    /// What decides where it does something; it does so at one of so many moments. None for
    /// nowhere.
    acts: Option<(Rng, u32)>,
    /// What it may look up.
    prompts: Vec<(u32, Vec<u32>)>,
    /// Lookups that each group limited, and the positions that they lost.
    costs: Vec<(u64, u64)>,
    /// What it evicted so far, by group.
    gone: Vec<u64>,
    /// Times that everything was cleared, by whomever.
    clears: u64,
    pool_count: usize,
    moments: u32,
    is_away: bool,
}

/// Moments, of which at one the visitor looks at everything.
const LOOKS: u32 = 40;

/// Locks what is found of a prompt, and unlocks it: its path has a node that ends there now.
fn look_up(cache: *mut rkv_cache, tenant: u32, ids: &[u32]) -> rkv_cache_match_result {
    let (space, list) = (Library::namespace(tenant), Library::tokens(ids));
    let (mut pages, mut found): (_, rkv_cache_match_result) = (vec![0; ids.len()], sized());
    let (into, room) = (pages.as_mut_ptr(), pages.len());
    // SAFETY: as below.
    unsafe {
        must(rkv_cache_match(cache, &space, &list, RKV_MATCH_LOCK, into, room, &mut found));
        if found.lock != 0 {
            must(rkv_cache_unlock(cache, found.lock));
        }
    }
    found
}

/// Evicts from a pool, by a call that `make` makes or repeats: the pages that went, with their
/// groups, and how many the pool got.
fn evict(
    cache: *mut rkv_cache,
    (pool, count): (usize, usize),
    groups: usize,
    make: impl FnOnce(&mut dyn FnMut() -> rkv_status) -> rkv_status,
) -> (Vec<rkv_evicted_page>, usize) {
    let none = rkv_evicted_page { group: 0, page: 0 };
    let mut pages = vec![none; (count + 1) * groups];
    let (mut evicted, mut freed) = (0, 0);
    let (pool, size) = (pool as u32, size_of::<rkv_evicted_page>());
    // SAFETY: the caller's cache is there; the list comes with its length.
    must(make(&mut || unsafe {
        let (into, room) = (pages.as_mut_ptr(), pages.len());
        rkv_cache_evict_pool(cache, pool, count, into, size, room, &mut evicted, &mut freed)
    }));
    pages.truncate(evicted);
    (pages, freed)
}

impl Visitor {
    fn act(&mut self, cache: *mut rkv_cache) {
        let (rng, _) = self.acts.as_mut().expect("it does something");
        if rng.u32(..3) == 0 && !self.prompts.is_empty() {
            let (tenant, ids) = &self.prompts[rng.usize(..self.prompts.len())];
            let found = look_up(cache, *tenant, &ids[..rng.usize(1..=ids.len())]);
            if found.limiting_group > 0 {
                let (lookups, positions) = &mut self.costs[found.limiting_group as usize];
                *lookups += 1;
                *positions += found.known_position_count - found.position_count;
            }
            return;
        }
        if rng.u32(..60) == 0 {
            self.clears += 1;
            let args = rkv_cache_clear_args { flags: RKV_CLEAR_EVERYTHING, ..sized() };
            // SAFETY: the cache is there.
            return must(unsafe { rkv_cache_clear(cache, &args, &mut sized()) });
        }
        let count = if rng.u32(..8) == 0 { 5 } else { 1 };
        let pool = rng.usize(..self.pool_count);
        let (pages, _) = evict(cache, (pool, count), self.gone.len(), |call| call());
        pages.iter().for_each(|page| self.gone[page.group as usize] += 1);
    }

    fn come(&mut self) {
        let (table, cache) = (*self.table.get_mut(), *self.cache.get_mut());
        if table.is_null() || self.is_away {
            return;
        }
        let is_there = !cache.is_null();
        let acts = self.acts.as_mut().is_some_and(|(rng, rate)| rng.u32(..*rate) == 0);
        if acts && is_there {
            self.act(cache);
        }
        self.moments = (self.moments + 1) % LOOKS;
        if self.moments == 0 {
            // SAFETY: both are there for as long as their owner has said.
            unsafe {
                must(rkv_page_table_check(table));
                if is_there {
                    must(rkv_cache_check(cache));
                }
            }
        }
    }
}

impl Yields {
    pub fn of(world: &World) -> Self {
        Self(Mutex::new(Visitor {
            table: AtomicPtr::new(null_mut()),
            cache: AtomicPtr::new(null_mut()),
            acts: None,
            prompts: Vec::new(),
            costs: vec![(0, 0); world.groups.len()],
            gone: vec![0; world.groups.len()],
            clears: 0,
            pool_count: world.pools.len(),
            moments: 0,
            is_away: false,
        }))
    }

    fn visitor(&self) -> MutexGuard<'_, Visitor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a visitor may use; NULL for nothing, before it is destroyed.
    pub fn set_table(&self, table: *mut rkv_page_table) {
        self.visitor().table.store(table, Ordering::Relaxed);
    }

    pub fn set_cache(&self, cache: *mut rkv_cache) {
        self.visitor().cache.store(cache, Ordering::Relaxed);
    }

    /// A page table of a world's, with small slices if it says so. Nobody comes where a request for
    /// memory fails, as it may be the visitor's.
    pub fn create_table(
        self: &std::sync::Arc<Self>,
        config: &rkv_page_table_config,
        world: &World,
    ) -> *mut rkv_page_table {
        let (slice, mut table) = (world.slice, null_mut());
        let this = self.clone();
        // What a visitor does lets nobody in once more.
        let at_yield = move || {
            if let Ok(mut visitor) = this.0.try_lock() {
                visitor.come();
            }
        };
        let at_yield = (!world.failures).then(|| Box::new(at_yield) as _);
        // SAFETY: the config's lists live as long as it does.
        must(unsafe {
            match slice {
                0 => rkv_page_table_create(config, &mut table),
                _ => create_page_table(config, &mut table, |config| {
                    Ok(Arc::new(Shared::with_slices(config, slice, at_yield)?)?)
                }),
            }
        });
        self.set_table(table);
        table
    }
}

impl Library {
    /// Whether others come in between, and so may evict.
    pub fn may_be_visited(&self) -> bool {
        self.world.slice > 0 && !self.world.failures
    }

    /// From now on somebody does something where others are let in.
    pub fn let_others_act(&self, seed: usize) {
        let rate = [4, 30, 250][seed % 3];
        self.yields.visitor().acts = Some((Rng::with_seed(seed as u64), rate));
    }

    /// What others may look up.
    pub fn tell_others(&self, tenant: u32, ids: &[u32]) {
        let prompts = &mut self.yields.visitor().prompts;
        if prompts.len() < 40 {
            prompts.push((tenant, ids.to_vec()));
        }
    }

    /// Lookups of others that each group limited, and the positions that they lost.
    pub fn costs_of_others(&self) -> Vec<(u64, u64)> {
        self.yields.visitor().costs.clone()
    }

    /// Does something in the midst of which nobody comes.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        self.yields.visitor().is_away = true;
        let done = work();
        self.yields.visitor().is_away = false;
        done
    }

    /// Times that everything was cleared.
    pub fn clears(&self) -> u64 {
        self.yields.visitor().clears
    }

    /// Notes that everything is about to be cleared.
    pub fn note_clear(&self) {
        self.yields.visitor().clears += 1;
    }

    /// What others evicted in the middle of calls, by group.
    pub fn gone(&self) -> Vec<u64> {
        self.yields.visitor().gone.clone()
    }

    /// The pages that went, with their groups, and how many the pool got.
    pub fn evict(&self, pool: usize, count: usize) -> (Vec<(usize, u32)>, usize) {
        let (before, gone_before, clears) = (self.group_stats(), self.gone(), self.clears());
        let groups = self.world.groups.len();
        let (pages, freed) = evict(self.cache, (pool, count), groups, |call| self.call(call));
        let gone = self.gone();
        for (group, (before, after)) in before.iter().zip(self.group_stats()).enumerate() {
            let went = pages.iter().filter(|page| page.group == after.group).count() as u64;
            let went = went + gone[group] - gone_before[group];
            assert_eq!(after.evicted_page_count - before.evicted_page_count, went);
            let left = before.cached_page_count - after.cached_page_count;
            assert!(left == went || (left > went && self.clears() != clears));
        }
        (pages.iter().map(|page| (page.group as usize, page.page)).collect(), freed)
    }
}
