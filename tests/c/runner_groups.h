/* A model with full attention, a sliding window and a state, each a group: a runner for each of the
 * first two over one page table, in memory of the test's that is NaN wherever nothing was written,
 * and the state as a number that the test computes. */
#ifndef RKV_TESTS_RUNNER_GROUPS_H
#define RKV_TESTS_RUNNER_GROUPS_H

#include <math.h>

#include "hybrid.h"

enum { HEADS = 4, KV_HEADS = 2, K_DIM = 64, LONGEST = MOST * PAGE };

/* The layers of one group: one layer, with V of its own size. */
typedef struct part {
    rkv_runner *runner;
    uint32_t group, window, v_dim;
    float *memory;
} part;

typedef struct engine {
    fixture f;
    rkv_plan *plan;
    part parts[2];
    /* Of each page of the STATE pool: what it has seen. */
    double states[16];
} engine;

static inline float *nans(size_t count) {
    float *made = malloc(count * sizeof *made);
    if (made == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        made[i] = (float)NAN;
    }
    return made;
}

static inline rkv_runner_config config_of(uint32_t group, uint32_t v_dim) {
    rkv_runner_config config;
    CHECK_OK(rkv_runner_config_init(&config, sizeof config));
    config.layer_count = 1;
    config.query_head_count = HEADS;
    config.kv_head_count = KV_HEADS;
    config.head_dim = K_DIM;
    config.v_head_dim = v_dim;
    config.group = group;
    config.thread_count = 2;
    return config;
}

/* Over memory of the test's, dense, for each page of the group's pool, all NaN. */
static inline part new_part(const fixture *f, uint32_t group, uint32_t window, uint32_t v_dim) {
    part made = {NULL, group, window, v_dim, NULL};
    const size_t pages = (size_t)pool_of(f, group).total_page_count + 1;
    const size_t k_page = PAGE * KV_HEADS * K_DIM, v_page = PAGE * KV_HEADS * v_dim;
    made.memory = nans(pages * (k_page + v_page));
    const rkv_runner_kv_memory layer = {made.memory,
                                        made.memory + pages * k_page,
                                        k_page,
                                        KV_HEADS * K_DIM,
                                        K_DIM,
                                        v_page,
                                        KV_HEADS * v_dim,
                                        v_dim};
    rkv_runner_config config = config_of(group, v_dim);
    config.kv_layers = &layer;
    config.kv_layer_size = sizeof layer;
    CHECK_OK(rkv_runner_create(f->table, &config, &made.runner));
    return made;
}

static inline engine new_engine(uint32_t pages, uint32_t window_pages) {
    engine e;
    memset(&e, 0, sizeof e);
    e.f = new_hybrid(pages, window_pages, 12);
    CHECK_OK(rkv_plan_create(e.f.table, &e.plan));
    e.parts[0] = new_part(&e.f, SPINE, 0, K_DIM);
    e.parts[1] = new_part(&e.f, WINDOW, WINDOW_SIZE, 96);
    return e;
}

static inline void end_engine(engine *e) {
    rkv_plan_destroy(e->plan);
    for (size_t i = 0; i < 2; i++) {
        rkv_runner_destroy(e->parts[i].runner);
        free(e->parts[i].memory);
    }
    end_hybrid(&e->f);
}

/* An element of q, k or v of a layer; of `kind` 0, 1 and 2. */
static inline float number(const part *p, uint32_t kind, uint32_t token, size_t position,
                           size_t head, size_t d) {
    uint64_t x = kind + 3u * (p->group + 2u * (uint64_t)token);
    x = ((x * 1009 + position) * 1009 + head) * 1009 + d;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

static inline float *project(const part *p, uint32_t kind, const uint32_t *ids, size_t start,
                      size_t count, size_t heads, size_t dim) {
    float *made = nans(count * heads * dim);
    for (size_t at = 0; at < count * heads * dim; at++) {
        const size_t position = start + at / (heads * dim);
        made[at] = number(p, kind, ids[position], position, at / dim % heads, at % dim);
    }
    return made;
}

/* One element of the result, from the tokens alone. */
static inline double naive(const part *p, const uint32_t *ids, size_t query, size_t head,
                           size_t d) {
    double total = 0, sum = 0;
    const size_t first = p->window == 0 || query < p->window ? 0 : query + 1 - p->window;
    for (size_t key = first; key <= query; key++) {
        double dot = 0;
        for (size_t i = 0; i < K_DIM; i++) {
            dot += (double)number(p, 0, ids[query], query, head, i) *
                   (double)number(p, 1, ids[key], key, head / 2, i);
        }
        const double weight = exp(dot / 8);
        total += weight;
        sum += weight * (double)number(p, 2, ids[key], key, head / 2, d);
    }
    return sum / total;
}

static inline rkv_status attend(const engine *e, const part *p, const uint32_t *ids, size_t start,
                         size_t count, uint32_t window, float *out) {
    float *q = project(p, 0, ids, start, count, HEADS, K_DIM);
    float *k = project(p, 1, ids, start, count, KV_HEADS, K_DIM);
    float *v = project(p, 2, ids, start, count, KV_HEADS, p->v_dim);
    rkv_runner_append_prefill_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    args.window = window;
    const rkv_status status = rkv_runner_append_prefill(p->runner, e->plan, &args);
    free(q);
    free(k);
    free(v);
    return status;
}

static inline void check_attention(const engine *e, const part *p, const uint32_t *ids,
                                   size_t start, size_t count) {
    float *out = nans(count * HEADS * p->v_dim);
    CHECK_OK(attend(e, p, ids, start, count, 0, out));
    for (size_t at = 0; at < count * HEADS; at++) {
        const size_t d = (start + 7 * at) % p->v_dim; /* some of each head */
        const double exact = naive(p, ids, start + at / HEADS, at % HEADS, d);
        CHECK(fabs((double)out[at * p->v_dim + d] - exact) < 1e-4);
    }
    free(out);
}

static inline void set_plan(const engine *e, rkv_sequence_id id, size_t start, size_t count) {
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = id;
    row.start = start;
    row.count = count;
    CHECK_OK(rkv_plan_set(e->plan, &row, 1, sizeof row));
}

static inline rkv_plan_arrays arrays_of(const engine *e) {
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(e->plan, &arrays));
    return arrays;
}

