//! The snapshot cache: states of an engine by the tokens that led to them.
mod entry;
mod fetch;
mod handle;
mod tier;
mod tier_stats;

pub use entry::*;
pub use fetch::*;
pub use tier::*;
pub use tier_stats::*;

use crate::capi::ffi::{
    AbiStruct, at_most, check_flags, fork, guard, init_struct, out, read_struct, rkv_status,
    write_struct,
};
use crate::capi::snapshot::handle::{HANDLE_BYTES, Needs, destroy, into_raw, with};
use crate::snapshot::SnapshotLimits;

/// A store of opaque states by token list, that finds the longest stored prefix. For engines whose
/// KV isn't paged, and for models without KV. It stands alone: it needs no page table. Created by
/// rkv_snapshot_cache_create().
pub struct rkv_snapshot_cache {
    // Opaque to C and to debug information: behind the pointer lies a SnapshotHandle.
    _private: [u8; 0],
}

/// How to build a snapshot cache. Fill with rkv_snapshot_cache_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_config {
    /// sizeof(rkv_snapshot_cache_config).
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Entries, at most; never more than 2^30, which larger numbers mean. 0 disables the cache.
    /// Default 1024.
    pub entry_limit: u64,
    /// Bytes of all snapshots that the cache keeps, by the sizes that were stated; those that only
    /// readers still use are counted in. 0 disables the cache. Default UINT64_MAX, no limit.
    pub byte_limit: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_config {
    const NAME: &'static str = "config";
    const V1: usize = 24;
}

/// Counters of a snapshot cache. Counts since creation unless they say "now"; one that comes to its
/// end stays there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_snapshot_cache_stats {
    /// sizeof(rkv_snapshot_cache_stats).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Entries now.
    pub entry_count: u64,
    /// Bytes now of the snapshots of all entries.
    pub entry_bytes: u64,
    /// Entries now whose snapshot is pinned.
    pub pinned_entry_count: u64,
    /// Pins now.
    pub pin_count: u64,
    /// Snapshots now that have no entry any more and wait for their readers.
    pub detached_count: u64,
    /// Their bytes.
    pub detached_bytes: u64,
    /// Nodes of the tree now: fewer than two for each entry, and one for each 8192 tokens of what
    /// is long; more where memory was too short to join some, which later calls do.
    pub node_count: u64,
    /// Namespaces now.
    pub namespace_count: u64,
    /// Bytes of host memory that the cache itself takes now, all that it allocated, without the
    /// snapshots, and without what those that may be written have beside them: some 300 bytes, 4
    /// for each of their tokens, 16 for each part.
    pub index_bytes: u64,
    /// Matches asked for; probes are not counted.
    pub lookup_count: u64,
    /// Of those, matches that found a snapshot. The others are misses.
    pub hit_count: u64,
    /// Of those, matches that found a snapshot of all tokens.
    pub full_hit_count: u64,
    /// Tokens that matches asked for.
    pub lookup_token_count: u64,
    /// Tokens that matches found.
    pub hit_token_count: u64,
    /// Snapshots stored, by inserts and by fetches.
    pub stored_count: u64,
    /// Of those, how many took the place of another.
    pub replaced_count: u64,
    /// Snapshots that an insert did not store.
    pub rejected_count: u64,
    /// Entries that went for the limits.
    pub evicted_count: u64,
    /// Entries that the caller removed.
    pub removed_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_snapshot_cache_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 160;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_snapshot_cache_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_config_init(
    config: *mut rkv_snapshot_cache_config,
    struct_size: usize,
) -> rkv_status {
    let defaults = SnapshotLimits::default();
    let made = rkv_snapshot_cache_config {
        struct_size: 0,
        flags: 0,
        entry_limit: defaults.entries as u64,
        byte_limit: defaults.bytes,
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Creates an empty snapshot cache.
///
/// @param config how to build it; NULL takes the defaults
/// @param out_cache receives the cache, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_INVALID_STATE when no ids are left: 65535 caches exist in the process, each rkv_cache
/// counted as one, each snapshot cache with something attached as two, or those that are gone have
/// used them up
/// @par Cost
/// O(1); no lock; the first call of a process as rkv_page_table_create()
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_create(
    config: *const rkv_snapshot_cache_config,
    out_cache: *mut *mut rkv_snapshot_cache,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on out_cache.
        let into = unsafe { out(out_cache, "out_cache")? };
        let mut limits = SnapshotLimits::default();
        if !config.is_null() {
            // SAFETY: the caller's contract on config.
            let raw = unsafe { read_struct(config)? };
            check_flags(raw.flags, 0, "config.flags")?;
            limits.entries = at_most(raw.entry_limit);
            limits.bytes = raw.byte_limit;
        }
        fork::watch()?;
        into.write(into_raw(limits)?);
        Ok(())
    })
}

