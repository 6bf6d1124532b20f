/* Groups of layers: an engine with a hybrid model that keeps its own rows. */
#include "hybrid.h"

/* Several requests of a chat, the way GROUPS are used: match with a lock, compute what is missing,
 * save states where the match said, insert all groups, unlock. */
static rkv_group_stats stats_of(const fixture *f, uint32_t group) {
    rkv_group_stats stats[RKV_GROUP_LIMIT];
    size_t count = 0, again = 0;
    CHECK_OK(rkv_cache_read_group_stats(f->cache, NULL, 0, 0, &count));
    CHECK_STATUS(rkv_cache_read_group_stats(f->cache, stats, sizeof stats[0], count - 1, &again),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(again, count);
    CHECK_OK(rkv_cache_read_group_stats(f->cache, stats, sizeof stats[0], RKV_GROUP_LIMIT, &again));
    CHECK(again == count && group < count && stats[group].group == group);
    return stats[group];
}

/* What each group has, what went of it, and what it cost. Probes cost nothing. */
static void g03_statistics_by_group(void) {
    fixture f = new_hybrid(20, 20, 5);
    uint32_t ids[32];
    uint64_t lost[GROUP_COUNT];
    count_up(ids, 32, 1);
    serve_rows(&f, text(ids, 32), 8, 16, 0);
    CHECK_EQ(stats_of(&f, SPINE).cached_page_count, 8);
    CHECK_EQ(stats_of(&f, WINDOW).cached_page_count, 8);
    CHECK_EQ(stats_of(&f, STATE).cached_page_count, 1);
    CHECK_EQ(depths_of(&f, text(ids, 32), lost).position_count, 16);
    CHECK_EQ(stats_of(&f, STATE).limited_lookup_count, 0);
    CHECK_EQ(match_of(&f, text(ids, 32)).position_count, 16);
    rkv_sequence_info info = begin(&f, text(ids, 32));
    CHECK(info.known_position_count == 32 && info.cached_position_count == 16);
    release(&f, info.sequence);
    CHECK_EQ(stats_of(&f, STATE).limited_lookup_count, 2);
    CHECK_EQ(stats_of(&f, STATE).lost_position_count, 32);
    CHECK_EQ(stats_of(&f, WINDOW).limited_lookup_count, 0);
    CHECK_EQ(evict_pool(&f, STATE, 1), 1);
    CHECK_EQ(stats_of(&f, STATE).evicted_page_count, 1);
    CHECK_EQ(stats_of(&f, SPINE).evicted_page_count, 0);
    CHECK_EQ(evict_pool(&f, SPINE, 1), 1);
    CHECK_EQ(stats_of(&f, SPINE).evicted_page_count, 1);
    CHECK_EQ(stats_of(&f, WINDOW).evicted_page_count, 1);
    CHECK_EQ(stats_of(&f, WINDOW).cached_page_count, 7);
    end_hybrid(&f);
    /* With one group it has the totals. */
    f = new_fixture(4, 8);
    insert(&f, text(ids, 16));
    CHECK_EQ(evict(&f, 1), 1);
    rkv_group_stats all = stats_of(&f, 0);
    CHECK(all.cached_page_count == 3 && all.evicted_page_count == 1);
    CHECK(all.limited_lookup_count == 0 && all.lost_position_count == 0);
    end_fixture(&f);
}

static void g04_a_chat_over_a_system_prompt(void) {
    fixture f = new_hybrid(60, 40, 12);
    const uint32_t users[4] = {100, 200, 300, 300};
    const uint64_t want[4][3] = {{0, 36, 0}, {0, 20, 36}, {20, 36, 0}, {36, 0, 0}};
    for (size_t request = 0; request < 4; request++) {
        uint32_t ids[37], found[MOST];
        rkv_locked_page window[MOST], state[MOST];
        /* a system prompt of five pages and a bit, then a question */
        count_up(ids, 22, 1);
        count_up(ids + 22, 15, users[request]);
        rkv_tokens tokens = text(ids, 37);
        rkv_cache_match_result match = lock_match(&f, tokens, found);
        CHECK_EQ(match.position_count, want[request][0]);
        CHECK_EQ(match.checkpoint_at[0], want[request][1]);
        CHECK_EQ(match.checkpoint_at[1], want[request][2]);
        CHECK_EQ(match.partial_position_count, 0); /* states end where pages end */
        size_t shared = match.page_count;
        if (shared > 0) {
            CHECK_EQ(locked_pages(&f, match.lock, WINDOW, window), 2);
            CHECK_EQ(window[0].page_index, shared - 2);
            CHECK_EQ(window[1].page_index, shared - 1);
            CHECK_EQ(locked_pages(&f, match.lock, STATE, state), 1);
            CHECK_EQ(state[0].page_index, shared - 1);
        }
        rows given, published;
        memset(&given, 0, sizeof given);
        memcpy(given.pages[SPINE], found, shared * sizeof *found);
        take_pages(&f, SPINE, 9 - shared, &given.pages[SPINE][shared]);
        take_pages(&f, WINDOW, 9 - shared, &given.pages[WINDOW][shared]);
        size_t saved = 0;
        for (size_t i = 0; i < 2 && match.checkpoint_at[i] != 0; i++, saved++) {
            take_pages(&f, STATE, 1, &given.pages[STATE][match.checkpoint_at[i] / PAGE - 1]);
        }
        rkv_cache_insert_result done = insert_rows(&f, tokens, &given, &published, 0);
        size_t known = match.known_position_count / PAGE;
        CHECK_EQ(done.claimed_page_count, 9 - known);
        CHECK_EQ(done.claimed_group_page_count, 9 - known + saved);
        CHECK_EQ(done.duplicate_group_page_count, known - shared);
        unlock_match(&f, &match);
    }
    CHECK_EQ(pool_of(&f, STATE).cached_page_count, 4);
    end_hybrid(&f);
}

/* G03: the depth that every group can reuse, the one that is known, and who costs what. */
static void g02_usable_depth(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40], fork[38];
    uint64_t lost[GROUP_COUNT];
    count_up(ids, 40, 1);
    serve_rows(&f, text(ids, 40), 7, 20, 40);
    rkv_cache_match_result whole = match_of(&f, text(ids, 40));
    CHECK(whole.position_count == 40 && whole.known_position_count == 40);
    CHECK(whole.checkpoint_at[0] == 0 && whole.limiting_group == 0);
    /* 30 tokens are the same, and so 7 pages; of the states one lies on the way */
    memcpy(fork, ids, sizeof fork);
    count_up(fork + 30, 8, 500);
    rkv_cache_match_result match = match_of(&f, text(fork, 38));
    CHECK(match.position_count == 20 && match.known_position_count == 28);
    CHECK(match.limiting_group == STATE && match.reserved == 0);
    CHECK(match.checkpoint_at[0] == 28 && match.checkpoint_at[1] == 36);
    rkv_group_depths depths = depths_of(&f, text(fork, 38), lost);
    CHECK(lost[SPINE] == 0 && lost[WINDOW] == 0 && lost[STATE] == 8);
    CHECK(depths.checkpoint_at[0] == 28 && depths.checkpoint_at[1] == 36);
    end_hybrid(&f);
}

