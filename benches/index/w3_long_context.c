/*
 * W3: 64 documents of 32,768 tokens; 1000 requests of a document and 64 unique tokens; matches of
 * whole documents, and one sequence of 131,072 tokens matched 64 times.
 */
#include "floor.h"

#include <stdlib.h>
#include <string.h>

enum { DOCUMENTS = 64, DOCUMENT_TOKENS = 32768, SUFFIX_TOKENS = 64, LONG_TOKENS = 131072 };
enum { REQUESTS = 1000, LONG_MATCHES = 64, EVICTED_TOKENS = 64, SEED = 303 };
/* Eight prompts of 128 KiB stay in a second-level cache. */
enum { PROMPTS = 8 };

struct w3 {
    struct fixture fixture;
    struct prompts prompts;
    uint32_t *documents;
    uint32_t *long_sequence;
    struct rng rng;
    size_t match_count;         /* tokens that a match asks for and must find */
    rkv_tokens tokens[PROMPTS];
    rkv_cache_match_item items[PROMPTS];
    rkv_cache_match_result found[PROMPTS];
    rkv_status statuses[PROMPTS];
};

static void prepare(struct w3 *w3, uint32_t document, uint32_t number, size_t i)
{
    uint32_t *ids = w3->prompts.ids[i];
    memcpy(ids, w3->documents + (size_t)document * DOCUMENT_TOKENS,
           DOCUMENT_TOKENS * sizeof *ids);
    tokens_fill(SEED, number, ids + DOCUMENT_TOKENS, SUFFIX_TOKENS);
    ids[DOCUMENT_TOKENS] = FRESH + number;
    w3->prompts.count[i] = DOCUMENT_TOKENS + SUFFIX_TOKENS;
}

static void request(void *context, size_t i)
{
    struct w3 *w3 = context;
    fixture_request(&w3->fixture, w3->prompts.ids[i], w3->prompts.count[i]);
}

static void match(void *context, size_t i)
{
    struct w3 *w3 = context;
    REQUIRE(fixture_match(&w3->fixture, w3->prompts.ids[i], w3->match_count, NULL) ==
            w3->match_count);
}

static void match_long(void *context, size_t i)
{
    struct w3 *w3 = context;
    (void)i;
    REQUIRE(fixture_match(&w3->fixture, w3->long_sequence, LONG_TOKENS, NULL) == LONG_TOKENS);
}

static void request_long(void *context, size_t i)
{
    struct w3 *w3 = context;
    (void)i;
    fixture_request(&w3->fixture, w3->long_sequence, LONG_TOKENS);
}

static void split_long(void *context, size_t i)
{
    struct w3 *w3 = context;
    (void)i;
    size_t half = page_floor(&w3->fixture, LONG_TOKENS / 2);
    REQUIRE(fixture_match(&w3->fixture, w3->long_sequence, half, NULL) == half);
}

static void evict_long(void *context, size_t i)
{
    struct w3 *w3 = context;
    size_t count;
    (void)i;
    size_t page_count = EVICTED_TOKENS / w3->fixture.page_size;
    CHECK(rkv_cache_evict(w3->fixture.cache, page_count, NULL, 0, &count));
    REQUIRE(count == page_count);
}

/* Documents of which each is another one: in an index that hashes, no two of them have a digest. */
static void match_many(void *context, size_t i)
{
    struct w3 *w3 = context;
    (void)i;
    for (size_t at = 0; at < PROMPTS; at++) {
        w3->tokens[at] = (rkv_tokens){.struct_size = sizeof *w3->tokens,
                                      .ids = w3->prompts.ids[at],
                                      .count = DOCUMENT_TOKENS};
        w3->items[at] = (rkv_cache_match_item){.tokens = &w3->tokens[at]};
    }
    CHECK(rkv_cache_match_many(w3->fixture.cache, w3->items, PROMPTS, sizeof *w3->items, w3->found,
                               sizeof *w3->found, w3->statuses));
    for (size_t at = 0; at < PROMPTS; at++) {
        REQUIRE(w3->found[at].position_count == DOCUMENT_TOKENS);
    }
}

enum operation {
    COLD, WARM, MATCH, MATCH_MANY, COLD_LONG, MATCH_LONG, SPLIT_LONG, EVICT_LONG, OPERATIONS
};
static const struct {
    const char *name;
    double target;
} OPERATION[OPERATIONS] = {
    [COLD] = {"request, new document", -1},
    [WARM] = {"request, document + 64 tokens", -1},
    [MATCH] = {"match of 32k tokens", 6.5},
    [MATCH_MANY] = {"8 matches of 32k tokens, a call for all", -1},
    [COLD_LONG] = {"request, new sequence of 131k", -1},
    [MATCH_LONG] = {"match of 131k tokens", 13},
    [SPLIT_LONG] = {"match that cuts a node of 131k in half", -1},
    [EVICT_LONG] = {"evict 64 tokens off a node of 131k", 0.5},
};

