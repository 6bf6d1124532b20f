package radixkv

/*
#include "snapshot.h"

#include <stdlib.h>

typedef struct rkvgo_snapshot_fetched {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	rkv_snapshot_cache_fetch_result fetch;
} rkvgo_snapshot_fetched;

typedef struct rkvgo_snapshot_waited {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	bool pending;
} rkvgo_snapshot_waited;

typedef struct rkvgo_snapshot_tier_stats_made {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	rkv_snapshot_tier_stats stats;
} rkvgo_snapshot_tier_stats_made;

typedef struct rkvgo_snapshot_parts_made {
	rkvgo_failure *failure;
	rkv_snapshot_part *parts; // to be freed
	size_t count;
} rkvgo_snapshot_parts_made;

// Zero takes the default of a limit.
static inline rkvgo_snapshot_waited rkvgo_snapshot_cache_attach(
	rkv_snapshot_cache *cache, uint32_t flags, const char *directory, uint64_t byte_limit,
	const uint8_t *fingerprint, uint32_t write_after_matches, uint32_t worker_count,
	uint64_t waiting_byte_limit, uint32_t commit_interval_ms, bool has_event_fd, int32_t event_fd,
	rkv_remote_store remote, uint32_t remote_timeout_ms, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_waited made = {0};
	rkv_snapshot_tier_config config;
	rkv_status status = rkv_snapshot_tier_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		remote.struct_size = sizeof remote;
		config.flags = flags;
		config.directory = directory[0] || !remote.has ? directory : NULL;
		config.remote = remote.has ? &remote : NULL;
		config.remote_timeout_ms = remote_timeout_ms;
		config.byte_limit = byte_limit;
		for (size_t at = 0; at < sizeof config.fingerprint; at++) {
			config.fingerprint[at] = fingerprint[at];
		}
		config.write_after_matches = write_after_matches;
		config.worker_count = worker_count ? worker_count : config.worker_count;
		config.waiting_byte_limit =
			waiting_byte_limit ? waiting_byte_limit : config.waiting_byte_limit;
		config.commit_interval_ms =
			commit_interval_ms ? commit_interval_ms : config.commit_interval_ms;
		config.event_fd = has_event_fd ? event_fd : config.event_fd;
		status = rkv_snapshot_cache_attach(cache, &config);
	}
	made.failure = rkvgo_end(status);
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

// RKV_STATUS_PENDING is no failure.
static inline rkvgo_snapshot_waited rkvgo_snapshot_wait(
	rkv_snapshot_cache *cache, bool detach, uint64_t timeout_ms, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_waited made = {0};
	rkv_status status = detach ? rkv_snapshot_cache_detach(cache, timeout_ms)
	                           : rkv_snapshot_cache_flush(cache, timeout_ms);
	made.pending = status == RKV_STATUS_PENDING;
	made.failure = made.pending ? NULL : rkvgo_end(status);
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_fetched rkvgo_snapshot_cache_fetch(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count,
	uint32_t flags, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_fetched made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.fetch.struct_size = sizeof made.fetch;
	made.failure = rkvgo_end(
		rkv_snapshot_cache_fetch(cache, &space, &tokens, flags, &made.fetch));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_found rkvgo_snapshot_cache_take(
	rkv_snapshot_cache *cache, rkv_ticket_id ticket, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_found made = {0};
	made.match.struct_size = sizeof made.match;
	rkv_status status = rkv_snapshot_cache_take(cache, ticket, &made.match);
	made.pending = status == RKV_STATUS_PENDING;
	made.failure = made.pending ? NULL : rkvgo_end(status);
	rkvgo_snapshot_name(&made);
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_waited rkvgo_snapshot_cache_cancel(
	rkv_snapshot_cache *cache, rkv_ticket_id ticket, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_waited made = {0};
	made.failure = rkvgo_end(rkv_snapshot_cache_cancel(cache, ticket));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_tier_stats_made rkvgo_snapshot_tier_stats(
	rkv_snapshot_cache *cache, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_tier_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_snapshot_cache_read_tier_stats(cache, &made.stats));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_parts_made rkvgo_snapshot_parts(
	const rkv_snapshot_cache *cache, rkv_pin_id pin
) {
	rkvgo_snapshot_parts_made made = {0};
	rkv_status status = rkv_snapshot_cache_read_parts(cache, pin, NULL, 0, 0, &made.count);
	if (status == RKV_STATUS_OK && made.count != 0) {
		made.parts = calloc(made.count, sizeof *made.parts);
		if (made.parts == NULL) {
			made.failure = rkvgo_no_memory();
			return made;
		}
		// The snapshot is pinned: its parts stay what they are.
		status = rkv_snapshot_cache_read_parts(
			cache, pin, made.parts, sizeof *made.parts, made.count, &made.count);
		for (size_t at = 0; at < made.count; at++) {
			made.parts[at].data = rkvgo_array(made.parts[at].data, made.parts[at].size_bytes);
		}
	}
	made.failure = rkvgo_end(status);
	return made;
}
*/
import "C"

