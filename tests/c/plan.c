/* J04: plans and their arrays need no runner, and any number of runners computes one. */
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
    rkv_batch_row batch[ROWS_MOST];
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
            const rkv_sequence_state state = query(f, rows[i].sequence);
            batch[i].slot = state.slot;
            if (state.copy_position_count > 0) {
                CHECK_EQ(arrays.copy_sequence[copies], state.sequence);
                CHECK_EQ(arrays.copy_group[copies], 0);
                CHECK_EQ(arrays.copy_source_page[copies], state.copy_source_page);
                CHECK_EQ(arrays.copy_target_page[copies], state.copy_target_page);
                CHECK_EQ(arrays.copy_position_count[copies], state.copy_position_count);
                copies++;
            }
        }
        for (size_t j = 0; j < new_count; j++) {
            positions[j] = rows[i].start + j;
        }
        CHECK_OK(rkv_page_table_slot_mapping(f->table, batch[i].slot, positions, new_count,
                                             mapping));
        CHECK(memcmp(mapping, arrays.slot_mapping + at, new_count * sizeof *mapping) == 0);
        at += new_count;
        CHECK_EQ(arrays.query_indptr[i + 1], at);
    }
    CHECK_EQ(arrays.position_count, at);
    CHECK_EQ(arrays.copy_count, copies);
    rkv_batch_arrays into;
    memset(&into, 0, sizeof into);
    into.struct_size = sizeof into;
    into.indptr = indptr;
    into.indices = indices;
    into.indices_capacity = sizeof indices / sizeof indices[0];
    into.last_page_len = last;
    CHECK_OK(rkv_page_table_batch(f->table, batch, count, &into, &index_count));
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
                const rkv_sequence_state state = begin(&f, text(ids, length));
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
    const rkv_sequence_state a = begin(&f, text(prompt, 8));
    prompt[3] = 200;
    const rkv_sequence_state b = begin(&f, text(prompt, 8));
    const rkv_sequence_state c = begin(&f, text(prompt + 6, 2));
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
        confirm_copy(&f, arrays.copy_sequence[i]);
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
    count_up(prompt, 20, 1);
    const rkv_sequence_state a = begin(&f, text(prompt, 12)), b = begin(&f, text(prompt + 3, 9));
    rkv_plan_row rows[2] = {chunk_of(a.sequence, prompt, 4, 8).row,
                            chunk_of(b.sequence, prompt, 0, 9).row};
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_plan_check(plan));
    /* more tokens, and pages that are published before the new positions, change nothing */
    append(&f, a.sequence, 77);
    publish(&f, a.sequence, 4);
    CHECK_OK(rkv_plan_check(plan));
    publish(&f, a.sequence, 8);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("rows[0]") && message_names("cache"));
    rows[0].start = 8;
    rows[0].count = 5;
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_sequence_truncate(f.cache, a.sequence, 12));
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("rows[0]"));
    rows[0].count = 4;
    CHECK_OK(rkv_plan_set(plan, rows, 2, sizeof rows[0]));
    CHECK_OK(rkv_plan_check(plan));
    release(&f, b.sequence);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_STALE_SEQUENCE);
    /* also when another one has its slot */
    const rkv_sequence_state c = begin(&f, text(prompt + 5, 9));
    CHECK_EQ(c.slot, b.slot);
    CHECK_STATUS(rkv_plan_check(plan), RKV_STATUS_STALE_SEQUENCE);
    CHECK_EQ(view(plan).row_count, 2);
    CHECK_STATUS(rkv_plan_check(NULL), RKV_STATUS_INVALID_ARGUMENT);
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

/* ---- runners of other shapes ---- */

/* Shapes and inputs of some layers of a model. */
typedef struct part {
    rkv_runner *runner;
    uint32_t layer_count, query_heads, kv_heads, head_dim, window;
} part;

static part new_part(rkv_page_table *table, bool is_small) {
    part made = {NULL, LAYERS, QUERY_HEADS, KV_HEADS, HEAD_DIM, 0};
    if (is_small) {
        const part small = {NULL, 1, 3, 3, 128, 9};
        made = small;
    }
    rkv_runner_config config = small_runner();
    config.layer_count = made.layer_count;
    config.query_head_count = made.query_heads;
    config.kv_head_count = made.kv_heads;
    config.head_dim = made.head_dim;
    CHECK_OK(rkv_runner_create(table, &config, &made.runner));
    return made;
}

