//! The prefix cache: match, probe, insert, lock, evict, and what can be seen of the tree.
use super::guard::guard;
use super::handle::{Handle, Opaque, destroy, with};
use super::namespace::{read_namespace, rkv_namespace};
use super::node::rkv_node_id;
use super::page_table::rkv_page_table;
use super::pointer::{
    AbiStruct, check_fit, check_out, fill, init_struct, out, out_slice, put, read_struct, slice,
    write_struct,
};
use super::status::rkv_status;
use super::token::{rkv_tokens, with_tokens};
use crate::cache::{CacheConfig, InsertRequest, Namespace};
use crate::error::Error;
use crate::ids::NodeId;
use crate::index::{DumpFormat, IndexKind};
use crate::sequence::Shared;

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
/// Format of rkv_cache_dump(): one JSON object.
pub const RKV_DUMP_JSON: u32 = 0;
/// Format of rkv_cache_dump(): a Graphviz digraph.
pub const RKV_DUMP_DOT: u32 = 1;
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
    /// Pages that those keep together at most, each counted once. Default and 0: half of the page
    /// table's.
    pub retained_page_limit: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_config {
    const NAME: &'static str = "config";
    const V1: usize = 24;
}

/// What rkv_cache_insert() puts where.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_insert_args {
    /// sizeof(rkv_insert_args).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// The namespace; NULL for the default one. Not read when from_node is set.
    pub namespace_: *const rkv_namespace,
    /// All tokens of the prefix, from its beginning.
    pub tokens: *const rkv_tokens,
    /// The pages of the prefix, from its beginning; at least one for each whole page of the
    /// tokens. Those before from_page_index are not read.
    pub pages: *const u32,
    /// Number of pages.
    pub page_count: usize,
    /// Node of an earlier match to go on from; 0 begins at the root.
    pub from_node: rkv_node_id,
    /// Tokens up to from_node's end, as rkv_match.token_count says: those of a page that matched
    /// in part may be counted too. 0 without from_node.
    pub from_token_index: u64,
    /// Pages up to from_node's end, as rkv_match.page_count says; 0 without from_node.
    pub from_page_index: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_insert_args {
    const NAME: &'static str = "args";
    const V1: usize = 64;
}

/// What rkv_cache_insert() did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_insert_result {
    /// sizeof(rkv_insert_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Node that ends where the whole pages of the tokens end; 0 when there is no whole page.
    pub node: rkv_node_id,
    /// Pages that the cache owns from now on.
    pub claimed_page_count: u64,
    /// Pages that were not claimed because another page is published for the same tokens. They
    /// stay private to their holder.
    pub duplicate_page_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_insert_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 32;
}

/// Counters of a cache. Counts since creation unless they say "now".
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_cache_statistics {
    /// sizeof(rkv_cache_statistics).
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
    /// Pages evicted.
    pub evicted_page_count: u64,
    /// Cached prefixes now that no longer one goes on: nodes without children.
    pub prefix_count: u64,
    /// Retained sequences now.
    pub retained_sequence_count: u64,
    /// Pages that those keep now, each counted once; they are among the cached and the private
    /// ones.
    pub retained_page_count: u64,
    /// Retained sequences that gave way: to later ones, or by rkv_cache_drop_retained().
    pub displaced_sequence_count: u64,
    /// Sequences that went on from another one: continued and forked ones. No lookups.
    pub inherit_count: u64,
    /// Positions that they inherited; not among the hits of lookups.
    pub inherited_position_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_statistics {
    const NAME: &'static str = "out_stats";
    const V1: usize = 120;
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_cache_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
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
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Creates an empty cache on a page table and keeps the page table alive.
///
/// @param table the page table; it takes one cache at a time
/// @param config how to build it; NULL takes the defaults
/// @param out_cache receives the cache, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_BUSY when the
/// page table has a cache; RKV_STATUS_POISONED
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
            let mut made = CacheConfig::default();
            if !config.is_null() {
                let raw = read_struct(config)?;
                if raw.flags & !RKV_CACHE_WHOLE_PAGES != 0 {
                    return Err(Error::argument("config.flags has an unknown bit").into());
                }
                made.index = match raw.index {
                    RKV_INDEX_RADIX => IndexKind::Radix,
                    RKV_INDEX_BLOCK_HASH => IndexKind::BlockHash,
                    _ => return Err(Error::argument("config.index is unknown").into()),
                };
                if raw.reserved != 0 {
                    return Err(Error::argument("config.reserved must be zero").into());
                }
                made.whole_pages = raw.flags & RKV_CACHE_WHOLE_PAGES != 0;
                made.retained_sequences = raw.retained_sequence_limit;
                made.retained_pages = raw.retained_page_limit;
            }
            shared.attach_cache(made)?;
            into.write(Handle::into_raw(shared.clone()));
            Ok(())
        })
    }
}

