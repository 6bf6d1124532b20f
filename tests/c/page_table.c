/* The page table alone and with a cache on it: pages, slots, rows, mappings, life times. */
#include "fixture.h"

static void check_table(const rkv_page_table *table, uint64_t want_free, uint64_t want_private) {
    rkv_page_table_stats stats;
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_page_table_read_stats(table, &stats));
    CHECK_EQ(stats.free_page_count, want_free);
    CHECK_EQ(stats.private_page_count, want_private);
    CHECK_EQ(stats.free_page_count + stats.cached_page_count + stats.private_page_count,
             stats.total_page_count);
    CHECK_OK(rkv_page_table_check(table));
}

static uint32_t new_slot(rkv_page_table *table) {
    uint32_t slot = UINT32_MAX;
    CHECK_OK(rkv_page_table_allocate_slot(table, &slot));
    return slot;
}

static void k12_page_zero_is_never_handed_out(void) {
    rkv_page_table *table = new_table(4, 100, 2);
    bool seen[100] = {false};
    uint32_t pages[99];
    check_table(table, 99, 0);
    for (size_t i = 0; i < 99; i++) {
        CHECK_OK(rkv_page_table_allocate_pages(table, 1, &pages[i]));
        if (CHECK(pages[i] >= 1 && pages[i] < 100)) {
            CHECK(!seen[pages[i]]);
            seen[pages[i]] = true;
        }
    }
    check_table(table, 0, 99);
    uint32_t none = 77;
    CHECK_STATUS(rkv_page_table_allocate_pages(table, 1, &none), RKV_STATUS_OUT_OF_PAGES);
    CHECK_EQ(none, 77);
    CHECK_OK(rkv_page_table_free_pages(table, pages, 99));
    check_table(table, 99, 0);
    rkv_page_table_destroy(table);
}

static void k12_allocation_of_nothing(void) {
    rkv_page_table *table = new_table(4, 10, 2);
    CHECK_OK(rkv_page_table_allocate_pages(table, 0, NULL));
    CHECK_OK(rkv_page_table_free_pages(table, NULL, 0));
    check_table(table, 9, 0);
    rkv_page_table_destroy(table);
}

/* K12, M04: the refusal states needed, free, evictable and locked, and evicts nothing. */
static void k12_allocation_is_all_or_nothing(void) {
    fixture f = new_fixture(2, 10);
    uint32_t ids[8], other[6], pages[16];
    count_up(ids, 8, 1);
    count_up(other, 6, 50);
    rkv_node_id locked = insert(&f, text(ids, 8)).node;
    insert(&f, text(other, 6));
    rkv_lock_id lock = lock_node(&f, locked);
    allocate(&f, 1, pages);
    rkv_page_table_stats before = table_stats(&f);
    CHECK_EQ(before.free_page_count, 2);
    memset(pages, 0xA5, sizeof pages);
    CHECK_STATUS(rkv_page_table_allocate_pages(f.table, 6, pages), RKV_STATUS_OUT_OF_PAGES);
    CHECK_EQ(pages[0], 0xA5A5A5A5u);
    rkv_shortage shortage;
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK_EQ(shortage.needed_page_count, 6);
    CHECK_EQ(shortage.free_page_count, 2);
    CHECK_EQ(shortage.reclaimable_page_count, 3);
    CHECK_EQ(shortage.locked_page_count, 4);
    CHECK_EQ(shortage.private_page_count, 1);
    rkv_page_table_stats after = table_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK_EQ(probe(&f, text(other, 6)), 6);
    /* what fits with eviction is granted, and evicts no more than it needs */
    allocate(&f, 4, pages);
    CHECK_EQ(probe(&f, text(other, 6)), 2);
    CHECK_EQ(probe(&f, text(ids, 8)), 8);
    CHECK_OK(rkv_cache_unlock(f.cache, lock));
    end_fixture(&f);
}