/* Numbers that depend on the row's tokens alone. */
static float *inputs(const chunk *c, uint32_t kind, uint32_t layer, size_t heads, size_t dim) {
    const size_t count = (size_t)c->row.count;
    float *made = floats(count * heads * dim);
    for (size_t at = 0; at < count * heads * dim; at++) {
        const size_t position = (size_t)c->row.start + at / (heads * dim);
        made[at] = element(kind, layer, c->ids[position], position, at / dim % heads, at % dim);
    }
    return made;
}

/* One layer of a step of one row; `out` has the results of all steps, one behind another. */
static rkv_status attend(const part *p, rkv_plan *plan, const chunk *c, uint32_t layer,
                         float **out) {
    const size_t size = (size_t)c->row.count * p->query_heads * p->head_dim;
    float *q = inputs(c, KIND_Q, layer, p->query_heads, p->head_dim);
    float *k = inputs(c, KIND_K, layer, p->kv_heads, p->head_dim);
    float *v = inputs(c, KIND_V, layer, p->kv_heads, p->head_dim);
    rkv_append_prefill_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.layer = layer;
    args.window = layer == 0 ? p->window : 0;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = *out;
    const rkv_status status = rkv_runner_append_prefill(p->runner, plan, &args);
    *out += size;
    free(q);
    free(k);
    free(v);
    return status;
}

enum { RESULTS = 200 * LAYERS * QUERY_HEADS * HEAD_DIM };

/* New positions of each step of serve_by(). */
static size_t step_sizes[32], step_count;

/* Three requests, of which two begin inside a page of the first, in chunks, and two steps that
 * decode; each step by all `count` parts. Returns what all layers gave. */
static float *serve_by(const part *parts, size_t count, const fixture *f, rkv_plan *plan) {
    static uint32_t ids[3][64];
    float *results = floats(RESULTS), *out = results;
    memset(results, 0, RESULTS * sizeof *results);
    step_count = 0;
    for (size_t r = 0; r < 3; r++) {
        count_up(ids[r], 64, 1);
        if (r > 0) {
            count_up(ids[r] + 21 * r, 64 - 21 * r, 1000 * (uint32_t)(r + 1));
        }
        rkv_sequence_state state = begin(f, text(ids[r], 40));
        CHECK(r == 0 || state.copy_position_count > 0 || state.cached_position_count == 32);
        for (size_t at = (size_t)state.cached_position_count, size = 13; at < 42; at += size) {
            size = at >= 40 ? 1 : 40 - at < 13 ? 40 - at : 13;
            if (at >= 40) {
                append(f, state.sequence, ids[r][at]);
            }
            const chunk next = chunk_of(state.sequence, ids[r], at, size);
            CHECK_OK(rkv_plan_set(plan, &next.row, 1, sizeof next.row));
            for (size_t i = 0; i + 1 < count; i++) {
                CHECK_OK(rkv_runner_prepare_plan(parts[i].runner, plan,
                                                 RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            }
            /* the layers of a model with two kinds take turns */
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                for (size_t i = 0; i < count; i++) {
                    if (layer < parts[i].layer_count) {
                        CHECK_OK(attend(&parts[i], plan, &next, layer, &out));
                    }
                }
            }
            CHECK_EQ(query(f, state.sequence).copy_position_count, 0);
            publish(f, state.sequence, at + size);
            step_sizes[step_count++] = size;
        }
        release(f, state.sequence);
    }
    CHECK(out <= results + RESULTS);
    return results;
}

static float *serve_alone(uint32_t page_size, bool is_small) {
    fixture f = new_fixture(page_size, 400 / page_size);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    const part alone = new_part(f.table, is_small);
    float *results = serve_by(&alone, 1, &f, plan);
    rkv_runner_destroy(alone.runner);
    rkv_plan_destroy(plan);
    end_fixture(&f);
    return results;
}

/* Whether the results of one part are among those of both, bit for bit: those of a step and layer
 * have `large` and, in layer 0, `small` numbers for each position. */
static bool is_part(const float *both, const float *alone, size_t large, size_t small,
                    bool is_small) {
    for (size_t s = 0; s < step_count; s++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            if (!is_small || layer == 0) {
                const float *at = both + (is_small ? large * step_sizes[s] : 0);
                const size_t size = step_sizes[s] * (is_small ? small : large);
                if (memcmp(at, alone, size * sizeof *at) != 0) {
                    return false;
                }
                alone += size;
            }
            both += step_sizes[s] * (large + (layer == 0 ? small : 0));
        }
    }
    return true;
}

