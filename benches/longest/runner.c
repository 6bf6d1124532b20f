/*
 * A runner over a row of 131,072 positions. Attention is work in proportion to the positions, and
 * done while no lock is held.
 */
#include "longest.h"

#include <stdlib.h>

enum { HEAD_DIM = 64, SEED = 1303, REPEATS = 20, COPIES = 64, DRAFT = 64 };

/* One new position at the end of each row. */
static void steps(rkv_runner *runner, rkv_plan *plan, const rkv_plan_row *rows)
{
    uint16_t *q = allocate(HEAD_DIM, sizeof *q), *k = allocate(HEAD_DIM, sizeof *k);
    uint16_t *out = allocate(HEAD_DIM, sizeof *out);
    float lse[1];
    rkv_plan_arrays arrays = {.struct_size = sizeof arrays};
    rkv_runner_append_prefill_args args = {
        .struct_size = sizeof args, .q = q, .k = k, .v = k, .out = out, .lse = lse};
    const void *outs[] = {out, q};
    const float *lses[] = {lse, lse};
    rkv_runner_merge_states_args merge = {.struct_size = sizeof merge, .state_count = 2,
                                   .position_count = 1, .outs = outs, .lses = lses, .out = out};
    for (unsigned i = 0; i < REPEATS; i++) {
        TIME(rkv_plan_set, plan, rows, 1, sizeof *rows);
        TIME(rkv_plan_check, plan);
        TIME(rkv_runner_prepare_plan, runner, plan, 0, NULL);
        TIME(rkv_plan_view, plan, &arrays);
        TIME(rkv_runner_append_prefill, runner, plan, &args);
        TIME(rkv_runner_merge_states, runner, &merge);
    }
    free(q);
    free(k);
    free(out);
}

/*
 * A draft whose branches are a binary tree: after it, the positions of one branch are moved to its
 * beginning.
 */
static void branches(rkv_runner *runner, rkv_plan *plan, uint32_t slot, uint32_t length)
{
    uint64_t masks[DRAFT] = {0};
    const uint32_t branch[] = {0, 2, 6, 14, 30, 62};
    const rkv_kept_branch kept = {.position_count = sizeof branch / sizeof *branch,
                                  .positions = branch};
    for (unsigned i = 1; i < DRAFT; i++) {
        unsigned parent = (i - 1) / 2;
        masks[i] = masks[parent] | UINT64_C(1) << parent;
    }
    rkv_plan_row row = {
        .slot = slot, .start = length - DRAFT, .count = DRAFT, .tree_masks = masks};
    uint16_t *values = allocate(4 * DRAFT * HEAD_DIM, sizeof *values);
    rkv_runner_append_prefill_args args = {
        .struct_size = sizeof args, .q = values, .k = values + DRAFT * HEAD_DIM,
        .v = values + 2 * DRAFT * HEAD_DIM, .out = values + 3 * DRAFT * HEAD_DIM};
    CHECK(rkv_plan_set(plan, &row, 1, sizeof row));
    CHECK(rkv_runner_append_prefill(runner, plan, &args));
    for (unsigned i = 0; i < REPEATS; i++) {
        TIME(rkv_runner_keep_branches, runner, plan, &kept, 1, sizeof kept, NULL);
    }
    free(values);
}

/* As much as a poll of tiers gives at once, to host memory and back. */
static void tier_copies(rkv_runner *runner, const uint32_t *pages, uint64_t page_bytes)
{
    uint8_t *host = allocate(COPIES, (size_t)page_bytes);
    rkv_copy_job jobs[COPIES];
    for (uint32_t direction = RKV_COPY_LOAD; direction <= RKV_COPY_STORE; direction++) {
        for (unsigned i = 0; i < COPIES; i++) {
            jobs[i] = (rkv_copy_job){.job = i + 1, .host = host + i * page_bytes,
                                     .byte_count = page_bytes, .page = pages[i],
                                     .direction = direction};
        }
        for (unsigned i = 0; i < REPEATS; i++) {
            TIME(rkv_runner_copy_tier_pages, runner, jobs, COPIES, sizeof *jobs);
        }
    }
    free(host);
}

void world_runner(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions;
    rkv_page_table_config table_config;
    rkv_runner_config config;
    rkv_page_table *table;
    rkv_runner *runner;
    rkv_plan *plan;
    uint32_t slot, pages[2 * COPIES];
    (void)index;
    situation(page_size == 1 ? "a decode at 131,072 positions, page 1"
                             : "a decode at 131,072 positions, page 16");
    CHECK(rkv_page_table_config_init(&table_config, sizeof table_config));
    table_config.page_size = page_size;
    table_config.page_count = length / page_size + 2 * COPIES + 1;
    CHECK(rkv_page_table_create(&table_config, &table));
    CHECK(rkv_runner_config_init(&config, sizeof config));
    config.layer_count = 1;
    config.query_head_count = 1;
    config.kv_head_count = 1;
    config.head_dim = HEAD_DIM;
    config.dtype = config.kv_dtype = RKV_DTYPE_BF16;
    config.thread_count = 1;
    TIME(rkv_runner_create, table, &config, &runner);
    reader_of_pages(table);
    CHECK(rkv_page_table_allocate_slot(table, &slot));
    CHECK(rkv_page_table_reserve(table, slot, length));
    CHECK(rkv_page_table_allocate_pages(table, 2 * COPIES, pages));
    rkv_page_copy copies[COPIES];
    for (unsigned i = 0; i < COPIES; i++) {
        copies[i] = (rkv_page_copy){pages[2 * i], pages[2 * i + 1], page_size, 0};
    }
    for (unsigned i = 0; i < REPEATS; i++) {
        rkv_runner_kv_memory memory;
        rkv_runner_stats stats = {.struct_size = sizeof stats};
        TIME(rkv_runner_read_kv_memory, runner, 0, &memory, sizeof memory);
        TIME(rkv_runner_read_stats, runner, &stats);
        TIME(rkv_runner_copy_pages, runner, copies, COPIES, sizeof *copies);
    }
    rkv_runner_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_runner_read_stats(runner, &stats));
    tier_copies(runner, pages, stats.page_bytes);
    TIME(rkv_plan_create, table, &plan);
    rkv_plan_capacity capacity = {.struct_size = sizeof capacity, .row_count = 1,
                                  .position_count = 1, .page_count = length / page_size};
    TIME(rkv_plan_reserve, plan, &capacity);
    TIME(rkv_runner_reserve_plan, runner, plan);
    rkv_plan_row row = {.slot = slot, .start = length - 1, .count = 1};
    steps(runner, plan, &row);
    TIME_VOID(rkv_plan_destroy, plan);
    CHECK(rkv_plan_create(table, &plan));
    branches(runner, plan, slot, length);
    rkv_plan_destroy(plan);
    TIME_VOID(rkv_runner_destroy, runner);
    reader_stop();
    rkv_page_table_destroy(table);
}
