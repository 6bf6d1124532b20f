/* A store that caches share, in this process's memory, for the programs that test remote stores. */
#ifndef TESTS_SHARED_STORE_H
#define TESTS_SHARED_STORE_H

#include "check.h"

#include <pthread.h>
#include <time.h>

/* A store that caches share. */
typedef struct shared_store {
    pthread_mutex_t lock;
    struct {
        uint8_t key[32], value[2048];
        size_t size;
    } places[64];
    size_t count, removed;
    pthread_t owner;
    bool is_dead, is_slow;
} shared_store;

static void each_item(void *user_data, rkv_remote_item *items, size_t item_size, size_t count,
                      uint64_t timeout_ms, char what) {
    shared_store *store = user_data;
    CHECK(!pthread_equal(pthread_self(), store->owner) && timeout_ms > 0);
    pthread_mutex_lock(&store->lock);
    bool is_slow = store->is_slow;
    for (size_t i = 0; i < count && !store->is_dead && !is_slow; i++) {
        rkv_remote_item *item = (rkv_remote_item *)((char *)items + i * item_size);
        CHECK_EQ(item->answer, RKV_REMOTE_FAILED);
        CHECK((item->bytes != NULL) == (what == 'g' || what == 'p'));
        size_t at = 0;
        while (at < store->count && memcmp(store->places[at].key, item->key, 32) != 0) {
            at++;
        }
        item->answer = RKV_REMOTE_DONE;
        if (what == 'p') {
            CHECK(at < 64 && item->byte_count <= 2048);
            store->count += at == store->count;
            memcpy(store->places[at].key, item->key, 32);
            memcpy(store->places[at].value, item->bytes, item->byte_count);
            store->places[at].size = item->byte_count;
        } else if (at == store->count) {
            item->answer = RKV_REMOTE_MISSING;
        } else if (what == 'g') {
            size_t size = store->places[at].size;
            memcpy(item->bytes, store->places[at].value,
                   size < item->byte_count ? size : item->byte_count);
            item->byte_count = size;
        } else if (what == 'r') {
            memset(store->places[at].key, 0, 32);
            store->removed++;
        }
    }
    pthread_mutex_unlock(&store->lock);
    const struct timespec time = {0, is_slow ? 100000000 : 0};
    nanosleep(&time, NULL);
}

#define STORE_CALL(name, what)                                                                    \
    static void name(void *user_data, rkv_remote_item *items, size_t item_size, size_t count,     \
                     uint64_t timeout_ms) {                                                       \
        each_item(user_data, items, item_size, count, timeout_ms, what);                          \
    }
STORE_CALL(store_has, 'h')
STORE_CALL(store_get, 'g')
STORE_CALL(store_put, 'p')
STORE_CALL(store_remove, 'r')

static rkv_remote_store remote_of(shared_store *store) {
    rkv_remote_store remote = {.struct_size = sizeof remote, .user_data = store};
    remote.has = store_has, remote.get = store_get;
    remote.put = store_put, remote.remove = store_remove;
    return remote;
}

#endif
