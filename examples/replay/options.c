#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "radixkv.h"

#define CONCURRENCY_LIMIT 4096
/* Above all numbers that make sense: more tokens than the largest pool has. */
#define NUMBER_LIMIT (UINT64_C(1) << 48)
#define DEFAULT_SVG "target/replay/hit-rate.svg"

static const char help[] =
    "usage: replay [options]\n"
    "\n"
    "Replays request traces through radixkv at several pool sizes and reports how many prompt\n"
    "tokens were found in the cache and what each call cost.\n"
    "\n"
    "  --trace NAME       conversation, synthetic or agent, or the path of a .trace file; may be\n"
    "                     given several times (default: all three)\n"
    "  --page-size N      positions per page, 1 to 65536 (default 16)\n"
    "  --pools LIST       pool sizes in tokens, e.g. 128k,4M; k, M and G are powers of 1024\n"
    "                     (default: from the longest request to the whole trace)\n"
    "  --concurrency N    sequences alive at once: each is released when the N-th one after it\n"
    "                     begins, so that locks compete with eviction (default 1)\n"
    "  --chunk N          prompt tokens computed and published at a time (default 2048)\n"
    "  --no-decode        leave the generated tokens away\n"
    "  --data DIRECTORY   where the traces are (default data)\n"
    "  --svg PATH         where to draw the hit rates (default\n"
    "                     target/replay/hit-rate.svg)\n"
    "  --help             print this\n";

static _Noreturn void refuse(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "replay: %s %s: expected %s\nTry --help.\n", option, value, expected);
    exit(2);
}

/* A number, with k, M or G behind it when `suffixes`. Returns where it ends; NULL for no number. */
static const char *read_number(const char *text, int suffixes, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return NULL;
    *out = strtoull(text, &end, 10);
    int shift = 0;
    const char *suffix = suffixes && *end ? strchr("kKmMgG", *end) : NULL;
    if (suffix != NULL) {
        shift = 10 * (int)((suffix - "kKmMgG") / 2 + 1);
        end++;
    }
    if (*out > NUMBER_LIMIT >> shift)
        return NULL;
    *out <<= shift;
    return end;
}

static uint32_t number(const char *option, const char *value, uint64_t limit)
{
    uint64_t parsed;
    char expected[64];
    const char *end = read_number(value, 0, &parsed);
    if (end == NULL || *end != 0 || parsed == 0 || parsed > limit) {
        snprintf(expected, sizeof expected, "a number from 1 to %llu", (unsigned long long)limit);
        refuse(option, value, expected);
    }
    return (uint32_t)parsed;
}

static void pools(options *out, const char *value)
{
    const char *next = value;
    for (out->pool_count = 0;; next++) {
        uint64_t tokens;
        if (out->pool_count == POOL_LIMIT)
            refuse("--pools", value, "32 sizes at most");
        next = read_number(next, 1, &tokens);
        if (next == NULL || tokens == 0 || (*next != 0 && *next != ','))
            refuse("--pools", value, "sizes in tokens with commas between them, e.g. 128k,4M");
        if (out->pool_count > 0 && tokens <= out->pool_tokens[out->pool_count - 1])
            refuse("--pools", value, "each size larger than the one before");
        out->pool_tokens[out->pool_count++] = tokens;
        if (*next == 0)
            return;
    }
}

void options_check_pools(const uint64_t *tokens, unsigned count, uint32_t page_size)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t pages = tokens[i] / page_size;
        if (pages == 0 || pages >= UINT32_MAX) {
            fprintf(stderr, "replay: --pools: %llu tokens are %llu pages; a pool has 1 to %u\n",
                    (unsigned long long)tokens[i], (unsigned long long)pages, UINT32_MAX - 1);
            exit(2);
        }
    }
}

void options_parse(options *out, int argc, char **argv)
{
    enum { TRACE, PAGE_SIZE, POOLS, CONCURRENCY, CHUNK, NO_DECODE, DATA, SVG, HELP };
    static const struct option known[] = {
        {"trace", required_argument, NULL, TRACE},
        {"page-size", required_argument, NULL, PAGE_SIZE},
        {"pools", required_argument, NULL, POOLS},
        {"concurrency", required_argument, NULL, CONCURRENCY},
        {"chunk", required_argument, NULL, CHUNK},
        {"no-decode", no_argument, NULL, NO_DECODE},
        {"data", required_argument, NULL, DATA},
        {"svg", required_argument, NULL, SVG},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    *out = (options){.data_directory = "data", .svg_path = DEFAULT_SVG};
    out->replay = (replay_options){.page_size = 16, .concurrency = 1, .chunk = 2048, .decode = 1};
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case TRACE:
            if (out->trace_count == TRACE_LIMIT)
                refuse("--trace", optarg, "8 traces at most");
            out->traces[out->trace_count++] = optarg;
            break;
        case PAGE_SIZE:
            out->replay.page_size = number("--page-size", optarg, RKV_PAGE_SIZE_MAX);
            break;
        case POOLS:
            pools(out, optarg);
            break;
        case CONCURRENCY:
            out->replay.concurrency = number("--concurrency", optarg, CONCURRENCY_LIMIT);
            break;
        case CHUNK:
            out->replay.chunk = number("--chunk", optarg, UINT32_MAX);
            break;
        case NO_DECODE:
            out->replay.decode = 0;
            break;
        case DATA:
            out->data_directory = optarg;
            break;
        case SVG:
            out->svg_path = optarg;
            break;
        case HELP:
            fputs(help, stdout);
            exit(0);
        default: /* getopt_long has said what is wrong */
            fputs("Try --help.\n", stderr);
            exit(2);
        }
    }
    if (optind < argc)
        refuse("argument", argv[optind], "options only");
    options_check_pools(out->pool_tokens, out->pool_count, out->replay.page_size);
    if (out->trace_count == 0) {
        out->traces[out->trace_count++] = "conversation";
        out->traces[out->trace_count++] = "synthetic";
        out->traces[out->trace_count++] = "agent";
    }
}
