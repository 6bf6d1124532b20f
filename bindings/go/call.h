/*
 * What every C helper of this package shares.
 *
 * A helper takes flat arguments and builds the library's structs on the C stack: cgo forbids to
 * pass Go memory that holds Go pointers, which rkv_tokens or rkv_cache_insert_args in Go memory
 * would be. It returns its outputs by value: a pointer to an output would move that variable to
 * the Go heap.
 *
 * The library keeps the message of a failure per thread, and a goroutine may change its thread
 * between two calls. So a helper fetches it before it returns, as part of the same crossing.
 */
#ifndef RADIXKV_GO_CALL_H
#define RADIXKV_GO_CALL_H

#include <radixkv.h>

/* A failed call, on the C heap: rkvgo_failure_free() after copying it. NULL is a success. */
typedef struct rkvgo_failure {
    int32_t status;
    bool has_shortage;
    rkv_shortage shortage;
    const char *message;
} rkvgo_failure;

rkvgo_failure *rkvgo_failure_copy(rkv_status status);
void rkvgo_failure_free(rkvgo_failure *failure);
/* For a helper that finds no memory itself. */
rkvgo_failure *rkvgo_no_memory(void);

static inline rkvgo_failure *rkvgo_end(rkv_status status) {
    return status == RKV_STATUS_OK ? NULL : rkvgo_failure_copy(status);
}

/* Outputs of one number, which many calls have. */
typedef struct rkvgo_count {
    rkvgo_failure *failure;
    size_t count;
} rkvgo_count;

typedef struct rkvgo_bool {
    rkvgo_failure *failure;
    bool value;
} rkvgo_bool;

/* An array of the library's that has nothing lies at no address (4, 8, 16), and Go ends a program
 * that has one of those in a variable when a stack moves: Go gets NULL. */
static inline const void *rkvgo_array(const void *start, uint64_t count) {
    return count == 0 ? NULL : start;
}

static inline rkv_tokens rkvgo_tokens(const uint32_t *ids, size_t count,
                                      const rkv_token_item *items, size_t item_count) {
    return (rkv_tokens){
        .struct_size = sizeof(rkv_tokens),
        .ids = ids,
        .count = count,
        .items = items,
        .item_size = sizeof(rkv_token_item),
        .item_count = item_count,
    };
}

#endif
