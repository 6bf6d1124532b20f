/* What nearly every test needs: a page table with a cache on it, token lists, and calls that are
 * expected to succeed, each as one word. */
#ifndef RKV_TESTS_FIXTURE_H
#define RKV_TESTS_FIXTURE_H

#include <stdlib.h>

#include "check.h"

/* The index of the caches that new_fixture() makes. */
static uint32_t fixture_index = RKV_INDEX_RADIX;

/* Runs a test with one index, then with the other: what it shows doesn't depend on the index. */
#define RUN_BOTH(test)                                                                            \
    do {                                                                                          \
        RUN(test);                                                                                \
        RUN_BLOCK_HASH(test);                                                                     \
    } while (0)

#define RUN_BLOCK_HASH(test)                                                                      \
    do {                                                                                          \
        fixture_index = RKV_INDEX_BLOCK_HASH;                                                     \
        check_test = #test ", block-hash index";                                                  \
        test();                                                                                   \
        fixture_index = RKV_INDEX_RADIX;                                                          \
    } while (0)

typedef struct fixture {
    rkv_page_table *table;
    rkv_cache *cache;
    uint32_t page_size;
} fixture;

static inline rkv_page_table *new_table(uint32_t page_size, uint32_t page_count,
                                        uint32_t slot_count) {
    rkv_page_table_config config;
    rkv_page_table *table = NULL;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.page_count = page_count;
    config.slot_count = slot_count;
    if (!CHECK_OK(rkv_page_table_create(&config, &table))) {
        exit(1);
    }
    return table;
}

/* `page_count` pages that can be handed out, page 0 not counted. */
static inline fixture new_fixture_with(uint32_t page_size, uint32_t page_count,
                                       uint32_t slot_count, uint32_t flags) {
    fixture f = {NULL, NULL, page_size};
    rkv_cache_config config;
    f.table = new_table(page_size, page_count + 1, slot_count);
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.flags = flags;
    config.index = fixture_index;
    if (!CHECK_OK(rkv_cache_create(f.table, &config, &f.cache))) {
        exit(1);
    }
    return f;
}

static inline fixture new_fixture(uint32_t page_size, uint32_t page_count) {
    return new_fixture_with(page_size, page_count, 8, 0);
}

static inline rkv_page_table_stats table_stats(const fixture *f) {
    rkv_page_table_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_page_table_read_stats(f->table, &stats));
    return stats;
}

static inline rkv_cache_stats cache_stats(const fixture *f) {
    rkv_cache_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_cache_read_stats(f->cache, &stats));
    return stats;
}

static inline uint64_t free_pages(const fixture *f) { return table_stats(f).free_page_count; }
static inline uint64_t cached_pages(const fixture *f) { return table_stats(f).cached_page_count; }
static inline uint64_t private_pages(const fixture *f) {
    return table_stats(f).private_page_count;
}
static inline uint64_t reclaimable_pages(const fixture *f) {
    return table_stats(f).reclaimable_page_count;
}

/* K19: the states add up, both objects agree, and every invariant holds. */
static inline void check_sane(const fixture *f) {
    rkv_page_table_stats pages = table_stats(f);
    rkv_cache_stats cache = cache_stats(f);
    CHECK_EQ(pages.free_page_count + pages.cached_page_count + pages.private_page_count +
                 pages.outside_page_count,
             pages.total_page_count);
    CHECK_EQ(pages.cached_page_count, cache.cached_page_count);
    CHECK_EQ(pages.reclaimable_page_count, cache.reclaimable_page_count);
    CHECK(pages.reclaimable_page_count <= pages.cached_page_count);
    CHECK_OK(rkv_page_table_check(f->table));
    CHECK_OK(rkv_cache_check(f->cache));
}

/* How many nodes there are where the radix tree has `count`: the block-hash index has one for each
 * page. */
static inline uint64_t nodes(const fixture *f, uint64_t count) {
    return fixture_index == RKV_INDEX_RADIX ? count : cached_pages(f);
}

