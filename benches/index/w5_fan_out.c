/* W5: one prefix of 64 tokens with 100,000 children of 64 tokens. */
#include "floor.h"

#include <string.h>

enum { PREFIX_TOKENS = 64, CHILD_TOKENS = 64, PROMPT_TOKENS = PREFIX_TOKENS + CHILD_TOKENS };
enum { CHILDREN = 100000, MATCHES = 32000, PARTIAL_TOKENS = 8, SEED = 505 };

struct w5 {
    struct fixture fixture;
    struct prompts prompts;
    struct rng rng;
    uint32_t prefix[PREFIX_TOKENS];
    uint64_t expected;
    rkv_tokens tokens[BATCH];
    rkv_cache_match_item items[BATCH];
    rkv_cache_match_result found[BATCH];
    rkv_status statuses[BATCH];
};

static void prepare(struct w5 *w5, uint32_t child, size_t i)
{
    uint32_t *ids = w5->prompts.ids[i];
    memcpy(ids, w5->prefix, sizeof w5->prefix);
    tokens_fill(SEED, child, ids + PREFIX_TOKENS, CHILD_TOKENS);
    ids[PREFIX_TOKENS] = FRESH + child;
    w5->prompts.count[i] = PROMPT_TOKENS;
}

static void request(void *context, size_t i)
{
    struct w5 *w5 = context;
    fixture_request(&w5->fixture, w5->prompts.ids[i], w5->prompts.count[i]);
}

static void match(void *context, size_t i)
{
    struct w5 *w5 = context;
    uint64_t found =
        fixture_match(&w5->fixture, w5->prompts.ids[i], w5->prompts.count[i], NULL);
    REQUIRE(found == w5->expected);
}

static void match_many(void *context, size_t i)
{
    struct w5 *w5 = context;
    (void)i;
    for (size_t at = 0; at < BATCH; at++) {
        w5->tokens[at] = (rkv_tokens){.struct_size = sizeof *w5->tokens,
                                      .ids = w5->prompts.ids[at],
                                      .count = w5->prompts.count[at]};
        w5->items[at] = (rkv_cache_match_item){.tokens = &w5->tokens[at]};
        w5->found[at].struct_size = sizeof *w5->found;
    }
    CHECK(rkv_cache_match_many(w5->fixture.cache, w5->items, BATCH, sizeof *w5->items, w5->found,
                               sizeof *w5->found, w5->statuses));
    for (size_t at = 0; at < BATCH; at++) {
        REQUIRE(w5->found[at].position_count == w5->expected);
    }
}

enum operation { BUILD, MATCH, MATCH_MANY, AGAIN, PARTIAL, MISS, OPERATIONS };
static const struct {
    const char *name;
    double target;
} OPERATION[OPERATIONS] = {
    [BUILD] = {"request, new child", -1},
    [MATCH] = {"match", 0.5},
    [MATCH_MANY] = {"64 matches, a call for all", 64 * 0.12},
    [AGAIN] = {"the same 64 at once again", -1},
    [PARTIAL] = {"match that ends 8 tokens into a child", -1},
    [MISS] = {"match of the prefix, no such child", -1},
};

static void matches(struct w5 *w5, struct meter *meters, uint32_t children)
{
    size_t count = options.count ? 8 * BATCH : MATCHES;
    for (size_t first = 0; first < count; first += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            prepare(w5, rng_below(&w5->rng, children), i);
        }
        w5->expected = PROMPT_TOKENS;
        meter_calls(&meters[MATCH], match, w5, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            prepare(w5, rng_below(&w5->rng, children), i);
        }
        meter_calls(&meters[MATCH_MANY], match_many, w5, 1);
        /* All that it reads is in the processor's cache: what instructions take alone. */
        meter_calls(&meters[AGAIN], match_many, w5, 1);
        for (size_t i = 0; i < BATCH; i++) {
            w5->prompts.ids[i][PREFIX_TOKENS] = FRESH_MISS + (uint32_t)(first + i);
        }
        w5->expected = PREFIX_TOKENS;
        meter_calls(&meters[MISS], match, w5, BATCH);
    }
    /* Last: where pages are smaller than the match, it splits the children that it meets. */
    for (size_t first = 0; first < count / 4; first += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            prepare(w5, rng_below(&w5->rng, children), i);
            w5->prompts.ids[i][PREFIX_TOKENS + PARTIAL_TOKENS] = FRESH_MISS;
        }
        w5->expected = PREFIX_TOKENS + PARTIAL_TOKENS;
        if (options.index == RKV_INDEX_BLOCK_HASH) {
            /* Parts of pages are not compared. */
            w5->expected = page_floor(&w5->fixture, w5->expected);
        }
        meter_calls(&meters[PARTIAL], match, w5, BATCH);
    }
}

static void run(struct w5 *w5, struct meter *meters, uint32_t page_size, unsigned number,
                bool last)
{
    uint32_t children = options.count ? CHILDREN / 10 : CHILDREN;
    children -= children % BATCH;
    w5->rng.state = SEED;
    for (int i = 0; i < OPERATIONS; i++) {
        meter_begin(&meters[i], run_timing(number));
    }
    fixture_open(&w5->fixture, page_size, (size_t)(CHILDREN + 4) * CHILD_TOKENS, PROMPT_TOKENS);
    for (uint32_t first = 0; first < children; first += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            prepare(w5, first + i, i);
        }
        meter_calls(&meters[BUILD], request, w5, BATCH);
    }
    if (number == 0) {
        fixture_memory(&w5->fixture, "W5");
    }
    matches(w5, meters, children);
    if (last) {
        fixture_verify(&w5->fixture);
    }
    fixture_close(&w5->fixture);
    for (int i = 0; i < OPERATIONS; i++) {
        meter_end(&meters[i]);
    }
}

void run_w5(uint32_t page_size)
{
    static struct w5 w5;
    struct meter meters[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        meter_init(&meters[i], OPERATION[i].name);
    }
    prompts_init(&w5.prompts, BATCH, PROMPT_TOKENS);
    tokens_fill(SEED, UINT32_MAX, w5.prefix, PREFIX_TOKENS);
    unsigned runs = run_count(8);
    for (unsigned number = 0; number < runs; number++) {
        run(&w5, meters, page_size, number, number + 1 == runs);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        meter_emit(&meters[i], "W5", page_size, OPERATION[i].target, -1);
        meter_free(&meters[i]);
    }
    prompts_free(&w5.prompts);
    const struct floor_shape shape = {SEED, 2, {1, CHILDREN}, {PREFIX_TOKENS, CHILD_TOKENS}};
    const struct floor_names names = {.workload = "W5",
                                      .single = OPERATION[MATCH].name,
                                      .batch = OPERATION[MATCH_MANY].name,
                                      .batch_in_order = "64 matches, and the order of use"};
    floor_of_tree(&shape, &names, page_size);
}