/* A caller of the first release is told what it knows of, as without groups. */
static void g03_costs_by_group(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40];
    uint64_t lost[GROUP_COUNT];
    count_up(ids, 40, 1);
    serve_rows(&f, text(ids, 40), 2, 20, 40);
    /* the window's pages are those of the last positions alone */
    rkv_group_depths depths = depths_of(&f, text(ids, 28), lost);
    CHECK(depths.position_count == 0 && depths.known_position_count == 28);
    CHECK(lost[SPINE] == 0 && lost[WINDOW] == 28 && lost[STATE] == 0);
    CHECK_EQ(match_of(&f, text(ids, 28)).limiting_group, WINDOW);
    CHECK_EQ(depths.checkpoint_at[0], 24);
    CHECK_EQ(depths.checkpoint_at[1], 28);
    /* the count alone, and too little room */
    rkv_tokens tokens = text(ids, 28);
    rkv_group_cost costs[2] = {{77, 0, 77}, {77, 0, 77}};
    size_t count = 0;
    CHECK_OK(rkv_cache_probe_groups(f.cache, NULL, &tokens, NULL, 0, 0, &count, &depths));
    CHECK_EQ(count, GROUP_COUNT);
    CHECK_STATUS(rkv_cache_probe_groups(f.cache, NULL, &tokens, costs, sizeof costs[0], 2, &count,
                                        &depths),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == GROUP_COUNT && costs[0].group == 77);
    rkv_cache_match_result old = new_match();
    old.struct_size = offsetof(rkv_cache_match_result, known_position_count);
    old.limiting_group = 77;
    CHECK_OK(rkv_cache_match(f.cache, NULL, &tokens, 0, NULL, 0, &old));
    CHECK(old.position_count == 0 && old.limiting_group == 77);
    end_hybrid(&f);
}

