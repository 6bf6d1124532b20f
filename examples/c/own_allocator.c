/*
 * An engine with an allocator and a scheduler of its own, in C: its free list hands the pages out,
 * its requests keep lists of them, and the cache of the library remembers which hold which tokens.
 * The page table's pool is external: a page is the engine's until the cache adopts it, and again
 * when the cache gives it up.
 *
 *     cc -Iinclude examples/c/own_allocator.c -Ltarget/release -lradixkv -o own_allocator
 *     LD_LIBRARY_PATH=target/release ./own_allocator
 *
 * Requests of two applications, each with a system prompt of its own, in a pool that is too small
 * for all of them. At the end every page is looked for: none is lost, and none is in two places.
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_SIZE = 16, PAGES = 26, LENGTH = 256, ROW = LENGTH / PAGE_SIZE };
enum { REQUESTS = 10, RUNNING = 3, SYSTEM = 96 };

/* Pages 1 to PAGES; page 0 is the library's. */
static uint32_t free_pages[PAGES];
static size_t free_count;

/* A request: its tokens, its pages, of which the first `shared` are the cache's, and the node whose
 * lock keeps those. */
typedef struct request {
    unsigned name;
    uint32_t ids[LENGTH], row[ROW];
    size_t count, target, pages, shared;
    rkv_lock_id lock;
} request;

static rkv_page_table *table;
static rkv_cache *cache;
static request waiting[REQUESTS], *running[RUNNING];
static size_t next_waiting, running_count;

/* Every fallible call returns a status; the message is the calling thread's. */
static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

static rkv_tokens tokens_of(const request *r, size_t count) {
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = r->ids;
    tokens.count = count;
    return tokens;
}

static rkv_page_table_stats stats(void) {
    rkv_page_table_stats now = {0};
    now.struct_size = sizeof now;
    must(rkv_page_table_read_stats(table, &now));
    return now;
}

/* ---- the allocator ---- */

static size_t pages_for(size_t tokens) { return (tokens + PAGE_SIZE - 1) / PAGE_SIZE; }

static void give_back(uint32_t page) { free_pages[free_count++] = page; }

/* What could be had: this is all that admission needs. */
static size_t available(void) { return free_count + (size_t)stats().reclaimable_page_count; }

/* Lengthens a row. Asks the cache for what is missing; each page that it gives up is named, and
 * goes to the free list. */
static int lengthen(request *r, size_t pages) {
    size_t need = pages > r->pages ? pages - r->pages : 0, got = 0, i;
    uint32_t evicted[PAGES];
    if (need > available()) return 0;
    if (need > free_count) {
        must(rkv_cache_evict(cache, need - free_count, evicted, PAGES, &got));
        for (i = 0; i < got; i++) give_back(evicted[i]);
        printf("  pages evicted: %u\n", (unsigned)got);
    }
    while (need-- > 0) r->row[r->pages++] = free_pages[--free_count];
    return 1;
}

/* ---- what the cache is asked and told ---- */

/* Takes the cached pages of a prompt into the row, locked. At least one token is left to compute,
 * so that there is something to go on from. */
static void take_cached(request *r) {
    rkv_tokens tokens = tokens_of(r, r->count - 1);
    rkv_cache_match_result match = {0};
    match.struct_size = sizeof match;
    must(rkv_cache_match(cache, NULL, &tokens, RKV_MATCH_LOCK, r->row, ROW, &match));
    r->pages = r->shared = (size_t)match.page_count;
    r->lock = match.lock;
}

static void unlock(rkv_lock_id lock) {
    if (lock != 0) must(rkv_cache_unlock(cache, lock));
}

/* Tells the cache what the whole pages of a request hold now. Where it has a page for the same
 * tokens already, that one goes into the row, and the request's own goes back to the free list.
 * When memory ran out in a long list, the last pages stay the request's: the next step publishes
 * them. */
