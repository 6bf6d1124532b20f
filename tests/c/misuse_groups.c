/* M01: every way to call the functions on groups and pools wrongly. */
#include "hybrid.h"
#include "misuse.h"

static void m01_lists_of_groups(void) {
    fixture f = new_fixture(2, 8);
    const rkv_group_config full = group_of(RKV_GROUP_FULL, 0, 0);
    const rkv_pool_config pools[2] = {{9, 0}, {9, 0}};
    rkv_group_config groups[2] = {full, full};
    rkv_page_table_config good, config;
    rkv_page_table *table = NULL;
    CHECK_OK(rkv_page_table_config_init(&good, sizeof good));
    good.groups = groups;
    good.group_count = 2;
    good.pools = pools;
    good.pool_count = 2;
    const struct {
        rkv_group_config group;
        const char *word;
    } bad[] = {
        {{9, 0, 0, 0, 0, 0}, "config.groups[1].kind"},
        {{RKV_GROUP_WINDOW, 0, 0, 0, 0, 0}, "config.groups[1].window"},
        {{RKV_GROUP_CHUNK, 0, 0, 0, 0, 0}, "config.groups[1].chunk"},
        {{RKV_GROUP_FULL, 0, 1, 0, 0, 0}, "config.groups[1].window"},
        {{RKV_GROUP_STATE, 0, 0, 1, 0, 0}, "config.groups[1].sinks"},
        {{RKV_GROUP_WINDOW, 0, 9, 0, 1, 0}, "config.groups[1].chunk"},
        {{RKV_GROUP_FULL, 2, 0, 0, 0, 0}, "config.groups[1].pool"},
        {{RKV_GROUP_FULL, 0, 0, 0, 0, 1}, "config.groups[1].draft_state_count"},
        {{RKV_GROUP_STATE, 0, 0, 0, 0, 256}, "config.groups[1].draft_state_count"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        groups[1] = bad[i].group;
        BAD(&f, rkv_page_table_create(&good, &table), bad[i].word);
    }
    groups[1] = full;
    groups[0] = group_of(RKV_GROUP_WINDOW, 0, 9);
    BAD(&f, rkv_page_table_create(&good, &table), "config.groups[0].kind");
    groups[0] = group_of(RKV_GROUP_FULL, 1, 0);
    BAD(&f, rkv_page_table_create(&good, &table), "config.groups[0].pool");
    groups[0] = full;
#define WRONG(field, value, word)                                                                 \
    config = good;                                                                                \
    config.field = value;                                                                         \
    BAD(&f, rkv_page_table_create(&config, &table), word)
    WRONG(groups, NULL, "config.groups");
    WRONG(group_count, RKV_GROUP_LIMIT + 1, "config.group_count");
    WRONG(group_count, SIZE_MAX, "config.group_count");
    WRONG(group_size, sizeof groups[0] - 1, "config.group_size");
    WRONG(pools, NULL, "config.pools");
    WRONG(pool_count, RKV_GROUP_LIMIT + 1, "config.pool_count");
    WRONG(pool_size, sizeof pools[0] - 1, "config.pool_size");
    WRONG(page_count, 9, "config.page_count");
    const rkv_pool_config empty[2] = {{9, 0}, {1, 0}}, reserved[2] = {{9, 0}, {9, 1}};
    WRONG(pools, empty, "config.pools[1].page_count");
    WRONG(pools, reserved, "config.pools[1].reserved");
    const rkv_pool_config none[2] = {{1, 0}, {9, 0}};
    WRONG(pools, none, "config.pools[0].page_count 1");
    CHECK(table == NULL);
#undef WRONG
    CHECK_OK(rkv_page_table_create(&good, &table));
    rkv_page_table_destroy(table);
    end_fixture(&f);
}

/* What a call that is refused could have changed, beside what take() sees. */
static void counts_of(const fixture *f, rkv_pool_stats counts[GROUP_COUNT]) {
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        counts[pool] = pool_of(f, pool);
    }
}

