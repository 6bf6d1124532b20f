/* Replays a trace through radixkv: once with the prefix cache, once with a page table alone. */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include <stdint.h>
#include <time.h>

#include "progress.h"
#include "radixkv.h"
#include "trace.h"

typedef struct replay_options {
    uint32_t page_size;   /* positions per page */
    uint32_t page_count;  /* pages that can be used */
    uint32_t concurrency; /* sequences alive at once */
    uint32_t chunk;       /* tokens of a prompt that are computed and published at a time */
    int decode;           /* 0 leaves the outputs away */
} replay_options;

/* Time spent inside one kind of call. */
typedef struct replay_phase {
    uint64_t nanoseconds;
    uint64_t call_count;
} replay_phase;

typedef struct replay_result {
    uint64_t prompt_token_count;
    uint64_t hit_token_count;
    uint64_t evicted_page_count;
    uint64_t cached_position_count; /* at the end */
    uint64_t index_bytes;           /* at the end */
    uint64_t wait_count;            /* times a request had to wait for the end of an older one */
    uint64_t refused_count;         /* requests too long even for the whole pool */
    uint64_t cut_count;             /* outputs cut short for want of pages */
    uint64_t request_count;
    replay_phase begin, publish, append, release;
} replay_result;

/* Both end the program with a message when the library reports anything unexpected. */
void replay_with_cache(const trace *t, const replay_options *options, progress *bar,
                       replay_result *result);
void replay_page_table_alone(const trace *t, const replay_options *options, progress *bar,
                             replay_result *result);

/* For the two implementations. */
typedef struct live_request {
    uint64_t sequence;       /* rkv_sequence_id, or the slot for a page table alone */
    uint64_t position_count; /* positions whose KV is computed */
} live_request;

/* First in, first out; holds `concurrency` requests at most. */
typedef struct live_queue {
    live_request *entries;
    uint32_t capacity, first, count;
} live_queue;

live_queue live_queue_new(uint32_t capacity);
void live_queue_push(live_queue *queue, live_request entry);
live_request live_queue_pop(live_queue *queue);

/* Pages that a row needs for the longest request; not more than the pool has: that is refused. */
uint32_t row_page_limit(const trace *t, const replay_options *options);

/* Output tokens of a request that the pool can hold behind the prompt: fewer are counted as cut. */
uint32_t output_that_fits(const trace_request *request, const replay_options *options,
                          replay_result *result);

/* Whether a prompt fits the pool when it is alone; counts it as refused when it does not. */
int prompt_fits(const trace_request *request, const replay_options *options,
                replay_result *result);

/* Ends the program when `status` is not RKV_STATUS_OK. */
void must(rkv_status status, const char *call);

static inline uint64_t clock_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void phase_add(replay_phase *phase, uint64_t start, uint64_t call_count)
{
    phase->nanoseconds += clock_nanoseconds() - start;
    phase->call_count += call_count;
}

#endif
