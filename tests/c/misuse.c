/* M01: every way to call the functions on tokens, bins and page tables wrongly. */
#include "misuse.h"

static void m01_bins_and_digests(void) {
    fixture f = new_fixture(2, 8);
    uint8_t digest[16];
    mark(digest, sizeof digest);
    BAD(&f, rkv_coord_bin(0.5, NULL), "out_bin");
    BAD(&f, rkv_size_bin(0.5, NULL), "out_bin");
    BAD(&f, rkv_coord_value(5, NULL), "out_value");
    BAD(&f, rkv_size_value(5, NULL), "out_value");
    BAD(&f, rkv_image_digest(NULL, 3, digest), "bytes");
    BAD(&f, rkv_image_digest("abc", SIZE_MAX, digest), "byte");
    UNTOUCHED(digest);
    BAD(&f, rkv_image_digest("abc", 3, NULL), "out_digest");
    end_fixture(&f);
}

/* A list of one item that is wrong in some way. */
static rkv_tokens wrong_item(rkv_token_item *item, uint32_t kind, uint32_t position_count,
                             uint32_t bin, uint32_t height_bin, uint8_t digest) {
    static const uint32_t ids[2] = {1, 2};
    memset(item, 0, sizeof *item);
    item->kind = kind;
    item->position_count = position_count;
    item->bin = bin;
    item->height_bin = height_bin;
    item->digest[7] = digest;
    return with_items(ids, 2, item, 1);
}

static void m01_token_items(void) {
    fixture f = new_fixture(2, 8);
    const struct {
        uint32_t kind, position_count, bin, height_bin;
        uint8_t digest;
    } bad[] = {
        {0, 1, 0, 0, 0},
        {4, 1, 0, 0, 0},
        {UINT32_MAX, 1, 0, 0, 0},
        {RKV_TOKEN_COORD, 0, RKV_BIN_COUNT, 0, 0},
        {RKV_TOKEN_COORD, 0, UINT32_MAX, 0, 0},
        {RKV_TOKEN_COORD, 0, 5, 5, 0},
        {RKV_TOKEN_COORD, 2, 5, 0, 0},
        {RKV_TOKEN_COORD, 0, 5, 0, 1},
        {RKV_TOKEN_SIZE, 0, RKV_BIN_COUNT, 0, 0},
        {RKV_TOKEN_SIZE, 0, 0, RKV_BIN_COUNT, 0},
        {RKV_TOKEN_SIZE, 2, 5, 5, 0},
        {RKV_TOKEN_SIZE, 0, 5, 5, 1},
        {RKV_TOKEN_IMAGE, 0, 0, 0, 1},
        {RKV_TOKEN_IMAGE, 5, 1, 0, 1},
        {RKV_TOKEN_IMAGE, 5, 0, 1, 1},
    };
    size_t count, again;
    mark(&count, sizeof count);
    mark(&again, sizeof again);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rkv_token_item item;
        rkv_tokens tokens = wrong_item(&item, bad[i].kind, bad[i].position_count, bad[i].bin,
                                       bad[i].height_bin, bad[i].digest);
        rkv_cache_match_result match = new_match();
        BAD(&f, rkv_tokens_position_count(&tokens, &count), "items");
        BAD(&f, rkv_tokens_regions(&tokens, NULL, 0, &count), "items");
        BAD(&f, rkv_cache_probe(f.cache, NULL, &tokens, &again, &count), "items");
        BAD(&f, rkv_cache_match(f.cache, NULL, &tokens, 0, NULL, 0, &match), "items");
    }
    /* the order and the range of the indices */
    const uint32_t ids[3] = {1, 2, 3};
    const uint64_t orders[4][2] = {{1, 1}, {2, 1}, {1, 3}, {1, UINT64_MAX}};
    for (size_t i = 0; i < 4; i++) {
        rkv_token_item items[2] = {image(orders[i][0], 1, 2), image(orders[i][1], 2, 2)};
        rkv_tokens tokens = with_items(ids, 3, items, 2);
        BAD(&f, rkv_tokens_position_count(&tokens, &count), "items");
        BAD(&f, rkv_tokens_regions(&tokens, NULL, 0, &count), "items");
        BAD(&f, rkv_cache_probe(f.cache, NULL, &tokens, &again, &count), "items");
    }
    UNTOUCHED(count);
    UNTOUCHED(again);
    end_fixture(&f);
}

