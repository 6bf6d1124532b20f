/* Bytes of the heap beside what the library's counters say, for each workload and page size. */
#include "heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct options options;

/* What the counters are to be within. */
static const double TOLERANCE = 0.02;
static const uint32_t PAGE_SIZES[] = {1, 16, 64, 256};
enum { PAGE_SIZE_COUNT = sizeof PAGE_SIZES / sizeof *PAGE_SIZES };

static void print(const char *name, uint32_t page_size, size_t heap, uint64_t table,
                  uint64_t index)
{
    double ratio = (double)heap / (double)(table + index);
    char page[16] = "";
    if (page_size > 0) {
        snprintf(page, sizeof page, "%u", page_size);
    }
    printf("| %s | %s | %.3f | %.3f | %.3f | %.3f | %s |\n", name, page, (double)heap / 1e6,
           (double)table / 1e6, (double)index / 1e6, ratio,
           ratio > 1 - TOLERANCE && ratio < 1 + TOLERANCE ? "met" : "missed");
    fflush(stdout);
}

static void measure(const struct workload *workload, struct world *world, uint32_t page_size)
{
    rkv_page_table_config config;
    rkv_cache_config cache_config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    world->page_size = config.page_size = page_size;
    config.page_count = workload->positions / page_size + 8192;
    config.slot_count = 1024;
    cache_config.index = workload->index;
    cache_config.retained_sequence_limit = 2000;
    size_t before = heap_requested();
    CHECK(rkv_page_table_create(&config, &world->table));
    CHECK(rkv_cache_create(world->table, &cache_config, &world->cache));
    workload->fill(world);
    size_t heap = heap_requested() - before;
    rkv_page_table_stats pages = {.struct_size = sizeof pages};
    rkv_cache_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_page_table_read_stats(world->table, &pages));
    CHECK(rkv_cache_read_stats(world->cache, &stats));
    print(workload->name, page_size, heap, pages.memory_bytes, stats.index_bytes);
    rkv_cache_destroy(world->cache);
    rkv_page_table_destroy(world->table);
}

static void measure_snapshots(const struct workload *workload, struct world *world)
{
    rkv_snapshot_cache_config config;
    CHECK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = 20000;
    size_t before = heap_requested();
    CHECK(rkv_snapshot_cache_create(&config, &world->snapshots));
    workload->fill(world);
    size_t heap = heap_requested() - before;
    rkv_snapshot_cache_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_snapshot_cache_read_stats(world->snapshots, &stats));
    print(workload->name, 0, heap, 0, stats.index_bytes);
    rkv_snapshot_cache_destroy(world->snapshots);
}

int main(void)
{
    struct world world = {.ids = allocate(ID_LIMIT, sizeof *world.ids)};
    const char *commit = getenv("RKV_BENCH_COMMIT");
    printf("Library of commit %s; bytes that the library asked for, in MB.\n\n",
           commit != NULL ? commit : "unknown");
    printf("| workload | page | heap | memory_bytes | index_bytes | heap / counters "
           "| within 2 %% |\n|---|--:|--:|--:|--:|--:|---|\n");
    for (const struct workload *workload = WORKLOADS; workload->name != NULL; workload++) {
        for (int i = 0; i < PAGE_SIZE_COUNT; i++) {
            measure(workload, &world, PAGE_SIZES[i]);
        }
    }
    for (const struct workload *workload = SNAPSHOT_WORKLOADS; workload->name != NULL;
         workload++) {
        measure_snapshots(workload, &world);
    }
    free(world.ids);
    return 0;
}
