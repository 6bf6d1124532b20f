/*
 * Threads: the owner runs W4 while other threads probe without a pause.
 *
 * Rounds without a probing thread, with one and with two alternate on the same cache, so that the
 * noise of the machine meets all alike. After each, threads probe while the owner rests: one, two,
 * four, eight, no more than there are cores. In rounds of a fourth kind a thread does no more than
 * compare as much memory as a probe does, without the library: what that costs the owner is the
 * machine's doing, cores that share caches, memory and power.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Threads beside the owner at most, and what else may run beside it. */
enum { BESIDE = 2, COMPARING = BESIDE + 1, CASES };
/* Threads that probe while the owner rests: 1, 2, 4 and so on, as many as there are cores. */
enum { PROBERS = 8, COUNTS = 4 };
enum { ROUND_REQUESTS = 256 * BATCH, WARM_UP = 20000 };
enum { SAMPLES = 1 << 16, IDLE_MILLISECONDS = 20 };

struct prober {
    pthread_t thread;
    struct churn *churn;
    const uint32_t *copies;     /* of the documents */
    struct rng rng;
    atomic_bool stop;
    uint64_t probe_count;
    uint64_t ticks;
    double processor_time;      /* microseconds */
    uint32_t samples[SAMPLES];  /* of the latest probes */
};

static double processor_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void *probe(void *context)
{
    struct prober *prober = context;
    struct churn *churn = prober->churn;
    double started = processor_microseconds();
    while (!atomic_load_explicit(&prober->stop, memory_order_relaxed)) {
        size_t document = churn_document(churn, &prober->rng);
        rkv_tokens tokens = {.struct_size = sizeof tokens,
                             .ids = churn->documents + document * CHURN_DOCUMENT_TOKENS,
                             .count = CHURN_DOCUMENT_TOKENS};
        size_t found;
        uint64_t start = ticks_now();
        CHECK(rkv_cache_probe(churn->fixture.cache, NULL, &tokens, NULL, &found));
        uint64_t taken = ticks_now() - start;
        REQUIRE(found <= CHURN_DOCUMENT_TOKENS);
        prober->ticks += taken;
        prober->samples[prober->probe_count++ % SAMPLES] =
            taken < UINT32_MAX ? (uint32_t)taken : UINT32_MAX;
    }
    prober->processor_time = processor_microseconds() - started;
    return NULL;
}

/* The comparisons of `probe` alone: documents with copies of them. */
static void *compare(void *context)
{
    struct prober *prober = context;
    struct churn *churn = prober->churn;
    const size_t bytes = CHURN_DOCUMENT_TOKENS * sizeof *churn->documents;
    while (!atomic_load_explicit(&prober->stop, memory_order_relaxed)) {
        size_t at = churn_document(churn, &prober->rng) * CHURN_DOCUMENT_TOKENS;
        REQUIRE(memcmp(churn->documents + at, prober->copies + at, bytes) == 0);
        prober->probe_count++;
    }
    return NULL;
}

/* How many threads probe at once; their number, which is two at least. */
static unsigned thread_counts(unsigned counts[COUNTS])
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned most = cores < 2 ? 2 : cores < PROBERS ? (unsigned)cores : PROBERS;
    unsigned length = 0;
    for (unsigned count = 1; count < most; count *= 2) {
        counts[length++] = count;
    }
    counts[length++] = most;
    return length;
}

static void start_threads(struct prober *probers, struct churn *churn, unsigned count,
                          void *(*work)(void *))
{
    for (unsigned i = 0; i < count; i++) {
        probers[i].churn = churn;
        probers[i].rng.state = 7 + i;
        probers[i].probe_count = 0;
        probers[i].ticks = 0;
        atomic_store(&probers[i].stop, false);
        REQUIRE(pthread_create(&probers[i].thread, NULL, work, &probers[i]) == 0);
    }
}

/* The threads of a case; their number. */
static unsigned start(struct prober *probers, struct churn *churn, unsigned which)
{
    unsigned count = which == COMPARING ? 1 : which;
    start_threads(probers, churn, count, which == COMPARING ? compare : probe);
    return count;
}

static void stop(struct prober *probers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        atomic_store(&probers[i].stop, true);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(probers[i].thread, NULL);
    }
}

