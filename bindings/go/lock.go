package radixkv

/*
#include "call.h"

typedef struct rkvgo_lock_made {
	rkvgo_failure *failure;
	rkv_lock_id lock;
} rkvgo_lock_made;

static inline rkvgo_lock_made rkvgo_cache_lock(rkv_cache *cache, rkv_node_id node) {
	rkvgo_lock_made made = {0};
	made.failure = rkvgo_end(rkv_cache_lock(cache, node, &made.lock));
	return made;
}

static inline rkvgo_failure *rkvgo_cache_slide_lock(
	rkv_cache *cache, rkv_lock_id lock, uint64_t position
) {
	return rkvgo_end(rkv_cache_slide_lock(cache, lock, position));
}

static inline rkvgo_failure *rkvgo_cache_unlock(rkv_cache *cache, rkv_lock_id lock) {
	return rkvgo_end(rkv_cache_unlock(cache, lock));
}
*/
import "C"

// LockID names one lock that was taken by Lock or MatchLock. Zero names none.
//
// The lock protects the prefix that it was taken on, whatever becomes of the nodes on the way. An
// id is never issued twice: an old one is detected, and undoes no other lock.
type LockID uint64

// Lock protects a node and all its ancestors from eviction. A node can have any number of locks.
func (c *Cache) Lock(node NodeID) (LockID, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_lock(raw, C.rkv_node_id(node))
	return LockID(made.lock), asError(made.failure)
}

// SlideLock lets go of pages that a lock protects and no token from a position on attends to: of
// windows and chunks those that were passed, and states of fewer positions. For locks that move
// with InsertArgs.Lock.
func (c *Cache) SlideLock(lock LockID, position int) error {
	if position < 0 {
		return invalid("position is negative") // in C it would be "everything"
	}
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_slide_lock(raw, C.rkv_lock_id(lock), C.uint64_t(position)))
}

// Unlock undoes one lock. Recency stays as it is.
func (c *Cache) Unlock(lock LockID) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_unlock(raw, C.rkv_lock_id(lock)))
}
