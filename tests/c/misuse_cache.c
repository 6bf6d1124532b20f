/* M01: every way to call the functions on caches and nodes wrongly. */
#include "misuse.h"

static void m01_cache_create(void) {
    fixture f = new_fixture(2, 8);
    rkv_page_table *table = new_table(2, 8, 2);
    rkv_cache_config config, fresh;
    rkv_cache *cache = NULL;
    mark(&fresh, sizeof fresh);
    BAD(&f, rkv_cache_config_init(NULL, sizeof config), "config");
    BAD(&f, rkv_cache_config_init(&fresh, 0), "struct_size");
    const size_t first = offsetof(rkv_cache_config, checkpoint_limit);
    BAD(&f, rkv_cache_config_init(&fresh, first - 1), "struct_size");
    UNTOUCHED(fresh);
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    CHECK(config.struct_size == sizeof config && config.flags == 0);
    CHECK(config.index == RKV_INDEX_RADIX && config.reserved == 0);
    CHECK(config.retained_sequence_limit == 1024 && config.retained_page_limit == 0);
    BAD(&f, rkv_cache_create(NULL, &config, &cache), "table");
    BAD(&f, rkv_cache_create(table, &config, NULL), "out_cache");
    BAD_INPUT_SIZES_FROM(&f, rkv_cache_config, first, config, p,
                         rkv_cache_create(table, p, &cache), "config");
    /* B10: a configuration error names the field */
    config.flags = 2;
    BAD(&f, rkv_cache_create(table, &config, &cache), "flags");
    config.flags = UINT32_C(1) << 31 | RKV_CACHE_WHOLE_PAGES;
    BAD(&f, rkv_cache_create(table, &config, &cache), "flags");
    config.flags = 0;
    config.index = RKV_INDEX_BLOCK_HASH + 1;
    BAD(&f, rkv_cache_create(table, &config, &cache), "index");
    config.index = UINT32_MAX;
    BAD(&f, rkv_cache_create(table, &config, &cache), "index");
    config.index = RKV_INDEX_RADIX;
    config.reserved = 1;
    BAD(&f, rkv_cache_create(table, &config, &cache), "reserved");
    config.reserved = 0;
    config.checkpoint_limit = 513;
    BAD(&f, rkv_cache_create(table, &config, &cache), "checkpoint_limit");
    config.checkpoint_limit = 1;
    REFUSED(&f, rkv_cache_create(table, &config, &cache), RKV_STATUS_UNSUPPORTED,
            "checkpoint_limit");
    CHECK(cache == NULL);
    config.checkpoint_limit = 0;
    GOOD_BIGGER_INPUT(rkv_cache_config, config, p, rkv_cache_create(table, p, &cache));
    rkv_cache *second = NULL;
    REFUSED(&f, rkv_cache_create(table, NULL, &second), RKV_STATUS_BUSY, "cache");
    CHECK(second == NULL);
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    end_fixture(&f);
}

/* A handle of the other kind is noticed. */
static void m01_swapped_handles(void) {
    fixture f = new_fixture(2, 8);
    rkv_cache *no_cache = (rkv_cache *)(void *)f.table;
    rkv_page_table *no_table = (rkv_page_table *)(void *)f.cache;
    size_t count = 77;
    uint32_t slot = 77;
    BAD(&f, rkv_cache_check(no_cache), "cache");
    BAD(&f, rkv_cache_evict(no_cache, 1, NULL, 0, &count), "cache");
    BAD(&f, rkv_sequence_release(no_cache, 1), "cache");
    BAD(&f, rkv_page_table_check(no_table), "table");
    BAD(&f, rkv_page_table_allocate_slot(no_table, &slot), "table");
    CHECK(count == 77 && slot == 77);
    end_fixture(&f);
}

