/* A runner in f32 over a cache whose KV memory belongs to the test and is poisoned with NaN, a
 * model whose q, k and v are functions of token and position, and naive attention in doubles. */
#ifndef RKV_TESTS_RUNNER_FIXTURE_H
#define RKV_TESTS_RUNNER_FIXTURE_H

#include <math.h>

#include "fixture.h"

enum { LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, ROW_LIMIT = 512 };

typedef struct runner_fixture {
    fixture f;
    rkv_runner *runner;
    rkv_plan *plan;
    float *memory;
    size_t memory_count;
} runner_fixture;

static inline rkv_runner_config small_runner(void) {
    rkv_runner_config config;
    CHECK_OK(rkv_runner_config_init(&config, sizeof config));
    config.layer_count = LAYERS;
    config.query_head_count = QUERY_HEADS;
    config.kv_head_count = KV_HEADS;
    config.head_dim = HEAD_DIM;
    config.thread_count = 2;
    return config;
}

/* Dense NHD memory for every page, all of it NaN. */
static inline void lend_memory(runner_fixture *r, rkv_runner_kv_memory layers[LAYERS]) {
    size_t pages = (size_t)table_stats(&r->f).total_page_count + 1;
    size_t page = (size_t)r->f.page_size * KV_HEADS * HEAD_DIM;
    r->memory_count = 2 * LAYERS * pages * page;
    r->memory = malloc(r->memory_count * sizeof *r->memory);
    if (r->memory == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < r->memory_count; i++) {
        r->memory[i] = (float)NAN;
    }
    for (size_t layer = 0; layer < LAYERS; layer++) {
        memset(&layers[layer], 0, sizeof layers[layer]);
        layers[layer].k = r->memory + 2 * layer * pages * page;
        layers[layer].v = r->memory + (2 * layer + 1) * pages * page;
        layers[layer].page_stride = page;
        layers[layer].position_stride = KV_HEADS * HEAD_DIM;
        layers[layer].head_stride = HEAD_DIM;
    }
}

static inline runner_fixture new_runner(uint32_t page_size, uint32_t page_count, uint32_t flags) {
    runner_fixture r;
    memset(&r, 0, sizeof r);
    r.f = new_fixture_with(page_size, page_count, 8, flags);
    rkv_runner_kv_memory layers[LAYERS];
    lend_memory(&r, layers);
    rkv_runner_config config = small_runner();
    config.kv_layers = layers;
    config.kv_layer_size = sizeof *layers;
    if (!CHECK_OK(rkv_runner_create(r.f.table, &config, &r.runner)) ||
        !CHECK_OK(rkv_plan_create(r.f.table, &r.plan))) {
        exit(1);
    }
    return r;
}

static inline void end_runner(runner_fixture *r) {
    rkv_plan_destroy(r->plan);
    rkv_runner_destroy(r->runner);
    end_fixture(&r->f);
    free(r->memory);
}

/* ---- a model: what a layer's projections would give ---- */

