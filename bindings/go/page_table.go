package radixkv

/*
#include "call.h"

typedef struct rkvgo_page_table_made {
	rkvgo_failure *failure;
	rkv_page_table *table;
} rkvgo_page_table_made;

typedef struct rkvgo_page_table_stats_made {
	rkvgo_failure *failure;
	rkv_page_table_stats stats;
} rkvgo_page_table_stats_made;

typedef struct rkvgo_slot {
	rkvgo_failure *failure;
	uint32_t slot;
} rkvgo_slot;

// Zero takes the default, except for page_count, which has none.
static inline rkvgo_page_table_made rkvgo_page_table_create(
	uint32_t page_size, uint32_t page_count, uint32_t slot_count, uint32_t row_page_limit,
	uint32_t flags, const rkv_group_config *groups, size_t group_count,
	const rkv_pool_config *pools, size_t pool_count
) {
	rkvgo_page_table_made made = {0};
	rkv_page_table_config config;
	rkv_status status = rkv_page_table_config_init(&config, sizeof config);
	if (status == RKV_STATUS_OK) {
		config.page_size = page_size ? page_size : config.page_size;
		config.page_count = page_count;
		config.slot_count = slot_count ? slot_count : config.slot_count;
		config.row_page_limit = row_page_limit;
		config.flags = flags;
		config.groups = groups;
		config.group_count = group_count;
		config.group_size = sizeof *groups;
		config.pools = pools;
		config.pool_count = pool_count;
		config.pool_size = sizeof *pools;
		status = rkv_page_table_create(&config, &made.table);
	}
	made.failure = rkvgo_end(status);
	return made;
}

static inline rkvgo_page_table_stats_made rkvgo_page_table_stats(const rkv_page_table *table) {
	rkvgo_page_table_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_page_table_read_stats(table, &made.stats));
	return made;
}

static inline rkvgo_slot rkvgo_page_table_allocate_slot(rkv_page_table *table) {
	rkvgo_slot made = {0};
	made.failure = rkvgo_end(rkv_page_table_allocate_slot(table, &made.slot));
	return made;
}

static inline rkvgo_failure *rkvgo_page_table_erase(rkv_page_table *table, uint32_t slot) {
	return rkvgo_end(rkv_page_table_free_slot(table, slot));
}

static inline rkvgo_failure *rkvgo_page_table_allocate_pages(
	rkv_page_table *table, size_t page_count, uint32_t *pages
) {
	return rkvgo_end(rkv_page_table_allocate_pages(table, page_count, pages));
}

static inline rkvgo_failure *rkvgo_page_table_free_pages(
	rkv_page_table *table, const uint32_t *pages, size_t page_count
) {
	return rkvgo_end(rkv_page_table_free_pages(table, pages, page_count));
}

static inline rkvgo_failure *rkvgo_page_table_map(
	rkv_page_table *table, uint32_t slot, size_t first_index,
	const uint32_t *pages, size_t page_count
) {
	return rkvgo_end(rkv_page_table_map(table, slot, first_index, pages, page_count));
}

static inline rkvgo_failure *rkvgo_page_table_reserve(
	rkv_page_table *table, uint32_t slot, size_t position_count
) {
	return rkvgo_end(rkv_page_table_reserve(table, slot, position_count));
}

static inline rkvgo_bool rkvgo_page_table_can_reserve(
	const rkv_page_table *table, uint32_t slot, size_t position_count
) {
	rkvgo_bool made = {0};
	made.failure = rkvgo_end(
		rkv_page_table_can_reserve(table, slot, position_count, &made.value));
	return made;
}

static inline rkvgo_count rkvgo_page_table_capacity(const rkv_page_table *table, uint32_t slot) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_page_table_row_capacity(table, slot, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_page_table_row(
	const rkv_page_table *table, uint32_t slot, size_t first_index,
	uint32_t *pages, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(
		rkv_page_table_read_row(table, slot, first_index, pages, capacity, &made.count));
	return made;
}

static inline rkvgo_failure *rkvgo_page_table_audit(const rkv_page_table *table) {
	return rkvgo_end(rkv_page_table_check(table));
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

const (
	// NoSlot is "no slot yet", for CanReserve.
	NoSlot uint32 = C.RKV_NO_SLOT
	// PageSizeMax is the largest page size.
	PageSizeMax = C.RKV_PAGE_SIZE_MAX
)

// PageTableFlags are options of a page table.
type PageTableFlags uint32

// PageTableExternalPool: the pages are handed out by an allocator of the program's own. All are
// outside until Insert claims them, and again when Evict or Close gives them up. There are no slots
// and no sequences: what needs pages or rows of the table is refused with Unsupported.
const PageTableExternalPool PageTableFlags = C.RKV_PAGE_TABLE_EXTERNAL_POOL

// PageTableConfig says how to build a page table. Zero takes the default.
type PageTableConfig struct {
	// PageSize is the number of positions per page, 1 to PageSizeMax. Default 16.
	PageSize uint32
	// PageCount is the number of physical pages, the reserved page 0 included: at least 2. It has
	// no default, and is 0 with PoolPageCounts.
	PageCount uint32
	// SlotCount is the number of sequences alive at once. Default 256.
	SlotCount uint32
	// RowPageLimit is the longest row in pages. Default: as many as there are pages.
	RowPageLimit uint32
	// Flags are PageTable flags.
	Flags PageTableFlags
	// Groups are the groups of the model's layers, of which the first is GroupFull and draws from
	// pool 0; at most GroupLimit. Default: one.
	Groups []GroupConfig
	// PoolPageCounts are the pages of each pool, the reserved page 0 included. Default: one pool, of
	// PageCount pages.
	PoolPageCounts []uint32
}

// PageTable is a pool of physical pages and one row of pages per slot. Page 0 is reserved as the
// target of padding: it is never handed out.
type PageTable struct {
	// Calls hold the read side, Close the write side. An uncontended read lock is small beside the
	// crossing into C, and the core has one lock itself.
	mu  sync.RWMutex
	raw *C.rkv_page_table // nil after Close
}

// NewPageTable creates a page table with all pages free, or outside.
func NewPageTable(config PageTableConfig) (*PageTable, error) {
	if have := LibraryABIVersion(); have < ABIVersion {
		return nil, &Error{Status: Unsupported, Message: fmt.Sprintf(
			"the loaded library has ABI %d, this package needs %d", have, ABIVersion)}
	}
	groups, pools := groupConfigs(config.Groups), poolConfigs(config.PoolPageCounts)
	made := C.rkvgo_page_table_create(C.uint32_t(config.PageSize), C.uint32_t(config.PageCount),
		C.uint32_t(config.SlotCount), C.uint32_t(config.RowPageLimit), C.uint32_t(config.Flags),
		unsafe.SliceData(groups), C.size_t(len(groups)),
		unsafe.SliceData(pools), C.size_t(len(pools)))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	t := &PageTable{raw: made.table}
	runtime.SetFinalizer(t, (*PageTable).Close) // for those that nobody closed
	return t, nil
}

// Close gives the page table up; a cache on it keeps the pages alive until it is closed too. More
// than one Close is fine. It waits for calls that are running.
func (t *PageTable) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw != nil {
		C.rkv_page_table_destroy(t.raw)
		t.raw = nil
		runtime.SetFinalizer(t, nil)
	}
	return nil
}

// enter keeps the handle from being closed until t.mu.RUnlock. That call also keeps t reachable, so
// the finalizer cannot run before the end of the method.
func (t *PageTable) enter() (*C.rkv_page_table, error) {
	if t == nil {
		return nil, ErrClosed
	}
	t.mu.RLock()
	if t.raw == nil {
		t.mu.RUnlock()
		return nil, ErrClosed
	}
	return t.raw, nil
}

// PageTableStats are pages by state, and slots. free + cached + private + outside == total at all
// times.
type PageTableStats struct {
	// PageSize is the number of positions per page.
	PageSize uint32
	// TotalPageCount counts the pages that can be handed out: all but page 0.
	TotalPageCount uint64
	// FreePageCount is the free pool.
	FreePageCount uint64
	// CachedPageCount counts the pages that the cache owns.
	CachedPageCount uint64
	// PrivatePageCount counts the pages that belong to rows, or to callers of AllocatePages.
	PrivatePageCount uint64
	// ReclaimablePageCount counts the cached pages that no lock protects.
	ReclaimablePageCount uint64
	// SlotCount is the number of slots.
	SlotCount uint64
	// FreeSlotCount counts the slots not in use.
	FreeSlotCount uint64
	// MemoryBytes is the host memory that rows and page states take.
	MemoryBytes uint64
	// OutsidePageCount counts the pages of an external pool that the cache does not own.
	OutsidePageCount uint64
}

// Stats are the pages by state and the slots in use, at one moment. It waits for no eviction.
func (t *PageTable) Stats() (PageTableStats, error) {
	raw, err := t.enter()
	if err != nil {
		return PageTableStats{}, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_stats(raw)
	if err := asError(made.failure); err != nil {
		return PageTableStats{}, err
	}
	return PageTableStats{
		PageSize:             uint32(made.stats.page_size),
		TotalPageCount:       uint64(made.stats.total_page_count),
		FreePageCount:        uint64(made.stats.free_page_count),
		CachedPageCount:      uint64(made.stats.cached_page_count),
		PrivatePageCount:     uint64(made.stats.private_page_count),
		ReclaimablePageCount: uint64(made.stats.reclaimable_page_count),
		SlotCount:            uint64(made.stats.slot_count),
		FreeSlotCount:        uint64(made.stats.free_slot_count),
		MemoryBytes:          uint64(made.stats.memory_bytes),
		OutsidePageCount:     uint64(made.stats.outside_page_count),
	}, nil
}

// AllocateSlot takes a slot with an empty row.
func (t *PageTable) AllocateSlot() (uint32, error) {
	raw, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_allocate_slot(raw)
	return uint32(made.slot), asError(made.failure)
}

// FreeSlot empties a row and gives the slot back. Private pages of the row return to the pool;
// cached pages stay with the cache.
func (t *PageTable) FreeSlot(slot uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_erase(raw, C.uint32_t(slot)))
}

// AllocatePages fills pages with pages that are private to the caller and in no row yet, evicting
// from the cache when the pool is short. All or nothing.
func (t *PageTable) AllocatePages(pages []uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_allocate_pages(raw, C.size_t(len(pages)), u32Pointer(pages)))
}

// FreePages returns pages from AllocatePages that are in no row to the pool. All or nothing.
func (t *PageTable) FreePages(pages []uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_free_pages(raw, u32Pointer(pages), C.size_t(len(pages))))
}

// Map appends pages to a row: firstIndex is its present length. A private page becomes the row's. A
// cached page may be in any number of rows; keep its node locked for as long.
func (t *PageTable) Map(slot uint32, firstIndex int, pages []uint32) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_map(raw, C.uint32_t(slot), C.size_t(firstIndex),
		u32Pointer(pages), C.size_t(len(pages))))
}

// Reserve makes a row long enough for a number of positions, evicting when the pool is short. All
// or nothing.
func (t *PageTable) Reserve(slot uint32, positionCount int) error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_reserve(raw, C.uint32_t(slot), C.size_t(positionCount)))
}

// CanReserve says whether a row could be made long enough now, by eviction if need be; NoSlot asks
// for a new row. Nothing is evicted. The answer holds until somebody else allocates.
func (t *PageTable) CanReserve(slot uint32, positionCount int) (bool, error) {
	if positionCount < 0 { // in C it would be more than there is
		return false, invalid("positionCount is negative")
	}
	raw, err := t.enter()
	if err != nil {
		return false, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_can_reserve(raw, C.uint32_t(slot), C.size_t(positionCount))
	return bool(made.value), asError(made.failure)
}

// Capacity is the number of positions that a row has pages for.
func (t *PageTable) Capacity(slot uint32) (int, error) {
	raw, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_capacity(raw, C.uint32_t(slot))
	return int(made.count), asError(made.failure)
}

// Row copies the pages of a row from firstIndex to its end, and says how many those are. With nil
// it only says that; a buffer with too little room is refused with BufferTooSmall.
func (t *PageTable) Row(slot uint32, firstIndex int, pages []uint32) (int, error) {
	raw, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_row(raw, C.uint32_t(slot), C.size_t(firstIndex),
		u32Pointer(pages), C.size_t(len(pages)))
	return int(made.count), asError(made.failure)
}

// Check proves page by page that each is in exactly one state and that the counts agree. Its cost
// is one pass over pages, rows and index.
func (t *PageTable) Check() error {
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_audit(raw))
}
