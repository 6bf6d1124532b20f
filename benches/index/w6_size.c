/*
 * W6: a 6-level 10-ary tree of 64-token edges, grown leaf by leaf in random order; at 1 k, 10 k,
 * 100 k and 1 M leaves the cost of each operation.
 *
 * A leaf is a number below 10^6; its decimal digits are the edges of its path. At fewer than 10^6
 * leaves the tree is as deep in tokens, and edges that do not branch yet are one node.
 */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 6, EDGE_TOKENS = 64, PATH_TOKENS = LEVELS * EDGE_TOKENS, LEAVES = 1000000 };
enum { EDGES = 1111110, SIZES = 4, SEED = 606, MATCHES = 16384, EVICTIONS = 2048 };
static const uint32_t SIZE[SIZES] = {1000, 10000, 100000, 1000000};
static const char *const SIZE_NAME[SIZES] = {"1 k", "10 k", "100 k", "1 M"};

struct w6 {
    struct fixture fixture;
    struct prompts prompts;
    struct rng rng;
    uint32_t *order;            /* leaves in the order of their insertion */
    uint32_t *page_leaf;        /* leaf with which a page was claimed */
    uint32_t leaf[BATCH];
    uint64_t expected;
    rkv_cache_match_result matches[BATCH];
    rkv_cache_insert_result inserted[BATCH];
    uint32_t *pages[BATCH];     /* of the whole path */
    uint32_t *published[BATCH];
    uint32_t path_pages, edge_pages;
    uint32_t *evicted;
    size_t evicted_count;
    rkv_tokens tokens[BATCH];
    rkv_cache_match_item match_items[BATCH];
    rkv_cache_probe_item probe_items[BATCH];
    rkv_cache_probe_result probed[BATCH];
    rkv_status statuses[BATCH];
};

enum operation {
    GROW_MATCH, ALLOCATE, INSERT, HIT, MISS, LOCK, UNLOCK, EVICT,
    MATCH_EACH, MATCH_MANY, PROBE_EACH, PROBE_MANY, OPERATIONS
};
static const struct {
    const char *name;
    double target_least, target_most;   /* at 1 k and at 1 M leaves */
} OPERATION[OPERATIONS] = {
    [GROW_MATCH] = {"match of a leaf to be", -1, -1},
    [ALLOCATE] = {"allocate its pages", -1, -1},
    [INSERT] = {"insert", -1, -1},
    [HIT] = {"match, hit", 0.22, 1.5},
    [MISS] = {"match, miss", -1, -1},
    [LOCK] = {"lock", -1, -1},
    [UNLOCK] = {"unlock", -1, -1},
    [EVICT] = {"evict 64 tokens", 0.25, 1.2},
    [MATCH_EACH] = {"64 matches, a call for each", -1, -1},
    [MATCH_MANY] = {"64 matches, a call for all", -1, 32},
    [PROBE_EACH] = {"64 probes, a call for each", -1, -1},
    [PROBE_MANY] = {"64 probes, a call for all", -1, -1},
};

static void write_path(uint32_t leaf, uint32_t *ids)
{
    uint32_t divisor = LEAVES;
    for (uint32_t level = 0; level < LEVELS; level++) {
        divisor /= 10;
        /* An edge is named by its level and the digits down to it. */
        tokens_fill(SEED + level, leaf / divisor, ids + level * EDGE_TOKENS, EDGE_TOKENS);
    }
}

static void match(void *context, size_t i)
{
    struct w6 *w6 = context;
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = w6->prompts.ids[i], .count = PATH_TOKENS};
    w6->matches[i].struct_size = sizeof w6->matches[i];
    CHECK(rkv_cache_match(w6->fixture.cache, NULL, &tokens, 0, w6->pages[i], w6->path_pages,
                          &w6->matches[i]));
}

static void match_expected(void *context, size_t i)
{
    struct w6 *w6 = context;
    match(context, i);
    REQUIRE(w6->matches[i].position_count == w6->expected);
}

static void match_each(void *context, size_t i)
{
    (void)i;
    for (size_t at = 0; at < BATCH; at++) {
        match_expected(context, at);
    }
}

static void match_many(void *context, size_t i)
{
    struct w6 *w6 = context;
    (void)i;
    for (size_t at = 0; at < BATCH; at++) {
        w6->match_items[at] = (rkv_cache_match_item){
            .tokens = &w6->tokens[at], .pages = w6->pages[at], .page_capacity = w6->path_pages};
    }
    CHECK(rkv_cache_match_many(w6->fixture.cache, w6->match_items, BATCH,
                               sizeof *w6->match_items, w6->matches, sizeof *w6->matches,
                               w6->statuses));
    for (size_t at = 0; at < BATCH; at++) {
        REQUIRE(w6->matches[at].position_count == w6->expected);
    }
}

