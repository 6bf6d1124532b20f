/* K11, J01, J07: who is told what of a clear: readers of the journal, and who has the pages of an
 * external pool. */
#include "misuse.h"

enum { RECORDS = 32, PAGES = 128, TOKENS = 512, CONTENTS = 64 };

static rkv_journal_record records[RECORDS];
static uint32_t pages_read[PAGES], tokens_read[TOKENS];
static rkv_journal_item items_read[8];

static fixture with_journal(uint32_t flags) {
    fixture f = {NULL, NULL, 2};
    rkv_page_table_config table;
    rkv_cache_config config;
    CHECK_OK(rkv_page_table_config_init(&table, sizeof table));
    table.page_size = 2;
    table.page_count = CONTENTS;
    table.slot_count = 8;
    table.flags = flags;
    CHECK_OK(rkv_page_table_create(&table, &f.table));
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.index = fixture_index;
    config.journal_bytes = 1 << 16;
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    return f;
}

static rkv_cache_clear_result clear(const fixture *f, uint32_t flags, const rkv_namespace *space) {
    rkv_cache_clear_args args = {sizeof args, flags, space};
    rkv_cache_clear_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_clear(f->cache, &args, &result));
    check_sane(f);
    return result;
}

/* Room for all that a test reads. */
static rkv_journal_buffers all_room(void) {
    rkv_journal_buffers room;
    memset(&room, 0, sizeof room);
    room.struct_size = sizeof room;
    room.records = records;
    room.record_size = sizeof *records;
    room.record_capacity = RECORDS;
    room.pages = pages_read;
    room.page_capacity = PAGES;
    room.tokens = tokens_read;
    room.token_capacity = TOKENS;
    room.items = items_read;
    room.item_size = sizeof *items_read;
    room.item_capacity = 8;
    return room;
}

/* Records after one; returns how many. */
static size_t read_after(const fixture *f, uint64_t after_number) {
    rkv_journal_buffers into = all_room();
    rkv_cache_read_journal_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_read_journal(f->cache, after_number, &into, &result));
    CHECK_EQ(result.last_number, result.newest_number);
    return (size_t)result.record_count;
}

/* How many pages rkv_cache_read_contents() tells. */
static uint64_t told_pages(const fixture *f) {
    rkv_journal_buffers into = all_room();
    rkv_cache_read_contents_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_read_contents(f->cache, 0, &into, &result));
    CHECK_EQ(result.next_page, 0);
    return result.page_count;
}

static bool is(const rkv_journal_record *record, uint32_t kind, uint32_t reason, uint64_t count) {
    return record->kind == kind && record->reason == reason && record->page_count == count;
}

/* A router learns at once what is not found any more, and page by page what goes. */
static void k11_a_cleared_namespace_is_one_record(void) {
    fixture f = with_journal(0);
    uint32_t ids[16];
    count_up(ids, 16, 1);
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA;
    space.lora_id = 7;
    space.epoch = 3;
    rkv_sequence_info state = begin_in(&f, &space, text(ids, 8));
    publish(&f, state.sequence, 8);
    serve(&f, text(ids, 4));
    CHECK_EQ(read_after(&f, 0), 2);
    CHECK_EQ(told_pages(&f), 6);
    CHECK_EQ(clear(&f, RKV_CLEAR_LORA, &space).held_page_count, 4);
    CHECK_EQ(read_after(&f, 2), 1);
    CHECK(is(&records[0], RKV_JOURNAL_CLEARED, RKV_REASON_INVALIDATED, 0));
    CHECK_EQ(records[0].namespace_flags, RKV_NAMESPACE_LORA);
    CHECK_EQ(records[0].lora_id, 7);
    CHECK_EQ(records[0].epoch, 3);
    CHECK_EQ(told_pages(&f), 2);
    /* what comes under the same name is told; what nobody finds is not */
    append(&f, state.sequence, 1);
    append(&f, state.sequence, 1);
    publish(&f, state.sequence, 10);
    CHECK_EQ(read_after(&f, 3), 0);
    insert_in(&f, &space, text(ids, 4));
    CHECK_EQ(read_after(&f, 3), 1);
    CHECK(is(&records[0], RKV_JOURNAL_STORED, 0, 2));
    CHECK_EQ(told_pages(&f), 4);
    check_sane(&f);
    release(&f, state.sequence);
    CHECK_EQ(read_after(&f, 4), 1);
    CHECK(is(&records[0], RKV_JOURNAL_REMOVED, RKV_REASON_INVALIDATED, 4));
    /* a namespace that has nothing is not told */
    space.lora_id = 8;
    clear(&f, RKV_CLEAR_NAMESPACE, &space);
    CHECK_EQ(read_after(&f, 5), 0);
    clear(&f, RKV_CLEAR_EVERYTHING, NULL);
    CHECK_EQ(read_after(&f, 5), 4 - 1);
    CHECK(is(&records[0], RKV_JOURNAL_CLEARED, RKV_REASON_INVALIDATED, 0));
    CHECK(is(&records[1], RKV_JOURNAL_CLEARED, RKV_REASON_INVALIDATED, 0));
    CHECK(is(&records[2], RKV_JOURNAL_REMOVED, RKV_REASON_INVALIDATED, 4));
    CHECK_EQ(told_pages(&f), 0);
    end_fixture(&f);
}

