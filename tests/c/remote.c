/* T13: a store of the engine's below the tiers of several caches. */
#define _XOPEN_SOURCE 700
#include "shared_store.h"
#include "tiers.h"

static void until_written(engine *e, uint64_t count) {
    for (int i = 0; i < MINUTE && tier_stats(&e->f).remote.written_page_count < count; i++) {
        step(e);
        pause_a_little();
    }
    CHECK_EQ(tier_stats(&e->f).remote.written_page_count, count);
}

/* A request of which nothing may come from the store: the positions that were fetched. */
static uint64_t hopeless(engine *e, uint32_t *ids, size_t count) {
    rkv_sequence_info state = begin(&e->f, text(ids, count));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e->f.cache, state.sequence, UINT64_MAX, 0, &fetch));
    uint64_t came = fetch.is_open ? until_fetched(e).brought_page_count : 0;
    state = info(e, state.sequence);
    compute(e, &state, ids);
    release(&e->f, state.sequence);
    return came;
}

/* T13: a store of the engine's, which several caches have below them. */
static void t13_remote(void) {
    static shared_store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    store.owner = pthread_self();
    store.count = store.removed = 0;
    store.is_dead = store.is_slow = false;
    rkv_remote_store remote = remote_of(&store);
    rkv_tier_config config = tier_config();
    config.remote = &remote;
    config.worker_count = 2;
    uint32_t ids[33];
    count_up(ids, 33, 1);
    {
        engine e = {.f = journal_fixture()};
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        CHECK_EQ(request(&e, ids, 33), 0);
        until_written(&e, 8);
        CHECK_OK(rkv_cache_detach_tiers(e.f.cache, MINUTE));
        end_engine(&e);
    }
    CHECK_EQ(store.count, 8);
    {
        engine e = {.f = journal_fixture()};
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        CHECK_EQ(request(&e, ids, 33), 32);
        rkv_remote_totals now = tier_stats(&e.f).remote;
        CHECK_EQ(now.asked_page_count, 8);
        CHECK_EQ(now.found_page_count, 8);
        CHECK_EQ(now.fetched_page_count, 8);
        CHECK_EQ(now.read_bytes, 8 * BYTES);
        end_engine(&e); /* its tiers go with it */
    }
    {
        /* A value that is not what was written. */
        engine e = {.f = journal_fixture()};
        store.places[3].value[100] ^= 1;
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        uint64_t came = hopeless(&e, ids, 33);
        CHECK(came < 8);
        until_written(&e, 1);
        CHECK_EQ(tier_stats(&e.f).remote.damaged_page_count, 1);
        CHECK_EQ(store.removed, 1);
        end_engine(&e);
    }
    bool was_late = false;
    for (int round = 0; round <= 10 && !was_late; round++) {
        /* One that fails, and one that answers too late: on a busy machine its answer may be seen
         * before its time is over. Not each time. */
        bool is_slow = round > 0;
        engine e = {.f = journal_fixture()};
        pthread_mutex_lock(&store.lock);
        store.is_dead = !is_slow, store.is_slow = is_slow;
        pthread_mutex_unlock(&store.lock);
        config.remote_timeout_ms = is_slow ? 20 : MINUTE;
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        CHECK_EQ(hopeless(&e, ids, 33), 0);
        uint64_t late = tier_stats(&e.f).remote.late_fetch_count;
        CHECK(late <= is_slow);
        was_late = late > 0;
        until_stored(&e, 8, 0);
        CHECK_OK(rkv_cache_detach_tiers(e.f.cache, MINUTE));
        end_engine(&e);
    }
    CHECK(was_late);
}

/* M01: wrong calls change nothing. */
static void m01_remote(void) {
    engine e = {.f = journal_fixture()};
    fixture *f = &e.f;
    rkv_tier_config good = tier_config(), config;
#define WRONG(field, value, word)                                                                 \
    config = good;                                                                                \
    config.field = value;                                                                         \
    BAD(f, rkv_cache_attach_tiers(f->cache, &config), word)
    WRONG(reserved, 1, "reserved");
    WRONG(remote_timeout_ms, 1, "config.remote");
    WRONG(remote_timeout_ms, 600001, "remote_timeout_ms");
    static shared_store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    rkv_remote_store whole = remote_of(&store), remote;
#define WRONG_REMOTE(field, value)                                                                \
    remote = whole;                                                                               \
    remote.field = value;                                                                         \
    WRONG(remote, &remote, "config.remote")
    WRONG_REMOTE(reserved, 1);
    WRONG_REMOTE(has, NULL);
    WRONG_REMOTE(get, NULL);
    WRONG_REMOTE(put, NULL);
    WRONG_REMOTE(struct_size, sizeof remote - 1);
    BAD_INPUT_SIZES(f, rkv_remote_store, whole, p,
                    (config = good, config.remote = p,
                     rkv_cache_attach_tiers(f->cache, &config)), "config.remote");
    end_engine(&e);
}

static rkv_status detached;

static void *detach(void *cache) {
    detached = rkv_cache_detach_tiers(cache, MINUTE);
    return NULL;
}

/* While a detach waits for a remote store that stands still, no copy is given out: its host memory
 * would be gone when it ends. */