/* Without a list there is one group and one pool, and known is what can be reused. */
static void g01_one_group_unless_said(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[10];
    count_up(ids, 10, 1);
    insert(&f, text(ids, 10));
    rkv_tokens tokens = text(ids, 10);
    rkv_group_cost cost = {77, 77, 77};
    rkv_group_depths depths = {sizeof depths, 0, 0, 0, {77, 77}};
    size_t count = 0;
    CHECK_OK(rkv_cache_probe_groups(f.cache, NULL, &tokens, &cost, sizeof cost, 1, &count,
                                    &depths));
    CHECK(count == 1 && cost.group == 0 && cost.lost_position_count == 0);
    CHECK(depths.position_count == 8 && depths.known_position_count == 8);
    CHECK(depths.checkpoint_at[0] == 0 && depths.checkpoint_at[1] == 0);
    CHECK_EQ(match_of(&f, tokens).known_position_count, 8);
    CHECK_EQ(pool_of(&f, 0).cached_page_count, 2);
    uint32_t pages[2];
    take_pages(&f, 0, 2, pages);
    CHECK_EQ(private_pages(&f), 2);
    give_pages(&f, 0, pages, 2);
    CHECK_EQ(evict_pool(&f, 0, 1), 1);
    end_fixture(&f);
}

/* Chunks, and a window with sinks that draws from the spine's own pool. */
static void g01_chunks_and_sinks(void) {
    const rkv_group_config groups[3] = {{RKV_GROUP_FULL, 0, 0, 0, 0, 0},
                                        {RKV_GROUP_CHUNK, 1, 0, 0, 16, 0},
                                        {RKV_GROUP_WINDOW, 0, 5, 2, 0, 0}};
    const rkv_pool_config pools[2] = {{41, 0}, {21, 0}};
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    CHECK(config.groups == NULL && config.group_count == 0 && config.pools == NULL);
    CHECK(config.group_size == sizeof groups[0] && config.pool_size == sizeof pools[0]);
    config.page_size = PAGE;
    config.groups = groups;
    config.group_count = 3;
    config.pools = pools;
    config.pool_count = 2;
    fixture f = {NULL, NULL, PAGE};
    CHECK_OK(rkv_page_table_create(&config, &f.table));
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    uint32_t ids[40], spine[10], chunk[10], window[10];
    count_up(ids, 40, 1);
    take_pages(&f, 0, 10, spine);
    take_pages(&f, 1, 10, chunk);
    take_pages(&f, 0, 10, window);
    rkv_group_row lists[2] = {{1, 0, chunk, 10, NULL}, {2, 0, window, 10, NULL}};
    rkv_tokens tokens = text(ids, 40);
    rkv_cache_insert_args args = insert_args(&tokens, spine, 10);
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    args.groups = lists;
    args.group_count = 2;
    args.group_size = sizeof lists[0];
    args.flags = RKV_INSERT_LOCK;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK_EQ(result.claimed_group_page_count, 20);
    CHECK_EQ(pool_of(&f, 0).cached_page_count, 20);
    /* position 40 is in the chunk from 32 on; the window has the sinks and the last 4 positions */
    rkv_locked_page held[MOST];
    CHECK_EQ(locked_pages(&f, result.lock, 1, held), 2);
    CHECK(held[0].page_index == 8 && held[0].page == chunk[8] && held[1].page == chunk[9]);
    CHECK_EQ(locked_pages(&f, result.lock, 2, held), 2);
    CHECK(held[0].page_index == 0 && held[0].page == window[0]);
    CHECK(held[1].page_index == 9 && held[1].page == window[9]);
    CHECK_EQ(evict_pool(&f, 0, 100), 8); /* of the window; all of the spine is locked */
    CHECK_EQ(evict_pool(&f, 1, 100), 8);
    CHECK_EQ(match_of(&f, tokens).position_count, 40);
    CHECK_OK(rkv_cache_unlock(f.cache, result.lock));
    CHECK_OK(rkv_cache_check(f.cache));
    rkv_cache_destroy(f.cache);
    CHECK_EQ(pool_of(&f, 0).free_page_count, 40);
    CHECK_OK(rkv_page_table_check(f.table));
    rkv_page_table_destroy(f.table);
}

