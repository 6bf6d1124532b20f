/*
 * Attention by the library, in C: a toy model computes a prompt in chunks, a second prompt reuses
 * the start of the first, both decode in one batch, and the result is what it is without a cache.
 * The same stands in examples/cpp, examples/attention.rs and bindings/go/examples, and each prints
 * the same text.
 *
 *     cc -Iinclude examples/c/attention.c -Ltarget/release -lradixkv -o attention
 *     LD_LIBRARY_PATH=target/release ./attention
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEAD_DIM = 64, QUERY_HEADS = 2, WIDTH = QUERY_HEADS * HEAD_DIM };
enum { PAGE_SIZE = 16, PAGES = 32, VOCABULARY = 100, LENGTH = 64, CHUNK = 32, DECODED = 6 };

/* An engine: the books, the memory behind them, and the plan of a step. */
typedef struct engine {
    rkv_page_table *table;
    rkv_cache *cache;
    rkv_runner *runner;
    rkv_plan *plan;
} engine;

/* A request: its tokens, how many are computed, and the model's state after the last of those. */
typedef struct request {
    rkv_sequence_info state;
    uint32_t ids[LENGTH];
    size_t count, computed;
    float last[WIDTH];
} request;

/* Every fallible call returns a status; the message is the calling thread's. */
static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* ---- the model: numbers in [-1, 1) instead of weights, the same in every language ---- */

