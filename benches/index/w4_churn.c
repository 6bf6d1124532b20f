/*
 * W4: a pool of 1.6 M tokens under a working set of four times that: documents of 1024 tokens
 * drawn by Zipf(0.9), each request with 64 unique tokens behind its document.
 */
#include "floor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_TOKENS = 1600000, WARM_UP = 20000, REQUESTS = 40000, SEED = 404 };
static const double ZIPF_EXPONENT = 0.9;
static const char TAIL[] = "churn request, p99";

void churn_open(struct churn *churn, uint32_t page_size)
{
    memset(churn, 0, sizeof *churn);
    churn->rng.state = SEED;
    prompts_init(&churn->prompts, BATCH, CHURN_PROMPT_TOKENS);
    churn->documents =
        allocate((size_t)CHURN_DOCUMENTS * CHURN_DOCUMENT_TOKENS, sizeof *churn->documents);
    churn->cumulative = allocate(CHURN_DOCUMENTS, sizeof *churn->cumulative);
    double sum = 0;
    for (uint32_t i = 0; i < CHURN_DOCUMENTS; i++) {
        uint32_t *ids = churn->documents + (size_t)i * CHURN_DOCUMENT_TOKENS;
        tokens_fill(SEED, i, ids, CHURN_DOCUMENT_TOKENS);
        ids[0] = FRESH_MISS + i;
        sum += pow(i + 1, -ZIPF_EXPONENT);
        churn->cumulative[i] = sum;
    }
    fixture_open(&churn->fixture, page_size, POOL_TOKENS, CHURN_PROMPT_TOKENS);
}

void churn_close(struct churn *churn)
{
    fixture_close(&churn->fixture);
    prompts_free(&churn->prompts);
    free(churn->documents);
    free(churn->cumulative);
}

uint32_t churn_document(const struct churn *churn, struct rng *rng)
{
    double wanted = rng_unit(rng) * churn->cumulative[CHURN_DOCUMENTS - 1];
    uint32_t low = 0;
    uint32_t high = CHURN_DOCUMENTS - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (churn->cumulative[middle] > wanted) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void churn_prepare(struct churn *churn, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t *ids = churn->prompts.ids[i];
        uint64_t number = churn->request_count++;
        uint32_t document = churn_document(churn, &churn->rng);
        memcpy(ids, churn->documents + (size_t)document * CHURN_DOCUMENT_TOKENS,
               CHURN_DOCUMENT_TOKENS * sizeof *ids);
        tokens_fill(SEED, UINT32_MAX + number, ids + CHURN_DOCUMENT_TOKENS, CHURN_SUFFIX_TOKENS);
        ids[CHURN_DOCUMENT_TOKENS] = FRESH + (uint32_t)number;
        churn->prompts.count[i] = CHURN_PROMPT_TOKENS;
    }
}

void churn_request(void *context, size_t i)
{
    struct churn *churn = context;
    fixture_request(&churn->fixture, churn->prompts.ids[i], churn->prompts.count[i]);
}

/* From an empty cache each time, so that the n-th request of every run does the same work. */
static void run(struct meter *warm_up, struct meter *meter, uint32_t page_size, unsigned number,
                bool last)
{
    struct churn churn;
    size_t warm_up_count = options.count ? WARM_UP / 5 : WARM_UP;
    size_t request_count = options.count ? REQUESTS / 20 : REQUESTS;
    churn_open(&churn, page_size);
    meter_begin(warm_up, run_timing(number));
    for (size_t first = 0; first < warm_up_count; first += BATCH) {
        churn_prepare(&churn, BATCH);
        meter_calls(warm_up, churn_request, &churn, BATCH);
    }
    meter_end(warm_up);
    meter_begin(meter, run_timing(number));
    for (size_t first = 0; first < request_count; first += BATCH) {
        churn_prepare(&churn, BATCH);
        meter_calls(meter, churn_request, &churn, BATCH);
    }
    meter_end(meter);
    if (number == 0) {
        fixture_memory(&churn.fixture, "W4");
    }
    if (last) {
        fixture_verify(&churn.fixture);
    }
    churn_close(&churn);
}

void run_w4(uint32_t page_size)
{
    struct meter warm_up;
    struct meter meter;
    meter_init(&warm_up, "request, while the pool fills");
    meter_init(&meter, "churn request");
    unsigned runs = run_count(10);
    for (unsigned number = 0; number < runs; number++) {
        run(&warm_up, &meter, page_size, number, number + 1 == runs);
    }
    meter_emit(&warm_up, "W4", page_size, -1, -1);
    meter_emit(&meter, "W4", page_size, 1.8, -1);
    if (!options.count) {
        struct row tail = meter_row(&meter, "W4", page_size);
        snprintf(tail.operation, sizeof tail.operation, "%s", TAIL);
        tail.median = median_of(meter.p99, meter.single_count);
        tail.quiet = meter_quiet_p99(&meter);
        tail.target = 5.5;
        row_emit(&tail);
    }
    meter_free(&warm_up);
    meter_free(&meter);
    floor_of_churn("W4", TAIL, page_size);
}
