/*
 * W1: 48 or 4096 requests of 1024 shared tokens and 32 to 128 unique ones; then full matches,
 * matches of the shared part, misses, locks and unlocks.
 */
#include "floor.h"

#include <string.h>

enum { SHARED_TOKENS = 1024, SUFFIX_LEAST = 32, SUFFIX_MOST = 128, REQUESTS = 4096, FEW = 48 };
/* Requests after which what a cache has beside its nodes shows less, for the table of memory. */
enum { MANY = 4 * REQUESTS };
enum { PROMPT_TOKENS = SHARED_TOKENS + SUFFIX_MOST, SEED = 101 };

struct w1 {
    struct fixture fixture;
    struct prompts prompts;
    uint32_t shared[SHARED_TOKENS];
    uint32_t order[MANY];
    uint64_t expected[BATCH];   /* positions that each prompt of the batch must find */
    rkv_node_id nodes[BATCH];
    rkv_lock_id locks[BATCH];
};

static size_t prompt_length(uint32_t request)
{
    struct rng rng = {SEED + request};
    return SHARED_TOKENS + SUFFIX_LEAST + rng_below(&rng, SUFFIX_MOST - SUFFIX_LEAST + 1);
}

/* What a prompt holds after the shared tokens. */
enum suffix { SUFFIX_OWN, SUFFIX_NEW };

static void prepare(struct w1 *w1, size_t first, size_t count, enum suffix suffix)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t request = w1->order[first + i];
        uint32_t *ids = w1->prompts.ids[i];
        size_t length = prompt_length(request);
        memcpy(ids, w1->shared, sizeof w1->shared);
        tokens_fill(SEED, request, ids + SHARED_TOKENS, length - SHARED_TOKENS);
        bool own = suffix == SUFFIX_OWN;
        ids[SHARED_TOKENS] = (own ? FRESH : FRESH_MISS) + request;
        w1->prompts.count[i] = length;
        w1->expected[i] = page_floor(&w1->fixture, own ? length : SHARED_TOKENS);
    }
}

static void request(void *context, size_t i)
{
    struct w1 *w1 = context;
    fixture_request(&w1->fixture, w1->prompts.ids[i], w1->prompts.count[i]);
}

static void match(void *context, size_t i)
{
    struct w1 *w1 = context;
    uint64_t found =
        fixture_match(&w1->fixture, w1->prompts.ids[i], w1->prompts.count[i], &w1->nodes[i]);
    REQUIRE(found == w1->expected[i]);
}

static void probe(void *context, size_t i)
{
    struct w1 *w1 = context;
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = w1->prompts.ids[i], .count = w1->prompts.count[i]};
    size_t found;
    CHECK(rkv_cache_probe(w1->fixture.cache, NULL, &tokens, NULL, &found));
    REQUIRE(found == w1->expected[i]);
}

static void lock(void *context, size_t i)
{
    struct w1 *w1 = context;
    CHECK(rkv_cache_lock(w1->fixture.cache, w1->nodes[i], &w1->locks[i]));
}

static void unlock(void *context, size_t i)
{
    struct w1 *w1 = context;
    CHECK(rkv_cache_unlock(w1->fixture.cache, w1->locks[i]));
}

enum operation { COLD, COLD_FEW, FULL, SHARED, MISS, PROBE, LOCK, UNLOCK, WARM, OPERATIONS };
static const struct {
    const char *name;
    double target;
} OPERATION[OPERATIONS] = {
    [COLD] = {"request, cold, 4096", 0.8},
    [COLD_FEW] = {"request, cold, 48", 0.8},
    [FULL] = {"full match, ~1100 tokens", 0.22},
    [SHARED] = {"match of the shared 1024 tokens", -1},
    [MISS] = {"miss", -1},
    [PROBE] = {"probe, ~1100 tokens", -1},
    [LOCK] = {"lock", -1},
    [UNLOCK] = {"unlock", -1},
    [WARM] = {"request, prompt asked before", -1},
};

