/* J01, J02: the journal through the header: what records say, why pages left, how they are read,
 * and how a reader that missed some starts again. */
#include "misuse.h"

enum { RECORDS = 64, PAGES = 512, TOKENS = 2048, ITEMS = 64 };

/* Room for everything that a test reads. */
typedef struct reading {
    rkv_journal_record records[RECORDS];
    uint32_t pages[PAGES], tokens[TOKENS];
    rkv_journal_item items[ITEMS];
    rkv_cache_read_journal_result journal;
    rkv_cache_read_contents_result contents;
} reading;

static reading r;

static fixture with_journal(uint32_t page_size, uint32_t page_count, uint64_t journal_bytes) {
    fixture f = {NULL, NULL, page_size};
    rkv_cache_config config;
    f.table = new_table(page_size, page_count + 1, 8);
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.index = fixture_index;
    config.journal_bytes = journal_bytes;
    if (!CHECK_OK(rkv_cache_create(f.table, &config, &f.cache))) {
        exit(1);
    }
    return f;
}

/* Room for everything, and results that nobody has written to. */
static rkv_journal_buffers all_room(void) {
    rkv_journal_buffers room;
    memset(&room, 0, sizeof room);
    room.struct_size = sizeof room;
    room.records = r.records;
    room.record_size = sizeof r.records[0];
    room.record_capacity = RECORDS;
    room.pages = r.pages;
    room.page_capacity = PAGES;
    room.tokens = r.tokens;
    room.token_capacity = TOKENS;
    room.items = r.items;
    room.item_size = sizeof r.items[0];
    room.item_capacity = ITEMS;
    memset(&r.journal, 0, sizeof r.journal);
    memset(&r.contents, 0, sizeof r.contents);
    r.journal.struct_size = sizeof r.journal;
    r.contents.struct_size = sizeof r.contents;
    return room;
}

/* Records after a number, all of them. Returns how many. */
static size_t read_after(const fixture *f, uint64_t after_number) {
    rkv_journal_buffers room = all_room();
    CHECK_OK(rkv_cache_read_journal(f->cache, after_number, &room, &r.journal));
    CHECK_EQ(r.journal.last_number, r.journal.newest_number);
    return (size_t)r.journal.record_count;
}

/* Begins, publishes all and releases; the pages stay in the cache. */
static void request(const fixture *f, const rkv_namespace *space, rkv_tokens tokens) {
    rkv_sequence_info state = begin_in(f, space, tokens);
    if (state.copy_count > 0) {
        CHECK_OK(rkv_sequence_confirm_copies(f->cache, state.sequence));
    }
    publish(f, state.sequence, state.position_count);
    release(f, state.sequence);
}

static void j01_a_record_says_all_of_the_pages_that_came(void) {
    fixture f = with_journal(4, 32, 1 << 16);
    uint32_t ids[16];
    count_up(ids, 16, 100);
    CHECK_EQ(read_after(&f, 0), 0);
    CHECK_EQ(r.journal.newest_number, 0);
    CHECK_EQ(r.journal.oldest_number, 1);

    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE;
    space.lora_id = 7;
    space.epoch = 3;
    space.image_digest[2] = 9;
    space.salt[31] = 5;
    request(&f, &space, text(ids, 14)); /* three whole pages */
    CHECK_EQ(read_after(&f, 0), 1);
    const rkv_journal_record *record = &r.records[0];
    CHECK_EQ(record->number, 1);
    CHECK_EQ(record->kind, RKV_JOURNAL_STORED);
    CHECK_EQ(record->reason, 0);
    CHECK_EQ(record->group, 0);
    CHECK_EQ(record->parent_page, 0);
    CHECK_EQ(record->first_position, 0);
    CHECK_EQ(record->page_count, 3);
    CHECK_EQ(record->token_count, 12);
    CHECK_EQ(record->item_count, 0);
    CHECK(memcmp(r.tokens, ids, 12 * sizeof *ids) == 0);
    CHECK_EQ(record->namespace_flags, space.flags);
    CHECK_EQ(record->lora_id, 7);
    CHECK_EQ(record->epoch, 3);
    CHECK(memcmp(record->image_digest, space.image_digest, sizeof space.image_digest) == 0);
    CHECK(memcmp(record->salt, space.salt, sizeof space.salt) == 0);
    for (size_t i = 0; i < 3; i++) {
        bool cached = false;
        CHECK_OK(rkv_cache_contains_page(f.cache, r.pages[i], &cached));
        CHECK(cached);
    }
    uint32_t third = r.pages[2];

    /* what is there already comes in no more: only the page after it, with its parent */
    request(&f, &space, text(ids, 16));
    CHECK_EQ(read_after(&f, 1), 1);
    CHECK_EQ(r.records[0].number, 2);
    CHECK_EQ(r.records[0].parent_page, third);
    CHECK_EQ(r.records[0].first_position, 12);
    CHECK_EQ(r.records[0].page_count, 1);
    CHECK_EQ(r.tokens[0], 112);
    end_fixture(&f);
}