static void m01_token_lists(void) {
    fixture f = new_fixture(2, 8);
    const uint32_t ids[3] = {1, 2, 3};
    rkv_token_item item = image(1, 1, 2);
    rkv_tokens good = with_items(ids, 3, &item, 1), tokens;
    rkv_region region;
    size_t count;
    mark(&count, sizeof count);
    mark(&region, sizeof region);
    BAD(&f, rkv_tokens_position_count(NULL, &count), "tokens");
    BAD(&f, rkv_tokens_regions(NULL, &region, 1, &count), "tokens");
    BAD(&f, rkv_tokens_regions(&good, NULL, 1, &count), "regions");
    BAD_INPUT_SIZES(&f, rkv_tokens, good, p, rkv_tokens_position_count(p, &count), "tokens");
    BAD_INPUT_SIZES(&f, rkv_tokens, good, p, rkv_tokens_regions(p, &region, 1, &count), "tokens");
    tokens = good;
    tokens.item_size = sizeof(rkv_token_item) - 8;
    BAD(&f, rkv_tokens_position_count(&tokens, &count), "item_size");
    tokens = text(NULL, 3);
    BAD(&f, rkv_tokens_position_count(&tokens, &count), "ids");
    tokens = text(ids, SIZE_MAX);
    BAD(&f, rkv_tokens_position_count(&tokens, &count), "ids");
    tokens = with_items(ids, 3, NULL, 1);
    BAD(&f, rkv_tokens_position_count(&tokens, &count), "items");
    tokens = with_items(ids, 3, &item, SIZE_MAX);
    BAD(&f, rkv_tokens_position_count(&tokens, &count), "items");
    UNTOUCHED(count);
    UNTOUCHED(region);
    BAD(&f, rkv_tokens_position_count(&good, NULL), "out_position_count");
    BAD(&f, rkv_tokens_regions(&good, &region, 1, NULL), "out_count");
    UNTOUCHED(region);
    GOOD_BIGGER_INPUT(rkv_tokens, good, p, rkv_tokens_position_count(p, &count));
    end_fixture(&f);
}

static void m01_tokens_build(void) {
    fixture f = new_fixture(2, 8);
    const uint32_t prompt_ids[3] = {1, 2, 3};
    rkv_token_item place = image(3, 1, 2), item;
    rkv_tokens good = with_items(prompt_ids, 3, &place, 1), prompt;
    uint32_t ids[4];
    size_t count;
    mark(ids, sizeof ids);
    mark(&item, sizeof item);
    mark(&count, sizeof count);
    BAD(&f, rkv_tokens_build(NULL, ids, 4, &item, &count), "tokens");
    BAD_INPUT_SIZES(&f, rkv_tokens, good, p, rkv_tokens_build(p, ids, 4, &item, &count),
                    "tokens");
    BAD(&f, rkv_tokens_build(&good, NULL, 4, &item, &count), "ids");
    BAD(&f, rkv_tokens_build(&good, ids, 4, NULL, &count), "items");
    BAD(&f, rkv_tokens_build(&good, ids, 4, &item, NULL), "out_token_count");
    prompt = text(prompt_ids, SIZE_MAX);
    BAD(&f, rkv_tokens_build(&prompt, ids, 4, &item, &count), "ids");
    prompt = good;
    prompt.item_count = SIZE_MAX;
    BAD(&f, rkv_tokens_build(&prompt, ids, 4, &item, &count), "items");
    prompt = good;
    prompt.item_size = 0;
    BAD(&f, rkv_tokens_build(&prompt, ids, 4, &item, &count), "item_size");
    place.token_index = 4;
    BAD(&f, rkv_tokens_build(&good, ids, 4, &item, &count), "items");
    place.token_index = UINT64_MAX;
    BAD(&f, rkv_tokens_build(&good, ids, 4, &item, &count), "items");
    rkv_token_item down[2] = {image(2, 1, 2), image(1, 1, 2)}, two[2];
    prompt = with_items(prompt_ids, 3, down, 2);
    BAD(&f, rkv_tokens_build(&prompt, ids, 4, two, &count), "items");
    UNTOUCHED(ids);
    UNTOUCHED(item);
    UNTOUCHED(count);
    end_fixture(&f);
}

