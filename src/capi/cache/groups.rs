//! What is said and asked by group: costs of a lookup, the pages that a lock protects, evictions.
use crate::capi::cache::{rkv_cache, rkv_lock_id};
use crate::capi::ffi::{
    AbiElement, AbiStruct, WantedElements, check_fit, check_out, out, put, rkv_status, with,
    write_struct,
};
use crate::capi::token::{read_namespace, rkv_namespace, rkv_tokens, with_tokens};
use crate::error::Error;
use crate::group::GROUP_LIMIT;
use crate::ids::HandleId;
use crate::store::GroupStats;

/// The pages of one group along the prefix of rkv_cache_insert_args.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_group_row {
    /// The group: 1 and up. The pages of group 0 are rkv_cache_insert_args.pages.
    pub group: u32,
    /// Zero.
    pub reserved: u32,
    /// A page for each whole page of the tokens, from the prefix' beginning; 0 where there is none.
    /// Of a STATE group: the state after that page. Those before from_page_index are not read.
    pub pages: *const u32,
    /// Number of pages.
    pub page_count: usize,
    /// Receives page_count entries: the cache's page of the group at each whole page of the tokens,
    /// 0 where it has none, and the caller's own after the last whole page. May be NULL, but not
    /// with an external pool.
    pub published_pages: *mut u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_group_row {
    const V1: usize = 32;
}

/// What one group costs of what is known.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_group_cost {
    /// The group.
    pub group: u32,
    /// Zero.
    pub reserved: u32,
    /// Positions that can't be reused because of it. Groups are asked in order, each about what
    /// those before it left: together this is known_position_count - position_count.
    pub lost_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_group_cost {
    const V1: usize = 16;
}

/// How far a prompt is known, and how far it can be reused.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_group_depths {
    /// sizeof(rkv_group_depths).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Positions that rkv_cache_match() would find: every group can reuse them.
    pub position_count: u64,
    /// Positions that are known, whatever groups lack.
    pub known_position_count: u64,
    /// As rkv_cache_match_result.checkpoint_at.
    pub checkpoint_at: [u64; 2],
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_group_depths {
    const NAME: &'static str = "out_depths";
    const V1: usize = 40;
}

/// A group of a cache in numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_group_stats {
    /// The group.
    pub group: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages of the group that the cache owns now.
    pub cached_page_count: u64,
    /// Pages of it that were evicted, those that went with a page of group 0 included.
    pub evicted_page_count: u64,
    /// Matches and rkv_sequence_begin() calls whose limiting_group it was.
    pub limited_lookup_count: u64,
    /// Positions that were known to those, and could not be reused.
    pub lost_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_group_stats {
    const V1: usize = 40;
}

/// Each group in numbers: what the cache has of it, and what it cost since the cache was created.
/// rkv_cache_read_stats() has the totals, rkv_page_table_read_pool_stats() the pages by state.
///
/// @param cache the cache
/// @param groups receives the groups in their order; (NULL, 0) asks for the count
/// @param element_size sizeof(rkv_group_stats); not read with capacity 0
/// @param capacity room in groups; RKV_GROUP_LIMIT is always enough
/// @param out_count receives the number of groups, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(groups); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_group_stats(
    cache: *const rkv_cache,
    groups: *mut rkv_group_stats,
    element_size: usize,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let names = ["groups", "element_size"];
            let mut into = WantedElements::new(groups, element_size, capacity, names)?;
            let state = shared.read();
            let mut stats = [GroupStats::default(); GROUP_LIMIT];
            let stats = &mut stats[..state.group_count()];
            for (group, stats) in stats.iter_mut().enumerate() {
                *stats = state.group_stats(group)?;
            }
            let values = stats.iter().enumerate().map(|(group, stats)| rkv_group_stats {
                group: group as u32,
                reserved: 0,
                cached_page_count: stats.cached as u64,
                evicted_page_count: stats.evicted,
                limited_lookup_count: stats.limited,
                lost_position_count: stats.lost,
            });
            into.fill(values, out_count, "groups")
        })
    }
}

