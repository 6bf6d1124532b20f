/* Times calls in batches or singly, run after run, and sums the runs up in a row. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_DUMP_STATS_AT(text) (void)(text)
#endif

/* "No call over 50 us": the rule that this project sets itself. */
static const double LONG_CALL = 50.0;

unsigned run_count(unsigned usual)
{
    if (options.count) {
        return 1;
    }
    unsigned wanted = options.run_count > 0 ? options.run_count : usual;
    return wanted < RUN_LIMIT ? wanted : RUN_LIMIT;
}

void meter_init(struct meter *meter, const char *operation)
{
    memset(meter, 0, sizeof *meter);
    snprintf(meter->operation, sizeof meter->operation, "%s", operation);
}

void meter_begin(struct meter *meter, enum timing timing)
{
    meter->timing = timing;
    meter->in_run = true;
    meter->call_count = 0;
    meter->batch_ticks = 0;
    meter->batches.count = 0;
    meter->singles.count = 0;
}

/* Room for `count` more samples of this run. */
static uint32_t *samples_extend(struct samples *samples, size_t count)
{
    size_t needed = samples->count + count;
    if (needed > samples->capacity) {
        size_t capacity = samples->capacity * 2 > needed ? samples->capacity * 2 : needed;
        samples->ticks = realloc(samples->ticks, capacity * sizeof *samples->ticks);
        samples->least = realloc(samples->least, capacity * sizeof *samples->least);
        REQUIRE(samples->ticks != NULL && samples->least != NULL);
        samples->capacity = capacity;
    }
    uint32_t *ticks = samples->ticks + samples->count;
    samples->count = needed;
    return ticks;
}

static uint32_t clamp(uint64_t ticks)
{
    return ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

static void samples_end_run(struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++) {
        if (i >= samples->least_count || samples->ticks[i] < samples->least[i]) {
            samples->least[i] = samples->ticks[i];
        }
    }
    samples->least_count =
        samples->count > samples->least_count ? samples->count : samples->least_count;
}

static double samples_quiet_sum(const struct samples *samples)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < samples->least_count; i++) {
        sum += samples->least[i];
    }
    return nanoseconds((double)sum) / 1e3;
}

static void samples_free(struct samples *samples)
{
    free(samples->ticks);
    free(samples->least);
    memset(samples, 0, sizeof *samples);
}

static void count_calls(struct meter *meter, timed_call call, void *context, size_t count)
{
    bool collect = options.operation == NULL || strstr(meter->operation, options.operation) != NULL;
    if (collect) {
        CALLGRIND_TOGGLE_COLLECT;
    }
    for (size_t i = 0; i < count; i++) {
        call(context, i);
    }
    if (collect) {
        CALLGRIND_TOGGLE_COLLECT;
    }
    if (options.operation == NULL) {
        char label[96];
        snprintf(label, sizeof label, "%s|%zu", meter->operation, count);
        CALLGRIND_DUMP_STATS_AT(label);
    }
}

void meter_calls(struct meter *meter, timed_call call, void *context, size_t count)
{
    if (options.count) {
        count_calls(meter, call, context, count);
    } else if (meter->timing == TIMING_BATCH) {
        /* Before the clock starts: the first touch of new memory would be in the interval. */
        uint32_t *sample = samples_extend(&meter->batches, 1);
        uint64_t start = ticks_now();
        for (size_t i = 0; i < count; i++) {
            call(context, i);
        }
        uint64_t taken = ticks_now() - start;
        *sample = clamp(taken);
        meter->batch_ticks += taken;
    } else {
        uint32_t *ticks = samples_extend(&meter->singles, count);
        for (size_t i = 0; i < count; i++) {
            uint64_t start = ticks_now();
            call(context, i);
            ticks[i] = clamp(ticks_now() - start);
        }
    }
    meter->call_count += count;
}

