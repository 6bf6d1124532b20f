/* Several threads on one cache: requests in several namespaces, children of each other's requests,
 * probes, evictions, statistics. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>

#include "fixture.h"

enum { WORKERS = 4, WATCHERS = 2, ROUNDS = 300, PAGE_SIZE = 4, PAGES = 96 };

static fixture shared;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int working = WORKERS;
static int thread_failures;

/* check.h counts without a lock, so threads count here. */
static void expect(bool good, const char *what) {
    if (!good) {
        char message[256] = "";
        (void)rkv_last_error_message(message, sizeof message);
        pthread_mutex_lock(&gate);
        if (thread_failures++ < CHECK_PRINT_LIMIT) {
            fprintf(stderr, "threads.c: %s; last message: %s\n", what, message);
        }
        pthread_mutex_unlock(&gate);
    }
}

#define EXPECT(condition) expect((condition), #condition)

static bool anyone_working(void) {
    pthread_mutex_lock(&gate);
    bool some = working > 0;
    pthread_mutex_unlock(&gate);
    return some;
}

static uint32_t next(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

/* One of three namespaces, and a prompt of one of three families, with an image in one of them. */
static rkv_tokens prompt(uint64_t *random, rkv_namespace *space, uint32_t *ids,
                         rkv_token_item *item) {
    uint32_t family = next(random) % 3;
    size_t length = 4 + next(random) % 28;
    *space = new_namespace();
    space->epoch = next(random) % 3;
    count_up(ids, length, 1000 * family);
    if (next(random) % 2 == 0) {
        ids[length / 2] = next(random) % 8;
    }
    *item = image(3, (uint8_t)(next(random) % 2), 9);
    return with_items(ids, length, item, family == 0 ? 1 : 0);
}

/* Another thread's request, retained, displaced or dropped by now, and its namespace. */
static rkv_sequence_id last_retained;
static rkv_namespace last_space;

static rkv_sequence_id exchange_retained(rkv_sequence_id mine, rkv_namespace *space) {
    pthread_mutex_lock(&gate);
    rkv_sequence_id other = last_retained;
    rkv_namespace other_space = last_space;
    last_retained = mine;
    last_space = *space;
    *space = other_space;
    pthread_mutex_unlock(&gate);
    return other;
}

static bool refused(rkv_status status) {
    return status == RKV_STATUS_OUT_OF_PAGES || status == RKV_STATUS_OUT_OF_SLOTS
           || status == RKV_STATUS_STALE_SEQUENCE;
}

/* Goes on from somebody's finished request, and forks. */
static void descend(uint64_t *random, rkv_sequence_id mine, rkv_namespace space) {
    rkv_sequence_id parent = exchange_retained(mine, &space);
    uint32_t ids[3] = {next(random) % 50, 7, 8};
    rkv_tokens more = text(ids, next(random) % 4);
    rkv_sequence_continue_args args = continue_args(parent, &more);
    rkv_sequence_info state = new_state();
    rkv_sequence_fork_child children[2];
    args.space = parent == 0 ? NULL : &space;
    rkv_status status = rkv_sequence_continue(shared.cache, &args, &state);
    EXPECT(status == RKV_STATUS_OK || refused(status));
    if (status == RKV_STATUS_OK) {
        EXPECT(state.inherited_position_count < state.position_count);
        status = try_fork(&shared, state.sequence, 2, children);
        EXPECT(status == RKV_STATUS_OK || refused(status));
        for (size_t i = 0; i < 2 && status == RKV_STATUS_OK; i++) {
            EXPECT(rkv_sequence_release(shared.cache, children[i].sequence) == RKV_STATUS_OK);
        }
        EXPECT(rkv_sequence_release(shared.cache, state.sequence) == RKV_STATUS_OK);
    }
    if (next(random) % 2 == 0) {
        status = rkv_sequence_drop(shared.cache, parent);
        EXPECT(status == RKV_STATUS_OK || status == RKV_STATUS_STALE_SEQUENCE);
    } else if (next(random) % 8 == 0) {
        size_t gained = 0;
        EXPECT(rkv_cache_drop_retained(shared.cache, 4, &gained) == RKV_STATUS_OK);
    }
}

static void request(uint64_t *random) {
    rkv_namespace space;
    rkv_token_item item;
    uint32_t ids[32];
    rkv_tokens tokens = prompt(random, &space, ids, &item);
    rkv_sequence_begin_args args = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    rkv_sequence_publish_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    args.space = &space;
    rkv_status status = rkv_sequence_begin(shared.cache, &args, &state);
    if (status != RKV_STATUS_OK) {
        EXPECT(status == RKV_STATUS_OUT_OF_PAGES || status == RKV_STATUS_OUT_OF_SLOTS);
        return;
    }
    EXPECT(state.cached_position_count < state.position_count);
    if (state.copy_count > 0) {
        EXPECT(rkv_sequence_confirm_copies(shared.cache, state.sequence) == RKV_STATUS_OK);
    }
    uint64_t computed = state.cached_position_count;
    while (computed < state.position_count) {
        computed += 1 + next(random) % 9;
        computed = computed < state.position_count ? computed : state.position_count;
        EXPECT(rkv_sequence_publish(shared.cache, state.sequence, computed, &result)
               == RKV_STATUS_OK);
        EXPECT(result.shared_page_count == computed / PAGE_SIZE);
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t id = next(random) % 50;
        rkv_tokens one = text(&id, 1);
        status = rkv_sequence_append(shared.cache, state.sequence, &one);
        EXPECT(status == RKV_STATUS_OK || status == RKV_STATUS_OUT_OF_PAGES);
    }
    EXPECT(rkv_sequence_truncate(shared.cache, state.sequence, state.position_count)
           == RKV_STATUS_OK);
    uint32_t row[32];
    size_t count = 0;
    EXPECT(rkv_page_table_read_row(shared.table, state.slot, 0, row, 32, &count) == RKV_STATUS_OK);
    /* what is mapped stays: nobody evicts it from under the row */
    for (size_t i = 0; i < result.shared_page_count; i++) {
        bool cached = false;
        EXPECT(rkv_cache_contains_page(shared.cache, row[i], &cached) == RKV_STATUS_OK);
        EXPECT(cached);
    }
    if (next(random) % 3 == 0) {
        bool retained = false;
        EXPECT(rkv_sequence_retain(shared.cache, state.sequence, &retained) == RKV_STATUS_OK);
        EXPECT(retained);
        descend(random, state.sequence, space);
    } else {
        EXPECT(rkv_sequence_release(shared.cache, state.sequence) == RKV_STATUS_OK);
    }
    EXPECT(rkv_sequence_release(shared.cache, state.sequence) == RKV_STATUS_STALE_SEQUENCE);
}

static void *work(void *seed) {
    uint64_t random = *(const uint64_t *)seed;
    for (int i = 0; i < ROUNDS; i++) {
        request(&random);
        if (i % 16 == 0) {
            size_t evicted = 0;
            EXPECT(rkv_cache_evict(shared.cache, 3, NULL, 0, &evicted) == RKV_STATUS_OK);
            EXPECT(evicted <= 3);
        }
        /* a lock of one's own, and pages of one's own */
        if (i % 5 == 0) {
            rkv_namespace space;
            rkv_token_item item;
            uint32_t ids[32], page = 0;
            rkv_tokens tokens = prompt(&random, &space, ids, &item);
            rkv_cache_match_result match = new_match();
            EXPECT(rkv_cache_match(shared.cache, &space, &tokens, RKV_MATCH_LOCK, NULL, 0,
                                   &match) == RKV_STATUS_OK);
            if (rkv_page_table_allocate_pages(shared.table, 1, &page) == RKV_STATUS_OK) {
                EXPECT(page != 0);
                EXPECT(rkv_page_table_free_pages(shared.table, &page, 1) == RKV_STATUS_OK);
            }
            if (match.lock != 0) {
                EXPECT(rkv_cache_unlock(shared.cache, match.lock) == RKV_STATUS_OK);
            }
        }
    }
    pthread_mutex_lock(&gate);
    working--;
    pthread_mutex_unlock(&gate);
    return NULL;
}

/* B09: probes and statistics from other threads while the owners mutate. K19 at every moment. */
static void *watch(void *seed) {
    uint64_t random = *(const uint64_t *)seed;
    while (anyone_working()) {
        sched_yield(); /* where one thread runs at a time, the workers must get their turn */
        rkv_namespace space;
        rkv_token_item item;
        uint32_t ids[32];
        rkv_tokens tokens = prompt(&random, &space, ids, &item);
        size_t token_count = 0, positions = 0, all = 0;
        EXPECT(rkv_tokens_position_count(&tokens, &all) == RKV_STATUS_OK);
        EXPECT(rkv_cache_probe(shared.cache, &space, &tokens, &token_count, &positions)
               == RKV_STATUS_OK);
        EXPECT(token_count <= tokens.count && positions <= all && token_count <= positions);
        rkv_page_table_stats stats;
        stats.struct_size = sizeof stats;
        EXPECT(rkv_page_table_read_stats(shared.table, &stats) == RKV_STATUS_OK);
        EXPECT(stats.free_page_count + stats.cached_page_count + stats.private_page_count
               == stats.total_page_count);
        EXPECT(stats.reclaimable_page_count <= stats.cached_page_count);
        if (next(&random) % 16 == 0) {
            EXPECT(rkv_cache_check(shared.cache) == RKV_STATUS_OK);
            EXPECT(rkv_page_table_check(shared.table) == RKV_STATUS_OK);
        }
        /* each thread has a last message of its own */
        rkv_lock_id lock = 0;
        EXPECT(rkv_cache_lock(shared.cache, 0, &lock) == RKV_STATUS_STALE_NODE);
        char message[128] = "";
        EXPECT(rkv_last_error_message(message, sizeof message) > 1);
        EXPECT(strstr(message, "node") != NULL);
    }
    return NULL;
}

static void b09_many_threads_on_one_cache(void) {
    pthread_t threads[WORKERS + WATCHERS];
    uint64_t seeds[WORKERS + WATCHERS];
    shared = new_fixture_with(PAGE_SIZE, PAGES, 2 * WORKERS, 0);
    for (uint64_t i = 0; i < WORKERS + WATCHERS; i++) {
        seeds[i] = 1000 + i;
        CHECK_EQ(pthread_create(&threads[i], NULL, i < WORKERS ? work : watch, &seeds[i]), 0);
    }
    for (size_t i = 0; i < WORKERS + WATCHERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK_EQ(thread_failures, 0);
    CHECK_EQ(cache_stats(&shared).sequence_count, 0);
    CHECK(cache_stats(&shared).inherit_count > 0);
    size_t gained = 0;
    CHECK_OK(rkv_cache_drop_retained(shared.cache, SIZE_MAX, &gained));
    CHECK_EQ(private_pages(&shared), 0);
    CHECK_EQ(reclaimable_pages(&shared), cached_pages(&shared));
    CHECK(cache_stats(&shared).lookup_count >= ROUNDS);
    check_sane(&shared);
    evict(&shared, PAGES);
    CHECK_EQ(free_pages(&shared), PAGES);
    CHECK_EQ(cache_stats(&shared).namespace_count, 0);
    end_fixture(&shared);
}

int main(void) {
    RUN_BOTH(b09_many_threads_on_one_cache);
    return check_result();
}