static void publish(request *r) {
    rkv_tokens tokens = tokens_of(r, r->count);
    rkv_cache_insert_args args = {0};
    rkv_cache_insert_result result = {0};
    uint32_t published[ROW];
    size_t i;
    args.struct_size = sizeof args;
    args.flags = RKV_INSERT_LOCK;
    args.tokens = &tokens;
    args.pages = r->row;
    args.page_count = r->pages;
    result.struct_size = sizeof result;
    must(rkv_cache_insert(cache, &args, published, &result));
    for (i = 0; i < result.page_count; i++) {
        if (published[i] == r->row[i]) continue;
        give_back(r->row[i]);
        r->row[i] = published[i];
    }
    /* The lock moves to the end of what is shared now. */
    unlock(r->lock);
    r->lock = result.lock;
    r->shared = (size_t)result.page_count;
    printf("request %u publishes %u pages: %u adopted, %u given back\n", r->name,
           (unsigned)r->shared, (unsigned)result.claimed_page_count,
           (unsigned)result.duplicate_page_count);
}

/* ---- the scheduler ---- */

/* Admits the next request if its whole length can be had; what is cached costs nothing. */
static int admit(void) {
    request *r = &waiting[next_waiting];
    take_cached(r);
    if (!lengthen(r, pages_for(r->target))) {
        unlock(r->lock);
        printf("request %u waits: %u pages are missing, %u can be had\n", r->name,
               (unsigned)(pages_for(r->target) - r->shared), (unsigned)available());
        return 0;
    }
    printf("request %u starts: %u of %u tokens cached\n", r->name,
           (unsigned)(r->shared * PAGE_SIZE), (unsigned)r->count);
    running[running_count++] = r;
    next_waiting++;
    return 1;
}

/* A step of all that run. Kernels would compute here, into the pages of the rows. */
static void step(void) {
    size_t i, kept = 0;
    for (i = 0; i < running_count; i++) {
        request *r = running[i];
        uint32_t token = 50000 + r->name * 1000 + (uint32_t)r->count;
        if (r->shared < r->count / PAGE_SIZE) publish(r);
        if (r->count == r->target) {
            size_t p;
            unlock(r->lock);
            for (p = r->shared; p < r->pages; p++) give_back(r->row[p]);
            r->pages = r->shared = 0;
            printf("request %u is done\n", r->name);
            continue;
        }
        r->ids[r->count++] = token;
        running[kept++] = r;
    }
    running_count = kept;
}

/* Each page is once in the free list or once in the cache. */
static void check_pages(void) {
    unsigned seen[PAGES + 1] = {0}, cached = 0, lost = 0;
    uint32_t page;
    size_t i;
    for (i = 0; i < free_count; i++) seen[free_pages[i]]++;
    for (page = 1; page <= PAGES; page++) {
        bool contains = false;
        must(rkv_cache_contains_page(cache, page, &contains));
        cached += contains;
        lost += seen[page] + contains != 1;
    }
    must(rkv_page_table_check(table));
    printf("%u pages free, %u by the library's count, %u cached; %u lost\n", (unsigned)free_count,
           (unsigned)stats().outside_page_count, cached, lost);
    if (lost != 0) exit(1);
}

int main(void) {
    rkv_page_table_config config;
    uint32_t i, at;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE_SIZE;
    config.page_count = PAGES + 1; /* page 0 is reserved */
    config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL;
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    for (i = PAGES; i > 0; i--) give_back(i);

    for (i = 0; i < REQUESTS; i++) {
        request *r = &waiting[i];
        uint32_t application = i / 2 % 2;
        r->name = i + 1;
        r->count = SYSTEM + 20 + i % 3 * 16;
        r->target = r->count + 24;
        for (at = 0; at < r->count; at++) {
            /* Every second request asks the same as the one before. */
            r->ids[at] = at < SYSTEM ? 1000 * application + at : 9000 + i / 2 * 100 + at;
        }
    }
    while (next_waiting < REQUESTS || running_count > 0) {
        while (next_waiting < REQUESTS && running_count < RUNNING && admit()) continue;
        step();
    }
    check_pages();
    /* When the cache goes, it gives up all that it has. */
    rkv_cache_destroy(cache);
    printf("without the cache %u pages are outside\n", (unsigned)stats().outside_page_count);
    rkv_page_table_destroy(table);
    return 0;
}
