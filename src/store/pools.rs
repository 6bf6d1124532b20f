//! Pools by number: their pages by state, pages for callers, and evictions that name the pool.
use super::group_cache::GroupCache;
use super::group_rows::ByPool;
use super::{PrefixCache, Shared, State, Turn};
use crate::error::{Error, Shortage, text};
use crate::group::{Class, Groups, HungPage};
use crate::index::Portion;
use crate::journal::{Journal, Reason};
use crate::paging::PageTable;

/// Pages of a pool by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Pages that can be handed out.
    pub total: usize,
    /// Pages in the pool.
    pub free: usize,
    /// Pages of the cache.
    pub cached: usize,
    /// Pages of rows, retained sequences, open copies and callers.
    pub private: usize,
    /// Pages of an external pool that are not cached.
    pub outside: usize,
    /// Cached pages that eviction could free.
    pub reclaimable: usize,
    /// Pages that retained sequences keep, each counted once.
    pub retained: usize,
}

/// A page that an eviction took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictedPage {
    /// Its group.
    pub group: usize,
    /// Its number in the group's pool.
    pub page: u32,
}

impl GroupCache {
    /// Puts back what hangs on pages of the spine that go, the last of them first.
    pub(super) fn put_back_hung(
        &mut self,
        table: &mut PageTable,
        spine: &[u32],
        report: &mut dyn FnMut(HungPage, usize, u32),
    ) {
        for &spine in spine.iter().rev() {
            for (group, config) in self.groups.hung() {
                let hung = HungPage { group, page: self.hung.page(group, spine) };
                if hung.page != 0 {
                    let pool = config.pool as usize;
                    self.hung.take_down(hung);
                    table.pool_at_mut(pool).put_back_all(&[hung.page]);
                    report(hung, pool, spine);
                }
            }
        }
    }

    /// Writes down that what hangs on a page of the spine goes with the cache.
    pub(super) fn tell_destroyed(&self, journal: &mut Journal, spine: u32) {
        for (group, config) in self.groups.hung() {
            let hung = HungPage { group, page: self.hung.page(group, spine) };
            if hung.page != 0 {
                journal.take_down(hung, config.pool as usize, spine, Reason::Destroyed);
            }
        }
    }
}

impl PrefixCache {
    /// Pages of a pool that eviction could free. O(1).
    pub(crate) fn reclaimable_of(&self, pool: usize) -> usize {
        let spine = if pool == 0 { self.index.reclaimable_pages() } else { 0 };
        spine + self.groups.as_ref().map_or(0, |groups| groups.hung.reclaimable(pool))
    }

    /// Evicts until a pool has got so many pages, or a few more: a page of the spine takes all that
    /// hangs on it. First those go that no end of what is cached needs, then the least recently
    /// used of all groups.
    pub(super) fn evict_from_pool(
        &mut self,
        table: &mut PageTable,
        (pool, most): (usize, Portion),
        reason: Reason,
        report: &mut dyn FnMut(usize, &[u32]),
    ) -> usize {
        let in_pool = table.groups().in_pool(pool as u32);
        // As long as nothing else of the pool goes with them, many at once.
        let spine_alone = in_pool.iter().filter(|&&is_in| is_in).count() == 1;
        let (mut done, mut runs) = (0, most.runs);
        let mut count = |group: usize, pages: &[u32]| {
            done += if in_pool[group] { pages.len() } else { 0 };
            report(group, pages);
            done
        };
        let mut so_far = 0;
        while so_far < most.pages && runs > 0 {
            runs -= 1;
            // Of an external pool what was cleared waits for this, whatever pool it is in.
            let is_cleared = table.pool.is_external() && self.index.has_cleared();
            let groups = self.groups.as_deref_mut().expect("there are several groups");
            let next = groups.hung.next(pool);
            let spine = Some(&self.index).filter(|_| pool == 0);
            let spine = spine.and_then(|index| index.victim_time());
            let takes_spine = match (next, spine) {
                _ if is_cleared => true,
                (None, None) => break,
                (None, Some(_)) => true,
                (Some((_, Class::Tail, time)), Some(spine)) => spine <= time,
                (Some(_), _) => false,
            };
            if takes_spine {
                let pages = if spine_alone && pool == 0 { most.pages - so_far } else { 1 };
                let portion = Portion { pages, runs: 1 };
                self.evict_spine(table, portion, reason, &mut |group, pages| {
                    so_far = count(group, pages);
                });
            } else if let Some((page, ..)) = next {
                let spine = groups.hung.take_down(page);
                table.pool_at_mut(pool).put_back_all(&[page.page]);
                if let Some(journal) = &mut self.journal {
                    journal.take_down(page, pool, spine, reason);
                }
                groups.counters[page.group].evicted += 1;
                self.counters.evicted_pages += 1;
                so_far = count(page.group, &[page.page]);
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.end_removal();
        }
        so_far
    }
}

impl State {
    /// Whether the page table has groups beside the first.
    #[inline]
    pub(crate) fn has_groups(&self) -> bool {
        self.table.has_groups()
    }

