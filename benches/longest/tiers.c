/*
 * Worlds below memory: a cache with host memory and a directory below its pages, to which 10,000
 * pages go and from which they come, and a snapshot cache over a directory.
 */
#define _XOPEN_SOURCE 700
#include "longest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEED = 1909, PAGE_BYTES = 4096, JOBS = 64, ENDS = 16, SHORT_PAGES = 16, MINUTE = 60000 };

static void pause_a_little(void)
{
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* ---- pages -------------------------------------------------------------------------------- */

static rkv_tier_stats tier_stats(const struct house *house)
{
    rkv_tier_stats stats = {.struct_size = sizeof stats};
    calls_vary(true);
    TIME(rkv_cache_read_tier_stats, house->cache, &stats);
    calls_vary(false);
    return stats;
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
    return polled.end_count;
}

/* Until so many pages were stored in host memory and in the directory. */
static void until_stored(const struct house *house, uint64_t page_count)
{
    rkv_fetch_end ends[ENDS];
    for (unsigned i = 0; i < MINUTE; i++) {
        step(house, ends);
        rkv_tier_stats stats = tier_stats(house);
        if (stats.host.stored_page_count >= page_count &&
            stats.disk.stored_page_count >= page_count) {
            return;
        }
        pause_a_little();
    }
    REQUIRE(!"all pages are stored");
}

static rkv_fetch_end until_fetched(const struct house *house)
{
    rkv_fetch_end ends[ENDS];
    for (unsigned i = 0; i < MINUTE; i++) {
        if (step(house, ends) > 0) {
            return ends[0];
        }
        tier_stats(house);
        pause_a_little();
    }
    REQUIRE(!"the fetch has ended");
    return ends[0];
}

static rkv_cache_prefetch_result prefetch(const struct house *house, const rkv_tokens *tokens,
                                          uint32_t flags)
{
    rkv_cache_prefetch_result begun = {.struct_size = sizeof begun};
    TIME(rkv_cache_prefetch, house->cache, NULL, tokens, UINT64_MAX, flags, &begun);
    return begun;
}

/* From host memory or the disk to the device; then the sequence agrees, publishes and ends. */
static void fetch(const struct house *house, const rkv_tokens *tokens, uint64_t agreed)
{
    rkv_sequence_fetch_result found = {.struct_size = sizeof found};
    rkv_sequence_info state = begin(house, NULL, tokens);
    TIME(rkv_sequence_fetch, house->cache, state.sequence, UINT64_MAX, RKV_FETCH_LOOK_ONLY, &found);
    TIME(rkv_sequence_fetch, house->cache, state.sequence, UINT64_MAX, 0, &found);
    REQUIRE(found.is_open);
    rkv_fetch_end end = until_fetched(house);
    REQUIRE(end.sequence == state.sequence && end.brought_page_count == end.wanted_page_count);
    TIME(rkv_sequence_agree, house->cache, state.sequence, agreed, &agreed);
    publish(house, &state);
    TIME(rkv_sequence_release, house->cache, state.sequence);
}

static void attach(const struct house *house, const char *directory)
{
    rkv_tier_config config;
    CHECK(rkv_tier_config_init(&config, sizeof config));
    config.page_bytes = PAGE_BYTES;
    config.host_bytes = (uint64_t)4 * sizes.stored * PAGE_BYTES;
    config.directory = directory;
    config.disk_bytes = config.host_bytes;
    config.worker_count = 2;
    config.commit_interval_ms = 50;
    TIME(rkv_cache_attach_tiers, house->cache, &config);
}

/* Brings what the disk has of a prompt to host memory. */
static void bring(const struct house *house, const rkv_tokens *tokens)
{
    rkv_cache_prefetch_result begun = prefetch(house, tokens, 0);
    uint64_t wanted = begun.position_count;
    REQUIRE(begun.prefetch != 0 && wanted > 0);
    for (unsigned i = 0; i < MINUTE && tier_stats(house).open_prefetch_count > 0; i++) {
        pause_a_little();
    }
    TIME(rkv_cache_cancel_prefetch, house->cache, begun.prefetch);
    begun = prefetch(house, tokens, RKV_FETCH_LOOK_ONLY);
    REQUIRE(begun.host_position_count == wanted);
}

void world_tiers(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions, page_count = length / page_size;
    uint32_t few = SHORT_PAGES * page_size, short_count = (sizes.stored - page_count) / SHORT_PAGES;
    uint32_t *ids = allocate(length, sizeof *ids), *short_ids = allocate(few, sizeof *short_ids);
    const char *directory = directory_make();
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^4 pages below memory, block hash, page 16"
                                            : "10^4 pages below memory, page 16");
    house_journal_bytes = 32 << 20;
    struct house house = house_open(page_size, 2 * sizes.stored, 64, index, 0);
    house_journal_bytes = 0;
    attach(&house, directory);
    tokens_fill(SEED, 0, ids, length);
    rkv_tokens tokens = text(ids, length);
    request(&house, NULL, &tokens);
    for (uint32_t i = 0; i < short_count; i++) {
        tokens_fill(SEED + 1, i, short_ids, few);
        rkv_tokens prompt = text(short_ids, few);
        request(&house, NULL, &prompt);
    }
    until_stored(&house, page_count + short_count * SHORT_PAGES);
    evict_much(&house, SIZE_MAX);
    fetch(&house, &tokens, length);         /* from host memory */
    evict_much(&house, SIZE_MAX);
    fetch(&house, &tokens, length / 2);     /* and half of it is given up again */
    evict_much(&house, SIZE_MAX);
    house_looks(&house, 20);
    TIME(rkv_cache_flush_tiers, house.cache, MINUTE);
    TIME(rkv_cache_detach_tiers, house.cache, MINUTE);
    /* As after a restart: the directory alone has them. */
    attach(&house, directory);
    bring(&house, &tokens);
    TIME(rkv_cache_shrink_tiers, house.cache, 0, UINT64_MAX);
    rkv_cache_prefetch_result begun = prefetch(&house, &tokens, 0);
    REQUIRE(begun.prefetch != 0);
    TIME(rkv_cache_cancel_prefetch, house.cache, begun.prefetch);
    fetch(&house, &tokens, length);
    TIME(rkv_cache_shrink_tiers, house.cache, 0, 0);
    TIME(rkv_cache_detach_tiers, house.cache, MINUTE);
    attach(&house, directory);
    house_close(&house);
    directory_remove();
    free(ids);
    free(short_ids);
}