static void k12_slots(void) {
    rkv_page_table *table = new_table(4, 10, 3);
    uint32_t slots[3], none = 77;
    for (size_t i = 0; i < 3; i++) {
        slots[i] = new_slot(table);
        CHECK(slots[i] < 3);
        for (size_t j = 0; j < i; j++) {
            CHECK(slots[i] != slots[j]);
        }
    }
    CHECK_STATUS(rkv_page_table_allocate_slot(table, &none), RKV_STATUS_OUT_OF_SLOTS); /* M04 */
    CHECK_EQ(none, 77);
    CHECK_OK(rkv_page_table_free_slot(table, slots[1]));
    CHECK_STATUS(rkv_page_table_free_slot(table, slots[1]), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("slot"));
    CHECK_EQ(new_slot(table), slots[1]);
    rkv_page_table_destroy(table);
}

static void k12_rows_are_mapped_in_order(void) {
    rkv_page_table *table = new_table(4, 20, 2);
    uint32_t pages[6], got[8];
    size_t count = 0;
    uint32_t slot = new_slot(table), other = new_slot(table);
    CHECK_OK(rkv_page_table_allocate_pages(table, 6, pages));
    CHECK_STATUS(rkv_page_table_map(table, slot, 1, pages, 2), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("first_index"));
    CHECK_OK(rkv_page_table_map(table, slot, 0, pages, 2));
    CHECK_STATUS(rkv_page_table_map(table, slot, 0, pages + 2, 1), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_page_table_map(table, slot, 1, pages + 2, 1), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_page_table_map(table, slot, 3, pages + 2, 1), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_page_table_map(table, slot, 2, pages + 2, 4));
    CHECK_OK(rkv_page_table_map(table, slot, 6, NULL, 0));
    /* a private page belongs to one row */
    CHECK_STATUS(rkv_page_table_map(table, other, 0, pages, 1), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_page_table_free_pages(table, pages, 1), RKV_STATUS_INVALID_ARGUMENT);
    /* J06: the whole row, its end, a short buffer, the end, the count alone */
    CHECK_OK(rkv_page_table_read_row(table, slot, 0, got, 8, &count));
    CHECK(count == 6 && memcmp(got, pages, sizeof pages) == 0);
    CHECK_OK(rkv_page_table_read_row(table, slot, 4, got, 8, &count));
    CHECK(count == 2 && got[0] == pages[4] && got[1] == pages[5]);
    got[2] = 77;
    CHECK_STATUS(rkv_page_table_read_row(table, slot, 1, got, 4, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == 5 && got[0] == pages[4] && got[2] == 77);
    CHECK_OK(rkv_page_table_read_row(table, slot, 6, got, 8, &count));
    CHECK_EQ(count, 0);
    CHECK_OK(rkv_page_table_read_row(table, slot, 0, NULL, 0, &count));
    CHECK_EQ(count, 6);
    size_t capacity = 0;
    CHECK_OK(rkv_page_table_row_capacity(table, slot, &capacity));
    CHECK_EQ(capacity, 24);
    CHECK_OK(rkv_page_table_row_capacity(table, other, &capacity));
    CHECK_EQ(capacity, 0);
    CHECK_OK(rkv_page_table_free_slot(table, slot));
    check_table(table, 19, 0);
    rkv_page_table_destroy(table);
}

static void k12_slot_mapping(void) {
    rkv_page_table *table = new_table(4, 20, 2);
    uint32_t pages[3], slot = new_slot(table);
    const uint64_t positions[6] = {11, 0, 5, 5, 3, 4};
    const uint64_t outside[3] = {0, 12, 1};
    int64_t mapping[6];
    CHECK_OK(rkv_page_table_allocate_pages(table, 3, pages));
    CHECK_OK(rkv_page_table_map(table, slot, 0, pages, 3));
    CHECK_OK(rkv_page_table_read_slot_mapping(table, slot, positions, 6, mapping));
    for (size_t i = 0; i < 6; i++) {
        CHECK_EQ(mapping[i], (uint64_t)pages[positions[i] / 4] * 4 + positions[i] % 4);
    }
    memset(mapping, 0xA5, sizeof mapping);
    CHECK_STATUS(rkv_page_table_read_slot_mapping(table, slot, outside, 3, mapping),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("12"));
    CHECK(mapping[0] == mapping[5] && mapping[1] == mapping[5]);
    CHECK_OK(rkv_page_table_read_slot_mapping(table, slot, NULL, 0, NULL));
    rkv_page_table_destroy(table);
}

static rkv_page_table_batch_arrays arrays_of(int32_t *indptr, int32_t *indices, size_t capacity,
                                  int32_t *last_page_len) {
    rkv_page_table_batch_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    arrays.indptr = indptr;
    arrays.indices = indices;
    arrays.indices_capacity = capacity;
    arrays.last_page_len = last_page_len;
    return arrays;
}

static void k12_batch_arrays(void) {
    rkv_page_table *table = new_table(4, 20, 3);
    uint32_t pages[5], a = new_slot(table), b = new_slot(table), c = new_slot(table);
    int32_t indptr[5] = {9, 9, 9, 9, 9}, indices[8], last[4] = {9, 9, 9, 9};
    size_t count = 99;
    CHECK_OK(rkv_page_table_allocate_pages(table, 5, pages));
    CHECK_OK(rkv_page_table_map(table, a, 0, pages, 3));
    CHECK_OK(rkv_page_table_map(table, b, 0, pages + 3, 2));
    /* a row may have more pages than the batch attends to; c is empty */
    const rkv_page_table_batch_row rows[4] = {{b, 8}, {c, 0}, {a, 9}, {b, 1}};
    rkv_page_table_batch_arrays ask = arrays_of(NULL, NULL, 0, NULL);
    CHECK_OK(rkv_page_table_read_batch(table, rows, 4, sizeof *rows, &ask, &count));
    CHECK_EQ(count, 6);
    memset(indices, 0, sizeof indices);
    rkv_page_table_batch_arrays small = arrays_of(indptr, indices, 5, last);
    CHECK_STATUS(rkv_page_table_read_batch(table, rows, 4, sizeof *rows, &small, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == 6 && indptr[0] == 9 && indices[0] == 0 && last[0] == 9);
    rkv_page_table_batch_arrays arrays = arrays_of(indptr, indices, 8, last);
    CHECK_OK(rkv_page_table_read_batch(table, rows, 4, sizeof *rows, &arrays, &count));
    CHECK_EQ(count, 6);
    const int32_t want_indptr[5] = {0, 2, 2, 5, 6}, want_last[4] = {4, 0, 1, 1};
    const uint32_t want[6] = {pages[3], pages[4], pages[0], pages[1], pages[2], pages[3]};
    CHECK(memcmp(indptr, want_indptr, sizeof want_indptr) == 0);
    CHECK(memcmp(last, want_last, sizeof want_last) == 0);
    for (size_t i = 0; i < 6; i++) {
        CHECK_EQ(indices[i], want[i]);
    }
    CHECK_EQ(indices[6], 0);
    const rkv_page_table_batch_row too_long = {a, 13};
    CHECK_STATUS(rkv_page_table_read_batch(table, &too_long, 1, sizeof too_long, &arrays, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    rkv_page_table_destroy(table);
}

/* B05: free capacity in tokens counts what eviction could free, and asking evicts nothing. */
static void b05_reserve_counts_reclaimable_pages(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[16];
    size_t capacity = 0;
    bool can = false;
    count_up(ids, 16, 1);
    rkv_node_id node = insert(&f, text(ids, 16)).node;
    CHECK_OK(rkv_page_table_can_reserve(f.table, RKV_NO_SLOT, 32, &can));
    CHECK(can);
    rkv_lock_id node_lock = lock_node(&f, node);
    CHECK_OK(rkv_page_table_can_reserve(f.table, RKV_NO_SLOT, 17, &can));
    CHECK(!can);
    CHECK_OK(rkv_page_table_can_reserve(f.table, RKV_NO_SLOT, 16, &can));
    CHECK(can);
    CHECK_OK(rkv_cache_unlock(f.cache, node_lock));
    CHECK_EQ(cached_pages(&f), 4);
    uint32_t slot = new_slot(f.table);
    CHECK_OK(rkv_page_table_reserve(f.table, slot, 13));
    CHECK_OK(rkv_page_table_row_capacity(f.table, slot, &capacity));
    CHECK_EQ(capacity, 16);
    CHECK_EQ(cached_pages(&f), 4);
    /* a row that is long enough stays as it is */
    CHECK_OK(rkv_page_table_reserve(f.table, slot, 1));
    CHECK_OK(rkv_page_table_row_capacity(f.table, slot, &capacity));
    CHECK_EQ(capacity, 16);
    CHECK_OK(rkv_page_table_can_reserve(f.table, slot, 32, &can));
    CHECK(can);
    CHECK_OK(rkv_page_table_can_reserve(f.table, slot, 33, &can));
    CHECK(!can);
    node_lock = lock_node(&f, node);
    CHECK_OK(rkv_page_table_can_reserve(f.table, slot, 32, &can));
    CHECK(!can);
    CHECK_STATUS(rkv_page_table_reserve(f.table, slot, 32), RKV_STATUS_OUT_OF_PAGES);
    CHECK_OK(rkv_cache_unlock(f.cache, node_lock));
    CHECK_EQ(cached_pages(&f), 4);
    CHECK_OK(rkv_page_table_reserve(f.table, slot, 32));
    CHECK_EQ(cached_pages(&f), 0);
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    end_fixture(&f);
}

/* A slot is needed too where none is taken yet. */
static void b05_can_reserve_needs_a_slot(void) {
    rkv_page_table *table = new_table(4, 9, 1);
    bool can = false;
    uint32_t slot = new_slot(table);
    CHECK_OK(rkv_page_table_can_reserve(table, RKV_NO_SLOT, 4, &can));
    CHECK(!can);
    CHECK_OK(rkv_page_table_can_reserve(table, slot, 4, &can));
    CHECK(can);
    rkv_page_table_destroy(table);
}

static void k19_states_of_a_page(void) {
    fixture f = new_fixture(2, 8);
    uint32_t ids[4] = {1, 2, 3, 4}, pages[2];
    uint32_t slot = new_slot(f.table);
    allocate(&f, 2, pages);
    CHECK_OK(rkv_page_table_map(f.table, slot, 0, pages, 2));
    check_table(f.table, 6, 2);
    insert_pages(&f, NULL, text(ids, 4), pages, 2);
    check_table(f.table, 6, 0);
    CHECK_EQ(cached_pages(&f), 2);
    /* a cached page may be in several rows, and erasing leaves it with the cache */
    uint32_t second = new_slot(f.table);
    CHECK_OK(rkv_page_table_map(f.table, second, 0, pages, 2));
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    CHECK_OK(rkv_page_table_free_slot(f.table, second));
    check_table(f.table, 6, 0);
    CHECK_STATUS(rkv_page_table_free_pages(f.table, pages, 2), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_EQ(evict(&f, 2), 2);
    check_table(f.table, 8, 0);
    end_fixture(&f);
}

/* An audit isn't empty words: a row that maps an evicted page, against the header's advice to keep
 * its node locked, is found and named. */
static void k19_audit_finds_a_lost_page(void) {
    fixture f = new_fixture(2, 8);
    uint32_t ids[4] = {1, 2, 3, 4}, pages[2];
    char name[16];
    uint32_t slot = new_slot(f.table);
    allocate(&f, 2, pages);
    insert_pages(&f, NULL, text(ids, 4), pages, 2);
    CHECK_OK(rkv_page_table_map(f.table, slot, 0, pages, 2));
    CHECK_OK(rkv_page_table_check(f.table));
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_STATUS(rkv_page_table_check(f.table), RKV_STATUS_CORRUPT);
    snprintf(name, sizeof name, "page %u", (unsigned)pages[1]);
    CHECK(message_names(name));
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    end_fixture(&f);
}

static void m03_destroy_in_any_order(void) {
    fixture f = new_fixture(2, 8);
    uint32_t ids[4] = {1, 2, 3, 4};
    insert(&f, text(ids, 4));
    rkv_page_table_destroy(f.table);
    /* the cache keeps the pages alive and works on */
    CHECK_EQ(probe(&f, text(ids, 4)), 4);
    rkv_sequence_info state = begin(&f, text(ids, 4));
    CHECK_EQ(state.cached_position_count, 3);
    CHECK_OK(rkv_cache_check(f.cache));
    rkv_cache_destroy(f.cache);
    rkv_cache_destroy(NULL);
    rkv_page_table_destroy(NULL);
}

static void m03_destroy_a_cache_in_use(void) {
    fixture f = new_fixture(2, 12);
    uint32_t ids[6], other[4] = {50, 51, 52, 53}, pages[4], own[1];
    size_t capacity = 99;
    count_up(ids, 6, 1);
    rkv_sequence_info state = begin(&f, text(ids, 6));
    publish(&f, state.sequence, 6);
    /* a row of the caller's: cached, cached, private, private */
    uint32_t slot = new_slot(f.table);
    allocate(&f, 4, pages);
    insert_pages(&f, NULL, text(other, 4), pages, 2);
    CHECK_OK(rkv_page_table_map(f.table, slot, 0, pages, 4));
    uint32_t kept = new_slot(f.table);
    allocate(&f, 1, own);
    CHECK_OK(rkv_page_table_map(f.table, kept, 0, own, 1));
    rkv_cache_destroy(f.cache);
    CHECK_OK(rkv_page_table_row_capacity(f.table, slot, &capacity));
    CHECK_EQ(capacity, 0);
    CHECK_OK(rkv_page_table_row_capacity(f.table, kept, &capacity));
    CHECK_EQ(capacity, 2);
    CHECK_STATUS(rkv_page_table_row_capacity(f.table, state.slot, &capacity),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_page_table_check(f.table));
    CHECK_EQ(cached_pages(&f), 0);
    /* the page table takes another cache */
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    CHECK_EQ(probe(&f, text(ids, 6)), 0);
    CHECK_STATUS(rkv_sequence_release(f.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    CHECK_OK(rkv_page_table_free_slot(f.table, kept));
    CHECK_EQ(free_pages(&f), 12);
    end_fixture(&f);
}

static void b10_configurations(void) {
    const struct {
        uint32_t page_size, page_count, slot_count;
        const char *field;
    } bad[] = {
        {0, 10, 1, "page_size"},          {RKV_PAGE_SIZE_MAX + 1, 10, 1, "page_size"},
        {UINT32_MAX, 10, 1, "page_size"}, {16, 0, 1, "page_count"},
        {16, 1, 1, "page_count"},         {16, 10, 0, "slot_count"},
    };
    rkv_page_table_config config;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rkv_page_table *none = NULL;
        CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
        config.page_size = bad[i].page_size;
        config.page_count = bad[i].page_count;
        config.slot_count = bad[i].slot_count;
        CHECK_STATUS(rkv_page_table_create(&config, &none), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names(bad[i].field) && none == NULL);
    }
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    CHECK(config.struct_size == sizeof config && config.page_size == 16);
    CHECK(config.page_count == 0 && config.slot_count == 256 && config.row_page_limit == 0);
    rkv_page_table *table = NULL;
    CHECK_STATUS(rkv_page_table_create(&config, &table), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("page_count") && table == NULL);
    /* the smallest that works */
    table = new_table(1, 2, 1);
    check_table(table, 1, 0);
    rkv_page_table_destroy(table);
}

static void b10_row_limit(void) {
    rkv_page_table_config config;
    rkv_page_table *table = NULL;
    uint32_t pages[4];
    bool can = true;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_count = 20;
    config.row_page_limit = 3;
    CHECK_OK(rkv_page_table_create(&config, &table));
    uint32_t slot = new_slot(table);
    CHECK_OK(rkv_page_table_allocate_pages(table, 4, pages));
    CHECK_STATUS(rkv_page_table_map(table, slot, 0, pages, 4), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_page_table_can_reserve(table, slot, 49, &can));
    CHECK(!can);
    CHECK_STATUS(rkv_page_table_reserve(table, slot, 49), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_page_table_reserve(table, slot, 48));
    check_table(table, 12, 7);
    rkv_page_table_destroy(table);
}

int main(void) {
    RUN(k12_page_zero_is_never_handed_out);
    RUN(k12_allocation_of_nothing);
    RUN_BOTH(k12_allocation_is_all_or_nothing);
    RUN(k12_slots);
    RUN(k12_rows_are_mapped_in_order);
    RUN(k12_slot_mapping);
    RUN(k12_batch_arrays);
    RUN_BOTH(b05_reserve_counts_reclaimable_pages);
    RUN_BOTH(b05_can_reserve_needs_a_slot);
    RUN_BOTH(k19_states_of_a_page);
    RUN_BOTH(k19_audit_finds_a_lost_page);
    RUN(m03_destroy_in_any_order);
    RUN_BOTH(m03_destroy_a_cache_in_use);
    RUN(b10_configurations);
    RUN(b10_row_limit);
    return check_result();
}
