//! Locks of callers: what they protect is not evicted.
use super::cache::rkv_cache;
use super::handle::with;
use super::node::rkv_node_id;
use super::pointer::out;
use super::status::rkv_status;
use crate::ids::{HandleId, NodeId};

/// Names one lock that a caller took on a cache, from rkv_cache_lock() or RKV_MATCH_LOCK to
/// rkv_cache_unlock(). Zero names none.
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
/// O(nodes on the path); lock
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
            into.write(shared.write().lock(NodeId(node))?.0);
            Ok(())
        })
    }
}

/// Undoes one lock. Recency stays as it is.
///
/// @param cache the cache
/// @param lock the lock
/// @return RKV_STATUS_OK; RKV_STATUS_STALE_LOCK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(nodes on the path, and pages of those that merge); lock; allocates nothing
/// @par Thread safety
/// any thread, not only the one that took the lock
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_unlock(cache: *mut rkv_cache, lock: rkv_lock_id) -> rkv_status {
    // SAFETY: the caller's contract on cache.
    unsafe { with(cache, |shared| Ok(shared.ending(|state| state.unlock(HandleId(lock)))?)) }
}
