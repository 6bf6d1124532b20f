/* The runner: attention over cached and new positions is what full attention would be, however a
 * prompt reaches the pages. */
#include <float.h>
#include "misuse.h"
#include "radixkv_spatial.h"
#include "runner_fixture.h"

static uint32_t prompt[ROW_LIMIT];

/* Computes a whole prompt in chunks of a size, from what the cache has on; checks each result. */
/* Cuts between cached and new, at page sizes where they are inside a page or not. */
static void k20_append_prefill_equals_full_prefill(void) {
    const uint32_t page_sizes[] = {1, 3, 16};
    const size_t cuts[] = {0, 1, 14, 15, 16, 17, 31, 32, 33, 39, 40};
    for (size_t p = 0; p < 3; p++) {
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            size_t cut = cuts[c];
            runner_fixture r = new_runner(page_sizes[p], 128, 0);
            uint32_t other[40];
            count_up(prompt, 40, 1);
            memcpy(other, prompt, sizeof other);
            count_up(other + cut, 40 - cut, 500);
            release(&r.f, compute_prompt(&r, prompt, 40, 40).sequence);
            rkv_sequence_info state = compute_prompt(&r, other, 40, 40);
            size_t published = 40 / page_sizes[p] * page_sizes[p];
            size_t shared = cut < published ? cut : published;
            CHECK_EQ(state.cached_position_count, shared < 40 ? shared : 39);
            release(&r.f, state.sequence);
            end_runner(&r);
        }
    }
}

static void b07_chunks_of_any_size(void) {
    const size_t chunk_sizes[] = {1, 7, 64, 100};
    for (size_t i = 0; i < 4; i++) {
        runner_fixture r = new_runner(16, 64, 0);
        count_up(prompt, 100, 1);
        rkv_sequence_info state = compute_prompt(&r, prompt, 100, chunk_sizes[i]);
        CHECK_EQ(state.shared_page_count, 6);
        release(&r.f, state.sequence);
        end_runner(&r);
    }
}