import (
	"math"
	"runtime"
	"time"
	"unsafe"
)

// SnapshotOnEviction, as SnapshotTierConfig.WriteAfterMatches: values are written when they leave
// memory.
const SnapshotOnEviction = math.MaxUint32

// SnapshotTierConfig says what lies below the memory of a snapshot cache. Zero takes the defaults.
type SnapshotTierConfig struct {
	// Flags are TiersThreads or 0.
	Flags TierFlags
	// Directory is made if it isn't there. It is this cache's alone until it is detached.
	Directory string
	// ByteLimit bounds the bytes of data in it; least recently used values go. No default.
	ByteLimit uint64
	// Fingerprint is what the values are good for: a digest of model, quantisation, layout, and
	// whatever else changes what their bytes mean. A directory of another one is refused.
	Fingerprint [32]byte
	// WriteAfterMatches says when a value is written: 0 as soon as it is inserted, n when n
	// matches have found it, SnapshotOnEviction when it leaves memory.
	WriteAfterMatches uint32
	// WorkerCount is how many requests to read the disk, and as many to write, are under way at
	// once: 1 to 64. Default 8.
	WorkerCount uint32
	// WaitingByteLimit bounds the bytes of values that wait to be written, but one alone may be
	// longer; for the directory and for Remote each. Default 4 GiB.
	WaitingByteLimit uint64
	// CommitInterval is the time from a write to its commit, at most, while the disk keeps up: 1 ms
	// to 1 min. Default 250 ms.
	CommitInterval time.Duration
	// EventFD is an eventfd that becomes readable when something was read or written, if
	// HasEventFD. Read it before you ask for the fetches, not after. The cache never closes it.
	EventFD int32
	// HasEventFD says that EventFD is set.
	HasEventFD bool
	// Remote is a store that caches share; none without functions. With one there may be no
	// Directory.
	Remote RemoteStore
	// RemoteTimeoutMS is how long a call to it may take; 0 for the default.
	RemoteTimeoutMS uint32
}

// Attach puts a directory, a store that caches share, or both below memory. Values of
// SnapshotInsertStorable are written to them from now on; those that are in the directory already
// are found at once. Of a remote store nobody knows what it has: Fetch asks it. It reads from the
// disk. What cannot be used gives Storage.
func (c *SnapshotCache[V]) Attach(config SnapshotTierConfig) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	interval := config.CommitInterval.Milliseconds()
	if config.CommitInterval > 0 && interval == 0 {
		interval = 1
	}
	if interval < 0 || interval > math.MaxUint32 {
		c.mu.RUnlock()
		return invalid("config.CommitInterval is not 1 ms to 1 min")
	}
	if err := whole("config.Directory", config.Directory); err != nil {
		c.mu.RUnlock()
		return err
	}
	directory := C.CString(config.Directory)
	made := C.rkvgo_snapshot_cache_attach(raw, C.uint32_t(config.Flags), directory,
		C.uint64_t(config.ByteLimit), (*C.uint8_t)(&config.Fingerprint[0]),
		C.uint32_t(config.WriteAfterMatches), C.uint32_t(config.WorkerCount),
		C.uint64_t(config.WaitingByteLimit), C.uint32_t(interval), C.bool(config.HasEventFD),
		C.int32_t(config.EventFD), config.Remote.c(), C.uint32_t(config.RemoteTimeoutMS),
		c.shelf.c)
	C.free(unsafe.Pointer(directory))
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return err
}

// Detach takes away what is below memory, after waiting for what is being written; true when that
// was written before the time was over. Fetches that are out are stale from now on. What another
// goroutine attaches meanwhile, after it detached this, stays.
func (c *SnapshotCache[V]) Detach(timeout time.Duration) (bool, error) {
	return c.wait(true, timeout)
}

// Flush waits until everything that is being written is committed, and says whether it is.
func (c *SnapshotCache[V]) Flush(timeout time.Duration) (bool, error) {
	return c.wait(false, timeout)
}

func (c *SnapshotCache[V]) wait(detach bool, timeout time.Duration) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	milliseconds := max(timeout.Milliseconds(), 0)
	made := C.rkvgo_snapshot_wait(raw, C.bool(detach), C.uint64_t(milliseconds), c.shelf.c)
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return err == nil && !bool(made.pending), err
}

