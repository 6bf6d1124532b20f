/* The floors of long matches and of churn: comparing keys, copying keys and page numbers. */
#include "floor.h"

#include <stdlib.h>
#include <string.h>

enum { NODE_WORDS = 16384, LONG_CALLS = 64, DOCUMENT_CALLS = 512, PROMPTS = 8, SEED = 909 };

/* ---- a long match ------------------------------------------------------------------------ */

/*
 * All keys of a document are compared with the prompt's and its page numbers copied out, by the C
 * library's memcmp() and memcpy(), in pieces of 64 KiB as nodes have them. The prompts are copies
 * of lists of their own, as in W3: to copy the keys would fetch them. Left out: the way from node
 * to node, the times of use, letting others in.
 */
struct documents {
    uint32_t token_count, page_count, document_count, page_size;
    uint32_t *keys, *pages, *out;
    struct prompts prompts;
    uint32_t document[PROMPTS];
};

static void match(void *context, size_t i)
{
    struct documents *documents = context;
    size_t document = documents->document[i % PROMPTS];
    const uint32_t *keys = documents->keys + document * documents->token_count;
    const uint32_t *pages = documents->pages + document * documents->page_count;
    const uint32_t *ids = documents->prompts.ids[i % PROMPTS];
    size_t words = NODE_WORDS * documents->page_size / (documents->page_size + 1);
    words -= words % documents->page_size;
    for (size_t at = 0; at < documents->token_count; at += words) {
        size_t left = documents->token_count - at;
        size_t count = left < words ? left : words;
        REQUIRE(memcmp(keys + at, ids + at, count * sizeof *ids) == 0);
        memcpy(documents->out + at / documents->page_size, pages + at / documents->page_size,
               count / documents->page_size * sizeof *pages);
    }
}

void floor_of_documents(const char *workload, const char *operation, uint32_t document_count,
                        uint32_t token_count, uint32_t page_size)
{
    struct documents documents = {.token_count = token_count,
                                  .page_count = token_count / page_size,
                                  .document_count = document_count,
                                  .page_size = page_size};
    if (!floor_wanted(page_size)) {
        return;
    }
    size_t key_bytes = sizeof(uint32_t) * token_count * document_count;
    size_t page_bytes = key_bytes / page_size;
    size_t prompt_count = document_count > 1 ? PROMPTS : 1;
    documents.keys = floor_memory(key_bytes);
    documents.pages = floor_memory(page_bytes);
    documents.out = allocate(documents.page_count, sizeof *documents.out);
    uint32_t *lists = allocate((size_t)token_count * document_count, sizeof *lists);
    tokens_fill(SEED, 0, documents.keys, (size_t)token_count * document_count);
    memcpy(lists, documents.keys, key_bytes);
    prompts_init(&documents.prompts, prompt_count, token_count);
    struct meter meter;
    floor_name(&meter, workload, operation);
    unsigned runs = run_count(6);
    for (unsigned run = 0; run < runs; run++) {
        struct rng rng = {SEED};
        meter_begin(&meter, TIMING_BATCH);
        size_t calls = document_count > 1 ? DOCUMENT_CALLS : LONG_CALLS;
        for (size_t first = 0; first < calls; first += PROMPTS) {
            for (size_t i = 0; i < PROMPTS; i++) {
                uint32_t document = rng_below(&rng, document_count);
                documents.document[i] = document;
                /* One document is asked for where its list lies. */
                if (document_count > 1 || (run == 0 && first + i == 0)) {
                    memcpy(documents.prompts.ids[i], lists + (size_t)document * token_count,
                           token_count * sizeof *lists);
                }
            }
            meter_calls(&meter, match, &documents, PROMPTS);
        }
        meter_end(&meter);
    }
    meter_emit(&meter, "floor", page_size, -1, -1);
    meter_free(&meter);
    floor_memory_free(documents.keys, key_bytes);
    floor_memory_free(documents.pages, page_bytes);
    free(documents.out);
    free(lists);
    prompts_free(&documents.prompts);
}

/* ---- churn ------------------------------------------------------------------------------- */

