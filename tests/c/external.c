/* J07: a page table whose pages an allocator of the engine's own hands out. The cache adopts the
 * page numbers that it is told, and tells each one that it gives up. */
#include "misuse.h"
#include "runner_fixture.h"

enum { PAGE_SIZE_HERE = 4, ROOM = 64 };

static rkv_page_table *external_table(uint32_t page_size, uint32_t page_count) {
    rkv_page_table_config config;
    rkv_page_table *table = NULL;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.page_count = page_count + 1;
    config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL;
    if (!CHECK_OK(rkv_page_table_create(&config, &table))) {
        exit(1);
    }
    return table;
}

static rkv_cache *cache_on(rkv_page_table *table, uint64_t journal_bytes) {
    rkv_cache_config config;
    rkv_cache *cache = NULL;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.index = fixture_index;
    config.journal_bytes = journal_bytes;
    if (!CHECK_OK(rkv_cache_create(table, &config, &cache))) {
        exit(1);
    }
    return cache;
}

static fixture external(uint32_t page_count) {
    fixture f = {external_table(PAGE_SIZE_HERE, page_count), NULL, PAGE_SIZE_HERE};
    f.cache = cache_on(f.table, 0);
    return f;
}

/* `outside` pages are the engine's, the others the cache's; and each is one or the other. */
static void check_outside(const fixture *f, uint64_t outside) {
    rkv_page_table_stats stats = table_stats(f);
    CHECK_EQ(stats.outside_page_count, outside);
    CHECK_EQ(stats.cached_page_count, stats.total_page_count - outside);
    CHECK_EQ(stats.free_page_count, 0);
    CHECK_EQ(stats.private_page_count, 0);
    check_sane(f);
}

/* Inserts a prefix into `published`, which has room for its pages. */
static rkv_cache_insert_result adopt(const fixture *f, rkv_tokens tokens, const uint32_t *pages,
                                     size_t page_count, uint32_t *published) {
    rkv_cache_insert_args args = insert_args(&tokens, pages, page_count);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f->cache, &args, published, &result));
    return result;
}

static bool is_cached(const fixture *f, uint32_t page) {
    bool contains = false;
    CHECK_OK(rkv_cache_contains_page(f->cache, page, &contains));
    return contains;
}

static rkv_cache_match_result lock_match(const fixture *f, rkv_tokens tokens, uint32_t *pages) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, RKV_MATCH_LOCK, pages, ROOM, &match));
    return match;
}

static void unlock_match(const fixture *f, const rkv_cache_match_result *match) {
    CHECK_OK(rkv_cache_unlock(f->cache, match->lock));
}

static void j07_a_page_is_outside_or_cached(void) {
    fixture f = external(10);
    uint32_t ids[11], published[3], found[ROOM];
    const uint32_t pages[3] = {7, 2, 9};
    count_up(ids, 11, 1);
    rkv_page_table_stats stats = table_stats(&f);
    CHECK_EQ(stats.total_page_count, 10);
    CHECK_EQ(stats.slot_count, 0);
    CHECK_EQ(stats.free_slot_count, 0);
    check_outside(&f, 10);

    /* two whole pages; the third is begun, and stays the engine's */
    rkv_cache_insert_result result = adopt(&f, text(ids, 11), pages, 3, published);
    CHECK_EQ(result.claimed_page_count, 2);
    CHECK_EQ(result.duplicate_page_count, 0);
    CHECK(memcmp(published, pages, sizeof pages) == 0);
    CHECK(is_cached(&f, 7) && is_cached(&f, 2) && !is_cached(&f, 9));
    check_outside(&f, 8);

    rkv_tokens asked = text(ids, 11);
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f.cache, NULL, &asked, 0, found, ROOM, &match));
    CHECK_EQ(match.page_count, 2);
    CHECK(found[0] == 7 && found[1] == 2);
    CHECK_EQ(probe(&f, text(ids, 11)), 8);
    CHECK_EQ(reclaimable_pages(&f), 2);
    end_fixture(&f);
}

