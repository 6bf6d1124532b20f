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

/* Of a file, what the system has of it in memory. */
static off_t forget(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY);
    REQUIRE(file >= 0);
    REQUIRE(fdatasync(file) == 0);
    REQUIRE(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    off_t size = lseek(file, 0, SEEK_END);
    close(file);
    return size;
}

static void measure_opening(const char *directory, uint32_t count)
{
    const uint64_t limit = (uint64_t)count * 8192;
    static char byte = 'x';
    rkv_snapshot_cache *cache = new_cache(64);
    attach(cache, directory, limit);
    double start = seconds_now();
    for (uint32_t number = 0; number < count; number++) {
        insert(cache, number, &byte, 1);
    }
    CHECK(rkv_snapshot_cache_flush(cache, HOUR_MS));
    double written = seconds_now() - start;
    REQUIRE(stats_of(cache).entry_count == count);
    rkv_snapshot_cache_destroy(cache);
    for (int run = 0; run < 5; run++) {
        off_t size = forget(directory, "records.redb");
        for (int again = 0; again < 2; again++) {
            cache = new_cache(64);
            start = seconds_now();
            double begin = worked();
            attach(cache, directory, limit);
            double work = worked() - begin, opened = seconds_now() - start;
            rkv_snapshot_tier_stats stats = stats_of(cache);
            REQUIRE(stats.entry_count == count && stats.unusable_count == 0);
            printf("%u records, written in %.1f s; opened in %.2f s, of which %.2f s of the "
                   "processor's, %s; file of records %.0f MB, index %.0f MB\n",
                   count, written, opened, work,
                   again ? "the file in the system's cache" : "the file not in the system's cache",
                   (double)size / 1e6, (double)stats.index_bytes / 1e6);
            fflush(stdout);
            rkv_snapshot_cache_destroy(cache);
        }
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

int main(int argument_count, char **arguments)
{
    if (argument_count == 4 && strcmp(arguments[2], "open") == 0) {
        measure_opening(arguments[1], (uint32_t)strtoul(arguments[3], NULL, 10));
    } else if (argument_count == 6 && strcmp(arguments[2], "disk") == 0) {
        how = strcmp(arguments[5], "threads") == 0 ? RKV_TIERS_THREADS : 0;
        uint32_t count = (uint32_t)strtoul(arguments[3], NULL, 10);
        measure_disk(arguments[1], count, strtoull(arguments[4], NULL, 10) * MIB);
    } else {
        fprintf(stderr, "usage: tier-bench DIRECTORY open RECORDS"
                        " | disk STATES MIB ring|threads\n");
        return 2;
    }
    return 0;
}