/* A hole is filled by whoever has computed the page; where there is one, it stays. */
static void g02_holes_are_filled(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40];
    uint64_t lost[GROUP_COUNT];
    count_up(ids, 40, 1);
    serve_rows(&f, text(ids, 40), 2, 40, 0);
    const uint64_t checkpoints[2] = {20, 40};
    rows given = compute(&f, 10, 10, checkpoints), published;
    rkv_cache_insert_result again = insert_rows(&f, text(ids, 40), &given, &published, 0);
    CHECK(again.claimed_page_count == 0 && again.duplicate_page_count == 10);
    CHECK_EQ(again.claimed_group_page_count, 8 + 1);
    CHECK_EQ(again.duplicate_group_page_count, 2 + 1);
    for (size_t i = 0; i < 10; i++) {
        CHECK_EQ(published.pages[WINDOW][i] == given.pages[WINDOW][i], i < 8);
        CHECK_EQ(published.pages[STATE][i] != 0, i == 4 || i == 9);
    }
    CHECK_EQ(depths_of(&f, text(ids, 23), lost).position_count, 20);
    end_hybrid(&f);
}

/* What is locked is never evicted, what isn't always can be. */
static void g06_locks_keep_what_a_match_needs(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40], found[MOST];
    rkv_locked_page window[MOST], state[MOST], after[MOST];
    count_up(ids, 40, 1);
    rkv_cache_insert_result done = serve_rows(&f, text(ids, 40), 10, 20, 40);
    rkv_cache_match_result match = lock_match(&f, text(ids, 39), found);
    CHECK_EQ(match.position_count, 20);
    CHECK_EQ(locked_pages(&f, match.lock, WINDOW, window), 2);
    CHECK_EQ(locked_pages(&f, match.lock, STATE, state), 1);
    /* with the spine go the pages of the others that hang on what is not locked */
    CHECK_EQ(evict_pool(&f, SPINE, 100), 5);
    CHECK_EQ(pool_of(&f, STATE).cached_page_count, 1);
    CHECK_EQ(evict_pool(&f, WINDOW, 100), 3);
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        CHECK_EQ(evict_pool(&f, pool, 100), 0);
        CHECK_EQ(pool_of(&f, pool).reclaimable_page_count, 0);
    }
    CHECK_EQ(pool_of(&f, SPINE).cached_page_count, 5);
    CHECK_EQ(locked_pages(&f, match.lock, WINDOW, after), 2);
    CHECK(memcmp(window, after, 2 * sizeof *window) == 0);
    CHECK_EQ(match_of(&f, text(ids, 40)).position_count, 20);
    CHECK(is_stale(&f, done.node));
    /* a second lock protects the same pages */
    rkv_lock_id again = lock_node(&f, match.node);
    CHECK_EQ(locked_pages(&f, again, STATE, after), 1);
    CHECK_EQ(after[0].page, state[0].page);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_EQ(evict_pool(&f, STATE, 100), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, again));
    size_t count = 0;
    CHECK_STATUS(rkv_cache_read_locked_pages(f.cache, again, STATE, NULL, 0, 0, &count),
                 RKV_STATUS_STALE_LOCK);
    CHECK_EQ(evict_pool(&f, STATE, 100), 1);
    CHECK_EQ(match_of(&f, text(ids, 40)).known_position_count, 20);
    CHECK_EQ(evict_pool(&f, SPINE, 100), 5);
    CHECK_EQ(pool_of(&f, WINDOW).cached_page_count, 0);
    end_hybrid(&f);
}

static void g08_inner_pages_go_first(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40];
    const uint64_t checkpoints[2] = {40, 0};
    count_up(ids, 40, 1);
    rows given = compute(&f, 10, 10, checkpoints), published;
    insert_rows(&f, text(ids, 40), &given, &published, 0);
    /* no end of what is cached needs the first 8 pages of the window */
    rkv_evicted_page gone[12];
    size_t count = 0, freed = 0;
    CHECK_OK(rkv_cache_evict_pool(f.cache, WINDOW, 8, gone, sizeof gone[0], 12, &count, &freed));
    CHECK(count == 8 && freed == 8);
    for (size_t i = 0; i < count; i++) {
        CHECK(gone[i].group == WINDOW && gone[i].page != given.pages[WINDOW][8]);
        CHECK(gone[i].page != given.pages[WINDOW][9]);
    }
    CHECK_EQ(match_of(&f, text(ids, 40)).position_count, 40);
    /* a leaf of the spine takes what hangs on it: one page of each group */
    CHECK_OK(rkv_cache_evict_pool(f.cache, SPINE, 1, gone, sizeof gone[0], 12, &count, &freed));
    CHECK(count == 3 && freed == 1);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(gone[i].page, given.pages[gone[i].group][9]);
    }
    CHECK_EQ(match_of(&f, text(ids, 40)).known_position_count, 36);
    CHECK_EQ(pool_of(&f, STATE).cached_page_count, 0);
    /* the call ends early when there may be too little room for what goes together */
    CHECK_OK(rkv_cache_evict_pool(f.cache, SPINE, 9, gone, sizeof gone[0], 4, &count, &freed));
    CHECK(freed >= 1 && count <= 4 && pool_of(&f, SPINE).cached_page_count == 9 - freed);
    /* pages of other pools are not told by this call, and need no room */
    uint32_t one = 0;
    CHECK_OK(rkv_cache_evict(f.cache, 1, &one, 1, &count));
    CHECK(count == 1 && one != 0 && pool_of(&f, SPINE).cached_page_count == 8 - freed);
    end_hybrid(&f);
}

