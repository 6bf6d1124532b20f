/*
 * An engine with kernels of its own, in C: the library keeps the pages and the prefix cache, and
 * says as arrays what a step computes; what computes is here. There is no runner.
 *
 *     cc -Iinclude examples/c/own_kernels.c -Ltarget/release -lradixkv -lm -o own_kernels
 *     LD_LIBRARY_PATH=target/release ./own_kernels
 *
 * Three requests, two of which begin with what the first one computed, in batches of chunks and
 * decodes. At the end each of them is computed once more, without pages, and compared.
 */
#include <radixkv.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, HEAD_DIM = 16, WIDTH = HEADS * HEAD_DIM };
enum { PAGE_SIZE = 16, PAGES = 32, SLOTS = 8, LENGTH = 64, POSITIONS = 128, ROWS = 3 };

/* KV memory of the engine's own: [layer][page * PAGE_SIZE + position][element]. */
static float keys[LAYERS][PAGES * PAGE_SIZE][WIDTH];
static float values[LAYERS][PAGES * PAGE_SIZE][WIDTH];

/* A request: its tokens, how many are computed, and the model's state after the last of those. */
typedef struct request {
    rkv_sequence_id sequence;
    uint32_t ids[LENGTH];
    size_t count, computed;
    float last[WIDTH];
} request;

static rkv_page_table *table;
static rkv_cache *cache;
static rkv_plan *plan;

/* Every fallible call returns a status; the message is the calling thread's. */
static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* ---- the model: numbers in [-1, 1) instead of weights ---- */

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
    for (i = 0; i < WIDTH; i++) {
        q[i] = x[(i * 5 + layer) % WIDTH];
        k[i] = x[(i * 3 + layer) % WIDTH];
        v[i] = x[(i * 7 + 1) % WIDTH];
    }
}

/* ---- kernels: all they know of rows and pages is the plan's arrays ---- */

/* Pages that sequences share in part: the first positions go to a page of their own. */
static void copy_pages(const rkv_plan_arrays *a) {
    size_t i, layer;
    for (i = 0; i < a->copy_count; i++) {
        size_t from = (size_t)a->copy_source_page[i] * PAGE_SIZE;
        size_t to = (size_t)a->copy_target_page[i] * PAGE_SIZE;
        size_t bytes = (size_t)a->copy_position_count[i] * sizeof keys[0][0];
        for (layer = 0; layer < LAYERS; layer++) {
            memcpy(keys[layer][to], keys[layer][from], bytes);
            memcpy(values[layer][to], values[layer][from], bytes);
        }
    }
}

static void write_kv(const rkv_plan_arrays *a, uint32_t layer, float (*k)[WIDTH],
                     float (*v)[WIDTH]) {
    size_t i;
    for (i = 0; i < a->position_count; i++) {
        memcpy(keys[layer][a->slot_mapping[i]], k[i], sizeof k[i]);
        memcpy(values[layer][a->slot_mapping[i]], v[i], sizeof v[i]);
    }
}

/* One query head over the first `end` positions of a row's pages, in one pass: what was summed up
 * is scaled down whenever a larger logit comes. */
static void attend_one(const int32_t *pages, size_t end, uint32_t layer, size_t head,
                       const float *q, float *out) {
    float largest = -INFINITY, total = 0, sum[HEAD_DIM] = {0};
    size_t key, d;
    for (key = 0; key < end; key++) {
        size_t place = (size_t)pages[key / PAGE_SIZE] * PAGE_SIZE + key % PAGE_SIZE;
        const float *k = keys[layer][place] + head * HEAD_DIM;
        const float *v = values[layer][place] + head * HEAD_DIM;
        float logit = 0, scale, weight;
        for (d = 0; d < HEAD_DIM; d++) logit += q[d] * k[d] / 4; /* sqrt(HEAD_DIM) */
        scale = logit > largest ? expf(largest - logit) : 1;
        largest = logit > largest ? logit : largest;
        weight = expf(logit - largest);
        total = total * scale + weight;
        for (d = 0; d < HEAD_DIM; d++) sum[d] = sum[d] * scale + weight * v[d];
    }
    for (d = 0; d < HEAD_DIM; d++) out[d] = sum[d] / total;
}

