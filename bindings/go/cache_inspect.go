package radixkv

/*
#include "call.h"

typedef struct rkvgo_node_info_made {
	rkvgo_outcome outcome;
	rkv_node_info info;
} rkvgo_node_info_made;

typedef struct rkvgo_cache_stats_made {
	rkvgo_outcome outcome;
	rkv_cache_statistics stats;
} rkvgo_cache_stats_made;

static inline rkvgo_bool rkvgo_cache_contains_page(const rkv_cache *cache, uint32_t page) {
	rkvgo_bool made = {{0}};
	made.outcome = rkvgo_end(rkv_cache_contains_page(cache, page, &made.value));
	return made;
}

static inline rkvgo_node_info_made rkvgo_cache_node_info(
	const rkv_cache *cache, rkv_node_id node
) {
	rkvgo_node_info_made made = {{0}};
	made.info.struct_size = sizeof made.info;
	made.outcome = rkvgo_end(rkv_cache_node_info(cache, node, &made.info));
	return made;
}

static inline rkvgo_count rkvgo_cache_node_pages(
	const rkv_cache *cache, rkv_node_id node, uint32_t *pages, size_t capacity
) {
	rkvgo_count made = {{0}};
	made.outcome = rkvgo_end(rkv_cache_node_pages(cache, node, pages, capacity, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_cache_node_children(
	const rkv_cache *cache, rkv_node_id node, rkv_node_id *children, size_t capacity
) {
	rkvgo_count made = {{0}};
	made.outcome = rkvgo_end(
		rkv_cache_node_children(cache, node, children, capacity, &made.count));
	return made;
}

static inline rkvgo_cache_stats_made rkvgo_cache_stats(const rkv_cache *cache) {
	rkvgo_cache_stats_made made = {{0}};
	made.stats.struct_size = sizeof made.stats;
	made.outcome = rkvgo_end(rkv_cache_stats(cache, &made.stats));
	return made;
}

static inline rkvgo_outcome rkvgo_cache_check(const rkv_cache *cache) {
	return rkvgo_end(rkv_cache_check(cache));
}

static inline rkvgo_count rkvgo_cache_dump(
	const rkv_cache *cache, uint32_t format, char *buffer, size_t capacity
) {
	rkvgo_count made = {{0}};
	made.outcome = rkvgo_end(rkv_cache_dump(cache, format, buffer, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// DumpFormat is how Dump writes.
type DumpFormat uint32

const (
	// DumpJSON is one JSON object.
	DumpJSON DumpFormat = C.RKV_DUMP_JSON
	// DumpDOT is a Graphviz digraph.
	DumpDOT DumpFormat = C.RKV_DUMP_DOT
)

// ContainsPage says whether the cache owns a page; false for pages out of range.
func (c *Cache) ContainsPage(page uint32) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_contains_page(raw, C.uint32_t(page))
	return bool(made.value), asError(made.outcome)
}

// NodeInfo is what can be seen of a node.
type NodeInfo struct {
	// Parent is 0 for a root.
	Parent NodeID
	// LockCount counts the locks on this node and below it.
	LockCount int
	// PositionCount is that of the node's own segment; 0 for a root.
	PositionCount int
	// PageCount is that of the node's own segment.
	PageCount int
	// EndPosition counts the positions from the beginning to the node's end.
	EndPosition int
	// ChildCount is the number of children.
	ChildCount int
	// LastAccess is the logical time of the last match that covered the node.
	LastAccess uint64
	// HitCount counts the matches that covered the node.
	HitCount uint64
}

// NodeInfo is what can be seen of a node.
func (c *Cache) NodeInfo(node NodeID) (NodeInfo, error) {
	raw, err := c.enter()
	if err != nil {
		return NodeInfo{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_info(raw, C.rkv_node_id(node))
	return NodeInfo{
		Parent:        NodeID(made.info.parent),
		LockCount:     int(made.info.lock_count),
		PositionCount: int(made.info.position_count),
		PageCount:     int(made.info.page_count),
		EndPosition:   int(made.info.end_position),
		ChildCount:    int(made.info.child_count),
		LastAccess:    uint64(made.info.last_access),
		HitCount:      uint64(made.info.hit_count),
	}, asError(made.outcome)
}

// NodePages writes the pages of a node's own segment, in order, and says how many there are, also
// together with BufferTooSmall. With nil it only says how many.
func (c *Cache) NodePages(node NodeID, pages []uint32) (int, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_pages(raw, C.rkv_node_id(node),
		u32Pointer(pages), C.size_t(len(pages)))
	return int(made.count), asError(made.outcome)
}

// NodeChildren writes the children of a node, in the order of their first pages' keys, and says how
// many there are, also together with BufferTooSmall. With nil it only says how many.
func (c *Cache) NodeChildren(node NodeID, children []NodeID) (int, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_node_children(raw, C.rkv_node_id(node),
		(*C.rkv_node_id)(unsafe.Pointer(unsafe.SliceData(children))), C.size_t(len(children)))
	return int(made.count), asError(made.outcome)
}

// CacheStatistics are counters of a cache, since its creation unless they say "now".
type CacheStatistics struct {
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
}

// Stats are the counters at one moment. It waits for no eviction.
func (c *Cache) Stats() (CacheStatistics, error) {
	raw, err := c.enter()
	if err != nil {
		return CacheStatistics{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_stats(raw)
	return CacheStatistics{
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
	}, asError(made.outcome)
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
		err := asError(made.outcome)
		if err == nil && len(buffer) > 0 {
			return string(buffer[:made.count-1]), nil // without the NUL
		}
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return "", err
		}
		buffer = make([]byte, int(made.count)*2)
	}
}
