/* A second thread that reads all the time, and notes how long its reads take. */
#include "longest.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_t thread;
static bool is_allowed, is_running;
static atomic_bool stop;
static const rkv_page_table *pages;
static rkv_snapshot_cache *snapshots;
static _Atomic uint64_t longest;

/* About 5 us. */
enum { PAUSE_TICKS = 12000 };

/* Odd while a read runs: whoever asks waits for the read that ran when the call ended. */
static _Atomic uint64_t reads;

static void read_once(void)
{
    if (pages != NULL) {
        /* Of the reads that take the lock the one that does least. */
        bool can;
        CHECK(rkv_page_table_can_reserve(pages, RKV_NO_SLOT, 1, &can));
    } else {
        /* Matches pin, and probes only look; both take the lock, as reader and as writer. */
        const uint32_t id = FRESH_MISS;
        rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = &id, .count = 1};
        size_t count;
        CHECK(rkv_snapshot_cache_probe(snapshots, NULL, &tokens, &count));
    }
}

/* Says of a thread how long it was ready and waited for a processor; -1 where that isn't told. */
static int open_delays(long id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", id);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Nanoseconds. */
static uint64_t delays(int file)
{
    char text[96];
    ssize_t size = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
    if (size <= 0) {
        return 0;
    }
    text[size] = '\0';
    char *end;
    strtoull(text, &end, 10);
    return strtoull(end, NULL, 10);
}

static uint64_t less(uint64_t from, uint64_t nanoseconds_less)
{
    uint64_t ticks = (uint64_t)((double)nanoseconds_less / nanoseconds(1));
    return from > ticks ? from - ticks : 0;
}

static void *run(void *context)
{
    int own = open_delays(syscall(SYS_gettid)), caller = open_delays(getpid());
    while (!atomic_load(&stop)) {
        uint64_t before = delays(own) + delays(caller);
        atomic_fetch_add(&reads, 1);
        uint64_t start = ticks_now();
        read_once();
        uint64_t taken = ticks_now() - start;
        /* Where either thread waited for a processor, nobody waited for the call meanwhile. */
        if (taken > PAUSE_TICKS) {
            taken = less(taken, delays(own) + delays(caller) - before);
        }
        if (taken > atomic_load(&longest)) {
            atomic_store(&longest, taken);
        }
        atomic_fetch_add(&reads, 1);
        /* A reader without a pause would make every call wait for it. */
        for (start = ticks_now(); ticks_now() - start < PAUSE_TICKS;) {
        }
    }
    close(own);
    close(caller);
    return context;
}

static void start(void)
{
    if (is_allowed) {
        REQUIRE(!is_running);
        atomic_store(&stop, false);
        REQUIRE(pthread_create(&thread, NULL, run, NULL) == 0);
        is_running = true;
    }
}

void reader_allow(bool allowed)
{
    is_allowed = allowed;
}

void reader_of_pages(const rkv_page_table *table)
{
    pages = table;
    snapshots = NULL;
    start();
}

void reader_of_snapshots(rkv_snapshot_cache *cache)
{
    pages = NULL;
    snapshots = cache;
    start();
}

void reader_stop(void)
{
    if (is_running) {
        atomic_store(&stop, true);
        REQUIRE(pthread_join(thread, NULL) == 0);
        is_running = false;
    }
}

void reader_forget(void)
{
    atomic_store(&longest, 0);
}

uint64_t reader_longest(void)
{
    if (!is_running) {
        return 0;
    }
    uint64_t now = atomic_load(&reads);
    while (now % 2 == 1 && atomic_load(&reads) == now) {
        sched_yield();
    }
    return atomic_load(&longest);
}
