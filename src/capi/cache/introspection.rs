//! What can be seen of a cache: counters, invariants, the tree as text.
use crate::capi::cache::{rkv_cache, rkv_node_id};
use crate::capi::ffi::{
    AbiStruct, WantedElements, check_out, fill, rkv_status, with, write_struct,
};
use crate::capi::token::{namespace_of, rkv_namespace};
use crate::error::Error;
use crate::index::DumpFormat;
use crate::memory::TryGrow;

/// Format of rkv_cache_dump(): one JSON object.
pub const RKV_DUMP_JSON: u32 = 0;
/// Format of rkv_cache_dump(): a Graphviz digraph.
pub const RKV_DUMP_DOT: u32 = 1;

/// Counters of a cache. Counts since creation unless they say "now". Pages are those of group 0:
/// rkv_cache_read_group_stats() has each group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_cache_stats {
    /// sizeof(rkv_cache_stats).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages that the cache owns now.
    pub cached_page_count: u64,
    /// Pages now that no lock protects: exactly what eviction can free.
    pub reclaimable_page_count: u64,
    /// Nodes now, roots not counted.
    pub node_count: u64,
    /// Namespaces now.
    pub namespace_count: u64,
    /// Sequences alive now.
    pub sequence_count: u64,
    /// Different images known now, to the index or to a sequence.
    pub image_count: u64,
    /// Bytes of host memory that the index takes now.
    pub index_bytes: u64,
    /// Matches asked for, rkv_sequence_begin() included; probes are not counted.
    pub lookup_count: u64,
    /// Positions that lookups asked for.
    pub lookup_position_count: u64,
    /// Positions that lookups found.
    pub hit_position_count: u64,
    /// Of those, positions to be copied out of a page that is shared in part.
    pub partial_hit_position_count: u64,
    /// Pages claimed from callers and sequences.
    pub inserted_page_count: u64,
    /// Pages found published by somebody else at publishing.
    pub duplicate_page_count: u64,
    /// Pages evicted: with several groups those of others too, unless they went with a page of
    /// group 0.
    pub evicted_page_count: u64,
    /// Cached prefixes now that no longer one goes on: nodes without children.
    pub prefix_count: u64,
    /// Retained sequences now.
    pub retained_sequence_count: u64,
    /// Pages of group 0 that those keep now, each counted once; they are among the cached and the
    /// private ones. rkv_pool_stats has those of all groups.
    pub retained_page_count: u64,
    /// Retained sequences that gave way: to later ones, or by rkv_cache_drop_retained().
    pub displaced_sequence_count: u64,
    /// Sequences that went on from another one: continued and forked ones. No lookups.
    pub inherit_count: u64,
    /// Positions that they inherited; not among the hits of lookups.
    pub inherited_position_count: u64,
    /// Locks of callers now.
    pub lock_count: u64,
    /// Checkpoints that went because a path had more than rkv_cache_config.checkpoint_limit.
    pub dropped_checkpoint_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 120;
}

/// Counters of a cache, at one moment.
///
/// @param cache the cache
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread; waits for no eviction
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_stats(
    cache: *const rkv_cache,
    out_stats: *mut rkv_cache_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_stats.
    unsafe {
        with(cache, |shared| {
            let stats = shared.read().cache_stats()?;
            let made = rkv_cache_stats {
                struct_size: 0,
                reserved: 0,
                cached_page_count: stats.cached_pages as u64,
                reclaimable_page_count: stats.reclaimable_pages as u64,
                node_count: stats.nodes as u64,
                namespace_count: stats.namespaces as u64,
                sequence_count: stats.sequences as u64,
                image_count: stats.images as u64,
                index_bytes: stats.index_bytes as u64,
                lookup_count: stats.counters.lookups,
                lookup_position_count: stats.counters.lookup_positions,
                hit_position_count: stats.counters.hit_positions,
                partial_hit_position_count: stats.counters.partial_hit_positions,
                inserted_page_count: stats.counters.inserted_pages,
                duplicate_page_count: stats.counters.duplicate_pages,
                evicted_page_count: stats.counters.evicted_pages,
                prefix_count: stats.prefixes as u64,
                retained_sequence_count: stats.retained_sequences as u64,
                retained_page_count: stats.retained_pages as u64,
                displaced_sequence_count: stats.counters.displaced,
                inherit_count: stats.counters.inherits,
                inherited_position_count: stats.counters.inherited_positions,
                lock_count: stats.locks as u64,
                dropped_checkpoint_count: stats.counters.dropped_checkpoints,
            };
            write_struct(out_stats, &made)
        })
    }
}