static void m01_page_table_create(void) {
    fixture f = new_fixture(2, 8);
    rkv_page_table_config config, fresh;
    const size_t first = offsetof(rkv_page_table_config, groups);
    rkv_page_table *table = NULL;
    mark(&fresh, sizeof fresh);
    BAD(&f, rkv_page_table_config_init(NULL, sizeof config), "config");
    BAD(&f, rkv_page_table_config_init(&fresh, 0), "struct_size");
    BAD(&f, rkv_page_table_config_init(&fresh, first - 1), "struct_size");
    UNTOUCHED(fresh);
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_count = 10;
    BAD(&f, rkv_page_table_create(NULL, &table), "config");
    BAD(&f, rkv_page_table_create(&config, NULL), "out_table");
    BAD_INPUT_SIZES_FROM(&f, rkv_page_table_config, first, config, p,
                         rkv_page_table_create(p, &table), "config");
    config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL << 1;
    BAD(&f, rkv_page_table_create(&config, &table), "flags");
    config.flags = UINT32_MAX;
    BAD(&f, rkv_page_table_create(&config, &table), "flags");
    CHECK(table == NULL);
    config.flags = 0;
    GOOD_BIGGER_INPUT(rkv_page_table_config, config, p, rkv_page_table_create(p, &table));
    rkv_page_table_destroy(table);
    /* a newer caller's init */
    struct {
        rkv_page_table_config base;
        uint64_t future;
    } newer;
    mark(&newer, sizeof newer);
    CHECK_OK(rkv_page_table_config_init(&newer.base, sizeof newer));
    CHECK(newer.base.struct_size == sizeof newer && newer.future == 0);
    end_fixture(&f);
}

static void m01_statistics_and_shortage(void) {
    fixture f = new_fixture(2, 8);
    rkv_page_table_stats stats;
    uint32_t pages[9];
    mark(&stats, sizeof stats);
    stats.struct_size = sizeof stats;
    BAD(&f, rkv_page_table_read_stats(NULL, &stats), "table");
    UNTOUCHED_STRUCT(stats);
    OUTPUT_SIZES(&f, rkv_page_table_stats, p, rkv_page_table_read_stats(f.table, p), "out_stats");
    GOOD_BIGGER_OUTPUT(rkv_page_table_stats, p, rkv_page_table_read_stats(f.table, p));
    CHECK_STATUS(rkv_page_table_allocate_pages(f.table, 9, pages), RKV_STATUS_OUT_OF_PAGES);
    OUTPUT_SIZES(&f, rkv_shortage, p, rkv_last_shortage(p), "out_shortage");
    GOOD_BIGGER_OUTPUT(rkv_shortage, p, rkv_last_shortage(p));
    OUTPUT_SIZES(&f, rkv_index_memory_stats, p, rkv_read_index_memory_stats(p), "out_stats");
    GOOD_BIGGER_OUTPUT(rkv_index_memory_stats, p, rkv_read_index_memory_stats(p));
    BAD(&f, rkv_reserve_index_memory(0, RKV_HUGE_PAGES_TRY), "byte_count");
    BAD(&f, rkv_reserve_index_memory(1, 3), "huge_pages");
    BAD(&f, rkv_page_table_check(NULL), "table");
    end_fixture(&f);
}

/* A table with slot 0..2 in use: a row of the caller's, an empty one, and a sequence's. */
typedef struct tables {
    fixture f;
    uint32_t slot, empty, owned, unused;
    uint32_t mapped[2], loose[2], cached[2];
    rkv_sequence_id sequence;
} tables;

static tables new_tables(void) {
    static const uint32_t ids[4] = {1, 2, 3, 4};
    tables t;
    memset(&t, 0, sizeof t);
    t.f = new_fixture_with(2, 12, 4, 0);
    CHECK_OK(rkv_page_table_allocate_slot(t.f.table, &t.slot));
    CHECK_OK(rkv_page_table_allocate_slot(t.f.table, &t.empty));
    allocate(&t.f, 2, t.mapped);
    allocate(&t.f, 2, t.loose);
    allocate(&t.f, 2, t.cached);
    CHECK_OK(rkv_page_table_map(t.f.table, t.slot, 0, t.mapped, 2));
    insert_pages(&t.f, NULL, text(ids, 4), t.cached, 2);
    rkv_sequence_info state = begin(&t.f, text(ids + 1, 3));
    t.owned = state.slot;
    t.sequence = state.sequence;
    t.unused = 6 - t.slot - t.empty - t.owned;
    return t;
}

