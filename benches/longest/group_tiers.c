/*
 * A world of several groups of layers with host memory below: full attention, a sliding window, and
 * full attention again, over a prompt of 131,072 positions that is fetched as a whole, and where
 * the device has a part of it.
 */
#define _XOPEN_SOURCE 700
#include "longest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SPINE, WINDOW, FULL, GROUP_COUNT };
enum { SEED = 2010, WINDOW_SIZE = 1024, PAGE_BYTES = 64, CHUNKS = 64 };
enum { JOBS = 64, ENDS = 16, MINUTE = 60000 };

static struct house open(uint32_t page_size, uint32_t page_count)
{
    struct house house = {.page_size = page_size};
    const rkv_group_config groups[GROUP_COUNT] = {
        {.kind = RKV_GROUP_FULL, .pool = SPINE},
        {.kind = RKV_GROUP_WINDOW, .pool = WINDOW, .window = WINDOW_SIZE},
        {.kind = RKV_GROUP_FULL, .pool = FULL}};
    rkv_pool_config pools[GROUP_COUNT];
    rkv_page_table_config config;
    rkv_cache_config cache_config;
    rkv_tier_config tiers;
    rkv_tier_pool_config below[GROUP_COUNT];
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        pools[pool] = (rkv_pool_config){.page_count = 2 * page_count + 1};
        below[pool] = (rkv_tier_pool_config){
            .page_bytes = PAGE_BYTES, .host_bytes = (uint64_t)2 * page_count * PAGE_BYTES};
    }
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.slot_count = 64;
    config.groups = groups;
    config.group_count = GROUP_COUNT;
    config.group_size = sizeof *groups;
    config.pools = pools;
    config.pool_count = GROUP_COUNT;
    config.pool_size = sizeof *pools;
    TIME(rkv_page_table_create, &config, &house.table);
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.journal_bytes = 64 << 20;
    TIME(rkv_cache_create, house.table, &cache_config, &house.cache);
    CHECK(rkv_tier_config_init(&tiers, sizeof tiers));
    tiers.pools = below;
    tiers.pool_count = GROUP_COUNT;
    tiers.pool_size = sizeof *below;
    TIME(rkv_cache_attach_tiers, house.cache, &tiers);
    reader_of_pages(house.table);
    return house;
}

/* One step of the engine. What is in a page does not matter here. The fetches that ended. */
static uint64_t step(const struct house *house, rkv_fetch_end *ends)
{
    rkv_copy_job jobs[JOBS];
    uint64_t done[JOBS];
    rkv_cache_poll_result polled = {.struct_size = sizeof polled};
    calls_vary(true);
    TIME(rkv_cache_poll, house->cache, jobs, sizeof *jobs, JOBS, ends, sizeof *ends, ENDS,
         &polled);
    for (size_t i = 0; i < polled.job_count; i++) {
        done[i] = jobs[i].job;
        if (jobs[i].direction == RKV_COPY_STORE) {
            memset(jobs[i].host, (int)jobs[i].page, PAGE_BYTES);
        }
    }
    TIME(rkv_cache_complete, house->cache, done, (size_t)polled.job_count, true);
    calls_vary(false);
    if (polled.job_count == 0) {
        const struct timespec time = {0, 100000};
        nanosleep(&time, NULL);
    }
    return polled.end_count;
}

/* Until so many pages are in host memory. */
static void until_stored(const struct house *house, uint64_t page_count)
{
    rkv_tier_stats stats = {.struct_size = sizeof stats};
    rkv_fetch_end ends[ENDS];
    while (stats.host.stored_page_count < page_count) {
        step(house, ends);
        CHECK(rkv_cache_read_tier_stats(house->cache, &stats));
    }
}

/* What the device lacks of a prompt; the sequence publishes and ends then. */
static void fetch(const struct house *house, const rkv_tokens *tokens)
{
    rkv_sequence_fetch_result found = {.struct_size = sizeof found};
    rkv_fetch_end ends[ENDS] = {{0}};
    rkv_sequence_info state = begin(house, NULL, tokens);
    TIME(rkv_sequence_fetch, house->cache, state.sequence, UINT64_MAX, RKV_FETCH_LOOK_ONLY, &found);
    TIME(rkv_sequence_fetch, house->cache, state.sequence, UINT64_MAX, 0, &found);
    REQUIRE(found.is_open);
    while (step(house, ends) == 0) {
    }
    REQUIRE(ends[0].sequence == state.sequence);
    REQUIRE(ends[0].position_count / house->page_size == (tokens->count - 1) / house->page_size);
    publish(house, &state);
    TIME(rkv_sequence_release, house->cache, state.sequence);
}

static void evict_from(const struct house *house, uint32_t pool, size_t page_count)
{
    size_t freed;
    TIME(rkv_cache_evict_pool, house->cache, pool, page_count, NULL, 0, 0, NULL, &freed);
}

void world_group_tiers(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions, page_count = length / page_size;
    uint32_t *ids = allocate(length, sizeof *ids);
    (void)index;
    situation(page_size == 1 ? "131,072 positions fetched in groups, page 1"
                             : "131,072 positions fetched in groups, page 16");
    struct house house = open(page_size, page_count);
    tokens_fill(SEED, 0, ids, length);
    rkv_tokens tokens = text(ids, length);
    rkv_sequence_info state = begin(&house, NULL, &tokens);
    for (uint64_t end = length / CHUNKS; end <= length; end += length / CHUNKS) {
        rkv_sequence_publish_result result = {.struct_size = sizeof result};
        TIME(rkv_sequence_publish, house.cache, state.sequence, end, &result);
        until_stored(&house, GROUP_COUNT * end / page_size);
    }
    TIME(rkv_sequence_release, house.cache, state.sequence);
    situation_many(true);
    /* The device has all pages of the first group, then a half of them, then none. */
    for (unsigned half = 0; half < 3; half++) {
        evict_from(&house, FULL, SIZE_MAX);
        evict_from(&house, SPINE, half * (page_count / 2));
        situation_many(false);
        fetch(&house, &tokens);
        situation_many(true);
    }
    situation_many(false);
    TIME(rkv_cache_detach_tiers, house.cache, MINUTE);
    house_close(&house);
    free(ids);
}
