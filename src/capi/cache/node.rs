//! Nodes: what can be seen of them, and locks of callers: what they protect is not evicted.
use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{AbiStruct, fill, out, rkv_status, with, write_struct};
use crate::ids::{HandleId, NodeId};

/// Names a node of one cache, that is "the prefix that ends here". Zero names none.
///
/// An id is good for as long as a lock that a caller took, by rkv_cache_lock(), RKV_MATCH_LOCK or
/// RKV_INSERT_LOCK, stays on the node or below it. (rkv_cache_insert_args.lock moves one away.)
/// Without one it may become stale, which is detected: a stale id gives RKV_STATUS_STALE_NODE and
/// never means another node. A node that only sequences keep locked is not evicted, but
/// rkv_sequence_publish() may make it longer, and then it has another id:
/// rkv_sequence_publish_result.node. A split leaves the id with the deeper half. Ids tell 255
/// caches of a process apart, and one place in the index can be reused 2^24 times before it is
/// retired.
pub type rkv_node_id = u64;

/// What can be seen of a node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_node_info {
    /// sizeof(rkv_node_info).
    pub struct_size: u32,
    /// Locks on this node, and one for each child that is protected. 0: nothing protects the node.
    pub lock_count: u32,
    /// The parent, 0 for a root.
    pub parent: rkv_node_id,
    /// Positions of the node's own segment; 0 for a root.
    pub position_count: u64,
    /// Pages of the node's own segment: position_count / page_size.
    pub page_count: u64,
    /// Positions from the beginning to the node's end.
    pub end_position: u64,
    /// Number of children.
    pub child_count: u64,
    /// Logical time of the last match that covered the node.
    pub last_access: u64,
    /// Matches that covered the node; stays at 2^32 - 1.
    pub hit_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_node_info {
    const NAME: &'static str = "out_info";
    const V1: usize = 64;
}

/// What can be seen of a node.
///
/// @param cache the cache
/// @param node a node id
/// @param out_info receives it; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_node_read_info(
    cache: *const rkv_cache,
    node: rkv_node_id,
    out_info: *mut rkv_node_info,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_info.
    unsafe {
        with(cache, |shared| {
            let info = shared.read().node_info(NodeId(node))?;
            let made = rkv_node_info {
                struct_size: 0,
                lock_count: info.locks,
                parent: info.parent.map_or(0, |parent| parent.0),
                position_count: info.positions as u64,
                page_count: info.pages as u64,
                end_position: info.end_position as u64,
                child_count: info.children as u64,
                last_access: info.last_access,
                hit_count: info.hits,
            };
            write_struct(out_info, &made)
        })
    }
}

/// Pages of a node's own segment, in order.
///
/// @param cache the cache
/// @param node a node id
/// @param pages receives them; (NULL, 0) asks for the count
/// @param capacity room in pages
/// @param out_count receives the number of pages, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages copied); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_node_read_pages(
    cache: *const rkv_cache,
    node: rkv_node_id,
    pages: *mut u32,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, pages and out_count.
    unsafe {
        with(cache, |shared| {
            let state = shared.read();
            fill(
                state.node_pages(NodeId(node))?,
                pages,
                capacity,
                out_count,
                ["pages", "out_count"],
            )
        })
    }
}

/// Children of a node, in the order of their first pages' keys; with the block-hash index of their
/// digests.
///
/// @param cache the cache
/// @param node a node id
/// @param children receives them; (NULL, 0) asks for the count
/// @param capacity room in ids
/// @param out_count receives the number of children, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(children), for the block-hash index times their logarithm; shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_node_read_children(
    cache: *const rkv_cache,
    node: rkv_node_id,
    children: *mut rkv_node_id,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on cache, children and out_count.
    unsafe {
        with(cache, |shared| {
            let found = shared.read().node_children(NodeId(node))?;
            fill(&found, children.cast::<NodeId>(), capacity, out_count, ["children", "out_count"])
        })
    }
}

/// Names one lock that a caller took on a cache, by rkv_cache_lock(), RKV_MATCH_LOCK or
/// RKV_INSERT_LOCK, until rkv_cache_unlock(). Zero names none.
///
/// The lock protects the prefix that it was taken on, whatever becomes of the nodes on the way. No
/// id is issued twice in a process: an old one gives RKV_STATUS_STALE_LOCK and never undoes another
/// lock. A cache can have 2^24 locks of callers at a time.
pub type rkv_lock_id = u64;

/// Protects a node and all its ancestors from eviction. A node can have any number of locks, each
/// with an id of its own.
///
/// @param cache the cache
/// @param node a node id
/// @param out_lock receives the lock's id
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_NODE; RKV_STATUS_INVALID_STATE when no more locks can be
/// numbered; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes on the path); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_lock(
    cache: *mut rkv_cache,
    node: rkv_node_id,
    out_lock: *mut rkv_lock_id,
) -> rkv_status {
    // SAFETY: the caller's contract on cache and out_lock.
    unsafe {
        with(cache, |shared| {
            let into = out(out_lock, "out_lock")?;
            into.write(shared.turn().lock(NodeId(node))?.0);
            Ok(())
        })
    }
}

/// Lets go of pages that a lock protects and no token from a position on attends to: of WINDOW and
/// CHUNK groups those that were passed, but sinks, and of STATE groups the checkpoints of fewer
/// positions. What FULL groups have stays protected, and so with one group nothing changes.
///
/// For an engine that moves a lock along with a request, rkv_cache_insert_args.lock: all that the
/// request published stays protected until its steps are computed, and this says how far they are.
/// Before it allocates pages, so that it needs no more of them than its windows have.
///
/// @param cache the cache
/// @param lock the lock
/// @param position the first position that steps to come, or under way, compute; more than what the
/// lock is on is fine, and a smaller one than before changes nothing
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(pages let go of), and a search among those that the lock protects of other groups than the
/// first, which move up; lock, in slices; needs no memory
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_slide_lock(
    cache: *mut rkv_cache,
    lock: rkv_lock_id,
    position: u64,
) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe {
        with(cache, |shared| Ok(shared.turn().slide_lock(HandleId(lock), position as usize)?))
    }
}

/// Undoes one lock. Recency stays as it is.
///
/// @param cache the cache
/// @param lock the lock
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes on the path, and pages of those that merge); lock, in slices; needs no memory
/// @par Thread safety
/// any thread, not only the one that took the lock
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_unlock(cache: *mut rkv_cache, lock: rkv_lock_id) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.turn().unlock(HandleId(lock))?)) }
}