static void m01_match_and_probe(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_namespace space = new_namespace();
    rkv_cache_match_result match;
    uint32_t pages[4];
    size_t token_count, positions;
    mark(&match, sizeof match);
    mark(pages, sizeof pages);
    mark(&token_count, sizeof token_count);
    mark(&positions, sizeof positions);
    match.struct_size = sizeof match;
    BAD(f, rkv_cache_match(NULL, NULL, &c.tokens, 0, pages, 4, &match), "cache");
    BAD(f, rkv_cache_match(f->cache, NULL, NULL, 0, pages, 4, &match), "tokens");
    BAD(f, rkv_cache_match(f->cache, NULL, &c.tokens, 2, pages, 4, &match), "flags");
    BAD(f, rkv_cache_match(f->cache, NULL, &c.tokens, UINT32_MAX, pages, 4, &match), "flags");
    BAD(f, rkv_cache_match(f->cache, NULL, &c.tokens, 0, NULL, 4, &match), "pages");
    BAD_INPUT_SIZES(f, rkv_namespace, space, p,
                    rkv_cache_match(f->cache, p, &c.tokens, 0, pages, 4, &match), "space");
    BAD_INPUT_SIZES(f, rkv_tokens, c.tokens, p,
                    rkv_cache_match(f->cache, NULL, p, 0, pages, 4, &match), "tokens");
    OUTPUT_SIZES_FROM(f, rkv_cache_match_result,
                      offsetof(rkv_cache_match_result, known_position_count), p,
                      rkv_cache_match(f->cache, NULL, &c.tokens, 0, pages, 4, p), "out_match");
    UNTOUCHED_STRUCT(match);
    UNTOUCHED(pages);
    GOOD_BIGGER_OUTPUT(rkv_cache_match_result, p,
                       rkv_cache_match(f->cache, NULL, &c.tokens, 0, pages, 4, p));
    GOOD_BIGGER_INPUT(rkv_namespace, space, p,
                      rkv_cache_match(f->cache, p, &c.tokens, 0, pages, 4, &match));
    CHECK_EQ(match.token_count, 4);
    BAD(f, rkv_cache_probe(NULL, NULL, &c.tokens, &token_count, &positions), "cache");
    BAD(f, rkv_cache_probe(f->cache, NULL, NULL, &token_count, &positions), "tokens");
    BAD(f, rkv_cache_probe(f->cache, NULL, &c.tokens, &token_count, NULL),
        "out_position_count");
    BAD_INPUT_SIZES(f, rkv_namespace, space, p,
                    rkv_cache_probe(f->cache, p, &c.tokens, &token_count, &positions),
                    "space");
    rkv_tokens tokens = text(c.ids, SIZE_MAX);
    BAD(f, rkv_cache_match(f->cache, NULL, &tokens, 0, NULL, 0, &match), "ids");
    BAD(f, rkv_cache_probe(f->cache, NULL, &tokens, &token_count, &positions), "ids");
    UNTOUCHED(token_count);
    UNTOUCHED(positions);
    close_caches(&c);
}

static void m01_insert(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_namespace space = new_namespace();
    uint32_t pages[4], published[4];
    rkv_cache_insert_result result;
    allocate(f, 4, pages);
    mark(published, sizeof published);
    mark(&result, sizeof result);
    result.struct_size = sizeof result;
    rkv_cache_insert_args good = insert_args(&c.tokens, pages, 4), args;
    good.space = &space;
    BAD(f, rkv_cache_insert(NULL, &good, published, &result), "cache");
    BAD(f, rkv_cache_insert(f->cache, NULL, published, &result), "args");
    BAD_INPUT_SIZES_FROM(f, rkv_cache_insert_args, offsetof(rkv_cache_insert_args, groups), good, p,
                         rkv_cache_insert(f->cache, p, published, &result), "args");
    OUTPUT_SIZES_FROM(f, rkv_cache_insert_result,
                      offsetof(rkv_cache_insert_result, claimed_group_page_count), p,
                      rkv_cache_insert(f->cache, &good, published, p), "out_result");
    args = good;
    args.flags = 2;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "flags");
    args = good;
    args.tokens = NULL;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "tokens");
    args = good;
    args.pages = NULL;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "pages");
    args.pages = pages;
    args.page_count = SIZE_MAX;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "pages");
    args.page_count = 3;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "pages");
    args = good;
    BAD_INPUT_SIZES(f, rkv_namespace, space, p,
                    (args.space = p,
                     rkv_cache_insert(f->cache, &args, published, &result)),
                    "space");
    /* places to go on from, without a node, or not where the node ends */
    args = good;
    args.from_token_index = 4;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "from_");
    args = good;
    args.from_page_index = 2;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "from_");
    const uint64_t places[][2] = {{0, 2}, {4, 0}, {4, 1}, {4, 3}, {2, 2}, {6, 2}, {8, 4},
                                  {4, UINT64_MAX}, {UINT64_MAX, 2}, {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        args = good;
        args.from_node = c.node;
        args.from_token_index = places[i][0];
        args.from_page_index = places[i][1];
        BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "from_");
    }
    const rkv_node_id strange[] = {c.stale, c.foreign, 1, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        args = good;
        args.from_node = strange[i];
        args.from_token_index = 4;
        args.from_page_index = 2;
        REFUSED(f, rkv_cache_insert(f->cache, &args, published, &result), RKV_STATUS_STALE_NODE,
                "node");
    }
    /* a lock to move: without the flag, without a node, on another one, and of none */
    args = good;
    args.lock = c.lock;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "lock");
    args.flags = RKV_INSERT_LOCK;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "lock");
    args.from_node = c.node;
    args.from_token_index = 4;
    args.from_page_index = 2;
    const rkv_lock_id no_lock[] = {c.node, c.lock + 1, 1, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        args.lock = no_lock[i];
        REFUSED(f, rkv_cache_insert(f->cache, &args, published, &result), RKV_STATUS_STALE_LOCK,
                "lock");
        REFUSED(f, rkv_cache_slide_lock(f->cache, no_lock[i], 0), RKV_STATUS_STALE_LOCK, "lock");
    }
    rkv_cache_match_result above = match_in(f, NULL, text(c.ids, 2), RKV_MATCH_LOCK);
    args.lock = above.lock;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "lock");
    CHECK_OK(rkv_cache_unlock(f->cache, above.lock));
    BAD(f, rkv_cache_slide_lock(NULL, c.lock, 0), "cache");
    /* ids that no text has */
    uint32_t ids[8];
    memcpy(ids, c.ids, sizeof ids);
    ids[7] = RKV_TEXT_ID_LIMIT;
    rkv_tokens tokens = text(ids, 8);
    args = good;
    args.tokens = &tokens;
    BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "ids");
    /* pages that aren't private: reserved, out of range, free, another prefix's, twice */
    uint32_t freed, wrong[4], other_ids[4] = {70, 71, 72, 73}, other[2];
    allocate(f, 2, other);
    insert_pages(f, NULL, text(other_ids, 4), other, 2);
    allocate(f, 1, &freed);
    CHECK_OK(rkv_page_table_free_pages(f->table, &freed, 1));
    const uint32_t bad[] = {0, 25, UINT32_MAX, freed, other[0], pages[2]};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(wrong, pages, sizeof wrong);
        wrong[3] = bad[i];
        args = good;
        args.pages = wrong;
        BAD(f, rkv_cache_insert(f->cache, &args, published, &result), "page");
    }
    UNTOUCHED(published);
    UNTOUCHED_STRUCT(result);
    GOOD_BIGGER_INPUT(rkv_cache_insert_args, good, p, rkv_cache_insert(f->cache, p, NULL, &result));
    CHECK_EQ(result.claimed_page_count, 2);
    GOOD_BIGGER_OUTPUT(rkv_cache_insert_result, p, rkv_cache_insert(f->cache, &good, NULL, p));
    close_caches(&c);
}