/* Two requests computed one prompt at the same time. */
static void j07_duplicates_are_told_one_by_one(void) {
    fixture f = external(20);
    uint32_t ids[20], published[5];
    const uint32_t first[3] = {1, 2, 3}, second[5] = {11, 12, 3, 14, 15};
    const uint32_t mixed[5] = {1, 16, 3, 14, 15};
    count_up(ids, 20, 1);
    adopt(&f, text(ids, 12), first, 3, published);
    rkv_cache_insert_result result = adopt(&f, text(ids, 20), second, 5, published);
    CHECK_EQ(result.claimed_page_count, 2);
    CHECK_EQ(result.duplicate_page_count, 2);
    const uint32_t want[5] = {1, 2, 3, 14, 15};
    CHECK(memcmp(published, want, sizeof want) == 0);
    /* what is not in there is the engine's: it may be handed out at once, for another prompt */
    CHECK(!is_cached(&f, 11) && !is_cached(&f, 12));
    check_outside(&f, 15);
    uint32_t other[8];
    count_up(other, 8, 500);
    CHECK_EQ(adopt(&f, text(other, 8), second, 2, published).claimed_page_count, 2);
    check_outside(&f, 13);
    /* all of it once more, with one page of its own: nothing is claimed */
    result = adopt(&f, text(ids, 20), mixed, 5, published);
    CHECK_EQ(result.claimed_page_count, 0);
    CHECK_EQ(result.duplicate_page_count, 1);
    CHECK(memcmp(published, want, sizeof want) == 0);
    check_outside(&f, 13);
    end_fixture(&f);
}

/* An engine goes on from what it matched and locked. */
static void j07_an_insert_goes_on_from_a_match(void) {
    fixture f = external(20);
    uint32_t ids[16], pages[ROOM], published[4];
    const uint32_t first[2] = {5, 6};
    count_up(ids, 16, 1);
    adopt(&f, text(ids, 8), first, 2, published);
    rkv_cache_match_result match = lock_match(&f, text(ids, 16), pages);
    CHECK_EQ(match.page_count, 2);
    pages[2] = 17;
    pages[3] = 18;
    rkv_tokens all = text(ids, 16);
    rkv_cache_insert_args args = insert_args(&all, pages, 4);
    args.from_node = match.node;
    args.from_token_index = match.token_count;
    args.from_page_index = match.page_count;
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    CHECK_EQ(result.claimed_page_count, 2);
    CHECK_EQ(result.duplicate_page_count, 0);
    const uint32_t want[4] = {5, 6, 17, 18};
    CHECK(memcmp(published, want, sizeof want) == 0);
    check_outside(&f, 16);
    /* the lock still protects what it did */
    size_t count = 0;
    CHECK_OK(rkv_cache_evict(f.cache, ROOM, pages, ROOM, &count));
    CHECK_EQ(count, 2);
    CHECK(pages[0] == 18 && pages[1] == 17);
    check_outside(&f, 18);
    unlock_match(&f, &match);
    end_fixture(&f);
}