/* Where groups share pool 0, rkv_cache_evict() tells of the pages of all: no more than fit. */
static void g08_no_more_goes_than_there_is_room_for(void) {
    const rkv_group_config groups[2] = {group_of(RKV_GROUP_FULL, 0, 0),
                                        group_of(RKV_GROUP_FULL, 0, 0)};
    fixture f = {NULL, NULL, PAGE};
    uint32_t ids[8], spine[2], other[2], gone[4];
    size_t count = 77;
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.page_count = 11;
    config.groups = groups;
    config.group_count = 2;
    CHECK_OK(rkv_page_table_create(&config, &f.table));
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    count_up(ids, 8, 1);
    rkv_tokens tokens = text(ids, 8);
    take_pages(&f, 0, 2, spine);
    take_pages(&f, 0, 2, other);
    rkv_group_row row = {1, 0, other, 2, NULL};
    rkv_cache_insert_args args = insert_args(&tokens, spine, 2);
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    args.groups = &row;
    args.group_count = 1;
    args.group_size = sizeof row;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    match_of(&f, tokens); /* so that the spine's turn comes first, which takes the other's */
    CHECK_OK(rkv_cache_evict(f.cache, 1, gone, 1, &count));
    CHECK_EQ(count, 0);
    CHECK_OK(rkv_cache_evict(f.cache, 1, gone, 2, &count));
    CHECK_EQ(count, 2);
    CHECK((gone[0] == spine[1] && gone[1] == other[1]) ||
          (gone[0] == other[1] && gone[1] == spine[1]));
    CHECK_EQ(pool_of(&f, 0).cached_page_count, 2);
    CHECK_OK(rkv_page_table_check(f.table));
    CHECK_OK(rkv_cache_check(f.cache));
    rkv_cache_destroy(f.cache);
    rkv_page_table_destroy(f.table);
}

static void g09_a_shortage_names_the_pool(void) {
    fixture f = new_hybrid(20, 10, 2);
    uint32_t ids[32], pages[20];
    count_up(ids, 32, 1);
    serve_rows(&f, text(ids, 32), 8, 32, 0);
    take_pages(&f, WINDOW, 9, pages); /* 2 were free, and 7 go */
    CHECK_EQ(pool_of(&f, WINDOW).cached_page_count, 1);
    CHECK_STATUS(rkv_page_table_allocate_pool_pages(f.table, WINDOW, 2, pages + 9),
                 RKV_STATUS_OUT_OF_PAGES);
    CHECK(message_names("pool 1"));
    rkv_shortage shortage;
    memset(&shortage, 0, sizeof shortage);
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK(shortage.pool == WINDOW && shortage.needed_page_count == 2);
    CHECK(shortage.reclaimable_page_count == 1 && shortage.private_page_count == 9);
    CHECK_EQ(pool_of(&f, WINDOW).cached_page_count, 1);
    give_pages(&f, WINDOW, pages, 9);
    CHECK_EQ(pool_of(&f, WINDOW).free_page_count, 9);
    CHECK_EQ(pool_of(&f, SPINE).private_page_count, 0);
    end_hybrid(&f);
}

/* One record of a journal: group, kind, reason, pages, and those of group 0. */
static bool record_is(const rkv_journal_record *record, const uint32_t *read, uint32_t group,
                      uint32_t kind, const uint32_t *pages, const uint32_t *spine, size_t count) {
    size_t size = count * sizeof *pages;
    bool is_it = record->group == group && record->kind == kind && record->page_count == count &&
                 memcmp(read + record->page_index, pages, size) == 0;
    return is_it && (spine == NULL ||
                     memcmp(read + record->group_0_page_index, spine, size) == 0);
}

