package radixkv

/*
#include "call.h"

#include <stdlib.h>

typedef struct rkvgo_fetch_made {
	rkvgo_failure *failure;
	rkv_sequence_fetch_result fetch;
} rkvgo_fetch_made;

typedef struct rkvgo_prefetch_made {
	rkvgo_failure *failure;
	rkv_cache_prefetch_result prefetch;
} rkvgo_prefetch_made;

typedef struct rkvgo_agree_made {
	rkvgo_failure *failure;
	uint64_t position_count;
} rkvgo_agree_made;

// What is zero of the last four takes the defaults; event_fd is -1 for none.
static inline rkvgo_failure *rkvgo_cache_attach_tiers(
	rkv_cache *cache, rkv_tier_config given, rkv_remote_store remote,
	const rkv_tier_pool_config *pools, size_t pool_count
) {
	rkv_tier_config config;
	rkv_status status = rkv_tier_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		given.struct_size = sizeof given;
		remote.struct_size = sizeof remote;
		given.remote = remote.has ? &remote : NULL;
		given.pools = pools;
		given.pool_count = pool_count;
		given.pool_size = sizeof *pools;
		given.worker_count = given.worker_count ? given.worker_count : config.worker_count;
		given.commit_interval_ms =
			given.commit_interval_ms ? given.commit_interval_ms : config.commit_interval_ms;
		status = rkv_cache_attach_tiers(cache, &given);
	}
	return rkvgo_end(status);
}

static inline rkvgo_failure *rkvgo_cache_detach_tiers(rkv_cache *cache, uint64_t timeout_ms) {
	return rkvgo_end(rkv_cache_detach_tiers(cache, timeout_ms));
}

static inline rkvgo_failure *rkvgo_cache_flush_tiers(rkv_cache *cache, uint64_t timeout_ms) {
	return rkvgo_end(rkv_cache_flush_tiers(cache, timeout_ms));
}

static inline rkvgo_failure *rkvgo_cache_shrink_tiers(
	rkv_cache *cache, uint64_t host_bytes, uint64_t disk_bytes
) {
	return rkvgo_end(rkv_cache_shrink_tiers(cache, host_bytes, disk_bytes));
}

static inline rkvgo_fetch_made rkvgo_sequence_fetch(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t deadline_ms, uint32_t flags
) {
	rkvgo_fetch_made made = {0};
	made.fetch.struct_size = sizeof made.fetch;
	made.failure = rkvgo_end(
		rkv_sequence_fetch(cache, sequence, deadline_ms, flags, &made.fetch));
	return made;
}

static inline rkvgo_prefetch_made rkvgo_cache_prefetch(
	rkv_cache *cache, rkv_namespace space, const uint32_t *ids, size_t id_count,
	const rkv_token_item *items, size_t item_count, uint64_t deadline_ms, uint32_t flags
) {
	rkvgo_prefetch_made made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, id_count, items, item_count);
	made.prefetch.struct_size = sizeof made.prefetch;
	made.failure = rkvgo_end(
		rkv_cache_prefetch(cache, &space, &tokens, deadline_ms, flags, &made.prefetch));
	return made;
}

static inline rkvgo_failure *rkvgo_cache_cancel_prefetch(
	rkv_cache *cache, rkv_prefetch_id prefetch
) {
	return rkvgo_end(rkv_cache_cancel_prefetch(cache, prefetch));
}

static inline rkvgo_agree_made rkvgo_sequence_agree(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t position_count
) {
	rkvgo_agree_made made = {0};
	made.failure = rkvgo_end(
		rkv_sequence_agree(cache, sequence, position_count, &made.position_count));
	return made;
}
*/
import "C"

import (
	"errors"
	"time"
	"unsafe"
)

// TierFlags say how tiers are used.
type TierFlags uint32

const (
	// TiersAgree: nothing that was fetched is used before [Sequence.Agree].
	TiersAgree TierFlags = C.RKV_TIERS_AGREE
	// TiersThreads: threads that wait write the directory, also where the system has io_uring.
	TiersThreads TierFlags = C.RKV_TIERS_THREADS
)

// FetchFlags say what [Sequence.Fetch] and [Cache.Prefetch] do.
type FetchFlags uint32

