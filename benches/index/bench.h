/*
 * Shared by the benchmarks of the index and the page table: options, clock, meters, rows, fixtures.
 *
 * Everything goes through the public header and the shared library, as an engine would. A workload
 * is one function in one file; it runs in a process of its own, so that the heap it measures is
 * fresh, and hands rows to main.c.
 */
#ifndef RADIXKV_BENCH_H
#define RADIXKV_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <radixkv.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Calls that are timed together, and prompts that are prepared before each such batch. */
enum { BATCH = 64 };
enum { RUN_LIMIT = 32 };

/* Text ids are uniform below this. Ids from FRESH on begin continuations that must not match. */
#define VOCABULARY 128000u
#define FRESH 128000u
#define FRESH_MISS 1000000000u

struct options {
    const char *workload;   /* NULL for all */
    const char *operation;  /* with --profile: collect only operations whose name contains this */
    const char *commit;     /* of the library, for the head of the report */
    uint32_t page_size;     /* 0 for 16, 1 and 64 */
    uint32_t index;         /* RKV_INDEX_RADIX, for which the targets are, or another */
    uint64_t journal_bytes; /* of the caches; 0 for no journal */
    bool tiers;             /* host memory below the pages, and what an engine calls for it */
    uint64_t reserve_mib;   /* memory for indexes that is reserved beforehand */
    unsigned run_count;     /* 0 for the workload's own number */
    uint32_t leaf_limit;    /* largest W6 tree */
    bool json;
    bool brief;             /* only what the documentation shows */
    bool count;             /* under callgrind: one run, instructions instead of time */
    bool storable;          /* snapshots may be written below memory */
    const char *directory;  /* below a snapshot cache; NULL for none */
};
extern struct options options;

/* Stops the program with the library's message: a wrong result has no speed. */
void check_status(rkv_status status, const char *call, const char *file, int line);
void check_condition(bool holds, const char *condition, const char *file, int line);
#define CHECK(call) check_status((call), #call, __FILE__, __LINE__)
#define REQUIRE(condition) check_condition((condition), #condition, __FILE__, __LINE__)
void *allocate(size_t count, size_t size);
/* Memory on the pages that the indexes have it on. */
void *floor_memory(size_t bytes);
void floor_memory_free(void *memory, size_t bytes);

/* ---- clock ------------------------------------------------------------------------------- */

/* Fenced, so that neither the work before nor the work after leaks into the interval. */
static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#else
    extern uint64_t ticks_from_clock(void);
    return ticks_from_clock();
#endif
}

void clock_calibrate(void);
double nanoseconds(double ticks);
double clock_cost(void);   /* of an empty interval, in nanoseconds; included in single-call times */
const char *cpu_model(void);

/* ---- rows -------------------------------------------------------------------------------- */

enum unit { UNIT_MICROSECONDS, UNIT_RATIO };

/* One line of the result. Times in microseconds; a negative number is "not measured". */
struct row {
    char workload[8];
    char operation[56];
    uint32_t page_size;
    uint32_t unit;
    uint64_t call_count;
    double median;               /* of the runs */
    double quiet;                /* each batch, or call, at the quickest of its runs */
    double p50, p99, p9999;      /* of single calls, median of the runs */
    double longest;              /* longest call, each call at the quickest of its runs */
    double longest_raw;          /* longest call of any run, interruptions included */
    double over_limit;           /* calls above 50 us, per run, interruptions included */
    double target, limit;        /* negative: none */
};

struct memory_row {
    char workload[8];
    uint32_t page_size;
    uint64_t position_count, node_count, index_bytes, heap_bytes;
};

void row_emit(const struct row *row);
void memory_row_emit(const struct memory_row *row);
struct row row_new(const char *workload, const char *operation, uint32_t page_size);

/* ---- meters ------------------------------------------------------------------------------ */

/* In batches: the mean, with the clock's cost spread over a batch. Singly: the distribution. */
enum timing { TIMING_BATCH, TIMING_SINGLE };

/*
 * Runs repeat the same calls, so the n-th sample of every run is of the same work: the least of
 * them is free of whatever else the machine did in the other runs.
 */
struct samples {
    uint32_t *ticks;        /* of the present run */
    uint32_t *least;
    size_t count, capacity;
    size_t least_count;
};

struct meter {
    char operation[56];
    enum timing timing;
    bool in_run;
    size_t call_count;      /* of the present run */
    uint64_t batch_ticks;
    struct samples batches;     /* of runs timed in batches */
    struct samples singles;     /* of runs timed singly */
    size_t last_call_count;
    unsigned mean_count, single_count;
    double mean[RUN_LIMIT], single_mean[RUN_LIMIT];
    double p50[RUN_LIMIT], p99[RUN_LIMIT], p9999[RUN_LIMIT], over_limit[RUN_LIMIT];
    double longest_raw;
};

typedef void (*timed_call)(void *context, size_t index);

void meter_init(struct meter *meter, const char *operation);
void meter_begin(struct meter *meter, enum timing timing);
/* Calls `call(context, 0 .. count - 1)` and times it as meter_begin() said. */
void meter_calls(struct meter *meter, timed_call call, void *context, size_t count);
void meter_end(struct meter *meter);
/* p99 of single calls, each at the quickest of its runs. */
double meter_quiet_p99(const struct meter *meter);
/* The row of a meter: median and quiet mean, quantiles, longest call. */
struct row meter_row(const struct meter *meter, const char *workload, uint32_t page_size);
void meter_emit(const struct meter *meter, const char *workload, uint32_t page_size, double target,
                double limit);