/* A live sequence's pages are published by the sequence alone. */
static void m01_insert_of_a_sequences_pages(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    uint32_t row[4], other_ids[4] = {70, 71, 72, 73};
    rkv_sequence_info state = query(f, c.sequence);
    CHECK_EQ(row_of(f, state.slot, row, 4), 4);
    CHECK_EQ(state.shared_page_count, 2);
    rkv_tokens tokens = text(other_ids, 4);
    rkv_cache_insert_args args = insert_args(&tokens, row + 2, 2);
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    BAD(f, rkv_cache_insert(f->cache, &args, NULL, &result), "page");
    check_sane(f);
    publish(f, c.sequence, 8);
    release(f, c.sequence);
    CHECK_EQ(probe(f, c.tokens), 8);
    close_caches(&c);
}

static void m01_nodes(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_node_info info;
    rkv_lock_id lock;
    rkv_node_id children[2];
    uint32_t pages[4];
    size_t count;
    mark(&info, sizeof info);
    mark(children, sizeof children);
    mark(pages, sizeof pages);
    mark(&count, sizeof count);
    mark(&lock, sizeof lock);
    info.struct_size = sizeof info;
    const rkv_node_id strange[] = {0, c.stale, c.foreign, 1, c.node + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        rkv_node_id node = strange[i];
        REFUSED(f, rkv_cache_lock(f->cache, node, &lock), RKV_STATUS_STALE_NODE, "node");
        REFUSED(f, rkv_cache_unlock(f->cache, node), RKV_STATUS_STALE_LOCK, "lock");
        REFUSED(f, rkv_node_read_info(f->cache, node, &info), RKV_STATUS_STALE_NODE, "node");
        REFUSED(f, rkv_node_read_pages(f->cache, node, pages, 4, &count), RKV_STATUS_STALE_NODE,
                "node");
        REFUSED(f, rkv_node_read_children(f->cache, node, children, 2, &count),
                RKV_STATUS_STALE_NODE, "node");
    }
    BAD(f, rkv_cache_lock(NULL, c.node, &lock), "cache");
    BAD(f, rkv_cache_lock(f->cache, c.node, NULL), "out_lock");
    BAD(f, rkv_cache_unlock(NULL, c.lock), "cache");
    BAD(f, rkv_node_read_info(NULL, c.node, &info), "cache");
    OUTPUT_SIZES(f, rkv_node_info, p, rkv_node_read_info(f->cache, c.node, p), "out_info");
    BAD(f, rkv_node_read_pages(NULL, c.node, pages, 4, &count), "cache");
    BAD(f, rkv_node_read_pages(f->cache, c.node, NULL, 4, &count), "pages");
    BAD(f, rkv_node_read_pages(f->cache, c.node, pages, 4, NULL), "out_count");
    BAD(f, rkv_node_read_children(NULL, c.node, children, 2, &count), "cache");
    BAD(f, rkv_node_read_children(f->cache, root_of(f, c.node), NULL, 2, &count), "children");
    BAD(f, rkv_node_read_children(f->cache, c.node, children, 2, NULL), "out_count");
    UNTOUCHED_STRUCT(info);
    UNTOUCHED(lock);
    UNTOUCHED(children);
    UNTOUCHED(pages);
    UNTOUCHED(count);
    GOOD_BIGGER_OUTPUT(rkv_node_info, p, rkv_node_read_info(f->cache, c.node, p));
    close_caches(&c);
}

