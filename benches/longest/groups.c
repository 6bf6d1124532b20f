/*
 * A world of several groups of layers, each with a pool of its own: full attention, a sliding
 * window, states, and full attention again, over rows of 131,072 positions.
 */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SPINE, WINDOW, STATE, FULL, GROUP_COUNT };
enum { SEED = 1808, REPEATS = 20, SHORT = 512, SHORT_COUNT = 512 };

/* Positions of a window; a prompt has more. */
static uint32_t window_size;

static struct house open(uint32_t page_size, uint32_t page_count, uint32_t state_count)
{
    struct house house = {.page_size = page_size};
    const rkv_group_config groups[GROUP_COUNT] = {
        {.kind = RKV_GROUP_FULL, .pool = SPINE},
        {.kind = RKV_GROUP_WINDOW, .pool = WINDOW, .window = window_size},
        {.kind = RKV_GROUP_STATE, .pool = STATE},
        {.kind = RKV_GROUP_FULL, .pool = FULL}};
    const rkv_pool_config pools[GROUP_COUNT] = {
        {.page_count = page_count + 1}, {.page_count = page_count + 1},
        {.page_count = state_count + 1}, {.page_count = page_count + 1}};
    rkv_page_table_config config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.slot_count = 64;
    config.groups = groups;
    config.group_count = GROUP_COUNT;
    config.group_size = sizeof *groups;
    config.pools = pools;
    config.pool_count = GROUP_COUNT;
    config.pool_size = sizeof *pools;
    TIME(rkv_page_table_create, &config, &house.table);
    TIME(rkv_cache_create, house.table, NULL, &house.cache);
    reader_of_pages(house.table);
    return house;
}

static void pools(const struct house *house, uint32_t page_count)
{
    uint32_t *pages = allocate(page_count, sizeof *pages);
    rkv_pool_stats stats = {.struct_size = sizeof stats};
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        for (unsigned i = 0; i < REPEATS; i++) {
            TIME(rkv_page_table_read_pool_stats, house->table, pool, &stats);
            TIME(rkv_page_table_allocate_pool_pages, house->table, pool, 1 + i, pages);
            TIME(rkv_page_table_free_pool_pages, house->table, pool, pages, 1 + i);
        }
        if (stats.free_page_count >= page_count) {
            TIME(rkv_page_table_allocate_pool_pages, house->table, pool, page_count, pages);
            TIME(rkv_page_table_free_pool_pages, house->table, pool, pages, page_count);
        }
    }
    free(pages);
}

/* The row in each group, and what a plan says of it. */
static void look_at_rows(const struct house *house, const rkv_sequence_info *state)
{
    uint32_t *pages = allocate((size_t)state->page_count, sizeof *pages);
    size_t count;
    rkv_plan *plan;
    rkv_plan_row row = {.sequence = state->sequence, .start = state->position_count - 1,
                        .count = 1};
    rkv_plan_group_arrays arrays = {.struct_size = sizeof arrays};
    TIME(rkv_plan_create, house->table, &plan);
    for (unsigned i = 0; i < REPEATS; i++) {
        TIME(rkv_plan_set, plan, &row, 1, sizeof row);
        TIME(rkv_plan_check, plan);
        for (uint32_t group = 0; group < GROUP_COUNT; group++) {
            TIME(rkv_sequence_read_group_row, house->cache, state->sequence, group, 0, pages,
                 (size_t)state->page_count, &count);
            TIME(rkv_plan_view_group, plan, group, 0, &arrays);
            TIME(rkv_plan_view_group, plan, group, RKV_PLAN_COMPACT, &arrays);
        }
    }
    TIME_VOID(rkv_plan_destroy, plan);
    free(pages);
}

static void publish_to(const struct house *house, rkv_sequence_id sequence, uint64_t end)
{
    rkv_sequence_publish_result result = {.struct_size = sizeof result};
    rkv_published_group groups[GROUP_COUNT];
    size_t count;
    TIME(rkv_sequence_publish, house->cache, sequence, end, &result);
    TIME(rkv_sequence_read_published, house->cache, sequence, groups, sizeof *groups, GROUP_COUNT,
         &count);
}

static void save(const struct house *house, rkv_sequence_id sequence)
{
    rkv_page_copy copies[GROUP_COUNT];
    size_t count;
    TIME(rkv_sequence_checkpoint, house->cache, sequence, &count);
    REQUIRE(count == 1);
    TIME(rkv_sequence_read_copies, house->cache, sequence, copies, sizeof *copies, GROUP_COUNT,
         &count);
    TIME(rkv_sequence_confirm_copies, house->cache, sequence);
}