static void j01_items_say_which_part_of_an_image_a_record_has(void) {
    fixture f = with_journal(4, 32, 1 << 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_token_item items[3] = {image(1, 6, 9), image(2, 6, 9), {0}};
    items[2].token_index = 4;
    items[2].kind = RKV_TOKEN_SIZE;
    items[2].bin = 8;
    items[2].height_bin = 9;
    rkv_tokens prompt = with_items(ids, 6, items, 3); /* 1 + 9 + 9 + 1 + size + 1 = 22 positions */
    rkv_sequence_info state = begin(&f, prompt);
    publish(&f, state.sequence, 8);  /* ends inside the first image */
    publish(&f, state.sequence, 20); /* ends before the size */
    append(&f, state.sequence, 77);
    append(&f, state.sequence, 78);
    publish(&f, state.sequence, 24);
    CHECK_EQ(read_after(&f, 0), 3);
    CHECK_EQ(r.journal.item_count, 4);
    const rkv_journal_item *first = &r.items[0], *rest = &r.items[1], *second = &r.items[2];
    CHECK_EQ(first->kind, RKV_TOKEN_IMAGE);
    CHECK_EQ(first->position, 1);
    CHECK_EQ(first->position_count, 7);
    CHECK_EQ(first->image_offset, 0);
    CHECK_EQ(first->image_position_count, 9);
    CHECK_EQ(first->digest[15], 6);
    /* the rest of it in the next record, then the same image once more */
    CHECK_EQ(rest->position, 0);
    CHECK_EQ(rest->position_count, 2);
    CHECK_EQ(rest->image_offset, 7);
    CHECK_EQ(second->position, 2);
    CHECK_EQ(second->position_count, 9);
    CHECK_EQ(second->image_offset, 0);
    CHECK_EQ(r.items[3].kind, RKV_TOKEN_SIZE);
    CHECK_EQ(r.items[3].bin, 8);
    CHECK_EQ(r.items[3].height_bin, 9);
    CHECK_EQ(r.items[3].position, 0);
    CHECK_EQ(r.tokens[0], 1);
    CHECK_EQ(r.tokens[1], RKV_TEXT_ID_LIMIT);
    CHECK_EQ(r.tokens[19], 4);
    CHECK_EQ(r.tokens[20], RKV_TEXT_ID_LIMIT);
    CHECK_EQ(r.tokens[22], 77);
    release(&f, state.sequence);
    end_fixture(&f);
}

static void j01_a_removal_says_why(void) {
    fixture f = with_journal(2, 8, 1 << 16);
    uint32_t ids[16], pages[8];
    count_up(ids, 16, 1);
    request(&f, NULL, text(ids, 16)); /* all eight pages */
    CHECK_EQ(read_after(&f, 0), 1);
    uint32_t came[8];
    memcpy(came, r.pages, sizeof came);

    /* an allocation, a begin and an append evict what they need, from the end */
    allocate(&f, 2, pages);
    CHECK_EQ(read_after(&f, 1), 1);
    CHECK_EQ(r.records[0].kind, RKV_JOURNAL_REMOVED);
    CHECK_EQ(r.records[0].reason, RKV_REASON_CAPACITY);
    CHECK_EQ(r.records[0].page_count, 2);
    CHECK_EQ(r.pages[0], came[7]);
    CHECK_EQ(r.pages[1], came[6]);
    uint32_t other[4] = {900, 901, 902, 903};
    rkv_sequence_info state = begin(&f, text(other, 2));
    CHECK_EQ(read_after(&f, 2), 1);
    CHECK_EQ(r.records[0].reason, RKV_REASON_CAPACITY);
    CHECK_EQ(r.pages[0], came[5]);
    append(&f, state.sequence, 904);
    CHECK_EQ(read_after(&f, 3), 1);
    CHECK_EQ(r.records[0].reason, RKV_REASON_CAPACITY);
    CHECK_EQ(r.pages[0], came[4]);
    release(&f, state.sequence);

    CHECK_EQ(evict(&f, 3), 3);
    CHECK_EQ(read_after(&f, 4), 1);
    CHECK_EQ(r.records[0].reason, RKV_REASON_CALLER);
    CHECK_EQ(r.records[0].page_count, 3);
    CHECK_EQ(r.pages[0], came[3]);
    CHECK_EQ(r.pages[2], came[1]);
    CHECK_EQ(r.records[0].token_count, 0);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages, 2));
    end_fixture(&f);
}