static void m01_evict_and_read(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    uint32_t pages[4];
    size_t count;
    char buffer[16];
    mark(pages, sizeof pages);
    mark(&count, sizeof count);
    mark(buffer, sizeof buffer);
    BAD(f, rkv_cache_evict(NULL, 1, pages, 4, &count), "cache");
    BAD(f, rkv_cache_evict(f->cache, 1, NULL, 4, &count), "pages");
    BAD(f, rkv_cache_evict(f->cache, 1, pages, 4, NULL), "out_count");
    bool contains = true;
    BAD(f, rkv_cache_contains_page(NULL, 1, &contains), "cache");
    BAD(f, rkv_cache_contains_page(f->cache, 1, NULL), "out_contains");
    CHECK(contains);
    rkv_cache_stats stats;
    mark(&stats, sizeof stats);
    stats.struct_size = sizeof stats;
    BAD(f, rkv_cache_read_stats(NULL, &stats), "cache");
    UNTOUCHED_STRUCT(stats);
    OUTPUT_SIZES_FROM(f, rkv_cache_stats, offsetof(rkv_cache_stats, prefix_count), p,
                      rkv_cache_read_stats(f->cache, p), "out_stats");
    GOOD_BIGGER_OUTPUT(rkv_cache_stats, p, rkv_cache_read_stats(f->cache, p));
    BAD(f, rkv_cache_check(NULL), "cache");
    BAD(f, rkv_cache_dump(NULL, RKV_DUMP_JSON, buffer, sizeof buffer, &count), "cache");
    BAD(f, rkv_cache_dump(f->cache, RKV_DUMP_JSON, NULL, 10, &count), "buffer");
    BAD(f, rkv_cache_dump(f->cache, RKV_DUMP_JSON, buffer, sizeof buffer, NULL), "out_bytes");
    BAD(f, rkv_cache_dump(f->cache, 2, buffer, sizeof buffer, &count), "format");
    BAD(f, rkv_cache_dump(f->cache, UINT32_MAX, buffer, sizeof buffer, &count), "format");
    UNTOUCHED(pages);
    UNTOUCHED(count);
    UNTOUCHED(buffer);
    close_caches(&c);
}

/* A place to go on from that is beyond all tokens is none, also where an image lies before it. */
static void m01_places_behind_images(void) {
    fixture f = new_fixture(2, 24);
    uint32_t ids[5], pages[6];
    count_up(ids, 5, 1);
    const rkv_token_item picture = image(4, 1, 8);
    rkv_tokens tokens = with_items(ids, 5, &picture, 1);
    allocate(&f, 6, pages);
    rkv_cache_insert_args args = insert_args(&tokens, pages, 6);
    rkv_cache_insert_result result;
    args.from_node = insert(&f, text(ids, 4)).node;
    args.from_page_index = 2;
    mark(&result, sizeof result);
    result.struct_size = sizeof result;
    for (uint64_t wrong = UINT64_MAX - 2; wrong != 0; wrong++) {
        args.from_token_index = wrong;
        CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("from_token_index"));
    }
    UNTOUCHED_STRUCT(result);
    args.from_token_index = 4;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK_EQ(result.claimed_page_count, 4);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages, 2)); /* those before were not read */
    end_fixture(&f);
}

int main(void) {
    RUN(m01_cache_create);
    RUN_BOTH(m01_swapped_handles);
    RUN_BOTH(m01_match_and_probe);
    RUN_BOTH(m01_insert);
    RUN_BOTH(m01_places_behind_images);
    RUN_BOTH(m01_insert_of_a_sequences_pages);
    RUN_BOTH(m01_nodes);
    RUN_BOTH(m01_evict_and_read);
    return check_result();
}
