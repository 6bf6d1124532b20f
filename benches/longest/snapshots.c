/* Snapshot caches: 100,000 entries of chats, and a chain of entries each a token longer. */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1404, TURNS = 8, TURN_TOKENS = 64, SYSTEM_TOKENS = 64 };
enum { LIST_TOKENS = SYSTEM_TOKENS + TURNS * TURN_TOKENS };

/* Turn after turn of a chat, each an entry. */
static size_t list_of(uint32_t entry, uint32_t *ids)
{
    uint32_t chat = entry / TURNS, turns = entry % TURNS + 1;
    tokens_fill(SEED, 0, ids, SYSTEM_TOKENS);
    tokens_fill(SEED + 1, chat, ids + SYSTEM_TOKENS, (size_t)turns * TURN_TOKENS);
    ids[SYSTEM_TOKENS] = FRESH + chat;
    return SYSTEM_TOKENS + (size_t)turns * TURN_TOKENS;
}

static rkv_snapshot_cache *open(uint64_t entry_limit, uint64_t byte_limit)
{
    rkv_snapshot_cache_config config;
    rkv_snapshot_cache *cache;
    CHECK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_limit;
    config.byte_limit = byte_limit;
    TIME(rkv_snapshot_cache_create, &config, &cache);
    reader_of_snapshots(cache);
    return cache;
}

static void close(rkv_snapshot_cache *cache)
{
    reader_stop();
    TIME_VOID(rkv_snapshot_cache_destroy, cache);
}

static void insert(rkv_snapshot_cache *cache, const uint32_t *ids, size_t count, uint64_t bytes)
{
    rkv_tokens tokens = text(ids, count);
    rkv_snapshot_cache_insert_args args = {
        .struct_size = sizeof args, .tokens = &tokens, .size_bytes = bytes};
    TIME(rkv_snapshot_cache_insert, cache, &args, NULL);
}

static void look_up(rkv_snapshot_cache *cache, const uint32_t *ids, size_t count)
{
    rkv_tokens tokens = text(ids, count);
    rkv_snapshot_cache_match_result found = {.struct_size = sizeof found};
    size_t length;
    TIME(rkv_snapshot_cache_probe, cache, NULL, &tokens, &length);
    TIME(rkv_snapshot_cache_match, cache, NULL, &tokens, 0, &found);
    REQUIRE(found.pin != 0);
    TIME(rkv_snapshot_cache_release, cache, found.pin);
}

static void take_out(rkv_snapshot_cache *cache, const uint32_t *ids, size_t count)
{
    rkv_tokens tokens = text(ids, count);
    bool removed = false;
    TIME(rkv_snapshot_cache_remove, cache, NULL, &tokens, &removed);
    REQUIRE(removed);
}

static void looks(rkv_snapshot_cache *cache)
{
    rkv_snapshot_cache_stats stats = {.struct_size = sizeof stats};
    for (unsigned i = 0; i < 200; i++) {
        TIME(rkv_snapshot_cache_read_stats, cache, &stats);
    }
    TIME(rkv_snapshot_cache_check, cache);
}

static void fill(rkv_snapshot_cache *cache, const uint32_t *order)
{
    uint32_t ids[LIST_TOKENS];
    for (uint32_t i = 0; i < sizes.snapshots; i++) {
        insert(cache, ids, list_of(order[i], ids), 1);
    }
}

void world_snapshots(uint32_t page_size, uint32_t index)
{
    (void)page_size, (void)index;
    uint32_t count = sizes.snapshots, ids[LIST_TOKENS];
    uint32_t *order = allocate(count, sizeof *order);
    struct rng rng = {SEED};
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    rng_shuffle(&rng, order, count);
    situation("10^5 snapshots");
    rkv_snapshot_cache *cache = open(count, count);
    fill(cache, order);
    looks(cache);
    for (uint32_t i = 0; i < 20000; i++) {
        look_up(cache, ids, list_of(rng_below(&rng, count), ids));
    }
    /* Each lets the oldest go. */
    for (uint32_t i = 0; i < 20000; i++) {
        insert(cache, ids, list_of(count + i, ids), 1);
    }
    TIME(rkv_snapshot_cache_clear, cache);
    fill(cache, order);
    rng_shuffle(&rng, order, count);
    for (uint32_t i = 0; i < count; i++) {
        take_out(cache, ids, list_of(order[i], ids));
    }
    fill(cache, order);
    situation("10^5 snapshots, all let go in one call");
    insert(cache, ids, list_of(count, ids), count);
    situation("10^5 snapshots");
    fill(cache, order);
    close(cache);
    free(order);
}

void world_snapshot_chain(uint32_t page_size, uint32_t index)
{
    (void)page_size, (void)index;
    uint32_t count = sizes.depth;
    uint32_t *ids = allocate(count, sizeof *ids);
    tokens_fill(SEED + 2, 0, ids, count);
    situation("10^4 snapshots, each a token longer");
    rkv_snapshot_cache *cache = open(count, UINT64_MAX);
    for (uint32_t i = 1; i <= count; i++) {
        insert(cache, ids, i, 1);
    }
    looks(cache);
    for (uint32_t i = 0; i < 200; i++) {
        look_up(cache, ids, count - i);
    }
    for (uint32_t i = 1; i < count; i += 2) {
        take_out(cache, ids, i);
    }
    close(cache);
    free(ids);
}
