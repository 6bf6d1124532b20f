package radixkv

/*
#include "snapshot.h"

typedef struct rkvgo_snapshot_cache_made {
	rkvgo_failure *failure;
	rkv_snapshot_cache *cache;
	rkvgo_shelf *shelf;
} rkvgo_snapshot_cache_made;

typedef struct rkvgo_snapshot_stats_made {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	rkv_snapshot_cache_stats stats;
} rkvgo_snapshot_stats_made;

typedef struct rkvgo_snapshot_call {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
} rkvgo_snapshot_call;

// Zero takes the default of a limit.
static inline rkvgo_snapshot_cache_made rkvgo_snapshot_cache_create(
	uint64_t entry_limit, uint64_t byte_limit, bool disabled
) {
	rkvgo_snapshot_cache_made made = {.shelf = rkvgo_shelf_new()};
	if (made.shelf == NULL) {
		made.failure = rkvgo_no_memory();
		return made;
	}
	rkv_snapshot_cache_config config;
	rkv_status status = rkv_snapshot_cache_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		config.entry_limit = entry_limit ? entry_limit : config.entry_limit;
		config.entry_limit = disabled ? 0 : config.entry_limit;
		config.byte_limit = byte_limit ? byte_limit : config.byte_limit;
		status = rkv_snapshot_cache_create(&config, &made.cache);
	}
	made.failure = rkvgo_end(status);
	if (made.failure != NULL) {
		rkvgo_shelf_free(made.shelf);
	}
	return made;
}

static inline rkvgo_snapshot *rkvgo_snapshot_cache_destroy(
	rkv_snapshot_cache *cache, rkvgo_shelf *shelf
) {
	rkv_snapshot_cache_destroy(cache);
	return rkvgo_snapshots_take(shelf);
}

static inline rkvgo_snapshot_call rkvgo_snapshot_cache_clear(
	rkv_snapshot_cache *cache, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_call made = {0};
	made.failure = rkvgo_end(rkv_snapshot_cache_clear(cache));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_stats_made rkvgo_snapshot_cache_stats(
	const rkv_snapshot_cache *cache, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_snapshot_cache_read_stats(cache, &made.stats));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_failure *rkvgo_snapshot_cache_check(const rkv_snapshot_cache *cache) {
	return rkvgo_end(rkv_snapshot_cache_check(cache));
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
)

// SnapshotCacheConfig says how to build a snapshot cache. Zero takes the defaults.
type SnapshotCacheConfig struct {
	// EntryLimit is the most entries. Default 1024.
	EntryLimit uint64
	// ByteLimit is the most bytes, as inserts state them; those that only readers still use are
	// counted in. Default: no limit.
	ByteLimit uint64
	// Disabled makes a cache that stores nothing.
	Disabled bool
}

// SnapshotCache stores states of an engine by the tokens that led to them, and finds that of the
// longest stored prefix. It stands alone: it needs no page table. The program holds its values, and
// what they lead to: when that is the cache itself, or free leads to it, only Close ends it.
type SnapshotCache[V any] struct {
	// As in PageTable. Never held while values are freed.
	mu      sync.RWMutex
	raw     *C.rkv_snapshot_cache // nil after Close
	closing sync.Mutex            // a Close's, until all but the values is freed
	free    func(V)
	shelf   *snapshotShelf
}

// snapshotShelf is what C code has of it as long as the cache, a pin or a value that may be
// written is there: they all lead to it.
type snapshotShelf struct{ c *C.rkvgo_shelf }

// NewSnapshotCache creates an empty cache of values of one type.
//
// free, which may be nil, is called exactly once for each value that the cache took over, when it
// and all readers are done with it: by the goroutine whose call let it go, when that call has done
// everything else. It may call the cache. A value of SnapshotInsertStorable may be let go while no
// call runs: the next call of the cache but Probe and Check, or Release of one of its pins, frees
// it.
//
// When free panics the other values are freed, and a pin or fetch that the call was to return is
// given back; then the panic goes on to the caller of that call.
func NewSnapshotCache[V any](
	config SnapshotCacheConfig, free func(V),
) (*SnapshotCache[V], error) {
	if have := LibraryABIVersion(); have < ABIVersion {
		return nil, &Error{Status: Unsupported, Message: fmt.Sprintf(
			"the loaded library has ABI %d, this package needs %d", have, ABIVersion)}
	}
	made := C.rkvgo_snapshot_cache_create(
		C.uint64_t(config.EntryLimit), C.uint64_t(config.ByteLimit), C.bool(config.Disabled))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	shelf := &snapshotShelf{made.shelf}
	runtime.SetFinalizer(shelf, func(shelf *snapshotShelf) { C.rkvgo_shelf_free(shelf.c) })
	c := &SnapshotCache[V]{raw: made.cache, free: free, shelf: shelf}
	runtime.SetFinalizer(c, (*SnapshotCache[V]).Close) // for those that nobody closed
	return c, nil
}

// Close gives the cache up. Values that are pinned stay until their pins are released, the others
// are freed. More than one Close is fine. It waits until calls that are running have left the
// library, but not for their free, which may call Close itself: what they let go may be freed after
// Close has returned. What free needs has to stay until they have returned, too.
func (c *SnapshotCache[V]) Close() error {
	if c == nil {
		return nil
	}
	c.closing.Lock()
	c.mu.Lock()
	raw := c.raw
	c.raw = nil
	c.mu.Unlock()
	var freed *C.rkvgo_snapshot
	if raw != nil {
		// Not with c.mu, as in Cache.
		freed = C.rkvgo_snapshot_cache_destroy(raw, c.shelf.c)
		runtime.SetFinalizer(c, nil)
	}
	c.closing.Unlock()
	freeSnapshots(freed, c.free)
	return nil
}

// enter is that of Cache: c.mu.RUnlock ends it.
func (c *SnapshotCache[V]) enter() (*C.rkv_snapshot_cache, error) {
	if c == nil || !c.mu.TryRLock() {
		return nil, ErrClosed
	}
	if c.raw == nil {
		c.mu.RUnlock()
		return nil, ErrClosed
	}
	return c.raw, nil
}

// snapshotBox is what a handle names: a nil of an interface type would not come back out of one.
type snapshotBox[V any] struct {
	value V
	// What may be written: its parts stay where they are.
	shelf  *snapshotShelf
	pinner *runtime.Pinner
}

// unpin ends what Insert pinned.
func (b *snapshotBox[V]) unpin() {
	if b.pinner != nil {
		b.pinner.Unpin()
	}
}

// freeSnapshots frees what the library let go. No lock is held.
func freeSnapshots[V any](freed *C.rkvgo_snapshot, free func(V)) {
	if freed == nil {
		return
	}
	defer func() { freeSnapshots(freed, free) }() // the others, when free panics
	for freed != nil {
		handle, next := cgo.Handle(freed.handle), freed.next
		C.rkvgo_snapshot_free(freed)
		box := handle.Value().(*snapshotBox[V])
		handle.Delete()
		box.unpin()
		freed = next
		if free != nil {
			free(box.value)
		}
	}
}

// freeSnapshotsOr is freeSnapshots in a call that made something: when free panics nobody gets
// that, so it is undone.
func freeSnapshotsOr[V any](undo func() error, freed *C.rkvgo_snapshot, free func(V)) {
	if freed == nil {
		return
	}
	hasReturned := false
	defer func() {
		if !hasReturned {
			_ = undo()
		}
	}()
	freeSnapshots(freed, free)
	hasReturned = true
}

// Clear removes every entry. Values that are pinned stay until their pins are released.
func (c *SnapshotCache[V]) Clear() error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	made := C.rkvgo_snapshot_cache_clear(raw, c.shelf.c)
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return err
}

// SnapshotCacheStats are counters of a snapshot cache, since its creation unless they say
// "now".
type SnapshotCacheStats struct {
	// EntryCount counts the entries now.
	EntryCount uint64
	// EntryBytes are the bytes of their values now.
	EntryBytes uint64
	// PinnedEntryCount counts the entries now whose value is pinned.
	PinnedEntryCount uint64
	// PinCount counts the pins now.
	PinCount uint64
	// DetachedCount counts the values now that have no entry and wait for their readers.
	DetachedCount uint64
	// DetachedBytes are their bytes.
	DetachedBytes uint64
	// NodeCount counts the nodes of the tree now.
	NodeCount uint64
	// NamespaceCount counts the namespaces now.
	NamespaceCount uint64
	// IndexBytes is the host memory now that the cache itself takes, without the values.
	IndexBytes uint64
	// LookupCount counts the matches asked for; probes are not counted.
	LookupCount uint64
	// HitCount counts the matches that found a value.
	HitCount uint64
	// FullHitCount counts the matches that found the value of all tokens.
	FullHitCount uint64
	// LookupTokenCount counts the tokens that matches asked for.
	LookupTokenCount uint64
	// HitTokenCount counts the tokens that matches found.
	HitTokenCount uint64
	// StoredCount counts the values stored.
	StoredCount uint64
	// ReplacedCount counts those that took the place of another.
	ReplacedCount uint64
	// RejectedCount counts the values that an insert did not store.
	RejectedCount uint64
	// EvictedCount counts the entries that went for the limits.
	EvictedCount uint64
	// RemovedCount counts the entries that callers removed.
	RemovedCount uint64
}

// Stats are the counters at one moment.
func (c *SnapshotCache[V]) Stats() (SnapshotCacheStats, error) {
	raw, err := c.enter()
	if err != nil {
		return SnapshotCacheStats{}, err
	}
	made := C.rkvgo_snapshot_cache_stats(raw, c.shelf.c)
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return SnapshotCacheStats{
		EntryCount:       uint64(made.stats.entry_count),
		EntryBytes:       uint64(made.stats.entry_bytes),
		PinnedEntryCount: uint64(made.stats.pinned_entry_count),
		PinCount:         uint64(made.stats.pin_count),
		DetachedCount:    uint64(made.stats.detached_count),
		DetachedBytes:    uint64(made.stats.detached_bytes),
		NodeCount:        uint64(made.stats.node_count),
		NamespaceCount:   uint64(made.stats.namespace_count),
		IndexBytes:       uint64(made.stats.index_bytes),
		LookupCount:      uint64(made.stats.lookup_count),
		HitCount:         uint64(made.stats.hit_count),
		FullHitCount:     uint64(made.stats.full_hit_count),
		LookupTokenCount: uint64(made.stats.lookup_token_count),
		HitTokenCount:    uint64(made.stats.hit_token_count),
		StoredCount:      uint64(made.stats.stored_count),
		ReplacedCount:    uint64(made.stats.replaced_count),
		RejectedCount:    uint64(made.stats.rejected_count),
		EvictedCount:     uint64(made.stats.evicted_count),
		RemovedCount:     uint64(made.stats.removed_count),
	}, err
}

// Check checks every invariant of the cache. Its cost is one pass over it.
func (c *SnapshotCache[V]) Check() error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_snapshot_cache_check(raw))
}
