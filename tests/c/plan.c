/* J04: plans and their arrays need no runner. */
#include "runner_fixture.h"

static uint32_t prompt[ROW_LIMIT];

static uint32_t below(uint32_t *seed, uint32_t limit) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % limit;
}

static rkv_plan_arrays view(const rkv_plan *plan) {
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(plan, &arrays));
    return arrays;
}

/* ---- arrays ---- */

enum { ROWS_MOST = 8, PAGES_MOST = 64 };

/* The plan says of its rows what the page table says of them. */
static void check_arrays(const fixture *f, const rkv_plan *plan, const rkv_plan_row *rows,
                         size_t count) {
    const rkv_plan_arrays arrays = view(plan);
    rkv_page_table_batch_row batch[ROWS_MOST];
    int32_t indptr[ROWS_MOST + 1], indices[ROWS_MOST * PAGES_MOST], last[ROWS_MOST];
    size_t index_count = 0, at = 0, copies = 0;
    memset(batch, 0, sizeof batch);
    CHECK_EQ(arrays.row_count, count);
    CHECK_EQ(arrays.query_indptr[0], 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t positions[PAGES_MOST];
        int64_t mapping[PAGES_MOST];
        size_t new_count = (size_t)rows[i].count;
        batch[i].slot = rows[i].slot;
        batch[i].position_count = (uint32_t)(rows[i].start + rows[i].count);
        if (rows[i].sequence != 0) {
            const rkv_sequence_info state = query(f, rows[i].sequence);
            batch[i].slot = state.slot;
            if (state.copy_count > 0) {
                CHECK_EQ(arrays.copy_sequence[copies], state.sequence);
                CHECK_EQ(arrays.copy_group[copies], 0);
                const rkv_page_copy copy = copy_of(f, state.sequence);
                CHECK_EQ(arrays.copy_source_page[copies], copy.source_page);
                CHECK_EQ(arrays.copy_target_page[copies], copy.target_page);
                CHECK_EQ(arrays.copy_position_count[copies], copy.position_count);
                copies++;
            }
        }
        for (size_t j = 0; j < new_count; j++) {
            positions[j] = rows[i].start + j;
        }
        CHECK_OK(rkv_page_table_read_slot_mapping(f->table, batch[i].slot, positions, new_count,
                                             mapping));
        CHECK(memcmp(mapping, arrays.slot_mapping + at, new_count * sizeof *mapping) == 0);
        at += new_count;
        CHECK_EQ(arrays.query_indptr[i + 1], at);
    }
    CHECK_EQ(arrays.position_count, at);
    CHECK_EQ(arrays.copy_count, copies);
    rkv_page_table_batch_arrays into;
    memset(&into, 0, sizeof into);
    into.struct_size = sizeof into;
    into.indptr = indptr;
    into.indices = indices;
    into.indices_capacity = sizeof indices / sizeof indices[0];
    into.last_page_len = last;
    CHECK_OK(rkv_page_table_read_batch(f->table, batch, count, sizeof *batch, &into, &index_count));
    CHECK(memcmp(indptr, arrays.indptr, (count + 1) * sizeof *indptr) == 0);
    CHECK(memcmp(indices, arrays.indices, index_count * sizeof *indices) == 0);
    CHECK(count == 0 || memcmp(last, arrays.last_page_len, count * sizeof *last) == 0);
}

/* A row of random new positions of what it has pages for and the cache does not own. */
static rkv_plan_row random_row(uint32_t *seed, rkv_sequence_id sequence, uint32_t slot,
                               uint32_t first, uint32_t end) {
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = sequence;
    row.slot = slot;
    row.start = first + below(seed, end - first);
    row.count = 1 + below(seed, end - (uint32_t)row.start);
    return row;
}

