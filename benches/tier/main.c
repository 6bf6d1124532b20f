/*
 * The snapshot cache over a directory: how long a directory takes to open, how quickly states go to
 * the disk and come back, and how long it is from a restart to the first state in memory.
 */
#include "../index/bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct options options;

enum { LENGTH = 32, HOUR_MS = 3600000, MIB = 1 << 20 };

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of all threads of this process: others on the machine do not count. */
static double worked(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static rkv_snapshot_cache *new_cache(uint64_t entry_limit)
{
    rkv_snapshot_cache_config config;
    CHECK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_limit;
    rkv_snapshot_cache *cache = NULL;
    CHECK(rkv_snapshot_cache_create(&config, &cache));
    return cache;
}

/* Zero, or RKV_TIERS_THREADS. */
static uint32_t how;

static void attach(rkv_snapshot_cache *cache, const char *directory, uint64_t byte_limit)
{
    rkv_snapshot_tier_config config;
    CHECK(rkv_snapshot_tier_config_init(&config, sizeof config));
    config.directory = directory;
    config.flags = how;
    config.byte_limit = byte_limit;
    config.waiting_byte_limit = UINT64_MAX;
    CHECK(rkv_snapshot_cache_attach(cache, &config));
}

/* Half of the tokens are those of a thousand others. */
static rkv_tokens tokens_of(uint32_t number, uint32_t *ids)
{
    for (uint32_t at = 0; at < LENGTH; at++) {
        ids[at] = at < LENGTH / 2 ? number / 1000 * 64 + at : number % 1000 * 64 + at;
    }
    return (rkv_tokens){.struct_size = sizeof(rkv_tokens), .ids = ids, .count = LENGTH};
}

static void insert(rkv_snapshot_cache *cache, uint32_t number, void *data, uint64_t bytes)
{
    uint32_t ids[LENGTH];
    rkv_tokens tokens = tokens_of(number, ids);
    rkv_snapshot_cache_insert_args args = {
        .struct_size = sizeof args,
        .flags = RKV_SNAPSHOT_INSERT_STORABLE,
        .tokens = &tokens,
        .data = data,
        .size_bytes = bytes,
    };
    CHECK(rkv_snapshot_cache_insert(cache, &args, NULL));
}

static rkv_snapshot_tier_stats stats_of(rkv_snapshot_cache *cache)
{
    rkv_snapshot_tier_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_snapshot_cache_read_tier_stats(cache, &stats));
    return stats;
}

static int open_in(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY);
    REQUIRE(file >= 0);
    return file;
}

static off_t size_of(const char *directory, const char *name)
{
    int file = open_in(directory, name);
    off_t size = lseek(file, 0, SEEK_END);
    close(file);
    return size;
}

