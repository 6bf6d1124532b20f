/*
 * Rows of the page table during decode: 64 sequences of about 1100 tokens each grow by a token per
 * step, and each step reads the arrays that attention kernels take.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 64, PROMPT_TOKENS = 1100, STEPS = 128, PAGES = 64, SEED = 707 };

struct rows {
    struct fixture fixture;
    struct prompts prompts;
    rkv_sequence_info states[SEQUENCES];
    rkv_page_table_batch_row batch[SEQUENCES];
    int32_t indptr[SEQUENCES + 1];
    int32_t last_page_len[SEQUENCES];
    int32_t *indices;
    size_t indices_capacity;
    uint64_t positions[BATCH];
    int64_t mapping[BATCH];
    uint32_t pages[PAGES];
    uint32_t token;
    uint64_t position_count;    /* of each sequence */
    rkv_sequence_append_item appends[SEQUENCES];
    rkv_sequence_publish_item publishes[SEQUENCES];
    rkv_status statuses[SEQUENCES];
};

static void append(void *context, size_t i)
{
    struct rows *rows = context;
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = &rows->token, .count = 1};
    CHECK(rkv_sequence_append(rows->fixture.cache, rows->states[i].sequence, &tokens));
}

/* A decode step: each sequence gets a token, and publishes what it has. */
static void step_singly(void *context, size_t i)
{
    struct rows *rows = context;
    (void)i;
    for (size_t at = 0; at < SEQUENCES; at++) {
        append(rows, at);
    }
    for (size_t at = 0; at < SEQUENCES; at++) {
        rkv_sequence_publish_result result = {.struct_size = sizeof result};
        CHECK(rkv_sequence_publish(rows->fixture.cache, rows->states[at].sequence,
                                   rows->position_count + 1, &result));
    }
}

static void step_at_once(void *context, size_t i)
{
    struct rows *rows = context;
    (void)i;
    for (size_t at = 0; at < SEQUENCES; at++) {
        rows->appends[at] = (rkv_sequence_append_item){
            .sequence = rows->states[at].sequence, .ids = &rows->token, .id_count = 1};
        rows->publishes[at] = (rkv_sequence_publish_item){
            rows->states[at].sequence, rows->position_count + 1};
    }
    CHECK(rkv_sequence_append_many(rows->fixture.cache, rows->appends, SEQUENCES,
                                   sizeof *rows->appends, rows->statuses));
    CHECK(rkv_sequence_publish_many(rows->fixture.cache, rows->publishes, SEQUENCES,
                                    sizeof *rows->publishes, NULL, 0, rows->statuses));
}

static void batch(void *context, size_t i)
{
    struct rows *rows = context;
    rkv_page_table_batch_arrays arrays = {
        .struct_size = sizeof arrays,
        .indptr = rows->indptr,
        .indices = rows->indices,
        .indices_capacity = rows->indices_capacity,
        .last_page_len = rows->last_page_len,
    };
    size_t index_count;
    (void)i;
    CHECK(rkv_page_table_read_batch(rows->fixture.table, rows->batch, SEQUENCES,
                                    sizeof *rows->batch, &arrays, &index_count));
}

static void slot_mapping(void *context, size_t i)
{
    struct rows *rows = context;
    CHECK(rkv_page_table_read_slot_mapping(rows->fixture.table, rows->states[i].slot,
                                           rows->positions,
                                      BATCH, rows->mapping));
}

static void allocate_and_free(void *context, size_t i)
{
    struct rows *rows = context;
    (void)i;
    CHECK(rkv_page_table_allocate_pages(rows->fixture.table, PAGES, rows->pages));
    CHECK(rkv_page_table_free_pages(rows->fixture.table, rows->pages, PAGES));
}

static void open(struct rows *rows, uint32_t page_size)
{
    fixture_open(&rows->fixture, page_size, SEQUENCES * (PROMPT_TOKENS + 3 * STEPS + 256) + 65536,
                 PROMPT_TOKENS);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t *ids = rows->prompts.ids[i];
        tokens_fill(SEED, i, ids, PROMPT_TOKENS);
        ids[0] = FRESH + i;
        rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = PROMPT_TOKENS};
        rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
        rows->states[i].struct_size = sizeof rows->states[i];
        CHECK(rkv_sequence_begin(rows->fixture.cache, &args, &rows->states[i]));
        rows->batch[i] = (rkv_page_table_batch_row){rows->states[i].slot, PROMPT_TOKENS};
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        rows->positions[i] = PROMPT_TOKENS - BATCH + i;
    }
}

enum operation { APPEND, STEP_SINGLY, STEP_AT_ONCE, ARRAYS, MAPPING, ALLOCATE, OPERATIONS };
static const char *const OPERATION[OPERATIONS] = {
    [APPEND] = "append one token",
    [STEP_SINGLY] = "step of 64, a call for each",
    [STEP_AT_ONCE] = "step of 64, a call for all",
    [ARRAYS] = "batch arrays, 64 rows of ~1100",
    [MAPPING] = "slot mapping, 64 positions",
    [ALLOCATE] = "allocate and free 64 pages",
};

static void run(struct rows *rows, struct meter *meters, uint32_t page_size, unsigned number,
                bool last)
{
    size_t steps = options.count ? STEPS / 8 : STEPS;
    for (int i = 0; i < OPERATIONS; i++) {
        meter_begin(&meters[i], run_timing(number));
    }
    open(rows, page_size);
    for (uint32_t step = 0; step < steps; step++) {
        rows->token = step;
        rows->position_count = PROMPT_TOKENS + 3 * step;
        meter_calls(&meters[APPEND], append, rows, SEQUENCES);
        rows->position_count++;
        meter_calls(&meters[STEP_SINGLY], step_singly, rows, 1);
        rows->position_count++;
        meter_calls(&meters[STEP_AT_ONCE], step_at_once, rows, 1);
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            rows->batch[i].position_count += 3;
        }
        meter_calls(&meters[ARRAYS], batch, rows, 1);
        meter_calls(&meters[MAPPING], slot_mapping, rows, SEQUENCES);
        meter_calls(&meters[ALLOCATE], allocate_and_free, rows, BATCH);
    }
    if (last) {
        fixture_verify(&rows->fixture);
    }
    fixture_close(&rows->fixture);
    for (int i = 0; i < OPERATIONS; i++) {
        meter_end(&meters[i]);
    }
}

void run_rows(uint32_t page_size)
{
    static struct rows rows;
    struct meter meters[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        meter_init(&meters[i], OPERATION[i]);
    }
    prompts_init(&rows.prompts, BATCH, PROMPT_TOKENS);
    rows.indices_capacity = (size_t)SEQUENCES * (PROMPT_TOKENS + 3 * STEPS);
    rows.indices = allocate(rows.indices_capacity, sizeof *rows.indices);
    unsigned runs = run_count(8);
    for (unsigned number = 0; number < runs; number++) {
        run(&rows, meters, page_size, number, number + 1 == runs);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_emit(&meters[i], "rows", page_size, -1, -1);
        meter_free(&meters[i]);
    }
    free(rows.indices);
    prompts_free(&rows.prompts);
}
