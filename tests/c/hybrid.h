/* A page table as an engine with a hybrid model has it: full attention, a sliding window and
 * states, each with pages of its own. */
#ifndef RKV_TESTS_HYBRID_H
#define RKV_TESTS_HYBRID_H

#include "fixture.h"

enum { SPINE, WINDOW, STATE, GROUP_COUNT };

/* Tokens of a page, positions of the window, and most pages of a prompt. */
#define PAGE 4
#define WINDOW_SIZE 9
#define MOST 16

/* The pages of a prompt by group; 0 is a hole. */
typedef struct rows {
    uint32_t pages[GROUP_COUNT][MOST];
} rows;

static inline rkv_group_config group_of(uint32_t kind, uint32_t pool, uint32_t window) {
    rkv_group_config group = {kind, pool, window, 0, 0, 0};
    return group;
}

static inline rkv_status try_hybrid(uint32_t page_count, uint32_t window_pages,
                                    uint32_t state_pages, rkv_page_table **out) {
    const rkv_group_config groups[GROUP_COUNT] = {group_of(RKV_GROUP_FULL, 0, 0),
                                                  group_of(RKV_GROUP_WINDOW, 1, WINDOW_SIZE),
                                                  group_of(RKV_GROUP_STATE, 2, 0)};
    const rkv_pool_config pools[GROUP_COUNT] = {
        {page_count + 1, 0}, {window_pages + 1, 0}, {state_pages + 1, 0}};
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.slot_count = 4;
    config.groups = groups;
    config.group_count = GROUP_COUNT;
    config.pools = pools;
    config.pool_count = GROUP_COUNT;
    return rkv_page_table_create(&config, out);
}

/* Pages that can be handed out, by pool. */
static inline fixture new_hybrid(uint32_t page_count, uint32_t window_pages,
                                 uint32_t state_pages) {
    fixture f = {NULL, NULL, PAGE};
    if (!CHECK_OK(try_hybrid(page_count, window_pages, state_pages, &f.table)) ||
        !CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache))) {
        exit(1);
    }
    return f;
}

/* G09: every page of a pool is in one state. */
static inline rkv_pool_stats pool_of(const fixture *f, uint32_t pool) {
    rkv_pool_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_page_table_read_pool_stats(f->table, pool, &stats));
    CHECK_EQ(stats.free_page_count + stats.cached_page_count + stats.private_page_count,
             stats.total_page_count);
    CHECK(stats.reclaimable_page_count <= stats.cached_page_count);
    return stats;
}

static inline void end_hybrid(fixture *f) {
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        pool_of(f, pool);
    }
    CHECK_OK(rkv_page_table_check(f->table));
    CHECK_OK(rkv_cache_check(f->cache));
    rkv_cache_destroy(f->cache);
    rkv_page_table_destroy(f->table);
}

static inline void take_pages(const fixture *f, uint32_t pool, size_t count, uint32_t *pages) {
    CHECK_OK(rkv_page_table_allocate_pool_pages(f->table, pool, count, pages));
}

static inline void give_pages(const fixture *f, uint32_t pool, const uint32_t *pages,
                              size_t count) {
    CHECK_OK(rkv_page_table_free_pool_pages(f->table, pool, pages, count));
}

/* Which places of `count` a page is taken for: all of the spine, the last `window` of the window's,
 * and of the states those that end at one of two positions. */
static inline rows compute(const fixture *f, size_t count, size_t window,
                           const uint64_t checkpoints[2]) {
    rows made;
    memset(&made, 0, sizeof made);
    take_pages(f, SPINE, count, made.pages[SPINE]);
    take_pages(f, WINDOW, window, &made.pages[WINDOW][count - window]);
    for (size_t i = 0; i < 2; i++) {
        if (checkpoints[i] != 0) {
            take_pages(f, STATE, 1, &made.pages[STATE][checkpoints[i] / PAGE - 1]);
        }
    }
    return made;
}

