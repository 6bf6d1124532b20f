/*
 * The snapshot cache through its C ABI: what a lookup costs among 1 to 100,000 entries, beside a
 * linear scan over the same token lists, and what inserts and evictions cost.
 */
#include "snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options options;

enum { MATCHES = 16000, CHURN = 16000 };

static const uint32_t COUNTS[] = {1, 8, 64, 1000, 10000, 100000};
enum { COUNT_COUNT = sizeof COUNTS / sizeof *COUNTS };
/* Of these numbers of entries only this one is measured, and 1000, which it is compared with. */
static uint32_t only_count;

struct bench {
    enum shape shape;
    rkv_snapshot_cache *cache;
    uint32_t entry_count;
    struct prompts prompts;
    size_t expected[BATCH];
    struct rng rng;
    struct scan scan;
    struct floor *floor;
    struct floor_way ways[BATCH];
};

static rkv_tokens tokens_of(const struct bench *bench, size_t i)
{
    return (rkv_tokens){
        .struct_size = sizeof(rkv_tokens),
        .ids = bench->prompts.ids[i],
        .count = bench->prompts.count[i],
    };
}

/* Found, read and let go: what an engine does for each request. */
static void match_and_release(void *context, size_t i)
{
    struct bench *bench = context;
    rkv_tokens tokens = tokens_of(bench, i);
    rkv_snapshot_cache_match_result match = {.struct_size = sizeof match};
    CHECK(rkv_snapshot_cache_match(bench->cache, NULL, &tokens, 0, &match));
    REQUIRE(match.token_count == bench->expected[i]);
    CHECK(rkv_snapshot_cache_release(bench->cache, match.pin));
}

static void probe(void *context, size_t i)
{
    struct bench *bench = context;
    rkv_tokens tokens = tokens_of(bench, i);
    size_t count = 0;
    CHECK(rkv_snapshot_cache_probe(bench->cache, NULL, &tokens, &count));
    REQUIRE(count == bench->expected[i]);
}

static void scan(void *context, size_t i)
{
    struct bench *bench = context;
    size_t count = scan_longest(&bench->scan, bench->prompts.ids[i], bench->prompts.count[i]);
    REQUIRE(count == bench->expected[i]);
}

static void find_floor(void *context, size_t i)
{
    struct bench *bench = context;
    size_t count = floor_match(bench->floor, &bench->ways[i], bench->prompts.ids[i]);
    REQUIRE(count == bench->expected[i]);
}

static void insert(void *context, size_t i)
{
    static char state;
    struct bench *bench = context;
    rkv_tokens tokens = tokens_of(bench, i);
    rkv_snapshot_cache_insert_args args = {
        .struct_size = sizeof args,
        .tokens = &tokens,
        .data = &state,
        .size_bytes = 1,
        .flags = options.storable ? RKV_SNAPSHOT_INSERT_STORABLE : 0,
    };
    CHECK(rkv_snapshot_cache_insert(bench->cache, &args, NULL));
}

/* Prompts written just before they are used, as a tokenizer would leave them. */
static void prepare(struct bench *bench, size_t i, uint32_t entry, size_t more)
{
    uint32_t *ids = bench->prompts.ids[i];
    bench->expected[i] = list_of(bench->shape, entry, ids);
    for (size_t at = 0; at < more; at++) {
        ids[bench->expected[i] + at] = FRESH_MISS + (uint32_t)at;
    }
    bench->prompts.count[i] = bench->expected[i] + more;
    if (entry < bench->entry_count) {
        floor_way(bench->floor, entry, &bench->ways[i]);
    }
}

/* A directory to which nothing is written but what leaves memory: what the owner's own thread pays
 * is measured, and nothing of the threads that write. */
static void attach(rkv_snapshot_cache *cache)
{
    static unsigned number;
    char path[4096];
    snprintf(path, sizeof path, "%s/%u", options.directory, number++);
    rkv_snapshot_tier_config config;
    CHECK(rkv_snapshot_tier_config_init(&config, sizeof config));
    config.directory = path;
    config.byte_limit = 1 << 30;
    config.write_after_matches = UINT32_MAX;
    config.worker_count = 1;
    CHECK(rkv_snapshot_cache_attach(cache, &config));
}