static void m01_pages(void) {
    tables t = new_tables();
    rkv_page_table *table = t.f.table;
    uint32_t out[13], slot;
    mark(out, sizeof out);
    mark(&slot, sizeof slot);
    BAD(&t.f, rkv_page_table_allocate_slot(NULL, &slot), "table");
    BAD(&t.f, rkv_page_table_allocate_slot(table, NULL), "out_slot");
    UNTOUCHED(slot);
    BAD(&t.f, rkv_page_table_allocate_pages(NULL, 1, out), "table");
    BAD(&t.f, rkv_page_table_allocate_pages(table, 1, NULL), "pages");
    snapshot before = take(&t.f);
    CHECK(rkv_page_table_allocate_pages(table, SIZE_MAX, out) != RKV_STATUS_OK);
    CHECK(rkv_page_table_allocate_pages(table, SIZE_MAX / 4, out) != RKV_STATUS_OK);
    CHECK_STATUS(rkv_page_table_allocate_pages(table, 13, out), RKV_STATUS_OUT_OF_PAGES);
    CHECK(same(&t.f, &before));
    UNTOUCHED(out);
    /* giving back what isn't the caller's, alone or after a good one */
    uint32_t freed = 0, owned[2];
    CHECK_EQ(row_of(&t.f, t.owned, owned, 2), 2);
    allocate(&t.f, 1, &freed);
    CHECK_OK(rkv_page_table_free_pages(table, &freed, 1));
    const uint32_t bad[] = {0, 13, UINT32_MAX, t.mapped[0], t.cached[0], freed,
                            owned[1], t.loose[0]};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t two[2];
        char word[16];
        two[0] = t.loose[0];
        two[1] = bad[i];
        snprintf(word, sizeof word, "%u", (unsigned)bad[i]);
        snapshot now = take(&t.f);
        CHECK_STATUS(rkv_page_table_free_pages(table, two, 2), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("page") && message_names(word));
        CHECK(same(&t.f, &now));
        if (bad[i] != t.loose[0]) {
            BAD(&t.f, rkv_page_table_free_pages(table, &bad[i], 1), "page");
        }
    }
    BAD(&t.f, rkv_page_table_free_pages(NULL, t.loose, 2), "table");
    BAD(&t.f, rkv_page_table_free_pages(table, NULL, 2), "pages");
    BAD(&t.f, rkv_page_table_free_pages(table, t.loose, SIZE_MAX), "page");
    CHECK_OK(rkv_page_table_free_pages(table, t.loose, 2));
    end_fixture(&t.f);
}