static int compare_samples(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

struct latency {
    double mean, p50, p99, p9999;
    double processor_time;      /* microseconds per probe, of all probers together */
};

/* Of the first prober, but for the processor time. */
static struct latency latency_of(struct prober *probers, unsigned count)
{
    struct prober *first = &probers[0];
    size_t samples = first->probe_count < SAMPLES ? (size_t)first->probe_count : SAMPLES;
    struct latency result = {0};
    if (samples == 0) {
        return result;
    }
    qsort(first->samples, samples, sizeof *first->samples, compare_samples);
    result.mean = nanoseconds((double)first->ticks) / 1e3 / (double)first->probe_count;
    result.p50 = nanoseconds(first->samples[samples / 2]) / 1e3;
    result.p99 = nanoseconds(first->samples[samples * 99 / 100]) / 1e3;
    result.p9999 = nanoseconds(first->samples[samples - 1 - samples / 10000]) / 1e3;
    double processor_time = 0;
    double probe_count = 0;
    for (unsigned i = 0; i < count; i++) {
        processor_time += probers[i].processor_time;
        probe_count += (double)probers[i].probe_count;
    }
    result.processor_time = processor_time / probe_count;
    return result;
}

static void owner_round(struct churn *churn, struct meter *meter)
{
    meter_begin(meter, TIMING_SINGLE);
    for (size_t i = 0; i < ROUND_REQUESTS; i += BATCH) {
        churn_prepare(churn, BATCH);
        meter_calls(meter, churn_request, churn, BATCH);
    }
    meter_end(meter);
}

static void emit_latency(const char *operation, uint32_t page_size, const struct latency *rounds,
                         unsigned count)
{
    double values[4][RUN_LIMIT];
    for (unsigned i = 0; i < count; i++) {
        values[0][i] = rounds[i].mean;
        values[1][i] = rounds[i].p50;
        values[2][i] = rounds[i].p99;
        values[3][i] = rounds[i].p9999;
    }
    struct row row = row_new("probe", operation, page_size);
    row.median = median_of(values[0], count);
    row.p50 = median_of(values[1], count);
    row.p99 = median_of(values[2], count);
    row.p9999 = median_of(values[3], count);
    row_emit(&row);
}

static void emit_growth(const char *operation, struct meter meters[CASES], unsigned beside,
                        uint32_t page_size)
{
    struct row row = row_new("probe", operation, page_size);
    row.unit = UNIT_RATIO;
    double ratios[RUN_LIMIT];
    for (unsigned i = 0; i < meters[beside].single_count; i++) {
        ratios[i] = meters[1].p99[i] / meters[beside].p99[i];
    }
    row.median = median_of(ratios, meters[beside].single_count);
    row.target = 1.1;
    row_emit(&row);
}

static void emit_owner(struct meter meters[CASES], uint32_t page_size)
{
    for (unsigned i = 0; i < CASES; i++) {
        struct row row = meter_row(&meters[i], "probe", page_size);
        row.quiet = row.longest = -1;   /* Rounds differ in what they evict. */
        row_emit(&row);
    }
    emit_growth("owner's p99, one probing thread / none", meters, 0, page_size);
    emit_growth("owner's p99, one probing thread / one comparing", meters, COMPARING, page_size);
}

/*
 * Processor time, not time: other processes may leave the threads fewer cores than there are. What
 * the threads cost each other, the lock's cache line above all, is in it.
 */
static void emit_scaling(struct latency idle[COUNTS][RUN_LIMIT], unsigned rounds,
                         uint32_t page_size)
{
    unsigned counts[COUNTS];
    unsigned length = thread_counts(counts);
    double cost[COUNTS] = {0};
    for (unsigned which = 0; which < length; which++) {
        double values[RUN_LIMIT];
        for (unsigned i = 0; i < rounds; i++) {
            values[i] = idle[which][i].processor_time;
        }
        char operation[56];
        snprintf(operation, sizeof operation, "processor time per probe, %u thread%s",
                 counts[which], counts[which] == 1 ? "" : "s");
        struct row row = row_new("probe", operation, page_size);
        row.median = cost[which] = median_of(values, rounds);
        row_emit(&row);
    }
    char operation[56];
    snprintf(operation, sizeof operation, "processor time per probe, %u threads / one",
             counts[length - 1]);
    struct row row = row_new("probe", operation, page_size);
    row.unit = UNIT_RATIO;
    row.median = cost[length - 1] / cost[0];
    row.target = 1.1;
    row_emit(&row);
}

/* One round: so many threads probe for a while, and nobody else does anything. */
static void probe_alone(struct prober *probers, struct churn *churn,
                        struct latency idle[COUNTS][RUN_LIMIT], unsigned round)
{
    unsigned counts[COUNTS];
    unsigned length = thread_counts(counts);
    for (unsigned i = 0; i < length; i++) {
        unsigned which = (i + round) % length;
        start_threads(probers, churn, counts[which], probe);
        nanosleep(&(struct timespec){.tv_nsec = IDLE_MILLISECONDS * 1000000L}, NULL);
        stop(probers, counts[which]);
        idle[which][round] = latency_of(probers, counts[which]);
    }
}

void run_probe(uint32_t page_size)
{
    static struct prober probers[PROBERS];
    static struct latency busy[BESIDE + 1][RUN_LIMIT];
    static struct latency idle[COUNTS][RUN_LIMIT];
    struct churn churn;
    struct meter meters[CASES];
    if (options.count) {
        return;
    }
    meter_init(&meters[0], "W4 request, nobody probes");
    meter_init(&meters[1], "W4 request, one thread probes");
    meter_init(&meters[2], "W4 request, two threads probe");
    meter_init(&meters[COMPARING], "W4 request, one thread compares");
    churn_open(&churn, page_size);
    size_t bytes = CHURN_DOCUMENTS * CHURN_DOCUMENT_TOKENS * sizeof *churn.documents;
    uint32_t *copies = malloc(bytes);
    REQUIRE(copies != NULL);
    memcpy(copies, churn.documents, bytes);
    for (unsigned i = 0; i < PROBERS; i++) {
        probers[i].copies = copies;
    }
    for (size_t i = 0; i < WARM_UP; i++) {
        churn_prepare(&churn, 1);
        churn_request(&churn, 0);
    }
    unsigned rounds = run_count(15);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < CASES; i++) {
            /* Another order in every round: nobody is always first. */
            unsigned which = (i + round) % CASES;
            unsigned count = start(probers, &churn, which);
            owner_round(&churn, &meters[which]);
            stop(probers, count);
            if (which > 0 && which != COMPARING) {
                busy[count][round] = latency_of(probers, count);
            }
        }
        probe_alone(probers, &churn, idle, round);
    }
    emit_owner(meters, page_size);
    emit_latency("probe of 1024 tokens, owner idle", page_size, idle[0], rounds);
    emit_latency("probe of 1024 tokens, owner runs W4", page_size, busy[1], rounds);
    emit_scaling(idle, rounds, page_size);
    fixture_verify(&churn.fixture);
    for (unsigned i = 0; i < CASES; i++) {
        meter_free(&meters[i]);
    }
    free(copies);
    churn_close(&churn);
}
