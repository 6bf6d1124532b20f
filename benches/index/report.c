/* The table: what was measured, what was aimed at, and which of the two wins. */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int descriptor_of_rows = -1;

/* What takes up to so much more than the floor below it has nothing left to gain. */
static const double AT_LIMIT = 1.25;

struct message {
    uint32_t is_memory;
    union {
        struct row row;
        struct memory_row memory;
    };
};

void rows_to(int descriptor)
{
    descriptor_of_rows = descriptor;
}

static void send_message(const struct message *message)
{
    /* Smaller than PIPE_BUF, so it arrives whole. */
    if (descriptor_of_rows >= 0) {
        ssize_t written = write(descriptor_of_rows, message, sizeof *message);
        REQUIRE(written == (ssize_t)sizeof *message);
    }
}

struct row row_new(const char *workload, const char *operation, uint32_t page_size)
{
    struct row row = {.page_size = page_size,
                      .median = -1,
                      .quiet = -1,
                      .p50 = -1,
                      .p99 = -1,
                      .p9999 = -1,
                      .longest = -1,
                      .longest_raw = -1,
                      .over_limit = -1,
                      .target = -1,
                      .limit = -1};
    snprintf(row.workload, sizeof row.workload, "%s", workload);
    snprintf(row.operation, sizeof row.operation, "%s", operation);
    return row;
}

void row_emit(const struct row *row)
{
    struct message message = {.is_memory = 0};
    message.row = *row;
    send_message(&message);
}

void memory_row_emit(const struct memory_row *row)
{
    struct message message = {.is_memory = 1};
    message.memory = *row;
    send_message(&message);
}

void report_read(struct report *report, int descriptor)
{
    struct message message;
    size_t filled = 0;
    ssize_t count;
    while ((count = read(descriptor, (char *)&message + filled, sizeof message - filled)) > 0) {
        filled += (size_t)count;
        if (filled < sizeof message) {
            continue;
        }
        filled = 0;
        if (message.is_memory) {
            REQUIRE(report->memory_row_count < 64);
            report->memory_rows[report->memory_row_count++] = message.memory;
        } else {
            REQUIRE(report->row_count < 512);
            report->rows[report->row_count++] = message.row;
        }
    }
}

static const struct row *same_operation(const struct report *report, const struct row *row,
                                        uint32_t page_size)
{
    for (size_t i = 0; i < report->row_count; i++) {
        const struct row *other = &report->rows[i];
        if (other->page_size == page_size && strcmp(row->workload, other->workload) == 0 &&
            strcmp(row->operation, other->operation) == 0) {
            return other;
        }
    }
    return NULL;
}

/* Targets are for pages of 16; page 1 may take twice as long, except where it counts pages. */
void report_page_one_targets(struct report *report)
{
    for (size_t i = 0; i < report->row_count; i++) {
        struct row *row = &report->rows[i];
        bool is_rule = row->unit != UNIT_MICROSECONDS || strncmp(row->operation, "longest", 7) == 0;
        if (row->page_size == 16 || is_rule || strcmp(row->workload, "floor") == 0) {
            continue;
        }
        row->target = row->limit = -1;
        const struct row *other = same_operation(report, row, 16);
        bool counts_pages = strcmp(row->workload, "rows") == 0 ||
                            strcmp(row->workload, "forks") == 0 ||
                            strncmp(row->operation, "allocate", 8) == 0;
        if (row->page_size == 1 && other != NULL && !counts_pages) {
            row->target = 2 * other->quiet;
        }
    }
}

static const char *number(char *text, size_t size, double value)
{
    if (value < 0) {
        return "";
    }
    snprintf(text, size, value < 0.9995 ? "%.3f" : value < 99.95 ? "%.2f" : "%.0f", value);
    return text;
}

static const char *unit_name(uint32_t unit)
{
    return unit == UNIT_RATIO ? "ratio" : "us";
}

/* Targets are the radix tree's. */
static double target_of(const struct row *row)
{
    return options.index == RKV_INDEX_RADIX ? row->target : -1;
}

static const char *verdict(char *text, size_t size, const struct row *row)
{
    if (target_of(row) < 0) {
        return "";
    }
    if (row->median <= row->target) {
        return "met";
    }
    if (row->quiet >= 0 && row->quiet <= row->target) {
        return "met when quiet";
    }
    double best = row->quiet >= 0 ? row->quiet : row->median;
    if (row->limit > 0 && best <= AT_LIMIT * row->limit) {
        snprintf(text, size, "at its limit, %.2fx of the floor", best / row->limit);
    } else if (row->limit > 0) {
        const char *out_of_reach = row->limit > row->target ? ", which is above the target" : "";
        snprintf(text, size, "missed, %.2fx; %.2fx of the floor%s", best / row->target,
                 best / row->limit, out_of_reach);
    } else {
        snprintf(text, size, "missed, %.2fx", best / row->target);
    }
    return text;
}

static void print_row(const struct row *row)
{
    char cell[9][80];
    printf("| %s | %s | %u | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", row->workload,
           row->operation, row->page_size, unit_name(row->unit),
           number(cell[0], sizeof cell[0], row->median),
           number(cell[1], sizeof cell[1], row->quiet),
           number(cell[2], sizeof cell[2], row->p50), number(cell[3], sizeof cell[3], row->p99),
           number(cell[4], sizeof cell[4], row->p9999),
           number(cell[5], sizeof cell[5], row->longest),
           number(cell[6], sizeof cell[6], target_of(row)),
           number(cell[7], sizeof cell[7], options.index == RKV_INDEX_RADIX ? row->limit : -1),
           verdict(cell[8], sizeof cell[8], row));
}

