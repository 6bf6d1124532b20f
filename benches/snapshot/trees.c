/*
 * One tree or two: what it would cost to keep snapshots in an index of page size 1, whose tree is
 * made for pages, instead of in a tree of their own.
 */
#include "snapshots.h"

#include <stdio.h>
#include <stdlib.h>

enum { ENTRIES = 100000, FAMILY = 1000, SHARED = 256, OWN = 64, TOKENS = SHARED + OWN };
enum { ROUNDS = 3, LOOKUPS = 50000, SEED = 808 };

static uint32_t ids[TOKENS], pages[TOKENS], published[TOKENS];
static const rkv_tokens TEXT = {.struct_size = sizeof TEXT, .ids = ids, .count = TOKENS};

static void write_prompt(uint32_t entry)
{
    tokens_fill(SEED, entry / FAMILY, ids, SHARED);
    tokens_fill(SEED + 1, entry, ids + SHARED, OWN);
}

static void destroy(void *data, uint64_t size, void *user_data)
{
    (void)data;
    (void)size;
    (void)user_data;
}

static void emit(const char *name, double microseconds, uint64_t bytes)
{
    printf("| %s | %.2f | %llu |\n", name, microseconds, (unsigned long long)bytes / ENTRIES);
}

/* The quickest round of lookups, each with what ends it, in microseconds for one. */
static double measure(void (*lookup)(void *cache), void *cache)
{
    double best = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct rng rng = {SEED + round};
        uint64_t ticks = 0;
        for (unsigned i = 0; i < LOOKUPS; i++) {
            write_prompt(rng_below(&rng, ENTRIES));
            uint64_t begun = ticks_now();
            lookup(cache);
            ticks += ticks_now() - begun;
        }
        double took = nanoseconds((double)ticks) / LOOKUPS / 1000;
        best = round == 0 || took < best ? took : best;
    }
    return best;
}

static void match_snapshot(void *cache)
{
    rkv_snapshot_cache_match_result match = {.struct_size = sizeof match};
    CHECK(rkv_snapshot_cache_match(cache, NULL, &TEXT, 0, &match));
    REQUIRE(match.token_count == TOKENS);
    CHECK(rkv_snapshot_cache_release(cache, match.pin));
}

static void measure_snapshots(void)
{
    rkv_snapshot_cache_config config = {
        .struct_size = sizeof config, .entry_limit = 2 * ENTRIES, .byte_limit = UINT64_MAX};
    rkv_snapshot_cache *cache;
    CHECK(rkv_snapshot_cache_create(&config, &cache));
    for (uint32_t entry = 0; entry < ENTRIES; entry++) {
        write_prompt(entry);
        rkv_snapshot_cache_insert_args args = {
            .struct_size = sizeof args, .tokens = &TEXT, .data = ids, .size_bytes = 1,
            .destructor = destroy};
        rkv_snapshot_cache_insert_result result = {.struct_size = sizeof result};
        CHECK(rkv_snapshot_cache_insert(cache, &args, &result));
    }
    rkv_snapshot_cache_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_snapshot_cache_read_stats(cache, &stats));
    emit("snapshot cache", measure(match_snapshot, cache), stats.index_bytes);
    rkv_snapshot_cache_destroy(cache);
}

static void match_locked(void *cache)
{
    rkv_cache_match_result match = {.struct_size = sizeof match};
    CHECK(rkv_cache_match(cache, NULL, &TEXT, RKV_MATCH_LOCK, NULL, 0, &match));
    REQUIRE(match.token_count == TOKENS);
    CHECK(rkv_cache_unlock(cache, match.lock));
}

static void measure_index(void)
{
    struct fixture fixture;
    fixture_open(&fixture, 1, ENTRIES * OWN + ENTRIES / FAMILY * SHARED + TOKENS, TOKENS);
    for (uint32_t entry = 0; entry < ENTRIES; entry++) {
        write_prompt(entry);
        rkv_cache_match_result known = {.struct_size = sizeof known};
        CHECK(rkv_cache_match(fixture.cache, NULL, &TEXT, 0, pages, TOKENS, &known));
        size_t shared = known.page_count;
        CHECK(rkv_page_table_allocate_pages(fixture.table, TOKENS - shared, pages + shared));
        rkv_cache_insert_args args = {
            .struct_size = sizeof args, .tokens = &TEXT, .pages = pages, .page_count = TOKENS,
            .from_node = known.node, .from_page_index = shared, .from_token_index = shared};
        rkv_cache_insert_result result = {.struct_size = sizeof result};
        CHECK(rkv_cache_insert(fixture.cache, &args, published, &result));
    }
    rkv_cache_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_cache_read_stats(fixture.cache, &stats));
    emit("index of page size 1", measure(match_locked, fixture.cache), stats.index_bytes);
    fixture_close(&fixture);
}

void run_trees(void)
{
    printf("| | us | bytes for each entry |\n|---|--:|--:|\n");
    measure_snapshots();
    measure_index();
}