static void m01_pools(void) {
    fixture f = new_hybrid(8, 8, 4);
    uint32_t out[9], mine[2], spine;
    rkv_pool_stats stats, before[GROUP_COUNT], after[GROUP_COUNT];
    mark(&stats, sizeof stats);
    mark(out, sizeof out);
    stats.struct_size = sizeof stats;
    take_pages(&f, WINDOW, 2, mine);
    take_pages(&f, SPINE, 1, &spine);
    counts_of(&f, before);
    BAD(&f, rkv_page_table_read_pool_stats(NULL, 0, &stats), "table");
    BAD(&f, rkv_page_table_read_pool_stats(f.table, 3, &stats), "pool");
    BAD(&f, rkv_page_table_read_pool_stats(f.table, UINT32_MAX, &stats), "pool");
    OUTPUT_SIZES_FROM(&f, rkv_pool_stats, offsetof(rkv_pool_stats, retained_page_count), p,
                 rkv_page_table_read_pool_stats(f.table, 1, p),
                 "out_stats");
    UNTOUCHED_STRUCT(stats);
    GOOD_BIGGER_OUTPUT(rkv_pool_stats, p, rkv_page_table_read_pool_stats(f.table, 1, p));
    BAD(&f, rkv_page_table_allocate_pool_pages(NULL, 1, 1, out), "table");
    BAD(&f, rkv_page_table_allocate_pool_pages(f.table, 3, 1, out), "pool");
    BAD(&f, rkv_page_table_allocate_pool_pages(f.table, 1, 1, NULL), "pages");
    BAD(&f, rkv_page_table_allocate_pool_pages(f.table, 1, SIZE_MAX, out), "pages");
    REFUSED(&f, rkv_page_table_allocate_pool_pages(f.table, 1, 7, out), RKV_STATUS_OUT_OF_PAGES,
            "pool 1");
    UNTOUCHED(out);
    BAD(&f, rkv_page_table_free_pool_pages(NULL, 1, mine, 2), "table");
    BAD(&f, rkv_page_table_free_pool_pages(f.table, 3, mine, 2), "pool");
    BAD(&f, rkv_page_table_free_pool_pages(f.table, 1, NULL, 2), "pages");
    /* of another pool, the reserved page, out of range, twice: none goes */
    const uint32_t wrong[] = {0, 9, UINT32_MAX, mine[0]};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const uint32_t two[2] = {mine[0], wrong[i]};
        BAD(&f, rkv_page_table_free_pool_pages(f.table, 1, two, 2), "page");
    }
    BAD(&f, rkv_page_table_free_pool_pages(f.table, 2, &spine, 1), "page");
    counts_of(&f, after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    give_pages(&f, WINDOW, mine, 2);
    give_pages(&f, SPINE, &spine, 1);
    end_hybrid(&f);
}