/* A row for the rule that no call takes more than 50 us. */
void longest_emit(const struct meter *meter, const char *workload, uint32_t page_size);
void meter_free(struct meter *meter);
double median_of(const double *values, unsigned count);

/* Runs of a workload, half of them timed in batches and half singly, in turn. */
unsigned run_count(unsigned usual);
static inline enum timing run_timing(unsigned run)
{
    return run % 2 == 0 ? TIMING_BATCH : TIMING_SINGLE;
}

/* ---- tokens ------------------------------------------------------------------------------ */

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t bound);
double rng_unit(struct rng *rng);
void rng_shuffle(struct rng *rng, uint32_t *values, size_t count);

/* The numbers below a count in random order; to be freed. */
uint32_t *rng_order(struct rng *rng, uint32_t count);
/* `count` ids that depend on seed and index alone. */
void tokens_fill(uint64_t seed, uint64_t index, uint32_t *ids, size_t count);

/* Prompts written just before they are used, as a tokenizer would leave them: in cache. */
struct prompts {
    uint32_t *ids[BATCH];
    size_t count[BATCH];
    uint32_t *memory;
};
void prompts_init(struct prompts *prompts, size_t prompt_count, size_t token_capacity);
void prompts_free(struct prompts *prompts);

/* ---- cache ------------------------------------------------------------------------------- */

struct fixture {
    rkv_page_table *table;
    rkv_cache *cache;
    uint32_t page_size;
    size_t heap_bytes;
    size_t fetches;           /* of tiers, so far */      /* before the cache was created */
    uint32_t *pages;        /* where matches report to */
    size_t page_capacity;
};
void fixture_open(struct fixture *fixture, uint32_t page_size, size_t token_capacity,
                  size_t longest_prompt);
void fixture_close(struct fixture *fixture);
/* Library's own checks of every invariant, after the measurements of the last run. */
void fixture_verify(const struct fixture *fixture);
void fixture_memory(const struct fixture *fixture, const char *workload);

/* begin, confirm the copy if there is one, publish, release. Returns the positions reused. */
uint64_t fixture_request(struct fixture *fixture, const uint32_t *ids, size_t count);
/* rkv_cache_match() with its pages. Returns the positions matched, and the node. */
uint64_t fixture_match(struct fixture *fixture, const uint32_t *ids, size_t count,
                       rkv_node_id *out_node);
size_t page_floor(const struct fixture *fixture, size_t position_count);

/* ---- churn, shared by W4 and the probing threads ------------------------------------------ */

struct churn {
    struct fixture fixture;
    struct prompts prompts;
    struct rng rng;
    uint32_t *documents;
    double *cumulative;
    uint64_t request_count;
};
enum { CHURN_DOCUMENTS = 6250, CHURN_DOCUMENT_TOKENS = 1024, CHURN_SUFFIX_TOKENS = 64 };
enum { CHURN_PROMPT_TOKENS = CHURN_DOCUMENT_TOKENS + CHURN_SUFFIX_TOKENS };
void churn_open(struct churn *churn, uint32_t page_size);
void churn_close(struct churn *churn);
void churn_prepare(struct churn *churn, size_t count);
void churn_request(void *churn, size_t index);
uint32_t churn_document(const struct churn *churn, struct rng *rng);

/* ---- chat, shared by W2 and W7 ------------------------------------------------------------- */

/*
 * 500 conversations of 8 turns; each turn appends 50 to 400 tokens and asks with the whole history.
 * All turns shuffled together.
 */
enum { CHAT_CONVERSATIONS = 500, CHAT_TURNS = 8, CHAT_TURN_LEAST = 50, CHAT_TURN_MOST = 400 };
enum { CHAT_TOKENS = CHAT_TURNS * CHAT_TURN_MOST, CHAT_REQUESTS = CHAT_CONVERSATIONS * CHAT_TURNS };

struct chat {
    struct prompts prompts;
    uint32_t (*history)[CHAT_TOKENS];
    uint32_t end[CHAT_CONVERSATIONS][CHAT_TURNS];   /* tokens of the history after each turn */
    uint32_t order[CHAT_REQUESTS];                  /* conversation of each request */
    uint32_t next_turn[CHAT_CONVERSATIONS];
};
void chat_open(struct chat *chat);
void chat_close(struct chat *chat);
/* Begins with the first request again. */
void chat_restart(struct chat *chat);
/* Writes the prompts of `count` requests, the next ones. */
void chat_prepare(struct chat *chat, size_t first, size_t count);

/* ---- workloads --------------------------------------------------------------------------- */

void run_w1(uint32_t page_size);
void run_w2(uint32_t page_size);
void run_w3(uint32_t page_size);
void run_w4(uint32_t page_size);
void run_w5(uint32_t page_size);
void run_w6(uint32_t page_size);
void run_w7(uint32_t page_size);
void run_probe(uint32_t page_size);
void run_rows(uint32_t page_size);
void run_forks(uint32_t page_size);
void run_machine(uint32_t page_size);

#endif
