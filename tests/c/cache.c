/* Match, split, insert and probe. */
#include "fixture.h"

/* K05: checks the pages that a match reports against those that were inserted. */
static rkv_cache_match_result match_pages(const fixture *f, rkv_tokens tokens, const uint32_t *want,
                             size_t want_count) {
    uint32_t pages[64];
    rkv_cache_match_result match = new_match();
    memset(pages, 0xA5, sizeof pages);
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, 0, pages, 63, &match));
    CHECK_EQ(match.page_count, want_count);
    CHECK(want_count == 0 || memcmp(pages, want, want_count * sizeof *want) == 0);
    CHECK_EQ(pages[want_count], 0xA5A5A5A5u);
    return match;
}

static void k05_longest_prefix(void) {
    fixture f = new_fixture(1, 64);
    uint32_t ids[10], pages[10], other[8];
    count_up(ids, 10, 1);
    allocate(&f, 10, pages);
    /* empty cache, empty query */
    rkv_cache_match_result match = match_pages(&f, text(ids, 10), NULL, 0);
    CHECK(match.token_count == 0 && match.node == 0 && match.partial_node == 0);
    match = match_pages(&f, text(NULL, 0), NULL, 0);
    CHECK(match.token_count == 0 && match.node == 0);
    rkv_node_id node = insert_pages(&f, NULL, text(ids, 8), pages, 8).node;
    match = match_pages(&f, text(NULL, 0), NULL, 0);
    CHECK(match.token_count == 0 && match.node == 0);
    /* exact hit */
    match = match_pages(&f, text(ids, 8), pages, 8);
    CHECK(match.node == node && match.token_count == 8 && match.position_count == 8);
    /* a query beyond the stored sequence's end */
    match = match_pages(&f, text(ids, 10), pages, 8);
    CHECK(match.node == node && match.token_count == 8);
    /* total miss */
    count_up(other, 8, 100);
    match = match_pages(&f, text(other, 8), NULL, 0);
    CHECK(match.token_count == 0 && match.node == 0 && match.lock == 0);
    /* across several nodes: pages in order */
    insert_pages(&f, NULL, text(ids, 10), pages, 10);
    match = match_pages(&f, text(ids, 10), pages, 10);
    CHECK(match.node != node && match.token_count == 10);
    end_fixture(&f);
}

/* A token id that no text has matches nothing and is no error; inserting it is one. */
static void k05_ids_beyond_the_limit_match_nothing(void) {
    fixture f = new_fixture(1, 8);
    uint32_t ids[3] = {1, RKV_TEXT_ID_LIMIT, UINT32_MAX};
    insert(&f, text(ids, 1));
    CHECK_EQ(match_of(&f, text(ids, 3)).token_count, 1);
    CHECK_EQ(match_of(&f, text(ids + 1, 2)).token_count, 0);
    end_fixture(&f);
}

static void k05_room_for_pages(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8], pages[4] = {9, 9, 9, 9};
    count_up(ids, 8, 1);
    insert(&f, text(ids, 8));
    rkv_tokens shorter = text(ids, 6);
    rkv_cache_match_result match = new_match();
    match.token_count = 77;
    rkv_cache_stats before = cache_stats(&f);
    CHECK_STATUS(rkv_cache_match(f.cache, NULL, &shorter, RKV_MATCH_LOCK, pages, 2, &match),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(match.page_count == 3 && match.token_count == 77 && pages[0] == 9);
    rkv_cache_stats after = cache_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0); /* no split, no lock, no count */
    CHECK_OK(rkv_cache_match(f.cache, NULL, &shorter, 0, pages, 3, &match));
    CHECK(match.page_count == 3 && pages[3] == 9);
    end_fixture(&f);
}