static void attend(const rkv_plan_arrays *a, uint32_t layer, float (*q)[WIDTH],
                   float (*out)[WIDTH]) {
    size_t row, head;
    for (row = 0; row < a->row_count; row++) {
        const int32_t *pages = a->indices + a->indptr[row];
        int32_t page_count = a->indptr[row + 1] - a->indptr[row];
        int32_t end = (page_count - 1) * PAGE_SIZE + a->last_page_len[row];
        int32_t i, last = a->query_indptr[row + 1];
        for (i = a->query_indptr[row]; i < last; i++) {
            size_t visible = (size_t)(end - (last - 1 - i)); /* causal, aligned at the right */
            for (head = 0; head < HEADS; head++) {
                attend_one(pages, visible, layer, head, q[i] + head * HEAD_DIM,
                           out[i] + head * HEAD_DIM);
            }
        }
    }
}

/* ---- the engine ---- */

static rkv_tokens text(const uint32_t *ids, size_t count) {
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    return tokens;
}

/* A prompt that shares `shared` ids with others. What is cached of it need not be computed. */
static request begin(const char *name, size_t shared, uint32_t first_id, size_t count) {
    rkv_sequence_begin_args args = {0};
    rkv_sequence_info state = {0};
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
    state.struct_size = sizeof state;
    must(rkv_sequence_begin(cache, &args, &state));
    r.sequence = state.sequence;
    r.computed = (size_t)state.cached_position_count;
    printf("%s: %u tokens, %u of them cached, %u of these by a copy\n", name, (unsigned)count,
           (unsigned)state.cached_token_count, (unsigned)(state.cached_position_count % PAGE_SIZE));
    return r;
}

/* One step of a batch: up to `limit` new positions of each request, through all layers. */
static void step(request **batch, size_t rows, size_t limit) {
    static float x[POSITIONS][WIDTH], q[POSITIONS][WIDTH], out[POSITIONS][WIDTH];
    static float k[POSITIONS][WIDTH], v[POSITIONS][WIDTH];
    rkv_plan_row planned[ROWS];
    rkv_plan_arrays arrays = {0};
    size_t i, at, count = 0;
    uint32_t layer;
    memset(planned, 0, sizeof planned);
    for (i = 0; i < rows; i++) {
        request *r = batch[i];
        size_t left = r->count - r->computed;
        planned[i].sequence = r->sequence;
        planned[i].start = r->computed;
        planned[i].count = left < limit ? left : limit;
        for (at = 0; at < planned[i].count; at++, count++) {
            embed(x[count], r->ids[r->computed + at], r->computed + at);
        }
    }
    must(rkv_plan_set(plan, planned, rows, sizeof planned[0]));
    arrays.struct_size = sizeof arrays;
    must(rkv_plan_view(plan, &arrays));
    printf("step: %u rows, %u new positions, %d pages, %u copies\n", (unsigned)arrays.row_count,
           (unsigned)arrays.position_count, (int)arrays.indptr[rows], (unsigned)arrays.copy_count);

    copy_pages(&arrays);
    for (i = 0; i < arrays.copy_count; i++) {
        /* All of a sequence at once; they are neighbours. */
        if (i > 0 && arrays.copy_sequence[i] == arrays.copy_sequence[i - 1]) continue;
        must(rkv_sequence_confirm_copies(cache, arrays.copy_sequence[i]));
    }
    must(rkv_plan_check(plan)); /* are the pages still those of the rows? */
    for (layer = 0; layer < LAYERS; layer++) {
        for (at = 0; at < count; at++) project(x[at], layer, q[at], k[at], v[at]);
        write_kv(&arrays, layer, k, v);
        attend(&arrays, layer, q, out);
        for (at = 0; at < count; at++) {
            for (i = 0; i < WIDTH; i++) x[at][i] += out[at][i];
        }
    }
    for (i = 0, at = 0; i < rows; i++) {
        rkv_sequence_publish_result result = {0};
        result.struct_size = sizeof result;
        at += (size_t)planned[i].count;
        batch[i]->computed += (size_t)planned[i].count;
        memcpy(batch[i]->last, x[at - 1], sizeof batch[i]->last);
        must(rkv_sequence_publish(cache, planned[i].sequence, batch[i]->computed, &result));
    }
}