static void j04_arrays_of_random_rows(void) {
    const uint32_t page_sizes[] = {1, 2, 5, 16};
    uint32_t seed = 1;
    for (size_t round = 0; round < 120; round++) {
        const uint32_t page_size = page_sizes[round % 4];
        fixture f = new_fixture(page_size, 600 / page_size);
        rkv_plan *plan = NULL;
        CHECK_OK(rkv_plan_create(f.table, &plan));
        check_arrays(&f, plan, NULL, 0);
        count_up(prompt, 60, 1);
        serve(&f, text(prompt, 50));
        rkv_plan_row rows[ROWS_MOST];
        const size_t count = 1 + below(&seed, 6);
        for (size_t i = 0; i < count; i++) {
            const uint32_t length = 1 + below(&seed, 50);
            if (below(&seed, 3) == 0) {
                uint32_t slot = 0;
                CHECK_OK(rkv_page_table_allocate_slot(f.table, &slot));
                CHECK_OK(rkv_page_table_reserve(f.table, slot, length));
                rows[i] = random_row(&seed, 0, slot, 0, length);
            } else {
                uint32_t ids[60], same = below(&seed, length + 1);
                memcpy(ids, prompt, sizeof ids);
                count_up(ids + same, length - same, 1000 * (uint32_t)(i + 1));
                const rkv_sequence_info state = begin(&f, text(ids, length));
                rows[i] = random_row(&seed, state.sequence, 0,
                                     (uint32_t)state.cached_position_count, length);
            }
        }
        if (below(&seed, 2) == 0) {
            const rkv_plan_capacity most = {sizeof most, 0, ROWS_MOST, 400, 60, 400};
            CHECK_OK(rkv_plan_reserve(plan, &most));
        }
        for (size_t given = count + 1; given-- > 0;) {
            CHECK_OK(rkv_plan_set(plan, rows, given, sizeof rows[0]));
            check_arrays(&f, plan, rows, given);
        }
        rkv_plan_destroy(plan);
        end_fixture(&f);
    }
}

/* An engine that copies by itself: the plan names the copies, and is good before and after. */
static void j04_copies_are_among_the_arrays(void) {
    fixture f = new_fixture(4, 32);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    count_up(prompt, 20, 1);
    serve(&f, text(prompt, 20));
    prompt[6] = 100;
    const rkv_sequence_info a = begin(&f, text(prompt, 8));
    prompt[3] = 200;
    const rkv_sequence_info b = begin(&f, text(prompt, 8));
    const rkv_sequence_info c = begin(&f, text(prompt + 6, 2));
    const chunk chunks[3] = {chunk_of(a.sequence, prompt, 6, 2), chunk_of(c.sequence, prompt, 0, 2),
                             chunk_of(b.sequence, prompt, 3, 5)};
    const rkv_plan_row rows[3] = {chunks[0].row, chunks[1].row, chunks[2].row};
    CHECK_OK(rkv_plan_set(plan, rows, 3, sizeof rows[0]));
    check_arrays(&f, plan, rows, 3);
    rkv_plan_arrays arrays = view(plan);
    CHECK_EQ(arrays.copy_count, 2);
    CHECK(arrays.copy_sequence[0] == a.sequence && arrays.copy_position_count[0] == 2);
    CHECK(arrays.copy_sequence[1] == b.sequence && arrays.copy_position_count[1] == 3);
    for (size_t i = 0; i < 2; i++) {
        confirm_copies(&f, arrays.copy_sequence[i]);
        CHECK_OK(rkv_plan_check(plan));
    }
    /* set anew there are none left */
    CHECK_OK(rkv_plan_set(plan, rows, 3, sizeof rows[0]));
    CHECK_EQ(view(plan).copy_count, 0);
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

/* ---- rows that change ---- */

static void j04_stale_rows(void) {
    fixture f = new_fixture(4, 32);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("never set"));
    CHECK_OK(rkv_plan_set(plan, NULL, 0, sizeof(rkv_plan_row)));
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("or with none"));
    count_up(prompt, 20, 1);
    const rkv_sequence_info a = begin(&f, text(prompt, 12)), b = begin(&f, text(prompt + 3, 9));
    rkv_plan_row rows[2] = {chunk_of(a.sequence, prompt, 4, 8).row,
                            chunk_of(b.sequence, prompt, 0, 9).row};
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_plan_check(plan));
    /* more tokens, and pages that are published before the new positions, change nothing */
    append(&f, a.sequence, 77);
    publish(&f, a.sequence, 4);
    CHECK_OK(rkv_plan_check(plan));
    publish(&f, a.sequence, 8);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("rows[0]") && message_names("cache"));
    rows[0].start = 8;
    rows[0].count = 5;
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_sequence_truncate(f.cache, a.sequence, 12));
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("rows[0]"));
    rows[0].count = 4;
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_plan_check(plan));
    release(&f, b.sequence);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_STALE_SEQUENCE);
    /* also when another one has its slot */
    const rkv_sequence_info c = begin(&f, text(prompt + 5, 9));
    CHECK_EQ(c.slot, b.slot);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_STALE_SEQUENCE);
    CHECK_EQ(view(plan).row_count, 2);
    CHECK_STATUS(rkv_plan_check(NULL), RKV_STATUS_INVALID_ARGUMENT);
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

