#include "snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>

struct rkvgo_shelf {
    _Atomic(rkvgo_snapshot *) last;
};

static __thread rkvgo_snapshot *destroyed;

rkvgo_snapshot *rkvgo_snapshot_new(uintptr_t handle) {
    rkvgo_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot != NULL) {
        snapshot->handle = handle;
    }
    return snapshot;
}

void rkvgo_snapshot_free(rkvgo_snapshot *snapshot) { free(snapshot); }

rkvgo_shelf *rkvgo_shelf_new(void) {
    rkvgo_shelf *shelf = malloc(sizeof *shelf);
    if (shelf != NULL) {
        atomic_init(&shelf->last, NULL);
    }
    return shelf;
}

void rkvgo_shelf_free(rkvgo_shelf *shelf) { free(shelf); }

void rkvgo_snapshot_destroy(void *data, uint64_t size_bytes, void *user_data) {
    rkvgo_snapshot *snapshot = data;
    (void)size_bytes;
    (void)user_data;
    snapshot->next = destroyed;
    destroyed = snapshot;
}

void rkvgo_snapshot_shelve(void *data, uint64_t size_bytes, void *user_data) {
    rkvgo_snapshot *snapshot = data;
    rkvgo_shelf *shelf = user_data;
    (void)size_bytes;
    snapshot->next = atomic_load_explicit(&shelf->last, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&shelf->last, &snapshot->next, snapshot,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

/* The list has the last one first: turns it, and puts it before another. */
static rkvgo_snapshot *turned_before(rkvgo_snapshot *list, rkvgo_snapshot *others) {
    rkvgo_snapshot *turned = NULL, *end = list;
    while (list != NULL) {
        rkvgo_snapshot *next = list->next;
        list->next = turned;
        turned = list;
        list = next;
    }
    if (end == NULL) {
        return others;
    }
    end->next = others;
    return turned;
}

rkvgo_snapshot *rkvgo_snapshots_take(rkvgo_shelf *shelf) {
    rkvgo_snapshot *shelved = NULL, *own = destroyed;
    destroyed = NULL;
    if (atomic_load_explicit(&shelf->last, memory_order_relaxed) != NULL) {
        shelved = atomic_exchange_explicit(&shelf->last, NULL, memory_order_acquire);
    }
    return turned_before(own, turned_before(shelved, NULL));
}
