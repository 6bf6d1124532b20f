//! The page table: a pool of physical pages, and one row of pages per slot.
mod batch;
mod groups;
mod rows;

pub use batch::*;
pub use groups::*;
pub use rows::*;

use crate::capi::ffi::{
    AbiStruct, Handle, Opaque, check_flags, destroy, fork, guard, init_struct, out, read_struct,
    rkv_status, with, write_struct,
};
use crate::error::Error;
use crate::memory::Arc;
use crate::paging::PageTableConfig;
use crate::store::Shared;
use std::ptr::null;

/// A pool of physical pages and one row of pages per slot. Created by rkv_page_table_create().
///
/// Each page is in exactly one of three states: free, private (it belongs to a row, or to the
/// caller that allocated it), or cached (a cache owns it, any number of rows may map it). Page 0 is
/// reserved as the target of padding: it is never handed out. With an external pool there are two
/// states: cached, and outside (the engine has it).
pub struct rkv_page_table {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Opaque for rkv_page_table {
    type Object = Shared;
    const NAME: &'static str = "table";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvtable");
}

/// Largest page_size.
pub const RKV_PAGE_SIZE_MAX: u32 = 65536;
/// Flag of rkv_page_table_config: the engine has an allocator of its own. All pages are outside,
/// the engine's, until rkv_cache_insert() claims them, and again when they are evicted or the cache
/// is destroyed. There are no slots and no sequences. The cache's match, probe, insert, lock,
/// unlock, evict and what reads it work as ever; what allocates pages or slots, asks whether that
/// could be done, or takes a slot or a sequence returns RKV_STATUS_UNSUPPORTED.
pub const RKV_PAGE_TABLE_EXTERNAL_POOL: u32 = 1;

/// How to build a page table. Fill with rkv_page_table_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_page_table_config {
    /// sizeof(rkv_page_table_config).
    pub struct_size: u32,
    /// Positions per page, 1 to RKV_PAGE_SIZE_MAX. Default 16.
    pub page_size: u32,
    /// Physical pages, the reserved page 0 included: 2 to 2^31 - 1. Default 0, which is refused:
    /// set it.
    pub page_count: u32,
    /// Slots, that is sequences alive at once: 1 to 2^20. Default 256. Not read with
    /// RKV_PAGE_TABLE_EXTERNAL_POOL: there are none.
    pub slot_count: u32,
    /// Longest row in pages. Default 0: as many as there are pages. A prompt that needs a longer
    /// row is refused as an invalid argument, not for want of pages. Not read with
    /// RKV_PAGE_TABLE_EXTERNAL_POOL.
    pub row_page_limit: u32,
    /// 0 or RKV_PAGE_TABLE_EXTERNAL_POOL. Default 0.
    pub flags: u32,
    /// The groups of the model's layers, of which the first is FULL and draws from pool 0. Default
    /// NULL: one FULL group.
    pub groups: *const rkv_group_config,
    /// Number of groups, at most RKV_GROUP_LIMIT. Default 0.
    pub group_count: usize,
    /// sizeof(rkv_group_config); not read without groups. Set it with them: the default is that
    /// of the loaded library, which may be later and know a longer one.
    pub group_size: usize,
    /// The pools of pages; all are external with RKV_PAGE_TABLE_EXTERNAL_POOL. page_count is 0
    /// then. Default NULL: one pool, of page_count pages.
    pub pools: *const rkv_pool_config,
    /// Number of pools, at most RKV_GROUP_LIMIT. Default 0.
    pub pool_count: usize,
    /// sizeof(rkv_pool_config); not read without pools. Set it with them: the default is that
    /// of the loaded library, which may be later and know a longer one.
    pub pool_size: usize,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_page_table_config {
    const NAME: &'static str = "config";
    const V1: usize = 24;
}

/// Pages of pool 0 by state, and slots; rkv_pool_stats has the pages of each pool. free + cached +
/// private + outside == total at all times: outside is 0 unless the pool is external, and then free
/// and private are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_page_table_stats {
    /// sizeof(rkv_page_table_stats).
    pub struct_size: u32,
    /// Positions per page.
    pub page_size: u32,
    /// Pages that can be handed out, by whomever: all but page 0.
    pub total_page_count: u64,
    /// Pages in the free pool.
    pub free_page_count: u64,
    /// Pages that the cache owns.
    pub cached_page_count: u64,
    /// Pages that belong to rows, to retained sequences, to copies that are not confirmed, or to
    /// callers of rkv_page_table_allocate_pages().
    pub private_page_count: u64,
    /// Cached pages that no lock protects: exactly what eviction can free.
    pub reclaimable_page_count: u64,
    /// Slots in all.
    pub slot_count: u64,
    /// Slots not in use.
    pub free_slot_count: u64,
    /// Bytes of host memory that rows and page states take.
    pub memory_bytes: u64,
    /// Pages of an external pool that the cache does not own. Which of them are free is the
    /// engine's to know.
    pub outside_page_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_page_table_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 80;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_page_table_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_config_init(
    config: *mut rkv_page_table_config,
    struct_size: usize,
) -> rkv_status {
    let defaults = PageTableConfig::default();
    let made = rkv_page_table_config {
        struct_size: 0,
        page_size: defaults.page_size,
        page_count: defaults.page_count,
        slot_count: defaults.slot_count,
        row_page_limit: defaults.row_page_limit,
        flags: 0,
        groups: null(),
        group_count: 0,
        group_size: size_of::<rkv_group_config>(),
        pools: null(),
        pool_count: 0,
        pool_size: size_of::<rkv_pool_config>(),
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Creates a page table with all pages free, or outside.
///
/// @param config how to build it; not NULL, since page_count has no default
/// @param out_table receives the page table, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(page_count + slot_count); no lock. The first call of a process also has the library's code
/// mapped, so that no later call waits for that with a lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_create(
    config: *const rkv_page_table_config,
    out_table: *mut *mut rkv_page_table,
) -> rkv_status {
    // SAFETY: the caller's contract on config and out_table.
    unsafe { create_page_table(config, out_table, Shared::new) }
}

/// The same over what `make` makes of the config: for tests, which let others in after a few pages.
///
/// # Safety
/// As of rkv_page_table_create().
#[doc(hidden)]
pub unsafe fn create_page_table(
    config: *const rkv_page_table_config,
    out_table: *mut *mut rkv_page_table,
    make: impl FnOnce(PageTableConfig) -> Result<Arc<Shared>, Error>,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on config and out_table.
        let (raw, into) = unsafe { (read_struct(config)?, out(out_table, "out_table")?) };
        check_flags(raw.flags, RKV_PAGE_TABLE_EXTERNAL_POOL, "config.flags")?;
        // SAFETY: the caller's contract on config.
        let (groups, (page_count, more_pools)) = unsafe {
            (
                read_groups(raw.groups, raw.group_count, raw.group_size)?,
                read_pools(raw.pools, raw.pool_count, raw.pool_size, raw.page_count)?,
            )
        };
        fork::watch()?;
        let shared = make(PageTableConfig {
            page_size: raw.page_size,
            page_count,
            groups,
            more_pools,
            slot_count: raw.slot_count,
            row_page_limit: raw.row_page_limit,
            external_pool: raw.flags & RKV_PAGE_TABLE_EXTERNAL_POOL != 0,
        })?;
        into.write(Handle::new(shared)?.into_raw());
        Ok(())
    })
}

