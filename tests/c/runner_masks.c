/* Rows that are not causal: computed as an encoder does, or a context whose queries are no
 * positions of it. */
#include "runner_fixture.h"
#include "misuse.h"

static uint32_t prompt[80], other[80];

static chunk masked(rkv_sequence_id sequence, const uint32_t *ids, size_t start, size_t count,
                    uint32_t mask) {
    chunk made = chunk_of(sequence, ids, start, count);
    made.row.mask = mask;
    return made;
}

/* New positions see those behind them, too; beside a causal row. */
static void k21_bidirectional_rows(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 80, 1);
    count_up(other, 80, 500);
    rkv_sequence_info a = begin(&r.f, text(prompt, 37)), b = begin(&r.f, text(other, 21));
    const chunk both[] = {masked(a.sequence, prompt, 0, 37, RKV_MASK_BIDIRECTIONAL),
                          masked(b.sequence, other, 0, 21, RKV_MASK_CAUSAL)};
    step(&r, both, 2);
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* Queries of a decoder over what an encoder left in the cache, twice, and nothing is written. */
static void k21_contexts(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 80, 1);
    count_up(other, 80, 500);
    rkv_sequence_info a = begin(&r.f, text(prompt, 37)), b = begin(&r.f, text(other, 21));
    chunk both[] = {masked(a.sequence, prompt, 0, 37, RKV_MASK_BIDIRECTIONAL),
                    masked(b.sequence, other, 0, 21, RKV_MASK_CAUSAL)};
    step(&r, both, 2);
    publish(&r.f, a.sequence, 37);
    float *before = floats(r.memory_count);
    memcpy(before, r.memory, r.memory_count * sizeof *before);
    /* all of it, and a part that ends inside of a page, by more queries than it has positions */
    both[0] = masked(a.sequence, prompt, 37, 5, RKV_MASK_CONTEXT);
    both[1] = masked(b.sequence, other, 10, 30, RKV_MASK_CONTEXT);
    step(&r, both, 2);
    CHECK(memcmp(before, r.memory, r.memory_count * sizeof *before) == 0);
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(r.plan, &arrays));
    CHECK(arrays.position_count == 35 && arrays.indptr[2] == 10 + 3);
    CHECK(arrays.last_page_len[0] == 1 && arrays.last_page_len[1] == 2);
    for (size_t i = 0; i < 35; i++) {
        CHECK_EQ(arrays.slot_mapping[i], -1);
    }
    /* a plan whose rows are gone is refused, as ever */
    release(&r.f, b.sequence);
    CHECK_EQ(rkv_plan_check(r.plan), RKV_STATUS_STALE_SEQUENCE);
    free(before);
    release(&r.f, a.sequence);
    end_runner(&r);
}

/* Two halves of a context, merged, are the whole: what a context-parallel prefill does. */
static void k21_parts_of_a_context_merge(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 80, 1);
    rkv_sequence_info a = begin(&r.f, text(prompt, 40));
    chunk whole = masked(a.sequence, prompt, 0, 40, RKV_MASK_CAUSAL);
    step(&r, &whole, 1);
    /* the last eight positions: their context, and what they see of themselves */
    chunk last = masked(a.sequence, prompt, 32, 8, RKV_MASK_CAUSAL);
    chunk context = masked(a.sequence, prompt, 32, 8, RKV_MASK_CONTEXT);
    tensors want = new_tensors(&last, 1, 1), got = new_tensors(&context, 1, 1);
    rkv_runner_append_prefill_args args = layer_args(&want, 1);
    set_plan(&r, &last, 1);
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    args = layer_args(&got, 1);
    set_plan(&r, &context, 1);
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    check_tensors(&got, &context, 1, 1, 0);
    size_t larger = 0;
    for (size_t i = 0; i < 8 * QUERY_HEADS; i++) {
        larger += want.lse[i] > got.lse[i];
    }
    CHECK_EQ(larger, 8 * QUERY_HEADS);
    free_tensors(&want);
    free_tensors(&got);
    release(&r.f, a.sequence);
    end_runner(&r);
}

static void k21_masks_that_are_none(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 80, 1);
    rkv_sequence_info a = begin(&r.f, text(prompt, 20));
    const rkv_region region = {2, 4};
    const uint64_t tree[4] = {0};
    const chunk good = masked(a.sequence, prompt, 0, 4, RKV_MASK_BIDIRECTIONAL);
    const char *words[] = {"mask 3", "reserved", "regions", "tree_masks", "start 0", "start 21"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        rkv_plan_row row = good.row;
        switch (i) {
        case 0: row.mask = 3; break;
        case 1: row.reserved = 1; break;
        case 2: row.regions = &region, row.region_count = 1; break;
        case 3: row.tree_masks = tree; break;
        case 4: row.mask = RKV_MASK_CONTEXT; break;
        default: row.mask = RKV_MASK_CONTEXT, row.start = 21; break;
        }
        BAD(&r.f, rkv_plan_set(r.plan, &row, 1, sizeof row), words[i]);
    }
    /* a window of a call's own */
    set_plan(&r, &good, 1);
    tensors t = new_tensors(&good, 1, 0);
    rkv_runner_append_prefill_args args = layer_args(&t, 0);
    args.window = 3;
    BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), "window");
    free_tensors(&t);
    /* what an encoder sees are regions to a graph */
    rkv_plan_capacity most;
    memset(&most, 0, sizeof most);
    most.struct_size = sizeof most;
    most.row_count = 1;
    most.position_count = 10;
    most.page_count = 8;
    BAD(&r.f, rkv_plan_reserve(r.plan, &most), "regions");
    most.flags = RKV_PLAN_REGIONS;
    CHECK_OK(rkv_plan_reserve(r.plan, &most));
    release(&r.f, a.sequence);
    end_runner(&r);
}

/* With a WINDOW group beside it no row may see everything. */
static void k21_windows_are_causal(void) {
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    rkv_group_config groups[2];
    memset(groups, 0, sizeof groups);
    groups[0].kind = RKV_GROUP_FULL;
    groups[1].kind = RKV_GROUP_WINDOW;
    groups[1].window = 8;
    config.page_size = 4;
    config.page_count = 32;
    config.slot_count = 4;
    config.row_capacity = 16;
    config.groups = groups;
    config.group_count = 2;
    config.group_size = sizeof groups[0];
    rkv_page_table *table = NULL;
    CHECK_OK(rkv_page_table_create(&config, &table));
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(table, &plan));
    rkv_plan_destroy(plan);
    rkv_page_table_release(table);
}

int main(void) {
    RUN(k21_bidirectional_rows);
    RUN(k21_contexts);
    RUN(k21_parts_of_a_context_merge);
    RUN(k21_masks_that_are_none);
    RUN(k21_windows_are_causal);
    return check_result();
}