/* A page that an eviction gives up is named: what there is no room for stays. */
static void j07_evicted_pages_are_reported(void) {
    fixture f = external(20);
    uint32_t ids[16], other[8], pages[4] = {4, 3, 2, 1}, more[2] = {10, 9}, published[4];
    uint32_t evicted[ROOM];
    size_t count = 77;
    count_up(ids, 16, 1);
    count_up(other, 8, 500);
    adopt(&f, text(ids, 16), pages, 4, published);
    adopt(&f, text(other, 8), more, 2, published);
    mark(evicted, sizeof evicted);
    BAD(&f, rkv_cache_evict(f.cache, 1, NULL, 0, &count), "pages");
    BAD(&f, rkv_cache_evict(f.cache, SIZE_MAX, NULL, 0, &count), "pages");
    BAD(&f, rkv_cache_evict(f.cache, 1, NULL, 4, &count), "pages");
    CHECK_EQ(count, 77);
    check_outside(&f, 14);
    /* none is asked for, or fits */
    CHECK_OK(rkv_cache_evict(f.cache, 0, NULL, 0, &count));
    CHECK_EQ(count, 0);
    CHECK_OK(rkv_cache_evict(f.cache, 5, evicted, 0, &count));
    CHECK_EQ(count, 0);
    UNTOUCHED(evicted);
    /* room for two */
    CHECK_OK(rkv_cache_evict(f.cache, SIZE_MAX, evicted, 2, &count));
    CHECK_EQ(count, 2);
    CHECK(evicted[0] == 1 && evicted[1] == 2);
    CHECK(!unmarked(evicted, 8, sizeof evicted));
    CHECK(!is_cached(&f, 1) && !is_cached(&f, 2) && is_cached(&f, 3));
    check_outside(&f, 16);
    /* all that is left, but for what is locked */
    rkv_cache_match_result match = lock_match(&f, text(other, 8), published);
    CHECK_EQ(reclaimable_pages(&f), 2);
    CHECK_OK(rkv_cache_evict(f.cache, ROOM, evicted, ROOM, &count));
    CHECK_EQ(count, 2);
    CHECK(evicted[0] == 3 && evicted[1] == 4);
    check_outside(&f, 18);
    unlock_match(&f, &match);
    CHECK_EQ(reclaimable_pages(&f), 2);
    /* numbers come back with other tokens */
    CHECK_EQ(adopt(&f, text(ids, 16), pages, 4, published).claimed_page_count, 4);
    check_outside(&f, 14);
    end_fixture(&f);
}

static void j07_pages_that_are_not_outside_are_refused(void) {
    fixture f = external(12);
    uint32_t ids[16], other[16], published[4];
    const uint32_t first[3] = {1, 2, 3};
    rkv_cache_insert_result result;
    count_up(ids, 16, 1);
    count_up(other, 16, 500);
    adopt(&f, text(ids, 12), first, 3, published);
    mark(published, sizeof published);
    mark(&result, sizeof result);
    result.struct_size = sizeof result;

    /* to be claimed: reserved, out of range, the cache's, given twice */
    const uint32_t claimed[][4] = {{0, 5, 6, 7},  {5, 6, 7, 13}, {5, UINT32_MAX, 6, 7},
                                   {5, 6, 7, 2},  {1, 5, 6, 7},  {5, 6, 7, 5},
                                   {5, 5, 6, 7}};
    rkv_tokens tokens = text(other, 16);
    for (size_t i = 0; i < sizeof claimed / sizeof claimed[0]; i++) {
        rkv_cache_insert_args args = insert_args(&tokens, claimed[i], 4);
        BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "args.pages[");
    }
    /* duplicates: of what is told to be outside again, each is outside, and given once */
    const uint32_t duplicate[][4] = {{0, 2, 3, 7},  {5, 2, 3, 5},  {5, 5, 3, 7}, {2, 2, 3, 7},
                                     {1, 2, 13, 7}, {1, 3, 3, 7},  {3, 2, 1, 7}, {1, 2, 7, 7},
                                     {1, 2, 3, 3},  {5, 6, 7, 6},  {UINT32_MAX, 2, 3, 7}};
    tokens = text(ids, 16);
    for (size_t i = 0; i < sizeof duplicate / sizeof duplicate[0]; i++) {
        rkv_cache_insert_args args = insert_args(&tokens, duplicate[i], 4);
        BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "args.pages[");
        check_outside(&f, 9);
    }
    /* whoever isn't told which pages the cache has would lose them */
    const uint32_t good[4] = {5, 6, 3, 7};
    rkv_cache_insert_args args = insert_args(&tokens, good, 4);
    BAD(&f, rkv_cache_insert(f.cache, &args, NULL, &result), "published_pages");
    args = insert_args(&tokens, good, 3);
    BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "page_count");
    UNTOUCHED(published);
    UNTOUCHED_STRUCT(result);
    check_outside(&f, 9);
    /* and what is good is taken, also after all that */
    CHECK_EQ(adopt(&f, text(ids, 16), good, 4, published).claimed_page_count, 1);
    CHECK_EQ(adopt(&f, text(other, 8), good, 2, published).claimed_page_count, 2);
    CHECK_EQ(adopt(&f, text(ids, 3), NULL, 0, NULL).claimed_page_count, 0);
    check_outside(&f, 6);
    end_fixture(&f);
}