static void k06_split_keeps_metadata(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8], pages[4], got[4];
    size_t count = 0;
    count_up(ids, 8, 1);
    allocate(&f, 4, pages);
    rkv_node_id deep = insert_pages(&f, NULL, text(ids, 8), pages, 4).node;
    match_of(&f, text(ids, 8));
    rkv_lock_id deep_lock = lock_node(&f, deep);
    rkv_node_info whole = info_of(&f, deep);
    CHECK_EQ(whole.hit_count, 1);
    rkv_node_id high = match_of(&f, text(ids, 4)).node;
    CHECK(high != deep && high != 0);
    /* the old id stays with the deep half; to it the split was no access */
    rkv_node_info tail = info_of(&f, deep), head = info_of(&f, high);
    CHECK_EQ(tail.parent, high);
    CHECK_EQ(head.parent, whole.parent);
    CHECK(tail.page_count == 2 && tail.position_count == 4 && tail.end_position == 8);
    CHECK(head.page_count == 2 && head.position_count == 4 && head.end_position == 4);
    CHECK_EQ(tail.lock_count, 1);
    CHECK_EQ(head.lock_count, 1);
    CHECK_EQ(tail.last_access, whole.last_access);
    CHECK_EQ(tail.hit_count, 1);
    /* the head was matched, after it got the whole node's history */
    CHECK(head.last_access > whole.last_access);
    CHECK_EQ(head.hit_count, 2);
    CHECK_OK(rkv_node_read_pages(f.cache, high, got, 4, &count));
    CHECK(count == 2 && memcmp(got, pages, 2 * sizeof *got) == 0);
    CHECK_OK(rkv_node_read_pages(f.cache, deep, got, 4, &count));
    CHECK(count == 2 && memcmp(got, pages + 2, 2 * sizeof *got) == 0);
    /* the lock belongs to the deep half alone and protects both */
    CHECK_EQ(reclaimable_pages(&f), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, deep_lock));
    CHECK_EQ(info_of(&f, high).lock_count, 0);
    CHECK_EQ(reclaimable_pages(&f), 4);
    end_fixture(&f);
}

/* Every cut point of every page size: pages == positions / page_size on both sides. */
static void k06_split_anywhere(void) {
    const uint32_t sizes[] = {1, 2, 3, 16};
    for (size_t s = 0; s < 4; s++) {
        for (uint32_t cut = 1; cut < 6; cut++) {
            fixture f = new_fixture(sizes[s], 16);
            uint32_t ids[96];
            count_up(ids, 96, 1);
            rkv_node_id deep = insert(&f, text(ids, 6 * sizes[s])).node;
            rkv_cache_match_result match = match_of(&f, text(ids, cut * sizes[s]));
            CHECK_EQ(match.page_count, cut);
            rkv_node_info head = info_of(&f, match.node), tail = info_of(&f, deep);
            CHECK_EQ(head.page_count, cut);
            CHECK_EQ(head.position_count, cut * sizes[s]);
            CHECK_EQ(tail.page_count, 6 - cut);
            CHECK_EQ(tail.position_count, (6 - cut) * sizes[s]);
            CHECK_EQ(cache_stats(&f).node_count, 2);
            end_fixture(&f);
        }
    }
}

static void k07_insert_twice_claims_nothing(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[9], pages[4], more[4], published[4];
    count_up(ids, 9, 1);
    allocate(&f, 4, pages);
    allocate(&f, 4, more);
    /* the ninth token fills no page */
    rkv_cache_insert_result first = insert_pages(&f, NULL, text(ids, 9), pages, 4);
    CHECK(first.node != 0 && first.claimed_page_count == 4 && first.duplicate_page_count == 0);
    rkv_tokens tokens = text(ids, 8);
    rkv_cache_insert_args args = insert_args(&tokens, more, 4);
    rkv_cache_insert_result second;
    memset(&second, 0, sizeof second);
    second.struct_size = sizeof second;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &second));
    CHECK_EQ(second.node, first.node);
    CHECK(second.claimed_page_count == 0 && second.duplicate_page_count == 4);
    CHECK(memcmp(published, pages, sizeof pages) == 0);
    /* the very same pages again are no duplicates */
    second = insert_pages(&f, NULL, text(ids, 8), pages, 4);
    CHECK(second.node == first.node && second.claimed_page_count == 0);
    CHECK_EQ(second.duplicate_page_count, 0);
    CHECK_OK(rkv_page_table_free_pages(f.table, more, 4));
    CHECK_EQ(cached_pages(&f), 4);
    end_fixture(&f);
}