// FetchLookOnly: say what could be fetched, and fetch nothing.
const FetchLookOnly FetchFlags = C.RKV_FETCH_LOOK_ONLY

// NoDeadline lets a fetch take as long as it takes. Other negative durations are over, as is 0.
const NoDeadline time.Duration = -1

// TierPoolConfig says of the pages of a pool what host memory they have.
type TierPoolConfig struct {
	// PageBytes are the bytes of a page in all layers of a group together.
	PageBytes uint64
	// HostBytes bounds host memory.
	HostBytes uint64
	// HostMemory is where that is, in memory that is not Go's; nil for the library's own.
	HostMemory unsafe.Pointer
}

// TierConfig says what lies below the pages of a cache.
type TierConfig struct {
	// Flags are TiersAgree, TiersThreads, both or 0.
	Flags TierFlags
	// PageBytes are the bytes of a page in all layers together.
	PageBytes uint64
	// HostBytes bounds host memory.
	HostBytes uint64
	// HostMemory is where that is, in memory that is not Go's; nil for the library's own.
	HostMemory unsafe.Pointer
	// Directory lies below host memory; "" for none.
	Directory string
	// DiskBytes bounds the data in it.
	DiskBytes uint64
	// Fingerprint is a digest of whatever changes what the bytes of a page mean.
	Fingerprint [32]byte
	// StoreAfterUses says when a page is copied to host memory: 0 as soon as it is published, n
	// after so many fetches, math.MaxUint32 when it is about to be evicted.
	StoreAfterUses uint32
	// WorkerCount is how many reads and writes of the disk are under way at once; 0: the default.
	WorkerCount uint32
	// CommitIntervalMS is the longest time from a write to its commit; 0 for the default.
	CommitIntervalMS uint32
	// EventFD becomes readable when there is something to poll for, once until the next Poll, so it
	// is read before that; 0 for none.
	EventFD int32
	// Remote is a store that others share; without Has there is none.
	Remote RemoteStore
	// RemoteTimeoutMS is how long a call to it may take; 0 for the default.
	RemoteTimeoutMS uint32
	// Pools are those of a page table with several: PageBytes, HostBytes, HostMemory are zero then.
	Pools []TierPoolConfig
}

// FetchResult is what the tiers have of a sequence.
type FetchResult struct {
	// IsOpen: a fetch is open now.
	IsOpen bool
	// PositionCount counts the positions that can be fetched.
	PositionCount uint64
	// HostPositionCount counts those of them that are in host memory.
	HostPositionCount uint64
	// AskedPositionCount counts the positions beyond those for which the remote store is asked.
	AskedPositionCount uint64
}

// PrefetchResult is a prefetch, and what there is of its prompt.
type PrefetchResult struct {
	// Prefetch names it for [Cache.CancelPrefetch]; 0 when nothing is brought.
	Prefetch uint64
	// CachedPositionCount counts the positions that the device has, of whole pages.
	CachedPositionCount uint64
	// PositionCount counts the positions beyond those that the tiers have.
	PositionCount uint64
	// HostPositionCount counts those of them that are in host memory already.
	HostPositionCount uint64
	// AskedPositionCount counts the positions beyond those for which the remote store is asked.
	AskedPositionCount uint64
}

// AttachTiers puts host memory, and perhaps a directory, below the pages of a cache that has a
// journal. The engine carries the copies out: see [Cache.Poll].
func (c *Cache) AttachTiers(config TierConfig) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	given := C.rkv_tier_config{
		flags:              C.uint32_t(config.Flags),
		page_bytes:         C.uint64_t(config.PageBytes),
		host_bytes:         C.uint64_t(config.HostBytes),
		host_memory:        config.HostMemory,
		disk_bytes:         C.uint64_t(config.DiskBytes),
		store_after_uses:   C.uint32_t(config.StoreAfterUses),
		worker_count:       C.uint32_t(config.WorkerCount),
		commit_interval_ms: C.uint32_t(config.CommitIntervalMS),
		event_fd:           -1,
		remote_timeout_ms:  C.uint32_t(config.RemoteTimeoutMS),
	}
	for i, b := range config.Fingerprint {
		given.fingerprint[i] = C.uint8_t(b)
	}
	if config.EventFD != 0 {
		given.event_fd = C.int32_t(config.EventFD)
	}
	if given.directory, err = text("config.Directory", config.Directory); err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(given.directory))
	// Host memory is not Go's, so that C may read where it is.
	var pools []C.rkv_tier_pool_config
	for _, pool := range config.Pools {
		pools = append(pools, C.rkv_tier_pool_config{
			page_bytes:  C.uint64_t(pool.PageBytes),
			host_bytes:  C.uint64_t(pool.HostBytes),
			host_memory: pool.HostMemory,
		})
	}
	return asError(C.rkvgo_cache_attach_tiers(
		raw, given, config.Remote.c(), unsafe.SliceData(pools), C.size_t(len(pools))))
}