static inline void point_rows(rkv_group_row out[GROUP_COUNT - 1], const rows *given,
                              rows *published, size_t count) {
    for (uint32_t group = WINDOW; group < GROUP_COUNT; group++) {
        rkv_group_row row = {group, 0, given->pages[group], count, NULL};
        row.published_pages = published == NULL ? NULL : published->pages[group];
        out[group - 1] = row;
    }
}

/* Inserts, locks if asked, and gives back what was not claimed. */
static inline rkv_cache_insert_result insert_rows(const fixture *f, rkv_tokens tokens,
                                                  const rows *given, rows *published,
                                                  uint32_t flags) {
    rkv_group_row groups[GROUP_COUNT - 1];
    rkv_cache_insert_args args = insert_args(&tokens, given->pages[SPINE], tokens.count / PAGE);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    point_rows(groups, given, published, args.page_count);
    args.flags = flags;
    args.groups = groups;
    args.group_count = GROUP_COUNT - 1;
    args.group_size = sizeof groups[0];
    CHECK_OK(rkv_cache_insert(f->cache, &args, published->pages[SPINE], &result));
    for (uint32_t group = 0; group < GROUP_COUNT; group++) {
        for (size_t i = 0; i < args.page_count; i++) {
            uint32_t mine = given->pages[group][i];
            if (mine != 0 && mine != published->pages[group][i]) {
                give_pages(f, group, &mine, 1);
            }
        }
    }
    return result;
}

/* Computes a prompt whose window and checkpoints are these, and inserts it. */
static inline rkv_cache_insert_result serve_rows(const fixture *f, rkv_tokens tokens, size_t window,
                                            uint64_t first, uint64_t second) {
    const uint64_t checkpoints[2] = {first, second};
    rows given = compute(f, tokens.count / PAGE, window, checkpoints), published;
    return insert_rows(f, tokens, &given, &published, 0);
}

static inline rkv_group_depths depths_of(const fixture *f, rkv_tokens tokens,
                                         uint64_t lost[GROUP_COUNT]) {
    rkv_group_cost costs[RKV_GROUP_LIMIT];
    rkv_group_depths depths;
    size_t count = 0, positions = 0;
    memset(&depths, 0, sizeof depths);
    depths.struct_size = sizeof depths;
    CHECK_OK(rkv_cache_probe_groups(f->cache, NULL, &tokens, costs, sizeof costs[0],
                                    RKV_GROUP_LIMIT, &count, &depths));
    CHECK_EQ(count, GROUP_COUNT);
    for (uint32_t group = 0; group < GROUP_COUNT; group++) {
        CHECK_EQ(costs[group].group, group);
        lost[group] = costs[group].lost_position_count;
    }
    CHECK_OK(rkv_cache_probe(f->cache, NULL, &tokens, NULL, &positions));
    CHECK_EQ(positions, depths.position_count);
    CHECK_EQ(depths.position_count + lost[SPINE] + lost[WINDOW] + lost[STATE],
             depths.known_position_count);
    return depths;
}

/* The pages of a group that a lock protects. */
static inline size_t locked_pages(const fixture *f, rkv_lock_id lock, uint32_t group,
                                  rkv_locked_page *pages) {
    size_t count = 0, again = 0;
    CHECK_OK(rkv_cache_read_locked_pages(f->cache, lock, group, NULL, 0, 0, &count));
    CHECK_OK(rkv_cache_read_locked_pages(f->cache, lock, group, pages, sizeof *pages, MOST,
                                         &again));
    CHECK_EQ(count, again);
    return count;
}

static inline size_t evict_pool(const fixture *f, uint32_t pool, size_t count) {
    size_t freed = 0;
    CHECK_OK(rkv_cache_evict_pool(f->cache, pool, count, NULL, 0, 0, NULL, &freed));
    return freed;
}

static inline rkv_cache_match_result lock_match(const fixture *f, rkv_tokens tokens,
                                                uint32_t *pages) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, RKV_MATCH_LOCK, pages, MOST, &match));
    return match;
}

static inline void unlock_match(const fixture *f, const rkv_cache_match_result *match) {
    if (match->lock != 0) {
        CHECK_OK(rkv_cache_unlock(f->cache, match->lock));
    }
}

#endif
