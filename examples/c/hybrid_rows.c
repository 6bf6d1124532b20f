/*
 * An engine that keeps its rows itself: a chat with a hybrid model, whose full attention, sliding
 * window and recurrent state have pages of their own, over one prefix cache. With sequences, which
 * keep the rows, the same is half as long: examples/c/hybrid.c.
 *
 *     cc -Iinclude examples/c/hybrid_rows.c -Ltarget/release -lradixkv -o hybrid_rows
 *     LD_LIBRARY_PATH=target/release ./hybrid_rows
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>

enum { FULL, WINDOW, STATE, GROUPS };
enum { PAGE = 16, WINDOW_SIZE = 64, LONGEST = 16, STATE_PAGES = 7 };

static rkv_page_table *table;
static rkv_cache *cache;
/* The memory of the states, by page. K and V of the other groups are left to the imagination. */
static uint64_t states[STATE_PAGES];

static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

static uint32_t allocate(uint32_t pool) {
    uint32_t page = 0;
    must(rkv_page_table_allocate_pool_pages(table, pool, 1, &page));
    return page;
}

/* The recurrent layers: the state after one more token. */
static uint64_t step(uint64_t state, uint32_t token) { return (state * 31 + token) % 1000003; }

static void serve(const char *name, const uint32_t *ids, size_t count) {
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = count};
    rkv_cache_match_result match = {.struct_size = sizeof match};
    rkv_group_depths depths = {.struct_size = sizeof depths};
    rkv_group_cost costs[GROUPS];
    rkv_locked_page window[LONGEST], checkpoint;
    uint32_t rows[GROUPS][LONGEST] = {{0}}, published[GROUPS][LONGEST];
    size_t group_count, window_pages = 0, checkpoints = 0, pages = (count + PAGE - 1) / PAGE;

    /* What each group costs of what is known; then the match, locked with all that it needs. */
    must(rkv_cache_probe_groups(cache, NULL, &tokens, costs, sizeof costs[0], GROUPS, &group_count,
                                &depths));
    must(rkv_cache_match(cache, NULL, &tokens, RKV_MATCH_LOCK, rows[FULL], LONGEST, &match));
    if (match.lock != 0) {
        must(rkv_cache_read_locked_pages(cache, match.lock, WINDOW, window, sizeof window[0],
                                         LONGEST, &window_pages));
        must(rkv_cache_read_locked_pages(cache, match.lock, STATE, &checkpoint, sizeof checkpoint,
                                         1, &checkpoints));
    }
    for (size_t i = 0; i < window_pages; i++) rows[WINDOW][window[i].page_index] = window[i].page;
    /* A checkpoint is copied, never written to: the next request wants it too. */
    uint64_t state = checkpoints > 0 ? states[checkpoint.page] : 0;

    for (size_t i = match.page_count; i < pages; i++) {
        rows[FULL][i] = allocate(FULL);
        rows[WINDOW][i] = allocate(WINDOW);
    }
    /* Chunks end where the match says, and the states are saved there. */
    for (size_t at = match.position_count; at < count; at++) {
        state = step(state, ids[at]);
        if (at + 1 == match.checkpoint_at[0] || at + 1 == match.checkpoint_at[1]) {
            uint32_t page = rows[STATE][at / PAGE] = allocate(STATE);
            states[page] = state;
        }
    }

    rkv_group_row groups[2] = {{WINDOW, 0, rows[WINDOW], pages, published[WINDOW]},
                               {STATE, 0, rows[STATE], pages, published[STATE]}};
    rkv_cache_insert_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_cache_insert_result done = {.struct_size = sizeof done};
    args.pages = rows[FULL];
    args.page_count = pages;
    args.groups = groups;
    args.group_count = 2;
    args.group_size = sizeof groups[0];
    must(rkv_cache_insert(cache, &args, published[FULL], &done));
    /* Whose page was not taken keeps it: another one is published for it, it is not full, or memory
     * ran out before the end of a long list. */
    for (uint32_t group = 0; group < GROUPS; group++) {
        for (size_t i = 0; i < pages; i++) {
            if (rows[group][i] == 0) continue;
            if (published[group][i] == rows[group][i] && i < done.page_count) continue;
            must(rkv_page_table_free_pool_pages(table, group, &rows[group][i], 1));
        }
    }
    if (match.lock != 0) must(rkv_cache_unlock(cache, match.lock));

    printf("%s: %zu tokens, %u known, %u reused (full costs %u, window %u, state %u)\n", name,
           count, (unsigned)depths.known_position_count, (unsigned)match.position_count,
           (unsigned)costs[FULL].lost_position_count, (unsigned)costs[WINDOW].lost_position_count,
           (unsigned)costs[STATE].lost_position_count);
    printf("   reads %zu window pages and %zu states, saves states at %u and %u\n", window_pages,
           checkpoints, (unsigned)match.checkpoint_at[0], (unsigned)match.checkpoint_at[1]);
    printf("   %u pages claimed, %u of other groups; state %u\n",
           (unsigned)done.claimed_page_count, (unsigned)done.claimed_group_page_count,
           (unsigned)state);
}

static void print_pool(const char *name, uint32_t pool) {
    rkv_pool_stats stats = {.struct_size = sizeof stats};
    must(rkv_page_table_read_pool_stats(table, pool, &stats));
    printf("   %s: %u free, %u cached, %u private\n", name, (unsigned)stats.free_page_count,
           (unsigned)stats.cached_page_count, (unsigned)stats.private_page_count);
}

/* A system prompt, then a question of one's own. */
static size_t prompt(uint32_t *ids, uint32_t question, size_t length) {
    for (uint32_t i = 0; i < 100; i++) ids[i] = 1 + i;
    for (uint32_t i = 0; i < length; i++) ids[100 + i] = question + i;
    return 100 + length;
}

int main(void) {
    const rkv_group_config groups[GROUPS] = {{RKV_GROUP_FULL, FULL, 0, 0, 0, 0},
                                             {RKV_GROUP_WINDOW, WINDOW, WINDOW_SIZE, 0, 0, 0},
                                             {RKV_GROUP_STATE, STATE, 0, 0, 0, 0}};
    const rkv_pool_config pools[GROUPS] = {{65, 0}, {33, 0}, {STATE_PAGES, 0}};
    rkv_page_table_config config;
    uint32_t ids[LONGEST * PAGE];
    size_t freed = 0;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.groups = groups;
    config.group_count = GROUPS;
    config.group_size = sizeof groups[0];
    config.pools = pools;
    config.pool_count = GROUPS;
    config.pool_size = sizeof(rkv_pool_config);
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));

    serve("A", ids, prompt(ids, 1000, 30));
    serve("B", ids, prompt(ids, 2000, 45));
    serve("C", ids, prompt(ids, 3000, 60));
    serve("A, next turn", ids, prompt(ids, 1000, 75));
    print_pool("full", FULL);
    print_pool("window", WINDOW);
    print_pool("state", STATE);

    must(rkv_cache_evict_pool(cache, STATE, 3, NULL, 0, 0, NULL, &freed));
    printf("%zu states evicted, the least recently used\n", freed);
    serve("B again", ids, prompt(ids, 2000, 45));
    serve("A again", ids, prompt(ids, 1000, 75));
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