/// Checks every invariant of the index: structure, order, locks, counts. Cost: one pass over it.
/// For tests and debug builds of an engine.
///
/// @param cache the cache
/// @return RKV_STATUS_OK; RKV_STATUS_CORRUPT with the first invariant that is broken, by name;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(index); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_check(cache: *const rkv_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.read().check()?)) }
}

/// The namespaces that the cache has pages of, or locks in, with their roots. Those that come or go
/// during the call may be among them or not.
///
/// @param cache the cache
/// @param spaces receives them, each with struct_size set to element_size: good as arguments of
/// other calls; (NULL, 0) asks for the count
/// @param element_size sizeof(rkv_namespace); not read with capacity 0
/// @param roots receives the root of each, for rkv_node_read_children(); may be NULL
/// @param capacity room in namespaces, and in roots
/// @param out_count receives how many there are, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(namespaces * log(namespaces)); shared lock, in slices
/// @par Thread safety
/// any thread; lets waiting threads in
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_namespaces(
    cache: *const rkv_cache,
    spaces: *mut rkv_namespace,
    element_size: usize,
    roots: *mut rkv_node_id,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let names = ["spaces", "element_size"];
            let mut into = WantedElements::new(spaces, element_size, capacity, names)?;
            if !roots.is_null() {
                check_out(roots, capacity, "roots")?;
            }
            let found = shared.namespaces()?;
            into.fill(found.iter().map(|(space, _)| namespace_of(space)), out_count, "spaces")?;
            if !roots.is_null() && !spaces.is_null() {
                for (at, (_, root)) in found.iter().enumerate() {
                    roots.add(at).write(root.0);
                }
            }
            Ok(())
        })
    }
}

/// Writes the tree as text for a person or a tool: namespaces, nodes, pages of each group, locks,
/// recency. The pages of a node are those of group 0; with several groups JSON has besides, as
/// `group_pages`, those of each other group by its number, at the places of the pages they hang on,
/// 0 for a hole.
///
/// @param cache the cache
/// @param format RKV_DUMP_JSON or RKV_DUMP_DOT
/// @param buffer receives the text, NUL-terminated; (NULL, 0) asks for the size
/// @param capacity size of buffer in bytes
/// @param out_bytes receives the bytes of the text, the NUL included, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(index); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_dump(
    cache: *const rkv_cache,
    format: u32,
    buffer: *mut std::ffi::c_char,
    capacity: usize,
    out_bytes: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, buffer and out_bytes.
    unsafe {
        with(cache, |shared| {
            let format = match format {
                RKV_DUMP_JSON => DumpFormat::Json,
                RKV_DUMP_DOT => DumpFormat::Dot,
                _ => return Err(Error::argument("format is unknown").into()),
            };
            let mut text = shared.read().dump(format)?.into_bytes();
            text.try_push(0)?;
            fill(&text, buffer.cast::<u8>(), capacity, out_bytes, ["buffer", "out_bytes"])
        })
    }
}

/// Panics inside the library while the handle is in use. Only in builds with the fault-injection
/// feature, for tests.
///
/// @param cache the cache
/// @return RKV_STATUS_INTERNAL, and the cache and its page table are poisoned
/// @par Cost
/// O(1); lock
/// @par Thread safety
/// any thread
#[cfg(feature = "fault-injection")]
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_fault_panic(cache: *mut rkv_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |_| panic!("injected fault")) }
}