static inline void end_fixture(fixture *f) {
    check_sane(f);
    rkv_cache_destroy(f->cache);
    rkv_page_table_destroy(f->table);
    f->cache = NULL;
    f->table = NULL;
}

/* ---- tokens ---- */

static inline void count_up(uint32_t *ids, size_t count, uint32_t first) {
    for (size_t i = 0; i < count; i++) {
        ids[i] = first + (uint32_t)i;
    }
}

static inline rkv_tokens with_items(const uint32_t *ids, size_t count,
                                    const rkv_token_item *items, size_t item_count) {
    rkv_tokens tokens;
    memset(&tokens, 0, sizeof tokens);
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    tokens.items = items;
    tokens.item_size = sizeof *items;
    tokens.item_count = item_count;
    return tokens;
}

static inline rkv_tokens text(const uint32_t *ids, size_t count) {
    return with_items(ids, count, NULL, 0);
}

/* Image number `name` of some length; names stand for contents. */
static inline rkv_token_item image(uint64_t token_index, uint8_t name, uint32_t position_count) {
    rkv_token_item item;
    memset(&item, 0, sizeof item);
    item.token_index = token_index;
    item.kind = RKV_TOKEN_IMAGE;
    item.position_count = position_count;
    memset(item.digest, name, sizeof item.digest);
    return item;
}

static inline rkv_namespace new_namespace(void) {
    rkv_namespace space;
    memset(&space, 0, sizeof space);
    space.struct_size = sizeof space;
    return space;
}

/* ---- the cache ---- */

static inline rkv_cache_match_result new_match(void) {
    rkv_cache_match_result match;
    memset(&match, 0, sizeof match);
    match.struct_size = sizeof match;
    return match;
}

static inline rkv_cache_match_result match_in(const fixture *f, const rkv_namespace *space,
                                              rkv_tokens tokens,
                                 uint32_t flags) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, space, &tokens, flags, NULL, 0, &match));
    CHECK_EQ(match.position_count,
             match.page_count * f->page_size + match.partial_position_count);
    return match;
}

static inline rkv_cache_match_result match_of(const fixture *f, rkv_tokens tokens) {
    return match_in(f, NULL, tokens, 0);
}

/* Tokens and positions that the cache has, without touching it. */
static inline size_t probe_in(const fixture *f, const rkv_namespace *space, rkv_tokens tokens) {
    size_t positions = 0;
    CHECK_OK(rkv_cache_probe(f->cache, space, &tokens, NULL, &positions));
    return positions;
}

static inline size_t probe(const fixture *f, rkv_tokens tokens) {
    return probe_in(f, NULL, tokens);
}

static inline void allocate(const fixture *f, size_t count, uint32_t *pages) {
    CHECK_OK(rkv_page_table_allocate_pages(f->table, count, pages));
}

static inline rkv_cache_insert_args insert_args(const rkv_tokens *tokens, const uint32_t *pages,
                                          size_t page_count) {
    rkv_cache_insert_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = tokens;
    args.pages = pages;
    args.page_count = page_count;
    return args;
}

static inline rkv_cache_insert_result insert_pages(const fixture *f, const rkv_namespace *space,
                                             rkv_tokens tokens, const uint32_t *pages,
                                             size_t page_count) {
    rkv_cache_insert_args args = insert_args(&tokens, pages, page_count);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    args.space = space;
    CHECK_OK(rkv_cache_insert(f->cache, &args, NULL, &result));
    return result;
}

/* Inserts with newly allocated pages and gives those that were not claimed back. */
static inline rkv_cache_insert_result insert_in(const fixture *f, const rkv_namespace *space,
                                          rkv_tokens tokens) {
    uint32_t pages[1024];
    size_t positions = 0;
    CHECK_OK(rkv_tokens_position_count(&tokens, &positions));
    size_t count = positions / f->page_size;
    allocate(f, count, pages);
    rkv_cache_insert_result result = insert_pages(f, space, tokens, pages, count);
    for (size_t i = 0; i < count; i++) {
        bool cached = false;
        CHECK_OK(rkv_cache_contains_page(f->cache, pages[i], &cached));
        if (!cached) {
            CHECK_OK(rkv_page_table_free_pages(f->table, &pages[i], 1));
        }
    }
    return result;
}