static void probe_each(void *context, size_t i)
{
    struct w6 *w6 = context;
    (void)i;
    for (size_t at = 0; at < BATCH; at++) {
        size_t position_count;
        CHECK(rkv_cache_probe(w6->fixture.cache, NULL, &w6->tokens[at], NULL, &position_count));
        REQUIRE(position_count == w6->expected);
    }
}

static void probe_many(void *context, size_t i)
{
    struct w6 *w6 = context;
    (void)i;
    for (size_t at = 0; at < BATCH; at++) {
        w6->probe_items[at] = (rkv_cache_probe_item){.tokens = &w6->tokens[at]};
    }
    CHECK(rkv_cache_probe_many(w6->fixture.cache, w6->probe_items, BATCH,
                               sizeof *w6->probe_items, w6->probed, sizeof *w6->probed,
                               w6->statuses));
    for (size_t at = 0; at < BATCH; at++) {
        REQUIRE(w6->probed[at].position_count == w6->expected);
    }
}

static void allocate_pages(void *context, size_t i)
{
    struct w6 *w6 = context;
    size_t shared = w6->matches[i].page_count;
    CHECK(rkv_page_table_allocate_pages(w6->fixture.table, w6->path_pages - shared,
                                        w6->pages[i] + shared));
}

static void insert(void *context, size_t i)
{
    struct w6 *w6 = context;
    const rkv_cache_match_result *from = &w6->matches[i];
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = w6->prompts.ids[i], .count = PATH_TOKENS};
    rkv_cache_insert_args args = {
        .struct_size = sizeof args,
        .tokens = &tokens,
        .pages = w6->pages[i],
        .page_count = w6->path_pages,
        .from_node = from->node,
        .from_page_index = from->page_count,
        .from_token_index = from->page_count * w6->fixture.page_size,
    };
    w6->inserted[i].struct_size = sizeof w6->inserted[i];
    CHECK(rkv_cache_insert(w6->fixture.cache, &args, w6->published[i], &w6->inserted[i]));
}

static void lock(void *context, size_t i)
{
    struct w6 *w6 = context;
    CHECK(rkv_cache_lock(w6->fixture.cache, w6->matches[i].node, &w6->matches[i].lock));
}

static void unlock(void *context, size_t i)
{
    struct w6 *w6 = context;
    CHECK(rkv_cache_unlock(w6->fixture.cache, w6->matches[i].lock));
}

static void evict(void *context, size_t i)
{
    struct w6 *w6 = context;
    size_t count;
    (void)i;
    CHECK(rkv_cache_evict(w6->fixture.cache, w6->edge_pages, w6->evicted + w6->evicted_count,
                          w6->edge_pages, &count));
    REQUIRE(count == w6->edge_pages);
    w6->evicted_count += count;
}

/* Notes who claimed what, and frees the pages that a leaf of the same batch had published. */
static void settle(struct w6 *w6, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t duplicates[PATH_TOKENS];
        size_t duplicate_count = 0;
        for (uint32_t page = (uint32_t)w6->matches[i].page_count; page < w6->path_pages; page++) {
            if (w6->published[i][page] == w6->pages[i][page]) {
                w6->page_leaf[w6->pages[i][page]] = w6->leaf[i];
            } else {
                duplicates[duplicate_count++] = w6->pages[i][page];
            }
        }
        REQUIRE(duplicate_count == w6->inserted[i].duplicate_page_count);
        if (duplicate_count > 0) {
            CHECK(rkv_page_table_free_pages(w6->fixture.table, duplicates, duplicate_count));
        }
    }
}

static void insert_leaves(struct w6 *w6, struct meter *meters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        write_path(w6->leaf[i], w6->prompts.ids[i]);
    }
    meter_calls(&meters[GROW_MATCH], match, w6, count);
    meter_calls(&meters[ALLOCATE], allocate_pages, w6, count);
    meter_calls(&meters[INSERT], insert, w6, count);
    settle(w6, count);
}