/* What the documentation shows: what has a target, at pages of 16 and 1, and the floor below. */
static bool is_brief(const struct report *report, const struct row *row)
{
    bool is_floor = strcmp(row->workload, "floor") == 0 && row->page_size != 64;
    if (is_floor || strcmp(row->workload, "machine") == 0) {
        return options.index == RKV_INDEX_RADIX;
    }
    if (strcmp(row->workload, "probe") == 0) {
        return true;
    }
    const struct row *other = row->page_size == 1 ? same_operation(report, row, 16) : NULL;
    return row->page_size != 64 && row->target >= 0 && (other == NULL || other->target >= 0);
}

/* Bound of the project: 12 bytes per position and 128 per node at page 1, 6 and 128 at page 16. */
static double memory_bound(const struct memory_row *row)
{
    double per_position = row->page_size == 1 ? 12 : 6;
    return per_position * (double)row->position_count + 128 * (double)row->node_count;
}

/* What a node takes when a key takes four bytes and a page number four: the rest is the node's. */
static double bytes_per_node(const struct memory_row *row)
{
    double content = (double)row->position_count * (4 + 4.0 / row->page_size);
    return ((double)row->heap_bytes - content) / (double)row->node_count;
}

static void print_memory_row(const struct memory_row *row)
{
    double bound = memory_bound(row);
    bool met = (double)row->heap_bytes <= bound && (double)row->index_bytes <= bound;
    printf("| %s | %u | %llu | %llu | %.2f | %.2f | %.2f | %.2f | %.0f | %.2f | %s |\n",
           row->workload, row->page_size, (unsigned long long)row->position_count,
           (unsigned long long)row->node_count, (double)row->index_bytes / 1e6,
           (double)row->heap_bytes / 1e6, bound / 1e6,
           (double)row->heap_bytes / (double)row->position_count, bytes_per_node(row),
           (double)row->heap_bytes / bound, met ? "met" : "missed");
}

void report_markdown(const struct report *report)
{
    printf("| workload | operation | page | unit | median | quiet | p50 | p99 | p99.99 | longest "
           "| target | limit | verdict |\n"
           "|---|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < report->row_count; i++) {
        if (!options.brief || is_brief(report, &report->rows[i])) {
            print_row(&report->rows[i]);
        }
    }
    if (report->memory_row_count == 0) {
        return;
    }
    printf("\n| workload | page | positions | nodes | index_bytes, MB | heap, MB | bound, MB "
           "| heap bytes / position | beyond keys and pages, bytes / node | heap / bound "
           "| verdict |\n"
           "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < report->memory_row_count; i++) {
        if (!options.brief || report->memory_rows[i].page_size != 64) {
            print_memory_row(&report->memory_rows[i]);
        }
    }
}

static void json_row(const struct row *row)
{
    char text[80];
    printf("    {\"workload\": \"%s\", \"operation\": \"%s\", \"page_size\": %u, \"unit\": \"%s\", "
           "\"call_count\": %llu",
           row->workload, row->operation, row->page_size, unit_name(row->unit),
           (unsigned long long)row->call_count);
    const struct {
        const char *name;
        double value;
    } fields[] = {{"median", row->median},   {"quiet", row->quiet},
                  {"p50", row->p50},         {"p99", row->p99},
                  {"p9999", row->p9999},     {"longest", row->longest},
                  {"longest_raw", row->longest_raw}, {"over_50_us", row->over_limit},
                  {"target", target_of(row)},
                  {"limit", options.index == RKV_INDEX_RADIX ? row->limit : -1}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].value >= 0) {
            printf(", \"%s\": %.6g", fields[i].name, fields[i].value);
        }
    }
    printf(", \"verdict\": \"%s\"}", verdict(text, sizeof text, row));
}

void report_json(const struct report *report)
{
    printf("{\n  \"commit\": \"%s\",\n  \"index\": \"%s\",\n  \"cpu\": \"%s\",\n"
           "  \"core_count\": %ld,\n  \"clock_cost_ns\": %.1f,\n  \"rows\": [\n",
           options.commit, options.index == RKV_INDEX_RADIX ? "radix" : "block-hash",
           cpu_model(), sysconf(_SC_NPROCESSORS_ONLN), clock_cost());
    for (size_t i = 0; i < report->row_count; i++) {
        json_row(&report->rows[i]);
        printf(i + 1 < report->row_count ? ",\n" : "\n");
    }
    printf("  ],\n  \"memory\": [\n");
    for (size_t i = 0; i < report->memory_row_count; i++) {
        const struct memory_row *row = &report->memory_rows[i];
        printf("    {\"workload\": \"%s\", \"page_size\": %u, \"position_count\": %llu, "
               "\"node_count\": %llu, \"index_bytes\": %llu, \"heap_bytes\": %llu, "
               "\"bound_bytes\": %.0f}%s\n",
               row->workload, row->page_size, (unsigned long long)row->position_count,
               (unsigned long long)row->node_count, (unsigned long long)row->index_bytes,
               (unsigned long long)row->heap_bytes, memory_bound(row),
               i + 1 < report->memory_row_count ? "," : "");
    }
    printf("  ]\n}\n");
}