static inline rkv_cache_insert_result insert(const fixture *f, rkv_tokens tokens) {
    return insert_in(f, NULL, tokens);
}

static inline rkv_node_info info_of(const fixture *f, rkv_node_id node) {
    rkv_node_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_OK(rkv_node_read_info(f->cache, node, &info));
    return info;
}

static inline rkv_node_id root_of(const fixture *f, rkv_node_id node) {
    rkv_node_id parent = info_of(f, node).parent;
    while (parent != 0) {
        node = parent;
        parent = info_of(f, node).parent;
    }
    return node;
}

static inline bool is_stale(const fixture *f, rkv_node_id node) {
    rkv_node_info info;
    info.struct_size = sizeof info;
    return rkv_node_read_info(f->cache, node, &info) == RKV_STATUS_STALE_NODE;
}

static inline rkv_lock_id lock_node(const fixture *f, rkv_node_id node) {
    rkv_lock_id lock = 0;
    CHECK_OK(rkv_cache_lock(f->cache, node, &lock));
    CHECK(lock != 0);
    return lock;
}

static inline size_t evict(const fixture *f, size_t count) {
    size_t evicted = 0;
    CHECK_OK(rkv_cache_evict(f->cache, count, NULL, 0, &evicted));
    return evicted;
}

/* ---- sequences ---- */

static inline rkv_sequence_begin_args sequence_args(const rkv_tokens *tokens) {
    rkv_sequence_begin_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = tokens;
    return args;
}

static inline rkv_sequence_info new_state(void) {
    rkv_sequence_info state;
    memset(&state, 0, sizeof state);
    state.struct_size = sizeof state;
    return state;
}

static inline rkv_sequence_info begin_in(const fixture *f, const rkv_namespace *space,
                                          rkv_tokens tokens) {
    rkv_sequence_begin_args args = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    args.space = space;
    CHECK_OK(rkv_sequence_begin(f->cache, &args, &state));
    return state;
}

static inline rkv_sequence_info begin(const fixture *f, rkv_tokens tokens) {
    return begin_in(f, NULL, tokens);
}

static inline rkv_status try_begin(const fixture *f, rkv_tokens tokens,
                                   rkv_sequence_info *state) {
    rkv_sequence_begin_args args = sequence_args(&tokens);
    return rkv_sequence_begin(f->cache, &args, state);
}

static inline rkv_sequence_info query(const fixture *f, rkv_sequence_id sequence) {
    rkv_sequence_info state = new_state();
    CHECK_OK(rkv_sequence_read_info(f->cache, sequence, &state));
    return state;
}

/* The page copy that a sequence waits for; zeros when there is none. */
static inline rkv_page_copy copy_of(const fixture *f, rkv_sequence_id sequence) {
    rkv_page_copy copy = {0, 0, 0, 0};
    size_t count = 77;
    CHECK_OK(rkv_sequence_read_copies(f->cache, sequence, &copy, sizeof copy, 1, &count));
    CHECK_EQ(count, copy.position_count > 0);
    CHECK_EQ(query(f, sequence).copy_count, count);
    return copy;
}

static inline rkv_sequence_publish_result publish(const fixture *f, rkv_sequence_id sequence,
                                         uint64_t computed) {
    rkv_sequence_publish_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_sequence_publish(f->cache, sequence, computed, &result));
    return result;
}

static inline void append(const fixture *f, rkv_sequence_id sequence, uint32_t id) {
    rkv_tokens one = text(&id, 1);
    CHECK_OK(rkv_sequence_append(f->cache, sequence, &one));
}

static inline void release(const fixture *f, rkv_sequence_id sequence) {
    CHECK_OK(rkv_sequence_release(f->cache, sequence));
}

/* ---- children ---- */

static inline rkv_sequence_continue_args continue_args(rkv_sequence_id parent,
                                                       const rkv_tokens *tokens) {
    rkv_sequence_continue_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.parent = parent;
    args.tokens = tokens;
    return args;
}