/* Of a file, what the system has of it in memory. */
static void forget(const char *directory, const char *name)
{
    int file = open_in(directory, name);
    REQUIRE(fdatasync(file) == 0);
    REQUIRE(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    close(file);
}

/* Of the thread that calls: what it can't have others do. */
static double worked_alone(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t opening_limit(uint32_t count)
{
    return (uint64_t)count * 8192;
}

static void fill(const char *directory, uint32_t count)
{
    static char byte = 'x';
    rkv_snapshot_cache *cache = new_cache(64);
    attach(cache, directory, opening_limit(count));
    double start = seconds_now();
    for (uint32_t number = 0; number < count; number++) {
        insert(cache, number, &byte, 1);
    }
    CHECK(rkv_snapshot_cache_flush(cache, HOUR_MS));
    printf("%u records, written in %.1f s\n", count, seconds_now() - start);
    rkv_snapshot_cache_destroy(cache);
}

static void open_once(const char *directory, uint32_t count, off_t size, const char *where)
{
    rkv_snapshot_cache *cache = new_cache(64);
    double start = seconds_now(), begin = worked(), alone = worked_alone();
    attach(cache, directory, opening_limit(count));
    alone = worked_alone() - alone;
    double work = worked() - begin, opened = seconds_now() - start;
    rkv_snapshot_tier_stats stats = stats_of(cache);
    REQUIRE(stats.entry_count == count && stats.unusable_count == 0);
    printf("%u records opened in %.2f s, of which %.2f s of processors', %.2f s of the "
           "caller's thread, %s; file of records %.0f MB, index %.0f MB\n",
           count, opened, work, alone, where, (double)size / 1e6, (double)stats.index_bytes / 1e6);
    fflush(stdout);
    rkv_snapshot_cache_destroy(cache);
}

/* In a process that has just begun, as after a restart: its memory is new too. */
static void measure_opening(const char *directory, uint32_t count)
{
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        off_t size = size_of(directory, "records.redb");
        if (!is_cached) {
            forget(directory, "records.redb");
        }
        pid_t process = fork();
        REQUIRE(process >= 0);
        if (process == 0) {
            open_once(directory, count, size,
                      is_cached ? "the file in the system's cache"
                                : "the file not in the system's cache");
            if (is_cached) {
                open_once(directory, count, size, "the same process again");
            }
            _exit(0);
        }
        int status;
        REQUIRE(waitpid(process, &status, 0) == process && status == 0);
    }
}

static double bring(rkv_snapshot_cache *cache, uint32_t first, uint32_t count, const char *want)
{
    rkv_ticket_id tickets[64];
    REQUIRE(count <= 64);
    double start = seconds_now();
    for (uint32_t number = 0; number < count; number++) {
        uint32_t ids[LENGTH];
        rkv_tokens tokens = tokens_of(first + number, ids);
        rkv_snapshot_cache_fetch_result fetch = {.struct_size = sizeof fetch};
        CHECK(rkv_snapshot_cache_fetch(cache, NULL, &tokens, 0, &fetch));
        REQUIRE(fetch.ticket != 0);
        tickets[number] = fetch.ticket;
    }
    rkv_snapshot_cache_match_result found[64];
    for (uint32_t number = 0; number < count; number++) {
        found[number].struct_size = sizeof found[number];
        rkv_status status;
        while ((status = rkv_snapshot_cache_take(cache, tickets[number], &found[number])) ==
               RKV_STATUS_PENDING) {
            usleep(200);
        }
        CHECK(status);
        REQUIRE(found[number].pin != 0);
    }
    double taken = seconds_now() - start;
    for (uint32_t number = 0; number < count; number++) {
        REQUIRE(memcmp(found[number].data, want, found[number].size_bytes) == 0);
        CHECK(rkv_snapshot_cache_release(cache, found[number].pin));
    }
    return taken;
}

static void measure_disk(const char *directory, uint32_t count, uint64_t bytes)
{
    char *state = NULL;
    REQUIRE(posix_memalign((void **)&state, 4096, bytes) == 0);
    struct rng rng = {.state = 5};
    for (uint64_t at = 0; at < bytes; at += 4) {
        uint32_t word = rng_below(&rng, UINT32_MAX);
        memcpy(state + at, &word, 4);
    }
    rkv_snapshot_cache *cache = new_cache(1024);
    attach(cache, directory, (uint64_t)(count + 1) * bytes);
    double start = seconds_now();
    for (uint32_t number = 0; number < count; number++) {
        insert(cache, number, state, bytes);
    }
    CHECK(rkv_snapshot_cache_flush(cache, HOUR_MS));
    double written = seconds_now() - start;
    rkv_snapshot_cache_destroy(cache);
    forget(directory, "data");
    cache = new_cache(1024);
    start = seconds_now();
    attach(cache, directory, (uint64_t)(count + 1) * bytes);
    double opened = seconds_now() - start;
    double first = bring(cache, 0, 1, state);
    double rest = bring(cache, 1, count - 1, state);
    double megabytes = (double)count * (double)bytes / 1e6;
    printf("%s: %u states of %" PRIu64 " MiB: written and committed at %.0f MB/s, "
           "read at %.0f MB/s; restart to the first state %.0f ms, of which %.0f to open\n",
           stats_of(cache).is_ring ? "io_uring" : "threads", count, bytes / MIB,
           megabytes / written,
           megabytes * (count - 1) / count / rest, (opened + first) * 1e3, opened * 1e3);
    rkv_snapshot_cache_destroy(cache);
    free(state);
}

/* ---- host memory ------------------------------------------------------------------------- */

enum { PAGE_TOKENS = 16, PAGES = 256, PAGE_BYTES = 2 * MIB };

struct host {
    rkv_page_table *table;
    rkv_cache *cache;
    uint8_t *pages;
    double copying; /* seconds in memcpy, which an engine's copies are */
};

/* Carries copies out for as long as there are some; whether a fetch has ended, with all pages. */
static bool step_host(struct host *host)
{
    rkv_copy_job jobs[64];
    rkv_fetch_end ends[4];
    rkv_cache_poll_result got = {.struct_size = sizeof got};
    CHECK(rkv_cache_poll(host->cache, jobs, sizeof *jobs, 64, ends, sizeof *ends, 4, &got));
    for (size_t i = 0; i < got.job_count; i++) {
        uint8_t *page = host->pages + (size_t)jobs[i].page * PAGE_BYTES;
        bool loads = jobs[i].direction == RKV_COPY_LOAD;
        double start = seconds_now();
        memcpy(loads ? page : jobs[i].host, loads ? jobs[i].host : page, PAGE_BYTES);
        host->copying += seconds_now() - start;
        CHECK(rkv_cache_complete(host->cache, &jobs[i].job, 1, true));
    }
    if (got.job_count == 0) {
        usleep(20);
    }
    REQUIRE(got.end_count == 0 || ends[0].brought_page_count == PAGES);
    return got.end_count > 0;
}

static rkv_tier_stats host_stats(struct host *host)
{
    rkv_tier_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_cache_read_tier_stats(host->cache, &stats));
    return stats;
}