static inline float element(uint32_t kind, uint32_t layer, uint32_t token, size_t position,
                            size_t head, size_t d) {
    uint64_t x = (uint64_t)kind + 7919u * ((uint64_t)layer + 31u * token);
    x = (x * 1000003u + position) * 1000003u + head * 257u + d;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

enum { KIND_Q, KIND_K, KIND_V };

static inline void project(float *into, uint32_t kind, uint32_t layer, const uint32_t *ids,
                           size_t start, size_t count, size_t heads) {
    for (size_t i = 0; i < count; i++) {
        for (size_t head = 0; head < heads; head++) {
            for (size_t d = 0; d < HEAD_DIM; d++) {
                *into++ = element(kind, layer, ids[start + i], start + i, head, d);
            }
        }
    }
}

/* Which keys a query sees. */
typedef struct visibility {
    uint32_t window;
    const rkv_region *regions;
    size_t region_count;
    const uint64_t *tree; /* masks of the positions from `start` on, or NULL */
    size_t start;
    uint32_t mask;
} visibility;

static inline bool sees(const visibility *v, size_t query, size_t key) {
    if (v->mask != RKV_MASK_CAUSAL) {
        return true; /* of the keys that there are */
    }
    for (size_t i = 0; i < v->region_count; i++) {
        const rkv_region *region = &v->regions[i];
        if (region->start <= query && query < region->end && region->start <= key &&
            key < region->end) {
            return true;
        }
    }
    if (v->tree != NULL && key >= v->start) {
        return key == query || (v->tree[query - v->start] >> (key - v->start) & 1) != 0;
    }
    return key <= query && (v->window == 0 || query - key < v->window);
}

/* Attention of one query head over the first `end` positions of a token list, naively. */
static inline void naive(double *out, double *lse, uint32_t layer, const uint32_t *ids,
                         size_t query, size_t head, size_t end, const visibility *v) {
    double weights[ROW_LIMIT], total = 0, largest = -INFINITY;
    for (size_t key = 0; key < end; key++) {
        weights[key] = -INFINITY;
        if (sees(v, query, key)) {
            double dot = 0;
            for (size_t d = 0; d < HEAD_DIM; d++) {
                dot += (double)element(KIND_Q, layer, ids[query], query, head, d) *
                       (double)element(KIND_K, layer, ids[key], key,
                                       head / (QUERY_HEADS / KV_HEADS), d);
            }
            weights[key] = dot / sqrt(HEAD_DIM);
        }
        largest = weights[key] > largest ? weights[key] : largest;
    }
    memset(out, 0, HEAD_DIM * sizeof *out);
    for (size_t key = 0; key < end; key++) {
        double weight = exp(weights[key] - largest);
        total += weight;
        for (size_t d = 0; d < HEAD_DIM && weight > 0; d++) {
            out[d] += weight * (double)element(KIND_V, layer, ids[key], key,
                                               head / (QUERY_HEADS / KV_HEADS), d);
        }
    }
    for (size_t d = 0; d < HEAD_DIM; d++) {
        out[d] /= total;
    }
    *lse = largest + log(total);
}

/* ---- steps ---- */

/* New positions of one row of a batch, and the row's tokens, one position each. */
typedef struct chunk {
    rkv_plan_row row;
    const uint32_t *ids;
} chunk;

static inline chunk chunk_of(rkv_sequence_id sequence, const uint32_t *ids, size_t start,
                             size_t count) {
    chunk made;
    memset(&made, 0, sizeof made);
    made.row.sequence = sequence;
    made.row.start = start;
    made.row.count = count;
    made.ids = ids;
    return made;
}

/* The inputs and outputs of one layer of a step. */
typedef struct tensors {
    float *q, *k, *v, *out, *lse;
    size_t count;
} tensors;

static inline float *floats(size_t count) {
    float *made = malloc(count * sizeof *made);
    if (made == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        made[i] = (float)NAN;
    }
    return made;
}

static inline tensors new_tensors(const chunk *chunks, size_t chunk_count, uint32_t layer) {
    tensors t;
    t.count = 0;
    for (size_t i = 0; i < chunk_count; i++) {
        t.count += (size_t)chunks[i].row.count;
    }
    t.q = floats(t.count * QUERY_HEADS * HEAD_DIM);
    t.k = floats(t.count * KV_HEADS * HEAD_DIM);
    t.v = floats(t.count * KV_HEADS * HEAD_DIM);
    t.out = floats(t.count * QUERY_HEADS * HEAD_DIM);
    t.lse = floats(t.count * QUERY_HEADS);
    size_t at = 0;
    for (size_t i = 0; i < chunk_count; i++) {
        size_t start = (size_t)chunks[i].row.start, count = (size_t)chunks[i].row.count;
        const uint32_t *ids = chunks[i].ids;
        project(t.q + at * QUERY_HEADS * HEAD_DIM, KIND_Q, layer, ids, start, count, QUERY_HEADS);
        project(t.k + at * KV_HEADS * HEAD_DIM, KIND_K, layer, ids, start, count, KV_HEADS);
        project(t.v + at * KV_HEADS * HEAD_DIM, KIND_V, layer, ids, start, count, KV_HEADS);
        at += count;
    }
    return t;
}

static inline void free_tensors(tensors *t) {
    free(t->q);
    free(t->k);
    free(t->v);
    free(t->out);
    free(t->lse);
}

static inline rkv_runner_append_prefill_args layer_args(const tensors *t, uint32_t layer) {
    rkv_runner_append_prefill_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.layer = layer;
    args.q = t->q;
    args.k = t->k;
    args.v = t->v;
    args.out = t->out;
    args.lse = t->lse;
    return args;
}

static inline void set_plan(const runner_fixture *r, const chunk *chunks, size_t chunk_count) {
    rkv_plan_row rows[8];
    for (size_t i = 0; i < chunk_count; i++) {
        rows[i] = chunks[i].row;
    }
    CHECK_OK(rkv_plan_set(r->plan, rows, chunk_count, sizeof rows[0]));
}

/* Compares every output of a layer with the naive attention: f32 sums of a few hundred terms below
 * one in size. */
static inline void check_tensors(const tensors *t, const chunk *chunks, size_t chunk_count,
                                 uint32_t layer, uint32_t window) {
    const double tolerance = 2e-5;
    size_t at = 0, wrong = 0;
    for (size_t i = 0; i < chunk_count; i++) {
        const rkv_plan_row *row = &chunks[i].row;
        visibility v = {window, row->regions, row->region_count, row->tree_masks,
                        (size_t)row->start, row->mask};
        size_t end = (size_t)(row->start + (row->mask == RKV_MASK_CONTEXT ? 0 : row->count));
        for (size_t j = 0; j < row->count; j++, at++) {
            for (size_t head = 0; head < QUERY_HEADS; head++) {
                double out[HEAD_DIM], lse;
                naive(out, &lse, layer, chunks[i].ids, (size_t)row->start + j, head, end, &v);
                wrong += !(fabs(lse - (double)t->lse[at * QUERY_HEADS + head]) <= tolerance);
                for (size_t d = 0; d < HEAD_DIM; d++) {
                    double got = (double)t->out[(at * QUERY_HEADS + head) * HEAD_DIM + d];
                    wrong += !(fabs(out[d] - got) <= tolerance);
                }
            }
        }
    }
    CHECK_EQ(wrong, 0);
}

/* Carries a step out in every layer and checks all of its results. */
static inline void step(const runner_fixture *r, const chunk *chunks, size_t chunk_count) {
    set_plan(r, chunks, chunk_count);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        tensors t = new_tensors(chunks, chunk_count, layer);
        rkv_runner_append_prefill_args args = layer_args(&t, layer);
        CHECK_OK(rkv_runner_append_prefill(r->runner, r->plan, &args));
        check_tensors(&t, chunks, chunk_count, layer, 0);
        free_tensors(&t);
    }
}

/* Computes and publishes a prompt, as far as the cache doesn't have it, in chunks. */
static inline rkv_sequence_info compute_prompt(const runner_fixture *r, const uint32_t *ids,
                                               size_t count, size_t chunk_size) {
    rkv_sequence_info state = begin(&r->f, text(ids, count));
    for (size_t at = (size_t)state.cached_position_count; at < count; at += chunk_size) {
        size_t size = count - at < chunk_size ? count - at : chunk_size;
        chunk next = chunk_of(state.sequence, ids, at, size);
        step(r, &next, 1);
        publish(&r->f, state.sequence, at + size);
    }
    return query(&r->f, state.sequence);
}

#endif