static void m01_rows(void) {
    tables t = new_tables();
    rkv_page_table *table = t.f.table;
    const uint32_t bad_slots[] = {t.unused, 4, UINT32_MAX - 1, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        uint32_t slot = bad_slots[i];
        BAD(&t.f, rkv_page_table_free_slot(table, slot), "slot");
        BAD(&t.f, rkv_page_table_map(table, slot, 0, t.loose, 1), "slot");
        BAD(&t.f, rkv_page_table_reserve(table, slot, 1), "slot");
    }
    REFUSED(&t.f, rkv_page_table_free_slot(table, t.owned), RKV_STATUS_INVALID_STATE, "sequence");
    REFUSED(&t.f, rkv_page_table_map(table, t.owned, 2, t.loose, 1), RKV_STATUS_INVALID_STATE,
            "sequence");
    REFUSED(&t.f, rkv_page_table_reserve(table, t.owned, 8), RKV_STATUS_INVALID_STATE,
            "sequence");
    BAD(&t.f, rkv_page_table_free_slot(NULL, t.slot), "table");
    BAD(&t.f, rkv_page_table_map(NULL, t.slot, 2, t.loose, 1), "table");
    BAD(&t.f, rkv_page_table_map(table, t.slot, 2, NULL, 1), "pages");
    BAD(&t.f, rkv_page_table_map(table, t.slot, 2, t.loose, SIZE_MAX), "page");
    BAD(&t.f, rkv_page_table_map(table, t.slot, SIZE_MAX, t.loose, 1), "first_index");
    BAD(&t.f, rkv_page_table_reserve(NULL, t.slot, 8), "table");
    snapshot before = take(&t.f);
    CHECK(rkv_page_table_reserve(table, t.slot, SIZE_MAX) != RKV_STATUS_OK);
    CHECK(rkv_page_table_reserve(table, t.slot, SIZE_MAX - 1) != RKV_STATUS_OK);
    CHECK(same(&t.f, &before));
    /* pages that can't be mapped, alone or after a good one */
    uint32_t freed = 0;
    allocate(&t.f, 1, &freed);
    CHECK_OK(rkv_page_table_free_pages(table, &freed, 1));
    const uint32_t bad[] = {0, 13, UINT32_MAX, t.mapped[0], freed, t.loose[0]};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t three[3];
        three[0] = t.loose[0];
        three[1] = t.cached[0];
        three[2] = bad[i];
        BAD(&t.f, rkv_page_table_map(table, t.empty, 0, three, 3), "page");
        CHECK_OK(rkv_page_table_check(table));
        CHECK_OK(rkv_page_table_free_pages(table, t.loose, 1)); /* still loose */
        allocate(&t.f, 1, t.loose);
        size_t capacity = 99;
        CHECK_OK(rkv_page_table_row_capacity(table, t.empty, &capacity));
        CHECK_EQ(capacity, 0);
    }
    end_fixture(&t.f);
}

static void m01_reading_rows(void) {
    tables t = new_tables();
    rkv_page_table *table = t.f.table;
    const uint32_t bad_slots[] = {t.unused, 4, UINT32_MAX - 1, UINT32_MAX};
    const uint64_t good_position = 0, bad_positions[] = {4, UINT32_MAX, UINT64_MAX};
    uint32_t pages[4];
    size_t count;
    int64_t mapping;
    bool can;
    mark(pages, sizeof pages);
    mark(&count, sizeof count);
    mark(&mapping, sizeof mapping);
    mark(&can, sizeof can);
    for (size_t i = 0; i < 4; i++) {
        uint32_t slot = bad_slots[i];
        BAD(&t.f, rkv_page_table_row_capacity(table, slot, &count), "slot");
        BAD(&t.f, rkv_page_table_read_row(table, slot, 0, pages, 4, &count), "slot");
        BAD(&t.f, rkv_page_table_read_slot_mapping(table, slot, &good_position, 1, &mapping),
            "slot");
        if (slot != RKV_NO_SLOT) {
            BAD(&t.f, rkv_page_table_can_reserve(table, slot, 1, &can), "slot");
        }
    }
    BAD(&t.f, rkv_page_table_can_reserve(NULL, t.slot, 1, &can), "table");
    BAD(&t.f, rkv_page_table_can_reserve(table, t.slot, 1, NULL), "out_can");
    BAD(&t.f, rkv_page_table_row_capacity(NULL, t.slot, &count), "table");
    BAD(&t.f, rkv_page_table_row_capacity(table, t.slot, NULL), "out_position_count");
    BAD(&t.f, rkv_page_table_read_row(NULL, t.slot, 0, pages, 4, &count), "table");
    BAD(&t.f, rkv_page_table_read_row(table, t.slot, 3, pages, 4, &count), "first_index");
    BAD(&t.f, rkv_page_table_read_row(table, t.slot, SIZE_MAX, pages, 4, &count), "first_index");
    BAD(&t.f, rkv_page_table_read_row(table, t.slot, 0, NULL, 4, &count), "pages");
    BAD(&t.f, rkv_page_table_read_row(table, t.slot, 0, pages, 4, NULL), "out_count");
    BAD(&t.f, rkv_page_table_read_slot_mapping(NULL, t.slot, &good_position, 1, &mapping), "table");
    BAD(&t.f, rkv_page_table_read_slot_mapping(table, t.slot, NULL, 1, &mapping), "positions");
    BAD(&t.f, rkv_page_table_read_slot_mapping(table, t.slot, &good_position, 1, NULL),
        "out_mapping");
    BAD(&t.f, rkv_page_table_read_slot_mapping(table, t.slot, &good_position, SIZE_MAX, &mapping),
        "positions");
    for (size_t i = 0; i < 3; i++) {
        BAD(&t.f, rkv_page_table_read_slot_mapping(table, t.slot, &bad_positions[i], 1, &mapping),
            "position");
    }
    UNTOUCHED(pages);
    UNTOUCHED(count);
    UNTOUCHED(mapping);
    bool marked;
    mark(&marked, sizeof marked);
    CHECK(memcmp(&can, &marked, sizeof can) == 0);
    /* more than any row can hold: no, whatever the sum is */
    can = true;
    rkv_status status = rkv_page_table_can_reserve(table, t.slot, SIZE_MAX, &can);
    CHECK(status == RKV_STATUS_OK ? !can : can);
    end_fixture(&t.f);
}