/// Destroys a cache. NULL is allowed and does nothing.
///
/// Sequences that still live in it or are retained end; all their pages and all cached pages return
/// to the page table's pool. Rows that the caller mapped itself lose the cached pages at their
/// place: they are erased from that page on.
///
/// @param cache the cache
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_destroy(cache: *mut rkv_cache) {
    // SAFETY: the caller's contract: from rkv_cache_create(), not destroyed yet.
    unsafe { destroy(cache, Shared::detach_cache) }
}

/// Publishes the whole pages of a prefix.
///
/// Pages for which the cache has none yet are claimed: they must be private, and are the cache's
/// from then on, also where they are mapped. Where the cache has another page for the same tokens,
/// that one stays and the caller's is a duplicate: `published_pages` tells what to map instead.
///
/// @param cache the cache
/// @param args what to insert
/// @param published_pages receives page_count entries: the cache's page at each whole page of the
/// tokens, and the caller's own after the last whole page; may be NULL
/// @param out_result receives what was done; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, e.g. for a page that is not private or given
/// twice; RKV_STATUS_STALE_NODE; RKV_STATUS_POISONED. A failed insert changes nothing.
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_insert(
    cache: *mut rkv_cache,
    args: *const rkv_insert_args,
    published_pages: *mut u32,
    out_result: *mut rkv_insert_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            let args = read_struct(args)?;
            if args.reserved != 0 {
                return Err(Error::argument("args.reserved must be zero").into());
            }
            check_fit(out_result)?;
            let pages = slice(args.pages, args.page_count, "args.pages")?;
            let namespace = match args.from_node {
                0 => read_namespace(args.namespace_)?,
                _ => Namespace::default(),
            };
            with_tokens(args.tokens, |tokens| {
                let mut state = shared.write();
                let request = InsertRequest {
                    namespace: &namespace,
                    tokens,
                    pages,
                    from: (args.from_node != 0).then_some(NodeId(args.from_node)),
                    from_token: args.from_token_index as usize,
                    from_page: args.from_page_index as usize,
                };
                let inserted = state.insert(request)?;
                if !published_pages.is_null() {
                    let into =
                        out_slice(published_pages, pages.len(), pages.len(), "published_pages")?;
                    into.write_copy_of_slice(pages);
                    state.copy_path_pages(inserted.node, into)?;
                }
                let made = rkv_insert_result {
                    struct_size: 0,
                    reserved: 0,
                    node: state.node_id(inserted.node)?,
                    claimed_page_count: inserted.claimed as u64,
                    duplicate_page_count: inserted.duplicates as u64,
                };
                write_struct(out_result, &made)
            })
        })
    }
}

/// Evicts pages, least recently used first, and returns them to the free pool.
///
/// The unlocked leaf that was used longest ago loses pages from its end, then the next; a parent
/// that became a leaf takes its turn by its own recency. Fewer than asked is no error: the rest is
/// locked.
///
/// @param cache the cache
/// @param page_count pages wanted
/// @param pages receives the evicted pages in order; not reported when NULL
/// @param capacity room in pages; 0 with NULL. With pages given, no more than this is evicted
/// @param out_count receives how many pages were evicted
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
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
            check_out(pages, capacity, "pages")?;
            let reported = if pages.is_null() { 0 } else { capacity };
            let limit = if pages.is_null() { page_count } else { page_count.min(capacity) };
            let room = out_slice(pages, reported, reported, "pages")?;
            into.write(shared.evict(limit, |at, page| {
                if let Some(slot) = room.get_mut(at) {
                    slot.write(page);
                }
            })?);
            Ok(())
        })
    }
}

/// Whether the cache owns a page.
///
/// @param cache the cache
/// @param page any page number
/// @param out_contains receives the answer; false for pages out of range
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
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

/// Counters of a cache, at one moment.
///
/// @param cache the cache
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Thread safety
/// any thread; waits for no eviction
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_stats(
    cache: *const rkv_cache,
    out_stats: *mut rkv_cache_statistics,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_stats.
    unsafe {
        with(cache, |shared| {
            let stats = shared.read().cache_stats()?;
            let made = rkv_cache_statistics {
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
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_check(cache: *const rkv_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.read().check()?)) }
}

/// Writes the tree as text for a person or a tool: namespaces, nodes, pages, locks, recency.
///
/// @param cache the cache
/// @param format RKV_DUMP_JSON or RKV_DUMP_DOT
/// @param buffer receives the text, NUL-terminated; (NULL, 0) asks for the size
/// @param capacity size of buffer in bytes
/// @param out_bytes receives the bytes of the text, the NUL included, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
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
            text.push(0);
            fill(&text, buffer.cast::<u8>(), capacity, out_bytes, ["buffer", "out_bytes"])
        })
    }
}

/// Panics inside the library while the handle is in use. Only in builds with the fault-injection
/// feature, for tests.
///
/// @param cache the cache
/// @return RKV_STATUS_INTERNAL, and the cache and its page table are poisoned
/// @par Thread safety
/// any thread
#[cfg(feature = "fault-injection")]
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_fault_panic(cache: *mut rkv_cache) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |_| panic!("injected fault")) }
}
