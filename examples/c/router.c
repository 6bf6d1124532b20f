/*
 * A router that sends each request to the worker that has most of its prompt cached, in C.
 *
 * Router and workers speak in page digests: a worker says which pages it published, the router
 * compares them with the digests of a new prompt. Tokens and page numbers stay where they are; any
 * other program can compute the same digests, see docs/block_hash.md.
 *
 *     cc -Iinclude examples/c/router.c -Ltarget/release -lradixkv -o router
 *     LD_LIBRARY_PATH=target/release ./router
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_SIZE = 16, PAGES = 64, WORKERS = 2, PROMPT_PAGES = 16, KNOWN = 256 };

static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* ---- a worker: a process with a GPU, its pages and its cache ---- */

typedef struct worker {
    rkv_page_table *table;
    rkv_cache *cache;
} worker;

static void open_worker(worker *w) {
    rkv_page_table_config pages;
    rkv_cache_config config;
    must(rkv_page_table_config_init(&pages, sizeof pages));
    pages.page_size = PAGE_SIZE;
    pages.page_count = PAGES + 1; /* page 0 is reserved */
    must(rkv_page_table_create(&pages, &w->table));
    must(rkv_cache_config_init(&config, sizeof config));
    config.index = RKV_INDEX_BLOCK_HASH;
    must(rkv_cache_create(w->table, &config, &w->cache));
}

/* Serves a request; returns the positions that were cached. */
static unsigned serve(worker *w, const rkv_tokens *tokens) {
    rkv_sequence_begin_args args = {0};
    rkv_sequence_info state = {0};
    rkv_sequence_publish_result result = {0};
    args.struct_size = sizeof args;
    args.tokens = tokens;
    state.struct_size = sizeof state;
    result.struct_size = sizeof result;
    must(rkv_sequence_begin(w->cache, &args, &state));
    if (state.copy_count > 0) must(rkv_sequence_confirm_copies(w->cache, state.sequence));
    /* Here kernels compute positions cached_position_count .. position_count. */
    must(rkv_sequence_publish(w->cache, state.sequence, state.position_count, &result));
    must(rkv_sequence_release(w->cache, state.sequence));
    return (unsigned)state.cached_position_count;
}

static void print_worker(const worker *w, char name) {
    rkv_cache_stats stats = {0};
    stats.struct_size = sizeof stats;
    must(rkv_cache_read_stats(w->cache, &stats));
    printf("worker %c: pages cached: %u, prefixes: %u\n", name,
           (unsigned)stats.cached_page_count, (unsigned)stats.prefix_count);
}

/* ---- the router: digests, and who has the page ---- */

typedef struct router {
    rkv_page_digest digests[KNOWN];
    unsigned owner[KNOWN];
    size_t count;
} router;

static size_t digests_of(const rkv_tokens *tokens, rkv_page_digest *digests) {
    rkv_tokens_page_digests_args args = {0};
    size_t count = 0;
    args.struct_size = sizeof args;
    args.page_size = PAGE_SIZE;
    args.tokens = tokens;
    must(rkv_tokens_page_digests(&args, digests, PROMPT_PAGES, &count));
    return count;
}

static int has(const router *r, unsigned owner, const rkv_page_digest *digest) {
    size_t i;
    for (i = 0; i < r->count; i++) {
        int equal = memcmp(&r->digests[i], digest, sizeof *digest) == 0;
        if (equal && r->owner[i] == owner) return 1;
    }
    return 0;
}

/* Leading pages that a worker has. A digest covers all before it, so no token is looked at. */
static size_t run_of(const router *r, unsigned owner, const rkv_page_digest *digests,
                     size_t count) {
    size_t run = 0;
    while (run < count && has(r, owner, &digests[run])) run++;
    return run;
}

static void learn(router *r, unsigned owner, const rkv_page_digest *digests, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        if (has(r, owner, &digests[i]) || r->count == KNOWN) continue;
        r->digests[r->count] = digests[i];
        r->owner[r->count++] = owner;
    }
}

/* The worker with the longest run; where none has any, they take turns. */
static void route(router *r, worker *workers, unsigned turn, const rkv_tokens *tokens,
                  const char *name) {
    rkv_page_digest digests[PROMPT_PAGES];
    size_t count = digests_of(tokens, digests), longest = 0;
    unsigned chosen = turn % WORKERS, w, cached;
    for (w = 0; w < WORKERS; w++) {
        size_t run = run_of(r, w, digests, count);
        if (run > longest) {
            longest = run;
            chosen = w;
        }
    }
    cached = serve(&workers[chosen], tokens);
    learn(r, chosen, digests, count);
    printf("%-18s %2u pages, %2u known: worker %c reuses %3u positions\n", name, (unsigned)count,
           (unsigned)longest, 'A' + (char)chosen, cached);
}

int main(void) {
    static router r;
    worker workers[WORKERS];
    uint32_t ids[3][PROMPT_PAGES * PAGE_SIZE], i;
    rkv_tokens tokens = {0};
    unsigned w;
    for (w = 0; w < WORKERS; w++) open_worker(&workers[w]);
    /* Two prompts that grow, and a third that begins like the first. */
    for (i = 0; i < PROMPT_PAGES * PAGE_SIZE; i++) {
        ids[0][i] = 1 + i;
        ids[1][i] = 5000 + i;
        ids[2][i] = i < 70 ? 1 + i : 9000 + i;
    }
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids[0];
    tokens.count = 120;
    route(&r, workers, 0, &tokens, "chat");
    tokens.ids = ids[1];
    route(&r, workers, 1, &tokens, "summary");
    tokens.ids = ids[0];
    tokens.count = 200;
    route(&r, workers, 2, &tokens, "chat, next turn");
    tokens.ids = ids[1];
    tokens.count = 160;
    route(&r, workers, 3, &tokens, "summary, more text");
    tokens.ids = ids[2];
    route(&r, workers, 4, &tokens, "chat, other turn");
    for (w = 0; w < WORKERS; w++) {
        print_worker(&workers[w], 'A' + (char)w);
        rkv_cache_destroy(workers[w].cache);
        rkv_page_table_destroy(workers[w].table);
    }
    return 0;
}