/* An insert over a prefix that holds other pages: those stay, the rest is claimed. */
static void k07_insert_over_other_pages(void) {
    fixture f = new_fixture(1, 32);
    uint32_t ids[6], pages[3], mine[6], published[7];
    count_up(ids, 6, 1);
    allocate(&f, 3, pages);
    allocate(&f, 6, mine);
    insert_pages(&f, NULL, text(ids, 3), pages, 3);
    rkv_tokens tokens = text(ids, 5);
    rkv_cache_insert_args args = insert_args(&tokens, mine, 6);
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    published[6] = 77;
    CHECK_OK(rkv_cache_insert(f.cache, &args, published, &result));
    CHECK(result.claimed_page_count == 2 && result.duplicate_page_count == 3);
    CHECK(memcmp(published, pages, sizeof pages) == 0);
    /* the last entry is the caller's own page behind the last whole page of the tokens */
    CHECK(memcmp(published + 3, mine + 3, 3 * sizeof *mine) == 0);
    CHECK_EQ(published[6], 77);
    CHECK_OK(rkv_page_table_free_pages(f.table, mine, 3));
    CHECK_OK(rkv_page_table_free_pages(f.table, mine + 5, 1));
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

static void k07_insert_resumes_at_a_node(void) {
    fixture f = new_fixture(1, 800);
    enum { IMAGE = 729, ALL = 2 + IMAGE };
    static uint32_t pages[ALL];
    const uint32_t ids[4] = {1, 0, 5, 6};
    rkv_token_item picture = image(1, 3, IMAGE);
    allocate(&f, ALL, pages);
    insert_pages(&f, NULL, with_items(ids, 2, &picture, 1), pages, 1 + IMAGE);
    rkv_cache_match_result match = match_of(&f, with_items(ids, 3, &picture, 1));
    CHECK(match.token_count == 2 && match.page_count == 1 + IMAGE);
    /* pages before from_page_index are not read: leave them out of a copy */
    static uint32_t tail[ALL];
    tail[ALL - 1] = pages[ALL - 1];
    rkv_tokens tokens = with_items(ids, 3, &picture, 1);
    rkv_cache_insert_args args = insert_args(&tokens, tail, ALL);
    args.from_node = match.node;
    args.from_token_index = match.token_count;
    args.from_page_index = match.page_count;
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK(result.claimed_page_count == 1 && result.duplicate_page_count == 0);
    CHECK_EQ(info_of(&f, result.node).parent, match.node);
    uint32_t got = 0;
    size_t count = 0;
    CHECK_OK(rkv_node_read_pages(f.cache, result.node, &got, 1, &count));
    CHECK_EQ(got, pages[ALL - 1]);
    /* the token index in place of the page index is noticed */
    rkv_cache_stats before = cache_stats(&f);
    args.from_page_index = match.token_count;
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    args.from_page_index = match.page_count;
    args.from_token_index = match.page_count;
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    rkv_cache_stats after = cache_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    end_fixture(&f);
}

/* The namespace is the node's: the argument is not read. */
static void k07_resuming_reads_no_namespace(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8], pages[4];
    count_up(ids, 8, 1);
    rkv_namespace space = new_namespace();
    space.epoch = 5;
    rkv_node_id node = insert_in(&f, &space, text(ids, 4)).node;
    allocate(&f, 4, pages);
    rkv_tokens tokens = text(ids, 8);
    rkv_cache_insert_args args = insert_args(&tokens, pages, 4);
    rkv_namespace unreadable = new_namespace();
    unreadable.struct_size = 0;
    args.space = &unreadable;
    args.from_node = node;
    args.from_token_index = 4;
    args.from_page_index = 2;
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK_EQ(probe_in(&f, &space, text(ids, 8)), 8);
    CHECK_EQ(probe(&f, text(ids, 8)), 0);
    end_fixture(&f);
}

static void k07_failed_insert_changes_nothing(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8], pages[4], twice[2];
    count_up(ids, 8, 1);
    insert(&f, text(ids, 4));
    allocate(&f, 4, pages);
    rkv_cache_stats before = cache_stats(&f);
    rkv_tokens other = text(ids + 1, 4), branch;
    uint32_t fork[4] = {1, 2, 9, 9};
    branch = text(fork, 4);
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    result.node = 77;
    /* no root, no split, no claim for a page that is given twice, free, cached or out of range */
    twice[0] = twice[1] = pages[0];
    rkv_cache_insert_args args = insert_args(&other, twice, 2);
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    const uint32_t useless[3] = {0, 17, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        twice[1] = useless[i];
        args = insert_args(&branch, twice, 2);
        CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result),
                     RKV_STATUS_INVALID_ARGUMENT);
    }
    /* too few pages */
    args = insert_args(&other, pages, 1);
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("pages"));
    rkv_cache_stats after = cache_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK_EQ(result.node, 77);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages, 4));
    end_fixture(&f);
}

/* B01: less than a page matches and inserts nothing, and creates nothing. */
static void b01_less_than_a_page(void) {
    fixture f = new_fixture(16, 8);
    uint32_t ids[15], page;
    count_up(ids, 15, 1);
    rkv_cache_insert_result result = insert(&f, text(ids, 15));
    CHECK(result.node == 0 && result.claimed_page_count == 0);
    result = insert(&f, text(NULL, 0));
    CHECK(result.node == 0 && result.claimed_page_count == 0);
    allocate(&f, 1, &page);
    result = insert_pages(&f, NULL, text(ids, 15), &page, 1);
    CHECK(result.node == 0 && result.claimed_page_count == 0);
    CHECK_OK(rkv_page_table_free_pages(f.table, &page, 1));
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    CHECK_EQ(match_of(&f, text(ids, 15)).token_count, 0);
    end_fixture(&f);
}

