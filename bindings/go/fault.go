//go:build radixkv_fault_injection

package radixkv

/*
#define RKV_FAULT_INJECTION
#include "call.h"

static inline rkvgo_failure *rkvgo_fault_panic(rkv_cache *cache) {
	return rkvgo_end(rkv_fault_panic(cache));
}

static inline rkvgo_failure *rkvgo_fault_panic_snapshot(rkv_snapshot_cache *cache) {
	return rkvgo_end(rkv_fault_panic_snapshot(cache));
}
*/
import "C"

// FaultPanic panics inside the library while the handle is in use. Only for tests, with a library
// that was built with its fault-injection feature.
func (c *Cache) FaultPanic() error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_fault_panic(raw))
}

// FaultPanic is that of Cache.
func (c *SnapshotCache[V]) FaultPanic() error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_fault_panic_snapshot(raw))
}