/* No page of an external pool leaves unseen: evictions report what was cleared, before the rest. */
static void k11_an_external_pool_gets_its_pages_from_evictions(void) {
    fixture f = with_journal(RKV_PAGE_TABLE_EXTERNAL_POOL);
    uint32_t ids[16], published[8], evicted[16];
    const uint32_t pages[] = {1, 2, 3, 4}, others[] = {11, 12};
    count_up(ids, 16, 1);
    rkv_namespace space = new_namespace();
    space.epoch = 1;
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    rkv_tokens eight = text(ids, 8), four = text(ids, 4);
    rkv_cache_insert_args args = insert_args(&four, others, 2);
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    args = insert_args(&eight, pages, 4);
    args.space = &space;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f.cache, &space, &four, RKV_MATCH_LOCK, published, 8, &match));
    CHECK_EQ(match.page_count, 2);
    rkv_cache_clear_result done = clear(&f, RKV_CLEAR_EPOCH, &space);
    CHECK_EQ(done.freed_page_count, 0);
    CHECK_EQ(done.held_page_count, 2);
    CHECK_EQ(done.waiting_page_count, 2);
    CHECK_EQ(cached_pages(&f), 6);
    CHECK_EQ(reclaimable_pages(&f), 4);
    CHECK_EQ(probe_in(&f, &space, eight), 0);
    CHECK_EQ(probe(&f, four), 4);
    size_t count = 0;
    CHECK_OK(rkv_cache_evict(f.cache, 2, evicted, 16, &count));
    CHECK_EQ(count, 2);
    CHECK(evicted[0] == 4 && evicted[1] == 3);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    check_sane(&f);
    CHECK_EQ(cached_pages(&f), 4);
    CHECK_OK(rkv_cache_evict(f.cache, 2, evicted, 16, &count));
    CHECK_EQ(count, 2);
    CHECK(evicted[0] == 2 && evicted[1] == 1);
    CHECK_EQ(probe(&f, four), 4);
    CHECK_EQ(read_after(&f, 2), 3);
    CHECK(is(&records[0], RKV_JOURNAL_CLEARED, RKV_REASON_INVALIDATED, 0));
    CHECK(is(&records[1], RKV_JOURNAL_REMOVED, RKV_REASON_INVALIDATED, 2));
    CHECK(is(&records[2], RKV_JOURNAL_REMOVED, RKV_REASON_INVALIDATED, 2));
    /* the pages can be adopted again, under the same name too */
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    CHECK_EQ(probe_in(&f, &space, eight), 8);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k11_a_cleared_namespace_is_one_record);
    RUN_BOTH(k11_an_external_pool_gets_its_pages_from_evictions);
    return check_result();
}