/* Computed chunk by chunk, with a checkpoint after each; its window slides along. */
static void chunked(const struct house *house, const rkv_tokens *tokens, uint64_t chunk)
{
    size_t left;
    rkv_sequence_begin_args args = {
        .struct_size = sizeof args, .tokens = tokens, .allocate_position_count = chunk};
    rkv_sequence_info state = {.struct_size = sizeof state};
    TIME(rkv_sequence_begin, house->cache, &args, &state);
    REQUIRE(state.cached_position_count == 0);
    for (uint64_t end = chunk; end <= state.position_count; end += chunk) {
        TIME(rkv_sequence_allocate, house->cache, state.sequence, end);
        publish_to(house, state.sequence, end);
        if (end < state.position_count) {
            save(house, state.sequence);
        }
    }
    TIME(rkv_sequence_read_info, house->cache, state.sequence, &state);
    TIME(rkv_sequence_donate, house->cache, state.sequence, &left);
    REQUIRE(left == 1);
}

/* Computed in one piece: every page of the window's group is there until it is published. */
static void whole(const struct house *house, const rkv_tokens *tokens)
{
    size_t left;
    rkv_sequence_info state = begin(house, NULL, tokens);
    REQUIRE(state.cached_position_count == 0);
    look_at_rows(house, &state);
    publish_to(house, state.sequence, state.position_count);
    rkv_tokens one = text(tokens->ids, 1);
    TIME(rkv_sequence_append, house->cache, state.sequence, &one);
    TIME(rkv_sequence_read_info, house->cache, state.sequence, &state);
    look_at_rows(house, &state);
    TIME(rkv_sequence_donate, house->cache, state.sequence, &left);
}

static void look_up(const struct house *house, const rkv_tokens *tokens)
{
    rkv_group_cost costs[GROUP_COUNT];
    rkv_group_stats stats[GROUP_COUNT];
    rkv_group_depths depths = {.struct_size = sizeof depths};
    rkv_cache_match_result hit = {.struct_size = sizeof hit};
    size_t count, capacity = tokens->count / house->page_size;
    uint32_t *pages = allocate(capacity, sizeof *pages);
    rkv_locked_page *locked = allocate(capacity, sizeof *locked);
    TIME(rkv_cache_probe, house->cache, NULL, tokens, NULL, &count);
    TIME(rkv_cache_probe_groups, house->cache, NULL, tokens, costs, sizeof *costs, GROUP_COUNT,
         &count, &depths);
    TIME(rkv_cache_read_group_stats, house->cache, stats, sizeof *stats, GROUP_COUNT, &count);
    TIME(rkv_cache_match, house->cache, NULL, tokens, RKV_MATCH_LOCK, pages, capacity, &hit);
    REQUIRE(hit.page_count > 0 && hit.lock != 0);
    for (uint32_t group = 1; group < GROUP_COUNT; group++) {
        TIME(rkv_cache_read_locked_pages, house->cache, hit.lock, group, locked, sizeof *locked,
             capacity, &count);
        REQUIRE(count > 0);
    }
    TIME(rkv_cache_slide_lock, house->cache, hit.lock, tokens->count);
    TIME(rkv_cache_unlock, house->cache, hit.lock);
    free(pages);
    free(locked);
}

static void evict_from(const struct house *house, uint32_t pool, size_t page_count)
{
    size_t freed;
    TIME(rkv_cache_evict_pool, house->cache, pool, page_count, NULL, 0, 0, NULL, &freed);
}

static void short_prompt(const struct house *house, const rkv_tokens *tokens)
{
    size_t left;
    rkv_sequence_info state = begin(house, NULL, tokens);
    publish_to(house, state.sequence, state.position_count);
    TIME(rkv_sequence_donate, house->cache, state.sequence, &left);
}

/* Children take over what a window has of their parent. */
static void children(const struct house *house, rkv_sequence_id parent, const rkv_tokens *more)
{
    rkv_sequence_continue_args args = {
        .struct_size = sizeof args, .parent = parent, .tokens = more,
        .flags = RKV_CONTINUE_RUNNING};
    rkv_sequence_info state = {.struct_size = sizeof state};
    TIME(rkv_sequence_continue, house->cache, &args, &state);
    TIME(rkv_sequence_release, house->cache, state.sequence);
    rkv_sequence_fork_args fork = {
        .struct_size = sizeof fork, .parent = parent, .child_count = 1};
    rkv_sequence_fork_child child;
    TIME(rkv_sequence_fork, house->cache, &fork, &child, sizeof child);
    TIME(rkv_sequence_release, house->cache, child.sequence);
}

/* Kept when it ends, and dropped then: all that nobody else uses of a FULL group. */
static void keep(const struct house *house, const rkv_tokens *tokens)
{
    bool retained;
    rkv_sequence_info state = begin(house, NULL, tokens);
    publish_to(house, state.sequence, state.position_count);
    rkv_tokens more = text(tokens->ids, 16);
    children(house, state.sequence, &more);
    TIME(rkv_sequence_retain, house->cache, state.sequence, &retained);
    REQUIRE(retained);
    children(house, state.sequence, &more);
    TIME(rkv_sequence_drop, house->cache, state.sequence);
}

