//! The prefix cache: its handle, how it is made, and which pages it has and gives up.
mod lookup;
mod matching;
mod insert;
mod node;
mod clear;
mod groups;
mod introspection;

pub use clear::*;
pub use groups::*;
pub use insert::*;
pub use introspection::*;
pub use lookup::*;
pub(crate) use matching::write_path;
pub use node::*;

use crate::capi::ffi::{
    AbiStruct, Handle, Opaque, check_flags, check_zero, destroy, guard, init_struct, out,
    out_slice, put, read_struct, rkv_status, with,
};
use crate::capi::page_table::rkv_page_table;
use crate::error::{Error, text};
use crate::group::CHECKPOINT_LIMIT_MAX;
use crate::index::IndexKind;
use crate::store::{CacheConfig, Shared};

/// The prefix index over one page table: which published pages hold which tokens. Created by
/// rkv_cache_create().
pub struct rkv_cache {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Opaque for rkv_cache {
    type Object = Shared;
    const NAME: &'static str = "cache";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvcache");
}

/// Flag of rkv_cache_config: share whole pages only, reuse no part of a page by copy.
pub const RKV_CACHE_WHOLE_PAGES: u32 = 1;
/// Index of rkv_cache_config: the radix tree, exact token comparison.
pub const RKV_INDEX_RADIX: u32 = 0;
/// Index of rkv_cache_config: pages by their digests, see rkv_tokens_page_digests(). One node for
/// each page. A page is found when its digest is, tokens are not compared; a match ends where the
/// known pages end, parts of other pages are not looked for.
pub const RKV_INDEX_BLOCK_HASH: u32 = 1;

/// How to build a cache. Fill with rkv_cache_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_config {
    /// sizeof(rkv_cache_config).
    pub struct_size: u32,
    /// RKV_CACHE_ flags. Default 0.
    pub flags: u32,
    /// RKV_INDEX_RADIX or RKV_INDEX_BLOCK_HASH. Default RKV_INDEX_RADIX.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// Finished sequences that rkv_sequence_retain() keeps at most. Default and 0: 1024.
    pub retained_sequence_limit: u32,
    /// Pages of group 0 that those keep together at most, each counted once. Default and 0: half of
    /// those of pool 0.
    pub retained_page_limit: u32,
    /// Bytes of the ring that keeps the records of the journal, see rkv_cache_read_journal(). At
    /// least 1024 + 256 * page_size, 2^34 at most. Besides it a journal takes 20 + 4 * page_size
    /// bytes for each page of pool 0, and with several groups a byte for each page of all pools.
    /// Default and 0: no journal.
    pub journal_bytes: u64,
    /// Checkpoints of a STATE group that a path keeps at most, the one that was saved last
    /// included, up to 512. Beside these stay checkpoints where several prompts go on, and those in
    /// use. Others that lie before them go when one is saved (of those that come with one insert,
    /// none): with an external pool they are the next that an eviction takes, else they are free at
    /// once. Takes 4 bytes for each page of pool 0 and STATE group. Default and 0: any number.
    pub checkpoint_limit: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_config {
    const NAME: &'static str = "config";
    const V1: usize = 32;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_cache_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_config_init(
    config: *mut rkv_cache_config,
    struct_size: usize,
) -> rkv_status {
    let made = rkv_cache_config {
        struct_size: 0,
        flags: 0,
        index: RKV_INDEX_RADIX,
        reserved: 0,
        retained_sequence_limit: 1024,
        retained_page_limit: 0,
        journal_bytes: 0,
        checkpoint_limit: 0,
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

fn config_of(raw: &rkv_cache_config) -> Result<CacheConfig, Error> {
    check_flags(raw.flags, RKV_CACHE_WHOLE_PAGES, "config.flags")?;
    let index = match raw.index {
        RKV_INDEX_RADIX => IndexKind::Radix,
        RKV_INDEX_BLOCK_HASH => IndexKind::BlockHash,
        _ => return Err(Error::argument("config.index is unknown")),
    };
    check_zero(raw.reserved, "config.reserved")?;
    if raw.checkpoint_limit > u64::from(CHECKPOINT_LIMIT_MAX) {
        return Err(Error::argument(text!(
            "config.checkpoint_limit {} is more than {CHECKPOINT_LIMIT_MAX}",
            raw.checkpoint_limit
        )));
    }
    Ok(CacheConfig {
        index,
        whole_pages: raw.flags & RKV_CACHE_WHOLE_PAGES != 0,
        retained_sequences: raw.retained_sequence_limit,
        retained_pages: raw.retained_page_limit,
        journal_bytes: raw.journal_bytes,
        checkpoint_limit: raw.checkpoint_limit as u32,
        ..CacheConfig::default()
    })
}

/// Creates an empty cache on a page table and keeps the page table alive.
///
/// @param table the page table; it takes one cache at a time
/// @param config how to build it; NULL takes the defaults
/// @param out_cache receives the cache, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_BUSY when the
/// page table has a cache; RKV_STATUS_UNSUPPORTED for the block-hash index on a page
/// table with several groups, and for a checkpoint_limit without a STATE group;
/// RKV_STATUS_INVALID_STATE when no ids are left: 255 caches exist in the process, or with snapshot
/// caches as many as rkv_snapshot_cache_create() says, or those that are gone have used them up;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(slot_count), with a journal O(page_count) too; lock, for a moment in the end
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_create(
    table: *mut rkv_page_table,
    config: *const rkv_cache_config,
    out_cache: *mut *mut rkv_cache,
) -> rkv_status {
    // SAFETY: the caller's contract on table, config and out_cache.
    unsafe {
        with(table, |shared| {
            let into = out(out_cache, "out_cache")?;
            let made = if config.is_null() {
                CacheConfig::default()
            } else {
                config_of(&read_struct(config)?)?
            };
            let handle = Handle::new(shared.clone())?;
            shared.attach_cache(made)?;
            into.write(handle.into_raw());
            Ok(())
        })
    }
}

/// Destroys a cache. NULL is allowed and does nothing.
///
/// Sequences that still live in it or are retained end; all their pages and all cached pages return
/// to the page table's pool. Rows that the caller mapped itself lose the cached pages at their
/// place: they are erased from that page on. With an external pool all pages are outside
/// afterwards; nothing but the journal lists them.
///
/// Its tiers go with it: of the copies that rkv_cache_poll() gave, none goes on any more.
///
/// @param cache the cache
/// @par Cost
/// O(page_count + slot_count + nodes); lock, in slices. With tiers it blocks for a second at most
/// until what was cleared is removed from the directory, until requests to the disk and calls to a
/// remote store that go on have ended, and for a last commit
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_destroy(cache: *mut rkv_cache) {
    // SAFETY: the caller's contract: from rkv_cache_create(), not destroyed yet.
    unsafe { destroy(cache, Shared::detach_cache) }
}

/// Evicts pages of pool 0, least recently used first, and returns them to the free pool, or with an
/// external pool (RKV_PAGE_TABLE_EXTERNAL_POOL) to the caller. rkv_cache_evict_pool() is for any
/// pool.
///
/// The unlocked leaf that was used longest ago loses pages from its end, then the next; a parent
/// that became a leaf takes its turn by its own recency. Fewer than asked is no error: the rest is
/// locked.
///
/// @param cache the cache
/// @param page_count pages wanted
/// @param pages receives the evicted pages in order; not reported when NULL, which is refused with
/// an external pool: no page leaves it unseen
/// @param capacity room in pages; 0 with NULL. With pages given, no more than this is evicted: with
/// several groups in pool 0 it ends early when there may be too little for what goes together
/// @param out_count receives how many pages were evicted
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_UNSUPPORTED with several groups
/// and external pools: use rkv_cache_evict_pool(); RKV_STATUS_POISONED
/// @par Cost
/// O(pages + log(leaves) for each node that goes); lock, in slices
/// @par Thread safety
/// any thread; lets waiting threads in between pages
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_evict(
    cache: *mut rkv_cache,
    page_count: usize,
    pages: *mut u32,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, pages and out_count.
    unsafe {
        with(cache, |shared| {
            let into = out(out_count, "out_count")?;
            let room = out_slice(pages, capacity, capacity, "pages")?;
            if pages.is_null() && page_count > 0 && shared.has_external_pool() {
                return Err(Error::argument(
                    "pages is NULL: an external pool's pages are lost if they are not reported",
                )
                .into());
            }
            shared.check_told_by_pool()?;
            // The last page may take those of other groups along; those in pool 0 are told.
            let spare = match shared.group_count() {
                1 => 0,
                _ => shared.read().groups().in_pool(0).iter().filter(|&&is_in| is_in).count() - 1,
            };
            let limit = match pages.is_null() {
                true => page_count,
                false => page_count.min(capacity.saturating_sub(spare)),
            };
            into.write(shared.evict(limit, |at, page| {
                if let Some(slot) = room.get_mut(at) {
                    slot.write(page);
                }
            })?);
            Ok(())
        })
    }
}

/// Whether the cache owns a page of pool 0.
///
/// @param cache the cache
/// @param page any page number
/// @param out_contains receives the answer; false for pages out of range
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_contains_page(
    cache: *const rkv_cache,
    page: u32,
    out_contains: *mut bool,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_contains.
    unsafe {
        with(cache, |shared| put(shared.read().contains_page(page), out_contains, "out_contains"))
    }
}