static void open(struct w1 *w1, uint32_t page_size, size_t request_count)
{
    fixture_open(&w1->fixture, page_size, (request_count + 64) * (SUFFIX_MOST + 256),
                 PROMPT_TOKENS);
}

static void cold(struct w1 *w1, struct meter *meter, size_t request_count)
{
    for (size_t first = 0; first < request_count; first += BATCH) {
        size_t count = request_count - first < BATCH ? request_count - first : BATCH;
        prepare(w1, first, count, SUFFIX_OWN);
        meter_calls(meter, request, w1, count);
    }
}

static void reads(struct w1 *w1, struct meter *meters, size_t request_count)
{
    for (size_t first = 0; first < request_count; first += BATCH) {
        prepare(w1, first, BATCH, SUFFIX_NEW);
        meter_calls(&meters[SHARED], match, w1, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            w1->prompts.ids[i][0] = FRESH_MISS + (uint32_t)i;
            w1->expected[i] = 0;
        }
        meter_calls(&meters[MISS], match, w1, BATCH);
        prepare(w1, first, BATCH, SUFFIX_OWN);
        meter_calls(&meters[FULL], match, w1, BATCH);
        meter_calls(&meters[PROBE], probe, w1, BATCH);
        meter_calls(&meters[LOCK], lock, w1, BATCH);
        meter_calls(&meters[UNLOCK], unlock, w1, BATCH);
        meter_calls(&meters[WARM], request, w1, BATCH);
    }
}

static void run(struct w1 *w1, struct meter *meters, unsigned number, bool last)
{
    uint32_t page_size = w1->fixture.page_size;
    size_t request_count = options.count ? 8 * BATCH : REQUESTS;
    struct rng rng = {SEED};
    for (uint32_t i = 0; i < MANY; i++) {
        w1->order[i] = i;
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_begin(&meters[i], run_timing(number));
    }
    open(w1, page_size, REQUESTS);
    cold(w1, &meters[COLD_FEW], FEW);
    fixture_close(&w1->fixture);

    open(w1, page_size, REQUESTS);
    cold(w1, &meters[COLD], request_count);
    if (number == 0) {
        fixture_memory(&w1->fixture, "W1");
    }
    rng_shuffle(&rng, w1->order, request_count);
    reads(w1, meters, request_count);
    if (last) {
        fixture_verify(&w1->fixture);
    }
    fixture_close(&w1->fixture);
    if (number == 0 && !options.count) {
        open(w1, page_size, MANY);
        for (size_t first = 0; first < MANY; first += BATCH) {
            prepare(w1, first, BATCH, SUFFIX_OWN);
            for (size_t i = 0; i < BATCH; i++) {
                request(w1, i);
            }
        }
        fixture_memory(&w1->fixture, "W1 x4");
        fixture_close(&w1->fixture);
    }
    w1->fixture.page_size = page_size;
    for (int i = 0; i < OPERATIONS; i++) {
        meter_end(&meters[i]);
    }
}

void run_w1(uint32_t page_size)
{
    static struct w1 w1;
    struct meter meters[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        meter_init(&meters[i], OPERATION[i].name);
    }
    w1.fixture.page_size = page_size;
    prompts_init(&w1.prompts, BATCH, PROMPT_TOKENS);
    tokens_fill(SEED, UINT32_MAX, w1.shared, SHARED_TOKENS);
    unsigned runs = run_count(14);
    for (unsigned number = 0; number < runs; number++) {
        run(&w1, meters, number, number + 1 == runs);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_emit(&meters[i], "W1", page_size, OPERATION[i].target, -1);
        meter_free(&meters[i]);
    }
    prompts_free(&w1.prompts);
    const struct floor_shape shape = {
        SEED, 2, {1, REQUESTS}, {SHARED_TOKENS, (SUFFIX_LEAST + SUFFIX_MOST) / 2}};
    const struct floor_names names = {.workload = "W1", .single = OPERATION[FULL].name};
    floor_of_tree(&shape, &names, page_size);
}
