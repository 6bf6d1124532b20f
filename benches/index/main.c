/* Runs workloads, each page size of each in a process of its own, and prints what they measured. */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct options options = {.leaf_limit = 1000000};

static const struct {
    const char *name;
    void (*run)(uint32_t page_size);
    uint32_t page_sizes[4];     /* Ends with 0. */
} WORKLOADS[] = {
    {"w1", run_w1, {16, 1, 64}}, {"w2", run_w2, {16, 1, 64}},       {"w3", run_w3, {16, 1, 64}},
    {"w4", run_w4, {16, 1, 64}}, {"w5", run_w5, {16, 1, 64}},       {"w6", run_w6, {16, 1}},
    {"w7", run_w7, {16}},
    {"probe", run_probe, {16}},  {"rows", run_rows, {16, 1, 64}},
    {"forks", run_forks, {16, 1}}, {"machine", run_machine, {16}},
};
enum { WORKLOAD_COUNT = sizeof WORKLOADS / sizeof *WORKLOADS };

static void usage(void)
{
    fprintf(stderr,
            "usage: index-bench [w1|w2|w3|w4|w5|w6|w7|probe|rows|forks|machine]\n"
            "                   [--index radix|block-hash] [--page N] [--runs N] [--leaves N]\n"
            "                   [--journal BYTES] [--tiers] [--reserve MIB]\n"
            "                   [--json] [--brief] [--count]\n"
            "                   [--operation TEXT]\n");
    exit(2);
}

static uint32_t index_named(const char *name)
{
    if (strcmp(name, "block-hash") == 0) {
        return RKV_INDEX_BLOCK_HASH;
    }
    if (strcmp(name, "radix") != 0) {
        usage();
    }
    return RKV_INDEX_RADIX;
}

static void parse(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        const char *argument = arguments[i];
        bool has_value = i + 1 < argument_count;
        if (strcmp(argument, "--json") == 0) {
            options.json = true;
        } else if (strcmp(argument, "--brief") == 0) {
            options.brief = true;
        } else if (strcmp(argument, "--count") == 0) {
            options.count = true;
        } else if (strcmp(argument, "--page") == 0 && has_value) {
            options.page_size = (uint32_t)strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--index") == 0 && has_value) {
            options.index = index_named(arguments[++i]);
        } else if (strcmp(argument, "--runs") == 0 && has_value) {
            options.run_count = (unsigned)strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--leaves") == 0 && has_value) {
            options.leaf_limit = (uint32_t)strtoul(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--journal") == 0 && has_value) {
            options.journal_bytes = strtoull(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--tiers") == 0) {
            options.tiers = true;
        } else if (strcmp(argument, "--reserve") == 0 && has_value) {
            options.reserve_mib = strtoull(arguments[++i], NULL, 10);
        } else if (strcmp(argument, "--operation") == 0 && has_value) {
            options.operation = arguments[++i];
        } else if (argument[0] != '-' && options.workload == NULL) {
            options.workload = argument;
        } else {
            usage();
        }
    }
}

/* Memory for the indexes of a workload, on huge pages if there are any. */
static void reserve(void)
{
    if (options.reserve_mib == 0) {
        return;
    }
    rkv_index_memory_stats stats = {.struct_size = sizeof stats};
    REQUIRE(rkv_reserve_index_memory(options.reserve_mib << 20, RKV_HUGE_PAGES_TRY) ==
            RKV_STATUS_OK);
    REQUIRE(rkv_read_index_memory_stats(&stats) == RKV_STATUS_OK);
    fprintf(stderr, "reserved %llu MiB, %llu of them on huge pages\n",
            (unsigned long long)stats.reserved_bytes >> 20,
            (unsigned long long)stats.huge_page_bytes >> 20);
}

static void run_in_child(struct report *report, int workload, uint32_t page_size)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(ends[0]);
        rows_to(ends[1]);
        reserve();
        WORKLOADS[workload].run(page_size);
        exit(0);
    }
    close(ends[1]);
    report_read(report, ends[0]);
    close(ends[0]);
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "%s at page size %u failed\n", WORKLOADS[workload].name, page_size);
        exit(1);
    }
}

int main(int argument_count, char **arguments)
{
    static struct report report;
    bool known = false;
    options.commit = getenv("RKV_BENCH_COMMIT") != NULL ? getenv("RKV_BENCH_COMMIT") : "unknown";
    parse(argument_count, arguments);
    if (!options.count) {
        clock_calibrate();
    }
    for (int i = 0; i < WORKLOAD_COUNT; i++) {
        if (options.workload != NULL && strcmp(options.workload, WORKLOADS[i].name) != 0) {
            continue;
        }
        known = true;
        for (int p = 0; p < 4 && WORKLOADS[i].page_sizes[p] != 0; p++) {
            uint32_t page_size = WORKLOADS[i].page_sizes[p];
            if (options.page_size != 0 && options.page_size != page_size) {
                continue;
            }
            fprintf(stderr, "%s, page size %u\n", WORKLOADS[i].name, page_size);
            if (options.count) {
                /* In this process: callgrind writes one set of counts per process. */
                WORKLOADS[i].run(page_size);
            } else {
                run_in_child(&report, i, page_size);
            }
        }
    }
    if (!known) {
        usage();
    }
    if (options.count) {
        return 0;
    }
    report_page_one_targets(&report);
    report_limits(&report);
    if (options.json) {
        report_json(&report);
    } else {
        printf("Library of commit %s%s; %s, %ld cores; an empty timed interval takes %.0f ns.\n\n",
               options.commit, options.index == RKV_INDEX_RADIX ? "" : ", block-hash index",
               cpu_model(), sysconf(_SC_NPROCESSORS_ONLN), clock_cost());
        report_markdown(&report);
    }
    return 0;
}