/* A second request finds what the first one published before its last chunk. */
static void b07_second_request_in_the_middle(void) {
    runner_fixture r = new_runner(8, 64, 0);
    uint32_t other[64];
    count_up(prompt, 64, 1);
    memcpy(other, prompt, sizeof other);
    count_up(other + 32, 32, 700);
    rkv_sequence_info a = begin(&r.f, text(prompt, 64));
    chunk first = chunk_of(a.sequence, prompt, 0, 40);
    step(&r, &first, 1);
    publish(&r.f, a.sequence, 40);
    rkv_sequence_info b = begin(&r.f, text(other, 64));
    CHECK_EQ(b.cached_position_count, 32);
    chunk both[2] = {chunk_of(a.sequence, prompt, 40, 24), chunk_of(b.sequence, other, 32, 32)};
    step(&r, both, 2);
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* Prefill chunks and decodes in one batch; decoding is the same call. */
static void k20_mixed_batches(void) {
    runner_fixture r = new_runner(4, 128, 0);
    static uint32_t other[64];
    count_up(prompt, 64, 1);
    count_up(other, 64, 900);
    rkv_sequence_info a = compute_prompt(&r, prompt, 20, 20);
    rkv_sequence_info b = begin(&r.f, text(other, 33));
    for (size_t i = 0; i < 11; i++) {
        append(&r.f, a.sequence, prompt[20 + i]);
        chunk both[2] = {chunk_of(b.sequence, other, 3 * i, 3),
                         chunk_of(a.sequence, prompt, 20 + i, 1)};
        step(&r, both, 2);
        publish(&r.f, a.sequence, 21 + i);
        publish(&r.f, b.sequence, 3 * i + 3);
    }
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* Two sequences compute one prompt at once; the later one's pages are remapped, and it goes on. */
static void k16_duplicates_are_computed_twice_and_remapped(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 32, 1);
    rkv_sequence_info a = begin(&r.f, text(prompt, 32)), b = begin(&r.f, text(prompt, 32));
    for (size_t at = 0; at < 32; at += 8) {
        chunk both[2] = {chunk_of(a.sequence, prompt, at, 8), chunk_of(b.sequence, prompt, at, 8)};
        step(&r, both, 2);
        publish(&r.f, a.sequence, at + 8);
        CHECK_EQ(publish(&r.f, b.sequence, at + 8).remapped_page_count, 2);
    }
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* A step carries out the copy that begin names, and confirms it; here, before it computes. */
static void b08_a_step_copies_part_of_a_page(void) {
    runner_fixture r = new_runner(16, 32, 0);
    uint32_t other[40];
    count_up(prompt, 40, 1);
    memcpy(other, prompt, sizeof other);
    count_up(other + 27, 13, 300);
    release(&r.f, compute_prompt(&r, prompt, 40, 40).sequence);
    rkv_sequence_info state = begin(&r.f, text(other, 40));
    const rkv_page_copy copy = copy_of(&r.f, state.sequence);
    CHECK(state.cached_position_count == 27 && copy.position_count == 11);
    chunk rest = chunk_of(state.sequence, other, 27, 13);
    set_plan(&r, &rest, 1);
    CHECK_EQ(copy_of(&r.f, state.sequence).position_count, 11);
    CHECK_OK(rkv_runner_prepare_plan(r.runner, r.plan, 0, NULL));
    CHECK_EQ(query(&r.f, state.sequence).copy_count, 0);
    rkv_runner_kv_memory layer;
    for (uint32_t i = 0; i < LAYERS; i++) {
        CHECK_OK(rkv_runner_read_kv_memory(r.runner, i, &layer, sizeof layer));
        const float *from = (const float *)layer.k + copy.source_page * layer.page_stride;
        const float *to = (const float *)layer.k + copy.target_page * layer.page_stride;
        CHECK(memcmp(from, to, 11 * layer.position_stride * sizeof *to) == 0);
        CHECK(isnan(to[11 * layer.position_stride]));
    }
    step(&r, &rest, 1);
    publish(&r.f, state.sequence, 40);
    /* the exact full hit: one position is recomputed, no shared page is written */
    rkv_sequence_info again = begin(&r.f, text(other, 32));
    CHECK_EQ(again.cached_position_count, 31);
    chunk last = chunk_of(again.sequence, other, 31, 1);
    step(&r, &last, 1);
    release(&r.f, state.sequence);
    release(&r.f, again.sequence);
    end_runner(&r);
}

/* Images attend to themselves in both directions, wherever the cut falls between them. */
static void k21_regions_or_causal(void) {
    const rkv_region regions[3] = {{5, 12}, {12, 20}, {30, 33}};
    const size_t cuts[] = {0, 3, 5, 12, 20, 26, 33, 39};
    for (size_t i = 0; i < 8; i++) {
        runner_fixture r = new_runner(4, 64, 0);
        count_up(prompt, 40, 1);
        rkv_sequence_info state = begin(&r.f, text(prompt, 40));
        chunk parts[2] = {chunk_of(state.sequence, prompt, 0, cuts[i]),
                          chunk_of(state.sequence, prompt, cuts[i], 40 - cuts[i])};
        for (size_t part = cuts[i] == 0; part < 2; part++) {
            parts[part].row.regions = regions;
            parts[part].row.region_count = 3;
            step(&r, &parts[part], 1);
        }
        release(&r.f, state.sequence);
        end_runner(&r);
    }
}

/* A draft that branches: each of its positions sees the context and its own path. */
static void k21_tree_masks(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 60, 1);
    rkv_sequence_info state = compute_prompt(&r, prompt, 21, 21);
    for (uint32_t i = 21; i < 31; i++) {
        append(&r.f, state.sequence, prompt[i]);
    }
    const uint64_t tree[10] = {0, 1, 1, 3, 5, 5, 0, 64, 192, 64};
    chunk draft = chunk_of(state.sequence, prompt, 21, 10);
    draft.row.tree_masks = tree;
    step(&r, &draft, 1);
    const rkv_region region = {22, 24};
    uint64_t bad[10] = {0, 1, 1 << 2 | 1 << 5};
    rkv_plan_row rows[3] = {draft.row, draft.row, draft.row};
    rows[0].tree_masks = bad;
    rows[1].tree_masks = (const uint64_t *)(const void *)((const char *)tree + 1);
    rows[2].regions = &region;
    rows[2].region_count = 1;
    for (size_t i = 0; i < 3; i++) {
        BAD(&r.f, rkv_plan_set(r.plan, &rows[i], 1, sizeof rows[i]), "tree_masks");
    }
    rkv_plan_capacity most;
    memset(&most, 0, sizeof most);
    most.struct_size = sizeof most;
    most.row_count = 1;
    most.position_count = 10;
    most.page_count = 8;
    BAD(&r.f, rkv_plan_reserve(r.plan, &most), "tree_masks");
    most.flags = RKV_PLAN_TREES;
    CHECK_OK(rkv_plan_reserve(r.plan, &most));
    release(&r.f, state.sequence);
    end_runner(&r);
}

static void k20_sliding_window(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 60, 1);
    rkv_sequence_info state = compute_prompt(&r, prompt, 60, 60);
    const uint32_t windows[] = {1, 4, 13, 60, 1000};
    append(&r.f, state.sequence, prompt[60] = 7);
    chunk last = chunk_of(state.sequence, prompt, 60, 1);
    set_plan(&r, &last, 1);
    for (size_t i = 0; i < 5; i++) {
        tensors t = new_tensors(&last, 1, 0);
        rkv_runner_append_prefill_args args = layer_args(&t, 0);
        args.window = windows[i];
        CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
        check_tensors(&t, &last, 1, 0, windows[i]);
        free_tensors(&t);
    }
    release(&r.f, state.sequence);
    end_runner(&r);
}