#define UNSUPPORTED(call) REFUSED(&f, call, RKV_STATUS_UNSUPPORTED, "external")

static void j07_what_takes_pages_or_rows_is_unsupported(void) {
    fixture f = external(20);
    uint32_t ids[16], pages[4] = {1, 2, 3, 4}, published[4], slot = 77;
    count_up(ids, 16, 1);
    adopt(&f, text(ids, 16), pages, 4, published);
    bool can = true;
    size_t count = 77;
    int64_t mapping = 77;
    const uint64_t position = 0;
    int32_t indptr[2], last[1];
    rkv_page_table_batch_row row = {0, 4};
    rkv_page_table_batch_arrays arrays = {.struct_size = sizeof arrays, .indptr = indptr,
                                          .last_page_len = last};
    const uint32_t outside = 9;
    UNSUPPORTED(rkv_page_table_allocate_pages(f.table, 1, pages));
    UNSUPPORTED(rkv_page_table_allocate_pages(f.table, 0, NULL));
    UNSUPPORTED(rkv_page_table_free_pages(f.table, &outside, 1));
    UNSUPPORTED(rkv_page_table_free_pages(f.table, pages, 1));
    UNSUPPORTED(rkv_page_table_allocate_slot(f.table, &slot));
    UNSUPPORTED(rkv_page_table_free_slot(f.table, 0));
    UNSUPPORTED(rkv_page_table_map(f.table, 0, 0, &outside, 1));
    UNSUPPORTED(rkv_page_table_reserve(f.table, 0, 4));
    UNSUPPORTED(rkv_page_table_can_reserve(f.table, RKV_NO_SLOT, 4, &can));
    UNSUPPORTED(rkv_page_table_can_reserve(f.table, RKV_NO_SLOT, SIZE_MAX, &can));
    UNSUPPORTED(rkv_page_table_can_reserve(f.table, 0, 4, &can));
    UNSUPPORTED(rkv_page_table_row_capacity(f.table, 0, &count));
    UNSUPPORTED(rkv_page_table_read_row(f.table, 0, 0, NULL, 0, &count));
    UNSUPPORTED(rkv_page_table_read_slot_mapping(f.table, 0, &position, 1, &mapping));
    UNSUPPORTED(rkv_page_table_read_batch(f.table, &row, 1, sizeof row, &arrays, &count));
    rkv_plan *plan = NULL;
    rkv_runner *runner = NULL;
    rkv_runner_config config = small_runner();
    UNSUPPORTED(rkv_plan_create(f.table, &plan));
    UNSUPPORTED(rkv_runner_create(f.table, &config, &runner));

    rkv_tokens tokens = text(ids, 16);
    rkv_sequence_info state = new_state();
    rkv_sequence_continue_args go_on = continue_args(1, &tokens);
    rkv_sequence_publish_result result = {.struct_size = sizeof result};
    rkv_sequence_fork_child children[2];
    bool retained = true;
    uint32_t long_ids[200];
    count_up(long_ids, 200, 1);
    UNSUPPORTED(try_begin(&f, tokens, &state));
    UNSUPPORTED(try_begin(&f, text(long_ids, 200), &state));
    UNSUPPORTED(rkv_sequence_append(f.cache, 1, &tokens));
    UNSUPPORTED(rkv_sequence_continue(f.cache, &go_on, &state));
    go_on.all_tokens = &tokens;
    UNSUPPORTED(rkv_sequence_continue(f.cache, &go_on, &state));
    UNSUPPORTED(try_fork(&f, 1, 2, children));
    UNSUPPORTED(rkv_sequence_read_info(f.cache, 1, &state));
    UNSUPPORTED(rkv_sequence_read_copies(f.cache, 1, NULL, 0, 0, &count));
    UNSUPPORTED(rkv_sequence_confirm_copies(f.cache, 1));
    UNSUPPORTED(rkv_sequence_truncate(f.cache, 1, 1));
    UNSUPPORTED(rkv_sequence_publish(f.cache, 1, 4, &result));
    UNSUPPORTED(rkv_sequence_release(f.cache, 1));
    UNSUPPORTED(rkv_sequence_retain(f.cache, 1, &retained));
    UNSUPPORTED(rkv_sequence_drop(f.cache, 1));
    CHECK(can && retained && slot == 77 && count == 77 && mapping == 77);
    CHECK(plan == NULL && runner == NULL && state.sequence == 0);
    /* lists of what there is none of are empty */
    CHECK_OK(rkv_cache_read_retained(f.cache, NULL, 0, &count));
    CHECK_EQ(count, 0);
    CHECK_OK(rkv_cache_drop_retained(f.cache, SIZE_MAX, &count));
    CHECK_EQ(count, 0);
    check_outside(&f, 16);
    end_fixture(&f);
}

