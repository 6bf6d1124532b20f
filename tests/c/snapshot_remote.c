/* T13: a store of the engine's below several snapshot caches. */
#define _XOPEN_SOURCE 700
#include "shared_store.h"
#include "snapshots.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MINUTE = 60000, WHOLE = 900 };

static int event_fd;
static uint8_t bytes[WHOLE];

static rkv_snapshot_tier_config tier_config(const rkv_remote_store *remote) {
    rkv_snapshot_tier_config config;
    CHECK_OK(rkv_snapshot_tier_config_init(&config, sizeof config));
    CHECK(config.remote == NULL && config.remote_timeout_ms == 0);
    config.remote = remote;
    config.worker_count = 2;
    config.event_fd = event_fd;
    return config;
}

static rkv_snapshot_cache *new_cache(const rkv_remote_store *remote) {
    rkv_snapshot_cache *cache = NULL;
    rkv_snapshot_tier_config config = tier_config(remote);
    CHECK_OK(rkv_snapshot_cache_create(NULL, &cache));
    CHECK_OK(rkv_snapshot_cache_attach(cache, &config));
    return cache;
}

static void end_cache(rkv_snapshot_cache *cache) {
    CHECK_OK(rkv_snapshot_cache_check(cache));
    CHECK_OK(rkv_snapshot_cache_detach(cache, MINUTE));
    rkv_snapshot_cache_destroy(cache);
}

static void store_state(rkv_snapshot_cache *cache, rkv_tokens tokens) {
    const rkv_snapshot_part parts[] = {{bytes, 400}, {bytes + 400, WHOLE - 400}};
    rkv_snapshot_cache_insert_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.flags = RKV_SNAPSHOT_INSERT_STORABLE;
    args.tokens = &tokens;
    args.data = bytes;
    args.size_bytes = WHOLE;
    args.has_next_token = 1;
    args.next_token = 77;
    args.parts = parts;
    args.part_count = 2;
    args.part_size = sizeof parts[0];
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    CHECK_OK(rkv_snapshot_cache_flush(cache, MINUTE));
}

static rkv_snapshot_tier_stats tier_stats(rkv_snapshot_cache *cache) {
    rkv_snapshot_tier_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_snapshot_cache_read_tier_stats(cache, &stats));
    return stats;
}

/* Tokens that came, with every byte; the engine sleeps on its eventfd meanwhile. */
static uint64_t bring(rkv_snapshot_cache *cache, rkv_tokens tokens) {
    rkv_snapshot_cache_fetch_result started = {.struct_size = sizeof started};
    CHECK_OK(rkv_snapshot_cache_fetch(cache, NULL, &tokens, 0, &started));
    if (started.ticket == 0) {
        return 0;
    }
    CHECK_EQ(started.token_count + started.common_token_count + started.size_bytes, 0);
    rkv_snapshot_cache_match_result match = new_found();
    rkv_status status = RKV_STATUS_PENDING;
    for (int i = 0; i < MINUTE; i++) {
        status = rkv_snapshot_cache_take(cache, started.ticket, &match);
        if (status != RKV_STATUS_PENDING) {
            break;
        }
        struct pollfd ready = {event_fd, POLLIN, 0};
        uint64_t times = 0;
        if (poll(&ready, 1, 100) == 1) {
            CHECK_EQ(read(event_fd, &times, sizeof times), sizeof times);
        }
    }
    CHECK_OK(status);
    if (match.pin == 0) {
        return 0;
    }
    rkv_snapshot_part parts[2];
    size_t count = 0;
    CHECK_OK(rkv_snapshot_cache_read_parts(cache, match.pin, parts, sizeof parts[0], 2, &count));
    CHECK(count == 2 && parts[0].size_bytes == 400 && parts[1].size_bytes == WHOLE - 400);
    CHECK(memcmp(parts[0].data, bytes, 400) == 0);
    CHECK(memcmp(parts[1].data, bytes + 400, WHOLE - 400) == 0);
    CHECK(match.has_next_token == 1 && match.next_token == 77);
    CHECK_EQ(match.common_token_count, match.token_count);
    CHECK_OK(rkv_snapshot_cache_release(cache, match.pin));
    return match.token_count;
}