static float number(uint32_t row, uint32_t column) {
    uint32_t x = row * 2654435761u + column * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

static void embed(float *x, uint32_t id, size_t position) {
    uint32_t i;
    for (i = 0; i < WIDTH; i++) x[i] = number(id, i) + number(1000 + (uint32_t)position, i) / 4;
}

/* Queries, keys and values of a layer: here, elements of the state in another order. */
static void project(const float *x, uint32_t layer, float *q, float *k, float *v) {
    uint32_t i;
    for (i = 0; i < WIDTH; i++) q[i] = x[(i * 5 + layer) % WIDTH];
    for (i = 0; i < HEAD_DIM; i++) k[i] = x[(i * 3 + layer) % WIDTH];
    for (i = 0; i < HEAD_DIM; i++) v[i] = x[(i * 7 + 1) % WIDTH];
}

static uint32_t most_likely(const float *x) {
    uint32_t id, best = 0, i;
    double most = -1e9;
    for (id = 0; id < VOCABULARY; id++) {
        double logit = 0;
        for (i = 0; i < WIDTH; i++) logit += (double)x[i] * (double)number(5000 + id, i);
        if (logit > most) {
            most = logit;
            best = id;
        }
    }
    return best;
}

/* ---- the engine ---- */

static rkv_runner_config shapes(void) {
    rkv_runner_config config;
    must(rkv_runner_config_init(&config, sizeof config));
    config.layer_count = LAYERS;
    config.query_head_count = QUERY_HEADS;
    config.kv_head_count = 1;
    config.head_dim = HEAD_DIM;
    /* So that a request's numbers do not depend on what else is in a batch. */
    config.flags = RKV_RUNNER_BATCH_INVARIANT;
    return config;
}

static engine new_engine(void) {
    engine made = {0};
    rkv_page_table_config pages;
    rkv_runner_config config = shapes();
    must(rkv_page_table_config_init(&pages, sizeof pages));
    pages.page_size = PAGE_SIZE;
    pages.page_count = PAGES;
    must(rkv_page_table_create(&pages, &made.table));
    must(rkv_cache_create(made.table, NULL, &made.cache));
    must(rkv_runner_create(made.table, &config, &made.runner)); /* with memory of its own */
    must(rkv_plan_create(made.table, &made.plan));
    return made;
}

static void end_engine(engine *e) {
    rkv_page_table_destroy(e->table); /* in any order */
    rkv_runner_destroy(e->runner);
    rkv_plan_destroy(e->plan);
    rkv_cache_destroy(e->cache);
}

static rkv_tokens text(const uint32_t *ids, size_t count) {
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    return tokens;
}

/* A prompt that shares `shared` ids with others. What is cached of it need not be computed. */
static request begin(engine *e, size_t shared, uint32_t first_id, size_t count) {
    rkv_sequence_begin_args args = {0};
    rkv_tokens tokens;
    request r;
    memset(&r, 0, sizeof r);
    for (r.count = 0; r.count < count; r.count++) {
        size_t own = r.count - shared;
        r.ids[r.count] = r.count < shared ? (uint32_t)r.count : first_id + (uint32_t)own;
    }
    tokens = text(r.ids, r.count);
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    r.state.struct_size = sizeof r.state;
    must(rkv_sequence_begin(e->cache, &args, &r.state));
    r.computed = (size_t)r.state.cached_position_count;
    return r;
}

/* One step of a batch: up to `limit` new positions of each request, through all layers. */
static void step(engine *e, request **batch, size_t rows, size_t limit) {
    static float x[2 * LENGTH][WIDTH], q[2 * LENGTH][WIDTH], out[2 * LENGTH][WIDTH];
    static float k[2 * LENGTH][HEAD_DIM], v[2 * LENGTH][HEAD_DIM];
    rkv_runner_append_prefill_args args = {0};
    rkv_plan_row plan[2] = {{0}};
    size_t i, at, count = 0;
    for (i = 0; i < rows; i++) {
        request *r = batch[i];
        size_t left = r->count - r->computed;
        plan[i].sequence = r->state.sequence;
        plan[i].start = r->computed;
        plan[i].count = left < limit ? left : limit;
        for (at = 0; at < plan[i].count; at++, count++) {
            embed(x[count], r->ids[r->computed + at], r->computed + at);
        }
    }
    must(rkv_plan_set(e->plan, plan, rows, sizeof plan[0]));
    args.struct_size = sizeof args;
    args.q = q;
    args.k = k;
    args.v = v;
    args.out = out;
    for (args.layer = 0; args.layer < LAYERS; args.layer++) {
        for (at = 0; at < count; at++) project(x[at], args.layer, q[at], k[at], v[at]);
        /* The first layer also carries out copies of partly shared pages, in all layers. */
        must(rkv_runner_append_prefill(e->runner, e->plan, &args));
        for (at = 0; at < count; at++) {
            for (i = 0; i < WIDTH; i++) x[at][i] += out[at][i];
        }
    }
    for (i = 0, at = 0; i < rows; i++) {
        rkv_sequence_publish_result result = {0};
        result.struct_size = sizeof result;
        at += (size_t)plan[i].count;
        batch[i]->computed += (size_t)plan[i].count;
        memcpy(batch[i]->last, x[at - 1], sizeof batch[i]->last);
        must(rkv_sequence_publish(e->cache, plan[i].sequence, batch[i]->computed, &result));
    }
}

/* Appends the most likely token to each request, and computes it. */
static void decode(engine *e, request **batch, size_t rows) {
    size_t i;
    for (i = 0; i < rows; i++) {
        request *r = batch[i];
        uint32_t id = most_likely(r->last);
        rkv_tokens one = text(&id, 1);
        must(rkv_sequence_append(e->cache, r->state.sequence, &one));
        r->ids[r->count++] = id;
    }
    step(e, batch, rows, 1);
}

static void print_decoded(const char *name, const request *r) {
    size_t i;
    printf("   %s:", name);
    for (i = r->count - DECODED; i < r->count; i++) printf(" %u", (unsigned)r->ids[i]);
    printf("\n");
}

int main(void) {
    rkv_runner_config config = shapes();
    uint64_t page_bytes = 0;
    engine e, fresh;
    request a, b, alone, *both[2], *one[1];
    size_t i, steps = 0;
    must(rkv_runner_supports(&config, PAGE_SIZE, &page_bytes));
    printf("1. A runner of %d layers: %u bytes of KV for each page of %d positions\n", LAYERS,
           (unsigned)page_bytes, PAGE_SIZE);
    e = new_engine();

    /* Nothing is cached: every position is computed, in chunks, and published as it goes. */
    a = begin(&e, 36, 50, 52);
    one[0] = &a;
    for (; a.computed < a.count; steps++) step(&e, one, 1, CHUNK);
    printf("2. Request A: %u tokens, %u of them cached, computed in %u steps\n",
           (unsigned)a.count, (unsigned)a.state.cached_token_count, (unsigned)steps);

    /* The shared start ends inside a page: two pages are shared, four positions copied. */
    b = begin(&e, 36, 70, 48);
    printf("3. Request B: %u tokens, %u of them cached, %u of these by a copy\n",
           (unsigned)b.count, (unsigned)b.state.cached_token_count,
           (unsigned)(b.state.cached_position_count % PAGE_SIZE));
    one[0] = &b;
    step(&e, one, 1, CHUNK);

    both[0] = &a;
    both[1] = &b;
    for (i = 0; i < DECODED; i++) decode(&e, both, 2);
    printf("4. Both decode %d tokens, in one batch\n", DECODED);
    print_decoded("A", &a);
    print_decoded("B", &b);

    fresh = new_engine();
    alone = begin(&fresh, 36, 70, 48);
    one[0] = &alone;
    step(&fresh, one, 1, LENGTH);
    for (i = 0; i < DECODED; i++) decode(&fresh, one, 1);
    printf("5. B again, alone, in a cache that is empty\n");
    print_decoded("B", &alone);
    printf("   the numbers are %s\n",
           memcmp(alone.last, b.last, sizeof b.last) == 0 ? "the same, to the bit" : "others");

    must(rkv_sequence_release(e.cache, a.state.sequence));
    must(rkv_sequence_release(e.cache, b.state.sequence));
    end_engine(&e);
    end_engine(&fresh);
    return 0;
}