static void m06_detach_while_another_thread_polls(void) {
    static shared_store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    store.owner = pthread_self();
    rkv_remote_store remote = remote_of(&store);
    rkv_tier_config config = tier_config();
    config.remote = &remote;
    config.remote_timeout_ms = MINUTE;
    uint32_t first[33], second[33];
    count_up(first, 33, 1);
    count_up(second, 33, 1000);
    engine e = {.f = journal_fixture()};
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    pthread_mutex_lock(&store.lock);
    rkv_sequence_info state = begin(&e.f, text(first, 33));
    compute(&e, &state, first);
    release(&e.f, state.sequence);
    until_stored(&e, 8, 0);
    CHECK_EQ(tier_stats(&e.f).open_job_count, 0);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, detach, e.f.cache), 0);
    for (int i = 0; i < 200; i++) {
        pause_a_little();
    }
    state = begin(&e.f, text(second, 33));
    compute(&e, &state, second);
    release(&e.f, state.sequence);
    rkv_copy_job job = {.job = 0};
    rkv_cache_poll_result polled = {.struct_size = sizeof polled};
    for (int i = 0; i < 200 && polled.job_count == 0; i++) {
        CHECK_OK(rkv_cache_poll(e.f.cache, &job, sizeof job, 1, NULL, 0, 0, &polled));
        pause_a_little();
    }
    pthread_mutex_unlock(&store.lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    if (polled.job_count > 0) {
        /* on a slow machine the thread comes behind the copy, and is refused */
        CHECK_EQ(detached, RKV_STATUS_INVALID_STATE);
        memcpy(job.host, e.kv[job.page], BYTES);
        CHECK_OK(rkv_cache_complete(e.f.cache, &job.job, 1, true));
    } else {
        CHECK_EQ(detached, RKV_STATUS_OK);
    }
    end_engine(&e);
}

/* T13: what others computed while the store was asked comes too, and is among what was wanted. */
static void t13_what_others_computed_was_wanted(void) {
    static shared_store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    store.owner = pthread_self();
    store.count = store.removed = 0;
    rkv_remote_store remote = remote_of(&store);
    rkv_tier_config config = tier_config();
    config.remote = &remote;
    config.remote_timeout_ms = MINUTE;
    uint32_t ids[33];
    count_up(ids, 33, 1);
    engine e = {.f = journal_fixture()};
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    pthread_mutex_lock(&store.lock);
    rkv_sequence_info first = begin(&e.f, text(ids, 33));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e.f.cache, first.sequence, UINT64_MAX, 0, &fetch));
    CHECK(fetch.is_open && fetch.position_count == 0);
    rkv_sequence_info second = begin(&e.f, text(ids, 33));
    compute(&e, &second, ids);
    release(&e.f, second.sequence);
    until_stored(&e, 8, 0);
    pthread_mutex_unlock(&store.lock);
    rkv_fetch_end end = until_fetched(&e);
    CHECK_EQ(end.position_count, 32);
    CHECK_EQ(end.brought_page_count, 8);
    CHECK_EQ(end.wanted_page_count, 8);
    release(&e.f, first.sequence);
    end_engine(&e);
}

/* A store whose first call waits for the tiers that it belongs to. */
typedef struct waiting_store {
    rkv_cache *cache;
    rkv_status (*wait)(rkv_cache *cache, uint64_t timeout_ms);
    rkv_status status;
    bool has_called;
} waiting_store;

static void wait_for_itself(void *user_data, rkv_remote_item *items, size_t item_size,
                            size_t count, uint64_t timeout_ms) {
    (void)items, (void)item_size, (void)count, (void)timeout_ms;
    waiting_store *store = user_data;
    if (!__atomic_load_n(&store->has_called, __ATOMIC_ACQUIRE)) {
        store->status = store->wait(store->cache, 10);
        __atomic_store_n(&store->has_called, true, __ATOMIC_RELEASE);
    }
}

static void is_refused(rkv_status (*wait)(rkv_cache *cache, uint64_t timeout_ms)) {
    engine e = {.f = journal_fixture()};
    waiting_store store = {e.f.cache, wait, RKV_STATUS_OK, false};
    rkv_remote_store remote = {.struct_size = sizeof remote, .user_data = &store};
    remote.has = remote.get = remote.put = wait_for_itself;
    rkv_tier_config config = tier_config();
    config.remote = &remote;
    config.worker_count = 1;
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_sequence_info state = begin(&e.f, text(ids, 33));
    compute(&e, &state, ids);
    release(&e.f, state.sequence);
    for (int i = 0; i < MINUTE && !__atomic_load_n(&store.has_called, __ATOMIC_ACQUIRE); i++) {
        step(&e);
        pause_a_little();
    }
    CHECK_EQ(store.status, RKV_STATUS_INVALID_STATE);
    CHECK_OK(rkv_cache_check(e.f.cache));
    until_stored(&e, 8, 0);
    end_engine(&e);
}

/* T13: who is called by the tiers can't end them: he would wait for himself. */
static void t13_a_store_does_not_detach_itself(void) {
    is_refused(rkv_cache_detach_tiers);
}

/* T13: nor can he wait for what he is to write. */
static void t13_a_store_does_not_flush_itself(void) {
    is_refused(rkv_cache_flush_tiers);
}

int main(void) {
    RUN_BOTH(t13_remote);
    RUN_BOTH(t13_what_others_computed_was_wanted);
    RUN(t13_a_store_does_not_detach_itself);
    RUN(t13_a_store_does_not_flush_itself);
    RUN(m06_detach_while_another_thread_polls);
    RUN(m01_remote);
    return check_result();
}