static int compare_ticks(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double quantile(const uint32_t *sorted, size_t count, double part)
{
    size_t index = (size_t)(part * (double)count);
    return nanoseconds(sorted[index < count ? index : count - 1]) / 1e3;
}

static void single_run_end(struct meter *meter)
{
    uint32_t *ticks = meter->singles.ticks;
    size_t count = meter->call_count;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += ticks[i];
    }
    qsort(ticks, count, sizeof *ticks, compare_ticks);
    unsigned run = meter->single_count++;
    meter->single_mean[run] = nanoseconds((double)sum) / 1e3 / (double)count;
    meter->p50[run] = quantile(ticks, count, 0.5);
    meter->p99[run] = quantile(ticks, count, 0.99);
    meter->p9999[run] = quantile(ticks, count, 0.9999);
    double longest = nanoseconds(ticks[count - 1]) / 1e3;
    meter->longest_raw = longest > meter->longest_raw ? longest : meter->longest_raw;
    size_t over = 0;
    while (over < count && nanoseconds(ticks[count - 1 - over]) / 1e3 > LONG_CALL) {
        over++;
    }
    meter->over_limit[run] = (double)over;
}

void meter_end(struct meter *meter)
{
    if (!meter->in_run || meter->call_count == 0 || options.count) {
        return;
    }
    meter->in_run = false;
    meter->last_call_count = meter->call_count;
    samples_end_run(&meter->batches);
    samples_end_run(&meter->singles);
    if (meter->timing == TIMING_BATCH) {
        double mean = nanoseconds((double)meter->batch_ticks) / 1e3 / (double)meter->call_count;
        meter->mean[meter->mean_count++] = mean;
    } else {
        single_run_end(meter);
    }
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double median_of(const double *values, unsigned count)
{
    double sorted[RUN_LIMIT];
    if (count == 0) {
        return -1;
    }
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double meter_quiet_p99(const struct meter *meter)
{
    const struct samples *singles = &meter->singles;
    uint32_t *sorted = allocate(singles->least_count, sizeof *sorted);
    memcpy(sorted, singles->least, singles->least_count * sizeof *sorted);
    qsort(sorted, singles->least_count, sizeof *sorted, compare_ticks);
    double p99 = quantile(sorted, singles->least_count, 0.99);
    free(sorted);
    return p99;
}

struct row meter_row(const struct meter *meter, const char *workload, uint32_t page_size)
{
    struct row row = row_new(workload, meter->operation, page_size);
    bool batched = meter->mean_count > 0;
    row.call_count = meter->last_call_count;
    row.median = batched ? median_of(meter->mean, meter->mean_count)
                         : median_of(meter->single_mean, meter->single_count);
    row.quiet = samples_quiet_sum(batched ? &meter->batches : &meter->singles) /
                (double)meter->last_call_count;
    if (meter->single_count > 0) {
        uint32_t longest = 0;
        for (size_t i = 0; i < meter->singles.least_count; i++) {
            longest = meter->singles.least[i] > longest ? meter->singles.least[i] : longest;
        }
        row.p50 = median_of(meter->p50, meter->single_count);
        row.p99 = median_of(meter->p99, meter->single_count);
        row.p9999 = median_of(meter->p9999, meter->single_count);
        row.over_limit = median_of(meter->over_limit, meter->single_count);
        row.longest = nanoseconds(longest) / 1e3;
        row.longest_raw = meter->longest_raw;
    }
    return row;
}

void meter_emit(const struct meter *meter, const char *workload, uint32_t page_size, double target,
                double limit)
{
    if (options.count) {
        return;
    }
    struct row row = meter_row(meter, workload, page_size);
    row.target = target;
    row.limit = limit;
    row_emit(&row);
}

void longest_emit(const struct meter *meter, const char *workload, uint32_t page_size)
{
    struct row of = meter_row(meter, workload, page_size);
    char operation[sizeof of.operation];
    snprintf(operation, sizeof operation, "longest call: %.40s", meter->operation);
    struct row row = row_new(workload, operation, page_size);
    row.call_count = of.call_count;
    row.median = row.quiet = row.longest = of.longest;
    row.longest_raw = of.longest_raw;
    row.target = LONG_CALL;
    row_emit(&row);
}

void meter_free(struct meter *meter)
{
    samples_free(&meter->batches);
    samples_free(&meter->singles);
}
