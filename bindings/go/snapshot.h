/*
 * Snapshots of Go: what the library gets is a small piece of the C heap that names a Go value.
 *
 * The library calls a snapshot's destructor at the end of whichever call let it go, on that call's
 * thread. Going up into Go from there would cost four times the call, and the Go side would hold
 * its own lock. So the destructor only puts the piece in a list, which the helper of the call takes
 * along: Go frees the values when nothing is held any more.
 *
 * What may be written below memory can also be let go by a thread of the library. Such pieces go
 * to a shelf of the cache, from which the next call takes them.
 */
#ifndef RADIXKV_GO_SNAPSHOT_H
#define RADIXKV_GO_SNAPSHOT_H

#include "call.h"

typedef struct rkvgo_snapshot {
    uintptr_t handle; /* a cgo.Handle */
    struct rkvgo_snapshot *next;
} rkvgo_snapshot;

/* NULL when there is no memory. */
rkvgo_snapshot *rkvgo_snapshot_new(uintptr_t handle);
void rkvgo_snapshot_free(rkvgo_snapshot *snapshot);

/* Pieces that any thread let go. It outlives all that are out. */
typedef struct rkvgo_shelf rkvgo_shelf;

/* NULL when there is no memory. */
rkvgo_shelf *rkvgo_shelf_new(void);
void rkvgo_shelf_free(rkvgo_shelf *shelf);

/* What match and take bring. */
typedef struct rkvgo_snapshot_found {
    rkvgo_failure *failure;
    rkvgo_snapshot *freed;
    rkv_snapshot_cache_match_result match;
    uintptr_t handle; /* of the value of a pin that is no copy */
    bool pending;
} rkvgo_snapshot_found;

/* The handle, out of data. That is nothing for Go: of a copy it may be no address, see call.h. */
static inline void rkvgo_snapshot_name(rkvgo_snapshot_found *made) {
    if (made->match.pin != 0 && !made->match.is_copy) {
        made->handle = ((rkvgo_snapshot *)made->match.data)->handle;
    }
    made->match.data = NULL;
}

/* The destructors of snapshots of Go: in memory alone, and of those that may be written, whose
 * user_data is the shelf. */
void rkvgo_snapshot_destroy(void *data, uint64_t size_bytes, void *user_data);
void rkvgo_snapshot_shelve(void *data, uint64_t size_bytes, void *shelf);

/* What was destroyed on this thread since the last time, and what lies on the shelf. */
rkvgo_snapshot *rkvgo_snapshots_take(rkvgo_shelf *shelf);

#endif
