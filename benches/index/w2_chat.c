/*
 * W2: 500 conversations of 8 turns; each turn appends 50 to 400 tokens and asks with the whole
 * history. All turns shuffled together.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { CONVERSATIONS = 500, TURNS = 8, TURN_LEAST = 50, TURN_MOST = 400, SEED = 202 };
enum { HISTORY_TOKENS = TURNS * TURN_MOST, REQUESTS = CONVERSATIONS * TURNS };

struct w2 {
    struct fixture fixture;
    struct prompts prompts;
    uint32_t (*history)[HISTORY_TOKENS];
    uint32_t end[CONVERSATIONS][TURNS];     /* tokens of the history after each turn */
    uint32_t order[REQUESTS];               /* conversation of each request */
    uint32_t next_turn[CONVERSATIONS];
};

static void write_conversations(struct w2 *w2)
{
    struct rng rng = {SEED};
    for (uint32_t c = 0; c < CONVERSATIONS; c++) {
        uint32_t end = 0;
        for (uint32_t t = 0; t < TURNS; t++) {
            uint32_t count = TURN_LEAST + rng_below(&rng, TURN_MOST - TURN_LEAST + 1);
            tokens_fill(SEED, c * TURNS + t, w2->history[c] + end, count);
            w2->history[c][end] = FRESH + c * TURNS + t;
            end += count;
            w2->end[c][t] = end;
            w2->order[c * TURNS + t] = c;
        }
    }
    rng_shuffle(&rng, w2->order, REQUESTS);
}

static void prepare(struct w2 *w2, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t c = w2->order[first + i];
        size_t length = w2->end[c][w2->next_turn[c]++];
        memcpy(w2->prompts.ids[i], w2->history[c], length * sizeof **w2->history);
        w2->prompts.count[i] = length;
    }
}

static void request(void *context, size_t i)
{
    struct w2 *w2 = context;
    fixture_request(&w2->fixture, w2->prompts.ids[i], w2->prompts.count[i]);
}

static void run(struct w2 *w2, struct meter *meter, uint32_t page_size, unsigned number, bool last)
{
    size_t request_count = options.count ? REQUESTS / 2 : REQUESTS;
    memset(w2->next_turn, 0, sizeof w2->next_turn);
    fixture_open(&w2->fixture, page_size, CONVERSATIONS * HISTORY_TOKENS + HISTORY_TOKENS,
                 HISTORY_TOKENS);
    meter_begin(meter, run_timing(number));
    for (size_t first = 0; first < request_count; first += BATCH) {
        size_t count = request_count - first < BATCH ? request_count - first : BATCH;
        prepare(w2, first, count);
        meter_calls(meter, request, w2, count);
    }
    meter_end(meter);
    if (number == 0) {
        fixture_memory(&w2->fixture, "W2");
    }
    if (last) {
        fixture_verify(&w2->fixture);
    }
    fixture_close(&w2->fixture);
}

void run_w2(uint32_t page_size)
{
    static struct w2 w2;
    struct meter meter;
    meter_init(&meter, "chat request");
    w2.history = allocate(CONVERSATIONS, sizeof *w2.history);
    prompts_init(&w2.prompts, BATCH, HISTORY_TOKENS);
    write_conversations(&w2);
    unsigned runs = run_count(14);
    for (unsigned number = 0; number < runs; number++) {
        run(&w2, &meter, page_size, number, number + 1 == runs);
    }
    meter_emit(&meter, "W2", page_size, 1.2, -1);
    meter_free(&meter);
    prompts_free(&w2.prompts);
    free(w2.history);
}
