/* Several threads on one snapshot cache: lookups that hold pins, replacements, removals. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "fixture.h"

enum { THREADS = 5, ROUNDS = 400, LISTS = 12, LONGEST = 40, ENTRY_LIMIT = 6 };

/* A snapshot says what it is the snapshot of; `alive` goes to zero when it is destroyed. */
typedef struct state {
    uint32_t family, token_count;
    uint32_t alive;
} state;

static rkv_snapshot_cache *cache;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int made_count, destroyed_count, thread_failures;

/* check.h counts without a lock, so threads count here. */
static void expect(bool good, const char *what) {
    if (!good) {
        pthread_mutex_lock(&gate);
        if (thread_failures++ < CHECK_PRINT_LIMIT) {
            fprintf(stderr, "snapshot_threads.c: %s\n", what);
        }
        pthread_mutex_unlock(&gate);
    }
}

#define EXPECT(condition) expect((condition), #condition)

static uint32_t next(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

static void destroy_state(void *data, uint64_t size_bytes, void *user_data) {
    state *old = data;
    EXPECT(size_bytes == sizeof *old && user_data == &destroyed_count && old->alive == 77);
    old->alive = 0;
    free(old);
    pthread_mutex_lock(&gate);
    destroyed_count++;
    pthread_mutex_unlock(&gate);
    /* any thread may be here, inside whichever call let the snapshot go */
    EXPECT(rkv_snapshot_cache_check(cache) == RKV_STATUS_OK);
}

static rkv_tokens prompt(uint32_t family, uint32_t count, uint32_t *ids) {
    count_up(ids, count, 100 * (family % 3));
    if (count > 20 && family > 2) {
        ids[20] = 7 + family;
    }
    return text(ids, count);
}

static void store(uint32_t family, uint32_t count) {
    uint32_t ids[LONGEST];
    rkv_tokens tokens = prompt(family, count, ids);
    rkv_snapshot_cache_insert_args args;
    state *made = malloc(sizeof *made);
    if (made == NULL) {
        exit(1);
    }
    made->family = family;
    made->token_count = count;
    made->alive = 77;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    args.data = made;
    args.size_bytes = sizeof *made;
    args.destructor = destroy_state;
    args.user_data = &destroyed_count;
    pthread_mutex_lock(&gate);
    made_count++;
    pthread_mutex_unlock(&gate);
    EXPECT(rkv_snapshot_cache_insert(cache, &args, NULL) == RKV_STATUS_OK);
}

static void read_one(uint32_t family, uint32_t count, bool again) {
    uint32_t ids[LONGEST];
    rkv_tokens tokens = prompt(family, count, ids);
    rkv_snapshot_cache_match_result match;
    memset(&match, 0, sizeof match);
    match.struct_size = sizeof match;
    EXPECT(rkv_snapshot_cache_match(cache, NULL, &tokens, 0, &match) == RKV_STATUS_OK);
    if (match.pin == 0) {
        return;
    }
    const state *found = match.data;
    EXPECT(found->alive == 77 && found->token_count == match.token_count);
    EXPECT(found->family % 3 == family % 3 && match.token_count <= count);
    if (again) {
        read_one(family, count, false);
        store(family, count);
    }
    EXPECT(found->alive == 77);
    EXPECT(rkv_snapshot_cache_release(cache, match.pin) == RKV_STATUS_OK);
    EXPECT(rkv_snapshot_cache_release(cache, match.pin) == RKV_STATUS_STALE_PIN);
}

static void *work(void *seed) {
    uint64_t random = *(const uint64_t *)seed;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t family = next(&random) % LISTS, count = 1 + next(&random) % LONGEST;
        uint32_t ids[LONGEST];
        rkv_tokens tokens = prompt(family, count, ids);
        size_t found = 0;
        switch (next(&random) % 8) {
        case 0:
        case 1:
            store(family, count);
            break;
        case 2:
            EXPECT(rkv_snapshot_cache_remove(cache, NULL, &tokens, NULL) == RKV_STATUS_OK);
            break;
        case 3:
            EXPECT(rkv_snapshot_cache_probe(cache, NULL, &tokens, &found) == RKV_STATUS_OK);
            EXPECT(found <= count);
            break;
        default:
            read_one(family, count, round % 4 == 0);
        }
        if (round % 100 == 99) {
            EXPECT(rkv_snapshot_cache_clear(cache) == RKV_STATUS_OK);
        }
    }
    return NULL;
}

