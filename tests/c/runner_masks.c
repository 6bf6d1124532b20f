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

/* Two parts of a context in rows of their own, merged, are the whole: as in a context-parallel
 * prefill. */
static void k21_parts_of_a_context_merge(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 80, 1);
    rkv_sequence_info a = begin(&r.f, text(prompt, 16)), b = begin(&r.f, text(prompt + 50, 24));
    const chunk of_a = masked(a.sequence, prompt, 0, 16, RKV_MASK_CAUSAL);
    step(&r, &of_a, 1);
    /* K and V of positions 16 to 40 into the second row, wherever that counts them */
    const chunk second = masked(b.sequence, prompt, 16, 24, RKV_MASK_CAUSAL);
    chunk there = second;
    there.row.start = 0;
    tensors t = new_tensors(&second, 1, 1);
    rkv_runner_append_prefill_args args = layer_args(&t, 1);
    set_plan(&r, &there, 1);
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    free_tensors(&t);
    /* eight queries behind them see both */
    tensors parts[2];
    const chunk queries = masked(a.sequence, prompt, 40, 8, RKV_MASK_CONTEXT);
    for (size_t i = 0; i < 2; i++) {
        chunk part = queries;
        part.row.sequence = i == 0 ? a.sequence : b.sequence;
        part.row.start = i == 0 ? 16 : 24;
        parts[i] = new_tensors(&queries, 1, 1);
        args = layer_args(&parts[i], 1);
        args.k = args.v = NULL;
        set_plan(&r, &part, 1);
        CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    }
    const void *outs[] = {parts[0].out, parts[1].out};
    const float *lses[] = {parts[0].lse, parts[1].lse};
    rkv_runner_merge_states_args merge;
    memset(&merge, 0, sizeof merge);
    merge.struct_size = sizeof merge;
    merge.state_count = 2;
    merge.position_count = 8;
    merge.outs = outs;
    merge.lses = lses;
    merge.out = parts[0].out;
    merge.lse = parts[0].lse;
    CHECK_OK(rkv_runner_merge_states(r.runner, &merge));
    check_tensors(&parts[0], &queries, 1, 1, 0);
    free_tensors(&parts[0]);
    free_tensors(&parts[1]);
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
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

int main(void) {
    RUN(k21_bidirectional_rows);
    RUN(k21_contexts);
    RUN(k21_parts_of_a_context_merge);
    RUN(k21_masks_that_are_none);
    return check_result();
}