static void j04_two_runners_compute_one_plan(void) {
    const uint32_t page_sizes[] = {4, 16};
    for (size_t p = 0; p < 2; p++) {
        fixture f = new_fixture(page_sizes[p], 400 / page_sizes[p]);
        rkv_plan *plan = NULL;
        CHECK_OK(rkv_plan_create(f.table, &plan));
        const part parts[2] = {new_part(f.table, false), new_part(f.table, true)};
        float *both = serve_by(parts, 2, &f, plan);
        float *alone[2] = {serve_alone(page_sizes[p], false), serve_alone(page_sizes[p], true)};
        CHECK(step_count >= 13);
        for (int is_small = 0; is_small < 2; is_small++) {
            CHECK(is_part(both, alone[is_small], QUERY_HEADS * HEAD_DIM, 3 * 128, is_small != 0));
            CHECK(alone[is_small][0] != 0);
            free(alone[is_small]);
        }
        free(both);
        rkv_plan_destroy(plan);
        rkv_runner_destroy(parts[0].runner);
        rkv_runner_destroy(parts[1].runner);
        end_fixture(&f);
    }
}

/* Whether the first positions of a page are in another one, in every layer of a runner. */
static bool is_copied(const part *p, const rkv_sequence_state *state) {
    for (uint32_t layer = 0; layer < p->layer_count; layer++) {
        rkv_kv_memory memory;
        CHECK_OK(rkv_runner_kv_memory(p->runner, layer, &memory));
        const size_t bytes = (size_t)(state->copy_position_count * memory.position_stride) *
                             sizeof(float);
        const float *from = (const float *)memory.v + state->copy_source_page * memory.page_stride;
        const float *to = (const float *)memory.v + state->copy_target_page * memory.page_stride;
        if (memcmp(from, to, bytes) != 0) {
            return false;
        }
    }
    return true;
}

/* What is confirmed before a runner has carried it out, that runner is told of. */
static void j04_copies_of_two_runners(void) {
    fixture f = new_fixture(16, 32);
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    const part a = new_part(f.table, false), b = new_part(f.table, true);
    const part both[2] = {a, b};
    free(serve_by(both, 2, &f, plan));
    uint32_t ids[40];
    count_up(ids, 40, 1);
    float *out = floats(RESULTS), *into = out;
    for (int how = 0; how < 4; how++) {
        count_up(ids + 21, 6, 2000);
        count_up(ids + 27, 13, 5000 + 100 * (uint32_t)how);
        const rkv_sequence_state state = begin(&f, text(ids, 40));
        CHECK(state.cached_position_count == 27 && state.copy_position_count == 11);
        const chunk rest = chunk_of(state.sequence, ids, 27, 13);
        CHECK_OK(rkv_plan_set(plan, &rest.row, 1, sizeof rest.row));
        CHECK_EQ(query(&f, state.sequence).copy_position_count, 11);
        into = out;
        if (how == 0) {
            /* the first call of a runner that nobody prepared confirms: too early for the other */
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK(is_copied(&a, &state) && !is_copied(&b, &state));
            CHECK_EQ(query(&f, state.sequence).copy_position_count, 0);
            CHECK_STATUS(attend(&b, plan, &rest, 0, &into), RKV_STATUS_INVALID_STATE);
            CHECK(message_names("RKV_PREPARE_KEEP_COPIES_OPEN"));
            CHECK_STATUS(rkv_runner_prepare_plan(b.runner, plan, 0, NULL),
                         RKV_STATUS_INVALID_STATE);
            CHECK_OK(attend(&a, plan, &rest, 1, &into));
        } else if (how == 1) {
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK(is_copied(&a, &state) && !is_copied(&b, &state));
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK_EQ(query(&f, state.sequence).copy_position_count, 11);
            CHECK_OK(attend(&b, plan, &rest, 0, &into));
            CHECK(is_copied(&b, &state));
        } else if (how == 2) {
            /* prepared both, the engine confirms */
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_EQ(query(&f, state.sequence).copy_position_count, 11);
            confirm_copy(&f, state.sequence);
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK_OK(attend(&b, plan, &rest, 0, &into));
        } else {
            /* a runner that was prepared confirms when it is prepared again without the flag */
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, 0, NULL));
            CHECK(is_copied(&a, &state) && is_copied(&b, &state));
        }
        CHECK_EQ(query(&f, state.sequence).copy_position_count, 0);
        release(&f, state.sequence);
    }
    free(out);
    rkv_runner_destroy(a.runner);
    rkv_runner_destroy(b.runner);
    rkv_plan_destroy(plan);
    end_fixture(&f);
}

