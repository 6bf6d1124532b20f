/* Runs the worlds, each in a process of its own, and prints the longest call of each function. */
#include "longest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct options options;
struct sizes sizes = {
    .nodes = 1000000, .slots = 1000000, .pages = 1000000, .snapshots = 100000, .siblings = 100000,
    .namespaces = 100000, .retained = 100000, .images = 100000, .positions = 131072,
    .depth = 10000, .cleared = 100000, .stored = 10000,
};

static const struct {
    const char *name;
    void (*run)(uint32_t page_size, uint32_t index);
    uint32_t page_size, index;
} WORLDS[] = {
    {"nodes", world_nodes, 16, RKV_INDEX_RADIX},
    {"nodes", world_nodes, 1, RKV_INDEX_RADIX},
    {"nodes", world_nodes, 16, RKV_INDEX_BLOCK_HASH},
    {"siblings", world_siblings, 16, RKV_INDEX_RADIX},
    {"siblings", world_siblings, 1, RKV_INDEX_RADIX},
    {"siblings", world_siblings, 16, RKV_INDEX_BLOCK_HASH},
    {"path", world_path, 16, RKV_INDEX_RADIX},
    {"path", world_path, 1, RKV_INDEX_RADIX},
    {"window", world_path_of_groups, 16, RKV_INDEX_RADIX},
    {"image-path", world_path_of_images, 16, RKV_INDEX_RADIX},
    {"image-path", world_path_of_images, 16, RKV_INDEX_BLOCK_HASH},
    {"meanwhile", world_meanwhile, 16, RKV_INDEX_RADIX},
    {"meanwhile", world_meanwhile, 16, RKV_INDEX_BLOCK_HASH},
    {"namespaces", world_namespaces, 16, RKV_INDEX_RADIX},
    {"namespaces", world_namespaces, 16, RKV_INDEX_BLOCK_HASH},
    {"images", world_images, 16, RKV_INDEX_RADIX},
    {"images", world_images, 16, RKV_INDEX_BLOCK_HASH},
    {"long", world_long, 16, RKV_INDEX_RADIX},
    {"long", world_long, 1, RKV_INDEX_RADIX},
    {"long", world_long, 16, RKV_INDEX_BLOCK_HASH},
    {"batches", world_batches, 16, RKV_INDEX_RADIX},
    {"batches", world_batches, 1, RKV_INDEX_RADIX},
    {"batches", world_batches, 16, RKV_INDEX_BLOCK_HASH},
    {"chunks", world_chunks, 16, RKV_INDEX_RADIX},
    {"chunks", world_chunks, 1, RKV_INDEX_RADIX},
    {"clear", world_clear, 16, RKV_INDEX_RADIX},
    {"clear", world_clear, 16, RKV_INDEX_BLOCK_HASH},
    {"groups", world_groups, 16, RKV_INDEX_RADIX},
    {"groups", world_groups, 1, RKV_INDEX_RADIX},
    {"long-windows", world_long_windows, 16, RKV_INDEX_RADIX},
    {"long-windows", world_long_windows, 1, RKV_INDEX_RADIX},
    {"slots", world_slots, 16, RKV_INDEX_RADIX},
    {"retained", world_retained, 16, RKV_INDEX_RADIX},
    {"pages", world_pages, 16, RKV_INDEX_RADIX},
    {"pages", world_pages, 1, RKV_INDEX_RADIX},
    {"journal", world_journal, 16, RKV_INDEX_RADIX},
    {"journal", world_journal, 16, RKV_INDEX_BLOCK_HASH},
    {"runner", world_runner, 16, RKV_INDEX_RADIX},
    {"runner", world_runner, 1, RKV_INDEX_RADIX},
    {"snapshots", world_snapshots, 0, 0},
    {"chain", world_snapshot_chain, 0, 0},
    {"tiers", world_tiers, 16, RKV_INDEX_RADIX},
    {"tiers", world_tiers, 16, RKV_INDEX_BLOCK_HASH},
    {"group-tiers", world_group_tiers, 16, RKV_INDEX_RADIX},
    {"group-tiers", world_group_tiers, 1, RKV_INDEX_RADIX},
    {"snapshot-tiers", world_snapshot_tiers, 0, 0},
};
enum { WORLD_COUNT = sizeof WORLDS / sizeof *WORLDS, ROW_LIMIT = 2048 };

/* "No call over 50 us": the rule that this project sets itself. */
static const double LONG_CALL = 50.0;

static struct longest_row rows[ROW_LIMIT];
static size_t row_count;

/* Rounds without a reader, and as many with one. */
static unsigned rounds = 3;
/* Memory for indexes that is had and touched before. */
static uint64_t reserve_mib;
static bool all, small;
static const char *only, *header;

static void usage(void)
{
    fprintf(stderr,
            "usage: longest-bench --header FILE [WORLD] [--rounds N] [--reserve MIB] "
            "[--all] [--small]\n");
    exit(2);
}