static void m01_batches(void) {
    tables t = new_tables();
    rkv_page_table *table = t.f.table;
    int32_t indptr[3], indices[4], last[2];
    size_t count;
    mark(indptr, sizeof indptr);
    mark(indices, sizeof indices);
    mark(last, sizeof last);
    mark(&count, sizeof count);
    rkv_page_table_batch_arrays good;
    memset(&good, 0, sizeof good);
    good.struct_size = sizeof good;
    good.indptr = indptr;
    good.indices = indices;
    good.indices_capacity = 4;
    good.last_page_len = last;
    rkv_page_table_batch_row rows[2];
    rows[0].slot = t.slot;
    rows[0].position_count = 4;
    rows[1].slot = t.owned;
    rows[1].position_count = 3;
    BAD(&t.f, rkv_page_table_read_batch(NULL, rows, 2, sizeof *rows, &good, &count), "table");
    BAD(&t.f,
        rkv_page_table_read_batch(table, NULL, 2, sizeof(rkv_page_table_batch_row), &good,
                                  &count), "rows");
    BAD(&t.f, rkv_page_table_read_batch(table, rows, SIZE_MAX, sizeof *rows, &good, &count),
        "rows");
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, NULL, &count), "arrays");
    BAD_INPUT_SIZES(&t.f, rkv_page_table_batch_arrays, good, p,
                    rkv_page_table_read_batch(table, rows, 2, sizeof *rows, p, &count), "arrays");
    rkv_page_table_batch_arrays arrays = good;
    arrays.reserved = 1;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &arrays, &count), "reserved");
    arrays = good;
    arrays.indptr = NULL;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &arrays, &count), "indptr");
    arrays = good;
    arrays.indices = NULL;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &arrays, &count), "indices");
    arrays = good;
    arrays.last_page_len = NULL;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &arrays, &count),
        "last_page_len");
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &good, NULL),
        "out_index_count");
    rows[1].position_count = 5;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &good, &count), "position");
    rows[1].position_count = UINT32_MAX;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &good, &count), "position");
    rows[1].position_count = 0;
    rows[1].slot = t.unused;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &good, &count), "slot");
    rows[1].slot = UINT32_MAX;
    BAD(&t.f, rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &good, &count), "slot");
    UNTOUCHED(indptr);
    UNTOUCHED(indices);
    UNTOUCHED(last);
    UNTOUCHED(count);
    rows[1].slot = t.owned;
    rows[1].position_count = 3;
    GOOD_BIGGER_INPUT(rkv_page_table_batch_arrays, good, p,
                      rkv_page_table_read_batch(table, rows, 2, sizeof *rows, p, &count));
    CHECK_OK(rkv_page_table_read_batch(table, NULL, 0, sizeof(rkv_page_table_batch_row), &good,
                                       &count));
    CHECK(count == 0 && indptr[0] == 0);
    end_fixture(&t.f);
}

int main(void) {
    RUN(m01_bins_and_digests);
    RUN(m01_token_items);
    RUN(m01_token_lists);
    RUN(m01_tokens_build);
    RUN(m01_page_table_create);
    RUN(m01_statistics_and_shortage);
    RUN(m01_pages);
    RUN(m01_rows);
    RUN(m01_reading_rows);
    RUN(m01_batches);
    return check_result();
}