/* Attention over a window and over what lies before it, merged, is attention over everything. */
static void k20_merged_states(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 32, 1);
    rkv_sequence_info state = compute_prompt(&r, prompt, 32, 32);
    append(&r.f, state.sequence, prompt[32] = 9);
    chunk last = chunk_of(state.sequence, prompt, 32, 1);
    set_plan(&r, &last, 1);
    tensors all = new_tensors(&last, 1, 0), near = new_tensors(&last, 1, 0);
    rkv_runner_append_prefill_args args = layer_args(&all, 0);
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    args = layer_args(&near, 0);
    args.window = 10;
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    /* the far part: what is left when the near part is taken out of the whole */
    float far_lse[QUERY_HEADS], far_out[QUERY_HEADS * HEAD_DIM];
    for (size_t head = 0; head < QUERY_HEADS; head++) {
        double whole = exp((double)all.lse[head]), part = exp((double)near.lse[head]);
        far_lse[head] = (float)log(whole - part);
        for (size_t d = 0; d < HEAD_DIM; d++) {
            size_t at = head * HEAD_DIM + d;
            far_out[at] = (float)(((double)all.out[at] * whole - (double)near.out[at] * part) /
                                  (whole - part));
        }
    }
    float empty_lse[QUERY_HEADS], nothing[QUERY_HEADS * HEAD_DIM];
    float merged[QUERY_HEADS * HEAD_DIM], merged_lse[QUERY_HEADS];
    for (size_t i = 0; i < QUERY_HEADS * HEAD_DIM; i++) {
        nothing[i] = (float)NAN;
        empty_lse[i / HEAD_DIM] = -(float)INFINITY;
    }
    const void *outs[3] = {nothing, near.out, far_out};
    const float *lses[3] = {empty_lse, near.lse, far_lse};
    rkv_runner_merge_states_args merge;
    memset(&merge, 0, sizeof merge);
    merge.struct_size = sizeof merge;
    merge.state_count = 3;
    merge.position_count = 1;
    merge.outs = outs;
    merge.lses = lses;
    merge.out = merged;
    merge.lse = merged_lse;
    CHECK_OK(rkv_runner_merge_states(r.runner, &merge));
    for (size_t i = 0; i < QUERY_HEADS * HEAD_DIM; i++) {
        CHECK(fabs((double)merged[i] - (double)all.out[i]) < 1e-4);
    }
    for (size_t head = 0; head < QUERY_HEADS; head++) {
        CHECK(fabs((double)merged_lse[head] - (double)all.lse[head]) < 1e-4);
    }
    free_tensors(&all);
    free_tensors(&near);
    release(&r.f, state.sequence);
    end_runner(&r);
}

/* K and V that are in the pages already: the same result without writing them again. */
static void k20_keys_that_are_there(void) {
    runner_fixture r = new_runner(4, 32, 0);
    count_up(prompt, 16, 1);
    rkv_sequence_info state = begin(&r.f, text(prompt, 16));
    chunk whole = chunk_of(state.sequence, prompt, 0, 16);
    step(&r, &whole, 1);
    tensors t = new_tensors(&whole, 1, 1);
    rkv_runner_append_prefill_args args = layer_args(&t, 1);
    args.k = args.v = NULL;
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    check_tensors(&t, &whole, 1, 1, 0);
    free_tensors(&t);
    release(&r.f, state.sequence);
    end_runner(&r);
}

