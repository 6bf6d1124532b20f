/* Shared by the benchmark of memory: the counted heap, and the workloads that fill it. */
#ifndef RADIXKV_BENCH_HEAP_H
#define RADIXKV_BENCH_HEAP_H

#include "../index/bench.h"

/* Bytes that were asked for and not given back, of the whole process. */
size_t heap_requested(void);

/* What a workload fills. Its buffers are there before the first byte of the library is. */
struct world {
    rkv_page_table *table;
    rkv_cache *cache;
    rkv_snapshot_cache *snapshots;
    uint32_t page_size;
    uint32_t *ids;              /* room for ID_LIMIT */
};
enum { ID_LIMIT = 1 << 16 };

struct workload {
    const char *name;
    void (*fill)(struct world *world);
    uint32_t positions;         /* that the pages have room for */
    uint32_t index;
};
/* Ends with one without a name. The second list is of snapshot caches. */
extern const struct workload WORKLOADS[], SNAPSHOT_WORKLOADS[];

#endif
