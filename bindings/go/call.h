/*
 * What every C helper of this package shares.
 *
 * A helper takes flat arguments and builds the library's structs on the C stack: cgo forbids to
 * pass Go memory that holds Go pointers, which rkv_tokens or rkv_insert_args in Go memory would be.
 * It returns its outputs by value: a pointer to an output would move that variable to the Go heap.
 *
 * The library keeps the message of a failure per thread, and a goroutine may change its thread
 * between two calls. So a helper fetches it before it returns, as part of the same crossing.
 */
#ifndef RADIXKV_GO_CALL_H
#define RADIXKV_GO_CALL_H

#include <radixkv.h>

/* The words behind a failed call, on the C heap: rkvgo_failure_free() after copying them. */
typedef struct rkvgo_failure {
    const char *message;
    bool has_shortage;
    rkv_shortage shortage;
} rkvgo_failure;

/* How a call ended. failure is NULL after a success, and when there was no memory for the words. */
typedef struct rkvgo_outcome {
    int32_t status;
    rkvgo_failure *failure;
} rkvgo_outcome;

rkvgo_failure *rkvgo_failure_copy(rkv_status status);
void rkvgo_failure_free(rkvgo_failure *failure);

static inline rkvgo_outcome rkvgo_end(rkv_status status) {
    rkvgo_outcome outcome = {(int32_t)status, NULL};
    if (status != RKV_STATUS_OK) {
        outcome.failure = rkvgo_failure_copy(status);
    }
    return outcome;
}

/* Outputs of one number, which many calls have. */
typedef struct rkvgo_count {
    rkvgo_outcome outcome;
    size_t count;
} rkvgo_count;

typedef struct rkvgo_bool {
    rkvgo_outcome outcome;
    bool value;
} rkvgo_bool;

static inline rkv_tokens rkvgo_tokens(const uint32_t *ids, size_t count,
                                      const rkv_token_item *items, size_t item_count) {
    return (rkv_tokens){
        .struct_size = sizeof(rkv_tokens),
        .ids = ids,
        .count = count,
        .items = items,
        .item_count = item_count,
    };
}

#endif