static inline rkv_plan_group_arrays group_arrays(const engine *e, uint32_t group, uint32_t flags) {
    rkv_plan_group_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view_group(e->plan, group, flags, &arrays));
    return arrays;
}

/* The copies of states of the plan that was set. */
static inline void copy_states(engine *e) {
    const rkv_plan_arrays arrays = arrays_of(e);
    for (uint64_t i = 0; i < arrays.copy_count; i++) {
        if (arrays.copy_group[i] == STATE) {
            e->states[arrays.copy_target_page[i]] = e->states[arrays.copy_source_page[i]];
        }
    }
}

static inline void save_states(engine *e, rkv_sequence_id id) {
    rkv_page_copy copies[4];
    size_t count = 0;
    CHECK_OK(rkv_sequence_checkpoint(e->f.cache, id, &count));
    if (count == 0) {
        return;
    }
    CHECK_OK(rkv_sequence_read_copies(e->f.cache, id, copies, sizeof copies[0], 4, &count));
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(copies[i].group, STATE);
        e->states[copies[i].target_page] = e->states[copies[i].source_page];
    }
    CHECK_OK(rkv_sequence_confirm_copies(e->f.cache, id));
}

/* One step: copies, both kinds of layers, the state. */
static inline void step(engine *e, rkv_sequence_id id, const uint32_t *ids, size_t start,
                        size_t count) {
    set_plan(e, id, start, count);
    const bool has_copies = arrays_of(e).copy_count > 0;
    if (has_copies) {
        for (size_t i = 0; i < 2; i++) {
            CHECK_OK(rkv_runner_prepare_plan(e->parts[i].runner, e->plan,
                                             RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
        }
        copy_states(e);
        CHECK_OK(rkv_sequence_confirm_copies(e->f.cache, id));
    }
    for (size_t i = 0; i < 2; i++) {
        check_attention(e, &e->parts[i], ids, start, count);
    }
    const rkv_plan_group_arrays held = group_arrays(e, STATE, 0);
    CHECK(held.row_count == 1 && held.indptr[1] == 1 && held.indices[0] > 0);
    CHECK(held.slot_mapping == NULL && held.first_position == NULL);
    double *state = &e->states[held.indices[0]];
    *state = start == 0 ? 0 : *state;
    double expected = 0;
    for (size_t at = 0; at < start + count; at++) {
        *state = at >= start ? *state / 2 + ids[at] : *state;
        expected = expected / 2 + ids[at];
    }
    CHECK(*state == expected);
}

/* The positions that a request did not have to compute. */
static inline uint64_t chat(engine *e, const uint32_t *ids, size_t count, size_t chunk) {
    rkv_sequence_begin_args args;
    rkv_sequence_info info;
    memset(&args, 0, sizeof args);
    memset(&info, 0, sizeof info);
    args.struct_size = sizeof args;
    info.struct_size = sizeof info;
    const rkv_tokens tokens = text(ids, count);
    args.tokens = &tokens;
    args.allocate_position_count = chunk;
    CHECK_OK(rkv_sequence_begin(e->f.cache, &args, &info));
    const size_t reused = (size_t)info.cached_position_count;
    CHECK(reused % PAGE == 0 && reused < count);
    for (size_t at = reused, end; at < count; at = end) {
        end = at + chunk < count ? at + chunk : count;
        /* the ends of pages at which the next request may begin */
        const size_t last = (count - 1) / PAGE * PAGE;
        end = at < 20 && end > 20 ? 20 : at < last && end > last ? last : end;
        CHECK_OK(rkv_sequence_allocate(e->f.cache, info.sequence, end));
        step(e, info.sequence, ids, at, end - at);
        rkv_sequence_publish_result result;
        memset(&result, 0, sizeof result);
        result.struct_size = sizeof result;
        CHECK_OK(rkv_sequence_publish(e->f.cache, info.sequence, end, &result));
        if (end == 20 || end == last) {
            save_states(e, info.sequence);
        }
    }
    CHECK_OK(rkv_sequence_release(e->f.cache, info.sequence));
    return reused;
}

#endif