/// How far a prompt is known, how far it can be reused, and which group costs how much of the
/// difference. Changes nothing, like rkv_cache_probe().
///
/// @param cache the cache
/// @param space the namespace; NULL for the default one
/// @param tokens what to look for
/// @param costs receives one for each group; (NULL, 0) asks for the count
/// @param cost_size sizeof(rkv_group_cost); not read when costs is NULL
/// @param capacity room in costs; RKV_GROUP_LIMIT is always enough
/// @param out_count receives the number of groups, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @param out_depths receives the depths; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(tokens + nodes on the path + pages behind the result); shared lock, of a long prompt the lock
/// in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_probe_groups(
    cache: *const rkv_cache,
    space: *const rkv_namespace,
    tokens: *const rkv_tokens,
    costs: *mut rkv_group_cost,
    cost_size: usize,
    capacity: usize,
    out_count: *mut usize,
    out_depths: *mut rkv_group_depths,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            check_fit(out_depths)?;
            let room = if costs.is_null() { 0 } else { capacity };
            let mut costs = WantedElements::new(costs, cost_size, room, ["costs", "cost_size"])?;
            with_tokens(tokens, |tokens| {
                let namespace = read_namespace(space)?;
                let (found, reached) = shared.costs(&namespace, tokens)?;
                let count = shared.group_count();
                let values = (0..count).map(|group| rkv_group_cost {
                    group: group as u32,
                    reserved: 0,
                    lost_position_count: reached.lost[group] as u64,
                });
                costs.fill(values, out_count, "costs")?;
                let depths = found.depths();
                let made = rkv_group_depths {
                    struct_size: 0,
                    reserved: 0,
                    position_count: found.positions() as u64,
                    known_position_count: u64::from(depths.known).max(found.positions() as u64),
                    checkpoint_at: depths.checkpoint_at.map(u64::from),
                };
                write_struct(out_depths, &made)
            })
        })
    }
}

/// A page of a group that a lock protects.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_locked_page {
    /// Its place in the prefix: it covers the positions from page_index * page_size on; of a STATE
    /// group, it is the state after those of this place.
    pub page_index: u32,
    /// The page, in the group's pool.
    pub page: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_locked_page {
    const V1: usize = 8;
}

/// The pages of a group that a lock protects: those that the prefix needs on which the lock was
/// taken, as far as they were there; of a FULL group up to the first that was missing. Of a match
/// with RKV_MATCH_LOCK all are: the pages of the window and the sinks, that of a partial match
/// included, or the checkpoint.
///
/// @param cache the cache
/// @param lock a lock
/// @param group the group, 1 and up: those of group 0 come with the match
/// @param pages receives the pages in the order of their places; (NULL, 0) asks for the count
/// @param element_size sizeof(rkv_locked_page); not read with capacity 0
/// @param capacity room in pages
/// @param out_count receives the number of pages, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages that it protects); shared lock, in portions
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_locked_pages(
    cache: *const rkv_cache,
    lock: rkv_lock_id,
    group: u32,
    pages: *mut rkv_locked_page,
    element_size: usize,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let names = ["pages", "element_size"];
            let mut pages = WantedElements::new(pages, element_size, capacity, names)?;
            let locked = shared.locked_pages(HandleId(lock), group as usize)?;
            let values = locked.iter();
            let values = values.map(|(page_index, page)| rkv_locked_page { page_index, page });
            pages.fill(values, out_count, "pages")
        })
    }
}

/// A page that an eviction took.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_evicted_page {
    /// Its group.
    pub group: u32,
    /// The page, in the group's pool.
    pub page: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_evicted_page {
    const V1: usize = 8;
}

/// Evicts until a pool has got so many pages, or there are no more to be had. Pages of sliding
/// groups that no end of what is cached needs go first, then the least recently used of all groups
/// that draw from the pool. A page of group 0 takes those of other groups that hang on it, so that
/// a few more pages may go than were asked for, also of other pools.
///
/// @param cache the cache
/// @param pool the pool's number; 0 without a list of pools
/// @param page_count how many pages the pool is to get
/// @param evicted receives every page that went, in order; may be NULL, but not with an external
/// pool
/// @param evicted_size sizeof(rkv_evicted_page); not read when evicted is NULL
/// @param capacity room in `evicted`, at least the number of groups: the call ends early when there
/// may be too little for the next page and all that goes with it
/// @param out_evicted_count receives the pages that went, of all pools; may be NULL
/// @param out_freed_count receives those that the pool got
/// @return RKV_STATUS_OK, also when fewer could be had; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages + log(nodes)); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_evict_pool(
    cache: *mut rkv_cache,
    pool: u32,
    page_count: usize,
    evicted: *mut rkv_evicted_page,
    evicted_size: usize,
    capacity: usize,
    out_evicted_count: *mut usize,
    out_freed_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let freed_count = out(out_freed_count, "out_freed_count")?;
            if !out_evicted_count.is_null() {
                check_out(out_evicted_count, 1, "out_evicted_count")?;
            }
            let is_told = !evicted.is_null();
            if !is_told && page_count > 0 && shared.has_external_pool() {
                return Err(Error::argument(
                    "evicted is NULL: an external pool's pages are lost if they are not reported",
                )
                .into());
            }
            let room = if is_told { capacity } else { 0 };
            let names = ["evicted", "evicted_size"];
            let mut told = WantedElements::new(evicted, evicted_size, room, names)?;
            let (mut at, limit) = (0, if is_told { capacity } else { usize::MAX });
            let freed = shared.evict_from_pool(pool, page_count, limit, |gone| {
                if is_told {
                    let page = rkv_evicted_page { group: gone.group as u32, page: gone.page };
                    told.put(at, &page);
                }
                at += 1;
            })?;
            if !out_evicted_count.is_null() {
                put(at, out_evicted_count, "out_evicted_count")?;
            }
            freed_count.write(freed);
            Ok(())
        })
    }
}