/// Destroys a page table. NULL is allowed and does nothing.
///
/// A cache on it keeps the pages alive until it is destroyed too.
///
/// @param table the page table
/// @par Cost
/// O(page_count + slot_count) when nothing else stands on it; no lock
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_destroy(table: *mut rkv_page_table) {
    // SAFETY: the caller's contract: from rkv_page_table_create(), not destroyed yet.
    unsafe { destroy(table, |_| {}) }
}

/// Pages by state and slots in use, at one moment.
///
/// @param table the page table
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread; waits for no eviction
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_stats(
    table: *const rkv_page_table,
    out_stats: *mut rkv_page_table_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_stats.
    unsafe {
        with(table, |shared| {
            let stats = shared.read().page_table_stats();
            let made = rkv_page_table_stats {
                struct_size: 0,
                page_size: stats.page_size as u32,
                total_page_count: stats.total as u64,
                free_page_count: stats.free as u64,
                cached_page_count: stats.cached as u64,
                private_page_count: stats.private as u64,
                reclaimable_page_count: stats.reclaimable as u64,
                slot_count: stats.slots as u64,
                free_slot_count: stats.free_slots as u64,
                memory_bytes: stats.memory_bytes as u64,
                outside_page_count: stats.outside as u64,
            };
            write_struct(out_stats, &made)
        })
    }
}

/// Proves page by page that each is in exactly one state, that the counts agree, and that no row
/// maps a page that is free or somebody else's. With an external pool: that each cached page is in
/// the index once, and each other one outside. Cost: one pass over pages, rows and index.
///
/// @param table the page table
/// @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first page that is wrong;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages + rows + index); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_check(table: *const rkv_page_table) -> rkv_status {
    // SAFETY: the caller's contract on table.
    unsafe { with(table, |shared| Ok(shared.read().audit()?)) }
}