static void t13_snapshots_are_shared(void) {
    static shared_store store;
    memset(&store, 0, sizeof store);
    pthread_mutex_init(&store.lock, NULL);
    store.owner = pthread_self();
    rkv_remote_store remote = remote_of(&store);
    for (size_t at = 0; at < WHOLE; at++) {
        bytes[at] = (uint8_t)(at * 31 >> 3);
    }
    uint32_t ids[300];
    count_up(ids, 300, 1);
    rkv_snapshot_cache *one = new_cache(&remote), *other = new_cache(&remote);
    store_state(one, text(ids, 150));
    rkv_snapshot_tier_stats stats = tier_stats(one);
    CHECK_EQ(stats.remote.written_page_count, 3); /* a piece, a head, a mark */
    CHECK_EQ(stats.entry_count + stats.byte_limit, 0);
    CHECK_EQ(bring(one, text(ids, 150)), 0); /* memory has it */
    CHECK_EQ(bring(other, text(ids, 300)), 150);
    CHECK_EQ(bring(other, text(ids + 1, 200)), 0);
    stats = tier_stats(other);
    CHECK_EQ(stats.remote.fetched_page_count, 1);
    CHECK(stats.remote.asked_page_count > 0 && stats.remote.dropped_page_count == 0);
    CHECK_EQ(stats.loaded_count, 1);
    end_cache(one);

    /* A store that is dead, slow, or has other bytes costs a hit. */
    store.is_dead = true;
    rkv_snapshot_cache *third = new_cache(&remote);
    CHECK_EQ(bring(third, text(ids, 300)), 0);
    CHECK(tier_stats(third).remote.failed_page_count > 0);
    end_cache(third);
    store.is_dead = false;
    for (size_t at = 0; at < store.count; at++) {
        store.places[at].value[store.places[at].size - 1] ^= 1;
    }
    third = new_cache(&remote);
    CHECK_EQ(bring(third, text(ids, 300)), 0);
    CHECK_EQ(tier_stats(third).remote.damaged_page_count, 1);
    store_state(third, text(ids, 150)); /* it is mended */
    end_cache(third);
    third = new_cache(&remote);
    CHECK_EQ(bring(third, text(ids, 300)), 150);
    end_cache(third);
    store.is_slow = true;
    third = NULL;
    rkv_snapshot_tier_config config = tier_config(&remote);
    config.remote_timeout_ms = 1;
    CHECK_OK(rkv_snapshot_cache_create(NULL, &third));
    CHECK_OK(rkv_snapshot_cache_attach(third, &config));
    CHECK_EQ(bring(third, text(ids, 300)), 0);
    end_cache(third);
    end_cache(other);
    pthread_mutex_destroy(&store.lock);
}

/* A store whose first call waits for the cache that it belongs to. */
typedef struct waiting_store {
    rkv_snapshot_cache *cache;
    rkv_status (*wait)(rkv_snapshot_cache *cache, uint64_t timeout_ms);
    rkv_status status;
    bool has_called;
} waiting_store;

static void wait_for_itself(void *user_data, rkv_remote_item *items, size_t item_size,
                            size_t count, uint64_t timeout_ms) {
    (void)items, (void)item_size, (void)count, (void)timeout_ms;
    waiting_store *store = user_data;
    if (!store->has_called) {
        store->status = store->wait(store->cache, 10);
        store->has_called = true;
    }
}

/* T13: who is called by a cache neither ends what is below it nor waits for it: he would wait for
 * himself. */
static void t13_a_store_does_not_wait_for_itself(void) {
    rkv_status (*const waits[])(rkv_snapshot_cache *, uint64_t) = {
        rkv_snapshot_cache_detach,
        rkv_snapshot_cache_flush,
    };
    uint32_t ids[150];
    count_up(ids, 150, 1);
    for (size_t at = 0; at < sizeof waits / sizeof waits[0]; at++) {
        waiting_store store = {NULL, waits[at], RKV_STATUS_OK, false};
        rkv_remote_store remote = {.struct_size = sizeof remote, .user_data = &store};
        remote.has = remote.get = remote.put = wait_for_itself;
        /* Each call to the store comes after the cache was given something. */
        rkv_snapshot_cache *cache = store.cache = new_cache(&remote);
        store_state(cache, text(ids, 150));
        /* its threads have ended then */
        end_cache(cache);
        CHECK(store.has_called);
        CHECK_EQ(store.status, RKV_STATUS_INVALID_STATE);
    }
}

int main(void) {
    event_fd = eventfd(0, EFD_NONBLOCK);
    RUN(t13_snapshots_are_shared);
    RUN(t13_a_store_does_not_wait_for_itself);
    close(event_fd);
    return check_result();
}