static rkv_sequence_info begin_host(struct host *host)
{
    static uint32_t ids[PAGES * PAGE_TOKENS + 1];
    for (uint32_t at = 0; at < PAGES * PAGE_TOKENS + 1; at++) {
        ids[at] = at;
    }
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = ids, .count = PAGES * PAGE_TOKENS + 1};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    CHECK(rkv_sequence_begin(host->cache, &args, &state));
    return state;
}

/* Pages go to host memory and come back, beside copies of the same memory without a library. */
static void measure_host(void)
{
    struct host host = {0};
    const size_t all = (size_t)PAGES * PAGE_BYTES;
    uint8_t *beside = NULL, *slots = NULL;
    REQUIRE(posix_memalign((void **)&host.pages, 4096, all + 2 * (size_t)PAGE_BYTES) == 0);
    REQUIRE(posix_memalign((void **)&beside, 4096, all) == 0);
    REQUIRE(posix_memalign((void **)&slots, 4096, all) == 0);
    memset(host.pages, 1, all + 2 * (size_t)PAGE_BYTES);
    memset(beside, 2, all);
    memset(slots, 3, all);
    rkv_page_table_config config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE_TOKENS;
    config.page_count = PAGES + 2;
    config.slot_count = 4;
    CHECK(rkv_page_table_create(&config, &host.table));
    rkv_cache_config cache_config;
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.journal_bytes = MIB;
    CHECK(rkv_cache_create(host.table, &cache_config, &host.cache));
    rkv_tier_config tiers;
    CHECK(rkv_tier_config_init(&tiers, sizeof tiers));
    tiers.page_bytes = PAGE_BYTES;
    tiers.host_bytes = all;
    tiers.host_memory = slots;
    CHECK(rkv_cache_attach_tiers(host.cache, &tiers));
    for (int run = 0; run < 5; run++) {
        rkv_sequence_info state = begin_host(&host);
        double start = seconds_now();
        if (run == 0) {
            rkv_sequence_publish_result published = {.struct_size = sizeof published};
            CHECK(rkv_sequence_publish(host.cache, state.sequence, PAGES * PAGE_TOKENS,
                                       &published));
            while (host_stats(&host).host.stored_page_count < PAGES) {
                step_host(&host);
            }
        } else {
            rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
            CHECK(rkv_sequence_fetch(host.cache, state.sequence, UINT64_MAX, 0, &fetch));
            REQUIRE(fetch.is_open);
            while (!step_host(&host)) {
            }
        }
        double taken = seconds_now() - start;
        CHECK(rkv_sequence_release(host.cache, state.sequence));
        size_t evicted = 0;
        CHECK(rkv_cache_evict(host.cache, PAGES, NULL, 0, &evicted));
        REQUIRE(evicted == PAGES);
        start = seconds_now();
        for (size_t page = 0; page < PAGES; page++) {
            memcpy(beside + page * PAGE_BYTES, slots + page * PAGE_BYTES, PAGE_BYTES);
        }
        double plain = seconds_now() - start;
        printf("%u pages of %u MiB %s host memory: %.2f GB/s, of which copies %.2f GB/s; "
               "memcpy beside it %.2f GB/s\n",
               PAGES, PAGE_BYTES / MIB, run == 0 ? "to" : "from", (double)all / taken / 1e9,
               (double)all / host.copying / 1e9, (double)all / plain / 1e9);
        host.copying = 0;
    }
    rkv_cache_destroy(host.cache);
    rkv_page_table_destroy(host.table);
    free(host.pages), free(beside), free(slots);
}

int main(int argument_count, char **arguments)
{
    if (argument_count == 4 && strcmp(arguments[2], "fill") == 0) {
        fill(arguments[1], (uint32_t)strtoul(arguments[3], NULL, 10));
    } else if (argument_count == 4 && strcmp(arguments[2], "open") == 0) {
        measure_opening(arguments[1], (uint32_t)strtoul(arguments[3], NULL, 10));
    } else if (argument_count == 6 && strcmp(arguments[2], "disk") == 0) {
        how = strcmp(arguments[5], "threads") == 0 ? RKV_TIERS_THREADS : 0;
        uint32_t count = (uint32_t)strtoul(arguments[3], NULL, 10);
        measure_disk(arguments[1], count, strtoull(arguments[4], NULL, 10) * MIB);
    } else if (argument_count == 3 && strcmp(arguments[2], "host") == 0) {
        measure_host();
    } else {
        fprintf(stderr, "usage: tier-bench DIRECTORY host | fill RECORDS | open RECORDS"
                        " | disk STATES MIB ring|threads\n");
        return 2;
    }
    return 0;
}
