package radixkv

/*
#include "call.h"

typedef struct rkvgo_group_probe {
	rkvgo_failure *failure;
	size_t count;
	rkv_group_depths depths;
	rkv_group_cost costs[RKV_GROUP_LIMIT];
} rkvgo_group_probe;

typedef struct rkvgo_published {
	rkvgo_failure *failure;
	size_t count;
	rkv_published_group groups[RKV_GROUP_LIMIT];
} rkvgo_published;

static inline rkvgo_published rkvgo_sequence_published(
	const rkv_cache *cache, rkv_sequence_id sequence
) {
	rkvgo_published made = {0};
	made.failure = rkvgo_end(rkv_sequence_read_published(
		cache, sequence, made.groups, sizeof made.groups[0], RKV_GROUP_LIMIT, &made.count));
	return made;
}

typedef struct rkvgo_group_stats_made {
	rkvgo_failure *failure;
	size_t count;
	rkv_group_stats groups[RKV_GROUP_LIMIT];
} rkvgo_group_stats_made;

static inline rkvgo_group_stats_made rkvgo_cache_group_stats(const rkv_cache *cache) {
	rkvgo_group_stats_made made = {0};
	made.failure = rkvgo_end(rkv_cache_read_group_stats(
		cache, made.groups, sizeof made.groups[0], RKV_GROUP_LIMIT, &made.count));
	return made;
}

typedef struct rkvgo_evicted {
	rkvgo_failure *failure;
	size_t evicted;
	size_t freed;
} rkvgo_evicted;

typedef struct rkvgo_pool_stats_made {
	rkvgo_failure *failure;
	rkv_pool_stats stats;
} rkvgo_pool_stats_made;

static inline rkvgo_count rkvgo_sequence_group_row(
	const rkv_cache *cache, rkv_sequence_id sequence, uint32_t group, uint32_t *pages,
	size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_sequence_read_group_row(
		cache, sequence, group, 0, pages, capacity, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_sequence_checkpoint(rkv_cache *cache, rkv_sequence_id sequence) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_sequence_checkpoint(cache, sequence, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_sequence_donate(rkv_cache *cache, rkv_sequence_id sequence) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_sequence_donate(cache, sequence, &made.count));
	return made;
}

static inline rkvgo_failure *rkvgo_sequence_slide(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t computed_position_count
) {
	return rkvgo_end(rkv_sequence_slide(cache, sequence, computed_position_count));
}

static inline rkvgo_group_probe rkvgo_cache_probe_groups(
	const rkv_cache *cache, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_group_probe made = {0};
	made.depths.struct_size = sizeof made.depths;
	made.failure = rkvgo_end(rkv_cache_probe_groups(
		cache, &space, &tokens, made.costs, sizeof made.costs[0], RKV_GROUP_LIMIT, &made.count,
		&made.depths));
	return made;
}

static inline rkvgo_count rkvgo_cache_locked_pages(
	const rkv_cache *cache, rkv_lock_id lock, uint32_t group,
	rkv_locked_page *pages, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_read_locked_pages(
		cache, lock, group, pages, sizeof *pages, capacity, &made.count));
	return made;
}

static inline rkvgo_evicted rkvgo_cache_evict_pool(
	rkv_cache *cache, uint32_t pool, size_t page_count, rkv_evicted_page *pages, size_t capacity
) {
	rkvgo_evicted made = {0};
	made.failure = rkvgo_end(rkv_cache_evict_pool(
		cache, pool, page_count, pages, sizeof *pages, capacity, &made.evicted, &made.freed));
	return made;
}

static inline rkvgo_pool_stats_made rkvgo_page_table_pool_stats(
	const rkv_page_table *table, uint32_t pool
) {
	rkvgo_pool_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_page_table_read_pool_stats(table, pool, &made.stats));
	return made;
}

static inline rkvgo_failure *rkvgo_page_table_allocate_pool_pages(
	rkv_page_table *table, uint32_t pool, size_t page_count, uint32_t *pages
) {
	return rkvgo_end(rkv_page_table_allocate_pool_pages(table, pool, page_count, pages));
}

static inline rkvgo_failure *rkvgo_page_table_free_pool_pages(
	rkv_page_table *table, uint32_t pool, const uint32_t *pages, size_t page_count
) {
	return rkvgo_end(rkv_page_table_free_pool_pages(table, pool, pages, page_count));
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// GroupDepths says how far a prompt is known, and how far it can be reused.
type GroupDepths struct {
	// PositionCount is the number of positions that every group can reuse.
	PositionCount int
	// KnownPositionCount is the number of positions that are known, whatever groups lack.
	KnownPositionCount int
	// CheckpointAt is as that of Match.
	CheckpointAt [2]int
	// LostPositionCounts are the positions that each group cost, asked in order, each about what
	// those before it left.
	LostPositionCounts []int
}

// ProbeGroups says how far a prompt is known, how far it can be reused, and what each group costs
// of the difference. It changes nothing.
func (c *Cache) ProbeGroups(namespace Namespace, tokens Tokens) (GroupDepths, error) {
	raw, err := c.enter()
	if err != nil {
		return GroupDepths{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_probe_groups(raw, namespace.c(), tokens.idPointer(),
		C.size_t(len(tokens.IDs)), tokens.itemPointer(), C.size_t(len(tokens.Items)))
	if err := asError(made.failure); err != nil {
		return GroupDepths{}, err
	}
	at := made.depths.checkpoint_at
	depths := GroupDepths{
		PositionCount:      int(made.depths.position_count),
		KnownPositionCount: int(made.depths.known_position_count),
		CheckpointAt:       [2]int{int(at[0]), int(at[1])},
		LostPositionCounts: make([]int, made.count),
	}
	for _, cost := range made.costs[:made.count] {
		depths.LostPositionCounts[cost.group] = int(cost.lost_position_count)
	}
	return depths, nil
}

// GroupStats is a group of a cache in numbers.
type GroupStats struct {
	// Group is its number.
	Group uint32
	// CachedPageCount counts the pages of the group that the cache owns now.
	CachedPageCount uint64
	// EvictedPageCount counts its pages that were evicted, those that went with a page of group 0
	// included.
	EvictedPageCount uint64
	// LimitedLookupCount counts the matches and begun sequences whose LimitingGroup it was.
	LimitedLookupCount uint64
	// LostPositionCount counts the positions that were known to those, and could not be reused.
	LostPositionCount uint64
}

// GroupStats says of each group what the cache has of it, and what it cost since the cache was
// created.
func (c *Cache) GroupStats() ([]GroupStats, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_group_stats(raw)
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	groups := make([]GroupStats, made.count)
	for at, group := range made.groups[:made.count] {
		groups[at] = GroupStats{
			Group:              uint32(group.group),
			CachedPageCount:    uint64(group.cached_page_count),
			EvictedPageCount:   uint64(group.evicted_page_count),
			LimitedLookupCount: uint64(group.limited_lookup_count),
			LostPositionCount:  uint64(group.lost_position_count),
		}
	}
	return groups, nil
}

// LockedPage is a page of a group that a lock protects.
type LockedPage struct {
	// PageIndex is its place in the prefix. Of a GroupState, it is the state after those of this
	// place.
	PageIndex int
	// Page is its number in the group's pool.
	Page uint32
}

// LockedPages are the pages of a group, 1 and up, that a lock protects, in the order of their
// places. Of a match with MatchLock these are all that the match needs.
func (c *Cache) LockedPages(lock LockID, group int) ([]LockedPage, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	var found []C.rkv_locked_page
	for {
		made := C.rkvgo_cache_locked_pages(raw, C.rkv_lock_id(lock), number32(group),
			unsafe.SliceData(found), C.size_t(len(found)))
		err := asError(made.failure)
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return nil, err
		}
		if err == nil && int(made.count) <= len(found) {
			found = found[:made.count]
			break
		}
		found = make([]C.rkv_locked_page, made.count)
	}
	pages := make([]LockedPage, len(found))
	for i, page := range found {
		pages[i] = LockedPage{PageIndex: int(page.page_index), Page: uint32(page.page)}
	}
	return pages, nil
}

// EvictedPage is a page that EvictPool took.
type EvictedPage struct {
	// Group is its group.
	Group int
	// Page is its number in the group's pool.
	Page uint32
}

// EvictPool evicts until a pool has got pageCount pages, or there are no more to be had, and says
// how many it got. A page of group 0 takes those of other groups that hang on it, also of other
// pools.
//
// The pages are appended to evicted, and no more are evicted than surely fit in its capacity, which
// is at least the number of groups; nil asks for no report and sets no limit, which is refused with
// an external pool.
func (c *Cache) EvictPool(
	pool, pageCount int, evicted []EvictedPage,
) (freedPageCount int, all []EvictedPage, err error) {
	if pageCount < 0 {
		return 0, evicted, invalid("pageCount is negative") // in C it would be "everything"
	}
	raw, err := c.enter()
	if err != nil {
		return 0, evicted, err
	}
	defer c.mu.RUnlock()
	var pages []C.rkv_evicted_page
	if evicted != nil {
		pages = make([]C.rkv_evicted_page, cap(evicted)-len(evicted))
	}
	made := C.rkvgo_cache_evict_pool(raw, number32(pool), C.size_t(pageCount),
		unsafe.SliceData(pages), C.size_t(len(pages)))
	if err := asError(made.failure); err != nil || evicted == nil {
		return int(made.freed), evicted, err
	}
	for _, page := range pages[:made.evicted] {
		evicted = append(evicted, EvictedPage{Group: int(page.group), Page: uint32(page.page)})
	}
	return int(made.freed), evicted, nil
}

// PoolStats are the pages of one pool by state. free + cached + private + outside == total at all
// times.
type PoolStats struct {
	// TotalPageCount counts the pages that can be handed out, by whomever: all but page 0.
	TotalPageCount uint64
	// FreePageCount is the free pool.
	FreePageCount uint64
	// CachedPageCount counts the pages that the cache owns, of all groups that draw from the pool.
	CachedPageCount uint64
	// PrivatePageCount counts the pages that belong to rows or to callers.
	PrivatePageCount uint64
	// ReclaimablePageCount counts the cached pages that nothing protects.
	ReclaimablePageCount uint64
	// OutsidePageCount counts the pages of an external pool that the cache does not own.
	OutsidePageCount uint64
	// RetainedPageCount counts the pages that retained sequences keep, each once.
	RetainedPageCount uint64
}

// PoolStats are the pages of one pool by state, at one moment.
func (t *PageTable) PoolStats(pool int) (PoolStats, error) {
	raw, err := t.enter()
	if err != nil {
		return PoolStats{}, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_pool_stats(raw, number32(pool))
	return PoolStats{
		TotalPageCount:       uint64(made.stats.total_page_count),
		FreePageCount:        uint64(made.stats.free_page_count),
		CachedPageCount:      uint64(made.stats.cached_page_count),
		PrivatePageCount:     uint64(made.stats.private_page_count),
		ReclaimablePageCount: uint64(made.stats.reclaimable_page_count),
		OutsidePageCount:     uint64(made.stats.outside_page_count),
		RetainedPageCount:    uint64(made.stats.retained_page_count),
	}, asError(made.failure)
}

// AllocatePoolPages is AllocatePages from a pool of one's choice.
func (t *PageTable) AllocatePoolPages(pool int, pages []uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_allocate_pool_pages(raw, number32(pool),
		C.size_t(len(pages)), u32Pointer(pages)))
}

// FreePoolPages is FreePages into a pool of one's choice.
func (t *PageTable) FreePoolPages(pool int, pages []uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_free_pool_pages(raw, number32(pool),
		u32Pointer(pages), C.size_t(len(pages))))
}

// GroupRow returns the row of the sequence in a group: a page for each page size of positions, 0
// where the window has passed. Of a STATE group: the page with the state that the next step
// changes, then those for draft states, GroupConfig.DraftStateCount of them.
func (s Sequence) GroupRow(group uint32) ([]uint32, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return nil, err
	}
	defer s.cache.mu.RUnlock()
	// It may grow between the question for the count and the answer, hence a loop.
	var pages []uint32
	for {
		made := C.rkvgo_sequence_group_row(raw, C.rkv_sequence_id(s.id), C.uint32_t(group),
			u32Pointer(pages), C.size_t(len(pages)))
		err := asError(made.failure)
		if err == nil && int(made.count) <= len(pages) {
			return pages[:made.count], nil
		}
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return nil, err
		}
		pages = make([]uint32, made.count)
	}
}

// Checkpoint begins to save the states of the sequence where it is, and returns how many copies
// there are to carry out, see Copies, and then to confirm; none when they are saved already. All
// that is computed must be published, and end with a page.
func (s Sequence) Checkpoint() (int, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return 0, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_checkpoint(raw, C.rkv_sequence_id(s.id))
	return int(made.count), asError(made.failure)
}

// PublishedGroup says what publishing did in a group.
type PublishedGroup struct {
	// Group is its number.
	Group uint32
	// ClaimedPageCount counts the pages that went from the sequence to the cache.
	ClaimedPageCount int
	// RemappedPageCount counts the pages that somebody else had published first.
	RemappedPageCount int
}

// Published says what the last Publish did in the groups beside the first, whose pages
// PublishResult counts.
func (s Sequence) Published() ([]PublishedGroup, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return nil, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_published(raw, C.rkv_sequence_id(s.id))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	groups := make([]PublishedGroup, made.count)
	for at, group := range made.groups[:made.count] {
		groups[at] = PublishedGroup{
			Group:             uint32(group.group),
			ClaimedPageCount:  int(group.claimed_page_count),
			RemappedPageCount: int(group.remapped_page_count),
		}
	}
	return groups, nil
}

// Donate ends the sequence like Release, and leaves its states to the cache as checkpoints, without
// a copy: where all that was computed is published, ends with a page, and is what the states are
// after. It returns how many.
func (s Sequence) Donate() (int, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return 0, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_donate(raw, C.rkv_sequence_id(s.id))
	return int(made.count), asError(made.failure)
}

// Slide lets the windows of the sequence pass what is computed without publishing it: pages that
// the next position doesn't need go back to their pools. Publish does it by itself.
func (s Sequence) Slide(computedPositionCount int) error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_slide(raw, C.rkv_sequence_id(s.id),
		C.uint64_t(computedPositionCount)))
}