/* ---- snapshots ---------------------------------------------------------------------------- */

enum { LIST_TOKENS = 512, LARGE_BYTES = 64 << 20 };

static rkv_tokens list_of(uint32_t number, uint32_t *ids)
{
    tokens_fill(SEED + 2, number / 16, ids, LIST_TOKENS / 2);
    tokens_fill(SEED + 3, number, ids + LIST_TOKENS / 2, LIST_TOKENS / 2);
    return text(ids, LIST_TOKENS);
}

static void insert(rkv_snapshot_cache *cache, const rkv_tokens *tokens, uint8_t *data,
                   uint64_t bytes)
{
    const rkv_snapshot_part parts[] = {{data, 64}, {data + 64, bytes - 64}};
    rkv_snapshot_cache_insert_args args = {
        .struct_size = sizeof args, .flags = RKV_SNAPSHOT_INSERT_STORABLE, .tokens = tokens,
        .data = data, .size_bytes = bytes, .parts = parts, .part_count = 2,
        .part_size = sizeof *parts};
    TIME(rkv_snapshot_cache_insert, cache, &args, NULL);
}

static rkv_snapshot_tier_stats snapshot_stats(rkv_snapshot_cache *cache)
{
    rkv_snapshot_tier_stats stats = {.struct_size = sizeof stats};
    calls_vary(true);
    TIME(rkv_snapshot_cache_read_tier_stats, cache, &stats);
    calls_vary(false);
    return stats;
}

static rkv_ticket_id ask(rkv_snapshot_cache *cache, const rkv_tokens *tokens)
{
    rkv_snapshot_cache_fetch_result found = {.struct_size = sizeof found};
    TIME(rkv_snapshot_cache_fetch, cache, NULL, tokens, 0, &found);
    REQUIRE(found.ticket != 0);
    return found.ticket;
}

static void take(rkv_snapshot_cache *cache, rkv_ticket_id ticket)
{
    rkv_snapshot_cache_match_result found = {.struct_size = sizeof found};
    rkv_snapshot_part parts[2];
    size_t count;
    /* Nobody times a call that says to come again; the last one is timed. */
    for (unsigned i = 0; i < MINUTE && snapshot_stats(cache).loading_bytes > 0; i++) {
        pause_a_little();
    }
    TIME(rkv_snapshot_cache_take, cache, ticket, &found);
    REQUIRE(found.pin != 0 && found.is_copy);
    TIME(rkv_snapshot_cache_read_parts, cache, found.pin, parts, sizeof *parts, 2, &count);
    REQUIRE(count == 2);
    TIME(rkv_snapshot_cache_release, cache, found.pin);
}