static int compare_leaves(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Puts back the leaves that lost pages: without them the tree would shrink under the meter. */
static void restore(struct w6 *w6)
{
    for (size_t i = 0; i < w6->evicted_count; i++) {
        w6->evicted[i] = w6->page_leaf[w6->evicted[i]];
    }
    qsort(w6->evicted, w6->evicted_count, sizeof *w6->evicted, compare_leaves);
    for (size_t i = 0; i < w6->evicted_count; i++) {
        if (i > 0 && w6->evicted[i] == w6->evicted[i - 1]) {
            continue;
        }
        w6->leaf[0] = w6->evicted[i];
        write_path(w6->leaf[0], w6->prompts.ids[0]);
        match(w6, 0);
        if (w6->matches[0].page_count < w6->path_pages) {
            allocate_pages(w6, 0);
            insert(w6, 0);
            settle(w6, 1);
        }
    }
    w6->evicted_count = 0;
}

static void measure(struct w6 *w6, struct meter *meters, uint32_t leaf_count)
{
    size_t match_count = options.count ? 8 * BATCH : MATCHES;
    for (size_t first = 0; first < match_count; first += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            write_path(w6->order[rng_below(&w6->rng, leaf_count)], w6->prompts.ids[i]);
        }
        w6->expected = PATH_TOKENS;
        meter_calls(&meters[HIT], match_expected, w6, BATCH);
        meter_calls(&meters[LOCK], lock, w6, BATCH);
        meter_calls(&meters[UNLOCK], unlock, w6, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            w6->prompts.ids[i][0] = FRESH_MISS + (uint32_t)i;
        }
        w6->expected = 0;
        meter_calls(&meters[MISS], match_expected, w6, BATCH);
    }
    /* Each time of other leaves: what was looked for before is in the processor's cache. */
    static const struct {
        enum operation operation;
        void (*call)(void *, size_t);
    } AT_ONCE[] = {
        {MATCH_EACH, match_each}, {MATCH_MANY, match_many},
        {PROBE_EACH, probe_each}, {PROBE_MANY, probe_many},
    };
    w6->expected = PATH_TOKENS;
    for (size_t first = 0; first < match_count; first += BATCH) {
        for (size_t kind = 0; kind < sizeof AT_ONCE / sizeof *AT_ONCE; kind++) {
            for (size_t i = 0; i < BATCH; i++) {
                write_path(w6->order[rng_below(&w6->rng, leaf_count)], w6->prompts.ids[i]);
            }
            meter_calls(&meters[AT_ONCE[kind].operation], AT_ONCE[kind].call, w6, 1);
        }
    }
    size_t eviction_count = options.count ? 8 * BATCH : EVICTIONS;
    for (size_t first = 0; first < eviction_count; first += BATCH) {
        meter_calls(&meters[EVICT], evict, w6, BATCH);
        restore(w6);
    }
}

static void run(struct w6 *w6, struct meter meters[SIZES][OPERATIONS], uint32_t page_size,
                unsigned number, bool last)
{
    size_t capacity = (size_t)EDGES * EDGE_TOKENS + 2 * BATCH * PATH_TOKENS;
    uint32_t leaf_count = 0;
    fixture_open(&w6->fixture, page_size, capacity, PATH_TOKENS);
    w6->rng.state = SEED;
    for (unsigned size = 0; size < SIZES && SIZE[size] <= options.leaf_limit; size++) {
        for (int i = 0; i < OPERATIONS; i++) {
            meter_begin(&meters[size][i], run_timing(number));
        }
        while (leaf_count < SIZE[size]) {
            size_t count = SIZE[size] - leaf_count < BATCH ? SIZE[size] - leaf_count : BATCH;
            memcpy(w6->leaf, w6->order + leaf_count, count * sizeof *w6->leaf);
            insert_leaves(w6, meters[size], count);
            leaf_count += (uint32_t)count;
        }
        if (number == 0 && size + 1 == SIZES) {
            fixture_memory(&w6->fixture, "W6");
        }
        measure(w6, meters[size], leaf_count);
        for (int i = 0; i < OPERATIONS; i++) {
            meter_end(&meters[size][i]);
        }
    }
    if (last) {
        fixture_verify(&w6->fixture);
    }
    fixture_close(&w6->fixture);
}

static void emit_ratio(const struct meter *small, const struct meter *large, const char *name,
                       uint32_t page_size)
{
    struct row low = meter_row(small, "W6", page_size);
    struct row high = meter_row(large, "W6", page_size);
    char operation[sizeof high.operation];
    snprintf(operation, sizeof operation, "%s, cost at 1 M / 1 k", name);
    struct row row = row_new("W6", operation, page_size);
    row.unit = UNIT_RATIO;
    /* Of the quiet times: noise does not meet both sizes alike. */
    row.median = row.quiet = high.quiet / low.quiet;
    row.target = 3;
    row_emit(&row);
}