    /// The groups of the page table.
    pub fn groups(&self) -> Groups {
        *self.table.groups()
    }

    /// How many there are.
    pub fn group_count(&self) -> usize {
        self.table.groups().list().len()
    }

    /// Pages of a pool by state.
    pub fn pool_stats(&self, pool: u32) -> Result<PoolStats, Error> {
        let at = self.table.check_pool(pool)?;
        let pool = self.table.pool_at(at);
        Ok(PoolStats {
            total: pool.total(),
            free: pool.free(),
            cached: pool.cached(),
            private: pool.private(),
            outside: pool.outside(),
            reclaimable: self.reclaimable_in(at),
            retained: self.retained_in_pool(at),
        })
    }

    /// Pages of a pool that evictions free at once: of those that could go, one that a tier is
    /// copying comes later.
    #[inline]
    pub(super) fn reclaimable_in(&self, pool: usize) -> usize {
        let reclaimable = self.cache.as_ref().map_or(0, |cache| cache.reclaimable_of(pool));
        reclaimable.saturating_sub(self.table.pool_at(pool).copied().1)
    }

    /// Pages of a pool that an allocation could have.
    pub(crate) fn room_in(&self, pool: usize) -> usize {
        self.table.pool_at(pool).free() + self.reclaimable_in(pool)
    }

    /// Pages of a pool that retained sequences keep.
    pub(super) fn retained_in_pool(&self, pool: usize) -> usize {
        let Some(cache) = &self.cache else { return 0 };
        let of_spine = if pool == 0 { self.retained.pages(Some(cache)) } else { 0 };
        of_spine + self.retained.pages_in_groups(pool, cache)
    }

    /// Refuses pages of a pool that can't be had even by evicting everything but `protected` more.
    pub(crate) fn check_pool_room(
        &self,
        pool: usize,
        needed: usize,
        protected: usize,
    ) -> Result<(), Error> {
        if pool == 0 {
            return self.check_room(needed, protected);
        }
        let of = self.table.pool_at(pool);
        let reclaimable = self.reclaimable_in(pool).saturating_sub(protected);
        let free = of.free();
        if needed <= free + reclaimable {
            return Ok(());
        }
        Err(Error::OutOfPages(Shortage {
            pool,
            needed,
            free,
            reclaimable,
            locked: of.cached() - reclaimable,
            private: of.private(),
            retained: self.retained_in_pool(pool),
        }))
    }