/* Appends a token. A real engine would take the most likely one. */
static void append(request *r, uint32_t id) {
    rkv_tokens one = text(&id, 1);
    must(rkv_sequence_append(cache, r->sequence, &one));
    r->ids[r->count++] = id;
}

/* ---- the same without pages: all positions at once, in doubles ---- */

static double difference(const request *r) {
    static float x[LENGTH][WIDTH], q[LENGTH][WIDTH], k[LENGTH][WIDTH], v[LENGTH][WIDTH];
    double most = 0;
    size_t at, key, head, d;
    uint32_t layer;
    for (at = 0; at < r->count; at++) embed(x[at], r->ids[at], at);
    for (layer = 0; layer < LAYERS; layer++) {
        for (at = 0; at < r->count; at++) project(x[at], layer, q[at], k[at], v[at]);
        for (at = 0; at < r->count; at++) {
            for (head = 0; head < WIDTH; head += HEAD_DIM) {
                double total = 0, sum[HEAD_DIM] = {0};
                for (key = 0; key <= at; key++) {
                    double logit = 0;
                    for (d = head; d < head + HEAD_DIM; d++) {
                        logit += (double)q[at][d] * (double)k[key][d] / 4;
                    }
                    total += exp(logit);
                    for (d = 0; d < HEAD_DIM; d++) sum[d] += exp(logit) * (double)v[key][head + d];
                }
                for (d = 0; d < HEAD_DIM; d++) x[at][head + d] += (float)(sum[d] / total);
            }
        }
    }
    for (d = 0; d < WIDTH; d++) {
        double apart = fabs((double)r->last[d] - (double)x[r->count - 1][d]);
        most = apart > most ? apart : most;
    }
    return most;
}

int main(void) {
    rkv_page_table_config config;
    request a, b, c, *batch[ROWS];
    rkv_status status;
    uint32_t i;
    bool is_right;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE_SIZE;
    config.page_count = PAGES;
    config.slot_count = SLOTS;
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    must(rkv_plan_create(table, &plan));

    /* A prompt in chunks; each is published, so that others find it. */
    a = begin("A", 40, 500, 50);
    batch[0] = &a;
    while (a.computed < a.count) step(batch, 1, 20);

    /* Two that begin like it: the shared start ends inside a page, which is copied. */
    b = begin("B", 40, 600, 55);
    c = begin("C", 21, 700, 30);
    append(&a, 90);
    batch[1] = &b;
    batch[2] = &c;
    step(batch, ROWS, 9);
    for (i = 0; i < 8; i++) {
        append(&a, 91 + i);
        if (b.computed == b.count) append(&b, 71 + i);
        if (c.computed == c.count) append(&c, 81 + i);
        step(batch, ROWS, 4);
    }
    is_right = difference(&a) < 1e-4 && difference(&b) < 1e-4 && difference(&c) < 1e-4;
    printf("A, B and C are %s what they are without pages\n", is_right ? "within 1e-4 of" : "not");

    /* A plan is good for as long as its rows are: their pages may be somebody else's later. */
    must(rkv_sequence_release(cache, c.sequence));
    status = rkv_plan_check(plan);
    printf("the last plan, when a row is gone: %s\n", rkv_status_name((int32_t)status));
    must(rkv_sequence_release(cache, b.sequence));
    must(rkv_sequence_release(cache, a.sequence));
    rkv_plan_destroy(plan);
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