/* The rule "no call over 50 us", over every single call of the workload, growth included. */
static void emit_longest(struct meter meters[SIZES][OPERATIONS], uint32_t page_size)
{
    const struct meter *worst = &meters[0][0];
    for (int i = 0; i < SIZES * OPERATIONS; i++) {
        const struct meter *meter = &meters[i / OPERATIONS][i % OPERATIONS];
        bool is_single = i % OPERATIONS < MATCH_EACH;
        if (is_single && meter_row(meter, "W6", page_size).longest >
            meter_row(worst, "W6", page_size).longest) {
            worst = meter;
        }
    }
    longest_emit(worst, "W6", page_size);
}

static void emit(struct meter meters[SIZES][OPERATIONS], uint32_t page_size)
{
    for (int i = 0; i < OPERATIONS; i++) {
        for (unsigned size = 0; size < SIZES && SIZE[size] <= options.leaf_limit; size++) {
            double target = size == 0           ? OPERATION[i].target_least
                            : size + 1 == SIZES ? OPERATION[i].target_most
                                                : -1;
            meter_emit(&meters[size][i], "W6", page_size, target, -1);
        }
        /* Of lookups those in batches: a single one waits for memory, one load after another. */
        bool is_compared = i == INSERT || (i >= LOCK && i <= EVICT) || i == MATCH_MANY;
        if (options.leaf_limit >= LEAVES && !options.count && is_compared) {
            emit_ratio(&meters[0][i], &meters[SIZES - 1][i], OPERATION[i].name, page_size);
        }
    }
    if (!options.count) {
        emit_longest(meters, page_size);
    }
}

static void init(struct w6 *w6, uint32_t page_size)
{
    w6->path_pages = PATH_TOKENS / page_size;
    w6->edge_pages = EDGE_TOKENS / page_size;
    w6->order = allocate(LEAVES, sizeof *w6->order);
    w6->page_leaf = allocate((size_t)EDGES * w6->edge_pages + 2 * BATCH * w6->path_pages + 1,
                             sizeof *w6->page_leaf);
    w6->evicted = allocate((size_t)BATCH * w6->edge_pages, sizeof *w6->evicted);
    for (uint32_t i = 0; i < LEAVES; i++) {
        w6->order[i] = i;
    }
    struct rng rng = {SEED};
    rng_shuffle(&rng, w6->order, LEAVES);
    prompts_init(&w6->prompts, BATCH, PATH_TOKENS);
    for (size_t i = 0; i < BATCH; i++) {
        w6->pages[i] = allocate(w6->path_pages, sizeof **w6->pages);
        w6->published[i] = allocate(w6->path_pages, sizeof **w6->published);
        w6->tokens[i] = (rkv_tokens){
            .struct_size = sizeof w6->tokens[i], .ids = w6->prompts.ids[i], .count = PATH_TOKENS};
    }
}

/* A tree of 10^n leaves has n levels here: edges that do not branch are one with the last. */
static void measure_floor(unsigned size, uint32_t page_size)
{
    char name[3][56];
    const enum operation operation[3] = {HIT, MATCH_MANY, EVICT};
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "%s, %s leaves", OPERATION[operation[i]].name,
                 SIZE_NAME[size]);
    }
    struct floor_shape shape = {.seed = SEED, .level_count = size + 3};
    uint32_t nodes = 1;
    for (unsigned level = 0; level < shape.level_count; level++) {
        shape.nodes[level] = nodes *= 10;
        shape.keys[level] = EDGE_TOKENS;
    }
    shape.keys[shape.level_count - 1] += (LEVELS - shape.level_count) * EDGE_TOKENS;
    const struct floor_names names = {.workload = "W6", .single = name[0], .batch = name[1],
                                      .evict = name[2], .batch_reads_pages = true};
    floor_of_tree(&shape, &names, page_size);
}

void run_w6(uint32_t page_size)
{
    static struct w6 w6;
    static struct meter meters[SIZES][OPERATIONS];
    for (unsigned size = 0; size < SIZES; size++) {
        for (int i = 0; i < OPERATIONS; i++) {
            char name[56];
            snprintf(name, sizeof name, "%s, %s leaves", OPERATION[i].name, SIZE_NAME[size]);
            meter_init(&meters[size][i], name);
        }
    }
    init(&w6, page_size);
    /* Three runs timed singly: that one call of a million is interrupted in all is unlikely. */
    unsigned runs = run_count(6);
    for (unsigned number = 0; number < runs; number++) {
        run(&w6, meters, page_size, number, number + 1 == runs);
    }
    emit(meters, page_size);
    for (unsigned size = 0; size < SIZES && SIZE[size] <= options.leaf_limit; size++) {
        /* What has targets. */
        if (size == 0 || size + 1 == SIZES) {
            measure_floor(size, page_size);
        }
    }
}