static void open_bench(struct bench *bench, enum shape shape, uint32_t entry_count)
{
    rkv_snapshot_cache_config config;
    CHECK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_count;
    CHECK(rkv_snapshot_cache_create(&config, &bench->cache));
    if (options.directory != NULL) {
        attach(bench->cache);
    }
    bench->shape = shape;
    bench->entry_count = entry_count;
    bench->rng.state = 17;
    /* In random order, as requests come. */
    uint32_t *order = allocate(entry_count, sizeof *order);
    for (uint32_t i = 0; i < entry_count; i++) {
        order[i] = i;
    }
    rng_shuffle(&bench->rng, order, entry_count);
    for (uint32_t i = 0; i < entry_count; i++) {
        prepare(bench, 0, order[i], 0);
        insert(bench, 0);
    }
    free(order);
}

static void lookups_from(struct bench *bench, struct meter *meter, timed_call call, size_t count,
                         uint32_t first_entry, uint32_t entry_count)
{
    for (size_t first = 0; first < count; first += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            prepare(bench, i, first_entry + rng_below(&bench->rng, entry_count), NEW_TOKENS);
        }
        meter_calls(meter, call, bench, BATCH);
    }
}

static void lookups(struct bench *bench, struct meter *meter, timed_call call, size_t count)
{
    lookups_from(bench, meter, call, count, 0, bench->entry_count);
}

/* Inserts of new lists into a full cache: each lets the oldest entry go. */
static void churn(struct bench *bench, struct meter *meter)
{
    uint32_t count = options.count ? 8 * BATCH : CHURN;
    for (uint32_t first = 0; first < count; first += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            prepare(bench, i, bench->entry_count + first + i, 0);
        }
        meter_calls(meter, insert, bench, BATCH);
    }
}

enum operation { MATCH, PROBE, INSERT, SCAN, FLOOR, LATER, OPERATIONS };
static const char *const OPERATION[OPERATIONS] = {
    [MATCH] = "match and release",
    [PROBE] = "probe",
    [INSERT] = "insert that evicts",
    [SCAN] = "linear scan",
    [FLOOR] = "floor of match and release",
    [LATER] = "match and release, others evicted",
};

/* Scans of many entries take milliseconds each: fewer of them will do. */
static size_t scan_calls(uint32_t entry_count)
{
    size_t calls = (size_t)MATCHES * 64 / (entry_count + 64);
    return calls < BATCH ? BATCH : calls / BATCH * BATCH;
}

static void measure(enum shape shape, uint32_t entry_count, struct row rows[OPERATIONS],
                    uint64_t *out_index_bytes)
{
    static struct bench bench;
    struct meter meters[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        char name[sizeof meters[i].operation];
        snprintf(name, sizeof name, "%s, %u: %s", SHAPE[shape], entry_count, OPERATION[i]);
        meter_init(&meters[i], name);
    }
    prompts_init(&bench.prompts, BATCH, PROMPT_LIMIT);
    scan_open(&bench.scan, shape, entry_count);
    bench.floor = floor_open(shape, entry_count);
    unsigned runs = run_count(8);
    for (unsigned number = 0; number < runs; number++) {
        for (int i = 0; i < OPERATIONS; i++) {
            meter_begin(&meters[i], run_timing(number));
        }
        open_bench(&bench, shape, entry_count);
        size_t matches = options.count ? 8 * BATCH : MATCHES;
        lookups(&bench, &meters[MATCH], match_and_release, matches);
        lookups(&bench, &meters[PROBE], probe, matches);
        if (!options.count) {
            lookups(&bench, &meters[FLOOR], find_floor, matches);
        }
        if (number < 4 && !options.count) {
            lookups(&bench, &meters[SCAN], scan, scan_calls(entry_count));
        }
        rkv_snapshot_cache_stats stats = {.struct_size = sizeof stats};
        CHECK(rkv_snapshot_cache_read_stats(bench.cache, &stats));
        *out_index_bytes = stats.index_bytes;
        churn(&bench, &meters[INSERT]);
        if (options.count) {
            /* Of what the churn brought, and did not let go again. */
            lookups_from(&bench, &meters[LATER], match_and_release, matches, entry_count,
                         8 * BATCH);
        }
        CHECK(rkv_snapshot_cache_check(bench.cache));
        rkv_snapshot_cache_destroy(bench.cache);
        for (int i = 0; i < OPERATIONS; i++) {
            meter_end(&meters[i]);
        }
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (!options.count) {
            rows[i] = meter_row(&meters[i], SHAPE[shape], 0);
        }
        meter_free(&meters[i]);
    }
    scan_close(&bench.scan);
    floor_close(bench.floor);
    prompts_free(&bench.prompts);
}