static void j07_any_number_of_slots_is_fine(void) {
    const uint32_t counts[] = {0, 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        rkv_page_table_config config;
        rkv_page_table *table = NULL;
        CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
        config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL;
        config.page_size = 1;
        config.page_count = 1;
        config.slot_count = counts[i];
        config.row_page_limit = counts[i];
        CHECK_STATUS(rkv_page_table_create(&config, &table), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("page_count"));
        /* the least: one page of one position */
        config.page_count = 2;
        CHECK_OK(rkv_page_table_create(&config, &table));
        fixture f = {table, cache_on(table, 0), 1};
        uint32_t ids[2] = {1, 2}, page = 1, published;
        check_outside(&f, 1);
        CHECK_EQ(adopt(&f, text(ids, 1), &page, 1, &published).claimed_page_count, 1);
        check_outside(&f, 0);
        CHECK_EQ(probe(&f, text(ids, 2)), 1);
        size_t count = 0;
        CHECK_OK(rkv_cache_evict(f.cache, 1, &page, 1, &count));
        CHECK(count == 1 && page == 1);
        check_outside(&f, 1);
        end_fixture(&f);
    }
}

/* Pages that leave are in the journal, also those that leave with the cache. */
static void j07_the_journal_tells_what_is_given_back(void) {
    static rkv_journal_record records[16];
    static uint32_t told[64], tokens[256];
    static rkv_journal_item items[4];
    fixture f = {external_table(PAGE_SIZE_HERE, 20), NULL, PAGE_SIZE_HERE};
    f.cache = cache_on(f.table, 1 << 16);
    uint32_t ids[16], pages[4] = {8, 6, 4, 2}, twins[4] = {7, 5, 3, 1}, published[4], evicted[1];
    size_t count = 0;
    count_up(ids, 16, 1);
    adopt(&f, text(ids, 16), pages, 4, published);
    adopt(&f, text(ids, 16), twins, 4, published); /* duplicates were never the cache's */
    CHECK_OK(rkv_cache_evict(f.cache, 1, evicted, 1, &count));
    rkv_cache_destroy(f.cache);

    rkv_journal_buffers room;
    memset(&room, 0, sizeof room);
    room.struct_size = sizeof room;
    room.records = records;
    room.record_size = sizeof records[0];
    room.record_capacity = 16;
    room.pages = told;
    room.page_capacity = 64;
    room.tokens = tokens;
    room.token_capacity = 256;
    room.items = items;
    room.item_size = sizeof items[0];
    room.item_capacity = 4;
    rkv_cache_read_journal_result read;
    read.struct_size = sizeof read;
    CHECK_OK(rkv_page_table_read_journal(f.table, 0, &room, &read));
    CHECK_EQ(read.record_count, 3);
    CHECK_EQ(records[0].kind, RKV_JOURNAL_STORED);
    CHECK(memcmp(told, pages, sizeof pages) == 0);
    CHECK_EQ(records[1].kind, RKV_JOURNAL_REMOVED);
    CHECK_EQ(records[1].reason, RKV_REASON_CALLER);
    CHECK_EQ(told[records[1].page_index], 2);
    CHECK_EQ(records[2].kind, RKV_JOURNAL_REMOVED);
    CHECK_EQ(records[2].reason, RKV_REASON_DESTROYED);
    CHECK_EQ(records[2].page_count, 3);
    const uint32_t rest[3] = {4, 6, 8}; /* by number */
    CHECK(memcmp(told + records[2].page_index, rest, sizeof rest) == 0);

    /* the next cache begins with all of them outside */
    f.cache = cache_on(f.table, 0);
    check_outside(&f, 20);
    CHECK_EQ(adopt(&f, text(ids, 16), twins, 4, published).claimed_page_count, 4);
    check_outside(&f, 16);
    end_fixture(&f);
}