/* Neither knows the other's end: a plan that a runner computed is computed by the next one. */
static void j04_runners_and_plans_end_in_any_order(void) {
    for (int order = 0; order < 24; order++) {
        fixture f = new_fixture(4, 64);
        rkv_plan *plans[2];
        rkv_runner *runners[2];
        uint32_t ids[16];
        float *out = floats(16 * 3 * 128), *into = out;
        count_up(ids, 16, 1);
        const rkv_sequence_state state = begin(&f, text(ids, 16));
        const chunk whole = chunk_of(state.sequence, ids, 0, 16);
        part parts[2] = {new_part(f.table, true), new_part(f.table, true)};
        for (size_t i = 0; i < 2; i++) {
            runners[i] = parts[i].runner;
            CHECK_OK(rkv_plan_create(f.table, &plans[i]));
            CHECK_OK(rkv_plan_set(plans[i], &whole.row, 1, sizeof whole.row));
        }
        bool is_gone[4] = {false, false, false, false};
        for (int left = 4, code = order; left > 0; code /= left--) {
            /* whatever is there still works together */
            for (size_t at = 0; at < 4; at++) {
                if (!is_gone[at % 2] && !is_gone[2 + at / 2]) {
                    into = out;
                    CHECK_OK(attend(&parts[at % 2], plans[at / 2], &whole, 0, &into));
                    CHECK(!isnan(out[0]));
                }
            }
            int which = code % left;
            size_t at = 0;
            while (is_gone[at] || which-- > 0) {
                at++;
            }
            is_gone[at] = true;
            if (at < 2) {
                rkv_runner_destroy(runners[at]);
            } else {
                rkv_plan_destroy(plans[at - 2]);
            }
            /* a new runner, for what the last one computed */
            if (at == 0 && !is_gone[2]) {
                const part next = new_part(f.table, true);
                into = out;
                CHECK_OK(attend(&next, plans[0], &whole, 0, &into));
                rkv_runner_destroy(next.runner);
            }
        }
        release(&f, state.sequence);
        free(out);
        end_fixture(&f);
    }
}

static void j04_a_plan_of_another_table(void) {
    runner_fixture r = new_runner(4, 16, 0), other = new_runner(4, 16, 0);
    count_up(prompt, 8, 1);
    const rkv_sequence_state state = begin(&other.f, text(prompt, 8));
    begin(&r.f, text(prompt, 8)); /* a row of the same number */
    const chunk whole = chunk_of(state.sequence, prompt, 0, 8);
    set_plan(&other, &whole, 1);
    tensors t = new_tensors(&whole, 1, 0);
    const rkv_append_prefill_args args = layer_args(&t, 0);
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

int main(void) {
    RUN(j04_arrays_of_random_rows);
    RUN(j04_copies_are_among_the_arrays);
    RUN(j04_stale_rows);
    RUN(j04_two_runners_compute_one_plan);
    RUN(j04_copies_of_two_runners);
    RUN(j04_runners_and_plans_end_in_any_order);
    RUN(j04_a_plan_of_another_table);
    return check_result();
}
