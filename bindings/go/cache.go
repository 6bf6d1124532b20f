package radixkv

/*
#include "call.h"

typedef struct rkvgo_cache_made {
	rkvgo_failure *failure;
	rkv_cache *cache;
} rkvgo_cache_made;

typedef struct rkvgo_cache_stats_made {
	rkvgo_failure *failure;
	rkv_cache_stats stats;
} rkvgo_cache_stats_made;

// Zero takes the defaults.
static inline rkvgo_cache_made rkvgo_cache_create(
	rkv_page_table *table, uint32_t flags, uint32_t index,
	uint32_t retained_sequence_limit, uint32_t retained_page_limit, uint64_t journal_bytes,
	uint64_t checkpoint_limit
) {
	rkvgo_cache_made made = {0};
	rkv_cache_config config;
	rkv_status status = rkv_cache_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		config.flags = flags ? flags : config.flags;
		config.index = index ? index : config.index;
		config.retained_sequence_limit = retained_sequence_limit;
		config.retained_page_limit = retained_page_limit;
		config.journal_bytes = journal_bytes;
		config.checkpoint_limit = checkpoint_limit;
		status = rkv_cache_create(table, &config, &made.cache);
	}
	made.failure = rkvgo_end(status);
	return made;
}

static inline rkvgo_count rkvgo_cache_evict(
	rkv_cache *cache, size_t page_count, uint32_t *pages, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_evict(cache, page_count, pages, capacity, &made.count));
	return made;
}

typedef struct {
	rkvgo_failure *failure;
	rkv_cache_clear_result result;
} rkvgo_clear_made;

static inline rkvgo_clear_made rkvgo_cache_clear(
	rkv_cache *cache, uint32_t flags, rkv_namespace space
) {
	rkv_cache_clear_args args = {
		.struct_size = sizeof args,
		.flags = flags,
		.space = flags & RKV_CLEAR_EVERYTHING ? NULL : &space,
	};
	rkvgo_clear_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(rkv_cache_clear(cache, &args, &made.result));
	return made;
}

static inline rkvgo_bool rkvgo_cache_contains_page(const rkv_cache *cache, uint32_t page) {
	rkvgo_bool made = {0};
	made.failure = rkvgo_end(rkv_cache_contains_page(cache, page, &made.value));
	return made;
}

static inline rkvgo_cache_stats_made rkvgo_cache_stats(const rkv_cache *cache) {
	rkvgo_cache_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_cache_read_stats(cache, &made.stats));
	return made;
}

static inline rkvgo_failure *rkvgo_cache_check(const rkv_cache *cache) {
	return rkvgo_end(rkv_cache_check(cache));
}

static inline rkvgo_count rkvgo_cache_dump(
	const rkv_cache *cache, uint32_t format, char *buffer, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_dump(cache, format, buffer, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"
)

// CacheFlags are options of a cache.
type CacheFlags uint32

// CacheWholePages: share whole pages only, reuse no part of a page by copy.
const CacheWholePages CacheFlags = C.RKV_CACHE_WHOLE_PAGES

// IndexKind says what stands behind a cache.
type IndexKind uint32

const (
	// IndexRadix is the radix tree, exact token comparison.
	IndexRadix IndexKind = C.RKV_INDEX_RADIX
	// IndexBlockHash knows pages by their digests, see [Tokens.PageDigests].
	IndexBlockHash IndexKind = C.RKV_INDEX_BLOCK_HASH
)

// DumpFormat is how Dump writes.
type DumpFormat uint32

const (
	// DumpJSON is one JSON object.
	DumpJSON DumpFormat = C.RKV_DUMP_JSON
	// DumpDOT is a Graphviz digraph.
	DumpDOT DumpFormat = C.RKV_DUMP_DOT
)

// CacheConfig says how to build a cache. Zero takes the defaults.
type CacheConfig struct {
	// Flags are Cache flags.
	Flags CacheFlags
	// Index is IndexRadix or IndexBlockHash.
	Index IndexKind
	// RetainedSequenceLimit bounds the finished sequences that Retain keeps: 1024.
	RetainedSequenceLimit uint32
	// RetainedPageLimit bounds the pages that those keep together: half of the page table's.
	RetainedPageLimit uint32
	// JournalBytes is the room of the ring that keeps the records of the journal: none. At least
	// 1024 + 256 * page size.
	JournalBytes uint64
	// CheckpointLimit bounds the checkpoints of a GroupState that a path keeps, the last one
	// included; those where several prompts go on stay besides. 0: any number.
	CheckpointLimit uint64
}

// Cache is the prefix index over one page table: which published pages hold which tokens.
type Cache struct {
	mu      sync.RWMutex // as in PageTable
	raw     *C.rkv_cache // nil after Close
	closing sync.Mutex   // a Close's, until everything is freed
	copies  copies
}

// NewCache creates an empty cache on a page table, which takes one cache at a time, and keeps the
// pages alive.
func NewCache(table *PageTable, config CacheConfig) (*Cache, error) {
	raw, err := table.enter()
	if err != nil {
		return nil, err
	}
	defer table.mu.RUnlock()
	made := C.rkvgo_cache_create(raw, C.uint32_t(config.Flags), C.uint32_t(config.Index),
		C.uint32_t(config.RetainedSequenceLimit), C.uint32_t(config.RetainedPageLimit),
		C.uint64_t(config.JournalBytes), C.uint64_t(config.CheckpointLimit))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	c := &Cache{raw: made.cache}
	runtime.SetFinalizer(c, (*Cache).Close) // for those that nobody closed
	return c, nil
}

// Close gives the cache up. Sequences that still live in it end, and all pages of the cache return
// to the page table's pool, or are outside when that is external. More than one Close is fine. It
// waits for calls that are running, those to a remote store included.
//
// While copies go on that [Cache.Poll] gave it changes nothing, and the error is InvalidState: they
// read and write memory that would be freed. [Cache.Complete] ends them. Nor does the garbage
// collector close such a cache.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	c.closing.Lock()
	defer c.closing.Unlock()
	if err := c.copies.close(); err != nil {
		return err
	}
	c.mu.Lock()
	raw := c.raw
	c.raw = nil
	c.mu.Unlock()
	if raw != nil {
		// Not with c.mu: it waits for functions of a remote store, which may ask for something.
		C.rkv_cache_destroy(raw)
		runtime.SetFinalizer(c, nil)
	}
	return nil
}

// enter is that of PageTable, but waits for no Close: that may wait for who calls, a function of a
// remote store. c.mu.RUnlock ends it.
func (c *Cache) enter() (*C.rkv_cache, error) {
	if c == nil || !c.mu.TryRLock() { // only Close locks it
		return nil, ErrClosed
	}
	if c.raw == nil {
		c.mu.RUnlock()
		return nil, ErrClosed
	}
	return c.raw, nil
}

// Evict returns up to pageCount pages to the free pool, least recently used first, and says how
// many. Fewer than asked is no error: the rest is locked.
//
// The evicted pages are written to pages, and no more than len(pages) are evicted; nil asks for no
// report and sets no limit, which is refused with an external pool.
func (c *Cache) Evict(pageCount int, pages []uint32) (int, error) {
	if pageCount < 0 {
		return 0, invalid("pageCount is negative") // in C it would be "everything"
	}
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_evict(raw, C.size_t(pageCount), u32Pointer(pages), C.size_t(len(pages)))
	return int(made.count), asError(made.failure)
}

// ClearFlags say which namespaces [Cache.Clear] clears: those that have the same as one in each of
// the chosen fields.
type ClearFlags uint32

const (
	// ClearLoRA: the adapter is the same, or there is none.
	ClearLoRA ClearFlags = C.RKV_CLEAR_LORA
	// ClearImage: the image is the same, or there is none.
	ClearImage ClearFlags = C.RKV_CLEAR_IMAGE
	// ClearSalt: the salt is the same.
	ClearSalt ClearFlags = C.RKV_CLEAR_SALT
	// ClearEpoch: the epoch is the same.
	ClearEpoch ClearFlags = C.RKV_CLEAR_EPOCH
	// ClearNamespace: all of it is the same.
	ClearNamespace ClearFlags = C.RKV_CLEAR_NAMESPACE
	// ClearEverything, alone: all namespaces.
	ClearEverything ClearFlags = C.RKV_CLEAR_EVERYTHING
)

// ClearResult says what a clear did.
type ClearResult struct {
	// NamespaceCount counts the namespaces that it found.
	NamespaceCount uint64
	// FreedPageCount counts the cached pages that went back to the free pool.
	FreedPageCount uint64
	// HeldPageCount counts the cleared pages that are still in use. Each goes when it is let go.
	HeldPageCount uint64
	// WaitingPageCount counts, with an external pool, the pages that Evict gives back next.
	WaitingPageCount uint64
	// DroppedSequenceCount counts the retained sequences that it dropped.
	DroppedSequenceCount uint64
}

// Clear clears namespaces while requests run: nothing of them is found any more, also not what
// sequences publish that began before. What is in use stays for its holder until that lets go. The
// namespace is not looked at with ClearEverything.
func (c *Cache) Clear(space Namespace, flags ClearFlags) (ClearResult, error) {
	raw, err := c.enter()
	if err != nil {
		return ClearResult{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_clear(raw, C.uint32_t(flags), space.c())
	return ClearResult{
		NamespaceCount:       uint64(made.result.namespace_count),
		FreedPageCount:       uint64(made.result.freed_page_count),
		HeldPageCount:        uint64(made.result.held_page_count),
		WaitingPageCount:     uint64(made.result.waiting_page_count),
		DroppedSequenceCount: uint64(made.result.dropped_sequence_count),
	}, asError(made.failure)
}

// ContainsPage says whether the cache owns a page; false for pages out of range.
func (c *Cache) ContainsPage(page uint32) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_contains_page(raw, C.uint32_t(page))
	return bool(made.value), asError(made.failure)
}

// CacheStats are counters of a cache, since its creation unless they say "now".
type CacheStats struct {
	// CachedPageCount counts the pages that the cache owns now.
	CachedPageCount uint64
	// ReclaimablePageCount counts the pages now that no lock protects.
	ReclaimablePageCount uint64
	// NodeCount counts the nodes now, roots not counted.
	NodeCount uint64
	// NamespaceCount counts the namespaces now.
	NamespaceCount uint64
	// SequenceCount counts the sequences alive now.
	SequenceCount uint64
	// ImageCount counts the different images known now, to the index or to a sequence.
	ImageCount uint64
	// IndexBytes is the host memory that the index takes now.
	IndexBytes uint64
	// LookupCount counts the matches asked for, Begin included and Probe not.
	LookupCount uint64
	// LookupPositionCount counts the positions that lookups asked for.
	LookupPositionCount uint64
	// HitPositionCount counts the positions that lookups found.
	HitPositionCount uint64
	// PartialHitPositionCount counts those of them that are copied out of a page shared in part.
	PartialHitPositionCount uint64
	// InsertedPageCount counts the pages claimed from callers and sequences.
	InsertedPageCount uint64
	// DuplicatePageCount counts the pages that somebody else had published first.
	DuplicatePageCount uint64
	// EvictedPageCount counts the pages evicted.
	EvictedPageCount uint64
	// RetainedSequenceCount counts the retained sequences now.
	RetainedSequenceCount uint64
	// RetainedPageCount counts the pages that those keep now, each once.
	RetainedPageCount uint64
	// DisplacedSequenceCount counts the retained sequences that gave way.
	DisplacedSequenceCount uint64
	// InheritCount counts the sequences that went on from another one. They are no lookups.
	InheritCount uint64
	// InheritedPositionCount counts the positions that those inherited.
	InheritedPositionCount uint64
	// LockCount counts the locks of callers now.
	LockCount uint64
	// PrefixCount counts the cached prefixes now that no longer one goes on.
	PrefixCount uint64
	// DroppedCheckpointCount counts the checkpoints that went because a path had more than
	// CacheConfig.CheckpointLimit.
	DroppedCheckpointCount uint64
}

// Stats are the counters at one moment. It waits for no eviction.
func (c *Cache) Stats() (CacheStats, error) {
	raw, err := c.enter()
	if err != nil {
		return CacheStats{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_stats(raw)
	return CacheStats{
		CachedPageCount:         uint64(made.stats.cached_page_count),
		ReclaimablePageCount:    uint64(made.stats.reclaimable_page_count),
		NodeCount:               uint64(made.stats.node_count),
		NamespaceCount:          uint64(made.stats.namespace_count),
		SequenceCount:           uint64(made.stats.sequence_count),
		ImageCount:              uint64(made.stats.image_count),
		IndexBytes:              uint64(made.stats.index_bytes),
		LookupCount:             uint64(made.stats.lookup_count),
		LookupPositionCount:     uint64(made.stats.lookup_position_count),
		HitPositionCount:        uint64(made.stats.hit_position_count),
		PartialHitPositionCount: uint64(made.stats.partial_hit_position_count),
		InsertedPageCount:       uint64(made.stats.inserted_page_count),
		DuplicatePageCount:      uint64(made.stats.duplicate_page_count),
		EvictedPageCount:        uint64(made.stats.evicted_page_count),
		RetainedSequenceCount:   uint64(made.stats.retained_sequence_count),
		RetainedPageCount:       uint64(made.stats.retained_page_count),
		DisplacedSequenceCount:  uint64(made.stats.displaced_sequence_count),
		InheritCount:            uint64(made.stats.inherit_count),
		InheritedPositionCount:  uint64(made.stats.inherited_position_count),
		LockCount:               uint64(made.stats.lock_count),
		PrefixCount:             uint64(made.stats.prefix_count),
		DroppedCheckpointCount:  uint64(made.stats.dropped_checkpoint_count),
	}, asError(made.failure)
}

// Check checks every invariant of the index. Its cost is one pass over it.
func (c *Cache) Check() error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_check(raw))
}

// Dump is the tree as text for a person or a tool.
func (c *Cache) Dump(format DumpFormat) (string, error) {
	raw, err := c.enter()
	if err != nil {
		return "", err
	}
	defer c.mu.RUnlock()
	// The tree may grow between the question for the size and the answer, hence a loop.
	var buffer []byte
	for {
		made := C.rkvgo_cache_dump(raw, C.uint32_t(format),
			(*C.char)(unsafe.Pointer(unsafe.SliceData(buffer))), C.size_t(len(buffer)))
		err := asError(made.failure)
		if err == nil && len(buffer) > 0 {
			return string(buffer[:made.count-1]), nil // without the NUL
		}
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return "", err
		}
		buffer = make([]byte, int(made.count)*2)
	}
}