static void requests(struct w3 *w3, struct meter *meters)
{
    for (uint32_t first = 0; first < DOCUMENTS; first += PROMPTS) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            prepare(w3, first + i, first + i, i);
        }
        meter_calls(&meters[COLD], request, w3, PROMPTS);
    }
    size_t count = options.count ? REQUESTS / 10 : REQUESTS;
    for (uint32_t first = DOCUMENTS; first < DOCUMENTS + count; first += PROMPTS) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            prepare(w3, rng_below(&w3->rng, DOCUMENTS), first + i, i);
        }
        meter_calls(&meters[WARM], request, w3, PROMPTS);
    }
}

static void matches(struct w3 *w3, struct meter *meters)
{
    w3->match_count = DOCUMENT_TOKENS;
    size_t count = options.count ? REQUESTS / 10 : REQUESTS;
    for (uint32_t first = 0; first < count; first += PROMPTS) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            prepare(w3, rng_below(&w3->rng, DOCUMENTS), first + i, i);
        }
        meter_calls(&meters[MATCH], match, w3, PROMPTS);
    }
    for (uint32_t first = 0; first < DOCUMENTS; first += PROMPTS) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            prepare(w3, first + i, first + i, i);
        }
        meter_calls(&meters[MATCH_MANY], match_many, w3, 1);
    }
    meter_calls(&meters[COLD_LONG], request_long, w3, 1);
    meter_calls(&meters[MATCH_LONG], match_long, w3, LONG_MATCHES);
}

/* Long nodes alone: what does it cost to cut one, and to take it away bit by bit? */
static void cuts(struct w3 *w3, struct meter *meters, uint32_t page_size)
{
    fixture_open(&w3->fixture, page_size, LONG_TOKENS + EVICTED_TOKENS, LONG_TOKENS);
    request_long(w3, 0);
    meter_calls(&meters[EVICT_LONG], evict_long, w3, LONG_TOKENS / EVICTED_TOKENS);
    request_long(w3, 0);
    meter_calls(&meters[SPLIT_LONG], split_long, w3, 1);
    fixture_close(&w3->fixture);
}

static void run(struct w3 *w3, struct meter *meters, uint32_t page_size, unsigned number,
                bool last)
{
    w3->rng.state = SEED;
    for (int i = 0; i < OPERATIONS; i++) {
        meter_begin(&meters[i], run_timing(number));
    }
    fixture_open(&w3->fixture, page_size,
                 (size_t)(DOCUMENTS + 2) * DOCUMENT_TOKENS + LONG_TOKENS * 2 +
                     (DOCUMENTS + REQUESTS) * (SUFFIX_TOKENS + 64),
                 LONG_TOKENS);
    requests(w3, meters);
    if (number == 0) {
        fixture_memory(&w3->fixture, "W3");
    }
    matches(w3, meters);
    if (last) {
        fixture_verify(&w3->fixture);
    }
    fixture_close(&w3->fixture);
    cuts(w3, meters, page_size);
    for (int i = 0; i < OPERATIONS; i++) {
        meter_end(&meters[i]);
    }
}

void run_w3(uint32_t page_size)
{
    static struct w3 w3;
    struct meter meters[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        meter_init(&meters[i], OPERATION[i].name);
    }
    prompts_init(&w3.prompts, PROMPTS, DOCUMENT_TOKENS + SUFFIX_TOKENS);
    w3.documents = allocate((size_t)DOCUMENTS * DOCUMENT_TOKENS, sizeof *w3.documents);
    w3.long_sequence = allocate(LONG_TOKENS, sizeof *w3.long_sequence);
    tokens_fill(SEED, UINT32_MAX, w3.documents, (size_t)DOCUMENTS * DOCUMENT_TOKENS);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        w3.documents[i * DOCUMENT_TOKENS] = FRESH_MISS + (uint32_t)i;
    }
    tokens_fill(SEED, UINT32_MAX - 1, w3.long_sequence, LONG_TOKENS);
    unsigned runs = run_count(8);
    for (unsigned number = 0; number < runs; number++) {
        run(&w3, meters, page_size, number, number + 1 == runs);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_emit(&meters[i], "W3", page_size, OPERATION[i].target, -1);
    }
    /* A copy of what is left would be proportional to it: it must not happen in one call. */
    if (!options.count) {
        longest_emit(&meters[EVICT_LONG], "W3", page_size);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_free(&meters[i]);
    }
    free(w3.documents);
    free(w3.long_sequence);
    prompts_free(&w3.prompts);
    floor_of_documents("W3", OPERATION[MATCH].name, DOCUMENTS, DOCUMENT_TOKENS, page_size);
    floor_of_documents("W3", OPERATION[MATCH_LONG].name, 1, LONG_TOKENS, page_size);
}
