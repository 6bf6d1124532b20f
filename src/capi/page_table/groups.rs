//! Groups of layers and their pools: how they are named at creation, and what is asked by pool.
use super::rkv_page_table;
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, GivenElements, check_out, check_zero, out_slice, rkv_status,
    slice, with, write_struct,
};
use crate::error::{Error, text};
use crate::group::{GroupConfig, GroupKind, Groups, check_count};
use crate::memory::{TryGrow, try_collect};
use crate::paging::{MorePools, check_page_count};

/// Most groups, and most pools.
pub const RKV_GROUP_LIMIT: u32 = 8;
/// Kind of rkv_group_config: a prefix can be reused when all pages are there. Full attention.
pub const RKV_GROUP_FULL: u32 = 0;
/// Kind of rkv_group_config: when those of the last window - 1 positions are there, and those of
/// the first `sinks`. Sliding windows.
pub const RKV_GROUP_WINDOW: u32 = 1;
/// Kind of rkv_group_config: when those from the beginning of the next position's chunk are there.
/// Chunked attention.
pub const RKV_GROUP_CHUNK: u32 = 2;
/// Kind of rkv_group_config: when there is a checkpoint at exactly its end, which lies between two
/// pages. A page holds one state, of any size. Recurrent layers.
pub const RKV_GROUP_STATE: u32 = 3;

/// A group: the layers that share one row of pages. Unused fields are zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_group_config {
    /// RKV_GROUP_FULL, RKV_GROUP_WINDOW, RKV_GROUP_CHUNK or RKV_GROUP_STATE.
    pub kind: u32,
    /// The pool that its pages come from: an index into rkv_page_table_config.pools. Groups whose
    /// pages have equal bytes may share one.
    pub pool: u32,
    /// WINDOW: positions that a query attends to, its own included; at least 1.
    pub window: u32,
    /// WINDOW: positions at the beginning that are always attended to. Else 0.
    pub sinks: u32,
    /// CHUNK: positions of a chunk; at least 1.
    pub chunk: u32,
    /// STATE: pages of a row for states after draft tokens, beside its own page, up to 255. See
    /// rkv_sequence_truncate(). 0: a sequence takes no token back. Else 0.
    pub draft_state_count: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_group_config {
    const V1: usize = 24;
}

/// A pool of physical pages. Each pool numbers its own from 1 on; page 0 is reserved.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_pool_config {
    /// Physical pages, the reserved page 0 included: 2 to 2^31 - 1.
    pub page_count: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_pool_config {
    const V1: usize = 8;
}

fn group_of(at: usize, raw: &rkv_group_config) -> Result<GroupConfig, Error> {
    let name = |field: &str| text!("config.groups[{at}].{field}");
    let kind = match raw.kind {
        RKV_GROUP_FULL => GroupKind::Full,
        RKV_GROUP_WINDOW => GroupKind::Window { window: raw.window, sinks: raw.sinks },
        RKV_GROUP_CHUNK => GroupKind::Chunk { chunk: raw.chunk },
        RKV_GROUP_STATE => GroupKind::State,
        _ => return Err(Error::argument(text!("{} is unknown", name("kind")))),
    };
    if !matches!(kind, GroupKind::Window { .. }) {
        check_zero(raw.window, &name("window"))?;
        check_zero(raw.sinks, &name("sinks"))?;
    }
    if !matches!(kind, GroupKind::Chunk { .. }) {
        check_zero(raw.chunk, &name("chunk"))?;
    }
    Ok(GroupConfig { kind, pool: raw.pool, draft_states: raw.draft_state_count })
}

/// Reads a list of groups.
///
/// # Safety
/// `count` elements of `size` bytes are readable.
pub(super) unsafe fn read_groups(
    groups: *const rkv_group_config,
    count: usize,
    size: usize,
) -> Result<Groups, Fail> {
    if count == 0 {
        return Ok(Groups::default());
    }
    check_count(count, "config.group_count")?;
    let size = (size, "config.group_size");
    // SAFETY: the caller's contract.
    let given = unsafe { GivenElements::new(groups, count, size, "config.groups")? };
    let mut list = Vec::new();
    for (at, raw) in given.iter().enumerate() {
        list.try_push(group_of(at, &raw)?)?;
    }
    Ok(Groups::new(&list)?)
}