/* J01: the pages of each group are records of their own, which say where they hang. */
static void j01_records_of_groups(void) {
    fixture f = {NULL, NULL, PAGE};
    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    CHECK_OK(try_hybrid(9, 9, 9, &f.table));
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    uint32_t ids[3 * PAGE];
    count_up(ids, 3 * PAGE, 1);
    rows given, published;
    memset(&given, 0, sizeof given);
    take_pages(&f, SPINE, 3, given.pages[SPINE]);
    take_pages(&f, WINDOW, 2, &given.pages[WINDOW][1]); /* a hole comes first */
    take_pages(&f, STATE, 1, &given.pages[STATE][2]);
    insert_rows(&f, text(ids, 3 * PAGE), &given, &published, 0);
    const uint32_t *spine = given.pages[SPINE];
    CHECK_EQ(evict_pool(&f, WINDOW, 1), 1);

    static rkv_journal_record records[8];
    static uint32_t pages[32], tokens[64];
    rkv_journal_buffers room = {
        sizeof room, 0, records, sizeof *records, 8, pages, 32, tokens, 64, NULL, 0, 0};
    rkv_cache_read_journal_result read;
    memset(&read, 0, sizeof read);
    read.struct_size = sizeof read;
    CHECK_OK(rkv_cache_read_journal(f.cache, 0, &room, &read));
    CHECK_EQ(read.record_count, 4);
    CHECK_EQ(read.page_count, 3 + 2 * 2 + 2 * 1 + 1);
    CHECK_EQ(read.token_count, (3 + 2 + 1) * PAGE);
    const uint32_t stored = RKV_JOURNAL_STORED;
    CHECK(record_is(&records[0], pages, SPINE, stored, spine, spine, 3));
    CHECK(record_is(&records[2], pages, WINDOW, stored, &given.pages[WINDOW][1], spine + 1, 2));
    CHECK(records[2].parent_page == spine[0] && records[2].first_position == PAGE);
    CHECK_EQ(tokens[records[2].token_index], ids[PAGE]);
    CHECK(record_is(&records[1], pages, STATE, stored, &given.pages[STATE][2], spine + 2, 1));
    const uint32_t gone = pages[records[3].page_index];
    CHECK(gone == given.pages[WINDOW][1] || gone == given.pages[WINDOW][2]);
    CHECK(record_is(&records[3], pages, WINDOW, RKV_JOURNAL_REMOVED, &gone, NULL, 1));
    CHECK_EQ(records[3].reason, RKV_REASON_CALLER);

    /* what is held now: by page, pool after pool */
    rkv_cache_read_contents_result told;
    memset(&told, 0, sizeof told);
    told.struct_size = sizeof told;
    CHECK_OK(rkv_cache_read_contents(f.cache, 0, &room, &told));
    CHECK(told.next_page == 0 && told.record_count == 3 && told.page_count == 3 + 2 * 1 + 2 * 1);
    CHECK_STATUS(rkv_cache_read_contents(f.cache, 30, &room, &told),
                 RKV_STATUS_INVALID_ARGUMENT); /* three pools of ten, with page 0 */
    CHECK(message_names("first_page"));
    end_hybrid(&f);
}

/* What several groups do not have yet is refused, not done half. */
static void g12_unsupported(void) {
    rkv_page_table *table = NULL;
    rkv_cache *cache = NULL;
    rkv_cache_config config;
    CHECK_OK(try_hybrid(8, 8, 8, &table));
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.index = RKV_INDEX_BLOCK_HASH;
    CHECK_STATUS(rkv_cache_create(table, &config, &cache), RKV_STATUS_UNSUPPORTED);
    CHECK(message_names("config.index"));
    CHECK(cache == NULL);
    rkv_page_table_destroy(table);
}

int main(void) {
    RUN(g03_statistics_by_group);
    RUN(g04_a_chat_over_a_system_prompt);
    RUN(g02_usable_depth);
    RUN(g03_costs_by_group);
    RUN(g01_one_group_unless_said);
    RUN(g01_chunks_and_sinks);
    RUN(g02_holes_are_filled);
    RUN(g06_locks_keep_what_a_match_needs);
    RUN(g08_inner_pages_go_first);
    RUN(g08_no_more_goes_than_there_is_room_for);
    RUN(g09_a_shortage_names_the_pool);
    RUN(j01_records_of_groups);
    RUN(g12_unsupported);
    return check_result();
}