static void b01_1060_tokens_at_16_match_66_pages(void) {
    fixture f = new_fixture(16, 80);
    static uint32_t ids[1060];
    count_up(ids, 1060, 1);
    CHECK_EQ(insert(&f, text(ids, 1060)).claimed_page_count, 66);
    rkv_cache_match_result match = match_of(&f, text(ids, 1060));
    CHECK(match.page_count == 66 && match.position_count == 1056);
    end_fixture(&f);
}

/* B01, G13: each one that the kernels take, and some of those that only the index does. */
static void b01_every_page_size(void) {
    static uint32_t ids[4 * RKV_PAGE_SIZE_MAX];
    count_up(ids, 4 * RKV_PAGE_SIZE_MAX, 1);
    const uint32_t larger[] = {257, 528, 1056, 4096, 65535, RKV_PAGE_SIZE_MAX};
    for (uint32_t at = 1; at <= 256 + sizeof larger / sizeof *larger; at++) {
        uint32_t size = at <= 256 ? at : larger[at - 257];
        fixture f = new_fixture_with(size, 8, 2, RKV_CACHE_WHOLE_PAGES);
        CHECK_EQ(insert(&f, text(ids, 4 * size - 1)).claimed_page_count, 3);
        CHECK_EQ(match_of(&f, text(ids, 4 * size)).position_count, 3 * size);
        CHECK_EQ(match_of(&f, text(ids, 2 * size)).page_count, 2);
        CHECK_EQ(match_of(&f, text(ids, size)).page_count, 1);
        CHECK_EQ(match_of(&f, text(ids, size - 1)).page_count, 0);
        end_fixture(&f);
    }
}

static void b04_contains_page(void) {
    fixture f = new_fixture(2, 8);
    uint32_t ids[4] = {1, 2, 3, 4}, pages[3];
    allocate(&f, 3, pages);
    rkv_node_id node = insert_pages(&f, NULL, text(ids, 4), pages, 2).node;
    const uint32_t others[] = {0, pages[2], 9, UINT32_MAX};
    bool contains = false;
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(rkv_cache_contains_page(f.cache, pages[i], &contains));
        CHECK(contains);
    }
    for (size_t i = 0; i < 4; i++) {
        contains = true;
        CHECK_OK(rkv_cache_contains_page(f.cache, others[i], &contains));
        CHECK(!contains);
    }
    CHECK(cached_pages(&f) == 2 && reclaimable_pages(&f) == 2);
    rkv_lock_id node_lock = lock_node(&f, node);
    CHECK(cached_pages(&f) == 2 && reclaimable_pages(&f) == 0);
    CHECK_OK(rkv_cache_unlock(f.cache, node_lock));
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_OK(rkv_cache_contains_page(f.cache, pages[1], &contains));
    CHECK(!contains);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages + 2, 1));
    end_fixture(&f);
}

/* B09: what a match would find, with nothing changed: no split, recency, lock or count. */
static void b09_probe_changes_nothing(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[16];
    count_up(ids, 16, 1);
    rkv_node_id node = insert(&f, text(ids, 12)).node;
    rkv_cache_stats before = cache_stats(&f);
    rkv_node_info info = info_of(&f, node);
    for (size_t count = 0; count <= 16; count++) {
        rkv_tokens tokens = text(ids, count);
        size_t token_count = 77, position_count = 77;
        CHECK_OK(rkv_cache_probe(f.cache, NULL, &tokens, &token_count, &position_count));
        CHECK_EQ(token_count, count < 12 ? count : 12);
        CHECK_EQ(position_count, token_count);
    }
    rkv_cache_stats after = cache_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    rkv_node_info now = info_of(&f, node);
    CHECK(memcmp(&info, &now, sizeof info) == 0);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k05_longest_prefix);
    RUN_BOTH(k05_ids_beyond_the_limit_match_nothing);
    RUN_BOTH(k05_room_for_pages);
    RUN(k06_split_keeps_metadata);
    RUN(k06_split_anywhere);
    RUN_BOTH(k07_insert_twice_claims_nothing);
    RUN_BOTH(k07_insert_over_other_pages);
    RUN_BOTH(k07_insert_resumes_at_a_node);
    RUN_BOTH(k07_resuming_reads_no_namespace);
    RUN_BOTH(k07_failed_insert_changes_nothing);
    RUN_BOTH(b01_less_than_a_page);
    RUN_BOTH(b01_1060_tokens_at_16_match_66_pages);
    RUN_BOTH(b01_every_page_size);
    RUN_BOTH(b04_contains_page);
    RUN(b09_probe_changes_nothing);
    return check_result();
}
