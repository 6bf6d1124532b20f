#include "snapshot.h"

#include <stdlib.h>

static __thread rkvgo_snapshot *destroyed;

rkvgo_snapshot *rkvgo_snapshot_new(uintptr_t handle) {
    rkvgo_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot != NULL) {
        snapshot->handle = handle;
    }
    return snapshot;
}

void rkvgo_snapshot_free(rkvgo_snapshot *snapshot) { free(snapshot); }

void rkvgo_snapshot_destroy(void *data, uint64_t size_bytes, void *user_data) {
    rkvgo_snapshot *snapshot = data;
    (void)size_bytes;
    (void)user_data;
    snapshot->next = destroyed;
    destroyed = snapshot;
}

rkvgo_snapshot *rkvgo_snapshots_take(void) {
    /* The list has the last one first: turn it. */
    rkvgo_snapshot *list = destroyed, *turned = NULL;
    destroyed = NULL;
    while (list != NULL) {
        rkvgo_snapshot *next = list->next;
        list->next = turned;
        turned = list;
        list = next;
    }
    return turned;
}