/* The page table tells how it ended, and the next cache's numbers go on from there. */
static void j01_a_destroyed_cache_takes_its_pages_along(void) {
    fixture f = with_journal(2, 8, 1 << 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    request(&f, NULL, text(ids, 6));
    rkv_journal_buffers room = all_room();
    CHECK_OK(rkv_page_table_read_journal(f.table, 0, &room, &r.journal));
    CHECK_EQ(r.journal.record_count, 1);
    uint64_t bytes = table_stats(&f).memory_bytes;
    rkv_cache_destroy(f.cache);
    CHECK(table_stats(&f).memory_bytes >= bytes);
    room = all_room();
    CHECK_OK(rkv_page_table_read_journal(f.table, 1, &room, &r.journal));
    CHECK_EQ(r.journal.record_count, 1);
    CHECK_EQ(r.records[0].reason, RKV_REASON_DESTROYED);
    CHECK_EQ(r.records[0].page_count, 3);

    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    request(&f, NULL, text(ids, 6));
    CHECK_EQ(read_after(&f, 2), 1);
    CHECK_EQ(r.records[0].number, 3);
    /* who had not read the end sees that it is gone */
    CHECK_EQ(read_after(&f, 1), 1);
    CHECK_EQ(r.journal.lost_count, 1);

    /* a cache without a journal: nothing is left to read */
    rkv_cache_destroy(f.cache);
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    room = all_room();
    REFUSED(&f, rkv_page_table_read_journal(f.table, 0, &room, &r.journal),
            RKV_STATUS_INVALID_STATE, "journal_bytes was 0");
    rkv_cache_destroy(f.cache);
    CHECK_STATUS(rkv_page_table_read_journal(f.table, 0, &room, &r.journal),
                 RKV_STATUS_INVALID_STATE);
    rkv_page_table_destroy(f.table);
}

static void j02_contents_and_later_records_are_what_is_held(void) {
    fixture f = with_journal(2, 16, 1 << 16);
    uint32_t ids[16], other[8];
    count_up(ids, 16, 1);
    count_up(other, 8, 500);
    request(&f, NULL, text(ids, 12));
    /* one page at a time; in between some go and others come in their place */
    uint32_t held[17] = {0}, next = 0;
    uint64_t number = 0;
    for (int call = 0; call == 0 || next != 0; call++) {
        rkv_journal_buffers room = all_room();
        room.record_capacity = 1;
        room.page_capacity = 3;
        CHECK_STATUS(rkv_cache_read_contents(f.cache, next, &room, &r.contents),
                     call == 0 ? RKV_STATUS_BUFFER_TOO_SMALL : RKV_STATUS_OK);
        if (call == 0) { /* six pages in a row are one record */
            CHECK_EQ(r.contents.page_count, 6);
            CHECK_EQ(r.contents.token_count, 12);
            CHECK_EQ(r.contents.next_page, 0);
            CHECK_EQ(evict(&f, 3), 3);
            number = r.contents.number;
            room = all_room();
            room.record_capacity = 1;
            CHECK_OK(rkv_cache_read_contents(f.cache, 0, &room, &r.contents));
            number = r.contents.number;
            CHECK_EQ(number, 2);
            request(&f, NULL, text(other, 8));
            CHECK_EQ(evict(&f, 1), 1);
        }
        for (size_t i = 0; i < r.contents.page_count; i++) {
            held[r.pages[i]] = r.tokens[2 * i];
        }
        next = r.contents.next_page;
    }
    CHECK(read_after(&f, number) >= 2);
    for (size_t at = 0; at < r.journal.record_count; at++) {
        const rkv_journal_record *record = &r.records[at];
        for (size_t i = 0; i < record->page_count; i++) {
            uint32_t page = r.pages[record->page_index + i];
            bool stored = record->kind == RKV_JOURNAL_STORED;
            held[page] = stored ? r.tokens[record->token_index + 2 * i] : 0;
        }
    }
    uint64_t count = 0;
    for (uint32_t page = 1; page <= 16; page++) {
        bool cached = false;
        CHECK_OK(rkv_cache_contains_page(f.cache, page, &cached));
        CHECK_EQ(held[page] != 0, cached);
        count += cached;
    }
    CHECK_EQ(count, 6);
    end_fixture(&f);
}

static void j02_a_small_ring_shows_what_is_lost_as_a_gap(void) {
    fixture f = with_journal(2, 64, 1024 + 2 * 256);
    uint32_t ids[2];
    for (uint32_t i = 0; i < 60; i++) {
        ids[0] = i;
        ids[1] = i;
        request(&f, NULL, text(ids, 2));
    }
    size_t count = read_after(&f, 0);
    CHECK(count > 10 && count < 60);
    CHECK_EQ(r.journal.newest_number, 60);
    CHECK_EQ(r.journal.lost_count, 60 - count);
    CHECK_EQ(r.journal.oldest_number, 61 - count);
    CHECK_EQ(r.records[0].number, r.journal.oldest_number);
    CHECK_EQ(r.tokens[0], 60 - count);
    CHECK_EQ(read_after(&f, r.journal.oldest_number), count - 1);
    CHECK_EQ(r.journal.lost_count, 0);
    CHECK_EQ(read_after(&f, 60), 0);
    end_fixture(&f);
}

/* One rule for buffers, as for every reader. */
static void j02_a_reader_asks_and_is_told_what_one_record_needs(void) {
    fixture f = with_journal(2, 16, 1 << 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_token_item item = image(1, 3, 3);
    request(&f, NULL, with_items(ids, 6, &item, 1)); /* 4 pages, 8 tokens, 1 item */
    CHECK_EQ(evict(&f, 1), 1);
    rkv_journal_buffers room = all_room();
    room.records = NULL;
    room.pages = room.tokens = NULL;
    room.items = NULL;
    room.record_capacity = room.page_capacity = room.token_capacity = room.item_capacity = 0;
    CHECK_OK(rkv_cache_read_journal(f.cache, 0, &room, &r.journal));
    CHECK_EQ(r.journal.record_count, 2);
    CHECK_EQ(r.journal.page_count, 5);
    CHECK_EQ(r.journal.token_count, 8);
    CHECK_EQ(r.journal.item_count, 1);
    CHECK_EQ(r.journal.last_number, 0);

    /* each buffer too small in turn, and all: what the first record needs, and nothing else is
     * written; who has buffers does not ask, also when there is no room in them */
    for (int which = 0; which < 5; which++) {
        room = all_room();
        if (which == 4) {
            room.record_capacity = room.page_capacity = 0;
            room.token_capacity = room.item_capacity = 0;
        }
        if (which == 0) room.record_capacity = 0;
        if (which == 1) room.page_capacity = 3;
        if (which == 2) room.token_capacity = 7;
        if (which == 3) room.item_capacity = 0;
        mark(r.pages, sizeof r.pages);
        const char *names[5] = {"records", "pages", "tokens", "items", "records"};
        REFUSED(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal),
                RKV_STATUS_BUFFER_TOO_SMALL, names[which]);
        UNTOUCHED(r.pages);
        CHECK_EQ(r.journal.record_count, 1);
        CHECK_EQ(r.journal.page_count, 4);
        CHECK_EQ(r.journal.token_count, 8);
        CHECK_EQ(r.journal.item_count, 1);
        CHECK_EQ(r.journal.last_number, 0);
    }
    /* room for the first alone: whole records only, the next call goes on */
    room = all_room();
    room.page_capacity = 4;
    CHECK_OK(rkv_cache_read_journal(f.cache, 0, &room, &r.journal));
    CHECK_EQ(r.journal.record_count, 1);
    CHECK_EQ(r.journal.last_number, 1);
    CHECK_EQ(r.journal.newest_number, 2);
    CHECK_EQ(read_after(&f, 1), 1);

    /* the elements of a newer caller are larger: what the library doesn't know is zero */
    struct {
        rkv_journal_record base;
        uint64_t future;
    } larger[2];
    struct {
        rkv_journal_item base;
        uint32_t future;
    } larger_item[1];
    mark(larger, sizeof larger);
    mark(larger_item, sizeof larger_item);
    room = all_room();
    room.records = &larger[0].base;
    room.record_size = sizeof larger[0];
    room.record_capacity = 2;
    room.items = &larger_item[0].base;
    room.item_size = sizeof larger_item[0];
    room.item_capacity = 1;
    CHECK_OK(rkv_cache_read_journal(f.cache, 0, &room, &r.journal));
    CHECK_EQ(r.journal.record_count, 2);
    CHECK(larger[0].future == 0 && larger[1].future == 0 && larger_item[0].future == 0);
    CHECK_EQ(larger[1].base.number, 2);
    CHECK_EQ(larger[1].base.page_count, 1);
    CHECK_EQ(larger_item[0].base.position, 1);
    end_fixture(&f);
}

static void m01_journal(void) {
    fixture f = with_journal(2, 8, 1 << 16), off = new_fixture(2, 8);
    rkv_page_table *table = new_table(16, 8, 2);
    rkv_cache_config config;
    rkv_cache *cache = NULL;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    CHECK_EQ(config.journal_bytes, 0);
    config.journal_bytes = 1024 + 16 * 256 - 1;
    BAD(&f, rkv_cache_create(table, &config, &cache), "config.journal_bytes");
    config.journal_bytes = 1;
    BAD(&f, rkv_cache_create(table, &config, &cache), "config.journal_bytes");
    config.journal_bytes = UINT64_MAX;
    BAD(&f, rkv_cache_create(table, &config, &cache), "config.journal_bytes");
    CHECK(cache == NULL);
    rkv_page_table_destroy(table);

    rkv_journal_buffers room = all_room();
    REFUSED(&off, rkv_cache_read_journal(off.cache, 0, &room, &r.journal),
            RKV_STATUS_INVALID_STATE, "journal_bytes was 0");
    REFUSED(&off, rkv_page_table_read_journal(off.table, 0, &room, &r.journal),
            RKV_STATUS_INVALID_STATE, "journal_bytes was 0");
    REFUSED(&off, rkv_cache_read_contents(off.cache, 0, &room, &r.contents),
            RKV_STATUS_INVALID_STATE, "journal_bytes was 0");
    BAD(&f, rkv_cache_read_journal(NULL, 0, &room, &r.journal), "cache");
    BAD(&f, rkv_cache_read_journal(f.cache, 0, NULL, &r.journal), "buffers");
    BAD(&f, rkv_page_table_read_journal(NULL, 0, &room, &r.journal), "table");
    BAD(&f, rkv_cache_read_contents(NULL, 0, &room, &r.contents), "cache");
    BAD_INPUT_SIZES(&f, rkv_journal_buffers, room, p,
                    rkv_cache_read_journal(f.cache, 0, p, &r.journal), "buffers");
    BAD_INPUT_SIZES(&f, rkv_journal_buffers, room, p,
                    rkv_cache_read_contents(f.cache, 0, p, &r.contents), "buffers");
    GOOD_BIGGER_INPUT(rkv_journal_buffers, room, p,
                      rkv_cache_read_journal(f.cache, 0, p, &r.journal));
    OUTPUT_SIZES(&f, rkv_cache_read_journal_result, p,
                 rkv_cache_read_journal(f.cache, 0, &room, p), "out_result");
    GOOD_BIGGER_OUTPUT(rkv_cache_read_journal_result, p,
                       rkv_cache_read_journal(f.cache, 0, &room, p));
    OUTPUT_SIZES(&f, rkv_cache_read_contents_result, p,
                 rkv_cache_read_contents(f.cache, 0, &room, p), "out_result");
    room.flags = 1;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.flags");
    BAD(&f, rkv_cache_read_contents(f.cache, 0, &room, &r.contents), "buffers.flags");
    room = all_room();
    BAD(&f, rkv_cache_read_journal(f.cache, 1, &room, &r.journal), "after_number");
    BAD(&f, rkv_cache_read_journal(f.cache, UINT64_MAX, &room, &r.journal), "after_number");
    /* that of the first release is less, and good */
    room.record_size = offsetof(rkv_journal_record, group_0_page_index);
    CHECK_OK(rkv_cache_read_journal(f.cache, 0, &room, &r.journal));
    room.record_size -= 8;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.record_size");
    room.record_size = sizeof r.records[0] + 4;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.record_size");
    room = all_room();
    room.item_size = 0;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.item_size");
    room = all_room();
    room.tokens = NULL;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.tokens");
    room = all_room();
    room.record_capacity = SIZE_MAX / 8;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.records");
    room = all_room();
    /* together none, as far as a size_t counts */
    room.page_capacity = room.token_capacity = SIZE_MAX / 2 + 1;
    room.record_capacity = room.item_capacity = 0;
    BAD(&f, rkv_cache_read_journal(f.cache, 0, &room, &r.journal), "buffers.pages");
    room = all_room();
    BAD(&f, rkv_cache_read_contents(f.cache, 9, &room, &r.contents), "first_page");
    BAD(&f, rkv_cache_read_contents(f.cache, UINT32_MAX, &room, &r.contents), "first_page");
    end_fixture(&f);
    end_fixture(&off);
}

int main(void) {
    RUN_BOTH(j01_a_record_says_all_of_the_pages_that_came);
    RUN_BOTH(j01_items_say_which_part_of_an_image_a_record_has);
    RUN_BOTH(j01_a_removal_says_why);
    RUN_BOTH(j01_a_destroyed_cache_takes_its_pages_along);
    RUN_BOTH(j02_contents_and_later_records_are_what_is_held);
    RUN_BOTH(j02_a_small_ring_shows_what_is_lost_as_a_gap);
    RUN_BOTH(j02_a_reader_asks_and_is_told_what_one_record_needs);
    RUN_BOTH(m01_journal);
    return check_result();
}