/* A row of the page table that is no sequence's. */
static void k20_rows_without_a_cache(void) {
    rkv_page_table *table = new_table(8, 16, 2);
    rkv_runner_config config = small_runner();
    runner_fixture r;
    memset(&r, 0, sizeof r);
    CHECK_OK(rkv_runner_create(table, &config, &r.runner));
    CHECK_OK(rkv_plan_create(table, &r.plan));
    rkv_page_table_destroy(table);   /* the runner and the plan keep it alive */
    rkv_page_table *same = NULL;
    rkv_runner_destroy(r.runner);
    rkv_plan_destroy(r.plan);
    same = new_table(8, 16, 2);
    CHECK_OK(rkv_runner_create(same, &config, &r.runner));
    CHECK_OK(rkv_plan_create(same, &r.plan));
    uint32_t slot = 0;
    CHECK_OK(rkv_page_table_allocate_slot(same, &slot));
    CHECK_OK(rkv_page_table_reserve(same, slot, 20));
    count_up(prompt, 20, 1);
    chunk parts[2] = {chunk_of(0, prompt, 0, 13), chunk_of(0, prompt, 13, 7)};
    for (size_t i = 0; i < 2; i++) {
        parts[i].row.slot = slot;
        step(&r, &parts[i], 1);
    }
    rkv_plan_destroy(r.plan);
    rkv_runner_destroy(r.runner);
    rkv_page_table_destroy(same);
}

/* What an engine with its own kernels reads from a plan. */
static void k12_plan_arrays(void) {
    runner_fixture r = new_runner(4, 64, 0);
    count_up(prompt, 30, 1);
    static uint32_t other[10];
    count_up(other, 10, 100);
    rkv_sequence_info a = compute_prompt(&r, prompt, 30, 30), b = begin(&r.f, text(other, 10));
    append(&r.f, a.sequence, 77);
    rkv_plan_row rows[2];
    memset(rows, 0, sizeof rows);
    rows[0].sequence = a.sequence;
    rows[0].start = 30;
    rows[0].count = 1;
    rows[1].sequence = b.sequence;
    rows[1].count = 10;
    CHECK_OK(rkv_plan_set(r.plan, rows, 2, sizeof(rkv_plan_row)));
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(r.plan, &arrays));
    CHECK(arrays.row_count == 2 && arrays.position_count == 11);
    CHECK(arrays.query_indptr[0] == 0 && arrays.query_indptr[1] == 1);
    CHECK_EQ(arrays.query_indptr[2], 11);
    CHECK(arrays.indptr[0] == 0 && arrays.indptr[1] == 8 && arrays.indptr[2] == 11);
    CHECK(arrays.last_page_len[0] == 3 && arrays.last_page_len[1] == 2);
    uint32_t pages[16];
    CHECK_EQ(row_of(&r.f, a.slot, pages, 16), 8);
    CHECK(memcmp(pages, arrays.indices, 8 * sizeof *pages) == 0);
    CHECK_EQ(arrays.slot_mapping[0], pages[7] * 4 + 2);
    CHECK_EQ(row_of(&r.f, b.slot, pages, 16), 3);
    for (size_t i = 0; i < 10; i++) {
        CHECK_EQ(arrays.slot_mapping[1 + i], pages[i / 4] * 4 + i % 4);
    }
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* Pages that the engine moves itself. */
static void b08_pages_can_be_copied(void) {
    rkv_page_table *table = new_table(4, 8, 2);
    rkv_runner_config config = small_runner();
    rkv_runner *runner = NULL;
    CHECK_OK(rkv_runner_create(table, &config, &runner));
    uint32_t pages[2];
    CHECK_OK(rkv_page_table_allocate_pages(table, 2, pages));
    rkv_runner_kv_memory memory;
    size_t position = KV_HEADS * HEAD_DIM;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
        float *from = (float *)memory.v + pages[0] * memory.page_stride;
        for (size_t i = 0; i < 4 * position; i++) {
            from[i] = (float)(i + layer);
        }
    }
    rkv_page_copy copy = {pages[0], pages[1], 3, 0};
    CHECK_OK(rkv_runner_copy_pages(runner, &copy, 1, sizeof copy));
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_OK(rkv_runner_read_kv_memory(runner, layer, &memory, sizeof memory));
        const float *to = (const float *)memory.v + pages[1] * memory.page_stride;
        for (size_t i = 0; i < 4 * position; i++) {
            CHECK_EQ(to[i], i < 3 * position ? (float)(i + layer) : 0.0f);
        }
    }
    rkv_runner_destroy(runner);
    rkv_page_table_destroy(table);
}

static void k23_spatial_decode(void) {
    float logits[RKV_BIN_COUNT];
    for (uint32_t bin = 0; bin < RKV_BIN_COUNT; bin += 31) {
        for (size_t i = 0; i < RKV_BIN_COUNT; i++) {
            logits[i] = -(float)(i > bin ? i - bin : bin - i);
        }
        uint32_t got = 0;
        double value = 0, want = 0;
        CHECK_OK(rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, &got, &value));
        CHECK_OK(rkv_coord_value(bin, &want));
        CHECK(got == bin && memcmp(&value, &want, sizeof want) == 0);
        CHECK_OK(rkv_spatial_decode(RKV_TOKEN_SIZE, logits, RKV_BIN_COUNT, &got, &value));
        CHECK_OK(rkv_size_value(bin, &want));
        CHECK(got == bin && memcmp(&value, &want, sizeof want) == 0);
        CHECK_OK(rkv_spatial_decode(RKV_TOKEN_SIZE, logits, RKV_BIN_COUNT, &got, NULL));
    }
    memset(logits, 0, sizeof logits);
    uint32_t first = 9;
    CHECK_OK(rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, &first, NULL));
    CHECK_EQ(first, 0);
}

