/*
 * Snapshots of Go: what the library gets is a small piece of the C heap that names a Go value.
 *
 * The library calls a snapshot's destructor at the end of whichever call let it go, on that call's
 * thread. Going up into Go from there would cost four times the call, and the Go side would hold
 * its own lock. So the destructor only puts the piece in a list, which the helper of the call takes
 * along: Go frees the values when nothing is held any more.
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

/* The destructor of every snapshot of Go. */
void rkvgo_snapshot_destroy(void *data, uint64_t size_bytes, void *user_data);

/* What was destroyed on this thread since the last time. */
rkvgo_snapshot *rkvgo_snapshots_take(void);

#endif