static void parse(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        const char *argument = arguments[i];
        if (strcmp(argument, "--all") == 0) {
            all = true;
        } else if (strcmp(argument, "--small") == 0) {
            small = true;
            uint32_t *size = &sizes.nodes;
            for (size_t j = 0; j < sizeof sizes / sizeof *size; j++) {
                size[j] /= SMALLER;
            }
        } else if (strcmp(argument, "--rounds") == 0 && i + 1 < argument_count) {
            rounds = (unsigned)strtoul(arguments[++i], NULL, 10);
            rounds = rounds < 1 ? 1 : rounds < 4 ? rounds : 4;
        } else if (strcmp(argument, "--reserve") == 0 && i + 1 < argument_count) {
            reserve_mib = strtoull(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--header") == 0 && i + 1 < argument_count) {
            header = arguments[++i];
        } else if (argument[0] != '-' && only == NULL) {
            only = argument;
        } else {
            usage();
        }
    }
    if (header == NULL) {
        usage();
    }
}

static void read_rows(int descriptor)
{
    struct longest_row row;
    size_t have = 0;
    ssize_t got;
    while ((got = read(descriptor, (char *)&row + have, sizeof row - have)) > 0) {
        have += (size_t)got;
        if (have == sizeof row) {
            REQUIRE(row_count < ROW_LIMIT);
            rows[row_count++] = row;
            have = 0;
        }
    }
}

static void run_in_child(int world)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(ends[0]);
        if (reserve_mib > 0) {
            CHECK(rkv_reserve_index_memory(reserve_mib << 20, RKV_HUGE_PAGES_TRY));
        }
        for (unsigned i = 0; i < 2 * rounds; i++) {
            /* The reader first: the last rounds, when all memory was there once, are without. */
            round_begin(i < rounds);
            WORLDS[world].run(WORLDS[world].page_size, WORLDS[world].index);
            round_end();
        }
        series_report(ends[1]);
        exit(0);
    }
    close(ends[1]);
    read_rows(ends[0]);
    close(ends[0]);
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "world %s failed\n", WORLDS[world].name);
        exit(1);
    }
}

static int by_length(const void *left, const void *right)
{
    const struct longest_row *a = left, *b = right;
    return (a->longest < b->longest) - (a->longest > b->longest);
}

static const char *number(char *text, size_t size, double value)
{
    if (value < 0) {
        return "";
    }
    snprintf(text, size, value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
    return text;
}

/* Whether the call is about far more than an engine asks for at once. */
static bool is_of_many(const struct longest_row *row)
{
    return strstr(row->situation, " in one call") != NULL;
}

/* A function has one line, and one more when such a call is longer than all others. */
static bool is_first(const struct longest_row *row)
{
    for (const struct longest_row *other = rows; other < row; other++) {
        if (strcmp(other->function, row->function) == 0 &&
            (is_of_many(row) || !is_of_many(other))) {
            return false;
        }
    }
    return true;
}

static void print_table(void)
{
    qsort(rows, row_count, sizeof *rows, by_length);
    printf("| function | world | calls | longest us | p99 us | longest read meanwhile, us "
           "| over 50 us? |\n|---|---|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < row_count; i++) {
        const struct longest_row *row = &rows[i];
        char longest[24], p99[24], wait[24];
        if (all || is_first(row)) {
            printf("| `%s` | %s | %llu | %s | %s | %s | %s |\n", row->function, row->situation,
                   (unsigned long long)row->call_count,
                   number(longest, sizeof longest, row->longest), number(p99, sizeof p99, row->p99),
                   number(wait, sizeof wait, row->wait), row->longest > LONG_CALL ? "yes" : "no");
        }
    }
}

int main(int argument_count, char **arguments)
{
    const char *commit = getenv("RKV_BENCH_COMMIT");
    parse(argument_count, arguments);
    clock_calibrate();
    for (int i = 0; i < WORLD_COUNT; i++) {
        if (only == NULL || strcmp(only, WORLDS[i].name) == 0) {
            fprintf(stderr, "%s, page size %u, index %u\n", WORLDS[i].name, WORLDS[i].page_size,
                    WORLDS[i].index);
            run_in_child(i);
        }
    }
    if (row_count == 0) {
        usage();
    }
    printf("Library of commit %s; %s, %ld cores; %u rounds of each world, half of them with a "
           "reader.\n", commit != NULL ? commit : "unknown", cpu_model(),
           sysconf(_SC_NPROCESSORS_ONLN), 2 * rounds);
    if (small) {
        printf("Worlds are %d times smaller than they are called.\n", SMALLER);
    }
    /* One world alone need not make every call. */
    bool is_whole = covers_header(header, rows, row_count, only == NULL) || only != NULL;
    printf("\n");
    print_table();
    return is_whole ? 0 : 1;
}