/* Nothing for what one run does not show. */
static const char *number(char *text, size_t size, double value)
{
    if (value < 0) {
        return "";
    }
    snprintf(text, size, value < 0.9995 ? "%.3f" : value < 99.95 ? "%.2f" : "%.0f", value);
    return text;
}

/* What both take at 1000 entries; 0 before those were measured. */
struct small {
    double match, floor;
};

static void print_line(enum shape shape, uint32_t entry_count,
                       const struct row rows[OPERATIONS], const struct small *small,
                       uint64_t index_bytes)
{
    const struct row *match = &rows[MATCH];
    double values[] = {match->median,          match->quiet,       match->p50,
                       match->p99,             rows[PROBE].median, rows[INSERT].median,
                       rows[INSERT].p99,       rows[SCAN].median,  rows[SCAN].quiet / match->quiet};
    printf("| %s | %u |", SHAPE[shape], entry_count);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[24];
        printf(" %s |", number(text, sizeof text, values[i]));
    }
    char text[24];
    printf(" %s |", number(text, sizeof text, rows[FLOOR].quiet));
    if (small->match > 0) {
        double floor = small->match + rows[FLOOR].quiet - small->floor;
        printf(" %.2f | %.2f |", match->quiet / small->match, floor / small->match);
    } else {
        printf(" | |");
    }
    printf(" %.2f |\n", (double)index_bytes / 1e6);
    fflush(stdout);
}

/* Under callgrind: two sizes, instructions instead of time. */
static void count_instructions(void)
{
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        for (uint32_t entry_count = 1000; entry_count <= 10000; entry_count *= 10) {
            struct row rows[OPERATIONS];
            uint64_t index_bytes;
            measure(shape, entry_count, rows, &index_bytes);
        }
    }
}

static void measure_all(void)
{
    printf("Library of commit %s; %s, %ld cores; an empty timed interval takes %.0f ns.\n\n",
           options.commit, cpu_model(), sysconf(_SC_NPROCESSORS_ONLN), clock_cost());
    printf("| lists | entries | match + release | quiet | p50 | p99 | probe | insert that evicts "
           "| p99 | linear scan | scan / match | floor | match, to 1000 entries | limit "
           "| index, MB |\n"
           "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct small small = {0, 0};
        for (size_t i = 0; i < COUNT_COUNT; i++) {
            if (only_count != 0 && COUNTS[i] != only_count && COUNTS[i] != 1000) {
                continue;
            }
            struct row rows[OPERATIONS];
            uint64_t index_bytes = 0;
            measure(shape, COUNTS[i], rows, &index_bytes);
            if (COUNTS[i] == 1000) {
                small = (struct small){rows[MATCH].quiet, rows[FLOOR].quiet};
            }
            print_line(shape, COUNTS[i], rows, &small, index_bytes);
        }
    }
}

int main(int argument_count, char **arguments)
{
    options.commit = getenv("RKV_BENCH_COMMIT") != NULL ? getenv("RKV_BENCH_COMMIT") : "unknown";
    for (int i = 1; i < argument_count; i++) {
        if (strcmp(arguments[i], "--runs") == 0 && i + 1 < argument_count) {
            options.run_count = (unsigned)strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(arguments[i], "--entries") == 0 && i + 1 < argument_count) {
            only_count = (uint32_t)strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(arguments[i], "--reserve") == 0 && i + 1 < argument_count) {
            options.reserve_mib = strtoull(arguments[++i], NULL, 10);
            CHECK(rkv_reserve_index_memory(options.reserve_mib << 20, RKV_HUGE_PAGES_TRY));
        } else if (strcmp(arguments[i], "--count") == 0) {
            options.count = true;
        } else if (strcmp(arguments[i], "--storable") == 0) {
            options.storable = true;
        } else if (strcmp(arguments[i], "--directory") == 0 && i + 1 < argument_count) {
            options.directory = arguments[++i];
        } else if (strcmp(arguments[i], "--trees") == 0) {
            run_trees();
            return 0;
        } else {
            fprintf(stderr, "usage: snapshot-bench [--runs N] [--entries N] [--reserve MIB] "
                            "[--count] [--trees] [--storable] [--directory D]\n");
            return 2;
        }
    }
    if (options.count) {
        count_instructions();
    } else {
        clock_calibrate();
        measure_all();
    }
    return 0;
}