    /// Evicts until a pool has so many pages, which are few. It was seen that this can be done.
    pub(crate) fn free_up_pool(&mut self, pool: usize, count: usize) {
        loop {
            let missing = count.saturating_sub(self.table.pool_at(pool).free());
            if missing == 0 {
                return;
            }
            let (cache, table) = self.parts().expect("what is evicted is of a cache");
            let most = (pool, Portion::of(missing));
            let evicted = cache.evict_from_pool(table, most, Reason::Capacity, &mut |_, _| {});
            // What a tier is copying comes later.
            assert!(evicted > 0, "what is reclaimable can be evicted");
            self.housekeeping.evicted(evicted);
        }
    }
}

impl Turn<'_> {
    /// Evicts until each pool has so many pages, which it was seen that it can have. True when
    /// others were let in: all may be different then.
    pub(crate) fn make_pools_free(&mut self, count: &ByPool) -> Result<bool, Error> {
        let pools = self.table.pool_count();
        for (pool, count) in count.iter().take(pools).enumerate() {
            loop {
                let missing = count.saturating_sub(self.table.pool_at(pool).free());
                if missing == 0 {
                    break;
                }
                let most = (pool, self.shared.portion(missing));
                let (cache, table) = self.state().parts()?;
                let evicted = cache.evict_from_pool(table, most, Reason::Capacity, &mut |_, _| {});
                assert!(evicted > 0, "what is reclaimable can be evicted");
                self.state().housekeeping.evicted(evicted);
                if evicted < missing && self.let_waiting_in() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl Shared {
    /// Refuses an eviction that could not tell its caller of pages of other pools.
    pub fn check_told_by_pool(&self) -> Result<(), Error> {
        if self.has_external_pool() && self.group_count() > 1 {
            return Err(Error::unsupported(
                "with several groups an eviction takes pages of other pools too, which \
                 rkv_cache_evict_pool() reports",
            ));
        }
        Ok(())
    }

    /// Allocates pages of a pool for the caller, all or none; evicts in slices what is missing.
    pub fn allocate_pool_pages(&self, pool: u32, count: usize) -> Result<Vec<u32>, Error> {
        let at = self.read().table.check_pool(pool)?;
        if at == 0 {
            return self.allocate_pages(count);
        }
        let mut turn = self.turn();
        turn.check_own_pool()?;
        turn.check_pool_room(at, count, 0)?;
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| Error::memory("a list of pages"))?;
        if count > self.pool_slice {
            turn.take_loose_in_slices(at, count, &mut pages)?;
            return Ok(pages);
        }
        loop {
            let missing = count.saturating_sub(turn.table.pool_at(at).free());
            if missing == 0 {
                turn.table.pool_at_mut(at).take_loose(count, &mut pages);
                return Ok(pages);
            }
            let most = (at, self.portion(missing));
            let (cache, table) = turn.state().parts()?;
            let evicted = cache.evict_from_pool(table, most, Reason::Capacity, &mut |_, _| {});
            turn.state().housekeeping.evicted(evicted);
            // Who was let in may have taken what there was.
            if evicted == 0 || (evicted < missing && turn.let_waiting_in()) {
                turn.check_pool_room(at, count, 0)?;
            }
        }
    }

    /// Evicts until a pool has got so many pages, or there are no more to be had; returns how many.
    /// Stops before a step whose pages `report` may have no room for: it has room for so many more.
    pub fn evict_from_pool(
        &self,
        pool: u32,
        count: usize,
        mut room: usize,
        mut report: impl FnMut(EvictedPage),
    ) -> Result<usize, Error> {
        let mut turn = self.turn();
        let at = turn.table.check_pool(pool)?;
        let group_count = turn.table.groups().list().len();
        if count > 0 && room < group_count {
            return Err(Error::argument(text!(
                "capacity {room} is less than the {group_count} pages that may go together"
            )));
        }
        let mut done = 0;
        while done < count && room >= group_count {
            let portion = self.portion(count - done);
            // Each page of group 0 takes one of each group at most, and may be of no pool's good.
            let steps = room / group_count;
            let most = Portion { pages: portion.pages.min(steps), runs: portion.runs.min(steps) };
            let (cache, table) = turn.state().parts()?;
            let clears = table.pool.is_external() && cache.index.has_cleared();
            let mut tell = |group: usize, pages: &[u32]| {
                for &page in pages.iter().rev() {
                    room -= 1;
                    report(EvictedPage { group, page });
                }
            };
            let evicted = match cache.groups {
                // One group draws from the first pool: the cache has nothing of another one.
                None if at > 0 => break,
                None => cache.evict_spine(table, most, Reason::Caller, &mut tell),
                Some(_) => cache.evict_from_pool(table, (at, most), Reason::Caller, &mut tell),
            };
            if evicted == 0 && !clears {
                break;
            }
            turn.state().housekeeping.evicted(evicted);
            done += evicted;
            turn.let_others_in();
        }
        Ok(done)
    }
}