/// Destroys a snapshot cache and every snapshot that nobody reads. NULL is allowed and does
/// nothing.
///
/// A directory below memory is detached as by rkv_snapshot_cache_detach() with a time of 0: what
/// its last commit has is found when it is attached again.
/// Snapshots that are pinned stay as they are until their pins are released, and so does the cache
/// behind the handle: releasing those pins is the only call that is still allowed on it, and the
/// last release ends both.
///
/// @param cache the cache
/// @par Cost
/// O(entries); its own lock. With something attached it blocks until requests to the disk and calls
/// to a remote store that go on have ended, and for a last commit
/// @par Thread safety
/// the caller must be the last user of this handle, but for threads that release pins
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_destroy(cache: *mut rkv_snapshot_cache) {
    // SAFETY: the caller's contract: from rkv_snapshot_cache_create(), not destroyed yet.
    unsafe { destroy(cache) }
}

/// Removes every entry, in memory and below. Snapshots that are pinned stay until their pins are
/// released, the others are destroyed before the call returns. In a directory they are gone, so
/// that no crash brings them back, when rkv_snapshot_cache_flush() has returned RKV_STATUS_OK after
/// that. A directory that is not attached keeps what it has, for when it is attached again: where
/// weights change with the same fingerprint and epoch, clear before rkv_snapshot_cache_detach().
///
/// @param cache the cache
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(entries); its own lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_clear(cache: *mut rkv_snapshot_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, Needs::Owner, |call| {
            call.cache.clear(call.freed);
            Ok(())
        })
    }
}

/// Counters of a snapshot cache, at one moment.
///
/// @param cache the cache
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); its own shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_read_stats(
    cache: *const rkv_snapshot_cache,
    out_stats: *mut rkv_snapshot_cache_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_stats.
    unsafe {
        with(cache, Needs::Owner, |call| {
            let stats = call.cache.stats();
            let counters = stats.counters;
            let made = rkv_snapshot_cache_stats {
                struct_size: 0,
                reserved: 0,
                entry_count: stats.entries as u64,
                entry_bytes: stats.entry_bytes,
                pinned_entry_count: stats.pinned_entries as u64,
                pin_count: stats.pins as u64,
                detached_count: stats.detached as u64,
                detached_bytes: stats.detached_bytes,
                node_count: stats.nodes as u64,
                namespace_count: stats.namespaces as u64,
                index_bytes: (HANDLE_BYTES + stats.index_bytes) as u64,
                lookup_count: counters.lookups,
                hit_count: counters.hits,
                full_hit_count: counters.full_hits,
                lookup_token_count: counters.lookup_tokens,
                hit_token_count: counters.hit_tokens,
                stored_count: counters.stored,
                replaced_count: counters.replaced,
                rejected_count: counters.rejected,
                evicted_count: counters.evicted,
                removed_count: counters.removed,
            };
            write_struct(out_stats, &made)
        })
    }
}

/// Checks every invariant of a snapshot cache: structure, order, pins, counts, limits. Cost: one
/// pass over it. For tests and debug builds of an engine.
///
/// @param cache the cache
/// @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first invariant that is broken, by name;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(everything in it); its own lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_snapshot_cache_check(cache: *const rkv_snapshot_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, Needs::Owner, |call| Ok(call.cache.check()?)) }
}

/// Panics inside the library while the handle is in use. Only in builds with the fault-injection
/// feature, for tests.
///
/// @param cache the cache
/// @return RKV_STATUS_INTERNAL, and the cache is poisoned
/// @par Cost
/// O(1); its own lock
/// @par Thread safety
/// any thread
#[cfg(feature = "fault-injection")]
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_fault_panic_snapshot(cache: *mut rkv_snapshot_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, Needs::Owner, |_| panic!("injected fault")) }
}
