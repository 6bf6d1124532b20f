/*
 * Replays real request traces through radixkv, as a serving engine without a model would: each
 * request begins, publishes its prompt chunk by chunk, appends its output and is released. Nothing
 * here knows more of the library than include/radixkv.h. data/README.md describes the traces.
 *
 *   main.c              the runs: traces x pool sizes
 *   with_cache.c        the way of a request through the cache   <- start reading here
 *   page_table_alone.c  the same without a cache, for comparison
 *   live.c              the sequences that are alive at once
 *   trace.c options.c progress.c report.c chart.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "options.h"
#include "progress.h"
#include "radixkv.h"
#include "replay.h"
#include "report.h"
#include "trace.h"

typedef struct plan {
    trace trace;
    uint64_t pool_tokens[POOL_LIMIT];
    double hit_rates[POOL_LIMIT];
    unsigned pool_count;
} plan;

static uint64_t next_power_of_two(uint64_t value)
{
    uint64_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

/* From the smallest power of two that has the pages of any request to the first that holds all. */
static void choose_pools(plan *p, const replay_options *replay)
{
    /* Each prompt and each output may leave its last page partly filled. */
    uint64_t slack = 2 * p->trace.request_count * replay->page_size + p->trace.longest;
    uint64_t longest = ((uint64_t)p->trace.longest - 1) / replay->page_size + 1;
    uint64_t least = next_power_of_two(longest * replay->page_size * replay->concurrency);
    uint64_t most = next_power_of_two(p->trace.distinct_token_count + slack);
    for (uint64_t tokens = least; p->pool_count < POOL_LIMIT; tokens *= 2) {
        p->pool_tokens[p->pool_count++] = tokens;
        if (tokens >= most)
            break;
    }
    options_check_pools(p->pool_tokens, p->pool_count, replay->page_size);
}

static void load(plan *p, const char *name, const options *o)
{
    char path[1024];
    const char *format = strchr(name, '/') || strchr(name, '.') ? "%.0s%s" : "%s/%s.trace";
    snprintf(path, sizeof path, format, o->data_directory, name);
    if (!trace_read(&p->trace, path)) {
        fprintf(stderr, "replay: cannot replay %s. Try --help.\n", name);
        exit(1);
    }
    p->pool_count = o->pool_count;
    memcpy(p->pool_tokens, o->pool_tokens, sizeof p->pool_tokens);
    if (p->pool_count == 0)
        choose_pools(p, &o->replay);
}

static void run(plan *p, const options *o, progress *bar)
{
    replay_options replay = o->replay;
    replay_result result;
    char label[64], size[16];
    progress_clear(bar);
    report_head(&p->trace, &replay);
    for (unsigned i = 0; i < p->pool_count; i++) {
        replay.page_count = (uint32_t)(p->pool_tokens[i] / replay.page_size);
        snprintf(label, sizeof label, "%s, pool of %s tokens", p->trace.name,
                 report_size(p->pool_tokens[i], size));
        progress_label(bar, label);
        replay_with_cache(&p->trace, &replay, bar, &result);
        p->hit_rates[i] = report_hit_rate(&result);
        progress_clear(bar);
        report_row(&replay, &result);
    }
    snprintf(label, sizeof label, "%s, cache off", p->trace.name);
    progress_label(bar, label);
    replay_page_table_alone(&p->trace, &replay, bar, &result);
    progress_clear(bar);
    report_page_table_alone(&replay, &result);
}

static int draw(const plan *plans, const options *o)
{
    chart_line lines[TRACE_LIMIT];
    char subtitle[128];
    for (unsigned i = 0; i < o->trace_count; i++)
        lines[i] = (chart_line){plans[i].trace.name, plans[i].pool_tokens, plans[i].hit_rates,
                                plans[i].pool_count};
    snprintf(subtitle, sizeof subtitle, "radixkv %s, least recently used, pages of %u tokens%s",
             rkv_version_string(), o->replay.page_size,
             o->replay.decode ? ", outputs published too" : "");
    return chart_write(o->svg_path, subtitle, lines, o->trace_count);
}

int main(int argc, char **argv)
{
    options o;
    options_parse(&o, argc, argv);
    if (rkv_abi_version() < RKV_ABI_VERSION) {
        fprintf(stderr, "replay: the library is older than the header\n");
        return 1;
    }
    if (!chart_writable(o.svg_path))
        return 1;
    plan *plans = calloc(o.trace_count, sizeof *plans);
    if (plans == NULL)
        abort();
    uint64_t token_count = 0;
    for (unsigned i = 0; i < o.trace_count; i++) {
        load(&plans[i], o.traces[i], &o);
        token_count += plans[i].trace.prompt_token_count * (plans[i].pool_count + 1);
    }

    progress bar;
    progress_start(&bar, token_count);
    report_legend();
    for (unsigned i = 0; i < o.trace_count; i++)
        run(&plans[i], &o, &bar);

    if (!draw(plans, &o))
        return 1;
    printf("\nhit rates drawn to %s\naudit OK: every page accounted for after every run\n",
           o.svg_path);
    for (unsigned i = 0; i < o.trace_count; i++)
        trace_free(&plans[i].trace);
    free(plans);
    return 0;
}