// SnapshotFetch brings a value from below memory. Take or Cancel ends it.
type SnapshotFetch[V any] struct {
	// TokenCount is the number of tokens of the value that it brings; this and the next two are 0
	// when the remote store is asked: the pin that Take gives says then what came, if anything did.
	TokenCount int
	// CommonTokenCount is the number of those that the list begins with: all, but with
	// SnapshotMatchTrimmable.
	CommonTokenCount int
	// SizeBytes is what the value takes.
	SizeBytes uint64

	cache  *SnapshotCache[V]
	ticket C.rkv_ticket_id
}

// Fetch starts to bring the longest prefix below memory into it, if it is longer than what memory
// has, or to ask the remote store for one that is longer than what memory and the directory have;
// nil when there is none, and nothing to ask. It never waits for either. Flags as for MatchWith.
func (c *SnapshotCache[V]) Fetch(
	namespace Namespace, tokens []uint32, flags SnapshotMatchFlags,
) (*SnapshotFetch[V], error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	made := C.rkvgo_snapshot_cache_fetch(raw, namespace.c(), u32Pointer(tokens),
		C.size_t(len(tokens)), C.uint32_t(flags), c.shelf.c)
	c.mu.RUnlock()
	if err := asError(made.failure); err != nil || made.fetch.ticket == 0 {
		freeSnapshots(made.freed, c.free)
		return nil, err
	}
	f := &SnapshotFetch[V]{
		TokenCount:       int(made.fetch.token_count),
		CommonTokenCount: int(made.fetch.common_token_count),
		SizeBytes:        uint64(made.fetch.size_bytes),
		cache:            c,
		ticket:           made.fetch.ticket,
	}
	runtime.SetFinalizer(f, func(f *SnapshotFetch[V]) { _ = f.Cancel() }) // for the forgotten
	freeSnapshotsOr(f.Cancel, made.freed, c.free)
	return f, nil
}

// Take pins what the fetch has brought. While it goes on the error is Pending: ask again, or sleep
// on the eventfd of the config. Else the fetch has ended, and the pin is nil when the value could
// not be had.
func (f *SnapshotFetch[V]) Take() (*SnapshotPin[V], error) {
	if f == nil {
		return nil, invalid("the fetch is none")
	}
	c := f.cache
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	made := C.rkvgo_snapshot_cache_take(raw, f.ticket, c.shelf.c)
	c.mu.RUnlock()
	pin, err := c.pinned(raw, made), asError(made.failure)
	if err == nil && !bool(made.pending) {
		runtime.SetFinalizer(f, nil)
	}
	freeSnapshotsOr(pin.Release, made.freed, c.free)
	if made.pending {
		return nil, &Error{Status: Pending, Message: "the value is still being read"}
	}
	return pin, err
}

// Cancel gives the fetch up. After Take or another Cancel, and after Detach, it gives StaleTicket.
func (f *SnapshotFetch[V]) Cancel() error {
	if f == nil {
		return invalid("the fetch is none")
	}
	c := f.cache
	raw, err := c.enter()
	if err != nil {
		return err
	}
	made := C.rkvgo_snapshot_cache_cancel(raw, f.ticket, c.shelf.c)
	c.mu.RUnlock()
	runtime.SetFinalizer(f, nil)
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return err
}

// Parts are the bytes of which a storable value is made, those of a copy too: none for others. They
// are good until Release, and must not be changed. Of a cache that was closed the error is
// ErrClosed; after Release it is StalePin, whatever became of the cache.
func (p *SnapshotPin[V]) Parts() ([][]byte, error) {
	if p == nil || p.pin == 0 {
		return nil, invalid("the pin is none")
	}
	if p.released.Load() {
		return nil, p.wasReleased()
	}
	// An open cache stays beside a Release; behind p.raw there may be nothing any more after it.
	raw, err := p.cache.enter()
	if err != nil {
		return nil, err
	}
	defer p.cache.mu.RUnlock()
	made := C.rkvgo_snapshot_parts(raw, p.pin)
	defer C.free(unsafe.Pointer(made.parts))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	parts := make([][]byte, made.count)
	for i, part := range unsafe.Slice(made.parts, made.count) {
		parts[i] = unsafe.Slice((*byte)(part.data), part.size_bytes)
	}
	runtime.KeepAlive(p)
	return parts, nil
}