/* Threads that the engine lends: here, the calling one. */
static void one_by_one(void *user_data, size_t task_count, rkv_parallel_task run, void *task) {
    ++*(size_t *)user_data;
    for (size_t i = task_count; i-- > 0;) {
        run(task, i);
    }
}

/* A pool that is shutting down: of every other call one task is run, of the rest none. */
static void shut_down(void *user_data, size_t task_count, rkv_parallel_task run, void *task) {
    if (++*(size_t *)user_data % 2 == 0) {
        run(task, task_count - 1);
    }
}

static void compute_on(rkv_parallel_for pool) {
    size_t calls = 0;
    fixture f = new_fixture(4, 32);
    rkv_runner_config config = small_runner();
    config.parallel_for = pool;
    config.parallel_user_data = &calls;
    runner_fixture r = {f, NULL, NULL, NULL, 0};
    CHECK_OK(rkv_runner_create(f.table, &config, &r.runner));
    CHECK_OK(rkv_plan_create(f.table, &r.plan));
    count_up(prompt, 30, 1);
    rkv_sequence_info state = compute_prompt(&r, prompt, 30, 11);
    CHECK(calls > 0);
    release(&f, state.sequence);
    end_runner(&r);
}

static void k20_threads_of_the_engine(void) {
    compute_on(one_by_one);
    compute_on(shut_down);
}

static void k20_what_a_runner_has(void) {
    runner_fixture r = new_runner(4, 7, 0);
    rkv_runner_config config = small_runner();
    uint64_t page_bytes = 0;
    CHECK_OK(rkv_runner_supports(&config, 4, &page_bytes));
    CHECK_EQ(page_bytes, 2 * LAYERS * 4 * KV_HEADS * HEAD_DIM * sizeof(float));
    rkv_runner_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_runner_read_stats(r.runner, &stats));
    CHECK(stats.kv_bytes == 0 && stats.page_bytes == page_bytes && stats.thread_count == 2);
    rkv_runner *own = NULL;
    CHECK_OK(rkv_runner_create(r.f.table, &config, &own));
    CHECK_OK(rkv_runner_read_stats(own, &stats));
    CHECK_EQ(stats.kv_bytes, 8 * page_bytes);
    rkv_runner_destroy(own);
    end_runner(&r);
}

/* A soft cap far beyond all logits leaves them as they are. */
static void k20_a_soft_cap_beyond_all_logits(void) {
    const float caps[] = {1e10f, 1e30f, FLT_MAX};
    runner_fixture r = new_runner(4, 32, 0);
    count_up(prompt, 16, 1);
    rkv_sequence_info state = begin(&r.f, text(prompt, 16));
    chunk whole = chunk_of(state.sequence, prompt, 0, 16);
    set_plan(&r, &whole, 1);
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        tensors t = new_tensors(&whole, 1, 0);
        rkv_runner_append_prefill_args args = layer_args(&t, 0);
        args.soft_cap = caps[i];
        CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
        check_tensors(&t, &whole, 1, 0, 0);
        free_tensors(&t);
    }
    release(&r.f, state.sequence);
    end_runner(&r);
}

int main(void) {
    RUN(k20_append_prefill_equals_full_prefill);
    RUN(b07_chunks_of_any_size);
    RUN(b07_second_request_in_the_middle);
    RUN(k20_mixed_batches);
    RUN(k16_duplicates_are_computed_twice_and_remapped);
    RUN(b08_a_step_copies_part_of_a_page);
    RUN(k21_regions_or_causal);
    RUN(k21_tree_masks);
    RUN(k20_sliding_window);
    RUN(k20_a_soft_cap_beyond_all_logits);
    RUN(k20_merged_states);
    RUN(k20_keys_that_are_there);
    RUN(k20_rows_without_a_cache);
    RUN(k12_plan_arrays);
    RUN(b08_pages_can_be_copied);
    RUN(k23_spatial_decode);
    RUN(k20_threads_of_the_engine);
    RUN(k20_what_a_runner_has);
    return check_result();
}
