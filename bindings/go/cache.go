package radixkv

/*
#include "call.h"

typedef struct rkvgo_cache_made {
	rkvgo_outcome outcome;
	rkv_cache *cache;
} rkvgo_cache_made;

typedef struct rkvgo_match_made {
	rkvgo_outcome outcome;
	rkv_match match;
} rkvgo_match_made;

typedef struct rkvgo_probe_made {
	rkvgo_outcome outcome;
	size_t token_count;
	size_t position_count;
} rkvgo_probe_made;

typedef struct rkvgo_insert_made {
	rkvgo_outcome outcome;
	rkv_insert_result result;
} rkvgo_insert_made;

// Zero takes the defaults.
static inline rkvgo_cache_made rkvgo_cache_create(
	rkv_page_table *table, uint32_t flags, uint32_t index
) {
	rkvgo_cache_made made = {{0}};
	rkv_cache_config config;
	rkv_status status = rkv_cache_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		config.flags = flags ? flags : config.flags;
		config.index = index ? index : config.index;
		status = rkv_cache_create(table, &config, &made.cache);
	}
	made.outcome = rkvgo_end(status);
	return made;
}

static inline rkvgo_match_made rkvgo_cache_match(
	rkv_cache *cache, rkv_namespace namespace_,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	uint32_t flags, uint32_t *pages, size_t page_capacity
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_match_made made = {{0}};
	made.match.struct_size = sizeof made.match;
	made.outcome = rkvgo_end(rkv_cache_match(
		cache, &namespace_, &tokens, flags, pages, page_capacity, &made.match));
	return made;
}

static inline rkvgo_probe_made rkvgo_cache_probe(
	const rkv_cache *cache, rkv_namespace namespace_,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_probe_made made = {{0}};
	made.outcome = rkvgo_end(rkv_cache_probe(
		cache, &namespace_, &tokens, &made.token_count, &made.position_count));
	return made;
}

static inline rkvgo_insert_made rkvgo_cache_insert(
	rkv_cache *cache, rkv_namespace namespace_,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	const uint32_t *pages, size_t page_count, rkv_node_id from_node,
	uint64_t from_token_index, uint64_t from_page_index, uint32_t *published_pages
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkv_insert_args args = {
		.struct_size = sizeof args,
		.namespace_ = &namespace_,
		.tokens = &tokens,
		.pages = pages,
		.page_count = page_count,
		.from_node = from_node,
		.from_token_index = from_token_index,
		.from_page_index = from_page_index,
	};
	rkvgo_insert_made made = {{0}};
	made.result.struct_size = sizeof made.result;
	made.outcome = rkvgo_end(rkv_cache_insert(cache, &args, published_pages, &made.result));
	return made;
}

static inline rkvgo_outcome rkvgo_cache_lock(rkv_cache *cache, rkv_node_id node) {
	return rkvgo_end(rkv_cache_lock(cache, node));
}

static inline rkvgo_outcome rkvgo_cache_unlock(rkv_cache *cache, rkv_node_id node) {
	return rkvgo_end(rkv_cache_unlock(cache, node));
}

static inline rkvgo_count rkvgo_cache_evict(
	rkv_cache *cache, size_t page_count, uint32_t *pages, size_t capacity
) {
	rkvgo_count made = {{0}};
	made.outcome = rkvgo_end(rkv_cache_evict(cache, page_count, pages, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"runtime"
	"sync"
)

// CacheFlags are options of a cache.
type CacheFlags uint32

// CacheWholePages: share whole pages only, reuse no part of a page by copy.
const CacheWholePages CacheFlags = C.RKV_CACHE_WHOLE_PAGES

// IndexKind says what stands behind a cache.
type IndexKind uint32

// IndexRadix is the radix tree, exact token comparison.
const IndexRadix IndexKind = C.RKV_INDEX_RADIX

// MatchFlags are options of a match.
type MatchFlags uint32

// MatchLock: lock the match in the same step. Undo with Unlock of Match.LockedNode.
const MatchLock MatchFlags = C.RKV_MATCH_LOCK

// NodeID names a node of one cache, that is "the prefix that ends here". Zero names none.
//
// An id is good for as long as the node is locked. Later it may become stale, which is detected: it
// never means another node.
type NodeID uint64

// CacheConfig says how to build a cache. Zero takes the defaults.
type CacheConfig struct {
	// Flags are Cache flags.
	Flags CacheFlags
	// Index is IndexRadix.
	Index IndexKind
}

// Cache is the prefix index over one page table: which published pages hold which tokens.
type Cache struct {
	mu  sync.RWMutex // as in PageTable
	raw *C.rkv_cache // nil after Close
}

// NewCache creates an empty cache on a page table, which takes one cache at a time, and keeps the
// pages alive.
func NewCache(table *PageTable, config CacheConfig) (*Cache, error) {
	raw, err := table.enter()
	if err != nil {
		return nil, err
	}
	defer table.mu.RUnlock()
	made := C.rkvgo_cache_create(raw, C.uint32_t(config.Flags), C.uint32_t(config.Index))
	if err := asError(made.outcome); err != nil {
		return nil, err
	}
	c := &Cache{raw: made.cache}
	runtime.SetFinalizer(c, (*Cache).Close) // for those that nobody closed
	return c, nil
}

// Close gives the cache up. Sequences that still live in it end, and all pages of the cache return
// to the page table's pool. More than one Close is fine. It waits for calls that are running.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw != nil {
		C.rkv_cache_destroy(c.raw)
		c.raw = nil
		runtime.SetFinalizer(c, nil)
	}
	return nil
}

// enter is that of PageTable: c.mu.RUnlock ends it.
func (c *Cache) enter() (*C.rkv_cache, error) {
	if c == nil {
		return nil, ErrClosed
	}
	c.mu.RLock()
	if c.raw == nil {
		c.mu.RUnlock()
		return nil, ErrClosed
	}
	return c.raw, nil
}

// Match is the longest cached prefix of a token list.
type Match struct {
	// Node ends where the whole pages end; 0 when no whole page matched.
	Node NodeID
	// PageCount is the number of whole pages that matched.
	PageCount int
	// TokenCount is the number of tokens that matched; the rest begins at this index. It never ends
	// inside an image.
	TokenCount int
	// PositionCount is the number of positions of those tokens:
	// PageCount * page size + PartialPositionCount.
	PositionCount int
	// PartialPositionCount is how many positions at the start of PartialPage match as well.
	PartialPositionCount int
	// PartialPage holds those positions; copy them, never write to the page. Else 0.
	PartialPage uint32
	// PartialNode owns PartialPage; 0 when there is none.
	PartialNode NodeID
	// LockedNode is, with MatchLock, the node to unlock, 0 when nothing matched.
	LockedNode NodeID
}

// Match finds the longest cached prefix, at token granularity, and refreshes the recency of its
// path. A miss is no error.
//
// The whole pages are written to pages, in order; len(positions) / page size is always enough, and
// with no room at all they are not reported. With BufferTooSmall the needed PageCount is returned
// and the cache is unchanged. The pages stay good while the match is locked.
func (c *Cache) Match(
	namespace Namespace, tokens Tokens, flags MatchFlags, pages []uint32,
) (Match, error) {
	raw, err := c.enter()
	if err != nil {
		return Match{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_match(raw, namespace.c(), tokens.idPointer(), C.size_t(len(tokens.IDs)),
		tokens.itemPointer(), C.size_t(len(tokens.Items)),
		C.uint32_t(flags), u32Pointer(pages), C.size_t(len(pages)))
	return Match{
		Node:                 NodeID(made.match.node),
		PageCount:            int(made.match.page_count),
		TokenCount:           int(made.match.token_count),
		PositionCount:        int(made.match.position_count),
		PartialPositionCount: int(made.match.partial_position_count),
		PartialPage:          uint32(made.match.partial_page),
		PartialNode:          NodeID(made.match.partial_node),
		LockedNode:           NodeID(made.match.locked_node),
	}, asError(made.outcome)
}

// Probe is the length of the longest cached prefix: the tokens that Match would find, and their
// positions. It changes nothing, and waits for no eviction.
func (c *Cache) Probe(
	namespace Namespace, tokens Tokens,
) (tokenCount, positionCount int, err error) {
	raw, err := c.enter()
	if err != nil {
		return 0, 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_probe(raw, namespace.c(), tokens.idPointer(), C.size_t(len(tokens.IDs)),
		tokens.itemPointer(), C.size_t(len(tokens.Items)))
	return int(made.token_count), int(made.position_count), asError(made.outcome)
}

// InsertArgs says what Insert puts where.
type InsertArgs struct {
	// Namespace is not read when FromNode is set.
	Namespace Namespace
	// Tokens are those of the whole prefix, from its beginning.
	Tokens Tokens
	// Pages are those of the whole prefix, at least one for each whole page of the tokens. Those
	// before FromPageIndex are not read.
	Pages []uint32
	// FromNode is the node of an earlier match to go on from; 0 begins at the root.
	FromNode NodeID
	// FromTokenIndex is that match's TokenCount; 0 without FromNode.
	FromTokenIndex int
	// FromPageIndex is that match's PageCount; 0 without FromNode.
	FromPageIndex int
}

// InsertResult says what Insert did.
type InsertResult struct {
	// Node ends where the whole pages of the tokens end; 0 when there is no whole page.
	Node NodeID
	// ClaimedPageCount counts the pages that the cache owns from now on.
	ClaimedPageCount int
	// DuplicatePageCount counts the pages that stay with their holder, because another page is
	// published for the same tokens.
	DuplicatePageCount int
}

// Insert publishes the whole pages of a prefix. Pages for which the cache has none yet must be
// private; they are claimed. Where it has another one, that one stays.
//
// published may be nil, or as long as args.Pages: it receives the cache's page at each whole page
// of the tokens, and the caller's own elsewhere.
func (c *Cache) Insert(args InsertArgs, published []uint32) (InsertResult, error) {
	if published != nil && len(published) < len(args.Pages) {
		return InsertResult{}, invalid("published is shorter than args.Pages")
	}
	raw, err := c.enter()
	if err != nil {
		return InsertResult{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_insert(raw, args.Namespace.c(),
		args.Tokens.idPointer(), C.size_t(len(args.Tokens.IDs)),
		args.Tokens.itemPointer(), C.size_t(len(args.Tokens.Items)),
		u32Pointer(args.Pages), C.size_t(len(args.Pages)), C.rkv_node_id(args.FromNode),
		C.uint64_t(args.FromTokenIndex), C.uint64_t(args.FromPageIndex), u32Pointer(published))
	return InsertResult{
		Node:               NodeID(made.result.node),
		ClaimedPageCount:   int(made.result.claimed_page_count),
		DuplicatePageCount: int(made.result.duplicate_page_count),
	}, asError(made.outcome)
}

// Lock protects a node and all its ancestors from eviction. Locks nest.
func (c *Cache) Lock(node NodeID) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_lock(raw, C.rkv_node_id(node)))
}

// Unlock undoes exactly one lock of this very node. Recency stays as it is.
func (c *Cache) Unlock(node NodeID) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	return asError(C.rkvgo_cache_unlock(raw, C.rkv_node_id(node)))
}

// Evict returns up to pageCount pages to the free pool, least recently used first, and says how
// many. Fewer than asked is no error: the rest is locked.
//
// The evicted pages are written to pages, and no more than len(pages) are evicted; nil asks for no
// report and sets no limit.
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
	return int(made.count), asError(made.outcome)
}