static void j04_a_plan_of_another_table(void) {
    runner_fixture r = new_runner(4, 16, 0), other = new_runner(4, 16, 0);
    count_up(prompt, 8, 1);
    const rkv_sequence_info state = begin(&other.f, text(prompt, 8));
    begin(&r.f, text(prompt, 8)); /* a row of the same number */
    const chunk whole = chunk_of(state.sequence, prompt, 0, 8);
    set_plan(&other, &whole, 1);
    tensors t = new_tensors(&whole, 1, 0);
    const rkv_runner_append_prefill_args args = layer_args(&t, 0);
    CHECK_STATUS(rkv_runner_append_prefill(r.runner, other.plan, &args),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("plan") && message_names("page table"));
    CHECK_STATUS(rkv_runner_prepare_plan(r.runner, other.plan, 0, NULL),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_runner_reserve_plan(r.runner, other.plan), RKV_STATUS_INVALID_ARGUMENT);
    for (size_t i = 0; i < t.count * QUERY_HEADS * HEAD_DIM; i++) {
        CHECK(isnan(t.out[i]));
    }
    CHECK_OK(rkv_runner_append_prefill(other.runner, other.plan, &args));
    check_tensors(&t, &whole, 1, 0, 0);
    free_tensors(&t);
    end_runner(&r);
    end_runner(&other);
}

/* ---- rows that are wrong ---- */

/* A step has many rows: the message says which one it is, and which field. */
static void m01_the_row_is_named(void) {
    fixture f = new_fixture(4, 32);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    count_up(prompt, 20, 1);
    const rkv_sequence_info a = begin(&f, text(prompt, 12)), b = begin(&f, text(prompt + 3, 9));
    const rkv_plan_row good[2] = {chunk_of(a.sequence, prompt, 4, 8).row,
                                  chunk_of(b.sequence, prompt, 0, 9).row};
    const uint64_t masks[10] = {0};
    const char *fields[] = {"mask", "reserved", "regions", "tree_masks"};
    for (size_t wrong = 0; wrong < 4; wrong++) {
        rkv_plan_row rows[2] = {good[0], good[1]};
        switch (wrong) {
        case 0: rows[1].mask = 77; break;
        case 1: rows[1].reserved = 1; break;
        case 2: rows[1].region_count = 1; break; /* and regions is NULL */
        default: rows[1].tree_masks = (const uint64_t *)(const void *)((const char *)masks + 1);
        }
        CHECK_STATUS(rkv_plan_set(plan, rows, 2, sizeof rows[0]), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("rows[1]") && message_names(fields[wrong]));
    }
    CHECK_OK(rkv_plan_set(plan, good, 2, sizeof good[0]));
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

/* The tokens behind what was kept are others, as long as they may be. */
static void j04_a_row_that_was_truncated_and_grew_again(void) {
    fixture f = new_fixture(4, 32);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    count_up(prompt, 20, 1);
    const rkv_sequence_info a = begin(&f, text(prompt, 8));
    append(&f, a.sequence, 50);
    append(&f, a.sequence, 51);
    const rkv_plan_row draft = chunk_of(a.sequence, prompt, 8, 2).row;
    CHECK_OK(rkv_plan_set(plan, &draft, 1, sizeof draft));
    /* nothing is taken off */
    CHECK_OK(rkv_sequence_truncate(f.cache, a.sequence, 10));
    CHECK_OK(rkv_plan_check(plan));
    CHECK_OK(rkv_sequence_truncate(f.cache, a.sequence, 8));
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    append(&f, a.sequence, 60);
    append(&f, a.sequence, 61);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("rows[0]") && message_names("changed"));
    CHECK_OK(rkv_plan_set(plan, &draft, 1, sizeof draft));
    CHECK_OK(rkv_plan_check(plan));
    release(&f, a.sequence);
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

int main(void) {
    RUN(j04_arrays_of_random_rows);
    RUN(j04_copies_are_among_the_arrays);
    RUN(j04_stale_rows);
    RUN(j04_a_row_that_was_truncated_and_grew_again);
    RUN(j04_a_plan_of_another_table);
    RUN(m01_the_row_is_named);
    return check_result();
}
