/* A second thread that reads all the time, and notes how long its reads take. */
#include "longest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>

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

static void *run(void *context)
{
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&reads, 1);
        uint64_t start = ticks_now();
        read_once();
        uint64_t taken = ticks_now() - start;
        if (taken > atomic_load(&longest)) {
            atomic_store(&longest, taken);
        }
        atomic_fetch_add(&reads, 1);
        /* A reader without a pause would make every call wait for it. */
        for (start = ticks_now(); ticks_now() - start < PAUSE_TICKS;) {
        }
    }
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