// SnapshotTierStats are counters of what is below memory, since it was attached unless they say
// "now".
type SnapshotTierStats struct {
	// IsReadOnly says that the disk refused so often that nothing is written any more.
	IsReadOnly bool
	// EntryCount counts the values now that can be fetched or are being written.
	EntryCount uint64
	// UsedBytes are the bytes of data now, of ByteLimit.
	UsedBytes uint64
	// ByteLimit is the limit.
	ByteLimit uint64
	// WritingCount counts the values now that are being written.
	WritingCount uint64
	// WaitingBytes are the bytes now that wait to be written.
	WaitingBytes uint64
	// LoadingBytes are the bytes now that are being read.
	LoadingBytes uint64
	// TicketCount counts the fetches now.
	TicketCount uint64
	// IndexBytes is the host memory now that the index takes.
	IndexBytes uint64
	// WriteCount counts the values whose write was started.
	WriteCount uint64
	// WrittenBytes are the bytes written.
	WrittenBytes uint64
	// FailedWriteCount counts the writes that the disk refused.
	FailedWriteCount uint64
	// NoSpaceCount counts those for want of room on the disk.
	NoSpaceCount uint64
	// FullCount counts the writes that waited for room under ByteLimit.
	FullCount uint64
	// ThrottledCount counts the writes that gave way because too much was waiting.
	ThrottledCount uint64
	// UnfitCount counts the values that are larger than ByteLimit, or without a byte.
	UnfitCount uint64
	// LoadCount counts the reads that were started.
	LoadCount uint64
	// LoadedCount counts the reads that brought a value into memory.
	LoadedCount uint64
	// ReadBytes are the bytes read.
	ReadBytes uint64
	// JoinedCount counts the fetches that joined a read that went on already.
	JoinedCount uint64
	// FailedLoadCount counts the reads that failed.
	FailedLoadCount uint64
	// DamagedCount counts those with a wrong checksum.
	DamagedCount uint64
	// LateCount counts the reads that ended when nobody waited any more.
	LateCount uint64
	// NoMemoryCount counts the fetches for which memory's byte limit left no room.
	NoMemoryCount uint64
	// UnusableCount counts the values in the directory that could not be used.
	UnusableCount uint64
	// CommitCount counts the commits.
	CommitCount uint64
	// LongestCommitNS is the nanoseconds of the longest commit.
	LongestCommitNS uint64
	// WriteNS is the nanoseconds of all writes together.
	WriteNS uint64
	// ReadNS is the nanoseconds of all reads together.
	ReadNS uint64
	// Remote are the counters of the store that caches share.
	Remote RemoteTotals
	// IsRing: the directory is written by io_uring.
	IsRing bool
}

// TierStats are the counters of what is below memory; all zero when nothing is.
func (c *SnapshotCache[V]) TierStats() (SnapshotTierStats, error) {
	raw, err := c.enter()
	if err != nil {
		return SnapshotTierStats{}, err
	}
	made := C.rkvgo_snapshot_tier_stats(raw, c.shelf.c)
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return SnapshotTierStats{
		IsReadOnly:       made.stats.is_read_only != 0,
		EntryCount:       uint64(made.stats.entry_count),
		UsedBytes:        uint64(made.stats.used_bytes),
		ByteLimit:        uint64(made.stats.byte_limit),
		WritingCount:     uint64(made.stats.writing_count),
		WaitingBytes:     uint64(made.stats.waiting_bytes),
		LoadingBytes:     uint64(made.stats.loading_bytes),
		TicketCount:      uint64(made.stats.ticket_count),
		IndexBytes:       uint64(made.stats.index_bytes),
		WriteCount:       uint64(made.stats.write_count),
		WrittenBytes:     uint64(made.stats.written_bytes),
		FailedWriteCount: uint64(made.stats.failed_write_count),
		NoSpaceCount:     uint64(made.stats.no_space_count),
		FullCount:        uint64(made.stats.full_count),
		ThrottledCount:   uint64(made.stats.throttled_count),
		UnfitCount:       uint64(made.stats.unfit_count),
		LoadCount:        uint64(made.stats.load_count),
		LoadedCount:      uint64(made.stats.loaded_count),
		ReadBytes:        uint64(made.stats.read_bytes),
		JoinedCount:      uint64(made.stats.joined_count),
		FailedLoadCount:  uint64(made.stats.failed_load_count),
		DamagedCount:     uint64(made.stats.damaged_count),
		LateCount:        uint64(made.stats.late_count),
		NoMemoryCount:    uint64(made.stats.no_memory_count),
		UnusableCount:    uint64(made.stats.unusable_count),
		CommitCount:      uint64(made.stats.commit_count),
		LongestCommitNS:  uint64(made.stats.longest_commit_ns),
		WriteNS:          uint64(made.stats.write_ns),
		ReadNS:           uint64(made.stats.read_ns),
		Remote:           remoteTotals(&made.stats.remote),
		IsRing:           made.stats.is_ring != 0,
	}, err
}