static rkv_snapshot_cache *open(const char *directory, uint64_t entry_limit)
{
    rkv_snapshot_cache_config config;
    rkv_snapshot_tier_config below;
    rkv_snapshot_cache *cache;
    CHECK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_limit;
    config.byte_limit = 3 * (uint64_t)LARGE_BYTES;
    CHECK(rkv_snapshot_tier_config_init(&below, sizeof below));
    below.directory = directory;
    below.byte_limit = (uint64_t)1 << 30;
    below.worker_count = 2;
    below.commit_interval_ms = 50;
    TIME(rkv_snapshot_cache_create, &config, &cache);
    TIME(rkv_snapshot_cache_attach, cache, &below);
    reader_of_snapshots(cache);
    return cache;
}

/* ---- lists as long as the longest prompts: half of each is what all begin with ------------ */

static rkv_tokens long_list_of(uint32_t number, uint32_t *ids)
{
    uint32_t half = sizes.positions / 2;
    tokens_fill(SEED + 4, 0, ids, half);
    tokens_fill(SEED + 5, number, ids + half, half);
    return text(ids, 2 * half);
}

static void look_up(rkv_snapshot_cache *cache, const rkv_tokens *tokens, bool is_there)
{
    rkv_snapshot_cache_match_result found = {.struct_size = sizeof found};
    TIME(rkv_snapshot_cache_match, cache, NULL, tokens, 0, &found);
    REQUIRE((found.pin != 0) == is_there && (is_there || found.fetchable_token_count > 0));
    if (is_there) {
        TIME(rkv_snapshot_cache_release, cache, found.pin);
    }
}

static void long_lists(rkv_snapshot_cache *cache, uint8_t *data)
{
    enum { COUNT = 16 };
    uint32_t *ids = allocate(sizes.positions, sizeof *ids);
    situation("lists of 131,072 tokens");
    for (uint32_t i = 0; i < COUNT; i++) {
        rkv_tokens tokens = long_list_of(i, ids);
        insert(cache, &tokens, data, PAGE_BYTES);
        insert(cache, &tokens, data, PAGE_BYTES);
    }
    TIME(rkv_snapshot_cache_flush, cache, MINUTE);
    /* What comes after them takes their places in memory. */
    for (uint32_t i = 0; i < sizes.stored; i++) {
        rkv_tokens tokens = list_of(sizes.stored + 1 + i, ids);
        insert(cache, &tokens, data, PAGE_BYTES);
    }
    TIME(rkv_snapshot_cache_flush, cache, MINUTE);
    for (uint32_t i = 0; i < COUNT; i++) {
        rkv_tokens tokens = long_list_of(i, ids);
        look_up(cache, &tokens, false);
        rkv_ticket_id ticket = ask(cache, &tokens);
        if (i % 4 == 0) {
            TIME(rkv_snapshot_cache_cancel, cache, ticket);
        } else {
            take(cache, ticket);
            look_up(cache, &tokens, true);
        }
        if (i % 4 < 2) {
            TIME(rkv_snapshot_cache_remove, cache, NULL, &tokens, NULL);
        }
    }
    free(ids);
}

void world_snapshot_tiers(uint32_t page_size, uint32_t index)
{
    (void)page_size, (void)index;
    uint32_t count = sizes.stored, ids[LIST_TOKENS];
    uint64_t large = sizes.stored < 1000 ? LARGE_BYTES / SMALLER : LARGE_BYTES;
    uint8_t *data = allocate((size_t)large, 1);
    const char *directory = directory_make();
    situation("10^4 snapshots in a directory");
    rkv_snapshot_cache *cache = open(directory, count / 2);
    for (uint32_t i = 0; i < count; i++) {
        rkv_tokens tokens = list_of(i, ids);
        insert(cache, &tokens, data, PAGE_BYTES);
    }
    rkv_tokens tokens = list_of(count, ids);
    insert(cache, &tokens, data, large);
    TIME(rkv_snapshot_cache_flush, cache, MINUTE);
    REQUIRE(snapshot_stats(cache).entry_count == count + 1);
    /* Of those that memory has no longer. */
    for (uint32_t i = 0; i < count / 8; i++) {
        tokens = list_of(i * 2, ids);
        rkv_ticket_id ticket = ask(cache, &tokens);
        if (i % 8 == 0) {
            TIME(rkv_snapshot_cache_cancel, cache, ticket);
        } else {
            take(cache, ticket);
        }
    }
    long_lists(cache, data);
    TIME(rkv_snapshot_cache_check, cache);
    reader_stop();
    TIME(rkv_snapshot_cache_detach, cache, MINUTE);
    TIME_VOID(rkv_snapshot_cache_destroy, cache);
    cache = open(directory, count);
    tokens = list_of(count, ids);
    take(cache, ask(cache, &tokens));
    TIME(rkv_snapshot_cache_clear, cache);
    reader_stop();
    TIME_VOID(rkv_snapshot_cache_destroy, cache);
    directory_remove();
    free(data);
}