static inline rkv_sequence_info continue_as(const fixture *f,
                                            const rkv_sequence_continue_args *args) {
    rkv_sequence_info state = new_state();
    CHECK_OK(rkv_sequence_continue(f->cache, args, &state));
    return state;
}

static inline rkv_sequence_info continue_from(const fixture *f, rkv_sequence_id parent,
                                               rkv_tokens suffix) {
    rkv_sequence_continue_args args = continue_args(parent, &suffix);
    return continue_as(f, &args);
}

static inline rkv_status try_continue(const fixture *f, rkv_sequence_id parent,
                                      rkv_tokens suffix, rkv_sequence_info *state) {
    rkv_sequence_continue_args args = continue_args(parent, &suffix);
    return rkv_sequence_continue(f->cache, &args, state);
}

static inline rkv_status try_fork(const fixture *f, rkv_sequence_id parent, size_t child_count,
                                  rkv_sequence_fork_child *children) {
    rkv_sequence_fork_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.parent = parent;
    args.child_count = child_count;
    return rkv_sequence_fork(f->cache, &args, children, sizeof *children);
}

static inline void fork_into(const fixture *f, rkv_sequence_id parent, size_t child_count,
                             rkv_sequence_fork_child *children) {
    CHECK_OK(try_fork(f, parent, child_count, children));
}

static inline bool retain(const fixture *f, rkv_sequence_id sequence) {
    bool retained = false;
    CHECK_OK(rkv_sequence_retain(f->cache, sequence, &retained));
    return retained;
}

static inline void confirm_copies(const fixture *f, rkv_sequence_id sequence) {
    CHECK_OK(rkv_sequence_confirm_copies(f->cache, sequence));
}

/* A finished request that is retained: begin, copy, publish everything, retain. */
static inline rkv_sequence_id serve_and_retain(const fixture *f, rkv_tokens tokens) {
    rkv_sequence_info state = begin(f, tokens);
    if (state.copy_count > 0) {
        confirm_copies(f, state.sequence);
    }
    publish(f, state.sequence, state.position_count);
    CHECK(retain(f, state.sequence));
    return state.sequence;
}

/* A whole request: begin, copy, publish everything, release. Returns the positions reused. */
static inline uint64_t serve(const fixture *f, rkv_tokens tokens) {
    rkv_sequence_info state = begin(f, tokens);
    if (state.copy_count > 0) {
        CHECK_OK(rkv_sequence_confirm_copies(f->cache, state.sequence));
    }
    publish(f, state.sequence, state.position_count);
    release(f, state.sequence);
    return state.cached_position_count;
}

/* Reads a whole row and returns its length in pages. */
static inline size_t row_of(const fixture *f, uint32_t slot, uint32_t *pages, size_t capacity) {
    size_t count = 0;
    CHECK_OK(rkv_page_table_read_row(f->table, slot, 0, pages, capacity, &count));
    CHECK(count <= capacity);
    return count;
}

/* ---- comparisons ---- */

/* All counters of both objects, to show that a refused call left no trace. */
typedef struct snapshot {
    rkv_page_table_stats table;
    rkv_cache_stats cache;
} snapshot;

static inline snapshot take(const fixture *f) {
    snapshot now;
    memset(&now, 0, sizeof now);
    now.table = table_stats(f);
    now.cache = cache_stats(f);
    return now;
}

static inline bool same(const fixture *f, const snapshot *before) {
    snapshot now = take(f);
    return memcmp(&now, before, sizeof now) == 0;
}

/* The first `count` pages of a row are the cache's, the others private. */
static inline void check_shared(const fixture *f, uint32_t slot, size_t count) {
    uint32_t pages[64];
    size_t length = row_of(f, slot, pages, 64);
    for (size_t i = 0; i < length; i++) {
        bool cached = false;
        CHECK_OK(rkv_cache_contains_page(f->cache, pages[i], &cached));
        CHECK(cached == (i < count));
    }
}

#endif