/* A part of a page is reused by a copy, which is the engine's to make, into a page of its own. */
static void j07_part_of_a_page_is_found(void) {
    fixture f = external(8);
    uint32_t ids[8], found[ROOM], published[2];
    const uint32_t pages[2] = {3, 5};
    count_up(ids, 8, 1);
    adopt(&f, text(ids, 8), pages, 2, published);
    uint32_t other[8] = {1, 2, 3, 4, 5, 6, 99, 98};
    rkv_cache_match_result match = lock_match(&f, text(other, 8), found);
    CHECK_EQ(match.page_count, 1);
    CHECK_EQ(found[0], 3);
    if (fixture_index == RKV_INDEX_RADIX) {
        CHECK_EQ(match.partial_position_count, 2);
        CHECK_EQ(match.partial_page, 5);
        CHECK_EQ(reclaimable_pages(&f), 0);
    }
    const uint32_t own[2] = {3, 7};
    CHECK_EQ(adopt(&f, text(other, 8), own, 2, published).claimed_page_count, 1);
    CHECK(published[0] == 3 && published[1] == 7);
    unlock_match(&f, &match);
    check_outside(&f, 5);
    end_fixture(&f);
}

/* Images come and go with their pages, and a refused insert leaves none behind. */
static void j07_images_and_namespaces(void) {
    fixture f = external(12);
    uint32_t ids[8], published[4], evicted[ROOM];
    const uint32_t pages[4] = {1, 2, 3, 4}, more[4] = {5, 6, 7, 8};
    const uint32_t twice[4] = {9, 6, 10, 9}, held[4] = {9, 10, 11, 2};
    rkv_token_item shown = image(2, 1, 9); /* 2 + 9 + 5 positions: four pages */
    rkv_namespace space = new_namespace();
    rkv_cache_insert_result result;
    size_t count = 0;
    count_up(ids, 8, 1);
    space.flags = RKV_NAMESPACE_LORA;
    space.lora_id = 3;
    result.struct_size = sizeof result;
    rkv_tokens tokens = with_items(ids, 8, &shown, 1);
    CHECK_EQ(adopt(&f, tokens, pages, 4, published).claimed_page_count, 4);
    rkv_cache_insert_args args = insert_args(&tokens, more, 4);
    args.space = &space;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    CHECK_EQ(result.claimed_page_count, 4);
    CHECK_EQ(cache_stats(&f).image_count, 1);
    check_outside(&f, 4);
    rkv_token_item other = image(2, 2, 9);
    tokens = with_items(ids, 8, &other, 1);
    args = insert_args(&tokens, twice, 4);
    BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "args.pages[");
    args = insert_args(&tokens, held, 4);
    BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "args.pages[");
    space.lora_id = 4;
    args.space = &space;
    BAD(&f, rkv_cache_insert(f.cache, &args, published, &result), "args.pages[");
    CHECK_OK(rkv_cache_evict(f.cache, ROOM, evicted, ROOM, &count));
    CHECK_EQ(count, 8);
    CHECK_EQ(cache_stats(&f).image_count, 0);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    check_outside(&f, 12);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(j07_a_page_is_outside_or_cached);
    RUN_BOTH(j07_duplicates_are_told_one_by_one);
    RUN_BOTH(j07_an_insert_goes_on_from_a_match);
    RUN_BOTH(j07_evicted_pages_are_reported);
    RUN_BOTH(j07_pages_that_are_not_outside_are_refused);
    RUN_BOTH(j07_what_takes_pages_or_rows_is_unsupported);
    RUN_BOTH(j07_any_number_of_slots_is_fine);
    RUN_BOTH(j07_the_journal_tells_what_is_given_back);
    RUN_BOTH(j07_part_of_a_page_is_found);
    RUN_BOTH(j07_images_and_namespaces);
    return check_result();
}