static void m01_rows(void) {
    fixture f = new_hybrid(12, 12, 6);
    uint32_t ids[16];
    rkv_pool_stats before[GROUP_COUNT], after[GROUP_COUNT];
    const uint64_t checkpoints[2] = {12, 0};
    rows given = compute(&f, 3, 3, checkpoints), published;
    rkv_group_row good[2], lists[2];
    rkv_cache_insert_result result;
    count_up(ids, 16, 1);
    rkv_tokens tokens = text(ids, 12);
    rkv_cache_insert_args fine = insert_args(&tokens, given.pages[SPINE], 3), args;
    mark(&result, sizeof result);
    mark(&published, sizeof published);
    result.struct_size = sizeof result;
    point_rows(good, &given, &published, 3);
    fine.groups = lists;
    fine.group_count = 2;
    fine.group_size = sizeof lists[0];
    counts_of(&f, before);
#define WRONG_ARGS(field, value, word)                                                            \
    memcpy(lists, good, sizeof lists);                                                            \
    args = fine;                                                                                  \
    args.field = value;                                                                           \
    BAD(&f, rkv_cache_insert(f.cache, &args, published.pages[SPINE], &result), word)
    WRONG_ARGS(groups, NULL, "args.groups");
    WRONG_ARGS(group_count, RKV_GROUP_LIMIT + 1, "args.group_count");
    WRONG_ARGS(group_size, sizeof lists[0] - 1, "args.group_size");
#define WRONG_ROW(field, value, word)                                                             \
    memcpy(lists, good, sizeof lists);                                                            \
    lists[1].field = value;                                                                       \
    BAD(&f, rkv_cache_insert(f.cache, &fine, published.pages[SPINE], &result), word)
    WRONG_ROW(group, 0, "args.groups[1]: group 0");
    WRONG_ROW(group, 3, "args.groups[1]: group 3");
    WRONG_ROW(group, 1, "args.groups[1]: group 1");
    WRONG_ROW(reserved, 1, "args.groups[1].reserved");
    WRONG_ROW(pages, NULL, "args.groups[1].pages");
    WRONG_ROW(page_count, 2, "args.groups[1]");
    WRONG_ROW(page_count, SIZE_MAX, "args.groups[1].pages");
    const uint32_t free_page[3] = {0, 0, 6}, no_page[3] = {0, 99, 0};
    const uint32_t twice[3] = {given.pages[STATE][2], 0, given.pages[STATE][2]};
    WRONG_ROW(pages, free_page, "args.groups[1]: pages[2] 6");
    WRONG_ROW(pages, no_page, "args.groups[1]: pages[1] 99");
    WRONG_ROW(pages, twice, "args.groups[1]: pages[0]");
    counts_of(&f, after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    UNTOUCHED(published);
    UNTOUCHED_STRUCT(result);
    insert_rows(&f, tokens, &given, &published, 0);
    end_hybrid(&f);
}

static void m01_lookups_and_evictions(void) {
    fixture f = new_hybrid(12, 12, 6);
    uint32_t ids[16];
    rkv_group_cost costs[3];
    rkv_group_depths depths;
    rkv_locked_page held[4];
    rkv_evicted_page gone[4];
    size_t count, freed;
    count_up(ids, 16, 1);
    rkv_tokens tokens = text(ids, 12);
    rkv_cache_insert_result done = serve_rows(&f, tokens, 3, 12, 0);
    rkv_lock_id lock = lock_node(&f, done.node);
    mark(costs, sizeof costs);
    mark(&depths, sizeof depths);
    mark(held, sizeof held);
    mark(gone, sizeof gone);
    mark(&count, sizeof count);
    mark(&freed, sizeof freed);
    depths.struct_size = sizeof depths;
    const size_t size = sizeof costs[0], held_size = sizeof held[0], gone_size = sizeof gone[0];
#define PROBE(cache, space, tokens, costs, size, to)                                              \
    rkv_cache_probe_groups(cache, space, tokens, costs, size, 3, &count, to)
    rkv_namespace space = new_namespace();
    BAD(&f, PROBE(NULL, NULL, &tokens, costs, size, &depths), "cache");
    BAD(&f, PROBE(f.cache, NULL, NULL, costs, size, &depths), "tokens");
    BAD(&f, PROBE(f.cache, NULL, &tokens, costs, size - 1, &depths), "cost_size");
    BAD_INPUT_SIZES(&f, rkv_namespace, space, p, PROBE(f.cache, p, &tokens, costs, size, &depths),
                    "space");
    BAD(&f, rkv_cache_probe_groups(f.cache, NULL, &tokens, costs, size, 3, NULL, &depths),
        "out_count");
    OUTPUT_SIZES(&f, rkv_group_depths, p, PROBE(f.cache, NULL, &tokens, costs, size, p),
                 "out_depths");
    BAD(&f, rkv_cache_read_locked_pages(NULL, lock, 1, held, held_size, 4, &count), "cache");
    BAD(&f, rkv_cache_read_locked_pages(f.cache, lock, 0, held, held_size, 4, &count), "group");
    BAD(&f, rkv_cache_read_locked_pages(f.cache, lock, 3, held, held_size, 4, &count), "group");
    BAD(&f, rkv_cache_read_locked_pages(f.cache, lock, 1, held, 7, 4, &count), "element_size");
    BAD(&f, rkv_cache_read_locked_pages(f.cache, lock, 1, held, held_size, 4, NULL), "out_count");
    rkv_group_stats stats[3];
    const size_t stats_size = sizeof stats[0];
    BAD(&f, rkv_cache_read_group_stats(NULL, stats, stats_size, 3, &count), "cache");
    BAD(&f, rkv_cache_read_group_stats(f.cache, stats, 39, 3, &count), "element_size");
    BAD(&f, rkv_cache_read_group_stats(f.cache, stats, stats_size, 3, NULL), "out_count");
    const rkv_lock_id strange[] = {0, 1, lock + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        REFUSED(&f,
                rkv_cache_read_locked_pages(f.cache, strange[i], 1, held, held_size, 4, &count),
                RKV_STATUS_STALE_LOCK, "lock");
    }
    BAD(&f, rkv_cache_evict_pool(NULL, 1, 1, gone, gone_size, 4, &count, &freed), "cache");
    BAD(&f, rkv_cache_evict_pool(f.cache, 3, 1, gone, gone_size, 4, &count, &freed), "pool");
    BAD(&f, rkv_cache_evict_pool(f.cache, 1, 1, gone, 7, 4, &count, &freed), "evicted_size");
    BAD(&f, rkv_cache_evict_pool(f.cache, 1, 1, gone, gone_size, 2, &count, &freed), "capacity");
    BAD(&f, rkv_cache_evict_pool(f.cache, 1, 1, gone, gone_size, 4, &count, NULL),
        "out_freed_count");
    UNTOUCHED(costs);
    UNTOUCHED_STRUCT(depths);
    UNTOUCHED(held);
    UNTOUCHED(gone);
    UNTOUCHED(count);
    UNTOUCHED(freed);
    CHECK_OK(rkv_cache_unlock(f.cache, lock));
    end_hybrid(&f);
}

/* Rows are checked also where no page is new: what the cache has is told in all of them. */
static void m01_rows_of_nothing_new(void) {
    fixture f = new_hybrid(12, 12, 6);
    uint32_t ids[12];
    const uint64_t checkpoints[2] = {12, 0};
    rows given = compute(&f, 3, 3, checkpoints), published;
    rkv_group_row good[2], lists[2];
    rkv_cache_insert_result result;
    count_up(ids, 12, 1);
    rkv_tokens tokens = text(ids, 12);
    rkv_cache_insert_args fine = insert_args(&tokens, given.pages[SPINE], 3);
    fine.from_node = insert_rows(&f, tokens, &given, &published, 0).node;
    fine.from_token_index = 12;
    fine.from_page_index = 3;
    fine.groups = lists;
    fine.group_count = 2;
    fine.group_size = sizeof lists[0];
    mark(&result, sizeof result);
    mark(&published, sizeof published);
    result.struct_size = sizeof result;
    point_rows(good, &given, &published, 3);
    WRONG_ROW(group, 0, "args.groups[1]: group 0");
    WRONG_ROW(group, 3, "args.groups[1]: group 3");
    WRONG_ROW(group, 1, "args.groups[1]: group 1");
    WRONG_ROW(page_count, 2, "args.groups[1]: page_count 2");
    WRONG_ROW(page_count, 0, "args.groups[1]: page_count 0");
    UNTOUCHED(published);
    UNTOUCHED_STRUCT(result);
    memcpy(lists, good, sizeof lists);
    CHECK_OK(rkv_cache_insert(f.cache, &fine, published.pages[SPINE], &result));
    CHECK(result.node == fine.from_node && result.claimed_group_page_count == 0);
    for (uint32_t group = 0; group < GROUP_COUNT; group++) {
        CHECK(memcmp(published.pages[group], given.pages[group], 3 * sizeof(uint32_t)) == 0);
    }
    end_hybrid(&f);
}

int main(void) {
    RUN(m01_lists_of_groups);
    RUN(m01_pools);
    RUN(m01_rows);
    RUN(m01_rows_of_nothing_new);
    RUN(m01_lookups_and_evictions);
    return check_result();
}