/* A lock on a node of its own, taken where an insert ended. */
static void lock(const struct house *house, const rkv_tokens *tokens)
{
    rkv_cache_match_result hit = {.struct_size = sizeof hit};
    rkv_lock_id on_node;
    TIME(rkv_cache_match, house->cache, NULL, tokens, RKV_MATCH_LOCK, NULL, 0, &hit);
    TIME(rkv_cache_lock, house->cache, hit.node, &on_node);
    TIME(rkv_cache_unlock, house->cache, hit.lock);
    TIME(rkv_cache_unlock, house->cache, on_node);
}

/* Pages of every group that the caller computed, published in one call: of the window the last. */
static void insert(const struct house *house, const rkv_tokens *tokens)
{
    uint32_t count = (uint32_t)(tokens->count / house->page_size);
    uint32_t *pages[GROUP_COUNT];
    rkv_group_row rows[GROUP_COUNT - 1];
    const uint32_t kept[GROUP_COUNT] = {count, window_size / house->page_size + 1, 1, count};
    for (uint32_t group = 0; group < GROUP_COUNT; group++) {
        pages[group] = allocate(count, sizeof **pages);
        TIME(rkv_page_table_allocate_pool_pages, house->table, group, kept[group],
             pages[group] + count - kept[group]);
        if (group > 0) {
            rows[group - 1] = (rkv_group_row){
                .group = group, .pages = pages[group], .page_count = count};
        }
    }
    rkv_cache_insert_args args = {
        .struct_size = sizeof args, .tokens = tokens, .pages = pages[SPINE], .page_count = count,
        .groups = rows, .group_count = GROUP_COUNT - 1, .group_size = sizeof *rows};
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    TIME(rkv_cache_insert, house->cache, &args, NULL, &result);
    REQUIRE(result.claimed_page_count == count);
    for (uint32_t group = 0; group < GROUP_COUNT; group++) {
        free(pages[group]);
    }
}

/* Nothing of it is published, and the window slides all the way in one call. */
static void slide(const struct house *house, const rkv_tokens *tokens)
{
    rkv_sequence_info state = begin(house, NULL, tokens);
    for (uint64_t end = window_size; end < state.position_count / 2; end += window_size) {
        TIME(rkv_sequence_slide, house->cache, state.sequence, end);
    }
    TIME(rkv_sequence_slide, house->cache, state.sequence, state.position_count);
    TIME(rkv_sequence_release, house->cache, state.sequence);
}

static void use_groups(uint32_t page_size)
{
    uint32_t length = sizes.positions, page_count = length / page_size;
    uint32_t *ids = allocate(length, sizeof *ids);
    struct house house = open(page_size, 5 * page_count, 2048);
    tokens_fill(SEED, 0, ids, length);
    rkv_tokens tokens = text(ids, length);
    chunked(&house, &tokens, length / 64);
    for (unsigned i = 0; i < REPEATS; i++) {
        look_up(&house, &tokens);
        lock(&house, &tokens);
    }
    for (uint32_t i = 0; i < REPEATS; i++) {
        rkv_sequence_info state = begin(&house, NULL, &tokens);
        if (i == 0) {
            look_at_rows(&house, &state);
        }
        publish_to(&house, state.sequence, state.position_count);
        TIME(rkv_sequence_release, house.cache, state.sequence);
    }
    keep(&house, &tokens);
    pools(&house, page_count);
    ids[0] = FRESH;
    whole(&house, &tokens);
    ids[0] = FRESH + 1;
    slide(&house, &tokens);
    ids[0] = FRESH + 2;
    insert(&house, &tokens);
    /* Short prompts, so that there is something to give way. */
    for (uint32_t i = 0; i < SHORT_COUNT; i++) {
        ids[0] = FRESH_MISS + i;
        rkv_tokens few = text(ids, SHORT);
        short_prompt(&house, &few);
    }
    house_looks(&house, 20);
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        for (size_t i = 1; i <= 64; i++) {
            evict_from(&house, (pool + 2) % GROUP_COUNT, i);
        }
    }
    situation_many(true);
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        evict_from(&house, (pool + 1) % GROUP_COUNT, SIZE_MAX);
    }
    situation_many(false);
    house_close(&house);
    free(ids);
}

void world_groups(uint32_t page_size, uint32_t index)
{
    (void)index;
    window_size = 1024;
    situation(page_size == 1 ? "131,072 positions in four groups, page 1"
                             : "131,072 positions in four groups, page 16");
    use_groups(page_size);
}

void world_long_windows(uint32_t page_size, uint32_t index)
{
    (void)index;
    window_size = sizes.positions / 2;
    situation(page_size == 1 ? "windows of 65,536 positions, page 1"
                             : "windows of 65,536 positions, page 16");
    use_groups(page_size);
}