// DetachTiers takes the tiers away, after waiting for what is being written; false when the time
// was over first.
func (c *Cache) DetachTiers(timeout time.Duration) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	defer c.mu.RUnlock()
	err = asError(C.rkvgo_cache_detach_tiers(raw, C.uint64_t(max(timeout.Milliseconds(), 0))))
	if errors.Is(err, Pending) {
		return false, nil
	}
	return err == nil, err
}

// FlushTiers waits until what was copied to host memory before is committed in the directory, and
// what was cleared is gone from there; false when something is not written yet. Copies that are
// still to be carried out are not waited for.
func (c *Cache) FlushTiers(timeout time.Duration) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	defer c.mu.RUnlock()
	err = asError(C.rkvgo_cache_flush_tiers(raw, C.uint64_t(max(timeout.Milliseconds(), 0))))
	if errors.Is(err, Pending) {
		return false, nil
	}
	return err == nil, err
}

// ShrinkTiers gives up pages of host memory and of the directory until no more bytes than these are
// in use, ends of prefixes first; math.MaxUint64 leaves either as it is. They may grow again.
func (c *Cache) ShrinkTiers(hostBytes, diskBytes uint64) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_shrink_tiers(raw, C.uint64_t(hostBytes), C.uint64_t(diskBytes)))
}

func deadlineMS(deadline time.Duration) C.uint64_t {
	if deadline == NoDeadline {
		return 1<<64 - 1
	}
	return C.uint64_t((max(deadline, 0) + time.Millisecond - 1).Milliseconds())
}

// Prefetch starts to bring what the tiers have of a prompt to host memory, before a sequence begins
// with it; NoDeadline takes as long as it takes, 0 brings nothing.
func (c *Cache) Prefetch(
	namespace Namespace, tokens Tokens, deadline time.Duration, flags FetchFlags,
) (PrefetchResult, error) {
	raw, err := c.enter()
	if err != nil {
		return PrefetchResult{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_prefetch(raw, namespace.c(), tokens.idPointer(),
		C.size_t(len(tokens.IDs)), tokens.itemPointer(), C.size_t(len(tokens.Items)),
		deadlineMS(deadline), C.uint32_t(flags))
	p := &made.prefetch
	return PrefetchResult{
		uint64(p.prefetch), uint64(p.cached_position_count), uint64(p.position_count),
		uint64(p.host_position_count), uint64(p.asked_position_count),
	}, asError(made.failure)
}

// CancelPrefetch gives a prefetch up. What it brought stays in host memory until that needs the
// room.
func (c *Cache) CancelPrefetch(prefetch uint64) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_cancel_prefetch(raw, C.rkv_prefetch_id(prefetch)))
}

// Fetch starts to bring what the tiers have of a sequence beyond what it reuses; NoDeadline takes
// as long as it takes, 0 only what host memory has.
func (s Sequence) Fetch(deadline time.Duration, flags FetchFlags) (FetchResult, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return FetchResult{}, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_fetch(raw, C.rkv_sequence_id(s.id), deadlineMS(deadline),
		C.uint32_t(flags))
	return FetchResult{
		made.fetch.is_open != 0, uint64(made.fetch.position_count),
		uint64(made.fetch.host_position_count), uint64(made.fetch.asked_position_count),
	}, asError(made.failure)
}

// Agree makes a sequence reuse no more than all ranks can, and says how much that is.
func (s Sequence) Agree(positionCount uint64) (uint64, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return 0, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_agree(raw, C.rkv_sequence_id(s.id), C.uint64_t(positionCount))
	return uint64(made.position_count), asError(made.failure)
}