/// Reads a list of pools: the pages of the first, and those of the others.
///
/// # Safety
/// `count` elements of `size` bytes are readable.
pub(super) unsafe fn read_pools(
    pools: *const rkv_pool_config,
    count: usize,
    size: usize,
    page_count: u32,
) -> Result<(u32, MorePools), Fail> {
    if count == 0 {
        return Ok((page_count, MorePools::default()));
    }
    check_zero(page_count, "config.page_count (with config.pools, each pool has its own)")?;
    check_count(count, "config.pool_count")?;
    let size = (size, "config.pool_size");
    // SAFETY: the caller's contract.
    let given = unsafe { GivenElements::new(pools, count, size, "config.pools")? };
    for (at, pool) in given.iter().enumerate() {
        check_zero(pool.reserved, &text!("config.pools[{at}].reserved"))?;
        check_page_count(pool.page_count)
            .map_err(|what| Error::argument(text!("config.pools[{at}].{what}")))?;
    }
    let counts = try_collect(given.iter().map(|pool| pool.page_count))?;
    Ok((counts[0], MorePools::new(&counts[1..])?))
}

/// Pages of a pool by state. free + cached + private + outside == total at all times: outside is 0
/// unless the pools are external, and then free and private are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_pool_stats {
    /// sizeof(rkv_pool_stats).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages that can be handed out, by whomever: all but page 0.
    pub total_page_count: u64,
    /// Pages in the free pool.
    pub free_page_count: u64,
    /// Pages that the cache owns, of all groups that draw from the pool.
    pub cached_page_count: u64,
    /// Pages that belong to rows or to callers.
    pub private_page_count: u64,
    /// Cached pages that nothing protects: exactly what eviction can free.
    pub reclaimable_page_count: u64,
    /// Pages of an external pool that the cache does not own.
    pub outside_page_count: u64,
    /// Pages that retained sequences keep, of all groups that draw from the pool, each counted
    /// once; they are among the cached and the private ones.
    pub retained_page_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_pool_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 56;
}

/// Pages of one pool by state, at one moment.
///
/// @param table the page table
/// @param pool the pool's number; 0 without a list of pools
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_pool_stats(
    table: *const rkv_page_table,
    pool: u32,
    out_stats: *mut rkv_pool_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_stats.
    unsafe {
        with(table, |shared| {
            let stats = shared.read().pool_stats(pool)?;
            let made = rkv_pool_stats {
                struct_size: 0,
                reserved: 0,
                total_page_count: stats.total as u64,
                free_page_count: stats.free as u64,
                cached_page_count: stats.cached as u64,
                private_page_count: stats.private as u64,
                reclaimable_page_count: stats.reclaimable as u64,
                outside_page_count: stats.outside as u64,
                retained_page_count: stats.retained as u64,
            };
            write_struct(out_stats, &made)
        })
    }
}

/// rkv_page_table_allocate_pages() from a pool of one's choice.
///
/// @param table the page table
/// @param pool the pool's number
/// @param page_count how many
/// @param pages receives page_count pages, private to the caller
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(), which names the pool;
/// RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_allocate_pool_pages(
    table: *mut rkv_page_table,
    pool: u32,
    page_count: usize,
    pages: *mut u32,
) -> rkv_status {
    // SAFETY: the caller's contract on table and pages.
    unsafe {
        with(table, |shared| {
            check_out(pages, page_count, "pages")?;
            let taken = shared.allocate_pool_pages(pool, page_count)?;
            out_slice(pages, page_count, page_count, "pages")?.write_copy_of_slice(&taken);
            Ok(())
        })
    }
}

/// rkv_page_table_free_pages() into a pool of one's choice.
///
/// @param table the page table
/// @param pool the pool's number
/// @param pages page_count different pages of the pool that are the caller's
/// @param page_count how many
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT
/// naming the page that is free, cached, mapped, out of range or given twice: then none was freed;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_free_pool_pages(
    table: *mut rkv_page_table,
    pool: u32,
    pages: *const u32,
    page_count: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table and pages.
    unsafe {
        with(table, |shared| {
            let pages = slice(pages, page_count, "pages")?;
            Ok(shared.turn().free_pages(pool, pages)?)
        })
    }
}
