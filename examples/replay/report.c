#include "report.h"

#include <stdio.h>
#include <string.h>

const char *report_size(uint64_t tokens, char out[16])
{
    static const char *const suffixes[] = {"", " Ki", " Mi", " Gi"};
    double value = (double)tokens;
    unsigned i = 0;
    while (i < 3 && value >= 1024) {
        value /= 1024;
        i++;
    }
    const char *format = value == (double)(uint64_t)value ? "%.0f%s" : "%.1f%s";
    snprintf(out, 16, format, value, suffixes[i]);
    return out;
}

/* 1234567 -> "1,234,567" */
static const char *grouped(uint64_t value, char out[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value), n = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[n++] = ',';
        out[n++] = digits[i];
    }
    out[n] = 0;
    return out;
}

static void count_column(int width, uint64_t value)
{
    char text[32];
    printf("%*s", width, grouped(value, text));
}

static void mean_column(int width, uint64_t total, uint64_t count)
{
    if (count == 0)
        printf("%*s", width, "-");
    else
        count_column(width, (total + count / 2) / count);
}

static void phase_column(int width, const replay_phase *phase)
{
    mean_column(width, phase->nanoseconds, phase->call_count);
}

double report_hit_rate(const replay_result *result)
{
    return (double)result->hit_token_count / (double)result->prompt_token_count;
}

void report_legend(void)
{
    fputs("begin     finds the longest cached prefix, locks it and allocates the rest, evicting\n"
          "publish   shares a computed chunk of the prompt, and at the end the output\n"
          "append    adds one generated token\n"
          "release   unlocks and frees what was not published\n"
          "request   is the sum over all calls of one request\n"
          "Times are means in nanoseconds by the wall clock, so a busy machine shows; all other\n"
          "numbers come out the same every time.\n",
          stdout);
}

void report_head(const trace *t, const replay_options *options)
{
    char a[32], b[32], c[32];
    printf("\n%s: %s requests, %s prompt tokens, %s generated tokens\n", t->name,
           grouped(t->request_count, a), grouped(t->prompt_token_count, b),
           grouped(options->decode ? t->output_token_count : 0, c));
    printf("page size %u, prefill in chunks of %u, %u alive at once\n\n", options->page_size,
           options->chunk, options->concurrency);
    printf("%10s%10s%10s%12s%9s%9s%8s%9s%10s%11s\n", "pool", "pool", "hit", "evicted", "begin",
           "publish", "append", "release", "request", "index B");
    printf("%10s%10s%10s%12s%9s%9s%8s%9s%10s%11s\n", "pages", "tokens", "rate", "pages", "", "", "",
           "", "in all", "/position");
    fflush(stdout);
}

static void pool_columns(const replay_options *options)
{
    char text[16];
    count_column(10, options->page_count);
    printf("%10s", report_size((uint64_t)options->page_count * options->page_size, text));
}

static void whole_request_column(const replay_result *result)
{
    uint64_t total = result->begin.nanoseconds + result->publish.nanoseconds +
                     result->append.nanoseconds + result->release.nanoseconds;
    mean_column(10, total, result->request_count);
}

/* What did not go smoothly, in words: most runs have none of it. */
static void remarks(const replay_result *result)
{
    char text[32];
    if (result->refused_count > 0)
        printf("%20s  %s requests too long for the pool: computed nowhere, counted as misses\n", "",
               grouped(result->refused_count, text));
    if (result->cut_count > 0)
        printf("%20s  %s outputs cut short, the pool was full\n", "",
               grouped(result->cut_count, text));
    if (result->wait_count > 0)
        printf("%20s  %s times a sequence waited for an older one to end\n", "",
               grouped(result->wait_count, text));
    fflush(stdout);
}

void report_row(const replay_options *options, const replay_result *result)
{
    pool_columns(options);
    printf("%8.2f %%", 100 * report_hit_rate(result));
    count_column(12, result->evicted_page_count);
    phase_column(9, &result->begin);
    phase_column(9, &result->publish);
    phase_column(8, &result->append);
    phase_column(9, &result->release);
    whole_request_column(result);
    if (result->cached_position_count > 0)
        printf("%11.2f\n", (double)result->index_bytes / (double)result->cached_position_count);
    else
        printf("%11s\n", "-");
    remarks(result);
}

void report_page_table_alone(const replay_options *options, const replay_result *result)
{
    pool_columns(options);
    printf("%8.2f %%%12s", 0.0, "cache off");
    phase_column(9, &result->begin);
    printf("%9s", "-");
    phase_column(8, &result->append);
    phase_column(9, &result->release);
    whole_request_column(result);
    printf("%11s\n", "-");
    remarks(result);
}