/*
 * A request of which nothing is cached, in a full pool: the longest that W4 has, and one of ten or
 * so. The pages of something old become its own: their numbers are read, each page's state, a byte,
 * is written, in no order, and the numbers are written into the sequence's row and into the new
 * segment, where the prompt's keys are copied to. Left out: looking for anything, nodes and the
 * order of what is old, the free list, events.
 */
enum { POOL_TOKENS = 1600000, CHURN_CALLS = 8192 };

struct churn_floor {
    struct prompts prompts;
    uint32_t page_size, page_count, segment_count;
    uint32_t *words;            /* segments of keys and pages */
    uint8_t *states;
    uint32_t *row;
    uint32_t *old;              /* segments in the order in which they go */
    size_t call_count;
};

static void take_over(void *context, size_t i)
{
    struct churn_floor *churn = context;
    size_t number = churn->old[churn->call_count++ % churn->segment_count];
    uint32_t *keys = churn->words + number * (CHURN_PROMPT_TOKENS + churn->page_count);
    uint32_t *pages = keys + CHURN_PROMPT_TOKENS;
    for (uint32_t page = 0; page < churn->page_count; page++) {
        uint32_t taken = pages[page];
        churn->states[taken]++;
        churn->row[page] = taken;
        *(volatile uint32_t *)&pages[page] = taken;
    }
    memcpy(keys, churn->prompts.ids[i], CHURN_PROMPT_TOKENS * sizeof *keys);
}

void floor_of_churn(const char *workload, const char *operation, uint32_t page_size)
{
    struct churn_floor churn = {.page_size = page_size};
    if (!floor_wanted(page_size)) {
        return;
    }
    churn.page_count = CHURN_PROMPT_TOKENS / page_size;
    churn.segment_count = POOL_TOKENS / CHURN_PROMPT_TOKENS;
    size_t page_count = (size_t)churn.page_count * churn.segment_count;
    size_t word_count = page_count + (size_t)CHURN_PROMPT_TOKENS * churn.segment_count;
    churn.words = floor_memory(word_count * sizeof *churn.words);
    churn.states = floor_memory(page_count);
    churn.row = allocate(churn.page_count, sizeof *churn.row);
    churn.old = allocate(churn.segment_count, sizeof *churn.old);
    prompts_init(&churn.prompts, BATCH, CHURN_PROMPT_TOKENS);
    struct rng rng = {SEED};
    uint32_t *numbers = allocate(page_count, sizeof *numbers);
    for (size_t i = 0; i < page_count; i++) {
        numbers[i] = (uint32_t)i;
    }
    rng_shuffle(&rng, numbers, page_count);
    for (uint32_t i = 0; i < churn.segment_count; i++) {
        uint32_t *segment = churn.words + (size_t)i * (CHURN_PROMPT_TOKENS + churn.page_count);
        memcpy(segment + CHURN_PROMPT_TOKENS, numbers + (size_t)i * churn.page_count,
               churn.page_count * sizeof *numbers);
        churn.old[i] = i;
    }
    free(numbers);
    rng_shuffle(&rng, churn.old, churn.segment_count);
    struct meter meter;
    floor_name(&meter, workload, operation);
    unsigned runs = run_count(6);
    for (unsigned run = 0; run < runs; run++) {
        churn.call_count = 0;
        meter_begin(&meter, TIMING_BATCH);
        for (size_t i = 0; i < CHURN_CALLS; i += BATCH) {
            for (size_t at = 0; at < BATCH; at++) {
                tokens_fill(SEED, i + at, churn.prompts.ids[at], CHURN_PROMPT_TOKENS);
            }
            meter_calls(&meter, take_over, &churn, BATCH);
        }
        meter_end(&meter);
    }
    meter_emit(&meter, "floor", page_size, -1, -1);
    meter_free(&meter);
    floor_memory_free(churn.words, word_count * sizeof *churn.words);
    floor_memory_free(churn.states, page_count);
    free(churn.row);
    free(churn.old);
    prompts_free(&churn.prompts);
}