static void s09_many_threads_on_one_cache(void) {
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];
    rkv_snapshot_cache_config config;
    CHECK_OK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = ENTRY_LIMIT;
    CHECK_OK(rkv_snapshot_cache_create(&config, &cache));
    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = 500 + i;
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &seeds[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    rkv_snapshot_cache_stats stats;
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_snapshot_cache_check(cache));
    CHECK_OK(rkv_snapshot_cache_read_stats(cache, &stats));
    CHECK(stats.pin_count == 0 && stats.detached_count == 0 && stats.hit_count > 0);
    CHECK(stats.entry_count <= ENTRY_LIMIT && stats.evicted_count > 0);
    CHECK_EQ(made_count - destroyed_count, stats.entry_count);
    CHECK_OK(rkv_snapshot_cache_clear(cache));
    CHECK_EQ(made_count, destroyed_count);
    rkv_snapshot_cache_destroy(cache);
    CHECK_EQ(thread_failures, 0);
}

/* ---- S07: a destructor that waits for somebody else's call ---- */

static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void wait_for_turn(int wanted) {
    pthread_mutex_lock(&gate);
    while (turn < wanted) {
        pthread_cond_wait(&turned, &gate);
    }
    pthread_mutex_unlock(&gate);
}

static void next_turn(void) {
    pthread_mutex_lock(&gate);
    turn++;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&gate);
}

static void wait_in_destructor(void *data, uint64_t size_bytes, void *user_data) {
    (void)data;
    (void)size_bytes;
    (void)user_data;
    next_turn();
    wait_for_turn(2);
}

/* Every kind of call comes through while the destructor of another call waits. */
static void *call_meanwhile(void *unused) {
    uint32_t ids[3] = {1, 2, 3};
    rkv_tokens tokens = text(ids, 3), one = text(ids, 1);
    rkv_snapshot_cache_insert_args args;
    rkv_snapshot_cache_match_result match;
    (void)unused;
    memset(&args, 0, sizeof args);
    memset(&match, 0, sizeof match);
    args.struct_size = sizeof args;
    args.tokens = &one;
    match.struct_size = sizeof match;
    wait_for_turn(1);
    EXPECT(rkv_snapshot_cache_insert(cache, &args, NULL) == RKV_STATUS_OK);
    EXPECT(rkv_snapshot_cache_match(cache, NULL, &tokens, 0, &match) == RKV_STATUS_OK);
    EXPECT(match.token_count == 1);
    EXPECT(rkv_snapshot_cache_release(cache, match.pin) == RKV_STATUS_OK);
    EXPECT(rkv_snapshot_cache_remove(cache, NULL, &one, NULL) == RKV_STATUS_OK);
    next_turn();
    return NULL;
}

static void s07_no_lock_is_held_in_a_destructor(void) {
    uint32_t ids[2] = {1, 2};
    rkv_tokens tokens = text(ids, 2);
    rkv_snapshot_cache_insert_args args;
    pthread_t thread;
    bool removed = false;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    args.destructor = wait_in_destructor;
    CHECK_OK(rkv_snapshot_cache_create(NULL, &cache));
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    CHECK_EQ(pthread_create(&thread, NULL, call_meanwhile, NULL), 0);
    CHECK_OK(rkv_snapshot_cache_remove(cache, NULL, &tokens, &removed));
    CHECK(removed);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_OK(rkv_snapshot_cache_check(cache));
    rkv_snapshot_cache_destroy(cache);
    CHECK_EQ(thread_failures, 0);
}

int main(void) {
    RUN(s09_many_threads_on_one_cache);
    RUN(s07_no_lock_is_held_in_a_destructor);
    return check_result();
}
