package radixkv

/*
#include "call.h"

typedef struct rkvgo_index_memory {
	rkvgo_failure *failure;
	rkv_index_memory_stats stats;
} rkvgo_index_memory;

static inline rkvgo_failure *rkvgo_reserve_index_memory(uint64_t byte_count, uint32_t huge_pages) {
	return rkvgo_end(rkv_reserve_index_memory(byte_count, huge_pages));
}

static inline rkvgo_index_memory rkvgo_read_index_memory_stats(void) {
	rkvgo_index_memory made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_read_index_memory_stats(&made.stats));
	return made;
}
*/
import "C"

// HugePages says which pages of the system memory shall lie on.
type HugePages uint32

const (
	// HugePagesOff: ordinary pages.
	HugePagesOff HugePages = C.RKV_HUGE_PAGES_OFF
	// HugePagesTry: huge pages, as far as the system has any.
	HugePagesTry HugePages = C.RKV_HUGE_PAGES_TRY
	// HugePagesRequire: huge pages only.
	HugePagesRequire HugePages = C.RKV_HUGE_PAGES_REQUIRE
)

// IndexMemoryStats is the memory that ReserveIndexMemory got.
type IndexMemoryStats struct {
	// ReservedBytes were reserved; 0 without a reserve.
	ReservedBytes uint64
	// HugePageBytes of those lay on huge pages when they were reserved.
	HugePageBytes uint64
	// UsedBytes of the reserve are used by indexes.
	UsedBytes uint64
}

// ReserveIndexMemory gets memory from the system for the indexes of all caches of this process:
// once, before they are created. It is touched now and kept to the end of the process. What finds
// no room in it comes from C's malloc, as all does without a reserve.
func ReserveIndexMemory(byteCount uint64, pages HugePages) error {
	return asError(C.rkvgo_reserve_index_memory(C.uint64_t(byteCount), C.uint32_t(pages)))
}

// ReadIndexMemoryStats says what is reserved for indexes, and how much of it they use.
func ReadIndexMemoryStats() (IndexMemoryStats, error) {
	made := C.rkvgo_read_index_memory_stats()
	return IndexMemoryStats{
		ReservedBytes: uint64(made.stats.reserved_bytes),
		HugePageBytes: uint64(made.stats.huge_page_bytes),
		UsedBytes:     uint64(made.stats.used_bytes),
	}, asError(made.failure)
}
