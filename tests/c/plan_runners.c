/* J04: any number of runners over a page table, of whatever shapes, computes one plan. */
#include "runner_fixture.h"

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
    rkv_runner_append_prefill_args args;
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
        rkv_sequence_info state = begin(f, text(ids[r], 40));
        CHECK(r == 0 || state.copy_count > 0 || state.cached_position_count == 32);
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
            CHECK_EQ(query(f, state.sequence).copy_count, 0);
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
static bool is_copied(const part *p, const rkv_page_copy *copy) {
    for (uint32_t layer = 0; layer < p->layer_count; layer++) {
        rkv_runner_kv_memory memory;
        CHECK_OK(rkv_runner_read_kv_memory(p->runner, layer, &memory, sizeof memory));
        const size_t bytes = copy->position_count * memory.position_stride * sizeof(float);
        const float *from = (const float *)memory.v + copy->source_page * memory.page_stride;
        const float *to = (const float *)memory.v + copy->target_page * memory.page_stride;
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
        const rkv_sequence_info state = begin(&f, text(ids, 40));
        const rkv_page_copy copy = copy_of(&f, state.sequence);
        CHECK(state.cached_position_count == 27 && copy.position_count == 11);
        const chunk rest = chunk_of(state.sequence, ids, 27, 13);
        CHECK_OK(rkv_plan_set(plan, &rest.row, 1, sizeof rest.row));
        CHECK_EQ(copy_of(&f, state.sequence).position_count, 11);
        into = out;
        if (how == 0) {
            /* the first call of a runner that nobody prepared confirms: too early for the other */
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK(is_copied(&a, &copy) && !is_copied(&b, &copy));
            CHECK_EQ(query(&f, state.sequence).copy_count, 0);
            CHECK_STATUS(attend(&b, plan, &rest, 0, &into), RKV_STATUS_INVALID_STATE);
            CHECK(message_names("RKV_PREPARE_KEEP_COPIES_OPEN"));
            CHECK_STATUS(rkv_runner_prepare_plan(b.runner, plan, 0, NULL),
                         RKV_STATUS_INVALID_STATE);
            CHECK_OK(attend(&a, plan, &rest, 1, &into));
        } else if (how == 1) {
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK(is_copied(&a, &copy) && !is_copied(&b, &copy));
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK_EQ(copy_of(&f, state.sequence).position_count, 11);
            CHECK_OK(attend(&b, plan, &rest, 0, &into));
            CHECK(is_copied(&b, &copy));
        } else if (how == 2) {
            /* prepared both, the engine confirms */
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_EQ(copy_of(&f, state.sequence).position_count, 11);
            confirm_copies(&f, state.sequence);
            CHECK_OK(attend(&a, plan, &rest, 0, &into));
            CHECK_OK(attend(&b, plan, &rest, 0, &into));
        } else {
            /* a runner that was prepared confirms when it is prepared again without the flag */
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(a.runner, plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
            CHECK_OK(rkv_runner_prepare_plan(b.runner, plan, 0, NULL));
            CHECK(is_copied(&a, &copy) && is_copied(&b, &copy));
        }
        CHECK_EQ(query(&f, state.sequence).copy_count, 0);
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
        const rkv_sequence_info state = begin(&f, text(ids, 16));
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

int main(void) {
    RUN(j04_two_runners_compute_one_plan);
    RUN(j04_copies_of_two_runners);
    RUN(j04_runners_and_plans_end_in_any_order);
    return check_result();
}
